//! What is asked of the daemon, one question at a time, and what its answers change.
//!
//! Listings tell little of each job, so that a long queue is there at once; more is asked of those
//! in sight alone.

use super::picture::{Picture, named};
use crate::model::changed::Changed;
use crate::model::query::JobQuery;
use crate::model::view::JobList;
use crate::model::{JobId, JobRef, JobState, Timestamp};
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use std::collections::BTreeSet;

/// No more jobs than this are asked for more at one time.
const MOST_DETAILED: usize = 256;

/// The question that waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    All,
    Node,
    /// Which of these still wait or run.
    Live(BTreeSet<JobId>),
    /// What became of these.
    Ended(BTreeSet<JobId>),
    /// Of those in sight, or of one job alone, of which the daemon tells more.
    Details,
    Usage,
    /// What one job used over time.
    OverTime(JobId),
    /// What the host used over time.
    Host,
}

#[derive(Debug, Default)]
pub struct Link {
    changed: Changed,
    /// Known to be over or gone, and not asked for yet.
    ended: BTreeSet<JobId>,
    asked: Option<Asked>,
    /// The whole picture, as it comes in.
    coming: Picture,
    /// Records of which the details are those of now, or asked for.
    fresh: BTreeSet<JobId>,
    /// The job whose own answer is that of now, or asked for.
    fresh_one: Option<JobId>,
    /// Jobs may wait for other reasons than before.
    reasons_due: bool,
    node_due: bool,
    usage_due: bool,
    /// The job of which it is known what it used over time, and since how many ticks.
    over_time: Option<(JobId, u32)>,
    /// Since how many ticks it is known what the host used in the last hour.
    host_use: Option<u32>,
    /// The daemon has refused to tell: it is asked again when something happens.
    is_refused: bool,
}

/// After so many ticks with a running job the host is asked again what it used.
const OLD_HOST: u32 = 30;

/// How far back that goes, seconds.
pub const HOST_WINDOW: u64 = 3600;

/// After so many ticks a job that runs is asked again what it used over time.
const OLD_SERIES: u32 = 5;

/// Who is looked at.
#[derive(Debug, Default)]
pub struct Looks {
    /// In sight.
    pub visible: Vec<JobId>,
    /// The chosen one.
    pub chosen: Option<JobId>,
    /// The one whose page is open.
    pub page: Option<JobId>,
}

impl Link {
    pub fn changed(&mut self, changed: &Changed) {
        self.go_on();
        self.changed.add(changed);
        if changed.all {
            self.fresh.clear();
        }
        for id in &changed.jobs {
            self.fresh.remove(id);
        }
        self.reasons_due |= changed.queue;
        if changed.all
            || changed.queue
            || self.fresh_one.is_some_and(|id| changed.jobs.contains(&id))
        {
            self.fresh_one = None;
        }
        if changed.all || self.over_time.is_some_and(|(id, _)| changed.jobs.contains(&id)) {
            self.over_time = None;
        }
        self.node_due |= changed.node || changed.all;
    }

    /// Time has passed: what is used is another now.
    pub fn tick(&mut self) {
        self.go_on();
        self.usage_due = true;
        self.node_due = true;
        if let Some((_, ticks)) = &mut self.over_time {
            *ticks += 1;
        }
        self.host_use = self.host_use.map(|ticks| ticks + 1);
    }

    /// Asks again what was refused.
    pub fn go_on(&mut self) {
        self.is_refused = false;
    }

    /// What is not told is asked for once more later, so that nothing on the screen is older than
    /// it must be.
    fn refused(&mut self) {
        self.is_refused = true;
        match self.asked.take() {
            Some(Asked::All) => self.changed = Changed::everything(),
            Some(Asked::Live(ids) | Asked::Ended(ids)) => self.changed.jobs.extend(ids),
            Some(Asked::Node) => self.node_due = true,
            Some(Asked::Details | Asked::Usage | Asked::OverTime(_) | Asked::Host) | None => {}
        }
    }

    /// Whatever was asked will have no answer.
    pub fn lost(&mut self) {
        *self = Link::default();
    }

    /// The next question; `None` where everything that is looked at is known, or an answer is on
    /// its way.
    pub fn next(&mut self, picture: &Picture, looks: &Looks) -> Option<Request> {
        if self.asked.is_some() || self.is_refused {
            return None;
        }
        let (asked, request) = self.question(picture, looks)?;
        self.asked = Some(asked);
        Some(request)
    }

    fn question(&mut self, picture: &Picture, looks: &Looks) -> Option<(Asked, Request)> {
        let brief = |query: JobQuery| Request::Jobs(JobQuery { brief: true, ..query });
        if self.changed.all {
            self.changed = Changed::default();
            self.ended.clear();
            self.coming = Picture::default();
            return Some((Asked::All, brief(JobQuery::default())));
        }
        if !self.changed.jobs.is_empty() {
            let ids = std::mem::take(&mut self.changed.jobs);
            let jobs = ids.iter().map(|id| JobRef::job(*id)).collect();
            // Of an array this is all that is not over: what has ended is asked for by name.
            return Some((Asked::Live(ids), brief(JobQuery { jobs, ..JobQuery::live() })));
        }
        if !self.ended.is_empty() {
            let ids = std::mem::take(&mut self.ended);
            let jobs = ids.iter().map(|id| named(picture, *id)).collect();
            return Some((Asked::Ended(ids), brief(JobQuery::of(jobs))));
        }
        if std::mem::take(&mut self.node_due) {
            return Some((Asked::Node, Request::Node));
        }
        self.closer(picture, looks)
    }

