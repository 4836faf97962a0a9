//! The launcher: a tiny process that makes a watcher for each step, and the daemon's side of it.
//!
//! The daemon does not fork: a fork costs milliseconds once a process has grown, and a re-executed
//! runner for each job costs an exec and a dynamic link. So the daemon starts `slotd __launcher`
//! once, while both are small, and hands it the far end of a socket pair for each step. The
//! launcher forks a watcher around it (`watcher`), with no exec, and forgets it. It keeps no state:
//! where it dies another one is started, and no job notices. A watcher whose step is over waits a
//! second for another launch of the same daemon (`idle_watchers`), so that one short job after the
//! other costs no fork but its own, and that one without a copy of any memory (`sys::fork`).
//!
//! Measured with small programs side by side (2 cores, one job after the other, from the call to
//! the end of the job in the daemon, against the bare script by posix_spawn at 0.8 ms;
//! `cargo bench --bench launch` measures whole jobs):
//!
//! | way | best of four runs | others, busy machine | |
//! |---|---|---|---|
//! | a runner for each job, executed anew | 2.6 x | 6 to 7 x | exec, dynamic link and start of the runtime for each job |
//! | launcher and forked watcher: this one, for the first steps | 2.0 x | 4 to 6 x | two forks, one exec |
//! | one launcher that forks the task itself | 1.4 x | 3 to 5 x | one fork, one exec |
//!
//! The last was not taken: its launcher would be the parent of every task, so that one process
//! holds the exit codes, the orphans and the output of all jobs, and its death loses them all. A
//! watcher for each step costs half a millisecond and about 130 KiB of private memory, and confines
//! every mishap to its step. Three hundred launches at once took 0.8 ms each: no more than the
//! scripts alone, one after the other.

use crate::exec::error::{LaunchError, LaunchFault};
use crate::exec::idle_watchers::IdleWatchers;
use crate::exec::launch_spec::{LaunchSpec, StepEvent};
use crate::exec::peer::{Peer, flush, tell};
use crate::exec::step_handle::{self, Identity, Opening, StepHandle};
use crate::exec::{launch_lock, stopped, watcher, wire};
use crate::model::ExitRecord;
use crate::model::node::HostFault;
use crate::sys::{break_point, clock, lock, socket};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{ForkResult, fork};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first argument that makes `slotd` a launcher.
pub const LAUNCHER_ARG: &str = "__launcher";

/// The daemon's side.
#[derive(Debug)]
pub struct Launcher {
    program: PathBuf,
    root: PathBuf,
    /// The soft limit on descriptors that this process began with: every launcher has it, and so
    /// has every job, however far the daemon raised its own since.
    nofile: u64,
    process: Mutex<Process>,
    idle: Arc<IdleWatchers>,
    /// When stopped processes were last looked for.
    searched: Mutex<Option<Instant>>,
}

/// All runners together look for stopped processes this often at most.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Process {
    /// SOCK_SEQPACKET: one datagram is one launch. Its far end is the launcher's standard input.
    socket: OwnedFd,
    child: Child,
}

impl Launcher {
    /// Starts a launcher from the program of this process, be it replaced on disk or not.
    ///
    /// # Errors
    /// The lock file below `<root>/run` cannot be made, or the process cannot be started.
    pub fn start(root: &Path) -> io::Result<Launcher> {
        Self::start_program(Path::new("/proc/self/exe"), root)
    }

    /// Starts a launcher from another `slotd` program.
    pub(super) fn start_program(program: &Path, root: &Path) -> io::Result<Launcher> {
        let nofile = getrlimit(Resource::RLIMIT_NOFILE)?.0;
        let process = Process::start(program, root, nofile)?;
        let (program, root) = (program.to_owned(), root.to_owned());
        Ok(Launcher {
            program,
            root,
            nofile,
            process: Mutex::new(process),
            idle: Arc::default(),
            searched: Mutex::default(),
        })
    }

    /// Sends SIGCONT to launchers and watchers that somebody has stopped, unless this was done a
    /// moment ago. May take as long as reading the state of every process of the machine.
    pub fn resume_stopped(&self) {
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.is_some_and(|at| at.elapsed() < SEARCH_INTERVAL) {
            return;
        }
        let count = stopped::resume(&self.root);
        *searched = Some(Instant::now());
        if count > 0 {
            log::warn!(
                "{count} stopped processes of slotd were sent SIGCONT, so that jobs can end"
            );
        }
    }

