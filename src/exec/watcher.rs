//! The watcher: the process that starts the tasks of one step, waits for their end, and writes down how they ended. What
//! slurmstepd is in Slurm.
//!
//! ```text
//!   read the launch ─► bind <step>.<run>.sock ─►   release the launcher's lock ─► start the tasks
//!        │ daemon gone          │ exists already                                   │ cannot       │
//!        ▼                      ▼                                                  ▼              ▼
//!   nothing happened         Refused                                    record ◄─ kill ◄── last task ended
//!                                                                          │
//!                                                                          └─► Ended, remove the socket, exit
//! ```
//!
//! It is forked by the launcher, has one thread and sleeps in `poll`. It needs neither launcher nor daemon once it
//! has the launch: a new daemon connects to its socket. It never looks at a database and decides about nothing but
//! when the step is over. As a subreaper it gets every process that leaves its parents, so that nothing of a step
//! outlives it, and the times of all of them count.

mod commands;
mod ending;
mod starting;

use crate::exec::cgroup::StepCgroup;
use crate::exec::job_files;
use crate::exec::launch_spec::{LaunchSpec, StepCommand, StepEvent, socket_name};
use crate::exec::meter::{Meter, Pace};
use crate::exec::peer::{Peer, poll, tell, tell_last};
use crate::exec::{LaunchError, LaunchFault};
use crate::exec::{adopt, wire};
use crate::model::node::HostFault;
use crate::model::{ExitCode, ExitRecord, Timestamp};
use crate::protocol::frame::Decoder;
use crate::sys::clock::{self, now};
use crate::sys::{break_point, limits, socket};
use commands::signal_all;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long processes that do not die of SIGKILL (stuck in the kernel) are waited for, as Slurm's UnkillableStepTimeout.
const UNKILLABLE: Duration = Duration::from_secs(60);

/// How long the processes of a client that died have after SIGTERM and SIGHUP.
const CLIENT_GONE_GRACE: Duration = Duration::from_millis(500);

