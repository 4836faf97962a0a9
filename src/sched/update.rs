//! `scontrol update job`: which keys may change when, and the consequences.
//!
//! Name, partition and priority may change while the job is PENDING, the time limit until it has
//! ended, and the end while it is RUNNING. Slurm's other keys follow the first rule if they affect
//! the start, and the second if they only describe the job. The size of a job may also change while
//! it runs (`resize`). All keys of a command are checked before any is applied.

use super::admit::Admitted;
use super::core::Core;
use super::lengths::{check_request, check_script_len};
use super::line::queue::shown_priority;
use super::resources::capacity::Part;
use super::resources::limits::LimitSet;
use super::sizes::{check_tasks, may_resize};
use super::submit::check_time_min;
use super::types::{Cx, Effect, EndedJob};
use slotd_model::change::Change;
use slotd_model::job::Hold;
use slotd_model::license::LicenseFault;
use slotd_model::qos;
use slotd_model::request::JobKind;
use slotd_model::resize::PartChange;
use slotd_model::update::{Stage, Update};
use slotd_model::{
    ArrayRole, Job, JobId, JobRef, JobRequest, JobState, Refusal, TaskSet, Timestamp, Tres,
};
use std::sync::Arc;

/// The properties of a command's keys that decide which jobs it affects.
#[derive(Debug, Clone, Copy)]
struct Keys {
    is_for_pending: bool,
    is_for_running: bool,
    is_size: bool,
}

impl Keys {
    fn of(updates: &[Update]) -> Keys {
        let has = |stage| updates.iter().any(|update| update.stage() == stage);
        Keys {
            is_for_pending: has(Stage::Pending),
            is_for_running: has(Stage::Running),
            is_size: has(Stage::Size),
        }
    }

    fn may_change(self, state: JobState, has_pending: bool) -> bool {
        match state {
            // Keys for pending jobs change the pending tasks of an array, and keys for running jobs
            // its running tasks.
            JobState::Pending => !self.is_for_running,
            _ if self.is_for_pending => false,
            _ if self.is_for_running => state == JobState::Running,
            _ if self.is_size => !has_pending && may_resize(state),
            _ => !state.is_terminal(),
        }
    }
}

/// A job as it would be after its updates.
struct Changed {
    request: JobRequest,
    partition: String,
    tres: Tres,
    /// The resources that a running job gets at once.
    more: Option<Part>,
}

