//! Actions of a watcher on the processes of its step: the daemon's commands, signals, and the lines
//! in its output.

use super::{Kill, Watcher};
use crate::affinity;
use crate::launch_spec::{OwnEnd, SignalScope, StepCommand, StepEvent, StepUsage};
use crate::peer::{poll, queue_event};
use nix::poll::{PollFd, PollFlags};
use slotd_model::Timestamp;
use slotd_sys::clock::now;
use slotd_sys::proc::{self, Stat};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A process younger than this that has not executed a program may be about to.
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
            StepCommand::Ends { timed_out, by, notice } => {
                self.stopped = true;
                self.cancelled_by = self.cancelled_by.or(by);
                self.had_term = std::mem::replace(&mut self.ending, true);
                self.timed_out |= timed_out;
                notice.iter().for_each(|line| self.notice_end(line));
            }
            // It has begun.
            StepCommand::Begin { .. } => {}
            StepCommand::TimeLimit { left } => {
                // The rest of a suspension is added when it ends.
                let from = self.suspended_at.unwrap_or_else(Instant::now);
                self.deadline = left.and_then(|left| from.checked_add(left));
            }
            StepCommand::Suspend => self.suspend(),
            StepCommand::Resume => self.resume(),
            StepCommand::KillAll => self.begin_killing(),
            StepCommand::Move { from, to } => {
                let me = std::process::id() as i32;
                proc::descendants(me).into_iter().for_each(|pid| affinity::follow(pid, &from, &to));
            }
            StepCommand::Gpus { busy_percent, mem_mb } => {
                self.over_time.gpus_read(busy_percent, mem_mb, Instant::now())
            }
            StepCommand::Usage => {
                let usage = self.sample();
                let over_time = self.over_time.series().clone();
                queue_event(&mut self.peer, &StepEvent::Usage(StepUsage { over_time, ..usage }));
            }
        }
    }

    pub(super) fn freeze(&self, is_frozen: bool) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| cgroup.freeze(is_frozen))
    }

    /// Resumes stopped processes, and sends SIGCONT to no others: a shell that receives it together
    /// with another signal may miss one of the traps.
    pub(super) fn resume_all(&self) {
        self.freeze(false);
        let me = std::process::id() as i32;
        for pid in proc::descendants(me).into_iter().filter(|pid| proc::is_stopped(*pid)) {
            proc::kill(pid, libc::SIGCONT);
        }
    }

    pub(super) fn signal(&mut self, signal: i32, target: SignalScope) {
        if self.holds_back(signal, target) {
            return;
        }
        // A reaped task has no PID any more: the number may belong to another process.
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
            SignalScope::Handlers => signal_handlers(signal),
        }
    }

    /// Writes a line to the step's standard error. Never blocks: a reader that has stopped reading
    /// misses it.
    pub(super) fn notice(&self, text: &str) {
        let Some(stderr) = &self.stderr else { return };
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ready, Some(Duration::ZERO));
        if ready[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT)) {
            // A pipe that is ready for writing accepts 4096 bytes at once.
            let line = format!("{text}\n");
            let _ = nix::unistd::write(stderr, &line.as_bytes()[..line.len().min(4096)]);
        }
    }

    /// Returns whether notices go to a regular file, rather than a program or a device.
    pub(super) fn writes_to_file(&self) -> bool {
        let kind = |stderr| nix::sys::stat::fstat(stderr).map(|found| found.st_mode & libc::S_IFMT);
        self.stderr.as_ref().is_some_and(|stderr| kind(stderr) == Ok(libc::S_IFREG))
    }

    /// Writes the reason why the step ends, once: a new daemon does not know whether the previous
    /// one sent it.
    fn notice_end(&mut self, text: &str) {
        if !std::mem::replace(&mut self.end_noted, true) {
            self.notice(text);
        }
    }

    /// Ends the step, with or without a daemon: Slurm's line, SIGTERM, and SIGKILL after the grace
    /// period. A suspended step gets SIGKILL at once, as in Slurm: its CPUs may be another job's.
    pub(super) fn end_by_itself(&mut self, why: &str) {
        let OwnEnd { node, utc_offset_secs, .. } = &self.spec.own_end;
        let at = iso_time(now(), *utc_offset_secs);
        let line = format!(
            "slurmstepd: error: *** STEP {} ON {node} CANCELLED AT {at}{why} ***",
            self.spec.step
        );
        self.notice_end(&line);
        if self.is_suspended() {
            return self.begin_killing();
        }
        if !std::mem::replace(&mut self.ending, true) {
            signal_all(libc::SIGTERM);
        }
        // A stopped process would not receive the signal.
        self.resume_all();
        self.kill_after_grace();
    }

    /// Kills the rest of the step after the grace period, with or without a daemon.
    pub(super) fn kill_after_grace(&mut self) {
        let grace = Duration::from_millis(self.spec.own_end.grace_ms);
        let since = Instant::now();
        self.kill.get_or_insert(Kill { since, hard_from: since + grace });
    }
}

/// Sends a signal to every descendant of this process. A signal that all must get (SIGKILL,
/// SIGSTOP) is sent until no new process turns up, since a process may have been forked before its
/// parent was signalled.
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

/// Sends a signal to every descendant of this process that has a handler for it.
///
/// A new process has its parent's handlers until it executes a program, which the signal may kill.
/// So a process that may be about to execute one is left out if its parent gets the signal.
fn signal_handlers(signal: i32) {
    let all = proc::descendants(std::process::id() as i32);
    // The handlers are read last: if the process has executed a program, they are the program's.
    let catching: BTreeMap<i32, Stat> = all
        .into_iter()
        .filter_map(|pid| Some((pid, proc::stat(pid)?)))
        .filter(|(pid, stat)| !stat.is_in_exec && proc::catches(*pid, signal))
        .collect();
    let is_direct =
        |stat: &Stat| !(stat.is_copy && stat.age() < FRESH && catching.contains_key(&stat.ppid));
    for (&pid, _) in catching.iter().filter(|(_, stat)| is_direct(stat)) {
        proc::kill(pid, signal);
    }
}

/// Formats a time as `2026-11-20T23:14:49`, at this offset from UTC.
fn iso_time(at: Timestamp, utc_offset_secs: i32) -> String {
    let zone = jiff::tz::Offset::from_seconds(utc_offset_secs).unwrap_or(jiff::tz::Offset::UTC);
    let at = jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default();
    zone.to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_the_users_time_zone() {
        assert_eq!(iso_time(Timestamp::from_secs(1_700_000_000), 3600), "2023-11-14T23:13:20");
        assert_eq!(iso_time(Timestamp::from_secs(0), 0), "1970-01-01T00:00:00");
    }
}
