//! The submissions to other clusters on this host's disk: one file a token.
//!
//! A record is synced, with its directory, before the first connection. A lock beside it is held
//! while a process works on the submission, and ends with that process.

use crate::clusters::token::State;
use serde::{Deserialize, Serialize};
use slotd_sys::fresh::Fresh;
use slotd_sys::{files, ownership};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest record, in bytes. It contains a command line.
const MOST: u64 = 8 << 20;

/// A submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub token: String,
    pub cluster: String,
    /// When it was recorded, in seconds since 1970.
    pub at: i64,
    /// The staging directory there, as configured then.
    pub dir: String,
    /// The directory of the job below the copied work tree; `None` if it runs elsewhere.
    pub copied: Option<String>,
    /// The words of sbatch there.
    pub words: Vec<String>,
    /// The user wants the job to be held.
    #[serde(default)]
    pub hold: bool,
    pub state: State,
    /// When it was first asked for after the process that submitted it had ended, in seconds since
    /// 1970.
    #[serde(default)]
    pub doubted: Option<i64>,
    /// The end of its job, once it is known.
    #[serde(default)]
    pub end: Option<End>,
    /// The files of the ended job were fetched.
    #[serde(default)]
    pub fetched: bool,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When it ended, or when it was first found to have ended, in seconds since 1970.
    pub at: i64,
    /// The state in the words of the cluster; empty if the cluster has forgotten the job.
    pub state: String,
}

impl Record {
    /// Returns the job whose end is not known yet.
    pub fn open_job(&self) -> Option<u64> {
        match self.state {
            State::Submitted(job) if self.end.is_none() => job,
            State::Submitted(_) | State::Prepared | State::Refused | State::Unknown => None,
        }
    }

    /// Returns whether the outcome is unknown: if there is a job, and which one it is.
    pub fn is_unknown(&self) -> bool {
        match self.state {
            State::Prepared | State::Unknown | State::Submitted(None) => true,
            State::Submitted(Some(_)) | State::Refused => false,
        }
    }
}

/// The directory of the records.
#[derive(Debug, Clone)]
pub struct Journal {
    dir: PathBuf,
}

