//! Output of the benchmarks: lines `name value unit`, and comparisons measured in one run.

use crate::lab::{summary, timed};
use std::process::Command;
use std::time::Duration;

/// Prints one figure.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("{name:<44} {value:9.1} {unit}");
}

/// Measurements taken in turn.
#[derive(Default)]
pub struct Turns<'a> {
    names: Vec<String>,
    runs: Vec<Box<dyn FnMut() -> Duration + 'a>>,
}

impl<'a> Turns<'a> {
    pub fn new() -> Turns<'a> {
        Turns::default()
    }

    pub fn add(&mut self, name: impl Into<String>, run: impl FnMut() -> Duration + 'a) {
        self.names.push(name.into());
        self.runs.push(Box::new(run));
    }

    /// Prints the medians in milliseconds, and their ratio to the first.
    pub fn measure(mut self, rounds: usize) {
        let mut times: Vec<Vec<Duration>> = self.runs.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (run, times) in self.runs.iter_mut().zip(&mut times) {
                times.push(run());
            }
        }
        let medians: Vec<f64> = times.into_iter().map(|times| summary(times).1).collect();
        for (name, median) in self.names.iter().zip(&medians) {
            println!(
                "{name:<44} {median:9.3} ms   ratio {:6.2} of {}",
                median / medians[0],
                self.names[0]
            );
        }
    }
}

/// Prints the rates per second, and their ratio to the first.
pub fn rates(count: usize, named: Vec<(&str, Vec<Duration>)>) {
    let rate = |times: Vec<Duration>| count as f64 / (summary(times).1 / 1000.0);
    let rates: Vec<(&str, f64)> =
        named.into_iter().map(|(name, times)| (name, rate(times))).collect();
    for (name, rate) in &rates {
        println!("{name:<44} {rate:9.0} /s   ratio {:6.2} of {}", rate / rates[0].1, rates[0].0);
    }
}

/// Measures the cost of a program that does nothing.
pub fn bare() -> Duration {
    timed(|| drop(Command::new("/bin/true").output().expect("/bin/true")))
}
