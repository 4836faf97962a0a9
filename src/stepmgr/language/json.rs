//! JSON lines: one object per step, with the same keys as TOML.

use super::expand::Expander;
use super::spec::StepSpec;
use super::text::{Fault, Wrong};
use super::words::in_words;

/// Parses all steps in `text`.
///
/// # Errors
/// Fails if a line is not a valid step.
pub fn parse(text: &str, expander: &mut Expander) -> Result<(), Fault> {
    for (line, number) in text.lines().zip(1u32..) {
        if !line.trim().is_empty() {
            parse_line(line, number, expander)?;
        }
    }
    Ok(())
}

/// Parses the step on one line.
///
/// # Errors
/// Fails if the line is not a valid step.
pub fn parse_line(line: &str, number: u32, expander: &mut Expander) -> Result<(), Fault> {
    let hint = || Some("write one object per line: {\"command\": \"…\"}".to_owned());
    // Serde would accept a list as a step without keys.
    if line.trim_start().starts_with('[') {
        let text = "expected an object, found a list".to_owned();
        return Err(Wrong { key: "", text, hint: hint() }.at(expander.file, number));
    }
    let spec: StepSpec = serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // Serde appends the position: ` at line 1 column 7`.
        let (message, place) = message.rsplit_once(" at line 1 column ").unwrap_or((&message, ""));
        let (text, near) = in_words(message, "an object");
        let text = if place.is_empty() { text } else { format!("column {place}: {text}") };
        let hint = if error.is_data() { near } else { hint() };
        Wrong { key: "", text, hint }.at(expander.file, number)
    })?;
    expander.add(spec, number, &|_| number)
}
