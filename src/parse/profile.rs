//! Kinds of accounting profiles: `--profile` (sbatch man page). slotd does not profile: it
//! validates the value and passes it to the job.

use crate::error::{SpecError, shown};

/// The spelling of `none`.
pub const NONE: &str = "None";

const KINDS: [&str; 4] = ["Energy", "Lustre", "Network", "Task"];

/// Parses `all`, `none`, or a comma-separated list of kinds. Returns Slurm's spelling: `Energy,Task`
/// or `None`.
///
/// # Errors
/// Fails with `invalid --profile=… option` if no kind in the list is known.
pub fn parse(text: &str) -> Result<String, SpecError> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    if has("none") {
        return Ok(NONE.to_owned());
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
    fn kinds_are_returned_in_slurms_order() {
        for (text, read) in [
            ("all", "Energy,Lustre,Network,Task"),
            ("task,ENERGY", "Energy,Task"),
            ("task,foo", "Task"),
            ("none", "None"),
            ("None", "None"),
        ] {
            assert_eq!(parse(text), Ok(read.to_owned()), "{text}");
        }
        for text in ["", "foo"] {
            assert_eq!(parse(text).expect_err(text).exit_code(), 255, "{text}");
        }
    }
}
