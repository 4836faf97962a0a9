//! The queue as squeue and scontrol ask for it.

use super::SchedulerActor;
use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{
    FindJobs, FoundJobs, QueryJobs, QueryUsage, RefreshLive, RunnerCommand, Since,
};
use crate::exec::launch_spec::StepUsage;
use crate::model::job::Hold;
use crate::model::query::JobQuery;
use crate::model::tres::Usage;
use crate::model::view::{JobList, JobView};
use crate::model::{JobId, JobRef, JobState, Step, StepId, StepKey};
use actix::prelude::*;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long the answer of a step's watcher is waited for: a manager that stands still has none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Of a job whose expected start goes by no limit.
const ESTIMATE: &str = "its start is an estimate: jobs before it are expected to take as long as earlier ones of their names";

/// How many records are looked at at once: others are served in between.
const LOOKED_AT: usize = 8192;

impl Handler<FindJobs> for SchedulerActor {
    type Result = MessageResult<FindJobs>;

    fn handle(
        &mut self,
        FindJobs { query, after }: FindJobs,
        _: &mut Self::Context,
    ) -> Self::Result {
        // A task that an array does not have, or has no more, is not unknown, as in Slurm, which
        // looks for the array.
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
        QueryJobs { query, mut ids, since }: QueryJobs,
        _: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        // Nothing changes until this returns: from here on the whole answer is of this moment.
        let changed =
            since.map(|since| self.changed_since(&since, &query, &mut ids)).unwrap_or_default();
        // Views are made of what is wanted alone: the queue may be long, and nothing else happens
        // meanwhile.
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
            jobs.iter_mut().for_each(|job| self.core.tell_blockers(job, now));
        }
        if let [alone] = &mut jobs[..] {
            self.core.tell_who_is_before(alone, now);
        }
        let is_pending = |view: &JobView| view.run.state == JobState::Pending;
        // The plan starts none that is held.
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

impl Handler<RefreshLive> for SchedulerActor {
    type Result = MessageResult<RefreshLive>;

    fn handle(
        &mut self,
        RefreshLive(mut jobs): RefreshLive,
        _: &mut Self::Context,
    ) -> Self::Result {
        // Before the views: they go by the clocks as they stand now.
        self.now();
        for job in jobs.iter_mut().filter(|job| !job.run.state.is_terminal()) {
            if let Some(mut live) = self.view(job.id) {
                // Steps of a manager that have ended are in the database alone.
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
                // A runner that has just ended has nothing more to tell.
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
    /// The records that are not as earlier parts of an answer have them. `ids` gets those that
    /// still belong to it.
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

    /// Asks what a step uses whoever watches it: its manager, or the runner of the job.
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

/// The step that sstat means where none is named: the running one with the lowest number; the batch
/// script or salloc's command where srun has none running.
fn first(job: &JobView) -> Option<StepId> {
    let numbered = |step: StepId| match step {
        StepId::Num(number) => (0, number),
        StepId::Interactive | StepId::Batch => (1, 0),
    };
    job.steps.iter().map(|step| step.id).min_by_key(|step| numbered(*step))
}
