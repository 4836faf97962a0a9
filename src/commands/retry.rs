//! `slotd retry`: resubmits ended jobs as they were submitted, optionally with the jobs that could
//! not run because of them.
//!
//! The daemon has their scripts and environments. The new request is that of the old job, without
//! the parts that no longer apply.

use super::launch::{check_work_dir, client, hand_in, note_tree};
use super::log::views;
use super::output::print;
use super::output::print_stderr;
use super::why::refs;
use super::{Done, ask, ask_for_jobs, ask_outcomes, now, paths, refused, unexpected};
use crate::args::error::{CliError, Mark};
use slotd_model::array::ArraySpec;
use slotd_model::dependency::{Dependency, DependencyKind, DependencyTerm};
use slotd_model::query::{JobQuery, names_record};
use slotd_model::request::JobKind;
use slotd_model::update::Update;
use slotd_model::view::JobView;
use slotd_model::{
    ArrayRole, End, JobId, JobRef, JobRequest, JobState, Reason, TaskSet, Timestamp,
};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{ControlAction, Request, Submit};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd retry 12                     resubmit the job, or the failed tasks of the array\n  slotd retry --with-dependents 12   also resubmit the jobs that depend on it"
)]
pub struct RetryArgs {
    /// Resubmit all tasks of an array, including those that completed
    #[arg(long)]
    all: bool,
    /// Also resubmit jobs that could not run because they depend on these
    #[arg(long)]
    with_dependents: bool,
    /// Print only the new job IDs
    #[arg(long)]
    parsable: bool,
    /// The ended jobs: 12, 12_3, 12_[3-5]
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
}

pub fn run(args: &RetryArgs) -> Done {
    let named = refs(&args.jobs)?;
    if let Some(step) = named.iter().find(|named| named.step.is_some()) {
        let hint = format!("slotd retry {}", step.job);
        return Err(CliError::error(
            1,
            format!("{step} is a step: only its job can be resubmitted"),
        )
        .hint(hint));
    }
    let found = views(&named)?;
    let mut wanted: BTreeMap<JobId, Vec<JobView>> = BTreeMap::new();
    for one in &named {
        let of_one = found.iter().filter(|view| names_record(one, view.id, &view.role));
        let of_one: Vec<JobView> = of_one.map(|view| narrowed(view, one)).collect();
        let Some(first) = of_one.first() else {
            return Err(
                CliError::error(1, format!("there is no job {one}")).hint("`sacct` lists all jobs")
            );
        };
        let id = number(first);
        wanted.entry(id).or_default().extend(chosen(one, of_one, args)?);
    }
    let mut submitter = Submitter { args, moved: Vec::new() };
    let others = if args.with_dependents { dependents(&found)? } else { Vec::new() };
    let (ended, waiting): (Vec<JobView>, Vec<JobView>) =
        others.into_iter().partition(|view| view.run.state.is_terminal());
    let given: BTreeSet<JobId> = wanted.keys().copied().collect();
    for view in ended.into_iter().filter(|view| !given.contains(&number(view))) {
        wanted.entry(number(&view)).or_default().push(view);
    }
    let waits_for = |of: &Vec<JobView>| -> BTreeSet<JobId> {
        let terms = of.iter().flat_map(|view| &view.request.dependency.terms);
        terms.filter_map(|term| term.must_succeed().map(|target| target.job)).collect()
    };
    let edges = wanted.iter().map(|(id, of)| (*id, waits_for(of))).collect();
    for id in in_order(&given, &edges) {
        let again = Resubmission::of(&wanted[&id], &submitter.moved, given.contains(&id), now())?;
        submitter.submit(id, again)?;
    }
    waiting.iter().try_for_each(|view| submitter.move_on(view))?;
    Ok(0)
}

/// Returns the ID that users and dependencies use: that of the array for its tasks.
fn number(view: &JobView) -> JobId {
    view.array_job_id().unwrap_or(view.id)
}