    /// What is looked at more closely.
    fn closer(&mut self, picture: &Picture, looks: &Looks) -> Option<(Asked, Request)> {
        if std::mem::take(&mut self.reasons_due) {
            let waits = |id: &JobId| {
                picture.jobs.get(id).is_some_and(|job| job.run.state == JobState::Pending)
            };
            self.fresh.retain(|id| !waits(id));
        }
        let wanted = looks
            .visible
            .iter()
            .copied()
            .chain(picture.running().map(|job| job.id).take(MOST_DETAILED));
        // The chosen one is asked for by itself, and whole.
        let is_stale = |id: &JobId| !self.fresh.contains(id) && looks.chosen != Some(*id);
        let stale: BTreeSet<JobId> = wanted.filter(is_stale).take(MOST_DETAILED).collect();
        if !stale.is_empty() {
            let jobs = stale.iter().map(|id| named(picture, *id)).collect();
            let query = JobQuery {
                expected_starts: true,
                without_paths: true,
                without_steps: true,
                ..JobQuery::of(jobs)
            };
            // What changes from now on, before the answer comes, makes them stale again.
            self.fresh.extend(stale);
            return Some((Asked::Details, Request::Jobs(query)));
        }
        if let Some(id) = looks.chosen.filter(|id| self.fresh_one != Some(*id)) {
            let query = JobQuery {
                expected_starts: true,
                blockers: true,
                ..JobQuery::of(vec![named(picture, id)])
            };
            self.fresh_one = Some(id);
            self.fresh.insert(id);
            return Some((Asked::Details, Request::Jobs(query)));
        }
        let is_running = |id: &&JobId| {
            picture.jobs.get(id).is_some_and(|job| job.run.state == JobState::Running)
        };
        let is_known = |id: &JobId| {
            let known = self.over_time.filter(|(known, _)| known == id);
            known.is_some_and(|(_, ticks)| ticks < OLD_SERIES || !is_running(&id))
        };
        if let Some(id) = looks.page.filter(|id| !is_known(id)) {
            self.over_time = Some((id, 0));
            return Some((Asked::OverTime(id), Request::OverTime(vec![named(picture, id)])));
        }
        // Without a running job it does not change.
        let node = picture
            .node
            .as_ref()
            .filter(|_| looks.page.is_none() && picture.running().next().is_some());
        if let Some(node) = node.filter(|_| self.host_use.is_none_or(|ticks| ticks >= OLD_HOST)) {
            self.host_use = Some(0);
            return Some((
                Asked::Host,
                Request::HostOverTime(Timestamp(
                    node.now.0 - HOST_WINDOW.cast_signed() * 1_000_000,
                )),
            ));
        }
        if std::mem::take(&mut self.usage_due) {
            let steps: Vec<JobRef> =
                looks.visible.iter().filter(is_running).map(|id| named(picture, *id)).collect();
            if !steps.is_empty() {
                return Some((Asked::Usage, Request::Usage(UsageAsk { steps, all_steps: true })));
            }
        }
        None
    }

    /// Takes an answer, or a part of one.
    pub fn answer(&mut self, picture: &mut Picture, answer: Answer) {
        match answer {
            Answer::SomeJobs(list) => self.jobs(picture, list, false),
            Answer::Jobs(list) => {
                self.jobs(picture, list, true);
                self.asked = None;
            }
            Answer::Node(node) => {
                picture.node = Some(*node);
                self.asked = None;
            }
            Answer::Usage { list, .. } => {
                picture.take_usage(&list);
                self.asked = None;
            }
            Answer::OverTime(steps) => {
                if let Some(Asked::OverTime(id)) = self.asked.take() {
                    picture.over_time = Some((id, steps));
                }
            }
            Answer::HostOverTime { now, spans } => {
                picture.host_use = Some((now, spans));
                self.asked = None;
            }
            _ => self.refused(),
        }
    }

    fn jobs(&mut self, picture: &mut Picture, list: JobList, is_last: bool) {
        match &mut self.asked {
            Some(Asked::All) => {
                self.coming.take(list);
                if is_last {
                    picture.become_as(std::mem::take(&mut self.coming));
                }
            }
            Some(Asked::Live(ids)) => {
                let told: BTreeSet<JobId> = list.brief.iter().map(|job| job.0.id).collect();
                ids.retain(|id| !told.contains(id));
                picture.take(list);
                if is_last {
                    self.ended.append(ids);
                }
            }
            Some(Asked::Ended(ids)) => {
                let told: BTreeSet<JobId> = list.brief.iter().map(|job| job.0.id).collect();
                ids.retain(|id| !told.contains(id));
                picture.take(list);
                if is_last {
                    ids.iter().for_each(|id| picture.drop(*id));
                }
            }
            Some(Asked::Details) => picture.take_details(list),
            Some(Asked::Node | Asked::Usage | Asked::OverTime(_) | Asked::Host) | None => {}
        }
    }
}
