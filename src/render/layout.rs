//! The columns and the line format of a listing: parsed from a user's format and printed for rows.
//!
//! The grammar and its quirks are Slurm's. Each command's [`Table`] defines the fields.

mod printer;

pub use printer::Printer;

use crate::Ctx;
use crate::field::{Cut, Field, FormatError, Need, Place, Table, by_code, by_name, by_own_name};
use crate::text::{cut, pad, printable, width};
use crate::tone::Tone;
use std::borrow::Cow;
use std::marker::PhantomData;

/// The columns and style of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout<T: Table> {
    /// The text before the first column.
    lead: String,
    columns: Vec<Column>,
    style: Style,
    is_dated: bool,
    merges_equal: bool,
    table: PhantomData<T>,
}

/// A column of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    field: usize,
    /// The width; 0 means as wide as the value.
    width: usize,
    right: bool,
    after: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Style {
    /// Columns as wide as their widest cell with ` | ` between them, without trailing spaces.
    #[default]
    Barred,
    /// Columns with the widths of the format, and the text of the format between them.
    Lines,
    /// sacct's style: a line of dashes below the header, and `+` at the end of truncated texts.
    Ruled,
}

impl<T: Table> Layout<T> {
    fn new(style: Style) -> Self {
        Layout { style, ..Layout::default() }
    }

