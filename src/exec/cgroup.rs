//! The cgroups of jobs and steps below `SLOTD_CGROUP_BASE`: memory and CPU limits, usage, and
//! killing.
//!
//! ```text
//! <base>/job_12               memory.max, memory.swap.max, cpu.max, cpu.weight, cpuset.cpus, pids.max, io.weight of the job
//! <base>/job_12/step_batch    the batch script and its children; memory.oom.group if an OOM kill is to kill the whole step
//! <base>/job_12/step_0        the tasks of an srun; memory.max if the step has its own --mem
//! <base>/job_12/step_batch/…  see `managed`: steps of a manager that have a memory limit
//! ```
//!
//! Only cgroup v2 is supported. The kernel does the work: the daemon creates the cgroups and the
//! tasks join them. Watchers stay outside, so that they survive an OOM kill and report it.
//!
//! cgroups-rs writes `memory.max`, `memory.swap.max`, `cpu.max`, `cpu.weight`, `cpuset.cpus` and
//! `pids.max`, freezes and kills. This module does the rest:
//!
//! * creating and removing cgroups and enabling controllers, because the crate ignores errors of
//!   `cgroup.subtree_control`;
//! * clearing `cpuset.cpus`, because the crate writes nothing for an empty list;
//! * `io.weight` and `memory.oom.group`, which the crate does not support;
//! * reading `cgroup.events`, `memory.events`, `memory.stat` and `cpu.stat`: the crate does not
//!   support the first two, and returns zeros if it cannot read the others.

use crate::affinity;
use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::cpuset::CpuSetController;
use cgroups_rs::fs::freezer::FreezerController;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, ControllIdentifier, Controller, MaxValue, Subsystem};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use slotd_model::StepId;
use slotd_model::tres::Allocation;
use slotd_sys::system::reason;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

mod auto;
mod base;
mod hierarchy;
mod managed;

pub use base::{CgroupBase, MaxProcesses, Place, Rules};
pub use managed::ManagedSteps;

/// The period of `cpu.max` in microseconds. This is the kernel's default.
const PERIOD_US: u64 = 100_000;

/// `cpu.weight` per CPU of a job. This is the kernel's default for a cgroup.
const CPU_WEIGHT: u32 = 100;

/// The highest `cpu.weight` and `io.weight`.
const MAX_WEIGHT: u32 = 10_000;

/// A failed operation on a cgroup, with its path and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cgroup {}: {why}", path.display())]
pub struct CgroupError {
    path: PathBuf,
    why: String,
}

fn failed(path: &Path, why: impl fmt::Display) -> CgroupError {
    CgroupError { path: path.to_owned(), why: why.to_string() }
}

/// Returns an error for a limit that the kernel refused.
fn refused<'a>(
    dir: &'a Path,
    file: &'a str,
    value: impl fmt::Display + 'a,
) -> impl FnOnce(cgroups_rs::fs::error::Error) -> CgroupError + 'a {
    move |e| {
        let cause = std::error::Error::source(&e).and_then(|cause| cause.downcast_ref());
        let why = cause.map_or_else(|| e.to_string(), reason);
        failed(dir, format_args!("could not set {file} to {value}: {why}"))
    }
}

fn io_failed<'a>(path: &'a Path, doing: &'a str) -> impl FnOnce(io::Error) -> CgroupError + 'a {
    move |e| failed(path, format_args!("{doing}: {}", reason(&e)))
}

/// Creates a directory unless it exists.
fn make(dir: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(io_failed(dir, "could not be created")(e))
        }
        _ => Ok(()),
    }
}

/// Enables a controller for the children. Writes one controller at a time, because the kernel
/// rejects the whole write if it rejects one of them.
fn enable(dir: &Path, name: &str) -> Result<(), CgroupError> {
    fs::write(dir.join("cgroup.subtree_control"), format!("+{name}")).map_err(|e| {
        failed(dir, format_args!("could not enable the {name} controller: {}", reason(&e)))
    })
}

