//! Limits on a running process.

use crate::proc;
use std::fs;
use std::path::PathBuf;

/// Limits how many more files the process can open; `None` lifts the limit.
#[track_caller]
pub fn descriptors(pid: i32, more: Option<u64>) {
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).expect("the process exists").flatten();
    let has =
        |number: u64| open().any(|entry| entry.file_name().to_str() == Some(&number.to_string()));
    let free = more.map(|more| {
        (0..)
            .filter(|number| !has(*number))
            .nth(more as usize)
            .expect("there is always a free number")
    });
    proc::limit(pid, libc::RLIMIT_NOFILE, free);
}

/// Prevents a process from creating processes until dropped.
#[derive(Debug)]
pub struct Barren {
    pid: i32,
    /// Used if the process is root, to which RLIMIT_NPROC does not apply.
    cgroup: Option<PathBuf>,
}

impl Barren {
    /// Prints a line and returns `None` if that is not possible.
    pub fn make(pid: i32) -> Option<Barren> {
        // SAFETY: geteuid takes no arguments.
        if unsafe { libc::geteuid() } != 0 {
            proc::limit(pid, libc::RLIMIT_NPROC, Some(1));
            return Some(Barren { pid, cgroup: None });
        }
        let cgroup = PathBuf::from(format!("/sys/fs/cgroup/pids/slotd-test-{pid}"));
        let made = fs::create_dir(&cgroup)
            .and_then(|()| fs::write(cgroup.join("pids.max"), "1"))
            .and_then(|()| fs::write(cgroup.join("cgroup.procs"), pid.to_string()));
        let barren = Barren { pid, cgroup: Some(cgroup) };
        match made {
            Ok(()) => Some(barren),
            Err(error) => {
                eprintln!("not tested: the processes of {pid} cannot be limited here: {error}");
                None
            }
        }
    }
}

impl Drop for Barren {
    fn drop(&mut self) {
        match &self.cgroup {
            None => proc::limit(self.pid, libc::RLIMIT_NPROC, None),
            Some(cgroup) => {
                // The process may have exited, which is fine.
                let _ = fs::write("/sys/fs/cgroup/pids/cgroup.procs", self.pid.to_string());
                let _ = fs::remove_dir(cgroup);
            }
        }
    }
}
