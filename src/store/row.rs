//! Rows, and how they become jobs and steps and the other way round.
//!
//! Nothing is guessed: a text that no version of slotd writes is an error that names its column.

use crate::model::array::{TaskRange, TaskSet};
use crate::model::job::{Client, ClientProcess, Hold};
use crate::model::run::RunState;
use crate::model::tres::{Allocation, TaskUsage, Usage};
use crate::model::{ArrayRole, ExitCode, Job, JobId, JobRequest, JobState, Reason, Step, StepId, Timestamp, Tres};
use crate::store::error::StoreError;
use crate::store::schema::{jobs, steps};
use diesel::prelude::*;
use diesel::sqlite::Sqlite;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::Arc;

/// A job record without its request and steps, which have tables of their own.
#[derive(Debug, Clone, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = jobs, primary_key(job_id), treat_none_as_null = true, treat_none_as_default_value = false)]
#[diesel(check_for_backend(Sqlite))]
pub(super) struct JobRow {
    pub job_id: i64,
    pub array_job_id: Option<i64>,
    pub array_task_id: Option<i64>,
    pub array_tasks: Option<String>,
    pub array_limit: Option<i64>,
    pub request_id: i64,
    pub partition: String,
    pub cpus: i64,
    pub mem_mb: i64,
    pub gpus: i64,
    pub priority: i64,
    pub hold: String,
    pub state: String,
    pub reason: String,
    pub submit_us: i64,
    pub eligible_us: Option<i64>,
    pub start_us: Option<i64>,
    pub end_us: Option<i64>,
    pub suspended_at_us: Option<i64>,
    pub suspended_us: i64,
    pub exit_code: String,
    pub derived_exit_code: String,
    pub restarts: i64,
    pub next_step: i64,
    pub alloc: Option<String>,
    pub max_rss_kb: i64,
    pub user_us: i64,
    pub system_us: i64,
    pub client: Option<String>,
    pub cancelled_by: Option<i64>,
    pub system_comment: Option<String>,
    pub task_usage: Option<String>,
}

/// A step of the job `job_id`.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = steps, treat_none_as_default_value = false, check_for_backend(Sqlite))]
pub(super) struct StepRow {
    pub job_id: i64,
    pub step: String,
    pub name: String,
    pub ntasks: i64,
    pub state: String,
    pub start_us: i64,
    pub end_us: Option<i64>,
    pub exit_code: String,
    pub alloc: String,
    pub max_rss_kb: i64,
    pub user_us: i64,
    pub system_us: i64,
    pub submit_line: String,
    pub overlap: bool,
    pub client: Option<String>,
    pub task_usage: Option<String>,
    pub suspended_us: i64,
}

impl JobRow {
    /// The row of a job whose request has this id.
    pub fn new(job: &Job, request_id: i64) -> Result<JobRow, StoreError> {
        let (array_job, array_task, array_tasks, array_limit) = match &job.role {
            ArrayRole::None => (None, None, None, None),
            ArrayRole::Rest { tasks, limit } => (Some(job.id), None, Some(tasks.to_string()), *limit),
            ArrayRole::Part { array_job, tasks } => (Some(*array_job), None, Some(tasks.to_string()), None),
            ArrayRole::Task { array_job, task } => (Some(*array_job), Some(*task), None, None),
        };
        let size = |column, value: u64| store_u64("jobs", column, value);
        Ok(JobRow {
            job_id: job.id.0.into(),
            array_job_id: array_job.map(|id| id.0.into()),
            array_task_id: array_task.map(i64::from),
            array_tasks,
            array_limit: array_limit.map(i64::from),
            request_id,
            partition: job.partition.clone(),
            cpus: job.tres.cpus.into(),
            mem_mb: size("mem_mb", job.tres.mem_mb)?,
            gpus: job.tres.gpus.into(),
            priority: job.priority.into(),
            hold: hold_name(job.hold).to_owned(),
            state: job.run.state.name().to_owned(),
            reason: job.run.reason.name().to_owned(),
            submit_us: job.submit.0,
            eligible_us: job.run.eligible.map(|t| t.0),
            start_us: job.run.start.map(|t| t.0),
            end_us: job.run.end.map(|t| t.0),
            suspended_at_us: job.run.suspended_at.map(|t| t.0),
            suspended_us: size("suspended_us", job.run.suspended_us)?,
            exit_code: job.run.exit.to_string(),
            derived_exit_code: job.run.derived_exit.to_string(),
            restarts: job.run.restarts.into(),
            next_step: job.next_step.into(),
            alloc: job.run.alloc.as_ref().map(|alloc| to_json("jobs", "alloc", alloc)).transpose()?,
            max_rss_kb: size("max_rss_kb", job.run.usage.max_rss_kb)?,
            user_us: size("user_us", job.run.usage.user_us)?,
            system_us: size("system_us", job.run.usage.system_us)?,
            client: job.client.as_ref().map(|client| to_json("jobs", "client", client)).transpose()?,
            cancelled_by: job.run.cancelled_by.map(i64::from),
            system_comment: job.run.system_comment.clone(),
            task_usage: task_usage("jobs", &job.run.usage)?,
        })
    }

