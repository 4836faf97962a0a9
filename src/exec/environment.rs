//! The variables that Slurm's programs find in their environment (sbatch, srun and salloc man
//! pages, "OUTPUT ENVIRONMENT VARIABLES"), as far as they make sense on a single host.
//! `SLURM_CONF`, ports and addresses of daemons are not set.
//!
//! Does no I/O. Only [`merge`], [`stale_variables`] and [`of_array_task`] read the submitter's
//! environment.

use crate::snapshots;
use slotd_model::binding::CPU_BIND_VARIABLES;
use slotd_model::gpu::{Gpu, Maker};
use slotd_model::partition::Host;
use slotd_model::placement::{Distribution, MemBind, Placement, Spread};
use slotd_model::request::{MemRequest, OpenMode};
use slotd_model::tres::Allocation;
use slotd_model::{ArrayRole, Job, StepId, StepKey};
use slotd_protocol::request::StepLaunch;
use slotd_sys::paths::Paths;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Variables, in the order in which they are set.
pub type Variables = Vec<(String, String)>;

/// Builds the variables for the processes of one job.
pub struct Environment<'a> {
    job: &'a Job,
    /// The allocation of the whole job.
    alloc: Allocation,
    host: &'a Host,
    /// The short host name.
    node: &'a str,
    /// `SLOTD_ROOT`, so that commands inside the job find the daemon.
    root: &'a str,
    vars: Variables,
}

impl<'a> Environment<'a> {
    /// For a job that has its allocation.
    pub fn of(job: &'a Job, host: &'a Host, root: &'a str) -> Self {
        let alloc = job.run.alloc.as_deref().cloned().unwrap_or_default();
        Environment { job, alloc, host, node: &host.name, root, vars: Vec::with_capacity(64) }
    }

    /// Returns the variables of a batch job, on top of the submitter's. `ntasks` is the number of
    /// processes launched: more than 1 if the batch job runs one per rank.
    pub fn batch(mut self, ntasks: u32) -> Variables {
        self.set("ENVIRONMENT", "BATCH");
        self.allocation();
        self.node(self.alloc.tres.cpus);
        self.array();
        self.set("SLURM_GTIDS", ranks(ntasks));
        self.vars
    }

    /// Returns the variables of a salloc command. Slurm runs it on the login node, without GPUs.
    /// Here the GPUs of the allocation are on the same machine, so their variables are set.
    pub fn interactive(mut self) -> Variables {
        self.allocation();
        self.vars
    }

