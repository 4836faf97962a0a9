//! `slotd install` and `slotd uninstall`, which contrib/install.sh runs from the program that it
//! has built.
//!
//! * The Slurm commands are links to the one binary. With a runtime root other than the default,
//!   they are small scripts that set `SLOTD_ROOT` instead. A link costs nothing; a script costs one
//!   more `exec` per call.
//! * In the environment file, only the specified variables change. All other lines are preserved.
//! * Scripts, man pages and completions contain a line that marks them as ours. Only files with
//!   that line are replaced or removed.
//! * Nothing is overwritten in place: each file is written to a temporary name and renamed, so that
//!   neither a running program nor an interrupted installation sees a partial file.

mod daemon;
mod files;
mod first_job;
mod layout;
mod output;
mod record;
mod service;

use crate::args::error::CliError;
use crate::commands::{COMMANDS, Done};
use crate::daemon::{DaemonError, InstanceLock, check_settings, database, detached};
use files::Removal;
use layout::{Layout, Places, Purpose};
use output::{fail, note, report_step};
use service::Manager;
pub use service::UNIT;
use slotd_exec::{job_dirs, snapshots, started};
use slotd_parse::env_file::EnvFile;
use slotd_sys::fresh;
use slotd_sys::git;
use slotd_sys::paths::{Paths, is_same_dir};
use slotd_sys::root_dirs;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    #[command(flatten)]
    places: Places,
    /// Set SLOTD_CPU_PARTITIONS [default: cpu]
    #[arg(long, value_name = "VALUE")]
    cpu_partitions: Option<String>,
    /// Set SLOTD_GPU_PARTITIONS [default: gpu]
    #[arg(long, value_name = "VALUE")]
    gpu_partitions: Option<String>,
    /// Set SLOTD_FEATURES
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    features: Option<String>,
    /// Set SLOTD_NOTIFY_CMD
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    notify_cmd: Option<String>,
    /// Set SLOTD_CGROUP_BASE: a writable cgroup v2 subtree, or auto
    #[arg(long, value_name = "PATH")]
    cgroup_base: Option<String>,
    /// Do not install a user service, and do not start the daemon
    #[arg(long)]
    skip_systemd: bool,
}

#[derive(Debug, clap::Args)]
pub struct UninstallArgs {
    #[command(flatten)]
    places: Places,
    /// Also delete the runtime root: all jobs and their history
    #[arg(long)]
    purge_runtime: bool,
}

/// Installs this program.
pub fn install(args: &InstallArgs) -> Done {
    let layout = Layout::new(&args.places, Purpose::Install)?;
    let settings = settings(args, &layout)?;
    files::refuse_others(&layout)?;
    let manager = if args.skip_systemd { None } else { Manager::find() };
    if !args.skip_systemd && manager.is_none() {
        // A daemon is started below. The old one must not be stopped if the new one would refuse.
        detached::check_outside(&layout.paths).map_err(|e| fail(e.to_string()))?;
    }
    if !layout.is_default_root && layout.old_root.as_ref() == Some(&layout.root) {
        report_step(&format!(
            "keep the runtime root of the earlier installation, {}",
            layout.root.display()
        ));
        note("--runtime-root sets another one");
    }
    files::make_dir(&layout.bin_dir)?;
    let names = COMMANDS.map(|entry| entry.name()).join(" ");
    report_step(&format!("install slotd and {names} in {}", layout.bin_dir.display()));
    record::write_bin_dir(&layout)?;
    files::install_commands(&layout)?;
    files::link_commands(&layout)?;
    install_settings(&layout, &settings)?;
    files::install_pages(&layout)?;
    if args.skip_systemd {
        files::install_daemon_script(&layout)?;
        report_step("installed; nothing was started (--skip-systemd)");
        note(&format!("start the daemon with: {} start", layout.daemon_script.display()));
        if detached::pid_of(&layout.paths).is_some() {
            note(&format!(
                "a daemon of the earlier installation is running; restart it with: {} restart",
                layout.daemon_script.display()
            ));
        }
    } else {
        start(&layout, &settings, manager.as_ref())?;
        first_job::run(&layout)?;
        report_step("slotd is installed");
    }
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir == layout.bin_dir)
    {
        note(&format!(
            "{0} is not in PATH; add this line to ~/.profile: export PATH={0}:$PATH",
            files::quoted(&layout.bin_dir)
        ));
    }
    Ok(0)
}

