//! Deaths of the daemon, the launcher or a watcher. No job is lost or runs twice, and reports are
//! correct.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use slotd_kit::{Setup, Slotd, proc, until};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;

/// Returns the lines of a file with their number of occurrences.
fn counts(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line).or_insert(0) += 1;
    }
    counts
}

#[test]
fn running_job_is_adopted_after_kill_9_with_its_true_end() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&[], &format!("echo begun; {}; echo ending; exit 7", slotd.gate("go")));
    slotd.wait_text(&format!("slurm-{job}.out"), "begun");
    let before = slotd.job(job);
    slotd.crash();
    let adopted = slotd.wait_state(job, "RUNNING");
    assert_eq!(adopted.start(), before.start());
    slotd.open("go");
    let ended = slotd.wait_state(job, "FAILED");
    assert_eq!((ended.exit().as_str(), ended.reason().as_str()), ("7:0", "NonZeroExitCode"));
    assert_eq!(slotd.output(job), "begun\nending\n");
}

#[test]
fn no_watcher_has_a_step_after_the_end_is_reported() {
    let slotd = Slotd::start();
    let launcher = proc::children(slotd.daemon_pid())[0];
    for _ in 0..30 {
        slotd.line("sbatch -W --wrap true").ok();
        let watchers = proc::children(launcher).into_iter().map(proc::name);
        assert_eq!(watchers.filter(|name| name == "slotd-step").count(), 0);
    }
}

#[test]
fn job_that_ended_without_a_daemon_gets_its_true_code_and_end() {
    let mut slotd = Slotd::start();
    let jobs = ["exit 0", "exit 3", "kill -SEGV $$"].map(|end| slotd.begun(&[], "go", end));
    slotd.kill9();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    let before = now();
    slotd.open("go");
    slotd.wait("the exit records", || {
        jobs.iter().all(|job| slotd.job_dir(*job).join("exit_status").exists()).then_some(())
    });
    let written = now();
    slotd.start_daemon();
    let ends: Vec<_> = jobs.iter().map(|job| slotd.wait_end(*job)).collect();
    let reported: Vec<(String, String)> =
        ends.iter().map(|end| (end.state(), end.exit())).collect();
    let expected = [("COMPLETED", "0:0"), ("FAILED", "3:0"), ("FAILED", "0:11")];
    assert_eq!(reported, expected.map(|(state, exit)| (state.to_owned(), exit.to_owned())));
    // The end time is when the job ended, not when the daemon came back.
    let end = ends[0].end();
    assert!(
        (before..=written).contains(&end),
        "ended at {end}, not between {before} and {written}"
    );
}

#[test]
fn queue_survives_with_its_order_holds_and_dependencies() {
    let mut slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let second = slotd.wrap(&["-c", "4"], "echo second >> order");
    let third = slotd.wrap(&["-c", "4"], "echo third >> order");
    let held = slotd.wrap(&["-H"], "true");
    let after = slotd.wrap(&["-d", &format!("afterok:{third}")], "echo after >> order");
    let later = slotd.wrap(&["--begin", "now+1hour"], "true");
    let array = slotd.wrap(&["-a", "1-3%1", "-c", "4"], "echo array$SLURM_ARRAY_TASK_ID >> order");
    slotd.crash();
    slotd.wait_reason(second, "Resources");
    slotd.wait_reason(held, "JobHeldUser");
    slotd.wait_reason(after, "Dependency");
    slotd.wait_reason(later, "BeginTime");
    slotd.cancel(running);
    slotd.wait_array(array, 3);
    slotd.wait_state(after, "COMPLETED");
    let order = slotd.read("order");
    let lines: Vec<&str> = order.lines().filter(|line| *line != "after").collect();
    assert_eq!(lines, ["second", "third", "array1", "array2", "array3"]);
    assert_eq!(slotd.state(held), "PENDING");
    assert_eq!(slotd.state(later), "PENDING");
}

