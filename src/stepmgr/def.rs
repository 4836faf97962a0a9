//! A parsed and validated step.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The command of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A line for the shell.
    Shell(Box<str>),
    /// A program and its arguments.
    Words(Box<[Box<str>]>),
}

/// The most characters of a command that a generated step name contains.
const LONGEST: usize = 40;

/// Returns whether a character has no special meaning to any shell.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, ' ' | '_' | '.' | '/' | ',' | ':' | '@' | '%' | '+' | '-' | '=')
}

/// Shell builtins and keywords. A shell runs these itself, or differently from the program of that
/// name.
const SHELL_WORDS: [&str; 51] = [
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "done", "echo",
    "elif", "else", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "getopts",
    "hash", "if", "in", "jobs", "kill", "local", "printf", "pwd", "read", "readonly", "return",
    "set", "shift", "source", "test", "then", "time", "times", "trap", "type", "ulimit", "umask",
    "unalias", "unset", "until", "wait", "while",
];

impl Command {
    /// Returns the words to execute. Like make, it skips the shell for lines without shell syntax.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Words(words) => words.iter().map(|word| word.to_string()).collect(),
            Command::Shell(line) => match plain_words(line) {
                Some(words) => words,
                None => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_string()],
            },
        }
    }

    /// Returns the total bytes of the words, each with its null byte.
    pub(crate) fn len(&self) -> usize {
        match self {
            Command::Shell(line) => line.len() + 1,
            Command::Words(words) => words.iter().map(|word| word.len() + 1).sum(),
        }
    }

    /// Returns the command as the step's record stores it.
    pub fn text(&self) -> String {
        match self {
            Command::Shell(line) => line.to_string(),
            Command::Words(words) => words.join(" "),
        }
    }

    /// Returns the first word without its directory, as the name of an unnamed step.
    pub(crate) fn first_word(&self) -> String {
        // A line may begin with variable assignments: `LC_ALL=C sort`.
        let is_variable = |word: &&str| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let word = match self {
            Command::Shell(line) => {
                line.split_whitespace().find(|word| !is_variable(word)).unwrap_or_default()
            }
            Command::Words(words) => words.first().map_or("", |word| word),
        };
        let is_good = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let name: String = word
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .chars()
            .filter(is_good)
            .take(LONGEST)
            .collect();
        if name.is_empty() { "sh".to_owned() } else { name }
    }
}

fn plain_words(line: &str) -> Option<Vec<String>> {
    let words: Vec<String> =
        line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let first = words.first()?;
    let is_plain = line.chars().all(is_plain)
        && !first.contains('=')
        && !SHELL_WORDS.contains(&first.as_str());
    is_plain.then_some(words)
}

/// How a step has to end to satisfy a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wanted {
    /// It must succeed: `afterok`, the default.
    Ok,
    /// It may end in any way: `afterany`.
    Any,
    /// It must not succeed: `afternotok`.
    NotOk,
}

impl Wanted {
    /// Returns the prefix before the step name.
    pub fn name(self) -> &'static str {
        match self {
            Wanted::Ok => "afterok",
            Wanted::Any => "afterany",
            Wanted::NotOk => "afternotok",
        }
    }
}

/// One element of `after`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct After {
    pub wanted: Wanted,
    /// A name, or a pattern with `*` and `?`.
    pub name: Box<str>,
}

impl After {
    pub(crate) fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }
}

/// The effect of a step that fails for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFailure {
    /// Steps that depend on it are skipped.
    #[default]
    Skip,
    /// Steps that depend on it treat it as successful.
    Continue,
    /// No more steps are started.
    Stop,
}

/// The number of retries after a failure, and the delay before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Retry {
    pub times: u32,
    /// The delay before the first retry in seconds. It doubles with each retry.
    pub delay_secs: u64,
}

/// The longest delay before a retry in seconds.
const LONGEST_DELAY: u64 = 3600;

impl Retry {
    /// Returns the delay in seconds after this many attempts.
    pub(crate) fn delay_after(self, attempts: u32) -> u64 {
        let doubled = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        self.delay_secs.saturating_mul(doubled).min(LONGEST_DELAY)
    }
}

/// A signal sent before the time limit of the step or the end of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Warning {
    pub signal: i32,
    pub before_secs: u64,
}

/// The resources that a step takes from its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ask {
    pub cpus: u32,
    /// `None` if its memory is not counted.
    pub mem_mb: Option<u64>,
    pub gpus: u32,
}

/// Settings shared by the steps of one description.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The total for all tasks.
    pub ask: Ask,
    pub ntasks: u32,
    /// Seconds.
    pub time_secs: Option<u64>,
    pub priority: i64,
    pub retry: Retry,
    pub on_failure: OnFailure,
    pub warning: Option<Warning>,
    pub env: Box<[(Box<str>, Box<str>)]>,
    /// Absolute, or relative to the manager's working directory.
    pub dir: Option<Box<str>>,
    pub stdin: Option<Box<str>>,
    pub stdout: Option<Box<str>>,
    pub stderr: Option<Box<str>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            ask: Ask { cpus: 1, mem_mb: None, gpus: 0 },
            ntasks: 1,
            time_secs: None,
            priority: 0,
            retry: Retry::default(),
            on_failure: OnFailure::default(),
            warning: None,
            env: Box::default(),
            dir: None,
            stdin: None,
            stdout: None,
            stderr: None,
        }
    }
}

/// A step as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDef {
    pub name: Arc<str>,
    pub command: Command,
    pub settings: Arc<Settings>,
    pub after: Box<[After]>,
    /// The line of its definition, counted from 1; 0 if unknown.
    pub line: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_shell_syntax_run_in_a_shell() {
        let argv = |line: &str| Command::Shell(line.into()).argv();
        assert_eq!(argv("gzip -9  a.txt"), ["gzip", "-9", "a.txt"]);
        for line in [
            "echo a",
            "a=1 true",
            "true; false",
            "ls *.c",
            "cd /",
            "cat 'a'",
            "a > b",
            "",
            "x $Y",
            "a\tb",
        ] {
            assert_eq!(argv(line), ["/bin/sh", "-c", line]);
        }
        assert!(SHELL_WORDS.is_sorted());
    }

    #[test]
    fn retry_delay_doubles_up_to_an_hour() {
        let retry = Retry { times: 9, delay_secs: 10 };
        assert_eq!(
            [1, 2, 3, 4, 60, 90].map(|n| retry.delay_after(n)),
            [10, 20, 40, 80, 3600, 3600]
        );
        assert_eq!(Retry { times: 9, delay_secs: 0 }.delay_after(7), 0);
    }
}
