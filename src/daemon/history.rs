//! The end of history: what is old enough goes, the environment first, then the job directory, then the record.
//!
//! Reading what is to go, and removing files, is done on threads of their own; the store removes its part in small batches.
//! Nothing is looked at while nothing can be due: after each sweep it is known when the next thing is, and the store tells
//! of the first change after that.

use crate::actors::messages::{DropEnvironments, LeaveMemory, RemoveRecords, Shrink};
use crate::actors::store::Growth;
use crate::actors::{SchedulerActor, StoreActor};
use crate::daemon::database;
use crate::daemon::listener;
use crate::daemon::settings::Settings;
use crate::exec::{job_dirs, snapshots};
use crate::model::{JobId, Timestamp};
use crate::protocol::answer::Cleaned;
use crate::store::{Reader, Store};
use crate::sys::clock;
use crate::sys::paths::Paths;
use actix::Addr;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::RwLock;

/// How long the environment of a submission is kept after the end of the last of its jobs: it may hold passwords, and
/// without it the job cannot be queued again.
const ENVIRONMENT_AGE: Duration = Duration::from_secs(24 * 3600);

/// Between two sweeps, at least.
const PAUSE: Duration = Duration::from_secs(3600);

/// How many jobs go at once: others wait for no more than their files and rows take.
const BATCH: usize = 100;

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// How long after its end.
    age: Option<Duration>,
    /// How many jobs that have ended.
    jobs: Option<u64>,
    environment: Duration,
}

impl Keep {
    pub fn of(settings: &Settings) -> Keep {
        let age = settings.keep_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600));
        // What memory still has may be queued again without a look into the database.
        Keep {
            age,
            jobs: settings.keep_jobs,
            environment: ENVIRONMENT_AGE.max(settings.min_job_age),
        }
    }
}

/// Those who remove: the actors of a running daemon, or the database itself where none runs.
trait Hands {
    /// Those of these jobs that nobody has in memory.
    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, String>;
    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, String>;
    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), String>;
    /// Whether there may be more to shrink.
    async fn shrink(&self) -> Result<bool, String>;
}

/// Of a running daemon.
pub struct Actors {
    pub scheduler: Addr<SchedulerActor>,
    pub store: Addr<StoreActor>,
    /// Read by those who ask the database about the past and act on the answer: meanwhile nothing is removed.
    pub in_use: Arc<RwLock<()>>,
}

fn told<T, E: Display, M: Display>(answer: Result<Result<T, E>, M>) -> Result<T, String> {
    answer.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

impl Hands for Actors {
    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, String> {
        self.scheduler.send(LeaveMemory(ids)).await.map_err(|e| e.to_string())
    }

    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, String> {
        told(self.store.send(RemoveRecords(ids)).await)
    }

    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), String> {
        told(self.store.send(DropEnvironments(ids)).await)
    }

    async fn shrink(&self) -> Result<bool, String> {
        told(self.store.send(Shrink).await)
    }
}

impl Hands for RefCell<Store> {
    async fn spare(&self, ids: Vec<JobId>) -> Result<Vec<JobId>, String> {
        Ok(ids)
    }

    async fn remove(&self, ids: Vec<JobId>) -> Result<usize, String> {
        self.borrow_mut().remove(&ids).map_err(|e| e.to_string())
    }

    async fn drop_environments(&self, ids: Vec<JobId>) -> Result<(), String> {
        self.borrow_mut().drop_environments(&ids).map_err(|e| e.to_string())
    }

    async fn shrink(&self) -> Result<bool, String> {
        self.borrow_mut().shrink().map_err(|e| e.to_string())
    }
}

/// What removes history of one root.
struct Broom<H> {
    paths: Paths,
    hands: H,
    in_use: Arc<RwLock<()>>,
}

/// Runs on a thread where it may wait for a disk.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())?
}

