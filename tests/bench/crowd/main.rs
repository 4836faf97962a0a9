//! What a crowd costs: long queues, a long history, many clients at once, many jobs that run. One
//! run prints a line `name value unit` a figure, with its ratio where it stands beside another:
//! `cargo bench --bench crowd [-- PART…]`. What is compared is measured in turns, so that a busy
//! machine is busy for all; the median counts.
//!
//! A peer that is not installed is left out: task-spooler (`tsp`), and HyperQueue (the package from
//! PyPI, in the Python that `SLOTD_BENCH_PYTHON` names).

mod clients;
mod labs;
mod life;
mod lists;
mod queue;

use labs::Labs;
use std::fs;

/// A part and what measures it.
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
