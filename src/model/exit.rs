//! How a process, a step or a job ended.

use crate::model::node::HostFault;
use crate::model::tres::Usage;
use crate::model::{ClockBase, StepId, Timestamp, is_default};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Exit status and signal, printed `status:signal` as sacct does.
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

    /// What a shell would show for it: the status, or 128 and the signal.
    pub fn as_shell(self) -> i32 {
        if self.signal != 0 { 128 + self.signal } else { self.status }
    }

    /// The worse of two, by the shell's number: what a step with several tasks returns.
    pub fn worse(self, other: ExitCode) -> ExitCode {
        if other.as_shell() > self.as_shell() { other } else { self }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.status, self.signal)
    }
}

/// How the processes of a step ended, and what they used. The process that watches them writes it
/// into the job directory, as JSON, and sends it to the daemon; the scheduler takes it as it is,
/// and so does the client that waits for the step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExitRecord {
    /// Of which run: an old record does not count for a requeued job.
    pub run: u32,
    /// The worst of the tasks.
    pub exit: ExitCode,
    /// Over all processes of the step, those that left their parents included.
    pub usage: Usage,
    pub started: Timestamp,
    pub ended: Timestamp,
    /// The clocks at the end: by what the wall clock had jumped until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockBase>,
    /// The kernel killed a process of the step's cgroup for its memory; of a batch step, of the
    /// job's for the job's limit.
    pub oom: bool,
    /// The step's own time limit was reached, or its job's while it ran.
    pub timed_out: bool,
    /// The step did not end by itself: its job or the step was cancelled or requeued, its limit was
    /// reached, or a task of it failed (srun man page, `--kill-on-bad-exit`).
    pub stopped: bool,
    /// The watcher ended the step, since its client was gone.
    pub client_gone: bool,
    /// Why no task was started: state FAILED, reason JobLaunchFailure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_error: Option<String>,
    /// It was the host that could not start any, and no process of the user has run: the job is to
    /// be launched again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_fault: Option<HostFault>,
    /// Processes that its tasks left behind when they had ended by themselves. They were killed.
    #[serde(skip_serializing_if = "is_default")]
    pub left_over: u32,
    /// By rank.
    pub tasks: Vec<ExitCode>,
}

/// What a launch has left in its job's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub step: StepId,
    pub run: u32,
    /// `None`: it has not ended, or its watcher died.
    pub ended: Option<ExitRecord>,
}

impl ExitRecord {
    /// What was left behind, in words.
    pub fn left_over_in_words(&self) -> Option<String> {
        match self.left_over {
            0 => None,
            1 => Some("1 process was left over at its end, and was killed".to_owned()),
            n => Some(format!("{n} processes were left over at its end, and were killed")),
        }
    }

    /// Of processes that are gone at this moment, of which no more is known than this.
    pub fn gone(exit: ExitCode, at: Timestamp) -> Self {
        ExitRecord { exit, started: at, ended: at, ..ExitRecord::default() }
    }

    /// The same, of a launch that failed by this fault of the host, if it did.
    #[must_use]
    pub fn by_host(self, host_fault: Option<HostFault>) -> Self {
        ExitRecord { host_fault, ..self }
    }

    /// Of processes that could not be started.
    pub fn launch_failed(why: String, at: Timestamp) -> Self {
        ExitRecord { launch_error: Some(why), ..ExitRecord::gone(ExitCode::LAUNCH_FAILED, at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watchers outlive an upgrade of the daemon, and so do the records that they wrote.
    #[test]
    fn what_an_earlier_slotd_wrote_is_read() {
        let text = r#"{"run":2,"exit":{"status":0,"signal":53},"usage":{"user_us":5,"system_us":6,"max_rss_kb":7},"started":7,"ended":9,"oom":false,
            "timed_out":true,"stopped":false,"launch_error":"no","tasks":[{"status":3,"signal":0}]}"#;
        let record: ExitRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.run, record.exit, record.timed_out), (2, ExitCode::LAUNCH_FAILED, true));
        assert_eq!((record.usage.user_us, record.launch_error.as_deref()), (5, Some("no")));
        assert_eq!(record.tasks, [ExitCode::status(3)]);
        assert_eq!(serde_json::from_str::<ExitRecord>("{}").unwrap(), ExitRecord::default());
    }
}