/// A job's cgroup. Dropping it changes nothing.
#[derive(Debug)]
pub struct JobCgroup {
    dir: PathBuf,
    /// Do not clone it: a clone would lose the hierarchy.
    handle: Cgroup,
    /// Counts from before this run of the job.
    past_ooms: u64,
    past_limit_ooms: u64,
}

impl JobCgroup {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the cgroup at this path, which need not exist.
    pub fn at(dir: PathBuf) -> JobCgroup {
        let handle = hierarchy::open(&dir);
        JobCgroup { dir, handle, past_ooms: 0, past_limit_ooms: 0 }
    }

    /// Excludes the OOM kills up to now, which belong to earlier runs.
    fn reset_counts(self) -> JobCgroup {
        JobCgroup {
            past_ooms: oom_kills(&self.dir),
            past_limit_ooms: limit_ooms(&self.dir),
            ..self
        }
    }

    fn limit(&self, alloc: &Allocation, rules: &Rules) -> Result<(), CgroupError> {
        let me = &self.dir;
        let memory: &MemController = self.controller("memory")?;
        set_memory(&self.dir, memory, alloc.tres.mem_mb)?;
        // The file is missing if the kernel does not account swap. Then there is nothing to limit.
        if self.has("memory.swap.max") {
            memory.set_memswap_limit(0).map_err(refused(me, "memory.swap.max", 0))?;
        }
        let cpu: &CpuController = self.controller("cpu")?;
        let quota = i64::from(alloc.tres.cpus) * PERIOD_US as i64;
        cpu.set_cfs_quota_and_period(Some(quota), Some(PERIOD_US))
            .map_err(refused(me, "cpu.max", quota))?;
        // The weight decides when jobs compete for a CPU. It applies to all CPUs of a job together,
        // so scale it with their number.
        let weight = CPU_WEIGHT.saturating_mul(alloc.tres.cpus.max(1)).min(MAX_WEIGHT);
        cpu.set_shares(weight.into()).map_err(refused(me, "cpu.weight", weight))?;
        if self.has("cpuset.cpus") {
            // `SLOTD_CPUS` may promise more CPUs than exist. In that case allow all CPUs, even if
            // the job had fewer before.
            let held = affinity::may_use(&alloc.cpu_ids);
            let cpus: Vec<String> =
                alloc.cpu_ids.iter().filter(|_| held).map(u32::to_string).collect();
            let cpus = cpus.join(",");
            if cpus.is_empty() {
                set(me, "cpuset.cpus", "")?;
            } else {
                let cpuset: &CpuSetController = self.controller("cpuset")?;
                cpuset.set_cpus(&cpus).map_err(refused(me, "cpuset.cpus", &cpus))?;
            }
        }
        let most = match rules.max_processes {
            MaxProcesses::Number(most) => Some(u64::from(most)),
            MaxProcesses::Half if self.has("pids.max") => base::half_of_processes(&self.dir),
            MaxProcesses::Half | MaxProcesses::Unlimited => None,
        };
        if let Some(most) = most {
            let value = MaxValue::Value(i64::try_from(most).unwrap_or(i64::MAX));
            let pids: &PidController = self.controller("pids")?;
            pids.set_pid_max(value).map_err(refused(me, "pids.max", most))?;
        }
        if let Some(weight) = rules.io_weight {
            let weight = weight.saturating_mul(alloc.tres.cpus.max(1)).min(MAX_WEIGHT);
            set(me, "io.weight", &weight.to_string())?;
        }
        enable(&self.dir, "memory")
    }

    fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    fn controller<'a, T>(&'a self, name: &str) -> Result<&'a T, CgroupError>
    where
        &'a T: From<&'a Subsystem>,
        T: Controller + ControllIdentifier,
    {
        controller(&self.handle, &self.dir, name)
    }

    /// Creates the cgroup of a step, for `LaunchSpec::cgroup`. `mem_mb` is the step's memory limit,
    /// if it is lower than the job's. With `oom_group`, an OOM kill kills the whole step.
    ///
    /// # Errors
    /// Fails if the cgroup cannot be created or the limit is refused.
    pub fn create_step(
        &self,
        step: StepId,
        mem_mb: Option<u64>,
        oom_group: bool,
    ) -> Result<PathBuf, CgroupError> {
        let cgroup = self.step(step);
        make(&cgroup.dir)?;
        if let Some(mem_mb) = mem_mb {
            let handle = cgroup.handle();
            set_memory(&cgroup.dir, controller(&handle, &cgroup.dir, "memory")?, mem_mb)?;
        }
        if oom_group {
            set(&cgroup.dir, "memory.oom.group", "1")?;
        }
        Ok(cgroup.dir)
    }

    /// Returns the cgroup of a step, which need not exist.
    pub fn step(&self, step: StepId) -> StepCgroup {
        StepCgroup::at(self.dir.join(step_name(step)))
    }

    /// Returns the number of processes OOM-killed in this run; 0 if it cannot be read.
    pub fn oom_kills(&self) -> u64 {
        oom_kills(&self.dir).saturating_sub(self.past_ooms)
    }

    /// Returns how often the job as a whole, rather than one of its steps, exceeded its memory
    /// limit.
    pub fn limit_ooms(&self) -> u64 {
        limit_ooms(&self.dir).saturating_sub(self.past_limit_ooms)
    }

    /// Kills all processes in it. Returns false if the kernel has no `cgroup.kill` (before 5.14).
    pub fn kill(&self) -> bool {
        self.handle.kill().is_ok()
    }

    /// Removes it and the cgroups of its steps. Returns false if it is still in use: a killed
    /// process leaves its cgroup only when it is reaped.
    pub fn remove(&self) -> bool {
        remove(&self.dir)
    }

    /// Waits until no process is in it.
    ///
    /// # Errors
    /// Fails if the cgroup no longer exists.
    pub async fn emptied(&self) -> io::Result<()> {
        let path = self.dir.join("cgroup.events");
        // The kernel signals changes of this file as exceptional conditions (`POLLPRI`).
        // SAFETY: the file is owned by the AsyncFd and stays open as long as it lives.
        let events =
            unsafe { AsyncFd::register_with_interest(fs::File::open(&path)?, Interest::PRIORITY) }?;
        loop {
            if parse_key(&fs::read_to_string(&path)?, "populated") == Some(0) {
                return Ok(());
            }
            events.ready(Interest::PRIORITY).await?.clear_ready();
        }
    }
}

/// A step's cgroup, as its watcher sees it. Dropping it changes nothing.
#[derive(Debug)]
pub struct StepCgroup {
    dir: PathBuf,
    /// Counts from before the step.
    past_ooms: u64,
    past_limit_ooms: u64,
}

impl StepCgroup {
    /// Counts OOM kills from now on.
    pub(super) fn at(dir: PathBuf) -> Self {
        let past_ooms = managed::own_oom_kills(&dir);
        let past_limit_ooms = dir.parent().map_or(0, limit_ooms);
        StepCgroup { dir, past_ooms, past_limit_ooms }
    }

    fn handle(&self) -> Cgroup {
        hierarchy::open(&self.dir)
    }

    /// Returns the number of OOM-killed processes of the step. Limited steps of a manager in it have
    /// counts of their own.
    pub(super) fn oom_kills(&self) -> u64 {
        managed::own_oom_kills(&self.dir).saturating_sub(self.past_ooms)
    }

    /// Returns whether the job as a whole exceeded its memory limit.
    pub(super) fn job_ran_out(&self) -> bool {
        self.dir.parent().map_or(0, limit_ooms) > self.past_limit_ooms
    }

    /// Returns the user and system CPU time of all its processes so far, in microseconds. It
    /// includes processes that were never waited for.
    pub(super) fn cpu_times(&self) -> Option<(u64, u64)> {
        let stat = fs::read_to_string(self.dir.join("cpu.stat")).ok()?;
        Some((parse_key(&stat, "user_usec")?, parse_key(&stat, "system_usec")?))
    }

