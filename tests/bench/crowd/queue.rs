//! The effect of pending jobs on jobs and commands that overtake them.

use crate::labs::{Labs, MANY, costs, cpu, submission};
use serde_json::{Value, json};
use slotd_kit::lab::{Lab, summary, timed};
use slotd_kit::turns::{Turns, figure};
use slotd_kit::wire;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The number of tasks in an array that overtakes the pending jobs.
const PASSING: usize = 400;
/// The number of rounds.
const ROUNDS: usize = 7;
/// The number of concurrent submissions, each on its own connection.
const CLIENTS: usize = 16;
const SUBMISSIONS: usize = 3200;

/// Measures several daemons in turn, and prints the rate and CPU time of each, compared with the
/// first.
fn compared(what: &str, count: usize, labs: &[(&str, &Lab)], run: impl Fn(&Lab)) {
    let mut measured: Vec<(Vec<Duration>, Vec<f64>)> =
        labs.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for ((_, lab), (times, used)) in labs.iter().zip(&mut measured) {
            let (took, us) = costs(lab, count, || run(lab));
            times.push(took);
            used.push(us);
        }
    }
    let median = |mut of: Vec<f64>| {
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let rates: Vec<(f64, f64)> = measured
        .into_iter()
        .map(|(times, used)| (count as f64 / (summary(times).1 / 1000.0), median(used)))
        .collect();
    for ((name, _), (rate, us)) in labs.iter().zip(&rates) {
        let name = format!("{what}, {name}");
        println!(
            "{name:<44} {rate:9.0} /s   ratio {:6.2} of {}, {us:.0} us of CPU each",
            rate / rates[0].0,
            labs[0].0
        );
    }
}

/// Returns the statistics of `sdiag`.
fn diagnostics(lab: &Lab, reset: bool) -> Value {
    let answer = wire::ask(&lab.path("root"), &json!({ "Diagnostics": { "reset": reset } }))
        .expect("an answer");
    answer["Diagnostics"].clone()
}

/// Returns the mean time in microseconds of a scheduling round that examines all jobs and starts
/// none. Each submission triggers one.
fn round_us(lab: &Lab) -> f64 {
    diagnostics(lab, true);
    for _ in 0..60 {
        lab.run("sbatch", &["-n", "8", "--mem", "64", "-o", "/dev/null", "--wrap", "true"]);
    }
    let cycles = &diagnostics(lab, false)["cycles"];
    let number = |name: &str| cycles[name].as_f64().expect("a number");
    number("total_us") / number("count")
}

pub fn rounds(labs: &mut Labs) {
    let queues = labs.queues();
    let array = format!("1-{PASSING}");
    let line = ["-W", "-t", "1", "--mem", "1", "-a", &array, "-o", "/dev/null", "--wrap", "true"];
    compared("dispatch", PASSING, &queues.named(), |lab| drop(lab.run("sbatch", &line)));
    for (name, lab) in queues.named() {
        figure(&format!("round without starts, {name}"), round_us(lab), "us");
    }
}

/// Submits held jobs on several connections, each with one request at a time.
fn submit(lab: &Lab) {
    let root = lab.path("root");
    let mut sockets: Vec<_> =
        (0..CLIENTS).map(|_| wire::connect(&root).expect("the daemon")).collect();
    for turn in 0..SUBMISSIONS / CLIENTS {
        for (i, socket) in sockets.iter_mut().enumerate() {
            socket.write_all(&submission(turn * CLIENTS + i)).expect("the daemon reads");
        }
        for socket in &mut sockets {
            let answer = wire::receive(socket).expect("an answer");
            assert!(answer.get("Submitted").is_some(), "{answer}");
        }
    }
}

pub fn submissions(labs: &mut Labs) {
    labs.long();
    let empty = Lab::start(2);
    let long: &Lab = labs.long();
    let held = format!("{MANY} held");
    compared("submission", SUBMISSIONS, &[("empty queue", &empty), (&held, long)], submit);
    unsatisfiable();
}

/// Submits tasks whose counterparts do not exist, which are cancelled at once.
fn unsatisfiable() {
    let lab = Lab::start(1);
    lab.run("sbatch", &["-H", "-a", "0", "-o", "/dev/null", "--wrap", "true"]);
    let line = [
        "--kill-on-invalid-dep=yes",
        "-d",
        "aftercorr:1",
        "-a",
        "0-20000",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    let took = timed(|| drop(lab.run("sbatch", &line)));
    figure("sbatch of 20,000 tasks that never run", took.as_secs_f64() * 1000.0, "ms");
}

/// Returns the worst time in milliseconds of a command while another one runs in a loop.
fn worst_beside(lab: &Lab, line: &[&str], other: &[&str]) -> f64 {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lab.run(other[0], &other[1..]);
            }
        });
        let times = (0..40).map(|_| timed(|| drop(lab.run(line[0], &line[1..]))));
        let worst = times.max().unwrap_or_default();
        is_over.store(true, Ordering::Relaxed);
        worst.as_secs_f64() * 1000.0
    })
}

/// Predictions far into the future, and small requests at the same time.
pub fn forecasts(labs: &mut Labs) {
    let queues = labs.queues();
    let mut turns = Turns::new();
    for (name, lab) in queues.named() {
        turns.add(format!("sinfo, {name}"), || timed(|| drop(lab.run("sinfo", &[]))));
        turns.add(format!("squeue --start -j, {name}"), || {
            timed(|| drop(lab.run("squeue", &["--start", "-j", "1"])))
        });
        turns.add(format!("sbatch --test-only, {name}"), || {
            timed(|| drop(lab.run("sbatch", &["--test-only", "--wrap", "true"])))
        });
    }
    turns.measure(ROUNDS * 2);
    let lab = &queues.mixed;
    let worst =
        worst_beside(lab, &["squeue", "-h", "-j", "1"], &["squeue", "--start", "-h", "-j", "1000"]);
    figure("worst squeue -j during squeue --start", worst, "ms");
    let worst = worst_beside(
        lab,
        &["sbatch", "-H", "-d", "afterok:1", "--wrap", "true"],
        &["sacct", "-a", "-S", "2000-01-01"],
    );
    figure("worst sbatch -d during a long sacct", worst, "ms");
    figure("scheduler's total CPU time", cpu(lab).1.as_secs_f64(), "s");
}
