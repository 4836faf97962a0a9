//! Finds the job that a process belongs to.

use crate::paths::is_root_of;
use crate::proc::{self, Stat};
use slotd_model::JobId;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the job from the process's environment, if the daemon of `root` started it.
fn named_job(pid: i32, root: &Path) -> Option<JobId> {
    let variables = proc::environment(pid)?;
    let get = |name| proc::parse_variable(&variables, name);
    let is_ours = |named: &[u8]| is_root_of(pid, Path::new(OsStr::from_bytes(named)), root);
    // Examine the root only for processes of a job.
    let job = get("SLURM_JOB_ID").filter(|_| get("SLOTD_ROOT").is_some_and(is_ours))?;
    std::str::from_utf8(job).ok()?.parse().ok().map(JobId)
}

/// Returns the job of the daemon of `root` to which a process or one of its ancestors belongs.
pub(crate) fn job_of(pid: i32, root: &Path) -> Option<JobId> {
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| *pid > 1) {
        if let Some(job) = named_job(pid, root) {
            return Some(job);
        }
        next = proc::stat(pid).map(|stat| stat.ppid);
    }
    None
}

/// Like [`job_of`], but uses the given statistics of all processes and caches the results in
/// `known`.
pub(crate) fn job_among(
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
        // A process that has ended, and a process that appears to be its own ancestor, belong to no
        // job.
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
    fn a_process_outside_of_jobs_has_no_job() {
        assert_eq!(job_of(std::process::id().cast_signed(), Path::new("/nowhere")), None);
        assert_eq!(job_of(i32::MAX, Path::new("/nowhere")), None);
    }
}
