//! The lists: a heading, and a row for each job or array, with the columns that fit the width.

use super::{bars, host, line};
use crate::live::picture::{Place, label};
use crate::tui::log::shown;
use crate::tui::order::Sort;
use crate::tui::pane::{Key, Pane, Row};
use crate::tui::state::Screen;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use slotd_model::view::JobView;
use slotd_model::{End, JobId, JobState, Reason};
use slotd_render::{job as words, seff, text, time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Position,
    Id,
    Name,
    User,
    Partition,
    Cpus,
    Memory,
    Gpus,
    CpuUse,
    MemUse,
    GpuUse,
    Bar,
    Time,
    Start,
    Reason,
    State,
    Exit,
    Elapsed,
    CpuShare,
    MemShare,
    Ago,
}

impl Field {
    /// Returns the heading, the width, and whether the text is right-justified.
    fn form(self) -> (&'static str, u16, bool) {
        match self {
            Field::Position => ("#", 5, true),
            Field::Id => ("JOB", 12, false),
            Field::Name => ("NAME", 12, false),
            Field::User => ("USER", 8, false),
            Field::Partition => ("PARTITION", 9, false),
            Field::Cpus => ("CPUS", 4, true),
            Field::Memory => ("MEM", 6, true),
            Field::Gpus => ("GPUS", 4, true),
            Field::CpuUse => ("CPU%", 5, true),
            Field::MemUse => ("MEM USED", 13, true),
            Field::GpuUse => ("GPU%", 5, true),
            Field::Bar => ("", 10, false),
            Field::Time => ("TIME/LIMIT", 17, true),
            Field::Start => ("START", 11, true),
            Field::Reason => ("WAITS FOR", 19, false),
            Field::State => ("STATE", 13, false),
            Field::Exit => ("EXIT", 5, true),
            Field::Elapsed => ("TIME", 10, true),
            Field::CpuShare => ("CPU%", 5, true),
            Field::MemShare => ("MEM%", 5, true),
            Field::Ago => ("ENDED", 13, true),
        }
    }
}

/// Returns the columns of a list of this width, each with its own width. Names get the remaining
/// width.
fn columns(place: Place, width: u16) -> Vec<(Field, u16)> {
    use Field::*;
    // Each column with the minimum screen width at which it is shown.
    let all: &[(Field, u16)] = match place {
        Place::Running => &[
            (Id, 0),
            (Name, 0),
            (User, 100),
            (Partition, 120),
            (Cpus, 0),
            (CpuUse, 0),
            (MemUse, 70),
            (GpuUse, 110),
            (Bar, 0),
            (Time, 60),
        ],
        Place::Waiting => &[
            (Position, 0),
            (Id, 0),
            (Name, 0),
            (User, 100),
            (Partition, 120),
            (Cpus, 0),
            (Memory, 60),
            (Gpus, 110),
            (Start, 60),
            (Reason, 0),
        ],
        Place::Ended => &[
            (Id, 0),
            (Name, 0),
            (User, 100),
            (Partition, 120),
            (State, 0),
            (Exit, 0),
            (Elapsed, 60),
            (CpuShare, 70),
            (MemShare, 70),
            (Ago, 85),
        ],
    };
    let mut columns: Vec<(Field, u16)> = all
        .iter()
        .filter(|(_, least)| width >= *least)
        .map(|(field, _)| (*field, field.form().1))
        .collect();
    let taken: u16 = columns.iter().map(|(_, width)| width + 1).sum::<u16>() + 1;
    let mut left = width.saturating_sub(taken);
    for (wanted, most) in [
        (Field::Bar, 20),
        (Field::Reason, 40),
        (Field::Name, 12),
        (Field::Id, 8),
        (Field::Reason, 60),
        (Field::Name, 40),
    ] {
        let more = left.min(most);
        if let Some((_, width)) = columns.iter_mut().find(|(field, _)| *field == wanted) {
            *width += more;
            left -= more;
        }
    }
    columns
}

pub fn draw(screen: &Screen, pane: &Pane, is_focused: bool, to: &mut Buffer, area: Rect) {
    let columns = columns(pane.place, area.width);
    heading(screen, pane, is_focused, to, area, &columns);
    let lines = usize::from(area.height.saturating_sub(1));
    for (i, row) in pane.shown(lines).enumerate() {
        let y = 1 + u16::try_from(i).unwrap_or(u16::MAX);
        let is_chosen = is_focused && pane.top + i == pane.at;
        draw_row(
            screen,
            pane,
            row,
            is_chosen,
            to,
            Rect { y: area.y + y, height: 1, ..area },
            &columns,
        );
    }
}