fn union(views: &[JobView]) -> TaskSet {
    let ids: BTreeSet<u32> =
        views.iter().flat_map(|view| view.role.tasks().iter().collect::<Vec<_>>()).collect();
    TaskSet::from_sorted(&ids.into_iter().collect::<Vec<_>>())
}

/// Returns the record, restricted to the named tasks.
fn narrowed(view: &JobView, named: &JobRef) -> JobView {
    let mut narrowed = view.clone();
    if let (Some(wanted), ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) =
        (&named.tasks, &mut narrowed.job.role)
    {
        *tasks = tasks.intersection(wanted);
    }
    narrowed
}

/// Returns the records of a job that should run again.
///
/// # Errors
/// Fails if the job has not ended or none of its tasks failed.
fn chosen(named: &JobRef, views: Vec<JobView>, args: &RetryArgs) -> Result<Vec<JobView>, CliError> {
    let (over, live): (Vec<JobView>, Vec<JobView>) =
        views.into_iter().partition(|v| v.run.state.is_terminal());
    let Some(first) = over.first().or(live.first()) else { return Ok(Vec::new()) };
    let not_over = |of: &JobView| {
        let error = CliError::error(
            1,
            format!("job {named} is {}: only ended jobs can be resubmitted", of.run.state),
        );
        let needed = of.request.dependency.terms.iter().find_map(DependencyTerm::must_succeed);
        match needed.filter(|_| of.run.reason == Reason::DependencyNeverSatisfied) {
            Some(needed) => error.hint(format!(
                "its dependency can never be satisfied: slotd retry --with-dependents {needed}"
            )),
            None => error.hint(
                "`slotd wait` waits until it ends; `scontrol requeue` stops it and runs it again",
            ),
        }
    };
    if first.request.kind == JobKind::Allocation {
        let why = format!(
            "job {named} was an allocation of salloc or srun, which has no script to run again"
        );
        return Err(CliError::error(1, why).hint(first.submit_line()));
    }
    if first.array_job_id().is_none() {
        return if over.is_empty() { Err(not_over(first)) } else { Ok(over) };
    }
    if let Some(still) = live.first()
        && (args.all || args.with_dependents || over.is_empty())
    {
        return Err(not_over(still));
    }
    let runs_again = |view: &JobView| args.all || view.run.state != JobState::Ended(End::Completed);
    let chosen: Vec<JobView> = over.into_iter().filter(runs_again).collect();
    if chosen.is_empty() {
        let (what, hint) = if live.is_empty() {
            (format!("no task of job {named} has failed"), "use --all to resubmit completed tasks")
        } else {
            (
                format!("no task of job {named} has failed so far"),
                "`slotd wait` waits for the other tasks",
            )
        };
        return Err(CliError::error(1, what).hint(hint));
    }
    Ok(chosen)
}

/// Returns jobs with a dependency that are pending, or that were cancelled because it could not be
/// satisfied. Only jobs submitted after the first of `of` are considered.
fn dependents(of: &[JobView]) -> Result<Vec<JobView>, CliError> {
    let query = JobQuery {
        states: Some(vec![JobState::Pending, JobState::Ended(End::Cancelled)]),
        since: of.iter().map(|view| view.submit).min(),
        without_steps: true,
        ..JobQuery::default()
    };
    let mut found = Vec::new();
    let never_ran = |view: &JobView| match view.run.state {
        JobState::Pending => true,
        _ => view.run.start.is_none() && view.run.reason == Reason::DependencyNeverSatisfied,
    };
    ask_for_jobs(&Request::Accounting(query), |list| {
        let jobs = list.whole().jobs.into_iter();
        found.extend(jobs.filter(|view| {
            let has_script =
                view.request.kind != JobKind::Allocation || view.run.state == JobState::Pending;
            has_script
                && never_ran(view)
                && view.request.dependency.terms.iter().any(|term| term.must_succeed().is_some())
        }));
        Ok(())
    })?;
    Ok(found)
}

