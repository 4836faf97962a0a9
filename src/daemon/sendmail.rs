//! Which program sends mail.

use crate::daemon::settings::{Sendmail, Settings};
use crate::sys::program;
use std::path::PathBuf;

/// Where it is besides the directories of `PATH`.
const DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/lib", "/sbin"];

/// The one that the settings name, else the host's own. `None`: no mail is sent.
pub fn find(settings: &Settings) -> Option<PathBuf> {
    match &settings.sendmail {
        Sendmail::Off => None,
        Sendmail::Program(path) => Some(path.clone()),
        Sendmail::Search => program::find("sendmail", &DIRECTORIES),
    }
}
