//! `scontrol show`: what can be shown, and how it is queried.

use super::control::id_text;
use super::session::{OutputOpts, Session, bare, too_few, too_many};
use crate::args::error::{CliError, Mark};
use crate::args::options::Machine;
use crate::args::origin::Origin;
use crate::commands::output;
use crate::commands::{Done, ask, ask_node, now, unexpected};
use crate::daemon::command_line::{PlainQuery, QueryOf};
use slotd_model::license::LicenseUse;
use slotd_model::query::names_record;
use slotd_model::reservation;
use slotd_model::view::{JobList, JobView};
use slotd_model::{ArrayRole, JobRef, Refusal};
use slotd_parse::error::shown;
use slotd_parse::hostlist;
use slotd_parse::suggest;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::{Ctx, json, show};
use slotd_sys::files;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// `None`: all jobs.
    Jobs(Option<Vec<JobRef>>),
    /// `None`: the steps of all jobs.
    Steps(Option<Vec<JobRef>>),
    /// By name. `None`: the only node.
    Node(Option<String>),
    Partition(Option<String>),
    /// By name. `None`: all licenses.
    Licenses(Option<String>),
    /// By name. `None`: all reservations.
    Reservations(Option<String>),
    Config,
    /// The names in a host list, by default the one in `SLURM_NODELIST`. It is parsed later,
    /// because an invalid list is only reported on standard error and the exit code is 0.
    Hostnames(String),
    /// Names to combine into a host list, sorted or in the given order.
    Hostlist {
        names: Vec<String>,
        sorted: bool,
    },
    Daemons,
    Aliases,
    /// Something that does not exist on a single host, by its full name: `burstbuffer`,
    /// `topology`, …
    Nothing(&'static str),
}

/// The entities that can be shown, each with its shortest accepted abbreviation in letters.
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

/// Returns the full names of what can be shown.
pub fn entities() -> impl Iterator<Item = &'static str> {
    ENTITIES.iter().map(|(name, _)| *name)
}

/// Slurm's message for a job ID that cannot be parsed.
const NO_JOB: &str = "scontrol_print_job error: Invalid job id specified";

