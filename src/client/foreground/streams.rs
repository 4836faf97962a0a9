//! The tasks' streams: which go straight to this client's own, which are relayed, and the relaying.

use crate::client::relay::{self, Relay};
use crate::client::share::Share;
use crate::client::terminal;
use crate::protocol::request::{StepLaunch, Stream, TaskStreams};
use crate::sys::socket::MAX_FDS;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{pipe2, read, write};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How the tasks' streams are connected, where no file is named for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    pub label: bool,
    pub unbuffered: bool,
    /// A pseudo-terminal for task 0, relayed to this client's terminal.
    pub pty: bool,
    /// The program gets this client's streams as they are, terminals included (salloc without a pseudo-terminal).
    pub as_is: bool,
    pub stdin: Feed,
    pub stdout: Feed,
    pub stderr: Feed,
    pub quit_on_interrupt: bool,
    /// End the other tasks so many seconds after the first one ended.
    pub wait_secs: Option<u64>,
}

/// Which tasks have a stream to this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Feed {
    #[default]
    All,
    Task(u32),
    Nobody,
    /// Named in the launch already: a file.
    Given,
}

pub(super) struct Output {
    pub task: u32,
    pub from: OwnedFd,
    pub relay: Relay,
    pub to_stderr: bool,
}

pub(super) struct Input {
    pub task: u32,
    pub to: OwnedFd,
    pub pending: Vec<u8>,
    /// The task reads no more.
    pub is_closed: bool,
}

/// This client's ends of the tasks' streams.
pub(super) struct Ends {
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub master: Option<OwnedFd>,
    /// While it is open the step goes on.
    _tie: OwnedFd,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe2(OFlag::O_CLOEXEC)?)
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

fn is_null(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: makedev is arithmetic.
    nix::sys::stat::fstat(fd)
        .is_ok_and(|s| s.st_rdev == libc::makedev(1, 3) && s.st_mode & libc::S_IFMT == libc::S_IFCHR)
}

