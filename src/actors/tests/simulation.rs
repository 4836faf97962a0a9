//! Simulation of the scheduler with test doubles for the store and the runners, and a simulated
//! clock. Runs years of a queue in seconds, reproducible by seed.
//!
//! The store's double loses uncommitted changes in a crash, and fails now and then (`disk`). The
//! jobs' processes are a table that outlives the daemon, as real processes do. A crash may happen
//! at any moment, even between a commit and its effects. After each event, the core's own
//! invariants must hold, and so must the guarantees that users rely on:
//!
//! * a job whose ID was reported stays in the database forever, and a refused submission never
//!   starts;
//! * no run of a job has two processes;
//! * no CPU or GPU has two processes, memory suffices, and no job runs beside an exclusive one;
//! * an entry of a crontab has one job, which runs once for each of its times (`crontab`);
//! * no job starts before its begin time, before its dependency, or after its cancel was answered;
//! * a process exists only for a run that the database contains;
//! * every request is answered once no commit waits for the disk, and immediately while the disk
//!   fails. In the end, every job has ended in the same way as its process.
//!
//! `SLOTD_SIM_SEEDS=5000 cargo test --release --lib simulation` runs 5000 seeds.
//! `SLOTD_SIM_SEED=17` runs that one and prints its events.

use crate::actors::gpu_inventory::NoGpus;
use crate::actors::messages::*;
use crate::actors::scheduler::tests::CheckInvariants;
use crate::actors::scheduler::{Due, SchedulerActor, SchedulerOutputs};
use actix::prelude::*;
use slotd_model::dependency::DependencyKind;
use slotd_model::job::{Client, ClientProcess};
use slotd_model::license::{self, License};
use slotd_model::memo::MemoBody;
use slotd_model::preempt::PreemptMode;
use slotd_model::qos::{self, Qos, TresLimit};
use slotd_model::query::JobQuery;
use slotd_model::request::{JobKind, KeptText, Sharing};
use slotd_model::reservation::{Flag, How, Length, ReservationAsk, ReservationOrder, Share};
use slotd_model::update::Update;
use slotd_model::{
    ArrayRole, BootId, ClockBase, End, ExitCode, ExitRecord, Job, JobId, JobRef, JobState, Moment,
    Refusal, StepId, StepKey, Timestamp,
};
use slotd_protocol::request::{CancelAsk, ControlAction};
use slotd_sched::testing::{Ask, T0, ask, config, host};
use slotd_sched::{Config, Core, Cx, EndCause, Interrupted, Outbox, StopCause, Submission};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

mod checks;
mod crontab;
mod disk;
mod processes;
mod user;

use disk::{Disk, StoreMessage};

/// The number of seeds in a normal test run.
const SEEDS: u64 = 30;

/// The events per seed before the queue drains.
const EVENTS: u32 = 250;

const CPUS: u32 = 4;
const MEMORY_MB: u64 = 1000;
const GPUS: u32 = 2;

/// The names of reservations.
const RESERVED: [&str; 2] = ["r0", "r1"];

const LICENSES: [(&str, u32); 2] = [("disk", 1), ("seat", 2)];

/// Names of QOS: with a limit of one running job, of CPUs and submissions, the default one, and one
/// that preempts the others.
const QOS: [&str; 4] = ["one", "few", "normal", "urgent"];
const FEW_CPUS: u32 = 3;

/// Returns the QOS. A job that could never start is refused, so that the queue drains.
fn all_qos() -> Vec<Qos> {
    let named = |name: &str| Qos { name: name.to_owned(), ..Qos::default() };
    let max_tres = TresLimit { cpus: Some(FEW_CPUS), ..TresLimit::default() };
    let few = Qos { max_submit: Some(6), max_tres, denies_on_limit: true, ..named("few") };
    let one = Qos { max_jobs: Some(1), priority: 2, reserves_nothing: true, ..named("one") };
    // One job is preempted at once and cancelled, a few are suspended, and the others are requeued,
    // after a grace time.
    let one = Qos { preempt_mode: Some(PreemptMode::Cancel), ..one };
    let few = Qos { preempt_mode: Some(PreemptMode::Suspend), ..few };
    let normal = Qos { grace_secs: 2, ..named(qos::DEFAULT) };
    let preempt = ["one", "few", "normal"].map(str::to_owned).to_vec();
    let urgent = Qos { priority: 3, preempt, ..named("urgent") };
    vec![normal, one, few, urgent]
}

/// The maximum number of unfinished jobs, kept small so that much happens to each job.
const MOST_JOBS: usize = 25;

const USER: u32 = 1001;

