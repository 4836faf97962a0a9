//! The end of tasks and steps: reaping, resource usage, and the record.

use super::{Connection, ProcessState, Task, Watcher};
use crate::cgroup::StepCgroup;
use crate::claim::path_in;
use crate::job_files;
use crate::launch_spec::{LaunchSpec, StepEvent, StepUsage};
use crate::meter::Sample;
use crate::peer::{Peer, poll, queue_event, send_last};
use crate::reap::reap;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use slotd_model::tres::Usage;
use slotd_model::{ExitCode, ExitRecord, StepId};
use slotd_sys::clock::{self, now};
use slotd_sys::{break_point, lock, memory};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

impl Watcher {
    /// Reaps ended children. Returns true if no child is left.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            let dead = match reap(-1) {
                Ok(Some(dead)) => dead,
                Ok(None) => return false,
                Err(_) => return true,
            };
            self.meter.reaped(&dead);
            let is_it = |task: &Task| task.pid == dead.pid && task.exit.is_none();
            if let Some(i) = self.tasks.iter().position(is_it) {
                self.task_ended(i, dead.exit);
            }
        }
    }

    fn task_ended(&mut self, i: usize, exit: ExitCode) {
        let ooms = self.oom_kills();
        // As in Slurm, the result is out of memory, regardless of the exit code with which the task
        // reacted to the kill of a child.
        let exit = if ooms > 0 { ExitCode::OUT_OF_MEMORY } else { exit };
        self.tasks[i].exit = Some(exit);
        if ooms > 0 && self.tasks.iter().all(|t| t.exit.is_some()) {
            self.notice(&oom_notice(ooms, &self.spec));
        }
        if self.started_event.is_some() {
            self.announce(&StepEvent::TaskEnded { rank: self.tasks[i].rank, exit });
        }
        if self.spec.kill_on_bad_exit && !exit.is_success() && self.kill.is_none() {
            self.stopped = true;
            self.end_by_itself("");
        }
    }

    /// Returns the number of OOM-killed processes of the step.
    fn oom_kills(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, StepCgroup::oom_kills)
    }

    /// Samples the usage of the step and records its peak memory.
    pub(super) fn sample(&mut self) -> StepUsage {
        let before = clock::own_cpu_time();
        // A step with a cgroup has its own count. A step that ends before the first sample is
        // unlikely to fill the memory.
        if self.cgroup.is_none() && self.host_ooms.is_none() {
            self.host_ooms = memory::probe_oom_kills();
        }
        let Sample { mut usage, activity } =
            self.meter.sample(self.cgroup.as_ref().and_then(StepCgroup::memory_kb));
        self.count_all(&mut usage.total);
        let now = Instant::now();
        self.over_time.sampled(&usage.total, usage.rss_kb, now);
        self.pace.sampled(activity, clock::own_cpu_time().saturating_sub(before), now);
        usage
    }

    /// Replaces the CPU times by those of the cgroup, if there is one: they include processes that
    /// nobody waited for.
    fn count_all(&self, usage: &mut Usage) {
        if let Some((user_us, system_us)) = self.cgroup.as_ref().and_then(StepCgroup::cpu_times) {
            (usage.user_us, usage.system_us) = (user_us, system_us);
        }
    }

    /// Returns the number of OOM kills on the host since the first sample, if one may have caused
    /// the end: through SIGKILL, or the exit code that a shell derives from it.
    fn host_ooms_since_first_sample(&self, exit: ExitCode) -> Option<u64> {
        match (exit.as_shell() == 128 + libc::SIGKILL, &self.cgroup) {
            (false, _) => None,
            // If one of the step's own processes had been killed, the step would be out of memory.
            (true, Some(_)) => Some(0),
            (true, None) => Some(memory::probe_oom_kills()?.saturating_sub(self.host_ooms?)),
        }
    }

    pub(super) fn record(&mut self) -> ExitRecord {
        // The client may have exited at the same time as the step.
        self.read_client();
        let mut tasks: Vec<ExitCode> =
            self.tasks.iter().map(|t| t.exit.unwrap_or(ExitCode::signal(libc::SIGKILL))).collect();
        // A batch script represents the job: if its steps ran out of the job's memory, so did the
        // job.
        let job_ran_out = || self.cgroup.as_ref().is_some_and(StepCgroup::job_ran_out);
        let oom = self.oom_kills() > 0 || self.spec.step.step == StepId::Batch && job_ran_out();
        let exit = match &self.launch_error {
            Some(_) => ExitCode::LAUNCH_FAILED,
            None if oom => ExitCode::OUT_OF_MEMORY,
            None => tasks.iter().fold(ExitCode::OK, |worst, task| worst.worse(*task)),
        };
        // Tasks that were never started.
        tasks.resize(self.spec.tasks.len(), ExitCode::signal(libc::SIGKILL));
        let mut usage = self.meter.final_usage();
        self.count_all(&mut usage);
        usage.host_ooms = self.host_ooms_since_first_sample(exit);
        self.over_time.ended(&usage, Instant::now());
        ExitRecord {
            run: self.spec.run,
            exit,
            usage,
            started: self.started,
            ended: now(),
            clock: Some(clock::base()),
            oom,
            timed_out: self.timed_out,
            stopped: self.stopped,
            cancelled_by: self.cancelled_by,
            client_gone: self.client_gone,
            launch_error: self.launch_error.clone(),
            host_fault: self.host_fault,
            left_over: self.left_over,
            tasks,
        }
    }

    /// Records the job, unless that was done. If the script ends before the first sample, the exit
    /// record includes it. A failed write is retried at the next sample.
    pub(super) fn note_job(&mut self) {
        if self.spec.job.is_some() && job_files::write_job(&self.dir, &self.spec).is_ok() {
            self.spec.job = None;
        }
    }

    /// Removes the step's socket, which marks the step as running.
    fn unclaim(&mut self, process: &mut ProcessState) {
        let socket = path_in(&self.dir, &self.spec);
        // Connections for this step have nothing to do with the next one.
        while self.listener.accept().is_ok() {}
        match self.may_stay.then(|| self.listener.try_clone()) {
            Some(Ok(listener)) => process.socket.keep(listener, &socket),
            Some(Err(_)) | None => drop(std::fs::remove_file(socket)),
        }
    }

    /// Puts the record in place, removes the mark of the running step, and reports the end, in this
    /// order. Returns the connection for the next launch, if the watcher stays.
    pub(super) fn finish(
        mut self,
        record: &ExitRecord,
        process: &mut ProcessState,
    ) -> Option<Connection> {
        self.stderr = None;
        if let Some(cgroup) = self.cgroup.take() {
            // If a process could not be killed, the cgroup stays, and the daemon removes it with
            // the job's.
            cgroup.remove();
        }
        let mut term = None;
        loop {
            // A step that the host could not launch is launched again, so it leaves no mark.
            let written = match record.host_fault {
                Some(_) => job_files::forget_job(&self.dir),
                None => {
                    let series = self.over_time.series();
                    job_files::write_record(&self.dir, &self.spec, record, series)
                }
            };
            self.may_stay &= written.is_ok();
            if written.is_ok() {
                // Without a record, keep the socket: it shows that the step did run.
                self.unclaim(process);
            }
            break_point::reach("end recorded");
            let ended = StepEvent::Ended(record.clone());
            // Take the lock before reporting: after that the daemon may send a launch, for which
            // the next daemon has to wait.
            let lock = self.may_stay.then(|| lock::share_now(&process.lock).ok()).flatten();
            if lock.is_some() {
                queue_event(&mut self.peer, &StepEvent::Stays);
            }
            // Notify the daemon, which stores the end, before the client, which only waits for it.
            let notified = send_last(&mut self.peer, &ended);
            send_last(&mut self.client, &ended);
            self.client = None;
            break_point::reach("end told");
            if written.is_ok() && !notified && record.host_fault.is_none() {
                // Nobody else knows the result, and the next daemon may start after a power
                // failure. A daemon that was notified commits it.
                let _ = job_files::sync_record(&self.dir, &self.spec);
            }
            // Even a daemon that was notified may exit before it can store the end, since it uses
            // the same disk.
            let disk_is_full = written.as_ref().is_err_and(|e| {
                matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            });
            if written.is_ok() || (notified && !disk_is_full) {
                let Peer { socket: control, incoming, .. } = self.peer.filter(|_| notified)?;
                return lock.map(|lock| Connection { control, incoming, lock });
            }
            // Do not notify the same daemon again.
            self.peer = None;
            // The job directory was deleted or replaced, so nobody is left who could ask for the
            // result.
            if !is_at(&self.dir, &self.spec.job_dir) {
                return None;
            }
            // Keep the result here until the disk has space again, a daemon connects, or SIGTERM
            // arrives. Ignore earlier signals: a SIGTERM that arrived while the step ran was not
            // meant for the watcher.
            let term = term.get_or_insert_with(TermSignal::from_now_on);
            let mut awaited = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            awaited.extend(term.fd.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
            poll(&mut awaited, Some(Duration::from_secs(5)));
            if term.has_come() {
                return None;
            }
            self.accept();
        }
    }
}

/// SIGTERM, which is blocked, as an event.
struct TermSignal {
    fd: Option<SignalFd>,
}

impl TermSignal {
    fn from_now_on() -> TermSignal {
        let mut term = SigSet::empty();
        term.add(Signal::SIGTERM);
        let fd = SignalFd::with_flags(&term, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok();
        let signal = TermSignal { fd };
        signal.has_come();
        signal
    }

    fn has_come(&self) -> bool {
        self.fd.as_ref().is_some_and(|fd| matches!(fd.read_signal(), Ok(Some(_))))
    }
}

/// Returns whether this path still leads to the open directory.
fn is_at(dir: &File, path: &Path) -> bool {
    let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (dir.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => place(open) == place(named),
        // A disk that does not respond does not prove that the directory was deleted.
        (_, Err(e)) => e.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

/// Returns Slurm's line for the output of a step with OOM-killed processes.
fn oom_notice(ooms: u64, spec: &LaunchSpec) -> String {
    format!(
        "slurmstepd: error: Detected {ooms} oom-kill event(s) in StepId={}. Some of your processes may have been killed \
         by the cgroup out-of-memory handler.",
        spec.step
    )
}
