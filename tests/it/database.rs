//! `slotd db`, the daemon's error for a damaged database, and the number of writes.

use slotd_kit::wal::Written;
use slotd_kit::{Setup, Slotd};
use std::fs;
use std::io::Write;

fn database(slotd: &Slotd) -> std::path::PathBuf {
    slotd.root.join("lib/state.db")
}

#[test]
fn backup_works_with_a_daemon_and_restore_without_one() {
    let mut slotd = Slotd::start();
    let first = slotd.wrap(&["-H"], "true");
    assert!(slotd.line("slotd db check").ok().stdout.contains("is valid: 1 job,"));
    slotd.line("slotd db backup copy.db").ok();
    let refused = slotd.line("slotd db backup copy.db").fails(1);
    assert!(refused.stderr.contains("copy.db already exists"), "{}", refused.stderr);
    let second = slotd.wrap(&["-H"], "true");
    let refused = slotd.line("slotd db restore copy.db").fails(1);
    assert!(refused.stderr.contains("stop it first"), "{}", refused.stderr);
    slotd.line("slotd db vacuum").fails(1);
    slotd.stop();
    let printed = slotd.line("slotd db restore copy.db").ok().stdout;
    assert!(printed.contains("; the old file is "), "{printed}");
    let kept = slotd.root.join("lib/state.db.replaced1");
    assert!(kept.exists());
    // `slotd clean` names the databases that are left after the earlier one was deleted.
    fs::copy(&kept, kept.with_extension("replaced10")).unwrap();
    fs::rename(&kept, kept.with_extension("replaced2")).unwrap();
    for how in ["--dry-run", "--yes"] {
        let cleaned = slotd.line(&format!("slotd clean --older-than 30d {how}")).ok().stdout;
        let named: Vec<&str> = cleaned.lines().filter(|line| line.contains("replaced")).collect();
        let line = |number: u32| {
            let path = kept.with_extension(format!("replaced{number}"));
            format!(
                "not cleaned: {}, an older database; delete it if you do not need it",
                path.display()
            )
        };
        assert_eq!(named, [line(2), line(10)]);
    }
    slotd.line("slotd db vacuum").ok();
    slotd.start_daemon();
    let numbers: Vec<u32> = slotd.all_records().iter().map(slotd_kit::Record::id).collect();
    assert_eq!(numbers, [first]);
    // The ID of the second job, which the copy lacks, is not reused.
    assert!(slotd.wrap(&[], "true") > second);
}

#[test]
fn the_error_of_a_damaged_database_names_the_backup() {
    let mut slotd = Setup::default().start();
    let job = slotd.wrap(&["-H"], "true");
    slotd.line("slotd db backup copy.db").ok();
    slotd.stop();
    // Move everything from the log to the main file.
    slotd.line("slotd db vacuum").ok();
    let mut file = fs::File::options().write(true).open(database(&slotd)).unwrap();
    file.write_all(&[0xff; 3000]).unwrap();
    let ended = slotd.run(slotd.daemon_command()).fails(1);
    assert!(ended.stderr.contains("slotd db restore FILE"), "{}", ended.stderr);
    fs::rename(slotd.path("copy.db"), slotd.root.join("lib/state.db.backup")).unwrap();
    let ended = slotd.run(slotd.daemon_command()).fails(1);
    assert!(
        ended.stderr.contains("the last backup is ") && ended.stderr.contains("state.db.backup"),
        "{}",
        ended.stderr
    );
    let found = slotd.line("slotd db check").fails(1);
    assert!(found.stderr.contains("slotd db restore"), "{}{}", found.stdout, found.stderr);
    let copy = slotd.root.join("lib/state.db.backup");
    slotd.cmd("slotd", &["db", "restore", copy.to_str().unwrap()]).ok();
    slotd.start_daemon();
    assert_eq!(slotd.state(job), "PENDING");
}

/// Returns the smallest number of writes of several attempts, because the daemon may be late on a
/// busy machine. All attempts together write less than the log holds before it is restarted.
fn least(slotd: &Slotd, mut action: impl FnMut()) -> Written {
    let tries = (0..4).map(|_| {
        let before = Written::of(&database(slotd));
        action();
        Written::of(&database(slotd)) - before
    });
    tries.min().expect("tries")
}

#[test]
fn a_job_that_starts_at_once_takes_two_commits() {
    let slotd = Slotd::start();
    let run = || drop(slotd.line("sbatch -W -o /dev/null --wrap true").ok());
    run();
    let job = least(&slotd, run);
    // One commit for the submission and the start, one for the end. The pages: the record, its
    // index entry among the live jobs, the jobs of the request, the launch with its two index
    // entries, and the step; at the end the record, the step and the two index entries again.
    assert!(job <= Written { commits: 2, pages: 11 }, "{job:?}");
}

#[test]
fn a_submission_writes_few_pages() {
    let slotd = Slotd::start();
    let submit = || drop(slotd.line("sbatch -H --wrap true").ok());
    submit();
    let same = least(&slotd, submit);
    assert!(same <= Written { commits: 1, pages: 6 }, "{same:?}");
    let mut number = 0;
    let other = least(&slotd, || {
        number += 1;
        slotd.wrap(&["-H"], &format!("true {number}"));
    });
    // The additional pages are the request, its name and the script.
    assert!(other <= Written { commits: 1, pages: 9 }, "{other:?}");
}

#[test]
fn the_end_of_a_job_and_the_start_of_the_next_are_one_commit() {
    let slotd = Setup::default().set("SLOTD_CPUS", 1).start();
    let tasks = |count: u32| {
        drop(slotd.line(&format!("sbatch -W -a 1-{count} -o /dev/null --wrap true")).ok())
    };
    tasks(1);
    let (one, many) = (least(&slotd, || tasks(1)).commits, least(&slotd, || tasks(11)).commits);
    // Eleven starts and eleven ends. Up to three of them may be late.
    assert!(many - one <= 10 + 3, "one task: {one}, eleven: {many}");
}

#[test]
fn a_backup_can_have_any_name_and_overwrites_no_other_file() {
    let slotd = Slotd::start();
    slotd.submit(&["-H", "--wrap", "true"]);
    slotd.write("copy.new", "thesis");
    slotd.sh("slotd db backup copy && slotd db backup file:q && slotd db backup \"$(printf 'bad\\377')\"").ok();
    assert_eq!(slotd.read("copy.new"), "thesis");
    let sizes = slotd.sh("stat -c '%a %s' copy file:q bad* | sort -u; ls").ok().stdout;
    assert!(
        sizes.lines().count() == 5 && sizes.starts_with("600 "),
        "three copies of the same size, and copy.new: {sizes}"
    );
    // SQLite would block on a FIFO.
    slotd.sh("mkfifo fifo").ok();
    let mut stopped = slotd;
    stopped.stop();
    let refused = stopped.line("slotd db restore fifo").fails(1);
    assert!(refused.stderr.contains("it is not a regular file"), "{}", refused.stderr);
}
