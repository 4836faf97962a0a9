//! The earlier runs of requeued jobs.

use crate::error::StoreError;
use crate::load::CHUNK;
use crate::row::{self, RunRow, StepRow};
use crate::schema::{runs, steps};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use slotd_model::run::Run;
use slotd_model::{JobId, Timestamp};
use std::collections::BTreeMap;

/// Stores a finished run. Moves the job's steps to it, since the next run has none yet. Ended steps
/// of a step manager are in the database but not in `run`.
pub(super) fn put(conn: &mut SqliteConnection, job: JobId, run: &Run) -> Result<(), StoreError> {
    let known: Vec<StepRow> = steps::table
        .filter(steps::job_id.eq(i64::from(job.0)))
        .select(StepRow::as_select())
        .load(conn)
        .map_err(StoreError::sql("read the steps of a run"))?;
    let mut run = run.clone();
    for step in known.into_iter().map(StepRow::into_step) {
        let step = step?;
        if step.managed && !run.steps.iter().any(|known| known.id == step.id) {
            run.steps.push(step);
        }
    }
    run.steps.sort_by_key(|step| step.id);
    let row = RunRow::new(job, &run)?;
    diesel::replace_into(runs::table)
        .values(&row)
        .execute(conn)
        .map_err(StoreError::sql("store a run"))?;
    diesel::delete(steps::table.filter(steps::job_id.eq(row.job_id)))
        .execute(conn)
        .map_err(StoreError::sql("delete the steps of a run"))?;
    Ok(())
}

/// Returns the jobs that have a run that ended at or after `since`.
pub(super) fn jobs_since(
    conn: &mut SqliteConnection,
    since: Option<Timestamp>,
) -> Result<Vec<JobId>, StoreError> {
    let since = since.map_or(i64::MIN, |at| at.0);
    let ids: Vec<i64> = runs::table
        .filter(runs::end_us.ge(since))
        .select(runs::job_id)
        .distinct()
        .load(conn)
        .map_err(StoreError::sql("read which jobs ran before"))?;
    ids.into_iter().map(|id| row::job_id("runs", id)).collect()
}

/// Returns the runs of these jobs, in order. Logs and skips unreadable ones.
pub(super) fn of_jobs(
    conn: &mut SqliteConnection,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<BTreeMap<JobId, Vec<Run>>, StoreError> {
    let ids: Vec<i64> = jobs.into_iter().map(|id| i64::from(id.0)).collect();
    let mut found: BTreeMap<JobId, Vec<Run>> = BTreeMap::new();
    for ids in ids.chunks(CHUNK) {
        let rows: Vec<RunRow> = runs::table
            .filter(runs::job_id.eq_any(ids))
            .order((runs::job_id, runs::run))
            .select(RunRow::as_select())
            .load(conn)
            .map_err(StoreError::sql("read runs"))?;
        for row in rows {
            let job = row::job_id("runs", row.job_id)?;
            match row.into_run() {
                Ok(run) => found.entry(job).or_default().push(run),
                Err(why) => {
                    log::warn!("skipping an earlier run of job {job}, which cannot be read: {why}")
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Place, ended_job, insert, put, step};
    use diesel::connection::SimpleConnection;
    use slotd_model::change::Change;
    use slotd_model::query::JobQuery;
    use slotd_model::run::{Run, RunState};
    use slotd_model::{End, ExitCode, JobId, JobRef, JobState, StepId, Timestamp};

    fn run(number: u32, end: i64, requeued: bool) -> Run {
        let job = ended_job(1, End::Cancelled, 20, end);
        let steps = vec![step(StepId::Num(0))];
        let run = RunState { restarts: number, exit: ExitCode::signal(15), ..job.run };
        Run { requeued, submit: None, run, steps }
    }

    #[test]
    fn earlier_runs_are_listed_first_and_found_by_their_own_times() {
        let place = Place::new();
        let mut store = place.store();
        let mut job = ended_job(1, End::Completed, 70, 90);
        job.run.restarts = 2;
        job.steps = vec![step(StepId::Num(3))];
        put(&mut store, vec![insert(&job), insert(&ended_job(2, End::Completed, 70, 95))]);
        for (number, end, requeued) in [(1, 60, true), (0, 30, false)] {
            let run = Box::new(run(number, end, requeued));
            put(&mut store, vec![Change::EndRun { job: JobId(1), run }]);
        }
        let found = |filter: JobQuery| -> Vec<(u32, u32, bool, usize)> {
            let found = place.reader().accounting_with_runs(&filter).unwrap().0;
            found
                .iter()
                .map(|run| {
                    (run.record.id.0, run.record.run.restarts, run.requeued, run.record.steps.len())
                })
                .collect()
        };
        let all = [(1, 0, false, 1), (1, 1, true, 1)];
        assert_eq!(found(JobQuery::default()), all);
        assert_eq!(
            found(JobQuery { jobs: vec![JobRef::job(JobId(1))], ..JobQuery::default() }),
            all
        );
        assert_eq!(
            found(JobQuery { jobs: vec![JobRef::job(JobId(2))], ..JobQuery::default() }),
            []
        );
        assert_eq!(
            found(JobQuery { since: Some(Timestamp::from_secs(40)), ..JobQuery::default() }),
            all[1..]
        );
        let cancelled =
            JobQuery { states: Some(vec![JobState::Ended(End::Cancelled)]), ..JobQuery::default() };
        assert_eq!(found(cancelled), all[..1], "a requeued run was not cancelled");
        let mut reader = place.reader();
        assert_eq!(
            reader.job(JobId(1)).unwrap().unwrap().steps,
            [],
            "the steps moved to their run"
        );
        let damage = "UPDATE runs SET body = json_set(body, '$.run.state', 'Lost') WHERE run = 0";
        store.conn.batch_execute(damage).unwrap();
        assert_eq!(
            found(JobQuery::default()),
            all[1..],
            "an unreadable run does not hide the others"
        );
    }
}