/// Fills in the streams of the launch. Returns our ends and the descriptors to send.
pub(super) fn connect(launch: &mut StepLaunch, wishes: &Wishes) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let tasks = u32::try_from(launch.streams.len()).unwrap_or(u32::MAX).max(1);
    let (tie_theirs, tie_ours) = pipe()?;
    let mut send: Vec<OwnedFd> = vec![tie_theirs];
    launch.tie = Some(0);
    let mut ends = Ends { inputs: Vec::new(), outputs: Vec::new(), master: None, _tie: tie_ours };
    if wishes.pty {
        let pty = terminal::like(io::stdin().as_fd())?;
        nonblocking(&pty.master)?;
        ends.master = Some(pty.master);
        send.push(pty.slave);
        let on_pty = TaskStreams { stdin: Stream::Fd(1), stdout: Stream::Fd(1), stderr: Stream::Fd(1) };
        // Task 0 has the terminal, the others have nothing (srun man page, `--pty`).
        let none = TaskStreams { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::Null };
        launch.streams = vec![none; tasks as usize];
        launch.streams[0] = on_pty;
        launch.pty = true;
        return Ok((ends, send));
    }
    let alone = tasks == 1 && !wishes.label;
    let mut stdin_direct: Option<usize> = None;
    let mut direct: [Option<usize>; 2] = [None, None];
    let own = |fd: BorrowedFd<'_>, send: &mut Vec<OwnedFd>| -> io::Result<usize> {
        send.push(fd.try_clone_to_owned()?);
        Ok(send.len() - 1)
    };
    for task in 0..tasks {
        let streams = &mut launch.streams[task as usize];
        let fed = |feed: Feed| match feed {
            Feed::All => true,
            Feed::Task(only) => only == task,
            Feed::Nobody | Feed::Given => false,
        };
        if fed(wishes.stdin) {
            let stdin = io::stdin();
            let as_is = wishes.as_is || is_null(stdin.as_fd()) || (tasks == 1 && !stdin.is_terminal());
            streams.stdin = if as_is {
                let at = match stdin_direct {
                    Some(at) => at,
                    None => own(stdin.as_fd(), &mut send)?,
                };
                stdin_direct = Some(at);
                Stream::Fd(at)
            } else {
                let (theirs, ours) = pipe()?;
                nonblocking(&ours)?;
                ends.inputs.push(Input { task, to: ours, pending: Vec::new(), is_closed: false });
                send.push(theirs);
                Stream::Fd(send.len() - 1)
            };
        }
        for (which, feed) in [wishes.stdout, wishes.stderr].into_iter().enumerate() {
            if !fed(feed) {
                continue;
            }
            let is_terminal = if which == 0 { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
            let stream = if wishes.as_is || (alone && !is_terminal) {
                let at = match direct[which] {
                    Some(at) => at,
                    None if which == 0 => own(io::stdout().as_fd(), &mut send)?,
                    None => own(io::stderr().as_fd(), &mut send)?,
                };
                direct[which] = Some(at);
                Stream::Fd(at)
            } else {
                let (ours, theirs) = pipe()?;
                nonblocking(&ours)?;
                let label = wishes.label.then(|| relay::label(task, tasks));
                let unbuffered = wishes.unbuffered || (tasks == 1 && !wishes.label);
                ends.outputs.push(Output {
                    task,
                    from: ours,
                    relay: Relay::new(label, unbuffered),
                    to_stderr: which == 1,
                });
                send.push(theirs);
                Stream::Fd(send.len() - 1)
            };
            if which == 0 {
                streams.stdout = stream;
            } else {
                streams.stderr = stream;
            }
        }
    }
    if send.len() > MAX_FDS {
        return Err(io::Error::other(format!(
            "{tasks} tasks need {} descriptors for their streams, {MAX_FDS} can be handed over: send the output to files \
             with --output",
            send.len()
        )));
    }
    Ok((ends, send))
}

/// Writes what a task can take now. A task that closed its input gets nothing more; neither does one whose pipe has
/// something to say though nothing waits for it.
pub(super) fn feed(input: &mut Input) {
    if input.pending.is_empty() {
        input.is_closed = true;
        return;
    }
    match write(&input.to, &input.pending) {
        Ok(n) => drop(input.pending.drain(..n)),
        Err(Errno::EINTR | Errno::EAGAIN) => {}
        Err(_) => input.is_closed = true,
    }
}

pub(super) fn readable_now(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

/// Moves what is there from a task to our stream. False at its end.
pub(super) fn pump(output: &mut Output, share: &mut Option<Share>) -> bool {
    let mut chunk = [0; 65_536];
    match read(&output.from, &mut chunk) {
        Ok(0) => {
            let _ = finish(output);
            false
        }
        Ok(n) => {
            if let Some(share) = share {
                share.show(output.task, output.to_stderr, &chunk[..n]);
            }
            let pushed = if output.to_stderr {
                output.relay.push(&chunk[..n], &mut io::stderr())
            } else {
                output.relay.push(&chunk[..n], &mut io::stdout().lock())
            };
            // Nobody reads our output any more: neither need the task go on writing to us.
            pushed.is_ok()
        }
        Err(Errno::EINTR | Errno::EAGAIN) => true,
        Err(_) => {
            let _ = finish(output);
            false
        }
    }
}

pub(super) fn finish(output: &mut Output) -> io::Result<()> {
    if output.to_stderr {
        output.relay.finish(&mut io::stderr())
    } else {
        output.relay.finish(&mut io::stdout().lock())
    }
}

/// Writes everything, waiting where a terminal takes no more for the moment.
pub(super) fn write_whole(fd: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
                if !matches!(poll(&mut fds, PollTimeout::NONE), Ok(_) | Err(Errno::EINTR)) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
    let _ = io::stdout().flush();
}
