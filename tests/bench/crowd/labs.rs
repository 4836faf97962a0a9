//! Daemons with large queues or histories. Each is created on first use.

use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use serde_json::json;
use slotd_kit::lab::{Lab, timed};
use slotd_kit::{proc, wire};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of pending jobs in a long queue.
pub const MANY: usize = 100_000;
/// The number of tasks in a pending array.
const TASKS: u32 = 1_000_000;
/// The number of records in a long history. The last tenth of them ended within the last day.
pub const RECORDS: usize = 1_000_000;
/// The number of running tasks when a daemon is killed.
pub const RUNNING: usize = 1000;
/// The CPUs of the daemons with queues that other jobs overtake.
const CPUS: u32 = 8;
/// The number of distinct submissions that the pending jobs are copied from.
const KINDS: u32 = 48;
/// An account whose jobs can never run.
const CONFIG: &str = "[[limit]]\naccount = \"full\"\njobs = 0\n";
/// A QOS that may preempt another, and licences.
const PLANNED: &str = "[[qos]]\nname = \"scavenge\"\n[[qos]]\nname = \"urgent\"\npriority = 1\npreempt = [\"scavenge\"]\n\
     preempt_mode = \"cancel\"\n[[license]]\nname = \"tool\"\ncount = 3\n";

/// Daemons whose queued jobs mostly cannot start, so that small jobs overtake them.
pub struct Queues {
    pub empty: Lab,
    /// A daemon with a pending array.
    pub array: Lab,
    /// A daemon with pending jobs of a thousand kinds that wait for memory, other jobs or limits.
    pub mixed: Lab,
    /// The same queue on a host with reservations, QOS and preemption.
    pub planned: Lab,
}

impl Queues {
    pub fn named(&self) -> [(&'static str, &Lab); 4] {
        [
            ("empty queue", &self.empty),
            ("1,000,000 tasks pending", &self.array),
            ("100,000 mixed pending", &self.mixed),
            ("100,000 with reservations and preemption", &self.planned),
        ]
    }
}

impl Drop for Queues {
    /// Cancels the running job, which would outlive its daemon.
    fn drop(&mut self) {
        for (_, lab) in self.named() {
            lab.run("scancel", &["-s", "KILL", "1"]);
        }
    }
}

#[derive(Default)]
pub struct Labs {
    queues: Option<Queues>,
    long: Option<Lab>,
    past: Option<Lab>,
}

impl Labs {
    pub fn queues(&mut self) -> &mut Queues {
        self.queues.get_or_insert_with(|| {
            let array = crowded(CONFIG);
            let tasks = format!("0-{}", TASKS - 1);
            array.run(
                "sbatch",
                &[
                    "-a",
                    &tasks,
                    "-n",
                    "2",
                    "--mem",
                    "64",
                    "-t",
                    "5",
                    "-o",
                    "/dev/null",
                    "--wrap",
                    "true",
                ],
            );
            Queues { empty: crowded(CONFIG), array, mixed: mixed(CONFIG), planned: planned() }
        })
    }

    /// Returns a daemon with [`MANY`] held jobs, all different.
    pub fn long(&mut self) -> &mut Lab {
        self.long.get_or_insert_with(|| {
            let lab = Lab::start(RUNNING as u32);
            fill(&lab, MANY);
            lab
        })
    }

