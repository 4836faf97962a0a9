//! A double that records the effects of the core, for this room's tests. A test can end by checking
//! that no effect is left unexamined.

use crate::core::Core;
use crate::testing::{Ask, Stored, T0, config, host};
use crate::types::{Config, Cx, Effect, EndCause, StopCause, Submission};
use slotd_model::job::{Client, ClientProcess};
use slotd_model::license::License;
use slotd_model::qos::{self, Qos};
use slotd_model::request::JobKind;
use slotd_model::{
    ArrayRole, ExitCode, ExitRecord, JobId, JobRef, JobState, Reason, Refusal, Timestamp,
};
use std::collections::BTreeMap;

/// A core with a clock, a map as its store, and the effects that no test code has examined yet.
#[derive(Debug, Clone)]
pub(crate) struct Double {
    pub core: Core,
    pub now: Timestamp,
    pub store: Stored,
    pub effects: Vec<Effect>,
    /// The licenses and limits that jobs exceeded when the owner lowered them.
    exceeded: BTreeMap<String, u64>,
}

impl Double {
    pub(crate) fn new(cpus: u32, mem_mb: u64, gpus: u32) -> Self {
        Double {
            core: Core::new(config(host(cpus, mem_mb, gpus))),
            now: Timestamp::from_secs(T0),
            store: Stored::default(),
            effects: Vec::new(),
            exceeded: BTreeMap::new(),
        }
    }

