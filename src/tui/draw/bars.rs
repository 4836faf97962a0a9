//! Bars that show parts of a whole, drawn with cells.

use crate::tui::state::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

/// A part of a bar.
pub struct Segment {
    pub amount: f64,
    pub style: Style,
    /// Selects one of two fill characters, so that adjacent segments differ without colours.
    pub odd: bool,
}

/// The colours that distinguish jobs.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Blue, Color::LightRed];

/// Returns the colour of a job.
pub fn colour(theme: Theme, job: u32) -> Style {
    theme.fg(COLOURS[job as usize % COLOURS.len()])
}

/// Draws a bar of `whole` on the first line of an area.
pub fn draw(to: &mut Buffer, area: Rect, theme: Theme, whole: f64, segments: &[Segment]) {
    if area.height == 0 {
        return;
    }
    let (full, other, empty) = if theme.ascii { ("#", "=", ".") } else { ("█", "▓", "░") };
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
            let filling = if segment.odd { other } else { full };
            to.set_stringn(area.x + x, area.y, filling, 1, segment.style);
            x += 1;
        }
    }
    while x < area.width {
        to.set_stringn(area.x + x, area.y, empty, 1, theme.weak());
        x += 1;
    }
}

/// Draws a bar with a single segment.
pub fn single(to: &mut Buffer, area: Rect, theme: Theme, share: f64, style: Style) {
    draw(to, area, theme, 1.0, &[Segment { amount: share.clamp(0.0, 1.0), style, odd: false }]);
}
