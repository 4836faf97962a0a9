//! Answers about many jobs, in parts: from memory, and from the database for jobs that are no
//! longer in memory.

use super::{Hub, Replied, Session, plain, refused};
use crate::actors::SchedulerActor;
use crate::actors::feed::Feed;
use crate::actors::messages::*;
use actix::Addr;
use slotd_exec::job_dirs;
use slotd_model::Refusal;
use slotd_model::brief::BriefJob;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::series::StepSeries;
use slotd_model::view::{JobList, JobView};
use slotd_model::{JobId, JobRef, StepId, StepKey, TaskSet};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::UsageAsk;
use slotd_sys::aside;
use std::sync::Arc;

/// The most records to request from the scheduler at once.
const MANY_JOBS: usize = 64;

/// The most jobs in one part of a long answer: about a megabyte.
const PART: usize = 512;

/// The same for brief records: small enough for the CPU caches on both sides.
const BRIEF_PART: usize = 256;

impl Session {
    /// Sends records from the database, in parts. If there are more than `most`, which is less than
    /// a part, sends none and returns [`Answer::NotPlain`].
    pub(super) async fn accounting(&self, query: JobQuery, most: usize) -> Replied {
        let hub = &self.hub;
        let query = Arc::new(query);
        let reader = hub.readers.for_query(&query);
        let list_of = async |PastFound { jobs, mut brief }| {
            let mut jobs = refreshed(&hub.scheduler, jobs).await?;
            if query.brief {
                brief.extend(jobs.drain(..).map(BriefJob::of_past));
            }
            Ok::<_, actix::MailboxError>(JobList { jobs, brief, ..JobList::at((hub.clock)()) })
        };
        let read = async |ids: &[JobId]| {
            let (waiting, ids) = never_run(&hub.scheduler, &query, ids).await?;
            let found = reader.send(PastJobs { query: Arc::clone(&query), ids }).await?;
            Ok::<_, actix::MailboxError>(match found {
                Ok(mut found) => {
                    found.brief.extend(waiting);
                    Ok(list_of(found).await?)
                }
                Err(e) => Err(e),
            })
        };
        let begin = PastBegin { query: Arc::clone(&query), first: PART.min(most) };
        let (ids, found) = match reader.send(begin).await? {
            Ok((ids, _)) if ids.len() > most => return Ok(plain(Answer::NotPlain)),
            Ok(begun) => begun,
            Err(e) => return Ok(refused(Refusal::Database(e.0))),
        };
        let mut parts = ids.chunks(PART).skip(1);
        let mut list: Result<_, ReadError> = Ok(list_of(found).await?);
        loop {
            let part = match list {
                Ok(list) => list,
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            };
            let Some(next) = parts.next() else { return Ok(plain(Answer::Jobs(part))) };
            // Read the next part from the database while this one is encoded and read by the
            // client.
            let send = hub.answers.send(&self.socket, Answer::SomeJobs(part), Vec::new());
            let (sent, read) = tokio::join!(send, read(next));
            if sent.is_err() {
                return Ok(None);
            }
            list = read?;
        }
    }

