//! StoreActor: the only writer of the database.
//!
//! Owns the writing connection, on its own arbiter, so that a slow disk blocks no other actor.
//! Receives [`Commits`] and sends one [`Committed`] for each, in order. Commits everything that
//! waits as one transaction (group commit): all submissions that arrive during an fsync share the
//! next one. A temporary fault (a full disk, a lock, a failed fsync) loses no commit and stops no
//! job: commits wait and are retried. Only submissions do not wait: their clients have no job ID
//! yet, and get the fault instead ([`Unstored`], then [`StoreWell`]). As soon as a submission is
//! durable, it answers the client. It stops with the daemon. If it dies, the daemon exits, since it
//! can promise nothing without the database.

use crate::actors::messages::*;
use actix::prelude::*;
use slotd_exec::started::StartedRuns;
use slotd_model::change::{Change, LaunchTexts};
use slotd_model::{JobId, StoreFault};
use slotd_store::{Store, StoreError};
use slotd_sys::break_point;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

pub mod backlog;
mod fresh_texts;

use backlog::Backlog;
use fresh_texts::FreshTexts;

/// The capacity of the mailbox. If it is full, senders wait.
const MAILBOX: usize = 4096;

/// The pause before a faulty database is tried again. For disk errors it doubles with each attempt,
/// since an attempt may take long and slows other uses of the disk.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reports changes to the task that deletes old jobs.
#[derive(Debug, Default)]
pub struct Growth {
    has_changed: AtomicBool,
    inserted: AtomicU64,
    changed: Notify,
    grown: Notify,
}

/// The number of new jobs and ended runs after which to check for too many jobs.
const MANY: u64 = 1000;

impl Growth {
    /// Resets the counts.
    pub fn begin(&self) {
        self.has_changed.store(false, Ordering::Relaxed);
        self.inserted.store(0, Ordering::Relaxed);
    }

    /// Waits for the first change since [`Self::begin`].
    pub async fn changed(&self) {
        while !self.has_changed.load(Ordering::Relaxed) {
            self.changed.notified().await;
        }
    }

    /// Waits until there are [`MANY`] more jobs and runs than at [`Self::begin`].
    pub async fn grown(&self) {
        while self.inserted.load(Ordering::Relaxed) < MANY {
            self.grown.notified().await;
        }
    }

    fn count(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let is_new = |c: &&Change| matches!(c, Change::Insert { .. } | Change::EndRun { .. });
        let new = changes.iter().filter(is_new).count() as u64;
        let before = self.inserted.fetch_add(new, Ordering::Relaxed);
        if before < MANY && before + new >= MANY {
            self.grown.notify_one();
        }
        if !self.has_changed.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }
}

/// The recipients of the store's answers.
pub struct StoreOutputs {
    pub committed: Recipient<Committed>,
    pub unstored: Recipient<Unstored>,
    pub well: Recipient<StoreWell>,
    pub growth: Arc<Growth>,
    /// Knows the assigned job IDs if the database is lost.
    pub started: Arc<StartedRuns>,
}

pub struct StoreActor {
    store: Store,
    outputs: StoreOutputs,
    backlog: Backlog,
    fresh: FreshTexts,
    pause: Duration,
}

impl StoreActor {
    pub fn new(store: Store, outputs: StoreOutputs) -> Self {
        StoreActor {
            store,
            outputs,
            backlog: Backlog::default(),
            fresh: FreshTexts::default(),
            pause: FIRST_PAUSE,
        }
    }

