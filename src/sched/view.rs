//! What queries see: each record as it is now, with everything that is worked out on demand.
//!
//! Paths stay as they were written: filling in patterns takes `spec`, and is done by the caller.

use super::choice::Choice;
use super::core::{Core, Record};
use super::types::PartitionLoad;
use crate::model::batch_tasks::BatchTasks;
use crate::model::brief::BriefJob;
use crate::model::job::Hold;
use crate::model::view::JobView;
use crate::model::{Job, JobId, JobState, Partition, Step, StepId, Timestamp, Tres};

/// The step that stands for the script (`12.batch`) or the command of `srun --no-wait` (`12.0`): worked out from the
/// record, since it begins and ends with it. `None` for allocations and for what has not started.
pub fn own_step(job: &Job) -> Option<Step> {
    let id = job.own_step_id()?;
    let (name, ntasks) = match id {
        StepId::Batch => ("batch".to_string(), 1),
        StepId::Num(_) | StepId::Interactive => {
            (job.request.name.clone(), job.request.task_count())
        }
    };
    let (start, alloc) = (job.run.start?, job.run.alloc.as_deref().cloned()?);
    // Slurm shows the script of a job that was ended from outside, or died by a signal, as CANCELLED, and one that caught
    // the signal by the code that it chose.
    let (state, exit) = match job.run.state {
        JobState::Cancelled | JobState::Timeout if job.run.exit.is_success() => {
            (JobState::Completed, job.run.exit)
        }
        JobState::Cancelled | JobState::Timeout if job.run.exit.signal == 0 => {
            (JobState::Failed, job.run.exit)
        }
        JobState::Cancelled | JobState::Timeout => (JobState::Cancelled, job.run.exit),
        JobState::Failed if job.run.exit.signal != 0 => (JobState::Cancelled, job.run.exit),
        JobState::Completing | JobState::Suspended => (JobState::Running, job.run.exit),
        JobState::Pending
        | JobState::Running
        | JobState::Completed
        | JobState::Failed
        | JobState::OutOfMemory
        | JobState::NodeFail => (job.run.state, job.run.exit),
    };
    Some(Step {
        id,
        name,
        ntasks,
        state,
        start,
        end: job.run.end,
        exit,
        alloc,
        usage: job.run.usage,
        submit_line: String::new(),
        overlap: true,
        client: None,
        client_gone: false,
        suspended_us: job.run.suspended_us,
        clock: job.run.clock,
        stepped_us: job.run.stepped_us,
        managed: false,
    })
}

/// A record as queries see it, with the step that stands for its script, without what only the live state knows (the
/// dependency, the reason of a pending job). For records that come from the store.
pub fn view_of(mut job: Job, setting: BatchTasks) -> JobView {
    job.steps.splice(0..0, own_step(&job));
    view_without_steps(job, setting)
}

/// A held job has the priority 0, as in Slurm.
fn shown_priority(job: &Job) -> u32 {
    if job.hold == Hold::No { job.priority } else { 0 }
}

fn view_without_steps(mut job: Job, setting: BatchTasks) -> JobView {
    job.priority = shown_priority(&job);
    let request = &job.request;
    let pattern = |path: &Option<String>| path.clone().unwrap_or_default();
    JobView {
        std_out: pattern(&request.std_out),
        std_err: pattern(&request.std_err),
        std_in: pattern(&request.std_in),
        batch_ranks: request.task_rule(setting).ranks,
        job,
        ..JobView::default()
    }
}

impl Core {
    /// One record as it is now. Its expected start is its begin time, if anything: [`Forecast`] tells more.
    ///
    /// [`Forecast`]: super::forecast::Forecast
    pub fn view(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let record = self.jobs.get(&id)?;
        Some(self.view_now(record, view_of(record.job.clone(), self.config.batch_tasks), now))
    }

    /// As [`Self::view`], for who does not look at the steps: a job may have thousands.
    pub fn view_without_steps(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let record = self.jobs.get(&id)?;
        Some(self.view_now(
            record,
            view_without_steps(record.job.without_steps(), self.config.batch_tasks),
            now,
        ))
    }

    /// As [`Self::view`], for a listing of the queue.
    pub fn brief(&self, id: JobId, now: Timestamp) -> Option<BriefJob> {
        let record = self.jobs.get(&id)?;
        let mut brief = BriefJob::of(&record.job);
        brief.0.run.reason = self.reason_of(record, now);
        brief.0.priority = shown_priority(&record.job);
        Some(brief)
    }

    /// Adds what the live state knows of a record.
    fn view_now(&self, record: &Record, mut view: JobView, now: Timestamp) -> JobView {
        view.run.reason = self.reason(view.id, now);
        if let Some(waits) = &record.waits {
            view.dependency = self.dependency_text(&record.job, waits, now);
        }
        if view.run.state == JobState::Pending {
            let by_others =
                |choice: &Choice| self.gpus_in_use(choice).or_else(|| self.cpus_in_use(choice));
            let in_use =
                Choice::all(&record.job, &self.config).find_map(|choice| by_others(&choice));
            let known = in_use.or(view.run.system_comment.take());
            let reason = view.run.reason;
            view.run.system_comment = known.or_else(|| self.waits_in_words(record, reason, now));
            view.expected_start = view.request.begin.filter(|begin| *begin > now);
        }
        view
    }

    /// What jobs hold.
    pub fn allocated(&self) -> Tres {
        let used = self.ledger.used();
        // Those that jobs share count once for each.
        Tres { cpus: used.cpus.min(self.config.host.tres().cpus), ..used }
    }

    /// A job has the whole host to itself.
    pub fn is_exclusive(&self) -> bool {
        self.ledger.is_exclusive() && self.allocated().cpus >= self.config.host.tres().cpus
    }

    /// Jobs that run and that wait, by partition; each task of a pending array counts.
    pub fn partition_loads(&self) -> Vec<PartitionLoad> {
        let of = |partition: &Partition| {
            let (running, pending) = self.loads.get(&partition.name).copied().unwrap_or_default();
            PartitionLoad { partition: partition.clone(), running, pending }
        };
        self.config.partitions.iter().map(of).collect()
    }
}
