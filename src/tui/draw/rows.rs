//! The lists: a heading, and a row for each job or array.

use super::bars::{self, Segment};
use super::cells::{self, Cell, cell};
use super::text::{fill, fit, line};
use crate::live::Place;
use crate::tui::columns::{Column, Field};
use crate::tui::log::escaped;
use crate::tui::order::Sort;
use crate::tui::pane::{Key, Pane, Row};
use crate::tui::state::Screen;
use crate::tui::theme::Ink;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use slotd_model::JobState;
use slotd_model::view::JobView;

/// The maximum width of a bar.
const MOST_BAR: u16 = 24;

pub fn draw(screen: &Screen, columns: &[Column], at: usize, to: &mut Buffer, area: Rect) {
    let pane = &screen.panes[at];
    let is_focused = at == screen.focus;
    let lines = screen.lines(pane.place);
    let list = Rect { y: area.y + area.height - lines as u16, height: lines as u16, ..area };
    if list.height < area.height {
        heading(screen, columns, pane, is_focused, to, area);
    }
    if pane.len() == 0 {
        let text = if screen.filter.is_empty() { "none" } else { "none of these match" };
        line(
            to,
            Rect { x: list.x + 1, width: list.width.saturating_sub(1), ..list },
            0,
            text,
            screen.theme.weak(),
        );
    }
    for (i, row) in pane.shown(lines).enumerate() {
        let is_chosen = is_focused && pane.top + i == pane.at;
        let area = Rect { y: list.y + i as u16, height: 1, ..list };
        draw_row(screen, columns, pane, row, is_chosen, to, area);
    }
}

fn heading(
    screen: &Screen,
    columns: &[Column],
    pane: &Pane,
    is_focused: bool,
    to: &mut Buffer,
    area: Rect,
) {
    let theme = screen.theme;
    fill(to, area, theme.heading());
    let weak = theme.heading().patch(theme.weak());
    for column in columns {
        let text = column.field.heading(pane.place, screen.is_wide());
        let is_order = pane.sort != Sort::Queue && column.field.sort() == pane.sort;
        let style = if is_order { weak.add_modifier(Modifier::BOLD) } else { weak };
        let area = Rect { x: area.x + column.x, width: column.width, ..area };
        put(to, area, text, style, column.field.is_right());
    }
    // The name of the list stays within the columns that have no heading of their own.
    let end = columns.iter().find(|column| column.field == Field::Name);
    let width = end.map_or(0, |column| column.x + column.width).saturating_sub(1);
    let mut rest = Rect { x: area.x + 1, width, ..area };
    let strong = theme.heading().patch(theme.strong());
    let strong = if is_focused { theme.chosen().patch(theme.strong()) } else { strong };
    let order = match pane.sort {
        Sort::Queue => String::new(),
        sort => format!("  by {}", sort.name()),
    };
    for (text, style) in
        [(pane.name().to_owned(), strong), (format!(" {}", pane.count), weak), (order, weak)]
    {
        line(to, rest, 0, &text, style);
        let used = (text.len() as u16).min(rest.width);
        (rest.x, rest.width) = (rest.x + used, rest.width - used);
    }
    more(screen, pane, to, rest, weak);
}

/// Draws arrows if the list continues above or below.
fn more(screen: &Screen, pane: &Pane, to: &mut Buffer, area: Rect, style: Style) {
    let [above, below] = if screen.theme.ascii { ["^", "v"] } else { ["↑", "↓"] };
    let is_more = [pane.top > 0, pane.top + screen.lines(pane.place) < pane.len()];
    let signs = [above, below].into_iter().zip(is_more).filter(|(_, is_more)| *is_more);
    let text: String = signs.map(|(sign, _)| sign).collect();
    if !text.is_empty() {
        line(to, area, 0, &format!("  {text}"), style);
    }
}

/// Draws a text within an area of one line, at its right end if `is_right`.
fn put(to: &mut Buffer, area: Rect, text: &str, style: Style, is_right: bool) {
    let width = Span::raw(text).width() as u16;
    let skip = if is_right { area.width.saturating_sub(width) } else { 0 };
    line(to, Rect { x: area.x + skip, width: area.width - skip, ..area }, 0, text, style);
}

fn draw_row(
    screen: &Screen,
    columns: &[Column],
    pane: &Pane,
    row: Row,
    is_chosen: bool,
    to: &mut Buffer,
    area: Rect,
) {
    let theme = screen.theme;
    for column in columns {
        let mut area = Rect { x: area.x + column.x, width: column.width, ..area };
        let Cell { text, style, weak } = cell(screen, pane, row, column.field);
        if column.field == Field::Last {
            bar(screen, pane, row, to, &mut area);
        }
        let (text, mut weak) = (escaped(&text), escaped(&weak));
        let fits = |text: &str| Span::raw(text).width() <= usize::from(area.width);
        if column.field == Field::Last && fits(&text) && !fits(&format!("{text}{weak}")) {
            weak.clear();
        }
        let whole = Span::raw(format!("{text}{weak}")).width() as u16;
        if weak.is_empty() || whole > area.width {
            let text = fit(theme, &format!("{text}{weak}"), area.width);
            put(to, area, &text, style, column.field.is_right());
            continue;
        }
        let skip = if column.field.is_right() { area.width - whole } else { 0 };
        let width = Span::raw(text.as_str()).width() as u16;
        let (x, width) = (area.x + skip, width.min(area.width - skip));
        line(to, Rect { x, width, ..area }, 0, &text, style);
        line(to, Rect { x: x + width, width: whole - width, ..area }, 0, &weak, theme.weak());
    }
    let is_marked = screen.marks.contains(&row.key);
    if is_chosen {
        fill(to, area, theme.chosen());
    }
    let sign = match (is_marked, is_chosen) {
        (true, _) => "*",
        (false, true) if theme.ascii => ">",
        (false, true) => "▌",
        (false, false) => return,
    };
    line(to, area, 0, sign, theme.strong());
}

/// Draws the share of the time limit that a running job has used, or the progress of an array, and
/// takes its cells from the area.
fn bar(screen: &Screen, pane: &Pane, row: Row, to: &mut Buffer, area: &mut Rect) {
    let theme = screen.theme;
    let part = |amount: f64, ink| Segment { amount, style: theme.ink(ink), kind: 0 };
    let (whole, segments) = match row.key {
        Key::Job(id) => {
            // A suspended job says so instead.
            let runs = |job: &&JobView| job.run.state == JobState::Running;
            let job = screen.picture.jobs.get(&id).filter(runs);
            let Some(share) = job.and_then(|job| cells::share(screen, job)) else { return };
            let ink = if share >= cells::LATE { Ink::Pending } else { Ink::Running };
            (1.0, vec![part(share.min(1.0), ink)])
        }
        Key::Array(array) if pane.place == Place::Running => {
            let progress = screen.picture.progress(array);
            let failed = progress.failed.min(progress.done());
            let of_state = [
                part((progress.done() - failed) as f64, Ink::Completed),
                part(failed as f64, Ink::Failed),
                part(progress.running as f64, Ink::Running),
            ];
            (progress.all().max(1) as f64, of_state.into())
        }
        Key::Array(_) => return,
    };
    let text = match area.width {
        40.. => 22,
        24.. if screen.is_wide() => 16,
        14.. => 6,
        _ => 0,
    };
    let width = (area.width - text).min(MOST_BAR);
    bars::draw(to, Rect { width, ..*area }, theme, whole, &segments);
    let taken = (width + 1).min(area.width);
    (area.x, area.width) = (area.x + taken, area.width - taken);
}
