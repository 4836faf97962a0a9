//! Turns parsed descriptions into steps: validates values, expands `foreach` and generates names.

use super::foreach::{Braces, Row, check_braces, fill, rows};
use super::spec::{RetrySpec, Scalar, StepSpec, Words};
use super::text::{Fault, ReadFile, Wrong};
use crate::def::{After, Ask, Command, OnFailure, Retry, Settings, StepDef, Wanted, Warning};
use slotd_parse::error::shown;
use slotd_parse::{mem, signal, suggest, time};
use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Arc;

/// The default delay before the first retry in seconds.
const RETRY_DELAY: u64 = 1;

/// The longest step name in bytes.
const MAX_NAME: usize = 1024;

/// Expands the step descriptions of one input.
pub struct Expander<'a> {
    pub file: &'a str,
    read: ReadFile<'a>,
    /// Settings seen so far, shared between equal steps.
    known: HashSet<Arc<Settings>>,
    /// The last number used in a generated name.
    last_number: &'a mut u32,
    pub steps: Vec<StepDef>,
}

impl<'a> Expander<'a> {
    pub fn new(file: &'a str, read: ReadFile<'a>, last_number: &'a mut u32) -> Self {
        Expander { file, read, known: HashSet::new(), last_number, steps: Vec::new() }
    }

    /// Adds the steps of one description. Generated names contain `number`, or the next free number
    /// if that one is taken.
    ///
    /// # Errors
    /// Fails if a value is invalid. `line_of` returns the line of a key.
    pub fn add(
        &mut self,
        spec: StepSpec,
        number: u32,
        line_of: &dyn Fn(&str) -> u32,
    ) -> Result<(), Fault> {
        let file = self.file;
        let refuse = |wrong: Wrong| {
            let line = line_of(wrong.key);
            wrong.at(file, line)
        };
        let combinations = match &spec.foreach {
            None => vec![Row::new()],
            Some(foreach) => rows(foreach, self.read).map_err(refuse)?,
        };
        if combinations.len() > 1 && spec.name.as_ref().is_some_and(|name| !name.contains('{')) {
            let name = spec.name.unwrap_or_default();
            let text = format!("name = {name:?}: every step of the foreach would have this name");
            return Err(refuse(Wrong::new("name", text, "include a foreach name in braces")));
        }
        check_texts(&spec, combinations.first().map_or(&[][..], Vec::as_slice)).map_err(refuse)?;
        let line = line_of("");
        let number = number.max(self.last_number.saturating_add(1));
        *self.last_number = number;
        for (at, row) in combinations.iter().enumerate() {
            let number = if combinations.len() > 1 {
                format!("{number}-{}", at + 1)
            } else {
                number.to_string()
            };
            let step = self.step(&spec, row, &number, line).map_err(refuse)?;
            self.steps.push(step);
        }
        Ok(())
    }

    fn step(
        &mut self,
        spec: &StepSpec,
        row: &[(String, String)],
        number: &str,
        line: u32,
    ) -> Result<StepDef, Wrong> {
        let command = command(spec, row)?;
        let name = match &spec.name {
            Some(name) => fill(name, row),
            None => format!("{}-{number}", command.first_word()),
        };
        check_name(&name)?;
        let settings = Arc::new(settings(spec, row)?);
        let settings = match self.known.get(&settings) {
            Some(known) => Arc::clone(known),
            None => {
                self.known.insert(Arc::clone(&settings));
                settings
            }
        };
        Ok(StepDef { name: name.into(), command, settings, after: after(spec, row)?, line })
    }
}

