//! Job queries and the rules that select matching jobs. squeue, scancel, sacct and the other
//! commands share them.

use crate::array::TaskSet;
use crate::license;
use crate::qos;
use crate::{ArrayRole, Job, JobId, JobRef, JobRequest, JobState, Reason, Timestamp, is_default};
use serde::{Deserialize, Serialize};

/// A selection of jobs, and of the data to return for each. An empty list or `None` does not
/// restrict the selection. The entries of a list are alternatives; all fields must match.
///
/// Clients apply the defaults of their commands (squeue: jobs that have not ended; sacct: jobs
/// since midnight).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobQuery {
    /// Jobs by ID: a plain job, an array with all its tasks, some tasks of an array, or the ID of a
    /// task's own record. A step selects its job; which steps to show is not decided here.
    #[serde(skip_serializing_if = "is_default")]
    pub jobs: Vec<JobRef>,
    #[serde(skip_serializing_if = "is_default")]
    pub names: Vec<String>,
    /// Users by name or UID.
    #[serde(skip_serializing_if = "is_default")]
    pub users: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub partitions: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub accounts: Vec<String>,
    /// QOS names. A job that requested none has `normal`.
    #[serde(skip_serializing_if = "is_default")]
    pub qos: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub reservations: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub wckeys: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub licenses: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub constraints: Vec<String>,
    /// Reasons, by Slurm's names or by slotd's own.
    #[serde(skip_serializing_if = "is_default")]
    pub reasons: Vec<String>,
    /// Only jobs that run or ran on the node.
    #[serde(skip_serializing_if = "is_default")]
    pub on_node: bool,
    /// `None`: any state. An empty list matches nothing: it comes from states that slotd does not
    /// have.
    #[serde(skip_serializing_if = "is_default")]
    pub states: Option<Vec<JobState>>,
    /// Match jobs that were in one of the states at any time in the window, instead of now.
    #[serde(skip_serializing_if = "is_default")]
    pub states_then: bool,
    /// Start of the time window.
    #[serde(skip_serializing_if = "is_default")]
    pub since: Option<Timestamp>,
    /// End of the time window.
    #[serde(skip_serializing_if = "is_default")]
    pub until: Option<Timestamp>,
    /// The shortest time limit, in seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub limit_min_secs: Option<u64>,
    /// The longest time limit, in seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub limit_max_secs: Option<u64>,
    /// The fewest and the most CPUs.
    #[serde(skip_serializing_if = "is_default")]
    pub cpus: Option<(u32, u32)>,

    // Data to return for each job.
    /// Make the records of a long answer consistent as of its end: the last part repeats those that
    /// changed in the meantime. The reason of a pending job may still date from its own part.
    #[serde(skip_serializing_if = "is_default")]
    pub one_moment: bool,
    /// Also select pending jobs that are held for these reasons, whatever `states` selects.
    #[serde(skip_serializing_if = "is_default")]
    pub held_for: Vec<Reason>,
    /// Include earlier runs of requeued jobs.
    #[serde(skip_serializing_if = "is_default")]
    pub duplicates: bool,
    /// Predict when pending jobs start.
    #[serde(skip_serializing_if = "is_default")]
    pub expected_starts: bool,
    /// List everything that keeps each pending job from starting.
    #[serde(skip_serializing_if = "is_default")]
    pub blockers: bool,
    /// Leave out the paths of the standard streams, which cost more than most of a view.
    #[serde(skip_serializing_if = "is_default")]
    pub without_paths: bool,
    /// Leave out steps, since a job may have thousands.
    #[serde(skip_serializing_if = "is_default")]
    pub without_steps: bool,
    /// Leave out the steps of batch scripts, which repeat what is known about their jobs. Records in
    /// memory may have them anyway.
    #[serde(skip_serializing_if = "is_default")]
    pub without_batch_steps: bool,
    /// Send only the fields of [`crate::brief::BriefJob`]: a long listing shows little of each job.
    /// Accounting sends records that have not ended in full.
    #[serde(skip_serializing_if = "is_default")]
    pub brief: bool,
}

impl JobQuery {
    /// Selects these jobs in any state.
    pub fn of(jobs: Vec<JobRef>) -> Self {
        JobQuery { jobs, ..JobQuery::default() }
    }

    /// Selects all jobs that have not ended.
    pub fn live() -> Self {
        JobQuery { states: Some(JobState::live().collect()), ..JobQuery::default() }
    }

