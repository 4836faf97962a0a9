//! Properties that must hold for thousands of random queues with random events.

use super::choice::Choice;
use super::line::backfill::Verdict;
use super::line::queue::{Place, QueueKey};
use super::testing::*;
use super::tests::double::Double;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestCaseError};
use slotd_model::dependency::{Dependency, DependencyKind};
use slotd_model::gpu::GpuShare;
use slotd_model::job::Hold;
use slotd_model::license::License;
use slotd_model::limit::Limit;
use slotd_model::node::{Drains, NodeParts, NodeReason, Outage};
use slotd_model::notice::{self, Audience, Events};
use slotd_model::partition::OverSubscribe;
use slotd_model::qos::{self, Qos, TresLimit};
use slotd_model::request::{KeptText, Sharing};
use slotd_model::update::Update;
use slotd_model::*;
use std::collections::BTreeMap;
use wildmatch::WildMatch;

mod preemption;
mod reservations;

/// A random event. Jobs are chosen by index among the existing ones.
#[derive(Debug, Clone)]
enum Event {
    Submit(Shape),
    End {
        which: usize,
        cause: EndCause,
        status: i32,
    },
    Cancel {
        which: usize,
        task: Option<u32>,
    },
    Hold {
        which: usize,
        task: Option<u32>,
    },
    Release {
        which: usize,
    },
    Requeue {
        which: usize,
    },
    Suspend {
        which: usize,
    },
    Resume {
        which: usize,
    },
    Renice {
        which: usize,
        priority: u32,
    },
    Throttle {
        which: usize,
        limit: Option<u32>,
    },
    Lost {
        which: usize,
    },
    Step {
        which: usize,
        cpus: u32,
    },
    StepEnd {
        which: usize,
    },
    Resize {
        which: usize,
        cpus: u32,
        mem: u64,
    },
    Wait(u64),
    Drain {
        cpus: Vec<u32>,
        gpus: Vec<u32>,
    },
    /// The owner sets the number of each license, or removes all.
    Licenses(Option<(u32, u32)>),
    /// The owner sets the limits of the QOS, or removes all QOS.
    Qos(Option<u32>),
    /// A job moves to another QOS.
    Move {
        which: usize,
        qos: Option<String>,
    },
    /// A job requests other licenses.
    Exchange {
        which: usize,
        licenses: Option<String>,
    },
    /// The owner creates a reservation, changes its length, or deletes it.
    Reserve(reservations::Period),
    Prolong {
        name: u32,
        lasts: u64,
    },
    Unreserve(u32),
    Restart,
    Plan,
}

#[derive(Clone, PartialEq)]
struct Shape {
    cpus: u32,
    named_cpus: Vec<u32>,
    mem: u64,
    gpus: u32,
    share: GpuShare,
    limit: Option<u64>,
    array: Option<(u32, Option<u32>)>,
    depends: Option<(DependencyKind, usize)>,
    or: bool,
    singleton: bool,
    kill: bool,
    exclusive: bool,
    held: bool,
    requeue: bool,
    begin: Option<u64>,
    priority: Option<u32>,
    allocation: bool,
    sharing: bool,
    /// Its account has a limit.
    limited: bool,
    licenses: Option<String>,
    qos: Option<String>,
    /// The names of reservations.
    reserved: Option<String>,
    /// By index, as far as they exist.
    partitions: Vec<usize>,
}

/// Prints only unusual settings, so that a failing case is readable.
impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}c {}M {}g {:?}", self.cpus, self.mem, self.gpus, self.share)?;
        let flags = [
            ("or", self.or),
            ("singleton", self.singleton),
            ("kill", self.kill),
            ("exclusive", self.exclusive),
            ("held", self.held),
            ("requeue", self.requeue),
            ("allocation", self.allocation),
            ("sharing", self.sharing),
            ("limited", self.limited),
        ];
        flags.iter().filter(|(_, is_on)| *is_on).try_for_each(|(name, _)| write!(f, " {name}"))?;
        write!(f, " in {:?}", self.partitions)?;
        if !self.named_cpus.is_empty() {
            write!(f, " on {:?}", self.named_cpus)?;
        }
        let (limit, array, begin) = (self.limit, self.array, self.begin);
        self.licenses.iter().try_for_each(|text| write!(f, " licenses {text}"))?;
        self.qos.iter().try_for_each(|name| write!(f, " qos {name}"))?;
        self.reserved.iter().try_for_each(|name| write!(f, " reserved {name}"))?;
        limit.iter().try_for_each(|limit| write!(f, " limit {limit}"))?;
        array.iter().try_for_each(|(last, limit)| write!(f, " array 0-{last}%{limit:?}"))?;
        begin.iter().try_for_each(|begin| write!(f, " begin {begin}"))?;
        self.depends.iter().try_for_each(|(kind, which)| write!(f, " {}:{which}", kind.name()))?;
        self.priority.iter().try_for_each(|priority| write!(f, " priority {priority}"))
    }
}

const CPUS: u32 = 4;
const GPUS: u32 = 2;

