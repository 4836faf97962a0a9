//! `scontrol update`: which job, and what of it.
//!
//! Whether a job is in a state that allows the change is the daemon's business.

use super::control::{job_list, without_job_word};
use super::{Command, Target, bare, site};
use crate::args::error::{CliError, Mark};
use crate::args::job_values::{MAX_NICE, nice_forms};
use crate::args::origin::Origin;
use crate::model::request::{GpuRequest, KeptText};
use crate::model::update::Update;
use crate::model::{Refusal, Timestamp};
use crate::spec;
use crate::spec::SpecError;
use crate::spec::error::shown;
use crate::spec::suggest;

/// Keys of jobs that Slurm knows and that change nothing here.
const IDLE: [&str; 25] = [
    "adminComment",
    "burstBuffer",
    "clusterFeatures",
    "clusters",
    "container",
    "contiguous",
    "coreSpec",
    "delayBoot",
    "excNodeList",
    "minCPUsNode",
    "minTmpDiskNode",
    "network",
    "nodeList",
    "power",
    "prefer",
    "reboot",
    "reqNodeList",
    "resetAccrueTime",
    "siteFactor",
    "shared",
    "switches",
    "threadSpec",
    "userID",
    "userList",
    "endTime",
];

/// How a value of a key is read.
type ReadValue = fn(&str, &Origin) -> Result<Update, SpecError>;

/// A key of a job by its names, as Slurm spells them, and how its value is read. Case makes no difference. The texts
/// that are only kept are not among them: [`KeptText`] knows their names.
struct Key(&'static [&'static str], ReadValue);

const KEYS: [Key; 28] = [
    Key(&["Partition"], |value, _| Ok(Update::Partition(value.to_owned()))),
    Key(&["TimeLimit", "Time"], |value, _| time_limit(value, value)),
    Key(&["TimeLimit+"], |value, _| time_limit(&format!("+{value}"), value)),
    Key(&["TimeLimit-"], |value, _| time_limit(&format!("-{value}"), value)),
    Key(&["TimeMin"], |value, _| {
        spec::time::parse_limit_for(value, "TimeMin").map(Update::TimeMin)
    }),
    Key(&["Priority"], |value, _| priority(value)),
    Key(&["Nice"], |value, _| nice(value)),
    Key(&["Dependency"], |value, _| spec::dependency::parse(value).map(Update::Dependency)),
    Key(&["NumCPUs", "ReqCPUs", "MinCPUs"], |value, _| {
        spec::count::parse(value, "NumCPUs").map(Update::NumCpus)
    }),
    Key(&["NumTasks", "ReqProcs", "NTasks"], |value, _| {
        spec::count::parse(value, "NumTasks").map(Update::NumTasks)
    }),
    Key(&["CPUsPerTask", "CPUs/Task"], |value, _| {
        spec::count::parse(value, "CPUsPerTask").map(Update::CpusPerTask)
    }),
    Key(&["NumNodes", "ReqNodes"], |value, _| {
        spec::nodes::parse(value).map(|nodes| Update::NumNodes(nodes.min))
    }),
    Key(&["MinMemoryNode", "Mem"], |value, _| {
        spec::mem::parse_mb_for(value, "MinMemoryNode").map(Update::MinMemoryNode)
    }),
    Key(&["MinMemoryCPU"], |value, _| {
        spec::mem::parse_mb_for(value, "MinMemoryCPU").map(Update::MinMemoryCpu)
    }),
    Key(&["Gres", "TresPerNode"], |value, _| gpus(value, |gpu, count| gpu.per_node = Some(count))),
    Key(&["TresPerJob"], |value, _| gpus(value, |gpu, count| gpu.total = Some(count))),
    Key(&["TresPerTask"], |value, _| gpus(value, |gpu, count| gpu.per_task = Some(count))),
    Key(&["StartTime", "EligibleTime", "Begin"], |value, origin| {
        moment("StartTime", value, origin).map(Update::StartTime)
    }),
    Key(&["Deadline"], |value, origin| moment("Deadline", value, origin).map(Update::Deadline)),
    Key(&["ArrayTaskThrottle"], |value, _| array_throttle(value)),
    Key(&["Requeue"], |value, _| yes_or_no("Requeue", value).map(Update::Requeue)),
    Key(&["Features", "Constraint"], |value, _| features(value)),
    Key(&["StdOut"], |value, _| Ok(Update::StdOut(value.to_owned()))),
    Key(&["StdErr"], |value, _| Ok(Update::StdErr(value.to_owned()))),
    Key(&["StdIn"], |value, _| Ok(Update::StdIn(value.to_owned()))),
    Key(&["WorkDir"], |value, origin| Ok(Update::WorkDir(origin.absolute(value)))),
    Key(&["OverSubscribe"], |value, _| {
        yes_or_no("OverSubscribe", value).map(|shares| Update::Exclusive(!shares))
    }),
    Key(&["Exclusive"], |value, _| yes_or_no("Exclusive", value).map(Update::Exclusive)),
];

/// Things of Slurm that `update` can change and that are set otherwise here, by their first key.
const OTHERS: [(&str, &str); 5] = [
    ("frontendname", "there are no front ends"),
    ("powercap", "the host is not powered by slotd"),
    ("reservationname", "there are no reservations"),
    ("stepid", "a step has its job's time limit"),
    ("suspendexcnodes", "the host is not powered by slotd"),
];

