//! The lines at the bottom: the filter, what is known about the selected job, and the keys.

use super::cells;
use super::text::{fit, line, words};
use crate::live::Place;
use crate::live::picture::label;
use crate::tui::keys::Spot;
use crate::tui::log::escaped;
use crate::tui::state::{Screen, Typing};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use slotd_model::JobState;
use slotd_model::view::JobView;
use slotd_render::why::{self, Names};
use slotd_render::{job as facts, moment, seff};

/// Draws the filter, if there is one.
pub fn filter(screen: &Screen, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    let is_typed = matches!(screen.typing, Some(Typing::Filter));
    let keys = if is_typed { "_   Enter keep  Esc clear" } else { "   Esc clear" };
    let all = [
        ("/".to_owned(), theme.strong()),
        (escaped(&screen.filter), Style::new()),
        (keys.to_owned(), theme.weak()),
    ];
    words(to, area, &all);
}

/// Draws a question, the typed text, a message, or a sentence about the selected job.
pub fn status(screen: &Screen, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    let (text, style) = match (&screen.question, &screen.typing, &screen.message) {
        (Some(question), _, _) => (question.text.clone(), theme.alarm()),
        (_, Some(Typing::Search(text)), _) => (format!("search: {text}_"), theme.strong()),
        (None, _, None) if searching(screen).is_some() => {
            (searching(screen).unwrap_or_default(), theme.strong())
        }
        (_, _, Some(message)) => (message.clone(), theme.strong()),
        (None, _, None) => (sentence(screen), Style::new()),
    };
    line(to, area, 0, &fit(theme, &escaped(&text), area.width), style);
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
    let words = match Place::of(job.run.state) {
        Place::Running => running(screen, job),
        Place::Waiting => waiting(screen, job),
        Place::Ended => ended(screen, job),
    };
    format!("{}: {words}", label(job))
}

fn running(screen: &Screen, job: &JobView) -> String {
    let ctx = screen.ctx();
    let mut all = Vec::new();
    if let Some(end) = facts::end_or_expected(job, &ctx) {
        let left = moment::span(end.since(screen.now()).as_secs());
        all.push(format!("{left} to its limit"));
    }
    if let Some(now) = screen.picture.usage.get(&job.id) {
        let (used, of) = cells::of(now.mem_kb / 1024, job.tres.mem_mb);
        all.push(format!("uses {used} of {of}"));
        all.extend(now.cpus.map(|cpus| format!("{cpus:.1} of {} CPUs", job.tres.cpus)));
    }
    all.extend(job.next_run.map(|at| format!("runs again at {}", moment::short(at, &ctx))));
    if job.run.state != JobState::Running {
        all.insert(0, job.run.state.name().to_lowercase());
    }
    all.join(", ")
}

fn waiting(screen: &Screen, job: &JobView) -> String {
    let blocker = job.blockers.first().map(|blocker| blocker.text.as_str());
    let why = blocker.or(job.run.system_comment.as_deref()).unwrap_or(job.run.reason.name());
    let turn = screen.picture.turn(job.id).map(|n| format!("number {n} in the queue"));
    let start = job.next_run.or(job.expected_start);
    let start = start.map(|at| format!("starts about {}", moment::short(at, &screen.ctx())));
    let all = [Some(why.to_owned()), turn, start];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns the reasons of `slotd why`, without its first line, which repeats the row.
fn ended(screen: &Screen, job: &JobView) -> String {
    let names = Names {
        signal: &screen.words.signal,
        user: &screen.words.user,
        memory_is_enforced: &|| true,
    };
    let text = why::print(job, None, &screen.ctx(), &names);
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    if !lines.is_empty() {
        return lines.join(" ");
    }
    let used = cells::of(seff::recorded_usage(job).max_rss_kb / 1024, job.tres.mem_mb);
    format!("{}, used at most {} of {}", job.run.state.name().to_lowercase(), used.0, used.1)
}

/// Draws the key hints, the most important ones first. The help lists all keys.
pub fn keys(screen: &Screen, to: &mut Buffer, area: Rect, spot: Spot) {
    for (row, hints) in (0..area.height).zip(screen.foot(spot)) {
        let style = |hint: &(&'static str, &'static str)| {
            let key = (hint.0.to_owned(), screen.theme.strong());
            [key, (format!(" {}  ", hint.1), screen.theme.weak())]
        };
        let all: Vec<_> = hints.iter().flat_map(style).collect();
        words(to, Rect { y: area.y + row, height: 1, ..area }, &all);
    }
}
