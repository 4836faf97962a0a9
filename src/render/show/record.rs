//! A record of `scontrol show`: lines of `key=value` words, or all on one line (`-o/--oneliner`).

use std::fmt::Write;

/// The lines of one record.
#[derive(Default)]
pub struct Record {
    lines: Vec<Line>,
}

/// A line: its words, how far it is indented beyond the others, and what Slurm leaves at its end.
struct Line {
    words: Vec<(&'static str, String)>,
    indent: &'static str,
    tail: &'static str,
}

impl Record {
    /// A line of words.
    pub fn line(&mut self, words: Vec<(&'static str, String)>) {
        self.lines.push(Line { words, indent: "", tail: "" });
    }

    /// A line with blanks before and after its words.
    pub fn odd_line(&mut self, indent: &'static str, words: Vec<(&'static str, String)>, tail: &'static str) {
        self.lines.push(Line { words, indent, tail });
    }

    /// A line of one word.
    pub fn word(&mut self, key: &'static str, value: impl Into<String>) {
        self.line(vec![(key, value.into())]);
    }

    /// A line that is only there where the value is.
    pub fn word_if(&mut self, key: &'static str, value: Option<String>) {
        if let Some(value) = value {
            self.word(key, value);
        }
    }

    /// Lines after the first are indented by three blanks. The record ends in an empty line.
    pub fn to_lines(&self, out: &mut String) {
        for (i, line) in self.lines.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { "\n   " });
            out.push_str(line.indent);
            for (j, (key, value)) in line.words.iter().enumerate() {
                // Writing to a String cannot fail.
                let _ = write!(out, "{}{key}={}", if j == 0 { "" } else { " " }, escape(value, false));
            }
            out.push_str(line.tail);
        }
        out.push_str("\n\n");
    }

    /// All words on one line, each without blanks: a blank within a value is written as `\040`, as in /etc/fstab, so
    /// that every word has its `=`.
    pub fn to_one_line(&self, out: &mut String) {
        let mut first = true;
        for (key, value) in self.lines.iter().flat_map(|l| &l.words) {
            let _ = write!(out, "{}{key}={}", if first { "" } else { " " }, escape(value.trim_end(), true));
            first = false;
        }
        out.push('\n');
    }

    /// Either form.
    pub fn print(&self, one_line: bool) -> String {
        let mut out = String::new();
        if one_line {
            self.to_one_line(&mut out)
        } else {
            self.to_lines(&mut out)
        }
        out
    }
}

/// A line break in a value would begin what looks like another line of the record.
fn escape(value: &str, blanks: bool) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            ' ' if !blanks => out.push(c),
            ' ' => out.push_str("\\040"),
            '\t' if blanks => out.push_str("\\011"),
            '\n' => out.push_str("\\012"),
            '\r' => out.push_str("\\015"),
            c => out.push(c),
        }
    }
    out
}
