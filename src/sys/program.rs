//! Finds programs.

use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};

/// Returns the first program with this name in the directories of `PATH`, then in those of
/// `also_in`.
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
    fn only_executable_files_are_found() {
        assert!(find("sh", &["/bin"]).is_some_and(|sh| sh.ends_with("sh")));
        let dir = tempfile::tempdir().unwrap();
        let (name, also) = ("a-file-of-slotd", dir.path().to_str().unwrap());
        assert_eq!(find(name, &[also]), None, "it does not exist");
        std::fs::write(dir.path().join(name), "").unwrap();
        std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(find(name, &[also]), None, "it is not executable");
        std::fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(name, &[also]), Some(dir.path().join(name)));
    }
}
