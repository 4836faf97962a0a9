//! The source of a job.

use super::{Replied, Session, refused};
use crate::actors::messages::ReadSource;
use crate::daemon::answers::Reply;
use slotd_exec::snapshots;
use slotd_model::source::{JobSource, Kept, WorkTree};
use slotd_model::{JobRef, Refusal};
use slotd_protocol::answer::Answer;
use slotd_sys::aside;

impl Session {
    /// Sends the source of a job. If git is running for the job's work tree, waits until it has
    /// finished.
    pub(super) async fn source(&self, named: JobRef, with_diff: bool) -> Replied {
        let records = match self.past(vec![named]).await? {
            Ok(records) => records,
            Err(why) => return Ok(refused(why)),
        };
        let Some(record) = records.first() else { return Ok(refused(Refusal::UnknownJob)) };
        if let Some(snapshot) = record.request.snapshot.clone() {
            let dir = self.hub.paths.snapshots_dir();
            let what = format!("reading the copy {}", snapshot.name);
            let kept =
                aside::run(what, aside::PATIENCE, move || snapshots::source(&dir, &snapshot))
                    .await
                    .unwrap_or(None);
            return Ok(answer(record.request.tree.as_deref().cloned(), kept, with_diff));
        }
        let submission = record.array_job_id().unwrap_or(record.id);
        self.hub.work_trees.settled(submission).await;
        match self.hub.readers.facts().send(ReadSource { submission, with_diff }).await? {
            Ok(kept) => Ok(answer(record.request.tree.as_deref().cloned(), kept, with_diff)),
            Err(e) => Ok(refused(Refusal::Database(e.0))),
        }
    }
}

fn answer(tree: Option<WorkTree>, kept: Option<Kept>, with_diff: bool) -> Option<Reply> {
    let (taken, diff) = kept.unzip();
    let raw = diff.flatten().filter(|_| with_diff).unwrap_or_default();
    Some((Answer::Source(Box::new(JobSource { tree, taken })), raw))
}
