//! The service of the systemd user manager.

use super::layout::Layout;
use super::{fail, files, note, say, stop_daemon};
use crate::args::error::CliError;
use crate::client::connection::Connection;
use nix::unistd::getuid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const UNIT: &str = "slotd.service";

/// The unit as it fits the default paths.
const TEMPLATE: &str = include_str!("../../../contrib/systemd/slotd.service");

/// A systemd user manager that answers.
pub struct Manager {
    /// Its address, where the environment lacks it.
    env: Vec<(&'static str, OsString)>,
}

impl Manager {
    pub fn find() -> Option<Manager> {
        let manager = Manager { env: Vec::new() };
        if manager.is_ok(&["show-environment"]) {
            return Some(manager);
        }
        // Under su or cron the address is missing.
        let dir = PathBuf::from(format!("/run/user/{}", getuid()));
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if is_set("XDG_RUNTIME_DIR") || !dir.join("systemd/private").exists() {
            return None;
        }
        let mut env = vec![("XDG_RUNTIME_DIR", dir.clone().into_os_string())];
        let bus = dir.join("bus");
        if !is_set("DBUS_SESSION_BUS_ADDRESS") && bus.exists() {
            env.push(("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", bus.display()).into()));
        }
        let manager = Manager { env };
        manager.is_ok(&["show-environment"]).then_some(manager)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).envs(self.env.iter().cloned()).stdin(Stdio::null());
        command
    }

    fn systemctl(&self, args: &[&str]) -> Command {
        self.command("systemctl", &[&["--user"], args].concat())
    }

    /// In silence.
    fn is_ok(&self, args: &[&str]) -> bool {
        let status = self.systemctl(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// # Errors
    /// It fails; it has said why on standard error.
    fn must(&self, args: &[&str]) -> Result<(), CliError> {
        match self.systemctl(args).status() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(fail(format!("systemctl --user {} failed: see its message above", args.join(" ")))),
        }
    }

    fn property(&self, args: &[&str]) -> String {
        let output = self.systemctl(args).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    }
}

/// Installs the unit and starts the service.
pub fn start(layout: &Layout, manager: &Manager) -> Result<(), CliError> {
    files::make_dir(&layout.unit_dir)?;
    files::write_file(&layout.unit_file, unit(&layout.program, &layout.env_file).as_bytes(), 0o644)?;
    say(&format!("start the systemd user service {UNIT}"));
    // The manager starts the daemon, and nothing else.
    if layout.daemon_script.exists() {
        files::remove(&layout.daemon_script)?;
    }
    manager.must(&["daemon-reload"])?;
    // A daemon that was started by hand would keep the service from serving this root.
    let main = manager.property(&["show", "--property=MainPID", "--value", UNIT]);
    stop_daemon(&layout.paths, main.parse().ok())?;
    let searched = manager.property(&["show", "--property=UnitPath", "--value"]);
    let unit_file = layout.unit_file.display().to_string();
    let is_searched = searched.split_whitespace().any(|dir| Path::new(dir) == layout.unit_dir);
    // Elsewhere than the manager looks, enabling by path links the unit.
    manager.must(&["enable", "--quiet", if is_searched { UNIT } else { &unit_file }])?;
    manager.is_ok(&["reset-failed", UNIT]);
    // It returns when the daemon has said that it serves, or has failed.
    if !manager.is_ok(&["restart", UNIT]) || Connection::open(&layout.paths).is_err() {
        let journal = ["--user", "--unit", UNIT, "--lines=5", "--output=cat"];
        let _ = manager.command("journalctl", &journal).status();
        return Err(fail(format!(
            "the service does not answer: see journalctl --user -u {UNIT}, correct {}, and run the installer again",
            layout.env_file.display()
        )));
    }
    let mut linger = manager.command("loginctl", &["show-user", &getuid().to_string(), "--property=Linger", "--value"]);
    if linger.stderr(Stdio::null()).output().is_ok_and(|output| output.stdout.trim_ascii() == b"no") {
        note("it stops when you log out; to let it and its jobs run on: loginctl enable-linger");
    }
    Ok(())
}

/// Ends the service and removes its unit; whether there was one.
pub fn remove(layout: &Layout) -> Result<bool, CliError> {
    if layout.unit_file.symlink_metadata().is_err() {
        return Ok(false);
    }
    let manager = Manager::find();
    if manager.as_ref().is_some_and(|manager| !manager.is_ok(&["disable", "--now", UNIT])) {
        note(&format!("systemctl --user disable --now {UNIT} failed; the daemon is stopped by its process"));
    }
    files::remove(&layout.unit_file)?;
    if let Some(manager) = manager {
        manager.is_ok(&["daemon-reload"]);
    }
    note(&format!("removed {}", layout.unit_file.display()));
    Ok(true)
}

/// The unit with the paths of the installation; `%` is systemd's own sign.
fn unit(program: &Path, env_file: &Path) -> String {
    let program = program.display().to_string().replace('%', "%%");
    let env_file = env_file.display().to_string().replace('%', "%%");
    // A program itself may have no quotes in its path; an argument may, and has $ expanded.
    let program = if program.contains(['"', '\'', '\\']) {
        let word = program.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$");
        format!("/usr/bin/env \"{word}\"")
    } else {
        format!("\"{program}\"")
    };
    let line = |line: &str| match line.split_once('=') {
        Some(("ExecStart", _)) => format!("ExecStart={program} daemon\n"),
        Some(("EnvironmentFile", _)) => format!("EnvironmentFile={env_file}\n"),
        _ => format!("{line}\n"),
    };
    TEMPLATE.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_so_that_systemd_reads_them_back() {
        let text = unit(Path::new("/a b/100%/slotd"), Path::new("/c d/50%/slotd.env"));
        assert!(text.contains("\nExecStart=\"/a b/100%%/slotd\" daemon\n"), "{text}");
        assert!(text.contains("\nEnvironmentFile=/c d/50%%/slotd.env\n"), "{text}");
        let text = unit(Path::new("/it's/$x/slotd"), Path::new("/e"));
        assert!(text.contains("\nExecStart=/usr/bin/env \"/it's/$$x/slotd\" daemon\n"), "{text}");
    }
}
