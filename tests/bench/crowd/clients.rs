//! Many clients that submit concurrently, each again as soon as its last submission is answered.

use crate::labs::{Labs, costs, submission};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_kit::lab::Lab;
use slotd_kit::wire;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const CLIENTS: usize = 200;
const EACH: usize = 50;

/// Returns the latency of each submission.
fn crowd(lab: &Lab) -> Vec<Duration> {
    let root = lab.path("root");
    let mut sockets: Vec<_> =
        (0..CLIENTS).map(|_| wire::connect(&root).expect("the daemon")).collect();
    let mut sent = vec![Instant::now(); CLIENTS];
    let mut left = vec![EACH; CLIENTS];
    let mut times = Vec::with_capacity(CLIENTS * EACH);
    for (i, socket) in sockets.iter_mut().enumerate() {
        sent[i] = Instant::now();
        socket.write_all(&submission(i)).expect("the daemon reads");
    }
    while times.len() < CLIENTS * EACH {
        let mut polled: Vec<PollFd> =
            sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut polled, PollTimeout::NONE).expect("poll");
        let ready: Vec<usize> = (0..CLIENTS).filter(|i| polled[*i].any() == Some(true)).collect();
        for i in ready {
            let answer = wire::receive(&mut sockets[i]).expect("an answer");
            assert!(answer.get("Submitted").is_some(), "{answer}");
            times.push(sent[i].elapsed());
            left[i] -= 1;
            if left[i] > 0 {
                sent[i] = Instant::now();
                sockets[i].write_all(&submission(left[i] * CLIENTS + i)).expect("the daemon reads");
            }
        }
    }
    times
}

fn measure(name: &str, lab: &Lab) {
    let mut times = Vec::new();
    let (took, us) = costs(lab, CLIENTS * EACH, || times = crowd(lab));
    times.sort();
    let ms = |n: usize| times[(times.len() - 1) * n / 100].as_secs_f64() * 1000.0;
    let rate = times.len() as f64 / took.as_secs_f64();
    let name = format!("{CLIENTS} clients, {name}");
    println!(
        "{name:<44} {rate:9.0} /s   median {:.1} ms, 99th percentile {:.1} ms, {us:.0} us of CPU each",
        ms(50),
        ms(99)
    );
}

pub fn clients(labs: &mut Labs) {
    measure("empty queue", &Lab::start(2));
    measure("100,000 pending", labs.long());
    measure("and 1,000,000 in the history", labs.past());
}
