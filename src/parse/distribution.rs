//! Distribution of tasks: `--distribution=block:cyclic`, `plane=4`, `*:block,NoPack` (srun man
//! page).

use crate::error::SpecError;
use crate::suggest;
use slotd_model::placement::Distribution;
use slotd_model::read;

const FORMS: &str = "block, cyclic, plane=SIZE or *; then :block, :cyclic, :fcyclic or :* for sockets, the same for cores, \
     and ,Pack or ,NoPack";

/// Parses a distribution. If `plane` has no size, the size is taken from SLURM_DIST_PLANESIZE.
///
/// # Errors
/// Fails with `Invalid --distribution specification: …` and exit code 255, also for `arbitrary`,
/// which needs several nodes.
pub fn parse(text: &str) -> Result<Distribution, SpecError> {
    let words = ["block", "cyclic", "fcyclic", "plane", "pack", "nopack"];
    let unknown = || text.split([',', ':']).find(|word| !words.contains(word)).unwrap_or_default();
    read::distribution(&text.to_ascii_lowercase()).ok_or_else(|| {
        SpecError::invalid_option("--distribution", text).with_hint(suggest::hint(
            FORMS,
            unknown(),
            words,
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::placement::{Dealing, Spread};

    #[test]
    fn malformed_distribution_errors_show_the_value() {
        for text in [
            "",
            "nonsense",
            "block:foo",
            "fcyclic",
            "plane=x",
            "plane=0",
            "block,foo",
            "block:a:b:c",
            "arbitrary",
        ] {
            let error = parse(text).expect_err(text);
            assert!(
                error.to_string().starts_with("Invalid --distribution specification"),
                "{text}: {error}"
            );
            assert_eq!(error.exit_code(), 255);
        }
    }

    #[test]
    fn slurm_distributions_parse() {
        for (text, printed) in [
            ("BLOCK", "block"),
            ("block:*", "block"),
            ("cyclic:cyclic", "cyclic:cyclic"),
            ("block:fcyclic:cyclic", "block:fcyclic:cyclic"),
            ("Pack", "*,pack"),
            ("block,NoPack", "block,nopack"),
            ("plane=2", "plane=2"),
            ("*:block", "*:block"),
        ] {
            assert_eq!(parse(text).map(|read| read.to_string()), Ok(printed.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_distribution_reads_back(
            nodes in prop_oneof![
                Just(Spread::Default), Just(Spread::Block), Just(Spread::Cyclic), Just(Spread::Plane(None)),
                (1..=u32::MAX).prop_map(|size| Spread::Plane(Some(size))),
            ],
            dealt in prop::array::uniform2(prop::option::of(prop::sample::select(
                vec![Dealing::Block, Dealing::Cyclic, Dealing::Fcyclic],
            ))),
            packs in prop::option::of(any::<bool>()),
        ) {
            let is_plane = matches!(nodes, Spread::Plane(_));
            let [sockets, cores] = if is_plane { [None, None] } else { dealt };
            let distribution = Distribution { nodes, sockets, cores, packs };
            prop_assert_eq!(parse(&distribution.to_string()), Ok(distribution));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "(block|cyclic|plane=|:|,|[*]|[0-9]){0,8}|.*") {
            let _ = parse(&text);
        }
    }
}
