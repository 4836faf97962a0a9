//! The keys, what they are for, and where: the help and the lowest lines of the screen are made of
//! this table.

use super::state::JobAction;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    NextPane,
    PreviousPane,
    Open,
    Toggle,
    Mark,
    MarkAll,
    Filter,
    Search,
    Sort,
    Do(JobAction),
    Edit,
    Suspend,
    Help,
    Back,
    Quit,
    Next,
    Previous,
    Follow,
    Zoom,
    Left,
    Right,
}

/// Where keys are pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    Lists,
    /// The page of one job.
    Page,
}

const BOTH: &[Spot] = &[Spot::Lists, Spot::Page];
const LISTS: &[Spot] = &[Spot::Lists];
const PAGE: &[Spot] = &[Spot::Page];

/// Keys that are explained together.
pub struct Line {
    pub spots: &'static [Spot],
    pub keys: &'static [(KeyCode, Word)],
    /// As they are written in the help.
    pub name: &'static str,
    /// In a word; empty: only the help has it.
    pub short: &'static str,
    pub about: &'static str,
}

const fn letter(c: char) -> KeyCode {
    KeyCode::Char(c)
}

const fn line(
    spots: &'static [Spot],
    keys: &'static [(KeyCode, Word)],
    name: &'static str,
    short: &'static str,
    about: &'static str,
) -> Line {
    Line { spots, keys, name, short, about }
}

/// All keys, the most needed first.
pub const KEYS: &[Line] = &[
    line(BOTH, &[(letter('?'), Word::Help)], "?", "help", "this help"),
    line(
        BOTH,
        &[(letter('q'), Word::Quit)],
        "q",
        "quit",
        "quit (Ctrl-C too; Ctrl-Z stops it until the shell's fg)",
    ),
    line(
        BOTH,
        &[
            (KeyCode::Up, Word::Up),
            (KeyCode::Down, Word::Down),
            (letter('k'), Word::Up),
            (letter('j'), Word::Down),
            (KeyCode::PageUp, Word::PageUp),
            (KeyCode::PageDown, Word::PageDown),
        ],
        "up down PgUp PgDn k j",
        "",
        "move; the mouse does too",
    ),
    line(
        BOTH,
        &[
            (KeyCode::Home, Word::First),
            (KeyCode::End, Word::Last),
            (letter('g'), Word::First),
            (letter('G'), Word::Last),
        ],
        "Home End g G",
        "",
        "the first and the last; the beginning and the end",
    ),
    line(
        LISTS,
        &[(KeyCode::Enter, Word::Open)],
        "Enter",
        "open",
        "details and outputs of a job; the tasks of an array",
    ),
    line(
        PAGE,
        &[(KeyCode::Esc, Word::Back)],
        "Esc",
        "back",
        "back to the lists; stops a search first",
    ),
    line(
        LISTS,
        &[(KeyCode::Tab, Word::NextPane), (KeyCode::BackTab, Word::PreviousPane)],
        "Tab",
        "next",
        "the next list; with Shift the one before",
    ),
    line(
        PAGE,
        &[(KeyCode::Tab, Word::NextPane), (KeyCode::BackTab, Word::PreviousPane)],
        "Tab",
        "next",
        "the next part; with Shift the one before",
    ),
    line(
        LISTS,
        &[(letter('/'), Word::Filter)],
        "/",
        "filter",
        "show what has this text in it alone",
    ),
    line(PAGE, &[(letter('/'), Word::Search)], "/", "search", "search the output"),
    line(
        PAGE,
        &[(letter('n'), Word::Next), (letter('N'), Word::Previous)],
        "n N",
        "hits",
        "the next hit, and the one before",
    ),
    line(PAGE, &[(letter('f'), Word::Follow)], "f", "follow", "follow the output, or stand still"),
    line(PAGE, &[(letter('z'), Word::Zoom)], "z", "zoom", "this part alone"),
    line(
        PAGE,
        &[(KeyCode::Left, Word::Left), (KeyCode::Right, Word::Right)],
        "left right",
        "",
        "the rest of long lines",
    ),
    line(LISTS, &[(letter('s'), Word::Sort)], "s", "sort", "another order"),
    line(LISTS, &[(letter(' '), Word::Mark)], "Space", "mark", "mark a job for the next action"),
    line(LISTS, &[(letter('*'), Word::MarkAll)], "*", "all", "mark all of the list, or none"),
    line(
        LISTS,
        &[(KeyCode::Right, Word::Toggle), (KeyCode::Left, Word::Toggle)],
        "left right",
        "",
        "open and close an array",
    ),
    line(LISTS, &[(KeyCode::Esc, Word::Back)], "Esc", "clear", "no filter and no marks"),
    line(BOTH, &[(letter('c'), Word::Do(JobAction::Cancel))], "c", "cancel", "cancel"),
    line(
        BOTH,
        &[(letter('R'), Word::Do(JobAction::Requeue))],
        "R",
        "requeue",
        "end it and put it back into the queue",
    ),
    line(BOTH, &[(letter('h'), Word::Do(JobAction::Hold))], "h", "hold", "hold"),
    line(BOTH, &[(letter('r'), Word::Do(JobAction::Release))], "r", "release", "release"),
    line(BOTH, &[(letter('t'), Word::Do(JobAction::Top))], "t", "top", "to the top of the queue"),
    line(
        BOTH,
        &[(letter('e'), Word::Edit)],
        "e",
        "edit",
        "edit the options and the script of a job that waits",
    ),
    line(
        BOTH,
        &[(letter('a'), Word::Do(JobAction::Retry))],
        "a",
        "again",
        "submit again what is over; of an array what failed",
    ),
];

impl Line {
    /// What these keys do to jobs: it has a meaning for jobs in some states alone.
    pub fn job_action(&self) -> Option<JobAction> {
        match self.keys {
            [(_, Word::Do(job_action)), ..] => Some(*job_action),
            _ => None,
        }
    }

    pub fn is_edit(&self) -> bool {
        matches!(self.keys, [(_, Word::Edit), ..])
    }
}

/// The lines of the help.
pub fn lines(spot: Spot) -> impl Iterator<Item = &'static Line> {
    KEYS.iter().filter(move |line| line.spots.contains(&spot))
}

/// What means the same wherever it is pressed, also while something is typed.
pub fn always(event: KeyEvent) -> Option<Word> {
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    match event.code {
        KeyCode::Char('c') if is_control => Some(Word::Quit),
        KeyCode::Char('z') if is_control => Some(Word::Suspend),
        _ => None,
    }
}

/// What a key means there.
pub fn word(spot: Spot, event: KeyEvent) -> Option<Word> {
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    lines(spot)
        .flat_map(|line| line.keys)
        .find(|(code, _)| *code == event.code)
        .map(|(_, word)| *word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_key_has_one_meaning_in_one_place() {
        for spot in BOTH {
            let mut seen = HashSet::new();
            for (code, _) in lines(*spot).flat_map(|line| line.keys) {
                assert!(seen.insert(code), "{code:?} twice on {spot:?}");
            }
        }
    }
}