/// Requests for licenses. The last one is refused.
const LICENSES: &[&str] =
    &["ansys", "ansys:2", "ansys:3", "foo", "ansys:2,foo:2", "foo:0;ansys", "nosuch"];

/// The names of QOS. The last one does not exist.
const QOS: &[&str] = &["few", "lazy", "short", "normal", "urgent", "nosuch"];

/// Returns the QOS with limits that depend on `most`.
fn qos_of(most: u32) -> Vec<Qos> {
    let named = |name: &str| Qos { name: name.to_owned(), ..Qos::default() };
    let cpus = |cpus| TresLimit { cpus: Some(cpus), ..TresLimit::default() };
    let max_tres = TresLimit { mem_mb: Some(700), gpus: Some(1), ..cpus(most) };
    vec![
        Qos { max_jobs: Some(most), max_submit: Some(8), max_tres, ..named("few") },
        Qos { reserves_nothing: true, grp_tres: cpus(most + 1), ..named("lazy") },
        Qos { priority: 3, max_wall_secs: Some(200), denies_on_limit: true, ..named("short") },
        Qos {
            preempt: ["few", "normal"].map(str::to_owned).to_vec(),
            priority: u32::from(most.is_multiple_of(2)),
            grace_secs: u64::from(most) * 20,
            ..named("urgent")
        },
    ]
}

/// The account whose jobs the owner limits.
const LIMITED: &str = "few";

fn shape() -> impl Strategy<Value = Shape> {
    let kinds = prop_oneof![
        Just(DependencyKind::After),
        Just(DependencyKind::AfterAny),
        Just(DependencyKind::AfterOk),
        Just(DependencyKind::AfterNotOk),
        Just(DependencyKind::AfterCorr),
        Just(DependencyKind::AfterBurstBuffer),
        Just(DependencyKind::Expand),
    ];
    let gpus = prop_oneof![
        6 => Just((0u32, GpuShare::Whole)),
        2 => (1..=GPUS).prop_map(|gpus| (gpus, GpuShare::Whole)),
        1 => (1..=GPUS, 1u64..=100).prop_map(|(gpus, mb)| (gpus, GpuShare::MemMb(mb))),
        1 => (1u32..=4).prop_map(|shards| (1, GpuShare::Shards(shards))),
    ];
    let size = (1..=CPUS, 1u64..600, gpus, named_cpus());
    let limit = prop_oneof![1 => Just(None), 2 => (1u64..500).prop_map(Some)];
    let array = prop::option::weighted(0.3, (1u32..6, prop::option::of(1u32..4)));
    let depends = prop::option::weighted(0.3, (kinds, any::<usize>()));
    let rare = || prop::bool::weighted(0.1);
    let flags = (
        rare(),
        rare(),
        prop::bool::weighted(0.3),
        rare(),
        rare(),
        prop::bool::weighted(0.2),
        rare(),
    );
    let reserved = prop::option::weighted(0.2, prop::sample::select(&["r0", "r1", "r0,r1"][..]));
    let reserved = reserved.prop_map(|names| names.map(str::to_owned));
    let site =
        (any::<bool>(), some_partitions(), prop::bool::weighted(0.3), licenses(), qos(), reserved);
    let when = (prop::option::weighted(0.1, 1u64..300), prop::option::weighted(0.2, 1u32..5));
    let parts = (size, limit, array, depends, flags, when, site);
    parts.prop_map(|(size, limit, array, depends, flags, when, site)| Shape {
        cpus: size.0,
        named_cpus: size.3,
        mem: size.1,
        gpus: size.2.0,
        share: size.2.1,
        limit,
        array,
        depends,
        or: flags.0,
        singleton: flags.1,
        kill: flags.2,
        exclusive: flags.3,
        held: flags.4,
        requeue: flags.5,
        allocation: flags.6 && array.is_none(),
        begin: when.0,
        priority: when.1,
        sharing: site.0,
        partitions: site.1,
        limited: site.2,
        licenses: site.3,
        qos: site.4,
        reserved: site.5,
    })
}

