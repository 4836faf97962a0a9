//! Licenses: who waits for them, who holds them, and what changes that.

use super::*;
use slotd_model::license::LicenseUse;
use slotd_model::request::KeptText;
use slotd_model::why::What;

/// Creates a host with 4 CPUs, three licenses of matlab, and one of foo.
fn licensed() -> Double {
    let mut d = Double::new(4, 1000, 2);
    d.set_licenses(&[("foo", 1), ("matlab", 3)]);
    d
}

/// Returns the number of licenses of matlab that jobs hold.
fn used(d: &Double) -> u32 {
    let mut all = d.core.resources().licenses();
    all.find(|license| license.name == "matlab").map_or(0, |license| license.used)
}

/// Returns the licenses that a job requests.
fn asked(d: &Double, id: JobId) -> Option<&str> {
    d.core.job(id).and_then(|job| job.request.licenses.as_deref())
}

fn exchange(d: &mut Double, id: JobId, licenses: &str) -> Result<Vec<JobId>, Refusal> {
    let update = Update::Text(KeptText::Licenses, licenses.to_owned());
    d.act(|core, cx| core.update(&JobRef::job(id), &[update], &[], cx))
}

fn words(d: &Double, id: JobId) -> String {
    let mut view = d.core.view(id, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    let lines = view.blockers.iter().map(|blocker| format!("{}: {}", blocker.reason, blocker.text));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_job_waits_for_licenses_and_others_pass_it() {
    let mut d = licensed();
    let first = d.submit(ask().licenses("matlab:2,foo"));
    let second = d.submit(ask().licenses("matlab:2"));
    let third = d.submit(ask().licenses("matlab"));
    let wide = d.submit(ask().cpus(2));
    d.plan();
    assert_eq!(d.started(), [first, third, wide]);
    assert_eq!((d.reason(second), used(&d)), (Reason::Licenses, 3));
    d.exit(third, 0);
    assert_eq!((d.reason(second), used(&d)), (Reason::Licenses, 2));
    d.exit(first, 0);
    assert_eq!((d.started(), used(&d)), (vec![second], 2));
    d.exit(second, 0);
    assert_eq!(used(&d), 0);
}

#[test]
fn a_request_that_can_never_be_met_is_refused() {
    let mut d = licensed();
    let general = "Batch job submission failed: Invalid license specification";
    for (licenses, detail) in [
        ("nosuch", "no such license: nosuch"),
        ("nosuch:0", "no such license: nosuch"),
        ("MATLAB", "no such license: MATLAB"),
        (" matlab", "no such license:  matlab"),
        ("matlab=1", "no such license: matlab=1"),
        ("matlab:4", "4 of license matlab requested, 3 are configured"),
        ("foo,foo", "2 of license foo requested, 1 is configured"),
        (
            "matlab:-1",
            "not a list of licenses: matlab:-1: expected names with numbers, as in matlab:2,foo",
        ),
    ] {
        assert_eq!(refusal(&mut d, ask().licenses(licenses)), [detail, general], "{licenses}");
    }
    for taken in ["matlab:0", "matlab:", "matlab:1,matlab:2", ""] {
        d.submit(ask().licenses(taken).held());
    }
    d.set_licenses(&[]);
    let detail = "no such license: foo (slotd.toml configures none)";
    assert_eq!(refusal(&mut d, ask().licenses("foo")), [detail, general]);
}

#[test]
fn why_names_the_jobs_that_hold_a_license() {
    // It is 8:00.
    let mut d = licensed();
    let [short, long] = [3600, 7200].map(|limit| d.submit(ask().licenses("matlab").limit(limit)));
    d.plan();
    let job = d.submit(ask().licenses("foo,matlab:2"));
    assert_eq!(
        words(&d, job),
        format!(
            "Licenses: it needs 2 of license matlab, of which 1 is free; job {short} holds 1 until 09:00 by its time limit"
        )
    );
    let all = d.submit(ask().licenses("matlab:3"));
    assert_eq!(
        words(&d, all),
        format!(
            "Licenses: it needs 3 of license matlab, of which 1 is free; job {short} holds 1 until 09:00 by its time \
             limit; job {long} holds 1 until 10:00 by its time limit"
        )
    );
    let mut view = d.core.view(all, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    let What::License(shortage) = &view.blockers[0].what else { panic!("{:?}", view.blockers) };
    assert_eq!((shortage.needs, shortage.total, shortage.free), (3, Some(3), 1));
    d.set_licenses(&[("matlab", 2)]);
    assert_eq!(words(&d, all), "Licenses: it needs 3 of license matlab, but there are 2 in total");
    assert_eq!(words(&d, job), "Licenses: it needs 1 of license foo, which no longer exists");
}

#[test]
fn forecasts_count_with_licenses() {
    let mut d = licensed();
    d.submit(ask().licenses("matlab:3").limit(60));
    d.plan();
    let next = d.submit(ask().licenses("matlab:2").limit(10));
    let last = d.submit(ask().licenses("matlab:2"));
    let free = d.submit(ask());
    let at = |secs: u64| Some(d.now.plus_secs(secs));
    assert_eq!(d.expected_start(next), at(60));
    assert_eq!(d.expected_start(last), at(70));
    assert_eq!(d.expected_start(free), at(0));
    let request = ask().licenses("matlab").0;
    let trial = d.core.trial(Submission { request, ..Submission::default() }, d.now).unwrap();
    let start = trial.forecast.starts()[&trial.estimate.id];
    assert_eq!(Some(start.at), at(60), "it passes the one that needs two");
}

#[test]
fn a_reservation_includes_licenses() {
    let mut d = licensed();
    let running = d.submit(ask().cpus(3).limit(100));
    d.plan();
    let blocked = d.submit(ask().cpus(2).licenses("matlab:3"));
    let long = d.submit(ask().licenses("matlab"));
    d.plan();
    assert_eq!((d.reason(blocked), d.reason(long)), (Reason::Resources, Reason::Priority));
    let short = d.submit(ask().licenses("matlab").limit(100));
    d.plan();
    assert_eq!(d.state(short), JobState::Running, "it gives its license back in time");
    assert_eq!((d.reason(blocked), d.reason(long)), (Reason::Licenses, Reason::Resources));
    d.exit(running, 0);
    assert_eq!(d.state(long), JobState::Running, "a job that lacks a license blocks nobody");
    assert_eq!(d.state(blocked), JobState::Pending);
}

#[test]
fn a_job_behind_one_that_lost_its_license_starts_in_the_same_round() {
    let mut d = licensed();
    d.submit(ask().cpus(2).limit(100));
    d.plan();
    let blocked = d.submit(ask().cpus(4).licenses("matlab:3"));
    let behind = d.submit(ask());
    let short = d.submit(ask().licenses("matlab").limit(50));
    d.plan();
    assert_eq!(d.reason(blocked), Reason::Licenses);
    assert_eq!((d.state(short), d.state(behind)), (JobState::Running, JobState::Running));
}

#[test]
fn a_suspended_job_keeps_its_licenses_and_a_requeued_one_does_not() {
    let mut d = licensed();
    let id = d.submit(ask().licenses("matlab:2").with(|request| request.requeue = true));
    d.plan();
    d.act(|core, cx| core.suspend(&JobRef::job(id), cx)).unwrap();
    assert_eq!(used(&d), 2);
    d.act(|core, cx| core.resume(&JobRef::job(id), cx)).unwrap();
    d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    assert_eq!((d.state(id), used(&d)), (JobState::Completing, 2), "it still has processes");
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!((d.state(id), used(&d)), (JobState::Pending, 0));
}

#[test]
fn a_job_cancelled_during_its_launch_gives_its_licenses_back_at_its_end() {
    let mut d = licensed();
    let id = d.submit(ask().licenses("matlab:3"));
    let next = d.submit(ask().licenses("matlab"));
    let held = d.submit(ask().licenses("matlab:3").held());
    d.plan();
    assert_eq!(d.reason(held), Reason::JobHeldUser);
    d.cancel(&JobRef::job(id)).unwrap();
    d.plan();
    assert_eq!((d.reason(next), used(&d)), (Reason::Licenses, 3));
    d.end(id, EndCause::LaunchFailed, ExitCode::OK);
    d.plan();
    assert_eq!((d.state(next), used(&d)), (JobState::Running, 1));
}

#[test]
fn each_task_of_an_array_holds_its_own() {
    let mut d = licensed();
    let array = d.submit(ask().licenses("matlab").array(0, 9, None));
    d.plan();
    let tasks = d.started();
    assert_eq!((tasks.len(), used(&d), d.reason(array)), (3, 3, Reason::Licenses));
    d.exit(tasks[0], 0);
    assert_eq!((d.started().len(), used(&d)), (1, 3));
}

#[test]
fn a_running_job_exchanges_its_licenses() {
    let mut d = licensed();
    let id = d.submit(ask().licenses("matlab:3"));
    d.plan();
    let next = d.submit(ask().licenses("matlab:2"));
    exchange(&mut d, id, "matlab,foo").unwrap();
    d.plan();
    assert_eq!((d.state(next), used(&d)), (JobState::Running, 3));
    assert_eq!(d.store.jobs[&id].request.licenses.as_deref(), Some("matlab,foo"));
    // It gets no more than are free.
    let refused = exchange(&mut d, id, "matlab:2").unwrap_err();
    assert_eq!(
        refused.lines("update"),
        ["1 more of license matlab requested, 0 are free", "update: Invalid license specification"]
    );
    assert_eq!(exchange(&mut d, id, "matlab:4").unwrap_err().lines("update").len(), 2);
    assert_eq!(asked(&d, id), Some("matlab,foo"));
    exchange(&mut d, id, "").unwrap();
    assert_eq!((used(&d), asked(&d, id)), (2, None));
    // A waiting job requests others.
    let last = d.submit(ask().licenses("matlab:3"));
    d.plan();
    assert_eq!(d.reason(last), Reason::Licenses);
    assert!(exchange(&mut d, last, "nosuch").is_err());
    exchange(&mut d, last, "matlab").unwrap();
    d.plan();
    assert_eq!((d.state(last), used(&d)), (JobState::Running, 3));
}

#[test]
fn a_lowered_count_takes_nothing_away() {
    let mut d = licensed();
    let [first, second, third] = ["matlab", "matlab:2", "matlab"]
        .map(|text| d.submit(ask().licenses(text).with(|request| request.requeue = true)));
    d.plan();
    d.set_licenses(&[("matlab", 1)]);
    let matlab = |d: &Double| d.core.resources().licenses().next().unwrap();
    let expected = LicenseUse { name: "matlab".to_owned(), total: 1, used: 3 };
    assert_eq!((matlab(&d), matlab(&d).free()), (expected, 0));
    // More than are left: only its own count is allowed, and less.
    assert!(exchange(&mut d, second, "matlab:3").is_err());
    d.exit(first, 0);
    assert_eq!((d.reason(third), used(&d)), (Reason::Licenses, 2));
    exchange(&mut d, second, "matlab:1").unwrap();
    d.plan();
    assert_eq!((d.reason(third), used(&d)), (Reason::Licenses, 1));
    d.exit(second, 0);
    assert_eq!((d.state(third), used(&d)), (JobState::Running, 1));
    // A removed license is forgotten, and counted again when it returns.
    d.set_licenses(&[]);
    d.plan();
    d.set_licenses(&[("aaa", 1), ("matlab", 1)]);
    assert_eq!(used(&d), 1, "although it has another index");
    d.exit(third, 0);
    assert_eq!(used(&d), 0);
}

#[test]
fn an_expanding_job_cannot_request_licenses() {
    let mut d = licensed();
    let target = d.submit(ask().licenses("matlab:2"));
    d.plan();
    let dependency = Dependency { terms: vec![on(Expand, target)], any: false };
    let expanding = || ask().dependency(dependency.clone());
    let detail = format!(
        "job {target} cannot be expanded by this one: licenses cannot be transferred: request them for that job instead"
    );
    assert_eq!(refusal(&mut d, expanding().licenses("matlab"))[0], detail);
    let id = d.submit(expanding().held());
    assert!(exchange(&mut d, id, "matlab").is_err());
    // The target keeps its licenses, even if there are fewer now.
    d.set_licenses(&[("matlab", 1)]);
    d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
    d.plan();
    assert_eq!(d.state(id), JobState::Ended(End::Completed));
    assert_eq!((used(&d), d.core.job(target).unwrap().tres.cpus), (2, 2));
}

#[test]
fn a_round_considers_a_shape_that_lacks_a_license_once() {
    let mut d = licensed();
    d.submit(ask().licenses("matlab:3"));
    d.plan();
    for _ in 0..1000 {
        d.core_submit(ask().licenses("matlab"));
    }
    let other = d.submit(ask());
    d.plan();
    assert_eq!(d.state(other), JobState::Running);
    assert!(d.core.line().last_round().tried < 10, "{:?}", d.core.line().last_round());
}
