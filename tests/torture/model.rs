//! What was asked for and what was acknowledged: all that the judgement knows of slotd.

/// The settings of the wall clock: from when (milliseconds of boot time), seconds ahead of the real
/// one.
#[derive(Debug, Clone, Default)]
pub struct Clock(pub Vec<(u64, i64)>);

impl Clock {
    /// The most that it was ahead between two moments.
    pub fn most_ahead(&self, from: u64, to: u64) -> i64 {
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        let spans = self.0.iter().zip(ends);
        spans
            .filter(|((at, _), end)| *at <= to && *end >= from)
            .map(|((_, ahead), _)| *ahead)
            .max()
            .unwrap_or(0)
    }
}

/// By which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Batch,
    Run,
    /// `salloc COMMAND`.
    AllocCommand,
    /// `salloc --no-shell`.
    AllocBare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It has begun.
    Start,
    Any,
    Ok,
    NotOk,
    /// The task of the same number has ended well.
    Corr,
}

impl After {
    pub const ALL: [After; 5] = [After::Start, After::Any, After::Ok, After::NotOk, After::Corr];

    /// The word of `--dependency`.
    pub fn word(self) -> &'static str {
        match self {
            After::Start => "after",
            After::Any => "afterany",
            After::Ok => "afterok",
            After::NotOk => "afternotok",
            After::Corr => "aftercorr",
        }
    }
}

/// What a job is to do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub cpus: u32,
    pub gpus: u32,
    /// How long it runs, milliseconds.
    pub ms: u64,
    /// What its script ends with.
    pub code: i32,
    /// It runs longer than this limit (seconds), by far.
    pub limit: Option<u32>,
    pub requeue: bool,
    pub ignores_term: bool,
    pub leaves_child: bool,
    pub lines: u32,
    /// Not before this time, seconds since 1970.
    pub begin: Option<i64>,
    pub held: bool,
    /// After another submission.
    pub after: Option<(After, u32)>,
    /// Alone among those that say so.
    pub singleton: bool,
    /// A step of srun in the script: milliseconds and exit code.
    pub step: Option<(u64, i32)>,
}

impl Plan {
    /// It fails by itself.
    pub fn fails(&self) -> bool {
        self.limit.is_some() || self.code != 0
    }

    /// State and exit code of a job that nobody meddled with. The exit code of one that was killed
    /// is not the script's.
    pub fn end(&self) -> (&'static str, Option<String>) {
        match (self.limit, self.code) {
            (Some(_), _) => ("TIMEOUT", None),
            (None, 0) => ("COMPLETED", Some("0:0".to_owned())),
            (None, code) => ("FAILED", Some(format!("{code}:0"))),
        }
    }
}

/// What was done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Cancel,
    Hold,
    Release,
    Requeue,
    Suspend,
    Resume,
    Update,
    /// The command that stands for it was killed.
    KillClient,
}

#[derive(Debug, Clone)]
pub struct Touch {
    pub what: What,
    /// One task of the array.
    pub task: Option<u32>,
    pub sent: u64,
    /// When its command had ended with 0.
    pub acked: Option<u64>,
}

/// What came of the command that submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// None yet, or it was killed before it said something.
    Open,
    /// It printed this number.
    Number(u32),
    /// It said no.
    Refused,
}

#[derive(Debug, Clone)]
pub struct Submission {
    pub number: u32,
    pub how: How,
    pub plan: Plan,
    /// Tasks of an array, from 0. `None`: no array.
    pub tasks: Option<u32>,
    pub answer: Answer,
    /// How the command ended that ran it in the foreground, and what it said. `None`: it was
    /// killed, or did not end.
    pub client: Option<(i32, String)>,
    pub sent: u64,
    pub touches: Vec<Touch>,
}

impl Submission {
    /// The job's comment, by which everything about it is found.
    pub fn name(&self) -> String {
        format!("t{}", self.number)
    }

    pub fn id(&self) -> Option<u32> {
        match self.answer {
            Answer::Number(id) => Some(id),
            Answer::Open | Answer::Refused => None,
        }
    }

    /// What was done to this task, or to all.
    pub fn touches(&self, task: Option<u32>) -> impl Iterator<Item = &Touch> {
        self.touches.iter().filter(move |touch| touch.task.is_none() || touch.task == task)
    }
}

/// The number of a submission by the job's comment.
pub fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix('t')?.parse().ok()
}
