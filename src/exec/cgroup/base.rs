//! `SLOTD_CGROUP_BASE`: making it ready for the cgroups of jobs.

use super::{CgroupError, JobCgroup, auto, failed, has_word, io_failed};
use crate::model::JobId;
use crate::model::tres::Allocation;
use crate::sys::system::reason;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `SLOTD_CGROUP_BASE` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// What the daemon was given to divide.
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

/// How many processes a job may have, threads counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxProcesses {
    /// Half of what the host and the cgroups above allow: whatever a job forks, there is room for
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

/// What the cgroups of jobs have beside memory and CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub max_processes: MaxProcesses,
    /// `io.weight` for each CPU of the job.
    pub io_weight: Option<u32>,
    /// Out of memory, the whole step is killed and not one process of it (Slurm's `OOMKillStep`).
    pub kill_step: bool,
}

impl Rules {
    /// The controllers that must be there: limits that cannot be set fail the launch, and are never
    /// left out in silence.
    fn needed(&self) -> impl Iterator<Item = &'static str> {
        let io = self.io_weight.map(|_| "io");
        let pids = matches!(self.max_processes, MaxProcesses::Number(_)).then_some("pids");
        ["cpu", "memory"].into_iter().chain(io).chain(pids)
    }
}

/// Those that are used where they are there, with what is missing without them.
const USEFUL: [(&str, &str); 2] = [
    ("cpuset", "jobs are not held to their CPUs, only to as much CPU time"),
    ("pids", "a job may have as many processes as its user"),
];

/// `SLOTD_CGROUP_BASE`. A wrong one does not keep the daemon from starting: what runs goes on, and
/// nothing is taken.
#[derive(Debug)]
pub struct CgroupBase {
    place: Place,
    /// What `auto` has found.
    found: OnceLock<PathBuf>,
    rules: Rules,
    /// The last look found that no cgroup of a job can be made.
    is_bad: AtomicBool,
}

impl CgroupBase {
    pub fn new(place: Place, rules: Rules) -> Self {
        CgroupBase { place, found: OnceLock::new(), rules, is_bad: AtomicBool::new(false) }
    }

    /// The directory, where one was found.
    ///
    /// # Errors
    /// What `auto` lacks.
    pub fn root(&self) -> Result<&Path, CgroupError> {
        match (&self.place, self.found.get()) {
            (Place::Path(root), _) | (Place::Auto, Some(root)) => Ok(root),
            (Place::Auto, None) => {
                let found = auto::find()?;
                Ok(self.found.get_or_init(|| found))
            }
        }
    }

    /// The cgroup of a job, be it there or not.
    ///
    /// # Errors
    /// As of [`CgroupBase::root`].
    pub fn job(&self, job: JobId) -> Result<JobCgroup, CgroupError> {
        Ok(JobCgroup::at(self.root()?.join(format!("job_{job}"))))
    }

    /// Whether cgroups of jobs can be made in it; it is made ready for them.
    ///
    /// # Errors
    /// It is no writable cgroup v2 directory with the controllers that are needed. The text names
    /// the path and the reason.
    pub fn probe(&self) -> Result<(), CgroupError> {
        let ready = self.root().and_then(|root| {
            if self.place == Place::Auto && !root.exists() {
                // The unit of the jobs was started again.
                auto::find()?;
            }
            self.make_ready(root)
        });
        self.is_bad.store(ready.is_err(), Ordering::Relaxed);
        ready
    }

    /// Whether the last look found that it cannot be used.
    pub fn is_bad(&self) -> bool {
        self.is_bad.load(Ordering::Relaxed)
    }

    /// Whether a step dies as a whole for its memory.
    pub fn kills_steps(&self) -> bool {
        self.rules.kill_step
    }

    /// The controllers that the base lacks and what comes of it, for the log.
    pub fn lacks(&self) -> Vec<String> {
        let enabled =
            self.root().and_then(|root| read(root, "cgroup.subtree_control")).unwrap_or_default();
        let lacking = USEFUL.iter().filter(|(name, _)| !has_word(&enabled, name));
        lacking.map(|(name, without)| format!("without the {name} controller {without}")).collect()
    }

    /// Makes the cgroup of a job with its limits. One that is there already (a requeued job, a
    /// launch after a crash) is used, limits set anew.
    ///
    /// # Errors
    /// The base cannot be used, or a limit was refused. The text names the path and the reason.
    pub fn create_job(&self, job: JobId, alloc: &Allocation) -> Result<JobCgroup, CgroupError> {
        self.probe()?;
        let earlier = self.job(job)?;
        // What an earlier run used and suffered is not this one's.
        earlier.remove();
        super::make(earlier.dir())?;
        let cgroup = earlier.begin_anew();
        if let Err(e) = cgroup.limit(alloc, &self.rules) {
            cgroup.remove();
            return Err(e);
        }
        Ok(cgroup)
    }

    /// Gives the cgroup of a job other limits.
    ///
    /// # Errors
    /// The kernel refuses one of them, or the cgroup is gone. The text names it.
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
        writable.map_err(|e| failed(root, format_args!("cannot be written: {}: {MEND}", e.desc())))
    }

    fn enable_controllers(&self, root: &Path, enabled: &str) -> Result<(), CgroupError> {
        let available = read(root, "cgroup.controllers")?;
        // Whoever made the base may not have enabled them for it. Not where processes are: see
        // below.
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
                format_args!("the {name} controller is not available here: {MEND}"),
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
        // Before any is enabled: with the cpu controller the kernel would make the base a threaded
        // one, and refuse memory for good.
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

const MEND: &str = "name a cgroup v2 directory that your user may divide, or auto";

/// On a plain directory everything below would seem to work: files of these names would be made.
/// Where the base is missing and the directory above it is a cgroup, it is made: what a user may
/// make himself is gone after a reboot.
fn check(root: &Path) -> Result<(), CgroupError> {
    let is_cgroup =
        |dir: &Path| statfs(dir).map(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
    match is_cgroup(root) {
        Ok(true) if root.is_dir() => Ok(()),
        Ok(true) => Err(failed(root, format_args!("is a file: {MEND}"))),
        Ok(false) => Err(failed(root, format_args!("is not a cgroup v2 directory: {MEND}"))),
        Err(nix::errno::Errno::ENOENT)
            if root.parent().is_some_and(|above| is_cgroup(above) == Ok(true)) =>
        {
            super::make(root)
        }
        Err(e) => Err(failed(root, format_args!("could not be looked at: {}: {MEND}", e.desc()))),
    }
}

/// A cgroup that has processes cannot have limited children.
fn refuse_processes(root: &Path) -> Result<(), CgroupError> {
    let list = read(root, "cgroup.procs")?;
    if list.trim().is_empty() {
        return Ok(());
    }
    let who = match auto::is_in(root) {
        Ok(true) => "the daemon itself is".to_owned(),
        _ => format!("processes are ({})", list.split_whitespace().collect::<Vec<_>>().join(", ")),
    };
    Err(failed(
        root,
        format_args!(
            "{who} in it, and a cgroup with processes has no limited children: name one beside it, or auto"
        ),
    ))
}

/// Makes way in a cgroup that is to be divided: its processes move to `daemon` below it.
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
                // It has ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => {
                    other.map_err(io_failed(&procs, "could not take over the processes above"))?
                }
            }
        }
    }
}

/// How many processes there may be at most in a job: half of the least that the kernel or a cgroup
/// above allows.
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
