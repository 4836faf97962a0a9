//! The periods of reservations that repeat, by the local calendar.

use slotd_model::Timestamp;
use slotd_model::reservation::{Flag, Reservation};
use slotd_parse::hours::Zone;

const HOUR_SECS: u64 = 3600;

const WEEK_SECS: u64 = 7 * 86_400;

/// The most periods to look at after whole weeks were skipped: one a day, and a margin for
/// changes of the clock.
const MOST_PERIODS: u32 = 16;

/// Returns the reservation in its first period that ends after `at`; `None` if there is none.
pub(crate) fn from(reservation: &Reservation, at: Timestamp, zone: &Zone) -> Option<Reservation> {
    let Some(end) = reservation.end.filter(|end| *end <= at) else {
        return Some(reservation.clone());
    };
    let flag = reservation.repeat()?;
    if flag == Flag::Hourly {
        let hours = at.since(end).as_secs() / HOUR_SECS + 1;
        let (start, end) = (reservation.start, end);
        return Some(Reservation {
            start: start.plus_secs(hours * HOUR_SECS),
            end: Some(end.plus_secs(hours * HOUR_SECS)),
            ..reservation.clone()
        });
    }
    let mut next = skip_weeks(reservation, at.since(end).as_secs() / WEEK_SECS, zone)?;
    for _ in 0..MOST_PERIODS {
        next = after(&next, flag, zone)?;
        if !next.is_over(at) {
            return Some(next);
        }
    }
    None
}

/// Returns a reservation moved on by all but the last of these weeks: its days of the week stay.
fn skip_weeks(reservation: &Reservation, weeks: u64, zone: &Zone) -> Option<Reservation> {
    let days = i64::try_from(weeks.saturating_sub(1).checked_mul(7)?).ok()?;
    if days == 0 {
        return Some(reservation.clone());
    }
    let start = zone.days_later(reservation.start, days)?;
    let end = Some(zone.days_later(reservation.end?, days)?);
    Some(Reservation { start, end, ..reservation.clone() })
}

/// Returns the next period of a reservation that repeats on some days.
fn after(reservation: &Reservation, flag: Flag, zone: &Zone) -> Option<Reservation> {
    let (start, end) = (reservation.start, reservation.end?);
    let is_meant = |start: Timestamp| match flag {
        Flag::Weekday => !zone.is_weekend(start),
        Flag::Weekend => zone.is_weekend(start),
        _ => true,
    };
    let step = if flag == Flag::Weekly { 7 } else { 1 };
    (1..=7).map(|count| count * step).find_map(|days| {
        let start = zone.days_later(start, days).filter(|start| is_meant(*start))?;
        let end = Some(zone.days_later(end, days)?);
        Some(Reservation { start, end, ..reservation.clone() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DAY: i64 = 86_400;
    /// A Friday, 09:00.
    const FRIDAY: i64 = 1_800_003_600 - 1_800_003_600 % DAY + 9 * 3600;

    fn daily(flag: Flag) -> Reservation {
        Reservation {
            start: Timestamp::from_secs(FRIDAY),
            end: Some(Timestamp::from_secs(FRIDAY + 7200)),
            flags: BTreeSet::from([flag]),
            ..Reservation::default()
        }
    }

    #[test]
    fn each_flag_has_its_own_next_period() {
        let zone = Zone::default();
        assert!(!zone.is_weekend(Timestamp::from_secs(FRIDAY)));
        assert!(zone.is_weekend(Timestamp::from_secs(FRIDAY + DAY)));
        for (flag, after, days) in [
            (Flag::Daily, 7199, 0),
            (Flag::Daily, 7200, 1),
            (Flag::Daily, 10 * DAY, 10),
            (Flag::Weekly, 7200, 7),
            (Flag::Weekday, 7200, 3),
            (Flag::Weekend, 7200, 1),
            (Flag::Weekend, 2 * DAY + 7200, 8),
            (Flag::Daily, 1_000_000 * DAY + 7199, 1_000_000),
            (Flag::Daily, 1_000_000 * DAY + 7200, 1_000_001),
            (Flag::Weekly, 70_000 * DAY + 7200, 70_007),
            (Flag::Weekday, 70_000 * DAY + 7200, 70_003),
            (Flag::Weekend, 70_000 * DAY - 1, 70_001),
        ] {
            let at = Timestamp::from_secs(FRIDAY + after);
            let next = from(&daily(flag), at, &zone).expect("it repeats");
            let start = Timestamp::from_secs(FRIDAY + days * DAY);
            assert_eq!((next.start, next.end), (start, Some(start.plus_secs(7200))), "{flag}");
        }
        let hourly =
            Reservation { end: Some(Timestamp::from_secs(FRIDAY + 600)), ..daily(Flag::Hourly) };
        let next = from(&hourly, Timestamp::from_secs(FRIDAY + 7800), &zone).expect("it repeats");
        assert_eq!(next.start, Timestamp::from_secs(FRIDAY + 3 * 3600));
        let last = Timestamp::from_secs(i64::MAX);
        assert_eq!(from(&daily(Flag::Daily), last, &zone), None, "beyond the calendar");
        let once = Reservation { flags: BTreeSet::new(), ..daily(Flag::Daily) };
        assert_eq!(from(&once, Timestamp::from_secs(FRIDAY + 7200), &zone), None);
    }
}
