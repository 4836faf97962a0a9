//! `sacct --json`.

use crate::array::Shown;
use crate::json::document::{document, epoch, minutes, text_of};
use crate::json::parts::{Form, Parts, Shape};
use crate::{Ctx, job as facts, job_facts, seff};
use serde_json::{Value, json};
use slotd_model::tres::{Spread, Usage};
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, ExitCode, JobState, Step, StepId, Tres};

const PLUGIN: &str = "openapi/dbv0.0.38";

/// Returns the document with these records.
#[cfg(test)]
pub(crate) fn accounting(jobs: &[JobView], ctx: &Ctx) -> Value {
    document(PLUGIN, "jobs", accounting_records(jobs, ctx))
}

/// Returns the document for records that arrive in batches.
pub fn accounting_parts(form: (Form, Shape)) -> Parts {
    Parts::new(PLUGIN, "jobs", form)
}

/// Returns the records of a document.
pub fn accounting_records(jobs: &[JobView], ctx: &Ctx) -> Vec<Value> {
    jobs.iter().map(|j| job(j, ctx)).collect()
}

fn job(j: &JobView, ctx: &Ctx) -> Value {
    let q = &j.request;
    // The first covers all flags of the scheduler. slotd has only one, which is Slurm's main one.
    let flags = ["CLEAR_SCHEDULING", "STARTED_ON_SCHEDULE"];
    let flags = if j.run.start.is_some() { json!(flags) } else { json!([]) };
    let mut record = json!({
        "job_id": j.id.0, "name": q.name, "user": q.user, "group": q.group, "association": association(j, ctx),
        "cluster": ctx.cluster, "partition": j.partition,
        "priority": facts::priority(j), "constraints": text_of(q.constraint.as_ref()), "container": null,
        "comment": { "administrator": null }, "wckey": { "flags": [] }, "reservation": { "id": 0 },
        "mcs": { "label": "" },
        "het": { "job_id": 0, "job_offset": null }, "flags": flags, "array": array(j, ctx),
        "state": { "current": facts::accounted_state(j), "reason": j.run.reason.slurm_name() },
        "exit_code": exit_code(facts::recorded_exit(j), j.run.state),
        "derived_exit_code": exit_code(j.run.derived_exit, j.run.state),
        "kill_request_user": j.run.cancelled_by.map(|uid| uid.to_string()),
        "nodes": or_none_assigned(facts::nodes(j, ctx)), "allocation_nodes": u8::from(j.run.start.is_some()),
        "required": { "CPUs": j.tres.cpus, "memory": j.tres.mem_mb }, "submit_line": j.submit_line(),
        "working_directory": q.work_dir, "time": job_time(j, seff::recorded_usage(j), ctx),
        "tres": {
            "allocated": facts::allocated(j).map_or(json!([]), |t| tres(&t, true)),
            "requested": tres(&j.tres, true),
        },
        "steps": j.steps.iter().map(|s| step(j, s, ctx)).collect::<Vec<_>>(),
    });
    job_facts::put_accounting(j, &mut record);
    record
}

/// Returns the association with which Slurm accounts for the job: there is none without an account.
fn association(j: &JobView, ctx: &Ctx) -> Value {
    let of = |account: &String| json!({ "account": account, "cluster": ctx.cluster, "partition": null, "user": j.request.user });
    j.request.account.as_ref().map_or(Value::Null, of)
}

fn or_none_assigned(node: &str) -> &str {
    if node.is_empty() { "None assigned" } else { node }
}

fn array(j: &JobView, ctx: &Ctx) -> Value {
    let shown = Shown::of(j.id, &j.role);
    let (array_job, task_id, limit) = match &j.role {
        ArrayRole::None => (0, Value::Null, None),
        ArrayRole::Rest { limit, .. } => (j.id.0, Value::Null, *limit),
        ArrayRole::Part { array_job, .. } => (array_job.0, Value::Null, None),
        ArrayRole::Task { array_job, task } => {
            (array_job.0, (*task).into(), j.request.array.as_ref().and_then(|a| a.limit))
        }
    };
    let waiting = match shown {
        Shown::Tasks { .. } => shown.task(ctx).map_or(Value::Null, Value::from),
        Shown::Plain(_) | Shown::Task { .. } => Value::Null,
    };
    let running = json!({ "running": { "tasks": limit.unwrap_or(0) } });
    json!({ "job_id": array_job, "limits": { "max": running }, "task": waiting, "task_id": task_id })
}

