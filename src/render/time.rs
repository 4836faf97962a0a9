//! Durations and times in the formats of Slurm's commands.
//!
//! The `parse` module reads times.

use crate::Ctx;
use jiff::Zoned;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use slotd_model::Timestamp;
use std::fmt::Write as _;

/// `SLURM_TIME_FORMAT`: the format of times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TimeFormat {
    /// `2026-11-20T23:14:49`, local time without a zone.
    #[default]
    Standard,
    /// Short and relative to now: `23:14:49` today, `Tomorr 08:00`, `Mon 08:00`, `20 Nov 23:14`,
    /// `20 Nov 2027`.
    Relative,
    /// A strftime pattern.
    Custom(String),
}

impl TimeFormat {
    /// Parses the variable. As in Slurm, an empty value or one without `%` means the standard
    /// format.
    pub fn parse(text: &str) -> Self {
        match text {
            "relative" => TimeFormat::Relative,
            pattern if pattern.contains('%') => TimeFormat::Custom(pattern.to_owned()),
            _ => TimeFormat::Standard,
        }
    }
}

const ISO: &str = "%Y-%m-%dT%H:%M:%S";

fn zoned(t: Timestamp, tz: &TimeZone) -> Option<Zoned> {
    jiff::Timestamp::from_second(t.as_secs()).ok().map(|ts| ts.to_zoned(tz.clone()))
}

fn strftime(pattern: &str, z: &Zoned) -> Option<String> {
    strtime::format(pattern, z).ok()
}

/// Formats a time as `2026-11-20T23:14:49` in local time, regardless of `SLURM_TIME_FORMAT`.
pub fn iso(t: Timestamp, tz: &TimeZone) -> String {
    // Only a broken clock gives a time beyond the calendar (year 9999), which is printed as a
    // number.
    zoned(t, tz).and_then(|z| strftime(ISO, &z)).unwrap_or_else(|| t.as_secs().to_string())
}

/// Formats a time as `SLURM_TIME_FORMAT` requests.
pub fn instant(t: Timestamp, ctx: &Ctx) -> String {
    let Some(z) = zoned(t, &ctx.tz) else { return t.as_secs().to_string() };
    let text = match &ctx.time_format {
        TimeFormat::Standard => None,
        TimeFormat::Relative => {
            zoned(ctx.now, &ctx.tz).and_then(|now| strftime(relative_pattern(&z, &now), &z))
        }
        TimeFormat::Custom(pattern) => strftime(pattern, &z),
    };
    text.or_else(|| strftime(ISO, &z)).unwrap_or_else(|| t.as_secs().to_string())
}

/// Returns Slurm's pattern for a time, which depends on the distance from today in days.
fn relative_pattern(t: &Zoned, now: &Zoned) -> &'static str {
    if t.year() != now.year() {
        return "%-d %b %Y";
    }
    match i32::from(t.day_of_year()) - i32::from(now.day_of_year()) {
        -1 => "Ystday %H:%M",
        0 => "%H:%M:%S",
        1 => "Tomorr %H:%M",
        2..=6 => "%a %H:%M",
        _ => "%-d %b %H:%M",
    }
}

/// Formats the time, or returns `otherwise` (`N/A`, `Unknown`, `None`) for `None`.
pub fn instant_or(t: Option<Timestamp>, otherwise: &str, ctx: &Ctx) -> String {
    t.map_or_else(|| otherwise.to_owned(), |t| instant(t, ctx))
}

/// Returns the line above the tables of `squeue -l`, `squeue -i` and `sinfo -l`: `Fri Nov 20
/// 23:39:43 2026` and a line break.
pub fn date_line(ctx: &Ctx) -> String {
    date(ctx.now, &ctx.tz) + "\n"
}

/// Formats a time like [`date_line`].
pub fn date(t: Timestamp, tz: &TimeZone) -> String {
    zoned(t, tz).and_then(|z| strftime("%a %b %e %H:%M:%S %Y", &z)).unwrap_or_default()
}

/// Formats seconds as squeue does: `0:04`, `29:56`, `2:03:04`, `1-02:03:04`.
pub fn short(secs: u64) -> String {
    short_limit(Some(secs))
}

/// Appends seconds as squeue prints them, or `UNLIMITED` for no limit.
pub(crate) fn write_short(out: &mut String, limit: Option<u64>) {
    let Some(secs) = limit else { return out.push_str("UNLIMITED") };
    let (d, h, m, s) = split(secs);
    // Writing to a string cannot fail.
    let _ = match (d, h) {
        // Most cells of a long queue.
        (0, 0) if secs == 0 => out.write_str("0:00"),
        (0, 0) => write!(out, "{m}:{s:02}"),
        (0, _) => write!(out, "{h}:{m:02}:{s:02}"),
        _ => write!(out, "{d}-{h:02}:{m:02}:{s:02}"),
    };
}

