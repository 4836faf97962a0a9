//! The shape of newer Slurm (data_parser v0.0.40, Slurm 23.11), converted from the older one: a
//! number that may be missing or unlimited is an object with `set`, `infinite` and `number`, and
//! states are lists.
//!
//! Only jobs and nodes differ; other records are the same in both shapes.

use crate::ctx::VERSION;
use serde_json::{Map, Value, json};
use slotd_model::CLUSTER;

/// The numbers of squeue's jobs.
const OF_JOB: [&str; 38] = [
    "accrue_time",
    "array_job_id",
    "array_max_tasks",
    "array_task_id",
    "billable_tres",
    "cores_per_socket",
    "cpu_frequency_governor",
    "cpu_frequency_maximum",
    "cpu_frequency_minimum",
    "cpus",
    "cpus_per_task",
    "deadline",
    "delay_boot",
    "eligible_time",
    "end_time",
    "het_job_id",
    "het_job_offset",
    "last_sched_evaluation",
    "max_cpus",
    "max_nodes",
    "memory_per_cpu",
    "memory_per_node",
    "minimum_cpus_per_node",
    "minimum_tmp_disk_per_node",
    "node_count",
    "pre_sus_time",
    "preempt_time",
    "priority",
    "resize_time",
    "sockets_per_node",
    "start_time",
    "submit_time",
    "suspend_time",
    "tasks",
    "tasks_per_core",
    "tasks_per_node",
    "threads_per_core",
    "time_minimum",
];

/// The numbers of the node.
const OF_NODE: [&str; 4] = ["boot_time", "last_busy", "reason_changed_at", "slurmd_start_time"];

/// Converts a whole document to the newer shape.
pub fn document(mut whole: Value) -> Value {
    let Some(members) = whole.as_object_mut() else { return whole };
    for (name, value) in members.iter_mut() {
        match (name.as_str(), value) {
            ("meta", meta) => *meta = newer_meta(meta),
            (_, Value::Array(records)) => {
                records.iter_mut().for_each(|one| *one = record(one.take()));
            }
            _ => {}
        }
    }
    members.insert("warnings".to_owned(), json!([]));
    whole
}

fn newer_meta(older: &Value) -> Value {
    let [major, minor, micro] =
        ["major", "minor", "micro"].map(|part| older["Slurm"]["version"][part].to_string());
    json!({
        "plugin": {
            "type": older["plugin"]["type"], "name": older["plugin"]["name"],
            "data_parser": "data_parser/v0.0.40", "accounting_storage": "",
        },
        "command": [],
        "slurm": { "version": { "major": major, "minor": minor, "micro": micro }, "release": VERSION, "cluster": CLUSTER },
    })
}

/// Converts one record of a document.
pub(crate) fn record(mut older: Value) -> Value {
    if let Some(members) = older.as_object_mut() {
        if members.contains_key("job_state") {
            of_queue(members);
        } else if members.contains_key("exit_code") {
            of_accounting(members);
        } else if members.contains_key("hostname") {
            of_node(members);
        }
    }
    older
}

fn of_queue(job: &mut Map<String, Value>) {
    wrap_all(job, &OF_JOB);
    change(job, "time_limit", |limit| number(limit, true));
    for name in ["exit_code", "derived_exit_code"] {
        change(job, name, |status| {
            let status = status.as_i64().unwrap_or_default();
            exit_code(status / 256, status % 256, "")
        });
    }
    ["job_state", "shared"].into_iter().for_each(|name| change(job, name, list));
    change(job, "profile", |kinds| words(kinds, str::to_ascii_uppercase));
    change(job, "flags", |flags| {
        words(flags, |flag| flag.replace("_INV_DEP", "_INVALID_DEPENDENCY"))
    });
}

fn of_accounting(job: &mut Map<String, Value>) {
    wrap_all(job, &["priority"]);
    for name in ["exit_code", "derived_exit_code"] {
        change(job, name, |old| {
            let signal = &old["signal"];
            let [code, id] =
                [&old["return_code"], &signal["signal_id"]].map(|n| n.as_i64().unwrap_or_default());
            let mut newer = exit_code(code, id, signal["name"].as_str().unwrap_or_default());
            // PENDING until the job has ended.
            newer["status"] = list(&old["status"]);
            newer
        });
    }
    for (object, name, of) in [
        ("state", "current", list as fn(&Value) -> Value),
        ("time", "limit", |limit| number(limit, true)),
        ("array", "task_id", |task| number(task, false)),
        ("het", "job_offset", |offset| number(offset, false)),
    ] {
        if let Some(members) = job.get_mut(object).and_then(Value::as_object_mut) {
            change(members, name, of);
        }
    }
}