/// Returns `SUCCESS`, `ERROR` with the return code, `SIGNALED` with the signal, or `PENDING` before
/// the job has ended.
fn exit_code(exit: ExitCode, state: JobState) -> Value {
    if !state.is_terminal() {
        return json!({ "status": "PENDING", "return_code": 0 });
    }
    if exit.signal != 0 {
        let signal = json!({ "signal_id": exit.signal, "name": signal_name(exit.signal) });
        return json!({ "status": "SIGNALED", "return_code": exit.status, "signal": signal });
    }
    let status = if exit.status == 0 { "SUCCESS" } else { "ERROR" };
    json!({ "status": status, "return_code": exit.status })
}

/// Linux's first 31 signals, starting at 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn signal_name(signal: i32) -> Option<&'static str> {
    usize::try_from(signal).ok()?.checked_sub(1).and_then(|i| SIGNALS.get(i)).copied()
}

fn micros(us: u64) -> Value {
    json!({ "seconds": us / 1_000_000, "microseconds": us % 1_000_000 })
}

fn job_time(j: &JobView, usage: Usage, ctx: &Ctx) -> Value {
    let end = if j.run.state.is_terminal() { j.run.end } else { None };
    json!({
        "elapsed": facts::elapsed_secs(j, ctx), "eligible": epoch(facts::eligible(j)),
        "submission": epoch(Some(j.submit)), "start": epoch(facts::start(j)), "end": epoch(end),
        "suspended": j.run.suspended_us / 1_000_000, "limit": minutes(j.request.time_limit_secs),
        "system": micros(usage.system_us), "user": micros(usage.user_us),
        "total": micros(usage.user_us.saturating_add(usage.system_us)),
    })
}

/// Returns a list of resources with Slurm's numbers.
fn tres(t: &Tres, billing: bool) -> Value {
    let one = |kind: &str, name: Value, id: u32, count: u64| json!({ "type": kind, "name": name, "id": id, "count": count });
    let mut list = vec![
        one("cpu", Value::Null, 1, u64::from(t.cpus)),
        one("mem", Value::Null, 2, t.mem_mb),
        one("node", Value::Null, 4, 1),
    ];
    if billing {
        list.push(one("billing", Value::Null, 5, u64::from(t.cpus)));
    }
    if t.gpus > 0 {
        list.push(one("gres", "gpu".into(), 1001, u64::from(t.gpus)));
    }
    if t.gpu_mem_mb > 0 {
        list.push(one("gres", "gpumem".into(), 1002, t.gpu_mem_mb));
    }
    if t.shards > 0 {
        list.push(one("gres", "shard".into(), 1003, u64::from(t.shards)));
    }
    Value::Array(list)
}

/// Returns the document of `scontrol show step --json`. A step has the same shape as among the
/// steps of a job.
pub fn steps(steps: &[(&JobView, &Step)], ctx: &Ctx) -> Value {
    document("openapi/v0.0.38", "steps", steps.iter().map(|(job, s)| step(job, s, ctx)).collect())
}

fn step(j: &JobView, s: &Step, ctx: &Ctx) -> Value {
    let node = ctx.node.as_str();
    let nodes = json!({ "list": [node], "count": 1, "range": node });
    json!({
        "step": { "job_id": j.id.0, "het": { "component": null }, "id": step_id(s.id), "name": s.name },
        "state": s.state.name(), "exit_code": exit_code(s.exit, s.state), "kill_request_user": s.cancelled_by.map(|uid| uid.to_string()), "nodes": nodes,
        "tasks": { "count": s.ntasks }, "task": { "distribution": "Unknown" }, "pid": null,
        "CPU": { "requested_frequency": { "min": 0, "max": 0 }, "governor": [] },
        "statistics": { "CPU": { "actual_frequency": 0 }, "energy": { "consumed": 0 } }, "submit_line": s.submit_line,
        "time": {
            "elapsed": j.step_elapsed(s, ctx.now).as_secs(), "start": epoch(Some(s.start)), "end": epoch(s.end),
            "suspended": s.suspended_us / 1_000_000, "system": micros(s.usage.system_us),
            "user": micros(s.usage.user_us), "total": micros(s.usage.user_us.saturating_add(s.usage.system_us)),
        },
        "tres": {
            "allocated": tres(&s.alloc.tres, false), "requested": used(s, node), "consumed": written(s, node),
        },
    })
}

