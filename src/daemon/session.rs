//! A client's connection: requests in, answers and news out.
//!
//! A session decides nothing: it forwards each request as a message and writes what comes back. A malformed request
//! or a vanished client ends the session and nothing else.

use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::actors::{Readers, SchedulerActor};
use crate::daemon::answers::{Answers, Reply};
use crate::daemon::history::History;
use crate::daemon::requests::Requests;
use crate::daemon::wire::FrameReader;
use crate::exec;
use crate::model::change::LaunchTexts;
use crate::model::dependency::Dependency;
use crate::model::job::ClientProcess;
use crate::model::query::{JobQuery, names_record};
use crate::model::request::JobKind;
use crate::model::update::Update;
use crate::model::view::{JobList, JobView};
use crate::model::{Job, JobId, JobRef, Refusal, StepId, Timestamp};
use crate::protocol::answer::{Answer, Outcome};
use crate::protocol::frame::{Frame, FrameError};
use crate::protocol::request::{CancelAsk, ControlAction, Request, StepLaunch, Submit, UsageAsk};
use crate::sched::{EndedJob, Submission, dependency_targets};
use crate::sys::paths::Paths;
use crate::sys::{break_point, limits};
use actix::Addr;
use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{RwLock, mpsc};
use tokio::time::timeout;

/// What sessions talk to.
pub struct Hub {
    pub scheduler: Addr<SchedulerActor>,
    pub readers: Readers,
    pub paths: Paths,
    /// `scontrol show config`.
    pub config: Vec<(String, String)>,
    pub clock: fn() -> Timestamp,
    /// Names the steps' requests while they wait.
    pub next_ticket: Cell<u64>,
    /// Clients that are connected.
    pub connections: Cell<u64>,
    pub answers: Answers,
    pub requests: Requests,
    pub history: Rc<History>,
    /// Held by those who ask the database about the past and act on the answer.
    pub past_in_use: Arc<RwLock<()>>,
}

/// What a client holds: to be released when it is gone.
#[derive(Default)]
struct Held {
    allocation: Option<(JobId, ClientProcess)>,
    tickets: Vec<u64>,
}

struct Session {
    hub: Rc<Hub>,
    /// For answers in parts.
    socket: Rc<UnixStream>,
    news: NewsSender,
    uid: u32,
    held: Held,
}

/// `None`: the answer comes as news. An error: the daemon is shutting down.
type Replied = Result<Option<Reply>, actix::MailboxError>;

/// How long a connection may say nothing at first: commands ask at once.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// How long it may say nothing after an answer, while nothing waits for news there.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(60);

/// Serves one connection until its end.
pub async fn serve(socket: UnixStream, hub: Rc<Hub>) {
    let uid = match socket.peer_cred() {
        Ok(peer) => peer.uid(),
        Err(e) => return log::warn!("a client without credentials was turned away: {e}"),
    };
    let own = nix::unistd::getuid().as_raw();
    let socket = Rc::new(socket);
    if uid != own && uid != 0 {
        let refused = Answer::Refused(Refusal::WrongUser { daemon: own, client: uid });
        let _ = hub.answers.send(&socket, refused, Vec::new()).await;
        return;
    }
    let (news, mut incoming_news) = mpsc::unbounded_channel();
    let (frames_in, mut frames) = mpsc::channel(1);
    let reading = Rc::clone(&socket);
    let reader = actix::spawn(async move {
        let mut reader = FrameReader::new(&reading);
        loop {
            let next = reader.next().await;
            let last = next.is_err();
            if frames_in.send(next).await.is_err() || last {
                break;
            }
        }
    });
    let mut session = Session { hub: Rc::clone(&hub), socket: Rc::clone(&socket), news, uid, held: Held::default() };
    let mut idle = FIRST_WORD;
    loop {
        let is_held = session.is_held();
        let written = tokio::select! {
            // Answers go out before news that came later than the request: both wait in order of their making.
            biased;
            Some(news) = incoming_news.recv() => {
                session.note(&news);
                hub.answers.send(&socket, news, Vec::new()).await
            }
            frame = next_within(&mut frames, (!is_held).then_some(idle)) => match frame {
                Some(Ok((frame, fds))) => {
                    idle = BETWEEN_REQUESTS;
                    match session.answer(frame, fds).await {
                        Some((answer, raw)) => hub.answers.send(&socket, answer, raw).await,
                        None => Ok(()),
                    }
                }
                Some(Err(FrameError::Closed)) | None => break,
                Some(Err(e)) => {
                    let refused = Answer::Refused(Refusal::Malformed(e.to_string()));
                    let _ = hub.answers.send(&socket, refused, Vec::new()).await;
                    break;
                }
            },
        };
        if written.is_err() {
            break;
        }
    }
    reader.abort();
    drop(incoming_news);
    session.release();
}

