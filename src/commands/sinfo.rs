//! `sinfo`: the host and its partitions.

pub mod args;

use super::output::{self, ctx, face, format_error, marked_format_error};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sinfo::args::{Sinfo, SinfoFormat, parse};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::field::helpformat;
use crate::render::json;
use crate::render::sinfo::{self as render, Layout, Options, Sort, View, print, state_list_matches};
use crate::render::time::date_line;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SinfoOpts>, run, page: &texts::SINFO };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sinfo| {
        if sinfo.help_format {
            return output::print(&helpformat::<render::Sinfo>());
        }
        let table = Table::of(&sinfo, &origin)?;
        output::repeat("sinfo", sinfo.iterate_secs, || once(&sinfo, &table, &origin))
    })
}

/// How the lines are to look.
struct Table {
    /// `None`: why nodes are down, which is a header.
    layout: Option<Layout>,
    one_line: bool,
    sort: Sort,
}

impl Table {
    fn of(sinfo: &Sinfo, origin: &Origin) -> Result<Self, CliError> {
        let view = View {
            node: sinfo.by_node,
            long: sinfo.format == SinfoFormat::Long,
            summarize: sinfo.format == SinfoFormat::Summary,
        };
        let (layout, one_line) = match &sinfo.format {
            // Slurm puts no mark before this one.
            SinfoFormat::Percent(text) => {
                let layout = render::parse(text).map_err(|bad| marked_format_error(Mark::Bare, bad))?;
                (Some(layout), sinfo.by_node)
            }
            SinfoFormat::Fields(text) => (Some(render::long(text).map_err(format_error)?), sinfo.by_node),
            SinfoFormat::Reasons => (None, false),
            SinfoFormat::Default | SinfoFormat::Long | SinfoFormat::Summary => {
                let face = face(origin);
                (Some(view.layout(face, &origin.host)), view.is_one_line(face))
            }
        };
        // `#` asks for the order of the configuration, in which the partitions stand anyhow.
        let keys = sinfo.sort.iter().flat_map(|text| text.split(',')).filter(|key| !key.trim_start().starts_with('#'));
        let sort = Sort::parse(&keys.collect::<Vec<_>>().join(",")).map_err(format_error)?;
        Ok(Table { layout, one_line, sort })
    }

    /// Whether a line with the date goes above it: Slurm puts one above its own with `-l`, and above any with `-i`.
    fn is_dated(&self, sinfo: &Sinfo) -> bool {
        // Its own views bring theirs.
        let brings_one = self.layout.as_ref().is_some_and(Layout::is_dated);
        let is_own = self.layout.as_ref().is_some_and(Layout::is_barred);
        !sinfo.no_header && !brings_one && (sinfo.iterate_secs.is_some() || (sinfo.long && !is_own))
    }
}

fn once(sinfo: &Sinfo, table: &Table, origin: &Origin) -> Done {
    let node = match ask(&Request::Node, &[])?.0 {
        Answer::Node(node) => node,
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, node.now);
    output::units(&mut ctx, None, sinfo.no_convert);
    if let Some(machine) = sinfo.machine {
        return output::print_machine(&json::nodes(&node, &ctx), machine);
    }
    let in_state =
        sinfo.states.is_empty() || state_list_matches(&sinfo.states.join(","), &node).map_err(format_error)?;
    let named = sinfo.nodes.is_empty() || sinfo.nodes.iter().any(|name| output::is_node(name, &node.host.name));
    let mut text = if table.is_dated(sinfo) { date_line(&ctx) } else { String::new() };
    match &table.layout {
        None if sinfo.no_header => {}
        None => text.push_str(render::REASONS),
        Some(layout) => {
            let options = Options {
                header: !sinfo.no_header,
                one_line: table.one_line,
                partitions: (!sinfo.partitions.is_empty()).then(|| sinfo.partitions.clone()),
                sort: table.sort.clone(),
                shows_node: named && in_state && !sinfo.dead,
                ..Options::new(layout.clone())
            };
            text.push_str(&print(&node, &options, &ctx));
        }
    }
    output::print(&text)
}
