//! The connection of a client: requests in, answers and events out.
//!
//! A session makes no decisions: it forwards each request as a message and writes the answer. A
//! malformed request or a lost client ends only its own session.

use crate::actors::feed::Feed;
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::actors::{GpuInventoryActor, Readers, SchedulerActor, StoreActor};
use crate::daemon::answers::{Answers, Reply};
use crate::daemon::command_line::ParsePlain;
use crate::daemon::history::History;
use crate::daemon::host_watch::HostWatch;
use crate::daemon::machine_watch::MachineWatch;
use crate::daemon::requests::Requests;
use crate::daemon::settings::Settings;
use crate::daemon::sources::Sources;
use crate::daemon::wire::FrameReader;
use crate::daemon::work_trees::WorkTrees;
use actix::Addr;
use slotd_exec::launch_spec::StepUsage;
use slotd_model::change::LaunchTexts;
use slotd_model::changed::Changed;
use slotd_model::job::ClientProcess;
use slotd_model::{Job, JobId, JobRef, Refusal, StepId, Timestamp};
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::{Frame, FrameError};
use slotd_protocol::request::{Request, StepLaunch};
use slotd_sched::EndedJob;
use slotd_sys::paths::Paths;
use slotd_sys::{aside, limits};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, RwLock, mpsc};
use tokio::time::timeout;

mod changes;
mod crontab;
mod lists;
mod plain;
mod site;
mod source;
mod submit;

/// The context that all sessions share.
pub struct Hub {
    pub scheduler: Addr<SchedulerActor>,
    pub store: Addr<StoreActor>,
    pub inventory: Addr<GpuInventoryActor>,
    pub readers: Readers,
    pub paths: Paths,
    /// The output of `scontrol show config`.
    pub config: RefCell<Vec<(String, String)>>,
    pub settings: Arc<Settings>,
    pub sources: Arc<Sources>,
    pub parser: ParsePlain,
    pub clock: fn() -> Timestamp,
    /// Identifies requests for steps while they wait.
    pub next_ticket: Cell<u64>,
    /// The number of connected clients.
    pub connections: Cell<u64>,
    pub answers: Answers,
    pub requests: Requests,
    pub history: Rc<History>,
    pub work_trees: Rc<WorkTrees>,
    /// Read-locked by requests that read past jobs from the database and act on the result.
    pub past_in_use: Arc<RwLock<()>>,
    pub machine: Rc<MachineWatch>,
    pub host: Rc<HostWatch>,
    /// Serializes changes to the out-of-use parts of the node.
    pub node_orders: Mutex<()>,
}

/// Everything a client holds, which is released when it disconnects.
#[derive(Default)]
struct Held {
    allocation: Option<(JobId, ClientProcess)>,
    tickets: Vec<u64>,
    /// The job whose steps it manages.
    managed: Option<(JobId, ClientProcess)>,
    /// The changes, if the client has ever requested them.
    feed: Option<Feed>,
    /// The client is waiting for changes.
    watches: bool,
    /// Work tree copies that the client is making, by name, each with the descriptor that locks it.
    copies: Vec<(String, OwnedFd)>,
}

impl Held {
    /// Waits for changes, if the client is waiting for them.
    async fn changed(&self) -> Changed {
        match &self.feed {
            Some(feed) if self.watches => feed.next().await,
            _ => std::future::pending().await,
        }
    }
}

struct Session {
    hub: Rc<Hub>,
    /// For answers in parts.
    socket: Arc<UnixStream>,
    news: NewsSender,
    uid: u32,
    held: Held,
    /// The client has its only answer, and disconnects.
    is_over: bool,
}

/// `None` if the answer comes as an event. An error means that the daemon is shutting down.
type Replied = Result<Option<Reply>, actix::MailboxError>;

/// The longest silence of a new connection. Commands send a request at once.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// The longest silence of a connection after an answer, if it waits for no events.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(60);

