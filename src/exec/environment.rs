//! The variables that Slurm's programs find in their environment (sbatch, srun and salloc man pages, "OUTPUT
//! ENVIRONMENT VARIABLES"), as far as they have a meaning on one host. No SLURM_CONF, no ports, no addresses of daemons.
//!
//! Pure. What the submitter's own environment holds is not looked at, but for [`stale_variables`].

use crate::model::request::MemRequest;
use crate::model::tres::Allocation;
use crate::model::{ArrayRole, JobId, JobRequest, StepId, Timestamp};

/// Variables in the order in which they are set.
pub type Variables = Vec<(String, String)>;

/// What is known of a job when it starts.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    pub id: JobId,
    pub role: &'a ArrayRole,
    pub request: &'a JobRequest,
    pub partition: &'a str,
    pub alloc: &'a Allocation,
    pub start: Timestamp,
    /// How often it was requeued.
    pub restarts: u32,
    /// The short host name.
    pub node: &'a str,
    pub cluster: &'a str,
    /// `SLOTD_ROOT`, so that commands inside the job find the daemon.
    pub root: &'a str,
}

/// What is known of a step when it starts.
#[derive(Debug, Clone, Copy)]
pub struct StepFacts<'a> {
    pub id: StepId,
    pub ntasks: u32,
    /// Where it was asked for.
    pub cpus_per_task: Option<u32>,
    pub alloc: &'a Allocation,
    /// `srun --exact`, or what implies it.
    pub exact: bool,
    pub umask: Option<u32>,
    /// `srun --label`.
    pub label: bool,
}

struct Builder(Variables);

