//! `srun`: run a command as a step, in an allocation of its own where there is none.

use crate::cli::step::{StepAsk, Streams};
use crate::model::{JobRef, JobRequest};

#[derive(Debug, Clone, PartialEq)]
pub struct Srun {
    /// The job to run in: `--jobid`, else `SLURM_JOB_ID`. `None`: get an allocation by `request`, or with `no_wait` submit it.
    pub inside: Option<JobRef>,
    /// The allocation (kind `Allocation`), or with `no_wait` the job (kind `Run`, the command in `args`).
    pub request: JobRequest,
    pub step: StepAsk,
    pub streams: Streams,
    /// The command and its arguments; with `multi_prog` the file's name first. Never empty.
    pub command: Vec<String>,
    /// The tasks' environment as `KEY=VALUE` entries, each ended by a zero byte; `SLURM_*` of the step come on top.
    pub env: Vec<u8>,
    /// `-D`, absolute: where the tasks start.
    pub work_dir: String,
    /// `--no-wait`: let the daemon run it, and return.
    pub no_wait: bool,
    /// `--multi-prog`: the command is a file that gives each rank its program.
    pub multi_prog: bool,
    /// `-K`: `Some(true)` ends the step when a task fails, `Some(false)` keeps it. `None`: not said (Slurm keeps it).
    pub kill_on_bad_exit: Option<bool>,
    /// `-W`: end the rest so many seconds after the first task ended. `None`: never.
    pub wait_secs: Option<u64>,
    /// `--quit-on-interrupt`: one Ctrl-C ends the step.
    pub quit_on_interrupt: bool,
    /// `-X`: Ctrl-C goes to the step at once, without the status report.
    pub disable_status: bool,
    pub test_only: bool,
    /// `-k`, `--no-shell`-like options of a held allocation do not exist for srun; `-Q` hides what is only news.
    pub quiet: bool,
    pub verbose: u8,
    pub defined: Vec<(String, String)>,
    /// 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
    /// Exit code when `--immediate` fails: 1, or `SLURM_EXIT_IMMEDIATE`.
    pub immediate_exit: i32,
}
