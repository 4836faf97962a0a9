//! Runs the host's `git` to find out how a work tree differs from its commit, and which files
//! belong to it.
//!
//! The repository may not be trustworthy, and its configuration names programs that git starts. So
//! git never sees that configuration. For each work tree, slotd creates its own repository that
//! contains only a copy of the index, the commit, and those settings that affect how files are
//! compared. Objects are read from their original location, and git writes only to slotd's
//! repository. Each run has a time limit and a maximum output size.

use crate::beneath::{self, Dir};
use crate::work_tree::{Head, MOST_PACKED, Repository};
use crate::{files, guard, proc};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use slotd_model::source::{Changes, Source, Untracked};
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

/// The maximum number of directory entries to search.
const MOST_SEARCHED: usize = 200_000;

/// The maximum size in bytes of a file to diff. git reads such a file completely, and compresses
/// binary ones.
const MOST_DIFFED: u64 = 64 << 20;

/// The maximum size of a list of names in bytes.
const MOST_NAMES: usize = 64 << 20;

/// The maximum size of an index in bytes. The Linux sources need a hundredth of it.
const MOST_INDEX: u64 = 1 << 30;

/// The maximum size of a configuration or a list of patterns in bytes.
const MOST_SETTINGS: u64 = 1 << 20;

/// The maximum number of untracked files that are listed.
const MOST_UNTRACKED: usize = 1000;

/// The maximum size of git's error output that is kept, in bytes.
const MOST_WORDS: usize = 4096;

/// The memory limit of git in bytes. A list of object directories that links to /dev/zero is
/// endless.
const MOST_MEMORY: u64 = 2 << 30;

/// The maximum total length in bytes of the file names passed to one git process.
const MOST_ARGUMENTS: usize = 256 << 10;

/// The maximum nesting depth of work trees, such as submodules of submodules.
pub const MOST_NESTED: usize = 16;

/// The niceness of work that gives way to jobs. If jobs use all CPUs, it still gets a tenth of one
/// CPU (weight 110 versus 1024, sched(7)). With niceness 19, it got a seventieth, and a diff of a
/// few megabytes did not finish in time.
const BEHIND_JOBS: i32 = 10;

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

/// The reason why there is no diff.
#[derive(Debug, thiserror::Error)]
enum NoDiff {
    #[error("there is no commit yet")]
    NoCommit,
    #[error("{file} is larger than {} MB", MOST_DIFFED >> 20)]
    LargeFile { file: String },
    #[error("it is larger than {} MB", MOST_DIFF >> 20)]
    TooMuch,
    #[error("it is only in the index or in submodules")]
    Elsewhere,
    #[error(transparent)]
    Git(#[from] GitError),
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

/// The output of git.
struct Printed {
    /// The number of bytes on standard output.
    length: usize,
    /// Warnings and errors.
    words: String,
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

    /// Returns a git command without environment variables that redirect git or make it write a
    /// trace.
    fn command(&self) -> Command {
        let mut command = Command::new("git");
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        command.env("GIT_DIR", &self.own).env("LC_ALL", "C").arg("--no-pager");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }

    /// Runs git and returns its output of at most `most` bytes. git sees no configuration except
    /// its own, fetches nothing, and writes nothing to the work tree or its repository.
    ///
    /// # Errors
    /// See [`GitError`]. On failure, git and its descendants have been killed.
    fn ask<S: AsRef<OsStr>>(&self, words: &[S], most: usize) -> Result<Vec<u8>, GitError> {
        let mut text = Vec::new();
        self.ask_into(words, &mut text, most)?;
        Ok(text)
    }

    /// Like [`Self::ask`], but writes the output to a sink.
    fn ask_into<S: AsRef<OsStr>>(
        &self,
        words: &[S],
        to: &mut dyn Write,
        most: usize,
    ) -> Result<Printed, GitError> {
        let mut command = self.command();
        command.envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", ""),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
        ]);
        // Before git 2.32, only these variables determine the global configuration.
        command
            .env("HOME", &self.asking.place.path)
            .env("XDG_CONFIG_HOME", &self.asking.place.path);
        command.env("GIT_WORK_TREE", &self.files_at);
        command.env(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            quoted(&self.repository.common.join("objects")),
        );
        command.arg("-C").arg(&self.files_at);
        for setting in &self.settings {
            command.arg("-c").arg(setting);
        }
        command.args(words);
        self.run(command, to, most)
    }

