//! `slotd doctor`: looks for the troubles that the README lists, and says the mend of each.

use super::daemon::{configuration, read_settings};
use super::{Done, ask, ask_job_list, ask_node, enforces_memory, origin, unexpected};
use crate::args::error::CliError;
use crate::daemon::{
    Environment, SENDMAIL_KEY, VERSION_KEY, check_settings, detached, unknown_settings,
};
use crate::exec::job_dirs;
use crate::model::job::Hold;
use crate::model::query::JobQuery;
use crate::model::view::NodeView;
use crate::parse::env_file::EnvFile;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::seff::ENFORCES;
use crate::sys::{ownership, paths::Paths, root_dirs, user};
use nix::sys::statvfs::statvfs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a look found: what is well, or what is wrong and what to do.
enum Finding {
    Well(String),
    Trouble { what: String, mend: String },
}

use Finding::Well;

fn trouble(what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding::Trouble { what: what.into(), mend: mend.into() }
}

/// Less free space than this, and the next job may fail for the lack of it.
const LOW_MB: u64 = 100;

/// Looks at everything, and prints it. 1 where there is a trouble.
pub fn run() -> Done {
    let paths = super::paths()?;
    let settings = settings_file();
    let mut findings = vec![root(&paths, settings.as_ref().ok()), disk(&paths)];
    findings.extend(own_dirs(&paths));
    findings.extend(settings_make_sense(&settings));
    findings.extend(shells());
    let daemon = daemon(&paths);
    let serves = matches!(daemon, Well(_));
    findings.push(daemon);
    if serves {
        findings.extend(disks()?);
        findings.extend(mail()?);
        findings.push(memory());
        findings.extend(node()?);
        findings.extend(held_jobs()?);
    }
    findings.extend(linger());
    let mut troubles = 0;
    for finding in findings {
        match finding {
            Well(what) => println!("ok       {what}"),
            Finding::Trouble { what, mend } => {
                troubles += 1;
                println!("TROUBLE  {what}\n    mend: {mend}");
            }
        }
    }
    Ok(u8::from(troubles > 0))
}

/// The environment file of the user, which need not be there.
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

/// Commands and daemon must agree on the root.
fn root(paths: &Paths, file: Option<&SettingsFile>) -> Finding {
    let root = paths.root().display().to_string();
    let installed = file
        .and_then(|file| file.settings.as_ref()?.get("SLOTD_ROOT").map(|root| (&file.path, root)));
    match installed {
        Some((path, other)) if !other.is_empty() && Path::new(other) != paths.root() => trouble(
            format!("this shell's commands use {root}, and {} names {other}", path.display()),
            "unset SLOTD_ROOT, and use the commands that were installed",
        ),
        _ => match ownership::check_dir(paths.root()) {
            Ok(()) => Well(format!("the runtime root is {root}")),
            Err(e) if paths.root().exists() => {
                trouble(format!("{root}: {e}"), mend_root(paths.root()))
            }
            // The daemon makes it.
            Err(_) => Well(format!("the runtime root is {root}, which is not there yet")),
        },
    }
}

/// Nobody takes over the directory of another user, who may be another slotd's.
fn mend_root(root: &Path) -> String {
    let Some(found) = foreign(root) else { return format!("chmod 700 {}", root.display()) };
    let owner = user::user_name(found);
    format!(
        "run this as user {owner} (sudo -u {owner} slotd doctor), or set SLOTD_ROOT to a directory of your own"
    )
}

/// The owner of a directory that belongs to another user.
fn foreign(dir: &Path) -> Option<u32> {
    let owner = std::fs::metadata(dir).ok()?.uid();
    (owner != nix::unistd::getuid().as_raw()).then_some(owner)
}

/// A disk that is nearly full drains the node and keeps the database from being written.
fn disk(paths: &Paths) -> Finding {
    let there = paths.root().ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let free =
        statvfs(there).map(|disk| disk.blocks_available() * disk.fragment_size() / (1 << 20));
    match free {
        Ok(mb) if mb < LOW_MB => trouble(
            format!("the disk of {} has {mb} MB left", there.display()),
            "make room: slotd clean removes old jobs, and SLOTD_KEEP_DAYS keeps fewer",
        ),
        Ok(mb) => Well(format!("the disk of {} has {mb} MB left", there.display())),
        Err(e) => trouble(format!("the disk of {}: {e}", there.display()), "check the file system"),
    }
}

