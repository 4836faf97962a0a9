//! `sinfo`: partitions and the node.

use crate::cli::squeue::Machine;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SinfoFormat {
    #[default]
    Default,
    /// `-l`.
    Long,
    /// `-s`.
    Summary,
    /// `-R`.
    Reasons,
    /// `-o`, as written.
    Percent(String),
    /// `-O`, as written.
    Fields(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sinfo {
    pub partitions: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    /// Node states, lower case (`idle`, `mixed`, `allocated`, …). Empty: any.
    pub states: Vec<String>,
    /// `-N`: rows are nodes.
    pub by_node: bool,
    pub exact: bool,
    /// `-d`: only nodes that do not respond, of which there are none.
    pub dead: bool,
    pub format: SinfoFormat,
    pub sort: Option<String>,
    pub no_header: bool,
    pub no_convert: bool,
    pub iterate_secs: Option<u64>,
    pub machine: Option<Machine>,
    pub help_format: bool,
    pub verbose: u8,
}
