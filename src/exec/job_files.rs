//! The files of a launch: the script, the exit record, and the output files of the tasks.

use crate::LaunchError;
use crate::launch_spec::{JobText, LaunchSpec, TaskSpec, exit_path};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use slotd_model::series::Series;
use slotd_model::{ExitRecord, Job, StepId, Timestamp};
use slotd_protocol::request::Stream;
use slotd_sys::files::{self, MOST_RECORD};
use slotd_sys::fresh::Fresh;
use slotd_sys::ownership;
use slotd_sys::socket::short_path;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The batch script, in the job's directory.
pub(super) const SCRIPT: &str = "script.sh";

/// The job as it was launched (JSON), in its directory. If the job ended right away, it is part of
/// `exit_status` instead. Readable only by its user, since it contains the command line.
pub(super) const JOB: &str = "job.json";

/// The launch as a shell script, including the environment of the job.
pub(super) const RUNNER: &str = "runner.sh";

/// The mode of a file that only the user may read and execute.
const PROGRAM: u32 = 0o700;

/// Writes a file in the job directory that only the user may read and execute.
pub(super) fn write_program(path: &Path, text: &[u8]) -> Result<(), LaunchError> {
    // A job that runs again has the file of its earlier run.
    if is_program(path, text) {
        return Ok(());
    }
    // Always replace the file with a new one: a process of an earlier run may still be executing
    // the old one.
    replace(path, text, PROGRAM).map_err(LaunchError::own_file("write", path))
}

/// Returns whether the file exists with the right mode and this content.
fn is_program(path: &Path, text: &[u8]) -> bool {
    let Ok(mut file) =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
    else {
        return false;
    };
    let is_like_it = file.metadata().is_ok_and(|there| {
        there.is_file()
            && there.mode() & 0o7777 == PROGRAM
            && there.len() == text.len() as u64
            && there.nlink() == 1
    });
    let mut there = vec![0; text.len()];
    is_like_it && file.read_exact(&mut there).is_ok() && there == text
}

/// Writes a file in the job directory, replacing any existing one.
fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut fresh = Fresh::new(path, mode)?;
    fresh.file.write_all(text)?;
    fresh.replace()
}

/// Records the job of this launch in its open directory, so that it is known without the database.
/// By now, its path may lead to files of the user.
pub(super) fn write_job(dir: &File, spec: &LaunchSpec) -> io::Result<()> {
    let Some(job) = &spec.job else { return Ok(()) };
    replace(&short_path(dir, JOB), job.as_bytes(), 0o600)
}