    /// What the record has to do with an array.
    pub fn role(&self) -> Result<ArrayRole, StoreError> {
        let small = |column, value: i64| load_u32("jobs", column, value);
        match (self.array_job_id, self.array_task_id, &self.array_tasks) {
            (None, None, None) => Ok(ArrayRole::None),
            (Some(array), None, Some(text)) => {
                let tasks = load_tasks(text).ok_or_else(|| unknown("jobs", "array_tasks", text))?;
                // The rest of an array has the array's number; a part has a number of its own.
                Ok(if array == self.job_id {
                    ArrayRole::Rest { tasks, limit: self.array_limit.map(|n| small("array_limit", n)).transpose()? }
                } else {
                    ArrayRole::Part { array_job: JobId(small("array_job_id", array)?), tasks }
                })
            }
            (Some(array), Some(task), None) => Ok(ArrayRole::Task {
                array_job: JobId(small("array_job_id", array)?),
                task: small("array_task_id", task)?,
            }),
            (array, task, tasks) => {
                Err(unknown("jobs", "array_job_id", &format!("{array:?} with {task:?} and {tasks:?}")))
            }
        }
    }

    /// The job, with what the other tables know of it.
    pub fn into_job(self, request: Arc<JobRequest>, steps: Vec<Step>) -> Result<Job, StoreError> {
        let small = |column, value: i64| load_u32("jobs", column, value);
        let size = |column, value: i64| load_u64("jobs", column, value);
        Ok(Job {
            id: JobId(small("job_id", self.job_id)?),
            role: self.role()?,
            request,
            partition: self.partition,
            tres: Tres {
                cpus: small("cpus", self.cpus)?,
                mem_mb: size("mem_mb", self.mem_mb)?,
                gpus: small("gpus", self.gpus)?,
            },
            priority: small("priority", self.priority)?,
            hold: load_hold(&self.hold)?,
            submit: Timestamp(self.submit_us),
            run: RunState {
                state: load_state("jobs", &self.state)?,
                reason: Reason::from_str(&self.reason).map_err(|()| unknown("jobs", "reason", &self.reason))?,
                eligible: self.eligible_us.map(Timestamp),
                start: self.start_us.map(Timestamp),
                end: self.end_us.map(Timestamp),
                suspended_at: self.suspended_at_us.map(Timestamp),
                suspended_us: size("suspended_us", self.suspended_us)?,
                exit: load_exit("jobs", "exit_code", &self.exit_code)?,
                derived_exit: load_exit("jobs", "derived_exit_code", &self.derived_exit_code)?,
                restarts: small("restarts", self.restarts)?,
                alloc: self.alloc.map(|text| from_json::<Allocation>("jobs", "alloc", &text)).transpose()?,
                usage: Usage {
                    max_rss_kb: size("max_rss_kb", self.max_rss_kb)?,
                    user_us: size("user_us", self.user_us)?,
                    system_us: size("system_us", self.system_us)?,
                    tasks: load_task_usage("jobs", self.task_usage.as_deref())?,
                },
                cancelled_by: self.cancelled_by.map(|uid| small("cancelled_by", uid)).transpose()?,
                system_comment: self.system_comment,
            },
            steps,
            next_step: small("next_step", self.next_step)?,
            client: self.client.map(|text| from_json::<Client>("jobs", "client", &text)).transpose()?,
        })
    }
}

