//! Whether the node takes jobs: the one place that knows what keeps it from starting any.
//!
//! A fault of the host drains the node. What was being launched is PENDING again, nothing is
//! started, and one job after the other is tried with a pause that doubles: the first launch that
//! works ends it. A job that is met by faults again and again while others can be launched is held,
//! so that no job can keep the node drained.

use crate::model::node::{Drains, LaunchAtDeath, NodeParts, NodeReason, Outage};
use crate::model::{ExitRecord, JobId, StepKey, Timestamp};
use std::collections::BTreeSet;

/// Between two tries: the first, and the longest that it doubles to.
const FIRST_PAUSE_SECS: u64 = 1;
const LONGEST_PAUSE_SECS: u64 = 60;

/// After so many deaths of the daemon during its launch a job is held, and a step has failed: one
/// may be chance (a kill, a power cut).
pub const MAX_DEATHS: u32 = 2;

/// What is wrong, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub text: String,
    pub since: Timestamp,
    /// The name and the number of the user who wants it so. `None`: the daemon has found it.
    pub by: Option<(String, u32)>,
}

impl Trouble {
    fn by_owner(NodeReason { text, since, user, uid }: NodeReason) -> Trouble {
        Trouble { text, since, by: Some((user, uid)) }
    }
}

/// What keeps the node from taking jobs.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The database cannot be written.
    store: Option<Trouble>,
    launches: Option<FailingLaunches>,
    /// Its owner takes it out of use.
    order: Option<Trouble>,
    /// The parts that its owner takes out of use.
    drained: Vec<Outage>,
    /// What is not there any more.
    found: Vec<Trouble>,
    /// What running jobs know to be out of use.
    told: NodeParts,
    /// No cgroup of a job can be made: no job starts without the limits that it was promised.
    cgroups: Option<UnusableCgroups>,
    /// The host goes down.
    goes_down: Option<Trouble>,
    /// The job that was being launched when the daemon before this one died.
    launched_at_death: Option<LaunchAtDeath>,
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
    /// The jobs that could not be launched, an array as one: the others are tried first.
    failed: BTreeSet<JobId>,
}

/// The base of the cgroups cannot be used. It is checked again until it can, with a pause that
/// doubles.
#[derive(Debug, Clone)]
struct UnusableCgroups {
    trouble: Trouble,
    pause_secs: u64,
    /// When it is checked again. `None`: it is being checked.
    next: Option<Timestamp>,
}

impl Node {
    pub fn takes_starts(&self) -> bool {
        self.start_trouble().is_none()
    }

    /// Why the node starts no jobs; `None`: it does.
    pub fn start_trouble(&self) -> Option<&Trouble> {
        let failing = self.launches.as_ref().map(|failing| &failing.trouble);
        self.store
            .as_ref()
            .or(failing)
            .or(self.order.as_ref())
            .or(self.cgroup_trouble())
            .or(self.goes_down.as_ref())
    }

    fn cgroup_trouble(&self) -> Option<&Trouble> {
        self.cgroups.as_ref().map(|cgroups| &cgroups.trouble)
    }

    /// Whether a drained node may try a job: only launches that fail are cured by a launch.
    fn may_probe(&self) -> bool {
        self.store.is_none() && self.order.is_none() && self.cgroups.is_none()
    }

    /// The launch of a job, or of a task of this array, failed; true where it is the first of this
    /// trouble.
    pub fn launch_failed(
        &mut self,
        job: JobId,
        array: Option<JobId>,
        text: String,
        now: Timestamp,
    ) -> bool {
        let Some(failing) = &mut self.launches else {
            self.launches = Some(FailingLaunches {
                trouble: Trouble { text, since: now, by: None },
                pause_secs: FIRST_PAUSE_SECS,
                next: now.plus_secs(FIRST_PAUSE_SECS),
                probe: None,
                waits_for_room: false,
                failed: BTreeSet::from([array.unwrap_or(job)]),
            });
            return true;
        };
        failing.failed.insert(array.unwrap_or(job));
        if failing.probe == Some(job) {
            failing.trouble.text = text;
            failing.probe = None;
            failing.pause_secs = (failing.pause_secs * 2).min(LONGEST_PAUSE_SECS);
            failing.next = now.plus_secs(failing.pause_secs);
        }
        false
    }

    /// Why the node takes no jobs; `None`: it does.
    pub fn trouble(&self) -> Option<&Trouble> {
        let Node { store, launches, order, .. } = self;
        let failing = launches.as_ref().map(|failing| &failing.trouble);
        store.as_ref().or(failing).or(order.as_ref()).or(self.cgroup_trouble())
    }

    /// The database cannot be written, or can again.
    pub fn set_store_trouble(&mut self, text: Option<String>, now: Timestamp) {
        self.store = text.map(|text| Trouble { text, since: now, by: None });
    }

    /// The cgroups of jobs cannot be made, or can again.
    pub fn set_cgroup_trouble(&mut self, text: Option<String>, now: Timestamp) {
        let known = self.cgroups.take();
        self.cgroups = text.map(|text| {
            let (since, pause_secs, next) = match known {
                // The answer to a check. Every other report comes from a launch, and the next check
                // stays when it is.
                Some(known) if known.next.is_none() => {
                    (known.trouble.since, (known.pause_secs * 2).min(LONGEST_PAUSE_SECS), None)
                }
                Some(known) => (known.trouble.since, known.pause_secs, known.next),
                None => (now, FIRST_PAUSE_SECS, None),
            };
            let next = Some(next.unwrap_or(now.plus_secs(pause_secs)));
            UnusableCgroups { trouble: Trouble { text, since, by: None }, pause_secs, next }
        });
    }

