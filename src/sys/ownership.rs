//! Checks who owns a directory and who can write to it. Anyone who can write to it can replace its
//! files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The write permissions of the group and of others.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Returns the problem with the owner and mode of a directory for this user, if any.
fn fault(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user {
        return Some(format!(
            "it belongs to user {owner}, not to user {user}: choose a directory of your own"
        ));
    }
    let mode = mode & 0o7777;
    let is_open = mode & WRITE_OF_OTHERS != 0;
    is_open.then(|| format!("others can write to it (mode {mode:04o}): run `chmod go-w` on it"))
}

/// Refuses a directory that another user owns or can write to, and a symlink. `found` must be the
/// metadata of the symlink itself.
///
/// # Errors
/// Fails with the reason, without the path.
pub(crate) fn check_found(found: &fs::Metadata) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if found.is_symlink() {
        return Err(refused(
            "it is a link but must be a directory: remove the link, or mount the other directory in its place"
                .to_owned(),
        ));
    }
    if !found.is_dir() {
        return Err(refused("it is not a directory".to_owned()));
    }
    fault(found.uid(), found.mode(), nix::unistd::getuid().as_raw())
        .map_or(Ok(()), |why| Err(refused(why)))
}

/// Refuses a directory that another user owns or can write to. The path may be a symlink.
///
/// # Errors
/// Fails with the reason, without the path, or if the directory does not exist.
pub fn check_dir(path: &Path) -> io::Result<()> {
    check_found(&fs::metadata(path)?)
}

/// Like [`check_dir`], but refuses symlinks.
///
/// # Errors
/// Fails like [`check_dir`].
pub fn check_own_dir(path: &Path) -> io::Result<()> {
    check_found(&fs::symlink_metadata(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_others_own_or_can_write_is_refused() {
        assert_eq!(fault(1000, 0o40755, 1000), None);
        assert!(fault(1001, 0o40700, 1000).unwrap().contains("belongs to user 1001"));
        for mode in [0o40775, 0o40757, 0o41777] {
            assert!(
                fault(1000, mode, 1000).unwrap().contains("others can write to it"),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn check_own_dir_refuses_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &link).unwrap();
        check_dir(&link).unwrap();
        check_own_dir(&real).unwrap();
        let refused = check_own_dir(&link).unwrap_err().to_string();
        assert!(refused.starts_with("it is a link"), "{refused}");
    }
}
