//! A lost database, or an older copy in its place: job IDs continue, nothing runs twice, and
//! running jobs are recovered.

use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::path::PathBuf;

/// Returns the files of the database.
fn database(slotd: &Slotd) -> Vec<PathBuf> {
    ["state.db", "state.db-wal", "state.db-shm"]
        .map(|name| slotd.root.join("lib").join(name))
        .to_vec()
}

fn lose_database(slotd: &Slotd) {
    for file in database(slotd) {
        let _ = fs::remove_file(file);
    }
}

#[test]
fn job_ids_and_ended_jobs_survive_the_loss_of_the_database() {
    let mut slotd = Slotd::start();
    let ended =
        [("true", "COMPLETED", "0:0"), ("exit 3", "FAILED", "3:0")].map(|(script, state, exit)| {
            let id = slotd.wrap(&["-J", "kept"], script);
            slotd.wait_state(id, state);
            (id, state, exit)
        });
    slotd.stop();
    lose_database(&slotd);
    slotd.start_daemon();
    for (id, state, exit) in ended {
        assert_eq!(slotd.sacct(id, "jobname,state,exitcode"), format!("kept|{state}|{exit}"));
    }
    let next = slotd.wrap(&[], "true");
    assert_eq!(next, 3);
    slotd.wait_state(next, "COMPLETED");
    // Its environment is lost, so it cannot run again.
    let refused = slotd.cmd("scontrol", &["requeue", "2"]).fails(1);
    let why = "the environment of job 2 is no longer stored: submit it again";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

#[test]
fn job_ids_continue_after_those_in_the_backup_of_a_lost_database() {
    let mut slotd = Slotd::start();
    for _ in 0..3 {
        slotd.wrap(&["-H"], "true");
    }
    slotd.line("slotd db backup copy.db").ok();
    slotd.cmd("scancel", &["--me"]).ok();
    slotd.stop();
    lose_database(&slotd);
    let lib = slotd.root.join("lib");
    fs::remove_dir_all(lib.join("jobs")).unwrap();
    fs::rename(slotd.path("copy.db"), lib.join("state.db.backup")).unwrap();
    let started = slotd.line("slotd daemon start").ok();
    let expected = format!("the database {} is missing", lib.join("state.db").display());
    assert!(started.stderr.contains(&expected), "{}", started.stderr);
    let log = fs::read_to_string(slotd.root.join("run/slotd.log")).unwrap();
    assert!(log.contains("has jobs up to 3: new jobs get the IDs after it"), "{log}");
    let kept = lib.join("state.db.replaced1");
    assert!(log.contains(&format!("slotd db restore {}", kept.display())), "{log}");
    let hint = format!("`slotd db restore {}`", kept.display());
    assert!(started.stderr.contains(&hint), "{}", started.stderr);
    assert!(kept.exists() && !lib.join("state.db.replaced2").exists());
    assert_eq!(slotd.wrap(&["-H"], "true"), 4);
    let again = slotd.line("slotd daemon restart").ok();
    assert!(!again.stderr.contains("is missing"), "{}", again.stderr);
    assert_eq!(slotd.wrap(&["-H"], "true"), 5);
    slotd.line("slotd daemon stop").ok();
}

#[test]
fn ids_of_jobs_that_were_only_pending_are_not_reused_without_the_database() {
    let mut slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "true");
    let mut waits = slotd.command("srun");
    waits.args(["-H", "true"]);
    let waits = slotd.spawn(waits);
    slotd.wait("its job", || (slotd.all_records().len() == 2).then_some(()));
    slotd.kill9();
    waits.signal(slotd_kit::proc::KILL);
    lose_database(&slotd);
    slotd.start_daemon();
    assert_eq!(slotd.wrap(&["-H"], "true"), held + 2);
}

#[test]
fn a_running_job_is_recovered_without_the_database() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&["-c", "2", "-J", "long"], "go", "exit 5");
    slotd
        .wait("the job is recorded", || slotd.job_dir(job).join("job.json").exists().then_some(()));
    let start = slotd.job(job).start();
    slotd.kill9();
    lose_database(&slotd);
    slotd.start_daemon();
    let recovered = slotd.wait_state(job, "RUNNING");
    assert_eq!((recovered.start(), recovered.tres().0), (start, 2));
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i %j %C"]).ok().text(), format!("{job} long 2"));
    slotd.open("go");
    assert_eq!(slotd.wait_state(job, "FAILED").exit(), "5:0");
}

#[test]
fn a_running_allocation_is_recovered_without_the_database() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-J", "held", "sh", "-c", &format!("echo > begun; {}; exit 6", slotd.gate("go"))]);
    let srun = slotd.spawn(srun);
    slotd.wait_text("begun", "\n");
    slotd.wait("the job is recorded", || slotd.job_dir(1).join("job.json").exists().then_some(()));
    slotd.kill9();
    lose_database(&slotd);
    slotd.start_daemon();
    assert_eq!(slotd.wait_state(1, "RUNNING").0["request"]["name"], "held");
    slotd.open("go");
    assert_eq!(srun.end().code, 6);
    assert_eq!(slotd.wait_state(1, "FAILED").exit(), "6:0");
}