/// Becomes the watcher of the step that comes over `control`. `lock` is the launcher's.
pub(super) fn watch(control: OwnedFd, lock: File) -> ! {
    // A watcher has nobody to tell of its own mishaps but the daemon, which sees the connection end.
    let _ = run(control, lock);
    // SAFETY: the process ends here, without the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

fn run(control: OwnedFd, lock: File) -> io::Result<()> {
    become_watcher()?;
    break_point::reach("watcher begins");
    let nofile = limits::raise_descriptors();
    let Some((spec, handed, early)) = read_launch(&control)? else { return Ok(()) };
    break_point::reach("launch read");
    let mut peer = Some(Peer::new(UnixStream::from(control), early)?);
    let started = now();
    let (dir, listener) = match claim(&spec) {
        Ok(claimed) => claimed,
        Err(NotClaimed::LaunchedBefore(why)) => {
            tell_last(&mut peer, &StepEvent::Refused(why));
            return Ok(());
        }
        Err(NotClaimed::Failed(why)) => {
            tell_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
            return Ok(());
        }
    };
    break_point::reach("step claimed");
    listener.set_nonblocking(true)?;
    // From here on a new daemon can see that this step was launched.
    drop(lock);

    let name = socket_name(spec.step.step, spec.run);
    let (signals, client) = match sources(&spec, &handed).map_err(LaunchError::system("watch the step")) {
        Ok(sources) => sources,
        Err(why) => {
            let _ = std::fs::remove_file(socket::short_path(&dir, &name));
            tell_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
            return Ok(());
        }
    };
    let mut watcher = Watcher::new(spec, peer, listener, signals, client, started);
    if let Err(error) = watcher.start(handed, nofile) {
        // The tasks that were made stand at the gate: nothing of the user's has run.
        watcher.launch_failed(error.to_string(), host_fault_of(&error, &watcher.spec));
    }
    for command in std::mem::take(&mut watcher.early) {
        watcher.carry_out(command);
    }
    break_point::reach("tasks started");
    // Commands that came together with the launch make no further noise.
    watcher.read_commands();
    let record = watcher.run_to_end();
    break_point::reach("step over");
    watcher.finish(&record, &dir, &name);
    Ok(())
}

/// Of a step of which nothing was started.
fn failed_record(spec: &LaunchSpec, why: &LaunchError, started: Timestamp) -> ExitRecord {
    let record = ExitRecord::launch_failed(why.to_string(), now()).by_host(host_fault_of(why, spec));
    ExitRecord { run: spec.run, started, ..record }
}

fn host_fault_of(error: &LaunchError, spec: &LaunchSpec) -> Option<HostFault> {
    match error.fault(&spec.job_dir) {
        LaunchFault::Host(fault) => Some(fault),
        LaunchFault::Job => None,
    }
}

/// The deaths of children, and the line of the client where there is one.
fn sources(spec: &LaunchSpec, handed: &[OwnedFd]) -> io::Result<(SignalFd, Option<Peer>)> {
    let mut chld = SigSet::empty();
    chld.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let client = match spec.tie_fd.and_then(|place| handed.get(place)) {
        Some(tie) => Some(Peer::new(UnixStream::from(tie.try_clone()?), wire::decoder())?),
        None => None,
    };
    Ok((signals, client))
}

/// Why a step is not launched here.
enum NotClaimed {
    LaunchedBefore(String),
    Failed(LaunchError),
}

/// Makes the mark of the running step, its socket in the job directory, which no other launch of it may make.
fn claim(spec: &LaunchSpec) -> Result<(File, UnixListener), NotClaimed> {
    let dir = job_files::make_job_dir(&spec.job_dir)
        .and_then(|()| File::open(&spec.job_dir).map_err(LaunchError::own_file("open the directory", &spec.job_dir)))
        .map_err(NotClaimed::Failed)?;
    let name = socket_name(spec.step.step, spec.run);
    let path = socket::short_path(&dir, &name);
    let listener = UnixListener::bind(&path).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => NotClaimed::LaunchedBefore(format!("step {} was launched before", spec.step)),
        _ => NotClaimed::Failed(LaunchError::own_file("make", &spec.job_dir.join(&name))(e)),
    })?;
    if matches!(adopt::read_record(&spec.job_dir, spec.step.step, spec.run), Ok(Some(_))) {
        // It ended, and its watcher had just removed the socket.
        let _ = std::fs::remove_file(&path);
        return Err(NotClaimed::LaunchedBefore(format!("step {} has ended already", spec.step)));
    }
    Ok((dir, listener))
}

/// A process of its own: no terminal, no signals but SIGCHLD, none of the launcher's descriptors in use.
fn become_watcher() -> io::Result<()> {
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"slotd-step");
    nix::sys::prctl::set_child_subreaper(true)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // Ignored SIGCHLD, the launcher's way, would reap the tasks unseen.
    // SAFETY: no handler is set.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl)? };
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    Ok(())
}

/// The launch, its descriptors, and what came behind it: commands may follow at once. `None` where the daemon went away
/// before it had sent all of it.
fn read_launch(control: &OwnedFd) -> io::Result<Option<(LaunchSpec, Vec<OwnedFd>, Decoder)>> {
    let mut frames = Vec::with_capacity(3);
    let mut decoder = wire::decoder();
    let mut fds = Vec::new();
    let mut buf = vec![0u8; 64 << 10];
    while frames.len() < 3 {
        let n = socket::receive(control, &mut buf, &mut fds)?;
        if n == 0 {
            return Ok(None);
        }
        decoder.push(&buf[..n]);
        while frames.len() < 3
            && let Some(frame) = decoder.next_frame()?
        {
            frames.push(frame.json);
        }
    }
    let env = frames.pop().unwrap_or_default();
    Ok(Some((wire::decode_launch(&frames[0], &frames[1], env)?, fds, decoder)))
}

struct Task {
    rank: u32,
    pid: i32,
    exit: Option<ExitCode>,
}

/// When the killing began, and from when on SIGKILL is meant.
struct Kill {
    since: Instant,
    hard_from: Instant,
}