    /// Commits everything that waits, in order, and acknowledges it.
    ///
    /// # Errors
    /// Fails on a temporary fault. The failed commit and those after it still wait.
    fn commit_waiting(&mut self) -> Result<(), StoreError> {
        if self.backlog.fault().is_some() && self.backlog.changes_nothing() {
            // An empty commit would succeed even if the database cannot be written.
            self.store.probe()?;
        }
        let (heads, batches): (Vec<_>, Vec<_>) =
            self.backlog.take().into_iter().map(Head::split).unzip();
        break_point::reach("commit begins");
        let results = self.store.commit(&batches);
        break_point::reach("commit done");
        self.fresh.note(heads.iter().flat_map(|head| &head.texts_for), batches.iter().flatten());
        let (mut fault, mut assigned) = (None, None);
        for ((mut head, mut changes), result) in heads.into_iter().zip(batches).zip(results) {
            if result.is_ok() {
                changes = Vec::new();
                if let Some(Submitted { job, answer }) = head.submission.take() {
                    answer.into_iter().for_each(|answer| answer(job));
                    assigned = assigned.max(Some(job));
                }
            }
            let result = match &fault {
                // It is acknowledged after the ones before it.
                Some(fault) => result.and(Err(StoreError::clone(fault))),
                None => result.and_then(|()| self.texts(&head.texts_for)),
            };
            match result {
                Err(error) if error.fault().is_some() => {
                    self.backlog.push(head.with(changes));
                    fault.get_or_insert(error);
                }
                result => self.outputs.committed.do_send(Committed { seq: head.seq, result }),
            }
        }
        assigned.into_iter().for_each(|job| self.outputs.started.note_assigned(job));
        self.fresh.commit_over();
        fault.map_or(Ok(()), Err)
    }

    fn texts(&mut self, jobs: &[JobId]) -> Result<Vec<(JobId, LaunchTexts)>, StoreError> {
        let StoreActor { fresh, store, .. } = self;
        jobs.iter()
            .map(|job| Ok((*job, fresh.of(*job, |owner| store.launch_texts(owner))?)))
            .collect()
    }

    fn report_fault(&mut self, error: StoreError) {
        if let Some(unstored) = self.backlog.fail(error) {
            self.outputs.unstored.do_send(unstored);
        }
    }
}

/// A commit without its changes.
struct Head {
    seq: u64,
    texts_for: Vec<JobId>,
    submission: Option<Submitted>,
}

impl Head {
    fn split(Commit { seq, changes, texts_for, submission }: Commit) -> (Head, Vec<Change>) {
        (Head { seq, texts_for, submission }, changes)
    }

    fn with(self, changes: Vec<Change>) -> Commit {
        let Head { seq, texts_for, submission } = self;
        Commit { seq, changes, texts_for, submission }
    }
}

impl Actor for StoreActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Commit everything collected so far. The actor sends this to itself, so that it is handled after
/// all messages already received.
#[derive(Message)]
#[rtype(result = "()")]
struct Flush;

impl Handler<Commits> for StoreActor {
    type Result = ();

    fn handle(&mut self, Commits(commits): Commits, ctx: &mut Self::Context) {
        if self.backlog.is_empty() && self.backlog.fault().is_none() {
            ctx.notify(Flush);
        }
        for commit in commits {
            self.outputs.growth.count(&commit.changes);
            self.backlog.push(commit);
        }
        if let Some(error) = self.backlog.fault().cloned() {
            // Sent before the scheduler learned of the fault.
            self.report_fault(error);
        }
    }
}

impl Handler<Flush> for StoreActor {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Self::Context) {
        match self.commit_waiting() {
            Err(error) => {
                // Attempts that fail with these faults cost the disk little.
                let is_cheap = |fault| {
                    matches!(
                        fault,
                        StoreFault::Full
                            | StoreFault::Locked
                            | StoreFault::Moved
                            | StoreFault::MovedLog
                    )
                };
                let doubles = error.fault().is_some_and(|fault| !is_cheap(fault));
                self.pause = match self.backlog.fault() {
                    Some(before) if doubles && before.fault() == error.fault() => {
                        (self.pause * 2).min(LONGEST_PAUSE)
                    }
                    _ => FIRST_PAUSE,
                };
                self.report_fault(error);
                ctx.notify_later(Flush, self.pause);
            }
            Ok(()) => {
                if self.backlog.recover() {
                    self.outputs.well.do_send(StoreWell);
                }
                // This must not delay the acknowledgements.
                self.store.empty_long_log();
            }
        }
    }
}

impl Handler<RemoveRecords> for StoreActor {
    type Result = Result<usize, StoreError>;

    fn handle(&mut self, RemoveRecords(ids): RemoveRecords, _: &mut Self::Context) -> Self::Result {
        self.store.remove(&ids)
    }
}

