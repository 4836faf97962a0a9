//! What a watcher does to the processes of its step: the daemon's commands, signals, and the lines
//! in its output.

use super::{Kill, Watcher};
use crate::exec::affinity;
use crate::exec::launch_spec::{OwnEnd, SignalScope, StepCommand, StepEvent, StepUsage};
use crate::exec::peer::{poll, tell};
use crate::model::Timestamp;
use crate::sys::clock::now;
use crate::sys::proc::{self, Stat};
use nix::poll::{PollFd, PollFlags};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A process of this age that has executed no program may still be about to.
const FRESH: Duration = Duration::from_secs(1);

impl Watcher {
    pub(super) fn carry_out(&mut self, command: StepCommand) {
        match command {
            StepCommand::Signal { signal: libc::SIGTERM, .. }
                if std::mem::take(&mut self.had_term) => {}
            StepCommand::Signal { signal, target } => self.signal(signal, target),
            StepCommand::Warn { .. } if self.warned => {}
            StepCommand::Warn { signal, target } => {
                self.warned = true;
                self.signal(signal, target);
            }
            StepCommand::Notice(text) => self.notice(&text),
            StepCommand::Ends { timed_out, notice } => {
                self.stopped = true;
                self.had_term = std::mem::replace(&mut self.ending, true);
                self.timed_out |= timed_out;
                notice.iter().for_each(|line| self.notice_end(line));
            }
            StepCommand::Suspend => {
                self.suspended_at.get_or_insert_with(Instant::now);
                // A cgroup stands still as a whole, and nobody in it notices.
                if !self.freeze(true) {
                    signal_all(libc::SIGSTOP);
                }
            }
            StepCommand::Resume => {
                match self.suspended_at.take() {
                    Some(since) => {
                        if let Some(deadline) = &mut self.deadline {
                            *deadline += since.elapsed();
                        }
                        // Some may have the signal before them, and not stand still yet.
                        if !self.freeze(false) {
                            signal_all(libc::SIGCONT);
                        }
                    }
                    None => self.resume_all(),
                }
            }
            StepCommand::KillAll => self.begin_killing(),
            StepCommand::Move { from, to } => {
                let me = std::process::id() as i32;
                proc::descendants(me).into_iter().for_each(|pid| affinity::follow(pid, &from, &to));
            }
            StepCommand::Gpus { busy_percent, mem_mb } => {
                self.over_time.gpus_read(busy_percent, mem_mb, Instant::now())
            }
            StepCommand::Usage => {
                let usage = self.look();
                let over_time = self.over_time.series().clone();
                tell(&mut self.peer, &StepEvent::Usage(StepUsage { over_time, ..usage }));
            }
        }
    }

