//! Finds the user at the other end of a TCP connection within this host (sock_diag(7)).

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

/// `struct inet_diag_req_v2` after a `struct nlmsghdr`.
const REQUEST: usize = 16 + 56;

/// `struct inet_diag_msg` after a `struct nlmsghdr`, without the optional attributes.
const ANSWER: usize = 16 + 72;

/// `SOCK_DIAG_BY_FAMILY` from <linux/sock_diag.h>.
const BY_FAMILY: u16 = 20;

/// `TCP_ESTABLISHED` from <linux/tcp_states.h>. A socket closed by its process would count as
/// root's.
const ESTABLISHED: u8 = 1;

/// Returns the uid that owns the other end of a connection. Returns `None` if that end is on
/// another host, is closed, or the kernel does not report it.
pub fn owner(own: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let kernel =
        socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkSockDiag)
            .ok()?;
    let to_kernel = NetlinkAddr::new(0, 0);
    sendto(kernel.as_raw_fd(), &request(peer, own), &to_kernel, MsgFlags::empty()).ok()?;
    // The kernel sends its response before the call returns.
    let mut answer = [0; 512];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
    parse(answer.get(..length)?)
}

/// Builds a request for the one socket with these two ends.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut message = Vec::with_capacity(REQUEST);
    message.extend((REQUEST as u32).to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    // Match any state.
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(local.port().to_be_bytes());
    message.extend(remote.port().to_be_bytes());
    message.extend(address(local.ip()));
    message.extend(address(remote.ip()));
    // Match any interface and any cookie.
    message.extend(0u32.to_ne_bytes());
    message.extend([0xff; 8]);
    message
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

/// Parses the owner from a response of the kernel.
fn parse(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let is_open = answer.len() >= ANSWER && kind == BY_FAMILY && answer[17] == ESTABLISHED;
    let uid = answer.get(80..84)?.try_into().ok()?;
    is_open.then(|| u32::from_ne_bytes(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener, TcpStream};

    #[test]
    fn a_local_connection_belongs_to_this_user() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            // A host without IPv6.
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let own = listener.local_addr().unwrap();
            let client = TcpStream::connect(own).unwrap();
            let peer = client.local_addr().unwrap();
            let found = owner(own, peer);
            // Some containers have no sock_diag.
            assert!(found.is_none_or(|uid| uid == nix::unistd::geteuid().as_raw()), "{found:?}");
            // Shut down instead of dropped: a process forked by another test may keep the
            // descriptor open.
            client.shutdown(Shutdown::Both).unwrap();
            assert_eq!(owner(own, peer), None, "closed");
        }
    }

    #[test]
    fn short_responses_errors_and_closed_sockets_have_no_owner() {
        let mut answer = vec![0; ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[17] = ESTABLISHED;
        answer[80..84].copy_from_slice(&1234u32.to_ne_bytes());
        assert_eq!(parse(&answer), Some(1234));
        for length in [0, 5, 17, 83, ANSWER - 1] {
            assert_eq!(parse(&answer[..length]), None, "{length}");
        }
        answer[17] = 6;
        assert_eq!(parse(&answer), None, "TIME_WAIT");
        answer[17] = ESTABLISHED;
        answer[4] = 2;
        assert_eq!(parse(&answer), None, "NLMSG_ERROR");
    }
}
