//! StoreActor: the only writer of the database.
//!
//! Owns the writing connection, on an arbiter of its own, so that a slow disk blocks nobody else. Receives
//! [`Commit`]. Sends [`Committed`] for each, in the order they came. Commits what is waiting as one transaction
//! (group commit): an fsync is paid once for all submissions that arrived during the one before.
//! A full disk loses nothing and ends nothing: what is to be committed waits until there is room, and [`DiskFull`] tells
//! the scheduler, which takes no jobs meanwhile. Stops with the daemon. If it dies the daemon ends, since nothing can be promised without it.
//!
//! [`ReaderActor`] answers queries of the past on a connection of its own, so that a large sacct delays no commit.

use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{BatchTexts, Commit, Committed, DiskFull, EndedFacts, PastJobs, PastRecords, ReadError};
use crate::model::Job;
use crate::model::batch_tasks::BatchTasks;
use crate::model::change::LaunchTexts;
use crate::model::query::JobQuery;
use crate::model::view::JobView;
use crate::model::{ArrayRole, JobId, JobRef, JobState};
use crate::sched::{EndedJob, view_of};
use crate::store::{Reader, Store, StoreError};
use actix::prelude::*;
use std::time::Duration;

/// Messages that may wait before senders have to.
const MAILBOX: usize = 4096;

/// How long a full disk is left alone before the next try.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// Where the store's answers go.
pub struct StoreOutputs {
    pub committed: Recipient<Committed>,
    pub disk_full: Recipient<DiskFull>,
}

pub struct StoreActor {
    store: Store,
    outputs: StoreOutputs,
    waiting: Vec<Commit>,
    /// The disk was full at the last try: what waits is tried again by a timer, and whatever comes waits behind it.
    is_full: bool,
}

impl StoreActor {
    pub fn new(store: Store, outputs: StoreOutputs) -> Self {
        StoreActor { store, outputs, waiting: Vec::new(), is_full: false }
    }

    fn set_full(&mut self, is_full: bool) {
        if std::mem::replace(&mut self.is_full, is_full) != is_full {
            self.outputs.disk_full.do_send(DiskFull(is_full));
        }
    }
}

impl Actor for StoreActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Commit what has been collected. Sent to itself, so that it runs behind everything that is already there.
#[derive(Message)]
#[rtype(result = "()")]
struct Flush;

impl Handler<Commit> for StoreActor {
    type Result = ();

    fn handle(&mut self, commit: Commit, ctx: &mut Self::Context) {
        if self.waiting.is_empty() && !self.is_full {
            ctx.notify(Flush);
        }
        self.waiting.push(commit);
    }
}

impl Handler<Flush> for StoreActor {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Self::Context) {
        let commits = std::mem::take(&mut self.waiting);
        let (heads, batches): (Vec<_>, Vec<_>) = commits.into_iter().map(|c| ((c.seq, c.texts_for), c.changes)).unzip();
        let results = self.store.commit(&batches);
        for (((seq, texts_for), changes), result) in heads.into_iter().zip(batches).zip(results) {
            if let Err(StoreError::Full { .. }) = &result {
                // Nothing was promised yet, so that nothing is lost by waiting; the same holds for all behind it.
                self.waiting.push(Commit { seq, changes, texts_for });
                continue;
            }
            let result = result.and_then(|()| {
                texts_for
                    .into_iter()
                    .map(|job| Ok((job, self.store.launch_texts(job)?.unwrap_or_default())))
                    .collect::<Result<Vec<_>, _>>()
            });
            self.outputs.committed.do_send(Committed { seq, result });
        }
        self.set_full(!self.waiting.is_empty());
        if self.is_full {
            ctx.notify_later(Flush, FULL_DISK_PAUSE);
        }
    }
}

/// Reads the past, on a thread of its own.
pub struct ReaderActor {
    reader: Reader,
    host: String,
    batch_tasks: BatchTasks,
}

impl ReaderActor {
    /// `host` is the node's name and `batch_tasks` the setting of the daemon: both are part of what views show.
    pub fn new(reader: Reader, host: String, batch_tasks: BatchTasks) -> Self {
        ReaderActor { reader, host, batch_tasks }
    }

    fn view(&self, job: Job) -> JobView {
        let mut view = view_of(job, self.batch_tasks);
        fill_paths(&mut view, &self.host);
        view
    }
}

impl Actor for ReaderActor {
    type Context = SyncContext<Self>;
}

impl Handler<PastJobs> for ReaderActor {
    type Result = Result<Vec<JobView>, ReadError>;

