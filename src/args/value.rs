//! Value parsers for options: they combine a grammar with the name of the option.
//!
//! Refused values are [`BadValue`]s, which contain the option, so that the error can name the source
//! of the option.

use crate::args::error::CliError;
use clap::builder::TypedValueParser;
use clap::{Arg, Command};
use slotd_model::JobRef;
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use std::ffi::OsStr;

/// A parser that takes a value and the option's spelling (`--time`).
#[derive(Clone)]
pub struct Value<F>(F);

/// Wraps a grammar whose errors contain the option's name.
pub fn named<F, T, E>(parse: F) -> Value<F>
where
    F: Fn(&str, &str) -> Result<T, E>,
{
    Value(parse)
}

/// A value that is absent if the text is empty: `--constraint=`.
pub type Maybe<T> = Option<T>;

/// Wraps a grammar for a value that may be absent.
pub fn unless_empty<T, E>(
    parse: fn(&str) -> Result<T, E>,
) -> Value<impl Fn(&str, &str) -> Result<Maybe<T>, E> + Clone + Send + Sync + 'static>
where
    T: 'static,
    E: 'static,
{
    Value(move |text: &str, _: &str| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
}

/// Wraps a grammar whose errors do not contain the option's name.
pub fn value<T, E>(
    parse: fn(&str) -> Result<T, E>,
) -> Value<impl Fn(&str, &str) -> Result<T, E> + Clone + Send + Sync + 'static>
where
    T: 'static,
    E: 'static,
{
    Value(move |text: &str, _: &str| parse(text))
}

/// Reads the value of an option. `option` is its spelling (`--time`).
pub trait Parse<T> {
    /// # Errors
    /// Fails if the value is not valid.
    fn parse(&self, text: &str, option: &str) -> Result<T, Why>;

    /// Returns the value of an option that was given without one, unless it has a default.
    fn missing(&self) -> Option<T> {
        None
    }
}

impl<F, T, E> Parse<T> for Value<F>
where
    F: Fn(&str, &str) -> Result<T, E>,
    E: Into<Why>,
{
    fn parse(&self, text: &str, option: &str) -> Result<T, Why> {
        self.0(text, option).map_err(Into::into)
    }
}

/// For the subcommands of slotd, which clap parses.
impl<F, T, E> TypedValueParser for Value<F>
where
    F: Fn(&str, &str) -> Result<T, E> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    E: Into<Why>,
{
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let option = arg.and_then(Arg::get_long).unwrap_or_default().to_owned();
        let parser = self.clone();
        let read = move |text: &str| {
            Parse::parse(&parser, text, &format!("--{option}")).map_err(|why| BadValue {
                option: option.clone(),
                value: text.to_owned(),
                why,
            })
        };
        TypedValueParser::parse_ref(&read, cmd, arg, value)
    }
}

/// An invalid value of an option.
#[derive(Debug, thiserror::Error)]
#[error("invalid value for --{option}: {value}")]
pub struct BadValue {
    /// The long name.
    pub option: String,
    pub value: String,
    pub why: Why,
}

/// The reason for refusing a value: an error of the grammar or of the command.
#[derive(Debug)]
pub enum Why {
    Grammar(SpecError),
    Command(CliError),
}

impl From<SpecError> for Why {
    fn from(error: SpecError) -> Self {
        Why::Grammar(error)
    }
}

impl From<CliError> for Why {
    fn from(error: CliError) -> Self {
        Why::Command(error)
    }
}

/// Parses a job, array task or step in a list, with the errors of squeue.
///
/// # Errors
/// Fails with `Invalid job id: abc`.
pub fn job(text: &str) -> Result<JobRef, CliError> {
    slotd_parse::ids::parse_job(text)
        .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(text))))
}

/// Like [`job`], with the errors of sacct.
///
/// # Errors
/// Fails with `Bad job/step specified: abc`, which is a fatal error in sacct.
pub fn job_or_step(text: &str) -> Result<JobRef, CliError> {
    slotd_parse::ids::parse_job(text)
        .map_err(|_| CliError::fatal(1, format!("Bad job/step specified: {}", shown(text))))
}

/// The words of one value. clap would let an option of type `Vec` be repeated.
pub type Names = Vec<String>;

/// Splits a comma-separated list into words and drops empty ones.
///
/// # Errors
/// Never fails. It returns a `Result` because [`value`] expects one.
pub fn names(text: &str) -> Result<Names, SpecError> {
    Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// Takes a name as it is: a job's name may contain commas. An empty one is no name.
///
/// # Errors
/// Never fails. It returns a `Result` because [`value`] expects one.
pub fn one_name(text: &str) -> Result<Names, SpecError> {
    Ok(if text.is_empty() { Names::new() } else { vec![text.to_owned()] })
}

/// Expands a host list.
///
/// # Errors
/// Fails if the list is malformed.
pub fn hosts(text: &str) -> Result<Names, SpecError> {
    if text.is_empty() { Ok(Names::new()) } else { slotd_parse::hostlist::expand(text) }
}
