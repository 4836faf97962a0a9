//! Dependencies of a submission when several clusters are known. They do not cross clusters.
//!
//! A number is a job of the cluster that gets the new job, as in Slurm. It is refused if that cannot
//! be meant: on another cluster if only this host knows such a job, and on this host if only
//! another cluster does. `17@hpc` is a job of that cluster alone.

use super::super::super::ask_job_list;
use super::super::super::sbatch::ENTRY;
use super::super::remote::existing_journal;
use crate::args::error::CliError;
use crate::args::getopt::{Grammar, Operands, Remaining};
use crate::clusters::config::Cluster;
use crate::clusters::journal::{Origin, Record, origin};
use crate::commands::output::print_stderr;
use slotd_model::CLUSTER;
use slotd_model::query::JobQuery;
use slotd_model::read::split_outside_brackets;
use slotd_model::{JobId, JobRef};
use slotd_parse::directive::directives;
use slotd_parse::error::shown;
use slotd_protocol::request::Request;

/// The clusters of a submission and what they may depend on.
pub struct Dependencies<'a> {
    clusters: Vec<&'a Cluster>,
    script: &'a [u8],
    /// Submissions of this host to other clusters.
    records: Vec<Record>,
}

/// Why a job cannot depend on another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Crosses(String);

impl Crosses {
    /// Returns Slurm's error, and the reason. `what` failed.
    pub fn refuse(self, what: &str) -> CliError {
        CliError::error(1, format!("{what}: Job dependency problem"))
            .hint(format!("{}: dependencies do not cross clusters", self.0))
    }
}

impl<'a> Dependencies<'a> {
    /// # Errors
    /// Fails if the journal of submissions cannot be read.
    pub fn of(clusters: Vec<&'a Cluster>, script: &'a [u8]) -> Result<Dependencies<'a>, CliError> {
        let records = existing_journal()?.map_or(Ok(Vec::new()), |journal| journal.all())?;
        Ok(Dependencies { clusters, script, records })
    }

    /// Returns these options of sbatch as the cluster takes them: `17@hpc` becomes `17`.
    ///
    /// # Errors
    /// Fails if the job depends on a job of another cluster.
    pub fn there(&self, cluster: &Cluster, options: &[String]) -> Result<Vec<String>, Crosses> {
        let name = &cluster.name;
        self.checked(name, &cluster.options, options, |number| {
            let is_theirs = matches!(origin(&self.records, cluster, number), Origin::Here(_));
            let is_foreign = !is_theirs && is_of_this_host(number);
            is_foreign.then(|| {
                format!(
                    "job {number} is a job of this host; write {number}@{name} for a job of {name}"
                )
            })
        })
    }

    /// Returns the words of sbatch on this host, without the name of this cluster in them.
    ///
    /// # Errors
    /// Fails if the job depends on a job of another cluster.
    pub fn here(&self, words: &[String]) -> Result<Vec<String>, Crosses> {
        self.checked(CLUSTER, &[], words, |number| {
            let knows = |cluster: &&&Cluster| {
                matches!(origin(&self.records, cluster, number), Origin::Here(_))
            };
            let theirs = self.clusters.iter().find(knows).filter(|_| !is_of_this_host(number));
            theirs.map(|cluster| format!("job {number} is a job of {}", cluster.name))
        })
    }

    /// Checks the list of dependencies that counts: of the words, of the configured options, or of
    /// the script. `foreign` explains why a number cannot be meant.
    fn checked(
        &self,
        name: &str,
        configured: &[String],
        words: &[String],
        foreign: impl Fn(u64) -> Option<String>,
    ) -> Result<Vec<String>, Crosses> {
        let text = String::from_utf8_lossy(self.script);
        let lines = directives(&text).unwrap_or_default();
        let of_script: Vec<String> = lines.into_iter().flat_map(|line| line.words).collect();
        let sources = [(words, ENTRY.applet.operands), (configured, Operands::Anywhere)];
        // A word after an option that slotd does not know must not hide a directive.
        let sources = sources.into_iter().chain([(of_script.as_slice(), Operands::Anywhere)]);
        let found = |(words, operands): (&[String], Operands)| {
            let left = take_out(words, operands)?;
            left.value("dependency").map(str::to_owned)
        };
        let Some(list) = sources.into_iter().find_map(found) else { return Ok(words.to_vec()) };
        let jobs = depends_on(&list, name)
            .map_err(|word| Crosses(format!("{} is not a job of {name}", shown(word))))?;
        if let Some(why) = jobs.unmarked.iter().find_map(|number| foreign(*number)) {
            return Err(Crosses(why));
        }
        if jobs.written == list {
            return Ok(words.to_vec());
        }
        // An option overrides a directive.
        let own = [format!("--dependency={}", jobs.written)];
        let Some(left) = take_out(words, ENTRY.applet.operands) else {
            return Ok([&own, words].concat());
        };
        let (options, operands) = left.words.split_at(left.options);
        Ok([options, &own, operands].concat())
    }
}

