//! A step as it was asked for, with every value understood.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a step runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// A line for the shell.
    Shell(Box<str>),
    /// A program and its arguments.
    Words(Box<[Box<str>]>),
}

/// A name that is made of a command has no more characters of it.
const LONGEST: usize = 40;

/// Characters that no shell would do anything about.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, ' ' | '_' | '.' | '/' | ',' | ':' | '@' | '%' | '+' | '-' | '=')
}

/// Words that a shell does itself, or does otherwise than the program of that name.
const SHELL_WORDS: [&str; 51] = [
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "done", "echo",
    "elif", "else", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "getopts",
    "hash", "if", "in", "jobs", "kill", "local", "printf", "pwd", "read", "readonly", "return",
    "set", "shift", "source", "test", "then", "time", "times", "trap", "type", "ulimit", "umask",
    "unalias", "unset", "until", "wait", "while",
];

impl Command {
    /// The words to execute. A line in which a shell would find nothing to do needs none, as with
    /// make.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Command::Words(words) => words.iter().map(|word| word.to_string()).collect(),
            Command::Shell(line) => match plain_words(line) {
                Some(words) => words,
                None => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_string()],
            },
        }
    }

    /// How many bytes its words have, the zero bytes behind them included.
    pub fn len(&self) -> usize {
        match self {
            Command::Shell(line) => line.len() + 1,
            Command::Words(words) => words.iter().map(|word| word.len() + 1).sum(),
        }
    }

    /// As the records show it.
    pub fn text(&self) -> String {
        match self {
            Command::Shell(line) => line.to_string(),
            Command::Words(words) => words.join(" "),
        }
    }

    /// The name of a step that has none: the first word, without its directory.
    pub fn first_word(&self) -> String {
        // A line may begin with variables for its command: `LC_ALL=C sort`.
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

/// How a step has to end for those that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wanted {
    /// Well: `afterok`, also where nothing is said.
    Ok,
    /// In whatever way: `afterany`.
    Any,
    /// Not well: `afternotok`.
    NotOk,
}

impl Wanted {
    /// As it stands before the name.
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
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }
}

/// What follows from a step that has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFailure {
    /// The steps that depend on it are skipped.
    #[default]
    Skip,
    /// It counts as ended well for the steps that depend on it.
    Continue,
    /// No other step is started.
    Stop,
}

/// How often a step that fails is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Retry {
    pub times: u32,
    /// Before the first of them, seconds; twice as long before each other one.
    pub delay_secs: u64,
}

/// No wait is longer, seconds.
const LONGEST_DELAY: u64 = 3600;

impl Retry {
    /// How long to wait after so many attempts.
    pub fn delay_after(self, attempts: u32) -> u64 {
        let doubled = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        self.delay_secs.saturating_mul(doubled).min(LONGEST_DELAY)
    }
}

/// A signal before the end: of the step's own limit or of the job's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Warning {
    pub signal: i32,
    pub before_secs: u64,
}

/// What a step takes of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ask {
    pub cpus: u32,
    /// `None`: it is not counted.
    pub mem_mb: Option<u64>,
    pub gpus: u32,
}

/// What steps made from one description have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Of all its tasks.
    pub ask: Ask,
    pub ntasks: u32,
    /// Seconds.
    pub time_secs: Option<u64>,
    pub priority: i64,
    pub retry: Retry,
    pub on_failure: OnFailure,
    pub warning: Option<Warning>,
    pub env: Box<[(Box<str>, Box<str>)]>,
    /// Absolute, or from the manager's working directory.
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

/// A step to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepDef {
    pub name: Arc<str>,
    pub command: Command,
    pub settings: Arc<Settings>,
    pub after: Box<[After]>,
    /// Where it was written, counted from 1; 0 where it was not.
    pub line: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_a_shell_where_a_shell_would_do_something() {
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
    fn each_retry_waits_twice_as_long_up_to_an_hour() {
        let retry = Retry { times: 9, delay_secs: 10 };
        assert_eq!(
            [1, 2, 3, 4, 60, 90].map(|n| retry.delay_after(n)),
            [10, 20, 40, 80, 3600, 3600]
        );
        assert_eq!(Retry { times: 9, delay_secs: 0 }.delay_after(7), 0);
    }
}
