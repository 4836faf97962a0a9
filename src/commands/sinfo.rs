//! `sinfo`: the host and its partitions.

pub mod args;

use super::output::{self, ctx, dated, face, format_error};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sinfo::args::{Sinfo, SinfoFormat, parse};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::json;
use crate::render::sinfo::{Layout, Options, View, helpformat, print, state_list_matches};
use std::cmp::Ordering;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SinfoOpts>, run, page: &texts::SINFO };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sinfo| {
        if sinfo.help_format {
            return output::print(&helpformat());
        }
        let layout = layout(&sinfo, &origin)?;
        output::repeat("sinfo", sinfo.iterate_secs, || once(&sinfo, &layout, &origin))
    })
}

fn layout(sinfo: &Sinfo, origin: &Origin) -> Result<Layout, CliError> {
    let view = View {
        node: sinfo.by_node,
        long: sinfo.format == SinfoFormat::Long,
        summarize: sinfo.format == SinfoFormat::Summary,
        reasons: sinfo.format == SinfoFormat::Reasons,
    };
    match &sinfo.format {
        // Slurm puts no mark before this one (golden J-13).
        SinfoFormat::Percent(text) => Layout::parse(text, sinfo.by_node)
            .map_err(|bad| CliError::new(Mark::Bare, 1, bad.message).and(Mark::Bare, bad.hint)),
        SinfoFormat::Fields(text) => Layout::long(text).map_err(format_error),
        SinfoFormat::Default | SinfoFormat::Long | SinfoFormat::Summary | SinfoFormat::Reasons => {
            Ok(Layout::of(view, face(origin), &origin.host))
        }
    }
}

fn once(sinfo: &Sinfo, layout: &Layout, origin: &Origin) -> Done {
    let node = match ask(&Request::Node, &[])?.0 {
        Answer::Node(node) => node,
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, node.now);
    output::units(&mut ctx, None, sinfo.no_convert);
    if let Some(machine) = sinfo.machine {
        return output::print_machine(&json::nodes(&node, &ctx), machine);
    }
    let mut options = Options::new(layout.clone());
    options.header = !sinfo.no_header;
    options.partitions = (!sinfo.partitions.is_empty()).then(|| sinfo.partitions.clone());
    options.by_partition = sinfo.sort.as_deref().and_then(by_partition);
    let named = sinfo.nodes.is_empty() || sinfo.nodes.iter().any(|name| output::is_node(name, &node.host.name));
    let in_state =
        sinfo.states.is_empty() || state_list_matches(&sinfo.states.join(","), &node).map_err(format_error)?;
    options.shows_node = named && in_state && !sinfo.dead;
    let mut text = if is_dated(sinfo, layout) { dated(&ctx) } else { String::new() };
    text.push_str(&print(&node, &options, &ctx));
    output::print(&text)
}

/// `-S`: of all columns only the partition's name tells rows apart; `-` before it turns the order round.
fn by_partition(sort: &str) -> Option<Ordering> {
    let at = sort.find(['P', 'R'])?;
    Some(if sort[..at].ends_with('-') { Ordering::Greater } else { Ordering::Less })
}

/// Whether a line with the date goes above the table: Slurm puts one above its own with `-l`, and above any with `-i`.
fn is_dated(sinfo: &Sinfo, layout: &Layout) -> bool {
    let of_slurm = match layout {
        // It brings its own.
        Layout::Lines { dated: true, .. } => return false,
        Layout::Table { .. } => false,
        Layout::Lines { .. } | Layout::Reasons => true,
    };
    !sinfo.no_header && (sinfo.iterate_secs.is_some() || (sinfo.long && of_slurm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sort_by_partition_is_found_among_other_letters() {
        for (sort, order) in [
            ("P", Some(Ordering::Less)),
            ("-P", Some(Ordering::Greater)),
            ("t,-P", Some(Ordering::Greater)),
            ("-t,P", Some(Ordering::Less)),
            ("+R", Some(Ordering::Less)),
            ("N,t", None),
        ] {
            assert_eq!(by_partition(sort), order, "{sort}");
        }
    }
}
