//! The manager's main loop: passes events to the core, records its effects in the journal and
//! carries them out.

use super::api::Api;
use super::launches::{self, Launches};
use super::link::{Identity, Link, LinkEvent};
use super::progress::{Progress, words};
use super::records::Records;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use slotd_exec::step_journal::{Entry, Journal, StepEnd};
use slotd_exec::step_launcher::{Ended, Fact, Order};
use slotd_exec::wire;
use slotd_model::tres::Usage;
use slotd_model::{ExitCode, JobRef, Step, Timestamp, counted};
use slotd_protocol::frame::Decoder;
use slotd_protocol::request::{ControlAction, Request};
use slotd_stepmgr::api::{Event, Seconds};
use slotd_stepmgr::core::{Core, Effect, Halt, StepOutcome};
use slotd_sys::{clock, proc, socket};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

mod asks;
mod daemon;
mod interrupts;

pub use asks::Input;
use daemon::Lateness;
use interrupts::{By, Interrupts};

/// The longest time that a finished manager waits for a daemon that is down. The daemon will find
/// the records in the journal when the job ends.
const FINAL_WAIT: Duration = Duration::from_secs(2);

/// The signals that the loop handles. Block them before starting a second thread: an unblocked
/// signal would end the process.
pub fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

/// A running step.
struct Live {
    record: Step,
    pids: Vec<i32>,
    attempt: u32,
}

pub struct Shell {
    identity: Identity,
    work_dir: PathBuf,
    core: Core,
    link: Link,
    journal: Journal,
    records: Records,
    launches: Launches,
    api: Api,
    /// `None` after it was killed.
    launcher: Option<UnixStream>,
    facts: Decoder,
    /// Orders for the launcher, sent once the journal is written.
    orders: Vec<u8>,
    /// The step numbers of the launches in `orders`.
    staged: Vec<u32>,
    signals: SignalFd,
    interrupts: Interrupts,
    live: HashMap<u32, Live>,
    /// The clients that submitted the steps.
    owners: HashMap<u32, u64>,
    /// The exit codes of steps that did not succeed.
    exits: HashMap<u32, ExitCode>,
    progress: Progress,
    input: Option<Input>,
    /// The last step numbers from the daemon, and whether more were requested.
    numbers: (u32, u32),
    asked_for_numbers: bool,
    /// The last number used in a generated step name.
    pub(super) last_number: u32,
    /// Requeue the job if its time runs out before its steps are done.
    pub(super) may_requeue: bool,
    /// Steps that ended under earlier managers.
    ended_before: u32,
    lateness: Lateness,
    /// The last message about steps that ask for more than the job has.
    reported_too_large: Option<String>,
    /// An error occurred that belongs to no step.
    is_faulty: bool,
    /// Set once nothing is left to do but to send records to the daemon.
    idle_since: Option<Duration>,
}

