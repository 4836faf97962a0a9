//! Settings of the host's owner: partitions with their own parts and policies, opening hours,
//! drained nodes.

use super::*;
use crate::Capacities;
use slotd_model::limit::Limit;
use slotd_model::node::{Drains, NodeParts, NodeReason, Outage};
use slotd_model::partition::{Hours, Machine, OverSubscribe, PartitionState};
use slotd_model::topology::Topology;
use slotd_parse::capacity::Capacity;

/// Creates a host with four CPUs, 1000 MB, two GPUs and these partitions.
fn divided(partitions: impl IntoIterator<Item = Partition>) -> Double {
    Double::with(|config| config.set_partitions(partitions.into_iter().collect()))
}

fn named(name: &str) -> Partition {
    Partition { name: name.to_owned(), ..Partition::default() }
}

fn in_partition(name: &str) -> Ask {
    ask().with(|request| request.partition = Some(name.to_owned()))
}

fn cpus_of(d: &Double, id: JobId) -> Vec<u32> {
    d.core.job(id).unwrap().run.alloc.as_ref().unwrap().cpu_ids.clone()
}

/// Creates a host that limits an account to two running jobs with three CPUs together.
fn limited() -> Double {
    let limit =
        Limit { account: Some("lab".to_owned()), jobs: Some(2), cpus: Some(3), ..Limit::default() };
    Double::with(|config| config.limits = vec![limit])
}

fn of_lab() -> Ask {
    ask().with(|request| request.account = Some("lab".to_owned()))
}

#[test]
fn a_job_at_its_account_limit_does_not_block_others() {
    let mut d = limited();
    let own: Vec<JobId> = (0..4).map(|_| d.submit(of_lab())).collect();
    let other = d.submit(ask().cpus(2));
    let behind = d.submit(ask());
    d.plan();
    assert_eq!(d.started(), [own[0], own[1], other]);
    assert_eq!(
        own[2..].iter().map(|id| d.reason(*id)).collect::<Vec<_>>(),
        [Reason::AssocMaxJobsLimit; 2]
    );
    assert_eq!(d.reason(behind), Reason::Resources, "the limited jobs ahead of it do not count");
    // Only the end of a job of the account lets the next one start.
    d.exit(other, 0);
    assert_eq!((d.started(), d.reason(own[2])), (vec![behind], Reason::AssocMaxJobsLimit));
    d.exit(own[0], 0);
    assert_eq!(d.started(), [own[2]]);
}

#[test]
fn the_cpus_of_an_account_are_limited_too() {
    let mut d = limited();
    let wide = d.submit(of_lab().cpus(2));
    let second = d.submit(of_lab().cpus(2));
    let never = d.submit(of_lab().cpus(4));
    let narrow = d.submit(of_lab());
    d.plan();
    assert_eq!(d.started(), [wide, narrow]);
    assert_eq!(
        (d.reason(second), d.reason(never)),
        (Reason::AssocMaxJobsLimit, Reason::AssocGrpCpuLimit)
    );
    d.exit(narrow, 0);
    assert_eq!((d.started(), d.reason(second)), (vec![], Reason::AssocGrpCpuLimit));
    d.exit(wide, 0);
    assert_eq!(d.started(), [second]);
    // The owner removes the limit.
    let (host, partitions) = (d.core.config().host.clone(), d.core.config().all_partitions.clone());
    d.act(|core, cx| {
        core.set_config(
            Config {
                host,
                all_partitions: partitions,
                limits: Vec::new(),
                ..core.config().clone()
            },
            cx.now,
        )
    });
    d.plan();
    assert_eq!(d.reason(never), Reason::Resources);
}

#[test]
fn a_round_considers_a_limited_shape_once() {
    let mut d = limited();
    for _ in 0..1000 {
        d.core_submit(of_lab());
    }
    let other = d.submit(ask());
    d.plan();
    assert_eq!(d.state(other), JobState::Running);
    assert!(d.core.line().last_round().tried < 10, "{:?}", d.core.line().last_round());
}

#[test]
fn a_reservation_counts_towards_the_limit() {
    let mut d = limited();
    d.submit(of_lab());
    let other = d.submit(ask().cpus(2).limit(100));
    d.plan();
    let blocked = d.submit(of_lab().cpus(2));
    let behind = d.submit(of_lab());
    d.plan();
    assert_eq!((d.reason(blocked), d.reason(behind)), (Reason::Resources, Reason::Priority));
    d.exit(other, 0);
    assert_eq!(
        (d.state(blocked), d.reason(behind)),
        (JobState::Running, Reason::AssocMaxJobsLimit)
    );
}

