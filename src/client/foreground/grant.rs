//! Waits for an allocation.

use super::Caller;
use super::signals::{Signals, ends_client, is_typed_interrupt};
use crate::client::connection::{ClientError, Connection, watch_for_daemon};
use crate::client::watch::FileWatch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_model::view::JobView;
use slotd_model::{End, JobId};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The result of waiting for an allocation.
#[derive(Debug)]
#[must_use]
pub enum Grant {
    Granted(Box<JobView>),
    /// The allocation was cancelled or ended otherwise.
    Ended(Box<JobView>),
    /// This client received a signal and gives up. Closing its connection ends the request.
    Interrupted {
        /// The signal was Ctrl-C at the terminal.
        typed: bool,
        /// A daemon is running and ends the request now. If not, the next daemon ends it, since
        /// this client has exited by then.
        is_withdrawn: bool,
    },
}

/// Jobs that wait no longer than this are not reported as waiting. The preceding command is often
/// still freeing its resources.
const QUIET_WAIT: Duration = Duration::from_millis(60);

/// The resolution of poll(2) is one millisecond.
const LEAST_POLL: Duration = Duration::from_millis(1);

/// Waits until an allocation is granted. `queued` is called once if it has to wait noticeably.
///
/// # Errors
/// Fails if the daemon sends invalid data.
pub fn wait_for_grant(
    conn: &mut Connection,
    caller: &Caller,
    job: JobId,
    queued: &mut dyn FnMut(),
) -> Result<Grant, ClientError> {
    let signals = Signals::take()?;
    let mut announced = false;
    // When to report that the job waits, set by the daemon's answer.
    let mut announce_at: Option<Instant> = None;
    let mut back: Option<FileWatch> = None;
    loop {
        if let Some(grant) = decision(conn, &mut announce_at)? {
            // A job that ended before it started did wait, however briefly.
            if !announced && matches!(&grant, Grant::Ended(view) if view.run.start.is_none()) {
                queued();
            }
            return Ok(grant);
        }
        let daemon = back.as_ref().map_or_else(|| conn.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::new(daemon, PollFlags::POLLIN),
            PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN),
        ];
        let left = announce_at
            .filter(|_| !announced)
            .map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            announced = true;
            queued();
            continue;
        }
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.max(LEAST_POLL)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(0) => continue,
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(io::Error::from(e).into()),
            Ok(_) => {}
        }
        let hung_up = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        if let Ok(Some(info)) = signals.fd.read_signal() {
            let number = info.ssi_signo as i32;
            if matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                let is_withdrawn = back.is_none() && !hung_up;
                return Ok(Grant::Interrupted { typed: is_typed_interrupt(&info), is_withdrawn });
            }
            continue;
        }
        let is_lost = match &back {
            Some(back) => {
                back.clear();
                true
            }
            None => !matches!(conn.fill(), Ok(true)),
        };
        if is_lost {
            announce_at.get_or_insert_with(|| Instant::now() + QUIET_WAIT);
            if back.is_none() {
                back = Some(watch_for_daemon(&caller.paths)?);
            }
            if let Ok(mut fresh) = Connection::open(&caller.paths) {
                fresh.send(
                    &Request::Attach { job, client: caller.client, step: None, holds: true },
                    &[],
                )?;
                *conn = fresh;
                back = None;
            }
        }
    }
}

/// Waits until a released allocation has ended. Returns `None` if the daemon stops. A signal also
/// ends the wait, in case the daemon hangs.
///
/// # Errors
/// Fails if the daemon sends invalid data.
pub fn wait_for_release(conn: &mut Connection) -> Result<Option<End>, ClientError> {
    let signals = Signals::take()?;
    // Discard signals that were meant for the command.
    while let Ok(Some(_)) = signals.fd.read_signal() {}
    loop {
        while let Some(answer) = conn.next_whole()? {
            if let Answer::Ended { view } = answer {
                return Ok(view.run.state.end());
            }
        }
        let mut fds = [
            PollFd::new(conn.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(io::Error::from(e).into()),
        }
        if let Ok(Some(info)) = signals.fd.read_signal() {
            if ends_client(info.ssi_signo as i32) {
                return Ok(None);
            }
        } else if !conn.fill()? {
            return Ok(None);
        }
    }
}

/// Returns the daemon's decision, if it has arrived. Sets `announce_at` when the daemon reports
/// that the job waits.
fn decision(
    conn: &mut Connection,
    announce_at: &mut Option<Instant>,
) -> Result<Option<Grant>, ClientError> {
    while let Some(answer) = conn.next_whole()? {
        match answer {
            Answer::Granted { view } if view.run.state.is_terminal() => {
                return Ok(Some(Grant::Ended(view)));
            }
            Answer::Granted { view } if view.run.state.is_active() => {
                return Ok(Some(Grant::Granted(view)));
            }
            Answer::Ended { view } => return Ok(Some(Grant::Ended(view))),
            Answer::Waits => {
                announce_at.get_or_insert_with(|| Instant::now() + QUIET_WAIT);
            }
            Answer::Refused(why) => return Err(ClientError::Refused(why)),
            _ => {}
        }
    }
    Ok(None)
}
