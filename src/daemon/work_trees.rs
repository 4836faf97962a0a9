//! Asks git about the work trees that jobs are submitted from, and stores the answers.
//!
//! Nothing waits for this: the submission has already been answered, with the commit that its
//! client read. One query serves all submissions of a tree that arrived before it began, and after
//! a query the tree is not queried again for a while. git runs on another thread, at low priority.

use crate::actors::StoreActor;
use crate::actors::launch_plan::output_patterns;
use crate::actors::messages::PutSource;
use crate::daemon::settings::Settings;
use actix::Addr;
use slotd_model::source::{Source, WorkTree};
use slotd_model::{JobId, JobRequest, Timestamp};
use slotd_store::diffs::{PackedDiff, Packer};
use slotd_sys::git::{Asking, STALL};
use slotd_sys::{aside, clock, work_tree};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use wildmatch::WildMatch;

/// The timeout of git, which allows 5 s of work while jobs use all CPUs.
const PATIENCE: Duration = Duration::from_secs(50);

/// While submissions keep coming, git may run for one in this many seconds.
const SHARE: u32 = 10;

/// The most trees to query at the same time, so that a slow one does not delay all others. There
/// are few threads for blocking work.
const AT_ONCE: usize = 2;

/// The maximum number of slow trees to remember.
const MOST_SLOW: usize = 16;

/// The longest pause between two queries of a tree.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The submissions of one tree whose query is pending or running.
#[derive(Default)]
struct Open {
    waiting: Vec<Submission>,
    under_way: Vec<Submission>,
}

struct Submission {
    job: JobId,
    /// The commit of HEAD.
    commit: Option<String>,
    /// The files that the job itself creates, as patterns.
    outputs: Vec<String>,
}

pub struct WorkTrees {
    /// False with `SLOTD_GIT=off`: no tree is queried.
    pub is_on: bool,
    /// The name of the host, which may be part of the name of an output file.
    host: String,
    /// A directory of slotd in which git works.
    place: PathBuf,
    /// The most bytes that all stored diffs may use together.
    most_diffs: Option<u64>,
    store: Addr<StoreActor>,
    open: RefCell<HashMap<String, Open>>,
    /// The trees whose last query timed out, or took as long as one that hangs.
    slow: RefCell<BTreeSet<String>>,
    turn: Semaphore,
    settled: Notify,
}

impl WorkTrees {
    pub fn new(
        settings: &Settings,
        host: String,
        place: PathBuf,
        store: Addr<StoreActor>,
    ) -> WorkTrees {
        let most_diffs = settings.diffs_mb.map(|mb| mb << 20);
        WorkTrees {
            is_on: settings.git,
            host,
            place,
            most_diffs,
            store,
            open: RefCell::default(),
            slow: RefCell::default(),
            turn: Semaphore::new(AT_ONCE),
            settled: Notify::new(),
        }
    }

    /// Records that a durable job was submitted from this tree. It may start before git runs, and
    /// its own output is not a change of the tree that it was submitted from.
    pub fn note(self: &Rc<Self>, job: JobId, tree: &WorkTree, request: &JobRequest) {
        if !self.is_on {
            return;
        }
        let outputs = output_patterns(job, request, &self.host);
        let mut open = self.open.borrow_mut();
        let is_new = !open.contains_key(&tree.root);
        let submission = Submission { job, commit: tree.commit.clone(), outputs };
        open.entry(tree.root.clone()).or_default().waiting.push(submission);
        if is_new {
            drop(actix::spawn(Rc::clone(self).serve(tree.root.clone())));
        }
    }

    /// Waits until the query for this submission is finished.
    pub async fn settled(&self, job: JobId) {
        loop {
            let next = self.settled.notified();
            let is_open =
                |open: &Open| open.waiting.iter().chain(&open.under_way).any(|one| one.job == job);
            if !self.open.borrow().values().any(is_open) {
                return;
            }
            next.await;
        }
    }

    /// Returns the trees whose last query timed out, or took as long as one that hangs.
    pub fn slow(&self) -> Vec<String> {
        self.slow.borrow().iter().cloned().collect()
    }

    fn note_pace(&self, root: &str, took: Duration) {
        let mut slow = self.slow.borrow_mut();
        if took < STALL {
            slow.remove(root);
        } else if slow.len() < MOST_SLOW {
            slow.insert(root.to_owned());
        }
    }

