//! `slotd install` and `slotd uninstall`, which contrib/install.sh calls with the program that it
//! has built.
//!
//! * The Slurm commands are links to the one binary. Only with a runtime root other than the
//!   default one are they small scripts that set `SLOTD_ROOT`: a link costs nothing, such a script
//!   an extra process image for each call.
//! * Of the environment file only the given variables change; every other line stays.
//! * Scripts, man pages and completions have a line that says where they come from, and only files
//!   with that line are ever replaced or removed.
//! * Nothing is replaced in place: each file is written beside its place and renamed, so that a
//!   running program, or an interrupted installation, never sees half of one.

mod daemon;
mod files;
mod first_job;
mod layout;
mod say;
mod service;

use crate::args::error::CliError;
use crate::commands::{COMMANDS, Done};
use crate::daemon::{InstanceLock, check_settings, database, detached};
use crate::exec::{job_dirs, snapshots};
use crate::parse::env_file::EnvFile;
use crate::sys::fresh;
use crate::sys::paths::Paths;
use crate::sys::root_dirs;
use layout::{Layout, Places};
use say::{fail, note, say};
use service::Manager;
pub use service::UNIT;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    #[command(flatten)]
    places: Places,
    /// SLOTD_CPU_PARTITIONS [default: cpu]
    #[arg(long, value_name = "VALUE")]
    cpu_partitions: Option<String>,
    /// SLOTD_GPU_PARTITIONS [default: gpu]
    #[arg(long, value_name = "VALUE")]
    gpu_partitions: Option<String>,
    /// SLOTD_FEATURES
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    features: Option<String>,
    /// SLOTD_NOTIFY_CMD
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    notify_cmd: Option<String>,
    /// SLOTD_CGROUP_BASE, a writable cgroup v2 subtree, or auto
    #[arg(long, value_name = "PATH")]
    cgroup_base: Option<String>,
    /// Do not install or start a user service; nothing is started then
    #[arg(long)]
    skip_systemd: bool,
}

#[derive(Debug, clap::Args)]
pub struct UninstallArgs {
    #[command(flatten)]
    places: Places,
    /// Remove the runtime root as well: all jobs and their history
    #[arg(long)]
    purge_runtime: bool,
}

/// Installs this program.
pub fn install(args: &InstallArgs) -> Done {
    let layout = Layout::new(&args.places)?;
    let settings = settings(args, &layout)?;
    files::refuse_others(&layout)?;
    files::make_dir(&layout.bin_dir)?;
    let names = COMMANDS.map(|entry| entry.name()).join(" ");
    say(&format!("install slotd and {names} in {}", layout.bin_dir.display()));
    files::install_commands(&layout)?;
    for dir in &layout.link_dirs {
        say(&format!("link them in {}", dir.display()));
        files::link_commands(&layout, dir)?;
    }
    files::keep_link_dirs(&layout)?;
    install_settings(&layout, &settings)?;
    files::install_pages(&layout)?;
    if args.skip_systemd {
        files::install_daemon_script(&layout)?;
        say("installed; nothing was started (--skip-systemd)");
        note(&format!("start the daemon with: {} start", layout.daemon_script.display()));
        if detached::pid_of(&layout.paths).is_some() {
            note(&format!(
                "the one that runs is of the earlier installation: {} restart",
                layout.daemon_script.display()
            ));
        }
    } else {
        start(&layout, &settings)?;
        first_job::run(&layout)?;
        say("slotd is installed");
    }
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir == layout.bin_dir)
    {
        note(&format!(
            "{0} is not in PATH; add it: export PATH={0}:$PATH",
            files::quoted(&layout.bin_dir)
        ));
    }
    Ok(0)
}

/// The environment file with what was given, which must mean something to the daemon.
fn settings(args: &InstallArgs, layout: &Layout) -> Result<EnvFile, CliError> {
    const NEW: &str = "\
# Settings of slotd's daemon. After a change: systemctl --user restart slotd.service, or slotd-daemon restart.
# Values stand in double quotes; a \", \\, $ or ` in one has a \\ before it. README.md lists the variables.
";
    let mut file = match &layout.settings {
        Some(file) => file.clone(),
        None => EnvFile::parse(NEW).map_err(|e| fail(e.to_string()))?,
    };
    let default = |name, value: &str| file.get(name).is_none().then(|| value.to_owned());
    let given = [
        ("--runtime-root", "SLOTD_ROOT", Some(layout.root_text().to_owned())),
        (
            "--cpu-partitions",
            "SLOTD_CPU_PARTITIONS",
            args.cpu_partitions.clone().or(default("SLOTD_CPU_PARTITIONS", "cpu")),
        ),
        (
            "--gpu-partitions",
            "SLOTD_GPU_PARTITIONS",
            args.gpu_partitions.clone().or(default("SLOTD_GPU_PARTITIONS", "gpu")),
        ),
        ("--features", "SLOTD_FEATURES", args.features.clone()),
        ("--notify-cmd", "SLOTD_NOTIFY_CMD", args.notify_cmd.clone()),
        ("--cgroup-base", "SLOTD_CGROUP_BASE", args.cgroup_base.clone()),
    ];
    for (option, name, value) in given {
        let Some(value) = value else { continue };
        layout::check_storable(option, &value)?;
        file = file.with(name, &value).map_err(|e| fail(format!("{option}: {}", e.what)))?;
    }
    let env = file.iter().map(|(name, value)| (name.into(), value.into())).collect();
    check_settings(&env).map_err(|e| {
        fail(format!("{e}: give another value, or correct {}", layout.env_file.display()))
    })?;
    Ok(file)
}