    /// Returns the variables of a step with `alloc`, on top of those of the process that called
    /// srun, which provide `SLURM_JOB_NAME`.
    pub fn step(mut self, id: StepId, launch: &StepLaunch, alloc: &Allocation) -> Variables {
        let request = &launch.request;
        let ntasks = request.tasks(&self.job.request);
        self.allocation();
        // Unset the job's values: the step has values of its own.
        const OWN: [&str; 4] = [CUDA, ROCM, "SLURM_GPUS_ON_NODE", "SLURM_JOB_NAME"];
        self.vars.retain(|(name, _)| !OWN.contains(&name.as_str()));
        self.node(if request.exact { alloc.tres.cpus } else { self.alloc.tres.cpus });
        self.array();
        for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"]
        {
            self.set(name, ntasks);
        }
        self.set("SLURM_STEP_TASKS_PER_NODE", ntasks);
        self.set("SLURM_STEPID", id);
        self.set("SLURM_STEP_ID", id);
        self.set("SLURM_STEP_NODELIST", self.node);
        self.set("SLURM_STEP_NUM_NODES", 1);
        self.set("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
        self.set_some("SLURM_CPUS_PER_TASK", request.cpus_per_task(&self.job.request));
        self.placement(&request.placement);
        self.set_some("SLURM_UMASK", launch.umask.map(|mask| format!("{mask:04o}")));
        self.set_some("SLURM_LABELIO", launch.label.then_some(1));
        self.set("SLURM_GTIDS", ranks(ntasks));
        self.gpus(&alloc.gpu_ids);
        if !alloc.gpu_ids.is_empty() {
            self.set("SLURM_STEP_GPUS", list(&alloc.gpu_ids));
        }
        self.vars
    }

    fn set(&mut self, name: &str, value: impl ToString) {
        self.vars.push((name.to_string(), value.to_string()));
    }

    fn set_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Sets the variables that are common to all processes inside an allocation. A salloc command
    /// gets only these.
    fn allocation(&mut self) {
        let (job, alloc) = (self.job, self.alloc.clone());
        let request = &job.request;
        self.set("SLOTD_ROOT", self.root);
        if let Some(snapshot) = &request.snapshot {
            let copy = snapshots::tree_of(&Paths::new(self.root).snapshots_dir(), snapshot);
            self.set("SLOTD_SNAPSHOT_DIR", copy.display());
        }
        self.set("SLURM_CLUSTER_NAME", slotd_model::CLUSTER);
        self.set("SLURM_JOBID", job.id);
        self.set("SLURM_JOB_ID", job.id);
        self.set("SLURM_JOB_NAME", &request.name);
        self.set("SLURM_JOB_PARTITION", &job.partition);
        self.set("SLURM_JOB_QOS", slotd_model::qos::of(request));
        self.set_some("SLURM_JOB_ACCOUNT", request.account.as_deref());
        self.set_some("SLURM_JOB_RESERVATION", request.reservation.as_deref());
        self.set("SLURM_JOB_NODELIST", self.node);
        self.set("SLURM_NODELIST", self.node);
        self.set("SLURM_JOB_NUM_NODES", 1);
        self.set("SLURM_NNODES", 1);
        self.set("SLURM_JOB_CPUS_PER_NODE", alloc.tres.cpus);
        // If the job was allocated more CPUs than it requested and did not request a number of
        // tasks, the tasks fill the CPUs.
        let has_more = (1..alloc.tres.cpus).contains(&job.tres.cpus);
        let is_free = has_more && request.ntasks.or(request.ntasks_per_node).is_none();
        let tasks =
            if is_free { alloc.tres.cpus / request.cpus_per_task.unwrap_or(1).max(1) } else { 1 };
        self.set("SLURM_TASKS_PER_NODE", request.task_count().max(tasks));
        if request.ntasks.is_some() || request.ntasks_per_node.is_some() {
            self.set("SLURM_NTASKS", request.task_count());
            self.set("SLURM_NPROCS", request.task_count());
        }
        self.set_some("SLURM_OPEN_MODE", request.open_mode.map(open_mode_letter));
        self.set_some("SLURM_OVERCOMMIT", request.overcommit.then_some(1));
        self.set_some("SLURM_NTASKS_PER_NODE", request.ntasks_per_node);
        self.set_some("SLURM_CPUS_PER_TASK", request.cpus_per_task);
        self.placement(&request.placement);
        match request.mem {
            // Do not set the default: it would act as an option of every sbatch and srun inside.
            MemRequest::Default | MemRequest::None => {}
            MemRequest::PerNode(_) => self.set("SLURM_MEM_PER_NODE", alloc.tres.mem_mb),
            MemRequest::PerCpu(mb) => self.set("SLURM_MEM_PER_CPU", mb),
            MemRequest::PerGpu(mb) => self.set("SLURM_MEM_PER_GPU", mb),
        }
        let submit_dir =
            if request.submit_dir.is_empty() { &request.work_dir } else { &request.submit_dir };
        self.set("SLURM_SUBMIT_DIR", submit_dir);
        self.set("SLURM_SUBMIT_HOST", &request.submit_host);
        let start = job.run.start.unwrap_or_default();
        self.set("SLURM_JOB_START_TIME", start.as_secs());
        self.set_some(
            "SLURM_JOB_END_TIME",
            request.time_limit_secs.map(|limit| start.plus_secs(limit).as_secs()),
        );
        if !request.dependency.is_empty() {
            self.set("SLURM_JOB_DEPENDENCY", &request.dependency);
        }
        if job.run.restarts > 0 {
            self.set("SLURM_RESTART_COUNT", job.run.restarts);
        }
        self.set_some("SLURM_GPUS", request.gpu.total);
        self.set_some("SLURM_GPUS_PER_NODE", request.gpu.per_node);
        self.set_some("SLURM_GPUS_PER_TASK", request.gpu.per_task);
        self.set_some("SLURM_CPUS_PER_GPU", request.gpu.cpus_per_gpu);
        if !alloc.gpu_ids.is_empty() {
            self.set("SLURM_JOB_GPUS", list(&alloc.gpu_ids));
        }
        self.gpus(&alloc.gpu_ids);
    }

    /// Sets the variables of the task layout, as far as it was specified.
    fn placement(&mut self, placement: &Placement) {
        let Placement { distribution, hint, ntasks_per_core, ntasks_per_socket, mem_bind, .. } =
            placement;
        match distribution {
            // The size has a variable of its own.
            Some(Distribution { nodes: Spread::Plane(Some(size)), .. }) => {
                self.set("SLURM_DISTRIBUTION", "plane");
                self.set("SLURM_DIST_PLANESIZE", size);
            }
            other => self.set_some("SLURM_DISTRIBUTION", other.as_ref()),
        }
        self.set_some("SLURM_HINT", hint.as_ref());
        self.set_some("SLURM_THREADS_PER_CORE", placement.threads());
        self.set_some("SLURM_NTASKS_PER_CORE", *ntasks_per_core);
        self.set_some("SLURM_NTASKS_PER_SOCKET", *ntasks_per_socket);
        for (name, value) in mem_bind.as_ref().map(MemBind::variables).unwrap_or_default() {
            self.set(name, value);
        }
    }

    fn gpus(&mut self, ids: &[u32]) {
        // A step without GPUs must not see those of its job.
        let hides = !self.host.gpus_open || !self.alloc.gpu_ids.is_empty();
        self.vars.extend(visible(self.host, ids, hides));
        if !ids.is_empty() {
            self.set("SLURM_GPUS_ON_NODE", ids.len());
        }
    }

    /// Sets the variables that slurmd adds on the node.
    fn node(&mut self, cpus: u32) {
        let request = &self.job.request;
        self.set("HOSTNAME", self.node);
        self.set("SLURMD_NODENAME", self.node);
        self.set("SLURM_CPUS_ON_NODE", cpus);
        self.set("SLURM_JOB_UID", request.uid);
        self.set("SLURM_JOB_GID", request.gid);
        self.set("SLURM_JOB_USER", &request.user);
        self.set("SLURM_JOB_GROUP", &request.group);
        self.set("SLURM_NODEID", 0);
        self.set("SLURM_PRIO_PROCESS", 0);
        self.set("SLURM_TOPOLOGY_ADDR", self.node);
        self.set("SLURM_TOPOLOGY_ADDR_PATTERN", "node");
    }

    fn array(&mut self) {
        let job = self.job;
        let (array_job, task) = match &job.role {
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

/// The variables that CUDA and ROCm programs read.
const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ROCM: &str = "ROCR_VISIBLE_DEVICES";

/// Returns the variables that restrict programs to these GPUs. A program uses all GPUs of the
/// machine if the variable is unset, so if it gets none and `hides` is true, the variable is set to
/// an empty string.
fn visible(host: &Host, ids: &[u32], hides: bool) -> Variables {
    let mut vars = Vec::new();
    let all = || host.gpus.iter().chain(&host.lost_gpus);
    let is_amds = all().any(|gpu| gpu.maker == Maker::Amd);
    for (maker, name) in [(Maker::Nvidia, CUDA), (Maker::Amd, ROCM)] {
        let given =
            ids.iter().filter(|id| host.gpu(**id).map_or(Maker::Nvidia, |gpu| gpu.maker) == maker);
        let given: Vec<String> =
            given.map(|id| host.gpu(*id).map_or_else(|| id.to_string(), Gpu::visible_as)).collect();
        let is_hidden = hides && all().any(|gpu| gpu.maker == maker);
        if !given.is_empty() && maker == Maker::Nvidia {
            // Number the GPUs as nvidia-smi does, rather than the fastest first.
            vars.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
        }
        if !given.is_empty() || is_hidden {
            vars.push((name.to_owned(), given.join(",")));
        }
    }
    // Slurm sets this for GPUs of any maker. Do the same if the host has no AMD GPU.
    let ordinals = ordinals(host, ids);
    if !is_amds && let Some((_, list)) = ordinals.first() {
        vars.push((ROCM.to_owned(), list.clone()));
    }
    vars.extend(ordinals);
    vars
}

/// Returns `GPU_DEVICE_ORDINAL`, which OpenCL programs read. It holds only plain numbers. AMD GPUs
/// are left out, because ROCm would count among those that `ROCR_VISIBLE_DEVICES` leaves.
fn ordinals(host: &Host, ids: &[u32]) -> Variables {
    let is_counted = |id: &u32| {
        host.gpu(*id).is_none_or(|gpu| gpu.maker == Maker::Nvidia && gpu.handle.is_none())
    };
    let counted: Vec<u32> = ids.iter().copied().filter(is_counted).collect();
    let vars = (!counted.is_empty()).then(|| ("GPU_DEVICE_ORDINAL".to_owned(), list(&counted)));
    vars.into_iter().collect()
}

/// Returns Slurm's letter for this mode.
fn open_mode_letter(mode: OpenMode) -> char {
    match mode {
        OpenMode::Append => 'a',
        OpenMode::Truncate => 't',
    }
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the ranks of the tasks on this node: `0,1,2,…`.
fn ranks(ntasks: u32) -> String {
    list(&(0..ntasks).collect::<Vec<_>>())
}

/// The variables that connect a rank to the other ranks of its step.
const PMI: [&str; 4] = ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"];

/// Returns the variables of the process calling srun that do not apply to the step. With
/// `hides_gpus`, the step has none of its job's GPUs. Then the variables that name GPUs are
/// included, except `CUDA_VISIBLE_DEVICES`, which hides them.
pub fn stale_in_step(hides_gpus: bool) -> Vec<String> {
    let gpus = ["SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL", ROCM];
    let gpus = gpus.iter().filter(|_| hides_gpus);
    PMI.iter().chain(&CPU_BIND_VARIABLES).chain(gpus).map(ToString::to_string).collect()
}

/// Returns the variables through which a rank finds the others. `end` is the descriptor of its
/// connection to the watcher.
pub(crate) fn pmi_variables(step: StepKey, rank: u32, size: usize, end: i32) -> Variables {
    let values = [end.to_string(), rank.to_string(), size.to_string(), step.to_string()];
    PMI.map(str::to_owned).into_iter().zip(values).collect()
}

/// Returns the variables that differ between tasks, except `SLURM_TASK_PID`, which the task sets
/// itself. `gpus` are the GPUs of this task, if it does not see all GPUs of the step
/// (`--gpus-per-task`, `--gpu-bind`).
pub fn task_environment(rank: u32, gpus: Option<&[u32]>, host: &Host) -> Variables {
    let mut vars = vec![
        ("SLURM_PROCID".to_owned(), rank.to_string()),
        ("SLURM_LOCALID".to_owned(), rank.to_string()),
    ];
    if let Some(ids) = gpus {
        vars.extend(visible(host, ids, true));
    }
    vars
}

/// Returns the environment of a step: `env` without the variables in `unset`, then those of
/// `defaults` that it lacks, then those of `set`. Each name appears once, with its last value.
/// `env` and the result consist of `KEY=VALUE` entries, each terminated by a null byte. Other
/// entries are left out.
pub fn merge(
    env: &[u8],
    unset: &[String],
    defaults: &[(String, String)],
    set: &[(String, String)],
) -> Vec<u8> {
    let given = env.split(|b| *b == 0).filter_map(|entry| {
        let at = entry.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
        Some((&entry[..at], &entry[at + 1..]))
    });
    let given = given.filter(|(name, _)| !unset.iter().any(|unset| unset.as_bytes() == *name));
    // No text of a job contains a null byte.
    let set = set.iter().filter(|(_, value)| !value.contains('\0'));

    let mut merged: Vec<(&[u8], &[u8])> = Vec::with_capacity(128);
    let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(128);
    let mut put = |name, value, replaces: bool| match places.entry(name) {
        Entry::Occupied(known) if replaces => merged[*known.get()].1 = value,
        Entry::Occupied(_) => {}
        Entry::Vacant(new) => {
            new.insert(merged.len());
            merged.push((name, value));
        }
    };
    given.for_each(|(name, value)| put(name, value, true));
    defaults.iter().for_each(|(name, value)| put(name.as_bytes(), value.as_bytes(), false));
    set.for_each(|(name, value)| put(name.as_bytes(), value.as_bytes(), true));

    let size = merged.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let mut out = Vec::with_capacity(size);
    for (name, value) in merged {
        for part in [name, b"=", value, b"\0"] {
            out.extend_from_slice(part);
        }
    }
    out
}

/// Returns the environment of one array task. `env` consists of `KEY=VALUE` entries, each
/// terminated by a null byte, and may contain values for single tasks: `SLOTD_ARRAY_TASK_7_lr=0.1`
/// becomes `lr=0.1` in task 7, replacing any other `lr`, and is removed from the other tasks.
pub fn of_array_task(env: Vec<u8>, role: &ArrayRole) -> Vec<u8> {
    const PREFIX: &[u8] = b"SLOTD_ARRAY_TASK_";
    let entries = || env.split_inclusive(|b| *b == 0);
    if !entries().any(|entry| entry.starts_with(PREFIX)) {
        return env;
    }
    let own = match role {
        ArrayRole::Task { task, .. } => Some([PREFIX, format!("{task}_").as_bytes()].concat()),
        ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => None,
    };
    let of_all = entries().filter(|entry| !entry.starts_with(PREFIX));
    // Later entries replace earlier ones.
    let of_task = entries().filter_map(|entry| entry.strip_prefix(own.as_deref()?));
    of_all.chain(of_task).collect::<Vec<_>>().concat()
}

/// Returns the variables that a submission from inside another job inherits but that would be wrong
/// in the new job: the other job's array, step, rank, GPUs, account and reservation, and the socket
/// of its step manager. `env` consists of `KEY=VALUE` entries, each terminated by a null byte. As
/// in Slurm, values that were requested on a command line or set by hand (`SLURM_NTASKS`) are kept.
pub fn stale_variables(env: &[u8]) -> Vec<String> {
    const PREFIXES: [&str; 2] = ["SLURM_ARRAY_", "SLURM_STEP"];
    const NAMES: [&str; 17] = [
        "SLOTD_SNAPSHOT_DIR",
        "SLURM_JOBMGR_SOCKET",
        "SLURM_JOB_ACCOUNT",
        "SLURM_JOB_RESERVATION",
        "SLURM_LAUNCH_NODE_IPADDR",
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
    // The GPU variables are slotd's only if one of these is set. A user may also restrict the GPUs
    // of all their jobs.
    let gpus_are_ours = names.iter().any(|n| matches!(*n, "SLURM_JOB_GPUS" | "SLURM_STEP_GPUS"));
    names
        .into_iter()
        .filter(|name| {
            PREFIXES.iter().any(|p| name.starts_with(p))
                || NAMES.contains(name)
                || PMI.contains(name)
                || (gpus_are_ours && [CUDA, ROCM, "CUDA_DEVICE_ORDER"].contains(name))
        })
        .map(str::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::array::{ArraySpec, TaskRange, TaskSet};
    use slotd_model::job::ClientProcess;
    use slotd_model::request::GpuRequest;
    use slotd_model::run::RunState;
    use slotd_model::{JobId, JobRequest, StepRequest, Timestamp, Tres};
    use std::sync::{Arc, LazyLock};

    #[test]
    fn each_variable_appears_once_with_its_last_value() {
        let pair = |n: &str, v: &str| (n.to_string(), v.to_string());
        let merged = merge(
            b"A=1\0B=2\0=x\0junk\0A=3\0E=\0X=\xff=z\0",
            &["B".to_owned()],
            &[pair("A", "no"), pair("TMPDIR", "/tmp")],
            &[pair("E", "5"), pair("N", "6"), pair("N", "7"), pair("Z", "\0")],
        );
        assert_eq!(merged, b"A=3\0E=5\0X=\xff=z\0TMPDIR=/tmp\0N=7\0");
    }

    fn job() -> Job {
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
        let alloc = Allocation {
            tres: Tres { cpus: 2, mem_mb: 512, ..Tres::ZERO },
            ..Allocation::default()
        };
        let run = RunState {
            alloc: Some(alloc.into()),
            start: Some(Timestamp::from_secs(1000)),
            ..RunState::default()
        };
        Job {
            id: JobId(148),
            partition: "cpu".into(),
            request: Arc::new(request),
            run,
            ..Job::default()
        }
    }

    static HOST: LazyLock<Host> =
        LazyLock::new(|| Host { name: "vm".to_owned(), ..Host::default() });

    fn of(job: &Job) -> Environment<'_> {
        Environment::of(job, &HOST, "/r")
    }

    fn request(job: &mut Job) -> &mut JobRequest {
        Arc::make_mut(&mut job.request)
    }

    /// Returns the last value of a name, which is the one that a launch uses.
    fn get<'a>(vars: &'a Variables, name: &str) -> Option<&'a str> {
        vars.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    #[test]
    fn an_array_task_gets_only_its_own_values() {
        let env =
            b"lr=9\0SLOTD_ARRAY_TASK_1_lr=0.1\0A=a\0SLOTD_ARRAY_TASK_12_lr=0.2\0SLOTD_ARRAY_TASK_1_x=y=z\0".to_vec();
        let of = |role: ArrayRole| String::from_utf8(of_array_task(env.clone(), &role)).unwrap();
        let task = |task| ArrayRole::Task { array_job: JobId(7), task };
        assert_eq!(of(task(1)), "lr=9\0A=a\0lr=0.1\0x=y=z\0");
        assert_eq!(of(task(12)), "lr=9\0A=a\0lr=0.2\0");
        assert_eq!(
            (of(task(2)), of(ArrayRole::None)),
            ("lr=9\0A=a\0".to_owned(), "lr=9\0A=a\0".to_owned())
        );
        assert_eq!(of_array_task(b"A=a\0".to_vec(), &task(1)), b"A=a\0");
    }

    #[test]
    fn variables_of_options_that_were_not_given_are_unset() {
        let job = job();
        let vars = of(&job).batch(1);
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
            ("HOSTNAME", "vm"),
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
    fn requested_options_set_their_variables() {
        let mut job = job();
        request(&mut job).ntasks = Some(2);
        request(&mut job).cpus_per_task = Some(3);
        request(&mut job).mem = MemRequest::PerCpu(64);
        request(&mut job).time_limit_secs = Some(60);
        let vars = of(&job).batch(2);
        assert_eq!(get(&vars, "SLURM_NTASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_CPUS_PER_TASK"), Some("3"));
        assert_eq!(get(&vars, "SLURM_MEM_PER_CPU"), Some("64"));
        assert_eq!(get(&vars, "SLURM_MEM_PER_NODE"), None);
        assert_eq!(get(&vars, "SLURM_GTIDS"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_JOB_END_TIME"), Some("1060"));
    }

    #[test]
    fn an_array_task_gets_the_variables_of_its_array() {
        let mut job = job();
        let tasks = TaskSet::from_ranges(TaskRange::new(3, 7, 2).into_iter().collect());
        request(&mut job).array = Some(ArraySpec { tasks, limit: Some(2) });
        job.role = ArrayRole::Task { array_job: JobId(152), task: 5 };
        let vars = of(&job).batch(1);
        let shown = ["JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP"]
            .map(|n| get(&vars, &format!("SLURM_ARRAY_{n}")).unwrap_or("-"));
        assert_eq!(shown, ["152", "5", "3", "3", "7", "2"]);
    }

    #[test]
    fn jobs_without_gpus_see_none() {
        let gpu = |id, maker| Gpu { id, maker, ..Gpu::default() };
        let mut host = HOST.clone();
        let seen = |host: &Host, ids: &[u32]| {
            let vars = visible(host, ids, !host.gpus_open);
            [CUDA, ROCM, "CUDA_DEVICE_ORDER"].map(|name| get(&vars, name).unwrap_or("-").to_owned())
        };
        assert_eq!(seen(&host, &[]), ["-", "-", "-"], "the host has no GPUs");
        host.gpus = vec![gpu(0, Maker::Nvidia), gpu(1, Maker::Nvidia)];
        assert_eq!(seen(&host, &[]), ["", "-", "-"]);
        assert_eq!(
            seen(&host, &[1]),
            ["1", "1", "PCI_BUS_ID"],
            "Slurm sets ROCm's variable, and no GPU here uses it"
        );
        host.gpus.push(Gpu { handle: Some("0".to_owned()), ..gpu(2, Maker::Amd) });
        assert_eq!(seen(&host, &[]), ["", "", "-"]);
        assert_eq!(seen(&host, &[2]), ["", "0", "-"]);
        assert_eq!(ordinals(&host, &[2]), []);
        host.lost_gpus = vec![Gpu { handle: Some("MIG-1".to_owned()), ..gpu(3, Maker::Nvidia) }];
        assert_eq!(seen(&host, &[1, 3]), ["1,MIG-1", "", "PCI_BUS_ID"]);
        host.gpus_open = true;
        assert_eq!(seen(&host, &[]), ["-", "-", "-"]);
        assert_eq!(seen(&host, &[1]), ["1", "-", "PCI_BUS_ID"]);
    }

    #[test]
    fn gpus_are_named_for_the_job_and_for_the_step() {
        let mut job = job();
        request(&mut job).gpu = GpuRequest { total: Some(2), ..GpuRequest::default() };
        job.run.alloc.get_or_insert_default().gpu_ids = vec![0, 1];
        let vars = of(&job).batch(1);
        assert_eq!(get(&vars, "CUDA_VISIBLE_DEVICES"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_JOB_GPUS"), Some("0,1"));
        assert_eq!(get(&vars, "SLURM_GPUS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_GPUS_ON_NODE"), Some("2"));
        let alloc = Allocation {
            tres: Tres { cpus: 1, ..Tres::ZERO },
            gpu_ids: vec![1],
            ..Allocation::default()
        };
        let mut launch = StepLaunch {
            request: StepRequest { ntasks: Some(2), ..StepRequest::default() },
            job: job.id,
            client: ClientProcess { pid: 1, start_ticks: 1, ..ClientProcess::default() },
            umask: Some(0o22),
            ..StepLaunch::default()
        };
        let vars = of(&job).step(StepId::Num(4), &launch, &alloc);
        assert_eq!(get(&vars, "CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(get(&vars, "SLURM_STEP_GPUS"), Some("1"));
        assert_eq!(get(&vars, "SLURM_STEP_ID"), Some("4"));
        assert_eq!(get(&vars, "SLURM_STEP_NUM_TASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_NTASKS"), Some("2"));
        assert_eq!(get(&vars, "SLURM_UMASK"), Some("0022"));
        assert_eq!(
            (get(&vars, "SLURM_CPUS_ON_NODE"), get(&vars, "SLURM_JOB_NAME")),
            (Some("2"), None)
        );
        launch.request.exact = true;
        let vars = of(&job).step(StepId::Num(4), &launch, &alloc);
        assert_eq!(get(&vars, "SLURM_CPUS_ON_NODE"), Some("1"));
        assert_eq!(get(&vars, "SLURM_JOB_CPUS_PER_NODE"), Some("2"));
    }

    #[test]
    fn a_salloc_command_gets_no_rank() {
        let job = job();
        let vars = of(&job).interactive();
        for name in ["SLURM_PROCID", "SLURM_GTIDS", "SLURMD_NODENAME", "ENVIRONMENT"] {
            assert_eq!(get(&vars, name), None, "{name}");
        }
        assert_eq!(get(&vars, "SLURM_JOB_ID"), Some("148"));
    }

    #[test]
    fn rank_and_gpus_of_another_job_are_not_inherited() {
        let inside =
            b"A=1\0SLURM_PROCID=3\0SLURM_NTASKS=7\0SLURM_JOB_GPUS=0\0CUDA_VISIBLE_DEVICES=0\0SLURM_ARRAY_TASK_ID=2\0SLURM_JOBMGR_SOCKET=/x\0SLURM_JOB_ACCOUNT=a\0";
        let stale = stale_variables(inside);
        assert_eq!(
            stale,
            [
                "SLURM_PROCID",
                "SLURM_JOB_GPUS",
                "CUDA_VISIBLE_DEVICES",
                "SLURM_ARRAY_TASK_ID",
                "SLURM_JOBMGR_SOCKET",
                "SLURM_JOB_ACCOUNT"
            ]
        );
        assert!(stale_variables(b"CUDA_VISIBLE_DEVICES=1\0").is_empty());
    }
}
