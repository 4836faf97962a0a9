//! A file that may be longer than memory. Only the displayed parts are read.

use crate::client::tail;
use memchr::memmem;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of a read, in bytes.
const CHUNK: usize = 64 << 10;

/// Size of a search's reads, in bytes.
const PIECE: u64 = 1 << 20;

/// Maximum displayed length of a line, in bytes.
const LONGEST: usize = 4 << 10;

/// Maximum distance of a search for line ends, in bytes. Longer lines are split.
const FAR: u64 = 8 << 20;

/// Why the view of an output did not move.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot start a search: {0}")]
    NoSearch(io::Error),
    #[error("not found: {0}")]
    NotFound(String),
}

/// A file with its size at this moment.
pub struct Window {
    file: File,
    pub size: u64,
    #[cfg(test)]
    pub read: std::cell::Cell<u64>,
}

impl Window {
    /// Opens a file and records its size.
    ///
    /// # Errors
    /// Fails if the file does not exist or is not a regular file.
    pub fn open(path: &Path) -> io::Result<Window> {
        let Some(file) = tail::open_output(path)? else {
            std::fs::metadata(path)?;
            return Err(io::Error::other("not a regular file"));
        };
        let about = file.metadata()?;
        Ok(Window {
            file,
            size: about.len(),
            #[cfg(test)]
            read: std::cell::Cell::default(),
        })
    }

    /// Reads up to `most` bytes at an offset.
    fn bytes(&self, at: u64, most: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; most.min(left)];
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(read);
        #[cfg(test)]
        self.read.set(self.read.get() + read as u64);
        Ok(bytes)
    }

    /// Returns up to `most` lines from an offset. A line that is longer than one read is truncated.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn lines(&self, from: u64, most: usize) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut at = from;
        while lines.len() < most && at < self.size && at - from < FAR {
            let bytes = self.bytes(at, CHUNK)?;
            let is_end = at + bytes.len() as u64 >= self.size;
            let mut rest: &[u8] = &bytes;
            while lines.len() < most && !rest.is_empty() {
                let end = memchr::memchr(b'\n', rest);
                let is_whole = end.is_some() || is_end;
                if !is_whole && rest.len() < bytes.len() {
                    // Read it again with the following bytes.
                    break;
                }
                let line = &rest[..end.unwrap_or(rest.len()).min(LONGEST)];
                lines.push(String::from_utf8_lossy(line).into_owned());
                rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
                if !is_whole {
                    at = self.forward(at, 1)? - bytes.len() as u64;
                }
            }
            at += (bytes.len() - rest.len()).max(usize::from(bytes.is_empty())) as u64;
        }
        Ok(lines)
    }

    /// Returns the offset of the last page.
    ///
    /// # Errors
    /// Fails as [`Self::lines`] does.
    pub fn tail(&self, lines: usize) -> io::Result<u64> {
        self.back(self.size, lines.max(1))
    }

    /// Returns the offset of the line that is `lines` lines above the one that begins or ends at
    /// `from`.
    ///
    /// # Errors
    /// Fails as [`Self::lines`] does.
    pub fn back(&self, from: u64, lines: usize) -> io::Result<u64> {
        let mut at = from;
        let mut ends = 0;
        while at > 0 && from - at < FAR {
            let len = at.min(CHUNK as u64);
            let bytes = self.bytes(at - len, len as usize)?;
            for i in memchr::memrchr_iter(b'\n', &bytes) {
                let end = at - len + i as u64 + 1;
                // A newline that ends at `from` belongs to the line itself.
                if end != from {
                    ends += 1;
                    if ends == lines {
                        return Ok(end);
                    }
                }
            }
            at -= len;
        }
        Ok(at)
    }

    /// Returns the offset of the line that is `lines` lines below.
    ///
    /// # Errors
    /// Fails as [`Self::lines`] does.
    pub fn forward(&self, from: u64, lines: usize) -> io::Result<u64> {
        let (mut at, mut left) = (from, lines);
        while left > 0 && at < self.size && at - from < FAR {
            let bytes = self.bytes(at, CHUNK)?;
            for i in memchr::memchr_iter(b'\n', &bytes) {
                left -= 1;
                if left == 0 {
                    return Ok(at + i as u64 + 1);
                }
            }
            at += (bytes.len() as u64).max(1);
        }
        Ok(at.min(self.size))
    }

    /// Returns the offset of the first line in a range that contains these bytes, or of the last one
    /// if `back`. Calls `on` after each piece with the number of bytes searched; it may stop the
    /// search.
    ///
    /// # Errors
    /// Fails as [`Self::lines`] does.
    pub fn search(
        &self,
        within: &Range<u64>,
        wanted: &[u8],
        back: bool,
        mut on: impl FnMut(u64) -> ControlFlow<()>,
    ) -> io::Result<Option<u64>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        // Pieces overlap, so that a match across their boundary is found.
        let overlap = wanted.len() as u64 - 1;
        let (below, above) = (memmem::Finder::new(wanted), memmem::FinderRev::new(wanted));
        let mut left = within.clone();
        while !left.is_empty() {
            let piece = if back {
                left.end.saturating_sub(PIECE).max(left.start)..left.end
            } else {
                left.start..left.end.min(left.start + PIECE)
            };
            // A match must end within the range.
            let end = (piece.end + overlap).min(within.end);
            let length = usize::try_from(end - piece.start).unwrap_or(usize::MAX);
            let bytes = self.bytes(piece.start, length)?;
            let hit = if back { above.rfind(&bytes) } else { below.find(&bytes) };
            if let Some(i) = hit {
                return self.line_of(piece.start + i as u64).map(Some);
            }
            if back {
                left.end = piece.start;
            } else {
                left.start = piece.end;
            }
            let length = |range: &Range<u64>| range.end - range.start;
            if on(length(within) - length(&left)).is_break() {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the offset of the line that contains this byte.
    fn line_of(&self, at: u64) -> io::Result<u64> {
        self.back(at + 1, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    /// Creates a sparse file of half a gigabyte with lines only at the end.
    fn large() -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.seek(SeekFrom::Start(512 << 20)).unwrap();
        file.write_all(&b"\na line\n".repeat(100)).unwrap();
        file
    }

    #[test]
    fn only_the_end_of_a_large_file_is_read() {
        let file = large();
        let window = Window::open(file.path()).unwrap();
        let at = window.tail(50).unwrap();
        assert_eq!(window.lines(at, 50).unwrap().len(), 50);
        assert!(window.read.get() <= 2 * CHUNK as u64, "{}", window.read.get());
        // An endless line costs only a bounded read.
        window.read.set(0);
        let at = window.back(500 << 20, 50).unwrap();
        assert_eq!(window.lines(at, 50).unwrap().len(), 1, "no lines from far below");
        assert!(window.read.get() <= 3 * FAR, "{}", window.read.get());
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let why = |path: &Path| Window::open(path).err().unwrap().to_string();
        assert_eq!(why(&fifo), "not a regular file");
        assert_eq!(why(dir.path()), "not a regular file");
        assert_eq!(why(&dir.path().join("none")), "No such file or directory (os error 2)");
    }

    #[test]
    fn searches_can_be_stopped() {
        let file = large();
        let window = Window::open(file.path()).unwrap();
        let mut reports = Vec::new();
        let found = window.search(&(0..window.size), b"a line", false, |done| {
            reports.push(done);
            if reports.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((found.unwrap(), reports), (None, vec![PIECE, 2 * PIECE, 3 * PIECE]));
    }
}
