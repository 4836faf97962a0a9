//! TOML files: `[defaults]`, and a `[[step]]` for each step.

use super::expand::Expander;
use super::spec::StepSpec;
use super::text::{Fault, Wrong};
use super::words::in_words;
use serde::Deserialize;
use slotd_parse::error::shown;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    defaults: StepSpec,
    #[serde(default)]
    step: Vec<Spanned<StepSpec>>,
}

/// Parses all steps in `text`.
///
/// # Errors
/// Fails if the text is not valid TOML, has unknown keys, or a value is invalid.
pub(crate) fn parse(text: &str, expander: &mut Expander) -> Result<(), Fault> {
    let document: Document = toml::from_str(text).map_err(|error| {
        let (message, hint) = in_words(error.message(), "a table");
        let line = error.span().map_or(0, |span| line_at(text, span.start));
        // The message only names types, so quote the line with the key.
        let written = text.lines().nth((line as usize).saturating_sub(1)).map(str::trim);
        let is_of_value =
            ["invalid type", "invalid value"].iter().any(|kind| error.message().starts_with(kind));
        let written = written.filter(|_| is_of_value);
        let (message, hint) = match written.and_then(brackets) {
            Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
            None => (message, hint),
        };
        let message = written
            .map_or_else(|| message.clone(), |written| format!("`{}`: {message}", shown(written)));
        Wrong { key: "", text: message, hint }.at(expander.file, line)
    })?;
    for (step, number) in document.step.into_iter().zip(1u32..) {
        let span = step.span();
        let spec = step.into_inner().or(&document.defaults);
        expander.add(spec, number, &|key| line_of_key(text, span.clone(), key))?;
    }
    Ok(())
}

/// Detects `[step]` and `[[defaults]]`, where single and double brackets are swapped.
fn brackets(line: &str) -> Option<(&'static str, &'static str)> {
    match line {
        "[step]" => Some(("expected a list, found a table", "start each step with [[step]]")),
        "[[defaults]]" => {
            Some(("expected a table, found a list", "use single brackets: [defaults]"))
        }
        _ => None,
    }
}

fn line_at(text: &str, at: usize) -> u32 {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    u32::try_from(before.iter().filter(|byte| **byte == b'\n').count())
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}

/// Returns the line of a key within a step, or the first line of the step if the key is not there
/// (it comes from the defaults, or is missing).
fn line_of_key(text: &str, span: std::ops::Range<usize>, key: &str) -> u32 {
    let first = line_at(text, span.start);
    let is_key = |line: &str| {
        line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let step = text.get(span.start..).unwrap_or_default();
    let own = step
        .lines()
        .enumerate()
        .take_while(|(at, line)| *at == 0 || !line.trim_start().starts_with("[["));
    let found = own.filter(|(_, line)| !key.is_empty() && is_key(line)).map(|(at, _)| at).next();
    first.saturating_add(u32::try_from(found.unwrap_or(0)).unwrap_or(0))
}
