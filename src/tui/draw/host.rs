//! The host: its allocated resources with the jobs that have them, and its usage.

use super::bars::{self, Segment};
use super::line;
use crate::live::link::HOST_WINDOW;
use crate::live::picture::label;
use crate::tui::areas::MOST_GPUS;
use crate::tui::plot::Plot;
use crate::tui::state::Screen;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use slotd_model::host_use::{HostBin, HostUse};
use slotd_model::view::{JobView, NodeView};
use slotd_render::size::{Units, mib};

/// The width of the label in front of a bar.
const NAME: u16 = 5;

pub fn draw(screen: &Screen, to: &mut Buffer, area: Rect) {
    let Some(node) = &screen.picture.node else { return };
    let bar = (area.width / 3).clamp(10, 60);
    let total = node.host.tres();
    let load = f64::from(node.load_centi) / 100.0;
    let busy =
        screen.cpu_share.map(|share| format!(", {:.0}% used", share * 100.0)).unwrap_or_default();
    let cpus = format!("{}/{} allocated{busy}, load {load:.2}", node.allocated.cpus, total.cpus);
    let free = row(
        screen,
        to,
        area,
        0,
        bar,
        ("CPU", f64::from(total.cpus), &|job| f64::from(job.tres.cpus)),
        &cpus,
    );
    last_hour(screen, to, free, 0, f64::from(total.cpus), |bin| bin.cpus);
    let used = node.host.machine_mem_mb.max(total.mem_mb).saturating_sub(node.free_mem_mb);
    let memory = format!(
        "{}/{} allocated, {} used",
        size(node.allocated.mem_mb),
        size(total.mem_mb),
        size(used)
    );
    let free = row(
        screen,
        to,
        area,
        1,
        bar,
        ("MEM", total.mem_mb as f64, &|job| job.tres.mem_mb as f64),
        &memory,
    );
    last_hour(
        screen,
        to,
        free,
        1,
        node.host.machine_mem_mb.max(total.mem_mb) as f64 * 1024.0,
        |bin| bin.mem_kb,
    );
    for (i, gpu) in (2..).zip(node.host.gpus.iter().take(MOST_GPUS)) {
        gpu_row(screen, to, area, i, bar, node, gpu.id);
    }
}

/// Formats a size for quick reading: `1.5G`.
pub fn size(mb: u64) -> String {
    if mb < 1024 || mb.is_multiple_of(1024) {
        return mib(mb, Units::Exact);
    }
    format!("{:.1}G", mb as f64 / 1024.0)
}

/// The width of the plot of the last hour, at the right of a row. Its label comes before it.
const HOUR: u16 = 30;
const HOUR_NAME: &str = "last hour ";

/// Draws the last hour as bars if the row is wide enough.
fn last_hour(
    screen: &Screen,
    to: &mut Buffer,
    rest: Rect,
    at: u16,
    top: f64,
    amount: impl Fn(&HostBin) -> f64,
) {
    let name = HOUR_NAME.len() as u16;
    let Some((now, spans)) = screen.picture.host_use.as_ref().filter(|_| rest.width > HOUR + name)
    else {
        return;
    };
    let from = now.plus_us(-(HOST_WINDOW.cast_signed() * 1_000_000));
    let found = HostUse::within(spans, from, *now, HOUR.into());
    if found.whole.is_none() || at >= rest.height {
        return;
    }
    let left = rest.x + rest.width - HOUR;
    line(to, Rect { x: left - name, width: name, ..rest }, at, HOUR_NAME, screen.theme.weak());
    // Draw zero as a tiny amount, so that it differs from missing data.
    let seen = |value: Option<f64>| value.map_or(0.0, |value| value.max(f64::MIN_POSITIVE));
    let values = found.column(amount).into_iter().map(seen).collect();
    let plot = Plot { title: String::new(), values, top };
    plot.draw(
        to,
        Rect { x: left, y: rest.y + at, width: HOUR, height: 1 },
        screen.theme.ascii,
        Style::new(),
    );
}

type Amount<'a> = (&'static str, f64, &'a dyn Fn(&JobView) -> f64);

/// Draws one row and returns the free area at its right.
fn row(
    screen: &Screen,
    to: &mut Buffer,
    area: Rect,
    at: u16,
    bar: u16,
    what: Amount<'_>,
    text: &str,
) -> Rect {
    let (name, whole, of) = what;
    line(to, area, at, name, screen.theme.strong());
    if at >= area.height || area.width < NAME + bar {
        return Rect::default();
    }
    let place = Rect { x: area.x + NAME, y: area.y + at, width: bar, height: 1 };
    let jobs: Vec<&JobView> = screen.picture.running().filter(|job| of(job) > 0.0).collect();
    let segments: Vec<Segment> = (0..)
        .zip(&jobs)
        .map(|(i, job)| Segment {
            amount: of(job),
            style: bars::colour(screen.theme, job.id.0),
            odd: i % 2 == 1,
        })
        .collect();
    bars::draw(to, place, screen.theme, whole, &segments);
    let mut rest =
        Rect { x: place.x + bar + 1, width: area.width.saturating_sub(NAME + bar + 1), ..area };
    line(to, rest, at, text, Style::new());
    // List the jobs as far as the width allows.
    skip(&mut rest, text.len() + 2);
    for job in jobs {
        let name = label(job);
        line(to, rest, at, &name, bars::colour(screen.theme, job.id.0));
        skip(&mut rest, name.len() + 1);
    }
    rest
}

fn skip(rest: &mut Rect, by: usize) {
    let by = u16::try_from(by).unwrap_or(u16::MAX).min(rest.width);
    rest.x += by;
    rest.width -= by;
}

fn gpu_row(
    screen: &Screen,
    to: &mut Buffer,
    area: Rect,
    at: u16,
    bar: u16,
    node: &NodeView,
    gpu: u32,
) {
    line(to, area, at, &format!("GPU{gpu}"), screen.theme.strong());
    if at >= area.height || area.width < NAME + bar {
        return;
    }
    let has = |job: &&JobView| {
        let job = screen.picture.details.get(&job.id);
        job.and_then(|job| job.run.alloc.as_ref()).is_some_and(|alloc| alloc.gpu_ids.contains(&gpu))
    };
    let jobs: Vec<&JobView> = screen.picture.running().filter(has).collect();
    let busy = jobs.iter().filter_map(|job| screen.picture.usage.get(&job.id)?.gpu).max();
    let place = Rect { x: area.x + NAME, y: area.y + at, width: bar, height: 1 };
    let style = jobs.first().map(|job| bars::colour(screen.theme, job.id.0)).unwrap_or_default();
    let share = busy.map_or(if jobs.is_empty() { 0.0 } else { 1.0 }, |busy| busy as f64 / 100.0);
    bars::single(to, place, screen.theme, share, style);
    let users = match &jobs[..] {
        [] => "free".to_owned(),
        jobs => jobs.iter().map(|job| label(job)).collect::<Vec<_>>().join(" "),
    };
    let used = busy.map(|busy| format!(", {busy}% used")).unwrap_or_default();
    let model =
        node.host.gpus.iter().find(|known| known.id == gpu).and_then(|gpu| gpu.model.as_deref());
    let text = format!("{users}{used}  {}", model.unwrap_or_default());
    let rest =
        Rect { x: place.x + bar + 1, width: area.width.saturating_sub(NAME + bar + 1), ..area };
    line(to, rest, at, text.trim_end(), Style::new());
}
