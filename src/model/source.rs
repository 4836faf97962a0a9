//! Where what a job works on comes from: the git work tree that it was submitted from, and what
//! differed there from its commit.

use crate::model::Timestamp;
use serde::{Deserialize, Serialize};

/// The work tree around the working directory of a job, at the moment of its submission.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkTree {
    /// Its top directory.
    pub root: String,
    /// What HEAD was, as 40 or 64 hexadecimal digits. `None`: there was no commit, or it stands
    /// where only git finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `None`: HEAD was a commit by itself, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// A copy of a work tree that jobs run in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Of its directory, below that of all copies.
    pub name: String,
    /// The working directory that the job would have without it: output files go there.
    pub output_dir: String,
}

impl Snapshot {
    /// The name is that of a directory, and leads nowhere else.
    pub fn is_sound(&self) -> bool {
        !self.name.is_empty()
            && self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    }
}

/// What git told of a work tree. The text of the differences is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub commit: Option<String>,
    pub branch: Option<String>,
    /// Or why they are not known.
    pub changes: Result<Changes, String>,
}

/// How a work tree differed from its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Files that the commit has, or that were added to the index, and that were not as the commit
    /// has them.
    pub changed: usize,
    /// Files that git does not know and does not ignore.
    pub untracked: usize,
    /// The first of them.
    pub untracked_files: Vec<Untracked>,
    /// Why there is no text of the differences though something has changed.
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
    /// From the top of the work tree.
    pub path: String,
    /// `None`: it was gone when its size was asked for.
    pub bytes: Option<u64>,
}

/// A [`Source`], and when it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub at: Timestamp,
    pub source: Source,
}

/// What is kept of a submission, and how its work tree differed from its commit, where that is
/// kept.
pub type Kept = (Taken, Option<Vec<u8>>);

/// What is known of where a job comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSource {
    /// `None`: it was submitted from no work tree, or the daemon was told not to look.
    pub tree: Option<WorkTree>,
    /// `None`: git was not asked, since the daemon ended before, say.
    pub taken: Option<Taken>,
}
