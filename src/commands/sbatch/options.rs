//! The options of sbatch and the variables that stand for them (sbatch man page, "INPUT ENVIRONMENT VARIABLES").

use crate::args::job_values::open_mode;
use crate::args::options::JobOpts;
use crate::args::value::{Maybe, unless_empty, value};
use crate::model::array::ArraySpec;
use crate::model::request::OpenMode;
use crate::spec;
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub struct SbatchOpts {
    #[command(flatten)]
    pub job: JobOpts,
    /// Array of tasks: 0-7, 1,3,5-9:2, with %N at most N at once
    #[arg(short, long, value_name = "INDEXES", value_parser = unless_empty(spec::array::parse))]
    pub array: Option<Maybe<ArraySpec>>,
    /// File for standard error; the same as the output if not given
    #[arg(short, long, value_name = "PATTERN")]
    pub error: Option<String>,
    /// Environment of the job: ALL, NONE, NIL, or names and NAME=VALUE
    #[arg(long, value_name = "NAMES")]
    pub export: Option<String>,
    /// File (or descriptor) with NAME=VALUE entries for the job's environment
    #[arg(long, value_name = "FILE")]
    pub export_file: Option<String>,
    /// File for standard input
    #[arg(short, long, value_name = "PATTERN")]
    pub input: Option<String>,
    /// Never requeue the job
    #[arg(long, overrides_with = "requeue")]
    pub no_requeue: bool,
    /// What to do with an output file that is there: append or truncate
    #[arg(long, value_name = "MODE", value_parser = value(open_mode))]
    pub open_mode: Option<OpenMode>,
    /// File for standard output; %j job, %A array, %a task, %x name, %u user, %N host
    #[arg(short, long, value_name = "PATTERN")]
    pub output: Option<String>,
    /// Print the id only
    #[arg(long)]
    pub parsable: bool,
    /// Resource limits of this shell that the job gets: ALL, NONE, or names (CORE,NOFILE)
    #[arg(long, value_name = "LIMITS", num_args = 0..=1, require_equals = true)]
    pub propagate: Option<Option<String>>,
    /// Requeue the job once when it fails
    #[arg(long, overrides_with = "no_requeue")]
    pub requeue: bool,
    /// Tell when the job would start, without submitting it
    #[arg(long)]
    pub test_only: bool,
    /// Wait for the end of the job and exit with its code
    #[arg(short = 'W', long)]
    pub wait: bool,
    /// Command to run in place of a script
    #[arg(long, value_name = "COMMAND")]
    pub wrap: Option<String>,
    /// The script and its arguments; standard input where there is none
    #[arg(value_name = "SCRIPT [ARGS]")]
    pub operands: Vec<String>,
}

/// Slurm's variables. Those after the blank line are not Slurm's: the book gives every option of its table a variable.
pub const VARIABLES: &[(&str, &str)] = &[
    ("SBATCH_ACCOUNT", "account"),
    ("SBATCH_ACCTG_FREQ", "acctg-freq"),
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_BATCH", "batch"),
    ("SBATCH_BURST_BUFFER", "bb"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SBATCH_CONSTRAINT", "constraint"),
    ("SBATCH_CONTAINER", "container"),
    ("SBATCH_CONTAINER_ID", "container-id"),
    ("SBATCH_CORE_SPEC", "core-spec"),
    ("SBATCH_CPUS_PER_GPU", "cpus-per-gpu"),
    ("SBATCH_CPU_FREQ_REQ", "cpu-freq"),
    ("SBATCH_DEBUG", "verbose"),
    ("SBATCH_DELAY_BOOT", "delay-boot"),
    ("SBATCH_DISTRIBUTION", "distribution"),
    ("SBATCH_ERROR", "error"),
    ("SBATCH_EXCLUSIVE", "exclusive"),
    ("SBATCH_EXPORT", "export"),
    ("SBATCH_GET_USER_ENV", "get-user-env"),
    ("SBATCH_GPUS", "gpus"),
    ("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
    ("SBATCH_GPUS_PER_TASK", "gpus-per-task"),
    ("SBATCH_GPU_BIND", "gpu-bind"),
    ("SBATCH_GPU_FREQ", "gpu-freq"),
    ("SBATCH_GRES", "gres"),
    ("SBATCH_GRES_FLAGS", "gres-flags"),
    ("SBATCH_HINT", "hint"),
    ("SBATCH_IGNORE_PBS", "ignore-pbs"),
    ("SBATCH_INPUT", "input"),
    ("SBATCH_JOB_NAME", "job-name"),
    ("SBATCH_MEM_BIND", "mem-bind"),
    ("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    ("SBATCH_MEM_PER_GPU", "mem-per-gpu"),
    ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_NETWORK", "network"),
    ("SBATCH_NO_KILL", "no-kill"),
    ("SBATCH_NO_REQUEUE", "no-requeue"),
    ("SBATCH_OPEN_MODE", "open-mode"),
    ("SBATCH_OUTPUT", "output"),
    ("SBATCH_OVERCOMMIT", "overcommit"),
    ("SBATCH_PARTITION", "partition"),
    ("SBATCH_POWER", "power"),
    ("SBATCH_PROFILE", "profile"),
    ("SBATCH_QOS", "qos"),
    ("SBATCH_REQUEUE", "requeue"),
    ("SBATCH_REQ_SWITCH", "switches"),
    ("SBATCH_RESERVATION", "reservation"),
    ("SBATCH_SIGNAL", "signal"),
    ("SBATCH_SPREAD_JOB", "spread-job"),
    ("SBATCH_THREADS_PER_CORE", "threads-per-core"),
    ("SBATCH_THREAD_SPEC", "thread-spec"),
    ("SBATCH_TIMELIMIT", "time"),
    ("SBATCH_TRES_BIND", "tres-bind"),
    ("SBATCH_TRES_PER_TASK", "tres-per-task"),
    ("SBATCH_USE_MIN_NODES", "use-min-nodes"),
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_WAIT_ALL_NODES", "wait-all-nodes"),
    ("SBATCH_WCKEY", "wckey"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SLURM_HINT", "hint"),
    //
    ("SBATCH_ARRAY", "array"),
    ("SBATCH_BEGIN", "begin"),
    ("SBATCH_CHDIR", "chdir"),
    ("SBATCH_CPUS_PER_TASK", "cpus-per-task"),
    ("SBATCH_DEPENDENCY", "dependency"),
    ("SBATCH_EXPORT_FILE", "export-file"),
    ("SBATCH_MEM", "mem"),
    ("SBATCH_NTASKS", "ntasks"),
    ("SBATCH_PARSABLE", "parsable"),
    ("SBATCH_TIME", "time"),
];
