//! Jobs that were running when the machine went down. They end as recorded, or with NODE_FAIL,
//! before this daemon serves its first client.

use crate::actors::launch_plan::fill_paths;
use slotd_exec::earlier_boot;
use slotd_model::view::JobView;
use slotd_model::{Job, JobId, StepId, Timestamp};
use slotd_sched::{Core, Cx, Interrupted, Outbox};
use slotd_sys::clock;
use slotd_sys::paths::Paths;
use std::path::Path;

/// Returns when an earlier daemon last made something durable. Must be called before the database
/// is opened.
pub fn last_commit(paths: &Paths) -> Option<Timestamp> {
    let database = paths.db();
    let log = database.with_extension("db-wal");
    earlier_boot::last_written(
        [database.as_path(), log.as_path()],
        clock::booted().unwrap_or_else(clock::now),
    )
}

/// Ends the jobs of an earlier boot. The result must be committed before any other decision.
pub fn end_interrupted(
    core: &mut Core,
    paths: &Paths,
    last_commit: Option<Timestamp>,
    now: Timestamp,
) -> Outbox {
    let mut cx = Cx::at(now);
    for id in core.records().ran_before(clock::booted()) {
        end_one(core, id, paths, last_commit, &mut cx);
    }
    cx.out
}

/// Ends one job. `last_commit` is the time of the last sign of life from its daemon.
fn end_one(core: &mut Core, id: JobId, paths: &Paths, last_commit: Option<Timestamp>, cx: &mut Cx) {
    let Some(job) = core.job(id) else { return };
    let (dir, run) = (paths.job_dir(id), job.run.restarts);
    let own = job.own_step_id().and_then(|_| earlier_boot::record(&dir, StepId::Batch, run));
    let live = job.steps.iter().filter(|step| !step.state.is_terminal());
    let steps = live
        .filter_map(|step| Some((step.id, earlier_boot::record(&dir, step.id, run)?)))
        .collect();
    let last_sign = last_sign(job, &core.config().host.name, &dir, last_commit);
    let how = if own.is_some() { "its end was recorded" } else { "how it ended is unknown" };
    log::warn!("job {id} was running when the machine went down: {how}");
    earlier_boot::clean(&dir);
    core.node_failed(Interrupted { job: id, own, steps, last_sign }, cx);
}

/// Returns when the job is last known to have run before the machine booted. Signs are writes to
/// its directory or its output, a commit of its daemon, and starts and ends of its steps.
fn last_sign(job: &Job, host: &str, dir: &Path, last_commit: Option<Timestamp>) -> Timestamp {
    let mut view = JobView { job: job.without_steps(), ..JobView::default() };
    fill_paths(&mut view, host);
    let traces = [dir, Path::new(&view.std_out), Path::new(&view.std_err)];
    let written = earlier_boot::last_written(traces, clock::booted().unwrap_or_else(clock::now));
    let steps = job.steps.iter().filter_map(|step| step.end.max(Some(step.start)));
    let signs =
        steps.chain(written).chain(last_commit).chain(job.run.start).chain(job.run.suspended_at);
    signs.max().unwrap_or(job.submit)
}
