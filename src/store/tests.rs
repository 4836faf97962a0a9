//! Arbitrary jobs for property tests.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use slotd_model::array::{ArraySpec, TaskSet};
use slotd_model::gpu::GpuShare;
use slotd_model::job::{Client, ClientProcess, FailedLaunches, Hold, OwnTexts};
use slotd_model::preempt::{PreemptMode, Preempted, Resumption};
use slotd_model::request::MemRequest;
use slotd_model::run::RunState;
use slotd_model::tres::{Allocation, GpuUsage, Spread, TaskUsage, Usage};
use slotd_model::{
    ArrayRole, BootId, ClockBase, End, ExitCode, Job, JobId, JobRequest, JobState, Reason, Step,
    StepId, Timestamp, Tres,
};
use std::sync::Arc;

fn timestamp() -> impl Strategy<Value = Timestamp> {
    // A narrow range, so that some times are equal, or the full range.
    prop_oneof![(0i64..20).prop_map(Timestamp), any::<i64>().prop_map(Timestamp)]
}

fn stored_u64() -> impl Strategy<Value = u64> {
    0..=i64::MAX.cast_unsigned()
}

fn tasks() -> impl Strategy<Value = TaskSet> {
    btree_set(0u32..60, 0..20)
        .prop_map(|ids| TaskSet::from_sorted(&ids.into_iter().collect::<Vec<_>>()))
}

fn exit() -> impl Strategy<Value = ExitCode> {
    any::<(i32, i32)>().prop_map(|(status, signal)| ExitCode { status, signal })
}

fn usage() -> impl Strategy<Value = Usage> {
    let spread = (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(max, task, total)| Spread {
        max,
        task,
        total,
    });
    let tasks = vec(spread, 4).prop_map(|s| TaskUsage {
        vm_kb: s[0],
        pages: s[1],
        read: s[2],
        written: s[3],
    });
    let tasks = prop_oneof![Just(TaskUsage::default()), tasks];
    let gpu = (any::<u64>(), any::<u64>()).prop_map(|(busy, mem_mb)| GpuUsage::once(busy, mem_mb));
    let gpu = prop_oneof![Just(GpuUsage::default()), gpu];
    let all = (stored_u64(), stored_u64(), stored_u64(), gpu, tasks);
    all.prop_map(|(max_rss_kb, user_us, system_us, gpu, tasks)| Usage {
        max_rss_kb,
        user_us,
        system_us,
        gpu,
        tasks,
        host_ooms: None,
    })
}

fn tres() -> impl Strategy<Value = Tres> {
    let amounts = (any::<u32>(), stored_u64(), any::<u32>(), stored_u64(), any::<u32>());
    amounts.prop_map(|(cpus, mem_mb, gpus, gpu_mem_mb, shards)| Tres {
        cpus,
        mem_mb,
        gpus,
        gpu_mem_mb,
        shards,
    })
}

fn allocation() -> impl Strategy<Value = Allocation> {
    let share = prop_oneof![
        Just(GpuShare::Whole),
        stored_u64().prop_map(GpuShare::MemMb),
        any::<u32>().prop_map(GpuShare::Shards)
    ];
    let uuids = btree_map(any::<u32>(), "[a-zA-Z0-9-]{1,9}", 0..3);
    let parts = (tres(), vec(any::<u32>(), 0..4), vec(any::<u32>(), 0..4), share, uuids);
    parts.prop_map(|(tres, cpu_ids, gpu_ids, gpu_share, gpu_uuids)| Allocation {
        tres,
        cpu_ids,
        gpu_ids,
        gpu_share,
        gpu_uuids,
    })
}

fn state() -> impl Strategy<Value = JobState> {
    proptest::sample::select(&JobState::ALL[..])
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = prop_oneof![
        Just(StepId::Batch),
        Just(StepId::Interactive),
        any::<u32>().prop_map(StepId::Num)
    ];
    let ids = btree_set(id, 0..4);
    let one = (
        any::<String>(),
        any::<u32>(),
        state(),
        timestamp(),
        option::of(timestamp()),
        exit(),
        allocation(),
    );
    let rest = (any::<String>(), any::<bool>(), option::of(process()));
    (ids, one, usage(), rest).prop_map(|(ids, one, usage, (submit_line, overlap, client))| {
        let (name, ntasks, state, start, end, exit, alloc) = one;
        let of = |id| Step {
            id,
            name: name.clone(),
            ntasks,
            state,
            start,
            end,
            exit,
            alloc: alloc.clone(),
            usage,
            submit_line: submit_line.clone(),
            overlap,
            time_limit_secs: overlap.then_some(usage.user_us),
            client_gone: false,
            cancelled_by: Some(7),
            suspended_us: usage.user_us / 3,
            clock: None,
            stepped_us: usage.user_us as i64 / -7,
            managed: false,
            client,
        };
        ids.into_iter().map(of).collect()
    })
}

