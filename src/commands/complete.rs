//! Completes command lines for the shells: `slotd complete SHELL …`, which the installed completion
//! scripts call at each Tab.
//!
//! clap's engine completes options and paths from the definitions of the commands. The values come
//! from the daemon (jobs, partitions, accounts) and from the tables that parse and print (states,
//! fields, keys of `scontrol update`). Without a daemon there are fewer candidates, and no error.

use crate::args::getopt::{Grammar, Operands};
use crate::commands::{self, COMMANDS, Done, Entry, ask_for_jobs, ask_node, output, scontrol};
use clap::{Args, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use nix::unistd::alarm;
use slotd_model::qos::Qos;
use slotd_model::query::JobQuery;
use slotd_model::view::{JobView, NodeView};
use slotd_model::{JobState, counted};
use slotd_protocol::request::Request;
use slotd_render::field::Table;
use slotd_render::sacct::Sacct;
use slotd_render::sinfo::{Sinfo, State};
use slotd_render::squeue::Squeue;
use slotd_render::text::printable;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The maximum number of jobs to offer, newest first. A longer list is not useful, and shells ask
/// before they print one.
const MOST_JOBS: usize = 200;

/// The maximum time that a shell waits after Tab, in seconds.
const PATIENCE_SECS: u32 = 2;

#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// Shell to complete for
    #[arg(value_parser = super::pages::completions::SHELLS)]
    shell: String,
    /// The part of the last word that the shell replaces
    #[arg(allow_hyphen_values = true)]
    replaced: String,
    /// The command line up to the cursor
    #[arg(allow_hyphen_values = true)]
    line: String,
}

