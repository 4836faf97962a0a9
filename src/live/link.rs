//! Chooses the next request to the daemon, one at a time, and applies the answers to the picture.
//!
//! Listings are brief, so that a long queue appears immediately. Details are requested only for the
//! jobs on the screen.

use super::picture::{Picture, named};
use slotd_model::changed::Changed;
use slotd_model::query::JobQuery;
use slotd_model::view::{JobList, JobView};
use slotd_model::{JobId, JobRef, JobState, Timestamp};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Request, UsageAsk};
use std::collections::BTreeSet;

/// Maximum number of jobs in one request for details.
const MOST_DETAILED: usize = 256;

/// The request that is waiting for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    All,
    Node,
    /// The jobs among these that are still pending or running.
    Live(BTreeSet<JobId>),
    /// The records of these jobs, which have ended.
    Ended(BTreeSet<JobId>),
    /// The details of the jobs on the screen, or more details of a single job.
    Details,
    Usage,
    /// The usage of one job over time.
    OverTime(JobId),
    /// The usage of the host over time.
    Host,
}

#[derive(Debug, Default)]
pub struct Link {
    changed: Changed,
    /// Jobs that have ended or were deleted and are not requested yet.
    ended: BTreeSet<JobId>,
    asked: Option<Asked>,
    /// The new picture, while its parts arrive.
    coming: Vec<JobView>,
    /// Records whose details are current or requested.
    fresh: BTreeSet<JobId>,
    /// The job whose full details are current or requested.
    fresh_one: Option<JobId>,
    /// Whether the reasons of pending jobs may have changed.
    reasons_due: bool,
    node_due: bool,
    usage_due: bool,
    /// The job whose usage over time is known, and the number of ticks since it was requested.
    over_time: Option<(JobId, u32)>,
    /// The number of ticks since the host usage of the last hour was requested.
    host_use: Option<u32>,
    /// Whether the daemon refused a request, which is retried at the next event.
    is_refused: bool,
}

/// The number of ticks, with a running job, after which the host usage is requested again.
const OLD_HOST: u32 = 30;

/// The length of the period for which the host usage is shown, in seconds.
pub const HOST_WINDOW: u64 = 3600;

/// The number of ticks after which the usage of a running job over time is requested again.
const OLD_SERIES: u32 = 5;

/// The jobs that need details.
#[derive(Debug, Default)]
pub struct InView {
    /// The jobs on the screen.
    pub visible: Vec<JobId>,
    /// The selected job.
    pub chosen: Option<JobId>,
    /// The job whose page is open.
    pub page: Option<JobId>,
    /// Whether the host usage of the last hour is on the screen.
    pub host: bool,
}

impl Link {
    pub fn changed(&mut self, changed: &Changed) {
        self.allow_retry();
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
        // Jobs hold CPUs and licenses of the node, and its reservations begin and end.
        self.node_due |= !changed.is_empty();
    }

    /// Marks the current usage as outdated.
    pub fn tick(&mut self) {
        self.allow_retry();
        self.usage_due = true;
        self.node_due = true;
        if let Some((_, ticks)) = &mut self.over_time {
            *ticks += 1;
        }
        self.host_use = self.host_use.map(|ticks| ticks + 1);
    }

    /// Allows refused requests to be retried.
    pub fn allow_retry(&mut self) {
        self.is_refused = false;
    }

    /// Marks the refused request for repetition, so that nothing on the screen stays outdated.
    fn refused(&mut self) {
        self.is_refused = true;
        match self.asked.take() {
            Some(Asked::All) => self.changed = Changed::everything(),
            Some(Asked::Live(ids) | Asked::Ended(ids)) => self.changed.jobs.extend(ids),
            Some(Asked::Node) => self.node_due = true,
            Some(Asked::Details | Asked::Usage | Asked::OverTime(_) | Asked::Host) | None => {}
        }
    }