/// Parses the words after `show`.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn read(words: &[String], origin: &Origin) -> Result<Show, CliError> {
    let Some((first, rest)) = words.split_first() else {
        return Err(too_few("show"));
    };
    // `show job 12`, `show job=12` and `show jobid=12` are equivalent.
    let (entity, value) = match first.split_once('=') {
        Some((entity, value)) => (entity, Some(value.to_owned())),
        None => (first.as_str(), None),
    };
    let mut values: Vec<String> = value.into_iter().chain(rest.iter().cloned()).collect();
    let lower = entity.to_ascii_lowercase();
    let lower = if lower == "jobid" || lower == "jobids" { "jobs" } else { &lower };
    let lower = if lower == "hostname" { "hostnames" } else { lower };
    let known =
        ENTITIES.iter().find(|(name, least)| lower.len() >= *least && name.starts_with(lower));
    let Some((name, _)) = known else {
        let unknown = bare(format!("invalid entity:{} for keyword:show ", shown(entity)));
        let names = ENTITIES.iter().map(|(name, _)| *name);
        // In a short word, a missing `s` plus a typo would be too far from any entity.
        let singular = suggest::nearest(lower, ["job", "node", "step"])
            .map(|name| format!("did you mean {name}?"));
        return Err(
            unknown.hint(singular.unwrap_or_else(|| suggest::one_of("entities", lower, names)))
        );
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
    // Only this entity takes several filters: `users=ann flags=users`.
    if values.len() > 1 && *name != "assoc_mgr" {
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
        "licenses" => Ok(Show::Licenses(one)),
        "reservations" => Ok(Show::Reservations(one)),
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
    match slotd_parse::ids::parse_job_list(id_text(&text)) {
        Ok(refs) => Ok(Some(refs)),
        Err(_) => Err(bare(NO_JOB)),
    }
}

/// Without a list, uses that of the surrounding job. Outside a job, Slurm reports an empty list and
/// exits with 0.
fn hostnames(value: Option<String>, origin: &Origin) -> Result<Show, CliError> {
    let around = || {
        ["SLURM_NODELIST", "SLURM_JOB_NODELIST"]
            .iter()
            .find_map(|name| origin.nonempty(name))
            .map(str::to_owned)
    };
    match value.or_else(around) {
        Some(list) => Ok(Show::Hostnames(list)),
        None => Err(CliError::new(Mark::Error, 0, "host list is empty")),
    }
}

impl Session<'_> {
    pub(super) fn show(&self, what: &Show) -> Done {
        match (what, self.output.data.machine()) {
            (Show::Jobs(refs), _) => self.show_jobs(refs.as_deref()),
            (Show::Steps(refs), _) => self.show_steps(refs.as_deref()),
            (Show::Node(name), machine) => self.show_node(name.as_deref(), machine),
            (Show::Partition(name), machine) => self.show_partition(name.as_deref(), machine),
            (Show::Licenses(name), machine) => self.show_licenses(name.as_deref(), machine),
            (Show::Reservations(name), _) => self.show_reservations(name.as_deref()),
            (Show::Config, machine) => self.show_config(machine),
            (Show::Nothing(what), Some(machine)) => {
                output::print_machine(json::none_of(what), machine)
            }
            (Show::Nothing(what), None) => nothing(what),
            (_, Some(_)) => {
                let known = "job, step, node, partition, licenses, reservations and config";
                Err(bare(format!(
                    "--json and --yaml apply only to show {known}: leave them out here"
                )))
            }
            (Show::Hostnames(list), None) => show_hostnames(list),
            (Show::Hostlist { names, sorted }, None) => {
                let mut names = match names.as_slice() {
                    [path] if path.starts_with('/') => names_in(path)?,
                    _ => names.clone(),
                };
                if *sorted {
                    names.sort();
                }
                output::print(&show::hostlist(&names))
            }
            (Show::Daemons, None) => output::print("slurmctld slurmd\n"),
            (Show::Aliases, None) => output::print(&format!("{}\n", self.origin.host)),
        }
    }

    fn show_node(&self, name: Option<&str>, machine: Option<Machine>) -> Done {
        let node = ask_node()?;
        let ctx = self.ctx(node.now);
        match (name.filter(|name| !output::is_node(name, &node.host.name)), machine) {
            (Some(name), _) => self.not_found(&format!("Node {name}")),
            (None, Some(machine)) => output::print_machine(json::nodes(&node, &ctx), machine),
            (None, None) => {
                output::print(&show::node(&node, self.output.oneliner, self.output.details, &ctx))
            }
        }
    }

    fn show_partition(&self, name: Option<&str>, machine: Option<Machine>) -> Done {
        let node = ask_node()?;
        let ctx = self.ctx(node.now);
        if let Some(machine) = machine {
            return output::print_machine(json::partitions(&node, &ctx), machine);
        }
        let Some(name) = name else {
            return output::print(&show::partitions(&node, self.output.oneliner, &ctx));
        };
        match node.partitions.iter().find(|p| p.partition.name == *name) {
            Some(found) => {
                output::print(&show::partition(&node, found, self.output.oneliner, &ctx))
            }
            None => self.not_found(&format!("Partition {name}")),
        }
    }

    fn show_licenses(&self, name: Option<&str>, machine: Option<Machine>) -> Done {
        let node = ask_node()?;
        let all = &node.licenses;
        let reserved = |name: &str| reservation::licenses(&node.reservations, name, node.now);
        match machine {
            Some(machine) => {
                let is_shown = |license: &&LicenseUse| name.is_none_or(|name| license.name == name);
                output::print_machine(
                    json::licenses(all.iter().filter(is_shown), reserved),
                    machine,
                )
            }
            None => output::print(&show::licenses(all, reserved, name, self.output.oneliner)),
        }
    }

    fn show_config(&self, machine: Option<Machine>) -> Done {
        let pairs = match ask(&Request::Config, &[])?.0 {
            Answer::Config(pairs) => pairs,
            other => return Err(unexpected(&other)),
        };
        match machine {
            Some(machine) => output::print_machine(json::config(&pairs), machine),
            None => output::print(&show::config(&pairs, &self.ctx(now()))),
        }
    }

    fn show_jobs(&self, refs: Option<&[JobRef]>) -> Done {
        let wanted = refs.unwrap_or_default();
        let list = self.query(wanted)?;
        if let (true, Some(first)) = (list.jobs.is_empty(), wanted.first()) {
            // A task of a job that is not an array, or a task outside this array.
            return if list.unknown.contains(&first.job) {
                Err(bare(format!("slurm_load_jobs error: {}", Refusal::UnknownJob)))
            } else {
                self.not_found(&format!("Job {first}"))
            };
        }
        let (jobs, ctx) = self.narrowed(list, wanted);
        if let Some(machine) = self.output.data.machine() {
            return output::print_machine(json::jobs(&jobs, &ctx), machine);
        }
        output::print(&self.text_of_jobs(&jobs, &ctx))
    }

    /// Narrows the records to the wanted tasks, and returns the rendering context too.
    fn narrowed(&self, list: JobList, wanted: &[JobRef]) -> (Vec<JobView>, Ctx) {
        let mut jobs = list.jobs;
        jobs.iter_mut().for_each(|job| narrow(job, wanted));
        (jobs, self.ctx(list.now))
    }

    fn text_of_jobs(&self, jobs: &[JobView], ctx: &Ctx) -> String {
        show::jobs(jobs, self.output.oneliner, self.output.details, ctx)
    }

    fn show_steps(&self, refs: Option<&[JobRef]>) -> Done {
        let list = self.query(refs.unwrap_or_default())?;
        let ctx = self.ctx(list.now);
        let mut text = String::new();
        let mut data = Vec::new();
        for job in &list.jobs {
            let named = refs
                .unwrap_or_default()
                .iter()
                .filter(|named| names_record(named, job.id, &job.role));
            let steps: Vec<_> = named.map(|named| named.step).collect();
            for step in if steps.is_empty() { vec![None] } else { steps } {
                text.push_str(&show::steps(job, step, self.output.oneliner, &ctx));
                data.extend(show::steps_shown(job, step).map(|step| (job, step)));
            }
        }
        if let Some(machine) = self.output.data.machine() {
            return match refs {
                Some([named, ..]) if data.is_empty() => {
                    Err(bare(format!("Job step {named} not found")))
                }
                _ => output::print_machine(json::steps(&data, &ctx), machine),
            };
        }
        match refs {
            Some([named, ..]) if text.is_empty() => self.not_found(&format!("Job step {named}")),
            None if text.is_empty() => output::print("No job steps in the system\n"),
            _ => output::print(&text),
        }
    }
}

