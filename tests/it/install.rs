//! Tests `contrib/install.sh` in an empty home: installation, upgrade, refusal and removal. A stub
//! replaces `systemctl`, so the systemd user manager of the user who runs the tests is not
//! involved.

mod manual;

use slotd_kit::program;
use slotd_kit::scripts::{commands, executable, must, wait_for};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// No systemd user manager, as in a container or after `su`.
const NO_MANAGER: &str = "#!/bin/sh\nexit 1\n";

/// A minimal user manager for the installer: it logs its arguments, runs the unit's command, and
/// waits until the daemon serves.
const A_MANAGER: &str = r#"#!/usr/bin/env bash
shift # --user
echo "$*" >>"$HOME/systemctl.log"
running() { [ -e "$HOME/main.pid" ] && kill -0 "$(cat "$HOME/main.pid")" 2>/dev/null; }
end() { if running; then kill "$(cat "$HOME/main.pid")"; while running; do sleep 0.01; done; fi; }
case $1 in
  restart)
    end
    unit=$HOME/.config/systemd/user/slotd.service
    set -a
    . "$(sed -n 's/^EnvironmentFile=//p' "$unit")"
    eval "setsid $(sed -n 's/^ExecStart=//p' "$unit")" </dev/null >>"$HOME/service.log" 2>&1 &
    echo $! >"$HOME/main.pid"
    until "$HOME/.local/bin/sinfo" >/dev/null 2>&1; do running || exit 1; sleep 0.01; done
    ;;
  disable) end ;;
  is-active) if running; then echo active; else echo failed; fi ;;
  show)
    case $2 in
      --property=MainPID) if running; then cat "$HOME/main.pid"; else echo 0; fi ;;
      --property=UnitPath) echo "/etc/systemd/user $HOME/.config/systemd/user" ;;
    esac
    ;;
esac
"#;

/// Returns the build directory for the installer. It contains the binary under test without debug
/// information, which is most of the binary and would be written to disk by each installation.
fn build() -> &'static Path {
    static BUILD: LazyLock<PathBuf> = LazyLock::new(|| {
        let built = Path::new(program()).parent().expect("target/debug");
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(built.file_name().expect("a profile"));
        fs::create_dir_all(&dir).expect("cargo's directory for tests");
        // Another run of the tests may do the same concurrently.
        let new = dir.join(format!("slotd.{}", std::process::id()));
        must(Command::new("strip").arg("-o").arg(&new).arg(program()), String::new);
        fs::rename(&new, dir.join("slotd")).expect("the same directory");
        dir
    });
    &BUILD
}

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new(systemctl: &str) -> Home {
        let home = Home { dir: tempfile::tempdir().expect("a temporary directory") };
        fs::create_dir(home.path("stub")).expect("a fresh directory");
        home.script("stub/systemctl", systemctl);
        home
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn script(&self, below: &str, text: &str) {
        executable(&self.path(below), text);
    }

    /// Returns a command in this home, with the PATH of a login shell after the installation.
    /// `SLOTD_ROOT` is not set.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            self.path("stub").display(),
            self.path(".local/bin").display()
        );
        let mut command = Command::new("/usr/bin/env");
        command
            .env_clear()
            .env("HOME", self.dir.path())
            .env("PATH", path)
            .current_dir(self.dir.path());
        command.env("TMPDIR", self.dir.path()).stdin(Stdio::null()).arg(program.as_ref());
        command
    }

    /// Returns the installer command, with the binary under test in place of a build.
    fn installer(&self, args: &[&str]) -> Command {
        let dir = build();
        let profile = match dir.file_name().and_then(|name| name.to_str()).expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        let mut command =
            self.command(Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/install.sh"));
        command.env("CARGO_TARGET_DIR", dir.parent().expect("target"));
        command.args(["--skip-build", "--profile", profile]).args(args);
        command
    }

    fn install(&self, args: &[&str]) -> String {
        must(&mut self.installer(args), || self.log())
    }

    fn refused(&self, args: &[&str]) -> String {
        let output = self.installer(args).output().expect("a running process");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?} was accepted");
        // The error comes from either the script or the program.
        let is_error =
            message.starts_with("install.sh: error: ") || message.starts_with("slotd: error: ");
        assert!(is_error, "{args:?}: {message}");
        message
    }

    fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> String {
        must(self.command(program).args(args), || self.log())
    }

    fn log(&self) -> String {
        [".local/share/slotd/run/slotd.log", "service.log"]
            .map(|file| fs::read_to_string(self.path(file)).unwrap_or_default())
            .concat()
    }

    /// Returns everything in the home except the stub, including directories that `mkdir -p`
    /// created.
    fn left(&self) -> Vec<String> {
        let found = must(
            self.command("find").args([".", "-mindepth", "1", "-not", "-path", "./stub*"]),
            String::new,
        );
        found.lines().map(str::to_owned).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A failed test may leave jobs and a daemon running.
        let _ = self.command("scancel").args(["--me", "--quiet"]).output();
        let _ = self.installer(&["--uninstall"]).output();
    }
}

#[test]
fn an_installation_runs_a_job_and_can_be_upgraded_and_removed() {
    let home = Home::new(NO_MANAGER);
    let message = home.install(&[]);
    assert!(message.contains("there is no systemd user manager"), "{message}");
    assert!(
        message.contains("COMPLETED") && message.contains("hello from slotd: job 1 on "),
        "{message}"
    );
    for name in commands() {
        let link = fs::read_link(home.path(".local/bin").join(&name)).expect("a link");
        assert_eq!(link, Path::new("slotd"), "{name}");
    }
    assert_eq!(missing_pages(&home), [""; 0]);
    assert!(message.contains("man pages and completions"), "{message}");

    let script = "echo begun; until [ -e go ]; do sleep 0.05; done; echo finished";
    let job = home.run("sbatch", &["--parsable", "-o", "out", "--wrap", script]);
    let begun =
        || fs::read_to_string(home.path("out")).is_ok_and(|text| text == "begun\n").then_some(());
    wait_for("the job begins", || home.log(), begun);
    let before = home.run("slotd-daemon", &["status"]);
    let message = home.install(&[]);
    assert!(
        message.contains("running jobs continue") && message.contains("COMPLETED"),
        "{message}"
    );
    assert_ne!(before, home.run("slotd-daemon", &["status"]), "a new daemon is running");
    let printed = home.refused(&["--uninstall", "--purge-runtime"]);
    assert!(printed.contains("running jobs (1)") && printed.contains("scancel"), "{printed}");
    fs::write(home.path("go"), "").expect("a writable home");
    home.run(
        "sbatch",
        &["-W", "-o", "/dev/null", "-d", &format!("afterany:{}", job.trim()), "--wrap", "true"],
    );
    assert_eq!(fs::read_to_string(home.path("out")).expect("still there"), "begun\nfinished\n");
    assert_eq!(
        home.run("sacct", &["-X", "-n", "-P", "-o", "State", "-j", job.trim()]),
        "COMPLETED\n"
    );

    home.install(&["--uninstall"]);
    assert!(
        home.path(".local/share/slotd/lib/state.db").exists(),
        "state is kept without --purge-runtime"
    );
    assert!(!home.path(".local/bin/slotd").exists() && !home.path(".local/bin/sbatch").exists());
    assert_eq!(missing_pages(&home).len(), 4 * (commands().len() + 1) + 3, "all pages are removed");
    home.install(&[]);
    assert!(
        home.run("sacct", &["-X", "-n", "-P", "-S", "now-1hour", "-o", "JobID"]).starts_with("1\n"),
        "the history is kept"
    );

    home.install(&["--uninstall", "--purge-runtime"]);
    let kept = ["./.local", "./.local/bin", "./.local/share", "./.config", "./out", "./go"];
    let left: Vec<String> =
        home.left().into_iter().filter(|path| !kept.contains(&path.as_str())).collect();
    assert_eq!(left, [""; 0]);
    assert!(home.install(&["--uninstall", "--purge-runtime"]).contains("nothing is installed"));
}

