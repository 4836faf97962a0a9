//! `--requeue`, which runs a job at most twice, and `scontrol requeue`.

use slotd_kit::{Slotd, proc};

#[test]
fn failed_job_is_requeued_only_once() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--requeue"], "echo run $SLURM_RESTART_COUNT; exit 1");
    let ended = slotd.wait_state(job, "FAILED");
    assert_eq!((ended.restarts(), ended.exit().as_str()), (1, "1:0"));
    // The output of the second run follows that of the first, after a line that gives the reason.
    let words = "run was FAILED; --requeue runs the job once more (the setting SLOTD_REQUEUE=slurm turns this off)";
    assert_eq!(slotd.output(job), format!("run\nslotd: the first {words}\nrun 1\n"));
    let why = slotd.line(&format!("slotd why {job}")).ok().stdout;
    assert!(why.contains(&format!("  The first {words}.\n")), "{why}");
}

#[test]
fn scontrol_requeue_is_not_attributed_to_the_option() {
    let slotd = Slotd::start();
    let job = slotd
        .wrap(&["--requeue"], "test -n \"$SLURM_RESTART_COUNT\" && echo again || exec sleep 1000");
    slotd.wait_state(job, "RUNNING");
    slotd.cmd("scontrol", &["requeue", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert!(!slotd.output(job).contains("slotd: the first run"), "{}", slotd.output(job));
    assert!(!slotd.line(&format!("slotd why {job}")).ok().stdout.contains("The first run"));
}

#[test]
fn line_about_the_second_run_is_written_only_to_files() {
    let slotd = Slotd::start();
    fifo(&slotd, "pipe");
    let script = "test -n \"$SLURM_RESTART_COUNT\" && echo end || exit 1";
    let args = ["--requeue", "-c", "4", "-o", "/dev/null", "-e", "pipe"];
    let job = slotd.wrap(&args, script);
    slotd.wait_state(job, "RUNNING");
    // Each run opens the pipe when the test does. The second run waits until the first one's end
    // was read.
    let between = slotd.wrap(&["-c", "4", "--priority", "4294967290"], "exec sleep 1000");
    let read = || std::fs::read_to_string(slotd.path("pipe")).unwrap();
    assert_eq!(read(), "");
    slotd.wait_state(between, "RUNNING");
    slotd.cancel(between);
    assert_eq!(read(), "");
    slotd.wait_state(job, "COMPLETED");
    let split =
        slotd.wrap(&["--requeue", "-o", "out", "-e", "err", "--open-mode=truncate"], script);
    slotd.wait_state(split, "COMPLETED");
    assert_eq!(slotd.read("out"), "end\n");
    assert!(
        slotd.read("err").starts_with("slotd: the first run was FAILED; "),
        "{}",
        slotd.read("err")
    );
}

fn fifo(slotd: &Slotd, name: &str) {
    slotd.sh(&format!("mkfifo {name}")).ok();
}

#[test]
fn slurm_mode_does_not_requeue_failed_jobs_automatically() {
    let slotd = Slotd::setup().set("SLOTD_REQUEUE", "slurm").start();
    let job = slotd.wrap(&["--requeue"], "echo run $SLURM_RESTART_COUNT; exit 1");
    assert_eq!(slotd.wait_end(job).restarts(), 0);
    assert_eq!(slotd.output(job), "run\n");
    let late = slotd.wrap(&["--requeue", "-t", "0:01"], "exec sleep 1000");
    let ended = slotd.wait_end(late);
    assert_eq!((ended.state().as_str(), ended.restarts()), ("TIMEOUT", 0));
    slotd.cmd("scontrol", &["requeue", &job.to_string()]).ok();
    slotd.wait("the end of the second run", || {
        (slotd.job(job).restarts() == 1 && slotd.job(job).is_over()).then_some(())
    });
    assert_eq!(slotd.output(job), "run\nrun 1\n");
    assert!(slotd.line("scontrol show config").ok().stdout.contains("SlotdRequeue"));
}

#[test]
fn job_that_times_out_is_requeued_only_once() {
    let slotd = Slotd::start();
    let script = "echo run >> runs; exec sleep 1000";
    let job = slotd.wrap(&["--requeue", "-c", "4", "-t", "10"], script);
    slotd.wait_text("runs", "run\n");
    // Between the runs, another job has the CPUs, so that the limit can be raised before the second
    // run starts.
    let between = slotd.wrap(&["-c", "4", "--priority", "4294967290"], "exec sleep 1000");
    slotd.limit(job, 1);
    slotd.wait_state(between, "RUNNING");
    slotd.limit(job, 600);
    slotd.cancel(between);
    slotd.wait_text("runs", "run\nrun\n");
    slotd.limit(job, 1);
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert_eq!(ended.restarts(), 1);
    assert_eq!(slotd.read("runs"), "run\nrun\n");
}

#[test]
fn successful_job_is_not_requeued() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--requeue"], "true");
    assert_eq!(slotd.wait_state(job, "COMPLETED").restarts(), 0);
}

#[test]
fn successful_second_run_makes_the_job_successful() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--requeue"], "[ -e marker ] || { touch marker; exit 1; }");
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!((ended.restarts(), ended.exit().as_str()), (1, "0:0"));
}

