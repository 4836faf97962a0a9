//! Format strings of squeue and sinfo: `-o "%.18i %t"` and `-O "jobid:10,name:.12"`.
//!
//! The grammar and its quirks are Slurm's: `%[.][width]code`, text between codes is kept, `%%` is one `%`, and a lone
//! `%` at the end is nothing. Which codes and names exist is the business of each command's field table.

use crate::render::table::{cut, pad, printable};
use std::fmt;

/// The width of a column of `-O` where none is given.
const LONG_WIDTH: usize = 20;

/// One column that a command knows. `F` is the function that reads it from a row.
pub struct Field<F: 'static> {
    /// The letter after `%`.
    pub code: Option<char>,
    /// The names in `-O`, of which the first is shown to users.
    pub names: &'static [&'static str],
    pub header: &'static str,
    pub cut: Cut,
    pub get: F,
}

/// What a column that is narrower than its text does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It is cut.
    Always,
    /// Values are printed whole (Slurm's durations); the header is cut.
    Header,
    /// Nothing is cut (Slurm's lists of nodes).
    Never,
    /// `(Reason)` is cut, a list of nodes is not.
    Reason,
}

impl Cut {
    fn applies(self, text: &str, is_header: bool) -> bool {
        match self {
            Cut::Always => true,
            Cut::Header => is_header,
            Cut::Never => false,
            Cut::Reason => text.starts_with('('),
        }
    }
}

/// A format that can't be used: what Slurm says of it, and what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Slurm's text, with the offending word.
    pub message: String,
    /// A line that lists the known fields.
    pub hint: String,
}

/// Two lines: the message and the hint.
impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.message, self.hint)
    }
}

impl std::error::Error for FormatError {}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// `width` 0 means as wide as the value.
    Column {
        field: usize,
        width: usize,
        right: bool,
    },
}

/// A parsed format: how to make a line of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    pub pieces: Vec<Piece>,
}

impl Format {
    /// `%[.][width]code` with text between. `lookup` finds a code's field; the error is the part that has no meaning.
    ///
    /// `%all` prints every field that has a code, separated by `|`.
    pub fn percent<F>(text: &str, fields: &[Field<F>]) -> Result<Self, String> {
        Self::percent_with(text, fields, "")
    }

    /// The same, where in `%all` this text follows each code that is a capital letter.
    pub fn percent_with<F>(text: &str, fields: &[Field<F>], after_capitals: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut parts = text.split('%');
        push_text(&mut pieces, parts.next().unwrap_or_default());
        // Slurm cuts the text at every run of `%`, which is why `%%j` reads as `%j`.
        for part in parts.filter(|p| !p.is_empty()) {
            if let Some(rest) = part.strip_prefix("all") {
                push_all(&mut pieces, fields, after_capitals);
                push_text(&mut pieces, rest);
                continue;
            }
            let (right, width, rest) = size(part);
            let mut chars = rest.chars();
            let field = chars.next().and_then(|c| fields.iter().position(|f| f.code == Some(c)));
            let Some(field) = field else { return Err(rest.chars().next().map_or(part.to_owned(), String::from)) };
            pieces.push(Piece::Column { field, width: width.unwrap_or(0), right });
            push_text(&mut pieces, chars.as_str());
        }
        Ok(Format { pieces })
    }

