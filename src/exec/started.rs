//! Remembers which runs of jobs have started, outside of their directories, and which job IDs were
//! assigned, outside of the database.
//!
//! A job that has a start in the database but nothing in its directory was never launched, and is
//! launched by the next daemon, unless somebody has deleted the directory. So `<root>/lib/started`
//! holds, for each job, the start of the last run whose script has started: eight bytes at eight
//! times its number, written in place. They survive the process. They are not synced, since no
//! process of a job survives a power failure. They identify a run even if a new database begins to
//! count from 1 again. The file is as long as the highest assigned ID requires, so that IDs are not
//! assigned again if the database is lost or replaced by an older copy.

use crate::job_dirs::MAX_JOB_ID;
use nix::fcntl::{FallocateFlags, fallocate};
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

    /// Records that this ID was assigned. On file systems without fallocate(2), only IDs of started
    /// jobs are known.
    pub fn note_assigned(&self, job: JobId) {
        let Some(file) = &self.file else { return };
        // Unlike a write or a truncation, this never changes what another thread has written.
        if file.metadata().is_ok_and(|there| there.len() < at(job) + LENGTH)
            && let Err(why) =
                fallocate(file, FallocateFlags::empty(), at(job) as i64, LENGTH as i64)
        {
            log::debug!("job {job}: could not record that its ID was assigned: {why}");
        }
    }

    /// Returns the highest ID that is known to have been assigned.
    pub fn last_assigned(&self) -> Option<JobId> {
        let length = self.file.as_ref()?.metadata().ok()?.len();
        let last = u32::try_from((length / LENGTH).checked_sub(1)?).ok()?;
        // Otherwise somebody else has written to the file.
        (1..MAX_JOB_ID).contains(&last).then_some(JobId(last))
    }

    /// Returns whether the script of a job is known to have started in the run with this start.
    pub fn knows(&self, job: JobId, start: Timestamp) -> bool {
        let mut bytes = [0; 8];
        let read = |file: &File| file.read_exact_at(&mut bytes, at(job)).is_ok();
        self.file.as_ref().is_some_and(read) && start.0 != 0 && i64::from_le_bytes(bytes) == start.0
    }
}

/// The length of an entry.
const LENGTH: u64 = 8;

fn at(job: JobId) -> u64 {
    u64::from(job.0) * LENGTH
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
    fn the_highest_assigned_id_is_known_and_starts_are_kept() {
        let lib = tempfile::tempdir().unwrap();
        let started = StartedRuns::open(lib.path());
        assert_eq!(started.last_assigned(), None);
        started.note(JobId(3), Timestamp(5));
        assert_eq!(started.last_assigned(), Some(JobId(3)));
        for assigned in [2, 3, 7, 4] {
            started.note_assigned(JobId(assigned));
        }
        let next = StartedRuns::open(lib.path());
        assert_eq!(next.last_assigned(), Some(JobId(7)));
        assert!(next.knows(JobId(3), Timestamp(5)));
        // Not written by slotd: part of an entry, and more entries than there are jobs.
        let file = File::options().write(true).open(lib.path().join(FILE)).unwrap();
        file.set_len(at(JobId(8)) + 1).unwrap();
        assert_eq!(next.last_assigned(), Some(JobId(7)));
        file.set_len(at(JobId(MAX_JOB_ID + 1))).unwrap();
        assert_eq!(next.last_assigned(), None);
        file.set_len(0).unwrap();
        assert_eq!(next.last_assigned(), None);
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
            started.note_assigned(JobId(1));
            assert!(!started.knows(JobId(1), Timestamp(5)));
            assert_eq!(started.last_assigned(), None);
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
