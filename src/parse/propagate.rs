//! The submitter's resource limits that a job inherits: `--propagate=CORE,NOFILE` (sbatch man
//! page).

use crate::error::SpecError;
use crate::suggest;

const NAMES: [&str; 10] =
    ["AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"];

/// Returns the names of the limits in `ALL` (also the empty string), `NONE`, or a list of names.
/// Names may be in any case and begin with `RLIMIT_`.
///
/// # Errors
/// Fails with `Invalid --propagate specification: …` and exit code 255.
pub fn parse(text: &str) -> Result<Vec<&'static str>, SpecError> {
    let known = |word: &str| {
        let upper = word.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("RLIMIT_").unwrap_or(&upper);
        NAMES.into_iter().find(|known| *known == name)
    };
    match text.to_ascii_uppercase().as_str() {
        "" | "ALL" => Ok(NAMES.to_vec()),
        "NONE" => Ok(Vec::new()),
        _ => {
            let names = text.split(',').map(|word| known(word).ok_or(word));
            names.collect::<Result<_, _>>().map_err(|word: &str| {
                let forms = suggest::one_of(
                    "ALL, NONE, or some of these, separated by commas",
                    word,
                    NAMES,
                );
                SpecError::invalid_option("--propagate", text).with_hint(forms)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_all_none_or_a_list_of_names() {
        assert_eq!(parse("ALL").unwrap().len(), NAMES.len());
        assert_eq!(parse("").unwrap().len(), NAMES.len());
        assert_eq!(parse("none"), Ok(vec![]));
        assert_eq!(parse("core,RLIMIT_NOFILE"), Ok(vec!["CORE", "NOFILE"]));
        for text in ["CORES", "CORE,", "ALL,CORE", "CORE,NONE"] {
            assert_eq!(
                parse(text).unwrap_err().to_string(),
                format!("Invalid --propagate specification: {text}")
            );
        }
    }
}
