//! Deletes old history: first the environment of a job, then its directory, then its record.
//!
//! Reading the database and deleting files happen on other threads, and the store deletes records
//! in small batches. Nothing is checked while nothing can be due: each sweep determines when the
//! next thing is due, and the store reports the first change after that.

use crate::actors::messages::{
    DropEnvironments, LeaveMemory, OverwriteDeleted, RemoveRecords, RemoveRuns, Shrink,
};
use crate::actors::store::Growth;
use crate::actors::{SchedulerActor, StoreActor};
use crate::daemon::database::{self, DatabaseError};
use crate::daemon::listener;
use crate::daemon::settings::Settings;
use actix::{Addr, MailboxError};
use slotd_exec::{job_dirs, snapshots};
use slotd_model::{JobId, Timestamp};
use slotd_protocol::answer::Cleaned;
use slotd_protocol::request::Clean;
use slotd_store::{OpenFiles, Reader, Store, StoreError};
use slotd_sys::aside::Unfinished;
use slotd_sys::beneath::Dir;
use slotd_sys::paths::Paths;
use slotd_sys::{aside, clock, root_dirs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::RwLock;

/// The time to keep the environment of a submission after the last of its jobs ended. It may
/// contain passwords, and without it the job cannot be requeued.
const ENVIRONMENT_AGE: Duration = Duration::from_secs(24 * 3600);

/// The shortest time between two sweeps.
const PAUSE: Duration = Duration::from_secs(3600);

/// The number of jobs to delete at once. Other work on the store waits only until the files and
/// rows of one batch are deleted.
const BATCH: usize = 100;

/// The limits on the history that is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// The longest time since the end of a job.
    age: Option<Duration>,
    /// The number of ended jobs.
    jobs: Option<u64>,
    environment: Duration,
}

impl Keep {
    pub fn of(settings: &Settings) -> Keep {
        let age = settings.keep_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
        // Jobs in memory can be requeued without reading the database.
        Keep {
            age,
            jobs: settings.keep_jobs,
            environment: ENVIRONMENT_AGE.max(settings.min_job_age),
        }
    }
}

/// The reason why history was not deleted, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    File(#[from] io::Error),
    /// A directory of the root cannot be trusted.
    #[error("{0}")]
    Root(String),
    /// The disk does not respond.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The daemon is stopping.
    #[error(transparent)]
    Actor(#[from] MailboxError),
    #[error("not everything could be deleted (jobs deleted: {deleted}): {first}{}", and_more(*.others))]
    Incomplete { deleted: u64, first: Box<HistoryError>, others: usize },
}

fn and_more(others: usize) -> String {
    if others > 0 { format!(" (and {others} more)") } else { String::new() }
}

/// Deletes data: the actors of a running daemon, or the database itself if none is running.
trait Remover {
    /// Returns the files of the database that it has open.
    fn files(&self) -> OpenFiles;
    /// Returns the given jobs that are not in memory.
    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, HistoryError>;
    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, HistoryError>;
    /// Deletes a batch of the earlier runs of unended jobs. Returns their number.
    async fn remove_runs(&self, before: Timestamp) -> Result<usize, HistoryError>;
    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), HistoryError>;
    /// Returns whether there may be more to shrink.
    async fn shrink(&self) -> Result<bool, HistoryError>;
    /// Overwrites deleted data that is still in the write-ahead log.
    async fn overwrite_deleted(&self) -> Result<bool, HistoryError>;
}

/// Deletes through a running daemon.
pub struct Actors {
    pub scheduler: Addr<SchedulerActor>,
    pub store: Addr<StoreActor>,
    pub files: OpenFiles,
    /// Read-locked by requests that read past jobs and act on the result. Nothing is deleted
    /// meanwhile.
    pub in_use: Arc<RwLock<()>>,
}

impl Remover for Actors {
    fn files(&self) -> OpenFiles {
        self.files.clone()
    }

    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, HistoryError> {
        Ok(self.scheduler.send(LeaveMemory(ids)).await?)
    }

    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, HistoryError> {
        Ok(self.store.send(RemoveRecords(ids)).await??)
    }

