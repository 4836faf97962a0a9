//! The queue as squeue and scontrol ask for it.

use super::SchedulerActor;
use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{MeasureStep, QueryJobs, QueryUsage};
use crate::model::view::{JobList, JobView};
use crate::model::{JobId, JobRef, StepId, StepKey};
use crate::protocol::request::JobFilter;
use actix::prelude::*;

impl Handler<QueryJobs> for SchedulerActor {
    type Result = MessageResult<QueryJobs>;

    fn handle(&mut self, QueryJobs(filter): QueryJobs, _: &mut Self::Context) -> Self::Result {
        let now = self.now();
        let (ids, unknown) = self.chosen(&filter);
        // Views are made of what is wanted alone: the queue may be long, and nothing else happens meanwhile.
        let mut jobs: Vec<JobView> = match filter.without_steps {
            true => ids.into_iter().filter_map(|id| self.core.view_without_steps(id, now)).collect(),
            false => ids.into_iter().filter_map(|id| self.core.view(id, now)).collect(),
        };
        if filter.expected_starts {
            self.core.fill_expected_starts(&mut jobs, now);
        }
        if filter.without_paths {
            for job in &mut jobs {
                job.std_out.clear();
                job.std_err.clear();
                job.std_in.clear();
            }
        } else {
            for job in &mut jobs {
                fill_paths(job, &self.core.config().host.name);
            }
        }
        MessageResult(JobList { jobs, now, unknown })
    }
}

impl SchedulerActor {
    /// The records that a filter takes, by number, and the numbers that nothing in memory has. A task that an array does
    /// not have, or has no more, is not unknown, as in Slurm, which looks for the array.
    fn chosen(&self, filter: &JobFilter) -> (Vec<JobId>, Vec<JobId>) {
        let wanted = |id: &JobId| self.core.job(*id).is_some_and(|job| filter.matches(job));
        let mut unknown = Vec::new();
        let mut ids: Vec<JobId> = if filter.jobs.is_empty() {
            self.core.jobs().map(|job| job.id).filter(wanted).collect()
        } else {
            let mut ids = Vec::new();
            for job in &filter.jobs {
                let found = self.core.resolve(job);
                if found.is_empty() && self.core.resolve(&JobRef::job(job.job)).is_empty() {
                    unknown.push(job.job);
                }
                ids.extend(found.into_iter().filter(wanted));
            }
            ids
        };
        ids.sort_unstable();
        ids.dedup();
        (ids, unknown)
    }
}

impl Handler<QueryUsage> for SchedulerActor {
    type Result = ResponseFuture<(JobList, Vec<(StepKey, Vec<i32>)>)>;

    fn handle(&mut self, QueryUsage(ask): QueryUsage, _: &mut Self::Context) -> Self::Result {
        let now = self.now();
        let mut jobs: Vec<JobView> = Vec::new();
        let mut unknown = Vec::new();
        for wanted in &ask.steps {
            let ids = self.core.resolve(&JobRef { step: None, ..wanted.clone() });
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
                        job.steps.extend(view.job.steps.into_iter().filter(|step| !known.contains(&step.id)));
                    }
                    None => jobs.push(view),
                }
            }
        }
        let keys: Vec<StepKey> =
            jobs.iter().flat_map(|job| job.steps.iter().map(|step| StepKey { job: job.id, step: step.id })).collect();
        let asked: Vec<_> = keys
            .into_iter()
            .filter_map(|key| Some((key, self.runners.get(&key.job)?.send(MeasureStep { step: key.step }))))
            .collect();
        Box::pin(async move {
            let mut processes = Vec::new();
            for (key, answer) in asked {
                // A runner that has just ended has nothing more to tell.
                let Ok(Some(usage)) = answer.await else { continue };
                let of_job = jobs.iter_mut().filter(|job| job.id == key.job);
                for step in of_job.flat_map(|job| &mut job.steps).filter(|step| step.id == key.step) {
                    step.usage = usage.total;
                }
                processes.push((key, usage.pids));
            }
            (JobList { jobs, now, unknown }, processes)
        })
    }
}

/// The step that sstat means where none is named: the running one with the lowest number; the batch script or salloc's
/// command where srun has none running.
fn first(job: &JobView) -> Option<StepId> {
    let numbered = |step: StepId| match step {
        StepId::Num(number) => (0, number),
        StepId::Interactive | StepId::Batch => (1, 0),
    };
    job.steps.iter().map(|step| step.id).min_by_key(|step| numbered(*step))
}
