//! The reasons why a step cannot be launched. This is the only place that decides whether the job
//! or the host is at fault.

use crate::cgroup::CgroupError;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use slotd_model::node::HostFault;
use slotd_sys::system::reason;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A failed launch. The text is for users: it appears in the job's comment and in srun's output.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{tasks} tasks, but {what} for {given}")]
    TaskCount { tasks: u32, what: &'static str, given: usize },
    #[error("the step has no tasks")]
    NoTasks,
    /// A CPU or NUMA node that is not part of the job's allocation, and those that are.
    #[error(
        "CPU binding outside of job step allocation: {what} {asked}; allocated CPUs are: {there}"
    )]
    CpusOutside { what: &'static str, asked: u32, there: String },
    #[error(
        "GPU binding outside of job step allocation: GPU {asked}; the step has {there}, counted from 0"
    )]
    GpuOutside { asked: u32, there: usize },
    #[error("there is no command to run")]
    NoCommand,
    #[error("the command contains a null byte")]
    ZeroByte,
    #[error("descriptor {0} was not passed")]
    NoDescriptor(usize),
    #[error("standard output cannot be a copy of itself")]
    OwnCopy,
    #[error("the watcher has exited")]
    NoWatcher,
    /// A file of the job: one of its streams, or its working directory.
    #[error("could not {action} {}: {}", path.display(), reason(source))]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// One of slotd's own files, below the runtime root.
    #[error("could not {action} {}: {}", path.display(), reason(source))]
    OwnFile { action: &'static str, path: PathBuf, source: io::Error },
    #[error("could not {action}: {}", reason(source))]
    System { action: &'static str, source: io::Error },
    /// The launch exceeds the maximum message size.
    #[error("the launch cannot be sent: {0}")]
    TooLarge(io::Error),
    /// The text names the operation that failed.
    #[error("the launcher could not be reached: {}", reason(.0))]
    Launcher(io::Error),
    #[error("the launcher died {0} times before it started anything")]
    LauncherDied(u32),
    /// An error that the daemon found before the launch.
    #[error("{0}")]
    Broken(String),
    /// The text names the CPUs or NUMA nodes.
    #[error(transparent)]
    Affinity(io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// The party at fault for a failed launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchFault {
    /// The host cannot start this job or any other. Launch it again later.
    Host(HostFault),
    /// Another attempt would fail in the same way. The job has failed.
    Job,
}

impl LaunchError {
    /// Returns a closure for `map_err` on operations on a file of the job. `action` is a verb, such
    /// as "open".
    pub(super) fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> LaunchError {
        move |source| LaunchError::File { action, path: path.to_owned(), source }
    }

    /// Returns a closure for `map_err` on operations on slotd's own files.
    pub(super) fn own_file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> LaunchError {
        move |source| LaunchError::OwnFile { action, path: path.to_owned(), source }
    }

    /// Returns a closure for `map_err` on system calls.
    pub(super) fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> LaunchError {
        move |e| LaunchError::System { action, source: e.into() }
    }

    /// Returns whether the job, which has this directory, or the host is at fault.
    ///
    /// A full disk under the job's own files is the host's fault only if it is the disk of the
    /// runtime root, because then no job can be launched. If it were the host's fault for every
    /// disk, a job that writes to another disk would hold up the jobs that do not. For the same
    /// reason, running out of the watcher's descriptors is the job's fault, since the job names
    /// that many files, but running out of the system's descriptors is not. A cgroup limit that
    /// cannot be set is reported to the job that requested it: nothing starts without its limits,
    /// and a retry would fail again.
    pub fn fault(&self, job_dir: &Path) -> LaunchFault {
        match self {
            LaunchError::TaskCount { .. }
            | LaunchError::NoTasks
            | LaunchError::CpusOutside { .. }
            | LaunchError::GpuOutside { .. }
            | LaunchError::NoCommand
            | LaunchError::ZeroByte
            | LaunchError::NoDescriptor(_)
            | LaunchError::OwnCopy
            | LaunchError::NoWatcher
            | LaunchError::TooLarge(_)
            | LaunchError::Broken(_)
            | LaunchError::Affinity(_)
            | LaunchError::Cgroup(_) => LaunchFault::Job,
            LaunchError::OwnFile { source, .. } | LaunchError::System { source, .. } => {
                of_host(source)
            }
            LaunchError::File { path, source, .. } => match host_fault(source) {
                Some(HostFault::Descriptors) if source.raw_os_error() == Some(libc::EMFILE) => {
                    LaunchFault::Job
                }
                Some(fault @ (HostFault::Memory | HostFault::Descriptors)) => {
                    LaunchFault::Host(fault)
                }
                Some(
                    fault @ (HostFault::Space
                    | HostFault::Quota
                    | HostFault::ReadOnly
                    | HostFault::Disk),
                ) if is_same_disk(path, job_dir)
                    && (fault != HostFault::ReadOnly || is_read_only(job_dir)) =>
                {
                    LaunchFault::Host(fault)
                }
                _ => LaunchFault::Job,
            },
            LaunchError::Launcher(source) => {
                LaunchFault::Host(host_fault(source).unwrap_or(HostFault::Launcher))
            }
            LaunchError::LauncherDied(_) => LaunchFault::Host(HostFault::Launcher),
        }
    }
}

fn of_host(source: &io::Error) -> LaunchFault {
    host_fault(source).map_or(LaunchFault::Job, LaunchFault::Host)
}

/// Returns the fault of the host that causes this system error, if any.
pub fn host_fault(error: &io::Error) -> Option<HostFault> {
    Some(match error.raw_os_error()? {
        libc::ENOSPC => HostFault::Space,
        libc::EDQUOT => HostFault::Quota,
        libc::EROFS => HostFault::ReadOnly,
        libc::EIO => HostFault::Disk,
        libc::EAGAIN => HostFault::Processes,
        libc::ENOMEM => HostFault::Memory,
        libc::EMFILE | libc::ENFILE => HostFault::Descriptors,
        _ => return None,
    })
}

/// Returns whether both paths are on the same file system. They need not exist yet.
fn is_same_disk(one: &Path, other: &Path) -> bool {
    let disk =
        |path: &Path| path.ancestors().find_map(|dir| dir.metadata().ok()).map(|meta| meta.dev());
    disk(one).is_some_and(|one| disk(other) == Some(one))
}

/// Returns whether the file system there is read-only. This depends on the mount point: the same
/// file system can be writable elsewhere.
fn is_read_only(path: &Path) -> bool {
    let there = path.ancestors().find(|dir| dir.exists());
    there.is_some_and(|dir| access(dir, AccessFlags::W_OK) == Err(Errno::EROFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_the_hosts_fault_only_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let error = |code| io::Error::from_raw_os_error(code);
        let at = |path: &Path, code| {
            LaunchError::file("open stdout file", path)(error(code)).fault(dir.path())
        };
        let host = |fault| LaunchFault::Host(fault);
        let here = dir.path().join("not/made/yet");
        let elsewhere = Path::new("/proc/self/out");
        for (code, on_root, on_another) in [
            (libc::ENOSPC, host(HostFault::Space), LaunchFault::Job),
            (libc::EDQUOT, host(HostFault::Quota), LaunchFault::Job),
            // The file is on a read-only mount, but slotd's files are not: the same file system is
            // mounted twice.
            (libc::EROFS, LaunchFault::Job, LaunchFault::Job),
            (libc::ENFILE, host(HostFault::Descriptors), host(HostFault::Descriptors)),
            (libc::EMFILE, LaunchFault::Job, LaunchFault::Job),
            (libc::ENOMEM, host(HostFault::Memory), host(HostFault::Memory)),
            (libc::EACCES, LaunchFault::Job, LaunchFault::Job),
            (libc::ENOENT, LaunchFault::Job, LaunchFault::Job),
        ] {
            assert_eq!(
                (at(&here, code), at(elsewhere, code)),
                (on_root, on_another),
                "errno {code}"
            );
        }
    }

    #[test]
    fn failures_of_slotds_own_files_are_the_hosts_fault() {
        let fault = |error: LaunchError| error.fault(Path::new("/"));
        let error = |code| io::Error::from_raw_os_error(code);
        assert_eq!(
            fault(LaunchError::system("fork")(error(libc::EAGAIN))),
            LaunchFault::Host(HostFault::Processes)
        );
        let own = LaunchError::own_file("write", Path::new("/r/script.sh"))(error(libc::ENOSPC));
        assert_eq!(fault(own), LaunchFault::Host(HostFault::Space));
        assert_eq!(
            fault(LaunchError::Launcher(error(libc::ENOENT))),
            LaunchFault::Host(HostFault::Launcher)
        );
        assert_eq!(
            fault(LaunchError::Launcher(error(libc::EMFILE))),
            LaunchFault::Host(HostFault::Descriptors)
        );
        assert_eq!(
            fault(LaunchError::system("get a controlling terminal")(error(libc::EPERM))),
            LaunchFault::Job
        );
    }
}
