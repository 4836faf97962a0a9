//! What an earlier boot of the machine has left in the directories of the jobs that ran then.
//!
//! Its sockets have no listener and never will: they are removed. Its exit records count, if they
//! are whole.

use crate::exec::job_dirs::{self, MANAGERS_SOCKET};
use crate::exec::job_files::{JOB, RUNNER, SCRIPT, read_record};
use crate::model::{ExitRecord, StepId, Timestamp};
use crate::sys::beneath::Dir;
use crate::sys::fresh;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// How a step of an earlier boot ended, where that was written down and the disk has kept it.
pub fn record(job_dir: &Path, step: StepId, run: u32) -> Option<ExitRecord> {
    read_record(job_dir, step, run).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    })
}

/// When something below one of these paths was last written to: a file, or the entries of a
/// directory. Writes at `before` or later are not looked at.
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
        // A device or a pipe tells of others.
        if meta.is_file() || meta.is_dir() {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| written(entry.metadata())));
            found.push(written(Ok(meta)));
        }
    }
    found.into_iter().flatten().filter(|at| *at < before).max()
}

/// Deletes the sockets of steps that ran under an earlier boot, and records that were never
/// finished.
pub fn clean(job_dir: &Path) {
    // Nothing is deleted behind a link in the place of the directory.
    let Ok(dir) = Dir::open(job_dir) else { return };
    for name in
        dir.names().unwrap_or_default().into_iter().filter_map(|name| name.into_string().ok())
    {
        if is_socket(&name) || is_unfinished(&name) {
            // One that stays is in nobody's way.
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
    fn the_last_write_before_the_boot_is_found_among_files_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("7");
        fs::create_dir(&job).unwrap();
        touch(&job.join("script.sh"), 100);
        touch(&job.join("runner.sh"), 300);
        let output = dir.path().join("out");
        touch(&output, 200);
        // The directory itself was made now, which is after the boot.
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
    fn sockets_and_unfinished_records_go_and_whole_ones_stay() {
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
            "nothing behind a link"
        );
        fs::remove_file(link).unwrap();
        clean(dir.path());
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, stay);
        assert_eq!(record(dir.path(), StepId::Batch, 0), None, "an empty record tells nothing");
    }
}
