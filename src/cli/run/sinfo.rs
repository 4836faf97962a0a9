//! `sinfo`: the host and its partitions.

use super::output::{self, ctx, format_error};
use super::{Done, ask, origin, parsed, unexpected};
use crate::cli::origin::Origin;
use crate::cli::sinfo::{Sinfo, SinfoFormat, parse};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::json;
use crate::render::sinfo::{Layout, Options, View, helpformat, print, state_list_matches};
use crate::render::time::date_line;
use std::cmp::Ordering;
use std::ffi::OsString;
use std::time::Duration;

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sinfo| {
        if sinfo.help_format {
            return output::print(&helpformat());
        }
        let Some(secs) = sinfo.iterate_secs else { return once(&sinfo, &origin) };
        loop {
            once(&sinfo, &origin)?;
            output::print("\n")?;
            // The pause that `-i` asks for.
            std::thread::sleep(Duration::from_secs(secs.max(1)));
        }
    })
}

fn once(sinfo: &Sinfo, origin: &Origin) -> Done {
    let node = match ask(&Request::Node, &[])?.0 {
        Answer::Node(node) => node,
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, node.now);
    output::units(&mut ctx, None, sinfo.no_convert);
    if let Some(machine) = sinfo.machine {
        return output::print_machine(&json::nodes(&node, &ctx), machine);
    }
    let view = View {
        node: sinfo.by_node,
        long: sinfo.format == SinfoFormat::Long,
        summarize: sinfo.format == SinfoFormat::Summary,
        reasons: sinfo.format == SinfoFormat::Reasons,
    };
    let layout = match &sinfo.format {
        SinfoFormat::Percent(text) => Layout::parse(text, sinfo.by_node).map_err(format_error)?,
        SinfoFormat::Fields(text) => Layout::long(text).map_err(format_error)?,
        SinfoFormat::Default | SinfoFormat::Long | SinfoFormat::Summary | SinfoFormat::Reasons => {
            Layout::of(view, ctx.face, &node.host.name)
        }
    };
    let mut options = Options::new(layout);
    options.header = !sinfo.no_header;
    options.partitions = (!sinfo.partitions.is_empty()).then(|| sinfo.partitions.clone());
    options.by_partition = match sinfo.sort.as_deref().map(|sort| (sort.contains('P'), sort.contains("-P"))) {
        Some((_, true)) => Some(Ordering::Greater),
        Some((true, false)) => Some(Ordering::Less),
        _ => None,
    };
    let named = sinfo.nodes.is_empty() || sinfo.nodes.contains(&node.host.name);
    let in_state =
        sinfo.states.is_empty() || state_list_matches(&sinfo.states.join(","), &node).map_err(format_error)?;
    options.shows_node = named && in_state && !sinfo.dead;
    let mut text = String::new();
    if sinfo.iterate_secs.is_some() || (sinfo.long && !sinfo.no_header && ctx.face == crate::render::Face::Slurm) {
        text.push_str(&date_line(&ctx));
    }
    text.push_str(&print(&node, &options, &ctx));
    output::print(&text)
}
