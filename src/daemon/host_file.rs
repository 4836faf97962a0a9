//! The file with the host's resource usage over time: one line per span, oldest first.
//!
//! Spans are appended. Once there are many, the file is rewritten with a lower resolution for older
//! spans. A line that a crash truncated is skipped. A crash also loses data that the system has not
//! written to disk, about a minute of it.

use slotd_model::Timestamp;
use slotd_model::host_use::{HostSpan, MOST_SPANS, thinned};
use slotd_sys::files::{self, MOST_RECORD};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The number of lines at which the file is rewritten.
const MOST_LINES: usize = 2 * MOST_SPANS;

#[derive(Debug, Clone)]
pub struct HostFile {
    path: PathBuf,
    /// The number of lines, or `None` if the contents are unknown.
    lines: Option<usize>,
}

impl HostFile {
    pub fn new(path: PathBuf) -> HostFile {
        HostFile { path, lines: None }
    }

    /// Appends a span.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written. Existing spans are kept.
    pub fn add(&mut self, span: &HostSpan, now: Timestamp) -> io::Result<()> {
        // After a failure, the next call reads the file again.
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

/// Reads all spans of the file. Skips invalid lines.
///
/// # Errors
/// Fails if the file exists but cannot be read.
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
    fn spans_are_read_back_despite_a_truncated_line() {
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
    fn file_stays_short_and_keeps_all_recent_time() {
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
    fn write_succeeds_after_an_earlier_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib/host_use.jsonl");
        let mut file = HostFile::new(path.clone());
        file.add(&span(1), at(1)).unwrap_err();
        fs::create_dir(dir.path().join("lib")).unwrap();
        file.add(&span(2), at(2)).unwrap();
        assert_eq!(read(&path).unwrap(), [span(2)]);
    }
}