impl Handler<RemoveRuns> for StoreActor {
    type Result = Result<usize, StoreError>;

    fn handle(
        &mut self,
        RemoveRuns { before, most }: RemoveRuns,
        _: &mut Self::Context,
    ) -> Self::Result {
        self.store.remove_runs(before, most)
    }
}

impl Handler<PutSource> for StoreActor {
    type Result = Result<(), StoreError>;

    fn handle(&mut self, put: PutSource, _: &mut Self::Context) -> Self::Result {
        let PutSource { jobs, at, source, diff, most_diffs } = put;
        self.store.put_source(&jobs, at, &source, diff.as_ref(), most_diffs)
    }
}

impl Handler<DropEnvironments> for StoreActor {
    type Result = Result<(), StoreError>;

    fn handle(
        &mut self,
        DropEnvironments(ids): DropEnvironments,
        _: &mut Self::Context,
    ) -> Self::Result {
        self.store.drop_environments(&ids)
    }
}

impl Handler<Shrink> for StoreActor {
    type Result = Result<bool, StoreError>;

    fn handle(&mut self, _: Shrink, _: &mut Self::Context) -> Self::Result {
        self.store.shrink()
    }
}

impl Handler<OverwriteDeleted> for StoreActor {
    type Result = Result<bool, StoreError>;

    fn handle(&mut self, _: OverwriteDeleted, _: &mut Self::Context) -> Self::Result {
        self.store.overwrite_deleted()
    }
}

impl Handler<CloseStore> for StoreActor {
    type Result = ();

