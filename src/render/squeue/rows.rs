//! The rows of squeue: which tasks of an array share one, and in what order they stand.

use crate::model::view::JobView;
use crate::model::{ArrayRole, JobId, JobRef, JobState, TaskSet, Timestamp};
use crate::render::Ctx;
use crate::render::array::Shown;
use crate::render::format::{FormatError, by_name, known};
use crate::render::job;
use crate::render::squeue::fields::{BOOK, FIELDS, Get};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;

/// A job, or a part of one, as one line.
pub struct Row<'a> {
    pub job: &'a JobView,
    pub shown: Shown<'a>,
    /// The reasons of records that share the row, where there are several.
    reasons: Option<String>,
}

impl Row<'_> {
    /// `Resources`, or `JobArrayTaskLimit,JobHeldUser` where records with several reasons share the row.
    pub fn reason(&self) -> String {
        self.reasons.clone().unwrap_or_else(|| self.job.run.reason.name().to_owned())
    }

    /// `NODELIST(REASON)`.
    pub fn reason_or_nodes(&self, ctx: &Ctx) -> String {
        if job::shows_reason(self.job.run.state) {
            format!("({})", self.reason())
        } else {
            job::nodes(self.job, ctx).to_owned()
        }
    }

    /// The node where a pending job is planned to run. Slurm names it only where its plan says more than the begin
    /// time that the user gave.
    pub fn sched_nodes(&self, ctx: &Ctx) -> String {
        let planned = self.job.run.state == JobState::Pending
            && self.job.expected_start.is_some()
            && self.job.run.reason != crate::model::Reason::BeginTime;
        if planned { ctx.node.clone() } else { "(null)".to_owned() }
    }
}

/// Makes rows of job records.
///
/// * `each`: a line for each array task (`-r/--array`).
/// * `refs`: the ids that were asked for; an array that was asked for by tasks (`12_5`) shows each of these by itself.
///   The records are taken as filtered already: a record that no id names keeps its row.
///
/// Without `each`, the pending records of one array that differ in nothing but their reason join the row of the tasks
/// that were never told apart, with their reasons joined. What differs from that row has a line for each task, as in
/// Slurm, where each of these tasks has a record. What is over stays together.
pub fn rows<'a>(jobs: &'a [JobView], each: bool, refs: &[JobRef]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::with_capacity(jobs.len());
    let rests: HashMap<JobId, &JobView> = jobs
        .iter()
        .filter(|job| !each && matches!(job.role, ArrayRole::Rest { .. }) && tasks_wanted(job, refs).is_none())
        .map(|job| (job.id, job))
        .collect();
    let mut joining: HashMap<JobId, Vec<&'a JobView>> = HashMap::new();
    for job in jobs {
        let shown = Shown::of(job.id, &job.role);
        let array = shown.array_job();
        let wanted = tasks_wanted(job, refs);
        let is_rest = matches!(job.role, ArrayRole::Rest { .. });
        if !is_rest && wanted.is_none() && rests.get(&array).is_some_and(|rest| may_share(rest, job)) {
            joining.entry(array).or_default().push(job);
            continue;
        }
        match (&job.role, &shown) {
            (ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }, Shown::Tasks { .. })
                if each || wanted.is_some() || !is_rest && job.run.state == JobState::Pending =>
            {
                let wanted = wanted.map_or(Cow::Borrowed(tasks), Cow::Owned);
                rows.extend(wanted.iter().map(|task| Row {
                    job,
                    shown: Shown::Task { raw: array, array, task },
                    reasons: None,
                }));
            }
            _ => rows.push(Row { job, shown, reasons: None }),
        }
    }
    for row in rows.iter_mut().filter(|row| matches!(row.job.role, ArrayRole::Rest { .. })) {
        for other in joining.remove(&row.job.id).unwrap_or_default() {
            row.merge(other, &Shown::of(other.id, &other.role));
        }
    }
    rows
}

/// Whether a record may stand in the row of the tasks of its array that were never told apart.
fn may_share(rest: &JobView, job: &JobView) -> bool {
    let pending = rest.run.state == JobState::Pending && job.run.state == JobState::Pending;
    pending
        && rest.partition == job.partition
        && rest.request.name == job.request.name
        && rest.request.uid == job.request.uid
}

/// The tasks of a compact record that were asked for one by one; `None` where the whole array was.
fn tasks_wanted(job: &JobView, refs: &[JobRef]) -> Option<TaskSet> {
    let (ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) = &job.role else { return None };
    let array = job.role.array_job(job.id);
    let mut wanted = TaskSet::new();
    for r in refs.iter().filter(|r| r.job == job.id || Some(r.job) == array) {
        for task in tasks.intersection(r.tasks.as_ref()?).iter() {
            wanted.insert(task);
        }
    }
    (!wanted.is_empty()).then_some(wanted)
}

impl<'a> Row<'a> {
    /// Takes another pending record of the same array into this row. The row has no limit any more, as in Slurm.
    fn merge(&mut self, other: &'a JobView, shown: &Shown<'a>) {
        let mut tasks = tasks_of(&self.shown);
        let more = tasks_of(shown);
        let ranges = tasks.ranges().iter().chain(more.ranges()).copied().collect();
        tasks = TaskSet::from_ranges(ranges);
        self.shown = Shown::Tasks { array: shown.array_job(), tasks: Cow::Owned(tasks), limit: None };
        let mut reasons = self.reason();
        if !reasons.split(',').any(|r| r == other.run.reason.name()) {
            reasons.push(',');
            reasons.push_str(other.run.reason.name());
        }
        self.reasons = Some(reasons);
    }
}