fn install_settings(layout: &Layout, settings: &EnvFile) -> Result<(), CliError> {
    say(&format!("write {}", layout.env_file.display()));
    files::make_dir(&layout.config_dir)?;
    // A hook may hold a secret.
    files::write_file(&layout.env_file, settings.text().as_bytes(), 0o600)?;
    for dir in [layout.paths.run_dir(), layout.paths.jobs_dir()] {
        files::make_private_dir(&dir)?;
    }
    Ok(())
}

fn start(layout: &Layout, settings: &EnvFile) -> Result<(), CliError> {
    if let Some(old) = layout.old_root.as_ref().filter(|old| **old != layout.root) {
        daemon::stop(&Paths::new(old), None)?;
        note(&format!("the jobs and their history in {} stay there", old.display()));
    }
    if let Some(manager) = Manager::find() {
        return service::start(layout, settings, &manager);
    }
    say("start the daemon, detached: there is no systemd user manager here");
    files::install_daemon_script(layout)?;
    daemon::stop(&layout.paths, None)?;
    let pid = daemon::start(layout, settings)?;
    note(&format!("process {pid}, log {}", layout.paths.log().display()));
    note(&format!("after a reboot: {} start", layout.daemon_script.display()));
    Ok(())
}

/// Removes what [`install`] made.
pub fn uninstall(args: &UninstallArgs) -> Done {
    let layout = Layout::new(&args.places)?;
    let alone = if args.purge_runtime { stop_for_purge(&layout)? } else { None };
    say("uninstall slotd");
    let mut is_found = service::remove(&layout)?;
    daemon::stop(&layout.paths, None)?;
    for dir in &layout.link_dirs {
        files::unlink_commands(&layout, dir)?;
    }
    if layout.link_dirs_file.exists() {
        files::remove(&layout.link_dirs_file)?;
    }
    is_found |= files::remove_commands(&layout)?;
    if layout.env_file.symlink_metadata().is_ok() {
        files::remove(&layout.env_file)?;
        let _ = fs::remove_dir(&layout.config_dir);
        note(&format!("removed {}", layout.env_file.display()));
        is_found = true;
    }
    files::remove_pages(&layout)?;
    if is_found {
        note(&format!("removed the commands from {}", layout.bin_dir.display()));
    } else {
        let (bin, config) = (layout.bin_dir.display(), layout.config_dir.display());
        note(&format!("nothing is installed in {bin} and {config}"));
    }
    if args.purge_runtime {
        return purge(&layout, alone);
    }
    let running = detached::running_steps(&layout.paths);
    if running > 0 {
        note(&format!(
            "running jobs ({running}) go on to their ends, which are recorded when slotd is installed again"
        ));
    }
    if layout.root.is_dir() {
        note(&format!("kept the jobs and their history: {}", layout.root.display()));
    }
    Ok(0)
}

/// Refuses to remove the files of jobs that have not ended, and what slotd did not make; then stops
/// the daemon and keeps others away. A job that has come in the meantime is found then, and the
/// daemon runs again.
fn stop_for_purge(layout: &Layout) -> Result<Option<InstanceLock>, CliError> {
    check_purge(layout)?;
    if !layout.root.is_dir() {
        return Ok(None);
    }
    let is_service = service::stop(layout);
    let was_running = is_service || detached::pid_of(&layout.paths).is_some();
    daemon::stop(&layout.paths, None)?;
    let alone = database::alone_at_last(&layout.paths).map_err(|why| fail(why.to_string()))?;
    let Err(refused) = check_unfinished(layout) else { return Ok(Some(alone)) };
    drop(alone);
    if is_service {
        service::start_again();
    } else if was_running {
        daemon::start(layout, layout.settings.as_ref().unwrap_or(&EnvFile::default()))?;
    }
    Err(refused)
}

