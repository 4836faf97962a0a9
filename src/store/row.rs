//! Rows, and their conversion to and from jobs and steps.
//!
//! Each record, step and run is one JSON document, from which SQLite derives the columns used in
//! filters. Nothing is guessed: a document that no version of slotd writes is an error that names
//! its column.

use crate::error::StoreError;
use crate::schema::{jobs, runs, steps};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::Sqlite;
use serde::Serialize;
use serde::de::DeserializeOwned;
use slotd_model::run::Run;
use slotd_model::{Job, JobId, JobRequest, Step};
use std::sync::Arc;

/// A number returned by a query.
#[derive(QueryableByName)]
pub(super) struct Number {
    #[diesel(sql_type = BigInt)]
    pub n: i64,
}

/// A job record without its request and steps, which have tables of their own.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = jobs, check_for_backend(Sqlite))]
pub(super) struct JobRow {
    pub job_id: i64,
    pub request_id: i64,
    pub body: String,
}

/// A step of the job `job_id`.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = steps, check_for_backend(Sqlite))]
pub(super) struct StepRow {
    pub job_id: i64,
    pub step: String,
    pub body: String,
}

/// An earlier run of the job `job_id`.
#[derive(Debug, Clone, Queryable, Selectable, Insertable)]
#[diesel(table_name = runs, check_for_backend(Sqlite))]
pub(super) struct RunRow {
    pub job_id: i64,
    pub run: i64,
    pub body: String,
}

impl JobRow {
    /// Returns the row of a job whose request has this row ID.
    pub(crate) fn new(job: &Job, request_id: i64) -> Result<JobRow, StoreError> {
        let body = Job { request: Arc::default(), ..job.without_steps() };
        Ok(JobRow { job_id: job.id.0.into(), request_id, body: to_json("jobs", "body", &body)? })
    }

    /// Returns the job, combined with data from the other tables.
    pub(crate) fn into_job(
        self,
        request: Arc<JobRequest>,
        steps: Vec<Step>,
    ) -> Result<Job, StoreError> {
        let job: Job = from_json("jobs", "body", &self.body)?;
        Ok(Job { request, steps, ..job })
    }
}

impl StepRow {
    pub(crate) fn new(job: JobId, step: &Step) -> Result<StepRow, StoreError> {
        Ok(StepRow {
            job_id: job.0.into(),
            step: step.id.to_string(),
            body: to_json("steps", "body", step)?,
        })
    }

    pub(crate) fn into_step(self) -> Result<Step, StoreError> {
        from_json("steps", "body", &self.body)
    }
}

impl RunRow {
    pub(crate) fn new(job: JobId, run: &Run) -> Result<RunRow, StoreError> {
        Ok(RunRow {
            job_id: job.0.into(),
            run: run.run.restarts.into(),
            body: to_json("runs", "body", run)?,
        })
    }

    pub(crate) fn into_run(self) -> Result<Run, StoreError> {
        from_json("runs", "body", &self.body)
    }
}

pub(super) fn job_id(table: &'static str, value: i64) -> Result<JobId, StoreError> {
    u32::try_from(value).map(JobId).map_err(|_| unknown(table, "job_id", &value.to_string()))
}

fn unknown(table: &'static str, column: &'static str, value: &str) -> StoreError {
    // A damaged text may be long. Its beginning is enough.
    StoreError::Column { table, column, value: value.chars().take(200).collect() }
}

pub(super) fn to_json(
    table: &'static str,
    column: &'static str,
    value: &impl Serialize,
) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Unstorable {
        table,
        column,
        value: error.to_string(),
    })
}

pub(super) fn from_json<T: DeserializeOwned>(
    table: &'static str,
    column: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| unknown(table, column, &format!("{error}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, step};
    use slotd_model::StepId;

    #[test]
    fn an_unknown_value_is_an_error_that_names_table_and_column() {
        let row = JobRow::new(&job(1), 1).expect("a small job");
        for (known, unknown) in [
            ("PENDING", "NO_SUCH_STATE"),
            ("\"None\",\"exit\"", "\"NoSuchReason\",\"exit\""),
            ("cpus", "cups"),
        ] {
            let body = row.body.replacen(known, unknown, 1);
            assert_ne!(body, row.body, "{known}");
            let error = JobRow { body, ..row.clone() }
                .into_job(Arc::default(), Vec::new())
                .expect_err("a damaged row");
            let text = error.to_string();
            assert!(text.starts_with("the database is damaged: jobs.body holds \""), "{text}");
            assert!(
                text.contains(
                    unknown.trim_matches(['"', ',']).split('"').next().unwrap_or_default()
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unknown_step_or_state_of_a_step_is_an_error() {
        let row = StepRow::new(JobId(1), &step(StepId::Batch)).expect("a small step");
        for (known, unknown) in [("\"Batch\"", "\"Extern\""), ("RUNNING", "x")] {
            let body = row.body.replacen(known, unknown, 1);
            let text =
                StepRow { body, ..row.clone() }.into_step().expect_err("a damaged row").to_string();
            assert!(text.contains("steps.body holds \"unknown variant"), "{text}");
        }
    }
}
