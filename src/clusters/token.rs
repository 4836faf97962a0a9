//! Submissions that are made exactly once, over a connection that may break at any byte.
//!
//! Each submission has a random token, which is on disk before the first connection. On the
//! cluster, creating a directory named after the token and the attempt claims the right to run
//! sbatch, so each attempt runs it at most once, even if it is requested repeatedly. The answer of
//! sbatch is stored there, and a repeated request returns it.
//!
//! Sometimes sbatch does not know whether it has submitted the job: if the controller does not
//! answer, it retries for two minutes and fails, although the job may exist or appear later. The
//! job is then looked up by the token in its script's path. It counts as missing only if squeue and
//! sacct both answer and neither of them knows it, at least 180 seconds after the attempt. It is
//! then submitted a second time, held. If the first job appears after all, the second one is
//! cancelled, and otherwise it is released.
//!
//! This module only decides: it receives facts and returns the next action. Times are seconds on
//! any clock that does not jump.

use serde::{Deserialize, Serialize};

/// The time after an attempt before a missing job counts as not submitted, in seconds.
pub const QUIET: u64 = 180;

/// The pause between two queries about a running or doubtful attempt, in seconds.
const PAUSE: u64 = 5;

/// The time for which a broken connection is retried, in seconds.
pub const PATIENCE: u64 = 120;

/// The time for which unanswered lookups are retried, in seconds.
const LOOKUP_PATIENCE: u64 = 300;

/// The attempt that is submitted held.
const REPEAT: u32 = 2;

/// The state of a submission, as recorded on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Recorded. sbatch may have run.
    Prepared,
    /// The job exists. Its ID is unknown if sbatch did not print it.
    Submitted(Option<u64>),
    /// There is no job, and there will be none.
    Refused,
    /// The command ended before the outcome was known.
    Unknown,
}

impl From<Outcome> for State {
    fn from(outcome: Outcome) -> State {
        match outcome {
            Outcome::Submitted { job, .. } => State::Submitted(job),
            Outcome::Refused | Outcome::NotSent | Outcome::NotSubmitted => State::Refused,
            Outcome::Unknown => State::Unknown,
        }
    }
}

/// A job with the token in its script's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    pub id: u64,
}

/// A fact about the submission, learned from the cluster or the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The program did not start, so nothing was sent.
    NotReached,
    /// The program started, and the connection broke.
    Broken,
    /// The stage could not be made, so sbatch did not run.
    NoStage,
    /// sbatch started this many seconds ago and has not answered.
    Running(u64),
    /// sbatch's answer, this many seconds old.
    Answered { age: u64, answer: Answer },
    /// The cluster has no trace of an attempt.
    NoTrace,
    /// The jobs with the token. `whole`: squeue and sacct both answered.
    Jobs { jobs: Vec<Job>, whole: bool },
}

/// The interpretation of sbatch's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Accepted(Option<u64>),
    Refused,
    /// sbatch itself does not know.
    Unsure,
    /// It ended without an error of sbatch's own: it may have been replaced or stopped by something
    /// else, before or after the submission.
    Strange,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make sure that the stage is there and that this attempt has run sbatch; report its answer.
    Submit {
        attempt: u32,
        held: bool,
    },
    /// Wait for this many seconds.
    Wait(u64),
    /// Look for jobs with the token.
    LookUp,
    Release(u64),
    Cancel(u64),
    Finish(Outcome),
}

/// The outcome of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There is exactly one job. `answered`: sbatch printed it.
    Submitted { job: Option<u64>, answered: bool },
    /// sbatch refused the job.
    Refused,
    /// The cluster was not reached, or has no room for the stage. There is no job.
    NotSent,
    /// The attempts failed, and no job was created.
    NotSubmitted,
    /// The outcome cannot be determined now.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Asking,
    Doubting,
    /// sbatch has accepted the job without printing its ID, which is looked up once.
    Naming,
    /// A repeat was accepted with this ID and is held.
    Held(u64),
    Cancelling {
        repeat: u64,
        first: u64,
    },
    Releasing(u64),
    Done(Outcome),
}

