//! Plots made of cells: bars over time, on the screen or as lines of text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::bar;
use ratatui::widgets::{Sparkline, Widget};
use slotd_model::Timestamp;
use slotd_model::series::{JobSeries, StepSeries};
use slotd_model::view::JobView;
use slotd_render::host_use::Chart;
use slotd_render::size::glance;
use slotd_render::time::iso;
use slotd_render::{Ctx, job};

/// Bars of characters that every terminal has.
const LETTERS: bar::Set<'_> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "=",
    half: "=",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: "_",
    empty: " ",
};

/// A plot of an amount over time, and its maximum.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The description, with figures.
    pub title: String,
    pub values: Vec<f64>,
    /// The value at the top of the plot.
    pub top: f64,
}

/// The height of the bars in a plot printed as text, in lines.
const HEIGHT: u16 = 4;

/// The minimum and maximum width of a plot printed as text.
const WIDTHS: (u16, u16) = (20, 120);

impl Plot {
    /// Fills an area with bars, one per column.
    pub fn draw(&self, to: &mut Buffer, area: Rect, ascii: bool, style: Style) {
        // Draw at least one tick for any amount above zero.
        let ticks = f64::from(area.height) * 8.0;
        let of_top = |value: &f64| {
            if self.top > 0.0 { (value / self.top * ticks).clamp(0.0, ticks) } else { 0.0 }
        };
        let tick =
            |value: &f64| if *value > 0.0 { of_top(value).round().max(1.0) as u64 } else { 0 };
        let set = if ascii { LETTERS } else { bar::NINE_LEVELS };
        let bars = Sparkline::default()
            .data(self.values.iter().map(tick))
            .max(ticks as u64)
            .bar_set(set)
            .style(style);
        bars.render(area.intersection(to.area), to);
    }

    fn text(&self, width: u16, ascii: bool) -> String {
        let mut cells = Buffer::empty(Rect { x: 0, y: 0, width, height: HEIGHT });
        let area = cells.area;
        self.draw(&mut cells, area, ascii, Style::new());
        let line = |y: u16| (0..width).map(|x| cells[(x, y)].symbol()).collect::<String>();
        let lines: String = (0..HEIGHT).map(|y| line(y).trim_end().to_owned() + "\n").collect();
        format!("{}\n{lines}", self.title)
    }
}

/// Returns the plots of a job: CPUs, memory and GPUs against the allocation, and the transfers if
/// they are large enough.
pub fn of_job(view: &JobView, series: &JobSeries) -> Vec<Plot> {
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let has = job::allocated_or_asked(view);
    let cpus = series.column(|bin| bin.cpus);
    let memory = series.column(|bin| bin.mem_max_kb * 1024.0);
    let asked = has.mem_mb as f64 * f64::from(1 << 20);
    let mut plots = vec![
        Plot {
            title: format!(
                "CPUs in use: {:.2} of {}, peak {:.2}",
                mean(&cpus),
                has.cpus,
                most(&cpus)
            ),
            top: most(&cpus).max(f64::from(has.cpus)),
            values: cpus,
        },
        Plot {
            title: format!("Memory: peak {} of {}", glance(most(&memory)), glance(asked)),
            top: most(&memory).max(asked),
            values: memory,
        },
    ];
    if series.has_gpus {
        let (gpus, memory) =
            (series.column(|bin| bin.gpus), series.column(|bin| bin.gpu_mem_kb * 1024.0));
        // A share of a GPU counts as one GPU.
        let all = view.run.alloc.as_ref().map_or(0, |alloc| alloc.gpu_ids.len()).max(1) as f64;
        plots.push(Plot {
            title: format!("GPUs in use: {:.2} of {all}, peak {:.2}", mean(&gpus), most(&gpus)),
            top: most(&gpus).max(all),
            values: gpus,
        });
        let title = format!("GPU memory: peak {}", glance(most(&memory)));
        plots.push(Plot { title, top: most(&memory), values: memory });
    }
    for (name, values) in
        [("Read", series.column(|bin| bin.read)), ("Written", series.column(|bin| bin.written))]
    {
        if most(&values) >= MIN_RATE {
            let title = format!("{name}: peak {}/s", glance(most(&values)));
            plots.push(Plot { title, top: most(&values), values });
        }
    }
    plots
}

