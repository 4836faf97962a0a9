//! The watcher: the process that starts the tasks of one step, waits for their end, and writes down
//! how they ended. What slurmstepd is in Slurm.
//!
//! ```text
//!   read the launch ─► bind <step>.<run>.sock ─►   release the launcher's lock ─► start the tasks
//!    ▲   │ daemon gone          │ exists already                                   │ cannot       │
//!    │   ▼                      ▼                                                  ▼              ▼
//!    │  exit                 Refused                                    record ◄─ kill ◄── last task ended
//!    │                                                                     │
//!    └── share the lock again, Stays, Ended ◄── take its name away  ◄──────┴─► remove the socket, Ended, exit
//! ```
//!
//! It is forked by the launcher, has one thread and sleeps in `poll`. It needs neither launcher nor
//! daemon once it has the launch: a new daemon connects to its socket. Where the daemon that sent
//! the launch is still there at its end, the watcher takes another one from it, which saves a fork.
//! It never looks at a database and decides about nothing but when the step is over. As a subreaper
//! it gets every process that leaves its parents, so that nothing of a step outlives it, and the
//! times of all of them count.

mod commands;
mod ending;
mod starting;

use crate::exec::cgroup::StepCgroup;
use crate::exec::job_files;
use crate::exec::launch_spec::{LaunchSpec, StepCommand, StepEvent, socket_name};
use crate::exec::meter::{Meter, OverTime, Pace};
use crate::exec::peer::{Peer, flush, poll, tell, tell_last};
use crate::exec::{LaunchError, LaunchFault, job_dirs, launch_lock, pmi, task, wire};
use crate::model::node::HostFault;
use crate::model::rlimits::Rlimit;
use crate::model::{ExitCode, ExitRecord, StepId, Timestamp};
use crate::protocol::frame::Decoder;
use crate::sys::clock::{self, now};
use crate::sys::proc::{self, DeadChildrenIo};
use crate::sys::{break_point, limits, socket};
use commands::signal_all;
use nix::poll::{PollFd, PollFlags};
use nix::sys::prctl::set_name;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of this process, as `ps -o comm` shows it, while it has a step.
const HAS_STEP: &CStr = c"slotd-step";

/// Its name once its step is over, while it tells so and then waits for another launch.
const WAITS: &CStr = c"slotd-idle";

/// How long processes that do not die of SIGKILL (stuck in the kernel) are waited for, as Slurm's
/// UnkillableStepTimeout.
const UNKILLABLE: Duration = Duration::from_secs(60);

/// A watcher with a larger launch ends with its step: the kernel counts what it has had as memory
/// of its tasks.
const SMALL_LAUNCH: usize = 256 << 10;

/// What a watcher keeps from one step to the next.
struct Post {
    /// `<root>/run/launcher.lock`
    lock: PathBuf,
    /// Clock ticks from boot to its start.
    start_ticks: u64,
    /// The limit on descriptors before it was raised.
    nofile: Option<Rlimit>,
    /// In which place the host's own lack of memory ends it: a task may have a higher one.
    oom_score_adj: i64,
    /// What the processes of its steps read and write.
    dead_io: DeadChildrenIo,
    /// Its socket, while it has no step. Each step has a name of it in the directory of its job: a
    /// name costs far less than another socket.
    idle: Option<UnixListener>,
    /// Its name from the end of the first step on, as long as the watcher lives.
    idle_path: PathBuf,
    has_idle_path: bool,
}

impl Drop for Post {
    fn drop(&mut self) {
        if self.has_idle_path {
            let _ = std::fs::remove_file(&self.idle_path);
        }
    }
}

/// What a watcher gets its launches by.
struct Line {
    control: UnixStream,
    incoming: Decoder,
    /// Shared while it waits for a launch.
    lock: File,
}