    /// Creates a host with 4 CPUs, 1000 MB and 2 GPUs, and changed settings.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut double = Double::new(4, 1000, 2);
        let mut config = double.core.config().clone();
        change(&mut config);
        double.core = Core::new(config);
        double
    }

    /// Runs an action on the core, applies the changes, collects the effects, and checks the
    /// invariants.
    pub(crate) fn act<T>(&mut self, action: impl FnOnce(&mut Core, &mut Cx) -> T) -> T {
        let mut cx = Cx::at(self.now);
        let result = action(&mut self.core, &mut cx);
        cx.out.changes.into_iter().for_each(|change| self.store.apply(change));
        for effect in &cx.out.effects {
            if let Effect::Ended(id) = effect {
                self.core.forget_later(*id, self.now);
            }
            if let Effect::Launch(launch) = effect {
                let stored = &self.store.jobs[&launch.id];
                assert_eq!(
                    stored.run.state,
                    JobState::Running,
                    "a job is RUNNING in the store before its process exists"
                );
                let (alloc, drained) = (
                    launch.run.alloc.as_ref().expect("an allocation"),
                    &self.core.config().host.drained,
                );
                let is_open = !alloc.cpu_ids.iter().any(|cpu| drained.cpus.contains(cpu))
                    && !alloc.gpu_ids.iter().any(|gpu| drained.gpus.contains(gpu));
                let kept = self.core.check_started(launch.id, self.now);
                kept.expect("no job runs into a reservation of others");
                assert!(is_open, "job {} got {alloc:?} while {drained} was out of use", launch.id);
            }
        }
        self.effects.extend(cx.out.effects);
        self.core.check_invariants().expect("the invariants hold");
        let exceeded = self.core.exceeded();
        for (name, over) in &exceeded {
            let before = self.exceeded.get(name).copied().unwrap_or(0);
            assert!(*over <= before, "{over} of {name} too many, {before} before");
        }
        self.exceeded = exceeded;
        self.core.check_reservations(self.now).expect("the reservations are kept");
        assert_eq!(
            self.core.memos().as_ref(),
            Ok(&self.store.memos),
            "the stored memos are the current ones"
        );
        result
    }

    /// Sets the number of each license.
    pub(crate) fn set_licenses(&mut self, licenses: &[(&str, u32)]) {
        let license =
            |(name, count): &(&str, u32)| License { name: (*name).to_owned(), count: *count };
        let licenses = licenses.iter().map(license).collect();
        self.set_config(Config { licenses, ..self.core.config().clone() });
    }

    /// Sets the QOS, beside the default one.
    pub(crate) fn set_qos(&mut self, all: &[Qos]) {
        let qos = qos::with_default(all.to_vec());
        self.set_config(Config { qos, ..self.core.config().clone() });
    }

    /// Applies settings of the owner. Running jobs may then hold more than they allow.
    pub(crate) fn set_config(&mut self, config: Config) {
        self.core.set_config(config, self.now);
        self.exceeded = self.core.exceeded();
        self.act(|_, _| ());
    }

    /// Returns the double after a restart of the daemon.
    pub(crate) fn restarted(mut self) -> Self {
        let jobs = self.store.jobs.values().cloned().collect();
        let (config, next) = (self.core.config().clone(), self.core.next_id());
        self.core = Core::recover(config, jobs, self.store.ended(), next, self.now);
        self.core.recall_memos(self.store.memos.clone().into_iter().collect(), self.now);
        self.effects.clear();
        self
    }

    /// Submits a job from a process of its own, with the job's ID as its PID.
    pub(crate) fn try_submit(&mut self, ask: Ask) -> Result<JobId, Refusal> {
        let process = ClientProcess {
            pid: self.core.next_id().0,
            start_ticks: 1,
            ..ClientProcess::default()
        };
        let client =
            Some(Client { process, holds: ask.0.kind == JobKind::Allocation, ..Client::default() });
        // The database is queried about the jobs that a dependency names.
        let ended = if ask.0.dependency.is_empty() { Vec::new() } else { self.store.ended() };
        let submission = Submission { request: ask.0, client, ended, ..Submission::default() };
        self.act(|core, cx| core.submit(submission, cx))
    }

    pub(crate) fn submit(&mut self, ask: Ask) -> JobId {
        self.try_submit(ask).expect("the job is accepted")
    }

    /// Like [`Self::submit`], without checking the invariants, for long queues.
    pub(crate) fn core_submit(&mut self, ask: Ask) -> JobId {
        let mut cx = Cx::at(self.now);
        let submission = Submission { request: ask.0, ..Submission::default() };
        let id = self.core.submit(submission, &mut cx).expect("the job is accepted");
        self.store.jobs.extend(self.core.job(id).map(|job| (id, job.clone())));
        id
    }

    pub(crate) fn plan(&mut self) {
        self.act(|core, cx| core.plan(cx));
    }

    /// Advances the clock, handles due timers, and plans.
    pub(crate) fn wait(&mut self, secs: u64) {
        self.now = self.now.plus_secs(secs);
        self.act(|core, cx| core.on_due(cx));
        self.plan();
    }

    pub(crate) fn end(&mut self, id: JobId, cause: EndCause, exit: ExitCode) {
        self.act(|core, cx| {
            core.on_job_ended(id, ExitRecord::gone(exit, cx.now), cause, cx);
        });
    }

    /// Ends a job with this exit code, and plans.
    pub(crate) fn exit(&mut self, id: JobId, status: i32) {
        self.end(id, EndCause::Exited, ExitCode::status(status));
        self.plan();
    }

    pub(crate) fn cancel(&mut self, sel: &JobRef) -> Result<Vec<JobId>, Refusal> {
        self.act(|core, cx| core.cancel(sel, 1001, cx))
    }

    pub(crate) fn state(&self, id: JobId) -> JobState {
        self.core.job(id).expect("the job is in memory").run.state
    }

    pub(crate) fn reason(&self, id: JobId) -> Reason {
        self.core.reason(id, self.now)
    }

    pub(crate) fn expected_start(&self, id: JobId) -> Option<Timestamp> {
        self.core.forecast(self.now).starts().get(&id).map(|start| start.at)
    }

    /// Returns the records that were launched or granted since the last call.
    pub(crate) fn started(&mut self) -> Vec<JobId> {
        let mut ids = Vec::new();
        self.effects.retain(|effect| match effect {
            Effect::Launch(launch) => {
                ids.push(launch.id);
                false
            }
            Effect::Granted(id) => {
                ids.push(*id);
                false
            }
            _ => true,
        });
        ids
    }

    /// Returns the jobs that were stopped since the last call.
    pub(crate) fn stops(&mut self) -> Vec<(JobId, StopCause)> {
        let mut stops = Vec::new();
        self.effects.retain(|effect| match effect {
            Effect::Stop { job, cause } => {
                stops.push((*job, *cause));
                false
            }
            _ => true,
        });
        stops
    }

    /// Returns the label of a record: `12_3` for an array task, `12_[4-7]` for a compact record.
    pub(crate) fn label(&self, id: JobId) -> String {
        let job = self.core.job(id).expect("the job is in memory");
        match (&job.role, job.compact_tasks()) {
            (ArrayRole::Task { array_job, task }, _) => format!("{array_job}_{task}"),
            (_, Some(tasks)) => format!("{}_[{tasks}]", job.array_job_id().unwrap_or(id)),
            (_, None) => id.to_string(),
        }
    }

    pub(crate) fn labels(&self, ids: &[JobId]) -> Vec<String> {
        ids.iter().map(|id| self.label(*id)).collect()
    }

    /// Checks that every effect was examined.
    pub(crate) fn assert_quiet(&self) {
        assert_eq!(self.effects, Vec::new(), "effects that the test did not expect");
    }
}