    /// Parses a comma-separated list of field names into a table with bars. slotd's own names take
    /// precedence over Slurm's.
    ///
    /// # Errors
    /// Fails on an unknown name.
    pub fn names(text: &str) -> Result<Self, FormatError> {
        let mut layout = Layout::new(Style::Barred);
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let field = by_own_name::<T>(word)
                .ok_or_else(|| FormatError::unknown::<T>(Place::Name, word))?;
            layout.push(field, 0, false);
        }
        Ok(layout)
    }

    /// Parses `-o` of squeue and sinfo. Words and commas are a list of names; anything else is
    /// Slurm's format, which keeps the text between the codes.
    ///
    /// # Errors
    /// Fails on an unknown code or name.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        if is_name_list(text) { Self::names(text) } else { Self::codes(text) }
    }

    /// Like [`Self::parse`], but keeps unknown codes as text and returns an error for each.
    ///
    /// # Errors
    /// Fails on an unknown name.
    pub fn parse_as_known(text: &str) -> Result<(Self, Vec<FormatError>), FormatError> {
        if is_name_list(text) {
            Self::names(text).map(|layout| (layout, Vec::new()))
        } else {
            Ok(Self::codes_as_known(text))
        }
    }

    /// Parses `%[.][width]code` with text in between. `%all` means every field that has a code,
    /// separated by `|`.
    ///
    /// # Errors
    /// Fails on the first part that is not a valid code.
    pub fn codes(text: &str) -> Result<Self, FormatError> {
        let (layout, unknown) = Layout::codes_as_known(text);
        unknown.into_iter().next().map_or(Ok(layout), Err)
    }

    /// Like [`Self::codes`], but keeps unknown codes as text, as Slurm prints them, and returns an
    /// error for each.
    pub fn codes_as_known(text: &str) -> (Self, Vec<FormatError>) {
        let mut layout = Layout::new(Style::Lines);
        let mut unknown = Vec::new();
        let mut parts = text.split('%');
        layout.push_text(parts.next().unwrap_or_default());
        // Slurm splits the text at every run of `%`, so `%%j` means `%j`.
        for part in parts.filter(|part| !part.is_empty()) {
            if let Some(rest) = part.strip_prefix("all") {
                layout.push_all();
                layout.push_text(rest);
                continue;
            }
            let (right, width, rest) = size(part);
            let mut chars = rest.chars();
            let code = chars.next();
            let Some(field) = code.and_then(by_code::<T>) else {
                let bad = code.map_or(part.to_owned(), String::from);
                unknown.push(FormatError::unknown::<T>(Place::Code, &bad));
                layout.push_text("%");
                layout.push_text(part);
                continue;
            };
            layout.push(field, width.unwrap_or(0), right);
            layout.push_text(chars.as_str());
        }
        (layout, unknown)
    }

    /// Like [`Self::long_as_known`], but fails on the first unknown name.
    #[cfg(test)]
    pub fn long(text: &str) -> Result<Self, FormatError> {
        let (layout, unknown) = Layout::long_as_known(text);
        unknown.into_iter().next().map_or(Ok(layout), Err)
    }

    /// Parses `-O`: `name[:[.][width][text]]`, separated by commas. A field with text but no width
    /// is as wide as its value. Skips unknown names and returns an error for each.
    pub fn long_as_known(text: &str) -> (Self, Vec<FormatError>) {
        let mut layout = Layout::new(Style::Lines);
        let mut unknown = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, rest) = part.split_once(':').unwrap_or((part, ""));
            let Some(field) = by_name::<T>(name.trim()) else {
                unknown.push(FormatError::unknown::<T>(Place::LongName, name.trim()));
                continue;
            };
            let (right, width, after) = size(rest);
            let default =
                if after.is_empty() { T::fields()[field].width.unsigned_abs() as usize } else { 0 };
            layout.push(field, width.unwrap_or(default), right);
            layout.push_text(after);
        }
        (layout, unknown)
    }

    /// Parses sacct's `-o`: field names, each optionally with `%width` (`%-width` to left-justify),
    /// or `ALL`.
    ///
    /// # Errors
    /// Fails on an unknown name.
    pub fn ruled(text: &str) -> Result<Self, FormatError> {
        let mut layout = Layout::new(Style::Ruled);
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, size) = word.split_once('%').unwrap_or((word, ""));
            if name.eq_ignore_ascii_case("all") {
                for (i, field) in
                    T::fields().iter().enumerate().filter(|(_, f)| !f.names.is_empty())
                {
                    layout.push_ruled(i, field.width);
                }
                continue;
            }
            let field = by_name::<T>(name)
                .ok_or_else(|| FormatError::unknown::<T>(Place::WideName, name))?;
            let width = size
                .parse::<i32>()
                .ok()
                .filter(|w| *w != 0 && w.unsigned_abs() <= u32::from(u16::MAX));
            layout.push_ruled(field, width.unwrap_or(T::fields()[field].width));
        }
        Ok(layout)
    }

    /// Prints the current time on a line above the header.
    #[must_use]
    pub fn dated(mut self, is_dated: bool) -> Self {
        self.is_dated = is_dated && self.style == Style::Lines;
        self
    }

    /// Prints consecutive equal lines only once.
    #[must_use]
    pub(crate) fn merging_equal(mut self) -> Self {
        self.merges_equal = true;
        self
    }

    /// Prints raw values with `delimiter` between them, and after the last one if `trailing`
    /// (sacct's `-p` and `-P`). A format with its own text keeps that text.
    #[must_use]
    pub fn parsable(mut self, delimiter: &str, trailing: bool) -> Self {
        if self.style == Style::Lines {
            return self;
        }
        self.style = Style::Lines;
        for column in &mut self.columns {
            *column =
                Column { field: column.field, width: 0, right: false, after: delimiter.to_owned() };
        }
        if let Some(last) = self.columns.last_mut().filter(|_| !trailing) {
            last.after.clear();
        }
        self
    }

    pub fn is_dated(&self) -> bool {
        self.is_dated
    }

    /// Returns whether this is a table with bars, slotd's own style.
    pub fn is_barred(&self) -> bool {
        self.style == Style::Barred
    }

    /// Returns whether a row has few columns and, except for long values, few bytes.
    pub fn is_small(&self) -> bool {
        let len = |column: &Column| column.width + column.after.len();
        let row: usize = self.columns.iter().map(len).sum();
        self.columns.len() <= 64 && self.lead.len() + row <= 4096
    }

    /// Returns whether one of the columns has this need.
    pub fn needs(&self, need: Need) -> bool {
        self.columns.iter().any(|column| T::fields()[column.field].need == need)
    }

    /// Returns whether a brief query provides all columns.
    pub fn is_brief(&self) -> bool {
        self.columns.iter().all(|column| T::fields()[column.field].need == Need::Brief)
    }

    fn push(&mut self, field: usize, width: usize, right: bool) {
        self.columns.push(Column { field, width, right, after: String::new() });
    }

    fn push_ruled(&mut self, field: usize, width: i32) {
        self.push(field, width.unsigned_abs() as usize, width > 0);
        self.push_text(" ");
    }

    fn push_text(&mut self, text: &str) {
        self.columns.last_mut().map_or(&mut self.lead, |column| &mut column.after).push_str(text);
    }

    fn push_all(&mut self) {
        let fields = T::fields().iter().enumerate();
        let mut coded: Vec<(char, usize)> =
            fields.flat_map(|(i, f)| f.codes.chars().map(move |c| (c, i))).collect();
        // Slurm's order: lower-case letters first.
        coded.sort_by_key(|(c, _)| (c.is_ascii_uppercase(), *c));
        for (i, (code, field)) in coded.into_iter().enumerate() {
            if i > 0 {
                self.push_text("|");
            }
            self.push(field, 0, false);
            self.push_text(if code.is_ascii_uppercase() { T::AFTER_CAPITALS } else { "" });
        }
    }

    /// Returns the listing of these rows.
    pub fn print(&self, rows: &[T::Row<'_>], header: bool, ctx: &Ctx) -> String {
        let mut printer = Printer::new(self.clone(), header);
        printer.add(rows, ctx) + &printer.end(ctx)
    }

    fn fields(&self) -> impl Iterator<Item = (&Column, &'static Field<T>)> {
        self.columns.iter().map(|column| (column, &T::fields()[column.field]))
    }

    fn cells<'r>(&self, row: &'r T::Row<'_>, ctx: &'r Ctx) -> Vec<Cow<'r, str>> {
        self.fields()
            .map(|(_, field)| printable(field.value(row, ctx).text(ctx), ctx.is_terminal()))
            .collect()
    }

    fn line(&self, out: &mut String, cells: &[Cow<'_, str>], is_header: bool, has_colours: bool) {
        out.push_str(&self.lead);
        for ((column, field), cell) in self.fields().zip(cells) {
            let ends_in_plus = self.style == Style::Ruled && !is_header;
            let shown = fit(cell, column.width, field.cut, is_header, ends_in_plus);
            let tone = if has_colours && !is_header { field.tone(cell) } else { Tone::Plain };
            tone.paint(out, |out| pad(out, &shown, column.width, column.right));
            out.push_str(&column.after);
        }
        out.push('\n');
    }
}

