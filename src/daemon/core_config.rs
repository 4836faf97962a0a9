//! Turns the settings and the state of this machine into the configuration of the scheduling core,
//! and into the output of `scontrol show config`.

use crate::daemon::error::{DaemonError, failed};
use crate::daemon::sendmail;
use crate::daemon::settings::{Environment, SettingError, Settings};
use crate::daemon::site::{Site, SiteError, SiteFile};
use crate::daemon::slurm_config;
use slotd_model::Partition;
use slotd_model::partition::{Host, Machine};
use slotd_model::qos;
use slotd_parse::capacity::Capacity;
use slotd_sched::Capacities;
use slotd_sys::{machine, system, zone};
use std::path::PathBuf;

/// The memory of a job that requests none, in MB.
pub const DEFAULT_MEM_MB: u64 = 512;

/// Builds the configuration of the scheduling core, with remarks on the parts of the file that have
/// no effect.
///
/// `known` is the host with everything that was detected.
///
/// # Errors
/// Fails if `slotd.toml` is invalid, or if a setting leaves no CPUs or memory for jobs.
pub fn core_config(
    settings: &Settings,
    known: Host,
) -> Result<(slotd_sched::Config, Vec<String>), DaemonError> {
    let site = settings.site_file.as_ref().map(SiteFile::read).transpose()?.unwrap_or_default();
    let capacities = capacities(settings, &site, &known)?;
    let host = host(settings, capacities, known);
    check_cpus(settings, &site, &host)?;
    let all = partitions(settings, &site.partitions);
    let remarks = unused(settings, &site, &all);
    let mut config = slotd_sched::Config {
        partitions: Vec::new(),
        all_partitions: Vec::new(),
        limits: site.limits,
        licenses: site.licenses,
        qos: qos::with_default(site.qos),
        reservations: Vec::new(),
        zone: zone::local().into(),
        host,
        capacities,
        default_mem_mb: DEFAULT_MEM_MB,
        batch_tasks: settings.batch_tasks,
        reruns_failed: settings.reruns_failed,
        min_job_age_secs: settings.min_job_age.as_secs(),
        cluster: slotd_model::CLUSTER.to_owned(),
        max_array_size: slotd_model::array::MAX_TASK_ID + 1,
        max_tasks: settings.max_tasks,
        reads_gpus: settings.gpu_count.is_none(),
        avoids_used_gpus: settings.avoids_used_gpus,
        avoids_used_cpus: settings.avoids_used_cpus,
        audience: settings.audience(sendmail::find(settings).is_some()),
    };
    config.set_partitions(all);
    Ok((config, remarks))
}

/// Validates an environment, and the `slotd.toml` that it refers to, before a daemon is started
/// with them. GPUs are not detected, since the daemon starts without those that are missing.
///
/// # Errors
/// See [`Settings::read`] and [`core_config`].
pub fn check_settings(env: &Environment) -> Result<(), DaemonError> {
    let settings = Settings::read(PathBuf::new(), env)?;
    let known = Host { detects_gpus: true, ..machine()? };
    core_config(&settings, known).map(drop)
}

/// Returns the host with the CPUs and the memory of this machine.
///
/// # Errors
/// Fails if they cannot be read.
pub fn machine() -> Result<Host, DaemonError> {
    let Machine { topology, mem_mb } =
        machine::probe().map_err(failed("cannot read the CPUs and the memory of this machine"))?;
    Ok(Host { topology, machine_mem_mb: mem_mb, ..Host::default() })
}

