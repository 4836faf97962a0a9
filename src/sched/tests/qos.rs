//! QOS: their limits and priorities, and what changes them.

use super::*;
use crate::types::Config;
use slotd_model::qos::{Qos, TresLimit};
use slotd_model::request::{KeptText, Sharing};
use slotd_model::tres::Allocation;
use slotd_model::why::{Until, What};

fn qos(name: &str) -> Qos {
    Qos { name: name.to_owned(), ..Qos::default() }
}

fn cpus(most: u32) -> TresLimit {
    TresLimit { cpus: Some(most), ..TresLimit::default() }
}

/// Creates a host with 4 CPUs, 1000 MB and 2 GPUs, and these QOS beside the default one.
fn with(all: &[Qos]) -> Double {
    let mut d = Double::new(4, 1000, 2);
    d.set_qos(all);
    d
}

fn move_to(d: &mut Double, id: JobId, name: &str) -> Result<Vec<JobId>, Refusal> {
    change(d, id, Update::Text(KeptText::Qos, name.to_owned()))
}

fn change(d: &mut Double, id: JobId, update: Update) -> Result<Vec<JobId>, Refusal> {
    d.act(|core, cx| core.update(&JobRef::job(id), &[update], &[], cx))
}

fn words(d: &Double, id: JobId) -> String {
    let mut view = d.core.view(id, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    let lines = view.blockers.iter().map(|blocker| format!("{}: {}", blocker.reason, blocker.text));
    lines.collect::<Vec<_>>().join("\n")
}

/// The refusal of a job that violates this limit.
fn violates(limit: &str) -> [String; 2] {
    let general = "Batch job submission failed: Job violates accounting/QOS policy \
                   (job submit limit, user's size and/or time limits)";
    [limit.to_owned(), general.to_owned()]
}

#[test]
fn an_unknown_qos_is_refused() {
    let mut d = with(&[qos("two")]);
    let refused = ["no such QOS: nosuch", "Batch job submission failed: Invalid qos specification"];
    assert_eq!(refusal(&mut d, ask().qos("nosuch")), refused);
    let ids = ["two", "TWO", "normal", ""].map(|name| d.submit(ask().qos(name)));
    let names = ids.map(|id| d.core.job(id).unwrap().request.qos.clone());
    assert_eq!(
        names.each_ref().map(Option::as_deref),
        [Some("two"), Some("two"), Some("normal"), None]
    );
}

#[test]
fn without_qos_any_name_is_accepted_and_has_no_effect() {
    let mut d = with(&[]);
    let id = d.submit(ask().qos("nosuch"));
    d.plan();
    assert_eq!(d.started(), [id]);
    assert_eq!(d.core.job(id).unwrap().request.qos.as_deref(), Some("nosuch"));
    let mut d = with(&[Qos { priority: 1, ..qos("normal") }]);
    assert_eq!(refusal(&mut d, ask().qos("nosuch"))[0], "no such QOS: nosuch");
}

#[test]
fn each_limit_has_its_reason_and_blocks_only_its_own_jobs() {
    let limit = |cpus, mem_mb, gpus| TresLimit { cpus, mem_mb, gpus };
    let per_user = |max_tres| Qos { max_tres, ..qos("own") };
    let group = |grp_tres| Qos { grp_tres, ..qos("own") };
    let jobs = Qos { max_jobs: Some(1), ..qos("own") };
    for (own, reason) in [
        (jobs, Reason::QosMaxJobsPerUserLimit),
        (per_user(limit(Some(1), None, None)), Reason::QosMaxCpuPerUserLimit),
        (per_user(limit(None, Some(150), None)), Reason::QosMaxMemoryPerUser),
        (per_user(limit(None, None, Some(1))), Reason::QosMaxGresPerUser),
        (group(limit(Some(1), None, None)), Reason::QosGrpCpuLimit),
        (group(limit(None, Some(150), None)), Reason::QosGrpMemLimit),
        (group(limit(None, None, Some(1))), Reason::QosGrpGres),
    ] {
        let mut d = with(&[own]);
        let job = || ask().qos("own").mem(100).gpus(1);
        let (first, second) = (d.submit(job()), d.submit(job()));
        let other = d.submit(ask().gpus(1));
        d.plan();
        assert_eq!(d.started(), [first, other], "{reason}");
        assert_eq!(d.reason(second), reason);
        d.exit(other, 0);
        assert_eq!(d.reason(second), reason);
        d.exit(first, 0);
        assert_eq!(d.started(), [second], "{reason}");
    }
}

#[test]
fn a_limit_of_the_group_comes_first() {
    let both = Qos { max_tres: cpus(1), grp_tres: cpus(1), ..qos("lim") };
    let mut d = with(&[both]);
    let id = d.submit(ask().qos("lim").cpus(2));
    d.plan();
    assert_eq!(d.reason(id), Reason::QosGrpCpuLimit);
}

#[test]
fn a_job_that_alone_exceeds_a_limit_waits_until_the_limit_is_raised() {
    let mut d = with(&[Qos { max_tres: cpus(2), ..qos("lim") }]);
    let id = d.submit(ask().qos("lim").cpus(3));
    let too_large =
        d.submit(ask().qos("lim").cpus(3).mem(2000).with(|r| r.mem = MemRequest::PerNode(900)));
    d.plan();
    assert_eq!(d.reason(id), Reason::QosMaxCpuPerUserLimit);
    assert_eq!(d.expected_start(id), None);
    assert_eq!(
        words(&d, id),
        "QOSMaxCpuPerUserLimit: it needs 3 CPUs, but QOS lim allows 2 CPUs (MaxTRESPU)"
    );
    d.set_qos(&[Qos { max_tres: cpus(3), ..qos("lim") }]);
    d.plan();
    assert_eq!((d.started(), d.reason(too_large)), (vec![id], Reason::QosMaxCpuPerUserLimit));
    d.set_qos(&[qos("other")]);
    d.plan();
    assert_eq!(d.reason(too_large), Reason::InvalidQos);
    assert_eq!(words(&d, too_large), "InvalidQOS: its QOS lim no longer exists");
    d.set_qos(&[qos("lim")]);
    d.exit(id, 0);
    assert_eq!(d.started(), [too_large]);
}

#[test]
fn a_limit_of_the_default_qos_applies_to_jobs_that_request_none() {
    let mut d = with(&[Qos { max_jobs: Some(1), ..qos("normal") }, qos("free")]);
    let [first, second] = [d.submit(ask()), d.submit(ask().qos("normal"))];
    let free = d.submit(ask().qos("free"));
    d.plan();
    assert_eq!(d.started(), [first, free]);
    assert_eq!(d.reason(second), Reason::QosMaxJobsPerUserLimit);
}

#[test]
fn submissions_above_the_limit_are_refused() {
    let mut d = with(&[Qos { max_submit: Some(3), ..qos("two") }]);
    let array = d.submit(ask().qos("two").array(0, 1, None));
    let refused = violates("QOSMaxSubmitJobPerUserLimit");
    assert_eq!(refusal(&mut d, ask().qos("two").array(0, 1, None)), refused);
    let last = d.submit(ask().qos("two"));
    assert_eq!(refusal(&mut d, ask().qos("two")), refused);
    let request = ask().qos("two").0;
    let submission = Submission { request, ..Submission::default() };
    assert!(d.core.trial(submission, d.now).is_err());
    d.plan();
    let tasks = d.started();
    d.exit(tasks[0], 0);
    let moving = d.submit(ask().array(0, 1, None).held());
    let update = move_to(&mut d, moving, "two").unwrap_err();
    assert_eq!(update.detail().as_deref(), Some("QOSMaxSubmitJobPerUserLimit"));
    d.submit(ask().qos("two"));
    assert_eq!(refusal(&mut d, ask().qos("two")), refused);
    d.cancel(&JobRef::job(array)).unwrap();
    d.cancel(&JobRef::job(last)).unwrap();
    assert_eq!(refusal(&mut d, ask().qos("two")), refused, "they still have processes");
    for task in &tasks[1..] {
        d.end(*task, EndCause::Stopped, ExitCode::signal(15));
    }
    move_to(&mut d, moving, "two").unwrap();
    assert_eq!(refusal(&mut d, ask().qos("two")), refused);
    move_to(&mut d, moving, "").unwrap();
    d.submit(ask().qos("two"));
}

#[test]
fn deny_on_limit_refuses_what_could_never_start() {
    let deny = Qos {
        max_jobs: Some(1),
        max_tres: TresLimit { cpus: Some(2), mem_mb: Some(500), gpus: Some(1) },
        max_wall_secs: Some(300),
        denies_on_limit: true,
        ..qos("deny")
    };
    let mut d = with(std::slice::from_ref(&deny));
    for (job, limit) in [
        (ask().cpus(3), "QOSMaxCpuPerUserLimit"),
        (ask().mem(501), "QOSMaxMemoryPerUser"),
        (ask().gpus(2), "QOSMaxGRESPerUser"),
        (ask().limit(301), "QOSMaxWallDurationPerJobLimit"),
        (ask().with(|r| r.sharing = Sharing::Exclusive), "QOSMaxCpuPerUserLimit"),
    ] {
        assert_eq!(refusal(&mut d, job.qos("deny")), violates(limit));
    }
    let first = d.submit(ask().qos("deny").cpus(2).limit(300));
    let second = d.submit(ask().qos("deny").cpus(2));
    d.plan();
    assert_eq!((d.started(), d.reason(second)), (vec![first], Reason::QosMaxJobsPerUserLimit));
    // A change is checked like a submission.
    let larger = change(&mut d, second, Update::NumCpus(3)).unwrap_err();
    assert_eq!(larger, Refusal::QosLimit("QOSMaxCpuPerUserLimit".to_owned()));
    for limit in [Some(301), None] {
        let longer = change(&mut d, second, Update::TimeLimit(limit)).unwrap_err();
        assert_eq!(longer, Refusal::QosLimit("QOSMaxWallDurationPerJobLimit".to_owned()));
    }
    let other = d.submit(ask().cpus(3).held());
    assert!(move_to(&mut d, other, "deny").is_err());
    assert_eq!(d.core.job(other).unwrap().request.qos, None);
    // A limit that the owner lowered later keeps nobody from changing other things.
    d.set_qos(&[Qos { max_tres: cpus(1), ..deny }]);
    change(&mut d, second, Update::Nice(1)).unwrap();
    assert_eq!(d.reason(second), Reason::QosMaxCpuPerUserLimit);
}

#[test]
fn the_longest_time_is_the_limit_of_a_job_that_requests_none() {
    let wall = |secs| Qos { max_wall_secs: Some(secs), ..qos("short") };
    let mut d = with(&[wall(300)]);
    let limit = |d: &Double, id| d.core.job(id).unwrap().request.time_limit_secs;
    let [none, fits, long] = [None, Some(60), Some(301)]
        .map(|secs| d.submit(ask().qos("short").with(|request| request.time_limit_secs = secs)));
    d.plan();
    assert_eq!(d.started(), [none, fits]);
    assert_eq!([none, fits, long].map(|id| limit(&d, id)), [Some(300), Some(60), Some(301)]);
    assert_eq!(d.reason(long), Reason::QosMaxWallDurationPerJobLimit);
    assert_eq!(
        words(&d, long),
        "QOSMaxWallDurationPerJobLimit: its time limit is 301 seconds, but QOS short allows at most 5 minutes"
    );
    change(&mut d, long, Update::TimeLimit(Some(300))).unwrap();
    d.plan();
    assert_eq!(d.started(), [long]);
    let moved = d.submit(ask().held());
    move_to(&mut d, moved, "short").unwrap();
    assert_eq!(limit(&d, moved), Some(300));
    d.set_qos(&[wall(60)]);
    d.act(|core, cx| core.release(&JobRef::job(moved), cx)).unwrap();
    assert_eq!(d.reason(moved), Reason::QosMaxWallDurationPerJobLimit);
}

#[test]
fn the_shorter_of_a_partitions_limit_and_the_longest_time_applies() {
    let mut d = Double::with(|config| {
        let named = |name: &str, secs| Partition {
            name: name.to_owned(),
            default_time_secs: Some(secs),
            ..Partition::default()
        };
        config.set_partitions(vec![named("a", 60), named("b", 600)]);
        config.qos.push(Qos { max_wall_secs: Some(300), ..qos("short") });
    });
    let mut submit = |partition: &str| {
        let id = d.submit(ask().qos("short").with(|r| r.partition = Some(partition.to_owned())));
        d.plan();
        d.core.job(id).unwrap().request.time_limit_secs
    };
    assert_eq!(["a", "b", "b,a"].map(&mut submit), [Some(60), Some(300), Some(300)]);
}

#[test]
fn a_higher_priority_goes_first() {
    let high = |priority| Qos { priority, ..qos("high") };
    let mut d = with(&[high(100)]);
    let running = d.submit(ask().cpus(4));
    d.plan();
    d.started();
    let plain = d.submit(ask().cpus(4));
    let urgent = d.submit(ask().cpus(4).qos("high"));
    let first = d.submit(ask().cpus(4).priority(1000));
    let priority = |d: &Double, id| d.core.view(id, d.now).unwrap().job.priority;
    assert_eq!([plain, urgent, first].map(|id| priority(&d, id)), [1, 101, 1000]);
    assert_eq!(d.core.brief(urgent, d.now).unwrap().priority, 101);
    d.exit(running, 0);
    assert_eq!(d.started(), [first]);
    d.set_qos(&[high(0)]);
    assert_eq!(priority(&d, urgent), 1);
    d.exit(first, 0);
    assert_eq!(d.started(), [plain], "it was submitted earlier");
    // An explicit priority takes the place of that of the QOS.
    d.set_qos(&[high(100)]);
    let last = d.submit(ask().cpus(4).priority(50).qos("high"));
    assert_eq!(priority(&d, last), 50);
    change(&mut d, last, Update::PriorityReset).unwrap();
    assert_eq!(priority(&d, last), 101);
    move_to(&mut d, last, "normal").unwrap();
    assert_eq!(priority(&d, last), 1);
}

#[test]
fn a_qos_that_reserves_nothing_delays_no_other_job() {
    let mut d = with(&[Qos { reserves_nothing: true, ..qos("idle") }]);
    let running = d.submit(ask().cpus(3).limit(100));
    d.plan();
    d.started();
    let idle = d.submit(ask().cpus(4).qos("idle"));
    let long = d.submit(ask().limit(1000));
    d.plan();
    assert_eq!((d.started(), d.reason(idle)), (vec![long], Reason::Resources));
    let wide = d.submit(ask().cpus(4));
    assert_eq!((d.reason(idle), d.reason(wide)), (Reason::Resources, Reason::Resources));
    d.exit(running, 0);
    d.exit(long, 0);
    assert_eq!(d.started(), [idle], "it is still the first in line");
}

#[test]
fn only_a_pending_job_moves_to_another_qos() {
    let one = Qos { max_jobs: Some(1), ..qos("one") };
    let mut d = with(&[one, qos("two")]);
    let [first, second] = ["one", "one"].map(|name| d.submit(ask().qos(name)));
    d.plan();
    assert_eq!(d.started(), [first]);
    assert_eq!(move_to(&mut d, first, "two"), Err(Refusal::NotPending));
    let unknown = move_to(&mut d, second, "nosuch").unwrap_err();
    assert_eq!(unknown.to_string(), "Invalid qos specification");
    move_to(&mut d, second, "Two").unwrap();
    d.plan();
    assert_eq!(d.started(), [second]);
    assert_eq!(d.store.jobs[&second].request.qos.as_deref(), Some("two"));
}

#[test]
fn a_lowered_limit_takes_nothing_away() {
    let lim = |most| Qos { max_jobs: Some(9), max_tres: cpus(most), ..qos("lim") };
    let mut d = with(&[lim(4)]);
    let job = || ask().qos("lim").with(|request| request.requeue = true);
    let [first, second, third] = [2, 2, 1].map(|cpus| d.submit(job().cpus(cpus)));
    d.plan();
    assert_eq!(d.started(), [first, second]);
    d.set_qos(&[qos("aaa"), lim(1)]);
    assert_eq!(d.reason(third), Reason::QosMaxCpuPerUserLimit);
    d.exit(first, 0);
    assert_eq!(d.reason(third), Reason::QosMaxCpuPerUserLimit, "two CPUs are still in use");
    d.act(|core, cx| core.suspend(&JobRef::job(second), cx)).unwrap();
    d.plan();
    assert_eq!(d.reason(third), Reason::QosMaxCpuPerUserLimit, "it keeps its CPUs");
    d.act(|core, cx| core.resume(&JobRef::job(second), cx)).unwrap();
    d.act(|core, cx| core.requeue(&JobRef::job(second), None, &[], cx)).unwrap();
    d.plan();
    assert_eq!(d.reason(third), Reason::QosMaxCpuPerUserLimit, "it still has processes");
    d.end(second, EndCause::Stopped, ExitCode::signal(15));
    d.plan();
    assert_eq!(
        (d.state(third), d.reason(second)),
        (JobState::Running, Reason::QosMaxCpuPerUserLimit)
    );
}

#[test]
fn a_running_job_does_not_grow_beyond_the_limit() {
    let mut d = with(&[Qos { max_tres: cpus(2), ..qos("lim") }]);
    let id = d.submit(ask().qos("lim"));
    d.plan();
    change(&mut d, id, Update::NumCpus(2)).unwrap();
    let refused = change(&mut d, id, Update::NumCpus(3)).unwrap_err();
    assert_eq!(refused, Refusal::OverLimit { reason: "QOSMaxCpuPerUserLimit".to_owned() });
    let dependency = Dependency { terms: vec![on(Expand, id)], any: false };
    let other = refusal(&mut d, ask().dependency(dependency.clone()));
    assert!(other[0].contains("its account, name or QOS has different limits"), "{other:?}");
    let expanding = d.submit(ask().qos("lim").dependency(dependency));
    assert!(move_to(&mut d, expanding, "normal").is_err());
    d.plan();
    assert_eq!(d.reason(expanding), Reason::QosMaxCpuPerUserLimit);
    d.set_qos(&[Qos { max_tres: cpus(3), ..qos("lim") }]);
    d.plan();
    assert_eq!(d.core.job(id).unwrap().tres.cpus, 3);
}

#[test]
fn an_exclusive_job_gets_no_more_gpus_than_its_qos_allows() {
    let gpus = |most| TresLimit { gpus: Some(most), ..TresLimit::default() };
    let mut d = with(&[Qos { max_tres: gpus(1), ..qos("one") }]);
    let id = d.submit(ask().qos("one").exclusive());
    d.plan();
    let alloc = |d: &Double| Allocation::clone(d.core.job(id).unwrap().run.alloc.as_ref().unwrap());
    assert_eq!((alloc(&d).tres.cpus, alloc(&d).gpu_ids), (4, vec![0]));
}

#[test]
fn why_names_the_limit_and_the_jobs_that_use_it() {
    // It is 8:00.
    let lim = Qos { max_jobs: Some(2), max_tres: cpus(3), ..qos("lim") };
    let mut d = with(&[lim]);
    let [short, long] = [3600, 7200].map(|limit| d.submit(ask().qos("lim").limit(limit)));
    let other = d.submit(ask().limit(60));
    d.plan();
    let job = d.submit(ask().qos("lim"));
    assert_eq!(
        words(&d, job),
        format!(
            "QOSMaxJobsPerUserLimit: QOS lim allows 2 running jobs (MaxJobsPU), and 2 are running; job {short} runs \
             until 09:00 by its time limit"
        )
    );
    d.cancel(&JobRef::job(job)).unwrap();
    d.exit(other, 0);
    d.exit(short, 0);
    let wide = d.submit(ask().qos("lim").cpus(3));
    d.plan();
    assert_eq!(
        words(&d, wide),
        format!(
            "QOSMaxCpuPerUserLimit: it needs 3 CPUs; QOS lim allows 3 CPUs (MaxTRESPU), of which its jobs hold \
             1; job {long} holds 1 CPU until 10:00 by its time limit"
        )
    );
    let mut view = d.core.view(wide, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    let What::Qos(shortage) = &view.blockers[0].what else { panic!("{:?}", view.blockers) };
    assert_eq!((shortage.most, shortage.used, shortage.needs), (3, 1, 3));
    assert_eq!(shortage.holders[0].until, Until::ByLimit(d.now.plus_secs(7200)));
}

#[test]
fn forecasts_count_with_the_limits() {
    let mut d = with(&[Qos { max_jobs: Some(1), ..qos("one") }]);
    d.submit(ask().qos("one").limit(60));
    d.plan();
    let next = d.submit(ask().qos("one").limit(10));
    let last = d.submit(ask().qos("one").limit(10));
    let free = d.submit(ask());
    let at = |secs: u64| Some(d.now.plus_secs(secs));
    assert_eq!([next, last, free].map(|id| d.expected_start(id)), [at(60), at(70), at(0)]);
    let submission = Submission { request: ask().qos("one").0, ..Submission::default() };
    let trial = d.core.trial(submission, d.now).unwrap();
    assert_eq!(Some(trial.forecast.starts()[&trial.estimate.id].at), at(80));
}

#[test]
fn a_reservation_includes_the_limits() {
    let mut d = with(&[Qos { max_tres: cpus(2), ..qos("lim") }]);
    let running = d.submit(ask().cpus(3).limit(100));
    d.plan();
    let blocked = d.submit(ask().cpus(2).qos("lim"));
    let long = d.submit(ask().qos("lim"));
    d.plan();
    assert_eq!((d.reason(blocked), d.reason(long)), (Reason::Resources, Reason::Priority));
    let short = d.submit(ask().qos("lim").limit(100));
    d.plan();
    assert_eq!(d.state(short), JobState::Running, "it ends in time");
    assert_eq!(d.reason(blocked), Reason::QosMaxCpuPerUserLimit);
    d.exit(running, 0);
    assert_eq!(d.state(long), JobState::Running, "a job at its limit blocks nobody");
    assert_eq!(d.state(blocked), JobState::Pending);
}

#[test]
fn a_job_at_a_limit_of_memory_is_not_the_first_in_line() {
    let limit = TresLimit { mem_mb: Some(500), ..TresLimit::default() };
    let mut d = with(&[Qos { max_tres: limit, ..qos("lim") }]);
    d.submit(ask().cpus(3));
    d.submit(ask().qos("lim").mem(100));
    d.plan();
    let [large, small] = [450, 50].map(|mb| d.submit(ask().qos("lim").cpus(2).mem(mb)));
    d.plan();
    assert_eq!(d.reason(large), Reason::QosMaxMemoryPerUser);
    assert_eq!(d.reason(small), Reason::Resources, "it waits behind nobody");
}

#[test]
fn each_task_of_an_array_counts() {
    let mut d = with(&[Qos { max_jobs: Some(3), ..qos("lim") }]);
    let array = d.submit(ask().qos("lim").array(0, 9, None));
    d.plan();
    let tasks = d.started();
    assert_eq!((tasks.len(), d.reason(array)), (3, Reason::QosMaxJobsPerUserLimit));
    d.exit(tasks[0], 0);
    assert_eq!(d.started().len(), 1);
}

#[test]
fn a_round_considers_a_shape_at_its_limit_once() {
    let mut d = with(&[Qos { max_jobs: Some(1), ..qos("one") }]);
    d.submit(ask().qos("one"));
    d.plan();
    for _ in 0..1000 {
        d.core_submit(ask().qos("one"));
    }
    let other = d.submit(ask());
    d.plan();
    assert_eq!(d.state(other), JobState::Running);
    assert!(d.core.line().last_round().tried < 10, "{:?}", d.core.line().last_round());
}

#[test]
fn a_qos_without_limits_costs_no_further_passes() {
    let mut d = with(&[Qos { priority: 5, max_submit: Some(9000), ..qos("high") }, {
        Qos { max_jobs: Some(1), ..qos("one") }
    }]);
    d.submit(ask().cpus(3));
    d.plan();
    for _ in 0..1000 {
        d.core_submit(ask().qos("high").cpus(2));
    }
    let other = d.submit(ask().limit(1));
    d.plan();
    let tried = d.core.line().last_round().tried;
    assert_eq!((d.state(other), tried), (JobState::Running, 2), "both shapes are tried once");
    let config: &Config = d.core.config();
    assert_eq!(config.qos.len(), 3);
}
