//! Delayed start.

use slotd_kit::Slotd;

#[test]
fn a_job_waits_until_its_begin_time() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "now+00:10:00"], "echo delayed");
    slotd.wait_reason(job, "BeginTime");
    let request = slotd.queued(job);
    let begin = request.0["request"]["begin"].as_i64().unwrap();
    let submit = request.0["submit"].as_i64().unwrap();
    // Whole seconds, as everywhere in Slurm.
    assert!((begin - submit - 600_000_000).abs() <= 1_000_000, "{begin} {submit}");
    // Others are not held up.
    let other = slotd.wrap(&[], "true");
    slotd.wait_state(other, "COMPLETED");
}

#[test]
fn it_starts_by_itself_when_the_time_has_come() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "now+2"], "true");
    slotd.wait_reason(job, "BeginTime");
    let ended = slotd.wait_state(job, "COMPLETED");
    let begin = ended.0["request"]["begin"].as_i64().unwrap();
    assert!(ended.start() >= begin, "started {} before {begin}", ended.start());
}

#[test]
fn a_begin_time_in_the_past_is_now() {
    let slotd = Slotd::start();
    for begin in ["2001-01-01", "2001-01-01T12:00:00", "1000000000", "now"] {
        let job = slotd.wrap(&["--begin", begin], "true");
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn every_form_is_understood() {
    let slotd = Slotd::start();
    for begin in [
        "2097-01-01",
        "2097-01-01T10:00:00",
        "4000000000",
        "now+1hour",
        "now+60",
        "now+2days",
        "now+00:30:00",
        "tomorrow",
        "010140",
    ] {
        let job = slotd.wrap(&["--begin", begin], "true");
        slotd.wait_reason(job, "BeginTime");
    }
}

#[test]
fn squeue_start_shows_when_it_will_start() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "2097-01-01T10:00:00"], "true");
    let id = job.to_string();
    let row = slotd.cmd("squeue", &["--start", "--noheader", "-j", &id]).ok();
    let cells: Vec<&str> = row.text().split('|').map(str::trim).collect();
    assert_eq!(cells[5], "2097-01-01T10:00:00", "{}", row.stdout);
    assert_eq!(slotd.cmd("squeue", &["-h", "-j", &id, "-o", "%S %r"]).ok().text(), "2097-01-01T10:00:00 BeginTime");
}

#[test]
fn a_job_whose_time_came_without_a_daemon_starts_with_the_next_one() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "now+1"], "true");
    slotd.kill9();
    let begun = std::time::Instant::now();
    slotd_kit::until(|| (begun.elapsed().as_millis() > 2100).then_some(())).unwrap();
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn an_array_begins_as_one() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "0-2", "--begin", "now+1hour"], "true");
    slotd.wait_reason(job, "BeginTime");
    assert_eq!(slotd.records(job).len(), 1);
}
