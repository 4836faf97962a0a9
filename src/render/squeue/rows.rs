//! The rows of squeue: which tasks of an array share a row.

use crate::Ctx;
use crate::array::Shown;
use crate::job;
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, JobId, JobRef, JobState, Reason, TaskSet};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// A job, or a part of one, on one line.
pub struct Row<'a> {
    pub job: &'a JobView,
    pub shown: Shown<'a>,
    /// The reasons of the records that share the row, if they differ.
    reasons: Option<String>,
}

impl Row<'_> {
    /// Returns the reason: `Resources`, or `JobArrayTaskLimit,JobHeldUser` if records with
    /// different reasons share the row.
    pub fn reason(&self) -> &str {
        self.reasons.as_deref().unwrap_or_else(|| job::reason(self.job))
    }

    /// Returns the column `NODELIST(REASON)`.
    pub(crate) fn reason_or_nodes(&self, ctx: &Ctx) -> String {
        if job::shows_reason(self.job.run.state) {
            ["(", self.reason(), ")"].concat()
        } else {
            job::nodes(self.job, ctx).to_owned()
        }
    }

    /// Returns the node on which a pending job is planned to run. As in Slurm, there is none while
    /// the job waits only for the user's begin time.
    pub(crate) fn sched_nodes(&self, ctx: &Ctx) -> String {
        let planned = self.job.run.state == JobState::Pending
            && self.job.expected_start.is_some()
            && self.job.run.reason != Reason::BeginTime;
        if planned { ctx.node.clone() } else { "(null)".to_owned() }
    }

    /// Returns a path of the job's streams. If the row is one of several tasks that wait together,
    /// fills in its task ID for `%a` and `%b`, which the daemon leaves in place for such tasks.
    pub fn path(&self, path: &str) -> String {
        match (&self.job.role, &self.shown) {
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, Shown::Task { task, .. }) => {
                with_task(path, *task)
            }
            _ => path.to_owned(),
        }
    }
}

/// Replaces `%a` and `%b`, with or without a width (sbatch man page, "filename pattern").
fn with_task(path: &str, task: u32) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, token)) = rest.split_once('%') {
        out.push_str(before);
        let letter = token.trim_start_matches(|c: char| c.is_ascii_digit());
        let width = token[..token.len() - letter.len()].parse().unwrap_or(0).min(10);
        let (number, after) = match (letter.strip_prefix('a'), letter.strip_prefix('b')) {
            (Some(after), _) => (task, after),
            (None, Some(after)) => (task % 10, after),
            (None, None) => {
                out.push('%');
                rest = token;
                continue;
            }
        };
        out.push_str(&format!("{number:0width$}"));
        rest = after;
    }
    out + rest
}

/// Makes rows of job records.
///
/// * `each`: one line per array task (`-r/--array`).
/// * `refs`: the requested IDs. An array that is requested by task (`12_5`) shows each of these
///   tasks separately. The records must already be filtered: a record that no ID names keeps its
///   row.
///
/// Without `each`, pending records of an array that differ only in their reason join the row of the
/// tasks that were never split off, and their reasons are joined too. Records that differ in
/// anything else, such as a time limit that was changed for one task, get a line for each task, as
/// in Slurm, where each of these tasks has a record.
/// Ended tasks stay together.
pub(crate) fn rows<'a>(jobs: &'a [JobView], each: bool, refs: &[JobRef]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::with_capacity(jobs.len());
    let rests: HashMap<JobId, &JobView> = jobs
        .iter()
        .filter(|job| {
            !each && matches!(job.role, ArrayRole::Rest { .. }) && tasks_wanted(job, refs).is_none()
        })
        .map(|job| (job.id, job))
        .collect();
    let mut joining: HashMap<JobId, Vec<&'a JobView>> = HashMap::new();
    for job in jobs {
        let shown = Shown::of(job.id, &job.role);
        let array = shown.array_job();
        let wanted = tasks_wanted(job, refs);
        let is_rest = matches!(job.role, ArrayRole::Rest { .. });
        if !is_rest
            && wanted.is_none()
            && rests.get(&array).is_some_and(|rest| may_share(rest, job))
        {
            joining.entry(array).or_default().push(job);
            continue;
        }
        match (&job.role, &shown) {
            (
                ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. },
                Shown::Tasks { .. },
            ) if each || wanted.is_some() || !is_rest && job.run.state == JobState::Pending => {
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

/// Divides the jobs by partition. A pending job is in each partition that it may start in, or in
/// those of them that are named.
pub(crate) fn by_partition(jobs: &[JobView], named: &[String]) -> BTreeMap<String, Vec<JobView>> {
    let mut groups: BTreeMap<String, Vec<JobView>> = BTreeMap::new();
    for job in jobs {
        let is_named = |name: &&str| named.is_empty() || named.iter().any(|other| other == name);
        let mut put = |name: &str| {
            let mut job = job.clone();
            job.job.partition = name.into();
            groups.entry(name.to_owned()).or_default().push(job);
        };
        match job.run.state {
            JobState::Pending => job.partition.split(',').filter(is_named).for_each(put),
            _ => put(&job.partition),
        }
    }
    groups
}

/// Returns whether a record may join the row of the tasks of its array that were never split off.
fn may_share(rest: &JobView, job: &JobView) -> bool {
    let pending = rest.run.state == JobState::Pending && job.run.state == JobState::Pending;
    pending
        && rest.partition == job.partition
        && rest.tres == job.tres
        && rest.request == job.request
}

/// Returns the tasks of a compact record that were requested by ID; `None` if the whole array was.
fn tasks_wanted(job: &JobView, refs: &[JobRef]) -> Option<TaskSet> {
    let (ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) = &job.role else {
        return None;
    };
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
    /// Merges another pending record of the same array into this row. The row then has no limit, as
    /// in Slurm.
    fn merge(&mut self, other: &'a JobView, shown: &Shown<'a>) {
        let mut tasks = tasks_of(&self.shown);
        let more = tasks_of(shown);
        let ranges = tasks.ranges().iter().chain(more.ranges()).copied().collect();
        tasks = TaskSet::from_ranges(ranges);
        self.shown =
            Shown::Tasks { array: shown.array_job(), tasks: Cow::Owned(tasks), limit: None };
        let mut reasons = self.reason().to_owned();
        if !reasons.split(',').any(|r| r == job::reason(other)) {
            reasons.push(',');
            reasons.push_str(job::reason(other));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::job;

    #[test]
    fn a_pending_job_is_in_each_of_its_partitions() {
        let jobs = [
            job(1, "both").partition("gpu,cpu").build(),
            job(2, "one").partition("cpu").build(),
            job(3, "runs").partition("gpu").running(4).build(),
        ];
        let ids = |jobs: &Vec<JobView>| jobs.iter().map(|job| job.id.0).collect::<Vec<_>>();
        let groups = by_partition(&jobs, &[]);
        assert_eq!(groups.keys().collect::<Vec<_>>(), ["cpu", "gpu"]);
        assert_eq!((ids(&groups["cpu"]), ids(&groups["gpu"])), (vec![1, 2], vec![1, 3]));
        assert!(groups.iter().all(|(name, jobs)| jobs.iter().all(|job| job.partition == *name)));
        let groups = by_partition(&jobs[..1], &["gpu".to_owned()]);
        assert_eq!(groups.keys().collect::<Vec<_>>(), ["gpu"]);
    }
}
