//! Allocated CPUs and GPUs, reservations, jobs that pass others, and the forecast.

use super::*;
use slotd_model::dependency::DependencyKind;

#[test]
fn cpus_and_gpus_are_allocated_lowest_first_and_freed() {
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
}

#[test]
fn the_first_blocked_job_waits_for_resources_and_the_others_for_it() {
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
fn a_blocked_job_names_the_holders_of_its_resources() {
    let mut d = Double::new(4, 1000, 1);
    let told = |d: &Double, id| d.core.view(id, d.now).and_then(|view| view.job.run.system_comment);
    // It is 8:00.
    let short = d.submit(ask().limit(600));
    let long = d.submit(ask().cpus(3).gpus(1).limit(3600));
    let wide = d.submit(ask().cpus(3));
    let behind = d.submit(ask());
    d.plan();
    // The short job does not delay it.
    let words = format!("waits for 3 CPUs; job {long} holds 3 CPUs until 09:00 by its time limit");
    assert_eq!(told(&d, wide), Some(words));
    assert_eq!((told(&d, behind), told(&d, short)), (None, None));
    d.exit(short, 0);
    d.cancel(&JobRef::job(wide)).unwrap();
    let gpu = d.submit(ask().gpus(1));
    d.plan();
    let words = format!(
        "waits for 1 CPU and 1 GPU; job {long} holds 3 CPUs and 1 GPU until 09:00 by its time limit"
    );
    assert_eq!(told(&d, gpu), Some(words));
}

#[test]
fn a_query_for_one_job_names_the_job_ahead_of_it() {
    let mut d = Double::new(4, 1000, 0);
    let told = |d: &Double, id| {
        let mut view = d.core.view(id, d.now).unwrap();
        assert_eq!((view.run.reason, view.run.system_comment.take()), (Reason::Priority, None));
        d.core.add_job_ahead(&mut view, d.now);
        view.job.run.system_comment.unwrap()
    };
    // It is 8:00.
    let running = d.submit(ask().cpus(3).limit(3600));
    d.plan();
    let first = d.submit(ask().cpus(4));
    let [wide, narrow] = [2, 1].map(|cpus| d.submit(ask().cpus(cpus)));
    d.plan();
    let words = format!(
        "waits behind job {first} for 2 CPUs; job {running} holds 3 CPUs until 09:00 by its time limit"
    );
    assert_eq!(told(&d, wide), words);
    let words = format!(
        "there are enough free resources, but it would delay job {first}, which is ahead of it"
    );
    assert_eq!(told(&d, narrow), words);
}

#[test]
fn a_job_without_a_time_limit_is_expected_to_run_as_long_as_earlier_ones() {
    let mut d = Double::new(4, 1000, 0);
    let fit = || ask().cpus(3).with(|request| request.name = "fit".to_owned());
    for secs in [100, 300, 9000] {
        let id = d.submit(fit());
        d.plan();
        d.wait(secs);
        d.exit(id, 0);
    }
    // A failed job says nothing about later ones.
    let failed = d.submit(fit());
    d.plan();
    d.exit(failed, 1);
    let start = d.now;
    let running = d.submit(fit());
    d.plan();
    let wide = d.submit(ask().cpus(4));
    let after = d.submit(ask().cpus(4));
    let short = d.submit(ask().limit(299));
    let long = d.submit(ask().limit(301));
    d.plan();
    // A job that ends before the expected start of the wide job may pass it.
    assert_eq!((d.state(short), d.state(long)), (JobState::Running, JobState::Pending));
    let starts = d.core.forecast(d.now).starts();
    let told = |id: JobId| starts.get(&id).map(|start| (start.at, start.is_estimate));
    assert_eq!((told(wide), told(after)), (Some((start.plus_secs(300), true)), None));
    let words =
        |d: &Double| d.core.view(wide, d.now).and_then(|view| view.job.run.system_comment).unwrap();
    let about = d.core.config().zone.format(start.plus_secs(300), start).unwrap();
    let told = format!(
        "job {running} holds 3 CPUs until about {about} if it takes as long as earlier ones"
    );
    assert!(words(&d).contains(&told), "{}", words(&d));
    // A job that already runs longer may never end.
    d.wait(300);
    assert_eq!(d.expected_start(wide), None);
    assert!(words(&d).contains("has no time limit"), "{}", words(&d));
    // The next daemon learns from the jobs that ended well.
    let ended: Vec<Job> = d
        .store
        .jobs
        .values()
        .filter(|job| job.run.state == JobState::Ended(End::Completed))
        .cloned()
        .collect();
    let mut core = Core::new(d.core.config().clone());
    core.remember(&ended);
    let usual = |core: &Core| core.line.usual_secs(&fit().0);
    assert_eq!((usual(&core), usual(&d.core)), (Some(300), Some(300)));
}

#[test]
fn holders_that_are_endless_suspended_or_ending_are_described() {
    let mut d = Double::new(4, 1000, 0);
    let told = |d: &Double, id| {
        d.core.view(id, d.now).and_then(|view| view.job.run.system_comment).unwrap()
    };
    let held: Vec<JobId> = (0..4).map(|_| d.submit(ask())).collect();
    d.plan();
    let alone = d.submit(ask().exclusive());
    let [a, b, c, _] = held[..] else { panic!("four jobs") };
    d.cancel(&JobRef::job(a)).unwrap();
    d.act(|core, cx| core.suspend(&JobRef::job(b), cx)).unwrap();
    let words = format!(
        "waits for 4 CPUs; job {a} holds 1 CPU and is about to end; job {b} holds 1 CPU and is suspended; job {c} holds 1 CPU \
         and has no time limit; 1 more has to end"
    );
    assert_eq!(told(&d, alone), words);
    d.end(a, EndCause::Stopped, ExitCode::OK);
}

#[test]
fn first_to_start_is_the_holder_among_jobs_that_end_together() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask().limit(600));
    d.submit(ask().limit(600));
    d.plan();
    let waits = d.submit(ask());
    d.plan();
    let view = d.core.view(waits, d.now).unwrap();
    let words = view.job.run.system_comment.unwrap();
    assert!(words.contains(&format!("job {first} holds 1 CPU until")), "{words}");
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
fn a_later_job_passes_if_it_uses_only_spare_resources() {
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
    assert_eq!(d.expected_start(wide), Some(d.now.plus_secs(1)));
}

