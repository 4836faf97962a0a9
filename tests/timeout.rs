//! Time limits.

use slotd_kit::{Setup, Slotd, proc};

#[test]
fn a_job_is_ended_at_its_limit() {
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
fn a_job_within_its_limit_is_left_alone() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "1"], "sleep 0.1");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn what_ignores_the_word_gets_the_sword_after_the_grace() {
    // Time enough to say that it was asked.
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
fn a_job_in_its_grace_is_completing_and_stays_a_timeout_whatever_happens() {
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
fn the_grace_goes_on_under_the_next_daemon() {
    // The first daemon does not come to its end, however late this looks.
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
fn a_script_that_saves_and_exits_at_the_limit_is_still_a_timeout() {
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let script = "trap 'echo saved > saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let job = slotd.wrap(&["-t", "10"], script);
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.limit(job, 1);
    slotd.wait_state(job, "TIMEOUT");
    assert_eq!(slotd.read("saved"), "saved\n");
}

#[test]
fn every_process_of_the_job_is_ended() {
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
fn the_ladder_of_one_job_does_not_hold_up_others() {
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
fn an_array_task_has_the_limit_for_itself() {
    let slotd = Slotd::start();
    let job = slotd.wrap(
        // Seconds enough for the second task, however slow this machine is.
        &["-a", "0-1%1", "-t", "0:06"],
        "if [ $SLURM_ARRAY_TASK_ID = 0 ]; then exec sleep 1000; fi",
    );
    let tasks = slotd.wait_array(job, 2);
    assert_eq!((tasks[0].state().as_str(), tasks[1].state().as_str()), ("TIMEOUT", "COMPLETED"));
}

#[test]
fn the_time_limit_says_so_in_the_jobs_stderr() {
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
fn the_time_limit_counts_across_a_restart_of_the_daemon() {
    let mut slotd = Slotd::start();
    let id = slotd.endless(&["-t", "10"]);
    slotd.kill9();
    slotd.start_daemon();
    slotd.limit(id, 1);
    let job = slotd.wait_state(id, "TIMEOUT");
    assert!(job.end() - job.start() >= 1_000_000);
}