impl<H: Hands> Broom<H> {
    /// Asks the database.
    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reader) -> Result<T, crate::store::StoreError> + Send + 'static,
    ) -> Result<T, String> {
        let database = self.paths.db();
        aside(move || {
            Reader::open(&database)
                .and_then(|mut reader| question(&mut reader))
                .map_err(|e| e.to_string())
        })
        .await
    }

    /// Removes the copies of work trees that no job runs in any more; without these jobs, of which it tells what that would
    /// free. How many bytes.
    async fn clean_copies(&self, without: Option<&BTreeSet<JobId>>) -> Result<u64, String> {
        let dir = self.paths.snapshots_dir();
        if !dir.exists() {
            return Ok(0);
        }
        // A submission that names a copy is durable before the names are read, or finds out that the copy is gone.
        let _alone = self.in_use.write().await;
        let named = self.read(|reader| reader.snapshots()).await?;
        match without {
            Some(jobs) => {
                let spare = named
                    .into_iter()
                    .filter(|(_, users)| users.iter().all(|job| jobs.contains(job)));
                let names: Vec<String> = spare.map(|(name, _)| name).collect();
                aside(move || Ok(names.iter().map(|name| snapshots::size(&dir, name)).sum())).await
            }
            None => {
                let names = named.into_keys().collect();
                aside(move || snapshots::remove_others(&dir, &names).map_err(|e| e.to_string()))
                    .await
            }
        }
    }

    /// Removes the jobs that ended before `before`, or tells what that would free.
    async fn clean(&self, before: Timestamp, dry_run: bool) -> Result<Cleaned, String> {
        let old = self.read(move |reader| reader.ended_before(before)).await?;
        let mut cleaned = Cleaned { before, needed: old.needed, ..Cleaned::default() };
        let mut removed = BTreeSet::new();
        for batch in old.spare.chunks(BATCH) {
            let _alone = self.in_use.write().await;
            let spare = self.hands.spare(batch.to_vec()).await?;
            cleaned.recent.extend(batch.iter().filter(|id| !spare.contains(id)));
            let dirs: Vec<_> = spare.iter().map(|id| self.paths.job_dir(*id)).collect();
            // The directory before the record: one without a record would be taken for a job that the database lost.
            cleaned.bytes += aside(move || {
                let freed = dirs.iter().map(|dir| match dry_run {
                    true => Ok(job_dirs::size(dir)),
                    false => job_dirs::remove(dir).map_err(|e| format!("{}: {e}", dir.display())),
                });
                freed.sum::<Result<u64, String>>()
            })
            .await?;
            removed.extend(spare.iter().copied());
            let count = if dry_run { spare.len() } else { self.hands.remove(spare).await? };
            cleaned.jobs += u64::try_from(count).unwrap_or(0);
        }
        cleaned.bytes += self.clean_copies(dry_run.then_some(&removed)).await?;
        if cleaned.jobs > 0 && !dry_run {
            while self.hands.shrink().await? {}
        }
        Ok(cleaned)
    }

    /// Drops the environments of what ended before `before`, and the launch scripts that hold them too.
    async fn drop_environments(&self, before: Timestamp) -> Result<(), String> {
        let old = self.read(move |reader| reader.environments_before(before)).await?;
        for batch in old.chunks(BATCH) {
            let _alone = self.in_use.write().await;
            let submissions = batch.to_vec();
            let spare = self.hands.spare(submissions).await?;
            let of_these = spare.clone();
            let records = self.read(move |reader| reader.records_of(&of_these)).await?;
            let dirs: Vec<_> = records.iter().map(|id| self.paths.job_dir(*id)).collect();
            aside(move || {
                dirs.iter()
                    .try_for_each(|dir| job_dirs::forget_launch(dir))
                    .map_err(|e| e.to_string())
            })
            .await?;
            self.hands.drop_environments(spare).await?;
        }
        Ok(())
    }

    /// Removes what is older than is kept. When the next thing is due. `environments`: when those are to be looked at, which
    /// takes a look at each job that has one; at once where that is not known.
    async fn sweep(
        &self,
        keep: Keep,
        now: Timestamp,
        environments: &mut Option<Timestamp>,
    ) -> Result<Option<Timestamp>, String> {
        let known = environments.filter(|due| *due > now);
        if known.is_none() {
            self.drop_environments(minus(now, keep.environment)).await?;
        }
        let by_age = keep.age.map(|age| minus(now, age));
        let by_number = match keep.jobs {
            // The first beyond the number goes, too.
            Some(jobs) => self
                .read(move |reader| reader.end_beyond(jobs))
                .await?
                .map(|end| Timestamp(end.0 + 1)),
            None => None,
        };
        if let Some(before) = by_age.max(by_number) {
            let cleaned = self.clean(before, false).await?;
            if cleaned.jobs > 0 {
                log::info!(
                    "{} old jobs were removed; their directories held {} bytes",
                    cleaned.jobs,
                    cleaned.bytes
                );
            }
        }
        // What clients have left that died.
        self.clean_copies(None).await?;
        let environment = match known {
            Some(due) => Some(due),
            None => {
                let first = self.read(|reader| reader.first_end_with_environment()).await?;
                let due = first.map(|end| end.plus(keep.environment));
                // What ends from now on is due no sooner than this.
                *environments = Some(due.unwrap_or(now.plus(keep.environment)));
                due
            }
        };
        let first = self.read(|reader| reader.first_end()).await?;
        let record = first.zip(keep.age).map(|(end, age)| end.plus(age));
        Ok([environment, record].into_iter().flatten().min())
    }
}

