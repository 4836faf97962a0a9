//! The host's `git`, asked about a work tree: how it differs from its commit, and what files belong to it.
//!
//! It changes nothing there, not even the index, and starts no hook, no monitor and no pager. It has a deadline, and its
//! answers have a bound.

use crate::model::source::{Changes, Source, Untracked};
use crate::sys::{proc, work_tree};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A longer text of differences is left out, bytes.
pub const MOST_DIFF: usize = 4 << 20;

/// A longer list of names is not read, bytes.
const MOST_NAMES: usize = 64 << 20;

/// So many of the files that git does not know are named.
const MOST_UNTRACKED: usize = 1000;

/// What is kept of git's own words about a failure, bytes.
const MOST_WORDS: usize = 4096;

/// Names that are given to one git at most, bytes.
const MOST_ARGUMENTS: usize = 256 << 10;

/// Steps back behind whatever else the machine has to do.
const LAST_IN_LINE: i32 = 19;

/// Why git gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed here")]
    Missing,
    #[error("git cannot be started: {0}")]
    Start(io::Error),
    #[error("git took longer than {} seconds", .0.as_secs())]
    Late(Duration),
    #[error("git printed more than {} MB", .0 >> 20)]
    TooMuch(usize),
    #[error("{0}")]
    Failed(String),
}

/// git at one work tree.
#[derive(Debug, Clone)]
pub struct Git {
    top: PathBuf,
    /// Where the files are, if not there.
    copy: Option<PathBuf>,
    patience: Duration,
    until: Instant,
    steps_back: bool,
}

impl Git {
    /// At the work tree with this top directory. All questions together may take so long.
    pub fn at(top: &Path, patience: Duration) -> Git {
        Git {
            top: top.to_owned(),
            copy: None,
            patience,
            until: Instant::now() + patience,
            steps_back: false,
        }
    }

    /// Takes no time from others.
    #[must_use]
    pub fn behind_others(self) -> Git {
        Git { steps_back: true, ..self }
    }

    /// The same repository, with the files of a copy.
    #[must_use]
    pub fn with_files_of(&self, copy: &Path) -> Git {
        Git { copy: Some(copy.to_owned()), ..self.clone() }
    }

    /// At a submodule, or another work tree inside.
    #[must_use]
    pub fn inside(&self, top: &Path) -> Git {
        Git { top: top.to_owned(), ..self.clone() }
    }

    fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("git");
        // They would lead git elsewhere, or have it write a trace.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_"))
        {
            command.env_remove(name);
        }
        command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.arg("-C").arg(self.files_at()).arg("--no-pager");
        command.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]);
        if self.copy.is_some() {
            // Copied files have the times of the first ones, and that has to be enough to know them again.
            command.args(["-c", "core.checkStat=minimal", "-c", "core.trustctime=false"]);
            let git_dir = work_tree::git_dir(&self.top).unwrap_or_else(|| self.top.join(".git"));
            for (option, path) in
                [("--git-dir", git_dir.as_path()), ("--work-tree", self.files_at())]
            {
                command.arg([OsStr::new(option), path.as_os_str()].join(OsStr::new("=")));
            }
        }
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// What git prints, which is no longer than `most` bytes.
    ///
    /// # Errors
    /// See [`GitError`]. git and whatever it has started is gone then.
    pub fn ask<S: AsRef<OsStr>>(&self, words: &[S], most: usize) -> Result<Vec<u8>, GitError> {
        let mut child = self.command(words).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GitError::Missing,
            _ => GitError::Start(error),
        })?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        if self.steps_back {
            // SAFETY: a system call with numbers. Where it fails git is as fast as others.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, child.id(), LAST_IN_LINE) };
        }
        let heard = self.hear(&mut child, pid, most);
        if heard.is_err() {
            proc::kill_group(pid, Signal::SIGKILL as i32);
        }
        let status = child.wait().map_err(GitError::Start)?;
        let (text, words) = heard?;
        if status.success() {
            return Ok(text);
        }
        let words = String::from_utf8_lossy(&words);
        let first = words.lines().next().unwrap_or_default().trim_start_matches("fatal: ");
        Err(GitError::Failed(if first.is_empty() {
            format!("git failed: {status}")
        } else {
            format!("git: {first}")
        }))
    }

    /// What a process prints on standard output and standard error until it ends.
    fn hear(
        &self,
        child: &mut Child,
        pid: i32,
        most: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), GitError> {
        let end = proc::pidfd(pid).map_err(GitError::Start)?;
        let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
        let (mut text, mut words) = (Vec::new(), Vec::new());
        let mut has_ended = false;
        while out.is_some() || err.is_some() || !has_ended {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(GitError::Late(self.patience));
            }
            let open = [
                out.as_ref().map(AsFd::as_fd),
                err.as_ref().map(AsFd::as_fd),
                (!has_ended).then(|| end.as_fd()),
            ];
            let mut asked: Vec<PollFd> =
                open.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
            match poll(&mut asked, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(GitError::Start(error.into())),
            }
            let mut ready =
                asked.iter().map(|fd| fd.any().unwrap_or(false)).collect::<Vec<_>>().into_iter();
            let mut is_ready = |is_open: bool| is_open && ready.next().unwrap_or(false);
            let (to_out, to_err, ended) =
                (is_ready(out.is_some()), is_ready(err.is_some()), is_ready(!has_ended));
            if to_out && !read_some(&mut out, &mut text)? {
                out = None;
            }
            if to_err && !read_some(&mut err, &mut words)? {
                err = None;
            }
            words.truncate(MOST_WORDS);
            has_ended |= ended;
            if text.len() > most {
                return Err(GitError::TooMuch(most));
            }
        }
        Ok((text, words))
    }

    fn files_at(&self) -> &Path {
        self.copy.as_deref().unwrap_or(&self.top)
    }

    /// The files that make up the work tree: those that git knows and those that it does not ignore, by their paths from its
    /// top. A directory stands for a submodule, or another work tree inside.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub fn files(&self) -> Result<Vec<PathBuf>, GitError> {
        let names = self
            .ask(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"], MOST_NAMES)?;
        let mut files: Vec<PathBuf> =
            names_in(&names).map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
        // A path with a conflict is there several times.
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// How the work tree differs from its commit, and the text of that for `git apply`.
    pub fn source(&self) -> (Source, Option<Vec<u8>>) {
        const STATUS: [&str; 8] = [
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--no-renames",
            "--no-ahead-behind",
            "--untracked-files=all",
            "--ignore-submodules=none",
        ];
        let text = match self.ask(&STATUS, MOST_NAMES) {
            Ok(text) => text,
            Err(error) => {
                return (
                    Source { commit: None, branch: None, changes: Err(error.to_string()) },
                    None,
                );
            }
        };
        let Status { commit, branch, changed, untracked } = parse_status(&text);
        let at = self.files_at();
        let sized = |path: &&[u8]| Untracked {
            bytes: fs::symlink_metadata(at.join(OsStr::from_bytes(path)))
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
        let diff = match &commit {
            _ if changed.is_empty() => Ok(None),
            None => Err("there is no commit yet".to_owned()),
            Some(commit) => self.diff(commit, &changed).map(Some),
        };
        let diff = diff.unwrap_or_else(|why| {
            changes.left_out = Some(why);
            None
        });
        (Source { commit, branch, changes: Ok(changes) }, diff)
    }

    /// What `git apply` makes of a commit what these files are. An error says in words why there is no such text.
    fn diff(&self, commit: &str, changed: &[&[u8]]) -> Result<Vec<u8>, String> {
        // git would note in the index which files it found to be as they were: it is not to write, and asked about changed
        // files alone it finds none.
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
        let mut text = Vec::new();
        for some in in_parts(changed, MOST_ARGUMENTS) {
            let files = some.iter().map(|path| OsStr::from_bytes(path));
            let words: Vec<&OsStr> =
                WORDS.iter().copied().chain([commit, "--"]).map(OsStr::new).chain(files).collect();
            match self.ask(&words, MOST_DIFF - text.len()) {
                Ok(part) => text.extend(part),
                Err(GitError::TooMuch(_)) => {
                    return Err(format!("it is more than {} MB", MOST_DIFF >> 20));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        match text.is_empty() {
            true => Err("it is in the index alone, or within submodules".to_owned()),
            false => Ok(text),
        }
    }
}

/// The names in lists that are no longer than this, bytes, or hold one name.
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

/// Reads what is there. False: the other end is closed.
fn read_some(from: &mut Option<impl Read>, to: &mut Vec<u8>) -> Result<bool, GitError> {
    let Some(from) = from else { return Ok(false) };
    let mut part = [0; 64 << 10];
    match from.read(&mut part) {
        Ok(0) => Ok(false),
        Ok(count) => {
            to.extend_from_slice(&part[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(GitError::Start(error)),
    }
}

/// What `git status --porcelain=v2 --branch -z` told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status<'a> {
    commit: Option<String>,
    branch: Option<String>,
    changed: Vec<&'a [u8]>,
    untracked: Vec<&'a [u8]>,
}

fn names_in(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn parse_status(text: &[u8]) -> Status<'_> {
    let mut status = Status::default();
    let mut entries = names_in(text);
    while let Some(entry) = entries.next() {
        let told = |rest: &[u8]| {
            Some(String::from_utf8_lossy(rest).into_owned()).filter(|word| !word.starts_with('('))
        };
        match entry {
            [b'#', b' ', rest @ ..] => {
                if let Some(commit) = rest.strip_prefix(b"branch.oid ") {
                    // `(initial)` before the first commit.
                    status.commit = told(commit);
                } else if let Some(branch) = rest.strip_prefix(b"branch.head ") {
                    // `(detached)`
                    status.branch = told(branch);
                }
            }
            [b'?', b' ', path @ ..] => status.untracked.push(path),
            [b'1', ..] => status.changed.extend(field(entry, 8)),
            [b'2', ..] => {
                status.changed.extend(field(entry, 9));
                // The path that it had.
                status.changed.extend(entries.next());
            }
            [b'u', ..] => status.changed.extend(field(entry, 10)),
            _ => {}
        }
    }
    status
}

/// What stands behind so many blanks.
fn field(entry: &[u8], blanks: usize) -> Option<&[u8]> {
    entry.splitn(blanks + 1, |byte| *byte == b' ').nth(blanks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_counted() {
        let text = b"# branch.oid 0123\0# branch.head main\x001 .M N... 100644 100644 100644 1 1 a b\0\
            2 R. N... 100644 100644 100644 1 1 R100 new\0? old\0u UU N... 1 2 3 4 5 6 7 x\0? c d\0! e\0";
        let expected = Status {
            commit: Some("0123".to_owned()),
            branch: Some("main".to_owned()),
            changed: vec![b"a b", b"new", b"? old", b"x"],
            untracked: vec![b"c d"],
        };
        assert_eq!(parse_status(text), expected);
        let unborn = b"# branch.oid (initial)\0# branch.head main\0";
        assert_eq!(
            parse_status(unborn),
            Status { branch: Some("main".to_owned()), ..Status::default() }
        );
        assert_eq!(parse_status(b"# branch.head (detached)\0"), Status::default());
    }

    #[test]
    fn long_lists_of_names_are_parted() {
        let names: Vec<&[u8]> = vec![b"aa", b"b", b"cccc", b"d"];
        assert_eq!(in_parts(&names, 3), [&names[..2], &names[2..3], &names[3..]]);
        assert_eq!(in_parts(&names, 100), [&names[..]]);
        assert_eq!(in_parts(&[], 3), [&names[..0]; 0]);
    }

    fn repository() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("git").args(["init", "-q"]).arg(dir.path()).status().unwrap();
        assert!(done.success());
        dir
    }

    #[test]
    fn what_takes_long_or_says_too_much_is_ended_with_all_that_it_started() {
        let dir = repository();
        let patient = Git::at(dir.path(), Duration::from_secs(60));
        let alias = |text: &str| format!("alias.say=!{text}");
        let flood = patient.ask(&["-c", &alias("cat /dev/zero"), "say"], 1 << 20);
        assert!(matches!(flood, Err(GitError::TooMuch(_))), "{flood:?}");
        let long = Git::at(dir.path(), Duration::from_millis(50))
            .ask(&["-c", &alias("sleep 600"), "say"], 10);
        assert!(matches!(long, Err(GitError::Late(_))), "{long:?}");
        let failed = patient.ask(&["no-such-word"], 10).unwrap_err().to_string();
        assert!(failed.starts_with("git: git: 'no-such-word'"), "{failed}");
    }

    #[test]
    fn a_tree_without_a_commit_has_files_and_no_differences() {
        let dir = repository();
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), "12345").unwrap();
        }
        let git = Git::at(dir.path(), Duration::from_secs(60));
        git.ask(&["add", "a"], 100).unwrap();
        let (source, diff) = git.source();
        let changes = source.changes.unwrap();
        assert_eq!((source.commit, diff, changes.changed), (None, None, 1));
        assert_eq!(changes.untracked_files, [Untracked { path: "b".to_owned(), bytes: Some(5) }]);
        assert_eq!(changes.left_out.as_deref(), Some("there is no commit yet"));
        assert_eq!(git.files().unwrap(), [PathBuf::from("a"), PathBuf::from("b")]);
    }
}