    /// Restricts the query to jobs on one of these nodes. `is_node` returns whether a name refers
    /// to this host.
    pub fn limit_to_nodes(&mut self, nodes: &[String], is_node: impl Fn(&str) -> bool) {
        if nodes.iter().any(|name| is_node(name)) {
            self.on_node = true;
        } else if !nodes.is_empty() {
            self.match_nothing();
        }
    }

    /// Makes the query match nothing, for a list that names nothing. An absent list would match
    /// everything.
    pub fn match_nothing(&mut self) {
        self.states = Some(Vec::new());
        self.held_for.clear();
    }

    /// Returns whether the query includes ended jobs.
    pub fn wants_ended(&self) -> bool {
        self.states.as_ref().is_none_or(|states| states.iter().any(|state| state.is_terminal()))
    }

    /// Returns whether a record matches the query.
    pub fn matches(&self, job: &Job) -> bool {
        (self.jobs.is_empty() || self.jobs.iter().any(|r| names_record(r, job.id, &job.role)))
            && (!self.selects_requests() || self.matches_request(&job.request))
            && (self.partitions.is_empty()
                || job.partitions().any(|name| among(&self.partitions, name)))
            && (!self.on_node || job.run.state != JobState::Pending)
            && self.cpus.is_none_or(|(least, most)| (least..=most).contains(&job.tres.cpus))
            && self.matches_reason(job.run.reason)
            && self.matches_time_and_state(job)
    }

    fn matches_licenses(&self, asked: Option<&str>) -> bool {
        self.licenses.is_empty()
            || asked.is_some_and(|asked| {
                self.licenses.iter().any(|wanted| license::names(asked, wanted))
            })
    }

    fn matches_reason(&self, reason: Reason) -> bool {
        among(&self.reasons, reason.slurm_name()) || among(&self.reasons, reason.name())
    }

    /// Returns whether any part of the query depends on the request, which is not in the same place
    /// in memory as the record.
    fn selects_requests(&self) -> bool {
        let lists = [
            &self.users,
            &self.names,
            &self.groups,
            &self.accounts,
            &self.qos,
            &self.reservations,
            &self.wckeys,
            &self.licenses,
            &self.constraints,
        ];
        lists.iter().any(|list| !list.is_empty())
            || self.limit_min_secs.is_some()
            || self.limit_max_secs.is_some()
    }

    /// Names of QOS are compared without regard to case, as in Slurm.
    fn matches_qos(&self, own: &str) -> bool {
        self.qos.is_empty() || self.qos.iter().any(|wanted| wanted.eq_ignore_ascii_case(own))
    }

    fn matches_request(&self, request: &JobRequest) -> bool {
        let is_user =
            |wanted: &String| *wanted == request.user || wanted.parse() == Ok(request.uid);
        let limit = request.time_limit_secs.unwrap_or(u64::MAX);
        (self.users.is_empty() || self.users.iter().any(is_user))
            && among(&self.names, request.name.as_str())
            && among(&self.groups, request.group.as_str())
            && among(&self.accounts, request.account.as_deref())
            && self.matches_qos(qos::of(request))
            && among(&self.reservations, request.reservation.as_deref())
            && among(&self.wckeys, request.wckey.as_deref())
            && self.matches_licenses(request.licenses.as_deref())
            && among(
                &self.constraints,
                request.constraint.as_ref().map(ToString::to_string).as_deref(),
            )
            && self.limit_min_secs.is_none_or(|least| limit >= least)
            && self.limit_max_secs.is_none_or(|most| limit <= most)
    }

    fn matches_time_and_state(&self, job: &Job) -> bool {
        let is_in = |state: &JobState| {
            if self.states_then { self.was_in_state(job, *state) } else { job.run.state == *state }
        };
        self.overlaps(job.submit, job.last_instant())
            && (self.states.as_ref().is_none_or(|states| states.iter().any(is_in))
                || self.is_held_for(job))
    }

    fn is_held_for(&self, job: &Job) -> bool {
        job.run.state == JobState::Pending
            && job.hold.reason().is_some_and(|reason| self.held_for.contains(&reason))
    }