/// Reads the words after `update`: `JobId=12 TimeLimit=2:00:00`, `job 12 TimeLimit=2:00:00`, `JobName=x Comment=y`.
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
            lower => match change(lower, value, origin) {
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

/// The update that a value of this key comes to; `None` for a key that changes nothing here.
fn change(key: &str, value: &str, origin: &Origin) -> Option<Result<Update, SpecError>> {
    match KEYS
        .iter()
        .find(|Key(names, _)| names.iter().any(|known| known.eq_ignore_ascii_case(key)))
    {
        Some(Key(_, read)) => Some(read(value, origin)),
        None => Some(Ok(Update::Text(KeptText::named(key)?, value.to_owned()))),
    }
}

/// A list of hosts may be this one: to be on it, or not to be left out of it.
fn check_hosts(key: &str, value: &str, origin: &Origin) -> Result<(), CliError> {
    let excludes = key == "excnodelist";
    if !excludes && !["nodelist", "reqnodelist"].contains(&key) || value.is_empty() {
        return Ok(());
    }
    let hosts = spec::hostlist::parse(value).map_err(|error| bare(error.to_string()))?;
    let is_this = |name: &String| *name == *origin.host || name == "localhost";
    match hosts.names().iter().all(is_this) {
        false => Err(bare(Refusal::UnknownNode(value.to_owned()).to_string())),
        true if excludes => Err(bare(Refusal::NodeExcluded(value.to_owned()).to_string())),
        true => Ok(()),
    }
}

fn unsupported(word: &str) -> CliError {
    let others = || ["JobId", "JobName"].into_iter().chain(KeptText::NAMES);
    let spellings = KEYS.iter().flat_map(|Key(names, _)| names.iter().copied());
    let names =
        KEYS.iter().map(|Key(names, _)| names[0]).filter(|name| !name.ends_with(['+', '-']));
    let key = word.split('=').next().unwrap_or_default();
    bare(format!("Update of this parameter is not supported: {}", shown(word)))
        .and(Mark::Bare, "Request aborted")
        .hint(match suggest::nearest(key, others().chain(spellings)) {
            Some(name) => format!("did you mean {name}?"),
            None => suggest::one_of("keys", "", others().chain(names)),
        })
}

fn moment(key: &str, value: &str, origin: &Origin) -> Result<Timestamp, SpecError> {
    spec::begin::parse_for(value, key, origin.now, &origin.tz)
}

/// 0 is no limit.
fn array_throttle(value: &str) -> Result<Update, SpecError> {
    let limit = spec::count::parse_or_zero(value, "ArrayTaskThrottle")?;
    Ok(Update::ArrayTaskThrottle(Some(limit).filter(|limit| *limit > 0)))
}

fn features(value: &str) -> Result<Update, SpecError> {
    match value {
        "" => Ok(Update::Features(None)),
        _ => spec::constraint::parse(value).map(|constraint| Update::Features(Some(constraint))),
    }
}

/// A limit, or with a sign what is added to it or taken off.
fn time_limit(value: &str, written: &str) -> Result<Update, SpecError> {
    let invalid = |hint: Option<String>| {
        let text = format!("Invalid TimeLimit value: {}", shown(written));
        hint.into_iter().fold(SpecError::value(text), SpecError::with_hint)
    };
    let (sign, text) = match value.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => {
            return spec::time::parse_limit(value)
                .map(Update::TimeLimit)
                .map_err(|error| invalid(error.hint));
        }
    };
    let endless = || invalid(Some("a difference has an end".to_owned()));
    let secs =
        spec::time::parse_limit(text).map_err(|error| invalid(error.hint))?.ok_or_else(endless)?;
    let secs = i64::try_from(secs).map_err(|_| endless())?;
    Ok(Update::TimeLimitBy(sign * secs))
}

fn priority(value: &str) -> Result<Update, SpecError> {
    if value == "-1" {
        return Ok(Update::PriorityReset);
    }
    let forms = format!("a whole number from 0 to {}, or -1 for the default", u32::MAX);
    value.parse().map(Update::Priority).map_err(|_| invalid("Priority", value).with_hint(forms))
}

fn nice(value: &str) -> Result<Update, SpecError> {
    match value.parse::<i64>() {
        Ok(nice) if (-MAX_NICE..=MAX_NICE).contains(&nice) => Ok(Update::Nice(nice)),
        _ => Err(invalid("Nice", value).with_hint(nice_forms())),
    }
}

fn gpus(value: &str, put: impl Fn(&mut GpuRequest, u32)) -> Result<Update, SpecError> {
    let mut gpu = GpuRequest::default();
    let asked = spec::gres::parse(value)?.unwrap_or_default();
    (gpu.mem_mb, gpu.shards) = (asked.mem_mb, asked.shards);
    match asked.gpus.filter(|ask| ask.count > 0) {
        Some(ask) => {
            put(&mut gpu, ask.count);
            gpu.model = ask.model;
        }
        None if gpu.mem_mb.is_some() || gpu.shards.is_some() => {}
        // A GPU partition gives one where nothing is said, so none is said too.
        None => put(&mut gpu, 0),
    }
    Ok(Update::Gpus(gpu))
}

fn yes_or_no(key: &str, value: &str) -> Result<bool, SpecError> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" => Ok(true),
        "0" | "no" | "n" => Ok(false),
        _ => Err(invalid(key, value).with_hint("yes or no")),
    }
}

fn invalid(key: &str, value: &str) -> SpecError {
    SpecError::value(format!("Invalid {key} value: {}", shown(value)))
}
