//! The deletion of old jobs: automatically, and with `slotd clean`.

use serde_json::json;
use slotd_kit::tmux::Tmux;
use slotd_kit::{Setup, Slotd};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs this many jobs one after the other, and returns their IDs.
fn ended(slotd: &Slotd, count: usize) -> Vec<u32> {
    let one = |_| {
        let id = slotd.wrap(&["-o", "/dev/null"], "true");
        slotd.wait_state(id, "COMPLETED");
        id
    };
    (0..count).map(one).collect()
}

fn numbers(slotd: &Slotd) -> Vec<u32> {
    slotd.all_records().iter().map(slotd_kit::Record::id).collect()
}

fn forgetful() -> Setup {
    Setup::default().set("SLOTD_MIN_JOB_AGE", 0)
}

/// Waits until `slotd clean` would remove this many jobs, and returns its output, which must end
/// with `end`. It waits because an end is visible slightly before the database has it.
fn would_clean(slotd: &Slotd, jobs: usize, end: &str) -> String {
    slotd.wait(&format!("{jobs} jobs that would be removed"), || {
        let printed = slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout;
        let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
        (printed.starts_with(&format!("{jobs} ")) && printed.ends_with(end)).then_some(printed)
    })
}

fn exists(dir: &Path) -> bool {
    dir.exists()
}

#[test]
fn clean_without_a_daemon_reports_a_link_in_place_of_lib() {
    let mut slotd = Slotd::start();
    slotd.stop();
    let (lib, moved) = (slotd.root.join("lib"), slotd.path("moved"));
    fs::rename(&lib, &moved).unwrap();
    std::os::unix::fs::symlink(slotd.path("nowhere"), &lib).unwrap();
    let refused = slotd.line("slotd clean --older-than 0s --yes").fails(1);
    assert!(refused.stderr.contains("lib: it is a link"), "{}", refused.stderr);
}

#[test]
fn clean_lists_the_jobs_to_remove_and_removes_them() {
    let slotd = forgetful().start();
    let old = ended(&slotd, 3);
    let held = slotd.wrap(&["-H"], "true");
    let printed = would_clean(&slotd, 3, "\n");
    assert!(printed.starts_with("3 jobs that ended before "), "{printed}");
    assert!(printed.contains(" would be deleted; their directories would free "), "{printed}");
    assert_eq!(numbers(&slotd).len(), 4);
    assert!(slotd.line("slotd clean --older-than 1d --yes").ok().stdout.starts_with("0 jobs "));
    let printed = slotd.line("slotd clean --older-than 0s --yes").ok().stdout;
    assert!(
        printed.starts_with("3 jobs ")
            && printed.contains(" were deleted; their directories freed "),
        "{printed}"
    );
    assert_eq!(numbers(&slotd), [held]);
    assert!(old.iter().all(|id| !exists(&slotd.job_dir(*id))));
    slotd.line("slotd clean --older-than soon").fails(2);
    for age in ["99999999d", "106751991167d"] {
        let wanted = format!(
            "slotd: error: Invalid --older-than specification: {age}\n  hint: no job ended before 1970\n"
        );
        slotd.expect(&format!("slotd clean --older-than {age}"), 2, "", &wanted);
    }
}

