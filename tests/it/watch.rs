//! Notifications of changes to clients that keep a copy of the queue.

use serde_json::{Value, json};
use slotd_kit::{Slotd, proc, wire};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A client that is notified of changes.
struct Watcher(UnixStream);

impl Watcher {
    /// Creates a client that has received its first notification, to fetch everything.
    fn of(slotd: &Slotd) -> Watcher {
        let mut watcher = Watcher(wire::connect(&slotd.root).unwrap());
        watcher.ask();
        assert_eq!(watcher.receive(), json!({ "all": true }));
        watcher.ask();
        watcher
    }

    fn ask(&mut self) {
        self.0.write_all(&wire::frame(br#""Watch""#, &[])).unwrap();
    }

    fn receive(&mut self) -> Value {
        wire::receive(&mut self.0).expect("a notification")["Changed"].take()
    }

    /// Receives notifications until this job has changed. Other notifications in the meantime are
    /// part of the same change, since one event may cause several decisions.
    #[track_caller]
    fn wait_job(&mut self, job: u32) {
        loop {
            let changed = self.receive();
            self.ask();
            let jobs = changed["jobs"].as_array().cloned().unwrap_or_default();
            if jobs.contains(&json!(job)) {
                assert_eq!(changed["queue"], true, "{changed}");
                return;
            }
        }
    }

    /// Returns whether there is no notification for a moment.
    fn is_quiet(&mut self) -> bool {
        self.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let received = wire::receive(&mut self.0);
        self.0.set_read_timeout(Some(slotd_kit::PATIENCE)).unwrap();
        match received {
            Ok(_) => {
                self.ask();
                false
            }
            Err(_) => true,
        }
    }

    /// Waits until there are no more notifications.
    fn settle(&mut self, slotd: &Slotd) {
        slotd.wait("the end of notifications", || self.is_quiet().then_some(()));
    }
}

#[test]
fn clients_are_notified_of_every_change_of_a_job_and_nothing_else() {
    let slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    let job = slotd.wrap(&["-H"], "exec sleep 1000");
    watcher.wait_job(job);
    watcher.settle(&slotd);
    for (command, state) in [
        (format!("scontrol update jobid={job} comment=x"), "PENDING"),
        (format!("scontrol release {job}"), "RUNNING"),
        (format!("scontrol suspend {job}"), "SUSPENDED"),
        (format!("scontrol resume {job}"), "RUNNING"),
        (format!("scancel {job}"), "CANCELLED"),
    ] {
        slotd.line(&command).ok();
        watcher.wait_job(job);
        slotd.wait_state(job, state);
        watcher.settle(&slotd);
    }
    slotd
        .line(&format!("scontrol update nodename={} state=drain reason=rest", slotd_kit::host()))
        .ok();
    // A last notification about the job may arrive late.
    let of_node = loop {
        let changed = watcher.receive();
        if changed["node"] == true {
            break changed;
        }
        watcher.ask();
    };
    assert_eq!(of_node, json!({ "queue": true, "node": true }));
}

#[test]
fn an_idle_queue_sends_no_notifications() {
    let slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    watcher.settle(&slotd);
    let pid = slotd.daemon_pid();
    slotd.wait("an idle daemon", || {
        let before = proc::wakeups(pid);
        (watcher.is_quiet() && proc::wakeups(pid) == before).then_some(())
    });
}

#[test]
fn a_late_client_gets_all_changes_in_one_message() {
    let slotd = Slotd::start();
    let mut slow = Watcher(wire::connect(&slotd.root).unwrap());
    slow.ask();
    slow.receive();
    let jobs: Vec<u32> = (0..5).map(|_| slotd.wrap(&["-H"], "true")).collect();
    slow.ask();
    assert_eq!(slow.receive(), json!({ "jobs": jobs, "queue": true }));
    // Too many changes to list individually.
    let array = slotd.wrap(&["-H", "-a", "0-1199"], "true");
    let tasks: Vec<String> = (0..1199).map(|task| format!("{array}_{task}")).collect();
    slotd.cmd("scancel", &tasks).ok();
    slow.ask();
    assert_eq!(slow.receive(), json!({ "all": true }));
}

#[test]
fn a_watcher_that_never_reads_blocks_nobody() {
    let slotd = Slotd::start();
    let mut unread = Watcher::of(&slotd);
    // It sends requests repeatedly without reading the responses.
    for _ in 0..100 {
        unread.ask();
    }
    let mut other = Watcher::of(&slotd);
    for _ in 0..20 {
        let job = slotd.wrap(&[], "true");
        other.wait_job(job);
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn watchers_of_a_new_daemon_fetch_everything() {
    let mut slotd = Slotd::start();
    let mut watcher = Watcher::of(&slotd);
    slotd.kill9();
    assert!(wire::receive(&mut watcher.0).is_err(), "the connection must end with the daemon");
    slotd.start_daemon();
    Watcher::of(&slotd);
}
