//! The process that starts the steps of a job's step manager, and waits for them.
//!
//! It is the manager's parent and stays small, so that starting a process is cheap and the memory
//! of the manager is not counted towards any step. When the manager ends, for whatever reason, its
//! remaining steps are killed. When this process is killed, the kernel kills the first process of
//! each step.
//!
//! ```text
//!  sjobmgr ──fork──► manager ──orders──► launcher ──► steps
//!  (launcher)                ◄──facts──
//! ```

use crate::cgroup::ManagedSteps;
use crate::environment::{self, Variables};
use crate::job_dirs;
use crate::job_files::Files;
use crate::launch_spec::{LaunchSpec, TaskSpec};
use crate::meter::own_peak_kb;
use crate::reap::{Dead, reap};
use crate::task::{self, ForkContext};
use crate::wire;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};
use slotd_model::tres::Usage;
use slotd_model::{ExitCode, Timestamp};
use slotd_protocol::frame::Decoder;
use slotd_sys::{clock, proc, socket};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A request from the manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// The common part of launches. Their environment is that of this process, with the variables
    /// `set_env`. Patterns are numbered in the order received, from 0.
    Pattern {
        spec: Box<LaunchSpec>,
        set_env: Variables,
    },
    Launch(Box<Launch>),
    /// Send a signal to all processes in the groups of this step's tasks.
    Signal {
        number: u32,
        signal: i32,
    },
}

/// A step to launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    pub number: u32,
    pub pattern: usize,
    /// Its memory limit in MiB, if it has one.
    pub mem_mb: Option<u64>,
    pub argv: Vec<String>,
    pub work_dir: PathBuf,
    pub tasks: Vec<TaskSpec>,
}

/// A report to the manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Fact {
    Started {
        number: u32,
        pids: Vec<i32>,
    },
    Ended(Box<Ended>),
    /// This process received SIGINT from `sender`; 0 means from the terminal.
    Interrupted {
        sender: u32,
    },
}

/// The end of a step: all its tasks, and the processes left in their groups, have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub number: u32,
    /// The worst exit code of its tasks.
    pub exit: ExitCode,
    pub usage: Usage,
    pub started: Timestamp,
    pub ended: Timestamp,
    /// The reason why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A running step.
struct Running {
    pids: Vec<i32>,
    left: usize,
    end: Ended,
    /// It has a cgroup of its own.
    is_limited: bool,
}

struct StepLauncher {
    manager: i32,
    link: UnixStream,
    /// `KEY=VALUE` entries, each terminated by a null byte.
    env: Vec<u8>,
    patterns: Vec<LaunchSpec>,
    /// Limits the memory of steps, if this process is in a cgroup of its job.
    cgroups: Option<ManagedSteps>,
    running: HashMap<u32, Running>,
    /// The numbers of the steps by the PIDs of their tasks.
    numbers: HashMap<i32, u32>,
    failures: (File, OwnedFd),
    null: File,
    /// This process's standard output and error, for steps that name none. A [`TaskSpec`] refers to
    /// them as streams 0 and 1.
    handed: [OwnedFd; 2],
    /// How the manager ended.
    over: Option<ExitCode>,
}

/// The signals that are read from a descriptor instead of being handled.
fn signals() -> SigSet {
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect()
}

