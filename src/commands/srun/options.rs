//! The options of srun and the variables that stand for them (srun man page, "INPUT ENVIRONMENT VARIABLES").

use crate::args::job_values::{immediate, open_mode};
use crate::args::options::JobOpts;
use crate::args::value::{named, value};
use crate::model::JobRef;
use crate::model::binding::GpuBind;
use crate::model::request::OpenMode;
use crate::spec;
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub struct SrunOpts {
    #[command(flatten)]
    pub job: JobOpts,
    /// Bind tasks to CPUs: none, threads, cores, sockets, rank, map_cpu:0,2, mask_cpu:0x3, with verbose or quiet
    #[arg(long, value_name = "MODE")]
    pub cpu_bind: Option<String>,
    /// Send Ctrl-C to the step at once, without a report of its tasks
    #[arg(short = 'X', long)]
    pub disable_status: bool,
    /// File for standard error: a pattern, all, none, or the number of a task
    #[arg(short, long, value_name = "PATTERN")]
    pub error: Option<String>,
    /// Give the step what it asks for and no more
    #[arg(long, overrides_with = "whole")]
    pub exact: bool,
    /// Environment of the tasks: ALL, NONE, or names and NAME=VALUE
    #[arg(long, value_name = "NAMES")]
    pub export: Option<String>,
    /// Bind tasks to GPUs: none, single:N, map_gpu:0,1, closest
    #[arg(long, value_name = "MODE", value_parser = value(spec::gpu_bind::parse))]
    pub gpu_bind: Option<GpuBind>,
    /// Fail unless the resources are there within so many seconds (now if no value is given)
    #[arg(short = 'I', long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = value(immediate))]
    pub immediate: Option<u64>,
    /// File for standard input: a path, all, none, or the number of a task
    #[arg(short, long, value_name = "PATTERN")]
    pub input: Option<String>,
    /// Job to run the step in
    #[arg(long, value_name = "JOB", value_parser = value(spec::ids::parse_job))]
    pub jobid: Option<JobRef>,
    /// End the step when a task fails (=0: do not)
    #[arg(short = 'K', long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = named(spec::count::parse_or_zero))]
    pub kill_on_bad_exit: Option<u32>,
    /// Put the number of the task before each line of output
    #[arg(short, long)]
    pub label: bool,
    /// The command is a file that gives each task its program
    #[arg(long)]
    pub multi_prog: bool,
    /// Let the daemon run the command, and return at once
    #[arg(long)]
    pub no_wait: bool,
    /// What to do with an output file that is there: append or truncate
    #[arg(long, value_name = "MODE", value_parser = value(open_mode))]
    pub open_mode: Option<OpenMode>,
    /// File for standard output: a pattern, all, none, or the number of a task
    #[arg(short, long, value_name = "PATTERN")]
    pub output: Option<String>,
    /// Take nothing from the other steps of the job
    #[arg(long)]
    pub overlap: bool,
    /// Resource limits of this shell that the job gets: ALL, NONE, or names (CORE,NOFILE)
    #[arg(long, value_name = "LIMITS", num_args = 0..=1, require_equals = true)]
    pub propagate: Option<Option<String>>,
    /// Run task 0 in a pseudo terminal
    #[arg(long, value_name = "DESCRIPTOR", num_args = 0..=1, require_equals = true)]
    pub pty: Option<Option<String>>,
    /// End the step at the first Ctrl-C
    #[arg(long)]
    pub quit_on_interrupt: bool,
    /// How many of the allocation's nodes to leave out, of which there is one
    #[arg(short, long, value_name = "N", value_parser = named(spec::count::parse_or_zero))]
    pub relative: Option<u32>,
    /// Tell when the job would start, without running it
    #[arg(long)]
    pub test_only: bool,
    /// Pass output on without waiting for the end of a line
    #[arg(short, long)]
    pub unbuffered: bool,
    /// End the rest of the step so many seconds after its first task ended
    #[arg(short = 'W', long, value_name = "SECONDS", value_parser = named(spec::count::parse_or_zero))]
    pub wait: Option<u32>,
    /// Give the step all of the job
    #[arg(long, overrides_with = "exact")]
    pub whole: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND [ARGS]")]
    pub operands: Vec<String>,
}

