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

use crate::exec::LaunchError;
use crate::exec::cgroup::StepCgroup;
use crate::exec::job_files::{self, Files};
use crate::exec::launch_spec::{LaunchSpec, Rlimit, StepEvent, socket_name};
use crate::exec::meter::Meter;
use crate::exec::peer::{Peer, poll, tell, tell_last};
use crate::exec::task::{self, Birth};
use crate::exec::{adopt, runner_script, wire};
use crate::model::{ExitCode, ExitRecord, Timestamp};
use crate::protocol::frame::Decoder;
use crate::sys::clock::now;
use crate::sys::{limits, proc, socket};
use commands::{resume_all, signal_all};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long processes that do not die of SIGKILL (stuck in the kernel) are waited for, as Slurm's UnkillableStepTimeout.
const UNKILLABLE: Duration = Duration::from_secs(60);

/// How long the processes of a client that died have after SIGTERM and SIGHUP.
const CLIENT_GONE_GRACE: Duration = Duration::from_millis(500);

/// Between two looks at the memory in use; from the first to the last as the step grows older. Slurm looks every 30 s.
const FIRST_SAMPLE: Duration = Duration::from_millis(100);
const LAST_SAMPLE: Duration = Duration::from_secs(30);

/// Becomes the watcher of the step that comes over `control`. `lock` is the launcher's.
pub(super) fn watch(control: OwnedFd, lock: File) -> ! {
    // A watcher has nobody to tell of its own mishaps but the daemon, which sees the connection end.
    let _ = run(control, lock);
    // SAFETY: the process ends here, without the launcher's exit handlers.
    unsafe { libc::_exit(0) }
}

fn run(control: OwnedFd, lock: File) -> io::Result<()> {
    become_watcher()?;
    let nofile = limits::raise_descriptors();
    let Some((spec, handed, early)) = read_launch(&control)? else { return Ok(()) };
    let mut peer = Some(Peer::new(UnixStream::from(control), early)?);
    let started = now();
    let (dir, listener) = match claim(&spec) {
        Ok(claimed) => claimed,
        Err(NotClaimed::LaunchedBefore(why)) => {
            tell_last(&mut peer, &StepEvent::Refused(why));
            return Ok(());
        }
        Err(NotClaimed::Failed(why)) => {
            let record = ExitRecord::launch_failed(why.to_string(), now());
            let failed = ExitRecord { run: spec.run, started, ..record };
            tell_last(&mut peer, &StepEvent::Ended(failed));
            return Ok(());
        }
    };
    listener.set_nonblocking(true)?;
    // From here on a new daemon can see that this step was launched.
    drop(lock);

    let name = socket_name(spec.step.step, spec.run);
    let mut watcher = Watcher::new(spec, peer, listener, &handed, started)?;
    if let Err(error) = watcher.start(handed, nofile) {
        watcher.launch_error = Some(error.to_string());
        watcher.begin_killing();
    }
    // Commands that came together with the launch make no further noise.
    watcher.read_commands();
    let record = watcher.run_to_end();
    watcher.finish(&record, &dir, &name);
    Ok(())
}

/// Why a step is not launched here.
enum NotClaimed {
    LaunchedBefore(String),
    Failed(LaunchError),
}

/// Makes the mark of the running step, its socket in the job directory, which no other launch of it may make.
fn claim(spec: &LaunchSpec) -> Result<(File, UnixListener), NotClaimed> {
    let dir = job_files::make_dir(&spec.job_dir, 0o700)
        .and_then(|()| File::open(&spec.job_dir).map_err(LaunchError::file("open the directory", &spec.job_dir)))
        .map_err(NotClaimed::Failed)?;
    let name = socket_name(spec.step.step, spec.run);
    let path = socket::short_path(&dir, &name);
    let listener = UnixListener::bind(&path).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => NotClaimed::LaunchedBefore(format!("step {} was launched before", spec.step)),
        _ => NotClaimed::Failed(LaunchError::file("make", &spec.job_dir.join(&name))(e)),
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
    started: Timestamp,
    launch_error: Option<String>,
    cgroup: Option<StepCgroup>,
    meter: Meter,
    /// A pipe whose other end the step's client holds: it hangs up when the client is gone.
    client: Option<OwnedFd>,
    kill: Option<Kill>,
    /// `StepCommand::Warn` was carried out.
    warned: bool,
    /// Of the step's own time limit.
    deadline: Option<Instant>,
    suspended_at: Option<Instant>,
    timed_out: bool,
    stopped: bool,
    next_sample: Instant,
    sample_pause: Duration,
}