    /// Returns the memory of its processes in KiB: anonymous and shared memory, and the mapped
    /// parts of files. The rest of the page cache does not count. `None` if it cannot be read.
    pub(super) fn memory_kb(&self) -> Option<u64> {
        parse_memory_kb(&fs::read_to_string(self.dir.join("memory.stat")).ok()?)
    }

    /// Freezes or thaws all processes in it, including any that are being forked. Returns false if
    /// the kernel does not support it (before 5.2).
    pub(super) fn freeze(&self, is_frozen: bool) -> bool {
        let handle = self.handle();
        let freezer: Option<&FreezerController> = handle.controller_of();
        let set = if is_frozen { FreezerController::freeze } else { FreezerController::thaw };
        freezer.is_some_and(|freezer| set(freezer).is_ok())
    }

    /// Kills all processes in it, including any that are being forked. Does nothing if the kernel
    /// has no `cgroup.kill` (before 5.14).
    pub fn kill(&self) {
        let _ = self.handle().kill();
    }

    /// Removes it. Returns false if it is still in use.
    pub(super) fn remove(&self) -> bool {
        remove(&self.dir)
    }
}

fn step_name(step: StepId) -> String {
    format!("step_{step}")
}

fn controller<'a, T>(handle: &'a Cgroup, dir: &Path, name: &str) -> Result<&'a T, CgroupError>
where
    &'a T: From<&'a Subsystem>,
    T: Controller + ControllIdentifier,
{
    handle.controller_of().ok_or_else(|| failed(dir, format_args!("has no {name} controller")))
}

fn set_memory(dir: &Path, memory: &MemController, mem_mb: u64) -> Result<(), CgroupError> {
    let bytes = i64::try_from(mem_mb.saturating_mul(1 << 20)).unwrap_or(i64::MAX);
    memory.set_limit(bytes).map_err(refused(dir, "memory.max", bytes))
}

/// Writes a control file, and never creates a missing one. Ends the line, so that an empty value is
/// written too.
fn set(dir: &Path, file: &str, value: &str) -> Result<(), CgroupError> {
    let opened = fs::OpenOptions::new().write(true).open(dir.join(file));
    opened
        .and_then(|mut file| io::Write::write_all(&mut file, format!("{value}\n").as_bytes()))
        .map_err(|e| failed(dir, format_args!("could not set {file} to {value}: {}", reason(&e))))
}