/// Becomes the watcher of the step that comes over `control`, and then of others. `lock` is the
/// launcher's.
pub(super) fn watch(control: OwnedFd, lock: File, root: &Path) -> ! {
    // A watcher has nobody to tell of its own mishaps but the daemon, which sees the connection
    // end.
    let _ = serve(Line { control: control.into(), incoming: wire::decoder(), lock }, root);
    // SAFETY: the process ends here, without the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Whether the process is a watcher whose step runs, or is about to.
pub fn has_step(pid: i32) -> bool {
    proc::read(&format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.trim_ascii_end() == HAS_STEP.to_bytes())
}

fn serve(line: Line, root: &Path) -> io::Result<()> {
    become_watcher()?;
    break_point::reach("watcher begins");
    let mut post = Post {
        lock: launch_lock::path(root),
        start_ticks: proc::start_ticks(std::process::id().cast_signed()).unwrap_or(0),
        nofile: limits::raise_descriptors(),
        oom_score_adj: task::oom_score_adj(),
        dead_io: DeadChildrenIo::of_this_process(),
        idle: None,
        idle_path: launch_lock::idle_socket(root, std::process::id()),
        has_idle_path: false,
    };
    let mut next = Some(line);
    while let Some(line) = next {
        next = run(line, &mut post)?;
    }
    Ok(())
}

/// Watches one step. The line to the next one, where it stays.
fn run(line: Line, post: &mut Post) -> io::Result<Option<Line>> {
    let Some((spec, handed, line)) = read_launch(line)? else { return Ok(None) };
    let _ = set_name(HAS_STEP);
    break_point::reach("launch read");
    let mut peer = Some(Peer::new(line.control, line.incoming)?);
    let started = now();
    let (dir, listener) = match claim(&spec, post) {
        Ok(claimed) => claimed,
        Err(NotClaimed::LaunchedBefore(why)) => {
            tell_last(&mut peer, &StepEvent::Refused(why));
            return Ok(None);
        }
        Err(NotClaimed::Failed(why)) => {
            tell_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
            return Ok(None);
        }
    };
    break_point::reach("step claimed");
    // From here on a new daemon can see that this step was launched.
    drop(line.lock);

    let name = socket_name(spec.step.step, spec.run);
    let (signals, client) =
        match sources(&spec, &handed).map_err(LaunchError::system("watch the step")) {
            Ok(sources) => sources,
            Err(why) => {
                let _ = std::fs::remove_file(socket::short_path(&dir, &name));
                tell_last(&mut peer, &StepEvent::Ended(failed_record(&spec, &why, started)));
                return Ok(None);
            }
        };
    let mut watcher = Watcher::new(spec, peer, listener, signals, client, post);
    watcher.started = started;
    if let Err(error) = watcher.start(handed, post) {
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
    // Before anybody hears of the end: who has heard of it finds no step that runs.
    let _ = set_name(WAITS);
    post.dead_io = watcher.meter.take_dead_io();
    Ok(watcher.finish(&record, &dir, &name, post))
}

/// Of a step of which nothing was started.
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

/// The deaths of children, and the line of the client where there is one.
fn sources(spec: &LaunchSpec, handed: &[OwnedFd]) -> io::Result<(SignalFd, Option<Peer>)> {
    let mut chld = SigSet::empty();
    chld.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let client = match spec.tie_fd.and_then(|place| handed.get(place)) {
        Some(client_line) => {
            Some(Peer::new(UnixStream::from(client_line.try_clone()?), wire::decoder())?)
        }
        None => None,
    };
    Ok((signals, client))
}

/// Why a step is not launched here.
enum NotClaimed {
    LaunchedBefore(String),
    Failed(LaunchError),
}

/// Makes the mark of the running step, its socket in the job directory, which no other launch of it
/// may make.
fn claim(spec: &LaunchSpec, post: &mut Post) -> Result<(File, UnixListener), NotClaimed> {
    let dir = job_files::make_job_dir(&spec.job_dir)
        .and_then(|()| {
            File::open(&spec.job_dir)
                .map_err(LaunchError::own_file("open the directory", &spec.job_dir))
        })
        .map_err(NotClaimed::Failed)?;
    let name = socket_name(spec.step.step, spec.run);
    let path = socket::short_path(&dir, &name);
    let listener = listen(&path, post).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            NotClaimed::LaunchedBefore(format!("step {} was launched before", spec.step))
        }
        _ => NotClaimed::Failed(LaunchError::own_file("make", &spec.job_dir.join(&name))(e)),
    })?;
    if matches!(job_files::read_record(&spec.job_dir, spec.step.step, spec.run), Ok(Some(_))) {
        // It ended, and its watcher had just removed the socket.
        let _ = std::fs::remove_file(&path);
        return Err(NotClaimed::LaunchedBefore(format!("step {} has ended already", spec.step)));
    }
    Ok((dir, listener))
}

