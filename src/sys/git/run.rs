//! Runs git within its limits: time, progress, memory and output.

use super::{Git, GitError};
use crate::{guard, proc};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The maximum number of directory entries to search.
const MOST_SEARCHED: usize = 200_000;

/// The maximum size of git's error output that is kept, in bytes.
const MOST_WORDS: usize = 4096;

/// The memory limit of git in bytes. A list of object directories that links to /dev/zero is
/// endless.
const MOST_MEMORY: u64 = 2 << 30;

/// The niceness of work that gives way to jobs. If jobs use all CPUs, it still gets a tenth of one
/// CPU (weight 110 versus 1024, sched(7)). With niceness 19, it got a seventieth, and a diff of a
/// few megabytes did not finish in time.
const BEHIND_JOBS: i32 = 10;

/// The output of git.
pub(super) struct Printed {
    /// The number of bytes on standard output.
    pub length: usize,
    /// Warnings and errors.
    pub words: String,
}

impl Git<'_> {
    /// Returns a git command without environment variables that redirect git or make it write a
    /// trace.
    pub(super) fn command(&self) -> Command {
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
    pub(super) fn ask<S: AsRef<OsStr>>(
        &self,
        words: &[S],
        most: usize,
    ) -> Result<Vec<u8>, GitError> {
        let mut text = Vec::new();
        self.ask_into(words, &mut text, most)?;
        Ok(text)
    }

    /// Like [`Self::ask`], but writes the output to a sink.
    pub(super) fn ask_into<S: AsRef<OsStr>>(
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

    pub(super) fn run(
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
pub(super) fn would_block(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Finds a file below `top`, in no repository, or in the directory of the objects, that blocks git
/// when it opens it. Follows no links, and examines at most `left` entries.
pub(super) fn find_blocking(top: &Path, objects: &Path, mut left: usize) -> Option<PathBuf> {
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

/// Quotes a path for a list of paths, so that git does not split it.
pub(super) fn quoted(path: &Path) -> OsString {
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
