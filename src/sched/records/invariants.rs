//! Invariants of the indexes, which the tests check after each step.

use super::Records;
use super::index::{Facts, client_key};
use compact_str::CompactString;
use slotd_model::qos;
use slotd_model::{ArrayRole, Job};
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Records {
    /// Fails with the first violation.
    pub fn check(&self) -> Result<(), String> {
        let active = self.jobs().filter(|job| job.run.state.is_active()).map(|job| job.id);
        if !active.eq(self.active.iter().copied()) {
            return Err(format!("the index of active jobs is wrong: {:?}", self.active));
        }
        self.check_clients()?;
        self.check_loads()?;
        self.check_submitted()?;
        self.check_arrays()
    }

    /// Checks that each partition's load is the sum over its jobs.
    fn check_loads(&self) -> Result<(), String> {
        let mut loads: HashMap<&str, (u64, u64)> = HashMap::new();
        for job in self.jobs() {
            let (running, pending) = Facts::of(job).load();
            for name in job.partitions() {
                let load = loads.entry(name).or_default();
                *load = (load.0 + running, load.1 + pending);
            }
        }
        let differs = |(name, load): &(&CompactString, &(u64, u64))| {
            loads.get(name.as_str()).copied().unwrap_or_default() != **load
        };
        match self.loads.iter().find(differs) {
            Some((name, load)) => Err(format!(
                "partition {name} counts {load:?}, but has {:?}",
                loads.get(name.as_str())
            )),
            None if loads
                .iter()
                .any(|(name, load)| *load != (0, 0) && !self.loads.contains_key(*name)) =>
            {
                Err(format!("a partition is not counted: {loads:?}"))
            }
            None => Ok(()),
        }
    }

    /// Checks that each QOS counts its jobs and array tasks that have not ended.
    fn check_submitted(&self) -> Result<(), String> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for job in self.jobs().filter(|job| !job.run.state.is_terminal()) {
            let tasks = job.compact_tasks().map_or(1, |tasks| tasks.len() as u64);
            *counts.entry(qos::of(&job.request)).or_default() += tasks;
        }
        let known = self.submitted.iter().filter(|(_, count)| **count > 0);
        let known: BTreeMap<&str, u64> =
            known.map(|(name, count)| (name.as_str(), *count)).collect();
        if known == counts {
            Ok(())
        } else {
            Err(format!("QOS count {known:?} jobs, but have {counts:?}"))
        }
    }

    /// Checks that the client index lists exactly the records with a client.
    fn check_clients(&self) -> Result<(), String> {
        let of = |job: &Job| job.client.map(|client| client_key(client.process, job.id));
        let indexed: BTreeSet<_> = self.jobs().filter_map(of).collect();
        if indexed == self.clients {
            return Ok(());
        }
        let wrong: Vec<_> = indexed.symmetric_difference(&self.clients).collect();
        Err(format!("the index of submitting processes is wrong about {wrong:?}"))
    }

    /// Checks that no task is in two records, and that the counters of each array are right.
    fn check_arrays(&self) -> Result<(), String> {
        for (id, group) in &self.arrays {
            let mut seen = BTreeSet::new();
            let (mut active, mut live) = (0, 0);
            for record in group.records.iter().filter_map(|id| self.get(*id)) {
                let tasks: Vec<u32> = match &record.job.role {
                    ArrayRole::Task { task, .. } => vec![*task],
                    ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                        tasks.iter().collect()
                    }
                    ArrayRole::None => {
                        return Err(format!("job {} does not belong to array {id}", record.job.id));
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
                    "array {id} has {live} live records, but counts {}",
                    group.live
                ));
            }
            if active != group.active {
                return Err(format!(
                    "array {id} has {active} running tasks, but counts {}",
                    group.active
                ));
            }
        }
        Ok(())
    }
}
