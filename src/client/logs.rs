//! Shows output files of jobs and follows them while they are written, truncated or replaced.
//!
//! The kernel reports changes, so nothing is polled.

use crate::client::relay::Relay;
use crate::client::tail;
use nix::sys::stat::fstat;
use nix::time::ClockId;
use slotd_model::Timestamp;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const CHUNK: usize = 64 << 10;

/// An output file.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    relay: Relay,
    to_stderr: bool,
    /// Ignore a file that was last written before this time: it belongs to another job.
    since: Option<Timestamp>,
    /// The number of existing lines to show, counted from the end.
    last: Option<u64>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: (u64, u64),
    at: u64,
}

impl Log {
    /// Creates a log that prefixes each line with `label`.
    pub fn new(path: PathBuf, label: Option<String>, to_stderr: bool) -> Log {
        let unbuffered = label.is_none();
        Log {
            path,
            relay: Relay::new(label, unbuffered),
            to_stderr,
            since: None,
            last: None,
            open: None,
        }
    }

    /// Shows only the last lines of the existing content.
    #[must_use]
    pub fn last(mut self, lines: Option<u64>) -> Log {
        self.last = lines;
        self
    }

    /// Sets the start time of the job. A file last written before it belongs to another job.
    #[must_use]
    pub fn since(mut self, start: Option<Timestamp>) -> Log {
        self.since = start;
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shows new content. A missing file is not an error.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the output cannot be written.
    pub fn show(&mut self) -> io::Result<()> {
        loop {
            if self.open.is_none() && !self.reopen()? {
                return Ok(());
            }
            self.copy()?;
            // The file may have been replaced by another one of the same name.
            let here = std::fs::metadata(&self.path).ok().map(|meta| identity(&meta));
            let is_same = self
                .open
                .as_ref()
                .is_some_and(|open| here.is_none_or(|here| here == open.identity));
            if is_same {
                return Ok(());
            }
            (self.open, self.last) = (None, None);
        }
    }

    /// Returns false if there is nothing to read yet.
    fn reopen(&mut self) -> io::Result<bool> {
        let Some(mut file) = tail::open_output(&self.path)? else { return Ok(false) };
        let meta = file.metadata()?;
        if self.since.is_some_and(|since| is_older(&meta, since)) {
            return Ok(false);
        }
        // Showing it would never end.
        if is_written_to(self.to_stderr, &meta) {
            let text = format!(
                "{}: cannot show this file, because the output goes to it",
                self.path.display()
            );
            return Err(io::Error::other(text));
        }
        let at = self.last.map_or(Ok(0), |lines| tail::start_of_last(&mut file, lines))?;
        self.open = Some(Open { file, identity: identity(&meta), at });
        Ok(true)
    }

    fn copy(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        // The file was truncated. Start over.
        if open.file.metadata()?.len() < open.at {
            open.at = 0;
        }
        open.file.seek(SeekFrom::Start(open.at))?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match open.file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    open.at += n as u64;
                    push(&mut self.relay, self.to_stderr, &chunk[..n])?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Shows the rest once the file is complete.
    ///
    /// # Errors
    /// Fails like [`Self::show`].
    pub fn finish(mut self) -> io::Result<()> {
        self.show()?;
        if self.to_stderr {
            self.relay.finish(&mut io::stderr())
        } else {
            self.relay.finish(&mut io::stdout().lock())
        }
    }
}

fn push(relay: &mut Relay, to_stderr: bool, bytes: &[u8]) -> io::Result<()> {
    if to_stderr {
        relay.push(bytes, &mut io::stderr())
    } else {
        relay.push(bytes, &mut io::stdout().lock())
    }
}

/// Returns whether the output goes to the file that is shown.
fn is_written_to(to_stderr: bool, meta: &Metadata) -> bool {
    let own = if to_stderr { fstat(io::stderr()) } else { fstat(io::stdout()) };
    own.is_ok_and(|own| (own.st_dev, own.st_ino) == identity(meta))
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

fn is_older(meta: &Metadata, since: Timestamp) -> bool {
    let written = meta.mtime().saturating_mul(1_000_000).saturating_add(meta.mtime_nsec() / 1000);
    written.saturating_add(tick_us()) < since.0
}

/// Returns how far the clock of file systems may lag behind the real-time clock, in microseconds.
fn tick_us() -> i64 {
    ClockId::CLOCK_REALTIME_COARSE
        .res()
        .map_or(0, |tick| tick.tv_nsec().saturating_div(1000).saturating_add(1))
}