impl StepRow {
    pub fn new(job: JobId, step: &Step) -> Result<StepRow, StoreError> {
        let size = |column, value: u64| store_u64("steps", column, value);
        Ok(StepRow {
            job_id: job.0.into(),
            step: step.id.to_string(),
            name: step.name.clone(),
            ntasks: step.ntasks.into(),
            state: step.state.name().to_owned(),
            start_us: step.start.0,
            end_us: step.end.map(|t| t.0),
            exit_code: step.exit.to_string(),
            alloc: to_json("steps", "alloc", &step.alloc)?,
            max_rss_kb: size("max_rss_kb", step.usage.max_rss_kb)?,
            user_us: size("user_us", step.usage.user_us)?,
            system_us: size("system_us", step.usage.system_us)?,
            submit_line: step.submit_line.clone(),
            overlap: step.overlap,
            client: step.client.as_ref().map(|client| to_json("steps", "client", client)).transpose()?,
            task_usage: task_usage("steps", &step.usage)?,
            suspended_us: size("suspended_us", step.suspended_us)?,
        })
    }

    pub fn into_step(self) -> Result<Step, StoreError> {
        let size = |column, value: i64| load_u64("steps", column, value);
        Ok(Step {
            id: StepId::from_str(&self.step).map_err(|()| unknown("steps", "step", &self.step))?,
            name: self.name,
            ntasks: load_u32("steps", "ntasks", self.ntasks)?,
            state: load_state("steps", &self.state)?,
            start: Timestamp(self.start_us),
            end: self.end_us.map(Timestamp),
            exit: load_exit("steps", "exit_code", &self.exit_code)?,
            alloc: from_json("steps", "alloc", &self.alloc)?,
            usage: Usage {
                max_rss_kb: size("max_rss_kb", self.max_rss_kb)?,
                user_us: size("user_us", self.user_us)?,
                system_us: size("system_us", self.system_us)?,
                tasks: load_task_usage("steps", self.task_usage.as_deref())?,
            },
            submit_line: self.submit_line,
            overlap: self.overlap,
            client: self.client.map(|text| from_json::<ClientProcess>("steps", "client", &text)).transpose()?,
            suspended_us: size("suspended_us", self.suspended_us)?,
        })
    }
}

pub(super) fn unknown(table: &'static str, column: &'static str, value: &str) -> StoreError {
    // A damaged text may be long; its beginning tells enough.
    StoreError::Column { table, column, value: value.chars().take(200).collect() }
}

pub(super) fn load_state(table: &'static str, text: &str) -> Result<JobState, StoreError> {
    JobState::from_str(text).map_err(|()| unknown(table, "state", text))
}

pub(super) fn load_exit(table: &'static str, column: &'static str, text: &str) -> Result<ExitCode, StoreError> {
    text.split_once(':')
        .and_then(|(status, signal)| Some(ExitCode { status: status.parse().ok()?, signal: signal.parse().ok()? }))
        .ok_or_else(|| unknown(table, column, text))
}

pub(super) fn load_job_id(table: &'static str, value: i64) -> Result<JobId, StoreError> {
    load_u32(table, "job_id", value).map(JobId)
}

/// The tasks' part of a use as JSON; nothing where nothing was measured.
fn task_usage(table: &'static str, usage: &Usage) -> Result<Option<String>, StoreError> {
    (!usage.tasks.is_unmeasured()).then(|| to_json(table, "task_usage", &usage.tasks)).transpose()
}

fn load_task_usage(table: &'static str, text: Option<&str>) -> Result<TaskUsage, StoreError> {
    text.map_or(Ok(TaskUsage::default()), |text| from_json(table, "task_usage", text))
}

