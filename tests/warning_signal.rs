//! --signal: a warning before the time limit.

use slotd_kit::{Setup, Slotd};

const LOOP: &str = "while :; do sleep 0.05; done";

#[test]
fn a_script_that_saves_at_the_warning_is_a_success() {
    let slotd = Slotd::start();
    let job = slotd.wrap(
        &["-t", "0:04", "--signal", "B:USR1@3"],
        &format!("trap 'echo saved; exit 0' USR1; {LOOP}"),
    );
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "saved\n");
    let ran = ended.end() - ended.start();
    assert!(ran >= 1_000_000, "warned after {ran} microseconds");
}

#[test]
fn without_steps_the_job_s_own_processes_with_a_handler_are_told() {
    let slotd = Slotd::start();
    // The child has no handler and would die of the signal: it must not.
    let script =
        format!("(sleep 0.01; exec sleep 1000) & trap 'echo saved; kill $!; exit 0' USR1; {LOOP}");
    let job = slotd.wrap(&["-t", "0:04", "--signal", "USR1@3"], &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "saved\n");
}

#[test]
fn a_job_without_a_handler_is_not_killed_by_its_warning() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "0:02", "--signal", "USR1@1"], "exec sleep 1000");
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert!(ended.end() - ended.start() >= 2_000_000);
}

#[test]
fn the_steps_are_told_and_not_the_batch_shell() {
    let slotd = Slotd::start();
    let script = format!(
        "#!/bin/sh\ntrap 'echo shell' USR1\nsrun sh -c 'trap \"echo step; exit 9\" USR1; {LOOP}' 2>/dev/null\necho rc=$?\n"
    );
    let job = slotd.script(&["-t", "0:04", "--signal=USR1@3"], &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "step\nrc=9\n");
}

#[test]
fn b_tells_the_batch_shell_alone() {
    let slotd = Slotd::start();
    let script = format!(
        "#!/bin/sh\ntrap 'echo shell; kill $!; exit 0' USR1\nsh -c 'trap \"echo child\" USR1; {LOOP}' &\nwait\n"
    );
    let job = slotd.script(&["-t", "0:04", "--signal=B:USR1@3"], &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "shell\n");
}

#[test]
fn a_warning_is_given_once_even_through_a_restart() {
    let mut slotd = Setup::default().start();
    let job = slotd
        .wrap(&["-t", "0:03", "--signal", "B:USR1@2"], &format!("trap 'echo warned' USR1; {LOOP}"));
    slotd.wait_text(&format!("slurm-{job}.out"), "warned");
    slotd.crash();
    slotd.wait_state(job, "TIMEOUT");
    assert_eq!(slotd.output(job).matches("warned").count(), 1, "{}", slotd.output(job));
}

#[test]
fn signals_have_names_and_numbers() {
    let slotd = Slotd::start();
    let jobs = ["USR2", "SIGUSR2", "12"].map(|signal| {
        let spec = format!("B:{signal}@3");
        slotd.wrap(&["-t", "0:04", "--signal", &spec], &format!("trap 'exit 0' USR2; {LOOP}"))
    });
    for job in jobs {
        slotd.wait_state(job, "COMPLETED");
    }
}

const TRAP: &str = "trap 'echo told' USR1; echo ready; while [ ! -e go ]; do sleep 0.03; done";

#[test]
fn a_warning_without_b_reaches_the_steps_and_not_the_batch_shell() {
    let slotd = Slotd::start();
    let script = "trap 'echo shell told' USR1\n\
                  srun sh -c 'trap \"echo step told; exit 9\" USR1; echo ready; while :; do sleep 0.03; done'\n\
                  echo code $?\n";
    let id = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "log"], script);
    slotd.wait_text("log", "ready");
    slotd.limit(id, 61);
    slotd.wait_state(id, "COMPLETED");
    let log = slotd.read("log");
    assert!(
        log.contains("step told") && log.contains("code 9") && !log.contains("shell told"),
        "{log}"
    );
}

#[test]
fn a_warning_without_steps_reaches_whoever_has_a_handler_and_kills_nobody() {
    let slotd = Slotd::start();
    let with = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "with"], TRAP);
    let without = format!("echo ready; {}", slotd.gate("go"));
    let without = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "without"], &without);
    slotd.wait_text("with", "ready");
    slotd.wait_text("without", "ready");
    slotd.limit(without, 61);
    slotd.limit(with, 61);
    slotd.wait_text("with", "told");
    slotd.open("go");
    slotd.wait_state(with, "COMPLETED");
    slotd.wait_state(without, "COMPLETED");
}
