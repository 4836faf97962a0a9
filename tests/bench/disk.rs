//! What the database costs: submissions of many clients at once, and with a long queue and a long history; how soon a daemon
//! answers with them, what sacct takes, and bytes. One run prints it all: `cargo bench --bench disk [-- PENDING HISTORY]`.

use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use slotd_kit::lab::{Lab, summary, timed};
use slotd_kit::{proc, wire};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clients that submit at once, each as soon as it has the answer to its last submission.
const CLIENTS: usize = 200;
const EACH: usize = 50;
/// Tasks that run when a daemon dies.
const RUNNING: usize = 1000;

fn submission(pid: usize, held: bool) -> Vec<u8> {
    let script = b"#!/bin/sh\ntrue\n";
    let request = json!({
        "name": "disk", "user": "lab", "work_dir": "/", "std_out": "/dev/null", "hold": held,
        "submit_line": "sbatch disk.sh",
    });
    let client = json!({ "pid": pid, "start_ticks": 1, "holds": false });
    let submit = json!({ "Submit": {
        "request": request, "script_len": script.len(), "wait": false, "test_only": false, "client": client,
    } });
    wire::frame(submit.to_string().as_bytes(), script)
}

/// How long each submission took.
fn crowd(lab: &Lab) -> Vec<Duration> {
    let root = lab.path("root");
    let mut sockets: Vec<_> = (0..CLIENTS).map(|_| wire::connect(&root).expect("the daemon")).collect();
    let mut sent = vec![Instant::now(); CLIENTS];
    let mut left = vec![EACH; CLIENTS];
    let mut times = Vec::with_capacity(CLIENTS * EACH);
    for (i, socket) in sockets.iter_mut().enumerate() {
        sent[i] = Instant::now();
        socket.write_all(&submission(i, true)).expect("the daemon reads");
    }
    while times.len() < CLIENTS * EACH {
        let mut polled: Vec<PollFd> = sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut polled, PollTimeout::NONE).expect("poll");
        let ready: Vec<usize> = (0..CLIENTS).filter(|i| polled[*i].any() == Some(true)).collect();
        for i in ready {
            let answer = wire::receive(&mut sockets[i]).expect("an answer");
            assert!(answer.get("Submitted").is_some(), "{answer}");
            times.push(sent[i].elapsed());
            left[i] -= 1;
            if left[i] > 0 {
                sent[i] = Instant::now();
                sockets[i].write_all(&submission(left[i] * CLIENTS + i, true)).expect("the daemon reads");
            }
        }
    }
    times
}

/// The time that the daemon has had on a CPU, and its scheduler's thread: it says what something costs, however busy the
/// machine is with others.
fn cpu(lab: &Lab) -> (Duration, Duration) {
    let answer = wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
    proc::cpu_times(answer["Pong"]["pid"].as_i64().expect("a number") as i32).expect("it lives")
}

/// Runs something that does so many things: how many a second, and what each costs the daemon.
fn rate(lab: &Lab, count: usize, run: impl FnMut()) -> String {
    let before = cpu(lab);
    let took = timed(run);
    let after = cpu(lab);
    let us = |used: Duration| used.as_micros() as f64 / count as f64;
    let (all, own) = (us(after.0 - before.0), us(after.1 - before.1));
    let rate = count as f64 / took.as_secs_f64();
    format!("{rate:.0} /s, {all:.0} us of CPU each, {own:.0} of it in the scheduler's thread")
}

fn crowds(lab: &Lab, what: &str) {
    let mut times = Vec::new();
    let told = rate(lab, CLIENTS * EACH, || times = crowd(lab));
    times.sort();
    let ms = |n: usize| times[(times.len() - 1) * n / 100].as_secs_f64() * 1000.0;
    println!("{CLIENTS} clients at once, {what}: {told}; median {:.1} ms, 99th percentile {:.1} ms", ms(50), ms(99));
}

/// Jobs that wait, all different, by one call of `slotd submit`.
fn fill(lab: &Lab, jobs: usize) {
    let lines: Vec<String> =
        (0..jobs).map(|i| json!({ "wrap": format!("true {i}"), "name": format!("j{i}") }).to_string()).collect();
    fs::write(lab.path("lines"), lines.join("\n")).expect("a file");
    let submit = || {
        let mut submit = Command::new(slotd_kit::program());
        submit
            .args(["submit", "-H", "-o", "/dev/null"])
            .env("SLOTD_ROOT", lab.path("root"))
            .current_dir(lab.dir.path());
        let (lines, answers) = (File::open(lab.path("lines")), File::create(lab.path("answers")));
        submit.stdin(lines.expect("it was written")).stdout(answers.expect("a file"));
        assert!(submit.status().expect("the program").success());
    };
    println!("slotd submit, {jobs} jobs: {}", rate(lab, jobs, submit));
}

fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(there) if there.is_dir() => there.blocks() * 512 + bytes(&entry.path()),
        Ok(there) => there.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Bytes of the database and of job directories, a job.
fn sizes(lab: &Lab, jobs: usize) {
    let jobs = jobs as u64;
    let database = fs::metadata(lab.path("root/lib/state.db")).expect("a database").len();
    println!("{} bytes of the database, {} of files, a job", database / jobs, bytes(&lab.path("root/lib/jobs")) / jobs);
}

/// From the death of a daemon to the first answer of the next.
fn recovery(lab: &mut Lab, pending: usize) {
    let array = format!("1-{RUNNING}");
    lab.run("sbatch", &["-a", &array, "--mem", "1", "-o", "/dev/null", "--wrap", "exec sleep 3000"]);
    let all_run = || (lab.run("squeue", &["-h", "-r", "-t", "R"]).lines().count() == RUNNING).then_some(());
    slotd_kit::until(all_run).expect("all tasks run");
    for _ in 0..3 {
        let took = timed(|| {
            lab.while_stopped(|_| {});
            wire::ask(&lab.path("root"), &json!("Ping")).expect("an answer");
        });
        let (all, own) = cpu(lab);
        println!(
            "a new daemon with {pending} that wait and {RUNNING} that run answers after {:.2} s ({:.2} s of CPU, {:.2} of it in \
             its first thread)",
            took.as_secs_f64(),
            all.as_secs_f64(),
            own.as_secs_f64()
        );
    }
    lab.run("scancel", &["-s", "KILL", "--me", "-t", "R"]);
    slotd_kit::until(|| lab.run("squeue", &["-h", "-t", "R,CG"]).is_empty().then_some(())).expect("all have ended");
}

/// So many records that have ended, a tenth of them within the last day: those of real jobs, with other numbers and times.
fn history(lab: &mut Lab, records: u32) {
    for _ in 0..10 {
        lab.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros();
    let sql = format!(
        "BEGIN;
         CREATE TEMP TABLE template AS SELECT request_id, body FROM jobs WHERE end_us IS NOT NULL ORDER BY job_id DESC LIMIT 10;
         WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < {records}),
              at (n, us) AS (SELECT n, {now} - ({records} - n) * iif(n > {records} * 0.9, 800000, 8000000) FROM seq)
         INSERT INTO jobs (job_id, request_id, body)
         SELECT 1000000 + n, request_id, json_set(body, '$.id', 1000000 + n, '$.submit', us, '$.run.eligible', us,
                '$.run.start', us, '$.run.end', us + 20000)
         FROM at JOIN template ON template.rowid = n % 10 + 1;
         COMMIT;"
    );
    lab.while_stopped(|root| {
        let database = root.join("lib/state.db");
        let mut store = SqliteConnection::establish(database.to_str().expect("text")).expect("a database");
        store.batch_execute(&sql).expect("the tables that there are");
    });
}

fn sacct(lab: &Lab, records: u32) {
    let median = |line: &[&str]| summary((0..9).map(|_| timed(|| drop(lab.run("sacct", line)))).collect()).1;
    let bare = summary((0..9).map(|_| timed(|| drop(Command::new("/bin/true").output()))).collect()).1;
    let one = median(&["-j", &(1_000_000 + records / 2).to_string()]);
    let day = median(&["-X", "-n", "-S", "now-24hours"]);
    let rows = lab.run("sacct", &["-X", "-n", "-S", "now-24hours"]).lines().count();
    println!("of {records} records: sacct -j {one:.1} ms, the {rows} of a day {day:.0} ms (/bin/true {bare:.1} ms)");
}

fn main() {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<u32>().ok());
    let (pending, records) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(1_000_000));
    let mut lab = Lab::start(RUNNING as u32);
    crowds(&lab, "empty queue");
    let first = CLIENTS * EACH;
    sizes(&lab, first);
    fill(&lab, pending as usize);
    sizes(&lab, first + pending as usize);
    crowds(&lab, &format!("{pending} wait"));
    recovery(&mut lab, pending as usize + 2 * first);
    drop(lab);
    let mut lab = Lab::start(2);
    history(&mut lab, records);
    sacct(&lab, records);
    crowds(&lab, &format!("{records} in the history"));
}
