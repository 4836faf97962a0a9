//! Attaches to a running step (`sattach`). If the streams pass through the step's client, attaches
//! as its guest. Otherwise, reads the files that the tasks write to.

use crate::client::relay::{self, Relay};
use crate::client::share::{self, MAX_DATA, Message, next_message};
use crate::client::terminal::Raw;
use crate::client::watch::FileWatch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use slotd_exec::read_record;
use slotd_model::{ExitRecord, StepId};
use slotd_protocol::frame::{Decoder, Frame, FrameError};
use slotd_sys::proc;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The streams to attach to, and how to show them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Joining {
    /// `None` means all tasks.
    pub input_task: Option<u32>,
    pub output_task: Option<u32>,
    pub error_task: Option<u32>,
    pub label: bool,
    /// Send each keystroke to the step's terminal.
    pub pty: bool,
}

/// The end of a running step, as its watcher records it.
pub struct StepEnd {
    job_dir: PathBuf,
    step: StepId,
    run: u32,
    records: FileWatch,
    /// `None` if the step has ended already.
    watcher: Option<OwnedFd>,
}

impl StepEnd {
    /// Prepares to wait for the end of a step in this run of its job. `pids` are the step's
    /// processes.
    ///
    /// # Errors
    /// Fails if the directory of the job cannot be watched.
    pub fn of(job_dir: &Path, step: StepId, run: u32, pids: &[i32]) -> io::Result<StepEnd> {
        let records = FileWatch::new()?;
        records.add_dir(job_dir)?;
        // The watcher is the parent of the tasks.
        let parents = pids.iter().filter_map(|pid| proc::stat(*pid).map(|stat| stat.ppid));
        let watcher = parents.filter(|parent| !pids.contains(parent)).find_map(open_process);
        Ok(StepEnd { job_dir: job_dir.to_owned(), step, run, records, watcher })
    }

    /// Waits until the step has ended. Returns `None` if it ended before [`StepEnd::of`] and has no
    /// record yet.
    ///
    /// # Errors
    /// Fails if the record cannot be read, or if the watcher dies without one.
    pub fn wait(self) -> io::Result<Option<ExitRecord>> {
        let mut has_exited = false;
        loop {
            if let Some(record) = read_record(&self.job_dir, self.step, self.run)? {
                return Ok(Some(record));
            }
            let Some(watcher) = &self.watcher else { return Ok(None) };
            if has_exited {
                return Err(io::Error::other("its watcher died"));
            }
            let mut fds = [self.records.as_fd(), watcher.as_fd()]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            wait(&mut fds)?;
            has_exited = fds[1].revents().is_some_and(|events| !events.is_empty());
            self.records.clear();
        }
    }
}

/// Why attaching to a step failed.
#[derive(Debug)]
pub enum JoinError {
    /// The output goes to a destination that no other process can read.
    NotShared,
    /// `--pty` was given, but the step or this process has no terminal.
    NoTerminal,
    /// The tasks write to the same file as this process, which would read its own output forever.
    OwnOutput(PathBuf),
    Io(io::Error),
}

impl From<io::Error> for JoinError {
    fn from(e: io::Error) -> Self {
        JoinError::Io(e)
    }
}

impl From<FrameError> for JoinError {
    fn from(e: FrameError) -> Self {
        JoinError::Io(e.into())
    }
}

/// Attaches to a step until it ends. `pids` are the step's processes, used if its client does not
/// share it.
///
/// # Errors
/// See [`JoinError`].
pub fn attach(
    job_dir: &Path,
    step: StepId,
    pids: &[i32],
    joining: Joining,
) -> Result<(), JoinError> {
    match share::join(job_dir, step) {
        Ok(mut socket) => {
            let mut decoder = share::decoder();
            let hello = loop {
                if let Some((message, _)) = next_message(&mut decoder)? {
                    break message;
                }
                if !receive(&mut socket, &mut decoder)? {
                    // The step has just ended.
                    return Ok(());
                }
            };
            let Message::Hello { tasks, pty } = hello else { return Err(JoinError::NotShared) };
            if joining.pty && !(pty && io::stdin().is_terminal()) {
                return Err(JoinError::NoTerminal);
            }
            Ok(guest(&mut socket, decoder, tasks, joining)?)
        }
        Err(_) if joining.pty => Err(JoinError::NoTerminal),
        Err(_) => follow(pids, joining),
    }
}

