//! `SLOTD_CGROUP_BASE`: making it ready for the cgroups of jobs.

use super::{CgroupError, JobCgroup, failed, has_word, hierarchy, io_failed};
use crate::exec::job_files::reason;
use crate::model::JobId;
use crate::model::tres::Tres;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is enabled for the jobs. Both must be: limits that cannot be set fail the launch, and are never left out in silence.
const CONTROLLERS: [&str; 2] = ["cpu", "memory"];

/// `SLOTD_CGROUP_BASE`. A wrong one does not keep the daemon from starting: what runs goes on, and nothing is taken.
#[derive(Debug)]
pub struct CgroupBase {
    root: PathBuf,
    /// The last look found that no cgroup of a job can be made.
    is_bad: AtomicBool,
}

impl CgroupBase {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        CgroupBase { root: root.into(), is_bad: AtomicBool::new(false) }
    }

    /// Where the job's cgroup is, or would be.
    pub fn job_dir(&self, job: JobId) -> PathBuf {
        self.root.join(format!("job_{job}"))
    }

    /// Whether cgroups of jobs can be made in it; it is made ready for them.
    ///
    /// # Errors
    /// It is no writable cgroup v2 directory with both controllers. The text names the path and the reason.
    pub fn probe(&self) -> Result<(), CgroupError> {
        let ready = self.check().and_then(|()| self.enable_controllers()).and_then(|()| {
            let writable = access(&self.root, AccessFlags::W_OK | AccessFlags::X_OK);
            writable.map_err(|e| failed(&self.root, format_args!("cannot be written: {}", e.desc())))
        });
        self.is_bad.store(ready.is_err(), Ordering::Relaxed);
        ready
    }

    /// Whether the last look found that it cannot be used.
    pub fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }

    /// Makes the cgroup of a job with its limits: `memory.max`, no swap, and `cpu.max`.
    /// One that is there already (a requeued job, a launch after a crash) is used, limits set anew.
    ///
    /// # Errors
    /// The base is no writable cgroup v2 directory with both controllers, or a limit was refused. The text names the
    /// path and the reason.
    pub fn create_job(&self, job: JobId, tres: &Tres) -> Result<JobCgroup, CgroupError> {
        self.probe()?;
        let earlier = self.open_job(job);
        // What an earlier run used and suffered is not this one's.
        earlier.remove();
        super::make(&earlier.dir)?;
        let cgroup = JobCgroup { past_ooms: earlier.oom_kills(), past_limit_ooms: earlier.limit_ooms(), ..earlier };
        if let Err(e) = cgroup.limit(tres) {
            cgroup.remove();
            return Err(e);
        }
        Ok(cgroup)
    }

    /// The cgroup of a job that another daemon made.
    pub fn open_job(&self, job: JobId) -> JobCgroup {
        let handle = hierarchy::open(&self.root, format!("job_{job}"));
        JobCgroup { dir: self.job_dir(job), handle, past_ooms: 0, past_limit_ooms: 0 }
    }

    /// On a plain directory everything below would seem to work: files of these names would be made. Where the base is
    /// missing and the directory above it is a cgroup, it is made: what a user may make himself is gone after a reboot.
    fn check(&self) -> Result<(), CgroupError> {
        let is_cgroup = |dir: &Path| statfs(dir).map(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
        match is_cgroup(&self.root) {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed(&self.root, "is not a cgroup v2 directory")),
            Err(nix::errno::Errno::ENOENT) if self.root.parent().is_some_and(|above| is_cgroup(above) == Ok(true)) => {
                super::make(&self.root)
            }
            Err(e) => Err(failed(&self.root, format_args!("could not be looked at: {}", e.desc()))),
        }
    }

    fn enable_controllers(&self) -> Result<(), CgroupError> {
        let enabled = read(&self.root, "cgroup.subtree_control")?;
        let missing = || CONTROLLERS.iter().filter(|name| !has_word(&enabled, name));
        if missing().next().is_none() {
            return Ok(());
        }
        let available = read(&self.root, "cgroup.controllers")?;
        for name in missing() {
            // Whoever made the base may not have enabled them for it.
            if !has_word(&available, name) && self.root.parent().is_none_or(|above| super::enable(above, name).is_err())
            {
                return Err(failed(&self.root, format_args!("the {name} controller is not available here")));
            }
        }
        // A cgroup with processes cannot have limited children: a daemon may sit in the base itself. Before any controller is
        // enabled: with one of them the kernel would make the base a threaded one, and refuse memory for good.
        self.empty()?;
        missing().try_for_each(|name| super::enable(&self.root, name))
    }

    /// Moves the processes of the base into `<base>/daemon`.
    fn empty(&self) -> Result<(), CgroupError> {
        let inner = self.root.join("daemon");
        let procs = inner.join("cgroup.procs");
        loop {
            let list = read(&self.root, "cgroup.procs")?;
            if list.trim().is_empty() {
                return Ok(());
            }
            super::make(&inner)?;
            if self.is_own_service() {
                log::warn!(
                    "SLOTD_CGROUP_BASE={} is the cgroup of the daemon's own service: systemd cannot start the \
                     service again while jobs run; choose another, see README.md",
                    self.root.display()
                );
            }
            for pid in list.split_whitespace() {
                match fs::write(&procs, pid) {
                    // It has ended meanwhile.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    other => other.map_err(io_failed(&procs, "could not take over the daemon's processes"))?,
                }
            }
        }
    }

    /// Whether this process is in the base, and that is the cgroup of a service.
    fn is_own_service(&self) -> bool {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
        own.ends_with(".service") && self.root.ends_with(own)
    }
}

fn read(dir: &Path, name: &str) -> Result<String, CgroupError> {
    let path = dir.join(name);
    fs::read_to_string(&path).map_err(|e: io::Error| failed(&path, format_args!("could not be read: {}", reason(&e))))
}
