//! The states of the host, and `-t/--states`, which asks for some.

use crate::model::view::NodeView;
use crate::render::field::FormatError;

/// What the host is doing, in Slurm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Idle,
    /// Some of its CPUs are taken, or some of its memory or GPUs.
    Mixed,
    /// All CPUs are taken, or an exclusive job has the host.
    Allocated,
}

impl State {
    pub fn of(node: &NodeView) -> Self {
        let taken = &node.allocated;
        if node.exclusive || (taken.cpus > 0 && taken.cpus as usize >= node.host.cpu_ids.len()) {
            State::Allocated
        } else if taken.cpus > 0 || taken.mem_mb > 0 || taken.gpus > 0 {
            State::Mixed
        } else {
            State::Idle
        }
    }

    /// `%T`
    pub const fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mixed",
            State::Allocated => "allocated",
        }
    }

    /// `%t`
    pub const fn code(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mix",
            State::Allocated => "alloc",
        }
    }
}

/// The states of nodes that Slurm knows. The one host is only ever idle, allocated or mixed.
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

/// A word of `-t/--states`: states that the node must have all of. None: any (`all`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States(Vec<&'static str>);

impl States {
    /// Names, or beginnings of names, joined by `&`.
    ///
    /// # Errors
    /// A word that is no state of Slurm's.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let words = text.split('&').map(|word| word.trim().to_ascii_lowercase());
        let names = words.filter(|word| word != "all").map(|word| {
            STATES.iter().find(|state| state.starts_with(&word)).copied().ok_or_else(|| FormatError {
                message: format!("Bad state string: \"{text}\""),
                names: STATES.to_vec(),
                word,
                hint: format!("valid states: {}", STATES.join(",")),
            })
        });
        names.collect::<Result<_, _>>().map(States)
    }

    pub fn hold(&self, node: &NodeView) -> bool {
        self.0.iter().all(|name| *name == State::of(node).name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tres;
    use crate::render::fixture::node;
    use proptest::prelude::*;

    #[test]
    fn a_node_has_one_state_and_words_may_be_begun() {
        let mixed = NodeView { allocated: Tres { cpus: 1, mem_mb: 100, gpus: 0 }, ..node(0) };
        for (text, idle_node, mixed_node) in [
            ("idle", true, false),
            ("MIX", false, true),
            ("alloc", false, false),
            ("drain", false, false),
            ("idle&drain", false, false),
            ("idle&all", true, false),
            ("all", true, true),
        ] {
            let states = States::parse(text).unwrap();
            assert_eq!((states.hold(&node(0)), states.hold(&mixed)), (idle_node, mixed_node), "{text}");
        }
        let error = States::parse("idle&bogus").unwrap_err();
        assert_eq!((error.message.as_str(), error.word.as_str()), ("Bad state string: \"idle&bogus\"", "bogus"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = States::parse(&text);
        }
    }
}
