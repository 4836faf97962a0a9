//! Readings of the GPUs, and the jobs that start depending on them.

use super::*;
use slotd_model::gpu::{GpuProcess, GpuReading, GpuShare};
use slotd_model::node::{Drains, NodeParts, NodeReason, Outage};

/// Creates a host with two GPUs of 100 MB and readable usage.
fn lab(avoids_used_gpus: bool) -> Double {
    Double::with(|config| (config.reads_gpus, config.avoids_used_gpus) = (true, avoids_used_gpus))
}

fn mem(mb: u64) -> Ask {
    ask().share(GpuShare::MemMb(mb))
}

fn reading(id: u32, used_mb: u64, processes: &[(Option<JobId>, u64)]) -> GpuReading {
    let process = |(job, mb): &(Option<JobId>, u64)| GpuProcess { job: *job, mem_mb: Some(*mb) };
    GpuReading {
        id,
        used_mb,
        busy: Some(50),
        processes: Some(processes.iter().map(process).collect()),
    }
}

fn read(d: &mut Double, readings: Vec<GpuReading>) {
    assert!(d.core.take_gpu_request(), "no reading was requested");
    let now = d.now;
    d.act(|core, _| core.on_gpus_read(Ok(readings), now));
    d.plan();
}

fn gpus_of(d: &Double, job: JobId) -> Vec<u32> {
    d.core
        .job(job)
        .and_then(|job| job.run.alloc.clone())
        .map(|alloc| alloc.gpu_ids)
        .unwrap_or_default()
}

#[test]
fn a_job_with_gpu_memory_keeps_its_place_until_the_gpus_are_read() {
    let mut d = lab(false);
    let first = d.submit(mem(80).cpus(2));
    let behind = d.submit(ask().cpus(3));
    let beside = d.submit(ask().cpus(2));
    d.plan();
    assert_eq!(
        [first, behind, beside].map(|id| d.state(id)),
        [JobState::Pending, JobState::Pending, JobState::Running]
    );
    read(&mut d, vec![reading(0, 30, &[]), reading(1, 10, &[])]);
    assert_eq!((d.state(first), gpus_of(&d, first)), (JobState::Running, vec![1]));
    assert!(!d.core.take_gpu_request(), "one reading was enough");
}

#[test]
fn jobs_without_gpu_memory_need_no_reading() {
    let mut d = lab(false);
    let jobs =
        [d.submit(ask()), d.submit(ask().gpus(1)), d.submit(ask().share(GpuShare::Shards(1)))];
    d.plan();
    assert_eq!(jobs.map(|id| d.state(id)), [JobState::Running; 3]);
    assert!(!d.core.take_gpu_request());
}

#[test]
fn a_job_that_waits_for_gpu_usage_is_not_in_the_queue() {
    let mut d = lab(false);
    let waits = d.submit(mem(80));
    d.plan();
    read(&mut d, vec![reading(0, 30, &[(None, 30)]), reading(1, 100, &[(None, 100)])]);
    let behind = d.submit(ask().cpus(4));
    d.plan();
    assert_eq!((d.reason(waits), d.state(behind)), (Reason::Resources, JobState::Running));
    let told = |d: &Double| d.core.view(waits, d.now).and_then(|view| view.job.run.system_comment);
    assert_eq!(
        told(&d).as_deref(),
        Some("processes outside jobs or the driver use 30 MB of GPU 0, 100 MB of GPU 1")
    );
    d.exit(behind, 0);
    let due = d.core.next_due().expect("a pause");
    d.now = due;
    d.act(|core, cx| core.on_due(cx));
    assert_eq!(
        d.core.next_due(),
        d.core.records().next_forgetting(),
        "a reading is already requested"
    );
    read(&mut d, vec![reading(0, 20, &[(None, 20)]), reading(1, 100, &[(None, 100)])]);
    assert_eq!((gpus_of(&d, waits), told(&d)), (vec![0], None));
}

