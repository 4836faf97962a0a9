//! The records of an installation beside its settings, for later upgrades and removal: the
//! directory of the commands, and the directories with links to them.

use super::files::{is_own_program, make_dir, remove, write_file};
use super::layout::Layout;
use super::output::{fail, note};
use crate::args::error::CliError;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Writes a record. Without directories there is none.
///
/// # Errors
/// Fails if the record cannot be written or deleted.
pub fn write<'a>(
    layout: &Layout,
    file: &Path,
    dirs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), CliError> {
    let lines = dirs.into_iter().flat_map(|dir| [dir.as_os_str().as_bytes(), b"\n"]);
    let text = lines.collect::<Vec<_>>().concat();
    if text.is_empty() {
        return if file.exists() { remove(file) } else { Ok(()) };
    }
    make_dir(&layout.config_dir)?;
    write_file(file, &text, 0o644)
}

/// Checks the records of an earlier installation.
///
/// # Errors
/// Fails if a record is not a regular file, or if the directory of the commands is unknown: they
/// must not get into another one.
pub fn check(layout: &Layout) -> Result<(), CliError> {
    for file in [&layout.link_dirs_file, &layout.bin_dir_file] {
        let Ok(found) = file.symlink_metadata() else { continue };
        if !found.is_file() {
            return refused(file, "it is a link or not a regular file: remove it");
        }
        if file == &layout.bin_dir_file && layout.earlier_bin_dir.is_none() {
            return refused(file, "it names no directory: remove it, and use --install-bin-dir");
        }
    }
    Ok(())
}

fn refused(file: &Path, why: &str) -> Result<(), CliError> {
    Err(fail(format!("{} exists and is not slotd's: {why}", file.display())))
}

/// Records the directory of the commands, unless it is the default one. Reports the commands that
/// an earlier installation has put into another directory.
///
/// # Errors
/// Fails if the record cannot be written or deleted.
pub fn write_bin_dir(layout: &Layout) -> Result<(), CliError> {
    let default = layout.settings.is_some().then_some(&layout.default_bin_dir);
    let earlier = layout.earlier_bin_dir.as_ref().or(default);
    let is_left = |dir: &&PathBuf| **dir != layout.bin_dir && is_own_program(&dir.join("slotd"));
    if let Some(dir) = earlier.filter(is_left) {
        note(&format!(
            "the commands of the earlier installation are still in {}: delete those that you do not want",
            dir.display()
        ));
    }
    let is_default = layout.bin_dir == layout.default_bin_dir;
    write(layout, &layout.bin_dir_file, Some(&layout.bin_dir).filter(|_| !is_default))
}

/// Deletes the record of a directory whose commands were removed.
///
/// # Errors
/// Fails if the record cannot be deleted.
pub fn forget_bin_dir(layout: &Layout) -> Result<(), CliError> {
    if layout.earlier_bin_dir.as_ref() != Some(&layout.bin_dir) || layout.program.exists() {
        return Ok(());
    }
    write(layout, &layout.bin_dir_file, None)
}
