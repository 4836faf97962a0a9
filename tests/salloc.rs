//! salloc: running a command in an allocation.

use slotd_kit::{Setup, Slotd, proc};

#[test]
fn command_runs_inside_the_allocation() {
    let slotd = Slotd::start();
    let out = slotd.cmd("salloc", &["sh", "-c", "echo in $SLURM_JOB_ID"]).ok();
    // As in the book's example, this line is on standard output.
    assert_eq!(out.stdout, "Granted job allocation 1\nin 1\n");
    assert!(out.stderr.contains("salloc: Relinquishing job allocation 1\n"), "{}", out.stderr);
    let job = slotd.wait_end(1);
    assert_eq!(job.state(), "COMPLETED");
}

#[test]
fn messages_can_be_those_of_slurm() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.env("SLOTD_OUTPUT", "slurm").args(["echo", "x"]);
    let out = slotd.run(salloc).ok();
    assert_eq!(out.stdout, "x\n");
    assert!(out.stderr.contains("salloc: Granted job allocation 1\n"), "{}", out.stderr);
}

#[test]
fn exit_code_is_that_of_the_command() {
    let slotd = Slotd::start();
    slotd.cmd("salloc", &["sh", "-c", "exit 5"]).fails(5);
    slotd.wait_end(1);
    let out = slotd.cmd("salloc", &["nosuchcmd"]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("nosuchcmd"), "{}", out.stderr);
}

#[test]
fn salloc_without_a_command_starts_a_shell() {
    let slotd = Slotd::start();
    let out = slotd.feed(slotd.command("salloc"), "echo in $SLURM_JOB_ID\nexit 4\n").fails(4);
    assert!(out.stdout.ends_with("in 1\n"), "{}", out.stdout);
}

#[test]
fn quiet_salloc_prints_nothing() {
    let slotd = Slotd::start();
    let out = slotd.cmd("salloc", &["-Q", "true"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
}

#[test]
fn command_runs_once_for_each_rank() {
    let slotd = Slotd::start();
    let out = slotd.cmd("salloc", &["-Q", "-n", "2", "sh", "-c", "echo $SLURM_PROCID"]).ok();
    let mut lines = out.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1"]);
}

#[test]
fn scripts_that_call_srun_and_shells_that_read_input_run_once() {
    let slotd = Slotd::start();
    slotd.program("script.sh", "#!/bin/sh\necho script\nsrun echo step\n");
    slotd.program("plain.sh", "#!/bin/sh\necho plain\n");
    slotd.write("dir/arg", "echo arg; srun echo step\n");
    for (command, count) in [
        (&["./script.sh"][..], 3),
        (&["bash", "-e", "script.sh"], 3),
        (&["-D", "dir", "sh", "arg"], 3),
        (&["-D", "dir", "../script.sh"], 3),
        (&["./plain.sh"], 2),
        (&["sh", "plain.sh"], 2),
    ] {
        let out = slotd.cmd("salloc", &[&["-Q", "-n2"], command].concat()).ok();
        assert_eq!(out.lines().len(), count, "{command:?}: {}", out.stdout);
    }
    let mut salloc = slotd.command("salloc");
    salloc.args(["-Q", "-n2", "bash"]);
    assert_eq!(slotd.feed(salloc, "echo shell\n").ok().stdout, "shell\n");
}

#[test]
fn daemon_setting_decides_how_often_the_command_runs() {
    for (setting, args, count) in
        [("once", &["-n2"][..], 1), ("ranks", &["--ntasks-per-node=2"], 2)]
    {
        let slotd = Slotd::setup().set("SLOTD_BATCH_TASKS", setting).start();
        let out = slotd.cmd("salloc", &[&["-Q"], args, &["echo", "x"]].concat()).ok();
        assert_eq!(out.lines().len(), count, "{setting}");
        let mut salloc = slotd.command("salloc");
        salloc.env("SLOTD_BATCH_TASKS", "auto").args(["-Q", "-n2", "echo", "x"]);
        assert_eq!(
            slotd.run(salloc).ok().lines().len(),
            2,
            "{setting}: the user's own comes first"
        );
    }
}

#[test]
fn options_set_the_size_of_the_allocation() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    slotd
        .cmd(
            "salloc",
            &[
                "-J", "nm", "-p", "gpu", "-c", "4", "--mem", "1G", "-G", "1", "-t", "00:30:00",
                "true",
            ],
        )
        .ok();
    let job = slotd.wait_end(1);
    assert_eq!(job.tres(), (4, 1024, 1));
    assert_eq!(job.0["request"]["name"], "nm");
    assert_eq!(job.0["request"]["time_limit_secs"], 1800);
}

#[test]
fn allocation_lasts_as_long_as_the_command() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.args(["-c", "4", "sh", "-c", &slotd.gate("go")]);
    let session = slotd.spawn(salloc);
    slotd.wait("the allocation", || {
        slotd.all_records().first().filter(|job| job.state() == "RUNNING").map(|_| ())
    });
    let next = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_reason(next, "Resources");
    slotd.open("go");
    session.end().ok();
    slotd.wait_state(next, "COMPLETED");
}

