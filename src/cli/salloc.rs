//! `salloc`: get an allocation and run a command in it, or a shell.

use crate::model::JobRequest;

/// Whether the terminal bell rings when the allocation is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bell {
    /// After a wait of more than ten seconds.
    #[default]
    AfterWait,
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Salloc {
    pub request: JobRequest,
    /// Empty: the user's shell.
    pub command: Vec<String>,
    /// `-D`, absolute: where the command starts.
    pub work_dir: String,
    /// `--no-shell`: leave the allocation to itself and return.
    pub no_shell: bool,
    /// `-K`: the signal for the command when the allocation ends first. `None`: it is left alone.
    pub kill_command: Option<i32>,
    pub bell: Bell,
    pub quiet: bool,
    pub verbose: u8,
    pub defined: Vec<(String, String)>,
    /// 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
    /// Exit code when `--immediate` fails: 1, or `SLURM_EXIT_IMMEDIATE`.
    pub immediate_exit: i32,
}
