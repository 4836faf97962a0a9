//! How a command refuses: the lines for standard error and the exit code.
//!
//! It does not print and does not end the process; the caller does both.

use std::fmt::Write;

/// What stands before a line: Slurm has four ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `sbatch: error: …`
    Error,
    /// `sbatch: fatal: …`
    Fatal,
    /// `sbatch: …`, the way of getopt.
    Plain,
    /// The text alone.
    Bare,
}

/// The early end of a command: a refusal, or a text that was asked for in place of what the command
/// does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CliError {
    /// For standard error, in order.
    pub lines: Vec<(Mark, String)>,
    pub exit: i32,
    /// For standard output: of `--help` and `--version`, which end with 0.
    pub output: String,
}

impl CliError {
    /// One line with any mark.
    pub fn new(mark: Mark, exit: i32, text: impl Into<String>) -> Self {
        CliError { lines: vec![(mark, text.into())], exit, ..CliError::default() }
    }

    /// `command: error: text`. A text of several lines becomes several such lines.
    pub fn error(exit: i32, text: impl AsRef<str>) -> Self {
        let lines = text.as_ref().lines().map(|line| (Mark::Error, line.to_owned())).collect();
        CliError { lines, exit, ..CliError::default() }
    }

    /// `command: fatal: text`.
    pub fn fatal(exit: i32, text: impl Into<String>) -> Self {
        CliError::new(Mark::Fatal, exit, text)
    }

    /// The exit code of the process; 1 for what is none.
    pub fn code(&self) -> u8 {
        u8::try_from(self.exit).unwrap_or(1)
    }

    /// `--help` and its like: a text for standard output, and nothing else is done.
    pub fn output(text: impl Into<String>) -> Self {
        CliError { output: text.into(), ..CliError::default() }
    }

    /// Adds what to do about it, on a line of its own.
    #[must_use]
    pub fn hint(self, text: impl std::fmt::Display) -> Self {
        self.and(Mark::Bare, format!("  hint: {text}"))
    }

    /// The same where there may be nothing to say.
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

    /// The same refusal with another exit code (`SLURM_EXIT_ERROR`).
    #[must_use]
    pub fn with_exit(mut self, exit: i32) -> Self {
        self.exit = exit;
        self
    }

    /// Everything that goes to standard error, each line ended.
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
    fn each_mark_prints_as_slurm_prints_it() {
        let error = CliError::error(255, "one\ntwo")
            .and(Mark::Fatal, "three")
            .and(Mark::Plain, "four")
            .and(Mark::Bare, "five");
        assert_eq!(
            error.text("sbatch"),
            "sbatch: error: one\nsbatch: error: two\nsbatch: fatal: three\nsbatch: four\nfive\n"
        );
    }
}
