//! The cost of an idle daemon, and the time that a new one needs to answer after a crash.

use crate::labs::{self, Labs, MANY, RUNNING, all_run, cpu, end_all, fill};
use serde_json::json;
use slotd_kit::lab::{Lab, timed};
use slotd_kit::turns::figure;
use slotd_kit::{proc, wire};
use std::fs;
use std::thread;
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(30);

/// Many jobs in one call, and the memory and disk space per job.
pub fn bytes(_: &mut Labs) {
    let mut lab = Lab::start(2);
    lab.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    let resident = |lab: &Lab| proc::resident_kib(lab.daemon_pid()) as f64;
    let before = resident(&lab);
    let cpu_before = cpu(&lab);
    let took = fill(&lab, MANY);
    figure("slotd submit", MANY as f64 / took.as_secs_f64(), "/s");
    let cpu_us = (cpu(&lab).0 - cpu_before.0).as_micros() as f64;
    figure("daemon CPU time per job of slotd submit", cpu_us / MANY as f64, "us");
    let each = |bytes: f64| bytes / MANY as f64;
    figure("memory per pending job", each((resident(&lab) - before) * 1024.0), "bytes");
    let database = fs::metadata(lab.path("root/lib/state.db")).expect("a database").len();
    figure("database per pending job", each(database as f64), "bytes");
    figure("files per pending job", each(labs::bytes(&lab.path("root/lib/jobs")) as f64), "bytes");
    lab.while_stopped(|_| {});
    // It has the queue in memory once it answers.
    wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
    figure(
        "memory per pending job, after a restart",
        each((resident(&lab) - before) * 1024.0),
        "bytes",
    );
    let few = Lab::start(2);
    lab.run("sinfo", &[]);
    let database = || fs::metadata(few.path("root/lib/state.db")).expect("a database").len();
    let before = (database(), labs::bytes(&few.path("root/lib/jobs")));
    const ENDED: u32 = 500;
    for _ in 0..ENDED / 100 {
        few.run("sbatch", &["-W", "-a", "1-100", "-o", "/dev/null", "--wrap", "true"]);
    }
    few.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    figure(
        "files per ended task",
        (labs::bytes(&few.path("root/lib/jobs")) - before.1) as f64 / f64::from(ENDED + 1),
        "bytes",
    );
    figure(
        "database per ended task",
        (database() - before.0) as f64 / f64::from(ENDED + 1),
        "bytes",
    );
}

/// Returns the number of wake-ups of these processes so far.
fn wakeups(pids: &[i32]) -> u64 {
    pids.iter().map(|pid| proc::wakeups(*pid)).sum()
}

/// An idle daemon, and one with many sleeping jobs, in the same seconds.
pub fn idle(_: &mut Labs) {
    let (idle, busy) = (Lab::start(2), Lab::start(RUNNING as u32));
    idle.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    all_run(&busy);
    figure("resident, idle", proc::resident_kib(idle.daemon_pid()) as f64 / 1024.0, "MB");
    let name = format!("resident, {RUNNING} sleeping jobs");
    figure(&name, proc::resident_kib(busy.daemon_pid()) as f64 / 1024.0, "MB");
    let (few, many) = ([idle.daemon_pid()], proc::of_directory(busy.dir.path()));
    idle.settle();
    // The longer jobs sleep, the less often they are sampled.
    for age in [0, 30, 60] {
        let before = (wakeups(&few), wakeups(&many));
        thread::sleep(IDLE);
        figure("wake-ups in 30 s, idle", (wakeups(&few) - before.0) as f64, "");
        let rate = (wakeups(&many) - before.1) as f64 / IDLE.as_secs_f64();
        figure(
            &format!("wake-ups of {} processes, {RUNNING} jobs asleep for {age} s", many.len()),
            rate,
            "/s",
        );
    }
    end_all(&busy);
}

/// The time from the death of a daemon to the first answer of the next one.
pub fn recovery(labs: &mut Labs) {
    let lab = labs.long();
    all_run(lab);
    for _ in 0..3 {
        let took = timed(|| {
            lab.while_stopped(|_| {});
            wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
        });
        let (all, own) = cpu(lab);
        println!(
            "{:<44} {:9.2} s   {:.2} s of CPU, {:.2} of it in the first thread",
            format!("recovery, {MANY} pending and {RUNNING} running"),
            took.as_secs_f64(),
            all.as_secs_f64(),
            own.as_secs_f64()
        );
    }
    end_all(lab);
}
