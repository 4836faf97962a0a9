//! What the query commands share: the surroundings of a rendering, machine output, printing.

use crate::cli::error::{CliError, Mark};
use crate::cli::origin::Origin;
use crate::cli::squeue::Machine;
use crate::host::system;
use crate::model::view::JobView;
use crate::model::{JobState, Timestamp};
use crate::render::json;
use crate::render::size::Units;
use crate::render::{Ctx, Face, FormatError, TimeFormat};
use serde_json::Value;
use std::io::{self, Write};

/// The user's settings, and the daemon's clock.
pub fn ctx(origin: &Origin, now: Timestamp) -> Ctx {
    let mut ctx = Ctx::new(now, origin.tz.clone(), &system::probe_host_name());
    ctx.cluster = crate::CLUSTER.to_owned();
    if let Some(format) = origin.nonempty("SLURM_TIME_FORMAT") {
        ctx.time_format = TimeFormat::parse(format);
    }
    ctx.bitstr_len = origin.nonempty("SLURM_BITSTR_LEN").and_then(|n| n.parse().ok());
    if origin.var("SLOTD_OUTPUT") == Some("slurm") {
        ctx.face = Face::Slurm;
    }
    ctx
}

/// `--units` and `--noconvert`.
pub fn units(ctx: &mut Ctx, units: Option<char>, no_convert: bool) {
    if no_convert {
        ctx.units = Units::Keep;
    } else if let Some(unit) = units.and_then(|c| Units::parse(&c.to_string())) {
        ctx.units = unit;
    }
}

/// Writes to standard output at once; a reader that went away ends the process by SIGPIPE.
pub fn print(text: &str) -> super::Done {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(0),
        Err(e) => Err(CliError::error(1, format!("standard output: {e}"))),
    }
}

pub fn print_machine(value: &Value, machine: Machine) -> super::Done {
    print(&match machine {
        Machine::Json => json::text(value),
        Machine::Yaml => json::yaml(value),
    })
}

/// A format that is not understood: Slurm's text, then what there is.
pub fn format_error(error: FormatError) -> CliError {
    CliError::error(1, error.message).and(Mark::Bare, error.hint)
}

/// Whether a list of names leaves this value in. Empty lists leave everything in.
pub fn listed(names: &[String], value: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == value)
}

/// As [`listed`], for something a job need not have.
pub fn maybe_listed(names: &[String], value: Option<&str>) -> bool {
    names.is_empty() || value.is_some_and(|value| listed(names, value))
}

/// Whether a list of users, by name or number, leaves this job in.
pub fn of_users(users: &[String], job: &JobView) -> bool {
    let uid = job.request.uid.to_string();
    users.is_empty() || users.iter().any(|user| *user == job.request.user || *user == uid)
}

/// Whether a job has a place on one of these nodes: only what runs or ran has one.
pub fn on_nodes(nodes: &[String], job: &JobView, node: &str) -> bool {
    nodes.is_empty() || (job.state != JobState::Pending && nodes.iter().any(|name| name == node))
}

/// Users that do not exist: Slurm says so and goes on.
pub fn unknown_users(users: &[String]) -> Vec<&String> {
    let known = |user: &String| user.parse::<u32>().is_ok() || crate::host::user::uid_of(user).is_some();
    users.iter().filter(|user| !known(user)).collect()
}
