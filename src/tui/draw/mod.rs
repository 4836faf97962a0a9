//! Draws the screen. Every function here fills a part of a buffer and changes nothing else.

mod bars;
mod cells;
mod elsewhere;
mod foot;
mod host;
mod page;
mod rows;
mod sheet;
mod text;

use super::areas::Areas;
use super::log::shown;
use super::plans;
use super::state::Screen;
use super::theme::Ink;
use crate::live::Place;
use crate::tui::keys::Spot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use slotd_render::moment;
use text::{fill, fit, line, words};

/// Draws the whole screen if the buffer has the size of the layout, and nothing otherwise.
pub fn draw(screen: &Screen, to: &mut Buffer) {
    if (to.area.width, to.area.height) != screen.size {
        return;
    }
    if screen.sheet.is_some() {
        return sheet::draw(screen, to);
    }
    if screen.page.is_some() {
        page::draw(screen, to);
    } else {
        lists(screen, to);
    }
}

fn lists(screen: &Screen, to: &mut Buffer) {
    let areas = screen.areas();
    title(screen, to, &areas);
    host::draw(screen, to, areas.host);
    tabs(screen, to, areas.tabs);
    for (row, plan) in (0..).zip(plans::inline(screen, areas.plans.height)) {
        let rest = Rect { y: areas.plans.y + row, ..areas.plans };
        if row < areas.plans.height {
            let name = (format!("{:<9}", plan.name), screen.theme.strong());
            let rest = words(to, rest, &[name]);
            line(to, rest, 0, &fit(screen.theme, &shown(&plan.text), rest.width), Style::new());
        }
    }
    let columns = screen.columns();
    for (i, area) in areas.panes.iter().enumerate().filter(|(_, area)| area.height > 0) {
        rows::draw(screen, &columns, i, to, *area);
    }
    elsewhere::draw(screen, to, areas.elsewhere);
    foot::filter(screen, to, areas.filter);
    foot::status(screen, to, areas.status);
    foot::keys(screen, to, areas.keys, Spot::Lists);
}

/// Returns the trouble that takes precedence over everything else.
fn alert(screen: &Screen) -> Option<String> {
    let node = screen.picture.node.as_ref();
    match node.and_then(|node| node.drained.as_ref()) {
        _ if screen.is_lost => Some("daemon unreachable; reconnecting".to_owned()),
        Some(why) => Some(format!("drained: {}", why.text)),
        None => None,
    }
}

fn title(screen: &Screen, to: &mut Buffer, areas: &Areas) {
    let (theme, area) = (screen.theme, areas.title);
    // Without a running job nothing updates the time.
    let clock = screen.ticks().then(|| moment::short(screen.now(), &screen.ctx()));
    let clock = clock.unwrap_or_default();
    let width = clock.len() as u16 + 1;
    let rest = Rect { width: area.width.saturating_sub(width), ..area };
    let right = Rect { x: area.x + rest.width, width: area.width - rest.width, ..area };
    line(to, right, 0, &format!(" {clock}"), theme.weak());
    let node = screen.picture.node.as_ref().map_or("", |node| node.host.name.as_str());
    let is_compact = areas.tabs.height > 0;
    let alert = alert(screen);
    let left = if !is_compact {
        let own = if screen.is_wide() { "slotd top  " } else { "" };
        let name = (format!("{own}{node}  "), theme.strong());
        [vec![name], counts(screen)].concat()
    } else if alert.is_none() {
        host::summary(screen)
    } else {
        Vec::new()
    };
    let rest = words(to, rest, &left);
    let Some(alert) = alert else { return legend(screen, to, rest, is_compact) };
    line(to, rest, 0, &fit(theme, &shown(&alert), rest.width), theme.alarm());
}

/// Returns the number of jobs in each state.
fn counts(screen: &Screen) -> Vec<(String, Style)> {
    let theme = screen.theme;
    let of = |place: Place| &screen.panes[place as usize];
    let (waiting, ended) = (of(Place::Waiting), of(Place::Ended));
    let all = [
        ("R", "running", Ink::Running, of(Place::Running).count, true),
        ("PD", "pending", Ink::Pending, waiting.count - waiting.special, true),
        ("H", "held", Ink::Off, waiting.special, false),
        ("F", "failed", Ink::Failed, ended.special, false),
    ];
    let counts = all.into_iter().filter(|(_, _, _, count, always)| *always || *count > 0);
    let words = counts.flat_map(|(letters, word, ink, count, _)| {
        let word = if screen.is_wide() { format!(" {word}  ") } else { "  ".to_owned() };
        [
            (letters.to_owned(), theme.ink(ink).add_modifier(Modifier::BOLD)),
            (format!(" {count}"), Style::new()),
            (word, theme.weak()),
        ]
    });
    words.collect()
}

/// Explains the characters of bars, if there is space.
fn legend(screen: &Screen, to: &mut Buffer, rest: Rect, is_compact: bool) {
    let theme = screen.theme;
    let [used, allocated, free] = theme.bar();
    let text = format!("{used} used  {allocated} allocated  {free} free  ");
    let width = Span::raw(text.as_str()).width() as u16;
    if !is_compact && rest.width >= width {
        let at = Rect { x: rest.x + rest.width - width, width, ..rest };
        line(to, at, 0, &text, theme.weak());
    }
}

/// Draws the names of the lists, if only one of them fits.
fn tabs(screen: &Screen, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    fill(to, area, theme.heading());
    for (i, (at, text)) in screen.tabs().into_iter().enumerate() {
        let style = if i == screen.focus {
            theme.chosen().patch(theme.strong())
        } else {
            theme.heading().patch(theme.weak())
        };
        line(to, at, 0, &text, style);
    }
}
