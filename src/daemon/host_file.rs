//! The file of what the host used over time: a line for each span, the oldest first.
//!
//! Lines are added. Where there are many of them the file is written anew, as coarse as its age is
//! told apart. A line that a crash cut off is left out; what the system has not yet written goes
//! with it, which is a minute or so.

use crate::model::Timestamp;
use crate::model::host_use::{HostSpan, MOST_SPANS, thinned};
use crate::sys::files::{self, MOST_RECORD};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// With so many lines it is written anew.
const MOST_LINES: usize = 2 * MOST_SPANS;

#[derive(Debug, Clone)]
pub struct HostFile {
    path: PathBuf,
    /// `None`: nothing is known of what is in the file.
    lines: Option<usize>,
}

impl HostFile {
    pub fn new(path: PathBuf) -> HostFile {
        HostFile { path, lines: None }
    }

    /// Adds a span.
    ///
    /// # Errors
    /// The file cannot be read or written. What was in it is still there.
    pub fn add(&mut self, span: &HostSpan, now: Timestamp) -> io::Result<()> {
        // What a failure leaves is looked at the next time.
        let known = self.lines.take();
        let (mut lines, is_whole) = match known {
            Some(lines) => (lines, true),
            None => {
                let text = text(&self.path)?;
                (
                    text.iter().filter(|byte| **byte == b'\n').count(),
                    text.last().is_none_or(|last| *last == b'\n'),
                )
            }
        };
        if lines >= MOST_LINES {
            let spans = thinned(read(&self.path)?, now);
            let mut text = Vec::new();
            spans.iter().try_for_each(|span| put(&mut text, span))?;
            files::replace(&self.path, &text)?;
            lines = spans.len();
        }
        let mut line = if is_whole || lines == 0 { Vec::new() } else { vec![b'\n'] };
        put(&mut line, span)?;
        files::append(&self.path)?.write_all(&line)?;
        self.lines = Some(lines + 1);
        Ok(())
    }
}

fn put(text: &mut Vec<u8>, span: &HostSpan) -> io::Result<()> {
    serde_json::to_writer(&mut *text, span)?;
    text.push(b'\n');
    Ok(())
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    match files::read(path, MOST_RECORD) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// All spans of the file. A line that is none is left out.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<HostSpan>> {
    let text = text(path)?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn span(i: i64) -> HostSpan {
        HostSpan {
            from: i * 10_000,
            to: (i + 1) * 10_000,
            ms: 10_000,
            cpus: 4,
            cpu_us: 7,
            ..HostSpan::default()
        }
    }

    fn at(i: i64) -> Timestamp {
        Timestamp((i + 1) * 10_000_000)
    }

    #[test]
    fn what_was_added_is_read_again_also_after_a_line_that_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host_use.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        HostFile::new(path.clone()).add(&span(1), at(1)).unwrap();
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"from\":5,\"to\"");
        fs::write(&path, text).unwrap();
        let mut again = HostFile::new(path.clone());
        again.add(&span(2), at(2)).unwrap();
        again.add(&span(3), at(3)).unwrap();
        assert_eq!(read(&path).unwrap(), [span(1), span(2), span(3)]);
    }

    #[test]
    fn the_file_stays_short_and_keeps_all_time_that_is_not_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host_use.jsonl");
        let days = 5 * 8640;
        let lines: Vec<u8> = (0..days).fold(Vec::new(), |mut text, i| {
            put(&mut text, &span(i)).unwrap();
            text
        });
        fs::write(&path, lines).unwrap();
        HostFile::new(path.clone()).add(&span(days), at(days)).unwrap();
        let kept = read(&path).unwrap();
        assert!(kept.len() < MOST_SPANS, "{}", kept.len());
        assert_eq!(kept.iter().map(|span| span.ms).sum::<u64>(), 10_000 * (days as u64 + 1));
        assert!(!path.with_extension("jsonl.new").exists());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_that_a_later_try_mends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib/host_use.jsonl");
        let mut file = HostFile::new(path.clone());
        file.add(&span(1), at(1)).unwrap_err();
        fs::create_dir(dir.path().join("lib")).unwrap();
        file.add(&span(2), at(2)).unwrap();
        assert_eq!(read(&path).unwrap(), [span(2)]);
    }
}
