//! The live state in four parts, and the code that ties them together: the only place where a job's
//! state changes (`transition`), and the only place where a job enters or leaves the queue
//! (`refresh`).
//!
//! Each part's fields are private to it. Code that needs one part is a method of that part; code
//! that needs several is another `impl Core` block in one of the other files.

use super::choice::Choice;
use super::crontab::Crontabs;
use super::line::Line;
use super::line::queue::shown_priority;
use super::notify::Notifications;
use super::records::Records;
use super::resources::Resources;
use super::resources::node::Node;
use super::types::{Config, Cx, Effect};
use slotd_model::partition::Host;
use slotd_model::{ClockBase, Job, JobId, JobState, Partition, Reason, Timestamp};

/// The complete live state of the scheduler.
#[derive(Debug, Clone)]
pub struct Core {
    pub(super) records: Records,
    pub(super) resources: Resources,
    pub(super) line: Line,
    /// The notifications to send.
    pub(super) notifications: Notifications,
    pub(super) crontabs: Crontabs,
    /// The number of the latest reservation, which may be gone.
    pub(super) last_reservation: u32,
}

impl Core {
    pub fn new(config: Config) -> Core {
        Core {
            notifications: Notifications::new(config.audience),
            records: Records::default(),
            resources: Resources::new(config),
            line: Line::default(),
            crontabs: Crontabs::default(),
            last_reservation: 0,
        }
    }

    pub fn config(&self) -> &Config {
        self.resources.config()
    }

    /// See [`Records::set_clock`].
    pub fn set_clock(&mut self, clock: ClockBase) {
        self.records.set_clock(clock);
    }

    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Returns the node, which decides whether jobs are accepted.
    pub fn node_mut(&mut self) -> &mut Node {
        self.resources.node_mut()
    }

    pub fn records(&self) -> &Records {
        &self.records
    }

    #[cfg(test)]
    pub fn next_id(&self) -> JobId {
        self.records.next_id()
    }

