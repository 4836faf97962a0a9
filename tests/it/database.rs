//! `slotd db`, and what the daemon says of a database that is damaged.

use slotd_kit::wal::Written;
use slotd_kit::{Setup, Slotd};
use std::fs;
use std::io::Write;

fn database(slotd: &Slotd) -> std::path::PathBuf {
    slotd.root.join("lib/state.db")
}

#[test]
fn a_copy_is_made_beside_the_daemon_and_restored_without_it() {
    let mut slotd = Slotd::start();
    let first = slotd.wrap(&["-H"], "true");
    assert!(slotd.line("slotd db check").ok().stdout.contains("is sound: 1 jobs"));
    slotd.line("slotd db backup copy.db").ok();
    let refused = slotd.line("slotd db backup copy.db").fails(1);
    assert!(refused.stderr.contains("copy.db is there already"), "{}", refused.stderr);
    let second = slotd.wrap(&["-H"], "true");
    let refused = slotd.line("slotd db restore copy.db").fails(1);
    assert!(refused.stderr.contains("stop it before"), "{}", refused.stderr);
    slotd.line("slotd db vacuum").fails(1);
    slotd.stop();
    let told = slotd.line("slotd db restore copy.db").ok().stdout;
    assert!(told.contains("is restored; the old one is "), "{told}");
    assert!(slotd.root.join("lib/state.db.replaced1").exists());
    slotd.line("slotd db vacuum").ok();
    slotd.start_daemon();
    let numbers: Vec<u32> = slotd.all_records().iter().map(slotd_kit::Record::id).collect();
    assert_eq!(numbers, [first]);
    // The second has a directory: its number is not given again.
    assert!(slotd.wrap(&[], "true") > second);
}

#[test]
fn a_damaged_database_is_refused_with_the_way_back() {
    let mut slotd = Setup::default().start();
    let job = slotd.wrap(&["-H"], "true");
    slotd.line("slotd db backup copy.db").ok();
    slotd.stop();
    // All of it is in the one file then.
    slotd.line("slotd db vacuum").ok();
    let mut file = fs::File::options().write(true).open(database(&slotd)).unwrap();
    file.write_all(&[0xff; 3000]).unwrap();
    let ended = slotd.run(slotd.daemon_command()).fails(1);
    assert!(ended.stderr.contains("slotd db restore FILE"), "{}", ended.stderr);
    fs::rename(slotd.path("copy.db"), slotd.root.join("lib/state.db.backup")).unwrap();
    let ended = slotd.run(slotd.daemon_command()).fails(1);
    assert!(
        ended.stderr.contains("the last copy is ") && ended.stderr.contains("state.db.backup"),
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

/// The least that one of some tries writes: on a machine that has much else to do the daemon may be
/// late for one. All of them together write less than the log takes before it is begun anew.
fn least(slotd: &Slotd, mut deed: impl FnMut()) -> Written {
    let tries = (0..4).map(|_| {
        let before = Written::of(&database(slotd));
        deed();
        Written::of(&database(slotd)) - before
    });
    tries.min().expect("tries")
}

#[test]
fn a_job_that_starts_at_once_is_two_writes_to_the_disk() {
    let slotd = Slotd::start();
    let run = || drop(slotd.line("sbatch -W -o /dev/null --wrap true").ok());
    run();
    let job = least(&slotd, run);
    // One for the submission with its start, one for the end. Pages: the record, its place among
    // those that live, the request's jobs, what launches it with its two places, the step; then the
    // record, the step and the two places again.
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
    // And the request, its name and the script.
    assert!(other <= Written { commits: 1, pages: 9 }, "{other:?}");
}

#[test]
fn the_end_of_a_job_and_the_start_of_the_next_are_one_write() {
    let slotd = Setup::default().set("SLOTD_CPUS", 1).start();
    let tasks = |count: u32| {
        drop(slotd.line(&format!("sbatch -W -a 1-{count} -o /dev/null --wrap true")).ok())
    };
    tasks(1);
    let (one, many) = (least(&slotd, || tasks(1)).commits, least(&slotd, || tasks(11)).commits);
    // Eleven starts and eleven ends. One in three may be late.
    assert!(many - one <= 10 + 3, "one task: {one}, eleven: {many}");
}

#[test]
fn a_copy_takes_any_name_and_touches_no_other_file() {
    let slotd = Slotd::start();
    slotd.submit(&["-H", "--wrap", "true"]);
    slotd.write("copy.new", "thesis");
    slotd.sh("slotd db backup copy && slotd db backup file:q && slotd db backup \"$(printf 'bad\\377')\"").ok();
    assert_eq!(slotd.read("copy.new"), "thesis");
    let sizes = slotd.sh("stat -c '%a %s' copy file:q bad* | sort -u; ls").ok().stdout;
    assert!(
        sizes.lines().count() == 5 && sizes.starts_with("600 "),
        "three copies of a size, and copy.new: {sizes}"
    );
    // Something that SQLite would wait for.
    slotd.sh("mkfifo fifo").ok();
    let mut stopped = slotd;
    stopped.stop();
    let refused = stopped.line("slotd db restore fifo").fails(1);
    assert!(refused.stderr.contains("it is not a regular file"), "{}", refused.stderr);
}
