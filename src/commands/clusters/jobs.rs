//! Jobs of other clusters in slotd's own commands: `wait`, `log`, `why` and `fetch` take `17@hpc`.

use super::super::Done;
use super::remote::{
    Remote, UNKNOWN, existing_journal, failure, journal, known, print, seconds, tell,
};
use crate::args::error::CliError;
use crate::clusters::config::Cluster;
use crate::clusters::journal::{End, Record};
use crate::clusters::link::{self, Clusters, Ended, Input, Stream};
use crate::clusters::program::{self, Place};
use crate::clusters::states::{self, Standing};
use crate::clusters::unpack;
use slotd_parse::error::shown;
use slotd_sys::beneath::Dir;
use slotd_sys::clock;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// The time after which a job that no command knows is UNKNOWN, in seconds.
const UNKNOWN_AFTER: u64 = 120;

/// Jobs of one cluster.
pub struct There<'a> {
    pub cluster: &'a Cluster,
    pub ids: Vec<String>,
}

/// Returns whether a word names a job of another cluster.
pub fn is_there(word: &str) -> bool {
    word.contains('@')
}

/// Groups words such as `17@hpc` by cluster.
///
/// # Errors
/// Fails if a word is not a job ID with a cluster of the file.
pub fn named<'a>(words: &[String], clusters: &'a Clusters) -> Result<Vec<There<'a>>, CliError> {
    let mut found: BTreeMap<&str, There<'_>> = BTreeMap::new();
    for word in words {
        let (id, name) = word.rsplit_once('@').unwrap_or(("", word));
        let is_id = |part: &str| {
            !part.is_empty() && part.len() < 19 && part.bytes().all(|b| b.is_ascii_digit())
        };
        if !id.split('_').all(is_id) || id.split('_').count() > 2 {
            return Err(CliError::error(2, format!("invalid job ID: {}", shown(word)))
                .hint("jobs of other clusters are written 17@hpc or 17_3@hpc"));
        }
        let cluster = clusters.find(name).ok_or_else(|| {
            CliError::error(1, format!("No cluster '{}' known by database.", shown(name)))
                .hint(format!("clusters are listed in {}", clusters.file.display()))
        })?;
        let there =
            found.entry(&cluster.name).or_insert_with(|| There { cluster, ids: Vec::new() });
        there.ids.push(id.to_owned());
    }
    Ok(found.into_values().collect())
}

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
    // A record that cannot be written only means that the cluster is asked again.
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
        let is_here = record.cluster.eq_ignore_ascii_case(&cluster.name);
        if let Some(end) = record.open_job().filter(|_| is_here).and_then(|job| ends.get(&job)) {
            // The clock of the cluster may be wrong, but no job ends before its submission.
            let end = End { at: end.at.max(record.at), ..end.clone() };
            journal.change(&record.token, |record| record.end = Some(end.clone()))?;
        }
    }
    Ok(())
}

