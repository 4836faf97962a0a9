//! Tasks in the foreground: their streams, their signals and their end, until the step is over.
//!
//! The tasks are started by the daemon's side and are inside the job's cgroup. What they read and
//! write is handed over as open descriptors: this client's own where that is right (one task, no
//! terminal: full speed, no copy), pipes or a pseudo-terminal that this client relays otherwise.
//! One more descriptor tells the step's watcher of the client's death: when the client dies,
//! however, the step's watcher sees it and ends the step, daemon or not. When the daemon dies, the
//! client waits for the next one and comes back to its step.

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

use crate::model::job::ClientProcess;
use crate::model::view::JobView;
use crate::model::{ExitCode, ExitRecord, JobId, Refusal, StepId};
use crate::sys::paths::Paths;

/// Who this client is, and where it can come back to.
#[derive(Debug, Clone)]
pub struct Caller {
    pub paths: Paths,
    /// The allocation that this client holds; `None` for a step in somebody else's.
    pub allocation: Option<JobId>,
    pub client: ClientProcess,
}

/// What happened to a step.
#[derive(Debug)]
#[must_use]
pub enum StepOutcome {
    Ended {
        /// `None` where it never started.
        step: Option<StepId>,
        record: Box<ExitRecord>,
        /// The daemon had told it to end.
        stopped: bool,
    },
    /// It was never started.
    Refused(Refusal),
    /// Its job ended first: cancelled, timed out, or lost.
    JobEnded(Box<JobView>),
}

impl StepOutcome {
    /// What the records tell of the allocation whose one step this was.
    pub fn exit(&self) -> ExitCode {
        match self {
            StepOutcome::Ended { record, .. } => record.exit,
            StepOutcome::JobEnded(view) if !view.run.exit.is_success() => view.run.exit,
            StepOutcome::Refused(_) | StepOutcome::JobEnded(_) => ExitCode::status(1),
        }
    }
}

/// What the caller is told while the step runs.
pub trait StepObserver {
    /// The step waits for other steps of its allocation.
    fn waits(&mut self, job: JobId);
    /// The step that waited has started.
    fn started(&mut self, job: JobId);
    /// The daemon ends the step, which may take so long.
    fn aborted(&mut self, wait_secs: u64);
    /// From now on the terminal is raw, or is so no more: a line there needs a carriage return.
    fn raw(&mut self, on: bool);
    /// The user typed Ctrl-C at this client's terminal.
    fn interrupted(&mut self);
    /// A line for the user.
    fn say(&mut self, line: &str);
}
