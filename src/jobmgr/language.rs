//! The three ways to write steps down, and what they have in common: lines of shell commands, TOML, JSON lines.
//!
//! All of them become [`spec::StepSpec`], one key a field, and then [`StepDef`]s by `expand`. A text is understood as a whole or not at
//! all. Files that a text names (`foreach`) are read by the caller's function.

use super::def::StepDef;
use crate::spec::suggest;
use std::fmt;

pub mod expand;
pub mod foreach;
pub mod json;
pub mod lines;
pub mod spec;
pub mod toml_file;

use expand::Expander;

/// Where steps were written and what the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Lines,
    Toml,
    Json,
}

impl Form {
    /// By the name of a file; of a pipe (`-`), by how it begins.
    pub fn of(name: &str, text: &str) -> Form {
        match name.rsplit_once('.').map(|(_, end)| end) {
            Some("toml") => Form::Toml,
            Some("json" | "jsonl" | "ndjson") => Form::Json,
            _ if text.trim_start().starts_with('{') => Form::Json,
            _ => Form::Lines,
        }
    }
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
    fn new(key: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { key, text: text.into(), hint: Some(hint.into()) }
    }

    fn at(self, file: &str, line: u32) -> Fault {
        Fault { file: file.to_owned(), line, text: self.text, hint: self.hint }
    }
}

/// Reads a file that a text names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// The steps of a text. `file` names it in errors.
///
/// # Errors
/// The first thing in it that makes no sense.
pub fn parse(form: Form, file: &str, text: &str, read: ReadFile) -> Result<Vec<StepDef>, Fault> {
    let mut expander = Expander::new(file, read);
    match form {
        Form::Lines => lines::parse(text, &mut expander)?,
        Form::Toml => toml_file::parse(text, &mut expander)?,
        Form::Json => json::parse(text, &mut expander)?,
    }
    Ok(expander.steps)
}

/// An error of serde with the nearest of the known keys, where it is about an unknown one.
fn describe(message: &str) -> (String, Option<String>) {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    if let Some(rest) = message.strip_prefix("unknown field ")
        && let Some(word) = quoted(rest)
    {
        let known: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        return (format!("unknown key {word:?}"), Some(suggest::one_of("keys", &word, known)));
    }
    (message.to_owned(), None)
}
