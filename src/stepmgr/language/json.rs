//! JSON lines: one object a step, with the keys of TOML.

use super::expand::Expander;
use super::spec::StepSpec;
use super::text::{Fault, Wrong};
use super::words::in_words;

/// # Errors
/// A line is no step.
pub fn parse(text: &str, expander: &mut Expander) -> Result<(), Fault> {
    for (line, number) in text.lines().zip(1u32..) {
        if !line.trim().is_empty() {
            parse_line(line, number, expander)?;
        }
    }
    Ok(())
}

/// # Errors
/// The line is no step.
pub fn parse_line(line: &str, number: u32, expander: &mut Expander) -> Result<(), Fault> {
    let hint = || Some("each line is one object: {\"command\": \"…\"}".to_owned());
    // A list of values would pass for a step without keys.
    if line.trim_start().starts_with('[') {
        let text = "an object is expected here, and not a list".to_owned();
        return Err(Wrong { key: "", text, hint: hint() }.at(expander.file, number));
    }
    let spec: StepSpec = serde_json::from_str(line).map_err(|error| {
        let message = error.to_string();
        // The place within the line follows: ` at line 1 column 7`.
        let (message, place) = message.rsplit_once(" at line 1 column ").unwrap_or((&message, ""));
        let (text, near) = in_words(message, "an object");
        let text = if place.is_empty() { text } else { format!("column {place}: {text}") };
        let hint = if error.is_data() { near } else { hint() };
        Wrong { key: "", text, hint }.at(expander.file, number)
    })?;
    expander.add(spec, number, &|_| number)
}
