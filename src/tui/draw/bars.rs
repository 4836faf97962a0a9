//! Bars that show parts of a whole, drawn with cells.

use crate::tui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A part of a bar.
pub struct Segment {
    pub amount: f64,
    pub style: Style,
    /// The index of its character in [`Theme::bar`].
    pub kind: usize,
}

/// Draws a bar of `whole` on the first line of an area.
pub fn draw(to: &mut Buffer, area: Rect, theme: Theme, whole: f64, segments: &[Segment]) {
    if area.height == 0 {
        return;
    }
    let characters = theme.bar();
    let cells =
        |amount: f64| if whole > 0.0 { amount / whole * f64::from(area.width) } else { 0.0 };
    let (mut sum, mut x) = (0.0, 0u16);
    for segment in segments {
        sum += segment.amount;
        // Draw at least one cell for any amount above zero.
        let end = (cells(sum).round() as u16)
            .max(if segment.amount > 0.0 { x + 1 } else { x })
            .min(area.width);
        while x < end {
            to.set_stringn(area.x + x, area.y, characters[segment.kind], 1, segment.style);
            x += 1;
        }
    }
    while x < area.width {
        to.set_stringn(area.x + x, area.y, characters[2], 1, theme.weak());
        x += 1;
    }
}