impl Shell {
    /// Creates the loop from its parts.
    ///
    /// # Errors
    /// Fails if the signals cannot be watched.
    #[allow(
        clippy::too_many_arguments,
        reason = "the caller creates the parts, and the loop owns all of them"
    )]
    pub fn new(
        (identity, work_dir): (Identity, PathBuf),
        core: Core,
        link: Link,
        journal: Journal,
        records: Records,
        launches: Launches,
        api: Api,
        launcher: UnixStream,
        mut progress: Progress,
        input: Option<Input>,
        numbers: (u32, u32),
    ) -> io::Result<Shell> {
        let ended_before = core.counts().ended();
        progress.begin(&core.counts(), clock::monotonic());
        let signals =
            SignalFd::with_flags(&signals(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Shell {
            identity,
            work_dir,
            core,
            link,
            journal,
            records,
            launches,
            api,
            launcher: Some(launcher),
            facts: wire::decoder(),
            orders: Vec::new(),
            staged: Vec::new(),
            signals,
            interrupts: Interrupts::default(),
            live: HashMap::new(),
            owners: HashMap::new(),
            exits: HashMap::new(),
            progress,
            input,
            numbers,
            asked_for_numbers: false,
            last_number: 0,
            may_requeue: false,
            ended_before,
            lateness: Lateness::None,
            reported_too_large: None,
            is_faulty: false,
            idle_since: None,
        })
    }

    /// Runs until nothing is left to do. Returns the exit code.
    pub fn run(&mut self) -> u8 {
        loop {
            let now = clock::monotonic();
            self.carry_out_due(now);
            self.give_back();
            self.core.decide(now);
            self.carry_out(now);
            self.write(now);
            self.ask_for_numbers(now);
            if self.is_over(now) {
                break;
            }
            self.wait(now);
        }
        self.finish()
    }

    /// Requeues the job for the remaining steps, if it may be requeued and this run completed at
    /// least one step. Otherwise another run would not get further.
    fn requeue_job(&mut self) {
        let counts = self.core.counts();
        let is_left = counts.ended() < counts.all;
        if is_left && counts.ended() > self.ended_before && std::mem::take(&mut self.may_requeue) {
            self.progress.note("the job is out of time: requeueing it for the remaining steps");
            let jobs = vec![JobRef::job(self.identity.job)];
            self.link.send(&Request::Control { jobs, action: ControlAction::Requeue(None) });
        }
    }

    /// Writes the core's effects to the journal and queues the orders.
    fn carry_out(&mut self, now: Duration) {
        let effects = std::mem::take(&mut self.core.effects);
        let is_news = !effects.is_empty();
        for effect in effects {
            match effect {
                Effect::Launch { step, number, alloc } => {
                    let Some(entry) = self.core.entry(step) else { continue };
                    let record = launches::record(entry, number, alloc.clone(), clock::now());
                    for order in self.launches.orders(entry, number, &alloc) {
                        self.orders.extend(wire::encode(&order).unwrap_or_default());
                    }
                    self.staged.push(number);
                    self.journal.push(&Entry::Start(Box::new(record.clone())));
                    self.live
                        .insert(number, Live { record, pids: Vec::new(), attempt: entry.attempts });
                }
                Effect::Signal { number, signal } => {
                    self.orders.extend(
                        wire::encode(&Order::Signal { number, signal }).unwrap_or_default(),
                    );
                }
                Effect::Ended { step, outcome } => self.settle(step, outcome),
                Effect::OutOfTime => self.requeue_job(),
            }
        }
        if is_news {
            self.progress.show(&self.core.counts(), now);
        }
    }

    /// Records the final outcome of a step.
    fn settle(&mut self, step: u32, outcome: StepOutcome) {
        let Some(entry) = self.core.entry(step) else { return };
        let name = entry.name.to_string();
        match outcome {
            StepOutcome::Cancelled if entry.attempts == 0 => {
                self.journal.push(&Entry::Cancelled { name: name.clone() })
            }
            StepOutcome::Skipped => self.journal.push(&Entry::Skipped { name: name.clone() }),
            StepOutcome::Ok | StepOutcome::Failed | StepOutcome::Cancelled => {}
        }
        let exit = match outcome {
            StepOutcome::Ok => ExitCode::OK,
            StepOutcome::Failed | StepOutcome::Cancelled | StepOutcome::Skipped => {
                self.exits.get(&step).copied().unwrap_or(ExitCode::status(1))
            }
        };
        let owner = self.owners.remove(&step);
        self.api.broadcast(owner, &Event::Done { name, state: outcome.name().to_owned() });
        self.update_waiting(step, exit);
    }

    /// Writes the journal first, then sends the orders, then everything else.
    fn write(&mut self, now: Duration) {
        if let Err(e) = self.journal.write() {
            self.stop_for(&format!("cannot write the step journal: {e}"), now);
            // There may still be space for the ends.
            let _ = self.journal.write();
        }
        for number in std::mem::take(&mut self.staged) {
            if let Some(live) = self.live.get(&number) {
                self.records.put(live.record.clone(), now);
            }
        }
        if !self.orders.is_empty() {
            let orders = std::mem::take(&mut self.orders);
            // If the launcher has exited, the next read reports it.
            let _ = self.launcher.as_ref().map(|launcher| socket::send_all(launcher, &orders, &[]));
        }
        self.records.flush(&self.journal, &self.link, now, self.idle_since.is_some());
        self.api.flush();
    }

    /// Stops starting steps and cancels pending launches.
    fn stop_for(&mut self, why: &str, now: Duration) {
        if !std::mem::replace(&mut self.is_faulty, true) {
            self.progress.print(&format!("error: {why}"));
            self.progress
                .print("no more steps are started; fix this, then run: sjobmgr run --resume FILE");
        }
        self.core.drain();
        if !self.staged.is_empty() {
            self.orders.clear();
        }
        self.journal.call_off_starts();
        for number in std::mem::take(&mut self.staged) {
            self.live.remove(&number);
            self.core.cancel_launch(number, now);
        }
    }

    fn is_over(&mut self, now: Duration) -> bool {
        let has_input = self.input.is_some() && self.core.halt() == Halt::No;
        if !self.core.is_over(now) || has_input {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        self.records.flush(&self.journal, &self.link, now, true);
        let is_delivered = self.records.undelivered() == 0 || self.link.is_lost();
        is_delivered || (!self.link.is_connected() && now >= since + FINAL_WAIT)
    }

    /// Sleeps until something happens, then handles it.
    fn wait(&mut self, now: Duration) {
        let away =
            self.idle_since.filter(|_| !self.link.is_connected()).map(|since| since + FINAL_WAIT);
        let flush = self.records.due().filter(|_| self.link.is_connected());
        // The daemon's answer will wake the loop.
        let next = self.core.next_due().filter(|_| self.lateness != Lateness::Asked);
        let due = [next, flush, away].into_iter().flatten().min();
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            // Round up, so that the timer is due on wake-up.
            let left = due.saturating_sub(now) + Duration::from_micros(999);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let [read, write] = [PollFlags::POLLIN, PollFlags::POLLOUT];
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), read),
            PollFd::new(self.records.fd(), read),
            PollFd::new(self.api.listener(), read),
        ];
        let stdin = io::stdin();
        let there = [self.launcher.is_some(), self.link.fd().is_some(), self.input.is_some()];
        let first = fds.len();
        fds.extend(self.launcher.as_ref().map(|launcher| PollFd::new(launcher.as_fd(), read)));
        fds.extend(self.link.fd().map(|fd| PollFd::new(fd, read)));
        fds.extend(self.input.as_ref().map(|_| PollFd::new(stdin.as_fd(), read)));
        fds.extend(self.api.clients.iter().map(|client| {
            let write = if client.wants_to_write() { write } else { PollFlags::empty() };
            PollFd::new(client.fd(), if client.is_open() { read | write } else { write })
        }));
        if poll(&mut fds, timeout).is_err() {
            return;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        drop(fds);
        let now = clock::monotonic();
        let mut others = ready[first..].iter().copied();
        let [launcher, daemon, input] =
            there.map(|is_there| is_there && others.next().unwrap_or(false));
        // Handle signals first: they explain the ends that follow.
        if ready[0] {
            self.read_signals(now);
        }
        if launcher {
            self.read_launcher(now);
        }
        if ready[1] {
            self.records.on_synced(&mut self.link, &self.identity, now);
        }
        if daemon {
            self.read_daemon(now);
        }
        if input {
            self.read_input();
        }
        self.read_clients(others, now);
        if ready[2] {
            self.api.accept();
        }
    }

    fn read_signals(&mut self, now: Duration) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            if info.ssi_signo == Signal::SIGINT as u32 {
                self.on_interrupt(info.ssi_pid, By::Manager, now);
            } else if self.core.halt() != Halt::Stop {
                // The signal that ends a job goes to all its processes, so the launcher may report
                // it as well.
                self.core.stop(now);
            }
        }
    }

    /// Handles an interrupt. The first one stops starting steps, the second one terminates running
    /// ones.
    fn on_interrupt(&mut self, sender: u32, by: By, now: Duration) {
        if !self.interrupts.is_new(sender, by) {
            return;
        }
        match self.core.halt() {
            Halt::No => {
                self.core.drain();
                let running = self.core.counts().running;
                self.progress.print(&format!(
                    "no more steps are started; {running} still running: press Ctrl-C again to end them"
                ));
            }
            Halt::Drain | Halt::Stop => self.core.stop(now),
        }
    }

    fn read_launcher(&mut self, now: Duration) {
        let mut chunk = [0u8; 65_536];
        match self.launcher.as_mut().map_or(Ok(0), |launcher| launcher.read(&mut chunk)) {
            Ok(n) if n > 0 => self.facts.push(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return,
            Ok(_) | Err(_) => return self.on_launcher_gone(now),
        }
        while let Ok(Some(fact)) = wire::next_message(&mut self.facts) {
            match fact {
                Fact::Started { number, pids } => self.on_started(number, pids),
                Fact::Ended(ended) => self.on_ended(*ended, now),
                Fact::Interrupted { sender } => self.on_interrupt(sender, By::Launcher, now),
            }
        }
    }

    /// Ends the running steps: they died with the launcher, and nothing else will report their
    /// ends.
    fn on_launcher_gone(&mut self, now: Duration) {
        self.launcher = None;
        self.is_faulty = true;
        self.core.drain();
        let count = self.live.len();
        self.progress.print(&format!(
            "error: the process that starts the steps was killed, and {count} running steps with it\n\
             to continue: sjobmgr run --resume FILE"
        ));
        let mut lost: Vec<(u32, Timestamp)> = Vec::with_capacity(count);
        for (number, live) in &self.live {
            // The kernel killed the first process of each task. Kill the rest of its process group.
            for pid in &live.pids {
                proc::kill_group(*pid, libc::SIGKILL);
            }
            lost.push((*number, live.record.start));
        }
        lost.sort_unstable();
        for (number, started) in lost {
            let (exit, ended) = (ExitCode::signal(libc::SIGKILL), clock::now());
            self.on_ended(
                Ended { number, exit, usage: Usage::default(), started, ended, error: None },
                now,
            );
        }
    }

    fn on_started(&mut self, number: u32, pids: Vec<i32>) {
        let Some(live) = self.live.get_mut(&number) else { return };
        live.pids = pids;
        let event =
            Event::Started { name: live.record.name.clone(), step: number, attempt: live.attempt };
        let owner =
            self.core.attempt(number).and_then(|attempt| self.owners.get(&attempt.step)).copied();
        self.api.broadcast(owner, &event);
    }

    fn on_ended(&mut self, ended: Ended, now: Duration) {
        let Ended { number, exit, usage, started, ended: end, error } = ended;
        let Some(live) = self.live.remove(&number) else { return };
        let step = self.core.attempt(number).map(|attempt| attempt.step);
        if let Some(step) = step.filter(|_| !exit.is_success()) {
            self.exits.insert(step, exit);
        }
        let owner = step.and_then(|step| self.owners.get(&step)).copied();
        let Some(outcome) = self.core.on_ended(number, exit, now) else { return };
        let interrupted = outcome.is_interrupted;
        let end = StepEnd {
            step: number,
            state: outcome.state,
            exit,
            usage,
            start: started,
            end,
            interrupted,
            cancelled_by: outcome.cancelled_by,
        };
        let record = end.record(&live.record);
        let event = Event::Ended {
            name: record.name.clone(),
            step: number,
            attempt: live.attempt,
            state: outcome.state.name().to_owned(),
            exit_code: exit.status,
            signal: exit.signal,
            start: Seconds(record.start),
            end: Seconds(record.end.unwrap_or(record.start)),
            max_rss_kb: usage.max_rss_kb,
            user_us: usage.user_us,
            system_us: usage.system_us,
            error: error.clone(),
        };
        self.api.broadcast(owner, &event);
        if !exit.is_success() {
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            let (job, state) = (self.identity.job, outcome.state.name());
            self.progress.note(&format!(
                "step {:?} ({job}.{number}): {state}, exit code {exit}{why}",
                record.name
            ));
        }
        self.journal.push(&Entry::End(end));
        self.records.put(record, now);
    }

    /// Prints the summary, reports to the daemon and returns the exit code.
    fn finish(&mut self) -> u8 {
        self.progress.end();
        let counts = self.core.counts();
        self.progress.note(&words(&counts));
        if counts.waiting() > 0 {
            let verb = if counts.waiting() == 1 { "was" } else { "were" };
            self.progress.print(&format!(
                "{} {verb} not run: run them with sjobmgr run --resume FILE",
                counted(counts.waiting(), "step")
            ));
        }
        if self.records.undelivered() > 0 {
            let steps = counted(self.records.undelivered(), "step");
            self.progress.print(&format!(
                "the daemon is down: it will read the records of {steps} when the job ends"
            ));
        }
        if self.core.halt() == Halt::No {
            self.requeue_job();
        }
        let left = self.core.numbers_left();
        let unused = (left.start, left.end.saturating_sub(left.start));
        let (job, client) = (self.identity.job, self.identity.client);
        self.link.send(&Request::LeaveSteps { job, client, unused });
        self.core
            .unended()
            .for_each(|name| self.journal.push(&Entry::Left { name: name.to_string() }));
        self.await_final_answer();
        let _ = self.journal.write();
        self.api.close();
        let worst = u8::try_from(self.core.worst().as_shell()).unwrap_or(1);
        let is_short = self.is_faulty || counts.waiting() > 0 || counts.cancelled > 0;
        if worst == 0 && is_short { 1 } else { worst }
    }

    /// Waits until the daemon has processed everything, so that the next command sees it.
    fn await_final_answer(&mut self) {
        while self.link.is_connected() {
            let Some(fd) = self.link.fd() else { return };
            let raw = fd.as_raw_fd();
            let timeout = PollTimeout::try_from(FINAL_WAIT).unwrap_or(PollTimeout::MAX);
            if !matches!(poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout), Ok(1..)) {
                return;
            }
            let is_answered = |event: &LinkEvent| match event {
                LinkEvent::Answer(answer) => matches!(
                    **answer,
                    slotd_protocol::answer::Answer::Recorded
                        | slotd_protocol::answer::Answer::Refused(_)
                ),
                LinkEvent::Disconnected | LinkEvent::Reconnected => true,
            };
            if raw >= 0 && self.link.receive(&self.identity).iter().any(is_answered) {
                return;
            }
        }
    }
}
