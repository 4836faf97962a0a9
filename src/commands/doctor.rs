//! `slotd doctor`: checks for the common problems of an installation and suggests a fix for each.

use super::daemon::read_settings;
use super::output::print;
use super::running::{Running, running};
use super::{Done, ask, ask_job_list, ask_node, enforces_memory, origin, unexpected};
use crate::args::error::CliError;
use crate::daemon::{
    DaemonError, Environment, SENDMAIL_KEY, VERSION_KEY, check_settings, detached, unknown_settings,
};
use nix::sys::statvfs::statvfs;
use slotd_exec::job_dirs;
use slotd_model::job::Hold;
use slotd_model::query::JobQuery;
use slotd_model::view::NodeView;
use slotd_parse::env_file::EnvFile;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::seff::ENFORCES;
use slotd_sys::{ownership, paths::Paths, root_dirs, user};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a check: a description of what works, or a problem and its fix.
enum Finding {
    Good(String),
    Problem { what: String, fix: String },
}

use Finding::Good;

fn problem(what: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding::Problem { what: what.into(), fix: fix.into() }
}

/// Below this much free space, the next job may fail for lack of it.
const LOW_MB: u64 = 100;

/// Runs all checks and prints the results. Returns 1 if there is a problem.
pub fn run() -> Done {
    let paths = super::paths()?;
    let settings = settings_file();
    let mut findings = vec![root(&paths, settings.as_ref().ok()), disk(&paths)];
    findings.extend(own_dirs(&paths));
    findings.extend(settings_make_sense(&settings));
    findings.extend(shells());
    let daemon = daemon(&paths);
    let serves = matches!(daemon, Good(_));
    findings.push(daemon);
    if serves {
        findings.extend(disks()?);
        findings.extend(mail()?);
        let node = ask_node()?;
        findings.push(memory(&node));
        findings.extend(self::node(&node));
        findings.extend(held_jobs()?);
    }
    findings.extend(linger());
    let mut problems = 0;
    for finding in findings {
        match finding {
            Good(what) => print(&format!("ok       {what}\n"))?,
            Finding::Problem { what, fix } => {
                problems += 1;
                print(&format!("PROBLEM  {what}\n    fix: {fix}\n"))?
            }
        };
    }
    Ok(u8::from(problems > 0))
}

/// The user's environment file, if there is one.
struct SettingsFile {
    path: PathBuf,
    settings: Option<EnvFile>,
}

fn home() -> PathBuf {
    let given = std::env::var_os("HOME").filter(|home| !home.is_empty());
    given.map_or_else(|| PathBuf::from(origin().home.as_str()), PathBuf::from)
}

fn settings_file() -> Result<SettingsFile, CliError> {
    let path = home().join(".config/slotd/slotd.env");
    let settings = if path.exists() { Some(read_settings(&path)?) } else { None };
    Ok(SettingsFile { path, settings })
}

/// Checks the runtime root, which must be the same for commands and daemon.
fn root(paths: &Paths, file: Option<&SettingsFile>) -> Finding {
    let root = paths.root().display().to_string();
    let installed = file
        .and_then(|file| file.settings.as_ref()?.get("SLOTD_ROOT").map(|root| (&file.path, root)));
    match installed {
        Some((path, other)) if !other.is_empty() && Path::new(other) != paths.root() => problem(
            format!("the commands in this shell use {root}, but {} sets {other}", path.display()),
            "run slotd install --runtime-root DIR: it sets one root for the commands and the daemon",
        ),
        _ => match ownership::check_dir(paths.root()) {
            Ok(()) => Good(format!("the runtime root is {root}")),
            Err(e) if paths.root().exists() => {
                problem(format!("{root}: {e}"), fix_root(paths.root()))
            }
            // The daemon creates it.
            Err(_) => Good(format!("the runtime root is {root}, which does not exist yet")),
        },
    }
}

/// Suggests no change of ownership: another user's directory may belong to another slotd.
fn fix_root(root: &Path) -> String {
    let Some(found) = foreign(root) else { return format!("chmod 700 {}", root.display()) };
    let owner = user::user_name(found);
    format!(
        "run this as user {owner} (sudo -u {owner} slotd doctor), or set SLOTD_ROOT to a directory of your own"
    )
}

