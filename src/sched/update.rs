//! `scontrol update job`: which keys may change when, and what follows from it.
//!
//! Name, partition and priority may be changed while the job is PENDING, the time limit until it has ended (book); of
//! Slurm's further keys, those that decide about the start follow the first rule and those that only describe the job
//! the second. All keys of one command are checked before any is applied.

use super::core::Core;
use super::queue::shown_priority;
use super::types::{Cx, Update};
use crate::model::job::Hold;
use crate::model::request::{MemRequest, Sharing};
use crate::model::{ArrayRole, Job, JobId, JobRef, JobRequest, JobState, Refusal};
use std::sync::Arc;

/// Whether the key may only be changed before the job starts.
fn is_for_pending(update: &Update) -> bool {
    match update {
        Update::JobName(_)
        | Update::Partition(_)
        | Update::Priority(_)
        | Update::Nice(_)
        | Update::Dependency(..)
        | Update::NumCpus(_)
        | Update::NumTasks(_)
        | Update::CpusPerTask(_)
        | Update::MinMemoryNode(_)
        | Update::MinMemoryCpu(_)
        | Update::Gpus(_)
        | Update::StartTime(_)
        | Update::Features(..)
        | Update::WorkDir(_)
        | Update::StdOut(_)
        | Update::StdErr(_)
        | Update::StdIn(_)
        | Update::TimeMin(_)
        | Update::PriorityReset
        | Update::GpusPerTask(_)
        | Update::Exclusive(_)
        | Update::Hold(_) => true,
        Update::TimeLimit(_)
        | Update::Deadline(_)
        | Update::Comment(_)
        | Update::Account(_)
        | Update::Qos(_)
        | Update::WcKey(_)
        | Update::Reservation(_)
        | Update::Licenses(_)
        | Update::MailType(_)
        | Update::MailUser(_)
        | Update::ArrayTaskThrottle(_)
        | Update::Requeue(_) => false,
    }
}

impl Core {
    /// Changes pending and running jobs. The records that were changed.
    pub fn update(&mut self, sel: &JobRef, updates: &[Update], cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let is_throttle = |update: &&Update| matches!(update, Update::ArrayTaskThrottle(_));
        if sel.tasks.is_some() && updates.iter().any(|update| is_throttle(&update)) {
            // The throttle is the whole array's, whichever task is named.
            let (throttle, others): (Vec<_>, Vec<_>) = updates.iter().cloned().partition(|update| is_throttle(&update));
            let mut done = self.update(&JobRef::job(sel.job), &throttle, cx)?;
            if !others.is_empty() {
                done = self.update(sel, &others, cx)?;
            }
            return Ok(done);
        }
        // Checked on the records as they are, before one is split for it.
        let mut found: Vec<&Job> = self.resolve(sel).into_iter().filter_map(|id| self.job(id)).collect();
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        found.retain(|job| !job.run.state.is_terminal());
        if found.is_empty() {
            return Err(Refusal::AlreadyFinished);
        }
        // Of an array, keys for pending jobs change its pending tasks.
        let only_pending = updates.iter().any(is_for_pending);
        if only_pending && !found.iter().any(|job| job.run.state == JobState::Pending) {
            return Err(Refusal::NotPending);
        }
        for job in &found {
            if only_pending && job.run.state != JobState::Pending {
                continue;
            }
            self.changed(job, updates)?;
        }
        let mut done = Vec::new();
        for id in self.pick_live(sel, cx)? {
            let Some(job) = self.job(id) else { continue };
            if only_pending && job.run.state != JobState::Pending {
                continue;
            }
            self.apply(id, updates, cx)?;
            done.push(id);
        }
        self.settle(cx);
        Ok(done)
    }

