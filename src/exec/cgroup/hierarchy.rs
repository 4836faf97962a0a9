//! A hierarchy of a single cgroup, for cgroups-rs: its own hierarchies start at `/sys/fs/cgroup`
//! and cover nothing else.

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::cpuset::CpuSetController;
use cgroups_rs::fs::freezer::FreezerController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, Hierarchy, Subsystem};
use std::path::{Path, PathBuf};

/// Opens the cgroup in this directory. Do not clone it: a clone would lose the hierarchy.
pub(super) fn open(dir: &Path) -> Cgroup {
    // Passed as the root of a hierarchy, because the crate accepts no other path that is not UTF-8.
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
        // The freezer comes first, since the crate uses the first one for queries that need no
        // controller.
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
