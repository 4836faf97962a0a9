//! Starts the daemon of an installation without a service manager, and stops it regardless of how
//! it was started.

use super::layout::Layout;
use super::output::report_step;
use crate::args::error::CliError;
use crate::daemon::detached;
use slotd_parse::env_file::EnvFile;
use slotd_sys::paths::Paths;

pub(super) fn start(layout: &Layout, settings: &EnvFile) -> Result<u32, CliError> {
    let file = layout.env_file.display().to_string();
    let given = detached::Given { file: &file, settings: settings.iter().collect() };
    Ok(detached::start(&layout.program, &layout.paths, &given, std::env::vars_os())?)
}

/// Stops the daemon of a root, unless it is the `spared` process or this one, which may hold the
/// root itself.
pub(super) fn stop(paths: &Paths, spared: Option<i32>) -> Result<(), CliError> {
    let own = Some(std::process::id().cast_signed());
    let Some(pid) = detached::pid_of(paths).filter(|pid| ![spared, own].contains(&Some(*pid)))
    else {
        return Ok(());
    };
    report_step(&format!(
        "stop the daemon for {} (process {pid}); running jobs continue",
        paths.root().display()
    ));
    Ok(detached::stop(paths, pid)?)
}
