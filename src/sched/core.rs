//! The live state: every job that has not ended, and those that ended lately, with the indices that keep each fact
//! cheap. The one place where a job's state changes is `transition`.
//!
//! It decides nothing: the rules are in the other files, as further `impl Core` blocks.

use super::array::ArrayGroup;
use super::choice::Choice;
use super::cpu_use::CpuUse;
use super::experience::Experience;
use super::gpu_use::GpuUse;
use super::index::NameGroup;
use super::ledger::Ledger;
use super::node::Node;
use super::queue::{Place, Queue, QueueKey, rank};
use super::requests::Requests;
use super::room::Part;
use super::steps::StepWait;
use super::telling::Telling;
use super::types::{Config, Cx, Effect};
use super::waits::Waits;
use crate::model::change::{Change, Texts};
use crate::model::dependency::{Dependency, DependencyTerm};
use crate::model::diagnostics::RoundFacts;
use crate::model::job::ClientProcess;
use crate::model::node::{LaunchAtDeath, NodeParts};
use crate::model::partition::Host;
use crate::model::{
    ArrayRole, ClockBase, Job, JobId, JobState, Partition, Reason, StepId, Timestamp,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A job record with what the core derives from it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub job: Job,
    /// Of a pending job with a dependency.
    pub waits: Option<Box<Waits>>,
    /// Its places in the queue, while nothing but resources is missing: one for each partition that it may go to.
    pub places: Box<[Place]>,
    /// Of a running job: how many had started before it.
    pub start_order: u64,
}

/// All live state of the scheduler.
#[derive(Debug, Clone)]
pub struct Core {
    pub(super) config: Config,
    /// How the clocks stand to each other.
    pub(super) clock: ClockBase,
    pub(super) next_id: u32,
    /// Starts so far.
    pub(super) starts: u64,
    /// Each in a place of its own: a tree of large records is half empty.
    pub(super) jobs: BTreeMap<JobId, Box<Record>>,
    pub(super) ledger: Ledger,
    pub(super) gpu_use: GpuUse,
    pub(super) cpu_use: CpuUse,
    pub(super) queue: Queue,
    /// Records that hold resources.
    pub(super) active: BTreeSet<JobId>,
    pub(super) arrays: HashMap<JobId, ArrayGroup>,
    /// Who waits for whom: target to dependents.
    pub(super) dependents: HashMap<JobId, BTreeSet<JobId>>,
    pub(super) names: HashMap<u32, HashMap<String, NameGroup>>,
    /// The records by the process that submitted them, or that stands for their allocation now.
    pub(super) clients: BTreeSet<(ClientProcess, JobId)>,
    /// Of each partition: the jobs that run, and the jobs and array tasks that wait.
    pub(super) loads: HashMap<String, (u64, u64)>,
    /// What becomes due for which record; an entry may be out of date.
    pub(super) timers: BTreeSet<(Timestamp, JobId)>,
    /// When ended records leave the memory. These wake nobody.
    pub(super) purges: BTreeSet<(Timestamp, JobId)>,
    /// Pending jobs with `--immediate` whose time is up unless the next plan starts them.
    pub(super) expiring: BTreeSet<JobId>,
    pub(super) step_waits: BTreeMap<JobId, VecDeque<StepWait>>,
    /// Of jobs that have a manager of their steps: that process, and the step that it is a process of.
    pub(super) managers: BTreeMap<JobId, (ClientProcess, Option<StepId>)>,
    /// Of jobs that have a manager of their steps: parts out of use that no step is on, to be replaced when there are others.
    pub(super) spares: BTreeMap<JobId, NodeParts>,
    /// Records whose state has changed and whose dependents have not been told yet.
    pub(super) changed: VecDeque<JobId>,
    /// What people are told.
    pub(super) telling: Telling,
    pub(super) experience: Experience,
    pub(super) requests: Requests,
    pub(super) last_round: RoundFacts,
    /// Whether the node takes jobs.
    pub(super) node: Node,
    /// The job that was being launched when the daemon before this one died.
    pub(super) launched_at_death: Option<LaunchAtDeath>,
}

