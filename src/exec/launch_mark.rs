//! Which job is being launched at this moment: what a daemon that dies tells the next one.
//!
//! A job that takes the daemon down with its launch (out of memory, say) would do so again at every start. The number of
//! the job stands in `<root>/run/launching` while its launch is made, and nothing while none is: a few bytes written in
//! place, which outlive the process and cost a launch two microseconds. They need no sync: after a power cut nothing is
//! known of a launch, and nothing is counted against the job.

use crate::model::JobId;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file with the number; `None` where it cannot be made: then a death is not counted against any job.
#[derive(Debug)]
pub struct LaunchMark(Option<File>);

/// While it lives, a launch is under way.
#[derive(Debug)]
#[must_use]
pub struct Underway<'a>(&'a LaunchMark);

fn open(root: &Path) -> io::Result<File> {
    let dir = root.join("run");
    fs::create_dir_all(&dir)?;
    File::options().read(true).write(true).create(true).truncate(false).open(dir.join("launching"))
}

impl LaunchMark {
    /// The mark of this root, and the job that was being launched when an earlier daemon died.
    pub fn open(root: &Path) -> (LaunchMark, Option<JobId>) {
        let file = match open(root) {
            Ok(file) => file,
            Err(e) => {
                log::warn!("{}: launches cannot be marked: {e}", root.join("run/launching").display());
                return (LaunchMark(None), None);
            }
        };
        let mut number = [0; 4];
        let read = file.read_at(&mut number, 0).unwrap_or(0);
        let mark = LaunchMark(Some(file));
        // Now rather than at the first launch, so that a disk that is full by then has room for it.
        mark.write(JobId(0));
        let job = JobId(u32::from_le_bytes(number));
        (mark, (read == number.len() && job.0 > 0).then_some(job))
    }

    /// The launch of this job begins. One at a time.
    pub fn begin(&self, job: JobId) -> Underway<'_> {
        self.write(job);
        Underway(self)
    }

    fn write(&self, job: JobId) {
        // Without it a death of the daemon is not counted against the job: no reason not to launch it.
        if let Some(Err(e)) = self.0.as_ref().map(|file| file.write_all_at(&job.0.to_le_bytes(), 0)) {
            log::debug!("the mark of a launch could not be written: {e}");
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.write(JobId(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_was_not_ended_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, before) = LaunchMark::open(dir.path());
        assert_eq!(before, None);
        drop(mark.begin(JobId(6)));
        assert_eq!(LaunchMark::open(dir.path()).1, None);
        // As a process leaves it that is killed.
        mark.write(JobId(7));
        assert_eq!(LaunchMark::open(dir.path()).1, Some(JobId(7)));
        assert_eq!(LaunchMark::open(dir.path()).1, None);
    }
}
