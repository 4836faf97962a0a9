//! `SLOTD_CGROUP_BASE=auto`: finds the cgroup subtree that was delegated to the daemon.
//!
//! ```text
//! app.slice/slotd.service                         a service: jobs go to slotd-jobs.service next to it, from contrib/install.sh
//! .../daemon                                      a service with DelegateSubgroup=daemon: .../jobs
//! .../run-1234.scope                              a scope or container: its processes move to daemon, jobs go to jobs
//! /                                               the host's root: /jobs
//! ```
//!
//! In the root of the hierarchy, the kernel allows processes and limited children at the same time.
//! Its processes belong to the whole host, init included, and are not moved.
//!
//! systemd cannot restart a service whose own cgroup has been divided, hence the separate unit. Its
//! single process does nothing and is moved like those of a scope.

use super::base::empty;
use super::{CgroupError, failed, is_cgroup, parse_key};
use nix::unistd::{AccessFlags, access};
use slotd_sys::system::reason;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The unit that provides the cgroup for jobs.
const JOBS_UNIT: &str = "slotd-jobs.service";

/// Mount points of the cgroup v2 hierarchy. On hosts that mix both versions, it is below the v1
/// one.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

const HINT: &str = "SLOTD_CGROUP_BASE=auto needs the user service of slotd install, or a daemon started with systemd-run \
                    --user --scope -p Delegate=yes slotd daemon; slotd install --cgroup-base '' turns limits off";

/// Returns the cgroup of this process, as a directory.
///
/// # Errors
/// Fails if there is no cgroup v2.
pub(super) fn own() -> Result<PathBuf, CgroupError> {
    let none =
        |why: &str| failed(Path::new("auto"), format_args!("this process has no cgroup v2: {why}"));
    let is_mount = |dir: &&&str| is_cgroup(Path::new(dir)) == Ok(true);
    let mount = MOUNTS.iter().find(is_mount).ok_or_else(|| none("none is mounted"))?;
    let list = fs::read_to_string("/proc/self/cgroup").map_err(|e| none(&reason(&e)))?;
    let path = list
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or_else(|| none("the kernel reports none"))?;
    Ok(Path::new(mount).join(path))
}

/// Returns the base for the jobs of this daemon process.
///
/// # Errors
/// Fails if no cgroup was delegated to the daemon.
pub(super) fn find() -> Result<PathBuf, CgroupError> {
    below(&own()?)
}

fn below(own: &Path) -> Result<PathBuf, CgroupError> {
    let is_named = |suffix: &str| {
        own.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(suffix.as_bytes()))
    };
    let above = own.parent().unwrap_or(Path::new("/"));
    if is_named(".service") {
        let beside = above.join(JOBS_UNIT);
        if !is_running(&beside) {
            return Err(failed(own, format_args!("{JOBS_UNIT} is not running next to it: {HINT}")));
        }
        empty(&beside)?;
        return Ok(beside.join("jobs"));
    }
    if own.file_name().is_some_and(|name| name == "daemon") && is_delegated(above) {
        return Ok(above.join("jobs"));
    }
    if !is_delegated(own) {
        return Err(failed(own, format_args!("it is not delegated to the daemon: {HINT}")));
    }
    if !is_root_of_host(own) {
        empty(own)?;
    }
    Ok(own.join("jobs"))
}

/// Returns whether the unit with this cgroup is running. While systemd starts it, the cgroup has no
/// process yet: dividing it would make the start fail with EBUSY.
fn is_running(unit: &Path) -> bool {
    fs::read_to_string(unit.join("cgroup.events"))
        .is_ok_and(|events| parse_key(&events, "populated") == Some(1))
}

/// Only the root of the host has no `cgroup.type`; the root that a container sees has one.
fn is_root_of_host(dir: &Path) -> bool {
    !dir.join("cgroup.type").exists()
}

/// Returns whether this user may create limited cgroups in it.
fn is_delegated(dir: &Path) -> bool {
    let writable = |name: &str| access(&dir.join(name), AccessFlags::W_OK).is_ok();
    writable("cgroup.procs") && writable("cgroup.subtree_control")
}

/// Returns whether this process is in the cgroup itself, as opposed to a descendant.
pub(super) fn is_in(dir: &Path) -> io::Result<bool> {
    let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
    let own = std::process::id().to_string();
    Ok(procs.lines().any(|pid| pid == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_in_the_root_cgroup_are_not_moved() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.procs"), "1\n").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "").unwrap();
        assert_eq!(below(root.path()).unwrap(), root.path().join("jobs"));
        assert!(!root.path().join("daemon").exists());
    }

    #[test]
    fn the_unit_for_jobs_is_not_divided_before_it_has_its_process() {
        let slice = tempfile::tempdir().unwrap();
        let [own, unit] = ["slotd.service", JOBS_UNIT].map(|name| slice.path().join(name));
        assert!(below(&own).is_err(), "it is not running");
        fs::create_dir(&unit).unwrap();
        fs::write(unit.join("cgroup.procs"), "").unwrap();
        fs::write(unit.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(below(&own).is_err(), "systemd is starting it");
        fs::write(unit.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert_eq!(below(&own).unwrap(), unit.join("jobs"));
    }
}