/// The right to work on a submission. It ends with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Returns whether this can be a token.
pub fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Journal {
    /// Opens the directory, and creates it if it is missing.
    ///
    /// # Errors
    /// Fails if it cannot be created, if it is a link, or if another user owns it or can write to
    /// it.
    pub fn open(dir: PathBuf) -> io::Result<Journal> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        ownership::check_own_dir(&dir)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))?;
        Ok(Journal { dir })
    }

    /// Opens the directory if it exists.
    ///
    /// # Errors
    /// Fails if it is a link, or if another user owns it or can write to it.
    pub fn existing(dir: PathBuf) -> io::Result<Option<Journal>> {
        match ownership::check_own_dir(&dir) {
            Ok(()) => Ok(Some(Journal { dir })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, token: &str) -> PathBuf {
        self.dir.join(token)
    }

    /// Writes a new record and locks it. Returns once both are on disk.
    ///
    /// # Errors
    /// Fails if the token exists or the disk fails.
    pub fn add(&self, record: &Record) -> io::Result<Lock> {
        let path = self.path(&record.token);
        let lock = self.lock_file(&record.token, true)?;
        lock.lock()?;
        let mut create = OpenOptions::new();
        let mut file = create.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        File::open(&self.dir)?.sync_all()?;
        Ok(Lock { _file: lock })
    }

    fn lock_file(&self, token: &str, is_new: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).create_new(is_new);
        files::own(&mut options, &self.dir.join(format!("{token}.lock")))
    }

    /// Locks an existing record. Returns `None` if another process works on it.
    ///
    /// # Errors
    /// Fails if the lock cannot be opened.
    pub fn lock(&self, token: &str) -> io::Result<Option<Lock>> {
        let file = self.lock_file(token, false)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Replaces a record.
    ///
    /// # Errors
    /// Fails if the disk fails. The old record is kept in that case.
    pub fn update(&self, record: &Record) -> io::Result<()> {
        let mut fresh = Fresh::new(&self.path(&record.token), 0o600)?;
        fresh.file.write_all(&serde_json::to_vec(record)?)?;
        fresh.file.sync_all()?;
        fresh.replace()?;
        self.remove_needless_lock(record);
        File::open(&self.dir)?.sync_all()
    }

    /// Deletes the lock of a record about which nothing is left to find out. The next process that
    /// needs one creates it again.
    fn remove_needless_lock(&self, record: &Record) {
        if !record.is_unknown() {
            let _ = fs::remove_file(self.dir.join(format!("{}.lock", record.token)));
        }
    }

    /// Changes a record, unless another process works on it. Returns whether it was changed.
    ///
    /// # Errors
    /// Fails if there is no record, or if the disk fails.
    pub fn change(&self, token: &str, how: impl FnOnce(&mut Record)) -> io::Result<bool> {
        let Some(_lock) = self.lock(token)? else { return Ok(false) };
        let mut record = self.read(token)?;
        let before = record.clone();
        how(&mut record);
        if record != before {
            self.update(&record)?;
        } else {
            self.remove_needless_lock(&record);
        }
        Ok(true)
    }

    /// Deletes a record that is locked, with its lock.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn remove(&self, token: &str, _lock: Lock) -> io::Result<()> {
        for path in [self.path(token), self.dir.join(format!("{token}.lock"))] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Fails if there is none, or if it cannot be read.
    pub fn read(&self, token: &str) -> io::Result<Record> {
        let bytes = files::read(&self.path(token), MOST)?;
        let record: Record = serde_json::from_slice(&bytes)?;
        if record.token == token {
            Ok(record)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it contains another token"))
        }
    }

    /// Returns all readable records, oldest first.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn all(&self) -> io::Result<Vec<Record>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let record = name.to_str().filter(|name| is_token(name)).map(|name| self.read(name));
            found.extend(record.and_then(Result::ok));
        }
        found.sort_by(|a, b| (a.at, &a.token).cmp(&(b.at, &b.token)));
        Ok(found)
    }

    /// Returns the latest submission that became this job. Clusters reuse job IDs.
    ///
    /// # Errors
    /// Fails like [`Self::all`].
    pub fn of_job(&self, cluster: &str, job: u64) -> io::Result<Option<Record>> {
        let is_it = |record: &Record| {
            record.cluster.eq_ignore_ascii_case(cluster)
                && record.state == State::Submitted(Some(job))
        };
        Ok(self.all()?.into_iter().rev().find(is_it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn record(token: &str, at: i64, state: State) -> Record {
        Record {
            token: token.to_owned(),
            cluster: "hpc".to_owned(),
            at,
            dir: "~/.slotd".to_owned(),
            copied: Some(String::new()),
            words: vec!["-n1".to_owned()],
            hold: false,
            state,
            doubted: None,
            end: None,
            fetched: false,
        }
    }

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "1123456789abcdef0123456789abcdef";

    /// Locks a record that is free. A process that another test is forking has the lock, too, until
    /// it executes its program.
    fn locked(journal: &Journal) -> Lock {
        loop {
            if let Some(lock) = journal.lock(ONE).unwrap() {
                return lock;
            }
        }
    }

    #[test]
    fn a_record_is_added_once_and_updated() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path().join("a/clusters")).unwrap();
        let mut one = record(ONE, 5, State::Prepared);
        let lock = journal.add(&one).unwrap();
        journal.add(&one).unwrap_err();
        assert!(journal.lock(ONE).unwrap().is_none());
        drop(lock);
        drop(locked(&journal));
        one.state = State::Submitted(Some(17));
        journal.update(&one).unwrap();
        assert_eq!(journal.read(ONE).unwrap(), one);
        // The cluster has reused the ID.
        let two = record(TWO, 9, State::Submitted(Some(17)));
        journal.add(&two).unwrap();
        assert_eq!(journal.of_job("HPC", 17).unwrap(), Some(two));
        assert_eq!(journal.of_job("hpc", 18).unwrap(), None);
    }

    #[test]
    fn a_record_is_changed_and_removed_unless_another_process_works_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clusters");
        assert!(Journal::existing(path.clone()).unwrap().is_none());
        let journal = Journal::open(path.clone()).unwrap();
        let lock = journal.add(&record(ONE, 5, State::Prepared)).unwrap();
        assert!(!journal.change(ONE, |record| record.fetched = true).unwrap());
        drop(lock);
        while !journal.change(ONE, |record| record.state = State::Submitted(Some(17))).unwrap() {}
        let changed = journal.read(ONE).unwrap();
        assert_eq!((changed.open_job(), changed.is_unknown()), (Some(17), false));
        let end = End { at: 9, state: "FAILED".to_owned() };
        while !journal.change(ONE, |record| record.end = Some(end.clone())).unwrap() {}
        assert_eq!(journal.read(ONE).unwrap().open_job(), None);
        let lock = locked(&journal);
        journal.remove(ONE, lock).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        journal.change(ONE, |_| {}).unwrap_err();
        // Records of earlier versions have no end.
        fs::write(
            journal.path(TWO),
            format!(
                r#"{{"token":"{TWO}","cluster":"hpc","at":5,"dir":"/d","copied":null,"words":[],"state":{{"submitted":3}}}}"#
            ),
        )
        .unwrap();
        assert_eq!(journal.read(TWO).unwrap().open_job(), Some(3));
    }

    #[test]
    fn foreign_and_strange_files_are_not_records() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path().join("clusters")).unwrap();
        fs::write(journal.path("notes"), "x").unwrap();
        fs::write(journal.path(ONE), "{").unwrap();
        nix::unistd::mkfifo(&journal.path(TWO), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(journal.all().unwrap(), []);
        symlink("/etc/passwd", journal.path(&format!("{}.lock", TWO.replace('1', "2")))).unwrap();
        journal.lock(&TWO.replace('1', "2")).unwrap_err();
        fs::set_permissions(journal.dir(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            Journal::open(journal.dir().to_owned())
                .unwrap_err()
                .to_string()
                .contains("others can write")
        );
        symlink(dir.path(), dir.path().join("link")).unwrap();
        assert!(Journal::open(dir.path().join("link")).unwrap_err().to_string().contains("link"));
    }

    #[test]
    fn tokens_are_names_without_a_path() {
        assert!(is_token(ONE));
        for bad in ["", "../../etc/passwd", &ONE[1..], &ONE.to_uppercase(), &ONE.replace('0', "/")]
        {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
