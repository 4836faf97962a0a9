//! The tree below the base, for cgroups-rs: its own hierarchies begin at `/sys/fs/cgroup` and look
//! at nothing else.

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::cpuset::CpuSetController;
use cgroups_rs::fs::freezer::FreezerController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, Hierarchy, Subsystem};
use std::path::{Path, PathBuf};

/// The cgroup at `path` below `root`. Never to be cloned: a clone would forget the hierarchy.
pub(super) fn open(root: &Path, path: impl Into<PathBuf>) -> Cgroup {
    Cgroup::load(Box::new(BaseHierarchy { root: root.to_owned() }), path.into())
}

#[derive(Debug, Clone)]
struct BaseHierarchy {
    root: PathBuf,
}

impl Hierarchy for BaseHierarchy {
    fn v2(&self) -> bool {
        true
    }

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn subsystems(&self) -> Vec<Subsystem> {
        let point = || (self.root.clone(), PathBuf::new(), true);
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

    fn parent_control_group(&self, path: &str) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), Path::new(path).parent().unwrap_or(Path::new("")))
    }
}
