//! Creates and connects the actors: one function per actor, and [`start`], which calls them in
//! order.
//!
//! ```text
//! inventory ◄─► scheduler ─► store (its own thread) ─► scheduler
//!     timer ─►           ─► runners (their own thread) ─► scheduler
//!                        ─► host watch
//!   session ─►           ─► notifier
//!   session ─► readers (their own threads)
//! ```

use crate::actors::activity::Activity;
use crate::actors::gpu_inventory::{GpuOutputs, ReportTo};
use crate::actors::messages::{ClientGone, Notify};
use crate::actors::notifier::Ways;
use crate::actors::runner::{RunnerOutputs, RunnerSeed, RunnerSetup, runners_on};
use crate::actors::scheduler::{Due, SchedulerOutputs};
use crate::actors::store::{Growth, StoreOutputs};
use crate::actors::{
    GpuInventoryActor, NotifierActor, ReaderActor, Readers, SchedulerActor, StoreActor,
};
use crate::daemon::answers::Answers;
use crate::daemon::command_line::ParsePlain;
use crate::daemon::core_config;
use crate::daemon::history::{self, History, Keep};
use crate::daemon::host_watch::HostWatch;
use crate::daemon::machine_watch::MachineWatch;
use crate::daemon::recovery::Recovered;
use crate::daemon::requests::Requests;
use crate::daemon::session::Hub;
use crate::daemon::settings::Settings;
use crate::daemon::sources::Sources;
use crate::daemon::work_trees::WorkTrees;
use crate::daemon::{alarm, client_watch, sendmail};
use actix::prelude::*;
use slotd_exec::Launcher;
use slotd_exec::cgroup::CgroupBase;
use slotd_exec::launch_mark::LaunchMark;
use slotd_exec::started::StartedRuns;
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::job::ClientProcess;
use slotd_model::notice::Notice;
use slotd_model::{JobId, Timestamp};
use slotd_store::{Reader, Store};
use slotd_sys::paths::Paths;
use slotd_sys::{clock, slice};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// The parts that the actors are built from.
pub struct Parts {
    pub settings: Settings,
    pub sources: Sources,
    pub parser: ParsePlain,
    pub paths: Paths,
    pub launcher: Launcher,
    pub mark: LaunchMark,
    pub started: Arc<StartedRuns>,
    pub cgroups: Option<Arc<CgroupBase>>,
    pub store: Store,
    /// One for each reader.
    pub readers: Vec<Reader>,
    pub inventory: Addr<GpuInventoryActor>,
    pub recovered: Recovered,
}

/// Starts all actors, adopts running jobs, and returns the context of the sessions.
pub fn start(parts: Parts) -> Hub {
    let Parts {
        settings,
        sources,
        parser,
        paths,
        launcher,
        mark,
        started,
        cgroups,
        store,
        readers,
        inventory,
        recovered,
    } = parts;
    let Recovered { core, adopted, clients, daemon_start, opening, untold } = recovered;
    let config = core.config();
    let (shown, node, batch_tasks) =
        (core_config::shown(&settings, config), config.host.name.clone(), config.batch_tasks);
    // The address is needed by actors whose addresses the scheduler itself needs.
    let context = Context::<SchedulerActor>::new();
    let scheduler = context.address();
    let (alarm_set, alarm_next) = watch::channel(None);
    let (activity, host_activity) = watch::channel(Activity::default());
    let growth = Arc::new(Growth::default());
    let keep = Keep::of(&settings);
    let files = store.files().clone();
    let store = start_store(store, &scheduler, Arc::clone(&growth), Arc::clone(&started));
    let work_trees = WorkTrees::new(&settings, node.clone(), paths.run_dir(), store.clone());
    // Numbers used by earlier daemons are unknown. The time in microseconds exceeds them all.
    let first_notice = u64::try_from(clock::now().0).unwrap_or(1);
    let next_notice =
        untold.last().map_or(first_notice, |(number, _)| first_notice.max(number + 1));
    let outputs = SchedulerOutputs {
        store: store.clone().recipient(),
        notifier: start_notifier(&settings, untold, &scheduler),
        next_notice,
        gpus: inventory.clone().recipient(),
        root: paths.root().to_owned(),
        runners: runners(RunnerSetup {
            outputs: runner_outputs(&scheduler),
            launcher: Arc::new(launcher),
            mark: Arc::new(mark),
            started,
            paths: Arc::new(paths.clone()),
            cgroups: cgroups.clone(),
            kill_wait: settings.kill_wait,
            oom_score_adj: settings.oom_score_adj,
            clock: clock::now,
        }),
        cgroups,
        alarm: alarm_set,
        clock: clock::moment,
        daemon_start,
        activity,
        forecasts: Arc::new(Semaphore::new(1)),
    };
    context.run(SchedulerActor::new(core, outputs, adopted, opening));
    let (changed, read) = (scheduler.clone().recipient(), scheduler.clone().recipient());
    inventory.do_send(ReportTo(GpuOutputs { changed, read }));
    start_timer(alarm_next, scheduler.clone());
    for (job, client) in clients {
        actix::spawn(expect_client(scheduler.clone(), job, client));
    }
    let machine = Rc::new(MachineWatch::new(scheduler.clone()));
    actix::spawn(Rc::clone(&machine).follow());
    let host = Rc::new(HostWatch::new(&paths));
    actix::spawn(Rc::clone(&host).follow(host_activity));
    let past_in_use = Arc::default();
    let (removes, deletes, in_use) = (scheduler.clone(), store.clone(), Arc::clone(&past_in_use));
    let actors = history::Actors { scheduler: removes, store: deletes, files, in_use };
    let history = Rc::new(History::new(paths.clone(), actors));
    actix::spawn(Rc::clone(&history).keep_within(keep, growth));
    Hub {
        scheduler,
        inventory,
        readers: start_readers(readers, paths.db(), node, batch_tasks),
        paths,
        config: RefCell::new(shown),
        settings: Arc::new(settings),
        sources: Arc::new(sources),
        parser,
        clock: clock::now,
        next_ticket: Cell::new(1),
        connections: Cell::new(0),
        answers: Answers::new(),
        requests: Requests::default(),
        history,
        work_trees: Rc::new(work_trees),
        store,
        past_in_use,
        machine,
        host,
        node_orders: Default::default(),
    }
}