    /// Whether the base of the cgroups has to be checked again. Asked for once, then answered by
    /// [`Node::set_cgroup_trouble`].
    pub fn take_cgroup_request(&mut self, now: Timestamp) -> bool {
        self.cgroups
            .as_mut()
            .is_some_and(|cgroups| cgroups.next.take_if(|next| *next <= now).is_some())
    }

    pub fn next_cgroup_check(&self) -> Option<Timestamp> {
        self.cgroups.as_ref()?.next
    }

    /// Whether no cgroup of a job can be made.
    pub fn lacks_cgroups(&self) -> bool {
        self.cgroups.is_some()
    }

    /// The host goes down: nothing is started any more.
    pub fn goes_down(&mut self, now: Timestamp) {
        let text = "the host goes down".to_owned();
        self.goes_down = Some(Trouble { text, since: now, by: None });
    }

    /// Something was launched: the host can do it.
    pub fn launched(&mut self) {
        self.launches = None;
    }

    /// This was being launched when the last daemon died. It counts if it turns out that nothing of
    /// it was started.
    pub fn launch_was_under_way(&mut self, at_death: LaunchAtDeath) {
        self.launched_at_death = Some(at_death);
    }

    /// Nothing of this step was started, and its daemon is gone: its client asks for it anew. Not
    /// where daemons died of it again and again: how it has failed then.
    pub fn step_came_to_nothing(&self, key: StepKey, ended: Timestamp) -> Option<ExitRecord> {
        let deaths = self.launched_at_death.filter(|at_death| at_death.step == key)?.deaths;
        let why = format!("the daemon died {deaths} times while the step was launched");
        (deaths >= MAX_DEATHS).then(|| ExitRecord::launch_failed(why, ended))
    }

    /// Whether this was being launched when the last daemon died. It is told once.
    pub fn take_launch_at_death(&mut self, key: StepKey) -> bool {
        self.launched_at_death.take_if(|at_death| at_death.step == key).is_some()
    }

    /// When the next job is tried on a drained node, if that is a matter of time alone.
    pub fn next_probe(&self) -> Option<Timestamp> {
        let failing = self.launches.as_ref().filter(|failing| !failing.waits_for_room)?;
        self.may_probe().then_some(failing.next)
    }

    /// Where it is time to try a job: the jobs, and arrays, that could not be launched.
    pub fn due_probe(&self, now: Timestamp) -> Option<&BTreeSet<JobId>> {
        let failing = self.launches.as_ref().filter(|failing| failing.next <= now)?;
        self.may_probe().then_some(&failing.failed)
    }

    /// This job is tried. `None`: there was no room for any.
    pub fn note_probe(&mut self, probe: Option<JobId>, now: Timestamp) {
        let Some(failing) = &mut self.launches else { return };
        // Where there is no room for any the end of a job asks for a round, and with it for a try.
        failing.waits_for_room = probe.is_none();
        failing.probe = probe;
        // One that does not tell how it went (a plain allocation) keeps others waiting no longer
        // than one that fails.
        failing.next = if probe.is_some() { now.plus_secs(failing.pause_secs) } else { now };
    }

    /// What its owner takes out of use.
    pub fn set_drains(&mut self, drains: Drains) {
        self.order = drains.node.map(Trouble::by_owner);
        self.drained = drains.parts;
    }

    /// What no job gets, and why. Where no parts are named the text names them.
    pub fn outages(&self) -> Vec<(NodeParts, Trouble)> {
        let owners = self.drained.iter().cloned();
        let owners = owners.map(|Outage { parts, reason }| (parts, Trouble::by_owner(reason)));
        let found = self.found.iter().cloned().map(|trouble| (NodeParts::default(), trouble));
        owners.chain(found).collect()
    }

    /// Why parts of the host are out of use, in one text.
    pub fn why_out(&self) -> String {
        let told = |(parts, trouble): (NodeParts, Trouble)| {
            if parts.is_empty() { trouble.text } else { format!("{parts}: {}", trouble.text) }
        };
        self.outages().into_iter().map(told).collect::<Vec<_>>().join("; ")
    }

    /// What is not there any more, in words.
    pub fn losses(&self) -> Vec<String> {
        self.found.iter().map(|trouble| trouble.text.clone()).collect()
    }

    pub fn set_losses(&mut self, losses: Vec<String>, now: Timestamp) {
        let known = std::mem::take(&mut self.found);
        let since = |text: &str| {
            known.iter().find(|trouble| trouble.text == text).map_or(now, |trouble| trouble.since)
        };
        self.found = losses
            .into_iter()
            .map(|text| Trouble { since: since(&text), text, by: None })
            .collect();
    }

    /// Running jobs are told that this is out of use; what they knew before.
    pub fn note_told(&mut self, out: NodeParts) -> NodeParts {
        std::mem::replace(&mut self.told, out)
    }
}
