//! Builders of jobs, steps and nodes for tests.

use crate::Ctx;
use jiff::tz::TimeZone;
use slotd_model::gpu::Gpu;
use slotd_model::late::late;
use slotd_model::partition::Host;
use slotd_model::request::{JobKind, MemRequest};
use slotd_model::run::RunState;
use slotd_model::topology::{Place, Topology};
use slotd_model::tres::Allocation;
use slotd_model::view::{JobView, NodeView, PartitionView};
use slotd_model::{
    ArrayRole, End, ExitCode, Job, JobId, JobRequest, JobState, Partition, Reason, Step, StepId,
    TaskSet, Timestamp, Tres,
};
use std::rc::Rc;
use std::sync::Arc;

/// 2026-11-20T23:39:58 UTC.
pub const NOW: i64 = 1_795_217_998;

pub fn now() -> Timestamp {
    Timestamp::from_secs(NOW)
}

pub fn at(secs_before_now: i64) -> Timestamp {
    Timestamp::from_secs(NOW - secs_before_now)
}

pub fn ctx() -> Ctx {
    Ctx::new(now(), Rc::new(late(|| TimeZone::UTC)), "vm")
}

/// Returns what a client receives of this job.
#[cfg(test)]
pub(crate) fn sent(job: slotd_model::brief::BriefJob) -> slotd_model::brief::BriefJob {
    use slotd_model::view::JobList;
    let list = JobList { brief: vec![job], ..JobList::at(now()) };
    let received: JobList = serde_json::from_str(&serde_json::to_string(&list).unwrap()).unwrap();
    received.brief.into_iter().next().unwrap()
}

/// A pending job of user lab (1001) in partition cpu, submitted 4 s ago, with one CPU and 100 MB
/// per CPU.
pub struct JobBuilder(pub JobView);

pub fn job(id: u32, name: &str) -> JobBuilder {
    let request = JobRequest {
        kind: JobKind::Batch,
        name: name.to_owned(),
        user: "lab".to_owned(),
        uid: 1001,
        group: "lab".to_owned(),
        gid: 1001,
        mem: MemRequest::PerCpu(100),
        work_dir: "/home/lab/g".to_owned(),
        command: Some("/home/lab/g/sleep.sh".to_owned()),
        args: vec!["300".to_owned()],
        submit_line: "sbatch sleep.sh 300".to_owned(),
        submit_host: "localhost".to_owned(),
        ..JobRequest::default()
    };
    let job = Job {
        id: JobId(id),
        request: Arc::new(request),
        partition: "cpu".into(),
        tres: Tres { cpus: 1, mem_mb: 100, ..Tres::ZERO },
        priority: 4_294_901_642,
        submit: at(4),
        run: RunState { reason: Reason::Resources, eligible: Some(at(4)), ..RunState::default() },
        ..Job::default()
    };
    JobBuilder(JobView {
        job,
        std_out: format!("/home/lab/g/slurm-{id}.out"),
        std_err: format!("/home/lab/g/slurm-{id}.out"),
        std_in: "/dev/null".to_owned(),
        ..JobView::default()
    })
}

impl JobBuilder {
    pub fn with(mut self, change: impl FnOnce(&mut JobView)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn asks(mut self, change: impl FnOnce(&mut JobRequest)) -> Self {
        change(Arc::make_mut(&mut self.0.request));
        self
    }

    pub fn limit(self, secs: u64) -> Self {
        self.asks(|r| r.time_limit_secs = Some(secs))
    }

    pub fn partition(self, name: &str) -> Self {
        self.with(|j| j.partition = name.into())
    }

    pub fn reason(self, reason: Reason) -> Self {
        self.with(|j| j.run.reason = reason)
    }

    /// Makes the job a running one that started `secs` seconds ago.
    pub fn running(self, secs: i64) -> Self {
        self.with(|j| {
            j.run.state = JobState::Running;
            j.run.reason = Reason::None;
            j.run.start = Some(at(secs));
            j.run.alloc =
                Some(Allocation { tres: j.tres, cpu_ids: vec![0], ..Allocation::default() }.into());
        })
    }

    /// Makes the job an ended one that started and ended this many seconds ago.
    pub fn ended(self, end: End, reason: Reason, exit: ExitCode, started: i64, ended: i64) -> Self {
        self.running(started).with(|j| {
            j.run.state = JobState::Ended(end);
            j.run.reason = reason;
            j.run.exit = exit;
            j.run.end = Some(at(ended));
        })
    }

    pub fn step(self, step: Step) -> Self {
        self.with(|j| j.steps.push(step))
    }

    pub fn rest(self, tasks: &[u32], limit: Option<u32>) -> Self {
        let tasks = TaskSet::from_sorted(tasks);
        self.with(|j| j.role = ArrayRole::Rest { tasks, limit })
    }

    pub fn task(self, array: u32, task: u32) -> Self {
        self.with(|j| j.role = ArrayRole::Task { array_job: JobId(array), task })
    }

    pub fn part(self, array: u32, tasks: &[u32]) -> Self {
        let tasks = TaskSet::from_sorted(tasks);
        self.with(|j| j.role = ArrayRole::Part { array_job: JobId(array), tasks })
    }

    pub fn build(self) -> JobView {
        self.0
    }
}

/// Returns a step of one task on one CPU with 100 MB.
pub fn step(
    id: StepId,
    name: &str,
    state: impl Into<JobState>,
    exit: ExitCode,
    started: i64,
    ended: Option<i64>,
) -> Step {
    Step {
        name: name.to_owned(),
        state: state.into(),
        end: ended.map(at),
        exit,
        alloc: Allocation {
            tres: Tres { cpus: 1, mem_mb: 100, ..Tres::ZERO },
            ..Allocation::default()
        },
        submit_line: if id == StepId::Batch { String::new() } else { format!("srun {name}") },
        ..Step::started(id, at(started))
    }
}

/// Returns the idle host of the recordings: two CPUs, 24105 MB, partitions cpu* and gpu.
pub fn node(gpus: u32) -> NodeView {
    let partition = |name: &str, is_gpu, is_default| PartitionView {
        partition: Partition { name: name.to_owned(), is_gpu, is_default, ..Partition::default() },
        running: 0,
        pending: 0,
    };
    let place = |cpu| Place { cpu, core: cpu, socket: 0, ldom: 0 };
    NodeView {
        closed_cpus: 0,
        outages: Vec::new(),
        limits: Vec::new(),
        licenses: Vec::new(),
        reservations: Vec::new(),
        qos: slotd_model::qos::with_default(Vec::new()),
        host: Host {
            name: "vm".to_owned(),
            cpu_ids: vec![0, 1],
            topology: Topology::new(vec![place(0), place(1)]),
            mem_mb: 24_105,
            machine_mem_mb: 24_105,
            gpus: (0..gpus).map(|id| Gpu { id, ..Gpu::default() }).collect(),
            lost_gpus: Vec::new(),
            detects_gpus: false,
            lost_cpus: Vec::new(),
            lost_mem_mb: 0,
            drained: Default::default(),
            gpu_shards: 0,
            gpus_open: false,
            features: Vec::new(),
            kernel: "Linux 6.18.44".to_owned(),
            arch: "x86_64".to_owned(),
            boot_secs: NOW - 4731,
        },
        allocated: Tres::ZERO,
        exclusive: false,
        partitions: vec![partition("cpu", false, true), partition("gpu", true, false)],
        drained: None,
        daemon_start: at(254),
        load_centi: 253,
        cpus_elsewhere: None,
        free_mem_mb: 22_167,
        now: now(),
    }
}