/// Everything that is known about a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    attempt: u32,
    phase: Phase,
    /// Something may have been sent.
    sent: bool,
    /// When the connection first failed after it last worked.
    failing: Option<u64>,
    /// When this host first knew of the current attempt. The age of an answer is measured with the
    /// clocks of the cluster, on which two login nodes may disagree, so no answer counts as older
    /// than this.
    since: Option<u64>,
    /// When the current attempt ended, or began if its end is unknown.
    attempted: Option<u64>,
    /// When the first lookup failed.
    blind: Option<u64>,
    /// The attempt did not fail for a reason of its own, which would only occur again.
    may_repeat: bool,
    wait_until: u64,
}

impl Submission {
    /// Creates a new submission.
    pub fn new() -> Submission {
        Submission::of_attempt(1, false, None)
    }

    /// Creates the submission of an earlier process, which made this attempt and last worked on it
    /// at `since`.
    pub fn resumed(attempt: u32, since: u64) -> Submission {
        Submission::of_attempt(attempt, true, Some(since))
    }

    fn of_attempt(attempt: u32, sent: bool, since: Option<u64>) -> Submission {
        Submission {
            attempt,
            phase: Phase::Asking,
            sent,
            failing: None,
            since,
            attempted: None,
            blind: None,
            may_repeat: true,
            wait_until: 0,
        }
    }

    /// Returns the next action.
    pub fn next(&self, now: u64) -> Action {
        if let Phase::Done(outcome) = self.phase {
            return Action::Finish(outcome);
        }
        if now < self.wait_until {
            return Action::Wait(self.wait_until - now);
        }
        match self.phase {
            Phase::Asking => Action::Submit { attempt: self.attempt, held: self.attempt == REPEAT },
            Phase::Doubting | Phase::Naming | Phase::Held(_) => Action::LookUp,
            Phase::Cancelling { repeat, .. } => Action::Cancel(repeat),
            Phase::Releasing(job) => Action::Release(job),
            Phase::Done(outcome) => Action::Finish(outcome),
        }
    }

    /// Records the result of a submission or a lookup.
    pub fn note(&mut self, fact: Fact, now: u64) {
        if self.phase == Phase::Naming {
            let job = match fact {
                Fact::Jobs { jobs, .. } => jobs.iter().map(|job| job.id).min(),
                _ => None,
            };
            self.phase = Phase::Done(Outcome::Submitted { job, answered: true });
            return;
        }
        let since = *self.since.get_or_insert(now);
        let at = |age: u64| now.saturating_sub(age).max(since);
        match fact {
            Fact::NotReached if !self.sent => self.phase = Phase::Done(Outcome::NotSent),
            Fact::NotReached => self.lost(now),
            Fact::Broken => {
                self.sent = true;
                self.lost(now);
            }
            Fact::NoStage if !self.sent => self.phase = Phase::Done(Outcome::NotSent),
            // The program of a broken connection may still be unpacking its copy.
            Fact::NoStage => self.lost(now),
            Fact::Running(age) => {
                self.works();
                let began = at(age);
                self.attempted = Some(self.attempted.map_or(began, |known| known.max(began)));
                if age >= QUIET {
                    self.phase = Phase::Doubting;
                } else {
                    self.wait_until = now + PAUSE;
                }
            }
            Fact::NoTrace => {
                self.works();
                self.attempted = Some(self.attempted.map_or(since, |known| known.max(since)));
                self.phase = Phase::Doubting;
            }
            Fact::Answered { age, answer } => {
                self.works();
                self.attempted = Some(at(age));
                self.may_repeat = answer != Answer::Strange;
                self.phase = match (answer, self.attempt) {
                    (Answer::Accepted(Some(id)), REPEAT) => Phase::Held(id),
                    (Answer::Accepted(None), 1) => Phase::Naming,
                    (Answer::Accepted(job), 1) => {
                        Phase::Done(Outcome::Submitted { job, answered: true })
                    }
                    (Answer::Refused, 1) => Phase::Done(Outcome::Refused),
                    (Answer::Refused, _) => Phase::Done(Outcome::NotSubmitted),
                    (Answer::Accepted(_) | Answer::Unsure | Answer::Strange, _) => Phase::Doubting,
                };
            }
            Fact::Jobs { jobs, whole } => self.looked_up(jobs, whole, now),
        }
    }