    /// Sends jobs from memory, and from the database those that ended too long ago. They come in
    /// order of ID, in parts. If there are more than `most`, which is less than a part, sends none
    /// and returns [`Answer::NotPlain`].
    pub(super) async fn jobs(&self, query: JobQuery, most: usize) -> Replied {
        let hub = &self.hub;
        let query = Arc::new(query);
        // Registered before the first record is read. A single part is consistent anyway.
        let has_parts = most > BRIEF_PART;
        let mut feed =
            if query.one_moment && has_parts { Some(self.changes().await?) } else { None };
        let Some((live, unknown, at_once)) = self.find(&query, most).await? else {
            return Ok(plain(Answer::NotPlain));
        };
        let mut gone = Vec::new();
        let past = self.past_query(&query, &live).await?.map(Arc::new);
        if let Some(past) = &past {
            match hub.readers.for_query(past).send(PastCandidates(Arc::clone(past))).await? {
                Ok(found) => gone = found,
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            }
            gone.retain(|id| live.binary_search(id).is_err());
            if !query.wants_ended() {
                keep_proofs(&mut gone, &unknown);
            }
        }
        let mut ids = [live.as_slice(), &gone].concat();
        if ids.len() > most {
            return Ok(plain(Answer::NotPlain));
        }
        ids.sort_unstable();
        let mut parts = ids.chunks(if query.brief { BRIEF_PART } else { PART });
        let past = past.map(with_arrays);
        let mut reading = Reading { query, past, live, unknown };
        let first = parts.next().unwrap_or_default();
        let again = at_once && parts.len() == 0;
        let mut list = reading.part(hub, first, again, None).await?;
        loop {
            let part = match list {
                Ok(part) => part,
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            };
            let Some(next) = parts.next() else {
                return Ok(plain(Answer::Jobs(JobList { unknown: reading.unknown, ..part })));
            };
            // A short answer is consistent anyway.
            let changes = if parts.len() == 0 { feed.take() } else { None };
            let send = hub.answers.send(&self.socket, Answer::SomeJobs(part), Vec::new());
            let (sent, read) = match changes {
                // It includes the changes until the client has read this part.
                Some(changes) => (send.await, reading.part(hub, next, false, Some(changes)).await),
                // Read it while this part is encoded and read by the client.
                None => tokio::join!(send, reading.part(hub, next, false, None)),
            };
            if sent.is_err() {
                return Ok(None);
            }
            list = read?;
        }
    }

    /// Returns a feed of the changes from now on.
    async fn changes(&self) -> Result<Feed, actix::MailboxError> {
        let feed = Feed::new();
        // Skip its initial state, in which everything has changed.
        feed.take();
        self.hub.scheduler.send(WatchChanges(feed.sender())).await?;
        Ok(feed)
    }

    /// Returns the matching records in memory by ID, the IDs named in the query that do not exist,
    /// and whether one message was enough. Returns `None` if there are more than `most`.
    async fn find(
        &self,
        query: &Arc<JobQuery>,
        most: usize,
    ) -> Result<Option<(Vec<JobId>, Vec<JobId>, bool)>, actix::MailboxError> {
        let scheduler = &self.hub.scheduler;
        let mut all = scheduler.send(FindJobs { query: Arc::clone(query), after: None }).await?;
        let at_once = all.next.is_none();
        while let Some(after) = all.next.filter(|_| all.ids.len() <= most) {
            let more =
                scheduler.send(FindJobs { query: Arc::clone(query), after: Some(after) }).await?;
            all.ids.extend(more.ids);
            all.next = more.next;
        }
        Ok((all.ids.len() <= most).then_some((all.ids, all.unknown, at_once)))
    }

    /// Returns the query for the database: the named jobs that are not in memory, or those that
    /// ended in a window of time. `None` if memory has them all.
    async fn past_query(
        &self,
        query: &Arc<JobQuery>,
        live: &[JobId],
    ) -> Result<Option<JobQuery>, actix::MailboxError> {
        if query.jobs.is_empty() {
            let is_window = query.since.is_some() && query.wants_ended();
            // Request full records: they are matched against the query again.
            let whole = || JobQuery {
                brief: false,
                without_steps: false,
                without_paths: false,
                ..JobQuery::clone(query)
            };
            return Ok(is_window.then(whole));
        }
        // Named jobs are few. Their requests have the tasks of arrays.
        let ids = live.to_vec();
        let known = JobQuery { without_steps: true, without_paths: true, ..JobQuery::default() };
        let known = QueryJobs { query: Arc::new(known), ids, again: false, since: None };
        Ok(missing(query, &self.hub.scheduler.send(known).await?.jobs))
    }

    /// Sends the running steps. A job that ended too long ago to be in memory is known, but has
    /// none.
    pub(super) async fn usage(&self, ask: UsageAsk) -> Replied {
        let (mut list, measured) = self.hub.scheduler.send(QueryUsage(ask)).await?;
        let past = match self.past(list.unknown.iter().map(|id| JobRef::job(*id)).collect()).await?
        {
            Ok(past) => past,
            Err(why) => return Ok(refused(why)),
        };
        list.unknown
            .retain(|id| !past.iter().any(|job| job.id == *id || job.array_job_id() == Some(*id)));
        let processes = measured.into_iter().map(|(key, usage)| (key, usage.pids)).collect();
        Ok(plain(Answer::Usage { list, processes }))
    }