/// Returns the owner of a directory if it is not this user.
fn foreign(dir: &Path) -> Option<u32> {
    let owner = std::fs::metadata(dir).ok()?.uid();
    (owner != nix::unistd::getuid().as_raw()).then_some(owner)
}

/// Checks for free disk space. On a full disk, the node is drained and the database cannot be
/// written.
fn disk(paths: &Paths) -> Finding {
    let there = paths.root().ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let free =
        statvfs(there).map(|disk| disk.blocks_available() * disk.fragment_size() / (1 << 20));
    match free {
        Ok(mb) if mb < LOW_MB => problem(
            format!("the disk of {} has only {mb} MB free", there.display()),
            "free space: run slotd clean to delete old jobs, or lower SLOTD_KEEP_DAYS",
        ),
        Ok(mb) => Good(format!("the disk of {} has {mb} MB free", there.display())),
        Err(e) => problem(
            format!("cannot read the free space of {}: {e}", there.display()),
            "check the file system",
        ),
    }
}

/// Checks that each line of the environment file is valid, and that the daemon accepts each value
/// and `slotd.toml`.
fn settings_make_sense(file: &Result<SettingsFile, CliError>) -> Vec<Finding> {
    let SettingsFile { path, settings } = match file {
        Ok(file) => file,
        Err(error) => {
            return vec![problem(
                error.text("slotd").trim_end(),
                "correct the file, then: scontrol reconfigure",
            )];
        }
    };
    let given = settings.iter().flat_map(EnvFile::iter);
    let mut env: Environment = given.map(|(name, value)| (name.into(), value.into())).collect();
    let unknown = unknown_settings(env.keys()).into_iter();
    let mut found: Vec<Finding> = unknown
        .map(|name| {
            problem(
                format!("{name} in {} is not a slotd setting and has no effect", path.display()),
                "check its spelling against the table of settings (man slotd.env)",
            )
        })
        .collect();
    // slotd.toml is below it, unless SLOTD_CONFIG names another file.
    env.insert("HOME".into(), home().into());
    match check_settings(&env) {
        Ok(()) => {}
        Err(error @ DaemonError::Site(_)) => {
            found.push(problem(error.to_string(), "correct the file, then: scontrol reconfigure"));
        }
        Err(error) => found.push(problem(
            format!("{}: {error}", path.display()),
            "correct the value, then: slotd daemon restart",
        )),
    }
    let base = settings.as_ref().and_then(|file| file.get("SLOTD_CGROUP_BASE"));
    if let Some(base) = base.filter(|base| base.starts_with('/')) {
        found.extend(cgroup_base(Path::new(base)));
    }
    if found.is_empty() && settings.is_some() {
        found.push(Good(format!("{} is valid", path.display())));
    }
    found
}

/// Checks that the daemon can create cgroups below `base` with the controllers that limits need.
fn cgroup_base(base: &Path) -> Option<Finding> {
    let fix =
        "set it to a cgroup v2 subtree that is delegated to you, or to auto (see slotd.env(5))";
    let wrong = match std::fs::read_to_string(base.join("cgroup.controllers")) {
        Err(e) => format!("not a cgroup: {e}"),
        Ok(has) => {
            let missing = ["cpu", "memory"]
                .into_iter()
                .find(|wanted| !has.split_whitespace().any(|one| one == *wanted));
            let writes = nix::unistd::access(base, nix::unistd::AccessFlags::W_OK);
            match (missing, writes) {
                (Some(missing), _) => format!("the {missing} controller is missing"),
                (None, Err(e)) => format!("not writable: {}", e.desc()),
                (None, Ok(())) => return None,
            }
        }
    };
    Some(problem(format!("SLOTD_CGROUP_BASE {}: {wrong}", base.display()), fix))
}

