//! The journal of a job's step manager, in the job's directory. The manager records each start and
//! end here before reporting it. The next manager resumes from it, and the daemon reads from it
//! anything that the manager could not report.
//!
//! One entry per line, appended and never changed. The last line may be torn if its writer was
//! killed.

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use slotd_model::{End, ExitCode, JobId, JobState, Step, StepId, Timestamp, tres::Usage};
use slotd_sys::files::{self, MOST_RECORD};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The first line.
    Head {
        job: JobId,
        run: u32,
        file: String,
        /// This run continues where the previous run of the file stopped.
        resumed: bool,
    },
    /// An attempt to run a step is about to start.
    Start(Box<Step>),
    End(StepEnd),
    /// A step that was cancelled before it ran.
    Cancelled {
        name: String,
    },
    /// A step that will not run because its dependencies can never be satisfied.
    Skipped {
        name: String,
    },
    /// A step that had not ended when its manager did.
    Left {
        name: String,
    },
    /// The state of a step according to the journal of an earlier manager.
    Before {
        name: String,
        past: Past,
    },
    /// The daemon has received everything in the first `bytes` bytes.
    Delivered {
        bytes: u64,
    },
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    pub step: u32,
    pub state: End,
    pub exit: ExitCode,
    pub usage: Usage,
    pub start: Timestamp,
    pub end: Timestamp,
    /// It was ended because its manager or job ended, and is to be run again.
    #[serde(default)]
    pub interrupted: bool,
    /// The UID of the user who cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
}

impl StepEnd {
    /// Returns the record of a step that has ended in this way.
    pub fn record(&self, started: &Step) -> Step {
        let mut step = Step {
            state: JobState::Ended(self.state),
            exit: self.exit,
            usage: self.usage,
            start: self.start,
            cancelled_by: self.cancelled_by,
            ..started.clone()
        };
        step.end_at(self.end);
        step
    }
}

/// The state of a step under an earlier manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Past {
    /// The command as recorded. The same name with another command is another step.
    pub command: String,
    /// The number of attempts that count.
    pub attempts: u32,
    /// How the last attempt ended; `None` if it was interrupted or was running when its manager
    /// died.
    pub last: Option<(End, ExitCode)>,
    /// Its manager died while it was running.
    pub lost: bool,
}

/// Returns the journal of the job's last run that has one.
pub fn last(job_dir: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(job_dir).ok()?.flatten();
    let run = |file: std::fs::DirEntry| {
        file.file_name().to_str()?.strip_prefix("steps.")?.strip_suffix(".journal")?.parse().ok()
    };
    files.filter_map(run).max().map(|run: u32| path(job_dir, run))
}

/// Returns `steps.RUN.journal` in the directory of the job.
pub fn path(job_dir: &Path, run: u32) -> PathBuf {
    job_dir.join(format!("steps.{run}.journal"))
}

/// The journal of this manager.
#[derive(Debug)]
pub struct Journal {
    file: File,
    buffer: Vec<u8>,
    /// The buffer contains a start.
    has_starts: bool,
    /// The number of bytes written.
    len: u64,
    /// The number of bytes reserved on disk.
    reserved: u64,
}

/// The disk space, in bytes, that suffices for the ends of the running steps, except in jobs with
/// very many CPUs.
const END_RESERVE: u64 = 64 << 10;

