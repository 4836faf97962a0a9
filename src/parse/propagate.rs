//! Which resource limits of the submitter a job gets: `--propagate=CORE,NOFILE` (sbatch man page).

use crate::parse::error::SpecError;
use crate::parse::suggest;

const NAMES: [&str; 10] =
    ["AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"];

/// The names of the limits: `ALL` (also nothing at all), `NONE`, or names, in any case and with
/// `RLIMIT_` before them or not.
///
/// # Errors
/// `Invalid --propagate specification: …` with exit code 255.
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
                let forms =
                    suggest::one_of("ALL, NONE, or of these, separated by commas", word, NAMES);
                SpecError::invalid_option("--propagate", text).with_hint(forms)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_all_none_or_one_by_one() {
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
