//! `slotd report --host`: shows the use of the whole host over time.

use super::{Asked, ReportArgs, picture, put};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::output::{self, ctx};
use crate::commands::{Done, ask, ask_node, unexpected};
use crate::tui::plot;
use slotd_model::Timestamp;
use slotd_model::host_use::{HostSpan, HostUse};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::time::iso;
use slotd_render::{host_use, json};

/// Bars per chart.
const BARS: usize = 240;

pub fn run(args: &ReportArgs, origin: &Origin) -> Done {
    let (query, _) = Asked::of(args).query(origin, "now-1day")?;
    let from = query.since.unwrap_or_default();
    let (now, spans) = spans(from)?;
    // Times are relative to the start of this command.
    let to = query.until.unwrap_or(origin.now);
    let node = ask_node()?;
    let ctx = ctx(origin, now);
    let width = plot::width(output::columns());
    let found = HostUse::within(&spans, from, to, width.into());
    let heading = host_use::summary(&found, &node, &ctx);
    if args.svg.is_some() || args.html.is_some() {
        let charts = host_use::charts(&HostUse::within(&spans, from, to, BARS), &node);
        let (from, to) = (iso(from, &ctx.tz), iso(to, &ctx.tz));
        if let Some(path) = &args.svg {
            put(path, &picture::charts(&charts, [&from, &to])?)?;
        }
        if let Some(path) = &args.html {
            put(path, &picture::page_of_host(&heading, &charts, [&from, &to])?)?;
        }
    }
    if args.json {
        return output::print(&json::text(&host_use::json(&spans, from, to, &node)));
    }
    let charts = host_use::charts(&found, &node);
    if charts.is_empty() {
        return output::print(&format!("{heading}\n"));
    }
    let plots = plot::charts(&charts, from, to, width, !output::is_utf8(origin), &ctx);
    output::print(&format!("{heading}\n\n{plots}"))
}

/// Returns the host's use since `from`, and the daemon's time.
pub fn spans(from: Timestamp) -> Result<(Timestamp, Vec<HostSpan>), CliError> {
    match ask(&Request::HostOverTime(from), &[])?.0 {
        Answer::HostOverTime { now, spans } => Ok((now, spans)),
        other => Err(unexpected(&other)),
    }
}
