//! Who waits for a commit, and what they are told.

use crate::model::{JobId, Refusal, StoreFault};
use crate::sched::Submitted;
use actix::prelude::*;
use std::future::Future;
use tokio::sync::oneshot;

/// Who waits for a commit.
pub(super) enum Asker {
    /// A client that is to hear the number of its job. It may have come back and wait more than
    /// once.
    Submission(JobId, Vec<oneshot::Sender<Told>>),
    /// A client whose command has been carried out.
    Command(oneshot::Sender<Told>),
    /// News, for which a fault changes nothing.
    News(Box<dyn FnOnce()>),
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Durable,
    /// It is durable, and the job that was submitted runs already.
    Runs,
    /// It waits until the fault is over; a submission was taken back.
    Unstored(StoreFault),
}

impl Asker {
    pub(super) fn tell(self, told: Told) {
        match self {
            Asker::Submission(_, clients) => {
                clients.into_iter().for_each(|client| tell(client, told))
            }
            Asker::Command(client) => tell(client, told),
            Asker::News(send) => send(),
        }
    }
}

/// Whoever waited may have gone.
pub(super) fn tell(client: oneshot::Sender<Told>, told: Told) {
    let _ = client.send(told);
}

/// What was told. Nothing, for ever, where the daemon goes down: the session is dropped before
/// anybody could read an answer.
pub(super) async fn told(answer: oneshot::Receiver<Told>) -> Told {
    match answer.await {
        Ok(told) => told,
        Err(_) => std::future::pending().await,
    }
}

/// The answer to a submission.
pub(super) fn answer_submission(
    id: JobId,
    told: impl Future<Output = Told> + 'static,
) -> ResponseFuture<Result<Submitted, Refusal>> {
    Box::pin(async move {
        match told.await {
            Told::Durable => Ok(Submitted { job: id, runs: false }),
            Told::Runs => Ok(Submitted { job: id, runs: true }),
            Told::Unstored(fault) => Err(Refusal::NotStored(fault)),
        }
    })
}