fn take_out(words: &[String], operands: Operands) -> Option<Remaining> {
    Grammar::of_definition(&ENTRY.definition()).take_out(words, operands, &["dependency"]).ok()
}

/// Returns whether this host has a job with this ID. Reports that it is unknown without a daemon.
fn is_of_this_host(number: u64) -> bool {
    let Ok(id) = u32::try_from(number) else { return false };
    let query = JobQuery { without_steps: true, ..JobQuery::of(vec![JobRef::job(JobId(id))]) };
    match ask_job_list(&Request::Jobs(query)) {
        Ok(list) => !list.jobs.is_empty(),
        Err(_) => {
            print_stderr(&format!(
                "sbatch: warning: the daemon of this host does not answer, so job {number} is taken for a job of the cluster\n"
            ));
            false
        }
    }
}

/// The jobs in a list of dependencies.
#[derive(Debug, PartialEq, Eq)]
struct Awaited {
    /// The list in Slurm's form, without names of clusters.
    written: String,
    /// The jobs that were written without a cluster.
    unmarked: Vec<u64>,
}

/// Reads a list of dependencies such as `afterok:17@hpc:18+5,singleton`. The error is a word that
/// names a job of another cluster.
fn depends_on<'a>(list: &'a str, cluster: &str) -> Result<Awaited, &'a str> {
    let mut found = Awaited { written: String::new(), unmarked: Vec::new() };
    for (word, separator) in split_outside_brackets(list, |c| ",?:".contains(c)) {
        found.written.extend(separator);
        match word.split_once('@') {
            _ if word.contains(';') => return Err(word),
            Some((job, rest)) => {
                // The delay of `after` may be on either side.
                let (name, delay) = rest.find('+').map_or((rest, ""), |at| rest.split_at(at));
                if !name.eq_ignore_ascii_case(cluster) {
                    return Err(word);
                }
                found.written.push_str(job);
                found.written.push_str(delay);
            }
            None => {
                // `18+5` and the tasks of an array begin with the number of the job.
                let number = word.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                found.unmarked.extend(number.parse::<u64>());
                found.written.push_str(word);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_a_dependency_is_compared_as_a_whole() {
        let awaited = |written: &str, unmarked: &[u64]| {
            Ok(Awaited { written: written.to_owned(), unmarked: unmarked.to_vec() })
        };
        let of = |list| depends_on(list, "hpc");
        assert_eq!(of("afterok:17@HPC"), awaited("afterok:17", &[]));
        assert_eq!(of("after:17@hpc+5:18+3@hpc"), awaited("after:17+5:18+3", &[]));
        assert_eq!(
            of("afterok:17_3:18+5@hpc,afterany:9?singleton"),
            awaited("afterok:17_3:18+5,afterany:9?singleton", &[17, 9])
        );
        assert_eq!(of("singleton"), awaited("singleton", &[]));
        assert_eq!(of("017,afterok:18_[1,3]"), awaited("017,afterok:18_[1,3]", &[17, 18]));
        for (list, word) in [
            ("afterok:17@hpc2", "17@hpc2"),
            ("afterok:1@hpc:17@hp", "17@hp"),
            ("afterok:17@hpc@hpc", "17@hpc@hpc"),
            ("afterok:17@", "17@"),
            ("afterok:17;hpc", "17;hpc"),
        ] {
            assert_eq!(of(list), Err(word), "{list}");
        }
        assert_eq!(depends_on("afterok:17@hpc2", "hpc2"), awaited("afterok:17", &[]));
    }
}