/// Minimum peak transfer rate for a plot, bytes per second.
const MIN_RATE: f64 = 1024.0 * 1024.0;

/// Returns the plots of a job as text as wide as the terminal.
pub fn text(view: &JobView, steps: &[StepSeries], columns: u16, ascii: bool, ctx: &Ctx) -> String {
    let width = width(columns);
    let Some(series) = JobSeries::of(steps, usize::from(width)) else { return String::new() };
    let plots: String = of_job(view, &series).iter().map(|plot| plot.text(width, ascii)).collect();
    format!("{plots}{}", times(series.from, series.to, width, ctx))
}

/// Returns the line below the bars with the start and the end.
fn times(from: Timestamp, to: Timestamp, width: u16, ctx: &Ctx) -> String {
    let (from, to) = (iso(from, &ctx.tz), iso(to, &ctx.tz));
    let between = usize::from(width).saturating_sub(from.len() + to.len()).max(1);
    format!("{from}{:between$}{to}\n", "")
}

/// Returns the width of text on a terminal with this many columns.
pub fn width(columns: u16) -> u16 {
    columns.clamp(WIDTHS.0, WIDTHS.1)
}

/// Returns charts as text. Zero is drawn as a tiny amount, so that it differs from missing data.
pub fn charts(
    all: &[Chart],
    from: Timestamp,
    to: Timestamp,
    width: u16,
    ascii: bool,
    ctx: &Ctx,
) -> String {
    let seen = |value: &Option<f64>| value.map_or(0.0, |value| value.max(f64::MIN_POSITIVE));
    let plot = |chart: &Chart| Plot {
        title: chart.title.clone(),
        values: chart.values.iter().map(seen).collect(),
        top: chart.top,
    };
    let plots: String = all.iter().map(|chart| plot(chart).text(width, ascii)).collect();
    format!("{plots}{}", times(from, to, width, ctx))
}

/// A named part of a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub name: String,
    pub part: f64,
    pub whole: f64,
}

/// Maximum width of a name.
const NAME: usize = 24;

