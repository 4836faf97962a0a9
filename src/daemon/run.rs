//! From the environment to a serving daemon, and down again.
//!
//! Start: lock the root, open the database, wait for launches of an earlier daemon to settle, find the GPUs, recover the
//! queue, start the actors, adopt what runs, and only then open the socket. Jobs and their watchers outlive the
//! daemon, so that going down is nothing but to stop.

use crate::actors::gpu_inventory::ReportTo;
use crate::actors::messages::{GpusChanged, ProbeGpus};
use crate::actors::runner::{RunnerOutputs, RunnerSeed, RunnerSetup};
use crate::actors::scheduler::{Due, SchedulerOutputs, clients_to_expect};
use crate::actors::store::{StoreOutputs, ended_facts};
use crate::actors::{GpuInventoryActor, NotifierActor, ReaderActor, SchedulerActor, StoreActor};
use crate::daemon::config::{Config, ConfigError};
use crate::daemon::listener;
use crate::daemon::requests::Requests;
use crate::daemon::session::Hub;
use crate::daemon::{alarm, client_watch, service};
use crate::exec::cgroup::CgroupBase;
use crate::exec::{Launcher, adopt};
use crate::model::partition::{Gpu, Host};
use crate::model::{JobState, Partition, Timestamp};
use crate::sched::{self, Core};
use crate::store::{Reader, Store};
use crate::sys::paths::Paths;
use crate::sys::{cpus, memory, system};
use actix::prelude::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::cell::Cell;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Default memory of a job in MB (book, "Batch Jobs: Defaults").
pub const DEFAULT_MEM_MB: u64 = 512;

/// Why the daemon did not start, or went down.
#[derive(Debug)]
pub enum DaemonError {
    Config(ConfigError),
    /// Another daemon serves this root.
    AlreadyRunning(PathBuf),
    /// What was being done, and what went wrong.
    Start(String, String),
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonError::Config(e) => e.fmt(f),
            DaemonError::AlreadyRunning(root) => {
                write!(f, "another daemon serves {} already: stop it, or choose another SLOTD_ROOT", root.display())
            }
            DaemonError::Start(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for DaemonError {}

fn failed<E: fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> DaemonError {
    let what = what.into();
    move |e| DaemonError::Start(what, e.to_string())
}

/// The wall clock.
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Runs the daemon of `root` until SIGTERM or SIGINT.
///
/// # Errors
/// What kept it from starting.
pub fn run(root: PathBuf, lookup: impl Fn(&str) -> Option<OsString>) -> Result<(), DaemonError> {
    let config = Config::from_env(root, lookup).map_err(DaemonError::Config)?;
    let paths = Paths::new(config.root.clone());
    let _lock = listener::take_root(&paths).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => DaemonError::AlreadyRunning(config.root.clone()),
        _ => DaemonError::Start("the runtime root cannot be used".to_owned(), e.to_string()),
    })?;
    let database = paths.db();
    let store = Store::open(&database).map_err(failed(database.display().to_string()))?;
    let reader_path = database.clone();
    Reader::open(&database).map_err(failed(database.display().to_string()))?;
    // Started before this process grows: the launcher forks cheaply because it is small.
    adopt::await_launches(paths.root()).map_err(failed("an earlier launcher"))?;
    System::new().block_on(async move { serve(config, paths, store, reader_path).await })
}

