//! `sdiag`: what the daemon did.

pub mod args;

use super::output::{self, ctx};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::commands::pages::texts;
use crate::commands::sdiag::args::{RequestOrder, parse};
use crate::model::diagnostics::{Diagnostics, Tally};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::{json, sdiag};
use std::cmp::Reverse;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SdiagOpts>, run, page: &texts::SDIAG };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |asked| {
        let mut answer = match ask(&Request::Diagnostics { reset: asked.reset }, &[])?.0 {
            Answer::Diagnostics(answer) => answer,
            other => return Err(unexpected(&other)),
        };
        if asked.reset {
            return output::print(sdiag::RESET);
        }
        sort(&mut answer, asked.order);
        match asked.machine {
            Some(machine) => output::print_machine(&json::diagnostics(&answer), machine),
            None => output::print(&sdiag::print(&answer, &ctx(&origin, answer.now))),
        }
    })
}

/// Requests and users come sorted by number.
fn sort(answer: &mut Diagnostics, order: RequestOrder) {
    let key = |tally: &Tally| match order {
        RequestOrder::Id => Reverse(0),
        RequestOrder::Count => Reverse(tally.count),
        RequestOrder::Time => Reverse(tally.total_us),
        RequestOrder::MeanTime => Reverse(tally.mean_us()),
    };
    answer.requests.sort_by_key(|request| key(&request.tally));
    answer.users.sort_by_key(|user| key(&user.tally));
}
