//! Why the daemon did not start.

use crate::daemon::database;
use crate::daemon::detached::InsideJob;
use crate::daemon::settings::SettingError;
use crate::daemon::site::SiteError;
use crate::daemon::sources::SourcesError;
use crate::store::StoreError;
use crate::sys::aside::Unfinished;
use crate::sys::paths::Paths;
use std::fmt;
use std::path::PathBuf;

/// Why the daemon did not start, or went down.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    SettingsFile(#[from] SourcesError),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("another daemon serves {} already: stop it, or choose another SLOTD_ROOT", .0.display())]
    AlreadyRunning(PathBuf),
    #[error(transparent)]
    InsideJob(#[from] InsideJob),
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// What was being done, and what went wrong.
    #[error("{0}: {1}")]
    Start(String, String),
}

impl DaemonError {
    /// The exit code: 78 (`EX_CONFIG` of sysexits.h) where another start with the same settings is
    /// in vain, for `RestartPreventExitStatus=`.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Setting(_)
            | DaemonError::SettingsFile(_)
            | DaemonError::Site(_)
            | DaemonError::InsideJob(_) => 78,
            DaemonError::AlreadyRunning(_)
            | DaemonError::Unfinished(_)
            | DaemonError::Start(..) => 1,
        }
    }
}

/// Makes an error of what went wrong with `what`.
pub fn failed<E: fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> DaemonError {
    let what = what.into();
    move |e| DaemonError::Start(what, e.to_string())
}

/// Makes an error of what is wrong with the database, with what to do where it is damaged.
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