    fn freeze(&self, is_frozen: bool) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| cgroup.freeze(is_frozen))
    }

    /// Lets those go on that stand still, and sends SIGCONT to no others: a shell that gets it
    /// together with another signal may lose the trap of one of them.
    pub(super) fn resume_all(&self) {
        self.freeze(false);
        let me = std::process::id() as i32;
        for pid in proc::descendants(me).into_iter().filter(|pid| proc::is_stopped(*pid)) {
            proc::kill(pid, libc::SIGCONT);
        }
    }

    fn signal(&self, signal: i32, target: SignalScope) {
        // A task that was reaped has no pid any more: its number may be another's.
        let alive = || self.tasks.iter().filter(|t| t.exit.is_none());
        match target {
            SignalScope::Processes => signal_all(signal),
            SignalScope::Tasks => {
                for task in alive() {
                    proc::kill_group(task.pid, signal);
                }
            }
            SignalScope::BatchShell => {
                for task in alive() {
                    proc::kill(task.pid, signal);
                }
            }
            SignalScope::Rank(rank) => {
                for task in alive().filter(|t| t.rank == rank) {
                    proc::kill_group(task.pid, signal);
                }
            }
            SignalScope::Handlers => {
                let all = proc::descendants(std::process::id() as i32);
                let catching: BTreeSet<i32> =
                    all.into_iter().filter(|pid| proc::catches(*pid, signal)).collect();
                // What was just forked may be about to become a program that the signal would end.
                // Where its parent is told, that is enough.
                let is_told = |pid: &i32| {
                    let is_fresh = |stat: &Stat| stat.is_copy && stat.age() < FRESH;
                    !proc::stat(*pid)
                        .is_some_and(|stat| is_fresh(&stat) && catching.contains(&stat.ppid))
                };
                for pid in catching.iter().filter(|pid| is_told(pid)) {
                    proc::kill(*pid, signal);
                }
            }
        }
    }

    /// Never waits: a reader that has stopped reading misses the notice.
    pub(super) fn notice(&self, text: &str) {
        let Some(stderr) = &self.stderr else { return };
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ready, Some(Duration::ZERO));
        if ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT)) {
            // A pipe that can be written to takes 4096 bytes at once.
            let line = format!("{text}\n");
            let _ = nix::unistd::write(stderr, &line.as_bytes()[..line.len().min(4096)]);
        }
    }

    /// Whether notices go to a regular file, and not to a program or a device.
    pub(super) fn writes_to_file(&self) -> bool {
        let kind = |stderr| nix::sys::stat::fstat(stderr).map(|found| found.st_mode & libc::S_IFMT);
        self.stderr.as_ref().is_some_and(|stderr| kind(stderr) == Ok(libc::S_IFREG))
    }

    /// Why the step ends. A daemon that does not know that the one before has told it tells it
    /// again.
    fn notice_end(&mut self, text: &str) {
        if !std::mem::replace(&mut self.told_end, true) {
            self.notice(text);
        }
    }

    /// Slurm's line, SIGTERM, and SIGKILL after the grace: whether a daemon runs or not.
    pub(super) fn end_by_itself(&mut self, why: &str) {
        let OwnEnd { node, utc_offset_secs, .. } = &self.spec.own_end;
        let at = iso_time(now(), *utc_offset_secs);
        let line = format!(
            "slurmstepd: error: *** STEP {} ON {node} CANCELLED AT {at}{why} ***",
            self.spec.step
        );
        self.notice_end(&line);
        if !std::mem::replace(&mut self.ending, true) {
            signal_all(libc::SIGTERM);
        }
        // A stopped process would not see it.
        self.resume_all();
        self.kill_after_grace();
    }

    /// What is left of the step after the grace is killed, whether a daemon runs or not.
    pub(super) fn kill_after_grace(&mut self) {
        let grace = Duration::from_millis(self.spec.own_end.grace_ms);
        let since = Instant::now();
        self.kill.get_or_insert(Kill { since, hard_from: since + grace });
    }
}

/// Sends a signal to every process below this one. A signal that all must get (SIGKILL, SIGSTOP) is
/// sent until no new process turns up: one may have been forked while its parent was on the way to
/// be signalled.
pub(super) fn signal_all(signal: i32) {
    let me = std::process::id() as i32;
    let mut seen: Vec<i32> = Vec::new();
    loop {
        let fresh: Vec<i32> =
            proc::descendants(me).into_iter().filter(|pid| !seen.contains(pid)).collect();
        for &pid in &fresh {
            proc::kill(pid, signal);
        }
        if fresh.is_empty() || !matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
            return;
        }
        seen.extend(fresh);
    }
}

/// `2026-11-20T23:14:49`, so many seconds away from UTC.
fn iso_time(at: Timestamp, utc_offset_secs: i32) -> String {
    let zone = jiff::tz::Offset::from_seconds(utc_offset_secs).unwrap_or(jiff::tz::Offset::UTC);
    let at = jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default();
    zone.to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_where_the_user_lives() {
        assert_eq!(iso_time(Timestamp::from_secs(1_700_000_000), 3600), "2023-11-14T23:13:20");
        assert_eq!(iso_time(Timestamp::from_secs(0), 0), "1970-01-01T00:00:00");
    }
}