    /// Serves a tree until no submission waits for it.
    async fn serve(self: Rc<Self>, root: String) {
        loop {
            let took = match self.turn.acquire().await {
                Ok(_turn) => self.ask(&root).await,
                Err(_) => return,
            };
            tokio::time::sleep((took * (SHARE - 1)).min(LONGEST_PAUSE)).await;
            let mut open = self.open.borrow_mut();
            if open.get(&root).is_none_or(|open| open.waiting.is_empty()) {
                open.remove(&root);
                return;
            }
        }
    }

    /// Runs a query for all waiting submissions. Returns the time that git took.
    async fn ask(&self, root: &str) -> Duration {
        let (mut jobs, mut outputs) = (Vec::new(), Vec::new());
        if let Some(open) = self.open.borrow_mut().get_mut(root) {
            open.under_way = std::mem::take(&mut open.waiting);
            jobs.extend(open.under_way.iter().map(|one| (one.commit.clone(), one.job)));
            outputs
                .extend(open.under_way.iter_mut().flat_map(|one| std::mem::take(&mut one.outputs)));
        }
        let began = Instant::now();
        let (top, place) = (PathBuf::from(root), self.place.clone());
        let found = aside::run(format!("git in {root}"), PATIENCE + aside::PATIENCE, move || {
            look(&top, &place, outputs)
        })
        .await;
        let took = began.elapsed();
        self.note_pace(root, took);
        let at = clock::now();
        let (source, diff) = found.unwrap_or_else(|why| (unknown(&None, why.to_string()), None));
        // Group the jobs by commit.
        jobs.sort_unstable();
        for group in jobs.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((commit, _)) = group.first() else { continue };
            let jobs = group.iter().map(|(_, job)| *job).collect();
            let (source, diff) = match &source.changes {
                Ok(_) if commit.is_some() && *commit != source.commit => {
                    (moved(commit, &source), None)
                }
                _ => (
                    Source { commit: source.commit.clone().or(commit.clone()), ..source.clone() },
                    diff.clone(),
                ),
            };
            self.keep(jobs, at, source, diff).await;
        }
        if let Some(open) = self.open.borrow_mut().get_mut(root) {
            open.under_way.clear();
        }
        self.settled.notify_waiters();
        took
    }

    async fn keep(
        &self,
        jobs: Vec<JobId>,
        at: Timestamp,
        source: Source,
        diff: Option<PackedDiff>,
    ) {
        let why = match self
            .store
            .send(PutSource { jobs, at, source, diff, most_diffs: self.most_diffs })
            .await
        {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why.to_string(),
            Err(why) => why.to_string(),
        };
        log::warn!("could not store the state of a work tree: {why}");
    }
}

/// Returns a pattern that starts with the canonical path of the directory, if it exists.
fn canonical(pattern: &str) -> WildMatch {
    let path = Path::new(pattern);
    let known = path
        .parent()
        .and_then(|dir| Some(std::fs::canonicalize(dir).ok()?.join(path.file_name()?)));
    WildMatch::new(&known.as_deref().unwrap_or(path).to_string_lossy())
}

fn look(top: &Path, place: &Path, outputs: Vec<String>) -> (Source, Option<PackedDiff>) {
    let mut diff = Packer::default();
    let asked = Asking::new(place, PATIENCE).and_then(|asking| {
        let own = outputs.iter().map(|pattern| canonical(pattern)).collect();
        let asking = asking.behind_others().without(own);
        asking.at(top).map(|git| git.source(&mut diff))
    });
    let (source, has_diff) = asked.unwrap_or_else(|why| (unknown(&None, why.to_string()), false));
    // The diff is valid only if HEAD did not move during the query.
    let now = work_tree::probe(top).and_then(|tree| tree.commit);
    match now {
        Some(now) if source.commit.as_ref().is_some_and(|commit| *commit != now) => {
            (unknown(&source.commit, "HEAD moved during the query".to_owned()), None)
        }
        _ => (source, has_diff.then_some(diff).and_then(|diff| diff.finish().ok())),
    }
}

fn unknown(commit: &Option<String>, why: String) -> Source {
    Source { commit: commit.clone(), branch: None, changes: Err(why) }
}

/// Returns the source of a submission if HEAD moved away from its commit before the query.
fn moved(commit: &Option<String>, now: &Source) -> Source {
    let there = now.commit.as_deref().unwrap_or("no commit");
    unknown(commit, format!("HEAD had moved to {there} before git ran"))
}
