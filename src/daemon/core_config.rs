//! From the settings and this machine to what the scheduling core has to know, and to
//! `scontrol show config`.

use crate::daemon::error::DaemonError;
use crate::daemon::sendmail;
use crate::daemon::settings::{SettingError, Settings};
use crate::daemon::site::{Site, SiteError, SiteFile};
use crate::daemon::slurm_config;
use crate::model::Partition;
use crate::model::limit::Limit;
use crate::model::partition::Host;
use crate::parse::capacity::Capacity;
use crate::sched::{self, Capacities};
use crate::sys::{system, zone};

/// Memory of a job that asked for none, in MB.
pub const DEFAULT_MEM_MB: u64 = 512;

/// What the core has to know about this machine and the settings.
///
/// `known` is the host with what was found of the machine.
///
/// # Errors
/// `slotd.toml` has something wrong in it, or a setting leaves nothing of what there is.
pub fn core_config(settings: &Settings, known: Host) -> Result<sched::Config, DaemonError> {
    let site = settings.site_file.as_ref().map(SiteFile::read).transpose()?.unwrap_or_default();
    let capacities = capacities(settings, &site, &known)?;
    let host = host(settings, capacities, known);
    check_cpus(settings, &site, &host)?;
    let all = partitions(settings, site.partitions);
    let mut config = sched::Config {
        partitions: Vec::new(),
        all_partitions: Vec::new(),
        limits: site.limits,
        zone: zone::local().into(),
        host,
        capacities,
        default_mem_mb: DEFAULT_MEM_MB,
        batch_tasks: settings.batch_tasks,
        reruns_failed: settings.reruns_failed,
        min_job_age_secs: settings.min_job_age.as_secs(),
        cluster: crate::CLUSTER.to_owned(),
        max_array_size: crate::model::array::MAX_TASK_ID + 1,
        max_tasks: settings.max_tasks,
        reads_gpus: settings.gpu_count.is_none(),
        avoids_used_gpus: settings.avoids_used_gpus,
        avoids_used_cpus: settings.avoids_used_cpus,
        audience: settings.audience(sendmail::find(settings).is_some()),
    };
    config.set_partitions(all);
    Ok(config)
}

/// What a setting says, which leaves something of what there is.
fn capacity(
    settings: &Settings,
    (variable, ours): (&'static str, Option<Capacity>),
    (key, theirs): (&str, Option<Capacity>),
    line: Option<usize>,
    there: u64,
) -> Result<Option<Capacity>, DaemonError> {
    let nothing_left = format!("fewer that are kept back: this host has {there}");
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

/// How much of what the machine has jobs get: the variables go before the file.
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

/// Refuses partitions over CPUs that jobs may not use. What is lost may come back.
fn check_cpus(settings: &Settings, site: &Site, host: &Host) -> Result<(), DaemonError> {
    let there = host.parts().cpus;
    for partition in &site.partitions {
        let missing = partition.cpus.iter().flatten().find(|cpu| !there.contains(cpu));
        if let Some(missing) = missing {
            let there: Vec<String> = there.iter().map(u32::to_string).collect();
            let path =
                settings.site_file.as_ref().map(|file| file.path().to_owned()).unwrap_or_default();
            let what = format!(
                "partition {}: there is no CPU {missing}, there are {}",
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

/// The host with what the settings say of it.
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

/// The partitions of the settings, those for GPUs last. Which there are a variable says before the
/// file; what the file says of one that a variable names holds.
fn partitions(settings: &Settings, site: Vec<Partition>) -> Vec<Partition> {
    let of_kind = |names: &Option<Vec<String>>, default: &str, is_gpu: bool| -> Vec<Partition> {
        let named = |name: &String| {
            let known = site.iter().find(|partition| partition.name == *name).cloned();
            Partition { name: name.clone(), is_gpu, ..known.unwrap_or_default() }
        };
        match names {
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

/// `scontrol show config`: Slurm's keys, and slotd's own after them.
pub fn shown(settings: &Settings, core: &sched::Config) -> Vec<(String, String)> {
    let all = slurm_config::pairs(settings, core).chain(own(settings, core));
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What is in force for each variable that Slurm has no key for, by its name in Slurm's spelling.
fn own(settings: &Settings, core: &sched::Config) -> Vec<(&'static str, String)> {
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
        ("SlotdLimits", limits(&core.limits)),
        ("SlotdLog", settings.log.as_str().to_ascii_lowercase()),
        ("SlotdMaxProcesses", rules.max_processes.to_string()),
        ("SlotdMemoryMb", core.host.mem_mb.to_string()),
        ("SlotdNotifyCmd", or_null(settings.notify_cmd.as_ref().map(|command| command.display()))),
        ("SlotdNotifyEvents", settings.notify_events.to_string()),
        ("SlotdNotifyTimeout", format!("{} sec", settings.notify_timeout.as_secs())),
        ("SlotdNotifyUrl", or_null(settings.notify_url.as_ref())),
        ("SlotdOomKillStep", yes(rules.kill_step)),
        ("SlotdOomScoreAdj", settings.oom_score_adj.to_string()),
        ("SlotdRequeue", if settings.reruns_failed { "once" } else { "slurm" }.to_owned()),
        ("SlotdRoot", settings.root.display().to_string()),
        (SENDMAIL_KEY, or_null(sendmail::find(settings).map(|path| path.display().to_string()))),
        (VERSION_KEY, env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

fn limits(limits: &[Limit]) -> String {
    let told: Vec<String> = limits.iter().map(ToString::to_string).collect();
    if told.is_empty() { "(null)".to_owned() } else { told.join("; ") }
}

pub(super) fn or_null<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "(null)".to_owned(), |value| value.to_string())
}

fn or_unlimited<T: ToString>(bound: Option<T>) -> String {
    bound.map_or_else(|| "UNLIMITED".to_owned(), |bound| bound.to_string())
}

/// The key of `SLOTD_CGROUP_BASE` there: `(null)` if limits are not enforced.
pub const CGROUP_KEY: &str = "SlotdCgroupBase";

/// Where the program that mail is handed to stands there.
pub const SENDMAIL_KEY: &str = "SlotdSendmail";

/// Where the daemon's own version stands in `scontrol show config`.
pub const VERSION_KEY: &str = "SlotdVersion";
