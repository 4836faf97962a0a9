//! Jobs as queries see them: each record as it is now, with the values that are computed on demand.
//!
//! Paths stay as submitted: filling in their patterns takes `parse`, and is left to the caller.

use super::core::Core;
use super::records::Record;
use super::types::PartitionLoad;
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::brief::BriefJob;
use slotd_model::job::Hold;
use slotd_model::view::JobView;
use slotd_model::{End, ExitCode, Job, JobId, JobState, Partition, Step, StepId, Timestamp};

/// Returns the step of the script (`12.batch`) or of the command of `srun --no-wait` (`12.0`),
/// derived from the record, since the step starts and ends with the job. `None` for allocations and
/// for jobs that have not started.
pub(crate) fn own_step(job: &Job) -> Option<Step> {
    let id = job.own_step_id()?;
    let (name, ntasks) = match id {
        StepId::Batch => ("batch".to_string(), 1),
        StepId::Num(_) | StepId::Interactive => {
            (job.request.name.clone(), job.request.task_count())
        }
    };
    let (start, alloc) = (job.run.start?, job.run.alloc.as_deref().cloned()?);
    // Slurm shows the script of a job that was ended from outside, or killed by a signal, as
    // CANCELLED, and one that caught the signal by its own exit code.
    let exit = job.run.exit;
    let state = match job.run.state {
        JobState::Completing | JobState::Suspended => JobState::Running,
        JobState::Ended(end) if end.precedes_exit() => JobState::Ended(match exit {
            ExitCode { status: 0, signal: 0 } => End::Completed,
            ExitCode { signal: 0, .. } => End::Failed,
            ExitCode { .. } => End::Cancelled,
        }),
        JobState::Ended(End::Failed) if exit.signal != 0 => JobState::Ended(End::Cancelled),
        state @ (JobState::Pending | JobState::Running | JobState::Ended(_)) => state,
    };
    Some(Step {
        name,
        ntasks,
        state,
        end: job.run.end,
        exit,
        alloc,
        usage: job.run.usage(),
        overlap: true,
        suspended_us: job.run.suspended_us,
        clock: job.run.clock.as_deref().copied(),
        stepped_us: job.run.stepped_us,
        ..Step::started(id, start)
    })
}

/// Returns a record from the store as queries see it, with its own step, but without values that
/// only the live state has (the dependency, the reason of a pending job).
pub fn view_of(mut job: Job, setting: BatchTasks) -> JobView {
    job.steps.splice(0..0, own_step(&job));
    view_without_own_step(job, setting)
}

/// Returns the priority to show: 0 for a held job, as in Slurm.
fn shown_priority(job: &Job) -> u32 {
    if job.hold == Hold::No { job.priority } else { 0 }
}

/// Like [`view_of`], without the job's own step.
pub fn view_without_own_step(mut job: Job, setting: BatchTasks) -> JobView {
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
    /// Returns a record as it is now. Its expected start is its begin time, if any: see
    /// [`Forecast`] for more.
    ///
    /// [`Forecast`]: super::forecast::Forecast
    pub fn view(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let record = self.records.get(id)?;
        Some(self.view_now(
            record,
            view_of(Job::clone(&record.job), self.resources.config().batch_tasks),
            now,
        ))
    }

    /// Like [`Self::view`], without the steps: a job may have thousands.
    pub fn view_without_steps(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let record = self.records.get(id)?;
        Some(self.view_now(
            record,
            view_without_own_step(record.job.without_steps(), self.resources.config().batch_tasks),
            now,
        ))
    }

    /// Like [`Self::view`], for a listing of the queue.
    pub fn brief(&self, id: JobId, now: Timestamp) -> Option<BriefJob> {
        let record = self.records.get(id)?;
        let mut brief = BriefJob::of(&record.job);
        brief.reason = self.reason_of(record, now);
        brief.priority = shown_priority(&record.job);
        Some(brief)
    }

    /// Adds values from the live state to the view of a record.
    fn view_now(&self, record: &Record, mut view: JobView, now: Timestamp) -> JobView {
        if let Some(unlaunched) = self.unlaunched(record.job.id) {
            view.job.steps.retain(|step| step.id != unlaunched);
        }
        view.run.reason = self.reason(view.id, now);
        if let Some(waits) = &record.waits {
            view.dependency = self.records.dependency_text(&record.job, waits, now);
        }
        if view.run.state == JobState::Pending {
            let in_use = self.resources.used_by_others(&record.job);
            let known = in_use.or(view.run.system_comment.take());
            let reason = view.run.reason;
            view.run.system_comment = known.or_else(|| self.waits_in_words(record, reason, now));
            view.qos_priority = self.resources.config().qos_priority(&record.job.request);
            view.expected_start = view.begin().filter(|begin| *begin > now);
        }
        view.preemptible_since = view.run.start.filter(|_| self.is_preemptible(&record.job));
        view.next_run = match view.run.state {
            JobState::Pending => view.begin().filter(|_| view.request.recurrence.is_some()),
            _ => self.next_recurrence(&record.job, now),
        };
        view
    }

    /// Returns the running and pending jobs of each partition; each task of a pending array counts.
    pub fn partition_loads(&self) -> Vec<PartitionLoad> {
        let of = |partition: &Partition| {
            let (running, pending) = self.records.load(&partition.name);
            PartitionLoad { partition: partition.clone(), running, pending }
        };
        self.resources.config().partitions.iter().map(of).collect()
    }
}