async fn serve(config: Config, paths: Paths, mut store: Store, reader_path: PathBuf) -> Result<(), DaemonError> {
    let launcher = Launcher::start(paths.root()).map_err(failed("the launcher"))?;
    raise_descriptor_limit();
    // A bad base is an error of each launch, told where it is felt; the daemon itself can serve.
    let cgroups = config.cgroup_base.as_ref().map(|base| Arc::new(CgroupBase::new(base)));
    let inventory = GpuInventoryActor::new(config.gpu_count).start();
    let gpus = inventory.send(ProbeGpus).await.unwrap_or_default();
    let host = find_host(&config, gpus)?;
    let daemon_start = wall_clock();
    let core_config = sched::Config {
        partitions: partitions(&config, !host.gpus.is_empty()),
        host,
        default_mem_mb: DEFAULT_MEM_MB,
        batch_tasks: config.batch_tasks,
        min_job_age_secs: config.min_job_age.as_secs(),
        cluster: crate::CLUSTER.to_owned(),
        max_array_size: crate::model::array::MAX_TASK_ID + 1,
    };
    let since = Timestamp(daemon_start.0 - i64::try_from(config.min_job_age.as_micros()).unwrap_or(i64::MAX));
    let jobs = store.load_live(since).map_err(failed("the queue in the database"))?;
    let next_id = store.next_job_id().map_err(failed("the queue in the database"))?;
    let targets = sched::dependency_targets(
        jobs.iter().filter(|job| job.run.state == JobState::Pending).map(|job| job.request.as_ref()),
    );
    let ended = Reader::open(&reader_path)
        .and_then(|mut reader| ended_facts(&mut reader, &targets))
        .map_err(failed("the queue in the database"))?;
    let adopted: Vec<_> = jobs.iter().filter(|job| job.run.state.is_active()).cloned().collect();
    let expected_clients = clients_to_expect(&jobs);
    let core = Core::recover(core_config, jobs, ended, next_id, daemon_start);
    log::info!(
        "slotd {} serves {}: {} CPUs, {} MB, {} GPUs; {} jobs run",
        env!("CARGO_PKG_VERSION"),
        paths.root().display(),
        core.config().host.cpu_ids.len(),
        core.config().host.mem_mb,
        core.config().host.gpus.len(),
        adopted.len()
    );

    let store_arbiter = Arbiter::new();
    let runner_arbiter = Arbiter::new();
    let setup = Arc::new(OnceLock::new());
    let (alarm_set, alarm_next) = watch::channel(None);
    let notifier = NotifierActor::new(config.notify_cmd.clone(), config.notify_timeout).start();
    let shown = show_config(&config, core.config());
    let (node, batch_tasks) = (core.config().host.name.clone(), core.config().batch_tasks);
    let scheduler_context = Context::<SchedulerActor>::new();
    let scheduler = scheduler_context.address();
    let store_out = StoreOutputs { committed: scheduler.clone().recipient(), disk_full: scheduler.clone().recipient() };
    let store = StoreActor::start_in_arbiter(&store_arbiter.handle(), move |_| StoreActor::new(store, store_out));
    let runner_setup = RunnerSetup {
        outputs: RunnerOutputs {
            step_started: scheduler.clone().recipient(),
            task_ended: scheduler.clone().recipient(),
            step_stopping: scheduler.clone().recipient(),
            limit_reached: scheduler.clone().recipient(),
            step_ended: scheduler.clone().recipient(),
            job_ended: scheduler.clone().recipient(),
            died: scheduler.clone().recipient(),
        },
        launcher: Arc::new(launcher),
        paths: Arc::new(paths.clone()),
        cgroups,
        kill_wait: config.kill_wait,
        clock: wall_clock,
    };
    // Nobody else sets it.
    let _ = setup.set(runner_setup);
    let partition_config = config.clone();
    let outputs = SchedulerOutputs {
        store: store.recipient(),
        notifier: notifier.recipient(),
        runners: RunnerSeed { arbiter: runner_arbiter.handle(), setup },
        alarm: alarm_set,
        clock: wall_clock,
        daemon_start,
        partitions: Box::new(move |has_gpus| partitions(&partition_config, has_gpus)),
    };
    scheduler_context.run(SchedulerActor::new(core, outputs, adopted));
    let reports: Recipient<GpusChanged> = scheduler.clone().recipient();
    inventory.do_send(ReportTo(reports));
    let ringing = scheduler.clone();
    actix::spawn(async move {
        if let Err(e) = alarm::ring(alarm_next, || ringing.do_send(Due)).await {
            log::error!("the timer of the scheduler failed: {e}");
            crate::actors::fatal();
        }
    });
    for (job, client) in expected_clients {
        actix::spawn(expect_client(scheduler.clone(), job, client));
    }
    let reader = SyncArbiter::start(1, move || match Reader::open(&reader_path) {
        Ok(reader) => ReaderActor::new(reader, node.clone(), batch_tasks),
        Err(e) => {
            log::error!("{}: {e}", reader_path.display());
            crate::actors::fatal()
        }
    });
    let hub = Hub {
        scheduler: scheduler.clone(),
        reader,
        config: shown,
        clock: wall_clock,
        next_ticket: Cell::new(1),
        connections: Cell::new(0),
        requests: Requests::default(),
    };
    let listener = listener::bind(&paths).map_err(failed("the socket"))?;
    actix::spawn(listener::serve(listener, Rc::new(hub)));
    service::tell(config.notify_socket.as_deref(), service::READY);
    until_told(inventory).await?;
    service::tell(config.notify_socket.as_deref(), service::STOPPING);
    // Those who connect from now on are told at once that nobody is there.
    let _ = std::fs::remove_file(paths.socket());
    log::info!("slotd goes down; running jobs go on");
    Ok(())
}

