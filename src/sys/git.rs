//! Runs the host's `git` to find out how a work tree differs from its commit, and which files
//! belong to it.
//!
//! The repository may not be trustworthy, and its configuration names programs that git starts. So
//! git never sees that configuration. For each work tree, slotd creates its own repository that
//! contains only a copy of the index, the commit, and those settings that affect how files are
//! compared. Objects are read from their original location, and git writes only to slotd's
//! repository. Each run has a time limit and a maximum output size.

mod compare;
mod output;
mod run;

use crate::beneath::Dir;
use crate::files;
use crate::work_tree::Repository;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use output::entries;
use run::would_block;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wildmatch::WildMatch;

/// The maximum size of a diff in bytes. A larger one is omitted.
pub const MOST_DIFF: usize = 4 << 20;

/// The time for which git may use no CPU and do no I/O. A git without progress is waiting for a
/// FIFO in place of one of its files, or for a disk that does not respond.
pub const STALL: Duration = Duration::from_secs(20);

/// The time without progress after which a FIFO is searched for.
const SEARCH: Duration = Duration::from_secs(1);

/// The maximum size of a list of names in bytes.
const MOST_NAMES: usize = 64 << 20;

/// The maximum size of an index in bytes. The Linux sources need a hundredth of it.
const MOST_INDEX: u64 = 1 << 30;

/// The maximum size of a configuration or a list of patterns in bytes.
const MOST_SETTINGS: u64 = 1 << 20;

/// The maximum nesting depth of work trees, such as submodules of submodules.
pub const MOST_NESTED: usize = 16;

/// The directory of slotd's own repositories. If this process runs several queries at the same
/// time, the later ones append a number.
const PLACE: &str = "git";

/// Returns whether a directory of slotd's own repositories may have this name.
pub fn is_place(name: &str) -> bool {
    name.strip_prefix(PLACE).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The directories that are in use by this process.
static USED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A directory that is in use.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    name: String,
}

impl Place {
    fn take(parent: &Path) -> Place {
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut number = 0;
        loop {
            let name = if number == 0 { PLACE.to_owned() } else { format!("{PLACE}{number}") };
            let path = parent.join(&name);
            if used.insert(path.clone()) {
                return Place { path, name };
            }
            number += 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        USED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// The repository's settings that affect how the content of files is compared. git gets no others.
const COMPARING: [&str; 6] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.sparsecheckout",
    "core.symlinks",
];

/// The user's settings for globally ignored files and for line endings.
const IGNORED_EVERYWHERE: &str = "core.excludesfile";
const OF_USER: [&str; 2] = ["core.autocrlf", "core.eol"];

/// Extensions of the repository format that do not affect how the index and the objects are read.
const HARMLESS: [&str; 5] =
    ["noop", "partialclone", "preciousobjects", "relativeworktrees", "refstorage"];

/// The reason why git returned no result.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed here")]
    Missing,
    #[error("git cannot be started: {0}")]
    Start(io::Error),
    #[error("git took longer than {} seconds", .0.as_secs())]
    Late(Duration),
    #[error(
        "git has made no progress in {} for a while: a file that it reads may be a FIFO \
         (.gitignore, .git/objects), or the disk does not respond",
        .0.display()
    )]
    Stalled(PathBuf),
    #[error("{}: it is a FIFO or a device, which would block git", .0.display())]
    Blocking(PathBuf),
    #[error("git printed more than {} MB", .0 >> 20)]
    TooMuch(usize),
    #[error("{0}")]
    Failed(String),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} is not a git work tree owned by this user or root", .0.display())]
    None(PathBuf),
    #[error("the repository has the extension {0}, which slotd cannot read")]
    Extension(String),
    #[error("work trees are nested more than {MOST_NESTED} levels deep")]
    Nested,
    #[error("HEAD or its branch has an unusual format")]
    NoHead,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> GitError {
    let path = path.to_owned();
    move |error| GitError::File { path, error }
}

/// A context for running git: the time limit, and the directory of slotd's own repositories, which
/// is deleted when this is dropped.
#[derive(Debug)]
pub struct Asking {
    parent: Dir,
    place: Place,
    made: Cell<u32>,
    patience: Duration,
    until: Instant,
    steps_back: bool,
    of_user: OnceCell<Vec<OsString>>,
    left_out: Vec<WildMatch>,
    /// See [`STALL`].
    stall: Duration,
    /// See [`SEARCH`].
    search: Duration,
}

