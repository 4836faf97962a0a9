//! Follows jobs: receives change notifications across daemon restarts, and tracks progress.

use crate::client::connection::{ClientError, Connection, watch_for_daemon};
use crate::client::watch::FileWatch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_model::changed::Changed;
use slotd_model::{End, ExitCode, Job, JobId, JobState, Progress};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_sys::paths::Paths;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// An event of a [`Follower`].
#[derive(Debug)]
pub enum Heard {
    /// The jobs to query again. At first, and after a daemon restart, these are all jobs.
    Changed(Changed),
    /// The daemon is down; the follower waits for it. A pending request gets no answer.
    Away,
    /// An answer to [`Follower::ask`], or a part of it.
    Answer(Box<Answer>),
}

/// A client that is notified of all changes.
#[derive(Debug)]
pub struct Follower {
    paths: Paths,
    /// `None` while the daemon is down.
    conn: Option<Connection>,
    back: FileWatch,
    events: VecDeque<Heard>,
    /// The minimum time between two change notifications.
    pause: Duration,
    /// When the last change notification arrived.
    last_change: Option<Instant>,
    /// A `Watch` request is pending. It keeps the connection open, no matter how long nothing
    /// changes.
    is_asked: bool,
    /// A request of [`Self::ask`] is pending.
    has_question: bool,
}

impl Follower {
    /// Connects to the daemon and requests change notifications.
    ///
    /// # Errors
    /// Fails if the daemon cannot be reached.
    pub fn new(paths: &Paths) -> Result<Follower, ClientError> {
        let back = watch_for_daemon(paths)?;
        let mut follower =
            Follower { conn: Some(Connection::open(paths)?), ..Follower::away(paths, back) };
        follower.go_on();
        Ok(follower)
    }

    fn away(paths: &Paths, back: FileWatch) -> Follower {
        Follower {
            paths: paths.clone(),
            conn: None,
            back,
            events: VecDeque::new(),
            pause: Duration::ZERO,
            last_change: None,
            is_asked: false,
            has_question: false,
        }
    }

    /// Limits how often changes are reported. Changes in between are merged. A caller that polls
    /// [`Self::fd`] itself must then use [`Self::rest`] and [`Self::go_on`]. With [`Duration::MAX`],
    /// only the first notification of each daemon is reported.
    #[must_use]
    pub fn with_pause(self, pause: Duration) -> Follower {
        Follower { pause, ..self }
    }

    /// Like [`Self::new`], but waits for the daemon if it is not running.
    ///
    /// # Errors
    /// Fails if the socket's directory cannot be watched.
    pub fn patient(paths: &Paths) -> Result<Follower, ClientError> {
        let back = watch_for_daemon(paths)?;
        let mut follower = Follower::away(paths, back);
        follower.read()?;
        if follower.conn.is_none() {
            follower.events.push_back(Heard::Away);
        }
        Ok(follower)
    }

    /// Returns the descriptor to poll before [`Self::read`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.conn {
            Some(conn) => conn.as_fd(),
            None => self.back.as_fd(),
        }
    }

    /// Returns the time until [`Self::go_on`] has something to do, or `None` if it must wait for an
    /// event.
    pub fn rest(&self) -> Option<Duration> {
        let last = self.last_change.filter(|_| self.conn.is_some() && !self.is_asked)?;
        Some(self.pause.saturating_sub(last.elapsed()))
    }

    /// Requests the next change notification, if it is due.
    pub fn go_on(&mut self) {
        let is_due = self.last_change.is_none_or(|last| last.elapsed() >= self.pause);
        if let Some(conn) = self.conn.as_mut().filter(|_| is_due && !self.is_asked) {
            // If sending fails, the next read returns the end of the connection.
            let _ = conn.send(&Request::Watch, &[]);
            self.is_asked = true;
        }
    }

    /// Sends another request on the same connection. Its answer is returned as an event. Only one
    /// such request may be pending. If the daemon stops, the request is lost.
    pub fn ask(&mut self, question: &Request) {
        if let Some(conn) = &mut self.conn {
            let _ = conn.send(question, &[]);
            self.has_question = true;
        }
    }

    /// Returns whether the daemon has yet to answer a request of [`Self::ask`].
    pub fn is_asking(&self) -> bool {
        self.has_question
    }

    /// Reads from [`Self::fd`] when it is readable. Afterwards, call [`Self::next`] until it
    /// returns `None`.
    ///
    /// # Errors
    /// Fails if the daemon sends invalid data.
    pub fn read(&mut self) -> Result<(), ClientError> {
        let Some(conn) = &mut self.conn else {
            self.back.clear();
            // If no daemon listens on the socket yet, the next file event triggers another attempt.
            self.conn = Connection::open(&self.paths).ok();
            (self.last_change, self.is_asked, self.has_question) = (None, false, false);
            self.go_on();
            return Ok(());
        };
        let is_open = conn.fill()?;
        while let Some(answer) = conn.next_whole()? {
            match answer {
                Answer::Changed(changed) => {
                    self.events.push_back(Heard::Changed(changed));
                    self.last_change = Some(Instant::now());
                    self.is_asked = false;
                }
                Answer::Refused(why) if !self.has_question => {
                    return Err(ClientError::Refused(why));
                }
                answer if self.has_question => {
                    self.has_question = matches!(answer, Answer::SomeJobs(_));
                    self.events.push_back(Heard::Answer(Box::new(answer)));
                }
                _ => {}
            }
        }
        if is_open {
            self.go_on();
            return Ok(());
        }
        self.conn = None;
        self.events.push_back(Heard::Away);
        // The next daemon may be running already.
        self.read()
    }

    /// Returns the next event that has been received, if any.
    pub fn next(&mut self) -> Option<Heard> {
        self.events.pop_front()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Fails like [`Self::read`].
    pub fn wait(&mut self) -> Result<Heard, ClientError> {
        loop {
            if let Some(event) = self.next() {
                return Ok(event);
            }
            // A pause that is too long for a timeout never ends.
            let rest = self.rest().map(|rest| rest.saturating_add(Duration::from_millis(1)));
            let timeout = rest.and_then(|rest| PollTimeout::try_from(rest).ok());
            let timeout = timeout.unwrap_or(PollTimeout::NONE);
            match poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => self.go_on(),
                Ok(_) => self.read()?,
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }
}

/// The parts of a record that determine its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The number of tasks that the record represents: 1, except for the rest of an array.
    pub tasks: usize,
    pub state: JobState,
    pub exit: ExitCode,
}

