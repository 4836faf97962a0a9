//! Random reservations, and what they promise.

use super::{CPUS, GPUS, end_all_at, happen, host_of, next_end, shape};
use super::{Event, Shape};
use crate::tests::double::Double;
use proptest::prelude::*;
use slotd_model::dependency::DependencyKind;
use slotd_model::qos::TresLimit;
use slotd_model::reservation::{Flag, How, Length, ReservationAsk, ReservationOrder, Share};
use slotd_model::{JobId, Timestamp};
use std::collections::BTreeMap;

/// A reservation that the owner asks for.
#[derive(Debug, Clone)]
pub(super) struct Period {
    name: u32,
    share: Share,
    /// How many licenses `foo` it keeps.
    licenses: Option<u32>,
    begins: u64,
    lasts: u64,
    flag: Option<Flag>,
}

pub(super) fn period() -> impl Strategy<Value = Period> {
    let flags = [
        Flag::Daily,
        Flag::Hourly,
        Flag::Maint,
        Flag::Overlap,
        Flag::IgnoreJobs,
        Flag::Flex,
        Flag::PurgeComp,
    ];
    let flag = prop::option::weighted(0.5, prop::sample::select(flags.to_vec()));
    let licenses = prop::option::weighted(0.2, 1u32..3);
    (0u32..3, share(), licenses, 0u64..300, 1u64..300, flag).prop_map(
        |(name, share, licenses, begins, lasts, flag)| Period {
            name,
            share,
            licenses,
            begins,
            lasts,
            flag,
        },
    )
}

fn share() -> impl Strategy<Value = Share> {
    let part =
        (1..=CPUS, prop::option::weighted(0.3, 1u64..1000), prop::option::weighted(0.3, 1..=GPUS));
    prop_oneof![
        3 => Just(Share::Node),
        6 => part.prop_map(|(cpus, mem_mb, gpus)| {
            Share::Parts(TresLimit { cpus: Some(cpus), mem_mb, gpus })
        }),
        1 => Just(Share::Licenses),
    ]
}

pub(super) fn create(d: &mut Double, period: &Period) {
    let ask = ReservationAsk {
        name: Some(format!("r{}", period.name)),
        start: Some(d.now.plus_secs(period.begins)),
        length: Some(Length::Secs(period.lasts)),
        users: Some((How::Set, vec!["lab".to_owned()])),
        share: Some(period.share),
        licenses: period.licenses.map(|count| format!("foo:{count}")),
        flags: period.flag.map(|flag| (How::Set, vec![flag])),
        purge_after: Some(60),
        ..ReservationAsk::default()
    };
    order(d, &ReservationOrder::Create(Box::new(ask)));
}

pub(super) fn prolong(d: &mut Double, name: u32, lasts: u64) {
    let name = Some(format!("r{name}"));
    let length = Some(Length::Secs(lasts));
    let ask = ReservationAsk { name, length, ..ReservationAsk::default() };
    order(d, &ReservationOrder::Update(Box::new(ask)));
}

pub(super) fn delete(d: &mut Double, name: u32) {
    order(d, &ReservationOrder::Delete(format!("r{name}")));
}

/// Carries out an order. One that does not fit, or whose name is taken or unknown, is refused.
fn order(d: &mut Double, order: &ReservationOrder) {
    let _ = d.act(|core, cx| core.order_reservation(order, cx));
}

/// Lets every job run until its limit. Returns when each started.
fn run_out(d: &mut Double) -> BTreeMap<JobId, Timestamp> {
    d.plan();
    let begins = |d: &Double| d.core.next_due().filter(|at| *at > d.now);
    while let Some(next) = next_end(d).into_iter().chain(begins(d)).min() {
        d.now = next;
        d.act(|core, cx| core.on_due(cx));
        end_all_at(d, next);
    }
    d.store.jobs.iter().filter_map(|(id, job)| Some((*id, job.run.start?))).collect()
}

proptest! {
    #![proptest_config(super::settings())]

    /// A reservation that begins when all jobs have ended by their limits changes nothing: all start
    /// at the same times.
    #[test]
    fn a_reservation_never_delays_jobs_that_end_before_it(
        is_divided in any::<bool>(),
        jobs in prop::collection::vec((shape(), 1u64..200), 1..20),
        share in share(),
    ) {
        let queue = || {
            let mut d = host_of(is_divided);
            for (shape, limit) in &jobs {
                // A preempted job does not end at its limit.
                let qos = shape.qos.clone().filter(|name| name != "urgent");
                // A job that is to expand another may hold others up and then never start. One
                // that would run into the reservation holds nobody up.
                let depends = shape.depends.filter(|(kind, _)| *kind != DependencyKind::Expand);
                let limit = Some(*limit);
                let shape = Shape { limit, reserved: None, qos, depends, ..shape.clone() };
                happen(&mut d, Event::Submit(shape));
            }
            d
        };
        let (mut without, mut with) = (queue(), queue());
        let start = without.now;
        let starts = run_out(&mut without);
        let ends = without.store.jobs.values().filter_map(|job| job.run.end);
        let begins = ends.max().unwrap_or(start).since(start).as_secs();
        let licenses = Some(2);
        create(&mut with, &Period { name: 0, share, licenses, begins, lasts: 600, flag: None });
        prop_assert_eq!(with.core.config().reservations.len(), 1);
        prop_assert_eq!(run_out(&mut with), starts);
    }
}
