//! Receivers of commit results.

use crate::actors::messages::AnswerAtCommit;
use actix::prelude::*;
use slotd_model::{JobId, Refusal, StoreFault};
use std::future::Future;
use tokio::sync::oneshot;

/// The receiver of a commit result.
pub(super) enum Asker {
    /// Clients that wait for their job ID. A client that has reconnected may wait more than once.
    Submission {
        job: JobId,
        clients: Vec<oneshot::Sender<CommitResult>>,
        /// `None` once the store has it.
        answer: Option<AnswerAtCommit>,
    },
    /// A client whose command was carried out.
    Command(oneshot::Sender<CommitResult>),
    /// A callback, called once the commit is durable. A fault does not end its wait.
    News(Box<dyn FnOnce()>),
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitResult {
    Durable,
    /// The commit waits until the fault is resolved. A submission was withdrawn.
    Unstored(StoreFault),
}

impl Asker {
    pub(super) fn answer(self, result: CommitResult) {
        match self {
            Asker::Submission { clients, .. } => {
                clients.into_iter().for_each(|client| send_result(client, result))
            }
            Asker::Command(client) => send_result(client, result),
            Asker::News(send) => send(),
        }
    }
}

/// Sends the result. The receiver may have been dropped.
pub(super) fn send_result(client: oneshot::Sender<CommitResult>, result: CommitResult) {
    let _ = client.send(result);
}

/// Waits for the result. Never returns if the daemon stops first: the session is then dropped
/// before anything could read its answer.
pub(super) async fn result_of(answer: oneshot::Receiver<CommitResult>) -> CommitResult {
    match answer.await {
        Ok(result) => result,
        Err(_) => std::future::pending().await,
    }
}

/// Turns the result of a commit into the answer to a submission.
pub(super) fn answer_submission(
    id: JobId,
    result: impl Future<Output = CommitResult> + 'static,
) -> ResponseFuture<Result<JobId, Refusal>> {
    Box::pin(async move {
        match result.await {
            CommitResult::Durable => Ok(id),
            CommitResult::Unstored(fault) => Err(Refusal::NotStored(fault)),
        }
    })
}