/// The last of two variables for one option wins.
pub const VARIABLES: &[(&str, &str)] = &[
    ("SLURM_ACCOUNT", "account"),
    ("SLURM_ACCTG_FREQ", "acctg-freq"),
    ("SLURM_BCAST", "bcast"),
    ("SLURM_BCAST_EXCLUDE", "bcast-exclude"),
    ("SLURM_BURST_BUFFER", "bb"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SLURM_COMPRESS", "compress"),
    ("SLURM_CONSTRAINT", "constraint"),
    ("SLURM_CONTAINER", "container"),
    ("SRUN_CONTAINER", "container"),
    ("SLURM_CORE_SPEC", "core-spec"),
    ("SLURM_CPUS_PER_GPU", "cpus-per-gpu"),
    // SLURM_CPUS_PER_TASK is not read, as in Slurm since 22.05: it describes the job.
    ("SRUN_CPUS_PER_TASK", "cpus-per-task"),
    ("SLURM_CPU_BIND", "cpu-bind"),
    ("SLURM_CPU_FREQ_REQ", "cpu-freq"),
    ("SLURM_DEBUG", "verbose"),
    ("SLURM_DELAY_BOOT", "delay-boot"),
    ("SLURM_DEPENDENCY", "dependency"),
    ("SLURM_DISABLE_STATUS", "disable-status"),
    ("SLURM_DISTRIBUTION", "distribution"),
    ("SLURM_EXACT", "exact"),
    ("SLURM_EXCLUSIVE", "exclusive"),
    ("SLURM_EXPORT_ENV", "export"),
    ("SRUN_EXPORT_ENV", "export"),
    ("SLURM_GPUS", "gpus"),
    ("SLURM_GPUS_PER_NODE", "gpus-per-node"),
    ("SLURM_GPUS_PER_TASK", "gpus-per-task"),
    ("SLURM_GPU_BIND", "gpu-bind"),
    ("SLURM_GPU_FREQ", "gpu-freq"),
    ("SLURM_GRES", "gres"),
    ("SLURM_GRES_FLAGS", "gres-flags"),
    ("SLURM_STEP_GRES", "gres"),
    ("SLURM_HINT", "hint"),
    ("SLURM_IMMEDIATE", "immediate"),
    ("SLURM_JOB_ID", "jobid"),
    ("SLURM_JOB_NAME", "job-name"),
    ("SLURM_JOB_NUM_NODES", "nodes"),
    ("SLURM_NNODES", "nodes"),
    ("SLURM_KILL_BAD_EXIT", "kill-on-bad-exit"),
    ("SLURM_LABELIO", "label"),
    ("SLURM_MEM_BIND", "mem-bind"),
    ("SLURM_MEM_PER_CPU", "mem-per-cpu"),
    ("SLURM_MEM_PER_GPU", "mem-per-gpu"),
    ("SLURM_MEM_PER_NODE", "mem"),
    ("SLURM_MPI_TYPE", "mpi"),
    ("SLURM_NETWORK", "network"),
    ("SLURM_NO_KILL", "no-kill"),
    ("SLURM_NPROCS", "ntasks"),
    ("SLURM_NTASKS", "ntasks"),
    ("SLURM_NTASKS_PER_CORE", "ntasks-per-core"),
    ("SLURM_NTASKS_PER_GPU", "ntasks-per-gpu"),
    ("SLURM_NTASKS_PER_NODE", "ntasks-per-node"),
    ("SLURM_NTASKS_PER_SOCKET", "ntasks-per-socket"),
    ("SLURM_OPEN_MODE", "open-mode"),
    ("SLURM_OVERCOMMIT", "overcommit"),
    ("SLURM_OVERLAP", "overlap"),
    ("SLURM_PARTITION", "partition"),
    ("SLURM_POWER", "power"),
    ("SLURM_PROFILE", "profile"),
    ("SLURM_QOS", "qos"),
    ("SLURM_REMOTE_CWD", "chdir"),
    ("SLURM_REQ_SWITCH", "switches"),
    ("SLURM_RESERVATION", "reservation"),
    ("SLURM_RESV_PORTS", "resv-ports"),
    ("SLURM_SEND_LIBS", "send-libs"),
    ("SLURM_SIGNAL", "signal"),
    ("SLURM_SPREAD_JOB", "spread-job"),
    ("SLURM_STDERRMODE", "error"),
    ("SRUN_ERROR", "error"),
    ("SLURM_STDINMODE", "input"),
    ("SRUN_INPUT", "input"),
    ("SLURM_STDOUTMODE", "output"),
    ("SRUN_OUTPUT", "output"),
    ("SLURM_THREADS", "threads"),
    ("SLURM_THREADS_PER_CORE", "threads-per-core"),
    ("SLURM_THREAD_SPEC", "thread-spec"),
    ("SLURM_TIMELIMIT", "time"),
    ("SLURM_TRES_BIND", "tres-bind"),
    ("SLURM_TRES_PER_TASK", "tres-per-task"),
    ("SLURM_UNBUFFEREDIO", "unbuffered"),
    ("SLURM_USE_MIN_NODES", "use-min-nodes"),
    ("SLURM_WAIT", "wait"),
    ("SLURM_WCKEY", "wckey"),
    ("SLURM_WHOLE", "whole"),
    ("SLURM_WORKING_DIR", "chdir"),
];
