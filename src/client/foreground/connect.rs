//! Sets up the tasks' streams, either as this client's own descriptors or as relayed pipes.

use super::keyboard::Keyboard;
use super::streams::{ClientStreams, Input, Output};
use crate::client::relay::{self, Relay};
use crate::client::terminal;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat, major, minor};
use nix::unistd::pipe2;
use slotd_exec::client_line::ClientLine;
use slotd_protocol::request::{StepLaunch, Stream, TaskStreams};
use slotd_sys::limits;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Options for running a step in the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepOptions {
    pub label: bool,
    pub unbuffered: bool,
    /// Give task 0 a pseudo-terminal that is relayed to this client's terminal.
    pub pty: bool,
    /// Pass this client's streams unchanged, even if they are terminals (salloc without a
    /// pseudo-terminal).
    pub as_is: bool,
    pub stdin: StreamTasks,
    pub stdout: StreamTasks,
    pub stderr: StreamTasks,
    pub quit_on_interrupt: bool,
    /// End the other tasks this many seconds after the first one ended.
    pub wait_secs: Option<u64>,
}

/// The tasks whose stream is connected to this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamTasks {
    #[default]
    All,
    Task(u32),
    Nobody,
    /// The launch already names a file.
    Given,
}

impl StreamTasks {
    fn has(self, task: u32) -> bool {
        match self {
            StreamTasks::All => true,
            StreamTasks::Task(only) => only == task,
            StreamTasks::Nobody | StreamTasks::Given => false,
        }
    }
}

/// The maximum number of tasks for which the pipes are enlarged.
const FEW_TASKS: u32 = 16;

/// The size of an enlarged pipe, in bytes.
const LARGE_PIPE: i32 = 512 << 10;

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe2(OFlag::O_CLOEXEC)?)
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Returns whether this is `/dev/null`.
fn is_null(fd: BorrowedFd<'_>) -> bool {
    let is_device = |mode| mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits();
    fstat(fd).is_ok_and(|s| is_device(s.st_mode) && (major(s.st_rdev), minor(s.st_rdev)) == (1, 3))
}

/// Fills in the streams of the launch. Returns our ends and the descriptors to send.
///
/// # Errors
/// Fails if no pseudo-terminal is available or the tasks need more descriptors than this process
/// may open.
pub(super) fn connect(
    launch: &mut StepLaunch,
    options: &StepOptions,
) -> io::Result<(ClientStreams, Vec<OwnedFd>)> {
    let tasks = u32::try_from(launch.streams.len()).unwrap_or(u32::MAX).max(1);
    // Each of possibly hundreds of tasks needs both ends of three pipes. This does not affect the
    // tasks' own limit, which the launch already contains.
    let _ = limits::raise_descriptors();
    let (client_line, theirs) = ClientLine::pair()?;
    launch.client_line = Some(0);
    let streams = ClientStreams {
        inputs: Vec::new(),
        outputs: Vec::new(),
        master: None,
        share: None,
        stdin_open: true,
        keyboard: Keyboard::default(),
        client_line: Some(client_line),
        fault: None,
    };
    let mut connector = Connector { options, tasks, streams, send: vec![theirs], own: [None; 3] };
    if options.pty {
        connector.terminal(launch)?;
    } else {
        for (task, streams) in (0..tasks).zip(&mut launch.streams) {
            connector.task(task, streams).map_err(|e| too_many(tasks, e))?;
        }
    }
    let Connector { streams, send, .. } = connector;
    Ok((streams, send))
}

/// Replaces `EMFILE` with a message that names the limit.
fn too_many(tasks: u32, error: io::Error) -> io::Error {
    match (error.raw_os_error(), limits::descriptors()) {
        (Some(libc::EMFILE), Some(limit)) => io::Error::other(format!(
            "the streams of {tasks} tasks need more open files than the limit of {limit}: raise the limit \
             (ulimit -Hn) or write the output to files with --output"
        )),
        _ => error,
    }
}

struct Connector<'a> {
    options: &'a StepOptions,
    tasks: u32,
    streams: ClientStreams,
    send: Vec<OwnedFd>,
    /// The positions of our own standard streams in `send`, if they are passed on.
    own: [Option<usize>; 3],
}

impl Connector<'_> {
    fn hand_over(&mut self, fd: OwnedFd) -> Stream {
        self.send.push(fd);
        Stream::Fd(self.send.len() - 1)
    }

    /// Returns our own standard input (0), output (1) or error (2). All tasks share it.
    fn own(&mut self, number: usize) -> io::Result<Stream> {
        if let Some(at) = self.own[number] {
            return Ok(Stream::Fd(at));
        }
        let fd = match number {
            0 => io::stdin().as_fd().try_clone_to_owned(),
            1 => io::stdout().as_fd().try_clone_to_owned(),
            _ => io::stderr().as_fd().try_clone_to_owned(),
        };
        self.own[number] = Some(self.send.len());
        Ok(self.hand_over(fd?))
    }

    /// Task 0 gets the terminal, the others get nothing (srun man page, `--pty`).
    fn terminal(&mut self, launch: &mut StepLaunch) -> io::Result<()> {
        let pty = terminal::like(io::stdin().as_fd())?;
        nonblocking(&pty.master)?;
        self.streams.master = Some(pty.master);
        let slave = self.hand_over(pty.slave);
        let none = TaskStreams { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::Null };
        launch.streams = vec![none; self.tasks as usize];
        launch.streams[0] =
            TaskStreams { stdin: slave.clone(), stdout: slave.clone(), stderr: slave };
        launch.pty = true;
        Ok(())
    }

    fn task(&mut self, task: u32, streams: &mut TaskStreams) -> io::Result<()> {
        if self.options.stdin.has(task) {
            streams.stdin = self.input(task)?;
        }
        if self.options.stdout.has(task) {
            streams.stdout = self.output(task, false)?;
        }
        if self.options.stderr.has(task) {
            streams.stderr = self.output(task, true)?;
        }
        Ok(())
    }

    fn input(&mut self, task: u32) -> io::Result<Stream> {
        let stdin = io::stdin();
        if self.options.as_is || is_null(stdin.as_fd()) || (self.tasks == 1 && !stdin.is_terminal())
        {
            return self.own(0);
        }
        let (theirs, ours) = pipe()?;
        nonblocking(&ours)?;
        self.streams.inputs.push(Input { task, to: ours, pending: Vec::new(), is_closed: false });
        Ok(self.hand_over(theirs))
    }

    fn output(&mut self, task: u32, to_stderr: bool) -> io::Result<Stream> {
        let StepOptions { label, unbuffered, as_is, .. } = *self.options;
        let is_terminal =
            if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let is_alone = self.tasks == 1 && !label;
        if as_is || (is_alone && !is_terminal) {
            return self.own(if to_stderr { 2 } else { 1 });
        }
        let (ours, theirs) = pipe()?;
        nonblocking(&ours)?;
        if self.tasks <= FEW_TASKS {
            // A large pipe rarely makes a task and this client wait for each other. The kernel
            // limits pipe memory per user.
            let _ = fcntl(&ours, FcntlArg::F_SETPIPE_SZ(LARGE_PIPE));
        }
        let label = label.then(|| relay::label(task, self.tasks));
        let relay = Relay::new(label, unbuffered || is_alone);
        self.streams.outputs.push(Output { task, from: ours, relay, to_stderr });
        Ok(self.hand_over(theirs))
    }
}
