//! `contrib/install.sh` in an empty home: what it installs, keeps, refuses and removes. The systemd
//! user manager of whoever runs the tests is out of reach: a program of the test has its name.

mod manual;

use slotd_kit::program;
use slotd_kit::scripts::{commands, executable, must, wait_for};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// There is none: as in a container, or after `su`.
const NO_MANAGER: &str = "#!/bin/sh\nexit 1\n";

/// As much of one as the installer asks for: it notes what it is told, runs the unit's command, and
/// waits until it serves.
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

/// The build's directory as the installer is told it: with the binary under test, but without what
/// only debuggers read, which is most of it, and which each installation would write to the disk.
fn build() -> &'static Path {
    static BUILD: LazyLock<PathBuf> = LazyLock::new(|| {
        let built = Path::new(program()).parent().expect("target/debug");
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(built.file_name().expect("a profile"));
        fs::create_dir_all(&dir).expect("cargo's directory for tests");
        // Another run of the tests may do the same at this moment.
        let new = dir.join(format!("slotd.{}", std::process::id()));
        must(Command::new("strip").arg("-o").arg(&new).arg(program()), String::new);
        fs::rename(&new, dir.join("slotd")).expect("beside it");
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

    /// A program with this home, found as a login shell would after the installation; `SLOTD_ROOT`
    /// is not set.
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

    /// The installer, with the binary under test for the build.
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
        let output = self.installer(args).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?} was taken");
        // What the script refuses, and what the program does.
        let is_error =
            said.starts_with("install.sh: error: ") || said.starts_with("slotd: error: ");
        assert!(is_error, "{args:?}: {said}");
        said
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        must(self.command(program).args(args), || self.log())
    }

    fn log(&self) -> String {
        [".local/share/slotd/run/slotd.log", "service.log"]
            .map(|file| fs::read_to_string(self.path(file)).unwrap_or_default())
            .concat()
    }

    /// Everything below the home but the stub, with the directories that `mkdir -p` leaves.
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
        // The test may have failed with jobs and a daemon running.
        let _ = self.command("scancel").args(["--me", "--quiet"]).output();
        let _ = self.installer(&["--uninstall"]).output();
    }
}

#[test]
fn an_installation_runs_a_first_job_is_upgraded_under_a_running_one_and_removed() {
    let home = Home::new(NO_MANAGER);
    let said = home.install(&[]);
    assert!(said.contains("there is no systemd user manager"), "{said}");
    assert!(said.contains("COMPLETED") && said.contains("hello from slotd: job 1 on "), "{said}");
    for name in commands() {
        let link = fs::read_link(home.path(".local/bin").join(&name)).expect("a link");
        assert_eq!(link, Path::new("slotd"), "{name}");
    }
    assert_eq!(missing_pages(&home), [""; 0]);
    assert!(said.contains("man pages and completions"), "{said}");

    let script = "echo begun; until [ -e go ]; do sleep 0.05; done; echo went on";
    let job = home.run("sbatch", &["--parsable", "-o", "out", "--wrap", script]);
    let begun =
        || fs::read_to_string(home.path("out")).is_ok_and(|text| text == "begun\n").then_some(());
    wait_for("the job begins", || home.log(), begun);
    let before = home.run("slotd-daemon", &["status"]);
    let said = home.install(&[]);
    assert!(said.contains("running jobs go on") && said.contains("COMPLETED"), "{said}");
    assert_ne!(before, home.run("slotd-daemon", &["status"]), "the daemon is a new one");
    let told = home.refused(&["--uninstall", "--purge-runtime"]);
    assert!(told.contains("running jobs, 1 of them") && told.contains("scancel"), "{told}");
    fs::write(home.path("go"), "").expect("ours");
    home.run(
        "sbatch",
        &["-W", "-o", "/dev/null", "-d", &format!("afterany:{}", job.trim()), "--wrap", "true"],
    );
    assert_eq!(fs::read_to_string(home.path("out")).expect("still there"), "begun\nwent on\n");
    assert_eq!(
        home.run("sacct", &["-X", "-n", "-P", "-o", "State", "-j", job.trim()]),
        "COMPLETED\n"
    );

    home.install(&["--uninstall"]);
    assert!(
        home.path(".local/share/slotd/lib/state.db").exists(),
        "state stays without --purge-runtime"
    );
    assert!(!home.path(".local/bin/slotd").exists() && !home.path(".local/bin/sbatch").exists());
    assert_eq!(missing_pages(&home).len(), 4 * (commands().len() + 1), "no page is left");
    home.install(&[]);
    assert!(
        home.run("sacct", &["-X", "-n", "-P", "-S", "now-1hour", "-o", "JobID"]).starts_with("1\n"),
        "the history is still there"
    );

    home.install(&["--uninstall", "--purge-runtime"]);
    let kept = ["./.local", "./.local/bin", "./.local/share", "./.config", "./out", "./go"];
    let left: Vec<String> =
        home.left().into_iter().filter(|path| !kept.contains(&path.as_str())).collect();
    assert_eq!(left, [""; 0]);
    assert!(home.install(&["--uninstall", "--purge-runtime"]).contains("nothing is installed"));
}

