//! The queue as an earlier daemon left it.

use crate::actors::reader::ended_facts;
use crate::actors::scheduler::clients_to_expect;
use crate::daemon::error::{DaemonError, failed, unusable};
use crate::daemon::node_order;
use crate::daemon::reboot;
use crate::exec::job_dirs;
use crate::model::change::Change;
use crate::model::gpu::Gpu;
use crate::model::job::ClientProcess;
use crate::model::notice::Notice;
use crate::model::{Job, JobId, JobState, Timestamp};
use crate::sched::{self, Core, FoundJob, Outbox};
use crate::store::{Reader, Store};
use crate::sys::paths::Paths;
use crate::sys::{clock, user};
use std::collections::BTreeMap;
use std::time::Duration;

/// The core with the queue of the database, and what is still going on.
pub struct Recovered {
    pub core: Core,
    /// Jobs whose processes may live.
    pub adopted: Vec<Job>,
    /// Clients that wait for their allocations.
    pub clients: Vec<(JobId, ClientProcess)>,
    pub daemon_start: Timestamp,
    /// What comes of a reboot, to be committed before anything else is decided.
    pub opening: Outbox,
    /// What people were not told.
    pub untold: Vec<(u64, Notice)>,
}

/// By how many earlier jobs it is told how long those without a time limit take.
const REMEMBERED: usize = 1000;

/// How many records that were found are committed at once.
const BATCH: usize = 1000;

/// The number that the next job gets: neither the database nor a job directory has it.
fn next_number(of_store: JobId, numbers: &[JobId]) -> JobId {
    let of_directories = numbers.iter().max().map_or(0, |last| last.0) + 1;
    JobId(of_store.0.max(of_directories))
}

/// Looks for jobs that were launched and that the database does not know, or knows as waiting: it
/// was lost, or an older copy was put in its place. True where there were some; they are in the
/// database now.
fn take_in_found(
    store: &mut Store,
    paths: &Paths,
    jobs: &[Job],
    numbers: &[JobId],
    now: Timestamp,
) -> Result<bool, DaemonError> {
    let known = store.numbers().map_err(unusable(paths))?;
    let waiting = jobs.iter().filter(|job| job.run.state == JobState::Pending);
    let pending: BTreeMap<JobId, &Job> = waiting.map(|job| (job.id, job)).collect();
    let is_to_look_at = |id: &JobId| {
        !known.contains(id)
            || pending.contains_key(id) && job_dirs::was_launched(&paths.job_dir(*id))
    };
    let mut found: Vec<FoundJob> =
        numbers.iter().copied().filter(is_to_look_at).map(|id| look(paths, id)).collect();
    found.sort_unstable_by_key(|found| found.id);
    let (uid, _) = user::current();
    let changes = sched::found_changes(found, &pending, (&user::user_name(uid), uid), now);
    if changes.is_empty() {
        return Ok(false);
    }
    let count = changes.iter().filter(|change| matches!(change, Change::Insert { .. })).count();
    log::warn!(
        "{count} jobs have a job directory and are not in the database {}: they are taken in from there. Is it an old copy?",
        paths.db().display()
    );
    for batch in changes.chunks(BATCH) {
        for result in store.commit(&[batch.to_vec()]) {
            result.map_err(failed("taking in jobs that the database does not know"))?;
        }
    }
    Ok(true)
}

fn look(paths: &Paths, id: JobId) -> FoundJob {
    let dir = paths.job_dir(id);
    let job_dirs::Found { job, steps } = job_dirs::look(&dir);
    FoundJob { id, job, steps, script: job_dirs::script(&dir) }
}

/// The jobs of the database and of the job directories.
pub struct Queue {
    jobs: Vec<Job>,
    /// Those that have a directory.
    numbers: Vec<JobId>,
    daemon_start: Timestamp,
}

impl Queue {
    /// The GPUs by the numbers that running jobs have them under, and then those that the daemon
    /// before has kept. Jobs of a daemon that wrote no names get them from there.
    pub fn known_gpus(&mut self, kept: Vec<Gpu>) -> Vec<Gpu> {
        let boot = clock::boot_id();
        let mut known: BTreeMap<u32, Gpu> = BTreeMap::new();
        let runs = |job: &&mut Job| {
            job.run.state.is_active() && job.run.clock.is_none_or(|clock| !clock.boot.differs(boot))
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

/// Reads the jobs that are to be known, `shown` after their ends.
///
/// # Errors
/// The database cannot be read, or holds what makes no sense.
pub fn load(store: &mut Store, paths: &Paths, shown: Duration) -> Result<Queue, DaemonError> {
    let daemon_start = clock::now();
    let shown_us = i64::try_from(shown.as_micros()).unwrap_or(i64::MAX);
    let since = Timestamp(daemon_start.0.saturating_sub(shown_us));
    let mut jobs = store.load_live(since).map_err(unusable(paths))?;
    let numbers = job_dirs::numbers(&paths.jobs_dir())
        .map_err(failed(paths.jobs_dir().display().to_string()))?;
    if take_in_found(store, paths, &jobs, &numbers, daemon_start)? {
        jobs = store.load_live(since).map_err(unusable(paths))?;
    }
    Ok(Queue { jobs, numbers, daemon_start })
}

/// Builds the core of them.
///
/// # Errors
/// The database cannot be read, or holds what makes no sense.
pub fn recover(
    config: sched::Config,
    queue: Queue,
    store: &mut Store,
    paths: &Paths,
    last_commit: Option<Timestamp>,
) -> Result<Recovered, DaemonError> {
    let Queue { jobs, numbers, daemon_start } = queue;
    let next_id = next_number(store.next_job_id().map_err(unusable(paths))?, &numbers);
    let targets = sched::dependency_targets(
        jobs.iter()
            .filter(|job| job.run.state == JobState::Pending)
            .map(|job| &job.request.dependency),
    );
    let mut reader = Reader::open(&paths.db()).map_err(unusable(paths))?;
    let ended = ended_facts(&mut reader, &targets).map_err(unusable(paths))?;
    let mut core = Core::recover(config, jobs, ended, next_id, daemon_start);
    core.remember(&reader.completed_last(REMEMBERED).map_err(unusable(paths))?);
    core.recall_memos(store.memos().map_err(unusable(paths))?, daemon_start);
    core.set_clock(clock::base());
    core.set_drains(node_order::read(paths), daemon_start);
    core.outages_are_known();
    let opening = reboot::bury(&mut core, paths, last_commit, daemon_start);
    let adopted: Vec<Job> = core.jobs().filter(|job| job.run.state.is_active()).cloned().collect();
    let clients = clients_to_expect(core.jobs());
    let untold = store.untold().map_err(unusable(paths))?;
    Ok(Recovered { core, adopted, clients, daemon_start, opening, untold })
}
