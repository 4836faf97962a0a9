//! The umask of this process.

use nix::sys::stat::{Mode, umask};

/// A umask of this process. The previous one is restored on drop. It applies to all threads.
#[must_use]
#[derive(Debug)]
pub struct Umask(Mode);

impl Umask {
    pub fn set(mask: u32) -> Umask {
        Umask(umask(Mode::from_bits_truncate(mask & 0o777)))
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        umask(self.0);
    }
}
