//! The host: what is used and allocated of its CPUs, memory and GPUs, and who has the GPUs.

use super::bars::{self, Segment};
use super::cells::{of, size};
use super::text::{fit, line};
use crate::live::link::HOST_WINDOW;
use crate::tui::areas::MOST_GPUS;
use crate::tui::log::shown;
use crate::tui::plot::Plot;
use crate::tui::state::Screen;
use crate::tui::theme::Ink;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use slotd_model::host_use::{GpuSpan, HostUse};
use slotd_model::view::{JobView, NodeView};

/// The width of the label in front of a bar.
const NAME: u16 = 5;

/// The least width of a bar.
const LEAST_BAR: u16 = 8;

/// The age, in milliseconds, up to which a sample counts as current.
const CURRENT: i64 = 60_000;

/// A resource of the host.
struct Part {
    name: String,
    /// The shares of the whole; `None` if the use is not known.
    used: Option<f64>,
    allocated: f64,
    /// The same figures at different lengths, the longest first.
    figures: Vec<String>,
    /// The text below the figures, if the screen is high enough: who has it.
    below: String,
    which: Which,
}

#[derive(Clone, Copy)]
enum Which {
    Cpus,
    Memory,
    Gpu(u32),
}

/// Draws the parts in columns of equal width.
pub fn draw(screen: &Screen, to: &mut Buffer, area: Rect) {
    let Some(node) = &screen.picture.node else { return };
    let parts = parts(screen, node);
    let (columns, lines) = screen.host_grid();
    let rows = parts.len().div_ceil(columns.max(1)) as u16;
    let width = area.width / columns.max(1) as u16;
    for (i, part) in (0u16..).zip(&parts) {
        let at = Rect {
            x: area.x + i / rows * width,
            y: area.y + i % rows * lines,
            width: width.saturating_sub(1),
            height: lines,
        };
        draw_part(screen, to, at.intersection(area), part);
    }
}

fn draw_part(screen: &Screen, to: &mut Buffer, area: Rect, part: &Part) {
    let theme = screen.theme;
    line(to, area, 0, &part.name, theme.strong());
    let area = Rect { x: area.x + NAME, width: area.width.saturating_sub(NAME), ..area };
    let most = (area.width * 9 / 20).clamp(12, 44);
    let fits = |text: &&String| Span::raw(text.as_str()).width() <= usize::from(most);
    let figures = part.figures.iter().find(fits).or(part.figures.last());
    let bar = Rect { width: area.width.saturating_sub(most + 1), ..area };
    let (bar, text) = if bar.width < LEAST_BAR {
        (Rect { width: 0, ..area }, area)
    } else {
        (bar, Rect { x: bar.x + bar.width + 1, width: most, ..area })
    };
    let used = part.used.unwrap_or(0.0).clamp(0.0, 1.0);
    let segments = [(used, 0), ((part.allocated - used).max(0.0), 1)];
    let style = theme.ink(Ink::Running);
    bars::draw(
        to,
        bar,
        theme,
        1.0,
        &segments.map(|(amount, kind)| Segment { amount, style, kind }),
    );
    let figures = figures.map_or("", String::as_str);
    line(to, text, 0, &fit(theme, &shown(figures), text.width), Style::new());
    line(to, text, 1, &fit(theme, &shown(&part.below), text.width), theme.weak());
    if area.height > 1 {
        last_hour(screen, to, Rect { y: bar.y + 1, height: 1, ..bar }, part.which);
    }
}

/// Returns the percentages of the parts in a few words, for low screens.
pub fn summary(screen: &Screen) -> Vec<(String, Style)> {
    let Some(node) = &screen.picture.node else { return Vec::new() };
    let words = parts(screen, node).into_iter().flat_map(|part| {
        let share = part.used.unwrap_or(part.allocated);
        let name = part.name.replace("GPU", "G");
        [
            (format!("{name} "), screen.theme.weak()),
            (format!("{:.0}% ", share * 100.0), screen.theme.strong()),
        ]
    });
    words.collect()
}

