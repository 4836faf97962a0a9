//! The mark of a running step: its socket in the directory of its job.
//!
//! Creating it fails if it exists, so a step cannot run twice. A step whose job is not durable yet
//! has its socket in a prepared directory, where no daemon looks for it.

use crate::LaunchError;
use crate::job_files;
use crate::launch_spec::{LaunchSpec, socket_name};
use crate::prepared_dir::PreparedDir;
use slotd_sys::socket;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The socket of a watcher. For each step it gets another name, in the job's directory, which is far
/// cheaper than a new socket.
pub(super) struct OwnSocket {
    /// The socket while there is no step.
    idle: Option<UnixListener>,
    /// Its name between steps. Exists from the end of the first step until the watcher exits.
    path: PathBuf,
    has_path: bool,
}

impl OwnSocket {
    pub(super) fn new(path: PathBuf) -> OwnSocket {
        OwnSocket { idle: None, path, has_path: false }
    }

    /// Listens at a path that does not exist yet, with the socket of the previous step or a new one.
    fn listen(&mut self, path: &Path) -> io::Result<UnixListener> {
        if let Some(listener) = self.idle.take() {
            match fs::hard_link(&self.path, path) {
                Ok(()) => return Ok(listener),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    self.idle = Some(listener);
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                // Its name was removed, this is another file system, or the file system does not
                // support hard links.
                Err(_) => drop(fs::remove_file(&self.path)),
            }
            self.has_path = false;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Removes the name `at`, and keeps the socket for the next step.
    pub(super) fn keep(&mut self, listener: UnixListener, at: &Path) {
        if !self.has_path && fs::rename(at, &self.path).is_ok() {
            self.has_path = true;
        } else {
            let _ = fs::remove_file(at);
        }
        self.idle = self.has_path.then_some(listener);
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        if self.has_path {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The reason why a step is not launched here.
pub(super) enum NotClaimed {
    LaunchedBefore(String),
    Failed(LaunchError),
}

/// A directory with the socket of a step, which marks the step as running once the directory is the
/// job's.
pub(super) struct Marked {
    pub dir: File,
    pub listener: UnixListener,
}

/// The directory of a job whose start is not durable yet.
pub(super) struct Prepared {
    dir: PreparedDir,
    marked: Marked,
}

/// Prepares the directory of a job with its script and the socket of its step. Returns `None` if the
/// job has no script or if this fails: the step is then marked as running when it begins.
pub(super) fn prepare(spec: &LaunchSpec, socket: &mut OwnSocket) -> Option<Prepared> {
    let dir = PreparedDir::make(spec)?;
    let marked = mark(dir.path()?, spec, socket).ok()?;
    Some(Prepared { dir, marked })
}

/// Marks the step as running. No other launch of the step can do the same. Also returns whether the
/// script is in the directory.
pub(super) fn claim(
    spec: &LaunchSpec,
    prepared: Option<Prepared>,
    socket: &mut OwnSocket,
) -> Result<(Marked, bool), NotClaimed> {
    if let Some(Prepared { dir, marked }) = prepared {
        match dir.become_job_dir(&spec.job_dir) {
            Ok(()) => return Ok((marked, true)),
            Err(_unused) => socket.keep(marked.listener, &path_in(&marked.dir, spec)),
        }
    }
    job_files::make_job_dir(&spec.job_dir).map_err(NotClaimed::Failed)?;
    let marked = mark(&spec.job_dir, spec, socket)?;
    if matches!(job_files::read_record(&spec.job_dir, spec.step.step, spec.run), Ok(Some(_))) {
        // The step has ended, and its watcher has just removed the socket.
        let _ = fs::remove_file(path_in(&marked.dir, spec));
        return Err(NotClaimed::LaunchedBefore(format!("step {} has ended already", spec.step)));
    }
    Ok((marked, false))
}

/// Returns the path of the step's socket in this directory, short enough for a socket.
pub(super) fn path_in(dir: &File, spec: &LaunchSpec) -> PathBuf {
    socket::short_path(dir, &socket_name(spec.step.step, spec.run))
}

/// Creates the socket of the step in this directory.
fn mark(dir: &Path, spec: &LaunchSpec, socket: &mut OwnSocket) -> Result<Marked, NotClaimed> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(dir)
        .map_err(LaunchError::own_file("open the directory", dir))
        .map_err(NotClaimed::Failed)?;
    let listener = socket.listen(&path_in(&opened, spec)).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            NotClaimed::LaunchedBefore(format!("step {} was launched before", spec.step))
        }
        _ => {
            let name = socket_name(spec.step.step, spec.run);
            NotClaimed::Failed(LaunchError::own_file("make", &dir.join(name))(e))
        }
    })?;
    Ok(Marked { dir: opened, listener })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};

