//! The output of the installer.

use crate::args::error::CliError;

/// Prints a step of the installation.
pub(super) fn report_step(text: &str) {
    println!("==> {text}");
}

pub(super) fn note(text: &str) {
    println!("    {text}");
}

/// Returns an error whose text states what went wrong and what to do.
pub(super) fn fail(text: impl AsRef<str>) -> CliError {
    CliError::error(1, text)
}
