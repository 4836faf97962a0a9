//! A step from its launch to its end, as its client sees it.

use super::connect::{StepOptions, connect};
use super::signals::{Signals, ends_client, is_typed_interrupt};
use super::streams::{ClientStreams, StreamEvent};
use super::{Caller, StepObserver, StepOutcome};
use crate::client::connection::{ClientError, Connection, watch_for_daemon};
use crate::client::terminal::Raw;
use crate::client::watch::FileWatch;
use crate::exec::launch_spec::{SignalScope, StepCommand, StepEvent};
use crate::model::query::JobQuery;
use crate::model::{ExitCode, ExitRecord, JobId, JobRef, StepId, StepKey, TaskSet};
use crate::protocol::answer::Answer;
use crate::protocol::frame::FrameError;
use crate::protocol::request::{CancelAsk, Request, StepLaunch};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Two Ctrl-C within this time while the tasks do not react end the step.
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);

/// Launches a step and serves it until it is over.
///
/// # Errors
/// The daemon cannot be asked, or the streams cannot be made.
pub fn run_step(
    conn: &mut Connection,
    caller: &Caller,
    mut launch: StepLaunch,
    env: &[u8],
    options: &StepOptions,
    observer: &mut dyn StepObserver,
) -> Result<StepOutcome, ClientError> {
    let (job, kill_on_bad_exit) = (launch.job, launch.request.kill_on_bad_exit);
    let signals = Signals::take()?;
    let (streams, send) = connect(&mut launch, options).map_err(ClientError::Streams)?;
    let stdin = io::stdin();
    let raw = match streams.master {
        Some(_) => Raw::enter(stdin.as_fd()).ok(),
        None => None,
    };
    let mut step = Foreground {
        conn,
        caller,
        job,
        step: None,
        streams,
        signals,
        options: *options,
        ended: vec![None; launch.streams.len().max(1)],
        launch: Some(Launch { request: launch, env, fds: send }),
        away: None,
        runs: false,
        gave_up: false,
        unheard: VecDeque::new(),
        interrupted: None,
        first_end: None,
        kill_on_bad_exit,
        aborted: false,
        stop_wanted: false,
        waits: false,
        early_signals: Vec::new(),
    };
    observer.raw(raw.is_some());
    let outcome = step.ask(false).and_then(|()| step.run(observer));
    step.launch = None;
    step.streams.drain();
    // A key press that came together with the end counts: the tasks may have died of it, through
    // another client.
    let typed = step.signals.typed_interrupt_waits();
    step.signals.keep_blocked();
    let died_of_it = matches!(&outcome, Ok(StepOutcome::Ended { record, .. }) if record.exit.signal == libc::SIGINT);
    if typed || (options.pty && died_of_it) {
        observer.interrupted();
    }
    drop(raw);
    observer.raw(false);
    outcome
}

/// What the daemon was asked for, until the step is known to run: a daemon that dies before is
/// asked again.
struct Launch<'a> {
    request: StepLaunch,
    env: &'a [u8],
    /// The tasks' ends of the streams.
    fds: Vec<OwnedFd>,
}

struct Foreground<'a> {
    conn: &'a mut Connection,
    caller: &'a Caller,
    job: JobId,
    /// Known once it runs.
    step: Option<StepId>,
    streams: ClientStreams,
    signals: Signals,
    options: StepOptions,
    launch: Option<Launch<'a>>,
    /// The daemon is gone, and this tells of its return.
    away: Option<FileWatch>,
    /// Its tasks have started.
    runs: bool,
    /// A signal came after the end of the watcher: a daemon that does not tell how the step ended
    /// is not waited for.
    gave_up: bool,
    /// News of the step's watcher. The daemon tells the same when it is written down, and has its
    /// turn while it is there.
    unheard: VecDeque<StepEvent>,
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
    /// The step waits for other steps of its allocation.
    waits: bool,
    /// Signals that came while the step was being started, for its tasks.
    early_signals: Vec<i32>,
}

