//! Merges the options of a command from all sources into one list.
//!
//! Directives come first, then the environment, then the command line. The last occurrence of an
//! option wins, which is Slurm's precedence. All three sources use the same table of options. Each
//! option records its source, so that an error can name it.

use crate::args::error::{CliError, Mark};
use crate::args::extra::{self, Extra};
use crate::args::getopt::{Grammar, Operands};
use crate::args::origin::Origin;
use crate::args::table::{Given, Operand, Options, Takes, Values};
use crate::args::value::{BadValue, Why};
use crate::args::variables::Variable;
use crate::args::{headings, job_values};
use clap::{Args, Command};
use slotd_parse::SpecError;
use slotd_parse::directive::Directive;
use slotd_parse::error::shown;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

/// The output of `--version`. Clients look for `slurm` followed by a version; the rest names the
/// actual program.
pub const VERSION: &str = concat!("slurm-wlm 22.05.8-slotd-", env!("CARGO_PKG_VERSION"));

/// The properties of a command.
#[derive(Debug, Clone, Copy)]
pub struct Applet {
    pub name: &'static str,
    pub about: &'static str,
    pub operands: Operands,
    /// Returns the error about operands of a command that takes none. There is at least one.
    pub stray: fn(&[Operand]) -> String,
    /// The exit code for an unknown option or an invalid value.
    pub usage_exit: i32,
    /// Whether `Try "x --help" for more information` follows an invalid option.
    pub points_to_help: bool,
    pub extras: &'static [&'static [Extra]],
    /// Environment variables and the options that they set.
    pub variables: fn() -> Vec<Variable>,
    /// The prefix of a refused submission's error: `Batch job submission failed`.
    pub submission: &'static str,
    /// Example command lines, each with a description.
    pub examples: &'static [(&'static str, &'static str)],
}

impl Applet {
    /// Returns a command that takes operands anywhere, exits with 1 for an unknown option, and has
    /// nothing else to declare.
    pub const fn new(name: &'static str, about: &'static str) -> Applet {
        Applet {
            name,
            about,
            operands: Operands::Anywhere,
            stray: |words| {
                let first = words.first().map(|word| shown(&word.text));
                format!("Unrecognized option: {}", first.unwrap_or_default())
            },
            usage_exit: 1,
            points_to_help: true,
            extras: &[],
            variables: Vec::new,
            submission: "",
            examples: &[],
        }
    }

    /// Returns the option with this name if it has no effect.
    fn extra(&self, name: &str) -> Option<&'static Extra> {
        self.extras.iter().copied().flatten().find(|extra| extra.long == name)
    }

    /// Creates the error for an invalid value; `label` names the source of the value.
    pub fn refuse(&self, label: &str, error: &SpecError) -> CliError {
        let text = if error.submission {
            format!("{}: {error}", self.submission)
        } else {
            error.to_string()
        };
        let exit = if error.usage { self.usage_exit } else { 1 };
        CliError::error(exit, format!("{label}{text}")).maybe_hint(error.hint.as_ref())
    }
}

/// The source of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A line of the script, starting at 1.
    Directive(usize),
    /// An environment variable.
    Environment(&'static str),
    CommandLine,
}

impl Source {
    /// Returns the precedence of the source. An option in a higher layer replaces one in a lower
    /// layer.
    pub fn layer(self) -> u8 {
        match self {
            Source::Directive(_) => 0,
            Source::Environment(_) => 1,
            Source::CommandLine => 2,
        }
    }

