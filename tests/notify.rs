//! SLOTD_NOTIFY_CMD: the notification hook.

use slotd_kit::{Setup, Slotd, proc, scripts, until};

/// Starts a daemon with a hook that writes a line about each job.
fn with_hook() -> Slotd {
    let mut slotd = Setup::default().prepare();
    let log = slotd.path("sent");
    let hook = format!(
        "echo \"$SLOTD_JOB_ID|$SLOTD_JOB_NAME|$SLOTD_JOB_STATE|$SLOTD_JOB_PARTITION|$SLOTD_JOB_REASON\" >> '{}'",
        log.display()
    );
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
    slotd.start_daemon();
    slotd
}

#[test]
fn hook_runs_when_a_job_ends() {
    let slotd = with_hook();
    let good = slotd.wrap(&["-J", "good one"], "true");
    slotd.wait_text("sent", &format!("{good}|good one|COMPLETED|cpu|None\n"));
    let bad = slotd.wrap(&["-J", "bad"], "exit 3");
    slotd.wait_text("sent", &format!("{bad}|bad|FAILED|cpu|NonZeroExitCode\n"));
    let cancelled = slotd.wrap(&["-H", "-J", "gone"], "true");
    slotd.cancel(cancelled);
    slotd.wait_text("sent", &format!("{cancelled}|gone|CANCELLED|cpu|CancelledByUser\n"));
    let late = slotd.wrap(&["-t", "0:01", "-J", "late"], "exec sleep 1000");
    slotd.wait_text("sent", &format!("{late}|late|TIMEOUT|cpu|TimeLimit\n"));
    assert_eq!(slotd.read("sent").lines().count(), 4);
}

#[test]
fn steps_do_not_notify() {
    let slotd = with_hook();
    let job = slotd.script(&[], "#!/bin/sh\nsrun true\nsrun true\n");
    slotd.wait_text("sent", "COMPLETED");
    let srun = slotd.cmd("srun", &["-J", "alone", "true"]).ok();
    drop(srun);
    slotd.wait_text("sent", "|alone|");
    let sent = slotd.read("sent");
    assert_eq!(sent.lines().count(), 2, "{sent}");
    assert!(sent.starts_with(&format!("{job}|job.sh|")), "{sent}");
}

#[test]
fn each_array_task_notifies() {
    let slotd = with_hook();
    let job = slotd.wrap(&["-a", "0-2"], "true");
    slotd.wait_array(job, 3);
    slotd.wait("three lines", || {
        (std::fs::read_to_string(slotd.path("sent")).unwrap_or_default().lines().count() == 3)
            .then_some(())
    });
}

#[test]
fn tasks_cancelled_together_share_a_notification() {
    let slotd = with_hook();
    let array = slotd.wrap(&["-H", "-a", "0-9", "-J", "many"], "true");
    slotd.cmd("scancel", &[format!("{array}_[5-6]")]).ok();
    slotd.wait_text("sent", &format!("{array}_[5-6]|many|CANCELLED|cpu|"));
    slotd.cmd("scancel", &[format!("{array}_8")]).ok();
    slotd.wait_text("sent", &format!("{array}_8|many|CANCELLED|cpu|"));
    slotd.cancel(array);
    slotd.wait_text("sent", &format!("{array}_[0-4,7,9]|many|CANCELLED|cpu|"));
}

#[test]
fn requeue_does_not_notify() {
    let slotd = with_hook();
    let job = slotd.wrap(&["--requeue"], "exit 1");
    slotd.wait_state(job, "FAILED");
    slotd.wait_text("sent", "FAILED");
    // A line about the first run would have come first.
    assert_eq!(slotd.read("sent").lines().count(), 1);
}

#[test]
fn failing_hook_does_not_affect_jobs() {
    for hook in ["exit 7", "no-such-program", "kill -9 $$"] {
        let slotd = Setup::default().set("SLOTD_NOTIFY_CMD", hook).start();
        for _ in 0..3 {
            let job = slotd.wrap(&[], "true");
            slotd.wait_state(job, "COMPLETED");
        }
    }
}

