//! The states of jobs of a cluster, from the outputs of squeue, sacct and scontrol.

/// The known state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has not ended.
    Active(String),
    /// It has ended, with this state and the exit code of its worst task. `at`: when its last task
    /// ended, in seconds since 1970, if the cluster reports it.
    Ended { state: String, code: u8, at: Option<i64> },
    /// It is unknown to all commands. The controller has answered, and so has sacct unless the
    /// cluster has no accounting.
    Unknown,
    /// It is unknown to all commands that answered, but a command that failed may know it.
    Unanswered,
}

/// States of jobs that have ended, as Slurm names them.
pub const ENDED: [&str; 10] = [
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "REVOKED",
];

/// A line about a job: its ID, its state, and its exit code if known.
struct Row<'a> {
    id: &'a str,
    state: &'a str,
    exit: Option<&'a str>,
    /// When it ended, in UTC.
    end: Option<&'a str>,
}

/// Returns the state of each job in the output of the program that queries them.
pub fn read(out: &[u8], ids: &[String]) -> Vec<Standing> {
    let text = String::from_utf8_lossy(out);
    let (mut queue, mut accounts, mut control) = (Vec::new(), Vec::new(), Vec::new());
    let has_line = |name: &str| text.lines().any(|line| line == name);
    let is_whole = (has_line("squeue") || has_line("scontrol")) && has_line("sacct");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("squeue|") {
            let mut parts = rest.split('|');
            if let (Some(id), Some(_), Some(state)) = (parts.next(), parts.next(), parts.next()) {
                queue.push(Row { id, state, exit: None, end: None });
            }
        } else if let Some(rest) = line.strip_prefix("sacct|") {
            let mut parts = rest.split('|');
            if let (Some(id), Some(state)) = (parts.next(), parts.next()) {
                accounts.push(Row { id, state, exit: parts.next(), end: parts.next() });
            }
        } else if let Some(rest) = line.strip_prefix("scontrol|") {
            let value = |key: &str| rest.split(' ').find_map(|word| word.strip_prefix(key));
            let array = value("ArrayJobId=").zip(value("ArrayTaskId="));
            if let (Some(id), Some(state)) = (value("JobId="), value("JobState=")) {
                let (exit, end) = (value("ExitCode="), value("EndTime="));
                control.push((array, Row { id, state, exit, end }));
            }
        }
    }
    let of = |id: &String| match standing(id, &queue, &accounts, &control) {
        Standing::Unknown if !is_whole => Standing::Unanswered,
        standing => standing,
    };
    ids.iter().map(of).collect()
}

/// A line of scontrol with the array and the index of the task.
type Controlled<'a> = (Option<(&'a str, &'a str)>, Row<'a>);

