//! Whether the node takes jobs: the one place that knows what keeps it from starting any.
//!
//! A fault of the host drains the node. What was being launched is PENDING again, nothing is started, and one job after
//! the other is tried with a pause that doubles: the first launch that works ends it. A job that is met by faults again
//! and again while others can be launched is held, so that no job can keep the node drained.

use super::core::Core;
use super::types::{Cx, Effect, StopCause};
use crate::model::job::Hold;
use crate::model::node::{HostFault, LaunchAtDeath, NodeParts, Outage};
use crate::model::{ExitRecord, JobId, JobState, Reason, StepId, StepKey, Timestamp};
use std::collections::BTreeSet;

/// Between two tries: the first, and the longest that it doubles to.
const FIRST_PAUSE_SECS: u64 = 1;
const LONGEST_PAUSE_SECS: u64 = 60;

/// So many jobs of the queue are looked at for one that can be tried.
const PROBE_DEPTH: usize = 1000;

/// After so many deaths of the daemon during its launch a job is held, and a step has failed: one may be chance (a kill, a
/// power cut).
const MAX_DEATHS: u32 = 2;

/// After so many faults of the host a job is held, though others were launched before each. Five of them are ten
/// seconds and more in which the job has kept the others from starting.
const MAX_FAULTS: u32 = 5;

/// What is wrong, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub text: String,
    pub since: Timestamp,
    /// The name and the number of the user who wants it so. `None`: the daemon has found it.
    pub by: Option<(String, u32)>,
}

/// What keeps the node from taking jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// The database cannot be written.
    store: Option<Trouble>,
    launches: Option<FailingLaunches>,
    /// Its owner takes it out of use.
    pub order: Option<Trouble>,
    /// The parts that its owner takes out of use.
    pub drained: Vec<Outage>,
    /// What is not there any more.
    pub found: Vec<Trouble>,
    /// What running jobs know to be out of use.
    pub told: NodeParts,
    /// Limits cannot be set. Jobs are started all the same, and their launch fails with the reason.
    cgroups: Option<Trouble>,
    /// The host goes down.
    goes_down: Option<Trouble>,
}

/// Launches fail by a fault of the host.
#[derive(Debug, Clone)]
struct FailingLaunches {
    trouble: Trouble,
    pause_secs: u64,
    /// When the next job is tried.
    next: Timestamp,
    probe: Option<JobId>,
    /// It is time, but what runs leaves no room for a try.
    waits_for_room: bool,
    /// The jobs that could not be launched: the others are tried first.
    failed: BTreeSet<JobId>,
}

impl Node {
    fn takes_starts(&self) -> bool {
        self.start_trouble().is_none()
    }

    fn start_trouble(&self) -> Option<&Trouble> {
        let failing = self.launches.as_ref().map(|failing| &failing.trouble);
        self.store.as_ref().or(failing).or(self.order.as_ref()).or(self.goes_down.as_ref())
    }

    /// A launch failed; true where it is the first of this trouble.
    fn launch_failed(&mut self, job: JobId, text: String, now: Timestamp) -> bool {
        let Some(failing) = &mut self.launches else {
            self.launches = Some(FailingLaunches {
                trouble: Trouble { text, since: now, by: None },
                pause_secs: FIRST_PAUSE_SECS,
                next: now.plus_secs(FIRST_PAUSE_SECS),
                probe: None,
                waits_for_room: false,
                failed: BTreeSet::from([job]),
            });
            return true;
        };
        failing.failed.insert(job);
        if failing.probe == Some(job) {
            failing.trouble.text = text;
            failing.probe = None;
            failing.pause_secs = (failing.pause_secs * 2).min(LONGEST_PAUSE_SECS);
            failing.next = now.plus_secs(failing.pause_secs);
        }
        false
    }
}

impl Core {
    /// Why the node takes no jobs; `None`: it does.
    pub fn node_trouble(&self) -> Option<&Trouble> {
        let Node { store, launches, cgroups, order, .. } = &self.node;
        let failing = launches.as_ref().map(|failing| &failing.trouble);
        store.as_ref().or(failing).or(order.as_ref()).or(cgroups.as_ref())
    }

    /// The database cannot be written, or can again.
    pub fn set_store_trouble(&mut self, text: Option<String>, now: Timestamp) {
        self.node.store = text.map(|text| Trouble { text, since: now, by: None });
    }

    /// The cgroups of jobs cannot be made, or can again.
    pub fn set_cgroup_trouble(&mut self, text: Option<String>, now: Timestamp) {
        let since = self.node.cgroups.as_ref().map_or(now, |known| known.since);
        self.node.cgroups = text.map(|text| Trouble { text, since, by: None });
    }

    /// The host goes down: what runs ends with it, as NODE_FAIL or in the queue again, and nothing is started any more.
    pub fn host_goes_down(&mut self, cx: &mut Cx) {
        self.node.goes_down =
            Some(Trouble { text: "the host goes down".to_owned(), since: cx.now, by: None });
        let is_running = |id: &JobId| {
            self.job(*id)
                .is_some_and(|job| matches!(job.run.state, JobState::Running | JobState::Suspended))
        };
        let running: Vec<JobId> = self.active.iter().copied().filter(is_running).collect();
        for id in running {
            self.stop(id, Reason::NodeDown, StopCause::NodeDown, cx);
        }
        self.settle(cx);
    }