    async fn remove_runs(&self, before: Timestamp) -> Result<usize, HistoryError> {
        Ok(self.store.send(RemoveRuns { before, most: BATCH }).await??)
    }

    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), HistoryError> {
        Ok(self.store.send(DropEnvironments(ids)).await??)
    }

    async fn shrink(&self) -> Result<bool, HistoryError> {
        Ok(self.store.send(Shrink).await??)
    }

    async fn overwrite_deleted(&self) -> Result<bool, HistoryError> {
        Ok(self.store.send(OverwriteDeleted).await??)
    }
}

impl Remover for RefCell<Store> {
    fn files(&self) -> OpenFiles {
        self.borrow().files().clone()
    }

    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, HistoryError> {
        Ok(ids)
    }

    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, HistoryError> {
        Ok(self.borrow_mut().remove(&ids)?)
    }

    async fn remove_runs(&self, before: Timestamp) -> Result<usize, HistoryError> {
        Ok(self.borrow_mut().remove_runs(before, BATCH)?)
    }

    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), HistoryError> {
        Ok(self.borrow_mut().drop_environments(&ids)?)
    }

    async fn shrink(&self) -> Result<bool, HistoryError> {
        Ok(self.borrow_mut().shrink()?)
    }

    async fn overwrite_deleted(&self) -> Result<bool, HistoryError> {
        Ok(self.borrow_mut().overwrite_deleted()?)
    }
}

/// Deletes history of one root.
struct Cleaner<H> {
    paths: Paths,
    remover: H,
    in_use: Arc<RwLock<()>>,
    /// Deleted data may still be in files beside the database.
    has_deleted: Cell<bool>,
}

/// Runs blocking work on another thread.
async fn off_thread<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, HistoryError>
where
    T: Send + 'static,
    E: Send + 'static,
    HistoryError: From<E>,
{
    Ok(aside::run("deleting old jobs", aside::LONG, work).await??)
}