/// The jobs that these dependencies name: what to ask the store about before `submit` and `recover`.
pub fn dependency_targets<'a>(
    dependencies: impl IntoIterator<Item = &'a Dependency>,
) -> Vec<JobId> {
    let mut targets: Vec<JobId> = dependencies
        .into_iter()
        .flat_map(|dependency| &dependency.terms)
        .filter_map(|term| match term {
            DependencyTerm::On { job, .. } => Some(job.job),
            DependencyTerm::Singleton => None,
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

pub(super) fn dependency_of(job: &Job) -> &Dependency {
    &job.request.dependency
}

impl Core {
    pub fn new(config: Config) -> Core {
        let ledger = Ledger::new(&config);
        Core {
            config,
            clock: ClockBase::default(),
            next_id: 1,
            starts: 0,
            jobs: BTreeMap::new(),
            ledger,
            gpu_use: GpuUse::default(),
            cpu_use: CpuUse::default(),
            queue: Queue::default(),
            active: BTreeSet::new(),
            arrays: HashMap::new(),
            dependents: HashMap::new(),
            names: HashMap::new(),
            clients: BTreeSet::new(),
            loads: HashMap::new(),
            timers: BTreeSet::new(),
            purges: BTreeSet::new(),
            expiring: BTreeSet::new(),
            step_waits: BTreeMap::new(),
            managers: BTreeMap::new(),
            spares: BTreeMap::new(),
            changed: VecDeque::new(),
            telling: Telling::default(),
            experience: Experience::default(),
            requests: Requests::default(),
            last_round: RoundFacts::default(),
            node: Node::default(),
            launched_at_death: None,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The clocks stand so to each other from now on: at the start, and whenever the wall clock was set or the machine
    /// slept. No time has passed by that for those that run.
    pub fn set_clock(&mut self, clock: ClockBase) {
        if self.clock.boot == clock.boot && self.clock.jump_to(clock) == 0 {
            return;
        }
        self.clock = clock;
        for id in &self.active {
            if let Some(record) = self.jobs.get_mut(id) {
                record.job.catch_up(clock);
            }
        }
    }

    /// The number that the next record gets.
    #[cfg(test)]
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// A record that is in memory.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|record| &record.job)
    }

    /// What the last [`Core::plan`] looked at.
    pub fn last_round(&self) -> RoundFacts {
        self.last_round
    }

    /// Records that wait for nothing but resources; one that may go to several partitions counts for each, as in Slurm.
    pub fn queue_length(&self) -> usize {
        self.queue.len()
    }

    /// All records in memory, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().map(|record| &record.job)
    }

    /// The GPUs, the memory or the partitions are others now. Running jobs keep what they have; pending ones that ask
    /// for more than there is wait with the reason BadConstraints.
    pub fn set_host(&mut self, host: Host, all_partitions: Vec<Partition>, now: Timestamp) {
        self.config.host = host;
        self.note_losses(now);
        self.config.set_partitions(all_partitions);
        let mut ledger = Ledger::new(&self.config);
        for id in &self.active {
            let job = self.jobs.get(id).map(|record| &record.job);
            if let Some(part) = job.and_then(|job| Part::of(job, &self.config)) {
                ledger.take(*id, part);
            }
        }
        self.ledger = ledger;
        self.note_elsewhere();
        self.note_cpus_elsewhere();
        let pending: Vec<JobId> = self
            .jobs
            .values()
            .filter(|r| r.job.run.state == JobState::Pending)
            .map(|r| r.job.id)
            .collect();
        for id in pending {
            self.refresh(id, now);
            self.arm(id, now);
        }
    }

    pub(super) fn allot_id(&mut self) -> JobId {
        let id = JobId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        id
    }

    /// Takes a record in. The caller sets its waits and calls `refresh`.
    pub(super) fn add_record(&mut self, job: Job, waits: Option<Box<Waits>>) {
        let id = job.id;
        self.clients.extend(job.client.map(|client| (client.process, id)));
        self.jobs.insert(
            id,
            Box::new(Record { job, waits: None, places: Box::default(), start_order: 0 }),
        );
        self.put_waits(id, waits);
        self.index(id);
    }

    /// Changes what the indices go by: role, request, priority.
    pub(super) fn reshape(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        self.unindex(id);
        if let Some(record) = self.jobs.get_mut(&id) {
            change(&mut record.job);
        }
        self.index(id);
    }

    /// Changes a job's state, if it may go there, with all that hangs on it: the ledger, the indices, what is known of
    /// the array, and who is told. False where the state machine forbids it: nothing has changed then.
    ///
    /// On the way to RUNNING the allocation is noted before.
    #[must_use]
    pub(super) fn transition(&mut self, id: JobId, to: JobState, now: Timestamp) -> bool {
        let Some(from) = self.job(id).map(|job| job.run.state).filter(|from| from.can_become(to))
        else {
            return false;
        };
        let was_at_limit = self.is_array_at_limit(id);
        self.unindex(id);
        if let Some(record) = self.jobs.get_mut(&id) {
            let job = &mut record.job;
            if let Some(since) = job.run.suspended_at.filter(|_| from == JobState::Suspended) {
                job.run.suspended_us += u64::try_from(now.since(since).as_micros()).unwrap_or(0);
                job.steps
                    .iter_mut()
                    .filter(|step| step.end.is_none())
                    .for_each(|step| step.stood_still(since, now));
                job.run.suspended_at = None;
            }
            job.run.state = to;
            if from.is_active() && !to.is_active() {
                self.ledger.give_back(id);
                self.managers.remove(&id);
            }
        }
        self.index(id);
        self.note_in_array(id, from, now);
        if to != JobState::Pending {
            self.leave_queue(id);
            self.clear_waits(id);
            self.expiring.remove(&id);
            self.waits_for_no_others(id);
        }
        self.note_for_people(id, from, now);
        self.changed.push_back(id);
        if was_at_limit != self.is_array_at_limit(id) {
            self.refresh_array(id, now);
        }
        true
    }

    fn is_array_at_limit(&self, id: JobId) -> bool {
        self.group_of(id).is_some_and(ArrayGroup::is_at_limit)
    }

    pub(super) fn group_of(&self, id: JobId) -> Option<&ArrayGroup> {
        self.job(id).and_then(Job::array_job_id).and_then(|array| self.arrays.get(&array))
    }

    /// Looks at all pending records of the array that `id` belongs to again.
    pub(super) fn refresh_array(&mut self, id: JobId, now: Timestamp) {
        let waiting: Vec<JobId> = self
            .group_of(id)
            .map(|group| group.waiting.iter().copied().collect())
            .unwrap_or_default();
        for other in waiting {
            self.refresh(other, now);
        }
    }

    /// Looks at a record again: whether it belongs into the queue, and where.
    pub(super) fn refresh(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get(&id) else { return };
        let (mut places, mut waits_for_gpus, mut waits_for_cpus) = (Vec::new(), false, false);
        if record.job.run.state == JobState::Pending && self.gate_anywhere(record, now).is_none() {
            for choice in Choice::all(&record.job, &self.config) {
                match self.gate_in(&choice, now) {
                    None => places.push(self.place_of(&choice)),
                    Some(Reason::Resources) => {
                        waits_for_gpus |= self.gpus_in_use(&choice).is_some();
                        waits_for_cpus |= self.cpus_in_use(&choice).is_some();
                    }
                    Some(_) => {}
                }
            }
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            if *record.places != *places {
                self.queue.replace(&record.places, &places);
                record.places = places.into();
            }
            if !record.places.is_empty() && record.job.run.eligible.is_none() {
                record.job.run.eligible = Some(now);
            }
        }
        if self.jobs.get(&id).is_some_and(|record| record.places.is_empty()) {
            self.suspect(id);
        }
        self.gpu_use.readings.note_wait(id, waits_for_gpus);
        self.cpu_use.readings.note_wait(id, waits_for_cpus);
    }

    fn waits_for_no_others(&mut self, id: JobId) {
        self.gpu_use.readings.note_wait(id, false);
        self.cpu_use.readings.note_wait(id, false);
    }

    fn leave_queue(&mut self, id: JobId) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let places = std::mem::take(&mut record.places);
        self.queue.replace(&places, &[]);
    }

    pub(super) fn place_of(&self, choice: &Choice) -> Place {
        Place { key: self.queue_key(choice), shape: self.queue.known(choice.shape()) }
    }

    fn queue_key(&self, choice: &Choice) -> QueueKey {
        let job = choice.job;
        let turn = match (&job.role, job.array_job_id().and_then(|array| self.arrays.get(&array))) {
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, Some(group)) => {
                group.last_served.max(job.id.0)
            }
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, None) => job.id.0,
            // What comes back has the turn of its submission, as a plain job with its number.
            (ArrayRole::Task { array_job, .. }, _) if job.run.restarts > 0 => array_job.0,
            (ArrayRole::None | ArrayRole::Task { .. }, _) => job.id.0,
        };
        let task = if let ArrayRole::Task { task, .. } = job.role { task } else { 0 };
        let tier = Reverse(choice.partition.map_or(1, Partition::tier));
        QueueKey {
            tier,
            priority: Reverse(rank(&job.request)),
            turn,
            task,
            id: job.id,
            choice: choice.at,
        }
    }

    /// Tells those who wait for the jobs whose state has changed, and those who wait for them in turn, and so on.
    pub(super) fn settle(&mut self, cx: &mut Cx) {
        while let Some(id) = self.changed.pop_front() {
            let Some(job) = self.job(id) else { continue };
            let (array, name) = (job.array_job_id(), (job.request.uid, job.request.name.clone()));
            let task = match &job.role {
                ArrayRole::Task { task, .. } => Some(*task),
                ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => None,
            };
            let mut others = Vec::new();
            if let Some(array) = array {
                others = self.reconsider_dependents(array, task);
            }
            if array != Some(id) {
                others.extend(self.reconsider_dependents(id, None));
            }
            for other in others {
                self.refresh(other, cx.now);
                self.arm(other, cx.now);
                self.drop_if_hopeless(other, cx);
            }
            self.refresh_singletons(&name, cx.now);
        }
        self.say(cx);
    }

    /// The singletons of a name that may go now, or no longer may: those before the first that had to wait and still
    /// has. Only those of the earliest submission can be free.
    pub(super) fn refresh_singletons(&mut self, name: &(u32, String), now: Timestamp) {
        let Some(group) = self.names.get(&name.0).and_then(|names| names.get(&name.1)) else {
            return;
        };
        let is_moved = |id: &JobId| {
            self.jobs.get(id).is_some_and(|record| {
                !record.places.is_empty() || self.is_singleton_free(&record.job)
            })
        };
        let moved: Vec<JobId> =
            group.singletons.iter().map(|(_, id)| *id).take_while(is_moved).collect();
        for id in moved {
            self.refresh(id, now);
        }
    }

    /// A copy of the record for the store, which keeps steps apart.
    pub(super) fn stored(&mut self, id: JobId) -> Option<Box<Job>> {
        let job = &mut self.jobs.get_mut(&id)?.job;
        let steps = std::mem::take(&mut job.steps);
        let copy = Box::new(job.clone());
        job.steps = steps;
        Some(copy)
    }

    pub(super) fn save(&mut self, id: JobId, cx: &mut Cx) {
        if let Some(job) = self.stored(id) {
            cx.out.changes.push(Change::Update(job));
        }
    }

    /// Saves a record that has just left the compact record `from`, and that one. They may be the same.
    pub(super) fn save_split(&mut self, id: JobId, from: JobId, cx: &mut Cx) {
        if id != from
            && let Some(job) = self.stored(id)
        {
            let texts = Texts::SameAs(job.array_job_id().unwrap_or(from));
            cx.out.changes.push(Change::Insert { job, texts });
        }
        self.save(from, cx);
    }

    /// Forgets a record.
    pub(super) fn forget(&mut self, id: JobId, cx: &mut Cx) {
        self.waits_for_no_others(id);
        self.clear_waits(id);
        self.unindex(id);
        self.leave_queue(id);
        let Some(record) = self.jobs.remove(&id) else { return };
        if let Some(client) = record.job.client {
            self.clients.remove(&(client.process, id));
        }
        self.step_waits.remove(&id);
        if let Some(array) = record.job.array_job_id()
            && self.arrays.get(&array).is_some_and(|group| group.records.is_empty())
        {
            self.arrays.remove(&array);
        }
        self.forget_for_people(id, record.job.array_job_id().unwrap_or(id));
        cx.out.effects.push(Effect::Gone(id));
    }
}
