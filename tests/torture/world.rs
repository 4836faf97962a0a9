//! The state shared by all threads of a run: the daemon's directory, commands, disk, clocks and
//! counters.

use crate::model::{Clock, Submission};
use slotd_kit::{Setup, Slotd};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The CPUs and GPUs in the daemon's configuration.
pub const CPUS: u32 = 4;
pub const GPUS: u32 = 2;

/// The licenses, and the maximum number of running jobs with the QOS, in `slotd.toml`.
pub const SEATS: u32 = 3;
pub const QOS_JOBS: u32 = 2;

/// The longest time that a non-waiting command may take: a little more than commands wait for a
/// daemon.
const PATIENCE: Duration = Duration::from_secs(150);

/// The interval at which the harness checks whether a command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The size of the small disk for the root: initial megabytes and inodes, and inodes per second of
/// the run.
const DISK_MB: u64 = 32;
const DISK_INODES: u64 = 4000;
const INODES_PER_SECOND: u64 = 150;

/// Returns milliseconds since boot, the time base of `/proc/PID/stat`.
pub fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut at) };
    at.tv_sec as u64 * 1000 + at.tv_nsec as u64 / 1_000_000
}

/// The number of faults, by kind.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    pub fn add(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }

    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().unwrap().iter().map(|(what, count)| (*what, *count)).collect()
    }
}

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// As a shell reports it; `None` if the command did not exit.
    pub code: Option<i32>,
    /// Killed by a fault.
    pub killed: bool,
    pub sent: u64,
    pub ended: u64,
}

/// The crontab of the only user.
#[derive(Debug, Default)]
pub struct Crontab {
    /// The text; `None` if a change was not answered, so that it may have taken effect.
    pub text: Option<String>,
    /// The submissions that it may list.
    pub entries: Vec<u32>,
}

pub struct World {
    pub slotd: Slotd,
    /// The log that the jobs write.
    pub log: PathBuf,
    pub locks: PathBuf,
    /// Whether the root is on its own disk, which can be filled.
    pub has_disk: bool,
    size: (u64, u64),
    pub counts: Counts,
    pub jobs: Mutex<Vec<Submission>>,
    /// Locked while a command changes it.
    pub crontab: Mutex<Crontab>,
    /// Whether each reservation exists; `None` if a change was not answered. Locked while a command
    /// changes one.
    pub reservations: Mutex<BTreeMap<String, Option<bool>>>,
    /// Running commands, and whether a fault killed them.
    clients: Mutex<BTreeMap<i32, bool>>,
    pub daemon: Mutex<Option<Child>>,
    /// The settings of the wall clock.
    pub clock: Mutex<Clock>,
    /// The periods in which a part of slotd was stopped, or could not run or write.
    pub hindered: Mutex<Vec<(u64, u64)>>,
    /// When the disk was last full, in milliseconds of boot time.
    pub full: Mutex<Option<u64>>,
    /// Jobs that lost a watcher.
    pub watchers_killed: Mutex<BTreeSet<u32>>,
    /// Jobs that lost the watcher or client of a step. The job itself continues.
    pub steps_killed: Mutex<BTreeSet<u32>>,
    /// Violations found during the run.
    pub found: Mutex<Vec<String>>,
    /// Set when faults and submissions end.
    pub over: AtomicBool,
    /// The number of jobs that squeue last printed.
    pub backlog: AtomicUsize,
    serial: AtomicU64,
}

