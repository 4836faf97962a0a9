//! Shared by the benchmarks of whole commands: a private daemon, and timing.

use crate::proc;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The configuration file.
const CONFIG: &str = "slotd.toml";

/// A daemon with its own root directory. It is killed on drop.
pub struct Lab {
    pub dir: tempfile::TempDir,
    cpus: u32,
    daemon: Child,
}

impl Lab {
    /// Starts a daemon with this many CPUs.
    pub fn start(cpus: u32) -> Lab {
        Lab::with(cpus, "")
    }

    /// Starts a daemon with this `slotd.toml`.
    pub fn with(cpus: u32, config: &str) -> Lab {
        let dir = tempfile::tempdir().expect("a temporary directory can be created");
        std::fs::write(dir.path().join(CONFIG), config).expect("a file in it can be written");
        let daemon = serve(dir.path(), cpus);
        Lab { dir, cpus, daemon }
    }

    /// Stops the daemon, changes the root directory, and starts it again.
    pub fn while_stopped(&mut self, change: impl FnOnce(&Path)) {
        self.daemon.kill().expect("the daemon is a child of this process");
        self.daemon.wait().expect("the daemon is a child of this process");
        change(&self.path("root"));
        self.daemon = serve(self.dir.path(), self.cpus);
    }

    pub fn daemon_pid(&self) -> i32 {
        self.daemon.id().cast_signed()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until the watchers of earlier jobs have exited. They stay for a moment in case of
    /// another launch.
    pub fn settle(&self) {
        let waits = || {
            proc::of_directory(self.dir.path())
                .into_iter()
                .any(|pid| proc::name(pid) == "slotd-idle")
        };
        crate::until(|| (!waits()).then_some(())).expect("idle watchers exit");
    }

    /// A command that talks to this daemon.
    pub fn command(&self, command: &str) -> Command {
        let mut program = Command::new(crate::program());
        if crate::COMMANDS.contains(&command) {
            // As through a link, since a plain `sbatch` is faster than `slotd sbatch`.
            program.arg0(command);
        } else {
            program.arg(command);
        }
        program.env("SLOTD_ROOT", self.path("root")).current_dir(self.dir.path());
        program
    }

    /// Runs a command and returns its output.
    pub fn run(&self, command: &str, args: &[&str]) -> String {
        let out = self.command(command).args(args).output().expect("the program can be run");
        assert!(
            out.status.success(),
            "{command} {args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts a daemon for the root in this directory, and waits until it answers.
fn serve(dir: &Path, cpus: u32) -> Child {
    let daemon = Command::new(crate::program())
        .arg("daemon")
        .env("SLOTD_ROOT", dir.join("root"))
        .env("SLOTD_CPUS", cpus.to_string())
        .env("SLOTD_CONFIG", dir.join(CONFIG))
        // Keep a long history.
        .env("SLOTD_KEEP_JOBS", "unlimited")
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon");
    let ready = crate::until(|| crate::wire::connect(&dir.join("root")).ok());
    assert!(ready.is_some(), "the daemon does not answer");
    daemon
}

/// Returns how long HyperQueue takes to run a program this often on two CPUs; `None` if it is not
/// installed for the Python in `SLOTD_BENCH_PYTHON`.
pub fn hyperqueue(dir: &Path, count: u32, program: &Path) -> Option<Duration> {
    let python = std::env::var("SLOTD_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import hyperqueue"]).output();
    has_it.ok().filter(|out| out.status.success())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/hq_tasks.py");
    let out = Command::new(&python)
        .arg(script)
        .arg(count.to_string())
        .arg(program)
        .current_dir(dir)
        .output();
    let text = String::from_utf8_lossy(&out.expect("python").stdout).into_owned();
    let secs = text
        .lines()
        .find_map(|line| line.strip_prefix("seconds "))
        .expect("python prints its seconds");
    Some(Duration::from_secs_f64(secs.parse().expect("the seconds are a number")))
}

/// Returns the minimum and the median in milliseconds.
pub fn summary(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    (ms(times[0]), ms(times[times.len() / 2]))
}

pub fn timed(mut run: impl FnMut()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}
