//! What srun asks of an allocation, and where the streams of its tasks go.

use crate::args::error::CliError;
use crate::model::request::OpenMode;
use crate::model::{JobId, StepRequest};

/// Whether an allocation of the one node can be what was asked for (srun looks before it asks the controller).
///
/// # Errors
/// More nodes than one, the node left out, or another one: in srun's words.
pub fn check_node(step: &StepRequest, job: JobId, node: &str) -> Result<(), CliError> {
    let is_node = |name: &String| name == node || name == "localhost";
    let asked = step.nodes.map_or(1, |nodes| nodes.min.max(1));
    if let Some(first) = step.relative.filter(|first| first.saturating_add(asked) > 1) {
        let of = if step.nodes.is_some() { "--nodes" } else { "SLURM_JOB_NUM_NODES" };
        let why = format!("incompatible with count of allocated nodes ({first}+{asked}>1)");
        return Err(CliError::error(1, format!("--relative and {of} option {why}")));
    }
    if asked > 1 {
        return Err(CliError::error(1, format!("Only allocated 1 nodes asked for {asked}")));
    }
    if step.exclude.names().iter().any(is_node) {
        return Err(CliError::error(1, "Hostlist is empty!  Can't run job."));
    }
    if !step.nodelist.names().iter().all(is_node) {
        let why = "Requested node configuration is not available";
        return Err(CliError::error(1, format!("Unable to create step for job {job}: {why}")));
    }
    Ok(())
}

/// Where one of the three streams goes (`srun -i/-o/-e`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stream {
    /// To (or from) the terminal of srun, for all tasks. The default.
    #[default]
    All,
    /// `none`: nowhere.
    None,
    /// To or from srun, for this task only.
    Task(u32),
    /// A file, with the patterns of `spec::filename`.
    File(String),
}

impl Stream {
    /// `all`, `none`, the number of a task, or a file's pattern. An empty text says nothing.
    pub fn read(text: &str) -> Stream {
        match text {
            "" => Stream::All,
            _ if text.eq_ignore_ascii_case("all") => Stream::All,
            _ if text.eq_ignore_ascii_case("none") => Stream::None,
            _ => text.parse().map_or_else(|_| Stream::File(text.to_owned()), Stream::Task),
        }
    }

    /// The file's pattern, if it is a file. `/dev/null` for nowhere: what a job that the daemon runs has in its place.
    pub fn path(&self) -> Option<String> {
        match self {
            Stream::All | Stream::Task(_) => None,
            Stream::None => Some("/dev/null".to_owned()),
            Stream::File(path) => Some(path.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Streams {
    pub input: Stream,
    pub output: Stream,
    /// `None`: with the output.
    pub error: Option<Stream>,
    pub open_mode: Option<OpenMode>,
    /// `-l`: `0: ` before each line.
    pub label: bool,
    /// `-u`.
    pub unbuffered: bool,
    /// `--pty`: task 0 in a pseudo terminal.
    pub pty: bool,
}
