//! Environment files as systemd reads them (systemd.exec(5), `EnvironmentFile=`), and edits that
//! leave other lines alone.
//!
//! A value ends with its line. Quotes hold it together, also over lines; within double quotes a
//! backslash protects `"`, `\`, `$` and a backquote, outside of quotes any character; a backslash
//! at the end of a line joins it with the next. Blanks around an unquoted value do not count.
//! Nothing is expanded. Where systemd ignores a line in silence, it is an error here.

use std::fmt::Write;
use std::ops::Range;

/// A line that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {what}")]
pub struct EnvFileError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

/// The text of an environment file, and where its assignments stand in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvFile {
    text: String,
    assignments: Vec<Assignment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Assignment {
    name: String,
    value: String,
    /// Whole lines, with the end of the last one.
    span: Range<usize>,
}

impl EnvFile {
    /// # Errors
    /// The first line that is no assignment, a quote without an end, a control character in a
    /// value.
    pub fn parse(text: &str) -> Result<EnvFile, EnvFileError> {
        let mut assignments = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let end = text[at..].find(NEWLINES).map_or(text.len(), |n| at + n + 1);
            let line = text[at..end].trim_matches(BLANKS);
            if line.is_empty() || line.starts_with(['#', ';']) {
                at = end;
                continue;
            }
            let refused = |what| EnvFileError { line: text[..at].matches('\n').count() + 1, what };
            let (name, _) =
                line.split_once('=').ok_or_else(|| refused(format!("no NAME=VALUE: {line}")))?;
            let name = name.trim_end_matches(BLANKS);
            if !is_name(name) {
                return Err(refused(format!("no NAME=VALUE: {line}")));
            }
            let start = at + text[at..].find('=').unwrap_or_default() + 1;
            let (value, length) = unquote(&text[start..])
                .ok_or_else(|| refused(format!("a quote of the value of {name} has no end")))?;
            if let Some(c) = value.chars().find(|c| is_forbidden(*c)) {
                return Err(refused(format!(
                    "the value of {name} holds the control character {c:?}"
                )));
            }
            assignments.push(Assignment { name: name.to_owned(), value, span: at..start + length });
            at = start + length;
        }
        Ok(EnvFile { text: text.to_owned(), assignments })
    }

    /// The value of a variable: the last assignment counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.assignments
            .iter()
            .rev()
            .find(|assignment| assignment.name == name)
            .map(|found| found.value.as_str())
    }

    /// All assignments in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.assignments
            .iter()
            .map(|assignment| (assignment.name.as_str(), assignment.value.as_str()))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file with this value for the variable: in place of its first assignment, or at the end.
    /// Other assignments of it go, every other line stays.
    ///
    /// # Errors
    /// The value cannot stand in an environment file.
    pub fn with(&self, name: &str, value: &str) -> Result<EnvFile, EnvFileError> {
        let new = assignment(name, value);
        let mut text = String::with_capacity(self.text.len() + new.len());
        let mut copied = 0;
        let mut is_set = false;
        for old in self.assignments.iter().filter(|old| old.name == name) {
            text.push_str(&self.text[copied..old.span.start]);
            if !is_set {
                text.push_str(&new);
                is_set = true;
            }
            copied = old.span.end;
        }
        text.push_str(&self.text[copied..]);
        if !is_set {
            // The last line may have no end, or one that its backslash takes: then the next one
            // ends it.
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            if text.ends_with("\\\n") || text.ends_with("\\\r\n") {
                text.push('\n');
            }
            text.push_str(&new);
        }
        EnvFile::parse(&text)
    }
}

const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];
const NEWLINES: [char; 2] = ['\n', '\r'];

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// systemd drops an assignment with such a character in its value.
fn is_forbidden(c: char) -> bool {
    c.is_ascii_control() && c != '\t' && c != '\n'
}

/// `NAME="VALUE"` and the line's end. In double quotes systemd and a shell read each character
/// alike.
fn assignment(name: &str, value: &str) -> String {
    let mut line = format!("{name}=\"");
    for c in value.chars() {
        if PROTECTED.contains(&c) {
            line.push('\\');
        }
        line.push(c);
    }
    // Writing to a string does not fail.
    let _ = writeln!(line, "\"");
    line
}

/// What a backslash protects within double quotes.
const PROTECTED: [char; 4] = ['"', '\\', '$', '`'];

enum State {
    /// Before a value, and after a closing quote.
    Start,
    Plain,
    PlainEscape,
    Single,
    Double,
    DoubleEscape,
}

