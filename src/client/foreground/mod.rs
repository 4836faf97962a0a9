//! Runs tasks in the foreground and handles their streams and signals until the step ends.
//!
//! The daemon's side starts the tasks inside the job's cgroup and receives their streams as open
//! descriptors. Where possible, these are this client's own descriptors (one task, no terminal),
//! which costs no copying. Otherwise they are pipes or a pseudo-terminal that this client relays.
//!
//! Another descriptor connects this client to the step's watcher. When the client dies for any
//! reason, the watcher notices and ends the step, even without a daemon. When the daemon dies, the
//! client waits for the next one and reattaches to its step.

mod connect;
mod grant;
mod keyboard;
mod signals;
mod step;
mod streams;

pub use connect::{StepOptions, StreamTasks};
pub use grant::{Grant, wait_for_grant, wait_for_release};
pub use signals::end_by_interrupt;
pub use step::run_step;

use slotd_model::job::ClientProcess;
use slotd_model::view::JobView;
use slotd_model::{ExitCode, ExitRecord, JobId, Refusal, StepId};
use slotd_sys::paths::Paths;

/// The identity of this client, and the paths needed to reconnect.
#[derive(Debug, Clone)]
pub struct Caller {
    pub paths: Paths,
    /// The allocation that this client holds, or `None` for a step in another allocation.
    pub allocation: Option<JobId>,
    pub client: ClientProcess,
}

/// The outcome of a step.
#[derive(Debug)]
#[must_use]
pub enum StepOutcome {
    Ended {
        /// `None` if the step never started.
        step: Option<StepId>,
        record: Box<ExitRecord>,
        /// The daemon had asked it to end.
        stopped: bool,
        /// Why output of the tasks did not reach our standard output or standard error.
        lost_output: Option<String>,
    },
    /// The step was never started.
    Refused(Refusal),
    /// The job ended first: cancelled, timed out, or lost.
    JobEnded(Box<JobView>),
}

impl StepOutcome {
    /// Returns the exit code to record for an allocation that consisted of this step.
    pub fn exit(&self) -> ExitCode {
        match self {
            StepOutcome::Ended { record, .. } => record.exit,
            StepOutcome::JobEnded(view) if !view.run.exit.is_success() => view.run.exit,
            StepOutcome::Refused(_) | StepOutcome::JobEnded(_) => ExitCode::status(1),
        }
    }
}

/// Receives events while a step runs.
pub trait StepObserver {
    /// The step waits for other steps of its allocation.
    fn waits(&mut self, job: JobId);
    /// The waiting step has started.
    fn started(&mut self, job: JobId);
    /// The daemon is ending the step, which may take this many seconds.
    fn aborted(&mut self, wait_secs: u64);
    /// The terminal entered or left raw mode, in which lines need a carriage return.
    fn raw(&mut self, on: bool);
    /// The user pressed Ctrl-C at this client's terminal.
    fn interrupted(&mut self);
    /// Shows a line to the user.
    fn report(&mut self, line: &str);
}