/// Returns the man pages and completions that are missing where man and the shells look for them.
fn missing_pages(home: &Home) -> Vec<String> {
    let files = |name: &str| {
        [
            format!(".local/share/man/man1/{name}.1"),
            format!(".local/share/bash-completion/completions/{name}"),
            format!(".local/share/zsh/site-functions/_{name}"),
            format!(".config/fish/completions/{name}.fish"),
        ]
    };
    let names = commands().into_iter().chain(["slotd".to_owned()]);
    let manuals = ["slotd.env", "slotd.toml", "clusters.toml"]
        .map(|name| format!(".local/share/man/man5/{name}.5"));
    let all = names.flat_map(|name| files(&name)).chain(manuals);
    all.filter(|file| !home.path(file).exists()).collect()
}

#[test]
fn foreign_pages_are_neither_replaced_nor_removed() {
    let home = Home::new(NO_MANAGER);
    let page = ".local/share/man/man1/sbatch.1";
    let other = ".config/fish/completions/git.fish";
    home.script(page, ".TH sbatch 1\n");
    home.script(other, "complete -c git\n");
    // A file of an earlier version that no longer exists.
    let stale = ".local/share/bash-completion/completions/stale_name";
    home.script(stale, "complete -f stale_name\n# Made by slotd.\n");
    let message = home.install(&["--skip-systemd"]);
    assert!(message.contains("man1/sbatch.1, which is not slotd's"), "{message}");
    assert_eq!(missing_pages(&home), [""; 0]);
    assert!(!home.path(stale).exists());
    home.install(&["--uninstall", "--purge-runtime"]);
    assert_eq!(fs::read_to_string(home.path(page)).expect("still there"), ".TH sbatch 1\n");
    assert_eq!(fs::read_to_string(home.path(other)).expect("still there"), "complete -c git\n");
    assert_eq!(missing_pages(&home).len(), 4 * (commands().len() + 1) + 2);
}

#[test]
fn installed_completions_work_in_bash() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    let complete = |line: &str| {
        let (name, last) = (line.split(' ').next().unwrap(), line.rsplit([' ', '=', ':']).next());
        let script = r#"
            PATH=$HOME/.local/bin:$PATH
            . "$HOME/.local/share/bash-completion/completions/$1"
            COMP_LINE=$3 COMP_POINT=${#3}
            "_slotd_$1" "$1" "$2"
            echo "${COMPREPLY[*]}""#;
        let words = ["-c", script, "bash", name, last.unwrap(), line];
        let message = must(home.command("bash").args(words), String::new);
        message.trim_end().to_owned()
    };
    assert_eq!(complete("sbatch --pars"), "--parsable");
    assert_eq!(complete("scontrol susp"), "suspend");
    assert_eq!(complete("squeue --me --js"), "--json");
    assert_eq!(complete("slotd sdi"), "sdiag");
    assert_eq!(complete("slotd seff --deb"), "--debug");

    // Values of the daemon, also after the characters at which bash splits words.
    assert_eq!(complete("sbatch -p c"), "cpu");
    assert_eq!(complete("squeue --partition=c"), "cpu");
    assert_eq!(complete("scontrol update PartitionName=c"), "cpu");
    home.run("sbatch", &["-H", "-J", "held", "--wrap", "true"]);
    assert_eq!(complete("scancel "), "2");
    assert_eq!(complete("scontrol update JobId="), "2");
    assert_eq!(complete("scancel -n "), "held", "the first job has ended");
    assert_eq!(complete("squeue -n f"), "first-job");
    assert_eq!(complete("slotd why 2"), "2");
    // The other shells replace the whole word, and print descriptions.
    for (shell, words) in [("zsh", "squeue --partition=c"), ("fish", "sbatch -p c")] {
        let found = home.run("slotd", &["complete", shell, "--", "", words]);
        let word = words.rsplit(' ').next().unwrap().replace("=c", "=cpu");
        let word = if word == "c" { "cpu" } else { &word };
        assert_eq!(found, format!("{word}\t0 running, 1 pending\n"), "{shell}");
    }
    home.run("slotd", &["daemon", "stop"]);
    assert!(!complete("scancel ").contains('2'), "without a daemon there are no jobs");
}

#[test]
fn the_environment_file_preserves_every_value() {
    let home = Home::new(NO_MANAGER);
    let file = home.path(".config/slotd/slotd.env");
    let shown = |name: &str| {
        let script = format!(". \"$1\"; printf '%s.' \"${name}\"");
        let text = must(home.command("sh").args(["-c", &script, "sh"]).arg(&file), String::new);
        text.strip_suffix('.').expect("the end mark").to_owned()
    };
    for value in [
        r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#,
        "it's `one` $(word) ${more}",
        r"C:\temp\\new\n",
        "  blanks at both ends  ",
        "a\ttab",
        "#no comment; 100 %h %% !! && \\1 &",
        "ünï ☃",
        "'",
        "\"",
        "\\",
        "ends in \\",
        "",
    ] {
        home.install(&["--skip-systemd", "--notify-cmd", value]);
        assert_eq!(shown("SLOTD_NOTIFY_CMD"), value);
    }
    home.install(&[
        "--skip-systemd",
        "--notify-cmd=a=b",
        "--features=x,y",
        "--cgroup-base",
        "/sys/fs/cgroup/a b%c",
    ]);
    home.install(&["--skip-systemd", "--cpu-partitions", "long,short"]);
    assert_eq!(shown("SLOTD_NOTIFY_CMD"), "a=b", "an upgrade keeps other settings");
    assert_eq!(shown("SLOTD_FEATURES"), "x,y");
    assert_eq!(shown("SLOTD_CGROUP_BASE"), "/sys/fs/cgroup/a b%c");
    assert_eq!(shown("SLOTD_CPU_PARTITIONS"), "long,short");
    assert_eq!(shown("SLOTD_GPU_PARTITIONS"), "gpu");
    assert_eq!(
        fs::metadata(&file).expect("an existing file").permissions().mode() & 0o777,
        0o600,
        "hooks hold secrets"
    );

    let by_hand =
        format!("# mine\nSLOTD_GPU_COUNT='2'\n{}", fs::read_to_string(&file).expect("text"));
    fs::write(&file, &by_hand).expect("a writable home");
    home.install(&["--skip-systemd", "--features", "z"]);
    let after = fs::read_to_string(&file).expect("text");
    assert_eq!(after, by_hand.replace("x,y", "z"), "manual lines are unchanged");

    for value in ["two\nlines", "return\r", "bell\u{7}"] {
        assert!(home.refused(&["--notify-cmd", value]).contains("--notify-cmd"));
    }
    fs::write(&file, "SLOTD_FEATURES=\"never closed\n").expect("a writable home");
    assert!(home.refused(&["--skip-systemd"]).contains("slotd.env:1: "));
}

