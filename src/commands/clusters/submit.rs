//! `sbatch -M`: chooses a cluster, stages the submission, and submits it exactly once.

use super::super::launch::tell;
use super::super::sbatch::{ENTRY, Text, find_script, read, refuse, wrapped};
use super::super::{ask_job_list, origin};
use super::jobs::wait_for;
use super::remote::{UNKNOWN, journal, print, seconds};
use super::{Elsewhere, take_out};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Remaining;
use crate::args::origin::Origin;
use crate::args::submit::base_name;
use crate::clusters::config::Cluster;
use crate::clusters::journal::{Lock, Record};
use crate::clusters::link::{self, Ended, Output};
use crate::clusters::token::{self, Outcome, State};
use exchange::Exchange;
use slotd_model::query::JobQuery;
use slotd_parse::directive::directives;
use slotd_parse::error::shown;
use slotd_parse::{ids, script};
use slotd_protocol::request::Request;
use staged::Begin;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub mod exchange;
mod staged;
mod trials;

/// An option with the cluster's own name, which overrides a directive with its name here.
const OWN_NAME: &[u8] = b" -M \"$(scontrol show config | sed -n 's/^ClusterName *= *//p')\"";

/// Options that this host handles: they do not travel.
const OWN: [&str; 4] = ["clusters", "wrap", "wait", "snapshot"];

/// Returns the clusters that the directives of a script name. The last directive counts.
pub fn directive(script: &[u8]) -> Option<String> {
    let words = directive_words(script)?;
    // Most scripts name none: the definition of sbatch is not built for them.
    if !words.iter().any(super::may_name_clusters) {
        return None;
    }
    let left = take_out(&ENTRY, &words, &["clusters"]).ok()?;
    left.value("clusters").map(str::to_owned)
}

fn directive_words(script: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(script);
    Some(directives(&text).ok()?.into_iter().flat_map(|line| line.words).collect())
}

/// A submission, as it is on the command line.
pub struct Batch {
    /// The name of the script in the stage, from which sbatch derives the job's name.
    name: String,
    text: Vec<u8>,
    /// The options that travel, the configured ones not included.
    options: Vec<String>,
    arguments: Vec<String>,
}

/// Runs sbatch on one of the named clusters. `script` is the script if it was read before.
///
/// # Errors
/// Fails with sbatch's messages, or if the cluster cannot be reached. Exits with 75 if it cannot be
/// known whether the job was submitted.
pub fn run(elsewhere: &Elsewhere<'_>, script: Option<Vec<u8>>) -> super::Done {
    let origin = origin();
    let left = take_out(elsewhere.entry, &elsewhere.words, &OWN)
        .map_err(|error| error.refuse(Mark::Plain, "", "sbatch", ENTRY.applet.usage_exit))?;
    let job = job(&left, script, &origin)?;
    let place = match elsewhere.places.as_slice() {
        [one] => *one,
        _ if left.has("test-only") => return trials::try_all(elsewhere, &job),
        _ => trials::choose(elsewhere, &job)?,
    };
    let Some(cluster) = elsewhere.cluster(place) else { return on_this_host(elsewhere, &job) };
    if left.has("test-only") {
        return trials::test_only(elsewhere, cluster, &job);
    }
    let submitting = Submitting { elsewhere, cluster, left: &left, job: &job, origin: &origin };
    submitting.run()
}

fn job(left: &Remaining, script: Option<Vec<u8>>, origin: &Origin) -> Result<Batch, CliError> {
    let (options, operands) = left.words.split_at(left.options);
    let mut operands = operands.iter().filter(|word| *word != "--").cloned().collect::<Vec<_>>();
    let (name, text) = match (left.has("wrap"), operands.first()) {
        (true, Some(_)) => {
            return Err(CliError::error(1, "Script arguments not permitted with --wrap option"));
        }
        (true, None) => {
            let command = left.value("wrap").unwrap_or_default();
            ("wrap".to_owned(), wrapped(command).into_bytes())
        }
        (false, None) => {
            let text = match script {
                Some(text) => text,
                None => read(Text::Stdin)?,
            };
            ("sbatch".to_owned(), text)
        }
        (false, Some(path)) => {
            let text = match script {
                Some(text) => text,
                None => find_script(path, origin, &read)?.1,
            };
            (base_name(path).to_owned(), text)
        }
    };
    script::check(&text).map_err(|error| refuse(&error))?;
    if !operands.is_empty() {
        operands.remove(0);
    }
    Ok(Batch { name, text, options: options.to_vec(), arguments: operands })
}