/// Listens at a path where nothing is, with the socket of the step before or with a new one.
fn listen(path: &Path, post: &mut Post) -> io::Result<UnixListener> {
    if let Some(listener) = post.idle.take() {
        match std::fs::hard_link(&post.idle_path, path) {
            Ok(()) => return Ok(listener),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            // Its name was removed, or this is another file system, or one without such names.
            Err(_) => drop(std::fs::remove_file(&post.idle_path)),
        }
        post.has_idle_path = false;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A process of its own: no terminal, no signals but SIGCHLD, none of the launcher's descriptors in
/// use.
fn become_watcher() -> io::Result<()> {
    let _ = nix::unistd::setsid();
    let _ = set_name(HAS_STEP);
    nix::sys::prctl::set_child_subreaper(true)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    // Ignored SIGCHLD, the launcher's way, would reap the tasks unseen.
    task::default_signals();
    Ok(())
}

/// The launch, its descriptors, and the line, with what came behind it: commands may follow at
/// once. `None` where the daemon went away before it had sent all of it.
fn read_launch(mut line: Line) -> io::Result<Option<(LaunchSpec, Vec<OwnedFd>, Line)>> {
    line.control.set_nonblocking(false)?;
    let mut frames = Vec::with_capacity(3);
    let mut fds = Vec::new();
    let mut buf = vec![0u8; 64 << 10];
    loop {
        while let Some(frame) = line.incoming.next_frame()? {
            // A command that was on its way when the step before ended.
            if frames.is_empty() && frame.message::<StepCommand>().is_ok() {
                continue;
            }
            frames.push(frame.json);
            if let [json, script, env] = frames.as_mut_slice() {
                return Ok(Some((
                    wire::decode_launch(json, script, std::mem::take(env))?,
                    fds,
                    line,
                )));
            }
        }
        match socket::receive(&line.control, &mut buf, &mut fds)? {
            0 => return Ok(None),
            n => line.incoming.push(&buf[..n]),
        }
    }
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
    /// A rank of an MPI program.
    Rank(u32),
}

struct Watcher {
    spec: LaunchSpec,
    /// Of the watcher.
    start_ticks: u64,
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
    /// Processes that its tasks left behind when they had ended by themselves.
    left_over: u32,
    /// The launch failed by a fault of the host, and nothing of the user's has run.
    host_fault: Option<HostFault>,
    /// Commands that came while the tasks were made.
    early: Vec<StepCommand>,
    cgroup: Option<StepCgroup>,
    meter: Meter,
    over_time: OverTime,
    /// How many processes the kernel had ended for lack of memory at the first look.
    host_ooms: Option<u64>,
    /// The step's client, on a line of its own: it hangs up when the client is gone.
    client: Option<Peer>,
    /// The step ends since its client was gone.
    client_gone: bool,
    /// The step is being ended: its processes have been told by SIGTERM, or are about to be.
    ending: bool,
    /// The SIGTERM that the daemon sends next is one that they have had.
    had_term: bool,
    /// Of an MPI program.
    pmi: Option<pmi::Server>,
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
    /// At the end of the step it is as good as a new watcher to the daemon that has sent the
    /// launch.
    may_stay: bool,
    pace: Pace,
}

impl Watcher {
    fn new(
        spec: LaunchSpec,
        peer: Option<Peer>,
        listener: UnixListener,
        signals: SignalFd,
        client: Option<Peer>,
        post: &mut Post,
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
            meter: Meter::new(std::mem::take(&mut post.dead_io)),
            over_time: OverTime::new(Instant::now()),
            host_ooms: None,
            start_ticks: post.start_ticks,
            kill: None,
            warned: false,
            told_end: false,
            deadline: spec.time_limit_secs.map(|secs| Instant::now() + Duration::from_secs(secs)),
            suspended_at: None,
            timed_out: false,
            stopped: false,
            may_stay: spec.env.len() + spec.script.as_ref().map_or(0, Vec::len) < SMALL_LAUNCH,
            pace: Pace::new(Instant::now()),
            spec,
            listener,
            signals,
        }
    }

    /// Until no process of the step is left, or only such as cannot die.
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
            self.look();
        }
    }

    /// Waits until something can be done, at most so long. What is ready, in the order in which it
    /// is handled.
    fn ready(&mut self, until: Duration) -> Vec<Source> {
        flush(&mut self.peer);
        if let Some(client) = &mut self.client {
            // That it is gone shows when it is read from.
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

    /// What the client asks for; at its end nobody reads what the step writes.
    pub(super) fn read_client(&mut self) {
        let Some(client) = &mut self.client else { return };
        let flushed = client.flush();
        let (commands, end) = client.receive();
        for command in commands {
            // srun, itself a process of the batch script, passes on what it is told at the job's
            // end: its step is told too.
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

    /// What a rank asks for. One that gives up ends the step, as with Slurm.
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
        // The end of a batch script takes its srun away, and may come before the daemon's word.
        if !std::mem::replace(&mut self.ending, true) {
            signal_all(libc::SIGTERM);
        }
        if self.spec.pty {
            // A shell at a terminal ends by nothing less.
            signal_all(libc::SIGHUP);
        }
        self.resume_all();
        self.kill_after_grace();
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
        let ended =
            |task: &Task| task.exit.map(|exit| StepEvent::TaskEnded { rank: task.rank, exit });
        self.tasks.iter().filter_map(ended).collect()
    }

    /// Tells the daemon and the client, before the watcher sleeps again.
    fn announce(&mut self, event: &StepEvent) {
        tell(&mut self.peer, event);
        if let Some(client) = &mut self.client {
            let _ = client.queue(event);
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
        self.may_stay = false;
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

    /// The job was told to end, and so was the manager of its steps: it ends them and writes that
    /// down. Whoever told it kills what is left after the grace.
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
    use crate::sys::lock;
    use std::io::Write;

    #[test]
    fn a_command_for_the_step_before_is_not_taken_for_a_launch() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock::share_now(&dir.path().join("lock")).unwrap();
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
        daemon.write_all(&wire::encode(&StepCommand::Resume).unwrap()).unwrap();
        let (spec, _, line) = read_launch(Line { control, incoming, lock }).unwrap().unwrap();
        assert_eq!(spec, sent);
        let mut peer = Peer::new(line.control, line.incoming).unwrap();
        assert_eq!(peer.receive::<StepCommand>().0, [StepCommand::Resume]);
    }
}
