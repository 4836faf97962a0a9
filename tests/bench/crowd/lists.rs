//! Long answers, and short answers from a lot of data.

use crate::labs::{Labs, MANY, RECORDS, fill};
use slotd_kit::lab::{Lab, timed};
use slotd_kit::spooler::Spooler;
use slotd_kit::turns::{Turns, bare, figure};
use std::path::Path;
use std::process::{Command, Stdio};

const ROUNDS: usize = 11;
/// The number of jobs in the list that is compared with HyperQueue.
const LISTED: usize = 10_000;

/// Runs a command and discards its output.
fn quiet(lab: &Lab, line: &[&str]) {
    let mut command = Command::new(slotd_kit::program());
    command.args(line).env("SLOTD_ROOT", lab.path("root")).current_dir(lab.dir.path());
    assert!(command.stdout(Stdio::null()).status().expect("the program").success(), "{line:?}");
}

/// Prints the median time of HyperQueue's answer for the same number of one-task jobs, measured
/// with its Python client.
fn hyperqueue(lab: &Lab) {
    let python = std::env::var("SLOTD_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/hq_list.py");
    let mut command = Command::new(python);
    command.arg(script).arg(LISTED.to_string()).current_dir(lab.dir.path());
    let Ok(out) = command.output() else { return };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let Some(secs) = text.lines().find_map(|line| line.strip_prefix("seconds ")) else { return };
    figure(
        "HyperQueue's answer, 10,000 jobs",
        secs.parse::<f64>().expect("a number") * 1000.0,
        "ms",
    );
}

pub fn lists(labs: &mut Labs) {
    let few = Lab::start(2);
    fill(&few, LISTED);
    let long = labs.long();
    assert!(long.run("squeue", &["-h", "-o", "%i"]).lines().count() >= MANY);
    hyperqueue(&few);
    let mut turns = Turns::new();
    turns.add("/bin/true", bare);
    for (name, lab, line) in [
        ("squeue, 10,000 jobs", &few, &["squeue"][..]),
        ("squeue --json, 10,000 jobs", &few, &["squeue", "--json"]),
        ("squeue, 100,000 jobs", long, &["squeue"]),
        ("squeue -o %i, 100,000 jobs", long, &["squeue", "-o", "%i"]),
        ("squeue --json, 100,000 jobs", long, &["squeue", "--json"]),
        ("squeue -j, 100,000 jobs", long, &["squeue", "-j", "50000"]),
        ("scontrol show job, 100,000 jobs", long, &["scontrol", "show", "job", "50000"]),
    ] {
        turns.add(name, || timed(|| quiet(lab, line)));
    }
    turns.measure(ROUNDS);
    hyperqueue(&few);
}

/// Returns the time to submit a job that can run at once, then waits for the job.
fn sbatch(lab: &Lab) -> std::time::Duration {
    let took = timed(|| quiet(lab, &["sbatch", "-J", "one", "-o", "/dev/null", "--wrap", "true"]));
    quiet(
        lab,
        &["sbatch", "-W", "-J", "one", "-d", "singleton", "-o", "/dev/null", "--wrap", "true"],
    );
    took
}

pub fn history(labs: &mut Labs) {
    let lab = labs.past();
    let rows = lab
        .run("sacct", &["-X", "-n", "-S", "now-24hours", "-s", "CD", "-o", "jobid"])
        .lines()
        .count();
    let one = (RECORDS / 2).to_string();
    let mut turns = Turns::new();
    turns.add("/bin/true", bare);
    turns.add("sacct -j, 1,000,000 records", || timed(|| quiet(lab, &["sacct", "-j", &one])));
    let day = format!("sacct -X of a day, {rows} rows");
    turns
        .add(day, || timed(|| quiet(lab, &["sacct", "-X", "-n", "-S", "now-24hours", "-s", "CD"])));
    turns.measure(ROUNDS);
    let empty = Lab::start(2);
    let spooler = Spooler::start(empty.dir.path(), 2);
    let mut turns = Turns::new();
    if let Some(spooler) = &spooler {
        turns.add("task-spooler", || {
            let took = timed(|| drop(spooler.run(&["-n", "true"], &[])));
            spooler.run(&["-w"], &[]);
            took
        });
    }
    turns.add("sbatch, empty", || sbatch(&empty));
    turns.add("sbatch, 100,000 pending, 1,000,000 ended", || sbatch(lab));
    turns.measure(ROUNDS * 5);
}