    fn run(
        &self,
        mut command: Command,
        to: &mut dyn Write,
        most: usize,
    ) -> Result<Printed, GitError> {
        // Nothing else would kill a git that waits for a FIFO, because it has its own process
        // group.
        guard::end_with_thread(&mut command);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GitError::Missing,
            _ => GitError::Start(error),
        })?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        if self.asking.steps_back {
            // SAFETY: a system call with numbers. If it fails, git keeps its normal priority.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, child.id(), BEHIND_JOBS) };
        }
        let limit = libc::rlimit { rlim_cur: MOST_MEMORY, rlim_max: MOST_MEMORY };
        // SAFETY: a system call that reads one structure. Descendants of git inherit the limit.
        unsafe { libc::prlimit(pid, libc::RLIMIT_DATA, &limit, std::ptr::null_mut()) };
        let read = self.read(&mut child, pid, to, most);
        if read.is_err() {
            proc::kill_group(pid, Signal::SIGKILL as i32);
        }
        let status = child.wait().map_err(GitError::Start)?;
        let (length, words) = read?;
        let words = String::from_utf8_lossy(&words).into_owned();
        if status.success() {
            return Ok(Printed { length, words });
        }
        let first = words.lines().next().unwrap_or_default().trim_start_matches("fatal: ");
        Err(GitError::Failed(if first.is_empty() {
            format!("git failed: {status}")
        } else {
            format!("git: {first}")
        }))
    }

    /// Returns the files of the work tree, tracked and untracked but not ignored, by their paths
    /// from its top. A directory in the list is a submodule or another work tree. Since an index
    /// can contain any name, names that no file of a work tree can have, such as `../x` or
    /// `.git/config`, are omitted.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn files(&self) -> Result<Vec<PathBuf>, GitError> {
        self.copy_index()?;
        const FILES: [&str; 5] = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut names = Vec::new();
        let read = self.ask_into(&FILES, &mut names, MOST_NAMES)?;
        // git omits an unreadable directory and exits successfully.
        if let Some(line) = read.words.lines().find(|line| line.contains("could not open")) {
            let why = line.trim_start_matches("warning: ");
            return Err(GitError::Failed(format!("git: {why}")));
        }
        let names = names_in(&names)
            .map(|name| Path::new(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name))));
        let mut files: Vec<PathBuf> =
            names.filter(|name| belongs(name)).map(Path::to_owned).collect();
        // A path with a conflict is listed several times.
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// Returns the names of all files and links in the index, regardless of the contents of the
    /// work tree.
    ///
    /// # Errors
    /// See [`GitError`].
    pub fn indexed_files(&self) -> Result<HashSet<PathBuf>, GitError> {
        let index = self.ask(&["ls-files", "-z", "--stage"], MOST_NAMES)?;
        let files = names_in(&index).filter(|entry| !entry.starts_with(b"160000 "));
        let names = files.filter_map(|entry| entry.splitn(2, |byte| *byte == b'\t').nth(1));
        Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
    }

    /// Returns the files that differ from the commit of `head`. On an unborn branch, all files do.
    fn status(&self, head: &Head, depth: usize) -> Result<Status, GitError> {
        // In a submodule, git would start another git that reads the configuration there.
        const STATUS: [&str; 7] = [
            "status",
            "--porcelain=v2",
            "-z",
            "--no-renames",
            "--no-ahead-behind",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        ];
        if depth > MOST_NESTED {
            return Err(GitError::Nested);
        }
        self.copy_index()?;
        match &head.commit {
            Some(commit) => self.write("HEAD", commit)?,
            None if head.is_unborn => {}
            None => return Err(GitError::NoHead),
        }
        let mut status = parse_status(&self.ask(&STATUS, MOST_NAMES)?);
        let index = self.ask(&["ls-files", "-z", "--stage"], MOST_NAMES)?;
        for (name, commit) in submodules(&index) {
            let path = Path::new(OsStr::from_bytes(name));
            let top = self.top.join(path);
            if !belongs(path)
                || status.changed.iter().any(|known| known == name)
                || Repository::of(&top).is_none()
            {
                continue;
            }
            let mut inside = self.asking.at(&top)?;
            if self.files_at != self.top {
                inside = inside.with_files_of(&self.files_at.join(path));
            }
            let head = inside.repository.head(MOST_PACKED);
            // In a copy, git sees no repository and therefore no new commit of the submodule.
            let has_moved = head.commit.as_ref().is_some_and(|head| head.as_bytes() != commit);
            let found = inside.status(&head, depth + 1)?;
            if has_moved || !(found.changed.is_empty() && found.untracked.is_empty()) {
                status.changed.push(name.to_owned());
            }
        }
        Ok(status)
    }

    /// Determines how the work tree differs from its commit, and writes a diff for `git apply` to
    /// the sink. Returns false if there is no diff; the data in the sink must be ignored then.
    pub fn source(&self, to: &mut dyn Write) -> (Source, bool) {
        let head = self.repository.head(MOST_PACKED);
        let source =
            |changes| Source { commit: head.commit.clone(), branch: head.branch.clone(), changes };
        let Status { changed, mut untracked } = match self.status(&head, 0) {
            Ok(status) => status,
            Err(error) => return (source(Err(error.to_string())), false),
        };
        untracked.retain(|name| {
            let path = self.top.join(OsStr::from_bytes(name));
            !self.asking.left_out.iter().any(|one| one.matches(&path.to_string_lossy()))
        });
        let sized = |path: &Vec<u8>| Untracked {
            bytes: fs::symlink_metadata(self.files_at.join(OsStr::from_bytes(path)))
                .ok()
                .map(|file| file.len()),
            path: String::from_utf8_lossy(path).into_owned(),
        };
        let named = untracked.iter().take(MOST_UNTRACKED).map(sized).collect();
        let mut changes = Changes {
            changed: changed.len(),
            untracked: untracked.len(),
            untracked_files: named,
            left_out: None,
        };
        let diff = match &head.commit {
            _ if changed.is_empty() => Ok(false),
            None => Err(NoDiff::NoCommit),
            Some(commit) => self
                .diff(commit, &changed.iter().map(Vec::as_slice).collect::<Vec<_>>(), to)
                .map(|()| true),
        };
        let has_diff = diff.unwrap_or_else(|why| {
            changes.left_out = Some(why.to_string());
            false
        });
        (source(Ok(changes)), has_diff)
    }

    /// Writes a diff for `git apply` that changes the commit to these files. The error is the
    /// reason why there is no diff.
    fn diff(&self, commit: &str, changed: &[&[u8]], to: &mut dyn Write) -> Result<(), NoDiff> {
        // `diff.autoRefreshIndex` would let git record unchanged files in the index, to which it
        // must not write. It is not needed, since only changed files are passed.
        const WORDS: [&str; 18] = [
            "-c",
            "diff.autoRefreshIndex=false",
            "--literal-pathspecs",
            "diff",
            "--binary",
            "--full-index",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-renames",
            "--no-relative",
            "--unified=3",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--submodule=short",
            "--ignore-submodules=dirty",
            "--no-indent-heuristic",
            "--diff-algorithm=default",
        ];
        let is_large = |path: &&&[u8]| {
            let found = fs::symlink_metadata(self.files_at.join(OsStr::from_bytes(path)));
            found.is_ok_and(|found| found.is_file() && found.len() > MOST_DIFFED)
        };
        if let Some(large) = changed.iter().find(is_large) {
            return Err(NoDiff::LargeFile { file: String::from_utf8_lossy(large).into_owned() });
        }
        let mut length = 0;
        for some in in_parts(changed, MOST_ARGUMENTS) {
            let files = some.iter().map(|path| OsStr::from_bytes(path));
            let words: Vec<&OsStr> =
                WORDS.iter().copied().chain([commit, "--"]).map(OsStr::new).chain(files).collect();
            match self.ask_into(&words, to, MOST_DIFF - length) {
                Ok(part) => length += part.length,
                Err(GitError::TooMuch(_)) => return Err(NoDiff::TooMuch),
                Err(error) => return Err(error.into()),
            }
        }
        match length {
            0 => Err(NoDiff::Elsewhere),
            _ => Ok(()),
        }
    }
}

