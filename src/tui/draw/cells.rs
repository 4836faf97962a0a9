//! The texts of the cells of a row.

use crate::live::Place;
use crate::tui::columns::Field;
use crate::tui::pane::{Group, Key, Pane, Row};
use crate::tui::state::Screen;
use crate::tui::theme::{Ink, badge};
use ratatui::style::{Modifier, Style};
use slotd_model::view::JobView;
use slotd_model::{End, JobId, JobState, Reason, Timestamp};
use slotd_render::{job as facts, moment, seff};

/// A text in its style, followed by a less important one.
#[derive(Default)]
pub struct Cell {
    pub text: String,
    pub style: Style,
    pub weak: String,
}

impl Cell {
    fn plain(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

/// The share of the time limit from which its end is near, and the share of the memory from which
/// it is nearly used up.
pub const LATE: f64 = 0.8;
const FULL: f64 = 0.95;

/// Returns the text of a cell.
pub fn cell(screen: &Screen, pane: &Pane, row: Row, field: Field) -> Cell {
    match (field, row.key) {
        (Field::Id, _) => {
            Cell { text: screen.id_of(row), style: screen.theme.weak(), ..Cell::default() }
        }
        (Field::Name, _) => Cell::plain(screen.name_of(pane, row)),
        (_, Key::Job(id)) => job_cell(screen, field, id),
        (_, Key::Array(array)) => match pane.group(array) {
            Some(group) => array_cell(screen, pane.place, field, array, group),
            None => Cell::default(),
        },
    }
}

fn job_cell(screen: &Screen, field: Field, id: JobId) -> Cell {
    let Some(job) = screen.picture.jobs.get(&id) else { return Cell::default() };
    let detailed = screen.picture.detailed(id).unwrap_or(job);
    match field {
        Field::State => {
            let (letters, ink) = badge(job);
            let style = screen.theme.ink(ink).add_modifier(Modifier::BOLD);
            Cell { text: letters.to_owned(), style, ..Cell::default() }
        }
        Field::Id | Field::Name => Cell::default(),
        Field::User => Cell::plain(job.request.user.clone()),
        Field::Partition => Cell::plain(job.partition.clone()),
        Field::Cpus => cpus(screen, job, detailed),
        Field::Memory => memory(screen, job, detailed),
        Field::Gpus => gpus(screen, job, detailed),
        Field::When => when(screen, job, detailed),
        Field::Last => match Place::of(job.run.state) {
            Place::Running => running(screen, job),
            Place::Waiting => Cell::plain(waits(screen, job, detailed)),
            Place::Ended => ended(screen, job, detailed),
        },
    }
}

/// Returns the CPUs in use on average, `None` if the use is not known.
fn mean_cpus(screen: &Screen, job: &JobView, detailed: &JobView) -> Option<f64> {
    let wall = job.elapsed(screen.now());
    let is_known = screen.picture.details.contains_key(&job.id) && !wall.is_zero();
    let usage = seff::recorded_usage(detailed);
    let busy = usage.user_us.saturating_add(usage.system_us) as f64;
    is_known.then(|| busy / wall.as_micros() as f64)
}

fn cpus(screen: &Screen, job: &JobView, detailed: &JobView) -> Cell {
    let used = match Place::of(job.run.state) {
        Place::Running => screen.picture.usage.get(&job.id).and_then(|now| now.cpus),
        Place::Waiting => None,
        Place::Ended => mean_cpus(screen, job, detailed),
    };
    match used {
        Some(used) => Cell {
            text: format!("{used:.1}"),
            weak: format!("/{}", job.tres.cpus),
            ..quiet(screen, job)
        },
        None => Cell { text: job.tres.cpus.to_string(), ..quiet(screen, job) },
    }
}

/// Returns the style of figures: those of ended jobs matter less.
fn quiet(screen: &Screen, job: &JobView) -> Cell {
    let style = if job.run.state.is_terminal() { screen.theme.weak() } else { Style::new() };
    Cell { style, ..Cell::default() }
}

fn memory(screen: &Screen, job: &JobView, detailed: &JobView) -> Cell {
    let kb = match Place::of(job.run.state) {
        Place::Running => screen.picture.usage.get(&job.id).map(|now| now.mem_kb),
        Place::Waiting => None,
        Place::Ended => Some(seff::recorded_usage(detailed).max_rss_kb),
    };
    let mb = job.tres.mem_mb;
    let Some(kb) = kb.filter(|kb| *kb > 0) else {
        return Cell { text: size(mb), ..quiet(screen, job) };
    };
    let (text, weak) = of(kb / 1024, mb);
    let is_full = job.run.state.is_active() && kb as f64 >= FULL * 1024.0 * mb as f64;
    let style = if is_full { screen.theme.ink(Ink::Pending) } else { quiet(screen, job).style };
    Cell { text, weak: format!("/{weak}"), style }
}

/// Formats two sizes in MB with the unit of the second one, unless the first is much smaller:
/// `3.8`, `4G`.
pub fn of(part: u64, whole: u64) -> (String, String) {
    let gb = part as f64 / 1024.0;
    match (part, whole) {
        (_, 0..1024) => (part.to_string(), format!("{whole}M")),
        (0..100, _) => (format!("{part}M"), size(whole)),
        _ if gb < 9.95 => (format!("{gb:.1}"), size(whole)),
        _ => (format!("{gb:.0}"), size(whole)),
    }
}

/// Formats a size for quick reading: `800M`, `1.5G`, `64G`.
pub fn size(mb: u64) -> String {
    match mb {
        0..1024 => format!("{mb}M"),
        mb if mb.is_multiple_of(1024) || mb >= 100 << 10 => format!("{:.0}G", mb as f64 / 1024.0),
        mb => format!("{:.1}G", mb as f64 / 1024.0),
    }
}

fn gpus(screen: &Screen, job: &JobView, detailed: &JobView) -> Cell {
    if job.tres.gpus == 0 {
        return Cell::default();
    }
    let busy = match Place::of(job.run.state) {
        Place::Running => screen.picture.usage.get(&job.id).and_then(|now| now.gpu),
        Place::Waiting => None,
        Place::Ended => {
            let gpu = seff::recorded_usage(detailed).gpu;
            gpu.busy_sum.checked_div(gpu.readings)
        }
    };
    let text = busy.map_or_else(|| job.tres.gpus.to_string(), |busy| format!("{busy}%"));
    Cell { text, ..quiet(screen, job) }
}

fn when(screen: &Screen, job: &JobView, detailed: &JobView) -> Cell {
    let theme = screen.theme;
    let clock =
        |at: Option<Timestamp>| at.map(|at| moment::short(at, &screen.ctx())).unwrap_or_default();
    match job.run.state {
        JobState::Pending => match badge(job) {
            ("!", ink) => {
                Cell { text: "never".to_owned(), style: theme.ink(ink), ..Cell::default() }
            }
            _ => Cell::plain(clock(detailed.expected_start)),
        },
        JobState::Ended(_) => {
            Cell { text: clock(job.run.end), style: theme.weak(), ..Cell::default() }
        }
        _ => {
            let is_late = share(screen, job).is_some_and(|share| share >= LATE);
            let style = if is_late {
                theme.ink(Ink::Pending).add_modifier(Modifier::BOLD)
            } else {
                Style::new()
            };
            Cell {
                text: clock(facts::end_or_expected(detailed, &screen.ctx())),
                style,
                ..Cell::default()
            }
        }
    }
}

/// Returns the share of the time limit that a job has used.
pub fn share(screen: &Screen, job: &JobView) -> Option<f64> {
    let limit = job.request.time_limit_secs.filter(|limit| *limit > 0)?;
    Some(job.elapsed(screen.now()).as_secs_f64() / limit as f64)
}

fn running(screen: &Screen, job: &JobView) -> Cell {
    let ran = moment::span(job.elapsed(screen.now()).as_secs());
    if job.run.state != JobState::Running {
        return Cell::plain(job.run.state.name().to_lowercase());
    }
    match (job.request.time_limit_secs, share(screen, job)) {
        (Some(limit), _) if screen.is_wide() => {
            Cell { text: ran, weak: format!(" of {}", moment::span(limit)), ..Cell::default() }
        }
        (Some(_), Some(share)) => Cell::plain(format!("{:.0}%", share * 100.0)),
        _ => Cell { text: ran, weak: " no limit".to_owned(), ..Cell::default() },
    }
}

/// Returns why a pending job waits, in a few words.
fn waits(screen: &Screen, job: &JobView, detailed: &JobView) -> String {
    let words = detailed.run.system_comment.as_deref();
    match (job.run.reason, words, &detailed.request.recurrence) {
        (Reason::BeginTime, _, Some(recurrence)) => format!("its next run ({recurrence})"),
        (Reason::Dependency | Reason::DependencyNeverSatisfied, ..)
            if !detailed.dependency.is_empty() =>
        {
            dependency_in_words(&detailed.dependency)
        }
        (Reason::Priority, None, _) => turn(screen, job),
        (_, Some(words), _) => words.strip_prefix("waits for ").unwrap_or(words).to_owned(),
        (reason, None, _) => reason_in_words(reason).to_owned(),
    }
}

/// Returns the job at the head of the queue, which the others are behind, and the number of jobs
/// between them: `behind 12 +3`.
fn turn(screen: &Screen, job: &JobView) -> String {
    let head = screen.picture.list(Place::Waiting).next();
    let head = head.map(|head| head.array_job_id().unwrap_or(head.id));
    match (screen.picture.turn(job.id), head) {
        (Some(1), _) => "next in line".to_owned(),
        (Some(2), Some(head)) => format!("behind {head}"),
        (Some(n), Some(head)) => format!("behind {head} +{}", n - 2),
        _ => reason_in_words(Reason::Priority).to_owned(),
    }
}

/// Turns `afterok:12(unfulfilled),afterany:13_*(unfulfilled)` into `12 to complete and 1 more`.
fn dependency_in_words(text: &str) -> String {
    let mut terms = text.split([',', '?']);
    let term = terms.next().unwrap_or_default();
    let (kind, named) = term.split_once(':').unwrap_or((term, ""));
    let (named, state) = named.split_once('(').unwrap_or((named, ""));
    let job = named.trim_end_matches("_*");
    let words = match (kind, state) {
        ("afterok" | "aftercorr", "failed)") => format!("{job}, which did not complete"),
        (_, "failed)") => format!("{job}, in vain"),
        ("afterok" | "aftercorr", _) => format!("{job} to complete"),
        ("afternotok", _) => format!("{job} to fail"),
        ("after", _) => format!("{job} to start"),
        ("afterany", _) => format!("{job} to end"),
        _ if term.starts_with("singleton") => "jobs of its name".to_owned(),
        _ => term.to_owned(),
    };
    match terms.count() {
        0 => words,
        more => format!("{words} and {more} more"),
    }
}

/// Returns the usual reasons in words, and the others as Slurm names them.
fn reason_in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::None => "its turn",
        Reason::Priority => "jobs ahead of it",
        Reason::Resources => "free resources",
        Reason::Exclusive => "an empty host",
        Reason::Dependency => "another job",
        Reason::BeginTime => "its begin time",
        Reason::JobHeldUser | Reason::SpecialExit => "held by you",
        Reason::JobHeldAdmin => "held by slotd",
        Reason::JobArrayTaskLimit => "tasks of its array",
        Reason::Licenses => "a license",
        Reason::Reservation => "its reservation",
        Reason::ReservedForMaintenance => "the end of a maintenance",
        Reason::PartitionDown => "its partition to open",
        other => other.name(),
    }
}

