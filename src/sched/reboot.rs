//! What becomes of jobs when the machine went down while they ran.
//!
//! A process of an earlier boot is gone, whatever has its number now. How it ended is known where
//! its watcher wrote it down; where not, the job is NODE_FAIL. That nothing is on disk of a launch
//! does not tell that it never was: the kernel may have lost it. So such a job never runs again by
//! itself, unless that was asked for (`--requeue`).

use super::core::Core;
use super::types::{Cx, EndCause};
use crate::model::{ExitCode, ExitRecord, JobId, StepId, StepKey, Timestamp};

/// What is left of a job that ran when the machine went down.
#[derive(Debug, Clone)]
pub struct Interrupted {
    pub job: JobId,
    /// How its script or command ended, where that was written down.
    pub own: Option<ExitRecord>,
    /// The same of its other steps.
    pub steps: Vec<(StepId, ExitRecord)>,
    /// When it is last known to have run.
    pub last_sign: Timestamp,
}

impl Core {
    /// The machine went down while this job ran: it has ended as was written down, or as nobody
    /// knows.
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