impl Core {
    /// Changes pending and running jobs, and returns the changed records. `ended`: the store's
    /// records of the targets of a new dependency.
    pub fn update(
        &mut self,
        sel: &JobRef,
        updates: &[Update],
        ended: &[EndedJob],
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        if sel.step.is_some() {
            return self.update_steps(sel, updates, cx);
        }
        let is_throttle = |update: &&Update| matches!(update, Update::ArrayTaskThrottle(_));
        if sel.tasks.is_some() && updates.iter().any(|update| is_throttle(&update)) {
            // The throttle applies to the whole array, whichever task is named.
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

    /// Sets the time limit of running steps. The batch script has only the job's limit, and a step
    /// manager those of its own steps.
    fn update_steps(
        &mut self,
        sel: &JobRef,
        updates: &[Update],
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let mut limits = Vec::new();
        for key in self.launched_steps(sel)? {
            let steps = self.job(key.job).map(|job| &job.steps[..]).unwrap_or_default();
            let found = steps.iter().rev().find(|step| step.id == key.step && !step.managed);
            let mut limit = found.ok_or(Refusal::Disabled)?.time_limit_secs;
            for update in updates {
                limit = update.step_limit(limit)?;
            }
            limits.push((key, limit));
        }
        for (step, limit) in &limits {
            if let Some(left) = self.records.set_step_limit(*step, *limit, cx) {
                cx.out.effects.push(Effect::SetStepLimit { step: *step, left });
            }
        }
        Ok(limits.into_iter().map(|(key, _)| key.job).collect())
    }

    /// Moves a job ahead of all pending jobs (scontrol top). A held job stays held, as in Slurm.
    pub fn top(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let named = self.records.resolve(sel).into_iter().filter_map(|id| self.job(id));
        if named.into_iter().any(|job| job.run.state == JobState::Pending && job.hold != Hold::No) {
            return Err(Refusal::Held);
        }
        let highest = self
            .records
            .jobs()
            .filter(|job| job.run.state == JobState::Pending)
            .map(|job| job.priority)
            .max();
        let above = highest.unwrap_or(0).saturating_add(1);
        self.update(sel, &[Update::Nice(0), Update::Priority(above)], &[], cx)
    }

    /// Checks the updates against the records, before any record is split for them. Returns whether
    /// some of the records are pending.
    fn check_update(
        &self,
        sel: &JobRef,
        updates: &[Update],
        ended: &[EndedJob],
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let named = self.records.resolve(sel);
        self.check_no_crontab_job(&named)?;
        let mut found: Vec<&Job> = named.into_iter().filter_map(|id| self.job(id)).collect();
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
            } else if keys.is_for_running {
                Refusal::NotRunning
            } else {
                Refusal::AlreadyDone
            });
        }
        // Records of one submission move to another QOS together.
        let mut moving = 0;
        for job in found {
            let changed = self.changed(job, updates, ended, now)?;
            if qos::of(&changed.request) != qos::of(&job.request) {
                moving += job.compact_tasks().map_or(1, TaskSet::len);
                self.check_submit_limit(&changed.request, moving, 0)?;
            }
        }
        Ok(has_pending)
    }

    /// Returns the job as it would be after the updates.
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
                    self.records.check_new_dependency(job, dependency, ended)?;
                    let (dependency, partition) =
                        (dependency.clone(), Some(job.partition.to_string()));
                    self.check_expansion(&JobRequest { dependency, partition, ..request.clone() })?;
                }
                Update::Gpus(gpu) => self.resources.config().check_gpu_model(gpu)?,
                // A priority does not release a job; `scontrol release` does.
                Update::Priority(1..) if job.hold != Hold::No => return Err(Refusal::Held),
                Update::Prefer(Some(wanted)) => self.resources.host().check_preference(wanted)?,
                Update::Features(Some(wanted)) => self.resources.host().check_features(wanted)?,
                Update::Script { text, .. } => self.check_script(job, text)?,
                Update::EndTime(end) => {
                    let late_secs = now.as_secs().saturating_sub(end.as_secs());
                    if let Ok(secs @ 1..) = u64::try_from(late_secs) {
                        return Err(Refusal::EndHasPassed { secs });
                    }
                    request.time_limit_secs = Some(job.limit_until(*end));
                }
                _ => {}
            }
            update.write(&mut request)?;
        }
        qos::normalize(&mut request);
        check_request(&request)?;
        if request.reservation != job.request.reservation {
            if job.run.state != JobState::Pending {
                return Err(Refusal::NotPending);
            }
            self.resources.config().check_reservation(&request)?;
        }
        if request.qos != job.request.qos {
            self.resources.config().check_qos(&request)?;
            let partition = Some(job.partition.to_string());
            self.check_expansion(&JobRequest { partition, ..request.clone() })?;
        }
        if updates.iter().any(|update| matches!(update, Update::NodeList(_))) {
            self.resources.config().check_hosts(&request)?;
        }
        if updates.iter().any(|update| matches!(update, Update::NumTasks(_))) {
            check_tasks(request.task_count(), self.resources.config().max_tasks)?;
        }
        if request.licenses != job.request.licenses {
            self.check_new_licenses(job, &request)?;
        }
        let moves = updates.iter().any(|update| matches!(update, Update::Partition(_)));
        if job.run.state != JobState::Pending {
            let (tres, more) = if Keys::of(updates).is_size {
                // It had the CPUs that it named; which ones it gives back depends on its steps.
                request.named_cpus.clear();
                self.resized(job, &request, now)?
            } else {
                (job.tres, None)
            };
            return Ok(Changed { request, partition: job.partition.to_string(), tres, more });
        }
        self.readmitted(job, request, moves)
    }

    /// Returns a pending job with a changed request, in the partitions that accept it.
    fn readmitted(
        &self,
        job: &Job,
        mut request: JobRequest,
        moves: bool,
    ) -> Result<Changed, Refusal> {
        let config = self.resources.config();
        let partitions =
            if moves { config.partitions_for(&request)? } else { config.partitions_of(job) };
        let general = |why| match why {
            Refusal::ConfigNotAvailable(_) => why,
            cause => Refusal::ConfigNotAvailable(Some(Box::new(cause))),
        };
        let times = |request: &JobRequest| (request.time_min_secs, request.time_limit_secs);
        if times(&request) != times(&job.request) {
            check_time_min(&request, request.time_limit_secs)?;
        }
        let Admitted { partition, tres, limit_secs, .. } =
            self.resources.readmit(&request, &partitions).map_err(general)?;
        let has_new_qos = request.qos != job.request.qos;
        let most = config.qos_of(&request).and_then(|qos| qos.max_wall_secs);
        let gets_limit = has_new_qos && most.is_some() && request.time_limit_secs.is_none();
        if job.has_several_partitions() || gets_limit {
            request.time_limit_secs = limit_secs;
        }
        let has_new_limit = request.time_limit_secs != job.request.time_limit_secs;
        if has_new_qos || has_new_limit || tres != job.tres || partition != job.partition {
            // The time limit of a job in several partitions may differ between them.
            let is_settled = !partition.contains(',');
            self.resources.check_qos_limits(&request, &partition, |partition| {
                if is_settled {
                    request.time_limit_secs
                } else {
                    config.limit_for(&request, partition)
                }
            })?;
        }
        Ok(Changed { request, partition, tres, more: None })
    }

    /// Refuses licenses that the host does not have, and more of them than are free to a running
    /// job.
    fn check_new_licenses(&self, job: &Job, request: &JobRequest) -> Result<(), Refusal> {
        self.resources.config().check_licenses(request)?;
        let partition = Some(job.partition.to_string());
        self.check_expansion(&JobRequest { partition, ..request.clone() })?;
        let Some(held) = self.resources.ledger().held(job.id) else { return Ok(()) };
        let new = LimitSet::of(request, self.resources.config());
        for (at, license) in self.resources.licenses().enumerate() {
            let more = new.count_of(at).saturating_sub(held.place.limits.count_of(at));
            let free = license.free();
            if more > free {
                let name = license.name;
                return Err(Refusal::InvalidLicenses(LicenseFault::NotFree { name, more, free }));
            }
        }
        Ok(())
    }

    /// Refuses a new script if it would also replace that of tasks that have started.
    fn check_script(&self, job: &Job, text: &str) -> Result<(), Refusal> {
        if job.request.kind != JobKind::Batch {
            return Err(Refusal::NoScript);
        }
        check_script_len(text.len())?;
        let Some(array) = job.array_job_id() else { return Ok(()) };
        let records =
            self.records.resolve(&JobRef::job(array)).into_iter().filter_map(|id| self.job(id));
        let waiting: usize = records.map(Job::pending_tasks).sum();
        let all = job.request.array.as_ref().map_or(0, |array| array.tasks.len());
        if waiting < all { Err(Refusal::ScriptOfArray) } else { Ok(()) }
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
        let has_new_licenses = request.licenses != job.request.licenses;
        let is_limit_changed = request.time_limit_secs != job.request.time_limit_secs;
        let limit = request.array.as_ref().and_then(|array| array.limit);
        let priority = shown_priority(&request, self.resources.config().qos_of(&request));
        self.records.edit(id, |job| {
            job.priority = priority;
            job.partition = partition.into();
            job.tres = tres;
            job.request = Arc::new(request);
            updates.iter().for_each(|update| set_beside_request(job, update, limit));
        });
        if updates.iter().any(|update| matches!(update, Update::ArrayTaskThrottle(_))) {
            self.refresh_array(id, cx.now);
        }
        for update in updates {
            if let Update::Script { text, .. } = update {
                let job = self.job(id).and_then(Job::array_job_id).unwrap_or(id);
                cx.out.changes.push(Change::PutScript { job, script: text.clone().into_bytes() });
            }
            if let Update::Dependency(_) = update {
                let known = super::records::depend::Known::new(ended);
                self.records.learn(&known);
                self.records.set_waits(id, &known);
                self.notifications.link(&self.records, id, cx.now);
            }
        }
        if updates.iter().any(|update| matches!(update, Update::StartTime(_))) {
            // The begin time of a job that was preempted replaces that of its request.
            self.records.edit(id, |job| job.run.begin = None);
        }
        if updates.iter().any(|u| matches!(u, Update::StartTime(_) | Update::Dependency(_))) {
            self.records.edit(id, |job| job.run.eligible = None);
        }
        if let Some(job) = self.records.job(id).filter(|_| has_new_licenses) {
            self.resources.recount(job);
        }
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        if is_resized {
            self.change_size(id, more, PartChange::Update, cx)
        } else {
            self.records.save(id, cx)
        }
        // Jobs with its old name may have waited for it, and jobs with its new name may wait for it
        // now.
        self.refresh_singletons(&old_name.1, old_name.0, cx.now);
        if let Some(job) = self.job(id).filter(|job| is_limit_changed && job.run.state.is_active())
        {
            cx.out.effects.extend(Effect::set_time_limit(job));
        }
        self.drop_if_hopeless(id, cx);
        Ok(())
    }
}

/// Applies the part of an update that is not in the request. `limit` is the maximum number of tasks
/// of its array that may run at once.
fn set_beside_request(job: &mut Job, update: &Update, limit: Option<u32>) {
    match (update, &mut job.role) {
        (Update::Priority(0), _) => job.hold = Hold::User,
        (Update::ArrayTaskThrottle(_), ArrayRole::Rest { limit: own, .. }) => *own = limit,
        _ => {}
    }
}
