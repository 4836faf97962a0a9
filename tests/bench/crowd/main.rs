//! Scalability benchmarks: long queues, a long history, many concurrent clients, many running jobs.
//! Each figure is printed as a line `name value unit`, with a ratio if it is compared with another:
//! `cargo bench --bench crowd [-- PART…]`. Compared measurements are taken in turn, so that other
//! load on the machine affects all of them alike; the median counts.
//!
//! Peers that are not installed are left out: task-spooler (`tsp`) and HyperQueue (the PyPI
//! package, in the Python given by `SLOTD_BENCH_PYTHON`).

mod clients;
mod labs;
mod life;
mod lists;
mod queue;

use labs::Labs;
use std::fs;

/// The name of a part and its benchmark.
type Part = (&'static str, fn(&mut Labs));

const PARTS: [Part; 9] = [
    ("rounds", queue::rounds),
    ("submissions", queue::submissions),
    ("forecasts", queue::forecasts),
    ("bytes", life::bytes),
    ("lists", lists::lists),
    ("history", lists::history),
    ("clients", clients::clients),
    ("idle", life::idle),
    ("recovery", life::recovery),
];

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let load = || fs::read_to_string("/proc/loadavg").expect("the load of the machine");
    println!("load {}", load().trim());
    let mut labs = Labs::default();
    for (name, measure) in PARTS {
        if chosen.is_empty() || chosen.iter().any(|c| c == name) {
            measure(&mut labs);
        }
    }
    println!("load {}", load().trim());
}
