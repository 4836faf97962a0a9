//! The wait for an allocation.

use super::Caller;
use super::signals::{Signals, ends_client, is_typed_interrupt};
use crate::client::connection::{ClientError, Connection, SocketWatch};
use crate::model::view::JobView;
use crate::model::{JobId, JobState};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// What became of the wait for an allocation.
#[derive(Debug)]
#[must_use]
pub enum Grant {
    Granted(Box<JobView>),
    /// It was cancelled, or ended otherwise, before or instead.
    Ended(Box<JobView>),
    /// This client got the signal and gives up; with its connection the request ends.
    Interrupted {
        /// By Ctrl-C at the terminal.
        typed: bool,
        /// A daemon is there to end the request now. The next one does it otherwise: this client is gone by then.
        is_withdrawn: bool,
    },
}

/// How long a grant may take before the user is told that the job waits.
const QUIET_WAIT: Duration = Duration::from_millis(60);

/// Waits until an allocation runs. `queued` is called once, if that is not at once.
///
/// # Errors
/// The connection carries something that makes no sense.
pub fn wait_for_grant(
    conn: &mut Connection,
    caller: &Caller,
    job: JobId,
    queued: &mut dyn FnMut(),
) -> Result<Grant, ClientError> {
    let signals = Signals::take()?;
    let mut told = false;
    let mut back: Option<SocketWatch> = None;
    loop {
        if let Some(grant) = told_grant(conn)? {
            return Ok(grant);
        }
        let daemon = back.as_ref().map_or_else(|| conn.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::new(daemon, PollFlags::POLLIN),
            PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN),
        ];
        let timeout = if told {
            PollTimeout::NONE
        } else {
            PollTimeout::try_from(QUIET_WAIT).unwrap_or(PollTimeout::MAX)
        };
        match poll(&mut fds, timeout) {
            Ok(0) => {
                told = true;
                queued();
                continue;
            }
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
            if back.is_none() {
                back = Some(SocketWatch::new(&caller.paths)?);
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

/// Waits until an allocation that was given back is over. `None` where the daemon is gone, or a signal ends the wait: a
/// daemon may stand still.
///
/// # Errors
/// The connection carries something that makes no sense.
pub fn wait_for_release(conn: &mut Connection) -> Result<Option<JobState>, ClientError> {
    let signals = Signals::take()?;
    // What came until now was for the command.
    while let Ok(Some(_)) = signals.fd.read_signal() {}
    loop {
        while let Some(answer) = conn.next_whole()? {
            if let Answer::Ended { view } = answer {
                return Ok(Some(view.run.state));
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

/// What has come in about the allocation, if it decides.
fn told_grant(conn: &mut Connection) -> Result<Option<Grant>, ClientError> {
    while let Some(answer) = conn.next_whole()? {
        match answer {
            Answer::Granted { view } if view.run.state.is_terminal() => {
                return Ok(Some(Grant::Ended(view)));
            }
            Answer::Granted { view } if view.run.state.is_active() => {
                return Ok(Some(Grant::Granted(view)));
            }
            Answer::Ended { view } => return Ok(Some(Grant::Ended(view))),
            Answer::Refused(why) => return Err(ClientError::Refused(why)),
            _ => {}
        }
    }
    Ok(None)
}
