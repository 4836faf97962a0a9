//! Disks in trouble: files that cannot grow, a small disk that can be filled up, and one that can
//! hang.

use crate::proc;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Whether this many bytes are free and programs can be executed there.
pub fn has_room(at: &Path, bytes: u64) -> bool {
    let Ok(place) = CString::new(at.as_os_str().as_bytes()) else { return false };
    // SAFETY: statvfs is plain numbers, for which zero is valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: The path is null-terminated, and both live until the call returns.
    let done = unsafe { libc::statvfs(place.as_ptr(), &raw mut found) };
    done == 0
        && found.f_flag & libc::ST_NOEXEC == 0
        && found.f_bavail.saturating_mul(found.f_frsize) >= bytes
}

/// Limits the size of all files written by the process (RLIMIT_FSIZE); `None` for unlimited. With 0
/// every write to a file fails. Does not affect processes that it started earlier.
#[track_caller]
pub fn limit_files(pid: i32, bytes: Option<u64>) {
    proc::limit(pid, libc::RLIMIT_FSIZE, bytes);
}

/// A directory in which files can only be opened for reading.
#[derive(Debug)]
pub struct ReadOnly(PathBuf);

impl ReadOnly {
    /// Prints a line and returns `None` if mounting is not permitted.
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
        // SAFETY: The path is null-terminated and lives until the call returns.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}

/// A file system of its own, in memory.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts over an empty directory. Prints the reason and returns `None` if mounting is not
    /// permitted.
    pub fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        let place = CString::new(at.as_os_str().as_bytes()).ok()?;
        let options = CString::new(format!("size={bytes},mode=700")).ok()?;
        // SAFETY: All pointers are to null-terminated strings that live until the call returns.
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

    /// Fills the disk. Removing the returned file frees the space.
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

/// A disk whose writers can be made to hang.
#[derive(Debug)]
pub struct HangingDisk(PathBuf);

impl HangingDisk {
    /// Mounts the file `image`, which it creates, over an empty directory. Prints a line and returns
    /// `None` if that is not permitted.
    #[track_caller]
    pub fn mount(at: &Path, image: &Path) -> Option<HangingDisk> {
        let file = fs::File::create(image).expect("an image");
        file.set_len(16 << 20).expect("an image");
        let made = Command::new("mkfs.ext4").arg("-q").arg(image).output();
        let mounted = Command::new("mount").args(["-o", "loop"]).args([image, at]).output();
        if ![made, mounted].into_iter().all(|done| done.is_ok_and(|out| out.status.success())) {
            eprintln!("not tested: an image cannot be mounted here");
            return None;
        }
        let disk = HangingDisk(at.to_owned());
        // The daemon refuses directories that others can read.
        fs::set_permissions(at, fs::Permissions::from_mode(0o700)).expect("a mounted disk");
        Some(disk)
    }

    /// Every process that writes waits until [`HangingDisk::resume`].
    #[track_caller]
    pub fn hang(&self) {
        let done = self.freeze("--freeze").expect("fsfreeze");
        assert!(done.status.success(), "{done:?}");
    }

    #[track_caller]
    pub fn resume(&self) {
        let done = self.freeze("--unfreeze").expect("fsfreeze");
        assert!(done.status.success(), "{done:?}");
    }

    fn freeze(&self, how: &str) -> io::Result<Output> {
        Command::new("fsfreeze").arg(how).arg(&self.0).output()
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // A failed test may leave it frozen.
        let _ = self.freeze("--unfreeze");
        detach(&self.0);
    }
}
