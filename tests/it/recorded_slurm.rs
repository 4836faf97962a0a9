//! What real Slurm 22.05 printed and returned, replayed: `tests/recorded/slurm/*.txt`, a file a
//! command.
//!
//! An invocation is `$ COMMAND`, then its standard input (`0< `), its output, its errors (`2> `),
//! and `[exit N] MARK` (`[exit N after TERM]`: it waited for resources, and was ended with
//! SIGTERM):
//!
//! * `same`: slotd has this exit code, prints this, and says this. It may say more: the value that
//!   was wrong after Slurm's words, the cause on a line of its own, a hint; and more fields where
//!   they have names.
//! * `same but for figures`: sizes, times of the CPU and numbers of processes are the host's.
//! * `same but for root: WHY`: an ordinary user gets what was recorded, and root may do it.
//! * `on purpose: WHY`: it does something else, and why.
//! * `not on one host: WHY`: what is asked for has no meaning here.
//!
//! A difference without a mark fails, and so does a mark without a difference. `% [JOB] COMMAND`
//! makes ready what was there when the next ones were recorded (`% limit JOB SECONDS` sets a time
//! limit), and `@ NAME=VALUE` is a setting of the daemon.
//!
//! Slurm ran on a node `vm` with 2 CPUs and the partitions cpu and gpu, for the user `lab`; job
//! numbers are those of the record, and are replaced by slotd's. Commands are as they were
//! recorded, but where they waited for an amount of time for something that can be waited for, and
//! where they looked for processes of the user: those of the shell are meant.

mod options;
mod record;
mod replay;
mod same;

use expect_test::expect_file;
use slotd_kit::Slotd;
use std::collections::BTreeMap;

#[test]
fn what_slurm_printed_is_printed_but_for_what_differs_on_purpose() {
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

/// What came of each invocation. The record is of one run, in which who came first of those that
/// ran beside each other was chance (the lines of two tasks, an end and the signal that comes with
/// it): what is otherwise is replayed once more.
fn replayed(record: &record::Record) -> Vec<replay::Outcome> {
    let first = replay::replay(record);
    let is_right = |(mark, is_same, _): &replay::Outcome| *is_same == mark.is_same();
    if first.iter().all(is_right) {
        return first;
    }
    let second = replay::replay(record);
    if first.len() != second.len() {
        // Something could not be made ready.
        return second;
    }
    first
        .into_iter()
        .zip(second)
        .map(|(first, second)| if is_right(&first) { first } else { second })
        .collect()
}

/// The page in contrib is what `slotd compat` prints, with what differs on purpose in the records.
#[test]
fn the_page_of_compatibility_is_true() {
    let slotd = Slotd::setup().prepare();
    let mut page = slotd.cmd("slotd", &["compat"]).ok().stdout;
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in record::invocations().filter(|one| !one.mark().is_same_for_all()) {
        reasons.entry(one.mark).or_default().push(format!("`{}`", one.command));
    }
    page += "\n## Seen beside Slurm\n\nInvocations whose output and exit code were recorded with Slurm 22.05.8, and differ here.\n\n";
    for (slurm, own, why) in same::EVERYWHERE {
        let own = if own.is_empty() { "left out".to_owned() } else { format!("`{}`", own.trim()) };
        page += &format!("* in each output `{}` is {own}: {why}\n", slurm.trim());
    }
    for (variable, why) in same::ABSENT {
        page += &format!("* no `{}`: {why}\n", variable.trim().trim_end_matches('='));
    }
    for (why, commands) in reasons {
        page += &format!("* {why}: {}\n", commands.join(", "));
    }
    expect_file![format!("{}/contrib/COMPATIBILITY.md", env!("CARGO_MANIFEST_DIR"))]
        .assert_eq(&page);
}

/// The list that `slotd compat` takes "same, replayed" from is made of the records.
#[test]
fn the_options_that_were_replayed_are_listed() {
    let mut list = String::new();
    for (command, option) in options::replayed() {
        list += &format!("{command} --{option}\n");
    }
    expect_file![format!("{}/src/commands/pages/replayed.txt", env!("CARGO_MANIFEST_DIR"))]
        .assert_eq(&list);
}
