//! Tasks in the foreground: their streams, their signals and their end, until the step is over.
//!
//! The tasks are started by the daemon's side and are inside the job's cgroup. What they read and write is handed over
//! as open descriptors: this client's own where that is right (one task, no terminal: full speed, no copy), pipes or a
//! pseudo-terminal that this client relays otherwise. A step is tied to its client by one more descriptor: when the
//! client dies, however, the step's watcher sees it and ends the step, daemon or not. When the daemon dies, the client
//! waits for the next one and comes back to its step.

use crate::client::connection::{ClientError, Connection, Return};
use crate::client::relay::{self, Relay};
use crate::client::share::Share;
use crate::client::terminal::{self, Raw};
use crate::host::paths::Paths;
use crate::model::job::ClientProcess;
use crate::model::view::JobView;
use crate::model::{ExitCode, JobId, JobRef, StepId, StepKey, TaskSet};
use crate::protocol::answer::{Answer, Refused};
use crate::protocol::frame::FrameError;
use crate::protocol::request::{CancelAsk, Request, StepLaunch, Stream, TaskStreams};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{pipe2, read, write};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Descriptors that one message carries (SCM_MAX_FD).
const MAX_FDS: usize = 253;

/// Two Ctrl-C within this time while the tasks do not react end the step.
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);

/// Who this client is, and where it can come back to.
#[derive(Debug, Clone)]
pub struct Link {
    pub paths: Paths,
    /// The allocation that this client holds; `None` for a step in somebody else's.
    pub allocation: Option<JobId>,
    pub client: ClientProcess,
}

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

/// What happened to a step.
#[derive(Debug)]
#[must_use]
pub enum StepOutcome {
    Ended {
        /// `None` where it never started.
        step: Option<StepId>,
        exit: ExitCode,
        tasks: Vec<ExitCode>,
        error: Option<String>,
        /// The daemon had told it to end.
        stopped: bool,
    },
    /// It was never started.
    Refused(Refused),
    /// Its job ended first: cancelled, timed out, or lost.
    JobEnded(Box<JobView>),
}

/// What the caller wants to hear of while the step runs.
pub trait Listener {
    /// The step waits for other steps of its allocation.
    fn waits(&mut self, job: JobId);
    /// The step that waited has started.
    fn started(&mut self, job: JobId);
    /// The daemon ends the step, which may take so long.
    fn aborted(&mut self, wait_secs: u64);
    /// From now on the terminal is raw, or is so no more: a line there needs a carriage return.
    fn raw(&mut self, on: bool);
    /// A line for the user.
    fn say(&mut self, line: &str);
}

struct Output {
    task: u32,
    from: OwnedFd,
    relay: Relay,
    to_stderr: bool,
}

struct Input {
    task: u32,
    to: OwnedFd,
    pending: Vec<u8>,
    /// The task reads no more.
    is_closed: bool,
}

/// This client's ends of the tasks' streams.
struct Ends {
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    master: Option<OwnedFd>,
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
fn connect(launch: &mut StepLaunch, wishes: &Wishes) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let tasks = launch.ntasks.max(1);
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
        launch.streams = vec![on_pty; tasks as usize];
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
    if launch.streams.is_empty() {
        let none = TaskStreams { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::SameAsStdout };
        launch.streams = vec![none; tasks as usize];
    }
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

/// Signals that are meant for the tasks when this client gets them.
const FORWARDED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Keeps the signals for [`SignalFd`] as long as it lives.
struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    fn take() -> io::Result<Signals> {
        let set: SigSet = FORWARDED.into_iter().collect();
        let before = SigSet::thread_get_mask()?;
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd, before })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}

/// What became of the wait for an allocation.
#[derive(Debug)]
#[must_use]
pub enum Grant {
    Granted(Box<JobView>),
    /// It was cancelled, or ended otherwise, before or instead.
    Ended(Box<JobView>),
    /// This client got the signal and gives up; with its connection the request ends.
    Interrupted(i32),
}

/// How long a grant may take before the user is told that the job waits.
const PATIENCE: Duration = Duration::from_millis(60);

