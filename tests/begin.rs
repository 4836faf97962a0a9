//! Delayed start.

use slotd_kit::Slotd;

#[test]
fn job_waits_until_its_begin_time() {
    let slotd = Slotd::start();
    let before = now();
    let job = slotd.wrap(&["--begin", "now+00:10:00"], "echo delayed");
    let after = now();
    slotd.wait_reason(job, "BeginTime");
    let begin = slotd.queued(job).0["request"]["begin"].as_i64().unwrap() / 1_000_000;
    assert!((before + 600..=after + 600).contains(&begin), "{before} {begin} {after}");
    // Other jobs are not delayed.
    let other = slotd.wrap(&[], "true");
    slotd.wait_state(other, "COMPLETED");
}

#[test]
fn job_starts_at_its_begin_time() {
    let slotd = Slotd::start();
    // On a busy machine, the begin time may pass before the test can read the job.
    let job = slotd.wrap(&["--begin", "now+2"], "true");
    let ended = slotd.wait_state(job, "COMPLETED");
    let begin = ended.0["request"]["begin"].as_i64().unwrap();
    assert!(ended.start() >= begin, "started {} before {begin}", ended.start());
}

#[test]
fn begin_time_in_the_past_means_now() {
    let slotd = Slotd::start();
    for begin in ["2001-01-01", "2001-01-01T12:00:00", "1000000000", "now"] {
        let job = slotd.wrap(&["--begin", begin], "true");
        slotd.wait_state(job, "COMPLETED");
    }
}

#[test]
fn all_forms_are_accepted() {
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
fn squeue_start_shows_the_begin_time() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "2097-01-01T10:00:00"], "true");
    let id = job.to_string();
    let row = slotd.cmd("squeue", &["--start", "--noheader", "-j", &id]).ok();
    let cells: Vec<&str> = row.text().split('|').map(str::trim).collect();
    assert_eq!(cells[5], "2097-01-01T10:00:00", "{}", row.stdout);
    assert_eq!(
        slotd.cmd("squeue", &["-h", "-j", &id, "-o", "%S %r"]).ok().text(),
        "2097-01-01T10:00:00 BeginTime"
    );
}

#[test]
fn job_whose_begin_time_passed_without_a_daemon_starts_with_the_next_one() {
    let mut slotd = Slotd::start();
    let job = slotd.wrap(&["--begin", "now+1"], "true");
    slotd.kill9();
    let begun = std::time::Instant::now();
    slotd_kit::until(|| (begun.elapsed().as_millis() > 2100).then_some(())).unwrap();
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn array_with_a_begin_time_stays_one_record() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "0-2", "--begin", "now+1hour"], "true");
    slotd.wait_reason(job, "BeginTime");
    assert_eq!(slotd.records(job).len(), 1);
}

/// Returns when a job with this `--begin` would start, in seconds since 1970, in New York.
#[track_caller]
fn begins(slotd: &Slotd, begin: &str) -> i64 {
    let mut command = slotd.command("sbatch");
    command.env("TZ", "America/New_York").args([
        "--parsable",
        "--hold",
        "--begin",
        begin,
        "--wrap",
        "true",
    ]);
    let id: u32 = slotd.run(command).ok().text().parse().unwrap();
    slotd.job(id).0["request"]["begin"].as_i64().unwrap() / 1_000_000
}

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn begin_epoch_seconds() {
    assert_eq!(begins(&Slotd::start(), "4000000000"), 4_000_000_000);
}

#[test]
fn begin_date() {
    // Midnight in New York's winter is 05:00 UTC.
    assert_eq!(begins(&Slotd::start(), "2090-01-02"), 3_787_016_400);
}

#[test]
fn begin_date_and_time() {
    let slotd = Slotd::start();
    assert_eq!(begins(&slotd, "2090-01-02T03:04:05"), 3_787_016_400 + 3 * 3600 + 4 * 60 + 5);
    // In summer, the clock is an hour ahead.
    assert_eq!(begins(&slotd, "2090-07-02T00:00:00"), 3_787_016_400 + 181 * 86_400 - 3600);
}

#[test]
fn begin_now_plus_duration() {
    let slotd = Slotd::start();
    for (begin, secs) in [
        ("now+00:10:00", 600),
        ("now+1hour", 3600),
        ("now+60", 60),
        ("now+2days", 172_800),
        ("now+5minutes", 300),
    ] {
        let before = now();
        let at = begins(&slotd, begin);
        assert!((before + secs..=now() + secs).contains(&at), "{begin}: {}", at - before);
    }
}

#[test]
fn begin_accepts_all_of_slurms_forms() {
    let slotd = Slotd::start();
    for begin in [
        "16:00",
        "16:00:30",
        "4:00PM",
        "tomorrow",
        "midnight",
        "noon",
        "elevenses",
        "fika",
        "teatime",
    ] {
        let before = now();
        let at = begins(&slotd, begin);
        assert!((before..=now() + 2 * 86_400).contains(&at), "{begin}");
    }
    assert_eq!(begins(&slotd, "01/02/90"), 3_787_016_400);
    for begin in ["foo", "1h", "25:00", "2090-13-01"] {
        let out = slotd.cmd("sbatch", &["--begin", begin, "--wrap", "true"]).fails(255);
        let (first, hint) = out.stderr.split_once('\n').unwrap();
        assert_eq!(first, format!("sbatch: error: Invalid --begin specification: {begin}"));
        assert!(hint.starts_with("  hint: now+2hours, "), "{hint}");
    }
}

#[test]
fn delayed_start_example() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--begin", "now+00:10:00"], "echo delayed");
    slotd.wait_reason(id, "BeginTime");
    // The job stays pending until the begin time, which squeue --start shows.
    let seen = slotd.cmd("squeue", &["--start", "-h", "-o", "%i %t %S %r"]).ok();
    let shown = slotd.show(id, "StartTime");
    assert_eq!(seen.text(), format!("{id} PD {shown} BeginTime"));
}
