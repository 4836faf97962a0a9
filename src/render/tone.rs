//! Colours of states, where a terminal shows colours.

use crate::model::{JobState, Outcome};
use std::fmt::Write as _;

/// What a reader has to make of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing: as other text.
    Plain,
    /// It goes well.
    Good,
    /// It waits, or is full.
    Waiting,
    /// It went wrong.
    Bad,
    /// Somebody ended it.
    Withdrawn,
}

impl Tone {
    pub fn of_job(state: JobState) -> Tone {
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

    /// Of a cell with a job's state: its name or its code, after which more may follow
    /// (`CANCELLED by 1000`).
    pub fn of_job_cell(cell: &str) -> Tone {
        let word = cell.split(' ').next().unwrap_or_default();
        let state =
            JobState::ALL.into_iter().find(|state| state.name() == word || state.code() == word);
        state.map_or(Tone::Plain, Tone::of_job)
    }

    /// Of a cell with the state of a node, as sinfo writes it, or of a partition: what takes no
    /// jobs went wrong.
    pub fn of_node_cell(cell: &str) -> Tone {
        match cell {
            "idle" | "mixed" | "mix" => Tone::Good,
            "allocated" | "alloc" => Tone::Waiting,
            "up" | "n/a" => Tone::Plain,
            _ => Tone::Bad,
        }
    }

    /// Writes what `write` writes, in the colour of this tone.
    pub fn paint(self, out: &mut String, write: impl FnOnce(&mut String)) {
        // The first eight colours of ECMA-48, which each terminal has, as its user chose them.
        let colour = match self {
            Tone::Plain => return write(out),
            Tone::Bad => 31,
            Tone::Good => 32,
            Tone::Waiting => 33,
            Tone::Withdrawn => 35,
        };
        // Writing to a string does not fail.
        let _ = write!(out, "\u{1b}[{colour}m");
        write(out);
        out.push_str("\u{1b}[0m");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_by_its_name_or_code() {
        assert_eq!(Tone::of_job_cell("R"), Tone::Good);
        assert_eq!(Tone::of_job_cell("CANCELLED by 1000"), Tone::Withdrawn);
        assert_eq!(Tone::of_job_cell("OUT_OF_MEMORY"), Tone::Bad);
        assert_eq!(Tone::of_job_cell("running"), Tone::Plain);
        assert_eq!(Tone::of_node_cell("mixed"), Tone::Good);
        assert_eq!(Tone::of_node_cell("mixed+drain"), Tone::Bad);
    }

    #[test]
    fn a_colour_ends_where_its_text_ends() {
        let mut out = String::new();
        Tone::Bad.paint(&mut out, |out| out.push_str("F "));
        Tone::Plain.paint(&mut out, |out| out.push('x'));
        assert_eq!(out, "\u{1b}[31mF \u{1b}[0mx");
    }
}