/// Prints the candidates for the last word of a command line, one per line. zsh and fish receive
/// descriptions after a tab.
pub fn run(args: &CompleteArgs) -> Done {
    // A daemon that hangs must not block the shell: SIGALRM ends this process.
    alarm::set(PATIENCE_SECS);
    let mut words = split(&args.line);
    let Some(name) = words.first_mut() else { return Ok(0) };
    // `/opt/slotd/bin/sbatch` is `sbatch`.
    *name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let last = words.last().map(String::len).unwrap_or_default();
    let is_bash = args.shell == "bash";
    // bash replaces only what follows the last `=` or `:` of a word, other shells the whole word.
    let kept = if is_bash { last.saturating_sub(args.replaced.len()) } else { 0 };
    let mut text = String::new();
    for candidate in candidates(words) {
        let value = candidate.get_value().to_string_lossy();
        let value = value.get(kept..).unwrap_or(&value);
        text.push_str(value);
        if let Some(help) = candidate.get_help().filter(|_| !is_bash) {
            let help = help.to_string();
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    output::print(&text)
}

/// Splits a command line into words. An unfinished quotation extends to the end, where the cursor
/// is. Ends with an empty word if the cursor follows a blank.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut is_begun) = (None, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let Some(word) = words.last_mut() else { break };
        match (quote, c) {
            (None, c) if c.is_whitespace() => {
                if is_begun {
                    words.push(String::new());
                }
                is_begun = false;
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => word.extend(chars.next()),
            _ => word.push(c),
        }
        is_begun = true;
    }
    words
}

/// Returns the candidates for the last word.
fn candidates(words: Vec<String>) -> Vec<CompletionCandidate> {
    let nested = words.first().is_some_and(|name| name == "slotd")
        && words.len() > 2
        && COMMANDS.iter().any(|entry| entry.name() == words[1]);
    let words = if nested { words[1..].to_vec() } else { words };
    let Some(name) = words.first() else { return Vec::new() };
    let definition = match COMMANDS.iter().find(|entry| entry.name() == name) {
        Some(entry) if ends_options(*entry, &words[1..]) => return Vec::new(),
        Some(entry) => with_values(entry.definition(), &words),
        None => commands::slotd::definition().mut_subcommands(|verb| {
            if verb.has_subcommands() { verb } else { with_values(verb, &words) }
        }),
    };
    let index = words.len() - 1;
    let is_option = words[index].starts_with('-');
    let words = words.into_iter().map(OsString::from).collect();
    let cwd = std::env::current_dir().ok();
    let mut found =
        complete(&mut definition.disable_help_subcommand(true), words, index, cwd.as_deref())
            .unwrap_or_default();
    // Options are offered only after a dash, unless there is nothing else to complete.
    let offers_option = |candidate: &CompletionCandidate| {
        candidate.get_value().as_encoded_bytes().starts_with(b"-")
    };
    if !is_option && !found.iter().all(offers_option) {
        found.retain(|candidate| !offers_option(candidate));
    }
    found
}

/// Returns whether the last word belongs to the command that sbatch, srun or salloc runs, which the
/// shell completes itself.
fn ends_options(entry: Entry, words: &[String]) -> bool {
    entry.applet.operands == Operands::EndOptions
        && Grammar::of_definition(&entry.definition())
            .scan(&words[..words.len().saturating_sub(1)], Operands::EndOptions)
            .is_ok_and(|scanned| !scanned.operands.is_empty())
}

/// The source of the values of an option or operand.
#[derive(Debug, Clone, Copy)]
enum Values {
    /// Jobs that have not ended.
    Jobs,
    /// Jobs in the daemon's memory, ended ones too.
    AllJobs,
    /// Names of jobs that have not ended.
    JobNames,
    AllJobNames,
    Accounts,
    Users,
    Partitions,
    Qos,
    Features,
    /// Values that do not depend on the daemon.
    Fixed(fn() -> Vec<CompletionCandidate>),
}

/// Returns the source of the values of an option or operand, if they can be completed.
fn values_of(command: &str, name: &str) -> Option<Values> {
    Some(match (command, name) {
        (_, "partition") => Values::Partitions,
        (_, "qos") => Values::Qos,
        (_, "account" | "accounts") => Values::Accounts,
        ("sbatch" | "srun" | "salloc", "constraint" | "prefer") => Values::Features,
        ("scancel", "name") => Values::JobNames,
        ("squeue" | "sacct", "name") => Values::AllJobNames,
        ("squeue" | "sacct" | "scancel", "user") => Values::Users,
        ("squeue" | "sacct" | "scancel", "states" | "state") => Values::Fixed(states),
        ("sinfo", "states") => Values::Fixed(node_states),
        ("squeue", "Format" | "sort") => Values::Fixed(names::<Squeue>),
        ("squeue", "format") => Values::Fixed(codes::<Squeue>),
        ("sinfo", "Format" | "sort") => Values::Fixed(names::<Sinfo>),
        ("sinfo", "format") => Values::Fixed(codes::<Sinfo>),
        ("sacct" | "sstat", "format") => Values::Fixed(names::<Sacct>),
        ("sacct" | "seff" | "why" | "log" | "retry" | "source", "jobs" | "JOB") => Values::AllJobs,
        (_, "jobs" | "jobid" | "JOB" | "JOB.STEP" | "JOBS") => Values::Jobs,
        _ => return None,
    })
}

/// Adds the sources of values to the definition of a command.
fn with_values(command: Command, words: &[String]) -> Command {
    let name = command.get_name().to_owned();
    let words = words.to_vec();
    command.mut_args(move |arg| {
        let placeholder = arg.get_value_names().and_then(|names| names.first());
        let is_operand = arg.is_positional();
        if is_operand && name == "scontrol" {
            let words = words.clone();
            let completer = move |word: &OsStr| matching(word, scontrol_words(&words));
            return arg.add(ArgValueCompleter::new(completer));
        }
        let known = if is_operand { placeholder.map(|name| name.as_str()) } else { arg.get_long() };
        let Some(values) = known.and_then(|known| values_of(&name, known)) else { return arg };
        let completer = move |word: &OsStr| matching(word, candidates_of(values));
        let arg = arg.add(ArgValueCompleter::new(completer));
        // Each element of a list is completed.
        if is_operand { arg } else { arg.value_delimiter(',') }
    })
}

/// Returns the candidates that begin with the word, or else those that differ only in case.
fn matching(word: &OsStr, all: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let (exact, other): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|candidate| candidate.get_value().to_string_lossy().starts_with(&*word));
    if !exact.is_empty() {
        return exact;
    }
    let word = word.to_lowercase();
    let begins = |candidate: &CompletionCandidate| {
        candidate.get_value().to_string_lossy().to_lowercase().starts_with(&word)
    };
    other.into_iter().filter(begins).collect()
}

