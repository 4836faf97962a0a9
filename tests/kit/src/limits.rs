//! Limits that a process is given while it runs.

use crate::proc;
use std::fs;
use std::path::PathBuf;

/// The process can open so many files more, or as many as it likes again.
#[track_caller]
pub fn descriptors(pid: i32, more: Option<u64>) {
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is there").flatten();
    let has =
        |number: u64| open().any(|entry| entry.file_name().to_str() == Some(&number.to_string()));
    let free = more.map(|more| {
        (0..).filter(|number| !has(*number)).nth(more as usize).expect("numbers do not end")
    });
    proc::limit(pid, libc::RLIMIT_NOFILE, free);
}

/// A process that can make no process, as long as this value lives.
#[derive(Debug)]
pub struct Barren {
    pid: i32,
    /// Where the number of processes of a user does not count, since the user is root.
    cgroup: Option<PathBuf>,
}

impl Barren {
    /// `None`, and a line that says so, where that cannot be had.
    pub fn make(pid: i32) -> Option<Barren> {
        // SAFETY: it takes nothing.
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
                // The process may have gone, and what it could not do it need not do.
                let _ = fs::write("/sys/fs/cgroup/pids/cgroup.procs", self.pid.to_string());
                let _ = fs::remove_dir(cgroup);
            }
        }
    }
}