    fn handle(&mut self, PastJobs(filter): PastJobs, _: &mut Self::Context) -> Self::Result {
        let (earlier, jobs) = match filter.duplicates {
            true => self.reader.accounting_with_runs(&filter)?,
            false => (Vec::new(), self.reader.accounting(&filter)?),
        };
        let earlier = earlier.into_iter().map(|run| JobView { requeued: run.requeued, ..self.view(run.record) });
        Ok(earlier.chain(jobs.into_iter().map(|job| self.view(job))).collect())
    }
}

impl Handler<PastRecords> for ReaderActor {
    type Result = Result<Vec<Job>, ReadError>;

    fn handle(&mut self, PastRecords(named): PastRecords, _: &mut Self::Context) -> Self::Result {
        Ok(self.reader.accounting(&JobQuery::of(named))?)
    }
}

impl Handler<EndedFacts> for ReaderActor {
    type Result = Result<Vec<EndedJob>, ReadError>;

    fn handle(&mut self, EndedFacts(ids): EndedFacts, _: &mut Self::Context) -> Self::Result {
        ended_facts(&mut self.reader, &ids).map_err(ReadError::from)
    }
}

impl Handler<BatchTexts> for ReaderActor {
    type Result = Result<Option<LaunchTexts>, ReadError>;

    fn handle(&mut self, BatchTexts(job): BatchTexts, _: &mut Self::Context) -> Self::Result {
        Ok(self.reader.launch_texts(job)?)
    }
}

/// What the database knows of jobs that a dependency names: the fate of each, array tasks one by one.
///
/// # Errors
/// The database cannot be read.
pub fn ended_facts(reader: &mut Reader, ids: &[JobId]) -> Result<Vec<EndedJob>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let filter = JobQuery::of(ids.iter().copied().map(JobRef::job).collect());
    let fact = |job: Job| {
        let ended = job.run.end.filter(|_| job.run.state.is_terminal())?;
        let array = match job.role {
            ArrayRole::Task { array_job, task } => Some((array_job, task)),
            _ => None,
        };
        Some(EndedJob { id: job.id, array, ok: job.run.state == JobState::Completed, start: job.run.start, ended })
    };
    Ok(reader.accounting(&filter)?.into_iter().filter_map(fact).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobRequest;
    use crate::model::change::{Change, LaunchTexts, Texts};
    use std::sync::Arc;
    use tokio::sync::mpsc;

    /// Hands on what the store says.
    struct Ear {
        committed: mpsc::UnboundedSender<u64>,
        full: mpsc::UnboundedSender<bool>,
    }

    impl Actor for Ear {
        type Context = Context<Self>;
    }

    impl Handler<Committed> for Ear {
        type Result = ();

        fn handle(&mut self, m: Committed, _: &mut Self::Context) {
            m.result.expect("a commit");
            let _ = self.committed.send(m.seq);
        }
    }

    impl Handler<DiskFull> for Ear {
        type Result = ();

        fn handle(&mut self, DiskFull(is_full): DiskFull, _: &mut Self::Context) {
            let _ = self.full.send(is_full);
        }
    }

    fn insert(seq: u32, script: Vec<u8>) -> Commit {
        let request = Arc::new(JobRequest { name: "t".to_owned(), ..JobRequest::default() });
        let texts = Texts::New(LaunchTexts { script, env: Vec::new() });
        let job = Box::new(Job { id: JobId(seq), request, ..crate::store::testing::job(seq) });
        let changes = vec![Change::Insert { job, texts }];
        Commit { seq: u64::from(seq), changes, texts_for: Vec::new() }
    }

    #[actix_rt::test]
    async fn on_a_full_disk_commits_wait_in_their_order_until_there_is_room() {
        let place = crate::store::testing::Place::new();
        let mut store = place.store();
        // Holds for this connection; the store makes a new one after each failure of SQLite.
        store.limit_pages(40);
        let (committed, mut commits) = mpsc::unbounded_channel();
        let (full, mut disk) = mpsc::unbounded_channel();
        let ear = Ear { committed, full }.start();
        let outputs = StoreOutputs { committed: ear.clone().recipient(), disk_full: ear.recipient() };
        let store = StoreActor::new(store, outputs).start();
        store.do_send(insert(1, vec![b'x'; 1 << 20]));
        assert_eq!(disk.recv().await, Some(true));
        assert!(commits.try_recv().is_err());
        store.do_send(insert(2, Vec::new()));
        assert_eq!((commits.recv().await, commits.recv().await), (Some(1), Some(2)));
        assert_eq!(disk.recv().await, Some(false));
    }
}
