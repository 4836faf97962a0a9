//! Measures the CPU time used by processes outside of jobs: all CPU time minus that of the
//! processes of jobs.
//!
//! Both are kernel counters that are sampled twice. The CPU time of a job's children is included
//! after they have been waited for, so that short-lived ones are not missed. If a job ends between
//! the two samples, its CPU time is attributed to other processes.

use crate::{aside, job_of, proc, system};
use slotd_model::JobId;
use slotd_model::cpu_use::CpuReading;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between the two samples, long enough to ignore processes that only wake up now and
/// then.
const WINDOW: Duration = Duration::from_secs(1);

/// The CPU time used until a point in time, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    at: Instant,
    cpus: BTreeMap<u32, u64>,
    jobs: HashMap<JobId, u64>,
}

/// Parses the busy time of each CPU, in microseconds, from the text of `/proc/stat`. Waiting for a
/// disk is not counted, nor is the time taken by the host of a virtual machine (steal).
pub(super) fn parse_busy(stat: &str, tick_us: u64) -> BTreeMap<u32, u64> {
    let busy = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq. Guest time is included in user and nice.
        let work: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum();
        Some((cpu, work.saturating_mul(tick_us)))
    };
    stat.lines().filter_map(busy).collect()
}

/// Returns the CPU time used by each job of the daemon of `root`, including children that have
/// ended.
fn used_by_jobs(root: &Path) -> HashMap<JobId, u64> {
    let stats: HashMap<i32, proc::Stat> =
        proc::all_pids().into_iter().filter_map(|pid| Some((pid, proc::stat(pid)?))).collect();
    let mut known = HashMap::new();
    let mut used: HashMap<JobId, u64> = HashMap::new();
    for (pid, stat) in &stats {
        if let Some(job) = job_of::job_among(*pid, &stats, root, &mut known) {
            *used.entry(job).or_default() += stat.used.user_us.saturating_add(stat.used.system_us);
        }
    }
    used
}

fn sample(root: &Path) -> io::Result<Sample> {
    let jobs = used_by_jobs(root);
    let text = std::fs::read_to_string("/proc/stat")?;
    let tick_us = 1_000_000 / system::ticks_per_sec().max(1);
    Ok(Sample { at: Instant::now(), cpus: parse_busy(&text, tick_us), jobs })
}

/// Returns the use of these CPUs by processes outside of jobs between two samples.
fn between(first: &Sample, second: &Sample, cpus: &BTreeSet<u32>) -> CpuReading {
    let window_us = second.at.saturating_duration_since(first.at).as_micros().max(1);
    let hundredths = |us: u64| u32::try_from(u128::from(us) * 100 / window_us).unwrap_or(u32::MAX);
    let grown = |now: u64, before: Option<&u64>| now.saturating_sub(before.copied().unwrap_or(now));
    let busy: BTreeMap<u32, u64> = second
        .cpus
        .iter()
        .filter(|(cpu, _)| cpus.contains(cpu))
        .map(|(cpu, us)| (*cpu, grown(*us, first.cpus.get(cpu))))
        .collect();
    // A job that started between the samples had used nothing before.
    let by_jobs: u64 = second
        .jobs
        .iter()
        .map(|(job, us)| us.saturating_sub(first.jobs.get(job).copied().unwrap_or(0)))
        .sum();
    CpuReading {
        used_centi: hundredths(busy.values().sum::<u64>().saturating_sub(by_jobs)),
        busy: busy.into_iter().map(|(cpu, us)| (cpu, hundredths(us))).collect(),
    }
}

/// Measures the use of these CPUs by processes that are not jobs of the daemon of `root`. Takes a
/// second.
///
/// # Errors
/// Fails if the kernel's counters cannot be read.
pub async fn read(root: PathBuf, cpus: BTreeSet<u32>) -> io::Result<CpuReading> {
    if let Some(file) = pretended() {
        return Ok(parse_pretended(&std::fs::read_to_string(file)?));
    }
    let sample = |root: PathBuf| async move {
        let looked =
            aside::run("reading the use of the CPUs", aside::PATIENCE, move || sample(&root)).await;
        looked.map_err(io::Error::other)?
    };
    let first = sample(root.clone()).await?;
    tokio::time::sleep(WINDOW).await;
    Ok(between(&first, &sample(root).await?, &cpus))
}

/// Returns the file that replaces the measurement in tests of the daemon. Each of its lines holds a
/// CPU number and a percentage.
#[cfg(debug_assertions)]
fn pretended() -> Option<PathBuf> {
    std::env::var_os("SLOTD_TEST_CPU_USE").map(PathBuf::from)
}

#[cfg(not(debug_assertions))]
const fn pretended() -> Option<PathBuf> {
    None
}

fn parse_pretended(text: &str) -> CpuReading {
    let busy: Vec<(u32, u32)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(cpu, percent)| Some((cpu.parse().ok()?, percent.parse().ok()?)))
        .collect();
    CpuReading { used_centi: busy.iter().map(|(_, percent)| percent).sum(), busy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn busy_time_per_cpu_excludes_waiting() {
        let stat =
            "cpu  9 9 9 9\ncpu0 10 20 30 1000 500 4 6 77 3 3\ncpu12 1 0 0 5\nintr 5\nbtime 1\n";
        assert_eq!(parse_busy(stat, 10), BTreeMap::from([(0, 700), (12, 10)]));
    }

    #[test]
    fn the_use_of_jobs_and_other_cpus_is_excluded() {
        let at = Instant::now();
        let sample = |secs: u64, cpus: [u64; 3], jobs: &[(u32, u64)]| Sample {
            at: at + Duration::from_secs(secs),
            cpus: (0..).zip(cpus.map(|ms| ms * 1000)).collect(),
            jobs: jobs.iter().map(|(job, ms)| (JobId(*job), ms * 1000)).collect(),
        };
        let first = sample(0, [100, 0, 0], &[(1, 5000), (2, 900)]);
        // Job 2 has ended and job 3 has started.
        let second = sample(2, [2100, 1500, 2000], &[(1, 6000), (3, 500)]);
        let seen = between(&first, &second, &BTreeSet::from([0, 1]));
        assert_eq!(seen, CpuReading { used_centi: 100, busy: vec![(0, 100), (1, 75)] });
        assert_eq!(seen.busiest(), [0, 1]);
        let idle = between(&first, &sample(2, [100, 0, 0], &[(1, 9000)]), &BTreeSet::from([0]));
        assert_eq!(idle.used_centi, 0);
    }

    #[test]
    fn the_use_of_a_job_includes_ended_children() {
        let root = Path::new("/a/root/of/this/test");
        let mut job = Command::new("sh")
            .args([
                "-c",
                // Nothing is executed after `read`: during an exec, the process would have no
                // environment.
                "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo; read end",
            ])
            .env("SLOTD_ROOT", root)
            .env("SLURM_JOB_ID", "7")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        io::Read::read_exact(job.stdout.as_mut().unwrap(), &mut line).unwrap();
        let used = used_by_jobs(root);
        job.kill().unwrap();
        job.wait().unwrap();
        assert!(used.len() == 1 && used[&JobId(7)] >= 10_000, "{used:?}");
        assert!(used_by_jobs(Path::new("/another")).is_empty());
    }
}
