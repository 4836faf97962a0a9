//! Errors of a command: the lines for standard error and the exit code.
//!
//! This module does not print or exit; callers do both.

use std::fmt::Write;

/// The prefix of a line. Slurm has four kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `sbatch: error: …`
    Error,
    /// `sbatch: fatal: …`
    Fatal,
    /// `sbatch: …`, the format of getopt.
    Plain,
    /// No prefix.
    Bare,
}

/// The early end of a command: an error, or output that was requested in place of the command's
/// action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CliError {
    /// Lines for standard error, in order.
    pub lines: Vec<(Mark, String)>,
    pub exit: i32,
    /// Text for standard output, such as that of `--help` and `--version`, which exit with 0.
    pub output: String,
}

impl CliError {
    /// Creates an error with one line and any prefix.
    pub fn new(mark: Mark, exit: i32, text: impl Into<String>) -> Self {
        CliError { lines: vec![(mark, text.into())], exit, ..CliError::default() }
    }

    /// Creates an error of the form `command: error: text`. Each line of the text gets the prefix.
    pub fn error(exit: i32, text: impl AsRef<str>) -> Self {
        let lines = text.as_ref().lines().map(|line| (Mark::Error, line.to_owned())).collect();
        CliError { lines, exit, ..CliError::default() }
    }

    /// Creates an error of the form `command: fatal: text`.
    pub fn fatal(exit: i32, text: impl Into<String>) -> Self {
        CliError::new(Mark::Fatal, exit, text)
    }

    /// Returns the exit code of the process; 1 if it is out of range.
    pub fn code(&self) -> u8 {
        u8::try_from(self.exit).unwrap_or(1)
    }

    /// Creates the output of `--help` and the like. The command does nothing else.
    pub fn output(text: impl Into<String>) -> Self {
        CliError { output: text.into(), ..CliError::default() }
    }

    /// Adds a hint on a line of its own.
    #[must_use]
    pub fn hint(self, text: impl std::fmt::Display) -> Self {
        self.and(Mark::Bare, format!("  hint: {text}"))
    }

    /// Adds a hint if there is one.
    #[must_use]
    pub fn maybe_hint(self, text: Option<impl std::fmt::Display>) -> Self {
        match text {
            Some(text) => self.hint(text),
            None => self,
        }
    }

    /// Adds a line.
    #[must_use]
    pub fn and(mut self, mark: Mark, text: impl Into<String>) -> Self {
        self.lines.push((mark, text.into()));
        self
    }

    /// Replaces the exit code (`SLURM_EXIT_ERROR`).
    #[must_use]
    pub fn with_exit(mut self, exit: i32) -> Self {
        self.exit = exit;
        self
    }

    /// Returns the lines without their prefixes, as part of another message.
    pub fn message(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|(_, line)| line.trim()).collect();
        lines.join("; ")
    }

    /// Returns the complete text for standard error. Every line ends with a newline.
    pub fn text(&self, command: &str) -> String {
        let mut out = String::new();
        for (mark, line) in &self.lines {
            // Writing to a string does not fail.
            let _ = match mark {
                Mark::Error => writeln!(out, "{command}: error: {line}"),
                Mark::Fatal => writeln!(out, "{command}: fatal: {line}"),
                Mark::Plain => writeln!(out, "{command}: {line}"),
                Mark::Bare => writeln!(out, "{line}"),
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_prints_as_in_slurm() {
        let error = CliError::error(255, "one\ntwo")
            .and(Mark::Fatal, "three")
            .and(Mark::Plain, "four")
            .and(Mark::Bare, "five");
        assert_eq!(
            error.text("sbatch"),
            "sbatch: error: one\nsbatch: error: two\nsbatch: fatal: three\nsbatch: four\nfive\n"
        );
        assert_eq!(error.message(), "one; two; three; four; five");
    }
}