impl Watcher {
    fn new(
        spec: LaunchSpec,
        peer: Option<Peer>,
        listener: UnixListener,
        handed: &[OwnedFd],
        started: Timestamp,
    ) -> io::Result<Watcher> {
        let mut chld = SigSet::empty();
        chld.add(Signal::SIGCHLD);
        let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Watcher {
            cgroup: spec.cgroup.clone().map(StepCgroup::at),
            client: spec.tie_fd.and_then(|place| handed.get(place)).and_then(|fd| fd.try_clone().ok()),
            peer,
            tasks: Vec::new(),
            stderr: None,
            starting: None,
            started_event: None,
            started,
            launch_error: None,
            meter: Meter::default(),
            kill: None,
            warned: false,
            deadline: spec.time_limit_secs.map(|secs| Instant::now() + Duration::from_secs(secs)),
            suspended_at: None,
            timed_out: false,
            stopped: false,
            next_sample: Instant::now() + FIRST_SAMPLE,
            sample_pause: FIRST_SAMPLE,
            spec,
            listener,
            signals,
        })
    }

    /// Forks the tasks. An error is a failure of the launch; tasks that run already have to be killed.
    fn start(&mut self, handed: Vec<OwnedFd>, nofile: Option<Rlimit>) -> Result<(), LaunchError> {
        let spec = &self.spec;
        let mask = spec.umask.unwrap_or(0o022) & 0o777;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask as libc::mode_t));
        if let Some(script) = &spec.script {
            job_files::write_program(&task::script_path(spec), script)?;
        }
        job_files::check_work_dir(spec, &handed)?;
        let mut files = Files::default();
        let mut streams = Vec::with_capacity(spec.tasks.len());
        // Not the watcher's own first three descriptors: a task puts its streams there one after the other.
        let null = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(LaunchError::system("open /dev/null"))?;
        for task in &spec.tasks {
            streams.push(files.streams(task, &handed, null.as_raw_fd())?);
        }
        if let Some([_, _, job_files::Opened::Raw(fd)]) = streams.first() {
            // SAFETY: the descriptor is open: `files` or `handed` owns it, or it is /dev/null.
            self.stderr = unsafe { BorrowedFd::borrow_raw(*fd) }.try_clone_to_owned().ok();
        }
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
            .map_err(LaunchError::system("make a pipe"))?;
        let me = std::process::id() as i32;
        for (task, streams) in spec.tasks.iter().zip(&streams) {
            let birth = Birth { spec, task, streams, failures: write.as_raw_fd(), nofile, watcher: me };
            let pid = task::spawn(&birth)?;
            self.meter.add_task(task.rank, pid);
            self.tasks.push(Task { rank: task.rank, pid, exit: None });
        }
        self.starting = Some((File::from(read), Vec::new()));
        if self.tasks.is_empty() {
            return Err(LaunchError::NoTasks);
        }
        drop((files, handed, write, null));
        if self.spec.write_runner {
            // After the tasks have started: they need not wait for it, and nothing depends on it.
            let text = runner_script::runner_script(&self.spec);
            let _ = job_files::write_program(&self.spec.job_dir.join("runner.sh"), &text);
        }
        Ok(())
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
                Source::Client => self.client_is_gone(),
            }
        }
        if self.limit_is_reached() {
            self.timed_out = true;
            self.end_by_itself(" DUE TO TIME LIMIT");
        }
        if Instant::now() >= self.next_sample {
            self.sample();
            self.sample_pause = (self.sample_pause * 2).min(LAST_SAMPLE);
            self.next_sample = Instant::now() + self.sample_pause;
        }
    }

    /// Waits until something can be done, at most so long. What is ready, in the order in which it is handled.
    fn ready(&self, until: Duration) -> Vec<Source> {
        let none = PollFlags::empty();
        let mut entries = vec![(self.signals.as_fd(), PollFlags::POLLIN, Source::Children)];
        if let Some((pipe, _)) = &self.starting {
            entries.push((pipe.as_fd(), PollFlags::POLLIN, Source::Starting));
        }
        if let Some(peer) = &self.peer {
            let writes = if peer.outgoing.is_empty() { none } else { PollFlags::POLLOUT };
            entries.push((peer.socket.as_fd(), PollFlags::POLLIN | writes, Source::Peer));
        }
        entries.push((self.listener.as_fd(), PollFlags::POLLIN, Source::Listener));
        if let Some(client) = &self.client {
            entries.push((client.as_fd(), none, Source::Client));
        }
        let mut fds: Vec<PollFd<'_>> = entries.iter().map(|(fd, flags, _)| PollFd::new(*fd, *flags)).collect();
        poll(&mut fds, Some(until));
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        entries.iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|((.., source), _)| *source).collect()
    }

    /// The client is gone: nobody reads what the step writes.
    fn client_is_gone(&mut self) {
        self.client = None;
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            signal_all(signal);
        }
        resume_all();
        let since = Instant::now();
        self.kill.get_or_insert(Kill { since, hard_from: since + CLIENT_GONE_GRACE });
    }

    /// When to wake up though nothing happens.
    fn due(&self) -> Instant {
        match self.deadline {
            Some(deadline) if self.suspended_at.is_none() => deadline.min(self.next_sample),
            _ => self.next_sample,
        }
    }

    fn limit_is_reached(&self) -> bool {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_over && self.suspended_at.is_none() && self.kill.is_none()
    }

    /// The pipe that tasks hold until they execute: text is a failure, its end is the start. True where there may be more.
    fn read_starting(&mut self) -> bool {
        let Some((pipe, text)) = &mut self.starting else { return false };
        let mut buf = [0u8; 4096];
        match io::Read::read(pipe, &mut buf) {
            Ok(0) => {}
            Ok(n) => {
                text.extend_from_slice(&buf[..n]);
                return true;
            }
            Err(_) => return false,
        }
        let text = task::reasons(&String::from_utf8_lossy(text));
        self.starting = None;
        if !text.is_empty() {
            self.launch_error.get_or_insert(text);
            self.begin_killing();
            return false;
        }
        let pid = std::process::id() as i32;
        let event = StepEvent::Started {
            pid,
            start_ticks: proc::start_ticks(pid).unwrap_or(0),
            task_pids: self.tasks.iter().map(|t| t.pid).collect(),
            started: self.started,
        };
        tell(&mut self.peer, &event);
        self.started_event = Some(event);
        // Ends that came before the start were kept back.
        for i in 0..self.tasks.len() {
            self.tell_end(i);
        }
        false
    }

    fn tell_end(&mut self, i: usize) {
        if let (Some(_), Some(Task { rank, exit: Some(exit), .. })) = (&self.started_event, self.tasks.get(i)) {
            let event = StepEvent::TaskEnded { rank: *rank, exit: *exit };
            tell(&mut self.peer, &event);
        }
    }

    /// A new daemon: the old one is gone, or will notice that it was replaced.
    fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        let me = nix::unistd::getuid().as_raw();
        let allowed = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::PeerCredentials)
            .is_ok_and(|credentials| credentials.uid() == me || credentials.uid() == 0);
        if !allowed {
            return;
        }
        self.peer = Peer::new(socket, wire::decoder()).ok();
        if let Some(event) = self.started_event.clone() {
            tell(&mut self.peer, &event);
            for i in 0..self.tasks.len() {
                self.tell_end(i);
            }
        }
    }

    fn read_commands(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        match peer.flush().and_then(|()| peer.receive()) {
            Ok(commands) => commands.into_iter().for_each(|command| self.carry_out(command)),
            Err(_) => self.peer = None,
        }
    }

    fn begin_killing(&mut self) {
        let now = Instant::now();
        self.kill = Some(Kill { since: now, hard_from: now });
    }
}