/// Serves the manager, a child of this process, until it has ended and nothing is left of its
/// steps. `env` is their environment: `KEY=VALUE` entries, each terminated by a null byte. `job_dir`
/// is the directory of its job. Returns how the manager ended, and the steps that were killed after
/// it, with their usage.
///
/// # Errors
/// Fails if this process cannot do its work. Nothing was started then.
pub fn serve(
    manager: i32,
    link: UnixStream,
    env: Vec<u8>,
    job_dir: &Path,
) -> io::Result<(ExitCode, Vec<Ended>)> {
    prctl::set_child_subreaper(true)?;
    signals().thread_block()?;
    // The steps inherit this.
    task::default_signals();
    let signals = SignalFd::with_flags(&signals(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut launcher = StepLauncher {
        manager,
        link,
        env,
        patterns: Vec::new(),
        cgroups: job_dirs::cgroup(job_dir).and_then(|job| ManagedSteps::of_this_process(&job)),
        running: HashMap::new(),
        numbers: HashMap::new(),
        failures: (File::from(read), write),
        null,
        handed: [
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ],
        over: None,
    };
    let mut orders = wire::decoder();
    let exit = loop {
        if let Some(exit) = launcher.over {
            break exit;
        }
        let mut ready = [
            PollFd::new(launcher.link.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [has_orders, has_signals] = ready.map(|fd| fd.any().unwrap_or(false));
        if has_signals {
            launcher.read_signals(&signals);
        }
        if has_orders && launcher.over.is_none() {
            launcher.read_orders(&mut orders);
        }
    };
    Ok((exit, launcher.end_all()))
}

impl StepLauncher {
    fn read_signals(&mut self, signals: &SignalFd) {
        while let Ok(Some(info)) = signals.read_signal() {
            // Leave the decision to the manager.
            if info.ssi_signo == Signal::SIGTERM as u32 || info.ssi_signo == Signal::SIGHUP as u32 {
                proc::kill(self.manager, Signal::SIGTERM as i32);
            } else if info.ssi_signo == Signal::SIGINT as u32 {
                self.report(&Fact::Interrupted { sender: info.ssi_pid });
            }
        }
        self.reap();
    }

    fn read_orders(&mut self, orders: &mut Decoder) {
        let mut chunk = [0u8; 65_536];
        match self.link.read(&mut chunk) {
            Ok(n) if n > 0 => orders.push(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return,
            // The manager is exiting.
            Ok(_) | Err(_) => return self.wait_for_manager(),
        }
        while let Ok(Some(order)) = wire::next_message(orders) {
            match order {
                Order::Pattern { spec, set_env } => {
                    let env = environment::merge(&self.env, &[], &[], &set_env);
                    self.patterns.push(LaunchSpec { env, ..*spec })
                }
                Order::Launch(launch) => self.launch(*launch),
                Order::Signal { number, signal } => {
                    for pid in self.running.get(&number).map_or(&[][..], |running| &running.pids) {
                        proc::kill_group(*pid, signal);
                    }
                }
            }
        }
    }

    fn wait_for_manager(&mut self) {
        while self.over.is_none() && self.reap_one(0) {}
    }

    fn report(&mut self, fact: &Fact) {
        // Ignore errors: if the manager has ended, `reap_one` notices it.
        if let Ok(bytes) = wire::encode(fact) {
            let _ = socket::send_all(&self.link, &bytes, &[]);
        }
    }

    fn launch(&mut self, launch: Launch) {
        let started = clock::now();
        let end = Ended {
            number: launch.number,
            exit: ExitCode::OK,
            usage: Usage::default(),
            started,
            ended: started,
            error: None,
        };
        let Launch { number, pattern, mem_mb, argv, work_dir, tasks } = launch;
        let Some(spec) = self.patterns.get_mut(pattern) else {
            let error = Some(format!("there is no launch pattern {pattern}"));
            return self.report(&Fact::Ended(Box::new(Ended {
                exit: ExitCode::LAUNCH_FAILED,
                error,
                ..end
            })));
        };
        let cgroup = self.cgroups.as_mut().zip(mem_mb).map(|(all, mb)| all.create(number, mb));
        let is_limited = cgroup.is_some();
        let (pids, error) = match cgroup.transpose() {
            Ok(cgroup) => {
                spec.cgroup = cgroup;
                (spec.argv, spec.work_dir, spec.tasks) = (argv, work_dir, tasks);
                self.start(pattern)
            }
            Err(e) => (Vec::new(), Some(e.to_string())),
        };
        if let Some(error) = error {
            for pid in &pids {
                proc::kill(*pid, libc::SIGKILL);
            }
            return self.report(&Fact::Ended(Box::new(Ended {
                exit: ExitCode::LAUNCH_FAILED,
                error: Some(error),
                ended: clock::now(),
                ..end
            })));
        }
        self.numbers.extend(pids.iter().map(|pid| (*pid, number)));
        self.running
            .insert(number, Running { left: pids.len(), pids: pids.clone(), end, is_limited });
        self.report(&Fact::Started { number, pids });
    }

    /// Starts the tasks of a pattern. If an error is returned, the tasks started so far do not
    /// count.
    fn start(&self, pattern: usize) -> (Vec<i32>, Option<String>) {
        let spec = &self.patterns[pattern];
        let (mut pids, mut files) = (Vec::new(), Files::default());
        let _umask = task::set_umask(spec);
        for task in &spec.tasks {
            let streams = match files.streams(task, &self.handed, self.null.as_raw_fd()) {
                Ok(streams) => streams,
                Err(e) => return (pids, Some(e.to_string())),
            };
            let failures = self.failures.1.as_raw_fd();
            let watcher = std::process::id().cast_signed();
            let context = ForkContext {
                spec,
                task,
                streams: &streams,
                failures,
                gate: None,
                nofile: None,
                oom_score_adj: None,
                watcher,
                pmi: None,
            };
            match task::spawn(&context) {
                Ok(pid) => pids.push(pid),
                Err(e) => return (pids, Some(e.to_string())),
            }
        }
        // A task that could not be started wrote the reason before it exited, and this process was
        // blocked until then.
        let mut text = [0u8; 4096];
        match (&self.failures.0).read(&mut text) {
            Ok(n) if n > 0 => (pids, Some(task::reasons(&String::from_utf8_lossy(&text[..n])).0)),
            Ok(_) | Err(_) => (pids, None),
        }
    }

    fn reap(&mut self) {
        while self.reap_one(libc::WNOHANG) {}
    }

    /// Returns false if no child has ended.
    fn reap_one(&mut self, flags: i32) -> bool {
        // SAFETY: all zeros is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live siginfo.
        let found = unsafe {
            libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT | flags)
        };
        // SAFETY: waitid has filled it or left the zeros.
        let pid = unsafe { info.si_pid() };
        if found != 0 || pid == 0 {
            return false;
        }
        if self.numbers.contains_key(&pid) {
            // Processes that a task leaves in its process group end with it. Until the task is
            // reaped, the group's number cannot be reused.
            proc::kill_group(pid, libc::SIGKILL);
        }
        if let Ok(Some(dead)) = reap(pid) {
            self.ended(dead);
        }
        true
    }

    fn ended(&mut self, Dead { pid, exit, usage, .. }: Dead) {
        if pid == self.manager {
            self.over = Some(exit);
            return;
        }
        // Ignore orphans.
        let Some(number) = self.numbers.remove(&pid) else { return };
        let Some(running) = self.running.get_mut(&number) else { return };
        running.left -= 1;
        running.end.exit = running.end.exit.worse(exit);
        running.end.usage = running.end.usage.merge(own_part(usage));
        if running.left == 0
            && let Some(Running { mut end, is_limited, .. }) = self.running.remove(&number)
        {
            end.ended = clock::now();
            let cgroups = self.cgroups.as_ref().filter(|_| is_limited);
            if cgroups.is_some_and(|all| all.finish(number)) {
                end.exit = ExitCode::OUT_OF_MEMORY;
            }
            if self.over.is_none() {
                self.report(&Fact::Ended(Box::new(end)));
            } else {
                self.running.insert(number, Running { pids: Vec::new(), left: 0, end, is_limited });
            }
        }
    }

    /// Kills all descendants of this process and waits for them. Returns how the running steps
    /// ended.
    fn end_all(&mut self) -> Vec<Ended> {
        loop {
            let left = proc::descendants(std::process::id().cast_signed());
            for pid in &left {
                proc::kill(*pid, libc::SIGKILL);
            }
            if left.is_empty() || !self.reap_one(0) {
                break;
            }
            self.reap();
        }
        let mut ends: Vec<Ended> = self.running.drain().map(|(_, running)| running.end).collect();
        ends.sort_by_key(|end| end.number);
        ends
    }
}

/// Returns the usage of a task. A task starts with this process's memory, which the kernel then
/// remembers as the task's peak. If the peak is no higher, the task's own is unknown.
fn own_part(usage: Usage) -> Usage {
    let max_rss_kb = Some(usage.max_rss_kb).filter(|kb| *kb > own_peak_kb()).unwrap_or(0);
    Usage { max_rss_kb, ..usage }
}
