//! The crontabs of users.

use super::SchedulerActor;
use super::asker::CommitResult;
use crate::actors::messages::{QueryCrontab, RemoveCrontab, ReplaceCrontab};
use actix::prelude::*;
use slotd_model::{JobId, Refusal};
use slotd_sched::Cx;

impl Handler<QueryCrontab> for SchedulerActor {
    type Result = Option<Vec<u8>>;

    fn handle(
        &mut self,
        QueryCrontab { uid }: QueryCrontab,
        _: &mut Self::Context,
    ) -> Self::Result {
        self.core.crontab(uid)
    }
}

impl Handler<ReplaceCrontab> for SchedulerActor {
    type Result = ResponseFuture<Result<Vec<JobId>, (Option<usize>, Refusal)>>;

    fn handle(&mut self, m: ReplaceCrontab, ctx: &mut Self::Context) -> Self::Result {
        if let Some(fault) = self.fault() {
            return Box::pin(async move { Err((None, Refusal::NotStored(fault))) });
        }
        for entry in &m.entries {
            self.note_mail_asked(entry.submission.request.mail_type.as_deref());
        }
        let mut cx = Cx::at(self.now());
        let jobs = match self.core.install_crontab(m.uid, m.text, m.entries, &mut cx) {
            Ok(jobs) => jobs,
            Err((entry, why)) => return Box::pin(async move { Err((Some(entry), why)) }),
        };
        self.counters.jobs.submitted += jobs.len() as u64;
        self.ask_round(ctx);
        let committed = self.commit_command(cx.out);
        Box::pin(async move {
            match committed.await {
                CommitResult::Durable => Ok(jobs),
                CommitResult::Unstored(fault) => Err((None, Refusal::Unrecorded(fault))),
            }
        })
    }
}

impl Handler<RemoveCrontab> for SchedulerActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(
        &mut self,
        RemoveCrontab { uid }: RemoveCrontab,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let mut cx = Cx::at(self.now());
        self.core.remove_crontab(uid, &mut cx);
        self.ask_round(ctx);
        let committed = self.commit_command(cx.out);
        Box::pin(async move {
            match committed.await {
                CommitResult::Durable => Ok(()),
                CommitResult::Unstored(fault) => Err(Refusal::Unrecorded(fault)),
            }
        })
    }
}