impl Builder {
    fn set(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_string(), value.to_string()));
    }

    fn set_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// What every process inside an allocation may know: all that a salloc command gets (salloc man page, OUTPUT ENVIRONMENT VARIABLES).
    fn allocation(&mut self, job: &JobFacts) {
        let request = job.request;
        self.set("SLOTD_ROOT", job.root);
        self.set("SLURM_CLUSTER_NAME", job.cluster);
        self.set("SLURM_JOBID", job.id);
        self.set("SLURM_JOB_ID", job.id);
        self.set("SLURM_JOB_NAME", &request.name);
        self.set("SLURM_JOB_PARTITION", job.partition);
        self.set("SLURM_JOB_QOS", request.qos.as_deref().unwrap_or("normal"));
        self.set_some("SLURM_JOB_ACCOUNT", request.account.as_deref());
        self.set_some("SLURM_JOB_RESERVATION", request.reservation.as_deref());
        self.set("SLURM_JOB_NODELIST", job.node);
        self.set("SLURM_NODELIST", job.node);
        self.set("SLURM_JOB_NUM_NODES", 1);
        self.set("SLURM_NNODES", 1);
        self.set("SLURM_JOB_CPUS_PER_NODE", job.alloc.tres.cpus);
        self.set("SLURM_TASKS_PER_NODE", request.task_count());
        if request.ntasks.is_some() || request.ntasks_per_node.is_some() {
            self.set("SLURM_NTASKS", request.task_count());
            self.set("SLURM_NPROCS", request.task_count());
        }
        self.set_some("SLURM_OVERCOMMIT", request.overcommit.then_some(1));
        self.set_some("SLURM_NTASKS_PER_NODE", request.ntasks_per_node);
        self.set_some("SLURM_CPUS_PER_TASK", request.cpus_per_task);
        match request.mem {
            MemRequest::Default | MemRequest::PerNode(_) => self.set("SLURM_MEM_PER_NODE", job.alloc.tres.mem_mb),
            MemRequest::PerCpu(mb) => self.set("SLURM_MEM_PER_CPU", mb),
            MemRequest::PerGpu(mb) => self.set("SLURM_MEM_PER_GPU", mb),
        }
        let submit_dir = if request.submit_dir.is_empty() { &request.work_dir } else { &request.submit_dir };
        self.set("SLURM_SUBMIT_DIR", submit_dir);
        self.set("SLURM_SUBMIT_HOST", &request.submit_host);
        self.set("SLURM_JOB_START_TIME", job.start.as_secs());
        self.set_some("SLURM_JOB_END_TIME", request.time_limit_secs.map(|limit| job.start.plus_secs(limit).as_secs()));
        if !request.dependency.is_empty() {
            self.set("SLURM_JOB_DEPENDENCY", &request.dependency);
        }
        if job.restarts > 0 {
            self.set("SLURM_RESTART_COUNT", job.restarts);
        }
        self.set_some("SLURM_GPUS", request.gpu.total);
        self.set_some("SLURM_GPUS_PER_NODE", request.gpu.per_node);
        self.set_some("SLURM_GPUS_PER_TASK", request.gpu.per_task);
        self.set_some("SLURM_CPUS_PER_GPU", request.gpu.cpus_per_gpu);
        if !job.alloc.gpu_ids.is_empty() {
            self.set("SLURM_JOB_GPUS", list(&job.alloc.gpu_ids));
        }
        self.gpus(&job.alloc.gpu_ids);
    }

    fn gpus(&mut self, ids: &[u32]) {
        if !ids.is_empty() {
            self.set("CUDA_VISIBLE_DEVICES", list(ids));
            self.set("SLURM_GPUS_ON_NODE", ids.len());
        }
    }

    /// What Slurm's slurmd adds on the node: a batch job has these, a salloc command has not.
    fn node(&mut self, job: &JobFacts, cpus: u32) {
        self.set("SLURMD_NODENAME", job.node);
        self.set("SLURM_CPUS_ON_NODE", cpus);
        self.set("SLURM_JOB_UID", job.request.uid);
        self.set("SLURM_JOB_GID", job.request.gid);
        self.set("SLURM_JOB_USER", &job.request.user);
        self.set("SLURM_JOB_GROUP", &job.request.group);
        self.set("SLURM_NODEID", 0);
        self.set("SLURM_PRIO_PROCESS", 0);
        self.set("SLURM_TOPOLOGY_ADDR", job.node);
        self.set("SLURM_TOPOLOGY_ADDR_PATTERN", "node");
    }

    fn array(&mut self, job: &JobFacts) {
        let (array_job, task) = match job.role {
            ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => return,
            ArrayRole::Task { array_job, task } => (array_job, task),
        };
        self.set("SLURM_ARRAY_JOB_ID", array_job);
        self.set("SLURM_ARRAY_TASK_ID", task);
        if let Some(array) = &job.request.array {
            self.set("SLURM_ARRAY_TASK_COUNT", array.tasks.len());
            self.set_some("SLURM_ARRAY_TASK_MIN", array.tasks.first());
            self.set_some("SLURM_ARRAY_TASK_MAX", array.tasks.last());
            self.set_some("SLURM_ARRAY_TASK_STEP", array.tasks.ranges().first().map(|r| r.step));
        }
    }
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// `0,1,2,…`: the ranks of the tasks on this node.
fn ranks(ntasks: u32) -> String {
    list(&(0..ntasks).collect::<Vec<_>>())
}

/// The environment of a batch job (sbatch man page, OUTPUT ENVIRONMENT VARIABLES) on top of the submitter's. `ntasks` is
/// the number of processes that are launched: more than 1 where the script runs once for each task.
pub fn batch_environment(job: &JobFacts, ntasks: u32) -> Variables {
    let mut b = Builder(Vec::with_capacity(48));
    b.set("ENVIRONMENT", "BATCH");
    b.allocation(job);
    b.node(job, job.alloc.tres.cpus);
    b.array(job);
    b.set("SLURM_GTIDS", ranks(ntasks));
    b.0
}

