//! The daemon as a separate process: found by the lock that it holds, started, and stopped.

use crate::daemon::log_file;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use slotd_exec::launcher::LAUNCHER_ARG;
use slotd_exec::watcher;
use slotd_sys::paths::{Paths, is_root_of};
use slotd_sys::umask::Umask;
use slotd_sys::{lock, proc, root_dirs};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for a daemon to start or stop. A start replays what happened while no daemon
/// was running.
const PATIENCE: Duration = Duration::from_secs(60);

/// The option with which `slotd daemon` leaves its caller's session, see [`leave_caller`].
pub const DETACHED_OPTION: &str = "detached";

/// The reason why a daemon was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    #[error("{path}: {1}{advice}", path = .0.display(), advice = advice(.1))]
    Path(PathBuf, io::Error),
    /// The message of the error names the directory.
    #[error("{0}")]
    Dir(io::Error),
    #[error("cannot start {path}: {1}", path = .0.display())]
    Program(PathBuf, io::Error),
    #[error(transparent)]
    InsideJob(#[from] InsideJob),
    /// `said` holds the last lines that it logged.
    #[error("the daemon exited before it was ready ({status}); its log is {}", log.display())]
    Ended { status: ExitStatus, said: String, log: PathBuf },
    #[error("the daemon (process {pid}) is not ready after {} s; its log is {}", PATIENCE.as_secs(), log.display())]
    Late { pid: u32, log: PathBuf },
    #[error("{0}: only the user who runs this daemon can stop it")]
    NotOwn(io::Error),
    #[error("process {0} does not exit: kill it and retry; running jobs continue")]
    DoesNotEnd(i32),
}

/// Returns the advice for an error of the system. slotd's own checks give theirs.
fn advice(error: &io::Error) -> &'static str {
    if error.raw_os_error().is_some() { ": check its owner" } else { "" }
}

/// Returns the process that serves a root or is about to: the holder of the lock on the data
/// directory, or of the lock file alone. Links do not count, nor do locks held by processes of
/// other users.
pub fn pid_of(paths: &Paths) -> Option<i32> {
    let found = |path: PathBuf| fs::symlink_metadata(path).ok();
    let lock = found(paths.daemon_lock()).filter(fs::Metadata::is_file);
    let data = found(paths.lib_dir()).filter(fs::Metadata::is_dir);
    data.into_iter().chain(lock).find_map(|lock| (0..LOOKS).find_map(|_| holder(&lock)))
}

/// The number of times to read `/proc/locks`. The kernel returns it a page at a time and counts the
/// locks between two pages. With locks that come and go, one in 250 readings missed a lock that was
/// held throughout (measured with 160 other locks changing constantly).
const LOOKS: usize = 5;

fn holder(lock: &fs::Metadata) -> Option<i32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks
        .lines()
        .filter_map(|line| parse_lock(line, lock.st_ino()))
        .find(|pid| is_of(*pid, lock.st_uid()) && has_open(*pid, lock))
}

/// Returns the holder named in a line of `/proc/locks`, if the line is about an flock(2) lock on
/// this inode.
fn parse_lock(line: &str, inode: u64) -> Option<i32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
    let (_, found) = file.rsplit_once(':')?;
    (found.parse() == Ok(inode)).then(|| pid.parse().ok()).flatten()
}

/// Whether the process belongs to this user.
fn is_of(pid: i32, user: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.st_uid() == user)
}

/// Whether the process has this file open. Inode numbers repeat between file systems.
fn has_open(pid: i32, file: &fs::Metadata) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_it =
        |found: fs::Metadata| (found.st_dev(), found.st_ino()) == (file.st_dev(), file.st_ino());
    fds.flatten().any(|fd| fs::metadata(fd.path()).is_ok_and(is_it))
}

/// Counts the running steps in the root: the watchers that have a step. They are forks of the
/// daemon's launcher and outlive both.
pub fn running_steps(paths: &Paths) -> usize {
    let is_watcher = |pid: &i32| watcher::has_step(*pid) && is_of_launcher(*pid, paths.root());
    proc::all_pids().into_iter().filter(is_watcher).count()
}

