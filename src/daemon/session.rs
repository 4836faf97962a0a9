//! A client's connection: requests in, answers and news out.
//!
//! A session decides nothing: it forwards each request as a message and writes what comes back. A malformed request
//! or a vanished client ends the session and nothing else.

use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::actors::{ReaderActor, SchedulerActor};
use crate::daemon::requests::Requests;
use crate::daemon::wire::FrameReader;
use crate::exec;
use crate::exec::launch_spec::{SignalScope, StepCommand};
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
use crate::sys::socket::send_all_async;
use actix::Addr;
use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// What sessions talk to.
pub struct Hub {
    pub scheduler: Addr<SchedulerActor>,
    pub reader: Addr<ReaderActor>,
    pub paths: Paths,
    /// `scontrol show config`.
    pub config: Vec<(String, String)>,
    pub clock: fn() -> Timestamp,
    /// Names the steps' requests while they wait.
    pub next_ticket: Cell<u64>,
    /// Clients that are connected.
    pub connections: Cell<u64>,
    pub requests: Requests,
}

/// What a client holds: to be released when it is gone.
#[derive(Default)]
struct Held {
    allocation: Option<(JobId, ClientProcess)>,
    tickets: Vec<u64>,
}

struct Session {
    hub: Rc<Hub>,
    news: NewsSender,
    uid: u32,
    held: Held,
}

/// An answer and the raw part of its frame.
type Reply = (Answer, Vec<u8>);

