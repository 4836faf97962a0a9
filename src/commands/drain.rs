//! `slotd drain` and `slotd resume`: take the node, or some of its CPUs and GPUs, out of use and
//! back, as a short form of `scontrol update NodeName=…`.

use super::{Done, ask, origin, output, unexpected};
use crate::args::error::CliError;
use slotd_model::node::{NodeOrder, NodeParts, NodeReason, Outage, ranges};
use slotd_parse::error::shown;
use slotd_parse::node_parts;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::text::printable;
use std::borrow::Cow;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd drain a new fan      the whole host\n  slotd drain gpu:1 too hot  one GPU"
)]
pub struct DrainArgs {
    /// The CPUs or GPUs (gpu:0,2 or cpu:4-7) instead of the whole host, and the reason
    #[arg(value_name = "[gpu:LIST] [cpu:LIST] REASON")]
    words: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd resume\n  slotd resume gpu:1")]
pub struct ResumeArgs {
    /// The CPUs or GPUs (gpu:0,2 or cpu:4-7) instead of the whole host
    #[arg(value_name = "[gpu:LIST] [cpu:LIST]")]
    words: Vec<String>,
}

pub fn drain(args: &DrainArgs) -> Done {
    let host = origin().host;
    let (parts, reason) = parts(&args.words, &host)?;
    if !reason.is_empty() && reason.concat().trim().is_empty() {
        return Err(CliError::error(2, "the reason is empty")
            .hint("`slotd drain` without arguments takes the host out of use"));
    }
    let reason =
        if reason.is_empty() { format!("drained by {}", *origin().user) } else { reason.join(" ") };
    carry_out(NodeOrder::Drain { reason, parts })
}

pub fn resume(args: &ResumeArgs) -> Done {
    let (parts, others) = parts(&args.words, &origin().host)?;
    match others.first() {
        Some(word) => Err(CliError::error(2, format!("not a part of the node: {}", shown(word)))
            .hint("`slotd resume` for the whole host, gpu:0,2 for GPUs, cpu:4-7 for CPUs")),
        None => carry_out(NodeOrder::Resume { parts }),
    }
}

/// Sends the order, then prints its effect and everything that is out of use now.
fn carry_out(order: NodeOrder) -> Done {
    match ask(&Request::UpdateNode(order.clone()), &[])?.0 {
        Answer::SiteChanged(remarks) => {
            remarks.iter().for_each(|remark| report!("slotd: warning: {remark}"))
        }
        Answer::Refused(why) => return Err(CliError::error(1, why.to_string())),
        other => return Err(unexpected(&other)),
    }
    match ask(&Request::Node, &[])?.0 {
        Answer::Node(node) => output::print(&report(&order, node.drained.as_ref(), &node.outages)),
        other => Err(unexpected(&other)),
    }
}

/// Returns a reason with its control characters escaped.
fn escaped(reason: &str) -> Cow<'_, str> {
    printable(reason.into(), true)
}

/// Describes the effect of an order, and everything that is out of use now.
fn report(order: &NodeOrder, drained: Option<&NodeReason>, outages: &[Outage]) -> String {
    let what = |parts: &NodeParts| {
        if parts.is_empty() { "the host".to_owned() } else { parts.to_string() }
    };
    let mut text = match order {
        NodeOrder::Drain { reason, parts } => {
            format!("drained {}: {}\n", what(parts), escaped(reason))
        }
        NodeOrder::Resume { parts } => format!("resumed {}\n", what(parts)),
    };
    if matches!(order, NodeOrder::Drain { parts, .. } if parts.is_empty()) {
        text += "running jobs continue; no job starts until `slotd resume`\n";
    }
    if let Some(reason) = drained {
        text += &format!("out of use: the whole host ({})\n", escaped(&reason.text));
    }
    for outage in outages {
        let shown = if outage.parts.is_empty() {
            escaped(&outage.reason.text).into_owned()
        } else {
            format!("{} ({})", outage.parts, escaped(&outage.reason.text))
        };
        text += &format!("out of use: {shown}\n");
    }
    if drained.is_none() && outages.is_empty() {
        text += "nothing is out of use\n";
    }
    text
}

