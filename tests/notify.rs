//! SLOTD_NOTIFY_CMD.

use slotd_kit::{Setup, Slotd, proc, scripts, until};

/// A hook that writes a line about each job.
fn with_hook() -> Slotd {
    let mut slotd = Setup::default().prepare();
    let log = slotd.path("told");
    let hook = format!(
        "echo \"$SLOTD_JOB_ID|$SLOTD_JOB_NAME|$SLOTD_JOB_STATE|$SLOTD_JOB_PARTITION|$SLOTD_JOB_REASON\" >> '{}'",
        log.display()
    );
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
    slotd.start_daemon();
    slotd
}

#[test]
fn the_hook_is_told_of_each_end() {
    let slotd = with_hook();
    let good = slotd.wrap(&["-J", "good one"], "true");
    slotd.wait_text("told", &format!("{good}|good one|COMPLETED|cpu|None\n"));
    let bad = slotd.wrap(&["-J", "bad"], "exit 3");
    slotd.wait_text("told", &format!("{bad}|bad|FAILED|cpu|NonZeroExitCode\n"));
    let cancelled = slotd.wrap(&["-H", "-J", "gone"], "true");
    slotd.cancel(cancelled);
    slotd.wait_text("told", &format!("{cancelled}|gone|CANCELLED|cpu|CancelledByUser\n"));
    let late = slotd.wrap(&["-t", "0:01", "-J", "late"], "exec sleep 1000");
    slotd.wait_text("told", &format!("{late}|late|TIMEOUT|cpu|TimeLimit\n"));
    assert_eq!(slotd.read("told").lines().count(), 4);
}

#[test]
fn steps_do_not_notify() {
    let slotd = with_hook();
    let job = slotd.script(&[], "#!/bin/sh\nsrun true\nsrun true\n");
    slotd.wait_text("told", "COMPLETED");
    let srun = slotd.cmd("srun", &["-J", "alone", "true"]).ok();
    drop(srun);
    slotd.wait_text("told", "|alone|");
    let told = slotd.read("told");
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.starts_with(&format!("{job}|job.sh|")), "{told}");
}

#[test]
fn each_array_task_is_a_job() {
    let slotd = with_hook();
    let job = slotd.wrap(&["-a", "0-2"], "true");
    slotd.wait_array(job, 3);
    slotd.wait("three lines", || {
        (std::fs::read_to_string(slotd.path("told")).unwrap_or_default().lines().count() == 3)
            .then_some(())
    });
}

#[test]
fn tasks_that_are_cancelled_together_are_named_by_the_array() {
    let slotd = with_hook();
    let array = slotd.wrap(&["-H", "-a", "0-9", "-J", "many"], "true");
    slotd.cmd("scancel", &[format!("{array}_[5-6]")]).ok();
    slotd.wait_text("told", &format!("{array}_[5-6]|many|CANCELLED|cpu|"));
    slotd.cmd("scancel", &[format!("{array}_8")]).ok();
    slotd.wait_text("told", &format!("{array}_8|many|CANCELLED|cpu|"));
    slotd.cancel(array);
    slotd.wait_text("told", &format!("{array}_[0-4,7,9]|many|CANCELLED|cpu|"));
}

#[test]
fn a_requeue_is_no_end() {
    let slotd = with_hook();
    let job = slotd.wrap(&["--requeue"], "exit 1");
    slotd.wait_state(job, "FAILED");
    slotd.wait_text("told", "FAILED");
    // A line about the first run would have come before it.
    assert_eq!(slotd.read("told").lines().count(), 1);
}

#[test]
fn a_failing_hook_touches_no_job() {
    for hook in ["exit 7", "no-such-program", "kill -9 $$"] {
        let slotd = Setup::default().set("SLOTD_NOTIFY_CMD", hook).start();
        for _ in 0..3 {
            let job = slotd.wrap(&[], "true");
            slotd.wait_state(job, "COMPLETED");
        }
    }
}

