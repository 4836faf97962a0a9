//! A text in a file, while the user edits it.

use crate::args::error::{CliError, Mark};
use slotd_sys::files;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

/// The text, in a new directory that other users cannot read.
pub(super) struct Draft {
    /// The command that the user called.
    command: &'static str,
    dir: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Creates the file, in `TMPDIR` or `/tmp`.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub(super) fn new(command: &'static str, name: &str, text: &[u8]) -> Result<Draft, CliError> {
        let failed = |error: io::Error| {
            CliError::error(1, format!("cannot create a file for the editor: {error}"))
        };
        let template = std::env::temp_dir().join(format!("{command}-edit-XXXXXX"));
        let dir = nix::unistd::mkdtemp(&template).map_err(|e| failed(e.into()))?;
        let draft = Draft { command, path: dir.join(name), dir };
        let file = files::own(OpenOptions::new().write(true).create_new(true), &draft.path);
        file.and_then(|mut file| file.write_all(text)).map_err(|error| {
            draft.remove();
            failed(error)
        })?;
        Ok(draft)
    }

    /// Opens the editor and waits until it exits.
    ///
    /// # Errors
    /// Fails if it cannot be started or fails itself.
    pub(super) fn open(&self) -> Result<(), CliError> {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let editor = of("VISUAL").or_else(|| of("EDITOR")).unwrap_or_else(|| "vi".into());
        let mut shell_line = editor.clone();
        shell_line.push(" \"$1\"");
        let ended =
            Command::new("/bin/sh").arg("-c").arg(shell_line).arg("sh").arg(&self.path).status();
        let shown = editor.to_string_lossy();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let text = format!("the editor ({shown}) failed, {status}: nothing was changed");
                Err(CliError::error(1, text).hint("set VISUAL or EDITOR to use another one"))
            }
            Err(error) => {
                Err(CliError::error(1, format!("cannot start the editor ({shown}): {error}")))
            }
        }
    }

    /// Reads the edited text.
    ///
    /// # Errors
    /// Fails if the editor has left anything but a regular file of at most this many bytes.
    pub(super) fn read(&self, most: u64) -> Result<Vec<u8>, CliError> {
        let file = files::own(OpenOptions::new().read(true), &self.path);
        file.and_then(|file| files::read_open(&file, most)).map_err(|why| self.unreadable(&why))
    }

    /// Returns the edited text as a string.
    ///
    /// # Errors
    /// Fails if it is not UTF-8.
    pub(super) fn text(&self, bytes: Vec<u8>) -> Result<String, CliError> {
        String::from_utf8(bytes).map_err(|error| self.unreadable(&error.utf8_error()))
    }

    fn unreadable(&self, why: &dyn std::fmt::Display) -> CliError {
        let why = format!("cannot read the edited text {}: {why}", self.path.display());
        CliError::error(1, why).hint("the editor must save a regular text file there")
    }

    /// Adds the path of the kept text to an error.
    pub(super) fn kept(&self, error: CliError) -> CliError {
        let text = format!("{}: your text is kept in {}", self.command, self.path.display());
        error.and(Mark::Bare, text)
    }

    pub(super) fn remove(&self) {
        // Harmless if it fails: the text is in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