/// How many records the scheduler is asked for at once.
const MANY_JOBS: usize = 64;

/// How many jobs one part of a long answer has at most: about a megabyte.
const PART: usize = 512;

/// The next frame; `None` where none comes in this time.
async fn next_within<T>(frames: &mut mpsc::Receiver<T>, idle: Option<Duration>) -> Option<T> {
    match idle {
        None => frames.recv().await,
        Some(idle) => timeout(idle, frames.recv()).await.unwrap_or(None),
    }
}

/// Puts what memory knows in the place of records that are not over. A few at a time: whoever asks the scheduler for
/// something meanwhile is served in between.
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

fn refused(why: Refusal) -> Option<Reply> {
    plain(Answer::Refused(why))
}

fn plain(answer: Answer) -> Option<Reply> {
    Some((answer, Vec::new()))
}

impl Session {
    /// Whether something runs, or waits, that this client is told of.
    fn is_held(&self) -> bool {
        self.held.allocation.is_some() || !self.held.tickets.is_empty() || self.news.strong_count() > 1
    }

    /// `None`: the answer comes as news.
    async fn answer(&mut self, frame: Frame, fds: Vec<OwnedFd>) -> Option<Reply> {
        let request: Request = match frame.message() {
            Ok(request) => request,
            Err(e) => return refused(Refusal::Malformed(e.to_string())),
        };
        let kind = request.message_type();
        let began = Instant::now();
        let reply = self.carry_out(request, frame.raw, fds).await;
        self.hub.requests.count(kind, self.uid, began.elapsed());
        reply.unwrap_or_else(|_| refused(Refusal::ShuttingDown))
    }

    async fn carry_out(&mut self, request: Request, raw: Vec<u8>, fds: Vec<OwnedFd>) -> Replied {
        let hub = Rc::clone(&self.hub);
        Ok(match request {
            Request::Ping => {
                plain(Answer::Pong { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() })
            }
            Request::Submit(submit) => return self.submit(*submit, raw).await,
            Request::Jobs(query) => return self.jobs(query).await,
            Request::Accounting(query) => return self.accounting(query).await,
            Request::Usage(ask) => return self.usage(ask).await,
            Request::Node => plain(Answer::Node(Box::new(hub.scheduler.send(QueryNode).await?))),
            Request::Config => plain(Answer::Config(hub.config.clone())),
            Request::Clean { before, dry_run } => match hub.history.clean(before, dry_run).await {
                Ok(cleaned) => plain(Answer::Cleaned(cleaned)),
                Err(why) => refused(Refusal::Database(why)),
            },
            Request::Diagnostics { reset } => return self.diagnostics(reset).await,
            Request::Control { jobs, action } => return self.control(jobs, action).await,
            Request::Cancel(ask) => return self.cancel(ask).await,
            Request::WaitStart(job) => return self.wait(job, true).await,
            Request::WaitEnd(job) => return self.wait(job, false).await,
            Request::Attach { job, client, step, holds } => return self.attach(job, client, step, holds).await,
            Request::LaunchStep(launch) => return self.launch_step(launch, raw, fds).await,
            Request::Release { job, exit } => {
                self.held.allocation = None;
                hub.scheduler.send(ReleaseAllocation { job, exit }).await?;
                None
            }
            Request::BatchScript(job) => return self.batch_text(job, |texts| texts.script).await,
            Request::BatchEnv(job) => return self.batch_text(job, |texts| texts.env).await,
        })
    }

