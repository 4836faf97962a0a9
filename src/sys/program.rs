//! Where a program is.

use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};

/// The first program of this name in the directories of `PATH`, and then in these.
pub fn find(name: &str, also_in: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = std::env::split_paths(&path).chain(also_in.iter().map(PathBuf::from));
    known
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_is_found_and_another_file_is_not() {
        assert!(find("sh", &["/bin"]).is_some_and(|sh| sh.ends_with("sh")));
        let dir = tempfile::tempdir().unwrap();
        let (name, also) = ("a-file-of-slotd", dir.path().to_str().unwrap());
        assert_eq!(find(name, &[also]), None, "it is not there");
        std::fs::write(dir.path().join(name), "").unwrap();
        std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find(name, &[also]), None, "nobody may run it");
        std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(name, &[also]), Some(dir.path().join(name)));
    }
}