/// The environment file: each line has a meaning, and each value one for the daemon.
fn settings_make_sense(file: &Result<SettingsFile, CliError>) -> Vec<Finding> {
    let SettingsFile { path, settings: Some(file) } = (match file {
        Ok(file) => file,
        Err(error) => {
            return vec![trouble(
                error.text("slotd").trim_end(),
                "correct the file, then: scontrol reconfigure",
            )];
        }
    }) else {
        return Vec::new();
    };
    let env: Environment = file.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let unknown = unknown_settings(env.keys()).into_iter();
    let mut found: Vec<Finding> = unknown
        .map(|name| {
            trouble(
                format!("{name} in {} is no setting of slotd and has no effect", path.display()),
                "look for its name in the table of settings (man slotd)",
            )
        })
        .collect();
    if let Err(error) = check_settings(&env) {
        found.push(trouble(
            format!("{}: {error}", path.display()),
            "correct the value, then: scontrol reconfigure",
        ));
    }
    if let Some(base) = file.get("SLOTD_CGROUP_BASE").filter(|base| base.starts_with('/')) {
        found.extend(cgroup_base(Path::new(base)));
    }
    if found.is_empty() {
        found.push(Well(format!("{} makes sense", path.display())));
    }
    found
}

/// A subtree in which the daemon may make directories, with the controllers that limits need.
fn cgroup_base(base: &Path) -> Option<Finding> {
    let mend = "name a subtree of cgroup v2 that is delegated to you, or auto (README: \"Limits by cgroups\")";
    let wrong = match std::fs::read_to_string(base.join("cgroup.controllers")) {
        Err(e) => format!("it is no cgroup: {e}"),
        Ok(has) => {
            let missing = ["cpu", "memory"]
                .into_iter()
                .find(|wanted| !has.split_whitespace().any(|one| one == *wanted));
            let writes = nix::unistd::access(base, nix::unistd::AccessFlags::W_OK);
            match (missing, writes) {
                (Some(missing), _) => format!("the {missing} controller is not there"),
                (None, Err(e)) => format!("it cannot be written: {}", e.desc()),
                (None, Ok(())) => return None,
            }
        }
    };
    Some(trouble(format!("SLOTD_CGROUP_BASE {}: {wrong}", base.display()), mend))
}

/// This shell and a fresh login shell find the commands, and find these.
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
        None => trouble("this shell finds no sbatch", "add the directory of the commands to PATH"),
        Some(path) if !is_ours(&path) => trouble(
            format!("{} is another program, and comes before slotd's", path.display()),
            "put the directory of slotd's commands before it in PATH",
        ),
        Some(path) => Well(format!("this shell finds {}", path.display())),
    }];
    findings.push(match login_finds() {
        Some(path) if is_ours(&path) => Well(format!("a login shell finds {}", path.display())),
        Some(path) => {
            trouble(format!("a login shell finds {}, which is not slotd's", path.display()), link)
        }
        None => {
            trouble("a login shell (bash -l, as schedulers and ssh start it) finds no sbatch", link)
        }
    });
    findings
}

/// Where a shell that has nothing of this one's environment finds sbatch.
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

/// The program that a name stands for: links are followed, and so is a script that calls a program
/// beside it.
fn ends_at(path: &Path) -> PathBuf {
    let end = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = end.with_file_name("slotd.bin");
    let is_script = std::fs::read(&end).is_ok_and(|bytes| bytes.starts_with(b"#!"));
    if is_script && beside.exists() { beside.canonicalize().unwrap_or(beside) } else { end }
}

/// Whether it serves, and is this version.
fn daemon(paths: &Paths) -> Finding {
    let root = paths.root().display();
    let Some(pid) = detached::pid_of(paths) else {
        let start = "slotd daemon start, or systemctl --user start slotd.service; run/slotd.log and journalctl --user -u \
                     slotd.service say why it does not start";
        return trouble(format!("no daemon serves {root}"), start);
    };
    let Some(config) = configuration(paths) else {
        let mend = format!("if it stays so: kill -9 {pid}, slotd daemon start; running jobs go on");
        return trouble(format!("the daemon of {root} (process {pid}) does not answer"), mend);
    };
    let version = config
        .iter()
        .find(|(key, _)| key == VERSION_KEY)
        .map_or("", |(_, version)| version.as_str());
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        let mend =
            "slotd daemon restart, or systemctl --user restart slotd.service; running jobs go on";
        return trouble(format!("the daemon is version {version}, and this command {own}"), mend);
    }
    Well(format!("the daemon of {root} answers (process {pid}, version {version})"))
}

