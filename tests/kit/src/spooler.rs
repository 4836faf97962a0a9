//! task-spooler, if installed, for comparison with slotd.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A private task-spooler server.
pub struct Spooler {
    socket: PathBuf,
    dir: PathBuf,
    slots: u32,
}

impl Spooler {
    /// Starts a server that runs this many jobs at once; `None` if task-spooler is not installed.
    pub fn start(dir: &Path, slots: u32) -> Option<Spooler> {
        Command::new("tsp").arg("-V").output().ok()?;
        let spooler = Spooler { socket: dir.join("tsp"), dir: dir.to_owned(), slots };
        spooler.run(&["-n", "true"], &[]);
        spooler.run(&["-w"], &[]);
        Some(spooler)
    }

    /// Runs `tsp` and returns its output.
    pub fn run(&self, args: &[&str], env: &[(&str, &Path)]) -> Output {
        let mut command = Command::new("tsp");
        command.args(args).envs(env.iter().copied()).current_dir(&self.dir);
        command
            .env("TS_SOCKET", &self.socket)
            .env("TS_SLOTS", self.slots.to_string())
            .env("TMPDIR", &self.dir);
        command.env("TS_MAXFINISHED", "1000000");
        // The server keeps the streams of the first call.
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let out = command.output().expect("tsp");
        assert!(out.status.success(), "tsp {args:?}");
        out
    }

    /// Waits until all jobs have ended.
    pub fn drained(&self) {
        let busy = || String::from_utf8_lossy(&self.run(&[], &[]).stdout).lines().any(is_live);
        assert!(
            crate::until(|| (!busy()).then_some(())).is_some(),
            "task-spooler does not finish its jobs"
        );
        self.run(&["-C"], &[]);
    }
}

/// Whether a line of task-spooler's list shows an unfinished job.
fn is_live(line: &str) -> bool {
    matches!(line.split_whitespace().nth(1), Some("queued" | "running" | "allocating"))
}

impl Drop for Spooler {
    fn drop(&mut self) {
        self.run(&["-K"], &[]);
    }
}
