//! Runs the daemon: reads its settings, serves clients, and shuts down.
//!
//! Startup: lock the root, open the database, wait for launches of an earlier daemon to finish,
//! open the socket, detect the GPUs, recover the queue, start the actors, adopt running jobs, and
//! only then answer clients. Jobs and their watchers outlive the daemon, so that stopping it needs
//! no further steps.

use crate::actors::messages::ProbeGpus;
use crate::actors::{GpuInventoryActor, Readers};
use crate::daemon::command_line::ParsePlain;
use crate::daemon::core_config::{self, core_config};
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
use actix::prelude::*;
use sd_notify::NotifyState;
use slotd_exec::cgroup::CgroupBase;
use slotd_exec::launch_mark::LaunchMark;
use slotd_exec::started::StartedRuns;
use slotd_exec::{Launcher, adopt};
use slotd_model::Timestamp;
use slotd_model::partition::Host;
use slotd_store::{Reader, Store};
use slotd_sys::gpus::Places;
use slotd_sys::paths::Paths;
use slotd_sys::{aside, limits, memory, slice};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Runs the daemon of `root` until SIGTERM or SIGINT. `parser` parses plain sbatch command lines.
///
/// # Errors
/// Fails if the daemon cannot start.
pub fn run(
    root: PathBuf,
    sources: Result<Sources, SourcesError>,
    parser: ParsePlain,
) -> Result<(), DaemonError> {
    memory::return_large();
    let handed = listener::handed_over(&Paths::new(&root));
    // If the start fails, waiting clients must get the reason.
    let waiting = handed.as_ref().and_then(|listener| listener.try_clone().ok());
    let ended = start(root, sources, parser, handed);
    if let (Err(error), Some(listener)) = (&ended, waiting) {
        listener::turn_all_away(&listener, &error.to_string());
    }
    ended
}

fn start(
    root: PathBuf,
    sources: Result<Sources, SourcesError>,
    parser: ParsePlain,
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
        log::warn!("{name} is not a slotd setting and has no effect");
    }
    let paths = Paths::new(settings.root.clone());
    let nofile = raise_descriptor_limit()?;
    detached::check_outside(&paths)?;
    let lock = listener::take_root(&paths).map_err(|e| match e.kind() {
        std::io::ErrorKind::TimedOut => DaemonError::AlreadyRunning(settings.root.clone()),
        _ => DaemonError::Start("cannot use the runtime root".to_owned(), e.to_string()),
    })?;
    let database = paths.db();
    let last_commit = reboot::last_commit(&paths);
    if let Err(why) = database::backup_before_migration(&paths) {
        log::warn!("could not back up the database before migrating it: {why}");
    }
    let mut store = Store::open(&database).map_err(unusable(&paths))?;
    recovery::make_jobs_dir(&mut store, &paths)?;
    let readers: Result<Vec<_>, _> = (0..Readers::COUNT).map(|_| Reader::open(&database)).collect();
    let readers = readers.map_err(unusable(&paths))?;
    // Started before this process grows: a small launcher forks quickly.
    adopt::await_launches(paths.root())
        .map_err(failed("cannot wait for the launcher of an earlier daemon"))?;
    let runtime = runtime().map_err(failed("cannot create the runtime"))?;
    slice::shorten();
    let ended = System::with_tokio_rt(|| runtime).block_on(async {
        let kill_wait = settings.kill_wait;
        let opened = Opened { settings, sources, parser, nofile, store, readers, last_commit };
        let hub = serve(opened, &paths, handed).await?;
        if shutdown::is_under_way(&env).await {
            shutdown::end_jobs(&hub.scheduler, kill_wait).await;
        }
        shutdown::close_store(&hub.scheduler, &hub.store).await;
        aside::hung().iter().for_each(|hung| log::warn!("{hung}; exiting anyway"));
        log::info!("slotd is stopping; running jobs continue");
        Ok(())
    });
    // A thread that hangs in the kernel keeps the files of the process open.
    lock.release();
    ended
}

/// The timeout of programs that query the GPUs. A driver that has to wake up needs a few seconds.
const GPU_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest wait for the GPUs at startup. After that the daemon serves clients, and jobs that
/// need a GPU wait.
const GPU_GRACE: Duration = Duration::from_secs(2);

/// Creates the runtime of the actors. Blocking work runs in [`aside`].
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    aside::start()?;
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()
}

/// Everything that the start has opened.
struct Opened {
    settings: Settings,
    sources: Sources,
    parser: ParsePlain,
    /// The limit on open files that jobs inherit.
    nofile: u64,
    store: Store,
    readers: Vec<Reader>,
    last_commit: Option<Timestamp>,
}

