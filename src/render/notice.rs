//! Notifications as mail or JSON.
//!
//! Mail subjects follow Slurm's, since mail filters are written for them.

use crate::size::glance;
use crate::time;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use slotd_model::mail::MailKind;
use slotd_model::memo::Tally;
use slotd_model::notice::{Channel, Counts, Notice, RunFacts};
use slotd_model::{ExitCode, Timestamp};
use std::fmt::Write as _;

/// Returns the subject: `Slurm Job_id=12 Name=train Ended, Run time 00:10:03, COMPLETED, ExitCode
/// 0`.
pub fn subject(notice: &Notice) -> String {
    let Channel::Mail(kind) = notice.channel else { return notice.text.clone() };
    let name = &notice.name;
    let id = match (&notice.tally, notice.job_id.contains('_')) {
        (Some(_), _) => format!("Array Summary Job_id={}_* ({})", notice.job_id, notice.record),
        (None, true) => format!("Array Task Job_id={} ({})", notice.job_id, notice.record),
        (None, false) => format!("Job_id={}", notice.job_id),
    };
    format!("Slurm {id} Name={name} {}{}{}", what(kind), lapse(kind, notice), outcome(kind, notice))
}

fn what(kind: MailKind) -> String {
    match kind {
        MailKind::Begin => "Began".to_owned(),
        MailKind::End => "Ended".to_owned(),
        MailKind::Fail => "Failed".to_owned(),
        MailKind::Requeue => "Requeued".to_owned(),
        MailKind::InvalidDepend => "Invalid dependency".to_owned(),
        MailKind::TimeLimit(100) => "Reached time limit".to_owned(),
        MailKind::TimeLimit(percent) => format!("Reached {percent}% of time limit"),
    }
}

fn lapse(kind: MailKind, notice: &Notice) -> String {
    let run = notice.run.as_deref();
    let start = run.and_then(|run| run.start);
    let of_array = |tally: &Tally| tally.start.map(|start| notice.at.since(start).as_secs());
    match kind {
        MailKind::Begin => {
            let queued = run.and_then(|run| Some(run.start?.since(run.submit).as_secs()));
            queued.map(|secs| format!(", Queued time {}", time::long(secs))).unwrap_or_default()
        }
        MailKind::InvalidDepend => String::new(),
        MailKind::End | MailKind::Fail | MailKind::Requeue | MailKind::TimeLimit(_) => {
            let own = run.filter(|_| start.is_some()).map(|run| run.elapsed_secs);
            let secs = notice.tally.as_deref().map_or(own, of_array);
            secs.map(|secs| format!(", Run time {}", time::long(secs))).unwrap_or_default()
        }
    }
}

fn outcome(kind: MailKind, notice: &Notice) -> String {
    if !matches!(kind, MailKind::End | MailKind::Fail) {
        return String::new();
    }
    let Some(tally) = &notice.tally else {
        let exit = notice.run.as_ref().map_or(ExitCode::OK, |run| run.exit);
        let code = if exit.signal == 0 {
            format!("ExitCode {}", exit.status)
        } else {
            format!("Signal {}", exit.signal)
        };
        return format!(", {}, {code}", notice.state);
    };
    let (best, worst) = tally.codes.unwrap_or_default();
    let requeued = if tally.requeued { ", with requeued tasks" } else { "" };
    let is_mixed = best != worst || tally.counts.iter().count() > 1;
    let state = if is_mixed { "Mixed" } else { notice.state.name() };
    let codes = match (best.signal, worst.signal) {
        (0, 0) => format!("ExitCode [{}-{}]", best.status, worst.status),
        _ => format!("MaxSignal [{}]", worst.signal),
    };
    format!(", {state}, {codes}{requeued}")
}

/// Returns the body of a mail. `last_lines` is the end of a failed job's standard error.
pub fn body(notice: &Notice, host: &str, tz: &TimeZone, last_lines: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_body(&mut out, notice, host, tz, last_lines);
    out
}

fn write_body(
    out: &mut String,
    notice: &Notice,
    host: &str,
    tz: &TimeZone,
    last_lines: &str,
) -> Result<(), std::fmt::Error> {
    if !notice.text.is_empty() {
        writeln!(out, "{}\n", notice.text)?;
    }
    writeln!(
        out,
        "Job ID: {}\nName: {}\nUser: {}\nHost: {host}",
        notice.job_id, notice.name, notice.user
    )?;
    writeln!(out, "Partition: {}\nState: {}", notice.partition, notice.state)?;
    if let Some(tally) = &notice.tally {
        writeln!(out, "Finished tasks: {}", count_or_none(&tally.counts))?;
    }
    if let Some(run) = &notice.run {
        write_run(out, run, tz)?;
    }
    if !last_lines.is_empty() {
        writeln!(out, "\nThe last lines of its standard error:\n\n{last_lines}")?;
    }
    Ok(())
}

