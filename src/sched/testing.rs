//! Test support: a small host, short builders for requests, and a double that records the effects
//! of the core. A test can end by checking that no effect is left unexamined.

use super::core::Core;
use super::types::{Config, Cx, Effect, EndCause, EndedJob, StopCause, Submission};
use crate::model::array::{ArraySpec, TaskRange};
use crate::model::batch_tasks::BatchTasks;
use crate::model::change::Change;
use crate::model::dependency::{Dependency, DependencyKind, DependencyTerm};
use crate::model::gpu::{Gpu, GpuShare};
use crate::model::job::{Client, ClientProcess};
use crate::model::memo::{MemoBody, MemoKey};
use crate::model::partition::Host;
use crate::model::request::{JobKind, JobRequest, MemRequest, Sharing};
use crate::model::run::Run;
use crate::model::topology::{Place, Topology};
use crate::model::{
    ArrayRole, End, ExitCode, ExitRecord, Job, JobId, JobRef, JobState, Partition, Reason, Refusal,
    TaskSet, Timestamp,
};
use crate::parse::hours::Zone;
use std::collections::BTreeMap;

/// The start of a test's clock.
pub const T0: i64 = 1_800_000_000;

/// A host numbered like most machines: first the first threads of all cores, then the second
/// ones. Each socket is a NUMA node.
pub fn uniform(sockets: u32, cores: u32, threads: u32) -> Topology {
    let all = sockets * cores;
    let place = |cpu: u32| {
        let core = cpu % all;
        Place { cpu, core, socket: core / cores, ldom: core / cores }
    };
    Topology::new((0..all * threads).map(place).collect())
}

pub fn host(cpus: u32, mem_mb: u64, gpus: u32) -> Host {
    Host {
        name: "vm".to_string(),
        cpu_ids: (0..cpus).collect(),
        topology: uniform(1, cpus, 1),
        mem_mb,
        machine_mem_mb: mem_mb,
        gpus: (0..gpus).map(|id| Gpu { id, mem_mb: 100, ..Gpu::default() }).collect(),
        gpu_shards: 4,
        ..Host::default()
    }
}

pub fn config(host: Host) -> Config {
    let partitions = vec![
        Partition { name: "cpu".to_string(), is_default: true, ..Partition::default() },
        Partition { name: "gpu".to_string(), is_gpu: true, ..Partition::default() },
    ];
    Config {
        host,
        capacities: Default::default(),
        partitions: partitions.clone(),
        all_partitions: partitions,
        limits: Vec::new(),
        zone: Zone::default(),
        default_mem_mb: 512,
        batch_tasks: BatchTasks::Auto,
        reruns_failed: true,
        min_job_age_secs: 300,
        cluster: "slotd".to_string(),
        max_array_size: 4_000_001,
        max_tasks: 512,
        reads_gpus: false,
        avoids_used_gpus: false,
        avoids_used_cpus: false,
        audience: Default::default(),
    }
}

/// A builder for requests.
#[derive(Debug, Clone)]
pub struct Ask(pub JobRequest);

pub fn ask() -> Ask {
    Ask(JobRequest {
        name: "wrap".to_string(),
        user: "lab".to_string(),
        uid: 1001,
        mem: MemRequest::PerNode(1),
        ..JobRequest::default()
    })
}

