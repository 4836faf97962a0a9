//! The daemon's response time to others while a user submits oversized jobs, cancels jobs that
//! ignore signals, or runs thousands of processes: `cargo bench --bench poison`. Each figure is
//! printed with the latency between two threads on the same machine at that time, which the daemon
//! cannot beat, and with the CPU time of the daemon's thread that answers.

use serde_json::json;
use slotd_kit::lab::{Lab, summary};
use slotd_kit::{proc, until, wire};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CPUS: u32 = 128;
const STUBBORN: u32 = 100;
const PROCESSES: u32 = 5000;
/// The number of times each oversized request is sent.
const TIMES: usize = 10;

/// The pause between two requests, which is the load of a few users.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends requests to the scheduler in a loop, and returns their latencies.
fn ask(root: &Path, is_over: &AtomicBool) -> Vec<Duration> {
    let mut socket = wire::connect(root).expect("the daemon");
    let question =
        wire::frame(json!({ "Diagnostics": { "reset": false } }).to_string().as_bytes(), &[]);
    repeat(is_over, || {
        socket.write_all(&question).expect("the daemon reads");
        wire::receive(&mut socket).expect("an answer");
    })
}

/// Sends a byte back and forth between two threads in a loop, and returns the latencies.
fn echo(is_over: &AtomicBool) -> Vec<Duration> {
    let (mut here, mut there) = UnixStream::pair().expect("two sockets");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while there.read(&mut byte).is_ok_and(|n| n > 0) {
                there.write_all(&byte).expect("the other end");
            }
        });
        let times = repeat(is_over, || {
            here.write_all(&[1]).expect("the other end");
            here.read_exact(&mut [0]).expect("the other end");
        });
        drop(here);
        times
    })
}

fn repeat(is_over: &AtomicBool, mut act: impl FnMut()) -> Vec<Duration> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        act();
        times.push(began.elapsed());
        thread::sleep(PAUSE);
    }
    times
}

/// Returns the CPU time of the daemon's thread that answers.
fn cpu(root: &Path) -> Duration {
    let answer = wire::ask(root, &json!("Ping")).expect("an answer");
    let pid = answer["Pong"]["pid"].as_i64().expect("a number") as i32;
    proc::cpu_times(pid).expect("the daemon runs").1
}

/// Runs `poison`, and prints the response times of others meanwhile.
fn during(lab: &Lab, what: &str, poison: impl FnOnce()) {
    let (root, is_over) = (lab.path("root"), AtomicBool::new(false));
    let before = cpu(&root);
    let (answers, control) = thread::scope(|scope| {
        let answers = scope.spawn(|| ask(&root, &is_over));
        let control = scope.spawn(|| echo(&is_over));
        poison();
        is_over.store(true, Ordering::Relaxed);
        (answers.join().expect("answers"), control.join().expect("echoes"))
    });
    let worst = |times: &[Duration]| times.iter().max().map_or(0.0, Duration::as_secs_f64) * 1000.0;
    let (count, most, machine) = (answers.len(), worst(&answers), worst(&control));
    let used = (cpu(&root) - before).as_millis();
    println!(
        "{what:40} {count:6} answers, median {:6.2} ms, worst {most:7.2} ms; baseline {machine:7.2} ms; {used} ms of CPU",
        summary(answers).1
    );
}

