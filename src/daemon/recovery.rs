//! Recovers the queue that an earlier daemon left.

use crate::actors::reader::ended_facts;
use crate::actors::scheduler::clients_to_expect;
use crate::daemon::error::{DaemonError, failed, unusable};
use crate::daemon::listener;
use crate::daemon::node_order;
use crate::daemon::reboot;
use slotd_exec::job_dirs;
use slotd_model::change::Change;
use slotd_model::gpu::Gpu;
use slotd_model::job::ClientProcess;
use slotd_model::notice::Notice;
use slotd_model::{Job, JobId, JobState, Timestamp};
use slotd_sched::{Core, Cx, FoundJob, Outbox};
use slotd_store::upkeep::{self, fill_log};
use slotd_store::{LiveJobs, Reader, Store};
use slotd_sys::paths::Paths;
use slotd_sys::{aside, clock, user};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The core with the queue from the database, and everything that is still running.
pub struct Recovered {
    pub core: Core,
    /// Jobs whose processes may be alive.
    pub adopted: Vec<Job>,
    /// Clients that hold allocations.
    pub clients: Vec<(JobId, ClientProcess)>,
    pub daemon_start: Timestamp,
    /// The result of a reboot, to be committed before any other decision.
    pub opening: Outbox,
    /// Notifications that were not sent.
    pub untold: Vec<(u64, Notice)>,
}

/// The number of earlier jobs from which run times are predicted for jobs without a time limit.
const REMEMBERED: usize = 1000;

/// The name of the work of [`launched`].
const LOOK: &str = "looking for launched jobs";

/// The number of found records to commit at once.
const BATCH: usize = 1000;

/// The name of an older database that is kept beside the database, without its number.
const KEPT: &str = "state.db.replaced";

/// The IDs of the job directories, and those of the records in the database.
struct Numbers {
    of_directories: Vec<JobId>,
    /// Sorted.
    of_records: Vec<JobId>,
}

impl Numbers {
    fn read(paths: &Paths) -> Result<Numbers, DaemonError> {
        let mut reader = Reader::open(&paths.db()).map_err(unusable(paths))?;
        let of_records = reader.numbers().map_err(unusable(paths))?;
        let of_directories = job_dirs::tidy(&paths.jobs_dir())
            .map_err(failed(paths.jobs_dir().display().to_string()))?;
        Ok(Numbers { of_directories, of_records })
    }
}

/// Returns those of these jobs that were launched, except in the run that the database has as
/// running.
async fn launched(
    paths: &Paths,
    jobs: Vec<(JobId, Option<u32>)>,
) -> Result<Vec<JobId>, DaemonError> {
    let dir = paths.jobs_dir();
    let look = move || -> io::Result<Vec<JobId>> {
        let was_launched = job_dirs::launched(&dir)?;
        let found = jobs.into_iter().filter(|(id, running)| was_launched(*id, *running));
        Ok(found.map(|(id, _)| id).collect())
    };
    let seen = aside::run(LOOK, aside::LONG, look).await.map_err(failed(LOOK))?;
    seen.map_err(failed(paths.jobs_dir().display().to_string()))
}

/// Adds launched jobs that the database lacks or has as pending or in an earlier run, which means
/// that it was lost or replaced by an older copy. Returns true if there were any; they are in the
/// database now.
async fn take_in_found(
    store: &mut Store,
    paths: &Paths,
    jobs: &[Box<Job>],
    numbers: &Numbers,
    now: Timestamp,
) -> Result<bool, DaemonError> {
    let is_known = |id: &&JobId| numbers.of_records.binary_search(id).is_ok();
    let (known, lost): (Vec<JobId>, Vec<JobId>) = numbers.of_directories.iter().partition(is_known);
    let live = known.into_iter().filter_map(|id| {
        let job = &jobs[jobs.binary_search_by_key(&id, |job| job.id).ok()?];
        let running = job.run.state.is_active().then_some(job.run.restarts);
        may_have_run_since(job).then_some((id, running))
    });
    let launched = launched(paths, live.collect()).await?;
    if lost.is_empty() && launched.is_empty() {
        return Ok(false);
    }
    let mut found: Vec<FoundJob> =
        lost.into_iter().chain(launched).map(|id| look(paths, id)).collect();
    found.sort_unstable_by_key(|found| found.id);
    let records = jobs.iter().filter(|job| may_have_run_since(job));
    let records: BTreeMap<JobId, &Job> = records.map(|job| (job.id, &**job)).collect();
    let (uid, _) = user::current();
    let changes = slotd_sched::found_changes(found, &records, (&user::user_name(uid), uid), now);
    if changes.is_empty() {
        return Ok(false);
    }
    let count = changes.iter().filter(|change| matches!(change, Change::Insert { .. })).count();
    log::warn!(
        "the database {} lacks jobs that have a job directory, recovering {count} of them from there. Is it an old copy?",
        paths.db().display()
    );
    for batch in changes.chunks(BATCH) {
        for result in store.commit(&[batch.to_vec()]) {
            result.map_err(failed("cannot recover jobs that the database lacks"))?;
        }
    }
    Ok(true)
}

