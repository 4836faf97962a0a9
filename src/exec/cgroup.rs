//! The cgroup of a job below `SLOTD_CGROUP_BASE`: limits on memory and CPU time, what was used, and killing.
//!
//! cgroup v2 alone. The kernel does the work, cgroups-rs writes the limits, and what it has no words for
//! (`memory.events`, `memory.oom.group`, enabling controllers one by one with an error each) is read and written
//! here. A step has no cgroup of its own; watchers stay outside, so that they live to tell of an OOM kill.

use crate::model::JobId;
use crate::model::tres::{Tres, Usage};
use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::freezer::FreezerController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::{Cgroup, Hierarchy, Subsystem};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The period of `cpu.max`, microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// What is enabled for the jobs. Both must be: the book's rule is that a failure is said and not passed over.
const CONTROLLERS: [&str; 2] = ["cpu", "memory"];

/// A cgroup could not be used: which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cgroup {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for CgroupError {}

fn failed(path: &Path, why: impl fmt::Display) -> CgroupError {
    CgroupError { path: path.to_owned(), why: why.to_string() }
}

fn io_failed<'a>(path: &'a Path, doing: &'a str) -> impl FnOnce(io::Error) -> CgroupError + 'a {
    move |e| failed(path, format_args!("{doing}: {}", crate::exec::job_files::reason(&e)))
}

/// `SLOTD_CGROUP_BASE`. Nothing is looked at before the first job: a wrong base fails launches, not the daemon (book,
/// "cgroup Setup Fails").
#[derive(Debug, Clone)]
pub struct CgroupBase {
    root: PathBuf,
}

