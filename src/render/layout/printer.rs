//! Prints a listing whose rows arrive in batches.

use super::{Column, Layout, Style};
use crate::field::Table;
use crate::text::{cut, printable, push_spaces, width};
use crate::tone::Tone;
use crate::{Ctx, time};
use std::borrow::Cow;

/// A listing whose rows arrive in batches.
///
/// A table with bars is as wide as its widest cells, so its cells are stored as text and printed at
/// the end. The same holds for lines whose order is only known at the end. Other lines are printed
/// immediately.
#[derive(Debug, Clone)]
pub struct Printer<T: Table> {
    layout: Layout<T>,
    header: bool,
    has_begun: bool,
    /// The previous line.
    last: String,
    /// Whether nothing is printed before the end.
    keeps: bool,
    /// The stored text: all cells of a table with bars, or all lines, and the end offset of each.
    text: String,
    ends: Vec<usize>,
    /// The width of each column of a table with bars.
    widths: Vec<usize>,
}

impl<T: Table> Printer<T> {
    pub fn new(layout: Layout<T>, header: bool) -> Self {
        let widths = vec![0; layout.columns.len()];
        let (last, text, ends) = Default::default();
        let keeps = layout.is_barred();
        Printer { layout, header, has_begun: false, last, keeps, text, ends, widths }
    }

    /// Creates a printer for rows that are printed in a different order: see [`Self::end_in`].
    pub(crate) fn unordered(layout: Layout<T>, header: bool) -> Self {
        Printer { keeps: true, ..Printer::new(layout, header) }
    }

    /// Adds rows and returns the text that can be printed now.
    pub fn add(&mut self, rows: &[T::Row<'_>], ctx: &Ctx) -> String {
        let mut out = String::new();
        if !self.keeps {
            self.begin(&mut out, ctx);
        }
        for row in rows {
            if self.layout.is_barred() {
                self.keep(row, ctx);
                continue;
            }
            let cells = self.layout.cells(row, ctx);
            let start = out.len();
            self.layout.line(&mut out, &cells, false, ctx.has_colours());
            if self.keeps {
                self.text.push_str(&out);
                self.ends.push(self.text.len());
                out.clear();
                continue;
            }
            if !self.layout.merges_equal {
                continue;
            }
            if out[start..] == self.last {
                out.truncate(start);
            } else {
                self.last = out[start..].to_owned();
            }
        }
        out
    }

    /// Returns the rest of the text.
    pub fn end(self, ctx: &Ctx) -> String {
        let rows = 0..self.kept_rows();
        self.print_kept(rows, ctx)
    }

    /// Returns the stored rows in this order; a row is named by its position among the added rows,
    /// from 0.
    pub(crate) fn end_in(self, order: &[u32], ctx: &Ctx) -> String {
        self.print_kept(order.iter().map(|place| *place as usize), ctx)
    }

    /// Returns how many texts are stored per row.
    fn texts(&self) -> usize {
        if self.layout.is_barred() { self.widths.len().max(1) } else { 1 }
    }

    fn kept_rows(&self) -> usize {
        self.ends.len() / self.texts()
    }

    fn print_kept(mut self, rows: impl Iterator<Item = usize>, ctx: &Ctx) -> String {
        let mut out = String::with_capacity(self.text.len() * 2);
        self.begin(&mut out, ctx);
        let (count, is_barred) = (self.texts(), self.layout.is_barred());
        let start = |text: usize| if text == 0 { 0 } else { self.ends[text - 1] };
        for first in rows.map(|row| row * count) {
            let texts = (first..first + count).map(|text| &self.text[start(text)..self.ends[text]]);
            if is_barred {
                self.bars(&mut out, texts, ctx.has_colours());
            } else {
                out.extend(texts);
            }
        }
        out
    }

    fn begin(&mut self, out: &mut String, ctx: &Ctx) {
        if std::mem::replace(&mut self.has_begun, true) || !self.header {
            return;
        }
        if self.layout.is_dated {
            out.push_str(&time::date_line(ctx));
        }
        if self.layout.is_barred() {
            let titles: Vec<&str> = self.layout.fields().map(|(_, field)| field.title()).collect();
            self.widen(titles.iter().copied());
            if let Some(columns) = ctx.screen.and_then(|screen| screen.columns) {
                self.shrink_to(columns.into());
            }
            return self.bars(out, titles.into_iter(), false);
        }
        let titles: Vec<_> =
            self.layout.fields().map(|(_, field)| Cow::Borrowed(field.header)).collect();
        self.layout.line(out, &titles, true, false);
        if self.layout.style == Style::Ruled {
            let dashes = |column: &Column| "-".repeat(column.width) + &column.after;
            out.extend(self.layout.columns.iter().map(dashes));
            out.push('\n');
        }
    }

    fn widen<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        for (text, widest) in texts.zip(&mut self.widths) {
            *widest = (*widest).max(width(text));
        }
    }

    fn keep(&mut self, row: &T::Row<'_>, ctx: &Ctx) {
        let Printer { layout, text, ends, widths, .. } = self;
        for ((_, field), widest) in layout.fields().zip(widths) {
            let start = text.len();
            field.value(row, ctx).write(text, ctx);
            if let Cow::Owned(escaped) = printable(text[start..].into(), ctx.is_terminal()) {
                text.truncate(start);
                text.push_str(&escaped);
            }
            *widest = (*widest).max(width(&text[start..]));
            ends.push(text.len());
        }
    }

    /// Narrows the widest of the columns that may be shortened until the table fits the terminal or
    /// none of them exceeds [`NARROWEST`], then the last columns.
    fn shrink_to(&mut self, columns: usize) {
        let between = BAR.len() * self.widths.len().saturating_sub(1);
        let mut excess = (self.widths.iter().sum::<usize>() + between).saturating_sub(columns);
        let fields: Vec<_> = self.layout.fields().map(|(_, field)| field).collect();
        while excess > 0 {
            let cut = self
                .widths
                .iter_mut()
                .enumerate()
                .filter(|(i, w)| fields[*i].yields && **w > NARROWEST);
            let Some((_, widest)) = cut.max_by_key(|(_, w)| **w) else { break };
            *widest -= 1;
            excess -= 1;
        }
        for last in self.widths.iter_mut().rev() {
            let spare = excess.min(last.saturating_sub(1));
            *last -= spare;
            excess -= spare;
        }
    }

    /// Appends one line of a table with bars. Truncated texts end in `+`, as in sacct's columns.
    fn bars<'a>(&self, out: &mut String, cells: impl Iterator<Item = &'a str>, has_colours: bool) {
        let start = out.len();
        for (i, ((cell, to), (_, field))) in
            cells.zip(&self.widths).zip(self.layout.fields()).enumerate()
        {
            out.push_str(if i > 0 { BAR } else { "" });
            let tone = if has_colours { field.tone(cell) } else { Tone::Plain };
            tone.paint(out, |out| match to.checked_sub(width(cell)) {
                Some(spare) => {
                    out.push_str(cell);
                    push_spaces(out, spare);
                }
                None => {
                    out.push_str(cut(cell, to.saturating_sub(1)));
                    out.push('+');
                }
            });
        }
        let last = out.bytes().rposition(|byte| byte != b' ');
        out.truncate(start.max(last.map_or(0, |last| last + 1)));
        out.push('\n');
    }
}

/// The separator between the columns of a table with bars.
const BAR: &str = " | ";

/// The width below which no column is narrowed to fit the terminal.
const NARROWEST: usize = 8;
