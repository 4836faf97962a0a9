//! The mount of the root directory.

use std::mem::size_of;

/// Returns the number of the mount of `/`, and the device and the inode of `/` there. Returns `None`
/// before Linux 5.8, where mounts have no numbers.
pub fn of_root() -> Option<[u64; 3]> {
    const _: () = assert!(size_of::<libc::statx>() == 256);
    // SAFETY: all zeros is a value of this plain structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_STATX_DONT_SYNC, libc::STATX_MNT_ID | libc::STATX_INO);
    // SAFETY: the path ends with a zero byte, and the pointer is to a live structure.
    let result = unsafe { libc::statx(libc::AT_FDCWD, c"/".as_ptr(), flags, mask, &raw mut found) };
    let is_whole = result == 0 && found.stx_mask & mask == mask;
    let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
    is_whole.then_some([found.stx_mnt_id, device, found.stx_ino])
}
