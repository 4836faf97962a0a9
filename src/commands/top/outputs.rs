//! The outputs of a job as they are looked at: windows of files that may be longer than memory, and grow.

use crate::screen::log::{Move, Text};
use crate::screen::page::Side;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// No line is looked at further than this, in bytes.
const LONGEST: usize = 4 << 10;

/// How far one key searches, and how far back the beginning of a line is looked for, in bytes.
const FAR: u64 = 256 << 20;

/// A file that grows all the time is read again after so long.
const PAUSE: Duration = Duration::from_millis(100);

/// A file that is looked at.
struct Output {
    path: PathBuf,
    /// Where the first line in sight begins.
    at: u64,
    follows: bool,
}

#[derive(Default)]
pub struct Outputs {
    files: [Option<Output>; 2],
    watch: Option<Inotify>,
    /// When something in them was last changed, and was not read.
    changed: Option<Instant>,
}

impl Outputs {
    pub fn of(out: String, err: Option<String>) -> Outputs {
        let file = |path: String| Output { path: path.into(), at: 0, follows: true };
        let mut outputs = Outputs { files: [Some(file(out)), err.map(file)], ..Outputs::default() };
        outputs.watch();
        outputs
    }

    /// Has the kernel tell of what is written; of a file that is not there yet, when it comes.
    fn watch(&mut self) {
        let Ok(watch) = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK) else { return };
        for file in self.files.iter().flatten() {
            let written = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_DELETE_SELF;
            let comes = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            let dir = file.path.parent().unwrap_or(Path::new("/"));
            // Neither is there: the page says so, and that is all.
            let _ = watch.add_watch(&file.path, written).or_else(|_| watch.add_watch(dir, comes));
        }
        self.watch = Some(watch);
    }

    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// To be called when that is readable.
    pub fn changed(&mut self) {
        let Some(watch) = &self.watch else { return };
        while watch.read_events().is_ok_and(|events| !events.is_empty()) {}
        // Some of them may be other files than before.
        self.watch();
        self.changed.get_or_insert_with(Instant::now);
    }

    /// How long it is until they are to be read again.
    pub fn rest(&self) -> Option<Duration> {
        self.changed.map(|at| PAUSE.saturating_sub(at.elapsed()))
    }

    pub fn is_due(&self) -> bool {
        self.rest().is_some_and(|rest| rest.is_zero())
    }

    /// What is in sight of each, of which `lines` tells how many lines.
    pub fn read(&mut self, lines: impl Fn(Side) -> usize) -> Vec<(Side, Text)> {
        self.changed = None;
        let files = Side::ALL.into_iter().zip(&mut self.files);
        files.filter_map(|(side, file)| Some((side, file.as_mut()?.text(lines(side))))).collect()
    }

    /// # Errors
    /// Why it is where it was.
    pub fn go(&mut self, side: Side, to: &Move, lines: usize) -> Result<(), String> {
        match &mut self.files[side as usize] {
            Some(file) => file.go(to, lines),
            None => Ok(()),
        }
    }
}

impl Output {
    fn text(&mut self, lines: usize) -> Text {
        let mut text = Text { path: self.path.display().to_string(), follows: self.follows, ..Text::default() };
        if let Err(why) = self.read(&mut text, lines) {
            text.error = Some(why.to_string());
        }
        text
    }

    fn read(&mut self, text: &mut Text, lines: usize) -> io::Result<()> {
        let window = Window::open(&self.path)?;
        if self.follows {
            self.at = window.tail(lines)?;
        } else if self.at > window.size {
            // It was written anew.
            self.at = 0;
        }
        (text.lines, text.at, text.size) = (window.lines(self.at, lines)?, self.at, window.size);
        Ok(())
    }

    fn go(&mut self, to: &Move, lines: usize) -> Result<(), String> {
        let told = |e: io::Error| format!("{}: {e}", self.path.display());
        let window = Window::open(&self.path).map_err(told)?;
        let at = match to {
            Move::Follow => {
                self.follows = !self.follows;
                return Ok(());
            }
            Move::Start => 0,
            Move::End => window.tail(lines).map_err(told)?,
            Move::Lines(by) if *by < 0 => {
                let up = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
                window.back(self.at, up).map_err(told)?
            }
            Move::Lines(by) => {
                let down = usize::try_from(*by).unwrap_or(0);
                // Not below the last page.
                let tail = window.tail(lines).map_err(told)?;
                window.forward(self.at, down).map_err(told)?.min(tail.max(self.at))
            }
            Move::Search { text, back } => match window.search(self.at, text.as_bytes(), *back).map_err(told)? {
                Some(at) => at,
                None => return Err(format!("not found {}: {text}", if *back { "above" } else { "below" })),
            },
        };
        self.at = at;
        self.follows = *to == Move::End;
        Ok(())
    }
}

/// A file as long as it is at this moment.
struct Window {
    file: File,
    size: u64,
}

