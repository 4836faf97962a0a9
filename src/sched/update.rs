//! `scontrol update job`: which keys may change when, and what follows from it.
//!
//! Name, partition and priority may be changed while the job is PENDING, the time limit until it has ended; of
//! Slurm's further keys, those that decide about the start follow the first rule and those that only describe the job
//! the second. The size of a job may also be changed while it runs (`resize`). All keys of one command are checked before
//! any is applied.

use super::admit::{Admitted, check_tasks};
use super::core::Core;
use super::lengths::{check_request, check_script_len};
use super::queue::shown_priority;
use super::room::Part;
use super::types::{Cx, EndedJob};
use crate::model::change::Change;
use crate::model::dependency::{Dependency, DependencyTerm};
use crate::model::job::Hold;
use crate::model::request::{GpuRequest, JobKind, KeptText, MemRequest, Sharing};
use crate::model::resize::PartChange;
use crate::model::update::Update;
use crate::model::{ArrayRole, Job, JobId, JobRef, JobRequest, JobState, Refusal, Timestamp, Tres};
use std::sync::Arc;

/// In which states of a job a key may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Pending,
    /// While it waits or runs.
    Size,
    Always,
}

fn stage_of(update: &Update) -> Stage {
    match update {
        Update::NumCpus(_)
        | Update::NumTasks(_)
        | Update::CpusPerTask(_)
        | Update::MinMemoryNode(_)
        | Update::MinMemoryCpu(_) => Stage::Size,
        Update::JobName(_)
        | Update::Partition(_)
        | Update::Priority(_)
        | Update::PriorityReset
        | Update::Nice(_)
        | Update::Dependency(_)
        | Update::Gpus(_)
        | Update::StartTime(_)
        | Update::Features(_)
        | Update::WorkDir(_)
        | Update::StdOut(_)
        | Update::StdErr(_)
        | Update::StdIn(_)
        | Update::TimeMin(_)
        | Update::Exclusive(_)
        | Update::Script { .. } => Stage::Pending,
        Update::TimeLimit(_)
        | Update::TimeLimitBy(_)
        | Update::NumNodes(_)
        | Update::Deadline(_)
        | Update::Text(..)
        | Update::ArrayTaskThrottle(_)
        | Update::Requeue(_) => Stage::Always,
    }
}

/// What decides about the jobs of one command: which of them it is about.
#[derive(Debug, Clone, Copy)]
struct Keys {
    is_for_pending: bool,
    is_size: bool,
}

impl Keys {
    fn of(updates: &[Update]) -> Keys {
        let has = |stage| updates.iter().any(|update| stage_of(update) == stage);
        Keys { is_for_pending: has(Stage::Pending), is_size: has(Stage::Size) }
    }

    fn may_change(self, state: JobState, has_pending: bool) -> bool {
        match state {
            JobState::Pending => true,
            // Of an array, keys for pending jobs change its pending tasks.
            _ if self.is_for_pending => false,
            _ if self.is_size => !has_pending && Core::may_resize(state),
            _ => !state.is_terminal(),
        }
    }
}

/// What a job would be after its updates.
struct Changed {
    request: JobRequest,
    partition: String,
    tres: Tres,
    /// What a running job gets at once.
    more: Option<Part>,
}

impl Core {
    /// Changes pending and running jobs. `ended`: what the store knows of the targets of a new dependency. The records
    /// that were changed.
    pub fn update(
        &mut self,
        sel: &JobRef,
        updates: &[Update],
        ended: &[EndedJob],
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let is_throttle = |update: &&Update| matches!(update, Update::ArrayTaskThrottle(_));
        if sel.tasks.is_some() && updates.iter().any(|update| is_throttle(&update)) {
            // The throttle is the whole array's, whichever task is named.
            let (throttle, others): (Vec<_>, Vec<_>) =
                updates.iter().cloned().partition(|update| is_throttle(&update));
            let mut done = self.update(&JobRef::job(sel.job), &throttle, ended, cx)?;
            if !others.is_empty() {
                done = self.update(sel, &others, ended, cx)?;
            }
            return Ok(done);
        }
        let has_pending = self.check_update(sel, updates, ended, cx.now)?;
        let keys = Keys::of(updates);
        let mut done = Vec::new();
        for id in self.pick_live(sel, cx)? {
            if self.job(id).is_some_and(|job| keys.may_change(job.run.state, has_pending)) {
                self.apply(id, updates, ended, cx)?;
                done.push(id);
            }
        }
        self.settle(cx);
        Ok(done)
    }

