//! What the manager has of its job and what its steps have of that. It may grow and shrink while steps run: what was taken
//! away under a running step stays with the step until that ends.

use super::def::Ask;
use crate::model::Tres;
use crate::model::tres::Allocation;
use std::collections::BTreeSet;

/// The resources of the manager.
#[derive(Debug, Clone, Default)]
pub struct Resources {
    whole: Allocation,
    cpus: BTreeSet<u32>,
    free_cpus: BTreeSet<u32>,
    free_gpus: BTreeSet<u32>,
    used_cpus: BTreeSet<u32>,
    used_gpus: BTreeSet<u32>,
    used_mem_mb: u64,
}

/// The CPUs by number. Of a host whose CPUs are not told apart they are numbered here.
fn cpus_of(whole: &Allocation) -> BTreeSet<u32> {
    match whole.cpu_ids.is_empty() {
        true => (0..whole.tres.cpus).collect(),
        false => whole.cpu_ids.iter().copied().collect(),
    }
}

/// Takes the lowest numbers.
fn take(free: &mut BTreeSet<u32>, used: &mut BTreeSet<u32>, count: u32) -> Vec<u32> {
    let taken: Vec<u32> = free.iter().copied().take(count as usize).collect();
    for id in &taken {
        free.remove(id);
        used.insert(*id);
    }
    taken
}

impl Resources {
    pub fn new(whole: Allocation) -> Resources {
        let mut resources = Resources::default();
        resources.resize(whole);
        resources
    }

    pub fn whole(&self) -> &Allocation {
        &self.whole
    }

    /// The manager has this from now on.
    pub fn resize(&mut self, whole: Allocation) {
        self.cpus = cpus_of(&whole);
        self.free_cpus = self.cpus.difference(&self.used_cpus).copied().collect();
        self.free_gpus = whole.gpu_ids.iter().copied().filter(|id| !self.used_gpus.contains(id)).collect();
        self.whole = whole;
    }

    /// Whether it could ever be had with what there is now.
    pub fn could_hold(&self, ask: &Ask) -> bool {
        let Allocation { tres, gpu_ids, .. } = &self.whole;
        ask.cpus <= tres.cpus && ask.mem_mb.is_none_or(|mb| mb <= tres.mem_mb) && ask.gpus as usize <= gpu_ids.len()
    }

    /// Whether it could be had now.
    pub fn fits(&self, ask: &Ask) -> bool {
        let mem_left = self.whole.tres.mem_mb.saturating_sub(self.used_mem_mb);
        ask.cpus as usize <= self.free_cpus.len()
            && ask.gpus as usize <= self.free_gpus.len()
            && ask.mem_mb.is_none_or(|mb| mb <= mem_left)
    }

    /// `None`: it does not fit.
    pub fn take(&mut self, ask: &Ask) -> Option<Allocation> {
        if !self.fits(ask) {
            return None;
        }
        self.used_mem_mb = self.used_mem_mb.saturating_add(ask.mem_mb.unwrap_or(0));
        let cpus = take(&mut self.free_cpus, &mut self.used_cpus, ask.cpus);
        let gpus = take(&mut self.free_gpus, &mut self.used_gpus, ask.gpus);
        let share = self.whole.gpu_share.of(gpus.len() as u32);
        Some(Allocation {
            tres: Tres { cpus: ask.cpus, mem_mb: ask.mem_mb.unwrap_or(self.whole.tres.mem_mb), ..share },
            cpu_ids: cpus,
            gpu_ids: gpus,
            gpu_share: self.whole.gpu_share,
        })
    }

    /// What a step had, by what it had asked for.
    pub fn give_back(&mut self, had: &Allocation, ask: &Ask) {
        self.used_mem_mb = self.used_mem_mb.saturating_sub(ask.mem_mb.unwrap_or(0));
        for id in &had.cpu_ids {
            self.used_cpus.remove(id);
            if self.cpus.contains(id) {
                self.free_cpus.insert(*id);
            }
        }
        for id in &had.gpu_ids {
            self.used_gpus.remove(id);
            if self.whole.gpu_ids.contains(id) {
                self.free_gpus.insert(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(cpus: &[u32], mem_mb: u64, gpus: &[u32]) -> Allocation {
        let tres = Tres { cpus: cpus.len() as u32, mem_mb, gpus: gpus.len() as u32, ..Tres::ZERO };
        Allocation { tres, cpu_ids: cpus.to_vec(), gpu_ids: gpus.to_vec(), ..Allocation::default() }
    }

    fn ask(cpus: u32, mem_mb: Option<u64>, gpus: u32) -> Ask {
        Ask { cpus, mem_mb, gpus }
    }

    #[test]
    fn what_is_taken_away_under_a_step_is_not_given_to_another() {
        let mut resources = Resources::new(whole(&[2, 3], 100, &[0]));
        let one = resources.take(&ask(1, Some(60), 1)).unwrap();
        assert_eq!((one.cpu_ids.as_slice(), one.gpu_ids.as_slice()), ([2].as_slice(), [0].as_slice()));
        assert!(resources.take(&ask(1, Some(60), 0)).is_none(), "there is no memory for it");
        resources.resize(whole(&[3, 5], 100, &[]));
        assert!(resources.could_hold(&ask(2, None, 0)) && !resources.could_hold(&ask(1, None, 1)));
        let two = resources.take(&ask(2, None, 0)).unwrap();
        assert_eq!(two.cpu_ids, [3, 5]);
        resources.give_back(&one, &ask(1, Some(60), 1));
        assert!(!resources.fits(&ask(1, None, 0)), "CPU 2 is gone");
        resources.give_back(&two, &ask(2, None, 0));
        assert!(resources.fits(&ask(2, Some(100), 0)));
    }
}