/// Returns the capacity from the variable, or else from the file. Fails if it leaves nothing for
/// jobs.
fn capacity(
    settings: &Settings,
    (variable, ours): (&'static str, Option<Capacity>),
    (key, theirs): (&str, Option<Capacity>),
    line: Option<usize>,
    there: u64,
) -> Result<Option<Capacity>, DaemonError> {
    let nothing_left =
        format!("a number to keep back that is less than {there}, the total of this host");
    match (ours, theirs) {
        (Some(ours), _) if ours.of(there).is_none() => {
            Err(SettingError { variable, value: ours.to_string(), expected: nothing_left }.into())
        }
        (None, Some(theirs)) if theirs.of(there).is_none() => {
            let path =
                settings.site_file.as_ref().map(|file| file.path().to_owned()).unwrap_or_default();
            Err(SiteError {
                path,
                line,
                what: format!("{key} = {theirs}: expected {nothing_left}"),
            }
            .into())
        }
        _ => Ok(ours.or(theirs)),
    }
}

/// Computes the share of the machine that jobs may use.
fn capacities(settings: &Settings, site: &Site, known: &Host) -> Result<Capacities, DaemonError> {
    let line = |key| site.lines.of_host(key);
    let there = known.topology.cpus().len() as u64;
    let cpus = capacity(
        settings,
        ("SLOTD_CPUS", settings.cpus),
        ("cpus", site.cpus),
        line("cpus"),
        there,
    )?;
    let (ours, theirs) = (("SLOTD_MEMORY_MB", settings.mem_mb), ("memory_mb", site.mem_mb));
    let mem_mb = capacity(settings, ours, theirs, line("memory_mb"), known.machine_mem_mb)?;
    Ok(Capacities { cpus, mem_mb })
}

/// Refuses partitions on CPUs that jobs may not use. Lost CPUs are accepted, since they may come
/// back.
fn check_cpus(settings: &Settings, site: &Site, host: &Host) -> Result<(), DaemonError> {
    let there = host.parts().cpus;
    for partition in &site.partitions {
        let missing = partition.cpus.iter().flatten().find(|cpu| !there.contains(cpu));
        if let Some(missing) = missing {
            let there: Vec<String> = there.iter().map(u32::to_string).collect();
            let path =
                settings.site_file.as_ref().map(|file| file.path().to_owned()).unwrap_or_default();
            let what = format!(
                "partition {}: there is no CPU {missing}; available: {}",
                partition.name,
                there.join(",")
            );
            return Err(
                SiteError { path, line: site.lines.of(&partition.name, "cpus"), what }.into()
            );
        }
    }
    Ok(())
}

/// Adds the settings of the host to its detected properties.
fn host(settings: &Settings, capacities: Capacities, known: Host) -> Host {
    let mut host = Host {
        name: system::probe_host_name(),
        gpu_shards: settings.gpu_shards,
        gpus_open: settings.gpus_open,
        features: settings.features.clone(),
        kernel: system::probe_os(),
        arch: system::probe_arch(),
        boot_secs: system::probe_boot_secs(),
        ..known
    };
    capacities.give(&mut host);
    host
}

/// Returns the partitions, those for GPUs last. A variable overrides the file's list of partitions,
/// unless it only has the default value, which the installer writes. For a partition that the
/// variable names, the file's settings apply.
fn partitions(settings: &Settings, site: &[Partition]) -> Vec<Partition> {
    let of_kind = |names: &Option<Vec<String>>, default: &str, is_gpu: bool| -> Vec<Partition> {
        let named = |name: &String| {
            let known = site.iter().find(|partition| partition.name == *name).cloned();
            Partition { name: name.clone(), is_gpu, ..known.unwrap_or_default() }
        };
        let is_default = |names: &&Vec<String>| !site.is_empty() && **names == [default];
        match names.as_ref().filter(|names| !is_default(names)) {
            Some(names) => names.iter().map(named).collect(),
            None if site.is_empty() => vec![named(&default.to_owned())],
            None => site.iter().filter(|partition| partition.is_gpu == is_gpu).cloned().collect(),
        }
    };
    let mut all = of_kind(&settings.cpu_partitions, "cpu", false);
    for partition in of_kind(&settings.gpu_partitions, "gpu", true) {
        if !all.iter().any(|known| known.name == partition.name) {
            all.push(partition);
        }
    }
    all
}

/// Returns a remark for each partition of the file that does not exist because a variable names
/// others.
fn unused(settings: &Settings, site: &Site, all: &[Partition]) -> Vec<String> {
    let path = settings.site_file.as_ref().map(|file| file.path().display().to_string());
    let path = path.unwrap_or_default();
    let missing = site.partitions.iter().filter(|p| !all.iter().any(|known| known.name == p.name));
    let remark = |partition: &Partition| {
        let (kind, variable) = if partition.is_gpu {
            ("GPU ", "SLOTD_GPU_PARTITIONS")
        } else {
            ("", "SLOTD_CPU_PARTITIONS")
        };
        format!(
            "{path}: the {kind}partition {} does not exist, because {variable} names others: \
             remove that setting, or add the name to it",
            partition.name
        )
    };
    missing.map(remark).collect()
}

/// Returns the output of `scontrol show config`: Slurm's keys, then slotd's own.
pub fn shown(settings: &Settings, core: &slotd_sched::Config) -> Vec<(String, String)> {
    let all = slurm_config::pairs(settings, core).chain(own(settings, core));
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the value in force of each variable without a key in Slurm, named in Slurm's style.
fn own(settings: &Settings, core: &slotd_sched::Config) -> Vec<(&'static str, String)> {
    let partitions = |is_gpu: bool| {
        let own = core.all_partitions.iter().filter(|partition| partition.is_gpu == is_gpu);
        own.map(|partition| partition.name.clone()).collect::<Vec<_>>().join(",")
    };
    let yes = |is_so: bool| if is_so { "yes" } else { "no" }.to_owned();
    let foreign = |is_avoided: bool| if is_avoided { "avoid" } else { "ignore" }.to_owned();
    let rules = settings.cgroup_rules();
    vec![
        ("SlotdBatchTasks", settings.batch_tasks.name().to_owned()),
        (CGROUP_KEY, or_null(settings.cgroup_base.as_ref())),
        ("SlotdCpuForeign", foreign(settings.avoids_used_cpus)),
        ("SlotdCpuPartitions", partitions(false)),
        ("SlotdCpus", core.host.cpu_ids.len().to_string()),
        ("SlotdDiffsMb", or_unlimited(settings.diffs_mb)),
        ("SlotdFeatures", settings.features.join(",")),
        ("SlotdGit", if settings.git { "on" } else { "off" }.to_owned()),
        ("SlotdGpuForeign", foreign(settings.avoids_used_gpus)),
        ("SlotdGpuHide", yes(!settings.gpus_open)),
        ("SlotdGpuPartitions", partitions(true)),
        ("SlotdGpuShards", settings.gpu_shards.to_string()),
        ("SlotdIoWeight", or_null(rules.io_weight)),
        ("SlotdKeepDays", or_unlimited(settings.keep_days)),
        ("SlotdKeepJobs", or_unlimited(settings.keep_jobs)),
        ("SlotdLimits", joined(&core.limits)),
        ("SlotdLog", settings.log.as_str().to_ascii_lowercase()),
        ("SlotdMaxProcesses", rules.max_processes.to_string()),
        ("SlotdMemoryMb", core.host.mem_mb.to_string()),
        ("SlotdNotifyCmd", or_null(settings.notify_cmd.as_ref().map(|command| command.display()))),
        ("SlotdNotifyEvents", settings.notify_events.to_string()),
        ("SlotdNotifyTimeout", format!("{} sec", settings.notify_timeout.as_secs())),
        ("SlotdNotifyUrl", or_null(settings.notify_url.as_ref())),
        ("SlotdOomKillStep", yes(rules.kill_step)),
        ("SlotdOomScoreAdj", settings.oom_score_adj.to_string()),
        ("SlotdQos", joined(&core.qos)),
        ("SlotdRequeue", if settings.reruns_failed { "once" } else { "slurm" }.to_owned()),
        ("SlotdRoot", settings.root.display().to_string()),
        (SENDMAIL_KEY, or_null(sendmail::find(settings).map(|path| path.display().to_string()))),
        (VERSION_KEY, env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

fn joined<T: ToString>(all: &[T]) -> String {
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    if shown.is_empty() { "(null)".to_owned() } else { shown.join("; ") }
}

pub(super) fn or_null<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "(null)".to_owned(), |value| value.to_string())
}

fn or_unlimited<T: ToString>(bound: Option<T>) -> String {
    bound.map_or_else(|| "UNLIMITED".to_owned(), |bound| bound.to_string())
}

/// The key of `SLOTD_CGROUP_BASE`. Its value is `(null)` if limits are not enforced.
pub const CGROUP_KEY: &str = "SlotdCgroupBase";

/// The key of the program that sends email.
pub const SENDMAIL_KEY: &str = "SlotdSendmail";

/// The key of the daemon's own version.
pub const VERSION_KEY: &str = "SlotdVersion";
