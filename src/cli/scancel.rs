//! `scancel`: cancel or signal jobs and steps.

use crate::model::{JobRef, JobState};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scancel {
    /// What was named. Empty: every job that passes the filters, of which there is at least one.
    pub refs: Vec<JobRef>,
    /// User names or numbers; `--me` is the caller's own name here.
    pub users: Vec<String>,
    pub names: Vec<String>,
    pub partitions: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub reservations: Vec<String>,
    pub wckeys: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    /// Empty: any.
    pub states: Vec<JobState>,
    /// `-s`. `None`: cancel.
    pub signal: Option<i32>,
    /// `-b`: only the batch shell.
    pub batch: bool,
    /// `-f`: the batch shell and all steps.
    pub full: bool,
    /// `-i`: ask before each.
    pub interactive: bool,
    pub quiet: bool,
    pub verbose: u8,
}
