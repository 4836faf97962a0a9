//! Files that an earlier boot of the machine left in the directories of the jobs that ran at the
//! time.
//!
//! The sockets will never have a listener again, so they are deleted. The exit records are valid if
//! they are complete.

use crate::job_dirs::{self, MANAGERS_SOCKET};
use crate::job_files::{JOB, RUNNER, SCRIPT, read_record};
use slotd_model::{ExitRecord, StepId, Timestamp};
use slotd_sys::beneath::Dir;
use slotd_sys::fresh;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Returns the exit record of a step of an earlier boot, if one was written and survived on disk.
pub fn record(job_dir: &Path, step: StepId, run: u32) -> Option<ExitRecord> {
    read_record(job_dir, step, run).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    })
}

/// Returns the time of the last write below one of these paths, to a file or to the entries of a
/// directory. Ignores writes at `before` or later.
pub fn last_written<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    before: Timestamp,
) -> Option<Timestamp> {
    let written = |meta: io::Result<Metadata>| {
        let since = meta.ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok().map(Timestamp)
    };
    let mut found = Vec::new();
    for path in paths {
        let Ok(meta) = fs::metadata(path) else { continue };
        // The times of a device or pipe say nothing about this job.
        if meta.is_file() || meta.is_dir() {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| written(entry.metadata())));
            found.push(written(Ok(meta)));
        }
    }
    found.into_iter().flatten().filter(|at| *at < before).max()
}

/// Deletes the sockets of steps that ran under an earlier boot, and unfinished records.
pub fn clean(job_dir: &Path) {
    // Delete nothing through a link that has replaced the directory.
    let Ok(dir) = Dir::open(job_dir) else { return };
    for name in
        dir.names().unwrap_or_default().into_iter().filter_map(|name| name.into_string().ok())
    {
        if is_socket(&name) || is_unfinished(&name) {
            // A leftover file does no harm.
            let _ = dir.remove_file(Path::new(&name));
        }
    }
}

fn is_socket(name: &str) -> bool {
    name == MANAGERS_SOCKET || job_dirs::socket_of(name).is_some()
}

fn is_unfinished(name: &str) -> bool {
    fresh::place_of(name).is_some_and(|place| {
        job_dirs::record_of(place).is_some() || [JOB, RUNNER, SCRIPT].contains(&place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn touch(path: &Path, secs: u64) {
        let file = fs::File::options().create(true).append(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)).unwrap();
    }

    #[test]
    fn last_written_finds_the_last_write_before_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("7");
        fs::create_dir(&job).unwrap();
        touch(&job.join("script.sh"), 100);
        touch(&job.join("runner.sh"), 300);
        let output = dir.path().join("out");
        touch(&output, 200);
        // The directory itself is created now, after the boot.
        let last = |before: i64| {
            last_written(
                [job.as_path(), output.as_path(), Path::new("/dev/null")],
                Timestamp::from_secs(before),
            )
        };
        assert_eq!(last(1000), Some(Timestamp::from_secs(300)));
        assert_eq!(last(300), Some(Timestamp::from_secs(200)));
        assert_eq!(last(100), None);
    }

    #[test]
    fn only_sockets_and_unfinished_records_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let stay = ["1.exit", "data.2024", "exit_status", "mine.sock", "script.sh"];
        let go = [
            "batch.0.sock",
            "0.0.sock",
            "sjobmgr.sock",
            "1.exit.4711",
            "exit_status.7",
            "script.sh.12",
        ];
        for name in stay.into_iter().chain(go) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        clean(&link);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            stay.len() + go.len() + 1,
            "nothing is deleted behind a link"
        );
        fs::remove_file(link).unwrap();
        clean(dir.path());
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, stay);
        assert_eq!(record(dir.path(), StepId::Batch, 0), None, "an empty record is ignored");
    }
}
