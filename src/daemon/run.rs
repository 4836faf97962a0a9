//! From the settings to a serving daemon, and down again.
//!
//! Start: lock the root, open the database, wait for launches of an earlier daemon to settle, find the GPUs, recover the
//! queue, start the actors, adopt what runs, and only then open the socket. Jobs and their watchers outlive the
//! daemon, so that going down is nothing but to stop.

use crate::actors::GpuInventoryActor;
use crate::actors::messages::ProbeGpus;
use crate::daemon::core_config::core_config;
use crate::daemon::recovery::{Recovered, recover};
use crate::daemon::settings::{self, Environment, SettingError, Settings};
use crate::daemon::wiring::{self, Parts};
use crate::daemon::{listener, logging};
use crate::exec::{Launcher, adopt};
use crate::store::{Reader, Store};
use crate::sys::paths::Paths;
use actix::prelude::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use tokio::signal::unix::{SignalKind, signal};

/// Why the daemon did not start, or went down.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("another daemon serves {} already: stop it, or choose another SLOTD_ROOT", .0.display())]
    AlreadyRunning(PathBuf),
    /// What was being done, and what went wrong.
    #[error("{0}: {1}")]
    Start(String, String),
}

/// Makes an error of what went wrong with `what`.
pub fn failed<E: fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> DaemonError {
    let what = what.into();
    move |e| DaemonError::Start(what, e.to_string())
}

/// Runs the daemon of `root` until SIGTERM or SIGINT, with the settings of its environment.
///
/// # Errors
/// What kept it from starting.
pub fn run(root: PathBuf, env: &Environment) -> Result<(), DaemonError> {
    let settings = Settings::read(root, env)?;
    logging::start(settings.log, env.get(OsStr::new("JOURNAL_STREAM")).map(OsString::as_os_str));
    for name in settings::unknown(env.keys()) {
        log::warn!("{name} is no setting of slotd and has no effect");
    }
    let paths = Paths::new(settings.root.clone());
    let _lock = listener::take_root(&paths).map_err(|e| match e.kind() {
        std::io::ErrorKind::TimedOut => DaemonError::AlreadyRunning(settings.root.clone()),
        _ => DaemonError::Start("the runtime root cannot be used".to_owned(), e.to_string()),
    })?;
    let database = paths.db();
    let store = Store::open(&database).map_err(failed(database.display().to_string()))?;
    Reader::open(&database).map_err(failed(database.display().to_string()))?;
    // Started before this process grows: the launcher forks cheaply because it is small.
    adopt::await_launches(paths.root()).map_err(failed("an earlier launcher"))?;
    System::new().block_on(serve(settings, paths, store))
}

async fn serve(settings: Settings, paths: Paths, mut store: Store) -> Result<(), DaemonError> {
    let launcher = Launcher::start(paths.root()).map_err(failed("the launcher"))?;
    raise_descriptor_limit();
    let inventory = GpuInventoryActor::new(settings.gpu_count).start();
    let gpus = inventory.send(ProbeGpus).await.unwrap_or_default();
    let recovered = recover(core_config(&settings, gpus)?, &mut store, &paths.db())?;
    log_start(&paths, &recovered);
    let parts = Parts { settings, paths: paths.clone(), launcher, store, inventory: inventory.clone(), recovered };
    let hub = wiring::start(parts);
    let listener = listener::bind(&paths).map_err(failed("the socket"))?;
    actix::spawn(listener::serve(listener, Rc::new(hub)));
    tell_manager(NotifyState::Ready);
    until_told(inventory).await?;
    tell_manager(NotifyState::Stopping);
    // Those who connect from now on are told at once that nobody is there.
    let _ = std::fs::remove_file(paths.socket());
    log::info!("slotd goes down; running jobs go on");
    Ok(())
}

fn log_start(paths: &Paths, recovered: &Recovered) {
    let host = &recovered.core.config().host;
    log::info!(
        "slotd {} serves {}: {} CPUs, {} MB, {} GPUs; {} jobs run",
        env!("CARGO_PKG_VERSION"),
        paths.root().display(),
        host.cpu_ids.len(),
        host.mem_mb,
        host.gpus.len(),
        recovered.adopted.len()
    );
}

/// Tells the service manager, where `NOTIFY_SOCKET` names one: who waits for a start finds a daemon that answers.
fn tell_manager(state: NotifyState) {
    if let Err(e) = sd_notify::notify(std::slice::from_ref(&state)) {
        // Who waited for the start may be gone by the end.
        let level = if matches!(state, NotifyState::Ready) { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "NOTIFY_SOCKET: the service manager could not be told {state}: {e}");
    }
}

/// Each client and each running step holds a descriptor: a thousand waiting ones must not keep others out. The launcher
/// has the old limit already, and gives it to the jobs.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(e) = raised {
        log::warn!("the limit on open files is left as it is: {e}");
    }
}

/// Waits for SIGTERM or SIGINT; SIGHUP looks for GPUs again.
async fn until_told(inventory: Addr<GpuInventoryActor>) -> Result<(), DaemonError> {
    let listen = |kind| signal(kind).map_err(failed("signals"));
    let (mut term, mut int, mut hup) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?, listen(SignalKind::hangup())?);
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hup.recv() => inventory.do_send(ProbeGpus),
        }
    }
}
