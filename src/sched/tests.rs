//! The rules, each as a sentence.

use super::testing::*;
use super::*;
use crate::model::array::ArraySpec;
use crate::model::dependency::{Dependency, DependencyKind, DependencyTerm};
use crate::model::job::ClientProcess;
use crate::model::job::Hold;
use crate::model::request::{GpuRequest, MemRequest};
use crate::model::tres::Usage;
use crate::model::update::Update;
use crate::model::*;

use DependencyKind::{After, AfterAny, AfterCorr, AfterNotOk, AfterOk};

fn refusal(d: &mut Double, ask: Ask) -> Vec<String> {
    d.try_submit(ask).expect_err("it is refused").lines("Batch job submission failed")
}

// Sizes and refusals.

#[test]
fn cpus_are_tasks_times_cpus_per_task_and_memory_is_512_mb_by_default() {
    let mut d = Double::new(8, 4096, 0);
    let id = d.submit(ask().cpus(2).with(|r| {
        r.ntasks = Some(3);
        r.mem = MemRequest::Default;
    }));
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 6, mem_mb: 512, gpus: 0 });
}

#[test]
fn a_host_with_less_than_the_default_memory_gives_what_it_has() {
    let mut d = Double::new(1, 300, 0);
    let id = d.submit(ask().with(|r| r.mem = MemRequest::Default));
    assert_eq!(d.core.job(id).unwrap().tres.mem_mb, 300);
}

#[test]
fn memory_zero_is_the_whole_host_and_per_cpu_and_per_gpu_multiply() {
    let mut d = Double::new(8, 4096, 4);
    let whole = d.submit(ask().mem(0));
    let per_cpu = d.submit(ask().cpus(4).with(|r| r.mem = MemRequest::PerCpu(100)));
    let per_gpu = d.submit(ask().gpus(2).with(|r| r.mem = MemRequest::PerGpu(1000)));
    let mem = |id| d.core.job(id).unwrap().tres.mem_mb;
    assert_eq!((mem(whole), mem(per_cpu), mem(per_gpu)), (4096, 400, 2000));
}

#[test]
fn a_gpu_partition_gives_one_gpu_unless_told_otherwise() {
    let mut d = Double::new(2, 4096, 2);
    let gpu = |r: &mut JobRequest| r.partition = Some("gpu".to_string());
    let default = d.submit(ask().with(gpu));
    let none = d.submit(ask().gpus(0).with(gpu));
    let elsewhere = d.submit(ask());
    let gpus = |id| d.core.job(id).unwrap().tres.gpus;
    assert_eq!((gpus(default), gpus(none), gpus(elsewhere)), (1, 0, 0));
}

#[test]
fn cpus_per_gpu_and_gpus_per_task_count() {
    let mut d = Double::new(8, 4096, 4);
    let id = d.submit(ask().with(|r| {
        r.ntasks = Some(2);
        r.gpu.per_task = Some(2);
        r.gpu.cpus_per_gpu = Some(2);
    }));
    assert_eq!(d.core.job(id).unwrap().tres, Tres { cpus: 8, mem_mb: 1, gpus: 4 });
}

#[test]
fn what_the_host_has_not_is_refused_with_the_value() {
    let mut d = Double::new(2, 1000, 1);
    assert_eq!(
        refusal(&mut d, ask().cpus(100)),
        [
            "CPU count per node can not be satisfied: 100 CPUs requested, 2 on this host",
            "Batch job submission failed: More processors requested than permitted",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().mem(2000)),
        [
            "Memory specification can not be satisfied: 2000 MB requested, 1000 MB on this host",
            "Batch job submission failed: Requested node configuration is not available",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().gpus(2)),
        [
            "GPU count per node can not be satisfied: 2 GPUs requested, 1 on this host",
            "Batch job submission failed: Requested node configuration is not available",
        ]
    );
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.partition = Some("nopart".to_string()))),
        ["invalid partition specified: nopart", "Batch job submission failed: Invalid partition name specified",]
    );
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.nodes = Some((2, 2).into()))),
        ["Batch job submission failed: Node count specification invalid"]
    );
    assert_eq!(d.core.next_id(), JobId(1), "a refused job takes no number");
    d.assert_quiet();
    assert!(d.store.is_empty());
}

#[test]
fn of_several_partitions_the_first_that_can_hold_the_job_is_taken() {
    let mut d = Double::new(2, 1000, 0);
    // There is no GPU for the default of the GPU partition.
    let id = d.submit(ask().with(|r| r.partition = Some("gpu,cpu".to_string())));
    assert_eq!(d.core.job(id).unwrap().partition, "cpu");
}

#[test]
fn another_host_or_none_is_refused() {
    let mut d = Double::new(2, 1000, 0);
    let hosts = |names: &[&str]| HostList::new(names.iter().map(ToString::to_string).collect());
    let submission = |nodelist: &[&str], exclude: &[&str]| Submission {
        request: JobRequest { nodelist: hosts(nodelist), exclude: hosts(exclude), ..ask().0 },
        ..Submission::default()
    };
    let mut refused = |s| d.act(|core, cx| core.submit(s, cx)).err();
    assert_eq!(refused(submission(&["other"], &[])), Some(Refusal::UnknownNode("other".into())));
    assert_eq!(refused(submission(&[], &["vm"])), Some(Refusal::NodeExcluded("vm".into())));
    assert_eq!(refused(submission(&["vm"], &["other"])), None);
}

#[test]
fn what_the_host_is_listed_with_can_be_asked_for() {
    let constraint = |name: &str| Constraint::Feature { name: name.to_string(), nodes: 1 };
    let mut d = Double::with(|config| config.host.features = vec!["fast_disk".to_string()]);
    for name in ["fast_disk", "cpu", "gpu", "generic_gpu"] {
        d.submit(ask().with(|r| r.constraint = Some(constraint(name))));
    }
    assert_eq!(
        refusal(&mut d, ask().with(|r| r.constraint = Some(constraint("tape")))),
        ["no such features on this host: tape", "Batch job submission failed: Invalid feature specification"]
    );
    let mut without = Double::new(2, 1000, 0);
    assert_eq!(refusal(&mut without, ask().with(|r| r.constraint = Some(constraint("generic_gpu")))).len(), 2);
}

#[test]
fn a_named_gpu_model_gets_a_gpu_of_that_model() {
    let mut d = Double::new(4, 1000, 0);
    let mut host = d.core.config().host.clone();
    host.gpus = ["nvidia_t4", "nvidia_a100", "nvidia_t4", "nvidia_a100"]
        .iter()
        .zip(0..)
        .map(|(model, id)| partition::Gpu { id, model: Some(model.to_string()) })
        .collect();
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(host, partitions, cx.now));
    let id = d.submit(ask().gpus(2).with(|r| r.gpu.model = Some("a100".to_string())));
    let any = d.submit(ask().gpus(1));
    d.plan();
    let gpus = |id| d.core.job(id).unwrap().run.alloc.clone().unwrap().gpu_ids;
    assert_eq!((gpus(id), gpus(any)), (vec![1, 3], vec![0]));
    assert!(d.try_submit(ask().gpus(3).with(|r| r.gpu.model = Some("a100".to_string()))).is_err());
}

// Order.

#[test]
fn jobs_start_in_the_order_of_submission() {
    let mut d = Double::new(1, 1000, 0);
    let ids: Vec<JobId> = (0..4).map(|_| d.submit(ask())).collect();
    let mut order = Vec::new();
    for _ in 0..4 {
        d.plan();
        let started = d.started();
        assert_eq!(started.len(), 1);
        order.extend(&started);
        d.exit(started[0], 0);
        order.extend(d.started());
        if let Some(last) = order.last().filter(|_| order.len() == 4) {
            d.exit(*last, 0);
            break;
        }
        let last = *order.last().unwrap();
        if d.state(last) == JobState::Running {
            d.end(last, EndCause::Exited, ExitCode::OK);
        }
    }
    assert_eq!(order, ids);
}

#[test]
fn an_explicit_priority_overrides_the_order_and_nice_lowers() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    d.plan();
    let nice = d.submit(ask().with(|r| r.nice = 100));
    let plain = d.submit(ask());
    let high = d.submit(ask().priority(10));
    let order: Vec<JobId> = d.core.queue.iter().map(|key| key.id).collect();
    assert_eq!(order, [high, plain, nice]);
    assert_eq!(d.started(), [running]);
}