    /// `name[:[.][width][text]]`, separated by commas: 20 wide by default, as wide as its value where only a text
    /// follows. The error is the unknown name.
    pub fn long<F>(text: &str, fields: &[Field<F>]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (name, rest) = part.split_once(':').unwrap_or((part, ""));
            let field = by_name(fields, name.trim()).ok_or_else(|| name.to_owned())?;
            let (right, width, suffix) = size(rest);
            let width = width.unwrap_or(if suffix.is_empty() { LONG_WIDTH } else { 0 });
            pieces.push(Piece::Column { field, width, right });
            push_text(&mut pieces, suffix);
        }
        Ok(Format { pieces })
    }

    /// Whether the format has a column for which `pred` holds.
    pub fn has(&self, pred: impl Fn(usize) -> bool) -> bool {
        self.pieces.iter().any(|p| match p {
            Piece::Text(_) => false,
            Piece::Column { field, .. } => pred(*field),
        })
    }

    /// Appends the header line.
    pub fn header<F>(&self, out: &mut String, fields: &[Field<F>]) {
        self.line(out, fields, true, |f| f.header.to_owned());
    }

    /// Appends the line of one row, whose values `get` reads.
    pub fn row<F>(&self, out: &mut String, fields: &[Field<F>], get: impl Fn(&F) -> String) {
        self.line(out, fields, false, |f| get(&f.get));
    }

    fn line<F>(&self, out: &mut String, fields: &[Field<F>], header: bool, value: impl Fn(&Field<F>) -> String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Column { field, width, right } => {
                    let field = &fields[*field];
                    let text = value(field);
                    let text = printable(&text);
                    let shown = if *width > 0 && field.cut.applies(&text, header) { cut(&text, *width) } else { &text };
                    pad(out, shown, *width, *right);
                }
            }
        }
        out.push('\n');
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn push_all<F>(pieces: &mut Vec<Piece>, fields: &[Field<F>], after_capitals: &str) {
    let mut coded: Vec<(char, usize)> = fields.iter().enumerate().filter_map(|(i, f)| Some((f.code?, i))).collect();
    // Slurm's order: small letters first.
    coded.sort_by_key(|(c, _)| (c.is_ascii_uppercase(), *c));
    for (i, (code, field)) in coded.into_iter().enumerate() {
        if i > 0 {
            pieces.push(Piece::Text("|".to_owned()));
        }
        pieces.push(Piece::Column { field, width: 0, right: false });
        push_text(pieces, if code.is_ascii_uppercase() { after_capitals } else { "" });
    }
}

/// `[.][width]` at the start of `text`: right justified, the width, and what follows.
fn size(text: &str) -> (bool, Option<usize>, &str) {
    let (right, rest) = text.strip_prefix('.').map_or((false, text), |rest| (true, rest));
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    // A width past all reason is taken as "no limit" rather than as a reason to fill the memory with blanks.
    let width = rest[..digits].parse().ok().filter(|w| *w <= u16::MAX as usize);
    (right, width, &rest[digits..])
}

/// The field with this name. Case, `-` and `_` make no difference.
pub fn by_name<F>(fields: &[Field<F>], name: &str) -> Option<usize> {
    fields.iter().position(|f| f.names.iter().any(|n| same_name(n, name)))
}

/// Whether two field names are the same but for case, `-` and `_`.
pub fn same_name(a: &str, b: &str) -> bool {
    let letters = |s: &'_ str| -> Vec<u8> {
        s.bytes().filter(|c| !matches!(c, b'-' | b'_')).map(|c| c.to_ascii_lowercase()).collect()
    };
    letters(a) == letters(b)
}

/// Whether `text` can only be meant as a list of field names: words, commas, nothing else.
pub fn is_name_list(text: &str) -> bool {
    !text.trim().is_empty()
        && text.split(',').all(|word| {
            let word = word.trim();
            word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '(' | ')'))
        })
}

/// The codes and names of a field table, for hints.
pub fn known<F>(fields: &[Field<F>]) -> (String, String) {
    let mut codes: Vec<char> = fields.iter().filter_map(|f| f.code).collect();
    codes.sort_by_key(|c| (c.to_ascii_lowercase(), *c));
    let codes: Vec<String> = codes.into_iter().map(|c| format!("%{c}")).collect();
    let names: Vec<&str> = fields.iter().filter_map(|f| f.names.first().copied()).collect();
    (codes.join(" "), names.join(" "))
}