    /// Returns a daemon with [`RECORDS`] ended jobs and [`MANY`] held ones.
    pub fn past(&mut self) -> &mut Lab {
        self.past.get_or_insert_with(past)
    }
}

/// Starts a daemon with a job that uses almost all memory, so that larger jobs have to wait. CPUs
/// are free, so the scheduler has to examine every shape.
fn crowded(config: &str) -> Lab {
    let lab = Lab::with(CPUS, config);
    let memory: u64 = lab
        .run("sinfo", &["-h", "-o", "%m"])
        .trim()
        .trim_end_matches('+')
        .parse()
        .expect("a number");
    let most = (memory - 32).to_string();
    lab.run("sbatch", &["--mem", &most, "-o", "/dev/null", "--wrap", "sleep 3000"]);
    lab
}

/// Starts a [`crowded`] daemon with [`MANY`] jobs. A third each waits for memory, for the end of
/// another job and for a limit.
fn mixed(config: &str) -> Lab {
    let mut lab = crowded(config);
    for kind in 0..KINDS {
        let (cpus, limit) = ((1 + kind % 7).to_string(), (1 + kind % 11).to_string());
        let waits: &[&str] = match kind % 3 {
            0 => &["--mem", "64"],
            1 => &["--mem", "1", "-d", "afterok:1"],
            _ => &["--mem", "1", "-A", "full"],
        };
        let shape = ["-H", "-n", &cpus, "-t", &limit, "-o", "/dev/null", "--wrap", "true"];
        lab.run("sbatch", &[waits, &shape].concat());
    }
    change(
        &mut lab,
        &format!(
            "CREATE TEMP TABLE template AS SELECT job_id, request_id, body FROM jobs WHERE job_id > 1;
             WITH RECURSIVE seq (id) AS (SELECT 1000 UNION ALL SELECT id + 1 FROM seq WHERE id < {last})
             INSERT INTO jobs (job_id, request_id, body)
             SELECT id, request_id, json_remove(json_set(body, '$.id', id,
                    '$.tres.mem_mb', iif(body ->> '$.tres.mem_mb' = 1, 1, 64 + id % 1000)), '$.hold')
             FROM seq JOIN template ON template.job_id = id % {KINDS} + 2;",
            last = 999 + MANY,
        ),
    );
    lab
}

/// Starts a daemon like [`mixed`] with two reservations that have not begun. One repeats daily.
fn planned() -> Lab {
    let lab = mixed(&[CONFIG, PLANNED].concat());
    for (name, start, flags) in
        [("once", "now+2hours", "MAINT"), ("daily", "now+5hours", "DAILY,IGNORE_JOBS")]
    {
        let names = [format!("ReservationName={name}"), format!("StartTime={start}")];
        let [name, start] = &names;
        let flags = format!("Flags={flags}");
        lab.run(
            "scontrol",
            &[
                "create",
                "reservation",
                name,
                start,
                "Duration=30",
                "Nodes=ALL",
                "Users=root",
                &flags,
            ],
        );
    }
    lab
}

/// Copies the records of real jobs with new IDs and times.
fn past() -> Lab {
    const EACH: u32 = 10;
    let mut lab = Lab::start(2);
    for _ in 0..EACH {
        lab.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    }
    lab.run("sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros();
    change(
        &mut lab,
        &format!(
            "CREATE TEMP TABLE template AS SELECT job_id, request_id, body FROM jobs;
             WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < {RECORDS}),
                  at (n, us) AS (SELECT n, {now} - ({RECORDS} - n) * iif(n > {RECORDS} * 0.9, 800000, 8000000) FROM seq)
             INSERT INTO jobs (job_id, request_id, body)
             SELECT 1000 + n, request_id, json_set(body, '$.id', 1000 + n, '$.submit', us, '$.run.eligible', us,
                    '$.run.start', us, '$.run.end', us + 20000)
             FROM at JOIN template ON template.job_id = n % {EACH} + 1;
             WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < {MANY})
             INSERT INTO jobs (job_id, request_id, body)
             SELECT {RECORDS} + 1000 + n, request_id, json_set(body, '$.id', {RECORDS} + 1000 + n)
             FROM seq JOIN template ON template.job_id = {EACH} + 1;"
        ),
    );
    lab
}

/// Modifies a database while no daemon uses it.
fn change(lab: &mut Lab, sql: &str) {
    lab.while_stopped(|root| {
        let database = root.join("lib/state.db");
        let mut store =
            SqliteConnection::establish(database.to_str().expect("text")).expect("a database");
        store.batch_execute(&format!("BEGIN; {sql} COMMIT;")).expect("the known schema");
    });
}

/// Submits this many different held jobs in one call of `slotd submit`. Returns the time it took.
pub fn fill(lab: &Lab, jobs: usize) -> Duration {
    let line = |i| json!({ "wrap": format!("true {i}"), "name": format!("j{i}") }).to_string();
    let lines: Vec<String> = (0..jobs).map(line).collect();
    fs::write(lab.path("lines"), lines.join("\n")).expect("enough disk space");
    timed(|| {
        let mut submit = Command::new(slotd_kit::program());
        submit.args(["submit", "-H", "-o", "/dev/null"]).stdout(Stdio::null());
        submit.env("SLOTD_ROOT", lab.path("root")).current_dir(lab.dir.path());
        submit.stdin(File::open(lab.path("lines")).expect("the file was written"));
        assert!(submit.status().expect("the program").success());
    })
}

/// Starts this many tasks, which run until they are cancelled.
pub fn all_run(lab: &Lab) {
    let tasks = format!("1-{RUNNING}");
    lab.run(
        "sbatch",
        &[
            "-J",
            "sleep",
            "-a",
            &tasks,
            "--mem",
            "1",
            "-o",
            "/dev/null",
            "--wrap",
            "exec sleep 3000",
        ],
    );
    // A job is RUNNING before its process exists.
    let sleeps = |pid: &i32| proc::cmdline(*pid).starts_with("sleep 3000");
    let running = || proc::of_directory(lab.dir.path()).iter().filter(|pid| sleeps(pid)).count();
    slotd_kit::until(|| (running() == RUNNING).then_some(())).expect("all tasks run");
}

/// Cancels all running jobs.
pub fn end_all(lab: &Lab) {
    lab.run("scancel", &["-s", "KILL", "--me", "-t", "R"]);
    let idle = || lab.run("squeue", &["-h", "-t", "R,CG"]).is_empty();
    slotd_kit::until(|| idle().then_some(())).expect("all have ended");
}

/// Returns the request for a held job.
pub fn submission(pid: usize) -> Vec<u8> {
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

/// Returns the CPU time of the daemon and of its scheduler's thread. It measures the cost of an
/// operation independently of the load of the machine.
pub fn cpu(lab: &Lab) -> (Duration, Duration) {
    proc::cpu_times(lab.daemon_pid()).expect("the daemon runs")
}

/// Returns the total time and the daemon's CPU time per item in microseconds.
pub fn costs(lab: &Lab, count: usize, run: impl FnMut()) -> (Duration, f64) {
    let before = cpu(lab);
    let took = timed(run);
    let used = cpu(lab).0 - before.0;
    (took, used.as_micros() as f64 / count as f64)
}

/// Returns the disk usage of a directory in bytes.
pub fn bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(there) if there.is_dir() => there.blocks() * 512 + bytes(&entry.path()),
        Ok(there) => there.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}