/// Checks that all braces name a `foreach` value. All rows have the same names, so the first
/// suffices.
fn check_texts(spec: &StepSpec, row: &[(String, String)]) -> Result<(), Wrong> {
    let known: Vec<&str> = row.iter().map(|(name, _)| name.as_str()).collect();
    let all = |words: &Option<Words>| match words {
        None => Vec::new(),
        Some(Words::One(word)) => vec![word.clone()],
        Some(Words::Many(words)) => words.clone(),
    };
    check_braces("name", spec.name.as_deref().unwrap_or_default(), &known, Braces::Wrong)?;
    // Braces have no meaning without foreach.
    if known.is_empty() {
        return Ok(());
    }
    for word in all(&spec.after) {
        check_braces("after", &word, &known, Braces::Wrong)?;
    }
    let files = [
        ("dir", &spec.dir),
        ("stdin", &spec.stdin),
        ("stdout", &spec.stdout),
        ("stderr", &spec.stderr),
    ];
    for (key, text) in files {
        check_braces(key, text.as_deref().unwrap_or_default(), &known, Braces::Wrong)?;
    }
    for word in all(&spec.command) {
        check_braces("command", &word, &known, Braces::Shell)?;
    }
    spec.env
        .values()
        .try_for_each(|Scalar(value)| check_braces("env", value, &known, Braces::Shell))
}

fn check_name(name: &str) -> Result<(), Wrong> {
    let refuse = |text: String, hint: &str| Err(Wrong::new("name", text, hint));
    if name.len() > MAX_NAME {
        let text = format!("name = \"{}\" is too long: {} bytes", shown(name), name.len());
        return refuse(text, &format!("at most {MAX_NAME} bytes"));
    }
    let is_bad = |c: char| c.is_control() || matches!(c, ',' | ':' | '*' | '?');
    if name.is_empty() || name.contains(is_bad) {
        let hint = "do not use control characters, commas, colons, * or ?";
        return refuse(format!("name = {name:?} is not a valid step name"), hint);
    }
    Ok(())
}

fn command(spec: &StepSpec, row: &[(String, String)]) -> Result<Command, Wrong> {
    let missing = || {
        Wrong::new("", "the step has no command", "add command = \"…\" or command = [\"…\", \"…\"]")
    };
    let is_whole = |text: &str| !text.contains('\0');
    let command = match spec.command.as_ref().ok_or_else(missing)? {
        Words::One(line) => Command::Shell(fill(line, row).into()),
        Words::Many(words) => {
            Command::Words(words.iter().map(|word| fill(word, row).into()).collect())
        }
    };
    let is_empty = match &command {
        Command::Shell(line) => line.trim().is_empty(),
        Command::Words(words) => words.first().is_none_or(|word| word.is_empty()),
    };
    if is_empty {
        return Err(missing());
    }
    if !is_whole(&command.text()) {
        let why = "the command contains a null byte";
        return Err(Wrong::new("command", why, "remove it: no program accepts one"));
    }
    Ok(command)
}

fn after(spec: &StepSpec, row: &[(String, String)]) -> Result<Box<[After]>, Wrong> {
    let words: Vec<&str> = match &spec.after {
        None => Vec::new(),
        Some(Words::One(word)) => word.split(',').collect(),
        Some(Words::Many(words)) => words.iter().map(String::as_str).collect(),
    };
    words.into_iter().map(|word| after_one(&fill(word.trim(), row))).collect()
}

fn after_one(word: &str) -> Result<After, Wrong> {
    let (wanted, name) = match word.split_once(':') {
        None => (Wanted::Ok, word),
        Some(("afterok", name)) => (Wanted::Ok, name),
        Some(("afterany", name)) => (Wanted::Any, name),
        Some(("afternotok", name)) => (Wanted::NotOk, name),
        Some((kind, _)) => {
            let text = format!("after = {word:?}: {kind:?} is not a dependency type");
            return Err(Wrong::new(
                "after",
                text,
                "use NAME, afterok:NAME, afterany:NAME or afternotok:NAME",
            ));
        }
    };
    if name.is_empty() {
        return Err(Wrong::new(
            "after",
            format!("after = {word:?} names no step"),
            "give a step name, or a pattern such as fit-*",
        ));
    }
    Ok(After { wanted, name: name.into() })
}

