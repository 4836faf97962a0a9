//! The watcher: the process that starts the tasks of a step, waits for them to end, and records how
//! they ended. It corresponds to Slurm's slurmstepd.
//!
//! ```text
//!   read the launch ─► bind <step>.<run>.sock ─►   release the launcher's lock ─► start the tasks
//!    ▲   │ daemon gone          │ exists already                                   │ fails        │
//!    │   ▼                      ▼                                                  ▼              ▼
//!    │  exit                 Refused                                    record ◄─ kill ◄── last task ended
//!    │                                                                     │
//!    └── share the lock again, Stays, Ended ◄── rename the socket   ◄──────┴─► remove the socket, Ended, exit
//! ```
//!
//! The launcher forks it. It has a single thread and sleeps in `poll`. A launch may arrive before the
//! daemon knows that its decision is durable. Until the command to begin follows, the watcher only
//! puts the script into a directory without the job's name (`prepared_dir`). If that daemon dies,
//! the next one waits for the lock, finds no trace of a launch, and may launch the step itself. Once
//! the watcher has begun, it needs neither the launcher nor the daemon: a new daemon connects to its
//! socket. If the daemon that sent the launch is still connected at the end, the watcher accepts
//! another launch from it, which saves a fork. It never accesses a database, and decides nothing
//! except when the step has ended. As a subreaper it becomes the parent of every orphan, so that no
//! process of a step outlives it, and their CPU times all count.

mod commands;
mod ending;
mod starting;
mod suspension;

use crate::cgroup::StepCgroup;
use crate::claim::{self, Marked, NotClaimed, OwnSocket, Prepared, path_in};
use crate::launch_spec::{LaunchSpec, SignalScope, StepCommand, StepEvent};
use crate::meter::{Meter, OverTime, Pace};
use crate::peer::{Peer, flush, poll, queue_event, send_last};
use crate::{LaunchError, LaunchFault, job_dirs, launch_lock, pmi, task, wire};
use commands::signal_all;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use slotd_model::node::HostFault;
use slotd_model::rlimits::Rlimit;
use slotd_model::{ExitCode, ExitRecord, StepId, Timestamp};
use slotd_protocol::frame::Decoder;
use slotd_sys::clock::{self, now};
use slotd_sys::proc::{self, DeadChildrenIo};
use slotd_sys::{break_point, limits, slice, socket};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of this process while it has a step, as shown by `ps -o comm`.
const HAS_STEP: &CStr = c"slotd-step";

/// Its name from the end of its step on: while it reports the end, and while it waits for another
/// launch.
const WAITS: &CStr = c"slotd-idle";

/// The time to wait for processes that survive SIGKILL (stuck in the kernel), like Slurm's
/// UnkillableStepTimeout.
const UNKILLABLE: Duration = Duration::from_secs(60);

/// A watcher with a larger launch exits after its step, because the kernel would count the memory
/// that it used towards the next tasks.
const SMALL_LAUNCH: usize = 256 << 10;

/// The state of a watcher process, kept from one step to the next.
struct ProcessState {
    /// `<root>/run/launcher.lock`
    lock: PathBuf,
    /// Its start time in clock ticks since boot.
    start_ticks: u64,
    /// The limit on descriptors before it was raised.
    nofile: Option<Rlimit>,
    /// Its OOM score, which determines the order in which the kernel kills processes. A task may
    /// have a higher one.
    oom_score_adj: i64,
    /// The reads and writes of its ended children.
    dead_io: DeadChildrenIo,
    socket: OwnSocket,
}

impl ProcessState {
    /// Returns the state of this process, which has had no step yet.
    fn of(root: &Path) -> ProcessState {
        ProcessState {
            lock: launch_lock::path(root),
            start_ticks: proc::start_ticks(std::process::id().cast_signed()).unwrap_or(0),
            nofile: limits::raise_descriptors(),
            oom_score_adj: task::oom_score_adj(),
            dead_io: DeadChildrenIo::of_this_process(),
            socket: OwnSocket::new(launch_lock::idle_socket(root, std::process::id())),
        }
    }
}

