//! The units of the systemd user manager: the daemon, its socket, and the cgroup of the jobs.

use super::layout::Layout;
use super::say::{fail, note, say};
use super::{daemon, files};
use crate::args::error::CliError;
use crate::client::connection::Connection;
use crate::daemon::detached;
use crate::parse::env_file::EnvFile;
use nix::unistd::getuid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const UNIT: &str = "slotd.service";

const SOCKET: &str = "slotd.socket";
const JOBS: &str = "slotd-jobs.service";

/// The units as they fit the default paths.
const TEMPLATES: [(&str, &str); 3] = [
    (UNIT, include_str!("../../../contrib/systemd/slotd.service")),
    (SOCKET, include_str!("../../../contrib/systemd/slotd.socket")),
    (JOBS, include_str!("../../../contrib/systemd/slotd-jobs.service")),
];

/// A socket address holds no longer path.
const MAX_ADDRESS: usize = 107;

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
            _ => Err(fail(format!(
                "systemctl --user {} failed: see its message above",
                args.join(" ")
            ))),
        }
    }

    fn property(&self, args: &[&str]) -> String {
        let output = self.systemctl(args).stderr(Stdio::null()).output();
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .unwrap_or_default()
    }
}

/// Installs the units and starts the service.
pub fn start(layout: &Layout, settings: &EnvFile, manager: &Manager) -> Result<(), CliError> {
    files::make_dir(&layout.unit_dir)?;
    let socket = layout.paths.socket();
    let has_socket = socket.as_os_str().len() <= MAX_ADDRESS;
    for (name, template) in TEMPLATES.iter().filter(|(name, _)| has_socket || *name != SOCKET) {
        let text = unit(template, &layout.program, &layout.env_file, &socket);
        files::write_file(&layout.unit_dir.join(name), text.as_bytes(), 0o644)?;
    }
    say(&format!("start the systemd user service {UNIT}"));
    // The manager starts the daemon, and nothing else.
    if layout.daemon_script.exists() {
        files::remove(&layout.daemon_script)?;
    }
    manager.must(&["daemon-reload"])?;
    // A daemon that was started by hand would keep the service from serving this root.
    let main = manager.property(&["show", "--property=MainPID", "--value", UNIT]);
    daemon::stop(&layout.paths, main.parse().ok())?;
    let searched = manager.property(&["show", "--property=UnitPath", "--value"]);
    let is_searched = searched.split_whitespace().any(|dir| Path::new(dir) == layout.unit_dir);
    if !is_searched {
        // Elsewhere than the manager looks: without its link the service could not name it.
        manager.must(&["link", "--quiet", &layout.unit_dir.join(JOBS).display().to_string()])?;
    }
    for name in [SOCKET, UNIT].into_iter().filter(|name| has_socket || *name != SOCKET) {
        let file = layout.unit_dir.join(name).display().to_string();
        // Enabling by path links the unit.
        manager.must(&["enable", "--quiet", if is_searched { name } else { &file }])?;
        manager.is_ok(&["reset-failed", name]);
    }
    if has_socket {
        listen(layout, manager)?;
    }
    // It returns when the daemon has said that it serves, or has failed.
    if !manager.is_ok(&["restart", UNIT]) || Connection::open(&layout.paths).is_err() {
        let journal = ["--user", "--unit", UNIT, "--lines=5", "--output=cat"];
        let _ = manager.command("journalctl", &journal).status();
        return Err(fail(format!(
            "the service does not answer: see journalctl --user -u {UNIT}, correct {}, and run the installer again",
            layout.env_file.display()
        )));
    }
    advise(settings, manager);
    Ok(())
}

/// Has the manager listen at the socket. One that listens there goes on: those who wait for the
/// next daemon keep their places.
fn listen(layout: &Layout, manager: &Manager) -> Result<(), CliError> {
    let listens = manager.property(&["show", "--property=Listen", "--value", SOCKET]);
    let is_there = listens.starts_with(&format!("{} ", layout.paths.socket().display()));
    if is_there && manager.is_ok(&["is-active", "--quiet", SOCKET]) {
        return Ok(());
    }
    // It cannot listen for a service that runs already.
    manager.is_ok(&["stop", SOCKET, UNIT]);
    manager.must(&["start", SOCKET])
}

fn advise(settings: &EnvFile, manager: &Manager) {
    let mut linger = manager
        .command("loginctl", &["show-user", &getuid().to_string(), "--property=Linger", "--value"]);
    if linger.stderr(Stdio::null()).output().is_ok_and(|output| output.stdout.trim_ascii() == b"no")
    {
        note(
            "it stops when you log out, and its jobs end; to let them run on: loginctl enable-linger",
        );
    }
    let has_base = settings.get("SLOTD_CGROUP_BASE").is_some_and(|base| !base.is_empty());
    let group = manager.property(&["show", "--property=ControlGroup", "--value", JOBS]);
    let controllers = std::fs::read_to_string(format!("/sys/fs/cgroup{group}/cgroup.controllers"))
        .unwrap_or_default();
    if !has_base
        && ["cpu", "memory"]
            .iter()
            .all(|name| controllers.split_whitespace().any(|word| word == *name))
    {
        note(
            "to have jobs held to their memory and CPUs by the kernel, install with --cgroup-base auto",
        );
    }
}

