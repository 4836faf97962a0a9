//! The choice between several clusters: each predicts the start of the job, and the earliest wins.

use super::super::super::Done;
use super::super::Elsewhere;
use super::super::remote::{Remote, feed, safe};
use super::dependencies::Dependencies;
use super::{Batch, OWN_NAME, directive};
use crate::args::error::{CliError, Mark};
use crate::clusters::choice::Place;
use crate::clusters::config::Cluster;
use crate::clusters::link::{Ended, Input, Output};
use crate::clusters::program;
use crate::commands::output::print_stderr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The body of `sbatch --test-only`, which reads the script from standard input. `comparable`: it
/// prints times that can be compared with those of other clusters.
fn trial(cluster: &Cluster, job: &Batch, options: &[String], comparable: bool) -> Vec<u8> {
    let mut body = Vec::new();
    if comparable {
        body.extend_from_slice(
            b"TZ=UTC0 SLURM_TIME_FORMAT=standard\nexport TZ SLURM_TIME_FORMAT\n",
        );
    }
    body.extend_from_slice(b"exec sbatch --test-only");
    if directive(&job.text).is_some() {
        body.extend_from_slice(OWN_NAME);
    }
    let words = cluster.options.iter().chain(options).map(String::as_str);
    body.push(b' ');
    body.extend_from_slice(&program::line(words));
    body
}

fn script_input(job: &Batch) -> Input<'_> {
    Input::From(Box::new(|to| to.write_all(&job.text)))
}

/// Prints the answer to `--test-only` on one cluster.
///
/// # Errors
/// Fails if the cluster cannot be reached.
pub fn test_only(elsewhere: &Elsewhere<'_>, cluster: &Cluster, job: &Batch) -> Done {
    let options = Dependencies::of(elsewhere.others(), &job.text)?
        .there(cluster, &job.options)
        .map_err(|why| why.refuse("Batch job submission failed"))?;
    let body = trial(cluster, job, &options, false);
    let remote = Remote::new(cluster, &body, "sbatch")?;
    match remote.pass_through(script_input(job), &mut |bytes| io::stderr().write_all(bytes))? {
        None => Ok(1),
        Some(Ended::Code(code)) => Ok(code),
        Some(ended) => Err(elsewhere.failure(cluster, &ended)),
    }
}

/// A cluster's answer to `--test-only`: when the job would start, or the messages.
struct Trial {
    place: Place,
    start: Option<String>,
    output: Result<Output, CliError>,
}

fn trials(elsewhere: &Elsewhere<'_>, job: &Batch) -> Vec<Trial> {
    let ask = |place: Place| {
        let dependencies = Dependencies::of(elsewhere.others(), &job.text)?;
        let problem = || format!("Problem with submit to cluster {}", elsewhere.name_of(place));
        match elsewhere.cluster(place) {
            Some(cluster) => {
                let options = dependencies
                    .there(cluster, &job.options)
                    .map_err(|why| why.refuse(&problem()))?;
                let body = trial(cluster, job, &options, true);
                Remote::new(cluster, &body, "sbatch")?.output(script_input(job))
            }
            None => {
                let options =
                    dependencies.here(&job.options).map_err(|why| why.refuse(&problem()))?;
                local_trial(&here_words(&options), &job.text, true)
            }
        }
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = elsewhere
            .places
            .iter()
            .map(|place| (*place, scope.spawn(move || ask(*place))))
            .collect();
        started
            .into_iter()
            .map(|(place, thread)| {
                let lost = || Err(CliError::error(1, "the query failed unexpectedly: try again"));
                let output = thread.join().unwrap_or_else(|_| lost());
                let start = output.as_ref().ok().and_then(|output| start_of(&output.err));
                Trial { place, start, output }
            })
            .collect()
    })
}

