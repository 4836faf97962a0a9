//! The keys of Slurm's `scontrol show config`, in Slurm's order. Their values are slotd's own where
//! it has the feature, and otherwise the values that Slurm shows for a feature that does not exist
//! or is not used.
//!
//! `BOOT_TIME`, `NEXT_JOB_ID`, `JobAcctGatherFrequency` and `MessageTimeout` are left out, because
//! slotd has no single value for them.

use super::core_config::or_null;
use super::sendmail;
use super::settings::Settings;
use slotd_model::license::License;
use slotd_model::preempt::PreemptMode;
use slotd_model::qos;
use slotd_sched::Config;
use slotd_sys::paths::Paths;
use slotd_sys::user;

/// A key and the source of its value.
struct Key(&'static str, Value);

enum Value {
    Is(&'static str),
    Of(fn(&Settings, &Config) -> String),
}

const fn is(key: &'static str, value: &'static str) -> Key {
    Key(key, Value::Is(value))
}

const fn of(key: &'static str, value: fn(&Settings, &Config) -> String) -> Key {
    Key(key, Value::Of(value))
}

/// Returns all keys with their values.
pub fn pairs(settings: &Settings, core: &Config) -> impl Iterator<Item = (&'static str, String)> {
    KEYS.iter().map(|Key(key, value)| match value {
        Value::Is(text) => (*key, (*text).to_owned()),
        Value::Of(compute) => (*key, compute(settings, core)),
    })
}

fn secs(secs: u64) -> String {
    format!("{secs} sec")
}

/// Returns the owner, such as `lab(1001)`: all of slotd runs as the user who owns the jobs.
fn owner() -> String {
    let (uid, _) = user::current();
    format!("{}({uid})", user::user_name(uid))
}

/// Returns the licenses as in slurm.conf.
fn joined(licenses: &[License]) -> Option<String> {
    let words: Vec<String> = licenses.iter().map(License::to_string).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// Returns the rules of preemption in use: by QOS, by partition, or none.
fn preempt_type(core: &Config) -> String {
    let by_qos = core.qos.iter().any(|qos| !qos.preempt.is_empty());
    let words = [("preempt/qos", by_qos), ("preempt/partition_prio", modes(core).next().is_some())];
    let words: Vec<&str> = words.into_iter().filter(|(_, is)| *is).map(|(word, _)| word).collect();
    if words.is_empty() { "preempt/none".to_owned() } else { words.join(",") }
}

/// Returns the mode of jobs whose QOS and partition set none, or the first mode of a partition.
fn preempt_mode(core: &Config) -> String {
    let by_qos = core.qos.iter().any(|qos| !qos.preempt.is_empty()).then_some(qos::DEFAULT_MODE);
    by_qos.or_else(|| modes(core).next()).unwrap_or(PreemptMode::Off).name().to_owned()
}

/// Returns the modes of the partitions whose jobs may be preempted.
fn modes(core: &Config) -> impl Iterator<Item = PreemptMode> {
    let all = core.partitions.iter().filter_map(|partition| partition.preempt_mode);
    all.filter(|mode| *mode != PreemptMode::Off)
}

fn log_level(settings: &Settings) -> String {
    settings.log.as_str().to_ascii_lowercase()
}

fn log_file(settings: &Settings) -> String {
    Paths::new(&settings.root).log().display().to_string()
}

fn process_tracking(settings: &Settings) -> String {
    let by = if settings.cgroup_base.is_some() { "cgroup" } else { "linuxproc" };
    format!("proctrack/{by}")
}

fn lock_file(settings: &Settings) -> String {
    Paths::new(&settings.root).daemon_lock().display().to_string()
}

const KEYS: &[Key] = &[
    is("AccountingStorageBackupHost", "(null)"),
    of("AccountingStorageEnforce", |_, core| {
        if core.enforces_qos() { "limits,qos" } else { "none" }.to_owned()
    }),
    is("AccountingStorageHost", "(null)"),
    is("AccountingStorageExternalHost", "(null)"),
    is("AccountingStorageParameters", "(null)"),
    is("AccountingStoragePort", "0"),
    is("AccountingStorageTRES", "cpu,mem,node,billing,gres/gpu"),
    is("AccountingStorageType", "accounting_storage/slotd"),
    is("AccountingStorageUser", "N/A"),
    is("AccountingStoreFlags", "job_comment,job_env,job_script"),
    is("AcctGatherEnergyType", "acct_gather_energy/none"),
    is("AcctGatherFilesystemType", "acct_gather_filesystem/none"),
    is("AcctGatherInterconnectType", "acct_gather_interconnect/none"),
    is("AcctGatherNodeFreq", "0 sec"),
    is("AcctGatherProfileType", "acct_gather_profile/none"),
    is("AllowSpecResourcesUsage", "No"),
    is("AuthAltTypes", "(null)"),
    is("AuthAltParameters", "(null)"),
    is("AuthInfo", "(null)"),
    is("AuthType", "auth/socket"),
    is("BatchStartTimeout", "10 sec"),
    is("BcastExclude", "(null)"),
    is("BcastParameters", "(null)"),
    is("BurstBufferType", "(null)"),
    is("CliFilterPlugins", "(null)"),
    of("ClusterName", |_, core| core.cluster.clone()),
    is("CommunicationParameters", "(null)"),
    is("CompleteWait", "0 sec"),
    is("CoreSpecPlugin", "core_spec/none"),
    is("CpuFreqDef", "Unknown"),
    is("CpuFreqGovernors", "(null)"),
    is("CredType", "cred/none"),
    is("DebugFlags", "(null)"),
    of("DefMemPerNode", |_, core| core.default_mem_mb.to_string()),
    is("DependencyParameters", "(null)"),
    is("DisableRootJobs", "No"),
    is("EioTimeout", "60"),
    is("EnforcePartLimits", "NO"),
    is("Epilog", "(null)"),
    is("EpilogMsgTime", "0 usec"),
    is("EpilogSlurmctld", "(null)"),
    is("ExtSensorsType", "ext_sensors/none"),
    is("ExtSensorsFreq", "0 sec"),
    is("FederationParameters", "(null)"),
    is("FirstJobId", "1"),
    is("GetEnvTimeout", "0 sec"),
    is("GresTypes", "gpu,gpumem,shard"),
    is("GpuFreqDef", "(null)"),
    is("GroupUpdateForce", "0"),
    is("GroupUpdateTime", "0 sec"),
    is("HASH_VAL", "Match"),
    is("HealthCheckInterval", "0 sec"),
    is("HealthCheckNodeState", "ANY"),
    is("HealthCheckProgram", "(null)"),
    is("InactiveLimit", "0 sec"),
    is("InteractiveStepOptions", "(null)"),
    is("JobAcctGatherType", "jobacct_gather/linux"),
    is("JobAcctGatherParams", "(null)"),
    is("JobCompHost", "(null)"),
    is("JobCompLoc", "(null)"),
    is("JobCompPort", "0"),
    is("JobCompType", "jobcomp/none"),
    is("JobCompUser", "(null)"),
    is("JobContainerType", "job_container/none"),
    is("JobCredentialPrivateKey", "(null)"),
    is("JobCredentialPublicCertificate", "(null)"),
    is("JobDefaults", "(null)"),
    is("JobFileAppend", "0"),
    is("JobRequeue", "1"),
    is("JobSubmitPlugins", "(null)"),
    is("KillOnBadExit", "0"),
    of("KillWait", |settings, _| secs(settings.kill_wait.as_secs())),
    is("LaunchParameters", "(null)"),
    is("LaunchType", "launch/slotd"),
    of("Licenses", |_, core| or_null(joined(&core.licenses))),
    is("LogTimeFormat", "iso8601_ms"),
    is("MailDomain", "(null)"),
    of("MailProg", |settings, _| {
        or_null(sendmail::find(settings).map(|path| path.display().to_string()))
    }),
    of("MaxArraySize", |_, core| core.max_array_size.to_string()),
    is("MaxDBDMsgs", "0"),
    of("MaxJobCount", |_, _| u32::MAX.to_string()),
    of("MaxJobId", |_, _| u32::MAX.to_string()),
    is("MaxMemPerNode", "UNLIMITED"),
    is("MaxNodeCount", "1"),
    of("MaxStepCount", |_, _| u32::MAX.to_string()),
    of("MaxTasksPerNode", |_, core| core.max_tasks.to_string()),
    is("MCSPlugin", "mcs/none"),
    is("MCSParameters", "(null)"),
    of("MinJobAge", |_, core| secs(core.min_job_age_secs)),
    is("MpiDefault", "none"),
    is("MpiParams", "(null)"),
    is("MULTIPLE_SLURMD", "No"),
    is("NodeFeaturesPlugins", "(null)"),
    is("OverTimeLimit", "0 min"),
    is("PluginDir", "(null)"),
    is("PlugStackConfig", "(null)"),
    is("PowerParameters", "(null)"),
    is("PowerPlugin", "(null)"),
    of("PreemptMode", |_, core| preempt_mode(core)),
    of("PreemptType", |_, core| preempt_type(core)),
    is("PreemptExemptTime", "00:00:00"),
    is("PrEpParameters", "(null)"),
    is("PrEpPlugins", "(null)"),
    is("PriorityParameters", "(null)"),
    is("PrioritySiteFactorParameters", "(null)"),
    is("PrioritySiteFactorPlugin", "(null)"),
    is("PriorityType", "priority/basic"),
    is("PrivateData", "none"),
    of("ProctrackType", |settings, _| process_tracking(settings)),
    is("Prolog", "(null)"),
    is("PrologEpilogTimeout", "65534"),
    is("PrologSlurmctld", "(null)"),
    is("PrologFlags", "(null)"),
    is("PropagatePrioProcess", "0"),
    is("PropagateResourceLimits", "ALL"),
    is("PropagateResourceLimitsExcept", "(null)"),
    is("RebootProgram", "(null)"),
    is("ReconfigFlags", "(null)"),
    is("RequeueExit", "(null)"),
    is("RequeueExitHold", "(null)"),
    is("ResumeFailProgram", "(null)"),
    is("ResumeProgram", "(null)"),
    is("ResumeRate", "0 nodes/min"),
    is("ResumeTimeout", "0 sec"),
    is("ResvEpilog", "(null)"),
    is("ResvOverRun", "0 min"),
    is("ResvProlog", "(null)"),
    is("ReturnToService", "2"),
    is("RoutePlugin", "route/default"),
    is("SchedulerParameters", "(null)"),
    is("SchedulerTimeSlice", "0 sec"),
    is("SchedulerType", "sched/backfill"),
    is("ScronParameters", "(null)"),
    is("SelectType", "select/cons_tres"),
    is("SelectTypeParameters", "CR_CPU_MEMORY"),
    of("SlurmUser", |_, _| owner()),
    is("SlurmctldAddr", "(null)"),
    of("SlurmctldDebug", |settings, _| log_level(settings)),
    of("SlurmctldHost[0]", |_, core| format!("{0}({0})", core.host.name)),
    of("SlurmctldLogFile", |settings, _| log_file(settings)),
    is("SlurmctldPort", "0"),
    is("SlurmctldSyslogDebug", "(null)"),
    is("SlurmctldPrimaryOffProg", "(null)"),
    is("SlurmctldPrimaryOnProg", "(null)"),
    is("SlurmctldTimeout", "0 sec"),
    is("SlurmctldParameters", "(null)"),
    of("SlurmdDebug", |settings, _| log_level(settings)),
    of("SlurmdLogFile", |settings, _| log_file(settings)),
    is("SlurmdParameters", "(null)"),
    of("SlurmdPidFile", |settings, _| lock_file(settings)),
    is("SlurmdPort", "0"),
    of("SlurmdSpoolDir", |settings, _| Paths::new(&settings.root).jobs_dir().display().to_string()),
    is("SlurmdSyslogDebug", "(null)"),
    is("SlurmdTimeout", "0 sec"),
    of("SlurmdUser", |_, _| owner()),
    is("SlurmSchedLogFile", "(null)"),
    is("SlurmSchedLogLevel", "0"),
    of("SlurmctldPidFile", |settings, _| lock_file(settings)),
    is("SlurmctldPlugstack", "(null)"),
    of("SLURM_CONF", |settings, _| {
        or_null(settings.site_file.as_ref().map(|file| file.path().display()))
    }),
    of("SLURM_VERSION", |_, _| slotd_model::SLURM_VERSION.to_owned()),
    is("SrunEpilog", "(null)"),
    is("SrunPortRange", "0-0"),
    is("SrunProlog", "(null)"),
    of("StateSaveLocation", |settings, _| format!("{}/lib", settings.root.display())),
    is("SuspendExcNodes", "(null)"),
    is("SuspendExcParts", "(null)"),
    is("SuspendProgram", "(null)"),
    is("SuspendRate", "0 nodes/min"),
    is("SuspendTime", "INFINITE"),
    is("SuspendTimeout", "0 sec"),
    is("SwitchParameters", "(null)"),
    is("SwitchType", "switch/none"),
    is("TaskEpilog", "(null)"),
    is("TaskPlugin", "task/affinity"),
    is("TaskPluginParam", "(null type)"),
    is("TaskProlog", "(null)"),
    is("TCPTimeout", "0 sec"),
    is("TmpFS", "/tmp"),
    is("TopologyParam", "(null)"),
    is("TopologyPlugin", "topology/none"),
    is("TrackWCKey", "No"),
    is("TreeWidth", "1"),
    is("UsePam", "No"),
    is("UnkillableStepProgram", "(null)"),
    is("UnkillableStepTimeout", "60 sec"),
    is("VSizeFactor", "0 percent"),
    is("WaitTime", "0 sec"),
    is("X11Parameters", "(null)"),
];
