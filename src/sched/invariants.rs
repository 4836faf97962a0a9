//! What must always be true of the state: the tests check it after each step.

use super::cards::Cards;
use super::choice::Choice;
use super::core::{Core, Record};
use super::index::load_of;
use super::queue::Place;
use crate::model::tres::Allocation;
use crate::model::{ArrayRole, Job, JobState, Reason, Tres};
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Core {
    /// What was found broken first.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_capacity()?;
        self.check_limits()?;
        self.check_queue()?;
        self.check_clients()?;
        self.check_loads()?;
        self.check_arrays()?;
        self.check_chains()?;
        self.check_blockers()
    }

    /// What is told of all that keeps a job from starting begins with its reason.
    fn check_blockers(&self) -> Result<(), String> {
        let now = self
            .jobs()
            .filter_map(|job| job.run.start.max(Some(job.submit)))
            .max()
            .unwrap_or_default();
        // A long queue has many that are alike.
        let pending =
            self.jobs.values().filter(|record| record.job.run.state == JobState::Pending).take(16);
        for record in pending {
            let (reason, all) = (self.reason_of(record, now), self.blockers(record, now));
            let first = all.first().map_or(Reason::None, |first| first.reason);
            if first != reason || all.iter().any(|blocker| blocker.text.is_empty()) {
                return Err(format!(
                    "job {} waits for {reason}, and {all:?} is told of it",
                    record.job.id
                ));
            }
        }
        Ok(())
    }

    /// Never over capacity; no more jobs on a CPU than each of them allows, and no GPU in two hands; no partition has more
    /// than it may; the ledger says what the jobs say.
    fn check_capacity(&self) -> Result<(), String> {
        let mut total = Tres::ZERO;
        let mut cpus = BTreeMap::new();
        let mut gpus = Cards::of(&self.config.host);
        let mut used: HashMap<usize, (Tres, BTreeSet<u32>)> = HashMap::new();
        for job in self.jobs() {
            if job.run.state.is_active() != self.active.contains(&job.id) {
                return Err(format!(
                    "job {} is {} and the index of active jobs disagrees",
                    job.id, job.run.state
                ));
            }
            if !job.run.state.is_active() {
                continue;
            }
            let Some(alloc) = &job.run.alloc else {
                return Err(format!("job {} runs without an allocation", job.id));
            };
            self.check_shrinking(job, alloc)?;
            if job.tres.minus(&alloc.tres) != Tres::ZERO {
                return Err(format!(
                    "job {} has {:?} and asked for {:?}",
                    job.id, alloc.tres, job.tres
                ));
            }
            let gpu_count = alloc.gpu_share.gpus_in(&alloc.tres);
            if alloc.gpu_ids.len() as u32 != gpu_count
                || alloc.cpu_ids.len() as u32 != alloc.tres.cpus
            {
                return Err(format!(
                    "job {} has an allocation whose numbers do not add up: {alloc:?}",
                    job.id
                ));
            }
            let Some(held) = self.ledger.held(job.id) else {
                return Err(format!("job {} holds nothing", job.id));
            };
            for cpu in &alloc.cpu_ids {
                let users: &mut Vec<u32> = cpus.entry(*cpu).or_default();
                users.push(held.place.seats);
                if users.len() > users.iter().copied().min().unwrap_or(0) as usize {
                    return Err(format!(
                        "CPU {cpu} was given to more than may share it, once to job {}",
                        job.id
                    ));
                }
            }
            let partition = held.place.partition.map(|at| (at, &self.config.partitions[at]));
            if let Some((at, partition)) = partition {
                let is_own = |own: &Option<BTreeSet<u32>>, ids: &[u32]| {
                    own.as_ref().is_none_or(|own| ids.iter().all(|id| own.contains(id)))
                };
                if !is_own(&partition.cpus, &alloc.cpu_ids)
                    || !is_own(&partition.gpus, &alloc.gpu_ids)
                {
                    return Err(format!("job {} has {alloc:?} in {partition:?}", job.id));
                }
                let (sum, own) = used.entry(at).or_default();
                *sum = sum.plus(&alloc.tres);
                own.extend(&alloc.cpu_ids);
                // Those that its jobs share count once.
                let used = Tres { cpus: own.len() as u32, ..*sum };
                if used.minus(&partition.bounds()) != Tres::ZERO {
                    return Err(format!("jobs have {used:?} of {partition:?}"));
                }
            }
            if !gpus.have(&alloc.gpu_ids, alloc.gpu_share) {
                return Err(format!(
                    "job {} has of the GPUs {:?} what others have",
                    job.id, alloc.gpu_ids
                ));
            }
            gpus.take(&alloc.gpu_ids, alloc.gpu_share);
            total = total.plus(&alloc.tres);
        }
        if total != self.ledger.used() {
            return Err(format!("jobs hold {total:?}, the ledger says {:?}", self.ledger.used()));
        }
        // Shared CPUs count for each job.
        if (Tres { cpus: cpus.len() as u32, ..total }).minus(&self.config.host.tres()) != Tres::ZERO
        {
            return Err(format!("jobs hold {total:?} of {:?}", self.config.host.tres()));
        }
        Ok(())
    }

    /// A job that is to have less has nothing left that none of its steps uses.
    fn check_shrinking(&self, job: &Job, alloc: &Allocation) -> Result<(), String> {
        let owed = self.owed(job.id);
        let live = job.steps.iter().filter(|step| !step.state.is_terminal() && !step.overlap);
        let used: u32 = live.map(|step| step.alloc.tres.cpus).sum();
        if job.run.shrinks != (owed != Tres::ZERO) {
            return Err(format!("job {} owes {owed:?} and says {}", job.id, job.run.shrinks));
        }
        if !self.is_shared_out(job.id) && owed.cpus > 0 && used < alloc.tres.cpus {
            return Err(format!("job {} owes {owed:?} of {alloc:?}, and uses {used} CPUs", job.id));
        }
        Ok(())
    }

    /// No limit of the owner is passed.
    fn check_limits(&self) -> Result<(), String> {
        for limit in &self.config.limits {
            let own = self.jobs().filter(|job| job.run.state.is_active());
            let own =
                own.filter(|job| limit.is_of(job.request.account.as_deref(), &job.request.name));
            let cpus: Vec<u32> =
                own.filter_map(|job| Some(job.run.alloc.as_ref()?.tres.cpus)).collect();
            let is_over = limit.jobs.is_some_and(|most| cpus.len() > most as usize)
                || limit.cpus.is_some_and(|most| cpus.iter().sum::<u32>() > most);
            if is_over {
                return Err(format!("jobs with {cpus:?} CPUs run under the limit {limit}"));
            }
        }
        Ok(())
    }

    /// The queue holds pending records only, each at its place.
    fn check_queue(&self) -> Result<(), String> {
        let keyed = self.jobs.values().map(|record| record.places.len()).sum::<usize>();
        if keyed != self.queue.len() {
            return Err(format!(
                "{keyed} records think they are in the queue, which has {}",
                self.queue.len()
            ));
        }
        for key in self.queue.iter() {
            let Some(record) = self.jobs.get(&key.id) else {
                return Err(format!("job {} is in the queue and not in memory", key.id));
            };
            if record.job.run.state != JobState::Pending
                || record.places.iter().all(|place| place.key != key)
            {
                return Err(format!("job {} is {} and in the queue", key.id, record.job.run.state));
            }
        }
        let places = self
            .jobs
            .values()
            .flat_map(|record| record.places.iter().map(move |place| (&**record, place)));
        let is_true = |(record, place): &(&Record, &Place)| {
            let mut choices = Choice::all(&record.job, &self.config);
            choices.any(|choice| self.place_of(&choice) == **place)
        };
        if let Some((record, _)) = places.clone().find(|found| !is_true(found)) {
            return Err(format!("job {} waits in another place than its own", record.job.id));
        }
        self.queue.check(places.map(|(_, place)| place))
    }

    /// The loads of the partitions are those of their jobs.
    fn check_loads(&self) -> Result<(), String> {
        let mut loads: HashMap<String, (u64, u64)> = HashMap::new();
        for job in self.jobs() {
            let (running, pending) = load_of(job);
            for name in job.partitions() {
                let load = loads.entry(name.to_owned()).or_default();
                *load = (load.0 + running, load.1 + pending);
            }
        }
        let differs = |(name, load): &(&String, &(u64, u64))| {
            loads.get(*name).copied().unwrap_or_default() != **load
        };
        match self.loads.iter().find(differs) {
            Some((name, load)) => {
                Err(format!("partition {name} counts {load:?} and has {:?}", loads.get(name)))
            }
            None if loads
                .iter()
                .any(|(name, load)| *load != (0, 0) && !self.loads.contains_key(name)) =>
            {
                Err(format!("a partition is not counted: {loads:?}"))
            }
            None => Ok(()),
        }
    }

    /// Each record is found by the process that submitted it, and no other is.
    fn check_clients(&self) -> Result<(), String> {
        let of = |job: &Job| job.client.map(|client| (client.process, job.id));
        let told: BTreeSet<_> = self.jobs().filter_map(of).collect();
        if told == self.clients {
            return Ok(());
        }
        let wrong: Vec<_> = told.symmetric_difference(&self.clients).collect();
        Err(format!("the index of submitting processes is wrong about {wrong:?}"))
    }

    /// No task is in two records; no array has more tasks running than it may.
    fn check_arrays(&self) -> Result<(), String> {
        for (id, group) in &self.arrays {
            let mut seen = BTreeSet::new();
            let (mut active, mut live) = (0, 0);
            for record in group.records.iter().filter_map(|id| self.jobs.get(id)) {
                let tasks: Vec<u32> = match &record.job.role {
                    ArrayRole::Task { task, .. } => vec![*task],
                    ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                        tasks.iter().collect()
                    }
                    ArrayRole::None => {
                        return Err(format!("job {} is no part of array {id}", record.job.id));
                    }
                };
                active += u32::from(record.job.run.state.is_active());
                live += usize::from(!record.job.run.state.is_terminal());
                if let Some(task) = tasks.into_iter().find(|task| !seen.insert(*task)) {
                    return Err(format!("task {task} of array {id} is in two records"));
                }
            }
            if live != group.live {
                return Err(format!(
                    "array {id} has {live} records that are not over and counts {}",
                    group.live
                ));
            }
            if active != group.active {
                return Err(format!(
                    "array {id} has {active} tasks running and counts {}",
                    group.active
                ));
            }
        }
        Ok(())
    }
}
