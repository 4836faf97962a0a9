//! The settings of preemption.

use slotd_model::preempt::PreemptMode;

/// The accepted modes, for error messages.
pub(crate) const FORMS: &str = "OFF, SUSPEND, REQUEUE or CANCEL";

/// The accepted grace times, for error messages.
pub(crate) const SECONDS: &str = "a whole number of seconds, at most 31536000";

/// The longest grace time: a year.
const MOST_SECS: u64 = 31_536_000;

/// Parses a mode.
pub(crate) fn mode(text: &str) -> Option<PreemptMode> {
    PreemptMode::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(text))
}

/// Parses a grace time in seconds.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().filter(|secs| *secs <= MOST_SECS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_seconds_are_read_in_any_case_and_within_bounds() {
        assert_eq!(mode("Cancel"), Some(PreemptMode::Cancel));
        assert_eq!(mode("suspend"), Some(PreemptMode::Suspend));
        assert_eq!([mode("gang"), mode(""), mode("suspended")], [None; 3]);
        assert_eq!((seconds("0"), seconds("31536000")), (Some(0), Some(MOST_SECS)));
        assert_eq!((seconds("31536001"), seconds("-1"), seconds("1m")), (None, None, None));
    }
}