/// What woke the watcher.
#[derive(Clone, Copy)]
enum Source {
    Children,
    /// The pipe that the tasks hold until they execute.
    Starting,
    /// The daemon.
    Peer,
    /// A new daemon.
    Listener,
    /// The step's client.
    Client,
}

struct Watcher {
    spec: LaunchSpec,
    listener: UnixListener,
    signals: SignalFd,
    peer: Option<Peer>,
    tasks: Vec<Task>,
    /// Task 0's, for notices.
    stderr: Option<OwnedFd>,
    /// Read end of the pipe that the tasks hold until they execute.
    starting: Option<(File, Vec<u8>)>,
    started_event: Option<StepEvent>,
    /// When the tasks were made, by the wall clock and by the monotonic one.
    started: Timestamp,
    started_at: Duration,
    launch_error: Option<String>,
    /// The launch failed by a fault of the host, and nothing of the user's has run.
    host_fault: Option<HostFault>,
    /// Commands that came while the tasks were made.
    early: Vec<StepCommand>,
    cgroup: Option<StepCgroup>,
    meter: Meter,
    /// The step's client, on a line of its own: it hangs up when the client is gone.
    client: Option<Peer>,
    /// The step ends since its client was gone.
    client_gone: bool,
    kill: Option<Kill>,
    /// `StepCommand::Warn` was carried out.
    warned: bool,
    /// The output says why the step ends.
    told_end: bool,
    /// Of the step's own time limit.
    deadline: Option<Instant>,
    suspended_at: Option<Instant>,
    timed_out: bool,
    stopped: bool,
    pace: Pace,
}

impl Watcher {
    fn new(
        spec: LaunchSpec,
        peer: Option<Peer>,
        listener: UnixListener,
        signals: SignalFd,
        client: Option<Peer>,
        started: Timestamp,
    ) -> Watcher {
        Watcher {
            cgroup: spec.cgroup.clone().map(StepCgroup::at),
            client,
            client_gone: false,
            peer,
            tasks: Vec::new(),
            stderr: None,
            starting: None,
            started_event: None,
            started,
            started_at: clock::monotonic(),
            launch_error: None,
            host_fault: None,
            early: Vec::new(),
            meter: Meter::default(),
            kill: None,
            warned: false,
            told_end: false,
            deadline: spec.time_limit_secs.map(|secs| Instant::now() + Duration::from_secs(secs)),
            suspended_at: None,
            timed_out: false,
            stopped: false,
            pace: Pace::new(Instant::now()),
            spec,
            listener,
            signals,
        }
    }

    /// Until no process of the step is left.
    fn run_to_end(&mut self) -> ExitRecord {
        loop {
            let none_left = self.reap();
            if self.kill.is_none() && self.tasks.iter().all(|t| t.exit.is_some()) {
                self.begin_killing();
            }
            if let Some(kill) = &self.kill {
                let gave_up = kill.since.elapsed() > UNKILLABLE + (kill.hard_from - kill.since);
                if none_left || gave_up {
                    // A task that could not be made may have died before its reason was read.
                    while self.read_starting() {}
                    return self.record();
                }
                if Instant::now() >= kill.hard_from {
                    if let Some(cgroup) = &self.cgroup {
                        cgroup.kill();
                    }
                    signal_all(libc::SIGKILL);
                }
            }
            self.wait();
        }
    }

    /// Sleeps until something happens, and handles what is not a child's death.
    fn wait(&mut self) {
        let now = Instant::now();
        let until = match &self.kill {
            // Deaths are events; the short wait is for a process that forked while it was killed.
            Some(kill) => kill.hard_from.saturating_duration_since(now).max(Duration::from_millis(100)),
            None => self.due().saturating_duration_since(now),
        };
        for source in self.ready(until) {
            match source {
                Source::Children => while let Ok(Some(_)) = self.signals.read_signal() {},
                Source::Listener => self.accept(),
                Source::Peer => self.read_commands(),
                Source::Starting => drop(self.read_starting()),
                Source::Client => self.read_client(),
            }
        }
        if self.limit_is_reached() {
            self.timed_out = true;
            self.end_by_itself(" DUE TO TIME LIMIT");
        }
        if Instant::now() >= self.pace.next() {
            self.look();
        }
    }