#[test]
fn the_hook_of_the_book_runs_unchanged() {
    let home = Home::new(NO_MANAGER);
    home.script("stub/notify-send", "#!/bin/sh\nprintf '%s|' \"$#\" \"$@\" >>\"$HOME/sent\"\n");
    home.install(&["--notify-cmd", r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#]);
    let sent = || fs::read_to_string(home.path("sent")).ok().filter(|text| text.ends_with("D|"));
    assert_eq!(wait_for("the hook runs", || home.log(), sent), "2|slotd|1 COMPLETED|");
}

#[test]
fn commands_find_a_custom_runtime_root() {
    let home = Home::new(NO_MANAGER);
    let root = home.path("my 'own' $root");
    home.install(&["--runtime-root", root.to_str().expect("text")]);
    assert!(root.join("lib/state.db").exists());
    assert!(!home.path(".local/share/slotd").exists());
    home.run("sbatch", &["-W", "-o", "out file", "--wrap", "echo \"a  b\""]);
    assert_eq!(fs::read_to_string(home.path("out file")).expect("written"), "a  b\n");
    home.run("slotd", &["sinfo"]);
    // An upgrade keeps the root. With the default root, the commands are links again.
    home.install(&[]);
    assert!(!home.path(".local/share/slotd").exists());
    let default = home.path(".local/share/slotd");
    home.install(&["--runtime-root", default.to_str().expect("text")]);
    assert!(
        fs::symlink_metadata(home.path(".local/bin/sbatch"))
            .expect("an existing file")
            .is_symlink()
    );
    assert!(!home.path(".local/bin/slotd.bin").exists());
}

#[test]
fn the_systemd_service_is_installed_restarted_and_removed() {
    let home = Home::new(A_MANAGER);
    let message = home.install(&["--features", "cpu"]);
    assert!(message.contains("COMPLETED"), "{message}");
    let unit =
        fs::read_to_string(home.path(".config/systemd/user/slotd.service")).expect("the unit");
    for line in [
        format!(
            "ExecStart=\"{}\" daemon --env-file \"{}\"",
            home.path(".local/bin/slotd").display(),
            home.path(".config/slotd/slotd.env").display()
        ),
        format!("EnvironmentFile={}", home.path(".config/slotd/slotd.env").display()),
        "KillMode=process".to_owned(),
        "Delegate=yes".to_owned(),
        "Restart=on-failure".to_owned(),
        "OOMPolicy=continue".to_owned(),
    ] {
        assert!(unit.lines().any(|l| l == line), "{line} is missing:\n{unit}");
    }
    let calls = || fs::read_to_string(home.path("systemctl.log")).expect("a call of systemctl");
    let socket =
        fs::read_to_string(home.path(".config/systemd/user/slotd.socket")).expect("its socket");
    let listen =
        format!("ListenStream={}", home.path(".local/share/slotd/run/slotd.sock").display());
    assert!(socket.lines().any(|l| l == listen), "{socket}");
    for call in [
        "daemon-reload",
        "enable --quiet slotd.socket",
        "enable --quiet slotd.service",
        "restart slotd.service",
    ] {
        assert!(calls().lines().any(|l| l == call), "{call} is missing:\n{}", calls());
    }
    assert!(!home.path(".local/bin/slotd-daemon").exists(), "only the manager starts it");
    home.install(&[]);
    home.install(&["--uninstall", "--purge-runtime"]);
    assert!(calls().lines().any(|l| l == "disable --now slotd.service"), "{}", calls());
    let units = fs::read_dir(home.path(".config/systemd/user")).expect("the directory of units");
    assert_eq!(units.count(), 0);
    assert!(!home.path(".local/share/slotd").exists());
}

#[test]
fn skip_systemd_starts_nothing_and_explains_how_to_start() {
    let home = Home::new(A_MANAGER);
    let message = home.install(&["--skip-systemd"]);
    assert!(message.contains("slotd-daemon start"), "{message}");
    assert!(!home.path("systemctl.log").exists(), "systemctl was called");
    assert!(!home.path(".config/systemd").exists());
    assert!(
        home.command("sinfo").output().is_ok_and(|out| !out.status.success()),
        "a daemon responded"
    );

    home.run("slotd-daemon", &["start"]);
    home.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    assert!(home.run("slotd-daemon", &["start"]).contains("is already running"));
    home.run("slotd-daemon", &["restart"]);
    home.run("sinfo", &[]);
    home.run("slotd-daemon", &["stop"]);
    assert!(
        home.command("sinfo").output().is_ok_and(|out| !out.status.success()),
        "a daemon responded"
    );
}

#[test]
fn invalid_options_are_refused_before_anything_changes() {
    let home = Home::new(NO_MANAGER);
    let own = home.dir.path().to_str().expect("text").to_owned();
    let above = home.dir.path().parent().expect("/tmp").to_str().expect("text").to_owned();
    for (args, named) in [
        (vec!["--purge-runtime"], "--uninstall"),
        (vec!["--frobnicate"], "--frobnicate"),
        (vec!["stray"], "stray"),
        (vec!["--features"], "--features needs a value"),
        (vec!["--skip-build=yes"], "--skip-build"),
        (vec!["--runtime-root", ""], "--runtime-root"),
        (vec!["--cgroup-base", "relative"], "relative"),
        (vec!["--profile", "nonesuch"], "--skip-build"),
        (vec!["--uninstall", "--purge-runtime", "--runtime-root", own.as_str()], "runtime root"),
    ] {
        let message = home.refused(&args);
        assert!(message.contains(named), "{args:?}: {message}");
    }
    std::os::unix::fs::symlink("/usr", home.path("usr")).expect("a link");
    let link = home.path("usr");
    let roots = [
        "/",
        "//",
        "///",
        "/usr/",
        "/usr/lib",
        "/lib",
        "/tmp",
        "/home",
        "/etc",
        "/var/lib/",
        ".",
        "./x/..",
        "/tmp/..",
    ];
    for root in
        roots.into_iter().chain([own.as_str(), above.as_str(), link.to_str().expect("text")])
    {
        // If the root were accepted, the installer would still stop before it creates anything,
        // because this directory cannot be created.
        let message = home.refused(&["--install-bin-dir", "/dev/null/bin", "--runtime-root", root]);
        assert!(message.contains("the runtime root must"), "{root}: {message}");
    }
    fs::remove_file(link).expect("a writable home");
    assert_eq!(home.left(), [""; 0], "something was created");
}

#[test]
fn a_missing_cargo_is_reported() {
    let home = Home::new(NO_MANAGER);
    // Provide only the tools that the installer needs up to that point.
    for tool in ["bash", "dirname"] {
        let found =
            must(home.command("sh").args(["-c", &format!("command -v {tool}")]), String::new);
        std::os::unix::fs::symlink(found.trim(), home.path("stub").join(tool)).expect("a link");
    }
    let mut installer =
        home.command(Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/install.sh"));
    let output = installer.env("PATH", home.path("stub")).output().expect("a running process");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("cargo is not installed"), "{message}");
}

#[test]
fn foreign_commands_are_not_replaced() {
    let home = Home::new(NO_MANAGER);
    home.script(".local/bin/squeue", "#!/bin/sh\necho the real Slurm\n");
    let message = home.refused(&[]);
    assert!(
        message.contains(".local/bin/squeue") && message.contains("--install-bin-dir"),
        "{message}"
    );
    assert!(!home.path(".local/bin/slotd").exists());
    home.install(&["--uninstall"]);
    assert!(home.path(".local/bin/squeue").exists());
}

#[test]
fn foreign_programs_and_units_are_not_replaced() {
    let home = Home::new(A_MANAGER);
    let (bin, units) = (home.path(".local/bin"), home.path(".config/systemd/user"));
    let root = format!("--runtime-root={}", home.path("elsewhere").display());
    fs::create_dir_all(&units).expect("a writable home");
    fs::write(home.path("precious"), "precious").expect("a writable home");
    for (place, options) in [
        (bin.join("slotd"), &[][..]),
        (bin.join("slotd-daemon"), &[]),
        (bin.join("slotd.bin"), &[root.as_str()]),
        (units.join("slotd.service"), &[]),
        (units.join("slotd-jobs.service"), &[]),
    ] {
        home.script("precious", "precious");
        fs::create_dir_all(&bin).expect("a writable home");
        for is_link in [false, true] {
            if is_link {
                symlink(home.path("precious"), &place).expect("a link");
            } else {
                fs::write(&place, "precious").expect("a writable home");
            }
            let printed = home.refused(options);
            let expected = format!("{} exists and is not slotd's", place.display());
            assert!(printed.contains(&expected), "{printed}");
            assert!(!home.install(&["--uninstall"]).contains("removed"));
            assert_eq!(fs::read_to_string(&place).expect("still there"), "precious");
            assert_eq!(place.is_symlink(), is_link);
            fs::remove_file(&place).expect("still there");
        }
    }
    // A foreign program of the name that only another runtime root uses.
    fs::write(bin.join("slotd.bin"), "precious").expect("a writable home");
    home.install(&["--skip-systemd"]);
    assert_eq!(fs::read_to_string(bin.join("slotd.bin")).expect("still there"), "precious");
    assert!(!home.path(".config/systemd/user/slotd.service").exists());
}

#[test]
fn links_in_place_of_settings_are_followed_only_for_the_environment_file() {
    let home = Home::new(NO_MANAGER);
    let config = home.path(".config/slotd");
    fs::create_dir_all(&config).expect("a writable home");
    fs::create_dir(home.path("links")).expect("a fresh directory");
    fs::write(home.path("precious"), "/precious\n").expect("a writable home");
    let link_dir = format!("--link-dir={}", home.path("links").display());
    symlink(home.path("precious"), config.join("link-dirs")).expect("a link");
    let printed = home.refused(&["--skip-systemd", &link_dir]);
    assert!(printed.contains("link-dirs exists and is not slotd's: it is a link"), "{printed}");
    assert_eq!(fs::read_to_string(home.path("precious")).expect("text"), "/precious\n");
    fs::remove_file(config.join("link-dirs")).expect("the link");

    // A link of a dotfiles manager whose target does not exist yet.
    let file = config.join("slotd.env");
    symlink("../../dotfiles/slotd.env", &file).expect("a link");
    let printed = home.refused(&["--skip-systemd"]);
    assert!(printed.contains("slotd.env: its target ") && printed.contains(" has no directory"));
    fs::create_dir(home.path("dotfiles")).expect("a fresh directory");
    for features in ["a", "b"] {
        home.install(&["--skip-systemd", "--features", features]);
        assert!(file.is_symlink());
        let text = fs::read_to_string(home.path("dotfiles/slotd.env")).expect("the settings");
        assert!(text.contains(&format!("SLOTD_FEATURES=\"{features}\"")), "{text}");
    }
    for (from, why) in [("slotd.env", "loop"), ("/dev/null", "not a regular file")] {
        fs::remove_file(&file).expect("the link");
        symlink(from, &file).expect("a link");
        let printed = home.refused(&["--skip-systemd"]);
        assert!(printed.contains(why), "{printed}");
    }
    assert!(!Path::new("/dev/null").is_file());
}

#[test]
fn uninstall_keeps_edited_settings() {
    let home = Home::new(NO_MANAGER);
    let file = home.path(".config/slotd/slotd.env");
    home.install(&["--skip-systemd"]);
    home.install(&["--uninstall"]);
    assert!(!file.exists());
    home.install(&["--skip-systemd"]);
    let written = fs::read_to_string(&file).expect("the settings");
    for edited in [
        format!("{written}# mine\n"),
        format!("{written}SLOTD_KILL_WAIT=5\n"),
        written.replace("\"cpu\"", "\"short,long\""),
        "SLOTD_CPUS=2\n".to_owned(),
    ] {
        assert_ne!(edited, written);
        fs::write(&file, &edited).expect("a writable home");
        let printed = home.install(&["--uninstall"]);
        assert!(printed.contains("slotd.env: it contains settings of yours"), "{printed}");
        assert_eq!(fs::read_to_string(&file).expect("still there"), edited);
    }
}

#[test]
fn an_upgrade_that_could_not_start_the_daemon_leaves_the_old_one_running() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    let before = home.run("slotd-daemon", &["status"]);
    let file = home.path(".config/slotd/slotd.toml");
    for (text, named) in [("x=\n", "slotd.toml:1: "), ("cpus = \"-5000\"\n", "cpus = -5000")] {
        fs::write(&file, text).expect("a writable home");
        let printed = home.refused(&[]);
        assert!(printed.contains(named) && printed.contains("nothing was installed"), "{printed}");
        assert_eq!(home.run("slotd-daemon", &["status"]), before);
    }
    fs::remove_file(&file).expect("an existing file");
    // Inside a job, a new daemon would end with the job.
    let mut inside = home.command("srun");
    let output = inside.arg(program()).arg("install").output().expect("a running process");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains("this is inside a job of"), "{printed}");
    assert_eq!(home.run("slotd-daemon", &["status"]), before);
}

