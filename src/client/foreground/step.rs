//! Runs a step from launch to end, from its client's point of view.

use super::connect::{StepOptions, connect};
use super::signals::{Signals, ends_client, is_typed_interrupt};
use super::streams::{ClientStreams, StreamEvent};
use super::{Caller, StepObserver, StepOutcome};
use crate::client::connection::{ClientError, Connection, watch_for_daemon};
use crate::client::terminal::Raw;
use crate::client::watch::FileWatch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_exec::launch_spec::{SignalScope, StepCommand, StepEvent};
use slotd_model::query::JobQuery;
use slotd_model::{ExitCode, ExitRecord, JobId, JobRef, StepId, StepKey, TaskSet};
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::FrameError;
use slotd_protocol::request::{CancelAsk, Request, StepLaunch};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A second Ctrl-C within this time ends the step even if the tasks ignore the signal.
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);

/// Launches a step and serves it until it ends.
///
/// # Errors
/// Fails if the daemon cannot be reached or the streams cannot be set up.
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
        watcher_events: VecDeque::new(),
        interrupted: None,
        first_end: None,
        kill_on_bad_exit,
        aborted: false,
        stop_wanted: false,
        waits: false,
        early_signals: Vec::new(),
    };
    observer.raw(raw.is_some());
    let mut outcome = step.ask(false).and_then(|()| step.run(observer));
    step.launch = None;
    step.streams.drain();
    if let Ok(StepOutcome::Ended { lost_output, .. }) = &mut outcome {
        *lost_output = step.streams.fault.take();
    }
    // Report Ctrl-C pressed at the same time as the end: it may have killed the tasks through
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

/// The launch request, kept until the step runs. If the daemon dies earlier, it is sent to the next
/// daemon.
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
    /// Set once the step runs.
    step: Option<StepId>,
    streams: ClientStreams,
    signals: Signals,
    options: StepOptions,
    launch: Option<Launch<'a>>,
    /// Watches for the daemon's return while it is down.
    away: Option<FileWatch>,
    /// The tasks have started.
    runs: bool,
    /// A signal arrived after the watcher exited. If the daemon does not report how the step ended,
    /// this client no longer waits for it.
    gave_up: bool,
    /// Events from the step's watcher. The daemon reports the same events once they are recorded,
    /// so they are used only while it is down.
    watcher_events: VecDeque<StepEvent>,
    interrupted: Option<Instant>,
    first_end: Option<Instant>,
    /// The exit code of each task that has ended, by rank.
    ended: Vec<Option<ExitCode>>,
    /// The step's watcher ends the step when a task fails.
    kill_on_bad_exit: bool,
    /// The daemon asked the step to end.
    aborted: bool,
    /// The step is to be killed. The request is repeated to the next daemon.
    stop_wanted: bool,
    /// The step waits for other steps of its allocation.
    waits: bool,
    /// Signals for the tasks that arrived while the step was starting.
    early_signals: Vec<i32>,
}

