//! The local time zone, found by reading one file.
//!
//! jiff's own search walks the whole zone database first, which costs a command several times what
//! all the rest of it does.

use jiff::tz::TimeZone;
use std::path::{Path, PathBuf};

/// Where the zones are.
const DATABASE: &str = "/usr/share/zoneinfo";

/// The zone that `TZ` names, else that of `/etc/localtime`, else UTC: as the C library finds it.
pub fn local() -> TimeZone {
    named(std::env::var("TZ").ok().as_deref()).unwrap_or(TimeZone::UTC)
}

/// `tz` is the value of `TZ`.
fn named(tz: Option<&str>) -> Option<TimeZone> {
    match tz {
        None => file(Path::new("/etc/localtime")),
        Some(name) => {
            let name = name.strip_prefix(':').unwrap_or(name);
            if name.is_empty() {
                return Some(TimeZone::UTC);
            }
            let path = PathBuf::from(DATABASE).join(name);
            // The C library's order: a file of the database, then a POSIX rule such as CET-1CEST.
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
    fn a_rule_and_an_unknown_name_are_told_apart() {
        let cet = named(Some("CET-1CEST,M3.5.0,M10.5.0/3")).unwrap();
        assert_eq!((offset(&cet, 1_768_000_000), offset(&cet, 1_783_000_000)), (3600, 7200));
        assert!(named(Some("Nowhere/Atall")).is_none());
        assert_eq!(named(Some("")), Some(TimeZone::UTC));
    }
}
