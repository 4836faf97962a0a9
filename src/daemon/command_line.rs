//! Plain command lines, which the daemon parses for the shortcut of their programs.

use slotd_model::JobId;
use slotd_model::environ::Environ;
use slotd_model::job::ClientProcess;
use slotd_model::query::JobQuery;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Program, Submit};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A command line and its process.
#[derive(Debug)]
pub struct CommandLine {
    pub program: Program,
    /// Including the name of the program.
    pub args: Vec<OsString>,
    pub env: Environ,
    /// The working directory. Only that of a submission is known.
    pub dir: PathBuf,
    pub script: Option<SentScript>,
    pub umask: u32,
    /// Standard error is a terminal.
    pub is_on_terminal: bool,
    /// The process of a submission.
    pub client: Option<ClientProcess>,
}

/// A file that the client has read.
#[derive(Debug)]
pub struct SentScript {
    /// The word that names it, or `None` if it is the file that the client was asked for.
    pub word: Option<OsString>,
    pub text: Vec<u8>,
}

/// Returns what `sbatch` prints for a submitted job.
pub type Printed = fn(JobId) -> String;

/// The part of the daemon that answers a query.
#[derive(Debug)]
pub enum QueryOf {
    Jobs(JobQuery),
    Accounting(JobQuery),
    Node,
}

/// A query, and what its program prints for the answer.
pub struct PlainQuery {
    pub of: QueryOf,
    /// Returns `None` if the program would fail, or print anything to standard error.
    pub print: Box<dyn FnOnce(Answer) -> Option<String>>,
}

impl fmt::Debug for PlainQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainQuery").field("of", &self.of).finish_non_exhaustive()
    }
}

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
    Query(Box<PlainQuery>),
    /// The script with this path is needed.
    ScriptWanted(PathBuf),
    /// Only the program itself can handle it, for example because it is invalid.
    NotPlain,
}

/// Parses a command line. It opens no file that the command line names.
pub type ParsePlain = Box<dyn Fn(CommandLine) -> Parsed>;