    /// Sends the usage of the steps of these jobs over time: fresh measurements for running steps,
    /// and the records in the job directory for the others.
    pub(super) async fn over_time(&self, named: Vec<JobRef>) -> Replied {
        let ask = UsageAsk { steps: named.clone(), all_steps: true };
        let (list, measured) = self.hub.scheduler.send(QueryUsage(ask)).await?;
        let unknown = named.into_iter().filter(|named| list.unknown.contains(&named.job)).collect();
        let past = match self.past(unknown).await? {
            Ok(past) => past,
            Err(why) => return Ok(refused(why)),
        };
        let start = |key: &StepKey| {
            let job = list.jobs.iter().find(|job| job.id == key.job)?;
            job.steps.iter().find(|step| step.id == key.step).map(|step| step.start)
        };
        let running = measured.into_iter().filter_map(|(step, usage)| {
            Some(StepSeries { start: start(&step)?, step, series: usage.over_time })
        });
        let mut all: Vec<StepSeries> = running.filter(|one| !one.series.is_empty()).collect();
        let live = list.jobs.iter().map(|view| &view.job);
        let of: Vec<_> =
            live.chain(&past).map(|job| (job.id, job.run.restarts, job.own_step_id())).collect();
        let paths = self.hub.paths.clone();
        let read = move || {
            let of_job = |(id, run, own): (JobId, u32, Option<StepId>)| {
                let mut ended = job_dirs::over_time(&paths.job_dir(id), id, Some(run));
                // The command of a run is launched as the batch step.
                let batch = ended.iter_mut().filter(|one| one.step.step == StepId::Batch);
                batch.for_each(|one| one.step.step = own.unwrap_or(StepId::Batch));
                ended
            };
            of.into_iter().flat_map(of_job).collect::<Vec<_>>()
        };
        let ended = aside::run("reading the usage of steps over time", aside::PATIENCE, read)
            .await
            .unwrap_or_else(|why| {
                log::error!("could not read the usage of steps over time: {why}");
                Vec::new()
            });
        // A step may have ended after it was measured.
        let is_new = |one: &StepSeries| !all.iter().any(|known| known.step == one.step);
        let ended: Vec<StepSeries> = ended.into_iter().filter(is_new).collect();
        all.extend(ended);
        all.sort_by_key(|one| (one.step.job, one.start, one.step.step));
        Ok(plain(Answer::OverTime(all)))
    }
}

/// A query for jobs in memory and in the database that is answered in parts.
struct Reading {
    query: Arc<JobQuery>,
    /// The query for the database, if any.
    past: Option<Arc<JobQuery>>,
    /// The matching records in memory.
    live: Vec<JobId>,
    /// The IDs named in the query that were found nowhere so far.
    unknown: Vec<JobId>,
}

impl Reading {
    /// Reads the records with these IDs, or those that a search `again` finds. `changes` is the
    /// feed since before the first part if this is the last of several parts and has to repeat the
    /// records that changed.
    async fn part(
        &mut self,
        hub: &Hub,
        ids: &[JobId],
        again: bool,
        changes: Option<Feed>,
    ) -> Result<Result<JobList, ReadError>, actix::MailboxError> {
        let (here, gone): (Vec<JobId>, Vec<JobId>) =
            ids.iter().partition(|id| self.live.binary_search(id).is_ok());
        let since = changes.map(|changes| Since { ids: self.live.clone(), changes });
        let query = QueryJobs { query: Arc::clone(&self.query), ids: here, again, since };
        let mut list = hub.scheduler.send(query).await?;
        if let Some(past) = self.past.as_ref().filter(|_| !gone.is_empty()) {
            let query = PastJobs { query: Arc::clone(past), ids: gone };
            match hub.readers.for_query(past).send(query).await? {
                Ok(found) => add_past(&self.query, &mut list, &mut self.unknown, found.jobs),
                Err(e) => return Ok(Err(e)),
            }
        }
        Ok(Ok(list))
    }
}

