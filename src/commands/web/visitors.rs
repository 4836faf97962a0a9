//! Connections that have not authenticated. Any user of this host can open connections to a port of
//! loopback, so they must not take the places that the owner's browser needs.
//!
//! A connection authenticates with its first request that shows the session or the token. Until
//! then it counts towards [`MOST_UNKNOWN`]; one connection more closes another: the oldest of those
//! that other users opened, or the oldest of all. A browser sends its request as soon as it has
//! connected, so the owner's connections are rarely among the oldest.

use crate::sys::tcp_peer;
use actix_web::HttpRequest;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use nix::sys::socket::{Shutdown, shutdown};
use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections at once that have not authenticated.
const MOST_UNKNOWN: usize = 16;

/// The connections that have not authenticated, the oldest first.
#[derive(Debug, Default, Clone)]
pub struct Visitors(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    list: VecDeque<Unknown>,
    last_id: u64,
}

#[derive(Debug)]
struct Unknown {
    id: u64,
    /// Another descriptor of the connection, to end it.
    socket: OwnedFd,
    /// This user opened it.
    is_own: bool,
}

/// A connection's place among those that have not authenticated. It ends with the connection.
struct Visit {
    id: u64,
    visitors: Visitors,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.visitors.forget(self.id);
    }
}

impl Visitors {
    /// Counts a connection that has just been accepted.
    pub fn connected(&self, io: &dyn Any, of_connection: &mut Extensions) {
        let Some(stream) = io.downcast_ref::<TcpStream>() else { return };
        // Without another descriptor it cannot be closed from here. The time limits of the server
        // end it.
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
        let ends = stream.local_addr().and_then(|own| Ok((own, stream.peer_addr()?)));
        let owner = ends.ok().and_then(|(own, peer)| tcp_peer::owner(own, peer));
        let id = self.enter(socket, owner == Some(nix::unistd::geteuid().as_raw()));
        of_connection.insert(Visit { id, visitors: self.clone() });
    }

    fn enter(&self, socket: OwnedFd, is_own: bool) -> u64 {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.last_id += 1;
        let id = waiting.last_id;
        waiting.list.push_back(Unknown { id, socket, is_own });
        if waiting.list.len() > MOST_UNKNOWN {
            let place = waiting.list.iter().position(|one| !one.is_own).unwrap_or(0);
            if let Some(one) = waiting.list.remove(place) {
                // It may have ended meanwhile.
                let _ = shutdown(one.socket.as_raw_fd(), Shutdown::Both);
            }
        }
        id
    }

    fn forget(&self, id: u64) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.list.retain(|one| one.id != id);
    }
}

/// The connection of this request has authenticated.
pub fn authenticated(request: &HttpRequest) {
    if let Some(Visit { id, visitors }) = request.conn_data() {
        visitors.forget(*id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Whether the other end was closed.
    fn is_closed(mut end: &UnixStream) -> bool {
        end.set_nonblocking(true).unwrap();
        matches!(end.read(&mut [0]), Ok(0))
    }

    #[test]
    fn one_connection_too_many_closes_the_oldest_of_another_user() {
        let visitors = Visitors::default();
        let connect = |is_own: bool| {
            let (server, client) = UnixStream::pair().unwrap();
            (visitors.enter(server.into(), is_own), client)
        };
        let own: Vec<_> = (0..3).map(|_| connect(true)).collect();
        let others: Vec<_> = (0..200).map(|_| connect(false)).collect();
        assert!(own.iter().all(|(_, client)| !is_closed(client)));
        let open: Vec<usize> = (0..others.len()).filter(|i| !is_closed(&others[*i].1)).collect();
        assert_eq!(open, (200 - (MOST_UNKNOWN - 3)..200).collect::<Vec<_>>());
        // Those that have authenticated no longer count.
        own.iter().for_each(|(id, _)| visitors.forget(*id));
        let more: Vec<_> = (0..3).map(|_| connect(true)).collect();
        assert!(
            open.iter().all(|i| !is_closed(&others[*i].1))
                && more.iter().all(|(_, client)| !is_closed(client))
        );
    }

    #[test]
    fn if_all_are_of_this_user_the_oldest_goes_and_another_user_gets_no_place() {
        let visitors = Visitors::default();
        let connect = |is_own: bool| {
            let (server, client) = UnixStream::pair().unwrap();
            visitors.enter(server.into(), is_own);
            client
        };
        let own: Vec<UnixStream> = (0..MOST_UNKNOWN).map(|_| connect(true)).collect();
        assert!(is_closed(&connect(false)) && own.iter().all(|client| !is_closed(client)));
        let last = connect(true);
        assert!(is_closed(&own[0]) && !is_closed(&own[1]) && !is_closed(&last));
    }
}