/// Returns the query for `show job` with these jobs.
pub(super) fn plain_jobs(
    wanted: Vec<JobRef>,
    output: OutputOpts,
    origin: Origin,
) -> Option<PlainQuery> {
    output.data.machine().is_none().then_some(())?;
    let of = QueryOf::Jobs(Session::jobs_query(&wanted));
    let print = move |answer| {
        let Answer::Jobs(list) = answer else { return None };
        let session = Session { output: &output, origin: &origin };
        let (jobs, ctx) = session.narrowed(list, &wanted);
        (!jobs.is_empty()).then(|| session.text_of_jobs(&jobs, &ctx))
    };
    Some(PlainQuery { of, print: Box::new(print) })
}

/// Prints the names in a host list. As in Slurm, an invalid list is reported but is not a failure.
fn show_hostnames(list: &str) -> Done {
    if list.is_empty() {
        report!("scontrol: error: host list is empty");
        return Ok(0);
    }
    match hostlist::expand(list) {
        Ok(names) => output::print(&show::hostnames(&names)),
        Err(error) => {
            report!("{error}");
            Ok(0)
        }
    }
}

/// Reads host names from a file (scontrol man page, `show hostlist`), separated by commas or ends of
/// lines.
fn names_in(path: &str) -> Result<Vec<String>, CliError> {
    let text = files::read_text(Path::new(path), files::MOST_SETTINGS)
        .map_err(|why| bare(format!("cannot read the host names in {}: {why}", shown(path))))?;
    let names = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

/// Prints Slurm's message for something that does not exist on a single host.
fn nothing(what: &str) -> Done {
    match what {
        "topology" => {
            report!("scontrol: error: No topology information available");
            Ok(0)
        }
        "burstbuffer" | "bbstat" | "dwstat" | "federation" => Ok(0),
        other => output::print(&format!("No {other} in the system\n")),
    }
}

/// Narrows a record of several pending array tasks to the wanted ones: `show job 12_7`.
fn narrow(job: &mut JobView, wanted: &[JobRef]) {
    let array = job.role.array_job(job.id);
    let asked = wanted.iter().find(|r| Some(r.job) == array).and_then(|r| r.tasks.as_ref());
    let (Some(asked), ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) =
        (asked, &mut job.role)
    else {
        return;
    };
    let common = tasks.intersection(asked);
    match (array, common.first()) {
        // A single task is shown as if it already had its own record, with its index in the paths.
        (Some(array_job), Some(task)) if common.len() == 1 => {
            for path in [&mut job.std_out, &mut job.std_err, &mut job.std_in] {
                *path = path.replace("%a", &task.to_string());
            }
            job.role = ArrayRole::Task { array_job, task };
        }
        (_, Some(_)) => *tasks = common,
        (_, None) => {}
    }
}
