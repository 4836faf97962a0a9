//! The keys, what they are for, and where: the help on the screen is made of this table.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key of the lists asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    NextPane,
    Open,
    Toggle,
    Mark,
    MarkAll,
    Filter,
    Sort,
    Cancel,
    Hold,
    Release,
    Top,
    Requeue,
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

pub struct Key {
    pub code: KeyCode,
    pub word: Word,
    /// As it is written in the help; the same for keys that stand together.
    pub name: &'static str,
    pub about: &'static str,
}

const fn key(code: KeyCode, word: Word, name: &'static str, about: &'static str) -> Key {
    Key { code, word, name, about }
}

const fn letter(c: char, word: Word, name: &'static str, about: &'static str) -> Key {
    key(KeyCode::Char(c), word, name, about)
}

/// The keys of one place, by what they are about.
pub type Table = &'static [&'static [Key]];

const MOVES: &[Key] = &[
    key(KeyCode::Up, Word::Up, "up down k j", "move; the mouse does too"),
    key(KeyCode::Down, Word::Down, "", ""),
    letter('k', Word::Up, "", ""),
    letter('j', Word::Down, "", ""),
    key(KeyCode::PageUp, Word::PageUp, "PgUp PgDn", "move by a page"),
    key(KeyCode::PageDown, Word::PageDown, "", ""),
    key(KeyCode::End, Word::Last, "", ""),
    letter('g', Word::First, "", ""),
    letter('G', Word::Last, "", ""),
];

/// What is done to jobs.
const DEEDS: &[Key] = &[
    letter('c', Word::Cancel, "c", "cancel"),
    letter('h', Word::Hold, "h", "hold"),
    letter('r', Word::Release, "r", "release"),
    letter('t', Word::Top, "t", "to the top of the queue"),
    letter('R', Word::Requeue, "R", "end it and put it back into the queue"),
    letter('?', Word::Help, "?", "this help"),
];

const QUIT: &[Key] = &[letter('q', Word::Quit, "q", "quit")];

/// Of the lists.
pub const LISTS: Table = &[
    MOVES,
    &[
        key(KeyCode::Home, Word::First, "Home End g G", "the first and the last"),
        key(KeyCode::Tab, Word::NextPane, "Tab", "the next list"),
        key(KeyCode::Enter, Word::Open, "Enter", "details and both outputs of a job; the tasks of an array"),
        key(KeyCode::Right, Word::Toggle, "left right", "open and close an array"),
        key(KeyCode::Left, Word::Toggle, "", ""),
        letter(' ', Word::Mark, "Space", "mark a job for the next action"),
        letter('*', Word::MarkAll, "*", "mark all of the list, or none"),
        letter('/', Word::Filter, "/", "show what has this text in it alone"),
        letter('s', Word::Sort, "s", "another order"),
    ],
    DEEDS,
    &[key(KeyCode::Esc, Word::Back, "Esc", "back; no filter and no marks")],
    QUIT,
];

/// Of the page of one job.
pub const PAGE: Table = &[
    MOVES,
    &[
        key(KeyCode::Home, Word::First, "Home End g G", "the beginning and the end"),
        key(KeyCode::Left, Word::Left, "left right", "the rest of long lines"),
        key(KeyCode::Right, Word::Right, "", ""),
        key(KeyCode::Tab, Word::NextPane, "Tab", "the next part"),
        letter('f', Word::Follow, "f", "follow the output, or stand still"),
        letter('/', Word::Filter, "/", "search"),
        letter('n', Word::Next, "n N", "the next hit, and the one before"),
        letter('N', Word::Previous, "", ""),
        letter('z', Word::Zoom, "z", "this part alone"),
    ],
    DEEDS,
    &[key(KeyCode::Esc, Word::Back, "Esc", "back to the lists")],
    QUIT,
];

/// What a key means by this table.
pub fn word(table: Table, event: KeyEvent) -> Option<Word> {
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c') => Some(Word::Quit),
            KeyCode::Char('z') => Some(Word::Suspend),
            _ => None,
        };
    }
    table.iter().copied().flatten().find(|key| key.code == event.code).map(|key| key.word)
}