fn settings(spec: &StepSpec, row: &[(String, String)]) -> Result<Settings, Wrong> {
    let filled = |text: &Option<String>| text.as_ref().map(|text| Box::from(fill(text, row)));
    let value = |written: &Option<Scalar>| written.as_ref().map(|Scalar(text)| fill(text, row));
    let ntasks =
        number("ntasks", ", 1 or more", value(&spec.ntasks), |ntasks| *ntasks > 0)?.unwrap_or(1);
    let cpus: u32 = number("cpus", ", 0 or more", value(&spec.cpus), |_| true)?.unwrap_or(1);
    let mem_mb = match value(&spec.mem) {
        None => None,
        Some(text) => Some(mem::megabytes(&text).ok_or_else(|| {
            Wrong::new(
                "mem",
                format!("mem = {text:?} is not a valid amount of memory"),
                "use megabytes, or a suffix: 512M, 8G",
            )
        })?),
    };
    let env =
        |(name, value): (&String, &Scalar)| (name.as_str().into(), fill(&value.0, row).into());
    if let Some(name) = spec.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Wrong::new(
            "env",
            format!("env: {name:?} is not a valid variable name"),
            "use letters, digits and _",
        ));
    }
    Ok(Settings {
        ask: Ask {
            // 0 CPUs are allowed, for a step that only waits for others.
            cpus: cpus.saturating_mul(ntasks),
            mem_mb: mem_mb.filter(|mb| *mb > 0),
            gpus: number("gpus", ", 0 or more", value(&spec.gpus), |_| true)?.unwrap_or(0),
        },
        ntasks,
        time_secs: limit(value(&spec.time))?,
        priority: number("priority", "", value(&spec.priority), |_| true)?.unwrap_or(0),
        retry: retry(spec.retry.as_ref(), row)?,
        on_failure: on_failure(value(&spec.on_failure))?,
        warning: warning(value(&spec.signal))?,
        env: spec.env.iter().map(env).collect(),
        dir: filled(&spec.dir),
        stdin: filled(&spec.stdin),
        stdout: filled(&spec.stdout),
        stderr: filled(&spec.stderr),
    })
}

/// Parses a number and checks its range.
fn number<T: FromStr>(
    key: &'static str,
    kind: &str,
    written: Option<String>,
    is_good: impl Fn(&T) -> bool,
) -> Result<Option<T>, Wrong> {
    let Some(text) = written else { return Ok(None) };
    let refuse = || {
        Wrong::new(
            key,
            format!("{key} = {text:?} is not a valid number"),
            format!("use a whole number{kind}: {key} = 2"),
        )
    };
    text.parse().ok().filter(is_good).map(Some).ok_or_else(refuse)
}

fn on_failure(written: Option<String>) -> Result<OnFailure, Wrong> {
    const VALUES: [(&str, OnFailure); 3] =
        [("skip", OnFailure::Skip), ("continue", OnFailure::Continue), ("stop", OnFailure::Stop)];
    let Some(text) = written else { return Ok(OnFailure::default()) };
    let hint = || suggest::one_of("values", &text, VALUES.map(|(name, _)| name));
    let refuse =
        || Wrong::new("on_failure", format!("on_failure = {text:?} is not a valid value"), hint());
    VALUES.iter().find(|(name, _)| *name == text).map(|(_, meant)| *meant).ok_or_else(refuse)
}

fn limit(written: Option<String>) -> Result<Option<u64>, Wrong> {
    let Some(text) = written else { return Ok(None) };
    time::parse_limit(&text).map_err(|error| Wrong {
        key: "time",
        text: format!("time = {text:?} is not a valid time limit"),
        hint: error.hint,
    })
}

fn retry(written: Option<&RetrySpec>, row: &[(String, String)]) -> Result<Retry, Wrong> {
    let Some(RetrySpec { times, delay }) = written else { return Ok(Retry::default()) };
    let delay_secs = match delay {
        None => RETRY_DELAY,
        Some(Scalar(text)) => fill(text, row).parse().map_err(|_| {
            Wrong::new(
                "retry",
                format!("retry: delay = {text:?} is not a valid number of seconds"),
                "use a whole number: delay = 10",
            )
        })?,
    };
    Ok(Retry { times: *times, delay_secs })
}

fn warning(written: Option<String>) -> Result<Option<Warning>, Wrong> {
    let Some(text) = written else { return Ok(None) };
    let parsed = signal::parse_warn(&text).map_err(|error| Wrong {
        key: "signal",
        text: format!("signal = {text:?} is not a valid signal"),
        hint: error.hint,
    })?;
    Ok(Some(Warning { signal: parsed.signal, before_secs: parsed.before_secs.into() }))
}