#[test]
fn printed_id_is_durable_and_ids_continue_to_increase() {
    let mut slotd = Slotd::start();
    let mut last = 0;
    for _ in 0..5 {
        let job = slotd.wrap(&["-H"], "true");
        // Crash as soon as the ID is printed.
        slotd.crash();
        assert_eq!(slotd.state(job), "PENDING");
        assert!(job > last);
        last = job;
    }
    assert_eq!(slotd.all_records().len(), 5);
}

#[test]
fn no_job_runs_twice_or_is_lost_over_many_daemon_crashes() {
    let mut slotd = Slotd::start();
    const JOBS: usize = 60;
    let mut ids = Vec::new();
    // A small random number generator varies the moments of the crashes. A failure shows its seed.
    let seed = u64::from(std::process::id()) ^ slotd.daemon_pid() as u64;
    let mut random = seed;
    let mut next = move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for i in 0..JOBS {
        ids.push(
            slotd.wrap(
                &["--mem", "1", "-o", "/dev/null"],
                &format!("echo {i} >> log; exit {}", i % 3),
            ),
        );
        if i % 6 == 5 {
            std::thread::sleep(std::time::Duration::from_micros(next() % 20_000));
            slotd.crash();
        }
    }
    for (i, id) in ids.iter().enumerate() {
        let job = slotd.wait_end(*id);
        let expected = if i % 3 == 0 { "COMPLETED" } else { "FAILED" };
        assert_eq!(
            (job.state().as_str(), job.exit()),
            (expected, format!("{}:0", i % 3)),
            "seed {seed}\n{}",
            slotd.dump()
        );
        assert_eq!(job.restarts(), 0);
    }
    let log = slotd.read("log");
    let wrong: Vec<_> = counts(&log).into_iter().filter(|(_, n)| *n != 1).collect();
    assert!(
        wrong.is_empty() && log.lines().count() == JOBS,
        "seed {seed}: {wrong:?} of {} lines",
        log.lines().count()
    );
}

#[test]
fn array_runs_each_task_once_despite_daemon_crashes() {
    let mut slotd = Slotd::start();
    let array = slotd.wrap(
        &["-a", "0-39%4", "--mem", "1", "-o", "/dev/null"],
        "echo $SLURM_ARRAY_TASK_ID >> log",
    );
    for lines in [1, 8, 16, 24] {
        let log = slotd.path("log");
        slotd.wait("some tasks", || {
            (fs::read_to_string(&log).unwrap_or_default().lines().count() >= lines).then_some(())
        });
        slotd.crash();
    }
    let records = slotd.wait_array(array, 40);
    assert!(records.iter().all(|r| r.state() == "COMPLETED"), "{}", slotd.dump());
    let log = slotd.read("log");
    assert_eq!(log.lines().count(), 40);
    assert!(counts(&log).values().all(|n| *n == 1), "{log}");
}

#[test]
fn time_limit_counts_from_the_start_and_not_from_the_restart() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&["-t", "0:03"], "echo begun; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{job}.out"), "begun\n");
    let start = slotd.job(job).start();
    slotd.crash();
    let ended = slotd.wait_state(job, "TIMEOUT");
    assert_eq!(ended.start(), start);
    let ran = ended.end() - start;
    assert!(ran >= 3_000_000, "{ran} microseconds");
}

#[test]
fn time_limit_that_passed_without_a_daemon_is_enforced_immediately() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&["-t", "10"], "never", "true");
    let start = slotd.job(job).start();
    slotd.limit(job, 1);
    slotd.kill9();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    until(|| (now() > start + 1_200_000).then_some(())).unwrap();
    slotd.start_daemon();
    slotd.wait_state(job, "TIMEOUT");
}

