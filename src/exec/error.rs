//! Why a step cannot be launched, and whether the job or the host is to blame: the one place that
//! decides it.

use crate::exec::cgroup::CgroupError;
use crate::model::node::HostFault;
use crate::sys::system::reason;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A launch that failed, in words for the user: the job's comment and srun show them.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{tasks} tasks, but {what} for {given}")]
    TaskCount { tasks: u32, what: &'static str, given: usize },
    #[error("the step has no tasks")]
    NoTasks,
    /// Of the job: which CPU or NUMA node, and what the job has.
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
    #[error("the command holds a zero byte")]
    ZeroByte,
    #[error("descriptor {0} was not handed over")]
    NoDescriptor(usize),
    #[error("standard output cannot be its own copy")]
    OwnCopy,
    #[error("the watcher is gone")]
    NoWatcher,
    /// A file of the job: its streams, its working directory.
    #[error("could not {action} {}: {}", path.display(), reason(source))]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// A file that slotd needs for itself, below its runtime root.
    #[error("could not {action} {}: {}", path.display(), reason(source))]
    OwnFile { action: &'static str, path: PathBuf, source: io::Error },
    #[error("could not {action}: {}", reason(source))]
    System { action: &'static str, source: io::Error },
    /// It is larger than what can be handed over.
    #[error("the launch cannot be handed over: {0}")]
    TooLarge(io::Error),
    /// The text names what failed.
    #[error("the launcher could not be reached: {}", reason(.0))]
    Launcher(io::Error),
    #[error("the launcher died {0} times before it had started anything")]
    LauncherDied(u32),
    /// Found by the daemon before the launch.
    #[error("{0}")]
    Broken(String),
    /// The text names the CPUs.
    #[error(transparent)]
    Affinity(io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Whose fault it is that a launch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchFault {
    /// The host cannot start this job or any other: it is to be tried again.
    Host(HostFault),
    /// Another try would meet the same: the job has failed.
    Job,
}

impl LaunchError {
    /// For `map_err`: what could not be done with this file of the job, such as "open".
    pub(super) fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> LaunchError {
        move |source| LaunchError::File { action, path: path.to_owned(), source }
    }

    /// For `map_err`: what could not be done with this file of slotd's own.
    pub(super) fn own_file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> LaunchError {
        move |source| LaunchError::OwnFile { action, path: path.to_owned(), source }
    }

    /// For `map_err`: what the system refused to do.
    pub(super) fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> LaunchError {
        move |e| LaunchError::System { action, source: e.into() }
    }

    /// Whose fault it is, of a job with this directory.
    ///
    /// A full disk under the job's own files is the host's fault only where it is the disk of the
    /// runtime root: no job could be launched then. One that writes to another disk would hold up
    /// all that do not. For the same reason descriptors that a watcher lacks are the job's fault,
    /// which names that many files, and those that the whole system lacks are not. That a limit on
    /// a cgroup cannot be set is told to the job that asked for it: nothing is started without its
    /// limits, and it would not be started later.
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

/// What the host lacks where the system refused something with this error.
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

/// Whether both lie, or would lie, on the same file system.
fn is_same_disk(one: &Path, other: &Path) -> bool {
    let disk =
        |path: &Path| path.ancestors().find_map(|dir| dir.metadata().ok()).map(|meta| meta.dev());
    disk(one).is_some_and(|one| disk(other) == Some(one))
}

/// Whether nothing can be written there. A file system can be read-only at one of the places where
/// it is mounted.
fn is_read_only(path: &Path) -> bool {
    let there = path.ancestors().find(|dir| dir.exists());
    there.is_some_and(|dir| access(dir, AccessFlags::W_OK) == Err(Errno::EROFS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_the_hosts_fault_where_it_is_that_of_the_root() {
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
            // Read-only where the file is, and not where slotd's are: a mount of the same file
            // system.
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
    fn what_slotd_needs_for_itself_is_the_hosts_to_give() {
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