#[test]
fn two_arrays_and_a_plain_job_take_turns() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask().array(0, 3, None));
    let second = d.submit(ask().array(0, 3, None));
    let plain = d.submit(ask());
    let mut order = Vec::new();
    d.plan();
    while let [started] = d.started()[..] {
        order.push(d.label(started));
        d.exit(started, 0);
    }
    let expected: Vec<String> = [
        (first, Some(0)),
        (second, Some(0)),
        (plain, None),
        (first, Some(1)),
        (second, Some(1)),
        (first, Some(2)),
        (second, Some(2)),
        (first, Some(3)),
        (second, Some(3)),
    ]
    .iter()
    .map(|(id, task)| task.map_or(id.to_string(), |task: u32| format!("{id}_{task}")))
    .collect();
    assert_eq!(order, expected);
}

#[test]
fn a_stream_of_later_jobs_does_not_starve_an_array() {
    let mut d = Double::new(1, 1000, 0);
    let array = d.submit(ask().array(0, 4, None));
    let mut served = Vec::new();
    d.plan();
    for _ in 0..40 {
        d.submit(ask());
        d.submit(ask());
        let started = d.started();
        served.extend(started.iter().map(|id| d.label(*id)));
        d.exit(started[0], 0);
    }
    let own = served.iter().filter(|label| label.starts_with(&format!("{array}_"))).count();
    assert!(own >= 5, "{served:?}");
}

// Resources, backfill.

#[test]
fn cpus_and_gpus_are_given_by_number_lowest_first_and_come_back() {
    let mut d = Double::new(4, 1000, 2);
    let a = d.submit(ask().cpus(2).gpus(1));
    let b = d.submit(ask().cpus(1).gpus(1));
    d.plan();
    let alloc = |d: &Double, id| d.core.job(id).unwrap().run.alloc.clone().unwrap();
    assert_eq!((alloc(&d, a).cpu_ids, alloc(&d, a).gpu_ids), (vec![0, 1], vec![0]));
    assert_eq!((alloc(&d, b).cpu_ids, alloc(&d, b).gpu_ids), (vec![2], vec![1]));
    d.exit(a, 0);
    let c = d.submit(ask().cpus(3).gpus(1));
    d.plan();
    assert_eq!((alloc(&d, c).cpu_ids, alloc(&d, c).gpu_ids), (vec![0, 1, 3], vec![0]));
    assert_eq!(d.core.gpus_in_use(), [0, 1]);
}

#[test]
fn the_first_that_does_not_fit_waits_for_resources_and_the_others_for_it() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let first = d.submit(ask());
    let second = d.submit(ask());
    d.plan();
    assert_eq!(
        (d.reason(running), d.reason(first), d.reason(second)),
        (Reason::None, Reason::Resources, Reason::Priority)
    );
}

#[test]
fn a_wide_job_is_not_starved_by_a_stream_of_narrow_ones_without_limits() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask());
    d.plan();
    let wide = d.submit(ask().cpus(2));
    let narrow = d.submit(ask());
    d.plan();
    assert_eq!(d.state(narrow), JobState::Pending);
    d.exit(first, 0);
    assert_eq!(d.state(wide), JobState::Running);
}

#[test]
fn a_later_job_passes_if_its_limit_ends_before_the_reservation() {
    let mut d = Double::new(2, 1000, 0);
    d.submit(ask().limit(600));
    d.plan();
    let wide = d.submit(ask().cpus(2).limit(60));
    let too_long = d.submit(ask().limit(601));
    let short = d.submit(ask().limit(600));
    d.plan();
    assert_eq!(
        [wide, too_long, short].map(|id| d.state(id)),
        [JobState::Pending, JobState::Pending, JobState::Running]
    );
}

#[test]
fn a_later_job_passes_if_it_uses_only_what_is_spare() {
    let mut d = Double::new(4, 1000, 0);
    d.submit(ask().cpus(3).limit(600));
    d.plan();
    let wide = d.submit(ask().cpus(3));
    let endless = d.submit(ask());
    let another = d.submit(ask());
    d.plan();
    assert_eq!(
        [wide, endless, another].map(|id| d.state(id)),
        [JobState::Pending, JobState::Running, JobState::Pending]
    );
    d.wait(600);
    assert_eq!(d.core.expected_starts(d.now).get(&wide), Some(&d.now.plus_secs(1)));
}

#[test]
fn without_limits_what_is_spare_is_reckoned_from_the_oldest_jobs() {
    let mut d = Double::new(4, 1000, 0);
    let old = d.submit(ask().cpus(2));
    d.plan();
    d.now = d.now.plus_secs(1);
    d.submit(ask());
    d.plan();
    let wide = d.submit(ask().cpus(3));
    let narrow = d.submit(ask());
    d.plan();
    assert_eq!(d.state(narrow), JobState::Pending, "it would take the CPU that the wide job gets when {old} ends");
    d.exit(old, 0);
    assert_eq!(d.state(wide), JobState::Running);
}

#[test]
fn an_exclusive_job_waits_for_an_empty_host_and_keeps_it() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask());
    d.plan();
    let alone = d.submit(ask().exclusive());
    let other = d.submit(ask());
    d.plan();
    assert_eq!((d.state(alone), d.reason(alone)), (JobState::Pending, Reason::Exclusive));
    assert_eq!((d.state(other), d.reason(other)), (JobState::Pending, Reason::Priority));
    d.exit(first, 0);
    assert_eq!(d.state(alone), JobState::Running);
    assert_eq!(d.core.job(alone).unwrap().run.alloc.as_ref().unwrap().cpu_ids, [0, 1, 2, 3]);
    assert_eq!(d.reason(other), Reason::Exclusive);
    d.exit(alone, 0);
    assert_eq!(d.state(other), JobState::Running);
}

#[test]
fn the_forecast_says_when_each_job_starts() {
    let mut d = Double::new(1, 1000, 0);
    d.submit(ask().limit(100));
    d.plan();
    let start = d.now;
    let second = d.submit(ask().limit(50));
    let third = d.submit(ask());
    let never = d.submit(ask());
    let held = d.submit(ask().held());
    let starts = d.core.expected_starts(d.now);
    assert_eq!(starts.get(&second), Some(&start.plus_secs(100)));
    assert_eq!(starts.get(&third), Some(&start.plus_secs(150)));
    assert_eq!((starts.get(&never), starts.get(&held)), (None, None));
    let estimate = d.core.test_only(&Submission { request: ask().0, ..Submission::default() }, d.now).unwrap();
    assert_eq!((estimate.id, estimate.start, estimate.cpus), (d.core.next_id(), None, 1));
}

// Begin, deadline, immediate.

#[test]
fn a_begin_time_is_kept_and_wakes_the_core_once() {
    let mut d = Double::new(1, 1000, 0);
    let begin = d.now.plus_secs(600);
    let id = d.submit(ask().with(|r| r.begin = Some(begin)));
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::BeginTime));
    assert_eq!(d.core.next_due(), Some(begin));
    d.wait(599);
    assert_eq!(d.state(id), JobState::Pending);
    d.wait(1);
    assert_eq!(d.state(id), JobState::Running);
    assert_eq!(d.core.next_due(), None, "an idle core is never due");
}

#[test]
fn a_clock_that_is_set_back_holds_a_begin_time_again() {
    let mut d = Double::new(1, 1000, 0);
    let blocker = d.submit(ask());
    let begin = d.now.plus_secs(600);
    let id = d.submit(ask().with(|r| r.begin = Some(begin)));
    d.plan();
    d.wait(600);
    d.now = Timestamp::from_secs(T0);
    d.exit(blocker, 0);
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::BeginTime));
    assert_eq!(d.core.next_due(), Some(begin));
    d.wait(600);
    assert_eq!(d.state(id), JobState::Running);
}

