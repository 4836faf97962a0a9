//! Jobs in listings: the values that the usual columns show, and nothing else. A full record is
//! several times as large, and a queue may be long.

use crate::array::ArraySpec;
use crate::request::JobKind;
use crate::tres::Allocation;
use crate::view::JobView;
use crate::{ArrayRole, ExitCode, Job, JobId, JobState, Reason, Step, Timestamp, Tres, is_default};
use compact_str::CompactString;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// A job in a listing. As a [`JobView`] it has defaults for everything else.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BriefJob {
    pub id: JobId,
    pub priority: u32,
    pub submit: Timestamp,
    pub name: String,
    pub user: String,
    pub uid: u32,
    pub partition: CompactString,
    pub cpus: u32,
    pub mem_mb: u64,
    pub state: JobState,
    pub reason: Reason,
    pub time_limit_secs: Option<u64>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub role: ArrayRole,
    pub kind: JobKind,
    pub gpus: u32,
    pub ntasks: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub stepped_us: i64,
    pub suspended_at: Option<Timestamp>,
    pub suspended_us: u64,
    pub past: Option<Box<Past>>,
}

/// The values that only listings of accounting records show.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Past {
    pub gpu_mem_mb: u64,
    pub shards: u32,
    pub allocated: Option<Tres>,
    pub exit: ExitCode,
    pub derived_exit: ExitCode,
    pub account: Option<String>,
    pub cancelled_by: Option<u32>,
    pub restarts: u32,
    pub requeued: bool,
    pub array: Option<ArraySpec>,
    pub steps: Vec<Step>,
}

/// Serializes a structure as the list of its fields in this order, without the defaults at the end:
/// most jobs have no value for the last ones.
macro_rules! as_list {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let is_set = [$(!is_default(&self.$field)),*];
                let mut left = is_set.iter().rposition(|set| *set).map_or(0, |last| last + 1);
                let mut list = to.serialize_seq(Some(left))?;
                $(if left > 0 {
                    list.serialize_element(&self.$field)?;
                    left -= 1;
                })*
                list.end()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                        to.write_str(concat!("the fields of ", stringify!($name)))
                    }

                    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<$name, A::Error> {
                        Ok($name { $($field: list.next_element()?.unwrap_or_default()),* })
                    }
                }

                from.deserialize_seq(Fields)
            }
        }
    };
}

as_list!(Past {
    exit,
    allocated,
    account,
    derived_exit,
    cancelled_by,
    restarts,
    requeued,
    array,
    steps,
    gpu_mem_mb,
    shards,
});

/// Serializes jobs as columns, one for each of these fields, because most fields have the same value
/// in all jobs of a queue. A column of equal values has only one, or none if it is the default.
/// The IDs come first. There is one for each job, even if they are equal.
macro_rules! as_columns {
    ($($field:ident),* $(,)?) => {
        pub(crate) fn serialize<S: Serializer>(jobs: &[BriefJob], to: S) -> Result<S::Ok, S::Error> {
            let mut columns = to.serialize_seq(None)?;
            columns.serialize_element(&jobs.iter().map(|job| job.id).collect::<Vec<_>>())?;
            $(columns.serialize_element(&Column::of(jobs, |job| &job.$field))?;)*
            columns.end()
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<BriefJob>, D::Error> {
            struct Columns;

            impl<'de> Visitor<'de> for Columns {
                type Value = Vec<BriefJob>;

                fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                    to.write_str("the columns of a listing")
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut columns: A) -> Result<Self::Value, A::Error> {
                    let ids: Vec<JobId> = columns.next_element()?.unwrap_or_default();
                    let job = |id| BriefJob { id, ..BriefJob::default() };
                    let mut jobs: Vec<BriefJob> = ids.into_iter().map(job).collect();
                    $(if let Some(values) = columns.next_element()? {
                        fill(&mut jobs, values, |job| &mut job.$field)?;
                    })*
                    Ok(jobs)
                }
            }

            from.deserialize_seq(Columns)
        }
    };
}

as_columns!(
    priority,
    submit,
    name,
    user,
    uid,
    partition,
    cpus,
    mem_mb,
    state,
    reason,
    time_limit_secs,
    start,
    end,
    role,
    kind,
    gpus,
    ntasks,
    ntasks_per_node,
    stepped_us,
    suspended_at,
    suspended_us,
    past,
);