/// The value at the beginning of the text after `=`, and the length of what it took, with the
/// line's end. `None` where a quote has no end.
fn unquote(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut state = State::Start;
    // So much of the value stays where blanks at its end go.
    let mut kept = 0;
    for (at, c) in text.char_indices() {
        let is_end = NEWLINES.contains(&c);
        state = match state {
            State::Start | State::Plain if is_end => {
                if matches!(state, State::Plain) {
                    value.truncate(kept);
                }
                return Some((value, at + 1));
            }
            State::Start if BLANKS.contains(&c) => State::Start,
            State::Start if c == '\'' => State::Single,
            State::Start if c == '"' => State::Double,
            State::Start | State::Plain if c == '\\' => State::PlainEscape,
            State::Start | State::Plain => {
                value.push(c);
                if !BLANKS.contains(&c) {
                    kept = value.len();
                }
                State::Plain
            }
            State::PlainEscape => {
                if !is_end {
                    value.push(c);
                }
                kept = value.len();
                State::Plain
            }
            State::Single if c == '\'' => State::Start,
            State::Double if c == '"' => State::Start,
            State::Double if c == '\\' => State::DoubleEscape,
            State::Single | State::Double => {
                value.push(c);
                state
            }
            State::DoubleEscape => {
                if !PROTECTED.contains(&c) && c != '\n' {
                    value.push('\\');
                }
                if c != '\n' {
                    value.push(c);
                }
                State::Double
            }
        };
    }
    match state {
        State::Single | State::Double | State::DoubleEscape => None,
        State::Plain => {
            value.truncate(kept);
            Some((value, text.len()))
        }
        State::Start | State::PlainEscape => Some((value, text.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> String {
        EnvFile::parse(&format!("A={text}\n")).unwrap().get("A").unwrap().to_owned()
    }

    // As systemd 252 reads them.
    #[test]
    fn values_are_read_as_systemd_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("a b  ", "a b"),
            ("  a", "a"),
            (r#""x\ny\$z\"q"  tail "#, r#"x\ny$z"qtail"#),
            ("a\\\nb", "ab"),
            ("  's\nt' \"u\" v\\ w ", "s\ntuv w"),
            (r#"a"b"c"#, r#"a"b"c"#),
            (r"pre\ ", "pre "),
            ("\"k\\\nl\"", "kl"),
            ("never \"closed", "never \"closed"),
            ("' blanks '", " blanks "),
            ("a#b;c", "a#b;c"),
            (r"C:\\temp", r"C:\temp"),
            ("a \\\n", "a "),
        ] {
            assert_eq!(value(text), expected, "{text:?}");
        }
        let crlf = EnvFile::parse("A=1\r\n; comment\r\n B = 2\r\n").unwrap();
        assert_eq!(crlf.iter().collect::<Vec<_>>(), [("A", "1"), ("B", "2")]);
    }

    #[test]
    fn what_systemd_would_ignore_is_an_error_with_its_line() {
        for (text, expected) in [
            ("# fine\nexport A=1\n", "2: no NAME=VALUE: export A=1"),
            ("A", "1: no NAME=VALUE: A"),
            ("2A=1", "1: no NAME=VALUE: 2A=1"),
            ("\n\nA=\"b\nc", "3: a quote of the value of A has no end"),
            ("A=a\u{7}", "1: the value of A holds the control character '\\u{7}'"),
        ] {
            assert_eq!(EnvFile::parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_new_value_takes_the_place_of_the_first_and_other_lines_stay() {
        let file = EnvFile::parse("# mine\n A='1'\nB=2\nA=3 \\\n4\n; end").unwrap();
        let set = file.with("A", "a $b").unwrap();
        assert_eq!(set.text(), "# mine\nA=\"a \\$b\"\nB=2\n; end");
        assert_eq!(set.with("C", "").unwrap().text(), "# mine\nA=\"a \\$b\"\nB=2\n; end\nC=\"\"\n");
        assert!(file.with("A", "\u{1b}").is_err());
        assert_eq!(
            EnvFile::parse("B=1\\\n").unwrap().with("A", "2").unwrap().text(),
            "B=1\\\n\nA=\"2\"\n"
        );
        assert_eq!(
            EnvFile::parse("B=1\\").unwrap().with("A", "2").unwrap().text(),
            "B=1\\\n\nA=\"2\"\n"
        );
    }

    proptest! {
        #[test]
        fn every_value_reads_back(values in prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,4}", "[^\\x00-\\x08\\x0b-\\x1f\\x7f]{0,30}", 0..5)) {
            let mut file = EnvFile::default();
            for (name, value) in &values {
                file = file.with(name, value).unwrap();
            }
            let read: std::collections::BTreeMap<_, _> =
                file.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn an_edit_changes_one_variable(text in "([ABC]=[a-c \"'\\\\\n]{0,8}\n|#[a-c=]{0,3}\n|\n){0,8}", new in "[a-c\"\\\\$ ]{0,5}") {
            if let Ok(file) = EnvFile::parse(&text) {
                let edited = file.with("A", &new).unwrap();
                prop_assert_eq!(edited.get("A"), Some(new.as_str()));
                let others = |file: &EnvFile| {
                    file.iter().filter(|(name, _)| *name != "A").map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>()
                };
                prop_assert_eq!(others(&edited), others(&file));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[A='\"\\\\\n\r #;]{0,40}") {
            let _ = EnvFile::parse(&text);
        }
    }
}
