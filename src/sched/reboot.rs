//! Jobs that were running when the machine went down.
//!
//! No process of an earlier boot exists any more, even if its PID is in use again. Its outcome is
//! known if its watcher recorded it; otherwise the job is NODE_FAIL. If the disk has no trace of a
//! launch, it may still have happened, because the kernel may have lost the writes. So such a job
//! never runs again by itself, unless `--requeue` asks for it.

use super::core::Core;
use super::types::{Cx, EndCause};
use slotd_model::{ExitCode, ExitRecord, JobId, StepId, StepKey, Timestamp};

/// The traces of a job that was running when the machine went down.
#[derive(Debug, Clone)]
pub struct Interrupted {
    pub job: JobId,
    /// The recorded end of its script or command, if any.
    pub own: Option<ExitRecord>,
    /// The recorded ends of its other steps.
    pub steps: Vec<(StepId, ExitRecord)>,
    /// The last time at which it is known to have been running.
    pub last_sign: Timestamp,
}

impl Core {
    /// Ends a job that was running when the machine went down, as recorded or as NODE_FAIL.
    pub fn node_failed(&mut self, remains: Interrupted, cx: &mut Cx) {
        let Interrupted { job: id, own, mut steps, last_sign } = remains;
        let Some(job) = self.job(id) else { return };
        let live: Vec<StepId> =
            job.steps.iter().filter(|step| !step.state.is_terminal()).map(|step| step.id).collect();
        let unknown = || (ExitRecord::gone(ExitCode::NODE_FAILED, last_sign), EndCause::NodeFailed);
        let known = |record: ExitRecord| {
            let cause = EndCause::of(&record);
            (record, cause)
        };
        for step in live {
            let found =
                steps.iter().position(|(id, _)| *id == step).map(|at| steps.swap_remove(at).1);
            let (record, cause) = found.map_or_else(unknown, known);
            self.on_step_ended(StepKey { job: id, step }, &record, cause, cx);
        }
        let (record, cause) = own.map_or_else(unknown, known);
        self.on_job_ended(id, record, cause, cx);
    }
}