#[test]
fn job_stays_cancelled_if_the_daemon_dies_during_the_cancellation() {
    // The first daemon never reaches the end of the grace period, however slow the test is.
    let mut slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let job = slotd.wrap(&[], "exec helper ignore 15");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    slotd.cancel(job);
    slotd.wait_state(job, "COMPLETING");
    slotd.reset_var("SLOTD_KILL_WAIT", 1);
    slotd.crash();
    let ended = slotd.wait_end(job);
    assert_eq!(
        (ended.state(), ended.reason()),
        ("CANCELLED".to_owned(), "CancelledByUser".to_owned())
    );
    assert_eq!(
        slotd.processes().iter().filter(|pid| proc::cmdline(**pid).contains("helper")).count(),
        0
    );
}

#[test]
fn dead_launcher_is_replaced_without_affecting_jobs() {
    let slotd = Slotd::start();
    let running = slotd.wrap(&[], &format!("{}; exit 5", slotd.gate("go")));
    slotd.wait_state(running, "RUNNING");
    let launcher = slotd
        .processes()
        .into_iter()
        .find(|pid| {
            proc::cmdline(*pid).contains("__launcher")
                && proc::parent(*pid) == Some(slotd.daemon_pid())
        })
        .expect("the daemon has a launcher");
    proc::signal(launcher, proc::KILL);
    let next = slotd.wrap(&[], "echo next");
    slotd.wait_state(next, "COMPLETED");
    slotd.open("go");
    assert_eq!(slotd.wait_end(running).exit(), "5:0");
}

#[test]
fn job_whose_watcher_dies_fails_and_leaves_no_process() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "setsid sleep 1000 & echo ready; wait");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    proc::signal(slotd.watcher_of(job), proc::KILL);
    let ended = slotd.wait_end(job);
    assert_eq!((ended.state(), ended.reason()), ("FAILED".to_owned(), "RunnerLost".to_owned()));
    slotd.wait("the end of its processes", || {
        let left = slotd.processes();
        left.iter().all(|pid| !proc::cmdline(*pid).contains("sleep")).then_some(())
    });
    // Its resources were freed.
    let next = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(next, "COMPLETED");
}

#[test]
fn chain_of_forks_ends_with_its_watcher() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "helper chain 1000000; exec sleep 1000");
    let output = format!("slurm-{job}.out");
    slotd.wait_text(&output, "session ");
    let session: i32 = slotd.wait("the session of the chain", || {
        slotd.read(&output).strip_prefix("session ")?.strip_suffix('\n')?.parse().ok()
    });
    // Each process of the chain is too short-lived to be found by its PID, but its group can be
    // signalled.
    let is_alive = || kill(Pid::from_raw(-session), None).is_ok();
    assert!(is_alive());
    proc::signal(slotd.watcher_of(job), proc::KILL);
    slotd.wait_end(job);
    let has_ended = until(|| (!is_alive()).then_some(())).is_some();
    let _ = kill(Pid::from_raw(-session), Signal::SIGKILL);
    assert!(has_ended, "{}", slotd.log());
}

#[test]
fn process_that_only_names_a_job_survives_the_end_of_its_watcher() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo ready; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    let mut user = std::process::Command::new("sleep");
    user.arg("1000").env("SLOTD_ROOT", &slotd.root).env("SLURM_JOB_ID", job.to_string());
    let mut user = user.spawn().unwrap();
    proc::signal(slotd.watcher_of(job), proc::KILL);
    slotd.wait_end(job);
    let ended = user.try_wait().unwrap();
    user.kill().unwrap();
    user.wait().unwrap();
    assert_eq!(ended, None);
}

#[test]
fn watcher_that_died_without_a_daemon_is_detected() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo ready; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    let watcher = slotd.watcher_of(job);
    slotd.kill9();
    proc::signal(watcher, proc::KILL);
    until(|| (!proc::is_alive(watcher)).then_some(())).unwrap();
    slotd.start_daemon();
    let ended = slotd.wait_end(job);
    assert_eq!((ended.state(), ended.reason()), ("FAILED".to_owned(), "RunnerLost".to_owned()));
    slotd.wait("the end of its processes", || {
        slotd.processes().iter().all(|pid| !proc::cmdline(*pid).contains("sleep")).then_some(())
    });
}