impl World {
    /// Creates the directories, and a separate disk if mounting is permitted. Starts no daemon.
    pub fn prepare(seconds: u64) -> World {
        let config = format!(
            "[[license]]\nname = \"seat\"\ncount = {SEATS}\n\
             [[qos]]\nname = \"few\"\nmax_jobs_per_user = {QOS_JOBS}\npriority = 10\n"
        );
        let setup = Setup::default().set("SLOTD_GPU_COUNT", GPUS).set("SLOTD_CPUS", CPUS);
        let slotd = setup.toml(&config).prepare();
        let (log, locks) = (slotd.path("events"), slotd.path("locks"));
        fs::write(&log, "").expect("the log");
        for made in [locks.clone(), slotd.path("out"), slotd.base.join("outputs")] {
            fs::create_dir(made).expect("a directory");
        }
        let size = ((DISK_MB << 20) + (seconds << 19), DISK_INODES + seconds * INODES_PER_SECOND);
        let options = format!("size={},nr_inodes={},mode=700", size.0, size.1);
        let has_disk = mount(&["-t", "tmpfs", "-o", &options, "torture"], &slotd.root);
        World {
            log,
            locks,
            has_disk,
            size,
            slotd,
            counts: Counts::default(),
            jobs: Mutex::default(),
            reservations: Mutex::default(),
            crontab: Mutex::new(Crontab { text: Some(String::new()), entries: vec![] }),
            clients: Mutex::default(),
            daemon: Mutex::default(),
            clock: Mutex::new(Clock(vec![(0, 0)])),
            hindered: Mutex::default(),
            full: Mutex::default(),
            watchers_killed: Mutex::default(),
            steps_killed: Mutex::default(),
            found: Mutex::default(),
            over: AtomicBool::new(false),
            backlog: AtomicUsize::new(0),
            serial: AtomicU64::new(0),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn jobs(&self) -> MutexGuard<'_, Vec<Submission>> {
        self.jobs.lock().unwrap()
    }

    pub fn report(&self, what: String) {
        eprintln!("torture: {what}");
        self.found.lock().unwrap().push(what);
    }

    /// Runs `during`, and records that a part of slotd was stopped in that time.
    pub fn hinder<T>(&self, during: impl FnOnce() -> T) -> T {
        let from = now();
        let done = during();
        self.hindered.lock().unwrap().push((from, now()));
        done
    }

    // Commands

    /// Runs a command that does not wait for a job.
    pub fn run(&self, name: &str, args: &[String]) -> Output {
        let mut command = self.slotd.command(name);
        command.args(args);
        self.wait_for(command, || PATIENCE)
    }

    /// Runs a command with a time limit.
    pub fn wait_for(&self, mut command: Command, patience: impl Fn() -> Duration) -> Output {
        let path = self
            .slotd
            .base
            .join("outputs")
            .join(self.serial.fetch_add(1, Ordering::Relaxed).to_string());
        let (stdout, stderr) = (path.with_extension("out"), path.with_extension("err"));
        command
            .stdout(File::create(&stdout).expect("a file"))
            .stderr(File::create(&stderr).expect("a file"));
        let (sent, begun) = (now(), Instant::now());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let pid = child.id() as i32;
        self.clients.lock().unwrap().insert(pid, false);
        let (code, killed) = loop {
            if let Some(ended) = self.reap(&mut child) {
                break ended;
            }
            if begun.elapsed() > patience() {
                self.report(format!(
                    "{command:?} does not exit; stderr: {:?}",
                    fs::read_to_string(&stderr)
                ));
                slotd_kit::proc::signal(pid, slotd_kit::proc::KILL);
                child.wait().expect("the process is a child of this one");
                self.clients.lock().unwrap().remove(&pid);
                break (None, false);
            }
            thread::sleep(POLL_INTERVAL);
        };
        let ended = now();
        let read = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            drop(fs::remove_file(path));
            String::from_utf8_lossy(&text).into_owned()
        };
        Output { stdout: read(&stdout), stderr: read(&stderr), code, killed, sent, ended }
    }