/// Runs a command that may be refused.
fn offer(lab: &Lab, change: impl Fn(&mut Command)) {
    let mut command = Command::new(slotd_kit::program());
    command.arg("sbatch").env("SLOTD_ROOT", lab.path("root")).current_dir(lab.dir.path());
    change(&mut command);
    // If the command line is too large for execve(2), it does not even start.
    drop(
        command
            .args(["-H", "-o", "/dev/null"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status(),
    );
}

/// Sends a frame with this many megabytes, like a client that ignores the size limit.
fn pump(lab: &Lab, megabytes: u32) {
    let mut socket = wire::connect(&lab.path("root")).expect("the daemon");
    drop(socket.write_all(&wire::header(1000, megabytes << 20)));
    let some = vec![b'x'; 1 << 20];
    // Until the daemon closes the connection.
    while socket.write_all(&some).is_ok() {}
}

fn large(lab: &Lab) {
    during(lab, "100 MB of environment, raw client", || (0..TIMES).for_each(|_| pump(lab, 100)));
    let value = "x".repeat(100 << 10);
    let variables = |command: &mut Command, count: u32| {
        command.envs((0..count).map(|n| (format!("POISON{n}"), &value)));
    };
    during(lab, "7 MB of environment", || {
        (0..TIMES)
            .for_each(|_| offer(lab, |command| variables(command.args(["--wrap", "true"]), 17)));
    });
    for megabytes in [3, 10] {
        let script = format!("#!/bin/sh\n{}", "true\n".repeat((megabytes << 20) / 5));
        fs::write(lab.path("script.sh"), script).expect("a script");
        during(lab, &format!("a script of {megabytes} MB"), || {
            // Options come before the script.
            (0..TIMES).for_each(|_| {
                let mut command = Command::new(slotd_kit::program());
                command
                    .args(["sbatch", "-H", "-o", "/dev/null", "script.sh"])
                    .env("SLOTD_ROOT", lab.path("root"));
                command.current_dir(lab.dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
                drop(command.status());
            });
        });
    }
    let name = "n".repeat(10 << 10);
    during(lab, "names of 10 KB", || {
        (0..TIMES)
            .for_each(|_| offer(lab, |command| _ = command.args(["-J", &name, "--wrap", "true"])));
    });
    lab.run("scancel", &["--me"]);
}

fn ended(lab: &Lab) {
    let is_empty = || lab.run("squeue", &["-h"]).is_empty().then_some(());
    assert!(until(is_empty).is_some(), "jobs are left");
}

fn stubborn(lab: &Lab) {
    let tasks = format!("1-{STUBBORN}");
    let script = "trap '' TERM; echo > ready.$SLURM_ARRAY_TASK_ID; while :; do sleep 1000; done";
    let line = ["--parsable", "-a", &tasks, "--mem", "1", "-o", "/dev/null", "--wrap", script];
    let job = lab.run("sbatch", &line).trim().to_owned();
    let all_ready =
        || (1..=STUBBORN).all(|n| lab.path(&format!("ready.{n}")).exists()).then_some(());
    assert!(until(all_ready).is_some(), "the tasks do not begin");
    let each = |options: &[&str]| {
        thread::scope(|scope| {
            for task in 1..=STUBBORN {
                let target = format!("{job}_{task}");
                scope.spawn(move || lab.run("scancel", &[options, &[&target]].concat()));
            }
        });
    };
    during(lab, &format!("{STUBBORN} cancels of jobs that ignore TERM"), || each(&[]));
    during(lab, &format!("{STUBBORN} times scancel -s KILL of them"), || {
        each(&["-s", "KILL"]);
        ended(lab);
    });
}

fn many_processes(lab: &Lab) {
    let script = format!(
        "i=0; while [ $i -lt {PROCESSES} ]; do sleep 1000 & i=$((i+1)); done; echo > forked; wait"
    );
    during(lab, &format!("a job starts {PROCESSES} processes"), || {
        lab.run("sbatch", &["--mem", "1", "-o", "/dev/null", "--wrap", &script]);
        assert!(
            until(|| lab.path("forked").exists().then_some(())).is_some(),
            "the processes do not start"
        );
    });
    during(lab, "sstat of that job", || {
        for _ in 0..TIMES {
            lab.run("sstat", &["-a", "-j", lab.run("squeue", &["-h", "-o", "%i"]).trim()]);
        }
    });
    during(lab, "scancel -s KILL of that job", || {
        lab.run("scancel", &["-s", "KILL", "--me"]);
        ended(lab);
    });
}

fn main() {
    let lab = Lab::start(CPUS);
    during(&lab, "nothing", || thread::sleep(Duration::from_secs(2)));
    large(&lab);
    stubborn(&lab);
    many_processes(&lab);
}
