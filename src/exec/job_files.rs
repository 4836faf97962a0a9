//! The files of a launch: the script, the exit record, and the tasks' output files.

use crate::exec::LaunchError;
use crate::exec::launch_spec::{LaunchSpec, TaskSpec, exit_path};
use crate::model::ExitRecord;
use crate::protocol::request::Stream;
use nix::errno::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The batch script in the directory of its job.
pub(super) const SCRIPT: &str = "script.sh";

/// What an error of the system says, without Rust's "(os error 2)".
pub(super) fn reason(e: &io::Error) -> String {
    e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_string())
}

/// Writes a file of the job directory that only the user may read and run.
pub(super) fn write_program(path: &Path, text: &[u8]) -> Result<(), LaunchError> {
    // Always a new file in the place of the old one, which a process of an earlier run may have open for execution.
    let write = || fs::rename(fresh_program(path, text)?, path);
    write().map_err(LaunchError::file("write", path))
}

/// A program beside its place, which is its own: others may make one at the same time.
fn fresh_program(path: &Path, text: &[u8]) -> io::Result<PathBuf> {
    let new = path.with_extension(format!("sh.{}", std::process::id()));
    let _ = fs::remove_file(&new);
    OpenOptions::new().write(true).create_new(true).mode(0o700).open(&new)?.write_all(text)?;
    Ok(new)
}

/// Puts the script of a job that was submitted into its directory, unless the job's start was quicker.
///
/// # Errors
/// What could not be made.
pub fn store_script(job_dir: &Path, script: &[u8]) -> Result<(), LaunchError> {
    make_dir(job_dir, 0o700)?;
    let path = &job_dir.join(SCRIPT);
    let write = || {
        let new = fresh_program(path, script)?;
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        linked.or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
    };
    write().map_err(LaunchError::file("write", path))
}

/// For `map_err`: a step cannot start in its working directory.
pub(super) fn no_work_dir(dir: &Path) -> impl Fn(io::Error) -> LaunchError {
    LaunchError::file("enter the working directory", dir)
}

/// Looks whether the working directory can be entered. Where not, the reason goes to the standard error of the tasks
/// as well, as far as that can be opened without making directories.
pub(super) fn check_work_dir(spec: &LaunchSpec, handed: &[OwnedFd]) -> Result<(), LaunchError> {
    let access = nix::unistd::access(&spec.work_dir, nix::unistd::AccessFlags::X_OK).map_err(io::Error::from);
    let found = access.and_then(|()| match fs::metadata(&spec.work_dir)?.is_dir() {
        true => Ok(()),
        false => Err(Errno::ENOTDIR.into()),
    });
    let Err(e) = found else { return Ok(()) };
    let why = no_work_dir(&spec.work_dir)(e);
    let mut told: Vec<&Stream> = Vec::new();
    for task in &spec.tasks {
        let sink = if task.stderr == Stream::SameAsStdout { &task.stdout } else { &task.stderr };
        if !told.contains(&sink) {
            told.push(sink);
        }
    }
    let line = format!("slurmstepd: error: {why}\n");
    for sink in told {
        // Where it cannot be told, the job's comment still has it.
        let _ = match sink {
            Stream::File { path, append } => {
                let mut options = OpenOptions::new();
                options.append(true).create(true).mode(0o666).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
                let file = options.open(path);
                file.and_then(|mut file| {
                    if !append {
                        file.set_len(0)?;
                    }
                    file.write_all(line.as_bytes())
                })
            }
            Stream::Fd(place) => handed
                .get(*place)
                .map_or(Ok(()), |fd| nix::unistd::write(fd, line.as_bytes()).map(drop).map_err(io::Error::from)),
            Stream::Null | Stream::SameAsStdout => Ok(()),
        };
    }
    Err(why)
}

/// Makes a directory and its parents.
pub(super) fn make_dir(path: &Path, mode: u32) -> Result<(), LaunchError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(LaunchError::file("make the directory", path))
}

