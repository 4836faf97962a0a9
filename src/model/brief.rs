//! Jobs in listings: the values that the usual columns show, and nothing else. A full record is
//! several times as large, and a queue may be long.

use crate::request::JobKind;
use crate::run::RunState;
use crate::tres::Allocation;
use crate::view::JobView;
use crate::{ArrayRole, Job, JobId, JobRequest, JobState, Reason, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// A job in a listing, serialized as a tuple. As a [`JobView`] it has defaults for everything else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BriefJob {
    pub id: JobId,
    pub role: ArrayRole,
    pub kind: JobKind,
    pub name: String,
    pub user: String,
    pub uid: u32,
    pub ntasks: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub time_limit_secs: Option<u64>,
    pub partition: String,
    pub cpus: u32,
    pub mem_mb: u64,
    pub gpus: u32,
    pub priority: u32,
    pub submit: Timestamp,
    pub state: JobState,
    pub reason: Reason,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub stepped_us: i64,
    pub suspended_at: Option<Timestamp>,
    pub suspended_us: u64,
}

/// Kind, name, user, UID, tasks, tasks per node, time limit in seconds.
type Request<T> = (JobKind, T, T, u32, Option<u32>, Option<u32>, Option<u64>);

/// State, reason, start, end, jump of the wall clock in µs, start of the suspension, earlier
/// suspensions in µs.
type Run = (JobState, Reason, Option<Timestamp>, Option<Timestamp>, i64, Option<Timestamp>, u64);

impl BriefJob {
    /// Copies the listed fields of a record.
    pub fn of(job: &Job) -> BriefJob {
        let (request, run) = (&*job.request, &job.run);
        BriefJob {
            id: job.id,
            role: job.role.clone(),
            kind: request.kind,
            name: request.name.clone(),
            user: request.user.clone(),
            uid: request.uid,
            ntasks: request.ntasks,
            ntasks_per_node: request.ntasks_per_node,
            time_limit_secs: request.time_limit_secs,
            partition: job.partition.clone(),
            cpus: job.tres.cpus,
            mem_mb: job.tres.mem_mb,
            gpus: job.tres.gpus,
            priority: job.priority,
            submit: job.submit,
            state: run.state,
            reason: run.reason,
            start: run.start,
            end: run.end,
            stepped_us: run.stepped_us,
            suspended_at: run.suspended_at,
            suspended_us: run.suspended_us,
        }
    }

    /// Writes the listed fields into a view that has defaults for everything else. A long listing
    /// reuses a few views, which are large.
    pub fn put_into(self, view: &mut JobView) {
        let job = &mut view.job;
        (job.id, job.role, job.partition) = (self.id, self.role, self.partition);
        (job.priority, job.submit) = (self.priority, self.submit);
        (job.tres.cpus, job.tres.mem_mb, job.tres.gpus) = (self.cpus, self.mem_mb, self.gpus);
        let request = Arc::make_mut(&mut job.request);
        (request.kind, request.name) = (self.kind, self.name);
        (request.user, request.uid) = (self.user, self.uid);
        (request.ntasks, request.ntasks_per_node) = (self.ntasks, self.ntasks_per_node);
        request.time_limit_secs = self.time_limit_secs;
        let run = &mut job.run;
        (run.state, run.reason) = (self.state, self.reason);
        (run.start, run.end, run.stepped_us) = (self.start, self.end, self.stepped_us);
        (run.suspended_at, run.suspended_us) = (self.suspended_at, self.suspended_us);
    }
}

impl From<BriefJob> for JobView {
    fn from(brief: BriefJob) -> JobView {
        let mut view = JobView::default();
        brief.put_into(&mut view);
        view
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
        let request: Request<&str> = (
            self.kind,
            &self.name,
            &self.user,
            self.uid,
            self.ntasks,
            self.ntasks_per_node,
            self.time_limit_secs,
        );
        let run: Run = (
            self.state,
            self.reason,
            self.start,
            self.end,
            self.stepped_us,
            self.suspended_at,
            self.suspended_us,
        );
        let tres = (self.cpus, self.mem_mb, self.gpus);
        (self.id, &self.role, request, &self.partition, tres, self.priority, self.submit, run)
            .serialize(to)
    }
}

impl<'de> Deserialize<'de> for BriefJob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        type Parts =
            (JobId, ArrayRole, Request<String>, String, (u32, u64, u32), u32, Timestamp, Run);
        let (id, role, request, partition, (cpus, mem_mb, gpus), priority, submit, run): Parts =
            Deserialize::deserialize(from)?;
        let (kind, name, user, uid, ntasks, ntasks_per_node, time_limit_secs) = request;
        let (state, reason, start, end, stepped_us, suspended_at, suspended_us) = run;
        Ok(BriefJob {
            id,
            role,
            kind,
            name,
            user,
            uid,
            ntasks,
            ntasks_per_node,
            time_limit_secs,
            partition,
            cpus,
            mem_mb,
            gpus,
            priority,
            submit,
            state,
            reason,
            start,
            end,
            stepped_us,
            suspended_at,
            suspended_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use crate::array::TaskSet;

    fn waiting() -> BriefJob {
        BriefJob {
            id: JobId(7),
            kind: JobKind::Allocation,
            name: "a".to_owned(),
            user: "lab".to_owned(),
            uid: 1001,
            ntasks: Some(2),
            ntasks_per_node: Some(2),
            time_limit_secs: Some(60),
            partition: "cpu,gpu".to_owned(),
            cpus: 2,
            mem_mb: 64,
            gpus: 1,
            priority: 5,
            submit: Timestamp(3),
            reason: Reason::Priority,
            ..BriefJob::default()
        }
    }

    fn suspended_task() -> BriefJob {
        BriefJob {
            id: JobId(9),
            role: ArrayRole::Rest { tasks: TaskSet::one(4), limit: Some(1) },
            state: JobState::Ended(End::Failed),
            start: Some(Timestamp(4)),
            end: Some(Timestamp(9)),
            stepped_us: -2,
            suspended_at: Some(Timestamp(6)),
            suspended_us: 1,
            ..BriefJob::default()
        }
    }

    #[test]
    fn reused_view_keeps_nothing_of_the_job_before() {
        for (first, second) in [(waiting(), suspended_task()), (suspended_task(), waiting())] {
            let mut view = JobView::from(first);
            second.clone().put_into(&mut view);
            assert_eq!(view, JobView::from(second.clone()));
            assert_eq!(BriefJob::of(&view), second);
        }
    }

    #[test]
    fn views_do_not_share_what_they_show() {
        let (one, other) = (JobView::from(waiting()), JobView::from(suspended_task()));
        assert_eq!((one.request.name.as_str(), other.request.name.as_str()), ("a", ""));
        assert_eq!(*crate::job::no_request(), JobRequest::default());
    }

    #[test]
    fn brief_job_survives_the_wire() {
        for job in [waiting(), suspended_task()] {
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<BriefJob>(&text).unwrap(), job, "{text}");
        }
    }
}