    /// Returns the prefix of an error, which names the source.
    fn label(self) -> String {
        match self {
            Source::Directive(line) => format!("line {line}: "),
            Source::Environment(name) => format!("{name}: "),
            Source::CommandLine => String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub given: Given,
    pub source: Source,
}

/// The options after merging, in order of precedence, and the operands.
#[derive(Debug)]
pub struct Choices {
    applet: Applet,
    list: Vec<Choice>,
    /// Options without effect, which only `-v` lists. They are kept apart so that none can take
    /// effect by accident.
    idle: Vec<Choice>,
    pub operands: Vec<Operand>,
    /// List options that were given without elements.
    empty_lists: Vec<String>,
}

impl Choices {
    /// Returns the names of the list options that were given without an element, such as `--name=`
    /// or `-j ,`. With such an option, Slurm's listings match no jobs. Without it, they match all
    /// jobs.
    pub fn empty_lists(&self) -> &[String] {
        &self.empty_lists
    }

    /// Returns the choice with the highest precedence for this option.
    pub fn of(&self, name: &str) -> Option<&Choice> {
        self.list.iter().rev().find(|choice| choice.given.name == name)
    }

    /// Returns the one of these options that was given last. It wins if they exclude each other.
    pub fn last_of<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        self.list
            .iter()
            .rev()
            .find_map(|choice| names.iter().copied().find(|name| *name == choice.given.name))
    }

    /// Returns whether the option was given on the command line.
    pub fn on_command_line(&self, name: &str) -> bool {
        self.of(name).is_some_and(|choice| choice.source == Source::CommandLine)
    }

    /// Returns whether the option was set by the environment.
    pub fn is_from_environment(&self, name: &str) -> bool {
        self.of(name).is_some_and(|choice| matches!(choice.source, Source::Environment(_)))
    }

    /// Creates the error for an invalid value of an option.
    pub fn refuse(&self, name: &str, error: &SpecError) -> CliError {
        let label = self.of(name).map(|choice| choice.source.label()).unwrap_or_default();
        self.applet.refuse(&label, error)
    }

    /// Creates the error for a value that its parser refused, with the source of the value.
    fn refuse_value(&self, bad: BadValue) -> CliError {
        let is_it = |choice: &&Choice| {
            choice.given.name == bad.option
                && choice.given.value.as_ref().is_some_and(|text| text.contains(&bad.value))
        };
        let choice = self.list.iter().find(is_it).or_else(|| self.of(&bad.option));
        let label = choice.map(|choice| choice.source.label()).unwrap_or_default();
        match bad.why {
            Why::Grammar(error) => self.applet.refuse(&label, &error),
            Why::Command(mut error) => {
                if let Some((_, first)) = error.lines.first_mut() {
                    first.insert_str(0, &label);
                }
                error
            }
        }
    }

    /// Validates the values of options without effect.
    fn check_idle(&self) -> Result<(), CliError> {
        for Choice { given, source } in &self.idle {
            let (Some(extra), Some(value)) = (self.applet.extra(&given.name), &given.value) else {
                continue;
            };
            if let Some(Err(error)) =
                extra.check.map(|check| check(value, &format!("--{}", given.name)))
            {
                return Err(self.applet.refuse(&source.label(), &error));
            }
        }
        Ok(())
    }

    /// Returns the variables that Slurm sets for these options, because steps and programs in the
    /// job may read them.
    pub fn option_variables(&self) -> Vec<(&'static str, String)> {
        let value = |name| {
            let mut given = self.idle.iter().chain(&self.list).map(|choice| &choice.given);
            given.rfind(|given| given.name == name)?.value.as_deref()
        };
        let frequency = value("cpu-freq").and_then(|text| slotd_parse::cpu_freq::parse(text).ok());
        let profile = value("profile").and_then(|text| slotd_parse::profile::parse(text).ok());
        let all = [
            ("SLURM_CPU_FREQ_REQ", frequency),
            ("SLURM_GPU_BIND", value("gpu-bind").map(str::to_owned)),
            ("SLURM_PROFILE", profile.filter(|kinds| kinds != slotd_parse::profile::NONE)),
        ];
        all.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    }

    /// Parses a value if it was given.
    pub fn read<T, F>(
        &self,
        name: &str,
        value: Option<&String>,
        parse: F,
    ) -> Result<Option<T>, CliError>
    where
        F: FnOnce(&str) -> Result<T, SpecError>,
    {
        value.map(|text| parse(text).map_err(|error| self.refuse(name, &error))).transpose()
    }

    /// Returns the names and values of all options, as listed by `-v`.
    pub fn defined(&self) -> Vec<(String, String)> {
        let mut named: BTreeMap<&str, (String, u64)> = BTreeMap::new();
        let live = self.list.iter().map(|choice| (choice, ""));
        let idle = self.idle.iter().map(|choice| (choice, " (without effect on one host)"));
        for (choice, note) in live.chain(idle) {
            let (value, count) = named.entry(&choice.given.name).or_default();
            *count += 1;
            *value = match (&choice.given.value, choice.given.name.as_str()) {
                (_, "verbose") => count.to_string(),
                (Some(value), _) => value.clone(),
                (None, _) => "set".to_owned(),
            } + note;
        }
        named.into_iter().map(|(name, (value, _))| (name.to_owned(), value)).collect()
    }
}

/// A scanned command line, before the other sources are read.
#[derive(Debug)]
pub struct Reader {
    applet: Applet,
    grammar: Grammar,
    line: Vec<Choice>,
    pub operands: Vec<Operand>,
}

impl Reader {
    /// Scans the command line; `argv[0]` is the command. Handles `--help`, `--usage` and
    /// `--version`.
    ///
    /// # Errors
    /// Fails for an unknown or ambiguous option, for a missing value, and for a word that is not
    /// UTF-8. The output of `--help` and the like is also returned as an error.
    pub fn scan<T: Options>(applet: Applet, argv: &[OsString]) -> Result<Reader, CliError> {
        let mut grammar = Grammar::of::<T>();
        for extra in applet.extras.iter().copied().flatten() {
            grammar.add(extra.long, extra.short, extra.takes);
        }
        let mut words = Vec::with_capacity(argv.len());
        for word in argv.iter().skip(1) {
            match word.to_str() {
                Some(word) => words.push(word.to_owned()),
                None => {
                    let text = format!("argument is not valid UTF-8: {}", word.to_string_lossy());
                    return Err(CliError::error(applet.usage_exit, text));
                }
            }
        }
        let found = grammar.scan(&words, applet.operands).map_err(|error| {
            let mut refusal = error.refuse(Mark::Plain, "", applet.name, applet.usage_exit);
            if !applet.points_to_help {
                refusal.lines.pop();
            }
            refusal
        })?;
        match found
            .options
            .iter()
            .map(|given| given.name.as_str())
            .find(|name| matches!(*name, "help" | "usage" | "version"))
        {
            Some("help") => {
                return Err(CliError::output(definition::<T>(applet).render_help().to_string()));
            }
            Some("usage") => {
                return Err(CliError::output(format!(
                    "{}\n",
                    definition::<T>(applet).render_usage()
                )));
            }
            Some(_) => return Err(CliError::output(format!("{VERSION}\n"))),
            None => {}
        }
        let line = found
            .options
            .into_iter()
            .map(|given| Choice { given, source: Source::CommandLine })
            .collect();
        Ok(Reader { applet, grammar, line, operands: found.operands })
    }

