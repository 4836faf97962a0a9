//! Clients that send nothing, send half a request or do not read: they use little memory, and other
//! clients are served.

use serde_json::json;
use slotd_kit::wire::{connect, frame, header, receive};
use slotd_kit::{Slotd, proc};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Returns the peak memory of the daemon, in KiB.
fn peak(slotd: &Slotd) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", slotd.daemon_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

fn request(slotd: &Slotd) -> UnixStream {
    let mut client = connect(&slotd.root).unwrap();
    client.write_all(&frame(json!({ "Jobs": {} }).to_string().as_bytes(), &[])).unwrap();
    client
}

/// Connects and sends less than it announces.
fn request_half(slotd: &Slotd) -> UnixStream {
    let mut client = connect(&slotd.root).unwrap();
    client.write_all(&header(1000, 8 << 20)).unwrap();
    client.write_all(&[b'x'; 1000]).unwrap();
    client
}

/// Returns the slowest of several responses to another client.
fn slowest(slotd: &Slotd) -> Duration {
    let answers = (0..4).map(|_| {
        let began = Instant::now();
        slotd.cmd("squeue", &["-j", "1"]).ok();
        began.elapsed()
    });
    answers.max().expect("responses")
}

#[test]
fn silent_and_slow_clients_use_little_memory_and_do_not_delay_others() {
    let slotd = Slotd::start();
    // Long command lines make a response of several megabytes.
    let line = format!(": {}", "x".repeat(100 << 10));
    for _ in 0..26 {
        slotd.wrap(&["-H"], &line);
    }
    let long = receive(&mut request(&slotd)).unwrap().to_string().len() >> 20;
    let mut last = peak(&slotd);
    let mut cost = |what: &str, at_most: u64| {
        let slowest = slowest(&slotd);
        let more = peak(&slotd) - last;
        last += more;
        println!("{what}: {more} KiB more, slowest response to others: {slowest:?}");
        assert!(more < at_most, "{what}: {more} KiB more");
    };
    let silent: Vec<UnixStream> = (0..300).map(|_| connect(&slotd.root).unwrap()).collect();
    cost("300 silent clients", 16 << 10);
    let half: Vec<UnixStream> = (0..100).map(|_| request_half(&slotd)).collect();
    cost("100 half frames", 16 << 10);
    // Without a limit, this would use 20 times as much memory.
    let unread: Vec<UnixStream> = (0..20).map(|_| request(&slotd)).collect();
    cost(&format!("20 unread answers of {long} MiB"), 36 << 10);
    drop((silent, half, unread));
    assert!(proc::is_alive(slotd.daemon_pid()));
    receive(&mut request(&slotd)).unwrap();
}