#[test]
fn a_drained_gpu_is_not_described_as_used() {
    let mut d = lab(true);
    let waits = d.submit(ask().gpus(1));
    d.plan();
    read(&mut d, vec![reading(0, 30, &[(None, 30)]), reading(1, 100, &[(None, 100)])]);
    let told = |d: &Double| d.core.view(waits, d.now).and_then(|view| view.job.run.system_comment);
    let drain = |d: &mut Double, gpus: &[u32]| {
        let parts = NodeParts { gpus: gpus.iter().copied().collect(), ..NodeParts::default() };
        let reason =
            NodeReason { text: "hot".to_owned(), since: d.now, user: "lab".to_owned(), uid: 1001 };
        let outage = Outage { parts, reason };
        d.act(|core, cx| core.set_drains(Drains { node: None, parts: vec![outage] }, cx.now));
    };
    drain(&mut d, &[1]);
    let used = "processes outside jobs or the driver use 30 MB of GPU 0";
    assert_eq!(told(&d).as_deref(), Some(used));
    drain(&mut d, &[0, 1]);
    assert_eq!((d.reason(waits), told(&d)), (Reason::ReqNodeNotAvail, None));
    assert!(!d.core.take_gpu_request(), "no reading would let it start");
}

#[test]
fn a_held_job_triggers_no_reading() {
    let mut d = lab(false);
    d.submit(mem(80).held());
    d.plan();
    assert!(!d.core.take_gpu_request());
    assert_eq!(d.core.next_due(), None);
}

#[test]
fn only_jobs_with_gpu_memory_wait_if_reading_fails() {
    let mut d = lab(false);
    let waits = d.submit(mem(1));
    d.plan();
    assert!(d.core.take_gpu_request());
    let now = d.now;
    d.act(|core, _| core.on_gpus_read(Err(slotd_model::unread::Unread::gpus("it failed")), now));
    let whole = d.submit(ask().gpus(2));
    d.plan();
    assert_eq!((d.reason(waits), d.state(whole)), (Reason::Resources, JobState::Running));
    let view = d.core.view(waits, d.now).unwrap();
    assert_eq!(
        view.job.run.system_comment.as_deref(),
        Some("cannot read the GPU usage: it failed")
    );
    assert!(d.core.next_due().is_some(), "the reading is repeated");
}

#[test]
fn usage_beyond_its_share_is_not_the_jobs_own() {
    let mut d = Double::with(|config| {
        config.reads_gpus = true;
        config.host.gpus.truncate(1);
    });
    let first = d.submit(mem(40));
    d.plan();
    read(&mut d, vec![reading(0, 0, &[])]);
    assert_eq!(d.state(first), JobState::Running);
    // The first job uses 30 of its 40 MB; a process that claims to be of an ended job uses 20.
    d.now = d.now.plus_secs(60);
    let (fits, too_much) = (d.submit(mem(40).held()), d.submit(mem(41)));
    d.plan();
    read(&mut d, vec![reading(0, 50, &[(Some(first), 30), (Some(JobId(99)), 20)])]);
    assert_eq!(d.reason(too_much), Reason::Resources);
    d.cancel(&JobRef::job(too_much)).unwrap();
    d.act(|core, cx| core.release(&JobRef::job(fits), cx)).unwrap();
    d.plan();
    assert_eq!(d.state(fits), JobState::Running);
    // The first job uses 10 MB more than its share, so only 50 of 100 are free.
    d.exit(fits, 0);
    d.now = d.now.plus_secs(60);
    let next = d.submit(mem(51));
    d.act(|core, cx| core.on_due(cx));
    read(&mut d, vec![reading(0, 50, &[(Some(first), 50)])]);
    assert_eq!(d.reason(next), Reason::Resources);
}

#[test]
fn used_gpus_are_avoided_if_configured() {
    let mut d = lab(true);
    let (one, both) = (d.submit(ask().gpus(1)), d.submit(ask().gpus(2)));
    d.plan();
    read(&mut d, vec![reading(0, 1, &[(None, 1)]), reading(1, 1, &[])]);
    assert_eq!((gpus_of(&d, one), d.reason(both)), (vec![1], Reason::Resources));
}

#[test]
fn gpu_usage_is_sampled_while_jobs_hold_gpus() {
    let mut d = lab(false);
    let job = d.submit(ask().gpus(2));
    d.plan();
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let due = d.core.next_due().expect("a job has GPUs");
        pauses.push(due.since(d.now).as_secs());
        d.now = due;
        d.act(|core, cx| core.on_due(cx));
        read(
            &mut d,
            vec![reading(0, 30, &[(Some(job), 25)]), reading(1, 10, &[(Some(job), 5), (None, 5)])],
        );
    }
    assert_eq!(pauses, [1, 1, 2, 4, 8, 10]);
    d.exit(job, 0);
    let used = d.core.job(job).unwrap().run.usage().gpu;
    assert_eq!((used.readings, used.busy_max, used.mem_max_mb), (6, 100, 30));
    assert_eq!(
        d.core.next_due(),
        d.core.records().next_forgetting(),
        "an idle daemon reads nothing"
    );
}

