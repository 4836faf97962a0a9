//! Finds the program that sends email.

use crate::daemon::settings::{Sendmail, Settings};
use slotd_sys::program;
use std::path::PathBuf;

/// Its usual directories, searched in addition to `PATH`.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/lib", "/sbin"];

/// Returns the program from the settings, or else the host's own. `None` means that no email is
/// sent.
pub fn find(settings: &Settings) -> Option<PathBuf> {
    match &settings.sendmail {
        Sendmail::Off => None,
        Sendmail::Program(path) => Some(path.clone()),
        Sendmail::Search => program::find("sendmail", &DIRECTORIES),
    }
}
