//! Replays invocations of Slurm 22.05 and compares the output and exit codes. There is a file for
//! each command in `tests/recorded/slurm/*.txt`.
//!
//! An invocation is `$ COMMAND`, followed by its standard input (`0< `), output, errors (`2> `),
//! and `[exit N] MARK`. `[exit N after TERM]` means that it waited for resources and was ended with
//! SIGTERM. The marks are:
//!
//! * `same`: slotd has the same exit code, output and errors. An error may contain more: the
//!   invalid value after Slurm's text, the cause on a separate line, a hint. Output with named
//!   fields may have additional fields.
//! * `same but for figures`: sizes, CPU times and process IDs depend on the host.
//! * `same but for root: WHY`: it is the same for an ordinary user, but root is permitted to do it.
//! * `on purpose: WHY`: slotd differs intentionally.
//! * `not on one host: WHY`: the request is meaningless on a single host.
//!
//! A difference without a mark fails the test, and so does a mark without a difference.
//! `% [JOB] COMMAND` prepares the state in which the next invocations were recorded
//! (`% limit JOB SECONDS` sets a time limit), and `@ NAME=VALUE` is a setting of the daemon.
//!
//! Slurm ran on a node `vm` with 2 CPUs and the partitions cpu and gpu, for the user `lab`. The
//! recorded job IDs are replaced by slotd's. Commands are as recorded, with two exceptions: fixed
//! delays are replaced by conditions where possible, and searches for processes of the user are
//! limited to those of the shell.

mod options;
mod record;
mod replay;
mod same;

use expect_test::expect_file;
use slotd_kit::Slotd;
use std::collections::BTreeMap;

#[test]
fn the_output_of_slurm_is_reproduced_except_for_intended_differences() {
    let wanted = std::env::var("SLOTD_TEST_RECORD").ok();
    let records: Vec<_> = record::all()
        .into_iter()
        .filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name))
        .collect();
    let mut wrong = String::new();
    let mut counts = BTreeMap::from([("same", 0), ("on purpose", 0), ("not on one host", 0)]);
    std::thread::scope(|scope| {
        let replays: Vec<_> =
            records.iter().map(|(name, record)| (name, scope.spawn(|| replayed(record)))).collect();
        for (name, replay) in replays {
            for (mark, is_same, difference) in replay.join().expect("a replay") {
                *counts.get_mut(mark.name()).expect("a mark") += 1;
                if is_same != mark.is_same() {
                    wrong += &format!("{name}:\n{difference}\n");
                }
            }
        }
    });
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns the outcome of each invocation. In the recorded run, the order of concurrent output was
/// partly chance (the lines of two tasks, an end and its signal), so a record with differences is
/// replayed once more.
fn replayed(record: &record::Record) -> Vec<replay::Outcome> {
    let first = replay::replay(record);
    let is_right = |(mark, is_same, _): &replay::Outcome| *is_same == mark.is_same();
    if first.iter().all(is_right) {
        return first;
    }
    let second = replay::replay(record);
    if first.len() != second.len() {
        // A preparation failed.
        return second;
    }
    first
        .into_iter()
        .zip(second)
        .map(|(first, second)| if is_right(&first) { first } else { second })
        .collect()
}

/// The page of the book consists of the output of `slotd compat` and the intentional differences of
/// the records.
#[test]
fn the_compatibility_page_is_up_to_date() {
    let slotd = Slotd::setup().prepare();
    let mut page = slotd.cmd("slotd", &["compat"]).ok().stdout;
    page += "\n## Differences from recorded output\n\n";
    page += "The tests replay invocations that were recorded with Slurm 22.05.8. Those listed here \
             have another output or exit code in slotd, intentionally.\n\n";
    page += "### In all output\n\n| Slurm | slotd | |\n|---|---|---|\n";
    for (slurm, own, why) in same::EVERYWHERE {
        let own = if own.is_empty() { "not shown".to_owned() } else { format!("`{}`", own.trim()) };
        page += &format!("| `{}` | {own} | {why} |\n", slurm.trim());
    }
    page += "\n### Environment variables that are not set\n\n| variable | |\n|---|---|\n";
    for (variable, why) in same::ABSENT {
        page += &format!("| `{}` | {why} |\n", variable.trim().trim_end_matches('='));
    }
    for (command, reasons) in differences() {
        page += &format!("\n### {command}\n\n");
        for (why, invocation) in reasons {
            page += &format!("* {why}: `{invocation}`\n");
        }
    }
    expect_file![format!(
        "{}/contrib/book/src/reference/compatibility.md",
        env!("CARGO_MANIFEST_DIR")
    )]
    .assert_eq(&page);
}

/// The commands that the page has a list of differences for.
const COMMANDS: [&str; 12] = [
    "sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "sprio", "squeue",
    "srun", "sshare", "sstat",
];

/// Returns the reasons of the differences by command, each with the shortest of its invocations.
fn differences() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for one in record::invocations().filter(|one| !one.mark().is_same_for_all()) {
        let why = one.mark.split_once(": ").map_or(&*one.mark, |(_, why)| why).to_owned();
        let mut words = one.command.split(|letter: char| !letter.is_ascii_alphanumeric());
        let command = words.find(|word| COMMANDS.contains(word)).unwrap_or("Output of jobs");
        let shortest = found.entry(command.to_owned()).or_default().entry(why).or_default();
        if shortest.is_empty() || one.command.len() < shortest.len() {
            *shortest = one.command;
        }
    }
    found
}

/// `slotd compat` prints "same, replayed" for the options of this list, which is generated from the
/// records.
#[test]
fn the_list_of_replayed_options_is_up_to_date() {
    let mut list = String::new();
    for (command, option) in options::replayed() {
        list += &format!("{command} --{option}\n");
    }
    expect_file![format!("{}/src/commands/pages/replayed.txt", env!("CARGO_MANIFEST_DIR"))]
        .assert_eq(&list);
}