#[test]
fn a_purge_finds_running_jobs_of_a_root_with_another_name() {
    let home = Home::new(NO_MANAGER);
    fs::create_dir(home.path("real")).expect("a fresh directory");
    symlink(home.path("real"), home.path("link")).expect("a link");
    let root = home.path("real/root");
    home.install(&["--runtime-root", home.path("link/root").to_str().expect("text")]);
    home.run("slotd-daemon", &["stop"]);
    let run = |program: &str, args: &[&str]| {
        must(home.command(program).args(args).env("SLOTD_ROOT", &root), || home.log())
    };
    run("slotd", &["daemon", "start"]);
    run("sbatch", &["-o", "/dev/null", "--wrap", "echo >begun; sleep 1000"]);
    let begun = || home.path("begun").exists().then_some(());
    wait_for("the job begins", || home.log(), begun);
    let printed = home.refused(&["--uninstall", "--purge-runtime"]);
    assert!(printed.contains("there are running jobs (1)"), "{printed}");
    assert!(root.join("lib/state.db").exists());
    assert!(run("scontrol", &["listpids"]).lines().count() > 1);
    run("scancel", &["--me"]);
    let ended = || run("squeue", &["-h"]).is_empty().then_some(());
    wait_for("the job ends", || home.log(), ended);
    home.install(&["--uninstall", "--purge-runtime"]);
    assert!(!root.exists());
}