/// The beginning of a new environment file.
const NEW: &str = "\
# Settings of slotd's daemon. After a change: systemctl --user restart slotd.service, or slotd-daemon restart.
# Enclose values in double quotes, and put a \\ before each \", \\, $ and ` in them. slotd.env(5) lists the variables.
";

/// Returns the environment file of an installation with this root and without options.
fn fresh_settings(root: &str) -> Option<EnvFile> {
    let variables =
        [("SLOTD_ROOT", root), ("SLOTD_CPU_PARTITIONS", "cpu"), ("SLOTD_GPU_PARTITIONS", "gpu")];
    let new = EnvFile::parse(NEW).ok()?;
    variables.iter().try_fold(new, |file, (name, value)| file.with(name, value).ok())
}

/// Returns whether the environment file is as the installer writes it. Any other file contains
/// settings that someone chose, with an option or by hand.
fn is_unedited(layout: &Layout) -> bool {
    layout
        .settings
        .as_ref()
        .is_some_and(|file| file.get("SLOTD_ROOT").and_then(fresh_settings).as_ref() == Some(file))
}

/// Returns the environment file with the specified values, after checking that the daemon accepts
/// them.
fn settings(args: &InstallArgs, layout: &Layout) -> Result<EnvFile, CliError> {
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
    let given = file.iter().map(|(name, value)| (name.into(), value.into()));
    let inherited = std::env::vars_os().filter(|(name, _)| detached::is_inherited(name));
    let env = inherited.chain(given).collect();
    check_settings(&env).map_err(|e| match e {
        DaemonError::Site(_) => fail(format!("{e}: correct it; nothing was installed")),
        _ => fail(format!("{e}: specify another value, or correct {}", layout.env_file.display())),
    })?;
    Ok(file)
}

fn install_settings(layout: &Layout, settings: &EnvFile) -> Result<(), CliError> {
    report_step(&format!("write {}", layout.env_file.display()));
    files::make_dir(&layout.config_dir)?;
    files::write_settings(&layout.env_file, settings.text())?;
    for dir in [layout.paths.run_dir(), layout.paths.jobs_dir()] {
        files::make_private_dir(&dir)?;
    }
    Ok(())
}

fn start(layout: &Layout, settings: &EnvFile, manager: Option<&Manager>) -> Result<(), CliError> {
    let is_other = |old: &&PathBuf| !is_same_dir(old, &layout.root);
    if let Some(old) = layout.old_root.as_ref().filter(is_other) {
        daemon::stop(&Paths::new(old), None)?;
        note(&format!("the jobs and their history remain in {}", old.display()));
    }
    if let Some(manager) = manager {
        service::start(layout, settings, manager)?;
        return files::remove_daemon_script(layout);
    }
    report_step("start the daemon in the background: there is no systemd user manager");
    files::install_daemon_script(layout)?;
    daemon::stop(&layout.paths, None)?;
    let pid = daemon::start(layout, settings)?;
    note(&format!("process {pid}, log {}", layout.paths.log().display()));
    note(&format!("after a reboot, start it with: {} start", layout.daemon_script.display()));
    Ok(())
}

