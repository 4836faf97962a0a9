//! The daemon as a process beside its caller: found by the lock that it holds, started, and
//! stopped.

use crate::daemon::log_file;
use crate::exec::launcher::LAUNCHER_ARG;
use crate::exec::watcher;
use crate::sys::paths::Paths;
use crate::sys::{lock, proc, root_dirs};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a daemon may take to serve or to end: a start replays what happened while it was away.
const PATIENCE: Duration = Duration::from_secs(60);

/// With this option `slotd daemon` leaves its caller's session, see [`leave_caller`].
pub const DETACHED_OPTION: &str = "detached";

/// Why a daemon was not started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    #[error("{path}: {1}: check who owns it", path = .0.display())]
    Path(PathBuf, io::Error),
    #[error("{path} cannot be started: {1}", path = .0.display())]
    Program(PathBuf, io::Error),
    #[error(transparent)]
    InsideJob(#[from] InsideJob),
    /// `said`: the last lines that it wrote.
    #[error("the daemon ended before it served ({status}); its log is {}", log.display())]
    Ended { status: ExitStatus, said: String, log: PathBuf },
    #[error("the daemon (process {pid}) does not serve after {} s; its log is {}", PATIENCE.as_secs(), log.display())]
    Late { pid: u32, log: PathBuf },
    #[error("{0}: only the user whose daemon this is can stop it")]
    NotOwn(io::Error),
    #[error("process {0} does not end: kill it, and try again; running jobs go on")]
    DoesNotEnd(i32),
}

/// The process that serves a root, or is about to: it holds the directory of the data, or the root's
/// lock alone. A link in the place of either, or a lock that a process of another user holds, is not
/// the daemon's.
pub fn pid_of(paths: &Paths) -> Option<i32> {
    let found = |path: PathBuf| fs::symlink_metadata(path).ok();
    let lock = found(paths.daemon_lock()).filter(fs::Metadata::is_file);
    let data = found(paths.lib_dir()).filter(fs::Metadata::is_dir);
    data.into_iter().chain(lock).find_map(|lock| (0..LOOKS).find_map(|_| holder(&lock)))
}

/// The kernel hands `/proc/locks` out a page at a time and counts the locks between two pages: on a
/// machine where locks come and go, one in 250 looks missed a lock that was held throughout
/// (measured with 160 others that changed all the time).
const LOOKS: usize = 5;

fn holder(lock: &fs::Metadata) -> Option<i32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks
        .lines()
        .filter_map(|line| parse_lock(line, lock.st_ino()))
        .find(|pid| is_of(*pid, lock.st_uid()) && has_open(*pid, lock))
}

/// The process that a line of `/proc/locks` names as the holder of a lock by flock(2) on this
/// inode.
fn parse_lock(line: &str, inode: u64) -> Option<i32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
    let (_, found) = file.rsplit_once(':')?;
    (found.parse() == Ok(inode)).then(|| pid.parse().ok()).flatten()
}

/// Whether this user runs the process.
fn is_of(pid: i32, user: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.st_uid() == user)
}

/// Whether the process has this file open: inode numbers repeat between file systems.
fn has_open(pid: i32, file: &fs::Metadata) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_it =
        |found: fs::Metadata| (found.st_dev(), found.st_ino()) == (file.st_dev(), file.st_ino());
    fds.flatten().any(|fd| fs::metadata(fd.path()).is_ok_and(is_it))
}

/// How many steps of jobs run in the root: watchers that have one. Those are forks of the daemon's
/// launcher and outlive both.
pub fn running_steps(paths: &Paths) -> usize {
    let is_watcher = |pid: &i32| watcher::has_step(*pid) && is_of_launcher(*pid, paths.root());
    proc::all_pids().into_iter().filter(is_watcher).count()
}

/// A daemon would be part of a job of its own root.
#[derive(Debug, thiserror::Error)]
#[error(
    "this is inside a job of {}, watched by process {watcher}: a daemon that is started here would end with the job\n\
     start it outside of the job: `slotd daemon start` in another shell, or `systemctl --user start slotd.service`",
    .root.display()
)]
pub struct InsideJob {
    root: PathBuf,
    watcher: i32,
}

