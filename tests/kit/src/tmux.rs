//! A terminal to run commands in, provided by tmux if installed.

use crate::Slotd;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A terminal with 100 columns and 30 rows.
pub struct Tmux {
    socket: PathBuf,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

impl Tmux {
    /// Runs a shell command in a new terminal. Returns `None` if tmux is not installed.
    #[track_caller]
    pub fn start(slotd: &Slotd, command: &str) -> Option<Tmux> {
        let there = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
        if !there {
            eprintln!("not tested: tmux is not installed");
            return None;
        }
        // The previous server may still be shutting down, so each one gets its own socket.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let tmux = Tmux {
            socket: slotd.base.join(format!("tmux{}", STARTED.fetch_add(1, Ordering::Relaxed))),
        };
        let mut server = slotd.shell();
        server
            .env("LANG", "C.UTF-8")
            .args(["-c", "exec tmux -u -f /dev/null -S \"$@\"", "tmux"])
            .arg(&tmux.socket);
        let out =
            server.args(["new-session", "-d", "-x", "100", "-y", "30", command]).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        Some(tmux)
    }

    /// Runs a tmux command.
    pub fn run(&self, words: &[&str]) -> Output {
        Command::new("tmux")
            .arg("-u")
            .arg("-S")
            .arg(&self.socket)
            .args(words)
            .output()
            .expect("tmux runs")
    }

    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until this text is on the screen, and returns the whole screen.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        let mut last = String::new();
        let found = crate::until(|| {
            last = self.screen();
            last.contains(text).then_some(())
        });
        assert!(found.is_some(), "{text:?} is not on the screen:\n{last}");
        last
    }

    #[track_caller]
    pub fn hides(&self, text: &str) {
        let found = crate::until(|| (!self.screen().contains(text)).then_some(()));
        assert!(found.is_some(), "{text:?} stays on the screen:\n{}", self.screen());
    }

    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Returns the process in the terminal.
    pub fn pid(&self) -> i32 {
        let out = self.run(&["display-message", "-p", "#{pane_pid}"]);
        String::from_utf8_lossy(&out.stdout).trim().parse().expect("a pid")
    }
}