/// Deletes the record that [`write_job`] wrote.
pub(super) fn forget_job(dir: &File) -> io::Result<()> {
    match fs::remove_file(short_path(dir, JOB)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Returns a closure for `map_err` on a working directory that cannot be entered.
pub(super) fn no_work_dir(dir: &Path) -> impl Fn(io::Error) -> LaunchError {
    LaunchError::file("enter the working directory", dir)
}

/// Checks that the working directory can be entered. If not, the reason is also written to the
/// standard error of the tasks.
pub(super) fn check_work_dir(spec: &LaunchSpec, handed: &[OwnedFd]) -> Result<(), LaunchError> {
    let access = nix::unistd::access(&spec.work_dir, nix::unistd::AccessFlags::X_OK)
        .map_err(io::Error::from);
    let found = access.and_then(|()| {
        if fs::metadata(&spec.work_dir)?.is_dir() { Ok(()) } else { Err(Errno::ENOTDIR.into()) }
    });
    let Err(e) = found else { return Ok(()) };
    let why = no_work_dir(&spec.work_dir)(e);
    report_failure(spec, handed, &why);
    Err(why)
}

/// Writes the reason why the tasks are not started to their standard error, unless that requires
/// creating directories.
pub(super) fn report_failure(spec: &LaunchSpec, handed: &[OwnedFd], why: &LaunchError) {
    let mut sinks: Vec<&Stream> = Vec::new();
    for task in &spec.tasks {
        let sink = if task.stderr == Stream::SameAsStdout { &task.stdout } else { &task.stderr };
        if !sinks.contains(&sink) {
            sinks.push(sink);
        }
    }
    let line = format!("slurmstepd: error: {why}\n");
    for sink in sinks {
        // If it cannot be written, the job's comment still has the reason.
        let _ = match sink {
            Stream::File { path, append } => {
                let mut options = OpenOptions::new();
                options
                    .append(true)
                    .create(true)
                    .mode(0o666)
                    .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
                let file = options.open(path);
                file.and_then(|mut file| {
                    if !append {
                        file.set_len(0)?;
                    }
                    file.write_all(line.as_bytes())
                })
            }
            Stream::Fd(place) => handed.get(*place).map_or(Ok(()), |fd| {
                nix::unistd::write(fd, line.as_bytes()).map(drop).map_err(io::Error::from)
            }),
            Stream::Null | Stream::SameAsStdout => Ok(()),
        };
    }
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Creates the directory of a job. An existing one must belong to the user and must not be a link.
pub(super) fn make_job_dir(path: &Path) -> Result<(), LaunchError> {
    make_dir(path, 0o700).map_err(LaunchError::own_file("create the directory", path))?;
    ownership::check_own_dir(path).map_err(LaunchError::own_file("use the directory", path))
}

/// The contents of an exit record. For a batch script that ended right away it includes the job,
/// since one file is cheaper than two.
#[derive(Serialize)]
struct RecordFile<'a> {
    #[serde(flatten)]
    record: &'a ExitRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a JobText>,
    /// The resource usage of the step over time.
    #[serde(skip_serializing_if = "Series::is_empty")]
    over_time: &'a Series,
}

/// The job in an exit record.
#[derive(Deserialize)]
struct JobOfRecord {
    #[serde(default)]
    job: Option<Job>,
}

/// Writes the exit record atomically to the job's open directory.
pub(super) fn write_record(
    dir: &File,
    spec: &LaunchSpec,
    record: &ExitRecord,
    over_time: &Series,
) -> io::Result<()> {
    let file = RecordFile { record, job: spec.job.as_ref(), over_time };
    let path = exit_path(&short_path(dir, ""), spec.step.step);
    replace(&path, &serde_json::to_vec(&file)?, 0o600)
}

/// Returns the job from its directory, as of its last run.
pub(super) fn read_job(job_dir: &Path) -> Option<Job> {
    let read = |path: &Path| files::read(path, MOST_RECORD).ok();
    let noted = read(&job_dir.join(JOB)).and_then(|text| serde_json::from_slice(&text).ok());
    let record = read(&exit_path(job_dir, StepId::Batch));
    let of_record = record.and_then(|text| serde_json::from_slice::<JobOfRecord>(&text).ok()?.job);
    [noted, of_record].into_iter().flatten().max_by_key(|job: &Job| job.run.restarts)
}

/// The usage over time in an exit record.
#[derive(Deserialize)]
struct SeriesOfRecord {
    run: u32,
    started: Timestamp,
    #[serde(default)]
    over_time: Series,
}

/// Returns the run and start time in the last record of a step, with its usage over time. `None` if
/// there is no record.
pub(super) fn read_series(job_dir: &Path, step: StepId) -> Option<(u32, Timestamp, Series)> {
    let text = files::read(&exit_path(job_dir, step), MOST_RECORD).ok()?;
    let SeriesOfRecord { run, started, over_time } = serde_json::from_slice(&text).ok()?;
    Some((run, started, over_time))
}

/// Returns the exit record of this run, if there is one.
///
/// # Errors
/// Fails if it cannot be read or is not a record.
pub fn read_record(job_dir: &Path, step: StepId, run: u32) -> io::Result<Option<ExitRecord>> {
    Ok(read_any_record(job_dir, step)?.filter(|record| record.run == run))
}

/// Returns the exit record of the last run that has one.
pub(super) fn read_any_record(job_dir: &Path, step: StepId) -> io::Result<Option<ExitRecord>> {
    let path = exit_path(job_dir, step);
    let text = match files::read(&path, MOST_RECORD) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => {
            return Err(io::Error::new(
                e.kind(),
                format!("could not read {}: {e}", path.display()),
            ));
        }
    };
    let record: ExitRecord = serde_json::from_slice(&text).map_err(|e| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is not an exit record: {e}", path.display()),
        )
    })?;
    Ok(Some(record))
}

/// Syncs an exit record that is in its place, so that it survives a power failure.
///
/// # Errors
/// Fails if the disk does not accept it.
pub(super) fn sync_record(dir: &File, spec: &LaunchSpec) -> io::Result<()> {
    File::open(exit_path(&short_path(dir, ""), spec.step.step))?.sync_all()?;
    dir.sync_all()
}

/// The source of one of a task's first three descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opened {
    /// A descriptor of the watcher.
    Raw(RawFd),
    /// A named pipe. Opening it may block forever, so the task opens it itself.
    Fifo { path: PathBuf, write: bool },
}

/// A task's standard input, output and error.
pub(super) type Streams = [Opened; 3];

/// The opened files of all tasks.
#[derive(Debug, Default)]
pub(super) struct Files {
    opened: Vec<(PathBuf, Opened, Option<OwnedFd>)>,
}