/// Submits on this host, which was the best choice. The script is passed on, because it may have
/// come from standard input.
fn on_this_host(elsewhere: &Elsewhere<'_>, job: &Batch) -> super::Done {
    let words = [&["--clusters=slotd".to_owned()], elsewhere.left.words.as_slice()].concat();
    let mut child = Command::new("/proc/self/exe")
        .arg0(elsewhere.entry.name())
        .args(words)
        .env_remove("SLURM_CLUSTERS")
        .env_remove("SBATCH_CLUSTERS")
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // sbatch reads it only if it has no other script.
        let _ = stdin.write_all(&job.text);
    }
    Ok(child.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The jobs in a list of dependencies.
#[derive(Debug, PartialEq, Eq)]
struct Awaited<'a> {
    /// The list in Slurm's form, without names of clusters.
    written: String,
    /// The jobs that were written without a cluster.
    unmarked: Vec<&'a str>,
}

/// Reads a list of dependencies such as `afterok:17@hpc:18+5,singleton`. The error is a word that
/// names a job of another cluster.
fn depends_on<'a>(list: &'a str, cluster: &str) -> Result<Awaited<'a>, &'a str> {
    let mut found = Awaited { written: String::new(), unmarked: Vec::new() };
    for piece in list.split_inclusive([',', '?', ':']) {
        let word = piece.trim_end_matches([',', '?', ':']);
        match word.split_once('@') {
            _ if word.contains(';') => return Err(word),
            Some((job, rest)) => {
                // The delay of `after` may stand on either side.
                let (name, delay) = rest.find('+').map_or((rest, ""), |at| rest.split_at(at));
                if !name.eq_ignore_ascii_case(cluster) {
                    return Err(word);
                }
                found.written.push_str(job);
                found.written.push_str(delay);
            }
            None => {
                let job = word.split('+').next().unwrap_or_default();
                if job.starts_with(|c: char| c.is_ascii_digit()) {
                    found.unmarked.push(job);
                }
                found.written.push_str(word);
            }
        }
        found.written.push_str(&piece[word.len()..]);
    }
    Ok(found)
}

struct Submitting<'a> {
    elsewhere: &'a Elsewhere<'a>,
    cluster: &'a Cluster,
    left: &'a Remaining,
    job: &'a Batch,
    origin: &'a Origin,
}