/// A connection on which a watcher receives launches.
struct Connection {
    control: UnixStream,
    incoming: Decoder,
    /// Shared while it waits for a launch.
    lock: File,
}

/// Becomes the watcher of the step that arrives over `control`, and then of others. `lock` is the
/// launcher's.
pub(super) fn watch(control: OwnedFd, lock: File, root: &Path) -> ! {
    // There is no need to report the watcher's own errors: the daemon sees the connection close.
    let _ = serve(Connection { control: control.into(), incoming: wire::decoder(), lock }, root);
    // SAFETY: the process ends here, without running the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Returns whether the process is a watcher whose step is running or about to.
pub fn has_step(pid: i32) -> bool {
    proc::read(&format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.trim_ascii_end() == HAS_STEP.to_bytes())
}

fn serve(connection: Connection, root: &Path) -> io::Result<()> {
    become_watcher()?;
    break_point::reach("watcher begins");
    let mut process = ProcessState::of(root);
    let mut next = Some(connection);
    while let Some(connection) = next {
        next = run(connection, &mut process)?;
    }
    Ok(())
}

/// Watches one step. Returns the connection for the next one, if the watcher stays.
fn run(connection: Connection, process: &mut ProcessState) -> io::Result<Option<Connection>> {
    let Some(launch) = read_launch(connection, process)? else { return Ok(None) };
    let Launch { spec, handed, connection, prepared } = launch;
    let _ = set_name(HAS_STEP);
    break_point::reach("launch read");
    let mut peer = Some(Peer::new(connection.control, connection.incoming)?);
    let started = now();
    let (Marked { dir, listener }, has_script) =
        match claim::claim(&spec, prepared, &mut process.socket) {
            Ok(claimed) => claimed,
            Err(NotClaimed::LaunchedBefore(why)) => {
                send_last(&mut peer, &StepEvent::Refused(why));
                return Ok(None);
            }
            Err(NotClaimed::Failed(why)) => {
                send_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
                return Ok(None);
            }
        };
    break_point::reach("step claimed");
    // From here on, a new daemon can see that this step was launched.
    drop(connection.lock);

    let (signals, client) =
        match sources(&spec, &handed).map_err(LaunchError::system("watch the step")) {
            Ok(sources) => sources,
            Err(why) => {
                let _ = std::fs::remove_file(path_in(&dir, &spec));
                send_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
                return Ok(None);
            }
        };
    let mut watcher = Watcher::new(spec, peer, (dir, listener), signals, client, process);
    watcher.started = started;
    if let Err(error) = watcher.start(handed, has_script, process) {
        // The tasks started so far are waiting at the gate, so no user code has run.
        watcher.launch_failed(error.to_string(), host_fault_of(&error, &watcher.spec));
    }
    for command in std::mem::take(&mut watcher.early) {
        watcher.carry_out(command);
    }
    break_point::reach("tasks started");
    // Commands that arrived together with the launch cause no further wakeup.
    watcher.read_commands();
    let record = watcher.run_to_end();
    break_point::reach("step over");
    // Rename the process before reporting the end, so that nobody who knows of the end finds a
    // running step.
    let _ = set_name(WAITS);
    process.dead_io = watcher.meter.take_dead_io();
    Ok(watcher.finish(&record, process))
}

/// Returns the record of a step that could not be started.
fn failed_record(spec: &LaunchSpec, why: &LaunchError, started: Timestamp) -> ExitRecord {
    let record =
        ExitRecord::launch_failed(why.to_string(), now()).by_host(host_fault_of(why, spec));
    ExitRecord { run: spec.run, started, ..record }
}

fn host_fault_of(error: &LaunchError, spec: &LaunchSpec) -> Option<HostFault> {
    match error.fault(&spec.job_dir) {
        LaunchFault::Host(fault) => Some(fault),
        LaunchFault::Job => None,
    }
}

/// Opens the descriptor for deaths of children, and the connection to the client, if there is one.
fn sources(spec: &LaunchSpec, handed: &[OwnedFd]) -> io::Result<(SignalFd, Option<Peer>)> {
    let mut chld = SigSet::empty();
    chld.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let client = match spec.client_fd.and_then(|place| handed.get(place)) {
        Some(client_line) => {
            Some(Peer::new(UnixStream::from(client_line.try_clone()?), wire::decoder())?)
        }
        None => None,
    };
    Ok((signals, client))
}

/// Detaches from the launcher: no terminal, no signals but SIGCHLD, and /dev/null as standard
/// streams.
fn become_watcher() -> io::Result<()> {
    let _ = nix::unistd::setsid();
    let _ = set_name(HAS_STEP);
    slice::shorten();
    nix::sys::prctl::set_child_subreaper(true)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    // The launcher ignores SIGCHLD. If inherited, the kernel would reap the tasks.
    task::default_signals();
    Ok(())
}

/// A launch that begins now.
struct Launch {
    spec: LaunchSpec,
    /// Its descriptors.
    handed: Vec<OwnedFd>,
    /// It may already have received commands that follow.
    connection: Connection,
    prepared: Option<Prepared>,
}

/// Reads a launch, prepares it, and waits for the command to begin. Returns `None` if the daemon
/// disconnected before that.
fn read_launch(
    mut connection: Connection,
    process: &mut ProcessState,
) -> io::Result<Option<Launch>> {
    connection.control.set_nonblocking(false)?;
    let mut frames = Vec::with_capacity(3);
    let mut handed = Vec::new();
    let mut waiting: Option<LaunchSpec> = None;
    let mut prepared = None;
    let mut buf = vec![0u8; 64 << 10];
    loop {
        while let Some(frame) = connection.incoming.next_frame()? {
            let command = frame.message::<StepCommand>();
            match (command, waiting.take()) {
                (Ok(StepCommand::Begin { cgroup, broken }), Some(spec)) => {
                    let spec = LaunchSpec { cgroup, broken, ..spec };
                    return Ok(Some(Launch { spec, handed, connection, prepared }));
                }
                // A command that was sent before the previous step ended.
                (Ok(_), None) if frames.is_empty() => {}
                (_, None) => frames.push(frame.json),
                (_, spec) => waiting = spec,
            }
            if let [json, script, env] = frames.as_mut_slice() {
                waiting = Some(wire::decode_launch(json, script, std::mem::take(env))?);
                frames.clear();
            }
        }
        if let Some(spec) = &waiting {
            if prepared.is_none() {
                // The thread that commits the job, and then its client, may need this CPU.
                slice::reset();
                prepared = claim::prepare(spec, &mut process.socket);
                slice::shorten();
            }
            break_point::reach("launch prepared");
        }
        match socket::receive(&connection.control, &mut buf, &mut handed)? {
            0 => return Ok(None),
            n => connection.incoming.push(&buf[..n]),
        }
    }
}

struct Task {
    rank: u32,
    pid: i32,
    exit: Option<ExitCode>,
}

/// When killing started, and when SIGKILL is due.
struct Kill {
    since: Instant,
    hard_from: Instant,
}

/// The source of a wakeup.
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
    /// A rank of an MPI program.
    Rank(u32),
}