fn count_or_none(counts: &Counts) -> String {
    if counts.total() == 0 { "none".to_owned() } else { counts.to_string() }
}

fn write_run(out: &mut String, run: &RunFacts, tz: &TimeZone) -> Result<(), std::fmt::Error> {
    let at = |what: &str, at: Option<Timestamp>| {
        at.map(|at| format!("{what}: {}\n", time::iso(at, tz))).unwrap_or_default()
    };
    let times = [at("Submitted", Some(run.submit)), at("Started", run.start), at("Ended", run.end)]
        .concat();
    write!(out, "{times}")?;
    writeln!(out, "Time limit: {}", time::long_limit(run.time_limit_secs))?;
    writeln!(
        out,
        "CPUs: {}\nRequested memory: {}",
        run.tres.cpus,
        glance(run.tres.mem_mb as f64 * 1048576.0)
    )?;
    if run.tres.gpus > 0 {
        writeln!(out, "GPUs: {}", run.tres.gpus)?;
    }
    if run.end.is_some() && run.start.is_some() {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
        let (cpu_secs, core_secs) =
            (run.cpu_us as f64 / 1e6, run.elapsed_secs as f64 * f64::from(run.tres.cpus));
        writeln!(out, "Run time: {}\nExit code: {}", time::long(run.elapsed_secs), run.exit)?;
        let used = time::long(run.cpu_us / 1_000_000);
        writeln!(
            out,
            "CPU utilized: {used} ({:.0}% of the allocation)",
            share(cpu_secs, core_secs)
        )?;
        let (memory, asked_kb) =
            (glance(run.max_rss_kb as f64 * 1024.0), run.tres.mem_mb as f64 * 1024.0);
        writeln!(
            out,
            "Memory utilized: {memory} ({:.0}% of the allocation)",
            share(run.max_rss_kb as f64, asked_kb)
        )?;
    }
    Ok(())
}

