//! Everything that keeps a job from starting, with its figures.

use super::*;
use slotd_model::limit::Limit;
use slotd_model::why::{Blocker, Holder, Shortage, Standing, Until, What};

fn blockers(d: &Double, id: JobId) -> Vec<Blocker> {
    let mut view = d.core.view(id, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    view.blockers
}

/// Returns the reason, text and remedy of each blocker.
fn told(d: &Double, id: JobId) -> Vec<(Reason, String, Option<String>)> {
    blockers(d, id)
        .into_iter()
        .map(|blocker| (blocker.reason, blocker.text, blocker.remedy))
        .collect()
}

#[test]
fn a_shortage_lists_free_resources_and_holders() {
    // It is 8:00.
    let mut d = Double::new(8, 1000, 0);
    let long = d.submit(ask().cpus(6).limit(3600));
    d.plan();
    let wide = d.submit(ask().cpus(8));
    let narrow = d.submit(ask().cpus(2));
    d.plan();
    let [Blocker { reason: Reason::Resources, what: What::Shortage(shortage), remedy, text }] =
        &blockers(&d, wide)[..]
    else {
        panic!("{:?}", blockers(&d, wide))
    };
    let end = d.now.plus_secs(3600);
    let holds = Tres { cpus: 6, ..Tres::ZERO };
    let holder = Holder { id: long, job: long.to_string(), holds, until: Until::ByLimit(end) };
    let Shortage { needs, free, lacks, holders, behind, .. } = shortage;
    assert_eq!((needs.cpus, free.cpus, lacks.cpus, behind), (8, 2, 8, &None));
    assert_eq!(holders[..], [holder]);
    assert_eq!(
        *text,
        format!(
            "waits for 8 CPUs, of which 2 CPUs are free; job {long} holds 6 CPUs until 09:00 by its time limit"
        )
    );
    assert_eq!(*remedy, Some(format!("scontrol update JobId={wide} NumCPUs=2")));
    // With this limit it would end before the wide job starts.
    let words = format!(
        "there are enough free resources, but it would delay job {wide}, which is ahead of it; with a time limit of 60 minutes it would not"
    );
    let remedy = format!("scontrol update JobId={narrow} TimeLimit=60");
    assert_eq!(told(&d, narrow), [(Reason::Priority, words, Some(remedy))]);
    assert_eq!(blockers(&d, long), []);
}

#[test]
fn a_shortage_of_shared_gpus_has_the_amounts_of_the_shares() {
    use slotd_model::gpu::GpuShare::{MemMb, Shards};
    // Two GPUs of 100 MB, each with four shards.
    let mut d = Double::new(8, 1000, 2);
    let first = d.submit(ask().share(MemMb(70)));
    d.submit(ask().share(MemMb(60)));
    d.plan();
    let wide = d.submit(ask().share(MemMb(50)));
    let shards = d.submit(ask().share(Shards(3)));
    let whole = d.submit(ask().gpus(1));
    d.plan();
    let texts = [wide, shards, whole].map(|job| told(&d, job).remove(0).1);
    // One GPU has 30 MB left, the other one 40 MB.
    let holds = format!("job {first} holds 70 MB of GPU memory and has no time limit");
    assert_eq!(
        texts,
        [
            format!(
                "waits for 50 MB of GPU memory, of which 40 MB of GPU memory are free; {holds}"
            ),
            format!(
                "waits behind job {wide} for 3 GPU shards, of which 0 GPU shards are free; {holds}"
            ),
            format!("waits behind job {wide} for 1 GPU, of which 0 GPUs are free; {holds}"),
        ]
    );
    let of_two = d.submit(ask().gpus(2).share(MemMb(35)));
    d.plan();
    let [Blocker { what: What::Shortage(Shortage { lacks, free, .. }), .. }] =
        &blockers(&d, of_two)[..]
    else {
        panic!("{:?}", blockers(&d, of_two))
    };
    assert_eq!((lacks.gpu_mem_mb, free.gpu_mem_mb), (70, 35 + 30));
}

#[test]
fn all_blockers_are_listed_and_not_only_the_first() {
    let mut d = Double::new(4, 1000, 0);
    let running = d.submit(ask().cpus(4));
    d.plan();
    let begin = d.now.plus_secs(600);
    let job = d.submit(
        ask().cpus(2).held().after(AfterOk, running).with(|request| request.begin = Some(begin)),
    );
    d.plan();
    let words = |reason, text: String, remedy: &str| (reason, text, Some(remedy.to_owned()));
    let update = |change: &str| format!("scontrol update JobId={job} {change}");
    assert_eq!(
        told(&d, job),
        [
            words(
                Reason::JobHeldUser,
                "held by its user".to_owned(),
                &format!("scontrol release {job}")
            ),
            words(
                Reason::Dependency,
                format!("it waits for afterok:{running} (it runs and has no time limit)"),
                &update("Dependency=")
            ),
            words(
                Reason::BeginTime,
                "it may not start before 08:10".to_owned(),
                &update("StartTime=now")
            ),
            (
                Reason::Resources,
                format!(
                    "waits for 2 CPUs, of which 0 CPUs are free; job {running} holds 4 CPUs and has no time limit"
                ),
                None
            ),
        ]
    );
    d.exit(running, 1);
    let [
        _,
        Blocker {
            reason: Reason::DependencyNeverSatisfied,
            what: What::Dependency { any: false, on },
            text,
            remedy,
        },
        ..,
    ] = &blockers(&d, job)[..]
    else {
        panic!("{:?}", blockers(&d, job))
    };
    assert_eq!(
        (on[0].standing, on[0].state),
        (Standing::Never, Some(JobState::Ended(End::Failed)))
    );
    assert_eq!(
        *text,
        format!("it waits for afterok:{running}, which can never be satisfied: it is FAILED")
    );
    assert_eq!(*remedy, Some(format!("slotd retry --with-dependents {running}")));
    // A job that has completed is not submitted again to make it fail.
    let done = d.submit(ask());
    d.plan();
    d.exit(done, 0);
    let job = d.submit(ask().after(AfterNotOk, done));
    let remedy = &blockers(&d, job)[0].remedy;
    assert_eq!(*remedy, Some(format!("scontrol update JobId={job} Dependency=")));
}

#[test]
fn limits_of_the_owner_are_listed_with_their_figures() {
    let mut d = Double::with(|config| {
        config.limits =
            vec![Limit { account: Some("lab".to_owned()), jobs: Some(1), ..Limit::default() }];
        let mut partitions = config.partitions.clone();
        partitions[0].max_time_secs = Some(3600);
        config.set_partitions(partitions);
    });
    let of_lab = || ask().limit(60).with(|request| request.account = Some("lab".to_owned()));
    d.submit(of_lab());
    let (second, long) = (d.submit(of_lab()), d.submit(ask().limit(7200)));
    d.plan();
    assert_eq!(
        told(&d, second)[0].1,
        "the limit \"Account=lab MaxJobs=1\" is reached: 1 job with 1 CPU running, and it needs 1 CPU"
    );
    let update = format!("scontrol update JobId={long} TimeLimit=60");
    let text =
        "its time limit is 120 minutes, but partition cpu allows at most 60 minutes".to_owned();
    assert_eq!(told(&d, long), [(Reason::PartitionTimeLimit, text, Some(update))]);
    let array = d.submit(ask().limit(60).array(0, 9, Some(2)));
    d.plan();
    let waits = d.core.jobs().find(|job| job.compact_tasks().is_some()).unwrap().id;
    let text = "2 tasks of its array are running, and at most 2 may run at once".to_owned();
    let remedy = format!("scontrol update JobId={array} ArrayTaskThrottle=3");
    assert_eq!(told(&d, waits)[0], (Reason::JobArrayTaskLimit, text, Some(remedy)));
}

#[test]
fn a_singleton_names_the_jobs_ahead_of_it() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask());
    let single = d.submit(ask().singleton());
    d.plan();
    assert_eq!(
        told(&d, single)[0].1,
        format!("it waits for singleton (1 job of the same name ahead of it: {first})")
    );
}
