//! When jobs start: dependencies, order, capacity, holds (book, "Runtime Model: Scheduling Rules").

use slotd_kit::{Slotd, most_at_once};

#[test]
fn dependency_job_waits_for_prerequisite_before_running() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], &slotd.gate("go"));
    let second = slotd.wrap(&["-d", &format!("afterok:{first}")], "echo second");
    slotd.wait_reason(second, "Dependency");
    slotd.open("go");
    let (first, second) =
        (slotd.wait_state(first, "COMPLETED"), slotd.wait_state(second, "COMPLETED"));
    assert!(second.start() >= first.end(), "{second:?} started before {first:?} had ended");
}

#[test]
fn jobs_start_in_submission_order() {
    let slotd = Slotd::start();
    let ids: Vec<u32> =
        (0..6).map(|i| slotd.wrap(&["-c", "4"], &format!("echo {i} >> order"))).collect();
    for id in &ids {
        slotd.wait_state(*id, "COMPLETED");
    }
    assert_eq!(slotd.read("order"), "0\n1\n2\n3\n4\n5\n");
}

#[test]
fn cpus_are_never_overcommitted() {
    let slotd = Slotd::start();
    let ids: Vec<u32> =
        (0..8).map(|_| slotd.wrap(&["-c", "2", "--mem", "1"], &slotd.gate("go"))).collect();
    ids[..2].iter().for_each(|id| drop(slotd.wait_state(*id, "RUNNING")));
    slotd.open("go");
    let records: Vec<_> = ids.iter().map(|id| slotd.wait_state(*id, "COMPLETED")).collect();
    assert_eq!(most_at_once(&records), 2);
}

#[test]
fn pending_jobs_show_resources_or_priority_as_reason() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let next = slotd.wrap(&["-c", "4"], "true");
    let after = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_reason(next, "Resources");
    slotd.wait_reason(after, "Priority");
    slotd.cancel(running);
    slotd.wait_state(after, "COMPLETED");
}

#[test]
fn memory_is_allocated_like_cpus() {
    let slotd = Slotd::start();
    let big = slotd.endless(&["--mem", "6G"]);
    let other = slotd.wrap(&["--mem", "6G"], "true");
    slotd.wait_reason(other, "Resources");
    slotd.cancel(big);
    slotd.wait_state(other, "COMPLETED");
}

#[test]
fn held_job_waits_until_it_is_released() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "echo ran");
    slotd.wait_reason(held, "JobHeldUser");
    // Another job runs while the held one stays pending.
    let other = slotd.wrap(&[], "true");
    slotd.wait_state(other, "COMPLETED");
    assert_eq!(slotd.state(held), "PENDING");
    slotd.cmd("scontrol", &["release", &held.to_string()]).ok();
    slotd.wait_state(held, "COMPLETED");
}

#[test]
fn higher_priority_starts_first() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let ordinary = slotd.wrap(&["-c", "4", "--priority", "10"], "echo ordinary >> order");
    let urgent = slotd.wrap(&["-c", "4", "--priority", "1000"], "echo urgent >> order");
    slotd.cancel(running);
    slotd.wait_state(ordinary, "COMPLETED");
    slotd.wait_state(urgent, "COMPLETED");
    assert_eq!(slotd.read("order"), "urgent\nordinary\n");
}

#[test]
fn wide_job_is_not_starved_by_narrow_ones() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "2", "-t", "10"]);
    let wide = slotd.wrap(&["-c", "4", "-t", "1"], "echo wide >> order");
    slotd.wait_reason(wide, "Resources");
    // It fits beside the running job, but could still run when that job reaches its limit.
    let long = slotd.wrap(&["-c", "2", "-t", "60"], "echo long >> order");
    slotd.wait_reason(long, "Priority");
    // This job is certain to have ended by then.
    let short = slotd.wrap(&["-c", "2", "-t", "1"], "echo short >> order");
    slotd.wait_state(short, "COMPLETED");
    assert_eq!(slotd.state(long), "PENDING");
    slotd.cancel(running);
    slotd.wait_state(long, "COMPLETED");
    assert_eq!(slotd.read("order"), "short\nwide\nlong\n");
    slotd.wait_state(wide, "COMPLETED");
}

#[test]
fn an_idle_daemon_makes_no_wakeups() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
    let pid = slotd.daemon_pid();
    let mut before = slotd_kit::proc::wakeups(pid);
    // On a busy machine, there is a late wakeup now and then, but some second must be quiet.
    let quiet = slotd_kit::until(|| {
        std::thread::sleep(std::time::Duration::from_secs(1));
        let now = slotd_kit::proc::wakeups(pid);
        let woken = now - before;
        before = now;
        (woken == 0).then_some(())
    });
    assert!(quiet.is_some(), "an idle daemon woke up in every second of a minute");
}

#[test]
fn comment_of_a_blocked_job_names_the_holders_and_their_limits() {
    let slotd = Slotd::start();
    let (first, second) = (slotd.endless(&["-c", "3"]), slotd.endless(&["-c", "1", "-t", "10"]));
    let wide = slotd.wrap(&["-c", "3"], "true");
    slotd.wait_reason(wide, "Resources");
    let shown = || slotd.system_comment(wide);
    assert_eq!(
        shown(),
        format!("waits for 3 CPUs; job {first} holds 3 CPUs and has no time limit")
    );
    // Programs split the record at spaces, and each word at its `=`.
    for form in ["scontrol show job", "scontrol show -o job", "scontrol show -d job"] {
        let out = slotd.line(&format!("{form} {wide}")).ok();
        assert!(out.stdout.contains("SystemComment="), "{}", out.stdout);
        assert!(out.stdout.split_whitespace().all(|word| word.contains('=')), "{}", out.stdout);
    }
    slotd.line(&format!("scancel {first} {second}")).ok();
    slotd.wait_end(wide);
    assert_eq!(shown(), "");
}
