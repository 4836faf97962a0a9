//! `sacct`: accounting.

use crate::cli::squeue::Machine;
use crate::model::{JobRef, Timestamp};

/// `-p` and `-P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parsable {
    /// Aligned columns.
    #[default]
    No,
    /// `-p`: the delimiter after every field.
    Trailing,
    /// `-P`: the delimiter between fields.
    Between,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SacctFormat {
    #[default]
    Default,
    /// `-b`.
    Brief,
    /// `-l`.
    Long,
    /// `-o`, as written; several are joined by commas.
    Fields(String),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sacct {
    /// `-j`, all of them. `None`: every job in the window.
    pub jobs: Option<Vec<JobRef>>,
    // `states: Option<spec::states::StateFilter>` joins when spec is merged.
    /// User names or numbers. Empty: all users.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub names: Vec<String>,
    pub partitions: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub wckeys: Vec<String>,
    pub nodes: Vec<String>,
    /// The window, by sacct's defaults: from midnight, or from the beginning of time where jobs are named.
    pub start: Timestamp,
    pub end: Timestamp,
    /// `-k`, `-K`: time limits, seconds.
    pub time_limit_min: Option<u64>,
    pub time_limit_max: Option<u64>,
    /// `-I`, `-i`: CPUs and nodes, from and to.
    pub cpus: Option<(u32, u32)>,
    pub node_count: Option<(u32, u32)>,
    /// `-X`: no steps.
    pub allocations: bool,
    /// `-D`.
    pub duplicates: bool,
    /// `-T`: start and end cut to the window.
    pub truncate: bool,
    /// `--array`: one row for each array task.
    pub array: bool,
    /// `-B`: the batch scripts instead of a table.
    pub batch_script: bool,
    /// `--env-vars`: the environments instead of a table.
    pub env_vars: bool,
    pub format: SacctFormat,
    pub parsable: Parsable,
    pub delimiter: Option<String>,
    pub no_header: bool,
    /// `--units`: K, M, G, T or P.
    pub units: Option<char>,
    pub no_convert: bool,
    pub machine: Option<Machine>,
    /// `-e`: list the fields and do nothing else.
    pub help_format: bool,
    pub verbose: u8,
}