    /// Whether some job has processes, as far as is known.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// What is wrong with the cgroups of jobs.
    pub fn cgroup_trouble(&self) -> Option<&str> {
        self.node.cgroups.as_ref().map(|trouble| trouble.text.as_str())
    }

    pub(super) fn takes_starts(&self) -> bool {
        self.node.takes_starts()
    }

    /// Why the node starts no jobs; `None`: it does.
    pub(super) fn start_trouble(&self) -> Option<&Trouble> {
        self.node.start_trouble()
    }

    /// Processes of this job were started: the host can do it.
    pub fn on_launched(&mut self, id: JobId) {
        self.node.launches = None;
        if let Some(record) = self.jobs.get_mut(&id) {
            record.job.failed_launches = Default::default();
        }
    }

    /// This was being launched when the last daemon died. It counts if it turns out that nothing of it was started.
    pub fn launch_was_under_way(&mut self, at_death: LaunchAtDeath) {
        self.launched_at_death = Some(at_death);
    }

    /// Nothing of this step was started, and its daemon is gone: its client asks for it anew. Not where daemons died of it
    /// again and again: how it has failed then.
    pub fn step_came_to_nothing(&self, key: StepKey, ended: Timestamp) -> Option<ExitRecord> {
        let deaths = self.launched_at_death.filter(|at_death| at_death.step == key)?.deaths;
        let why = format!("the daemon died {deaths} times while the step was launched");
        (deaths >= MAX_DEATHS).then(|| ExitRecord::launch_failed(why, ended))
    }

    /// A launch came to nothing by a fault of the host.
    pub(super) fn launch_failed_by_host(
        &mut self,
        id: JobId,
        fault: HostFault,
        why: &str,
        now: Timestamp,
    ) {
        let is_first = self.node.launch_failed(id, format!("{fault}: {why}"), now);
        let Some(record) = self.jobs.get_mut(&id).filter(|_| is_first) else { return };
        let job = &mut record.job;
        job.failed_launches.faults += 1;
        if job.failed_launches.faults >= MAX_FAULTS {
            job.hold = Hold::Admin;
            let times = job.failed_launches.faults;
            let text = format!(
                "its launch failed {times} times while other jobs could be launched: {fault}: {why}"
            );
            job.run.system_comment = Some(text);
        }
    }

    /// Nothing of this job was started, and its daemon is gone.
    pub(super) fn launch_came_to_nothing(&mut self, id: JobId) {
        let step = StepKey { job: id, step: StepId::Batch };
        if self.launched_at_death.take_if(|at_death| at_death.step == step).is_none() {
            return;
        }
        let Some(record) = self.jobs.get_mut(&id) else { return };
        // Counted in its record, since it may be launched by a daemon long after this one.
        let job = &mut record.job;
        job.failed_launches.deaths += 1;
        if job.failed_launches.deaths >= MAX_DEATHS {
            job.hold = Hold::Admin;
            let times = job.failed_launches.deaths;
            job.run.system_comment =
                Some(format!("the daemon died {times} times while the job was launched"));
        }
    }

    /// When the next job is tried on a drained node, if that is a matter of time alone.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        let failing = self.node.launches.as_ref().filter(|failing| !failing.waits_for_room)?;
        let is_allowed = self.node.store.is_none() && self.node.order.is_none();
        (is_allowed && self.queue.first().is_some()).then_some(failing.next)
    }

    /// Starts one job of a drained node, if it is time: the first of the queue that has not failed, else the first.
    pub(super) fn probe(&mut self, cx: &mut Cx) {
        let Some(failing) = self.node.launches.as_ref().filter(|failing| failing.next <= cx.now)
        else {
            return;
        };
        if self.node.store.is_some() || self.node.order.is_some() {
            return;
        }
        let mut keys = Vec::new();
        let mut next = self.queue.first();
        while let Some(key) = next.filter(|_| keys.len() < PROBE_DEPTH) {
            keys.push(key);
            next = self.queue.after(key);
        }
        keys.sort_by_key(|key| failing.failed.contains(&key.id));
        let starts = self.starts;
        for key in keys {
            let Some(record) = self.jobs.get(&key.id) else { continue };
            let Some(choice) = self.open_choice(record, key, cx.now) else { continue };
            let want = choice.want();
            let (lacks, part) = (
                self.lacks_readings(&want, cx.now),
                self.ledger.room().pick(&want, &self.config.host),
            );
            if lacks.is_any() {
                // The answer asks for a round.
                self.want_readings(lacks);
                continue;
            }
            if part.is_some_and(|part| self.start(key.id, part, cx)) {
                break;
            }
        }
        let started = (self.starts > starts).then(|| cx.out.effects.last()).flatten();
        let probe = started.and_then(|effect| match effect {
            Effect::Launch(job) => Some(job.id),
            Effect::Granted(id) => Some(*id),
            _ => None,
        });
        if let Some(failing) = &mut self.node.launches {
            // Where there is no room for any the end of a job asks for a round, and with it for a try.
            failing.waits_for_room = probe.is_none();
            failing.probe = probe;
            // One that does not tell how it went (a plain allocation) keeps others waiting no longer than one that fails.
            failing.next =
                if probe.is_some() { cx.now.plus_secs(failing.pause_secs) } else { cx.now };
        }
    }
}