/// The daemon would be part of a job of its own root.
#[derive(Debug, thiserror::Error)]
#[error(
    "this is inside a job of {}, watched by process {watcher}: a daemon started here would end with the job\n\
     start it outside the job: `slotd daemon start` in another shell, or `systemctl --user start slotd.service`",
    .root.display()
)]
pub struct InsideJob {
    root: PathBuf,
    watcher: i32,
}

/// Refuses to start a daemon anywhere in the process tree of a job of its own root.
///
/// # Errors
/// Fails with [`InsideJob`].
pub fn check_outside(paths: &Paths) -> Result<(), InsideJob> {
    let root = paths.root().to_owned();
    enclosing_watcher(&root).map_or(Ok(()), |watcher| Err(InsideJob { root, watcher }))
}

/// Returns the watcher of the job that this process is part of.
fn enclosing_watcher(root: &Path) -> Option<i32> {
    let above = |pid: &i32| proc::stat(*pid).map(|stat| stat.ppid).filter(|parent| *parent > 1);
    let me = std::process::id().cast_signed();
    std::iter::successors(above(&me), above).find(|pid| is_of_launcher(*pid, root))
}

/// Whether this process is a launcher of the root, or a fork of one, such as a watcher.
fn is_of_launcher(pid: i32, root: &Path) -> bool {
    let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = words.split(|byte| *byte == 0).skip(1);
    let is_launcher = words.next() == Some(LAUNCHER_ARG.as_bytes());
    let named = words.next().map(|root| Path::new(OsStr::from_bytes(root)));
    is_launcher && named.is_some_and(|named| is_root_of(pid, named, root))
}

/// The settings of a daemon, and the path of the file that contains them (empty if there is none).
#[derive(Default)]
pub struct Given<'a> {
    pub file: &'a str,
    pub settings: Vec<(&'a str, &'a str)>,
}

/// Starts `program` as the daemon of a root, detached from this process and its terminal, and waits
/// until it is ready. The daemon gets these settings. It inherits the caller's environment without
/// any settings: the caller may be a shell or a job with settings of its own.
///
/// # Errors
/// Fails if the daemon cannot be started, exits before it is ready, or takes too long, or if the
/// caller is part of a job of the root.
pub fn start(
    program: &Path,
    paths: &Paths,
    given: &Given<'_>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<u32, DetachedError> {
    check_outside(paths)?;
    // The caller's umask could lock the daemon out of its directories and the socket below.
    let _umask = Umask::set(DAEMON_UMASK);
    let at = |path: PathBuf| move |e| DetachedError::Path(path, e);
    // Otherwise the log could be created behind a link, or in another user's directory.
    for dir in [paths.run_dir(), paths.lib_dir()] {
        root_dirs::open(paths, &dir).map_err(DetachedError::Dir)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(paths.run_dir())
        .map_err(at(paths.run_dir()))?;
    let log = paths.log();
    let mut out = log_file::open(&log).map_err(at(log.clone()))?;
    let begin = out.seek(SeekFrom::End(0)).map_err(at(log.clone()))?;
    let manager = Manager::listen(paths).map_err(at(paths.run_dir()))?;
    let mut command = Command::new(program);
    command.env_clear().envs(environment.filter(|(name, _)| is_inherited(name)));
    command.args(["daemon", &format!("--{DETACHED_OPTION}")]).envs(given.settings.iter().copied());
    if !given.file.is_empty() {
        command.args(["--env-file", given.file]);
    }
    command.env("SLOTD_ROOT", paths.root()).env("NOTIFY_SOCKET", &manager.address).current_dir("/");
    let child = out
        .try_clone()
        .and_then(|err| command.stdin(Stdio::null()).stdout(out).stderr(err).spawn())
        .map_err(|e| DetachedError::Program(program.to_owned(), e))?;
    let pid = child.id();
    match manager.wait(child).map_err(|e| DetachedError::Program(program.to_owned(), e))? {
        Startup::Ready => Ok(pid),
        Startup::Ended(status) => {
            Err(DetachedError::Ended { status, said: last_lines(&log, begin), log })
        }
        Startup::TimedOut => Err(DetachedError::Late { pid, log }),
    }
}

/// The umask of a detached daemon.
const DAEMON_UMASK: u32 = 0o022;

/// Returns whether a detached daemon inherits this variable from the process that starts it.
pub fn is_inherited(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let own = ["SLOTD_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_"];
    // A service manager or the journal set these for the caller, not for the daemon.
    !own.iter().any(|prefix| name.starts_with(prefix))
        && !["JOURNAL_STREAM", "INVOCATION_ID"].contains(&&*name)
}

/// Returns the last few lines that were logged after the offset `begin`.
fn last_lines(log: &Path, begin: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(begin))?;
        file.read_to_end(&mut text)
    });
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(5)..].iter();
    if read.is_ok() { last.flat_map(|line| [line, "\n"]).collect() } else { String::new() }
}