#[test]
fn cancelled_job_is_not_requeued() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["--requeue"]);
    slotd.cancel(job);
    assert_eq!(slotd.wait_state(job, "CANCELLED").restarts(), 0);
}

#[test]
fn job_without_the_option_is_not_requeued() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "exit 1");
    assert_eq!(slotd.wait_state(job, "FAILED").restarts(), 0);
}

#[test]
fn the_first_failure_returns_the_job_to_pending() {
    let slotd = Slotd::start();
    // No resources are free for the second run, so that the job can be observed as pending in
    // between.
    let job = slotd.wrap(&["--requeue", "-c", "4"], &format!("{}; exit 1", slotd.gate("go")));
    slotd.wait_state(job, "RUNNING");
    let next = slotd.wrap(&["-c", "4", "--priority", "4294967290"], "exec sleep 1000");
    slotd.open("go");
    slotd.wait_state(next, "RUNNING");
    let again = slotd.queued(job);
    assert_eq!((again.state().as_str(), again.restarts()), ("PENDING", 1));
    slotd.cancel(next);
    slotd.wait_state(job, "FAILED");
}

#[test]
fn scontrol_requeues_a_running_job_with_the_same_id() {
    let slotd = Slotd::start();
    let job = slotd.wrap(
        &[],
        "echo run $SLURM_RESTART_COUNT; [ \"$SLURM_RESTART_COUNT\" ] && exit 0; exec sleep 1000",
    );
    slotd.wait_text(&format!("slurm-{job}.out"), "run");
    slotd.cmd("scontrol", &["requeue", &job.to_string()]).ok();
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!(ended.restarts(), 1);
    let output = slotd.output(job);
    assert!(output.starts_with("run\n") && output.ends_with("run 1\n"), "{output}");
    assert!(output.contains("DUE TO JOB REQUEUE ***"), "{output}");
}

#[test]
fn job_can_requeue_itself() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nif [ -z \"$SLURM_RESTART_COUNT\" ]; then scontrol requeue $SLURM_JOB_ID; exec sleep 1000; fi\necho again\n";
    let job = slotd.script(&[], script);
    assert_eq!(slotd.wait_state(job, "COMPLETED").restarts(), 1);
    assert!(slotd.output(job).ends_with("again\n"));
}

#[test]
fn no_requeue_forbids_it() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["--no-requeue"]);
    let out = slotd.cmd("scontrol", &["requeue", &job.to_string()]).fails(1);
    assert!(
        out.stderr.contains(&format!("Requested operation is presently disabled for job {job}")),
        "{}",
        out.stderr
    );
    assert_eq!(slotd.state(job), "RUNNING");
}

