//! The source of a job: the git work tree that it was submitted from, and how the tree differed
//! from its commit.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// The work tree that contains a job's working directory, at submission.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkTree {
    /// The top-level directory.
    pub root: String,
    /// The commit of HEAD, as 40 or 64 hexadecimal digits. `None` if there was no commit, or if
    /// only git can find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `None` if HEAD was detached or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// A copy of a work tree that jobs run in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The name of its directory, below the directory of all copies.
    pub name: String,
    /// The working directory that the job would have without the copy. Output files go there.
    pub output_dir: String,
}

impl Snapshot {
    /// Returns whether the name is a plain directory name that cannot lead anywhere else.
    pub fn is_sound(&self) -> bool {
        !self.name.is_empty()
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    }
}

/// A work tree's state as git reports it. The diff itself is stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub commit: Option<String>,
    pub branch: Option<String>,
    /// The changes, or why they are unknown.
    pub changes: Result<Changes, String>,
}

/// How a work tree differed from its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Files in the commit or in the index that differed from the commit.
    pub changed: usize,
    /// Files that git neither tracks nor ignores.
    pub untracked: usize,
    /// The first untracked files.
    pub untracked_files: Vec<Untracked>,
    /// The reason why there is no diff although something has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Changes {
    pub fn is_clean(&self) -> bool {
        self.changed == 0 && self.untracked == 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untracked {
    /// Relative to the top of the work tree.
    pub path: String,
    /// The size. `None` if the file disappeared before its size was read.
    pub bytes: Option<u64>,
}

/// A [`Source`], and when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub at: Timestamp,
    pub source: Source,
}

/// The stored source of a submission, with the diff if that is stored.
pub type Kept = (Taken, Option<Vec<u8>>);

/// Everything known about the source of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSource {
    /// `None` if the job was not submitted from a work tree, or if recording sources is disabled.
    pub tree: Option<WorkTree>,
    /// `None` if git was not run, for example because the daemon ended first.
    pub taken: Option<Taken>,
}