/// Returns the ID of a step as in Slurm: a number, or the name of a step without one.
fn step_id(id: StepId) -> Value {
    match id {
        StepId::Num(number) => number.into(),
        StepId::Batch | StepId::Interactive => id.to_string().into(),
    }
}

/// A resource that a step used, with Slurm's names and number.
struct Used {
    kind: &'static str,
    name: Value,
    id: u32,
    amount: Spread,
}

/// Returns the usage of a step as far as Slurm reports it. As in Slurm, CPU time is in
/// milliseconds, memory and transfers are in bytes.
fn used(s: &Step, node: &str) -> Value {
    let u = &s.usage;
    let cpu_ms = u.user_us.saturating_add(u.system_us) / 1000;
    let bytes = |kb: u64| kb.saturating_mul(1024);
    let whole = |amount: u64| Spread { max: amount, task: 0, total: amount };
    if bytes(u.max_rss_kb) == 0 && cpu_ms == 0 && u.tasks.is_unmeasured() {
        return shares(s, node, &[]);
    }
    let vm = Spread {
        max: bytes(u.tasks.vm_kb.max),
        task: u.tasks.vm_kb.task,
        total: bytes(u.tasks.vm_kb.total),
    };
    let one = |kind, id, amount| Used { kind, name: Value::Null, id, amount };
    let cpu_and_memory = [one("cpu", 1, whole(cpu_ms)), one("mem", 2, whole(bytes(u.max_rss_kb)))];
    let of_tasks = [disk(u.tasks.read), one("vmem", 7, vm), one("pages", 8, u.tasks.pages)];
    let measured = if u.tasks.is_unmeasured() { None } else { Some(of_tasks) };
    let all: Vec<Used> = cpu_and_memory.into_iter().chain(measured.into_iter().flatten()).collect();
    shares(s, node, &all)
}

/// Returns the bytes that the step wrote.
fn written(s: &Step, node: &str) -> Value {
    let amount = disk(s.usage.tasks.written);
    shares(s, node, if s.usage.tasks.is_unmeasured() { &[] } else { std::slice::from_ref(&amount) })
}

fn disk(amount: Spread) -> Used {
    Used { kind: "fs", name: "disk".into(), id: 6, amount }
}