fn event() -> impl Strategy<Value = Event> {
    let which = any::<usize>();
    let task = || prop::option::of(0u32..6);
    let cause = prop_oneof![
        6 => Just(EndCause::Exited),
        1 => Just(EndCause::TimeLimit),
        1 => Just(EndCause::OutOfMemory),
        1 => Just(EndCause::Stopped),
        1 => Just(EndCause::LaunchFailed),
    ];
    prop_oneof![
        12 => shape().prop_map(Event::Submit),
        12 => (which, cause, prop_oneof![3 => Just(0), 1 => Just(1)])
            .prop_map(|(which, cause, status)| Event::End { which, cause, status }),
        2 => (which, task()).prop_map(|(which, task)| Event::Cancel { which, task }),
        1 => (which, task()).prop_map(|(which, task)| Event::Hold { which, task }),
        2 => which.prop_map(|which| Event::Release { which }),
        1 => which.prop_map(|which| Event::Requeue { which }),
        1 => which.prop_map(|which| Event::Suspend { which }),
        1 => which.prop_map(|which| Event::Resume { which }),
        1 => (which, 0u32..5).prop_map(|(which, priority)| Event::Renice { which, priority }),
        1 => (which, prop::option::of(1u32..4)).prop_map(|(which, limit)| Event::Throttle { which, limit }),
        1 => which.prop_map(|which| Event::Lost { which }),
        2 => (which, 1u32..3).prop_map(|(which, cpus)| Event::Step { which, cpus }),
        1 => which.prop_map(|which| Event::StepEnd { which }),
        2 => (which, 1..=CPUS, 1u64..600).prop_map(|(which, cpus, mem)| Event::Resize { which, cpus, mem }),
        4 => (1u64..200).prop_map(Event::Wait),
        1 => (some_of(CPUS), some_of(GPUS)).prop_map(|(cpus, gpus)| Event::Drain { cpus, gpus }),
        1 => prop::option::weighted(0.9, (0u32..4, 0u32..3)).prop_map(Event::Licenses),
        2 => (which, licenses()).prop_map(|(which, licenses)| Event::Exchange { which, licenses }),
        1 => prop::option::weighted(0.9, 0u32..4).prop_map(Event::Qos),
        2 => (which, qos()).prop_map(|(which, qos)| Event::Move { which, qos }),
        2 => reservations::period().prop_map(Event::Reserve),
        1 => (0u32..3, 1u64..300).prop_map(|(name, lasts)| Event::Prolong { name, lasts }),
        1 => (0u32..3).prop_map(Event::Unreserve),
        1 => Just(Event::Restart),
        6 => Just(Event::Plan),
    ]
}

/// Generates the name of a QOS; mostly none.
fn qos() -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(0.4, prop::sample::select(QOS).prop_map(str::to_owned))
}

/// Generates a request for licenses; mostly none.
fn licenses() -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(0.3, prop::sample::select(LICENSES).prop_map(str::to_owned))
}

/// Generates some of `count` numbers; mostly none.
fn some_of(count: u32) -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(0..count, 1..3)]
}

/// Generates the CPUs that a job must get; mostly none.
fn named_cpus() -> impl Strategy<Value = Vec<u32>> {
    let some =
        prop::collection::btree_set(0..CPUS, 1..3).prop_map(|cpus| cpus.into_iter().collect());
    prop_oneof![4 => Just(Vec::new()), 1 => some]
}

/// Returns one of the records that satisfy `is_wanted`.
fn choose(d: &Double, which: usize, is_wanted: impl Fn(&Job) -> bool) -> Option<Job> {
    let jobs: Vec<&Job> = d.core.jobs().filter(|job| is_wanted(job)).collect();
    jobs.get(which.checked_rem(jobs.len())?).map(|job| Job::clone(job))
}

/// Returns the reference by which a user would name the job or one of its tasks.
fn named(job: &Job, task: Option<u32>) -> JobRef {
    match (job.array_job_id(), task) {
        (Some(array), Some(task)) => tasks_of(array, &[task]),
        (Some(array), None) => JobRef::job(array),
        (None, _) => JobRef::job(job.id),
    }
}

fn request(d: &Double, shape: Shape) -> Ask {
    let mut ask = ask()
        .cpus(shape.cpus)
        .on_cpus(&shape.named_cpus)
        .mem(shape.mem)
        .gpus(shape.gpus)
        .share(shape.share);
    let mut dependency = Dependency { terms: Vec::new(), any: shape.or };
    if let Some((kind, which)) = shape.depends
        && let Some(target) = choose(d, which, |_| true)
    {
        dependency.terms.push(on(kind, target.array_job_id().unwrap_or(target.id)));
    }
    ask = ask.dependency(dependency);
    if shape.singleton {
        ask = ask.singleton().name("one");
    }
    if let Some((last, limit)) = shape.array {
        ask = ask.array(0, last, limit);
    }
    if shape.allocation {
        ask = ask.allocation();
    }
    let begin = shape.begin.map(|secs| d.now.plus_secs(secs));
    ask.with(|r| {
        r.time_limit_secs = shape.limit;
        r.hold = shape.held;
        r.requeue = shape.requeue;
        r.mail_type = shape.requeue.then(|| "ALL,TIME_LIMIT_50".to_owned());
        r.kill_on_invalid_dep = Some(shape.kill);
        r.begin = begin;
        r.priority = shape.priority;
        if shape.exclusive {
            r.sharing = Sharing::Exclusive;
        } else if shape.sharing {
            r.sharing = Sharing::Oversubscribe;
        }
        r.licenses = shape.licenses;
        r.qos = shape.qos;
        r.reservation = shape.reserved;
        r.account = shape.limited.then(|| LIMITED.to_owned());
        r.partition = names(d, &shape.partitions);
    })
}

