//! The mouse: a click selects, opens or sorts, and the wheel scrolls.

use super::state::{Action, Screen};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// The number of lines that a turn of the wheel scrolls.
const WHEEL: isize = 3;

impl Screen {
    pub(super) fn mouse(&mut self, event: MouseEvent) -> Vec<Action> {
        let by = match event.kind {
            MouseEventKind::ScrollUp => -WHEEL,
            MouseEventKind::ScrollDown => WHEEL,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return Vec::new(),
        };
        if self.question.is_some() {
            return Vec::new();
        }
        if self.sheet.is_some() {
            self.move_sheet(by);
            return Vec::new();
        }
        let at = Position::from((event.column, event.row));
        let is_in = |area: &Rect| area.contains(at);
        if self.page.is_some() {
            let part = self.parts().iter().position(is_in);
            return self.mouse_on_page(part, by);
        }
        if let Some(i) = self.tabs().iter().position(|(area, _)| is_in(area)) {
            self.focus = i;
            return Vec::new();
        }
        let areas = self.areas();
        let Some(i) = areas.panes.iter().position(is_in) else { return Vec::new() };
        self.focus = i;
        let lines = self.lines(self.panes[i].place);
        if by != 0 {
            self.panes[i].wheel(by, lines);
            return Vec::new();
        }
        let heading = usize::from(areas.panes[i].height).saturating_sub(lines);
        match usize::from(at.y - areas.panes[i].y).checked_sub(heading) {
            Some(line) => self.click(i, line),
            None => {
                self.sort_by_column(i, at.x);
                Vec::new()
            }
        }
    }

    /// Selects a row. A second click on the same row opens it.
    fn click(&mut self, list: usize, line: usize) -> Vec<Action> {
        let pane = &mut self.panes[list];
        let at = pane.top + line;
        let is_row = at < pane.len();
        if is_row && std::mem::replace(&mut pane.at, at) == at { self.open() } else { Vec::new() }
    }

    /// Sorts by the column at this place, or in the usual order if the list is sorted so already.
    fn sort_by_column(&mut self, list: usize, x: u16) {
        let columns = self.columns();
        let column = columns.iter().rev().find(|column| column.x <= x);
        let Some(sort) = column.map(|column| column.field.sort()) else { return };
        let sort = if self.panes[list].sort == sort { Default::default() } else { sort };
        self.sort(list, sort);
    }
}
