//! The directory of a job whose start is not durable yet. It gets its name when the job is launched:
//! until then, no daemon takes it for the directory of a job, nor the socket in it for a running step.

use crate::job_files;
use crate::launch_spec::LaunchSpec;
use slotd_sys::beneath::Dir;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The prefix of the names of prepared directories.
const PREFIX: &str = "prepared.";

/// Returns whether this is the name of a prepared directory: `prepared.17`, with the PID of its
/// watcher.
pub(super) fn is_name(name: &str) -> bool {
    let is_pid = |pid: &str| pid.parse::<u32>().is_ok_and(|number| number.to_string() == pid);
    name.strip_prefix(PREFIX).is_some_and(is_pid)
}

/// A directory with the script of a batch job. It is deleted when it is dropped.
#[derive(Debug)]
pub(super) struct PreparedDir {
    /// `None` once it is the directory of the job.
    path: Option<PathBuf>,
}

impl PreparedDir {
    /// Creates the directory. Returns `None` if the job has no script or if this fails: the launch
    /// then creates the job's directory, and reports the reason if it cannot.
    pub(super) fn make(spec: &LaunchSpec) -> Option<PreparedDir> {
        let script = spec.script.as_ref()?;
        let path = spec.job_dir.with_file_name(format!("{PREFIX}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).ok()?;
        let file = path.join(job_files::SCRIPT);
        let prepared = PreparedDir { path: Some(path) };
        job_files::write_program(&file, script).ok()?;
        Some(prepared)
    }

    /// Returns its path, or `None` if it is the directory of the job.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Makes it the directory of the job. Returns it unchanged if the job already has one.
    pub(super) fn become_job_dir(mut self, job_dir: &Path) -> Result<(), PreparedDir> {
        match self.path.take_if(|path| fs::rename(path, job_dir).is_ok()) {
            Some(_) => Ok(()),
            None => Err(self),
        }
    }
}

impl Drop for PreparedDir {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        if let (Some(jobs_dir), Some(name)) = (path.parent(), path.file_name())
            && let Ok(dir) = Dir::open(jobs_dir)
        {
            // A leftover directory does no harm.
            let _ = dir.remove_tree(Path::new(name));
        }
    }
}

/// Deletes directories left by killed watchers. No launch may be in progress.
pub(super) fn forget(jobs_dir: &Path, names: &[OsString]) {
    if names.is_empty() {
        return;
    }
    let Ok(dir) = Dir::open(jobs_dir) else { return };
    for name in names {
        // A leftover directory does no harm.
        let _ = dir.remove_tree(Path::new(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn spec(jobs_dir: &Path) -> LaunchSpec {
        let script = Some(b"#!/bin/sh\n".to_vec());
        LaunchSpec { job_dir: jobs_dir.join("7"), script, ..LaunchSpec::default() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        fs::read_dir(dir).unwrap().map(|entry| name(entry).into_string().unwrap()).collect()
    }

    // The names contain the PID of this process, so this is one test.
    #[test]
    fn a_prepared_directory_becomes_the_jobs_or_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let (jobs, spec) = (dir.path(), spec(dir.path()));
        drop(PreparedDir::make(&spec).unwrap());
        assert_eq!(names(jobs), [""; 0]);
        PreparedDir::make(&spec).unwrap().become_job_dir(&spec.job_dir).unwrap();
        assert_eq!(names(jobs), ["7"]);
        assert_eq!(fs::read(jobs.join("7/script.sh")).unwrap(), b"#!/bin/sh\n");

        // The job has a directory, or something else has its name.
        fs::write(jobs.join("7/exit_status"), "").unwrap();
        PreparedDir::make(&spec).unwrap().become_job_dir(&spec.job_dir).unwrap_err();
        assert_eq!(names(&jobs.join("7")).len(), 2);
        fs::remove_dir_all(jobs.join("7")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), jobs.join("7")).unwrap();
        PreparedDir::make(&spec).unwrap().become_job_dir(&spec.job_dir).unwrap_err();
        fs::remove_file(jobs.join("7")).unwrap();
        fs::write(jobs.join("7"), "a file").unwrap();
        PreparedDir::make(&spec).unwrap().become_job_dir(&spec.job_dir).unwrap_err();
        assert_eq!(names(jobs), ["7"]);

        // The name of the prepared directory is taken, for example by a link.
        let prepared = jobs.join(format!("prepared.{}", std::process::id()));
        symlink(elsewhere.path(), &prepared).unwrap();
        assert!(PreparedDir::make(&spec).is_none());
        fs::write(elsewhere.path().join("script.sh"), "the user's").unwrap();
        forget(jobs, &[prepared.file_name().unwrap().to_owned()]);
        assert_eq!(fs::read(elsewhere.path().join("script.sh")).unwrap(), b"the user's");
        fs::remove_file(&prepared).unwrap();

        // A link has taken its place meanwhile.
        let dir = PreparedDir::make(&spec).unwrap();
        fs::rename(&prepared, jobs.join("moved")).unwrap();
        symlink(elsewhere.path(), &prepared).unwrap();
        drop(dir);
        assert_eq!(fs::read(elsewhere.path().join("script.sh")).unwrap(), b"the user's");
        let none = LaunchSpec { script: None, ..spec };
        assert!(PreparedDir::make(&none).is_none());
    }
}