/// Who sends the mail that jobs ask for. That there is nobody is no trouble for the queue.
fn mail() -> Result<Option<Finding>, CliError> {
    let Answer::Config(config) = ask(&Request::Config, &[])?.0 else { return Ok(None) };
    let sendmail = config.into_iter().find(|(key, _)| key == SENDMAIL_KEY).map(|(_, value)| value);
    Ok(sendmail.map(|sendmail| match sendmail.as_str() {
        "(null)" => {
            Well("no mail is sent: there is no sendmail, or SLOTD_SENDMAIL is off".to_owned())
        }
        program => Well(format!("mail is sent by {program}")),
    }))
}

/// Whether jobs are held to their memory. Most hosts leave that to the jobs.
fn memory() -> Finding {
    Well(if enforces_memory() {
        "jobs are held to the memory that they ask for".to_owned()
    } else {
        format!(
            "memory is reserved and not enforced: a job can use more than its --mem; {ENFORCES}"
        )
    })
}

/// Whether commits reach the disk, and whether disks and programs answer the daemon.
fn disks() -> Result<Vec<Finding>, CliError> {
    let answer = match ask(&Request::Diagnostics { reset: false }, &[])?.0 {
        Answer::Diagnostics(answer) => answer,
        other => return Err(unexpected(&other)),
    };
    let mut found = Vec::new();
    if let Some(why) = answer.trouble {
        let mend = format!(
            "{}: the daemon tries again by itself, and running jobs go on",
            why.fault.remedy().trim_end_matches(',')
        );
        found.push(trouble(
            format!("the database cannot be written: {} ({})", why.fault, why.message),
            mend,
        ));
    }
    for hung in answer.hung {
        let mend = "look for a disk or a network file system that does not answer: until it does, the daemon refuses this work";
        found.push(trouble(hung, mend));
    }
    for tree in answer.slow_trees {
        let what =
            format!("git took too long in {tree}: the changes of jobs from there are not recorded");
        let mend = "run `git status` there, and look for a FIFO, for huge files, or for a disk that does not answer";
        found.push(trouble(what, mend));
    }
    Ok(found)
}

/// Links and strangers' directories where slotd keeps its own.
fn own_dirs(paths: &Paths) -> Vec<Finding> {
    let mend = "put the directory itself there: slotd deletes nothing through a link, and a daemon does not start with one";
    if foreign(paths.root()).is_some() {
        // All of it is, and that is said of the root.
        return Vec::new();
    }
    let mut wrong = root_dirs::faults(paths);
    if wrong.is_empty() {
        wrong = job_dirs::links(&paths.jobs_dir())
            .iter()
            .map(|link| format!("{}: it is a link", link.display()))
            .collect();
    }
    wrong.into_iter().map(|wrong| trouble(wrong, mend)).collect()
}

/// Whether the node takes jobs, with all that the machine has.
fn node() -> Result<Vec<Finding>, CliError> {
    let node = ask_node()?;
    let mut found = Vec::new();
    if let Some(why) = &node.drained {
        let mend = "mend what it names; a node that the daemon drained goes on by itself, any other by scontrol update \
                    NodeName=NAME State=RESUME";
        found.push(trouble(format!("the node takes no jobs: {}", why.text), mend));
    }
    for outage in &node.outages {
        found.push(trouble(format!("out of use: {}", outage.reason.text), "sinfo -R tells of it"));
    }
    found.extend(unseen_gpus(&node));
    if found.is_empty() {
        found.push(Well(format!("the node {} takes jobs", node.host.name)));
    }
    Ok(found)
}

/// Devices of a GPU, and no GPU in the queue.
fn unseen_gpus(node: &NodeView) -> Option<Finding> {
    let device =
        ["/dev/nvidia0", "/dev/kfd"].into_iter().find(|device| Path::new(device).exists())?;
    let none = "see that nvidia-smi works where the daemon runs, and what SLOTD_GPU_COUNT says; then scontrol reconfigure";
    let partition = "see what SLOTD_GPU_PARTITIONS says, then scontrol reconfigure";
    match (node.host.has_gpus(), node.partitions.iter().any(|p| p.partition.is_gpu)) {
        (false, _) => {
            Some(trouble(format!("there is {device}, and the daemon knows of no GPU"), none))
        }
        (true, false) => Some(trouble("there are GPUs, and no GPU partition", partition)),
        (true, true) => None,
    }
}

/// Jobs that the daemon itself holds.
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
        let mend = "scontrol show job tells why (SystemComment), scontrol release tries again";
        trouble(format!("held after failed launches (JobHeldAdmin): {}", held.join(", ")), mend)
    }))
}

/// Under a user manager that ends with the session, so do the jobs.
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
        trouble(format!("{unit} and its jobs end when you log out"), "loginctl enable-linger")
    })
}