impl<H: Remover> Cleaner<H> {
    /// Queries the database, but never another file that has replaced it: deletions depend on the
    /// answer.
    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let (database, files) = (self.paths.db(), self.remover.files());
        let ask = move || -> Result<T, StoreError> {
            let mut reader = Reader::open(&database)?;
            files.check()?;
            question(&mut reader)
        };
        off_thread(ask).await
    }

    /// Opens a directory below the root on another thread, which may block on a disk.
    async fn open(&self, dir: PathBuf) -> Result<Option<Arc<Dir>>, HistoryError> {
        let paths = self.paths.clone();
        off_thread(move || root_dirs::open(&paths, &dir).map(|dir| dir.map(Arc::new))).await
    }

    /// Deletes the work tree copies that no job uses, and returns the number of bytes freed. With
    /// `without`, deletes nothing and returns what could be freed if these jobs did not exist.
    async fn clean_copies(&self, without: Option<&BTreeSet<JobId>>) -> Result<u64, HistoryError> {
        let path = self.paths.snapshots_dir();
        let Some(dir) = self.open(path.clone()).await? else { return Ok(0) };
        // Block submissions: a submission that names a copy is either durable before the names are
        // read, or no longer finds the copy.
        let _alone = self.in_use.write().await;
        let named = self.read(|reader| reader.snapshots()).await?;
        match without {
            Some(jobs) => {
                let spare = named
                    .into_iter()
                    .filter(|(_, users)| users.iter().all(|job| jobs.contains(job)));
                let names: Vec<String> = spare.map(|(name, _)| name).collect();
                let size = move || names.iter().map(|name| snapshots::size(&dir, name)).sum();
                off_thread(move || io::Result::Ok(size())).await
            }
            None => {
                let names = named.into_keys().collect();
                off_thread(move || snapshots::remove_others(&dir, &path, &names)).await
            }
        }
    }

    /// Deletes a work tree copy unless a job names it.
    async fn remove_unnamed(&self, copy: String) -> Result<(), HistoryError> {
        // As in `clean_copies`, a submission that names it is either durable by now, or no longer
        // finds it.
        let _alone = self.in_use.write().await;
        if self.read(|reader| reader.snapshots()).await?.contains_key(&copy) {
            return Ok(());
        }
        let dir = self.paths.snapshots_dir();
        off_thread(move || snapshots::remove(&dir, &copy)).await
    }

    /// Deletes ended jobs, or computes what that would free. Skips jobs whose directory cannot be
    /// deleted. Also deletes the earlier runs of unended jobs that ended before `runs`.
    async fn remove(&self, what: Clean, runs: Timestamp) -> Result<Cleaned, HistoryError> {
        let Clean { before, except, dry_run } = what;
        let except: BTreeSet<JobId> = except.into_iter().collect();
        let path = self.paths.jobs_dir();
        let dir = self.open(path.clone()).await?;
        let mut old = self.read(move |reader| reader.ended_before(before)).await?;
        old.spare.retain(|(id, _)| !except.contains(id));
        let mut cleaned = Cleaned { before, needed: old.needed, ..Cleaned::default() };
        let (mut removed, mut failures) = (BTreeSet::new(), Vec::new());
        for batch in old.spare.chunks(BATCH) {
            let _alone = self.in_use.write().await;
            let mut spare = self.remover.spare(batch.iter().map(|(id, _)| *id).collect()).await?;
            cleaned.recent.extend(batch.iter().map(|(id, _)| *id).filter(|id| !spare.contains(id)));
            let (of_these, dir, path) = (spare.clone(), dir.clone(), path.clone());
            // Delete the directory before the record: a directory without a record looks like a job
            // that the database lost.
            let freed = off_thread(move || -> io::Result<Vec<io::Result<u64>>> {
                let Some(dir) = dir else { return Ok(of_these.iter().map(|_| Ok(0)).collect()) };
                let free = |id: &JobId| {
                    if dry_run {
                        Ok(job_dirs::size(&dir, *id))
                    } else {
                        job_dirs::remove(&dir, &path, *id)
                    }
                };
                Ok(of_these.iter().map(free).collect())
            })
            .await?;
            let mut freed = freed.into_iter();
            spare.retain(|_| match freed.next() {
                Some(Ok(bytes)) => {
                    cleaned.bytes += bytes;
                    true
                }
                Some(Err(why)) => {
                    failures.push(HistoryError::from(why));
                    false
                }
                None => false,
            });
            for (_, end) in batch.iter().filter(|(id, _)| spare.contains(id)) {
                let (first, last) = cleaned.ends.unwrap_or((*end, *end));
                cleaned.ends = Some((first.min(*end), last.max(*end)));
            }
            removed.extend(spare.iter().copied());
            let count = if dry_run { spare.len() } else { self.remover.remove(spare).await? };
            cleaned.jobs += u64::try_from(count).unwrap_or(0);
        }
        cleaned.runs = self.remove_runs(runs, dry_run).await?;
        let has_deleted = cleaned.jobs + cleaned.runs > 0 && !dry_run;
        self.has_deleted.set(self.has_deleted.get() || has_deleted);
        match self.clean_copies(dry_run.then_some(&removed)).await {
            Ok(bytes) => cleaned.bytes += bytes,
            Err(why) => failures.push(why),
        }
        if has_deleted {
            while self.remover.shrink().await? {}
        }
        let mut failures = failures.into_iter();
        match failures.next() {
            None => Ok(cleaned),
            Some(first) => Err(incomplete(&cleaned, first, failures.len())),
        }
    }

    /// Deletes the earlier runs of unended jobs that ended before `before`, or counts them. A recurring
    /// job never ends, so its runs are not deleted with it.
    async fn remove_runs(&self, before: Timestamp, dry_run: bool) -> Result<u64, HistoryError> {
        let old = self.read(move |reader| reader.runs_before(before)).await?;
        if dry_run || old == 0 {
            return Ok(old);
        }
        let mut removed = 0;
        loop {
            let batch = self.remover.remove_runs(before).await?;
            removed += batch as u64;
            if batch < BATCH {
                return Ok(removed);
            }
        }
    }

    /// Purges deleted data from files beside the database.
    async fn finish(&self) -> Result<(), HistoryError> {
        if !self.has_deleted.get() {
            return Ok(());
        }
        if !self.remover.overwrite_deleted().await? {
            log::info!(
                "{} will be overwritten once the database has no readers",
                self.paths.db_log().display()
            );
        }
        let (paths, files) = (self.paths.clone(), self.remover.files());
        off_thread(move || database::follow_deletion(&paths, &files)).await?;
        self.has_deleted.set(false);
        Ok(())
    }

    /// Deletes ended jobs and every copy of their data, or computes what that would free.
    async fn clean(&self, what: Clean) -> Result<Cleaned, HistoryError> {
        let runs = what.before;
        let removed = self.remove(what, runs).await;
        let finished = self.finish().await;
        let cleaned = removed?;
        finished.map_err(|why| incomplete(&cleaned, why, 0))?;
        Ok(cleaned)
    }

    /// Deletes the environments of jobs that ended before `before`, and the launch scripts that
    /// contain them.
    async fn drop_environments(&self, before: Timestamp) -> Result<(), HistoryError> {
        let old = self.read(move |reader| reader.environments_before(before)).await?;
        let path = self.paths.jobs_dir();
        for batch in old.chunks(BATCH) {
            let _alone = self.in_use.write().await;
            let submissions = batch.to_vec();
            let spare = self.remover.spare(submissions).await?;
            let of_these = spare.clone();
            let records = self.read(move |reader| reader.records_of(&of_these)).await?;
            if let Some(dir) = self.open(path.clone()).await? {
                let path = path.clone();
                off_thread(move || {
                    let forget = |id: &JobId| job_dirs::forget_launch(&dir, &path, *id);
                    records.iter().try_for_each(forget)
                })
                .await?;
            }
            self.has_deleted.set(self.has_deleted.get() || !spare.is_empty());
            self.remover.drop_environments(spare).await?;
        }
        Ok(())
    }

    /// Deletes everything that is too old. Returns when the next deletion is due. `environments` is
    /// the time at which environments are due. The caller keeps it, because a check reads every job
    /// that has one. `None` checks them now.
    async fn sweep(
        &self,
        keep: Keep,
        now: Timestamp,
        environments: &mut Option<Timestamp>,
    ) -> Result<Option<Timestamp>, HistoryError> {
        let known = environments.filter(|due| *due > now);
        if known.is_none() {
            self.drop_environments(minus(now, keep.environment)).await?;
        }
        let by_age = keep.age.map(|age| minus(now, age));
        let beyond = match keep.jobs {
            Some(most) => {
                let ends = self.read(move |reader| {
                    Ok([reader.end_beyond(most)?, reader.run_end_beyond(most)?])
                });
                ends.await?
            }
            None => [None, None],
        };
        // The first one beyond the limit is deleted, too.
        let [jobs, runs] = beyond.map(|end| by_age.max(end.map(|end| Timestamp(end.0 + 1))));
        if jobs.or(runs).is_some() {
            let never = Timestamp(i64::MIN);
            let (before, runs) = (jobs.unwrap_or(never), runs.unwrap_or(never));
            let what = Clean { before, except: Vec::new(), dry_run: false };
            let cleaned = self.remove(what, runs).await?;
            if cleaned.jobs + cleaned.runs > 0 {
                log::info!(
                    "old jobs deleted: {}; bytes in their directories: {}; earlier runs deleted: {}",
                    cleaned.jobs,
                    cleaned.bytes,
                    cleaned.runs
                );
            }
        }
        // Delete the copies left by clients that died.
        self.clean_copies(None).await?;
        self.finish().await?;
        let environment = match known {
            Some(due) => Some(due),
            None => {
                let first = self.read(|reader| reader.first_end_with_environment()).await?;
                let due = first.map(|end| end.plus(keep.environment));
                // Jobs that end from now on are due no sooner than this.
                *environments = Some(due.unwrap_or(now.plus(keep.environment)));
                due
            }
        };
        let firsts = self.read(|reader| Ok([reader.first_end()?, reader.first_run_end()?])).await?;
        let first = firsts.into_iter().flatten().min();
        let record = first.zip(keep.age).map(|(end, age)| end.plus(age));
        Ok([environment, record].into_iter().flatten().min())
    }
}