struct Watcher {
    spec: LaunchSpec,
    /// The watcher's start time.
    start_ticks: u64,
    /// The job's directory. Its name may lead to another one by now.
    dir: File,
    listener: UnixListener,
    signals: SignalFd,
    peer: Option<Peer>,
    tasks: Vec<Task>,
    /// The standard error of task 0, for notices.
    stderr: Option<OwnedFd>,
    /// The read end of the pipe that the tasks hold until they execute.
    starting: Option<(File, Vec<u8>)>,
    started_event: Option<StepEvent>,
    /// When the tasks were started, on the wall clock and the monotonic clock.
    started: Timestamp,
    started_at: Duration,
    launch_error: Option<String>,
    /// The number of processes left when all tasks had ended on their own.
    left_over: u32,
    /// The host fault that made the launch fail, if no user code has run.
    host_fault: Option<HostFault>,
    /// Commands that arrived while the tasks were being started.
    early: Vec<StepCommand>,
    cgroup: Option<StepCgroup>,
    meter: Meter,
    over_time: OverTime,
    /// The host's count of OOM kills at the first sample.
    host_ooms: Option<u64>,
    /// The connection to the step's client. It closes when the client exits.
    client: Option<Peer>,
    /// The step is ending because its client has exited.
    client_gone: bool,
    /// The step is ending: its processes have had SIGTERM or are about to.
    ending: bool,
    /// The processes have already had the SIGTERM that the daemon sends next.
    had_term: bool,
    /// The server for the ranks of an MPI program.
    pmi: Option<pmi::Server>,
    kill: Option<Kill>,
    /// `StepCommand::Warn` was carried out.
    warned: bool,
    /// The output contains the reason why the step ends.
    end_noted: bool,
    /// The end of the step's own time limit.
    deadline: Option<Instant>,
    suspended_at: Option<Instant>,
    /// The last signal that was to stop or continue the processes of the suspended step.
    held_back: Option<(i32, SignalScope)>,
    timed_out: bool,
    stopped: bool,
    /// The UID of the user who cancelled the job.
    cancelled_by: Option<u32>,
    /// After the step, this watcher can accept another launch from the same daemon.
    may_stay: bool,
    pace: Pace,
}

