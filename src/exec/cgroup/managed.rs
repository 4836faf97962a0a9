//! The cgroups of a manager's steps that have a memory limit of their own, inside the cgroup of the
//! step that the manager runs in.
//!
//! ```text
//! <base>/job_12/step_batch/own   the script, the manager and its other steps
//! <base>/job_12/step_batch/7     memory.max of step 7 of the manager
//! ```
//!
//! Only a cgroup that contains no processes can limit the memory of its children (cgroup v2's "no
//! internal processes"), so the processes move into `own` first. The outer cgroup still covers all
//! of them when the step is frozen, killed or measured.

use super::{CgroupError, controller, enable, failed, hierarchy, make, oom_kills, remove, set};
use super::{event, io_failed, set_memory};
use std::fs;
use std::path::{Path, PathBuf};

/// The cgroup for everything but the limited steps.
const OWN: &str = "own";

/// The maximum number of passes that move the processes. A process that forks during a pass leaves
/// a child for the next one.
const PASSES: usize = 1000;

/// Creates cgroups for the steps of a manager.
#[derive(Debug)]
pub struct ManagedSteps {
    /// The cgroup of the step that this process belongs to.
    dir: PathBuf,
    is_split: bool,
}

impl ManagedSteps {
    /// Finds the step of this process in its job's cgroup. Returns `None` if the process is in no
    /// cgroup of the job.
    pub fn of_this_process(job: &Path) -> Option<ManagedSteps> {
        let own = std::process::id().to_string();
        let has_own = |dir: &Path| {
            let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            list.lines().any(|pid| pid == own)
        };
        let mut steps = fs::read_dir(job).ok()?.flatten().map(|entry| entry.path());
        let dir = steps.find(|dir| has_own(dir) || has_own(&dir.join(OWN)))?;
        Some(ManagedSteps { dir, is_split: false })
    }

    /// Creates the cgroup of a step, for `LaunchSpec::cgroup`. `mem_mb` is its limit in MiB.
    ///
    /// # Errors
    /// Fails if the kernel refuses it.
    pub fn create(&mut self, number: u32, mem_mb: u64) -> Result<PathBuf, CgroupError> {
        if !self.is_split {
            self.split()?;
            self.is_split = true;
        }
        let dir = self.step(number);
        make(&dir)?;
        let handle = hierarchy::open(&dir);
        set_memory(&dir, controller(&handle, &dir, "memory")?, mem_mb)?;
        let group = fs::read_to_string(self.dir.join("memory.oom.group")).unwrap_or_default();
        if group.trim() == "1" {
            set(&dir, "memory.oom.group", "1")?;
        }
        Ok(dir)
    }

    /// Removes the cgroup of a step that has ended, and returns whether it ran out of memory. If the
    /// step left processes behind, its cgroup stays until the job ends.
    pub fn finish(&self, number: u32) -> bool {
        let dir = self.step(number);
        let ran_out = oom_kills(&dir) > 0;
        remove(&dir);
        ran_out
    }

    fn step(&self, number: u32) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Moves all processes into a cgroup of their own and enables limits for its siblings.
    fn split(&self) -> Result<(), CgroupError> {
        let own = self.dir.join(OWN);
        make(&own)?;
        let mut last = None;
        for _ in 0..PASSES {
            let list = self.dir.join("cgroup.procs");
            let pids = fs::read_to_string(&list).map_err(io_failed(&list, "could not be read"))?;
            // The kernel takes one PID per write. A process that has ended needs no move.
            for pid in pids.lines() {
                if let Err(e) = set(&own, "cgroup.procs", pid) {
                    last = Some(e);
                }
            }
            if pids.is_empty() {
                match enable(&self.dir, "memory") {
                    Ok(()) => return Ok(()),
                    Err(e) => last = Some(e),
                }
            }
        }
        Err(last.unwrap_or_else(|| failed(&self.dir, "its processes could not be moved")))
    }
}

/// Returns the number of OOM-killed processes of a step, without those of limited steps of a manager
/// in it.
pub(super) fn own_oom_kills(dir: &Path) -> u64 {
    let own = dir.join(OWN);
    if own.exists() {
        // Its processes were in the outer cgroup at first.
        event(dir, "memory.events.local", "oom_kill").saturating_add(oom_kills(&own))
    } else {
        oom_kills(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses plain files in place of the kernel's, and checks their contents.
    #[test]
    fn processes_move_aside_once_before_a_step_is_limited() {
        let job = tempfile::tempdir().unwrap();
        let dir = job.path().join("step_batch");
        let write = |path: &str, text: &str| fs::write(dir.join(path), text).unwrap();
        let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
        for made in ["own", "7", "8"] {
            fs::create_dir_all(dir.join(made)).unwrap();
        }
        for (path, text) in [
            ("cgroup.procs", "1\n"),
            ("own/cgroup.procs", &format!("{}\n", std::process::id())),
            ("cgroup.subtree_control", ""),
            ("memory.oom.group", "1\n"),
            ("7/memory.max", "max\n"),
            ("7/memory.oom.group", "0\n"),
            ("8/memory.max", "max\n"),
            ("8/memory.oom.group", "0\n"),
        ] {
            write(path, text);
        }
        let mut steps = ManagedSteps::of_this_process(job.path()).unwrap();
        write("own/cgroup.procs", "");
        // A plain file keeps listing the process.
        assert!(steps.create(7, 64).unwrap_err().to_string().contains("could not be moved"));
        assert_eq!(
            (read("own/cgroup.procs"), read("7/memory.max")),
            ("1\n".into(), "max\n".into())
        );
        write("cgroup.procs", "");
        assert_eq!(steps.create(7, 64).unwrap(), dir.join("7"));
        assert_eq!(read("cgroup.subtree_control"), "+memory");
        assert_eq!(read("7/memory.max"), (64 << 20).to_string());
        assert_eq!(read("7/memory.oom.group").trim(), "1");
        write("cgroup.procs", "1\n");
        steps.create(8, 1).unwrap();

        write("memory.events.local", "oom_kill 1\n");
        write("memory.events", "oom_kill 6\n");
        write("own/memory.events", "oom_kill 2\n");
        write("7/memory.events", "oom_kill 3\n");
        assert_eq!(own_oom_kills(&dir), 3);
        assert!(steps.finish(7) && !steps.finish(8));
    }

    #[test]
    fn a_process_outside_the_job_has_no_step() {
        let job = tempfile::tempdir().unwrap();
        fs::create_dir(job.path().join("step_0")).unwrap();
        fs::write(job.path().join("step_0/cgroup.procs"), "1\n").unwrap();
        assert!(ManagedSteps::of_this_process(job.path()).is_none());
        assert!(ManagedSteps::of_this_process(&job.path().join("none")).is_none());
    }
}
