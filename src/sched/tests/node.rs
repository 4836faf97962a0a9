//! A host that cannot start processes, and a job whose launch kills the daemon.

use super::*;
use slotd_model::node::{HostFault, LaunchAtDeath};

/// Fails the launch of this job because of a full disk.
fn fails(d: &mut Double, id: JobId) {
    d.act(|core, cx| {
        let record = ExitRecord::launch_failed("could not write x".to_owned(), cx.now);
        core.on_job_ended(id, record.by_host(Some(HostFault::Space)), EndCause::HostFault, cx);
    });
    d.plan();
}

fn drained(d: &Double) -> Option<&str> {
    d.core.resources().node().trouble().map(|trouble| trouble.text.as_str())
}

#[test]
fn a_host_fault_requeues_the_job_and_stops_all_starts() {
    let mut d = Double::new(4, 1000, 0);
    let [one, two] = [d.submit(ask()), d.submit(ask())];
    d.plan();
    assert_eq!(d.started(), [one, two]);
    let three = d.submit(ask());
    fails(&mut d, one);
    assert_eq!(drained(&d), Some("no space on disk: could not write x"));
    assert_eq!(
        (d.state(one), d.core.job(one).unwrap().run.restarts, d.store.runs.len()),
        (JobState::Pending, 0, 0)
    );
    assert_eq!(
        (d.reason(one), d.reason(three)),
        (Reason::ReqNodeNotAvail, Reason::ReqNodeNotAvail)
    );
    assert_eq!((d.started(), d.state(two)), (Vec::new(), JobState::Running));
    // A successful launch at the same time proves that the fault has ended.
    d.act(|core, _| core.on_launched(two));
    d.plan();
    assert_eq!((d.started(), drained(&d)), (vec![one, three], None));
}

#[test]
fn a_drained_node_tries_single_jobs_with_a_doubling_pause() {
    let mut d = Double::new(4, 1000, 0);
    let [one, two] = [d.submit(ask()), d.submit(ask())];
    d.plan();
    d.started();
    fails(&mut d, one);
    fails(&mut d, two);
    let three = d.submit(ask());
    d.plan();
    assert_eq!(d.started(), []);
    let mut tried = Vec::new();
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(d.core.next_due(), Some(d.now.plus_secs(pause)));
        d.wait(pause);
        let started = d.started();
        assert_eq!(started.len(), 1, "one at a time");
        tried.push(started[0]);
        fails(&mut d, started[0]);
    }
    assert_eq!(tried[..2], [three, one], "the job that has not failed comes first");
    d.wait(60);
    let probe = d.started();
    assert_eq!(probe.len(), 1);
    d.act(|core, _| core.on_launched(probe[0]));
    d.plan();
    assert_eq!((d.started().len(), drained(&d)), (2, None));
    let all = [one, two, three].map(|id| d.core.job(id).unwrap());
    assert!(all.iter().all(|job| job.run.state == JobState::Running && job.run.restarts == 0));
}

#[test]
fn a_full_drained_node_waits_for_a_job_to_end() {
    let mut d = Double::new(1, 1000, 0);
    let one = d.submit(ask());
    d.plan();
    d.act(|core, cx| {
        let step = StepKey { job: one, step: StepId::Num(0) };
        let record =
            ExitRecord::launch_failed("no".to_owned(), cx.now).by_host(Some(HostFault::Processes));
        core.on_step_ended(step, &record, EndCause::HostFault, cx);
    });
    let two = d.submit(ask());
    d.plan();
    d.started();
    assert_eq!(drained(&d), Some("no processes left: no"));
    d.wait(1);
    assert_eq!((d.started(), d.core.next_due()), (Vec::new(), None));
    d.exit(one, 0);
    assert_eq!(d.started(), [two]);
}

#[test]
fn a_job_that_alone_hits_host_faults_is_held() {
    let mut d = Double::new(1, 1000, 0);
    let bad = d.submit(ask());
    for _ in 0..5 {
        let good = d.submit(ask());
        d.plan();
        assert_eq!(d.started(), [bad]);
        fails(&mut d, bad);
        d.wait(1);
        assert_eq!(d.started(), [good], "the other is tried first");
        d.act(|core, _| core.on_launched(good));
        d.exit(good, 0);
    }
    assert_eq!((d.state(bad), d.reason(bad)), (JobState::Pending, Reason::JobHeldAdmin));
    let comment = d.core.job(bad).unwrap().run.system_comment.clone().unwrap();
    assert_eq!(
        comment,
        "its launch failed 5 times while other jobs could be launched: no space on disk: could not write x"
    );
    d.act(|core, cx| core.release(&JobRef::job(bad), cx)).unwrap();
    d.plan();
    assert_eq!(
        (d.started(), d.core.job(bad).unwrap().failed_launches),
        (vec![bad], Default::default())
    );
}

