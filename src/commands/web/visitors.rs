//! The limit on unauthenticated connections. Any user of this host can connect to a loopback port,
//! so these connections must not exhaust the limit that the owner's browser shares.
//!
//! A connection authenticates with its first request that has the session or the token. Until then
//! it counts towards [`MOST_UNKNOWN`]. One connection more closes the oldest one of another user,
//! or the oldest of all. A browser sends its request as soon as it has connected, so the owner's
//! connections are rarely among the oldest.

use actix_web::HttpRequest;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use nix::sys::socket::{Shutdown, shutdown};
use slotd_sys::tcp_peer;
use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of unauthenticated connections.
const MOST_UNKNOWN: usize = 16;

/// The unauthenticated connections, oldest first.
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
    /// A duplicate descriptor, to shut the connection down.
    socket: OwnedFd,
    /// Whether this user opened it.
    is_own: bool,
}

/// The entry of an unauthenticated connection. It is removed when the connection ends.
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
        // Without a duplicate descriptor it cannot be closed here, and ends by the server's time
        // limits.
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
                // It may have ended in the meantime.
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

/// Marks the connection of this request as authenticated.
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

    /// Returns whether the other end was closed.
    fn is_closed(mut end: &UnixStream) -> bool {
        end.set_nonblocking(true).unwrap();
        matches!(end.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_connection_over_the_limit_closes_the_oldest_of_another_user() {
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
        // Authenticated connections no longer count.
        own.iter().for_each(|(id, _)| visitors.forget(*id));
        let more: Vec<_> = (0..3).map(|_| connect(true)).collect();
        assert!(
            open.iter().all(|i| !is_closed(&others[*i].1))
                && more.iter().all(|(_, client)| !is_closed(client))
        );
    }

    #[test]
    fn another_user_cannot_displace_connections_of_this_user() {
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
