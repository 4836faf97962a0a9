//! What was wrong with a text, in Slurm's words.

use std::fmt;

/// How many characters of an offending value an error repeats.
const SHOWN_CHARS: usize = 200;

/// A text that could not be understood.
///
/// `Display` is what follows `sbatch: error: ` on the terminal: Slurm's own text where it has one,
/// then the offending value. Texts of several lines are joined by `\n`; the caller puts its prefix
/// before each line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    /// Slurm's commands that start jobs end with 255 for it, as for an unknown option; otherwise
    /// with 1.
    pub usage: bool,
    /// In Slurm the controller finds it, so that the text comes after
    /// `Batch job submission failed: ` (sbatch), `Unable to allocate resources: ` (srun) or
    /// `Job submit/allocate failed: ` (salloc).
    pub submission: bool,
    /// What would be understood, for a line of its own.
    pub hint: Option<String>,
}

impl SpecError {
    /// A value that the option parser refuses: exit code 255.
    pub fn usage(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: true, submission: false, hint: None }
    }

    /// A value that is refused with exit code 1.
    pub fn value(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: false, submission: false, hint: None }
    }

    /// A value that Slurm's controller refuses: exit code 1, after the words for a failed
    /// submission.
    pub fn submission(text: impl Into<String>) -> Self {
        SpecError { text: text.into(), usage: false, submission: true, hint: None }
    }

    /// Adds what would be understood: the forms, or the nearest name.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        SpecError { hint: Some(hint.into()), ..self }
    }

    /// The same, where there is one.
    #[must_use]
    pub fn maybe_hint(self, hint: Option<&str>) -> Self {
        SpecError { hint: hint.map(str::to_owned).or(self.hint), ..self }
    }

    /// Adds the name that is meant, where one is near.
    #[must_use]
    pub fn with_hint_of(self, nearest: Option<&str>) -> Self {
        SpecError {
            hint: nearest.map(|name| format!("did you mean {name}?")).or(self.hint),
            ..self
        }
    }

    /// `Invalid --time specification: 1h`.
    pub(crate) fn invalid_option(option: &str, value: &str) -> Self {
        Self::usage(format!("Invalid {option} specification: {}", shown(value)))
    }

    /// The exit code of sbatch, srun and salloc. The commands that only ask and steer end with 1
    /// always.
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

/// `value` as an error may repeat it: no control characters, which a terminal would act on, and of
/// limited length.
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
    fn usage_errors_end_with_255_and_others_with_1() {
        assert_eq!(SpecError::usage("x").exit_code(), 255);
        assert_eq!(SpecError::value("x").exit_code(), 1);
        assert_eq!(SpecError::submission("x").exit_code(), 1);
    }
}
