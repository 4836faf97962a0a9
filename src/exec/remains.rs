//! What an earlier boot of the machine has left in the directories of the jobs that ran then.
//!
//! Its sockets have no listener and never will: they are removed. Its exit records count, if they are whole.

use crate::exec::adopt::read_record;
use crate::model::{ExitRecord, StepId, Timestamp};
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

/// When something below one of these paths was last written to: a file, or the entries of a directory. Writes at `before`
/// or later are not looked at.
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

/// Removes the sockets of steps that ran under an earlier boot, and records that were never finished.
pub fn clean(job_dir: &Path) {
    for entry in fs::read_dir(job_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // A file that is being written has its writer's number behind its name.
        let is_number =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_left_over = |extension: &str| extension == "sock" || is_number(extension);
        if path.extension().and_then(|extension| extension.to_str()).is_some_and(is_left_over) {
            // One that stays is in nobody's way.
            let _ = fs::remove_file(path);
        }
    }
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
        for name in
            ["batch.0.sock", "0.0.sock", "exit_status", "1.exit", "1.exit.4711", "script.sh"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        clean(dir.path());
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["1.exit", "exit_status", "script.sh"]);
        assert_eq!(record(dir.path(), StepId::Batch, 0), None, "an empty record tells nothing");
    }
}