#[test]
fn jobs_share_the_cpus_of_a_partition_with_max_cpus() {
    let mut d = divided([Partition {
        max_cpus: Some(2),
        over_subscribe: OverSubscribe::Yes(2),
        ..named("few")
    }]);
    let shared = || {
        in_partition("few")
            .cpus(2)
            .with(|request| request.sharing = request::Sharing::Oversubscribe)
    };
    let [first, second, third] = [(); 3].map(|()| d.submit(shared()));
    d.plan();
    assert_eq!(d.started(), [first, second]);
    assert_eq!((cpus_of(&d, first), cpus_of(&d, second)), (vec![0, 1], vec![0, 1]));
    d.exit(first, 0);
    assert_eq!((d.started(), cpus_of(&d, third)), (vec![third], vec![0, 1]));
}

#[test]
fn the_forecast_respects_the_limits() {
    let mut d = limited();
    let [_, _, third] = [60, 70, 10].map(|limit| d.submit(of_lab().limit(limit)));
    d.plan();
    assert_eq!(d.expected_start(third), Some(d.now.plus_secs(60)));
}

#[test]
fn a_partition_opens_by_a_timer_and_closes_again() {
    // It is 8:00.
    let hours = Some(Hours { from: 9 * 60, until: 10 * 60 });
    let mut d = divided([Partition { allowed_hours: hours, ..named("late") }]);
    let start = d.now;
    let first = d.submit(ask().cpus(4).limit(7200));
    let second = d.submit(ask().cpus(4).limit(60));
    d.plan();
    assert_eq!((d.state(first), d.reason(first)), (JobState::Pending, Reason::PartitionDown));
    assert_eq!(d.core.next_due(), Some(start.plus_secs(3600)));
    assert_eq!(d.expected_start(first), Some(start.plus_secs(3600)));
    d.wait(3600);
    assert_eq!((d.state(first), d.reason(second)), (JobState::Running, Reason::Resources));
    // A job that waits when the partition closes keeps waiting until the next morning.
    d.wait(7200);
    d.exit(first, 0);
    assert_eq!((d.state(second), d.reason(second)), (JobState::Pending, Reason::PartitionDown));
    // The first job is removed from memory before that.
    d.wait(300);
    assert_eq!(d.core.next_due(), Some(start.plus_secs(3600 + 86_400)));
    d.wait(86_400 - 7200 - 300);
    assert_eq!(d.state(second), JobState::Running);
}

#[test]
fn a_partition_sets_defaults_and_blocks_jobs_that_are_too_long() {
    let mut d = divided([Partition {
        max_time_secs: Some(600),
        default_time_secs: Some(120),
        def_mem_per_cpu_mb: Some(30),
        ..named("short")
    }]);
    let plain = d.submit(ask().cpus(2).with(|request| request.mem = Default::default()));
    let long = d.submit(ask().limit(601));
    d.plan();
    let job = d.core.job(plain).unwrap();
    assert_eq!((job.request.time_limit_secs, job.tres.mem_mb), (Some(120), 60));
    assert_eq!((d.state(long), d.reason(long)), (JobState::Pending, Reason::PartitionTimeLimit));
    let shorter = [("MaxTime".to_owned(), "1".to_owned())];
    let refused =
        d.act(|core, cx| core.update_partition("short", &shorter, cx.now)).unwrap_err().to_string();
    assert!(refused.starts_with("DefaultTime 120 s exceeds MaxTime 60 s"), "{refused}");
    let longer = [("MaxTime".to_owned(), "20".to_owned())];
    d.act(|core, cx| core.update_partition("short", &longer, cx.now)).unwrap();
    d.plan();
    assert_eq!(d.state(long), JobState::Running);
}

