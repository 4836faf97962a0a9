//! Answers of many jobs come in parts, in the order in which they are shown.

use serde_json::{Value, json};
use slotd_kit::Slotd;

/// More than one part has.
const CANCELLED: usize = 600;

/// An array whose even tasks were cancelled, each for itself: a record each, and one for the rest.
fn many_records() -> (Slotd, u32) {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "0-1199"], "true");
    let even: Vec<String> = (0..CANCELLED).map(|i| format!("{array}_{}", 2 * i)).collect();
    slotd.cmd("scancel", &even).ok();
    slotd.wait("all are cancelled", || {
        (slotd.line("squeue -h -t CA").ok().lines().len() == CANCELLED).then_some(())
    });
    (slotd, array)
}

fn of<'a>(answer: &'a Value, kind: &str) -> &'a Vec<Value> {
    answer[kind]["jobs"].as_array().unwrap_or_else(|| panic!("no {kind} in {answer}"))
}

#[test]
fn sacct_and_squeue_print_many_jobs_in_parts_as_if_they_were_one() {
    let (slotd, array) = many_records();
    for request in ["Accounting", "Jobs"] {
        let first = slotd.ask(&json!({ request: {} })).unwrap();
        assert_eq!(of(&first, "SomeJobs").len(), 512, "{request}");
    }
    let listed = slotd.line("sacct -nXP -o jobid,state").ok();
    let expected = |i: usize| match i {
        0 => format!("{array}_0|CANCELLED by "),
        1 => format!("{array}_[1,3,5,"),
        i => format!("{array}_{}|CANCELLED by ", 2 * (i - 1)),
    };
    assert_eq!(listed.lines().len(), CANCELLED + 1);
    for (i, line) in listed.lines().into_iter().enumerate() {
        assert!(line.starts_with(&expected(i)), "{i}: {line}");
    }
    // A table with bars is as wide as its widest cell, wherever that is.
    let table = slotd.line("sacct -X -o %i").ok();
    assert_eq!(table.lines().len(), CANCELLED + 2);
    for line in ["sacct --json", "squeue -t all --json"] {
        let document: Value = serde_json::from_str(&slotd.line(line).ok().stdout).unwrap();
        assert_eq!(document["jobs"].as_array().map(Vec::len), Some(CANCELLED + 1), "{line}");
    }
    assert_eq!(slotd.line("squeue -h -t all").ok().lines().len(), CANCELLED + 1);
}
