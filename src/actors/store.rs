//! StoreActor: the only writer of the database.
//!
//! Owns the writing connection, on an arbiter of its own, so that a slow disk blocks nobody else. Receives
//! [`Commit`]. Sends [`Committed`] for each, in the order they came. Commits what is waiting as one transaction
//! (group commit): an fsync is paid once for all submissions that arrived during the one before.
//! Stops with the daemon. If it dies the daemon ends, since nothing can be promised without it.
//!
//! [`ReaderActor`] answers queries of the past on a connection of its own, so that a large sacct delays no commit.

use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{BatchTexts, Commit, Committed, EndedFacts, PastJobs, ReadError};
use crate::model::Job;
use crate::model::change::LaunchTexts;
use crate::model::query::AcctFilter;
use crate::model::view::JobView;
use crate::model::{ArrayRole, JobId, JobRef, JobState};
use crate::sched::{BatchTasks, EndedJob, view_of};
use crate::store::{Reader, Store, StoreError};
use actix::prelude::*;

/// Messages that may wait before senders have to.
const MAILBOX: usize = 4096;

pub struct StoreActor {
    store: Store,
    scheduler: Recipient<Committed>,
    waiting: Vec<Commit>,
}

impl StoreActor {
    pub fn new(store: Store, scheduler: Recipient<Committed>) -> Self {
        StoreActor { store, scheduler, waiting: Vec::new() }
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
        if self.waiting.is_empty() {
            ctx.notify(Flush);
        }
        self.waiting.push(commit);
    }
}

impl Handler<Flush> for StoreActor {
    type Result = ();

    fn handle(&mut self, _: Flush, _: &mut Self::Context) {
        let commits = std::mem::take(&mut self.waiting);
        let (heads, batches): (Vec<_>, Vec<_>) = commits.into_iter().map(|c| ((c.seq, c.texts_for), c.changes)).unzip();
        let results = self.store.commit(&batches);
        for ((seq, texts_for), result) in heads.into_iter().zip(results) {
            let result = result.and_then(|()| {
                texts_for
                    .into_iter()
                    .map(|job| Ok((job, self.store.launch_texts(job)?.unwrap_or_default())))
                    .collect::<Result<Vec<_>, _>>()
            });
            self.scheduler.do_send(Committed { seq, result });
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

    fn view(&self, job: &Job) -> JobView {
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
        let jobs = self.reader.accounting(&filter)?;
        Ok(jobs.iter().map(|job| self.view(job)).collect())
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
    let filter = AcctFilter { jobs: ids.iter().copied().map(JobRef::job).collect(), ..AcctFilter::default() };
    let fact = |job: Job| {
        let ended = job.end.filter(|_| job.state.is_terminal())?;
        let array = match job.role {
            ArrayRole::Task { array_job, task } => Some((array_job, task)),
            _ => None,
        };
        Some(EndedJob { id: job.id, array, ok: job.state == JobState::Completed, start: job.start, ended })
    };
    Ok(reader.accounting(&filter)?.into_iter().filter_map(fact).collect())
}