/// Refuses to start a daemon in a job of its own root, wherever in the job's tree of processes.
///
/// # Errors
/// [`InsideJob`].
pub fn check_outside(paths: &Paths) -> Result<(), InsideJob> {
    let root = paths.root().to_owned();
    enclosing_watcher(&root).map_or(Ok(()), |watcher| Err(InsideJob { root, watcher }))
}

/// The watcher of the job that this process is part of.
fn enclosing_watcher(root: &Path) -> Option<i32> {
    let root = root.canonicalize().ok()?;
    let above = |pid: &i32| proc::stat(*pid).map(|stat| stat.ppid).filter(|parent| *parent > 1);
    let me = std::process::id().cast_signed();
    std::iter::successors(above(&me), above).find(|pid| is_of_launcher(*pid, &root))
}

/// Whether this process is a launcher of the root, or a watcher, which is a fork of one.
fn is_of_launcher(pid: i32, root: &Path) -> bool {
    let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = words.split(|byte| *byte == 0).skip(1);
    let is_launcher = words.next() == Some(LAUNCHER_ARG.as_bytes());
    let named = words.next().map(|root| Path::new(OsStr::from_bytes(root)));
    is_launcher
        && named.is_some_and(|named| {
            named == root || named.canonicalize().is_ok_and(|named| named == root)
        })
}

/// The settings of a daemon, and the file that they are from; empty where there is none.
#[derive(Default)]
pub struct Given<'a> {
    pub file: &'a str,
    pub settings: Vec<(&'a str, &'a str)>,
}

/// Starts `program` as the daemon of a root, apart from this process and its terminal, and waits
/// until it serves. It gets these settings, and of the caller's environment what is no setting: the
/// caller may be a shell or a job with its own.
///
/// # Errors
/// It cannot be started, ends before it serves, or takes too long; the caller is part of a job of
/// the root.
pub fn start(
    program: &Path,
    paths: &Paths,
    given: &Given<'_>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<u32, DetachedError> {
    check_outside(paths)?;
    let at = |path: PathBuf| move |e| DetachedError::Path(path, e);
    // The log would be made behind a link, or in another user's directory.
    for dir in [paths.run_dir(), paths.lib_dir()] {
        root_dirs::open(paths, &dir).map_err(at(dir))?;
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
    command.env_clear().envs(environment.filter(|(name, _)| is_inherited(&name.to_string_lossy())));
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
    match manager.wait(child) {
        Said::Serves => Ok(pid),
        Said::Ended(status) => {
            Err(DetachedError::Ended { status, said: last_lines(&log, begin), log })
        }
        Said::Nothing => Err(DetachedError::Late { pid, log }),
    }
}

fn is_inherited(name: &str) -> bool {
    let own = ["SLOTD_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_"];
    // What a service manager or a journal told the caller is not meant for the daemon.
    !own.iter().any(|prefix| name.starts_with(prefix))
        && !["JOURNAL_STREAM", "INVOCATION_ID"].contains(&name)
}

/// The end of what was logged after `begin`, a few lines.
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

/// Leaves the session, the mask and the open descriptors of the caller. To be called before
/// anything else is opened.
pub fn leave_caller() {
    let _ = nix::unistd::setsid();
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    // The directory's own descriptor is closed by then.
    let open: Vec<i32> =
        open.flatten().filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        let _ = nix::unistd::close(fd);
    }
}

/// Refuses the root of another user: its owner chooses what the lock is, and so which process a
/// signal would reach.
///
/// # Errors
/// [`DetachedError::NotOwn`].
pub fn check_own(paths: &Paths) -> Result<(), DetachedError> {
    root_dirs::open(paths, &paths.run_dir()).map(drop).map_err(DetachedError::NotOwn)
}