    /// Returns whether the command line contains this option.
    pub fn has(&self, name: &str) -> bool {
        self.line.iter().any(|choice| choice.given.name == name)
    }

    /// Returns the help on the values of an option, if the command line requests it.
    pub fn value_help(&self) -> Option<CliError> {
        let help = |choice: &Choice| {
            job_values::help_on(&choice.given.name, choice.given.value.as_deref()?)
        };
        self.line.iter().find_map(help)
    }

    /// Returns whether the directives of a script contain this option.
    pub fn has_directive(&mut self, directives: &[Directive], name: &str) -> bool {
        self.directives(directives)
            .is_ok_and(|list| list.iter().any(|choice| choice.given.name == name))
    }

    /// Refuses `:`, which separates the components of a heterogeneous job. Checks the first
    /// operand, or all operands if `anywhere` is set: Slurm's srun also looks for it in the
    /// command.
    ///
    /// # Errors
    /// Fails if there is a `:`.
    pub fn refuse_components(&self, anywhere: bool) -> Result<(), CliError> {
        let looked_at = if anywhere { self.operands.len() } else { 1 };
        if !self.operands.iter().take(looked_at).any(|operand| operand.text == ":") {
            return Ok(());
        }
        let text = format!("{}: :", slotd_parse::directive::NO_COMPONENTS);
        Err(CliError::error(1, text)
            .hint("submit one job per component and connect them with --dependency"))
    }