fn happen(d: &mut Double, event: Event) {
    match event {
        Event::Submit(shape) => {
            let ask = request(d, shape);
            // A request that can never run in its partition is refused.
            let _ = d.try_submit(ask);
        }
        Event::End { which, cause, status } => {
            if let Some(job) = choose(d, which, |job| job.run.state.is_active()) {
                let cause =
                    if job.run.state == JobState::Completing { EndCause::Stopped } else { cause };
                d.end(job.id, cause, ExitCode::status(status));
            }
        }
        Event::Lost { which } => {
            if let Some(job) =
                choose(d, which, |job| job.request.kind == request::JobKind::Allocation)
            {
                d.act(|core, cx| core.client_lost(job.id, cx));
            }
        }
        Event::Step { which, cpus } => {
            if let Some(job) = choose(d, which, |job| job.run.state == JobState::Running) {
                let request = StepRequest {
                    ntasks: Some(cpus),
                    cpus_per_task: Some(1),
                    ..StepRequest::default()
                };
                let _ =
                    d.act(|core, cx| core.create_step(job.id, request, StepAsker::default(), cx));
            }
        }
        Event::StepEnd { which } => {
            let is_live = |step: &&Step| !step.state.is_terminal();
            if let Some(job) = choose(d, which, |job| job.steps.iter().any(|step| is_live(&step)))
                && let Some(step) = job.steps.iter().find(is_live)
            {
                let (key, ended) =
                    (StepKey { job: job.id, step: step.id }, ExitRecord::gone(ExitCode::OK, d.now));
                d.act(|core, cx| core.on_step_ended(key, &ended, EndCause::Exited, cx));
            }
        }
        Event::Wait(secs) => {
            d.now = d.now.plus_secs(secs);
            d.act(|core, cx| core.on_due(cx));
        }
        Event::Drain { cpus, gpus } => {
            let reason = NodeReason {
                text: "dust".to_owned(),
                since: d.now,
                user: "lab".to_owned(),
                uid: 1001,
            };
            let parts =
                NodeParts { cpus: cpus.into_iter().collect(), gpus: gpus.into_iter().collect() };
            let drains = Drains { node: None, parts: vec![Outage { parts, reason }] };
            d.act(|core, cx| core.set_drains(drains, cx.now));
        }
        Event::Licenses(counts) => match counts {
            Some((ansys, foo)) => d.set_licenses(&[("ansys", ansys), ("foo", foo)]),
            None => d.set_licenses(&[]),
        },
        Event::Qos(most) => d.set_qos(&most.map(qos_of).unwrap_or_default()),
        Event::Reserve(period) => reservations::create(d, &period),
        Event::Prolong { name, lasts } => reservations::prolong(d, name, lasts),
        Event::Unreserve(name) => reservations::delete(d, name),
        Event::Restart => restart(d),
        Event::Plan => d.plan(),
        Event::Cancel { .. }
        | Event::Hold { .. }
        | Event::Release { .. }
        | Event::Requeue { .. }
        | Event::Suspend { .. }
        | Event::Resume { .. }
        | Event::Renice { .. }
        | Event::Resize { .. }
        | Event::Exchange { .. }
        | Event::Move { .. }
        | Event::Throttle { .. } => command(d, event),
    }
}

/// Runs a user command on an existing job.
fn command(d: &mut Double, event: Event) {
    let is_pending = |job: &Job| job.run.state == JobState::Pending;
    match event {
        Event::Cancel { which, task } => {
            if let Some(job) = choose(d, which, |job| !job.run.state.is_terminal()) {
                let _ = d.cancel(&named(&job, task));
            }
        }
        Event::Hold { which, task } => {
            if let Some(job) = choose(d, which, is_pending) {
                let _ = d.act(|core, cx| core.hold(&named(&job, task), Hold::User, cx));
            }
        }
        Event::Release { which } => {
            if let Some(job) = choose(d, which, |job| job.hold != Hold::No) {
                let _ = d.act(|core, cx| core.release(&named(&job, None), cx));
            }
        }
        Event::Requeue { which } => {
            let may_run_again =
                |job: &Job| job.run.state == JobState::Running || job.run.state.is_terminal();
            if let Some(job) = choose(d, which, may_run_again) {
                let sel = JobRef::job(job.id);
                let _ = d.act(|core, cx| core.requeue(&sel, None, &[], cx));
            }
        }
        Event::Suspend { which } => {
            let is_meant =
                |job: &Job| job.run.state == JobState::Running || job.run.waits_for_its_cpus();
            if let Some(job) = choose(d, which, is_meant) {
                let _ = d.act(|core, cx| core.suspend(&named(&job, None), cx));
            }
        }
        Event::Resume { which } => {
            if let Some(job) = choose(d, which, |job| job.run.state == JobState::Suspended) {
                let _ = d.act(|core, cx| core.resume(&named(&job, None), cx));
            }
        }
        Event::Renice { which, priority } => {
            if let Some(job) = choose(d, which, is_pending) {
                let key = Update::Priority(priority);
                let done = d.act(|core, cx| core.update(&named(&job, None), &[key], &[], cx));
                assert!(matches!(done, Ok(_) | Err(Refusal::Held)), "the job is pending: {done:?}");
            }
        }
        Event::Resize { which, cpus, mem } => {
            if let Some(job) = choose(d, which, |job| !job.run.state.is_terminal()) {
                let keys = [Update::NumCpus(cpus), Update::MinMemoryNode(mem)];
                // A size that is not available, now or ever, is refused.
                let _ = d.act(|core, cx| core.update(&named(&job, None), &keys, &[], cx));
            }
        }
        Event::Exchange { which, licenses } => {
            if let Some(job) = choose(d, which, |job| !job.run.state.is_terminal()) {
                let key = Update::Text(KeptText::Licenses, licenses.unwrap_or_default());
                // Licenses that do not exist, or are not free, are refused.
                let _ = d.act(|core, cx| core.update(&named(&job, None), &[key], &[], cx));
            }
        }
        Event::Move { which, qos } => {
            if let Some(job) = choose(d, which, |job| !job.run.state.is_terminal()) {
                let key = Update::Text(KeptText::Qos, qos.unwrap_or_default());
                // A QOS that does not exist or accept the job is refused, and so is any other one
                // for a running job.
                let _ = d.act(|core, cx| core.update(&named(&job, None), &[key], &[], cx));
            }
        }
        Event::Throttle { which, limit } => {
            if let Some(job) =
                choose(d, which, |job| is_pending(job) && job.array_job_id().is_some())
            {
                let key = Update::ArrayTaskThrottle(limit);
                d.act(|core, cx| core.update(&named(&job, None), &[key], &[], cx))
                    .expect("the job is an array");
            }
        }
        _ => unreachable!("{event:?} is not a command"),
    }
}

