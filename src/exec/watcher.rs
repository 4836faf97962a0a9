//! The watcher: the process that starts the tasks of one step, stays with them, and writes down how they ended. What
//! slurmstepd is in Slurm.
//!
//! ```text
//!   read the launch ─► bind <step>.<run>.sock ─► let go of the launcher's lock ─► start the tasks
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

use crate::exec::cgroup::StepCgroup;
use crate::exec::job_files::{self, Files};
use crate::exec::launch_spec::{
    LaunchSpec, OwnEnd, Rlimit, SignalTarget, StepCommand, StepEvent, StepUsage, socket_name,
};
use crate::exec::meter::Meter;
use crate::exec::peer::{Peer, poll, poll_fd, tell, tell_last};
use crate::exec::task::{self, Birth};
use crate::exec::{adopt, runner_script, wire};
use crate::model::tres::Usage;
use crate::model::{ExitCode, ExitRecord, StepId, Timestamp};
use crate::protocol::frame::Decoder;
use crate::sys::clock::now;
use crate::sys::{limits, proc, socket};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long processes that do not die of SIGKILL (stuck in the kernel) are waited for, as Slurm's UnkillableStepTimeout.
const UNKILLABLE: Duration = Duration::from_secs(60);

/// How long the processes of a client that died have after SIGTERM and SIGHUP.
const TIED_GRACE: Duration = Duration::from_millis(500);

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
    let failed = |why: String| ExitRecord {
        run: spec.run,
        exit: ExitCode::LAUNCH_FAILED,
        started,
        ended: now(),
        launch_error: Some(why),
        ..ExitRecord::default()
    };
    let dir = match job_files::make_dir(&spec.job_dir, 0o700)
        .and_then(|()| File::open(&spec.job_dir).map_err(|e| job_files::reason(&e)))
    {
        Ok(dir) => dir,
        Err(why) => {
            tell_last(&mut peer, &StepEvent::Ended(failed(why)));
            return Ok(());
        }
    };
    let name = socket_name(spec.step.step, spec.run);
    let listener = match UnixListener::bind(socket::short_path(&dir, &name)) {
        Ok(listener) => listener,
        Err(e) => {
            let event = match e.kind() {
                io::ErrorKind::AddrInUse => StepEvent::Refused(format!("step {} was launched before", spec.step)),
                _ => StepEvent::Ended(failed(format!(
                    "could not make {}/{name}: {}",
                    spec.job_dir.display(),
                    job_files::reason(&e)
                ))),
            };
            tell_last(&mut peer, &event);
            return Ok(());
        }
    };
    if matches!(adopt::read_record(&spec.job_dir, spec.step.step, spec.run), Ok(Some(_))) {
        // It ended, and its watcher had just removed the socket.
        let _ = std::fs::remove_file(socket::short_path(&dir, &name));
        tell_last(&mut peer, &StepEvent::Refused(format!("step {} has ended already", spec.step)));
        return Ok(());
    }
    listener.set_nonblocking(true)?;
    // From here on a new daemon can see that this step was launched.
    drop(lock);

    let mut chld = SigSet::empty();
    chld.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut watcher = Watcher {
        cgroup: spec.cgroup.clone().map(StepCgroup::at),
        tie: spec.tie_fd.and_then(|place| handed.get(place)).and_then(|fd| fd.try_clone().ok()),
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
    };
    if let Err(why) = watcher.start(handed, nofile) {
        watcher.launch_error = Some(why);
        watcher.begin_killing();
    }
    // Commands that came together with the launch make no further noise.
    watcher.hear();
    let record = watcher.stay();
    watcher.finish(&record, &dir, &name);
    Ok(())
}

