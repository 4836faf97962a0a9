//! `sbatch -M`: chooses a cluster, stages the submission, and submits it exactly once.

use super::super::origin;
use super::super::output::print_bytes;
use super::super::output::print_stderr;
use super::super::sbatch::{ENTRY, Text, find_script, read, refuse, wrapped};
use super::jobs::wait_for;
use super::remote::{UNKNOWN, feed, journal, print, seconds, submitted};
use super::{Elsewhere, take_out};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Remaining;
use crate::args::origin::Origin;
use crate::args::submit::base_name;
use crate::clusters::config::Cluster;
use crate::clusters::journal::{Lock, Record};
use crate::clusters::link::{self, Ended, Output};
use crate::clusters::token::{self, Outcome, State};
use dependencies::Dependencies;
use exchange::Exchange;
use slotd_parse::directive::directives;
use slotd_parse::script;
use staged::Begin;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

mod dependencies;
pub mod exchange;
mod staged;
mod trials;

/// An option with the cluster's own name, which overrides a directive with its name here.
const OWN_NAME: &[u8] = b" -M \"$(scontrol show config | sed -n 's/^ClusterName *= *//p')\"";

/// Options that this host handles. They are not passed to the cluster.
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

/// A submission, as given on the command line.
pub struct Batch {
    /// The name of the script in the stage, from which sbatch derives the job's name.
    name: String,
    text: Vec<u8>,
    /// The options to pass to the cluster, without the configured ones.
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
    let words = Dependencies::of(elsewhere.others(), &job.text)?
        .here(&elsewhere.left.words)
        .map_err(|why| why.refuse("Batch job submission failed"))?;
    let words = [&["--clusters=slotd".to_owned()], words.as_slice()].concat();
    let mut child = Command::new("/proc/self/exe")
        .arg0(elsewhere.entry.name())
        .args(words)
        .env_remove("SLURM_CLUSTERS")
        .env_remove("SBATCH_CLUSTERS")
        .stdin(Stdio::piped())
        .spawn()?;
    feed(&mut child, &job.text);
    Ok(child.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
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
        let journal = journal()?;
        let dependencies = Dependencies::of(self.elsewhere.others(), &self.job.text)?;
        let options = dependencies
            .there(self.cluster, &self.job.options)
            .map_err(|why| why.refuse("Batch job submission failed"))?;
        let token = link::random()?;
        let failed = |error: io::Error| {
            CliError::error(
                1,
                format!(
                    "the submission cannot be recorded in {}: {error}",
                    journal.dir().display()
                ),
            )
        };
        let lock = journal.claim(&token).map_err(failed)?;
        let staged = match self.stage(&journal, &token) {
            Ok(staged) => staged,
            Err(error) => {
                journal.abandon(&token, lock);
                return Err(error);
            }
        };
        let mut record = Record {
            token,
            cluster: self.cluster.name.clone(),
            link: Some(self.cluster.link.clone()),
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
        let lock = journal.add(&record, lock).map_err(failed)?;
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
            print_stderr(&format!("sbatch: warning: {}\n", failed(error).message()));
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

    /// Prints sbatch's output, and waits for the job with `-W`.
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
                if let Err(error) = print_bytes(&text) {
                    // The job exists all the same.
                    let text = job.map_or(String::from_utf8_lossy(&text).into_owned(), |job| {
                        submitted(job, &self.cluster.name)
                    });
                    return Err(error.and(Mark::Bare, text.trim_end()));
                }
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
                .hint(format!("find out before you submit it again: {resolve}")))
            }
        }
    }

    fn words(&self, job: u64) -> String {
        let name = &self.cluster.name;
        if self.left.has("parsable") { format!("{job};{name}\n") } else { submitted(job, name) }
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