impl Watcher {
    fn new(
        spec: LaunchSpec,
        peer: Option<Peer>,
        (dir, listener): (File, UnixListener),
        signals: SignalFd,
        client: Option<Peer>,
        process: &mut ProcessState,
    ) -> Watcher {
        Watcher {
            cgroup: spec.cgroup.clone().map(StepCgroup::at),
            client,
            client_gone: false,
            ending: false,
            had_term: false,
            pmi: None,
            peer,
            tasks: Vec::new(),
            stderr: None,
            starting: None,
            started_event: None,
            started: now(),
            started_at: clock::monotonic(),
            launch_error: None,
            left_over: 0,
            host_fault: None,
            early: Vec::new(),
            meter: Meter::new(std::mem::take(&mut process.dead_io)),
            over_time: OverTime::new(Instant::now()),
            host_ooms: None,
            start_ticks: process.start_ticks,
            kill: None,
            warned: false,
            end_noted: false,
            deadline: spec.time_limit_secs.map(|secs| Instant::now() + Duration::from_secs(secs)),
            suspended_at: None,
            held_back: None,
            timed_out: false,
            stopped: false,
            cancelled_by: None,
            may_stay: spec.env.len() + spec.script.as_ref().map_or(0, Vec::len) < SMALL_LAUNCH,
            pace: Pace::new(Instant::now()),
            spec,
            dir,
            listener,
            signals,
        }
    }

