//! Following jobs: what the daemon tells of changes, over its restarts, and what that comes to.

use crate::client::connection::{ClientError, Connection, watch_for_daemon};
use crate::client::watch::FileWatch;
use crate::model::changed::Changed;
use crate::model::{End, ExitCode, Job, JobId, JobState, Progress};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::sys::paths::Paths;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// What is heard.
#[derive(Debug)]
pub enum Heard {
    /// Where to look again: at everything first, and when another daemon is there.
    Changed(Changed),
    /// The daemon is gone; it is waited for. What it was asked has no answer.
    Away,
    /// Of [`Follower::ask`], or a part of it.
    Answer(Box<Answer>),
}

/// Who hears of all that changes.
#[derive(Debug)]
pub struct Follower {
    paths: Paths,
    /// `None`: the daemon is away.
    conn: Option<Connection>,
    back: FileWatch,
    heard: VecDeque<Heard>,
    /// The least time between two questions what has changed, and when the last was answered.
    pause: Duration,
    told: Option<Instant>,
    /// It is asked what has changed, and keeps the connection however long nothing does.
    is_asked: bool,
    /// It is asked something else too.
    has_question: bool,
}

impl Follower {
    /// # Errors
    /// The daemon cannot be asked.
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
            heard: VecDeque::new(),
            pause: Duration::ZERO,
            told: None,
            is_asked: false,
            has_question: false,
        }
    }

    /// One that hears of changes no more often than this, of all that were meanwhile together.
    /// [`Self::rest`] and [`Self::go_on`] are its user's business then.
    #[must_use]
    pub fn with_pause(self, pause: Duration) -> Follower {
        Follower { pause, ..self }
    }

    /// One that waits for the daemon, where there is none yet.
    ///
    /// # Errors
    /// The place where it would be cannot be watched.
    pub fn patient(paths: &Paths) -> Result<Follower, ClientError> {
        let back = watch_for_daemon(paths)?;
        let mut follower = Follower::away(paths, back);
        follower.read()?;
        if follower.conn.is_none() {
            follower.heard.push_back(Heard::Away);
        }
        Ok(follower)
    }

    /// What to wait for before [`Self::read`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.conn {
            Some(conn) => conn.as_fd(),
            None => self.back.as_fd(),
        }
    }

    /// How long it is until [`Self::go_on`] has something to do; `None`: nothing, until something
    /// is heard.
    pub fn rest(&self) -> Option<Duration> {
        let told = self.told.filter(|_| self.conn.is_some() && !self.is_asked)?;
        Some(self.pause.saturating_sub(told.elapsed()))
    }

    /// Asks what changes next, if it is time to.
    pub fn go_on(&mut self) {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= self.pause);
        if let Some(conn) = self.conn.as_mut().filter(|_| is_due && !self.is_asked) {
            // Where it fails the end of the connection is read next.
            let _ = conn.send(&Request::Watch, &[]);
            self.is_asked = true;
        }
    }

    /// Asks something else on the same connection: its answer is heard. One question at a time. One
    /// that the daemon cannot be asked is lost with it.
    pub fn ask(&mut self, question: &Request) {
        if let Some(conn) = &mut self.conn {
            let _ = conn.send(question, &[]);
            self.has_question = true;
        }
    }

    /// To be called when [`Self::fd`] is readable, then [`Self::next`] until there is no more.
    ///
    /// # Errors
    /// The daemon says what makes no sense.
    pub fn read(&mut self) -> Result<(), ClientError> {
        let Some(conn) = &mut self.conn else {
            self.back.clear();
            // A socket that nobody listens at yet: the next event tells.
            self.conn = Connection::open(&self.paths).ok();
            (self.told, self.is_asked, self.has_question) = (None, false, false);
            self.go_on();
            return Ok(());
        };
        let is_open = conn.fill()?;
        while let Some(answer) = conn.next_whole()? {
            match answer {
                Answer::Changed(changed) => {
                    self.heard.push_back(Heard::Changed(changed));
                    self.told = Some(Instant::now());
                    self.is_asked = false;
                }
                Answer::Refused(why) if !self.has_question => {
                    return Err(ClientError::Refused(why));
                }
                answer if self.has_question => {
                    self.has_question = matches!(answer, Answer::SomeJobs(_));
                    self.heard.push_back(Heard::Answer(Box::new(answer)));
                }
                _ => {}
            }
        }
        if is_open {
            self.go_on();
            return Ok(());
        }
        self.conn = None;
        self.heard.push_back(Heard::Away);
        // The next daemon may be there already.
        self.read()
    }

    /// What has been heard and not been told yet.
    pub fn next(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    /// The next of it, waiting for it.
    ///
    /// # Errors
    /// As of [`Self::read`].
    pub fn wait(&mut self) -> Result<Heard, ClientError> {
        loop {
            if let Some(heard) = self.next() {
                return Ok(heard);
            }
            match poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
                Ok(_) => self.read()?,
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
    }
}

/// What there is to know of a record in order to say how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How many tasks it stands for; 1 but for the rest of an array.
    pub tasks: usize,
    pub state: JobState,
    pub exit: ExitCode,
}

impl Standing {
    pub fn of(job: &Job) -> Standing {
        Standing { tasks: job.weight(), state: job.run.state, exit: job.run.exit }
    }

    /// What a shell shows for its end: its exit code, or 128 and the signal; 1 where it ended
    /// otherwise than well with none.
    pub fn as_shell(&self) -> u8 {
        let code = u8::try_from(self.exit.as_shell()).unwrap_or(1);
        if self.state.end().is_some_and(|end| end != End::Completed) { code.max(1) } else { 0 }
    }
}

/// Jobs as far as they are known, by record.
#[derive(Debug, Clone, Default)]
pub struct Known(BTreeMap<JobId, Standing>);

impl Known {
    /// Takes note of a record as it is now; the state that it was in before.
    pub fn note(&mut self, id: JobId, now: Standing) -> Option<JobState> {
        self.0.insert(id, now).map(|before| before.state)
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

    /// The worst exit code of those that are over, as a shell shows it.
    pub fn worst(&self) -> u8 {
        self.0.values().map(Standing::as_shell).max().unwrap_or(0)
    }

    /// Whether this record is one of them.
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
    fn each_task_counts_and_the_worst_exit_code_is_kept() {
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