fn process() -> impl Strategy<Value = ClientProcess> {
    (any::<u32>(), stored_u64(), any::<u128>()).prop_map(|(pid, start_ticks, boot)| ClientProcess {
        pid,
        start_ticks,
        boot: BootId(boot),
    })
}

/// Requests are built from a few words, so that some are equal.
fn request() -> impl Strategy<Value = JobRequest> {
    let word = || proptest::sample::select(&["", "a", "b", "ü \"'\n"][..]).prop_map(str::to_owned);
    (word(), word(), option::of(word()), option::of(tasks()), vec(any::<String>(), 0..2)).prop_map(
        |(name, user, account, tasks, args)| JobRequest {
            name,
            user,
            account,
            args,
            array: tasks.map(|tasks| ArraySpec { tasks, limit: None }),
            mem: MemRequest::PerCpu(3),
            ..JobRequest::default()
        },
    )
}

fn role(id: JobId) -> impl Strategy<Value = ArrayRole> {
    let rest = (tasks(), option::of(any::<u32>()))
        .prop_map(|(tasks, limit)| ArrayRole::Rest { tasks, limit });
    // Array IDs that other records of the test may have, too.
    let task = (1u32..8, 0u32..60)
        .prop_map(|(array, task)| ArrayRole::Task { array_job: JobId(array), task });
    let part = (9u32..12, tasks())
        .prop_map(|(array, tasks)| ArrayRole::Part { array_job: JobId(array), tasks });
    prop_oneof![
        Just(ArrayRole::None),
        rest,
        task,
        part,
        Just(ArrayRole::Task { array_job: id, task: 7 })
    ]
}

/// Returns any job with this ID that satisfies the one guarantee of the scheduler that queries rely
/// on: a job has an end time if and only if it has ended.
pub(crate) fn any_job(id: u32) -> impl Strategy<Value = Job> {
    let id = JobId(id);
    let words = (
        proptest::sample::select(&["cpu", "gpu", "gpu,cpu"][..]),
        proptest::sample::select(Reason::ALL),
        state(),
    );
    let hold = proptest::sample::select(&[Hold::No, Hold::User, Hold::Admin][..]);
    let times = (timestamp(), vec(option::of(timestamp()), 4), stored_u64());
    let numbers =
        (any::<u32>(), any::<u32>(), any::<u32>(), exit(), exit(), option::of(any::<u32>()));
    let held = (
        tres(),
        option::of(allocation()),
        usage(),
        steps(),
        option::of((process(), any::<bool>())),
    );
    (request(), role(id), words, hold, times, numbers, held).prop_map(
        move |(mut request, role, (partition, reason, state), hold, times, numbers, held)| {
            let (submit, times, suspended_us) = times;
            let (priority, restarts, next_step, exit, derived_exit, cancelled_by) = numbers;
            let (tres, alloc, usage, steps, client) = held;
            Job {
                id,
                role,
                own_texts: OwnTexts::take_out_of(&mut request),
                request: Arc::new(request),
                partition: partition.into(),
                tres,
                priority,
                hold,
                submit,
                failed_launches: FailedLaunches { deaths: priority % 3, faults: restarts % 7 },
                run: RunState {
                    state,
                    reason,
                    begin: times[2],
                    eligible: times[0],
                    start: times[1],
                    end: state.is_terminal().then(|| times[2].unwrap_or(submit)),
                    clock: times[3]
                        .map(|zero| ClockBase { boot: BootId(suspended_us.into()), zero })
                        .map(Box::new),
                    suspended_at: times[3],
                    stepped_us: suspended_us as i64 / -3,
                    stopped_at: times[3],
                    suspended_us,
                    ended_reservation: (restarts % 5 == 1).then(|| format!("r{priority}")),
                    preempted: times[0].filter(|_| restarts % 3 == 0).map(|at| {
                        let (until, by) = (at, JobId(priority));
                        let suspended = (restarts % 2 == 0).then_some(Resumption::ByItself);
                        let mode = PreemptMode::Requeue;
                        Box::new(Preempted { at, until, by, mode, suspended })
                    }),
                    exit,
                    derived_exit,
                    restarts,
                    rerun_after: (restarts == 1).then_some(End::Failed),
                    alloc: alloc.map(Box::new),
                    shrinks: restarts % 2 == 1,
                    usage: (usage != Usage::default()).then(|| Box::new(usage)),
                    cancelled_by,
                    system_comment: cancelled_by.map(|by| format!("words {by}")),
                },
                steps,
                next_step,
                client: client.map(|(process, holds)| Client {
                    process,
                    holds,
                    until_granted: false,
                }),
            }
        },
    )
}

/// Returns up to `most` jobs with consecutive IDs from 1.
pub(crate) fn any_jobs(most: u32) -> impl Strategy<Value = Vec<Job>> {
    (1..=most).map(any_job).collect::<Vec<_>>()
}
