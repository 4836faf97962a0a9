//! Whose a directory is, and who may write it: what others can write, others can replace.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bits of a mode by which a group, or everybody, may write.
const WRITE_OF_OTHERS: u32 = 0o022;

/// What is wrong with a directory of this owner and mode for this user; `None` where nothing is.
fn fault(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user {
        return Some(format!(
            "it belongs to user {owner}, not to user {user}: choose a directory of your own"
        ));
    }
    let mode = mode & 0o7777;
    let is_open = mode & WRITE_OF_OTHERS != 0;
    is_open
        .then(|| format!("others can write it (mode {mode:04o}): take that away with `chmod go-w`"))
}

/// Refuses a directory that is not this user's, that others can write, or that is a link. The
/// metadata of a link are its own.
///
/// # Errors
/// Why it is refused, in words, without the path.
pub fn check_found(found: &fs::Metadata) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if found.is_symlink() {
        return Err(refused(
            "it is a link, and a directory belongs here: remove the link, or mount the other directory in its place"
                .to_owned(),
        ));
    }
    if !found.is_dir() {
        return Err(refused("it is no directory".to_owned()));
    }
    fault(found.uid(), found.mode(), nix::unistd::getuid().as_raw())
        .map_or(Ok(()), |why| Err(refused(why)))
}

/// Refuses a directory that is not this user's, or that others can write. It may be named by a
/// link.
///
/// # Errors
/// Why it is refused, in words, without the path; it is not there.
pub fn check_dir(path: &Path) -> io::Result<()> {
    check_found(&fs::metadata(path)?)
}

/// The same, and refuses a link.
///
/// # Errors
/// As of [`check_dir`].
pub fn check_own_dir(path: &Path) -> io::Result<()> {
    check_found(&fs::symlink_metadata(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_of_another_user_or_that_others_can_write_is_refused() {
        assert_eq!(fault(1000, 0o40755, 1000), None);
        assert!(fault(1001, 0o40700, 1000).unwrap().contains("belongs to user 1001"));
        for mode in [0o40775, 0o40757, 0o41777] {
            assert!(fault(1000, mode, 1000).unwrap().contains("others can write it"), "{mode:o}");
        }
    }

    #[test]
    fn a_link_is_refused_where_the_directory_itself_is_wanted() {
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