#[test]
fn an_array_that_alone_hits_host_faults_is_held_as_a_whole() {
    let mut d = Double::new(1, 1000, 0);
    let bad = d.submit(ask().array(0, 40, None));
    for _ in 0..5 {
        let good = d.submit(ask());
        d.plan();
        let tried = d.started();
        assert_eq!(d.core.job(tried[0]).and_then(Job::array_job_id), Some(bad));
        fails(&mut d, tried[0]);
        d.wait(1);
        assert_eq!(d.started(), [good], "no other task of the array is tried first");
        d.act(|core, _| core.on_launched(good));
        d.exit(good, 0);
    }
    d.plan();
    assert_eq!(d.started(), []);
    let pending: Vec<Reason> = d
        .core
        .jobs()
        .filter(|job| job.array_job_id() == Some(bad))
        .map(|job| d.reason(job.id))
        .collect();
    assert!(pending.iter().all(|reason| *reason == Reason::JobHeldAdmin), "{pending:?}");
    d.act(|core, cx| core.release(&JobRef::job(bad), cx)).unwrap();
    d.plan();
    assert_eq!(d.started().len(), 1);
}

#[test]
fn a_job_is_held_after_the_daemon_died_twice_while_launching_it() {
    let mut d = Double::new(1, 1000, 0);
    let bad = d.submit(ask());
    let other = d.submit(ask());
    d.plan();
    for deaths in 1..=2 {
        assert_eq!(d.started(), [bad]);
        let jobs = d.store.jobs.values().cloned().collect();
        d.core = Core::recover(d.core.config().clone(), jobs, Vec::new(), JobId(3), d.now);
        // A job's deaths are counted in its record, since other launches come in between.
        let step = StepKey { job: bad, step: StepId::Batch };
        d.core.node_mut().launch_was_under_way(LaunchAtDeath { step, deaths: 1 });
        d.end(bad, EndCause::NeverLaunched, ExitCode::OK);
        assert_eq!(d.core.job(bad).unwrap().failed_launches.deaths, deaths);
        assert_eq!(d.store.jobs[&bad].failed_launches.deaths, deaths, "the count is stored");
        d.plan();
    }
    assert_eq!((d.started(), d.reason(bad)), (vec![other], Reason::JobHeldAdmin));
    let comment = d.core.job(bad).unwrap().run.system_comment.clone();
    assert_eq!(comment.as_deref(), Some("the daemon died 2 times while launching the job"));
    // A launch that did not happen because the daemon died earlier is not the job's fault, and
    // neither is a launch that was in progress elsewhere.
    d.exit(other, 0);
    d.act(|core, cx| core.release(&JobRef::job(bad), cx)).unwrap();
    d.plan();
    d.end(bad, EndCause::NeverLaunched, ExitCode::OK);
    d.plan();
    assert_eq!((d.started(), d.core.job(bad).unwrap().failed_launches.deaths), (vec![bad, bad], 0));
}

#[test]
fn without_cgroups_jobs_wait_until_a_check_succeeds() {
    let mut d = Double::new(4, 1000, 0);
    let bad = |d: &mut Double| {
        d.act(|core, cx| {
            core.node_mut().set_cgroup_trouble(Some("no cgroup v2".to_owned()), cx.now)
        })
    };
    let takes_request = |d: &mut Double| {
        let now = d.now;
        d.core.node_mut().take_cgroup_request(now)
    };
    bad(&mut d);
    let one = d.submit(ask());
    d.plan();
    assert_eq!(
        (d.started(), d.reason(one), drained(&d)),
        (vec![], Reason::ReqNodeNotAvail, Some("no cgroup v2"))
    );
    assert!(!takes_request(&mut d), "the check is not due");
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(d.core.next_due(), Some(d.now.plus_secs(pause)));
        // Reports of launches in between neither hasten nor delay the check.
        bad(&mut d);
        d.wait(pause);
        assert!(takes_request(&mut d) && !takes_request(&mut d), "the check is requested once");
        assert_eq!((d.core.next_due(), d.started()), (None, vec![]));
        bad(&mut d);
    }
    d.act(|core, cx| core.node_mut().set_cgroup_trouble(None, cx.now));
    d.plan();
    assert_eq!((d.started(), drained(&d)), (vec![one], None));
}