#[test]
fn job_whose_directory_was_removed_does_not_run_a_second_time() {
    let mut slotd = Slotd::start();
    let script = format!("echo run >>runs; {}", slotd.gate("go"));
    let [by_socket, by_dir] = [(); 2].map(|()| slotd.wrap(&[], &script));
    slotd.wait("both jobs", || {
        (fs::read_to_string(slotd.path("runs")).ok()? == "run\nrun\n").then_some(())
    });
    slotd.kill9();
    fs::remove_file(slotd.job_dir(by_socket).join("batch.0.sock")).unwrap();
    fs::remove_dir_all(slotd.job_dir(by_dir)).unwrap();
    slotd.start_daemon();
    for job in [by_socket, by_dir] {
        assert_eq!(slotd.wait_end(job).exit(), "0:9");
    }
    // The end is reported after its processes were killed.
    let is_of_job = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|b| *b == 0).any(|one| one.starts_with(b"SLURM_JOB_ID=")))
    };
    assert_eq!(slotd.processes().into_iter().filter(is_of_job).count(), 0);
    assert_eq!(slotd.read("runs"), "run\nrun\n");
    assert!(slotd.log().contains("its watcher died without a record"), "{}", slotd.log());
}

/// Only the note in `lib/started` shows that it has started.
#[test]
fn job_without_a_trace_in_its_directory_does_not_run_a_second_time() {
    let mut slotd = Slotd::start();
    let ends = slotd.wrap(&[], &format!("echo run >>runs; {}", slotd.gate("go")));
    let hides = slotd.wrap(&[], "echo $$ >pid; echo run >>runs; exec env -i sleep 1000");
    slotd.wait("both jobs", || {
        (fs::read_to_string(slotd.path("runs")).ok()? == "run\nrun\n").then_some(())
    });
    let watcher = slotd.watcher_of(ends);
    let is_noted = |job: u32| {
        let noted = fs::read(slotd.root.join("lib/started")).unwrap();
        noted.chunks(8).nth(job as usize).is_some_and(|start| start != [0; 8])
    };
    slotd.wait("the notes", || [ends, hides].into_iter().all(is_noted).then_some(()));
    slotd.kill9();
    slotd.open("go");
    slotd.wait("the end of a job", || (!proc::is_alive(watcher)).then_some(()));
    for job in [ends, hides] {
        fs::remove_dir_all(slotd.job_dir(job)).unwrap();
    }
    slotd.start_daemon();
    for job in [ends, hides] {
        let ended = slotd.wait_end(job);
        assert_eq!((ended.state(), ended.reason()), ("FAILED".to_owned(), "RunnerLost".to_owned()));
    }
    let after = slotd.wrap(&[], "echo run >>runs");
    slotd.wait_state(after, "COMPLETED");
    assert_eq!(slotd.read("runs"), "run\n".repeat(3));
    proc::signal(slotd.read("pid").trim().parse().unwrap(), proc::KILL);
}

#[test]
fn a_file_in_the_place_of_the_record_does_not_end_a_running_job() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&[], "go", "exit 7");
    slotd.kill9();
    fs::write(slotd.job_dir(job).join("exit_status"), "not a record").unwrap();
    slotd.start_daemon();
    slotd.wait_state(job, "RUNNING");
    slotd.open("go");
    assert_eq!(slotd.wait_end(job).exit(), "7:0");
}

