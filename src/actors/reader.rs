//! ReaderActor: answers queries about ended jobs from the database.
//!
//! Owns a read-only connection on its own thread, so that a large sacct query does not delay
//! commits. Receives queries from the sessions and sends nothing. [`Readers`] separates queries by
//! how long they take: a query that a submission needs never waits behind a year of accounting.
//! Readers stop with the daemon. If one dies, its queries are refused, and jobs are not affected.

use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::{
    BatchTexts, EndedFacts, PastBegin, PastCandidates, PastFound, PastJobs, PastRecords, ReadError,
    ReadSource, WithoutEnvironment,
};
use actix::prelude::*;
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::brief::BriefJob;
use slotd_model::change::LaunchTexts;
use slotd_model::query::JobQuery;
use slotd_model::source::Kept;
use slotd_model::view::JobView;
use slotd_model::{Job, JobId, JobRef, StepId};
use slotd_sched::{EndedJob, view_of, view_without_own_step};
use slotd_store::{Reader, StoreError};
use slotd_sys::slice;

/// The maximum number of queries over time windows to run at once.
const WINDOWS_AT_ONCE: usize = 2;

/// The readers, by kind of query.
pub struct Readers {
    facts: Addr<ReaderActor>,
    named: Addr<ReaderActor>,
    windows: Addr<ReaderActor>,
}

impl Readers {
    /// The number of connections.
    pub const COUNT: usize = 2 + WINDOWS_AT_ONCE;

    /// `make` opens a connection. It is called on the thread of each reader.
    pub fn start(make: impl Fn() -> ReaderActor + Clone + Send + Sync + 'static) -> Readers {
        Readers {
            facts: SyncArbiter::start(1, make.clone()),
            named: SyncArbiter::start(1, make.clone()),
            windows: SyncArbiter::start(WINDOWS_AT_ONCE, make),
        }
    }

    /// Returns the reader for facts that a request needs first, such as the ends of the jobs it
    /// names.
    pub fn facts(&self) -> &Addr<ReaderActor> {
        &self.facts
    }

    /// Returns the reader for a query for jobs.
    pub fn for_query(&self, query: &JobQuery) -> &Addr<ReaderActor> {
        if query.jobs.is_empty() { &self.windows } else { &self.named }
    }
}

/// A read-only connection to the database, on its own thread.
pub struct ReaderActor {
    reader: Reader,
    host: String,
    batch_tasks: BatchTasks,
}

impl ReaderActor {
    /// `host` is the node's name and `batch_tasks` a setting of the daemon. Views contain both.
    pub fn new(reader: Reader, host: String, batch_tasks: BatchTasks) -> Self {
        ReaderActor { reader, host, batch_tasks }
    }

    /// Reads those of the records that match the query.
    fn read(&mut self, query: &JobQuery, ids: &[JobId]) -> Result<PastFound, StoreError> {
        let (earlier, jobs) = if query.duplicates {
            self.reader.records_with_runs(ids, query)?
        } else {
            (Vec::new(), self.reader.records(ids, query)?)
        };
        let earlier = earlier
            .into_iter()
            .map(|run| JobView { requeued: run.requeued, ..self.view(run.record, query) });
        let mut found = PastFound::default();
        for view in earlier.chain(jobs.into_iter().map(|job| self.view(job, query))) {
            if query.brief && view.run.state.is_terminal() {
                found.brief.push(BriefJob::of_past(view));
            } else {
                found.jobs.push(view);
            }
        }
        Ok(found)
    }

    /// Returns the requested fields of a record.
    fn view(&self, job: Job, query: &JobQuery) -> JobView {
        let is_batch = job.own_step_id() == Some(StepId::Batch);
        let mut view = if query.without_steps || query.without_batch_steps && is_batch {
            view_without_own_step(job, self.batch_tasks)
        } else {
            view_of(job, self.batch_tasks)
        };
        if query.without_steps {
            view.steps.clear();
        }
        if query.without_paths {
            view.clear_paths()
        } else {
            fill_paths(&mut view, &self.host)
        }
        view
    }
}

impl Actor for ReaderActor {
    type Context = SyncContext<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        slice::shorten();
    }
}

impl Handler<PastJobs> for ReaderActor {
    type Result = Result<PastFound, ReadError>;