/// Serves until a signal stops it. The actors live as long as the returned hub.
async fn serve(
    opened: Opened,
    paths: &Paths,
    handed: Option<UnixListener>,
) -> Result<Rc<Hub>, DaemonError> {
    let is_handed = handed.is_some();
    // Bind first: clients can connect and wait until the queue is recovered, instead of failing.
    let socket = listener::bind(paths, handed).map_err(failed("cannot open the socket"))?;
    let waiting = socket.try_clone();
    let served = serve_at(socket, opened, paths).await;
    // New clients then fail immediately. On a socket that was passed on, they wait for the next
    // daemon.
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
    let Opened { settings, sources, parser, nofile, mut store, readers, last_commit } = opened;
    let launcher =
        Launcher::start(paths.root(), nofile).map_err(failed("cannot start the launcher"))?;
    // With a handler, a write beyond a file size limit (setrlimit(2)) fails like one to a full
    // disk, instead of killing the daemon.
    let _ = signal(SignalKind::from_raw(libc::SIGXFSZ)).map_err(failed("cannot handle signals"))?;
    let started = StartedRuns::open(&paths.lib_dir());
    let assigned = started.last_assigned();
    let mut queue = recovery::load(&mut store, paths, settings.min_job_age, assigned).await?;
    let (inventory, host) = detect(&settings, paths, &mut queue).await?;
    let (config, remarks) = core_config(&settings, host)?;
    remarks.iter().for_each(|remark| log::warn!("{remark}"));
    let mut recovered = recovery::recover(config, queue, &mut store, paths, last_commit)?;
    let mark = LaunchMark::open(paths.root());
    if let Some(at_death) = mark.before() {
        log::error!("the previous daemon died while it launched job {}", at_death.step);
        recovered.core.node_mut().launch_was_under_way(at_death);
    }
    let cgroups = cgroup_base(&settings, &mut recovered);
    log_start(paths, &recovered);
    let parts = Parts {
        settings,
        sources,
        parser,
        paths: paths.clone(),
        launcher,
        mark,
        started: Arc::new(started),
        cgroups,
        store,
        readers,
        inventory: inventory.clone(),
        recovered,
    };
    let hub = Rc::new(wiring::start(parts));
    actix::spawn(listener::serve(
        listener::listen(socket).map_err(failed("cannot use the socket"))?,
        Rc::clone(&hub),
    ));
    notify_manager(NotifyState::Ready);
    memory::unmap_code();
    until_stopped(inventory, &hub.machine).await?;
    notify_manager(NotifyState::Stopping);
    Ok(hub)
}

/// Detects the resources of the host. A driver that does not respond soon may answer later.
async fn detect(
    settings: &Settings,
    paths: &Paths,
    queue: &mut Queue,
) -> Result<(Addr<GpuInventoryActor>, Host), DaemonError> {
    let places =
        Places { count: settings.gpu_count, timeout: GPU_TIMEOUT, root: paths.root().to_owned() };
    // GPUs that are only counted have no UUIDs.
    let kept = if places.count.is_none() { queue.known_gpus(places.kept()) } else { Vec::new() };
    let inventory = GpuInventoryActor::new(places, kept.clone()).start();
    let detection = timeout(GPU_GRACE, inventory.send(ProbeGpus)).await;
    let detects_gpus = detection.is_err();
    if detects_gpus {
        log::warn!("the GPUs are still being detected: jobs that need one wait");
    }
    let gpus = detection.unwrap_or(Ok(Vec::new())).unwrap_or_default();
    let lost_gpus = if detects_gpus { kept } else { Vec::new() };
    Ok((inventory, Host { gpus, lost_gpus, detects_gpus, ..core_config::machine()? }))
}

/// Prepares the base of the jobs' cgroups. If it cannot be used, the node accepts no jobs.
fn cgroup_base(settings: &Settings, recovered: &mut Recovered) -> Option<Arc<CgroupBase>> {
    let place = settings.cgroup_base.as_ref()?;
    let base = Arc::new(CgroupBase::new(place.clone(), settings.cgroup_rules()));
    if let Err(e) = base.probe() {
        log::error!("SLOTD_CGROUP_BASE cannot be used, and no jobs are accepted until it can: {e}");
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
        "slotd {} started in {}: CPUs {}, memory {} MB, GPUs {}, running jobs {}",
        env!("CARGO_PKG_VERSION"),
        paths.root().display(),
        host.cpu_ids.len(),
        host.mem_mb,
        host.gpus.len(),
        recovered.adopted.len()
    );
}

/// Notifies the service manager that `NOTIFY_SOCKET` names, so that a start returns only once the
/// daemon answers.
pub(super) fn notify_manager(state: NotifyState) {
    if let Err(e) = sd_notify::notify(std::slice::from_ref(&state)) {
        // At the end, the manager may no longer be listening.
        let level =
            if matches!(state, NotifyState::Ready) { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "NOTIFY_SOCKET: could not notify the service manager of {state}: {e}");
    }
}

/// The fewest open files with which the daemon can serve. It opens 40 at its start.
const LEAST_DESCRIPTORS: u64 = 64;

/// Raises the limit on open files, and returns the old one, which the launcher passes on to jobs.
/// Each client and each running step needs a descriptor, and a thousand waiting clients must not
/// keep others out.
fn raise_descriptor_limit() -> Result<u64, DaemonError> {
    let raised = limits::raise_descriptors();
    match limits::descriptors().unwrap_or(0) {
        limit @ ..LEAST_DESCRIPTORS => {
            Err(DaemonError::Descriptors { limit, least: LEAST_DESCRIPTORS })
        }
        limit => Ok(raised.map_or(limit, |before| before.soft)),
    }
}

/// Waits for SIGTERM or SIGINT. SIGHUP probes the machine again.
async fn until_stopped(
    inventory: Addr<GpuInventoryActor>,
    machine: &Rc<MachineWatch>,
) -> Result<(), DaemonError> {
    let listen = |kind| signal(kind).map_err(failed("cannot handle signals"));
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
