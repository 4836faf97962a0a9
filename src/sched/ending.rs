//! The final states of jobs.

use super::types::EndCause;
use slotd_model::request::JobKind;
use slotd_model::{End, ExitCode, ExitRecord, Job, Reason};

const SIGTERM: i32 = 15;

/// A final state, with the reason and the exit code.
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

    /// Returns the ending of processes that ended on their own.
    pub fn exited(exit: ExitCode) -> Self {
        let (state, reason) = match exit {
            ExitCode { status: 0, signal: 0 } => (End::Completed, Reason::None),
            // A client reports this for its step; no process can exit like this.
            ExitCode::OUT_OF_MEMORY => (End::OutOfMemory, Reason::OutOfMemory),
            ExitCode { signal: 0, .. } => (End::Failed, Reason::NonZeroExitCode),
            ExitCode { .. } => (End::Failed, Reason::RaisedSignal),
        };
        Ending { state, reason, exit, by: None }
    }

    /// Returns the ending of a running job from its record. If the daemon that cancelled it could
    /// not store that, only the record names the user.
    pub fn of_record(record: &ExitRecord, cause: EndCause) -> Self {
        let ending = Ending::of_running(record.exit, cause);
        match (ending.state, record.cancelled_by) {
            (End::Cancelled, Some(by)) => {
                Ending { reason: Reason::CancelledByUser, by: Some(by), ..ending }
            }
            _ => ending,
        }
    }

    /// Returns the ending of a running job, from the exit code and the cause.
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
            // Nobody requested it from this daemon, yet a kill ladder ran: the request was lost
            // with an earlier daemon.
            EndCause::Stopped | EndCause::NeverLaunched => ending(End::Cancelled, Reason::None),
        }
    }

    /// Returns the ending of a job that was stopped: cancelled, released, or without its client.
    pub(crate) fn of_stopped(job: &Job, exit: ExitCode, cause: EndCause) -> Self {
        let by = job.run.cancelled_by;
        let reason = match job.run.reason {
            // It was cancelled before it was back in the queue.
            Reason::Requeued => Reason::CancelledByUser,
            Reason::Preempted if by.is_some() => Reason::CancelledByUser,
            reason => reason,
        };
        if cause == EndCause::OutOfMemory {
            return Ending { by, ..Ending::exited(ExitCode::OUT_OF_MEMORY) };
        }
        if by.is_none()
            && !matches!(reason, Reason::CancelledByUser | Reason::ClientLost | Reason::DeadLine)
        {
            // A released allocation ends as its command did.
            return Ending::exited(job.run.exit);
        }
        // If the script never ran, or nobody saw it end, only the signal is known.
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
