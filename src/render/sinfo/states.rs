//! The states of the host, and `-t/--states`, which filters by state.

use crate::field::FormatError;
use crate::show::of_node;
use slotd_model::reservation::Flag;
use slotd_model::view::NodeView;

/// The state of the host, in Slurm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Idle,
    /// Some of its CPUs, memory or GPUs are allocated.
    Mixed,
    /// All CPUs are allocated, or an exclusive job holds the host.
    Allocated,
    /// It accepts no jobs, and none are running.
    Drained,
    /// It accepts no jobs, and some are running.
    Draining,
    /// A reservation has the whole host, and no jobs are running.
    Reserved,
    /// So has one for maintenance.
    Maint,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Idle,
        State::Mixed,
        State::Allocated,
        State::Drained,
        State::Draining,
        State::Reserved,
        State::Maint,
    ];

    pub fn of(node: &NodeView) -> Self {
        match (State::base(node), State::takes_none(node)) {
            (State::Idle, false) => State::of_reservation(node).unwrap_or(State::Idle),
            (base, false) => base,
            (State::Idle, true) => State::Drained,
            (_, true) => State::Draining,
        }
    }

    fn of_reservation(node: &NodeView) -> Option<State> {
        let reservation = of_node(node)?;
        Some(if reservation.has(Flag::Maint) { State::Maint } else { State::Reserved })
    }

    /// Returns the state that follows from the running jobs, ignoring drains.
    pub fn base(node: &NodeView) -> Self {
        let taken = &node.allocated;
        if node.exclusive || (taken.cpus > 0 && taken.cpus as usize >= node.host.cpu_ids.len()) {
            State::Allocated
        } else if taken.cpus > 0 || taken.mem_mb > 0 || taken.gpus > 0 {
            State::Mixed
        } else {
            State::Idle
        }
    }

    /// Returns whether the host accepts no jobs. A host with only some parts drained accepts jobs.
    pub(crate) fn takes_none(node: &NodeView) -> bool {
        node.drained.is_some() || node.host.open_cpus() == 0
    }

    /// Returns the state with its flag: `mixed+drain`.
    pub fn complete(node: &NodeView) -> String {
        let reserved = State::of_reservation(node).map_or("", |state| match state {
            State::Maint => "+maint",
            _ => "+reserved",
        });
        let flag = if State::takes_none(node) { "+drain" } else { reserved };
        format!("{}{flag}", State::base(node).name())
    }

    /// Returns the name for `%T`.
    pub const fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mixed",
            State::Allocated => "allocated",
            State::Drained => "drained",
            State::Draining => "draining",
            State::Reserved => "reserved",
            State::Maint => "maint",
        }
    }

    /// Returns the abbreviation for `%t`.
    pub const fn code(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mix",
            State::Allocated => "alloc",
            State::Drained => "drain",
            State::Draining => "drng",
            State::Reserved => "resv",
            State::Maint => "maint",
        }
    }

    /// Returns whether this word of `-t` matches the state. `drain` matches both states that accept
    /// no jobs.
    fn is_named(self, word: &str) -> bool {
        word == self.name() || (word == "drain" && matches!(self, State::Drained | State::Draining))
    }
}

/// The node states of Slurm. The host is only ever idle, mixed, allocated, drained or reserved.
const STATES: [&str; 27] = [
    "unknown",
    "down",
    "idle",
    "allocated",
    "mixed",
    "future",
    "drain",
    "drained",
    "draining",
    "no_respond",
    "reserved",
    "perfctrs",
    "cloud",
    "completing",
    "powering_down",
    "powered_down",
    "power_down",
    "powering_up",
    "power_up",
    "fail",
    "failing",
    "maint",
    "reboot",
    "reboot_requested",
    "reboot_issued",
    "planned",
    "blocked",
];

/// One word of `-t/--states`: all of these states must apply. Empty for any state (`all`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States(Vec<&'static str>);

impl States {
    /// Parses names or abbreviated names joined by `&`.
    ///
    /// # Errors
    /// Fails on a word that is not a Slurm state.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let words = text.split('&').map(|word| word.trim().to_ascii_lowercase());
        let names = words.filter(|word| word != "all").map(|word| {
            STATES.iter().find(|state| state.starts_with(&word)).copied().ok_or_else(|| {
                FormatError {
                    message: format!("Bad state string: \"{text}\""),
                    names: STATES.to_vec(),
                    word,
                    hint: format!("valid states: {}", STATES.join(",")),
                }
            })
        });
        names.collect::<Result<_, _>>().map(States)
    }

    pub fn hold(&self, node: &NodeView) -> bool {
        self.0.iter().all(|name| State::of(node).is_named(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::node;
    use proptest::prelude::*;
    use slotd_model::node::NodeReason;
    use slotd_model::{Timestamp, Tres};

    #[test]
    fn a_node_has_one_state_and_names_may_be_abbreviated() {
        let mixed_node =
            || NodeView { allocated: Tres { cpus: 1, mem_mb: 100, ..Tres::ZERO }, ..node(0) };
        let mixed = mixed_node();
        for (text, of_idle, of_mixed) in [
            ("idle", true, false),
            ("MIX", false, true),
            ("alloc", false, false),
            ("drain", false, false),
            ("idle&drain", false, false),
            ("idle&all", true, false),
            ("all", true, true),
        ] {
            let states = States::parse(text).unwrap();
            assert_eq!((states.hold(&node(0)), states.hold(&mixed)), (of_idle, of_mixed), "{text}");
        }
        let reason = NodeReason {
            text: "no space".to_owned(),
            since: Timestamp(0),
            user: "lab".to_owned(),
            uid: 1001,
        };
        for (text, idle, mixed) in [
            ("drain", true, true),
            ("drained", true, false),
            ("draining", false, true),
            ("idle", false, false),
        ] {
            let states = States::parse(text).unwrap();
            let drained = |node: NodeView| NodeView { drained: Some(reason.clone()), ..node };
            assert_eq!(
                (states.hold(&drained(node(0))), states.hold(&drained(mixed_node()))),
                (idle, mixed),
                "{text}"
            );
        }
        let error = States::parse("idle&bogus").unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.word.as_str()),
            ("Bad state string: \"idle&bogus\"", "bogus")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = States::parse(&text);
        }
    }
}
