//! The state of the node: the only place that knows why it accepts or starts no jobs.
//!
//! A fault of the host drains the node. Jobs that were being launched are PENDING again, and
//! nothing else starts. Single jobs are then tried with a pause that doubles, until the first
//! successful launch ends the drain. A job that keeps hitting faults while others launch is held,
//! so that no job can keep the node drained.

use slotd_model::node::{Drains, LaunchAtDeath, NodeParts, NodeReason, Outage};
use slotd_model::{ExitRecord, JobId, StepKey, Timestamp};
use std::collections::BTreeSet;

/// The initial and the longest pause between two tries. The pause doubles up to the longest.
const FIRST_PAUSE_SECS: u64 = 1;
const LONGEST_PAUSE_SECS: u64 = 60;

/// After this many deaths of the daemon during its launch, a job is held and a step fails. A single
/// death may be chance (a kill, a power cut).
pub(crate) const MAX_DEATHS: u32 = 2;

/// A problem, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub text: String,
    pub since: Timestamp,
    /// The name and UID of the user who ordered it; `None` if the daemon detected it.
    pub by: Option<(String, u32)>,
}

impl Trouble {
    fn by_owner(NodeReason { text, since, user, uid }: NodeReason) -> Trouble {
        Trouble { text, since, by: Some((user, uid)) }
    }
}

/// The conditions that keep the node from accepting jobs.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The database cannot be written.
    store: Option<Trouble>,
    launches: Option<FailingLaunches>,
    /// The owner has drained the node.
    order: Option<Trouble>,
    /// The parts that the owner has drained.
    drained: Vec<Outage>,
    /// Missing hardware.
    found: Vec<Trouble>,
    /// The parts out of use that running jobs have been notified of.
    announced: NodeParts,
    /// Cgroups of jobs cannot be created: no job starts without the limits that it was promised.
    cgroups: Option<UnusableCgroups>,
    /// The host is shutting down.
    goes_down: Option<Trouble>,
    /// The job that was being launched when the daemon before this one died.
    launched_at_death: Option<LaunchAtDeath>,
}

/// Launches fail because of a fault of the host.
#[derive(Debug, Clone)]
struct FailingLaunches {
    trouble: Trouble,
    pause_secs: u64,
    /// When the next job is tried.
    next: Timestamp,
    probe: Option<JobId>,
    /// A try is due, but running jobs leave too few free resources for one.
    waits_for_room: bool,
    /// The jobs whose launch failed, an array counting as one: others are tried first.
    failed: BTreeSet<JobId>,
}

/// The base cgroup cannot be used. It is checked again until it can, with a pause that doubles.
#[derive(Debug, Clone)]
struct UnusableCgroups {
    trouble: Trouble,
    pause_secs: u64,
    /// The time of the next check; `None` while one is in progress.
    next: Option<Timestamp>,
}

impl Node {
    pub(crate) fn takes_starts(&self) -> bool {
        self.start_trouble().is_none()
    }

