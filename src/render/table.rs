//! Rows of cells to lines of text: the book's table and Slurm's columns.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The book's table: columns as wide as their widest cell, ` | ` between them, no blanks at the end of a line.
///
/// Without `header` the widths come from the rows alone. A row with fewer cells than there are headers ends early.
pub fn book(headers: &[&str], rows: &[Vec<String>], header: bool) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|r| r.iter().map(|cell| printable(cell)).collect()).collect();
    let mut widths: Vec<usize> = headers.iter().map(|h| if header { width(h) } else { 0 }).collect();
    for row in &rows {
        for (w, cell) in widths.iter_mut().zip(row) {
            *w = (*w).max(width(cell));
        }
    }
    let mut out = String::new();
    if header {
        book_line(&mut out, headers.iter().copied(), &widths);
    }
    for row in &rows {
        book_line(&mut out, row.iter().map(AsRef::as_ref), &widths);
    }
    out
}

fn book_line<'a>(out: &mut String, cells: impl Iterator<Item = &'a str>, widths: &[usize]) {
    let start = out.len();
    for (i, (cell, w)) in cells.zip(widths).enumerate() {
        if i > 0 {
            out.push_str(" | ");
        }
        pad(out, cell, *w, false);
    }
    let end = start + out[start..].trim_end_matches(' ').len();
    out.truncate(end);
    out.push('\n');
}

/// Characters, since a name cut in the middle of one would not be text any more.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Appends `text`, filled up with blanks to `to` characters, never cut.
pub fn pad(out: &mut String, text: &str, to: usize, right: bool) {
    let fill = to.saturating_sub(width(text));
    if right {
        out.extend(std::iter::repeat_n(' ', fill));
    }
    out.push_str(text);
    if !right {
        out.extend(std::iter::repeat_n(' ', fill));
    }
}

/// A value as it may stand in a line: control characters as `scontrol show` writes them (`\\012`), so that a job's name
/// with a newline in it is not two rows, and one with an escape does nothing to a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(out, "\\{:03o}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The first `to` characters of `text`.
pub fn cut(text: &str, to: usize) -> &str {
    text.char_indices().nth(to).map_or(text, |(i, _)| &text[..i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|r| r.iter().map(|c| (*c).to_owned()).collect()).collect()
    }

    #[test]
    fn the_books_table_is_padded_and_has_no_trailing_blanks() {
        let text = book(
            &["JOBID", "PARTITION", "NAME", "NODELIST(REASON)"],
            &rows(&[&["1", "cpu", "wrap", "localhost"], &["123456", "gpu", "", ""]]),
            true,
        );
        assert_eq!(
            text,
            "JOBID  | PARTITION | NAME | NODELIST(REASON)\n\
             1      | cpu       | wrap | localhost\n\
             123456 | gpu       |      |\n"
        );
    }

    #[test]
    fn noheader_leaves_the_rows_alone() {
        assert_eq!(book(&["JOBID", "ST"], &rows(&[&["1", "R"]]), false), "1 | R\n");
        assert_eq!(book(&["JOBID", "ST"], &[], false), "");
    }

    #[test]
    fn an_empty_table_is_its_header() {
        assert_eq!(book(&["JOBID", "ST"], &[], true), "JOBID | ST\n");
    }

    #[test]
    fn a_value_with_a_newline_or_an_escape_stays_in_its_row() {
        assert_eq!(book(&["NAME", "ST"], &rows(&[&["a\nb\u{1b}[2J", "R"]]), false), "a\\012b\\033[2J | R\n");
        assert_eq!(printable("größe \"x\""), "größe \"x\"");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("größe", 3), "grö");
        assert_eq!(cut("ab", 3), "ab");
    }
}
