//! `#SBATCH` lines of a batch script, cut into words (sbatch man page, "SCRIPT PROCESSING").
//!
//! What the words mean is told by the command line's own definition: directives take what the command line takes.

use crate::spec::error::{SpecError, shown};

const MAGIC: &str = "#SBATCH";

/// The words of one `#SBATCH` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// Counted from 1.
    pub line: usize,
    pub words: Vec<String>,
}

/// The directives of a script, down to its first command.
///
/// A directive begins its line, and a blank or a tab follows `#SBATCH`. Words are parted by blanks; quotes group, a
/// backslash takes the next character as it is, also inside quotes, and a bare `#` makes the rest a comment. Blank
/// lines and comments do not end the search; the first other line does.
///
/// # Errors
/// `line 3: unmatched " in: …` and, for Slurm's `#SBATCH hetjob`, that slotd has no heterogeneous jobs.
pub fn directives(script: &str) -> Result<Vec<Directive>, SpecError> {
    let mut found = Vec::new();
    for (i, text) in script.lines().enumerate() {
        let line = i + 1;
        match text.strip_prefix(MAGIC) {
            Some(rest) if rest.starts_with([' ', '\t']) => {
                let words = words(rest)
                    .map_err(|quote| SpecError::value(format!("line {line}: unmatched {quote} in: {}", shown(text))))?;
                if let Some(word @ ("hetjob" | "packjob" | ":")) = words.first().map(String::as_str) {
                    return Err(SpecError::value(format!(
                        "line {line}: heterogeneous jobs need several hosts, which slotd has not: {word}"
                    )));
                }
                if !words.is_empty() {
                    found.push(Directive { line, words });
                }
            }
            _ => {
                let text = text.trim_start();
                if !text.is_empty() && !text.starts_with('#') {
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// The words of a directive's text; the error is the quote that has no end.
fn words(text: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                // `--comment ""` has an empty word.
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(quote) => Err(quote),
        None => Ok(words),
    }
}
