//! What all threads of the run share: the daemon's directory, its commands, the disk, the clocks
//! and the counts.

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

/// CPUs and GPUs that the daemon is told to have.
pub const CPUS: u32 = 4;
pub const GPUS: u32 = 2;

/// How long a command may take that waits for nobody: as long as the commands look for a daemon,
/// and some.
const PATIENCE: Duration = Duration::from_secs(150);

/// How often the harness looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The small disk of the root: megabytes and inodes for each second of the run, and for the
/// beginning.
const DISK_MB: u64 = 32;
const DISK_INODES: u64 = 4000;
const INODES_PER_SECOND: u64 = 150;

/// Milliseconds since the boot of the machine: what `/proc/PID/stat` counts in.
pub fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut at) };
    at.tv_sec as u64 * 1000 + at.tv_nsec as u64 / 1_000_000
}

/// What the adversary did, by kind.
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

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub stdout: String,
    pub stderr: String,
    /// As a shell shows it. `None`: it did not end.
    pub code: Option<i32>,
    /// We killed it.
    pub killed: bool,
    pub sent: u64,
    pub ended: u64,
}

pub struct World {
    pub slotd: Slotd,
    /// What the jobs tell.
    pub log: PathBuf,
    pub locks: PathBuf,
    /// The root lies on a disk of its own, which can be filled.
    pub has_disk: bool,
    size: (u64, u64),
    pub counts: Counts,
    pub jobs: Mutex<Vec<Submission>>,
    /// Commands that run, and whether we have killed them.
    clients: Mutex<BTreeMap<i32, bool>>,
    pub daemon: Mutex<Option<Child>>,
    /// The settings of the wall clock: from when, seconds ahead.
    pub clock: Mutex<Clock>,
    /// When something of slotd was stopped, or kept from running or writing: from, to.
    pub hindered: Mutex<Vec<(u64, u64)>>,
    /// Until when the disk was full, milliseconds of boot time.
    pub full: Mutex<Option<u64>>,
    /// Jobs one of whose watchers was killed.
    pub watchers_killed: Mutex<BTreeSet<u32>>,
    /// Jobs one of whose steps lost its watcher or its client: the job itself goes on.
    pub steps_killed: Mutex<BTreeSet<u32>>,
    /// What must not have happened, found on the way.
    pub found: Mutex<Vec<String>>,
    /// No more faults, no more submissions.
    pub over: AtomicBool,
    /// What squeue showed last.
    pub backlog: AtomicUsize,
    serial: AtomicU64,
}