#[test]
fn a_missed_deadline_cancels() {
    let mut d = Double::new(1, 1000, 0);
    let deadline = d.now.plus_secs(600);
    let running = d.submit(ask().with(|r| r.deadline = Some(deadline)));
    let hopeless = d.submit(ask().limit(100).with(|r| r.deadline = Some(deadline)));
    d.plan();
    d.wait(500);
    assert_eq!((d.state(hopeless), d.reason(hopeless)), (JobState::Cancelled, Reason::DeadLine));
    assert_eq!(d.state(running), JobState::Running);
    d.wait(100);
    assert_eq!(d.stops(), [(running, StopCause::Deadline)]);
    d.end(running, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!((d.state(running), d.reason(running)), (JobState::Cancelled, Reason::DeadLine));
}

#[test]
fn a_job_that_cannot_end_by_its_deadline_is_never_started() {
    let mut d = Double::new(1, 1000, 0);
    let deadline = d.now.plus_secs(600);
    let late = d.submit(ask().limit(1200).with(|r| r.deadline = Some(deadline)));
    let shorter = d.submit(ask().limit(1200).with(|r| {
        r.deadline = Some(deadline);
        r.time_min_secs = Some(60);
    }));
    assert_eq!((d.state(late), d.reason(late)), (JobState::Cancelled, Reason::DeadLine));
    d.plan();
    assert_eq!(d.state(shorter), JobState::Running);
}

#[test]
fn immediate_means_now_or_never() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(0)));
    d.plan();
    let second = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(0)));
    let patient = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(5)));
    d.plan();
    assert_eq!(
        [first, second, patient].map(|id| d.state(id)),
        [JobState::Running, JobState::Cancelled, JobState::Pending]
    );
    d.wait(5);
    assert_eq!(d.state(patient), JobState::Cancelled);
    assert_eq!(d.effects, [Effect::Granted(first), Effect::Ended(second), Effect::Ended(patient)]);
}

// Ends.

#[test]
fn exit_codes_and_causes_make_the_states_of_the_book() {
    use EndCause::*;
    let ended = |cause, exit| {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.end(id, cause, exit);
        let job = d.core.job(id).unwrap().clone();
        assert_eq!(d.store[&id], job, "the end is in the store");
        (job.run.state, job.run.reason)
    };
    assert_eq!(ended(Exited, ExitCode::OK), (JobState::Completed, Reason::None));
    assert_eq!(ended(Exited, ExitCode::status(3)), (JobState::Failed, Reason::NonZeroExitCode));
    assert_eq!(ended(Exited, ExitCode::signal(9)), (JobState::Failed, Reason::RaisedSignal));
    assert_eq!(ended(TimeLimit, ExitCode::signal(15)), (JobState::Timeout, Reason::TimeLimit));
    assert_eq!(ended(OutOfMemory, ExitCode::signal(9)), (JobState::OutOfMemory, Reason::OutOfMemory));
    assert_eq!(ended(LaunchFailed, ExitCode::LAUNCH_FAILED), (JobState::Failed, Reason::JobLaunchFailure));
    assert_eq!(ended(RunnerLost, ExitCode::OK), (JobState::Failed, Reason::RunnerLost));
}

#[test]
fn a_terminal_state_is_never_overwritten() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.end(id, EndCause::TimeLimit, ExitCode::signal(15));
    d.end(id, EndCause::Exited, ExitCode::OK);
    assert_eq!(d.cancel(&JobRef::job(id)), Err(Refusal::AlreadyDone));
    assert_eq!(d.state(id), JobState::Timeout);
}

#[test]
fn a_failed_job_is_requeued_once_and_a_completed_or_cancelled_one_never() {
    for (cause, exit) in [
        (EndCause::Exited, ExitCode::status(1)),
        (EndCause::TimeLimit, ExitCode::signal(15)),
        (EndCause::OutOfMemory, ExitCode::signal(9)),
    ] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask().with(|r| r.requeue = true));
        d.plan();
        d.end(id, cause, exit);
        assert_eq!((d.state(id), d.core.job(id).unwrap().run.restarts), (JobState::Pending, 1));
        d.plan();
        let Some(Effect::Launch(launch)) = d.effects.last() else { panic!("{:?}", d.effects) };
        assert_eq!(launch.run.restarts, 1);
        d.end(id, cause, exit);
        assert!(d.state(id).is_terminal());
    }
    let mut d = Double::new(2, 1000, 0);
    let good = d.submit(ask().with(|r| r.requeue = true));
    let cancelled = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    d.end(good, EndCause::Exited, ExitCode::OK);
    d.cancel(&JobRef::job(cancelled)).unwrap();
    d.end(cancelled, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!((d.state(good), d.state(cancelled)), (JobState::Completed, JobState::Cancelled));
}

#[test]
fn a_job_that_was_never_launched_is_pending_again_without_a_restart() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.end(id, EndCause::NeverLaunched, ExitCode::OK);
    let job = d.core.job(id).unwrap();
    assert_eq!((job.run.state, job.run.restarts, job.run.start, &job.run.alloc), (JobState::Pending, 0, None, &None));
    d.plan();
    assert_eq!(d.started(), [id, id]);
}

#[test]
fn cancelling_goes_through_completing_and_says_who_did_it() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(pending)).unwrap();
    d.cancel(&JobRef::job(running)).unwrap();
    assert_eq!((d.state(pending), d.reason(pending)), (JobState::Cancelled, Reason::CancelledByUser));
    assert_eq!(d.state(running), JobState::Completing);
    assert_eq!(d.stops(), [(running, StopCause::Cancelled { by: 1001 })]);
    assert_eq!(d.cancel(&JobRef::job(running)), Err(Refusal::AlreadyDone));
    d.end(running, EndCause::Stopped, ExitCode::signal(15));
    let job = d.core.job(running).unwrap();
    assert_eq!(
        (job.run.state, job.run.cancelled_by, job.run.exit),
        (JobState::Cancelled, Some(1001), ExitCode::signal(15))
    );
    assert_eq!(d.cancel(&JobRef::job(JobId(99))), Err(Refusal::UnknownJob));
}

#[test]
fn a_cancelled_job_that_ran_out_of_memory_is_out_of_memory() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::OutOfMemory, ExitCode::signal(9));
    assert_eq!(d.state(id), JobState::OutOfMemory);
}

#[test]
fn resources_stay_taken_until_the_processes_are_gone() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask());
    let next = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!(d.state(next), JobState::Pending);
    d.end(first, EndCause::Stopped, ExitCode::signal(15));
    d.plan();
    assert_eq!(d.state(next), JobState::Running);
}

#[test]
fn the_lost_client_of_an_allocation_ends_it() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask().allocation());
    let pending = d.submit(ask().allocation());
    d.plan();
    for id in [running, pending] {
        d.act(|core, cx| core.client_lost(id, cx));
    }
    assert_eq!((d.state(pending), d.reason(pending)), (JobState::Cancelled, Reason::ClientLost));
    assert_eq!(d.stops(), [(running, StopCause::ClientLost)]);
    d.end(running, EndCause::Stopped, ExitCode::OK);
    assert_eq!((d.state(running), d.reason(running)), (JobState::Cancelled, Reason::ClientLost));
}

#[test]
fn a_released_allocation_ends_as_its_command_did_after_its_steps_are_gone() {
    let mut d = Double::new(2, 1000, 0);
    let plain = d.submit(ask().allocation());
    let with_steps = d.submit(ask().allocation());
    d.plan();
    d.act(|core, cx| core.create_step(with_steps, step(1), StepAsker::default(), cx)).unwrap();
    for id in [plain, with_steps] {
        d.act(|core, cx| core.release_allocation(id, ExitCode::status(3), cx));
    }
    assert_eq!((d.state(plain), d.core.job(plain).unwrap().run.exit), (JobState::Failed, ExitCode::status(3)));
    assert_eq!(d.state(with_steps), JobState::Completing);
    assert_eq!(d.stops(), [(with_steps, StopCause::Released)]);
    d.end(with_steps, EndCause::Stopped, ExitCode::signal(9));
    let job = d.core.job(with_steps).unwrap();
    assert_eq!((job.run.state, job.run.exit), (JobState::Failed, ExitCode::status(3)));
    assert!(job.steps.iter().all(|step| step.state.is_terminal()));
}

#[test]
fn ended_jobs_leave_the_memory_after_a_while() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.exit(id, 0);
    d.wait(299);
    assert!(d.core.job(id).is_some());
    d.wait(1);
    assert!(d.core.job(id).is_none());
    assert_eq!(d.effects.last(), Some(&Effect::Gone(id)));
}

// Hold, requeue, suspend, signal.