const MICROS: i64 = 1_000_000;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(T0 * MICROS) };
    static BOOT: Cell<u128> = const { Cell::new(1) };
}

fn moment() -> Moment {
    Moment { wall: clock(), base: ClockBase { boot: BootId(BOOT.get()), zero: Timestamp(0) } }
}

fn clock() -> Timestamp {
    Timestamp(NOW.get())
}

/// A run of a job.
type RunKey = (JobId, u32);

struct Process {
    job: Box<Job>,
    /// When it ends on its own.
    ends: i64,
    exit: ExitCode,
    /// When it reaches its time limit.
    limit: Option<i64>,
    /// The time that was left when it was suspended.
    suspended: Option<i64>,
    stopped: Option<StopCause>,
    begun: i64,
    /// The record of its watcher.
    record: Option<(ExitRecord, EndCause)>,
    /// The machine has gone down since the process started.
    is_gone: bool,
}

impl Process {
    fn is_alive(&self) -> bool {
        self.record.is_none() && !self.is_gone
    }

    /// Returns when its next event is due.
    fn due(&self) -> Option<i64> {
        if !self.is_alive() || (self.suspended.is_some() && self.stopped.is_none()) {
            return None;
        }
        Some(self.limit.map_or(self.ends, |limit| limit.min(self.ends)))
    }

    fn end(&mut self, exit: ExitCode, cause: EndCause) {
        let record = ExitRecord {
            run: self.job.run.restarts,
            started: Timestamp(self.begun),
            stopped: cause == EndCause::Stopped,
            timed_out: cause == EndCause::TimeLimit,
            ..ExitRecord::gone(exit, clock())
        };
        self.record = Some((record, cause));
    }
}

/// Guarantees given about a job.
#[derive(Default)]
struct Promise {
    /// `scancel` was answered.
    cancelled: bool,
    /// The number of requeues by its user.
    requeues: u32,
    after: Option<(DependencyKind, JobId)>,
}

struct World {
    rng: fastrand::Rng,
    /// The number of the current daemon, or of the next one if none is running.
    epoch: u32,
    daemon: Option<Addr<SchedulerActor>>,
    alarm: Option<watch::Receiver<Option<Timestamp>>>,
    disk: Disk,
    /// The panic that reported a broken guarantee.
    broken: Option<Box<dyn Any + Send>>,
    processes: BTreeMap<RunKey, Process>,
    /// Jobs stopped before they had a process.
    never_begun: BTreeSet<JobId>,
    promises: BTreeMap<JobId, Promise>,
    /// Jobs that were started, whether or not the start was stored.
    begun: BTreeSet<JobId>,
    /// Refused submissions, by the comments of their jobs.
    refused: BTreeSet<String>,
    /// The time of the last run of each entry of a crontab.
    recurred: BTreeMap<JobId, Timestamp>,
    /// Requests that the current daemon has not answered.
    unanswered: u32,
    /// The daemon dies before it does anything else.
    doomed: bool,
    /// No more faults from now on.
    is_calm: bool,
    /// Print the events.
    is_verbose: bool,
    stats: Stats,
}

/// Counters to print at the end of the test.
#[derive(Default, Debug)]
struct Stats {
    events: u64,
    submitted: u64,
    launched: u64,
    crashes: u64,
    lost_commits: u64,
    reboots: u64,
    faults: u64,
    refused: u64,
    /// Refused jobs that a later daemon found.
    found: u64,
}

impl Stats {
    fn add(&mut self, other: &Stats) {
        let Stats {
            events,
            submitted,
            launched,
            crashes,
            lost_commits,
            reboots,
            faults,
            refused,
            found,
        } = other;
        self.events += events;
        self.submitted += submitted;
        self.launched += launched;
        self.crashes += crashes;
        self.lost_commits += lost_commits;
        self.reboots += reboots;
        self.faults += faults;
        self.refused += refused;
        self.found += found;
    }
}

type Shared = Rc<RefCell<World>>;

struct StoreDouble {
    world: Shared,
    epoch: u32,
}

impl Actor for StoreDouble {
    type Context = Context<Self>;
}

impl Handler<Commits> for StoreDouble {
    type Result = ();

    fn handle(&mut self, Commits(commits): Commits, _: &mut Self::Context) {
        let mut world = self.world.borrow_mut();
        if self.epoch == world.epoch {
            for commit in commits {
                let messages = world.disk.push(commit);
                world.deliver(messages);
            }
        }
    }
}

struct RunnerDouble {
    world: Shared,
    epoch: u32,
    job: JobId,
}

impl Actor for RunnerDouble {
    type Context = Context<Self>;
}

