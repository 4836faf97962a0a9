//! A report as an SVG chart, and as an HTML page that contains it.

use crate::args::error::CliError;
use plotters::prelude::*;
use slotd_render::Ctx;
use slotd_render::host_use::Chart;
use slotd_render::report::{self, Use};
use slotd_render::text::printable;
use std::fmt::Display;

/// Names in the chart: those that waste the most.
const MOST: usize = 30;

const WIDTH: u32 = 900;
const MARGIN: i32 = 24;
const NAMES: i32 = 220;
const FIGURES: i32 = 150;
const ROW: i32 = 26;
const HEAD: i32 = 48;

const HAD: RGBColor = RGBColor(214, 220, 228);
const USED: RGBColor = RGBColor(38, 110, 180);
const INK: RGBColor = RGBColor(40, 44, 52);

fn failed(why: impl Display) -> CliError {
    CliError::error(1, format!("cannot draw the chart: {why}"))
}

/// Draws the CPU-hours by name: used and allocated.
pub fn svg(all: &[Use]) -> Result<String, CliError> {
    let shown = &all[..all.len().min(MOST)];
    let rows = i32::try_from(shown.len()).unwrap_or(0);
    let mut text = String::new();
    let height = u32::try_from(HEAD + rows * ROW + MARGIN).unwrap_or(0);
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let write = |words: String, size: i32, at: (i32, i32)| {
        root.draw(&Text::new(words, at, ("sans-serif", size).into_font().color(&INK)))
            .map_err(failed)
    };
    write("CPU-hours: used (dark) of allocated".to_owned(), 18, (MARGIN, MARGIN / 2))?;
    let most = shown.iter().map(Use::cpu_hours_had).fold(0.0, f64::max);
    let width = f64::from(WIDTH) - f64::from(2 * MARGIN + NAMES + FIGURES);
    let bar = |hours: f64| if most > 0.0 { (hours / most * width).round() as i32 } else { 0 };
    for (i, used) in (0..).zip(shown) {
        let (left, top) = (MARGIN + NAMES, HEAD + i * ROW);
        let (had_hours, used_hours) = (used.cpu_hours_had(), used.cpu_hours_used());
        write(short(&used.name), 14, (MARGIN, top + 4))?;
        for (hours, colour) in [(had_hours, HAD), (used_hours.min(had_hours), USED)] {
            let corners = [(left, top + 2), (left + bar(hours), top + ROW - 6)];
            root.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
        }
        write(
            format!("{used_hours:.2} of {had_hours:.2}"),
            14,
            (left + bar(had_hours) + 8, top + 4),
        )?;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(text)
}

/// Truncates a name to the width of its column.
fn short(name: &str) -> String {
    const LETTERS: usize = 26;
    // XML cannot represent control characters.
    let name = &printable(name.into(), true);
    match name.char_indices().nth(LETTERS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_string(),
    }
}

/// Draws bars over time, one chart below the other.
pub fn charts(all: &[Chart], times: [&str; 2]) -> Result<String, CliError> {
    let count = i32::try_from(all.len()).unwrap_or(0);
    let height = u32::try_from(count * (CHART + HEAD) + 2 * MARGIN).unwrap_or(0);
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let write = |words: String, at: (i32, i32)| {
        root.draw(&Text::new(words, at, ("sans-serif", 14).into_font().color(&INK))).map_err(failed)
    };
    let width = f64::from(WIDTH) - f64::from(2 * MARGIN);
    let below = |i: i32| MARGIN / 2 + i * (CHART + HEAD) + HEAD + CHART;
    for (i, chart) in (0..).zip(all) {
        let bottom = below(i);
        write(chart.title.clone(), (MARGIN, bottom - CHART - 22))?;
        let frame = [(MARGIN, bottom - CHART), (MARGIN + width as i32, bottom)];
        root.draw(&Rectangle::new(frame, HAD.stroke_width(1))).map_err(failed)?;
        let step = width / chart.values.len().max(1) as f64;
        let left = |at: usize| MARGIN + (at as f64 * step).round() as i32;
        for (at, value) in chart.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let part = if chart.top > 0.0 { (value / chart.top).clamp(0.0, 1.0) } else { 0.0 };
            // Zero is drawn as a thin line, unlike a missing value.
            let up = ((part * f64::from(CHART)).round() as i32).max(1);
            let corners = [(left(at), bottom - up), (left(at + 1), bottom)];
            root.draw(&Rectangle::new(corners, USED.filled())).map_err(failed)?;
        }
    }
    let [from, to] = times;
    let under = below(count - 1) + 6;
    write(from.to_owned(), (MARGIN, under))?;
    write(to.to_owned(), (MARGIN + width as i32 - TIME_WIDTH, under))?;
    root.present().map_err(failed)?;
    drop(root);
    Ok(text)
}

/// The height of a chart, in SVG units.
const CHART: i32 = 80;
/// The width of a time label, in SVG units.
const TIME_WIDTH: i32 = 140;

/// Returns the host's use as a self-contained HTML page.
pub fn page_of_host(heading: &str, all: &[Chart], times: [&str; 2]) -> Result<String, CliError> {
    let titles: String =
        all.iter().map(|chart| format!("<li>{}</li>\n", escaped(&chart.title))).collect();
    Ok(page(heading, &format!("<ul>\n{titles}</ul>\n{}", themed(&charts(all, times)?))))
}

fn page(heading: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>slotd report</title>\n<style>{STYLE}</style>\n\
         <main class=\"report\">\n<h1>slotd report</h1>\n<p class=\"dim\">{}</p>\n{body}</main>\n</html>\n",
        escaped(heading)
    )
}

/// Returns the report as a self-contained HTML page.
pub fn page_of_jobs(heading: &str, all: &[Use], ctx: &Ctx) -> Result<String, CliError> {
    let (heads, rows) = report::cells(all, ctx);
    let head: String =
        heads.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escaped(cell))).collect();
    // A phone shows each row as a card, with the heading beside the cell.
    let cell = |(i, text): (usize, &String)| match (i, heads.get(i)) {
        (0, _) | (_, None) => format!("<th scope=\"row\">{}</th>", escaped(text)),
        (_, Some(head)) => {
            format!("<td class=\"num\" data-head=\"{}\">{}</td>", escaped(head), escaped(text))
        }
    };
    let row = |row: &Vec<String>| {
        format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    let advice: String =
        report::advice(all).iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    let advice = if advice.is_empty() {
        advice
    } else {
        format!("<h2>Suggested requests</h2>\n<ul>\n{advice}</ul>\n")
    };
    let notes: String =
        report::notes(all).iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
    let table = format!(
        "<table class=\"cards\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    );
    Ok(page(
        heading,
        &format!("{table}{advice}{notes}<h2>CPU-hours by name</h2>\n{}", themed(&svg(all)?)),
    ))
}

/// The style sheet of the page of `slotd web`.
const STYLE: &str = include_str!("../web/page/app.css");

/// Returns a chart whose colours follow the page's, which may be dark. A narrow window scrolls it.
fn themed(svg: &str) -> String {
    let colour = |of: RGBColor| format!("\"#{:02X}{:02X}{:02X}\"", of.0, of.1, of.2);
    let vars = [(WHITE, "page"), (HAD, "allocated"), (USED, "running"), (INK, "ink")];
    let svg = vars.iter().fold(svg.to_owned(), |text, (of, name)| {
        text.replace(&colour(*of), &format!("\"var(--{name})\""))
    });
    format!("<div class=\"scroll\" tabindex=\"0\">{svg}</div>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