/// Starts the store on its own thread, since commits wait for the disk.
fn start_store(
    store: Store,
    scheduler: &Addr<SchedulerActor>,
    growth: Arc<Growth>,
    started: Arc<StartedRuns>,
) -> Addr<StoreActor> {
    let outputs = StoreOutputs {
        committed: scheduler.clone().recipient(),
        unstored: scheduler.clone().recipient(),
        well: scheduler.clone().recipient(),
        growth,
        started,
    };
    StoreActor::start_in_arbiter(&prompt_thread(), move |_| StoreActor::new(store, outputs))
}

/// Starts the notifier, which first sends the notifications left by an earlier daemon.
fn start_notifier(
    settings: &Settings,
    untold: Vec<(u64, Notice)>,
    scheduler: &Addr<SchedulerActor>,
) -> Recipient<Notify> {
    let facts = scheduler.clone().recipient();
    let ways = Ways {
        command: settings.notify_cmd.clone(),
        url: settings.notify_url.clone(),
        sendmail: sendmail::find(settings),
        timeout: settings.notify_timeout,
    };
    let notifier = NotifierActor::new(ways, facts).start();
    for (number, notice) in untold {
        notifier.do_send(Notify { number, notice });
    }
    notifier.recipient()
}

/// Returns the function that starts a runner for each job. Runners have their own thread, since
/// starting processes takes a while.
fn runners(setup: RunnerSetup) -> RunnerSeed {
    runners_on(prompt_thread(), setup)
}

/// Starts a thread for actors that other actors wait for.
fn prompt_thread() -> ArbiterHandle {
    let thread = Arbiter::new().handle();
    thread.spawn_fn(slice::shorten);
    thread
}

fn runner_outputs(scheduler: &Addr<SchedulerActor>) -> RunnerOutputs {
    RunnerOutputs {
        step_started: scheduler.clone().recipient(),
        task_ended: scheduler.clone().recipient(),
        step_stopping: scheduler.clone().recipient(),
        limit_reached: scheduler.clone().recipient(),
        step_ended: scheduler.clone().recipient(),
        steps_found: scheduler.clone().recipient(),
        job_ended: scheduler.clone().recipient(),
        died: scheduler.clone().recipient(),
        cgroups_checked: scheduler.clone().recipient(),
    }
}

/// Starts the readers of the database on their own threads, so that a long sacct delays no commit
/// and no short query. `open` are their connections, opened in advance so that a running daemon has
/// them even if the host runs out of resources.
fn start_readers(
    open: Vec<Reader>,
    database: PathBuf,
    node: String,
    batch_tasks: BatchTasks,
) -> Readers {
    let open = Arc::new(Mutex::new(open));
    let next = move || open.lock().unwrap_or_else(PoisonError::into_inner).pop();
    Readers::start(move || match next().map_or_else(|| Reader::open(&database), Ok) {
        Ok(reader) => ReaderActor::new(reader, node.clone(), batch_tasks),
        Err(e) => {
            log::error!("{}: {e}", database.display());
            crate::actors::fatal()
        }
    })
}

/// Wakes the scheduler at the times it requests.
fn start_timer(next: watch::Receiver<Option<Timestamp>>, scheduler: Addr<SchedulerActor>) {
    actix::spawn(async move {
        if let Err(e) = alarm::ring(next, || scheduler.do_send(Due)).await {
            log::error!("the timer of the scheduler failed: {e}");
            crate::actors::fatal();
        }
    });
}

/// The time in which the client of an adopted allocation must reconnect, if it is alive.
const CLIENT_RETURN: Duration = Duration::from_secs(10);

/// Waits until the client of an adopted allocation reconnects or exits. If it exits, the allocation
/// ends.
async fn expect_client(scheduler: Addr<SchedulerActor>, job: JobId, client: ClientProcess) {
    let alive = client_watch::end_of(client);
    // A living client reconnects on its own (`Attach`), and from then on its connection reports its
    // end.
    let _ = tokio::time::timeout(CLIENT_RETURN, alive).await;
    scheduler.do_send(ClientGone { job, client });
}