impl World {
    /// The directories, a disk of its own where the machine lets us, and no daemon yet.
    pub fn prepare(seconds: u64) -> World {
        let slotd = Setup::default().set("SLOTD_GPU_COUNT", GPUS).set("SLOTD_CPUS", CPUS).prepare();
        let (log, locks) = (slotd.path("events"), slotd.path("locks"));
        fs::write(&log, "").expect("the log");
        for made in [locks.clone(), slotd.path("out"), slotd.base.join("said")] {
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

    /// Something of slotd cannot do its work until the end of `during`.
    pub fn hinder<T>(&self, during: impl FnOnce() -> T) -> T {
        let from = now();
        let done = during();
        self.hindered.lock().unwrap().push((from, now()));
        done
    }

    // Commands.

    /// Runs a command that waits for nobody.
    pub fn run(&self, name: &str, args: &[String]) -> Said {
        let mut command = self.slotd.command(name);
        command.args(args);
        self.wait_for(command, || PATIENCE)
    }

    /// Runs a command that may wait as long as it is told to.
    pub fn wait_for(&self, mut command: Command, patience: impl Fn() -> Duration) -> Said {
        let path = self
            .slotd
            .base
            .join("said")
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
                    "{command:?} does not end; it said {:?}",
                    fs::read_to_string(&stderr)
                ));
                slotd_kit::proc::signal(pid, slotd_kit::proc::KILL);
                child.wait().expect("a child of ours");
                self.clients.lock().unwrap().remove(&pid);
                break (None, false);
            }
            thread::sleep(LOOK);
        };
        let ended = now();
        let read = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            drop(fs::remove_file(path));
            String::from_utf8_lossy(&text).into_owned()
        };
        Said { stdout: read(&stdout), stderr: read(&stderr), code, killed, sent, ended }
    }

    /// Its exit code, and whether it was killed, once it has ended. Nobody else gets its number
    /// before that.
    fn reap(&self, child: &mut Child) -> Option<(Option<i32>, bool)> {
        let mut clients = self.clients.lock().unwrap();
        let status = child.try_wait().expect("a child of ours")?;
        let killed = clients.remove(&(child.id() as i32)).unwrap_or(false);
        Some((Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))), killed))
    }

    /// `kill -9` to one of the commands that run.
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

    // The daemon.

    /// Starts a daemon and does not wait for it.
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

    /// Ends the daemon, which leaves its launcher no work.
    pub fn stop_all(&self) {
        if let Some(mut daemon) = self.daemon.lock().unwrap().take() {
            daemon.kill().expect("a child of ours");
            daemon.wait().expect("a child of ours");
        }
        let gone = slotd_kit::until(|| {
            let left = slotd_kit::proc::of_directory(&self.slotd.base);
            left.iter().for_each(|pid| slotd_kit::proc::signal(*pid, slotd_kit::proc::KILL));
            left.is_empty().then_some(())
        });
        assert!(gone.is_some(), "processes outlive SIGKILL");
    }

    // The disk.

    /// Leaves not a byte, or not an inode, on the disk of the root.
    pub fn fill(&self, inodes: bool) -> bool {
        // What is used may grow between the look and the mount: again.
        (0..10).any(|_| {
            let (bytes, files) = used(&self.slotd.root);
            // 0 would be no limit.
            let limit = if inodes {
                format!("nr_inodes={}", files.max(1))
            } else {
                format!("size={}", bytes.max(1))
            };
            mount(&["-o", &format!("remount,{limit}")], &self.slotd.root)
        })
    }

    /// Gives the disk its room again.
    pub fn empty(&self) {
        let options = format!("remount,size={},nr_inodes={}", self.size.0, self.size.1);
        assert!(mount(&["-o", &options], &self.slotd.root), "the disk does not get its room back");
    }

    /// Sets the wall clock of the daemon and of the watchers.
    pub fn set_clock(&self, ahead: i64) {
        // The old and the new time hold while it is set.
        let mut clock = self.clock.lock().unwrap();
        clock.0.push((now(), ahead));
        self.slotd.set_clock(ahead);
    }

    /// The daemon's wall clock, seconds since 1970.
    pub fn wall_clock(&self) -> i64 {
        let ahead = self.clock.lock().unwrap().0.last().map_or(0, |(_, ahead)| *ahead);
        let real = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("it is after 1970");
        real.as_secs() as i64 + ahead
    }

    /// Takes the disk away. What must be kept lies elsewhere by then.
    pub fn unmount(&self) {
        if self.has_disk {
            let done = Command::new("umount").arg("-l").arg(&self.slotd.root).status();
            assert!(
                done.is_ok_and(|status| status.success()),
                "the disk of the root cannot be taken away"
            );
        }
    }
}

/// `mount` with these options there.
fn mount(options: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(options).arg(at).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Bytes and inodes that are used on the disk of a path.
fn used(path: &Path) -> (u64, u64) {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path has no zero byte");
    // SAFETY: zeros are a statvfs.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends, and a statvfs of ours.
    let done = unsafe { libc::statvfs(path.as_ptr(), &mut about) };
    assert_eq!(done, 0, "the disk of the root is there");
    ((about.f_blocks - about.f_bfree) * about.f_frsize, about.f_files - about.f_ffree)
}