/// A process of its own: no terminal, no signals but SIGCHLD, none of the launcher's descriptors in use.
fn become_watcher() -> io::Result<()> {
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_name(c"slotd-step");
    nix::sys::prctl::set_child_subreaper(true)?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: plain system calls on numbers. Ignored SIGCHLD, the launcher's way, would reap the tasks unseen.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        for fd in 0..3 {
            libc::dup2(null.as_raw_fd(), fd);
        }
    }
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
    tie: Option<OwnedFd>,
    kill: Option<Kill>,
    /// `StepCommand::Warn` was obeyed.
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
    /// Forks the tasks. An error is a failure of the launch; tasks that run already have to be killed.
    fn start(&mut self, handed: Vec<OwnedFd>, nofile: Option<Rlimit>) -> Result<(), String> {
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
            .map_err(|e| format!("could not open /dev/null: {e}"))?;
        for task in &spec.tasks {
            streams.push(files.streams(task, &handed, null.as_raw_fd())?);
        }
        if let Some([_, _, job_files::Stream::Raw(fd)]) = streams.first() {
            // SAFETY: the descriptor is open: `files` or `handed` owns it, or it is /dev/null.
            self.stderr = unsafe { BorrowedFd::borrow_raw(*fd) }.try_clone_to_owned().ok();
        }
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
            .map_err(|e| format!("could not make a pipe: {}", e.desc()))?;
        let me = std::process::id() as i32;
        for (task, streams) in spec.tasks.iter().zip(&streams) {
            let birth = Birth { spec, task, streams, failures: write.as_raw_fd(), nofile, watcher: me };
            let pid = task::spawn(&birth)?;
            self.meter.add_task(task.rank, pid);
            self.tasks.push(Task { rank: task.rank, pid, exit: None });
        }
        self.starting = Some((File::from(read), Vec::new()));
        if self.tasks.is_empty() {
            return Err("the step has no tasks".into());
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
    fn stay(&mut self) -> ExitRecord {
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
        let (peer, peer_events) = match &self.peer {
            Some(p) => (p.socket.as_raw_fd(), libc::POLLIN | if p.outgoing.is_empty() { 0 } else { libc::POLLOUT }),
            None => (-1, 0),
        };
        // Descriptors below zero are passed over by poll.
        let mut fds = [
            poll_fd(self.signals.as_raw_fd(), libc::POLLIN),
            poll_fd(self.listener.as_raw_fd(), libc::POLLIN),
            poll_fd(peer, peer_events),
            poll_fd(self.starting.as_ref().map_or(-1, |(f, _)| f.as_raw_fd()), libc::POLLIN),
            poll_fd(self.tie.as_ref().map_or(-1, AsRawFd::as_raw_fd), 0),
        ];
        let now = Instant::now();
        let until = match &self.kill {
            // Deaths are events; the short wait is for a process that forked while it was killed.
            Some(kill) => kill.hard_from.saturating_duration_since(now).max(Duration::from_millis(100)),
            None => self.due().saturating_duration_since(now),
        };
        poll(&mut fds, Some(until));
        let [signals, listener, peer, starting, tie] = fds.map(|fd| fd.revents);
        if signals != 0 {
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
        if starting != 0 {
            self.read_starting();
        }
        if peer != 0 {
            self.hear();
        }
        if listener != 0 {
            self.accept();
        }
        if tie != 0 {
            // The client is gone: nobody reads what the step writes.
            self.tie = None;
            for signal in [libc::SIGTERM, libc::SIGHUP] {
                signal_all(signal);
            }
            resume_all();
            let since = Instant::now();
            self.kill.get_or_insert(Kill { since, hard_from: since + TIED_GRACE });
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

    /// Slurm's line, SIGTERM, and SIGKILL after the grace: whether a daemon runs or not.
    fn end_by_itself(&mut self, why: &str) {
        let OwnEnd { grace_ms, node, utc_offset_secs } = &self.spec.own_end;
        let at = iso_time(now(), *utc_offset_secs);
        self.notice(&format!("slurmstepd: error: *** STEP {} ON {node} CANCELLED AT {at}{why} ***", self.spec.step));
        signal_all(libc::SIGTERM);
        // A stopped process would not see it.
        resume_all();
        let since = Instant::now();
        self.kill = Some(Kill { since, hard_from: since + Duration::from_millis(*grace_ms) });
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

    fn hear(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        match peer.flush().and_then(|()| peer.receive()) {
            Ok(commands) => commands.into_iter().for_each(|command| self.obey(command)),
            Err(_) => self.peer = None,
        }
    }

    fn obey(&mut self, command: StepCommand) {
        match command {
            StepCommand::Signal { signal, target } => self.signal(signal, target),
            StepCommand::Warn { .. } if self.warned => {}
            StepCommand::Warn { signal, target } => {
                self.warned = true;
                self.signal(signal, target);
            }
            StepCommand::Notice(text) => self.notice(&text),
            StepCommand::Suspend => {
                self.suspended_at.get_or_insert_with(Instant::now);
                signal_all(libc::SIGSTOP);
            }
            StepCommand::Resume => {
                match self.suspended_at.take() {
                    Some(since) => {
                        if let Some(deadline) = &mut self.deadline {
                            *deadline += since.elapsed();
                        }
                        // Some may have the signal before them, and not stand still yet.
                        signal_all(libc::SIGCONT);
                    }
                    None => resume_all(),
                }
            }
            StepCommand::KillAll => self.begin_killing(),
            StepCommand::Usage => {
                let usage = self.sample();
                tell(&mut self.peer, &StepEvent::Usage(usage));
            }
        }
    }

    fn signal(&self, signal: i32, target: SignalTarget) {
        // A task that was reaped has no pid any more: its number may be another's.
        let alive = || self.tasks.iter().filter(|t| t.exit.is_none());
        match target {
            SignalTarget::Processes => signal_all(signal),
            SignalTarget::Tasks => {
                for task in alive() {
                    proc::kill_group(task.pid, signal);
                }
            }
            SignalTarget::BatchShell => {
                for task in alive() {
                    proc::kill(task.pid, signal);
                }
            }
            SignalTarget::Rank(rank) => {
                for task in alive().filter(|t| t.rank == rank) {
                    proc::kill_group(task.pid, signal);
                }
            }
            SignalTarget::Handlers => {
                for pid in proc::descendants(std::process::id() as i32) {
                    if proc::catches(pid, signal) {
                        proc::kill(pid, signal);
                    }
                }
            }
        }
    }

    /// Never waits: a reader that has stopped reading misses the notice.
    fn notice(&self, text: &str) {
        let Some(stderr) = &self.stderr else { return };
        let mut ready = [poll_fd(stderr.as_raw_fd(), libc::POLLOUT)];
        poll(&mut ready, Some(Duration::ZERO));
        if ready[0].revents & libc::POLLOUT != 0 {
            // A pipe that can be written to takes 4096 bytes at once.
            let line = format!("{text}\n");
            let _ = nix::unistd::write(stderr, &line.as_bytes()[..line.len().min(4096)]);
        }
    }

    fn begin_killing(&mut self) {
        let now = Instant::now();
        self.kill = Some(Kill { since: now, hard_from: now });
    }

    /// Collects the dead. True where no child is left.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: the pointers are to a live integer and a live rusage, for which all zeros is a value.
            let (pid, used) = unsafe {
                let mut used: libc::rusage = std::mem::zeroed();
                (libc::wait4(-1, &mut status, libc::WNOHANG, &mut used), used)
            };
            match pid {
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                -1 => return true,
                0 => return false,
                _ => {
                    self.meter.reaped(pid, &used);
                    let exit = if libc::WIFSIGNALED(status) {
                        ExitCode::signal(libc::WTERMSIG(status))
                    } else {
                        ExitCode::status(libc::WEXITSTATUS(status))
                    };
                    if let Some(i) = self.tasks.iter().position(|t| t.pid == pid && t.exit.is_none()) {
                        let ooms = self.oom_kills();
                        // Whatever a task makes of the death of a child: it ran out of memory, as in Slurm.
                        let exit = if ooms > 0 { ExitCode::OUT_OF_MEMORY } else { exit };
                        self.tasks[i].exit = Some(exit);
                        if ooms > 0 && self.tasks.iter().all(|t| t.exit.is_some()) {
                            self.notice(&oom_notice(ooms, &self.spec));
                        }
                        self.tell_end(i);
                        if self.spec.kill_on_bad_exit && !exit.is_success() && self.kill.is_none() {
                            self.stopped = true;
                            self.end_by_itself("");
                        }
                    }
                }
            }
        }
    }

    /// How many processes of the step were killed for their memory.
    fn oom_kills(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, StepCgroup::oom_kills)
    }

    /// Looks at what the step uses now, and remembers the most memory seen.
    fn sample(&mut self) -> StepUsage {
        let mut usage = self.meter.sample();
        self.count_all(&mut usage.total);
        usage
    }

    /// The times by the cgroup, where there is one: it also knows of processes that nobody waited for.
    fn count_all(&self, usage: &mut Usage) {
        if let Some((user_us, system_us)) = self.cgroup.as_ref().and_then(StepCgroup::cpu_times) {
            (usage.user_us, usage.system_us) = (user_us, system_us);
        }
    }

    fn record(&self) -> ExitRecord {
        let tasks: Vec<ExitCode> =
            self.tasks.iter().map(|t| t.exit.unwrap_or(ExitCode::signal(libc::SIGKILL))).collect();
        // A batch script is the job: what its steps did not get, the job did not get.
        let job_ran_out = || self.cgroup.as_ref().is_some_and(StepCgroup::job_ran_out);
        let oom = self.oom_kills() > 0 || self.spec.step.step == StepId::Batch && job_ran_out();
        let exit = match &self.launch_error {
            Some(_) => ExitCode::LAUNCH_FAILED,
            None if oom => ExitCode::OUT_OF_MEMORY,
            None => tasks.iter().fold(ExitCode::OK, |worst, task| worst.worse(*task)),
        };
        let mut usage = self.meter.of_the_dead();
        self.count_all(&mut usage);
        ExitRecord {
            run: self.spec.run,
            exit,
            usage,
            started: self.started,
            ended: now(),
            oom,
            timed_out: self.timed_out,
            stopped: self.stopped,
            launch_error: self.launch_error.clone(),
            tasks,
        }
    }

    /// Makes the record last, removes the mark of the running step, and tells the end: in this order.
    fn finish(&mut self, record: &ExitRecord, dir: &File, socket: &str) {
        self.stderr = None;
        if let Some(cgroup) = self.cgroup.take() {
            // Where a process could not be killed it stays, and the daemon removes it with the job's.
            cgroup.remove();
        }
        loop {
            let written = job_files::write_record(&self.spec, record);
            if written.is_ok() {
                // Without a record the socket stays: it says that the step did run.
                let _ = std::fs::remove_file(socket::short_path(dir, socket));
            }
            let told = tell_last(&mut self.peer, &StepEvent::Ended(record.clone()));
            // A daemon that was told may go down before it could write it down either: its disk is the same.
            let disk_is_full = written
                .as_ref()
                .is_err_and(|e| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded));
            if written.is_ok() || (told && !disk_is_full) {
                return;
            }
            // Whoever was told need not hear it again.
            self.peer = None;
            // The job directory was removed, and with it everybody who could ask.
            if dir.metadata().is_ok_and(|meta| meta.nlink() == 0) {
                return;
            }
            // The result is kept here until the disk has room again, or a daemon comes.
            poll(&mut [poll_fd(self.listener.as_raw_fd(), libc::POLLIN)], Some(Duration::from_secs(5)));
            self.accept();
        }
    }
}

/// SIGCONT to those that stand still, and to no others: a shell that gets it together with another signal may lose the
/// trap of one of them.
fn resume_all() {
    let me = std::process::id() as i32;
    for pid in proc::descendants(me).into_iter().filter(|pid| proc::stat(*pid).is_some_and(|s| s.state == b'T')) {
        proc::kill(pid, libc::SIGCONT);
    }
}

/// Sends a signal to every process below this one. A signal that all must get (SIGKILL, SIGSTOP) is sent until no new
/// process turns up: one may have been forked while its parent was on the way to be signalled.
fn signal_all(signal: i32) {
    let me = std::process::id() as i32;
    let mut seen: Vec<i32> = Vec::new();
    loop {
        let fresh: Vec<i32> = proc::descendants(me).into_iter().filter(|pid| !seen.contains(pid)).collect();
        for &pid in &fresh {
            proc::kill(pid, signal);
        }
        if fresh.is_empty() || !matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
            return;
        }
        seen.extend(fresh);
    }
}

/// Slurm's line for the output of a step whose processes were killed for their memory.
fn oom_notice(ooms: u64, spec: &LaunchSpec) -> String {
    format!(
        "slurmstepd: error: Detected {ooms} oom-kill event(s) in StepId={}. Some of your processes may have been killed \
         by the cgroup out-of-memory handler.",
        spec.step
    )
}

/// `2026-11-20T23:14:49`, so many seconds away from UTC.
fn iso_time(at: Timestamp, utc_offset_secs: i32) -> String {
    let secs = at.as_secs().saturating_add(i64::from(utc_offset_secs));
    // SAFETY: gmtime_r reads one live value and fills in another, for which all zeros is a value.
    let t = unsafe {
        let mut t: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&secs, &mut t);
        t
    };
    let (year, month) = (t.tm_year + 1900, t.tm_mon + 1);
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}", t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec)
}
