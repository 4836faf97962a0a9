//! Queries of the queue by squeue and scontrol.

use super::SchedulerActor;
use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{
    FindJobs, FindNeverRun, FoundJobs, QueryJobs, QueryUsage, RefreshLive, RunnerCommand, Since,
};
use actix::prelude::*;
use slotd_exec::launch_spec::StepUsage;
use slotd_model::brief::BriefJob;
use slotd_model::job::Hold;
use slotd_model::query::JobQuery;
use slotd_model::tres::Usage;
use slotd_model::view::{JobList, JobView};
use slotd_model::{Job, JobId, JobRef, JobState, Step, StepId, StepKey};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The longest wait for a step's watcher. A suspended manager does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shown if the expected start of a job does not depend on time limits alone.
const ESTIMATE: &str = "its start is an estimate, which assumes that jobs before it take as long as earlier jobs of the same name";

/// The maximum number of records to examine before handling other messages.
const LOOKED_AT: usize = 8192;

impl Handler<FindJobs> for SchedulerActor {
    type Result = MessageResult<FindJobs>;

    fn handle(
        &mut self,
        FindJobs { query, after }: FindJobs,
        _: &mut Self::Context,
    ) -> Self::Result {
        // Like Slurm, this looks up only the array, so a task that the array never had is not
        // unknown.
        let is_unknown = |id: &JobId| self.core.records().resolve(&JobRef::job(*id)).is_empty();
        let unknown = query.jobs.iter().map(|named| named.job).filter(is_unknown).collect();
        let (ids, next) = self.core.records().find_some(&query, after, LOOKED_AT);
        MessageResult(FoundJobs { ids, unknown, next })
    }
}

impl Handler<QueryJobs> for SchedulerActor {
    type Result = ResponseFuture<JobList>;

    fn handle(
        &mut self,
        QueryJobs { query, mut ids, again, since }: QueryJobs,
        _: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        if again {
            (ids, _) = self.core.records().find_some(&query, None, LOOKED_AT);
        }
        // Nothing changes until this returns, so the whole answer is consistent as of now.
        let changed =
            since.map(|since| self.changed_since(&since, &query, &mut ids)).unwrap_or_default();
        // Build only the requested views. The queue may be long, and this blocks all other
        // messages.
        if query.brief {
            let brief = ids.into_iter().filter_map(|id| self.core.brief(id, now)).collect();
            return Box::pin(async move { JobList { brief, changed, ..JobList::at(now) } });
        }
        let mut jobs: Vec<JobView> = if query.without_steps {
            ids.into_iter().filter_map(|id| self.core.view_without_steps(id, now)).collect()
        } else {
            ids.into_iter().filter_map(|id| self.core.view(id, now)).collect()
        };
        for job in &mut jobs {
            if query.without_paths {
                job.clear_paths()
            } else {
                fill_paths(job, &self.core.config().host.name)
            }
        }
        if query.blockers {
            jobs.iter_mut().for_each(|job| self.core.add_blockers(job, now));
        }
        if let [alone] = &mut jobs[..] {
            self.core.add_job_ahead(alone, now);
        }
        let is_pending = |view: &JobView| view.run.state == JobState::Pending;
        // The plan starts no held jobs.
        let forecast = query.expected_starts
            && jobs.iter().any(|view| is_pending(view) && view.hold == Hold::No);
        let forecast = forecast.then(|| self.forecasts.present(&self.core, now));
        Box::pin(async move {
            if let Some(forecast) = forecast {
                let starts = forecast.starts().await;
                for view in jobs.iter_mut().filter(|view| is_pending(view)) {
                    let Some(start) = starts.get(&view.id) else { continue };
                    view.expected_start = Some(start.at);
                    if start.is_estimate && view.run.system_comment.is_none() {
                        view.run.system_comment = Some(ESTIMATE.to_owned());
                    }
                }
            }
            JobList { jobs, changed, ..JobList::at(now) }
        })
    }
}

impl Handler<FindNeverRun> for SchedulerActor {
    type Result = MessageResult<FindNeverRun>;

    fn handle(
        &mut self,
        FindNeverRun { query, ids }: FindNeverRun,
        _: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for id in ids {
            let is_new = |job: &&Job| job.run.state == JobState::Pending && job.run.restarts == 0;
            match self.core.job(id).filter(is_new) {
                Some(job) if query.matches(job) => {
                    found.extend(self.core.view_without_steps(id, now).map(BriefJob::of_past));
                }
                Some(_) => {}
                None => others.push(id),
            }
        }
        MessageResult((found, others))
    }
}

impl Handler<RefreshLive> for SchedulerActor {
    type Result = MessageResult<RefreshLive>;