#[test]
fn clean_refuses_an_age_without_a_unit_and_asks_before_deleting() {
    let slotd = forgetful().start();
    let job = ended(&slotd, 1)[0];
    would_clean(&slotd, 1, "\n");
    for age in ["30", "0"] {
        let wanted = format!(
            "slotd: error: Invalid --older-than specification: {age}\n  hint: a number needs a unit: did you mean {age}d?\n"
        );
        slotd.expect(&format!("slotd clean --older-than {age} --yes"), 2, "", &wanted);
    }
    let wanted = "slotd: error: nothing was deleted: cannot ask for confirmation without a terminal\n  hint: --yes deletes without asking, \
                --dry-run prints what would be deleted\n";
    slotd.expect("slotd clean --older-than 0s", 2, "", wanted);
    assert_eq!(numbers(&slotd), [job]);
    let clean = "slotd clean --older-than 0s; echo \"code $?\"; exec cat";
    for (answer, shown, left) in
        [("n", "code 1", vec![job]), ("", "code 1", vec![job]), ("y", "code 0", vec![])]
    {
        let Some(terminal) = Tmux::start(&slotd, clean) else { return };
        let asked = terminal.shows("Delete them [y/n]?");
        assert!(
            asked.contains("1 job that ended before ") && asked.contains("the first ended at "),
            "{asked}"
        );
        assert_eq!(numbers(&slotd), [job]);
        terminal.press(&[answer, "Enter"]);
        terminal.shows(shown);
        assert_eq!(
            (numbers(&slotd), exists(&slotd.job_dir(job))),
            (left.clone(), !left.is_empty())
        );
    }
    // Jobs that it lists as kept are not deleted, even if they could be by the time the user
    // answers.
    let (gone, kept) = (ended(&slotd, 1)[0], slotd.wrap(&["-o", "/dev/null"], "exit 1"));
    slotd.wait_state(kept, "FAILED");
    let waits = slotd.wrap(&["-d", &format!("afterok:{kept}")], "true");
    would_clean(&slotd, 1, &format!("{kept}\n"));
    let Some(terminal) = Tmux::start(&slotd, clean) else { return };
    terminal.shows("Delete them [y/n]?");
    slotd.cancel(waits);
    slotd.wait_state(waits, "CANCELLED");
    terminal.press(&["y", "Enter"]);
    terminal.shows("code 0");
    assert!(!exists(&slotd.job_dir(gone)) && exists(&slotd.job_dir(kept)));
    would_clean(&slotd, 2, "\n");
    slotd.line("slotd clean --older-than 0s --yes").ok();
    let Some(terminal) = Tmux::start(&slotd, clean) else { return };
    let shown = terminal.shows("code 0");
    assert!(shown.contains("0 jobs ") && !shown.contains("[y/n]"), "{shown}");
}

#[test]
fn clean_keeps_dependencies_of_pending_jobs_and_jobs_in_memory() {
    let mut slotd = forgetful().start();
    let first = slotd.wrap(&[], "exit 1");
    slotd.wait_state(first, "FAILED");
    let gate = slotd.begun(&[], "go", "true");
    let waits = slotd.wrap(&["-d", &format!("afternotok:{first},afterok:{gate}")], "true");
    let array =
        slotd.wrap(&["-a", "0-1", "-o", "/dev/null"], "[ $SLURM_ARRAY_TASK_ID = 0 ] || sleep 1000");
    let task = slotd
        .wait("a task's end", || slotd.records(array).into_iter().find(slotd_kit::Record::is_over));
    let left = format!(
        "2 jobs are kept, because a pending job depends on them or their array has unfinished tasks: {first} {}\n",
        task.id()
    );
    would_clean(&slotd, 0, &left);
    let printed = slotd.line("slotd clean --older-than 0s --yes").ok().stdout;
    assert!(printed.starts_with("0 jobs ") && printed.ends_with(&left), "{printed}");
    assert!(exists(&slotd.job_dir(first)) && exists(&slotd.job_dir(task.id())));
    // The next daemon still has the job's dependency.
    slotd.crash();
    slotd.wait_reason(waits, "Dependency");
    slotd.open("go");
    slotd.wait_state(waits, "COMPLETED");
    slotd.cancel(array);
    slotd.wait_array(array, 2);
    would_clean(&slotd, 5, "\n");
    assert!(
        slotd.line("slotd clean --older-than 0s --yes").ok().stdout.starts_with("5 jobs "),
        "{}",
        slotd.dump()
    );
    slotd.reset_var("SLOTD_MIN_JOB_AGE", 300);
    slotd.crash();
    let last = ended(&slotd, 1)[0];
    let left =
        format!("1 job is kept, because squeue still shows it (SLOTD_MIN_JOB_AGE): {last}\n");
    would_clean(&slotd, 0, &left);
    let printed = slotd.line("slotd clean --older-than 0s --yes").ok().stdout;
    assert!(printed.starts_with("0 jobs ") && printed.ends_with(&left), "{printed}");
}