#[test]
fn a_held_job_stays_pending_until_it_is_released() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().held());
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
    assert_eq!(d.core.view(id, d.now).unwrap().priority, 0);
    d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
    d.plan();
    assert_eq!(d.state(id), JobState::Running);
    d.act(|core, cx| core.hold(&JobRef::job(id), Hold::User, cx)).unwrap();
    assert_eq!(d.state(id), JobState::Running);
    d.exit(id, 0);
    let hold = d.act(|core, cx| core.hold(&JobRef::job(id), Hold::User, cx));
    assert_eq!(hold.unwrap_err().to_string(), "Job has already finished");
}

#[test]
fn an_update_of_the_gpus_takes_count_and_model() {
    let mut d = Double::new(1, 1000, 0);
    let mut host = d.core.config().host.clone();
    host.gpus = vec![partition::Gpu { id: 0, model: Some("nvidia_t4".to_string()) }];
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(host, partitions, cx.now));
    let id = d.submit(ask().held().with(|r| r.gpu.cpus_per_gpu = Some(1)));
    for (count, model) in [(1, Some("t4".to_string())), (0, None)] {
        let gpu = GpuRequest { per_node: Some(count), model, ..GpuRequest::default() };
        d.act(|core, cx| core.update(&JobRef::job(id), &[Update::Gpus(gpu.clone())], &[], cx)).unwrap();
        let job = d.core.job(id).unwrap();
        assert_eq!((job.tres.gpus, &job.request.gpu), (count, &GpuRequest { cpus_per_gpu: Some(1), ..gpu }));
    }
    let gpu = GpuRequest { per_node: Some(1), model: Some("none_such".into()), ..GpuRequest::default() };
    let refused = d.act(|core, cx| core.update(&JobRef::job(id), &[Update::Gpus(gpu)], &[], cx));
    assert_eq!(refused, Err(Refusal::ConfigNotAvailable), "the model counts");
}

#[test]
fn top_leaves_a_held_job_held() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().held());
    let top = d.act(|core, cx| core.top(&JobRef::job(id), cx));
    assert_eq!(top.unwrap_err().to_string(), "Job is in held state, pending scheduler release");
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
}

#[test]
fn requeue_brings_a_running_or_ended_job_back_with_its_number() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    let requeue = |d: &mut Double, hold| d.act(|core, cx| core.requeue(&JobRef::job(id), hold, cx));
    assert_eq!(requeue(&mut d, false), Err(Refusal::Pending));
    d.plan();
    requeue(&mut d, false).unwrap();
    assert_eq!(d.stops(), [(id, StopCause::Requeue)]);
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!((d.state(id), d.core.job(id).unwrap().run.restarts), (JobState::Pending, 1));
    d.plan();
    d.exit(id, 0);
    requeue(&mut d, true).unwrap();
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
    assert_eq!(d.core.job(id).unwrap().run.restarts, 2);
    assert_eq!(requeue(&mut d, false).unwrap_err().to_string(), "Job is pending execution");
    let fixed = d.submit(ask().with(|r| r.no_requeue = true));
    d.plan();
    let refused = d.act(|core, cx| core.requeue(&JobRef::job(fixed), false, cx));
    assert_eq!(refused.unwrap_err().to_string(), "Requested operation is presently disabled");
}

#[test]
fn what_goes_back_to_the_queue_leaves_a_record_of_its_run() {
    let mut d = Double::new(2, 1000, 0);
    let id = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    let first = d.now;
    let StepStart::Now(key, _) = d.act(|core, cx| core.create_step(id, step(1), StepAsker::default(), cx)).unwrap()
    else {
        panic!()
    };
    d.act(|core, cx| core.requeue(&JobRef::job(id), false, cx)).unwrap();
    end_step(&mut d, key, ExitCode::signal(15));
    d.end(id, EndCause::Stopped, ExitCode::status(3));
    let (of, run) = d.runs.pop().unwrap();
    assert_eq!((of, run.run.restarts, run.requeued, run.run.state), (id, 0, true, JobState::Cancelled));
    assert_eq!((run.run.exit, run.run.start, run.run.end), (ExitCode::status(3), Some(first), Some(d.now)));
    assert_eq!(
        run.steps.iter().map(|step| (step.id, step.exit)).collect::<Vec<_>>(),
        [(key.step, ExitCode::signal(15))]
    );
    let job = d.core.job(id).unwrap();
    assert_eq!((job.run.restarts, job.next_step, job.steps.len()), (1, 0, 0), "the next run counts anew");
    let script = own_step(&run.clone().record(job)).unwrap();
    assert_eq!((script.state, script.exit), (JobState::Failed, ExitCode::status(3)));

    d.plan();
    d.exit(id, 0);
    d.act(|core, cx| core.requeue(&JobRef::job(id), false, cx)).unwrap();
    let run = d.runs.pop().unwrap().1;
    assert_eq!((run.run.restarts, run.requeued, run.run.state), (1, false, JobState::Completed));

    d.plan();
    d.end(id, EndCause::NeverLaunched, ExitCode::OK);
    assert_eq!((d.state(id), d.runs.len()), (JobState::Pending, 0), "nothing ran");
}

#[test]
fn a_first_failure_that_is_tried_again_leaves_a_record_of_it() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    d.exit(id, 5);
    let run = d.runs.pop().unwrap().1;
    assert_eq!((run.run.restarts, run.requeued, run.run.state), (0, false, JobState::Failed));
    assert_eq!((run.run.exit, run.run.reason), (ExitCode::status(5), Reason::NonZeroExitCode));
}

#[test]
fn a_job_that_is_cancelled_while_it_is_requeued_does_not_come_back() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.act(|core, cx| core.requeue(&JobRef::job(id), false, cx)).unwrap();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!(d.state(id), JobState::Cancelled);
}

#[test]
fn a_suspended_job_has_its_clock_stopped() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().limit(100));
    let sel = JobRef::job(id);
    let suspend = |d: &mut Double| d.act(|core, cx| core.suspend(&sel, cx));
    assert_eq!(suspend(&mut d).unwrap_err().to_string(), "Job is pending execution");
    d.plan();
    let start = d.now;
    d.wait(10);
    suspend(&mut d).unwrap();
    d.wait(50);
    d.act(|core, cx| core.resume(&sel, cx)).unwrap();
    assert_eq!(d.core.job(id).unwrap().run.suspended_us, 50_000_000);
    let view = d.core.view(id, d.now).unwrap();
    let batch = view.steps.iter().find(|step| step.id == StepId::Batch).unwrap();
    assert_eq!(view.step_elapsed(batch, d.now).as_secs(), 10);
    let limit = Effect::SetTimeLimit { job: id, limit_secs: Some(100), start, suspended_us: 50_000_000 };
    assert_eq!(d.effects[1..], [Effect::Suspend(id), Effect::Resume(id), limit]);
    assert_eq!(d.core.expected_end(id, d.now), Some(start.plus_secs(150)));
}

#[test]
fn a_signal_reaches_running_jobs_and_sigkill_cancels() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    let signal =
        |d: &mut Double, id, n| d.act(|core, cx| core.signal(&JobRef::job(id), SignalTarget::Steps, n, 1001, cx));
    signal(&mut d, running, 10).unwrap();
    assert_eq!(d.effects.last(), Some(&Effect::Signal { job: running, target: SignalTarget::Steps, signal: 10 }));
    assert_eq!(signal(&mut d, pending, 10).unwrap_err().to_string(), "Job can not be altered now, try again later");
    signal(&mut d, pending, 9).unwrap();
    signal(&mut d, running, 9).unwrap();
    assert_eq!(d.state(pending), JobState::Cancelled);
    assert_eq!(d.stops(), [(running, StopCause::Killed { by: 1001 })]);
    for n in [9, 10] {
        assert_eq!(signal(&mut d, pending, n).unwrap_err().to_string(), "Invalid job id specified", "it is over");
    }
}

// Arrays.

#[test]
fn a_pending_array_is_one_record_and_its_last_task_has_its_number() {
    let mut d = Double::new(4, 1000, 0);
    let array = d.submit(ask().array(1, 3, None));
    assert_eq!(d.core.jobs().count(), 1);
    d.plan();
    let started = d.started();
    assert_eq!(d.labels(&started), ["1_1", "1_2", "1_3"]);
    assert_eq!(started, [JobId(2), JobId(3), array]);
    assert_eq!(d.store.len(), 3);
}

