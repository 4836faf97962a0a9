//! Times and durations for quick reading, in as few cells as possible.

use crate::Ctx;
use crate::time::{self, TimeFormat};
use slotd_model::Timestamp;

const DAY: u64 = 86_400;

/// Formats a time within a day as `19:20`, one in the same year as `30 Nov` and others as `2027`.
pub fn short(at: Timestamp, ctx: &Ctx) -> String {
    let distance = at.since(ctx.now).max(ctx.now.since(at)).as_secs();
    let pattern = match distance {
        0..DAY => "%H:%M",
        _ if distance < 300 * DAY => "%-d %b",
        _ => "%Y",
    };
    let ctx = Ctx { time_format: TimeFormat::Custom(pattern.to_owned()), ..ctx.clone() };
    time::instant(at, &ctx)
}

/// Formats a time today as `19:20`, and others as `30 Nov 19:20`.
pub(crate) fn with_day(at: Timestamp, ctx: &Ctx) -> String {
    let text = |at, pattern: &str| {
        let time_format = TimeFormat::Custom(pattern.to_owned());
        time::instant(at, &Ctx { time_format, ..ctx.clone() })
    };
    let is_today = text(at, "%F") == text(ctx.now, "%F");
    text(at, if is_today { "%H:%M" } else { "%-d %b %H:%M" })
}

/// Formats a duration in its two largest units: `2d4h`, `3h12m`, `50m`, `45s`.
pub fn span(secs: u64) -> String {
    let (days, hours, minutes) = (secs / DAY, secs / 3600 % 24, secs / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{secs}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, 0) => format!("{hours}h"),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        (_, 0, _) => format!("{days}d"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx};

    #[test]
    fn a_time_is_as_short_as_its_distance_allows() {
        for (secs_ago, text) in [
            (0, "23:39"),
            (-3600, "00:39"),
            (86_399, "23:39"),
            (-86_400, "21 Nov"),
            (40 * 86_400, "11 Oct"),
            (-400 * 86_400, "2027"),
        ] {
            assert_eq!(short(at(secs_ago), &ctx()), text, "{secs_ago}");
        }
        assert_eq!(with_day(at(600), &ctx()), "23:29");
        assert_eq!(with_day(at(-3600), &ctx()), "21 Nov 00:39");
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (secs, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (11_520, "3h12m"),
            (3660, "1h01m"),
            (86_400, "1d"),
            (187_200, "2d4h"),
        ] {
            assert_eq!(span(secs), text);
        }
    }
}
