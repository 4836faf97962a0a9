//! task-spooler, where it is installed: what slotd is measured beside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server of task-spooler of its own.
pub struct Spooler {
    socket: PathBuf,
    dir: PathBuf,
    slots: u32,
}

impl Spooler {
    /// One that runs so many at once; `None` where there is no task-spooler.
    pub fn start(dir: &Path, slots: u32) -> Option<Spooler> {
        Command::new("tsp").arg("-V").output().ok()?;
        let spooler = Spooler { socket: dir.join("tsp"), dir: dir.to_owned(), slots };
        spooler.run(&["-n", "true"], &[]);
        spooler.run(&["-w"], &[]);
        Some(spooler)
    }

    /// What a call prints.
    pub fn run(&self, args: &[&str], env: &[(&str, &Path)]) -> Output {
        let mut command = Command::new("tsp");
        command.args(args).envs(env.iter().copied()).current_dir(&self.dir);
        command
            .env("TS_SOCKET", &self.socket)
            .env("TS_SLOTS", self.slots.to_string())
            .env("TMPDIR", &self.dir);
        command.env("TS_MAXFINISHED", "1000000");
        // Its server keeps the streams of the first call.
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let out = command.output().expect("tsp");
        assert!(out.status.success(), "tsp {args:?}");
        out
    }

    /// Waits until no job waits or runs.
    pub fn drained(&self) {
        let busy = || String::from_utf8_lossy(&self.run(&[], &[]).stdout).lines().any(is_live);
        assert!(
            crate::until(|| (!busy()).then_some(())).is_some(),
            "task-spooler does not end its jobs"
        );
        self.run(&["-C"], &[]);
    }
}

/// Whether a line of task-spooler's list is of a job that is not over.
fn is_live(line: &str) -> bool {
    matches!(line.split_whitespace().nth(1), Some("queued" | "running" | "allocating"))
}

impl Drop for Spooler {
    fn drop(&mut self) {
        self.run(&["-K"], &[]);
    }
}
