//! Job arrays.

use super::*;
use slotd_model::array::TaskSet;
use slotd_model::job::ClientProcess;
use std::sync::Arc;

#[test]
fn a_pending_array_is_one_record_and_its_last_task_has_its_id() {
    let mut d = Double::new(4, 1000, 0);
    let array = d.submit(ask().array(1, 3, None));
    assert_eq!(d.core.jobs().count(), 1);
    d.plan();
    let started = d.started();
    assert_eq!(d.labels(&started), ["1_1", "1_2", "1_3"]);
    assert_eq!(started, [JobId(2), JobId(3), array]);
    assert_eq!(d.store.jobs.len(), 3);
}

#[test]
fn the_last_task_of_an_array_that_has_started_is_listed_as_a_task() {
    let mut d = Double::new(1, 1000, 0);
    let (one, all) = (d.submit(ask().array(5, 5, None)), d.submit(ask().array(1, 4, Some(1))));
    assert_eq!([d.label(one), d.label(all)], ["1_[5]", "2_[1-4]"]);
    // Tasks that are cancelled before they run leave no record of their own.
    d.cancel(&tasks_of(all, &[2])).unwrap();
    d.plan();
    let first = d.started()[0];
    d.exit(first, 0);
    d.plan();
    assert_eq!(d.label(all), "2_[3-4]");
    let second = d.started()[0];
    d.exit(second, 0);
    d.plan();
    assert_eq!((d.label(all), d.state(all)), ("2_4".to_owned(), JobState::Pending));
    // It still counts as one of the array.
    d.act(|core, cx| core.hold(&JobRef::job(all), Hold::User, cx)).unwrap();
    assert_eq!(d.reason(all), Reason::JobHeldUser);
    d.act(|core, cx| core.release(&JobRef::job(all), cx)).unwrap();
    let third = d.started()[0];
    d.exit(third, 0);
    d.plan();
    assert_eq!((d.started(), d.state(all)), (vec![all], JobState::Running));
}

#[test]
fn a_submission_is_found_by_its_process() {
    let mut d = Double::new(1, 1000, 0);
    let process = |pid| ClientProcess { pid, start_ticks: 1, ..ClientProcess::default() };
    let plain = d.submit(ask().held());
    let array = d.submit(ask().array(0, 3, None));
    d.plan();
    let first = d.started()[0];
    d.exit(first, 0);
    d.cancel(&tasks_of(array, &[2, 3])).unwrap();
    let of = |d: &Double| [1, 2, 3].map(|pid| d.core.records().submitted_by(process(pid)));
    assert_eq!(of(&d), [Some(plain), Some(array), None]);
    let rebooted = ClientProcess { boot: BootId(9), ..process(1) };
    assert_eq!(d.core.records().submitted_by(rebooted), None);
    let other = process(7);
    d.act(|core, cx| core.set_holder(plain, other, cx));
    assert_eq!(
        (of(&d), d.core.records().submitted_by(other)),
        ([None, Some(array), None], Some(plain))
    );
}

#[test]
fn submissions_with_other_arguments_share_one_request() {
    let mut d = Double::new(1, 1000, 0);
    let with = |n: usize| {
        let mut ask = ask().held();
        ask.0.submit_line = format!("sbatch a.sh {n}");
        ask.0.args = vec![n.to_string()];
        ask
    };
    let jobs: Vec<JobId> = (0..100).map(|n| d.submit(with(n))).collect();
    let first = &d.core.job(jobs[0]).unwrap().request;
    for (n, id) in jobs.iter().enumerate() {
        let job = d.core.job(*id).unwrap();
        assert!(Arc::ptr_eq(&job.request, first), "job {id}");
        assert_eq!(job.whole_request().submit_line, format!("sbatch a.sh {n}"));
        assert_eq!(d.store.jobs[id].args(), [n.to_string()]);
    }
}

