//! What the manager of a job's steps writes down in the job's directory before it tells anybody:
//! each start, each end. The next manager goes on by it, and the daemon finds in it what the
//! manager could not tell.
//!
//! One line an entry, appended and never changed. The last line may be torn, where its writer was
//! killed.

use crate::model::{End, ExitCode, JobId, JobState, Step, StepId, Timestamp, tres::Usage};
use crate::sys::files::{self, MOST_RECORD};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// The first line.
    Head {
        job: JobId,
        run: u32,
        file: String,
        /// It goes on with what the run of this file before it had not done.
        resumed: bool,
    },
    /// An attempt to run a step is about to start.
    Start(Box<Step>),
    End(StepEnd),
    /// A step that was cancelled before it ran.
    Cancelled {
        name: String,
    },
    /// A step that is not to run, since what it waited for can never be.
    Skipped {
        name: String,
    },
    /// A step that had not ended when its manager did.
    Left {
        name: String,
    },
    /// What the journal of an earlier manager said of a step.
    Before {
        name: String,
        past: Past,
    },
    /// The daemon knows all that stands in so many bytes from the beginning.
    Delivered {
        bytes: u64,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    pub step: u32,
    pub state: End,
    pub exit: ExitCode,
    pub usage: Usage,
    pub start: Timestamp,
    pub end: Timestamp,
    /// It was ended since its manager or its job ended: it is to be run again.
    #[serde(default)]
    pub interrupted: bool,
}

impl StepEnd {
    /// The record of a step that has ended so.
    pub fn record(&self, started: &Step) -> Step {
        let mut step = Step {
            state: JobState::Ended(self.state),
            exit: self.exit,
            usage: self.usage,
            start: self.start,
            ..started.clone()
        };
        step.end_at(self.end);
        step
    }
}

/// What became of a step under an earlier manager.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Past {
    /// As the records have it: the same name with another command is another step.
    pub command: String,
    /// Attempts that count.
    pub attempts: u32,
    /// How the last of them ended; `None`: it ran when its manager died, or was interrupted.
    pub last: Option<(End, ExitCode)>,
    /// Its manager died while it ran.
    pub lost: bool,
}

/// The journal of the last run of a job that has one.
pub fn last(job_dir: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(job_dir).ok()?.flatten();
    let run = |file: std::fs::DirEntry| {
        file.file_name().to_str()?.strip_prefix("steps.")?.strip_suffix(".journal")?.parse().ok()
    };
    files.filter_map(run).max().map(|run: u32| path(job_dir, run))
}

/// `steps.RUN.journal` in the directory of the job.
pub fn path(job_dir: &Path, run: u32) -> PathBuf {
    job_dir.join(format!("steps.{run}.journal"))
}

/// The journal of this manager.
#[derive(Debug)]
pub struct Journal {
    file: File,
    buffer: Vec<u8>,
    /// A step that is about to start is in the buffer.
    has_starts: bool,
    /// Bytes that are written.
    len: u64,
    /// The disk has room for so many.
    reserved: u64,
}

/// What the ends of the steps that run need at most, but for jobs with very many CPUs.
const ROOM: u64 = 64 << 10;

impl Journal {
    /// Opens the journal of a run of a job, or makes it, and says what stands in it.
    ///
    /// # Errors
    /// It cannot be opened or read.
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
            // A torn line is a line of its own, that nobody can read.
            journal.buffer.push(b'\n');
        }
        Ok((journal, entries(&bytes).map(|(_, entry)| entry).collect()))
    }

    pub fn push(&mut self, entry: &Entry) {
        // An entry is plain data: it has a text.
        if serde_json::to_writer(&mut self.buffer, entry).is_ok() {
            self.buffer.push(b'\n');
            self.has_starts |= matches!(entry, Entry::Start(_));
        }
    }

    /// Writes what was pushed. A process that dies after this has lost nothing of it. What could
    /// not be written is tried again with what comes next.
    ///
    /// # Errors
    /// It could not be written as a whole, or no room is left for the ends of what starts.
    pub fn write(&mut self) -> io::Result<()> {
        if self.has_starts {
            self.reserve()?;
        }
        if let Err(e) = self.file.write_all(&self.buffer) {
            // A part of it may be there.
            self.file.set_len(self.len)?;
            return Err(e);
        }
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        self.has_starts = false;
        Ok(())
    }

    /// Room on the disk for the ends of the steps that start, so that a full disk does not make
    /// them run twice.
    fn reserve(&mut self) -> io::Result<()> {
        let end = self.len + self.buffer.len() as u64;
        if end + ROOM <= self.reserved {
            return Ok(());
        }
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let [from, bytes] = [self.len, end - self.len + 2 * ROOM].map(signed);
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, bytes) {
            // Not every file system can do that.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => self.reserved = end + 2 * ROOM,
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// The starts that could not be written are not to be.
    pub fn call_off_starts(&mut self) {
        let lines = self.buffer.split_inclusive(|byte| *byte == b'\n');
        self.buffer =
            lines.filter(|line| !line.starts_with(b"{\"Start\"")).flatten().copied().collect();
        self.has_starts = false;
    }

    /// Bytes that are written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Another handle on the file, for whoever brings it to the disk.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// What can be read of the lines, each with the place behind it.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (u64, Entry)> {
    let mut at = 0u64;
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| {
        at += line.len() as u64;
        serde_json::from_slice(line).ok().map(|entry| (at, entry))
    })
}

/// The entries of a journal; none where there is no journal.
///
/// # Errors
/// It is there, and cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    match files::read(path, MOST_RECORD) {
        Ok(bytes) => Ok(entries(&bytes).map(|(_, entry)| entry).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// The steps of this run that its journal knows and the daemon may not, each as it was last. Those
/// that ran when it ends are not among them: nobody knows of their ends here.
///
/// # Errors
/// The journal cannot be read.
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

/// What became of each step, by name.
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
            // What was skipped or left is looked at anew by the next manager.
            Entry::Head { .. }
            | Entry::Skipped { .. }
            | Entry::Left { .. }
            | Entry::Delivered { .. } => {}
        }
    }
    pasts
}

/// The steps that ran when the journal ends.
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
    use crate::model::tres::Allocation;

    fn step(number: u32, name: &str) -> Step {
        Step {
            id: StepId::Num(number),
            name: name.to_owned(),
            ntasks: 1,
            state: JobState::Running,
            start: Timestamp(5),
            end: None,
            exit: ExitCode::OK,
            alloc: Allocation::default(),
            usage: Usage::default(),
            submit_line: format!("run {name}"),
            overlap: false,
            client: None,
            client_gone: false,
            suspended_us: 0,
            clock: None,
            stepped_us: 0,
            managed: true,
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
        })
    }

    #[test]
    fn a_torn_line_costs_no_other_and_what_was_delivered_is_not_told_again() {
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
        let bytes = journal.len();
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
        let told: Vec<Step> = undelivered(dir.path(), 2).unwrap();
        assert_eq!(
            told.iter().map(|step| (step.id, step.exit.status)).collect::<Vec<_>>(),
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
