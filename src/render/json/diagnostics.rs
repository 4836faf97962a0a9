//! `sdiag --json`.

use crate::model::diagnostics::{Diagnostics, Tally, mean};
use crate::render::json::document::{document_of, epoch, object};
use crate::render::sdiag::{cycles_per_minute, table_size};
use serde_json::Value;

/// The document with the statistics. `commits` and `daemon_start` are slotd's own.
pub fn diagnostics(d: &Diagnostics) -> Value {
    let b = &d.backfill;
    let statistics = object([
        ("parts_packed", 0.into()),
        ("req_time", epoch(Some(d.now))),
        ("req_time_start", epoch(Some(d.since))),
        ("daemon_start", epoch(Some(d.daemon_start))),
        ("server_thread_count", d.connections.into()),
        ("agent_queue_size", 0.into()),
        ("agent_count", d.runners.into()),
        ("agent_thread_count", 0.into()),
        ("dbd_agent_queue_size", d.commits_in_flight.into()),
        ("gettimeofday_latency", d.clock_us.into()),
        ("schedule_cycle_max", d.cycles.max_us.into()),
        ("schedule_cycle_last", d.cycles.last_us.into()),
        ("schedule_cycle_total", d.cycles.count.into()),
        ("schedule_cycle_mean", d.cycles.mean_us().into()),
        ("schedule_cycle_mean_depth", mean(d.depth, d.cycles.count).into()),
        ("schedule_cycle_per_minute", cycles_per_minute(d).unwrap_or(0).into()),
        ("schedule_queue_length", d.queue_length.into()),
        ("jobs_submitted", d.jobs.submitted.into()),
        ("jobs_started", d.jobs.started.into()),
        ("jobs_completed", d.jobs.completed.into()),
        ("jobs_canceled", d.jobs.cancelled.into()),
        ("jobs_failed", d.jobs.failed.into()),
        ("jobs_pending", d.pending.into()),
        ("jobs_running", d.running.into()),
        ("job_states_ts", epoch(Some(d.now))),
        ("bf_backfilled_jobs", b.jobs_ever.into()),
        ("bf_last_backfilled_jobs", b.jobs.into()),
        ("bf_backfilled_het_jobs", 0.into()),
        ("bf_cycle_counter", b.cycles.count.into()),
        ("bf_cycle_mean", b.cycles.mean_us().into()),
        ("bf_cycle_max", b.cycles.max_us.into()),
        ("bf_cycle_last", b.cycles.last_us.into()),
        ("bf_last_depth", b.last_depth.into()),
        ("bf_last_depth_try", b.last_depth.into()),
        ("bf_depth_mean", mean(b.depth, b.cycles.count).into()),
        ("bf_depth_mean_try", mean(b.depth, b.cycles.count).into()),
        ("bf_queue_len", b.last_queue_length.into()),
        ("bf_queue_len_mean", mean(b.queue_length, b.cycles.count).into()),
        ("bf_table_size", table_size(d).into()),
        ("bf_table_size_mean", table_size(d).into()),
        ("bf_when_last_cycle", epoch(b.last_at)),
        ("bf_active", false.into()),
        (
            "rpcs_by_message_type",
            d.requests.iter().map(|r| rpc("message_type", &r.name, "type_id", r.id, r.tally)).collect(),
        ),
        ("rpcs_by_user", d.users.iter().map(|u| rpc("user", &u.name, "user_id", u.uid, u.tally)).collect()),
        ("commits", commits(&d.commits)),
    ]);
    document_of("openapi/v0.0.38", "statistics", statistics)
}

fn rpc(name_key: &str, name: &str, id_key: &str, id: u32, tally: Tally) -> Value {
    object([
        (name_key, name.into()),
        (id_key, id.into()),
        ("count", tally.count.into()),
        ("average_time", tally.mean_us().into()),
        ("total_time", tally.total_us.into()),
    ])
}

fn commits(tally: &Tally) -> Value {
    object([
        ("count", tally.count.into()),
        ("last", tally.last_us.into()),
        ("max", tally.max_us.into()),
        ("mean", tally.mean_us().into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sdiag::tests::busy;

    #[test]
    fn the_statistics_have_slurms_members() {
        let document = diagnostics(&busy());
        let statistics = &document["statistics"];
        for (key, value) in [
            ("jobs_submitted", 12),
            ("jobs_canceled", 2),
            ("schedule_cycle_mean", 100),
            ("schedule_cycle_per_minute", 5),
            ("bf_depth_mean", 3),
            ("dbd_agent_queue_size", 1),
        ] {
            assert_eq!(statistics[key], value, "{key}");
        }
        let rpc = &statistics["rpcs_by_message_type"][0];
        assert_eq!((&rpc["message_type"], &rpc["type_id"]), (&"REQUEST_PING".into(), &1008.into()));
        assert_eq!((&rpc["count"], &rpc["average_time"]), (&2.into(), &15.into()));
        assert_eq!(statistics["rpcs_by_user"][0]["user"], "lab");
        assert_eq!(document["meta"]["plugin"]["name"], "slotd");
    }
}
