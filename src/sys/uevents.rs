//! Kernel notifications about CPUs and memory that are added or removed (uevents, netlink(7)).
//!
//! They only report that something has changed. The receiver must query the new state.

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The multicast group of messages from the kernel itself.
const FROM_KERNEL: u32 = 1;

/// The kernel's maximum message size in bytes.
const LONGEST: usize = 8192;

pub struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

impl Uevents {
    /// Subscribes to the notifications.
    ///
    /// # Errors
    /// Fails if the kernel does not offer them to this process.
    pub fn open() -> io::Result<Uevents> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = (SockType::Raw, SockProtocol::NetlinkKObjectUEvent);
        let socket = socket(AddressFamily::Netlink, kind.0, flags, kind.1)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, FROM_KERNEL))?;
        // SAFETY: the registration owns the descriptor.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Uevents { socket })
    }

    /// Waits until CPUs or memory are added or removed. All messages received by then count as one
    /// change.
    ///
    /// # Errors
    /// Fails if the socket has become unusable.
    pub async fn machine_changed(&mut self) -> io::Result<()> {
        let mut has_changed = false;
        while !has_changed {
            let mut ready = self.socket.readable().await?;
            // Read all pending messages.
            while let Ok(is_relevant) = ready.try_io(|socket| is_of_machine(socket.get_ref())) {
                has_changed |= is_relevant?;
            }
        }
        Ok(())
    }
}

/// Reads the next message and returns whether it concerns CPUs or memory.
fn is_of_machine(socket: &OwnedFd) -> io::Result<bool> {
    let mut message = [0; LONGEST];
    match recv(socket.as_raw_fd(), &mut message, MsgFlags::empty()) {
        Ok(length) => Ok(names_machine(&message[..length])),
        // The socket's buffer overflowed, and a relevant message may have been lost.
        Err(nix::Error::ENOBUFS) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Returns whether a message is about CPUs or memory. It is a list of `KEY=value` strings, each
/// with a final zero byte.
fn names_machine(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == 0)
        .any(|word| word == b"SUBSYSTEM=cpu" || word == b"SUBSYSTEM=memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_about_cpus_and_memory_are_relevant() {
        let message = |subsystem: &str| {
            format!(
                "offline@/devices/system/cpu/cpu3\0ACTION=offline\0SUBSYSTEM={subsystem}\0SEQNUM=7\0"
            )
        };
        assert!(
            names_machine(message("cpu").as_bytes()) && names_machine(message("memory").as_bytes())
        );
        assert!(
            !names_machine(message("net").as_bytes())
                && !names_machine(message("cpufreq").as_bytes())
        );
        assert!(!names_machine(b""));
    }
}
