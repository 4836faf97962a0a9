//! The periods of reservations that repeat, by the local calendar.

use slotd_model::Timestamp;
use slotd_model::reservation::{Flag, Reservation};
use slotd_parse::hours::Zone;

const HOUR_SECS: u64 = 3600;

const WEEK_SECS: u64 = 7 * 86_400;

/// The most periods to look at after whole weeks were skipped: one a day, and a margin for
/// changes of the clock.
const MOST_PERIODS: i64 = 16;

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
    let first = reservation.first.unwrap_or((reservation.start, end));
    let step = if flag == Flag::Weekly { 7 } else { 1 };
    let weeks = (at.since(first.1).as_secs() / WEEK_SECS).saturating_sub(1);
    let skipped = i64::try_from(weeks).ok()?.checked_mul(7)?;
    (1..=MOST_PERIODS).find_map(|count| {
        let days = skipped.checked_add(count * step)?;
        let (start, end) = days_later(first, days, zone)?;
        let is_meant = match flag {
            Flag::Weekday => !zone.is_weekend(start),
            Flag::Weekend => zone.is_weekend(start),
            _ => true,
        };
        let next = Reservation { start, end: Some(end), first: Some(first), ..reservation.clone() };
        (is_meant && !next.is_over(at)).then_some(next)
    })
}

/// Returns a period moved on by some days, with the same times of day. If a change of the clock puts
/// its end before its start, it keeps its length.
fn days_later(
    (start, end): (Timestamp, Timestamp),
    days: i64,
    zone: &Zone,
) -> Option<(Timestamp, Timestamp)> {
    let moved = zone.days_later(start, days)?;
    let until = zone.days_later(end, days).filter(|until| *until > moved);
    Some((moved, until.unwrap_or(moved.plus_secs(end.since(start).as_secs()))))
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
    #[test]
    fn a_change_of_the_clock_moves_only_the_periods_that_it_meets() {
        let zone = Zone::from(jiff::tz::TimeZone::get("Europe/Berlin").expect("a zone"));
        let local = |text: &str| {
            let zoned = text.parse::<jiff::civil::DateTime>().expect("a time");
            let zoned = zoned.in_tz("Europe/Berlin").expect("a zone");
            Timestamp::from_secs(zoned.timestamp().as_second())
        };
        // From 02:00 to 03:00 on 28 March 2027 there is no time, and on 31 October two hours are 2.
        for (start, end, gap) in [
            ("02:15", "02:45", ("03:15", "03:45")),
            ("01:30", "02:30", ("01:30", "03:30")),
            ("02:50", "03:05", ("03:50", "04:05")),
            ("22:00", "23:00", ("22:00", "23:00")),
        ] {
            let on = |day: &str, time: &str| local(&format!("{day}T{time}"));
            let mut known = Reservation {
                start: on("2027-03-26", start),
                end: Some(on("2027-03-26", end)),
                ..daily(Flag::Daily)
            };
            for (day, (start, end)) in [
                ("2027-03-27", (start, end)),
                ("2027-03-28", gap),
                ("2027-03-29", (start, end)),
                ("2027-10-30", (start, end)),
                ("2027-11-01", (start, end)),
            ] {
                let before = on(day, "00:00");
                known = from(&known, before, &zone).expect("it repeats");
                let period = (known.start, known.end);
                assert_eq!(period, (on(day, start), Some(on(day, end))), "{day} {start}");
            }
        }
    }
}
