//! Features that a job requires of the host: `--constraint="a&b"` (sbatch man page).

use crate::error::{SpecError, shown};
use slotd_model::{Constraint, read};

/// The accepted forms, for hints.
const FORMS: &str =
    "features joined by & (all) or | (any), !FEATURE, and parentheses (gpu&!slow, gpu|(cpu&fast))";

/// Parses `a`, `a&b`, `a,b` (the same), `a|b`, `(a&b)|c`, `[a|b]`, `a*1` or `!a`. `&` and `,` bind
/// more tightly than `|`. Square brackets ("all nodes alike") only group, since there is one host.
///
/// # Errors
/// Fails with `Invalid feature specification: …`, the error of Slurm's controller.
pub fn parse(text: &str) -> Result<Constraint, SpecError> {
    read::constraint(text).ok_or_else(|| {
        SpecError::submission(format!("Invalid feature specification: {}", shown(text)))
            .with_hint(FORMS)
    })
}

/// Parses the value of `--prefer`, which has the same syntax.
///
/// # Errors
/// Fails with `Invalid preferred feature specification: …`.
pub fn parse_preference(text: &str) -> Result<Constraint, SpecError> {
    parse(text).map_err(|_| {
        SpecError::submission(format!("Invalid preferred feature specification: {}", shown(text)))
            .with_hint(FORMS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn expressions_match_the_features_of_the_host() {
        let host = ["cpu", "gpu", "avx512"];
        for (text, met) in [
            ("gpu", true),
            ("gpu&cpu", true),
            ("gpu,cpu", true),
            ("gpu&tpu", false),
            ("gpu,tpu", false),
            ("gpu|tpu", true),
            ("tpu|npu", false),
            ("[tpu|gpu]", true),
            ("(gpu&tpu)|cpu", true),
            ("gpu&(tpu|npu)", false),
            ("gpu|tpu&npu", true),
            ("gpu*1", true),
            ("gpu*2", false),
            ("!tpu", true),
            ("!gpu", false),
            ("!(tpu&gpu)", true),
            (" gpu & cpu ", true),
            ("GPU", false),
        ] {
            assert_eq!(parse(text).map(|c| c.is_met(&host)), Ok(met), "{text}");
        }
        assert!(!parse("gpu").expect("a feature").is_met(&[] as &[&str]));
    }

    #[test]
    fn malformed_expressions_get_the_error_of_the_controller() {
        for text in [
            "", "&", "a&", "a||b", "(a", "a)", "[a|b", "[a|b)", "a*", "a*0", "a*x", "a b", "!",
            "a,", "*2", "()",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid feature specification: {text}"));
            assert!(error.submission);
        }
        assert!(parse(&"(".repeat(1_000_000)).is_err());
        assert!(parse(&"!".repeat(1_000_000)).is_err());
    }

    fn constraint() -> impl Strategy<Value = Constraint> {
        let feature = ("[a-z][a-z0-9_.=-]{0,6}", prop_oneof![Just(1u32), 2u32..9])
            .prop_map(|(name, nodes)| Constraint::Feature { name, nodes });
        feature.prop_recursive(4, 32, 4, |inner| {
            let flat = |parts: Vec<Constraint>, any: bool| {
                let mut all = Vec::new();
                for part in parts {
                    match part {
                        Constraint::Any(inner) if any => all.extend(inner),
                        Constraint::All(inner) if !any => all.extend(inner),
                        part => all.push(part),
                    }
                }
                if any { Constraint::Any(all) } else { Constraint::All(all) }
            };
            prop_oneof![
                inner.clone().prop_map(|part| Constraint::Not(Box::new(part))),
                prop::collection::vec(inner.clone(), 2..4).prop_map(move |parts| flat(parts, true)),
                prop::collection::vec(inner, 2..4).prop_map(move |parts| flat(parts, false)),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_printed_expression_reads_back(constraint in constraint()) {
            prop_assert_eq!(parse(&constraint.to_string()), Ok(constraint));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[ab&|,()\\[\\]!*0-9 ]{0,40}|.*") {
            if let Ok(constraint) = parse(&text) {
                prop_assert_eq!(parse(&constraint.to_string()), Ok(constraint));
            }
        }
    }
}