fn heading(
    screen: &Screen,
    pane: &Pane,
    is_focused: bool,
    to: &mut Buffer,
    area: Rect,
    columns: &[(Field, u16)],
) {
    let theme = screen.theme;
    let style = if is_focused { theme.chosen(theme.strong()) } else { theme.strong() };
    let name = match pane.place {
        Place::Running => "RUNNING",
        Place::Waiting => "WAITING",
        Place::Ended => "ENDED",
    };
    let order = match pane.sort {
        Sort::Queue => String::new(),
        sort => format!(" by {}", sort.name()),
    };
    let kept = if screen.filter.is_empty() {
        String::new()
    } else {
        format!(" matching {:?}", screen.filter)
    };
    let title = format!("{name}{order}{kept} ");
    // The name of the list replaces the heading of the ID, and any heading that it would cut.
    let at = if pane.place == Place::Waiting { 7 } else { 1 };
    let end = usize::from(at) + text::width(&title);
    let mut headings = String::from(" ");
    for (field, width) in columns {
        let (heading, _, right) = field.form();
        let width = usize::from(*width);
        let left = if right { width.saturating_sub(text::width(heading)) } else { 0 };
        let begin = text::width(&headings) + left;
        let is_cut = (usize::from(at)..end).contains(&begin);
        text::pad(&mut headings, if is_cut { "" } else { heading }, width, right);
        headings.push(' ');
    }
    line(to, area, 0, &" ".repeat(area.width.into()), style);
    line(to, area, 0, &headings, style);
    line(
        to,
        Rect { x: area.x + at, width: area.width.saturating_sub(at), ..area },
        0,
        &title,
        style,
    );
}

fn draw_row(
    screen: &Screen,
    pane: &Pane,
    row: Row,
    is_chosen: bool,
    to: &mut Buffer,
    area: Rect,
    columns: &[(Field, u16)],
) {
    let theme = screen.theme;
    if is_chosen {
        line(to, area, 0, &" ".repeat(area.width.into()), theme.chosen(Style::new()));
    }
    let mark = if screen.marks.contains(&row.key) { "*" } else { " " };
    let end = |style: Style| if is_chosen { theme.chosen(style) } else { style };
    line(to, area, 0, mark, end(theme.strong()));
    let mut x = area.x + 1;
    for (field, width) in columns {
        let cell = Rect { x, width: (*width).min((area.x + area.width).saturating_sub(x)), ..area };
        x += width + 1;
        if *field == Field::Bar {
            bar(screen, row, to, cell);
            continue;
        }
        let (text, style) = match row.key {
            Key::Job(id) => job_cell(screen, *field, id, row),
            Key::Array(array) => array_cell(screen, pane, *field, array),
        };
        let text = shown(&text);
        let mut padded = String::new();
        let text = text::cut(&text, cell.width.into());
        text::pad(&mut padded, text, cell.width.into(), field.form().2);
        line(to, cell, 0, &padded, end(style));
    }
}

/// Draws the share of the time limit that a job has used, or the progress of an array.
fn bar(screen: &Screen, row: Row, to: &mut Buffer, area: Rect) {
    let theme = screen.theme;
    match row.key {
        Key::Job(id) => {
            let Some(job) = screen.picture.jobs.get(&id) else { return };
            let Some(limit) = job.request.time_limit_secs.filter(|limit| *limit > 0) else {
                return;
            };
            let share = job.elapsed(screen.now()).as_secs_f64() / limit as f64;
            bars::single(to, area, theme, share, bars::colour(theme, id.0));
        }
        Key::Array(array) => {
            let progress = screen.picture.progress(array);
            let part =
                |amount: usize, style, odd| bars::Segment { amount: amount as f64, style, odd };
            let failed = progress.failed.min(progress.done());
            let segments = [
                part(progress.done() - failed, theme.state(JobState::Ended(End::Completed)), false),
                part(failed, theme.state(JobState::Ended(End::Failed)), true),
            ];
            bars::draw(to, area, theme, progress.all().max(1) as f64, &segments);
        }
    }
}

fn job_cell(screen: &Screen, field: Field, id: JobId, row: Row) -> (String, Style) {
    let plain = |text: String| (text, Style::new());
    let Some(job) = screen.picture.jobs.get(&id) else { return plain(String::new()) };
    let detailed = screen.picture.detailed(id).unwrap_or(job);
    let theme = screen.theme;
    match field {
        Field::Id if row.is_inner => plain(format!("  {}", label(job))),
        Field::Id if job.run.state.is_active() => (label(job), bars::colour(theme, id.0)),
        Field::Id => plain(label(job)),
        Field::Name => plain(job.request.name.clone()),
        Field::User => plain(job.request.user.clone()),
        Field::Partition => plain(job.partition.clone()),
        Field::Cpus => plain(job.tres.cpus.to_string()),
        Field::Memory => plain(host::size(job.tres.mem_mb)),
        Field::Gpus => {
            plain(if job.tres.gpus > 0 { job.tres.gpus.to_string() } else { String::new() })
        }
        Field::Position => plain(turn(screen, id)),
        Field::State => (job.run.state.name().to_owned(), theme.state(job.run.state)),
        Field::CpuUse | Field::MemUse | Field::GpuUse => plain(use_cell(screen, field, job)),
        Field::Time if job.run.state == JobState::Running => plain(times(screen, job)),
        Field::Time => (job.run.state.name().to_owned(), theme.state(job.run.state)),
        Field::Start => plain(start(screen, detailed)),
        Field::Reason => plain(reason(job, detailed)),
        Field::Bar => plain(String::new()),
        Field::Exit | Field::Elapsed | Field::CpuShare | Field::MemShare | Field::Ago => {
            plain(ended_cell(screen, field, job, detailed))
        }
    }
}