#[test]
fn salloc_reports_that_it_is_queued() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let mut salloc = slotd.command("salloc");
    salloc.arg("true");
    let mut waiting = slotd.spawn(salloc);
    waiting.wait_stderr("queued");
    slotd.wait_reason(2, "Resources");
    slotd.cancel(running);
    let out = waiting.end().ok();
    assert!(
        out.stderr.contains("salloc: job 2 queued and waiting for resources\n"),
        "{}",
        out.stderr
    );
    assert!(out.stderr.contains("salloc: job 2 has been allocated resources\n"), "{}", out.stderr);
}

#[test]
fn immediate_fails_instead_of_waiting() {
    let slotd = Slotd::start();
    slotd.endless(&["-c", "4"]);
    let out = slotd.cmd("salloc", &["--immediate", "true"]).fails(1);
    assert!(out.stderr.contains("Requested nodes are busy"), "{}", out.stderr);
}

#[test]
fn allocation_without_a_shell_outlives_salloc() {
    let slotd = Slotd::start();
    slotd.cmd("salloc", &["--no-shell", "-t", "5"]).ok();
    slotd.wait_state(1, "RUNNING");
    assert_eq!(slotd.cmd("srun", &["--jobid=1", "echo", "inside"]).ok().stdout, "inside\n");
    assert_eq!(slotd.state(1), "RUNNING");
    slotd.cancel(1);
    slotd.wait_state(1, "CANCELLED");
}

#[test]
fn cancelled_session_prints_a_message_and_ends() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.args(["sh", "-c", "echo > ready; exec sleep 1000"]);
    let session = slotd.spawn(salloc);
    slotd.wait_text("ready", "");
    slotd.cancel(1);
    let out = session.end();
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("Job allocation 1 has been revoked"), "{}", out.stderr);
    slotd.wait_state(1, "CANCELLED");
}

#[test]
fn time_limit_ends_the_session() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.args(["-t", "10", "sh", "-c", "echo > ready; exec sleep 1000"]);
    let session = slotd.spawn(salloc);
    slotd.wait_text("ready", "\n");
    slotd.limit(1, 1);
    let out = session.end();
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("Job 1 has exceeded its time limit"), "{}", out.stderr);
    slotd.wait_state(1, "TIMEOUT");
}

#[test]
fn killed_session_releases_its_allocation() {
    let slotd = Slotd::start();
    for signal in [proc::KILL, proc::HUP, proc::TERM] {
        let mut salloc = slotd.command("salloc");
        salloc.args(["-c", "4", "sh", "-c", "echo > ready; exec sleep 1000"]);
        let session = slotd.spawn(salloc);
        slotd.wait_text("ready", "");
        std::fs::remove_file(slotd.path("ready")).unwrap();
        session.signal(signal);
        let id = slotd.all_records().iter().map(slotd_kit::Record::id).max().unwrap();
        slotd.wait_end(id);
        drop(session);
    }
    let next = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(next, "COMPLETED");
}

#[test]
fn missing_command_is_reported() {
    let slotd = Slotd::start();
    let out = slotd.cmd("salloc", &["nosuchcmd"]).fails(1);
    let told = "salloc: error: _fork_command: Unable to find command \"nosuchcmd\"\nsalloc: Relinquishing job allocation 1\n";
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("Granted job allocation 1\n", told));
    slotd.wait_state(1, "FAILED");
}

#[test]
fn allocation_without_a_shell_has_slurms_name() {
    let slotd = Slotd::start();
    slotd.cmd("salloc", &["--no-shell"]).ok();
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i %j"]).ok().text(), "1 no-shell");
}