    async fn diagnostics(&self, reset: bool) -> Replied {
        let Hub { scheduler, connections, requests, .. } = &*self.hub;
        let mut answer = scheduler.send(QueryDiagnostics { reset }).await?;
        answer.connections = connections.get();
        answer.requests = requests.kinds();
        answer.users = requests.users();
        if reset {
            requests.reset();
        }
        Ok(plain(Answer::Diagnostics(Box::new(answer))))
    }

    /// Until a job has started (`start`), or until it has ended.
    async fn wait(&self, job: JobId, start: bool) -> Replied {
        let view = self.hub.scheduler.send(WatchJob { job, start, news: self.news.clone() }).await?;
        Ok(match view.map(Box::new) {
            Some(view) if view.run.state.is_terminal() => plain(Answer::Ended { view }),
            Some(view) if start && view.run.state.is_active() => plain(Answer::Granted { view }),
            Some(_) => None,
            None => refused(Refusal::UnknownJob),
        })
    }

    async fn attach(&mut self, job: JobId, client: ClientProcess, step: Option<StepId>, holds: bool) -> Replied {
        let message = AttachClient { job, client, step, holds, news: self.news.clone() };
        Ok(match self.hub.scheduler.send(message).await? {
            Ok(view) => {
                self.held.allocation = holds.then_some((job, client));
                plain(Answer::Granted { view: Box::new(view) })
            }
            Err(why) => refused(why),
        })
    }

    /// The script or the environment of a batch job.
    async fn batch_text(&self, job: JobId, part: fn(LaunchTexts) -> Vec<u8>) -> Replied {
        Ok(match self.hub.readers.facts().send(BatchTexts(job)).await? {
            Ok(Some(texts)) => Some((Answer::Script, part(texts))),
            Ok(None) => refused(Refusal::UnknownJob),
            Err(e) => refused(Refusal::Database(e.0)),
        })
    }

