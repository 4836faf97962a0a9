//! Asks git about the work trees that jobs are submitted from, and has the store keep the answers.
//!
//! Nobody waits for it: a submission has been answered by then, with the commit that its client
//! read. One question serves all submissions of a tree that came before it began, and between two
//! of them the tree is left alone for a while. git is asked on a thread aside, behind all else that
//! the machine has to do.

use crate::actors::StoreActor;
use crate::actors::messages::PutSource;
use crate::daemon::settings::Settings;
use crate::model::source::{Source, WorkTree};
use crate::model::{JobId, Timestamp};
use crate::store::diffs::{PackedDiff, Packer};
use crate::sys::git::Asking;
use crate::sys::{aside, clock, work_tree};
use actix::Addr;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

/// How long git may take: 5 s of work, where jobs use all CPUs.
const PATIENCE: Duration = Duration::from_secs(50);

/// git takes at most so much of the time while submissions keep coming: one part in this many.
const SHARE: u32 = 10;

/// Trees that git is asked about side by side, so that a slow one does not hold up all others.
/// Threads aside are few.
const AT_ONCE: usize = 2;

/// Slow trees that are remembered, at most.
const MOST_SLOW: usize = 16;

/// Between two questions about a tree, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The submissions of one tree that git was not asked for yet, or is asked for now.
#[derive(Default)]
struct Open {
    waiting: Vec<Submission>,
    under_way: Vec<Submission>,
}

struct Submission {
    job: JobId,
    /// What HEAD was.
    commit: Option<String>,
}

pub struct WorkTrees {
    /// False: nothing is looked at (`SLOTD_GIT=off`).
    pub is_on: bool,
    /// Where git works, a directory of slotd's own.
    place: PathBuf,
    /// The bytes that the differences of all submissions may have together.
    most_diffs: Option<u64>,
    store: Addr<StoreActor>,
    open: RefCell<HashMap<String, Open>>,
    /// Those in which git took too long when it was asked last.
    slow: RefCell<BTreeSet<String>>,
    turn: Semaphore,
    settled: Notify,
}

impl WorkTrees {
    pub fn new(settings: &Settings, place: PathBuf, store: Addr<StoreActor>) -> WorkTrees {
        let most_diffs = settings.diffs_mb.map(|mb| mb << 20);
        WorkTrees {
            is_on: settings.git,
            place,
            most_diffs,
            store,
            open: RefCell::default(),
            slow: RefCell::default(),
            turn: Semaphore::new(AT_ONCE),
            settled: Notify::new(),
        }
    }

    /// A job that is durable was submitted from this tree.
    pub fn note(self: &Rc<Self>, job: JobId, tree: &WorkTree) {
        if !self.is_on {
            return;
        }
        let mut open = self.open.borrow_mut();
        let is_new = !open.contains_key(&tree.root);
        let submission = Submission { job, commit: tree.commit.clone() };
        open.entry(tree.root.clone()).or_default().waiting.push(submission);
        if is_new {
            drop(actix::spawn(Rc::clone(self).serve(tree.root.clone())));
        }
    }

    /// Waits until git has been asked about the tree of this submission.
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

    /// The trees in which git took too long when it was asked last.
    pub fn slow(&self) -> Vec<String> {
        self.slow.borrow().iter().cloned().collect()
    }

    fn note_pace(&self, root: &str, took: Duration) {
        let mut slow = self.slow.borrow_mut();
        if took < PATIENCE {
            slow.remove(root);
        } else if slow.len() < MOST_SLOW {
            slow.insert(root.to_owned());
        }
    }

    /// Serves a tree until nothing is open there.
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

    /// Asks for all that wait. How long git took.
    async fn ask(&self, root: &str) -> Duration {
        let mut jobs = Vec::new();
        if let Some(open) = self.open.borrow_mut().get_mut(root) {
            open.under_way = std::mem::take(&mut open.waiting);
            jobs.extend(open.under_way.iter().map(|one| (one.commit.clone(), one.job)));
        }
        let began = Instant::now();
        let (top, place) = (PathBuf::from(root), self.place.clone());
        let found = aside::run(format!("git in {root}"), PATIENCE + aside::PATIENCE, move || {
            look(&top, &place)
        })
        .await;
        let took = began.elapsed();
        self.note_pace(root, took);
        let at = clock::now();
        let (source, diff) = found.unwrap_or_else(|why| (unknown(&None, why.to_string()), None));
        // Those of each commit.
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
        log::warn!("how a work tree differed from its commit could not be stored: {why}");
    }
}

fn look(top: &Path, place: &Path) -> (Source, Option<PackedDiff>) {
    let mut diff = Packer::default();
    let asked = Asking::new(place, PATIENCE).and_then(|asking| {
        let asking = asking.behind_others();
        asking.at(top).map(|git| git.source(&mut diff))
    });
    let (source, has_diff) = asked.unwrap_or_else(|why| (unknown(&None, why.to_string()), false));
    // The differences are those of one commit, as long as HEAD stayed there.
    let now = work_tree::probe(top).and_then(|tree| tree.commit);
    match now {
        Some(now) if source.commit.as_ref().is_some_and(|commit| *commit != now) => {
            (unknown(&source.commit, "HEAD moved on meanwhile".to_owned()), None)
        }
        _ => (source, has_diff.then_some(diff).and_then(|diff| diff.finish().ok())),
    }
}

fn unknown(commit: &Option<String>, why: String) -> Source {
    Source { commit: commit.clone(), branch: None, changes: Err(why) }
}

/// What is said of a submission at a commit that HEAD has left before git was asked.
fn moved(commit: &Option<String>, now: &Source) -> Source {
    let there = now.commit.as_deref().unwrap_or("no commit");
    unknown(commit, format!("HEAD was at {there} before git could be asked"))
}
