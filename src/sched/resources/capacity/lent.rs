//! CPUs apart from the other resources of a job: a suspended job may lend its CPUs to others, and
//! needs the same ones again, because its processes are bound to them.

use super::{Capacity, Part, has_slot};

impl Capacity {
    /// Records that a job is on its CPUs.
    pub(crate) fn take_cpus(&mut self, Part { alloc, place }: &Part) {
        self.count_empty_of(&alloc.cpu_ids, |count, cpus| *count -= cpus);
        for cpu in &alloc.cpu_ids {
            match self.cpus.get_mut(cpu) {
                Some(there) => {
                    there.push(place.jobs_per_cpu);
                    there.sort_unstable();
                }
                None => self.beyond += 1,
            }
        }
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.take_cpus(&alloc.cpu_ids);
        }
        self.count_empty_of(&alloc.cpu_ids, |count, cpus| *count += cpus);
    }

    /// Releases the CPUs of a job, which keeps everything else.
    pub(crate) fn give_cpus(&mut self, Part { alloc, place }: &Part) {
        self.count_empty_of(&alloc.cpu_ids, |count, cpus| *count -= cpus);
        for cpu in &alloc.cpu_ids {
            match self.cpus.get_mut(cpu) {
                Some(there) => {
                    if let Some(at) =
                        there.iter().position(|jobs_per_cpu| *jobs_per_cpu == place.jobs_per_cpu)
                    {
                        there.remove(at);
                    }
                }
                None => self.beyond = self.beyond.saturating_sub(1),
            }
        }
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.give_cpus(&alloc.cpu_ids);
        }
        self.count_empty_of(&alloc.cpu_ids, |count, cpus| *count += cpus);
    }

    /// Returns whether a job whose CPUs were released may be on them again. CPUs out of use do not
    /// matter, and neither does a host or partition that has become too small for the job alone.
    pub(crate) fn has_cpus_again(&self, Part { alloc, place }: &Part) -> bool {
        let is_there = |cpu: &u32| self.cpus.contains_key(cpu);
        let (own, gone): (Vec<u32>, Vec<u32>) = alloc.cpu_ids.iter().copied().partition(is_there);
        let is_open =
            |cpu: &u32| self.cpus.get(cpu).is_some_and(|there| has_slot(there, place.jobs_per_cpu));
        let held = place.partition.and_then(|at| self.by_partition.get(at)).map(|own| &own.cpus);
        let held = held.filter(|held| !held.is_empty());
        let is_within = held.is_none_or(|held| {
            let added = own.iter().filter(|cpu| !held.contains_key(cpu)).count();
            added <= self.allowed(place).cpus as usize
        });
        let others = self.cpus.iter().filter(|(cpu, _)| !own.contains(cpu));
        let spare = others.filter(|(_, there)| there.is_empty()).count();
        let is_alone = self.beyond == 0 && self.cpus.values().all(Vec::is_empty);
        let fits_beside = spare >= self.beyond as usize + gone.len();
        let is_in_excess = self.beyond > 0 || !gone.is_empty();
        is_alone || own.iter().all(is_open) && is_within && (fits_beside || !is_in_excess)
    }

    /// Returns how many CPUs in use count twice, because suspended jobs lend them to others.
    pub(crate) fn lent_cpus(&self) -> u32 {
        let lent = |there: &Vec<u32>| {
            let most = there.first().map_or(0, |most| *most as usize);
            there.len().saturating_sub(most)
        };
        self.cpus.values().map(lent).sum::<usize>() as u32
    }
}
