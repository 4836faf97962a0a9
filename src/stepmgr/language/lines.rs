//! Lines of shell commands, one step per line. Empty lines and lines that begin with `#` are
//! skipped.

use super::expand::Expander;
use super::spec::{StepSpec, Words};
use super::text::Fault;

/// Parses all steps in `text`.
///
/// # Errors
/// Fails if a command is invalid.
pub fn parse(text: &str, expander: &mut Expander) -> Result<(), Fault> {
    text.lines().zip(1u32..).try_for_each(|(line, number)| parse_line(line, number, expander))
}

/// Parses the step on one line, if any.
///
/// # Errors
/// Fails if the command is invalid.
pub fn parse_line(line: &str, number: u32, expander: &mut Expander) -> Result<(), Fault> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let spec = StepSpec { command: Some(Words::One(line.to_owned())), ..StepSpec::default() };
    expander.add(spec, number, &|_| number)
}