    /// Waits until something can be done, at most so long. What is ready, in the order in which it is handled.
    fn ready(&self, until: Duration) -> Vec<Source> {
        let mut entries = vec![(self.signals.as_fd(), PollFlags::POLLIN, Source::Children)];
        if let Some((pipe, _)) = &self.starting {
            entries.push((pipe.as_fd(), PollFlags::POLLIN, Source::Starting));
        }
        for (peer, source) in [(&self.peer, Source::Peer), (&self.client, Source::Client)] {
            if let Some(peer) = peer {
                let writes = if peer.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                entries.push((peer.socket.as_fd(), PollFlags::POLLIN | writes, source));
            }
        }
        entries.push((self.listener.as_fd(), PollFlags::POLLIN, Source::Listener));
        let mut fds: Vec<PollFd<'_>> = entries.iter().map(|(fd, flags, _)| PollFd::new(*fd, *flags)).collect();
        poll(&mut fds, Some(until));
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        entries.iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|((.., source), _)| *source).collect()
    }

    /// What the client asks for; at its end nobody reads what the step writes.
    pub(super) fn read_client(&mut self) {
        let Some(client) = &mut self.client else { return };
        let flushed = client.flush();
        let (commands, end) = client.receive();
        commands.into_iter().for_each(|command| self.carry_out(command));
        if flushed.and(end).is_err() {
            self.client_is_gone();
        }
    }

    fn client_is_gone(&mut self) {
        self.client = None;
        self.client_gone = true;
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            signal_all(signal);
        }
        self.resume_all();
        let since = Instant::now();
        self.kill.get_or_insert(Kill { since, hard_from: since + CLIENT_GONE_GRACE });
    }

    /// When to wake up though nothing happens.
    fn due(&self) -> Instant {
        match self.deadline {
            Some(deadline) if self.suspended_at.is_none() => deadline.min(self.pace.next()),
            _ => self.pace.next(),
        }
    }

    fn limit_is_reached(&self) -> bool {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_over && self.suspended_at.is_none() && self.kill.is_none()
    }

    /// How the tasks ended that have ended.
    fn task_ends(&self) -> Vec<StepEvent> {
        let ended = |task: &Task| task.exit.map(|exit| StepEvent::TaskEnded { rank: task.rank, exit });
        self.tasks.iter().filter_map(ended).collect()
    }

    /// Tells the daemon and the client. That one of them is gone shows when it is read from.
    fn announce(&mut self, event: &StepEvent) {
        tell(&mut self.peer, event);
        if let Some(client) = &mut self.client {
            let _ = client.push(event);
        }
    }

    /// A new daemon: the old one is gone, or will notice that it was replaced.
    fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        let me = nix::unistd::getuid().as_raw();
        let allowed = socket::peer_uid(&socket).is_ok_and(|uid| uid == me || uid == 0);
        if !allowed {
            return;
        }
        self.peer = Peer::new(socket, wire::decoder()).ok();
        if let Some(mut event) = self.started_event.clone() {
            if let StepEvent::Started { suspended, .. } = &mut event {
                *suspended = self.suspended_at.is_some();
            }
            tell(&mut self.peer, &event);
            for event in self.task_ends() {
                tell(&mut self.peer, &event);
            }
        }
    }

    fn read_commands(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        let flushed = peer.flush();
        let (commands, end) = peer.receive();
        if flushed.and(end).is_err() {
            self.peer = None;
        }
        commands.into_iter().for_each(|command| self.carry_out(command));
    }

    /// The first reason counts.
    fn launch_failed(&mut self, why: String, fault: Option<HostFault>) {
        if self.launch_error.is_none() {
            (self.launch_error, self.host_fault) = (Some(why), fault);
        }
        self.begin_killing();
    }

    fn begin_killing(&mut self) {
        let now = Instant::now();
        self.kill = Some(Kill { since: now, hard_from: now });
    }
}
