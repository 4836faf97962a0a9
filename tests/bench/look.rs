//! What looking costs, and whether a long history or a long queue is felt: each query beside `/bin/true`, once with a few
//! jobs and once with 100,000 ended and 10,000 waiting ones. One run prints them all: `cargo bench --bench look`.

use lab::{Lab, summary, timed};
use slotd::model::change::{Change, Texts};
use slotd::model::job::Hold;
use slotd::model::tres::{Allocation, Usage};
use slotd::model::{Job, JobId, JobRequest, JobState, Timestamp, Tres};
use slotd::store::Store;
use slotd::sys::paths::Paths;
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

mod lab;

const ROUNDS: usize = 15;
/// How many different submissions the jobs come from.
const NAMES: u32 = 50;
const DAY: u64 = 24 * 3600;

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    Timestamp(i64::try_from(since.as_micros()).expect("a near time"))
}

fn job(id: u32, submit: Timestamp, request: &Arc<JobRequest>) -> Job {
    Job {
        id: JobId(id),
        request: Arc::clone(request),
        partition: "cpu".to_owned(),
        tres: Tres { cpus: 1, mem_mb: 512, gpus: 0 },
        priority: 1,
        hold: Hold::User,
        submit,
        ..Job::default()
    }
}

/// A job of 20 seconds that ended well.
fn ended(mut job: Job) -> Job {
    (job.hold, job.run.state) = (Hold::No, JobState::Completed);
    (job.run.eligible, job.run.start, job.run.end) =
        (Some(job.submit), Some(job.submit), Some(job.submit.plus_secs(20)));
    job.run.alloc = Some(Allocation { tres: job.tres, cpu_ids: vec![0], gpu_ids: Vec::new() });
    job.run.usage = Usage { max_rss_kb: 4096, user_us: 1_000_000, system_us: 50_000, ..Usage::default() };
    job
}

/// A daemon with so many ended jobs, a hundredth of them of the last hours, and so many that wait.
fn lab(history: u32, queue: u32) -> Lab {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let database = Paths::new(dir.path().join("root")).db();
    std::fs::create_dir_all(database.parent().expect("a directory")).expect("the runtime root");
    let mut store = Store::open(&database).expect("a database");
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let requests: Vec<Arc<JobRequest>> = (0..NAMES)
        .map(|i| {
            let (name, work_dir) = (format!("train-{i}"), "/tmp".to_owned());
            Arc::new(JobRequest { name, user: user.clone(), work_dir, hold: true, ..JobRequest::default() })
        })
        .collect();
    let (today, first) = (now().0 - 1_000_000 * 3600, now().0 - 1_000_000 * (90 * DAY) as i64);
    let past = i64::from(history - history / 100);
    let jobs = (1..=history + queue).map(|id| {
        let request = &requests[(id % NAMES) as usize];
        let at = match i64::from(id) {
            old if old < past => first + old * ((today - first) / past),
            _ => today + i64::from(id % 1000) * 1_000_000,
        };
        let job = job(id, Timestamp(at), request);
        if id <= history { ended(job) } else { job }
    });
    let changes: Vec<Change> = jobs.map(|job| Change::Insert { job: Box::new(job), texts: Texts::None }).collect();
    for batch in changes.chunks(5000) {
        let results = store.commit(&[batch.to_vec()]);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    drop(store);
    Lab::start_in(dir)
}

fn main() {
    let (few, many) = (lab(100, 10), lab(100_000, 10_000));
    let ask = |lab: &Lab, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        lab.run(words[0], &words[1..])
    };
    assert_eq!(ask(&many, "squeue -h -o %i").lines().count(), 10_000);
    let bare = summary((0..ROUNDS).map(|_| timed(|| drop(Command::new("/bin/true").output()))).collect()).1;
    println!("{:<34} {:>10} {:>14} {:>8}", "", "100 + 10", "100000 + 10000", "ratio");
    println!("{:<34} {bare:7.2} ms", "/bin/true");
    let lines = [
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
    ];
    for (name, line) in lines {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let with =
                |queued: usize, past: usize| line.replace("@Q", &queued.to_string()).replace("@H", &past.to_string());
            let (here, there) = (with(101 + round % 10, 1 + round), with(100_001 + 600 * round, 1 + 6000 * round));
            small.push(timed(|| drop(ask(&few, &here))));
            large.push(timed(|| drop(ask(&many, &there))));
        }
        let ((_, small), (_, large)) = (summary(small), summary(large));
        println!("{name:<34} {small:7.2} ms {large:11.2} ms {:7.1}x", large / small);
    }
}