fn recovered(d: &Double) -> Core {
    // Only the records that the core would still have in memory.
    let jobs: Vec<Job> =
        d.store.jobs.values().filter(|job| d.core.job(job.id).is_some()).cloned().collect();
    let config = Config { reservations: Vec::new(), ..d.core.config().clone() };
    let mut core = Core::recover(config, jobs, d.store.ended(), d.core.next_id(), d.now);
    core.recall_memos(d.store.memos.clone().into_iter().collect(), d.now);
    core
}

fn restart(d: &mut Double) {
    d.core = recovered(d);
    let sent = d.effects.len();
    d.act(|core, cx| core.notifications.emit(&core.records, cx));
    assert_eq!(d.effects.len(), sent, "a restart sends no notification");
    d.core.check_invariants().expect("the invariants hold after a restart");
}

/// Checks the reason of every pending job against the state.
fn check_reasons(d: &Double) {
    let config = d.core.config();
    let host = &config.host;
    let choices = |job| Choice::all(job, config);
    for job in d.core.jobs().filter(|job| job.run.state == JobState::Pending) {
        let reason = d.reason(job.id);
        let text = d.core.view(job.id, d.now).map(|view| view.dependency).unwrap_or_default();
        let group = job.array_job_id().and_then(|array| d.core.records.array(array));
        let is_true = match reason {
            Reason::JobHeldUser => job.hold == Hold::User,
            Reason::Dependency => text.contains("(unfulfilled)"),
            Reason::DependencyNeverSatisfied => text.contains("(failed)"),
            Reason::BeginTime => job.begin().is_some_and(|begin| begin > d.now),
            Reason::JobArrayTaskLimit => {
                group.is_some_and(|g| g.limit.is_some_and(|limit| g.active >= limit))
            }
            Reason::Resources | Reason::Exclusive => choices(job).any(|choice| {
                !d.core.resources.ledger().capacity().fits(&choice.want(), host)
                    || d.core.reserved_parts(&choice, d.now).is_some()
            }),
            Reason::ReservedForMaintenance => {
                choices(job).any(|choice| d.core.reserved_node(&choice, d.now).is_some())
            }
            Reason::Reservation => choices(job).any(|choice| {
                choice.reservation.is_some_and(|own| own.is_none_or(|own| !own.is_open(d.now)))
            }),
            Reason::ReservationDeleted => job.hold == Hold::Reservation,
            Reason::SpecialExit => job.hold == Hold::SpecialExit,
            Reason::ReqNodeNotAvail => {
                !host.drained.is_empty()
                    && !choices(job)
                        .any(|choice| d.core.resources.ledger().whole().fits(&choice.want(), host))
            }
            Reason::QosMaxWallDurationPerJobLimit => choices(job).any(|choice| {
                let most = choice.qos.and_then(|qos| qos.max_wall_secs);
                most.is_some_and(|most| choice.limit_secs.is_none_or(|limit| limit > most))
            }),
            Reason::InvalidQos => {
                config.qos.iter().all(|qos| Some(&qos.name) != job.request.qos.as_ref())
            }
            reason if reason.is_limit() => {
                let rooms =
                    [d.core.resources.ledger().capacity(), d.core.resources.ledger().whole()];
                choices(job).map(|choice| choice.want()).any(|want| {
                    rooms.iter().any(|capacity| {
                        capacity
                            .limit_reached(&want.place, &want.tres, host)
                            .is_some_and(|it| it.reason() == reason)
                    })
                })
            }
            // Another job with the same needs is ahead of it, or it would delay one.
            Reason::Priority => {
                d.core.records.get(job.id).expect("a record").places.iter().any(|own| {
                    let want = own.shape.want();
                    let capacity = d.core.resources.ledger().capacity();
                    let line = |place: &Place| capacity.line(place.shape.want().place.partition);
                    let is_before =
                        |other: &Place| line(other) == line(own) || capacity.fits(&want, host);
                    let earlier = d
                        .core
                        .line
                        .queue()
                        .iter()
                        .take_while(|key| *key < own.key)
                        .filter(|key| key.id != job.id);
                    earlier.filter_map(|key| place(d, key)).any(is_before)
                })
            }
            _ => false,
        };
        assert!(
            is_true,
            "job {} waits because of {reason}, which is wrong: {job:?}\n{text}",
            job.id
        );
    }
}

