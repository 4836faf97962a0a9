//! The order in which pending jobs start.

use super::*;

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
fn an_explicit_priority_overrides_the_order_and_nice_lowers_it() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    d.plan();
    let nice = d.submit(ask().with(|r| r.nice = 100));
    let plain = d.submit(ask());
    let high = d.submit(ask().priority(10));
    let order: Vec<JobId> = d.core.line.queue().iter().map(|key| key.id).collect();
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
