//! Questions about jobs of the past, and the rules that tell which jobs answer them.

use crate::model::array::TaskSet;
use crate::model::view::JobView;
use crate::model::{ArrayRole, Job, JobId, JobRef, JobRequest, JobState, Timestamp};
use serde::{Deserialize, Serialize};

/// What sacct asks for. Empty lists and `None` leave a matter open; lists are alternatives; all parts must hold.
///
/// The defaults of sacct's man page (since midnight where no job is named, and so on) are applied by the client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AcctFilter {
    /// Jobs by number: a plain job, an array with all its tasks, some tasks of an array, or the number of a
    /// task's own record. A step that is named here picks its job; which steps are shown is not decided here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobRef>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// `None`: any state. An empty list matches nothing: only states were named that slotd does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<JobState>>,
    /// Start of the time window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// End of the time window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What the rules need to know of a job.
struct Facts<'a> {
    id: JobId,
    role: &'a ArrayRole,
    request: &'a JobRequest,
    partition: &'a str,
    state: JobState,
    submit: Timestamp,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    suspended_at: Option<Timestamp>,
}

impl AcctFilter {
    /// Whether this record answers the question.
    pub fn matches(&self, job: &Job) -> bool {
        self.matches_facts(&Facts {
            id: job.id,
            role: &job.role,
            request: &job.request,
            partition: &job.partition,
            state: job.state,
            submit: job.submit,
            start: job.start,
            end: job.end,
            suspended_at: job.suspended_at,
        })
    }

    /// The same of a view.
    pub fn matches_view(&self, job: &JobView) -> bool {
        self.matches_facts(&Facts {
            id: job.id,
            role: &job.role,
            request: &job.request,
            partition: &job.partition,
            state: job.state,
            submit: job.submit,
            start: job.start,
            end: job.end,
            suspended_at: job.suspended_at,
        })
    }

    fn matches_facts(&self, job: &Facts<'_>) -> bool {
        fn among<'a>(list: &[String], value: impl Into<Option<&'a str>>) -> bool {
            list.is_empty() || value.into().is_some_and(|v| list.iter().any(|l| l == v))
        }
        (self.jobs.is_empty() || self.jobs.iter().any(|r| names_record(r, job.id, job.role)))
            && among(&self.names, job.request.name.as_str())
            && among(&self.users, job.request.user.as_str())
            && among(&self.partitions, job.partition)
            && among(&self.accounts, job.request.account.as_deref())
            && self.matches_time_and_state(job)
    }

    fn matches_time_and_state(&self, job: &Facts<'_>) -> bool {
        let windowed = self.since.is_some() || self.until.is_some();
        self.overlaps(job.submit, job.last_instant())
            && self.states.as_ref().is_none_or(|states| {
                states.iter().any(|state| if windowed { self.was_in_state(job, *state) } else { job.state == *state })
            })
    }

    /// sacct's rule (man page, `--state`): the job was in that state at some time in the window. A terminal state
    /// is entered once, at the job's end.
    fn was_in_state(&self, job: &Facts<'_>, state: JobState) -> bool {
        match state {
            JobState::Pending => {
                // Whichever came first: by a clock that was set back, a start may be later than the end.
                let until_then = [job.start, job.last_instant()].into_iter().flatten().min();
                job.start.is_none_or(|start| start > job.submit) && self.overlaps(job.submit, until_then)
            }
            JobState::Running => job.start.is_some_and(|start| self.overlaps(start, job.last_instant())),
            JobState::Suspended => {
                job.state == state && job.suspended_at.or(job.start).is_some_and(|at| self.overlaps(at, None))
            }
            JobState::Completing => {
                job.state == state && job.start.is_some_and(|start| self.overlaps(start, job.last_instant()))
            }
            JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory => job.state == state && job.end.is_some_and(|end| self.overlaps(end, Some(end))),
        }
    }

    /// Whether the time from `first` to `last` (`None`: still going on) has an instant in the window.
    fn overlaps(&self, first: Timestamp, last: Option<Timestamp>) -> bool {
        self.until.is_none_or(|until| first <= until)
            && self.since.is_none_or(|since| last.is_none_or(|last| last >= since))
    }
}

impl Facts<'_> {
    /// When nothing happened to it any more; `None` while something may.
    fn last_instant(&self) -> Option<Timestamp> {
        if self.state.is_terminal() { self.end.or(self.start).or(Some(self.submit)) } else { None }
    }
}

/// Whether `named` means this record: by its own number, by its array's, or by the task's.
pub fn names_record(named: &JobRef, id: JobId, role: &ArrayRole) -> bool {
    match (&named.tasks, role) {
        (None, ArrayRole::None | ArrayRole::Rest { .. }) => named.job == id,
        (None, ArrayRole::Task { array_job, .. } | ArrayRole::Part { array_job, .. }) => {
            named.job == id || named.job == *array_job
        }
        (Some(_), ArrayRole::None) => false,
        (Some(wanted), ArrayRole::Rest { tasks, .. }) => named.job == id && share_a_task(wanted, tasks),
        (Some(wanted), ArrayRole::Part { array_job, tasks }) => named.job == *array_job && share_a_task(wanted, tasks),
        (Some(wanted), ArrayRole::Task { array_job, task }) => named.job == *array_job && wanted.contains(*task),
    }
}

/// Whether two sets have a member in common, without listing the members of a range that was cut by none.
fn share_a_task(a: &TaskSet, b: &TaskSet) -> bool {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    few.iter().any(|task| many.contains(task))
}

/// How a job ended that is no longer in the scheduler's memory: what dependencies on it need to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    pub id: JobId,
    pub role: ArrayRole,
    /// COMPLETED with exit code 0.
    pub ok: bool,
    /// `None`: it was cancelled before it started.
    pub start: Option<Timestamp>,
    pub ended: Timestamp,
}
