//! Why a step cannot be launched.

use crate::exec::cgroup::CgroupError;
use crate::exec::job_files::reason;
use std::io;
use std::path::{Path, PathBuf};

/// A launch that failed, in words for the user: the job's comment and srun show them.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{tasks} tasks, but {what} for {given}")]
    TaskCount { tasks: u32, what: &'static str, given: usize },
    #[error("the step has no tasks")]
    NoTasks,
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
    #[error("could not {action} {}: {}", path.display(), reason(source))]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("could not {action}: {}", reason(source))]
    System { action: &'static str, source: io::Error },
    /// The text names the CPUs.
    #[error(transparent)]
    Affinity(io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl LaunchError {
    /// For `map_err`: what could not be done with this file, such as "open".
    pub(super) fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> LaunchError {
        move |source| LaunchError::File { action, path: path.to_owned(), source }
    }

    /// For `map_err`: what the system refused to do.
    pub(super) fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> LaunchError {
        move |e| LaunchError::System { action, source: e.into() }
    }
}