/// `None`: the answer comes as news. An error: the daemon is shutting down.
type Replied = Result<Option<Reply>, actix::MailboxError>;

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
        let _ = send(&socket, refused, Vec::new()).await;
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
    hub.connections.update(|n| n + 1);
    let mut session = Session { hub, news, uid, held: Held::default() };
    loop {
        let written = tokio::select! {
            // Answers go out before news that came later than the request: both wait in order of their making.
            biased;
            Some(news) = incoming_news.recv() => {
                session.note(&news);
                send(&socket, news, Vec::new()).await
            }
            frame = frames.recv() => match frame {
                Some(Ok((frame, fds))) => match session.answer(frame, fds).await {
                    Some((answer, raw)) => send(&socket, answer, raw).await,
                    None => Ok(()),
                },
                Some(Err(FrameError::Closed)) | None => break,
                Some(Err(e)) => {
                    let _ = send(&socket, Answer::Refused(Refusal::Malformed(e.to_string())), Vec::new()).await;
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
    session.hub.connections.update(|n| n.saturating_sub(1));
    session.release();
}

/// An answer with more jobs than this is written out on another thread: the scheduler does not wait for it.
const MANY_JOBS: usize = 256;

async fn send(socket: &UnixStream, answer: Answer, raw: Vec<u8>) -> Result<(), FrameError> {
    let many = matches!(&answer, Answer::Jobs(list) if list.jobs.len() > MANY_JOBS);
    let encode = move || match Frame::encode(&answer, &raw) {
        Ok(bytes) => Ok(bytes),
        Err(e) => Frame::encode(&Answer::Refused(Refusal::Unsendable(e.to_string())), &[]),
    };
    let bytes = if many {
        tokio::task::spawn_blocking(encode).await.map_err(|e| FrameError::Io(std::io::Error::other(e)))??
    } else {
        encode()?
    };
    Ok(send_all_async(socket, &bytes, &[]).await?)
}

fn refused(why: Refusal) -> Option<Reply> {
    plain(Answer::Refused(why))
}

fn plain(answer: Answer) -> Option<Reply> {
    Some((answer, Vec::new()))
}

impl Session {
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
            Request::Accounting(query) => match hub.reader.send(PastJobs(query)).await? {
                Ok(jobs) => {
                    let now = (hub.clock)();
                    let jobs = hub.scheduler.send(RefreshLive(jobs)).await?;
                    plain(Answer::Jobs(JobList { jobs, now, unknown: Vec::new() }))
                }
                Err(e) => refused(Refusal::Database(e.0)),
            },
            Request::Usage(ask) => return self.usage(ask).await,
            Request::Node => plain(Answer::Node(hub.scheduler.send(QueryNode).await?)),
            Request::Config => plain(Answer::Config(hub.config.clone())),
            Request::Diagnostics { reset } => return self.diagnostics(reset).await,
            Request::Control { jobs, action } => return self.control(jobs, action).await,
            Request::Cancel(ask) => return self.cancel(ask).await,
            Request::WaitStart(job) => return self.wait(job, true).await,
            Request::WaitEnd(job) => return self.wait(job, false).await,
            Request::Attach { job, client, step, holds } => return self.attach(job, client, step, holds).await,
            Request::LaunchStep(launch) => return self.launch_step(launch, raw, fds).await,
            Request::SignalStep { step, signal } => {
                let command = StepCommand::Signal { signal, target: SignalScope::Tasks };
                hub.scheduler.send(TellStep { step, command }).await?;
                plain(Answer::Signalled)
            }
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
        Ok(match self.hub.reader.send(BatchTexts(job)).await? {
            Ok(Some(texts)) => Some((Answer::Script, part(texts))),
            Ok(None) => refused(Refusal::UnknownJob),
            Err(e) => refused(Refusal::Database(e.0)),
        })
    }

    /// What memory knows, and what the database knows of jobs that ended too long ago to be there.
    async fn jobs(&self, query: JobQuery) -> Replied {
        let mut list = self.hub.scheduler.send(QueryJobs(query.clone())).await?;
        if let Some(past) = past_query(&query, &list) {
            match self.hub.reader.send(PastJobs(past)).await? {
                Ok(found) => add_past(&query, &mut list, found),
                Err(e) => return Ok(refused(Refusal::Database(e.0))),
            }
        }
        Ok(plain(Answer::Jobs(list)))
    }

    async fn control(&self, jobs: Vec<JobRef>, action: ControlAction) -> Replied {
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
                Err(why) => return Ok(refused(why)),
            };
            let again = ControlJobs { jobs, action, ended, recalled };
            let again = self.hub.scheduler.send(again).await?;
            outcomes.iter_mut().filter(is_unknown).zip(again).for_each(|(outcome, known)| *outcome = known);
        }
        Ok(plain(Answer::Done(outcomes)))
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
        Ok(self.hub.reader.send(PastRecords(named)).await?.map_err(|e| Refusal::Database(e.0)))
    }

    /// What the database knows of jobs that a dependency names.
    async fn facts_of(&self, ids: Vec<JobId>) -> Result<Vec<EndedJob>, actix::MailboxError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.hub.reader.send(EndedFacts(ids)).await?.unwrap_or_else(|e| {
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
        Ok(plain(match self.hub.scheduler.send(message).await? {
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

/// What to ask the database for, where memory does not know everything: the named jobs that are not there, or those that
/// ended in a window. `None` where memory has it all.
fn past_query(query: &JobQuery, list: &JobList) -> Option<JobQuery> {
    let numbers: HashSet<JobId> =
        list.jobs.iter().flat_map(|job| [Some(job.id), job.array_job_id()]).flatten().collect();
    let is_there = |named: &&JobRef| match named.tasks {
        None => numbers.contains(&named.job),
        Some(_) => list.jobs.iter().any(|job| names_record(named, job.id, &job.role)),
    };
    let missing: Vec<JobRef> = query.jobs.iter().filter(|named| !is_there(named)).cloned().collect();
    if !missing.is_empty() {
        return Some(JobQuery::of(missing));
    }
    let is_window = query.jobs.is_empty() && query.since.is_some() && query.wants_ended();
    is_window.then(|| query.clone())
}

/// Adds what the database found. What is not over there is known better in memory.
fn add_past(query: &JobQuery, list: &mut JobList, found: Vec<JobView>) {
    let known: HashSet<JobId> = list.jobs.iter().map(|job| job.id).collect();
    for mut job in found.into_iter().filter(|job| job.run.state.is_terminal()) {
        list.unknown.retain(|id| *id != job.id && Some(*id) != job.array_job_id());
        if known.contains(&job.id) || !query.matches(&job) {
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
