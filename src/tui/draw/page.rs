//! The page of one job: its details above its outputs.

use super::foot;
use super::text::{fill, line, words};
use crate::live::picture::label;
use crate::tui::keys::Spot;
use crate::tui::log::{escaped, shown};
use crate::tui::page::{Page, Part};
use crate::tui::plot;
use crate::tui::state::Screen;
use crate::tui::theme::{Ink, badge};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use slotd_model::series::JobSeries;

pub fn draw(screen: &Screen, to: &mut Buffer) {
    let Some(page) = &screen.page else { return };
    let whole = to.area;
    let job = screen.picture.detailed(page.job);
    let strong = screen.theme.strong();
    let title = match job {
        None => vec![(format!("job {}", page.job), strong)],
        Some(job) => {
            let (_, ink) = badge(job);
            let name = escaped(&format!("job {} {} ", label(job), job.request.name));
            let state = job.run.state.name().to_owned();
            vec![(name, strong), (state, screen.theme.ink(ink).patch(strong))]
        }
    };
    words(to, Rect { height: whole.height.min(1), ..whole }, &title);
    let parts = screen.parts();
    details(screen, page, to, parts[0]);
    plots(screen, page, to, screen.plots());
    let both = if page.has_one_output() { "stdout and stderr" } else { "stdout" };
    output(screen, page, Part::Out, both, to, parts[1]);
    output(screen, page, Part::Err, "stderr", to, parts[2]);
    let last = screen.page_foot();
    let has_status =
        screen.question.is_some() || screen.typing.is_some() || screen.message.is_some();
    if has_status || page.searching.is_some() {
        foot::status(screen, to, last);
    } else {
        foot::keys(screen, to, last, Spot::Page);
    }
}

fn heading(screen: &Screen, page: &Page, part: Part, text: &str, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    let style = if page.part == part { theme.chosen() } else { theme.heading() };
    fill(to, area, style);
    line(to, area, 0, text, style.patch(theme.strong()));
}

fn details(screen: &Screen, page: &Page, to: &mut Buffer, area: Rect) {
    heading(screen, page, Part::Details, "details", to, area);
    let text = screen.details_text();
    for (row, text) in (1..area.height).zip(text.lines().skip(page.top)) {
        line(to, area, row, &shown(text), Style::new());
    }
}

/// Draws a line for each plot: figures, and bars over time.
fn plots(screen: &Screen, page: &Page, to: &mut Buffer, area: Rect) {
    let figures = (area.width / 2).min(FIGURES);
    let right = Rect { x: area.x + figures, width: area.width - figures, height: 1, ..area };
    let series = JobSeries::of(screen.picture.series(page.job), usize::from(right.width));
    let (Some(job), Some(series)) = (screen.picture.detailed(page.job), series) else { return };
    for (row, plot) in (0..area.height).zip(plot::of_job(job, &series)) {
        line(to, Rect { width: figures, ..area }, row, &plot.title, screen.theme.strong());
        plot.draw(
            to,
            Rect { y: area.y + row, ..right },
            screen.theme.ascii,
            screen.theme.ink(Ink::Running),
        );
    }
}

/// The width of the figures next to the bars.
const FIGURES: u16 = 40;

fn output(screen: &Screen, page: &Page, part: Part, name: &str, to: &mut Buffer, area: Rect) {
    if area.height == 0 {
        return;
    }
    let log = &page.logs[part.index() - 1];
    let follows = if log.follows { ", following" } else { "" };
    let place = match log.size {
        0 => "empty".to_owned(),
        size => format!("{}% of {size} bytes", log.at * 100 / size),
    };
    let text = match (&log.error, log.path.as_str()) {
        (Some(why), path) => format!("{name} {path}: {why}"),
        (None, "") => name.to_owned(),
        (None, path) => format!("{name} {path}: {place}{follows}"),
    };
    // Draw a line between the two outputs.
    let area = match area.x {
        0 => area,
        x => {
            (0..area.height).for_each(|row| line(to, area, row, "|", screen.theme.weak()));
            Rect { x: x + 1, width: area.width.saturating_sub(1), ..area }
        }
    };
    heading(screen, page, part, &escaped(&text), to, area);
    for (row, text) in (1..area.height).zip(&log.lines) {
        let text = shown(text);
        let from = text.char_indices().nth(page.left).map_or("", |(at, _)| &text[at..]);
        let is_hit = !page.wanted.is_empty() && text.contains(&page.wanted);
        line(to, area, row, from, if is_hit { screen.theme.strong() } else { Style::new() });
    }
}
