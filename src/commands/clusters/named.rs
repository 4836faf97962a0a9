//! The names of jobs on other clusters: `17@hpc`, `17_3@hpc`.
//!
//! A name of `clusters.toml` may be given to another cluster later. A job that this host submitted
//! is only ever sought on the cluster to which it was submitted.

use super::remote::existing_journal;
use crate::args::error::CliError;
use crate::clusters::config::Cluster;
use crate::clusters::journal::{Origin, Record, origin};
use crate::clusters::link::Clusters;
use slotd_parse::error::shown;
use std::collections::BTreeMap;

/// Jobs of one cluster.
#[derive(Debug)]
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
/// Fails if a word is not a job ID with a cluster of the file, or if this host submitted the job to
/// another cluster, which had the name then.
pub fn there<'a>(words: &[String], clusters: &'a Clusters) -> Result<Vec<There<'a>>, CliError> {
    let there = grouped(words, clusters)?;
    let records = records()?;
    for There { cluster, ids } in &there {
        for id in ids {
            if let Origin::Moved(record) = origin_of(&records, cluster, id) {
                return Err(moved(clusters, record, &format!("job {id}@{}", cluster.name)));
            }
        }
    }
    Ok(there)
}

fn grouped<'a>(words: &[String], clusters: &'a Clusters) -> Result<Vec<There<'a>>, CliError> {
    let mut found: BTreeMap<&str, There<'_>> = BTreeMap::new();
    for word in words {
        let (id, name) = word.rsplit_once('@').unwrap_or(("", word));
        let id = canonical(id).ok_or_else(|| {
            CliError::error(2, format!("invalid job ID: {}", shown(word)))
                .hint("jobs of other clusters are written 17@hpc or 17_3@hpc")
        })?;
        let cluster = clusters.find(name).ok_or_else(|| {
            CliError::error(1, format!("No cluster '{}' known by database.", shown(name)))
                .hint(format!("clusters are listed in {}", clusters.file.display()))
        })?;
        let there =
            found.entry(&cluster.name).or_insert_with(|| There { cluster, ids: Vec::new() });
        there.ids.push(id);
    }
    Ok(found.into_values().collect())
}

/// Returns the ID of a job or of an array task as the cluster prints it: `017` is job 17.
fn canonical(id: &str) -> Option<String> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let (job, task) = match id.split_once('_') {
        Some((job, task)) => (job, Some(number(task)?)),
        None => (id, None),
    };
    let job = number(job).filter(|job| *job > 0)?;
    Some(task.map_or(job.to_string(), |task| format!("{job}_{task}")))
}

fn records() -> Result<Vec<Record>, CliError> {
    Ok(existing_journal()?.map_or(Ok(Vec::new()), |journal| journal.all())?)
}

fn origin_of<'a>(records: &'a [Record], cluster: &Cluster, id: &str) -> Origin<'a> {
    let job = id.split('_').next().and_then(|job| job.parse().ok());
    job.map_or(Origin::Unrecorded, |job| origin(records, cluster, job))
}

/// Returns the record of a job if this host submitted it to this cluster.
///
/// # Errors
/// Fails if the records cannot be read.
pub fn record(cluster: &Cluster, id: &str) -> Result<Option<Record>, CliError> {
    match origin_of(&records()?, cluster, id) {
        Origin::Here(record) => Ok(Some(record.clone())),
        Origin::Moved(_) | Origin::Unrecorded => Ok(None),
    }
}

/// Returns the error for a submission to a cluster that the file no longer has, or not under this
/// name. `what` is the job or the submission.
pub fn moved(clusters: &Clusters, record: &Record, what: &str) -> CliError {
    let (name, file) = (shown(&record.cluster), clusters.file.display());
    let then = record.link.as_ref().map_or("a cluster".to_owned(), |link| shown(&link.to_string()));
    let text = match clusters.find(&record.cluster) {
        Some(now) => format!(
            "{what} was submitted to {then}, but {name} is now {}",
            shown(&now.link.to_string())
        ),
        None => format!("{what} was submitted to {then}, but {file} has no cluster {name} now"),
    };
    let line = record.link.as_ref().map(|link| format!(" and {}", shown(&link.line())));
    CliError::error(1, text).hint(format!(
        "add a [[cluster]] with another name{} to {file}, and use that name; `slotd cluster clean {name}` deletes old records",
        line.unwrap_or_default()
    ))
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
        let words = ["017@HPC", "3@b", "18_02@hpc"].map(str::to_owned);
        let there = grouped(&words, &clusters).unwrap();
        let found: Vec<_> =
            there.iter().map(|t| (t.cluster.name.as_str(), t.ids.join(" "))).collect();
        assert_eq!(found, [("b", "3".to_owned()), ("hpc", "17 18_2".to_owned())]);
        for bad in [
            "x@hpc",
            "@hpc",
            "1;id@hpc",
            "1_2_3@hpc",
            "17@nosuch",
            "17@",
            "_1@hpc",
            "0@hpc",
            "+1@hpc",
            "17_@hpc",
        ] {
            assert!(grouped(&[bad.to_owned()], &clusters).is_err(), "{bad}");
        }
    }
}
