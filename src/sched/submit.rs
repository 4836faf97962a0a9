//! Submissions: an accepted job gets its ID and its place in the queue.

use super::admit::Admitted;
use super::core::Core;
use super::forecast::Trial;
use super::line::FirstStep;
use super::records::Record;
use super::records::depend::Known;
use super::types::{Cx, Estimate, Submission};
use slotd_model::change::{Change, Texts};
use slotd_model::job::{Client, Hold, OwnTexts};
use slotd_model::qos::{self, SUBMIT_LIMIT};
use slotd_model::request::JobKind;
use slotd_model::{ArrayRole, Job, JobId, JobRequest, Partition, Refusal, Timestamp, reservation};
use std::sync::Arc;

/// Returns the number of jobs and array tasks that a request is for.
fn jobs_in(request: &JobRequest) -> usize {
    request.array.as_ref().map_or(1, |array| array.tasks.len())
}

impl Core {
    /// Adds a job to the queue, after checking it against the host and filling in its defaults. Its
    /// ID is durable once the changes are committed.
    pub fn submit(&mut self, mut s: Submission, cx: &mut Cx) -> Result<JobId, Refusal> {
        // Only a crontab makes a job recur.
        s.request.recurrence = None;
        let admitted = self.admitted(&mut s)?;
        self.check_submit_limit(&s.request, jobs_in(&s.request), 0)?;
        let id = self.enqueue(s, admitted, cx);
        self.settle(cx);
        Ok(id)
    }

    /// Checks a submission against the host and the jobs it depends on. Does not change the queue.
    pub(super) fn admitted(&mut self, s: &mut Submission) -> Result<Admitted, Refusal> {
        let admitted = self.admit(s)?;
        let config = self.resources.config();
        // As in Slurm, only the first partition counts.
        if let Some(partition) = config.partitions_for(&s.request)?.first() {
            let limits = [config.limit_for(&s.request, partition), partition.max_time_secs];
            check_time_min(&s.request, limits.into_iter().flatten().min())?;
        }
        let known = Known::new(&s.ended);
        self.records.learn(&known);
        self.records.check_dependency(&s.request.dependency, &known)?;
        Ok(admitted)
    }

    /// Adds an accepted job to the queue. The caller settles the queue.
    pub(super) fn enqueue(&mut self, s: Submission, admitted: Admitted, cx: &mut Cx) -> JobId {
        let known = Known::new(&s.ended);
        let id = self.records.allot_id();
        let texts = match s.request.kind {
            JobKind::Batch | JobKind::Run => Texts::New(s.texts),
            JobKind::Allocation => Texts::None,
        };
        let job = new_job(id, s.request, admitted, s.client, cx.now, |request| {
            self.records.share(request)
        });
        if let Some(request) = s.first_step {
            self.line.set_first_step(id, FirstStep { request, recorded: None });
        }
        self.records.add(job.into(), None);
        self.records.set_waits(id, &known);
        self.notifications.link(&self.records, id, cx.now);
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        if let Some(job) = self.records.stored(id) {
            cx.out.changes.push(Change::Insert { job, texts });
        }
        self.drop_if_hopeless(id, cx);
        self.drop_if_late(id, cx);
        id
    }

    /// Checks a submission and fills in its defaults.
    fn admit(&self, s: &mut Submission) -> Result<Admitted, Refusal> {
        qos::normalize(&mut s.request);
        reservation::normalize(&mut s.request);
        self.prepare_expansion(&mut s.request)?;
        let admitted = self.resources.config().admit(s)?;
        let config = self.resources.config();
        let limit_in = |partition: &Partition| config.limit_for(&s.request, partition);
        self.resources.check_qos_limits(&s.request, &admitted.partition, limit_in)?;
        Ok(admitted)
    }

    /// Fails if the QOS of a request does not accept this many more jobs and array tasks. `leaving`
    /// of those that it has now are about to end.
    pub(super) fn check_submit_limit(
        &self,
        request: &JobRequest,
        more: usize,
        leaving: usize,
    ) -> Result<(), Refusal> {
        let qos = self.resources.config().qos_of(request);
        let Some(most) = qos.and_then(|qos| qos.max_submit) else { return Ok(()) };
        let there = self.records.submitted(qos::of(request)).saturating_sub(leaving as u64);
        if there.saturating_add(more as u64) > u64::from(most) {
            return Err(Refusal::QosLimit(SUBMIT_LIMIT.to_owned()));
        }
        Ok(())
    }

    /// Returns the answer that `submit` would give, and a forecast of the job's start (`sbatch
    /// --test-only`). Creates no job.
    pub fn trial(&mut self, mut s: Submission, now: Timestamp) -> Result<Trial, Refusal> {
        let admitted = self.admitted(&mut s)?;
        self.check_submit_limit(&s.request, jobs_in(&s.request), 0)?;
        let known = Known::new(&s.ended);
        let (id, cpus, partition) =
            (self.records.next_id(), admitted.tres.cpus, admitted.partition.clone());
        let job = new_job(id, s.request, admitted, s.client, now, Arc::new);
        let waits = self.records.waits_of(&job, &known).map(Box::new);
        let forecast = self.forecast_with(&Record { waits, ..Record::new(job.into()) }, now);
        Ok(Trial { estimate: Estimate { id, start: None, cpus, partition }, forecast })
    }
}

/// Fails if `--time-min` is above this time limit.
pub(super) fn check_time_min(request: &JobRequest, limit_secs: Option<u64>) -> Result<(), Refusal> {
    let is_above = request.time_min_secs.zip(limit_secs).is_some_and(|(min, limit)| min > limit);
    if is_above { Err(Refusal::TimeMin) } else { Ok(()) }
}

fn new_job(
    id: JobId,
    mut request: JobRequest,
    admitted: Admitted,
    client: Option<Client>,
    now: Timestamp,
    share: impl FnOnce(JobRequest) -> Arc<JobRequest>,
) -> Job {
    let role = match &request.array {
        Some(array) => ArrayRole::Rest { tasks: array.tasks.clone(), limit: array.limit },
        None => ArrayRole::None,
    };
    request.time_limit_secs = admitted.limit_secs;
    // In Slurm, a priority of 0 means held.
    let is_held = request.hold || request.priority == Some(0);
    Job {
        id,
        role,
        own_texts: OwnTexts::take_out_of(&mut request),
        partition: admitted.partition.into(),
        tres: admitted.tres,
        priority: admitted.priority,
        hold: if is_held { Hold::User } else { Hold::No },
        submit: now,
        client,
        next_step: u32::from(request.kind == JobKind::Run),
        request: share(request),
        ..Job::default()
    }
}
