//! Changes to the host with `scontrol`: `update PartitionName=…`, `update NodeName=…` and
//! `reconfigure`.

use super::command::Command;
use super::session::{Session, bare};
use crate::args::error::{CliError, Mark};
use crate::client::connection::Connection;
use crate::commands::output;
use crate::commands::{Done, known_names, paths, unexpected};
use slotd_model::Partition;
use slotd_model::node::{NodeOrder, NodeParts};
use slotd_parse::error::shown;
use slotd_parse::node_parts;
use slotd_parse::partition::{self, PartitionError, Written};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use std::collections::BTreeSet;

/// The keys of `update NodeName=…`.
const NODE_KEYS: [&str; 4] = ["State", "Reason", "Gres", "CPUs"];

/// Returns the keys that may follow these words of `update`, or `None` unless the words are about
/// a partition or the node.
pub(super) fn keys(words: &[String]) -> Option<Vec<&'static str>> {
    let has = |key: &str| {
        words
            .iter()
            .filter_map(|word| word.split_once('='))
            .any(|(known, _)| known.eq_ignore_ascii_case(key))
    };
    if has("PartitionName") {
        return Some(partition::scontrol_keys().collect());
    }
    has("NodeName").then(|| NODE_KEYS.into())
}

/// Parses the words after `update`, or returns `None` unless they are about a partition or the
/// node.
pub(super) fn read(words: &[String]) -> Option<Result<Command, CliError>> {
    let pair =
        |word: &String| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let pairs: Vec<_> = words.iter().filter_map(pair).collect();
    let named = |key: &str| {
        pairs.iter().find(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    };
    let others = |key: &str| {
        let others = pairs.iter().filter(|(known, _)| !known.eq_ignore_ascii_case(key)).cloned();
        match words.iter().find(|word| !word.contains('=')) {
            Some(word) => Err(refused(word, None)),
            None => Ok(others.collect::<Vec<_>>()),
        }
    };
    match (named("PartitionName"), named("NodeName")) {
        (Some(name), _) => {
            Some(others("PartitionName").and_then(|settings| partition(name, settings)))
        }
        (None, Some(name)) => Some(others("NodeName").and_then(|settings| node(name, settings))),
        (None, None) => None,
    }
}

fn refused(word: &str, hint: Option<String>) -> CliError {
    bare(format!("Update of this parameter is not supported: {}", shown(word)))
        .and(Mark::Bare, "Request aborted")
        .maybe_hint(hint)
}

fn partition(name: &str, settings: Vec<(String, String)>) -> Result<Command, CliError> {
    if settings.is_empty() {
        return Err(bare("No changes specified"));
    }
    // Report invalid settings before contacting the daemon.
    let mut trial = Partition::default();
    for (key, value) in &settings {
        partition::set(&mut trial, key, value, Written::ToScontrol).map_err(
            |error| match error {
                PartitionError::UnknownKey(hint) => refused(&format!("{key}={value}"), Some(hint)),
                PartitionError::Expected(forms) => {
                    bare(format!("Invalid {key} value: {}", shown(value)))
                        .and(Mark::Bare, "Request aborted")
                        .maybe_hint(Some(forms.to_owned()))
                }
            },
        )?;
    }
    Ok(Command::UpdatePartition { name: name.to_owned(), settings })
}

fn node(name: &str, settings: Vec<(String, String)>) -> Result<Command, CliError> {
    let (mut state, mut reason, mut parts) = (None, None, NodeParts::default());
    for (key, value) in &settings {
        let numbers = |read: fn(&str) -> Option<BTreeSet<u32>>, forms: &str| {
            let invalid = || {
                bare(format!("Invalid {key} value: {}", shown(value)))
                    .and(Mark::Bare, "Request aborted")
            };
            read(value).ok_or_else(|| invalid().hint(forms))
        };
        match key.to_ascii_lowercase().as_str() {
            "state" => state = Some(value.to_ascii_uppercase()),
            "reason" => reason = Some(value.clone()).filter(|text| !text.is_empty()),
            "gres" => parts.gpus.extend(numbers(node_parts::gpus, node_parts::GPUS)?),
            "cpus" => parts.cpus.extend(numbers(node_parts::numbers, node_parts::NUMBERS)?),
            _ => {
                return Err(refused(
                    &format!("{key}={value}"),
                    Some(format!("keys: {}", NODE_KEYS.join(", "))),
                ));
            }
        }
    }
    let order = match (state.as_deref(), reason) {
        (Some("DRAIN"), Some(reason)) => NodeOrder::Drain { reason, parts },
        (Some("DRAIN" | "DOWN"), None) => {
            return Err(bare(
                "You must specify a reason when DOWNING or DRAINING a node. Request denied",
            ));
        }
        (Some("RESUME" | "UNDRAIN" | "IDLE"), _) => NodeOrder::Resume { parts },
        (Some("DOWN"), Some(_)) => {
            let text = "State=DOWN, which would end all running jobs, is not supported by slotd";
            let hint = "State=DRAIN keeps new jobs from starting; after it, scontrol requeue lets a running job \
                        wait for State=RESUME, and scancel --me --state=RUNNING ends all";
            return Err(bare(text).hint(hint));
        }
        (Some(other), _) => {
            let text = format!("Invalid input: {}", shown(other));
            return Err(bare(text)
                .and(Mark::Bare, "Request aborted")
                .hint("states: DRAIN, RESUME"));
        }
        (None, _) if !parts.is_empty() => {
            let hint = "State=DRAIN Reason=... takes them out of use, State=RESUME puts them back into use";
            return Err(bare("No state given for the parts of the node").hint(hint));
        }
        (None, _) => return Err(bare("No changes specified")),
    };
    Ok(Command::UpdateNode { name: name.to_owned(), order })
}

/// Requests a change from the daemon. `call` is the call that Slurm names on failure.
pub(super) fn change(request: &Request, call: &str) -> Done {
    match Connection::open(&paths()?)?.ask(request, &[])?.0 {
        Answer::SiteChanged(remarks) => {
            remarks.iter().for_each(|remark| report!("scontrol: warning: {remark}"));
            Ok(0)
        }
        Answer::Refused(why) => {
            Err(bare(format!("{call} error: {why}")).maybe_hint(known_names(&why)))
        }
        other => Err(unexpected(&other)),
    }
}

impl Session<'_> {
    pub(super) fn update_node(&self, name: &str, order: &NodeOrder) -> Done {
        if !output::is_node(name, &self.origin.host) {
            return Err(bare("slurm_update error: Invalid node name specified"));
        }
        change(&Request::UpdateNode(order.clone()), "slurm_update")
    }
}