fn tasks_of(shown: &Shown<'_>) -> TaskSet {
    match shown {
        Shown::Plain(_) => TaskSet::new(),
        Shown::Task { task, .. } => TaskSet::one(*task),
        Shown::Tasks { tasks, .. } => tasks.clone().into_owned(),
    }
}

/// `-S/--sort`: by which columns, and in which direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    by: By,
    descending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Slurm(usize),
    Book(usize),
}

impl By {
    fn header(self) -> &'static str {
        match self {
            By::Slurm(i) => FIELDS[i].header,
            By::Book(i) => BOOK[i].header,
        }
    }
}

impl Default for Sort {
    /// Partition, then state, then falling priority: `P,t,-p`.
    fn default() -> Self {
        Sort::of_codes(&[('P', false), ('t', false), ('p', true)])
    }
}

impl Sort {
    /// By expected start: `squeue --start`.
    pub fn by_start() -> Self {
        Sort::of_codes(&[('S', false)])
    }

    fn of_codes(codes: &[(char, bool)]) -> Self {
        let keys = codes.iter().filter_map(|&(c, descending)| Some(Key { by: code(c)?, descending }));
        Sort { keys: keys.collect() }
    }

    /// `P,t,-p`: letters of `-o`, each with `+` or `-` before it, with or without commas; or field names.
    ///
    /// # Errors
    /// Names the letter that is no column.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut keys = Vec::new();
        for word in text.split(',') {
            let word = word.trim();
            let name = word.trim_start_matches(['+', '-']);
            let named = by_name(BOOK, name).map(By::Book).or_else(|| by_name(FIELDS, name).map(By::Slurm));
            // One letter is always a code: `t` is the state and not a name.
            if let (Some(by), true) = (named, name.len() > 1) {
                keys.push(Key { by, descending: word.starts_with('-') });
                continue;
            }
            let mut descending = false;
            for c in word.chars() {
                match c {
                    '+' => descending = false,
                    '-' => descending = true,
                    // Slurm has these columns and no order for them.
                    's' => return Err(invalid(c)),
                    c => {
                        let by = code(c).ok_or_else(|| invalid(c))?;
                        keys.push(Key { by, descending });
                        descending = false;
                    }
                }
            }
        }
        Ok(Sort { keys })
    }

    /// Whether the order depends on a column with one of these headers.
    pub fn looks_at(&self, headers: &[&str]) -> bool {
        self.keys.iter().any(|key| headers.contains(&key.by.header()))
    }

    /// Sorts the rows; rows that are equal keep their order.
    pub fn apply(&self, rows: &mut Vec<Row<'_>>, ctx: &Ctx) {
        if self.keys.is_empty() {
            return;
        }
        // Each value is worked out once, not once a comparison.
        let mut keyed: Vec<(Vec<Value>, Row<'_>)> = std::mem::take(rows)
            .into_iter()
            .map(|row| (self.keys.iter().map(|k| value(k.by, &row, ctx)).collect(), row))
            .collect();
        keyed.sort_by(|(a, _), (b, _)| {
            let mut order = Ordering::Equal;
            for ((x, y), key) in a.iter().zip(b).zip(&self.keys) {
                order = if key.descending { y.cmp(x) } else { x.cmp(y) };
                if order != Ordering::Equal {
                    break;
                }
            }
            order
        });
        rows.extend(keyed.into_iter().map(|(_, row)| row));
    }
}

fn code(c: char) -> Option<By> {
    FIELDS.iter().position(|f| f.code == Some(c)).map(By::Slurm)
}

fn invalid(c: char) -> FormatError {
    let (codes, names) = known(FIELDS);
    FormatError {
        message: format!("Invalid sort specification: {c}"),
        hint: format!("known letters: {codes}; known names: {names}"),
    }
}

/// What a column sorts by: numbers before text, absent before both.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    None,
    Number(i64),
    Text(String),
}

fn value(by: By, row: &Row<'_>, ctx: &Ctx) -> Value {
    let get: Get = match by {
        By::Slurm(i) => FIELDS[i].get,
        By::Book(i) => BOOK[i].get,
    };
    let number = |n: u64| Value::Number(i64::try_from(n).unwrap_or(i64::MAX));
    let instant = |t: Option<Timestamp>| t.map_or(Value::Number(i64::MAX), |t| Value::Number(t.0));
    let limit = |l: Option<u64>| l.map_or(Value::Number(i64::MAX), number);
    let job = row.job;
    // Columns whose text does not sort as their value does.
    match by.header() {
        "JOBID" => number(u64::from(row.shown.array_job().0) << 24 | u64::from(task_order(&row.shown))),
        "TIME" => number(job::elapsed_secs(job, ctx)),
        "TIME_LIMIT" => limit(job.request.time_limit_secs),
        "TIME_LEFT" => limit(job::time_left(job, ctx)),
        "START_TIME" => instant(job::start_or_expected(job)),
        "END_TIME" => instant(job::end_or_expected(job, ctx)),
        "SUBMIT_TIME" => instant(Some(job.submit)),
        "PRIORITY" => Value::Number(i64::from(job::priority(job))),
        "MIN_MEMORY" => number(job::min_memory(job).0),
        "REQ_MEM" => number(job.tres.mem_mb),
        _ => match get(row, ctx) {
            text if text.is_empty() => Value::None,
            text => text.parse().map_or(Value::Text(text), Value::Number),
        },
    }
}

/// The place of a row among those of its array.
fn task_order(shown: &Shown<'_>) -> u32 {
    match shown {
        Shown::Plain(_) => 0,
        Shown::Task { task, .. } => *task,
        Shown::Tasks { tasks, .. } => tasks.first().unwrap_or(0),
    }
}
