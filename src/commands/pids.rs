//! `scontrol listpids`: lists the processes of each step.
//!
//! Recognizes processes of this user by the variables that slotd sets, and includes their
//! descendants. A process without these variables is not found once its parent has ended.

use slotd_model::JobId;
use slotd_sys::paths::is_root_of;
use slotd_sys::proc;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub pid: i32,
    pub job: JobId,
    /// `batch`, `0`, …
    pub step: String,
    /// The numbers of its task on the node and in the step. Only the first process of a task has
    /// them.
    pub rank: Option<(String, String)>,
}

/// Returns the processes of these jobs of the daemon of `root`, sorted by job and step.
pub fn of_jobs(root: &Path, jobs: &[JobId]) -> Vec<Row> {
    let mut own: BTreeMap<i32, Row> = BTreeMap::new();
    for pid in proc::all_pids() {
        let Some(environment) = proc::environment(pid) else { continue };
        if let Some(row) = read(pid, &environment, root, jobs) {
            own.insert(pid, row);
        }
    }
    // Only the first process of a task has a rank. Its children inherit the variables.
    let known: HashSet<i32> = own.keys().copied().collect();
    let mut rows: BTreeMap<i32, Row> = BTreeMap::new();
    for (pid, mut row) in own {
        let parent = proc::stat(pid).map_or(0, |stat| stat.ppid);
        if known.contains(&parent) {
            row.rank = None;
        }
        for child in proc::descendants(pid) {
            rows.entry(child).or_insert_with(|| Row { pid: child, rank: None, ..row.clone() });
        }
        rows.insert(pid, row);
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by(|a, b| (a.job, &a.step, a.pid).cmp(&(b.job, &b.step, b.pid)));
    rows
}

/// Reads a process's job and step from its variables. Returns `None` if it belongs to none of these
/// jobs.
fn read(pid: i32, environment: &[u8], root: &Path, jobs: &[JobId]) -> Option<Row> {
    let get = |name: &str| proc::parse_variable(environment, name);
    let text = |name: &str| get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    let job = JobId(text("SLURM_JOB_ID")?.parse().ok()?);
    let named = Path::new(OsStr::from_bytes(get("SLOTD_ROOT")?));
    if !jobs.contains(&job) || !is_root_of(pid, named, root) {
        return None;
    }
    let step = text("SLURM_STEP_ID").unwrap_or_else(|| "batch".to_owned());
    let rank = text("SLURM_LOCALID").zip(text("SLURM_PROCID"));
    Some(Row { pid, job, step, rank })
}

/// Returns the table of Slurm's `scontrol listpids`.
pub fn table(rows: &[Row]) -> String {
    let line = |pid: &str, job: &str, step: &str, local: &str, global: &str| {
        format!("{pid:<8} {job:<8} {step:<8} {local:<7} {global:<8}\n")
    };
    let mut out = "PID      JOBID    STEPID   LOCALID GLOBALID\n".to_owned();
    for row in rows {
        let (local, global) =
            row.rank.as_ref().map_or(("-", "-"), |(local, global)| (local, global));
        out.push_str(&line(&row.pid.to_string(), &row.job.to_string(), &row.step, local, global));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_recognized_by_their_variables() {
        let environment = b"A=1\0SLURM_JOB_ID=190\0SLOTD_ROOT=/r\0SLURM_PROCID=3\0SLURM_LOCALID=3\0SLURM_STEP_ID=0\0";
        let root = Path::new("/r");
        let row = read(7, environment, root, &[JobId(190)]).expect("it belongs to job 190");
        assert_eq!((row.step.as_str(), row.rank), ("0", Some(("3".to_owned(), "3".to_owned()))));
        assert_eq!(read(7, environment, Path::new("/other"), &[JobId(190)]), None);
        assert_eq!(read(7, environment, root, &[JobId(19)]), None);
        assert_eq!(read(7, b"", root, &[JobId(190)]), None);
    }

    #[test]
    fn table_matches_slurm() {
        let row = |pid, rank| Row { pid, job: JobId(190), step: "batch".to_owned(), rank };
        let rows = [row(19763, Some(("0".to_owned(), "0".to_owned()))), row(19764, None)];
        assert_eq!(
            table(&rows),
            "PID      JOBID    STEPID   LOCALID GLOBALID\n\
             19763    190      batch    0       0       \n\
             19764    190      batch    -       -       \n"
        );
    }
}
