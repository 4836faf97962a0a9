//! The launcher, a tiny process that creates a watcher for each step, and the daemon's side of it.
//!
//! The daemon does not fork: forking a process that has grown costs milliseconds, and re-executing
//! a runner for each job costs an exec and dynamic linking. Instead the daemon starts
//! `slotd __launcher` once, while both are small, and sends it one end of a socket pair for each
//! step. The launcher forks a watcher for it (`watcher`), without an exec, and keeps no state:
//! if it dies, another one is started, and jobs are not affected. After its step, a watcher stays
//! idle for a second in case the same daemon has another launch (`idle_watchers`). So a series of
//! short jobs costs one fork per job, and that fork copies no memory (`sys::fork`). The watcher of a
//! job that starts at once prepares the launch while its record is written to the disk.
//!
//! Measured side by side with small programs: 2 cores, one job after the other, from the call until
//! the daemon sees the end of the job, relative to running the bare script through posix_spawn at
//! 0.8 ms. `cargo bench --bench launch` measures whole jobs.
//!
//! | approach | best of four runs | other runs, busy machine | |
//! |---|---|---|---|
//! | a runner executed for each job | 2.6 x | 6 to 7 x | exec, dynamic linking and runtime startup for each job |
//! | launcher and forked watcher: this design, without an idle watcher | 2.0 x | 4 to 6 x | two forks, one exec |
//! | a single launcher that forks the tasks itself | 1.4 x | 3 to 5 x | one fork, one exec |
//!
//! The last approach was rejected: the launcher would be the parent of every task, so a single
//! process would hold the exit codes, orphans and output of all jobs, and its death would lose them
//! all. A watcher per step costs half a millisecond and about 130 KiB of private memory, and
//! confines every failure to its step. Three hundred simultaneous launches took 0.8 ms each, no
//! more than the scripts alone in sequence.

use crate::error::{LaunchError, LaunchFault};
use crate::idle_watchers::IdleWatchers;
use crate::launch_spec::{LaunchSpec, StepEvent};
use crate::peer::{Peer, flush, queue_event};
use crate::step_handle::{self, Identity, Opening, StepHandle};
use crate::{launch_lock, stopped, watcher, wire};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{ForkResult, fork};
use slotd_model::ExitRecord;
use slotd_model::node::HostFault;
use slotd_sys::{break_point, clock, lock, slice, socket};
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
    /// The soft limit on descriptors with which this process started. Every launcher and every job
    /// gets it, even if the daemon has raised its own since.
    nofile: u64,
    process: Mutex<Process>,
    idle: Arc<IdleWatchers>,
    /// The time of the last search for stopped processes.
    searched: Mutex<Option<Instant>>,
}

/// The shortest interval between searches for stopped processes, shared by all runners.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Process {
    /// SOCK_SEQPACKET: each datagram is a launch. The other end is the launcher's standard input.
    socket: OwnedFd,
    child: Child,
}

impl Launcher {
    /// Starts a launcher from the program of this process, even if the file has been replaced on
    /// disk. `nofile` is the limit on open files that jobs inherit.
    ///
    /// # Errors
    /// Fails if the lock file below `<root>/run` cannot be created or the process cannot be
    /// started.
    pub fn start(root: &Path, nofile: u64) -> io::Result<Launcher> {
        Self::start_program(Path::new("/proc/self/exe"), root, nofile)
    }

