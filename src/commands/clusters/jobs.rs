//! Jobs of other clusters in slotd's own commands: `wait`, `log` and `why` take `17@hpc`.

use super::super::Done;
use super::named::{There, record, there};
use super::remote::{
    Messages, Remote, UNKNOWN, existing_journal, failure, known, print, safe, seconds,
};
use crate::args::error::CliError;
use crate::clusters::config::Cluster;
use crate::clusters::journal::End;
use crate::clusters::link::{Clusters, Ended, Input};
use crate::clusters::program::{self, Place};
use crate::clusters::states::{self, Standing};
use crate::commands::output::print_stderr;
use slotd_sys::clock;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time after which a job that is unknown to all commands is reported as UNKNOWN, in seconds.
const UNKNOWN_AFTER: u64 = 120;

/// Asks a cluster for the states of jobs with one query, and records which submissions have ended.
/// The inner error is the end of a query that did not get an answer.
///
/// # Errors
/// Fails if the query cannot be started.
pub fn standings(
    cluster: &Cluster,
    ids: &[String],
) -> Result<Result<Vec<Standing>, Ended>, CliError> {
    let query = Remote::new(cluster, &program::states(ids), "squeue")?;
    let output = query.output(Input::Nothing)?;
    if output.ended != Ended::Code(0) {
        return Ok(Err(output.ended));
    }
    let standings = states::read(&output.out, ids);
    // If a record cannot be written, the cluster is only queried again later.
    let _ = note_ends(cluster, ids, &standings);
    Ok(Ok(standings))
}

fn note_ends(cluster: &Cluster, ids: &[String], standings: &[Standing]) -> io::Result<()> {
    let ended = |(id, standing): (&String, &Standing)| match standing {
        Standing::Ended { state, at, .. } => {
            Some((id.parse().ok()?, End { at: at.unwrap_or_else(seconds), state: state.clone() }))
        }
        Standing::Active(_) | Standing::Unknown | Standing::Unanswered => None,
    };
    let ends: BTreeMap<u64, End> = ids.iter().zip(standings).filter_map(ended).collect();
    let Some(journal) = existing_journal()?.filter(|_| !ends.is_empty()) else { return Ok(()) };
    for record in journal.all()? {
        let job = record.open_job().filter(|_| record.is_at(cluster));
        if let Some(end) = job.and_then(|job| ends.get(&job)) {
            // The clock of the cluster may be wrong, but no job ends before its submission.
            let end = End { at: end.at.max(record.at), ..end.clone() };
            journal.change(&record.token, |record| record.end = Some(end.clone()))?;
        }
    }
    Ok(())
}

/// Waits until the jobs have ended. Queries all of them once per `poll`. Returns the highest exit
/// code, or 75 if the commands of the cluster have answered and one of the jobs is unknown to all
/// of them. Commands that fail are retried.
///
/// # Errors
/// Fails if the first query does not get an answer. Later ones are retried.
pub fn wait_for(clusters: &Clusters, cluster: &Cluster, ids: &[String]) -> Done {
    let mut waiting: Vec<String> = ids.to_vec();
    waiting.sort();
    waiting.dedup();
    let mut missing: BTreeMap<String, u64> = BTreeMap::new();
    let mut worst = 0;
    let (mut has_answered, mut is_away, mut is_silent) = (false, false, false);
    loop {
        let now = clock::monotonic().as_secs();
        match standings(cluster, &waiting)? {
            Ok(standings) => {
                (has_answered, is_away) = (true, false);
                let was_silent = is_silent;
                is_silent = standings.contains(&Standing::Unanswered);
                if is_silent && !was_silent {
                    print_stderr(&format!(
                        "slotd: squeue, sacct or scontrol of cluster {} does not answer; trying again every {} seconds\n",
                        cluster.name, cluster.poll
                    ));
                }
                let mut left = Vec::new();
                for (id, standing) in waiting.iter().zip(standings) {
                    match standing {
                        Standing::Active(_) | Standing::Unanswered => {
                            missing.remove(id);
                            left.push(id.clone());
                        }
                        Standing::Ended { code, .. } => worst = worst.max(code),
                        Standing::Unknown => {
                            let since = *missing.entry(id.clone()).or_insert(now);
                            if now.saturating_sub(since) < UNKNOWN_AFTER {
                                left.push(id.clone());
                            } else {
                                print_stderr(&format!(
                                    "slotd: job {id}@{} is UNKNOWN: squeue, sacct and scontrol there do not know it\n",
                                    cluster.name
                                ));
                                worst = worst.max(u8::try_from(UNKNOWN).unwrap_or(1));
                            }
                        }
                    }
                }
                waiting = left;
            }
            Err(ended) => {
                let error = failure(clusters, cluster, &ended, "squeue");
                if !has_answered {
                    return Err(error);
                }
                if !is_away {
                    print_stderr(&error.text("slotd"));
                    print_stderr(&format!("slotd: trying again every {} seconds\n", cluster.poll));
                }
                is_away = true;
            }
        }
        if waiting.is_empty() {
            return Ok(worst);
        }
        let unknown = missing.values().map(|since| (since + UNKNOWN_AFTER).saturating_sub(now));
        let pause = unknown.min().map_or(cluster.poll, |left| left.clamp(1, cluster.poll));
        // The interval that the user set: a cluster sends no events.
        std::thread::sleep(Duration::from_secs(pause));
    }
}