    /// Returns a record that is in memory.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.records.job(id)
    }

    /// Returns the queue, the timers and the waiting steps.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Returns all records in memory, ordered by ID.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.records.jobs()
    }

    /// Replaces the GPUs, the memory and the partitions. Running jobs keep their resources; pending
    /// jobs that now request more than the host has wait with reason BadConstraints.
    pub fn set_host(&mut self, host: Host, all_partitions: Vec<Partition>, now: Timestamp) {
        self.resources.set_host(host, all_partitions, &self.records, now);
        self.refresh_pending(now);
    }

    /// Re-evaluates all pending records and their timers.
    pub(super) fn refresh_pending(&mut self, now: Timestamp) {
        for id in self.records.pending() {
            self.refresh(id, now);
            self.arm(id, now);
        }
    }

    /// Changes a job's state, together with everything that depends on it: the ledger, the indexes,
    /// the array counters, and notifications. Returns false and changes nothing if the state
    /// machine forbids the transition.
    ///
    /// Before a transition to RUNNING, the caller records the allocation.
    #[must_use]
    pub(super) fn transition(&mut self, id: JobId, to: JobState, now: Timestamp) -> bool {
        let was_at_limit = self.records.is_array_at_limit(id);
        let had_unknown_gpu = self.resources.holds_unknown_gpu(id);
        let Some(from) = self.records.transition(id, to, now) else { return false };
        if from.is_active() && !to.is_active() {
            self.resources.release(id);
        }
        if to != JobState::Pending {
            let places = self.records.set_places(id, Vec::new());
            self.records.clear_waits(id);
            self.line.leave(id, &places);
            self.resources.note_wait(id, false, false);
        }
        if let Some(job) = self.records.job(id) {
            self.notifications.note(&self.records, job, from, now);
        }
        if from == JobState::Suspended {
            self.arm(id, now);
        }
        if was_at_limit != self.records.is_array_at_limit(id) {
            self.refresh_array(id, now);
        }
        if had_unknown_gpu && !to.is_active() {
            self.refresh_pending(now);
        }
        true
    }

    /// Sets the timers of a record.
    pub(super) fn arm(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.records.get(id) else { return };
        let job = &record.job;
        let is_pending = job.run.state == JobState::Pending;
        let begin = job.begin().filter(|begin| is_pending && *begin > now);
        let depends = record.waits.as_ref().and_then(|waits| waits.next_due(now));
        let deadline = job
            .deadline()
            .filter(|_| !job.run.state.is_terminal() && job.run.state != JobState::Completing);
        let immediate = job
            .request
            .immediate_secs
            .filter(|_| is_pending)
            .map(|secs| job.submit.plus_secs(secs));
        let opens = self.resources.opens(job, now).filter(|_| is_pending);
        let mail = self.notifications.limit_mail_due(job);
        let grace = job.run.preempted.as_ref().and_then(|by| by.grace_end());
        let grace =
            grace.filter(|_| matches!(job.run.state, JobState::Running | JobState::Suspended));
        for at in [begin, depends, deadline, immediate, opens, mail, grace].into_iter().flatten() {
            if at > now {
                self.line.wake(id, at);
            } else if Some(at) == immediate {
                self.line.expire(id);
            } else {
                // The deadline has already passed: the next timer run handles it.
                self.line.wake(id, now);
            }
        }
    }

    /// Re-evaluates all pending records of the array that `id` belongs to.
    pub(super) fn refresh_array(&mut self, id: JobId, now: Timestamp) {
        for other in self.records.pending_of_array(id) {
            self.refresh(other, now);
        }
    }

    /// Re-evaluates the compact records of the array that `id` belongs to, or its last task, after
    /// the array had a turn.
    pub(super) fn refresh_compact(&mut self, id: JobId, now: Timestamp) {
        for compact in self.records.pending_compact_of(id) {
            self.refresh(compact, now);
        }
    }

    /// Re-evaluates whether a record belongs in the queue, and at which places.
    pub(super) fn refresh(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.records.get(id) else { return };
        let (mut places, mut waits_for_gpus, mut waits_for_cpus) = (Vec::new(), false, false);
        if record.job.run.state == JobState::Pending
            && self.records.gate_anywhere(record, now).is_none()
        {
            for choice in Choice::all(&record.job, self.resources.config()) {
                match self.resources.gate_in(&choice, now) {
                    None => places.push(self.line.place_of(&choice, &self.records)),
                    Some(Reason::Resources) => {
                        waits_for_gpus |= !self.resources.awaits_gpus(&choice)
                            && self.resources.gpus_in_use(&choice).is_some();
                        waits_for_cpus |= self.resources.cpus_in_use(&choice).is_some();
                    }
                    Some(_) => {}
                }
            }
        }
        if places.is_empty() {
            self.notifications.suspect(&record.job);
        }
        let is_first = !places.is_empty() && record.job.run.eligible.is_none();
        let qos = self.resources.config().qos_of(&record.job.request);
        let priority = shown_priority(&record.job.request, qos);
        let is_pending = record.job.run.state == JobState::Pending;
        let is_moved = is_pending && record.job.priority != priority;
        if *record.places != *places {
            self.line.move_to(&record.places, &places);
            self.records.set_places(id, places);
        }
        if is_first {
            self.records.edit(id, |job| job.run.eligible = Some(now));
        }
        if is_moved {
            self.records.edit(id, |job| job.priority = priority);
        }
        self.resources.note_wait(id, waits_for_gpus, waits_for_cpus);
    }

    /// Re-evaluates the singletons with this name that may have become free to start, or blocked.
    pub(super) fn refresh_singletons(&mut self, name: &str, uid: u32, now: Timestamp) {
        for id in self.records.moved_singletons(name, uid) {
            self.refresh(id, now);
        }
    }

    /// Removes a record from memory.
    pub(super) fn forget(&mut self, id: JobId, cx: &mut Cx) {
        let Some(record) = self.records.remove(id) else { return };
        self.resources.note_wait(id, false, false);
        self.line.leave(id, &record.places);
        self.line.take_step_waits(id);
        self.line.take_first_step(id);
        self.notifications.forget(&self.records, id, record.job.array_job_id().unwrap_or(id));
        cx.out.effects.push(Effect::Gone(id));
    }

    /// See [`Records::take_forgotten`].
    pub fn take_forgotten(&mut self, least: usize) -> bool {
        self.records.take_forgotten(least)
    }
}
