//! The requests and acknowledgements. The judge knows nothing else about slotd.

/// The settings of the wall clock: the time of each change in milliseconds of boot time, and the
/// seconds ahead of the real clock.
#[derive(Debug, Clone, Default)]
pub struct Clock(pub Vec<(u64, i64)>);

impl Clock {
    /// Returns the largest lead of the clock between two moments.
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

/// The submitting command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Batch,
    Run,
    /// `salloc COMMAND`.
    AllocCommand,
    /// `salloc --no-shell`.
    AllocBare,
    /// An entry of `scrontab`. Its job ID is not printed.
    Cron,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It has begun.
    Start,
    Any,
    Ok,
    NotOk,
    /// The task with the same index has succeeded.
    Corr,
}

impl After {
    pub const ALL: [After; 5] = [After::Start, After::Any, After::Ok, After::NotOk, After::Corr];

    /// Returns the keyword of `--dependency`.
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

/// The planned behavior of a job.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub cpus: u32,
    pub gpus: u32,
    /// Licenses of the only kind.
    pub seats: u32,
    /// Whether it has the QOS that limits the number of running jobs.
    pub has_qos: bool,
    /// The run time in milliseconds.
    pub ms: u64,
    /// The exit code of its script.
    pub code: i32,
    /// A time limit in seconds that the job exceeds by far.
    pub limit: Option<u32>,
    pub requeue: bool,
    pub ignores_term: bool,
    pub leaves_child: bool,
    pub lines: u32,
    /// The earliest start, in seconds since 1970.
    pub begin: Option<i64>,
    pub held: bool,
    /// A dependency on another submission.
    pub after: Option<(After, u32)>,
    /// A singleton.
    pub singleton: bool,
    /// A step of srun in the script: run time in milliseconds and exit code.
    pub step: Option<(u64, i32)>,
}

impl Plan {
    /// Whether it fails by itself.
    pub fn fails(&self) -> bool {
        self.limit.is_some() || self.code != 0
    }

    /// Returns the state and exit code of an undisturbed job. If the job is killed, its exit code
    /// is not that of the script.
    pub fn end(&self) -> (&'static str, Option<String>) {
        match (self.limit, self.code) {
            (Some(_), _) => ("TIMEOUT", None),
            (None, 0) => ("COMPLETED", Some("0:0".to_owned())),
            (None, code) => ("FAILED", Some(format!("{code}:0"))),
        }
    }
}

/// An action on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Cancel,
    Hold,
    Release,
    Requeue,
    Suspend,
    Resume,
    Update,
    /// The client of the job was killed.
    KillClient,
}

#[derive(Debug, Clone)]
pub struct Touch {
    pub what: What,
    /// `Some` for a single task of an array.
    pub task: Option<u32>,
    pub sent: u64,
    /// The time at which its command exited with 0.
    pub acked: Option<u64>,
}

/// The result of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// None yet, or the command was killed before it printed anything.
    Open,
    /// The job ID that it printed.
    Number(u32),
    /// The submission was refused.
    Refused,
}

#[derive(Debug, Clone)]
pub struct Submission {
    pub number: u32,
    pub how: How,
    pub plan: Plan,
    /// The number of array tasks; `None` if it is not an array.
    pub tasks: Option<u32>,
    pub answer: Answer,
    /// The exit code and standard error of the foreground command; `None` if it was killed or did
    /// not exit.
    pub client: Option<(i32, String)>,
    pub sent: u64,
    pub touches: Vec<Touch>,
}

impl Submission {
    /// Returns the job's comment, which identifies it everywhere.
    pub fn name(&self) -> String {
        format!("t{}", self.number)
    }

    pub fn id(&self) -> Option<u32> {
        match self.answer {
            Answer::Number(id) => Some(id),
            Answer::Open | Answer::Refused => None,
        }
    }

    /// Returns the actions on this task or on the whole array.
    pub fn touches(&self, task: Option<u32>) -> impl Iterator<Item = &Touch> {
        self.touches.iter().filter(move |touch| touch.task.is_none() || touch.task == task)
    }
}

/// Returns the number of a submission from the job's comment.
pub fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix('t')?.parse().ok()
}
