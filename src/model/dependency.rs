//! Dependencies on other jobs.

use crate::{JobId, JobRef};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A condition on another job (sbatch man page, `--dependency`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyKind {
    /// The other job started or was cancelled at least `minutes` ago.
    After,
    /// The other job has ended, in any state.
    AfterAny,
    /// The other job has ended with exit code 0.
    AfterOk,
    /// The other job has failed.
    AfterNotOk,
    /// The array task with the same number has ended with exit code 0.
    AfterCorr,
    /// The other job has ended, in any state. There are no burst buffers, whose transfers it would
    /// wait for.
    AfterBurstBuffer,
    /// The other job is running. This job's resources are transferred to it.
    Expand,
}

impl DependencyKind {
    pub const fn name(self) -> &'static str {
        match self {
            DependencyKind::After => "after",
            DependencyKind::AfterAny => "afterany",
            DependencyKind::AfterOk => "afterok",
            DependencyKind::AfterNotOk => "afternotok",
            DependencyKind::AfterCorr => "aftercorr",
            DependencyKind::AfterBurstBuffer => "afterburstbuffer",
            DependencyKind::Expand => "expand",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DependencyTerm {
    On {
        kind: DependencyKind,
        job: JobRef,
        /// The minutes after the other job's start in `after:12+5`. As in Slurm, they have no
        /// effect on the other kinds.
        #[serde(default)]
        delay_minutes: u32,
    },
    /// No earlier job of the same name and user is left.
    Singleton,
}

/// `a,b` (all must hold) or `a?b` (one suffices). Empty means no dependency.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub terms: Vec<DependencyTerm>,
    /// Whether the terms are joined by `?`.
    #[serde(default)]
    pub any: bool,
}

impl Dependency {
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the IDs of the jobs to wait for.
    pub fn targets(&self) -> impl Iterator<Item = JobId> {
        self.terms.iter().filter_map(|term| match term {
            DependencyTerm::On { job, .. } => Some(job.job),
            DependencyTerm::Singleton => None,
        })
    }

    /// Returns the job to be expanded by this one.
    pub fn expands(&self) -> Option<&JobRef> {
        self.terms.iter().find_map(|term| match term {
            DependencyTerm::On { kind: DependencyKind::Expand, job, .. } => Some(job),
            DependencyTerm::On { .. } | DependencyTerm::Singleton => None,
        })
    }
}

impl DependencyTerm {
    /// Returns the job that must complete successfully to satisfy this term, if there is one.
    pub fn must_succeed(&self) -> Option<&JobRef> {
        match self {
            DependencyTerm::On {
                kind: DependencyKind::AfterOk | DependencyKind::AfterCorr,
                job,
                ..
            } => Some(job),
            DependencyTerm::On { .. } | DependencyTerm::Singleton => None,
        }
    }
}

impl fmt::Display for DependencyTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DependencyTerm::On { kind, job, delay_minutes } => {
                write!(f, "{}:{}", kind.name(), job)?;
                if *delay_minutes > 0 { write!(f, "+{delay_minutes}") } else { Ok(()) }
            }
            DependencyTerm::Singleton => f.write_str("singleton"),
        }
    }
}

/// Prints the form that `parse::dependency` parses back to the same value.
impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            if i > 0 {
                f.write_str(if self.any { "?" } else { "," })?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}
