//! Lines of shell commands: one a step. Empty lines and those that begin with `#` are none.

use super::expand::Expander;
use super::spec::{StepSpec, Words};
use super::text::Fault;

/// # Errors
/// None but those of any command.
pub fn parse(text: &str, expander: &mut Expander) -> Result<(), Fault> {
    text.lines().zip(1u32..).try_for_each(|(line, number)| parse_line(line, number, expander))
}

/// # Errors
/// As of [`parse`].
pub fn parse_line(line: &str, number: u32, expander: &mut Expander) -> Result<(), Fault> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let spec = StepSpec { command: Some(Words::One(line.to_owned())), ..StepSpec::default() };
    expander.add(spec, number, &|_| number)
}
