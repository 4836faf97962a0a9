//! How a process, a step or a job ended.

use crate::node::HostFault;
use crate::tres::Usage;
use crate::{ClockBase, StepId, Timestamp, counted, is_default};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An exit status and a signal, printed `status:signal` as in sacct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExitCode {
    pub status: i32,
    pub signal: i32,
}

impl ExitCode {
    pub const OK: ExitCode = ExitCode { status: 0, signal: 0 };

    /// The code of a job whose files could not be opened (Slurm: `0:53`).
    pub const LAUNCH_FAILED: ExitCode = ExitCode { status: 0, signal: 53 };

    /// The code of a job or step that ran out of memory (Slurm: `0:125`).
    pub const OUT_OF_MEMORY: ExitCode = ExitCode { status: 0, signal: 125 };

    /// The code of a job whose node went down (Slurm: `0:1`).
    pub const NODE_FAILED: ExitCode = ExitCode { status: 0, signal: 1 };

    pub fn status(status: i32) -> Self {
        ExitCode { status, signal: 0 }
    }

    pub fn signal(signal: i32) -> Self {
        ExitCode { status: 0, signal }
    }

    pub fn is_success(self) -> bool {
        self == Self::OK
    }

    /// Returns the code that a shell would report: the status, or 128 plus the signal.
    pub fn as_shell(self) -> i32 {
        if self.signal != 0 { 128 + self.signal } else { self.status }
    }

    /// Returns the worse code. A signal is worse than any status, and otherwise the higher number is
    /// worse. A step with several tasks returns the worst code (srun man page).
    pub fn worse(self, other: ExitCode) -> ExitCode {
        let rank = |code: ExitCode| (code.signal, code.status);
        if rank(other) > rank(self) { other } else { self }
    }

    /// Returns the code that Slurm derives for a job from two of its steps. It compares the numbers
    /// of wait(2), in which any status is higher than any signal. Out of memory is above all.
    pub fn derived_with(self, step: ExitCode) -> ExitCode {
        let rank = |code: ExitCode| (code == Self::OUT_OF_MEMORY, code.status, code.signal);
        if rank(step) > rank(self) { step } else { self }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.status, self.signal)
    }
}

/// How the processes of a step ended, and the resources they used. The step's watcher writes it as
/// JSON into the job directory and sends it to the daemon. The scheduler, and a client that waits
/// for the step, use it unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitRecord {
    /// The run that it belongs to, so that an old record does not count for a requeued job.
    pub run: u32,
    /// The worst exit code of the tasks.
    pub exit: ExitCode,
    /// Resource use of all processes of the step, including orphaned ones.
    pub usage: Usage,
    pub started: Timestamp,
    pub ended: Timestamp,
    /// The clocks at the end, which show how far the wall clock had jumped by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockBase>,
    /// The kernel's OOM killer ended a process in the step's cgroup. For a batch step: a process in
    /// the job's cgroup, at the job's limit.
    pub oom: bool,
    /// The step's own time limit was reached, or the job's limit while the step ran.
    pub timed_out: bool,
    /// The step did not end by itself: the job or the step was cancelled or requeued, a limit was
    /// reached, or a task failed (srun man page, `--kill-on-bad-exit`).
    pub stopped: bool,
    /// The UID of the user who cancelled the job. The daemon stores it too, unless it dies before
    /// that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// The watcher ended the step because its client disappeared.
    pub client_gone: bool,
    /// The reason why no task was started. The job is FAILED with the reason JobLaunchFailure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_error: Option<String>,
    /// The fault of the host that kept the tasks from starting. No process of the user has run, so
    /// the job is launched again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_fault: Option<HostFault>,
    /// The number of processes that the tasks left behind when they exited by themselves. They were
    /// killed.
    #[serde(skip_serializing_if = "is_default")]
    pub left_over: u32,
    /// Exit codes by rank.
    pub tasks: Vec<ExitCode>,
}

/// The traces of a launch in its job's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub step: StepId,
    pub run: u32,
    /// `None` if the launch has not ended, or if its watcher died.
    pub ended: Option<ExitRecord>,
}

impl ExitRecord {
    /// Describes the leftover processes, if there were any.
    pub fn left_over_in_words(&self) -> Option<String> {
        (self.left_over > 0)
            .then(|| format!("killed {}", counted(self.left_over, "leftover process")))
    }

    /// Creates the record of processes that have ended, with nothing else known about them.
    pub fn gone(exit: ExitCode, at: Timestamp) -> Self {
        ExitRecord { exit, started: at, ended: at, ..ExitRecord::default() }
    }

    /// Adds the host's fault, if one made the launch fail.
    #[must_use]
    pub fn by_host(self, host_fault: Option<HostFault>) -> Self {
        ExitRecord { host_fault, ..self }
    }

    /// Creates the record of processes that could not be started.
    pub fn launch_failed(why: String, at: Timestamp) -> Self {
        ExitRecord { launch_error: Some(why), ..ExitRecord::gone(ExitCode::LAUNCH_FAILED, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values were recorded with Slurm 22.05.
    #[test]
    fn a_derived_exit_code_is_the_highest_of_the_steps() {
        let (code, signal) = (ExitCode::status, ExitCode::signal);
        for (steps, derived) in [
            (&[code(3), code(2)][..], code(3)),
            (&[signal(9)], signal(9)),
            (&[signal(9), code(1)], code(1)),
            (&[code(1), signal(9)], code(1)),
            (&[signal(15), signal(9)], signal(15)),
            (&[code(137), code(0)], code(137)),
            (&[code(5), ExitCode::OUT_OF_MEMORY, code(7)], ExitCode::OUT_OF_MEMORY),
            (&[], code(0)),
        ] {
            let all = steps.iter().fold(ExitCode::OK, |derived, step| derived.derived_with(*step));
            assert_eq!(all, derived, "{steps:?}");
        }
    }

    /// The values were recorded with Slurm 22.05.
    #[test]
    fn a_step_returns_the_highest_signal_or_else_the_highest_status() {
        let (code, signal) = (ExitCode::status, ExitCode::signal);
        for (tasks, returned) in [
            (&[code(3), code(0)][..], 3),
            (&[code(137), code(3)], 137),
            (&[code(3), signal(9)], 137),
            (&[signal(15), signal(9)], 143),
            (&[code(200), signal(9)], 137),
            (&[signal(9), code(138)], 137),
            (&[signal(9), code(200), signal(15), code(250)], 143),
            (&[], 0),
        ] {
            let worst = tasks.iter().fold(ExitCode::OK, |worst, task| worst.worse(*task));
            assert_eq!(worst.as_shell(), returned, "{tasks:?}");
        }
    }

    /// Watchers outlive an upgrade of the daemon, and so do the records that they wrote.
    #[test]
    fn records_of_older_versions_are_read() {
        let text = r#"{"run":2,"exit":{"status":0,"signal":53},"usage":{"user_us":5,"system_us":6,"max_rss_kb":7},"started":7,"ended":9,"oom":false,
            "timed_out":true,"stopped":false,"launch_error":"no","tasks":[{"status":3,"signal":0}]}"#;
        let record: ExitRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.run, record.exit, record.timed_out), (2, ExitCode::LAUNCH_FAILED, true));
        assert_eq!((record.usage.user_us, record.launch_error.as_deref()), (5, Some("no")));
        assert_eq!(record.tasks, [ExitCode::status(3)]);
        assert_eq!(serde_json::from_str::<ExitRecord>("{}").unwrap(), ExitRecord::default());
    }
}