impl CgroupBase {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        CgroupBase { root: root.into() }
    }

    /// Where the job's cgroup is, or would be.
    pub fn job_dir(&self, job: JobId) -> PathBuf {
        self.root.join(format!("job_{job}"))
    }

    /// Makes the cgroup of a job with its limits: `memory.max`, no swap, `cpu.max`, and the job as one in an OOM.
    /// One that is there already (a requeued job, a launch after a crash) is used, limits set anew.
    ///
    /// # Errors
    /// The base is no writable cgroup v2 directory with both controllers, or a limit was refused. The text names the
    /// path and the reason.
    pub fn create_job(&self, job: JobId, tres: &Tres) -> Result<JobCgroup, CgroupError> {
        self.check()?;
        self.enable_controllers()?;
        let dir = self.job_dir(job);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(io_failed(&dir, "could not be made")(e)),
            _ => {}
        }
        let cgroup = self.open_job(job);
        if let Err(e) = cgroup.limit(tres) {
            cgroup.remove();
            return Err(e);
        }
        Ok(cgroup)
    }

    /// The cgroup of a job that another daemon made.
    pub fn open_job(&self, job: JobId) -> JobCgroup {
        let handle = Cgroup::load(Box::new(BaseHierarchy { root: self.root.clone() }), format!("job_{job}"));
        JobCgroup { dir: self.job_dir(job), handle }
    }

    /// On a plain directory everything below would seem to work: files of these names would be made.
    fn check(&self) -> Result<(), CgroupError> {
        let stat = nix::sys::statfs::statfs(&self.root)
            .map_err(|e| failed(&self.root, format_args!("could not be looked at: {}", e.desc())))?;
        if stat.filesystem_type() == nix::sys::statfs::CGROUP2_SUPER_MAGIC {
            Ok(())
        } else {
            Err(failed(&self.root, "is not a cgroup v2 directory"))
        }
    }

    /// One controller a write: the kernel refuses them all where it refuses one.
    fn enable_controllers(&self) -> Result<(), CgroupError> {
        let available = self.read("cgroup.controllers")?;
        let enabled = self.read("cgroup.subtree_control")?;
        for name in CONTROLLERS {
            if !has_word(&available, name) {
                return Err(failed(&self.root, format_args!("the {name} controller is not available here")));
            }
            if has_word(&enabled, name) {
                continue;
            }
            let control = self.root.join("cgroup.subtree_control");
            let enable = || fs::write(&control, format!("+{name}"));
            let result = match enable() {
                // A cgroup with processes cannot have limited children: the daemon itself sits in its unit's cgroup.
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    self.empty()?;
                    enable()
                }
                other => other,
            };
            result.map_err(|e| {
                let reason = crate::exec::job_files::reason(&e);
                failed(&self.root, format_args!("could not enable the {name} controller: {reason}"))
            })?;
        }
        Ok(())
    }

    /// Moves the processes of the base into `<base>/daemon`.
    fn empty(&self) -> Result<(), CgroupError> {
        let inner = self.root.join("daemon");
        match fs::create_dir(&inner) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_failed(&inner, "could not be made")(e));
            }
            _ => {}
        }
        let procs = inner.join("cgroup.procs");
        for pid in self.read("cgroup.procs")?.split_whitespace() {
            match fs::write(&procs, pid) {
                // It has ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other.map_err(io_failed(&procs, "could not take over the daemon's processes"))?,
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<String, CgroupError> {
        let path = self.root.join(name);
        fs::read_to_string(&path).map_err(io_failed(&path, "could not be read"))
    }
}

/// A job's cgroup. Dropping it changes nothing.
#[derive(Debug)]
pub struct JobCgroup {
    dir: PathBuf,
    /// Never cloned: a clone would forget the hierarchy.
    handle: Cgroup,
}

impl JobCgroup {
    /// What `LaunchSpec::cgroup` wants.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn limit(&self, tres: &Tres) -> Result<(), CgroupError> {
        let memory: &MemController =
            self.handle.controller_of().ok_or_else(|| failed(&self.dir, "has no memory controller"))?;
        let cpu: &CpuController =
            self.handle.controller_of().ok_or_else(|| failed(&self.dir, "has no cpu controller"))?;
        let bytes = i64::try_from(tres.mem_mb.saturating_mul(1 << 20)).unwrap_or(i64::MAX);
        memory.set_limit(bytes).map_err(|e| failed(&self.dir, format_args!("could not set memory.max: {e}")))?;
        // Missing where the kernel does not count swap; then there is nothing to limit.
        if self.dir.join("memory.swap.max").exists() {
            memory
                .set_memswap_limit(0)
                .map_err(|e| failed(&self.dir, format_args!("could not set memory.swap.max: {e}")))?;
        }
        let quota = i64::from(tres.cpus) * PERIOD_US as i64;
        cpu.set_cfs_quota_and_period(Some(quota), Some(PERIOD_US))
            .map_err(|e| failed(&self.dir, format_args!("could not set cpu.max: {e}")))?;
        let group = self.dir.join("memory.oom.group");
        fs::write(&group, "1").map_err(io_failed(&group, "could not be written"))
    }

    /// How many processes the kernel has killed for their memory. 0 where it cannot be read.
    pub fn oom_kills(&self) -> u64 {
        oom_kills(&self.dir)
    }

    /// Peak memory and CPU time of all that ever ran in it. Zero where the kernel does not tell.
    pub fn usage(&self) -> Usage {
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let cpu = read("cpu.stat");
        Usage {
            max_rss_kb: read("memory.peak").trim().parse::<u64>().unwrap_or(0) / 1024,
            user_us: parse_key(&cpu, "user_usec").unwrap_or(0),
            system_us: parse_key(&cpu, "system_usec").unwrap_or(0),
        }
    }

    /// Kills every process in it. False where the kernel has no `cgroup.kill` (before 5.14).
    pub fn kill(&self) -> bool {
        self.handle.kill().is_ok()
    }

    /// Removes it. False where it is still in use: a killed process leaves it when it is reaped, so try again shortly
    /// after.
    pub fn remove(&self) -> bool {
        match fs::remove_dir(&self.dir) {
            Ok(()) => true,
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|w| w == word)
}

/// The number after a key in a file of `key number` lines.
fn parse_key(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `oom_kill` of `memory.events`; 0 where there is none.
pub(super) fn oom_kills(dir: &Path) -> u64 {
    let events = fs::read_to_string(dir.join("memory.events")).unwrap_or_default();
    parse_key(&events, "oom_kill").unwrap_or(0)
}

/// The tree below the base, for cgroups-rs: its own hierarchies begin at `/sys/fs/cgroup` and look at nothing else.
#[derive(Debug, Clone)]
struct BaseHierarchy {
    root: PathBuf,
}

impl Hierarchy for BaseHierarchy {
    fn v2(&self) -> bool {
        true
    }

    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn subsystems(&self) -> Vec<Subsystem> {
        let point = || (self.root.clone(), PathBuf::new(), true);
        let (a, b, c) = point();
        // First, since the crate takes whatever is first for questions that need no controller.
        let mut all = vec![Subsystem::Freezer(FreezerController::new(a, b, c))];
        let (a, b, c) = point();
        all.push(Subsystem::Mem(MemController::new(a, b, c)));
        let (a, b, c) = point();
        all.push(Subsystem::Cpu(CpuController::new(a, b, c)));
        all
    }

    fn root_control_group(&self) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), "")
    }

    fn parent_control_group(&self, path: &str) -> Cgroup {
        Cgroup::load(Box::new(self.clone()), Path::new(path).parent().unwrap_or(Path::new("")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRES: Tres = Tres { cpus: 1, mem_mb: 64, gpus: 0 };

    #[test]
    fn a_plain_directory_is_no_base_and_stays_empty() {
        let dir = tempfile::tempdir().unwrap();
        let error = CgroupBase::new(dir.path()).create_job(JobId(1), &TRES).unwrap_err();
        assert_eq!(error.to_string(), format!("cgroup {}: is not a cgroup v2 directory", dir.path().display()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_base_is_named() {
        let error = CgroupBase::new("/no/such/base").create_job(JobId(1), &TRES).unwrap_err();
        assert_eq!(error.to_string(), "cgroup /no/such/base: could not be looked at: No such file or directory");
    }

    #[test]
    fn keys_are_whole_words() {
        let events = "low 0\noom 3\noom_kill 5\noom_group_kill 1\n";
        assert_eq!(parse_key(events, "oom_kill"), Some(5));
        assert_eq!(parse_key(events, "oom"), Some(3));
        assert_eq!(parse_key(events, "kill"), None);
    }

    #[test]
    fn where_nothing_can_be_read_nothing_was_used() {
        let cgroup = CgroupBase::new("/no/such/base").open_job(JobId(1));
        assert_eq!(cgroup.usage(), Usage::default());
        assert_eq!(cgroup.oom_kills(), 0);
        assert!(cgroup.remove());
    }

    /// Runs where a delegated cgroup is named, as in a guest with `systemd-run --user --scope -p Delegate=yes`.
    #[test]
    fn a_delegated_base_limits_a_job() {
        let Ok(base) = std::env::var("SLOTD_TEST_CGROUP") else {
            eprintln!("not tested: SLOTD_TEST_CGROUP names no delegated cgroup");
            return;
        };
        let base = CgroupBase::new(base);
        let cgroup = base.create_job(JobId(9), &TRES).unwrap();
        let read = |name: &str| fs::read_to_string(cgroup.dir().join(name)).unwrap();
        assert_eq!(read("memory.max").trim(), (64 << 20).to_string());
        assert_eq!(read("cpu.max").trim(), "100000 100000");
        assert_eq!(read("memory.oom.group").trim(), "1");
        // More than it may have, in one process that joins before it grows.
        let script = "echo 0 >\"$0/cgroup.procs\"; exec python3 -c 'x = bytearray(256 << 20)'";
        let status = std::process::Command::new("sh").args(["-c", script]).arg(cgroup.dir()).status().unwrap();
        assert!(!status.success());
        assert!(cgroup.oom_kills() > 0);
        assert!(cgroup.usage().user_us + cgroup.usage().system_us > 0);
        let mut sleeper = std::process::Command::new("sh")
            .args(["-c", "echo 0 >\"$0/cgroup.procs\"; echo; exec sleep 600"])
            .arg(cgroup.dir())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(&mut sleeper.stdout.take().unwrap(), &mut [0]).unwrap();
        assert!(!cgroup.remove());
        assert!(cgroup.kill());
        sleeper.wait().unwrap();
        assert!(cgroup.remove());
        assert!(!cgroup.dir().exists());
    }
}
