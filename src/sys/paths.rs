//! The layout of the runtime root.

use crate::proc;
use slotd_model::{DEFAULT_ROOT, JobId, SOCKET};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file below its root that a running daemon keeps locked.
pub const DAEMON_LOCK: &str = "run/slotd.lock";

/// The paths below one runtime root, `SLOTD_ROOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Paths { root: root.into() }
    }

    /// Returns the default root, `~/.local/share/slotd`, or `None` without a home directory.
    pub fn default_root(home: Option<&Path>) -> Option<PathBuf> {
        home.filter(|h| h.is_absolute()).map(|h| h.join(DEFAULT_ROOT))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Sockets and locks, which need not survive a reboot.
    pub fn run_dir(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join(SOCKET)
    }

    /// The lock of the one daemon of this root.
    pub fn daemon_lock(&self) -> PathBuf {
        self.root.join(DAEMON_LOCK)
    }

    /// The log of a daemon that was started by hand.
    pub fn log(&self) -> PathBuf {
        self.root.join("run/slotd.log")
    }

    /// Exists once `sbatch` has warned that memory limits are not enforced.
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

    /// SQLite's write-ahead log.
    pub fn db_log(&self) -> PathBuf {
        self.root.join("lib/state.db-wal")
    }

    /// The daemon's backup of the database.
    pub fn db_backup(&self) -> PathBuf {
        self.root.join("lib/state.db.backup")
    }

    /// The host's use over time.
    pub fn host_use(&self) -> PathBuf {
        self.root.join("lib/host_use.jsonl")
    }

    /// The work tree snapshots that jobs run in.
    pub fn snapshots_dir(&self) -> PathBuf {
        self.root.join("lib/snapshots")
    }

    pub fn jobs_dir(&self) -> PathBuf {
        self.root.join("lib/jobs")
    }

    /// Returns `lib/jobs/<id>`. An array task with its own record has its own directory.
    pub fn job_dir(&self, id: JobId) -> PathBuf {
        self.root.join(format!("lib/jobs/{id}"))
    }
}

/// Returns whether a process belongs to this root, given the path in its environment or command
/// line. The path may lead there through links. The path is examined only for processes of this
/// user: others could name a file system that does not respond, or one that is mounted on access.
pub fn is_root_of(pid: i32, named: &Path, root: &Path) -> bool {
    named == root || proc::is_own(pid) && is_same_dir(named, root)
}

/// Returns whether two absolute paths lead to the same directory, through any links. A directory
/// that does not exist is known by its path alone.
pub fn is_same_dir(one: &Path, other: &Path) -> bool {
    let directory = |path: &Path| {
        let found = fs::metadata(path).ok().filter(|_| path.is_absolute());
        found.map(|found| (found.dev(), found.ino()))
    };
    one == other || directory(one).is_some_and(|found| directory(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn paths_named_by_processes_of_other_users_are_not_examined() {
        let place = tempfile::tempdir().unwrap();
        let (root, link) = (place.path().join("root"), place.path().join("link"));
        fs::create_dir(&root).unwrap();
        symlink(&root, &link).unwrap();
        let own = std::process::id().cast_signed();
        assert!(is_root_of(own, &root, &root) && is_root_of(own, &link, &root));
        // Root can become another user, and the first process is root's.
        let mut other = Command::new("sleep");
        other.arg("infinity").env_clear();
        let mut other = nix::unistd::geteuid()
            .is_root()
            .then(|| other.uid(65_534).gid(65_534).spawn().expect("a process of another user"));
        let pid = other.as_ref().map_or(1, |other| other.id().cast_signed());
        assert!(is_root_of(pid, &root, &root), "its path alone is enough");
        assert!(!is_root_of(pid, &link, &root));
        if let Some(other) = &mut other {
            other.kill().unwrap();
            other.wait().unwrap();
        }
        assert!(!is_root_of(i32::MAX, &link, &root), "a process that does not exist");
    }

    #[test]
    fn links_to_a_root_name_the_same_root() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("real/root")).unwrap();
        fs::create_dir_all(at("real/other")).unwrap();
        symlink("real", at("parent")).unwrap();
        symlink(at("real/root"), at("root")).unwrap();
        for same in ["real/root", "parent/root", "root", "real/../parent/root"] {
            assert!(is_same_dir(&at(same), &at("real/root")), "{same}");
            assert!(is_same_dir(&at("real/root"), &at(same)), "{same}");
        }
        for another in ["real/other", "real", "none"] {
            assert!(!is_same_dir(&at(another), &at("root")), "{another}");
        }
        assert!(is_same_dir(&at("none"), &at("none")), "a deleted root");
        assert!(!is_same_dir(&at("none"), &at("none too")));
        assert!(!is_same_dir(Path::new("."), &std::env::current_dir().unwrap()), "a relative path");
    }

    #[test]
    fn paths_are_below_the_root() {
        let paths = Paths::new("/r");
        assert_eq!(paths.socket(), Path::new("/r/run/slotd.sock"));
        assert_eq!(paths.db(), Path::new("/r/lib/state.db"));
        assert_eq!(paths.job_dir(JobId(7)), Path::new("/r/lib/jobs/7"));
    }

    #[test]
    fn the_default_root_requires_a_home_directory() {
        assert_eq!(
            Paths::default_root(Some(Path::new("/h"))),
            Some(PathBuf::from("/h/.local/share/slotd"))
        );
        assert_eq!(Paths::default_root(Some(Path::new("rel"))), None);
        assert_eq!(Paths::default_root(None), None);
    }
}
