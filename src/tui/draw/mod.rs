//! Draws the screen. Every function here fills a part of a buffer and changes nothing else.

mod bars;
mod elsewhere;
mod host;
mod page;
mod rows;

use super::keys::{self, Spot};
use super::state::{Screen, Theme, Typing};
use crate::live::Place;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use slotd_model::JobState;
use slotd_render::tone::Tone;

/// Draws the whole screen if the buffer has the size of the layout, and nothing otherwise.
pub fn draw(screen: &Screen, to: &mut Buffer) {
    if (to.area.width, to.area.height) != screen.size {
        return;
    }
    if screen.help {
        return help(screen, to);
    }
    if screen.page.is_some() {
        page::draw(screen, to);
    } else {
        lists(screen, to);
    }
}

/// Writes text at the left end of a line of an area, truncated to its width.
fn line(to: &mut Buffer, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height && area.width > 0 {
        to.set_stringn(area.x, area.y + row, text, usize::from(area.width), style);
    }
}

impl Theme {
    fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn weak(self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    fn chosen(self, style: Style) -> Style {
        style.add_modifier(Modifier::REVERSED)
    }

    fn state(self, state: JobState) -> Style {
        match Tone::of_job(state) {
            Tone::Plain => Style::new(),
            Tone::Good => self.fg(Color::Green),
            Tone::Waiting => self.fg(Color::Yellow),
            Tone::Bad => self.fg(Color::Red),
            Tone::Withdrawn => self.fg(Color::Magenta),
        }
    }
}

fn lists(screen: &Screen, to: &mut Buffer) {
    let areas = screen.areas();
    title(screen, to, areas.title);
    host::draw(screen, to, areas.host);
    for (i, pane) in screen.panes.iter().enumerate() {
        rows::draw(screen, pane, i == screen.focus, to, areas.panes[i]);
    }
    elsewhere::draw(screen, to, areas.elsewhere);
    status(screen, to, areas.status);
    foot(screen, to, areas.keys, Spot::Lists);
}

fn title(screen: &Screen, to: &mut Buffer, area: Rect) {
    let count = |place: Place| {
        screen.panes.iter().find(|pane| pane.place == place).map_or(0, |pane| pane.count)
    };
    let node = screen.picture.node.as_ref();
    let name = node.map_or("", |node| node.host.name.as_str());
    let text = format!(
        "slotd top  {name}  {} running  {} waiting  {} ended",
        count(Place::Running),
        count(Place::Waiting),
        count(Place::Ended)
    );
    line(to, area, 0, &text, screen.theme.strong());
    let alert = match node.and_then(|node| node.drained.as_ref()) {
        _ if screen.is_lost => Some("daemon unreachable; reconnecting".to_owned()),
        Some(why) => Some(format!("drained: {}", why.text)),
        None => None,
    };
    if let Some(alert) = alert {
        let from = u16::try_from(text.len() + 2).unwrap_or(u16::MAX).min(area.width);
        let rest = Rect { x: area.x + from, width: area.width - from, ..area };
        line(
            to,
            rest,
            0,
            &super::log::shown(&alert),
            screen.theme.fg(Color::Red).add_modifier(Modifier::BOLD),
        );
    }
}

/// Draws a question, the typed text, a message, or why the selected job waits.
fn status(screen: &Screen, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    let (text, style) = match (&screen.question, &screen.typing, &screen.message) {
        (Some(question), _, _) => {
            (question.text.clone(), theme.fg(Color::Red).add_modifier(Modifier::BOLD))
        }
        (_, Some(Typing::Filter), _) => (format!("filter: {}_", screen.filter), theme.strong()),
        (_, Some(Typing::Search(text)), _) => (format!("search: {text}_"), theme.strong()),
        (None, None, None) if searching(screen).is_some() => {
            (searching(screen).unwrap_or_default(), theme.strong())
        }
        (_, _, Some(message)) => (message.clone(), theme.strong()),
        (None, None, None) => (sentence(screen), theme.weak()),
    };
    line(to, area, 0, &super::log::shown(&text), style);
}

/// Returns the progress of a search.
fn searching(screen: &Screen) -> Option<String> {
    let page = screen.page.as_ref()?;
    let (done, of) = page.searching?;
    let percent = (done * 100).checked_div(of).unwrap_or(0).min(100);
    Some(format!("searching for {}: {percent}% of {of} bytes (Esc to stop)", page.wanted))
}

/// Explains the state of the selected job.
fn sentence(screen: &Screen) -> String {
    let Some(job) = screen.chosen().and_then(|id| screen.picture.detailed(id)) else {
        return String::new();
    };
    let blocker = job.blockers.first().map(|blocker| blocker.text.as_str());
    let words = job.run.system_comment.as_deref().or(blocker).unwrap_or_default();
    let label = crate::live::picture::label(job);
    match (job.run.state, words) {
        (JobState::Pending, "") => format!("{label} is waiting: {}", job.run.reason.name()),
        (_, "") => String::new(),
        (_, words) => format!("{label}: {words}"),
    }
}

/// Draws the key hints, the most important ones first. The help lists all keys.
fn foot(screen: &Screen, to: &mut Buffer, area: Rect, spot: Spot) {
    for (row, words) in (0..area.height).zip(screen.foot(spot)) {
        line(to, area, row, &words, screen.theme.weak());
    }
}

fn help(screen: &Screen, to: &mut Buffer) {
    let area = to.area;
    line(to, area, 0, "Keys (press any key to return)", screen.theme.strong());
    let spot = if screen.page.is_some() { Spot::Page } else { Spot::Lists };
    let width = keys::lines(spot).map(|line| line.name.len()).max().unwrap_or(0) + 2;
    for (row, key) in (2..).zip(keys::lines(spot)) {
        line(to, area, row, &format!("  {:width$}{}", key.name, key.about), Style::new());
    }
}