    /// Runs until no process of the step is left, or only processes that cannot be killed.
    fn run_to_end(&mut self) -> ExitRecord {
        loop {
            let none_left = self.reap();
            let is_over =
                self.tasks.iter().all(|t| t.exit.is_some()) && (none_left || !self.has_manager());
            if self.kill.is_none() && is_over {
                if !none_left {
                    self.left_over =
                        proc::descendants(std::process::id().cast_signed()).len() as u32;
                }
                self.begin_killing();
            }
            if let Some(kill) = &self.kill {
                let gave_up = kill.since.elapsed() > UNKILLABLE + (kill.hard_from - kill.since);
                if none_left || gave_up {
                    self.may_stay &= none_left;
                    // A task that could not be started may have died before its reason was read.
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

    /// Sleeps until something happens, and handles everything but deaths of children.
    fn wait(&mut self) {
        let now = Instant::now();
        let until = match &self.kill {
            // Deaths wake the watcher up. The short timeout is for processes that fork while they
            // are being killed.
            Some(kill) => {
                kill.hard_from.saturating_duration_since(now).max(Duration::from_millis(100))
            }
            None => self.due().saturating_duration_since(now),
        };
        for source in self.ready(until) {
            match source {
                Source::Children => while let Ok(Some(_)) = self.signals.read_signal() {},
                Source::Listener => self.accept(),
                Source::Peer => self.read_commands(),
                Source::Starting => drop(self.read_starting()),
                Source::Client => self.read_client(),
                Source::Rank(rank) => self.serve_rank(rank),
            }
        }
        if self.limit_is_reached() {
            self.timed_out = true;
            self.end_by_itself(" DUE TO TIME LIMIT");
        }
        if Instant::now() >= self.pace.next() {
            self.note_job();
            self.sample();
        }
    }

    /// Waits for something to do, at most `until`. Returns the ready sources in the order in which
    /// to handle them.
    fn ready(&mut self, until: Duration) -> Vec<Source> {
        flush(&mut self.peer);
        if let Some(client) = &mut self.client {
            // If the client has gone, the next read reports it.
            let _ = client.flush();
        }
        let mut entries = vec![(self.signals.as_fd(), PollFlags::POLLIN, Source::Children)];
        if let Some((pipe, _)) = &self.starting {
            entries.push((pipe.as_fd(), PollFlags::POLLIN, Source::Starting));
        }
        for (peer, source) in [(&self.peer, Source::Peer), (&self.client, Source::Client)] {
            if let Some(peer) = peer {
                let writes =
                    if peer.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                entries.push((peer.socket.as_fd(), PollFlags::POLLIN | writes, source));
            }
        }
        for (socket, writes, rank) in self.pmi.iter().flat_map(pmi::Server::lines) {
            let writes = if writes { PollFlags::POLLOUT } else { PollFlags::empty() };
            entries.push((socket, PollFlags::POLLIN | writes, Source::Rank(rank)));
        }
        entries.push((self.listener.as_fd(), PollFlags::POLLIN, Source::Listener));
        let mut fds: Vec<PollFd<'_>> =
            entries.iter().map(|(fd, flags, _)| PollFd::new(*fd, *flags)).collect();
        poll(&mut fds, Some(until));
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        entries
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| is_ready(fd))
            .map(|((.., source), _)| *source)
            .collect()
    }

    /// Carries out the client's commands. When the client exits, nobody reads the step's output.
    pub(super) fn read_client(&mut self) {
        let Some(client) = &mut self.client else { return };
        let flushed = client.flush();
        let (commands, end) = client.receive();
        for command in commands {
            // An srun in a batch script forwards the SIGTERM that it receives at the job's end. The
            // step has already had that signal.
            let is_known =
                self.ending && matches!(command, StepCommand::Signal { signal: libc::SIGTERM, .. });
            if !is_known {
                self.carry_out(command);
            }
        }
        if flushed.and(end).is_err() {
            self.client_is_gone();
        }
    }

    /// Serves the requests of a rank. A rank that aborts ends the step, as in Slurm.
    fn serve_rank(&mut self, rank: u32) {
        let aborts = self.pmi.as_mut().is_some_and(|server| server.serve(rank));
        if aborts && self.kill.is_none() {
            self.stopped = true;
            self.end_by_itself("");
        }
    }

    fn client_is_gone(&mut self) {
        self.client = None;
        self.client_gone = true;
        if self.is_suspended() {
            return self.begin_killing();
        }
        // When a batch script ends, its srun dies too, possibly before the daemon's command
        // arrives.
        if !std::mem::replace(&mut self.ending, true) {
            signal_all(libc::SIGTERM);
        }
        if self.spec.pty {
            // An interactive shell ignores SIGTERM.
            signal_all(libc::SIGHUP);
        }
        self.resume_all();
        self.kill_after_grace();
    }

    /// Returns when to wake up at the latest.
    fn due(&self) -> Instant {
        match self.deadline {
            Some(deadline) if !self.is_suspended() => deadline.min(self.pace.next()),
            _ => self.pace.next(),
        }
    }

    fn limit_is_reached(&self) -> bool {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_over && !self.is_suspended() && self.kill.is_none()
    }

    /// Returns the ends of the tasks that have ended.
    fn task_ends(&self) -> Vec<StepEvent> {
        let ended =
            |task: &Task| task.exit.map(|exit| StepEvent::TaskEnded { rank: task.rank, exit });
        self.tasks.iter().filter_map(ended).collect()
    }

    /// Queues an event for the daemon and the client. It is sent before the watcher sleeps again.
    fn announce(&mut self, event: &StepEvent) {
        queue_event(&mut self.peer, event);
        if let Some(client) = &mut self.client {
            let _ = client.queue(event);
        }
    }

    /// Accepts a new daemon. The old one has exited, or will notice that it was replaced.
    fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        let me = nix::unistd::getuid().as_raw();
        let allowed = socket::peer_uid(&socket).is_ok_and(|uid| uid == me || uid == 0);
        if !allowed {
            return;
        }
        self.peer = Peer::new(socket, wire::decoder()).ok();
        self.may_stay = false;
        if let Some(mut event) = self.started_event.clone() {
            if let StepEvent::Started { suspended, .. } = &mut event {
                *suspended = self.is_suspended();
            }
            queue_event(&mut self.peer, &event);
            for event in self.task_ends() {
                queue_event(&mut self.peer, &event);
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

    /// Records that the launch failed. Only the first reason is kept.
    fn launch_failed(&mut self, why: String, fault: Option<HostFault>) {
        if self.launch_error.is_none() {
            (self.launch_error, self.host_fault) = (Some(why), fault);
        }
        self.begin_killing();
    }

    /// Returns whether the job is being ended and has a step manager. The manager ends its steps
    /// and records their ends. The sender of the command kills the rest after the grace period.
    fn has_manager(&self) -> bool {
        self.stopped
            && self.spec.step.step == StepId::Batch
            && self.spec.job_dir.join(job_dirs::MANAGERS_SOCKET).exists()
    }

    fn begin_killing(&mut self) {
        let now = Instant::now();
        self.kill = Some(Kill { since: now, hard_from: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_sys::lock;
    use std::io::Write;

    #[test]
    fn a_command_for_the_previous_step_is_not_taken_for_a_launch() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock::share_now(&dir.path().join("lock")).unwrap();
        let mut process = ProcessState::of(dir.path());
        let (mut daemon, control) = UnixStream::pair().unwrap();
        let sent = LaunchSpec {
            run: 7,
            script: Some(b"x".to_vec()),
            env: b"A=1\0".to_vec(),
            ..LaunchSpec::default()
        };
        let late = [StepCommand::KillAll, StepCommand::Notice("n".to_owned()), StepCommand::Usage];
        let mut incoming = wire::decoder();
        incoming.push(&wire::encode(&late[0]).unwrap());
        for command in &late[1..] {
            daemon.write_all(&wire::encode(command).unwrap()).unwrap();
        }
        daemon.write_all(&wire::encode_launch(&sent).unwrap()).unwrap();
        daemon.write_all(&wire::encode(&sent.begin()).unwrap()).unwrap();
        daemon.write_all(&wire::encode(&StepCommand::Resume).unwrap()).unwrap();
        let Launch { spec, connection, .. } =
            read_launch(Connection { control, incoming, lock }, &mut process).unwrap().unwrap();
        assert_eq!(spec, sent);
        let mut peer = Peer::new(connection.control, connection.incoming).unwrap();
        assert_eq!(peer.receive::<StepCommand>().0, [StepCommand::Resume]);
    }
}
