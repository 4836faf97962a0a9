//! The end of history: what goes by itself, and what `slotd clean` removes.

use slotd_kit::{Setup, Slotd};
use std::path::Path;

/// Jobs that have ended, each after the one before, and are in memory no more.
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

/// What `slotd clean` would tell, as soon as it begins like this: an end is shown a moment before the database has it.
fn would_clean(slotd: &Slotd, jobs: usize, end: &str) -> String {
    slotd.wait(&format!("{jobs} jobs that would be removed"), || {
        let told = slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout;
        (told.starts_with(&format!("{jobs} jobs ")) && told.ends_with(end)).then_some(told)
    })
}

fn lives(dir: &Path) -> bool {
    dir.exists()
}

#[test]
fn clean_tells_what_it_would_remove_and_removes_it() {
    let slotd = forgetful().start();
    let old = ended(&slotd, 3);
    let held = slotd.wrap(&["-H"], "true");
    let told = would_clean(&slotd, 3, "\n");
    assert!(told.starts_with("3 jobs that ended before "), "{told}");
    assert!(told.contains(" would be removed; their directories would free "), "{told}");
    assert_eq!(numbers(&slotd).len(), 4);
    assert!(slotd.line("slotd clean --older-than 1d").ok().stdout.starts_with("0 jobs "));
    let told = slotd.line("slotd clean --older-than 0s").ok().stdout;
    assert!(
        told.starts_with("3 jobs ") && told.contains(" were removed; their directories freed "),
        "{told}"
    );
    assert_eq!(numbers(&slotd), [held]);
    assert!(old.iter().all(|id| !lives(&slotd.job_dir(*id))) && lives(&slotd.job_dir(held)));
    slotd.line("slotd clean --older-than soon").fails(2);
    for age in ["99999999d", "106751991167d"] {
        let said = format!(
            "slotd: error: Invalid --older-than specification: {age}\n  hint: no job ended before 1970\n"
        );
        slotd.expect(&format!("slotd clean --older-than {age}"), 2, "", &said);
    }
}

#[test]
fn what_a_pending_job_waits_for_and_what_memory_has_is_not_removed() {
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
        "2 jobs are left, since a pending job depends on them, or their array has tasks that have not ended: {first} {}\n",
        task.id()
    );
    would_clean(&slotd, 0, &left);
    let told = slotd.line("slotd clean --older-than 0s").ok().stdout;
    assert!(told.starts_with("0 jobs ") && told.ends_with(&left), "{told}");
    assert!(lives(&slotd.job_dir(first)) && lives(&slotd.job_dir(task.id())));
    // The next daemon still knows what the job waits for.
    slotd.crash();
    slotd.wait_reason(waits, "Dependency");
    slotd.open("go");
    slotd.wait_state(waits, "COMPLETED");
    slotd.cancel(array);
    slotd.wait_array(array, 2);
    would_clean(&slotd, 5, "\n");
    assert!(
        slotd.line("slotd clean --older-than 0s").ok().stdout.starts_with("5 jobs "),
        "{}",
        slotd.dump()
    );
    slotd.reset_var("SLOTD_MIN_JOB_AGE", 300);
    slotd.crash();
    let last = ended(&slotd, 1)[0];
    let left =
        format!("1 jobs are left, since squeue still shows them (SLOTD_MIN_JOB_AGE): {last}\n");
    would_clean(&slotd, 0, &left);
    let told = slotd.line("slotd clean --older-than 0s").ok().stdout;
    assert!(told.starts_with("0 jobs ") && told.ends_with(&left), "{told}");
}

#[test]
fn clean_needs_no_daemon_and_numbers_are_given_once() {
    let mut slotd = forgetful().start();
    let jobs = ended(&slotd, 2);
    slotd.stop();
    assert!(slotd.line("slotd clean --older-than 0s --dry-run").ok().stdout.starts_with("2 jobs "));
    assert!(slotd.line("slotd clean --older-than 0s").ok().stdout.starts_with("2 jobs "));
    assert!(jobs.iter().all(|id| !lives(&slotd.job_dir(*id))));
    slotd.start_daemon();
    assert_eq!((slotd.all_records().len(), ended(&slotd, 1)), (0, vec![3]));
}

#[test]
fn more_jobs_than_are_kept_go_by_themselves_the_oldest_first() {
    let mut slotd = forgetful().set("SLOTD_KEEP_JOBS", 2).start();
    let jobs = ended(&slotd, 4);
    // An orderly stop: an end that a killed daemon had not written down yet comes too late for the next one's sweep.
    slotd.stop();
    slotd.start_daemon();
    slotd.wait("the oldest are gone", || (numbers(&slotd) == jobs[2..]).then_some(()));
    assert!(!lives(&slotd.job_dir(jobs[1])) && lives(&slotd.job_dir(jobs[2])));
    let shown = slotd.line("scontrol show config").ok().stdout;
    assert!(shown.contains("SlotdKeepJobs           = 2\n"), "{shown}");
}