impl Standing {
    pub fn of(job: &Job) -> Standing {
        Standing { tasks: job.weight(), state: job.run.state, exit: job.run.exit }
    }

    /// Returns the exit code that a shell would report: the exit code, or 128 plus the signal. A
    /// job that did not complete yields at least 1.
    pub fn as_shell(&self) -> u8 {
        let code = u8::try_from(self.exit.as_shell()).unwrap_or(1);
        if self.state.end().is_some_and(|end| end != End::Completed) { code.max(1) } else { 0 }
    }
}

/// The last known state of the followed jobs, by record.
#[derive(Debug, Clone, Default)]
pub struct Known(BTreeMap<JobId, Standing>);

impl Known {
    /// Updates a record and returns its previous state.
    pub fn note(&mut self, id: JobId, now: Standing) -> Option<JobState> {
        self.0.insert(id, now).map(|before| before.state)
    }

    /// Drops a record that stands for none of the followed tasks any more: each of them has a record
    /// of its own since its start.
    pub fn forget(&mut self, id: JobId) {
        self.0.remove(&id);
    }

    /// Drops records that have not ended and are not among these, which are all that are left.
    pub fn keep(&mut self, found: &BTreeSet<JobId>) {
        self.0.retain(|id, job| job.state.is_terminal() || found.contains(id));
    }

    pub fn is_over(&self) -> bool {
        self.0.values().all(|job| job.state.is_terminal())
    }

    pub fn progress(&self) -> Progress {
        let mut sum = Progress::default();
        for job in self.0.values() {
            sum += Progress::of_tasks(job.state, job.tasks);
        }
        sum
    }

    /// Returns the highest exit code of the ended jobs, as a shell would report it.
    pub fn worst(&self) -> u8 {
        self.0.values().map(Standing::as_shell).max().unwrap_or(0)
    }

    /// Returns whether this record is followed.
    pub fn has(&self, id: JobId) -> bool {
        self.0.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(tasks: usize, state: JobState, status: i32) -> Standing {
        Standing { tasks, state, exit: ExitCode::status(status) }
    }

    #[test]
    fn record_that_stands_for_no_followed_task_is_not_waited_for() {
        let mut known = Known::default();
        let ended = JobState::Ended(End::Completed);
        for (id, state) in [(1, JobState::Pending), (2, JobState::Running), (3, ended)] {
            known.note(JobId(id), standing(1, state, 0));
        }
        known.forget(JobId(1));
        assert!(!known.has(JobId(1)) && !known.is_over());
        known.keep(&[JobId(2)].into());
        assert!(known.has(JobId(2)) && known.has(JobId(3)));
        known.keep(&BTreeSet::new());
        assert!(!known.has(JobId(2)) && known.has(JobId(3)) && known.is_over());
    }

    #[test]
    fn progress_counts_tasks_and_keeps_the_worst_exit_code() {
        let mut known = Known::default();
        known.note(JobId(1), standing(8, JobState::Pending, 0));
        let others = [
            JobState::Ended(End::Completed),
            JobState::Ended(End::Failed),
            JobState::Running,
            JobState::Ended(End::Cancelled),
        ];
        for (id, state) in (2..).zip(others) {
            known.note(
                JobId(id),
                standing(1, state, if state == JobState::Ended(End::Failed) { 3 } else { 0 }),
            );
        }
        assert_eq!(
            known.progress(),
            Progress { total: 0, waiting: 8, running: 1, over: 3, failed: 1 }
        );
        assert_eq!(known.progress().all(), 12);
        assert_eq!((known.worst(), known.is_over()), (3, false));
        assert_eq!(
            known.note(JobId(1), standing(1, JobState::Ended(End::Timeout), 0)),
            Some(JobState::Pending)
        );
        assert_eq!(
            known.note(JobId(4), standing(1, JobState::Ended(End::Completed), 0)),
            Some(JobState::Running)
        );
        assert!(known.is_over());
    }
}
