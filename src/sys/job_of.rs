//! Of which job a process is.

use crate::model::JobId;
use crate::sys::proc::{self, Stat};
use std::collections::HashMap;
use std::path::Path;

/// The job that the daemon of `root` started a process for, by the variables that it got.
fn named_job(pid: i32, root: &Path) -> Option<JobId> {
    let variables = proc::environment(pid)?;
    let get = |name| proc::parse_variable(&variables, name);
    let is_ours = get("SLOTD_ROOT") == Some(root.as_os_str().as_encoded_bytes());
    let job = get("SLURM_JOB_ID").filter(|_| is_ours)?;
    std::str::from_utf8(job).ok()?.parse().ok().map(JobId)
}

/// The job that a process or one of its ancestors was started for by the daemon of `root`.
pub fn job_of(pid: i32, root: &Path) -> Option<JobId> {
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| *pid > 1) {
        if let Some(job) = named_job(pid, root) {
            return Some(job);
        }
        next = proc::stat(pid).map(|stat| stat.ppid);
    }
    None
}

/// The same of a process of which all processes are known, with what was found so far.
pub fn job_among(
    pid: i32,
    stats: &HashMap<i32, Stat>,
    root: &Path,
    known: &mut HashMap<i32, Option<JobId>>,
) -> Option<JobId> {
    let (mut line, mut next) = (Vec::new(), pid);
    let job = loop {
        if let Some(job) = known.get(&next) {
            break *job;
        }
        // A process that ended meanwhile, and one that has become its own ancestor, are nobody's.
        let Some(stat) = stats.get(&next).filter(|_| next > 1 && !line.contains(&next)) else {
            break None;
        };
        line.push(next);
        if let Some(job) = named_job(next, root) {
            break Some(job);
        }
        next = stat.ppid;
    };
    known.extend(line.into_iter().map(|pid| (pid, job)));
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_no_job_started_is_of_none() {
        assert_eq!(job_of(std::process::id().cast_signed(), Path::new("/nowhere")), None);
        assert_eq!(job_of(i32::MAX, Path::new("/nowhere")), None);
    }
}