#[test]
fn job_with_a_stopped_watcher_can_be_cancelled_and_ends_at_its_limit() {
    let slotd = Slotd::start();
    for by_limit in [false, true] {
        let job = slotd.wrap(&[], "echo ready; exec sleep 1000");
        slotd.wait_text(&format!("slurm-{job}.out"), "ready");
        let watcher = slotd.watcher_of(job);
        proc::signal(watcher, proc::STOP);
        until(|| (proc::state(watcher) == Some('T')).then_some(())).expect("a stopped watcher");
        if by_limit {
            slotd.limit(job, 1);
        } else {
            slotd.line(&format!("scancel {job}")).ok();
        }
        let expected = if by_limit { "TIMEOUT" } else { "CANCELLED" };
        assert_eq!(slotd.wait_end(job).state(), expected);
    }
    // A single step can be cancelled too.
    let job = slotd.wrap(&[], "srun sh -c 'echo ready; exec sleep 1000'; echo over");
    slotd.wait_text(&format!("slurm-{job}.out"), "ready");
    let stopped = proc::children(launcher_of(&slotd));
    stopped.iter().for_each(|watcher| proc::signal(*watcher, proc::STOP));
    slotd.line(&format!("scancel {job}.0")).ok();
    slotd.wait_state(job, "COMPLETED");
}

/// Returns the process that starts the watchers, which may not have executed its program yet when
/// the daemon is ready.
fn launcher_of(slotd: &Slotd) -> i32 {
    let is_launcher = |pid: &i32| proc::cmdline(*pid).contains("__launcher");
    slotd.wait("the launcher", || proc::children(slotd.daemon_pid()).into_iter().find(is_launcher))
}

#[test]
fn stopped_launcher_blocks_neither_jobs_nor_the_next_daemon() {
    let mut slotd = Slotd::start();
    let launcher = launcher_of(&slotd);
    // Its idle watchers, too.
    for process in proc::children(launcher).into_iter().chain([launcher]) {
        proc::signal(process, proc::STOP);
    }
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    proc::signal(launcher, proc::STOP);
    let job = slotd.endless(&[]);
    slotd.wait_state(job, "RUNNING");
    slotd.line(&format!("scancel {job}")).ok();
    assert_eq!(slotd.wait_end(job).state(), "CANCELLED");
    let job = slotd.begun(&[], "go", "true");
    proc::signal(launcher_of(&slotd), proc::STOP);
    slotd.crash();
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn jobs_keep_running_when_the_daemon_stops() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&[], "go", "echo done; exit 4");
    assert!(slotd.stop().success());
    assert!(!slotd.root.join("run/slotd.sock").exists());
    slotd.open("go");
    slotd.wait_text(&format!("slurm-{job}.out"), "done");
    slotd.start_daemon();
    assert_eq!(slotd.wait_end(job).exit(), "4:0");
}

#[test]
fn newer_database_is_refused_and_not_modified() {
    let mut slotd = Slotd::start();
    slotd.wrap(&["-H"], "true");
    slotd.stop();
    let db = slotd.root.join("lib/state.db");
    let url = db.to_str().unwrap();
    {
        use diesel::prelude::*;
        let mut conn = diesel::sqlite::SqliteConnection::establish(url).unwrap();
        diesel::sql_query(
            "INSERT INTO __diesel_schema_migrations (version) VALUES ('99991231000000')",
        )
        .execute(&mut conn)
        .unwrap();
        diesel::sql_query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).unwrap();
    }
    let before = (fs::read(&db).unwrap(), fs::metadata(&db).unwrap().modified().unwrap());
    let out = slotd.run(slotd.daemon_command()).fails(1);
    assert!(out.stderr.contains("newer"), "{}", out.stderr);
    assert!(out.stderr.contains("state.db"), "{}", out.stderr);
    assert_eq!((fs::read(&db).unwrap(), fs::metadata(&db).unwrap().modified().unwrap()), before);
}

