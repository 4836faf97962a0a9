//! Errors of the daemon.

use crate::daemon::database;
use crate::daemon::detached::InsideJob;
use crate::daemon::settings::SettingError;
use crate::daemon::site::SiteError;
use crate::daemon::sources::SourcesError;
use slotd_model::counted;
use slotd_store::StoreError;
use slotd_sys::aside::Unfinished;
use slotd_sys::paths::Paths;
use std::fmt;
use std::path::PathBuf;

/// The reason why the daemon did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    SettingsFile(#[from] SourcesError),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("another daemon is already using {}: stop it, or choose another SLOTD_ROOT", .0.display())]
    AlreadyRunning(PathBuf),
    #[error(transparent)]
    InsideJob(#[from] InsideJob),
    #[error(
        "the limit on open files is {limit}, and the daemon needs {least}: raise it with `ulimit -n`, or LimitNOFILE= of its unit"
    )]
    Descriptors { limit: u64, least: u64 },
    #[error(
        "{} is missing, but {} may be running: move it back, or create an empty one to give them up",
        .dir.display(), counted(*.running, "job")
    )]
    NoJobsDir { dir: PathBuf, running: usize },
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// A message such as `cannot open the socket`, and its cause.
    #[error("{0}: {1}")]
    Start(String, String),
}

impl DaemonError {
    /// Returns the exit code. It is 78 (`EX_CONFIG` in sysexits.h) if a restart with the same
    /// settings would fail again, for `RestartPreventExitStatus=`.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Setting(_)
            | DaemonError::SettingsFile(_)
            | DaemonError::Site(_)
            | DaemonError::NoJobsDir { .. }
            | DaemonError::Descriptors { .. }
            | DaemonError::InsideJob(_) => 78,
            DaemonError::AlreadyRunning(_)
            | DaemonError::Unfinished(_)
            | DaemonError::Start(..) => 1,
        }
    }
}

/// Wraps an error in the message `what`, such as `cannot open the socket`.
pub fn failed<E: fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> DaemonError {
    let what = what.into();
    move |e| DaemonError::Start(what, e.to_string())
}

/// Wraps an error about the database, with the remedy if it is damaged.
pub fn unusable(paths: &Paths) -> impl Fn(StoreError) -> DaemonError {
    move |error| {
        let what = paths.db().display().to_string();
        let text = if error.is_damage() {
            database::advice(paths, &error.to_string())
        } else {
            error.to_string()
        };
        DaemonError::Start(what, text)
    }
}