/// Returns the place of this key.
fn place(d: &Double, key: QueueKey) -> Option<&Place> {
    d.core.records.get(key.id).expect("a record").places.iter().find(|place| place.key == key)
}

/// Returns the first blocked jobs of the lines, with their latest starts. A job counts only if no
/// job of another line that waits for one of the same CPUs is ahead of it.
fn reservations(d: &Double) -> Vec<(JobId, Option<Timestamp>)> {
    let (config, capacity) = (d.core.config(), d.core.resources.ledger().capacity());
    let (host, partitions) = (&config.host, &config.partitions);
    let mut before: Vec<&Place> = Vec::new();
    let mut found = Vec::new();
    for key in d.core.line.queue().iter() {
        let places = &d.core.records.get(key.id).expect("a record").places;
        let partition = |place: &Place| {
            let at = place.shape.want().place.partition;
            (capacity.line(at), &partitions[at.expect("an existing partition")])
        };
        let meets = |own: &Place, other: &Place| {
            let ((line, own), (other_line, other)) = (partition(own), partition(other));
            let shares = match (&own.cpus, &other.cpus) {
                (Some(own), Some(other)) => !own.is_disjoint(other),
                (None, _) | (_, None) => true,
            };
            line == other_line || shares
        };
        let is_free = !before.iter().any(|other| places.iter().any(|own| meets(own, other)));
        let is_first = places.iter().all(|place| place.key >= key);
        before.extend(places.iter().filter(|_| is_first));
        let mut round = d.core.round(d.now);
        let running = || d.core.line.running(&d.core.records, d.core.resources.ledger(), d.now);
        if is_free
            && is_first
            && round.consider(key, places, capacity, host, running) == Verdict::Wait
        {
            found.extend(round.reservation().map(|reservation| (key.id, reservation.at)));
        }
    }
    found
}

/// Plans without any index: considers each record of the queue, in order.
fn one_by_one(core: &mut Core, cx: &mut Cx) {
    let mut round = core.round(cx.now);
    let mut next = core.line.queue().first();
    while let Some(key) = next {
        core.consider(key, &mut round, cx);
        next = core.line.queue().after(key);
    }
    core.resume_preempted(&round, cx);
}

/// Creates a host with two partitions that are views of it, or one that its owner has divided.
fn host_of(is_divided: bool) -> Double {
    Double::with(|config| {
        config.host = host(CPUS, 1000, GPUS);
        config.min_job_age_secs = 1_000_000;
        let events = notice::Event::ALL.into_iter().fold(Events::NONE, Events::with);
        config.audience = Audience { command: events, url: Events::NONE, mail: true };
        let license = |name: &str, count| License { name: name.to_owned(), count };
        config.licenses = vec![license("ansys", 3), license("foo", 2)];
        config.qos = qos::with_default(qos_of(2));
        let one = Some(WildMatch::new("on?"));
        config.limits = vec![
            Limit {
                account: Some(LIMITED.to_owned()),
                jobs: Some(2),
                cpus: Some(3),
                ..Limit::default()
            },
            Limit { name: one, cpus: Some(3), ..Limit::default() },
        ];
        if is_divided {
            let cpus = |ids: &[u32]| Some(ids.iter().copied().collect());
            let named = |name: &str| Partition { name: name.to_owned(), ..Partition::default() };
            config.partitions = vec![
                Partition { is_default: true, ..named("all") },
                Partition { cpus: cpus(&[0, 1]), max_mem_mb: Some(500), ..named("left") },
                Partition {
                    cpus: cpus(&[1, 2, 3]),
                    over_subscribe: OverSubscribe::Force(2),
                    ..named("crowded")
                },
                Partition {
                    max_cpus: Some(2),
                    gpus: cpus(&[1]),
                    over_subscribe: OverSubscribe::Yes(2),
                    ..named("few")
                },
                Partition {
                    cpus: cpus(&[3]),
                    over_subscribe: OverSubscribe::Yes(3),
                    is_gpu: true,
                    ..named("willing")
                },
            ];
            config.all_partitions.clone_from(&config.partitions);
        }
    })
}

