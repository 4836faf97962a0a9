//! The texts that describe steps: how one is read, and what is wrong with it.

use std::fmt;

/// Reads a file that a text names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// The text without the byte order mark that some editors begin a file with.
pub fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What is wrong with a text, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file as it was named.
    pub file: String,
    /// Counted from 1; 0: the whole.
    pub line: u32,
    pub text: String,
    pub hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}: line {line}: {}", self.file, self.text),
        }
    }
}

/// What is wrong with a value, before it is known where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The key, where one is to blame.
    pub key: &'static str,
    pub text: String,
    pub hint: Option<String>,
}

impl Wrong {
    pub(super) fn new(
        key: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Wrong {
        Wrong { key, text: text.into(), hint: Some(hint.into()) }
    }

    pub(super) fn at(self, file: &str, line: u32) -> Fault {
        Fault { file: file.to_owned(), line, text: self.text, hint: self.hint }
    }
}