/// Puts the exit record in its place, whole or not at all.
pub(super) fn write_record(spec: &LaunchSpec, record: &ExitRecord) -> io::Result<()> {
    let path = exit_path(&spec.job_dir, spec.step.step);
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::write(&new, serde_json::to_vec(record)?)?;
    fs::rename(&new, &path)
}

/// Where one of a task's first three descriptors comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opened {
    /// A descriptor of the watcher.
    Raw(RawFd),
    /// A named pipe. Opening one may wait for its other end for ever, so the task does it itself.
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
    /// Opens what the task reads and writes. A file that another task or stream has opened is shared with it: one
    /// description, one position.
    ///
    /// # Errors
    /// A file that cannot be opened, or a descriptor that is not there.
    pub(super) fn streams(&mut self, task: &TaskSpec, handed: &[OwnedFd], null: RawFd) -> Result<Streams, LaunchError> {
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
        // Each task reads the file from its beginning, so there is nothing to share.
        Ok(self.keep(PathBuf::new(), File::open(path).map_err(failed)?))
    }

    fn output(&mut self, path: &Path, append: bool, action: &'static str) -> Result<Opened, LaunchError> {
        if let Some((_, stream, _)) = self.opened.iter().find(|(known, _, _)| known == path) {
            return Ok(stream.clone());
        }
        if fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo()) {
            let stream = Opened::Fifo { path: path.to_owned(), write: true };
            self.opened.push((path.to_owned(), stream.clone(), None));
            return Ok(stream);
        }
        // Always at the end, as Slurm does: two jobs may write one file.
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o666);
        let truncate = if append { 0 } else { libc::O_TRUNC };
        options.custom_flags(truncate | libc::O_NOCTTY);
        let file = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                make_dir(path.parent().unwrap_or(Path::new("/")), 0o777)?;
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

    fn output(path: &Path, append: bool) -> Stream {
        Stream::File { path: path.to_owned(), append }
    }

    #[test]
    fn one_file_named_twice_is_opened_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/out");
        let task = TaskSpec { stdout: output(&path, false), stderr: output(&path, false), ..TaskSpec::default() };
        let mut files = Files::default();
        let [stdin, stdout, stderr] = files.streams(&task, &[], 2).unwrap();
        assert_eq!(stdin, Opened::Raw(2));
        assert_eq!(stdout, stderr);
        assert_eq!(files.streams(&task, &[], 2).unwrap()[1], stdout);
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let path = dir.path().join("file/out");
        let task = TaskSpec { stdout: output(&path, false), ..TaskSpec::default() };
        let error = Files::default().streams(&task, &[], 2).unwrap_err().to_string();
        assert_eq!(error, format!("could not open stdout file {}: Not a directory", path.display()));
        let task =
            TaskSpec { stdin: Stream::File { path: dir.path().join("none"), append: false }, ..TaskSpec::default() };
        let error = Files::default().streams(&task, &[], 2).unwrap_err().to_string();
        assert!(error.starts_with("could not open stdin file") && error.ends_with("No such file or directory"));
    }

    #[test]
    fn a_named_pipe_is_left_to_the_task() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let task = TaskSpec { stdout: output(&path, false), ..TaskSpec::default() };
        assert_eq!(Files::default().streams(&task, &[], 2).unwrap()[1], Opened::Fifo { path, write: true });
    }

    #[test]
    fn a_place_without_a_descriptor_is_an_error() {
        let task = TaskSpec { stdin: Stream::Fd(3), ..TaskSpec::default() };
        let error = Files::default().streams(&task, &[], 2).unwrap_err();
        assert!(matches!(error, LaunchError::NoDescriptor(3)), "{error}");
    }

    #[test]
    fn a_record_replaces_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let spec = LaunchSpec { job_dir: dir.path().to_owned(), ..LaunchSpec::default() };
        for run in 0..2 {
            write_record(&spec, &ExitRecord { run, ..ExitRecord::default() }).unwrap();
            let record = crate::exec::adopt::read_record(dir.path(), spec.step.step, run).unwrap();
            assert_eq!(record.map(|r| r.run), Some(run));
        }
        assert_eq!(crate::exec::adopt::read_record(dir.path(), spec.step.step, 0).unwrap(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