    /// Returns the exit code, and whether a fault killed it, once the command has ended. Holding
    /// the lock until then keeps its PID from being reused.
    fn reap(&self, child: &mut Child) -> Option<(Option<i32>, bool)> {
        let mut clients = self.clients.lock().unwrap();
        let status = child.try_wait().expect("the process is a child of this one")?;
        let killed = clients.remove(&(child.id() as i32)).unwrap_or(false);
        Some((Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))), killed))
    }

    /// Kills one of the running commands.
    pub fn kill_client(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let mut clients = self.clients.lock().unwrap();
        let count = clients.len();
        if count == 0 {
            return false;
        }
        let (pid, killed) = clients.iter_mut().nth(choose(count)).expect("one of them");
        *killed = true;
        slotd_kit::proc::signal(*pid, slotd_kit::proc::KILL);
        true
    }

    // Daemon

    /// Starts a daemon without waiting for it.
    pub fn start_daemon(&self, daemon: &mut Option<Child>) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.slotd.log_path())
            .expect("the daemon's log");
        let mut command = self.slotd.daemon_command();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .process_group(0);
        *daemon = Some(command.spawn().expect("the daemon"));
    }

    /// Kills the daemon and all other processes.
    pub fn stop_all(&self) {
        if let Some(mut daemon) = self.daemon.lock().unwrap().take() {
            daemon.kill().expect("the process is a child of this one");
            daemon.wait().expect("the process is a child of this one");
        }
        let gone = slotd_kit::until(|| {
            let left = slotd_kit::proc::of_directory(&self.slotd.base);
            left.iter().for_each(|pid| slotd_kit::proc::signal(*pid, slotd_kit::proc::KILL));
            left.is_empty().then_some(())
        });
        assert!(gone.is_some(), "processes outlive SIGKILL");
    }

    // Disk

    /// Leaves no free byte, or no free inode, on the root's disk.
    pub fn fill(&self, inodes: bool) -> bool {
        // Usage may grow between the check and the mount, so retry.
        (0..10).any(|_| {
            let (bytes, files) = used(&self.slotd.root);
            // 0 would mean no limit.
            let limit = if inodes {
                format!("nr_inodes={}", files.max(1))
            } else {
                format!("size={}", bytes.max(1))
            };
            mount(&["-o", &format!("remount,{limit}")], &self.slotd.root)
        })
    }

    /// Restores the size of the disk.
    pub fn restore_size(&self) {
        let options = format!("remount,size={},nr_inodes={}", self.size.0, self.size.1);
        assert!(mount(&["-o", &options], &self.slotd.root), "the disk cannot be resized");
    }

    /// Sets the wall clock of the daemon and the watchers.
    pub fn set_clock(&self, ahead: i64) {
        // Record the new time first: while it is being set, both times may be in use.
        let mut clock = self.clock.lock().unwrap();
        clock.0.push((now(), ahead));
        self.slotd.set_clock(ahead);
    }

    /// Returns the daemon's wall clock in seconds since 1970.
    pub fn wall_clock(&self) -> i64 {
        let ahead = self.clock.lock().unwrap().0.last().map_or(0, |(_, ahead)| *ahead);
        let real = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is after 1970");
        real.as_secs() as i64 + ahead
    }

    /// Unmounts the disk. Everything worth keeping has been copied by then.
    pub fn unmount(&self) {
        if self.has_disk {
            let done = Command::new("umount").arg("-l").arg(&self.slotd.root).status();
            assert!(
                done.is_ok_and(|status| status.success()),
                "the root's disk cannot be unmounted"
            );
        }
    }
}

/// Runs `mount` with these options.
fn mount(options: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(options).arg(at).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Returns the bytes and inodes in use on the file system of a path.
fn used(path: &Path) -> (u64, u64) {
    let path =
        CString::new(path.as_os_str().as_encoded_bytes()).expect("paths contain no null byte");
    // SAFETY: statvfs is plain numbers, for which zero is valid.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: The path is null-terminated, and `about` is a valid statvfs.
    let done = unsafe { libc::statvfs(path.as_ptr(), &mut about) };
    assert_eq!(done, 0, "the root's disk is mounted");
    ((about.f_blocks - about.f_bfree) * about.f_frsize, about.f_files - about.f_ffree)
}