/// Refuses to remove the files of jobs that run, and the only record of jobs that wait.
fn check_unfinished(layout: &Layout) -> Result<(), CliError> {
    let running = detached::running_steps(&layout.paths);
    let waiting = database::waiting_jobs(&layout.paths).unwrap_or_else(|why| {
        note(&format!("whether jobs wait is not known: {why}"));
        0
    });
    let there: Vec<String> =
        [("running", i64::try_from(running).unwrap_or(i64::MAX)), ("waiting", waiting)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{kind} jobs, {count} of them"))
            .collect();
    if there.is_empty() {
        Ok(())
    } else {
        Err(fail(format!(
            "there are {} (see squeue): end them with scancel --me, or wait, before --purge-runtime removes their files",
            there.join(", and ")
        )))
    }
}

/// Refuses to purge while there are jobs, through a link, and a directory that slotd did not make.
fn check_purge(layout: &Layout) -> Result<(), CliError> {
    let is_ours = layout.paths.daemon_lock().exists() || layout.paths.db().exists();
    if layout.root.is_dir() && !is_ours && !files::below(&layout.root).is_empty() {
        let root = layout.root.display();
        return Err(fail(format!(
            "{root} does not look like a runtime root of slotd: remove it by hand if you mean it"
        )));
    }
    if let Some(wrong) = root_dirs::faults(&layout.paths).first() {
        return Err(fail(format!("nothing of {} was deleted: {wrong}", layout.root.display())));
    }
    check_unfinished(layout)
}

/// Below a runtime root, what slotd itself makes, by name: should the root hold anything else, that
/// stays. No daemon starts before the last of it.
fn purge(layout: &Layout, alone: Option<InstanceLock>) -> Done {
    let root = &layout.root;
    if !root.is_dir() {
        note(&format!("there is no runtime root {}", root.display()));
        return Ok(0);
    }
    let (run, lib) = (layout.paths.run_dir(), layout.paths.lib_dir());
    if let Some(wrong) = root_dirs::faults(&layout.paths).first() {
        return Err(fail(format!("nothing of {} was deleted: {wrong}", root.display())));
    }
    purge_trees(layout, &layout.paths.jobs_dir(), job_dirs::is_name)?;
    purge_trees(layout, &layout.paths.snapshots_dir(), snapshots::is_name)?;
    // The database, its log, its copy, and those that a restored one has replaced; what the host
    // used over time, and the numbers of its GPUs.
    let lib_files = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(is_state);
    let run_files =
        ["slotd.sock", "slotd.log", "slotd.log.old", "launcher.lock", "launching", "slotd.lock"];
    let run_files = run_files.map(|name| run.join(name));
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    for path in lib_files.filter(is_ours).chain(run_files).filter(is_file) {
        files::remove(&path)?;
    }
    drop(alone);
    for dir in [&run, &lib, root] {
        let _ = fs::remove_dir(dir);
    }
    if root.exists() {
        note(&format!("{} holds files that slotd did not make; they stay:", root.display()));
        files::below(root).iter().for_each(|path| println!("      {}", path.display()));
    } else {
        note(&format!("removed the runtime root {}", root.display()));
    }
    Ok(0)
}

/// Whether slotd itself gives a file below `lib` this name: the database, its copies with what
/// SQLite keeps beside them, what the host used, the GPUs and the state of the node.
fn is_state(name: &str) -> bool {
    // `.new`: what a version before this one was writing.
    let place = fresh::place_of(name).or_else(|| name.strip_suffix(".new")).unwrap_or(name);
    if ["host_use.jsonl", "gpus.json", "node_state.json"].contains(&place) {
        return true;
    }
    let Some(rest) = name.strip_prefix("state.db") else { return false };
    let rest =
        ["-wal", "-shm", "-journal"].iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
    let rest = rest.strip_suffix(".new").unwrap_or(rest);
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ["", ".new", ".backup"].contains(&rest) || rest.strip_prefix(".replaced").is_some_and(is_count)
}

/// Deletes the directories with names of slotd's own from one of its directories, and that
/// directory if nothing is left.
fn purge_trees(layout: &Layout, dir: &Path, is_ours: fn(&str) -> bool) -> Result<(), CliError> {
    let failed =
        |path: &Path, e: io::Error| fail(format!("{}: {e}: remove it by hand", path.display()));
    let Some(all) = root_dirs::open(&layout.paths, dir).map_err(|e| fail(e.to_string()))? else {
        return Ok(());
    };
    for name in all.names().map_err(|e| failed(dir, e))? {
        if name.to_str().is_some_and(is_ours) {
            all.remove_tree(Path::new(&name)).map_err(|e| failed(&dir.join(&name), e))?;
        }
    }
    // It stays if it has anything else in it, which is listed then.
    let _ = fs::remove_dir(dir);
    Ok(())
}
