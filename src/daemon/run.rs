//! From the settings to a serving daemon, and down again.
//!
//! Start: lock the root, open the database, wait for launches of an earlier daemon to settle, open
//! the socket, find the GPUs, recover the queue, start the actors, adopt what runs, and only then
//! answer clients. Jobs and their watchers outlive the daemon, so that going down is nothing but to
//! stop.

use crate::actors::messages::ProbeGpus;
use crate::actors::{GpuInventoryActor, Readers};
use crate::daemon::core_config::core_config;
use crate::daemon::detached;
use crate::daemon::error::{DaemonError, failed, unusable};
use crate::daemon::machine_watch::MachineWatch;
use crate::daemon::reboot;
use crate::daemon::recovery::{self, Queue, Recovered};
use crate::daemon::session::Hub;
use crate::daemon::settings::{self, Settings};
use crate::daemon::sources::{Sources, SourcesError};
use crate::daemon::wiring::{self, Parts};
use crate::daemon::{database, listener, logging, shutdown};
use crate::exec::cgroup::CgroupBase;
use crate::exec::launch_mark::LaunchMark;
use crate::exec::{Launcher, adopt};
use crate::model::Timestamp;
use crate::model::partition::{Host, Machine};
use crate::store::{Reader, Store};
use crate::sys::gpus::Places;
use crate::sys::paths::Paths;
use crate::sys::{aside, machine, memory};
use actix::prelude::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Runs the daemon of `root` until SIGTERM or SIGINT.
///
/// # Errors
/// What kept it from starting.
pub fn run(root: PathBuf, sources: Result<Sources, SourcesError>) -> Result<(), DaemonError> {
    memory::return_large();
    let handed = listener::handed_over(&Paths::new(&root));
    // What a failing start leaves: its clients must hear why.
    let waiting = handed.as_ref().and_then(|listener| listener.try_clone().ok());
    let ended = start(root, sources, handed);
    if let (Err(error), Some(listener)) = (&ended, waiting) {
        listener::turn_all_away(&listener, &error.to_string());
    }
    ended
}

fn start(
    root: PathBuf,
    sources: Result<Sources, SourcesError>,
    handed: Option<UnixListener>,
) -> Result<(), DaemonError> {
    let sources = sources?;
    let env = sources.at_start().clone();
    let settings = Settings::read(root, &env)?;
    let paths = Paths::new(settings.root.clone());
    logging::start(
        settings.log,
        env.get(OsStr::new("JOURNAL_STREAM")).map(OsString::as_os_str),
        &paths.log(),
    );
    for name in settings::unknown(env.keys()) {
        log::warn!("{name} is no setting of slotd and has no effect");
    }
    let paths = Paths::new(settings.root.clone());
    detached::check_outside(&paths)?;
    let lock = listener::take_root(&paths).map_err(|e| match e.kind() {
        std::io::ErrorKind::TimedOut => DaemonError::AlreadyRunning(settings.root.clone()),
        _ => DaemonError::Start("the runtime root cannot be used".to_owned(), e.to_string()),
    })?;
    let database = paths.db();
    let last_commit = reboot::last_commit(&paths);
    if let Err(why) = database::backup_before_migration(&paths) {
        log::warn!("the database could not be copied before its shape is changed: {why}");
    }
    let store = Store::open(&database).map_err(unusable(&paths))?;
    store.fill_log();
    let readers: Result<Vec<_>, _> = (0..Readers::COUNT).map(|_| Reader::open(&database)).collect();
    let readers = readers.map_err(unusable(&paths))?;
    // Started before this process grows: the launcher forks cheaply because it is small.
    adopt::await_launches(paths.root()).map_err(failed("an earlier launcher"))?;
    let runtime = runtime().map_err(failed("the runtime"))?;
    let ended = System::with_tokio_rt(|| runtime).block_on(async {
        let kill_wait = settings.kill_wait;
        let hub = serve(Opened { settings, sources, store, readers, last_commit }, &paths, handed)
            .await?;
        if shutdown::is_under_way(&env).await {
            shutdown::end_jobs(&hub.scheduler, kill_wait).await;
        }
        shutdown::close_store(&hub.scheduler, &hub.store).await;
        aside::hung().iter().for_each(|hung| log::warn!("{hung}: it is left behind"));
        log::info!("slotd goes down; running jobs go on");
        Ok(())
    });
    // A thread that hangs in the kernel keeps the files of the process open.
    lock.release();
    ended
}

/// How long a program that tells of the GPUs may take: with a driver that has to wake up it needs a
/// few seconds.
const GPU_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the start of the daemon waits for it. After that the daemon serves, and jobs that need
/// a GPU wait.
const GPU_GRACE: Duration = Duration::from_secs(2);

/// The runtime of the actors. What blocks is done by [`aside`].
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    aside::start()?;
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()
}

/// What the start has found and opened, for those who serve.
struct Opened {
    settings: Settings,
    sources: Sources,
    store: Store,
    readers: Vec<Reader>,
    last_commit: Option<Timestamp>,
}

/// Serves until it is told to stop. The actors go on as long as what it returns lives.
async fn serve(
    opened: Opened,
    paths: &Paths,
    handed: Option<UnixListener>,
) -> Result<Rc<Hub>, DaemonError> {
    let is_handed = handed.is_some();
    // First of all: clients wait in the socket until the queue is known, and are not told that
    // nobody is there.
    let socket = listener::bind(paths, handed).map_err(failed("the socket"))?;
    let waiting = socket.try_clone();
    let served = serve_at(socket, opened, paths).await;
    // Those who connect from now on are told at once that nobody is there. In a socket that was
    // handed over they wait for the next daemon.
    if !is_handed {
        let _ = std::fs::remove_file(paths.socket());
    }
    if let (Err(error), Ok(waiting)) = (&served, waiting) {
        listener::turn_all_away(&waiting, &error.to_string());
    }
    served
}

