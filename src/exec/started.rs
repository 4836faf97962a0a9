//! Remembers which runs of jobs have started, outside of their directories.
//!
//! A job that has a start in the database but nothing in its directory was never launched, and is
//! launched by the next daemon, unless somebody has deleted the directory. So `<root>/lib/started`
//! holds, for each job, the start of the last run whose script has started: eight bytes at eight
//! times its number, written in place. They survive the process. They are not synced, since no
//! process of a job survives a power failure. They identify a run even if a new database begins to
//! count from 1 again.

use slotd_model::{JobId, Timestamp};
use slotd_sys::files;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The name of the file below `lib`.
pub const FILE: &str = "started";

#[derive(Debug)]
pub struct StartedRuns {
    /// `None` if it cannot be opened. Then only the directory of a job shows whether it has started.
    file: Option<File>,
}

impl StartedRuns {
    /// Opens the file of this root, or creates it.
    pub fn open(lib: &Path) -> StartedRuns {
        let path = lib.join(FILE);
        let mut options = File::options();
        let opened = files::own(options.read(true).write(true).create(true).truncate(false), &path);
        let noted = |why: io::Error| {
            log::warn!("{}: cannot record which jobs have started: {why}", path.display());
        };
        StartedRuns { file: opened.map_err(noted).ok() }
    }

    /// Records that the script of a job has started, in the run with this start.
    pub fn note(&self, job: JobId, start: Timestamp) {
        let written =
            self.file.as_ref().map(|file| file.write_all_at(&start.0.to_le_bytes(), at(job)));
        if let Some(Err(why)) = written {
            log::debug!("job {job}: could not record that it has started: {why}");
        }
    }

    /// Returns whether the script of a job is known to have started in the run with this start.
    pub fn knows(&self, job: JobId, start: Timestamp) -> bool {
        let mut bytes = [0; 8];
        let read = |file: &File| file.read_exact_at(&mut bytes, at(job)).is_ok();
        self.file.as_ref().is_some_and(read) && start.0 != 0 && i64::from_le_bytes(bytes) == start.0
    }
}

fn at(job: JobId) -> u64 {
    u64::from(job.0) * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_run_is_known_by_its_job_and_its_start() {
        let lib = tempfile::tempdir().unwrap();
        let (job, start) = (JobId(7), Timestamp(1_795_176_000_000_001));
        let started = StartedRuns::open(lib.path());
        assert!(!started.knows(job, start));
        started.note(JobId(70_000), start);
        assert!(!started.knows(job, start) && !started.knows(job, Timestamp(0)), "a hole");
        started.note(job, start);
        let next = StartedRuns::open(lib.path());
        assert!(next.knows(job, start) && next.knows(JobId(70_000), start));
        assert!(!next.knows(job, Timestamp(start.0 + 1)) && !next.knows(JobId(8), start));
    }

    #[test]
    fn links_fifos_and_directories_are_not_used() {
        let lib = tempfile::tempdir().unwrap();
        let (path, user) = (lib.path().join(FILE), lib.path().join("user"));
        fs::write(&user, "mine").unwrap();
        symlink(&user, &path).unwrap();
        let nothing = |lib: &Path| {
            let started = StartedRuns::open(lib);
            started.note(JobId(1), Timestamp(5));
            assert!(!started.knows(JobId(1), Timestamp(5)));
        };
        nothing(lib.path());
        assert_eq!(fs::read(&user).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        nothing(lib.path());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        nothing(lib.path());
    }
}
