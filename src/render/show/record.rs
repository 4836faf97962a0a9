//! A record of `scontrol show`: lines of `key=value` words, or all on one line (`-o/--oneliner`).

use crate::render::Ctx;
use crate::render::text::printable;

/// Values that slotd writes itself, as sentences. Programs that split a record at its blanks expect
/// a `=` in every word of Slurm's own, so these come without blanks unless a person reads them on a
/// terminal.
const SENTENCES: [&str; 1] = ["SystemComment"];

/// Writes blanks as /etc/fstab does: `\040`.
fn without_blanks(value: &str) -> String {
    value.replace(' ', "\\040").replace('\t', "\\011")
}

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
    pub fn odd_line(
        &mut self,
        indent: &'static str,
        words: Vec<(&'static str, String)>,
        tail: &'static str,
    ) {
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

    /// Either form.
    pub fn print(&self, one_line: bool, ctx: &Ctx) -> String {
        if one_line { self.one_line(ctx) } else { self.lines(ctx) }
    }

    /// Lines after the first are indented by three blanks. The record ends in an empty line. The
    /// user's own texts stay as they are, blanks included, as Slurm prints them.
    fn lines(&self, ctx: &Ctx) -> String {
        let mut out = String::new();
        for (i, line) in self.lines.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { "\n   " });
            out.push_str(line.indent);
            for (j, (key, value)) in line.words.iter().enumerate() {
                let mut value = printable(value.into(), ctx.is_terminal());
                if SENTENCES.contains(key) && !ctx.is_terminal() {
                    value = without_blanks(&value).into();
                }
                out.extend([if j == 0 { "" } else { " " }, key, "=", &value]);
            }
            out.push_str(line.tail);
        }
        out + "\n\n"
    }

    /// All words on one line, each without blanks: a blank within a value is written as `\040`, as
    /// in /etc/fstab, so that every word has its `=`.
    fn one_line(&self, ctx: &Ctx) -> String {
        let words = self.lines.iter().flat_map(|line| &line.words).map(|(key, value)| {
            let value = printable(value.trim_end().into(), ctx.is_terminal());
            format!("{key}={}", without_blanks(&value))
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    }
}