impl Ask {
    pub fn cpus(mut self, n: u32) -> Self {
        self.0.cpus_per_task = Some(n);
        self
    }
    /// Requests CPUs that include these.
    pub fn on_cpus(mut self, cpus: &[u32]) -> Self {
        self.0.named_cpus = cpus.to_vec();
        self
    }
    pub fn mem(mut self, mb: u64) -> Self {
        self.0.mem = MemRequest::PerNode(mb);
        self
    }
    pub fn gpus(mut self, n: u32) -> Self {
        self.0.gpu.total = Some(n);
        self
    }
    /// Requests this share of each of its GPUs.
    pub fn share(mut self, share: GpuShare) -> Self {
        match share {
            GpuShare::Whole => {}
            GpuShare::MemMb(mb) => self.0.gpu.mem_mb = Some(mb),
            GpuShare::Shards(shards) => self.0.gpu.shards = Some(shards),
        }
        self
    }
    pub fn name(mut self, name: &str) -> Self {
        self.0.name = name.to_string();
        self
    }
    pub fn limit(mut self, secs: u64) -> Self {
        self.0.time_limit_secs = Some(secs);
        self
    }
    pub fn exclusive(mut self) -> Self {
        self.0.sharing = Sharing::Exclusive;
        self
    }
    pub fn array(mut self, first: u32, last: u32, limit: Option<u32>) -> Self {
        let tasks = TaskSet::from_ranges(TaskRange::new(first, last, 1).into_iter().collect());
        self.0.array = Some(ArraySpec { tasks, limit });
        self
    }
    pub fn after(mut self, kind: DependencyKind, job: JobId) -> Self {
        self.0.dependency.terms.push(on(kind, job));
        self
    }
    pub fn dependency(mut self, dependency: Dependency) -> Self {
        self.0.dependency = dependency;
        self
    }
    pub fn singleton(mut self) -> Self {
        self.0.dependency.terms.push(DependencyTerm::Singleton);
        self
    }
    pub fn held(mut self) -> Self {
        self.0.hold = true;
        self
    }
    pub fn priority(mut self, priority: u32) -> Self {
        self.0.priority = Some(priority);
        self
    }
    pub fn allocation(mut self) -> Self {
        self.0.kind = JobKind::Allocation;
        self
    }
    pub fn with(mut self, change: impl FnOnce(&mut JobRequest)) -> Self {
        change(&mut self.0);
        self
    }
}

pub fn on(kind: DependencyKind, job: JobId) -> DependencyTerm {
    DependencyTerm::On { kind, job: JobRef::job(job), delay_minutes: 0 }
}

pub fn tasks_of(job: JobId, tasks: &[u32]) -> JobRef {
    JobRef { job, tasks: Some(TaskSet::from_sorted(tasks)), step: None }
}

/// The contents of the database.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    pub jobs: BTreeMap<JobId, Job>,
    /// Earlier runs, in the order in which they ended.
    pub runs: Vec<(JobId, Run)>,
    pub memos: BTreeMap<MemoKey, MemoBody>,
}

impl Stored {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Insert { job, .. } => {
                assert!(self.jobs.insert(job.id, *job).is_none(), "a record was inserted twice");
            }
            Change::Update(job) => {
                let steps = self.jobs.get(&job.id).map(|old| old.steps.clone());
                let steps = steps.expect("an update of a record that does not exist");
                self.jobs.insert(job.id, Job { steps, ..*job });
            }
            Change::PutStep { job, step } => {
                let job = self.jobs.get_mut(&job).expect("a step of a record that does not exist");
                job.steps.retain(|old| old.id != step.id);
                job.steps.push(*step);
            }
            Change::DropStep { job, step } => {
                let job = self.jobs.get_mut(&job).expect("a step of a record that does not exist");
                job.steps.retain(|old| old.id != step);
            }
            Change::EndRun { job, run } => {
                if let Some(record) = self.jobs.get_mut(&job) {
                    record.steps.clear();
                }
                self.runs.push((job, *run));
            }
            Change::PutScript { job, .. } => {
                assert!(self.jobs.contains_key(&job), "a script for a record that does not exist");
            }
            Change::PutMemo { key, body } => drop(self.memos.insert(key, body)),
            Change::DropMemo { key } => drop(self.memos.remove(&key)),
            // These concern only the shell.
            Change::PutNotice { .. } | Change::DropNotice { .. } => {}
        }
    }

    /// Returns the database's records of ended jobs.
    pub fn ended(&self) -> Vec<EndedJob> {
        let mut facts = Vec::new();
        for job in self.jobs.values().filter(|job| job.run.state.is_terminal()) {
            let fact = EndedJob {
                id: job.id,
                array: None,
                ok: job.run.state == JobState::Ended(End::Completed),
                start: job.run.start,
                ended: job.run.end.unwrap_or(job.submit),
            };
            match (&job.role, job.compact_tasks()) {
                (ArrayRole::Task { array_job, task }, _) => {
                    facts.push(EndedJob { array: Some((*array_job, *task)), ..fact });
                }
                (_, Some(tasks)) => {
                    let array = job.array_job_id().unwrap_or(job.id);
                    facts.extend(
                        tasks.iter().map(|task| EndedJob { array: Some((array, task)), ..fact }),
                    );
                }
                (_, None) => facts.push(fact),
            }
        }
        facts
    }
}

