//! Test support, also for the tests of the actors: a small host, short builders for requests, and
//! the contents of a database.

use super::types::{Config, EndedJob};
use slotd_model::array::{ArraySpec, TaskRange};
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::change::Change;
use slotd_model::cron::Crontab;
use slotd_model::dependency::{Dependency, DependencyKind, DependencyTerm};
use slotd_model::gpu::{Gpu, GpuShare};
use slotd_model::memo::{MemoBody, MemoKey};
use slotd_model::partition::Host;
use slotd_model::qos;
use slotd_model::request::{JobKind, JobRequest, MemRequest, Sharing};
use slotd_model::run::Run;
use slotd_model::topology::{Place, Topology};
use slotd_model::{Job, JobId, JobRef, Partition, TaskSet};
use slotd_parse::hours::Zone;
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
        licenses: Vec::new(),
        qos: qos::with_default(Vec::new()),
        reservations: Vec::new(),
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
    pub fn licenses(mut self, text: &str) -> Self {
        self.0.licenses = Some(text.to_owned());
        self
    }
    pub fn qos(mut self, name: &str) -> Self {
        self.0.qos = Some(name.to_owned());
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
    pub crontabs: BTreeMap<u32, Crontab>,
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
            Change::PutCrontab { uid, crontab: Some(crontab) } => {
                self.crontabs.insert(uid, *crontab);
            }
            Change::PutCrontab { uid, crontab: None } => drop(self.crontabs.remove(&uid)),
            // These concern only the shell.
            Change::PutNotice { .. } | Change::DropNotice { .. } => {}
        }
    }

    /// Returns the database's records of ended jobs.
    pub fn ended(&self) -> Vec<EndedJob> {
        self.jobs.values().flat_map(EndedJob::of).collect()
    }
}