impl Asking {
    /// Creates a context in which all queries together may take `patience`. `parent` is one of
    /// slotd's own directories. No other process may use it for an `Asking` at the same time.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub fn new(parent: &Path, patience: Duration) -> Result<Asking, GitError> {
        let parent = fs::canonicalize(parent).map_err(at(parent))?;
        let place = Place::take(&parent);
        let parent = Dir::open(&parent).map_err(at(&parent))?;
        // A killed process may have left it behind.
        if let Err(error) = parent.remove_tree(Path::new(&place.name))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(at(&place.path)(error));
        }
        DirBuilder::new().mode(0o700).create(&place.path).map_err(at(&place.path))?;
        let until = Instant::now() + patience;
        Ok(Asking {
            parent,
            place,
            made: Cell::new(0),
            patience,
            until,
            steps_back: false,
            of_user: OnceCell::new(),
            left_out: Vec::new(),
            stall: STALL,
            search: SEARCH,
        })
    }

    /// Runs git with a lower priority than other processes.
    #[must_use]
    pub fn behind_others(mut self) -> Asking {
        self.steps_back = true;
        self
    }

    /// Leaves untracked files out of the answer whose absolute path matches one of these patterns.
    #[must_use]
    pub fn without(mut self, files: Vec<WildMatch>) -> Asking {
        self.left_out = files;
        self
    }

    /// Prepares git for the work tree with this top directory.
    ///
    /// # Errors
    /// Fails if it is not a work tree, if another user owns it, or if its repository has an
    /// unsupported format. Also fails like [`Git::files`].
    pub fn at(&self, top: &Path) -> Result<Git<'_>, GitError> {
        let repository = Repository::of(top).ok_or_else(|| GitError::None(top.to_owned()))?;
        // The files that git opens first. One that is deeper in the work tree is searched for when
        // git makes no progress.
        let read = [top.join(".gitignore"), top.join(".gitattributes")].into_iter().chain(
            ["info/alternates", "info/commit-graph"]
                .map(|name| repository.common.join("objects").join(name)),
        );
        if let Some(path) = read.into_iter().find(|path| would_block(path)) {
            return Err(GitError::Blocking(path));
        }
        let own = self.place.path.join(self.made.replace(self.made.get() + 1).to_string());
        for dir in [own.clone(), own.join("objects"), own.join("refs"), own.join("info")] {
            fs::create_dir(&dir).map_err(at(&dir))?;
        }
        let (top, files_at) = (top.to_owned(), top.to_owned());
        let mut git = Git { asking: self, top, files_at, repository, own, settings: Vec::new() };
        git.write("HEAD", "ref: refs/heads/none\n")?;
        git.write("config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")?;
        for name in ["info/exclude", "info/attributes"] {
            if let Ok(patterns) = files::read(&git.repository.common.join(name), MOST_SETTINGS) {
                git.write(name, patterns)?;
            }
        }
        git.settings.extend(self.of_user.get_or_init(|| git.of_user()).iter().cloned());
        git.read_settings()?;
        Ok(git)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Err(why) = self.parent.remove_tree(Path::new(&self.place.name)) {
            log::warn!("{}: {why}", self.place.path.display());
        }
    }
}

/// git for one work tree.
#[derive(Debug, Clone)]
pub struct Git<'a> {
    asking: &'a Asking,
    top: PathBuf,
    /// The directory of the files: the top directory or a copy.
    files_at: PathBuf,
    repository: Repository,
    /// slotd's own repository.
    own: PathBuf,
    /// Settings in the format of git's `-c`.
    settings: Vec<OsString>,
}