impl Submitting<'_> {
    fn run(&self) -> super::Done {
        let options = self.dependencies()?;
        let journal = journal()?;
        let token = link::random()?;
        let staged = self.stage(&journal, &token)?;
        let mut record = Record {
            token,
            cluster: self.cluster.name.clone(),
            at: seconds(),
            dir: self.cluster.dir.clone(),
            copied: match &staged.start {
                Begin::Copy(below) => Some(below.clone()),
                Begin::Path(_) => None,
            },
            words: self.left.words.clone(),
            hold: self.holds(),
            state: State::Prepared,
            doubted: None,
            end: None,
            fetched: false,
        };
        let failed = |error: io::Error| {
            CliError::error(
                1,
                format!(
                    "the submission cannot be recorded in {}: {error}",
                    journal.dir().display()
                ),
            )
        };
        let lock = journal.add(&record).map_err(failed)?;
        let options = [self.cluster.options.as_slice(), &options].concat();
        let mut exchange = Exchange {
            cluster: self.cluster,
            token: record.token.clone(),
            job: self.job,
            options,
            staged,
            answer: None,
            not_reached: None,
            reported: 0,
            keeps_hold: record.hold,
        };
        let outcome = exchange.settle();
        record.state = State::from(outcome);
        let noted = journal.update(&record);
        drop::<Lock>(lock);
        if let Err(error) = noted {
            tell(&format!("sbatch: warning: {}\n", failed(error).text("").trim()));
        }
        self.report(&exchange, outcome, &record.token)
    }

    /// Whether the user, the configuration or the script wants the job to be held.
    fn holds(&self) -> bool {
        let words = directive_words(&self.job.text).unwrap_or_default();
        let is_held = |words: &[String]| match take_out(&ENTRY, words, &[]) {
            Ok(left) => left.has("hold"),
            // The cluster may know options that slotd does not.
            Err(_) => words.iter().any(|word| word == "-H" || word == "--hold"),
        };
        self.left.has("hold") || is_held(&self.cluster.options) || is_held(&words)
    }

    /// Refuses dependencies on jobs of other clusters, and writes those on this cluster's jobs
    /// (`17@hpc`) as Slurm does. A number is a job of the target cluster, as in Slurm, unless only
    /// this host knows it.
    fn dependencies(&self) -> Result<Vec<String>, CliError> {
        let options = &self.job.options;
        let Some(list) = self.left.value("dependency") else { return Ok(options.clone()) };
        let name = &self.cluster.name;
        let do_not_cross = |what: &str| {
            CliError::error(1, "Batch job submission failed: Job dependency problem")
                .hint(format!("{what}: dependencies do not cross clusters"))
        };
        let jobs = depends_on(list, name)
            .map_err(|word| do_not_cross(&format!("{} is not a job of {name}", shown(word))))?;
        let own = journal().ok();
        for number in &jobs.unmarked {
            let id: Option<u64> = number.split('_').next().and_then(|id| id.parse().ok());
            let is_theirs = id.is_some_and(|id| {
                own.as_ref().is_some_and(|own| matches!(own.of_job(name, id), Ok(Some(_))))
            });
            let Ok(refs) = ids::parse_job_list(number) else { continue };
            let query = Request::Jobs(JobQuery { without_steps: true, ..JobQuery::of(refs) });
            let is_ours = ask_job_list(&query).is_ok_and(|list| !list.jobs.is_empty());
            if is_ours && !is_theirs {
                let what = format!(
                    "job {number} is a job of this host; write {number}@{name} for a job of {name}"
                );
                return Err(do_not_cross(&what));
            }
        }
        if jobs.written == list {
            return Ok(options.clone());
        }
        // The last one counts, so it may be anywhere.
        let left = take_out(&ENTRY, options, &["dependency"])
            .map_err(|error| error.refuse(Mark::Plain, "", "sbatch", ENTRY.applet.usage_exit))?;
        let own = format!("--dependency={}", jobs.written);
        Ok([left.words.as_slice(), &[own]].concat())
    }

    /// Prints sbatch's words, and waits for the job with `-W`.
    fn report(&self, exchange: &Exchange<'_>, outcome: Outcome, token: &str) -> super::Done {
        let name = &self.cluster.name;
        let resolve = format!("slotd cluster resolve {token}");
        match outcome {
            Outcome::Submitted { job, answered } => {
                let empty = Output { ended: Ended::Code(0), out: Vec::new(), err: Vec::new() };
                let answer = exchange.answer.as_ref().filter(|_| answered).unwrap_or(&empty);
                let _ = io::stderr().write_all(&answer.err);
                let text = match job {
                    Some(job) if !answered && !self.left.has("quiet") => {
                        self.words(job).into_bytes()
                    }
                    _ => self.renamed(&answer.out),
                };
                print(&text)?;
                if !self.left.has("wait") {
                    return Ok(0);
                }
                let job = match job {
                    Some(job) => job,
                    None => exchange.found()?,
                };
                wait_for(&self.elsewhere.clusters, self.cluster, &[job.to_string()])
            }
            Outcome::Refused => {
                let answer = exchange.answer.as_ref();
                let (out, err) =
                    answer.map_or((&[][..], &[][..]), |answer| (&answer.out, &answer.err));
                io::stderr().write_all(err)?;
                print(&self.renamed(out))?;
                match answer.map(|answer| &answer.ended) {
                    Some(Ended::Code(code)) => Ok(*code),
                    _ => Ok(1),
                }
            }
            Outcome::NotSent => {
                match &exchange.not_reached {
                    Some(ended) => Err(self.elsewhere.failure(self.cluster, ended)),
                    None => {
                        let _ = exchange
                            .answer
                            .as_ref()
                            .map(|answer| io::stderr().write_all(&answer.err));
                        Err(CliError::error(1, format!("the job was not submitted: cluster {name} has no room for it in {}", self.cluster.dir))
                        .hint(format!("slotd cluster check {name} looks for the cause")))
                    }
                }
            }
            Outcome::NotSubmitted => {
                let _ = exchange.answer.as_ref().map(|answer| io::stderr().write_all(&answer.err));
                Err(CliError::error(
                    1,
                    format!(
                        "the job was not submitted: neither squeue nor sacct of cluster {name} knows it"
                    ),
                ))
            }
            Outcome::Unknown => {
                let _ = exchange.answer.as_ref().map(|answer| io::stderr().write_all(&answer.err));
                Err(CliError::error(
                    UNKNOWN,
                    format!("it is unknown whether cluster {name} has the job"),
                )
                .hint(format!(
                    "do not submit it again before this command has found out: {resolve}"
                )))
            }
        }
    }

    fn words(&self, job: u64) -> String {
        let name = &self.cluster.name;
        if self.left.has("parsable") {
            format!("{job};{name}\n")
        } else {
            format!("Submitted batch job {job} on cluster {name}\n")
        }
    }

    /// Returns sbatch's output with the cluster's name in this host's file.
    fn renamed(&self, out: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for line in out.split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            match token::id_of_line(text.trim_end_matches('\n')) {
                Some((job, parsable)) if parsable == self.left.has("parsable") => {
                    all.extend_from_slice(self.words(job).as_bytes());
                }
                _ => all.extend_from_slice(line),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_a_dependency_is_compared_as_a_whole() {
        let awaited = |written: &str, unmarked: &[&'static str]| {
            Ok(Awaited { written: written.to_owned(), unmarked: unmarked.to_vec() })
        };
        let of = |list| depends_on(list, "hpc");
        assert_eq!(of("afterok:17@HPC"), awaited("afterok:17", &[]));
        assert_eq!(of("after:17@hpc+5:18+3@hpc"), awaited("after:17+5:18+3", &[]));
        assert_eq!(
            of("afterok:17_3:18+5@hpc,afterany:9?singleton"),
            awaited("afterok:17_3:18+5,afterany:9?singleton", &["17_3", "9"])
        );
        assert_eq!(of("singleton"), awaited("singleton", &[]));
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
