//! The daemon's log, on standard error: a time, a level and a text a line.
//!
//! systemd's journal keeps time and level by itself: a line for it has no time, and its level as sd-daemon(3) says.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use log::{Level, Record};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// From now on what is logged at `level` or worse is written. `journal` is the value of `JOURNAL_STREAM`: the journal's
/// stream as `device:inode`, where a manager connected the service to it.
pub fn start(level: Level, journal: Option<&OsStr>) {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(level.to_level_filter());
    if journal.is_some_and(is_stderr) {
        builder.format(for_journal);
    } else {
        let zone = crate::sys::zone::local();
        builder.format(move |out, record| dated(out, record, Timestamp::now(), &zone));
    }
    builder.init();
}

fn is_stderr(stream: &OsStr) -> bool {
    let stderr = nix::sys::stat::fstat(io::stderr().as_fd());
    stderr.is_ok_and(|stat| stream.to_str() == Some(format!("{}:{}", stat.st_dev, stat.st_ino).as_str()))
}

fn for_journal(out: &mut impl Write, record: &Record) -> io::Result<()> {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{}", record.args())
}

/// RFC 3339 with the offset of the local time, to the millisecond.
fn dated(out: &mut impl Write, record: &Record, now: Timestamp, zone: &TimeZone) -> io::Result<()> {
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let time = now.display_with_offset(zone.to_offset(now));
    writeln!(out, "{time:.3} {:<5} {}", record.level(), record.args())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(write: impl FnOnce(&mut Vec<u8>, &Record)) -> String {
        let mut out = Vec::new();
        write(&mut out, &Record::builder().level(Level::Warn).args(format_args!("the disk is full")).build());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_local_time_with_its_offset_and_none_in_the_journal() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = Timestamp::from_millisecond(1_783_000_000_012).unwrap();
        let dated = line(|out, record| dated(out, record, now, &zone).unwrap());
        assert_eq!(dated, "2026-07-02T15:46:40.012+02:00 WARN  the disk is full\n");
        assert_eq!(line(|out, record| for_journal(out, record).unwrap()), "<4>the disk is full\n");
    }
}
