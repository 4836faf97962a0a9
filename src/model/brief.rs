//! Jobs in listings: the values that the usual columns show, and nothing else. A full record is
//! several times as large, and a queue may be long.

use crate::request::JobKind;
use crate::run::RunState;
use crate::tres::Allocation;
use crate::view::JobView;
use crate::{ArrayRole, Job, JobId, JobRequest, JobState, Reason, Timestamp, Tres};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// A job serialized as a tuple of the parts below. A deserialized one has defaults for everything
/// else.
#[derive(Debug, Clone, PartialEq)]
pub struct BriefJob(pub JobView);

/// Kind, name, user, UID, tasks, tasks per node, time limit in seconds.
type Request<T> = (JobKind, T, T, u32, Option<u32>, Option<u32>, Option<u64>);

/// State, reason, start, end, jump of the wall clock in µs, start of the suspension, earlier
/// suspensions in µs.
type Run = (JobState, Reason, Option<Timestamp>, Option<Timestamp>, i64, Option<Timestamp>, u64);

impl BriefJob {
    /// Copies the listed fields of a record, without its steps and the rest of its run.
    pub fn of(job: &Job) -> BriefJob {
        let run = &job.run;
        BriefJob(JobView::from(Job {
            id: job.id,
            role: job.role.clone(),
            request: Arc::clone(&job.request),
            partition: job.partition.clone(),
            tres: job.tres,
            priority: job.priority,
            submit: job.submit,
            run: RunState {
                state: run.state,
                reason: run.reason,
                start: run.start,
                end: run.end,
                stepped_us: run.stepped_us,
                suspended_at: run.suspended_at,
                suspended_us: run.suspended_us,
                ..RunState::default()
            },
            ..Job::default()
        }))
    }
}

impl JobView {
    /// Reduces an accounting record to the usual columns of `sacct`. It is serialized like any
    /// other record, which omits empty fields. Its steps are kept.
    #[must_use]
    pub fn outline(self) -> JobView {
        let Job { id, role, request, partition, tres, priority, submit, run, steps, .. } = self.job;
        let request = JobRequest {
            kind: request.kind,
            name: request.name.clone(),
            user: request.user.clone(),
            uid: request.uid,
            account: request.account.clone(),
            array: request.array.clone(),
            time_limit_secs: request.time_limit_secs,
            ..JobRequest::default()
        };
        let run = RunState {
            state: run.state,
            reason: run.reason,
            start: run.start,
            end: run.end,
            stepped_us: run.stepped_us,
            suspended_at: run.suspended_at,
            suspended_us: run.suspended_us,
            exit: run.exit,
            derived_exit: run.derived_exit,
            restarts: run.restarts,
            alloc: run
                .alloc
                .map(|alloc| Box::new(Allocation { tres: alloc.tres, ..Allocation::default() })),
            cancelled_by: run.cancelled_by,
            ..RunState::default()
        };
        let request = Arc::new(request);
        let job = Job {
            id,
            role,
            request,
            partition,
            tres,
            priority,
            submit,
            run,
            steps,
            ..Job::default()
        };
        JobView { job, requeued: self.requeued, ..JobView::default() }
    }
}

impl Serialize for BriefJob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let JobView { job, .. } = &self.0;
        let (request, run) = (&*job.request, &job.run);
        let limit = request.time_limit_secs;
        let request: Request<&str> = (
            request.kind,
            &request.name,
            &request.user,
            request.uid,
            request.ntasks,
            request.ntasks_per_node,
            limit,
        );
        let run: Run = (
            run.state,
            run.reason,
            run.start,
            run.end,
            run.stepped_us,
            run.suspended_at,
            run.suspended_us,
        );
        let tres = (job.tres.cpus, job.tres.mem_mb, job.tres.gpus);
        (job.id, &job.role, request, &job.partition, tres, job.priority, job.submit, run)
            .serialize(to)
    }
}

impl<'de> Deserialize<'de> for BriefJob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        type Parts =
            (JobId, ArrayRole, Request<String>, String, (u32, u64, u32), u32, Timestamp, Run);
        let (id, role, request, partition, tres, priority, submit, run): Parts =
            Deserialize::deserialize(from)?;
        let (kind, name, user, uid, ntasks, ntasks_per_node, time_limit_secs) = request;
        let request = JobRequest {
            kind,
            name,
            user,
            uid,
            ntasks,
            ntasks_per_node,
            time_limit_secs,
            ..JobRequest::default()
        };
        let (state, reason, start, end, stepped_us, suspended_at, suspended_us) = run;
        Ok(BriefJob(JobView::from(Job {
            id,
            role,
            request: Arc::new(request),
            partition,
            tres: Tres { cpus: tres.0, mem_mb: tres.1, gpus: tres.2, ..Tres::ZERO },
            priority,
            submit,
            run: RunState {
                state,
                reason,
                start,
                end,
                stepped_us,
                suspended_at,
                suspended_us,
                ..RunState::default()
            },
            ..Job::default()
        })))
    }
}
