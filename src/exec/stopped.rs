//! Launchers and watchers that another process has stopped (SIGSTOP).
//!
//! A stopped watcher carries out no commands: without SIGCONT, its step would never end.

use crate::launcher::LAUNCHER_ARG;
use slotd_sys::paths::is_root_of;
use slotd_sys::proc;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sends SIGCONT to all stopped launchers and watchers of this root, and returns their number.
/// Reads the state of every process of the machine.
pub(crate) fn resume(root: &Path) -> usize {
    let is_stopped = |pid: &i32| proc::stat(*pid).is_some_and(|stat| stat.state == b'T');
    // A watcher is forked by a launcher and keeps its command line.
    let is_ours = |pid: &i32| {
        let line = proc::read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(LAUNCHER_ARG.as_bytes())
            && words
                .next()
                .is_some_and(|named| is_root_of(*pid, Path::new(OsStr::from_bytes(named)), root))
    };
    let stopped = proc::all_pids().into_iter().filter(is_stopped).filter(is_ours);
    stopped.filter(|pid| proc::kill(*pid, libc::SIGCONT)).count()
}
