//! The systemd user units: the daemon, its socket, and the cgroup of the jobs.

use super::files::Removal;
use super::layout::Layout;
use super::output::{fail, note, report_step};
use super::{daemon, files};
use crate::args::error::CliError;
use crate::client::connection::Connection;
use crate::daemon::detached;
use nix::unistd::getuid;
use slotd_parse::env_file::EnvFile;
use slotd_sys::files::MOST_SETTINGS;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const UNIT: &str = "slotd.service";

const SOCKET: &str = "slotd.socket";
const JOBS: &str = "slotd-jobs.service";

/// The units for the default paths. An installed unit is recognized by its description, which must
/// not change.
const TEMPLATES: [(&str, &str); 3] = [
    (UNIT, include_str!("../../../contrib/systemd/slotd.service")),
    (SOCKET, include_str!("../../../contrib/systemd/slotd.socket")),
    (JOBS, include_str!("../../../contrib/systemd/slotd-jobs.service")),
];

/// Maximum length of a path in a socket address.
const MAX_ADDRESS: usize = 107;

/// A reachable systemd user manager.
pub struct Manager {
    /// Variables with its address that this process's environment lacks.
    env: Vec<(&'static str, OsString)>,
}

impl Manager {
    pub fn find() -> Option<Manager> {
        let manager = Manager { env: Vec::new() };
        if manager.is_ok(&["show-environment"]) {
            return Some(manager);
        }
        // Under su or cron, the environment lacks the address.
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

    /// Runs a systemctl command without output. Returns whether it succeeded.
    fn is_ok(&self, args: &[&str]) -> bool {
        let status = self.systemctl(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Runs a systemctl command.
    ///
    /// # Errors
    /// Fails if the command fails. The command prints the reason.
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
    report_step(&format!("start the systemd user service {UNIT}"));
    // With a manager, only the service may start the daemon.
    files::remove_daemon_script(layout)?;
    manager.must(&["daemon-reload"])?;
    // A daemon started manually would block the service from using this root.
    let main = manager.property(&["show", "--property=MainPID", "--value", UNIT]);
    daemon::stop(&layout.paths, main.parse().ok())?;
    let searched = manager.property(&["show", "--property=UnitPath", "--value"]);
    let is_searched = searched.split_whitespace().any(|dir| Path::new(dir) == layout.unit_dir);
    if !is_searched {
        // The manager does not search this directory, and the service refers to the jobs' unit by
        // name.
        manager.must(&["link", "--quiet", &layout.unit_dir.join(JOBS).display().to_string()])?;
    }
    for name in [SOCKET, UNIT].into_iter().filter(|name| has_socket || *name != SOCKET) {
        let file = layout.unit_dir.join(name).display().to_string();
        // If the unit is enabled by its path, systemctl also links it.
        manager.must(&["enable", "--quiet", if is_searched { name } else { &file }])?;
        manager.is_ok(&["reset-failed", name]);
    }
    if has_socket {
        listen(layout, manager)?;
    }
    // Returns when the daemon has reported that it is ready, or has failed.
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

/// Makes the manager listen on the socket. A socket that is already active is not restarted, so
/// that clients waiting for the next daemon keep their places.
fn listen(layout: &Layout, manager: &Manager) -> Result<(), CliError> {
    let listens = manager.property(&["show", "--property=Listen", "--value", SOCKET]);
    let is_there = listens.starts_with(&format!("{} ", layout.paths.socket().display()));
    if is_there && manager.is_ok(&["is-active", "--quiet", SOCKET]) {
        return Ok(());
    }
    // The manager cannot listen for a service that is already running.
    manager.is_ok(&["stop", SOCKET, UNIT]);
    manager.must(&["start", SOCKET])
}

fn advise(settings: &EnvFile, manager: &Manager) {
    let mut linger = manager
        .command("loginctl", &["show-user", &getuid().to_string(), "--property=Linger", "--value"]);
    if linger.stderr(Stdio::null()).output().is_ok_and(|output| output.stdout.trim_ascii() == b"no")
    {
        note(
            "it stops and its jobs end when you log out; to keep them running: loginctl enable-linger",
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
            "to make the kernel enforce the memory and CPU limits of jobs, install with --cgroup-base auto",
        );
    }
}

/// Stops the service but keeps it installed. Returns whether it was running.
pub fn stop(layout: &Layout) -> bool {
    if !units(layout).0.contains(&layout.unit_dir.join(UNIT)) {
        return false;
    }
    let Some(manager) = Manager::find() else { return false };
    let ran = manager.is_ok(&["is-active", "--quiet", UNIT]);
    // Also stop the socket: its clients would start the daemon again.
    manager.is_ok(&["stop", SOCKET, UNIT]);
    ran
}

/// Starts the socket and the service again.
pub fn start_again() {
    if let Some(manager) = Manager::find() {
        manager.is_ok(&["start", SOCKET]);
        if !manager.is_ok(&["start", UNIT]) {
            note(&format!("cannot restart the service: see journalctl --user -u {UNIT}"));
        }
    }
}

/// Returns the files with the names of the units that are not slotd's.
pub fn foreign_units(layout: &Layout) -> Vec<PathBuf> {
    let (_, foreign) = units(layout);
    foreign
}

/// Returns the installed units, and the other files with their names.
fn units(layout: &Layout) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let files = TEMPLATES.iter().map(|(name, template)| (layout.unit_dir.join(name), *template));
    let files = files.filter(|(file, _)| file.symlink_metadata().is_ok());
    let is_ours = |(file, template): &(PathBuf, &str)| {
        let text = slotd_sys::files::read_text(file, MOST_SETTINGS).unwrap_or_default();
        !file.is_symlink() && description(&text) == description(template)
    };
    let (ours, foreign): (Vec<_>, Vec<_>) = files.partition(is_ours);
    let paths = |files: Vec<(PathBuf, &str)>| files.into_iter().map(|(file, _)| file).collect();
    (paths(ours), paths(foreign))
}

fn description(unit: &str) -> Option<&str> {
    unit.lines().find(|line| line.starts_with("Description="))
}

/// Stops the service and removes its units. Returns whether there were any.
pub fn remove(layout: &Layout, removal: &mut Removal) -> bool {
    let (files, foreign) = units(layout);
    for file in foreign {
        note(&format!("kept {}, which is not slotd's", file.display()));
    }
    if files.is_empty() {
        return false;
    }
    let manager = Manager::find();
    if let Some(manager) = &manager {
        manager.is_ok(&["disable", "--now", SOCKET]);
        if !manager.is_ok(&["disable", "--now", UNIT]) {
            note(&format!(
                "systemctl --user disable --now {UNIT} failed; the daemon is stopped directly"
            ));
        }
        // This unit contains running jobs, which must continue.
        if detached::running_steps(&layout.paths) == 0 {
            manager.is_ok(&["stop", JOBS]);
        }
    }
    for file in files.iter().filter(|file| removal.remove(file)) {
        note(&format!("removed {}", file.display()));
    }
    if let Some(manager) = manager {
        manager.is_ok(&["daemon-reload"]);
    }
    true
}

/// Returns the unit with the paths of the installation, with `%` escaped for systemd.
fn unit(template: &str, program: &Path, env_file: &Path, socket: &Path) -> String {
    let own = |path: &Path| path.display().to_string().replace('%', "%%");
    let (program, env_file, socket) = (own(program), own(env_file), own(socket));
    // systemd allows no quotes in the path of a program. It does in an argument, in which it also
    // expands $.
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
        // The jobs' unit does not run slotd.
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
    fn units_are_recognized_by_descriptions_that_do_not_change() {
        let known = TEMPLATES.map(|(_, template)| description(template));
        let expected = [
            "slotd, Slurm for one machine",
            "Socket of slotd, Slurm for one machine",
            "Jobs of slotd",
        ];
        assert_eq!(
            known,
            expected
                .map(|text| Some(format!("Description={text}")))
                .each_ref()
                .map(Option::as_deref)
        );
    }

    #[test]
    fn paths_are_escaped_for_systemd() {
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
