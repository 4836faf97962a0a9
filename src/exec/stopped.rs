//! Launchers and watchers that another process has stopped (SIGSTOP).
//!
//! A stopped watcher carries out no command: without SIGCONT its step would never end.

use crate::exec::launcher::LAUNCHER_ARG;
use crate::sys::proc;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sends SIGCONT to each stopped launcher and watcher of this root. Returns how many there were.
/// Reads the state of every process of the machine.
pub fn resume(root: &Path) -> usize {
    let is_stopped = |pid: &i32| proc::stat(*pid).is_some_and(|stat| stat.state == b'T');
    // A watcher is forked by a launcher and keeps its command line.
    let is_ours = |pid: &i32| {
        let line = proc::read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(LAUNCHER_ARG.as_bytes())
            && words.next() == Some(root.as_os_str().as_bytes())
    };
    let stopped = proc::all_pids().into_iter().filter(is_stopped).filter(is_ours);
    stopped.filter(|pid| proc::kill(*pid, libc::SIGCONT)).count()
}
