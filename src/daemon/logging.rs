//! The daemon's log on standard error: each line has a time, a level and a text.
//!
//! systemd's journal records time and level itself. Lines for it have no time, and their level is a
//! prefix as in sd-daemon(3).

use crate::daemon::log_file::OwnLog;
use crate::daemon::repeats::{Repeats, Treatment};
use env_logger::Target;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use log::Level;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Starts logging at `level`. Write errors are ignored: a full disk must not end the daemon.
/// `journal` is the value of `JOURNAL_STREAM`: the journal's stream as `device:inode`, if a manager
/// connected the service to it. `own` is the log file whose size is limited if standard error goes
/// there.
pub fn start(level: Level, journal: Option<&OsStr>, own: &Path) {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(level.to_level_filter());
    if let Some(log) = OwnLog::of_stderr(own) {
        builder.target(Target::Pipe(Box::new(log)));
    }
    let layout: Layout = if journal.is_some_and(is_stderr) {
        Box::new(for_journal)
    } else {
        let zone = slotd_sys::zone::local();
        Box::new(move |out, level, text| dated(out, level, text, Timestamp::now(), &zone))
    };
    let repeats = Mutex::new(Repeats::default());
    builder.format(move |out, record| {
        let text = record.args().to_string();
        // The lock is never held across code that can panic.
        let mut repeats = repeats.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(
            out,
            &layout,
            record.level(),
            &text,
            repeats.line(record.level(), &text, Instant::now()),
        )
    });
    builder.init();
}

/// Writes one line of this level and text.
type Layout = Box<dyn Fn(&mut dyn Write, Level, &str) -> io::Result<()> + Send + Sync>;

fn write_line(
    out: &mut dyn Write,
    layout: &Layout,
    level: Level,
    text: &str,
    treatment: Treatment,
) -> io::Result<()> {
    match treatment {
        Treatment::Write { before: 0 } => layout(out, level, text),
        Treatment::Write { before } => {
            layout(out, Level::Info, &format!("repeats of the previous line: {before}"))?;
            layout(out, level, text)
        }
        Treatment::Remind { left_out } => {
            layout(out, level, &format!("{text} (repeats since the last one: {left_out})"))
        }
        Treatment::LeaveOut => Ok(()),
    }
}

fn is_stderr(stream: &OsStr) -> bool {
    let stderr = nix::sys::stat::fstat(io::stderr().as_fd());
    stderr.is_ok_and(|stat| {
        stream.to_str() == Some(format!("{}:{}", stat.st_dev, stat.st_ino).as_str())
    })
}

fn for_journal(out: &mut dyn Write, level: Level, text: &str) -> io::Result<()> {
    let priority = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    writeln!(out, "<{priority}>{text}")
}

/// Writes the time as RFC 3339 with the local offset, to the millisecond.
fn dated(
    out: &mut dyn Write,
    level: Level,
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
) -> io::Result<()> {
    let now = now.round(Unit::Millisecond).unwrap_or(now);
    let time = now.display_with_offset(zone.to_offset(now));
    writeln!(out, "{time:.3} {level:<5} {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn line_has_the_local_time_except_in_the_journal() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now = Timestamp::from_millisecond(1_783_000_000_012).unwrap();
        let dated = written(|out| dated(out, Level::Warn, "the disk is full", now, &zone));
        assert_eq!(dated, "2026-07-02T15:46:40.012+02:00 WARN  the disk is full\n");
        assert_eq!(
            written(|out| for_journal(out, Level::Warn, "the disk is full")),
            "<4>the disk is full\n"
        );
    }

    #[test]
    fn skipped_repeats_are_reported_before_the_next_line() {
        let layout: Layout = Box::new(for_journal);
        let line = |treatment| written(|out| write_line(out, &layout, Level::Warn, "b", treatment));
        assert_eq!(
            line(Treatment::Write { before: 3 }),
            "<6>repeats of the previous line: 3\n<4>b\n"
        );
        assert_eq!(
            line(Treatment::Remind { left_out: 9 }),
            "<4>b (repeats since the last one: 9)\n"
        );
        assert_eq!(line(Treatment::LeaveOut), "");
    }
}