    /// Refuses what cannot be, on the records as they are, before one is split for it. Whether some of them are pending.
    fn check_update(
        &self,
        sel: &JobRef,
        updates: &[Update],
        ended: &[EndedJob],
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let mut found: Vec<&Job> =
            self.resolve(sel).into_iter().filter_map(|id| self.job(id)).collect();
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        found.retain(|job| !job.run.state.is_terminal());
        if found.is_empty() {
            return Err(Refusal::AlreadyFinished);
        }
        if sel.tasks.is_some()
            && updates.iter().any(|update| matches!(update, Update::Script { .. }))
        {
            return Err(Refusal::ScriptOfArray);
        }
        let keys = Keys::of(updates);
        let has_pending = found.iter().any(|job| job.run.state == JobState::Pending);
        found.retain(|job| keys.may_change(job.run.state, has_pending));
        if found.is_empty() {
            return Err(if keys.is_for_pending {
                Refusal::NotPending
            } else {
                Refusal::AlreadyDone
            });
        }
        found.into_iter().try_for_each(|job| self.changed(job, updates, ended, now).map(drop))?;
        Ok(has_pending)
    }

    /// What a job would be.
    fn changed(
        &self,
        job: &Job,
        updates: &[Update],
        ended: &[EndedJob],
        now: Timestamp,
    ) -> Result<Changed, Refusal> {
        let mut request = JobRequest::clone(&job.request);
        for update in updates {
            match update {
                Update::Dependency(dependency) => {
                    self.check_new_dependency(job, dependency, ended)?;
                    let (dependency, partition) = (dependency.clone(), Some(job.partition.clone()));
                    self.check_expansion(&JobRequest { dependency, partition, ..request.clone() })?;
                }
                Update::Gpus(gpu) => self.check_gpu_model(gpu)?,
                // A priority is no release: `scontrol release` is.
                Update::Priority(1..) if job.hold != Hold::No => return Err(Refusal::Held),
                Update::Features(Some(wanted)) => self.config.host.check_features(wanted)?,
                Update::Script { text, .. } => self.check_script(job, text)?,
                _ => {}
            }
            set(&mut request, update)?;
        }
        check_request(&request)?;
        if updates.iter().any(|update| matches!(update, Update::NumTasks(_))) {
            check_tasks(request.task_count(), self.config.max_tasks)?;
        }
        let moves = updates.iter().any(|update| matches!(update, Update::Partition(_)));
        if job.run.state != JobState::Pending {
            let (tres, more) = match Keys::of(updates).is_size {
                true => self.resized(job, &request, now)?,
                false => (job.tres, None),
            };
            return Ok(Changed { request, partition: job.partition.clone(), tres, more });
        }
        let partitions =
            if moves { self.partitions_for(&request)? } else { self.partitions_of(job) };
        let Admitted { partition, tres, limit_secs } =
            self.readmit(&request, &partitions).map_err(|_| Refusal::ConfigNotAvailable)?;
        if job.has_several_partitions() {
            request.time_limit_secs = limit_secs;
        }
        Ok(Changed { request, partition, tres, more: None })
    }

