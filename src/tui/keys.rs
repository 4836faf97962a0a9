//! The keys, with their commands and the places where they apply. The help and the key hints at the
//! bottom of the screen are built from this table.

use super::state::JobAction;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The command of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
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
    Undo,
    Plans,
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

/// The pages on which keys are pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    Lists,
    /// The page of one job.
    Page,
}

const BOTH: &[Spot] = &[Spot::Lists, Spot::Page];
const LISTS: &[Spot] = &[Spot::Lists];
const PAGE: &[Spot] = &[Spot::Page];

/// Keys that share an explanation.
pub struct Line {
    pub spots: &'static [Spot],
    pub keys: &'static [(KeyCode, Command)],
    /// The keys, as the help names them.
    pub name: &'static str,
    /// One word for the key hints; empty if only the help lists the keys.
    pub short: &'static str,
    pub about: &'static str,
}

const fn letter(c: char) -> KeyCode {
    KeyCode::Char(c)
}

const fn line(
    spots: &'static [Spot],
    keys: &'static [(KeyCode, Command)],
    name: &'static str,
    short: &'static str,
    about: &'static str,
) -> Line {
    Line { spots, keys, name, short, about }
}

/// All keys, the most important ones first. The first two of each page are always among its hints.
pub const KEYS: &[Line] = &[
    line(BOTH, &[(letter('?'), Command::Help)], "?", "keys", "show this help"),
    line(
        LISTS,
        &[(letter('q'), Command::Quit)],
        "q",
        "quit",
        "quit (Ctrl-C quits anywhere; Ctrl-Z suspends, fg resumes)",
    ),
    line(
        PAGE,
        &[(letter('q'), Command::Quit), (KeyCode::Esc, Command::Back)],
        "q",
        "back",
        "go back, or stop a running search (also Esc)",
    ),
    line(
        LISTS,
        &[(KeyCode::Enter, Command::Open)],
        "Enter",
        "open",
        "open a job's details and outputs, or an array's tasks",
    ),
    line(BOTH, &[(letter('c'), Command::Do(JobAction::Cancel))], "c", "cancel", "cancel the job"),
    line(BOTH, &[(letter('h'), Command::Do(JobAction::Hold))], "h", "hold", "hold the job"),
    line(
        BOTH,
        &[(letter('r'), Command::Do(JobAction::Release))],
        "r",
        "release",
        "release the job",
    ),
    line(BOTH, &[(letter('u'), Command::Undo)], "u", "undo", "undo the last hold or release"),
    line(
        BOTH,
        &[(letter('e'), Command::Edit)],
        "e",
        "edit",
        "edit the options and the script of a pending job",
    ),
    line(
        BOTH,
        &[(letter('t'), Command::Do(JobAction::Top))],
        "t",
        "to front",
        "move the job to the top of the queue",
    ),
    line(
        BOTH,
        &[(letter('R'), Command::Do(JobAction::Requeue))],
        "R",
        "requeue",
        "end the job and requeue it",
    ),
    line(
        BOTH,
        &[(letter('a'), Command::Do(JobAction::Retry))],
        "a",
        "again",
        "resubmit an ended job, or an array's failed tasks",
    ),
    line(
        LISTS,
        &[(letter('/'), Command::Filter)],
        "/",
        "filter",
        "show only jobs that contain a text",
    ),
    line(PAGE, &[(letter('/'), Command::Search)], "/", "search", "search the output"),
    line(
        PAGE,
        &[(letter('n'), Command::Next), (letter('N'), Command::Previous)],
        "n N",
        "hits",
        "go to the next or the previous hit, around the ends",
    ),
    line(
        PAGE,
        &[(letter('f'), Command::Follow)],
        "f",
        "follow",
        "follow the output, or stop following",
    ),
    line(PAGE, &[(letter('z'), Command::Zoom)], "z", "zoom", "show only this part"),
    line(
        LISTS,
        &[(KeyCode::Tab, Command::NextPane), (KeyCode::BackTab, Command::PreviousPane)],
        "Tab",
        "next",
        "go to the next list (Shift-Tab: the previous one)",
    ),
    line(
        PAGE,
        &[(KeyCode::Tab, Command::NextPane), (KeyCode::BackTab, Command::PreviousPane)],
        "Tab",
        "next",
        "go to the next part (Shift-Tab: the previous one)",
    ),
    line(
        LISTS,
        &[(letter('s'), Command::Sort)],
        "s",
        "sort",
        "change the order (or click on a heading)",
    ),
    line(LISTS, &[(letter(' '), Command::Mark)], "Space", "mark", "mark a job for the next action"),
    line(
        LISTS,
        &[(letter('p'), Command::Plans)],
        "p",
        "plans",
        "show reservations, licenses and QOS",
    ),
    line(
        LISTS,
        &[(letter('*'), Command::MarkAll)],
        "*",
        "all",
        "mark all jobs of the list, or none",
    ),
    line(LISTS, &[(KeyCode::Esc, Command::Back)], "Esc", "", "clear the filter, then the marks"),
    line(
        LISTS,
        &[(KeyCode::Right, Command::Toggle), (KeyCode::Left, Command::Toggle)],
        "left right",
        "",
        "open or close an array",
    ),
    line(
        PAGE,
        &[(KeyCode::Left, Command::Left), (KeyCode::Right, Command::Right)],
        "left right",
        "",
        "scroll long lines sideways",
    ),
    line(
        BOTH,
        &[
            (KeyCode::Up, Command::Up),
            (KeyCode::Down, Command::Down),
            (letter('k'), Command::Up),
            (letter('j'), Command::Down),
            (KeyCode::PageUp, Command::PageUp),
            (KeyCode::PageDown, Command::PageDown),
        ],
        "up down PgUp PgDn k j",
        "",
        "move (a click selects, the wheel scrolls)",
    ),
    line(
        BOTH,
        &[
            (KeyCode::Home, Command::First),
            (KeyCode::End, Command::Last),
            (letter('g'), Command::First),
            (letter('G'), Command::Last),
        ],
        "Home End g G",
        "",
        "go to the start or the end",
    ),
];

/// Returns the lines of the help.
pub fn lines(spot: Spot) -> impl Iterator<Item = &'static Line> {
    KEYS.iter().filter(move |line| line.spots.contains(&spot))
}

/// Returns the command of a key that has the same meaning everywhere, even while text is typed.
pub fn always(event: KeyEvent) -> Option<Command> {
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    match event.code {
        KeyCode::Char('c') if is_control => Some(Command::Quit),
        KeyCode::Char('z') if is_control => Some(Command::Suspend),
        _ => None,
    }
}

/// Returns the command of a key on this page.
pub fn command(spot: Spot, event: KeyEvent) -> Option<Command> {
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    lines(spot)
        .flat_map(|line| line.keys)
        .find(|(code, _)| *code == event.code)
        .map(|(_, command)| *command)
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
