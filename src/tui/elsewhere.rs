//! The list of jobs of other clusters. It is short and cannot be selected: its jobs belong to
//! another scheduler, which `-M` reaches.

use slotd_model::Timestamp;

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Job {
        /// `17@hpc`.
        job: String,
        /// The state as the cluster reports it. Empty until it has answered.
        state: String,
        has_ended: bool,
        submitted: Timestamp,
        /// The command line of sbatch.
        command: String,
    },
    /// The reason why the jobs of a cluster are not known.
    Problem(String),
}