impl<'a> Git<'a> {
    /// Uses the same repository with the files of a copy.
    #[must_use]
    pub fn with_files_of(&self, copy: &Path) -> Git<'a> {
        let mut git = Git { files_at: copy.to_owned(), ..self.clone() };
        // Copied files keep their modification times, which must suffice to recognize them as
        // unchanged.
        git.settings.extend(["core.checkStat=minimal".into(), "core.trustctime=false".into()]);
        git
    }

    /// Returns when the index was written, in seconds and nanoseconds, or the epoch if it is
    /// missing.
    pub fn index_time(&self) -> (i64, i64) {
        let found = fs::metadata(self.repository.git_dir.join("index"));
        found.map_or((0, 0), |found| (found.mtime(), found.mtime_nsec()))
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<(), GitError> {
        let path = self.own.join(name);
        fs::write(&path, text).map_err(at(&path))
    }

    /// Copies the current index with its modification time, which git needs to detect files that
    /// have changed since.
    fn copy_index(&self) -> Result<(), GitError> {
        let mut left = MOST_INDEX;
        let shared =
            fs::read_dir(&self.repository.git_dir).map_err(at(&self.repository.git_dir))?.flatten();
        let shared = shared
            .map(|entry| entry.file_name())
            .filter(|name| name.as_bytes().starts_with(b"sharedindex."));
        for name in shared.chain([OsString::from("index")]) {
            let (from, to) = (self.repository.git_dir.join(&name), self.own.join(&name));
            match copy_file(&from, &to, left) {
                Ok(bytes) => left -= bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&from)(error)),
            }
        }
        Ok(())
    }

    /// Reads the relevant settings from the user's own configuration.
    fn of_user(&self) -> Vec<OsString> {
        let mut command = self.command();
        command.args(["config", "--null", "--list"]);
        let mut text = Vec::new();
        if let Err(why) = self.run(command, &mut text, MOST_SETTINGS as usize) {
            log::debug!("cannot read the user's git settings: {why}");
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let mut ignored = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        ignored = ignored
            .or_else(|| Some(home.as_ref()?.join(".config")))
            .map(|dir| dir.join("git/ignore"));
        let mut settings = Vec::new();
        for (name, value) in entries(&text) {
            if name == IGNORED_EVERYWHERE.as_bytes() {
                ignored = match (value.strip_prefix(b"~/"), &home) {
                    (Some(rest), Some(home)) => Some(home.join(OsStr::from_bytes(rest))),
                    _ => Some(PathBuf::from(OsStr::from_bytes(value))),
                };
            }
            settings.extend(setting(&OF_USER, name, value));
        }
        if let Some(patterns) = ignored.and_then(|path| files::read(&path, MOST_SETTINGS).ok()) {
            let path = self.asking.place.path.join("ignored");
            if fs::write(&path, patterns).is_ok() {
                settings.push(
                    [OsStr::new("core.excludesFile="), path.as_os_str()].join(OsStr::new("")),
                );
            }
        }
        settings
    }

    /// Reads the relevant settings from the repository's configuration, and from that of this work
    /// tree if it has one.
    fn read_settings(&mut self) -> Result<(), GitError> {
        let list = self.list_settings(&self.repository.common.join("config"))?;
        let mut has_own = false;
        for (name, value) in entries(&list) {
            self.settings.extend(setting(&COMPARING, name, value));
            let Some(extension) = name.strip_prefix(b"extensions.") else { continue };
            match (extension, value) {
                (b"objectformat", b"sha1") => {}
                (b"objectformat", b"sha256") => self.write(
                    "config",
                    "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n",
                )?,
                (b"worktreeconfig", value) => has_own = value == b"true",
                _ if HARMLESS.iter().any(|known| known.as_bytes() == extension) => {}
                _ => return Err(GitError::Extension(String::from_utf8_lossy(extension).into_owned())),
            }
        }
        if has_own {
            // Written by `git sparse-checkout`.
            let list = self.list_settings(&self.repository.git_dir.join("config.worktree"))?;
            self.settings.extend(
                entries(&list).filter_map(|(name, value)| setting(&COMPARING, name, value)),
            );
        }
        Ok(())
    }

    /// Returns the settings in a file of the repository in git's list format. A missing file has
    /// none.
    fn list_settings(&self, theirs: &Path) -> Result<Vec<u8>, GitError> {
        let text = match files::read(theirs, MOST_SETTINGS) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(theirs)(error)),
        };
        self.write("theirs", text)?;
        let file = self.own.join("theirs");
        // With these options, git includes no other file and only lists the settings.
        let words =
            ["config".as_ref(), "--file".as_ref(), file.as_os_str(), "--no-includes".as_ref()];
        self.ask(&[&words[..], &["--null".as_ref(), "--list".as_ref()]].concat(), MOST_NAMES)
    }
}

/// Copies a regular file of at most `most` bytes with its modification time. Returns its size.
fn copy_file(from: &Path, to: &Path, most: u64) -> io::Result<u64> {
    let source = files::open(from)?;
    let found = source.metadata()?;
    let target = File::create(to)?;
    let bytes = io::copy(&mut (&source).take(most.saturating_add(1)), &mut &target)?;
    if bytes > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let modified = TimeSpec::new(found.mtime(), found.mtime_nsec());
    futimens(&target, &modified, &modified)?;
    Ok(bytes)
}

