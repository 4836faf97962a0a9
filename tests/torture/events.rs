//! The log of the jobs and the output of `sacct`.

use std::collections::BTreeMap;

/// A line of the jobs' log, without the PID.
#[derive(Debug, Clone)]
pub struct Event {
    /// The line number in the log, which gives the order of events.
    pub at: usize,
    pub what: String,
    pub number: u32,
    pub task: Option<u32>,
    /// The job ID that sbatch printed.
    pub array: Option<u32>,
    pub job: Option<u32>,
    pub restart: u32,
    /// The start of the process, in milliseconds of boot time.
    pub start: u64,
    pub more: String,
}

impl Event {
    fn parse(at: usize, line: &str) -> Option<Event> {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, number, task, array, job, restart, _, start, more] = words[..] else {
            return None;
        };
        Some(Event {
            at,
            what: what.to_owned(),
            number: number.parse().ok()?,
            task: task.parse().ok(),
            array: array.parse().ok(),
            job: job.parse().ok(),
            restart: restart.parse().ok()?,
            start: start.parse().ok()?,
            more: more.to_owned(),
        })
    }
}

/// Returns all events in order, and the malformed lines.
pub fn events(log: &str) -> (Vec<Event>, Vec<String>) {
    let (mut events, mut odd) = (Vec::new(), Vec::new());
    for (at, line) in log.lines().enumerate() {
        match Event::parse(at, line) {
            Some(event) => events.push(event),
            None => odd.push(line.to_owned()),
        }
    }
    (events, odd)
}

/// A job as printed by `sacct`.
#[derive(Debug, Clone)]
pub struct Row {
    /// The job ID that sbatch printed.
    pub id: u32,
    /// The job's own ID, which differs for array tasks.
    pub raw: u32,
    pub task: Option<u32>,
    pub name: String,
    pub state: String,
    pub exit: String,
    pub restarts: u32,
    /// Whether it has started.
    pub started: bool,
}

/// The columns of [`rows`].
pub const COLUMNS: &str = "JobIDRaw,ArrayJobID,ArrayTaskID,Comment,State,ExitCode,Restarts,Start";

/// Parses the rows of `sacct -X -n -P -o` [`COLUMNS`]. Returns them and the malformed lines. Array
/// tasks that never started may share a row.
pub fn rows(text: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut odd) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match row(line) {
            Some((row, tasks)) if tasks.is_empty() => rows.push(row),
            Some((row, tasks)) => {
                rows.extend(tasks.into_iter().map(|t| Row { task: Some(t), ..row.clone() }))
            }
            None => odd.push(line.to_owned()),
        }
    }
    (rows, odd)
}

fn row(line: &str) -> Option<(Row, Vec<u32>)> {
    let words: Vec<&str> = line.split('|').collect();
    let [raw, array, tasks, name, state, exit, restarts, start] = words[..] else { return None };
    let raw = raw.parse().ok()?;
    let row = Row {
        id: if array.is_empty() { raw } else { array.parse().ok()? },
        raw,
        task: None,
        name: name.to_owned(),
        state: state.split(' ').next()?.to_owned(),
        exit: exit.to_owned(),
        restarts: restarts.parse().ok()?,
        started: start.starts_with('2'),
    };
    Some((row, expand(tasks)?))
}

/// Parses `0-2,5%1` into numbers.
fn expand(tasks: &str) -> Option<Vec<u32>> {
    let list = tasks.split('%').next()?;
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(all)
}

/// Groups values by a key, and keeps their order.
pub fn by<K: Ord, V>(
    values: impl IntoIterator<Item = V>,
    key: impl Fn(&V) -> K,
) -> BTreeMap<K, Vec<V>> {
    let mut found: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for value in values {
        found.entry(key(&value)).or_default().push(value);
    }
    found
}