/// Formats seconds as sacct and scontrol do: `00:00:05`, `1-00:00:00`.
pub fn long(secs: u64) -> String {
    let (d, h, m, s) = split(secs);
    if d == 0 { format!("{h:02}:{m:02}:{s:02}") } else { format!("{d}-{h:02}:{m:02}:{s:02}") }
}

/// Formats microseconds of CPU time as sacct does: `00:00.035` (minutes, seconds, thousandths)
/// below an hour, otherwise like [`long`]. Seconds without a fraction are printed as `00:00:35`.
pub fn cpu(us: u64) -> String {
    let (secs, millis) = (us / 1_000_000, us / 1000 % 1000);
    if secs >= 3600 || millis == 0 {
        long(secs)
    } else {
        format!("{:02}:{:02}.{millis:03}", secs / 60, secs % 60)
    }
}

fn split(secs: u64) -> (u64, u64, u64, u64) {
    (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60)
}

/// Formats a time limit as squeue does; `UNLIMITED` for none.
pub(crate) fn short_limit(limit: Option<u64>) -> String {
    let mut text = String::new();
    write_short(&mut text, limit);
    text
}

/// Formats a time limit as sacct and scontrol do; `UNLIMITED` for none.
pub fn long_limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), long)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn ctx(format: TimeFormat) -> Ctx {
        let mut ctx = Ctx { now: at(1_795_217_994), ..crate::fixture::ctx() };
        ctx.time_format = format;
        ctx
    }

    #[test]
    fn durations_of_squeue_print_days_and_hours_only_as_needed() {
        for (secs, text) in [
            (0, "0:00"),
            (4, "0:04"),
            (300, "5:00"),
            (7384, "2:03:04"),
            (86_400 + 7384, "1-02:03:04"),
        ] {
            assert_eq!(short(secs), text);
        }
    }

    #[test]
    fn durations_of_sacct_always_have_hours() {
        for (secs, text) in [(5, "00:00:05"), (7384, "02:03:04"), (31_536_000, "365-00:00:00")] {
            assert_eq!(long(secs), text);
        }
    }

    #[test]
    fn cpu_times_show_thousandths_below_an_hour() {
        for (us, text) in [
            (0, "00:00:00"),
            (999, "00:00:00"),
            (1180, "00:00.001"),
            (35_000, "00:00.035"),
            (61_500_000, "01:01.500"),
            (3_600_500_000, "01:00:00"),
            (90_000_000_000, "1-01:00:00"),
        ] {
            assert_eq!(cpu(us), text);
        }
    }

    #[test]
    fn slurm_time_format_standard_relative_and_strftime() {
        let t = at(1_795_217_994);
        assert_eq!(instant(t, &ctx(TimeFormat::parse("standard"))), "2026-11-20T23:39:54");
        assert_eq!(instant(t, &ctx(TimeFormat::parse("%s"))), "1795217994");
        assert_eq!(instant(t, &ctx(TimeFormat::parse("relative"))), "23:39:54");
        assert_eq!(instant(at(1_795_217_994 + 3600), &ctx(TimeFormat::Relative)), "Tomorr 00:39");
        assert_eq!(instant(at(1_795_217_994 - 86_400), &ctx(TimeFormat::Relative)), "Ystday 23:39");
        assert_eq!(
            instant(at(1_795_217_994 + 3 * 86_400), &ctx(TimeFormat::Relative)),
            "Mon 23:39"
        );
        assert_eq!(
            instant(at(1_795_217_994 - 9 * 86_400), &ctx(TimeFormat::Relative)),
            "11 Nov 23:39"
        );
        assert_eq!(
            instant(at(1_795_217_994 + 99 * 86_400), &ctx(TimeFormat::Relative)),
            "27 Feb 2027"
        );
        assert_eq!(instant(t, &ctx(TimeFormat::parse("%!"))), "2026-11-20T23:39:54");
    }

    #[test]
    fn the_date_line_matches_squeue_long() {
        assert_eq!(date_line(&ctx(TimeFormat::Standard)), "Fri Nov 20 23:39:54 2026\n");
    }

    #[test]
    fn local_time_follows_the_zone() {
        let tz = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(iso(at(1_795_217_994), &tz), "2026-11-21T01:39:54");
    }
}