#[test]
fn requeue_survives_a_daemon_crash() {
    let mut slotd = Slotd::start();
    let gate = slotd.gate("go");
    let job = slotd
        .wrap(&["--requeue"], &format!("echo run $SLURM_RESTART_COUNT >> runs; {gate}; exit 1"));
    slotd.wait_text("runs", "run");
    slotd.kill9();
    slotd.open("go");
    slotd.wait("its end", || slotd.job_dir(job).join("exit_status").exists().then_some(()));
    slotd.start_daemon();
    let ended = slotd.wait_state(job, "FAILED");
    assert_eq!(ended.restarts(), 1);
    assert_eq!(slotd.read("runs"), "run\nrun 1\n");
}

#[test]
fn timeout_requeues_once() {
    let slotd = Slotd::start();
    let id =
        slotd.wrap(&["--requeue", "-t", "10"], "echo run $SLURM_RESTART_COUNT; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{id}.out"), "run\n");
    slotd.limit(id, 1);
    let job = slotd.wait_state(id, "TIMEOUT");
    assert_eq!(job.restarts(), 1);
    assert_eq!(slotd.output(id).matches("DUE TO TIME LIMIT ***").count(), 2);
}

#[test]
fn scontrol_requeue_from_inside_the_job_runs_it_again_with_the_same_id() {
    let slotd = Slotd::start();
    let script = "echo run ${SLURM_RESTART_COUNT:-0} of $SLURM_JOB_ID\n\
                  [ -n \"$SLURM_RESTART_COUNT\" ] && exit 0\n\
                  scontrol requeue $SLURM_JOB_ID && exec sleep 1000";
    let id = slotd.wrap(&[], script);
    let job = slotd.wait_state(id, "COMPLETED");
    assert_eq!(job.restarts(), 1);
    let seen = slotd.output(id);
    assert!(
        seen.starts_with(&format!("run 0 of {id}\n"))
            && seen.ends_with(&format!("run 1 of {id}\n")),
        "{seen}"
    );
    assert!(seen.contains("DUE TO JOB REQUEUE ***"), "{seen}");
}

#[test]
fn show_job_shows_whether_a_failed_job_would_be_requeued() {
    let slotd = Slotd::start();
    let shown = |job: u32| {
        let text = slotd.cmd("scontrol", &["show", "job", &job.to_string()]).ok().stdout;
        let word =
            text.split_whitespace().find(|word| word.starts_with("Requeue=")).map(str::to_owned);
        word.unwrap_or_else(|| panic!("{text}"))
    };
    let plain = slotd.wrap(&["-H"], "exit 1");
    assert_eq!(shown(plain), "Requeue=0");
    let again = slotd.wrap(&["--requeue", "-H"], "exit 1");
    assert_eq!(shown(again), "Requeue=1");
    slotd.cmd("scontrol", &["release", &again.to_string()]).ok();
    slotd.wait_state(again, "FAILED");
    // It was requeued once already.
    assert_eq!(shown(again), "Requeue=0");
}

#[test]
fn update_sets_whether_a_failed_job_is_requeued() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "exit 1").to_string();
    let shown = || {
        let text = slotd.cmd("scontrol", &["show", "job", &job]).ok().stdout;
        let word =
            text.split_whitespace().find(|word| word.starts_with("Requeue=")).map(str::to_owned);
        word.unwrap_or_else(|| panic!("{text}"))
    };
    for word in ["Requeue=1", "Requeue=0", "Requeue=1"] {
        slotd.cmd("scontrol", &["update", "job", &job, word]).ok();
        assert_eq!(shown(), word);
    }
    slotd.cmd("scontrol", &["release", &job]).ok();
    assert_eq!(slotd.wait_state(job.parse().expect("a number"), "FAILED").restarts(), 1);
}