/// Returns the text as printed in a column of this width; 0 means no limit.
fn fit<'a>(
    text: &'a str,
    to: usize,
    how: Cut,
    is_header: bool,
    ends_in_plus: bool,
) -> Cow<'a, str> {
    let cuts = match how {
        Cut::Always | Cut::Star => true,
        Cut::Header => is_header,
        Cut::Never => false,
        Cut::Reason => text.starts_with('('),
    };
    if !cuts || to == 0 || width(text) <= to {
        return text.into();
    }
    let mark = match how {
        Cut::Star if text.ends_with('*') => "*",
        _ if ends_in_plus => "+",
        _ => return cut(text, to).into(),
    };
    format!("{}{mark}", cut(text, to - 1)).into()
}

/// Parses `[.][width]` at the start of `text` and returns whether to right-justify, the width, and
/// the rest.
fn size(text: &str) -> (bool, Option<usize>, &str) {
    let (right, rest) = text.strip_prefix('.').map_or((false, text), |rest| (true, rest));
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    // An absurd width counts as "no limit", so that it cannot fill the memory with spaces.
    let width = rest[..digits].parse().ok().filter(|w| *w <= u16::MAX as usize);
    (right, width, &rest[digits..])
}

/// Returns whether `text` can only be a list of field names: words and commas, nothing else.
fn is_name_list(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '(' | ')');
    !text.trim().is_empty() && text.split(',').all(|word| word.trim().chars().all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Screen;
    use crate::fixture::ctx;
    use crate::value::Value;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Jobs;

    type F = Field<Jobs>;

    static FIELDS: &[F] = &[
        F::new(&["JobID"], "JOBID", |r, _| Value::from((*r).to_owned())).code("i"),
        F::new(&["Name"], "NAME", |r, _| Value::from((*r).to_owned()))
            .code("j")
            .own(&["JobName"])
            .width(10)
            .yielding(),
        F::new(&["TimeLimit", "tres-alloc"], "TIME_LIMIT", |r, _| Value::from((*r).to_owned()))
            .code("l")
            .cut(Cut::Header),
        F::new(&["NoCode"], "NO_CODE", |r, _| Value::from((*r).to_owned())),
        F::new(&["Partition"], "PARTITION", |r, _| Value::from((*r).to_owned()))
            .code("P")
            .cut(Cut::Star),
        F::new(&["ST"], "ST", |r, _| Value::from((*r).to_owned())).toned(Tone::of_job_cell),
    ];

    impl Table for Jobs {
        type Row<'a> = &'a str;

        fn fields() -> &'static [F] {
            FIELDS
        }
    }

    fn codes(text: &str) -> Layout<Jobs> {
        Layout::codes(text).unwrap()
    }

    fn long(text: &str) -> Layout<Jobs> {
        Layout::long(text).unwrap()
    }

    fn header(layout: &Layout<Jobs>) -> String {
        layout.print(&[], true, &ctx())
    }

    fn row(layout: &Layout<Jobs>, value: &str) -> String {
        layout.print(&[value], false, &ctx())
    }

    #[test]
    fn width_and_dot_justify_and_cut() {
        let layout = codes("%10i<%.10j>");
        assert_eq!(header(&layout), "JOBID     <      NAME>\n");
        assert_eq!(row(&layout, "174_[1-20%3]"), "174_[1-20%<174_[1-20%>\n");
        assert_eq!(row(&layout, "173"), "173       <       173>\n");
    }

    #[test]
    fn durations_are_not_cut_but_their_header_is() {
        let layout = codes("%.9l");
        assert_eq!(header(&layout), "TIME_LIMI\n");
        assert_eq!(row(&layout, "365-00:00:00"), "365-00:00:00\n");
    }

    #[test]
    fn a_cut_partition_name_keeps_the_default_mark() {
        for (format, text) in
            [("%.2P", "c*"), ("%2P", "c*"), ("%3P", "cp*"), ("%1P", "*"), ("%4P", "cpu*")]
        {
            assert_eq!(row(&codes(format), "cpu*"), format!("{text}\n"), "{format}");
        }
        assert_eq!(row(&codes("%.2P"), "gpu"), "gp\n");
        assert_eq!(row(&long("partition:2"), "cpu*"), "c*\n");
    }

    #[test]
    fn a_double_percent_reads_as_one() {
        assert_eq!(codes("%i %%j"), codes("%i %j"));
    }

    #[test]
    fn a_lone_percent_prints_an_empty_line() {
        assert_eq!(header(&codes("%")), "\n");
    }

    #[test]
    fn plain_text_is_kept() {
        assert_eq!(header(&codes("plain text")), "plain text\n");
    }

    #[test]
    fn an_unknown_code_is_named() {
        let unknown = |text| Layout::<Jobs>::codes(text).unwrap_err().word;
        assert_eq!(unknown("%i %?"), "?");
        assert_eq!(unknown("%10"), "10");
    }

    #[test]
    fn all_prints_every_code_with_bars() {
        assert_eq!(header(&codes("%all")), "JOBID|NAME|TIME_LIMIT|PARTITION\n");
    }

    #[test]
    fn long_columns_have_default_widths_and_no_separator() {
        assert_eq!(
            header(&long("JobID,name:.12,nocode:3")),
            "JOBID                       NAMENO_\n"
        );
        assert_eq!(header(&long("Name,JobID:1")), "NAME      J\n");
    }

    #[test]
    fn a_text_after_a_long_field_is_appended_to_the_whole_value() {
        assert_eq!(row(&long("jobid:###,name:5#"), "abcdefghij"), "abcdefghij###abcde#\n");
    }

    #[test]
    fn names_ignore_case_and_dashes() {
        assert_eq!(by_name::<Jobs>("TRES_ALLOC"), Some(2));
        assert_eq!(by_name::<Jobs>("tresalloc"), Some(2));
        assert_eq!(by_name::<Jobs>(""), None);
        assert_eq!(Layout::<Jobs>::long("jobid,nosuch:3").unwrap_err().word, "nosuch");
    }

    #[test]
    fn own_names_are_known_only_in_lists() {
        assert_eq!(header(&Layout::<Jobs>::names("JobName,jobid").unwrap()), "NAME | JOBID\n");
        assert!(Layout::<Jobs>::long("JobName").is_err());
    }

    #[test]
    fn an_absurd_width_does_not_fill_the_memory() {
        assert_eq!(row(&codes("%99999999999999999999i|%4000000000i"), "1"), "1|1\n");
    }

    #[test]
    fn wide_or_many_columns_are_not_small() {
        assert!(codes("%i|%20j").is_small() && !codes("%i|%65535j").is_small());
        assert!(codes(&"%i".repeat(64)).is_small() && !codes(&"%i".repeat(65)).is_small());
        let text = "x".repeat(4096);
        assert!(codes(&text).is_small() && !codes(&format!("{text}%iy")).is_small());
    }

    #[test]
    fn name_lists_are_words_and_commas() {
        assert!(is_name_list("JobID,NodeList(Reason), ST"));
        assert!(!is_name_list("%i"));
        assert!(!is_name_list("plain text"));
        assert!(!is_name_list(""));
    }

    #[test]
    fn a_table_is_padded_and_has_no_trailing_spaces() {
        let layout: Layout<Jobs> = Layout::names("JobID,Name").unwrap();
        assert_eq!(
            layout.print(&["1", "123456", ""], true, &ctx()),
            "JOBID  | NAME\n1      | 1\n123456 | 123456\n       |\n"
        );
        assert_eq!(layout.print(&["1"], false, &ctx()), "1 | 1\n");
        assert_eq!(
            (layout.print(&[], true, &ctx()), layout.print(&[], false, &ctx())),
            ("JOBID | NAME\n".into(), String::new())
        );
    }

    #[test]
    fn a_table_wider_than_the_terminal_cuts_names_first() {
        let layout: Layout<Jobs> = Layout::names("JobID,Name").unwrap();
        let (long, ctx) = ("123456789012345678901234567890", |columns| {
            let mut ctx = ctx();
            ctx.screen = Some(Screen { columns: Some(columns), has_colours: false });
            ctx
        });
        let whole = format!("{:30} | NAME\n{long} | {long}\n", "JOBID");
        assert_eq!(layout.print(&[long], true, &ctx(63)), whole);
        assert_eq!(
            layout.print(&[long], true, &ctx(50)),
            format!("{:30} | NAME\n{long} | 1234567890123456+\n", "JOBID")
        );
        assert_eq!(
            layout.print(&[long], true, &ctx(20)),
            format!("{:16} | +\n123456789012345+ | +\n", "JOBID")
        );
    }

    #[test]
    fn states_are_coloured_and_headers_are_not() {
        let mut ctx = ctx();
        ctx.screen = Some(Screen { columns: None, has_colours: true });
        for layout in
            [long("ST:.4"), Layout::names("ST,Name").unwrap(), Layout::ruled("ST%-4").unwrap()]
        {
            let text = layout.print(&["R"], true, &ctx);
            let (header, row) = text.split_once('\n').unwrap();
            assert!(!header.contains('\u{1b}') && row.contains("\u{1b}[32m"), "{text:?}");
        }
    }

    #[test]
    fn ruled_columns_are_cut_with_a_plus_and_numbers_are_whole() {
        let layout: Layout<Jobs> = Layout::ruled("JobID%-5,Name%4,TimeLimit%3").unwrap();
        assert_eq!(
            layout.print(&["123456"], true, &ctx()),
            "JOBID NAME TIM \n----- ---- --- \n1234+ 123+ 123456 \n"
        );
        assert_eq!(
            layout.clone().parsable("^", false).print(&["1"], true, &ctx()),
            "JOBID^NAME^TIME_LIMIT\n1^1^1\n"
        );
        assert_eq!(layout.parsable("|", true).print(&["1"], false, &ctx()), "1|1|1|\n");
    }

    #[test]
    fn equal_lines_are_merged_on_request() {
        assert_eq!(
            codes("%i").merging_equal().print(&["1", "1", "2", "1"], false, &ctx()),
            "1\n2\n1\n"
        );
    }

    #[test]
    fn the_date_is_printed_above_the_header() {
        assert_eq!(
            codes("%i").dated(true).print(&[], true, &ctx()),
            "Fri Nov 20 23:39:58 2026\nJOBID\n"
        );
        assert_eq!(codes("%i").dated(true).print(&[], false, &ctx()), "");
    }

    #[test]
    fn escapes_and_line_breaks_in_a_value_are_escaped() {
        let mut ctx = ctx();
        let all: [Layout<Jobs>; 3] =
            [codes("%j"), Layout::names("Name").unwrap(), Layout::ruled("Name%20").unwrap()];
        for layout in &all {
            assert_eq!(layout.print(&["a\nb\u{1b}[2J"], false, &ctx).trim(), "a\\012b\u{1b}[2J");
        }
        ctx.screen = Some(Screen::default());
        for layout in &all {
            assert_eq!(layout.print(&["a\nb\u{1b}[2J"], false, &ctx).trim(), "a\\012b\\033[2J");
        }
    }

    proptest! {
        #[test]
        fn no_format_panics(text in "\\PC*") {
            for layout in [Layout::codes(&text), Layout::long(&text), Layout::ruled(&text)].into_iter().flatten() {
                row(&layout, "größe");
            }
        }

        #[test]
        fn a_column_with_width_fills_it_exactly(w in 1usize..40, value in "[a-zé]{0,50}", right: bool) {
            let layout = codes(&format!("%{}{w}i", if right { "." } else { "" }));
            prop_assert_eq!(width(row(&layout, &value).trim_end_matches('\n')), w);
        }
    }
}