/// Leaves the caller's session, and drops its umask and open descriptors. Must be called before
/// anything else is opened.
pub fn leave_caller() {
    let _ = nix::unistd::setsid();
    nix::sys::stat::umask(Mode::from_bits_truncate(DAEMON_UMASK));
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    // This includes the descriptor of the directory itself, which is closed by now.
    let open: Vec<i32> =
        open.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        let _ = nix::unistd::close(fd);
    }
}

/// Refuses the root of another user. Its owner could replace the lock, and thereby choose the
/// process that receives a signal.
///
/// # Errors
/// Fails with [`DetachedError::NotOwn`].
pub fn check_own(paths: &Paths) -> Result<(), DetachedError> {
    root_dirs::open(paths, &paths.run_dir()).map(drop).map_err(DetachedError::NotOwn)
}

/// Stops the daemon of this user's own root, and waits until it has released the root.
///
/// # Errors
/// Fails with [`DetachedError::DoesNotEnd`] or [`DetachedError::NotOwn`].
pub fn stop(paths: &Paths, pid: i32) -> Result<(), DetachedError> {
    check_own(paths)?;
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let take = |path: PathBuf| lock::take_opened_within(File::open(&path)?, &path, PATIENCE);
    for path in [paths.daemon_lock(), paths.lib_dir()] {
        match take(path) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Err(DetachedError::DoesNotEnd(pid));
            }
            // The file is missing, so nothing holds a lock on it.
            _ => {}
        }
    }
    Ok(())
}

/// The result of waiting for a started daemon.
enum Startup {
    Ready,
    Ended(ExitStatus),
    TimedOut,
}

/// A minimal service manager that waits until the daemon is ready (sd_notify(3)).
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    /// The value of `NOTIFY_SOCKET`. It leads through the open directory of this process, since
    /// socket addresses are limited to 108 bytes.
    address: PathBuf,
    _dir: File,
}

impl Manager {
    fn listen(paths: &Paths) -> io::Result<Manager> {
        let dir = File::open(paths.run_dir())?;
        let me = std::process::id();
        let name = format!("start-{me}.sock");
        let address = PathBuf::from(format!("/proc/{me}/fd/{}/{name}", dir.as_raw_fd()));
        let path = paths.run_dir().join(&name);
        let _ = fs::remove_file(&path);
        Ok(Manager { socket: UnixDatagram::bind(&address)?, path, address, _dir: dir })
    }