/// Waits for the jobs of all clusters at once, next to `own`, which waits for jobs of this host.
///
/// # Errors
/// Fails with the first error, once all others have ended.
pub fn wait(words: &[String], own: impl FnOnce() -> Done) -> Done {
    let clusters = known()?;
    let there = there(words, &clusters)?;
    std::thread::scope(|scope| {
        let clusters = &clusters;
        let threads: Vec<_> = there
            .iter()
            .map(|there| scope.spawn(move || wait_for(clusters, there.cluster, &there.ids)))
            .collect();
        let mut worst = own();
        for thread in threads {
            let done = thread.join().unwrap_or_else(|_| {
                Err(CliError::error(1, "waiting for a cluster failed unexpectedly: try again"))
            });
            worst = match (worst, done) {
                (Ok(a), Ok(b)) => Ok(a.max(b)),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        worst
    })
}

/// The part of a command line of `slotd log` that concerns other clusters.
pub struct Log {
    pub follow: bool,
    pub error: bool,
    pub lines: Option<u64>,
}

/// Prints the output of one job, and follows it until the job has ended.
///
/// # Errors
/// Fails if several jobs are named, if the cluster cannot be reached, or if it does not know the
/// file.
pub fn log(words: &[String], log: &Log) -> Done {
    let clusters = known()?;
    let [word] = words else {
        return Err(CliError::error(
            2,
            "only one job can be logged if it is on another cluster: name one job",
        ));
    };
    let there = there(std::slice::from_ref(word), &clusters)?;
    let Some(There { cluster, ids }) = there.first() else { return Ok(0) };
    let id = &ids[0];
    let record = record(cluster, id)?;
    let copied =
        record.as_ref().and_then(|record| record.copied.as_deref().map(|below| (record, below)));
    let place = copied.map(|(record, _)| Place { dir: &record.dir, token: &record.token });
    let file = format!("slurm-{id}.out");
    let fallback = copied.map_or(PathBuf::new(), |(_, below)| Path::new(below).join(&file));
    let follow = log.follow.then_some(cluster.poll.min(60));
    let body = program::log(place, id, log.error, log.lines, follow, &fallback.to_string_lossy());
    let remote = Remote::new(cluster, &body, "scontrol")?;
    let mut messages = Messages::default();
    let ended = remote.pass_through(Input::Nothing, &mut |bytes| messages.feed(bytes))?;
    drop(messages);
    let Some(ended) = ended else { return Ok(1) };
    match ended {
        Ended::Code(0) if log.follow => wait_for(&clusters, cluster, ids),
        Ended::Code(code) => Ok(code),
        ended => Err(failure(&clusters, cluster, &ended, "scontrol")),
    }
}

/// Prints why jobs are pending or how they ended, in the cluster's own words.
///
/// # Errors
/// Fails if a cluster cannot be reached or does not know a job.
pub fn why(words: &[String]) -> Done {
    let clusters = known()?;
    let mut is_unknown = false;
    for There { cluster, ids } in there(words, &clusters)? {
        for id in ids {
            let output =
                Remote::new(cluster, &program::show(&id), "scontrol")?.output(Input::Nothing)?;
            let Ended::Code(_) = output.ended else {
                return Err(failure(&clusters, cluster, &output.ended, "scontrol"));
            };
            match explanation(
                &String::from_utf8_lossy(&output.out),
                &format!("{id}@{}", cluster.name),
            ) {
                Some(text) => {
                    let lines: Vec<String> = text.lines().map(|line| safe(line) + "\n").collect();
                    print(lines.concat().as_bytes())?;
                }
                None => {
                    is_unknown = true;
                    print_stderr(&format!("slotd: error: there is no job {id}@{}\n", cluster.name));
                }
            }
        }
    }
    Ok(u8::from(is_unknown))
}

/// Explains a job by the output of scontrol or of sacct.
fn explanation(text: &str, job: &str) -> Option<String> {
    let value = |key: &str| {
        let word =
            text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        (!["(null)", "None", "Unknown", "N/A"].contains(&word)).then_some(word)
    };
    if let Some(state) = value("JobState") {
        let name = value("JobName").unwrap_or("?");
        let mut lines = format!("Job {job} ({name}) is {state}.\n");
        let mut put = |what: &str, value: Option<&str>| {
            if let Some(value) = value {
                lines.push_str(&format!("  {what}: {value}\n"));
            }
        };
        put("Reason", value("Reason"));
        put("Dependency", value("Dependency"));
        let start = if state == "PENDING" { "Expected start" } else { "Started" };
        put(start, value("StartTime"));
        put("Time limit", value("TimeLimit"));
        if state != "PENDING" && state != "RUNNING" {
            put("Exit code", value("ExitCode"));
            put("Ended", value("EndTime"));
        }
        put("Output", value("StdOut"));
        return Some(lines);
    }
    let row: Vec<&str> = text.lines().next()?.split('|').collect();
    let [_, name, state, exit, start, end, elapsed, limit] = row.as_slice() else { return None };
    Some(format!(
        "Job {job} ({name}) is {state}.\n  Exit code: {exit}\n  Started: {start}\n  Ended: {end}\n  Elapsed: {elapsed} of {limit}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_explained_in_the_words_of_the_cluster() {
        let text = "JobId=17 JobName=fit\n   JobState=PENDING Reason=Resources Dependency=(null)\n   StartTime=2026-11-23T08:24:03 TimeLimit=01:00:00\n";
        assert_eq!(
            explanation(text, "17@hpc").unwrap(),
            "Job 17@hpc (fit) is PENDING.\n  Reason: Resources\n  Expected start: 2026-11-23T08:24:03\n  Time limit: 01:00:00\n"
        );
        assert!(
            explanation("17|fit|FAILED|3:0|a|b|00:01|UNLIMITED\n", "17@hpc")
                .unwrap()
                .contains("is FAILED.\n  Exit code: 3:0")
        );
        assert_eq!(explanation("", "17@hpc"), None);
    }
}
