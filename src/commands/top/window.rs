//! A file that may be longer than memory, of which no more is read than is looked at.

use crate::client::tail;
use memchr::memmem;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How much is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// How much a search reads at once, in bytes.
const PIECE: u64 = 1 << 20;

/// No line is looked at further than this, in bytes.
const LONGEST: usize = 4 << 10;

/// How far one step looks for the ends of lines, in bytes: what has none for longer is cut.
const FAR: u64 = 8 << 20;

/// Why an output stays where it is in sight.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("a search cannot be started: {0}")]
    NoSearch(io::Error),
    #[error(
        "not found {}: {text}",
        if *back { "above, look below (n)" } else { "below, look above (N)" }
    )]
    NotFound { text: String, back: bool },
}

/// A file as long as it is at this moment.
pub struct Window {
    file: File,
    pub size: u64,
    #[cfg(test)]
    pub read: std::cell::Cell<u64>,
}

impl Window {
    /// # Errors
    /// It is not there, or cannot be read again and again.
    pub fn open(path: &Path) -> io::Result<Window> {
        let Some(file) = tail::open_output(path)? else {
            std::fs::metadata(path)?;
            return Err(io::Error::other("it is not a file that can be read again"));
        };
        let about = file.metadata()?;
        Ok(Window {
            file,
            size: about.len(),
            #[cfg(test)]
            read: std::cell::Cell::default(),
        })
    }

    /// Up to so many bytes from there on.
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

    /// So many lines from there on. Of a line that is longer than what is read at once this is its
    /// beginning.
    ///
    /// # Errors
    /// The file cannot be read; so with all of these.
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
                    // It is read again with what follows.
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

    /// Where the last page begins.
    ///
    /// # Errors
    /// As of [`Self::lines`].
    pub fn tail(&self, lines: usize) -> io::Result<u64> {
        self.back(self.size, lines.max(1))
    }

    /// Where the line begins that is so many lines above the one that begins, or ends, there.
    ///
    /// # Errors
    /// As of [`Self::lines`].
    pub fn back(&self, from: u64, lines: usize) -> io::Result<u64> {
        let mut at = from;
        let mut ends = 0;
        while at > 0 && from - at < FAR {
            let len = at.min(CHUNK as u64);
            let bytes = self.bytes(at - len, len as usize)?;
            for i in memchr::memrchr_iter(b'\n', &bytes) {
                let end = at - len + i as u64 + 1;
                // The end of the line before is that of the line itself.
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

    /// Where the line begins that is so many lines below.
    ///
    /// # Errors
    /// As of [`Self::lines`].
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

    /// How far a search from there goes, in bytes.
    pub fn far(&self, from: u64, back: bool) -> u64 {
        if back { from } else { self.size.saturating_sub(from) }
    }

    /// The beginning of the next line, or of the one before, that has these bytes in it. `on` is
    /// told after each piece how many bytes have been searched, and may break it off.
    ///
    /// # Errors
    /// As of [`Self::lines`].
    pub fn search(
        &self,
        from: u64,
        wanted: &[u8],
        back: bool,
        mut on: impl FnMut(u64) -> ControlFlow<()>,
    ) -> io::Result<Option<u64>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        // Pieces overlap, so that what is cut by the end of one is whole in the next.
        let overlap = wanted.len() as u64 - 1;
        let (below, above) = (memmem::Finder::new(wanted), memmem::FinderRev::new(wanted));
        let mut at = if back { from } else { self.forward(from, 1)? };
        let begun = at;
        while if back { at > 0 } else { at < self.size } {
            let start = if back { at.saturating_sub(PIECE) } else { at };
            // Above is only what ends before the line from which it is searched.
            let end = if back { (at + overlap).min(from) } else { at + PIECE + overlap };
            let bytes = self.bytes(start, usize::try_from(end - start).unwrap_or(usize::MAX))?;
            let hit = if back { above.rfind(&bytes) } else { below.find(&bytes) };
            if let Some(i) = hit {
                return self.line_of(start + i as u64).map(Some);
            }
            at = if back { start } else { start + PIECE };
            if on(at.abs_diff(begun)).is_break() {
                break;
            }
        }
        Ok(None)
    }

    /// Where the line begins in which this byte is.
    fn line_of(&self, at: u64) -> io::Result<u64> {
        self.back(at + 1, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    /// Half a gigabyte, of which the disk has the last lines alone.
    fn large() -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.seek(SeekFrom::Start(512 << 20)).unwrap();
        file.write_all(&b"\na line\n".repeat(100)).unwrap();
        file
    }

    #[test]
    fn of_a_large_file_its_end_alone_is_read() {
        let file = large();
        let window = Window::open(file.path()).unwrap();
        let at = window.tail(50).unwrap();
        assert_eq!(window.lines(at, 50).unwrap().len(), 50);
        assert!(window.read.get() <= 2 * CHUNK as u64, "{}", window.read.get());
        // A line without an end takes no more than it must.
        window.read.set(0);
        let at = window.back(500 << 20, 50).unwrap();
        assert_eq!(window.lines(at, 50).unwrap().len(), 1, "nothing of what is far below");
        assert!(window.read.get() <= 3 * FAR, "{}", window.read.get());
    }

    #[test]
    fn what_is_not_a_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let why = |path: &Path| Window::open(path).err().unwrap().to_string();
        assert_eq!(why(&fifo), "it is not a file that can be read again");
        assert_eq!(why(dir.path()), "it is not a file that can be read again");
        assert_eq!(why(&dir.path().join("none")), "No such file or directory (os error 2)");
    }

    #[test]
    fn a_search_can_be_broken_off() {
        let file = large();
        let window = Window::open(file.path()).unwrap();
        let mut told = Vec::new();
        let found = window.search(0, b"a line", false, |done| {
            told.push(done);
            if told.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((found.unwrap(), told), (None, vec![PIECE, 2 * PIECE, 3 * PIECE]));
        assert_eq!(window.far(0, false), window.size);
    }
}