/// Returns whether the job may have run since the database was copied: it was pending, or its script
/// ran and may have been requeued.
fn may_have_run_since(job: &Job) -> bool {
    let state = job.run.state;
    state == JobState::Pending || (state.is_active() && job.own_step_id().is_some())
}

fn look(paths: &Paths, id: JobId) -> FoundJob {
    let dir = paths.job_dir(id);
    let job_dirs::Found { job, steps } = job_dirs::look(&dir);
    FoundJob { id, job, steps, script: job_dirs::script(&dir) }
}

/// The jobs from the database and the job directories.
pub struct Queue {
    jobs: LiveJobs,
    /// The first ID that no earlier job had, except those in the database.
    first_free: JobId,
    daemon_start: Timestamp,
}

impl Queue {
    /// Returns the GPUs of running jobs with their IDs there, followed by those that the previous
    /// daemon stored. Allocations from a daemon that stored no UUIDs are completed from the latter.
    pub fn known_gpus(&mut self, kept: Vec<Gpu>) -> Vec<Gpu> {
        let boot = clock::boot_id();
        let mut known: BTreeMap<u32, Gpu> = BTreeMap::new();
        let runs = |job: &&mut Box<Job>| {
            job.run.state.is_active()
                && job.run.clock.as_deref().is_none_or(|clock| !clock.boot.differs(boot))
        };
        for alloc in self.jobs.iter_mut().filter(runs).filter_map(|job| job.run.alloc.as_mut()) {
            for id in &alloc.gpu_ids {
                let of_kept = || kept.iter().find(|gpu| gpu.id == *id)?.uuid.clone();
                let Some(uuid) = alloc.gpu_uuids.get(id).cloned().or_else(of_kept) else {
                    continue;
                };
                alloc.gpu_uuids.insert(*id, uuid.clone());
                let uuid = Some(uuid);
                let seen = kept.iter().find(|gpu| gpu.uuid == uuid).cloned();
                let gpu =
                    seen.unwrap_or_else(|| Gpu { handle: uuid.clone(), uuid, ..Gpu::default() });
                known.entry(*id).or_insert(Gpu { id: *id, ..gpu });
            }
        }
        let is_new =
            |gpu: &Gpu| known.values().all(|known| known.id != gpu.id && known.uuid != gpu.uuid);
        let others: Vec<Gpu> = kept.into_iter().filter(is_new).collect();
        known.into_values().chain(others).collect()
    }
}

/// Creates the directory of the jobs, unless jobs are running: the daemon would take them for lost,
/// and kill their processes.
pub fn make_jobs_dir(store: &mut Store, paths: &Paths) -> Result<(), DaemonError> {
    let dir = paths.jobs_dir();
    let is_missing = dir.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    if is_missing {
        let live = store.load_live(clock::now()).map_err(unusable(paths))?;
        let running = live.iter().filter(|job| job.run.state.is_active()).count();
        if running > 0 {
            return Err(DaemonError::NoJobsDir { dir, running });
        }
    }
    listener::make_dir(paths, &dir).map_err(failed("cannot use the runtime root"))
}

/// Reads the jobs that belong in memory: unfinished ones, and those that ended within the last
/// `shown`. Preallocates the log of the database and reads the job directories meanwhile. `assigned`
/// is the highest ID that is known from elsewhere.
///
/// # Errors
/// Fails if the database cannot be read or contains invalid data.
pub async fn load(
    store: &mut Store,
    paths: &Paths,
    shown: Duration,
    assigned: Option<JobId>,
) -> Result<Queue, DaemonError> {
    let daemon_start = clock::now();
    let shown_us = i64::try_from(shown.as_micros()).unwrap_or(i64::MAX);
    let since = Timestamp(daemon_start.0.saturating_sub(shown_us));
    let (database, read) = (paths.db(), paths.clone());
    // The first poll starts the threads, and the records are read next.
    let (filled, numbers, jobs) = tokio::join!(
        aside::run("preallocating the database log", aside::LONG, move || fill_log(&database)),
        aside::run("reading the job directories", aside::LONG, move || Numbers::read(&read)),
        async { store.load_live(since) },
    );
    let mut jobs = jobs.map_err(unusable(paths))?;
    let numbers = numbers.map_err(failed("cannot recover the queue"))??;
    filled.map_err(failed("cannot recover the queue"))?;
    let is_new = store.next_job_id().map_err(unusable(paths))? == JobId(1);
    let after_backup = if is_new { free_after_backup(paths) } else { JobId(1) };
    let highest = numbers.of_directories.iter().copied().chain(assigned).max();
    let first_free = after_backup.max(highest.map_or(JobId(1), |last| JobId(last.0 + 1)));
    if take_in_found(store, paths, &jobs, &numbers, daemon_start).await? {
        jobs = store.load_live(since).map_err(unusable(paths))?;
    }
    Ok(Queue { jobs, first_free, daemon_start })
}