/// Returns how a job ended, in a few words.
fn ended(screen: &Screen, job: &JobView, detailed: &JobView) -> Cell {
    let JobState::Ended(end) = job.run.state else { return Cell::default() };
    let ran = moment::span(job.elapsed(screen.now()).as_secs());
    let limit = job.request.time_limit_secs.map(moment::span);
    let exit = facts::recorded_exit(detailed);
    let text = match end {
        End::Completed => match limit {
            Some(limit) => format!("{ran} of {limit}"),
            None => ran,
        },
        End::Failed if detailed.run.exit.signal > 0 => {
            format!("{} after {ran}", (screen.words.signal)(detailed.run.exit.signal))
        }
        End::Failed if exit.status > 0 => format!("exit {} after {ran}", exit.status),
        End::Timeout => match &detailed.run.ended_reservation {
            Some(name) => format!("reservation {name} ended after {ran}"),
            None => format!("reached its limit of {}", limit.unwrap_or(ran)),
        },
        End::OutOfMemory => format!("out of memory: it had {}", size(job.tres.mem_mb)),
        End::Cancelled if job.run.start.is_none() => "cancelled before its start".to_owned(),
        End::Cancelled => format!("cancelled after {ran}"),
        other => format!("{} after {ran}", other.name().to_lowercase().replace('_', " ")),
    };
    let style = match badge(job) {
        (_, ink @ Ink::Failed) => screen.theme.ink(ink),
        _ => screen.theme.weak(),
    };
    Cell { text, style, ..Cell::default() }
}