/// The environment of a salloc command. Real Slurm runs it on the login node, without GPUs; here the
/// allocation's GPUs are on this machine, so it is told of them.
pub fn allocation_environment(job: &JobFacts) -> Variables {
    let mut b = Builder(Vec::with_capacity(32));
    b.allocation(job);
    b.0
}

/// The environment of a step (srun man page, OUTPUT ENVIRONMENT VARIABLES) on top of that of the process that called srun, which
/// tells them the name that it goes by.
pub fn step_environment(job: &JobFacts, step: &StepFacts) -> Variables {
    let mut b = Builder(Vec::with_capacity(64));
    b.allocation(job);
    // Of a step these are the step's own numbers.
    const OWN: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "SLURM_JOB_NAME"];
    b.0.retain(|(name, _)| !OWN.contains(&name.as_str()));
    b.node(job, if step.exact { step.alloc.tres.cpus } else { job.alloc.tres.cpus });
    b.array(job);
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"] {
        b.set(name, step.ntasks);
    }
    b.set("SLURM_STEP_TASKS_PER_NODE", step.ntasks);
    b.set("SLURM_STEPID", step.id);
    b.set("SLURM_STEP_ID", step.id);
    b.set("SLURM_STEP_NODELIST", job.node);
    b.set("SLURM_STEP_NUM_NODES", 1);
    b.set("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
    b.set_some("SLURM_CPUS_PER_TASK", step.cpus_per_task);
    b.set_some("SLURM_UMASK", step.umask.map(|mask| format!("{mask:04o}")));
    if step.label {
        b.set("SLURM_LABELIO", 1);
    }
    b.set("SLURM_GTIDS", ranks(step.ntasks));
    b.gpus(&step.alloc.gpu_ids);
    if step.alloc.gpu_ids.is_empty() && !job.alloc.gpu_ids.is_empty() {
        // Where it is not set at all, programs take every GPU of the machine.
        b.set("CUDA_VISIBLE_DEVICES", "");
    }
    if !step.alloc.gpu_ids.is_empty() {
        b.set("GPU_DEVICE_ORDINAL", list(&step.alloc.gpu_ids));
        b.set("SLURM_STEP_GPUS", list(&step.alloc.gpu_ids));
    }
    b.0
}

/// The variables that tell a process of the GPUs of its job, but for the one that hides the others.
pub fn gpus_of_a_job() -> Vec<String> {
    ["SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL"].map(str::to_owned).to_vec()
}

/// What differs from task to task. `SLURM_TASK_PID` is set by the task itself. `gpus` are those of this
/// task alone, where it does not see all of the step's (`--gpus-per-task`, `--gpu-bind`).
pub fn task_environment(rank: u32, gpus: Option<&[u32]>) -> Variables {
    let mut b = Builder(Vec::with_capacity(4));
    b.set("SLURM_PROCID", rank);
    b.set("SLURM_LOCALID", rank);
    if let Some(ids) = gpus {
        b.set("CUDA_VISIBLE_DEVICES", list(ids));
        b.set("GPU_DEVICE_ORDINAL", list(ids));
    }
    b.0
}

