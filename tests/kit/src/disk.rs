//! Disks in trouble: files that may not grow, and a small disk that can be filled.

use crate::proc;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether so many bytes are free there, and programs can be executed.
pub fn has_room(at: &Path, bytes: u64) -> bool {
    let Ok(place) = CString::new(at.as_os_str().as_bytes()) else { return false };
    // SAFETY: numbers, for which zeros are a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the text ends with a zero byte, and both live until the call returns.
    let done = unsafe { libc::statvfs(place.as_ptr(), &raw mut found) };
    done == 0
        && found.f_flag & libc::ST_NOEXEC == 0
        && found.f_bavail.saturating_mul(found.f_frsize) >= bytes
}

/// From now on no file of this process may grow beyond so many bytes (RLIMIT_FSIZE): with 0 each
/// write to a file fails. `None`: as large as they like. What the process started before is not
/// touched.
#[track_caller]
pub fn limit_files(pid: i32, bytes: Option<u64>) {
    proc::limit(pid, libc::RLIMIT_FSIZE, bytes);
}

/// A directory that is read-only for whoever opens a file in it from now on.
#[derive(Debug)]
pub struct ReadOnly(PathBuf);

impl ReadOnly {
    /// `None`, and a line that says so, where nobody may mount.
    pub fn make(at: &Path) -> Option<ReadOnly> {
        let mount = |options: &[&str]| Command::new("mount").args(options).arg(at).output();
        let bound = Command::new("mount").arg("--bind").arg(at).arg(at).output();
        if !bound.is_ok_and(|out| out.status.success()) {
            eprintln!("not tested: nothing can be mounted here");
            return None;
        }
        let made = ReadOnly(at.to_owned());
        let done = mount(&["-o", "remount,bind,ro"]).expect("mount");
        assert!(done.status.success(), "{done:?}");
        Some(made)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

fn detach(at: &Path) {
    if let Ok(place) = CString::new(at.as_os_str().as_bytes()) {
        // SAFETY: the text ends with a zero byte and lives until the call returns.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A disk of its own, in memory.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Over an empty directory. `None`, and a line that says why, where nobody may mount.
    pub fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        let place = CString::new(at.as_os_str().as_bytes()).ok()?;
        let options = CString::new(format!("size={bytes},mode=700")).ok()?;
        // SAFETY: all pointers are to texts that end with a zero byte and live until the call
        // returns.
        let done = unsafe {
            let kind = c"tmpfs".as_ptr();
            libc::mount(kind, place.as_ptr(), kind, 0, options.as_ptr().cast())
        };
        if done != 0 {
            eprintln!("not tested: a disk cannot be mounted here: {}", io::Error::last_os_error());
            return None;
        }
        Some(SmallDisk(at.to_owned()))
    }

    /// Leaves no room, until the file that is returned is removed.
    #[track_caller]
    pub fn fill(&self) -> PathBuf {
        let file = self.0.join("fill");
        let full = fs::write(&file, vec![0; 64 << 20]).expect_err("the disk is smaller");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        detach(&self.0);
    }
}
