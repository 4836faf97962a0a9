//! `SLOTD_CGROUP_BASE=auto`: the subtree that whoever started the daemon has given it to divide.
//!
//! ```text
//! app.slice/slotd.service                         a service: slotd-jobs.service beside it, of contrib/install.sh
//! .../daemon                                      a service with DelegateSubgroup=daemon: .../jobs
//! .../run-1234.scope                              a scope, a container: its processes move to daemon, jobs to jobs
//! /                                               the host's root: /jobs
//! ```
//!
//! The kernel lets its root have processes and limited children at a time. What is in there is of
//! the whole host, with its init, and stays where it is.
//!
//! systemd cannot start a service again whose own cgroup is divided: hence the unit beside it. Its
//! one process does nothing, and makes way like those of a scope.

use super::base::empty;
use super::{CgroupError, failed};
use crate::sys::system::reason;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The unit whose cgroup is for jobs.
const JOBS_UNIT: &str = "slotd-jobs.service";

/// Where the kernel's tree is: on hosts that mix both versions below the other.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

const MEND: &str = "install the service with contrib/install.sh --cgroup-base auto, or start the daemon with systemd-run \
                    --user --scope -p Delegate=yes slotd daemon";

/// The cgroup of this process, as a directory.
///
/// # Errors
/// There is no cgroup v2.
pub(super) fn own() -> Result<PathBuf, CgroupError> {
    let none =
        |why: &str| failed(Path::new("auto"), format_args!("this process has no cgroup v2: {why}"));
    let is_cgroup =
        |dir: &&&str| statfs(**dir).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
    let mount = MOUNTS.iter().find(is_cgroup).ok_or_else(|| none("none is mounted"))?;
    let list = fs::read_to_string("/proc/self/cgroup").map_err(|e| none(&reason(&e)))?;
    let path = list
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .ok_or_else(|| none("the kernel names none"))?;
    Ok(Path::new(mount).join(path))
}

/// The base for the jobs of a daemon that is this process.
///
/// # Errors
/// Nothing was given to it to divide.
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
        if !beside.is_dir() {
            return Err(failed(own, format_args!("{JOBS_UNIT} does not run beside it: {MEND}")));
        }
        empty(&beside)?;
        return Ok(beside.join("jobs"));
    }
    if own.file_name().is_some_and(|name| name == "daemon") && is_mine(above) {
        return Ok(above.join("jobs"));
    }
    if !is_mine(own) {
        return Err(failed(own, format_args!("the daemon may not divide it: {MEND}")));
    }
    if !is_root_of_host(own) {
        empty(own)?;
    }
    Ok(own.join("jobs"))
}

/// Every other cgroup has a type, also what a container sees as its root.
fn is_root_of_host(dir: &Path) -> bool {
    !dir.join("cgroup.type").exists()
}

/// Whether this user may divide it.
fn is_mine(dir: &Path) -> bool {
    let writable = |name: &str| access(&dir.join(name), AccessFlags::W_OK).is_ok();
    writable("cgroup.procs") && writable("cgroup.subtree_control")
}

/// Whether this process is in a directory itself, not below it.
pub(super) fn is_in(dir: &Path) -> io::Result<bool> {
    let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
    let own = std::process::id().to_string();
    Ok(procs.lines().any(|pid| pid == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_root_of_the_host_stays_there() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.procs"), "1\n").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "").unwrap();
        assert_eq!(below(root.path()).unwrap(), root.path().join("jobs"));
        assert!(!root.path().join("daemon").exists());
    }
}
