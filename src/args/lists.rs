//! Lists in options: `-p cpu,gpu`, `-w n[1-3]`.

use crate::args::choices::Choices;
use crate::args::error::CliError;
use crate::spec;

/// The words between commas; nothing where nothing was given.
pub fn words(value: &Option<String>) -> Vec<String> {
    value
        .iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The words of an option that may be repeated.
pub fn all_words(values: &[String]) -> Vec<String> {
    values.iter().flat_map(|value| words(&Some(value.clone()))).collect()
}

/// The hosts of a host list.
///
/// # Errors
/// A list that cannot be read.
pub fn hosts(choices: &Choices, name: &str, value: &Option<String>) -> Result<Vec<String>, CliError> {
    let given = value.as_ref().filter(|text| !text.is_empty());
    Ok(choices.read(name, given, spec::hostlist::expand)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_words_say_nothing() {
        assert_eq!(words(&Some("a,,b, c,".into())), ["a", "b", "c"]);
        assert_eq!(words(&None), Vec::<String>::new());
        assert_eq!(all_words(&["a,b".into(), "c".into()]), ["a", "b", "c"]);
    }
}
