//! The line to the daemon. While it is away the manager goes on; when it is back, it hears what it
//! has missed.

use crate::client::connection::{
    ClientError, Connection, RECONNECT_TIMEOUT, reopen, watch_for_daemon,
};
use crate::client::watch::FileWatch;
use crate::model::job::ClientProcess;
use crate::model::{JobId, StepId};
use crate::protocol::answer::{Answer, ManagedJob};
use crate::protocol::frame::FrameError;
use crate::protocol::request::Request;
use crate::sys::paths::Paths;
use std::os::fd::{AsFd, BorrowedFd};

/// Which job, and who manages it.
#[derive(Debug, Clone)]
pub struct Identity {
    pub paths: Paths,
    pub job: JobId,
    pub run: u32,
    pub client: ClientProcess,
    /// The step that the manager is a process of.
    pub within: Option<StepId>,
}

impl Identity {
    fn ask(&self, numbers: u32) -> Request {
        Request::ManageSteps { job: self.job, client: self.client, within: self.within, numbers }
    }
}

enum State {
    There(Connection),
    /// This tells of its return.
    Away(FileWatch),
    /// It refuses the manager, or cannot be watched: there is no way back.
    Lost,
}

/// The connection, or the wait for the next.
pub struct Link {
    state: State,
}

/// Asks the daemon for the job of this manager. One that is away while the job runs comes back: it
/// is waited for, and `away` is called.
///
/// # Errors
/// It does not answer, or refuses.
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
        Answer::Managed(job) => Ok((Link { state: State::There(conn) }, job)),
        Answer::Refused(why) => Err(ClientError::Refused(why)),
        other => Err(ClientError::from(std::io::Error::other(format!(
            "an answer to another question: {other:?}"
        )))),
    }
}

/// What came over the line.
pub enum Heard {
    Answer(Box<Answer>),
    /// The daemon is gone: what it has not answered was not heard.
    Gone,
    /// It is back, and was asked for the job again: `Managed` follows.
    Back,
}

impl Link {
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::There(conn) => Some(conn.as_fd()),
            State::Away(watch) => Some(watch.as_fd()),
            State::Lost => None,
        }
    }

    pub fn is_there(&self) -> bool {
        matches!(self.state, State::There(_))
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// There is no use in asking again.
    pub fn give_up(&mut self) {
        self.state = State::Lost;
    }

    /// To be called when the descriptor is readable.
    pub fn hear(&mut self, identity: &Identity) -> Vec<Heard> {
        let mut heard = Vec::new();
        match &mut self.state {
            State::Lost => {}
            State::Away(watch) => {
                watch.clear();
                heard.extend(self.come_back(identity));
            }
            State::There(conn) => {
                let is_open = conn.fill().unwrap_or(false);
                loop {
                    match conn.next_whole() {
                        Ok(Some(answer)) => heard.push(Heard::Answer(Box::new(answer))),
                        Ok(None) if is_open => break,
                        Ok(None) | Err(_) => {
                            heard.push(Heard::Gone);
                            heard.extend(self.leave(identity));
                            break;
                        }
                    }
                }
            }
        }
        heard
    }

    /// The connection is of no use any more. It may be there again already.
    fn leave(&mut self, identity: &Identity) -> Option<Heard> {
        match watch_for_daemon(&identity.paths) {
            Ok(watch) => self.state = State::Away(watch),
            Err(_) => self.state = State::Lost,
        }
        self.come_back(identity)
    }

    fn come_back(&mut self, identity: &Identity) -> Option<Heard> {
        let mut conn = Connection::open(&identity.paths).ok()?;
        conn.send(&identity.ask(0), &[]).ok()?;
        self.state = State::There(conn);
        Some(Heard::Back)
    }

    /// False: the daemon is away.
    pub fn send(&mut self, request: &Request) -> bool {
        match &mut self.state {
            // Where it is gone, the next read tells.
            State::There(conn) => conn.send(request, &[]).is_ok(),
            State::Away(_) | State::Lost => false,
        }
    }
}
