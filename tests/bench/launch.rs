//! The cost of launching a job, compared with running its script directly: `cargo bench --bench
//! launch [-- RUNS]`. Every job is scheduled, committed, launched and watched. None has its own
//! client, since they are the tasks of one array.

use slotd_kit::lab::{Lab, timed};
use slotd_kit::proc;
use std::fs;
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = "#!/bin/sh\nexit 0\n";

fn main() {
    let runs: u32 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(300);
    let lab = Lab::start(runs);
    let script = lab.path("script.sh");
    slotd_kit::scripts::executable(&script, SCRIPT);
    let alone = timed(|| {
        (0..runs).for_each(|_| assert!(Command::new(&script).status().expect("spawn").success()))
    });
    let array =
        |limit: &str| {
            let tasks = format!("1-{runs}{limit}");
            timed(|| {
                drop(lab.run(
                    "sbatch",
                    &["-W", "-a", &tasks, "--mem", "1", "-o", "/dev/null", "script.sh"],
                ))
            })
        };
    let ms = |time: Duration| time.as_secs_f64() * 1000.0 / f64::from(runs);
    println!("{runs} runs of {SCRIPT:?}");
    println!("{:34} {:6.2} ms per job", "the script alone, posix_spawn", ms(alone));
    for (name, limit) in [("slotd, one after the other", "%1"), ("slotd, all at once", "")] {
        let time = array(limit);
        println!("{name:34} {:6.2} ms per job  {:5.2} x", ms(time), ms(time) / ms(alone));
    }
    println!("a watcher's memory: {}", memory(&lab));
}

/// Returns the memory of a watcher while its job sleeps.
fn memory(lab: &Lab) -> String {
    lab.run("sbatch", &["-o", "/dev/null", "--wrap", "exec sleep 600"]);
    let sleeps = |pid: &i32| proc::cmdline(*pid).starts_with("sleep 600");
    let task = slotd_kit::until(|| proc::of_directory(lab.dir.path()).into_iter().find(sleeps))
        .expect("the task");
    let watcher = proc::parent(task).expect("the task has a parent");
    let text =
        fs::read_to_string(format!("/proc/{watcher}/smaps_rollup")).expect("the watcher runs");
    lab.run("scancel", &["--me"]);
    let lines = text
        .lines()
        .filter(|l| ["Rss:", "Pss:", "Private_Dirty:"].iter().any(|p| l.starts_with(p)));
    lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}