#[test]
fn file_that_is_not_a_database_is_refused_and_not_modified() {
    let slotd = Slotd::setup().prepare();
    let db = slotd.root.join("lib/state.db");
    fs::create_dir_all(db.parent().unwrap()).unwrap();
    fs::write(&db, "my diary\n".repeat(1000)).unwrap();
    let out = slotd.run(slotd.daemon_command()).fails(1);
    assert!(out.stderr.contains("state.db"), "{}", out.stderr);
    assert_eq!(fs::read_to_string(&db).unwrap(), "my diary\n".repeat(1000));
}

#[test]
fn second_daemon_on_the_same_root_is_refused() {
    let slotd = Slotd::start();
    let out = slotd.run(slotd.daemon_command()).fails(1);
    assert!(out.stderr.contains("another daemon"), "{}", out.stderr);
    assert!(out.stderr.contains(slotd.root.to_str().unwrap()), "{}", out.stderr);
    // The first one is not affected.
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn daemon_waits_for_the_lock_of_a_killed_one() {
    let slotd = Slotd::setup().prepare();
    fs::create_dir_all(slotd.root.join("run")).unwrap();
    let path = slotd.root.join("run/slotd.lock");
    // Simulate a dead daemon that still holds the lock but does not answer.
    let held = fs::File::create(&path).unwrap();
    held.lock().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&held.metadata().unwrap());
    let mut start = slotd.daemon_command();
    start.arg("start");
    let start = slotd.spawn(start);
    slotd.wait("a daemon that waits for the lock", || {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks
            .lines()
            .any(|line| line.contains("->") && line.contains(&format!(":{inode} ")))
            .then_some(())
    });
    drop(held);
    let out = start.end().ok();
    assert!(out.stdout.contains(" is running (process "), "{}", out.stdout);
    let mut again = slotd.daemon_command();
    again.arg("start");
    assert!(slotd.run(again).ok().stdout.contains("is already running"));
    let mut stop = slotd.daemon_command();
    stop.arg("stop");
    slotd.run(stop).ok();
}

#[test]
fn files_are_where_the_book_says() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\necho hello\nexit 6\n");
    slotd.wait_state(job, "FAILED");
    assert!(slotd.root.join("run/slotd.sock").exists());
    assert!(slotd.root.join("lib/state.db").exists());
    let dir = slotd.job_dir(job);
    assert_eq!(
        fs::read_to_string(dir.join("script.sh")).unwrap(),
        "#!/bin/sh\necho hello\nexit 6\n"
    );
    assert!(dir.join("runner.sh").exists());
    assert!(dir.join("exit_status").exists());
}

#[test]
fn runner_sh_by_hand_reproduces_the_launch() {
    let slotd = Slotd::start();
    let mut sbatch = slotd.command("sbatch");
    // Values that a shell would split, and properties that a process inherits.
    sbatch.env("QUOTED", "it's \"$HOME\"\n`x` \\ *").env("EMPTY", "");
    sbatch.args(["--parsable", "-J", "again", "-n", "1", "-c", "2", "job.sh", "a b", "c'd"]);
    let script = "#!/bin/sh\numask\npwd\nenv | sort | grep -v -e SLURM_TASK_PID -e '^_='\nprintf '<%s>' \"$@\"\n\
                  echo; echo oops >&2\nexit 9\n";
    slotd.write("job.sh", script);
    let id: u32 = slotd.run(sbatch).ok().text().parse().unwrap();
    slotd.wait_state(id, "FAILED");
    let first = slotd.output(id);
    assert!(
        first.contains("<a b><c'd>") && first.contains("oops") && first.contains("EMPTY=\n"),
        "{first}"
    );
    fs::remove_file(slotd.path(&format!("slurm-{id}.out"))).unwrap();

    // Run it from another directory with another environment: the file contains the whole launch.
    let mut by_hand = slotd.shell();
    by_hand.arg(slotd.job_dir(id).join("runner.sh")).env_clear().current_dir("/");
    let out = slotd.run(by_hand).fails(9);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    assert_eq!(slotd.output(id), first);
}

