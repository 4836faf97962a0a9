//! Helpers for reading step descriptions, and the errors in them.

use std::error::Error;
use std::fmt;

/// Reads a file named in a step description.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, Box<dyn Error>>;

/// Strips the byte order mark that some editors put at the beginning of a file.
pub fn strip_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// An error in a step description, with its position and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file name as given by the user.
    pub file: String,
    /// Counted from 1; 0 for the whole file.
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

/// An error in a value, without its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The key at fault, or empty.
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