/// Splits the words into the parts of the node, which come first, and the reason.
///
/// # Errors
/// Fails if a word looks like a part of the node but is misspelled: as a reason, it would take the
/// whole host out of use. A quoted reason of several words is never mistaken for a part.
fn parts<'a>(words: &'a [String], host: &str) -> Result<(NodeParts, &'a [String]), CliError> {
    let mut parts = NodeParts::default();
    let mut rest = words;
    while let Some((word, others)) = rest.split_first() {
        let (found, forms) = match word.split_once(':') {
            Some(("gpu", _)) => {
                (node_parts::gpus(word).map(|ids| parts.gpus.extend(ids)), node_parts::GPUS)
            }
            Some(("cpu", list)) => {
                (node_parts::numbers(list).map(|ids| parts.cpus.extend(ids)), "cpu:4-7")
            }
            _ => break,
        };
        if found.is_none() {
            return Err(
                CliError::error(2, format!("not a part of the node: {}", shown(word))).hint(forms)
            );
        }
        rest = others;
    }
    for (at, word) in rest.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| &rest[before]);
        if let Some(meant) = target(word, before, at == 0, host) {
            return Err(CliError::error(
                2,
                format!("a part of the node, or a reason? {}", shown(word)),
            )
            .hint(format!("{meant}; quote a reason that contains this word: 'see {word}'")));
        }
    }
    Ok((parts, rest))
}