    /// Discards the pending request when the connection is lost.
    pub fn lost(&mut self) {
        *self = Link::default();
    }

    /// Returns whether no answer is pending. If [`Self::next`] has no request either, the picture is
    /// current.
    pub fn is_settled(&self) -> bool {
        self.asked.is_none()
    }

    /// Returns the next request; `None` if everything needed is known or an answer is pending.
    pub fn next(&mut self, picture: &Picture, in_view: &InView) -> Option<Request> {
        if self.asked.is_some() || self.is_refused {
            return None;
        }
        let (asked, request) = self.question(picture, in_view)?;
        self.asked = Some(asked);
        Some(request)
    }

    fn question(&mut self, picture: &Picture, in_view: &InView) -> Option<(Asked, Request)> {
        let brief = |query: JobQuery| Request::Jobs(JobQuery { brief: true, ..query });
        if self.changed.all {
            self.changed = Changed::default();
            self.ended.clear();
            self.coming.clear();
            return Some((Asked::All, brief(JobQuery::default())));
        }
        if !self.changed.jobs.is_empty() {
            let ids = std::mem::take(&mut self.changed.jobs);
            let jobs = ids.iter().map(|id| JobRef::job(*id)).collect();
            // For an array this returns its active tasks only. Ended tasks are requested by ID.
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
        self.detail_request(picture, in_view)
    }

    /// Returns the next request for details.
    fn detail_request(&mut self, picture: &Picture, in_view: &InView) -> Option<(Asked, Request)> {
        if std::mem::take(&mut self.reasons_due) {
            let waits = |id: &JobId| {
                picture.jobs.get(id).is_some_and(|job| job.run.state == JobState::Pending)
            };
            self.fresh.retain(|id| !waits(id));
        }
        let wanted = in_view
            .visible
            .iter()
            .copied()
            .chain(picture.running().map(|job| job.id).take(MOST_DETAILED));
        // The selected job is requested separately and in full.
        let is_stale = |id: &JobId| !self.fresh.contains(id) && in_view.chosen != Some(*id);
        let stale: BTreeSet<JobId> = wanted.filter(is_stale).take(MOST_DETAILED).collect();
        if !stale.is_empty() {
            let jobs = stale.iter().map(|id| named(picture, *id)).collect();
            let query = JobQuery {
                expected_starts: true,
                without_paths: true,
                without_steps: true,
                ..JobQuery::of(jobs)
            };
            // A change that arrives before the answer makes them stale again.
            self.fresh.extend(stale);
            return Some((Asked::Details, Request::Jobs(query)));
        }
        if let Some(id) = in_view.chosen.filter(|id| self.fresh_one != Some(*id)) {
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
        if let Some(id) = in_view.page.filter(|id| !is_known(id)) {
            self.over_time = Some((id, 0));
            return Some((Asked::OverTime(id), Request::OverTime(vec![named(picture, id)])));
        }
        // The host usage does not change without a running job.
        let node =
            picture.node.as_ref().filter(|_| in_view.host && picture.running().next().is_some());
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
                in_view.visible.iter().filter(is_running).map(|id| named(picture, *id)).collect();
            if !steps.is_empty() {
                return Some((Asked::Usage, Request::Usage(UsageAsk { steps, all_steps: true })));
            }
        }
        None
    }

    /// Applies an answer or a part of one.
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
                self.coming.extend(list.whole().jobs);
                if is_last {
                    picture.replace(std::mem::take(&mut self.coming));
                }
            }
            Some(Asked::Live(ids)) => {
                let found: BTreeSet<JobId> = list.brief.iter().map(|job| job.id).collect();
                ids.retain(|id| !found.contains(id));
                picture.take(list);
                if is_last {
                    self.ended.append(ids);
                }
            }
            Some(Asked::Ended(ids)) => {
                let found: BTreeSet<JobId> = list.brief.iter().map(|job| job.id).collect();
                ids.retain(|id| !found.contains(id));
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
