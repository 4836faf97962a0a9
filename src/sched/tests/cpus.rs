//! What others than jobs use of the CPUs, and who starts by it.

use super::*;
use crate::model::cpu_use::{CpuReading, CpusElsewhere};
use crate::model::update::Update;

/// Four CPUs, of which those that others use are given to nobody.
fn shared() -> Double {
    Double::with(|config| config.avoids_used_cpus = true)
}

fn read(d: &mut Double, busy: &[(u32, u32)]) {
    assert!(d.core.take_cpu_request(), "nobody has asked");
    let (now, used_centi) = (d.now, busy.iter().map(|(_, percent)| percent).sum());
    d.act(|core, _| core.on_cpus_read(Ok(CpuReading { used_centi, busy: busy.to_vec() }), now));
    d.plan();
}

/// Goes to the next reading by the clock.
fn pause(d: &mut Double) {
    d.now = d.core.next_due().expect("a job waits for it");
    d.act(|core, cx| core.on_due(cx));
}

fn cpus_of(d: &Double, job: JobId) -> Vec<u32> {
    d.core
        .job(job)
        .and_then(|job| job.run.alloc.clone())
        .map(|alloc| alloc.cpu_ids)
        .unwrap_or_default()
}

#[test]
fn a_job_gets_the_cpus_that_it_names_and_waits_until_they_are_free() {
    let mut d = Double::with(|_| {});
    let one = d.submit(ask().on_cpus(&[1]).limit(60));
    d.plan();
    assert_eq!(cpus_of(&d, one), [1]);
    let (same, both, any) =
        (d.submit(ask().on_cpus(&[1])), d.submit(ask().on_cpus(&[2, 3])), d.submit(ask()));
    d.plan();
    // The first of the line keeps the CPU, and nothing else, for itself.
    assert_eq!(
        (d.reason(same), cpus_of(&d, both), cpus_of(&d, any)),
        (Reason::Resources, vec![2, 3], vec![0])
    );
    let told =
        d.core.view(same, d.now).and_then(|view| view.job.run.system_comment).unwrap_or_default();
    let words =
        format!("waits for 1 CPU, CPU 1 (--cpu-bind) among them; job {one} holds 1 CPU until ");
    assert!(told.starts_with(&words), "{told}");
    assert_eq!(d.expected_start(same), Some(d.now.plus_secs(60)));
    d.exit(any, 0);
    assert_eq!(d.state(same), JobState::Pending, "another CPU will not do");
    d.exit(one, 0);
    assert_eq!(cpus_of(&d, same), [1]);
    d.exit(both, 0);
    let three = d.submit(ask().cpus(3).on_cpus(&[3]));
    d.plan();
    assert_eq!(cpus_of(&d, three), [0, 2, 3]);
}

#[test]
fn a_cpu_that_is_named_comes_before_those_that_nobody_uses() {
    // Each CPU may be shared, and the partition may use two.
    let mut d = Double::with(|config| {
        config.partitions[0].over_subscribe = crate::model::partition::OverSubscribe::Force(2);
        config.partitions[0].max_cpus = Some(2);
    });
    for (cpus, expected) in [(&[3][..], vec![3]), (&[], vec![0]), (&[3], vec![3]), (&[1], vec![])] {
        let job = d.submit(ask().on_cpus(cpus));
        d.plan();
        assert_eq!(cpus_of(&d, job), expected);
    }
}

#[test]
fn who_names_a_cpu_that_is_out_of_use_waits_for_it() {
    let mut d = Double::with(|config| config.host.drained.cpus = [2].into());
    let job = d.submit(ask().on_cpus(&[2]));
    d.plan();
    assert_eq!(d.reason(job), Reason::ReqNodeNotAvail);
    let mut view = d.core.view(job, d.now).unwrap();
    d.core.tell_blockers(&mut view, d.now);
    assert!(
        view.blockers[0].text.contains("CPU 2 (--cpu-bind) among them; partition"),
        "{:?}",
        view.blockers
    );
}

#[test]
fn another_size_leaves_no_wish_that_it_could_not_meet() {
    let mut d = Double::with(|_| {});
    let (waits, runs) = (d.submit(ask().held().on_cpus(&[1, 2])), d.submit(ask().on_cpus(&[0, 3])));
    d.plan();
    for id in [waits, runs] {
        d.act(|core, cx| core.update(&JobRef::job(id), &[Update::NumCpus(1)], &[], cx)).unwrap();
        let job = d.core.job(id).unwrap();
        assert_eq!((job.tres.cpus, &job.request.named_cpus[..]), (1, &[][..]));
    }
}

