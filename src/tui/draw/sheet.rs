//! Pages of text that cover the screen: the keys, and the plans of the host.

use super::text::line;
use crate::tui::log::shown;
use crate::tui::sheet::Sheet;
use crate::tui::state::Screen;
use ratatui::buffer::Buffer;
use ratatui::style::Style;

pub fn draw(screen: &Screen, to: &mut Buffer) {
    let Some(sheet) = &screen.sheet else { return };
    let area = to.area;
    let title = match sheet {
        Sheet::Help(_) => "Keys",
        Sheet::Plans(_) => "Plans",
    };
    line(to, area, 0, &format!("{title} (q or Esc to return)"), screen.theme.strong());
    for (row, text) in (1..area.height).zip(screen.sheet_lines().iter().skip(sheet.top())) {
        line(to, area, row, &shown(text), Style::new());
    }
}
