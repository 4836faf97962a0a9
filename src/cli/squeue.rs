//! `squeue`: the queue.

use crate::model::JobRef;

/// How the rows are asked for. The text of a format is read by `render`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// The default view.
    #[default]
    Default,
    /// `-l`.
    Long,
    /// `-o`: `%` codes and literal text, or the book's list of field names.
    Percent(String),
    /// `-O`: `field[:width]` names.
    Fields(String),
}

/// Machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Json,
    Yaml,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Squeue {
    /// `-j`. `None`: all jobs.
    pub jobs: Option<Vec<JobRef>>,
    /// `-s`: rows are steps; the list is empty for all of them.
    pub steps: Option<Vec<JobRef>>,
    // `states: Option<spec::states::StateFilter>` joins when spec is merged. `None`: pending and active jobs.
    /// User names or numbers, as written; `--me` is the caller's own name here.
    pub users: Vec<String>,
    pub partitions: Vec<String>,
    pub names: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub licenses: Vec<String>,
    pub reservations: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    pub format: Format,
    /// `-S`, as written.
    pub sort: Option<String>,
    pub no_header: bool,
    /// `-r`: one row for each array task.
    pub array: bool,
    /// `--start`: the start times of pending jobs.
    pub start: bool,
    /// `-i`: print again after so many seconds, until interrupted.
    pub iterate_secs: Option<u64>,
    pub machine: Option<Machine>,
    /// `--helpformat`: list the fields and do nothing else.
    pub help_format: bool,
    pub verbose: u8,
}