#[test]
fn runner_sh_of_several_ranks_runs_them_all() {
    let slotd = Slotd::start();
    let id =
        slotd.wrap(&["-n", "3"], "echo rank $SLURM_PROCID of $SLURM_NTASKS; exit $SLURM_PROCID");
    slotd.wait_state(id, "FAILED");
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let first = sorted(slotd.output(id));
    assert_eq!(first, ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]);
    let mut by_hand = slotd.shell();
    by_hand.arg(slotd.job_dir(id).join("runner.sh"));
    slotd.run(by_hand).fails(2);
    assert_eq!(sorted(slotd.output(id)), first);
}

#[test]
fn deep_runtime_root_works() {
    let mut slotd = Setup::default().deep().start();
    let job = slotd.wrap(&[], &format!("{}; exit 3", slotd.gate("go")));
    slotd.wait_state(job, "RUNNING");
    slotd.crash();
    slotd.open("go");
    assert_eq!(slotd.wait_end(job).exit(), "3:0");
}

#[test]
fn client_continues_after_a_daemon_restart() {
    let mut slotd = Slotd::start();
    let mut command = slotd.command("srun");
    command.args([
        "sh",
        "-c",
        &format!("echo begun > here; {}; echo ended; exit 3", slotd.gate("go")),
    ]);
    let client = slotd.spawn(command);
    slotd.wait_text("here", "begun");
    slotd.crash();
    slotd.open("go");
    let out = client.end().fails(3);
    assert_eq!(out.stdout, "ended\n");
    let job = slotd.all_records().remove(0);
    assert_eq!(slotd.wait_end(job.id()).exit(), "3:0");
}

#[test]
fn sbatch_wait_survives_a_daemon_restart() {
    let mut slotd = Slotd::start();
    let mut command = slotd.command("sbatch");
    command.args(["-W", "--wrap", &format!("{}; exit 8", slotd.gate("go"))]);
    let client = slotd.spawn(command);
    slotd.wait("the job", || {
        slotd.all_records().first().filter(|r| r.state() == "RUNNING").map(|_| ())
    });
    slotd.crash();
    slotd.open("go");
    client.end().fails(8);
}

#[test]
fn one_local_sqlite_database() {
    let slotd = Slotd::start();
    slotd.wait_state(slotd.wrap(&[], "true"), "COMPLETED");
    let header = fs::read(slotd.root.join("lib/state.db")).unwrap();
    assert!(header.starts_with(b"SQLite format 3\0"));
    let databases = slotd.sh(&format!("find {} -name '*.db' | wc -l", slotd.root.display())).ok();
    assert_eq!(databases.text().trim(), "1");
}

#[test]
fn there_is_no_controller_and_worker_split() {
    let slotd = Slotd::start();
    // Apart from jobs, only the daemon and its launcher run.
    let programs: Vec<String> = slotd.processes().into_iter().map(proc::cmdline).collect();
    assert!(programs.len() <= 1, "{programs:?}");
}

#[test]
fn file_daemon_socket() {
    let slotd = Slotd::start();
    assert!(fs::metadata(slotd.root.join("run/slotd.sock")).unwrap().file_type().is_socket());
}

#[test]
fn file_daemon_wrapper() {
    let slotd = Slotd::start();
    slotd.write("in", "from the input\n");
    let id =
        slotd.wrap(&["-J", "again", "-i", "in"], "cat; echo $SLURM_JOB_NAME $SLURM_JOB_ID; exit 3");
    slotd.wait_state(id, "FAILED");
    let first = slotd.output(id);
    fs::remove_file(slotd.path(&format!("slurm-{id}.out"))).unwrap();
    // Run by hand, it reproduces the launch.
    let mut again = slotd.shell();
    again.arg(slotd.job_dir(id).join("runner.sh"));
    slotd.run(again).fails(3);
    assert_eq!(slotd.output(id), first);
}