/// Returns the maximum over the tasks, the mean (also used for the minimum) and the sum.
fn shares(s: &Step, node: &str, used: &[Used]) -> Value {
    let tasks = u64::from(s.ntasks.max(1));
    let list = |amount: fn(&Spread, u64) -> u64, task: Option<fn(&Spread) -> u32>| {
        let one = |u: &Used| {
            let mut members: Vec<(&str, Value)> = vec![
                ("type", u.kind.into()),
                ("name", u.name.clone()),
                ("id", u.id.into()),
                ("count", amount(&u.amount, tasks).into()),
            ];
            if let Some(task) = task {
                members.extend([("node", node.into()), ("task", task(&u.amount).into())]);
            }
            Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
        };
        Value::Array(used.iter().map(one).collect())
    };
    json!({
        "max": list(|a, _| a.max, Some(|a| a.task)), "min": list(|a, tasks| a.total / tasks, Some(|_| 0)),
        "average": list(|a, tasks| a.total / tasks, None), "total": list(|a, _| a.total, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, ctx, job as build, step as build_step};
    use slotd_model::End;
    use slotd_model::{Reason, StepId};

    fn one(j: JobView) -> Value {
        accounting(&[j], &ctx())["jobs"][0].clone()
    }

    #[test]
    fn a_failed_job_has_nested_state_exit_code_time_and_tres() {
        let j = one(build(178, "bad")
            .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::status(5), 4, 2)
            .step(build_step(StepId::Batch, "batch", End::Failed, ExitCode::status(5), 4, Some(2)))
            .build());
        assert_eq!(j["job_id"], 178);
        assert_eq!(j["state"], json!({ "current": "FAILED", "reason": "NonZeroExitCode" }));
        assert_eq!(j["exit_code"], json!({ "status": "ERROR", "return_code": 5 }));
        assert_eq!(
            (&j["time"]["start"], &j["time"]["end"]),
            (&(NOW - 4).into(), &(NOW - 2).into())
        );
        assert_eq!((&j["time"]["elapsed"], &j["time"]["limit"]), (&2.into(), &Value::Null));
        assert_eq!(j["tres"]["allocated"][1]["count"], 100);
        assert_eq!(j["required"]["CPUs"], 1);
        assert_eq!(
            (&j["steps"][0]["step"]["id"], &j["steps"][0]["state"]),
            (&"batch".into(), &"FAILED".into())
        );
        assert_eq!(j["nodes"], "vm");
    }

    #[test]
    fn steps_are_numbers_or_names_and_the_association_follows_from_the_account() {
        let steps = [(StepId::Batch, "batch"), (StepId::Num(0), "true")]
            .map(|(id, name)| build_step(id, name, End::Completed, ExitCode::OK, 4, Some(2)));
        let [batch, numbered] = steps;
        let mut job = build(1, "a").step(batch).step(numbered).build();
        let ids = |j: &Value| [0, 1].map(|at| j["steps"][at]["step"]["id"].clone());
        let without = one(job.clone());
        assert_eq!(ids(&without), [json!("batch"), json!(0)]);
        assert_eq!(without["association"], Value::Null);
        std::sync::Arc::make_mut(&mut job.request).account = Some("lab".to_owned());
        let association = json!({ "account": "lab", "cluster": ctx().cluster, "partition": null, "user": job.request.user });
        assert_eq!(one(job)["association"], association);
    }

    #[test]
    fn signals_and_pending_jobs() {
        let killed = one(build(1, "k")
            .ended(End::Failed, Reason::RaisedSignal, ExitCode::signal(9), 4, 2)
            .build());
        assert_eq!(killed["exit_code"]["status"], "SIGNALED");
        assert_eq!(killed["exit_code"]["signal"], json!({ "signal_id": 9, "name": "KILL" }));
        let pending = one(build(2, "p").build());
        assert_eq!(pending["exit_code"]["status"], "PENDING");
        assert_eq!(killed["flags"], json!(["CLEAR_SCHEDULING", "STARTED_ON_SCHEDULE"]));
        assert_eq!(pending["flags"], json!([]));
        assert_eq!(
            (&pending["time"]["start"], &pending["nodes"]),
            (&0.into(), &"None assigned".into())
        );
        assert_eq!(pending["tres"]["allocated"], Value::Array(Vec::new()));
        assert_eq!(signal_name(64), None);
        assert_eq!(signal_name(-1), None);
    }

    #[test]
    fn every_member_of_slurms_document_is_present() {
        let j = one(build(1, "x").running(2).build());
        for key in "account comment allocation_nodes array association cluster constraints container derived_exit_code time \
            exit_code flags group het job_id name mcs nodes partition priority qos required kill_request_user reservation \
            state steps tres user wckey working_directory"
            .split_whitespace()
        {
            assert!(j.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn usage_of_a_step_is_in_milliseconds_and_bytes() {
        let mut s = build_step(StepId::Num(0), "x", End::Completed, ExitCode::OK, 4, Some(2));
        s.ntasks = 2;
        s.usage = Usage { max_rss_kb: 1624, user_us: 3000, system_us: 1000, ..Usage::default() };
        let j = one(build(1, "x").running(4).step(s).build());
        let used = &j["steps"][0]["tres"]["requested"];
        assert_eq!(
            (&used["total"][0]["count"], &used["max"][1]["count"]),
            (&4.into(), &(1624 * 1024).into())
        );
        assert_eq!(
            (&used["average"][1]["count"], &used["max"][1]["node"]),
            (&(812 * 1024).into(), &"vm".into())
        );
        assert_eq!(j["time"]["total"]["microseconds"], 4000);
        assert_eq!(j["steps"][0]["tres"]["consumed"]["total"], Value::Array(Vec::new()));
    }

    #[test]
    fn usage_of_the_tasks_has_slurms_resource_numbers() {
        let mut s = build_step(StepId::Num(0), "x", End::Completed, ExitCode::OK, 4, Some(2));
        s.ntasks = 2;
        s.usage.tasks.vm_kb = Spread { max: 3, task: 1, total: 4 };
        s.usage.tasks.written = Spread { max: 10, task: 1, total: 12 };
        let j = one(build(1, "x").running(4).step(s).build());
        let tres = &j["steps"][0]["tres"];
        let most = json!({ "type": "vmem", "name": null, "id": 7, "count": 3072, "node": "vm", "task": 1 });
        assert_eq!(tres["requested"]["max"][3], most);
        assert_eq!(tres["requested"]["average"][3]["count"], 2048);
        let mean = json!({ "type": "fs", "name": "disk", "id": 6, "count": 6 });
        assert_eq!(tres["consumed"]["average"], Value::Array(vec![mean]));
    }
}