/// One field of all jobs.
struct Column<'a, F>(&'a [BriefJob], F);

impl<'a, F> Column<'a, F> {
    fn of<T>(jobs: &'a [BriefJob], field: F) -> Self
    where
        F: Fn(&BriefJob) -> &T,
    {
        Column(jobs, field)
    }
}

impl<T, F> Serialize for Column<'_, F>
where
    T: Serialize + PartialEq + Default,
    F: Fn(&BriefJob) -> &T,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Column(jobs, field) = self;
        match jobs.split_first().map(|(first, rest)| (field(first), rest)) {
            Some((first, rest)) if rest.iter().all(|job| field(job) == first) => {
                to.collect_seq(Some(first).filter(|value| !is_default(*value)))
            }
            _ => to.collect_seq(jobs.iter().map(field)),
        }
    }
}

/// Sets a field of all jobs to the values of a column.
fn fill<T: Clone, E: de::Error>(
    jobs: &mut [BriefJob],
    mut values: Vec<T>,
    field: impl Fn(&mut BriefJob) -> &mut T,
) -> Result<(), E> {
    if values.len() == jobs.len() {
        jobs.iter_mut().zip(values).for_each(|(job, value)| *field(job) = value);
        return Ok(());
    }
    let value = values.pop();
    if !values.is_empty() {
        return Err(E::invalid_length(values.len() + 1, &"one value, or one for each job"));
    }
    if let Some(value) = value {
        jobs.iter_mut().for_each(|job| *field(job) = value.clone());
    }
    Ok(())
}

impl BriefJob {
    /// Copies the listed fields of a record.
    pub fn of(job: &Job) -> BriefJob {
        let (request, run) = (&*job.request, &job.run);
        BriefJob {
            id: job.id,
            priority: job.priority,
            submit: job.submit,
            name: request.name.clone(),
            user: request.user.clone(),
            uid: request.uid,
            partition: job.partition.clone(),
            cpus: job.tres.cpus,
            mem_mb: job.tres.mem_mb,
            state: run.state,
            reason: run.reason,
            time_limit_secs: request.time_limit_secs,
            start: run.start,
            end: run.end,
            role: job.role.clone(),
            kind: request.kind,
            gpus: job.tres.gpus,
            ntasks: request.ntasks,
            ntasks_per_node: request.ntasks_per_node,
            stepped_us: run.stepped_us,
            suspended_at: run.suspended_at,
            suspended_us: run.suspended_us,
            past: None,
        }
    }

    /// Reduces an accounting record to the usual columns of `sacct`. Its steps are kept.
    pub fn of_past(view: JobView) -> BriefJob {
        let (brief, requeued) = (BriefJob::of(&view.job), view.requeued);
        let Job { request, tres, run, steps, .. } = view.job;
        let past = Past {
            gpu_mem_mb: tres.gpu_mem_mb,
            shards: tres.shards,
            allocated: run.alloc.map(|alloc| alloc.tres),
            exit: run.exit,
            derived_exit: run.derived_exit,
            account: request.account.clone(),
            cancelled_by: run.cancelled_by,
            restarts: run.restarts,
            requeued,
            array: request.array.clone(),
            steps,
        };
        BriefJob { past: Some(Box::new(past)), ..brief }
    }

    /// Writes the listed fields into a view that has defaults for everything else. A long listing
    /// reuses a few views, which are large.
    pub fn put_into(self, view: &mut JobView) {
        let past = self.past.map_or_else(Past::default, |past| *past);
        view.requeued = past.requeued;
        let job = &mut view.job;
        (job.id, job.role, job.partition) = (self.id, self.role, self.partition);
        (job.priority, job.submit, job.steps) = (self.priority, self.submit, past.steps);
        job.tres = Tres {
            cpus: self.cpus,
            mem_mb: self.mem_mb,
            gpus: self.gpus,
            gpu_mem_mb: past.gpu_mem_mb,
            shards: past.shards,
        };
        let request = Arc::make_mut(&mut job.request);
        (request.kind, request.name) = (self.kind, self.name);
        (request.user, request.uid) = (self.user, self.uid);
        (request.ntasks, request.ntasks_per_node) = (self.ntasks, self.ntasks_per_node);
        request.time_limit_secs = self.time_limit_secs;
        (request.account, request.array) = (past.account, past.array);
        let run = &mut job.run;
        (run.state, run.reason) = (self.state, self.reason);
        (run.start, run.end, run.stepped_us) = (self.start, self.end, self.stepped_us);
        (run.suspended_at, run.suspended_us) = (self.suspended_at, self.suspended_us);
        (run.exit, run.derived_exit) = (past.exit, past.derived_exit);
        (run.restarts, run.cancelled_by) = (past.restarts, past.cancelled_by);
        let allocation = |tres| Box::new(Allocation { tres, ..Allocation::default() });
        run.alloc = past.allocated.map(allocation);
    }
}

