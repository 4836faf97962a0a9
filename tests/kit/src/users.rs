//! A daemon that runs as another user. Only root can start one.

use crate::{Out, Slotd, program};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An unprivileged user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Returns `nobody` if this process can switch to that user and that user can run slotd. Otherwise
/// prints the reason and returns `None`.
pub fn nobody() -> Option<User> {
    let found = Command::new("getent").args(["passwd", "nobody"]).output().ok()?;
    let line = String::from_utf8_lossy(&found.stdout).into_owned();
    let field = |at: usize| line.trim_end().split(':').nth(at);
    let user = User {
        name: field(0)?.to_owned(),
        uid: field(2)?.parse().ok()?,
        gid: field(3)?.parse().ok()?,
    };
    let mut trial = Command::new(program());
    let runs = trial
        .arg("--version")
        .uid(user.uid)
        .gid(user.gid)
        .output()
        .is_ok_and(|out| out.status.success());
    if !runs {
        println!("skipped: this process cannot run slotd as {}", user.name);
    }
    runs.then_some(user)
}

impl Slotd {
    /// Gives the test's directory to the user, and starts the daemon as that user.
    #[track_caller]
    pub fn start_daemon_as(&mut self, user: &User) {
        give(&self.base, user);
        let mut daemon = self.daemon_command();
        daemon.uid(user.uid).gid(user.gid);
        self.start_daemon_by(daemon);
    }

    /// Runs a command as the user.
    #[track_caller]
    pub fn cmd_as(&self, user: &User, name: &str, args: &[&str]) -> Out {
        let mut command = self.command(name);
        command.args(args).uid(user.uid).gid(user.gid);
        self.run(command)
    }
}

/// Changes the owner of the directory and everything in it, without following links.
pub fn give(path: &Path, user: &User) {
    chown(path, Some(user.uid), Some(user.gid)).unwrap();
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => give(&entry.path(), user),
            kind if kind.is_symlink() => {}
            _ => chown(entry.path(), Some(user.uid), Some(user.gid)).unwrap(),
        }
    }
}
