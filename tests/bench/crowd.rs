//! What a crowd of waiting jobs costs those that come and go: submissions, scheduling rounds, starts, forecasts, and who
//! asks for something small beside something large. One run prints it all for an empty queue and for long ones:
//! `cargo bench --bench crowd`.

use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use serde_json::{Value, json};
use slotd_kit::lab::{Lab, summary, timed};
use slotd_kit::{proc, wire};
use std::io::Write;
use std::thread;
use std::time::Duration;

const CPUS: u32 = 8;
/// Submissions under way at once, each by a connection of its own.
const CLIENTS: usize = 16;
const SUBMISSIONS: usize = 4000;
/// Different submissions that the waiting jobs come from.
const KINDS: u32 = 50;
const TASKS: u32 = 400;
const ROUNDS: usize = 15;

/// A daemon with one job that has all memory but a little, and so many others of a thousand sizes, each of which needs more
/// of it than that. CPUs are free, so that each size has to be looked at.
fn lab(jobs: u32, held: bool) -> Lab {
    let mut lab = Lab::start(CPUS);
    let memory: u64 = lab.run("sinfo", &["-h", "-o", "%m"]).trim().trim_end_matches('+').parse().expect("a number");
    let most = (memory - 32).to_string();
    lab.run("sbatch", &["--mem", &most, "-o", "/dev/null", "--wrap", "sleep 3000"]);
    for kind in 0..KINDS {
        let (cpus, limit) = ((2 + kind % 7).to_string(), (1 + kind % 11).to_string());
        lab.run("sbatch", &["-H", "-n", &cpus, "-t", &limit, "--mem", "64", "-o", "/dev/null", "--wrap", "true"]);
    }
    let release = if held { "" } else { "json_remove(" };
    let released = if held { "" } else { ", '$.hold')" };
    let sql = format!(
        "BEGIN;
         CREATE TEMP TABLE template AS SELECT job_id, request_id, body FROM jobs WHERE job_id > 1;
         WITH RECURSIVE seq (id) AS (SELECT 1000 UNION ALL SELECT id + 1 FROM seq WHERE id < {last})
         INSERT INTO jobs (job_id, request_id, body)
         SELECT id, request_id, {release}json_set(body, '$.id', id, '$.tres.mem_mb', 64 + id % 1000){released}
         FROM seq JOIN template ON template.job_id = id % {KINDS} + 2;
         COMMIT;",
        last = 999 + jobs,
    );
    lab.while_stopped(|root| {
        let database = root.join("lib/state.db");
        let mut store = SqliteConnection::establish(database.to_str().expect("text")).expect("a database");
        if jobs > 0 {
            store.batch_execute(&sql).expect("the tables that there are");
        }
    });
    lab
}

fn submission(pid: usize) -> Vec<u8> {
    let script = b"#!/bin/sh\ntrue\n";
    let request = json!({
        "name": "crowd", "user": "lab", "work_dir": "/", "std_out": "/dev/null", "hold": true,
        "submit_line": "sbatch crowd.sh",
    });
    let client = json!({ "pid": pid, "start_ticks": 1, "holds": false });
    let submit = json!({ "Submit": {
        "request": request, "script_len": script.len(), "wait": false, "test_only": false, "client": client,
    } });
    wire::frame(submit.to_string().as_bytes(), script)
}

/// The time that the daemon has had on a CPU, and its scheduler's thread: it says what something costs, however busy the
/// machine is with others.
fn cpu(lab: &Lab) -> (Duration, Duration) {
    let answer = wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
    let pid = answer["Pong"]["pid"].as_i64().expect("a number") as i32;
    proc::cpu_times(pid).expect("it lives")
}

/// How often a second, and what each costs.
fn per_second(lab: &Lab, count: usize, run: impl FnMut()) -> String {
    let before = cpu(lab);
    let rate = count as f64 / timed(run).as_secs_f64();
    let after = cpu(lab);
    let each = |used: Duration| used.as_micros() as f64 / count as f64;
    let (all, own) = (each(after.0 - before.0), each(after.1 - before.1));
    format!("{rate:9.0} /s, {all:.0} us of CPU each, {own:.0} of it in the scheduler's thread")
}

