//! Where things lie below the runtime root.

use crate::model::JobId;
use std::path::{Path, PathBuf};

/// The file that a daemon holds locked as long as it lives, below its root.
pub const DAEMON_LOCK: &str = "run/slotd.lock";

/// The paths of one runtime root, `SLOTD_ROOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Paths { root: root.into() }
    }

    /// `~/.local/share/slotd`, the root where none was set; `None` without a home directory.
    pub fn default_root(home: Option<&Path>) -> Option<PathBuf> {
        home.filter(|h| h.is_absolute()).map(|h| h.join(".local/share/slotd"))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Sockets and locks: gone with the machine's next start or not, it does not matter.
    pub fn run_dir(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("run/slotd.sock")
    }

    /// Held by the one daemon of this root.
    pub fn daemon_lock(&self) -> PathBuf {
        self.root.join(DAEMON_LOCK)
    }

    /// Where a daemon that was started by hand logs to.
    pub fn log(&self) -> PathBuf {
        self.root.join("run/slotd.log")
    }

    /// It exists once `sbatch` has said that memory is not enforced.
    pub fn memory_note(&self) -> PathBuf {
        self.root.join("run/memory-note")
    }

    pub fn lib_dir(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// The database.
    pub fn db(&self) -> PathBuf {
        self.root.join("lib/state.db")
    }

    /// What SQLite writes before it is in the database.
    pub fn db_log(&self) -> PathBuf {
        self.root.join("lib/state.db-wal")
    }

    /// The copy of the database that the daemon makes.
    pub fn db_backup(&self) -> PathBuf {
        self.root.join("lib/state.db.backup")
    }

    /// What the host used over time.
    pub fn host_use(&self) -> PathBuf {
        self.root.join("lib/host_use.jsonl")
    }

    /// Copies of work trees that jobs run in.
    pub fn snapshots_dir(&self) -> PathBuf {
        self.root.join("lib/snapshots")
    }

    pub fn jobs_dir(&self) -> PathBuf {
        self.root.join("lib/jobs")
    }

    /// `lib/jobs/<id>`. An array task with a record of its own has its own directory.
    pub fn job_dir(&self, id: JobId) -> PathBuf {
        self.root.join(format!("lib/jobs/{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_below_the_root() {
        let paths = Paths::new("/r");
        assert_eq!(paths.socket(), Path::new("/r/run/slotd.sock"));
        assert_eq!(paths.db(), Path::new("/r/lib/state.db"));
        assert_eq!(paths.job_dir(JobId(7)), Path::new("/r/lib/jobs/7"));
    }

    #[test]
    fn without_a_home_there_is_no_default_root() {
        assert_eq!(
            Paths::default_root(Some(Path::new("/h"))),
            Some(PathBuf::from("/h/.local/share/slotd"))
        );
        assert_eq!(Paths::default_root(Some(Path::new("rel"))), None);
        assert_eq!(Paths::default_root(None), None);
    }
}
