//! The pages of text that cover the screen.

use super::keys::{self, Command, Spot};
use super::plans;
use super::state::Screen;
use crossterm::event::KeyEvent;

/// A page, with its first visible line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    Help(usize),
    Plans(usize),
}

impl Sheet {
    pub fn top(self) -> usize {
        match self {
            Sheet::Help(top) | Sheet::Plans(top) => top,
        }
    }

    fn top_mut(&mut self) -> &mut usize {
        match self {
            Sheet::Help(top) | Sheet::Plans(top) => top,
        }
    }
}

impl Screen {
    /// Moves the page, or closes it with any key that does not move it.
    pub(super) fn sheet_key(&mut self, event: KeyEvent) {
        let lines = isize::from(self.size.1.saturating_sub(2).max(1).cast_signed());
        match keys::command(Spot::Lists, event) {
            Some(Command::Up) => self.move_sheet(-1),
            Some(Command::Down) => self.move_sheet(1),
            Some(Command::PageUp) => self.move_sheet(-lines),
            Some(Command::PageDown) => self.move_sheet(lines),
            Some(Command::First) => self.move_sheet(isize::MIN),
            Some(Command::Last) => self.move_sheet(isize::MAX),
            _ => self.sheet = None,
        }
    }

    pub(super) fn move_sheet(&mut self, by: isize) {
        let visible = usize::from(self.size.1.saturating_sub(1));
        let most = self.sheet_lines().len().saturating_sub(visible);
        if let Some(sheet) = &mut self.sheet {
            let top = sheet.top_mut();
            *top = top.saturating_add_signed(by).min(most);
        }
    }

    /// Returns the lines of the open page.
    pub fn sheet_lines(&self) -> Vec<String> {
        let spot = if self.page.is_some() { Spot::Page } else { Spot::Lists };
        match self.sheet {
            None => Vec::new(),
            Some(Sheet::Plans(_)) => plans::whole(self),
            Some(Sheet::Help(_)) => {
                let width = keys::lines(spot).map(|line| line.name.len()).max().unwrap_or(0) + 2;
                let line = |key: &keys::Line| format!("  {:width$}{}", key.name, key.about);
                keys::lines(spot).map(line).collect()
            }
        }
    }
}
