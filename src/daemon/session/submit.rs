//! Submissions of one job, or of many at once.

use super::{Replied, Session, plain, refused};
use crate::actors::messages::*;
use crate::daemon::answers::Reply;
use crate::daemon::command_line::Printed;
use slotd_exec::snapshots;
use slotd_model::change::LaunchTexts;
use slotd_model::job::Client;
use slotd_model::source::{Snapshot, WorkTree};
use slotd_model::{JobId, JobRef, JobRequest, Refusal};
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::Frame;
use slotd_protocol::request::{OneOfMany, Submit, SubmitMany};
use slotd_sched::{Submission, dependency_targets};
use slotd_sys::socket::send_some;
use slotd_sys::{aside, break_point, limits};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UnixStream;

/// Refuses a request that has fewer bytes than it announced.
pub(super) fn too_short() -> Option<Reply> {
    refused(Refusal::Malformed(
        "malformed message: the script is shorter than announced".to_owned(),
    ))
}

/// Returns the answer for a submitted job.
fn submitted(job: JobId, printed: Option<Printed>) -> Reply {
    match printed {
        Some(text) => (Answer::Printed, text(job).into_bytes()),
        None => (Answer::Submitted { job }, Vec::new()),
    }
}

/// Whether a client has the answer to its submission.
#[derive(Default)]
struct Answered(Arc<AtomicBool>);

impl Answered {
    /// Answers a client from the thread that commits its job. It has read all earlier answers, so
    /// its socket takes this short one as a whole. If it does not, the session answers.
    fn by_commit(&self, socket: &Arc<UnixStream>, printed: Option<Printed>) -> AnswerAtCommit {
        let (socket, done) = (Arc::clone(socket), Arc::clone(&self.0));
        Box::new(move |job| {
            let (answer, raw) = submitted(job, printed);
            let Ok(bytes) = Frame::encode(&answer, &raw) else { return };
            let mut sent = 0;
            let result = send_some(&*socket, &bytes, &[], &mut sent);
            done.store(result.is_ok() && sent > 0, Ordering::Release);
        })
    }

    fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Session {
    /// Submits a job. `printed` returns what is printed for it, if the client cannot know this.
    pub(super) async fn submit(
        &mut self,
        mut submit: Submit,
        mut raw: Vec<u8>,
        printed: Option<Printed>,
    ) -> Replied {
        if submit.script_len > raw.len() {
            return Ok(too_short());
        }
        let env = raw.split_off(submit.script_len);
        if submit.after_shortcut
            && let Some(process) = self.peer_process()
        {
            submit.client.process = process;
        }
        // Its dependencies, its template and its work tree copy must not be deleted before the job
        // is durable.
        let request = &submit.request;
        let _in_use = if request.dependency.is_empty()
            && submit.texts_of.is_none()
            && request.snapshot.is_none()
        {
            None
        } else {
            Some(Arc::clone(&self.hub.past_in_use).read_owned().await)
        };
        if let Some(gone) = self.missing_copy(&submit.request).await {
            return Ok(refused(gone));
        }
        let texts = match submit.texts_of {
            None => LaunchTexts { script: raw, env },
            Some(earlier) => match self.texts_of(earlier).await? {
                Ok(texts) => texts,
                Err(why) => return Ok(refused(why)),
            },
        };
        let ended = self.facts_of(dependency_targets([&submit.request.dependency])).await?;
        self.note_tree(&mut submit.request);
        let tree = self.tree_to_ask(&submit.request);
        let asked = tree.as_ref().map(|_| submit.request.clone());
        let client = submit.client;
        let first_step = submit.first_step.filter(|_| client.holds);
        let request = submit.request;
        let submission = Submission { request, texts, client: Some(client), ended, first_step };
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
        let news = waits.then(|| self.news.clone());
        let answered = Answered::default();
        // Clients that wait for events get their answer from the session, like the events.
        let answer = (!waits).then(|| answered.by_commit(&self.socket, printed));
        let message = SubmitJob { submission, answer, again: submit.again, news };
        let promised = self.hub.scheduler.send(message).await?;
        break_point::reach("submission promised");
        Ok(match promised {
            Ok(job) => {
                self.held.allocation = client.holds.then_some((job, client.process));
                self.look_at(job, tree.as_ref().zip(asked.as_ref()));
                (!answered.is_done()).then(|| submitted(job, printed))
            }
            Err(why) => refused(why),
        })
    }

    /// Returns a refusal if the job needs a work tree copy that does not exist.
    async fn missing_copy(&self, request: &JobRequest) -> Option<Refusal> {
        let snapshot = request.snapshot.as_ref()?;
        let files = snapshots::tree_of(&self.hub.paths.snapshots_dir(), snapshot);
        let what = format!("looking for the copy {}", snapshot.name);
        let is_there =
            aside::run(what, aside::PATIENCE, move || files.is_dir()).await.unwrap_or(false);
        let is_kept = snapshot.is_sound() && is_there;
        (!is_kept).then(|| Refusal::SnapshotGone(snapshot.name.clone()))
    }

    /// Protects a work tree copy that this client is making.
    pub(super) fn hold_copy(&mut self, name: String, fds: Vec<OwnedFd>) -> Option<Reply> {
        let is_sound = Snapshot { name: name.clone(), ..Snapshot::default() }.is_sound();
        match fds.into_iter().next() {
            Some(lock) if is_sound => {
                self.held.copies.push((name, lock));
                plain(Answer::Recorded)
            }
            Some(_) => refused(Refusal::SnapshotGone(name)),
            // The kernel drops descriptors if this process has none free.
            None => refused(Refusal::NoDescriptors(limits::descriptors().unwrap_or_default())),
        }
    }

    /// Removes the work tree from the request if the owner has disabled git.
    fn note_tree(&self, request: &mut JobRequest) {
        if !self.hub.work_trees.is_on && request.snapshot.is_none() {
            request.tree = None;
        }
    }

    /// Asks git about the work tree that a job was submitted from.
    fn look_at(&self, job: JobId, asked: Option<(&WorkTree, &JobRequest)>) {
        if let Some((tree, request)) = asked {
            self.hub.work_trees.note(job, tree, request);
        }
    }

    /// Returns the work tree to ask git about. For a copy, the answer is stored next to it.
    fn tree_to_ask(&self, request: &JobRequest) -> Option<WorkTree> {
        request.tree.as_deref().filter(|_| request.snapshot.is_none()).cloned()
    }

    /// Returns the texts that an earlier job was submitted with.
    async fn texts_of(
        &self,
        earlier: JobId,
    ) -> Result<Result<LaunchTexts, Refusal>, actix::MailboxError> {
        let facts = self.hub.readers.facts();
        if let Ok(Some(dropped)) = facts.send(WithoutEnvironment(JobRef::job(earlier))).await? {
            return Ok(Err(Refusal::EnvironmentDropped(dropped)));
        }
        Ok(match facts.send(BatchTexts(earlier)).await? {
            Ok(Some(texts)) => Ok(texts),
            Ok(None) => Err(Refusal::UnknownJob),
            Err(e) => Err(Refusal::Database(e.0)),
        })
    }

    /// Submits many jobs. Each is accepted or refused separately, and all are committed together.
    pub(super) async fn submit_many(&mut self, many: SubmitMany, raw: Vec<u8>) -> Replied {
        let SubmitMany { jobs, env_len, client } = many;
        let announced = jobs.iter().fold(env_len, |sum, job| sum.saturating_add(job.script_len));
        if announced > raw.len() {
            return Ok(too_short());
        }
        let is_alone =
            |job: &OneOfMany| job.request.dependency.is_empty() && job.request.snapshot.is_none();
        let _in_use = if jobs.iter().all(is_alone) {
            None
        } else {
            Some(Arc::clone(&self.hub.past_in_use).read_owned().await)
        };
        let client = Some(Client { process: client, ..Client::default() });
        let (env, mut scripts) = raw.split_at(env_len);
        let mut promised = Vec::with_capacity(jobs.len());
        let mut trees = Vec::with_capacity(jobs.len());
        for mut job in jobs {
            self.note_tree(&mut job.request);
            let tree = self.tree_to_ask(&job.request);
            trees.push(tree.map(|tree| (tree, job.request.clone())));
            let (script, rest) = scripts.split_at(job.script_len);
            scripts = rest;
            let ended = self.facts_of(dependency_targets([&job.request.dependency])).await?;
            let texts = LaunchTexts { script: script.to_vec(), env: env.to_vec() };
            if let Some(gone) = self.missing_copy(&job.request).await {
                promised.push(Err(gone));
                continue;
            }
            let (request, first_step) = (job.request, None);
            let submission = Submission { request, texts, client, ended, first_step };
            promised.push(Ok(self.hub.scheduler.send(SubmitJob {
                submission,
                answer: None,
                again: false,
                news: None,
            })));
        }
        let mut answers = Vec::with_capacity(promised.len());
        for (answer, tree) in promised.into_iter().zip(trees) {
            let answer = match answer {
                Ok(answer) => answer.await?,
                Err(refused) => Err(refused),
            };
            if let Ok(job) = &answer {
                self.look_at(*job, tree.as_ref().map(|(tree, request)| (tree, request)));
            }
            answers.push(answer);
        }
        Ok(plain(Answer::SubmittedMany(answers)))
    }
}
