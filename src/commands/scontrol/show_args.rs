//! `scontrol show`: what can be shown.

use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::scontrol::args::{bare, id_text, too_few, too_many};
use crate::model::JobRef;
use crate::spec;
use crate::spec::error::shown;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// `None`: all jobs.
    Jobs(Option<Vec<JobRef>>),
    /// `None`: the steps of all jobs.
    Steps(Option<Vec<JobRef>>),
    /// By name; `None`: the one there is.
    Node(Option<String>),
    Partition(Option<String>),
    Config,
    /// The names in a host list, which was looked up in `SLURM_NODELIST` if it was not given. Not yet read: a list that
    /// cannot be read is told on standard error and the exit code is 0 (golden H-25).
    Hostnames(String),
    /// Names to be joined to a host list, sorted or as given.
    Hostlist {
        names: Vec<String>,
        sorted: bool,
    },
    Daemons,
    Aliases,
    /// Something that one host never has any of: `reservations`, `licenses`, `burstbuffer`, `topology`, …, by its
    /// full name.
    Nothing(&'static str),
}

/// What may be shown, with the least that must be written of it.
const ENTITIES: [(&str, usize); 19] = [
    ("aliases", 2),
    ("assoc_mgr", 2),
    ("bbstat", 2),
    ("burstbuffer", 2),
    ("config", 1),
    ("daemons", 2),
    ("dwstat", 2),
    ("federation", 1),
    ("hostlistsorted", 9),
    ("hostlist", 5),
    ("hostnames", 5),
    ("jobs", 1),
    ("licenses", 2),
    ("nodes", 1),
    ("partitions", 1),
    ("reservations", 1),
    ("slurmd", 2),
    ("steps", 2),
    ("topology", 1),
];

/// Golden H-09.
const NO_JOB: &str = "scontrol_print_job error: Invalid job id specified";

/// Reads the words after `show`.
///
/// # Errors
/// Slurm's texts (golden H), exit code 1.
pub fn show(words: &[String], origin: &Origin) -> Result<Show, CliError> {
    let Some((first, rest)) = words.split_first() else {
        return Err(too_few("show"));
    };
    // `show job 12`, `show job=12` and `show jobid=12` are the same.
    let (entity, value) = match first.split_once('=') {
        Some((entity, value)) => (entity, Some(value.to_owned())),
        None => (first.as_str(), None),
    };
    let mut values: Vec<String> = value.into_iter().chain(rest.iter().cloned()).collect();
    let lower = entity.to_ascii_lowercase();
    let lower = if lower == "jobid" || lower == "jobids" { "jobs" } else { &lower };
    let lower = if lower == "hostname" { "hostnames" } else { lower };
    let known = ENTITIES.iter().find(|(name, least)| lower.len() >= *least && name.starts_with(lower));
    let Some((name, _)) = known else {
        return Err(bare(format!("invalid entity:{} for keyword:show ", shown(entity))));
    };
    if *name == "hostlist" || *name == "hostlistsorted" {
        let names = values.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        return if names.is_empty() {
            Err(bare("invalid: a list of host names is missing"))
        } else {
            Ok(Show::Hostlist { names, sorted: *name == "hostlistsorted" })
        };
    }
    if values.len() > 1 {
        return Err(too_many("show"));
    }
    let one = values.pop().filter(|value| !value.is_empty());
    match *name {
        "jobs" => match refs(one)? {
            Some(named) if named.iter().any(|job| job.step.is_some()) => Err(bare(NO_JOB)),
            named => Ok(Show::Jobs(named)),
        },
        "steps" => refs(one).map(Show::Steps),
        "nodes" => Ok(Show::Node(one)),
        "partitions" => Ok(Show::Partition(one)),
        "config" => Ok(Show::Config),
        "daemons" | "slurmd" => Ok(Show::Daemons),
        "aliases" => Ok(Show::Aliases),
        "hostnames" => hostnames(one, origin),
        other => Ok(Show::Nothing(other)),
    }
}

fn refs(value: Option<String>) -> Result<Option<Vec<JobRef>>, CliError> {
    let Some(text) = value else {
        return Ok(None);
    };
    match spec::ids::parse_job_list(id_text(&text)) {
        Ok(refs) => Ok(Some(refs)),
        Err(_) => Err(bare(NO_JOB)),
    }
}

/// Without a list it is the one of the job around it (golden H-28); outside a job Slurm says so and exits with 0
/// (golden H-29).
fn hostnames(value: Option<String>, origin: &Origin) -> Result<Show, CliError> {
    let around =
        || ["SLURM_NODELIST", "SLURM_JOB_NODELIST"].iter().find_map(|name| origin.nonempty(name)).map(str::to_owned);
    match value.or_else(around) {
        Some(list) => Ok(Show::Hostnames(list)),
        None => Err(CliError::new(Mark::Error, 0, "host list is empty")),
    }
}