async fn serve_at(
    socket: UnixListener,
    opened: Opened,
    paths: &Paths,
) -> Result<Rc<Hub>, DaemonError> {
    let Opened { settings, sources, mut store, readers, last_commit } = opened;
    let launcher = Launcher::start(paths.root()).map_err(failed("the launcher"))?;
    raise_descriptor_limit();
    // A file that would grow over a limit (setrlimit(2)) is an error of that write, as on a full
    // disk, and no death.
    let _ = signal(SignalKind::from_raw(libc::SIGXFSZ)).map_err(failed("signals"))?;
    let mut queue = recovery::load(&mut store, paths, settings.min_job_age)?;
    let (inventory, host) = detect(&settings, paths, &mut queue).await?;
    let mut recovered =
        recovery::recover(core_config(&settings, host)?, queue, &mut store, paths, last_commit)?;
    let mark = LaunchMark::open(paths.root());
    if let Some(at_death) = mark.before() {
        log::error!("the daemon before this one died while it launched job {}", at_death.step);
        recovered.core.node_mut().launch_was_under_way(at_death);
    }
    let cgroups = cgroup_base(&settings, &mut recovered);
    log_start(paths, &recovered);
    let parts = Parts {
        settings,
        sources,
        paths: paths.clone(),
        launcher,
        mark,
        cgroups,
        store,
        readers,
        inventory: inventory.clone(),
        recovered,
    };
    let hub = Rc::new(wiring::start(parts));
    actix::spawn(listener::serve(
        listener::listen(socket).map_err(failed("the socket"))?,
        Rc::clone(&hub),
    ));
    tell_manager(NotifyState::Ready);
    until_told(inventory, &hub.machine).await?;
    tell_manager(NotifyState::Stopping);
    Ok(hub)
}

/// What this host has. A driver that does not answer soon is left to answer later.
async fn detect(
    settings: &Settings,
    paths: &Paths,
    queue: &mut Queue,
) -> Result<(Addr<GpuInventoryActor>, Host), DaemonError> {
    let places =
        Places { count: settings.gpu_count, timeout: GPU_TIMEOUT, root: paths.root().to_owned() };
    // Those that are only counted have no names.
    let kept = if places.count.is_none() { queue.known_gpus(places.kept()) } else { Vec::new() };
    let inventory = GpuInventoryActor::new(places, kept.clone()).start();
    let detection = timeout(GPU_GRACE, inventory.send(ProbeGpus)).await;
    let detects_gpus = detection.is_err();
    if detects_gpus {
        log::warn!("the GPUs are still being detected: jobs that need one wait");
    }
    let gpus = detection.unwrap_or(Ok(Vec::new())).unwrap_or_default();
    let lost_gpus = if detects_gpus { kept } else { Vec::new() };
    let Machine { topology, mem_mb } =
        machine::probe().map_err(failed("the CPUs and the memory of this machine"))?;
    Ok((
        inventory,
        Host { gpus, lost_gpus, detects_gpus, topology, machine_mem_mb: mem_mb, ..Host::default() },
    ))
}

/// The base of the jobs' cgroups, made ready. One that cannot be used keeps the node from taking
/// jobs.
fn cgroup_base(settings: &Settings, recovered: &mut Recovered) -> Option<Arc<CgroupBase>> {
    let place = settings.cgroup_base.as_ref()?;
    let base = Arc::new(CgroupBase::new(place.clone(), settings.cgroup_rules()));
    if let Err(e) = base.probe() {
        log::error!("SLOTD_CGROUP_BASE cannot be used, and no job is taken until it can: {e}");
        recovered.core.node_mut().set_cgroup_trouble(Some(e.to_string()), recovered.daemon_start);
    } else if let Ok(root) = base.root() {
        log::info!("the cgroups of jobs are in {}", root.display());
        for text in base.lacks() {
            log::warn!("cgroup {}: {text}", root.display());
        }
    }
    Some(base)
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

/// Tells the service manager, where `NOTIFY_SOCKET` names one: who waits for a start finds a daemon
/// that answers.
pub(super) fn tell_manager(state: NotifyState) {
    if let Err(e) = sd_notify::notify(std::slice::from_ref(&state)) {
        // Who waited for the start may be gone by the end.
        let level =
            if matches!(state, NotifyState::Ready) { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "NOTIFY_SOCKET: the service manager could not be told {state}: {e}");
    }
}

/// Each client and each running step holds a descriptor: a thousand waiting ones must not keep
/// others out. The launcher has the old limit already, and gives it to the jobs.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(e) = raised {
        log::warn!("the limit on open files is left as it is: {e}");
    }
}

/// Waits for SIGTERM or SIGINT; SIGHUP looks again what the machine has.
async fn until_told(
    inventory: Addr<GpuInventoryActor>,
    machine: &Rc<MachineWatch>,
) -> Result<(), DaemonError> {
    let listen = |kind| signal(kind).map_err(failed("signals"));
    let (mut term, mut int, mut hup) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
        listen(SignalKind::hangup())?,
    );
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hup.recv() => {
                inventory.do_send(ProbeGpus);
                drop(actix::spawn(Rc::clone(machine).look_again()));
            }
        }
    }
}
