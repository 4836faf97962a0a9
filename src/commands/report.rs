//! `slotd report`: shows, by name, how much of their resources jobs used, and suggests what to
//! request next time.

pub mod host;
mod picture;

use super::output::{self, ctx};
use super::{Done, ask_for_jobs, origin, sacct};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::tui::plot;
use slotd_model::Timestamp;
use slotd_model::query::JobQuery;
use slotd_protocol::request::Request;
use slotd_render::report::{self, Report, Use};
use slotd_render::text::printable;
use slotd_render::{Ctx, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd report -S now-30days --html report.html\n  slotd report --host -S today"
)]
pub struct ReportArgs {
    /// Report jobs that ended at this time or later, in sacct's format [default: now-7days, with
    /// --host now-1day]
    #[arg(short = 'S', long, value_name = "TIME")]
    starttime: Option<String>,
    /// Report jobs that ended at this time or earlier [default: now]
    #[arg(short = 'E', long, value_name = "TIME")]
    endtime: Option<String>,
    /// Report jobs of these users
    #[arg(short = 'u', long, value_name = "USERS")]
    user: Option<String>,
    /// Report jobs with these names
    #[arg(short = 'n', long, value_name = "NAMES")]
    name: Option<String>,
    /// Report the use of the whole host over time, while jobs ran
    #[arg(long, conflicts_with_all = ["user", "name", "rows"])]
    host: bool,
    /// Show at most this many names, the most wasteful first
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    rows: usize,
    /// Plot the CPU-hours. This is the default on a terminal
    #[arg(long)]
    plot: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write an HTML page with the table and a chart to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Write the chart to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

pub fn run(args: &ReportArgs) -> Done {
    let origin = origin();
    if args.host {
        return host::run(args, &origin);
    }
    let asked = Asked::of(args);
    let (query, users) = asked.query(&origin, "now-7days")?;
    if let Some(user) = output::unknown_users(&users).first() {
        return Err(CliError::error(1, format!("Invalid user id: {user}"))
            .hint("run sacct -o user to list the users with jobs"));
    }
    let (from, until) = (query.since.unwrap_or_default(), query.until);
    let (all, now) = collected(query, &origin)?;
    let to = until.unwrap_or(now);
    let ctx = ctx(&origin, now);
    let heading = report::summary(&all, from, to, &ctx);
    if let Some(path) = &args.svg {
        put(path, &picture::svg(&all)?)?;
    }
    if let Some(path) = &args.html {
        put(path, &picture::page_of_jobs(&heading, &all, &ctx)?)?;
    }
    if args.json {
        return output::print(&json::text(&report::json(&all, from, to)));
    }
    output::print(&text(args, &heading, &all, &origin, &ctx))
}

/// The options that select jobs, in the format of `sacct`.
#[derive(Debug, Clone, Copy, Default)]
struct Asked<'a> {
    starttime: Option<&'a str>,
    endtime: Option<&'a str>,
    user: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(args: &'a ReportArgs) -> Asked<'a> {
        Asked {
            starttime: args.starttime.as_deref(),
            endtime: args.endtime.as_deref(),
            user: args.user.as_deref(),
            name: args.name.as_deref(),
        }
    }

    /// Builds the query, and returns it with the users.
    fn query(self, origin: &Origin, usual: &str) -> Result<(JobQuery, Vec<String>), CliError> {
        let options = [
            ("starttime", Some(self.starttime.unwrap_or(usual))),
            ("endtime", self.endtime),
            ("user", self.user),
            ("name", self.name),
        ];
        let words = options
            .iter()
            .filter_map(|(name, value)| Some(OsString::from(format!("--{name}={}", (*value)?))));
        let line: Vec<OsString> = [OsString::from("sacct")].into_iter().chain(words).collect();
        let read = sacct::parse(&line, origin)?;
        let query = sacct::query(&read, &read.user, &origin.host);
        Ok((JobQuery { without_paths: true, ..query }, read.user))
    }
}

/// Returns the usage of the jobs that ended within the query's period, by name, and the daemon's
/// clock.
fn collected(query: JobQuery, origin: &Origin) -> Result<(Vec<Use>, Timestamp), CliError> {
    let from = query.since.unwrap_or_default();
    let until = query.until;
    let mut found = Report::default();
    let mut now = origin.now;
    ask_for_jobs(&Request::Accounting(query), |list| {
        now = list.now;
        let is_within = |end: Timestamp| end >= from && until.is_none_or(|until| end <= until);
        let ended = list.jobs.iter().filter(|view| view.run.end.is_some_and(is_within));
        ended.for_each(|view| found.take(view, list.now));
        Ok(())
    })?;
    Ok((found.ranked(), now))
}

/// Returns the report on the jobs that ended since this time, as JSON.
pub fn since(starttime: &str) -> Result<serde_json::Value, CliError> {
    let origin = origin();
    let asked = Asked { starttime: Some(starttime), ..Asked::default() };
    let (query, _) = asked.query(&origin, starttime)?;
    let from = query.since.unwrap_or_default();
    let (all, now) = collected(query, &origin)?;
    Ok(report::json(&all, from, now))
}

fn text(args: &ReportArgs, heading: &str, all: &[Use], origin: &Origin, ctx: &Ctx) -> String {
    let mut text = format!("{heading}\n");
    if all.is_empty() {
        return text;
    }
    let shown = &all[..all.len().min(args.rows)];
    text.push_str(&report::table(shown, ctx));
    if shown.len() < all.len() {
        text.push_str(&format!(
            "{} more names not shown; use --rows {} to show them\n",
            all.len() - shown.len(),
            all.len()
        ));
    }
    if args.plot || ctx.is_terminal() {
        let bars: Vec<plot::Part> = shown.iter().map(part).collect();
        text.push_str(&format!(
            "\nCPU-hours, used of allocated\n{}",
            plot::parts(&bars, output::columns(), !output::is_utf8(origin))
        ));
    }
    let (advice, notes) = (report::advice(shown), report::notes(shown));
    if !advice.is_empty() {
        text.push_str("\nSuggested requests\n");
    } else if !notes.is_empty() {
        text.push('\n');
    }
    advice.iter().chain(&notes).for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

fn part(used: &Use) -> plot::Part {
    let name = printable(used.name.as_str().into(), true).into_owned();
    plot::Part { name, part: used.cpu_hours_used(), whole: used.cpu_hours_had() }
}

fn put(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(|e| {
        CliError::error(1, format!("cannot write {}: {e}", path.display()))
            .hint("specify a file in a directory that you can write to")
    })
}
