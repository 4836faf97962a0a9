//! The connection to the daemon. The manager keeps running while the daemon is down, and sends the
//! missed records once it is back.

use crate::client::connection::{
    ClientError, Connection, RECONNECT_TIMEOUT, reopen, watch_for_daemon,
};
use crate::client::watch::FileWatch;
use slotd_model::job::ClientProcess;
use slotd_model::{JobId, StepId};
use slotd_protocol::answer::{Answer, ManagedJob};
use slotd_protocol::frame::FrameError;
use slotd_protocol::request::Request;
use slotd_sys::paths::Paths;
use std::os::fd::{AsFd, BorrowedFd};

/// The job and its manager.
#[derive(Debug, Clone)]
pub struct Identity {
    pub paths: Paths,
    pub job: JobId,
    pub run: u32,
    pub client: ClientProcess,
    /// The step that the manager runs in.
    pub within: Option<StepId>,
}

impl Identity {
    fn ask(&self, numbers: u32) -> Request {
        Request::ManageSteps { job: self.job, client: self.client, within: self.within, numbers }
    }
}

enum State {
    Connected(Connection),
    /// Watches for the daemon's return.
    Waiting(FileWatch),
    /// The daemon rejected the manager, or cannot be watched. Final.
    Lost,
}

/// The connection, or the wait for a new one.
pub struct Link {
    state: State,
}

/// Requests the manager's job from the daemon. If the daemon is down, calls `away` and waits for it
/// to come back.
///
/// # Errors
/// Fails if the daemon does not answer in time or refuses.
pub fn open(
    identity: &Identity,
    numbers: u32,
    away: &mut dyn FnMut(),
) -> Result<(Link, Box<ManagedJob>), ClientError> {
    let request = identity.ask(numbers);
    let ask = |mut conn: Connection| conn.ask(&request, &[]).map(|(answer, _)| (conn, answer));
    let (conn, answer) = match Connection::open(&identity.paths).and_then(ask) {
        Err(
            ClientError::NoDaemon { .. }
            | ClientError::Broken(FrameError::Closed | FrameError::Io(_)),
        ) => {
            away();
            reopen(&identity.paths, Some(RECONNECT_TIMEOUT)).and_then(ask)?
        }
        other => other?,
    };
    match answer {
        Answer::Managed(job) => Ok((Link { state: State::Connected(conn) }, job)),
        Answer::Refused(why) => Err(ClientError::Refused(why)),
        other => {
            Err(ClientError::from(std::io::Error::other(format!("unexpected answer: {other:?}"))))
        }
    }
}

/// A message or a change of the connection.
pub enum LinkEvent {
    Answer(Box<Answer>),
    /// The connection broke. Unanswered requests count as not received.
    Disconnected,
    /// Reconnected, and the job was requested again: `Managed` follows.
    Reconnected,
}

impl Link {
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Connected(conn) => Some(conn.as_fd()),
            State::Waiting(watch) => Some(watch.as_fd()),
            State::Lost => None,
        }
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Gives up on the daemon for good.
    pub fn give_up(&mut self) {
        self.state = State::Lost;
    }

    /// Reads messages. Call this when the descriptor is readable.
    pub fn receive(&mut self, identity: &Identity) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        match &mut self.state {
            State::Lost => {}
            State::Waiting(watch) => {
                watch.clear();
                events.extend(self.reconnect(identity));
            }
            State::Connected(conn) => {
                let is_open = conn.fill().unwrap_or(false);
                loop {
                    match conn.next_whole() {
                        Ok(Some(answer)) => events.push(LinkEvent::Answer(Box::new(answer))),
                        Ok(None) if is_open => break,
                        Ok(None) | Err(_) => {
                            events.push(LinkEvent::Disconnected);
                            events.extend(self.disconnect(identity));
                            break;
                        }
                    }
                }
            }
        }
        events
    }

    /// Replaces a broken connection with a watch, and reconnects if the daemon is already back.
    fn disconnect(&mut self, identity: &Identity) -> Option<LinkEvent> {
        match watch_for_daemon(&identity.paths) {
            Ok(watch) => self.state = State::Waiting(watch),
            Err(_) => self.state = State::Lost,
        }
        self.reconnect(identity)
    }

    fn reconnect(&mut self, identity: &Identity) -> Option<LinkEvent> {
        let mut conn = Connection::open(&identity.paths).ok()?;
        conn.send(&identity.ask(0), &[]).ok()?;
        self.state = State::Connected(conn);
        Some(LinkEvent::Reconnected)
    }

    /// Sends a request. Returns false if the daemon is down.
    pub fn send(&mut self, request: &Request) -> bool {
        match &mut self.state {
            // If the connection is broken, the next read reports it.
            State::Connected(conn) => conn.send(request, &[]).is_ok(),
            State::Waiting(_) | State::Lost => false,
        }
    }
}
