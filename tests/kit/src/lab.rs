//! What the benchmarks of whole commands share: a daemon with a root of its own, and times.

use crate::proc;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The owner's file.
const CONFIG: &str = "slotd.toml";

/// A daemon whose root lies in a directory of its own; dropping it ends it.
pub struct Lab {
    pub dir: tempfile::TempDir,
    cpus: u32,
    daemon: Child,
}

impl Lab {
    /// A daemon with so many CPUs and a root of its own.
    pub fn start(cpus: u32) -> Lab {
        Lab::with(cpus, "")
    }

    /// One whose owner says this in `slotd.toml`.
    pub fn with(cpus: u32, config: &str) -> Lab {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(CONFIG), config).expect("a file in it");
        let daemon = serve(dir.path(), cpus);
        Lab { dir, cpus, daemon }
    }

    /// Does something with the runtime root while no daemon has it.
    pub fn while_stopped(&mut self, change: impl FnOnce(&Path)) {
        self.daemon.kill().expect("it is ours");
        self.daemon.wait().expect("it is ours");
        change(&self.path("root"));
        self.daemon = serve(self.dir.path(), self.cpus);
    }

    pub fn daemon_pid(&self) -> i32 {
        self.daemon.id().cast_signed()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until the watchers of earlier jobs, which wait a moment for the next launch, are gone.
    pub fn settle(&self) {
        let waits = || {
            proc::of_directory(self.dir.path())
                .into_iter()
                .any(|pid| proc::name(pid) == "slotd-idle")
        };
        crate::until(|| (!waits()).then_some(())).expect("no watcher waits for ever");
    }

    /// A command, in this lab.
    pub fn command(&self, command: &str) -> Command {
        let mut program = Command::new(crate::program());
        program.arg(command).env("SLOTD_ROOT", self.path("root")).current_dir(self.dir.path());
        program
    }

    /// What a command prints.
    pub fn run(&self, command: &str, args: &[&str]) -> String {
        let out = self.command(command).args(args).output().expect("the program");
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

/// A daemon of the root in this directory, once it answers.
fn serve(dir: &Path, cpus: u32) -> Child {
    let daemon = Command::new(crate::program())
        .arg("daemon")
        .env("SLOTD_ROOT", dir.join("root"))
        .env("SLOTD_CPUS", cpus.to_string())
        .env("SLOTD_CONFIG", dir.join(CONFIG))
        // A long history stays.
        .env("SLOTD_KEEP_JOBS", "unlimited")
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon");
    let ready = crate::until(|| crate::wire::connect(&dir.join("root")).ok());
    assert!(ready.is_some(), "the daemon does not answer");
    daemon
}

/// How long HyperQueue takes for so many runs of a program on two CPUs; `None` where the Python
/// that `SLOTD_BENCH_PYTHON` names does not have it.
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
    let secs = text.lines().find_map(|line| line.strip_prefix("seconds ")).expect("its seconds");
    Some(Duration::from_secs_f64(secs.parse().expect("a number")))
}

/// Minimum and median in milliseconds.
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
