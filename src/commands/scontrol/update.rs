//! `scontrol update`: which job, and what of it.
//!
//! Whether a job is in a state that allows the change is the daemon's business.

use super::command::{Command, Target};
use super::control::{job_list, without_job_word};
use super::session::bare;
use super::site;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::changes;
use crate::model::Refusal;
use crate::model::update::Update;
use crate::parse;
use crate::parse::error::shown;
use crate::parse::suggest;

/// Keys of jobs that Slurm knows and that change nothing here.
const IDLE: [&str; 19] = [
    "burstBuffer",
    "clusterFeatures",
    "clusters",
    "container",
    "coreSpec",
    "delayBoot",
    "excNodeList",
    "minCPUsNode",
    "minTmpDiskNode",
    "network",
    "power",
    "reboot",
    "resetAccrueTime",
    "siteFactor",
    "switches",
    "threadSpec",
    "userID",
    "userList",
    "endTime",
];

/// Things of Slurm that `update` can change and that are set otherwise here, by their first key.
const OTHERS: [(&str, &str); 5] = [
    ("frontendname", "there are no front ends"),
    ("powercap", "the host is not powered by slotd"),
    ("reservationname", "there are no reservations"),
    ("stepid", "a step has its job's time limit"),
    ("suspendexcnodes", "the host is not powered by slotd"),
];

/// Reads the words after `update`: `JobId=12 TimeLimit=2:00:00`, `job 12 TimeLimit=2:00:00`,
/// `JobName=x Comment=y`.
///
/// # Errors
/// Slurm's texts, exit code 1.
pub fn read(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let pairs = without_job_word(words);
    if pairs.is_empty() {
        return Err(bare("too few arguments for update keyword"));
    }
    if let Some(command) = site::read(words) {
        return command;
    }
    let mut target = None;
    let mut name = None;
    let mut updates = Vec::new();
    let mut changes_nothing = false;
    let mut named_job = pairs.len() < words.len();
    for word in pairs {
        let Some((key, value)) = word.split_once('=') else {
            if named_job {
                named_job = false;
                target = Some(Target::Jobs(job_list(std::slice::from_ref(word))?));
                continue;
            }
            return Err(unsupported(word));
        };
        let lower = key.to_ascii_lowercase();
        if let Some((_, why)) = OTHERS.iter().find(|(other, _)| *other == lower) {
            return Err(bare(format!("update of {} is not supported by slotd: {why}", shown(key))));
        }
        match lower.as_str() {
            "jobid" | "job" | "jobs" => {
                target = Some(Target::Jobs(job_list(&[value.to_owned()])?));
            }
            "jobname" | "name" => name = Some(value.to_owned()),
            lower => match changes::read(lower, value, origin) {
                Some(Ok(update)) => updates.push(update),
                Some(Err(error)) => {
                    return Err(bare(error.to_string())
                        .and(Mark::Bare, "Request aborted")
                        .maybe_hint(error.hint));
                }
                None if IDLE.iter().any(|idle| idle.eq_ignore_ascii_case(lower)) => {
                    check_hosts(lower, value, origin)?;
                    // Slurm reads whose job it is, and counts it for no change.
                    changes_nothing |= !lower.starts_with("user");
                }
                None => return Err(unsupported(word)),
            },
        }
    }
    // A name says which jobs only where no id does.
    let target = match (target, name) {
        (Some(target), Some(name)) => {
            updates.insert(0, Update::JobName(name));
            target
        }
        (Some(target), None) => target,
        (None, Some(name)) => Target::Name(name),
        (None, None) => return Err(bare("No valid entity in update command")),
    };
    if updates.is_empty() && !changes_nothing {
        return Err(bare("No changes specified"));
    }
    Ok(Command::Update { target, updates })
}

/// A list of hosts to be left out may not be this one.
fn check_hosts(key: &str, value: &str, origin: &Origin) -> Result<(), CliError> {
    if key != "excnodelist" || value.is_empty() {
        return Ok(());
    }
    let hosts = parse::hostlist::parse(value).map_err(|error| bare(error.to_string()))?;
    let is_this = |name: &String| *name == *origin.host || name == "localhost";
    let why = if !hosts.names().iter().all(is_this) {
        Refusal::UnknownNode(value.to_owned())
    } else {
        Refusal::NodeExcluded(value.to_owned())
    };
    Err(bare(why.to_string()))
}

fn unsupported(word: &str) -> CliError {
    let selectors = ["JobId", "JobName"].into_iter();
    let key = word.split('=').next().unwrap_or_default();
    bare(format!("Update of this parameter is not supported: {}", shown(word)))
        .and(Mark::Bare, "Request aborted")
        .hint(match suggest::nearest(key, selectors.clone().chain(changes::key_spellings())) {
            Some(name) => format!("did you mean {name}?"),
            None => suggest::one_of("keys", "", selectors.chain(changes::key_names())),
        })
}