impl Files {
    /// Opens the streams of a task. A file that another task or stream has opened is shared with
    /// it, including its position.
    ///
    /// # Errors
    /// Fails if a file cannot be opened or a descriptor was not passed.
    pub(super) fn streams(
        &mut self,
        task: &TaskSpec,
        handed: &[OwnedFd],
        null: RawFd,
    ) -> Result<Streams, LaunchError> {
        let fd = |place: usize| {
            let fd = handed.get(place).ok_or(LaunchError::NoDescriptor(place))?;
            Ok::<_, LaunchError>(Opened::Raw(fd.as_raw_fd()))
        };
        let stdin = match &task.stdin {
            Stream::Null | Stream::SameAsStdout => Opened::Raw(null),
            Stream::Fd(place) => fd(*place)?,
            Stream::File { path, .. } => self.input(path)?,
        };
        let mut sink = |sink: &Stream, action: &'static str| match sink {
            Stream::Null => Ok(Opened::Raw(null)),
            Stream::Fd(place) => fd(*place),
            Stream::File { path, append } => self.output(path, *append, action),
            Stream::SameAsStdout => Err(LaunchError::OwnCopy),
        };
        let stdout = sink(&task.stdout, "open stdout file")?;
        let stderr = match &task.stderr {
            Stream::SameAsStdout => stdout.clone(),
            other => sink(other, "open stderr file")?,
        };
        Ok([stdin, stdout, stderr])
    }

    fn input(&mut self, path: &Path) -> Result<Opened, LaunchError> {
        let failed = LaunchError::file("open stdin file", path);
        if fs::metadata(path).map_err(&failed)?.file_type().is_fifo() {
            return Ok(Opened::Fifo { path: path.to_owned(), write: false });
        }
        // Each task reads the file from its start, so there is nothing to share.
        Ok(self.keep(PathBuf::new(), File::open(path).map_err(failed)?))
    }

    fn output(
        &mut self,
        path: &Path,
        append: bool,
        action: &'static str,
    ) -> Result<Opened, LaunchError> {
        if let Some((_, stream, _)) = self.opened.iter().find(|(known, _, _)| known == path) {
            return Ok(stream.clone());
        }
        if fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo()) {
            let stream = Opened::Fifo { path: path.to_owned(), write: true };
            self.opened.push((path.to_owned(), stream.clone(), None));
            return Ok(stream);
        }
        // Always append, as Slurm does: two jobs may write to the same file.
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o666);
        let truncate = if append { 0 } else { libc::O_TRUNC };
        options.custom_flags(truncate | libc::O_NOCTTY);
        let file = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let dir = path.parent().unwrap_or(Path::new("/"));
                make_dir(dir, 0o777).map_err(LaunchError::file("create the directory", dir))?;
                options.open(path)
            }
            other => other,
        };
        let file = file.map_err(LaunchError::file(action, path))?;
        Ok(self.keep(path.to_owned(), file))
    }

    fn keep(&mut self, path: PathBuf, file: File) -> Opened {
        let fd = OwnedFd::from(file);
        let stream = Opened::Raw(fd.as_raw_fd());
        self.opened.push((path, stream.clone(), Some(fd)));
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::ExitCode;
    use std::os::unix::fs::PermissionsExt;

    fn output(path: &Path, append: bool) -> Stream {
        Stream::File { path: path.to_owned(), append }
    }

    #[test]
    fn a_file_that_is_named_twice_is_opened_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/out");
        let task = TaskSpec {
            stdout: output(&path, false),
            stderr: output(&path, false),
            ..TaskSpec::default()
        };
        let mut files = Files::default();
        let [stdin, stdout, stderr] = files.streams(&task, &[], 2).unwrap();
        assert_eq!(stdin, Opened::Raw(2));
        assert_eq!(stdout, stderr);
        assert_eq!(files.streams(&task, &[], 2).unwrap()[1], stdout);
        assert!(path.exists());
    }

    #[test]
    fn the_error_names_a_file_that_cannot_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let path = dir.path().join("file/out");
        let task = TaskSpec { stdout: output(&path, false), ..TaskSpec::default() };
        let error = Files::default().streams(&task, &[], 2).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("could not open stdout file {}: Not a directory", path.display())
        );
        let task = TaskSpec {
            stdin: Stream::File { path: dir.path().join("none"), append: false },
            ..TaskSpec::default()
        };
        let error = Files::default().streams(&task, &[], 2).unwrap_err().to_string();
        assert!(
            error.starts_with("could not open stdin file")
                && error.ends_with("No such file or directory")
        );
    }

    #[test]
    fn an_unchanged_script_is_not_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join(SCRIPT);
        write_program(&script, b"true").unwrap();
        let inode = || fs::metadata(&script).unwrap().ino();
        let (first, mode) = (inode(), |mode| {
            fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap()
        });
        write_program(&script, b"true").unwrap();
        assert_eq!(inode(), first);
        // A file that somebody has changed is replaced with the submitted script.
        let changes: [&dyn Fn(); 4] = [
            &|| fs::write(&script, "evil").unwrap(),
            &|| fs::write(&script, "longer").unwrap(),
            &|| mode(0o600),
            &|| {
                fs::rename(&script, dir.path().join("moved")).unwrap();
                std::os::unix::fs::symlink("moved", &script).unwrap();
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            write_program(&script, b"true").unwrap();
            let there = fs::symlink_metadata(&script).unwrap();
            assert!(there.is_file() && there.mode() & 0o777 == 0o700, "change {number}");
            assert_eq!(fs::read(&script).unwrap(), b"true", "change {number}");
        }
    }

    #[test]
    fn a_named_pipe_is_opened_by_the_task() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let task = TaskSpec { stdout: output(&path, false), ..TaskSpec::default() };
        assert_eq!(
            Files::default().streams(&task, &[], 2).unwrap()[1],
            Opened::Fifo { path, write: true }
        );
    }

    #[test]
    fn a_missing_descriptor_is_an_error() {
        let task = TaskSpec { stdin: Stream::Fd(3), ..TaskSpec::default() };
        let error = Files::default().streams(&task, &[], 2).unwrap_err();
        assert!(matches!(error, LaunchError::NoDescriptor(3)), "{error}");
    }

    #[test]
    fn nothing_is_written_through_a_link_that_replaced_a_job_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, job_dir) = (dir.path().join("elsewhere"), dir.path().join("7"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &job_dir).unwrap();
        let refused = make_job_dir(&job_dir).unwrap_err().to_string();
        assert!(refused.contains("7: it is a link"), "{refused}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn the_record_follows_its_directory_and_no_link_that_took_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let [job_dir, moved, elsewhere] = ["7", "moved", "elsewhere"].map(|n| dir.path().join(n));
        fs::create_dir(&job_dir).unwrap();
        let opened = File::open(&job_dir).unwrap();
        fs::rename(&job_dir, &moved).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        for name in ["exit_status", JOB] {
            fs::write(elsewhere.join(name), "the user's").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, &job_dir).unwrap();
        let job = JobText::of(&Job::default());
        let spec = LaunchSpec { job_dir, job, ..LaunchSpec::default() };
        write_job(&opened, &spec).unwrap();
        write_record(&opened, &spec, &ExitRecord::default(), &Series::default()).unwrap();
        for name in ["exit_status", JOB] {
            assert_eq!(fs::read_to_string(elsewhere.join(name)).unwrap(), "the user's");
            assert!(moved.join(name).exists());
        }
        forget_job(&opened).unwrap();
        assert!(!moved.join(JOB).exists() && elsewhere.join(JOB).exists());
    }

    #[test]
    fn a_record_replaces_the_previous_one() {
        let dir = tempfile::tempdir().unwrap();
        let spec = LaunchSpec { job_dir: dir.path().to_owned(), ..LaunchSpec::default() };
        for run in 0..2 {
            write_record(
                &File::open(dir.path()).unwrap(),
                &spec,
                &ExitRecord { run, ..ExitRecord::default() },
                &Series::default(),
            )
            .unwrap();
            let record = read_record(dir.path(), spec.step.step, run).unwrap();
            assert_eq!(record.map(|r| r.run), Some(run));
        }
        assert_eq!(read_record(dir.path(), spec.step.step, 0).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        sync_record(&File::open(dir.path()).unwrap(), &spec).unwrap();
        fs::remove_file(exit_path(dir.path(), spec.step.step)).unwrap();
        assert!(
            sync_record(&File::open(dir.path()).unwrap(), &spec).is_err(),
            "there is nothing to sync"
        );
    }

    /// A record needs no checksum: if the disk loses a part of a file, the end is missing or the
    /// part reads as zeros.
    #[test]
    fn an_incomplete_record_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let spec = LaunchSpec { job_dir: dir.path().to_owned(), ..LaunchSpec::default() };
        let record = ExitRecord { tasks: vec![ExitCode::status(3)], ..ExitRecord::default() };
        write_record(&File::open(dir.path()).unwrap(), &spec, &record, &Series::default()).unwrap();
        let path = exit_path(dir.path(), spec.step.step);
        let whole = fs::read(&path).unwrap();
        let read = || crate::earlier_boot::record(dir.path(), spec.step.step, 0);
        assert!(read().is_some());
        for kept in 0..whole.len() {
            fs::write(&path, &whole[..kept]).unwrap();
            assert_eq!(read(), None, "{kept} bytes of {}", whole.len());
            let zeros = vec![0; whole.len() - kept];
            fs::write(&path, [&whole[..kept], &zeros].concat()).unwrap();
            assert_eq!(read(), None, "{kept} bytes of {}, and zeros", whole.len());
        }
        fs::write(&path, [&whole[..], &[0; 512]].concat()).unwrap();
        assert_eq!(read(), None, "a complete record followed by zeros");
    }
}
