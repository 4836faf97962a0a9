//! slotd's own directories below the runtime root.
//!
//! `SLOTD_ROOT` may be a symlink, so that it can be on any disk. Directories below it must not be
//! symlinks; use a mount to put one on another disk. Otherwise, slotd would delete files in the
//! target of the link.

use crate::beneath::Dir;
use crate::ownership;
use crate::paths::Paths;
use std::fs;
use std::io;
use std::path::Path;

/// Opens a directory below the root by its path. Returns `None` if it or one of its parents does
/// not exist.
///
/// # Errors
/// Fails if it or one of its parents is a symlink, is not a directory, belongs to another user, or
/// is writable by others. The message names the path.
pub fn open(paths: &Paths, dir: &Path) -> io::Result<Option<Dir>> {
    let named =
        |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut path = paths.root().to_owned();
    let root = match fs::canonicalize(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|e| named(&path, e))?,
    };
    let mut at = Dir::open(&root).map_err(|e| named(&path, e))?;
    at.as_file()
        .and_then(|dir| dir.metadata())
        .and_then(|found| ownership::check_found(&found))
        .map_err(|e| named(&path, e))?;
    for part in dir.strip_prefix(paths.root()).unwrap_or(dir).iter().map(Path::new) {
        path.push(part);
        let found = match at.metadata(part) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|e| named(&path, e))?,
        };
        ownership::check_found(&found).map_err(|e| named(&path, e))?;
        at = at.dir(part).map_err(|e| named(&path, e))?;
    }
    Ok(Some(at))
}

/// Checks all directories that slotd deletes files from. Returns a message for each problem.
pub fn faults(paths: &Paths) -> Vec<String> {
    let dirs = [paths.run_dir(), paths.lib_dir(), paths.jobs_dir(), paths.snapshots_dir()];
    let mut found: Vec<String> =
        dirs.iter().filter_map(|dir| Some(open(paths, dir).err()?.to_string())).collect();
    // A shared parent directory is reported only once.
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_the_root_itself_may_be_a_symlink() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("disk/lib/jobs")).unwrap();
        fs::create_dir_all(at("elsewhere/jobs")).unwrap();
        symlink(at("disk"), at("root")).unwrap();
        let paths = Paths::new(at("root"));
        assert!(open(&paths, &paths.jobs_dir()).unwrap().is_some());
        assert!(open(&paths, &paths.snapshots_dir()).unwrap().is_none());
        assert_eq!(faults(&paths), [""; 0]);
        symlink(at("elsewhere"), at("disk/lib/snapshots")).unwrap();
        fs::write(at("disk/run"), "").unwrap();
        let refused = |dir: &Path| open(&paths, dir).unwrap_err().to_string();
        assert!(
            refused(&paths.snapshots_dir())
                .starts_with(&format!("{}: it is a link but ", at("root/lib/snapshots").display()))
        );
        assert!(refused(&paths.run_dir()).ends_with("root/run: it is not a directory"));
        fs::rename(at("disk/lib"), at("disk/old")).unwrap();
        symlink(at("elsewhere"), at("disk/lib")).unwrap();
        let faults = faults(&paths);
        assert!(
            faults.len() == 2
                && faults[1].starts_with(&format!("{}: it is a link", at("root/lib").display())),
            "{faults:?}"
        );
        fs::remove_file(at("disk/lib")).unwrap();
        fs::rename(at("disk/old"), at("disk/lib")).unwrap();
        fs::set_permissions(at("disk/lib/jobs"), Permissions::from_mode(0o777)).unwrap();
        assert!(
            refused(&paths.jobs_dir())
                .contains("root/lib/jobs: others can write to it (mode 0777)")
        );
        assert!(open(&Paths::new(at("none")), &at("none/lib")).unwrap().is_none());
    }
}
