//! placeholder
use std::fs::File;
use std::os::fd::OwnedFd;
pub(super) fn watch(_control: OwnedFd, _lock: File) -> ! {
    std::process::exit(0)
}