impl Handler<RunnerCommand> for RunnerDouble {
    type Result = ();

    fn handle(&mut self, command: RunnerCommand, _: &mut Self::Context) {
        let mut world = self.world.borrow_mut();
        if self.epoch == world.epoch && !world.doomed {
            world.guarded(|world| world.run(self.job, command));
        }
    }
}

struct IgnoredNotices;

impl Actor for IgnoredNotices {
    type Context = Context<Self>;
}

impl Handler<Notify> for IgnoredNotices {
    type Result = ();

    fn handle(&mut self, _: Notify, _: &mut Self::Context) {}
}

impl World {
    /// Runs an action and keeps its panic. A panic inside an actor would end only that actor.
    fn guarded(&mut self, action: impl FnOnce(&mut World)) {
        let done = catch_unwind(AssertUnwindSafe(|| action(self)));
        self.broken = done.err().or(self.broken.take());
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// Draws a request for licenses.
    fn some_licenses(&mut self) -> &'static str {
        const REQUESTS: [&str; 5] = ["disk", "seat", "seat:2", "seat,disk", "disk:0"];
        REQUESTS[self.rng.usize(..REQUESTS.len())]
    }

    /// Draws a QOS.
    fn some_qos(&mut self) -> &'static str {
        QOS[self.rng.usize(..QOS.len())]
    }

    fn log(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{:12.6} {}", (NOW.get() - T0 * MICROS) as f64 / 1e6, what());
        }
    }

    /// One crash in four takes the machine down. No process is left, and some unsynced data is
    /// lost.
    fn maybe_reboot(&mut self) {
        if !self.chance(25) {
            return;
        }
        self.log(|| "the machine went down".to_owned());
        BOOT.set(BOOT.get() + 1);
        self.stats.reboots += 1;
        for process in self.processes.values_mut() {
            // A committed end does not depend on the watcher's record.
            let is_lost = process.record.is_none() || self.rng.bool();
            process.is_gone = true;
            if !is_lost {
                continue;
            }
            process.record = None;
            // A stop that neither the daemon nor the watcher could store is lost.
            let id = process.job.id;
            let is_known =
                self.disk.stored.jobs.get(&id).is_none_or(|job| job.run.stopped_at.is_some());
            let named = process.job.array_job_id().unwrap_or(id);
            for promise in
                [id, named].into_iter().filter(|_| !is_known && process.stopped.is_some())
            {
                self.promises.entry(promise).and_modify(|promise| promise.cancelled = false);
            }
        }
    }

    /// Commits the first `most` waiting commits, if the disk works, and sends the results to the
    /// current daemon.
    fn commit(&mut self, most: usize) {
        let messages = self.disk.commit(most, &mut self.rng);
        self.deliver(messages);
    }

    fn deliver(&mut self, messages: impl IntoIterator<Item = StoreMessage>) {
        for message in messages {
            match &message {
                StoreMessage::Committed(m) => self.log(|| format!("commit {}", m.seq)),
                StoreMessage::Unstored(m) => {
                    self.log(|| format!("{}; withdrawn: {:?}", m.fault, m.withdrawn))
                }
                StoreMessage::Well => self.log(|| "the disk is well".to_owned()),
            }
            if let Some(daemon) = &self.daemon {
                message.to(daemon);
            }
        }
    }

    fn toggle_disk_fault(&mut self) {
        if self.disk.fault.take().is_none() && self.chance(35) {
            self.disk.break_down(&mut self.rng);
            self.stats.faults += 1;
        }
        self.log(|| format!("the disk: {:?}", self.disk.fault));
    }

    fn crash_disk(&mut self) {
        let (lost, found) = self.disk.crash(&mut self.rng);
        self.log(|| format!("crash; {lost} commits are lost, {found:?} are found"));
        self.stats.lost_commits += lost as u64;
        for job in found.iter().filter_map(|id| self.disk.stored.jobs.get(id)) {
            let was_refused =
                job.request.comment.as_ref().is_some_and(|comment| self.refused.remove(comment));
            self.stats.found += u64::from(was_refused);
        }
    }
}

/// The simulation of one seed.
struct Play {
    world: Shared,
    config: Config,
}