#[test]
fn link_dir_gets_links_to_all_commands() {
    let home = Home::new(NO_MANAGER);
    fs::create_dir(home.path("everybodys")).expect("a fresh directory");
    let link_dir = format!("--link-dir={}", home.path("everybodys").display());
    // Later installations and the uninstallation find the links.
    for options in
        [&["--skip-systemd", &link_dir][..], &["--skip-systemd", &link_dir], &["--skip-systemd"]]
    {
        home.install(options);
        for name in commands().iter().map(String::as_str).chain(["slotd"]) {
            let found = fs::read_link(home.path("everybodys").join(name)).expect(name);
            assert_eq!(found, home.path(".local/bin").join(name));
        }
    }
    home.script("everybodys/other", "#!/bin/sh\n");
    // A link of the user to a program of the user in the same directory as the commands.
    std::os::unix::fs::symlink(home.path(".local/bin/mine"), home.path("everybodys/mine"))
        .expect("a fresh link");
    home.install(&["--uninstall"]);
    let left: Vec<_> =
        fs::read_dir(home.path("everybodys")).expect("an existing file").flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    home.script("everybodys/squeue", "#!/bin/sh\n");
    let printed = home.refused(&["--skip-systemd", &link_dir]);
    assert!(printed.contains("everybodys/squeue exists and is not slotd's"), "{printed}");
}

#[test]
fn the_directory_of_the_commands_is_kept() {
    let home = Home::new(NO_MANAGER);
    let (bin, record) = (home.path("bin"), home.path(".config/slotd/bin-dir"));
    let default = home.path(".local/bin/slotd");
    let option = format!("--install-bin-dir={}", bin.display());
    home.install(&["--skip-systemd", &option]);
    // Neither an upgrade nor the removal names it again.
    fs::remove_file(bin.join("sbatch")).expect("a command");
    home.install(&["--skip-systemd"]);
    assert!(bin.join("sbatch").is_symlink() && !default.exists());
    let printed = home.install(&["--uninstall"]);
    assert!(printed.contains(&format!("removed the commands from {}", bin.display())), "{printed}");
    assert!(!bin.join("slotd").exists() && !record.exists());

    home.install(&["--skip-systemd"]);
    assert!(default.exists() && !record.exists());
    // A change leaves the commands in the earlier directory, and says so.
    let left = |dir: &str| {
        format!(
            "the commands of the earlier installation are still in {}:",
            home.path(dir).display()
        )
    };
    let printed = home.install(&["--skip-systemd", &option]);
    assert!(printed.contains(&left(".local/bin")), "{printed}");
    let printed = home.install(&["--skip-systemd", "--install-bin-dir=~/.local/bin"]);
    assert!(printed.contains(&left("bin")) && !record.exists(), "{printed}");
}

#[test]
fn a_false_record_of_the_directory_of_the_commands_is_refused() {
    let home = Home::new(NO_MANAGER);
    let (config, record) = (home.path(".config/slotd"), home.path(".config/slotd/bin-dir"));
    fs::create_dir_all(&config).expect("a writable home");
    fs::write(home.path("precious"), format!("{}\n", home.path("bin").display()))
        .expect("a writable home");
    let refused = |why: &str| {
        let printed = home.refused(&["--skip-systemd"]);
        let expected = format!("{} exists and is not slotd's: {why}", record.display());
        assert!(printed.contains(&expected), "{printed}");
        assert!(!home.path("bin").exists() && !home.path(".local/bin").exists());
    };
    symlink(home.path("precious"), &record).expect("a link");
    refused("it is a link or not a regular file");
    fs::remove_file(&record).expect("the link");
    fs::create_dir(&record).expect("a fresh directory");
    refused("it is a link or not a regular file");
    fs::remove_dir(&record).expect("the directory");
    must(Command::new("mkfifo").arg(&record), String::new);
    refused("it is a link or not a regular file");
    fs::remove_file(&record).expect("the FIFO");
    for text in ["", "bin\n", "\n\n"] {
        fs::write(&record, text).expect("a writable home");
        refused("it names no directory");
    }
    // A sparse file that is too large to be a record.
    let file = fs::File::create(&record).expect("a writable home");
    file.set_len(1 << 40).expect("a sparse file");
    refused("it names no directory");
    assert!(fs::read_to_string(home.path("precious")).expect("the file").ends_with("bin\n"));
    // The directory that it names may be gone: it is created again.
    fs::write(&record, format!("{}\n", home.path("bin").display())).expect("a writable home");
    home.install(&["--skip-systemd"]);
    assert!(home.path("bin/sbatch").is_symlink());
}

#[test]
fn with_a_custom_runtime_root_each_command_is_a_script() {
    let home = Home::new(NO_MANAGER);
    let elsewhere = format!("--runtime-root={}", home.path("elsewhere").display());
    home.install(&["--skip-systemd"]);
    home.install(&["--skip-systemd", &elsewhere]);
    let program = |name: &str| home.path(".local/bin").join(name);
    for name in commands() {
        assert!(!program(&name).is_symlink(), "{name} is still a link");
        let script = fs::read_to_string(program(&name)).expect("a script");
        assert!(script.ends_with(&format!("slotd.bin {name} \"$@\"\n")), "{name}: {script}");
    }
    // Links of the user: one to slotd, and one in place of slotd.
    std::os::unix::fs::symlink("slotd", program("mine")).expect("a fresh link");
    fs::write(home.path("precious"), "data").expect("a writable home");
    fs::remove_file(program("slotd")).expect("an existing file");
    std::os::unix::fs::symlink(home.path("precious"), program("slotd")).expect("a fresh link");
    let default = format!("--runtime-root={}", home.path(".local/share/slotd").display());
    let printed = home.refused(&["--skip-systemd", &default]);
    assert!(printed.contains("bin/slotd exists and is not slotd's"), "{printed}");
    fs::remove_file(program("slotd")).expect("the link");
    home.install(&["--skip-systemd", &default]);
    assert!(commands().iter().all(|name| program(name).is_symlink()));
    assert!(fs::read(program("slotd")).expect("a program").starts_with(b"\x7fELF"));
    assert_eq!(fs::read_to_string(home.path("precious")).expect("a writable home"), "data");
    home.install(&["--uninstall"]);
    assert!(program("mine").is_symlink() && !program("squeue").is_symlink());
}