    /// Records that a job was released or cancelled. `done` is false if this failed and must be
    /// retried.
    pub fn acted(&mut self, done: bool, now: u64) {
        match (&self.phase, done) {
            (Phase::Cancelling { first, .. }, true) => {
                self.phase = Phase::Done(Outcome::Submitted { job: Some(*first), answered: false });
            }
            (Phase::Releasing(job), true) => {
                self.phase = Phase::Done(Outcome::Submitted { job: Some(*job), answered: false });
            }
            _ => self.lost(now),
        }
    }

    fn works(&mut self) {
        self.sent = true;
        self.failing = None;
    }

    /// The connection failed: retries, with increasing pauses.
    fn lost(&mut self, now: u64) {
        let since = *self.failing.get_or_insert(now);
        let failing = now.saturating_sub(since);
        if failing >= PATIENCE {
            self.phase = Phase::Done(Outcome::Unknown);
        } else {
            self.wait_until = now + (failing / 2).clamp(1, 30);
        }
    }

    fn looked_up(&mut self, jobs: Vec<Job>, whole: bool, now: u64) {
        self.failing = None;
        let attempted = *self.attempted.get_or_insert(now);
        let own = match self.phase {
            Phase::Held(id) => Some(id),
            _ => None,
        };
        let first = jobs.iter().map(|job| job.id).filter(|id| Some(*id) != own).min();
        match (own, first) {
            // The answer to the second attempt was lost. Its job is one of several, or the only
            // one.
            (None, Some(_)) if self.attempt == REPEAT => {
                let mut ids: Vec<u64> = jobs.iter().map(|job| job.id).collect();
                ids.sort_unstable();
                ids.dedup();
                self.phase = match ids.as_slice() {
                    [only] => Phase::Releasing(*only),
                    [first, repeat, ..] => Phase::Cancelling { repeat: *repeat, first: *first },
                    [] => Phase::Doubting,
                };
            }
            (None, Some(job)) => {
                self.phase = Phase::Done(Outcome::Submitted { job: Some(job), answered: false });
            }
            (Some(repeat), Some(first)) => self.phase = Phase::Cancelling { repeat, first },
            (_, None) if !whole => {
                let since = *self.blind.get_or_insert(now);
                if now.saturating_sub(since) >= LOOKUP_PATIENCE {
                    self.phase = Phase::Done(Outcome::Unknown);
                } else {
                    self.wait_until = now + PAUSE;
                }
            }
            (Some(repeat), None) => self.phase = Phase::Releasing(repeat),
            (None, None) if now < attempted + QUIET => {
                self.wait_until = (now + PAUSE).min(attempted + QUIET).max(now + 1);
            }
            (None, None) if self.attempt == 1 && self.may_repeat => {
                self.attempt = REPEAT;
                self.phase = Phase::Asking;
                self.since = None;
                self.attempted = None;
                self.blind = None;
            }
            (None, None) => self.phase = Phase::Done(Outcome::NotSubmitted),
        }
    }
}

/// Errors after which sbatch does not know whether the controller accepted the job.
pub const UNSURE: [&str; 6] = [
    "timed out",
    "Zero Bytes were transmitted",
    "Unexpected missing socket error",
    "Communication connection failure",
    "Message receive failure",
    "Insane message length",
];

/// Returns whether a line is an error of sbatch's own, after which there is no job. The first word
/// is the name under which it was started. The messages of getopt may be in another language, but
/// not the line that follows them.
fn is_own_error(line: &str) -> bool {
    let named = |word: &str| word.rsplit('/').next().is_some_and(|name| name.starts_with("sbatch"));
    let is_error = |(name, text): (&str, &str)| {
        let is_error = text.starts_with("error: ") || text.starts_with("fatal: ");
        is_error && !name.contains(' ') && named(name)
    };
    line.starts_with("Try \"sbatch") || line.split_once(": ").is_some_and(is_error)
}

/// [`is_own_error`] as an extended regular expression.
pub const OWN_ERROR: &str = "^([^ ]*/)?sbatch[^ /]*: (error|fatal): |^Try \"sbatch";

/// Exit codes of a shell that could not start a program, or whose program a signal ended. They show
/// nothing about a job.
pub const OF_SHELLS: [std::ops::RangeInclusive<u8>; 2] = [126..=127, 129..=192];