/// Removes what [`install`] installed. Continues after a file that cannot be deleted.
///
/// # Errors
/// Fails before anything is deleted if the daemon cannot be stopped or `--purge-runtime` is
/// refused, and at the end with all files that could not be deleted.
pub fn uninstall(args: &UninstallArgs) -> Done {
    let layout = Layout::new(&args.places, Purpose::Uninstall)?;
    let alone = if args.purge_runtime { stop_for_purge(&layout)? } else { None };
    report_step("uninstall slotd");
    let mut removal = Removal::default();
    let mut is_found = service::remove(&layout, &mut removal);
    daemon::stop(&layout.paths, None)?;
    let had_record = layout.link_dirs_file.exists() || layout.bin_dir_file.exists();
    files::unlink_commands(&layout, &mut removal);
    is_found |= files::remove_commands(&layout, &mut removal);
    if let Err(error) = record::forget_bin_dir(&layout) {
        removal.failed(error);
    }
    if layout.env_file.is_symlink() {
        note(&format!("kept {}, which is a link", layout.env_file.display()));
    } else if layout.fault.is_some() {
        note(&format!("kept {}, which cannot be read", layout.env_file.display()));
    } else if layout.env_file.exists() && !is_unedited(&layout) {
        note(&format!(
            "kept {}: it contains settings of yours; a new installation uses them",
            layout.env_file.display()
        ));
    } else if layout.env_file.exists() && removal.remove(&layout.env_file) {
        note(&format!("removed {}", layout.env_file.display()));
        is_found = true;
    }
    if had_record || is_found {
        // Fails if it contains anything else.
        let _ = fs::remove_dir(&layout.config_dir);
    }
    files::remove_pages(&layout, &mut removal);
    if is_found {
        note(&format!("removed the commands from {}", layout.bin_dir.display()));
    } else {
        let (bin, config) = (layout.bin_dir.display(), layout.config_dir.display());
        note(&format!("nothing is installed in {bin} and {config}"));
    }
    if args.purge_runtime {
        purge(&layout, alone, &mut removal);
        return removal.finish().map(|()| 0);
    }
    if let Ok(waiting @ 1..) = database::waiting_jobs(&layout.paths) {
        note(&format!("pending jobs ({waiting}) stay in the queue for a new installation"));
    }
    let running = detached::running_steps(&layout.paths);
    if running > 0 {
        note(&format!(
            "running jobs ({running}) continue; their results are recorded when slotd is installed again"
        ));
    }
    if is_runtime_root(&layout) {
        note(&format!("kept the jobs and their history: {}", layout.root.display()));
    }
    removal.finish().map(|()| 0)
}

/// Returns whether a daemon has ever run with this root.
fn is_runtime_root(layout: &Layout) -> bool {
    layout.paths.daemon_lock().exists() || layout.paths.db().exists()
}

/// Refuses if there are unfinished jobs or files that slotd did not create. Then stops the daemon
/// and keeps others from starting. If a job was submitted in the meantime, starts the daemon again
/// and refuses. Returns `None` if there is no runtime root.
fn stop_for_purge(layout: &Layout) -> Result<Option<InstanceLock>, CliError> {
    check_purge(layout)?;
    if !is_runtime_root(layout) {
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
    } else if was_running && layout.fault.is_some() {
        note(&format!("the daemon stays stopped: it cannot read {}", layout.env_file.display()));
    } else if was_running {
        daemon::start(layout, layout.settings.as_ref().unwrap_or(&EnvFile::default()))?;
    }
    Err(refused)
}