/// Returns the JSON that is posted for an event. The fields are documented in
/// `contrib/book/src/guides/notifications.md`.
pub fn json(number: u64, notice: &Notice, host: &str) -> Value {
    let secs = |at: Timestamp| at.0.div_euclid(1_000_000);
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() && value != Value::String(String::new()) {
            object.insert(key.to_owned(), value);
        }
    };
    put("number", json!(number));
    put("event", json!(notice.event.name()));
    put("text", json!(notice.text));
    put("time", json!(secs(notice.at)));
    put("host", json!(host));
    put("job", json!(notice.job_id));
    put("name", json!(notice.name));
    put("user", json!(notice.user));
    put("partition", json!(notice.partition));
    put("state", json!(notice.state.name()));
    put("reason", json!(notice.reason.name()));
    if let Some(run) = notice.run.as_deref() {
        put("submit", json!(secs(run.submit)));
        put("start", json!(run.start.map(secs)));
        put("end", json!(run.end.map(secs)));
        put("elapsed", json!(run.elapsed_secs));
        put("time_limit", json!(run.time_limit_secs));
        if notice.state.is_terminal() {
            put("exit_code", json!(run.exit.status));
            put("signal", json!(run.exit.signal));
            put("cpu_seconds", json!(run.cpu_us / 1_000_000));
            put("max_rss_kb", json!(run.max_rss_kb));
        }
        put("cpus", json!(run.tres.cpus));
        put("memory_mb", json!(run.tres.mem_mb));
        put("gpus", json!(run.tres.gpus));
    }
    if let Some(tally) = notice.tally.as_deref() {
        let states: Map<String, Value> = tally
            .counts
            .iter()
            .map(|(state, count)| (state.name().to_owned(), json!(count)))
            .collect();
        put("jobs", json!(tally.counts.total()));
        put("states", Value::Object(states));
        put("first", json!(tally.first.as_ref().map(|job| job.id.0)));
        put("last", json!(tally.last.as_ref().map(|job| job.id.0)));
        put("since", json!(secs(tally.since)));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::notice::Event;
    use slotd_model::run::RunState;
    use slotd_model::{ArrayRole, End, Job, JobId, JobState, Reason};
    use std::sync::Arc;

    fn job(state: JobState, exit: ExitCode) -> Job {
        let mut job = Job { id: JobId(12), submit: Timestamp::from_secs(100), ..Job::default() };
        Arc::make_mut(&mut job.request).name = "train".to_owned();
        let times = (Some(Timestamp::from_secs(160)), Some(Timestamp::from_secs(763)));
        job.run = RunState { state, exit, start: times.0, end: times.1, ..RunState::default() };
        job.tres.cpus = 2;
        job
    }

    fn mail(job: &Job, kind: MailKind) -> Notice {
        Notice { channel: Channel::Mail(kind), ..Notice::of_end(job, Timestamp::from_secs(763)) }
    }

    #[test]
    fn subjects_match_slurm() {
        let done = job(JobState::Ended(End::Completed), ExitCode::OK);
        let failed = job(JobState::Ended(End::Failed), ExitCode::status(3));
        let task = Job { role: ArrayRole::Task { array_job: JobId(7), task: 3 }, ..done.clone() };
        for (notice, subject_of) in [
            (
                mail(&done, MailKind::End),
                "Job_id=12 Name=train Ended, Run time 00:10:03, COMPLETED, ExitCode 0",
            ),
            (
                mail(&failed, MailKind::Fail),
                "Job_id=12 Name=train Failed, Run time 00:10:03, FAILED, ExitCode 3",
            ),
            (mail(&done, MailKind::Begin), "Job_id=12 Name=train Began, Queued time 00:01:00"),
            (
                mail(&done, MailKind::TimeLimit(80)),
                "Job_id=12 Name=train Reached 80% of time limit, Run time 00:10:03",
            ),
            (
                mail(&task, MailKind::Requeue),
                "Array Task Job_id=7_3 (12) Name=train Requeued, Run time 00:10:03",
            ),
        ] {
            assert_eq!(subject(&notice), format!("Slurm {subject_of}"));
        }
        let mut tally = Tally {
            start: Some(Timestamp::from_secs(700)),
            ..Tally::since(Timestamp::from_secs(90))
        };
        tally.counts.add(End::Completed, 2);
        tally.note_code(ExitCode::OK);
        let array = |tally| Notice {
            channel: Channel::Mail(MailKind::End),
            ..Notice::of_array(&task, JobId(7), tally, Timestamp::from_secs(763))
        };
        let same = subject(&array(tally.clone()));
        assert_eq!(
            same,
            "Slurm Array Summary Job_id=7_* (7) Name=train Ended, Run time 00:01:03, COMPLETED, ExitCode [0-0]"
        );
        tally.counts.add(End::Failed, 1);
        tally.note_code(ExitCode::status(4));
        let mixed = subject(&array(tally));
        assert_eq!(
            mixed,
            "Slurm Array Summary Job_id=7_* (7) Name=train Ended, Run time 00:01:03, Mixed, ExitCode [0-4]"
        );
    }

    #[test]
    fn a_body_has_the_usage_and_the_last_output() {
        let failed = job(JobState::Ended(End::Failed), ExitCode::status(3));
        let text = body(&mail(&failed, MailKind::Fail), "vm", &TimeZone::UTC, "boom\n");
        assert!(
            text.starts_with(
                "job 12 (train) has ended: FAILED, exit code 3\n\nJob ID: 12\nName: train\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("\nStarted: 1970-01-01T00:02:40\nEnded: 1970-01-01T00:12:43\n"),
            "{text}"
        );
        assert!(
            text.contains("\nExit code: 3:0\nCPU utilized: 00:00:00 (0% of the allocation)\n"),
            "{text}"
        );
        assert!(text.ends_with("\nThe last lines of its standard error:\n\nboom\n\n"), "{text}");
    }

    #[test]
    fn json_has_no_empty_fields() {
        let done = job(JobState::Ended(End::Completed), ExitCode::OK);
        let one = json(9, &mail(&done, MailKind::End), "vm");
        let job = json!({"number": 9, "event": "job", "text": "job 12 (train) has ended: COMPLETED", "time": 763,
            "host": "vm", "job": "12", "name": "train", "state": "COMPLETED", "reason": "None", "submit": 100,
            "start": 160, "end": 763, "elapsed": 603, "exit_code": 0, "signal": 0, "cpu_seconds": 0, "max_rss_kb": 0,
            "cpus": 2, "memory_mb": 0, "gpus": 0});
        assert_eq!(one, job);
        let mut tally = Tally::since(Timestamp::from_secs(90));
        tally.counts.add(End::Failed, 2);
        tally.add_job(JobId(3), "a");
        let queue = Notice::of_several(Event::Queue, tally, Timestamp::from_secs(100));
        assert_eq!(queue.reason, Reason::None);
        let want = json!({"number": 1, "event": "queue", "text": "the queue is empty: 2 jobs: 2 FAILED", "time": 100,
            "host": "vm", "state": "FAILED", "reason": "None", "jobs": 2, "states": {"FAILED": 2}, "first": 3, "last": 3,
            "since": 90});
        assert_eq!(json(1, &queue, "vm"), want);
    }
}