    /// Treats a flag's letter followed by an operand as another option with that value: in Slurm,
    /// the `-p` of `sacct -p cpu` takes no value, and the word would be ignored.
    pub fn letter_takes_next(&mut self, flag: &str, option: &str) {
        let line = &mut self.line;
        self.operands.retain(|operand| {
            let before = operand.after.and_then(|i| line.get_mut(i));
            match before.filter(|choice| choice.given.name == flag && choice.given.short) {
                Some(choice) => {
                    option.clone_into(&mut choice.given.name);
                    choice.given.value = Some(operand.text.clone());
                    false
                }
                None => true,
            }
        });
    }

    /// Treats each operand as a value of this option.
    pub fn operands_are(&mut self, option: &str) {
        self.line.extend(self.operands.drain(..).map(|operand| Choice {
            given: Given { name: option.to_owned(), value: Some(operand.text), short: false },
            source: Source::CommandLine,
        }));
    }

    /// Passes the operands to the first of these options that has no value on the command line: in
    /// `squeue -j 12`, getopt accepts only an attached value for `-j`.
    pub fn give_operands(&mut self, options: &[&str]) {
        let wants =
            |name: &str| self.line.iter().any(|c| c.given.name == name && c.given.value.is_none());
        if let Some(name) = options.iter().find(|name| wants(name)) {
            self.operands_are(name);
        }
    }

    /// Adds the environment and the script's directives, and parses the options.
    ///
    /// # Errors
    /// Fails for a malformed directive, with its line number, and for an option that slotd does not
    /// support.
    pub fn finish<T: Options>(
        mut self,
        origin: &Origin,
        directives: &[Directive],
    ) -> Result<(T, Choices), CliError> {
        if self.applet.operands == Operands::None && !self.operands.is_empty() {
            let text = (self.applet.stray)(&self.operands);
            return Err(CliError::error(self.applet.usage_exit, text));
        }
        let mut list = self.directives(directives)?;
        list.extend(environment(&self.grammar, (self.applet.variables)(), origin));
        list.append(&mut self.line);
        let is_extra = |choice: &Choice| self.applet.extra(&choice.given.name).is_some();
        let (idle, list): (Vec<_>, Vec<_>) =
            settle(&self.grammar, list).into_iter().partition(is_extra);
        let refusal = |choice: &Choice| {
            extra::refusal(self.applet.extra(&choice.given.name)?, self.applet.usage_exit)
        };
        if let Some(refusal) = idle.iter().find_map(refusal) {
            return Err(refusal);
        }
        let empty_lists = empty_lists(&self.grammar, &list);
        let choices =
            Choices { applet: self.applet, list, idle, operands: self.operands, empty_lists };
        choices.check_idle()?;
        let mut values = Values::new(
            &self.grammar.rows,
            choices.list.iter().map(|choice| &choice.given),
            &choices.operands,
        );
        let options = T::read(&mut values);
        match values.refused() {
            Some(bad) => Err(choices.refuse_value(bad)),
            None => Ok((options, choices)),
        }
    }

