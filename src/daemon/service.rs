//! What a service manager is told (sd_notify(3)): a datagram to the socket that it names. Commands that follow a
//! `systemctl --user restart slotd` find a daemon that answers.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The daemon serves its socket.
pub const READY: &str = "READY=1";

/// The daemon has been told to end.
pub const STOPPING: &str = "STOPPING=1";

/// Tells `state` to the manager whose socket `$NOTIFY_SOCKET` names: a path, or an abstract name after `@`. Without one
/// nothing is told.
pub fn tell(socket: Option<&OsStr>, state: &str) {
    let Some(name) = socket else { return };
    if let Err(e) = send(name, state) {
        log::warn!("NOTIFY_SOCKET={}: {state} could not be told to the service manager: {e}", name.display());
    }
}

fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = format!("slotd-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        for (socket, name) in [(by_path, path.into_os_string()), (by_name, format!("@{abstract_name}").into())] {
            tell(Some(&name), READY);
            let mut buf = [0; 32];
            let n = socket.recv(&mut buf).unwrap();
            assert_eq!(&buf[..n], b"READY=1");
        }
        // Nobody listens, and nobody is named: not the daemon's problem.
        tell(Some(OsStr::new("/no/such/socket")), STOPPING);
        tell(None, STOPPING);
    }
}
