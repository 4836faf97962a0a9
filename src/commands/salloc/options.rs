//! The options of salloc and the variables that stand for them (salloc man page, "INPUT ENVIRONMENT VARIABLES").

use crate::args::job_values::{immediate, invalid};
use crate::args::options::JobOpts;
use crate::args::value::{named, value};
use crate::spec::{self, SpecError};
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub struct SallocOpts {
    #[command(flatten)]
    pub job: JobOpts,
    /// Ring the terminal's bell when the allocation is there
    #[arg(long, overrides_with = "no_bell")]
    pub bell: bool,
    /// Fail unless the resources are there within so many seconds (now if no value is given)
    #[arg(short = 'I', long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = value(immediate))]
    pub immediate: Option<u64>,
    /// Signal the command when the allocation ends before it (TERM if no value is given)
    #[arg(short = 'K', long, value_name = "SIGNAL", num_args = 0..=1, require_equals = true, default_missing_value = "TERM", value_parser = named(signal))]
    pub kill_command: Option<i32>,
    /// Do not ring the bell
    #[arg(long, overrides_with = "bell")]
    pub no_bell: bool,
    /// Get the allocation and return, without running a command
    #[arg(long)]
    pub no_shell: bool,
    /// The command and its arguments; your shell where there is none
    #[arg(value_name = "COMMAND [ARGS]")]
    pub operands: Vec<String>,
}

fn signal(text: &str, option: &str) -> Result<i32, SpecError> {
    spec::signal::parse(text).map_err(|_| invalid(option, text))
}

pub const VARIABLES: &[(&str, &str)] = &[
    ("SALLOC_ACCOUNT", "account"),
    ("SALLOC_ACCTG_FREQ", "acctg-freq"),
    ("SALLOC_BELL", "bell"),
    ("SALLOC_BURST_BUFFER", "bb"),
    ("SALLOC_CLUSTERS", "clusters"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SALLOC_CONSTRAINT", "constraint"),
    ("SALLOC_CONTAINER", "container"),
    ("SALLOC_CONTAINER_ID", "container-id"),
    ("SALLOC_CORE_SPEC", "core-spec"),
    ("SALLOC_CPUS_PER_GPU", "cpus-per-gpu"),
    ("SALLOC_CPU_FREQ_REQ", "cpu-freq"),
    ("SALLOC_DEBUG", "verbose"),
    ("SALLOC_DELAY_BOOT", "delay-boot"),
    ("SALLOC_DISTRIBUTION", "distribution"),
    ("SALLOC_EXCLUSIVE", "exclusive"),
    ("SALLOC_GPUS", "gpus"),
    ("SALLOC_GPUS_PER_NODE", "gpus-per-node"),
    ("SALLOC_GPUS_PER_TASK", "gpus-per-task"),
    ("SALLOC_GPU_BIND", "gpu-bind"),
    ("SALLOC_GPU_FREQ", "gpu-freq"),
    ("SALLOC_GRES", "gres"),
    ("SALLOC_GRES_FLAGS", "gres-flags"),
    ("SALLOC_HINT", "hint"),
    ("SLURM_HINT", "hint"),
    ("SALLOC_IMMEDIATE", "immediate"),
    ("SALLOC_KILL_CMD", "kill-command"),
    ("SALLOC_MEM_BIND", "mem-bind"),
    ("SALLOC_MEM_PER_CPU", "mem-per-cpu"),
    ("SALLOC_MEM_PER_GPU", "mem-per-gpu"),
    ("SALLOC_MEM_PER_NODE", "mem"),
    ("SALLOC_NETWORK", "network"),
    ("SALLOC_NO_BELL", "no-bell"),
    ("SALLOC_NO_KILL", "no-kill"),
    ("SALLOC_OVERCOMMIT", "overcommit"),
    ("SALLOC_PARTITION", "partition"),
    ("SALLOC_POWER", "power"),
    ("SALLOC_PROFILE", "profile"),
    ("SALLOC_QOS", "qos"),
    ("SALLOC_REQ_SWITCH", "switches"),
    ("SALLOC_RESERVATION", "reservation"),
    ("SALLOC_SIGNAL", "signal"),
    ("SALLOC_SPREAD_JOB", "spread-job"),
    ("SALLOC_THREADS_PER_CORE", "threads-per-core"),
    ("SALLOC_THREAD_SPEC", "thread-spec"),
    ("SALLOC_TIMELIMIT", "time"),
    ("SALLOC_TRES_PER_TASK", "tres-per-task"),
    ("SALLOC_USE_MIN_NODES", "use-min-nodes"),
    ("SALLOC_WAIT_ALL_NODES", "wait-all-nodes"),
    ("SALLOC_WCKEY", "wckey"),
];
