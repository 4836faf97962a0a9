//! `SLOTD_CGROUP_BASE`: prepares it for the cgroups of jobs.

use super::{CgroupError, JobCgroup, auto, failed, has_word, io_failed, is_cgroup};
use nix::unistd::{AccessFlags, access};
use slotd_model::JobId;
use slotd_model::tres::Allocation;
use slotd_sys::system::reason;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The value of `SLOTD_CGROUP_BASE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The subtree delegated to the daemon.
    Auto,
    Path(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Auto => f.write_str("auto"),
            Place::Path(path) => path.display().fmt(f),
        }
    }
}

/// The maximum number of processes of a job, including threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxProcesses {
    /// Half of the limit of the host and the parent cgroups, so that a fork bomb leaves the rest for
    /// others.
    Half,
    Number(u32),
    Unlimited,
}

impl fmt::Display for MaxProcesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxProcesses::Half => f.write_str("half of what the host allows"),
            MaxProcesses::Number(number) => number.fmt(f),
            MaxProcesses::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// Settings of job cgroups other than memory and CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub max_processes: MaxProcesses,
    /// `io.weight` for each CPU of the job.
    pub io_weight: Option<u32>,
    /// When a step runs out of memory, kill all of it rather than a single process (Slurm's
    /// `OOMKillStep`).
    pub kill_step: bool,
}

impl Rules {
    /// Returns the required controllers. A limit that cannot be set fails the launch; it is never
    /// skipped silently.
    fn needed(&self) -> impl Iterator<Item = &'static str> {
        let io = self.io_weight.map(|_| "io");
        let pids = matches!(self.max_processes, MaxProcesses::Number(_)).then_some("pids");
        ["cpu", "memory"].into_iter().chain(io).chain(pids)
    }
}

/// Optional controllers, with the effect of their absence.
const USEFUL: [(&str, &str); 2] = [
    ("cpuset", "jobs are limited to the CPU time of their CPUs, but not bound to them"),
    ("pids", "jobs have no process limit other than that of their user"),
];

/// `SLOTD_CGROUP_BASE`. A wrong value does not prevent the daemon from starting: running jobs
/// continue, no pending job starts, and submissions are refused.
#[derive(Debug)]
pub struct CgroupBase {
    place: Place,
    /// The result of `auto`.
    found: OnceLock<PathBuf>,
    rules: Rules,
    /// The last probe found that job cgroups cannot be created.
    is_bad: AtomicBool,
}

impl CgroupBase {
    pub fn new(place: Place, rules: Rules) -> Self {
        CgroupBase { place, found: OnceLock::new(), rules, is_bad: AtomicBool::new(false) }
    }

    /// Returns the directory, if one was found.
    ///
    /// # Errors
    /// Fails if `auto` finds no delegated cgroup.
    pub fn root(&self) -> Result<&Path, CgroupError> {
        match (&self.place, self.found.get()) {
            (Place::Path(root), _) | (Place::Auto, Some(root)) => Ok(root),
            (Place::Auto, None) => {
                let found = auto::find()?;
                Ok(self.found.get_or_init(|| found))
            }
        }
    }

    /// Returns the cgroup of a job, which need not exist.
    ///
    /// # Errors
    /// Fails like [`CgroupBase::root`].
    pub fn job(&self, job: JobId) -> Result<JobCgroup, CgroupError> {
        Ok(JobCgroup::at(self.root()?.join(format!("job_{job}"))))
    }

    /// Prepares the base for job cgroups.
    ///
    /// # Errors
    /// Fails if it is not a writable cgroup v2 directory with the required controllers. The error
    /// names the path and the reason.
    pub fn probe(&self) -> Result<(), CgroupError> {
        let ready = self.root().and_then(|root| {
            if self.place == Place::Auto && !root.exists() {
                // The directory disappears if the unit of the jobs is restarted.
                auto::find()?;
            }
            self.make_ready(root)
        });
        self.is_bad.store(ready.is_err(), Ordering::Relaxed);
        ready
    }

    /// Returns whether the last probe found it unusable.
    pub fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }

    /// Returns whether running out of memory kills the whole step.
    pub fn kills_steps(&self) -> bool {
        self.rules.kill_step
    }

    /// Returns the missing optional controllers and the effect of their absence, for the log.
    pub fn lacks(&self) -> Vec<String> {
        let enabled =
            self.root().and_then(|root| read(root, "cgroup.subtree_control")).unwrap_or_default();
        let lacking = USEFUL.iter().filter(|(name, _)| !has_word(&enabled, name));
        lacking.map(|(name, without)| format!("without the {name} controller {without}")).collect()
    }

    /// Creates the cgroup of a job and sets its limits. An existing one (of a requeued job, or
    /// after a crash during the launch) is reused with new limits.
    ///
    /// # Errors
    /// Fails if the base cannot be used or a limit is refused. The error names the path and the
    /// reason.
    pub fn create_job(&self, job: JobId, alloc: &Allocation) -> Result<JobCgroup, CgroupError> {
        self.probe()?;
        let earlier = self.job(job)?;
        // Do not count the usage and OOM kills of an earlier run.
        earlier.remove();
        super::make(earlier.dir())?;
        let cgroup = earlier.reset_counts();
        if let Err(e) = cgroup.limit(alloc, &self.rules) {
            cgroup.remove();
            return Err(e);
        }
        Ok(cgroup)
    }

    /// Changes the limits of a job's cgroup.
    ///
    /// # Errors
    /// Fails if the kernel refuses a limit or the cgroup no longer exists. The error names the
    /// limit.
    pub fn limit(&self, cgroup: &JobCgroup, alloc: &Allocation) -> Result<(), CgroupError> {
        cgroup.limit(alloc, &self.rules)
    }

    fn make_ready(&self, root: &Path) -> Result<(), CgroupError> {
        check(root)?;
        let enabled = read(root, "cgroup.subtree_control")?;
        let wanted = || self.rules.needed().chain(USEFUL.map(|(name, _)| name));
        if wanted().any(|name| !has_word(&enabled, name)) {
            self.enable_controllers(root, &enabled)?;
        }
        let writable = access(root, AccessFlags::W_OK | AccessFlags::X_OK);
        writable.map_err(|e| failed(root, format_args!("is not writable: {}: {HINT}", e.desc())))
    }

    fn enable_controllers(&self, root: &Path, enabled: &str) -> Result<(), CgroupError> {
        let available = read(root, "cgroup.controllers")?;
        // The parent may not have enabled the controllers for the base. Do not enable them if it
        // contains processes: see below.
        let above = root
            .parent()
            .filter(|above| read(above, "cgroup.procs").is_ok_and(|list| list.trim().is_empty()));
        let is_available = |name: &&str| {
            has_word(&available, name)
                || above.is_some_and(|above| super::enable(above, name).is_ok())
        };
        let missing: Vec<&str> =
            self.rules.needed().filter(|name| !has_word(enabled, name)).collect();
        if let Some(name) = missing.iter().find(|name| !is_available(name)) {
            return Err(failed(
                root,
                format_args!("the {name} controller is not available here: {HINT}"),
            ));
        }
        let useful = USEFUL.map(|(name, _)| name);
        let extra: Vec<&str> = useful
            .into_iter()
            .filter(|name| !has_word(enabled, name) && !missing.contains(name))
            .filter(is_available)
            .collect();
        if missing.is_empty() && extra.is_empty() {
            return Ok(());
        }
        // Check this before enabling anything: in a cgroup with processes, the cpu controller makes
        // the kernel turn it into a threaded cgroup, which can never get the memory controller.
        refuse_processes(root)?;
        missing.iter().try_for_each(|name| super::enable(root, name))?;
        for name in extra {
            if let Err(e) = super::enable(root, name) {
                log::debug!("{e}");
            }
        }
        Ok(())
    }
}

const HINT: &str = "use a cgroup v2 directory that is delegated to your user, or auto";

/// Checks that the base is a cgroup. In a plain directory, everything would seem to work: regular
/// files would be created. If the base is missing but its parent is a cgroup, it is created,
/// because a cgroup that the user created is lost in a reboot.
fn check(root: &Path) -> Result<(), CgroupError> {
    match is_cgroup(root) {
        Ok(true) if root.is_dir() => Ok(()),
        Ok(true) => Err(failed(root, format_args!("is a file: {HINT}"))),
        Ok(false) => Err(failed(root, format_args!("is not a cgroup v2 directory: {HINT}"))),
        Err(nix::errno::Errno::ENOENT)
            if root.parent().is_some_and(|above| is_cgroup(above) == Ok(true)) =>
        {
            super::make(root)
        }
        Err(e) => Err(failed(root, format_args!("could not be accessed: {}: {HINT}", e.desc()))),
    }
}

/// Fails if the cgroup contains processes, because it could not have limited children then.
fn refuse_processes(root: &Path) -> Result<(), CgroupError> {
    let list = read(root, "cgroup.procs")?;
    if list.trim().is_empty() {
        return Ok(());
    }
    let who = match auto::is_in(root) {
        Ok(true) => "it contains the daemon itself".to_owned(),
        _ => format!(
            "it contains processes ({})",
            list.split_whitespace().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(failed(
        root,
        format_args!(
            "{who}, and a cgroup with processes cannot have limited children: use a sibling of it, or auto"
        ),
    ))
}

/// Moves the processes of a cgroup that is to be divided into a child named `daemon`.
pub(super) fn empty(dir: &Path) -> Result<(), CgroupError> {
    let inner = dir.join("daemon");
    let procs = inner.join("cgroup.procs");
    loop {
        let list = read(dir, "cgroup.procs")?;
        if list.trim().is_empty() {
            return Ok(());
        }
        super::make(&inner)?;
        for pid in list.split_whitespace() {
            match fs::write(&procs, pid) {
                // The process has ended in the meantime.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other.map_err(io_failed(
                    &procs,
                    "could not move the processes of the parent cgroup",
                ))?,
            }
        }
    }
}

/// Returns the process limit of a job: half of the lowest limit set by the kernel or a parent
/// cgroup.
pub(super) fn half_of_processes(job: &Path) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let above = job.ancestors().skip(1).filter_map(|dir| number(&dir.join("pids.max")));
    let kernel = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    above
        .chain(kernel.iter().filter_map(|path| number(Path::new(path))))
        .min()
        .map(|least| (least / 2).max(1))
}

fn read(dir: &Path, name: &str) -> Result<String, CgroupError> {
    let path = dir.join(name);
    fs::read_to_string(&path)
        .map_err(|e: io::Error| failed(&path, format_args!("could not be read: {}", reason(&e))))
}
