//! Step records for the daemon: collected, synced to disk, sent, and resent until the daemon has
//! stored them.

use super::link::{Identity, Link};
use slotd_exec::step_journal::{Entry, Journal};
use slotd_model::{Step, StepId};
use slotd_protocol::request::Request;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::Duration;

/// The number of records that start a batch at once.
const BATCH: usize = 100;

/// The most records per batch. They fit into the socket buffer, so that a stalled daemon does not
/// block the manager.
const MAX_BATCH: usize = 200;

/// The longest time that a record waits for its batch to start.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// The state of the current batch.
#[derive(Debug)]
enum Batch {
    None,
    /// The journal is being synced up to this length.
    Syncing(u64, Vec<Step>),
    /// Sent to the daemon, which has not answered yet.
    Sent(u64, Vec<Step>),
}

/// Syncs the journal on its own thread, so that a slow disk does not delay step starts.
struct Syncer {
    wanted: mpsc::Sender<()>,
    done: File,
}

impl Syncer {
    fn start(journal: File) -> io::Result<Syncer> {
        let (read, write) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
        let (wanted, wishes) = mpsc::channel::<()>();
        let work = move || {
            let mut write = File::from(write);
            while wishes.recv().is_ok() {
                // A write error shows up at the next entry.
                let _ = journal.sync_data();
                let _ = write.write_all(&[0]);
            }
        };
        std::thread::Builder::new().name("journal".to_owned()).spawn(work)?;
        Ok(Syncer { wanted, done: File::from(read) })
    }
}

/// Records on their way to the daemon.
pub struct Records {
    /// The latest record of each step.
    pending: BTreeMap<u32, Step>,
    since: Option<Duration>,
    batch: Batch,
    syncer: Syncer,
}

impl Records {
    /// Starts the thread that syncs the journal.
    ///
    /// # Errors
    /// Fails if the thread or pipe cannot be created.
    pub fn new(journal: &Journal) -> io::Result<Records> {
        let syncer = Syncer::start(journal.handle()?)?;
        Ok(Records { pending: BTreeMap::new(), since: None, batch: Batch::None, syncer })
    }

    /// Returns a descriptor that becomes readable when the journal is synced.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.syncer.done.as_fd()
    }

    pub fn put(&mut self, step: Step, now: Duration) {
        if let StepId::Num(number) = step.id {
            self.pending.insert(number, step);
            self.since.get_or_insert(now);
        }
    }

    /// Returns the number of steps whose latest record the daemon has not stored.
    pub fn undelivered(&self) -> usize {
        let under_way = match &self.batch {
            Batch::None => 0,
            Batch::Syncing(_, steps) | Batch::Sent(_, steps) => steps.len(),
        };
        self.pending.len() + under_way
    }

    /// Returns the time when [`Records::flush`] will have work to do.
    pub fn due(&self) -> Option<Duration> {
        self.since.filter(|_| matches!(self.batch, Batch::None)).map(|since| since + MAX_WAIT)
    }

    /// Starts a batch if it is due, or at once with `all`. Its entries must be in the journal
    /// already.
    pub fn flush(&mut self, journal: &Journal, link: &Link, now: Duration, all: bool) {
        let is_time =
            all || self.pending.len() >= BATCH || self.due().is_some_and(|due| due <= now);
        if !matches!(self.batch, Batch::None)
            || self.pending.is_empty()
            || !is_time
            || !link.is_connected()
        {
            return;
        }
        let rest = match self.pending.keys().nth(MAX_BATCH).copied() {
            Some(at) => self.pending.split_off(&at),
            None => BTreeMap::new(),
        };
        let steps = std::mem::replace(&mut self.pending, rest).into_values().collect();
        self.since = (!self.pending.is_empty()).then_some(now);
        // The rest follows later. Only a complete journal counts as delivered.
        let bytes = if self.pending.is_empty() { journal.written() } else { 0 };
        self.batch = Batch::Syncing(bytes, steps);
        // The thread lives as long as `self`.
        let _ = self.syncer.wanted.send(());
    }

    /// Sends the batch to the daemon, now that the journal is synced.
    pub fn on_synced(&mut self, link: &mut Link, identity: &Identity, now: Duration) {
        let mut done = [0u8; 64];
        while (&self.syncer.done).read(&mut done).is_ok_and(|n| n > 0) {}
        if let Batch::Syncing(bytes, steps) = std::mem::replace(&mut self.batch, Batch::None) {
            let request = Request::RecordSteps { job: identity.job, run: identity.run, steps };
            let is_sent = link.send(&request);
            let Request::RecordSteps { steps, .. } = request else { return };
            if is_sent {
                self.batch = Batch::Sent(bytes, steps)
            } else {
                self.take_back(steps, now)
            }
        }
    }

    /// Handles the answer that the daemon has stored the batch.
    pub fn on_recorded(&mut self, journal: &mut Journal) {
        if let Batch::Sent(bytes, _) = std::mem::replace(&mut self.batch, Batch::None)
            && bytes > 0
        {
            journal.push(&Entry::Delivered { bytes });
        }
    }

    /// Queues unanswered records again, because the daemon went down.
    pub fn on_lost(&mut self, now: Duration) {
        match std::mem::replace(&mut self.batch, Batch::None) {
            Batch::Sent(_, steps) => self.take_back(steps, now),
            other => self.batch = other,
        }
    }

    fn take_back(&mut self, steps: Vec<Step>, now: Duration) {
        for step in steps {
            if let StepId::Num(number) = step.id {
                // A newer record of the step takes precedence.
                self.pending.entry(number).or_insert(step);
            }
        }
        self.since.get_or_insert(now);
    }
}