/// Interprets the exit code and the output of sbatch.
pub fn interpret(code: u8, out: &[u8], err: &[u8]) -> Answer {
    if code == 0 {
        return Answer::Accepted(job_id(out));
    }
    let err = String::from_utf8_lossy(err);
    let [not_started, killed] = OF_SHELLS;
    if killed.contains(&code)
        || UNSURE.iter().any(|text| err.contains(text))
        || job_id(out).is_some()
    {
        Answer::Unsure
    } else if !not_started.contains(&code) && err.lines().any(is_own_error) {
        Answer::Refused
    } else {
        Answer::Strange
    }
}

/// Returns the job ID in sbatch's output: `Submitted batch job 17`, `17` or `17;hpc`.
pub fn job_id(out: &[u8]) -> Option<u64> {
    String::from_utf8_lossy(out).lines().find_map(|line| id_of_line(line).map(|(id, _)| id))
}

/// Returns the job ID in a line of sbatch's output, and whether the line is the parsable form.
pub fn id_of_line(line: &str) -> Option<(u64, bool)> {
    let (text, parsable) = match line.strip_prefix("Submitted batch job ") {
        Some(rest) => (rest.split(' ').next().unwrap_or_default(), false),
        None => (line.split(';').next().unwrap_or_default(), true),
    };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Some((is_number.then(|| text.parse().ok()).flatten()?, parsable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns whether grep finds the expression, as on a cluster.
    fn found(expression: &str, text: &str) -> bool {
        use std::io::Write;
        let mut grep = std::process::Command::new("grep");
        let mut grep =
            grep.args(["-qE", expression]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        // It may have found the line before all is written.
        let _ = grep.stdin.take().unwrap().write_all(text.as_bytes());
        grep.wait().unwrap().success()
    }

    #[test]
    fn answers_of_sbatch_are_distinguished() {
        let of = |code, out: &str, err: &str| interpret(code, out.as_bytes(), err.as_bytes());
        assert_eq!(of(0, "Submitted batch job 17\n", ""), Answer::Accepted(Some(17)));
        assert_eq!(of(0, "17;alpha\n", ""), Answer::Accepted(Some(17)));
        assert_eq!(of(0, "", ""), Answer::Accepted(None));
        assert_eq!(of(255, "", "sbatch: error: Invalid --time specification\n"), Answer::Refused);
        let late =
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n";
        assert_eq!(of(1, "", late), Answer::Unsure);
        assert_eq!(of(137, "", ""), Answer::Unsure);
        let down = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n";
        assert_eq!(of(1, "", down), Answer::Refused);
        assert_eq!(of(126, "", down), Answer::Strange);
        assert_eq!(of(143, "", down), Answer::Unsure);
        for (code, err) in [
            (1, ""),
            (1, "no more memory\n"),
            (1, "sbatch: Setting account: x1\n"),
            (1, "/usr/bin/sbatch: line 5: error: x\n"),
            (2, "my sbatch: error: x\n"),
            (126, "sh: 1: sbatch: Permission denied\n"),
            (127, "sh: 1: exec: sbatch: not found\n"),
        ] {
            assert_eq!(of(code, "", err), Answer::Strange, "{err}");
            assert!(!found(OWN_ERROR, err), "{err}");
        }
        for err in [
            "sbatch: a warning\n/opt/slurm/bin/sbatch.real: error: Batch job submission failed: x\n",
            "sbatch: fatal: x\n",
            "sbatch: Ung\u{fc}ltige Option -- \u{bb}Z\u{ab}\nTry \"sbatch --help\" for more information\n",
        ] {
            assert_eq!(of(255, "", err), Answer::Refused, "{err}");
            assert!(found(OWN_ERROR, err), "{err}");
        }
        assert_eq!(id_of_line("Submitted batch job 17 on cluster alpha"), Some((17, false)));
        assert_eq!((id_of_line("hello"), id_of_line("")), (None, None));
    }

    #[test]
    fn a_job_counts_as_missing_only_after_two_empty_answers_and_180_seconds() {
        let jobs = |ids: &[u64], whole| Fact::Jobs {
            jobs: ids.iter().map(|id| Job { id: *id }).collect(),
            whole,
        };
        let start = |age| {
            let mut submission = Submission::resumed(REPEAT, 10_000 - age);
            submission.note(Fact::NoTrace, 10_000);
            assert_eq!(submission.next(10_000), Action::LookUp);
            submission
        };
        // A job that squeue shows counts, even if sacct does not answer.
        let mut running = start(0);
        running.note(jobs(&[17], false), 10_000);
        assert_eq!(running.next(10_000), Action::Release(17));
        running.acted(true, 10_000);
        let found = Outcome::Submitted { job: Some(17), answered: false };
        assert_eq!(running.next(10_000), Action::Finish(found));
        let mut early = start(QUIET - 1);
        early.note(jobs(&[], true), 10_000);
        assert_eq!(early.next(10_000), Action::Wait(1));
        assert_eq!(early.next(10_001), Action::LookUp);
        early.note(jobs(&[], true), 10_001);
        assert_eq!(early.next(10_001), Action::Finish(Outcome::NotSubmitted));
        let mut blind = start(10 * QUIET);
        blind.note(jobs(&[], false), 10_000);
        assert_eq!(blind.next(10_000), Action::Wait(PAUSE));
        blind.note(jobs(&[], false), 10_000 + LOOKUP_PATIENCE);
        assert_eq!(blind.next(10_000 + LOOKUP_PATIENCE), Action::Finish(Outcome::Unknown));
    }

    #[test]
    fn a_fast_clock_of_the_cluster_does_not_shorten_the_wait() {
        let mut submission = Submission::new();
        submission.note(Fact::Broken, 1000);
        submission.note(Fact::Answered { age: 304, answer: Answer::Unsure }, 1004);
        submission.note(Fact::Jobs { jobs: vec![], whole: true }, 1004);
        assert_eq!(submission.next(1004), Action::Wait(PAUSE));
        submission.note(Fact::Jobs { jobs: vec![], whole: true }, 999 + QUIET);
        assert_eq!(submission.next(999 + QUIET), Action::Wait(1));
        submission.note(Fact::Jobs { jobs: vec![], whole: true }, 1000 + QUIET);
        assert_eq!(submission.next(1000 + QUIET), Action::Submit { attempt: REPEAT, held: true });
    }

    #[test]
    fn the_id_of_a_quiet_submission_is_looked_up_once() {
        let outcome = |fact| {
            let mut submission = Submission::new();
            submission.note(Fact::Answered { age: 0, answer: Answer::Accepted(None) }, 5);
            assert_eq!(submission.next(5), Action::LookUp);
            submission.note(fact, 5);
            submission.next(5)
        };
        let submitted = |job| Action::Finish(Outcome::Submitted { job, answered: true });
        let found = Fact::Jobs { jobs: vec![Job { id: 17 }], whole: false };
        assert_eq!(outcome(found), submitted(Some(17)));
        assert_eq!(outcome(Fact::Jobs { jobs: vec![], whole: true }), submitted(None));
        assert_eq!(outcome(Fact::Broken), submitted(None));
    }

    /// A cluster behind a lossy connection. In each attempt, sbatch accepts the job, refuses it, or
    /// times out. If it times out, it has submitted the job, has not, or submits it later.
    #[derive(Debug, Clone)]
    struct World {
        now: u64,
        /// The behavior of sbatch in each attempt.
        attempts: [Sbatch; 2],
        /// The fault of each contact, in order; none once the list is used up.
        faults: Vec<Fault>,
        contacts: usize,
        claims: [Option<u64>; 2],
        staged: bool,
        jobs: Vec<(u64, u64, bool)>,
        cancelled: Vec<u64>,
        next_id: u64,
        sacct_is_forbidden: bool,
        orphans: Vec<(u64, u32, bool)>,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Sbatch {
        Accepts,
        Refuses,
        TimesOut,
        TimesOutButSubmitted,
        TimesOutAndSubmits(u64),
        /// It ends in a way that says nothing, before the submission or after it.
        Breaks,
        BreaksAndSubmits(u64),
        /// The program dies before it can write the answer, after the submission.
        Dies,
        DiesBefore,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        NotReached,
        /// Before sbatch runs.
        Early,
        /// After it has run.
        Late,
        /// The program continues after its connection broke, and runs sbatch later.
        Orphan(u64),
        /// The disk is full.
        Full,
    }

    impl World {
        fn fault(&mut self) -> Fault {
            self.run_orphans();
            let fault = self.faults.get(self.contacts).copied().unwrap_or(Fault::None);
            self.contacts += 1;
            fault
        }

        fn run_orphans(&mut self) {
            let now = self.now;
            let due = |orphan: &&mut (u64, u32, bool)| orphan.0 <= now;
            let ready: Vec<_> = self.orphans.iter_mut().filter(due).map(|orphan| *orphan).collect();
            self.orphans.retain(|orphan| orphan.0 > now);
            for (at, attempt, held) in ready {
                self.claim(at, attempt, held);
            }
        }

        /// Runs sbatch for this attempt unless it has run.
        fn claim(&mut self, at: u64, attempt: u32, held: bool) {
            self.staged = true;
            let index = attempt as usize - 1;
            if self.claims[index].is_some() {
                return;
            }
            self.claims[index] = Some(at);
            let mut add = |from: u64| {
                self.next_id += 1;
                self.jobs.push((self.next_id, from, held));
            };
            match self.attempts[index] {
                Sbatch::Accepts | Sbatch::TimesOutButSubmitted | Sbatch::Dies => add(at),
                Sbatch::TimesOutAndSubmits(later) | Sbatch::BreaksAndSubmits(later) => {
                    add(at + later);
                }
                Sbatch::Refuses | Sbatch::TimesOut | Sbatch::DiesBefore | Sbatch::Breaks => {}
            }
        }

        fn submit(&mut self, attempt: u32, held: bool) -> Fact {
            let fault = self.fault();
            match fault {
                Fault::NotReached => return Fact::NotReached,
                Fault::Early => return Fact::Broken,
                Fault::Orphan(later) => {
                    self.orphans.push((self.now + later, attempt, held));
                    return Fact::Broken;
                }
                Fault::Full if !self.staged => return Fact::NoStage,
                Fault::None | Fault::Late | Fault::Full => {}
            }
            let at = attempt as usize - 1;
            let sbatch = self.attempts[at];
            self.claim(self.now, attempt, held);
            if fault == Fault::Late {
                return Fact::Broken;
            }
            let age = self.now - self.claims[at].unwrap();
            let answer = match sbatch {
                Sbatch::Accepts => Answer::Accepted(self.job_of(at, held)),
                Sbatch::Refuses => Answer::Refused,
                Sbatch::Dies | Sbatch::DiesBefore => return Fact::Running(age),
                Sbatch::TimesOut | Sbatch::TimesOutButSubmitted | Sbatch::TimesOutAndSubmits(_) => {
                    Answer::Unsure
                }
                Sbatch::Breaks | Sbatch::BreaksAndSubmits(_) => Answer::Strange,
            };
            Fact::Answered { age, answer }
        }

        fn job_of(&self, _: usize, held: bool) -> Option<u64> {
            self.jobs.iter().find(|job| job.2 == held).map(|job| job.0)
        }

        fn look_up(&mut self) -> Fact {
            match self.fault() {
                Fault::NotReached => return Fact::NotReached,
                Fault::Early | Fault::Late | Fault::Orphan(_) => return Fact::Broken,
                Fault::None | Fault::Full => {}
            }
            let jobs = self
                .jobs
                .iter()
                .filter(|(id, from, _)| *from <= self.now && !self.cancelled.contains(id))
                .map(|(id, ..)| Job { id: *id })
                .collect();
            Fact::Jobs { jobs, whole: !self.sacct_is_forbidden }
        }

        fn run(&mut self) -> Outcome {
            let mut submission = Submission::new();
            for _ in 0..10_000 {
                match submission.next(self.now) {
                    Action::Submit { attempt, held } => {
                        let fact = self.submit(attempt, held);
                        submission.note(fact, self.now);
                    }
                    Action::Wait(seconds) => {
                        assert!(seconds > 0);
                        self.now += seconds;
                    }
                    Action::LookUp => {
                        let fact = self.look_up();
                        submission.note(fact, self.now);
                    }
                    Action::Release(id) => {
                        let done = self.fault() == Fault::None;
                        for job in self.jobs.iter_mut().filter(|job| job.0 == id && done) {
                            job.2 = false;
                        }
                        submission.acted(done, self.now);
                    }
                    Action::Cancel(id) => {
                        let done = self.fault() == Fault::None;
                        self.cancelled.extend(done.then_some(id));
                        submission.acted(done, self.now);
                    }
                    Action::Finish(outcome) => return outcome,
                }
            }
            panic!("the submission does not end: {self:?}");
        }
    }

    fn sbatches() -> impl Strategy<Value = Sbatch> {
        prop_oneof![
            Just(Sbatch::Accepts),
            Just(Sbatch::Refuses),
            Just(Sbatch::TimesOut),
            Just(Sbatch::TimesOutButSubmitted),
            (1u64..QUIET).prop_map(Sbatch::TimesOutAndSubmits),
            Just(Sbatch::Breaks),
            (0u64..QUIET).prop_map(Sbatch::BreaksAndSubmits),
            Just(Sbatch::Dies),
            Just(Sbatch::DiesBefore),
        ]
    }

    fn faults() -> impl Strategy<Value = Vec<Fault>> {
        let fault = prop_oneof![
            4 => Just(Fault::None), 1 => Just(Fault::NotReached), 1 => Just(Fault::Early), 1 => Just(Fault::Late),
            1 => (0u64..60).prop_map(Fault::Orphan), 1 => Just(Fault::Full),
        ];
        prop::collection::vec(fault, 0..12)
    }

    fn world(attempts: [Sbatch; 2], faults: Vec<Fault>) -> World {
        World {
            now: 1000,
            attempts,
            faults,
            contacts: 0,
            claims: [None; 2],
            staged: false,
            jobs: vec![],
            cancelled: vec![],
            next_id: 0,
            sacct_is_forbidden: false,
            orphans: vec![],
        }
    }

    #[test]
    fn a_timeout_that_submitted_nothing_is_repeated_held_and_released() {
        let mut world = world([Sbatch::TimesOut, Sbatch::Accepts], vec![]);
        assert_eq!(world.run(), Outcome::Submitted { job: Some(1), answered: false });
        assert_eq!(world.jobs, [(1, 1000 + QUIET, false)]);
    }

    #[test]
    fn a_timeout_that_submits_later_is_adopted() {
        let mut world = world([Sbatch::TimesOutAndSubmits(100), Sbatch::Accepts], vec![]);
        assert_eq!(world.run(), Outcome::Submitted { job: Some(1), answered: false });
        assert_eq!((world.jobs.len(), world.claims[1]), (1, None));
    }

    #[test]
    fn a_strange_end_is_looked_up_and_not_repeated() {
        let mut submitted = world([Sbatch::BreaksAndSubmits(9), Sbatch::Accepts], vec![]);
        assert_eq!(submitted.run(), Outcome::Submitted { job: Some(1), answered: false });
        let mut nothing = world([Sbatch::Breaks, Sbatch::Accepts], vec![]);
        assert_eq!(nothing.run(), Outcome::NotSubmitted);
        assert_eq!((nothing.now, nothing.claims[1]), (1000 + QUIET, None));
    }

    #[test]
    fn nothing_is_repeated_if_sacct_does_not_answer() {
        let mut world = World {
            sacct_is_forbidden: true,
            ..world([Sbatch::TimesOut, Sbatch::Accepts], vec![])
        };
        assert_eq!(world.run(), Outcome::Unknown);
        assert_eq!(world.jobs, []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn no_token_has_two_jobs_and_no_reported_job_is_missing(
            first in sbatches(), second in sbatches(), faults in faults(), sacct_is_forbidden: bool,
        ) {
            let mut world = World { sacct_is_forbidden, ..world([first, second], faults) };
            let outcome = world.run();
            // Everything that was going to appear has appeared.
            world.now += 10 * QUIET;
            world.run_orphans();
            let live: Vec<_> = world.jobs.iter().filter(|job| !world.cancelled.contains(&job.0)).collect();
            match outcome {
                Outcome::Submitted { job, .. } => {
                    prop_assert_eq!(live.len(), 1, "{:?}", world);
                    prop_assert!(!live[0].2, "the job is still held: {:?}", world);
                    prop_assert!(job.is_none_or(|id| id == live[0].0));
                }
                Outcome::Refused | Outcome::NotSent | Outcome::NotSubmitted => prop_assert!(live.is_empty(), "{:?}", world),
                // A second job would be held, and the user is informed.
                Outcome::Unknown => prop_assert!(live.iter().filter(|job| !job.2).count() <= 1, "{:?}", world),
            }
        }
    }
}