impl Window {
    fn open(path: &Path) -> io::Result<Window> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            // A pipe would never end, and a device is nobody's output.
            return Err(io::Error::other("it is no file that can be read again"));
        }
        Ok(Window { file, size: about.len() })
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
        Ok(bytes)
    }

    /// So many lines from there on. Of a line that is longer than what is read at once this is its beginning.
    fn lines(&self, from: u64, most: usize) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut at = from;
        while lines.len() < most && at < self.size {
            let bytes = self.bytes(at, CHUNK)?;
            let is_end = at + bytes.len() as u64 >= self.size;
            let mut rest: &[u8] = &bytes;
            while lines.len() < most && !rest.is_empty() {
                let end = rest.iter().position(|byte| *byte == b'\n');
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
    fn tail(&self, lines: usize) -> io::Result<u64> {
        self.back(self.size, lines.max(1))
    }

    /// Where the line begins that is so many lines above the one that begins, or ends, there.
    fn back(&self, from: u64, lines: usize) -> io::Result<u64> {
        let mut at = from;
        let mut ends = 0;
        while at > 0 && from - at < FAR {
            let len = at.min(CHUNK as u64);
            let bytes = self.bytes(at - len, len as usize)?;
            for (i, byte) in bytes.iter().enumerate().rev() {
                let end = at - len + i as u64 + 1;
                // The end of the line before is that of the line itself.
                if *byte == b'\n' && end != from {
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
    fn forward(&self, from: u64, lines: usize) -> io::Result<u64> {
        let (mut at, mut left) = (from, lines);
        while left > 0 && at < self.size {
            let bytes = self.bytes(at, CHUNK)?;
            for (i, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                left -= 1;
                if left == 0 {
                    return Ok(at + i as u64 + 1);
                }
            }
            at += (bytes.len() as u64).max(1);
        }
        Ok(at.min(self.size))
    }

    /// The beginning of the next line, or of the one before, that has these bytes in it.
    fn search(&self, from: u64, wanted: &[u8], back: bool) -> io::Result<Option<u64>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        // Pieces overlap, so that what is cut by the end of one is whole in the next.
        let overlap = wanted.len() as u64 - 1;
        let piece = 16 * CHUNK as u64;
        let mut at = if back { from } else { self.forward(from, 1)? };
        let begun = at;
        while at.abs_diff(begun) < FAR && if back { at > 0 } else { at < self.size } {
            let start = if back { at.saturating_sub(piece) } else { at };
            let end = if back { at + overlap } else { at + piece + overlap };
            let bytes = self.bytes(start, usize::try_from(end - start).unwrap_or(usize::MAX))?;
            let hits = bytes.windows(wanted.len());
            let is_before = |i: &usize| !back || start + *i as u64 + wanted.len() as u64 <= from;
            let mut hits = hits.enumerate();
            let hit = match back {
                true => hits.rev().find(|(i, found)| *found == wanted && is_before(i)),
                false => hits.find(|(_, found)| *found == wanted),
            };
            if let Some((i, _)) = hit {
                return self.line_of(start + i as u64).map(Some);
            }
            at = if back { start } else { start + piece };
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
    use std::fmt::Write as _;
    use std::io::Write as _;

    /// A file of numbered lines, longer than is read at once.
    fn numbered(lines: usize) -> (tempfile::NamedTempFile, Output) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut text = String::new();
        for line in 0..lines {
            writeln!(text, "line {line}").unwrap();
        }
        file.write_all(text.as_bytes()).unwrap();
        let output = Output { path: file.path().to_owned(), at: 0, follows: true };
        (file, output)
    }

    fn first_and_last(output: &mut Output) -> (String, String) {
        let lines = output.text(3).lines;
        (lines.first().cloned().unwrap_or_default(), lines.last().cloned().unwrap_or_default())
    }

    fn from(n: usize) -> (String, String) {
        (format!("line {n}"), format!("line {}", n + 2))
    }

    #[test]
    fn the_end_of_a_long_file_is_followed_until_another_part_is_looked_at() {
        let (mut file, mut output) = numbered(100_000);
        assert_eq!(first_and_last(&mut output), from(99_997));
        writeln!(file, "line 100000").unwrap();
        assert_eq!(first_and_last(&mut output), from(99_998));
        output.go(&Move::Lines(-10), 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(99_988));
        writeln!(file, "line 100001").unwrap();
        assert_eq!(first_and_last(&mut output), from(99_988), "it stands still");
        output.go(&Move::Lines(1000), 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(99_999), "not below the last page");
        output.go(&Move::Start, 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(0));
        output.go(&Move::Lines(20_000), 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(20_000));
        output.go(&Move::Lines(-15_000), 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(5_000));
    }

    #[test]
    fn a_text_is_found_below_and_above() {
        let (_file, mut output) = numbered(300_000);
        output.go(&Move::Start, 3).unwrap();
        let search = |text: &str, back| Move::Search { text: text.to_owned(), back };
        for (text, back, line) in [("e 250000", false, 250_000), ("line 1000", true, 100_099), ("e 99\n", true, 99)] {
            output.go(&search(text, back), 3).unwrap();
            assert_eq!(first_and_last(&mut output).0, format!("line {line}"), "{text:?}");
        }
        assert_eq!(output.go(&search("line 98\n", false), 3), Err("not found below: line 98\n".to_owned()));
    }

    #[test]
    fn lines_without_an_end_and_files_without_lines_are_shown() {
        let (mut file, mut output) = numbered(0);
        assert_eq!(output.text(3).lines, Vec::<String>::new());
        file.write_all(b"no end").unwrap();
        assert_eq!(output.text(3).lines, ["no end"]);
        file.write_all(&vec![b'x'; 3 * CHUNK]).unwrap();
        file.write_all(b"\nlast").unwrap();
        let text = output.text(2);
        assert_eq!(text.lines.last().map(String::as_str), Some("last"));
        output.path.push("not there");
        assert!(output.text(3).error.is_some());
    }
}
