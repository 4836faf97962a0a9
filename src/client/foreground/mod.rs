//! Tasks in the foreground: their streams, their signals and their end, until the step is over.
//!
//! The tasks are started by the daemon's side and are inside the job's cgroup. What they read and write is handed over
//! as open descriptors: this client's own where that is right (one task, no terminal: full speed, no copy), pipes or a
//! pseudo-terminal that this client relays otherwise. A step is tied to its client by one more descriptor: when the
//! client dies, however, the step's watcher sees it and ends the step, daemon or not. When the daemon dies, the client
//! waits for the next one and comes back to its step.

use crate::client::connection::{ClientError, Connection, Return};
use crate::client::share::Share;
use crate::client::terminal::{self, Raw};
use crate::model::job::ClientProcess;
use crate::model::view::JobView;
use crate::model::{ExitCode, JobId, JobRef, Refusal, StepId, StepKey, TaskSet};
use crate::protocol::answer::Answer;
use crate::protocol::frame::FrameError;
use crate::protocol::request::{CancelAsk, Request, StepLaunch};
use crate::sys::paths::Paths;
use keyboard::Keyboard;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use signals::Signals;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use streams::{Ends, connect, feed, finish, pump, readable_now, write_whole};

mod grant;
mod keyboard;
mod signals;
mod streams;

pub use grant::{Grant, wait_for_grant};
pub use signals::end_by_interrupt;
pub use streams::{Feed, Wishes};

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
    Refused(Refusal),
    /// Its job ended first: cancelled, timed out, or lost.
    JobEnded(Box<JobView>),
}

impl StepOutcome {
    /// What the records tell of the allocation whose one step this was.
    pub fn exit(&self) -> ExitCode {
        match self {
            StepOutcome::Ended { exit, .. } => *exit,
            StepOutcome::JobEnded(view) if !view.run.exit.is_success() => view.run.exit,
            StepOutcome::Refused(_) | StepOutcome::JobEnded(_) => ExitCode::status(1),
        }
    }
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
    /// The user typed Ctrl-C at this client's terminal.
    fn interrupted(&mut self);
    /// A line for the user.
    fn say(&mut self, line: &str);
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
    let (job, tasks, kill_on_bad_exit) = (launch.job, launch.streams.len(), launch.request.kill_on_bad_exit);
    let signals = Signals::take()?;
    let (ends, send) = connect(&mut launch, wishes)?;
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
        keyboard: Keyboard::default(),
        launch: Some(Launch { request: launch, env, fds: send }),
        away: None,
        interrupted: None,
        first_end: None,
        ended: vec![None; tasks],
        kill_on_bad_exit,
        aborted: false,
        stop_wanted: false,
        signals_sent: VecDeque::new(),
        waited: false,
        share: None,
    };
    listener.raw(raw.is_some());
    let outcome = session.ask(false).and_then(|()| session.run(listener));
    session.launch = None;
    session.drain();
    session.signals.stay();
    if wishes.pty && matches!(&outcome, Ok(StepOutcome::Ended { exit, .. }) if exit.signal == libc::SIGINT) {
        listener.interrupted();
    }
    drop(raw);
    listener.raw(false);
    outcome
}