/// Returns the settings of proptest. Set `PROPTEST_CASES` to test more queues than usual. Failed
/// cases are kept beside this file.
fn settings() -> ProptestConfig {
    ProptestConfig {
        max_shrink_iters: 4000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(settings())]

    /// After each event the double checks that no resource exceeds its capacity, that no CPU or GPU
    /// is allocated twice, that the ledger agrees with the jobs, and that a job is RUNNING in the
    /// store before it is launched.
    #[test]
    fn random_queues_stay_within_the_host_and_have_true_reasons(
        is_divided in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut d = host_of(is_divided);
        for event in events {
            happen(&mut d, event);
            d.plan();
            check_reasons(&d);
        }
    }

    #[test]
    fn the_same_events_give_the_same_decisions(events in prop::collection::vec(event(), 1..40)) {
        let mut d = Double::new(CPUS, 1000, GPUS);
        let mut e = Double::new(CPUS, 1000, GPUS);
        for event in events {
            happen(&mut d, event.clone());
            happen(&mut e, event);
        }
        prop_assert_eq!(d.effects, e.effects);
        prop_assert_eq!(d.store.jobs, e.store.jobs);
    }

    /// Skipping entire shapes starts the same jobs as considering every record.
    #[test]
    fn a_round_starts_the_same_jobs_as_a_full_scan(
        is_divided in any::<bool>(),
        queue in prop::collection::vec(shape(), 1..60),
        events in prop::collection::vec(event(), 1..15),
    ) {
        let mut d = host_of(is_divided);
        queue.into_iter().map(Event::Submit).for_each(|event| happen(&mut d, event));
        for event in std::iter::once(Event::Plan).chain(events) {
            // The plan is compared before it is carried out.
            if !matches!(event, Event::Plan) {
                happen(&mut d, event);
            }
            let (mut core, mut slow, mut fast) = (d.core.clone(), Cx::at(d.now), Cx::at(d.now));
            core.plan_by(one_by_one, &mut slow);
            d.core.plan(&mut fast);
            prop_assert_eq!(&fast.out.effects, &slow.out.effects);
            prop_assert!(d.core.jobs().eq(core.jobs()));
            d.act(|_, cx| cx.out = fast.out);
        }
    }

    /// A second round without a new event finds nothing to do: no trigger of a round was missing.
    #[test]
    fn a_round_leaves_nothing_undone(is_divided in any::<bool>(), events in prop::collection::vec(event(), 1..60)) {
        let mut d = host_of(is_divided);
        for event in events {
            happen(&mut d, event);
            d.plan();
            d.effects.clear();
            d.plan();
            prop_assert!(d.effects.is_empty(), "a second round found {:?}", d.effects);
        }
    }

    /// The records alone restore the same state: running jobs, waiting jobs, and their order. (The
    /// turn of an array is known only while its last started task is in memory, so none is
    /// forgotten here.)
    #[test]
    fn a_restart_changes_nothing(is_divided in any::<bool>(), events in prop::collection::vec(event(), 1..50)) {
        let mut d = host_of(is_divided);
        for event in events {
            happen(&mut d, event);
            d.plan();
            let core = recovered(&d);
            prop_assert_eq!(core.resources.ledger(), d.core.resources.ledger());
            prop_assert_eq!(core.next_id(), d.core.next_id());
            let order = |core: &Core| core.line.queue().iter().map(|key| key.id).collect::<Vec<_>>();
            prop_assert_eq!(order(&core), order(&d.core));
            for job in d.core.jobs() {
                let (old, new) = (d.core.view(job.id, d.now), core.view(job.id, d.now));
                prop_assert_eq!(old.as_ref().map(|v| (v.run.state, v.run.reason)), new.as_ref().map(|v| (v.run.state, v.run.reason)));
                prop_assert_eq!(old.map(|v| v.dependency), new.map(|v| v.dependency));
            }
        }
    }

    /// EASY: while every job keeps to its limit and no job goes ahead of it, the first blocked job
    /// of a line starts no later than reserved, whatever is submitted behind it.
    #[test]
    fn the_first_blocked_job_starts_no_later_than_reserved(
        is_divided in any::<bool>(),
        before in prop::collection::vec((1..=CPUS, named_cpus(), 1u64..200, some_partitions()), 1..8),
        behind in prop::collection::vec((1..=CPUS, named_cpus(), prop::option::of(1u64..300), 1u64..40, some_partitions()), 1..25),
    ) {
        let mut d = host_of(is_divided);
        for (cpus, named, limit, partitions) in before {
            let _ = d.try_submit(ask_in(&d, &partitions).cpus(cpus).on_cpus(&named).limit(limit));
        }
        d.plan();
        let mut promised: BTreeMap<JobId, Timestamp> = BTreeMap::new();
        let is_kept = |d: &Double, promised: &BTreeMap<JobId, Timestamp>| {
            promised.iter().find(|(id, at)| match d.store.jobs[id].run.start {
                Some(start) => start > **at,
                None => d.now > **at,
            }).map_or(Ok(()), |broken| Err(TestCaseError::fail(format!("{broken:?} was not kept"))))
        };
        for (cpus, named, limit, gap, partitions) in behind {
            let _ = d.try_submit(ask_in(&d, &partitions).cpus(cpus).on_cpus(&named).with(|r| {
                r.time_limit_secs = limit;
                // The end of a job without a limit is unknown.
                r.name = limit.map_or_else(|| "endless".to_owned(), |_| r.name.clone());
            }));
            d.plan();
            for (id, at) in reservations(&d) {
                // Jobs without a limit may have passed while another job was first: then nothing
                // could be promised yet.
                if at.is_some() || promised.contains_key(&id) {
                    let at = at.expect("a promise is never withdrawn");
                    let old = promised.insert(id, at);
                    prop_assert!(old.is_none_or(|old| at <= old), "{at:?} is later than {old:?}");
                }
            }
            // Time passes, and every job ends exactly at its limit.
            let until = d.now.plus_secs(gap);
            while let Some(end) = next_end(&d).filter(|end| *end <= until) {
                end_all_at(&mut d, end);
                is_kept(&d, &promised)?;
            }
            d.now = until;
            d.plan();
            is_kept(&d, &promised)?;
        }
    }

    /// A job that lacks a license, or is at the limit of its QOS, keeps no other job from starting:
    /// these start as if it did not exist.
    #[test]
    fn a_job_at_a_limit_delays_no_other_job(
        is_divided in any::<bool>(),
        by_qos in any::<bool>(),
        shapes in prop::collection::vec((shape(), any::<bool>()), 1..30),
    ) {
        let queues = [true, false].map(|with_lacking| {
            let mut d = host_of(is_divided);
            d.set_licenses(&[("ansys", 3), ("foo", 1)]);
            d.set_qos(&qos_of(1));
            let limited = |ask: Ask| if by_qos { ask.qos("few") } else { ask.licenses("foo") };
            // This job holds the license, or is the only one that may run, and never ends.
            d.submit(limited(ask().mem(1)));
            d.plan();
            let mut starts = BTreeMap::new();
            for (at, (shape, lacks)) in shapes.iter().enumerate() {
                // An earlier job determines the rest, so that the queues differ in nothing else.
                let shape =
                    Shape { depends: None, singleton: false, licenses: None, qos: None, ..shape.clone() };
                let ask = request(&d, shape);
                match (lacks, with_lacking) {
                    (true, true) => drop(d.try_submit(limited(ask))),
                    (true, false) => {}
                    (false, _) => drop(d.try_submit(ask.name(&format!("own-{at}")))),
                }
                d.plan();
                let running = d.core.jobs().filter(|job| job.run.state == JobState::Running);
                let own = running.filter(|job| job.request.name.starts_with("own-"));
                starts.insert(at, own.map(|job| job.request.name.clone()).collect::<Vec<_>>());
            }
            starts
        });
        prop_assert_eq!(&queues[0], &queues[1]);
    }

    /// The forecast matches the plan when every job uses its full limit.
    #[test]
    fn jobs_start_when_the_forecast_says(
        is_divided in any::<bool>(),
        jobs in prop::collection::vec((1..=CPUS, named_cpus(), 1u64..100, (prop::bool::weighted(0.1), any::<bool>(), licenses(), qos()), some_partitions()), 1..25),
    ) {
        let mut d = host_of(is_divided);
        for (cpus, named, limit, (exclusive, limited, licenses, qos), partitions) in jobs {
            let ask = ask_in(&d, &partitions).cpus(cpus).on_cpus(&named).limit(limit);
            let ask = ask.with(|request| {
                request.account = limited.then(|| LIMITED.to_owned());
                request.licenses = licenses;
                // A forecast does not include preemption.
                request.qos = qos.filter(|name| name != "urgent");
            });
            let _ = d.try_submit(if exclusive { ask.exclusive() } else { ask });
        }
        d.plan();
        let starts = d.core.forecast(d.now).starts();
        while let Some(end) = next_end(&d) {
            end_all_at(&mut d, end);
        }
        for (id, at) in starts {
            prop_assert_eq!(d.store.jobs[&id].run.start, Some(at.at));
        }
    }
}