/// Stops the service, which stays installed. Whether there is one that ran.
pub fn stop(layout: &Layout) -> bool {
    if !layout.unit_dir.join(UNIT).exists() {
        return false;
    }
    let Some(manager) = Manager::find() else { return false };
    let ran = manager.is_ok(&["is-active", "--quiet", UNIT]);
    // Clients of the socket would start the daemon again.
    manager.is_ok(&["stop", SOCKET, UNIT]);
    ran
}

/// Starts it again, as it was.
pub fn start_again() {
    if let Some(manager) = Manager::find() {
        manager.is_ok(&["start", SOCKET]);
        if !manager.is_ok(&["start", UNIT]) {
            note(&format!("it could not be started again: see journalctl --user -u {UNIT}"));
        }
    }
}

/// Ends the service and removes its units; whether there were some.
pub fn remove(layout: &Layout) -> Result<bool, CliError> {
    let files: Vec<PathBuf> =
        TEMPLATES.iter().map(|(name, _)| layout.unit_dir.join(name)).collect();
    let files: Vec<PathBuf> =
        files.into_iter().filter(|file| file.symlink_metadata().is_ok()).collect();
    if files.is_empty() {
        return Ok(false);
    }
    let manager = Manager::find();
    if let Some(manager) = &manager {
        manager.is_ok(&["disable", "--now", SOCKET]);
        if !manager.is_ok(&["disable", "--now", UNIT]) {
            note(&format!(
                "systemctl --user disable --now {UNIT} failed; the daemon is stopped by its process"
            ));
        }
        // Running jobs are in it, and go on.
        if detached::running_steps(&layout.paths) == 0 {
            manager.is_ok(&["stop", JOBS]);
        }
    }
    for file in &files {
        files::remove(file)?;
        note(&format!("removed {}", file.display()));
    }
    if let Some(manager) = manager {
        manager.is_ok(&["daemon-reload"]);
    }
    Ok(true)
}

/// The unit with the paths of the installation; `%` is systemd's own sign.
fn unit(template: &str, program: &Path, env_file: &Path, socket: &Path) -> String {
    let own = |path: &Path| path.display().to_string().replace('%', "%%");
    let (program, env_file, socket) = (own(program), own(env_file), own(socket));
    // A program itself may have no quotes in its path; an argument may, and has $ expanded.
    let argument = |text: &str| {
        let word = text.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$");
        format!("\"{word}\"")
    };
    let program = if program.contains(['"', '\'', '\\']) {
        format!("/usr/bin/env {}", argument(&program))
    } else {
        format!("\"{program}\"")
    };
    let line = |line: &str| match line.split_once('=') {
        // That of the jobs' unit runs nothing of ours.
        Some(("ExecStart", command)) if !command.contains("slotd daemon") => format!("{line}\n"),
        Some(("ExecStart", _)) => {
            format!("ExecStart={program} daemon --env-file {}\n", argument(&env_file))
        }
        Some(("EnvironmentFile", _)) => format!("EnvironmentFile={env_file}\n"),
        Some(("ListenStream", _)) => format!("ListenStream={socket}\n"),
        _ => format!("{line}\n"),
    };
    template.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(program: &str, env_file: &str) -> String {
        unit(TEMPLATES[0].1, Path::new(program), Path::new(env_file), Path::new("/s"))
    }

    #[test]
    fn paths_are_written_so_that_systemd_reads_them_back() {
        let text = service("/a b/100%/slotd", "/c d/50%/slotd.env");
        assert!(
            text.contains(
                "\nExecStart=\"/a b/100%%/slotd\" daemon --env-file \"/c d/50%%/slotd.env\"\n"
            ),
            "{text}"
        );
        assert!(text.contains("\nEnvironmentFile=/c d/50%%/slotd.env\n"), "{text}");
        let text = service("/it's/$x/slotd", "/e");
        assert!(
            text.contains(
                "\nExecStart=/usr/bin/env \"/it's/$$x/slotd\" daemon --env-file \"/e\"\n"
            ),
            "{text}"
        );
        let text = unit(
            TEMPLATES[1].1,
            Path::new("/p"),
            Path::new("/e"),
            Path::new("/r 1%/run/slotd.sock"),
        );
        assert!(text.contains("\nListenStream=/r 1%%/run/slotd.sock\n"), "{text}");
        let text = unit(TEMPLATES[2].1, Path::new("/p"), Path::new("/e"), Path::new("/s"));
        assert!(text.contains("\nExecStart=/usr/bin/env sleep infinity\n"), "{text}");
    }
}
