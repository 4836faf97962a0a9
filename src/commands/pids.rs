//! `scontrol listpids`: which processes belong to which step.
//!
//! Processes of this user are told by the variables that slotd gave them, and so are their
//! children. A process that was started with another environment by something that has ended is not
//! found.

use crate::model::JobId;
use crate::sys::proc;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub pid: i32,
    pub job: JobId,
    /// `batch`, `0`, …
    pub step: String,
    /// Of the first process of a task: its number on the node and in the step.
    pub rank: Option<(String, String)>,
}

/// The processes of these jobs of the daemon of `root`, by job and number.
pub fn of_jobs(root: &Path, jobs: &[JobId]) -> Vec<Row> {
    let mut own: BTreeMap<i32, Row> = BTreeMap::new();
    for pid in proc::all_pids() {
        let Some(environment) = proc::environment(pid) else { continue };
        if let Some(row) = read(pid, &environment, root.as_os_str().as_encoded_bytes(), jobs) {
            own.insert(pid, row);
        }
    }
    // Only the first process of a task has a rank: what it started inherits its variables.
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

/// What a process's variables say of it; `None` where it is not of these jobs.
fn read(pid: i32, environment: &[u8], root: &[u8], jobs: &[JobId]) -> Option<Row> {
    let get = |name: &str| proc::parse_variable(environment, name);
    let text = |name: &str| get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    let job = JobId(text("SLURM_JOB_ID")?.parse().ok()?);
    if get("SLOTD_ROOT")? != root || !jobs.contains(&job) {
        return None;
    }
    let step = text("SLURM_STEP_ID").unwrap_or_else(|| "batch".to_owned());
    let rank = text("SLURM_LOCALID").zip(text("SLURM_PROCID"));
    Some(Row { pid, job, step, rank })
}

/// The table of Slurm's `scontrol listpids`.
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
    fn a_process_is_told_by_its_variables() {
        let environment = b"A=1\0SLURM_JOB_ID=190\0SLOTD_ROOT=/r\0SLURM_PROCID=3\0SLURM_LOCALID=3\0SLURM_STEP_ID=0\0";
        let row = read(7, environment, b"/r", &[JobId(190)]).expect("it is of job 190");
        assert_eq!((row.step.as_str(), row.rank), ("0", Some(("3".to_owned(), "3".to_owned()))));
        assert_eq!(read(7, environment, b"/other", &[JobId(190)]), None);
        assert_eq!(read(7, environment, b"/r", &[JobId(19)]), None);
        assert_eq!(read(7, b"", b"/r", &[JobId(190)]), None);
    }

    #[test]
    fn the_table_is_slurms() {
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
