//! The actors and who tells whom: one function an actor, and [`start`] in the order in which they come up.
//!
//! ```text
//! inventory ─► scheduler ─► store (its own thread) ─► scheduler
//!     timer ─►           ─► runners (their own thread) ─► scheduler
//!   session ─►           ─► notifier
//!   session ─► reader (its own thread)
//! ```

use crate::actors::gpu_inventory::ReportTo;
use crate::actors::messages::{ClientGone, GpusChanged};
use crate::actors::runner::{RunnerOutputs, RunnerSeed, RunnerSetup};
use crate::actors::scheduler::{Due, SchedulerOutputs};
use crate::actors::store::StoreOutputs;
use crate::actors::{GpuInventoryActor, NotifierActor, ReaderActor, SchedulerActor, StoreActor};
use crate::daemon::core_config::{self, partitions};
use crate::daemon::recovery::Recovered;
use crate::daemon::requests::Requests;
use crate::daemon::session::Hub;
use crate::daemon::settings::Settings;
use crate::daemon::{alarm, client_watch};
use crate::exec::Launcher;
use crate::exec::cgroup::CgroupBase;
use crate::model::batch_tasks::BatchTasks;
use crate::model::job::ClientProcess;
use crate::model::{JobId, Timestamp};
use crate::store::{Reader, Store};
use crate::sys::clock;
use crate::sys::paths::Paths;
use actix::prelude::*;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// What the actors are made of.
pub struct Parts {
    pub settings: Settings,
    pub paths: Paths,
    pub launcher: Launcher,
    pub store: Store,
    pub inventory: Addr<GpuInventoryActor>,
    pub recovered: Recovered,
}

/// Starts all actors, adopts what runs, and returns what the sessions talk to.
pub fn start(parts: Parts) -> Hub {
    let Parts { settings, paths, launcher, store, inventory, recovered } = parts;
    let Recovered { core, adopted, clients, daemon_start } = recovered;
    let config = core.config();
    let (shown, node, batch_tasks) =
        (core_config::shown(&settings, config), config.host.name.clone(), config.batch_tasks);
    // Its address goes to those that it gets addresses of.
    let context = Context::<SchedulerActor>::new();
    let scheduler = context.address();
    let (alarm_set, alarm_next) = watch::channel(None);
    let outputs = SchedulerOutputs {
        store: start_store(store, &scheduler),
        notifier: NotifierActor::new(settings.notify_cmd.clone(), settings.notify_timeout).start().recipient(),
        runners: runners(&settings, paths.clone(), launcher, &scheduler),
        alarm: alarm_set,
        clock: clock::now,
        daemon_start,
        partitions: Box::new(move |has_gpus| partitions(&settings, has_gpus)),
    };
    context.run(SchedulerActor::new(core, outputs, adopted));
    let changes: Recipient<GpusChanged> = scheduler.clone().recipient();
    inventory.do_send(ReportTo(changes));
    start_timer(alarm_next, scheduler.clone());
    for (job, client) in clients {
        actix::spawn(expect_client(scheduler.clone(), job, client));
    }
    Hub {
        scheduler,
        reader: start_reader(paths.db(), node, batch_tasks),
        paths,
        config: shown,
        clock: clock::now,
        next_ticket: Cell::new(1),
        connections: Cell::new(0),
        requests: Requests::default(),
    }
}

/// The store, on a thread of its own: a commit waits for the disk.
fn start_store(store: Store, scheduler: &Addr<SchedulerActor>) -> Recipient<crate::actors::messages::Commit> {
    let outputs = StoreOutputs { committed: scheduler.clone().recipient(), disk_full: scheduler.clone().recipient() };
    StoreActor::start_in_arbiter(&Arbiter::new().handle(), move |_| StoreActor::new(store, outputs)).recipient()
}

/// Where the scheduler makes a runner for each job, on a thread of their own: starting a process takes a while.
fn runners(settings: &Settings, paths: Paths, launcher: Launcher, scheduler: &Addr<SchedulerActor>) -> RunnerSeed {
    let setup = RunnerSetup {
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
        paths: Arc::new(paths),
        // A bad base is an error of each launch, told where it is felt; the daemon itself can serve.
        cgroups: settings.cgroup_base.as_ref().map(|base| Arc::new(CgroupBase::new(base))),
        kill_wait: settings.kill_wait,
        clock: clock::now,
    };
    RunnerSeed { arbiter: Arbiter::new().handle(), setup: Arc::new(OnceLock::from(setup)) }
}

/// The reader of the database, on a thread of its own: a long sacct delays no commit.
fn start_reader(database: PathBuf, node: String, batch_tasks: BatchTasks) -> Addr<ReaderActor> {
    SyncArbiter::start(1, move || match Reader::open(&database) {
        Ok(reader) => ReaderActor::new(reader, node.clone(), batch_tasks),
        Err(e) => {
            log::error!("{}: {e}", database.display());
            crate::actors::fatal()
        }
    })
}

/// Wakes the scheduler at the instants that it asks for.
fn start_timer(next: watch::Receiver<Option<Timestamp>>, scheduler: Addr<SchedulerActor>) {
    actix::spawn(async move {
        if let Err(e) = alarm::ring(next, || scheduler.do_send(Due)).await {
            log::error!("the timer of the scheduler failed: {e}");
            crate::actors::fatal();
        }
    });
}

/// How long the client of an adopted allocation has to come back, if it lives.
const CLIENT_RETURN: Duration = Duration::from_secs(10);

/// The client of an adopted allocation comes back, or dies; in the second case the allocation ends.
async fn expect_client(scheduler: Addr<SchedulerActor>, job: JobId, client: ClientProcess) {
    let alive = client_watch::end_of(client);
    // A living client comes back by itself (`Attach`), and its connection tells of its end from then on.
    let _ = tokio::time::timeout(CLIENT_RETURN, alive).await;
    scheduler.do_send(ClientGone { job, client });
}