/// Refuses to delete the files of running jobs and the only record of pending jobs.
fn check_unfinished(layout: &Layout) -> Result<(), CliError> {
    let running = detached::running_steps(&layout.paths);
    let waiting = database::waiting_jobs(&layout.paths).unwrap_or_else(|why| {
        note(&format!("cannot check for pending jobs: {why}"));
        0
    });
    let there: Vec<String> =
        [("running", i64::try_from(running).unwrap_or(i64::MAX)), ("pending", waiting)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{kind} jobs ({count})"))
            .collect();
    if there.is_empty() {
        Ok(())
    } else {
        Err(fail(format!(
            "there are {}, see squeue: cancel them with scancel --me or wait until they end, then repeat --purge-runtime",
            there.join(" and ")
        )))
    }
}

/// Refuses if there are unfinished jobs, links, or files that slotd did not create.
fn check_purge(layout: &Layout) -> Result<(), CliError> {
    if layout.root.is_dir() && !is_runtime_root(layout) && !files::below(&layout.root).is_empty() {
        let root = layout.root.display();
        return Err(fail(format!(
            "{root} does not look like a slotd runtime root: if you want to delete it, do so manually"
        )));
    }
    if let Some(wrong) = root_dirs::faults(&layout.paths).first() {
        return Err(fail(format!("nothing in {} was deleted: {wrong}", layout.root.display())));
    }
    check_unfinished(layout)
}

/// Deletes only files with names that slotd itself assigns, and keeps everything else. The lock is
/// held to the end so that no daemon starts in between.
fn purge(layout: &Layout, alone: Option<InstanceLock>, removal: &mut Removal) {
    let root = &layout.root;
    if alone.is_none() {
        return note(&format!("there is no runtime root {}", root.display()));
    }
    let (run, lib) = (layout.paths.run_dir(), layout.paths.lib_dir());
    if let Some(wrong) = root_dirs::faults(&layout.paths).first() {
        let root = root.display();
        return removal.failed(fail(format!("nothing in {root} was deleted: {wrong}")));
    }
    purge_trees(layout, &layout.paths.jobs_dir(), job_dirs::is_name, removal);
    purge_trees(layout, &layout.paths.snapshots_dir(), snapshots::is_name, removal);
    purge_trees(layout, &run, git::is_place, removal);
    // The database, its log and backup, old databases replaced by a restore, the history of host
    // usage, and the GPU inventory.
    let lib_files = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(is_state);
    let run_files = [
        "slotd.sock",
        "slotd.log",
        "slotd.log.old",
        "launcher.lock",
        "launching",
        "memory-note",
        "slotd.lock",
    ];
    let run_files = run_files.map(|name| run.join(name));
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    for path in lib_files.filter(is_ours).chain(run_files).filter(is_file) {
        removal.remove(&path);
    }
    drop(alone);
    for dir in [&run, &lib, root] {
        let _ = fs::remove_dir(dir);
    }
    if !root.exists() {
        return note(&format!("removed the runtime root {}", root.display()));
    }
    // Those that could not be deleted are reported at the end.
    let foreign = files::below(root).into_iter().filter(|path| !removal.names(path));
    let foreign: Vec<PathBuf> = foreign.collect();
    if !foreign.is_empty() {
        note(&format!(
            "{} contains files that slotd did not create; they are kept:",
            root.display()
        ));
        foreign.iter().for_each(|path| println!("      {}", path.display()));
    }
}

/// Returns whether a file below `lib` has a name that slotd itself assigns: the database and its
/// copies, including SQLite's files beside them, the history of host usage, the GPU inventory, the
/// state of the node, and the runs that have started.
fn is_state(name: &str) -> bool {
    // Earlier versions wrote to `.new` before renaming.
    let place = fresh::place_of(name).or_else(|| name.strip_suffix(".new")).unwrap_or(name);
    if ["host_use.jsonl", "gpus.json", "node_state.json", started::FILE].contains(&place) {
        return true;
    }
    let Some(rest) = name.strip_prefix("state.db") else { return false };
    let rest =
        ["-wal", "-shm", "-journal"].iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
    let rest = rest.strip_suffix(".new").unwrap_or(rest);
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    ["", ".new", ".backup"].contains(&rest) || rest.strip_prefix(".replaced").is_some_and(is_count)
}

/// Deletes the directories in `dir` that have slotd's names, then `dir` itself if it is empty.
fn purge_trees(layout: &Layout, dir: &Path, is_ours: fn(&str) -> bool, removal: &mut Removal) {
    let all = match root_dirs::open(&layout.paths, dir) {
        Ok(Some(all)) => all,
        Ok(None) => return,
        Err(e) => return removal.failed(fail(e.to_string())),
    };
    let names = match all.names() {
        Ok(names) => names,
        Err(e) => return removal.undeleted(dir, &e),
    };
    for name in names.into_iter().filter(|name| name.to_str().is_some_and(is_ours)) {
        if let Err(e) = all.remove_tree(Path::new(&name)) {
            removal.undeleted(&dir.join(&name), &e);
        }
    }
    // Fails if it contains anything else, which is listed later.
    let _ = fs::remove_dir(dir);
}