/// The source of a poll entry.
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
                && let Some(record) = self.take_watcher_events(observer)
            {
                return Ok(self.ended_with(record));
            }
            let ready = self.wait()?;
            if ready.is_empty() {
                // The time limit after the first task's end (`--wait`) has passed.
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

    /// Returns the outcome of the step, before its remaining output has been relayed.
    fn ended_with(&self, record: Box<ExitRecord>) -> StepOutcome {
        StepOutcome::Ended { step: self.step, record, stopped: self.aborted, lost_output: None }
    }

    fn answered(
        &mut self,
        answer: Answer,
        observer: &mut dyn StepObserver,
    ) -> Result<Option<StepOutcome>, ClientError> {
        match answer {
            // A new daemon reports again that the step waits.
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
            Answer::StepEnded(record) => return Ok(Some(self.ended_with(record))),
            Answer::Refused(why) => return Ok(Some(StepOutcome::Refused(why))),
            // Do not wait for the end of the step: the daemon would have reported it first if it
            // had preceded the end of the job.
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
        // The watcher exits after its last event, but a hanging process may keep its end of the
        // connection open.
        if !is_there || events.iter().any(|event| matches!(event, StepEvent::Ended(_))) {
            self.streams.client_line = None;
        }
        for event in events {
            if matches!(event, StepEvent::Started { .. }) {
                self.runs = true;
                self.forward_early(observer)?;
            } else {
                self.watcher_events.push_back(event);
            }
        }
        let is_alone = self.away.is_some() && self.streams.client_line.is_none();
        if is_alone && !self.runs && !self.has_ended() { self.end_if_asked() } else { Ok(()) }
    }

    /// Returns whether the watcher has reported the end of the step.
    fn has_ended(&self) -> bool {
        self.watcher_events.iter().any(|event| matches!(event, StepEvent::Ended(_)))
    }

    /// Processes the watcher's events while no daemon is running. Returns the exit record if the
    /// step has ended.
    fn take_watcher_events(&mut self, observer: &mut dyn StepObserver) -> Option<Box<ExitRecord>> {
        while let Some(event) = self.watcher_events.pop_front() {
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

    /// Called for reports of both the daemon and the watcher; only the first one counts.
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
            observer.report(&format!("Terminating StepId={}", self.name()));
        }
        if let Some(ended) = self.ended.get_mut(task as usize) {
            *ended = Some(exit);
        }
    }

    /// Waits for events. Returns an empty list when the time limit of `--wait` has passed.
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
        // In reverse order, since a stream that has ended is removed from its list. Signals come
        // before messages of the daemon.
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

    /// Handles the loss of the daemon and starts waiting for its return.
    fn lose(&mut self) -> Result<(), ClientError> {
        self.away = Some(watch_for_daemon(&self.caller.paths)?);
        if !self.runs {
            self.ask_no_more()?;
        }
        self.come_back()
    }

    /// Sends the launch request. `again` marks a repeated request.
    fn ask(&mut self, again: bool) -> Result<(), ClientError> {
        let Some(Launch { request, env, fds }) = &self.launch else { return Ok(()) };
        let request = Request::LaunchStep(Box::new(StepLaunch { again, ..request.clone() }));
        let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        match self.conn.send_with_fds(&request, env, &fds) {
            Err(ClientError::Broken(FrameError::Io(_))) => self.lose(),
            other => other,
        }
    }

    /// Connects to the daemon if it is back, and reattaches to the step or sends the launch request
    /// again.
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
                // The daemon has stopped again. Wait for the next one.
                Err(ClientError::Broken(FrameError::Io(_))) => return Ok(()),
                other => other?,
            }
        }
        *self.conn = fresh;
        self.away = None;
        self.ask(true)?;
        if self.stop_wanted { self.stop() } else { Ok(()) }
    }

    /// Returns the step's name, such as `12.0`.
    fn name(&self) -> StepKey {
        StepKey { job: self.job, step: self.step.unwrap_or(StepId::Num(0)) }
    }

    /// Prints Slurm's messages before the end of `--wait`: which tasks are still running.
    fn report(&self, observer: &mut dyn StepObserver) {
        let name = self.name();
        observer.report(&format!("First task exited {}s ago", self.options.wait_secs.unwrap_or(0)));
        for (word, has_ended) in [("running", false), ("exited", true)] {
            let ranks: Vec<u32> = (0..)
                .zip(&self.ended)
                .filter(|(_, end)| end.is_some() == has_ended)
                .map(|(rank, _)| rank)
                .collect();
            if !ranks.is_empty() {
                let plural = if ranks.len() > 1 { "tasks" } else { "task" };
                observer.report(&format!(
                    "StepId={name} {plural} {}: {word}",
                    TaskSet::from_sorted(&ranks)
                ));
            }
        }
        observer.report(&format!("Terminating StepId={name}"));
    }

    /// Has the daemon kill the step. If the daemon is down, has the watcher kill it, and repeats
    /// the request when the daemon is back.
    fn stop(&mut self) -> Result<(), ClientError> {
        self.stop_wanted = true;
        if self.away.is_some() {
            return self.command_watcher(&StepCommand::KillAll, libc::SIGKILL);
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
        self.command_watcher(&StepCommand::Signal { signal, target: SignalScope::Tasks }, signal)
    }

    /// Sends a command to the watcher of a running step. If the watcher has exited, the step has
    /// ended. A signal that would end a client without tasks then ends the wait for the daemon's
    /// report.
    fn command_watcher(&mut self, command: &StepCommand, signal: i32) -> Result<(), ClientError> {
        let is_sent =
            self.streams.client_line.as_mut().is_some_and(|client_line| client_line.send(command));
        if is_sent || !(ends_client(signal) || signal == libc::SIGKILL) {
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

    /// Handles a signal that arrives before the step is known to run. If the step is starting, its
    /// tasks may already be running and receive the signal once the step is known. If it waits or
    /// the daemon is down, nothing is running.
    fn signalled_early(&mut self, signal: i32) -> Result<(), ClientError> {
        let is_second =
            ends_client(signal) && self.early_signals.iter().any(|early| ends_client(*early));
        self.early_signals.push(signal);
        if is_second || (self.away.is_none() && self.waits) {
            return self.end_if_asked();
        }
        if self.away.is_some() { self.ask_no_more() } else { Ok(()) }
    }

    /// Handles a signal while no daemon can report whether the step has started. If it is one that
    /// ends clients, the launch request is not sent again. If the watcher is starting, it reports
    /// the start and then receives the signal. If there is no watcher, the connection to it closes,
    /// since its other end is closed here, and the client ends.
    fn ask_no_more(&mut self) -> Result<(), ClientError> {
        if self.early_signals.iter().any(|early| ends_client(*early)) {
            self.launch = None;
        }
        if self.streams.client_line.is_none() { self.end_if_asked() } else { Ok(()) }
    }

    /// Called when no part of the step is running. If a signal that ends clients has arrived,
    /// returns an error; closing the connection then ends the request. Other signals are discarded.
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

    /// Forwards SIGINT to the tasks. A second one soon afterwards ends them.
    fn interrupt(&mut self, observer: &mut dyn StepObserver) -> Result<(), ClientError> {
        let again = self.interrupted.is_some_and(|at| at.elapsed() < SECOND_INTERRUPT);
        self.interrupted = Some(Instant::now());
        self.signal(libc::SIGINT)?;
        if again || self.options.quit_on_interrupt {
            observer.report("forcing job termination");
            self.stop()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::foreground::StreamTasks;
    use nix::sys::socket::{Shutdown, shutdown};
    use slotd_exec::wire;
    use slotd_model::job::ClientProcess;
    use slotd_protocol::frame::{Decoder, Frame, Header};
    use slotd_sys::paths::Paths;
    use slotd_sys::socket::receive;
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
        fn report(&mut self, _: &str) {}
    }

    /// The daemon's end of the connection to a client that runs a step.
    struct Daemon {
        socket: UnixStream,
        requests: Decoder,
        /// The descriptors of the launch. The first one is the client's connection to the watcher.
        fds: Vec<OwnedFd>,
        client: thread::JoinHandle<Result<StepOutcome, ClientError>>,
        _root: tempfile::TempDir,
    }

    impl Daemon {
        /// Starts a client and reads its launch request.
        fn of_a_launch() -> Daemon {
            let root = tempfile::tempdir().unwrap();
            let paths = Paths::new(root.path());
            std::fs::create_dir(paths.run_dir()).unwrap();
            let listener = UnixListener::bind(paths.socket()).unwrap();
            // The signals are blocked only in this thread.
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
                    ..StepLaunch::default()
                };
                run_step(&mut conn, &caller, launch, &[], &options, &mut Silent)
            });
            let socket = listener.accept().unwrap().0;
            // Shut it down instead of dropping it: a process forked by another test may keep the
            // socket open, and the client would take it for the next daemon.
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
                assert!(n > 0, "the client has exited");
                self.requests.push(&chunk[..n]);
            }
        }

        fn send(&mut self, answer: Answer) {
            self.socket.write_all(&Frame::encode(&answer, &[]).unwrap()).unwrap();
        }

        fn interrupt(&self) {
            // SAFETY: the thread has not been joined and blocks this signal.
            assert_eq!(unsafe { libc::pthread_kill(self.client.as_pthread_t(), libc::SIGINT) }, 0);
        }

        /// Returns the watcher's end of the connection.
        fn watcher(&mut self) -> Watcher {
            Watcher { line: UnixStream::from(self.fds.remove(0)), commands: wire::decoder() }
        }

        /// Closes the connection. No other daemon starts.
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
            // SAFETY: the thread has not been joined and blocks this signal.
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
                assert!(n > 0, "the client has exited");
                self.commands.push(&chunk[..n]);
            }
        }

        fn send(&mut self, event: StepEvent) {
            self.line.write_all(&wire::encode(&event).unwrap()).unwrap();
        }
    }

    #[test]
    fn an_interrupt_during_the_start_reaches_the_tasks() {
        let mut daemon = Daemon::of_a_launch();
        let mut watcher = daemon.watcher();
        daemon.interrupt();
        daemon.send(Answer::StepStarted { step: StepId::Num(0), pids: Vec::new() });
        assert_eq!(
            watcher.command(),
            StepCommand::Signal { signal: libc::SIGINT, target: SignalScope::Tasks }
        );
        let exit = ExitCode::signal(libc::SIGINT);
        daemon.send(Answer::StepEnded(Box::new(ExitRecord {
            exit,
            tasks: vec![exit],
            ..ExitRecord::default()
        })));
        let outcome = daemon.client.join().unwrap().unwrap();
        assert_eq!(outcome.exit(), exit);
    }

    /// Returns the client and the watcher of a running step without a daemon.
    fn orphaned() -> (Orphan, Watcher) {
        let mut daemon = Daemon::of_a_launch();
        let watcher = daemon.watcher();
        daemon.send(Answer::StepStarted { step: StepId::Num(0), pids: Vec::new() });
        (daemon.die(), watcher)
    }

    #[test]
    fn the_watcher_reports_the_end_if_the_daemon_stays_down() {
        let (client, mut watcher) = orphaned();
        let exit = ExitCode::status(7);
        watcher.send(StepEvent::TaskEnded { rank: 0, exit });
        watcher.send(StepEvent::Ended(ExitRecord {
            exit,
            tasks: vec![exit],
            ..ExitRecord::default()
        }));
        drop(watcher);
        assert_eq!(client.end().unwrap().exit(), exit);
    }

    #[test]
    fn signals_reach_a_running_step_without_a_daemon() {
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
            let (client, mut watcher) = orphaned();
            client.signal(signal);
            assert_eq!(
                watcher.command(),
                StepCommand::Signal { signal, target: SignalScope::Tasks }
            );
            let exit = ExitCode::signal(signal);
            watcher.send(StepEvent::Ended(ExitRecord { exit, ..ExitRecord::default() }));
            assert_eq!(client.end().unwrap().exit(), exit);
        }
    }

    #[test]
    fn a_signal_ends_a_client_without_daemon_and_watcher() {
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
        let started = slotd_model::Timestamp::default();
        StepEvent::Started {
            pid: 1,
            start_ticks: 1,
            task_pids: vec![1],
            started,
            started_us: None,
            suspended: false,
        }
    }

    /// Returns a client whose daemon died while the step was starting, and the watcher that may
    /// have the launch.
    fn unstarted() -> (Orphan, Watcher) {
        let mut daemon = Daemon::of_a_launch();
        let watcher = daemon.watcher();
        (daemon.die(), watcher)
    }

    #[test]
    fn signals_reach_a_starting_step_without_a_daemon() {
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            let (client, mut watcher) = unstarted();
            client.signal(signal);
            watcher.send(started());
            assert_eq!(
                watcher.command(),
                StepCommand::Signal { signal, target: SignalScope::Tasks }
            );
            let exit = ExitCode::signal(signal);
            watcher.send(StepEvent::Ended(ExitRecord { exit, ..ExitRecord::default() }));
            assert_eq!(client.end().unwrap().exit(), exit);
        }
    }

    #[test]
    fn a_signal_ends_a_client_whose_step_cannot_start() {
        let (client, watcher) = unstarted();
        client.signal(libc::SIGTERM);
        drop(watcher);
        let outcome = client.end();
        assert!(matches!(outcome, Err(ClientError::Interrupted(libc::SIGTERM))), "{outcome:?}");
    }

    #[test]
    fn an_interrupt_ends_the_client_of_a_waiting_step() {
        let mut daemon = Daemon::of_a_launch();
        daemon.interrupt();
        daemon.send(Answer::StepWaits);
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