fn standing(
    id: &str,
    queue: &[Row<'_>],
    accounts: &[Row<'_>],
    control: &[Controlled<'_>],
) -> Standing {
    let of = |rows: &[&Row<'_>]| {
        let active = rows.iter().find(|row| !has_ended(row.state));
        active.map(|row| Standing::Active(row.state.to_owned()))
    };
    let queued: Vec<&Row<'_>> = queue.iter().filter(|row| is_of(row.id, id)).collect();
    if let Some(active) = of(&queued) {
        return active;
    }
    let accounted: Vec<&Row<'_>> = accounts.iter().filter(|row| is_of(row.id, id)).collect();
    // sacct learns the tasks of an array one by one, and the last may have the highest exit code.
    let is_accounted = |task: &&&Row<'_>| accounted.iter().any(|row| row.id == task.id);
    let mut tasks = queued.iter().filter(|row| row.id.contains('_'));
    if !accounted.is_empty()
        && let Some(late) = tasks.find(|task| !is_accounted(task))
    {
        return Standing::Active(late.state.to_owned());
    }
    let is_task = |array: &Option<(&str, &str)>| {
        array.is_some_and(|(array, task)| array == id || id == format!("{array}_{task}"))
    };
    let controlled: Vec<&Row<'_>> = control
        .iter()
        .filter(|(array, row)| is_of(row.id, id) || is_task(array))
        .map(|(_, row)| row)
        .collect();
    let rows = if accounted.is_empty() { controlled } else { accounted };
    if let Some(active) = of(&rows) {
        return active;
    }
    match rows.iter().max_by_key(|row| code(row)) {
        Some(row) => Standing::Ended {
            state: row.state.to_owned(),
            code: code(row),
            at: rows.iter().filter_map(|row| seconds(row.end?)).max(),
        },
        // squeue still shows it, so its exit code will be reported later.
        None => match queued.first() {
            Some(row) => Standing::Active(row.state.to_owned()),
            None => Standing::Unknown,
        },
    }
}

/// `CANCELLED by 1000` is also an end.
fn has_ended(state: &str) -> bool {
    let first = state.split([' ', '+']).next().unwrap_or_default();
    ENDED.contains(&first)
}

/// Returns whether a row's ID (`17`, `17_3`, `17_[4-9]`, `17+1`) belongs to the named job or array
/// task. The components of a heterogeneous job (`17+1`) belong to its first.
fn is_of(row: &str, id: &str) -> bool {
    let row = row.split('+').next().unwrap_or_default();
    let (job, task) = row.split_once('_').unwrap_or((row, ""));
    match id.split_once('_') {
        None => job == id,
        Some((array, _)) => row == id || job == array && task.starts_with('['),
    }
}

/// Parses a time such as `2026-11-23T08:24:03` in UTC. Returns seconds since 1970.
fn seconds(time: &str) -> Option<i64> {
    let time: jiff::civil::DateTime = time.parse().ok()?;
    Some(jiff::tz::TimeZone::UTC.to_timestamp(time).ok()?.as_second())
}

/// Returns the exit code of a command that waits: 0 for a completed job, otherwise its exit code,
/// or 1 if a signal or Slurm ended it.
fn code(row: &Row<'_>) -> u8 {
    let status = row.exit.and_then(|exit| exit.split(':').next()?.parse::<u32>().ok()).unwrap_or(0);
    match (row.state, status) {
        ("COMPLETED", _) => 0,
        (_, 0) => 1,
        (_, status) => u8::try_from(status & 0xff).unwrap_or(1).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standings(out: &str, ids: &[&str]) -> Vec<Standing> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        read(out.as_bytes(), &ids)
    }

    fn ended(state: &str, code: u8) -> Standing {
        Standing::Ended { state: state.to_owned(), code, at: None }
    }

    #[test]
    fn the_end_is_that_of_the_last_task() {
        let out = "sacct|7_1|COMPLETED|0:0|1970-01-02T00:00:00\nsacct|7_2|FAILED|3:0|1970-01-02T00:00:09\n\
            sacct|8|FAILED|1:0|Unknown\nscontrol|JobId=9 JobState=COMPLETED EndTime=1970-01-01T00:01:00 ExitCode=0:0\n";
        let at = |id| match standings(out, &[id]).remove(0) {
            Standing::Ended { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert_eq!([at("7"), at("8"), at("9")], [Some(86_409), None, Some(60)]);
    }

    #[test]
    fn squeue_counts_before_sacct_and_sacct_before_scontrol() {
        let out = "squeue\nsqueue|17|17|RUNNING|\nsqueue|20|20|COMPLETED|\nsacct\nsacct|17|FAILED|1:0\nsacct|18|FAILED|7:0\n\
            sacct|21|RUNNING|0:0\nscontrol|JobId=19 JobName=x JobState=COMPLETED Reason=None ExitCode=0:0\n";
        assert_eq!(
            standings(out, &["17", "18", "19", "20", "21", "22"]),
            [
                Standing::Active("RUNNING".into()),
                ended("FAILED", 7),
                ended("COMPLETED", 0),
                Standing::Active("COMPLETED".into()),
                Standing::Active("RUNNING".into()),
                Standing::Unknown,
            ]
        );
    }

    #[test]
    fn a_job_is_unknown_only_if_controller_and_accounting_have_answered() {
        let of = |out: &str| standings(out, &["17"]).remove(0);
        for out in ["", "squeue\n", "scontrol\n", "squeue\nscontrol\n", "sacct\n"] {
            assert_eq!(of(out), Standing::Unanswered, "{out}");
        }
        for out in ["squeue\nsacct\n", "sacct\nscontrol\n"] {
            assert_eq!(of(out), Standing::Unknown, "{out}");
        }
    }

    /// Runs the query with these commands of Slurm.
    fn answered(commands: [&str; 3], ids: &[&str]) -> Vec<Standing> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in ["squeue", "sacct", "scontrol"].iter().zip(commands) {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(String::from_utf8(crate::clusters::program::states(&ids)).unwrap())
            .env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()))
            .output()
            .unwrap();
        read(&output.stdout, &ids)
    }

    #[test]
    fn a_command_that_refuses_the_id_has_answered_and_one_that_fails_has_not() {
        let invalid = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
        let down = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1";
        let empty = "exit 0";
        let all_down = answered([down, down, down], &["17", "18"]);
        assert_eq!(all_down, [Standing::Unanswered, Standing::Unanswered]);
        assert_eq!(answered([down, empty, down], &["17"]), [Standing::Unanswered]);
        assert_eq!(answered([invalid, down, invalid], &["17"]), [Standing::Unanswered]);
        assert_eq!(answered([invalid, empty, invalid], &["17"]), [Standing::Unknown]);
        assert_eq!(answered([down, empty, invalid], &["17"]), [Standing::Unknown]);
        let disabled = "echo 'Slurm accounting storage is disabled' >&2; exit 1";
        for none in [disabled, "exit 126", "exit 127"] {
            assert_eq!(answered([invalid, none, invalid], &["17"]), [Standing::Unknown], "{none}");
        }
        let running = "echo '|17|17|RUNNING|'; echo 'squeue: a warning' >&2";
        let mixed = answered([running, "echo '18|FAILED|3:0'", down], &["17", "18"]);
        assert_eq!(mixed, [Standing::Active("RUNNING".into()), ended("FAILED", 3)]);
    }

    #[test]
    fn a_heterogeneous_job_ends_with_its_last_component() {
        let running = "squeue\nsqueue|78+0|78|COMPLETED|\nsqueue|78+1|78|RUNNING|\n";
        assert_eq!(standings(running, &["78"]), [Standing::Active("RUNNING".into())]);
        let over = "squeue\nsacct\nsacct|78+0|COMPLETED|0:0\nsacct|78+1|FAILED|3:0\n";
        assert_eq!(standings(over, &["78", "7"]), [ended("FAILED", 3), Standing::Unknown]);
    }

    #[test]
    fn an_array_ends_with_its_last_task_and_its_worst_code() {
        let pending = "squeue|44_[2-9]|44|PENDING|\nsacct|44_1|COMPLETED|0:0\n";
        assert_eq!(
            standings(pending, &["44", "44_1", "44_3"])[0],
            Standing::Active("PENDING".into())
        );
        assert_eq!(standings(pending, &["44_3"]), [Standing::Active("PENDING".into())]);
        let over =
            "sacct|44_1|COMPLETED|0:0\nsacct|44_2|FAILED|3:0\nsacct|44_3|CANCELLED by 1000|0:15\n";
        assert_eq!(
            standings(over, &["44", "44_1", "44_3"]),
            [ended("FAILED", 3), ended("COMPLETED", 0), ended("CANCELLED by 1000", 1)]
        );
        // sacct has no record of the last task yet.
        let late = "squeue\nsqueue|44_1|44|COMPLETED|\nsqueue|44_2|44|FAILED|\nsacct\nsacct|44_1|COMPLETED|0:0\n";
        assert_eq!(
            standings(late, &["44", "44_1"]),
            [Standing::Active("FAILED".into()), ended("COMPLETED", 0)]
        );
        let control = "squeue\nsacct\nscontrol|JobId=46 ArrayJobId=44 ArrayTaskId=2 JobState=FAILED ExitCode=3:0\n";
        assert_eq!(
            standings(control, &["44", "44_2", "4"]),
            [ended("FAILED", 3), ended("FAILED", 3), Standing::Unknown]
        );
    }
}