#[test]
fn a_million_tasks_cost_what_one_costs() {
    let mut d = Double::new(2, 1000, 0);
    let array = d.submit(ask().array(0, 999_999, Some(2)));
    d.plan();
    assert_eq!(d.started().len(), 2);
    assert_eq!((d.core.jobs().count(), d.reason(array)), (3, Reason::JobArrayTaskLimit));
    d.cancel(&JobRef::job(array)).unwrap();
    assert_eq!((d.core.jobs().count(), d.state(array)), (3, JobState::Cancelled));
}

#[test]
fn array_limit_blocks_third_task() {
    let mut d = Double::new(4, 1000, 0);
    let array = d.submit(ask().array(1, 9, Some(2)));
    let other = d.submit(ask());
    d.plan();
    let started = d.started();
    assert_eq!(d.labels(&started), ["1_1", "3", "1_2"].map(|l| l.replace('3', &other.to_string())));
    assert_eq!(d.reason(array), Reason::JobArrayTaskLimit);
    d.exit(started[0], 0);
    let next = d.started();
    assert_eq!(d.labels(&next), ["1_3"]);
}

#[test]
fn single_tasks_and_ranges_of_a_pending_array_can_be_cancelled() {
    let mut d = Double::new(1, 1000, 0);
    let array = d.submit(ask().array(1, 9, None).held());
    let one = d.cancel(&tasks_of(array, &[5])).unwrap();
    let range = d.cancel(&tasks_of(array, &[7, 8])).unwrap();
    assert_eq!(d.labels(&one), ["1_5"]);
    assert_eq!(d.labels(&range), ["1_[7-8]"]);
    assert_eq!(d.label(array), "1_[1-4,6,9]");
    assert_eq!(
        [one[0], range[0], array].map(|id| d.state(id)),
        [JobState::Cancelled, JobState::Cancelled, JobState::Pending]
    );
    assert_eq!(d.cancel(&tasks_of(array, &[5])), Err(Refusal::AlreadyDone));
    assert_eq!(d.cancel(&tasks_of(array, &[77])), Err(Refusal::UnknownJob));
    d.cancel(&tasks_of(array, &(0..20).collect::<Vec<u32>>())).unwrap();
    assert_eq!((d.state(array), d.label(array)), (JobState::Cancelled, "1_[1-4,6,9]".to_string()));
}

#[test]
fn tasks_that_are_held_together_stay_one_record_and_run_when_released() {
    let mut d = Double::new(9, 1000, 0);
    let array = d.submit(ask().array(1, 9, None));
    let held = d.act(|core, cx| core.hold(&tasks_of(array, &[2, 3, 4]), Hold::User, cx)).unwrap();
    assert_eq!(d.labels(&held), ["1_[2-4]"]);
    d.plan();
    assert_eq!((d.started().len(), d.reason(held[0])), (6, Reason::JobHeldUser));
    d.act(|core, cx| core.release(&tasks_of(array, &[2, 3, 4]), cx)).unwrap();
    d.plan();
    let started = d.started();
    assert_eq!(d.labels(&started), ["1_2", "1_3", "1_4"]);
    assert_eq!(started[2], held[0]);
}

#[test]
fn the_throttle_of_an_array_can_be_changed() {
    let mut d = Double::new(9, 1000, 0);
    let array = d.submit(ask().array(1, 9, Some(1)));
    d.plan();
    let throttle = |d: &mut Double, n| {
        d.act(|core, cx| core.update(&JobRef::job(array), &[Update::ArrayTaskThrottle(n)], &[], cx)).unwrap();
        d.plan();
        d.started().len()
    };
    assert_eq!(d.started().len(), 1);
    assert_eq!(throttle(&mut d, Some(3)), 2);
    assert_eq!(throttle(&mut d, Some(2)), 0);
    assert_eq!(throttle(&mut d, None), 6);
}

// Dependencies.

#[test]
fn each_kind_of_dependency_waits_for_its_condition() {
    for (kind, status, is_met) in [
        (AfterOk, 0, true),
        (AfterOk, 1, false),
        (AfterNotOk, 0, false),
        (AfterNotOk, 1, true),
        (AfterAny, 0, true),
        (AfterAny, 1, true),
        (After, 0, true),
        (After, 1, true),
        (AfterCorr, 0, true),
        (AfterCorr, 1, false),
    ] {
        let mut d = Double::new(2, 1000, 0);
        let first = d.submit(ask());
        let second = d.submit(ask().after(kind, first));
        assert_eq!(d.reason(second), Reason::Dependency);
        let text = d.core.view(second, d.now).unwrap().dependency;
        assert_eq!(text, format!("{}:{first}(unfulfilled)", kind.name()));
        d.plan();
        d.plan();
        assert_eq!(d.state(second) == JobState::Running, kind == After, "{kind:?} while it runs");
        d.exit(first, status);
        if is_met {
            assert_eq!(d.state(second), JobState::Running, "{kind:?} after exit {status}");
        } else {
            assert_eq!(d.reason(second), Reason::DependencyNeverSatisfied, "{kind:?} after exit {status}");
            assert_eq!(d.core.view(second, d.now).unwrap().dependency, format!("{}:{first}(failed)", kind.name()));
        }
    }
}

#[test]
fn after_with_minutes_counts_from_the_start() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask());
    let term = DependencyTerm::On { kind: After, job: JobRef::job(first), delay_minutes: 5 };
    let second = d.submit(ask().dependency(Dependency { terms: vec![term], any: false }));
    d.plan();
    d.wait(100);
    assert_eq!(d.state(second), JobState::Pending);
    assert_eq!(d.core.next_due(), Some(Timestamp::from_secs(T0 + 300)));
    d.wait(200);
    assert_eq!(d.state(second), JobState::Running);
}

#[test]
fn a_cancelled_job_counts_as_started_and_as_failed() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask().held());
    let after = d.submit(ask().after(After, first));
    let ok = d.submit(ask().after(AfterOk, first));
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!((d.state(after), d.reason(ok)), (JobState::Running, Reason::DependencyNeverSatisfied));
}

#[test]
fn all_terms_must_hold_or_with_a_question_mark_one() {
    let mut d = Double::new(4, 1000, 0);
    let (good, bad) = (d.submit(ask()), d.submit(ask()));
    let terms = vec![on(AfterOk, good), on(AfterOk, bad)];
    let all = d.submit(ask().dependency(Dependency { terms: terms.clone(), any: false }));
    let any = d.submit(ask().dependency(Dependency { terms, any: true }));
    d.plan();
    d.exit(bad, 1);
    assert_eq!((d.reason(all), d.reason(any)), (Reason::DependencyNeverSatisfied, Reason::Dependency));
    d.exit(good, 0);
    assert_eq!((d.state(all), d.state(any)), (JobState::Pending, JobState::Running));
}

#[test]
fn kill_on_invalid_dep_cancels_a_whole_chain() {
    let mut d = Double::new(1, 1000, 0);
    let mut last = d.submit(ask());
    let first = last;
    for _ in 0..2000 {
        last = d.submit(ask().after(AfterOk, last).with(|r| r.kill_on_invalid_dep = true));
    }
    d.plan();
    d.exit(first, 1);
    assert_eq!((d.state(last), d.reason(last)), (JobState::Cancelled, Reason::DependencyNeverSatisfied));
}

#[test]
fn a_dependency_on_an_unknown_job_is_refused_and_names_it() {
    let mut d = Double::new(1, 1000, 0);
    assert_eq!(
        refusal(&mut d, ask().after(AfterOk, JobId(99))),
        ["no job 99 for dependency afterok:99", "Batch job submission failed: Job dependency problem"]
    );
    assert_eq!(d.core.next_id(), JobId(1));
}

#[test]
fn a_job_that_has_left_the_memory_can_still_be_depended_on() {
    let mut d = Double::new(4, 1000, 0);
    let fact = |id, ok| EndedJob { id: JobId(id), array: None, ok, start: None, ended: d.now };
    let ended = vec![fact(70, true), fact(71, false)];
    let mut submit = |kind, id| {
        let request = ask().after(kind, JobId(id)).0;
        let s = Submission { request, ended: ended.clone(), ..Submission::default() };
        d.act(|core, cx| core.submit(s, cx)).unwrap()
    };
    let ids = [submit(AfterOk, 70), submit(AfterOk, 71), submit(AfterAny, 71), submit(AfterNotOk, 71)];
    d.plan();
    assert_eq!(ids.map(|id| d.state(id) == JobState::Running), [true, false, true, true]);
    assert_eq!(d.reason(ids[1]), Reason::DependencyNeverSatisfied);
}