/// Serves one connection until it ends.
pub async fn serve(socket: UnixStream, hub: Rc<Hub>) {
    let uid = match socket.peer_cred() {
        Ok(peer) => peer.uid(),
        Err(e) => return log::warn!("rejected a client without credentials: {e}"),
    };
    let own = nix::unistd::getuid().as_raw();
    let socket = Arc::new(socket);
    if uid != own && uid != 0 {
        let refused = Answer::Refused(Refusal::WrongUser { daemon: own, client: uid });
        let _ = hub.answers.send(&socket, refused, Vec::new()).await;
        return;
    }
    let (news, mut incoming_news) = mpsc::unbounded_channel();
    let (frames_in, mut frames) = mpsc::channel(1);
    let reading = Arc::clone(&socket);
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
    let mut session = Session {
        hub: Rc::clone(&hub),
        socket: Arc::clone(&socket),
        news,
        uid,
        held: Held::default(),
        is_over: false,
    };
    let mut idle = FIRST_WORD;
    loop {
        let is_held = session.is_held();
        let written = tokio::select! {
            // Send an answer before events that followed the request: both wait in the order in
            // which they were made.
            biased;
            Some(news) = incoming_news.recv() => {
                session.note(&news);
                hub.answers.send(&socket, news, Vec::new()).await
            }
            changed = session.held.changed() => {
                session.held.watches = false;
                hub.answers.send(&socket, Answer::Changed(changed), Vec::new()).await
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
        if written.is_err() || session.is_over {
            break;
        }
    }
    reader.abort();
    drop(incoming_news);
    session.release();
}

/// Returns the next frame, or `None` if none arrives within `idle`.
async fn next_within<T>(frames: &mut mpsc::Receiver<T>, idle: Option<Duration>) -> Option<T> {
    match idle {
        None => frames.recv().await,
        Some(idle) => timeout(idle, frames.recv()).await.unwrap_or(None),
    }
}

fn refused(why: Refusal) -> Option<Reply> {
    plain(Answer::Refused(why))
}

fn plain(answer: Answer) -> Option<Reply> {
    Some((answer, Vec::new()))
}

impl Session {
    /// Whether the client may stay silent: it waits for events, or holds an allocation or a copy.
    fn is_held(&self) -> bool {
        let held = &self.held;
        let waits = held.watches || !held.tickets.is_empty() || self.news.strong_count() > 1;
        waits || held.allocation.is_some() || !held.copies.is_empty()
    }

    /// Answers a request. `None` if the answer comes as an event.
    async fn answer(&mut self, frame: Frame, fds: Vec<OwnedFd>) -> Option<Reply> {
        let request: Request = match frame.message() {
            Ok(request) => request,
            Err(e) => return refused(Refusal::Malformed(e.to_string())),
        };
        let kind = request.message_type();
        let is_plain = matches!(request, Request::Plain(_));
        let began = Instant::now();
        let reply = self.carry_out(request, frame.raw, fds).await;
        // Those that are not answered here come again.
        if !matches!(reply, Ok(Some((Answer::ScriptWanted | Answer::NotPlain, _)))) {
            self.hub.requests.count(kind, self.uid, began.elapsed());
            // The exit of a client whose connection is open wakes the daemon, and the client's
            // parent waits meanwhile.
            self.is_over = is_plain;
        }
        reply.unwrap_or_else(|_| refused(Refusal::ShuttingDown))
    }

    async fn carry_out(&mut self, request: Request, raw: Vec<u8>, fds: Vec<OwnedFd>) -> Replied {
        let hub = Rc::clone(&self.hub);
        Ok(match request {
            Request::Ping => plain(Answer::Pong {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
            }),
            Request::Submit(submit) => return self.submit(*submit, raw, None).await,
            Request::Plain(command) => return self.plain_command(command, raw).await,
            Request::SubmitMany(many) => return self.submit_many(many, raw).await,
            Request::Crontab => return self.crontab().await,
            Request::InstallCrontab(crontab) => return self.install_crontab(crontab, raw).await,
            Request::RemoveCrontab => return self.remove_crontab().await,
            Request::Jobs(query) => return self.jobs(query, usize::MAX).await,
            Request::Accounting(query) => return self.accounting(query, usize::MAX).await,
            Request::Usage(ask) => return self.usage(ask).await,
            Request::Source { job, with_diff } => return self.source(job, with_diff).await,
            Request::OverTime(jobs) => return self.over_time(jobs).await,
            Request::HostOverTime(from) => match hub.host.since(from).await {
                Ok(spans) => plain(Answer::HostOverTime { now: (hub.clock)(), spans }),
                Err(why) => refused(Refusal::Database(why.to_string())),
            },
            Request::Node => return self.node().await,
            Request::Config => plain(Answer::Config(hub.config.borrow().clone())),
            Request::Reconfigure => return self.reconfigure().await,
            Request::UpdatePartition { name, settings } => {
                return self.update_partition(name, settings).await;
            }
            Request::UpdateNode(order) => return self.update_node(order).await,
            Request::Reservation(order) => match hub.scheduler.send(OrderReservation(order)).await?
            {
                Ok(name) => plain(Answer::Reservation(name)),
                Err(why) => refused(why),
            },
            Request::HoldCopy { name } => return Ok(self.hold_copy(name, fds)),
            Request::Clean(what) => match hub.history.clean(what).await {
                Ok(cleaned) => plain(Answer::Cleaned(cleaned)),
                Err(why) => refused(Refusal::Database(why.to_string())),
            },
            Request::Diagnostics { reset } => return self.diagnostics(reset).await,
            Request::Control { jobs, action } => return self.control(jobs, action).await,
            Request::Cancel(ask) => return self.cancel(ask).await,
            Request::WaitEnd(job) => return self.wait_end(job).await,
            Request::Watch => return self.watch().await,
            Request::Attach { job, client, step, holds } => {
                return self.attach(job, client, step, holds).await;
            }
            Request::LaunchStep(launch) => return self.launch_step(launch, raw, fds).await,
            Request::Release { job, exit } => {
                self.held.allocation = None;
                hub.scheduler.send(ReleaseAllocation { job, exit }).await?;
                None
            }
            Request::ManageSteps { job, client, within, numbers } => {
                return self.manage_steps(job, client, within, numbers).await;
            }
            Request::RecordSteps { job, run, steps } => {
                match hub.scheduler.send(RecordSteps { job, run, steps }).await? {
                    Ok(()) => plain(Answer::Recorded),
                    Err(why) => refused(why),
                }
            }
            Request::LeaveSteps { job, client, unused } => {
                self.held.managed = None;
                hub.scheduler.send(LeaveSteps { job, client, unused: Some(unused) }).await?;
                plain(Answer::Recorded)
            }
            Request::GiveBack { job, client, given_back } => {
                hub.scheduler.send(GiveBack { job, client, given_back }).await?;
                None
            }
            Request::StepMeasured { ticket, usage, pids } => {
                let usage = StepUsage { total: usage, pids, ..StepUsage::default() };
                hub.scheduler.send(StepMeasured { ticket, usage }).await?;
                None
            }
            Request::StepSignalled { ticket, runs } => {
                hub.scheduler.send(StepSignalled { ticket, runs }).await?;
                None
            }
            Request::BatchScript(job) => return self.batch_text(job, |texts| texts.script).await,
            Request::BatchEnv(job) => return self.batch_text(job, |texts| texts.env).await,
        })
    }

    async fn node(&self) -> Replied {
        let node = self.hub.scheduler.send(QueryNode).await?;
        Ok(plain(Answer::Node(Box::new(node))))
    }

    async fn diagnostics(&self, reset: bool) -> Replied {
        let Hub { scheduler, connections, requests, .. } = &*self.hub;
        let mut answer = scheduler.send(QueryDiagnostics { reset }).await?;
        answer.connections = connections.get();
        answer.requests = requests.kinds();
        answer.users = requests.users();
        answer.hung = aside::hung().iter().map(ToString::to_string).collect();
        answer.slow_trees = self.hub.work_trees.slow();
        if reset {
            requests.reset();
        }
        Ok(plain(Answer::Diagnostics(Box::new(answer))))
    }

    /// Waits for the end of a job.
    async fn wait_end(&self, job: JobId) -> Replied {
        let view = self.hub.scheduler.send(WatchJob { job, news: self.news.clone() }).await?;
        Ok(match view.map(Box::new) {
            Some(view) if view.run.state.is_terminal() => plain(Answer::Ended { view }),
            Some(_) => None,
            None => refused(Refusal::UnknownJob),
        })
    }

    async fn watch(&mut self) -> Replied {
        if self.held.feed.is_none() {
            let feed = Feed::new();
            self.hub.scheduler.send(WatchChanges(feed.sender())).await?;
            self.held.feed = Some(feed);
        }
        self.held.watches = true;
        Ok(None)
    }

    async fn attach(
        &mut self,
        job: JobId,
        client: ClientProcess,
        step: Option<StepId>,
        holds: bool,
    ) -> Replied {
        let message = AttachClient { job, client, step, holds, news: self.news.clone() };
        Ok(match self.hub.scheduler.send(message).await? {
            Ok(view) => {
                self.held.allocation = holds.then_some((job, client));
                plain(Answer::Granted { view: Box::new(view) })
            }
            Err(why) => refused(why),
        })
    }

    async fn manage_steps(
        &mut self,
        job: JobId,
        client: ClientProcess,
        within: Option<StepId>,
        numbers: u32,
    ) -> Replied {
        let message = ManageSteps { job, client, within, numbers, news: self.news.clone() };
        Ok(match self.hub.scheduler.send(message).await? {
            Ok(mut managed) => {
                managed.grace_ms =
                    u64::try_from(self.hub.settings.kill_wait.as_millis()).unwrap_or(u64::MAX);
                self.held.managed = Some((job, client));
                plain(Answer::Managed(managed))
            }
            Err(why) => refused(why),
        })
    }

    /// Returns the script or the environment of a batch job.
    async fn batch_text(&self, job: JobId, part: fn(LaunchTexts) -> Vec<u8>) -> Replied {
        Ok(match self.hub.readers.facts().send(BatchTexts(job)).await? {
            Ok(Some(texts)) => Some((Answer::Script, part(texts))),
            Ok(None) => refused(Refusal::UnknownJob),
            Err(e) => refused(Refusal::Database(e.0)),
        })
    }

    /// Returns the records of these jobs from the database.
    async fn past(
        &self,
        named: Vec<JobRef>,
    ) -> Result<Result<Vec<Job>, Refusal>, actix::MailboxError> {
        if named.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        Ok(self
            .hub
            .readers
            .facts()
            .send(PastRecords(named))
            .await?
            .map_err(|e| Refusal::Database(e.0)))
    }

    /// Returns facts from the database about the jobs that a dependency names.
    async fn facts_of(&self, ids: Vec<JobId>) -> Result<Vec<EndedJob>, actix::MailboxError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.hub.readers.facts().send(EndedFacts(ids)).await?.unwrap_or_else(|e| {
            log::error!("cannot read dependencies from the database: {}", e.0);
            Vec::new()
        }))
    }

    async fn launch_step(
        &mut self,
        launch: Box<StepLaunch>,
        env: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> Replied {
        if fds.len() < launch.descriptors() {
            // The kernel drops descriptors if this process has none free.
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

    /// Updates the held resources after an event.
    fn note(&mut self, news: &Answer) {
        match news {
            Answer::Ended { .. } => self.held.allocation = None,
            Answer::StepStarted { .. } => self.held.tickets.clear(),
            _ => {}
        }
    }

    fn release(self) {
        let history = Rc::clone(&self.hub.history);
        for (name, lock) in self.held.copies {
            let history = Rc::clone(&history);
            drop(actix::spawn(async move { history.release_copy(name, lock).await }));
        }
        for ticket in self.held.tickets {
            self.hub.scheduler.do_send(AbandonStep { ticket });
        }
        if let Some((job, client)) = self.held.managed {
            self.hub.scheduler.do_send(LeaveSteps { job, client, unused: None });
        }
        if let Some((job, client)) = self.held.allocation {
            self.hub.scheduler.do_send(ClientGone { job, client });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn silent_client_is_disconnected_unless_it_waits_for_something() {
        tokio::time::pause();
        let (sender, mut frames) = mpsc::channel::<u8>(1);
        assert_eq!(next_within(&mut frames, Some(FIRST_WORD)).await, None);
        let held = timeout(BETWEEN_REQUESTS * 100, next_within(&mut frames, None)).await;
        assert!(held.is_err(), "it may be silent forever");
        sender.send(7).await.unwrap();
        assert_eq!(next_within(&mut frames, Some(FIRST_WORD)).await, Some(7));
    }
}
