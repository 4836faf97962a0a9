//! A whole crontab: entries, the `#SCRON` lines with their options, variables and comments.

use crate::cron::{self, CronError, Timed};
use crate::directive::{Directive, words};
use crate::error::{SpecError, shown};
use slotd_model::cron::Recurrence;

const MAGIC: &str = "#SCRON";

/// An entry, which becomes a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line numbers of the first `#SCRON` line and of the command, starting at 1.
    pub lines: (usize, usize),
    /// The options of its `#SCRON` lines.
    pub options: Vec<Directive>,
    pub recurrence: Recurrence,
    /// The command, with the variables of the crontab filled in.
    pub command: String,
    /// The batch script that runs it. Contains the `#SCRON` lines and the time as comments.
    pub script: String,
}

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Starting at 1.
    pub line: usize,
    pub error: BadLineError,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLineError {
    #[error(transparent)]
    Time(#[from] CronError),
    #[error("{0}")]
    Options(SpecError),
    /// Contains the line number.
    #[error("line {0}: the command is longer than 1 MB with its variables")]
    TooLong(usize),
}

/// The maximum size of a command with its variables, in bytes.
const MOST_COMMAND: usize = 1 << 20;

/// The `#SCRON` lines that belong to the next entry.
#[derive(Default)]
struct Pending {
    first_line: Option<usize>,
    options: Vec<Directive>,
    /// The lines as written.
    texts: String,
}

/// Parses a crontab.
///
/// # Errors
/// Returns all lines that are neither an entry, an option line, a variable, a comment nor blank.
pub fn parse(text: &str) -> Result<Vec<Entry>, Vec<BadLine>> {
    let (mut entries, mut bad) = (Vec::new(), Vec::new());
    let mut variables: Vec<(&str, &str)> = Vec::new();
    let mut pending = Pending::default();
    for (line, whole) in (1..).zip(text.split('\n')) {
        let content = whole.trim_start_matches([' ', '\t']);
        if let Some(rest) = content.strip_prefix(MAGIC) {
            pending.first_line.get_or_insert(line);
            pending.texts += content;
            pending.texts.push('\n');
            match words(rest) {
                Ok(words) => pending.options.push(Directive { line, words }),
                Err(quote) => {
                    let text = format!("line {line}: unmatched {quote} in: {}", shown(whole));
                    bad.push(BadLine {
                        line,
                        error: BadLineError::Options(SpecError::value(text)),
                    });
                }
            }
        } else if let Some(variable) = variable(content) {
            variables.push(variable);
        } else if !content.trim().is_empty() && !content.starts_with('#') {
            let Pending { first_line, options, texts } = std::mem::take(&mut pending);
            match cron::parse(content) {
                Ok(timed) => match expanded(timed.command, &variables) {
                    Some(command) => {
                        let lines = (first_line.unwrap_or(line), line);
                        entries.push(entry(lines, options, &texts, &timed, command));
                    }
                    None => bad.push(BadLine { line, error: BadLineError::TooLong(line) }),
                },
                Err(error) => bad.push(BadLine { line, error: error.into() }),
            }
        }
    }
    if bad.is_empty() { Ok(entries) } else { Err(bad) }
}

fn entry(
    lines: (usize, usize),
    options: Vec<Directive>,
    texts: &str,
    timed: &Timed<'_>,
    command: String,
) -> Entry {
    let script = format!(
        "#!/bin/sh\n# This job was submitted through scrontab\n{texts}# crontab time request was: '{}'\n{command}\n",
        timed.written
    );
    Entry { lines, options, recurrence: timed.recurrence, command, script }
}

/// Returns the length of the shell name that the text begins with.
fn name_len(text: &str) -> usize {
    let is_part = |(at, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit())
    };
    text.char_indices().find(|part| !is_part(*part)).map_or(text.len(), |(at, _)| at)
}

/// Parses `NAME=value`. Quotes around the value do not belong to it.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_at_checked(name_len(line))?;
    let value = rest.trim_start().strip_prefix('=').filter(|_| !name.is_empty())?.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    Some((name, quoted('"').or_else(|| quoted('\'')).unwrap_or(value)))
}

