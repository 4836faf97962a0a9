//! The owner's state of the node (`scontrol update NodeName=…`), kept across restarts of the
//! daemon.

use slotd_model::node::Drains;
use slotd_sys::files::{self, MOST_SETTINGS};
use slotd_sys::paths::Paths;
use std::fs;
use std::io;
use std::path::PathBuf;

fn path(paths: &Paths) -> PathBuf {
    paths.lib_dir().join("node_state.json")
}

/// Reads the parts that are out of use. An unreadable file is only logged: a node drained for an
/// unknown reason would keep all jobs waiting.
pub fn read(paths: &Paths) -> Drains {
    let path = path(paths);
    let read = match files::read(&path, MOST_SETTINGS) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Drains::default(),
        Err(e) => Err(e.to_string()),
    };
    read.unwrap_or_else(|why| {
        log::warn!("ignoring {}, so the node accepts jobs: {why}", path.display());
        Drains::default()
    })
}

/// Stores the parts that are out of use.
///
/// # Errors
/// Fails if the disk cannot be written.
pub fn write(paths: &Paths, drains: &Drains) -> io::Result<()> {
    let path = path(paths);
    if drains.is_empty() {
        return fs::remove_file(&path)
            .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) });
    }
    files::replace(&path, &serde_json::to_vec(drains)?)
}
