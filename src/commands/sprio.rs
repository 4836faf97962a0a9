//! `sprio`: what the priority of pending jobs is made of.

pub mod args;

use super::output::{self, ctx, format_error};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sprio::args::{Sprio, parse};
use crate::model::JobState;
use crate::protocol::answer::Answer;
use crate::protocol::request::{JobFilter, Request};
use crate::render::sprio::{self, DEFAULT_SORT, Layout, Sort, default_layout};
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SprioOpts>, run, page: &texts::SPRIO };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |asked| carry_out(&asked, &origin))
}

fn carry_out(asked: &Sprio, origin: &Origin) -> Done {
    let layout = match &asked.format {
        Some(text) => Layout::codes(text).map_err(format_error)?,
        None => default_layout(asked.long, asked.norm),
    };
    let sort = Sort::parse(asked.sort.as_deref().unwrap_or(DEFAULT_SORT)).map_err(format_error)?;
    if asked.weights {
        return output::print(&sprio::weights(&layout, !asked.no_header, &ctx(origin, origin.now)));
    }
    if let Some(user) = output::unknown_users(&asked.users).first() {
        return Err(CliError::error(1, format!("Invalid user: {user}")));
    }
    let filter = JobFilter {
        jobs: asked.jobs.clone().unwrap_or_default(),
        states: Some(vec![JobState::Pending]),
        users: output::user_names(&asked.users),
        partitions: asked.partitions.clone(),
        without_paths: true,
        without_steps: true,
        ..JobFilter::default()
    };
    let list = match ask(&Request::Jobs(filter), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    let is_named = asked.jobs.is_some() || !asked.users.is_empty();
    if list.jobs.is_empty() && is_named {
        return output::print(sprio::NONE_FOUND);
    }
    output::print(&sprio::print(&list.jobs, &layout, &sort, !asked.no_header, &ctx(origin, list.now)))
}
