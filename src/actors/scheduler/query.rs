//! The queue as squeue and scontrol ask for it.

use super::SchedulerActor;
use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::QueryJobs;
use crate::model::view::{JobList, JobView};
use crate::model::{JobId, JobRef};
use crate::protocol::request::JobFilter;
use actix::prelude::*;

impl Handler<QueryJobs> for SchedulerActor {
    type Result = MessageResult<QueryJobs>;

    fn handle(&mut self, QueryJobs(filter): QueryJobs, _: &mut Self::Context) -> Self::Result {
        let now = self.now();
        let (ids, unknown) = self.chosen(&filter);
        // Views are made of what is wanted alone: the queue may be long, and nothing else happens meanwhile.
        let mut jobs: Vec<JobView> = ids.into_iter().filter_map(|id| self.core.view(id, now)).collect();
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
