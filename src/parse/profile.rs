//! What the accounting samples: `--profile` (sbatch man page). Nothing is sampled here: a value is
//! checked, and told to the job.

use crate::parse::error::{SpecError, shown};

const KINDS: [&str; 4] = ["Energy", "Lustre", "Network", "Task"];

/// `all`, `none`, or some of the kinds with commas between. It comes back as Slurm spells it; empty
/// for none.
///
/// # Errors
/// `invalid --profile=… option`, where nothing of it is known.
pub fn parse(text: &str) -> Result<String, SpecError> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    if has("none") {
        return Ok(String::new());
    }
    let read: Vec<&str> = KINDS.into_iter().filter(|kind| has("all") || has(kind)).collect();
    if read.is_empty() {
        let error = SpecError::usage(format!("invalid --profile={} option", shown(text)));
        return Err(error.with_hint(format!("all, none, or some of {}", KINDS.join(", "))));
    }
    Ok(read.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_back_in_slurms_order() {
        for (text, read) in [
            ("all", "Energy,Lustre,Network,Task"),
            ("task,ENERGY", "Energy,Task"),
            ("task,foo", "Task"),
            ("none", ""),
            ("None", ""),
        ] {
            assert_eq!(parse(text), Ok(read.to_owned()), "{text}");
        }
        for text in ["", "foo"] {
            assert_eq!(parse(text).expect_err(text).exit_code(), 255, "{text}");
        }
    }
}