    /// sacct's rule (man page, `--state`): whether the job was in this state at some time in the
    /// window. A terminal state is entered once, at the job's end.
    fn was_in_state(&self, job: &Job, state: JobState) -> bool {
        match state {
            JobState::Pending => {
                // The earlier of the two: if the clock was set back, a start may be later than the
                // end.
                let until_then = [job.run.start, job.last_instant()].into_iter().flatten().min();
                job.run.start.is_none_or(|start| start > job.submit)
                    && self.overlaps(job.submit, until_then)
            }
            JobState::Running => {
                job.run.start.is_some_and(|start| self.overlaps(start, job.last_instant()))
            }
            JobState::Suspended => {
                job.run.state == state
                    && job
                        .run
                        .suspended_at
                        .or(job.run.start)
                        .is_some_and(|at| self.overlaps(at, None))
            }
            JobState::Completing => {
                job.run.state == state
                    && job.run.start.is_some_and(|start| self.overlaps(start, job.last_instant()))
            }
            JobState::Ended(_) => {
                job.run.state == state
                    && job.run.end.is_some_and(|end| self.overlaps(end, Some(end)))
            }
        }
    }

    /// Returns whether the time from `first` to `last` (`None`: ongoing) overlaps the window.
    fn overlaps(&self, first: Timestamp, last: Option<Timestamp>) -> bool {
        self.until.is_none_or(|until| first <= until)
            && self.since.is_none_or(|since| last.is_none_or(|last| last >= since))
    }
}

fn among<'a>(list: &[String], value: impl Into<Option<&'a str>>) -> bool {
    list.is_empty() || value.into().is_some_and(|value| list.iter().any(|wanted| wanted == value))
}

impl Job {
    /// Returns when the job ended; `None` if it has not.
    fn last_instant(&self) -> Option<Timestamp> {
        if self.run.state.is_terminal() {
            self.run.end.or(self.run.start).or(Some(self.submit))
        } else {
            None
        }
    }
}

impl Job {
    /// Returns a reference that matches only this record. An array's last task keeps the array's
    /// ID, so that the ID alone may mean the whole array.
    pub fn own_ref(&self) -> JobRef {
        let (job, tasks) = match &self.role {
            ArrayRole::None => (self.id, None),
            ArrayRole::Rest { tasks, .. } => (self.id, Some(tasks.clone())),
            ArrayRole::Part { array_job, tasks } => (*array_job, Some(tasks.clone())),
            ArrayRole::Task { array_job, task } => (*array_job, Some(TaskSet::one(*task))),
        };
        JobRef { job, tasks, step: None }
    }

    /// Narrows `named` to this record: the named tasks among its own, and the step.
    pub fn part_named(&self, named: &JobRef) -> JobRef {
        let own = self.own_ref();
        let tasks = match (own.tasks, &named.tasks) {
            (Some(own), Some(wanted)) => Some(own.intersection(wanted)),
            (own, _) => own,
        };
        JobRef { tasks, step: named.step, ..own }
    }
}

/// Returns whether `named` refers to this record, by its own ID, its array's ID or the task.
pub fn names_record(named: &JobRef, id: JobId, role: &ArrayRole) -> bool {
    match (&named.tasks, role) {
        (None, ArrayRole::None | ArrayRole::Rest { .. }) => named.job == id,
        (None, ArrayRole::Task { array_job, .. } | ArrayRole::Part { array_job, .. }) => {
            named.job == id || named.job == *array_job
        }
        (Some(_), ArrayRole::None) => false,
        (Some(wanted), ArrayRole::Rest { tasks, .. }) => {
            named.job == id && share_a_task(wanted, tasks)
        }
        (Some(wanted), ArrayRole::Part { array_job, tasks }) => {
            named.job == *array_job && share_a_task(wanted, tasks)
        }
        (Some(wanted), ArrayRole::Task { array_job, task }) => {
            named.job == *array_job && wanted.contains(*task)
        }
    }
}