#[test]
fn a_time_min_above_the_limit_of_the_first_partition_is_refused() {
    let limits =
        Partition { max_time_secs: Some(600), default_time_secs: Some(120), ..named("short") };
    let mut d = divided([limits, named("long")]);
    let with_min = |limit: Option<u64>, min: u64| {
        ask().with(|request| {
            (request.time_limit_secs, request.time_min_secs) = (limit, Some(min));
        })
    };
    let in_both = |names: &str| {
        with_min(Some(900), 700).with(|request| request.partition = Some(names.to_owned()))
    };
    for refused in [
        with_min(None, 121),
        with_min(Some(900), 601),
        with_min(Some(300), 301),
        in_both("short"),
        in_both("short,long"),
    ] {
        assert_eq!(d.try_submit(refused), Err(Refusal::TimeMin));
    }
    let both = d.submit(in_both("long,short"));
    let kept = d.submit(with_min(Some(300), 60));
    d.plan();
    let limit = |id| d.core.job(id).unwrap().request.time_limit_secs;
    assert_eq!(d.state(both), JobState::Running);
    assert_eq!((limit(both), limit(kept)), (Some(900), Some(300)));
}

#[test]
fn the_state_of_a_partition_controls_submissions_and_starts() {
    for (state, taken, reason) in [
        (PartitionState::Up, true, Reason::None),
        (PartitionState::Down, true, Reason::PartitionDown),
        (PartitionState::Drain, false, Reason::None),
        (PartitionState::Inactive, false, Reason::PartitionInactive),
    ] {
        let mut d = divided([named("one")]);
        let waits = d.submit(ask());
        let order = [("State".to_owned(), state.name().to_owned())];
        d.act(|core, cx| core.update_partition("one", &order, cx.now)).unwrap();
        assert_eq!(d.try_submit(ask()).is_ok(), taken, "{state:?}");
        d.plan();
        assert_eq!(d.reason(waits), reason, "{state:?}");
    }
}

#[test]
fn jobs_of_a_higher_tier_go_first() {
    let mut d = divided([named("low"), Partition { priority_tier: Some(2), ..named("high") }]);
    let low = d.submit(in_partition("low").cpus(4).priority(1000));
    let high = d.submit(in_partition("high").cpus(4));
    d.plan();
    assert_eq!((d.state(low), d.state(high)), (JobState::Pending, JobState::Running));
}

#[test]
fn jobs_share_the_emptiest_cpus_of_an_oversubscribed_partition_first() {
    let crowd = Partition { over_subscribe: OverSubscribe::Force(2), ..named("crowd") };
    let mut d = divided([crowd, named("quiet")]);
    let jobs: Vec<JobId> = (0..9).map(|_| d.submit(in_partition("crowd"))).collect();
    let quiet = d.submit(in_partition("quiet"));
    d.plan();
    let running = |d: &Double| jobs.iter().filter(|id| d.state(**id) == JobState::Running).count();
    assert_eq!((running(&d), d.state(quiet)), (8, JobState::Pending), "two on each of four");
    assert_eq!(
        (cpus_of(&d, jobs[0]), cpus_of(&d, jobs[3]), cpus_of(&d, jobs[4])),
        (vec![0], vec![3], vec![0])
    );
    // A job that shares with no other needs an unused CPU.
    d.exit(jobs[1], 0);
    assert_eq!((running(&d), d.state(quiet)), (8, JobState::Pending));
    d.exit(jobs[5], 0);
    d.exit(jobs[8], 0);
    assert_eq!((d.state(quiet), cpus_of(&d, quiet)), (JobState::Running, vec![1]));
}

#[test]
fn an_exclusive_job_gets_exactly_the_part_of_its_partition() {
    let left = Partition { cpus: Some([0, 1].into()), gpus: Some([1].into()), ..named("left") };
    let mut d = divided([left, Partition { cpus: Some([2, 3].into()), ..named("right") }]);
    let other = d.submit(in_partition("right"));
    let alone = d.submit(in_partition("left").exclusive());
    let next = d.submit(in_partition("left"));
    d.plan();
    assert_eq!(
        [other, alone, next].map(|id| d.state(id)),
        [JobState::Running, JobState::Running, JobState::Pending]
    );
    let alloc = d.core.job(alone).unwrap().run.alloc.clone().unwrap();
    assert_eq!((alloc.cpu_ids, alloc.gpu_ids, alloc.tres.gpus), (vec![0, 1], vec![1], 1));
    assert_eq!(cpus_of(&d, other), [2]);
}

