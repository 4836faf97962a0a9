//! As what a job ends.

use super::types::EndCause;
use crate::model::request::JobKind;
use crate::model::{End, ExitCode, Job, Reason};

const SIGTERM: i32 = 15;

/// An end with what is told about it.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    pub state: End,
    pub reason: Reason,
    pub exit: ExitCode,
    pub by: Option<u32>,
}

impl Ending {
    pub fn cancelled(reason: Reason, by: Option<u32>) -> Self {
        Ending { state: End::Cancelled, reason, exit: ExitCode::OK, by }
    }

    /// Of processes that ended on their own.
    pub fn exited(exit: ExitCode) -> Self {
        let (state, reason) = match exit {
            ExitCode { status: 0, signal: 0 } => (End::Completed, Reason::None),
            // A client tells how its step ended; a process cannot end so.
            ExitCode::OUT_OF_MEMORY => (End::OutOfMemory, Reason::OutOfMemory),
            ExitCode { signal: 0, .. } => (End::Failed, Reason::NonZeroExitCode),
            ExitCode { .. } => (End::Failed, Reason::RaisedSignal),
        };
        Ending { state, reason, exit, by: None }
    }

    /// Of a running job, by what its processes came to.
    pub fn of_running(exit: ExitCode, cause: EndCause) -> Self {
        let ending = |state, reason| Ending { state, reason, exit, by: None };
        match cause {
            EndCause::Exited => Ending::exited(exit),
            EndCause::TimeLimit => ending(End::Timeout, Reason::TimeLimit),
            EndCause::OutOfMemory => Ending::exited(ExitCode::OUT_OF_MEMORY),
            EndCause::LaunchFailed | EndCause::HostFault => {
                ending(End::Failed, Reason::JobLaunchFailure)
            }
            EndCause::RunnerLost => ending(End::Failed, Reason::RunnerLost),
            EndCause::NodeFailed => ending(End::NodeFail, Reason::NodeDown),
            // Nobody here asked for it, yet a ladder ran: the request was lost with an earlier
            // daemon.
            EndCause::Stopped | EndCause::NeverLaunched => ending(End::Cancelled, Reason::None),
        }
    }

    /// Of a job that was stopped: cancelled, given back, or its client was lost.
    pub fn of_stopped(job: &Job, exit: ExitCode, cause: EndCause) -> Self {
        let by = job.run.cancelled_by;
        let reason = match job.run.reason {
            // It was cancelled before it was back in the queue.
            Reason::Requeued => Reason::CancelledByUser,
            reason => reason,
        };
        if cause == EndCause::OutOfMemory {
            return Ending { by, ..Ending::exited(ExitCode::OUT_OF_MEMORY) };
        }
        if by.is_none()
            && !matches!(reason, Reason::CancelledByUser | Reason::ClientLost | Reason::DeadLine)
        {
            // An allocation that was given back: it ended as its command did.
            return Ending::exited(job.run.exit);
        }
        // Of a script that never ran, or whose end nobody saw, the signal is what is known.
        let is_unseen = matches!(
            cause,
            EndCause::NeverLaunched
                | EndCause::HostFault
                | EndCause::RunnerLost
                | EndCause::NodeFailed
        );
        let exit = match job.request.kind {
            JobKind::Batch | JobKind::Run if is_unseen => ExitCode::signal(SIGTERM),
            JobKind::Allocation if is_unseen => ExitCode::OK,
            JobKind::Batch | JobKind::Run | JobKind::Allocation => exit,
        };
        Ending { state: End::Cancelled, reason, exit, by }
    }
}