fn minus(at: Timestamp, age: Duration) -> Timestamp {
    Timestamp(at.0.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)))
}

/// Removes history while the daemon runs, and when it is told to.
pub struct History(Broom<Actors>);

impl History {
    pub fn new(paths: Paths, actors: Actors) -> History {
        let in_use = Arc::clone(&actors.in_use);
        History(Broom { paths, hands: actors, in_use })
    }

    /// Removes the jobs that ended before `before`, or tells what that would free.
    ///
    /// # Errors
    /// The database or a directory cannot be read or written. What was removed until then is gone.
    pub async fn clean(&self, before: Timestamp, dry_run: bool) -> Result<Cleaned, String> {
        self.0.clean(before, dry_run).await
    }

    /// Copies the database where that is due. When it is due next.
    async fn keep_copy(&self, started: SystemTime) -> Result<Option<Timestamp>, String> {
        let paths = self.0.paths.clone();
        aside(move || {
            let due = database::backup_due(&paths, started);
            if due.is_some_and(|due| due <= clock::now()) {
                database::renew_backup(&paths)?;
                return Ok(database::backup_due(&paths, started));
            }
            Ok(due)
        })
        .await
    }

    /// Removes what is older than is kept, and copies the database, whenever something is due.
    pub async fn keep_within(self: Rc<Self>, keep: Keep, growth: Arc<Growth>) {
        let started = SystemTime::now();
        let mut environments = None;
        loop {
            growth.begin();
            let removal =
                self.0.sweep(keep, clock::now(), &mut environments).await.unwrap_or_else(|e| {
                    log::error!("old jobs could not be removed: {e}");
                    Some(clock::now())
                });
            let copy = self.keep_copy(started).await.unwrap_or_else(|e| {
                log::error!("the database could not be copied: {e}");
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
                // What changes from now on is due no sooner than this.
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

/// [`History::clean`] where no daemon runs. None can start meanwhile.
///
/// # Errors
/// As there, or a daemon has the root after all.
pub fn clean_directly(paths: &Paths, before: Timestamp, dry_run: bool) -> Result<Cleaned, String> {
    if !paths.db().exists() {
        return Ok(Cleaned { before, ..Cleaned::default() });
    }
    let _lock = listener::take_root(paths).map_err(|e| e.to_string())?;
    let store = Store::open(&paths.db()).map_err(|e| e.to_string())?;
    let broom = Broom { paths: paths.clone(), hands: RefCell::new(store), in_use: Arc::default() };
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().map_err(|e| e.to_string())?;
    runtime.block_on(broom.clean(before, dry_run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobState;
    use crate::store::testing::{ended_job, insert_with, put};
    use std::fs;

    fn keep(age_days: Option<u64>) -> Keep {
        let age = age_days.map(|days| Duration::from_secs(days * 86_400));
        Keep { age, jobs: None, environment: ENVIRONMENT_AGE }
    }

    #[actix_rt::test]
    async fn environments_go_after_a_day_and_jobs_with_their_directories_when_they_are_old() {
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
        let jobs =
            [ended_job(1, JobState::Completed, 0, 1000), ended_job(2, JobState::Failed, 0, 80_000)];
        put(&mut store, jobs.iter().map(|job| insert_with(job, b"script", b"TOKEN=1\0")).collect());
        let broom =
            Broom { paths: paths.clone(), hands: RefCell::new(store), in_use: Arc::default() };
        let has = |id, file: &str| paths.job_dir(id).join(file).exists();

        let due =
            broom.sweep(keep(Some(10)), Timestamp::from_secs(87_401), &mut None).await.unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(80_000 + 86_400)), "the next environment");
        assert_eq!(
            [has(old, "runner.sh"), has(old, "script.sh"), has(young, "runner.sh")],
            [false, true, true]
        );
        let env = |id| broom.hands.borrow_mut().launch_texts(id).unwrap().unwrap().env;
        assert_eq!((env(old).len(), env(young).len()), (0, 8));

        let due =
            broom.sweep(keep(Some(10)), Timestamp::from_secs(200_000), &mut None).await.unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(1000 + 864_000)), "the next job");
        let due = broom
            .sweep(keep(Some(10)), Timestamp::from_secs(1001 + 864_000), &mut None)
            .await
            .unwrap();
        assert_eq!(due, Some(Timestamp::from_secs(80_000 + 864_000)));
        assert_eq!([paths.job_dir(old).exists(), paths.job_dir(young).exists()], [false, true]);
        assert_eq!(
            broom
                .sweep(keep(None), Timestamp::from_secs(i64::MAX / 1_000_000), &mut None)
                .await
                .unwrap(),
            None
        );
        assert!(paths.job_dir(young).exists(), "for ever");
    }
}