    fn handle(&mut self, PastJobs { query, ids }: PastJobs, _: &mut Self::Context) -> Self::Result {
        Ok(self.read(&query, &ids)?)
    }
}

impl Handler<PastBegin> for ReaderActor {
    type Result = Result<(Vec<JobId>, PastFound), ReadError>;

    fn handle(
        &mut self,
        PastBegin { query, first }: PastBegin,
        _: &mut Self::Context,
    ) -> Self::Result {
        let ids = self.reader.candidates(&query)?;
        let found = self.read(&query, &ids[..ids.len().min(first)])?;
        Ok((ids, found))
    }
}

impl Handler<PastCandidates> for ReaderActor {
    type Result = Result<Vec<JobId>, ReadError>;

    fn handle(
        &mut self,
        PastCandidates(query): PastCandidates,
        _: &mut Self::Context,
    ) -> Self::Result {
        Ok(self.reader.candidates(&query)?)
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

impl Handler<ReadSource> for ReaderActor {
    type Result = Result<Option<Kept>, ReadError>;

    fn handle(
        &mut self,
        ReadSource { submission, with_diff }: ReadSource,
        _: &mut Self::Context,
    ) -> Self::Result {
        Ok(self.reader.source(submission, with_diff)?)
    }
}

impl Handler<WithoutEnvironment> for ReaderActor {
    type Result = Result<Option<JobId>, ReadError>;

    fn handle(
        &mut self,
        WithoutEnvironment(named): WithoutEnvironment,
        _: &mut Self::Context,
    ) -> Self::Result {
        Ok(self.reader.without_environment(&named)?)
    }
}

/// Returns facts about the jobs that a dependency names, with one entry per array task.
///
/// # Errors
/// Fails if the database cannot be read.
pub fn ended_facts(reader: &mut Reader, ids: &[JobId]) -> Result<Vec<EndedJob>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let filter = JobQuery::of(ids.iter().copied().map(JobRef::job).collect());
    Ok(reader.accounting(&filter)?.iter().flat_map(EndedJob::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_store::testing::Place;
    use std::sync::Arc;
    use std::sync::mpsc;

    /// Longer than anything in these tests takes.
    const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

    /// Keeps a reader busy until the other end is dropped, like a year of accounting.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Busy(mpsc::Receiver<()>);

    impl Handler<Busy> for ReaderActor {
        type Result = ();

        fn handle(&mut self, Busy(until): Busy, _: &mut Self::Context) -> Self::Result {
            let _ = until.recv();
        }
    }

    #[actix_rt::test]
    async fn short_query_does_not_wait_for_long_ones() {
        let place = Place::new();
        drop(place.store());
        let path = place.path();
        let make = move || {
            ReaderActor::new(
                Reader::open(&path).expect("it is there"),
                "vm".to_owned(),
                BatchTasks::Auto,
            )
        };
        let readers = Readers::start(make);
        let (all, named) = (JobQuery::default(), JobQuery::of(vec![JobRef::job(JobId(1))]));
        // If they shared a queue, this would never return.
        let asked = async {
            let mut ends = Vec::new();
            for query in [&all, &all, &all, &named] {
                let (end, until) = mpsc::channel();
                readers.for_query(query).do_send(Busy(until));
                ends.push(end);
                if query.jobs.is_empty() {
                    let jobs = readers
                        .for_query(&named)
                        .send(PastCandidates(Arc::new(named.clone())))
                        .await
                        .expect("a reader");
                    assert!(jobs.expect("an answer").is_empty());
                }
            }
            let facts = readers.facts().send(EndedFacts(vec![JobId(1)])).await.expect("a reader");
            assert_eq!(facts.expect("an answer"), []);
            let texts = readers.facts().send(BatchTexts(JobId(1))).await.expect("a reader");
            assert_eq!(texts.expect_err("an answer").0, "the database has no job 1");
            drop(ends);
            let jobs = readers
                .for_query(&all)
                .send(PastCandidates(Arc::new(all.clone())))
                .await
                .expect("a reader");
            assert!(jobs.expect("an answer").is_empty());
        };
        tokio::time::timeout(DEADLINE, asked)
            .await
            .expect("short queries do not wait for long ones");
    }
}