#[test]
fn a_hanging_hook_is_ended_and_holds_up_nothing() {
    let hangs = "exec sleep 1000";
    let slotd =
        Setup::default().set("SLOTD_NOTIFY_TIMEOUT", 1).set("SLOTD_NOTIFY_CMD", hangs).start();
    let jobs: Vec<u32> = (0..6).map(|_| slotd.wrap(&["--mem", "1"], "true")).collect();
    for job in &jobs {
        slotd.wait_state(*job, "COMPLETED");
    }
    // More than run at once: the later ones get their turn when the first are ended. On a busy
    // machine a hook is ended before its shell does anything, so that the daemon tells of it.
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
fn a_name_is_never_a_command() {
    let slotd = with_hook();
    let name = "$(touch evil); `touch evil` ' \" ; touch evil #";
    let job = slotd.wrap(&["-J", name], "true");
    slotd.wait_text("told", &format!("{job}|{name}|COMPLETED"));
    assert!(!slotd.exists("evil") && !std::path::Path::new("/evil").exists());
}

#[test]
fn an_end_that_came_without_a_daemon_is_told_by_the_next_one() {
    let mut slotd = with_hook();
    let job = slotd.begun(&[], "go", "true");
    slotd.kill9();
    slotd.open("go");
    slotd.wait("its end", || slotd.job_dir(job).join("exit_status").exists().then_some(()));
    slotd.start_daemon();
    slotd.wait_text("told", &format!("{job}|wrap|COMPLETED"));
}

#[test]
fn what_an_earlier_daemon_had_not_told_is_told_by_the_next_one() {
    let mut slotd = Setup::default().prepare();
    let (gate, log) = (slotd.path("gate"), slotd.path("told"));
    // Four of them run at once; the others wait for their turn. What a hook does after the end of
    // its daemon has a few seconds, so that each tells first and waits then.
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
    let told = || -> Vec<u32> {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect()
    };
    slotd.wait("four hooks", || (told().len() >= 4).then_some(()));
    slotd.stop();
    std::fs::write(&gate, "").unwrap();
    slotd.start_daemon();
    slotd.wait("all hooks", || (told().len() >= jobs.len()).then_some(()));
    let mut told = told();
    told.sort_unstable();
    assert_eq!(told, jobs, "each once");
}

/// The hook of the repository with this name.
fn hook(name: &str) -> String {
    format!("{}/contrib/hooks/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A program in place of the one that a hook calls. It writes its words, each with a bar after it,
/// and its standard input.
fn pretend(slotd: &Slotd, program: &str) {
    let told = slotd.path("told");
    let text = format!(
        "#!/bin/sh\n{{ printf '%s|' \"$@\"; echo; cat; echo .; }} >> '{}'\n",
        told.display()
    );
    scripts::executable(&slotd.base.join("bin").join(program), &text);
}

#[test]
fn the_hook_for_the_desktop_tells_how_bad_an_end_is() {
    let mut slotd = Setup::default().prepare();
    pretend(&slotd, "notify-send");
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook("notify-send"));
    slotd.start_daemon();
    slotd.wrap(&["-J", "good one"], "true");
    let good = slotd.wait_text("told", ".\n");
    assert_eq!(
        good,
        "--app-name=slotd|--icon=emblem-default|--urgency=low|--|Job 1: COMPLETED|good one|\n.\n"
    );
    slotd.wrap(&["-J", "bad"], "exit 3");
    let both = slotd.wait_text("told", "bad");
    let bad = "--app-name=slotd|--icon=dialog-error|--urgency=critical|--|Job 2: FAILED|bad (NonZeroExitCode)|";
    assert!(both.contains(bad), "{both}");
}

#[test]
fn the_hook_for_the_desktop_knows_every_event() {
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
    let told = slotd.wait_text("told", "can never start");
    assert!(
        told.contains("--icon=dialog-warning|--urgency=critical|--|Job 3 can never start|"),
        "{told}"
    );
    assert!(
        told.contains("job 3 (late) can never start: it waits for afterok:1, which can never be: it is FAILED|"),
        "{told}"
    );
    let told = slotd.wait_text("told", "Array");
    let want = format!(
        "--urgency=critical|--|Array {array}: FAILED|s&lt;w&gt;eep: 1 completed, 1 failed, 0 cancelled|"
    );
    assert!(told.contains(&want), "{told}");
    slotd.cancel(never);
    slotd.wait_text("told", "The queue is empty");
    let told = slotd.wait_text("told", "|Jobs 1 to 3");
    let want = "|Jobs 1 to 3: FAILED|late: 1 completed, 2 failed, 1 cancelled|";
    assert!(told.contains(want), "{told}");
    assert!(
        told.contains("|The queue is empty: FAILED|1 completed, 2 failed, 1 cancelled|"),
        "{told}"
    );
    assert_eq!(told.matches("--app-name").count(), 4, "{told}");
}

/// A hook that writes a line about each event.
fn hears(events: &str) -> Slotd {
    let mut slotd = Setup::default().prepare();
    let log = slotd.path("told");
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
fn what_is_counted_outlives_a_daemon_that_is_killed() {
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
    // Hooks run beside each other: the last event need not be the last line.
    for event in ["array|", "chain|", "queue|"] {
        slotd.wait_text("told", event);
    }
    let told = slotd.read("told");
    let mut lines: Vec<&str> = told.lines().collect();
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

/// The processes that a hook or a program of the host has written down.
fn written(slotd: &Slotd, name: &str, count: usize) -> Vec<i32> {
    slotd.wait("its processes", || {
        let text = std::fs::read_to_string(slotd.path(name)).ok()?;
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (pids.len() == count && text.ends_with('\n')).then_some(pids)
    })
}

#[test]
fn a_hook_that_hangs_does_not_outlive_the_daemon_nor_does_what_it_has_started() {
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
                "process {pid} lives, killed: {is_killed}"
            );
        }
    }
}

#[test]
fn a_hook_that_works_has_a_few_seconds_when_the_daemon_ends() {
    let mut slotd = Setup::default().prepare();
    let work = slotd.work();
    let hook =
        format!("cd '{}'; echo $$ > pid; {}; echo told > told", work.display(), slotd.gate("go"));
    slotd.reset_var("SLOTD_NOTIFY_CMD", hook);
    slotd.start_daemon();
    slotd.wrap(&[], "true");
    written(&slotd, "pid", 1);
    slotd.stop();
    slotd.open("go");
    slotd.wait_text("told", "told\n");
}

#[test]
fn an_nvidia_smi_that_hangs_does_not_outlive_the_daemon_nor_does_what_it_has_started() {
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
                "process {pid} lives, killed: {is_killed}"
            );
        }
    }
}