#[test]
fn only_jobs_with_gpus_wait_for_the_detection() {
    let mut d = Double::new(4, 1000, 2);
    let holder = d.submit(ask().gpus(1));
    d.plan();
    d.started();
    let gpus = d.core.config().host.gpus.clone();
    // As after a restart: the previous daemon's GPUs are known, but not detected yet.
    let set = |d: &mut Double, change: &dyn Fn(&mut slotd_model::partition::Host)| {
        d.act(|core, cx| {
            let (mut host, partitions) =
                (core.config().host.clone(), core.config().all_partitions.clone());
            change(&mut host);
            core.set_host(host, partitions, cx.now);
        });
        d.plan();
    };
    set(&mut d, &|host| {
        host.detects_gpus = true;
        host.lost_gpus = std::mem::take(&mut host.gpus);
    });
    let on_gpu = d.submit(ask().gpus(1));
    let many = d.submit(ask().gpus(9));
    let alone = d.submit(ask().exclusive());
    let of_model = d.submit(ask().gpus(1).with(|r| r.gpu.model = Some("h200".to_owned())));
    let other = d.submit(ask());
    d.plan();
    assert_eq!(d.started(), [other]);
    for job in [on_gpu, many, alone, of_model] {
        assert_eq!((d.state(job), d.reason(job)), (JobState::Pending, Reason::Resources));
    }
    let view = d.core.view(on_gpu, d.now).unwrap();
    assert_eq!(
        view.run.system_comment.as_deref(),
        Some("the GPUs of this host are being detected")
    );
    assert!(
        d.core.resources().node().outages().is_empty()
            && d.core.resources().parts_out(holder).is_empty(),
        "nothing is missing yet"
    );
    assert!(!d.core.take_gpu_request(), "the detection is in progress");
    d.exit(other, 0);
    set(&mut d, &|host| {
        host.detects_gpus = false;
        (host.gpus, host.lost_gpus) = (gpus.clone(), Vec::new());
    });
    // The running job still has its own GPU.
    assert_eq!(d.started(), [on_gpu]);
    let gpu = |id| d.core.job(id).unwrap().run.alloc.as_ref().unwrap().gpu_ids.clone();
    assert!(gpu(on_gpu).iter().all(|id| !gpu(holder).contains(id)));
    assert_eq!(d.reason(many), Reason::BadConstraints);
}

#[test]
fn no_gpu_is_allocated_while_a_job_holds_an_unknown_one() {
    let named = |config: &mut Config| {
        config.host.gpus.iter_mut().for_each(|gpu| gpu.uuid = Some(format!("GPU-{}", gpu.id)));
    };
    let mut d = Double::with(named);
    let holder = d.submit(ask().gpus(1));
    d.plan();
    let names = |job: &Job| job.run.alloc.as_ref().unwrap().gpu_uuids.clone();
    assert_eq!(names(d.core.job(holder).unwrap()), [(0, "GPU-0".to_owned())].into());
    let [waits, alone, without] =
        [d.submit(ask().gpus(1)), d.submit(ask().exclusive()), d.submit(ask())];
    // The record is from a daemon that stored no UUIDs, or had GPUs without any.
    let mut jobs: Vec<Job> = d.core.jobs().cloned().collect();
    for alloc in jobs.iter_mut().filter_map(|job| job.run.alloc.as_mut()) {
        alloc.gpu_uuids.clear();
    }
    d.core = Core::recover(d.core.config().clone(), jobs, Vec::new(), d.core.next_id(), d.now);
    d.plan();
    let expected = [JobState::Running, JobState::Pending, JobState::Pending, JobState::Running];
    assert_eq!([holder, waits, alone, without].map(|id| d.state(id)), expected);
    let text = "it is unknown which GPU job 1 uses, so other jobs wait until it has ended";
    let why = d.core.view(waits, d.now).unwrap().job.run.system_comment;
    assert_eq!((d.reason(waits), why.as_deref()), (Reason::Resources, Some(text)));
    d.exit(holder, 0);
    d.plan();
    assert_eq!(d.state(waits), JobState::Running);
}
