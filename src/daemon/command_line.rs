//! Plain `sbatch` command lines, which the daemon parses for the shortcut of `sbatch`.

use slotd_model::JobId;
use slotd_model::job::ClientProcess;
use slotd_protocol::request::Submit;
use std::ffi::OsString;
use std::path::PathBuf;

/// A command line and its process.
#[derive(Debug)]
pub struct CommandLine {
    /// Including the name of the program.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub dir: PathBuf,
    /// The script, once the client was asked for it.
    pub script: Option<Vec<u8>>,
    pub umask: u32,
    /// Standard error is a terminal.
    pub is_on_terminal: bool,
    pub client: ClientProcess,
}

/// Returns what `sbatch` prints for a submitted job.
pub type Printed = fn(JobId) -> String;

/// A parsed command line.
#[derive(Debug)]
pub enum Parsed {
    /// A job that may be submitted without further checks or output of `sbatch`.
    Job {
        submit: Box<Submit>,
        /// The script and the environment.
        raw: Vec<u8>,
        printed: Printed,
    },
    /// The script with this path is needed.
    ScriptWanted(PathBuf),
    /// Only `sbatch` itself can handle it, for example because it is invalid.
    NotPlain,
}

/// Parses a command line. It opens no file that the command line names.
pub type ParseSbatch = fn(CommandLine) -> Parsed;