fn incomplete(cleaned: &Cleaned, first: HistoryError, others: usize) -> HistoryError {
    HistoryError::Incomplete { deleted: cleaned.jobs, first: Box::new(first), others }
}

fn minus(at: Timestamp, age: Duration) -> Timestamp {
    Timestamp(at.0.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)))
}

/// Deletes history while the daemon is running, periodically and on request.
pub struct History(Cleaner<Actors>);

impl History {
    pub fn new(paths: Paths, actors: Actors) -> History {
        let in_use = Arc::clone(&actors.in_use);
        History(Cleaner { paths, remover: actors, in_use, has_deleted: Cell::default() })
    }

    /// Deletes ended jobs, or computes what that would free.
    ///
    /// # Errors
    /// Fails if the database or a directory cannot be read or written. Earlier deletions stay.
    pub async fn clean(&self, what: Clean) -> Result<Cleaned, HistoryError> {
        self.0.clean(what).await
    }

    /// Deletes a work tree copy whose client has disconnected, unless a job names it. `lock`
    /// protects it until then.
    pub async fn release_copy(&self, name: String, lock: OwnedFd) {
        if let Err(why) = self.0.remove_unnamed(name.clone()).await {
            log::warn!("could not delete the copy {name} of a work tree: {why}");
        }
        drop(lock);
    }