/// Waits until an allocation runs. `queued` is called once, if that is not at once.
///
/// # Errors
/// The connection carries something that makes no sense.
pub fn wait_for_grant(
    conn: &mut Connection,
    link: &Link,
    job: JobId,
    queued: &mut dyn FnMut(),
) -> Result<Grant, ClientError> {
    let signals = Signals::take()?;
    let mut told = false;
    let mut back: Option<Return> = None;
    loop {
        while let Some(answer) = conn.next_whole()? {
            match answer {
                Answer::Granted { view } if view.state.is_terminal() => return Ok(Grant::Ended(view)),
                Answer::Granted { view } if view.state.is_active() => return Ok(Grant::Granted(view)),
                Answer::Ended { view } => return Ok(Grant::Ended(view)),
                Answer::Refused(why) => {
                    return Err(ClientError::Broken(FrameError::Io(io::Error::other(why.lines.join("; ")))));
                }
                _ => {}
            }
        }
        let daemon = back.as_ref().map_or_else(|| conn.as_fd(), AsFd::as_fd);
        let mut fds = [PollFd::new(daemon, PollFlags::POLLIN), PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN)];
        let timeout =
            if told { PollTimeout::NONE } else { PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX) };
        match poll(&mut fds, timeout) {
            Ok(0) => {
                told = true;
                queued();
                continue;
            }
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(io::Error::from(e).into()),
            Ok(_) => {}
        }
        if let Ok(Some(info)) = signals.fd.read_signal() {
            let number = info.ssi_signo as i32;
            if matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                return Ok(Grant::Interrupted(number));
            }
            continue;
        }
        let lost = match &back {
            Some(back) => {
                back.clear();
                true
            }
            None => !matches!(conn.fill(), Ok(true)),
        };
        if lost {
            if back.is_none() {
                back = Some(Return::watch(&link.paths)?);
            }
            if let Ok(mut fresh) = Connection::open(&link.paths) {
                fresh.send(
                    &Request::Attach { job, client: link.client, step: None, waits_for_step: false, holds: true },
                    &[],
                )?;
                *conn = fresh;
                back = None;
            }
        }
    }
}

/// Launches a step and stays with it until it is over.
///
/// # Errors
/// The daemon cannot be asked, or the streams cannot be made.
pub fn run_step(
    conn: &mut Connection,
    link: &Link,
    mut launch: StepLaunch,
    env: &[u8],
    wishes: &Wishes,
    listener: &mut dyn Listener,
) -> Result<StepOutcome, ClientError> {
    let (job, tasks, kill_on_bad_exit) = (launch.job, launch.ntasks.max(1), launch.kill_on_bad_exit);
    let signals = Signals::take()?;
    let (ends, send) = connect(&mut launch, wishes)?;
    let raw_fds: Vec<RawFd> = send.iter().map(AsRawFd::as_raw_fd).collect();
    conn.send_with_fds(&Request::LaunchStep(Box::new(launch)), env, &raw_fds)?;
    drop(send);
    let stdin = io::stdin();
    let raw = match ends.master {
        Some(_) => Raw::enter(stdin.as_fd()).ok(),
        None => None,
    };
    let mut session = Foreground {
        conn,
        link,
        job,
        step: None,
        ends,
        signals,
        wishes: *wishes,
        stdin_open: true,
        waiting: None,
        interrupted: None,
        first_end: None,
        ended: vec![None; tasks as usize],
        kill_on_bad_exit,
        aborted: false,
        stop_wanted: false,
        waited: false,
        share: None,
    };
    listener.raw(raw.is_some());
    let outcome = session.run(listener);
    session.drain();
    drop(raw);
    listener.raw(false);
    outcome
}

struct Foreground<'a> {
    conn: &'a mut Connection,
    link: &'a Link,
    job: JobId,
    /// Known once it runs.
    step: Option<StepId>,
    ends: Ends,
    signals: Signals,
    wishes: Wishes,
    stdin_open: bool,
    /// The daemon is gone, and this tells of its return.
    waiting: Option<Return>,
    interrupted: Option<Instant>,
    first_end: Option<Instant>,
    /// By rank: how they ended, as far as they did.
    ended: Vec<Option<ExitCode>>,
    /// The step's watcher ends the step when a task fails.
    kill_on_bad_exit: bool,
    /// The daemon told the step to end.
    aborted: bool,
    /// The step is to be ended as soon as there is a daemon to ask.
    stop_wanted: bool,
    waited: bool,
    /// Those who joined with sattach.
    share: Option<Share>,
}

/// What a poll entry stands for.
#[derive(Clone, Copy)]
enum Source {
    Daemon,
    Signals,
    Stdin,
    Input(usize),
    Output(usize),
    Master,
    Share,
    Guest(usize),
}