fn parts(screen: &Screen, node: &NodeView) -> Vec<Part> {
    let gpus =
        node.host.gpus.iter().take(MOST_GPUS).map(|gpu| gpu_part(screen, gpu.id, gpu.mem_mb));
    [cpus(screen, node), memory(node)].into_iter().chain(gpus).collect()
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn cpus(screen: &Screen, node: &NodeView) -> Part {
    let (has, all) = (node.allocated.cpus, node.host.tres().cpus);
    let load = f64::from(node.load_centi) / 100.0;
    let figures = match screen.cpu_share.map(percent) {
        Some(busy) => vec![
            format!("{busy} busy, {has} of {all} allocated, load {load:.2}"),
            format!("{busy} busy, {has} of {all} allocated"),
            format!("{busy} busy, {has}/{all} alloc"),
            format!("{busy}, {has}/{all} alloc"),
            format!("{busy}, {has}/{all}"),
        ],
        None => vec![
            format!("{has} of {all} allocated, load {load:.2}"),
            format!("{has} of {all} allocated"),
            format!("{has}/{all} alloc"),
        ],
    };
    Part {
        name: "CPU".to_owned(),
        used: screen.cpu_share,
        allocated: share(has.into(), all.into()),
        figures,
        below: String::new(),
        which: Which::Cpus,
    }
}

fn memory(node: &NodeView) -> Part {
    let (has, all) = (node.allocated.mem_mb, node.host.tres().mem_mb);
    let machine = node.host.machine_mem_mb.max(all);
    let used = machine.saturating_sub(node.free_mem_mb);
    let (text, whole) = of(used, machine);
    Part {
        name: "MEM".to_owned(),
        used: Some(share(used as f64, machine as f64)),
        allocated: share(has as f64, all as f64),
        figures: vec![
            format!("{text} of {whole} used, {} allocated", size(has)),
            format!("{text} of {whole} used"),
            format!("{text}/{whole} used"),
        ],
        below: String::new(),
        which: Which::Memory,
    }
}

fn gpu_part(screen: &Screen, id: u32, mem_mb: u64) -> Part {
    let owners: Vec<&JobView> =
        screen.picture.running().filter(|job| has_gpu(screen, job, id)).collect();
    let of_jobs = owners.iter().filter_map(|job| {
        let busy = screen.picture.usage.get(&job.id)?.gpu?;
        Some(busy as f64 / 100.0 / f64::from(job.tres.gpus.max(1)))
    });
    let sample = sample(screen, id);
    let busy = sample.and_then(|sample| Some(f64::from(sample.busy_milli?) / 1000.0));
    let busy = of_jobs.reduce(f64::max).or(busy);
    let memory = sample.filter(|_| mem_mb > 0).map(|sample| of(sample.mem_max_mb, mem_mb));
    let used = match (busy.map(percent), &memory) {
        (Some(busy), Some((part, whole))) => format!("{busy}, {part} of {whole}"),
        (Some(busy), None) => busy,
        (None, Some((part, whole))) => format!("{part} of {whole}"),
        (None, None) => String::new(),
    };
    let names = |name: fn(&JobView) -> String| match &owners[..] {
        [] => "free".to_owned(),
        owners => owners.iter().map(|job| name(job)).collect::<Vec<_>>().join(", "),
    };
    let by_name = names(|job| job.request.name.clone());
    let by_id = names(|job| job.id.to_string());
    let both = |name: &str| format!("{used}  {name}").trim().to_owned();
    let figures = if screen.host_grid().1 > 1 && !used.is_empty() {
        vec![used.clone()]
    } else {
        let short = busy.map(percent).unwrap_or_default();
        vec![both(&by_name), both(&by_id), format!("{short} {by_id}").trim().to_owned()]
    };
    Part {
        name: format!("GPU{id}"),
        used: busy,
        allocated: if owners.is_empty() { 0.0 } else { 1.0 },
        figures,
        below: if used.is_empty() { String::new() } else { by_name },
        which: Which::Gpu(id),
    }
}

fn has_gpu(screen: &Screen, job: &JobView, id: u32) -> bool {
    let job = screen.picture.details.get(&job.id);
    job.and_then(|job| job.run.alloc.as_ref()).is_some_and(|alloc| alloc.gpu_ids.contains(&id))
}

/// Returns the last sample of a GPU, if it is current.
fn sample(screen: &Screen, id: u32) -> Option<GpuSpan> {
    let (now, spans) = screen.picture.host_use.as_ref()?;
    let last = spans.iter().rev().find(|span| span.gpus.contains_key(&id))?;
    let is_current = now.0 / 1000 - last.to <= CURRENT;
    last.gpus.get(&id).copied().filter(|_| is_current)
}

/// Draws the use in the last hour below the bar.
fn last_hour(screen: &Screen, to: &mut Buffer, area: Rect, which: Which) {
    let Some((now, spans)) = &screen.picture.host_use else { return };
    let node = screen.picture.node.as_ref();
    let from = now.plus_us(-(HOST_WINDOW.cast_signed() * 1_000_000));
    let found = HostUse::within(spans, from, *now, area.width.into());
    let machine = node.map_or(0, |node| node.host.machine_mem_mb.max(node.host.mem_mb));
    let (top, values) = match which {
        Which::Cpus => (f64::from(found.cpus), found.column(|bin| bin.cpus)),
        Which::Memory => (machine as f64 * 1024.0, found.column(|bin| bin.mem_kb)),
        Which::Gpu(id) => (100.0, found.gpu_column(id, |bin| bin.busy)),
    };
    if found.whole.is_none() || area.width == 0 {
        return;
    }
    // Draw zero as a tiny amount, so that it differs from missing data.
    let seen = |value: Option<f64>| value.map_or(0.0, |value| value.max(f64::MIN_POSITIVE));
    let values = values.into_iter().map(seen).collect();
    let plot = Plot { title: String::new(), values, top };
    plot.draw(to, area, screen.theme.ascii, screen.theme.ink(Ink::Running));
}