    fn handle(&mut self, _: CloseStore, _: &mut Self::Context) {
        if !self.backlog.is_empty()
            && let Err(error) = self.commit_waiting()
        {
            self.report_fault(error);
        }
        self.store.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::change::Texts;
    use slotd_model::notice::Notice;
    use slotd_model::{ArrayRole, Job, StepId};
    use slotd_store::testing;
    use std::path::Path;
    use tokio::sync::mpsc;

    /// Forwards the store's replies.
    struct ReplySink(mpsc::UnboundedSender<Reply>);

    #[derive(Debug, PartialEq)]
    enum Reply {
        Committed(u64),
        Unstored(StoreFault, Vec<u64>),
        Well,
    }

    impl Actor for ReplySink {
        type Context = Context<Self>;
    }

    impl Handler<Committed> for ReplySink {
        type Result = ();

        fn handle(&mut self, m: Committed, _: &mut Self::Context) {
            m.result.expect("a commit");
            let _ = self.0.send(Reply::Committed(m.seq));
        }
    }

    impl Handler<Unstored> for ReplySink {
        type Result = ();

        fn handle(&mut self, m: Unstored, _: &mut Self::Context) {
            let _ = self.0.send(Reply::Unstored(m.fault, m.withdrawn));
        }
    }

    impl Handler<StoreWell> for ReplySink {
        type Result = ();

        fn handle(&mut self, _: StoreWell, _: &mut Self::Context) {
            let _ = self.0.send(Reply::Well);
        }
    }

    fn start(store: Store) -> (Addr<StoreActor>, mpsc::UnboundedReceiver<Reply>) {
        let (sender, replies) = mpsc::unbounded_channel();
        let sink = ReplySink(sender.clone()).start();
        let outputs = StoreOutputs {
            committed: sink.clone().recipient(),
            unstored: sink.clone().recipient(),
            well: sink.recipient(),
            growth: Arc::default(),
            started: Arc::new(StartedRuns::open(Path::new("/dev/null"))),
        };
        (StoreActor::new(store, outputs).start(), replies)
    }

    async fn next(replies: &mut mpsc::UnboundedReceiver<Reply>) -> Reply {
        replies.recv().await.expect("the store lives")
    }

    fn insert(seq: u32, script: Vec<u8>) -> Commit {
        let texts = Texts::New(LaunchTexts { script, env: Vec::new() });
        let changes = vec![Change::Insert { job: Box::new(testing::job(seq)), texts }];
        Commit { seq: u64::from(seq), changes, texts_for: Vec::new(), submission: None }
    }

    fn submission(seq: u32, script: Vec<u8>) -> Commit {
        let submitted = Submitted { job: JobId(seq), answer: None };
        Commit { submission: Some(submitted), ..insert(seq, script) }
    }

    fn large() -> Vec<u8> {
        vec![b'x'; 1 << 20]
    }

    #[actix_rt::test]
    async fn commits_wait_in_order_while_the_disk_is_full() {
        let place = testing::Place::new();
        let mut store = place.store();
        // The limit applies to this connection. The store opens a new one after each SQLite error.
        store.limit_pages(40);
        let (store, mut replies) = start(store);
        store.do_send(Commits(vec![insert(1, large())]));
        assert_eq!(next(&mut replies).await, Reply::Unstored(StoreFault::Full, Vec::new()));
        store.do_send(Commits(vec![insert(2, Vec::new())]));
        let rest = [next(&mut replies).await, next(&mut replies).await, next(&mut replies).await];
        assert_eq!(rest, [Reply::Committed(1), Reply::Committed(2), Reply::Well]);
    }

    #[actix_rt::test]
    async fn waiting_commits_are_committed_before_the_store_closes() {
        let place = testing::Place::new();
        let (store, _heard) = start(place.store());
        store.do_send(Commits(vec![insert(1, Vec::new())]));
        store.send(CloseStore).await.expect("an answer");
        assert_eq!(place.reader().job(JobId(1)).unwrap(), Some(testing::job(1)));
    }

    #[actix_rt::test]
    async fn submissions_do_not_wait_and_are_not_stored_if_the_disk_is_full() {
        let place = testing::Place::new();
        let mut store = place.store();
        store.limit_pages(40);
        let (store, mut replies) = start(store);
        store.do_send(Commits(vec![submission(1, large())]));
        assert_eq!(next(&mut replies).await, Reply::Unstored(StoreFault::Full, vec![1]));
        // Messages that the scheduler sends before it learns of the fault: a start, an array task
        // of it, and another submission.
        let task =
            Job { role: ArrayRole::Task { array_job: JobId(1), task: 3 }, ..testing::job(2) };
        let texts = Texts::SameAs(JobId(1));
        let split = Change::Insert { job: Box::new(task.clone()), texts };
        let changes = vec![split, Change::Update(Box::new(testing::job(1)))];
        store.do_send(Commits(vec![Commit {
            seq: 2,
            changes,
            texts_for: vec![JobId(1), JobId(2)],
            submission: None,
        }]));
        let started =
            Change::PutStep { job: JobId(2), step: Box::new(testing::step(StepId::Batch)) };
        let notice = Box::new(Notice::of_end(&task, slotd_model::Timestamp(0)));
        let ended = Change::PutNotice { number: 1, job: Some(task.id), notice };
        let changes = vec![started, ended];
        store.do_send(Commits(vec![Commit {
            seq: 3,
            changes,
            texts_for: Vec::new(),
            submission: None,
        }]));
        store.do_send(Commits(vec![submission(4, Vec::new())]));
        assert_eq!(next(&mut replies).await, Reply::Unstored(StoreFault::Full, vec![4]));
        store.do_send(Commits(vec![insert(5, Vec::new())]));
        for seq in 1..=5 {
            assert_eq!(next(&mut replies).await, Reply::Committed(seq));
        }
        assert_eq!(next(&mut replies).await, Reply::Well);
        assert_eq!(testing::all(&mut place.store()), [testing::job(5)]);
        assert_eq!(place.store().untold().expect("it is read"), []);
    }

    #[actix_rt::test]
    async fn commit_waits_for_a_locked_database() {
        let place = testing::Place::new();
        let store = place.store();
        let other = place.locked();
        let (store, mut replies) = start(store);
        store.do_send(Commits(vec![insert(1, Vec::new())]));
        assert_eq!(next(&mut replies).await, Reply::Unstored(StoreFault::Locked, Vec::new()));
        drop(other);
        assert_eq!(
            [next(&mut replies).await, next(&mut replies).await],
            [Reply::Committed(1), Reply::Well]
        );
    }
}
