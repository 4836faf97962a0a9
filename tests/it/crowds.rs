//! Clients that say nothing, say half of something, or do not read: they cost little, and others
//! are served.

use serde_json::json;
use slotd_kit::wire::{connect, frame, header, receive};
use slotd_kit::{Slotd, proc};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Memory of the daemon at its most, KiB.
fn peak(slotd: &Slotd) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", slotd.daemon_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

fn asks(slotd: &Slotd) -> UnixStream {
    let mut client = connect(&slotd.root).unwrap();
    client.write_all(&frame(json!({ "Jobs": {} }).to_string().as_bytes(), &[])).unwrap();
    client
}

/// Says less than it has announced.
fn says_half(slotd: &Slotd) -> UnixStream {
    let mut client = connect(&slotd.root).unwrap();
    client.write_all(&header(1000, 8 << 20)).unwrap();
    client.write_all(&[b'x'; 1000]).unwrap();
    client
}

/// The slowest of some answers to somebody else.
fn slowest(slotd: &Slotd) -> Duration {
    let answers = (0..4).map(|_| {
        let began = Instant::now();
        slotd.cmd("squeue", &["-j", "1"]).ok();
        began.elapsed()
    });
    answers.max().expect("there are some")
}

#[test]
fn clients_that_do_not_read_cost_little_and_others_are_answered() {
    let slotd = Slotd::start();
    // A long command line makes a long record: an answer of several megabytes.
    let line = format!(": {}", "x".repeat(100 << 10));
    for _ in 0..26 {
        slotd.wrap(&["-H"], &line);
    }
    let long = receive(&mut asks(&slotd)).unwrap().to_string().len() >> 20;
    let mut last = peak(&slotd);
    let mut cost = |what: &str, at_most: u64| {
        let slowest = slowest(&slotd);
        let more = peak(&slotd) - last;
        last += more;
        println!("{what}: {more} KiB more, others were answered in {slowest:?} or less");
        assert!(more < at_most, "{what}: {more} KiB more");
    };
    let silent: Vec<UnixStream> = (0..300).map(|_| connect(&slotd.root).unwrap()).collect();
    cost("300 silent clients", 16 << 10);
    let half: Vec<UnixStream> = (0..100).map(|_| says_half(&slotd)).collect();
    cost("100 half frames", 16 << 10);
    // Without a bound: twenty times so much.
    let unread: Vec<UnixStream> = (0..20).map(|_| asks(&slotd)).collect();
    cost(&format!("20 unread answers of {long} MiB"), 36 << 10);
    drop((silent, half, unread));
    assert!(proc::is_alive(slotd.daemon_pid()));
    receive(&mut asks(&slotd)).unwrap();
}
