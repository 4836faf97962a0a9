//! The part of the host's resources that jobs may use: `SLOTD_CPUS`, `SLOTD_MEMORY_MB`, and the
//! same keys of `slotd.toml`.

use std::fmt;

/// A fixed amount, or an amount relative to the host's total. It may exceed the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// `32`.
    Amount(u64),
    /// `-2`: all but two.
    KeptBack(u64),
    /// `150%`.
    Percent(u64),
}

/// The largest percentage. More than ten times the total is assumed to be a typo.
const MAX_PERCENT: u64 = 1000;

/// Returns the accepted forms, for error messages.
pub fn forms(what: &str, most: u64) -> String {
    format!(
        "{what} from 1 to {most}, a number to keep back (-2), or a percentage of the total (75%, at most {MAX_PERCENT}%)"
    )
}

/// Parses `32`, `-2` or `150%`. `most` is the largest amount. Returns `None` for anything else.
pub fn parse(text: &str, most: u64) -> Option<Capacity> {
    let number = |digits: &str| -> Option<u64> {
        let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|n| is_plain && *n > 0)
    };
    match (text.strip_prefix('-'), text.strip_suffix('%')) {
        (Some(back), _) => number(back).filter(|n| *n <= most).map(Capacity::KeptBack),
        (None, Some(percent)) => {
            number(percent).filter(|n| *n <= MAX_PERCENT).map(Capacity::Percent)
        }
        (None, None) => number(text).filter(|n| *n <= most).map(Capacity::Amount),
    }
}

impl Capacity {
    /// Returns the capacity of a host with a total of `there`, or `None` if nothing would be left.
    pub fn of(self, there: u64) -> Option<u64> {
        let amount = match self {
            Capacity::Amount(amount) => amount,
            Capacity::KeptBack(back) => there.saturating_sub(back),
            Capacity::Percent(percent) => there.saturating_mul(percent) / 100,
        };
        Some(amount).filter(|amount| *amount > 0)
    }

    /// Returns the capacity after `lost` units have disappeared and `there` remain. A fixed amount
    /// shrinks only if the remaining units cannot cover it.
    pub fn of_rest(self, there: u64, lost: u64) -> u64 {
        match self {
            Capacity::Amount(amount) => {
                amount.min(amount.max(there.saturating_add(lost)).saturating_sub(lost))
            }
            Capacity::KeptBack(_) | Capacity::Percent(_) => self.of(there).unwrap_or(0),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Amount(amount) => write!(f, "{amount}"),
            Capacity::KeptBack(back) => write!(f, "-{back}"),
            Capacity::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_reserves_and_percentages_are_applied() {
        let of = |text: &str, there| parse(text, 65_536).and_then(|capacity| capacity.of(there));
        assert_eq!(
            (of("32", 8), of("-2", 8), of("150%", 8), of("50%", 7)),
            (Some(32), Some(6), Some(12), Some(3))
        );
        assert_eq!(
            (of("-8", 8), of("-9", 8), of("10%", 8)),
            (None, None, None),
            "no capacity would be left"
        );
        for text in [
            "", "0", "-0", "0%", "1001%", "65537", "-65537", "1.5", "+3", "--2", "-5%", "%", "8 ",
            "many",
        ] {
            assert_eq!(parse(text, 65_536), None, "{text:?}");
        }
    }

    #[test]
    fn losses_reduce_a_fixed_amount_only_if_the_rest_cannot_cover_it() {
        let rest = |text: &str, there, lost| parse(text, 65_536).unwrap().of_rest(there, lost);
        assert_eq!((rest("2", 3, 1), rest("4", 3, 1), rest("6", 3, 1)), (2, 3, 5));
        assert_eq!((rest("-2", 7, 1), rest("50%", 7, 1), rest("-8", 7, 1)), (5, 3, 0));
        assert_eq!((rest("6", 4, 0), rest("2", 0, 4)), (6, 0));
    }

    proptest! {
        #[test]
        fn a_printed_capacity_reads_back(n in 1u64..=1000) {
            for capacity in [Capacity::Amount(n), Capacity::KeptBack(n), Capacity::Percent(n)] {
                prop_assert_eq!(parse(&capacity.to_string(), 1000), Some(capacity));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = parse(&text, 10);
        }
    }
}
