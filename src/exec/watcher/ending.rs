//! How the tasks and the step end: reaping, what was used, and the record.

use super::{Line, Post, Watcher};
use crate::exec::cgroup::StepCgroup;
use crate::exec::job_files;
use crate::exec::launch_spec::{LaunchSpec, StepEvent, StepUsage};
use crate::exec::meter::Look;
use crate::exec::peer::{Peer, poll, tell, tell_last};
use crate::model::tres::Usage;
use crate::model::{ExitCode, ExitRecord, StepId};
use crate::sys::clock::{self, now};
use crate::sys::{break_point, lock, memory, socket};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

impl Watcher {
    /// Collects the dead. True where no child is left.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: the pointers are to a live integer and a live rusage, for which all zeros is
            // a value.
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
                    if let Some(i) =
                        self.tasks.iter().position(|t| t.pid == pid && t.exit.is_none())
                    {
                        self.task_ended(i, exit);
                    }
                }
            }
        }
    }

    fn task_ended(&mut self, i: usize, exit: ExitCode) {
        let ooms = self.oom_kills();
        // Whatever a task makes of the death of a child: it ran out of memory, as in Slurm.
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

    /// How many processes of the step were killed for their memory.
    fn oom_kills(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, StepCgroup::oom_kills)
    }

    /// Looks at what the step uses now, and remembers the most memory seen.
    pub(super) fn look(&mut self) -> StepUsage {
        let before = clock::own_cpu_time();
        // A step with a cgroup has its own count. One that is over before the first look hardly
        // fills the memory.
        if self.cgroup.is_none() && self.host_ooms.is_none() {
            self.host_ooms = memory::probe_oom_kills();
        }
        let Look { mut usage, activity } =
            self.meter.look(self.cgroup.as_ref().and_then(StepCgroup::memory_kb));
        self.count_all(&mut usage.total);
        let now = Instant::now();
        self.over_time.looked(&usage.total, usage.rss_kb, now);
        self.pace.looked(activity, clock::own_cpu_time().saturating_sub(before), now);
        usage
    }

    /// The times by the cgroup, where there is one: it also knows of processes that nobody waited
    /// for.
    fn count_all(&self, usage: &mut Usage) {
        if let Some((user_us, system_us)) = self.cgroup.as_ref().and_then(StepCgroup::cpu_times) {
            (usage.user_us, usage.system_us) = (user_us, system_us);
        }
    }

    /// How many processes the kernel has ended for lack of memory since the first look, if that may
    /// explain the end: by SIGKILL, or by the exit code that a shell makes of it.
    fn host_ooms_meanwhile(&self, exit: ExitCode) -> Option<u64> {
        match (exit.as_shell() == 128 + libc::SIGKILL, &self.cgroup) {
            (false, _) => None,
            // With one of its own the step would be out of memory.
            (true, Some(_)) => Some(0),
            (true, None) => Some(memory::probe_oom_kills()?.saturating_sub(self.host_ooms?)),
        }
    }

    pub(super) fn record(&mut self) -> ExitRecord {
        // Its end may have come together with that of the step.
        self.read_client();
        let mut tasks: Vec<ExitCode> =
            self.tasks.iter().map(|t| t.exit.unwrap_or(ExitCode::signal(libc::SIGKILL))).collect();
        // A batch script is the job: what its steps did not get, the job did not get.
        let job_ran_out = || self.cgroup.as_ref().is_some_and(StepCgroup::job_ran_out);
        let oom = self.oom_kills() > 0 || self.spec.step.step == StepId::Batch && job_ran_out();
        let exit = match &self.launch_error {
            Some(_) => ExitCode::LAUNCH_FAILED,
            None if oom => ExitCode::OUT_OF_MEMORY,
            None => tasks.iter().fold(ExitCode::OK, |worst, task| worst.worse(*task)),
        };
        // Those that were not made any more.
        tasks.resize(self.spec.tasks.len(), ExitCode::signal(libc::SIGKILL));
        let mut usage = self.meter.of_the_dead();
        self.count_all(&mut usage);
        usage.host_ooms = self.host_ooms_meanwhile(exit);
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
            client_gone: self.client_gone,
            launch_error: self.launch_error.clone(),
            host_fault: self.host_fault,
            left_over: self.left_over,
            tasks,
        }
    }

    /// Writes down the job, unless that was done. Of a script that is over before the first look
    /// its record tells it. Where it cannot be written now, it is tried again at the next look.
    pub(super) fn note_job(&mut self) {
        if self.spec.job.is_some() && job_files::write_job(&self.spec).is_ok() {
            self.spec.job = None;
        }
    }

    /// Takes the mark of the running step away.
    fn unclaim(&mut self, socket: &Path, post: &mut Post) {
        // Who has connected for this step has nothing to do with the next one.
        while self.listener.accept().is_ok() {}
        post.idle = self.may_stay.then(|| self.listener.try_clone()).and_then(Result::ok);
        if post.idle.is_some()
            && !post.has_idle_path
            && std::fs::rename(socket, &post.idle_path).is_ok()
        {
            post.has_idle_path = true;
        } else {
            let _ = std::fs::remove_file(socket);
        }
    }

    /// Makes the record last, removes the mark of the running step, and tells the end: in this
    /// order. The line to the next launch, where the watcher stays.
    pub(super) fn finish(
        mut self,
        record: &ExitRecord,
        dir: &File,
        socket: &str,
        post: &mut Post,
    ) -> Option<Line> {
        self.stderr = None;
        if let Some(cgroup) = self.cgroup.take() {
            // Where a process could not be killed it is left, and the daemon removes it with the
            // job's.
            cgroup.remove();
        }
        let mut told_to_end = None;
        loop {
            // What the host could not launch is launched again: it leaves no mark.
            let written = match record.host_fault {
                Some(_) => job_files::forget_job(&self.spec),
                None => job_files::write_record(&self.spec, record, self.over_time.series()),
            };
            self.may_stay &= written.is_ok();
            if written.is_ok() {
                // Without a record the socket stays: it says that the step did run.
                self.unclaim(&socket::short_path(dir, socket), post);
            }
            break_point::reach("end recorded");
            let ended = StepEvent::Ended(record.clone());
            // Before it is told: from then on the daemon may send a launch, and the next daemon has
            // to wait for it.
            let lock = self.may_stay.then(|| lock::share_now(&post.lock).ok()).flatten();
            if lock.is_some() {
                tell(&mut self.peer, &StepEvent::Stays);
            }
            // First who records it, then who only waits for it.
            let told = tell_last(&mut self.peer, &ended);
            tell_last(&mut self.client, &ended);
            self.client = None;
            break_point::reach("end told");
            if written.is_ok() && !told && record.host_fault.is_none() {
                // Nobody else has it, and the next daemon may come after a loss of power. One that
                // was told commits it.
                let _ = job_files::sync_record(&self.spec, dir);
            }
            // A daemon that was told may go down before it could write it down either: its disk is
            // the same.
            let disk_is_full = written.as_ref().is_err_and(|e| {
                matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            });
            if written.is_ok() || (told && !disk_is_full) {
                let Peer { socket: control, incoming, .. } = self.peer.filter(|_| told)?;
                return lock.map(|lock| Line { control, incoming, lock });
            }
            // Whoever was told need not be told again.
            self.peer = None;
            // The job directory was removed, or nobody finds it any more, and with it everybody who
            // could ask is gone.
            if !is_at(dir, &self.spec.job_dir) {
                return None;
            }
            // The result is kept here until the disk has room again, a daemon comes, or SIGTERM.
            // From here on: one that came while the step ran was none of the watcher's business.
            let told_to_end = told_to_end.get_or_insert_with(TermSignal::from_now_on);
            let mut awaited = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
            awaited.extend(
                told_to_end.fd.as_ref().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)),
            );
            poll(&mut awaited, Some(Duration::from_secs(5)));
            if told_to_end.has_come() {
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

/// Whether this path still leads to the open directory.
fn is_at(dir: &File, path: &Path) -> bool {
    let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (dir.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => place(open) == place(named),
        // A disk that does not answer is no proof that it is gone.
        (_, Err(e)) => e.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
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