fn is_cgroup(dir: &Path) -> nix::Result<bool> {
    statfs(dir).map(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Removes a cgroup and those below it. Returns false if it is still in use. Deletes nothing below a
/// directory that is no cgroup.
fn remove(dir: &Path) -> bool {
    let below = (is_cgroup(dir) == Ok(true)).then(|| fs::read_dir(dir).ok()).flatten();
    for entry in below.into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|w| w == word)
}

/// Returns the number that follows a key in a file of `key number` lines.
fn parse_key(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns a counter from `memory.events` or a similar file; 0 if it is missing.
fn event(dir: &Path, file: &str, key: &str) -> u64 {
    parse_key(&fs::read_to_string(dir.join(file)).unwrap_or_default(), key).unwrap_or(0)
}

fn parse_memory_kb(stat: &str) -> Option<u64> {
    // `file_mapped` includes mapped shared memory.
    let of_files = parse_key(stat, "shmem")?.max(parse_key(stat, "file_mapped")?);
    Some(parse_key(stat, "anon")?.saturating_add(of_files) / 1024)
}

fn oom_kills(dir: &Path) -> u64 {
    event(dir, "memory.events", "oom_kill")
}

/// Returns how often this cgroup itself, not a descendant, reached its limit and triggered an OOM
/// kill.
fn limit_ooms(dir: &Path) -> u64 {
    event(dir, "memory.events.local", "oom")
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::JobId;
    use slotd_model::tres::Tres;
    use std::os::unix::ffi::OsStrExt;

    const RULES: Rules =
        Rules { max_processes: MaxProcesses::Number(1000), io_weight: None, kill_step: false };

    fn base(path: impl Into<PathBuf>) -> CgroupBase {
        CgroupBase::new(Place::Path(path.into()), RULES)
    }

    fn alloc() -> Allocation {
        Allocation {
            tres: Tres { cpus: 1, mem_mb: 64, ..Tres::ZERO },
            cpu_ids: vec![0],
            ..Allocation::default()
        }
    }

    #[test]
    fn a_plain_directory_is_rejected_and_stays_empty() {
        let dir = tempfile::tempdir().unwrap();
        let error = base(dir.path()).create_job(JobId(1), &alloc()).unwrap_err();
        let text = error.to_string();
        let wanted = format!(
            "cgroup {}: is not a cgroup v2 directory: use a cgroup v2 directory that is delegated to your user, or auto",
            dir.path().display()
        );
        assert_eq!(text, wanted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_error_names_a_missing_base() {
        let error = base("/no/such/base").create_job(JobId(1), &alloc()).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "cgroup /no/such/base: could not be accessed: No such file or directory: "
            ),
            "{error}"
        );
    }

    #[test]
    fn keys_are_whole_words() {
        let events = "low 0\noom 3\noom_kill 5\noom_group_kill 1\n";
        assert_eq!(parse_key(events, "oom_kill"), Some(5));
        assert_eq!(parse_key(events, "oom"), Some(3));
        assert_eq!(parse_key(events, "kill"), None);
    }

    #[test]
    fn unmapped_page_cache_does_not_count_as_memory() {
        let stat = "anon 2097152\nfile 9999999999\nfile_mapped 1048576\nshmem 524288\n";
        assert_eq!(parse_memory_kb(stat), Some(3072));
        assert_eq!(parse_memory_kb("anon 1\n"), None);
    }

    #[test]
    fn usage_is_zero_if_nothing_can_be_read() {
        let cgroup = base("/no/such/base").job(JobId(1)).unwrap();
        assert_eq!((cgroup.oom_kills(), cgroup.limit_ooms()), (0, 0));
        let step = cgroup.step(StepId::Batch);
        assert_eq!((step.cpu_times(), step.oom_kills(), step.job_ran_out()), (None, 0, false));
        step.kill();
        assert!(cgroup.remove());
    }

    /// Uses plain files in place of the kernel's, and checks their contents.
    #[test]
    fn limits_are_written_in_the_kernels_format() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join(std::ffi::OsStr::from_bytes(b"not UTF-8 \xff"));
        fs::create_dir(&dir).unwrap();
        for file in ["memory.swap.max", "cpuset.cpus", "cgroup.freeze", "cgroup.kill"] {
            fs::write(dir.join(file), "").unwrap();
        }
        fs::write(dir.join("cpu.max"), "max 100000").unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let own = slotd_sys::cpus::probe().unwrap().cpus().into_iter().next().unwrap();
        let job = JobCgroup::at(dir.clone());
        let mut alloc = alloc();
        (alloc.tres.cpus, alloc.cpu_ids) = (2, vec![own]);
        job.limit(&alloc, &RULES).unwrap();
        assert_eq!(
            (read("cpu.max").as_str(), read("cpu.weight").as_str()),
            ("200000 100000", "200")
        );
        assert_eq!((read("memory.max"), read("pids.max")), ((64 << 20).to_string(), "1000".into()));
        assert_eq!((read("memory.swap.max"), read("cpuset.cpus")), ("0".into(), own.to_string()));
        // With CPUs that do not exist, all CPUs are allowed.
        alloc.cpu_ids.push(1_000_000);
        job.limit(&alloc, &RULES).unwrap();
        assert_eq!(read("cpuset.cpus").trim(), "");
        let step = StepCgroup::at(dir.clone());
        assert!(step.freeze(true));
        assert_eq!(read("cgroup.freeze"), "1");
        assert!(step.freeze(false));
        assert_eq!(read("cgroup.freeze"), "0");
        step.kill();
        assert_eq!(read("cgroup.kill"), "1");
        fs::remove_file(dir.join("cgroup.kill")).unwrap();
        step.kill();
        assert!(!job.kill() && !dir.join("cgroup.kill").exists(), "before Linux 5.14");
        fs::remove_file(dir.join("cpu.weight")).unwrap();
        fs::create_dir(dir.join("cpu.weight")).unwrap();
        let error = job.limit(&alloc, &RULES).unwrap_err().to_string();
        assert!(error.ends_with(": could not set cpu.weight to 200: Is a directory"), "{error}");
    }

    /// Runs only if `SLOTD_TEST_CGROUP` names a delegated cgroup, for instance in a guest with
    /// `systemd-run --user --scope -p Delegate=yes`.
    #[test]
    fn a_delegated_base_limits_a_job() {
        let Ok(base) = std::env::var("SLOTD_TEST_CGROUP") else {
            eprintln!("skipped: SLOTD_TEST_CGROUP does not name a delegated cgroup");
            return;
        };
        let base = super::tests::base(Path::new(&base).join("unit"));
        let cgroup = base.create_job(JobId(9), &alloc()).unwrap();
        let read = |name: &str| fs::read_to_string(cgroup.dir().join(name)).unwrap();
        assert_eq!(read("memory.max").trim(), (64 << 20).to_string());
        assert_eq!((read("cpu.max").trim(), read("cpu.weight").trim()), ("100000 100000", "100"));
        assert_eq!(read("pids.max").trim(), "1000");
        if cgroup.has("cpuset.cpus") {
            assert_eq!(read("cpuset.cpus").trim(), "0");
        }
        let (hungry, other) = (StepId::Num(0), StepId::Num(1));
        cgroup.create_step(hungry, Some(32), false).unwrap();
        cgroup.create_step(other, None, false).unwrap();
        cgroup.create_step(StepId::Num(2), None, true).unwrap();
        assert_eq!(read("step_0/memory.max").trim(), (32 << 20).to_string());
        assert_eq!(read("step_1/memory.max").trim(), "max");
        assert_eq!(read("step_2/memory.oom.group").trim(), "1");
        let (hungry, other) = (cgroup.step(hungry), cgroup.step(other));
        // Exceed the limit in a single process that joins before it grows.
        let script = "echo 0 >\"$0/cgroup.procs\"; exec python3 -c 'x = bytearray(256 << 20)'";
        let grow = |step: &StepCgroup| {
            let status = std::process::Command::new("sh")
                .args(["-c", script])
                .arg(&step.dir)
                .status()
                .unwrap();
            assert!(!status.success());
        };
        grow(&hungry);
        assert_eq!((hungry.oom_kills(), other.oom_kills(), cgroup.oom_kills()), (1, 0, 1));
        assert!(!hungry.job_ran_out(), "the step's limit is not the job's");
        grow(&other);
        assert_eq!((other.oom_kills(), cgroup.oom_kills()), (1, 2));
        assert!(other.job_ran_out());
        assert!(hungry.cpu_times().is_some_and(|(user, system)| user + system > 0));
        let mut sleeper = std::process::Command::new("sh")
            .args(["-c", "echo 0 >\"$0/cgroup.procs\"; echo; exec sleep 600"])
            .arg(&other.dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(&mut sleeper.stdout.take().unwrap(), &mut [0]).unwrap();
        assert!(!cgroup.remove());
        // A new run starts counting from 0.
        let again = base.create_job(JobId(9), &alloc()).unwrap();
        assert_eq!((again.oom_kills(), again.limit_ooms()), (0, 0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(cgroup.kill());
        sleeper.wait().unwrap();
        runtime.block_on(cgroup.emptied()).unwrap();
        assert!(cgroup.remove());
        assert!(!cgroup.dir().exists());
        fs::remove_dir(base.root().unwrap()).unwrap();
    }
}