/// What the daemon was asked for, until the step is known to run: a daemon that dies before is asked again.
struct Launch<'a> {
    request: StepLaunch,
    env: &'a [u8],
    /// The tasks' ends of the streams.
    fds: Vec<OwnedFd>,
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
    keyboard: Keyboard,
    launch: Option<Launch<'a>>,
    /// The daemon is gone, and this tells of its return.
    away: Option<Return>,
    interrupted: Option<Instant>,
    first_end: Option<Instant>,
    /// By rank: how they ended, as far as they did.
    ended: Vec<Option<ExitCode>>,
    /// The step's watcher ends the step when a task fails.
    kill_on_bad_exit: bool,
    /// The daemon told the step to end.
    aborted: bool,
    /// The step is to be ended: the next daemon is asked again.
    stop_wanted: bool,
    /// Signals for the tasks that the daemon has not acknowledged.
    signals_sent: VecDeque<i32>,
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
            while self.away.is_none() {
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
                    Source::Stdin => self.read_stdin()?,
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
            // A new daemon has it wait again.
            Answer::StepWaits if self.waited => {}
            Answer::StepWaits => {
                self.waited = true;
                listener.waits(self.job);
            }
            Answer::StepLost => self.ask(true)?,
            Answer::Signalled => drop(self.signals_sent.pop_front()),
            Answer::StepStarted { step, .. } => {
                self.step = Some(step);
                self.launch = None;
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
            Answer::Refused(why) => return Ok(Some(StepOutcome::Refused(why))),
            Answer::Ended { view } => {
                // The end of the step itself may still be on its way: it was told first if it was known first.
                return Ok(Some(StepOutcome::JobEnded(view)));
            }
            Answer::Granted { view } if view.run.state.is_terminal() => return Ok(Some(StepOutcome::JobEnded(view))),
            _ => {}
        }
        Ok(None)
    }

    /// Blocks until something can be done. Empty: the time of `--wait` is over.
    fn wait(&mut self) -> Result<Vec<Source>, ClientError> {
        let mut entries: Vec<(BorrowedFd<'_>, PollFlags, Source)> = Vec::new();
        let daemon = match &self.away {
            Some(back) => back.as_fd(),
            None => self.conn.as_fd(),
        };
        entries.push((daemon, PollFlags::POLLIN, Source::Daemon));
        entries.push((self.signals.fd.as_fd(), PollFlags::POLLIN, Source::Signals));
        let stdin = io::stdin();
        let hungry = self.ends.inputs.iter().all(|input| input.is_closed || input.pending.is_empty());
        let relayed = !self.ends.inputs.is_empty() || self.ends.master.is_some();
        if self.stdin_open && relayed && hungry && self.step.is_some() {
            entries.push((self.keyboard.source(stdin.as_fd()), PollFlags::POLLIN, Source::Stdin));
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
        if let Some(back) = &self.away {
            back.clear();
            return self.come_back();
        }
        if matches!(self.conn.fill(), Ok(true)) { Ok(()) } else { self.lose() }
    }

    /// The daemon is gone: from now on its return is waited for.
    fn lose(&mut self) -> Result<(), ClientError> {
        self.away = Some(Return::watch(&self.link.paths)?);
        self.come_back()
    }

    /// Asks the daemon to launch the step, a second time or not.
    fn ask(&mut self, again: bool) -> Result<(), ClientError> {
        let Some(Launch { request, env, fds }) = &self.launch else { return Ok(()) };
        let request = Request::LaunchStep(Box::new(StepLaunch { again, ..request.clone() }));
        let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        match self.conn.send_with_fds(&request, env, &fds) {
            Err(ClientError::Broken(FrameError::Io(_))) => self.lose(),
            other => other,
        }
    }

    /// Connects to the daemon that has come back, if it has: to its step, or to ask for it again.
    fn come_back(&mut self) -> Result<(), ClientError> {
        let Ok(mut fresh) = Connection::open(&self.link.paths) else { return Ok(()) };
        let holds = self.link.allocation.is_some();
        if holds || self.launch.is_none() {
            let attach = Request::Attach { job: self.job, client: self.link.client, step: self.step, holds };
            fresh.send(&attach, &[])?;
        }
        *self.conn = fresh;
        self.away = None;
        self.ask(true)?;
        for signal in std::mem::take(&mut self.signals_sent) {
            self.signal(signal)?;
        }
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
        self.stop_wanted = true;
        if self.away.is_none() {
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
        let Some(step) = self.step else { return Ok(()) };
        self.signals_sent.push_back(signal);
        if self.away.is_some() {
            return Ok(());
        }
        self.conn.send(&Request::SignalStep { step: StepKey { job: self.job, step }, signal }, &[])
    }

    fn signalled(&mut self, listener: &mut dyn Listener) -> Result<(), ClientError> {
        while let Ok(Some(info)) = self.signals.fd.read_signal() {
            let number = info.ssi_signo as i32;
            if signals::is_typed_interrupt(&info) {
                listener.interrupted();
            }
            match number {
                libc::SIGWINCH => {
                    if let (Some(master), Some(size)) = (&self.ends.master, terminal::window(io::stdin().as_fd())) {
                        terminal::set_window(master.as_fd(), size);
                    }
                }
                libc::SIGCONT => {
                    self.keyboard.is_ours(io::stdin().as_fd())?;
                    self.signal(number)?;
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
                        if self.away.is_some() {
                            // Nobody else is there to end it: its watcher does, once this process is gone.
                            return Err(ClientError::Interrupted(number));
                        }
                        self.stop()?;
                    }
                }
                libc::SIGHUP | libc::SIGTERM if self.step.is_none() => return Err(ClientError::Interrupted(number)),
                other => self.signal(other)?,
            }
        }
        Ok(())
    }

    fn read_stdin(&mut self) -> io::Result<()> {
        if !self.keyboard.is_ours(io::stdin().as_fd())? {
            return Ok(());
        }
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
        Ok(())
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