fn turn(screen: &Screen, id: JobId) -> String {
    screen.picture.turn(id).map(|n| n.to_string()).unwrap_or_default()
}

fn times(screen: &Screen, job: &JobView) -> String {
    let elapsed = time::short(job.elapsed(screen.now()).as_secs());
    match job.request.time_limit_secs {
        Some(limit) => format!("{elapsed}/{}", time::short(limit)),
        None => elapsed,
    }
}

fn start(screen: &Screen, job: &JobView) -> String {
    let Some(start) = job.expected_start else { return String::new() };
    format!("in {}", time::short(start.since(screen.now()).as_secs()))
}

fn reason(job: &JobView, detailed: &JobView) -> String {
    let words = detailed.run.system_comment.as_deref();
    match (job.run.reason, words) {
        (Reason::Dependency, _) if !detailed.dependency.is_empty() => detailed.dependency.clone(),
        (reason, Some(words)) => format!("{}: {words}", reason.name()),
        (reason, None) => reason.name().to_owned(),
    }
}

fn use_cell(screen: &Screen, field: Field, job: &JobView) -> String {
    let Some(now) = screen.picture.usage.get(&job.id) else { return String::new() };
    match field {
        Field::CpuUse => {
            let share =
                |cpus: f64| format!("{:.0}", cpus * 100.0 / f64::from(job.tres.cpus.max(1)));
            now.cpus.map(share).unwrap_or_default()
        }
        Field::MemUse => {
            format!("{}/{}", host::size(now.mem_kb / 1024), host::size(job.tres.mem_mb))
        }
        _ => now.gpu.map(|busy| busy.to_string()).unwrap_or_default(),
    }
}

fn ended_cell(screen: &Screen, field: Field, job: &JobView, detailed: &JobView) -> String {
    let usage = seff::recorded_usage(detailed);
    let percent = |part: f64, whole: f64| {
        if whole > 0.0 { format!("{:.0}", part / whole * 100.0) } else { String::new() }
    };
    let wall = job.elapsed(screen.now());
    let is_known = screen.picture.details.contains_key(&job.id) && !wall.is_zero();
    match field {
        Field::Exit if detailed.run.exit.signal > 0 => {
            format!("{}:{}", detailed.run.exit.status, detailed.run.exit.signal)
        }
        Field::Exit => words::recorded_exit(detailed).status.to_string(),
        Field::Elapsed => time::short(wall.as_secs()),
        Field::CpuShare if is_known => {
            let busy = usage.user_us.saturating_add(usage.system_us) as f64;
            percent(busy, wall.as_micros() as f64 * f64::from(job.tres.cpus))
        }
        Field::MemShare if is_known => {
            percent(usage.max_rss_kb as f64, job.tres.mem_mb as f64 * 1024.0)
        }
        Field::Ago => {
            let ago = job.run.end.map(|end| time::short(screen.now().since(end).as_secs()));
            ago.map(|ago| format!("{ago} ago")).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Returns a cell of a row that combines several records of an array.
fn array_cell(screen: &Screen, pane: &Pane, field: Field, array: JobId) -> (String, Style) {
    let Some(group) = pane.group(array) else { return (String::new(), Style::new()) };
    let first = group.first().and_then(|id| screen.picture.jobs.get(&id));
    let progress = screen.picture.progress(array);
    let text = match field {
        Field::Id => {
            format!("{} {array}_({})", if pane.is_open(array) { "-" } else { "+" }, group.tasks)
        }
        Field::Name => first.map(|job| job.request.name.clone()).unwrap_or_default(),
        Field::User => first.map(|job| job.request.user.clone()).unwrap_or_default(),
        Field::Partition => first.map(|job| job.partition.clone()).unwrap_or_default(),
        Field::Cpus => group.cpus.to_string(),
        Field::Position => group.first().map(|id| turn(screen, id)).unwrap_or_default(),
        Field::Time => format!("{}/{} done", progress.done(), progress.all()),
        Field::State if progress.failed > 0 => format!("{} failed", progress.failed),
        Field::State => first.map(|job| job.run.state.name().to_owned()).unwrap_or_default(),
        Field::Reason => first.map(|job| job.run.reason.name().to_owned()).unwrap_or_default(),
        _ => String::new(),
    };
    (text, Style::new())
}