/// Ends the daemon of this user's own root, and waits until it has released the root.
///
/// # Errors
/// [`DetachedError::DoesNotEnd`], [`DetachedError::NotOwn`].
pub fn stop(paths: &Paths, pid: i32) -> Result<(), DetachedError> {
    check_own(paths)?;
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let take = |path: PathBuf| lock::take_opened_within(File::open(&path)?, &path, PATIENCE);
    for path in [paths.daemon_lock(), paths.lib_dir()] {
        match take(path) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Err(DetachedError::DoesNotEnd(pid));
            }
            // It is gone, and so is who held it.
            _ => {}
        }
    }
    Ok(())
}

/// What becomes known of a daemon that was started.
enum Said {
    Serves,
    Ended(ExitStatus),
    Nothing,
}

/// The part of a service manager that is told when the daemon serves (sd_notify(3)).
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    /// For `NOTIFY_SOCKET`: through this process's open directory, since a socket address holds 108
    /// bytes.
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

    fn wait(&self, mut child: Child) -> Said {
        let (said, news) = mpsc::channel();
        let ended = said.clone();
        std::thread::spawn(move || child.wait().map(|status| ended.send(Said::Ended(status))));
        if let Ok(socket) = self.socket.try_clone() {
            std::thread::spawn(move || {
                let mut text = [0; 256];
                while let Ok(length) = socket.recv(&mut text) {
                    if text[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                        return said.send(Said::Serves);
                    }
                }
                Ok(())
            });
        }
        news.recv_timeout(PATIENCE).unwrap_or(Said::Nothing)
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
    fn the_holder_of_a_lock_is_found_in_the_kernels_list() {
        let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF";
        assert_eq!(parse_lock(line, 1234), Some(4711));
        assert_eq!(parse_lock(line, 234), None);
        assert_eq!(parse_lock("12: POSIX  ADVISORY  WRITE 4711 fe:01:1234 0 EOF", 1234), None);
        assert_eq!(
            parse_lock("12: -> FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF", 1234),
            None,
            "it waits"
        );
    }

    #[test]
    fn nobody_serves_a_root_that_is_not_locked() {
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
    fn a_program_that_ends_before_it_serves_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let error = start(
            Path::new("/bin/cat"),
            &Paths::new(dir.path()),
            &Given::default(),
            std::env::vars_os(),
        )
        .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the daemon ended before it served (exit status: 1)"), "{text}");
        let DetachedError::Ended { said, .. } = error else { panic!("{error}") };
        assert!(said.contains("--detached"), "{said}");
    }

    /// Why a start with this root is refused, before anything is made, opened or started.
    fn refused(root: &Path) -> String {
        let no_program = Path::new("/bin/false");
        start(no_program, &Paths::new(root), &Given::default(), std::env::vars_os())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_detached_start_opens_and_rotates_no_log_behind_a_link() {
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
        // A FIFO would be waited for, and a device be written to.
        for made in [Path::new("fifo"), Path::new("/dev/full")] {
            fs::remove_file(at("two/run/slotd.log")).unwrap();
            if made.is_absolute() {
                symlink(made, at("two/run/slotd.log")).unwrap()
            } else {
                nix::unistd::mkfifo(&at("two/run/slotd.log"), Mode::S_IRWXU).unwrap()
            }
            assert!(refused(&at("two")).contains("two/run/slotd.log: "), "{}", refused(&at("two")));
        }
        // `lib` is the daemon's to refuse: its words go to a log of its own.
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
    fn a_detached_start_makes_nothing_in_the_root_of_another_user() {
        let place = tempfile::tempdir().unwrap();
        let mut root = PathBuf::from("/");
        if nix::unistd::getuid().is_root() {
            root = place.path().join("root");
            fs::create_dir(&root).unwrap();
            std::os::unix::fs::chown(&root, Some(65_534), None).unwrap();
        }
        let why = refused(&root);
        assert!(why.contains("it belongs to user ") && why.contains("check who owns it"), "{why}");
        assert!(
            !root.join("run/slotd.log").exists()
                && fs::read_dir(place.path()).unwrap().count() <= 1
        );
        assert!(!root.starts_with(place.path()) || fs::read_dir(&root).unwrap().count() == 0);
    }
}