    /// What the database knows, some at a time.
    async fn accounting(&self, query: JobQuery) -> Replied {
        let hub = &self.hub;
        let query = Arc::new(query);
        let reader = hub.readers.for_query(&query);
        let ids = match reader.send(PastCandidates(Arc::clone(&query))).await? {
            Ok(ids) => ids,
            Err(e) => return Ok(refused(Refusal::Database(e.0))),
        };
        let mut parts = ids.chunks(PART);
        loop {
            let ids = parts.next().unwrap_or_default().to_vec();
            let jobs = match reader.send(PastJobs { query: Arc::clone(&query), ids }).await? {
                Ok(jobs) => refreshed(&hub.scheduler, jobs).await?,
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            };
            let list = JobList { jobs, now: (hub.clock)(), unknown: Vec::new() };
            if parts.len() == 0 {
                return Ok(plain(Answer::Jobs(list)));
            }
            if hub.answers.send(&self.socket, Answer::SomeJobs(list), Vec::new()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// What memory knows, and what the database knows of jobs that ended too long ago to be there: by number, some at a
    /// time.
    async fn jobs(&self, query: JobQuery) -> Replied {
        let hub = &self.hub;
        let query = Arc::new(query);
        let (live, mut unknown) = hub.scheduler.send(FindJobs(Arc::clone(&query))).await?;
        let live: BTreeSet<JobId> = live.into_iter().collect();
        let mut ids = live.clone();
        let past = self.past_query(&query, &live).await?.map(Arc::new);
        if let Some(past) = &past {
            match hub.readers.for_query(past).send(PastCandidates(Arc::clone(past))).await? {
                Ok(found) => ids.extend(found),
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            }
        }
        let ids: Vec<JobId> = ids.into_iter().collect();
        let mut parts = ids.chunks(PART);
        loop {
            let (here, gone): (Vec<JobId>, Vec<JobId>) =
                parts.next().unwrap_or_default().iter().partition(|id| live.contains(id));
            let mut list = hub.scheduler.send(QueryJobs { query: Arc::clone(&query), ids: here }).await?;
            if let Some(past) = past.as_ref().filter(|_| !gone.is_empty()) {
                match hub.readers.for_query(past).send(PastJobs { query: Arc::clone(past), ids: gone }).await? {
                    Ok(found) => add_past(&query, &mut list, &mut unknown, found),
                    Err(e) => return Ok(refused(Refusal::Database(e.0))),
                }
            }
            if parts.len() == 0 {
                return Ok(plain(Answer::Jobs(JobList { unknown, ..list })));
            }
            if hub.answers.send(&self.socket, Answer::SomeJobs(list), Vec::new()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// What to ask the database for, where memory does not know everything: the named jobs that are not there, or those
    /// that ended in a window. `None` where memory has it all.
    async fn past_query(
        &self,
        query: &Arc<JobQuery>,
        live: &BTreeSet<JobId>,
    ) -> Result<Option<JobQuery>, actix::MailboxError> {
        if query.jobs.is_empty() {
            let is_window = query.since.is_some() && query.wants_ended();
            return Ok(is_window.then(|| JobQuery::clone(query)));
        }
        // Those that are named are few.
        let ids = live.iter().copied().collect();
        let jobs = self.hub.scheduler.send(QueryJobs { query: Arc::clone(query), ids }).await?.jobs;
        Ok(missing(query, &jobs))
    }

    async fn control(&self, jobs: Vec<JobRef>, action: ControlAction) -> Replied {
        let _in_use = self.hub.past_in_use.read().await;
        if matches!(action, ControlAction::Requeue | ControlAction::RequeueHold) {
            return self.requeue(jobs, action).await;
        }
        Ok(self.change(jobs, action).await?.map_or_else(refused, |outcomes| plain(Answer::Done(outcomes))))
    }

    /// A job without its environment cannot run again.
    async fn requeue(&self, jobs: Vec<JobRef>, action: ControlAction) -> Replied {
        let mut outcomes = Vec::with_capacity(jobs.len());
        for target in jobs {
            let dropped = match self.hub.readers.facts().send(WithoutEnvironment(target.clone())).await? {
                Ok(dropped) => dropped,
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            };
            match dropped {
                Some(job) => outcomes.push(Outcome { target, result: Err(Refusal::EnvironmentDropped(job)) }),
                None => match self.change(vec![target], action.clone()).await? {
                    Ok(done) => outcomes.extend(done),
                    Err(why) => return Ok(refused(why)),
                },
            }
        }
        Ok(plain(Answer::Done(outcomes)))
    }

    /// One outcome for each job, in order. A job that ended too long ago to be in memory is looked for in the database.
    async fn change(
        &self,
        jobs: Vec<JobRef>,
        action: ControlAction,
    ) -> Result<Result<Vec<Outcome>, Refusal>, actix::MailboxError> {
        let ended = match &action {
            ControlAction::Update(updates) => {
                self.facts_of(dependency_targets(updates.iter().filter_map(dependency_of))).await?
            }
            _ => Vec::new(),
        };
        let first = ControlJobs { jobs, action: action.clone(), ended: ended.clone(), recalled: Vec::new() };
        let mut outcomes = self.hub.scheduler.send(first).await?;
        let is_unknown = |outcome: &&mut Outcome| outcome.result == Err(Refusal::UnknownJob);
        let jobs: Vec<JobRef> = outcomes.iter_mut().filter(is_unknown).map(|outcome| outcome.target.clone()).collect();
        if !jobs.is_empty() {
            let recalled = match self.past(jobs.clone()).await? {
                Ok(recalled) => recalled,
                Err(why) => return Ok(Err(why)),
            };
            let again = ControlJobs { jobs, action, ended, recalled };
            let again = self.hub.scheduler.send(again).await?;
            outcomes.iter_mut().filter(is_unknown).zip(again).for_each(|(outcome, known)| *outcome = known);
        }
        Ok(Ok(outcomes))
    }

    /// A job that ended too long ago to be in memory is as done as one that has just ended.
    async fn cancel(&self, ask: CancelAsk) -> Replied {
        let is_plain = ask.signal.is_none();
        let mut outcomes = self.hub.scheduler.send(CancelJobs(ask)).await?;
        let is_unknown = |outcome: &&mut Outcome| {
            is_plain && outcome.target.step.is_none() && outcome.result == Err(Refusal::UnknownJob)
        };
        let named: Vec<JobRef> = outcomes.iter_mut().filter(is_unknown).map(|outcome| outcome.target.clone()).collect();
        let past = match self.past(named).await? {
            Ok(past) => past,
            Err(why) => return Ok(refused(why)),
        };
        for outcome in outcomes.iter_mut().filter(is_unknown) {
            if past.iter().any(|job| names_record(&outcome.target, job.id, &job.role)) {
                outcome.result = Err(Refusal::AlreadyDone);
            }
        }
        Ok(plain(Answer::Done(outcomes)))
    }

    /// The steps that run. A job that ended too long ago to be in memory is known, and has none.
    async fn usage(&self, ask: UsageAsk) -> Replied {
        let (mut list, processes) = self.hub.scheduler.send(QueryUsage(ask)).await?;
        let past = match self.past(list.unknown.iter().map(|id| JobRef::job(*id)).collect()).await? {
            Ok(past) => past,
            Err(why) => return Ok(refused(why)),
        };
        list.unknown.retain(|id| !past.iter().any(|job| job.id == *id || job.array_job_id() == Some(*id)));
        Ok(plain(Answer::Usage { list, processes }))
    }

    /// What the database has of these jobs.
    async fn past(&self, named: Vec<JobRef>) -> Result<Result<Vec<Job>, Refusal>, actix::MailboxError> {
        if named.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        Ok(self.hub.readers.facts().send(PastRecords(named)).await?.map_err(|e| Refusal::Database(e.0)))
    }

    /// What the database knows of jobs that a dependency names.
    async fn facts_of(&self, ids: Vec<JobId>) -> Result<Vec<EndedJob>, actix::MailboxError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.hub.readers.facts().send(EndedFacts(ids)).await?.unwrap_or_else(|e| {
            log::error!("the database could not tell of dependencies: {}", e.0);
            Vec::new()
        }))
    }

    async fn submit(&mut self, submit: Submit, mut raw: Vec<u8>) -> Replied {
        if submit.script_len > raw.len() {
            let why = "malformed message: the script is shorter than announced";
            return Ok(refused(Refusal::Malformed(why.to_owned())));
        }
        let env = raw.split_off(submit.script_len);
        let texts = LaunchTexts { script: raw, env };
        // What it waits for must not be removed before the wait is durable.
        let _in_use = match submit.request.dependency.is_empty() {
            true => None,
            false => Some(Arc::clone(&self.hub.past_in_use).read_owned().await),
        };
        let ended = self.facts_of(dependency_targets([&submit.request.dependency])).await?;
        let client = submit.client;
        let script = (submit.request.kind == JobKind::Batch).then(|| texts.script.clone());
        let submission = Submission { request: submit.request, texts, client: Some(client), ended };
        if submit.test_only {
            return Ok(plain(match self.hub.scheduler.send(TestSubmission(submission)).await? {
                Ok(estimate) => Answer::WouldStart {
                    job: estimate.id,
                    at: estimate.start,
                    cpus: estimate.cpus,
                    partition: estimate.partition,
                },
                Err(refused) => Answer::Refused(refused),
            }));
        }
        let waits = submit.wait || client.holds;
        let message = SubmitJob { submission, again: submit.again, news: waits.then(|| self.news.clone()) };
        let promised = self.hub.scheduler.send(message).await?;
        break_point::reach("submission promised");
        Ok(plain(match promised {
            Ok(job) => {
                self.held.allocation = client.holds.then_some((job, client.process));
                if let Some(script) = script {
                    self.store_script(job, script).await;
                }
                Answer::Submitted { job }
            }
            Err(refused) => Answer::Refused(refused),
        }))
    }

    /// Puts the script of a job that is durable into the job's directory. The job runs without that file, too.
    async fn store_script(&self, job: JobId, script: Vec<u8>) {
        let job_dir = self.hub.paths.job_dir(job);
        let stored = tokio::task::spawn_blocking(move || exec::store_script(&job_dir, &script)).await;
        if let Ok(Err(why)) = stored {
            log::warn!("job {job}: {why}");
        }
    }

    async fn launch_step(&mut self, launch: Box<StepLaunch>, env: Vec<u8>, fds: Vec<OwnedFd>) -> Replied {
        if fds.len() < launch.descriptors() {
            // The kernel drops those that there is no room for.
            return Ok(refused(Refusal::NoDescriptors(limits::descriptors().unwrap_or_default())));
        }
        let ticket = self.hub.next_ticket.get();
        self.hub.next_ticket.set(ticket + 1);
        let message = CreateStep { launch, env, fds, news: self.news.clone(), ticket };
        Ok(match self.hub.scheduler.send(message).await? {
            Ok(()) => {
                self.held.tickets.push(ticket);
                None
            }
            Err(why) => refused(why),
        })
    }

    /// What the news mean for what this client holds.
    fn note(&mut self, news: &Answer) {
        match news {
            Answer::Ended { .. } => self.held.allocation = None,
            Answer::StepStarted { .. } => self.held.tickets.clear(),
            _ => {}
        }
    }

    fn release(self) {
        for ticket in self.held.tickets {
            self.hub.scheduler.do_send(AbandonStep { ticket });
        }
        if let Some((job, client)) = self.held.allocation {
            self.hub.scheduler.do_send(ClientGone { job, client });
        }
    }
}

fn dependency_of(update: &Update) -> Option<&Dependency> {
    match update {
        Update::Dependency(dependency) => Some(dependency),
        _ => None,
    }
}

/// The jobs that are named and are not in memory.
fn missing(query: &JobQuery, known: &[JobView]) -> Option<JobQuery> {
    let numbers: HashSet<JobId> = known.iter().flat_map(|job| [Some(job.id), job.array_job_id()]).flatten().collect();
    let is_there = |named: &&JobRef| match named.tasks {
        None => numbers.contains(&named.job),
        Some(_) => known.iter().any(|job| names_record(named, job.id, &job.role)),
    };
    let missing: Vec<JobRef> = query.jobs.iter().filter(|named| !is_there(named)).cloned().collect();
    (!missing.is_empty()).then(|| JobQuery::of(missing))
}

/// Adds what the database found. What is not over there is known better in memory.
fn add_past(query: &JobQuery, list: &mut JobList, unknown: &mut Vec<JobId>, found: Vec<JobView>) {
    for mut job in found.into_iter().filter(|job| job.run.state.is_terminal()) {
        unknown.retain(|id| *id != job.id && Some(*id) != job.array_job_id());
        if !query.matches(&job) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn a_silent_client_is_let_go_unless_something_waits_for_it() {
        tokio::time::pause();
        let (say, mut frames) = mpsc::channel::<u8>(1);
        assert_eq!(next_within(&mut frames, Some(FIRST_WORD)).await, None);
        let held = timeout(BETWEEN_REQUESTS * 100, next_within(&mut frames, None)).await;
        assert!(held.is_err(), "it may be silent for ever");
        say.send(7).await.unwrap();
        assert_eq!(next_within(&mut frames, Some(FIRST_WORD)).await, Some(7));
    }
}
