//! Determines the local time zone by reading one file.
//!
//! jiff's own search first walks the whole time zone database, which takes a command several times
//! as long as everything else it does.

use jiff::tz::TimeZone;
use std::path::{Component, Path, PathBuf};

/// The directory of the time zone database.
const DATABASE: &str = "/usr/share/zoneinfo";

/// Returns the zone named by `TZ`, or that of `/etc/localtime`, or UTC, in the order of the C
/// library.
pub fn local() -> TimeZone {
    of(std::env::var("TZ").ok().as_deref())
}

/// Returns whether this value of `TZ` leads to no file outside of the host's own ones.
pub fn is_of_the_host(tz: &str) -> bool {
    let name = tz.strip_prefix(':').unwrap_or(tz);
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Returns the zone for this value of `TZ`, or UTC if it names none.
pub fn of(tz: Option<&str>) -> TimeZone {
    named(tz).unwrap_or(TimeZone::UTC)
}

/// Returns the zone for this value of `TZ`.
fn named(tz: Option<&str>) -> Option<TimeZone> {
    match tz {
        None => file(Path::new("/etc/localtime")),
        Some(name) => {
            let name = name.strip_prefix(':').unwrap_or(name);
            if name.is_empty() {
                return Some(TimeZone::UTC);
            }
            let path = PathBuf::from(DATABASE).join(name);
            // As in the C library: first a file of the database, then a POSIX rule such as
            // CET-1CEST.
            file(&path).or_else(|| TimeZone::posix(name).ok())
        }
    }
}

fn file(path: &Path) -> Option<TimeZone> {
    let bytes = std::fs::read(path).ok()?;
    TimeZone::tzif(&path.to_string_lossy(), &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(tz: &TimeZone, secs: i64) -> i32 {
        tz.to_offset(jiff::Timestamp::from_second(secs).unwrap()).seconds()
    }

    #[test]
    fn rules_are_parsed_and_unknown_names_refused() {
        let cet = named(Some("CET-1CEST,M3.5.0,M10.5.0/3")).unwrap();
        assert_eq!((offset(&cet, 1_768_000_000), offset(&cet, 1_783_000_000)), (3600, 7200));
        assert!(named(Some("Nowhere/Atall")).is_none());
        assert_eq!(named(Some("")), Some(TimeZone::UTC));
    }

    #[test]
    fn zones_of_the_host_are_names_or_rules() {
        for tz in ["", "UTC", ":Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3"] {
            assert!(is_of_the_host(tz), "{tz}");
        }
        for tz in ["/home/me/fifo", ":/dev/tty", "../../../dev/tty", "Europe/../.."] {
            assert!(!is_of_the_host(tz), "{tz}");
        }
    }
}
