//! Colours of states, for terminals that support colours.

use slotd_model::{JobState, Outcome};
use std::fmt::Write as _;

/// The meaning of a state for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// No meaning: printed like other text.
    Plain,
    /// Running, completed or available.
    Good,
    /// Waiting or full.
    Waiting,
    /// Failed or unavailable.
    Bad,
    /// Cancelled.
    Withdrawn,
}

impl Tone {
    fn of_job(state: JobState) -> Tone {
        match state {
            JobState::Running => Tone::Good,
            JobState::Pending | JobState::Suspended | JobState::Completing => Tone::Waiting,
            JobState::Ended(end) => match end.outcome() {
                Outcome::Success => Tone::Good,
                Outcome::Failure => Tone::Bad,
                Outcome::Cancelled => Tone::Withdrawn,
            },
        }
    }

    /// Returns the tone of a cell with a job's state: its name or code, optionally followed by more
    /// words (`CANCELLED by 1000`).
    pub(crate) fn of_job_cell(cell: &str) -> Tone {
        let word = cell.split(' ').next().unwrap_or_default();
        let state =
            JobState::ALL.into_iter().find(|state| state.name() == word || state.code() == word);
        state.map_or(Tone::Plain, Tone::of_job)
    }

    /// Returns the tone of a cell with the state of a node, as sinfo prints it, or of a partition.
    /// Anything that accepts no jobs is bad.
    pub(crate) fn of_node_cell(cell: &str) -> Tone {
        match cell {
            "idle" | "mixed" | "mix" => Tone::Good,
            "allocated" | "alloc" => Tone::Waiting,
            "up" | "n/a" => Tone::Plain,
            _ => Tone::Bad,
        }
    }

    /// Calls `write` and colours the text that it writes.
    pub(crate) fn paint(self, out: &mut String, write: impl FnOnce(&mut String)) {
        // The first eight colours of ECMA-48: every terminal has them, as configured by the user.
        let colour = match self {
            Tone::Plain => return write(out),
            Tone::Bad => 31,
            Tone::Good => 32,
            Tone::Waiting => 33,
            Tone::Withdrawn => 35,
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "\u{1b}[{colour}m");
        write(out);
        out.push_str("\u{1b}[0m");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_cell_is_recognized_by_name_or_code() {
        assert_eq!(Tone::of_job_cell("R"), Tone::Good);
        assert_eq!(Tone::of_job_cell("CANCELLED by 1000"), Tone::Withdrawn);
        assert_eq!(Tone::of_job_cell("OUT_OF_MEMORY"), Tone::Bad);
        assert_eq!(Tone::of_job_cell("running"), Tone::Plain);
        assert_eq!(Tone::of_node_cell("mixed"), Tone::Good);
        assert_eq!(Tone::of_node_cell("mixed+drain"), Tone::Bad);
    }

    #[test]
    fn a_colour_ends_with_its_text() {
        let mut out = String::new();
        Tone::Bad.paint(&mut out, |out| out.push_str("F "));
        Tone::Plain.paint(&mut out, |out| out.push('x'));
        assert_eq!(out, "\u{1b}[31mF \u{1b}[0mx");
    }
}
