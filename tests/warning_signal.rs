//! --signal: a warning before the time limit.

use slotd_kit::{Setup, Slotd};

/// The main loop of a script that is ready to be warned.
const LOOP: &str = "echo ready; while :; do sleep 0.05; done";

/// Submits a job that is warned a minute before its end. Its limit is set once it is ready, so that
/// it is warned after running for a second, or immediately if it has run longer.
#[track_caller]
fn warned(slotd: &Slotd, signal: &str, script: &str) -> u32 {
    let job = slotd.script(&["-t", "10", "--signal", &format!("{signal}@60")], script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready\n");
    slotd.limit(job, 61);
    job
}

#[test]
fn script_that_exits_at_the_warning_completes() {
    let slotd = Slotd::start();
    let script = format!("#!/bin/sh\ntrap 'echo saved; exit 0' USR1; {LOOP}\n");
    let job = warned(&slotd, "B:USR1", &script);
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "ready\nsaved\n");
    let ran = ended.end() - ended.start();
    assert!(ran >= 1_000_000, "warned after {ran} microseconds");
}

#[test]
fn warning_without_steps_reaches_only_processes_with_a_handler() {
    let slotd = Slotd::start();
    // The child has no handler, so the signal would kill it. It must not receive it.
    let script = format!(
        "#!/bin/sh\n(sleep 0.01; exec sleep 1000) &\n\
         trap 'echo saved; kill $!; exit 0' USR1\n{LOOP}\n"
    );
    let job = warned(&slotd, "USR1", &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "ready\nsaved\n");
}

#[test]
fn job_without_a_handler_is_not_killed_by_its_warning() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "0:02", "--signal", "USR1@1"], "exec sleep 1000");
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert!(ended.end() - ended.start() >= 2_000_000);
}

#[test]
fn warning_reaches_steps_but_not_the_batch_shell() {
    let slotd = Slotd::start();
    let script = format!(
        "#!/bin/sh\ntrap 'echo shell' USR1\nsrun sh -c 'trap \"echo step; exit 9\" USR1; {LOOP}' 2>/dev/null\necho rc=$?\n"
    );
    let job = warned(&slotd, "USR1", &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "ready\nstep\nrc=9\n");
}

#[test]
fn warning_with_b_reaches_only_the_batch_shell() {
    let slotd = Slotd::start();
    let script = format!(
        "#!/bin/sh\ntrap 'echo shell; kill $!; exit 0' USR1\nsh -c 'trap \"echo child\" USR1; {LOOP}' &\nwait\n"
    );
    let job = warned(&slotd, "B:USR1", &script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "ready\nshell\n");
}

#[test]
fn warning_is_sent_once_despite_a_daemon_crash() {
    let mut slotd = Setup::default().start();
    let script = format!("trap 'echo warned' USR1; {LOOP}");
    let job = slotd.wrap(&["-t", "10", "--signal", "B:USR1@5"], &script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 6);
    slotd.wait_text(&format!("slurm-{job}.out"), "warned");
    slotd.crash();
    slotd.wait_state(job, "TIMEOUT");
    assert_eq!(slotd.output(job).matches("warned").count(), 1, "{}", slotd.output(job));
}

#[test]
fn signals_can_be_named_or_numbered() {
    let slotd = Slotd::start();
    let script = format!("#!/bin/sh\ntrap 'exit 0' USR2; {LOOP}\n");
    let jobs =
        ["USR2", "SIGUSR2", "12"].map(|signal| warned(&slotd, &format!("B:{signal}"), &script));
    for job in jobs {
        slotd.wait_state(job, "COMPLETED");
    }
}

const TRAP: &str = "trap 'echo caught' USR1; echo ready; while [ ! -e go ]; do sleep 0.03; done";

#[test]
fn step_that_exits_at_the_warning_ends_the_job_before_its_limit() {
    let slotd = Slotd::start();
    let script = "trap 'echo shell caught' USR1\n\
                  srun sh -c 'trap \"echo step caught; exit 9\" USR1; echo ready; while :; do sleep 0.03; done'\n\
                  echo code $?\n";
    let id = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "log"], script);
    slotd.wait_text("log", "ready");
    slotd.limit(id, 61);
    slotd.wait_state(id, "COMPLETED");
    let log = slotd.read("log");
    assert!(
        log.contains("step caught") && log.contains("code 9") && !log.contains("shell caught"),
        "{log}"
    );
}

#[test]
fn warning_without_steps_does_not_kill_processes_without_a_handler() {
    let slotd = Slotd::start();
    let with = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "with"], TRAP);
    let without = format!("echo ready; {}", slotd.gate("go"));
    let without = slotd.wrap(&["-t", "10", "--signal=USR1@60", "-o", "without"], &without);
    slotd.wait_text("with", "ready");
    slotd.wait_text("without", "ready");
    slotd.limit(without, 61);
    slotd.limit(with, 61);
    slotd.wait_text("with", "caught");
    slotd.open("go");
    slotd.wait_state(with, "COMPLETED");
    slotd.wait_state(without, "COMPLETED");
}
