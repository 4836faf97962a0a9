//! What the database costs: submissions of many clients at once, and with a long queue and a long history; how soon a daemon
//! answers with them; and bytes. One run prints it all: `cargo bench --bench disk [-- PENDING HISTORY]`.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use slotd_kit::lab::Lab;
use slotd_kit::{proc, wire};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Clients that submit at once, each as soon as it has the answer to its last submission.
const CLIENTS: usize = 200;
const EACH: usize = 50;

fn submission(pid: usize, held: bool) -> Vec<u8> {
    let script = b"#!/bin/sh\ntrue\n";
    let request = json!({
        "name": "disk", "user": "lab", "work_dir": "/", "std_out": "/dev/null", "hold": held,
        "submit_line": "sbatch disk.sh",
    });
    let client = json!({ "pid": pid, "start_ticks": 1, "holds": false });
    let submit = json!({ "Submit": {
        "request": request, "script_len": script.len(), "wait": false, "test_only": false, "client": client,
    } });
    wire::frame(submit.to_string().as_bytes(), script)
}

/// Submissions a second, and how long they took.
fn crowd(lab: &Lab) -> (f64, Vec<Duration>) {
    let root = lab.path("root");
    let mut sockets: Vec<_> = (0..CLIENTS).map(|_| wire::connect(&root).expect("the daemon")).collect();
    let mut sent = vec![Instant::now(); CLIENTS];
    let mut left = vec![EACH; CLIENTS];
    let mut times = Vec::with_capacity(CLIENTS * EACH);
    let began = Instant::now();
    for (i, socket) in sockets.iter_mut().enumerate() {
        sent[i] = Instant::now();
        socket.write_all(&submission(i, true)).expect("the daemon reads");
    }
    while times.len() < CLIENTS * EACH {
        let mut polled: Vec<PollFd> = sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut polled, PollTimeout::NONE).expect("poll");
        let ready: Vec<usize> = (0..CLIENTS).filter(|i| polled[*i].any() == Some(true)).collect();
        for i in ready {
            let answer = wire::receive(&mut sockets[i]).expect("an answer");
            assert!(answer.get("Submitted").is_some(), "{answer}");
            times.push(sent[i].elapsed());
            left[i] -= 1;
            if left[i] > 0 {
                sent[i] = Instant::now();
                sockets[i].write_all(&submission(left[i] * CLIENTS + i, true)).expect("the daemon reads");
            }
        }
    }
    (times.len() as f64 / began.elapsed().as_secs_f64(), times)
}

/// The time that the daemon has had on a CPU, and its scheduler's thread: it says what something costs, however busy the
/// machine is with others.
fn cpu(lab: &Lab) -> (Duration, Duration) {
    let answer = wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
    proc::cpu_times(answer["Pong"]["pid"].as_i64().expect("a number") as i32).expect("it lives")
}

fn main() {
    let lab = Lab::start(2);
    for _ in 0..3 {
        let before = cpu(&lab);
        let (rate, mut times) = crowd(&lab);
        let after = cpu(&lab);
        let us = |used: Duration| used.as_micros() as f64 / times.len() as f64;
        let (all, own) = (us(after.0 - before.0), us(after.1 - before.1));
        times.sort();
        let ms = |n: usize| times[(times.len() - 1) * n / 100].as_secs_f64() * 1000.0;
        println!(
            "{CLIENTS} clients at once: {rate:.0} submissions/s, median {:.1} ms, 99th percentile {:.1} ms",
            ms(50),
            ms(99)
        );
        println!("  {all:.0} us of CPU each, {own:.0} of it in the scheduler's thread");
    }
}
