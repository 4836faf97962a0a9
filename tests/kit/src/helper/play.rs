//! A job that logs its own start and end:
//! `helper play log=FILE locks=DIR sub=N ms=N code=N …`.
//!
//! It appends a line to the log when it begins and one before it ends. Optional words:
//!
//! - `take=KIND:N/ALL,…`: it takes N of the ALL locks of each kind, one for each unit that it was
//!   allocated. It logs a clash if fewer are free, since then another job uses one of its units. Its
//!   children inherit the locks, so a lock is released only when all processes of the job have
//!   exited;
//! - `gpus=N`: it takes the locks of the N GPUs whose numbers it was given;
//! - `task=N`: the array task, if the environment does not contain it;
//! - `ignore`: SIGTERM is ignored;
//! - `child`: a child is left behind that does not exit by itself;
//! - `lines=N`: this many lines on standard output;
//! - `step=MS,CODE`: an `srun` step first. Logs its exit code, or the fact that a full disk
//!   prevented the step;
//! - `role=step`: this is that step, which takes no locks.
//!
//! The columns of the log: event, submission, array task or `-`, array job ID or job ID, job ID,
//! restarts, PID, start of the process in milliseconds since the boot of the machine, and one more
//! word.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

unsafe extern "C" {
    fn flock(fd: i32, operation: i32) -> i32;
    fn fcntl(fd: i32, command: i32, argument: i32) -> i32;
}

const LOCK_EX_NB: i32 = 2 | 4;
const F_SETFD: i32 = 2;
const SIGTERM: i32 = 15;

/// Errors of srun if a step cannot be stored or launched.
const FULL: [&str; 2] = ["the daemon's database is full", "no space on disk"];

/// The milliseconds per clock tick in /proc. USER_HZ is 100 on all supported machines.
const TICK_MS: u64 = 10;

/// The number of attempts to take a lock. Another job of the same moment may hold a lock briefly
/// while it looks for its own.
const TRIES: u32 = 20;

struct Player<'a> {
    words: BTreeMap<&'a str, &'a str>,
    /// The log columns between the event and the last word.
    who: String,
}

/// Plays the job and returns its exit code.
pub fn play(words: &[String]) -> i32 {
    let words: BTreeMap<&str, &str> =
        words.iter().map(|word| word.split_once('=').unwrap_or((word.as_str(), ""))).collect();
    let player = Player { who: who(&words), words };
    if player.words.contains_key("ignore") {
        // SAFETY: No handler is installed.
        unsafe { super::signal(SIGTERM, super::SIG_IGN) };
    }
    let is_step = player.words.get("role") == Some(&"step");
    let (begin, end) = if is_step { ("step-begin", "step-end") } else { ("begin", "end") };
    player.log(begin, "-");
    player.take_locks();
    if player.words.contains_key("child") {
        leave_child();
    }
    player.run_step();
    for line in 0..player.number("lines") {
        println!("line {line}");
    }
    sleep(Duration::from_millis(player.number("ms")));
    player.log(end, player.words["code"]);
    player.number("code") as i32
}

fn who(words: &BTreeMap<&str, &str>) -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let job = variable("SLURM_JOB_ID").unwrap_or_else(|| "?".to_owned());
    let array = variable("SLURM_ARRAY_JOB_ID").unwrap_or_else(|| job.clone());
    let task = variable("SLURM_ARRAY_TASK_ID")
        .unwrap_or_else(|| words.get("task").unwrap_or(&"-").to_string());
    let restarts = variable("SLURM_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process sees itself");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks: u64 =
        fields.split(' ').nth(19).and_then(|t| t.parse().ok()).expect("stat has a start time");
    format!(
        "{} {task} {array} {job} {restarts} {} {}",
        words["sub"],
        std::process::id(),
        ticks * TICK_MS
    )
}

impl Player<'_> {
    fn number(&self, word: &str) -> u64 {
        self.words
            .get(word)
            .map_or(0, |text| text.parse().unwrap_or_else(|e| panic!("{word}={text}: {e}")))
    }

    /// Appends a line with a single write, so that concurrent lines do not mix.
    fn log(&self, what: &str, more: &str) {
        let mut log = File::options().append(true).open(self.words["log"]).expect("the log");
        log.write_all(format!("{what} {} {more}\n", self.who).as_bytes())
            .expect("a line of the log");
    }

    fn take_locks(&self) {
        let take = self.words.get("take").copied().unwrap_or_default();
        for word in take.split(',').filter(|word| !word.is_empty()) {
            let (kind, numbers) = word.split_once(':').expect("take=KIND:N/ALL");
            let (wanted, all) = numbers.split_once('/').expect("take=KIND:N/ALL");
            let number = |text: &str| text.parse().unwrap_or_else(|e| panic!("{word}: {e}"));
            self.take(kind, number(wanted), number(all));
        }
        let wanted = self.number("gpus") as usize;
        if wanted > 0 {
            let given = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
            let ids: Vec<&str> = given.split(',').filter(|id| !id.is_empty()).collect();
            let held = ids.iter().filter(|id| self.lock(&format!("gpu.{id}"))).count();
            if ids.len() != wanted || held < wanted {
                self.log("clash", &format!("gpus:{held}-of-{wanted}:given:{given}"));
            }
        }
    }

    /// Takes this many of all locks of a kind.
    fn take(&self, kind: &str, wanted: usize, all: usize) {
        let mut held = Vec::new();
        for _ in 0..TRIES {
            for unit in 0..all {
                let is_new = held.len() < wanted && !held.contains(&unit);
                if is_new && self.lock(&format!("{kind}.{unit}")) {
                    held.push(unit);
                }
            }
            if held.len() == wanted {
                return;
            }
            sleep(Duration::from_millis(1));
        }
        self.log("clash", &format!("{kind}:{}-of-{wanted}", held.len()));
    }

    /// Takes a lock that is held until this process and its children have exited.
    fn lock(&self, name: &str) -> bool {
        let path = std::path::Path::new(self.words["locks"]).join(name);
        let file = File::options().create(true).append(true).open(path).expect("a lock file");
        // SAFETY: flock takes two numbers.
        if unsafe { flock(file.as_raw_fd(), LOCK_EX_NB) } != 0 {
            return false;
        }
        // SAFETY: fcntl takes three numbers.
        unsafe { fcntl(file.into_raw_fd(), F_SETFD, 0) };
        true
    }

    fn run_step(&self) {
        let Some((ms, code)) = self.words.get("step").and_then(|step| step.split_once(',')) else {
            return;
        };
        let mut srun = Command::new("srun");
        srun.args(["helper", "play", "role=step"])
            .arg(format!("ms={ms}"))
            .arg(format!("code={code}"));
        srun.args(["log", "locks", "sub"].map(|word| format!("{word}={}", self.words[word])));
        let ended =
            srun.stderr(Stdio::piped()).spawn().and_then(Child::wait_with_output).expect("srun");
        drop(std::io::stderr().write_all(&ended.stderr));
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let code = match ended.status.code() {
            None => "signal".to_owned(),
            Some(1) if FULL.iter().any(|text| stderr.contains(text)) => "full".to_owned(),
            Some(code) => code.to_string(),
        };
        self.log("saw", &code);
    }
}

/// Leaves a child in the job's session that runs until it is killed.
fn leave_child() {
    // SAFETY: This process has a single thread, and the child only sleeps.
    if unsafe { super::fork() } == 0 {
        sleep(Duration::from_secs(100_000));
        std::process::exit(0);
    }
}