fn receive(socket: &mut impl Read, decoder: &mut Decoder) -> io::Result<bool> {
    let mut chunk = [0; MAX_DATA];
    loop {
        match socket.read(&mut chunk) {
            Ok(n) => {
                decoder.push(&chunk[..n]);
                return Ok(n > 0);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Displays all streams and tracks the line state of each.
struct Screen {
    joining: Joining,
    tasks: u32,
    relays: BTreeMap<(u32, bool), Relay>,
}

impl Screen {
    fn show(&mut self, task: u32, is_stderr: bool, data: &[u8]) -> io::Result<()> {
        let Joining { label, output_task, error_task, .. } = self.joining;
        let only = if is_stderr { error_task } else { output_task };
        if only.is_some_and(|only| only != task) {
            return Ok(());
        }
        let label = label.then(|| relay::label(task, self.tasks));
        let unbuffered = label.is_none();
        let relay =
            self.relays.entry((task, is_stderr)).or_insert_with(|| Relay::new(label, unbuffered));
        if is_stderr {
            relay.push(data, &mut io::stderr())
        } else {
            relay.push(data, &mut io::stdout().lock())
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        for ((_, is_stderr), relay) in &mut self.relays {
            if *is_stderr {
                relay.finish(&mut io::stderr())?;
            } else {
                relay.finish(&mut io::stdout().lock())?;
            }
        }
        Ok(())
    }
}

fn guest(
    socket: &mut std::os::unix::net::UnixStream,
    mut decoder: Decoder,
    tasks: u32,
    joining: Joining,
) -> io::Result<()> {
    let stdin = io::stdin();
    let _raw = if joining.pty { Some(Raw::enter(stdin.as_fd())?) } else { None };
    let mut screen = Screen { joining, tasks, relays: BTreeMap::new() };
    let mut is_typing = true;
    loop {
        while let Some((message, data)) = next_message(&mut decoder)? {
            match message {
                Message::Output { task, is_stderr } => screen.show(task, is_stderr, &data)?,
                Message::Ended => return screen.finish(),
                Message::Hello { .. } | Message::Input { .. } => {}
            }
        }
        let mut fds = vec![PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        if is_typing {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        wait(&mut fds)?;
        let is_ready = |i: usize| {
            fds.get(i).and_then(PollFd::revents).is_some_and(|r: PollFlags| !r.is_empty())
        };
        let (from_host, from_user) = (is_ready(0), is_ready(1));
        if from_user {
            let mut chunk = [0; 4096];
            match read(stdin.as_fd(), &mut chunk) {
                // The end of our input does not close the tasks' input, which their own client
                // controls.
                Ok(0) => is_typing = false,
                Ok(n) => {
                    let input = Message::Input { task: joining.input_task };
                    socket.write_all(&Frame::encode(&input, &chunk[..n])?)?;
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => is_typing = false,
            }
        }
        // If the host dies, so does its step.
        if from_host && !receive(socket, &mut decoder)? {
            return screen.finish();
        }
    }
}

fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(fds, PollTimeout::NONE) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A file that a task writes to, read from its current end.
struct Followed {
    task: u32,
    is_stderr: bool,
    file: File,
}

impl Followed {
    fn pump(&mut self, screen: &mut Screen) -> io::Result<()> {
        let mut chunk = [0; MAX_DATA];
        loop {
            match self.file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(n) => screen.show(self.task, self.is_stderr, &chunk[..n])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Shows the output that the tasks append to their files until the last task ends.
fn follow(pids: &[i32], joining: Joining) -> Result<(), JoinError> {
    let tasks = tasks_among(pids);
    let watch = FileWatch::new()?;
    let mut followed: Vec<Followed> = Vec::new();
    let mut alive: Vec<OwnedFd> = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for (&task, &pid) in &tasks {
        // Open the process first, so that its end is not missed.
        let Some(process) = open_process(pid) else { continue };
        alive.push(process);
        for (fd, is_stderr) in [(1, false), (2, true)] {
            let link = PathBuf::from(format!("/proc/{pid}/fd/{fd}"));
            let Ok(target) = std::fs::read_link(&link) else { continue };
            let is_plain = std::fs::metadata(&link).is_ok_and(|meta| {
                let kind = meta.file_type();
                kind.is_file() && !kind.is_char_device()
            });
            // Show a file only once, even if several streams write to it.
            if !is_plain || seen.contains(&target) {
                continue;
            }
            if is_ours(&link) {
                return Err(JoinError::OwnOutput(target));
            }
            let mut file = match File::open(&link) {
                // The file has just been closed, or the process has ended.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            file.seek(SeekFrom::End(0))?;
            watch.add_open(&file)?;
            seen.push(target);
            followed.push(Followed { task, is_stderr, file });
        }
    }
    if followed.is_empty() {
        return Err(JoinError::NotShared);
    }
    let count = tasks.keys().next_back().map_or(1, |last| last + 1);
    let mut screen = Screen { joining, tasks: count, relays: BTreeMap::new() };
    while !alive.is_empty() {
        let mut fds: Vec<PollFd<'_>> =
            alive.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
        fds.push(PollFd::new(watch.as_fd(), PollFlags::POLLIN));
        wait(&mut fds)?;
        let ended: Vec<bool> =
            fds.iter().map(|fd| fd.revents().is_some_and(|r| !r.is_empty())).collect();
        let mut place = 0;
        alive.retain(|_| {
            place += 1;
            !ended[place - 1]
        });
        watch.clear();
        for file in &mut followed {
            file.pump(&mut screen)?;
        }
    }
    Ok(screen.finish()?)
}

/// Returns whether this process's standard output or error is the same file.
fn is_ours(file: &Path) -> bool {
    let Ok(theirs) = std::fs::metadata(file) else { return false };
    let ours = [nix::sys::stat::fstat(io::stdout()), nix::sys::stat::fstat(io::stderr())];
    ours.into_iter().flatten().any(|own| (own.st_dev, own.st_ino) == (theirs.dev(), theirs.ino()))
}

/// Returns the first process of each rank. Parents are listed first, and children inherit the rank
/// from the environment.
fn tasks_among(pids: &[i32]) -> BTreeMap<u32, i32> {
    let mut tasks = BTreeMap::new();
    for &pid in pids {
        let rank = proc::environment(pid).and_then(|env| rank_of(&env));
        tasks.entry(rank.unwrap_or(0)).or_insert(pid);
    }
    tasks
}

fn rank_of(environment: &[u8]) -> Option<u32> {
    std::str::from_utf8(proc::parse_variable(environment, "SLURM_PROCID")?).ok()?.parse().ok()
}

/// Returns a descriptor that becomes readable when the process ends.
fn open_process(pid: i32) -> Option<OwnedFd> {
    let fd = proc::pidfd(pid).ok()?;
    // The PID may have been reused before the descriptor was opened. A new process with that PID
    // does not have this environment.
    proc::stat(pid).is_some_and(|stat| stat.state != b'Z').then_some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_read_from_the_environment() {
        assert_eq!(rank_of(b"A=1\0SLURM_PROCID=12\0B=2\0"), Some(12));
        assert_eq!(rank_of(b"A=1\0XSLURM_PROCID=12\0"), None);
    }
}
