//! Texts in areas of the screen, measured in cells.

use crate::tui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

/// Writes text at the left end of a line of an area, truncated to its width.
pub fn line(to: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height && area.width > 0 {
        to.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}

/// Adds a style to the first line of an area.
pub fn fill(to: &mut Buffer, area: Rect, style: Style) {
    to.set_style(Rect { height: area.height.min(1), ..area }.intersection(to.area), style);
}

/// Returns a text that takes at most `width` cells. The end of a longer one is replaced by a sign.
pub fn fit(theme: Theme, text: &str, width: u16) -> String {
    if Span::raw(text).width() <= usize::from(width) {
        return text.to_owned();
    }
    let most = usize::from(width.saturating_sub(1));
    let mut cut = String::new();
    let mut taken = 0;
    for part in Span::raw(text).styled_graphemes(Style::new()) {
        taken += Span::raw(part.symbol).width();
        if taken > most {
            break;
        }
        cut.push_str(part.symbol);
    }
    if width > 0 { cut + theme.cut() } else { cut }
}

/// Draws texts after each other, as far as they fit, and returns the rest of the area.
pub fn words(to: &mut Buffer, area: Rect, words: &[(String, Style)]) -> Rect {
    let mut rest = area;
    for (text, style) in words {
        line(to, rest, 0, text, *style);
        let used = (Span::raw(text.as_str()).width() as u16).min(rest.width);
        (rest.x, rest.width) = (rest.x + used, rest.width - used);
    }
    rest
}
