//! `slotd drain` and `slotd resume`: the node, or some of its CPUs and GPUs, out of use and back, in fewer words than
//! `scontrol update NodeName=…` takes.

use super::{Done, ask, origin, unexpected};
use crate::args::error::CliError;
use crate::model::node::{NodeOrder, NodeParts};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::spec::error::shown;
use crate::spec::node_parts;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd drain a new fan      the whole host\n  slotd drain gpu:1 too hot  one GPU"
)]
pub struct DrainArgs {
    /// What goes out of use, if not all of the host (gpu:0,2 or cpu:4-7), and why
    #[arg(value_name = "[gpu:LIST] [cpu:LIST] REASON")]
    words: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd resume\n  slotd resume gpu:1")]
pub struct ResumeArgs {
    /// What is used again, if not the host as a whole: gpu:0,2 or cpu:4-7
    #[arg(value_name = "[gpu:LIST] [cpu:LIST]")]
    words: Vec<String>,
}

pub fn drain(args: &DrainArgs) -> Done {
    let (parts, reason) = parts(&args.words)?;
    if !reason.is_empty() && reason.concat().trim().is_empty() {
        return Err(CliError::error(2, "the reason is empty")
            .hint("`slotd drain` alone takes the host out of use"));
    }
    let reason = match reason.is_empty() {
        true => format!("drained by {}", *origin().user),
        false => reason.join(" "),
    };
    carry_out(NodeOrder::Drain { reason, parts })
}

pub fn resume(args: &ResumeArgs) -> Done {
    let (parts, others) = parts(&args.words)?;
    match others.first() {
        Some(word) => Err(CliError::error(2, format!("no part of the node: {}", shown(word)))
            .hint("`slotd resume` for the host as a whole, gpu:0,2 for GPUs, cpu:4-7 for CPUs")),
        None => carry_out(NodeOrder::Resume { parts }),
    }
}

fn carry_out(order: NodeOrder) -> Done {
    match ask(&Request::UpdateNode(order), &[])?.0 {
        Answer::SiteChanged(remarks) => {
            remarks.iter().for_each(|remark| eprintln!("slotd: warning: {remark}"));
            Ok(0)
        }
        Answer::Refused(why) => Err(CliError::error(1, why.to_string())),
        other => Err(unexpected(&other)),
    }
}

/// The parts that come first, and the words after them.
fn parts(words: &[String]) -> Result<(NodeParts, &[String]), CliError> {
    let mut parts = NodeParts::default();
    for (at, word) in words.iter().enumerate() {
        let (found, forms) = match word.split_once(':') {
            Some(("gpu", _)) => {
                (node_parts::gpus(word).map(|ids| parts.gpus.extend(ids)), node_parts::GPUS)
            }
            Some(("cpu", list)) => {
                (node_parts::numbers(list).map(|ids| parts.cpus.extend(ids)), "cpu:4-7")
            }
            _ => return Ok((parts, &words[at..])),
        };
        if found.is_none() {
            return Err(
                CliError::error(2, format!("no part of the node: {}", shown(word))).hint(forms)
            );
        }
    }
    Ok((parts, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_before_the_reason() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |text: &str| {
            parts(&words(text)).map(|(parts, rest)| format!("{parts}|{}", rest.join(" ")))
        };
        assert_eq!(
            read("gpu:0,2 cpu:4-7 a new fan").ok().as_deref(),
            Some("CPU 4-7, GPU 0,2|a new fan")
        );
        assert_eq!(read("see ticket gpu:1").ok().as_deref(), Some("|see ticket gpu:1"));
        for wrong in ["gpu:x", "cpu:", "cpu:3-1"] {
            let error = read(wrong).expect_err(wrong);
            assert_eq!(error.lines[0].1, format!("no part of the node: {wrong}"));
        }
    }
}