/// Returns whether two sets have a member in common. Ranges entirely outside the other set are
/// skipped.
fn share_a_task(a: &TaskSet, b: &TaskSet) -> bool {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (Some(first), Some(last)) = (many.first(), many.last()) else { return false };
    let near = few.ranges().iter().filter(|range| range.last >= first && range.first <= last);
    near.flat_map(|range| (range.first..=range.last).step_by(range.step as usize))
        .any(|task| many.contains(task))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use crate::JobRequest;
    use crate::array::TaskRange;
    use crate::run::RunState;
    use std::sync::Arc;

    /// A job submitted at 10, with the given start and end. `None` is "not yet".
    fn job(state: JobState, start: Option<i64>, end: Option<i64>) -> Job {
        let run = RunState {
            state,
            start: start.map(Timestamp),
            end: end.map(Timestamp),
            ..RunState::default()
        };
        Job { id: JobId(1), partition: "cpu".into(), submit: Timestamp(10), run, ..Job::default() }
    }

    fn found(
        job: (JobState, Option<i64>, Option<i64>),
        states: Option<&[JobState]>,
        since: i64,
        until: i64,
    ) -> bool {
        let filter = JobQuery {
            states: states.map(<[JobState]>::to_vec),
            since: Some(Timestamp(since)),
            until: Some(Timestamp(until)),
            states_then: true,
            ..JobQuery::default()
        };
        filter.matches(&self::job(job.0, job.1, job.2))
    }

    const ENDED: (JobState, Option<i64>, Option<i64>) =
        (JobState::Ended(End::Failed), Some(20), Some(30));
    const RUNNING: (JobState, Option<i64>, Option<i64>) = (JobState::Running, Some(20), None);
    const PENDING: (JobState, Option<i64>, Option<i64>) = (JobState::Pending, None, None);
    const CANCELLED: (JobState, Option<i64>, Option<i64>) =
        (JobState::Ended(End::Cancelled), None, Some(30));

    #[test]
    fn a_window_matches_jobs_that_overlap_it() {
        for (since, until, ended, live) in
            [(0, 9, false, false), (0, 10, true, true), (30, 99, true, true), (31, 99, false, true)]
        {
            assert_eq!(found(ENDED, None, since, until), ended, "{since}..{until}");
            assert_eq!(found(CANCELLED, None, since, until), ended, "{since}..{until}");
            assert_eq!(found(RUNNING, None, since, until), live, "{since}..{until}");
            assert_eq!(found(PENDING, None, since, until), live, "{since}..{until}");
        }
    }

    #[test]
    fn running_in_a_window_includes_jobs_that_have_ended_since() {
        let running = Some(&[JobState::Running][..]);
        assert!(found(ENDED, running, 25, 26));
        assert!(found(ENDED, running, 0, 20));
        assert!(!found(ENDED, running, 12, 19), "it was still pending");
        assert!(!found(ENDED, running, 31, 40));
        assert!(!found(PENDING, running, 0, 99));
        assert!(!found(CANCELLED, running, 0, 99), "it never ran");
        assert!(found(RUNNING, running, 99, 99));
    }

    #[test]
    fn pending_lasts_from_submission_to_the_start_or_the_end() {
        let pending = Some(&[JobState::Pending][..]);
        assert!(found(PENDING, pending, 50, 60));
        assert!(!found(PENDING, pending, 0, 9));
        assert!(found(ENDED, pending, 15, 16));
        assert!(!found(ENDED, pending, 21, 25));
        assert!(found(CANCELLED, pending, 25, 26));
        assert!(!found(CANCELLED, pending, 31, 32));
        assert!(
            !found((JobState::Ended(End::Completed), Some(10), Some(11)), pending, 0, 99),
            "it started at once"
        );
    }

    #[test]
    fn a_terminal_state_matches_only_at_the_end_of_the_job() {
        let failed = Some(&[JobState::Ended(End::Failed), JobState::Ended(End::Timeout)][..]);
        assert!(found(ENDED, failed, 30, 30));
        assert!(!found(ENDED, failed, 0, 29));
        assert!(!found(ENDED, failed, 31, 99));
        assert!(!found(ENDED, Some(&[JobState::Ended(End::Completed)]), 0, 99));
        assert!(!found(ENDED, Some(&[]), 0, 99), "only states that slotd does not have");
    }

    #[test]
    fn a_suspended_or_completing_job_matches_that_state_and_running() {
        for state in [JobState::Suspended, JobState::Completing] {
            assert!(found((state, Some(20), None), Some(&[state]), 0, 99));
            assert!(!found(RUNNING, Some(&[state]), 0, 99));
            assert!(found((state, Some(20), None), Some(&[JobState::Running]), 0, 99));
        }
    }

    #[test]
    fn without_states_then_only_the_current_state_matches() {
        for since in [None, Some(Timestamp(25))] {
            let query =
                JobQuery { states: Some(vec![JobState::Running]), since, ..JobQuery::default() };
            assert!(query.matches(&job(JobState::Running, Some(20), None)));
            assert!(
                !query.matches(&job(JobState::Ended(End::Failed), Some(20), Some(30))),
                "it ran but no longer does"
            );
        }
    }

    #[test]
    fn own_ref_matches_no_other_record() {
        let task = |id, task| Job {
            id: JobId(id),
            role: ArrayRole::Task { array_job: JobId(7), task },
            ..job(JobState::Running, Some(20), None)
        };
        // The last task keeps the ID of the array.
        let (first, last) = (task(8, 0), task(7, 1));
        assert_eq!(
            (first.own_ref().to_string(), last.own_ref().to_string()),
            ("7_0".into(), "7_1".into())
        );
        assert!(!names_record(&last.own_ref(), first.id, &first.role));
        let wanted = JobRef {
            tasks: TaskRange::new(0, 3, 1).map(|r| TaskSet::from_ranges(vec![r])),
            ..JobRef::job(JobId(7))
        };
        assert_eq!(last.part_named(&wanted).to_string(), "7_1");
    }

    #[test]
    fn list_entries_are_alternatives_and_all_lists_must_match() {
        let request =
            JobRequest { name: "a".to_owned(), user: "ann".to_owned(), ..JobRequest::default() };
        let job = Job { request: Arc::new(request), ..job(JobState::Pending, None, None) };
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let filter =
            JobQuery { names: words(&["b", "a"]), users: words(&["ann"]), ..JobQuery::default() };
        assert!(filter.matches(&job));
        assert!(!JobQuery { users: words(&["bob"]), ..filter.clone() }.matches(&job));
        assert!(
            !JobQuery { accounts: words(&["lab"]), ..filter.clone() }.matches(&job),
            "it has no account"
        );
        assert!(!JobQuery { partitions: words(&["gpu"]), ..filter }.matches(&job));
    }

    #[test]
    fn each_term_about_the_request_excludes_other_requests() {
        let words = || vec!["other".to_owned()];
        let all = JobQuery::default;
        let job = job(JobState::Pending, None, None);
        assert!(all().matches(&job));
        for query in [
            JobQuery { names: words(), ..all() },
            JobQuery { users: words(), ..all() },
            JobQuery { groups: words(), ..all() },
            JobQuery { accounts: words(), ..all() },
            JobQuery { qos: words(), ..all() },
            JobQuery { reservations: words(), ..all() },
            JobQuery { wckeys: words(), ..all() },
            JobQuery { licenses: words(), ..all() },
            JobQuery { constraints: words(), ..all() },
            JobQuery { limit_max_secs: Some(60), ..all() },
        ] {
            assert!(!query.matches(&job), "{query:?}");
        }
        let limit = Some(60);
        let request = Arc::new(JobRequest { time_limit_secs: limit, ..JobRequest::default() });
        let limited = Job { request, ..job };
        assert!(!JobQuery { limit_min_secs: Some(61), ..all() }.matches(&limited));
        assert!(JobQuery { limit_min_secs: limit, ..all() }.matches(&limited));
    }

    #[test]
    fn array_references_match_the_records_that_hold_their_tasks() {
        let tasks = |first, last| {
            TaskSet::from_ranges(TaskRange::new(first, last, 1).into_iter().collect())
        };
        let rest = ArrayRole::Rest { tasks: tasks(3, 9), limit: None };
        let task = ArrayRole::Task { array_job: JobId(7), task: 2 };
        let part = ArrayRole::Part { array_job: JobId(7), tasks: tasks(10, 12) };
        let array = JobRef::job(JobId(7));
        assert!(names_record(&array, JobId(7), &rest) && names_record(&array, JobId(8), &task));
        let some = |first, last| JobRef { tasks: Some(tasks(first, last)), ..array.clone() };
        assert!(
            names_record(&some(1, 3), JobId(7), &rest)
                && names_record(&some(1, 3), JobId(8), &task)
        );
        assert!(
            !names_record(&some(0, 1), JobId(7), &rest)
                && !names_record(&some(0, 1), JobId(8), &task)
        );
        assert!(!names_record(&some(0, 1), JobId(7), &ArrayRole::None));
        assert!(
            names_record(&array, JobId(9), &part) && names_record(&some(12, 99), JobId(9), &part)
        );
        assert!(!names_record(&some(0, 9), JobId(9), &part));
        assert!(
            names_record(&JobRef::job(JobId(8)), JobId(8), &task),
            "by the number of its own record"
        );
    }

    #[test]
    fn a_query_survives_the_wire() {
        let filter =
            JobQuery { states: Some(Vec::new()), since: Some(Timestamp(3)), ..JobQuery::default() };
        let text = serde_json::to_string(&filter).expect("plain data");
        assert_eq!(serde_json::from_str::<JobQuery>(&text).expect("round trip"), filter);
        assert_eq!(
            serde_json::from_str::<JobQuery>("{}").expect("all fields are optional"),
            JobQuery::default()
        );
    }
}