/// Variables that a submission from inside another job brings along and that would be lies in the new one: the other
/// job's array, step, rank and GPUs. `env` are `KEY=VALUE` entries ended by zero bytes. What was asked for on a
/// command line or set by hand (`SLURM_NTASKS`) is kept, as with Slurm.
pub fn stale_variables(env: &[u8]) -> Vec<String> {
    const PREFIXES: [&str; 2] = ["SLURM_ARRAY_", "SLURM_STEP"];
    const NAMES: [&str; 12] = [
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_TASK_PID",
        "SLURM_GTIDS",
        "SLURM_RESTART_COUNT",
        "SLURM_JOB_GPUS",
        "SLURM_GPUS_ON_NODE",
        "SLURM_LABELIO",
        "SLURM_UMASK",
        "SLURM_JOB_END_TIME",
        "SLURM_JOB_DEPENDENCY",
        "GPU_DEVICE_ORDINAL",
    ];
    let names: Vec<&str> = env
        .split(|b| *b == 0)
        .filter_map(|entry| std::str::from_utf8(entry.split(|b| *b == b'=').next()?).ok())
        .filter(|name| !name.is_empty())
        .collect();
    // The GPUs are slotd's only where slotd says so; a user may limit them for all of their jobs.
    let gpus_are_ours = names.iter().any(|n| matches!(*n, "SLURM_JOB_GPUS" | "SLURM_STEP_GPUS"));
    names
        .into_iter()
        .filter(|name| {
            PREFIXES.iter().any(|p| name.starts_with(p))
                || NAMES.contains(name)
                || (gpus_are_ours && *name == "CUDA_VISIBLE_DEVICES")
        })
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tres;
    use crate::model::array::{ArraySpec, TaskRange, TaskSet};
    use crate::model::request::GpuRequest;

    struct Fixture {
        request: JobRequest,
        alloc: Allocation,
        role: ArrayRole,
    }

    fn fixture() -> Fixture {
        let request = JobRequest {
            name: "envjob".into(),
            user: "lab".into(),
            uid: 1001,
            gid: 1001,
            work_dir: "/w".into(),
            submit_dir: "/d".into(),
            submit_host: "vm".into(),
            ..JobRequest::default()
        };
        let alloc = Allocation { tres: Tres { cpus: 2, mem_mb: 512, gpus: 0 }, ..Allocation::default() };
        Fixture { request, alloc, role: ArrayRole::None }
    }

    impl Fixture {
        fn facts(&self) -> JobFacts<'_> {
            JobFacts {
                id: JobId(148),
                role: &self.role,
                request: &self.request,
                partition: "cpu",
                alloc: &self.alloc,
                start: Timestamp::from_secs(1000),
                restarts: 0,
                node: "vm",
                cluster: "slotd",
                root: "/r",
            }
        }
    }

    /// The last value of a name, as the launch applies them.
    fn get<'a>(vars: &'a Variables, name: &str) -> Option<&'a str> {
        vars.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    #[test]
    fn a_plain_batch_job_is_not_told_what_was_not_asked_for() {
        let f = fixture();
        let vars = batch_environment(&f.facts(), 1);
        for name in [
            "SLURM_NTASKS",
            "SLURM_NPROCS",
            "SLURM_CPUS_PER_TASK",
            "SLURM_NTASKS_PER_NODE",
            "SLURM_RESTART_COUNT",
            "SLURM_ARRAY_TASK_ID",
            "CUDA_VISIBLE_DEVICES",
            "SLURM_GPUS_ON_NODE",
            "SLURM_STEP_ID",
            "SLURM_CONF",
            "SLURM_JOB_END_TIME",
        ] {
            assert_eq!(get(&vars, name), None, "{name}");
        }
        for (name, value) in [
            ("ENVIRONMENT", "BATCH"),
            ("SLURM_JOB_ID", "148"),
            ("SLURM_JOBID", "148"),
            ("SLURM_JOB_NAME", "envjob"),
            ("SLURM_JOB_NODELIST", "vm"),
            ("SLURMD_NODENAME", "vm"),
            ("SLURM_SUBMIT_DIR", "/d"),
            ("SLURM_MEM_PER_NODE", "512"),
            ("SLURM_TASKS_PER_NODE", "1"),
            ("SLURM_CPUS_ON_NODE", "2"),
            ("SLURM_GTIDS", "0"),
            ("SLURM_JOB_UID", "1001"),
            ("SLOTD_ROOT", "/r"),
        ] {
            assert_eq!(get(&vars, name), Some(value), "{name}");
        }
    }

    #[test]
    fn what_was_asked_for_is_told() {
        let mut f = fixture();
        f.request.ntasks = Some(2);
        f.request.cpus_per_task = Some(3);
        f.request.mem = MemRequest::PerCpu(64);
        f.request.time_limit_secs = Some(60);
        let vars = batch_environment(&f.facts(), 2);
        assert_eq!(get(&vars, "SLURM_NTASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_CPUS_PER_TASK"), Some("3"));
        assert_eq!(get(&vars, "SLURM_MEM_PER_CPU"), Some("64"));
        assert_eq!(get(&vars, "SLURM_MEM_PER_NODE"), None);
        assert_eq!(get(&vars, "SLURM_GTIDS"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_JOB_END_TIME"), Some("1060"));
    }

    #[test]
    fn an_array_task_knows_its_array() {
        let mut f = fixture();
        let tasks = TaskSet::from_ranges(TaskRange::new(3, 7, 2).into_iter().collect());
        f.request.array = Some(ArraySpec { tasks, limit: Some(2) });
        f.role = ArrayRole::Task { array_job: JobId(152), task: 5 };
        let vars = batch_environment(&f.facts(), 1);
        let shown = ["JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP"]
            .map(|n| get(&vars, &format!("SLURM_ARRAY_{n}")).unwrap_or("-"));
        assert_eq!(shown, ["152", "5", "3", "3", "7", "2"]);
    }

    #[test]
    fn gpus_are_named_for_the_job_and_for_the_step() {
        let mut f = fixture();
        f.request.gpu = GpuRequest { total: Some(2), ..GpuRequest::default() };
        f.alloc.gpu_ids = vec![0, 1];
        let vars = batch_environment(&f.facts(), 1);
        assert_eq!(get(&vars, "CUDA_VISIBLE_DEVICES"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_JOB_GPUS"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_GPUS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_GPUS_ON_NODE"), Some("2"));
        let alloc = Allocation { tres: Tres { cpus: 1, ..Tres::ZERO }, gpu_ids: vec![1], ..Allocation::default() };
        let step = StepFacts {
            id: StepId::Num(4),
            ntasks: 2,
            cpus_per_task: None,
            alloc: &alloc,
            exact: false,
            umask: Some(0o22),
            label: false,
        };
        let vars = step_environment(&f.facts(), &step);
        assert_eq!(get(&vars, "CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(get(&vars, "SLURM_STEP_GPUS"), Some("1"));
        assert_eq!(get(&vars, "SLURM_STEP_ID"), Some("4"));
        assert_eq!(get(&vars, "SLURM_STEP_NUM_TASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_NTASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_UMASK"), Some("0022"));
        assert_eq!((get(&vars, "SLURM_CPUS_ON_NODE"), get(&vars, "SLURM_JOB_NAME")), (Some("2"), None));
        let vars = step_environment(&f.facts(), &StepFacts { exact: true, ..step });
        assert_eq!(get(&vars, "SLURM_CPUS_ON_NODE"), Some("1"));
        assert_eq!(get(&vars, "SLURM_JOB_CPUS_PER_NODE"), Some("2"));
    }

    #[test]
    fn a_salloc_command_has_no_rank() {
        let f = fixture();
        let vars = allocation_environment(&f.facts());
        for name in ["SLURM_PROCID", "SLURM_GTIDS", "SLURMD_NODENAME", "ENVIRONMENT"] {
            assert_eq!(get(&vars, name), None, "{name}");
        }
        assert_eq!(get(&vars, "SLURM_JOB_ID"), Some("148"));
    }

    #[test]
    fn another_jobs_rank_and_gpus_do_not_come_along() {
        let inside =
            b"A=1\0SLURM_PROCID=3\0SLURM_NTASKS=7\0SLURM_JOB_GPUS=0\0CUDA_VISIBLE_DEVICES=0\0SLURM_ARRAY_TASK_ID=2\0";
        let stale = stale_variables(inside);
        assert_eq!(stale, ["SLURM_PROCID", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "SLURM_ARRAY_TASK_ID"]);
        assert!(stale_variables(b"CUDA_VISIBLE_DEVICES=1\0").is_empty());
    }
}
