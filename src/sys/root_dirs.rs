//! Directories of slotd's own below the runtime root.
//!
//! `SLOTD_ROOT` may be reached through links, so that it can lie on any disk. Below it nothing is:
//! a directory of another disk is mounted there. A link in the place of one of these directories
//! would have slotd delete the files that it leads to, and is refused.

use crate::sys::beneath::Dir;
use crate::sys::ownership;
use crate::sys::paths::Paths;
use std::fs;
use std::io;
use std::path::Path;

/// Opens a directory below the root, which is given by its path. `None` if it or one above it does
/// not exist.
///
/// # Errors
/// It, or a directory on the way to it, is a link, is no directory, belongs to another user, or can
/// be written by others. The text names its path.
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

/// Checks all directories that slotd deletes from. Returns what is wrong, a text for each.
pub fn faults(paths: &Paths) -> Vec<String> {
    let dirs = [paths.run_dir(), paths.lib_dir(), paths.jobs_dir(), paths.snapshots_dir()];
    let mut found: Vec<String> =
        dirs.iter().filter_map(|dir| Some(open(paths, dir).err()?.to_string())).collect();
    // A directory on the way to two of them.
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_root_may_be_reached_through_a_link_and_nothing_below_it() {
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
                .starts_with(&format!("{}: it is a link, ", at("root/lib/snapshots").display()))
        );
        assert!(refused(&paths.run_dir()).ends_with("root/run: it is no directory"));
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
            refused(&paths.jobs_dir()).contains("root/lib/jobs: others can write it (mode 0777)")
        );
        assert!(open(&Paths::new(at("none")), &at("none/lib")).unwrap().is_none());
    }
}
