//! The submissions to other clusters on this host's disk: one file per token.
//!
//! A record is synced, with its directory, before the first connection. A lock beside it is held
//! while a process works on the submission, and ends with that process.

use crate::clusters::config::{Cluster, Link};
use crate::clusters::token::State;
use serde::{Deserialize, Serialize};
use slotd_sys::beneath::Dir;
use slotd_sys::fresh::{Fresh, place_of};
use slotd_sys::{files, ownership};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The largest record, in bytes. It contains a command line.
const MOST: u64 = 8 << 20;

/// A submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub token: String,
    /// The name of the cluster then.
    pub cluster: String,
    /// The cluster itself; `None` in records of earlier versions.
    #[serde(default)]
    pub link: Option<Link>,
    /// When it was recorded, in seconds since 1970.
    pub at: i64,
    /// The staging directory there, as configured then.
    pub dir: String,
    /// The directory of the job below the copied work tree; `None` if it runs elsewhere.
    pub copied: Option<String>,
    /// The command line of sbatch on the cluster.
    pub words: Vec<String>,
    /// The user wants the job to be held.
    #[serde(default)]
    pub hold: bool,
    pub state: State,
    /// When its outcome was first queried after the submitting process had ended, in seconds since
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
    /// The state as the cluster named it; empty if the cluster has forgotten the job.
    pub state: String,
}

/// The submission behind a job, as far as this host knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// This host submitted the job to this cluster.
    Here(&'a Record),
    /// This host submitted a job with this ID to another cluster, which had the name then.
    Moved(&'a Record),
    Unrecorded,
}

/// Returns the latest submission that became this job. Clusters reuse job IDs.
pub fn origin<'a>(records: &'a [Record], cluster: &Cluster, job: u64) -> Origin<'a> {
    let jobs = || records.iter().rev().filter(|record| record.state == State::Submitted(Some(job)));
    match jobs().find(|record| record.is_at(cluster)) {
        Some(record) => Origin::Here(record),
        None => match jobs().find(|record| record.is_named(&cluster.name)) {
            Some(record) => Origin::Moved(record),
            None => Origin::Unrecorded,
        },
    }
}

impl Record {
    /// Returns whether it was submitted to this cluster, whatever its name is now.
    pub fn is_at(&self, cluster: &Cluster) -> bool {
        match &self.link {
            Some(link) => *link == cluster.link,
            None => self.is_named(&cluster.name),
        }
    }

    /// Returns whether the cluster had this name then.
    pub fn is_named(&self, name: &str) -> bool {
        self.cluster.eq_ignore_ascii_case(name)
    }

    /// Returns the job whose end is not known yet.
    pub fn open_job(&self) -> Option<u64> {
        match self.state {
            State::Submitted(job) if self.end.is_none() => job,
            State::Submitted(_) | State::Prepared | State::Refused | State::Unknown => None,
        }
    }

    /// Returns whether it is unknown if there is a job, or which job it is.
    pub fn is_unknown(&self) -> bool {
        match self.state {
            State::Prepared | State::Unknown | State::Submitted(None) => true,
            State::Submitted(Some(_)) | State::Refused => false,
        }
    }
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub token: String,
    pub path: PathBuf,
    pub why: String,
}

/// The files of processes that were killed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub count: u64,
    /// Those that cannot be deleted, with the reason.
    pub kept: Vec<(PathBuf, String)>,
}

/// A file of a process that was killed, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The directory for git's use.
    Git,
    /// A record that has not reached its place.
    Unfinished,
    Lock,
}

fn leftover(name: &str) -> Option<(&str, Kind)> {
    let (token, kind) = name.split_once('.').filter(|(token, _)| is_token(token))?;
    match kind {
        "git" => Some((token, Kind::Git)),
        "lock" => Some((token, Kind::Lock)),
        _ => (place_of(name) == Some(token)).then_some((token, Kind::Unfinished)),
    }
}