#[test]
fn without_limits_the_oldest_jobs_are_expected_to_end_first() {
    let mut d = Double::new(4, 1000, 0);
    let old = d.submit(ask().cpus(2));
    d.plan();
    d.now = d.now.plus_secs(1);
    d.submit(ask());
    d.plan();
    let wide = d.submit(ask().cpus(3));
    let narrow = d.submit(ask());
    d.plan();
    assert_eq!(
        d.state(narrow),
        JobState::Pending,
        "it would use the CPU that the wide job gets when {old} ends"
    );
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
fn the_forecast_predicts_when_each_job_starts() {
    let mut d = Double::new(1, 1000, 0);
    d.submit(ask().limit(100));
    d.plan();
    let start = d.now;
    let second = d.submit(ask().limit(50));
    let third = d.submit(ask());
    let never = d.submit(ask());
    let held = d.submit(ask().held());
    assert_eq!(d.expected_start(second), Some(start.plus_secs(100)));
    assert_eq!(d.expected_start(third), Some(start.plus_secs(150)));
    assert_eq!((d.expected_start(never), d.expected_start(held)), (None, None));
    let mut trial = |ask: Ask| {
        let trial =
            d.core.trial(Submission { request: ask.0, ..Submission::default() }, d.now).unwrap();
        let start = trial.forecast.starts().get(&trial.estimate.id).map(|start| start.at);
        (trial.estimate.id, trial.estimate.cpus, start)
    };
    let id = JobId(never.0 + 2);
    assert_eq!(trial(ask()), (id, 1, None));
    assert_eq!(trial(ask().priority(9)), (id, 1, Some(start.plus_secs(100))));
    assert_eq!(trial(ask().priority(9).held()), (id, 1, None));
    assert_eq!(trial(ask().priority(9).after(DependencyKind::AfterOk, held)), (id, 1, None));
    let late =
        |secs| ask().priority(9).limit(60).with(|r| r.deadline = Some(start.plus_secs(secs)));
    assert_eq!(
        (trial(late(59)), trial(late(61))),
        ((id, 1, None), (id, 1, Some(start.plus_secs(100))))
    );
    assert_eq!(d.core.next_id(), id);
}

#[test]
fn a_long_queue_does_not_hide_a_job_that_can_start() {
    let mut d = Double::new(4, 100_000, 1);
    d.submit(ask().gpus(1).limit(600));
    let waiting: Vec<JobId> =
        (0..3000).map(|i| d.core_submit(ask().gpus(1).limit(600 + i % 7))).collect();
    let free = d.submit(ask());
    d.plan();
    assert_eq!((d.state(waiting[0]), d.reason(waiting[0])), (JobState::Pending, Reason::Resources));
    assert_eq!((d.state(waiting[2999]), d.state(free)), (JobState::Pending, JobState::Running));
    // Each shape was considered once, not each job.
    assert!(d.core.line().last_round().tried < 20, "{:?}", d.core.line().last_round());
}

#[test]
fn the_rest_of_an_array_waits_for_its_turn_behind_a_blocked_job() {
    let mut d = Double::new(4, 1000, 0);
    d.submit(ask().cpus(2).limit(600));
    d.plan();
    let wide = d.submit(ask().cpus(4).limit(60));
    let array = d.submit(ask().array(0, 3, None).limit(60));
    let limit = [Update::TimeLimit(Some(120))];
    let part =
        d.act(|core, cx| core.update(&tasks_of(array, &[2, 3]), &limit, &[], cx)).unwrap()[0];
    let other = d.submit(ask().limit(180));
    d.started();
    d.plan();
    let started = d.started();
    assert_eq!(d.labels(&started), [format!("{array}_0"), other.to_string()]);
    assert_eq!((d.state(wide), d.state(part)), (JobState::Pending, JobState::Pending));
}