impl Foreground<'_> {
    fn run(&mut self, listener: &mut dyn Listener) -> Result<StepOutcome, ClientError> {
        loop {
            while self.waiting.is_none() {
                let Some(answer) = self.conn.next_whole()? else { break };
                if let Some(outcome) = self.hear(answer, listener)? {
                    return Ok(outcome);
                }
            }
            let ready = self.wait()?;
            if ready.is_empty() {
                // The time after the first task's end (`--wait`) is over.
                self.first_end = None;
                self.report(listener);
                self.stop()?;
            }
            for source in ready {
                match source {
                    Source::Daemon => self.daemon_ready()?,
                    Source::Signals => self.signalled(listener)?,
                    Source::Stdin => self.read_stdin(),
                    Source::Input(i) => self.ends.inputs.get_mut(i).into_iter().for_each(feed),
                    Source::Output(i) => self.forward(i),
                    Source::Master => self.relay_terminal(),
                    Source::Share => self.share.iter_mut().for_each(Share::accept),
                    Source::Guest(i) => self.hear_guest(i),
                }
            }
            self.share.iter_mut().for_each(Share::tidy);
            self.ends.inputs.retain(|input| !input.is_closed && (self.stdin_open || !input.pending.is_empty()));
        }
    }

    fn hear(&mut self, answer: Answer, listener: &mut dyn Listener) -> Result<Option<StepOutcome>, ClientError> {
        match answer {
            Answer::StepWaits => {
                self.waited = true;
                listener.waits(self.job);
            }
            Answer::StepStarted { step, .. } => {
                self.step = Some(step);
                self.open_share();
                if std::mem::take(&mut self.waited) {
                    listener.started(self.job);
                }
            }
            Answer::TaskEnded { task, exit } => {
                if !self.aborted {
                    self.first_end.get_or_insert_with(Instant::now);
                }
                if self.kill_on_bad_exit && !exit.is_success() && self.ended.iter().flatten().all(|e| e.is_success()) {
                    listener.say(&format!("Terminating StepId={}", self.name()));
                }
                if let Some(ended) = self.ended.get_mut(task as usize) {
                    *ended = Some(exit);
                }
            }
            Answer::StepStopping { wait_secs } if !self.aborted => {
                self.aborted = true;
                self.first_end = None;
                listener.aborted(wait_secs);
            }
            Answer::StepEnded { exit, tasks, error } => {
                let stopped = self.aborted;
                return Ok(Some(StepOutcome::Ended { step: self.step, exit, tasks, error, stopped }));
            }
            Answer::Refused(refused) => return Ok(Some(StepOutcome::Refused(refused))),
            Answer::Ended { view } => {
                // The end of the step itself may still be on its way: it was told first if it was known first.
                return Ok(Some(StepOutcome::JobEnded(view)));
            }
            Answer::Granted { view } if view.state.is_terminal() => return Ok(Some(StepOutcome::JobEnded(view))),
            _ => {}
        }
        Ok(None)
    }

    /// Blocks until something can be done. Empty: the time of `--wait` is over.
    fn wait(&mut self) -> Result<Vec<Source>, ClientError> {
        let mut entries: Vec<(BorrowedFd<'_>, PollFlags, Source)> = Vec::new();
        let daemon = match &self.waiting {
            Some(back) => back.as_fd(),
            None => self.conn.as_fd(),
        };
        entries.push((daemon, PollFlags::POLLIN, Source::Daemon));
        entries.push((self.signals.fd.as_fd(), PollFlags::POLLIN, Source::Signals));
        let stdin = io::stdin();
        let hungry = self.ends.inputs.iter().all(|input| input.is_closed || input.pending.is_empty());
        let relayed = !self.ends.inputs.is_empty() || self.ends.master.is_some();
        if self.stdin_open && relayed && hungry && self.step.is_some() {
            entries.push((stdin.as_fd(), PollFlags::POLLIN, Source::Stdin));
        }
        for (i, input) in self.ends.inputs.iter().enumerate() {
            // Also without anything to write: a reader that closed its end shows as an error.
            let flags = if input.pending.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            entries.push((input.to.as_fd(), flags, Source::Input(i)));
        }
        for (i, output) in self.ends.outputs.iter().enumerate() {
            entries.push((output.from.as_fd(), PollFlags::POLLIN, Source::Output(i)));
        }
        if let Some(master) = &self.ends.master {
            entries.push((master.as_fd(), PollFlags::POLLIN, Source::Master));
        }
        if let Some(share) = &self.share {
            entries.push((share.listener(), PollFlags::POLLIN, Source::Share));
            for (i, (guest, is_behind)) in share.guests().enumerate() {
                // What guests type is taken in as slowly as the tasks read.
                let mut flags = if hungry { PollFlags::POLLIN } else { PollFlags::empty() };
                flags.set(PollFlags::POLLOUT, is_behind);
                entries.push((guest, flags, Source::Guest(i)));
            }
        }
        let mut fds: Vec<PollFd<'_>> = entries.iter().map(|(fd, flags, _)| PollFd::new(*fd, *flags)).collect();
        let timeout = match (self.wishes.wait_secs, self.first_end) {
            (Some(secs), Some(first)) if secs > 0 => {
                let left = Duration::from_secs(secs).saturating_sub(first.elapsed());
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            _ => PollTimeout::NONE,
        };
        loop {
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
                Ok(_) => break,
            }
        }
        // Outputs last, and from the back: a closed one is taken out of the list.
        let mut ready: Vec<Source> = entries
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| fd.revents().is_some_and(|r| !r.is_empty()))
            .map(|((_, _, source), _)| *source)
            .collect();
        ready.reverse();
        Ok(ready)
    }

    fn daemon_ready(&mut self) -> Result<(), ClientError> {
        if let Some(back) = &self.waiting {
            back.clear();
            return self.come_back();
        }
        let open = match self.conn.fill() {
            Ok(open) => open,
            Err(ClientError::Broken(_)) => false,
            Err(e) => return Err(e),
        };
        if !open {
            self.waiting = Some(Return::watch(&self.link.paths)?);
            return self.come_back();
        }
        Ok(())
    }

    /// Connects to the daemon that has come back, if it has.
    fn come_back(&mut self) -> Result<(), ClientError> {
        let Ok(mut fresh) = Connection::open(&self.link.paths) else { return Ok(()) };
        let step = self.step.map(|step| StepKey { job: self.job, step });
        fresh.send(
            &Request::Attach {
                job: self.job,
                client: self.link.client,
                step,
                waits_for_step: true,
                holds: self.link.allocation.is_some(),
            },
            &[],
        )?;
        *self.conn = fresh;
        self.waiting = None;
        if self.stop_wanted { self.stop() } else { Ok(()) }
    }

    /// `12.0`.
    fn name(&self) -> StepKey {
        StepKey { job: self.job, step: self.step.unwrap_or(StepId::Num(0)) }
    }

    /// Slurm's lines before the end of `--wait`: which tasks still run.
    fn report(&self, listener: &mut dyn Listener) {
        let name = self.name();
        listener.say(&format!("First task exited {}s ago", self.wishes.wait_secs.unwrap_or(0)));
        for (word, over) in [("running", false), ("exited", true)] {
            let ranks: Vec<u32> =
                (0..).zip(&self.ended).filter(|(_, end)| end.is_some() == over).map(|(rank, _)| rank).collect();
            if !ranks.is_empty() {
                let plural = if ranks.len() > 1 { "tasks" } else { "task" };
                listener.say(&format!("StepId={name} {plural} {}: {word}", TaskSet::from_sorted(&ranks)));
            }
        }
        listener.say(&format!("Terminating StepId={name}"));
    }

    /// Has the daemon kill the step; when it is back, where it is away.
    fn stop(&mut self) -> Result<(), ClientError> {
        let Some(step) = self.step else { return Ok(()) };
        self.stop_wanted = self.waiting.is_some();
        if !self.stop_wanted {
            let ask = CancelAsk {
                refs: vec![JobRef { job: self.job, tasks: None, step: Some(step) }],
                signal: Some(libc::SIGKILL),
                uid: nix::unistd::getuid().as_raw(),
                ..CancelAsk::default()
            };
            self.conn.send(&Request::Cancel(ask), &[])?;
        }
        Ok(())
    }

    fn signal(&mut self, signal: i32) -> Result<(), ClientError> {
        if let Some(step) = self.step
            && self.waiting.is_none()
        {
            self.conn.send(&Request::SignalStep { step: StepKey { job: self.job, step }, signal }, &[])?;
        }
        Ok(())
    }

    fn signalled(&mut self, listener: &mut dyn Listener) -> Result<(), ClientError> {
        while let Ok(Some(info)) = self.signals.fd.read_signal() {
            let number = info.ssi_signo as i32;
            match number {
                libc::SIGWINCH => {
                    if let (Some(master), Some(size)) = (&self.ends.master, terminal::window(io::stdin().as_fd())) {
                        terminal::set_window(master.as_fd(), size);
                    }
                }
                libc::SIGINT if self.step.is_none() => {
                    // Nothing runs yet: the request is withdrawn with the connection.
                    return Err(ClientError::Interrupted(number));
                }
                libc::SIGINT => {
                    let again = self.interrupted.is_some_and(|at| at.elapsed() < SECOND_INTERRUPT);
                    self.interrupted = Some(Instant::now());
                    self.signal(number)?;
                    if again || self.wishes.quit_on_interrupt {
                        listener.say("forcing job termination");
                        self.stop()?;
                    }
                }
                libc::SIGHUP | libc::SIGTERM if self.step.is_none() => return Err(ClientError::Interrupted(number)),
                other => self.signal(other)?,
            }
        }
        Ok(())
    }

    fn read_stdin(&mut self) {
        let mut chunk = [0; 65_536];
        match read(io::stdin().as_fd(), &mut chunk) {
            Ok(0) => self.stdin_open = false,
            Ok(n) => match &self.ends.master {
                Some(master) => write_whole(master.as_fd(), &chunk[..n]),
                None => {
                    for input in &mut self.ends.inputs {
                        input.pending.extend_from_slice(&chunk[..n]);
                        feed(input);
                    }
                }
            },
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.stdin_open = false,
        }
    }

    /// Where the tasks' streams pass through here, others may join. Without a socket for them nothing else is lost.
    fn open_share(&mut self) {
        let (Some(step), None) = (self.step, &self.share) else { return };
        if self.ends.outputs.is_empty() && self.ends.inputs.is_empty() && self.ends.master.is_none() {
            return;
        }
        let tasks = u32::try_from(self.ended.len()).unwrap_or(1);
        let job_dir = self.link.paths.job_dir(self.job);
        self.share = Share::open(&job_dir, step, tasks, self.ends.master.is_some()).ok();
    }

    fn hear_guest(&mut self, guest: usize) {
        let heard = self.share.as_mut().map(|share| share.serve(guest)).unwrap_or_default();
        for (task, data) in heard {
            if let Some(master) = &self.ends.master {
                write_whole(master.as_fd(), &data);
            }
            for input in self.ends.inputs.iter_mut().filter(|input| task.is_none_or(|task| task == input.task)) {
                input.pending.extend_from_slice(&data);
                feed(input);
            }
        }
    }

    fn forward(&mut self, i: usize) {
        let Some(output) = self.ends.outputs.get_mut(i) else { return };
        if !pump(output, &mut self.share) {
            self.ends.outputs.remove(i);
        }
    }

    fn relay_terminal(&mut self) {
        let Some(master) = &self.ends.master else { return };
        let mut chunk = [0; 65_536];
        match read(master, &mut chunk) {
            Ok(0) => self.ends.master = None,
            Ok(n) => {
                write_whole(io::stdout().as_fd(), &chunk[..n]);
                if let Some(share) = &mut self.share {
                    share.show(0, false, &chunk[..n]);
                }
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // EIO: the program closed its terminal.
            Err(_) => self.ends.master = None,
        }
    }

    /// The step is over and with it all its processes: what they have written is there, and nothing more comes.
    fn drain(&mut self) {
        for output in &mut self.ends.outputs {
            while pump(output, &mut self.share) {
                if !readable_now(output.from.as_fd()) {
                    let _ = finish(output);
                    break;
                }
            }
        }
        while self.ends.master.as_ref().is_some_and(|m| readable_now(m.as_fd())) {
            self.relay_terminal();
        }
    }
}

/// Writes what a task can take now. A task that closed its input gets nothing more; neither does one whose pipe has
/// something to say though nothing waits for it.
fn feed(input: &mut Input) {
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

fn readable_now(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

/// Moves what is there from a task to our stream. False at its end.
fn pump(output: &mut Output, share: &mut Option<Share>) -> bool {
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

fn finish(output: &mut Output) -> io::Result<()> {
    if output.to_stderr {
        output.relay.finish(&mut io::stderr())
    } else {
        output.relay.finish(&mut io::stdout().lock())
    }
}

/// Writes everything, waiting where a terminal takes no more for the moment.
fn write_whole(fd: BorrowedFd<'_>, mut bytes: &[u8]) {
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