#[test]
fn a_job_cancelled_before_it_began_waits_for_its_dependency_again() {
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let target = slotd.wrap(&[], "until test -e go; do sleep 0.01; done");
    slotd.wait_state(target, "RUNNING");
    let [ok, not_ok] =
        ["afterok", "afternotok"].map(|kind| slotd.wrap(&[&format!("-d{kind}:{target}")], "true"));
    let requeue = |id: u32| {
        slotd.line(&format!("scancel {id}")).ok();
        slotd.line(&format!("scontrol requeue {id}")).ok();
    };
    requeue(ok);
    slotd.wait_reason(ok, "Dependency");
    for id in [ok, not_ok] {
        slotd.line(&format!("scancel {id}")).ok();
    }
    std::fs::write(slotd.work().join("go"), "").unwrap();
    slotd.wait_state(target, "COMPLETED");
    // Now the daemon has forgotten all of them, and asks the database.
    requeue(ok);
    slotd.wait_state(ok, "COMPLETED");
    requeue(not_ok);
    slotd.wait_reason(not_ok, "DependencyNeverSatisfied");
}

#[test]
fn a_special_exit_is_held_and_shown_until_it_is_released() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo run >> runs; exit 3");
    slotd.wait_state(job, "FAILED");
    let waits = slotd.wrap(&["-H"], "true");
    slotd.expect(
        &format!("scontrol requeuehold State=Unknown {job}"),
        1,
        "",
        "Invalid job state specified: Unknown\n",
    );
    slotd.line(&format!("scontrol requeuehold State=SpecialExit {job}")).ok();
    for is_restarted in [false, true] {
        if is_restarted {
            slotd.crash();
        }
        let listed = |states: &str| slotd.cmd("squeue", &["-h", "-t", states, "-o", "%i %t %T %r"]);
        let line = format!("{job} SE SPECIAL_EXIT JobHeldUser\n");
        assert_eq!(listed("SE").ok().stdout, line);
        assert_eq!(listed("special_exit,R").ok().stdout, line);
        assert_eq!(listed("PD").ok().lines().len(), 2, "its base state is PENDING");
        assert_eq!(listed("RD,CA").ok().stdout, "");
        let shown = slotd.line(&format!("scontrol show job {job}")).ok().stdout;
        assert!(shown.contains("JobState=SPECIAL_EXIT Reason=JobHeldUser "), "{shown}");
        let json = slotd.cmd("squeue", &["--json", "-t", "SE"]).ok().stdout;
        assert!(json.contains("\"SPECIAL_EXIT\"") && !json.contains("\"PENDING\""), "{json}");
    }
    let state = slotd.cmd("sacct", &["-n", "-X", "-P", "-o", "state", "-j", &job.to_string()]).ok();
    assert_eq!(state.text(), "PENDING");
    let json = slotd.cmd("sacct", &["--json", "-j", &job.to_string()]).ok().stdout;
    assert!(json.contains("\"PENDING\"") && !json.contains("SPECIAL_EXIT"), "{json}");
    slotd.line(&format!("scontrol release {job},{waits}")).ok();
    slotd.wait_state(job, "FAILED");
    assert_eq!(slotd.read("runs"), "run\nrun\n");
    assert_eq!(slotd.cmd("squeue", &["-h", "-t", "SE"]).ok().stdout, "");
}

/// submitit requeues its jobs this way. All processes of the job get SIGTERM, scontrol as well.
#[test]
fn a_command_that_ends_its_own_job_returns_the_answer() {
    let slotd = Slotd::start();
    let jobs = [slotd.endless(&[]), slotd.endless(&[])].map(|job| job.to_string());
    proc::signal(slotd.daemon_pid(), proc::STOP);
    let lines = [&["scontrol", "requeue"][..], &["scancel"]].into_iter().zip(jobs);
    let commands: Vec<_> = lines
        .map(|(words, job)| {
            let mut command = slotd.command(words[0]);
            command.args(&words[1..]).arg(&job).env("SLURM_JOB_ID", &job);
            let command = slotd.spawn(command);
            slotd.wait("it holds SIGTERM back", || {
                proc::blocks(command.pid(), proc::TERM).then(|| command.signal(proc::TERM))
            });
            command
        })
        .collect();
    proc::signal(slotd.daemon_pid(), proc::CONT);
    for command in commands {
        command.end().ok();
    }
}