#[test]
fn an_array_id_means_all_its_tasks() {
    let mut d = Double::new(1, 1000, 0);
    let array = d.submit(ask().array(1, 3, None));
    let ok = d.submit(ask().after(AfterOk, array));
    let any = d.submit(ask().after(AfterAny, array));
    let one = d.submit(ask().dependency(Dependency {
        terms: vec![DependencyTerm::On { kind: AfterOk, job: tasks_of(array, &[1]), delay_minutes: 0 }],
        any: false,
    }));
    assert_eq!(d.core.view(ok, d.now).unwrap().dependency, "afterok:1_*(unfulfilled)");
    d.plan();
    let first = d.started();
    d.exit(first[0], 0);
    assert_ne!(d.reason(one), Reason::Dependency);
    assert_eq!((d.reason(ok), d.reason(any)), (Reason::Dependency, Reason::Dependency));
    // Everything ends well but the last task.
    while let [id] = d.started()[..] {
        let is_last = d.label(id) == "1_3";
        d.exit(id, i32::from(is_last));
    }
    assert_eq!((d.reason(ok), d.state(any)), (Reason::DependencyNeverSatisfied, JobState::Completed));
}

#[test]
fn aftercorr_waits_for_the_task_of_the_same_number() {
    let mut d = Double::new(3, 1000, 0);
    let first = d.submit(ask().array(1, 3, None));
    let second = d.submit(ask().array(1, 3, None).after(AfterCorr, first));
    d.plan();
    let tasks = d.started();
    assert_eq!(d.reason(second), Reason::Dependency);
    d.exit(tasks[1], 0);
    let started = d.started();
    assert_eq!(d.labels(&started), [format!("{second}_2")]);
    d.exit(tasks[0], 1);
    assert_eq!(d.reason(second), Reason::Dependency);
    d.exit(tasks[2], 0);
    let started = d.started();
    assert_eq!(d.labels(&started), [format!("{second}_3")]);
    assert_eq!((d.label(second), d.reason(second)), (format!("{second}_[1]"), Reason::DependencyNeverSatisfied));
}

#[test]
fn a_task_that_is_held_out_of_an_aftercorr_array_still_waits_for_its_own_counterpart() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask().array(1, 2, None));
    let second = d.submit(ask().array(1, 2, None).after(AfterCorr, first));
    let own = d.act(|core, cx| core.hold(&tasks_of(second, &[2]), Hold::User, cx)).unwrap()[0];
    d.act(|core, cx| core.release(&tasks_of(second, &[2]), cx)).unwrap();
    d.plan();
    let tasks = d.started();
    assert_eq!((tasks.len(), d.reason(own)), (2, Reason::Dependency));
    d.exit(tasks[1], 0);
    assert_eq!(d.state(own), JobState::Running);
}

#[test]
fn the_rest_of_an_aftercorr_array_is_looked_at_again_when_a_ready_task_leaves_it() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask().array(0, 1, None));
    d.plan();
    let task = d.started();
    d.exit(task[0], 1);
    let task = d.started();
    d.exit(task[0], 0);
    d.submit(ask());
    d.plan();
    let second = d.submit(ask().array(0, 1, None).after(AfterCorr, first));
    assert_eq!(d.reason(second), Reason::Resources);
    d.act(|core, cx| core.hold(&tasks_of(second, &[1]), Hold::User, cx)).unwrap();
    assert_eq!(d.reason(second), Reason::DependencyNeverSatisfied);
    assert!(d.core.queue.first().is_none());
}

#[test]
fn two_queued_singletons_never_block_each_other_and_run_one_after_the_other() {
    let mut d = Double::new(4, 1000, 0);
    let ids: Vec<JobId> = (0..3).map(|_| d.submit(ask().name("one").singleton())).collect();
    let other = d.submit(ask().name("two").singleton());
    d.plan();
    assert_eq!(d.started(), [ids[0], other]);
    assert_eq!(d.core.view(ids[1], d.now).unwrap().dependency, "singleton(unfulfilled)");
    d.exit(ids[0], 0);
    assert_eq!(d.started(), [ids[1]]);
    d.cancel(&JobRef::job(ids[1])).unwrap();
    d.end(ids[1], EndCause::Stopped, ExitCode::OK);
    d.plan();
    assert_eq!(d.started(), [ids[2]]);
}

#[test]
fn a_singleton_goes_when_the_name_before_it_is_changed() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask().name("one").held());
    let second = d.submit(ask().name("one").singleton());
    d.plan();
    assert_eq!(d.reason(second), Reason::Dependency);
    d.act(|core, cx| core.update(&JobRef::job(first), &[Update::JobName("x".into())], &[], cx)).unwrap();
    d.plan();
    assert_eq!(d.state(second), JobState::Running);
}

// Update.

#[test]
fn of_several_partitions_the_first_that_is_named_is_taken() {
    let mut d = Double::new(4, 1000, 2);
    let id = d.submit(ask().held());
    let update = |d: &mut Double, names: &str| {
        let key = [Update::Partition(names.into())];
        d.act(|core, cx| core.update(&JobRef::job(id), &key, &[], cx))
    };
    for (names, chosen) in [("gpu,cpu", "gpu"), ("cpu,gpu", "cpu")] {
        update(&mut d, names).unwrap();
        let job = d.core.job(id).unwrap();
        assert_eq!((job.partition.as_str(), job.request.partition.as_deref()), (chosen, Some(names)));
    }
    assert_eq!(update(&mut d, "cpu,nope"), Err(Refusal::UnknownPartition("nope".into())));
}

#[test]
fn a_difference_of_the_time_limit_counts_for_each_job() {
    let mut d = Double::new(4, 1000, 0);
    let (limited, endless) = (d.submit(ask().with(|r| r.time_limit_secs = Some(600))), d.submit(ask()));
    let update = |d: &mut Double, id, by| {
        let key = [Update::TimeLimitBy(by)];
        d.act(|core, cx| core.update(&JobRef::job(id), &key, &[], cx))
    };
    for (by, secs) in [(60, 660), (-120, 540), (-10_000, 0)] {
        update(&mut d, limited, by).unwrap();
        assert_eq!(d.core.job(limited).unwrap().request.time_limit_secs, Some(secs));
    }
    assert_eq!(update(&mut d, endless, 60), Err(Refusal::NoTimeLimit));
}

#[test]
fn keys_for_pending_jobs_are_refused_on_running_ones_and_the_time_limit_is_not() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    let update = |d: &mut Double, id, u| d.act(|core, cx| core.update(&JobRef::job(id), &[u], &[], cx));
    for key in [Update::JobName("x".into()), Update::Partition("gpu".into()), Update::Priority(5)] {
        assert_eq!(update(&mut d, running, key), Err(Refusal::NotPending));
    }
    update(&mut d, running, Update::TimeLimit(Some(600))).unwrap();
    let start = d.now;
    assert_eq!(
        d.effects.last(),
        Some(&Effect::SetTimeLimit { job: running, limit_secs: Some(600), start, suspended_us: 0 })
    );
    update(&mut d, pending, Update::JobName("x".into())).unwrap();
    assert_eq!(d.store[&pending].request.name, "x");
    assert_eq!(update(&mut d, pending, Update::Partition("no".into())), Err(Refusal::UnknownPartition("no".into())));
    assert_eq!(
        update(&mut d, pending, Update::NumCpus(99)).unwrap_err().to_string(),
        "Requested partition configuration not available now"
    );
    d.exit(running, 0);
    assert_eq!(update(&mut d, running, Update::TimeLimit(None)), Err(Refusal::AlreadyFinished));
}

#[test]
fn a_changed_priority_changes_the_order_and_zero_holds() {
    let mut d = Double::new(1, 1000, 0);
    d.submit(ask());
    d.plan();
    let (a, b) = (d.submit(ask()), d.submit(ask()));
    let update = |d: &mut Double, id, u| d.act(|core, cx| core.update(&JobRef::job(id), &[u], &[], cx)).unwrap();
    update(&mut d, b, Update::Priority(100));
    assert_eq!(d.core.queue.first().map(|key| key.id), Some(b));
    d.act(|core, cx| core.top(&JobRef::job(a), cx)).unwrap();
    assert_eq!(d.core.queue.first().map(|key| key.id), Some(a));
    update(&mut d, a, Update::Priority(0));
    assert_eq!(d.reason(a), Reason::JobHeldUser);
}