/// Returns the given jobs and their dependents, each after the jobs that it depends on. `edges`
/// maps each job to the jobs that it depends on.
fn in_order(given: &BTreeSet<JobId>, edges: &BTreeMap<JobId, BTreeSet<JobId>>) -> Vec<JobId> {
    let mut all = given.clone();
    loop {
        let more: Vec<JobId> =
            edges.iter().filter(|(_, on)| !on.is_disjoint(&all)).map(|(id, _)| *id).collect();
        let before = all.len();
        all.extend(more);
        if all.len() == before {
            break;
        }
    }
    let mut order: Vec<JobId> = Vec::new();
    while let Some(next) = all.iter().copied().find(|id| {
        let on = edges.get(id).into_iter().flatten();
        on.filter(|other| *other != id).all(|other| !all.contains(other))
    }) {
        all.remove(&next);
        order.push(next);
    }
    // Jobs in a dependency cycle never ran and are left out.
    order
}

/// A resubmitted job.
#[derive(Debug, Clone, PartialEq)]
struct Moved {
    old: JobId,
    new: JobId,
    /// The tasks of an array that run again.
    tasks: Option<TaskSet>,
}

impl Moved {
    /// Translates a reference to the old job into one to the new job. Returns `None` if it refers
    /// to tasks that do not run again.
    fn target(&self, named: &JobRef) -> Option<JobRef> {
        if named.job != self.old {
            return None;
        }
        match (&named.tasks, &self.tasks) {
            (Some(wanted), Some(there)) => {
                let tasks = wanted.intersection(there);
                (!tasks.is_empty()).then(|| JobRef { tasks: Some(tasks), ..JobRef::job(self.new) })
            }
            (Some(_), None) => None,
            (None, _) => Some(JobRef::job(self.new)),
        }
    }
}

/// A dependency with the new job IDs.
#[derive(Debug, PartialEq)]
struct Redirected {
    dependency: Dependency,
    /// At least one term was changed.
    is_other: bool,
    /// The dependency applies only to these tasks. The others depend on tasks of the same index
    /// that do not run again.
    tasks: Option<TaskSet>,
}

fn redirected(dependency: &Dependency, moved: &[Moved]) -> Redirected {
    let mut new = Redirected { dependency: dependency.clone(), is_other: false, tasks: None };
    for term in &mut new.dependency.terms {
        let found = term
            .must_succeed()
            .and_then(|target| moved.iter().find_map(|one| Some((one, one.target(target)?))));
        let (Some((one, target)), DependencyTerm::On { kind, job, .. }) = (found, &mut *term)
        else {
            continue;
        };
        if *kind == DependencyKind::AfterCorr
            && let Some(there) = &one.tasks
        {
            let both = new.tasks.as_ref().map(|tasks| tasks.intersection(there));
            new.tasks = Some(both.unwrap_or_else(|| there.clone()));
        }
        *job = target;
        new.is_other = true;
    }
    new
}

/// A job to submit.
#[derive(Debug, PartialEq)]
struct Resubmission {
    request: JobRequest,
    /// The record with its script and environment.
    texts_of: JobId,
}

