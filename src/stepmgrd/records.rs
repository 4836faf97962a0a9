//! What the daemon is to hear of steps: gathered, brought to the disk, sent, and sent again until
//! it is durable there.

use super::link::{Identity, Link};
use crate::exec::step_journal::{Entry, Journal};
use crate::model::{Step, StepId};
use crate::protocol::request::Request;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::Duration;

/// So many make a batch.
const BATCH: usize = 100;

/// A batch has no more: it fits into a socket, so that a daemon that stands still does not hold the
/// manager up.
const MOST: usize = 200;

/// The first of a batch waits no longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Where a batch stands.
#[derive(Debug)]
enum Batch {
    None,
    /// The journal is on its way to the disk, up to here.
    Syncing(u64, Vec<Step>),
    /// The daemon has it.
    Sent(u64, Vec<Step>),
}

/// Brings the journal to the disk, on a thread of its own: a slow disk keeps no step from starting.
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
                // A disk that cannot be written shows at the next entry.
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
    /// As they are now.
    pending: BTreeMap<u32, Step>,
    since: Option<Duration>,
    batch: Batch,
    syncer: Syncer,
}

impl Records {
    /// # Errors
    /// No thread or pipe can be made.
    pub fn new(journal: &Journal) -> io::Result<Records> {
        let syncer = Syncer::start(journal.handle()?)?;
        Ok(Records { pending: BTreeMap::new(), since: None, batch: Batch::None, syncer })
    }

    /// Readable when the journal is on the disk.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.syncer.done.as_fd()
    }

    pub fn put(&mut self, step: Step, now: Duration) {
        if let StepId::Num(number) = step.id {
            self.pending.insert(number, step);
            self.since.get_or_insert(now);
        }
    }

    /// Steps that the daemon does not know of as they are.
    pub fn undelivered(&self) -> usize {
        let under_way = match &self.batch {
            Batch::None => 0,
            Batch::Syncing(_, steps) | Batch::Sent(_, steps) => steps.len(),
        };
        self.pending.len() + under_way
    }

    /// When [`Records::flush`] has something to do.
    pub fn due(&self) -> Option<Duration> {
        self.since.filter(|_| matches!(self.batch, Batch::None)).map(|since| since + PATIENCE)
    }

    /// Begins a batch if it is time, or at once with `all`. The journal holds all of it already.
    pub fn flush(&mut self, journal: &Journal, link: &Link, now: Duration, all: bool) {
        let is_time =
            all || self.pending.len() >= BATCH || self.due().is_some_and(|due| due <= now);
        if !matches!(self.batch, Batch::None)
            || self.pending.is_empty()
            || !is_time
            || !link.is_there()
        {
            return;
        }
        let rest = match self.pending.keys().nth(MOST).copied() {
            Some(at) => self.pending.split_off(&at),
            None => BTreeMap::new(),
        };
        let steps = std::mem::replace(&mut self.pending, rest).into_values().collect();
        self.since = (!self.pending.is_empty()).then_some(now);
        // What is left is told later: only a whole journal is delivered.
        let bytes = if self.pending.is_empty() { journal.len() } else { 0 };
        self.batch = Batch::Syncing(bytes, steps);
        // The thread lives as long as this.
        let _ = self.syncer.wanted.send(());
    }

    /// The journal is on the disk: the batch goes to the daemon.
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

    /// The daemon has written the batch down.
    pub fn on_recorded(&mut self, journal: &mut Journal) {
        if let Batch::Sent(bytes, _) = std::mem::replace(&mut self.batch, Batch::None)
            && bytes > 0
        {
            journal.push(&Entry::Delivered { bytes });
        }
    }

    /// The daemon went away: what it has not answered is told again.
    pub fn on_lost(&mut self, now: Duration) {
        match std::mem::replace(&mut self.batch, Batch::None) {
            Batch::Sent(_, steps) => self.take_back(steps, now),
            other => self.batch = other,
        }
    }

    fn take_back(&mut self, steps: Vec<Step>, now: Duration) {
        for step in steps {
            if let StepId::Num(number) = step.id {
                // What has become of it since then counts.
                self.pending.entry(number).or_insert(step);
            }
        }
        self.since.get_or_insert(now);
    }
}