fn local_trial(words: &[String], script: &[u8], comparable: bool) -> Result<Output, CliError> {
    let mut command = Command::new("/proc/self/exe");
    if comparable {
        command.env("TZ", "UTC0").env_remove("SLURM_TIME_FORMAT");
    }
    let mut child = command
        .arg0("sbatch")
        .args(words)
        .env_remove("SLURM_CLUSTERS")
        .env_remove("SBATCH_CLUSTERS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    feed(&mut child, script);
    let done = child.wait_with_output()?;
    let code = done.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Output { ended: Ended::Code(code), out: done.stdout, err: done.stderr })
}

/// Returns the time in `sbatch: Job 8 to start at 2026-11-23T08:24:03 using 1 processors …`. Such
/// times are ordered as text.
fn start_of(err: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(err);
    let line = text.lines().find_map(|line| line.split_once(" to start at "))?;
    line.1.split_once(" using ").map(|(time, _)| time.to_owned())
}

/// Returns the place with the earliest start. Ties go to the first, which is this host if it is
/// named.
fn earliest(trials: &[Trial]) -> Option<&Trial> {
    trials.iter().filter(|trial| trial.start.is_some()).min_by(|a, b| a.start.cmp(&b.start))
}

/// Returns the place that starts the job first, and prints why the job cannot run on others.
///
/// # Errors
/// Fails with the messages of all clusters if the job can run on none.
pub fn choose(elsewhere: &Elsewhere<'_>, job: &Batch) -> Result<Place, CliError> {
    let trials = trials(elsewhere, job);
    let chosen = earliest(&trials).map(|trial| trial.place);
    let mut error = CliError { exit: 1, ..CliError::default() };
    for trial in trials.iter().filter(|trial| trial.start.is_none()) {
        error.lines.extend(problems(elsewhere, trial));
    }
    match chosen {
        Some(place) => {
            // A cluster that cannot be reached, or refuses the job, does not stop the others.
            print_stderr(&error.text("sbatch"));
            Ok(place)
        }
        None => Err(error.and(Mark::Error, "Can't run on any of the specified clusters")),
    }
}

/// Returns the messages of a cluster on which the job cannot run, as Slurm prints them.
fn problems(elsewhere: &Elsewhere<'_>, trial: &Trial) -> Vec<(Mark, String)> {
    let name = elsewhere.name_of(trial.place);
    let output = match (&trial.output, elsewhere.cluster(trial.place)) {
        (Err(error), _) => return error.lines.clone(),
        (Ok(Output { ended: Ended::Code(_), err, .. }), _) => err,
        (Ok(output), Some(cluster)) => return elsewhere.failure(cluster, &output.ended).lines,
        (Ok(output), None) => &output.err,
    };
    let text = String::from_utf8_lossy(output);
    text.lines()
        .map(|line| match line.strip_prefix("allocation failure: ") {
            Some(why) => {
                (Mark::Error, format!("Problem with submit to cluster {name}: {}", safe(why)))
            }
            None => (Mark::Bare, line.to_owned()),
        })
        .collect()
}

/// Prints the start on the cluster that starts the job first (`--test-only`).
///
/// # Errors
/// Fails like [`choose`].
pub fn try_all(elsewhere: &Elsewhere<'_>, job: &Batch) -> Done {
    match elsewhere.cluster(choose(elsewhere, job)?) {
        Some(cluster) => test_only(elsewhere, cluster, job),
        None => {
            let options = Dependencies::of(elsewhere.others(), &job.text)?
                .here(&job.options)
                .map_err(|why| why.refuse("Batch job submission failed"))?;
            let output = local_trial(&here_words(&options), &job.text, false)?;
            io::stderr().write_all(&output.err)?;
            match output.ended {
                Ended::Code(code) => Ok(code),
                _ => Ok(1),
            }
        }
    }
}

/// Returns the options of a trial on this host.
fn here_words(options: &[String]) -> Vec<String> {
    [&["--clusters=slotd".to_owned(), "--test-only".to_owned()], options].concat()
}