/// Waits until the jobs have ended. Asks once per `poll` for all of them. Returns the highest exit
/// code, or 75 if the commands of the cluster have answered and none knows one of them. Commands
/// that fail are asked again.
///
/// # Errors
/// Fails if the first query does not get an answer. Later ones are tried again.
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
                    tell(&format!(
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
                                tell(&format!(
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
                    tell(&error.text("slotd"));
                    tell(&format!("slotd: trying again every {} seconds\n", cluster.poll));
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
    let there = named(words, &clusters)?;
    std::thread::scope(|scope| {
        let clusters = &clusters;
        let threads: Vec<_> = there
            .iter()
            .map(|there| scope.spawn(move || wait_for(clusters, there.cluster, &there.ids)))
            .collect();
        let mut worst = own();
        for thread in threads {
            let done =
                thread.join().unwrap_or_else(|_| Err(CliError::error(1, "a wait ended early")));
            worst = match (worst, done) {
                (Ok(a), Ok(b)) => Ok(a.max(b)),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        worst
    })
}

/// Returns the record of a job that this host submitted.
fn record(cluster: &Cluster, id: &str) -> Option<Record> {
    let number = id.split('_').next()?.parse().ok()?;
    journal().ok()?.of_job(&cluster.name, number).ok()?
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
            "the log of another cluster's job is printed alone: name one job",
        ));
    };
    let there = named(std::slice::from_ref(word), &clusters)?;
    let Some(There { cluster, ids }) = there.first() else { return Ok(0) };
    let id = &ids[0];
    let record = record(cluster, id);
    let copied =
        record.as_ref().and_then(|record| record.copied.as_deref().map(|below| (record, below)));
    let place = copied.map(|(record, _)| Place { dir: &record.dir, token: &record.token });
    let file = format!("slurm-{id}.out");
    let fallback = copied.map_or(PathBuf::new(), |(_, below)| Path::new(below).join(&file));
    let follow = log.follow.then_some(cluster.poll.min(60));
    let body = program::log(place, id, log.error, log.lines, follow, &fallback.to_string_lossy());
    let Some(ended) = Remote::new(cluster, &body, "scontrol")?.pass_through(Input::Nothing)? else {
        return Ok(1);
    };
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
    for There { cluster, ids } in named(words, &clusters)? {
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
                Some(text) => drop(print(text.as_bytes())?),
                None => {
                    is_unknown = true;
                    tell(&format!("slotd: error: there is no job {id}@{}\n", cluster.name));
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

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd fetch 17@hpc\n  slotd fetch --into results 17@hpc")]
pub struct FetchArgs {
    /// Put the files into this directory, which must not exist or be empty [default: hpc-17]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    into: Option<PathBuf>,
    /// The job: 17@hpc
    #[arg(value_name = "JOB")]
    job: String,
}

/// Copies the new and changed files of a job's run to a directory of their own.
///
/// # Errors
/// Fails if this host did not submit the job, if it did not run in a copy of a work tree, if the
/// directory is not empty, or if the cluster cannot be reached.
pub fn fetch(args: &FetchArgs) -> Done {
    let clusters = known()?;
    let there = named(std::slice::from_ref(&args.job), &clusters)?;
    let Some(There { cluster, ids }) = there.first() else { return Ok(0) };
    let (id, name) = (&ids[0], &cluster.name);
    let mut record = record(cluster, id).ok_or_else(|| {
        CliError::error(
            1,
            format!("job {id}@{name} was not submitted from this host, so its files are not known"),
        )
        .hint(format!("`scontrol -M {name} show job {id}` shows its working directory"))
    })?;
    if record.copied.is_none() {
        return Err(CliError::error(1, format!("job {id}@{name} did not run in a copy, so its files are where it wrote them"))
            .hint(format!("`scontrol -M {name} show job {id}` shows its working directory; copy from there with scp")));
    }
    let journal = journal()?;
    // Its directory there must not be deleted meanwhile.
    let Some(_lock) = journal.lock(&record.token)? else {
        return Err(CliError::error(
            1,
            format!("another slotd is fetching or deleting the files of job {id}@{name}"),
        ));
    };
    let into = args.into.clone().unwrap_or_else(|| PathBuf::from(format!("{name}-{id}")));
    let dir = own_directory(&into)?;
    let body = program::fetch(Place { dir: &record.dir, token: &record.token });
    let (sender, pieces) = mpsc::sync_channel(link::MOST_PIECES);
    let (ended, unpacked) = std::thread::scope(|scope| {
        let unpacking =
            scope.spawn(|| unpack::unpack(&mut Pieces { pieces, rest: Vec::new() }, &dir));
        let ended = Remote::new(cluster, &body, "tar").and_then(|remote| {
            remote.run(Input::Nothing, &mut |stream, bytes| match stream {
                // Unpacking may have failed, which its own error explains.
                Stream::Out => {
                    let _ = sender.send(bytes.to_vec());
                    Ok(())
                }
                Stream::Err => io::stderr().write_all(bytes),
            })
        });
        drop(sender);
        (ended, unpacking.join())
    });
    let (has_ended, is_whole) = match ended? {
        Ended::Code(0) => (true, true),
        Ended::Code(program::FETCHED_EARLY) => (false, true),
        Ended::Code(program::FETCHED_PARTLY) => (false, false),
        Ended::Code(_) => {
            return Err(CliError::error(
                1,
                format!("the files of job {id}@{name} could not be packed there"),
            ));
        }
        ended => return Err(failure(&clusters, cluster, &ended, "tar")),
    };
    let unpacked = unpacked
        .unwrap_or_else(|_| Err(io::Error::other("unpacking ended early")))
        .map_err(|error| {
            CliError::error(
                1,
                format!(
                    "cannot unpack the files of job {id}@{name} into {}: {error}",
                    into.display()
                ),
            )
        })?;
    for (file, why) in &unpacked.left_out {
        tell(&format!("slotd: not fetched: {}: {why}\n", shown(&file.to_string_lossy())));
    }
    if !is_whole {
        tell(&format!(
            "slotd: not fetched: directories of job {id}@{name} that cannot be read there\n"
        ));
    }
    if has_ended && unpacked.left_out.is_empty() {
        record.fetched = true;
        journal.update(&record)?;
    }
    let count = unpacked.files.len();
    let files = if count == 1 { "file" } else { "files" };
    print(format!("{count} {files} in {}\n", into.display()).as_bytes())?;
    Ok(u8::from(!unpacked.left_out.is_empty() || !is_whole))
}

/// Opens the directory for fetched files: a new one, or an empty one.
fn own_directory(path: &Path) -> Result<Dir, CliError> {
    let failed = |error: io::Error| CliError::error(1, format!("{}: {error}", path.display()));
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_empty = fs::read_dir(path).map_err(failed)?.next().is_none();
            if !is_empty {
                return Err(CliError::error(
                    1,
                    format!("{} is not empty, and fetched files replace nothing", path.display()),
                )
                .hint("name another directory with --into"));
            }
        }
        other => other.map_err(failed)?,
    }
    Dir::open(path).map_err(failed)
}

/// The pieces of a stream that another thread receives.
struct Pieces {
    pieces: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.recv() {
                Ok(piece) => self.rest = piece,
                Err(_) => return Ok(0),
            }
        }
        let length = buffer.len().min(self.rest.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::config;

    #[test]
    fn jobs_are_grouped_by_cluster() {
        let list = config::parse(
            "[[cluster]]\nname = \"hpc\"\nssh = \"h\"\n[[cluster]]\nname = \"b\"\nssh = \"b\"\n",
        )
        .unwrap();
        let clusters = Clusters { file: "/f".into(), list };
        let words = ["17@HPC", "3@b", "18_2@hpc"].map(str::to_owned);
        let there = named(&words, &clusters).unwrap();
        let found: Vec<_> =
            there.iter().map(|t| (t.cluster.name.as_str(), t.ids.join(" "))).collect();
        assert_eq!(found, [("b", "3".to_owned()), ("hpc", "17 18_2".to_owned())]);
        for bad in ["x@hpc", "@hpc", "1;id@hpc", "1_2_3@hpc", "17@nosuch", "17@", "_1@hpc"] {
            assert!(named(&[bad.to_owned()], &clusters).is_err(), "{bad}");
        }
    }

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