/// Returns the names of the partitions with these indexes, as far as they exist.
fn names(d: &Double, partitions: &[usize]) -> Option<String> {
    let there = partitions.iter().filter_map(|at| d.core.config().partitions.get(*at));
    let names: Vec<&str> = there.map(|partition| partition.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

fn some_partitions() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![3 => (0usize..5).prop_map(|one| vec![one]), 1 => prop::collection::vec(0usize..5, 2..4)]
}

/// Returns a request for partitions of a divided host, without GPUs.
fn ask_in(d: &Double, partitions: &[usize]) -> Ask {
    let names = names(d, partitions);
    ask().gpus(0).with(|r| r.partition = names)
}

fn end_by_limit(job: &Job) -> Option<Timestamp> {
    let limit = job.request.time_limit_secs.filter(|_| job.run.state == JobState::Running)?;
    Some(job.run.start?.plus_secs(limit))
}

/// Returns when the next running job reaches its limit.
fn next_end(d: &Double) -> Option<Timestamp> {
    d.core.jobs().filter_map(end_by_limit).min()
}

/// Ends all jobs that reach their limits at `end`, and plans.
fn end_all_at(d: &mut Double, end: Timestamp) {
    d.now = end;
    let ended: Vec<JobId> =
        d.core.jobs().filter(|job| end_by_limit(job) == Some(end)).map(|job| job.id).collect();
    for id in ended {
        d.end(id, EndCause::Exited, ExitCode::OK);
    }
    d.plan();
}
