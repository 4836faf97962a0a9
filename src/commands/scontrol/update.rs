//! `scontrol update`: parses the job and the changes to it.
//!
//! The daemon checks whether the state of the job allows the change.

use super::command::{Command, Target};
use super::control::{job_list, without_job_word};
use super::session::bare;
use super::{reservation, site, step};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::changes;
use slotd_model::Refusal;
use slotd_model::request::KeptText;
use slotd_model::update::Update;
use slotd_parse::error::shown;
use slotd_parse::suggest;

/// Slurm's keys for jobs that have no effect here.
const NO_EFFECT: [&str; 13] = [
    "burstBuffer",
    "clusterFeatures",
    "clusters",
    "container",
    "coreSpec",
    "excNodeList",
    "power",
    "reboot",
    "resetAccrueTime",
    "siteFactor",
    "threadSpec",
    "userID",
    "userList",
];

/// Entities that Slurm's `update` can change but slotd refuses, by their first key, with the
/// reason.
const OTHER_ENTITIES: [(&str, &str); 3] = [
    ("frontendname", "there are no front ends"),
    ("powercap", "slotd does not control the power of the host"),
    ("suspendexcnodes", "slotd does not control the power of the host"),
];

/// Returns the keys that may follow these words of `update`.
pub fn keys(words: &[String]) -> Vec<&'static str> {
    if let Some(keys) = site::keys(words) {
        return keys;
    }
    if step::is_update(words) {
        return step::KEYS.to_vec();
    }
    let entities =
        if words.is_empty() { &["NodeName", "PartitionName", "StepId"][..] } else { &[] };
    ["JobId"].into_iter().chain(changes::key_names()).chain(entities.iter().copied()).collect()
}

/// Parses the words after `update`: `JobId=12 TimeLimit=2:00:00`, `job 12 TimeLimit=2:00:00` or
/// `JobName=x Comment=y`.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn read(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let pairs = without_job_word(words);
    if pairs.is_empty() {
        return Err(bare("too few arguments for update keyword"));
    }
    if reservation::is_update(words) {
        return reservation::read(reservation::Verb::Update, words, origin);
    }
    if let Some(command) = site::read(words) {
        return command;
    }
    if step::is_update(words) {
        return step::read(words, origin);
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
        if let Some((_, why)) = OTHER_ENTITIES.iter().find(|(other, _)| *other == lower) {
            return Err(bare(format!("update of {} is not supported by slotd: {why}", shown(key))));
        }
        match lower.as_str() {
            "jobid" | "job" | "jobs" => {
                target = Some(Target::Jobs(job_list(&[value.to_owned()])?));
            }
            "jobname" | "name" => name = Some(value.to_owned()),
            "reservationname" => {
                updates.push(Update::Text(KeptText::Reservation, value.to_owned()));
            }
            lower => match changes::read(lower, value, origin) {
                Some(Ok(update)) => updates.push(update),
                Some(Err(error)) => {
                    return Err(bare(error.to_string())
                        .and(Mark::Bare, "Request aborted")
                        .maybe_hint(error.hint));
                }
                None if NO_EFFECT.iter().any(|key| key.eq_ignore_ascii_case(lower)) => {
                    check_hosts(lower, value, origin)?;
                    // Slurm parses the user but does not count it as a change.
                    changes_nothing |= !lower.starts_with("user");
                }
                None => return Err(unsupported(word)),
            },
        }
    }
    // The name selects jobs only if no ID does. With an ID, it is the new name.
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

/// Fails if the list of excluded hosts includes this host or an unknown one.
fn check_hosts(key: &str, value: &str, origin: &Origin) -> Result<(), CliError> {
    if key != "excnodelist" || value.is_empty() {
        return Ok(());
    }
    let hosts = slotd_parse::hostlist::parse(value).map_err(|error| bare(error.to_string()))?;
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