/// The CPU time and the I/O of a process and its descendants so far.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Effort(Vec<(i32, Option<proc::CpuTime>, proc::Io)>);

impl Effort {
    fn of(pid: i32) -> Effort {
        let all = std::iter::once(pid).chain(proc::descendants(pid));
        let used = |pid| proc::stat(pid).map(|stat| stat.used);
        Effort(all.map(|pid| (pid, used(pid), proc::io(pid))).collect())
    }
}

/// Returns whether opening this file would block. Follows links.
fn would_block(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Finds a file below `top`, in no repository, or in the directory of the objects, that blocks git
/// when it opens it. Follows no links, and examines at most `left` entries.
fn find_blocking(top: &Path, objects: &Path, mut left: usize) -> Option<PathBuf> {
    let mut dirs = vec![(top.to_owned(), true), (objects.to_owned(), false)];
    while let Some((dir, is_in_tree)) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            left = left.checked_sub(1)?;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let is_read = !is_in_tree || name == ".gitignore" || name == ".gitattributes";
            if kind.is_dir() && (!is_in_tree || name != ".git") {
                dirs.push((entry.path(), is_in_tree));
            } else if is_read && (kind.is_fifo() || kind.is_char_device()) {
                return Some(entry.path());
            }
        }
    }
    None
}