/// Makes a command without root's right to write to any directory.
fn without_rights_of_root(command: Command) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return command;
    }
    let rights = "-dac_override,-dac_read_search,-fowner";
    let mut limited = Command::new("setpriv");
    limited.arg(format!("--bounding-set={rights}")).arg(format!("--inh-caps={rights}"));
    limited.arg("--").arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    limited
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own directory");
}

#[test]
fn uninstall_continues_after_files_that_cannot_be_deleted() {
    let home = Home::new(NO_MANAGER);
    fs::create_dir(home.path("links")).expect("a fresh directory");
    let link_dir = format!("--link-dir={}", home.path("links").display());
    home.install(&["--skip-systemd", &link_dir]);
    let root = home.path(".local/share/slotd");
    home.run("slotd-daemon", &["start"]);
    home.run("slotd-daemon", &["stop"]);
    let fixed = [".local/bin", ".local/share/man/man1", "links", ".local/share/slotd/lib"];
    fixed.iter().for_each(|dir| set_mode(&home.path(dir), 0o555));
    let uninstall = |options: &[&str]| {
        let mut command = home.command(program());
        command.arg("uninstall").args(options).stdin(Stdio::null());
        let output = without_rights_of_root(command).output().expect("a running process");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, printed) = uninstall(&["--purge-runtime"]);
    assert_eq!(code, Some(1), "{printed}");
    for left in [".local/bin/sbatch", ".local/share/man/man1/sbatch.1", "links/squeue"]
        .map(|left| home.path(left))
        .into_iter()
        .chain([root.join("lib/state.db")])
    {
        let line = format!("slotd: error: cannot delete {}: Permission denied", left.display());
        assert!(printed.contains(&line) && left.symlink_metadata().is_ok(), "{line}: {printed}");
    }
    for gone in [
        ".config/slotd/slotd.env",
        ".local/share/bash-completion/completions/sbatch",
        ".local/share/slotd/run/slotd.lock",
    ] {
        assert!(!home.path(gone).exists(), "{gone}");
    }
    // The rest is still known.
    fixed.iter().for_each(|dir| set_mode(&home.path(dir), 0o755));
    assert_eq!(uninstall(&[]), (Some(0), String::new()));
    assert_eq!(fs::read_dir(home.path("links")).expect("the directory").count(), 0);
    assert!(!home.path(".local/bin/slotd").exists() && !home.path(".config/slotd").exists());
}

#[test]
fn link_dir_gets_all_links_or_none() {
    let home = Home::new(NO_MANAGER);
    let dir = home.path("links");
    fs::create_dir(&dir).expect("a fresh directory");
    let link_dir = format!("--link-dir={}", dir.display());
    home.script("links/squeue", "#!/bin/sh\n");
    let printed = home.refused(&["--skip-systemd", &link_dir]);
    assert!(printed.contains("links/squeue exists and is not slotd's"), "{printed}");
    assert_eq!(fs::read_dir(&dir).expect("the directory").count(), 1);
    assert!(!home.path(".local/bin").exists(), "nothing was installed");
    // Without the right to write there, nothing is recorded either.
    fs::remove_file(dir.join("squeue")).expect("the script");
    set_mode(&dir, 0o555);
    let install = |options: &[&str]| {
        let mut command = home.command(program());
        command.args(["install", "--skip-systemd"]).args(options);
        without_rights_of_root(command).output().expect("a running process")
    };
    let output = install(&[&link_dir]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("run sudo ln -s "), "{printed}");
    assert_eq!(fs::read_dir(&dir).expect("the directory").count(), 0);
    assert!(install(&[]).status.success(), "the directory is forgotten");
    set_mode(&dir, 0o755);
    home.install(&["--skip-systemd", &link_dir]);
    set_mode(&dir, 0o555);
    assert!(install(&[&link_dir]).status.success(), "all links are there");
    set_mode(&dir, 0o755);
    // The directory of the commands, by any name.
    symlink(home.path(".local/bin"), home.path("also")).expect("a fresh link");
    for name in [".local/bin", "also"] {
        let same = format!("--link-dir={}", home.path(name).display());
        let printed = home.refused(&["--skip-systemd", &same]);
        let why = "is the directory of the commands themselves: choose another one";
        assert!(printed.contains(why), "{printed}");
    }
}

#[test]
fn a_broken_environment_file_blocks_only_what_needs_it() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    let (file, root) = (home.path(".config/slotd/slotd.env"), home.path(".local/share/slotd"));
    let run = |words: &[&str], has_root: bool| {
        let mut command = home.command(program());
        command.args(words);
        if has_root {
            command.env("SLOTD_ROOT", &root);
        }
        let output = command.output().expect("a running process");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let broken: [(&str, &dyn Fn()); 3] = [
        ("not NAME=VALUE: what", &|| fs::write(&file, "what\n").expect("a writable home")),
        ("it is not a regular file", &|| {
            nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO")
        }),
        ("it is not a regular file", &|| fs::create_dir(&file).expect("a fresh directory")),
    ];
    for (why, make) in broken {
        fs::remove_file(&file).expect("the file");
        make();
        for action in ["status", "stop"] {
            let (code, printed) = run(&["daemon", action], false);
            assert_eq!(code, Some(1), "{printed}");
            assert!(printed.contains(why) && printed.contains("with SLOTD_ROOT"), "{printed}");
        }
        let (code, printed) = run(&["daemon", "status"], true);
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.starts_with("slotd: warning: ") && printed.contains(why), "{printed}");
        for words in [&["daemon", "start"][..], &["daemon", "restart"], &["install"]] {
            let (code, printed) = run(words, true);
            assert!(code == Some(1) && printed.contains(why), "{words:?}: {printed}");
        }
        assert_eq!(run(&["daemon", "status"], true).0, Some(0), "it still runs");
        if file.is_dir() {
            break;
        }
    }
    assert_eq!(run(&["daemon", "stop"], true).0, Some(0));
    assert_eq!(run(&["daemon", "status"], true).0, Some(3));
    let (code, printed) = run(&["uninstall"], false);
    assert!(code == Some(1) && printed.contains("with --runtime-root or SLOTD_ROOT"), "{printed}");
    let (code, printed) = run(&["uninstall", "--purge-runtime"], true);
    assert_eq!((code, printed), (Some(0), String::new()));
    assert!(!root.exists() && !home.path(".local/bin/slotd").exists() && file.is_dir());
}

