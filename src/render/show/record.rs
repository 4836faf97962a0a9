//! A record of `scontrol show`: lines of `key=value` words, or all on one line (`-o/--oneliner`).

use crate::Ctx;
use crate::text::printable;

/// Values that slotd writes as sentences. Programs that split a record at spaces expect a `=` in
/// every word of Slurm's own values, so spaces in these are escaped unless a person reads them on a
/// terminal.
const SENTENCES: [&str; 1] = ["SystemComment"];

/// Escapes spaces as in /etc/fstab: `\040`.
fn without_spaces(value: &str) -> String {
    value.replace(' ', "\\040").replace('\t', "\\011")
}

/// The lines of one record.
#[derive(Default)]
pub(crate) struct Record {
    lines: Vec<Line>,
}

/// A line: its words, its additional indentation, and the text that Slurm prints at its end.
struct Line {
    words: Vec<(&'static str, String)>,
    indent: &'static str,
    tail: &'static str,
}

impl Record {
    /// Appends a line of words.
    pub(crate) fn line(&mut self, words: Vec<(&'static str, String)>) {
        self.lines.push(Line { words, indent: "", tail: "" });
    }

    /// Appends a line with spaces before and after its words.
    pub(crate) fn odd_line(
        &mut self,
        indent: &'static str,
        words: Vec<(&'static str, String)>,
        tail: &'static str,
    ) {
        self.lines.push(Line { words, indent, tail });
    }

    /// Appends a line with one word.
    pub(crate) fn word(&mut self, key: &'static str, value: impl Into<String>) {
        self.line(vec![(key, value.into())]);
    }

    /// Appends a line with one word if there is a value.
    pub(crate) fn word_if(&mut self, key: &'static str, value: Option<String>) {
        if let Some(value) = value {
            self.word(key, value);
        }
    }

    /// Prints the record in either form.
    pub(crate) fn print(&self, one_line: bool, ctx: &Ctx) -> String {
        if one_line { self.one_line(ctx) } else { self.lines(ctx) }
    }

    /// Prints the record on several lines. Lines after the first are indented by three spaces, and
    /// the record ends with an empty line. The user's own texts keep their spaces, as in Slurm.
    fn lines(&self, ctx: &Ctx) -> String {
        let mut out = String::new();
        for (i, line) in self.lines.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { "\n   " });
            out.push_str(line.indent);
            for (j, (key, value)) in line.words.iter().enumerate() {
                let mut value = printable(value.into(), ctx.is_terminal());
                if SENTENCES.contains(key) && !ctx.is_terminal() {
                    value = without_spaces(&value).into();
                }
                out.extend([if j == 0 { "" } else { " " }, key, "=", &value]);
            }
            out.push_str(line.tail);
        }
        out + "\n\n"
    }

    /// Prints all words on one line. A space within a value is written as `\040`, as in /etc/fstab,
    /// so every word has its `=`.
    fn one_line(&self, ctx: &Ctx) -> String {
        let words = self.lines.iter().flat_map(|line| &line.words).map(|(key, value)| {
            let value = printable(value.trim_end().into(), ctx.is_terminal());
            format!("{key}={}", without_spaces(&value))
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    }
}