impl Git<'_> {
    /// Reads the output of a process until it exits. Returns the number of bytes that were written
    /// to the sink, and the beginning of its standard error.
    fn read(
        &self,
        child: &mut Child,
        pid: i32,
        to: &mut dyn Write,
        most: usize,
    ) -> Result<(usize, Vec<u8>), GitError> {
        let asking = self.asking;
        let end = proc::pidfd(pid).map_err(GitError::Start)?;
        let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
        let (mut length, mut words) = (0, Vec::new());
        let mut has_ended = false;
        let (mut effort, mut idle_since) = (Effort::of(pid), Instant::now());
        let mut has_searched = false;
        while out.is_some() || err.is_some() || !has_ended {
            let left = asking.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GitError::Late(asking.patience));
            }
            let left = left.min(if has_searched { asking.stall / 4 } else { asking.search });
            let open = [
                out.as_ref().map(AsFd::as_fd),
                err.as_ref().map(AsFd::as_fd),
                (!has_ended).then(|| end.as_fd()),
            ];
            let mut asked: Vec<PollFd> =
                open.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
            match poll(&mut asked, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => {
                    let before = std::mem::replace(&mut effort, Effort::of(pid));
                    if effort != before {
                        idle_since = Instant::now();
                    } else if idle_since.elapsed() >= asking.stall {
                        return Err(GitError::Stalled(self.files_at.clone()));
                    } else if !has_searched && proc::stat(pid).is_some_and(|git| git.state == b'S')
                    {
                        // In a FIFO, git sleeps. On a disk that does not respond, it cannot be
                        // interrupted, and a search would hang too.
                        has_searched = true;
                        let objects = self.repository.common.join("objects");
                        let found = find_blocking(&self.files_at, &objects, MOST_SEARCHED);
                        if let Some(path) = found {
                            return Err(GitError::Blocking(path));
                        }
                    }
                }
                Ok(_) => idle_since = Instant::now(),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(GitError::Start(error.into())),
            }
            let mut ready =
                asked.iter().map(|fd| fd.any().unwrap_or(false)).collect::<Vec<_>>().into_iter();
            let mut is_ready = |is_open: bool| is_open && ready.next().unwrap_or(false);
            let (to_out, to_err, ended) =
                (is_ready(out.is_some()), is_ready(err.is_some()), is_ready(!has_ended));
            if to_out {
                match read_some(&mut out, to)? {
                    Some(bytes) => length += bytes,
                    None => out = None,
                }
            }
            if to_err && read_some(&mut err, &mut words)?.is_none() {
                err = None;
            }
            words.truncate(MOST_WORDS);
            has_ended |= ended;
            if length > most {
                return Err(GitError::TooMuch(most));
            }
        }
        Ok((length, words))
    }
}

