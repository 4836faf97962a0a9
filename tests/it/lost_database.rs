//! A database that was lost, or an older copy in its place: numbers go on, nothing runs twice, and
//! what runs is known.

use slotd_kit::{Setup, Slotd};
use std::fs;
use std::path::PathBuf;

/// The files of the database.
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
fn numbers_go_on_after_the_database_was_lost_and_what_ended_has_its_exit_code() {
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
    // Its environment is lost, so that it cannot run again.
    let refused = slotd.cmd("scontrol", &["requeue", "2"]).fails(1);
    let why = "the environment of job 2 is not kept any more: submit it again";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

#[test]
fn a_job_that_runs_is_taken_over_without_the_database() {
    let mut slotd = Slotd::start();
    let job = slotd.begun(&["-c", "2", "-J", "long"], "go", "exit 5");
    slotd.wait("the job is written down", || {
        slotd.job_dir(job).join("job.json").exists().then_some(())
    });
    let start = slotd.job(job).start();
    slotd.kill9();
    lose_database(&slotd);
    slotd.start_daemon();
    let taken_over = slotd.wait_state(job, "RUNNING");
    assert_eq!((taken_over.start(), taken_over.tres().0), (start, 2));
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i %j %C"]).ok().text(), format!("{job} long 2"));
    slotd.open("go");
    assert_eq!(slotd.wait_state(job, "FAILED").exit(), "5:0");
}

#[test]
fn an_allocation_that_runs_is_taken_over_without_the_database() {
    let mut slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-J", "held", "sh", "-c", &format!("echo > begun; {}; exit 6", slotd.gate("go"))]);
    let srun = slotd.spawn(srun);
    slotd.wait_text("begun", "\n");
    slotd.wait("the job is written down", || {
        slotd.job_dir(1).join("job.json").exists().then_some(())
    });
    slotd.kill9();
    lose_database(&slotd);
    slotd.start_daemon();
    assert_eq!(slotd.wait_state(1, "RUNNING").0["request"]["name"], "held");
    slotd.open("go");
    assert_eq!(srun.end().code, 6);
    assert_eq!(slotd.wait_state(1, "FAILED").exit(), "6:0");
}

#[test]
fn nothing_runs_again_because_an_older_copy_has_it_waiting() {
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

#[test]
fn what_lies_in_the_way_of_a_job_does_not_fail_it() {
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