fn candidates_of(values: Values) -> Vec<CompletionCandidate> {
    match values {
        Values::Jobs => numbers(jobs(JobQuery { brief: true, ..JobQuery::live() })),
        Values::AllJobs => numbers(jobs(JobQuery { brief: true, ..JobQuery::default() })),
        Values::JobNames => distinct(JobQuery::live(), |job| Some(&job.request.name)),
        Values::AllJobNames => distinct(JobQuery::default(), |job| Some(&job.request.name)),
        Values::Accounts => distinct(JobQuery::default(), |job| job.request.account.as_ref()),
        Values::Users => distinct(JobQuery::default(), |job| Some(&job.request.user)),
        Values::Partitions => node().map(|node| partitions(&node)).unwrap_or_default(),
        Values::Qos => node().map(|node| all_qos(&node)).unwrap_or_default(),
        Values::Features => node()
            .map(|node| node.host.known_features().into_iter().map(candidate).collect())
            .unwrap_or_default(),
        Values::Fixed(list) => list(),
    }
}

fn candidate(text: impl Into<OsString>) -> CompletionCandidate {
    CompletionCandidate::new(text)
}

/// Returns the jobs, or none if the daemon does not answer: an error would end up in the middle of
/// the command line.
fn jobs(query: JobQuery) -> Vec<JobView> {
    let query = JobQuery { without_steps: true, without_paths: true, ..query };
    let mut found = Vec::new();
    let asked = ask_for_jobs(&Request::Jobs(query), |part| {
        found.extend(part.jobs);
        Ok(())
    });
    if asked.is_ok() { found } else { Vec::new() }
}

fn node() -> Option<NodeView> {
    ask_node().ok()
}

/// Returns the newest jobs, with their states and names.
fn numbers(mut jobs: Vec<JobView>) -> Vec<CompletionCandidate> {
    jobs.sort_by_key(|job| Reverse(job.id));
    jobs.truncate(MOST_JOBS);
    let described = |job: JobView| {
        let about =
            format!("{} {}", job.run.state.name(), printable((&job.request.name).into(), true));
        candidate(job.label()).help(Some(about.into()))
    };
    jobs.into_iter().map(described).collect()
}

/// Returns the different values of a property of the jobs, with the number of jobs that have it.
fn distinct(
    query: JobQuery,
    property: fn(&JobView) -> Option<&String>,
) -> Vec<CompletionCandidate> {
    let jobs = jobs(query);
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for value in jobs.iter().filter_map(property).filter(|value| !value.is_empty()) {
        *counts.entry(value).or_default() += 1;
    }
    let described = |(value, count): (&String, usize)| {
        candidate(value).help(Some(counted(count, "job").into()))
    };
    counts.into_iter().map(described).collect()
}

fn all_qos(node: &NodeView) -> Vec<CompletionCandidate> {
    let described = |qos: &Qos| candidate(&qos.name).help(Some(qos.to_string().into()));
    node.qos.iter().map(described).collect()
}

fn partitions(node: &NodeView) -> Vec<CompletionCandidate> {
    let described = |view: &slotd_model::view::PartitionView| {
        let about = format!("{} running, {} pending", view.running, view.pending);
        candidate(&view.partition.name).help(Some(about.into()))
    };
    node.partitions.iter().map(described).collect()
}

fn states() -> Vec<CompletionCandidate> {
    let described = |state: JobState| candidate(state.name()).help(Some(state.meaning().into()));
    JobState::ALL.into_iter().map(described).collect()
}

fn node_states() -> Vec<CompletionCandidate> {
    State::ALL.iter().map(|state| candidate(state.name())).collect()
}

/// Returns the names of a command's fields, with their headers.
fn names<T: Table>() -> Vec<CompletionCandidate> {
    let named = T::fields().iter().filter_map(|field| Some((field.names.first()?, field.header)));
    named.map(|(name, header)| candidate(*name).help(Some(header.into()))).collect()
}

/// Returns the codes of a command's fields (`%i`), with their headers.
fn codes<T: Table>() -> Vec<CompletionCandidate> {
    let coded = T::fields().iter().flat_map(|field| {
        field
            .codes
            .chars()
            .map(|code| candidate(format!("%{code}")).help(Some(field.header.into())))
    });
    coded.collect()
}

