//! Answers of many jobs come in parts, in the order in which they are shown.

use nix::sys::socket::{MsgFlags, recv};
use serde_json::{Value, json};
use slotd_kit::{Slotd, wire};
use std::io::Write;
use std::os::fd::AsRawFd;

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

#[test]
fn a_long_answer_that_is_to_be_of_one_moment_ends_with_what_changed_meanwhile() {
    let (slotd, array) = many_records();
    let held: Vec<u32> = (0..2).map(|_| slotd.wrap(&["-H"], "true")).collect();
    let numbers = |list: &Value, key: &str| -> Vec<u64> {
        let ids = list[key].as_array().into_iter().flatten();
        ids.map(|one| one.as_u64().or(one["job"]["id"].as_u64()).unwrap()).collect()
    };
    // A part is more than a socket holds, so the next ones wait for this client.
    let mut socket = wire::connect(&slotd.root).unwrap();
    let request = json!({ "Jobs": { "one_moment": true } });
    socket.write_all(&wire::frame(request.to_string().as_bytes(), &[])).unwrap();
    recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK).expect("the first part");
    slotd.cancel(array);
    let new = slotd.wrap(&["-H"], "true");
    let first = wire::receive(&mut socket).unwrap();
    let first = &first["SomeJobs"];
    assert!(
        numbers(first, "jobs").contains(&array.into()) && first["changed"].is_null(),
        "{first}"
    );
    let last = wire::receive(&mut socket).unwrap();
    let last = &last["Jobs"];
    let changed = numbers(last, "changed");
    assert!([array, new].iter().all(|id| changed.contains(&u64::from(*id))), "{changed:?}");
    let ids = numbers(last, "jobs");
    assert!(
        [array, held[0], held[1], new].iter().all(|id| ids.contains(&u64::from(*id))),
        "{ids:?}"
    );
    let again =
        last["jobs"].as_array().unwrap().iter().find(|view| view["job"]["id"] == array).unwrap();
    assert_eq!(again["job"]["run"]["state"], "CANCELLED");
    // The command shows each record once.
    let shown = slotd.line("scontrol -o show job").ok();
    let mut rows: Vec<&str> =
        shown.lines().iter().map(|line| line.split(' ').next().unwrap()).collect();
    let count = rows.len();
    rows.dedup();
    assert_eq!((rows.len(), count), (CANCELLED + 4, CANCELLED + 4));
}
