//! Reads environment files like systemd (systemd.exec(5), `EnvironmentFile=`), and edits them
//! without touching other lines.
//!
//! A value ends with its line. Quotes keep it together, even over several lines. Within double
//! quotes a backslash escapes `"`, `\`, `$` and a backquote; outside quotes it escapes any
//! character. A backslash at the end of a line joins it with the next one. Whitespace around an
//! unquoted value is dropped. Nothing is expanded. A line that systemd silently ignores is an error
//! here.

use std::fmt::Write;
use std::ops::Range;

/// A malformed line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {what}")]
pub struct EnvFileError {
    /// The line number, starting at 1.
    pub line: usize,
    pub what: String,
}

/// The text of an environment file, and the positions of its assignments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvFile {
    text: String,
    assignments: Vec<Assignment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Assignment {
    name: String,
    value: String,
    /// The byte range of whole lines, including the last line ending.
    span: Range<usize>,
}

impl EnvFile {
    /// Parses the text of an environment file.
    ///
    /// # Errors
    /// Fails at the first line that is not an assignment, at an unclosed quote, and at a control
    /// character in a value.
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
                line.split_once('=').ok_or_else(|| refused(format!("not NAME=VALUE: {line}")))?;
            let name = name.trim_end_matches(BLANKS);
            if !is_name(name) {
                return Err(refused(format!("not NAME=VALUE: {line}")));
            }
            let start = at + text[at..].find('=').unwrap_or_default() + 1;
            let (value, length) = unquote(&text[start..])
                .ok_or_else(|| refused(format!("unclosed quote in the value of {name}")))?;
            if let Some(c) = value.chars().find(|c| is_forbidden(*c)) {
                return Err(refused(format!("control character {c:?} in the value of {name}")));
            }
            assignments.push(Assignment { name: name.to_owned(), value, span: at..start + length });
            at = start + length;
        }
        Ok(EnvFile { text: text.to_owned(), assignments })
    }

    /// Returns the value of a variable. The last assignment wins.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.assignments
            .iter()
            .rev()
            .find(|assignment| assignment.name == name)
            .map(|found| found.value.as_str())
    }

    /// Iterates over all assignments in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.assignments
            .iter()
            .map(|assignment| (assignment.name.as_str(), assignment.value.as_str()))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file with the variable set to `value`. The new assignment replaces the first
    /// existing one, or is appended. Other assignments of the variable are removed; all other lines
    /// are kept.
    ///
    /// # Errors
    /// Fails if an environment file cannot hold the value.
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
            // The last line may lack a newline, or end with a backslash that joins the next line to
            // it. An extra newline ends it.
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

/// systemd ignores an assignment if its value contains one of these characters.
fn is_forbidden(c: char) -> bool {
    c.is_ascii_control() && c != '\t' && c != '\n'
}

/// Formats `NAME="VALUE"` and a newline. systemd and shells agree on the meaning of every character
/// in double quotes.
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

/// The characters that a backslash escapes within double quotes.
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

/// Parses the value at the beginning of `text`, which follows a `=`. Returns the value and the
/// length of its source, including the newline, or `None` if a quote is not closed.
fn unquote(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut state = State::Start;
    // The length of the value without trailing whitespace.
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

    // These match systemd 252.
    #[test]
    fn values_parse_as_in_systemd() {
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
    fn lines_that_systemd_ignores_are_errors() {
        for (text, expected) in [
            ("# fine\nexport A=1\n", "2: not NAME=VALUE: export A=1"),
            ("A", "1: not NAME=VALUE: A"),
            ("2A=1", "1: not NAME=VALUE: 2A=1"),
            ("\n\nA=\"b\nc", "3: unclosed quote in the value of A"),
            ("A=a\u{7}", "1: control character '\\u{7}' in the value of A"),
        ] {
            assert_eq!(EnvFile::parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_new_value_replaces_the_first_assignment_and_keeps_other_lines() {
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
        fn any_text_parses_or_fails(text in "\\PC{0,40}|[A='\"\\\\\n\r #;]{0,40}") {
            let _ = EnvFile::parse(&text);
        }
    }
}
