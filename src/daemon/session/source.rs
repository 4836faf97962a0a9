//! Where a job comes from.

use super::{Replied, Session, refused};
use crate::actors::messages::ReadSource;
use crate::model::source::JobSource;
use crate::model::{JobRef, Refusal};
use crate::protocol::answer::Answer;

impl Session {
    /// Waits for git, should it be asked about the job's work tree just now.
    pub(super) async fn source(&self, named: JobRef, with_diff: bool) -> Replied {
        let records = match self.past(vec![named]).await? {
            Ok(records) => records,
            Err(why) => return Ok(refused(why)),
        };
        let Some(record) = records.first() else { return Ok(refused(Refusal::UnknownJob)) };
        let submission = record.array_job_id().unwrap_or(record.id);
        self.hub.work_trees.settled(submission).await;
        let (taken, diff) = match self.hub.readers.facts().send(ReadSource(submission)).await? {
            Ok(found) => found.map_or((None, None), |(taken, diff)| (Some(taken), diff)),
            Err(e) => return Ok(refused(Refusal::Database(e.0))),
        };
        let source = JobSource { tree: record.request.tree.clone(), taken };
        Ok(Some((Answer::Source(Box::new(source)), diff.filter(|_| with_diff).unwrap_or_default())))
    }
}
