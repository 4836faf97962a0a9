//! What the kernel tells of devices that come and go (uevents, netlink(7)): of CPUs and of memory.
//!
//! It tells that something has changed, and not what: whoever hears of it looks again.

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The group of the messages that come from the kernel itself.
const FROM_KERNEL: u32 = 1;

/// The kernel makes no longer ones.
const LONGEST: usize = 8192;

pub struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

impl Uevents {
    /// # Errors
    /// The kernel has no such messages for this process.
    pub fn open() -> io::Result<Uevents> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = (SockType::Raw, SockProtocol::NetlinkKObjectUEvent);
        let socket = socket(AddressFamily::Netlink, kind.0, flags, kind.1)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, FROM_KERNEL))?;
        // SAFETY: the registration owns the descriptor.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Uevents { socket })
    }

    /// Returns when CPUs or memory have come or gone. What has come in until then is one change.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub async fn machine_changed(&mut self) -> io::Result<()> {
        let mut has_changed = false;
        while !has_changed {
            let mut ready = self.socket.readable().await?;
            // Until all was read.
            while let Ok(told) = ready.try_io(|socket| is_of_machine(socket.get_ref())) {
                has_changed |= told?;
            }
        }
        Ok(())
    }
}

/// Whether the next message is of CPUs or memory.
fn is_of_machine(socket: &OwnedFd) -> io::Result<bool> {
    let mut message = [0; LONGEST];
    match recv(socket.as_raw_fd(), &mut message, MsgFlags::empty()) {
        Ok(length) => Ok(names_machine(&message[..length])),
        // More came than the socket could keep: what is lost may have been of them.
        Err(nix::Error::ENOBUFS) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// A message is a list of `KEY=value`, each with a zero byte at its end.
fn names_machine(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == 0)
        .any(|word| word == b"SUBSYSTEM=cpu" || word == b"SUBSYSTEM=memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_cpus_and_memory_is_known_from_the_rest() {
        let told = |subsystem: &str| {
            format!(
                "offline@/devices/system/cpu/cpu3\0ACTION=offline\0SUBSYSTEM={subsystem}\0SEQNUM=7\0"
            )
        };
        assert!(names_machine(told("cpu").as_bytes()) && names_machine(told("memory").as_bytes()));
        assert!(
            !names_machine(told("net").as_bytes()) && !names_machine(told("cpufreq").as_bytes())
        );
        assert!(!names_machine(b""));
    }
}
