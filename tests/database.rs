//! `slotd db`, and what the daemon says of a database that is damaged.

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
    assert!(ended.stderr.contains("the last copy is ") && ended.stderr.contains("state.db.backup"), "{}", ended.stderr);
    let found = slotd.line("slotd db check").fails(1);
    assert!(found.stderr.contains("slotd db restore"), "{}{}", found.stdout, found.stderr);
    let copy = slotd.root.join("lib/state.db.backup");
    slotd.cmd("slotd", &["db", "restore", copy.to_str().unwrap()]).ok();
    slotd.start_daemon();
    assert_eq!(slotd.state(job), "PENDING");
}