fn hold_name(hold: Hold) -> &'static str {
    match hold {
        Hold::No => "No",
        Hold::User => "User",
        Hold::Admin => "Admin",
    }
}

fn load_hold(text: &str) -> Result<Hold, StoreError> {
    [Hold::No, Hold::User, Hold::Admin]
        .into_iter()
        .find(|hold| hold_name(*hold) == text)
        .ok_or_else(|| unknown("jobs", "hold", text))
}

/// Reads what `TaskSet` prints; nothing of what users may write beyond that.
fn load_tasks(text: &str) -> Option<TaskSet> {
    if text.is_empty() {
        return Some(TaskSet::new());
    }
    let range = |part: &str| {
        let (ids, step) = part.split_once(':').map_or((part, "1"), |(ids, step)| (ids, step));
        let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
        TaskRange::new(first.parse().ok()?, last.parse().ok()?, step.parse().ok()?)
    };
    text.split(',').map(range).collect::<Option<Vec<_>>>().map(TaskSet::from_ranges)
}

fn store_u64(table: &'static str, column: &'static str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Unstorable { table, column, value: value.to_string() })
}

fn load_u64(table: &'static str, column: &'static str, value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| unknown(table, column, &value.to_string()))
}

fn load_u32(table: &'static str, column: &'static str, value: i64) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|_| unknown(table, column, &value.to_string()))
}

pub(super) fn to_json(table: &'static str, column: &'static str, value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unstorable { table, column, value: error.to_string() })
}

pub(super) fn from_json<T: DeserializeOwned>(
    table: &'static str,
    column: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| unknown(table, column, &format!("{text}\" ({error})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{job, step};

    fn row() -> JobRow {
        JobRow::new(&job(1), 1).expect("a small job")
    }

    fn error(row: JobRow) -> String {
        row.into_job(Arc::default(), Vec::new()).expect_err("a damaged row").to_string()
    }

    #[test]
    fn an_unknown_text_is_an_error_that_names_table_column_and_value() {
        assert_eq!(
            error(JobRow { state: "NODE_FAIL".to_owned(), ..row() }),
            "the database is damaged: jobs.state holds \"NODE_FAIL\", which means nothing there"
        );
        let damaged = [
            (JobRow { reason: "Whim".to_owned(), ..row() }, "jobs.reason holds \"Whim\""),
            (JobRow { hold: "Maybe".to_owned(), ..row() }, "jobs.hold holds \"Maybe\""),
            (JobRow { exit_code: "0".to_owned(), ..row() }, "jobs.exit_code holds \"0\""),
            (JobRow { derived_exit_code: "0:x".to_owned(), ..row() }, "jobs.derived_exit_code holds \"0:x\""),
            (JobRow { cpus: -1, ..row() }, "jobs.cpus holds \"-1\""),
            (JobRow { user_us: -2, ..row() }, "jobs.user_us holds \"-2\""),
            (JobRow { task_usage: Some("[".to_owned()), ..row() }, "jobs.task_usage holds \"["),
            (JobRow { alloc: Some("{}".to_owned()), ..row() }, "jobs.alloc holds \"{}\" (missing field"),
            (JobRow { array_job_id: Some(1), ..row() }, "jobs.array_job_id holds"),
            (
                JobRow { array_job_id: Some(1), array_tasks: Some("1-".to_owned()), ..row() },
                "jobs.array_tasks holds \"1-\"",
            ),
        ];
        for (row, expected) in damaged {
            let text = error(row);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn an_unknown_step_or_state_of_a_step_is_an_error() {
        let row = || StepRow::new(JobId(1), &step(StepId::Batch)).expect("a small step");
        let text = |row: StepRow| row.into_step().expect_err("a damaged row").to_string();
        assert!(text(StepRow { step: "extern".to_owned(), ..row() }).contains("steps.step holds \"extern\""));
        assert!(text(StepRow { state: "x".to_owned(), ..row() }).contains("steps.state holds \"x\""));
    }
}
