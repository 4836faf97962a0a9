//! How a process, a step or a job ended.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Exit status and signal, printed `status:signal` as sacct does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExitCode {
    pub status: i32,
    pub signal: i32,
}

impl ExitCode {
    pub const OK: ExitCode = ExitCode { status: 0, signal: 0 };

    /// The code of a job whose files could not be opened (Slurm: `0:53`).
    pub const LAUNCH_FAILED: ExitCode = ExitCode { status: 0, signal: 53 };

    /// The code of a job or step that ran out of memory (Slurm: `0:125`).
    pub const OUT_OF_MEMORY: ExitCode = ExitCode { status: 0, signal: 125 };

    pub fn status(status: i32) -> Self {
        ExitCode { status, signal: 0 }
    }

    pub fn signal(signal: i32) -> Self {
        ExitCode { status: 0, signal }
    }

    pub fn is_success(self) -> bool {
        self == Self::OK
    }

    /// What a shell would show for it: the status, or 128 and the signal.
    pub fn as_shell(self) -> i32 {
        if self.signal != 0 { 128 + self.signal } else { self.status }
    }

    /// The worse of two, by the shell's number: what a step with several tasks returns.
    pub fn worse(self, other: ExitCode) -> ExitCode {
        if other.as_shell() > self.as_shell() { other } else { self }
    }
}

impl fmt::Display for ExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.status, self.signal)
    }
}
