//! How much of what the host has may be given to jobs: `SLOTD_CPUS`, `SLOTD_MEMORY_MB`, and the
//! same keys of `slotd.toml`.

use std::fmt;

/// A part of what there is, or more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// `32`.
    Amount(u64),
    /// `-2`: all but two.
    KeptBack(u64),
    /// `150%`.
    Percent(u64),
}

/// More than ten times what is there is a slip.
const MAX_PERCENT: u64 = 1000;

/// The forms, as an error tells them.
pub fn forms(what: &str, most: u64) -> String {
    format!(
        "{what} from 1 to {most}, how many are kept back (-2), or a part of what there is (75%, at most {MAX_PERCENT}%)"
    )
}

/// `32`, `-2` or `150%`; `most` is the largest amount. `None`: it makes no sense.
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
    /// What it comes to where there is so much; `None`: nothing would be left.
    pub fn of(self, there: u64) -> Option<u64> {
        let amount = match self {
            Capacity::Amount(amount) => amount,
            Capacity::KeptBack(back) => there.saturating_sub(back),
            Capacity::Percent(percent) => there.saturating_mul(percent) / 100,
        };
        Some(amount).filter(|amount| *amount > 0)
    }

    /// What is left of it where so much is still there and so much of it is lost. An amount is made
    /// of what is left first.
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
    fn an_amount_what_is_kept_back_and_a_part() {
        let of = |text: &str, there| parse(text, 65_536).and_then(|capacity| capacity.of(there));
        assert_eq!(
            (of("32", 8), of("-2", 8), of("150%", 8), of("50%", 7)),
            (Some(32), Some(6), Some(12), Some(3))
        );
        assert_eq!(
            (of("-8", 8), of("-9", 8), of("10%", 8)),
            (None, None, None),
            "nothing would be left"
        );
        for text in [
            "", "0", "-0", "0%", "1001%", "65537", "-65537", "1.5", "+3", "--2", "-5%", "%", "8 ",
            "many",
        ] {
            assert_eq!(parse(text, 65_536), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_lost_is_missed_where_nothing_else_is_left_in_its_place() {
        let rest = |text: &str, there, lost| parse(text, 65_536).unwrap().of_rest(there, lost);
        assert_eq!((rest("2", 3, 1), rest("4", 3, 1), rest("6", 3, 1)), (2, 3, 5));
        assert_eq!((rest("-2", 7, 1), rest("50%", 7, 1), rest("-8", 7, 1)), (5, 3, 0));
        assert_eq!((rest("6", 4, 0), rest("2", 0, 4)), (6, 0));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(n in 1u64..=1000) {
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
