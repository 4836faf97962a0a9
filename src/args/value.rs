//! Value parsers of options: a grammar, with the name of the option that it is read for.
//!
//! clap calls them with the words that count. What they refuse comes out as [`BadValue`], which
//! knows the option, so that the refusal can say where the option was given.

use crate::args::error::CliError;
use crate::model::JobRef;
use crate::parse::error::shown;
use crate::parse::{self, SpecError};
use clap::builder::TypedValueParser;
use clap::{Arg, Command};
use std::ffi::OsStr;

/// A parser of a value and the option's spelling (`--time`).
#[derive(Clone)]
pub struct Value<F>(F);

/// A grammar whose errors name the option.
pub fn named<F, T, E>(parse: F) -> Value<F>
where
    F: Fn(&str, &str) -> Result<T, E>,
{
    Value(parse)
}

/// A value that an empty text leaves out: `--constraint=`.
pub type Maybe<T> = Option<T>;

/// A grammar of a value that may be left out.
pub fn unless_empty<T, E>(
    parse: fn(&str) -> Result<T, E>,
) -> Value<impl Fn(&str, &str) -> Result<Maybe<T>, E> + Clone + Send + Sync + 'static>
where
    T: 'static,
    E: 'static,
{
    Value(move |text: &str, _: &str| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
}

/// A grammar whose errors do not name the option.
pub fn value<T, E>(
    parse: fn(&str) -> Result<T, E>,
) -> Value<impl Fn(&str, &str) -> Result<T, E> + Clone + Send + Sync + 'static>
where
    T: 'static,
    E: 'static,
{
    Value(move |text: &str, _: &str| parse(text))
}

impl<F, T, E> TypedValueParser for Value<F>
where
    F: Fn(&str, &str) -> Result<T, E> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    E: Into<Why>,
{
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let option = arg.and_then(Arg::get_long).unwrap_or_default().to_owned();
        let parse = self.0.clone();
        let read = move |text: &str| {
            parse(text, &format!("--{option}")).map_err(|why| BadValue {
                option: option.clone(),
                value: text.to_owned(),
                why: why.into(),
            })
        };
        TypedValueParser::parse_ref(&read, cmd, arg, value)
    }
}

/// A value that an option does not take.
#[derive(Debug, thiserror::Error)]
#[error("a value that --{option} does not take: {value}")]
pub struct BadValue {
    /// The long name.
    pub option: String,
    pub value: String,
    pub why: Why,
}

/// Why a value is refused: in a grammar's words, or in those of the command.
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

/// A job, array task or step of a list, in the words of squeue.
///
/// # Errors
/// `Invalid job id: abc`.
pub fn job(text: &str) -> Result<JobRef, CliError> {
    parse::ids::parse_job(text)
        .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(text))))
}

/// The same in the words of sacct.
///
/// # Errors
/// `Bad job/step specified: abc`, which is fatal there.
pub fn job_or_step(text: &str) -> Result<JobRef, CliError> {
    parse::ids::parse_job(text)
        .map_err(|_| CliError::fatal(1, format!("Bad job/step specified: {}", shown(text))))
}

/// Words of one option that may not be repeated.
pub type Names = Vec<String>;

/// The words between commas, without empty ones.
///
/// # Errors
/// None.
pub fn names(text: &str) -> Result<Names, SpecError> {
    Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// The hosts of a host list.
///
/// # Errors
/// A list that cannot be read.
pub fn hosts(text: &str) -> Result<Names, SpecError> {
    if text.is_empty() { Ok(Names::new()) } else { parse::hostlist::expand(text) }
}
