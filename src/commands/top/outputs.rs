//! The displayed outputs of a job: windows of files that may be longer than memory, and grow.

use super::background::{Background, News, Reporter};
use super::window::{OutputError, Window};
use crate::client::watch::FileWatch;
use crate::tui::log::{Move, Text};
use crate::tui::page::Side;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Minimum time between reads of a growing file.
const PAUSE: Duration = Duration::from_millis(100);

/// A displayed file.
struct Output {
    path: PathBuf,
    /// The offset of the first visible line.
    at: u64,
    follows: bool,
}

#[derive(Default)]
pub struct Outputs {
    files: [Option<Output>; 2],
    watch: Option<FileWatch>,
    /// When a change was noticed that has not been read.
    changed: Option<Instant>,
    search: Option<Search>,
    /// Number of searches so far.
    searches: u64,
}

/// A running search.
struct Search {
    number: u64,
    /// The search was abandoned.
    stop: Arc<AtomicBool>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Outputs {
    pub fn of(out: String, err: Option<String>) -> Outputs {
        let file = |path: String| Output { path: path.into(), at: 0, follows: true };
        let outputs = Outputs {
            files: [Some(file(out)), err.map(file)],
            watch: FileWatch::new().ok(),
            ..Outputs::default()
        };
        outputs.watch();
        outputs
    }

    /// Watches the files for changes, including those that do not exist yet.
    fn watch(&self) {
        let Some(watch) = &self.watch else { return };
        for file in self.files.iter().flatten() {
            watch.add(&file.path);
        }
    }

    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Notes changes. Call it when [`Self::watched`] is readable.
    pub fn changed(&mut self) {
        let Some(watch) = &self.watch else { return };
        watch.clear();
        // A path may now be a different file.
        self.watch();
        self.changed.get_or_insert_with(Instant::now);
    }

    /// Returns the time until the next read.
    pub fn rest(&self) -> Option<Duration> {
        self.changed.map(|at| PAUSE.saturating_sub(at.elapsed()))
    }

    pub fn is_due(&self) -> bool {
        self.rest().is_some_and(|rest| rest.is_zero())
    }

    /// Returns the visible part of each file. `lines` returns its number of lines.
    pub fn read(&mut self, lines: impl Fn(Side) -> usize) -> Vec<(Side, Text)> {
        self.changed = None;
        let files = Side::ALL.into_iter().zip(&mut self.files);
        files.filter_map(|(side, file)| Some((side, file.as_mut()?.text(lines(side))))).collect()
    }

    /// Moves to another part of a file. A search runs in the background.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the search cannot be started.
    pub fn go(
        &mut self,
        side: Side,
        to: &Move,
        lines: usize,
        background: &Background,
    ) -> Result<(), OutputError> {
        let Some(file) = &mut self.files[side as usize] else { return Ok(()) };
        let Move::Search { text, back } = to else { return file.go(to, lines) };
        self.searches += 1;
        let (number, stop) = (self.searches, Arc::new(AtomicBool::new(false)));
        self.search = Some(Search { number, stop: Arc::clone(&stop) });
        let (path, from, text, back) = (file.path.clone(), file.at, text.clone(), *back);
        let work = move |reporter: &Reporter| {
            let found = search(&path, from, &text, back, |done, of| {
                if stop.load(Ordering::Relaxed) {
                    return ControlFlow::Break(());
                }
                reporter.report(News::Searching { search: number, done, of });
                ControlFlow::Continue(())
            });
            reporter.report(News::Searched { search: number, side, found });
        };
        background.start(work).map_err(OutputError::NoSearch)
    }

    /// Stops the running search. Returns whether there was one.
    pub fn stop_search(&mut self) -> bool {
        self.search.take().is_some()
    }

    /// Returns whether the search with this number is the current one.
    pub fn is_searching(&self, number: u64) -> bool {
        self.search.as_ref().is_some_and(|search| search.number == number)
    }

    /// Moves to the result of a search.
    pub fn found(&mut self, side: Side, at: u64) {
        self.search = None;
        if let Some(file) = &mut self.files[side as usize] {
            (file.at, file.follows) = (at, false);
        }
    }
}

/// A line that a search found.
#[derive(Debug, PartialEq, Eq)]
pub struct Hit {
    pub at: u64,
    /// The message, if the search continued at the other end of the file.
    pub around: Option<&'static str>,
}

/// Searches for a line with this text, around the ends of the file.
///
/// # Errors
/// Fails if no line matches or the file cannot be read.
fn search(
    path: &Path,
    from: u64,
    text: &str,
    back: bool,
    mut on: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Hit, OutputError> {
    let failed = |error| OutputError::File { path: path.to_owned(), error };
    let window = Window::open(path).map_err(failed)?;
    let next = window.forward(from, 1).map_err(failed)?;
    // The visible line itself comes last.
    let (first, second, around) = if back {
        (0..from, from..window.size, "the search continued at the end")
    } else {
        (next..window.size, 0..next, "the search continued at the start")
    };
    let (mut reported, mut before, mut is_stopped) = (Instant::now(), 0, false);
    for (within, around) in [(first, None), (second, Some(around))] {
        let found = window.search(&within, text.as_bytes(), back, |done| {
            // Report often enough to show progress and to be stopped.
            if reported.elapsed() < PAUSE {
                return ControlFlow::Continue(());
            }
            reported = Instant::now();
            let flow = on(before + done, window.size);
            is_stopped = flow.is_break();
            flow
        });
        if let Some(at) = found.map_err(failed)? {
            return Ok(Hit { at, around });
        }
        if is_stopped {
            break;
        }
        before += within.end - within.start;
    }
    Err(OutputError::NotFound(text.to_owned()))
}

impl Output {
    fn text(&mut self, lines: usize) -> Text {
        let mut text = Text {
            path: self.path.display().to_string(),
            follows: self.follows,
            ..Text::default()
        };
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
            // The file was truncated.
            self.at = 0;
        }
        (text.lines, text.at, text.size) = (window.lines(self.at, lines)?, self.at, window.size);
        Ok(())
    }

    fn go(&mut self, to: &Move, lines: usize) -> Result<(), OutputError> {
        let path = self.path.clone();
        let failed = |error| OutputError::File { path: path.clone(), error };
        let window = Window::open(&self.path).map_err(failed)?;
        let at = match to {
            Move::Follow => {
                self.follows = !self.follows;
                return Ok(());
            }
            Move::Start => 0,
            Move::End => window.tail(lines).map_err(failed)?,
            Move::Lines(by) if *by < 0 => {
                let up = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
                window.back(self.at, up).map_err(failed)?
            }
            Move::Lines(by) => {
                let down = usize::try_from(*by).unwrap_or(0);
                // Stop at the last page.
                let tail = window.tail(lines).map_err(failed)?;
                window.forward(self.at, down).map_err(failed)?.min(tail.max(self.at))
            }
            // May take long, so it runs in the background.
            Move::Search { .. } => return Ok(()),
        };
        self.at = at;
        self.follows = *to == Move::End;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::io::Write as _;

    /// Creates a file of numbered lines that is longer than one read.
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
    fn scrolling_stops_following_the_end() {
        let (mut file, mut output) = numbered(100_000);
        assert_eq!(first_and_last(&mut output), from(99_997));
        writeln!(file, "line 100000").unwrap();
        assert_eq!(first_and_last(&mut output), from(99_998));
        output.go(&Move::Lines(-10), 3).unwrap();
        assert_eq!(first_and_last(&mut output), from(99_988));
        writeln!(file, "line 100001").unwrap();
        assert_eq!(first_and_last(&mut output), from(99_988), "the view does not move");
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
    fn search_works_in_both_directions_and_around_the_ends() {
        let (_file, mut output) = numbered(300_000);
        output.go(&Move::Start, 3).unwrap();
        let find = |output: &Output, text: &str, back| {
            search(&output.path, output.at, text, back, |_, _| ControlFlow::Continue(()))
        };
        for (text, back, line, is_around) in [
            ("e 250000", false, 250_000, false),
            ("line 1000", true, 100_099, false),
            ("e 99\n", true, 99, false),
            ("line 98\n", false, 98, true),
            ("line 299999", true, 299_999, true),
            ("line 0\n", false, 0, true),
            ("line 0\n", false, 0, true),
        ] {
            let hit = find(&output, text, back).unwrap();
            assert_eq!(hit.around.is_some(), is_around, "{text:?}");
            (output.at, output.follows) = (hit.at, false);
            assert_eq!(first_and_last(&mut output).0, format!("line {line}"), "{text:?}");
        }
        assert_eq!(find(&output, "line x", false).unwrap_err().to_string(), "not found: line x");
    }

    #[test]
    fn unterminated_lines_and_empty_files_are_shown() {
        let (mut file, mut output) = numbered(0);
        assert_eq!(output.text(3).lines, Vec::<String>::new());
        file.write_all(b"no end").unwrap();
        assert_eq!(output.text(3).lines, ["no end"]);
        file.write_all(&vec![b'x'; 3 * (64 << 10)]).unwrap();
        file.write_all(b"\nlast").unwrap();
        let text = output.text(2);
        assert_eq!(text.lines.last().map(String::as_str), Some("last"));
        output.path.push("not there");
        assert!(output.text(3).error.is_some());
    }
}
