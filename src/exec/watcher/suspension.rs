//! The suspension of a step: its processes and its clock stop, and no signal wakes them.
//!
//! Without a cgroup, the processes are stopped with SIGSTOP, so anybody's SIGCONT would wake them.
//! One that the user sends past the watcher (`kill -CONT`) cannot be prevented.

use super::Watcher;
use super::commands::signal_all;
use crate::launch_spec::SignalScope;
use std::time::Instant;

/// Returns whether a signal stops or continues processes.
fn is_job_control(signal: i32) -> bool {
    use libc::{SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    matches!(signal, SIGCONT | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU)
}

impl Watcher {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended_at.is_some()
    }

    pub(super) fn suspend(&mut self) {
        self.suspended_at.get_or_insert_with(Instant::now);
        // A cgroup freezes as a whole, without any process noticing.
        if !self.freeze(true) {
            signal_all(libc::SIGSTOP);
        }
    }

    /// Keeps a signal that stops or continues the processes of a suspended step until the step is
    /// resumed. Only the last one counts. Returns false for any other signal.
    pub(super) fn holds_back(&mut self, signal: i32, target: SignalScope) -> bool {
        let holds = self.is_suspended() && is_job_control(signal);
        if holds {
            self.held_back = Some((signal, target));
        }
        holds
    }

    pub(super) fn resume(&mut self) {
        let Some(since) = self.suspended_at.take() else { return self.resume_all() };
        if let Some(deadline) = &mut self.deadline {
            *deadline += since.elapsed();
        }
        let is_thawed = self.freeze(false);
        if !is_thawed {
            // SIGSTOP may still be pending for some processes, so send SIGCONT to all.
            signal_all(libc::SIGCONT);
        }
        let is_due = |(signal, _): &(i32, SignalScope)| {
            // A step that is being ended must not stop, and SIGCONT may have been sent just now.
            if *signal == libc::SIGCONT { is_thawed } else { !self.ending }
        };
        if let Some((signal, target)) = self.held_back.take().filter(is_due) {
            self.signal(signal, target);
        }
    }
}
