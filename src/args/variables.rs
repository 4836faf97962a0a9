//! The environment variables that set options of sbatch, salloc and srun (their man pages, "INPUT
//! ENVIRONMENT VARIABLES").
//!
//! If two variables set the same option, the later one wins. In addition to Slurm's, there are
//! SBATCH_ARRAY, SBATCH_BEGIN, SBATCH_CHDIR, SBATCH_CPUS_PER_TASK, SBATCH_DEPENDENCY,
//! SBATCH_EXPORT_FILE, SBATCH_MEM, SBATCH_NTASKS, SBATCH_PARSABLE and SBATCH_TIME: slotd provides a
//! variable for each of its main options. The variables of options that are stored as text are in
//! [`kept::OPTIONS`].

use crate::args::kept;

/// A variable and the long name of its option.
pub type Variable = (&'static str, &'static str);

/// An option and its variables for sbatch, salloc and srun; empty if the command has none. As in
/// Slurm since 22.05, SLURM_CPUS_PER_TASK does not apply to srun, because it describes the job.
const ROWS: &[(&str, [&str; 3])] = &[
    ("acctg-freq", ["SBATCH_ACCTG_FREQ", "SALLOC_ACCTG_FREQ", "SLURM_ACCTG_FREQ"]),
    ("array", ["SBATCH_ARRAY_INX", "", ""]),
    ("array", ["SBATCH_ARRAY", "", ""]),
    ("batch", ["SBATCH_BATCH", "", ""]),
    ("bb", ["SBATCH_BURST_BUFFER", "SALLOC_BURST_BUFFER", "SLURM_BURST_BUFFER"]),
    ("bcast", ["", "", "SLURM_BCAST"]),
    ("bcast-exclude", ["", "", "SLURM_BCAST_EXCLUDE"]),
    ("begin", ["SBATCH_BEGIN", "", ""]),
    ("bell", ["", "SALLOC_BELL", ""]),
    ("chdir", ["SBATCH_CHDIR", "", ""]),
    ("chdir", ["", "", "SLURM_REMOTE_CWD"]),
    ("chdir", ["", "", "SLURM_WORKING_DIR"]),
    ("clusters", ["SBATCH_CLUSTERS", "SALLOC_CLUSTERS", "SLURM_CLUSTERS"]),
    ("clusters", ["SLURM_CLUSTERS", "SLURM_CLUSTERS", ""]),
    ("compress", ["", "", "SLURM_COMPRESS"]),
    ("constraint", ["SBATCH_CONSTRAINT", "SALLOC_CONSTRAINT", "SLURM_CONSTRAINT"]),
    ("container", ["SBATCH_CONTAINER", "SALLOC_CONTAINER", "SLURM_CONTAINER"]),
    ("container", ["", "", "SRUN_CONTAINER"]),
    ("container-id", ["SBATCH_CONTAINER_ID", "SALLOC_CONTAINER_ID", ""]),
    ("core-spec", ["SBATCH_CORE_SPEC", "SALLOC_CORE_SPEC", "SLURM_CORE_SPEC"]),
    ("cpu-bind", ["", "", "SLURM_CPU_BIND"]),
    ("cpu-freq", ["SBATCH_CPU_FREQ_REQ", "SALLOC_CPU_FREQ_REQ", "SLURM_CPU_FREQ_REQ"]),
    ("cpus-per-gpu", ["SBATCH_CPUS_PER_GPU", "SALLOC_CPUS_PER_GPU", "SLURM_CPUS_PER_GPU"]),
    ("cpus-per-task", ["SBATCH_CPUS_PER_TASK", "", ""]),
    ("cpus-per-task", ["", "", "SRUN_CPUS_PER_TASK"]),
    ("delay-boot", ["SBATCH_DELAY_BOOT", "SALLOC_DELAY_BOOT", "SLURM_DELAY_BOOT"]),
    ("dependency", ["SBATCH_DEPENDENCY", "", "SLURM_DEPENDENCY"]),
    ("disable-status", ["", "", "SLURM_DISABLE_STATUS"]),
    ("distribution", ["SBATCH_DISTRIBUTION", "SALLOC_DISTRIBUTION", "SLURM_DISTRIBUTION"]),
    ("error", ["SBATCH_ERROR", "", ""]),
    ("error", ["", "", "SLURM_STDERRMODE"]),
    ("error", ["", "", "SRUN_ERROR"]),
    ("exact", ["", "", "SLURM_EXACT"]),
    ("exclusive", ["SBATCH_EXCLUSIVE", "SALLOC_EXCLUSIVE", "SLURM_EXCLUSIVE"]),
    ("export", ["SBATCH_EXPORT", "", ""]),
    ("export", ["", "", "SLURM_EXPORT_ENV"]),
    ("export", ["", "", "SRUN_EXPORT_ENV"]),
    ("export-file", ["SBATCH_EXPORT_FILE", "", ""]),
    ("get-user-env", ["SBATCH_GET_USER_ENV", "", ""]),
    ("gpu-bind", ["SBATCH_GPU_BIND", "SALLOC_GPU_BIND", "SLURM_GPU_BIND"]),
    ("gpu-freq", ["SBATCH_GPU_FREQ", "SALLOC_GPU_FREQ", "SLURM_GPU_FREQ"]),
    ("gpus", ["SBATCH_GPUS", "SALLOC_GPUS", "SLURM_GPUS"]),
    ("gpus-per-node", ["SBATCH_GPUS_PER_NODE", "SALLOC_GPUS_PER_NODE", "SLURM_GPUS_PER_NODE"]),
    ("gpus-per-task", ["SBATCH_GPUS_PER_TASK", "SALLOC_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"]),
    ("gres", ["SBATCH_GRES", "SALLOC_GRES", "SLURM_GRES"]),
    ("gres", ["", "", "SLURM_STEP_GRES"]),
    ("gres-flags", ["SBATCH_GRES_FLAGS", "SALLOC_GRES_FLAGS", "SLURM_GRES_FLAGS"]),
    ("hint", ["SBATCH_HINT", "SALLOC_HINT", "SLURM_HINT"]),
    ("hint", ["SLURM_HINT", "SLURM_HINT", ""]),
    ("ignore-pbs", ["SBATCH_IGNORE_PBS", "", ""]),
    ("immediate", ["", "SALLOC_IMMEDIATE", "SLURM_IMMEDIATE"]),
    ("input", ["SBATCH_INPUT", "", ""]),
    ("input", ["", "", "SLURM_STDINMODE"]),
    ("input", ["", "", "SRUN_INPUT"]),
    ("job-name", ["SBATCH_JOB_NAME", "", "SLURM_JOB_NAME"]),
    ("jobid", ["", "", "SLURM_JOB_ID"]),
    ("kill-command", ["", "SALLOC_KILL_CMD", ""]),
    ("kill-on-bad-exit", ["", "", "SLURM_KILL_BAD_EXIT"]),
    ("label", ["", "", "SLURM_LABELIO"]),
    ("mem", ["SBATCH_MEM_PER_NODE", "SALLOC_MEM_PER_NODE", "SLURM_MEM_PER_NODE"]),
    ("mem", ["SBATCH_MEM", "", ""]),
    ("mem-bind", ["SBATCH_MEM_BIND", "SALLOC_MEM_BIND", "SLURM_MEM_BIND"]),
    ("mem-per-cpu", ["SBATCH_MEM_PER_CPU", "SALLOC_MEM_PER_CPU", "SLURM_MEM_PER_CPU"]),
    ("mem-per-gpu", ["SBATCH_MEM_PER_GPU", "SALLOC_MEM_PER_GPU", "SLURM_MEM_PER_GPU"]),
    ("mpi", ["", "", "SLURM_MPI_TYPE"]),
    ("no-bell", ["", "SALLOC_NO_BELL", ""]),
    ("no-kill", ["SBATCH_NO_KILL", "SALLOC_NO_KILL", "SLURM_NO_KILL"]),
    ("no-requeue", ["SBATCH_NO_REQUEUE", "", ""]),
    ("nodes", ["", "", "SLURM_JOB_NUM_NODES"]),
    ("nodes", ["", "", "SLURM_NNODES"]),
    ("ntasks", ["", "", "SLURM_NPROCS"]),
    ("ntasks", ["SBATCH_NTASKS", "", "SLURM_NTASKS"]),
    ("ntasks-per-core", ["", "", "SLURM_NTASKS_PER_CORE"]),
    ("ntasks-per-gpu", ["", "", "SLURM_NTASKS_PER_GPU"]),
    ("ntasks-per-node", ["", "", "SLURM_NTASKS_PER_NODE"]),
    ("ntasks-per-socket", ["", "", "SLURM_NTASKS_PER_SOCKET"]),
    ("open-mode", ["SBATCH_OPEN_MODE", "", "SLURM_OPEN_MODE"]),
    ("output", ["SBATCH_OUTPUT", "", ""]),
    ("output", ["", "", "SLURM_STDOUTMODE"]),
    ("output", ["", "", "SRUN_OUTPUT"]),
    ("overcommit", ["SBATCH_OVERCOMMIT", "SALLOC_OVERCOMMIT", "SLURM_OVERCOMMIT"]),
    ("overlap", ["", "", "SLURM_OVERLAP"]),
    ("parsable", ["SBATCH_PARSABLE", "", ""]),
    ("partition", ["SBATCH_PARTITION", "SALLOC_PARTITION", "SLURM_PARTITION"]),
    ("power", ["SBATCH_POWER", "SALLOC_POWER", "SLURM_POWER"]),
    ("profile", ["SBATCH_PROFILE", "SALLOC_PROFILE", "SLURM_PROFILE"]),
    ("requeue", ["SBATCH_REQUEUE", "", ""]),
    ("resv-ports", ["", "", "SLURM_RESV_PORTS"]),
    ("send-libs", ["", "", "SLURM_SEND_LIBS"]),
    ("signal", ["SBATCH_SIGNAL", "SALLOC_SIGNAL", "SLURM_SIGNAL"]),
    ("spread-job", ["SBATCH_SPREAD_JOB", "SALLOC_SPREAD_JOB", "SLURM_SPREAD_JOB"]),
    ("switches", ["SBATCH_REQ_SWITCH", "SALLOC_REQ_SWITCH", "SLURM_REQ_SWITCH"]),
    ("thread-spec", ["SBATCH_THREAD_SPEC", "SALLOC_THREAD_SPEC", "SLURM_THREAD_SPEC"]),
    ("threads", ["", "", "SLURM_THREADS"]),
    (
        "threads-per-core",
        ["SBATCH_THREADS_PER_CORE", "SALLOC_THREADS_PER_CORE", "SLURM_THREADS_PER_CORE"],
    ),
    ("time", ["SBATCH_TIMELIMIT", "SALLOC_TIMELIMIT", "SLURM_TIMELIMIT"]),
    ("time", ["SBATCH_TIME", "", ""]),
    ("tres-bind", ["SBATCH_TRES_BIND", "", "SLURM_TRES_BIND"]),
    ("tres-per-task", ["SBATCH_TRES_PER_TASK", "SALLOC_TRES_PER_TASK", "SLURM_TRES_PER_TASK"]),
    ("unbuffered", ["", "", "SLURM_UNBUFFEREDIO"]),
    ("use-min-nodes", ["SBATCH_USE_MIN_NODES", "SALLOC_USE_MIN_NODES", "SLURM_USE_MIN_NODES"]),
    ("verbose", ["SBATCH_DEBUG", "SALLOC_DEBUG", "SLURM_DEBUG"]),
    ("wait", ["SBATCH_WAIT", "", "SLURM_WAIT"]),
    ("wait-all-nodes", ["SBATCH_WAIT_ALL_NODES", "SALLOC_WAIT_ALL_NODES", ""]),
    ("uid", ["SLOTD_UID", "SLOTD_UID", "SLOTD_UID"]),
    ("whole", ["", "", "SLURM_WHOLE"]),
];

pub fn sbatch() -> Vec<Variable> {
    of_command(0)
}

pub fn salloc() -> Vec<Variable> {
    of_command(1)
}

pub fn srun() -> Vec<Variable> {
    of_command(2)
}

fn of_command(command: usize) -> Vec<Variable> {
    let kept = kept::OPTIONS.iter().map(|row| (row.long, row.variables));
    let all = ROWS.iter().copied().chain(kept);
    let named = all.map(|(option, variables)| (variables[command], option));
    named.filter(|(variable, _)| !variable.is_empty()).collect()
}