#[test]
fn clean_needs_no_daemon_and_job_ids_are_never_reused() {
    let mut slotd = forgetful().start();
    let jobs = ended(&slotd, 2);
    slotd.stop();
    assert!(slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout.starts_with("2 jobs "));
    assert!(slotd.line("slotd clean --older-than 0s --yes").ok().stdout.starts_with("2 jobs "));
    assert!(jobs.iter().all(|id| !exists(&slotd.job_dir(*id))));
    slotd.start_daemon();
    assert_eq!((slotd.all_records().len(), ended(&slotd, 1)), (0, vec![3]));
}

#[test]
fn the_oldest_jobs_beyond_the_limit_are_deleted_automatically() {
    let mut slotd = forgetful().set("SLOTD_KEEP_JOBS", 2).start();
    let jobs = ended(&slotd, 4);
    // Stop the daemon cleanly: an end that a killed daemon had not written yet would be too late
    // for the cleanup at the next start.
    slotd.stop();
    slotd.start_daemon();
    slotd.wait("the oldest to be deleted", || (numbers(&slotd) == jobs[2..]).then_some(()));
    assert!(!exists(&slotd.job_dir(jobs[1])) && exists(&slotd.job_dir(jobs[2])));
    let shown = slotd.line("scontrol show config").ok().stdout;
    assert!(shown.contains("SlotdKeepJobs           = 2\n"), "{shown}");
}

/// Runs a job this many times, and leaves it held under its ID. Returns the ID.
fn held_again(slotd: &Slotd, runs: u32) -> u32 {
    let id = slotd.wrap(&["-o", "/dev/null"], "true");
    for run in 0..runs {
        slotd.wait("the end of a run", || {
            let job = slotd.job(id);
            (job.state() == "COMPLETED" && job.restarts() == u64::from(run)).then_some(())
        });
        slotd.line(&format!("scontrol requeuehold {id}")).ok();
        if run + 1 < runs {
            slotd.line(&format!("scontrol release {id}")).ok();
        }
    }
    id
}

/// Returns the number of rows that `sacct --duplicates` prints for a job.
fn runs(slotd: &Slotd, id: u32) -> usize {
    slotd.line(&format!("sacct -nPXD -j {id} -o jobid")).ok().lines().len()
}

#[test]
fn earlier_runs_of_a_job_that_has_not_ended_are_deleted_too() {
    let slotd = forgetful().start();
    let id = held_again(&slotd, 3);
    slotd.wait("the runs in the database", || (runs(&slotd, id) == 4).then_some(()));
    let printed = slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout;
    assert!(printed.ends_with("earlier runs of unended jobs to delete: 3\n"), "{printed}");
    let printed = slotd.line("slotd clean --older-than 1d --yes").ok().stdout;
    assert!(!printed.contains("runs"), "{printed}");
    let printed = slotd.line("slotd clean --older-than 0s --yes").ok().stdout;
    assert!(printed.ends_with("earlier runs of unended jobs deleted: 3\n"), "{printed}");
    assert_eq!((runs(&slotd, id), slotd.state(id)), (1, "PENDING".to_owned()));
}

#[test]
fn the_oldest_runs_beyond_the_limit_are_deleted_but_no_job_for_their_sake() {
    let mut slotd = forgetful().set("SLOTD_KEEP_JOBS", 2).start();
    let old = ended(&slotd, 1)[0];
    let id = held_again(&slotd, 4);
    slotd.stop();
    slotd.start_daemon();
    slotd.wait("the oldest to be deleted", || (runs(&slotd, id) == 3).then_some(()));
    assert_eq!(numbers(&slotd), [old, id]);
}

/// Replaces a directory of slotd with a link to a directory of the user that contains files.
fn replace_by_link(slotd: &Slotd, dir: &Path) -> PathBuf {
    let scratch = slotd.base.join("scratch");
    for inner in ["", "1", "1-2", "gone.1-2"] {
        fs::create_dir_all(scratch.join(inner)).unwrap();
        fs::write(scratch.join(inner).join("runner.sh"), "precious").unwrap();
    }
    if dir.exists() {
        fs::rename(dir, slotd.base.join("moved")).unwrap();
    }
    symlink(&scratch, dir).unwrap();
    scratch
}