/// Checks that this shell and a new login shell find the commands of this installation.
fn shells() -> Vec<Finding> {
    let own = std::env::current_exe().ok();
    let is_ours = |found: &Path| {
        own.is_some() && ends_at(found) == own.as_deref().map(ends_at).unwrap_or_default()
    };
    let here = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&here).map(|dir| dir.join("sbatch")).find(|path| path.exists());
    let link =
        "install with --link-dir /usr/local/bin, or add their directory to PATH in ~/.profile";
    let mut findings = vec![match found {
        None => {
            problem("this shell does not find sbatch", "add the directory of the commands to PATH")
        }
        Some(path) if !is_ours(&path) => problem(
            format!("{} is another program that comes before slotd's in PATH", path.display()),
            "put the directory of slotd's commands first in PATH",
        ),
        Some(path) => Good(format!("this shell finds {}", path.display())),
    }];
    findings.push(match login_finds() {
        Some(path) if is_ours(&path) => Good(format!("a login shell finds {}", path.display())),
        Some(path) => {
            problem(format!("a login shell finds {}, which is not slotd's", path.display()), link)
        }
        None => problem(
            "a login shell (bash -l, as started by schedulers and ssh) does not find sbatch",
            link,
        ),
    });
    findings
}

/// Returns the sbatch that a login shell without this environment finds.
fn login_finds() -> Option<PathBuf> {
    let origin = origin();
    let home = home();
    let mut shell = Command::new("bash");
    shell
        .args(["-l", "-c", "command -v sbatch"])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    shell
        .env("HOME", home)
        .env("USER", origin.user.as_str())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let out = shell.output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !text.is_empty()).then(|| PathBuf::from(text))
}

/// Resolves a command to its program: follows links, and wrapper scripts that call `slotd.bin`
/// beside them.
fn ends_at(path: &Path) -> PathBuf {
    let end = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = end.with_file_name("slotd.bin");
    let is_script = std::fs::read(&end).is_ok_and(|bytes| bytes.starts_with(b"#!"));
    if is_script && beside.exists() { beside.canonicalize().unwrap_or(beside) } else { end }
}

/// How to replace a daemon of another version.
const RESTART: &str =
    "slotd daemon restart, or systemctl --user restart slotd.service; running jobs continue";

/// Checks that the daemon answers and has the version of this command.
fn daemon(paths: &Paths) -> Finding {
    let root = paths.root().display();
    let Some(pid) = detached::pid_of(paths) else {
        let start = "slotd daemon start, or systemctl --user start slotd.service; if it does not start, see run/slotd.log or \
                     journalctl --user -u slotd.service";
        return problem(format!("no daemon is running for {root}"), start);
    };
    let config = match running(paths) {
        Some(Running::Config(config)) => config,
        Some(Running::Other(why)) => {
            let (what, fix) = why.split_once('\n').unwrap_or((&why, RESTART));
            return problem(
                format!("the daemon has another version than this command: {what}"),
                fix,
            );
        }
        None => {
            let fix = format!(
                "if this persists: kill -9 {pid}, slotd daemon start; running jobs continue"
            );
            return problem(format!("the daemon for {root} (process {pid}) does not answer"), fix);
        }
    };
    let version = config
        .iter()
        .find(|(key, _)| key == VERSION_KEY)
        .map_or("", |(_, version)| version.as_str());
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        return problem(
            format!("the daemon has version {version}, but this command has version {own}"),
            RESTART,
        );
    }
    Good(format!("the daemon for {root} answers (process {pid}, version {version})"))
}

/// Reports which program sends the jobs' mail. The queue works without one, so its absence is not a
/// problem.
fn mail() -> Result<Option<Finding>, CliError> {
    let Answer::Config(config) = ask(&Request::Config, &[])?.0 else { return Ok(None) };
    let sendmail = config.into_iter().find(|(key, _)| key == SENDMAIL_KEY).map(|(_, value)| value);
    Ok(sendmail.map(|sendmail| match sendmail.as_str() {
        "(null)" => {
            Good("no mail is sent: there is no sendmail, or SLOTD_SENDMAIL is off".to_owned())
        }
        program => Good(format!("mail is sent by {program}")),
    }))
}

/// Reports whether memory limits are enforced. On most hosts they are not. A daemon whose cgroups
/// do not work drains the node.
fn memory(node: &NodeView) -> Finding {
    Good(if enforces_memory() && node.drained.is_some() {
        "memory limits of jobs are enforced once the node accepts jobs".to_owned()
    } else if enforces_memory() {
        "memory limits of jobs are enforced".to_owned()
    } else {
        format!(
            "memory is reserved, but limits are not enforced: a job can use more than its --mem; {ENFORCES}"
        )
    })
}

