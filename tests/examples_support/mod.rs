//! A daemon of its own for a test: its root, its home and its commands lie in a temporary directory, and nothing of the
//! caller's environment reaches it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test.
pub const SLOTD: &str = env!("CARGO_BIN_EXE_slotd");

/// The Slurm commands, as the program tells them itself.
pub fn commands() -> Vec<String> {
    let help = Command::new(SLOTD).arg("--help").output().expect("slotd runs").stdout;
    let help = String::from_utf8(help).expect("help is text");
    let line = help.lines().find_map(|line| line.strip_prefix("Commands:")).expect("help lists the commands");
    line.split_whitespace().map(str::to_owned).collect()
}

/// Asks again and again, since what is waited for is told by no event, until there is an answer.
///
/// # Panics
/// After [`PATIENCE`], with what `dump` says.
pub fn wait_for<T>(what: &str, dump: impl Fn() -> String, mut ask: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}\n{}", dump());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A home, a root below it, the commands, and a daemon that can be killed and started again.
pub struct Place {
    dir: tempfile::TempDir,
    settings: Vec<(&'static str, &'static str)>,
    daemon: Option<Child>,
}

impl Place {
    /// Starts the daemon with the given variables, and waits until it answers.
    pub fn new(settings: &[(&'static str, &'static str)]) -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut place = Place { dir, settings: settings.to_vec(), daemon: None };
        for name in ["bin", "tmp", "work"] {
            fs::create_dir(place.path(name)).expect("a fresh directory");
        }
        symlink(SLOTD, place.path("bin/slotd")).expect("a link");
        for name in commands() {
            symlink(SLOTD, place.path("bin").join(name)).expect("a link");
        }
        place.start();
        place
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// A program in the environment of this place, with empty standard input.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.dir.path())
            .env("TMPDIR", self.path("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .env("SLOTD_ROOT", self.root())
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    pub fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).expect("a log file");
        let mut daemon = self.command(SLOTD);
        daemon.arg("daemon").envs(self.settings.iter().copied());
        daemon.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.daemon = Some(daemon.spawn().expect("the daemon starts"));
        wait_for(
            "the daemon answers",
            || self.log(),
            || self.command("sinfo").output().ok()?.status.success().then_some(()),
        );
    }

    /// As a crash does it: nothing is said goodbye to.
    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("it was ours");
            daemon.wait().expect("it was ours");
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a failed test left running would outlive the daemon.
        let _ = self.command("scancel").args(["--me", "--quiet"]).output();
        self.kill_daemon();
    }
}

/// Standard output of a program that must succeed.
///
/// # Panics
/// With everything it said, where it did not.
pub fn must(command: &mut Command, log: impl Fn() -> String) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n--- stdout\n{stdout}--- stderr\n{stderr}--- daemon\n{}", log());
    stdout.into_owned()
}