/// Returns whether a file of a work tree can have this name, which must not leave it or enter a
/// repository.
fn belongs(name: &Path) -> bool {
    beneath::is_plain(name) && !name.iter().any(|part| part.eq_ignore_ascii_case(".git"))
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

/// Quotes a path for a list of paths, so that git does not split it.
fn quoted(path: &Path) -> OsString {
    let mut text = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
    OsString::from_vec(text)
}

/// Parses the output of `git config --null --list`: names in lower case with their values. A name
/// without a value has the value `true`.
fn entries(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    names_in(list).map(|entry| {
        let mut parts = entry.splitn(2, |byte| *byte == b'\n');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"true"))
    })
}

/// Returns a setting in the format of `-c`, if it is known and its value is a single word.
fn setting(known: &[&str], name: &[u8], value: &[u8]) -> Option<OsString> {
    let name = known.iter().find(|known| known.as_bytes() == name)?;
    let value = std::str::from_utf8(value)
        .ok()
        .filter(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric()))?;
    Some(format!("{name}={value}").into())
}

/// Returns the submodules in the output of `git ls-files --stage -z`, each with its commit. Their
/// format is `160000 COMMIT 0<tab>NAME`.
fn submodules(index: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    names_in(index).filter_map(|entry| {
        let entry = entry.strip_prefix(b"160000 ")?;
        let blank = entry.iter().position(|byte| *byte == b' ')?;
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        Some((&entry[tab + 1..], &entry[..blank]))
    })
}

/// Splits the names into lists with a total length of at most `most` bytes, or with a single name.
fn in_parts<'a, 'b>(names: &'b [&'a [u8]], most: usize) -> Vec<&'b [&'a [u8]]> {
    let mut parts = Vec::new();
    let (mut from, mut length) = (0, 0);
    for (at, name) in names.iter().enumerate() {
        if length + name.len() > most && at > from {
            parts.push(&names[from..at]);
            (from, length) = (at, 0);
        }
        length += name.len();
    }
    if from < names.len() {
        parts.push(&names[from..]);
    }
    parts
}

/// Reads available data. Returns `None` at the end.
fn read_some(
    from: &mut Option<impl Read>,
    to: &mut (impl Write + ?Sized),
) -> Result<Option<usize>, GitError> {
    let Some(from) = from else { return Ok(None) };
    let mut part = [0; 64 << 10];
    match from.read(&mut part) {
        Ok(0) => Ok(None),
        Ok(count) => to.write_all(&part[..count]).map(|()| Some(count)).map_err(GitError::Start),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(GitError::Start(error)),
    }
}

/// The names in the output of `git status --porcelain=v2 -z`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    changed: Vec<Vec<u8>>,
    untracked: Vec<Vec<u8>>,
}

fn names_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn parse_status(text: &[u8]) -> Status {
    let mut status = Status::default();
    let mut entries = names_in(text);
    while let Some(entry) = entries.next() {
        match entry {
            [b'?', b' ', path @ ..] => status.untracked.push(path.to_owned()),
            [b'1', ..] => status.changed.extend(field(entry, 8)),
            [b'2', ..] => {
                status.changed.extend(field(entry, 9));
                // The previous path.
                status.changed.extend(entries.next().map(<[u8]>::to_owned));
            }
            [b'u', ..] => status.changed.extend(field(entry, 10)),
            _ => {}
        }
    }
    status
}

/// Returns the rest of an entry after this many spaces.
fn field(entry: &[u8], blanks: usize) -> Option<Vec<u8>> {
    entry.splitn(blanks + 1, |byte| *byte == b' ').nth(blanks).map(<[u8]>::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