    /// Returns why the node starts no jobs, or `None` if it does.
    pub(crate) fn start_trouble(&self) -> Option<&Trouble> {
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

    /// Returns whether a drained node may try a job: a launch can cure only failing launches.
    fn may_probe(&self) -> bool {
        self.store.is_none() && self.order.is_none() && self.cgroups.is_none()
    }

    /// Records that the launch of a job, or of a task of this array, failed. Returns whether it is
    /// the first failure of this problem.
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

    /// Returns why the node accepts no jobs, or `None` if it does.
    pub fn trouble(&self) -> Option<&Trouble> {
        let Node { store, launches, order, .. } = self;
        let failing = launches.as_ref().map(|failing| &failing.trouble);
        store.as_ref().or(failing).or(order.as_ref()).or(self.cgroup_trouble())
    }

    /// Records that the database cannot be written, or can be again.
    pub fn set_store_trouble(&mut self, text: Option<String>, now: Timestamp) {
        self.store = text.map(|text| Trouble { text, since: now, by: None });
    }

    /// Records that cgroups of jobs cannot be created, or can be again.
    pub fn set_cgroup_trouble(&mut self, text: Option<String>, now: Timestamp) {
        let known = self.cgroups.take();
        self.cgroups = text.map(|text| {
            let (since, pause_secs, next) = match known {
                // This answers a check. Any other report comes from a launch, and leaves the time
                // of the next check as it is.
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

    /// Returns whether to check the base cgroup again. True once per check;
    /// [`Node::set_cgroup_trouble`] then delivers the answer.
    pub fn take_cgroup_request(&mut self, now: Timestamp) -> bool {
        self.cgroups
            .as_mut()
            .is_some_and(|cgroups| cgroups.next.take_if(|next| *next <= now).is_some())
    }

    pub(crate) fn next_cgroup_check(&self) -> Option<Timestamp> {
        self.cgroups.as_ref()?.next
    }

    /// Returns whether cgroups of jobs cannot be created.
    pub fn lacks_cgroups(&self) -> bool {
        self.cgroups.is_some()
    }

    /// Starts no more jobs, because the host is shutting down.
    pub(crate) fn goes_down(&mut self, now: Timestamp) {
        let text = "the host is shutting down".to_owned();
        self.goes_down = Some(Trouble { text, since: now, by: None });
    }

    /// Ends the drain after a successful launch.
    pub fn launched(&mut self) {
        self.launches = None;
    }

    /// Records the launch that was in progress when the last daemon died. It counts if it turns out
    /// that nothing was started.
    pub fn launch_was_under_way(&mut self, at_death: LaunchAtDeath) {
        self.launched_at_death = Some(at_death);
    }

    /// Returns the exit record of a step that was never started, if daemons died repeatedly while
    /// launching it. Otherwise returns `None`, and the client requests the step again.
    pub fn failed_step_launch(&self, key: StepKey, ended: Timestamp) -> Option<ExitRecord> {
        let deaths = self.launched_at_death.filter(|at_death| at_death.step == key)?.deaths;
        let why = format!("the daemon died {deaths} times while launching the step");
        (deaths >= MAX_DEATHS).then(|| ExitRecord::launch_failed(why, ended))
    }

    /// Returns whether this launch was in progress when the last daemon died. True only once.
    pub(crate) fn take_launch_at_death(&mut self, key: StepKey) -> bool {
        self.launched_at_death.take_if(|at_death| at_death.step == key).is_some()
    }

    /// Returns when the next job is tried on a drained node, if only time is missing.
    pub(crate) fn next_probe(&self) -> Option<Timestamp> {
        let failing = self.launches.as_ref().filter(|failing| !failing.waits_for_room)?;
        self.may_probe().then_some(failing.next)
    }

    /// Returns the jobs and arrays whose launch failed, if it is time to try a job.
    pub(crate) fn due_probe(&self, now: Timestamp) -> Option<&BTreeSet<JobId>> {
        let failing = self.launches.as_ref().filter(|failing| failing.next <= now)?;
        self.may_probe().then_some(&failing.failed)
    }

    /// Records the job that is tried, or `None` if none could start.
    pub(crate) fn note_probe(&mut self, probe: Option<JobId>, now: Timestamp) {
        let Some(failing) = &mut self.launches else { return };
        // If none could start, the end of a job triggers a round, and with it a try.
        failing.waits_for_room = probe.is_none();
        failing.probe = probe;
        // A job whose launch reports no result (a plain allocation) delays others no longer than a
        // failing one.
        failing.next = if probe.is_some() { now.plus_secs(failing.pause_secs) } else { now };
    }

    /// Sets the parts that the owner has drained.
    pub fn set_drains(&mut self, drains: Drains) {
        self.order = drains.node.map(Trouble::by_owner);
        self.drained = drains.parts;
    }

    /// Returns the parts that no job gets, each with its trouble. If the parts are empty, the text
    /// names them.
    pub fn outages(&self) -> Vec<(NodeParts, Trouble)> {
        let owners = self.drained.iter().cloned();
        let owners = owners.map(|Outage { parts, reason }| (parts, Trouble::by_owner(reason)));
        let found = self.found.iter().cloned().map(|trouble| (NodeParts::default(), trouble));
        owners.chain(found).collect()
    }

    /// Returns why parts of the host are out of use, as one string.
    pub fn why_out(&self) -> String {
        let describe = |(parts, trouble): (NodeParts, Trouble)| {
            if parts.is_empty() { trouble.text } else { format!("{parts}: {}", trouble.text) }
        };
        self.outages().into_iter().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Returns the descriptions of missing hardware.
    pub fn losses(&self) -> Vec<String> {
        self.found.iter().map(|trouble| trouble.text.clone()).collect()
    }

    pub(crate) fn set_losses(&mut self, losses: Vec<String>, now: Timestamp) {
        let known = std::mem::take(&mut self.found);
        let since = |text: &str| {
            known.iter().find(|trouble| trouble.text == text).map_or(now, |trouble| trouble.since)
        };
        self.found = losses
            .into_iter()
            .map(|text| Trouble { since: since(&text), text, by: None })
            .collect();
    }

    /// Records the parts out of use that running jobs are notified of, and returns the previous
    /// ones.
    pub fn announce(&mut self, out: NodeParts) -> NodeParts {
        std::mem::replace(&mut self.announced, out)
    }
}