impl Journal {
    /// Opens or creates the journal of a run of a job, and returns its entries.
    ///
    /// # Errors
    /// Fails if it cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<(Journal, Vec<Entry>)> {
        let file = files::append(path)?;
        let bytes = files::read_open(&file, MOST_RECORD)?;
        let mut journal = Journal {
            file,
            buffer: Vec::new(),
            has_starts: false,
            len: bytes.len() as u64,
            reserved: 0,
        };
        if bytes.last().is_some_and(|byte| *byte != b'\n') {
            // Terminate a torn line. It remains an unreadable line of its own.
            journal.buffer.push(b'\n');
        }
        Ok((journal, entries(&bytes).map(|(_, entry)| entry).collect()))
    }

    pub fn push(&mut self, entry: &Entry) {
        // Entries are plain data, so serializing them does not fail.
        if serde_json::to_writer(&mut self.buffer, entry).is_ok() {
            self.buffer.push(b'\n');
            self.has_starts |= matches!(entry, Entry::Start(_));
        }
    }

    /// Writes the buffered entries. They survive the death of this process. Entries that could not
    /// be written are retried with the next ones.
    ///
    /// # Errors
    /// Fails if they could not be written completely, or if there is no space left for the ends of
    /// the steps that start.
    pub fn write(&mut self) -> io::Result<()> {
        if self.has_starts {
            self.reserve()?;
        }
        if let Err(e) = self.file.write_all(&self.buffer) {
            // Part of it may have been written.
            self.file.set_len(self.len)?;
            return Err(e);
        }
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        self.has_starts = false;
        Ok(())
    }

    /// Reserves disk space for the ends of the steps that start, so that a full disk does not make
    /// them run twice.
    fn reserve(&mut self) -> io::Result<()> {
        let end = self.len + self.buffer.len() as u64;
        if end + END_RESERVE <= self.reserved {
            return Ok(());
        }
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let [from, bytes] = [self.len, end - self.len + 2 * END_RESERVE].map(signed);
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, bytes) {
            // Not every file system supports this.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                self.reserved = end + 2 * END_RESERVE
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Drops the starts that could not be written. These steps must not start.
    pub fn call_off_starts(&mut self) {
        let lines = self.buffer.split_inclusive(|byte| *byte == b'\n');
        self.buffer =
            lines.filter(|line| !line.starts_with(b"{\"Start\"")).flatten().copied().collect();
        self.has_starts = false;
    }

    /// Returns the number of bytes written.
    pub fn written(&self) -> u64 {
        self.len
    }

    /// Returns another handle to the file, for syncing it.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Parses the readable lines. Returns each entry with the offset of its end.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (u64, Entry)> {
    let mut at = 0u64;
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        at += line.len() as u64;
        serde_json::from_slice(line).ok().map(|entry| (at, entry))
    })
}

/// Returns the entries of a journal; empty if there is no journal.
///
/// # Errors
/// Fails if it exists but cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    match files::read(path, MOST_RECORD) {
        Ok(bytes) => Ok(entries(&bytes).map(|(_, entry)| entry).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Returns the steps of this run that have ended according to the journal but that the daemon may
/// not have received. Steps that were running at the end of the journal are not included: how they
/// ended is unknown here.
///
/// # Errors
/// Fails if the journal cannot be read.
pub fn undelivered(job_dir: &Path, run: u32) -> io::Result<Vec<Step>> {
    let bytes = files::read(&path(job_dir, run), MOST_RECORD)?;
    let mut known: BTreeMap<u32, Step> = BTreeMap::new();
    let mut ends: BTreeMap<u32, (u64, Step)> = BTreeMap::new();
    let mut delivered = 0;
    for (at, entry) in entries(&bytes) {
        match entry {
            Entry::Start(step) => {
                if let StepId::Num(number) = step.id {
                    known.insert(number, *step);
                }
            }
            Entry::End(end) => {
                if let Some(step) = known.remove(&end.step) {
                    ends.insert(end.step, (at, end.record(&step)));
                }
            }
            Entry::Delivered { bytes } => delivered = delivered.max(bytes),
            Entry::Head { .. }
            | Entry::Cancelled { .. }
            | Entry::Skipped { .. }
            | Entry::Left { .. }
            | Entry::Before { .. } => {}
        }
    }
    Ok(ends.into_values().filter(|(at, _)| *at > delivered).map(|(_, step)| step).collect())
}

/// Returns the state of each step, by name.
pub fn pasts(entries: &[Entry]) -> BTreeMap<String, Past> {
    let mut pasts: BTreeMap<String, Past> = BTreeMap::new();
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Before { name, past } => drop(pasts.insert(name.clone(), past.clone())),
            Entry::Cancelled { name } => {
                pasts.entry(name.clone()).or_default().last = Some((End::Cancelled, ExitCode::OK));
            }
            Entry::Start(step) => {
                let past = pasts.entry(step.name.clone()).or_default();
                past.command.clone_from(&step.submit_line);
                past.attempts += 1;
                (past.last, past.lost) = (None, true);
                if let StepId::Num(number) = step.id {
                    names.insert(number, &step.name);
                }
            }
            Entry::End(end) => {
                let past = names.get(&end.step).and_then(|name| pasts.get_mut(*name));
                if let Some(past) = past {
                    past.lost = false;
                    past.last = (!end.interrupted).then_some((end.state, end.exit));
                    past.attempts -= u32::from(end.interrupted);
                }
            }
            // The next manager decides again about skipped and remaining steps.
            Entry::Head { .. }
            | Entry::Skipped { .. }
            | Entry::Left { .. }
            | Entry::Delivered { .. } => {}
        }
    }
    pasts
}

