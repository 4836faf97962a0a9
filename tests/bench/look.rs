//! The cost of queries, and whether a long history or queue slows them down: each query next to
//! `/bin/true`, with a few jobs, with 100,000 ended and 10,000 pending ones, and with 100,000
//! pending ones. Prints the medians, measured in turn: `cargo bench --bench look`. Then the same
//! for `slotd top`: the time to open it, from a key press to the first output, and from a change of
//! the queue until the screen is complete.

use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, Winsize, openpty};
use slotd_kit::lab::{Lab, summary, timed};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 15;
/// The number of distinct submissions that the jobs are copied from.
const NAMES: u32 = 50;
const DAY: u64 = 24 * 3600;

/// Starts a daemon with this many ended jobs, one percent of them from the last hours, and this
/// many pending ones. A few of each are submitted, and their rows are copied while no daemon runs.
fn lab(history: u32, queue: u32) -> Lab {
    let mut lab = Lab::start(2);
    let name = |i: u32| format!("train-{i}");
    for i in 0..NAMES {
        lab.run("sbatch", &["-W", "-J", &name(i), "-o", "/dev/null", "--wrap", "true"]);
    }
    for i in 0..NAMES {
        lab.run("sbatch", &["-H", "-J", &name(i), "-o", "/dev/null", "--wrap", "true"]);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs();
    let (today, first) = ((since - 3600) * 1_000_000, (since - 90 * DAY) * 1_000_000);
    let past = u64::from(history - history / 100);
    let each = (today - first) / past;
    let sql = format!(
        "BEGIN;
         CREATE TEMP TABLE template AS SELECT job_id, request_id, body FROM jobs;
         DELETE FROM launches;
         DELETE FROM jobs;
         WITH RECURSIVE seq (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM seq WHERE id < {all}),
              at (id, us) AS (SELECT id, iif(id < {past}, {first} + id * {each}, {today} + id % 1000 * 1000000) FROM seq)
         INSERT INTO jobs (job_id, request_id, body)
         SELECT id, request_id, iif(id > {history}, json_set(body, '$.id', id, '$.submit', us),
                json_set(body, '$.id', id, '$.submit', us, '$.run.eligible', us, '$.run.start', us,
                         '$.run.end', us + 20000000))
         FROM at JOIN template ON template.job_id = id % {NAMES} + iif(id > {history}, {NAMES}, 0) + 1;
         COMMIT;",
        all = history + queue,
    );
    lab.while_stopped(|root| {
        let database = root.join("lib/state.db");
        let mut store =
            SqliteConnection::establish(database.to_str().expect("text")).expect("a database");
        store.batch_execute(&sql).expect("the known schema");
    });
    lab
}

/// A screen counts as complete after this time without output.
const QUIET: Duration = Duration::from_millis(400);

/// `slotd top` on a pseudo-terminal.
struct Top {
    terminal: File,
    child: Child,
}

impl Top {
    fn open(lab: &Lab) -> Top {
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
        let mut command = lab.command("top");
        let stream = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.env("LANG", "C.UTF-8").stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: The closure makes two system calls and does not touch memory.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                nix::errno::Errno::result(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
                Ok(())
            });
        }
        Top { terminal: master.into(), child: command.spawn().expect("the program") }
    }

    /// Returns the times of the first and the last byte written before the output pauses.
    fn writes(&mut self, since: Instant) -> (Duration, Duration) {
        let (mut first, mut last) = (None, Duration::ZERO);
        let mut chunk = [0; 64 << 10];
        loop {
            let patience = if first.is_some() { QUIET } else { Duration::from_secs(60) };
            let patience = PollTimeout::try_from(patience).expect("a minute at most");
            let is_there =
                poll(&mut [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)], patience)
                    .expect("poll");
            if is_there == 0 {
                return (first.expect("the screen is drawn"), last);
            }
            let _ = self.terminal.read(&mut chunk).expect("the program runs");
            last = since.elapsed();
            first.get_or_insert(last);
        }
    }

    fn press(&mut self, key: &str) -> (Duration, Duration) {
        let at = Instant::now();
        self.terminal.write_all(key.as_bytes()).expect("the program reads");
        self.writes(at)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures opening, key presses and a change for each of three queues.
fn screens(labs: [&Lab; 3]) {
    println!(
        "\n{:<34} {:>20} {:>16} {:>23}",
        "slotd top, ms", "100 + 10", "100000 + 10000", "100 + 100000"
    );
    let mut times: [[Vec<Duration>; 3]; 4] = Default::default();
    for _ in 0..SCREENS {
        for (i, lab) in labs.into_iter().enumerate() {
            let at = Instant::now();
            let mut top = Top::open(lab);
            times[0][i].push(top.writes(at).1);
            top.press("\t");
            times[1][i].push(top.press("j").0);
            times[2][i].push(top.press("G").0);
            let at = Instant::now();
            lab.run("sbatch", &["-H", "--wrap", "true"]);
            times[3][i].push(top.writes(at).1);
        }
    }
    let names = [
        "open, complete",
        "a key: the next row",
        "a key: the last row",
        "sbatch -H, until displayed",
    ];
    for (name, times) in names.into_iter().zip(times) {
        let [few, many, long] = times.map(|times| summary(times).1);
        println!("{name:<34} {few:20.1} {many:16.1} {long:23.1}");
    }
}

/// The number of times the screen is opened.
const SCREENS: usize = 7;

fn main() {
    let (few, many, long) = (lab(100, 10), lab(100_000, 10_000), lab(100, 100_000));
    let ask = |lab: &Lab, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        lab.run(words[0], &words[1..])
    };
    for (lab, waiting) in [(&many, 10_000), (&long, 100_000)] {
        assert_eq!(ask(lab, "squeue -h -o %i").lines().count(), waiting);
    }
    println!(
        "{:<34} {:>9} {:>10} {:>16} {:>8} {:>14}",
        "ms", "/bin/true", "100 + 10", "100000 + 10000", "ratio", "100 + 100000"
    );
    for (name, line) in [
        ("squeue", "squeue"),
        ("squeue -o %i %j %t (Slurm's form)", "squeue -o %i|%j|%t"),
        ("squeue -j ID", "squeue -j @Q"),
        ("squeue --json", "squeue --json"),
        ("scontrol show job ID", "scontrol show job @Q"),
        ("sacct -j ID", "sacct -j @H"),
        ("sacct (since midnight)", "sacct"),
        ("sacct -S now-6hours", "sacct -S now-6hours"),
        ("sacct -X -S 2000-01-01 (all)", "sacct -X -S 2000-01-01"),
        ("sbatch -H", "sbatch -H --wrap true"),
        ("sinfo", "sinfo"),
    ] {
        let mut times: [Vec<_>; 4] = Default::default();
        for round in 0..ROUNDS {
            let with = |queued: usize, past: usize| {
                line.replace("@Q", &queued.to_string()).replace("@H", &past.to_string())
            };
            let lines = [
                (&few, with(101 + round % 10, 1 + round)),
                (&many, with(100_001 + 600 * round, 1 + 6000 * round)),
                (&long, with(101 + 6000 * round, 1 + round)),
            ];
            times[0].push(timed(|| drop(Command::new("/bin/true").output())));
            for (times, (lab, line)) in times[1..].iter_mut().zip(lines) {
                times.push(timed(|| drop(ask(lab, &line))));
            }
        }
        let [bare, few, many, long] = times.map(|times| summary(times).1);
        println!("{name:<34} {bare:9.2} {few:10.2} {many:16.2} {:7.1}x {long:14.2}", many / few);
    }
    screens([&few, &many, &long]);
}