#[test]
fn a_blocked_job_does_not_block_another_part_of_the_host() {
    let part = |name: &str, cpus: [u32; 2]| Partition { cpus: Some(cpus.into()), ..named(name) };
    let mut d = divided([part("left", [0, 1]), part("right", [2, 3])]);
    d.submit(in_partition("left"));
    d.plan();
    let wide = d.submit(in_partition("left").cpus(2));
    let narrow = d.submit(in_partition("left"));
    let right = d.submit(in_partition("right").cpus(2));
    d.plan();
    assert_eq!(
        [wide, narrow, right].map(|id| d.state(id)),
        [JobState::Pending, JobState::Pending, JobState::Running]
    );
    assert_eq!([wide, narrow].map(|id| d.reason(id)), [Reason::Resources, Reason::Priority]);
}

#[test]
fn a_drained_node_starts_nothing() {
    let mut d = divided([named("one")]);
    let reason =
        NodeReason { text: "new fan".to_owned(), since: d.now, user: "lab".to_owned(), uid: 1001 };
    d.core.set_drains(Drains { node: Some(reason), ..Drains::default() }, d.now);
    let job = d.submit(ask());
    d.plan();
    assert_eq!((d.state(job), d.reason(job)), (JobState::Pending, Reason::ReqNodeNotAvail));
    assert_eq!(
        d.core.resources().node().trouble().map(|trouble| trouble.text.as_str()),
        Some("new fan")
    );
    // It is unknown when the node will be resumed.
    assert_eq!(d.expected_start(job), None);
    d.core.set_drains(Drains::default(), d.now);
    d.plan();
    assert_eq!((d.state(job), d.core.next_due()), (JobState::Running, None));
}

/// Returns an order that drains these parts.
fn drained(d: &Double, cpus: &[u32], gpus: &[u32]) -> Drains {
    let parts =
        NodeParts { cpus: cpus.iter().copied().collect(), gpus: gpus.iter().copied().collect() };
    let reason =
        NodeReason { text: "dust".to_owned(), since: d.now, user: "lab".to_owned(), uid: 1001 };
    Drains { node: None, parts: vec![Outage { parts, reason }] }
}

#[test]
fn drained_parts_are_not_allocated_and_jobs_on_them_continue() {
    let mut d = Double::new(4, 1000, 2);
    let goes_on = d.submit(ask().gpus(1));
    d.plan();
    let drains = drained(&d, &[0, 3], &[0]);
    d.act(|core, cx| core.set_drains(drains, cx.now));
    let (wide, both, small) =
        (d.submit(ask().cpus(3)), d.submit(ask().gpus(2)), d.submit(ask().cpus(2).gpus(1)));
    d.plan();
    assert_eq!([goes_on, small].map(|id| d.state(id)), [JobState::Running; 2]);
    let alloc = d.core.job(small).unwrap().run.alloc.clone().unwrap();
    assert_eq!((alloc.cpu_ids, alloc.gpu_ids), (vec![1, 2], vec![1]));
    assert_eq!(
        [wide, both].map(|id| d.reason(id)),
        [Reason::ReqNodeNotAvail; 2],
        "they do not block other jobs"
    );
    assert_eq!(d.core.resources().closed_cpus(), 1);
    let alone = d.submit(ask().exclusive());
    [goes_on, small].into_iter().for_each(|id| d.exit(id, 0));
    assert_eq!(
        d.core.job(alone).unwrap().run.alloc.as_ref().unwrap().cpu_ids,
        [1, 2],
        "all CPUs that are left"
    );
    assert_eq!(d.core.resources().closed_cpus(), 2);
    d.act(|core, cx| core.set_drains(Drains::default(), cx.now));
    d.exit(alone, 0);
    assert_eq!([wide, both].map(|id| d.state(id)), [JobState::Running; 2]);
}

#[test]
fn an_exclusive_job_gets_the_memory_of_all_its_cpus() {
    let mut d = Double::new(4, 1000, 0);
    let with = |mem| {
        let mut ask = ask().exclusive();
        ask.0.mem = mem;
        ask
    };
    for (mem, mem_mb) in [
        (MemRequest::PerCpu(100), 400),
        (MemRequest::PerCpu(300), 1000),
        (MemRequest::PerNode(100), 100),
    ] {
        let id = d.submit(with(mem));
        d.plan();
        let alloc = d.core.job(id).unwrap().run.alloc.clone().unwrap();
        assert_eq!((alloc.tres.cpus, alloc.tres.mem_mb), (4, mem_mb), "{mem:?}");
        d.exit(id, 0);
    }
}