/// Replaces `$NAME` for the variables of the crontab, of which the last one with a name counts.
/// Everything else is left to the shell, also `${NAME}`. Returns `None` if the result is too long.
fn expanded(command: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut text = String::new();
    let mut rest = command;
    while let Some((before, after)) = rest.split_once('$') {
        let (name, beyond) = after.split_at(name_len(after));
        text += before;
        match variables.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => text += value,
            None => {
                text.push('$');
                text += name;
            }
        }
        rest = beyond;
        if text.len() > MOST_COMMAND {
            return None;
        }
    }
    text += rest;
    (text.len() <= MOST_COMMAND).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Vec<Entry> {
        parse(text).unwrap()
    }

    #[test]
    fn options_add_up_for_the_next_entry_only() {
        let text = "#SCRON -t 1\n\n# a comment\n#SCRON -J tick -o 'a b'\n* * * * * one\n@daily two\n#SCRON -c 2\n";
        let entries = parsed(text);
        let shown: Vec<_> = entries
            .iter()
            .map(|entry| {
                let words: Vec<_> = entry.options.iter().flat_map(|line| &line.words).collect();
                (entry.lines, format!("{words:?}"), entry.command.as_str())
            })
            .collect();
        let options = r#"["-t", "1", "-J", "tick", "-o", "a b"]"#.to_owned();
        assert_eq!(shown, [((1, 5), options, "one"), ((6, 6), "[]".to_owned(), "two")]);
        assert_eq!(entries[0].options[1].line, 4);
    }

    #[test]
    fn the_script_is_that_of_slurm() {
        let text = "X=hello world\n#SCRON --job-name=nightly\n0 5 * * mon echo $X ${X} $Y$X_\n";
        assert_eq!(
            parsed(text)[0].script,
            "#!/bin/sh\n\
             # This job was submitted through scrontab\n\
             #SCRON --job-name=nightly\n\
             # crontab time request was: '0 5 * * mon'\n\
             echo hello world ${X} $Y$X_\n"
        );
    }

    #[test]
    fn variables_apply_to_the_commands_below_them() {
        let text = "X=1\n@daily $X$Z\nX = \"two words\"\nZ='z'\n@daily $X$Z$ $1 $X.$XX\n_a1=\n@daily <$_a1>";
        let commands: Vec<String> = parsed(text).into_iter().map(|entry| entry.command).collect();
        assert_eq!(commands, ["1$Z", "two wordsz$ $1 two words.$XX", "<>"]);
        assert!(parse("1X=2\n").is_err() && parse("=2").is_err() && parse("é=2").is_err());
    }

    #[test]
    fn a_command_is_bounded_with_its_variables() {
        let most = "x".repeat(MOST_COMMAND);
        assert_eq!(parsed(&format!("A={most}\n@daily $A"))[0].command.len(), MOST_COMMAND);
        for command in ["$A$A".repeat(1 << 16), "y$A".to_owned()] {
            let bad = parse(&format!("A={most}\n@daily {command}")).unwrap_err();
            let text = "line 2: the command is longer than 1 MB with its variables";
            assert_eq!(bad[0].error.to_string(), text);
        }
        assert!(parse("* * * * * ").is_err() && parse("@daily  ").is_err(), "no command");
    }

    #[test]
    fn every_bad_line_is_named() {
        let text =
            "@daily a\nbad line\n#SCRON -J 'x\n* * * true\n  \n@daily ok\n#DISABLED: @daily b\n";
        let bad: Vec<_> = parse(text)
            .unwrap_err()
            .into_iter()
            .map(|bad| (bad.line, bad.error.to_string()))
            .collect();
        let expected = [
            (2, "something is broken"),
            (3, "line 3: unmatched ' in: #SCRON -J 'x"),
            (4, "bad month specification"),
        ];
        assert_eq!(bad, expected.map(|(line, text)| (line, text.to_owned())));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn no_crontab_panics(text in "([\\PC]|[$=#@*\n\t]){0,80}") {
            let _ = parse(&text);
        }
    }
}