/// `--helpformat`: the names of all fields, four on a line.
pub fn helpformat<F>(fields: &[Field<F>]) -> String {
    let mut names: Vec<&str> = fields.iter().filter_map(|f| f.names.first().copied()).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    let mut out = String::new();
    for four in names.chunks(4) {
        let line: Vec<String> = four.iter().map(|name| format!("{name:<19}")).collect();
        out.push_str(line.join(" ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn field(code: Option<char>, names: &'static [&'static str], header: &'static str, cut: Cut) -> Field<usize> {
        Field { code, names, header, cut, get: 0 }
    }

    static FIELDS: [Field<usize>; 4] = [
        field(Some('i'), &["JobID"], "JOBID", Cut::Always),
        field(Some('j'), &["Name"], "NAME", Cut::Always),
        field(Some('l'), &["TimeLimit", "tres-alloc"], "TIME_LIMIT", Cut::Header),
        field(None, &["NoCode"], "NO_CODE", Cut::Always),
    ];

    fn header(format: &Format) -> String {
        let mut out = String::new();
        format.header(&mut out, &FIELDS);
        out
    }

    fn row(format: &Format, value: &str) -> String {
        let mut out = String::new();
        format.row(&mut out, &FIELDS, |_| value.to_owned());
        out
    }

    #[test]
    fn width_and_dot_justify_and_cut() {
        let f = Format::percent("%10i<%.10j>", &FIELDS).unwrap();
        assert_eq!(header(&f), "JOBID     <      NAME>\n");
        assert_eq!(row(&f, "174_[1-20%3]"), "174_[1-20%<174_[1-20%>\n");
        assert_eq!(row(&f, "173"), "173       <       173>\n");
    }

    #[test]
    fn durations_are_not_cut_but_their_header_is() {
        let f = Format::percent("%.9l", &FIELDS).unwrap();
        assert_eq!(header(&f), "TIME_LIMI\n");
        assert_eq!(row(&f, "365-00:00:00"), "365-00:00:00\n");
    }

    #[test]
    fn a_double_percent_reads_as_one() {
        assert_eq!(Format::percent("%i %%j", &FIELDS), Format::percent("%i %j", &FIELDS));
    }

    #[test]
    fn a_lone_percent_prints_an_empty_line() {
        assert_eq!(header(&Format::percent("%", &FIELDS).unwrap()), "\n");
    }

    #[test]
    fn plain_text_is_kept() {
        assert_eq!(header(&Format::percent("plain text", &FIELDS).unwrap()), "plain text\n");
    }

    #[test]
    fn an_unknown_code_is_named() {
        assert_eq!(Format::percent("%i %?", &FIELDS), Err("?".to_owned()));
        assert_eq!(Format::percent("%10", &FIELDS), Err("10".to_owned()));
    }

    #[test]
    fn all_prints_every_code_with_bars() {
        assert_eq!(header(&Format::percent("%all", &FIELDS).unwrap()), "JOBID|NAME|TIME_LIMIT\n");
    }

    #[test]
    fn long_columns_are_20_wide_and_touch() {
        let f = Format::long("JobID,name:.12,nocode:3", &FIELDS).unwrap();
        assert_eq!(header(&f), "JOBID                       NAMENO_\n");
    }

    #[test]
    fn a_text_after_a_long_field_is_appended_to_the_whole_value() {
        let f = Format::long("jobid:###,name:5#", &FIELDS).unwrap();
        assert_eq!(row(&f, "abcdefghij"), "abcdefghij###abcde#\n");
    }

    #[test]
    fn names_differ_neither_in_case_nor_in_dashes() {
        assert_eq!(by_name(&FIELDS, "TRES_ALLOC"), Some(2));
        assert_eq!(by_name(&FIELDS, "tresalloc"), Some(2));
        assert_eq!(by_name(&FIELDS, ""), None);
        assert_eq!(Format::long("jobid,nosuch:3", &FIELDS), Err("nosuch".to_owned()));
    }

    #[test]
    fn a_width_past_reason_does_not_fill_the_memory() {
        let f = Format::percent("%99999999999999999999i|%4000000000i", &FIELDS).unwrap();
        assert_eq!(row(&f, "1"), "1|1\n");
    }

    #[test]
    fn name_lists_are_words_and_commas() {
        assert!(is_name_list("JobID,NodeList(Reason), ST"));
        assert!(!is_name_list("%i"));
        assert!(!is_name_list("plain text"));
        assert!(!is_name_list(""));
    }

    proptest! {
        #[test]
        fn no_format_panics(text in "\\PC*") {
            if let Ok(f) = Format::percent(&text, &FIELDS) { row(&f, "größe"); }
            if let Ok(f) = Format::long(&text, &FIELDS) { row(&f, "größe"); }
        }

        #[test]
        fn a_column_with_width_fills_it_exactly(w in 1usize..40, value in "[a-zé]{0,50}", right: bool) {
            let f = Format::percent(&format!("%{}{w}i", if right { "." } else { "" }), &FIELDS).unwrap();
            prop_assert_eq!(crate::render::table::width(row(&f, &value).trim_end_matches('\n')), w);
        }
    }
}