/// The man pages and completions that are not where man and the shells look for them.
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
    names.flat_map(|name| files(&name)).filter(|file| !home.path(file).exists()).collect()
}

#[test]
fn pages_of_others_are_neither_replaced_nor_removed() {
    let home = Home::new(NO_MANAGER);
    let page = ".local/share/man/man1/sbatch.1";
    let other = ".config/fish/completions/git.fish";
    home.script(page, ".TH sbatch 1\n");
    home.script(other, "complete -c git\n");
    // What an earlier version had and this one has no more.
    let stale = ".local/share/bash-completion/completions/sold";
    home.script(stale, "complete -f sold\n# Made by slotd.\n");
    let said = home.install(&["--skip-systemd"]);
    assert!(said.contains("man1/sbatch.1 is not slotd's and stays"), "{said}");
    assert_eq!(missing_pages(&home), [""; 0]);
    assert!(!home.path(stale).exists());
    home.install(&["--uninstall", "--purge-runtime"]);
    assert_eq!(fs::read_to_string(home.path(page)).expect("still there"), ".TH sbatch 1\n");
    assert_eq!(fs::read_to_string(home.path(other)).expect("still there"), "complete -c git\n");
    assert_eq!(missing_pages(&home).len(), 4 * (commands().len() + 1) - 1);
}

#[test]
fn the_installed_completions_complete_in_bash() {
    let home = Home::new(NO_MANAGER);
    home.install(&["--skip-systemd"]);
    let complete = |words: &[&str]| {
        let name = words[0];
        let script = r#"
            . "$HOME/.local/share/bash-completion/completions/$1"
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            "_$1" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[*]}""#;
        let said = must(home.command("bash").args(["-c", script, "bash"]).args(words), String::new);
        assert!(!said.is_empty(), "{name}");
        said.trim_end().to_owned()
    };
    assert_eq!(complete(&["sbatch", "--pars"]), "--parsable");
    assert_eq!(complete(&["scontrol", "susp"]), "suspend");
    assert_eq!(complete(&["squeue", "--me", "--js"]), "--json");
    assert_eq!(complete(&["slotd", "sdi"]), "sdiag");
    assert_eq!(complete(&["slotd", "seff", "--deb"]), "--debug");
}

#[test]
fn every_value_survives_exactly_into_the_environment_file() {
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
    assert_eq!(shown("SLOTD_NOTIFY_CMD"), "a=b", "an upgrade keeps what is not given anew");
    assert_eq!(shown("SLOTD_FEATURES"), "x,y");
    assert_eq!(shown("SLOTD_CGROUP_BASE"), "/sys/fs/cgroup/a b%c");
    assert_eq!(shown("SLOTD_CPU_PARTITIONS"), "long,short");
    assert_eq!(shown("SLOTD_GPU_PARTITIONS"), "gpu");
    assert_eq!(
        fs::metadata(&file).expect("it is there").permissions().mode() & 0o777,
        0o600,
        "hooks hold secrets"
    );

    let by_hand =
        format!("# mine\nSLOTD_GPU_COUNT='2'\n{}", fs::read_to_string(&file).expect("text"));
    fs::write(&file, &by_hand).expect("ours");
    home.install(&["--skip-systemd", "--features", "z"]);
    let after = fs::read_to_string(&file).expect("text");
    assert_eq!(after, by_hand.replace("x,y", "z"), "lines by hand stay as they are");

    for value in ["two\nlines", "return\r", "bell\u{7}"] {
        assert!(home.refused(&["--notify-cmd", value]).contains("--notify-cmd"));
    }
    fs::write(&file, "SLOTD_FEATURES=\"never closed\n").expect("ours");
    assert!(home.refused(&["--skip-systemd"]).contains("slotd.env:1: "));
}

