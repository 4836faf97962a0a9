//! News for a client that waits: what happens to its job, as it happens.

use crate::model::view::JobView;
use crate::model::{ExitCode, StepId};
use tokio::sync::mpsc;

/// One piece of news. The session turns it into an answer on its connection.
#[derive(Debug, Clone)]
pub enum News {
    Granted(Box<JobView>),
    Ended(Box<JobView>),
    StepWaits,
    StepStarted {
        step: StepId,
        pids: Vec<u32>,
    },
    StepStopping {
        wait_secs: u64,
    },
    TaskEnded {
        task: u32,
        exit: ExitCode,
    },
    StepEnded {
        exit: ExitCode,
        tasks: Vec<ExitCode>,
        error: Option<String>,
    },
    /// The lines that the client prints.
    StepRefused(String),
}

/// Where news go. Unbounded, since a job makes few of them and the scheduler never waits for a client; a client that
/// is gone closes it.
pub type NewsSender = mpsc::UnboundedSender<News>;