    /// Refuses another script where it would be that of tasks that have started, too.
    fn check_script(&self, job: &Job, text: &str) -> Result<(), Refusal> {
        if job.request.kind != JobKind::Batch {
            return Err(Refusal::NoScript);
        }
        check_script_len(text.len())?;
        let Some(array) = job.array_job_id() else { return Ok(()) };
        let records = self.resolve(&JobRef::job(array)).into_iter().filter_map(|id| self.job(id));
        let waiting: usize = records.map(Job::pending_tasks).sum();
        let all = job.request.array.as_ref().map_or(0, |array| array.tasks.len());
        if waiting < all { Err(Refusal::ScriptOfArray) } else { Ok(()) }
    }

    fn check_new_dependency(
        &self,
        job: &Job,
        dependency: &Dependency,
        ended: &[EndedJob],
    ) -> Result<(), Refusal> {
        if dependency.terms.iter().any(|term| depends_on_itself(job, term)) {
            return Err(Refusal::DependsOnItself(job.id));
        }
        self.check_dependency(dependency, &super::depend::Known::new(ended))
    }

    fn apply(
        &mut self,
        id: JobId,
        updates: &[Update],
        ended: &[EndedJob],
        cx: &mut Cx,
    ) -> Result<(), Refusal> {
        let Some(job) = self.job(id) else { return Ok(()) };
        let is_resized = job.run.state != JobState::Pending && Keys::of(updates).is_size;
        let Changed { request, partition, tres, more } =
            self.changed(job, updates, ended, cx.now)?;
        let old_name = (job.request.uid, job.request.name.clone());
        let is_limit_changed = request.time_limit_secs != job.request.time_limit_secs;
        let limit = request.array.as_ref().and_then(|array| array.limit);
        self.reshape(id, |job| {
            job.priority = shown_priority(&request);
            job.partition = partition;
            job.tres = tres;
            job.request = Arc::new(request);
            updates.iter().for_each(|update| set_beside_request(job, update, limit));
        });
        if updates.iter().any(|update| matches!(update, Update::ArrayTaskThrottle(_)))
            && let Some(array) = self.job(id).and_then(Job::array_job_id)
            && let Some(group) = self.arrays.get_mut(&array)
        {
            group.limit = limit;
            self.refresh_array(id, cx.now);
        }
        for update in updates {
            if let Update::Script { text, .. } = update {
                let job = self.job(id).and_then(Job::array_job_id).unwrap_or(id);
                cx.out.changes.push(Change::PutScript { job, script: text.clone().into_bytes() });
            }
            if let Update::Dependency(_) = update {
                let known = super::depend::Known::new(ended);
                self.learn(&known);
                self.set_waits(id, &known);
                self.link(id, cx.now);
            }
        }
        if updates.iter().any(|u| matches!(u, Update::StartTime(_) | Update::Dependency(_)))
            && let Some(record) = self.jobs.get_mut(&id)
        {
            record.job.run.eligible = None;
        }
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        match is_resized {
            true => self.change_size(id, more, PartChange::Update, cx),
            false => self.save(id, cx),
        }
        // Its old namesakes may have waited for it, and its new ones may now.
        self.refresh_singletons(&old_name, cx.now);
        if is_limit_changed && self.job(id).is_some_and(|job| job.run.state.is_active()) {
            self.tell_limit(id, cx);
        }
        self.drop_if_hopeless(id, cx);
        Ok(())
    }
}

/// What an update changes of a job beside its request. `limit`: of the tasks of its array that run at once.
fn set_beside_request(job: &mut Job, update: &Update, limit: Option<u32>) {
    match (update, &mut job.role) {
        (Update::Priority(0), _) => job.hold = Hold::User,
        (Update::PriorityReset, _) => job.hold = Hold::No,
        (Update::ArrayTaskThrottle(_), ArrayRole::Rest { limit: own, .. }) => *own = limit,
        _ => {}
    }
}