/// A core with a clock, a map as its store, and the effects that no test code has examined yet.
#[derive(Debug, Clone)]
pub struct Double {
    pub core: Core,
    pub now: Timestamp,
    pub store: Stored,
    pub effects: Vec<Effect>,
}

impl Double {
    pub fn new(cpus: u32, mem_mb: u64, gpus: u32) -> Self {
        Double {
            core: Core::new(config(host(cpus, mem_mb, gpus))),
            now: Timestamp::from_secs(T0),
            store: Stored::default(),
            effects: Vec::new(),
        }
    }

    /// Creates a host with 4 CPUs, 1000 MB and 2 GPUs, and changed settings.
    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut double = Double::new(4, 1000, 2);
        let mut config = double.core.config().clone();
        change(&mut config);
        double.core = Core::new(config);
        double
    }

    /// Runs an action on the core, applies the changes, collects the effects, and checks the
    /// invariants.
    pub fn act<T>(&mut self, action: impl FnOnce(&mut Core, &mut Cx) -> T) -> T {
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
                assert!(is_open, "job {} got {alloc:?} while {drained} was out of use", launch.id);
            }
        }
        self.effects.extend(cx.out.effects);
        self.core.check_invariants().expect("the invariants hold");
        assert_eq!(
            self.core.notifications.memos().as_ref(),
            Ok(&self.store.memos),
            "the stored memos are the current ones"
        );
        result
    }

    /// Submits a job from a process of its own, with the job's ID as its PID.
    pub fn try_submit(&mut self, ask: Ask) -> Result<JobId, Refusal> {
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

    pub fn submit(&mut self, ask: Ask) -> JobId {
        self.try_submit(ask).expect("the job is accepted")
    }

    /// Like [`Self::submit`], without checking the invariants, for long queues.
    pub fn core_submit(&mut self, ask: Ask) -> JobId {
        let mut cx = Cx::at(self.now);
        let submission = Submission { request: ask.0, ..Submission::default() };
        let id = self.core.submit(submission, &mut cx).expect("the job is accepted");
        self.store.jobs.extend(self.core.job(id).map(|job| (id, job.clone())));
        id
    }

    pub fn plan(&mut self) {
        self.act(|core, cx| core.plan(cx));
    }

    /// Advances the clock, handles due timers, and plans.
    pub fn wait(&mut self, secs: u64) {
        self.now = self.now.plus_secs(secs);
        self.act(|core, cx| core.on_due(cx));
        self.plan();
    }

    pub fn end(&mut self, id: JobId, cause: EndCause, exit: ExitCode) {
        self.act(|core, cx| {
            core.on_job_ended(id, ExitRecord::gone(exit, cx.now), cause, cx);
        });
    }

    /// Ends a job with this exit code, and plans.
    pub fn exit(&mut self, id: JobId, status: i32) {
        self.end(id, EndCause::Exited, ExitCode::status(status));
        self.plan();
    }

    pub fn cancel(&mut self, sel: &JobRef) -> Result<Vec<JobId>, Refusal> {
        self.act(|core, cx| core.cancel(sel, 1001, cx))
    }

    pub fn state(&self, id: JobId) -> JobState {
        self.core.job(id).expect("the job is in memory").run.state
    }

    pub fn reason(&self, id: JobId) -> Reason {
        self.core.reason(id, self.now)
    }

    pub fn expected_start(&self, id: JobId) -> Option<Timestamp> {
        self.core.forecast(self.now).starts().get(&id).map(|start| start.at)
    }

    /// Returns the records that were launched or granted since the last call.
    pub fn started(&mut self) -> Vec<JobId> {
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
    pub fn stops(&mut self) -> Vec<(JobId, StopCause)> {
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
    pub fn label(&self, id: JobId) -> String {
        let job = self.core.job(id).expect("the job is in memory");
        match (&job.role, job.compact_tasks()) {
            (ArrayRole::Task { array_job, task }, _) => format!("{array_job}_{task}"),
            (_, Some(tasks)) => format!("{}_[{tasks}]", job.array_job_id().unwrap_or(id)),
            (_, None) => id.to_string(),
        }
    }

    pub fn labels(&self, ids: &[JobId]) -> Vec<String> {
        ids.iter().map(|id| self.label(*id)).collect()
    }

    /// Checks that every effect was examined.
    pub fn assert_quiet(&self) {
        assert_eq!(self.effects, Vec::new(), "effects that the test did not expect");
    }
}