/// Each client and each running step holds a descriptor: a thousand waiting ones must not keep others out. The launcher
/// has the old limit already, and gives it to the jobs.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(e) = raised {
        log::warn!("the limit on open files stays as it is: {e}");
    }
}

/// Waits for SIGTERM or SIGINT; SIGHUP looks for GPUs again.
async fn until_told(inventory: Addr<GpuInventoryActor>) -> Result<(), DaemonError> {
    let hear = |kind| signal(kind).map_err(failed("signals"));
    let (mut term, mut int, mut hup) =
        (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?, hear(SignalKind::hangup())?);
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hup.recv() => inventory.do_send(ProbeGpus),
        }
    }
}

/// How long the client of an adopted allocation has to come back, if it lives.
const CLIENT_RETURN: Duration = Duration::from_secs(10);

/// The client of an adopted allocation comes back, or dies; in the second case the allocation ends.
async fn expect_client(
    scheduler: Addr<SchedulerActor>,
    job: crate::model::JobId,
    client: crate::model::job::ClientProcess,
) {
    let alive = client_watch::end_of(client);
    // A living client comes back by itself (`Attach`), and its connection tells of its end from then on.
    let _ = tokio::time::timeout(CLIENT_RETURN, alive).await;
    scheduler.do_send(crate::actors::messages::ClientGone { job, client });
}

fn find_host(config: &Config, gpus: Vec<Gpu>) -> Result<Host, DaemonError> {
    let found = cpus::probe().map_err(failed("the CPUs of this machine"))?;
    let cpu_ids = match config.cpus {
        None => found.cpu_ids,
        // More than there are: numbers beyond the real ones are booked like any other, and never bound to.
        Some(n) => (0..n).collect(),
    };
    Ok(Host {
        name: system::probe_host_name(),
        sockets: found.sockets,
        cores_per_socket: found.cores_per_socket,
        threads_per_core: found.threads_per_core,
        cpu_ids,
        mem_mb: config.mem_mb.unwrap_or_else(memory::probe_total_mb),
        gpus,
        features: config.features.clone(),
        kernel: system::probe_os(),
        arch: system::probe_arch(),
        boot_secs: system::probe_boot_secs(),
    })
}

/// The partitions of the configuration; those for GPUs only where there are any (book, "Runtime Model: Partitions").
fn partitions(config: &Config, has_gpus: bool) -> Vec<Partition> {
    let cpu = config.cpu_partitions.iter().map(|name| (name, false));
    let gpu = config.gpu_partitions.iter().map(|name| (name, true)).filter(|_| has_gpus);
    cpu.chain(gpu)
        .enumerate()
        .map(|(i, (name, is_gpu))| Partition { name: name.clone(), is_gpu, is_default: i == 0 })
        .collect()
}

/// `scontrol show config`: Slurm's keys where there is something to say, and slotd's own.
fn show_config(config: &Config, core: &sched::Config) -> Vec<(String, String)> {
    let node = &core.host.name;
    let list = |names: &[String]| names.join(",");
    let path = |p: Option<&PathBuf>| p.map_or_else(|| "(null)".to_owned(), |p| p.display().to_string());
    let root = config.root.display();
    [
        ("BatchStartTimeout", "10 sec".to_owned()),
        ("ClusterName", core.cluster.clone()),
        ("DefMemPerNode", core.default_mem_mb.to_string()),
        ("KillWait", format!("{} sec", config.kill_wait.as_secs())),
        ("MaxArraySize", core.max_array_size.to_string()),
        ("MinJobAge", format!("{} sec", core.min_job_age_secs)),
        ("PriorityType", "priority/basic".to_owned()),
        ("SchedulerType", "sched/backfill".to_owned()),
        ("SelectType", "select/cons_tres".to_owned()),
        ("SelectTypeParameters", "CR_CPU_MEMORY".to_owned()),
        ("SLURM_VERSION", crate::SLURM_VERSION.to_owned()),
        ("SlotdCgroupBase", path(config.cgroup_base.as_ref())),
        ("SlotdCpuPartitions", list(&config.cpu_partitions)),
        ("SlotdFeatures", list(&config.features)),
        ("SlotdGpuPartitions", list(&config.gpu_partitions)),
        ("SlotdRoot", root.to_string()),
        ("SlotdVersion", env!("CARGO_PKG_VERSION").to_owned()),
        ("SlurmctldHost[0]", format!("{node}({node})")),
        ("StateSaveLocation", format!("{root}/lib")),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}
