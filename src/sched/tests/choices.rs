//! Jobs that name several partitions.

use super::*;
use slotd_model::partition::{Hours, PartitionState};

/// Returns two partitions with three CPUs, one of them shared.
fn overlapping() -> [Partition; 2] {
    let part = |name: &str, cpus: [u32; 2]| Partition {
        name: name.to_owned(),
        cpus: Some(cpus.into_iter().collect()),
        ..Partition::default()
    };
    [part("left", [0, 1]), part("right", [1, 2])]
}

fn with(partitions: impl IntoIterator<Item = Partition>) -> Double {
    Double::with(|config| config.set_partitions(partitions.into_iter().collect()))
}

fn ask_in(names: &str) -> Ask {
    ask().gpus(0).with(|request| request.partition = Some(names.to_owned()))
}

fn partition_of(d: &Double, id: JobId) -> &str {
    &d.core.job(id).unwrap().partition
}

#[test]
fn a_job_starts_in_the_first_partition_that_lets_it() {
    let [left, _] = overlapping();
    let right =
        Partition { name: "right".to_owned(), cpus: Some([2, 3].into()), ..Partition::default() };
    let mut d = with([left, right]);
    let long = d.submit(ask_in("left").cpus(2).limit(100));
    let short = d.submit(ask_in("right").cpus(2).limit(50));
    let job = d.submit(ask_in("left,right").cpus(2).limit(10));
    d.plan();
    assert_eq!((d.started(), d.reason(job)), (vec![long, short], Reason::Resources));
    assert_eq!(partition_of(&d, job), "left,right");
    assert_eq!(d.expected_start(job), Some(d.now.plus_secs(50)));
    let loads: Vec<_> =
        d.core.partition_loads().iter().map(|load| (load.running, load.pending)).collect();
    assert_eq!(loads, [(1, 1), (1, 1)]);
    d.exit(short, 0);
    assert_eq!((d.state(job), partition_of(&d, job)), (JobState::Running, "right"));
    // Its original time limit is kept for the second run, and its partition is open again.
    d.act(|core, cx| core.requeue(&JobRef::job(job), None, &[], cx)).unwrap();
    d.end(job, EndCause::Stopped, ExitCode::OK);
    let hold = d.submit(ask_in("right").cpus(2).priority(9));
    d.plan();
    assert_eq!(
        (d.state(hold), d.state(job), partition_of(&d, job)),
        (JobState::Running, JobState::Pending, "left,right")
    );
    d.exit(long, 0);
    assert_eq!((d.state(job), partition_of(&d, job)), (JobState::Running, "left"));
}

#[test]
fn a_jobs_own_reservation_does_not_block_it_in_another_partition() {
    let mut d = with(overlapping());
    let first = d.submit(ask_in("left").limit(100));
    d.plan();
    assert_eq!(d.core.job(first).unwrap().run.alloc.as_ref().unwrap().cpu_ids, [0]);
    // It waits for CPU 0 in the left partition, and gets CPU 1 in the right one.
    let job = d.submit(ask_in("left,right").cpus(2).limit(1000));
    d.plan();
    assert_eq!((d.state(job), partition_of(&d, job)), (JobState::Running, "right"));
}

#[test]
fn each_partition_has_its_limit_hours_and_size() {
    let [left, right] = overlapping();
    let hours = Some(Hours { from: 9 * 60, until: 10 * 60 });
    let mut d = with([
        Partition { state: PartitionState::Down, default_time_secs: Some(60), ..left },
        Partition {
            allowed_hours: hours,
            max_time_secs: Some(600),
            def_mem_per_cpu_mb: Some(7),
            ..right
        },
    ]);
    let job = d.submit(ask_in("left,right").with(|request| request.mem = MemRequest::Default));
    let only_left = d.submit(ask_in("left,left"));
    assert_eq!(
        (partition_of(&d, only_left), d.core.job(job).unwrap().request.time_limit_secs),
        ("left", None)
    );
    assert_eq!(d.core.job(only_left).unwrap().request.time_limit_secs, Some(60));
    d.plan();
    assert_eq!((d.state(job), d.core.next_due()), (JobState::Pending, Some(d.now.plus_secs(3600))));
    assert_eq!(d.expected_start(job), Some(d.now.plus_secs(3600)));
    d.wait(3600);
    let run = d.core.job(job).unwrap();
    assert_eq!(
        (run.run.state, run.partition.as_str(), run.tres.mem_mb),
        (JobState::Running, "right", 7)
    );
    assert_eq!(run.request.time_limit_secs, Some(600));
    assert_eq!(d.reason(only_left), Reason::PartitionDown);
}