/// What a poll entry stands for.
#[derive(Clone, Copy)]
enum Event {
    Daemon,
    Watcher,
    Signals,
    Stream(StreamEvent),
}

impl Foreground<'_> {
    fn run(&mut self, observer: &mut dyn StepObserver) -> Result<StepOutcome, ClientError> {
        loop {
            while self.away.is_none() {
                let Some(answer) = self.conn.next_whole()? else { break };
                if let Some(outcome) = self.answered(answer, observer)? {
                    return Ok(outcome);
                }
            }
            if (self.away.is_some() || self.gave_up)
                && let Some(record) = self.hear(observer)
            {
                return Ok(StepOutcome::Ended { step: self.step, record, stopped: self.aborted });
            }
            let ready = self.wait()?;
            if ready.is_empty() {
                // The time after the first task's end (`--wait`) is over.
                self.first_end = None;
                self.report(observer);
                self.stop()?;
            }
            for event in ready {
                match event {
                    Event::Daemon => self.daemon_ready()?,
                    Event::Watcher => self.watcher_ready(observer)?,
                    Event::Signals => self.signalled(observer)?,
                    Event::Stream(event) => self.streams.handle(event)?,
                }
            }
            self.streams.tidy();
        }
    }

    fn answered(
        &mut self,
        answer: Answer,
        observer: &mut dyn StepObserver,
    ) -> Result<Option<StepOutcome>, ClientError> {
        match answer {
            // A new daemon has it wait again.
            Answer::StepWaits if self.waits => {}
            Answer::StepWaits => {
                self.waits = true;
                observer.waits(self.job);
                self.end_if_asked()?;
            }
            Answer::StepLost if self.launch.is_none() => self.end_if_asked()?,
            Answer::StepLost => self.ask(true)?,
            Answer::StepStarted { step, .. } => self.started(step, observer)?,
            Answer::TaskEnded { task, exit } => self.task_ended(task, exit, observer),
            Answer::StepStopping { wait_secs } if !self.aborted => {
                self.aborted = true;
                self.first_end = None;
                observer.aborted(wait_secs);
            }
            Answer::StepEnded(record) => {
                let stopped = self.aborted;
                return Ok(Some(StepOutcome::Ended { step: self.step, record, stopped }));
            }
            Answer::Refused(why) => return Ok(Some(StepOutcome::Refused(why))),
            // The end of the step itself may still be on its way: it was told first if it was known
            // first.
            Answer::Ended { view } => return Ok(Some(StepOutcome::JobEnded(view))),
            Answer::Granted { view } if view.run.state.is_terminal() => {
                return Ok(Some(StepOutcome::JobEnded(view)));
            }
            _ => {}
        }
        Ok(None)
    }

    fn started(
        &mut self,
        step: StepId,
        observer: &mut dyn StepObserver,
    ) -> Result<(), ClientError> {
        self.step = Some(step);
        self.launch = None;
        let tasks = u32::try_from(self.ended.len()).unwrap_or(1);
        self.streams.open_share(&self.caller.paths.job_dir(self.job), step, tasks);
        if std::mem::take(&mut self.waits) {
            observer.started(self.job);
        }
        self.runs = true;
        self.forward_early(observer)
    }

    fn forward_early(&mut self, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        for signal in std::mem::take(&mut self.early_signals) {
            self.forward(signal, observer)?;
        }
        Ok(())
    }

    fn watcher_ready(&mut self, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        let Some(client_line) = &mut self.streams.client_line else { return Ok(()) };
        let (events, is_there) = client_line.hear();
        // After its last word it is gone, though somebody who stands still may hold its end of the
        // line open.
        if !is_there || events.iter().any(|event| matches!(event, StepEvent::Ended(_))) {
            self.streams.client_line = None;
        }
        for event in events {
            if matches!(event, StepEvent::Started { .. }) {
                self.runs = true;
                self.forward_early(observer)?;
            } else {
                self.unheard.push_back(event);
            }
        }
        let is_alone = self.away.is_some() && self.streams.client_line.is_none();
        if is_alone && !self.runs && !self.has_ended() { self.end_if_asked() } else { Ok(()) }
    }

    /// Whether the watcher has told the end of the step.
    fn has_ended(&self) -> bool {
        self.unheard.iter().any(|event| matches!(event, StepEvent::Ended(_)))
    }

    /// What the watcher has told, where no daemon will: how the step ended, if it has.
    fn hear(&mut self, observer: &mut dyn StepObserver) -> Option<Box<ExitRecord>> {
        while let Some(event) = self.unheard.pop_front() {
            match event {
                StepEvent::TaskEnded { rank, exit } => self.task_ended(rank, exit, observer),
                StepEvent::Ended(record) => return Some(Box::new(record)),
                StepEvent::Started { .. }
                | StepEvent::Usage(_)
                | StepEvent::Stays
                | StepEvent::Refused(_) => {}
            }
        }
        None
    }

    /// Both the daemon and the watcher tell of it.
    fn task_ended(&mut self, task: u32, exit: ExitCode, observer: &mut dyn StepObserver) {
        if self.ended.get(task as usize).is_none_or(Option::is_some) {
            return;
        }
        if !self.aborted {
            self.first_end.get_or_insert_with(Instant::now);
        }
        if self.kill_on_bad_exit
            && !exit.is_success()
            && self.ended.iter().flatten().all(|e| e.is_success())
        {
            observer.say(&format!("Terminating StepId={}", self.name()));
        }
        if let Some(ended) = self.ended.get_mut(task as usize) {
            *ended = Some(exit);
        }
    }

    /// Blocks until something can be done. Empty: the time of `--wait` is over.
    fn wait(&mut self) -> Result<Vec<Event>, ClientError> {
        let daemon = match &self.away {
            Some(back) => back.as_fd(),
            None => self.conn.as_fd(),
        };
        let stdin = io::stdin();
        let mut entries: Vec<(BorrowedFd<'_>, PollFlags, Event)> = vec![
            (daemon, PollFlags::POLLIN, Event::Daemon),
            (self.signals.fd.as_fd(), PollFlags::POLLIN, Event::Signals),
        ];
        if let Some(client_line) = &self.streams.client_line {
            entries.push((client_line.as_fd(), PollFlags::POLLIN, Event::Watcher));
        }
        let streams = self.streams.poll_entries(stdin.as_fd(), self.runs);
        entries.extend(
            streams.into_iter().map(|(fd, flags, event)| (fd, flags, Event::Stream(event))),
        );
        let mut fds: Vec<PollFd<'_>> =
            entries.iter().map(|(fd, flags, _)| PollFd::new(*fd, *flags)).collect();
        let timeout = match (self.options.wait_secs, self.first_end) {
            (Some(secs), Some(first)) if secs > 0 => {
                let left = Duration::from_secs(secs).saturating_sub(first.elapsed());
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
            _ => PollTimeout::NONE,
        };
        while let Err(e) = poll(&mut fds, timeout) {
            if e != Errno::EINTR {
                return Err(io::Error::from(e).into());
            }
        }
        // From the back: a stream that has ended is taken out of its list. Signals before the
        // daemon's news.
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|r| !r.is_empty());
        let ready = entries
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| is_ready(fd))
            .map(|((_, _, event), _)| *event);
        Ok(ready.rev().collect())
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
        self.away = Some(watch_for_daemon(&self.caller.paths)?);
        if !self.runs {
            self.ask_no_more()?;
        }
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
        let Ok(mut fresh) = Connection::open(&self.caller.paths) else { return Ok(()) };
        let holds = self.caller.allocation.is_some();
        if holds || self.launch.is_none() {
            let attach = Request::Attach {
                job: self.job,
                client: self.caller.client,
                step: self.step,
                holds,
            };
            match fresh.send(&attach, &[]) {
                // It is gone again: the next one is waited for.
                Err(ClientError::Broken(FrameError::Io(_))) => return Ok(()),
                other => other?,
            }
        }
        *self.conn = fresh;
        self.away = None;
        self.ask(true)?;
        if self.stop_wanted { self.stop() } else { Ok(()) }
    }

    /// `12.0`.
    fn name(&self) -> StepKey {
        StepKey { job: self.job, step: self.step.unwrap_or(StepId::Num(0)) }
    }

    /// Slurm's lines before the end of `--wait`: which tasks still run.
    fn report(&self, observer: &mut dyn StepObserver) {
        let name = self.name();
        observer.say(&format!("First task exited {}s ago", self.options.wait_secs.unwrap_or(0)));
        for (word, over) in [("running", false), ("exited", true)] {
            let ranks: Vec<u32> = (0..)
                .zip(&self.ended)
                .filter(|(_, end)| end.is_some() == over)
                .map(|(rank, _)| rank)
                .collect();
            if !ranks.is_empty() {
                let plural = if ranks.len() > 1 { "tasks" } else { "task" };
                observer.say(&format!(
                    "StepId={name} {plural} {}: {word}",
                    TaskSet::from_sorted(&ranks)
                ));
            }
        }
        observer.say(&format!("Terminating StepId={name}"));
    }

    /// Has the daemon kill the step; where it is away, the watcher, and the daemon when it is back.
    fn stop(&mut self) -> Result<(), ClientError> {
        self.stop_wanted = true;
        if self.away.is_some() {
            return self.tell_watcher(&StepCommand::KillAll, libc::SIGKILL);
        }
        if let Some(step) = self.step {
            let ask = CancelAsk {
                query: JobQuery::of(vec![JobRef { job: self.job, tasks: None, step: Some(step) }]),
                signal: Some(libc::SIGKILL),
                uid: nix::unistd::getuid().as_raw(),
                ..CancelAsk::default()
            };
            self.conn.send(&Request::Cancel(ask), &[])?;
        }
        Ok(())
    }

    fn signal(&mut self, signal: i32) -> Result<(), ClientError> {
        self.tell_watcher(&StepCommand::Signal { signal, target: SignalScope::Tasks }, signal)
    }

    /// Tells the watcher of a step that runs. Where it is gone the step has ended, and a signal
    /// that ends clients ends the wait for the daemon's word about it.
    fn tell_watcher(&mut self, command: &StepCommand, signal: i32) -> Result<(), ClientError> {
        let is_told =
            self.streams.client_line.as_mut().is_some_and(|client_line| client_line.tell(command));
        if is_told || !(ends_client(signal) || signal == libc::SIGKILL) {
            return Ok(());
        }
        self.gave_up = true;
        if self.away.is_some() && !self.has_ended() {
            Err(ClientError::Interrupted(signal))
        } else {
            Ok(())
        }
    }

    fn signalled(&mut self, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        while let Ok(Some(info)) = self.signals.fd.read_signal() {
            let number = info.ssi_signo as i32;
            if is_typed_interrupt(&info) {
                observer.interrupted();
            }
            match number {
                libc::SIGWINCH => self.streams.resize(),
                libc::SIGCONT => {
                    self.streams.keyboard.is_ours(io::stdin().as_fd())?;
                    if self.runs {
                        self.signal(number)?;
                    }
                }
                early if !self.runs => self.signalled_early(early)?,
                other => self.forward(other, observer)?,
            }
        }
        Ok(())
    }

    /// A signal before the step is known to run. While it is being started its tasks may run
    /// already: they get the signal as soon as they can be named. Where it waits, or the daemon is
    /// away, nothing runs.
    fn signalled_early(&mut self, signal: i32) -> Result<(), ClientError> {
        let is_second =
            ends_client(signal) && self.early_signals.iter().any(|early| ends_client(*early));
        self.early_signals.push(signal);
        if is_second || (self.away.is_none() && self.waits) {
            return self.end_if_asked();
        }
        if self.away.is_some() { self.ask_no_more() } else { Ok(()) }
    }

    /// To be called where no daemon is there to tell whether the step runs. After a signal that
    /// ends clients it is not asked for again. Its watcher may be about to say that it has started,
    /// and gets the signal then; where it has none, the line to it ends, now that this end of it is
    /// closed here.
    fn ask_no_more(&mut self) -> Result<(), ClientError> {
        if self.early_signals.iter().any(|early| ends_client(*early)) {
            self.launch = None;
        }
        if self.streams.client_line.is_none() { self.end_if_asked() } else { Ok(()) }
    }

    /// To be called where nothing of the step runs: ends this client where a signal asked for it,
    /// and with its connection the request. Other signals have nobody to go to.
    fn end_if_asked(&mut self) -> Result<(), ClientError> {
        let early = std::mem::take(&mut self.early_signals);
        early
            .into_iter()
            .find(|signal| ends_client(*signal))
            .map_or(Ok(()), |signal| Err(ClientError::Interrupted(signal)))
    }

    fn forward(&mut self, signal: i32, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        if signal == libc::SIGINT { self.interrupt(observer) } else { self.signal(signal) }
    }

    /// The tasks get the signal; a second one soon after it ends them.
    fn interrupt(&mut self, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        let again = self.interrupted.is_some_and(|at| at.elapsed() < SECOND_INTERRUPT);
        self.interrupted = Some(Instant::now());
        self.signal(libc::SIGINT)?;
        if again || self.options.quit_on_interrupt {
            observer.say("forcing job termination");
            self.stop()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::foreground::StreamTasks;
    use crate::exec::wire;
    use crate::model::job::ClientProcess;
    use crate::protocol::frame::{Decoder, Frame, Header};
    use crate::sys::paths::Paths;
    use crate::sys::socket::receive;
    use nix::sys::socket::{Shutdown, shutdown};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::os::unix::thread::JoinHandleExt;
    use std::thread;

    struct Silent;

    impl StepObserver for Silent {
        fn waits(&mut self, _: JobId) {}
        fn started(&mut self, _: JobId) {}
        fn aborted(&mut self, _: u64) {}
        fn raw(&mut self, _: bool) {}
        fn interrupted(&mut self) {}
        fn say(&mut self, _: &str) {}
    }

    /// The other end of a client that runs a step, in place of the daemon.
    struct Daemon {
        socket: UnixStream,
        requests: Decoder,
        /// The descriptors of the launch: first the client's line to the watcher.
        fds: Vec<OwnedFd>,
        client: thread::JoinHandle<Result<StepOutcome, ClientError>>,
        _root: tempfile::TempDir,
    }

    impl Daemon {
        /// With the launch read.
        fn of_a_launch() -> Daemon {
            let root = tempfile::tempdir().unwrap();
            let paths = Paths::new(root.path());
            std::fs::create_dir(paths.run_dir()).unwrap();
            let listener = UnixListener::bind(paths.socket()).unwrap();
            // A thread of its own: the signals are blocked there alone.
            let client = thread::spawn(move || {
                let client = ClientProcess { pid: std::process::id(), ..ClientProcess::default() };
                let mut conn = Connection::open(&paths).unwrap();
                let caller = Caller { paths, allocation: None, client };
                let nobody = StreamTasks::Nobody;
                let options = StepOptions {
                    stdin: nobody,
                    stdout: nobody,
                    stderr: nobody,
                    ..StepOptions::default()
                };
                let launch = StepLaunch {
                    job: JobId(1),
                    client,
                    uid: nix::unistd::getuid().as_raw(),
                    again: false,
                    request: Default::default(),
                    argv: Vec::new(),
                    work_dir: String::new(),
                    umask: None,
                    rlimits: Default::default(),
                    streams: Vec::new(),
                    pty: false,
                    client_line: None,
                    label: false,
                };
                run_step(&mut conn, &caller, launch, &[], &options, &mut Silent)
            });
            let socket = listener.accept().unwrap().0;
            // Not by drop: a process that another test forks may hold it a moment longer, and the
            // client would take it for the next daemon.
            shutdown(listener.as_raw_fd(), Shutdown::Both).unwrap();
            let requests = Decoder::new(Header::REQUEST);
            let mut daemon = Daemon { socket, requests, fds: Vec::new(), client, _root: root };
            assert!(matches!(daemon.request(), Request::LaunchStep(_)));
            daemon
        }

        fn request(&mut self) -> Request {
            let mut chunk = [0; 4096];
            loop {
                if let Some(frame) = self.requests.next_frame().unwrap() {
                    return frame.message().unwrap();
                }
                let n = receive(&self.socket, &mut chunk, &mut self.fds).unwrap();
                assert!(n > 0, "the client is gone");
                self.requests.push(&chunk[..n]);
            }
        }

        fn tell(&mut self, answer: Answer) {
            self.socket.write_all(&Frame::encode(&answer, &[]).unwrap()).unwrap();
        }

        fn interrupt(&self) {
            // SAFETY: the thread was not joined yet, and blocks this signal.
            assert_eq!(unsafe { libc::pthread_kill(self.client.as_pthread_t(), libc::SIGINT) }, 0);
        }

        /// The watcher's end of the line.
        fn watcher(&mut self) -> Watcher {
            Watcher { line: UnixStream::from(self.fds.remove(0)), commands: wire::decoder() }
        }

        /// It is gone, and no other comes.
        fn die(self) -> Orphan {
            Orphan { client: self.client, _root: self._root }
        }
    }

    /// A client without a daemon.
    struct Orphan {
        client: thread::JoinHandle<Result<StepOutcome, ClientError>>,
        _root: tempfile::TempDir,
    }

    impl Orphan {
        fn signal(&self, signal: i32) {
            // SAFETY: the thread was not joined yet, and blocks this signal.
            assert_eq!(unsafe { libc::pthread_kill(self.client.as_pthread_t(), signal) }, 0);
        }

        fn end(self) -> Result<StepOutcome, ClientError> {
            self.client.join().unwrap()
        }
    }

    struct Watcher {
        line: UnixStream,
        commands: Decoder,
    }

    impl Watcher {
        fn command(&mut self) -> StepCommand {
            let mut chunk = [0; 4096];
            loop {
                if let Some(command) = wire::next_message(&mut self.commands).unwrap() {
                    return command;
                }
                let n = self.line.read(&mut chunk).unwrap();
                assert!(n > 0, "the client is gone");
                self.commands.push(&chunk[..n]);
            }
        }

        fn tell(&mut self, event: StepEvent) {
            self.line.write_all(&wire::encode(&event).unwrap()).unwrap();
        }
    }

    #[test]
    fn an_interrupt_while_the_step_is_started_is_its_tasks() {
        let mut daemon = Daemon::of_a_launch();
        let mut watcher = daemon.watcher();
        daemon.interrupt();
        daemon.tell(Answer::StepStarted { step: StepId::Num(0), pids: Vec::new() });
        assert_eq!(
            watcher.command(),
            StepCommand::Signal { signal: libc::SIGINT, target: SignalScope::Tasks }
        );
        let exit = ExitCode::signal(libc::SIGINT);
        daemon.tell(Answer::StepEnded(Box::new(ExitRecord {
            exit,
            tasks: vec![exit],
            ..ExitRecord::default()
        })));
        let outcome = daemon.client.join().unwrap().unwrap();
        assert_eq!(outcome.exit(), exit);
    }

    /// A step that runs with no daemon: its client, and its watcher.
    fn orphaned() -> (Orphan, Watcher) {
        let mut daemon = Daemon::of_a_launch();
        let watcher = daemon.watcher();
        daemon.tell(Answer::StepStarted { step: StepId::Num(0), pids: Vec::new() });
        (daemon.die(), watcher)
    }

    #[test]
    fn the_end_of_a_step_is_heard_from_its_watcher_where_no_daemon_comes_back() {
        let (client, mut watcher) = orphaned();
        let exit = ExitCode::status(7);
        watcher.tell(StepEvent::TaskEnded { rank: 0, exit });
        watcher.tell(StepEvent::Ended(ExitRecord {
            exit,
            tasks: vec![exit],
            ..ExitRecord::default()
        }));
        drop(watcher);
        assert_eq!(client.end().unwrap().exit(), exit);
    }

    #[test]
    fn signals_reach_a_step_that_has_no_daemon() {
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
            let (client, mut watcher) = orphaned();
            client.signal(signal);
            assert_eq!(
                watcher.command(),
                StepCommand::Signal { signal, target: SignalScope::Tasks }
            );
            let exit = ExitCode::signal(signal);
            watcher.tell(StepEvent::Ended(ExitRecord { exit, ..ExitRecord::default() }));
            assert_eq!(client.end().unwrap().exit(), exit);
        }
    }

    #[test]
    fn a_signal_ends_a_client_that_has_neither_daemon_nor_watcher() {
        let (client, watcher) = orphaned();
        drop(watcher);
        while !client.client.is_finished() {
            client.signal(libc::SIGTERM);
            thread::yield_now();
        }
        let outcome = client.end();
        assert!(matches!(outcome, Err(ClientError::Interrupted(libc::SIGTERM))), "{outcome:?}");
    }

    fn started() -> StepEvent {
        let started = crate::model::Timestamp::default();
        StepEvent::Started {
            pid: 1,
            start_ticks: 1,
            task_pids: vec![1],
            started,
            started_us: None,
            suspended: false,
        }
    }

    /// A client whose daemon died while the step was being started, and the watcher that may have
    /// it.
    fn unstarted() -> (Orphan, Watcher) {
        let mut daemon = Daemon::of_a_launch();
        let watcher = daemon.watcher();
        (daemon.die(), watcher)
    }

    #[test]
    fn a_signal_reaches_a_step_that_starts_without_a_daemon() {
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            let (client, mut watcher) = unstarted();
            client.signal(signal);
            watcher.tell(started());
            assert_eq!(
                watcher.command(),
                StepCommand::Signal { signal, target: SignalScope::Tasks }
            );
            let exit = ExitCode::signal(signal);
            watcher.tell(StepEvent::Ended(ExitRecord { exit, ..ExitRecord::default() }));
            assert_eq!(client.end().unwrap().exit(), exit);
        }
    }

    #[test]
    fn a_signal_ends_a_client_whose_step_has_neither_daemon_nor_watcher_to_start_it() {
        let (client, watcher) = unstarted();
        client.signal(libc::SIGTERM);
        drop(watcher);
        let outcome = client.end();
        assert!(matches!(outcome, Err(ClientError::Interrupted(libc::SIGTERM))), "{outcome:?}");
    }

    #[test]
    fn an_interrupt_ends_the_client_of_a_step_that_waits() {
        let mut daemon = Daemon::of_a_launch();
        daemon.interrupt();
        daemon.tell(Answer::StepWaits);
        let outcome = daemon.client.join().unwrap();
        assert!(matches!(outcome, Err(ClientError::Interrupted(libc::SIGINT))), "{outcome:?}");
    }

    #[test]
    fn a_second_interrupt_ends_a_client_whose_step_does_not_start() {
        let daemon = Daemon::of_a_launch();
        while !daemon.client.is_finished() {
            daemon.interrupt();
            thread::yield_now();
        }
        let outcome = daemon.client.join().unwrap();
        assert!(matches!(outcome, Err(ClientError::Interrupted(libc::SIGINT))), "{outcome:?}");
    }
}
