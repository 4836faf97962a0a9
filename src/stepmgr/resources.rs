//! The resources of the manager's job and their allocation to steps. The job may grow and shrink
//! while steps run: a running step keeps its resources until it ends, even if the job lost them.
//!
//! When the manager has to give resources back, it sets aside the idle ones and offers them to the
//! daemon, then the rest as steps end. It also offers resources that are out of use, so that the
//! daemon can replace them.

use super::def::Ask;
use slotd_model::node::NodeParts;
use slotd_model::resize::GivenBack;
use slotd_model::tres::Allocation;
use slotd_model::{Tres, counted};
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
    /// The amount that must be given back.
    owed: Tres,
    /// The part of `owed` that is idle and withheld from steps. Resources out of use come first.
    aside: GivenBack,
    /// The part of `aside` that was offered since the last update from the daemon.
    offered: GivenBack,
    /// The CPUs and GPUs that are out of use.
    out: NodeParts,
}

/// Returns the CPU numbers. If the allocation has no CPU IDs, they are numbered from 0.
fn cpus_of(whole: &Allocation) -> BTreeSet<u32> {
    if whole.cpu_ids.is_empty() {
        (0..whole.tres.cpus).collect()
    } else {
        whole.cpu_ids.iter().copied().collect()
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
        resources.resize(whole, Tres::ZERO);
        resources
    }

    pub fn owed(&self) -> &Tres {
        &self.owed
    }

    pub fn whole(&self) -> &Allocation {
        &self.whole
    }

    /// Sets the manager's resources and the part of them that it must give back.
    pub fn resize(&mut self, whole: Allocation, owed: Tres) {
        self.cpus = cpus_of(&whole);
        self.free_cpus = self.cpus.difference(&self.used_cpus).copied().collect();
        self.free_gpus =
            whole.gpu_ids.iter().copied().filter(|id| !self.used_gpus.contains(id)).collect();
        (self.whole, self.owed) = (whole, owed);
        // Resources that are still owed stay set aside: the daemon may be about to take them.
        let had = std::mem::take(&mut self.aside);
        self.offered = GivenBack::default();
        let (cpus, gpus) = (self.owed.cpus as usize, self.owed.gpus as usize);
        let still = |ids: Vec<u32>, free: &mut BTreeSet<u32>, out: &BTreeSet<u32>, most: usize| {
            let mut aside: Vec<u32> = free.intersection(out).copied().collect();
            let healthy = ids.into_iter().filter(|id| free.contains(id) && !out.contains(id));
            aside.extend(healthy.take(most.saturating_sub(aside.len())));
            free.retain(|id| !aside.contains(id));
            aside
        };
        self.aside.cpu_ids = still(had.cpu_ids, &mut self.free_cpus, &self.out.cpus, cpus);
        self.aside.gpu_ids = still(had.gpu_ids, &mut self.free_gpus, &self.out.gpus, gpus);
    }

    /// Returns the resources to give back now, if they differ from the last offer: everything that
    /// is out of use, plus what else is owed.
    pub fn given_back(&mut self) -> Option<GivenBack> {
        let Resources { owed, aside, free_cpus, free_gpus, .. } = self;
        while aside.cpu_ids.len() < owed.cpus as usize
            && let Some(cpu) = free_cpus.pop_last()
        {
            aside.cpu_ids.push(cpu);
        }
        while aside.gpu_ids.len() < owed.gpus as usize
            && let Some(gpu) = free_gpus.pop_last()
        {
            aside.gpu_ids.push(gpu);
        }
        aside.mem_mb = owed.mem_mb.min(self.whole.tres.mem_mb.saturating_sub(self.used_mem_mb));
        let is_news = !aside.is_empty() && *aside != self.offered;
        is_news.then(|| {
            self.offered = self.aside.clone();
            self.aside.clone()
        })
    }

    /// Sets the CPUs and GPUs that no step may use. All others become usable again.
    pub(crate) fn set_out(&mut self, out: NodeParts) {
        self.out = out;
        self.resize(self.whole.clone(), self.owed);
    }

    pub fn out(&self) -> &NodeParts {
        &self.out
    }

    /// Returns the number of CPUs and GPUs that are not out of use.
    pub fn in_use(&self) -> (u32, u32) {
        let gpus = self.whole.gpu_ids.iter().filter(|id| !self.out.gpus.contains(id));
        (self.cpus.difference(&self.out.cpus).count() as u32, gpus.count() as u32)
    }

    /// Returns whether part of an allocation is out of use.
    pub(crate) fn is_out(&self, alloc: &Allocation) -> bool {
        !alloc.parts().within(&self.out).is_empty()
    }

    /// Returns whether the request could ever be satisfied without the resources that are owed.
    pub(crate) fn could_hold(&self, ask: &Ask) -> bool {
        let there = self.whole.tres.minus(&self.owed);
        let gpus = self.whole.gpu_ids.len().saturating_sub(self.owed.gpus as usize);
        ask.cpus <= there.cpus
            && ask.mem_mb.is_none_or(|mb| mb <= there.mem_mb)
            && ask.gpus as usize <= gpus
    }

    /// Describes the shortage for a request: `asks for 3 CPUs; the job has 2 CPUs`.
    pub fn too_little_for(&self, ask: &Ask) -> String {
        let there = self.whole.tres.minus(&self.owed);
        let gpus = self.whole.gpu_ids.len().saturating_sub(self.owed.gpus as usize);
        let amount = |count, unit| match unit {
            "MB" => format!("{count} MB"),
            noun => counted(count, noun),
        };
        let kinds = [
            (u64::from(ask.cpus), u64::from(there.cpus), "CPU"),
            (ask.mem_mb.unwrap_or(0), there.mem_mb, "MB"),
            (u64::from(ask.gpus), gpus as u64, "GPU"),
        ];
        let (asked, had): (Vec<_>, Vec<_>) = kinds
            .into_iter()
            .filter(|(asked, had, _)| asked > had)
            .map(|(asked, had, unit)| (amount(asked, unit), amount(had, unit)))
            .unzip();
        format!("asks for {}; the job has {}", asked.join(" and "), had.join(" and "))
    }

    /// Returns whether the request can be satisfied now.
    pub fn fits(&self, ask: &Ask) -> bool {
        let mem_left = self
            .whole
            .tres
            .mem_mb
            .saturating_sub(self.used_mem_mb)
            .saturating_sub(self.aside.mem_mb);
        ask.cpus as usize <= self.free_cpus.len()
            && ask.gpus as usize <= self.free_gpus.len()
            && ask.mem_mb.is_none_or(|mb| mb <= mem_left)
    }

    /// Allocates resources; `None` if the request does not fit.
    pub fn take(&mut self, ask: &Ask) -> Option<Allocation> {
        if !self.fits(ask) {
            return None;
        }
        self.used_mem_mb = self.used_mem_mb.saturating_add(ask.mem_mb.unwrap_or(0));
        let cpus = take(&mut self.free_cpus, &mut self.used_cpus, ask.cpus);
        let gpus = take(&mut self.free_gpus, &mut self.used_gpus, ask.gpus);
        let share = self.whole.gpu_share.of(gpus.len() as u32);
        Some(Allocation {
            tres: Tres {
                cpus: ask.cpus,
                mem_mb: ask.mem_mb.unwrap_or(self.whole.tres.mem_mb),
                ..share
            },
            cpu_ids: cpus,
            gpu_ids: gpus,
            gpu_share: self.whole.gpu_share,
            ..Allocation::default()
        })
    }

    /// Frees the resources of a step that requested `ask`.
    pub fn give_back(&mut self, had: &Allocation, ask: &Ask) {
        self.used_mem_mb = self.used_mem_mb.saturating_sub(ask.mem_mb.unwrap_or(0));
        for id in &had.cpu_ids {
            self.used_cpus.remove(id);
            if !self.cpus.contains(id) {
                continue;
            }
            if self.out.cpus.contains(id) {
                self.aside.cpu_ids.insert(0, *id);
            } else {
                self.free_cpus.insert(*id);
            }
        }
        for id in &had.gpu_ids {
            self.used_gpus.remove(id);
            if !self.whole.gpu_ids.contains(id) {
                continue;
            }
            if self.out.gpus.contains(id) {
                self.aside.gpu_ids.insert(0, *id);
            } else {
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
    fn resources_taken_from_a_running_step_are_not_reallocated() {
        let mut resources = Resources::new(whole(&[2, 3], 100, &[0]));
        let one = resources.take(&ask(1, Some(60), 1)).unwrap();
        assert_eq!(
            (one.cpu_ids.as_slice(), one.gpu_ids.as_slice()),
            ([2].as_slice(), [0].as_slice())
        );
        assert!(resources.take(&ask(1, Some(60), 0)).is_none(), "too little memory is left");
        resources.resize(whole(&[3, 5], 100, &[]), Tres::ZERO);
        assert!(resources.could_hold(&ask(2, None, 0)) && !resources.could_hold(&ask(1, None, 1)));
        let two = resources.take(&ask(2, None, 0)).unwrap();
        assert_eq!(two.cpu_ids, [3, 5]);
        resources.give_back(&one, &ask(1, Some(60), 1));
        assert!(!resources.fits(&ask(1, None, 0)), "the job has lost CPU 2");
        resources.give_back(&two, &ask(2, None, 0));
        assert!(resources.fits(&ask(2, Some(100), 0)));
    }

    #[test]
    fn owed_resources_are_given_back_once_idle() {
        let three = whole(&[0, 1, 2], 100, &[]);
        let mut resources = Resources::new(three.clone());
        let step = resources.take(&ask(2, Some(60), 0)).unwrap();
        let owed = Tres { cpus: 2, mem_mb: 70, ..Tres::ZERO };
        resources.resize(three.clone(), owed);
        assert!(!resources.could_hold(&ask(2, None, 0)), "only one will be left");
        let idle = GivenBack { cpu_ids: vec![2], mem_mb: 40, gpu_ids: vec![] };
        assert_eq!(resources.given_back(), Some(idle));
        assert_eq!(resources.given_back(), None, "it was offered already");
        assert!(!resources.fits(&ask(1, None, 0)) && !resources.fits(&ask(0, Some(1), 0)));
        resources.give_back(&step, &ask(2, Some(60), 0));
        let all = GivenBack { cpu_ids: vec![2, 1], mem_mb: 70, gpu_ids: vec![] };
        assert_eq!(resources.given_back(), Some(all.clone()));
        // By now the daemon has taken the first part, but has not received the second.
        resources.resize(whole(&[0, 1], 60, &[]), Tres { cpus: 1, mem_mb: 30, ..Tres::ZERO });
        assert!(!resources.fits(&ask(2, None, 0)), "CPU 1 is set aside");
        assert_eq!(
            resources.given_back(),
            Some(GivenBack { cpu_ids: vec![1], mem_mb: 30, gpu_ids: vec![] })
        );
        resources.resize(whole(&[0], 30, &[]), Tres::ZERO);
        assert_eq!(resources.given_back(), None);
        assert!(resources.fits(&ask(1, Some(30), 0)));
        // Resources that are no longer owed are kept.
        resources.resize(whole(&[0, 1], 30, &[]), Tres { cpus: 1, ..Tres::ZERO });
        assert!(resources.given_back().is_some());
        resources.resize(whole(&[0, 1], 30, &[]), Tres::ZERO);
        assert!(resources.fits(&ask(2, None, 0)));
    }

    #[test]
    fn resources_out_of_use_are_given_back_first() {
        let mut resources = Resources::new(whole(&[0, 1, 2], 100, &[4, 5]));
        let step = resources.take(&ask(1, None, 1)).unwrap();
        resources.set_out(NodeParts { cpus: [0, 1].into(), gpus: [4].into() });
        assert!(
            resources.is_out(&step)
                && !resources.fits(&ask(2, None, 0))
                && resources.could_hold(&ask(3, None, 2))
        );
        resources.resize(whole(&[0, 1, 2], 100, &[4, 5]), Tres { cpus: 1, ..Tres::ZERO });
        assert_eq!(
            resources.given_back(),
            Some(GivenBack { cpu_ids: vec![1], mem_mb: 0, gpu_ids: vec![] })
        );
        resources.give_back(&step, &ask(1, None, 1));
        assert_eq!(
            resources.take(&ask(1, None, 1)).map(|got| (got.cpu_ids, got.gpu_ids)),
            Some((vec![2], vec![5]))
        );
        resources.set_out(NodeParts::default());
        assert!(resources.fits(&ask(1, None, 1)), "CPU 0 and GPU 4 are back");
    }
}
