//! The wall clock is for showing: setting it changes no limit, whether a daemon sees it or not.

use slotd_kit::Slotd;

const HOUR: i64 = 3600;

/// Seconds that no test takes, and far from an hour.
const BUSY: i64 = 600;

/// Elapsed and what is left of the limit, seconds.
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
fn a_wall_clock_that_is_set_forward_ends_no_job_early() {
    let mut slotd = Slotd::start();
    let job = slotd.endless(&["-t", "30"]);
    for ahead in [HOUR, 24 * HOUR] {
        slotd.set_clock(ahead);
        let seen = times(&slotd, job);
        assert!(seen.0 < BUSY && seen.1 > 30 * 60 - BUSY && seen.0 + seen.1 == 30 * 60, "{seen:?}");
        // A daemon that was not there when the clock was set knows it from the record alone.
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
fn a_wall_clock_that_is_set_back_gives_no_job_more_time() {
    let mut slotd = Slotd::start();
    let [seen, unseen] = [(); 2].map(|()| slotd.begun(&[], "never", "true"));
    slotd.limit(seen, 1);
    slotd.set_clock(-HOUR);
    slotd.wait_state(seen, "TIMEOUT");
    slotd.kill9();
    slotd.set_clock(-2 * HOUR);
    slotd.start_daemon();
    // Its second has passed long ago.
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
fn time_in_suspension_does_not_count_through_a_clock_that_is_set_and_another_daemon() {
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