impl Resubmission {
    /// Creates the resubmission of a job from its records. `is_named` is true if the user named the
    /// job, and false if it was found as a dependent.
    ///
    /// # Errors
    /// Fails if the records have different requests, or if the job can no longer run as requested.
    fn of(
        views: &[JobView],
        moved: &[Moved],
        is_named: bool,
        now: Timestamp,
    ) -> Result<Resubmission, CliError> {
        let Some(first) = views.first() else { return Err(CliError::error(1, "there is no job")) };
        let (label, mut request) = (number(first), first.whole_request());
        if let Some(other) = views.iter().find(|view| view.request != first.request) {
            let why = format!(
                "tasks {} and {} of job {label} have different options",
                first.label(),
                other.label()
            );
            return Err(CliError::error(1, why)
                .hint("retry only tasks with the same options together: slotd retry '12_[3-5]'"));
        }
        if let Some(deadline) = request.deadline.filter(|deadline| *deadline <= now) {
            let at = slotd_render::time::iso(deadline, &slotd_sys::zone::local());
            let why = format!("the deadline of job {label} has passed: {at}");
            return Err(CliError::error(1, why)
                .hint(format!("submit it with a later one: {}", request.submit_line)));
        }
        let Redirected { dependency, is_other, tasks } = redirected(&request.dependency, moved);
        let has_run = views.iter().any(|view| view.run.start.is_some());
        let in_vain = |view: &JobView| view.run.reason == Reason::DependencyNeverSatisfied;
        if is_named && !has_run && !is_other && views.iter().all(in_vain) {
            let on = &request.dependency;
            let why = format!(
                "job {label} never ran because its dependency failed ({on}), and could not run now"
            );
            let hint = match on.terms.iter().find_map(DependencyTerm::must_succeed) {
                Some(needed) => format!("slotd retry --with-dependents {}", needed.job),
                None => request.submit_line.clone(),
            };
            return Err(CliError::error(1, why).hint(hint));
        }
        request.dependency = dependency;
        if has_run {
            // The other conditions were met when it ran.
            let stays = |term: &DependencyTerm| {
                matches!(term, DependencyTerm::Singleton)
                    || term
                        .must_succeed()
                        .is_some_and(|target| moved.iter().any(|one| one.new == target.job))
            };
            request.dependency.terms.retain(stays);
        }
        request.array = request.array.as_ref().map(|array| {
            let own = union(views);
            let own = tasks.as_ref().map_or(own.clone(), |tasks| own.intersection(tasks));
            ArraySpec { tasks: own, limit: array.limit }
        });
        // A job that has ended was released before.
        request.hold = false;
        request.begin = request.begin.filter(|begin| *begin > now);
        Ok(Resubmission { request, texts_of: first.id })
    }
}

/// Submits jobs one after the other.
struct Submitter<'a> {
    args: &'a RetryArgs,
    moved: Vec<Moved>,
}