impl Play {
    fn new(seed: u64) -> Play {
        NOW.set(T0 * MICROS);
        let world = World {
            rng: fastrand::Rng::with_seed(seed),
            epoch: 0,
            daemon: None,
            alarm: None,
            disk: Disk::default(),
            broken: None,
            processes: BTreeMap::new(),
            never_begun: BTreeSet::new(),
            promises: BTreeMap::new(),
            begun: BTreeSet::new(),
            refused: BTreeSet::new(),
            recurred: BTreeMap::new(),
            unanswered: 0,
            doomed: false,
            is_calm: false,
            is_verbose: std::env::var_os("SLOTD_SIM_SEED").is_some(),
            stats: Stats::default(),
        };
        let license =
            |(name, count): &(&str, u32)| License { name: (*name).to_owned(), count: *count };
        let licenses = LICENSES.iter().map(license).collect();
        let config = Config { licenses, qos: all_qos(), ..config(host(CPUS, MEMORY_MB, GPUS)) };
        Play { world: Rc::new(RefCell::new(world)), config }
    }

    /// Starts a daemon from the database.
    fn start(&self) {
        let (core, adopt, opening) = self.recover();
        let (set, alarm) = watch::channel(None);
        let world = Rc::clone(&self.world);
        let epoch = world.borrow().epoch;
        let store = StoreDouble { world: Rc::clone(&world), epoch }.start();
        let runners = Rc::clone(&world);
        let outputs = SchedulerOutputs {
            store: store.recipient(),
            notifier: IgnoredNotices.start().recipient(),
            next_notice: 1,
            gpus: NoGpus.start().recipient(),
            root: PathBuf::new(),
            runners: Box::new(move |job| {
                RunnerDouble { world: Rc::clone(&runners), epoch, job }.start().recipient()
            }),
            alarm: set,
            clock: moment,
            daemon_start: clock(),
            forecasts: Arc::new(Semaphore::new(1)),
            cgroups: None,
            activity: watch::Sender::default(),
        };
        let mut world = world.borrow_mut();
        world.alarm = Some(alarm);
        world.daemon = Some(SchedulerActor::new(core, outputs, adopt, opening).start());
    }

    /// Recovers the core like the daemon: runs from an earlier boot end first.
    fn recover(&self) -> (Core, Vec<Job>, Outbox) {
        let world = self.world.borrow();
        let stored = &world.disk.stored;
        let shown = self.config.min_job_age_secs.cast_signed() * MICROS;
        let is_shown = |job: &Job| job.run.end.is_some_and(|end| end.0 >= NOW.get() - shown);
        let is_live = |job: &&Job| !job.run.state.is_terminal() || is_shown(job);
        let jobs: Vec<Job> = stored.jobs.values().filter(is_live).cloned().collect();
        let next = JobId(stored.jobs.keys().next_back().map_or(1, |id| id.0 + 1));
        let mut core = Core::recover(self.config.clone(), jobs, stored.ended(), next, clock());
        core.recall_memos(stored.memos.clone().into_iter().collect(), clock());
        core.recall_crontabs(stored.crontabs.clone().into_iter().collect());
        core.set_clock(moment().base);
        let mut cx = Cx::at(clock());
        for job in core.records().ran_before(None) {
            let run = core.job(job).map_or(0, |job| job.run.restarts);
            let record =
                world.processes.get(&(job, run)).and_then(|process| process.record.clone());
            let own = record.map(|(record, _)| record);
            core.node_failed(
                Interrupted { job, own, steps: Vec::new(), last_sign: clock() },
                &mut cx,
            );
        }
        let adopt = core.jobs().filter(|job| job.run.state.is_active()).cloned().collect();
        (core, adopt, cx.out)
    }

