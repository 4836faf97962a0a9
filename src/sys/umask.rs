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

/// Removes the permissions of the owner from the umask, so that this process can use the files that
/// it creates. Must be called before there are other threads.
pub fn keep_own_access() {
    let mask = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    umask(mask - Mode::S_IRWXU);
}