/// Checks a leftover, and deletes it unless this is a trial.
fn remove(dir: &Dir, name: &Path, kind: Kind, deletes: bool) -> io::Result<()> {
    let found = dir.metadata(name)?;
    let is_as_made = if kind == Kind::Git { found.is_dir() } else { found.is_file() };
    let user = nix::unistd::geteuid().as_raw();
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !is_as_made {
        return refused("something else is in its place");
    }
    if found.uid() != user {
        return refused("it belongs to another user");
    }
    match kind {
        _ if !deletes => Ok(()),
        Kind::Git => dir.remove_tree(name).map(drop),
        Kind::Unfinished | Kind::Lock => dir.remove_file(name),
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

    /// Locks a new token. Until it has a record, [`Self::leftovers`] deletes its files once this
    /// process has ended.
    ///
    /// # Errors
    /// Fails if the token exists or the disk fails.
    pub fn claim(&self, token: &str) -> io::Result<Lock> {
        let file = self.lock_file(token, OpenOptions::new().create_new(true))?;
        file.lock()?;
        Ok(Lock { _file: file })
    }

    /// Deletes the lock of a token that got no record.
    pub fn abandon(&self, token: &str, _lock: Lock) {
        let _ = fs::remove_file(self.dir.join(format!("{token}.lock")));
    }

    /// Writes a new record, whole or not at all. Returns once it is on disk.
    ///
    /// # Errors
    /// Fails if the record exists or the disk fails. The token is abandoned in that case.
    pub fn add(&self, record: &Record, lock: Lock) -> io::Result<Lock> {
        let write = || {
            let mut fresh = Fresh::new(&self.path(&record.token), 0o600)?;
            fresh.file.write_all(&serde_json::to_vec(record)?)?;
            fresh.file.sync_all()?;
            fresh.put()?;
            File::open(&self.dir)?.sync_all()
        };
        match write() {
            Ok(()) => Ok(lock),
            Err(error) => {
                self.abandon(&record.token, lock);
                Err(error)
            }
        }
    }

    fn lock_file(&self, token: &str, options: &mut OpenOptions) -> io::Result<File> {
        files::own(options.write(true), &self.dir.join(format!("{token}.lock")))
    }

    /// Locks an existing record. Returns `None` if another process works on it.
    ///
    /// # Errors
    /// Fails if the lock cannot be opened.
    pub fn lock(&self, token: &str) -> io::Result<Option<Lock>> {
        Journal::try_lock(self.lock_file(token, OpenOptions::new().create(true))?)
    }

    /// Like [`Self::lock`], but fails with `NotFound` if there is no lock.
    fn existing_lock(&self, token: &str) -> io::Result<Option<Lock>> {
        Journal::try_lock(self.lock_file(token, &mut OpenOptions::new())?)
    }

    fn try_lock(file: File) -> io::Result<Option<Lock>> {
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

    /// Deletes the lock of a record whose outcome is known. The next process that needs a lock
    /// creates it again.
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
        let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        if bytes.is_empty() {
            return Err(damaged("it is empty".to_owned()));
        }
        let record: Record = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(format!("it is incomplete or damaged: {error}")))?;
        if record.token == token {
            Ok(record)
        } else {
            Err(damaged("it contains another token".to_owned()))
        }
    }

    /// Returns all readable records, oldest first.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn all(&self) -> io::Result<Vec<Record>> {
        Ok(self.list()?.0)
    }

    /// Returns all readable records, oldest first, and the others.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn list(&self) -> io::Result<(Vec<Record>, Vec<Broken>)> {
        let (mut found, mut broken) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let Some(token) = name.to_str().filter(|name| is_token(name)) else { continue };
            match self.read(token) {
                Ok(record) => found.push(record),
                // It was deleted meanwhile.
                Err(_) if fs::symlink_metadata(self.path(token)).is_err() => {}
                Err(error) => broken.push(self.broken(token, &error)),
            }
        }
        found.sort_by(|a, b| (a.at, &a.token).cmp(&(b.at, &b.token)));
        broken.sort_by(|a, b| a.token.cmp(&b.token));
        Ok((found, broken))
    }

    /// Describes a record that [`Self::read`] could not read.
    pub fn broken(&self, token: &str, error: &io::Error) -> Broken {
        Broken { token: token.to_owned(), path: self.path(token), why: error.to_string() }
    }

    /// Finds the files of processes that were killed: directories for git (`TOKEN.git`), unfinished
    /// records (`TOKEN.NUMBER`), and locks without a record. With `deletes`, deletes those that no
    /// process has locked. Never follows a link.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn leftovers(&self, deletes: bool) -> io::Result<Leftovers> {
        let dir = Dir::open(&self.dir)?;
        let mut found: BTreeMap<String, Vec<(PathBuf, Kind)>> = BTreeMap::new();
        for name in dir.names()? {
            if let Some((token, kind)) = name.to_str().and_then(leftover) {
                found.entry(token.to_owned()).or_default().push((PathBuf::from(&name), kind));
            }
        }
        let mut all = Leftovers::default();
        for (token, mut files) in found {
            let has_record = fs::symlink_metadata(self.path(&token)).is_ok();
            files.retain(|(_, kind)| *kind != Kind::Lock || !has_record);
            if files.is_empty() {
                continue;
            }
            let lock = if deletes { self.lock(&token) } else { self.existing_lock(&token) };
            let lock = match lock {
                Ok(Some(lock)) => Some(lock),
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    let name = self.dir.join(format!("{token}.lock"));
                    all.kept.push((name, error.to_string()));
                    continue;
                }
            };
            for (name, kind) in files {
                match remove(&dir, &name, kind, deletes) {
                    Ok(()) => all.count += 1,
                    Err(error) => all.kept.push((self.dir.join(name), error.to_string())),
                }
            }
            if let Some(lock) = lock.filter(|_| deletes && !has_record) {
                self.abandon(&token, lock);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::config;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn record(token: &str, at: i64, state: State) -> Record {
        Record {
            token: token.to_owned(),
            cluster: "hpc".to_owned(),
            link: None,
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
    const OTHER: &str = "aa23456789abcdef0123456789abcdef";

    fn add(journal: &Journal, record: &Record) -> io::Result<Lock> {
        let lock = journal.claim(&record.token)?;
        journal.add(record, lock)
    }

    fn cluster(name: &str, host: &str) -> Cluster {
        let file = format!("[[cluster]]\nname = \"{name}\"\nssh = \"{host}\"\n");
        config::parse(&file).unwrap().remove(0)
    }

    #[test]
    fn a_job_belongs_to_the_cluster_itself_and_not_to_its_name() {
        let submitted = |token, at, host: Option<&str>| Record {
            link: host.map(|host| Link::Ssh(host.to_owned())),
            ..record(token, at, State::Submitted(Some(17)))
        };
        let old = submitted(ONE, 5, Some("old"));
        let all = [old.clone()];
        assert_eq!(origin(&all, &cluster("hpc", "old"), 17), Origin::Here(&old));
        assert_eq!(origin(&all, &cluster("renamed", "old"), 17), Origin::Here(&old));
        assert_eq!(origin(&all, &cluster("HPC", "new"), 17), Origin::Moved(&old));
        assert_eq!(origin(&all, &cluster("other", "new"), 17), Origin::Unrecorded);
        // The new cluster has its own job with this ID, which may be the earlier one.
        let new = submitted(TWO, 4, Some("new"));
        let all = [new.clone(), old.clone()];
        assert_eq!(origin(&all, &cluster("hpc", "new"), 17), Origin::Here(&new));
        // An earlier version did not record the host.
        let unnamed = submitted(ONE, 5, None);
        let all = [unnamed.clone()];
        assert_eq!(origin(&all, &cluster("hpc", "any"), 17), Origin::Here(&unnamed));
        let local = serde_json::to_string(&Link::Local("/opt/slurm/bin".into())).unwrap();
        assert_eq!(local, r#"{"local":"/opt/slurm/bin"}"#);
    }

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
        let lock = add(&journal, &one).unwrap();
        add(&journal, &one).unwrap_err();
        assert!(journal.lock(ONE).unwrap().is_none());
        drop(lock);
        drop(locked(&journal));
        one.state = State::Submitted(Some(17));
        journal.update(&one).unwrap();
        assert_eq!(journal.read(ONE).unwrap(), one);
        // The cluster has reused the ID.
        let two = record(TWO, 9, State::Submitted(Some(17)));
        add(&journal, &two).unwrap();
        let (all, hpc) = (journal.all().unwrap(), cluster("HPC", "login"));
        assert_eq!(origin(&all, &hpc, 17), Origin::Here(&two));
        assert_eq!(origin(&all, &hpc, 18), Origin::Unrecorded);
    }

    #[test]
    fn a_record_is_changed_and_removed_unless_another_process_works_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clusters");
        assert!(Journal::existing(path.clone()).unwrap().is_none());
        let journal = Journal::open(path.clone()).unwrap();
        let lock = add(&journal, &record(ONE, 5, State::Prepared)).unwrap();
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
        fs::write(journal.path(OTHER), "").unwrap();
        let broken = journal.list().unwrap().1;
        let [one, two, other] = broken.as_slice() else { panic!("{broken:?}") };
        assert_eq!(one.path, journal.path(ONE));
        assert!(one.why.starts_with("it is incomplete or damaged: EOF"), "{one:?}");
        assert_eq!((two.token.as_str(), two.why.as_str()), (TWO, "it is not a regular file"));
        assert_eq!(other.why, "it is empty");
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
    fn a_record_that_does_not_fit_on_the_disk_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path().join("clusters")).unwrap();
        let one = record(ONE, 5, State::Prepared);
        let lock = journal.claim(ONE).unwrap();
        fs::create_dir(journal.path(ONE)).unwrap();
        journal.add(&one, lock).unwrap_err();
        fs::remove_dir(journal.path(ONE)).unwrap();
        assert_eq!(fs::read_dir(journal.dir()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_killed_processes_are_deleted_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path().join("clusters")).unwrap();
        let at = |name: String| journal.dir().join(name);
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        // A submission that was killed while git listed the work tree, and one that is in progress.
        for token in [ONE, TWO] {
            fs::create_dir(at(format!("{token}.git"))).unwrap();
            fs::write(at(format!("{token}.git/index")), "").unwrap();
            symlink(&precious, at(format!("{token}.git/link"))).unwrap();
        }
        fs::write(at(format!("{ONE}.lock")), "").unwrap();
        let working = journal.claim(TWO).unwrap();
        // Other things under such names: a link, a file, a FIFO, a name with more in it.
        let odd = [("2", "git"), ("3", "git"), ("4", "77"), ("5", "git.old"), ("6", "lock")];
        let odd = odd.map(|(digit, kind)| at(format!("{}.{kind}", ONE.replace('0', digit))));
        symlink(&precious, &odd[0]).unwrap();
        fs::write(&odd[1], "").unwrap();
        nix::unistd::mkfifo(&odd[2], nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(&odd[3]).unwrap();
        symlink(precious.join("file"), &odd[4]).unwrap();
        // A record keeps its lock, and loses what was not finished.
        drop(add(&journal, &record(OTHER, 5, State::Unknown)).unwrap());
        fs::write(at(format!("{OTHER}.123")), "{").unwrap();
        let before = names(journal.dir());
        // A process that another test is forking may have a lock, too.
        let found = loop {
            let found = journal.leftovers(false).unwrap();
            if found.count >= 3 {
                break found;
            }
        };
        assert_eq!((found.count, found.kept.len()), (3, 4), "{found:?}");
        assert_eq!(names(journal.dir()), before);
        let is_left = |name: &&String| !name.starts_with(ONE) && !name.ends_with(".123");
        let left: Vec<&String> = before.iter().filter(is_left).collect();
        while names(journal.dir()).len() > left.len() {
            assert_eq!(journal.leftovers(true).unwrap().kept, found.kept);
        }
        assert_eq!(names(journal.dir()).iter().collect::<Vec<_>>(), left);
        assert!(odd.iter().all(|path| path.symlink_metadata().is_ok()));
        assert_eq!(names(&precious), ["file"]);
        drop(working);
        while at(format!("{TWO}.git")).exists() {
            journal.leftovers(true).unwrap();
        }
        assert!(!at(format!("{TWO}.lock")).exists());
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
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
