//! `slotd cluster list`: the clusters of clusters.toml, and this host's submissions to them.

use super::super::Done;
use super::super::clean::counted;
use super::remote::{journal, known, print, safe, seconds, shared};
use crate::args::error::CliError;
use crate::clusters::config::{Link, WorkDir};
use crate::clusters::journal::{Broken, End, Record};
use crate::clusters::link::Clusters;
use crate::clusters::token::State;
use crate::commands::output::print_stderr;

/// The number of jobs in the list: the latest of those whose end is not known.
const MOST_JOBS: usize = 20;

/// Lists the clusters of the file and the submissions to them.
///
/// # Errors
/// Fails if the file or the journal of submissions cannot be read.
pub fn list() -> Done {
    let clusters = known()?;
    if clusters.list.is_empty() {
        print_stderr(&format!("slotd: {} has no clusters\n", clusters.file.display()));
    }
    let mut text = String::new();
    for cluster in &clusters.list {
        let shared = match &cluster.link {
            Link::Ssh(_) if shared(cluster)?.is_some() => "  shared connection",
            Link::Ssh(_) | Link::Local(_) => "",
        };
        let workdir = match &cluster.workdir {
            WorkDir::Snapshot => "snapshot".to_owned(),
            WorkDir::Same => "same".to_owned(),
            WorkDir::Map(pairs) => pairs
                .iter()
                .map(|(here, there)| format!("{here} -> {there}"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        text.push_str(&format!(
            "{:<12} {}  dir {}  workdir {workdir}{shared}\n",
            cluster.name, cluster.link, cluster.dir
        ));
    }
    let unsure = |record: &&Record| matches!(record.state, State::Prepared | State::Unknown);
    let (records, broken) = journal()?.list()?;
    for cluster in &clusters.list {
        let is_old = |record: &&Record| {
            let age = |from: i64| u64::try_from(seconds() - from).unwrap_or(0);
            let is_refused = record.state == State::Refused && age(record.at) >= cluster.keep;
            let has_ended = |end: &End| record.fetched || age(end.at) >= cluster.keep;
            clusters.of(record) == Some(cluster)
                && (is_refused || record.end.as_ref().is_some_and(has_ended))
        };
        let old = records.iter().filter(is_old).count() as u64;
        if old > 0 {
            let name = &cluster.name;
            let count = counted(old, "submission");
            text.push_str(&format!("old: slotd cluster clean {name}    # {count}\n"));
        }
    }
    text.push_str(&submissions(&clusters, &records));
    for record in records.iter().filter(unsure) {
        text.push_str(&format!(
            "unknown: slotd cluster resolve {}    # {}\n",
            record.token,
            line(record)
        ));
    }
    print(text.as_bytes())?;
    report_broken(&broken);
    Ok(u8::from(!broken.is_empty()))
}

/// Returns the lines about submitted jobs.
fn submissions(clusters: &Clusters, records: &[Record]) -> String {
    let open: Vec<(&Record, u64)> =
        records.iter().filter_map(|record| Some((record, record.open_job()?))).collect();
    let (before, latest) = open.split_at(open.len().saturating_sub(MOST_JOBS));
    let mut text = String::new();
    if !before.is_empty() {
        text = format!("submitted: {} before these\n", counted(before.len() as u64, "job"));
    }
    for (record, job) in latest {
        let name = match (clusters.of(record), &record.link) {
            (Some(cluster), _) => format!("slotd why {job}@{}", cluster.name),
            (None, Some(link)) => format!("job {job} of {link}"),
            (None, None) => format!("job {job} of {}", record.cluster),
        };
        text.push_str(&format!("submitted: {}    # {}\n", safe(&name), line(record)));
    }
    text
}

/// Returns the command line of a submission.
fn line(record: &Record) -> String {
    let words = shlex::try_join(record.words.iter().map(String::as_str)).unwrap_or_default();
    safe(&format!("sbatch -M {} {words}", record.cluster))
}

/// Names the records that cannot be read, each with its path and a way to find its job.
pub fn report_broken(broken: &[Broken]) {
    for one in broken {
        print_stderr(&unreadable(one).text("slotd"));
    }
}

/// Returns the error for a record that cannot be read.
pub fn unreadable(Broken { token, path, why }: &Broken) -> CliError {
    let path = safe(&path.display().to_string());
    CliError::error(1, format!("the record {path} of a submission cannot be read: {why}")).hint(
        format!("its job, if there is one, is in: squeue -M NAME -a -t all -o '%i %o' | grep {token}; then delete the record"),
    )
}