/// Returns a cell of a row that combines several records of an array.
fn array_cell(screen: &Screen, place: Place, field: Field, array: JobId, group: &Group) -> Cell {
    let Some(first) = group.first() else { return Cell::default() };
    let progress = screen.picture.progress(array);
    let theme = screen.theme;
    let failed = |style: Style| {
        if progress.failed > 0 { theme.ink(Ink::Failed) } else { style }
    };
    match field {
        Field::State if place == Place::Ended && progress.failed > 0 => {
            let style = theme.ink(Ink::Failed).add_modifier(Modifier::BOLD);
            Cell { text: End::Failed.code().to_owned(), style, ..Cell::default() }
        }
        Field::Cpus if place != Place::Ended => Cell::plain(group.cpus.to_string()),
        Field::Cpus | Field::Memory | Field::Gpus => Cell::default(),
        Field::When if place == Place::Running => Cell::default(),
        Field::Last if place != Place::Waiting => {
            let text = format!("{}/{}", progress.done(), progress.all());
            let weak = match progress.failed {
                0 => " done".to_owned(),
                failed => format!(" done, {failed} failed"),
            };
            let style = if place == Place::Ended { failed(theme.weak()) } else { Style::new() };
            Cell { text, weak, style }
        }
        other => job_cell(screen, other, first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_shown_in_words() {
        for (text, words) in [
            ("afterok:12(unfulfilled)", "12 to complete"),
            ("afterany:13_*(unfulfilled),afterok:12(unfulfilled)", "13 to end and 1 more"),
            ("after:12+5(unfulfilled)", "12+5 to start"),
            ("afternotok:12(unfulfilled)?afterok:9(unfulfilled)", "12 to fail and 1 more"),
            ("afterok:35(failed)", "35, which did not complete"),
            ("singleton(unfulfilled)", "jobs of its name"),
            ("expand:7(unfulfilled)", "expand:7(unfulfilled)"),
        ] {
            assert_eq!(dependency_in_words(text), words);
        }
    }
}