#[test]
fn nothing_is_read_where_it_does_not_count_and_while_nobody_could_start() {
    let mut d = Double::with(|_| {});
    d.submit(ask());
    d.plan();
    assert!(!d.core.take_cpu_request());
    let mut d = shared();
    d.submit(ask().held());
    d.plan();
    assert!(!d.core.take_cpu_request());
    assert_eq!(d.core.next_due(), None);
}

#[test]
fn a_cpu_that_others_use_is_not_given_and_who_needs_it_waits_until_it_is_left() {
    let mut d = shared();
    let (narrow, wide) = (d.submit(ask().cpus(3)), d.submit(ask().cpus(4)));
    d.plan();
    assert_eq!(d.state(narrow), JobState::Pending);
    read(&mut d, &[(0, 10), (1, 80), (2, 20), (3, 0)]);
    assert_eq!((cpus_of(&d, narrow), d.reason(wide)), (vec![0, 2, 3], Reason::Resources));
    let told = d.core.view(wide, d.now).and_then(|view| view.job.run.system_comment);
    let words =
        "processes that are no job's use 1.10 CPUs, so that 1 CPU of the host's 4 are taken";
    assert_eq!(told.as_deref(), Some(words));
    assert_eq!(
        d.core.resources().cpus_elsewhere(),
        Some(CpusElsewhere { used_centi: Some(110), taken: 1 })
    );
    d.exit(narrow, 0);
    // It is read again, and keeps nobody else from starting meanwhile.
    pause(&mut d);
    read(&mut d, &[(1, 90)]);
    let other = d.submit(ask().cpus(3));
    d.plan();
    assert_eq!((d.state(other), d.state(wide)), (JobState::Running, JobState::Pending));
    d.exit(other, 0);
    pause(&mut d);
    read(&mut d, &[(1, 40)]);
    assert_eq!(cpus_of(&d, wide), [0, 1, 2, 3], "less than half a CPU is nobody's");
    d.exit(wide, 0);
    assert_eq!(
        d.core.next_due(),
        d.core.records().next_forgetting(),
        "an idle daemon reads nothing"
    );
}

#[test]
fn who_could_start_but_for_others_has_it_read_again_though_jobs_run() {
    let mut d = shared();
    let first = d.submit(ask().cpus(2));
    d.plan();
    read(&mut d, &[(3, 100)]);
    assert_eq!(cpus_of(&d, first), [0, 1]);
    let second = d.submit(ask().cpus(2));
    d.plan();
    assert_eq!(d.reason(second), Reason::Resources);
    pause(&mut d);
    read(&mut d, &[]);
    assert_eq!(cpus_of(&d, second), [2, 3]);
    let third = d.submit(ask().cpus(2));
    d.plan();
    assert_eq!(
        (d.reason(third), d.core.next_due()),
        (Reason::Resources, None),
        "it waits for jobs alone"
    );
}

#[test]
fn cpus_that_are_kept_back_are_there_for_others() {
    let mut d = Double::with(|config| {
        config.avoids_used_cpus = true;
        config.host.topology = crate::model::topology::Topology::uniform(1, 4, 1);
        config.host.cpu_ids = vec![0, 1, 2];
    });
    let all = d.submit(ask().cpus(3));
    d.plan();
    read(&mut d, &[(0, 100)]);
    assert_eq!(d.state(all), JobState::Running);
    d.exit(all, 0);
    d.now = d.now.plus_secs(60);
    let again = d.submit(ask().cpus(3));
    d.plan();
    read(&mut d, &[(0, 100), (1, 60)]);
    assert_eq!(d.reason(again), Reason::Resources);
}

#[test]
fn where_it_cannot_be_told_jobs_wait_and_it_is_tried_again() {
    let mut d = shared();
    let job = d.submit(ask());
    d.plan();
    assert!(d.core.take_cpu_request());
    let now = d.now;
    d.act(|core, _| core.on_cpus_read(Err("no /proc".to_owned()), now));
    d.plan();
    let told = d.core.view(job, d.now).and_then(|view| view.job.run.system_comment);
    assert_eq!(told.as_deref(), Some("how the CPUs are used cannot be told: no /proc"));
    pause(&mut d);
    read(&mut d, &[]);
    assert_eq!(d.state(job), JobState::Running);
}