    fn directives(&mut self, directives: &[Directive]) -> Result<Vec<Choice>, CliError> {
        self.grammar.lenient_flags = true;
        let mut list = Vec::new();
        for Directive { line, words } in directives {
            let exit = self.applet.usage_exit;
            let found = self.grammar.scan(words, Operands::Anywhere).map_err(|error| {
                error.refuse(Mark::Error, &format!("line {line}: "), self.applet.name, exit)
            })?;
            if let Some(stray) = found.operands.first() {
                let text =
                    format!("line {line}: Invalid directive found in batch script: {}", stray.text);
                return Err(CliError::error(exit, text)
                    .and(Mark::Bare, "It is not an option. A comment begins with #."));
            }
            list.extend(
                found
                    .options
                    .into_iter()
                    .map(|given| Choice { given, source: Source::Directive(*line) }),
            );
        }
        self.grammar.lenient_flags = false;
        Ok(list)
    }
}

/// Returns the clap definition of a command, from which its help, man page and completions come.
pub fn definition<T: Args>(applet: Applet) -> Command {
    let command = T::augment_args(bare_command(applet));
    let command = headings::arrange(command, || bare_command(applet));
    // Flattening a struct of options replaces the command's description, so set it again.
    let command = applet
        .extras
        .iter()
        .fold(command, |command, extras| extra::add_to(command, extras))
        .about(applet.about);
    match examples(applet.examples) {
        Some(text) => command.after_help(text),
        None => command,
    }
}

/// Formats the examples for the help, with aligned descriptions.
fn examples(list: &[(&str, &str)]) -> Option<String> {
    let widest = list.iter().map(|(line, _)| line.len()).max()?;
    let lines = list.iter().map(|(line, does)| format!("  {line:widest$}  {does}"));
    Some(format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n")))
}

fn bare_command(applet: Applet) -> Command {
    Command::new(applet.name)
        .about(applet.about)
        .version(VERSION)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .term_width(100)
}

/// Returns the options set by the environment, in the order of the table. An empty variable is
/// ignored unless the option needs no value: as in Slurm, `SBATCH_EXCLUSIVE=` sets the option.
fn environment(grammar: &Grammar, variables: Vec<Variable>, origin: &Origin) -> Vec<Choice> {
    let mut list = Vec::new();
    for (variable, option) in variables {
        // Few of them are set.
        let Some(value) = origin.var(variable) else { continue };
        let Some(takes) = grammar.takes(option) else { continue };
        // The variable of a flag may contain a count (SBATCH_DEBUG=2) or `no`.
        let (value, times) = match takes {
            Takes::Nothing if value.is_empty() => (None, u8::from(!grammar.adds_up(option))),
            Takes::Nothing => {
                (None, value.parse().unwrap_or(u8::from(!value.eq_ignore_ascii_case("no"))))
            }
            Takes::Maybe if value.is_empty() => (None, 1),
            Takes::Value if value.is_empty() => continue,
            Takes::Maybe | Takes::Value => (Some(value.to_owned()), 1),
        };
        for _ in 0..times {
            list.push(Choice {
                given: Given { name: option.to_owned(), value: value.clone(), short: false },
                source: Source::Environment(variable),
            });
        }
    }
    list
}

/// Drops the occurrences of an option that later ones replace. `list` is in order of increasing
/// precedence.
fn settle(grammar: &Grammar, list: Vec<Choice>) -> Vec<Choice> {
    // The highest layer that sets each option. This is a map because scripts and tools may pass
    // thousands of words.
    let mut last: HashMap<&str, u8> = HashMap::new();
    let keeps = list.iter().rev().map(|choice| {
        let (name, layer) = (choice.given.name.as_str(), choice.source.layer());
        match last.get(name) {
            None => {
                last.insert(name, layer);
                true
            }
            // Occurrences within a layer add up; a higher layer replaces them.
            Some(highest) => *highest == layer && grammar.adds_up(name),
        }
    });
    let keep: Vec<bool> = keeps.collect();
    list.into_iter()
        .zip(keep.into_iter().rev())
        .filter_map(|(choice, keep)| keep.then_some(choice))
        .collect()
}

/// Returns the list options that were given with a value, but without elements.
fn empty_lists(grammar: &Grammar, list: &[Choice]) -> Vec<String> {
    let mut names: Vec<&str> = list.iter().map(|choice| choice.given.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let is_empty = |name: &&str| {
        let mut values =
            list.iter().map(|choice| &choice.given).filter(|given| given.name == **name);
        grammar.is_list(name)
            && values.clone().any(|given| given.value.is_some())
            && values.all(|given| given.elements().is_empty())
    };
    names.into_iter().filter(is_empty).map(str::to_owned).collect()
}

/// Parses the command line of a command without a script, with [`Reader::scan`] and
/// [`Reader::finish`].
///
/// # Errors
/// See [`Reader::scan`] and [`Reader::finish`].
pub fn parse<T: Options>(
    applet: Applet,
    argv: &[OsString],
    origin: &Origin,
) -> Result<(T, Choices), CliError> {
    Reader::scan::<T>(applet, argv)?.finish(origin, &[])
}