    /// Waits for the daemon. Starts no thread, which the host may refuse.
    ///
    /// # Errors
    /// Fails if no descriptor is available, or like `poll` and `recv`.
    fn wait(&self, mut child: Child) -> io::Result<Startup> {
        let end = proc::pidfd(child.id().cast_signed())?;
        let deadline = Instant::now() + PATIENCE;
        let mut text = [0; 256];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Startup::TimedOut);
            }
            let mut ready = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(end.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let [has_message, has_ended] = ready.map(|fd| fd.any().unwrap_or(false));
            if has_message {
                let length = self.socket.recv(&mut text)?;
                if text[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                    return Ok(Startup::Ready);
                }
            } else if has_ended {
                return Ok(Startup::Ended(child.wait()?));
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn lock_holder_is_parsed_from_proc_locks() {
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF";
        assert_eq!(parse_lock(line, 1234), Some(4711));
        assert_eq!(parse_lock(line, 234), None);
        assert_eq!(parse_lock("12: POSIX  ADVISORY  WRITE 4711 fe:01:1234 0 EOF", 1234), None);
        assert_eq!(
            parse_lock("12: -> FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF", 1234),
            None,
            "a waiting process does not hold the lock"
        );
    }

    #[test]
    fn root_without_a_lock_has_no_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        assert_eq!(pid_of(&paths), None);
        fs::create_dir(paths.run_dir()).unwrap();
        File::create(paths.daemon_lock()).unwrap();
        assert_eq!(pid_of(&paths), None);
        let _held = lock::take(&paths.daemon_lock(), lock::Kind::Exclusive).unwrap();
        assert_eq!(pid_of(&paths), Some(std::process::id().cast_signed()));
    }

    #[test]
    fn early_exit_is_reported_with_the_last_log_lines() {
        let dir = tempfile::tempdir().unwrap();
        let error = start(
            Path::new("/bin/cat"),
            &Paths::new(dir.path()),
            &Given::default(),
            std::env::vars_os(),
        )
        .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the daemon exited before it was ready (exit status: 1)"), "{text}");
        let DetachedError::Ended { said, .. } = error else { panic!("{error}") };
        assert!(said.contains("--detached"), "{said}");
    }

    /// Returns why a start with this root is refused, before anything is created, opened or
    /// started.
    fn refused(root: &Path) -> String {
        let no_program = Path::new("/bin/false");
        start(no_program, &Paths::new(root), &Given::default(), std::env::vars_os())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn detached_start_does_not_open_or_rotate_a_log_behind_a_link() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let large = vec![b'x'; usize::try_from(log_file::LOG_BYTES).unwrap() + 1];
        fs::create_dir_all(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/slotd.log"), &large).unwrap();
        fs::create_dir_all(at("one")).unwrap();
        symlink(at("elsewhere"), at("one/run")).unwrap();
        assert!(refused(&at("one")).contains("one/run: it is a link"), "{}", refused(&at("one")));
        fs::create_dir_all(at("two/run")).unwrap();
        symlink(at("elsewhere/slotd.log"), at("two/run/slotd.log")).unwrap();
        assert!(refused(&at("two")).contains("two/run/slotd.log: "), "{}", refused(&at("two")));
        symlink(at("elsewhere/new"), at("elsewhere/dangling")).unwrap();
        fs::remove_file(at("two/run/slotd.log")).unwrap();
        symlink(at("elsewhere/new"), at("two/run/slotd.log")).unwrap();
        refused(&at("two"));
        // Opening a FIFO would block, and a device would be written to.
        for made in [Path::new("fifo"), Path::new("/dev/full")] {
            fs::remove_file(at("two/run/slotd.log")).unwrap();
            if made.is_absolute() {
                symlink(made, at("two/run/slotd.log")).unwrap()
            } else {
                nix::unistd::mkfifo(&at("two/run/slotd.log"), Mode::S_IRWXU).unwrap()
            }
            assert!(refused(&at("two")).contains("two/run/slotd.log: "), "{}", refused(&at("two")));
        }
        // A bad `lib` is refused by the daemon itself, which would write to a log of its own.
        fs::create_dir_all(at("three/run")).unwrap();
        symlink(at("elsewhere"), at("three/lib")).unwrap();
        assert!(
            refused(&at("three")).contains("three/lib: it is a link"),
            "{}",
            refused(&at("three"))
        );
        assert!(!at("three/run/slotd.log").exists());
        assert!(fs::read(at("elsewhere/slotd.log")).unwrap() == large);
        let mut left: Vec<_> = fs::read_dir(at("elsewhere"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["dangling", "slotd.log"]);
    }

    #[test]
    fn detached_start_creates_nothing_in_another_users_root() {
        let place = tempfile::tempdir().unwrap();
        let mut root = PathBuf::from("/");
        if nix::unistd::getuid().is_root() {
            root = place.path().join("root");
            fs::create_dir(&root).unwrap();
            std::os::unix::fs::chown(&root, Some(65_534), None).unwrap();
        }
        let why = refused(&root);
        assert!(why.contains("it belongs to user "), "{why}");
        assert!(why.ends_with(": choose a directory of your own"), "{why}");
        assert!(
            !root.join("run/slotd.log").exists()
                && fs::read_dir(place.path()).unwrap().count() <= 1
        );
        assert!(!root.starts_with(place.path()) || fs::read_dir(&root).unwrap().count() == 0);
    }
}