#[test]
fn hanging_hook_is_killed_and_delays_nothing() {
    let hangs = "exec sleep 1000";
    let slotd =
        Setup::default().set("SLOTD_NOTIFY_TIMEOUT", 1).set("SLOTD_NOTIFY_CMD", hangs).start();
    let jobs: Vec<u32> = (0..6).map(|_| slotd.wrap(&["--mem", "1"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    // There are more hooks than may run at once, so the later ones start when the first are killed.
    // On a busy machine, a hook is killed before its shell does anything, so the test reads the
    // daemon's log.
    let killed = |job: &u32| format!("SLOTD_NOTIFY_CMD for job {job} was killed after 1 s\n");
    slotd.wait("all hooks", || {
        let log = slotd.log();
        jobs.iter().all(|job| log.contains(&killed(job))).then_some(())
    });
    slotd.wait("the end of the hooks", || {
        (!slotd
            .processes()
            .iter()
            .any(|pid| slotd_kit::proc::cmdline(*pid).starts_with("sleep 1000")))
        .then_some(())
    });
}

#[test]
fn job_name_is_never_executed() {
    let slotd = with_hook();
    let name = "$(touch evil); `touch evil` ' \" ; touch evil #";
    let job = slotd.wrap(&["-J", name], "true");
    slotd.wait_text("sent", &format!("{job}|{name}|COMPLETED"));
    assert!(!slotd.exists("evil") && !std::path::Path::new("/evil").exists());
}

#[test]
fn next_daemon_notifies_of_an_end_without_a_daemon() {
    let mut slotd = with_hook();
    let job = slotd.begun(&[], "go", "true");
    slotd.kill9();
    slotd.open("go");
    slotd.wait("its end", || slotd.job_dir(job).join("exit_status").exists().then_some(()));
    slotd.start_daemon();
    slotd.wait_text("sent", &format!("{job}|wrap|COMPLETED"));
}

#[test]
fn pending_notifications_are_sent_by_the_next_daemon() {
    let mut slotd = Setup::default().prepare();
    let (gate, log) = (slotd.path("gate"), slotd.path("sent"));
    // Four hooks run at once, and the others wait. After its daemon ends, a hook has only a few
    // seconds, so each one first writes its line and then waits.
    slotd.reset_var(
        "SLOTD_NOTIFY_CMD",
        format!(
            "echo $SLOTD_JOB_ID >> '{}'; until [ -e '{}' ]; do sleep 0.05; done",
            log.display(),
            gate.display()
        ),
    );
    slotd.start_daemon();
    let jobs: Vec<u32> = (0..8).map(|_| slotd.wrap(&["--mem", "1"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    let sent = || -> Vec<u32> {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect()
    };
    slotd.wait("four hooks", || (sent().len() >= 4).then_some(()));
    slotd.stop();
    std::fs::write(&gate, "").unwrap();
    slotd.start_daemon();
    slotd.wait("all hooks", || (sent().len() >= jobs.len()).then_some(()));
    let mut sent = sent();
    sent.sort_unstable();
    assert_eq!(sent, jobs, "each job is notified once");
}

/// Returns the hook with this name in the repository.
fn hook(name: &str) -> String {
    format!("{}/contrib/hooks/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Creates a program that replaces the one a hook calls. It writes its arguments, each followed by
/// a bar, and its standard input.
fn pretend(slotd: &Slotd, program: &str) {
    let sent = slotd.path("sent");
    let text = format!(
        "#!/bin/sh\n{{ printf '%s|' \"$@\"; echo; cat; echo .; }} >> '{}'\n",
        sent.display()
    );
    scripts::executable(&slotd.base.join("bin").join(program), &text);
}

#[test]
fn desktop_hook_sets_the_urgency_by_the_end() {
    let mut slotd = Setup::default().prepare();
    pretend(&slotd, "notify-send");
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook("notify-send"));
    slotd.start_daemon();
    slotd.wrap(&["-J", "good one"], "true");
    let good = slotd.wait_text("sent", ".\n");
    assert_eq!(
        good,
        "--app-name=slotd|--icon=emblem-default|--urgency=low|--|Job 1: COMPLETED|good one|\n.\n"
    );
    slotd.wrap(&["-J", "bad"], "exit 3");
    let both = slotd.wait_text("sent", "bad");
    let bad = "--app-name=slotd|--icon=dialog-error|--urgency=critical|--|Job 2: FAILED|bad (NonZeroExitCode)|";
    assert!(both.contains(bad), "{both}");
}

#[test]
fn desktop_hook_handles_every_event() {
    let mut slotd = Setup::default().prepare();
    pretend(&slotd, "notify-send");
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook("notify-send"));
    slotd.reset_var("SLOTD_NOTIFY_EVENTS", "array,chain,queue,never");
    slotd.start_daemon();
    let blocker = slotd.begun(&[], "go", "exit 1");
    let array = slotd.wrap(
        &["-a", "0-1", "-J", "s<w>eep", "-d", &format!("afterany:{blocker}")],
        "exit $SLURM_ARRAY_TASK_ID",
    );
    let never = slotd.wrap(&["-J", "late", "-d", &format!("afterok:{blocker}")], "true");
    slotd.open("go");
    let sent = slotd.wait_text("sent", "can never start");
    assert!(
        sent.contains("--icon=dialog-warning|--urgency=critical|--|Job 3 can never start|"),
        "{sent}"
    );
    assert!(
        sent.contains("job 3 (late) can never start: it waits for afterok:1, which can never be satisfied: it is FAILED|"),
        "{sent}"
    );
    let sent = slotd.wait_text("sent", "Array");
    let want = format!(
        "--urgency=critical|--|Array {array}: FAILED|s&lt;w&gt;eep: 1 completed, 1 failed, 0 cancelled|"
    );
    assert!(sent.contains(&want), "{sent}");
    slotd.cancel(never);
    slotd.wait_text("sent", "The queue is empty");
    let sent = slotd.wait_text("sent", "|Jobs 1 to 3");
    let want = "|Jobs 1 to 3: FAILED|late: 1 completed, 2 failed, 1 cancelled|";
    assert!(sent.contains(want), "{sent}");
    assert!(
        sent.contains("|The queue is empty: FAILED|1 completed, 2 failed, 1 cancelled|"),
        "{sent}"
    );
    assert_eq!(sent.matches("--app-name").count(), 4, "{sent}");
}

/// Starts a daemon with a hook that writes a line about each event.
fn hears(events: &str) -> Slotd {
    let mut slotd = Setup::default().prepare();
    let log = slotd.path("sent");
    let hook = format!(
        "echo \"$SLOTD_EVENT|$SLOTD_EVENT_TEXT|$SLOTD_JOB_ID|$SLOTD_JOB_STATE\" >> '{}'",
        log.display()
    );
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
    slotd.reset_var("SLOTD_NOTIFY_EVENTS", events);
    slotd.start_daemon();
    slotd
}

#[test]
fn counters_survive_a_daemon_crash() {
    let mut slotd = hears("array,queue,chain");
    let array = slotd.wrap(
        &["-a", "0-1", "--mem", "1"],
        "[ $SLURM_ARRAY_TASK_ID = 0 ] || until [ -e go ]; do sleep 0.05; done",
    );
    let after = slotd.wrap(&["-d", &format!("afterok:{array}")], "true");
    slotd.wait("the first task", || {
        slotd
            .cmd("sacct", &["-X", "-n", "-P", "-o", "State", "-j", &format!("{array}_0")])
            .ok()
            .stdout
            .contains("COMPLETED")
            .then_some(())
    });
    slotd.kill9();
    slotd.start_daemon();
    slotd.open("go");
    // Hooks run in parallel, so the last event need not be the last line.
    for event in ["array|", "chain|", "queue|"] {
        slotd.wait_text("sent", event);
    }
    let sent = slotd.read("sent");
    let mut lines: Vec<&str> = sent.lines().collect();
    lines.sort_unstable();
    let want = [
        format!("array|array {array} (wrap) has ended: 2 tasks: 2 COMPLETED|{array}|COMPLETED"),
        format!(
            "chain|the chain of jobs from {array} (wrap) to {after} (wrap) has ended: 3 jobs: 3 COMPLETED|{after}|COMPLETED"
        ),
        "queue|the queue is empty: 3 jobs: 3 COMPLETED||COMPLETED".to_owned(),
    ];
    assert_eq!(lines, want);
}

/// Waits for the PIDs that a hook or a program has written.
fn written(slotd: &Slotd, name: &str, count: usize) -> Vec<i32> {
    slotd.wait("its processes", || {
        let text = std::fs::read_to_string(slotd.path(name)).ok()?;
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (pids.len() == count && text.ends_with('\n')).then_some(pids)
    })
}

#[test]
fn hanging_hook_and_its_children_end_with_the_daemon() {
    for is_killed in [true, false] {
        let mut slotd = Setup::default().prepare();
        let pids = slotd.path("pids").display().to_string();
        let hook = format!(
            "trap '' HUP TERM; sleep 1000 & echo $! >> '{pids}'; echo $$ >> '{pids}'; wait"
        );
        slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
        slotd.start_daemon();
        slotd.wrap(&[], "true");
        let pids = written(&slotd, "pids", 2);
        if is_killed {
            slotd.kill9()
        } else {
            assert!(slotd.stop().success())
        }
        for pid in pids {
            assert!(
                until(|| (!proc::is_alive(pid)).then_some(())).is_some(),
                "process {pid} is still alive (daemon killed: {is_killed})"
            );
        }
    }
}

#[test]
fn working_hook_gets_a_few_seconds_when_the_daemon_stops() {
    let mut slotd = Setup::default().prepare();
    let work = slotd.work();
    let hook =
        format!("cd '{}'; echo $$ > pid; {}; echo sent > sent", work.display(), slotd.gate("go"));
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
    slotd.start_daemon();
    slotd.wrap(&[], "true");
    written(&slotd, "pid", 1);
    slotd.stop();
    slotd.open("go");
    slotd.wait_text("sent", "sent\n");
}

#[test]
fn hanging_nvidia_smi_and_its_children_end_with_the_daemon() {
    for is_killed in [true, false] {
        let mut slotd = Setup::default().unset("SLOTD_GPU_COUNT").prepare();
        let pids = slotd.path("pids").display().to_string();
        let hangs =
            format!("#!/bin/sh\nsleep 1000 & echo $! >> '{pids}'; echo $$ >> '{pids}'; wait\n");
        slotd.program("../bin/nvidia-smi", &hangs);
        slotd.start_daemon();
        let pids = written(&slotd, "pids", 2);
        if is_killed {
            slotd.kill9()
        } else {
            assert!(slotd.stop().success())
        }
        for pid in pids {
            assert!(
                until(|| (!proc::is_alive(pid)).then_some(())).is_some(),
                "process {pid} is still alive (daemon killed: {is_killed})"
            );
        }
    }
}