#[test]
fn a_changed_dependency_is_checked_and_waited_for() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    d.plan();
    let id = d.submit(ask());
    let update = |d: &mut Double, terms| {
        let key = Update::Dependency(Dependency { terms, any: false });
        d.act(|core, cx| core.update(&JobRef::job(id), &[key], &[], cx))
    };
    assert!(matches!(
        update(&mut d, vec![on(AfterOk, JobId(99))]),
        Err(Refusal::UnknownDependency(_) | Refusal::DependsOnItself(_))
    ));
    assert!(matches!(
        update(&mut d, vec![on(AfterOk, id)]),
        Err(Refusal::UnknownDependency(_) | Refusal::DependsOnItself(_))
    ));
    update(&mut d, vec![on(AfterOk, running)]).unwrap();
    assert_eq!(d.reason(id), Reason::Dependency);
    update(&mut d, Vec::new()).unwrap();
    assert_eq!(d.reason(id), Reason::Resources);
}

// Steps.

fn step(ntasks: u32) -> StepRequest {
    StepRequest { name: "hostname".to_string(), ntasks: Some(ntasks), ..StepRequest::default() }
}

/// Asks for a step under this ticket.
fn create(d: &mut Double, job: JobId, request: StepRequest, ticket: u64) -> Result<StepStart, Refusal> {
    let asker = StepAsker { ticket, client: None };
    d.act(|core, cx| core.create_step(job, request, asker, cx))
}

fn end_step(d: &mut Double, key: StepKey, exit: ExitCode) {
    d.act(|core, cx| {
        let outcome = StepOutcome { exit, usage: Usage::default(), cause: EndCause::Exited, ended: cx.now };
        core.on_step_ended(key, outcome, cx);
    });
}

#[test]
fn a_job_that_reached_its_limit_is_a_timeout_however_it_ended_then() {
    for cause in [EndCause::Exited, EndCause::Stopped, EndCause::TimeLimit] {
        let mut d = Double::new(4, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.act(|core, cx| core.limit_reached(id, cx));
        assert_eq!(d.state(id), JobState::Completing);
        let jobs = d.store.values().cloned().collect();
        let again = Core::recover(d.core.config().clone(), jobs, Vec::new(), JobId(2), d.now);
        assert_eq!(again.unfinished_stops(), [(id, StopCause::TimeLimit)]);
        d.end(id, cause, ExitCode::OK);
        assert_eq!((d.state(id), d.core.job(id).unwrap().run.reason), (JobState::Timeout, Reason::TimeLimit));
    }
}

#[test]
fn a_step_that_was_never_launched_leaves_nothing_behind_and_its_client_asks_anew() {
    let mut d = Double::new(2, 1000, 0);
    let id = d.submit(ask().allocation().cpus(2));
    d.plan();
    let client = ClientProcess { pid: 7, start_ticks: 70 };
    let asker = StepAsker { ticket: 7, client: Some(client) };
    let start = d.act(|core, cx| core.create_step(id, step(1), asker, cx)).unwrap();
    let StepStart::Now(key, _) = start else { panic!("{start:?}") };
    assert_eq!(d.core.step_of(id, client).map(|step| step.id), Some(key.step));
    assert_eq!(d.core.step_of(id, ClientProcess { start_ticks: 71, ..client }), None);
    d.act(|core, cx| {
        let (exit, usage) = (ExitCode::OK, Usage::default());
        core.on_step_ended(key, StepOutcome { exit, usage, cause: EndCause::NeverLaunched, ended: cx.now }, cx);
    });
    assert_eq!(d.core.step_of(id, client), None);
    assert_eq!(d.store[&id].steps, []);
    let again = d.act(|core, cx| core.create_step(id, step(1), asker, cx)).unwrap();
    let StepStart::Now(next, _) = again else { panic!("its CPUs are free: {again:?}") };
    assert_eq!(next, key, "its number is free as well");
}

#[test]
fn steps_get_disjoint_cpus_and_wait_while_the_allocation_is_full() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2));
    d.plan();
    let narrow = || StepRequest { cpus_per_task: Some(1), ..step(1) };
    let StepStart::Now(first, a) = create(&mut d, job, narrow(), 1).unwrap() else { panic!() };
    let StepStart::Now(_, b) = create(&mut d, job, narrow(), 2).unwrap() else { panic!() };
    assert_eq!((a.cpu_ids, b.cpu_ids), (vec![0], vec![1]));
    assert_eq!(create(&mut d, job, narrow(), 3).unwrap(), StepStart::Waits);
    let overlapping = StepRequest { overlap: true, ..narrow() };
    let StepStart::Now(third, _) = create(&mut d, job, overlapping, 4).unwrap() else { panic!() };
    assert_eq!(third.step, StepId::Num(2));
    end_step(&mut d, first, ExitCode::status(4));
    let Some(Effect::LaunchStep { step, ticket: 3, alloc }) = d.effects.last() else { panic!("{:?}", d.effects) };
    assert_eq!((step.step, alloc.cpu_ids.clone()), (StepId::Num(3), vec![0]));
    assert_eq!(d.core.job(job).unwrap().run.derived_exit, ExitCode::status(4));
}

#[test]
fn a_step_that_waits_for_more_does_not_keep_back_one_that_fits() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(3));
    d.plan();
    let StepStart::Now(first, _) = create(&mut d, job, step(2), 1).unwrap() else { panic!() };
    assert_eq!(create(&mut d, job, step(3), 2).unwrap(), StepStart::Waits);
    assert!(matches!(create(&mut d, job, step(1), 3).unwrap(), StepStart::Now(..)), "it fits beside the first");
    assert_eq!(create(&mut d, job, step(1), 4).unwrap(), StepStart::Waits);
    end_step(&mut d, first, ExitCode::OK);
    let Some(Effect::LaunchStep { ticket, .. }) = d.effects.last() else { panic!("{:?}", d.effects) };
    assert_eq!(*ticket, 4, "all three CPUs are not free yet");
}

#[test]
fn a_step_has_no_cpus_per_task_from_its_job() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2));
    d.plan();
    let two = d.act(|core, cx| core.create_step(job, step(2), StepAsker::default(), cx));
    assert!(matches!(two, Ok(StepStart::Now(..))), "{two:?}");
}

#[test]
fn a_step_that_asks_for_more_than_its_job_has_is_refused() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2).mem(100));
    let refused = |d: &mut Double, request| create(d, job, request, 7).unwrap_err();
    assert_eq!(refused(&mut d, step(1)), Refusal::Pending);
    d.plan();
    assert_eq!(refused(&mut d, step(3)), Refusal::StepTooManyCpus);
    let large = StepRequest { mem: MemRequest::PerNode(5000), ..step(1) };
    assert_eq!(refused(&mut d, large), Refusal::StepTooMuchMemory);
}

#[test]
fn steps_that_name_gpus_get_different_ones() {
    let mut d = Double::new(4, 1000, 2);
    let job = d.submit(ask().allocation().cpus(4).gpus(2));
    d.plan();
    let gpu = || GpuRequest { total: Some(1), ..GpuRequest::default() };
    let one = || StepRequest { gpu: gpu(), cpus_per_task: Some(1), ..step(1) };
    let mut gpus = |request| match create(&mut d, job, request, 7).unwrap() {
        StepStart::Now(_, alloc) => Some(alloc.gpu_ids),
        StepStart::Waits => None,
    };
    assert_eq!([gpus(one()), gpus(one()), gpus(one())], [Some(vec![0]), Some(vec![1]), None]);
}

#[test]
fn steps_that_wait_are_refused_when_their_job_ends() {
    let mut d = Double::new(1, 1000, 0);
    let job = d.submit(ask().allocation());
    d.plan();
    for _ in 0..2 {
        d.act(|core, cx| core.create_step(job, step(1), StepAsker { ticket: 7, client: None }, cx)).unwrap();
    }
    d.cancel(&JobRef::job(job)).unwrap();
    assert!(d.effects.iter().any(|effect| matches!(effect, Effect::StepRefused { ticket: 7, .. })));
    assert_eq!(d.core.view(job, d.now).unwrap().steps.len(), 1);
}

