//! `sbatch`: submit a script, or a command as one.

use crate::model::JobRequest;
use crate::model::change::LaunchTexts;

/// A submission, ready for the daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Sbatch {
    pub request: JobRequest,
    /// The script and the environment of the job before the daemon adds `SLURM_*`.
    pub texts: LaunchTexts,
    /// Print the bare id (`12`, or `12;cluster` with `-M`).
    pub parsable: bool,
    /// `-W`: wait for the end of the job and exit with its code.
    pub wait: bool,
    /// `-Q`: print nothing on success, not even with `--parsable`.
    pub quiet: bool,
    pub verbose: u8,
    /// `--test-only`: tell when the job would start and submit nothing.
    pub test_only: bool,
    /// `-M`, as written.
    pub cluster: Option<String>,
    /// The options given, sorted by name, for `-v`: (`ntasks`, `2`); a flag has `set`.
    pub defined: Vec<(String, String)>,
    /// The exit code of a submission that fails: 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
}