/// Checks that the database can be written, and that disks and programs respond to the daemon.
fn disks() -> Result<Vec<Finding>, CliError> {
    let answer = match ask(&Request::Diagnostics { reset: false }, &[])?.0 {
        Answer::Diagnostics(answer) => answer,
        other => return Err(unexpected(&other)),
    };
    let mut found = Vec::new();
    if let Some(why) = answer.trouble {
        let fix = format!(
            "{}: the daemon retries automatically, and running jobs continue",
            why.fault.remedy().trim_end_matches(',')
        );
        found.push(problem(
            format!("the database cannot be written: {} ({})", why.fault, why.message),
            fix,
        ));
    }
    for hung in answer.hung {
        let fix = "look for a disk or a network file system that does not respond: until it does, the daemon refuses this work";
        found.push(problem(hung, fix));
    }
    for tree in answer.slow_trees {
        let what = format!(
            "git took too long in {tree}: uncommitted changes of jobs submitted there are not recorded"
        );
        let fix = "run `git status` there, and look for a FIFO, huge files, or a disk that does not respond";
        found.push(problem(what, fix));
    }
    Ok(found)
}

/// Checks that slotd's directories are not links and belong to this user.
fn own_dirs(paths: &Paths) -> Vec<Finding> {
    let fix = "replace it with a directory of your own: slotd deletes nothing through links, and the daemon does not start";
    if foreign(paths.root()).is_some() {
        // Already reported by the check of the root.
        return Vec::new();
    }
    let mut wrong = root_dirs::faults(paths);
    if wrong.is_empty() {
        wrong = job_dirs::links(&paths.jobs_dir())
            .iter()
            .map(|link| format!("{}: it is a link", link.display()))
            .collect();
    }
    wrong.into_iter().map(|wrong| problem(wrong, fix)).collect()
}

/// Checks that the node accepts jobs and that no part of it is out of use.
fn node(node: &NodeView) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &node.drained {
        let fix = "remove the cause; a node that the daemon drained resumes automatically, any other with slotd resume";
        found.push(problem(format!("the node accepts no jobs: {}", why.text), fix));
    }
    for outage in &node.outages {
        found.push(problem(format!("out of use: {}", outage.reason.text), "see sinfo -R"));
    }
    found.extend(unseen_gpus(node));
    if found.is_empty() {
        found.push(Good(format!("the node {} accepts jobs", node.host.name)));
    }
    found
}

/// Checks for GPUs that the daemon does not detect, or that are in no partition.
fn unseen_gpus(node: &NodeView) -> Option<Finding> {
    let device =
        ["/dev/nvidia0", "/dev/kfd"].into_iter().find(|device| Path::new(device).exists())?;
    let none = "check that nvidia-smi works where the daemon runs, and the value of SLOTD_GPU_COUNT; then scontrol reconfigure";
    let partition = "check the value of SLOTD_GPU_PARTITIONS, then scontrol reconfigure";
    match (node.host.has_gpus(), node.partitions.iter().any(|p| p.partition.is_gpu)) {
        (false, _) => {
            Some(problem(format!("{device} exists, but the daemon detects no GPU"), none))
        }
        (true, false) => Some(problem("there are GPUs, but no GPU partition", partition)),
        (true, true) => None,
    }
}

/// Checks for jobs that the daemon itself holds.
fn held_jobs() -> Result<Option<Finding>, CliError> {
    let query = JobQuery { without_paths: true, without_steps: true, ..JobQuery::live() };
    let list = ask_job_list(&Request::Jobs(query))?;
    let held: Vec<String> = list
        .jobs
        .iter()
        .filter(|job| job.hold == Hold::Admin)
        .map(|job| job.id.to_string())
        .collect();
    Ok((!held.is_empty()).then(|| {
        let fix =
            "see the reason in scontrol show job (SystemComment), then retry with scontrol release";
        problem(format!("held after failed launches (JobHeldAdmin): {}", held.join(", ")), fix)
    }))
}

/// Checks for lingering: without it, the user manager and all jobs end at logout.
fn linger() -> Option<Finding> {
    let says = |program: &str, args: &[&str]| {
        let out = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let unit = super::install::UNIT;
    if says("systemctl", &["--user", "is-active", unit])? != "active" {
        return None;
    }
    let user = nix::unistd::getuid().to_string();
    (says("loginctl", &["show-user", &user, "--property=Linger", "--value"])? == "no").then(|| {
        problem(format!("{unit} and its jobs end when you log out"), "loginctl enable-linger")
    })
}
