//! Jobs that were launched but are missing from the database, or still pending or in an earlier run
//! in it, because it was lost or replaced by an older copy. Their records are rebuilt from their
//! directories.
//!
//! A job that is still running is RUNNING and adopted like any running job. An ended job gets the
//! exit code recorded in its directory, and the user who cancelled it.

use super::ending::Ending;
use super::types::EndCause;
use slotd_model::array::TaskSet;
use slotd_model::change::{Change, Texts};
use slotd_model::exit::Trace;
use slotd_model::job::ClientProcess;
use slotd_model::request::JobKind;
use slotd_model::tres::Usage;
use slotd_model::{
    ArrayRole, End, ExitCode, Job, JobId, JobRequest, JobState, Reason, Step, StepId, Timestamp,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The comment on such a job.
const COMMENT: &str = "recovered from its job directory: the database had no record of its start";

/// The contents of one job directory.
#[derive(Debug, Clone, Default)]
pub struct FoundJob {
    pub id: JobId,
    /// The job as it was launched.
    pub job: Option<Job>,
    pub steps: Vec<Trace>,
    pub script: Option<Vec<u8>>,
}

/// Returns the changes that add the found jobs to the database. `known`: its records of jobs that
/// have not ended; `owner`: the name and UID of the user who owns the directories.
pub fn found_changes(
    found: Vec<FoundJob>,
    known: &BTreeMap<JobId, &Job>,
    owner: (&str, u32),
    now: Timestamp,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut taken: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
    for found in found {
        let before = known.get(&found.id).copied();
        let (id, script) = (found.id, found.script.clone());
        let Some(job) = record(found, before, owner, now) else { continue };
        if let ArrayRole::Task { array_job, task } = job.role {
            taken.entry(array_job).or_default().push(task);
        }
        let steps: Vec<Change> = job
            .steps
            .iter()
            .map(|step| Change::PutStep { job: id, step: Box::new(step.clone()) })
            .collect();
        // They belong to an earlier run.
        let old = before.into_iter().flat_map(|job| &job.steps);
        changes.extend(old.map(|step| Change::DropStep { job: id, step: step.id }));
        let own = Box::new(job.without_steps());
        changes.push(match before {
            Some(_) => Change::Update(own),
            None => Change::Insert { job: own, texts: script.map_or(Texts::None, Texts::Script) },
        });
        changes.extend(steps);
    }
    // Started tasks no longer wait in a compact record.
    let updated: Vec<JobId> = changes.iter().filter_map(updated).collect();
    for job in known.values().filter(|job| !updated.contains(&job.id)) {
        let gone = job.array_job_id().and_then(|array| taken.get(&array));
        if let Some(left) = gone.and_then(|gone| without(job, gone)) {
            changes.push(Change::Update(Box::new(left)));
        }
    }
    changes
}

fn updated(change: &Change) -> Option<JobId> {
    match change {
        Change::Update(job) => Some(job.id),
        _ => None,
    }
}

/// Returns a compact record without these tasks, or `None` if it has none of them.
fn without(job: &Job, gone: &[u32]) -> Option<Job> {
    let mut left = job.without_steps();
    let (ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) = &mut left.role else {
        return None;
    };
    let before = tasks.clone();
    for task in gone {
        tasks.remove(*task);
    }
    if *tasks == before {
        return None;
    }
    if tasks.is_empty() {
        // All of its tasks have been started since. The record still has to name one.
        *tasks = TaskSet::one(before.first().unwrap_or(0));
        left.run.state = JobState::Ended(End::Cancelled);
        left.run.end = Some(left.submit);
        left.run.system_comment = Some(COMMENT.to_owned());
    }
    Some(left)
}

/// Returns the record of a found job, or `None` if it was not launched, or if the database already
/// has its launch.
fn record(
    found: FoundJob,
    before: Option<&Job>,
    owner: (&str, u32),
    now: Timestamp,
) -> Option<Job> {
    let FoundJob { id, job, steps, .. } = found;
    let known = job.filter(|job| job.id == id).or_else(|| unknown(id, &steps, owner, now))?;
    let run = known.run.restarts;
    let has_launch = |job: &Job| match job.run.restarts.cmp(&run) {
        Ordering::Less => false,
        Ordering::Equal => job.run.state != JobState::Pending,
        Ordering::Greater => true,
    };
    if before.is_some_and(has_launch) {
        return None;
    }
    let traces: Vec<Trace> = steps.into_iter().filter(|trace| trace.run == run).collect();
    if before.is_some()
        && traces.iter().all(|trace| trace.ended.as_ref().is_some_and(|r| r.launch_error.is_some()))
    {
        return None;
    }
    let mut job = known;
    // Its environment was lost with the database, so it cannot run again.
    let request = Arc::make_mut(&mut job.request);
    (request.requeue, request.no_requeue) = (false, true);
    if before.is_none() {
        request.recurrence = None;
    }
    job.run.system_comment = Some(COMMENT.to_owned());
    job.run.state = JobState::Running;
    let own = job.own_step_id().map(|_| StepId::Batch);
    job.steps = traces
        .iter()
        .filter(|trace| Some(trace.step) != own)
        .map(|trace| step(&job, trace))
        .collect();
    let is_live = match own {
        Some(own) => traces.iter().any(|trace| trace.step == own && trace.ended.is_none()),
        None => traces.iter().any(|trace| trace.ended.is_none()),
    };
    if !is_live {
        end(&mut job, own, &traces, now);
    }
    Some(job)
}

/// Returns a record for a running job if only its steps are known.
fn unknown(id: JobId, steps: &[Trace], owner: (&str, u32), now: Timestamp) -> Option<Job> {
    let live = steps.iter().rfind(|trace| trace.ended.is_none())?;
    let kind = if steps.iter().any(|trace| trace.step == StepId::Batch) {
        JobKind::Batch
    } else {
        JobKind::Allocation
    };
    let name = "unknown".to_owned();
    let request =
        JobRequest { kind, name, user: owner.0.to_owned(), uid: owner.1, ..JobRequest::default() };
    let mut job = Job { id, request: Arc::new(request), submit: now, ..Job::default() };
    (job.run.restarts, job.run.start) = (live.run, Some(now));
    Some(job)
}

fn step(job: &Job, trace: &Trace) -> Step {
    let ended = trace.ended.as_ref();
    let ending = ended.map(|record| Ending::of_running(record.exit, EndCause::of(record)));
    let start = ended.map_or(job.run.start.unwrap_or(job.submit), |record| record.started);
    Step {
        name: job.request.name.clone(),
        ntasks: ended.map_or(1, |record| u32::try_from(record.tasks.len()).unwrap_or(1).max(1)),
        state: ending.map_or(JobState::Running, |ending| JobState::Ended(ending.state)),
        end: ended.map(|record| record.ended),
        exit: ending.map_or(ExitCode::OK, |ending| ending.exit),
        alloc: job.run.alloc.as_deref().cloned().unwrap_or_default(),
        usage: ended.map_or_else(Usage::default, |record| record.usage),
        overlap: true,
        client: first_client(job, trace.step),
        client_gone: ended.is_some_and(|record| record.client_gone),
        ..Step::started(trace.step, start)
    }
}

/// Returns the client of an allocation if `step` is its first step. The client requests that step
/// itself, and again after a restart of the daemon.
fn first_client(job: &Job, step: StepId) -> Option<ClientProcess> {
    let is_first = matches!(step, StepId::Interactive | StepId::Num(0));
    job.holder().filter(|_| is_first && job.request.kind == JobKind::Allocation)
}

/// Ends a job as its script did, or an allocation as its last step did.
fn end(job: &mut Job, own: Option<StepId>, traces: &[Trace], now: Timestamp) {
    let records = traces.iter().filter(|trace| own.is_none_or(|own| trace.step == own));
    let last = records.filter_map(|trace| trace.ended.as_ref()).max_by_key(|record| record.ended);
    let (ending, usage, at) = match last {
        Some(record) => {
            (Ending::of_record(record, EndCause::of(record)), record.usage, record.ended)
        }
        // It was launched, but nothing records how it ended.
        None => (Ending::of_running(ExitCode::OK, EndCause::RunnerLost), Usage::default(), now),
    };
    job.run = std::mem::take(&mut job.run).ended_as(ending.exit, usage, at);
    (job.run.state, job.run.reason) = (JobState::Ended(ending.state), ending.reason);
    job.run.cancelled_by = ending.by;
    if ending.state == End::Completed {
        job.run.reason = Reason::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::ExitRecord;
    use slotd_model::array::TaskRange;
    use slotd_model::job::Client;
    use slotd_model::run::RunState;

    const OWNER: (&str, u32) = ("ann", 7);
    const NOW: Timestamp = Timestamp(900);

    fn launched(id: u32) -> Job {
        let run = RunState {
            state: JobState::Running,
            start: Some(Timestamp(20)),
            ..RunState::default()
        };
        let request =
            Arc::new(JobRequest { name: "x".to_owned(), requeue: true, ..JobRequest::default() });
        Job { id: JobId(id), request, run, submit: Timestamp(10), ..Job::default() }
    }

    fn trace(step: StepId, exit: Option<ExitCode>) -> Trace {
        let ended =
            exit.map(|exit| ExitRecord { exit, ended: Timestamp(50), ..ExitRecord::default() });
        Trace { step, run: 0, ended }
    }

    fn found(job: Job, steps: Vec<Trace>) -> FoundJob {
        FoundJob { id: job.id, job: Some(job), steps, script: None }
    }

    fn jobs(changes: Vec<Change>) -> Vec<(bool, Job)> {
        let of = |change| match change {
            Change::Insert { job, .. } => Some((true, *job)),
            Change::Update(job) => Some((false, *job)),
            _ => None,
        };
        changes.into_iter().filter_map(of).collect()
    }

    #[test]
    fn running_jobs_are_adopted_and_ended_jobs_keep_their_exit_code() {
        let all = vec![
            found(launched(1), vec![trace(StepId::Batch, None)]),
            found(launched(2), vec![trace(StepId::Batch, Some(ExitCode::status(3)))]),
            found(launched(3), vec![]),
            FoundJob {
                id: JobId(4),
                steps: vec![trace(StepId::Batch, None)],
                ..FoundJob::default()
            },
            FoundJob { id: JobId(5), ..FoundJob::default() },
        ];
        let jobs = jobs(found_changes(all, &BTreeMap::new(), OWNER, NOW));
        let told: Vec<_> = jobs
            .iter()
            .map(|(_, job)| (job.id.0, job.run.state, job.run.exit, job.run.end))
            .collect();
        let ok = ExitCode::OK;
        assert_eq!(
            told,
            [
                (1, JobState::Running, ok, None),
                (2, JobState::Ended(End::Failed), ExitCode::status(3), Some(Timestamp(50))),
                (3, JobState::Ended(End::Failed), ok, Some(NOW)),
                (4, JobState::Running, ok, None),
            ]
        );
        assert!(jobs.iter().all(|(is_new, job)| *is_new && !job.runs_again()));
        assert_eq!(
            (jobs[2].1.run.reason, jobs[3].1.request.user.as_str()),
            (Reason::RunnerLost, "ann")
        );
    }

    #[test]
    fn a_pending_record_runs_if_its_job_was_launched_since() {
        let waits = Job { run: RunState::default(), ..launched(1) };
        let again = Job { run: RunState { restarts: 1, ..RunState::default() }, ..launched(2) };
        let failed = Job { run: RunState::default(), ..launched(3) };
        let pending = BTreeMap::from([(JobId(1), &waits), (JobId(2), &again), (JobId(3), &failed)]);
        let mut no_launch = trace(StepId::Batch, Some(ExitCode::LAUNCH_FAILED));
        if let Some(record) = &mut no_launch.ended {
            record.launch_error = Some("no room".to_owned());
        }
        let all = vec![
            found(launched(1), vec![trace(StepId::Batch, None)]),
            found(launched(2), vec![trace(StepId::Batch, Some(ExitCode::OK))]),
            found(launched(3), vec![no_launch]),
        ];
        let jobs = jobs(found_changes(all, &pending, OWNER, NOW));
        let told: Vec<_> =
            jobs.iter().map(|(is_new, job)| (*is_new, job.id.0, job.run.state)).collect();
        assert_eq!(told, [(false, 1, JobState::Running)]);
    }

    #[test]
    fn a_record_of_an_earlier_run_is_replaced_with_its_steps() {
        let in_run = |id, restarts| {
            let mut job = launched(id);
            job.run.restarts = restarts;
            job
        };
        let pending = Job { run: RunState::default(), ..launched(1) };
        let mut running = launched(2);
        running.steps = vec![Step::started(StepId::Num(0), NOW)];
        let [same, later] = [in_run(3, 1), in_run(4, 2)];
        let known = [&pending, &running, &same, &later].map(|job| (job.id, job)).into();
        let of_run = |id| {
            let trace = Trace { run: 1, ..trace(StepId::Batch, None) };
            found(in_run(id, 1), vec![trace])
        };
        let changes = found_changes((1..=4).map(of_run).collect(), &known, OWNER, NOW);
        let drops = |change: &Change| {
            matches!(change, Change::DropStep { job: JobId(2), step: StepId::Num(0) })
        };
        assert!(changes.iter().any(drops));
        let told: Vec<_> = jobs(changes)
            .iter()
            .map(|(is_new, job)| (*is_new, job.id.0, job.run.restarts))
            .collect();
        assert_eq!(told, [(false, 1, 1), (false, 2, 1)]);
    }

    #[test]
    fn started_tasks_leave_their_compact_record() {
        let of = |first, last| {
            TaskSet::from_ranges(TaskRange::new(first, last, 1).into_iter().collect())
        };
        let rest = Job { role: ArrayRole::Rest { tasks: of(0, 5), limit: None }, ..launched(10) };
        let part =
            Job { role: ArrayRole::Part { array_job: JobId(10), tasks: of(6, 6) }, ..launched(11) };
        let pending = BTreeMap::from([(JobId(10), &rest), (JobId(11), &part)]);
        let task = |id, task| {
            let job = Job { role: ArrayRole::Task { array_job: JobId(10), task }, ..launched(id) };
            found(job, vec![trace(StepId::Batch, Some(ExitCode::OK))])
        };
        let jobs =
            jobs(found_changes(vec![task(12, 0), task(13, 1), task(14, 6)], &pending, OWNER, NOW));
        let of_id = |id| {
            jobs.iter()
                .find(|(_, job)| job.id == JobId(id))
                .map(|(is_new, job)| (*is_new, job.clone()))
        };
        assert_eq!(
            of_id(12).map(|(is_new, job)| (is_new, job.run.state)),
            Some((true, JobState::Ended(End::Completed)))
        );
        let (is_new, left) = of_id(10).expect("the rest");
        assert_eq!((is_new, left.compact_tasks()), (false, Some(&of(2, 5))));
        assert_eq!(of_id(11).map(|(_, job)| job.run.state), Some(JobState::Ended(End::Cancelled)));
    }

    #[test]
    fn an_allocation_runs_while_any_of_its_steps_runs() {
        let holder = ClientProcess { pid: 4, start_ticks: 5, ..ClientProcess::default() };
        let allocation = |id| {
            let mut job = Job {
                client: Some(Client { process: holder, holds: true, ..Client::default() }),
                ..launched(id)
            };
            Arc::make_mut(&mut job.request).kind = JobKind::Allocation;
            job
        };
        let (first, failed) = (
            trace(StepId::Num(0), Some(ExitCode::OK)),
            trace(StepId::Num(1), Some(ExitCode::status(2))),
        );
        let all = vec![
            found(allocation(1), vec![first.clone(), trace(StepId::Num(1), None)]),
            found(allocation(2), vec![first, failed]),
        ];
        let changes = found_changes(all, &BTreeMap::new(), OWNER, NOW);
        let clients: Vec<_> = changes
            .iter()
            .filter_map(|change| match change {
                Change::PutStep { step, .. } => Some(step.client),
                _ => None,
            })
            .collect();
        let states: Vec<_> = jobs(changes).iter().map(|(_, job)| job.run.state).collect();
        assert_eq!(clients, [Some(holder), None, Some(holder), None]);
        assert_eq!(states, [JobState::Running, JobState::Ended(End::Failed)]);
    }
}
