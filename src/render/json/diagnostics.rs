//! `sdiag --json`.

use crate::json::document::{document_of, epoch, merged};
use crate::sdiag::{cycles_per_minute, table_size};
use serde_json::{Value, json};
use slotd_model::diagnostics::{Diagnostics, Tally, mean};

/// Returns the document with the statistics. `commits` and `daemon_start` are slotd's own.
pub fn diagnostics(d: &Diagnostics) -> Value {
    let statistics = merged([daemon(d), cycles(d), backfill(d), requests(d)]);
    document_of("openapi/v0.0.38", "statistics", statistics)
}

fn daemon(d: &Diagnostics) -> Value {
    json!({
        "parts_packed": 0, "req_time": epoch(Some(d.now)), "req_time_start": epoch(Some(d.since)),
        "daemon_start": epoch(Some(d.daemon_start)), "server_thread_count": d.connections, "agent_queue_size": 0,
        "agent_count": d.runners, "agent_thread_count": 0, "dbd_agent_queue_size": d.commits_in_flight,
        "gettimeofday_latency": d.clock_us, "commits": commits(&d.commits),
    })
}

fn cycles(d: &Diagnostics) -> Value {
    json!({
        "schedule_cycle_max": d.cycles.max_us, "schedule_cycle_last": d.cycles.last_us,
        "schedule_cycle_total": d.cycles.count, "schedule_cycle_mean": d.cycles.mean_us(),
        "schedule_cycle_mean_depth": mean(d.depth, d.cycles.count),
        "schedule_cycle_per_minute": cycles_per_minute(d).unwrap_or(0), "schedule_queue_length": d.queue_length,
        "jobs_submitted": d.jobs.submitted, "jobs_started": d.jobs.started, "jobs_completed": d.jobs.completed,
        "jobs_canceled": d.jobs.cancelled, "jobs_failed": d.jobs.failed, "jobs_pending": d.pending,
        "jobs_running": d.running, "job_states_ts": epoch(Some(d.now)),
    })
}

fn backfill(d: &Diagnostics) -> Value {
    let b = &d.backfill;
    json!({
        "bf_backfilled_jobs": b.jobs_ever, "bf_last_backfilled_jobs": b.jobs, "bf_backfilled_het_jobs": 0,
        "bf_cycle_counter": b.cycles.count, "bf_cycle_mean": b.cycles.mean_us(), "bf_cycle_max": b.cycles.max_us,
        "bf_cycle_last": b.cycles.last_us, "bf_last_depth": b.last_depth, "bf_last_depth_try": b.last_depth,
        "bf_depth_mean": mean(b.depth, b.cycles.count), "bf_depth_mean_try": mean(b.depth, b.cycles.count),
        "bf_queue_len": b.last_queue_length, "bf_queue_len_mean": mean(b.queue_length, b.cycles.count),
        "bf_table_size": table_size(d), "bf_table_size_mean": table_size(d), "bf_when_last_cycle": epoch(b.last_at),
        "bf_active": false,
    })
}

fn requests(d: &Diagnostics) -> Value {
    let by_type = d.requests.iter().map(|r| rpc("message_type", &r.name, "type_id", r.id, r.tally));
    let by_user = d.users.iter().map(|u| rpc("user", &u.name, "user_id", u.uid, u.tally));
    json!({
        "rpcs_by_message_type": by_type.collect::<Vec<_>>(), "rpcs_by_user": by_user.collect::<Vec<_>>(),
    })
}

fn rpc(name_key: &str, name: &str, id_key: &str, id: u32, tally: Tally) -> Value {
    let times = json!({ "count": tally.count, "average_time": tally.mean_us(), "total_time": tally.total_us });
    merged([json!({ (name_key): name, (id_key): id }), times])
}

fn commits(tally: &Tally) -> Value {
    json!({ "count": tally.count, "last": tally.last_us, "max": tally.max_us, "mean": tally.mean_us() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdiag::tests::busy;

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
