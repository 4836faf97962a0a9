//! The files of a submission: the script, and a copy of the work tree.

use super::super::super::launch::{SLOW_COPY, noted_if_slow};
use super::super::super::output::print_stderr;
use super::super::super::paths;
use super::super::remote::seconds;
use super::Submitting;
use crate::args::error::CliError;
use crate::clusters::config::WorkDir;
use crate::clusters::journal::Journal;
use crate::clusters::stage::{self, Stage};
use slotd_sys::work_tree;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The files of a submission, and where its job starts.
pub struct Staged {
    pub stage: Stage,
    pub start: Begin,
}

/// The directory in which the job starts.
pub enum Begin {
    /// Below the copied work tree.
    Copy(String),
    /// A path on the cluster.
    Path(String),
}

impl Submitting<'_> {
    /// Collects the files of the submission.
    ///
    /// # Errors
    /// Fails if the working directory has no counterpart on the cluster, or if the work tree cannot be
    /// listed.
    pub(super) fn stage(&self, journal: &Journal, token: &str) -> Result<Staged, CliError> {
        let cwd = self.origin.cwd.to_path_buf();
        let name = &self.cluster.name;
        let script = (self.job.name.clone(), self.job.text.clone());
        let at = u64::try_from(seconds()).unwrap_or(0);
        let copies = self.left.has("snapshot") || self.cluster.workdir == WorkDir::Snapshot;
        if !copies {
            let here = cwd.to_str().ok_or_else(|| {
                CliError::error(
                    1,
                    format!(
                        "the path of the working directory is not valid UTF-8: {}",
                        cwd.display()
                    ),
                )
            })?;
            let there = self.cluster.workdir.there(here).ok_or_else(|| {
                CliError::error(1, format!("{here} has no counterpart on cluster {name}")).hint(
                    format!(
                        "add a pair to `workdir` of {name} in {}",
                        self.elsewhere.clusters.file.display()
                    ),
                )
            })?;
            let stage = Stage { script, at, tree: None, below: PathBuf::new() };
            return Ok(Staged { stage, start: Begin::Path(there) });
        }
        let Some(tree) = work_tree::probe(&cwd) else {
            if self.left.has("snapshot") {
                let text = format!(
                    "--snapshot copies a git work tree, but {} is not in one",
                    cwd.display()
                );
                return Err(CliError::error(1, text));
            }
            if !self.left.has("quiet") && !self.left.has("chdir") {
                print_stderr(&format!(
                    "sbatch: {} is not in a git work tree, so the job starts in an empty directory on {name}\n",
                    cwd.display()
                ));
            }
            let stage = Stage { script, at, tree: None, below: PathBuf::new() };
            return Ok(Staged { stage, start: Begin::Copy(String::new()) });
        };
        let top = Path::new(&tree.root);
        let own = fs::canonicalize(&cwd).unwrap_or(cwd);
        let below = own.strip_prefix(top).unwrap_or(Path::new("")).to_owned();
        let text = below.to_str().ok_or_else(|| {
            CliError::error(1, "the path of the working directory is not valid UTF-8")
        })?;
        let start = Begin::Copy(text.to_owned());
        let place = journal.dir().join(format!("{token}.git"));
        DirBuilder::new().mode(0o700).create(&place)?;
        let without = paths()?.root().to_owned();
        let root = tree.root.clone();
        let note = move || {
            print_stderr(&format!(
                "sbatch: listing the work tree {root} is taking a while; press Ctrl-C to stop without submitting the job\n"
            ));
        };
        let listed = noted_if_slow(SLOW_COPY, note, || stage::list(top, &place, &without));
        let _ = fs::remove_dir_all(&place);
        let listed = listed.map_err(|why| {
            CliError::error(1, format!("cannot copy the work tree {}: {why}", tree.root))
        })?;
        Ok(Staged { stage: Stage { script, at, tree: Some(listed), below }, start })
    }
}
