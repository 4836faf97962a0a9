//! What the notify hook is told of a job that is over.

use crate::model::{Job, JobState, Reason};
use serde::{Deserialize, Serialize};

/// The end of a top-level job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// `12`, or `12_3` for an array task.
    pub job_id: String,
    pub name: String,
    pub state: JobState,
    pub partition: String,
    pub reason: Reason,
    /// `--mail-type` and `--mail-user`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail_user: Option<String>,
}

impl Notice {
    /// That of a job at its end.
    pub fn of(job: &Job) -> Notice {
        Notice {
            job_id: job.label(),
            name: job.request.name.clone(),
            state: job.run.state,
            partition: job.partition.clone(),
            reason: job.run.reason,
            mail_type: job.request.mail_type.clone(),
            mail_user: job.request.mail_user.clone(),
        }
    }
}