/// Writes one update into a request.
fn set(request: &mut JobRequest, update: &Update) -> Result<(), Refusal> {
    match update {
        Update::JobName(name) => request.name.clone_from(name),
        Update::Partition(names) => request.partition = Some(names.clone()),
        Update::TimeLimit(limit) => request.time_limit_secs = *limit,
        Update::TimeLimitBy(by) => {
            let limit = request.time_limit_secs.ok_or(Refusal::NoTimeLimit)?;
            request.time_limit_secs = Some(limit.saturating_add_signed(*by));
        }
        Update::TimeMin(secs) => request.time_min_secs = *secs,
        // It holds the job, and leaves the priority for its release.
        Update::Priority(0) => {}
        // What is asked for last is what the job has: in Slurm too a new priority ends the nice value.
        Update::Priority(priority) => (request.priority, request.nice) = (Some(*priority), 0),
        Update::PriorityReset => request.priority = None,
        Update::Nice(nice) => request.nice = *nice,
        Update::Dependency(dependency) => request.dependency.clone_from(dependency),
        Update::NumCpus(cpus) => set_cpus(request, *cpus),
        Update::NumTasks(tasks) => (request.ntasks, request.mincpus) = (Some(*tasks), None),
        Update::CpusPerTask(cpus) => (request.cpus_per_task, request.mincpus) = (Some(*cpus), None),
        Update::NumNodes(0 | 1) => {}
        Update::NumNodes(_) => return Err(Refusal::OneNodeOnly),
        Update::MinMemoryNode(mb) => request.mem = MemRequest::PerNode(*mb),
        Update::MinMemoryCpu(mb) => request.mem = MemRequest::PerCpu(*mb),
        Update::Gpus(gpu) => {
            request.gpu = GpuRequest { cpus_per_gpu: request.gpu.cpus_per_gpu, ..gpu.clone() };
        }
        Update::StartTime(begin) => request.begin = Some(*begin),
        Update::Deadline(deadline) => request.deadline = Some(*deadline),
        Update::ArrayTaskThrottle(limit) => match &mut request.array {
            Some(array) => array.limit = limit.filter(|limit| *limit > 0),
            None => return Err(Refusal::NotAnArray),
        },
        Update::Requeue(yes) => (request.requeue, request.no_requeue) = (*yes, !*yes),
        Update::Features(wanted) => request.constraint.clone_from(wanted),
        Update::Exclusive(yes) => {
            request.sharing = if *yes { Sharing::Exclusive } else { Sharing::Default }
        }
        Update::WorkDir(path) => request.work_dir.clone_from(path),
        Update::StdOut(path) => request.std_out = Some(path.clone()),
        Update::StdErr(path) => request.std_err = Some(path.clone()),
        Update::StdIn(path) => request.std_in = Some(path.clone()),
        Update::Script { tasks, .. } => request.script_tasks.clone_from(tasks),
        Update::Text(KeptText::Reservation, name) if !name.is_empty() => {
            return Err(Refusal::UnknownReservation(name.clone()));
        }
        Update::Text(KeptText::Licenses, name) if !name.is_empty() => {
            return Err(Refusal::UnknownLicense(name.clone()));
        }
        // An empty text takes what was there away, as in Slurm.
        Update::Text(which, text) => {
            *which.of_mut(request) = Some(text.clone()).filter(|text| !text.is_empty())
        }
    }
    Ok(())
}

fn depends_on_itself(job: &Job, term: &DependencyTerm) -> bool {
    match term {
        DependencyTerm::On { job: target, .. } => {
            target.job == job.id || Some(target.job) == job.array_job_id()
        }
        DependencyTerm::Singleton => false,
    }
}

/// Spreads a number of CPUs over the tasks: the tasks stay as many as they are where that is possible.
pub(super) fn set_cpus(request: &mut JobRequest, cpus: u32) {
    let tasks = request.task_count().max(1);
    request.mincpus = None;
    if cpus < tasks {
        request.ntasks = Some(cpus);
        request.cpus_per_task = Some(1);
    } else {
        request.cpus_per_task = Some(cpus / tasks);
        request.mincpus = (!cpus.is_multiple_of(tasks)).then_some(cpus);
    }
}