    fn handle(
        &mut self,
        RefreshLive(mut jobs): RefreshLive,
        _: &mut Self::Context,
    ) -> Self::Result {
        // Update the clock first: the views depend on it.
        self.now();
        for job in jobs.iter_mut().filter(|job| !job.run.state.is_terminal()) {
            if let Some(mut live) = self.view(job.id) {
                // Ended steps of a manager are only in the database.
                let is_known = |step: &Step| live.steps.iter().any(|known| known.id == step.id);
                let ended: Vec<Step> = std::mem::take(&mut job.job.steps)
                    .into_iter()
                    .filter(|s| s.managed && !is_known(s))
                    .collect();
                live.job.steps.extend(ended);
                live.job.steps.sort_by_key(|step| step.id);
                *job = live;
            }
        }
        MessageResult(jobs)
    }
}

impl Handler<QueryUsage> for SchedulerActor {
    type Result = ResponseFuture<(JobList, Vec<(StepKey, StepUsage)>)>;

    fn handle(&mut self, QueryUsage(ask): QueryUsage, _: &mut Self::Context) -> Self::Result {
        let now = self.now();
        let mut jobs: Vec<JobView> = Vec::new();
        let mut unknown = Vec::new();
        for wanted in &ask.steps {
            let ids = self.core.records().resolve(&JobRef { step: None, ..wanted.clone() });
            if ids.is_empty() {
                unknown.push(wanted.job);
            }
            for mut view in ids.into_iter().filter_map(|id| self.core.view(id, now)) {
                view.steps.retain(|step| !step.state.is_terminal());
                let chosen = match wanted.step {
                    Some(step) => vec![step],
                    None if ask.all_steps => view.steps.iter().map(|step| step.id).collect(),
                    None => first(&view).into_iter().collect(),
                };
                view.steps.retain(|step| chosen.contains(&step.id));
                match jobs.iter_mut().find(|job| job.id == view.id) {
                    Some(job) => {
                        let known: Vec<StepId> = job.steps.iter().map(|step| step.id).collect();
                        job.steps.extend(
                            view.job.steps.into_iter().filter(|step| !known.contains(&step.id)),
                        );
                    }
                    None => jobs.push(view),
                }
            }
        }
        let keys: Vec<StepKey> = jobs
            .iter()
            .flat_map(|job| job.steps.iter().map(|step| StepKey { job: job.id, step: step.id }))
            .collect();
        let asked: Vec<_> =
            keys.into_iter().filter_map(|key| Some((key, self.measure(key)?))).collect();
        Box::pin(async move {
            let mut measured = Vec::new();
            for (key, answer) in asked {
                // The runner may have just ended.
                let Ok(Ok(usage)) = timeout(PATIENCE, answer).await else { continue };
                let of_job = jobs.iter_mut().filter(|job| job.id == key.job);
                for step in of_job.flat_map(|job| &mut job.steps).filter(|step| step.id == key.step)
                {
                    step.usage = Usage { gpu: step.usage.gpu, ..usage.total };
                }
                measured.push((key, usage));
            }
            (JobList { jobs, unknown, ..JobList::at(now) }, measured)
        })
    }
}

impl SchedulerActor {
    /// Returns the records that differ from earlier parts of an answer. Adds to `ids` those that
    /// still belong to the answer.
    fn changed_since(&self, since: &Since, query: &JobQuery, ids: &mut Vec<JobId>) -> Vec<JobId> {
        let changed = since.changes.take();
        if changed.all || !changed.jobs.is_empty() {
            let (found, _) = self.core.records().find_some(query, None, usize::MAX);
            let is_changed = |id: &JobId| changed.all || changed.jobs.contains(id);
            ids.extend(found.into_iter().filter(is_changed));
            ids.sort_unstable();
            ids.dedup();
        }
        if changed.all { since.ids.clone() } else { changed.jobs.into_iter().collect() }
    }

    /// Requests the usage of a step from its manager or from the runner of the job.
    fn measure(&mut self, key: StepKey) -> Option<oneshot::Receiver<StepUsage>> {
        if let StepId::Num(number) = key.step
            && self.core.records().is_managed_step(key.job, key.step)
        {
            return Some(self.managers.measure(key.job, number));
        }
        let (answer, measured) = oneshot::channel();
        self.runners.get(&key.job)?.do_send(RunnerCommand::Measure(key.step, answer));
        Some(measured)
    }
}

/// Returns the default step of sstat: the running step with the lowest ID, or else the batch script
/// or salloc's command.
fn first(job: &JobView) -> Option<StepId> {
    let numbered = |step: StepId| match step {
        StepId::Num(number) => (0, number),
        StepId::Interactive | StepId::Batch => (1, 0),
    };
    job.steps.iter().map(|step| step.id).min_by_key(|step| numbered(*step))
}