#[test]
fn jobs_that_are_pending_only_in_a_restored_copy_do_not_run_again() {
    let mut slotd = Slotd::start();
    let first = slotd.endless(&["-c", "4"]);
    let second = slotd.wrap(&["-c", "4"], "echo second >> log; exit 2");
    let array = slotd.wrap(&["-c", "4", "-a", "0-2"], "echo task $SLURM_ARRAY_TASK_ID >> log");
    slotd.line("slotd db backup copy.db").ok();
    slotd.cancel(first);
    slotd.wait_array(array, 3);
    let log = slotd.read("log");
    slotd.stop();
    slotd.line("slotd db restore copy.db").ok();
    slotd.start_daemon();
    assert_eq!(slotd.wait_end(second).exit(), "2:0");
    let tasks = slotd.wait_array(array, 3);
    assert!(tasks.iter().all(|task| task.state() == "COMPLETED"), "{}", slotd.dump());
    slotd.wait_end(first);
    let next = slotd.wrap(&[], "echo next >> log");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.read("log"), format!("{log}next\n"));
}

/// In the copy, the jobs are pending, held, or in their first run.
#[test]
fn jobs_that_were_requeued_since_a_restored_copy_do_not_run_twice() {
    let mut slotd = Slotd::start();
    let script = |name: &str| format!("echo $$ >> {name}; exec sleep 1000");
    let filler = slotd.endless(&["-c", "3"]);
    let names = ["runs", "waits", "held"];
    let jobs = names.map(|name| (name, slotd.wrap(&[], &script(name))));
    let held = jobs[2].1;
    slotd.line(&format!("scontrol hold {held}")).ok();
    slotd.wait_text("runs", "\n");
    slotd.line("slotd db backup copy.db").ok();
    slotd.cancel(filler);
    slotd.line(&format!("scontrol release {held}")).ok();
    for (name, job) in jobs {
        slotd.wait_text(name, "\n");
        slotd.line(&format!("scontrol requeue {job}")).ok();
        slotd.wait("the second run", || (slotd.read(name).lines().count() == 2).then_some(()));
    }
    slotd.stop();
    slotd.line("slotd db restore copy.db").ok();
    slotd.start_daemon();
    for (name, job) in jobs {
        assert_eq!((slotd.state(job), slotd.show(job, "Restarts")), ("RUNNING".into(), "1".into()));
        let pids = slotd.read(name);
        let pid: i32 = pids.lines().last().unwrap().parse().unwrap();
        assert!(proc::is_alive(pid), "{name}");
        slotd.cancel(job);
        assert_eq!(slotd.wait_end(job).state(), "CANCELLED");
        assert!(!proc::is_alive(pid), "{name}");
        assert_eq!(slotd.read(name), pids, "{name}");
    }
}

#[test]
fn existing_files_at_a_job_s_directory_do_not_fail_it() {
    let slotd = Setup::default().start();
    let dir = slotd.job_dir(1);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("exit_status"), r#"{"run":0}"#).unwrap();
    fs::write(dir.join("script.sh"), "echo not this").unwrap();
    fs::write(slotd.job_dir(2), "a file").unwrap();
    for number in [1, 2] {
        let job = slotd.wrap(&[], "echo ran");
        assert_eq!(job, number);
        slotd.wait_state(job, "COMPLETED");
        assert_eq!(slotd.output(job), "ran\n");
    }
    assert!(slotd.root.join("lib/jobs/1.aside1/exit_status").exists());
    assert!(slotd.root.join("lib/jobs/2.aside1").is_file());
}

#[test]
fn running_jobs_survive_a_start_without_their_directories() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&[], &format!("echo up; {}", slotd.gate("go")));
    slotd.wait_text(&format!("slurm-{job}.out"), "up");
    slotd.stop();
    let (jobs, away) = (slotd.root.join("lib/jobs"), slotd.base.join("away"));
    fs::rename(&jobs, &away).unwrap();
    // Not even the second start creates it.
    for _ in 0..2 {
        let out = slotd.run(slotd.daemon_command()).fails(78);
        let why = format!("{} is missing, but 1 job may be running: move it back", jobs.display());
        assert!(out.stderr.contains(&why), "{}", out.stderr);
    }
    fs::rename(&away, &jobs).unwrap();
    slotd.start_daemon();
    assert_eq!(slotd.state(job), "RUNNING");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    // Without running jobs, it is created.
    slotd.stop();
    fs::rename(&jobs, &away).unwrap();
    slotd.start_daemon();
    assert_eq!(slotd.ran(&[], "echo next"), "next\n");
}

#[test]
fn an_empty_directory_gives_running_jobs_up() {
    let mut slotd = Slotd::start();
    // A job that has not begun would do so in the new directory.
    let job = slotd.begun(&[], "never", "true");
    slotd.stop();
    let jobs = slotd.root.join("lib/jobs");
    fs::rename(&jobs, slotd.base.join("away")).unwrap();
    fs::create_dir(&jobs).unwrap();
    slotd.start_daemon();
    slotd.wait_state(job, "FAILED");
}
