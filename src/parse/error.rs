//! Parse errors, in Slurm's words.

use std::fmt;

/// The number of characters of an invalid value that an error shows.
const SHOWN_CHARS: usize = 200;

/// An input that could not be parsed.
///
/// `Display` prints the part after `sbatch: error: `: Slurm's own text if there is one, then the
/// invalid value. Several lines are joined by `\n`; the caller prefixes each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    /// Whether the commands that start jobs exit with 255, as Slurm's do for an unknown option,
    /// rather than with 1.
    pub usage: bool,
    /// Whether Slurm's controller detects this error. If so, the text follows
    /// `Batch job submission failed: ` (sbatch), `Unable to allocate resources: ` (srun) or
    /// `Job submit/allocate failed: ` (salloc).
    pub submission: bool,
    /// The accepted forms, or the nearest name, for a line of its own.
    pub hint: Option<String>,
}

impl SpecError {
    /// Creates an error that Slurm's option parser reports; exit code 255.
    pub fn usage(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: true, submission: false, hint: None }
    }

    /// Creates an error with exit code 1.
    pub fn value(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: false, submission: false, hint: None }
    }

    /// Creates an error that Slurm's controller reports; exit code 1, after the text for a failed
    /// submission.
    pub fn submission(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: false, submission: true, hint: None }
    }

    /// Adds a hint: the accepted forms, or the nearest name.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        SpecError { hint: Some(hint.into()), ..self }
    }

    /// Adds a hint if there is one.
    #[must_use]
    pub fn maybe_hint(self, hint: Option<&str>) -> Self {
        SpecError { hint: hint.map(str::to_owned).or(self.hint), ..self }
    }

    /// Suggests the nearest name if there is one.
    #[must_use]
    pub(crate) fn with_hint_of(self, nearest: Option<&str>) -> Self {
        SpecError {
            hint: nearest.map(|name| format!("did you mean {name}?")).or(self.hint),
            ..self
        }
    }

    /// Creates `Invalid --time specification: 1h`.
    pub fn invalid_option(option: &str, value: &str) -> Self {
        Self::usage(format!("Invalid {option} specification: {}", shown(value)))
    }

    /// Returns the exit code of sbatch, srun and salloc. The commands that only query and control
    /// jobs always exit with 1.
    pub fn exit_code(&self) -> u8 {
        if self.usage { 255 } else { 1 }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SpecError {}

/// Returns `value` for use in an error: limited in length, and without control characters, which a
/// terminal would interpret.
pub fn shown(value: &str) -> String {
    let mut out = String::new();
    for (i, c) in value.chars().enumerate() {
        if i == SHOWN_CHARS {
            out.push_str("...");
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_value_is_short_and_without_control_characters() {
        assert_eq!(shown("a\tb\u{1b}[2J\n"), "a\\tb\\u{1b}[2J\\n");
        let long = shown(&"é".repeat(5000));
        assert_eq!(long.chars().count(), SHOWN_CHARS + 3);
        assert!(long.ends_with("..."));
    }

    #[test]
    fn usage_errors_exit_with_255_and_others_with_1() {
        assert_eq!(SpecError::usage("x").exit_code(), 255);
        assert_eq!(SpecError::value("x").exit_code(), 1);
        assert_eq!(SpecError::submission("x").exit_code(), 1);
    }
}
