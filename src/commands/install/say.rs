//! What an installation prints.

use crate::args::error::CliError;

/// A step of the installation.
pub(super) fn say(text: &str) {
    println!("==> {text}");
}

pub(super) fn note(text: &str) {
    println!("    {text}");
}

/// What went wrong, and what to do.
pub(super) fn fail(text: impl AsRef<str>) -> CliError {
    CliError::error(1, text)
}