    /// Returns the launch of a batch job, and the socket of its watcher.
    fn launch(root: &Path) -> (LaunchSpec, OwnSocket) {
        let jobs = root.join("jobs");
        fs::create_dir(&jobs).unwrap();
        let script = Some(b"#!/bin/sh\n".to_vec());
        let spec = LaunchSpec { job_dir: jobs.join("7"), script, ..LaunchSpec::default() };
        (spec, OwnSocket::new(root.join("idle.sock")))
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn is_socket(path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
    }

    fn claimed(result: Result<(Marked, bool), NotClaimed>) -> (Marked, bool) {
        result.ok().expect("no other launch of the step")
    }

    #[test]
    fn a_prepared_step_is_claimed_once() {
        let root = tempfile::tempdir().unwrap();
        let (spec, mut socket) = launch(root.path());
        let prepared = prepare(&spec, &mut socket);
        assert!(prepared.is_some() && !spec.job_dir.exists());
        let (_, has_script) = claimed(claim(&spec, prepared, &mut socket));
        assert!(has_script && is_socket(&spec.job_dir.join(socket_name(spec.step.step, 0))));
        assert_eq!(names(&root.path().join("jobs")), ["7"]);
        for again in [None, prepare(&spec, &mut socket)] {
            assert!(matches!(claim(&spec, again, &mut socket), Err(NotClaimed::LaunchedBefore(_))));
        }
        assert_eq!(names(&root.path().join("jobs")), ["7"]);
    }

    #[test]
    fn an_unused_preparation_keeps_the_socket() {
        let root = tempfile::tempdir().unwrap();
        let (spec, mut socket) = launch(root.path());
        let prepared = prepare(&spec, &mut socket);
        fs::create_dir(&spec.job_dir).unwrap();
        fs::write(spec.job_dir.join("cgroup"), "").unwrap();
        let (marked, has_script) = claimed(claim(&spec, prepared, &mut socket));
        assert!(!has_script && is_socket(&path_in(&marked.dir, &spec)));
        assert_eq!(names(&root.path().join("jobs")), ["7"]);
        assert_eq!(names(root.path()), ["idle.sock", "jobs"]);
        drop(socket);
        assert_eq!(names(root.path()), ["jobs"]);
    }

    #[test]
    fn a_taken_name_costs_the_watcher_no_socket() {
        let root = tempfile::tempdir().unwrap();
        let mut socket = OwnSocket::new(root.path().join("idle.sock"));
        let [first, second] = ["1.sock", "2.sock"].map(|name| root.path().join(name));
        let listener = socket.listen(&first).unwrap();
        socket.keep(listener, &first);
        fs::write(&first, "").unwrap();
        assert_eq!(socket.listen(&first).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let listener = socket.listen(&second).unwrap();
        let _client = std::os::unix::net::UnixStream::connect(&second).unwrap();
        assert!(listener.accept().is_ok());
    }

    /// Nothing is created where a link leads, and nothing at the name of the socket is replaced.
    #[test]
    fn foreign_entries_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let (spec, mut socket) = launch(root.path());
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &spec.job_dir).unwrap();
        assert!(mark(&spec.job_dir, &spec, &mut socket).is_err());
        assert_eq!(names(elsewhere.path()), [""; 0]);
        fs::remove_file(&spec.job_dir).unwrap();

        fs::create_dir(&spec.job_dir).unwrap();
        let at = spec.job_dir.join(socket_name(spec.step.step, 0));
        fs::write(&at, "the user's").unwrap();
        assert!(matches!(
            mark(&spec.job_dir, &spec, &mut socket),
            Err(NotClaimed::LaunchedBefore(_))
        ));
        fs::remove_file(&at).unwrap();
        symlink(elsewhere.path().join("none"), &at).unwrap();
        assert!(mark(&spec.job_dir, &spec, &mut socket).is_err());
        assert_eq!(names(elsewhere.path()), [""; 0]);
    }
}
