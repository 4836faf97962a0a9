//! Responses with many jobs are sent in parts, in display order.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde_json::{Value, json};
use slotd_kit::{Slotd, proc, wire};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Stdio;

/// More jobs than fit in one part.
const CANCELLED: usize = 600;

/// Submits an array and cancels its even tasks one by one, which makes a record for each and one
/// for the rest.
fn many_records() -> (Slotd, u32) {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-H", "-a", "0-1199"], "true");
    let even: Vec<String> = (0..CANCELLED).map(|i| format!("{array}_{}", 2 * i)).collect();
    slotd.cmd("scancel", &even).ok();
    slotd.wait("the cancellations", || {
        (slotd.line("squeue -h -t CA").ok().lines().len() == CANCELLED).then_some(())
    });
    (slotd, array)
}

fn of<'a>(answer: &'a Value, kind: &str) -> &'a Vec<Value> {
    answer[kind]["jobs"].as_array().unwrap_or_else(|| panic!("no {kind} in {answer}"))
}

#[test]
fn sacct_and_squeue_print_a_response_in_parts_as_one() {
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
    // The column must fit the widest cell of all parts.
    let table = slotd.line("sacct -X -o %i").ok();
    assert_eq!(table.lines().len(), CANCELLED + 2);
    for line in ["sacct --json", "squeue -t all --json"] {
        let document: Value = serde_json::from_str(&slotd.line(line).ok().stdout).unwrap();
        assert_eq!(document["jobs"].as_array().map(Vec::len), Some(CANCELLED + 1), "{line}");
    }
    assert_eq!(slotd.line("squeue -h -t all").ok().lines().len(), CANCELLED + 1);
}

#[test]
fn a_consistent_long_response_ends_with_the_jobs_that_changed() {
    let (slotd, array) = many_records();
    let held: Vec<u32> = (0..2).map(|_| slotd.wrap(&["-H"], "true")).collect();
    let numbers = |list: &Value, key: &str| -> Vec<u64> {
        let ids = list[key].as_array().into_iter().flatten();
        ids.map(|one| one.as_u64().or(one["job"]["id"].as_u64()).unwrap()).collect()
    };
    // A part is larger than the socket buffer, so the next parts wait for this client.
    let mut socket = wire::connect(&slotd.root).unwrap();
    let request = json!({ "Jobs": { "one_moment": true } });
    socket.write_all(&wire::frame(request.to_string().as_bytes(), &[])).unwrap();
    // Reading from a socket with a timeout is interrupted if the process is stopped and continued.
    let peek = || recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK);
    let arrived = std::iter::repeat_with(peek).find(|peeked| *peeked != Err(Errno::EINTR));
    arrived.unwrap().expect("the first part");
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
    // The command prints each record once.
    let shown = slotd.line("scontrol -o show job").ok();
    let mut rows: Vec<&str> =
        shown.lines().iter().map(|line| line.split(' ').next().unwrap()).collect();
    let count = rows.len();
    rows.dedup();
    assert_eq!((rows.len(), count), (CANCELLED + 4, CANCELLED + 4));
}

#[test]
fn a_long_json_document_is_printed_in_parts() {
    const JOBS: usize = 6000;
    let slotd = Slotd::start();
    let line = json!({ "wrap": "true", "options": ["-H"] }).to_string() + "\n";
    let mut submit = slotd.command("slotd");
    submit.arg("submit");
    slotd.feed(submit, line.repeat(JOBS)).ok();
    let mut squeue = slotd.command("squeue");
    squeue.arg("--json").stdout(Stdio::piped());
    let mut squeue = squeue.spawn().unwrap();
    let pid = squeue.id() as i32;
    let (mut printed, mut most_kib) = (Vec::new(), 0);
    let mut pipe = squeue.stdout.take().unwrap();
    let mut part = vec![0; 64 << 10];
    // It cannot exit before it has printed everything.
    while let n @ 1.. = pipe.read(&mut part).unwrap() {
        printed.extend_from_slice(&part[..n]);
        most_kib = most_kib.max(proc::anonymous_kib(pid));
    }
    assert!(squeue.wait().unwrap().success());
    let document: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(document["jobs"].as_array().map(Vec::len), Some(JOBS));
    let printed_kib = printed.len() as u64 / 1024;
    assert!((1..printed_kib / 2).contains(&most_kib), "{most_kib} KiB for {printed_kib}");
}
