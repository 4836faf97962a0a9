//! A hierarchy of one cgroup, for cgroups-rs: its own ones begin at `/sys/fs/cgroup` and look at
//! nothing else.

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::cpuset::CpuSetController;
use cgroups_rs::fs::freezer::FreezerController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, Hierarchy, Subsystem};
use std::path::{Path, PathBuf};

/// The cgroup in this directory. Never to be cloned: a clone would forget the hierarchy.
pub(super) fn open(dir: &Path) -> Cgroup {
    // As the root of a hierarchy: the crate takes no other path that is not UTF-8.
    Cgroup::load(Box::new(OneCgroup { dir: dir.to_owned() }), "")
}

#[derive(Debug, Clone)]
struct OneCgroup {
    dir: PathBuf,
}

impl Hierarchy for OneCgroup {
    fn v2(&self) -> bool {
        true
    }

    fn root(&self) -> PathBuf {
        self.dir.clone()
    }

    fn subsystems(&self) -> Vec<Subsystem> {
        let point = || (self.dir.clone(), PathBuf::new(), true);
        let (a, b, c) = point();
        // First, since the crate takes whatever is first for questions that need no controller.
        let mut all = vec![Subsystem::Freezer(FreezerController::new(a, b, c))];
        let (a, b, c) = point();
        all.push(Subsystem::Mem(MemController::new(a, b, c)));
        let (a, b, c) = point();
        all.push(Subsystem::Cpu(CpuController::new(a, b, c)));
        let (a, b, c) = point();
        all.push(Subsystem::CpuSet(CpuSetController::new(a, b, c)));
        let (a, b, c) = point();
        all.push(Subsystem::Pid(PidController::new(a, b, c)));
        all
    }

    fn root_control_group(&self) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), "")
    }

    fn parent_control_group(&self, _: &str) -> Cgroup {
        self.root_control_group()
    }
}