    /// The process id of the launcher.
    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).child.id()
    }

    /// Launches a step. Returns at once; how it goes is told by the handle's events. `fds` are what
    /// the spec's `Fd` places mean. Needs a tokio runtime.
    ///
    /// A launcher that has died is replaced and the launch tried once more.
    ///
    /// # Errors
    /// No launcher can be started, or the spec is too large to send. Nothing was launched then.
    pub fn launch(&self, spec: &LaunchSpec, fds: Vec<OwnedFd>) -> Result<StepHandle, LaunchError> {
        let bytes = wire::encode_launch(spec).map_err(LaunchError::TooLarge)?;
        self.hand_over(spec, bytes, fds).map_err(LaunchError::Launcher)
    }

    fn hand_over(
        &self,
        spec: &LaunchSpec,
        bytes: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> io::Result<StepHandle> {
        let mut opening =
            Opening { bytes, fds, for_launcher: None, idle: Some(Arc::clone(&self.idle)) };
        let identity =
            Identity { job_dir: spec.job_dir.clone(), step: spec.step.step, run: spec.run };
        if let Some(line) = self.idle.take() {
            return Ok(StepHandle::serve(line, identity, opening));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = process.hand_over(&theirs);
        if result.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock) {
            process.replace(&self.program, &self.root, self.nofile)?;
            result = process.hand_over(&theirs);
        }
        match result {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                opening.for_launcher = Some((process.socket.try_clone()?, theirs));
            }
            Err(e) => return Err(e),
        }
        Ok(StepHandle::serve(step_handle::asynchronous(ours)?, identity, opening))
    }
}

impl Process {
    fn start(program: &Path, root: &Path, nofile: u64) -> io::Result<Process> {
        // Made here so that a failure is the daemon's error and not a line in the launcher's.
        launch_lock::take(root, lock::Kind::Shared)?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        let child = Command::new(program)
            .arg0("slotd")
            .arg(LAUNCHER_ARG)
            .arg(root)
            .arg(nofile.to_string())
            .env_clear()
            .envs(clock::pretended::variables())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| {
                io::Error::new(
                    e.kind(),
                    format!("could not start the launcher {}: {e}", program.display()),
                )
            })?;
        Ok(Process { socket: ours, child })
    }

    fn hand_over(&mut self, step_socket: &OwnedFd) -> io::Result<()> {
        // Where it has ended somebody may still hold its end of the line, though nobody reads there:
        // a watcher that it has just forked, or a process that this one forked when it made the line.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        socket::send_some(&self.socket, &[0], &[step_socket.as_raw_fd()], &mut 0)
    }

    fn replace(&mut self, program: &Path, root: &Path, nofile: u64) -> io::Result<()> {
        let fresh = Process::start(program, root, nofile)?;
        let mut old = std::mem::replace(self, fresh);
        // It is dead already, or does not read: in either case it must not be left as a zombie.
        let _ = old.child.kill();
        let _ = old.child.wait();
        Ok(())
    }
}

impl Drop for Process {
    /// Closing the socket ends the launcher; it is not waited for, since the daemon is leaving
    /// itself.
    fn drop(&mut self) {
        let _ = self.child.try_wait();
    }
}

/// The launcher process: `slotd __launcher <root> <soft limit on descriptors>`, its socket as
/// standard input. Never returns to the caller: in each forked watcher the process ends with the
/// step.
pub fn launcher_main(args: &[String]) -> ! {
    let code = match args {
        [root, nofile] => match serve(Path::new(root), nofile.parse().ok()) {
            Ok(()) => 0,
            Err(e) => {
                say(format_args!("launcher: {e}"));
                1
            }
        },
        _ => {
            say(format_args!("{LAUNCHER_ARG} is for the daemon alone"));
            2
        }
    };
    std::process::exit(code)
}

/// A line in the daemon's log. A disk without room for it is no reason to end.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "slotd: {what}");
}

fn serve(root: &Path, nofile: Option<u64>) -> io::Result<()> {
    if let (Some(soft), Ok((_, hard))) = (nofile, getrlimit(Resource::RLIMIT_NOFILE)) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
    let lock = launch_lock::take(root, lock::Kind::Shared)?;
    // A leader of its own session, so that Ctrl-C in the daemon's terminal is the daemon's alone.
    let _ = nix::unistd::setsid();
    let _ = nix::unistd::chdir("/");
    let _ = nix::sys::prctl::set_name(c"slotd-launcher");
    // Ignored children are reaped by the kernel.
    // SAFETY: no handler is set.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn)? };
    let control_socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut fds = Vec::new();
    loop {
        let mut byte = [0u8; 1];
        if socket::receive(&control_socket, &mut byte, &mut fds)? == 0 {
            return Ok(());
        }
        let Some(control) = fds.pop() else { continue };
        fds.clear();
        break_point::reach("launcher told");
        // SAFETY: this process has one thread, so the child may do whatever it could do.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                drop(control_socket);
                watcher::watch(control, lock, root)
            }
            Ok(ForkResult::Parent { .. }) => {}
            Err(e) => could_not_fork(control, e),
        }
    }
}

/// Tells the daemon that nothing was launched, and why. Never waits, and never writes elsewhere: a
/// log that cannot be written must not keep the launcher from ending.
fn could_not_fork(control: OwnedFd, error: nix::errno::Errno) {
    let error = LaunchError::system("fork")(error);
    let fault = match error.fault(Path::new("/")) {
        LaunchFault::Host(fault) => fault,
        LaunchFault::Job => HostFault::Launcher,
    };
    let record = ExitRecord::launch_failed(error.to_string(), clock::now()).by_host(Some(fault));
    let mut peer = Peer::new(UnixStream::from(control), wire::decoder()).ok();
    tell(&mut peer, &StepEvent::Ended(record));
    flush(&mut peer);
}
