//! Submissions, and trial submissions (`sbatch --test-only`).

use super::asker::{Asker, answer_submission, result_of};
use super::{SchedulerActor, node};
use crate::actors::messages::{SubmitJob, TestSubmission};
use actix::prelude::*;
use slotd_model::{JobId, Refusal};
use slotd_sched::{Cx, Estimate};
use tokio::sync::oneshot;

impl Handler<SubmitJob> for SchedulerActor {
    type Result = ResponseFuture<Result<JobId, Refusal>>;

    fn handle(&mut self, m: SubmitJob, ctx: &mut Self::Context) -> Self::Result {
        if m.again
            && let Some(client) = m.submission.client
            && let Some(id) = self.core.records().submitted_by(client.process)
        {
            self.rejoin_job(id, client.holds, m.news);
            return self.answer_again(id);
        }
        if let Some(fault) = self.fault() {
            return Box::pin(async move { Err(Refusal::NotStored(fault)) });
        }
        if self.core.resources().node().lacks_cgroups()
            && let Some(base) = self.outputs.cgroups.clone()
        {
            return node::submit_if_cgroups(base, m, ctx.address());
        }
        let holds = m.news.is_some() && m.submission.client.is_some_and(|client| client.holds);
        self.note_mail_asked(m.submission.request.mail_type.as_deref());
        let mut cx = Cx::at(self.now());
        let id = match self.core.submit(m.submission, &mut cx) {
            Ok(id) => id,
            Err(refusal) => return Box::pin(async move { Err(refusal) }),
        };
        self.counters.jobs.submitted += 1;
        m.news.into_iter().for_each(|news| self.watch(id, news));
        self.newcomers.extend(holds.then_some(id));
        let (client, answer) = oneshot::channel();
        self.ask_round(ctx);
        let asker = Asker::Submission { job: id, clients: vec![client], answer: m.answer };
        self.commit_then(cx.out, Some(asker));
        answer_submission(id, result_of(answer))
    }
}

impl Handler<TestSubmission> for SchedulerActor {
    type Result = ResponseFuture<Result<Estimate, Refusal>>;

    fn handle(
        &mut self,
        TestSubmission(submission): TestSubmission,
        _: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        let trial = self.core.trial(submission, now).map(|trial| {
            let starts = self.forecasts.once(trial.forecast);
            (trial.estimate, starts)
        });
        Box::pin(async move {
            let (estimate, starts) = trial?;
            let start = starts.await.get(&estimate.id).copied();
            Ok(estimate.with(start))
        })
    }
}