/// Returns the steps that were running at the end of the journal.
pub fn unended(entries: &[Entry]) -> Vec<Step> {
    let mut running: BTreeMap<u32, &Step> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Start(step) => {
                if let StepId::Num(number) = step.id {
                    running.insert(number, step);
                }
            }
            Entry::End(end) => drop(running.remove(&end.step)),
            Entry::Head { .. }
            | Entry::Cancelled { .. }
            | Entry::Skipped { .. }
            | Entry::Left { .. }
            | Entry::Before { .. }
            | Entry::Delivered { .. } => {}
        }
    }
    running.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u32, name: &str) -> Step {
        Step {
            name: name.to_owned(),
            submit_line: format!("run {name}"),
            managed: true,
            ..Step::started(StepId::Num(number), Timestamp(5))
        }
    }

    fn end(number: u32, status: i32, interrupted: bool) -> Entry {
        let (state, exit) = (End::Failed, ExitCode::status(status));
        let (start, end) = (Timestamp(5), Timestamp(9));
        Entry::End(StepEnd {
            step: number,
            state,
            exit,
            usage: Usage::default(),
            start,
            end,
            interrupted,
            cancelled_by: None,
        })
    }

    #[test]
    fn a_torn_line_loses_no_other_and_delivered_steps_are_not_sent_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), 2);
        let (mut journal, before) = Journal::open(&path).unwrap();
        assert_eq!(before, []);
        for entry in
            [Entry::Start(step(1, "a").into()), end(1, 3, false), Entry::Start(step(2, "b").into())]
        {
            journal.push(&entry);
        }
        journal.write().unwrap();
        let bytes = journal.written();
        journal.push(&Entry::Delivered { bytes });
        journal.push(&Entry::Start(step(3, "c").into()));
        journal.write().unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"End\":{\"st")
            .unwrap();
        let (mut journal, before) = Journal::open(&path).unwrap();
        assert_eq!(before.len(), 5);
        journal.push(&end(2, 0, true));
        journal.write().unwrap();
        let steps: Vec<Step> = undelivered(dir.path(), 2).unwrap();
        assert_eq!(
            steps.iter().map(|step| (step.id, step.exit.status)).collect::<Vec<_>>(),
            [(StepId::Num(2), 0)]
        );
        let entries = read(&path).unwrap();
        assert_eq!(unended(&entries), [step(3, "c")]);
        let pasts = pasts(&entries);
        assert_eq!(
            (pasts["a"].attempts, pasts["a"].last),
            (1, Some((End::Failed, ExitCode::status(3))))
        );
        assert_eq!((pasts["b"].attempts, pasts["b"].last, pasts["b"].lost), (0, None, false));
        assert_eq!((pasts["c"].attempts, pasts["c"].last, pasts["c"].lost), (1, None, true));
    }
}