    /// The request and partition that a job would have.
    fn changed(&self, job: &Job, updates: &[Update]) -> Result<(JobRequest, String), Refusal> {
        let mut request = JobRequest::clone(&job.request);
        let mut partition = job.partition.clone();
        for update in updates {
            match update {
                Update::JobName(name) => request.name.clone_from(name),
                Update::Partition(name) => {
                    let known = self.config.partitions.iter().find(|p| name.split(',').any(|n| n == p.name));
                    let Some(known) = known else { return Err(Refusal::UnknownPartition(name.clone())) };
                    partition.clone_from(&known.name);
                    request.partition = Some(name.clone());
                }
                Update::TimeLimit(limit) => request.time_limit_secs = *limit,
                Update::Priority(0) | Update::Hold(_) => {}
                // What is asked for last is what the job has: in Slurm too a new priority ends the nice value.
                Update::Priority(priority) => (request.priority, request.nice) = (Some(*priority), 0),
                Update::Nice(nice) => request.nice = *nice,
                Update::Dependency(dependency, ended) => {
                    let known = super::depend::Known::new(ended);
                    if dependency.terms.iter().any(|term| depends_on_itself(job, term)) {
                        return Err(Refusal::DependsOnItself(job.id));
                    }
                    self.check_dependency(dependency, &known)?;
                    request.dependency = dependency.clone();
                }
                Update::NumCpus(cpus) => set_cpus(&mut request, *cpus),
                Update::NumTasks(tasks) => {
                    request.ntasks = Some(*tasks);
                    request.mincpus = None;
                }
                Update::CpusPerTask(cpus) => {
                    request.cpus_per_task = Some(*cpus);
                    request.mincpus = None;
                }
                Update::MinMemoryNode(mb) => request.mem = MemRequest::PerNode(*mb),
                Update::MinMemoryCpu(mb) => request.mem = MemRequest::PerCpu(*mb),
                Update::Gpus(gpus) => {
                    // A GPU partition gives one where nothing is said, so none is said too.
                    request.gpu.total = Some(*gpus);
                    request.gpu.per_node = None;
                    request.gpu.per_task = None;
                    request.gpu.per_socket = None;
                }
                Update::StartTime(begin) => request.begin = *begin,
                Update::Deadline(deadline) => request.deadline = *deadline,
                Update::Comment(text) => request.comment = kept(text),
                Update::Account(text) => request.account = kept(text),
                Update::Qos(text) => request.qos = kept(text),
                Update::WcKey(text) => request.wckey = kept(text),
                Update::Reservation(text) => request.reservation = kept(text),
                Update::Licenses(text) => request.licenses = kept(text),
                Update::MailType(text) => request.mail_type = kept(text),
                Update::MailUser(text) => request.mail_user = kept(text),
                Update::TimeMin(secs) => request.time_min_secs = *secs,
                Update::PriorityReset => request.priority = None,
                Update::GpusPerTask(gpus) => {
                    request.gpu.total = None;
                    request.gpu.per_node = None;
                    request.gpu.per_task = Some(*gpus);
                    request.gpu.per_socket = None;
                }
                Update::Exclusive(yes) => {
                    request.sharing = if *yes { Sharing::Exclusive } else { Sharing::Default };
                }
                Update::WorkDir(path) => request.work_dir.clone_from(path),
                Update::StdOut(path) => request.std_out = Some(path.clone()),
                Update::StdErr(path) => request.std_err = Some(path.clone()),
                Update::StdIn(path) => request.std_in = Some(path.clone()),
                Update::ArrayTaskThrottle(limit) => match &mut request.array {
                    Some(array) => array.limit = limit.filter(|limit| *limit > 0),
                    None => return Err(Refusal::NotAnArray),
                },
                Update::Requeue(yes) => request.no_requeue = !yes,
                Update::Features(constraint) => {
                    if let Some(wanted) = constraint.as_ref().filter(|wanted| !self.config.host.meets(wanted)) {
                        return Err(Refusal::MissingFeature(wanted.to_string()));
                    }
                    request.constraint.clone_from(constraint);
                }
            }
        }
        if job.run.state == JobState::Pending && self.resized(&request, &partition).is_none() {
            return Err(Refusal::ConfigNotAvailable);
        }
        Ok((request, partition))
    }

    fn apply(&mut self, id: JobId, updates: &[Update], cx: &mut Cx) -> Result<(), Refusal> {
        let Some(job) = self.job(id) else { return Ok(()) };
        let (request, partition) = self.changed(job, updates)?;
        let tres = if job.run.state == JobState::Pending { self.resized(&request, &partition) } else { None };
        let old_name = (job.request.uid, job.request.name.clone());
        let is_limit_changed = request.time_limit_secs != job.request.time_limit_secs;
        let limit = request.array.as_ref().and_then(|array| array.limit);
        let request = Arc::new(request);
        self.reshape(id, |job| {
            job.priority = shown_priority(&request);
            job.partition = partition;
            job.tres = tres.unwrap_or(job.tres);
            job.request = Arc::clone(&request);
            for update in updates {
                match update {
                    // In Slurm a priority of 0 holds the job, and any other releases it.
                    Update::Priority(0) => job.hold = Hold::User,
                    Update::Priority(_) | Update::PriorityReset => job.hold = Hold::No,
                    Update::Hold(hold) => job.hold = *hold,
                    Update::ArrayTaskThrottle(_) => {
                        if let ArrayRole::Rest { limit: own, .. } = &mut job.role {
                            *own = limit;
                        }
                    }
                    _ => {}
                }
            }
        });
        if updates.iter().any(|update| matches!(update, Update::ArrayTaskThrottle(_)))
            && let Some(array) = self.job(id).and_then(Job::array_job_id)
            && let Some(group) = self.arrays.get_mut(&array)
        {
            group.limit = limit;
            self.refresh_array(id, cx.now);
        }
        for update in updates {
            if let Update::Dependency(_, ended) = update {
                let known = super::depend::Known::new(ended);
                self.learn(&known);
                self.set_waits(id, &known);
            }
        }
        if updates.iter().any(|u| matches!(u, Update::StartTime(_) | Update::Dependency(..)))
            && let Some(record) = self.jobs.get_mut(&id)
        {
            record.job.run.eligible = None;
        }
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        self.save(id, cx);
        // Its old namesakes may have waited for it, and its new ones may now.
        self.refresh_singletons(&old_name, cx.now);
        if is_limit_changed && self.job(id).is_some_and(|job| job.run.state.is_active()) {
            self.tell_limit(id, cx);
        }
        self.drop_if_hopeless(id, cx);
        Ok(())
    }
}

/// An empty text takes what was there away, as in Slurm.
fn kept(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn depends_on_itself(job: &Job, term: &crate::model::dependency::DependencyTerm) -> bool {
    match term {
        crate::model::dependency::DependencyTerm::On { job: target, .. } => {
            target.job == job.id || Some(target.job) == job.array_job_id()
        }
        crate::model::dependency::DependencyTerm::Singleton => false,
    }
}

/// Spreads a number of CPUs over the tasks: the tasks stay as many as they are where that is possible.
fn set_cpus(request: &mut JobRequest, cpus: u32) {
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
