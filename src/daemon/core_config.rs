//! From the settings and this machine to what the scheduling core has to know, and to `scontrol show config`.

use crate::daemon::run::{DaemonError, failed};
use crate::daemon::settings::Settings;
use crate::model::Partition;
use crate::model::gpu::Gpu;
use crate::model::partition::Host;
use crate::sched;
use crate::sys::{cpus, memory, system};
use std::path::PathBuf;

/// Memory of a job that asked for none, in MB.
pub const DEFAULT_MEM_MB: u64 = 512;

/// What the core has to know about this machine and the settings.
///
/// # Errors
/// The CPUs of this machine cannot be found.
pub fn core_config(settings: &Settings, gpus: Vec<Gpu>) -> Result<sched::Config, DaemonError> {
    let host = find_host(settings, gpus)?;
    Ok(sched::Config {
        partitions: partitions(settings, !host.gpus.is_empty()),
        host,
        default_mem_mb: DEFAULT_MEM_MB,
        batch_tasks: settings.batch_tasks,
        min_job_age_secs: settings.min_job_age.as_secs(),
        cluster: crate::CLUSTER.to_owned(),
        max_array_size: crate::model::array::MAX_TASK_ID + 1,
        max_tasks: settings.max_tasks,
    })
}

fn find_host(settings: &Settings, gpus: Vec<Gpu>) -> Result<Host, DaemonError> {
    let found = cpus::probe().map_err(failed("the CPUs of this machine"))?;
    let cpu_ids = match settings.cpus {
        None => found.cpus(),
        // Numbers beyond the real ones are booked like any other, and never bound to.
        Some(n) => sched::count_out(n, &found),
    };
    Ok(Host {
        name: system::probe_host_name(),
        topology: found,
        cpu_ids,
        mem_mb: settings.mem_mb.unwrap_or_else(memory::probe_total_mb),
        gpus,
        lost_gpus: Vec::new(),
        gpu_shards: 0,
        features: settings.features.clone(),
        kernel: system::probe_os(),
        arch: system::probe_arch(),
        boot_secs: system::probe_boot_secs(),
    })
}

/// The partitions of the settings; those for GPUs only where there are any.
pub fn partitions(settings: &Settings, has_gpus: bool) -> Vec<Partition> {
    let cpu = settings.cpu_partitions.iter().map(|name| (name, false));
    let gpu = settings.gpu_partitions.iter().map(|name| (name, true)).filter(|_| has_gpus);
    cpu.chain(gpu)
        .enumerate()
        .map(|(i, (name, is_gpu))| Partition { name: name.clone(), is_gpu, is_default: i == 0, ..Partition::default() })
        .collect()
}

/// `scontrol show config`: Slurm's keys where there is something to say, and slotd's own.
pub fn shown(settings: &Settings, core: &sched::Config) -> Vec<(String, String)> {
    let node = &core.host.name;
    let list = |names: &[String]| names.join(",");
    let path = |p: Option<&PathBuf>| p.map_or_else(|| "(null)".to_owned(), |p| p.display().to_string());
    let root = settings.root.display();
    [
        ("BatchStartTimeout", "10 sec".to_owned()),
        ("ClusterName", core.cluster.clone()),
        ("DefMemPerNode", core.default_mem_mb.to_string()),
        ("KillWait", format!("{} sec", settings.kill_wait.as_secs())),
        ("MaxArraySize", core.max_array_size.to_string()),
        ("MaxTasksPerNode", core.max_tasks.to_string()),
        ("MinJobAge", format!("{} sec", core.min_job_age_secs)),
        ("PriorityType", "priority/basic".to_owned()),
        ("SchedulerType", "sched/backfill".to_owned()),
        ("SelectType", "select/cons_tres".to_owned()),
        ("SelectTypeParameters", "CR_CPU_MEMORY".to_owned()),
        ("SLURM_VERSION", crate::SLURM_VERSION.to_owned()),
        ("SlotdCgroupBase", path(settings.cgroup_base.as_ref())),
        ("SlotdCpuPartitions", list(&settings.cpu_partitions)),
        ("SlotdFeatures", list(&settings.features)),
        ("SlotdGpuPartitions", list(&settings.gpu_partitions)),
        ("SlotdKeepDays", or_unlimited(settings.keep_days)),
        ("SlotdKeepJobs", or_unlimited(settings.keep_jobs)),
        ("SlotdRoot", root.to_string()),
        (VERSION_KEY, env!("CARGO_PKG_VERSION").to_owned()),
        ("SlurmctldHost[0]", format!("{node}({node})")),
        ("StateSaveLocation", format!("{root}/lib")),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

fn or_unlimited<T: ToString>(bound: Option<T>) -> String {
    bound.map_or_else(|| "UNLIMITED".to_owned(), |bound| bound.to_string())
}

/// Where the daemon's own version stands in `scontrol show config`.
pub const VERSION_KEY: &str = "SlotdVersion";