/// Returns the first ID after all jobs in the daemon's own backup, for a new database. If there is
/// a backup, the database was lost.
fn free_after_backup(paths: &Paths) -> JobId {
    let backup = paths.db_backup();
    if !backup.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return JobId(1);
    }
    let next = upkeep::next_job_id(&backup);
    let kept = match &next {
        Ok(next) if *next > JobId(1) => keep_backup(paths).unwrap_or_else(|error| {
            log::error!(
                "cannot keep {} under another name, so the next backup will replace it: {error}",
                backup.display()
            );
            backup.clone()
        }),
        _ => backup.clone(),
    };
    let shown = kept.display();
    match &next {
        Ok(JobId(1)) => {}
        Ok(JobId(next)) => log::warn!(
            "{} is new, but its backup {shown} has jobs up to {}: new jobs get the IDs after it; \
             stop the daemon and run `slotd db restore {shown}` to get those jobs back",
            paths.db().display(),
            next - 1
        ),
        Err(error) => log::warn!("job IDs may repeat: the backup {shown} cannot be read: {error}"),
    }
    next.unwrap_or(JobId(1))
}

/// Gives the backup of a lost database a second name, since the next backup takes its place.
/// Returns that name.
///
/// # Errors
/// Fails if the file cannot be linked.
fn keep_backup(paths: &Paths) -> io::Result<PathBuf> {
    let backup = paths.db_backup();
    let mut names = names_of_kept(paths);
    let name = names.find(|name| is_same_file(name, &backup) || name.symlink_metadata().is_err());
    let name = name.unwrap_or_else(|| backup.clone());
    match fs::hard_link(&backup, &name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(name),
    }
}

/// Returns the second name of the backup of a lost database, or its only name if it was not kept.
pub fn kept_backup(paths: &Paths) -> PathBuf {
    let backup = paths.db_backup();
    let mut known = kept_databases(paths).into_iter().filter(|name| is_same_file(name, &backup));
    known.next_back().unwrap_or(backup)
}

/// Returns the older databases that a restore or a loss has left beside the database, in the order
/// in which they were kept. None if the directory cannot be read.
pub fn kept_databases(paths: &Paths) -> Vec<PathBuf> {
    let names = fs::read_dir(paths.lib_dir()).into_iter().flatten().flatten();
    let number = |name: OsString| name.to_str()?.strip_prefix(KEPT)?.parse().ok();
    let mut numbers: Vec<u32> = names.filter_map(|entry| number(entry.file_name())).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| paths.lib_dir().join(format!("{KEPT}{number}"))).collect()
}

fn names_of_kept(paths: &Paths) -> impl Iterator<Item = PathBuf> {
    let lib = paths.lib_dir();
    (1..).map(move |number| lib.join(format!("{KEPT}{number}")))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| path.symlink_metadata().map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|found| id(other) == Some(found))
}

/// Builds the core from the queue.
///
/// # Errors
/// Fails if the database cannot be read or contains invalid data.
pub fn recover(
    config: slotd_sched::Config,
    queue: Queue,
    store: &mut Store,
    paths: &Paths,
    last_commit: Option<Timestamp>,
) -> Result<Recovered, DaemonError> {
    let Queue { jobs, first_free, daemon_start } = queue;
    let of_store = store.next_job_id().map_err(unusable(paths))?;
    let next_id = of_store.max(first_free);
    let targets = slotd_sched::dependency_targets(
        jobs.iter()
            .filter(|job| job.run.state == JobState::Pending)
            .map(|job| &job.request.dependency),
    );
    let mut reader = Reader::open(&paths.db()).map_err(unusable(paths))?;
    let ended = ended_facts(&mut reader, &targets).map_err(unusable(paths))?;
    let mut core = Core::recover(config, jobs, ended, next_id, daemon_start);
    core.remember(&reader.completed_last(REMEMBERED).map_err(unusable(paths))?);
    core.recall_memos(store.memos().map_err(unusable(paths))?, daemon_start);
    core.recall_crontabs(store.crontabs().map_err(unusable(paths))?);
    core.set_clock(clock::base());
    core.set_drains(node_order::read(paths), daemon_start);
    core.outages_are_known();
    let opening = reboot::end_interrupted(&mut core, paths, last_commit, daemon_start);
    // The clock may have been set while no daemon ran.
    let mut cx = Cx { now: daemon_start, out: opening };
    core.follow_clock(&mut cx);
    let opening = cx.out;
    let adopted = core.records().active().map(|record| Job::clone(&record.job)).collect();
    let clients = clients_to_expect(core.jobs());
    let untold = store.untold().map_err(unusable(paths))?;
    Ok(Recovered { core, adopted, clients, daemon_start, opening, untold })
}