impl From<BriefJob> for JobView {
    fn from(brief: BriefJob) -> JobView {
        let mut view = JobView::default();
        brief.put_into(&mut view);
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use crate::array::TaskSet;
    use crate::{JobRequest, StepId};

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
            partition: "cpu,gpu".into(),
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

    fn recorded() -> BriefJob {
        let past = Past {
            gpu_mem_mb: 7,
            shards: 2,
            allocated: Some(Tres { gpus: 1, cpus: 3, ..Tres::default() }),
            exit: ExitCode::status(3),
            derived_exit: ExitCode::signal(9),
            account: Some("a".to_owned()),
            cancelled_by: Some(0),
            restarts: 2,
            requeued: true,
            array: Some(ArraySpec { tasks: TaskSet::one(4), limit: Some(1) }),
            steps: vec![Step::started(StepId::Num(0), Timestamp(4))],
        };
        BriefJob { past: Some(Box::new(past)), ..waiting() }
    }

    #[test]
    fn reused_view_keeps_nothing_of_the_job_before() {
        let all = [waiting(), suspended_task(), recorded()];
        for (first, second) in all.iter().flat_map(|one| all.iter().map(move |two| (one, two))) {
            let mut view = JobView::from(first.clone());
            second.clone().put_into(&mut view);
            assert_eq!(view, JobView::from(second.clone()));
            let is_past = second.past.is_some();
            let brief = if is_past { BriefJob::of_past(view) } else { BriefJob::of(&view) };
            assert_eq!(brief, *second);
        }
    }

    #[test]
    fn views_do_not_share_what_they_show() {
        let (one, other) = (JobView::from(waiting()), JobView::from(suspended_task()));
        assert_eq!((one.request.name.as_str(), other.request.name.as_str()), ("a", ""));
        assert_eq!(*crate::job::no_request(), JobRequest::default());
    }

    fn text(jobs: &[BriefJob]) -> String {
        let mut text = Vec::new();
        serialize(jobs, &mut serde_json::Serializer::new(&mut text)).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn parsed(text: &str) -> serde_json::Result<Vec<BriefJob>> {
        deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn brief_jobs_survive_the_wire() {
        let all = [waiting(), suspended_task(), recorded(), BriefJob::default()];
        let pairs =
            all.iter().flat_map(|one| all.iter().map(move |two| vec![one.clone(), two.clone()]));
        for jobs in
            pairs.chain(all.iter().map(|one| vec![one.clone()])).chain([all.to_vec(), vec![]])
        {
            let text = text(&jobs);
            assert_eq!(parsed(&text).unwrap(), jobs, "{text}");
        }
    }

    #[test]
    fn values_that_all_jobs_share_are_sent_once() {
        let job = |id| BriefJob { id: JobId(id), name: "a".to_owned(), ..BriefJob::default() };
        let jobs = [job(7), job(7), job(9)];
        let rest = |name: &str| format!("[],[],[{name}]{}]", ",[]".repeat(19));
        assert_eq!(text(&jobs), format!("[[7,7,9],{}", rest("\"a\"")));
        let parsed = |name| parsed(&format!("[[7,7,9],{}", rest(name)));
        assert_eq!(parsed("\"a\"").unwrap(), jobs);
        assert_eq!(parsed(r#""a","a","b""#).unwrap()[2].name, "b");
        let error = parsed(r#""a","b""#).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid length 2, expected one value, or one for each job"),
            "{error}"
        );
    }
}
