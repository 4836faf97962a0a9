//! An isolated daemon for a test: its root, home and commands are in a temporary directory, and it
//! does not inherit the caller's environment.

use slotd_kit::program;
use slotd_kit::scripts::{commands, wait_for};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A home directory with a root and the commands, and a daemon that can be killed and restarted.
pub struct Place {
    dir: tempfile::TempDir,
    settings: Vec<(&'static str, &'static str)>,
    daemon: Option<Child>,
}

impl Place {
    /// Starts the daemon with these variables and waits until it responds.
    pub fn new(settings: &[(&'static str, &'static str)]) -> Place {
        let dir = slotd_kit::tempdir();
        let mut place = Place { dir, settings: settings.to_vec(), daemon: None };
        for name in ["bin", "tmp", "work"] {
            fs::create_dir(place.path(name)).expect("a fresh directory");
        }
        symlink(program(), place.path("bin/slotd")).expect("a link");
        for name in commands() {
            symlink(program(), place.path("bin").join(name)).expect("a link");
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

    /// Returns a command in this environment, with empty standard input.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.dir.path())
            .env("TMPDIR", self.path("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", slotd_kit::zone())
            .env("SLOTD_ROOT", self.root())
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    pub fn start(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("a log file");
        let mut daemon = self.command(program());
        daemon.arg("daemon").envs(self.settings.iter().copied());
        daemon.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.daemon = Some(daemon.spawn().expect("the daemon starts"));
        wait_for(
            "the daemon answers",
            || self.log(),
            || self.command("sinfo").output().ok()?.status.success().then_some(()),
        );
    }

    /// Kills the daemon without a shutdown, as a crash would.
    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("our child process");
            daemon.wait().expect("our child process");
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Jobs that a failed test left running would outlive the daemon.
        let _ = self.command("scancel").args(["--me", "--quiet"]).output();
        self.kill_daemon();
    }
}
