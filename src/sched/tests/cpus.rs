//! CPU usage by processes outside jobs, and the jobs that start depending on it.

use super::*;
use slotd_model::cpu_use::{CpuReading, CpusElsewhere};
use slotd_model::unread::Unread;
use slotd_model::update::Update;

/// Creates a host with four CPUs that allocates no CPUs used by processes outside jobs.
fn shared() -> Double {
    Double::with(|config| config.avoids_used_cpus = true)
}

fn read(d: &mut Double, busy: &[(u32, u32)]) {
    assert!(d.core.take_cpu_request(), "no reading was requested");
    let (now, used_centi) = (d.now, busy.iter().map(|(_, percent)| percent).sum());
    d.act(|core, _| core.on_cpus_read(Ok(CpuReading { used_centi, busy: busy.to_vec() }), now));
    d.plan();
}

/// Advances the clock to the next reading.
fn pause(d: &mut Double) {
    d.now = d.core.next_due().expect("a job waits for a reading");
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
    // The first job in line reserves the CPU, and nothing else.
    assert_eq!(
        (d.reason(same), cpus_of(&d, both), cpus_of(&d, any)),
        (Reason::Resources, vec![2, 3], vec![0])
    );
    let told =
        d.core.view(same, d.now).and_then(|view| view.job.run.system_comment).unwrap_or_default();
    let words =
        format!("waits for 1 CPU, including CPU 1 (--cpu-bind); job {one} holds 1 CPU until ");
    assert!(told.starts_with(&words), "{told}");
    assert_eq!(d.expected_start(same), Some(d.now.plus_secs(60)));
    d.exit(any, 0);
    assert_eq!(d.state(same), JobState::Pending, "another CPU is not enough");
    d.exit(one, 0);
    assert_eq!(cpus_of(&d, same), [1]);
    d.exit(both, 0);
    let three = d.submit(ask().cpus(3).on_cpus(&[3]));
    d.plan();
    assert_eq!(cpus_of(&d, three), [0, 2, 3]);
}

#[test]
fn named_cpus_come_before_unused_ones() {
    // Each CPU may be shared, and the partition may use two.
    let mut d = Double::with(|config| {
        config.partitions[0].over_subscribe = slotd_model::partition::OverSubscribe::Force(2);
        config.partitions[0].max_cpus = Some(2);
    });
    for (cpus, expected) in [(&[3][..], vec![3]), (&[], vec![0]), (&[3], vec![3]), (&[1], vec![])] {
        let job = d.submit(ask().on_cpus(cpus));
        d.plan();
        assert_eq!(cpus_of(&d, job), expected);
    }
}

#[test]
fn a_job_waits_for_a_drained_cpu_that_it_names() {
    let mut d = Double::with(|config| config.host.drained.cpus = [2].into());
    let job = d.submit(ask().on_cpus(&[2]));
    d.plan();
    assert_eq!(d.reason(job), Reason::ReqNodeNotAvail);
    let mut view = d.core.view(job, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    assert!(
        view.blockers[0].text.contains("including CPU 2 (--cpu-bind); partition"),
        "{:?}",
        view.blockers
    );
}

#[test]
fn a_new_size_drops_the_named_cpus() {
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
fn cpu_usage_is_read_only_if_a_job_could_start() {
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
fn a_cpu_used_outside_jobs_is_not_allocated_until_it_is_free() {
    let mut d = shared();
    let (narrow, wide) = (d.submit(ask().cpus(3)), d.submit(ask().cpus(4)));
    d.plan();
    assert_eq!(d.state(narrow), JobState::Pending);
    read(&mut d, &[(0, 10), (1, 80), (2, 20), (3, 0)]);
    assert_eq!((cpus_of(&d, narrow), d.reason(wide)), (vec![0, 2, 3], Reason::Resources));
    let told = d.core.view(wide, d.now).and_then(|view| view.job.run.system_comment);
    let words =
        "processes outside jobs use 1.10 CPUs, so 1 CPU of the host's 4 cannot be allocated";
    assert_eq!(told.as_deref(), Some(words));
    assert_eq!(
        d.core.resources().cpus_elsewhere(),
        Some(CpusElsewhere { used_centi: Some(110), taken: 1 })
    );
    d.exit(narrow, 0);
    // The usage is read again, and blocks no other job meanwhile.
    pause(&mut d);
    read(&mut d, &[(1, 90)]);
    let other = d.submit(ask().cpus(3));
    d.plan();
    assert_eq!((d.state(other), d.state(wide)), (JobState::Running, JobState::Pending));
    d.exit(other, 0);
    pause(&mut d);
    read(&mut d, &[(1, 40)]);
    assert_eq!(cpus_of(&d, wide), [0, 1, 2, 3], "less than half a CPU does not count");
    d.exit(wide, 0);
    assert_eq!(
        d.core.next_due(),
        d.core.records().next_forgetting(),
        "an idle daemon reads nothing"
    );
}

#[test]
fn usage_is_read_again_while_it_alone_blocks_a_job() {
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
        "it waits only for other jobs"
    );
}

#[test]
fn processes_outside_jobs_use_up_the_kept_back_cpus_first() {
    let mut d = Double::with(|config| {
        config.avoids_used_cpus = true;
        config.host.topology = uniform(1, 4, 1);
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
fn jobs_wait_until_the_cpu_usage_can_be_read() {
    let mut d = shared();
    let job = d.submit(ask());
    d.plan();
    assert!(d.core.take_cpu_request());
    let now = d.now;
    d.act(|core, _| core.on_cpus_read(Err(Unread::cpus("no /proc")), now));
    d.plan();
    let told = d.core.view(job, d.now).and_then(|view| view.job.run.system_comment);
    assert_eq!(told.as_deref(), Some("cannot read the CPU usage: no /proc"));
    pause(&mut d);
    read(&mut d, &[]);
    assert_eq!(d.state(job), JobState::Running);
}