/// Returns lines of bars, each as long as its whole and filled up to its part.
pub fn parts(all: &[Part], columns: u16, ascii: bool) -> String {
    let name = all.iter().map(|one| one.name.chars().count()).max().unwrap_or(0).min(NAME);
    let figures = |one: &Part| format!("{:.2} of {:.2}", one.part, one.whole);
    let beside = all.iter().map(|one| figures(one).len()).max().unwrap_or(0) + name + 2;
    let width = usize::from(columns.clamp(WIDTHS.0, WIDTHS.1)).saturating_sub(beside).max(10);
    let most = all.iter().map(|one| one.whole).fold(0.0, f64::max);
    let (full, empty) = if ascii { ("#", ".") } else { ("█", "░") };
    let cells =
        |amount: f64| if most > 0.0 { (amount / most * width as f64).round() as usize } else { 0 };
    let line = |one: &Part| {
        let shown: String = one.name.chars().take(NAME).collect();
        let whole = cells(one.whole).min(width);
        let part = cells(one.part).min(whole);
        format!(
            "{shown:name$} {}{} {}\n",
            full.repeat(part),
            empty.repeat(whole - part),
            figures(one)
        )
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::run::RunState;
    use slotd_model::series::{GpuSpan, Series, Span};
    use slotd_model::tres::Allocation;
    use slotd_model::{Job, JobId, StepId, StepKey, Tres};
    use slotd_render::fixture::{at, ctx, job};

    fn steps() -> Vec<StepSeries> {
        let mut series = Series::default();
        for i in 1..=4u64 {
            let kb = i * (256 << 10);
            let cpu_us = 5_000_000 * i;
            series.push(Span {
                ms: 10_000,
                cpu_us,
                mem_max_kb: kb,
                mem_mean_kb: kb,
                written: 50 << 20,
                ..Span::default()
            });
        }
        vec![StepSeries {
            step: StepKey { job: JobId(12), step: StepId::Batch },
            start: at(60),
            series,
        }]
    }

    fn view() -> JobView {
        job(12, "j")
            .with(|j| j.tres = Tres { cpus: 2, mem_mb: 2048, ..Tres::ZERO })
            .running(60)
            .build()
    }

    #[test]
    fn a_job_is_plotted_against_its_allocation() {
        let shown = text(&view(), &steps(), 20, true, &ctx());
        assert_eq!(
            shown,
            "CPUs in use: 1.25 of 2, peak 2.00\n               #####\n          ##########\n     \
             ###############\n####################\nMemory: peak 1G of 2G\n\n\n          =====#####\n\
             =====###############\nWritten: peak 5M/s\n####################\n####################\n\
             ####################\n####################\n2026-11-20T23:38:58 2026-11-20T23:39:38\n"
        );
        assert!(text(&view(), &steps(), 20, false, &ctx()).contains("▄▄▄▄▄███"), "{shown}");
        assert_eq!(text(&view(), &[], 80, true, &ctx()), "");
    }

    #[test]
    fn gpus_are_plotted_if_a_job_used_them() {
        let mut steps = steps();
        let gpu =
            GpuSpan { ms: 40_000, busy_milli: 1500, mem_max_kb: 3 << 20, mem_mean_kb: 3 << 20 };
        steps[0].series.push(Span { ms: 40_000, gpu, ..Span::default() });
        let alloc = Allocation { gpu_ids: vec![0, 1], ..Allocation::default() };
        let view = JobView {
            job: Job {
                run: RunState { alloc: Some(alloc.into()), ..view().job.run },
                ..view().job
            },
            ..view()
        };
        let shown = text(&view, &steps, 20, true, &ctx());
        assert!(
            shown.contains("GPUs in use: 0.75 of 2, peak 1.50\n\n          ##########\n"),
            "{shown}"
        );
        assert!(shown.contains("\nGPU memory: peak 3G\n"), "{shown}");
    }

    #[test]
    fn a_gap_differs_from_idle_time() {
        let chart = |values: Vec<Option<f64>>| Chart {
            name: "CPUs".to_owned(),
            title: "t".to_owned(),
            values,
            top: 4.0,
        };
        let shown = charts(
            &[chart(vec![Some(4.0), Some(0.0), None, Some(2.0)])],
            at(60),
            at(0),
            4,
            true,
            &ctx(),
        );
        assert_eq!(shown, "t\n#\n#\n#  #\n#_ #\n2026-11-20T23:38:58 2026-11-20T23:39:58\n");
    }

    #[test]
    fn bars_are_as_long_as_their_whole() {
        let part = |name: &str, part, whole| Part { name: name.to_owned(), part, whole };
        let all = [
            part("train", 5.0, 10.0),
            part("a-name-that-is-much-longer-than-most", 9.0, 5.0),
            part("x", 0.0, 0.0),
        ];
        assert_eq!(
            parts(&all, 60, true),
            "train                    ###########.......... 5.00 of 10.00\n\
             a-name-that-is-much-long ########### 9.00 of 5.00\n\
             x                         0.00 of 0.00\n"
        );
        assert_eq!(parts(&[], 60, true), "");
    }

    #[test]
    fn small_amounts_are_visible_and_large_ones_are_clipped() {
        let plot =
            Plot { title: "t".to_owned(), values: vec![0.0, 0.0001, 5.0, f64::INFINITY], top: 1.0 };
        assert_eq!(plot.text(4, true), "t\n  ##\n  ##\n  ##\n _##\n");
        let none = Plot { top: 0.0, values: vec![0.0; 4], ..plot };
        assert_eq!(none.text(4, true), "t\n\n\n\n\n");
    }
}
