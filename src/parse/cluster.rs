//! Cluster names: `--clusters`, `SLURM_CLUSTERS`.

use crate::error::{SpecError, shown};
use slotd_model::CLUSTER;

/// Parses a list of cluster names. Only the local cluster, by its name or as `all`, is accepted.
///
/// # Errors
/// Fails with `No cluster 'lab' known by database.` for any other name in the list, because a
/// request for another cluster must not be applied to this one.
pub fn parse(text: &str) -> Result<&'static str, SpecError> {
    let is_this =
        |name: &str| name.eq_ignore_ascii_case(CLUSTER) || name.eq_ignore_ascii_case("all");
    let mut names = text.split(',').map(str::trim);
    match names.find(|name| !is_this(name)) {
        None => Ok(CLUSTER),
        Some(other) => {
            let text = format!("No cluster '{}' known by database.", shown(other));
            Err(SpecError::usage(text)
                .with_hint(format!("this command only reaches {CLUSTER}, this host")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_cluster_has_two_names() {
        for text in ["slotd", "Slotd", "all", "slotd,all", " slotd "] {
            assert_eq!(parse(text), Ok("slotd"), "{text}");
        }
    }

    #[test]
    fn any_other_cluster_is_refused_even_next_to_the_local_one() {
        for (text, other) in [("nosuch", "nosuch"), ("slotd,lab", "lab"), ("slotd,", ""), ("", "")]
        {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("No cluster '{other}' known by database."));
        }
    }
}