#[test]
fn unknown_parts_are_refused_with_the_existing_ones() {
    let mut d = Double::new(4, 1000, 2);
    let parts = |d: &Double, cpus: &[u32], gpus: &[u32]| drained(d, cpus, gpus).all_parts();
    assert_eq!(d.core.resources().check_parts(&parts(&d, &[0, 3], &[1])), Ok(()));
    let refused =
        d.core.resources().check_parts(&parts(&d, &[3, 4, 5], &[2])).unwrap_err().to_string();
    assert_eq!(refused, "this host has no CPU 4-5, GPU 2: it has CPU 0-3, GPU 0-1");
    // A lost GPU may be drained before it returns.
    let mut host = d.core.config().host.clone();
    host.lost_gpus = vec![host.gpus.remove(0)];
    let partitions = d.core.config().all_partitions.clone();
    d.act(|core, cx| core.set_host(host, partitions, cx.now));
    assert_eq!(d.core.resources().check_parts(&parts(&d, &[], &[0])), Ok(()));
    let told: Vec<String> =
        d.core.resources().node().outages().into_iter().map(|(_, trouble)| trouble.text).collect();
    assert_eq!(told, ["GPU 0: no longer found"]);
}

/// Reports that the machine now has these of its four CPUs, and this much memory.
fn sees(d: &mut Double, cpus: &[u32], mem_mb: u64) {
    let places = uniform(1, 4, 1)
        .places()
        .iter()
        .filter(|place| cpus.contains(&place.cpu))
        .copied()
        .collect();
    d.act(|core, cx| {
        core.on_machine_seen(Machine { topology: Topology::new(places), mem_mb }, cx.now)
    });
}

#[test]
fn lost_parts_are_not_allocated_until_they_return() {
    let mut d = Double::new(4, 1000, 0);
    let goes_on = d.submit(ask().cpus(2));
    d.plan();
    sees(&mut d, &[0, 3], 700);
    assert_eq!(
        d.core.resources().node().losses(),
        ["CPU 1-2: offline", "300 MB of memory: missing"]
    );
    assert_eq!(d.core.resources().parts_out(goes_on).to_string(), "CPU 1");
    sees(&mut d, &[0, 2, 3], 700);
    assert_eq!(d.core.resources().node().losses(), ["CPU 1: offline", "300 MB of memory: missing"]);
    let (next, last) = (d.submit(ask()), d.submit(ask()));
    d.plan();
    assert_eq!((d.state(goes_on), d.state(next)), (JobState::Running, JobState::Running));
    // The job on the lost CPU now runs on one of the others.
    assert_eq!(d.reason(last), Reason::Resources);
    // The owner's file is read again: lost parts stay lost.
    let config = d.core.config().clone();
    d.act(|core, cx| core.set_config(config, cx.now));
    assert_eq!(
        (d.core.config().host.cpu_ids.clone(), d.core.config().host.mem_mb),
        (vec![0, 2, 3], 700)
    );
    sees(&mut d, &[0, 1, 2, 3], 1000);
    d.plan();
    assert_eq!(
        (d.core.resources().node().losses().is_empty(), d.state(last)),
        (true, JobState::Running)
    );
    assert_eq!(d.core.config().host.cpu_ids, [0, 1, 2, 3]);
}

#[test]
fn a_lost_cpu_is_replaced_but_its_number_is_not_reused() {
    let mut d = Double::new(4, 1000, 0);
    let given = |d: &mut Double, cpus: Capacity| {
        let capacities = Capacities { cpus: Some(cpus), mem_mb: None };
        let config = Config { capacities, ..d.core.config().clone() };
        d.act(|core, cx| core.set_config(config, cx.now));
        d.core.config().host.cpu_ids.clone()
    };
    sees(&mut d, &[0, 2, 3], 1000);
    assert_eq!(given(&mut d, Capacity::Amount(2)), [0, 2]);
    assert_eq!(given(&mut d, Capacity::Amount(4)), [0, 2, 3]);
    assert_eq!(given(&mut d, Capacity::Amount(6)), [0, 2, 3, 4, 5]);
    assert_eq!(given(&mut d, Capacity::KeptBack(1)), [0, 2]);
    assert_eq!(given(&mut d, Capacity::Percent(200)), [0, 2, 3, 4, 5, 6]);
}