impl Submitter<'_> {
    fn submit(&mut self, old: JobId, again: Resubmission) -> Result<(), CliError> {
        let Resubmission { mut request, texts_of } = again;
        if let Some(copy) = &request.snapshot
            && !paths()?.snapshots_dir().join(&copy.name).exists()
        {
            let why = format!(
                "job {old} ran in a copy of its work tree (--snapshot) that no longer exists"
            );
            return Err(CliError::error(1, why)
                .hint(format!("submit it as a new job: {}", request.submit_line)));
        }
        check_work_dir(&request, "slotd retry")?;
        note_tree(&mut request);
        let tasks = request.array.as_ref().map(|array| array.tasks.clone());
        let submission = Submit {
            request,
            texts_of: Some(texts_of),
            client: client(false),
            ..Submit::default()
        };
        // The daemon recognizes a repeated submission by its process, so only the first may be
        // repeated.
        let answer = if self.moved.is_empty() {
            hand_in(&paths()?, submission, &[], "slotd retry")?.1
        } else {
            ask(&Request::Submit(Box::new(submission)), &[]).map_err(|e| self.stopped_at(old, e))?.0
        };
        let new = match answer {
            Answer::Submitted { job } => job,
            Answer::Refused(why) => {
                return Err(self.stopped_at(old, refused("Batch job submission failed", &why)));
            }
            other => return Err(unexpected(&other)),
        };
        let line = if self.args.parsable {
            format!("{new}\n")
        } else {
            format!("Submitted batch job {new}\n")
        };
        print(&line).map_err(|e| e.and(Mark::Error, format!("job {new} was submitted")))?;
        self.moved.push(Moved { old, new, tasks });
        Ok(())
    }

    fn stopped_at(&self, old: JobId, error: CliError) -> CliError {
        if self.moved.is_empty() {
            error
        } else {
            error.and(Mark::Error, format!("job {old} and its dependents were not resubmitted"))
        }
    }

    /// Makes a pending job depend on the resubmitted jobs.
    fn move_on(&self, view: &JobView) -> Result<(), CliError> {
        let Redirected { dependency, is_other, tasks } =
            redirected(&view.request.dependency, &self.moved);
        if !is_other {
            return Ok(());
        }
        let own = view.own_ref();
        let target = match (&tasks, &own.tasks) {
            (Some(tasks), Some(there)) => JobRef { tasks: Some(tasks.intersection(there)), ..own },
            _ => own,
        };
        if target.tasks.as_ref().is_some_and(TaskSet::is_empty) {
            return Ok(());
        }
        let line = format!("job {target} now depends on {dependency}");
        let action = ControlAction::Update(vec![Update::Dependency(dependency)]);
        let outcomes = ask_outcomes(&Request::Control { jobs: vec![target.clone()], action })?;
        match outcomes.into_iter().find_map(|outcome| outcome.result.err()) {
            Some(why) => Err(CliError::error(
                1,
                format!("cannot change the dependency of job {target}: {why}"),
            )),
            None => {
                print_stderr(&format!("slotd: {line}\n"));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::Job;
    use slotd_model::array::TaskRange;
    use slotd_model::run::RunState;
    use slotd_parse::dependency::parse;
    use std::sync::Arc;

    fn set(first: u32, last: u32) -> TaskSet {
        TaskSet::from_ranges(TaskRange::new(first, last, 1).into_iter().collect())
    }

    fn view(id: u32, role: ArrayRole, state: JobState) -> JobView {
        let run = RunState { state, start: Some(Timestamp(1)), ..RunState::default() };
        let request = JobRequest {
            array: (role != ArrayRole::None)
                .then(|| ArraySpec { tasks: set(0, 9), limit: Some(2) }),
            hold: true,
            begin: Some(Timestamp(5)),
            ..JobRequest::default()
        };
        JobView::from(Job {
            id: JobId(id),
            role,
            run,
            request: Arc::new(request),
            ..Job::default()
        })
    }

    fn task(id: u32, task: u32, state: JobState) -> JobView {
        view(id, ArrayRole::Task { array_job: JobId(12), task }, state)
    }

    fn args(all: bool, with_dependents: bool) -> RetryArgs {
        RetryArgs { all, with_dependents, parsable: false, jobs: Vec::new() }
    }

    fn chosen_tasks(views: &[JobView], args: &RetryArgs) -> Result<String, String> {
        match chosen(&JobRef::job(JobId(12)), views.to_vec(), args) {
            Ok(chosen) => Ok(union(&chosen).to_string()),
            Err(error) => Err(error.lines[0].1.clone()),
        }
    }

    #[test]
    fn only_failed_tasks_of_an_array_run_again() {
        let over = [
            task(13, 0, JobState::Ended(End::Completed)),
            task(14, 1, JobState::Ended(End::Failed)),
            task(15, 2, JobState::Ended(End::Timeout)),
            view(
                16,
                ArrayRole::Part { array_job: JobId(12), tasks: set(7, 9) },
                JobState::Ended(End::Cancelled),
            ),
        ];
        assert_eq!(chosen_tasks(&over, &args(false, true)), Ok("1-2,7-9".to_owned()));
        assert_eq!(chosen_tasks(&over, &args(true, false)), Ok("0-2,7-9".to_owned()));
        assert_eq!(
            chosen_tasks(&over[..1], &args(false, false)),
            Err("no task of job 12 has failed".to_owned())
        );
        let some = [over[0].clone(), over[1].clone(), task(17, 3, JobState::Running)];
        assert_eq!(chosen_tasks(&some, &args(false, false)), Ok("1".to_owned()));
        let not_over = Err("job 12 is RUNNING: only ended jobs can be resubmitted".to_owned());
        assert_eq!(chosen_tasks(&some, &args(true, false)), not_over);
        assert_eq!(
            chosen_tasks(&some, &args(false, true)),
            not_over,
            "dependents of the array depend on all tasks"
        );
        assert_eq!(chosen_tasks(&some[2..], &args(false, false)), not_over);
    }

    #[test]
    fn plain_jobs_run_again_regardless_of_their_result() {
        let plain = |state| view(12, ArrayRole::None, state);
        assert_eq!(
            chosen_tasks(&[plain(JobState::Ended(End::Completed))], &args(false, false)),
            Ok(String::new())
        );
        let why = Err("job 12 is PENDING: only ended jobs can be resubmitted".to_owned());
        assert_eq!(chosen_tasks(&[plain(JobState::Pending)], &args(false, false)), why);
    }

    #[test]
    fn expired_parts_of_the_request_are_removed() {
        let failed =
            [task(13, 3, JobState::Ended(End::Failed)), task(14, 5, JobState::Ended(End::Failed))];
        let again = Resubmission::of(&failed, &[], true, Timestamp(10)).expect("it can run again");
        assert_eq!(again.request.array.map(|array| array.to_string()).as_deref(), Some("3,5%2"));
        assert_eq!(
            (again.request.hold, again.request.begin, again.texts_of),
            (false, None, JobId(13))
        );
        let mut other = failed[1].clone();
        other.job.request = Arc::new(JobRequest { nice: 3, ..JobRequest::clone(&other.request) });
        let error = Resubmission::of(&[failed[0].clone(), other], &[], true, Timestamp(10))
            .expect_err("they differ");
        assert_eq!(error.lines[0].1, "tasks 12_3 and 12_5 of job 12 have different options");
    }

    fn with_dependency(id: u32, text: &str, started: bool) -> JobView {
        let mut view = view(id, ArrayRole::None, JobState::Ended(End::Cancelled));
        let dependency = parse(text).expect(text);
        view.job.request = Arc::new(JobRequest { dependency, ..JobRequest::clone(&view.request) });
        view.job.run.start = started.then_some(Timestamp(1));
        view.job.run.reason =
            if started { Reason::CancelledByUser } else { Reason::DependencyNeverSatisfied };
        view
    }

    #[test]
    fn dependencies_refer_to_the_new_jobs() {
        let moved = [
            Moved { old: JobId(12), new: JobId(20), tasks: Some(set(3, 5)) },
            Moved { old: JobId(13), new: JobId(21), tasks: None },
        ];
        for (old, new, tasks) in [
            ("afterok:12,afterany:13", "afterok:20,afterany:13", None),
            ("afterok:12_4?afterok:13", "afterok:20_4?afterok:21", None),
            ("afterok:12_[0-3]", "afterok:20_3", None),
            ("afterok:12_1,singleton", "afterok:12_1,singleton", None),
            ("aftercorr:12", "aftercorr:20", Some(set(3, 5))),
            ("afterok:14", "afterok:14", None),
        ] {
            let got = redirected(&parse(old).expect(old), &moved);
            let is_other = old != new;
            assert_eq!(
                (got.dependency.to_string().as_str(), got.is_other, got.tasks),
                (new, is_other, tasks),
                "{old}"
            );
        }
        let again =
            |view: JobView, is_named| Resubmission::of(&[view], &moved, is_named, Timestamp(10));
        let new = again(with_dependency(14, "afterok:13,after:9,singleton", false), false)
            .expect("it can run now");
        assert_eq!(new.request.dependency.to_string(), "afterok:21,after:9,singleton");
        let ran =
            again(with_dependency(14, "afterok:9,after:13,singleton", true), true).expect("it ran");
        assert_eq!(
            ran.request.dependency.to_string(),
            "singleton",
            "the other conditions were met"
        );
        let error = again(with_dependency(14, "afterok:9", false), true)
            .expect_err("9 was not resubmitted");
        assert!(error.text("slotd").contains("slotd retry --with-dependents 9"), "{error:?}");
    }

    #[test]
    fn jobs_follow_their_dependencies() {
        let ids = |ids: &[u32]| ids.iter().map(|id| JobId(*id)).collect::<BTreeSet<_>>();
        let edges =
            |list: &[(u32, &[u32])]| list.iter().map(|(id, on)| (JobId(*id), ids(on))).collect();
        let order = |list: &[(u32, &[u32])]| {
            in_order(&ids(&[12]), &edges(list)).into_iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(
            order(&[(12, &[1]), (13, &[15, 12]), (15, &[12]), (16, &[9]), (17, &[13])]),
            [12, 15, 13, 17]
        );
        assert_eq!(order(&[(12, &[]), (13, &[14, 12]), (14, &[13])]), [12], "a cycle is left out");
    }
}
