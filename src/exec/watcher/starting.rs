//! The start of a step: its files, its tasks, and the report that all of them run.

use super::{ProcessState, Task, Watcher};
use crate::job_files::{self, Files, Streams};
use crate::launch_spec::{SignalScope, StepCommand, StepEvent};
use crate::task::{self, ForkContext};
use crate::{LaunchError, pmi, runner_script};
use nix::fcntl::OFlag;
use slotd_model::StepId;
use slotd_model::step_request::Mpi;
use slotd_sys::socket::short_path;
use slotd_sys::{clock, proc};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Returns whether this command ends the step, so that no more tasks are started. A task that has
/// not started yet could not handle the SIGTERM anyway.
fn ends_step(command: &StepCommand) -> bool {
    match command {
        StepCommand::KillAll => true,
        StepCommand::Signal { signal, target } => {
            matches!(*signal, libc::SIGTERM | libc::SIGKILL)
                && matches!(target, SignalScope::Processes | SignalScope::Tasks)
        }
        _ => false,
    }
}

fn pipe(flags: OFlag) -> Result<(OwnedFd, OwnedFd), LaunchError> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC | flags).map_err(LaunchError::system("create a pipe"))
}

impl Watcher {
    /// Forks the tasks. An error is a failure of the launch, and no user code has run then.
    pub(super) fn start(
        &mut self,
        handed: Vec<OwnedFd>,
        has_script: bool,
        process: &ProcessState,
    ) -> Result<(), LaunchError> {
        let spec = &self.spec;
        if let Some(script) = spec.script.as_ref().filter(|_| !has_script) {
            job_files::write_program(&task::script_path(spec), script)?;
        }
        let umask = task::set_umask(spec);
        if let Some(why) = &spec.broken {
            let why = LaunchError::Broken(why.clone());
            job_files::report_failure(spec, &handed, &why);
            return Err(why);
        }
        job_files::check_work_dir(spec, &handed)?;
        let mut files = Files::default();
        let mut streams = Vec::with_capacity(spec.tasks.len());
        // Open it again instead of using one of the watcher's first three descriptors, which a task
        // replaces one after the other.
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
        if let Some(line) = spec.first_line.as_deref().filter(|_| self.writes_to_file()) {
            self.notice(line);
        }
        let (read, write) = pipe(OFlag::O_NONBLOCK)?;
        let ranks = match spec.mpi {
            Mpi::None => Vec::new(),
            Mpi::Pmi2 => {
                let (server, ranks) = pmi::Server::new(spec)
                    .map_err(LaunchError::system("create sockets for the ranks"))?;
                self.pmi = Some(server);
                ranks
            }
        };
        self.make_tasks(&streams, &ranks, write.as_raw_fd(), process)?;
        // Their time limits start here.
        (self.started, self.started_at) = (clock::now(), clock::monotonic());
        self.starting = Some((File::from(read), Vec::new()));
        drop((files, handed, write, null, ranks, umask));
        // Do this after the tasks have started: they need not wait for it, and nothing depends on
        // it.
        if self.spec.step.step != StepId::Batch {
            // The job outlives this step.
            self.note_job();
        }
        if self.spec.write_runner {
            let text = runner_script::runner_script(&self.spec);
            let _ = job_files::write_program(&short_path(&self.dir, job_files::RUNNER), &text);
        }
        Ok(())
    }

    /// Forks all tasks, unless a command ends the step in between. Several tasks start together.
    fn make_tasks(
        &mut self,
        streams: &[Streams],
        ranks: &[OwnedFd],
        failures: RawFd,
        process: &ProcessState,
    ) -> Result<(), LaunchError> {
        let spec = &self.spec;
        let gate = match spec.tasks.len() {
            0 => return Err(LaunchError::NoTasks),
            1 => None,
            _ => Some(pipe(OFlag::empty())?),
        };
        let watcher = std::process::id() as i32;
        let nofile = process.nofile;
        let oom_score_adj =
            Some(spec.oom_score_adj).filter(|wanted| i64::from(*wanted) > process.oom_score_adj);
        for (at, (task, streams)) in spec.tasks.iter().zip(streams).enumerate() {
            let pmi = ranks.get(at).map(AsRawFd::as_raw_fd);
            let gate = gate.as_ref().map(|(read, write)| (read.as_raw_fd(), write.as_raw_fd()));
            match task::spawn(&ForkContext {
                spec,
                task,
                streams,
                failures,
                gate,
                nofile,
                oom_score_adj,
                watcher,
                pmi,
            }) {
                Ok(pid) => {
                    self.meter.add_task(task.rank, pid);
                    self.tasks.push(Task { rank: task.rank, pid, exit: None });
                }
                Err(error) => {
                    // Kill the tasks waiting at the gate before it opens.
                    for task in &self.tasks {
                        proc::kill(task.pid, libc::SIGKILL);
                    }
                    return Err(error);
                }
            }
            // Starting hundreds of tasks takes a while. A command that ends the step in the
            // meantime should not have to wait for the last one.
            if let Some(peer) = &mut self.peer {
                // If the peer has gone, a later read reports it.
                self.early.extend(peer.receive().0);
            }
            if self.early.iter().any(ends_step) {
                break;
            }
        }
        Ok(())
    }

    /// Reads the pipe that tasks hold until they execute: text is a failure, its end means that all
    /// have started. Returns true if there may be more.
    pub(super) fn read_starting(&mut self) -> bool {
        let Some((pipe, text)) = &mut self.starting else { return false };
        let mut buf = [0u8; 4096];
        match std::io::Read::read(pipe, &mut buf) {
            Ok(0) => {}
            Ok(n) => {
                text.extend_from_slice(&buf[..n]);
                return true;
            }
            Err(_) => return false,
        }
        let (text, fault) = task::reasons(&String::from_utf8_lossy(text));
        self.starting = None;
        if !text.is_empty() {
            // If there are several tasks, others may have started.
            let fault = fault.filter(|_| self.spec.tasks.len() == 1);
            self.launch_failed(text, fault);
            return false;
        }
        let event = StepEvent::Started {
            pid: std::process::id().cast_signed(),
            start_ticks: self.start_ticks,
            task_pids: self.tasks.iter().map(|t| t.pid).collect(),
            started: self.started,
            started_us: u64::try_from(self.started_at.as_micros()).ok(),
            suspended: self.suspended_at.is_some(),
        };
        self.announce(&event);
        self.started_event = Some(event);
        // Ends that preceded the start were held back.
        for event in self.task_ends() {
            self.announce(&event);
        }
        false
    }
}