fn submissions(lab: &Lab) -> String {
    let root = lab.path("root");
    let mut sockets: Vec<_> = (0..CLIENTS).map(|_| wire::connect(&root).expect("the daemon")).collect();
    per_second(lab, SUBMISSIONS, || {
        for turn in 0..SUBMISSIONS / CLIENTS {
            for (i, socket) in sockets.iter_mut().enumerate() {
                socket.write_all(&submission(turn * CLIENTS + i)).expect("the daemon reads");
            }
            for socket in &mut sockets {
                let answer = wire::receive(socket).expect("an answer");
                assert!(answer.get("Submitted").is_some(), "{answer}");
            }
        }
    })
}

/// What sdiag counts.
fn diagnostics(lab: &Lab, reset: bool) -> Value {
    let answer = wire::ask(&lab.path("root"), &json!({ "Diagnostics": { "reset": reset } })).expect("an answer");
    answer["Diagnostics"].clone()
}

/// The mean of a round that finds nothing to start, in microseconds: each submission asks for one.
fn round_us(lab: &Lab) -> f64 {
    diagnostics(lab, true);
    for _ in 0..ROUNDS * 4 {
        lab.run("sbatch", &["-n", "8", "-o", "/dev/null", "--wrap", "true"]);
    }
    let cycles = &diagnostics(lab, false)["cycles"];
    let number = |name: &str| cycles[name].as_f64().expect("a number");
    number("total_us") / number("count")
}

/// An array of small tasks, which pass all that wait.
fn dispatch(lab: &Lab) -> String {
    let array = format!("1-{TASKS}");
    let line = ["-W", "-t", "1", "--mem", "1", "-a", &array, "-o", "/dev/null", "--wrap", "true"];
    per_second(lab, TASKS as usize, || drop(lab.run("sbatch", &line)))
}

/// The median of a command in milliseconds.
fn median(lab: &Lab, line: &[&str]) -> f64 {
    summary((0..ROUNDS).map(|_| timed(|| drop(lab.run(line[0], &line[1..])))).collect()).1
}

/// The same while another command runs again and again. Median and worst.
fn beside(lab: &Lab, line: &[&str], other: &[&str]) -> (f64, f64) {
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                lab.run(other[0], &other[1..]);
            }
        });
        thread::sleep(Duration::from_millis(50));
        let mut times: Vec<Duration> = (0..ROUNDS * 4).map(|_| timed(|| drop(lab.run(line[0], &line[1..])))).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        times.sort();
        let worst = times[times.len() - 1].as_secs_f64() * 1000.0;
        (summary(times).1, worst)
    })
}

fn measure(name: &str, jobs: u32, held: bool) {
    let lab = lab(jobs, held);
    println!("{name}");
    println!("  submissions, {CLIENTS} at once     {}", submissions(&lab));
    println!("  a round that starts nothing     {:8.0} us", round_us(&lab));
    println!("  squeue --start of one job       {:8.2} ms", median(&lab, &["squeue", "--start", "-h", "-j", "2"]));
    println!("  sbatch --test-only              {:8.2} ms", median(&lab, &["sbatch", "--test-only", "--wrap", "true"]));
    println!("  sinfo                           {:8.2} ms", median(&lab, &["sinfo"]));
    let (mid, worst) = beside(&lab, &["squeue", "-h", "-j", "2"], &["squeue", "--start", "-h", "-j", "1000"]);
    println!("  squeue -j beside squeue --start {mid:8.2} ms, at worst {worst:.2}");
    let (mid, worst) =
        beside(&lab, &["sbatch", "-H", "-d", "afterok:2", "--wrap", "true"], &["sacct", "-a", "-S", "2000-01-01"]);
    println!("  sbatch -d beside a long sacct   {mid:8.2} ms, at worst {worst:.2}");
    println!("  tasks of an array that pass     {}", dispatch(&lab));
    lab.run("scancel", &["-s", "KILL", "1"]);
}

/// Tasks whose counterparts are not there are cancelled at their submission.
fn hopeless() {
    let lab = Lab::start(1);
    lab.run("sbatch", &["-H", "-a", "0", "-o", "/dev/null", "--wrap", "true"]);
    let line = ["--kill-on-invalid-dep=yes", "-d", "aftercorr:1", "-a", "0-20000", "-o", "/dev/null", "--wrap", "true"];
    let took = timed(|| drop(lab.run("sbatch", &line)));
    println!("sbatch of 20,000 hopeless tasks  {:8.2} ms", took.as_secs_f64() * 1000.0);
}

fn main() {
    hopeless();
    measure("empty queue", 0, true);
    measure("10,000 held", 10_000, true);
    measure("100,000 held", 100_000, true);
    measure("100,000 blocked jobs of 1,000 shapes", 100_000, false);
}