#[test]
fn an_installation_on_a_drained_host_sends_no_job() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    home.run("slotd", &["drain", "new", "fan"]);
    let printed = home.install(&[]);
    let why = "the host is drained (new fan), so no job starts until `slotd resume`";
    assert!(printed.contains(why) && printed.contains("slotd is installed"), "{printed}");
    assert_eq!(home.run("squeue", &["-h"]), "");
    home.run("slotd", &["resume"]);
    assert!(home.install(&[]).contains("COMPLETED"));
}

#[test]
fn uninstall_without_an_installation_deletes_nothing() {
    let home = Home::new(NO_MANAGER);
    let (bin, config) = (home.path(".local/bin"), home.path(".config/slotd"));
    let data = home.path(".local/share/slotd");
    for dir in [&bin, &config, &data] {
        fs::create_dir_all(dir).expect("a writable home");
    }
    fs::write(home.path("mine.env"), "SLOTD_CPUS=1\n").expect("a writable home");
    symlink(home.path("mine.env"), config.join("slotd.env")).expect("a link");
    symlink("/nowhere", bin.join("slotd")).expect("a link");
    fs::write(bin.join("slotd.bin"), "another program").expect("a writable home");
    for options in [&["--uninstall"][..], &["--uninstall", "--purge-runtime"]] {
        let message = home.install(options);
        assert!(message.contains("slotd.env, which is a link"), "{message}");
        assert!(message.contains("bin/slotd, which is not slotd's"), "{message}");
        assert!(message.contains("nothing is installed in"), "{message}");
        assert!(!message.contains("kept the jobs") && !message.contains("removed"), "{message}");
    }
    assert!(bin.join("slotd").is_symlink() && bin.join("slotd.bin").exists());
    assert!(config.join("slotd.env").exists() && data.exists());
}

#[test]
fn a_purge_keeps_foreign_files() {
    let home = Home::new(NO_MANAGER);
    let root = home.path("data");
    fs::create_dir(&root).expect("fresh");
    fs::write(root.join("thesis.tex"), "").expect("a writable home");
    let root = root.to_str().expect("text");
    assert!(
        home.refused(&["--uninstall", "--purge-runtime", "--runtime-root", root])
            .contains("does not look like")
    );
    home.install(&["--runtime-root", root]);
    let message = home.install(&["--uninstall", "--purge-runtime"]);
    assert!(!message.contains("the runtime root there is no"), "{message}");
    // The environment file with the root was removed with the installation.
    assert!(home.path("data/thesis.tex").exists());
    assert!(!home.path("data/lib").exists() && !home.path("data/run").exists());
}

#[test]
fn a_purge_deletes_nothing_through_links_and_no_foreign_names() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    let (lib, scratch) = (home.path(".local/share/slotd/lib"), home.path("scratch"));
    for dir in
        ["jobs/7/inner", "jobs/mine", "snapshots/1-2", "snapshots/gone.3-4", "snapshots/thesis"]
    {
        fs::create_dir_all(lib.join(dir)).expect("a writable home");
        fs::write(lib.join(dir).join("file"), "").expect("a writable home");
    }
    let own = [
        "state.db",
        "state.db-wal",
        "state.db.backup.new",
        "state.db.replaced2-shm",
        "gpus.json",
        "host_use.jsonl",
        "started",
    ];
    let others =
        ["state.db.thesis", "state.dbase", "state.db.replaced", "gpus.notes", "host_use.mine"];
    for name in own.iter().chain(&others) {
        fs::write(lib.join(name), "").expect("a writable home");
    }
    fs::create_dir(lib.join("state.db.new")).expect("a writable home");
    fs::create_dir_all(scratch.join("7")).expect("a writable home");
    fs::rename(lib.join("jobs"), home.path("jobs")).expect("a writable home");
    symlink(&scratch, lib.join("jobs")).expect("a link");
    let refused = home.refused(&["--uninstall", "--purge-runtime"]);
    assert!(refused.contains("lib/jobs: it is a link"), "{refused}");
    assert!(scratch.join("7").exists() && lib.join("snapshots/1-2").exists());
    fs::remove_file(lib.join("jobs")).expect("the link");
    fs::rename(home.path("jobs"), lib.join("jobs")).expect("a writable home");
    let message = home.install(&["--uninstall", "--purge-runtime"]);
    assert!(message.contains("jobs/mine") && message.contains("snapshots/thesis"), "{message}");
    assert!(lib.join("jobs/mine/file").exists() && lib.join("snapshots/thesis/file").exists());
    assert!(!lib.join("jobs/7").exists() && !lib.join("snapshots/1-2").exists());
    assert!(!lib.join("snapshots/gone.3-4").exists() && scratch.join("7").exists());
    assert!(
        own.iter().all(|name| !lib.join(name).exists())
            && others.iter().all(|name| lib.join(name).exists())
    );
    assert!(lib.join("state.db.new").is_dir());
}

#[test]
fn a_purge_deletes_nothing_while_there_are_jobs() {
    // A manager that submits a job while the service is stopping.
    let late = A_MANAGER.replace(
        "  disable) end ;;",
        "  stop) [ ! -e \"$HOME/late\" ] || PATH=$HOME/.local/bin:$PATH sh \"$HOME/late\"; end ;;\n  \
         start) [ \"$2\" = slotd.socket ] || \"$0\" --user restart ;;\n  disable) end ;;",
    );
    for manager in [NO_MANAGER, &late] {
        let home = Home::new(manager);
        home.install(&[]);
        let purge = ["--uninstall", "--purge-runtime"];
        let held = home.run("sbatch", &["--parsable", "-H", "--wrap", "true"]);
        let printed = home.refused(&purge);
        assert!(printed.contains("there are pending jobs (1), see squeue"), "{printed}");
        let pid = home.run("slotd", &["daemon", "status"]);
        home.run("scancel", &[held.trim()]);
        assert_eq!(home.run("squeue", &["-h"]), "");
        if manager != NO_MANAGER {
            fs::write(
                home.path("late"),
                "sbatch -H --wrap true; sbatch --wrap 'echo >begun; sleep 1000'; \
                 until [ -e begun ]; do sleep 0.01; done; rm \"$0\"\n",
            )
            .expect("a writable home");
            let printed = home.refused(&purge);
            assert!(
                printed.contains("there are running jobs (1) and pending jobs (1)"),
                "{printed}"
            );
            // Everything is unchanged, but served by a new daemon.
            assert_ne!(home.run("slotd", &["daemon", "status"]), pid);
            assert_eq!(home.run("squeue", &["-h", "-o", "%T", "-S", "i"]), "PENDING\nRUNNING\n");
            assert!(home.path(".local/bin/sbatch").exists());
            home.run("scancel", &["--me"]);
            wait_for(
                "the end of the job",
                || home.log(),
                || (home.run("squeue", &["-h"]).is_empty()).then_some(()),
            );
        }
        home.install(&purge);
        assert!(!home.path(".local/share/slotd").exists());
    }
}