fn of_node(node: &mut Map<String, Value>) {
    wrap_all(node, &OF_NODE);
    let flags = node.remove("state_flags");
    change(node, "state", |state| {
        let name = state.as_str().unwrap_or_default().to_ascii_uppercase();
        let flags = flags.as_ref().and_then(Value::as_array).into_iter().flatten().cloned();
        std::iter::once(Value::from(name)).chain(flags).collect()
    });
    if let Some(free) = node.remove("free_memory") {
        node.insert("free_mem".to_owned(), number(&free, false));
    }
}

fn wrap_all(members: &mut Map<String, Value>, names: &[&str]) {
    names.iter().for_each(|name| change(members, name, |value| number(value, false)));
}

fn change(members: &mut Map<String, Value>, name: &str, to: impl FnOnce(&Value) -> Value) {
    if let Some(value) = members.get_mut(name) {
        *value = to(value);
    }
}

/// Converts a number; `null` means none, or no limit.
fn number(value: &Value, is_limit: bool) -> Value {
    let is_set = value.is_number();
    let shown = if is_set { value.clone() } else { 0.into() };
    json!({ "set": is_set, "infinite": !is_set && is_limit, "number": shown })
}

/// Converts a word to a list, and `null` to an empty list.
fn list(value: &Value) -> Value {
    if value.is_null() { json!([]) } else { json!([value]) }
}

/// Converts the words of a list, and `null` to an empty list.
fn words(value: &Value, to: impl Fn(&str) -> String) -> Value {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(to).collect()
}

fn exit_code(code: i64, signal: i64, name: &str) -> Value {
    let status = match (code, signal) {
        (0, 0) => "SUCCESS",
        (_, 0) => "ERROR",
        _ => "SIGNALED",
    };
    let id = if signal == 0 { Value::Null } else { signal.into() };
    json!({
        "status": [status], "return_code": number(&code.into(), false),
        "signal": { "id": number(&id, false), "name": name },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, ctx, job, node};
    use crate::json::{accounting_records, jobs, nodes};
    use slotd_model::{End, ExitCode, JobRequest, Reason};

    #[test]
    fn numbers_of_a_job_say_whether_they_are_set_or_unlimited() {
        let running = document(jobs(&[job(172, "runner").running(4).limit(1800).build()], &ctx()));
        let one = &running["jobs"][0];
        for (name, value) in [
            ("start_time", json!({ "set": true, "infinite": false, "number": NOW - 4 })),
            ("time_limit", json!({ "set": true, "infinite": false, "number": 30 })),
            ("cpus", json!({ "set": true, "infinite": false, "number": 1 })),
            ("array_task_id", json!({ "set": false, "infinite": false, "number": 0 })),
            ("job_state", json!(["RUNNING"])),
            ("shared", json!([])),
            ("job_id", json!(172)),
            ("name", json!("runner")),
        ] {
            assert_eq!(one[name], value, "{name}");
        }
        assert_eq!(one["exit_code"]["status"], json!(["SUCCESS"]));
        assert_eq!((&one["flags"], &one["profile"]), (&json!(["JOB_WAS_RUNNING"]), &json!([])));
        let asks = |r: &mut JobRequest| {
            (r.kill_on_invalid_dep, r.profile) = (Some(false), Some("Energy,Task".to_owned()));
        };
        let idle = document(jobs(&[job(173, "idle").asks(asks).build()], &ctx()));
        let idle = &idle["jobs"][0];
        assert_eq!(idle["flags"], json!(["NO_KILL_INVALID_DEPENDENCY"]));
        assert_eq!(idle["profile"], json!(["ENERGY", "TASK"]));
        assert_eq!(running["meta"]["plugin"]["data_parser"], "data_parser/v0.0.40");
        assert_eq!(running["meta"]["slurm"]["version"]["major"], "22");
        let endless = document(jobs(&[job(1, "f").build()], &ctx()));
        assert_eq!(
            endless["jobs"][0]["time_limit"],
            json!({ "set": false, "infinite": true, "number": 0 })
        );
    }

    #[test]
    fn accounting_records_have_the_newer_shape_too() {
        let killed = job(1, "f")
            .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::signal(9), 3, 2)
            .build();
        let all: Vec<Value> =
            accounting_records(&[killed], &ctx()).into_iter().map(record).collect();
        let one = &all[0];
        assert_eq!(one["state"]["current"], json!(["FAILED"]));
        assert_eq!(one["exit_code"]["signal"]["id"]["number"], 9);
        assert_eq!(one["exit_code"]["status"], json!(["SIGNALED"]));
        assert_eq!(one["time"]["limit"]["infinite"], true);
    }

    #[test]
    fn the_state_of_a_node_is_a_list() {
        let document = document(nodes(&node(0), &ctx()));
        let one = &document["nodes"][0];
        assert_eq!(one["state"], json!(["IDLE"]));
        assert_eq!(one["free_mem"]["set"], true);
        assert!(one["boot_time"]["number"].is_number() && document["warnings"] == json!([]));
    }
}