/// Returns the brief records of the matching jobs that have never run, and the IDs of the others. A
/// long queue is read from memory in a fraction of the time. Other queries have no brief records.
async fn never_run(
    scheduler: &Addr<SchedulerActor>,
    query: &Arc<JobQuery>,
    ids: &[JobId],
) -> Result<(Vec<BriefJob>, Vec<JobId>), actix::MailboxError> {
    if !query.brief {
        return Ok((Vec::new(), ids.to_vec()));
    }
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for ids in ids.chunks(BRIEF_PART) {
        let query = Arc::clone(query);
        let (waiting, rest) = scheduler.send(FindNeverRun { query, ids: ids.to_vec() }).await?;
        found.extend(waiting);
        others.extend(rest);
    }
    Ok((found, others))
}

/// Replaces unfinished records by those in memory, a few at a time, so that the scheduler can serve
/// others in between.
async fn refreshed(
    scheduler: &Addr<SchedulerActor>,
    mut jobs: Vec<JobView>,
) -> Result<Vec<JobView>, actix::MailboxError> {
    let is_live = |job: &JobView| !job.run.state.is_terminal();
    let places: Vec<usize> = (0..jobs.len()).filter(|i| is_live(&jobs[*i])).collect();
    for places in places.chunks(MANY_JOBS) {
        let old = places.iter().map(|i| std::mem::take(&mut jobs[*i])).collect();
        let new = scheduler.send(RefreshLive(old)).await?;
        places.iter().zip(new).for_each(|(i, job)| jobs[*i] = job);
    }
    Ok(jobs)
}

/// Returns a query for the named jobs that are missing from memory, entirely or in part: the ended
/// tasks of an array leave memory one by one while others wait or run.
fn missing(query: &JobQuery, known: &[JobView]) -> Option<JobQuery> {
    let is_there = |named: &&JobRef| {
        let of_array = || known.iter().filter(|job| job.array_job_id() == Some(named.job));
        let array = of_array().next().and_then(|job| job.request.array.as_ref());
        match array.filter(|_| query.wants_ended()) {
            None => known.iter().any(|job| names_record(named, job.id, &job.role)),
            Some(array) => {
                let (all, named) = (&array.tasks, named.tasks.as_ref());
                let wanted = |tasks: &TaskSet| {
                    named.map_or(tasks.len(), |named| named.intersection(tasks).len())
                };
                let here: usize = of_array().map(|job| wanted(&job.role.tasks())).sum();
                here >= wanted(all)
            }
        }
    };
    let missing: Vec<JobRef> =
        query.jobs.iter().filter(|named| !is_there(named)).cloned().collect();
    (!missing.is_empty()).then(|| JobQuery::of(missing))
}

/// Returns the query that also selects the record with the ID of an array whose tasks are named: it
/// shows that the array exists, even if it never had these tasks.
fn with_arrays(past: Arc<JobQuery>) -> Arc<JobQuery> {
    let jobs = past.jobs.iter().map(|named| JobRef::job(named.job)).collect();
    Arc::new(JobQuery { jobs, ..JobQuery::clone(&past) })
}

/// Keeps only the ended jobs that show that the named ones exist, if nothing else is wanted of
/// them. The record with the ID of an array shows that the array exists. Keeps all if one is missing.
fn keep_proofs(gone: &mut Vec<JobId>, named: &[JobId]) {
    gone.sort_unstable();
    if named.iter().all(|id| gone.binary_search(id).is_ok()) {
        *gone = named.to_vec();
    }
}

/// Adds jobs that the database returned. Skips unfinished ones, since the records in memory are
/// more recent.
fn add_past(query: &JobQuery, list: &mut JobList, unknown: &mut Vec<JobId>, found: Vec<JobView>) {
    for mut job in found.into_iter().filter(|job| job.run.state.is_terminal()) {
        unknown.retain(|id| *id != job.id && Some(*id) != job.array_job_id());
        if !query.matches(&job) {
            continue;
        }
        if query.brief {
            list.brief.push(BriefJob::of(&job));
            continue;
        }
        if query.without_paths {
            job.clear_paths();
        }
        if query.without_steps {
            job.steps.clear();
        }
        list.jobs.push(job);
    }
    list.jobs.sort_by_key(|job| job.id);
    list.brief.sort_by_key(|job| job.id);
}