/// Returns the candidates for an operand of `scontrol`, which depend on the words before it.
fn scontrol_words(words: &[String]) -> Vec<CompletionCandidate> {
    let is_option = |word: &&String| word.starts_with('-');
    let operands: Vec<&String> = words[1..].iter().filter(|word| !is_option(word)).collect();
    let Some((current, before)) = operands.split_last() else { return Vec::new() };
    let prefixed = |prefix: &str, list: Vec<CompletionCandidate>| -> Vec<CompletionCandidate> {
        list.into_iter().map(|candidate| candidate.add_prefix(prefix)).collect()
    };
    let Some(verb) = before.first().map(|verb| verb.to_ascii_lowercase()) else {
        return scontrol::verbs()
            .map(|(name, about)| candidate(name).help(Some(about.into())))
            .collect();
    };
    match (verb.as_str(), before.len()) {
        ("show", 1) => scontrol::show::entities().map(candidate).collect(),
        ("show", _) => match before[1].to_ascii_lowercase().as_str() {
            "job" | "jobs" | "step" | "steps" => candidates_of(Values::AllJobs),
            "partition" | "partitions" => candidates_of(Values::Partitions),
            _ => Vec::new(),
        },
        ("update", _) => match current.split_once('=') {
            Some((key, _)) => {
                let values = match key.to_ascii_lowercase().as_str() {
                    "jobid" => Values::Jobs,
                    "partitionname" | "partition" => Values::Partitions,
                    "account" => Values::Accounts,
                    "qos" => Values::Qos,
                    "features" => Values::Features,
                    _ => return Vec::new(),
                };
                prefixed(&format!("{key}="), candidates_of(values))
            }
            None => {
                let words: Vec<String> = before[1..].iter().map(|word| (*word).clone()).collect();
                let keys = scontrol::update::keys(&words);
                keys.into_iter().map(|key| candidate(format!("{key}="))).collect()
            }
        },
        (
            "hold" | "uhold" | "release" | "suspend" | "resume" | "top" | "notify" | "listpids"
            | "wait_job",
            _,
        ) => candidates_of(Values::Jobs),
        ("requeue" | "requeuehold", _) => candidates_of(Values::AllJobs),
        ("write", 1) => vec![candidate("batch_script")],
        ("write", 2) => candidates_of(Values::AllJobs),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        candidates(split(line))
            .iter()
            .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn line_is_split_as_in_a_shell() {
        assert_eq!(split("sbatch -J 'a b' x\\ y "), ["sbatch", "-J", "a b", "x y", ""]);
        assert_eq!(split("squeue --name='a b"), ["squeue", "--name=a b"]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("x '' "), ["x", "", ""]);
    }

    #[test]
    fn options_and_fixed_values_are_completed() {
        assert_eq!(words("sbatch --pars"), ["--parsable"]);
        assert_eq!(words("squeue -t PD,sus"), ["PD,SUSPENDED"]);
        assert_eq!(words("squeue --states=comple"), ["--states=COMPLETING", "--states=COMPLETED"]);
        assert_eq!(words("sacct -o JobID,MaxRSSN"), ["JobID,MaxRSSNode"]);
        assert_eq!(words("squeue -o %i"), ["%i"]);
        assert_eq!(words("slotd squeue -t runn"), ["RUNNING"]);
        assert_eq!(words("slotd unins"), ["uninstall"]);
        assert_eq!(words("slotd db vac"), ["vacuum"]);
    }

    #[test]
    fn every_option_is_completed() {
        for entry in COMMANDS {
            let (name, definition) = (entry.name(), entry.definition());
            let offered = words(&format!("{name} --"));
            let shown = definition.get_arguments().filter(|arg| !arg.is_hide_set());
            for long in shown.filter_map(clap::Arg::get_long) {
                assert!(offered.contains(&format!("--{long}")), "{name}: --{long}: {offered:?}");
            }
        }
    }

    #[test]
    fn words_of_scontrol_depend_on_the_verb() {
        assert_eq!(words("scontrol susp"), ["suspend"]);
        assert_eq!(words("scontrol one"), ["oneliner"]);
        assert_eq!(words("scontrol show part"), ["partitions"]);
        assert_eq!(words("scontrol update JobId=1 TimeL"), ["TimeLimit="]);
        assert_eq!(words("scontrol update PartitionName=x MaxT"), ["MaxTime="]);
        assert_eq!(words("scontrol -o write ba"), ["batch_script"]);
    }

    #[test]
    fn command_of_a_job_is_left_to_the_shell() {
        assert_eq!(words("srun -n 2 prog --pars"), [""; 0]);
        assert_eq!(words("sbatch --wrap 'x' --pars"), ["--parsable"]);
    }
}