/// Returns a setting in the format of `-c`, if it is known and its value is a single word.
fn setting(known: &[&str], name: &[u8], value: &[u8]) -> Option<OsString> {
    let name = known.iter().find(|known| known.as_bytes() == name)?;
    let value = std::str::from_utf8(value)
        .ok()
        .filter(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric()))?;
    Some(format!("{name}={value}").into())
}

#[cfg(test)]
mod tests {
    use super::compare::{belongs, in_parts};
    use super::output::{Status, parse_status, submodules};
    use super::run::{find_blocking, quoted};
    use super::*;
    use proptest::prelude::*;
    use slotd_model::source::Untracked;
    use std::process::Command;

    #[test]
    fn changed_and_untracked_files_are_parsed() {
        let text = b"# stash 1\x001 .M N... 100644 100644 100644 1 1 a b\0\
            2 R. N... 100644 100644 100644 1 1 R100 new\0? old\0u UU N... 1 2 3 4 5 6 7 x\0? c d\0! e\0";
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_owned()).collect();
        let expected =
            Status { changed: names(&["a b", "new", "? old", "x"]), untracked: names(&["c d"]) };
        assert_eq!(parse_status(text), expected);
        assert_eq!(parse_status(b""), Status::default());
    }

    #[test]
    fn long_lists_of_names_are_split() {
        let names: Vec<&[u8]> = vec![b"aa", b"b", b"cccc", b"d"];
        assert_eq!(in_parts(&names, 3), [&names[..2], &names[2..3], &names[3..]]);
        assert_eq!(in_parts(&names, 100), [&names[..]]);
        assert_eq!(in_parts(&[], 3), [&names[..0]; 0]);
    }

    #[test]
    fn only_known_settings_with_simple_values_are_used() {
        let list = b"core.autocrlf\ninput\0core.filemode\0core.eol\nlf\ncore.fsmonitor=x\0core.fsmonitor\n/bin/true\0";
        let taken: Vec<OsString> =
            entries(list).filter_map(|(name, value)| setting(&COMPARING, name, value)).collect();
        assert_eq!(taken, ["core.autocrlf=input", "core.filemode=true"]);
        assert_eq!(quoted(Path::new("/a:b\"\\c")), "\"/a:b\\\"\\\\c\"");
        let index = b"100644 0123 0\tfile\x00160000 0123 0\tsub\tmodule\0";
        assert_eq!(submodules(index).collect::<Vec<_>>(), [(&b"sub\tmodule"[..], &b"0123"[..])]);
    }

    proptest! {
        #[test]
        fn accepted_names_stay_out_of_repositories(name in "(/|\\.|\\.\\.|a|\\.git|\\.GiT|é| ){0,6}") {
            let path = Path::new(&name);
            if belongs(path) {
                let top = Path::new("/top");
                let full = top.join(path);
                prop_assert!(full.starts_with(top) && full != top);
                let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.to_lowercase() != ".git";
                prop_assert!(name.split('/').all(is_name));
            } else {
                let is_bad = |part: &str| ["", ".", ".."].contains(&part) || part.eq_ignore_ascii_case(".git");
                prop_assert!(name.split('/').any(is_bad));
            }
        }
    }

    /// Creates a repository in a directory that can also hold slotd's own repositories.
    fn repository() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap().join("work");
        users_git(dir.path(), &["init", "-q", "work"]);
        (dir, top)
    }

    fn users_git(at: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        let done = command.arg("-C").arg(at).args(words).status().unwrap();
        assert!(done.success());
    }

    #[test]
    fn slow_and_flooding_processes_are_killed() {
        let (dir, top) = repository();
        let alias = |text: &str| format!("alias.say=!{text}");
        let ask = |patience, words: &[&str], most| {
            let asking = Asking::new(dir.path(), patience).unwrap();
            let answer = asking.at(&top).and_then(|git| git.ask(words, most));
            drop(asking);
            assert!(!dir.path().join(PLACE).exists());
            answer
        };
        let long = Duration::from_secs(60);
        let flood = ask(long, &["-c", &alias("cat /dev/zero"), "say"], 1 << 20);
        assert!(matches!(flood, Err(GitError::TooMuch(_))), "{flood:?}");
        let late = ask(Duration::from_millis(200), &["-c", &alias("sleep 600"), "say"], 10);
        assert!(matches!(late, Err(GitError::Late(_))), "{late:?}");
        let mut asking = Asking::new(dir.path(), long).unwrap();
        (asking.stall, asking.search) = (Duration::from_millis(200), Duration::from_millis(20));
        let sleeps = ["-c", &alias("sleep 600"), "say"];
        let stalled = asking.at(&top).and_then(|git| git.ask(&sleeps, 10));
        assert!(matches!(stalled, Err(GitError::Stalled(_))), "{stalled:?}");
        asking.stall = long;
        fs::create_dir(top.join("d")).unwrap();
        nix::unistd::mkfifo(&top.join("d/.gitignore"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(top.join("d/f"), "").unwrap();
        let blocked = asking.at(&top).and_then(|git| git.files()).unwrap_err().to_string();
        let expected = top.join("d/.gitignore: it is a FIFO or a device").display().to_string();
        assert!(blocked.starts_with(&expected), "{blocked}");
        drop(asking);
        fs::rename(top.join("d/.gitignore"), top.join(".gitignore")).unwrap();
        let blocking = Asking::new(dir.path(), long).unwrap().at(&top).unwrap_err();
        assert!(matches!(blocking, GitError::Blocking(_)), "{blocking}");
        fs::remove_file(top.join(".gitignore")).unwrap();
        let failed = ask(long, &["no-such-word"], 10).unwrap_err().to_string();
        assert!(failed.starts_with("git: git: 'no-such-word'"), "{failed}");
        let none = Asking::new(dir.path(), long).unwrap().at(dir.path()).unwrap_err();
        assert!(matches!(none, GitError::None(_)), "{none}");
    }

    #[test]
    fn files_that_block_git_are_found() {
        let (_dir, top) = repository();
        let objects = top.join(".git/objects");
        let find = |most| find_blocking(&top, &objects, most);
        let fifo = |name: &str| {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            path
        };
        // git does not open these.
        for name in ["pipe", ".git/hooks/x", "sub/.git/.gitignore", "d/gitignore"] {
            fifo(name);
        }
        std::os::unix::fs::symlink("..", top.join("d/loop")).unwrap();
        assert_eq!(find(1000), None);
        for name in ["d/e/.gitignore", "d/.gitattributes", ".git/objects/ab/cd", ".gitignore"] {
            let path = fifo(name);
            assert_eq!(find(1000), Some(path.clone()));
            assert_eq!(find(0), None, "the search is limited");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn two_work_trees_can_be_queried_concurrently() {
        let (dir, top) = repository();
        fs::write(top.join("a"), "12345").unwrap();
        let patience = Duration::from_secs(60);
        let first = Asking::new(dir.path(), patience).unwrap();
        let git = first.at(&top).unwrap();
        let second = Asking::new(dir.path(), patience).unwrap();
        assert_eq!(second.at(&top).unwrap().files().unwrap(), [PathBuf::from("a")]);
        drop(second);
        assert_eq!(git.files().unwrap(), [PathBuf::from("a")]);
        drop(first);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_tree_without_a_commit_has_files_but_no_diff() {
        let (dir, top) = repository();
        for name in ["a", "b"] {
            fs::write(top.join(name), "12345").unwrap();
        }
        users_git(&top, &["add", "a"]);
        let asking = Asking::new(dir.path(), Duration::from_secs(60)).unwrap();
        let git = asking.at(&top).unwrap();
        let (source, has_diff) = git.source(&mut io::sink());
        let changes = source.changes.unwrap();
        assert_eq!((source.commit, has_diff, changes.changed), (None, false, 1));
        assert_eq!(changes.untracked_files, [Untracked { path: "b".to_owned(), bytes: Some(5) }]);
        assert_eq!(changes.left_out.as_deref(), Some("there is no commit yet"));
        assert_eq!(git.files().unwrap(), [PathBuf::from("a"), PathBuf::from("b")]);
    }

    #[test]
    fn an_unsupported_repository_format_is_refused() {
        let (dir, top) = repository();
        users_git(&top, &["config", "extensions.newHash", "true"]);
        let asking = Asking::new(dir.path(), Duration::from_secs(60)).unwrap();
        let refused = asking.at(&top).unwrap_err().to_string();
        assert_eq!(refused, "the repository has the extension newhash, which slotd cannot read");
    }
}
