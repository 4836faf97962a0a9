//! The list of jobs of other clusters.

use super::text::{fill, line};
use crate::tui::elsewhere::Line;
use crate::tui::log::shown;
use crate::tui::state::Screen;
use crate::tui::theme::Ink;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use slotd_render::text::{cut, pad};
use slotd_render::time::iso;

/// The columns before the command, with their widths.
const COLUMNS: [(&str, usize); 3] = [("ELSEWHERE", 14), ("STATE", 13), ("SUBMITTED", 19)];

pub fn draw(screen: &Screen, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    let heading = row(COLUMNS.map(|(title, _)| title.to_owned()), "COMMAND");
    fill(to, area, theme.heading());
    line(to, area, 0, &heading, theme.heading().patch(theme.strong()));
    let lines = usize::from(area.height.saturating_sub(1));
    let all = &screen.elsewhere;
    // The last line says how many do not fit.
    let shown_lines = if all.len() > lines { lines.saturating_sub(1) } else { lines };
    for (y, one) in (1..).zip(all.iter().take(shown_lines)) {
        let (text, style) = match one {
            Line::Problem(why) => (format!(" {}", shown(why)), theme.ink(Ink::Failed)),
            Line::Job { job, state, has_ended, submitted, command } => {
                let submitted = iso(*submitted, &screen.ctx().tz);
                let cells = [job.clone(), state.clone(), submitted].map(|cell| shown(&cell));
                let style = if *has_ended { theme.weak() } else { Style::new() };
                (row(cells, &shown(command)), style)
            }
        };
        line(to, area, y, &text, style);
    }
    if all.len() > shown_lines && lines > 0 {
        let more = format!(" and {} more: squeue -M all --me", all.len() - shown_lines);
        line(to, area, area.height - 1, &more, theme.weak());
    }
}

fn row(cells: [String; 3], command: &str) -> String {
    let mut text = String::from(" ");
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        pad(&mut text, cut(cell, width), width, false);
        text.push(' ');
    }
    text + command
}