#[test]
fn nothing_starts_in_a_suspended_job_until_it_is_resumed() {
    let mut d = Double::new(2, 1000, 0);
    let job = d.submit(ask().with(|r| r.ntasks = Some(2)).allocation());
    d.plan();
    let Ok(StepStart::Now(first, _)) = create(&mut d, job, step(1), 1) else { panic!("the job has room") };
    d.act(|core, cx| core.suspend(&JobRef::job(job), cx)).unwrap();
    assert_eq!(create(&mut d, job, step(1), 2), Ok(StepStart::Waits));
    let hurried = StepRequest { immediate: true, ..step(1) };
    assert_eq!(create(&mut d, job, hurried, 3), Err(Refusal::Busy));
    // Not even when a step of it ends.
    end_step(&mut d, first, ExitCode::OK);
    let launched = |d: &Double| d.effects.iter().any(|e| matches!(e, Effect::LaunchStep { ticket: 2, .. }));
    assert!(!launched(&d));
    d.act(|core, cx| core.resume(&JobRef::job(job), cx)).unwrap();
    assert!(launched(&d));
}

#[test]
fn cancelling_and_signalling_a_step_leaves_its_job_alone() {
    let mut d = Double::new(1, 1000, 0);
    let job = d.submit(ask().allocation());
    d.plan();
    d.act(|core, cx| core.create_step(job, step(1), StepAsker::default(), cx)).unwrap();
    let sel = JobRef { job, tasks: None, step: Some(StepId::Num(0)) };
    d.cancel(&sel).unwrap();
    let key = StepKey { job, step: StepId::Num(0) };
    assert_eq!(d.effects.last(), Some(&Effect::StopStep { step: key, cause: StopCause::Cancelled { by: 1001 } }));
    assert_eq!(d.state(job), JobState::Running);
    let unknown = JobRef { step: Some(StepId::Num(9)), ..sel };
    assert_eq!(d.cancel(&unknown), Err(Refusal::UnknownStep));
}

// Host, views, recovery.

#[test]
fn a_host_that_shrinks_leaves_running_jobs_alone_and_tells_pending_ones() {
    let mut d = Double::new(2, 1000, 2);
    let running = d.submit(ask().gpus(1));
    d.plan();
    let large = d.submit(ask().gpus(2));
    let mut smaller = d.core.config().host.clone();
    smaller.gpus.truncate(1);
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(smaller, partitions, cx.now));
    d.plan();
    assert_eq!((d.state(running), d.reason(large)), (JobState::Running, Reason::BadConstraints));
}

#[test]
fn the_script_of_a_cancelled_job_is_shown_as_a_cancelled_step() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    let step = own_step(d.core.job(id).unwrap()).unwrap();
    assert_eq!((step.id, step.state, step.exit), (StepId::Batch, JobState::Cancelled, ExitCode::signal(15)));
}

#[test]
fn what_caught_the_signal_and_chose_its_exit_code_has_failed_with_it() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    let request = StepRequest { overlap: true, ..step(1) };
    let StepStart::Now(catches, _) = create(&mut d, id, request.clone(), 7).unwrap() else { panic!() };
    let StepStart::Now(dies, _) = create(&mut d, id, request, 7).unwrap() else { panic!() };
    d.cancel(&JobRef::job(id)).unwrap();
    end_step(&mut d, catches, ExitCode::status(3));
    end_step(&mut d, dies, ExitCode::signal(15));
    d.end(id, EndCause::Stopped, ExitCode::status(9));
    let job = d.core.job(id).unwrap();
    assert_eq!(job.run.derived_exit, ExitCode::OK, "what ends while the job is stopped does not count");
    let steps: Vec<_> = own_step(job).into_iter().chain(job.steps.iter().cloned()).map(|s| (s.state, s.exit)).collect();
    assert_eq!(job.run.state, JobState::Cancelled);
    assert_eq!(
        steps,
        [
            (JobState::Failed, ExitCode::status(9)),
            (JobState::Failed, ExitCode::status(3)),
            (JobState::Cancelled, ExitCode::signal(15)),
        ]
    );
}

#[test]
fn what_caught_the_signal_and_ended_well_has_completed() {
    for (cause, exit, expected) in [
        (EndCause::Stopped, ExitCode::OK, (JobState::Completed, ExitCode::OK)),
        (EndCause::NeverLaunched, ExitCode::OK, (JobState::Cancelled, ExitCode::signal(15))),
        (EndCause::RunnerLost, ExitCode::OK, (JobState::Cancelled, ExitCode::signal(15))),
    ] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.cancel(&JobRef::job(id)).unwrap();
        d.end(id, cause, exit);
        let job = d.core.job(id).unwrap();
        assert_eq!(job.run.state, JobState::Cancelled, "{cause:?}");
        let script = own_step(job).unwrap();
        assert_eq!((script.state, script.exit), expected, "{cause:?}");
    }
}

#[test]
fn partitions_count_running_jobs_and_pending_tasks() {
    let mut d = Double::new(1, 1000, 1);
    d.submit(ask());
    d.submit(ask().array(0, 99, None));
    d.submit(ask().with(|r| r.partition = Some("gpu".into())));
    d.plan();
    let loads: Vec<(u64, u64)> = d.core.partition_loads().iter().map(|l| (l.running, l.pending)).collect();
    assert_eq!(loads, [(1, 100), (0, 1)]);
}

#[test]
fn after_a_restart_jobs_keep_their_resources_and_their_waiting() {
    let mut d = Double::new(2, 1000, 1);
    let running = d.submit(ask().gpus(1));
    let ok = d.submit(ask().after(AfterOk, running));
    let array = d.submit(ask().array(0, 9, Some(1)));
    d.plan();
    let jobs: Vec<Job> = d.store.values().cloned().collect();
    let next = d.core.next_id();
    let mut core = Core::recover(d.core.config().clone(), jobs, Vec::new(), next, d.now);
    core.check_invariants().unwrap();
    assert_eq!(core.allocated(), d.core.allocated());
    assert_eq!([ok, array].map(|id| core.reason(id, d.now)), [Reason::Dependency, Reason::JobArrayTaskLimit]);
    let mut cx = Cx::at(d.now);
    core.plan(&mut cx);
    assert!(cx.out.is_empty(), "nothing runs twice: {:?}", cx.out);
    let outcome =
        JobOutcome { exit: ExitCode::OK, usage: Usage::default(), cause: EndCause::Exited, ended: d.now, why: None };
    core.on_job_ended(running, outcome, &mut cx);
    core.plan(&mut cx);
    assert_eq!(core.job(ok).unwrap().run.state, JobState::Running);
}

#[test]
fn after_a_restart_it_is_known_what_was_being_stopped_and_why() {
    let mut d = Double::new(4, 1000, 0);
    let ids: Vec<JobId> = (0..4).map(|_| d.submit(ask())).collect();
    d.plan();
    d.cancel(&JobRef::job(ids[0])).unwrap();
    d.act(|core, cx| core.requeue(&JobRef::job(ids[1]), false, cx)).unwrap();
    d.act(|core, cx| core.client_lost(ids[2], cx));
    let jobs: Vec<Job> = d.store.values().cloned().collect();
    let core = Core::recover(d.core.config().clone(), jobs, Vec::new(), d.core.next_id(), d.now);
    assert_eq!(
        core.unfinished_stops(),
        [(ids[0], StopCause::Cancelled { by: 1001 }), (ids[1], StopCause::Requeue), (ids[2], StopCause::ClientLost)]
    );
}

#[test]
fn an_array_needs_tasks_that_exist_and_a_batch_job() {
    let mut d = Double::new(1, 1000, 0);
    let is_invalid = |d: &mut Double, ask: Ask| matches!(d.try_submit(ask), Err(Refusal::ArrayTooLarge { .. }));
    assert!(is_invalid(&mut d, ask().array(0, 5_000_000, None)));
    assert!(is_invalid(&mut d, ask().array(0, 5, None).allocation()));
    let empty = ask().with(|r| r.array = Some(ArraySpec { tasks: TaskSet::new(), limit: None }));
    assert!(is_invalid(&mut d, empty));
}