    /// Renews the backup of the database if it is due. Returns when it is due next.
    async fn keep_copy(&self, started: SystemTime) -> Result<Option<Timestamp>, HistoryError> {
        let (paths, files) = (self.0.paths.clone(), self.0.remover.files());
        off_thread(move || -> Result<_, StoreError> {
            let due = database::backup_due(&paths, started);
            if due.is_some_and(|due| due <= clock::now()) {
                database::renew_backup(&paths, &files)?;
                return Ok(database::backup_due(&paths, started));
            }
            Ok(due)
        })
        .await
    }

    /// Deletes old data and renews the backup whenever something is due.
    pub async fn keep_within(self: Rc<Self>, keep: Keep, growth: Arc<Growth>) {
        let started = SystemTime::now();
        let mut environments = None;
        loop {
            growth.begin();
            let removal =
                self.0.sweep(keep, clock::now(), &mut environments).await.unwrap_or_else(|e| {
                    log::error!("could not delete old jobs: {e}");
                    Some(clock::now())
                });
            let copy = self.keep_copy(started).await.unwrap_or_else(|e| {
                log::error!("could not back up the database: {e}");
                Some(clock::now())
            });
            let due = [removal, copy].into_iter().flatten().min();
            let pause = |due: Timestamp| due.since(clock::now()).max(PAUSE);
            let rest = async {
                match due {
                    Some(due) => tokio::time::sleep(pause(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = rest => {}
                // Changes from now on are due no sooner than this.
                () = growth.changed() => {
                    let much = async {
                        match keep.jobs {
                            Some(_) => growth.grown().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = much => {}
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                }
            }
        }
    }
}

/// Does the same as [`History::clean`] when no daemon is running, and prevents one from starting
/// meanwhile.
///
/// # Errors
/// Fails like [`History::clean`], or if a daemon is using the root after all.
pub fn clean_directly(paths: &Paths, what: Clean) -> Result<Cleaned, HistoryError> {
    if let Some(wrong) = root_dirs::faults(paths).into_iter().next() {
        return Err(HistoryError::Root(wrong));
    }
    if !paths.db().exists() {
        return Ok(Cleaned { before: what.before, ..Cleaned::default() });
    }
    let _lock = listener::take_root(paths)?;
    let store = Store::open(&paths.db())?;
    let cleaner = Cleaner {
        paths: paths.clone(),
        remover: RefCell::new(store),
        in_use: Arc::default(),
        has_deleted: Cell::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(cleaner.clean(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::End;
    use slotd_store::testing::{Place, ended_job, insert, insert_with, put};
    use slotd_store::upkeep;
    use std::fs;
    use std::path::Path;

    fn keep(age_days: Option<u64>) -> Keep {
        let age = age_days.map(|days| Duration::from_secs(days * 86_400));
        Keep { age, jobs: None, environment: ENVIRONMENT_AGE }
    }

    fn all_before(before: Timestamp, dry_run: bool) -> Clean {
        Clean { before, except: Vec::new(), dry_run }
    }

    #[actix_rt::test]
    async fn environments_are_deleted_after_a_day_and_old_jobs_with_their_directories() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        let (old, young) = (JobId(1), JobId(2));
        for id in [old, young] {
            fs::create_dir_all(paths.job_dir(id)).unwrap();
            for file in ["script.sh", "runner.sh"] {
                fs::write(paths.job_dir(id).join(file), "TOKEN=1").unwrap();
            }
        }
        let mut store = Store::open(&paths.db()).unwrap();
        let jobs = [ended_job(1, End::Completed, 0, 1000), ended_job(2, End::Failed, 0, 80_000)];
        put(&mut store, jobs.iter().map(|job| insert_with(job, b"script", b"TOKEN=1\0")).collect());
        let cleaner = Cleaner {
            paths: paths.clone(),
            remover: RefCell::new(store),
            in_use: Arc::default(),
            has_deleted: Cell::default(),
        };
        let has = |id, file: &str| paths.job_dir(id).join(file).exists();

        let due =
            cleaner.sweep(keep(Some(10)), Timestamp::from_secs(87_401), &mut None).await.unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(80_000 + 86_400)), "the next environment");
        assert_eq!(
            [has(old, "runner.sh"), has(old, "script.sh"), has(young, "runner.sh")],
            [false, true, true]
        );
        let env = |id| cleaner.remover.borrow_mut().launch_texts(id).unwrap().unwrap().env;
        assert_eq!((env(old).len(), env(young).len()), (0, 8));

        let due =
            cleaner.sweep(keep(Some(10)), Timestamp::from_secs(200_000), &mut None).await.unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(1000 + 864_000)), "the next job");
        let due = cleaner
            .sweep(keep(Some(10)), Timestamp::from_secs(1001 + 864_000), &mut None)
            .await
            .unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(80_000 + 864_000)));
        assert_eq!([paths.job_dir(old).exists(), paths.job_dir(young).exists()], [false, true]);
        assert_eq!(
            cleaner
                .sweep(keep(None), Timestamp::from_secs(i64::MAX / 1_000_000), &mut None)
                .await
                .unwrap(),
            None
        );
        assert!(paths.job_dir(young).exists(), "kept forever");
    }

    /// Returns the files below a directory that contain this text.
    fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                found.extend(holders(&entry, text));
            } else if fs::read(&entry)
                .unwrap()
                .windows(text.len())
                .any(|bytes| bytes == text.as_bytes())
            {
                found.push(entry);
            }
        }
        found
    }

    #[actix_rt::test]
    async fn deleted_secret_is_left_in_no_file() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        for (id, end) in [(1, 1000), (2, 2000)] {
            fs::create_dir_all(paths.job_dir(JobId(id))).unwrap();
            fs::write(
                paths.job_dir(JobId(id)).join("runner.sh"),
                "TOKEN=very-secret-1 TOKEN=very-secret-2",
            )
            .unwrap();
            let mut store = Store::open(&paths.db()).unwrap();
            let env = format!("TOKEN=very-secret-{id}\0")
                .repeat(400 * usize::try_from(end).unwrap() / 1000);
            put(
                &mut store,
                vec![insert_with(&ended_job(id, End::Failed, 0, end), b"script", env.as_bytes())],
            );
            // Simulate a killed daemon, so that the log is not checkpointed.
            let _ = std::mem::ManuallyDrop::new(store);
        }
        let remover = RefCell::new(Store::open(&paths.db()).unwrap());
        database::renew_backup(&paths, &remover.files()).unwrap();
        fs::write(upkeep::unfinished(&paths.db_backup()), "TOKEN=very-secret-1").unwrap();
        let cleaner = Cleaner {
            paths: paths.clone(),
            remover,
            in_use: Arc::default(),
            has_deleted: Cell::default(),
        };
        let held = |id| holders(root.path(), &format!("very-secret-{id}")).len();
        assert!(held(1) >= 5 && held(2) >= 4, "{} {}", held(1), held(2));
        // A reader of the old state keeps the log from being emptied, so the next commit does it.
        let reader = Place::read_of(&paths.db());
        cleaner.sweep(keep(None), Timestamp::from_secs(1500 + 86_400), &mut None).await.unwrap();
        assert_eq!(
            holders(root.path(), "very-secret-1")
                .iter()
                .filter(|path| **path != paths.db_log())
                .count(),
            1,
            "the one of job 2"
        );
        drop(reader);
        put(&mut cleaner.remover.borrow_mut(), vec![insert(&ended_job(3, End::Failed, 0, 90_000))]);
        cleaner.remover.borrow_mut().empty_long_log();
        fs::remove_file(paths.job_dir(JobId(2)).join("runner.sh")).unwrap();
        assert_eq!(holders(root.path(), "very-secret-1"), Vec::<PathBuf>::new());
        assert!(held(2) >= 2, "not old enough yet: {}", held(2));
        cleaner.clean(all_before(Timestamp::from_secs(3000), false)).await.unwrap();
        assert_eq!(holders(root.path(), "very-secret-2"), Vec::<PathBuf>::new());
        assert!(paths.db_backup().exists() && !upkeep::unfinished(&paths.db_backup()).exists());
    }

    #[actix_rt::test]
    async fn failed_deletion_is_reported_and_the_others_continue() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        let scratch = root.path().join("scratch");
        fs::create_dir_all(paths.jobs_dir()).unwrap();
        fs::create_dir(&scratch).unwrap();
        fs::write(scratch.join("runner.sh"), "mine").unwrap();
        let mut store = Store::open(&paths.db()).unwrap();
        put(&mut store, (1..4).map(|id| insert(&ended_job(id, End::Failed, 0, 1000))).collect());
        for id in [1, 3] {
            fs::create_dir(paths.job_dir(JobId(id))).unwrap();
        }
        std::os::unix::fs::symlink(&scratch, paths.job_dir(JobId(2))).unwrap();
        let remover = RefCell::new(store);
        let cleaner = Cleaner {
            paths: paths.clone(),
            remover,
            in_use: Arc::default(),
            has_deleted: Cell::default(),
        };
        let late = Timestamp::from_secs(2000);
        let why = cleaner.clean(all_before(late, false)).await.unwrap_err();
        let link = paths.job_dir(JobId(2));
        assert_eq!(
            why.to_string(),
            format!(
                "not everything could be deleted (jobs deleted: 2): {}: it is a link, and its target is not deleted: \
                 remove the link",
                link.display()
            )
        );
        assert_eq!(
            (scratch.join("runner.sh").exists(), paths.job_dir(JobId(3)).exists()),
            (true, false)
        );
        fs::remove_file(&link).unwrap();
        assert_eq!(cleaner.clean(all_before(late, false)).await.unwrap().jobs, 1);
        // Replace the directories with links.
        fs::remove_dir(paths.jobs_dir()).unwrap();
        for dir in [paths.jobs_dir(), paths.snapshots_dir()] {
            std::os::unix::fs::symlink(&scratch, &dir).unwrap();
            fs::create_dir_all(scratch.join("1-2")).unwrap();
            for dry_run in [true, false] {
                let why = cleaner.clean(all_before(late, dry_run)).await.unwrap_err();
                assert!(
                    why.to_string().contains(&format!("{}: it is a link", dir.display())),
                    "{why}"
                );
            }
            cleaner.sweep(keep(Some(0)), late, &mut None).await.unwrap_err();
            assert!(scratch.join("runner.sh").exists() && scratch.join("1-2").exists());
            fs::remove_file(dir).unwrap();
        }
    }
}
