//! What has changed, told to clients that keep a picture of the queue.

use serde_json::{Value, json};
use slotd_kit::{Slotd, proc, wire};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A client that asks what has changed, and hears of it when it does.
struct Watcher(UnixStream);

impl Watcher {
    /// One that has been told to take a picture.
    fn of(slotd: &Slotd) -> Watcher {
        let mut watcher = Watcher(wire::connect(&slotd.root).unwrap());
        watcher.ask();
        assert_eq!(watcher.hear(), json!({ "all": true }));
        watcher.ask();
        watcher
    }

    fn ask(&mut self) {
        self.0.write_all(&wire::frame(br#""Watch""#, &[])).unwrap();
    }

    fn hear(&mut self) -> Value {
        wire::receive(&mut self.0).expect("news")["Changed"].take()
    }

    /// Hears until this job has changed. Whatever else is told meanwhile belongs to it too: one
    /// event may be more than one decision.
    #[track_caller]
    fn hears_of(&mut self, job: u32) {
        loop {
            let changed = self.hear();
            self.ask();
            let jobs = changed["jobs"].as_array().cloned().unwrap_or_default();
            if jobs.contains(&json!(job)) {
                assert_eq!(changed["queue"], true, "{changed}");
                return;
            }
        }
    }

    /// Whether nothing was told for a moment.
    fn is_quiet(&mut self) -> bool {
        self.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let heard = wire::receive(&mut self.0);
        self.0.set_read_timeout(Some(slotd_kit::PATIENCE)).unwrap();
        match heard {
            Ok(_) => {
                self.ask();
                false
            }
            Err(_) => true,
        }
    }

    /// What a job left to tell has been told.
    fn settle(&mut self, slotd: &Slotd) {
        slotd.wait("nothing more is told", || self.is_quiet().then_some(()));
    }
}

#[test]
fn each_thing_that_happens_to_a_job_is_told_and_nothing_else() {
    let slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    let job = slotd.wrap(&["-H"], "exec sleep 1000");
    watcher.hears_of(job);
    watcher.settle(&slotd);
    for (act, state) in [
        (format!("scontrol update jobid={job} comment=x"), "PENDING"),
        (format!("scontrol release {job}"), "RUNNING"),
        (format!("scontrol suspend {job}"), "SUSPENDED"),
        (format!("scontrol resume {job}"), "RUNNING"),
        (format!("scancel {job}"), "CANCELLED"),
    ] {
        slotd.line(&act).ok();
        watcher.hears_of(job);
        slotd.wait_state(job, state);
        watcher.settle(&slotd);
    }
    slotd
        .line(&format!("scontrol update nodename={} state=drain reason=rest", slotd_kit::host()))
        .ok();
    // A last word about the job may come late.
    let of_node = loop {
        let changed = watcher.hear();
        if changed["node"] == true {
            break changed;
        }
        watcher.ask();
    };
    assert_eq!(of_node, json!({ "queue": true, "node": true }));
}

#[test]
fn an_idle_queue_tells_nothing_and_wakes_nobody() {
    let slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    watcher.settle(&slotd);
    let pid = slotd.daemon_pid();
    slotd.wait("the daemon rests", || {
        let before = proc::wakeups(pid);
        (watcher.is_quiet() && proc::wakeups(pid) == before).then_some(())
    });
}

#[test]
fn a_client_that_asks_late_is_told_all_of_it_in_one_message() {
    let slotd = Slotd::start();
    let mut slow = Watcher(wire::connect(&slotd.root).unwrap());
    slow.ask();
    slow.hear();
    let jobs: Vec<u32> = (0..5).map(|_| slotd.wrap(&["-H"], "true")).collect();
    slow.ask();
    assert_eq!(slow.hear(), json!({ "jobs": jobs, "queue": true }));
    // More than anybody wants to be told by name.
    let array = slotd.wrap(&["-H", "-a", "0-1199"], "true");
    let tasks: Vec<String> = (0..1199).map(|task| format!("{array}_{task}")).collect();
    slotd.cmd("scancel", &tasks).ok();
    slow.ask();
    assert_eq!(slow.hear(), json!({ "all": true }));
}

#[test]
fn a_client_that_never_reads_holds_nobody_up() {
    let slotd = Slotd::start();
    let mut deaf = Watcher::of(&slotd);
    // It asks again and again, and leaves the answers where they are.
    for _ in 0..100 {
        deaf.ask();
    }
    let mut other = Watcher::of(&slotd);
    for _ in 0..20 {
        let job = slotd.wrap(&[], "true");
        other.hears_of(job);
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn a_new_daemon_tells_its_watchers_to_look_at_all() {
    let mut slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    slotd.kill9();
    assert!(wire::receive(&mut watcher.0).is_err(), "the connection ends with the daemon");
    slotd.start_daemon();
    Watcher::of(&slotd);
}