#[test]
fn nothing_is_deleted_through_links_and_each_is_reported() {
    for name in ["lib/snapshots", "lib/jobs", "lib/jobs/1"] {
        let mut slotd = forgetful().start();
        let job = ended(&slotd, 1)[0];
        would_clean(&slotd, 1, "\n");
        let dir = slotd.root.join(name);
        let scratch = replace_by_link(&slotd, &dir);
        let untouched = || {
            let kept = ["runner.sh", "1/runner.sh", "1-2/runner.sh", "gone.1-2/runner.sh"];
            kept.iter()
                .all(|file| fs::read(scratch.join(file)).is_ok_and(|text| text == b"precious"))
        };
        let named = format!("{}: it is a link", dir.display());
        let out = slotd.line("slotd clean --older-than 0s --yes").fails(1);
        assert!(out.stderr.contains(&named), "{}", out.stderr);
        assert!(untouched(), "{name}");
        assert!(slotd.line("slotd doctor").stdout.contains(&named));
        slotd.stop();
        let out = slotd.line("slotd clean --older-than 0s --yes").fails(1);
        assert!(out.stderr.contains(&named) && untouched(), "{name}: {}", out.stderr);
        if name != "lib/jobs/1" {
            let out = slotd.run(slotd.daemon_command()).fails(1);
            assert!(out.stderr.contains(&named), "{}", out.stderr);
        }
        fs::remove_file(&dir).unwrap();
        if slotd.base.join("moved").exists() {
            fs::rename(slotd.base.join("moved"), &dir).unwrap();
        }
        slotd.start_daemon();
        slotd.line("slotd clean --older-than 0s --yes").ok();
        assert!(untouched() && !exists(&slotd.job_dir(job)), "{name}");
    }
}

#[test]
fn no_file_contains_a_secret_of_a_job_after_clean() {
    let secret = "token-that-nobody-may-find";
    for with_daemon in [true, false] {
        let mut slotd = forgetful().start();
        let holders = |slotd: &Slotd| {
            let found =
                Command::new("grep").args(["-rlaF", secret]).arg(&slotd.root).output().unwrap();
            String::from_utf8(found.stdout).unwrap()
        };
        let mut submit = slotd.command("sbatch");
        submit.env("TOKEN", secret).args(["-o", "/dev/null", "--wrap", "true", "--parsable"]);
        let job = slotd.run(submit).ok().text().parse().unwrap();
        slotd.wait_state(job, "COMPLETED");
        would_clean(&slotd, 1, "\n");
        let copy = slotd.root.join("lib/state.db.backup");
        slotd.cmd("slotd", &["db", "backup", &copy.display().to_string()]).ok();
        assert!(
            holders(&slotd).contains("state.db.backup") && holders(&slotd).contains("runner.sh")
        );
        if !with_daemon {
            slotd.kill9();
        }
        slotd.line("slotd clean --older-than 0s --yes").ok();
        assert_eq!(holders(&slotd), "", "with a daemon: {with_daemon}");
        assert!(copy.exists());
        if with_daemon {
            slotd.stop();
        }
        let log = fs::metadata(slotd.root.join("lib/state.db-wal")).map_or(0, |log| log.len());
        assert!(!with_daemon || log == 0, "{log} bytes are left in the write-ahead log");
    }
}

#[test]
fn ended_jobs_leave_memory_after_the_minimum_age() {
    let slotd = Setup::default().set("SLOTD_MIN_JOB_AGE", 1).start();
    ended(&slotd, 2);
    // Nothing else happens, so the daemon must act on its clock.
    slotd.wait("an empty memory", || {
        let answer = slotd.ask(&json!({"Diagnostics": {"reset": false}})).expect("an answer");
        (answer["Diagnostics"]["in_memory"] == 0).then_some(())
    });
}