    /// Runs the actors until they are idle: only then does the paused clock of the runtime advance.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let broken = self.world.borrow_mut().broken.take();
        if let Some(panic) = broken {
            resume_unwind(panic);
        }
    }

    /// Crashes the daemon, perhaps with the machine, and starts the next one.
    async fn crash(&self) {
        {
            let mut world = self.world.borrow_mut();
            world.epoch += 1;
            world.daemon = None;
            world.alarm = None;
            world.doomed = false;
            world.unanswered = 0;
            world.never_begun.clear();
            world.stats.crashes += 1;
            world.crash_disk();
        }
        self.settle().await;
        // Processes continue while no daemon is running.
        let moments = self.world.borrow_mut().rng.u32(0..3);
        for _ in 0..moments {
            self.pass_time(false);
        }
        self.world.borrow_mut().maybe_reboot();
        self.start();
        self.settle().await;
    }

    /// Sends a request and calls `done` with its answer.
    fn send<M>(&self, message: M, done: impl FnOnce(&mut World, M::Result) + 'static)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        SchedulerActor: Handler<M>,
        <SchedulerActor as Actor>::Context: actix::dev::ToEnvelope<SchedulerActor, M>,
    {
        let (answer, epoch) = {
            let mut world = self.world.borrow_mut();
            let Some(daemon) = &world.daemon else { return };
            let answer = daemon.send(message);
            world.unanswered += 1;
            (answer, world.epoch)
        };
        let world = Rc::clone(&self.world);
        actix::spawn(async move {
            let Ok(answer) = answer.await else { return };
            let mut world = world.borrow_mut();
            if world.epoch == epoch {
                world.unanswered -= 1;
                world.guarded(|world| done(world, answer));
            }
        });
    }

    /// Advances to the next time at which something happens. Returns false if nothing will.
    fn pass_time(&self, may_ring: bool) -> bool {
        let mut world = self.world.borrow_mut();
        let process = world.next_process();
        let alarm = world
            .alarm
            .as_ref()
            .and_then(|alarm| *alarm.borrow())
            .filter(|_| may_ring)
            .map(|at| at.0);
        let Some(next) = [process.map(|(at, _)| at), alarm].into_iter().flatten().min() else {
            return false;
        };
        NOW.set(next.max(NOW.get()));
        match process {
            Some((at, key)) if at == next => world.process_due(key),
            _ => world.daemon.iter().for_each(|daemon| daemon.do_send(Due)),
        }
        true
    }

    async fn event(&self) {
        let kind = {
            let mut world = self.world.borrow_mut();
            world.stats.events += 1;
            world.rng.u32(0..100)
        };
        match kind {
            0..40 => self.user(),
            40..70 => {
                let mut world = self.world.borrow_mut();
                let waiting = world.disk.waiting();
                let some = world.rng.usize(0..=waiting);
                world.commit(some);
            }
            70..93 => {
                self.pass_time(true);
            }
            93..97 => self.world.borrow_mut().toggle_disk_fault(),
            _ => self.crash().await,
        }
        self.settle().await;
        self.check_now().await;
        if self.world.borrow().doomed {
            self.crash().await;
        }
    }

    /// Ends everything that can end: the disk works and nothing crashes from now on.
    async fn calm(&self) {
        {
            let mut world = self.world.borrow_mut();
            world.is_calm = true;
            world.disk.fault = None;
        }
        self.remove_crontab();
        let mut quiet = 0;
        for _ in 0..100_000 {
            self.world.borrow_mut().commit(usize::MAX);
            self.settle().await;
            self.check_now().await;
            let is_idle = self.world.borrow().disk.waiting() == 0;
            if !is_idle || self.pass_time(true) {
                self.settle().await;
                continue;
            }
            // The remaining jobs wait for their user.
            let live: Vec<Job> = self
                .world
                .borrow()
                .disk
                .stored
                .jobs
                .values()
                .filter(|job| !job.run.state.is_terminal())
                .cloned()
                .collect();
            if live.is_empty() {
                return;
            }
            quiet += 1;
            let shown = |job: &Job| {
                (
                    job.id,
                    job.run.clone(),
                    self.world.borrow().processes.contains_key(&(job.id, job.run.restarts)),
                )
            };
            assert!(quiet < 50, "jobs never end: {:?}", live.iter().map(shown).collect::<Vec<_>>());
            for job in live {
                match job.run.state {
                    JobState::Suspended => self.control(job.id, ControlAction::Resume),
                    JobState::Running => self.cancel(job.id),
                    _ if quiet < 3 => {
                        self.control(job.array_job_id().unwrap_or(job.id), ControlAction::Release)
                    }
                    _ => self.cancel(job.array_job_id().unwrap_or(job.id)),
                }
            }
        }
        panic!("the queue makes no progress");
    }
}

/// Runs one seed from the first submission until the queue is empty.
fn play(seed: u64) -> Stats {
    let runtime = actix_rt::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime")
    });
    runtime.block_on(async {
        let play = Play::new(seed);
        play.start();
        for _ in 0..EVENTS {
            play.event().await;
        }
        play.calm().await;
        play.check_end();
        let stats = std::mem::take(&mut play.world.borrow_mut().stats);
        // Stop the actors of this seed.
        play.world.borrow_mut().daemon = None;
        stats
    })
}

/// Prints how to reproduce a failing seed. The panic message contains the reason.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}: SLOTD_SIM_SEED={0} cargo test --lib simulation", self.0);
        }
    }
}

#[test]
fn guarantees_hold_despite_faults_and_crashes() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("SLOTD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SLOTD_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    let mut sum = Stats::default();
    for seed in seeds {
        let named = Named(seed);
        let stats = play(seed);
        drop(named);
        sum.add(&stats);
    }
    println!("{count} seeds: {sum:?}");
    assert!(sum.launched > count && sum.crashes > 0, "too little happened: {sum:?}");
}