    /// Starts a launcher from another `slotd` program.
    pub(super) fn start_program(program: &Path, root: &Path, nofile: u64) -> io::Result<Launcher> {
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
                "sent SIGCONT to {count} stopped processes of slotd, so that jobs can start and end"
            );
        }
    }

    /// Returns the PID of the launcher.
    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).child.id()
    }

    /// Launches a step. Returns immediately; the handle's events report the progress. `fds` are the
    /// descriptors to which the spec's `Fd` indices refer. Needs a tokio runtime.
    ///
    /// If the launcher has died, it is replaced and the launch is retried once.
    ///
    /// # Errors
    /// Fails if no launcher can be started or the spec is too large to send. Nothing was launched
    /// then.
    pub fn launch(&self, spec: &LaunchSpec, fds: Vec<OwnedFd>) -> Result<StepHandle, LaunchError> {
        let mut bytes = wire::encode_launch(spec).map_err(LaunchError::TooLarge)?;
        bytes.extend(wire::encode(&spec.begin()).map_err(LaunchError::TooLarge)?);
        self.hand_over(spec, bytes, fds).map_err(LaunchError::Launcher)
    }

    /// Prepares the launch of a step: a watcher stores its script and waits for
    /// [`begin`](StepHandle::begin). If the handle is dropped before that, or the daemon dies,
    /// nothing is launched. Needs a tokio runtime.
    ///
    /// # Errors
    /// As for [`Self::launch`].
    pub fn prepare(&self, spec: &LaunchSpec) -> Result<StepHandle, LaunchError> {
        let bytes = wire::encode_launch(spec).map_err(LaunchError::TooLarge)?;
        self.hand_over(spec, bytes, Vec::new()).map_err(LaunchError::Launcher)
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
        // Create it here, so that a failure is the daemon's error instead of a line from the
        // launcher.
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
        // An exited launcher's end of the socket may still be open without anybody reading it: in a
        // watcher that it just forked, or in a process that this one forked while creating the
        // socket pair.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        socket::send_some(&self.socket, &[0], &[step_socket.as_raw_fd()], &mut 0)
    }

    fn replace(&mut self, program: &Path, root: &Path, nofile: u64) -> io::Result<()> {
        let fresh = Process::start(program, root, nofile)?;
        let mut old = std::mem::replace(self, fresh);
        // It is dead or not reading. In either case do not leave a zombie.
        let _ = old.child.kill();
        let _ = old.child.wait();
        Ok(())
    }
}

impl Drop for Process {
    /// Closing the socket ends the launcher. It is not waited for, since the daemon is exiting.
    fn drop(&mut self) {
        let _ = self.child.try_wait();
    }
}

/// The launcher process: `slotd __launcher <root> <soft limit on descriptors>`, with its socket as
/// standard input. Never returns: each forked watcher exits when it is done.
pub fn launcher_main(args: &[String]) -> ! {
    let code = match args {
        [root, nofile] => match serve(Path::new(root), nofile.parse().ok()) {
            Ok(()) => 0,
            Err(e) => {
                report(format_args!("launcher: {e}"));
                1
            }
        },
        _ => {
            report(format_args!("{LAUNCHER_ARG} is for the daemon only"));
            2
        }
    };
    std::process::exit(code)
}

/// Prints a line to the daemon's log. Ignores errors, since the launcher must survive a full disk.
fn report(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "slotd: {what}");
}

fn serve(root: &Path, nofile: Option<u64>) -> io::Result<()> {
    if let (Some(soft), Ok((_, hard))) = (nofile, getrlimit(Resource::RLIMIT_NOFILE)) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
    let lock = launch_lock::take(root, lock::Kind::Shared)?;
    // Lead a session, so that Ctrl-C in the daemon's terminal reaches only the daemon.
    let _ = nix::unistd::setsid();
    let _ = nix::unistd::chdir("/");
    let _ = nix::sys::prctl::set_name(c"slotd-launcher");
    slice::shorten();
    // The kernel reaps children if SIGCHLD is ignored.
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
        // SAFETY: this process has a single thread, so the child may do anything.
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

/// Reports to the daemon that nothing was launched, and why. Never blocks, and writes nothing else:
/// if the log cannot be written, the launcher must still be able to exit.
fn could_not_fork(control: OwnedFd, error: nix::errno::Errno) {
    let error = LaunchError::system("fork")(error);
    let fault = match error.fault(Path::new("/")) {
        LaunchFault::Host(fault) => fault,
        LaunchFault::Job => HostFault::Launcher,
    };
    let record = ExitRecord::launch_failed(error.to_string(), clock::now()).by_host(Some(fault));
    let mut peer = Peer::new(UnixStream::from(control), wire::decoder()).ok();
    queue_event(&mut peer, &StepEvent::Ended(record));
    flush(&mut peer);
}