#[test]
fn a_background_daemon_starts_with_any_umask() {
    for mask in ["0777", "0700"] {
        let home = Home::new(NO_MANAGER);
        let script = format!("umask {mask}; exec \"$0\" daemon start");
        let started = home.command("sh").arg("-c").arg(script).arg(program()).output();
        let started = started.expect("a running process");
        assert_eq!(started.status.code(), Some(0), "{mask}: {started:?}");
        // Also for root, whom no mode keeps out.
        let run =
            fs::metadata(home.path(".local/share/slotd/run")).expect("the daemon's directory");
        assert_eq!(run.permissions().mode() & 0o777, 0o700, "{mask}");
        home.run(program(), &["daemon", "stop"]);
    }
}

#[test]
fn a_background_daemon_is_started_reported_and_stopped() {
    let home = Home::new(NO_MANAGER);
    let daemon = |action: &str| {
        let output = home
            .command(program())
            .args(["daemon", action])
            .env("SLOTD_CPUS", "7")
            .output()
            .expect("a running process");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let root = home.path(".local/share/slotd");
    let none = (Some(3), format!("no daemon is running for {}\n", root.display()), String::new());
    assert_eq!(daemon("status"), none);
    assert_eq!(daemon("stop").0, Some(0));

    // If a daemon cannot serve, the error contains the reason and the path of its log.
    let file = home.path(".config/slotd/slotd.env");
    fs::create_dir_all(file.parent().expect("its directory")).expect("a writable home");
    fs::write(&file, "SLOTD_LOG = 'loud'\n").expect("a writable home");
    let (code, _, message) = daemon("start");
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains("SLOTD_LOG=\"loud\": expected error, warn, info, debug or trace"),
        "{message}"
    );
    assert!(
        message.contains("exited before it was ready") && message.contains("run/slotd.log"),
        "{message}"
    );
    fs::write(&file, "SLOTD_CPUS=3\nexport SLOTD_LOG=info\n").expect("a writable home");
    let (code, _, message) = daemon("start");
    assert_eq!(
        (code, message.contains("slotd.env:2: not NAME=VALUE: export SLOTD_LOG=info")),
        (Some(1), true),
        "{message}"
    );

    fs::write(&file, "SLOTD_CPUS=3\nSLOTD_CORES=3\n").expect("a writable home");
    let (code, printed, message) = daemon("start");
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("SLOTD_CPUS in this shell has no effect"), "{message}");
    let pid = printed
        .split("(process ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("its process");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
    let session =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3)).expect("a session");
    assert_eq!(session, pid, "it is in its own session");
    let (code, printed, _) = daemon("status");
    let version = format!("version {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(code, Some(0));
    assert!(
        printed.contains(&format!(
            "(process {pid})\n{version}socket {}/run/slotd.sock\n",
            root.display()
        )),
        "{printed}"
    );
    let cpus = must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c"]), || home.log());
    assert_eq!(cpus.trim(), "3", "the setting of the file");
    let log = home.log();
    let last = log.lines().find(|line| line.contains(" started in ")).expect("the log line");
    let (time, level) = (&last[..29], &last[29..36]);
    assert!(time.as_bytes()[10] == b'T' && time.contains("+00:00") && level == " INFO  ", "{last}");
    assert!(log.contains("SLOTD_CORES is not a slotd setting"), "{log}");

    // Changes of the file apply without a restart as far as possible. The others are reported.
    let scontrol = |action: &str| {
        let output =
            home.command(program()).args(["scontrol", action]).output().expect("a running process");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    fs::write(&file, "SLOTD_CPUS=5\nSLOTD_FEATURES=fast\nSLOTD_KILL_WAIT=7\nSLOTD_CORES=3\n")
        .expect("a writable home");
    let remarks = [
        "SLOTD_KILL_WAIT takes effect after a restart of the daemon",
        "SLOTD_CORES is not a slotd setting and has no effect",
    ]
    .map(|what| format!("scontrol: warning: {}: {what}\n", file.display()));
    assert_eq!(scontrol("reconfigure"), (Some(0), remarks.concat()));
    let printed =
        must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c %f"]), || home.log());
    assert_eq!(printed.trim(), "5 cpu,fast");
    let shown = must(home.command(program()).args(["scontrol", "show", "config"]), || home.log());
    let has = |key: &str, value: &str| {
        shown.lines().any(|line| line.starts_with(key) && line.ends_with(&format!("= {value}")))
    };
    assert!(has("SlotdCpus", "5") && has("KillWait", "30 sec"), "{shown}");
    fs::write(&file, "SLOTD_CPUS=many\nSLOTD_FEATURES=slow\n").expect("a writable home");
    let (code, message) = scontrol("reconfigure");
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message
            .starts_with("slurm_reconfigure error: SLOTD_CPUS=\"many\": expected a number of CPUs"),
        "{message}"
    );
    let printed =
        must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c %f"]), || home.log());
    assert_eq!(printed.trim(), "5 cpu,fast", "nothing changed");

    // Without an option, a restart reads the file of the running daemon.
    let other = home.path("other.env");
    fs::write(&other, "SLOTD_CPUS=2\n").expect("a writable home");
    fs::write(&file, "SLOTD_CPUS=5\n").expect("a writable home");
    let restart =
        |options: &[&str]| home.run(program(), &[&["daemon", "restart"], options].concat());
    let cpus = || home.run(program(), &["sinfo", "-h", "-N", "-o", "%c"]);
    assert!(!restart(&["--env-file", "other.env"]).contains("as before"));
    let printed = restart(&[]);
    let expected = format!("the settings are those of {}, as before\n", other.display());
    assert!(printed.starts_with(&expected), "{printed}");
    assert_eq!(cpus(), "2\n");
    assert!(!restart(&["--env-file", file.to_str().expect("text")]).contains("as before"));
    assert_eq!((restart(&[]).contains("as before"), cpus()), (false, "5\n".to_owned()));
    // The daemon's working directory is not the caller's.
    fs::write(home.path("relative.toml"), "").expect("a writable home");
    fs::write(&file, "SLOTD_CONFIG=relative.toml\n").expect("a writable home");
    let (code, _, message) = daemon("restart");
    let expected = "SLOTD_CONFIG=\"relative.toml\": expected an absolute path";
    assert!(code == Some(1) && message.contains(expected), "{message}");
    assert_eq!(cpus(), "5\n");

    assert_eq!(daemon("stop").1, "stopped; running jobs continue\n");
    assert_eq!(daemon("status"), none);
    assert_eq!(
        fs::read_dir(root.join("run")).expect("an existing file").count(),
        4,
        "the log, two locks, and the file of a launch"
    );
}
