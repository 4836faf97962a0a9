//! Time limits.

use slotd_kit::{Setup, Slotd, proc};

#[test]
fn job_is_terminated_at_its_limit() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "10"], "echo begun; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{job}.out"), "begun\n");
    slotd.limit(job, 1);
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert_eq!(ended.reason(), "TimeLimit");
    assert!(ended.end() - ended.start() >= 1_000_000);
    let output = slotd.output(job);
    let line = output.lines().nth(1).unwrap();
    assert!(line.starts_with(&format!("slurmstepd: error: *** JOB {job} ON ")), "{output}");
    assert!(
        line.contains(" CANCELLED AT ") && line.ends_with(" DUE TO TIME LIMIT ***"),
        "{output}"
    );
    assert_eq!(slotd.sacct(job, "state,exitcode"), "TIMEOUT|0:0");
}

#[test]
fn job_within_its_limit_completes() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "1"], "sleep 0.1");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn job_that_ignores_sigterm_is_killed_after_the_grace_period() {
    // Long enough for the script to report the signal.
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 5).start();
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let job = slotd.wrap(&["-t", "10"], script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 1);
    let ended = slotd.wait_state(job, "TIMEOUT");
    let ran = ended.end() - ended.start();
    assert!(ran >= 6_000_000, "{ran} microseconds");
    assert!(slotd.output(job).contains("asked\n"));
}

#[test]
fn job_in_its_grace_period_is_completing_and_ends_as_a_timeout() {
    let mut slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let gate = slotd.gate("go");
    let job = slotd.wrap(&["-t", "10"], &format!("trap '' TERM; echo ready; {gate}; exit 0"));
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 1);
    slotd.wait_state(job, "COMPLETING");
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%t %r"]).ok().text(), "CG TimeLimit");
    slotd.kill9();
    slotd.open("go");
    slotd.wait("the end of the script", || {
        slotd.job_dir(job).join("exit_status").exists().then_some(())
    });
    slotd.start_daemon();
    let ended = slotd.wait_end(job);
    assert_eq!((ended.state().as_str(), ended.reason().as_str()), ("TIMEOUT", "TimeLimit"));
}

#[test]
fn grace_period_continues_under_the_next_daemon() {
    // The first daemon never reaches the end of the grace period, however slow the test is.
    let mut slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let job = slotd.wrap(&["-t", "10"], "exec helper ignore 15");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 1);
    slotd.wait_state(job, "COMPLETING");
    slotd.reset_var("SLOTD_KILL_WAIT", 1);
    slotd.crash();
    assert_eq!(slotd.wait_end(job).state(), "TIMEOUT");
}

#[test]
fn script_that_exits_successfully_at_its_limit_is_a_timeout() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let script = "trap 'echo saved > saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let job = slotd.wrap(&["-t", "10"], script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 1);
    slotd.wait_state(job, "TIMEOUT");
    assert_eq!(slotd.read("saved"), "saved\n");
}

#[test]
fn all_processes_of_the_job_are_terminated() {
    let slotd = Slotd::start();
    let job = slotd
        .wrap(&["-t", "0:01"], "setsid sleep 1000 & helper ignore 15 & nohup sleep 1000 & wait");
    slotd.wait_state(job, "TIMEOUT");
    let left = |pid: &i32| {
        ["sleep 1000", "helper"].iter().any(|name| proc::cmdline(*pid).starts_with(name))
    };
    assert!(!slotd.processes().iter().any(left));
}

#[test]
fn grace_period_of_one_job_does_not_delay_others() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 600).start();
    let stubborn = slotd.wrap(&["-t", "10"], "exec helper ignore 15");
    slotd.wait_text(&format!("slurm-{stubborn}.out"), "ready");
    slotd.limit(stubborn, 1);
    slotd.wait_text(&format!("slurm-{stubborn}.out"), "DUE TO TIME LIMIT");
    let other = slotd.wrap(&["-t", "0:01"], "exec sleep 1000");
    slotd.wait_state(other, "TIMEOUT");
    let quick = slotd.wrap(&[], "true");
    slotd.wait_state(quick, "COMPLETED");
    assert!(!slotd.job(stubborn).is_over());
}

#[test]
fn each_array_task_has_its_own_limit() {
    let slotd = Slotd::start();
    let job = slotd.wrap(
        // Long enough for the second task, however slow the machine is.
        &["-a", "0-1%1", "-t", "0:06"],
        "if [ $SLURM_ARRAY_TASK_ID = 0 ]; then exec sleep 1000; fi",
    );
    let tasks = slotd.wait_array(job, 2);
    assert_eq!((tasks[0].state().as_str(), tasks[1].state().as_str()), ("TIMEOUT", "COMPLETED"));
}

#[test]
fn time_limit_is_reported_in_the_stderr_of_the_job() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let script = "trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.03; done";
    let id = slotd.wrap(&["-t", "10", "-o", "out", "-e", "err"], script);
    slotd.wait_text("out", "ready");
    slotd.limit(id, 1);
    let job = slotd.wait_state(id, "TIMEOUT");
    assert_eq!(job.reason(), "TimeLimit");
    assert_eq!(slotd.read("out"), "ready\nlast words\n");
    let (err, host) = (slotd.read("err"), slotd_kit::host());
    assert!(
        err.starts_with(&format!("slurmstepd: error: *** JOB {id} ON {host} CANCELLED AT ")),
        "{err}"
    );
    assert!(err.contains(" DUE TO TIME LIMIT ***\n"), "{err}");
}

#[test]
fn time_limit_counts_across_a_daemon_restart() {
    let mut slotd = Slotd::start();
    let id = slotd.endless(&["-t", "10"]);
    slotd.kill9();
    slotd.start_daemon();
    slotd.limit(id, 1);
    let job = slotd.wait_state(id, "TIMEOUT");
    assert!(job.end() - job.start() >= 1_000_000);
}