#[test]
fn the_hook_of_the_book_runs_as_given() {
    let home = Home::new(NO_MANAGER);
    home.script("stub/notify-send", "#!/bin/sh\nprintf '%s|' \"$#\" \"$@\" >>\"$HOME/sent\"\n");
    home.install(&["--notify-cmd", r#"notify-send "slotd" "$SLOTD_JOB_ID $SLOTD_JOB_STATE""#]);
    let sent = || fs::read_to_string(home.path("sent")).ok().filter(|text| text.ends_with("D|"));
    assert_eq!(wait_for("the hook runs", || home.log(), sent), "2|slotd|1 COMPLETED|");
}

#[test]
fn commands_find_another_runtime_root_by_themselves() {
    let home = Home::new(NO_MANAGER);
    let root = home.path("my 'own' $root");
    home.install(&["--runtime-root", root.to_str().expect("text")]);
    assert!(root.join("lib/state.db").exists());
    assert!(!home.path(".local/share/slotd").exists());
    home.run("sbatch", &["-W", "-o", "out file", "--wrap", "echo \"a  b\""]);
    assert_eq!(fs::read_to_string(home.path("out file")).expect("written"), "a  b\n");
    home.run("slotd", &["sinfo"]);
    // An upgrade remembers the root; the default one brings the links back.
    home.install(&[]);
    assert!(!home.path(".local/share/slotd").exists());
    let default = home.path(".local/share/slotd");
    home.install(&["--runtime-root", default.to_str().expect("text")]);
    assert!(fs::symlink_metadata(home.path(".local/bin/sbatch")).expect("there").is_symlink());
    assert!(!home.path(".local/bin/slotd.bin").exists());
}

#[test]
fn under_a_manager_the_service_is_installed_started_restarted_and_removed() {
    let home = Home::new(A_MANAGER);
    let said = home.install(&["--features", "cpu"]);
    assert!(said.contains("COMPLETED"), "{said}");
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
    let told = || fs::read_to_string(home.path("systemctl.log")).expect("it was called");
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
        assert!(told().lines().any(|l| l == call), "{call} is missing:\n{}", told());
    }
    assert!(
        !home.path(".local/bin/slotd-daemon").exists(),
        "the manager starts it, and nothing else"
    );
    home.install(&[]);
    home.install(&["--uninstall", "--purge-runtime"]);
    assert!(told().lines().any(|l| l == "disable --now slotd.service"), "{}", told());
    let units = fs::read_dir(home.path(".config/systemd/user")).expect("the directory of units");
    assert_eq!(units.count(), 0);
    assert!(!home.path(".local/share/slotd").exists());
}

#[test]
fn with_skip_systemd_nothing_is_started_and_the_way_to_start_is_told() {
    let home = Home::new(A_MANAGER);
    let said = home.install(&["--skip-systemd"]);
    assert!(said.contains("slotd-daemon start"), "{said}");
    assert!(!home.path("systemctl.log").exists(), "systemctl was called");
    assert!(!home.path(".config/systemd").exists());
    assert!(
        home.command("sinfo").output().is_ok_and(|out| !out.status.success()),
        "a daemon answers"
    );

    home.run("slotd-daemon", &["start"]);
    home.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    assert!(home.run("slotd-daemon", &["start"]).contains("runs already"));
    home.run("slotd-daemon", &["restart"]);
    home.run("sinfo", &[]);
    home.run("slotd-daemon", &["stop"]);
    assert!(
        home.command("sinfo").output().is_ok_and(|out| !out.status.success()),
        "a daemon answers"
    );
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_changes() {
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
        let said = home.refused(&args);
        assert!(said.contains(named), "{args:?}: {said}");
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
        // No directory can be made there: were the root taken, the installer would still stop
        // before it makes anything.
        let said = home.refused(&["--install-bin-dir", "/dev/null/bin", "--runtime-root", root]);
        assert!(said.contains("the runtime root must"), "{root}: {said}");
    }
    fs::remove_file(link).expect("ours");
    assert_eq!(home.left(), [""; 0], "something was made");
}

#[test]
fn a_missing_cargo_is_named() {
    let home = Home::new(NO_MANAGER);
    // Only what the installer needs so far, from wherever it is.
    for tool in ["bash", "dirname"] {
        let found =
            must(home.command("sh").args(["-c", &format!("command -v {tool}")]), String::new);
        std::os::unix::fs::symlink(found.trim(), home.path("stub").join(tool)).expect("a link");
    }
    let mut installer =
        home.command(Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/install.sh"));
    let output = installer.env("PATH", home.path("stub")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cargo is not installed"), "{said}");
}

#[test]
fn commands_of_others_are_not_replaced() {
    let home = Home::new(NO_MANAGER);
    home.script(".local/bin/squeue", "#!/bin/sh\necho the real Slurm\n");
    let said = home.refused(&[]);
    assert!(said.contains(".local/bin/squeue") && said.contains("--install-bin-dir"), "{said}");
    assert!(!home.path(".local/bin/slotd").exists());
    home.install(&["--uninstall"]);
    assert!(home.path(".local/bin/squeue").exists());
}

#[test]
fn commands_are_linked_where_every_shell_finds_them() {
    let home = Home::new(NO_MANAGER);
    fs::create_dir(home.path("everybodys")).expect("a fresh directory");
    let link_dir = format!("--link-dir={}", home.path("everybodys").display());
    // A later installation and the end of it know where the links are.
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
    // A link of the user's to a program of the user's beside the commands.
    std::os::unix::fs::symlink(home.path(".local/bin/mine"), home.path("everybodys/mine"))
        .expect("a fresh link");
    home.install(&["--uninstall"]);
    let left: Vec<_> =
        fs::read_dir(home.path("everybodys")).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    home.script("everybodys/squeue", "#!/bin/sh\n");
    let told = home.refused(&["--skip-systemd", &link_dir]);
    assert!(told.contains("everybodys/squeue exists and is not slotd's"), "{told}");
}

#[test]
fn another_runtime_root_gives_each_command_a_script_of_its_own() {
    let home = Home::new(NO_MANAGER);
    let elsewhere = format!("--runtime-root={}", home.path("elsewhere").display());
    home.install(&["--skip-systemd"]);
    home.install(&["--skip-systemd", &elsewhere]);
    let program = |name: &str| home.path(".local/bin").join(name);
    for name in commands() {
        assert!(!program(&name).is_symlink(), "{name} is a link still");
        let script = fs::read_to_string(program(&name)).expect("a script");
        assert!(script.ends_with(&format!("slotd.bin {name} \"$@\"\n")), "{name}: {script}");
    }
    // Links of the user's: one to slotd, and one in its place.
    std::os::unix::fs::symlink("slotd", program("mine")).expect("a fresh link");
    fs::write(home.path("precious"), "data").expect("ours");
    fs::remove_file(program("slotd")).expect("it is there");
    std::os::unix::fs::symlink(home.path("precious"), program("slotd")).expect("a fresh link");
    home.install(&[
        "--skip-systemd",
        &format!("--runtime-root={}", home.path(".local/share/slotd").display()),
    ]);
    assert!(commands().iter().all(|name| program(name).is_symlink()));
    assert!(fs::read(program("slotd")).expect("a program").starts_with(b"\x7fELF"));
    assert_eq!(fs::read_to_string(home.path("precious")).expect("ours"), "data");
    home.install(&["--uninstall"]);
    assert!(program("mine").is_symlink() && !program("squeue").is_symlink());
}

#[test]
fn a_purge_leaves_what_slotd_did_not_make() {
    let home = Home::new(NO_MANAGER);
    let root = home.path("data");
    fs::create_dir(&root).expect("fresh");
    fs::write(root.join("thesis.tex"), "").expect("ours");
    let root = root.to_str().expect("text");
    assert!(
        home.refused(&["--uninstall", "--purge-runtime", "--runtime-root", root])
            .contains("does not look like")
    );
    home.install(&["--runtime-root", root]);
    let said = home.install(&["--uninstall", "--purge-runtime"]);
    assert!(!said.contains("the runtime root there is no"), "{said}");
    // The environment file named the root; it went with the installation.
    assert!(home.path("data/thesis.tex").exists());
    assert!(!home.path("data/lib").exists() && !home.path("data/run").exists());
}

#[test]
fn a_purge_deletes_nothing_through_a_link_and_no_name_of_others() {
    let home = Home::new(NO_MANAGER);
    home.install(&[]);
    let (lib, scratch) = (home.path(".local/share/slotd/lib"), home.path("scratch"));
    for dir in
        ["jobs/7/inner", "jobs/mine", "snapshots/1-2", "snapshots/gone.3-4", "snapshots/thesis"]
    {
        fs::create_dir_all(lib.join(dir)).expect("ours");
        fs::write(lib.join(dir).join("file"), "").expect("ours");
    }
    let own = [
        "state.db",
        "state.db-wal",
        "state.db.backup.new",
        "state.db.replaced2-shm",
        "gpus.json",
        "host_use.jsonl",
    ];
    let others =
        ["state.db.thesis", "state.dbase", "state.db.replaced", "gpus.notes", "host_use.mine"];
    for name in own.iter().chain(&others) {
        fs::write(lib.join(name), "").expect("ours");
    }
    fs::create_dir(lib.join("state.db.new")).expect("ours");
    fs::create_dir_all(scratch.join("7")).expect("ours");
    fs::rename(lib.join("jobs"), home.path("jobs")).expect("ours");
    std::os::unix::fs::symlink(&scratch, lib.join("jobs")).expect("a link");
    let refused = home.refused(&["--uninstall", "--purge-runtime"]);
    assert!(refused.contains("lib/jobs: it is a link"), "{refused}");
    assert!(scratch.join("7").exists() && lib.join("snapshots/1-2").exists());
    fs::remove_file(lib.join("jobs")).expect("the link");
    fs::rename(home.path("jobs"), lib.join("jobs")).expect("ours");
    let said = home.install(&["--uninstall", "--purge-runtime"]);
    assert!(said.contains("jobs/mine") && said.contains("snapshots/thesis"), "{said}");
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
fn a_purge_that_meets_waiting_jobs_or_a_job_that_has_just_come_deletes_nothing() {
    // A manager that gets a job in while the service is being stopped.
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
        let told = home.refused(&purge);
        assert!(told.contains("there are waiting jobs, 1 of them (see squeue)"), "{told}");
        let pid = home.run("slotd", &["daemon", "status"]);
        home.run("scancel", &[held.trim()]);
        assert_eq!(home.run("squeue", &["-h"]), "");
        if manager != NO_MANAGER {
            fs::write(
                home.path("late"),
                "sbatch -H --wrap true; sbatch --wrap 'echo >begun; sleep 1000'; \
                 until [ -e begun ]; do sleep 0.01; done; rm \"$0\"\n",
            )
            .expect("ours");
            let told = home.refused(&purge);
            assert!(
                told.contains("there are running jobs, 1 of them, and waiting jobs, 1 of them"),
                "{told}"
            );
            // All is as before, and another daemon serves it.
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
fn a_daemon_beside_the_shell_is_started_told_about_and_stopped() {
    let home = Home::new(NO_MANAGER);
    let daemon = |action: &str| {
        let output = home
            .command(program())
            .args(["daemon", action])
            .env("SLOTD_CPUS", "7")
            .output()
            .expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let root = home.path(".local/share/slotd");
    let none = (Some(3), format!("no daemon serves {}\n", root.display()), String::new());
    assert_eq!(daemon("status"), none);
    assert_eq!(daemon("stop").0, Some(0));

    // A daemon that cannot serve says why, and where it said it.
    let file = home.path(".config/slotd/slotd.env");
    fs::create_dir_all(file.parent().expect("its directory")).expect("ours");
    fs::write(&file, "SLOTD_LOG = 'loud'\n").expect("ours");
    let (code, _, said) = daemon("start");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("SLOTD_LOG=\"loud\": expected error, warn, info, debug or trace"),
        "{said}"
    );
    assert!(said.contains("ended before it served") && said.contains("run/slotd.log"), "{said}");
    fs::write(&file, "SLOTD_CPUS=3\nexport SLOTD_LOG=info\n").expect("ours");
    let (code, _, said) = daemon("start");
    assert_eq!(
        (code, said.contains("slotd.env:2: no NAME=VALUE: export SLOTD_LOG=info")),
        (Some(1), true),
        "{said}"
    );

    fs::write(&file, "SLOTD_CPUS=3\nSLOTD_CORES=3\n").expect("ours");
    let (code, told, said) = daemon("start");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("SLOTD_CPUS of this shell has no effect"), "{said}");
    let pid = told
        .split("(process ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("its process");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let session =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3)).expect("a session");
    assert_eq!(session, pid, "it left the session of its caller");
    let (code, told, _) = daemon("status");
    let version = format!("version {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(code, Some(0));
    assert!(
        told.contains(&format!(
            "(process {pid})\n{version}socket {}/run/slotd.sock\n",
            root.display()
        )),
        "{told}"
    );
    let cpus = must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c"]), || home.log());
    assert_eq!(cpus.trim(), "3", "the setting of the file");
    let log = home.log();
    let last = log.lines().find(|line| line.contains(" serves ")).expect("it says so");
    let (time, level) = (&last[..29], &last[29..36]);
    assert!(time.as_bytes()[10] == b'T' && time.contains("+00:00") && level == " INFO  ", "{last}");
    assert!(log.contains("SLOTD_CORES is no setting of slotd"), "{log}");

    // What the file says holds without a restart, as far as that is possible, and is told where it
    // is not.
    let scontrol = |action: &str| {
        let output = home.command(program()).args(["scontrol", action]).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    fs::write(&file, "SLOTD_CPUS=5\nSLOTD_FEATURES=fast\nSLOTD_KILL_WAIT=7\nSLOTD_CORES=3\n")
        .expect("ours");
    let remarks = [
        "SLOTD_KILL_WAIT holds after the next start of the daemon",
        "SLOTD_CORES is no setting of slotd and has no effect",
    ]
    .map(|what| format!("scontrol: warning: {}: {what}\n", file.display()));
    assert_eq!(scontrol("reconfigure"), (Some(0), remarks.concat()));
    let told =
        must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c %f"]), || home.log());
    assert_eq!(told.trim(), "5 cpu,fast");
    let shown = must(home.command(program()).args(["scontrol", "show", "config"]), || home.log());
    let has = |key: &str, value: &str| {
        shown.lines().any(|line| line.starts_with(key) && line.ends_with(&format!("= {value}")))
    };
    assert!(has("SlotdCpus", "5") && has("KillWait", "30 sec"), "{shown}");
    fs::write(&file, "SLOTD_CPUS=many\nSLOTD_FEATURES=slow\n").expect("ours");
    let (code, said) = scontrol("reconfigure");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("slurm_reconfigure error: SLOTD_CPUS=\"many\": expected a number of CPUs"),
        "{said}"
    );
    let told =
        must(home.command(program()).args(["sinfo", "-h", "-N", "-o", "%c %f"]), || home.log());
    assert_eq!(told.trim(), "5 cpu,fast", "all is as it was");

    assert_eq!(daemon("stop").1, "stopped; running jobs go on\n");
    assert_eq!(daemon("status"), none);
    assert_eq!(
        fs::read_dir(root.join("run")).expect("there").count(),
        4,
        "the log, two locks, and the mark of a launch"
    );
}
