//! Setting the wall clock changes no time limit, whether a daemon runs at that time or not. The
//! wall clock is only for display.

use slotd_kit::Slotd;

const HOUR: i64 = 3600;

/// Longer than any test takes, in seconds, and much less than an hour.
const BUSY: i64 = 600;

/// Returns the elapsed and the remaining time of a job in seconds.
fn times(slotd: &Slotd, job: u32) -> (i64, i64) {
    let shown = slotd
        .line(&format!("squeue -h -j {job} -O TimeUsed,TimeLeft,StartTime,EndTime"))
        .ok()
        .stdout;
    let words: Vec<&str> = shown.split_whitespace().collect();
    let secs = |text: &str| {
        text.split(':').fold(0, |all, part| all * 60 + part.parse::<i64>().expect("a number"))
    };
    (secs(words[0]), secs(words[1]))
}

#[test]
fn setting_the_clock_forward_ends_no_job_early() {
    let mut slotd = Slotd::start();
    let job = slotd.endless(&["-t", "30"]);
    for ahead in [HOUR, 24 * HOUR] {
        slotd.set_clock(ahead);
        let seen = times(&slotd, job);
        assert!(seen.0 < BUSY && seen.1 > 30 * 60 - BUSY && seen.0 + seen.1 == 30 * 60, "{seen:?}");
        // A daemon that starts after the clock was set has only the record to go by.
        slotd.crash();
        let seen = times(&slotd, job);
        assert!(seen.0 < BUSY && seen.1 > 30 * 60 - BUSY, "{seen:?}");
        assert_eq!(slotd.state(job), "RUNNING");
    }
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    let elapsed: i64 = slotd.sacct(job, "ElapsedRaw").trim().parse().unwrap();
    assert!(elapsed < BUSY, "{elapsed}");
}

#[test]
fn setting_the_clock_back_gives_no_job_more_time() {
    let mut slotd = Slotd::start();
    let [seen, unseen] = [(); 2].map(|()| slotd.begun(&[], "never", "true"));
    slotd.limit(seen, 1);
    slotd.set_clock(-HOUR);
    slotd.wait_state(seen, "TIMEOUT");
    slotd.kill9();
    slotd.set_clock(-2 * HOUR);
    slotd.start_daemon();
    // It has been running for more than a second.
    slotd.limit(unseen, 1);
    slotd.wait_state(unseen, "TIMEOUT");
    for job in [seen, unseen] {
        let ended = slotd.job(job);
        assert!(ended.start() <= ended.end());
        let elapsed: i64 = slotd.sacct(job, "ElapsedRaw").trim().parse().unwrap();
        assert!((1..BUSY).contains(&elapsed), "{elapsed}");
    }
}

#[test]
fn suspended_time_does_not_count_after_a_clock_change_and_a_restart() {
    let mut slotd = Slotd::start();
    let job = slotd.endless(&["-t", "30"]);
    slotd.line(&format!("scontrol suspend {job}")).ok();
    slotd.set_clock(HOUR);
    slotd.crash();
    slotd.wait_state(job, "SUSPENDED");
    slotd.set_clock(-HOUR);
    slotd.line(&format!("scontrol resume {job}")).ok();
    let seen = times(&slotd, job);
    assert!(seen.0 < BUSY && seen.1 > 30 * 60 - BUSY, "{seen:?}");
    slotd.crash();
    let seen = times(&slotd, job);
    assert!(seen.0 < BUSY && seen.1 > 30 * 60 - BUSY, "{seen:?}");
}