/// Returns how a word that looks like a target should be spelled, or `None` if it belongs to a
/// reason.
fn target(word: &str, before: &str, is_first: bool, host: &str) -> Option<String> {
    const CPUS: [&str; 4] = ["cpu", "cpus", "core", "cores"];
    const GPUS: [&str; 3] = ["gpu", "gpus", "gres"];
    let lower = word.to_ascii_lowercase();
    let is = |names: &[&str], word: &str| names.contains(&word);
    let numbers = |list: &str| {
        let digits = list.trim_start_matches(|c: char| !c.is_ascii_digit());
        node_parts::numbers(digits).map_or_else(|| "0-1".to_owned(), |ids| ranges(&ids))
    };
    let spelled = |name: &str, list: &str| match () {
        () if is(&CPUS, name) => Some(format!("CPUs are written cpu:{}", numbers(list))),
        () if is(&GPUS, name) => Some(format!("GPUs are written gpu:{}", numbers(list))),
        () => None,
    };
    if let Some((name, list)) = lower.split_once([':', '=']) {
        let is_word =
            |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c));
        let is_pair = lower[name.len()..].starts_with('=') && is_word(name);
        let host_or_part = || {
            "`slotd drain REASON` takes the whole host; write its parts as cpu:4-7 and gpu:0"
                .to_owned()
        };
        return spelled(name.trim_start_matches("gres/"), list)
            .or_else(|| is_pair.then(host_or_part));
    }
    let list_at = lower.find(|c: char| c.is_ascii_digit()).unwrap_or(lower.len());
    let (name, list) = lower.split_at(list_at);
    let is_list = node_parts::numbers(list).is_some();
    match name {
        // `cpu 0-3`
        "" if is_list => spelled(&before.to_ascii_lowercase(), list)
            .or_else(|| is_first.then(|| format!("parts are written cpu:{list} or gpu:{list}"))),
        // `cpu0-3`
        name if is_list => spelled(name.trim_end_matches(['-', '_', '[']), list),
        name if is_first => spelled(name, "").or_else(|| {
            output::is_node(word, host).then(|| {
                format!("{word} is this host, which `slotd drain REASON` takes out of use")
            })
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_before_the_reason() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |text: &str| {
            parts(&words(text), "lab").map(|(parts, rest)| format!("{parts}|{}", rest.join(" ")))
        };
        assert_eq!(
            read("gpu:0,2 cpu:4-7 a new fan").ok().as_deref(),
            Some("CPU 4-7, GPU 0,2|a new fan")
        );
        for reason in [
            "a new gpu",
            "dust",
            "ticket 17",
            "too hot: 95C",
            "lab closed",
            "rack-2 moves",
            "http://a/b?c=1",
        ] {
            let is_target = reason == "lab closed";
            assert_eq!(read(reason).ok(), (!is_target).then(|| format!("|{reason}")), "{reason}");
        }
        for wrong in ["gpu:x", "cpu:", "cpu:3-1"] {
            let error = read(wrong).expect_err(wrong);
            assert_eq!(error.lines[0].1, format!("not a part of the node: {wrong}"));
        }
    }

    #[test]
    fn words_that_look_like_a_target_are_refused_with_the_right_spelling() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (text, word, meant) in [
            ("CPUs=0-1", "CPUs=0-1", "cpu:0-1"),
            ("cpus:0-1 dust", "cpus:0-1", "cpu:0-1"),
            ("CPU:3", "CPU:3", "cpu:3"),
            ("cpu=0,2", "cpu=0,2", "cpu:0,2"),
            ("cpu0-3", "cpu0-3", "cpu:0-3"),
            ("cpu 0-1 dust", "cpu", "cpu:0-1"),
            ("a cpu 0-1", "0-1", "cpu:0-1"),
            ("GPU:1 hot", "GPU:1", "gpu:1"),
            ("gpus:1", "gpus:1", "gpu:1"),
            ("Gres=gpu:1", "Gres=gpu:1", "gpu:1"),
            ("gres/gpu:1", "gres/gpu:1", "gpu:1"),
            ("gpu1", "gpu1", "gpu:1"),
            ("gpu too hot", "gpu", "gpu:0-1"),
            ("0-1", "0-1", "cpu:0-1 or gpu:0-1"),
            ("0-1 dust", "0-1", "cpu:0-1 or gpu:0-1"),
            ("gpu:0 CPUs=0-1", "CPUs=0-1", "cpu:0-1"),
            ("see ticket gpu:1", "gpu:1", "gpu:1"),
            ("NodeName=lab State=DRAIN Reason=x", "NodeName=lab", "whole host"),
            ("lab", "lab", "this host"),
            ("localhost new fan", "localhost", "this host"),
        ] {
            let error = parts(&words(text), "lab").expect_err(text);
            let printed = error.text("slotd");
            let first = format!("slotd: error: a part of the node, or a reason? {word}\n");
            assert!(printed.starts_with(&first) && printed.contains(meant), "{text}: {printed}");
        }
        // A quoted reason is a single word that contains blanks.
        let quoted = ["see CPUs=0-1 and gpu:1".to_owned()];
        assert!(
            parts(&quoted, "lab").is_ok_and(|(found, rest)| found.is_empty() && rest == quoted)
        );
    }

    #[test]
    fn report_names_the_change_and_all_outages() {
        let by = |text: &str| NodeReason {
            text: text.to_owned(),
            since: Default::default(),
            user: "a".into(),
            uid: 1,
        };
        let outage = Outage {
            parts: NodeParts { cpus: [2, 3].into(), ..NodeParts::default() },
            reason: by("dust"),
        };
        let resume = NodeOrder::Resume { parts: NodeParts::default() };
        assert_eq!(report(&resume, None, &[]), "resumed the host\nnothing is out of use\n");
        let left = report(&resume, None, std::slice::from_ref(&outage));
        assert_eq!(left, "resumed the host\nout of use: CPU 2-3 (dust)\n");
        let drain = NodeOrder::Drain { reason: "dust".into(), parts: outage.parts.clone() };
        let both = report(&drain, Some(&by("a new fan")), &[outage]);
        let lines = "drained CPU 2-3: dust\nout of use: the whole host (a new fan)\nout of use: CPU 2-3 (dust)\n";
        assert_eq!(both, lines);
    }

    #[test]
    fn a_reason_cannot_control_the_terminal() {
        let text = "hot\u{1b}[2J\nout of use: nothing".to_owned();
        let reason = NodeReason { text, since: Default::default(), user: "a".into(), uid: 1 };
        let whole = Outage { parts: NodeParts::default(), reason: reason.clone() };
        let gpu = Outage {
            parts: NodeParts { gpus: [1].into(), ..whole.parts.clone() },
            ..whole.clone()
        };
        let drain = NodeOrder::Drain { reason: reason.text.clone(), parts: NodeParts::default() };
        let text = report(&drain, Some(&reason), &[whole, gpu]);
        assert_eq!(text.matches("hot\\033[2J\\012out of use").count(), 4, "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() == 5, "{text}");
    }
}