#[test]
fn a_million_tasks_cost_as_much_as_one() {
    let mut d = Double::new(2, 1000, 0);
    let array = d.submit(ask().array(0, 999_999, Some(2)));
    d.plan();
    assert_eq!(d.started().len(), 2);
    assert_eq!((d.core.jobs().count(), d.reason(array)), (3, Reason::JobArrayTaskLimit));
    d.cancel(&JobRef::job(array)).unwrap();
    assert_eq!((d.core.jobs().count(), d.state(array)), (3, JobState::Ended(End::Cancelled)));
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
        [JobState::Ended(End::Cancelled), JobState::Ended(End::Cancelled), JobState::Pending]
    );
    assert_eq!(d.cancel(&tasks_of(array, &[5])), Err(Refusal::AlreadyDone));
    assert_eq!(d.cancel(&tasks_of(array, &[77])), Err(Refusal::UnknownJob));
    d.cancel(&tasks_of(array, &(0..20).collect::<Vec<u32>>())).unwrap();
    assert_eq!(
        (d.state(array), d.label(array)),
        (JobState::Ended(End::Cancelled), "1_[1-4,6,9]".to_string())
    );
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
        d.act(|core, cx| {
            core.update(&JobRef::job(array), &[Update::ArrayTaskThrottle(n)], &[], cx)
        })
        .unwrap();
        d.plan();
        d.started().len()
    };
    assert_eq!(d.started().len(), 1);
    assert_eq!(throttle(&mut d, Some(3)), 2);
    assert_eq!(throttle(&mut d, Some(2)), 0);
    assert_eq!(throttle(&mut d, None), 6);
}

#[test]
fn a_requeued_array_starts_its_tasks_in_order_again() {
    let mut d = Double::new(6, 1000, 0);
    let array = d.submit(ask().array(0, 5, Some(3)));
    let run_all = |d: &mut Double| {
        let mut order = Vec::new();
        loop {
            d.plan();
            let started = d.started();
            if started.is_empty() {
                return order;
            }
            order.extend(d.labels(&started));
            started.into_iter().for_each(|task| d.exit(task, 0));
        }
    };
    let wanted = ["1_0", "1_1", "1_2", "1_3", "1_4", "1_5"];
    assert_eq!(run_all(&mut d), wanted);
    d.act(|core, cx| core.requeue(&JobRef::job(array), None, &[], cx)).unwrap();
    assert_eq!(run_all(&mut d), wanted);
}

#[test]
fn tasks_that_share_a_record_are_known_one_by_one() {
    let mut d = Double::new(6, 1000, 0);
    let array = d.submit(ask().array(0, 2, None));
    assert_eq!(EndedJob::of(&d.store.jobs[&array]), []);
    d.act(|core, cx| core.cancel(&JobRef::job(array), 1000, cx)).unwrap();
    let facts = EndedJob::of(&d.store.jobs[&array]);
    let tasks: Vec<_> = facts.iter().map(|fact| (fact.array, fact.ok)).collect();
    assert_eq!(tasks, [0, 1, 2].map(|task| (Some((array, task)), false)));
}

#[test]
fn single_tasks_of_a_cancelled_pending_array_can_be_requeued() {
    let mut d = Double::new(6, 1000, 0);
    let array = d.submit(ask().array(0, 5, None));
    d.act(|core, cx| core.cancel(&JobRef::job(array), 1000, cx)).unwrap();
    for tasks in [vec![2], vec![0, 3]] {
        let named = JobRef { tasks: Some(TaskSet::from_sorted(&tasks)), ..JobRef::job(array) };
        d.act(|core, cx| core.requeue(&named, None, &[], cx)).unwrap();
        d.plan();
        let started = d.started();
        let wanted: Vec<String> = tasks.iter().map(|task| format!("{array}_{task}")).collect();
        assert_eq!(d.labels(&started), wanted);
        started.into_iter().for_each(|task| d.exit(task, 0));
    }
}
