//! `squeue --json` and `scontrol show job --json`.

use crate::array::Shown;
use crate::json::document::{document, epoch, minutes, text_of};
use crate::json::parts::{Form, Parts, Shape};
use crate::json::record::{Members, Record, Sorter, members};
use crate::{Ctx, job as facts, job_facts, tres};
use serde_json::{Value, json};
use slotd_model::node::ranges;
use slotd_model::request::{MemRequest, Sharing};
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, ExitCode};

const PLUGIN: &str = "openapi/v0.0.38";

/// Returns the document with these jobs.
pub fn jobs(jobs: &[JobView], ctx: &Ctx) -> Value {
    document(PLUGIN, "jobs", jobs_records(jobs, Shape::Slurm22, ctx).map(Value::from).collect())
}

/// Returns the document for jobs that arrive in batches.
pub fn jobs_parts(form: (Form, Shape)) -> Parts {
    Parts::new(PLUGIN, "jobs", form)
}

/// Returns the records of a document.
pub fn jobs_records<'a>(
    jobs: &'a [JobView],
    shape: Shape,
    ctx: &'a Ctx,
) -> impl Iterator<Item = Record<'a>> {
    let mut sorter = Sorter::default();
    jobs.iter().map(move |j| sorter.record(job(j, shape, ctx)))
}

/// Returns Slurm's raw wait status.
fn wait_status(exit: ExitCode) -> i64 {
    i64::from(exit.status) * 256 + i64::from(exit.signal)
}

fn job<'a>(j: &'a JobView, shape: Shape, ctx: &'a Ctx) -> [Members<'a>; 6] {
    [
        identity(j, ctx),
        job_facts::queue(j),
        request(j, shape, ctx),
        life(j, ctx),
        place(j, ctx),
        absent(),
    ]
}

fn identity<'a>(j: &'a JobView, ctx: &'a Ctx) -> Members<'a> {
    let q = &j.request;
    let shown = Shown::of(j.id, &j.role);
    let (task, limit) = match &j.role {
        ArrayRole::None => (None, None),
        ArrayRole::Task { task, .. } => (Some(*task), q.array.as_ref().and_then(|a| a.limit)),
        ArrayRole::Rest { limit, .. } => (None, *limit),
        ArrayRole::Part { .. } => (None, None),
    };
    let (array, tasks) = match &shown {
        Shown::Plain(_) => (0, String::new()),
        Shown::Task { array, .. } => (array.0, String::new()),
        Shown::Tasks { array, .. } => (array.0, shown.task(ctx).unwrap_or_default()),
    };
    members! {
        "job_id": j.id.0, "array_job_id": array, "array_task_id": task, "array_task_string": tasks,
        "array_max_tasks": limit.unwrap_or(0), "name": &q.name, "user_id": q.uid, "user_name": &q.user,
        "group_id": q.gid, "group_name": &q.group, "cluster": &ctx.cluster, "partition": &*j.partition,
    }
}

fn request<'a>(j: &'a JobView, shape: Shape, ctx: &Ctx) -> Members<'a> {
    let q = &j.request;
    // Slurm 22.05 always has null here, and its clients have no type for a number.
    let cpus_per_task = q.cpus_per_task.filter(|_| shape == Shape::Slurm23);
    let (per_cpu, per_node) = match q.mem {
        MemRequest::PerCpu(mb) => (Some(mb), None),
        MemRequest::Default | MemRequest::None | MemRequest::PerNode(_) | MemRequest::PerGpu(_) => {
            (None, Some(j.tres.mem_mb))
        }
    };
    let shared = match q.sharing {
        Sharing::Default => None,
        Sharing::Exclusive => Some("none"),
        Sharing::User => Some("user"),
        Sharing::Mcs => Some("mcs"),
        Sharing::Oversubscribe => Some("oversubscribe"),
    };
    let profile =
        q.profile.as_ref().map(|kinds| kinds.split(',').map(Value::from).collect::<Value>());
    members! {
        "batch_flag": facts::is_batch(j), "command": facts::command(j).unwrap_or_default(),
        "current_working_directory": &q.work_dir, "standard_error": &j.std_err, "standard_input": &j.std_in,
        "standard_output": &j.std_out, "tasks": q.task_count(), "cpus_per_task": cpus_per_task,
        "tasks_per_node": q.ntasks_per_node.unwrap_or(0), "cpus": facts::allocated_or_asked(j).cpus, "node_count": 1,
        "minimum_cpus_per_node": facts::min_cpus(j), "memory_per_cpu": per_cpu, "memory_per_node": per_node,
        "shared": shared, "features": text_of(q.constraint.as_ref()),
        "contiguous": q.contiguous, "required_nodes": q.nodelist.to_string(),
        "excluded_nodes": q.exclude.to_string(), "tres_req_str": tres::scontrol(&j.tres, ctx.units),
        "tres_per_job": facts::tres_per_job(j).unwrap_or_default(),
        "tres_per_node": facts::tres_per_node(j).unwrap_or_default(),
        "tres_per_socket": facts::tres_per_socket(j).unwrap_or_default(),
        "tres_per_task": facts::tres_per_task(j).unwrap_or_default(),
        "requeue": j.runs_again(), "nice": Some(q.nice).filter(|nice| *nice != 0),
        "priority": facts::priority(j), "dependency": facts::dependency(j).unwrap_or_default(),
        "time_limit": minutes(q.time_limit_secs), "time_minimum": q.time_min_secs.map_or(0, |s| s.div_ceil(60)),
        "deadline": epoch(q.deadline), "delay_boot": q.delay_boot_secs.unwrap_or(0),
        "minimum_tmp_disk_per_node": q.tmp_disk_mb.unwrap_or(0), "profile": profile,
        "tres_bind": facts::tres_bind(j).unwrap_or_default(),
    }
}

fn life<'a>(j: &'a JobView, ctx: &'a Ctx) -> Members<'a> {
    let suspended_secs = if j.run.suspended_at.is_some() { facts::elapsed_secs(j, ctx) } else { 0 };
    let kills = j.request.kill_on_invalid_dep;
    let flags = [
        (kills == Some(true), "KILL_INV_DEP"),
        (kills == Some(false), "NO_KILL_INV_DEP"),
        (j.run.start.is_some(), "JOB_WAS_RUNNING"),
    ];
    let flags: Value =
        flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
    members! {
        "job_state": facts::state_name(j), "state_reason": j.run.reason.slurm_name(), "state_description": "", "flags": flags,
        "submit_time": epoch(Some(j.submit)), "eligible_time": epoch(facts::eligible(j)),
        "accrue_time": epoch(j.run.eligible), "start_time": epoch(facts::start_or_expected(j)),
        "end_time": epoch(facts::end_or_expected(j, ctx)), "suspend_time": epoch(j.run.suspended_at),
        "preempt_time": epoch(j.run.preempted.as_ref().map(|by| by.at)), "pre_sus_time": suspended_secs, "last_sched_evaluation": epoch(facts::last_evaluation(j, ctx)),
        "restart_cnt": j.run.restarts, "exit_code": wait_status(j.run.exit),
        "derived_exit_code": wait_status(j.run.derived_exit),
    }
}

fn place<'a>(j: &'a JobView, ctx: &'a Ctx) -> Members<'a> {
    let node = facts::nodes(j, ctx);
    let resources = match &j.run.alloc {
        Some(a) if j.run.start.is_some() => json!({
            "nodes": node, "allocated_cpus": a.tres.cpus, "allocated_hosts": 1,
            "allocated_nodes": [
                { "nodename": node, "cpus_used": a.tres.cpus, "memory_used": 0, "memory_allocated": a.tres.mem_mb },
            ],
        }),
        _ => json!({}),
    };
    let gres = j.run.alloc.as_ref().and_then(|a| {
        let gres = tres::gres(&a.tres, ctx.units)?;
        Some(format!("{gres}(IDX:{})", ranges(&a.gpu_ids)))
    });
    let allocated = facts::allocated(j).map(|t| tres::scontrol(&t, ctx.units)).unwrap_or_default();
    members! {
        "nodes": node, "batch_host": node, "job_resources": resources, "gres_detail": json!(gres.as_slice()),
        "tres_alloc_str": allocated, "billable_tres": facts::allocated_or_asked(j).cpus,
    }
}

/// Returns members without a value on a single host. Programs still expect them.
fn absent() -> Members<'static> {
    members! {
        "association_id": 0, "batch_features": "", "burst_buffer": "", "burst_buffer_state": "",
        "cluster_features": "", "container": "", "core_spec": Value::Null, "cores_per_socket": Value::Null,
        "cpu_frequency_governor": Value::Null, "cpu_frequency_maximum": Value::Null, "cpu_frequency_minimum": Value::Null,
        "cpus_per_tres": "", "federation_origin": "", "federation_siblings_active": "",
        "federation_siblings_viable": "", "het_job_id": 0, "het_job_id_set": "", "het_job_offset": 0, "max_cpus": 0,
        "max_nodes": 0, "mcs_label": "", "memory_per_tres": "",
        "reboot": false, "resize_time": 0,
        "show_flags": json!(["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"]), "sockets_per_board": 0, "sockets_per_node": Value::Null,
        "tasks_per_board": 0, "tasks_per_core": Value::Null, "tasks_per_socket": Value::Null, "thread_spec": Value::Null,
        "threads_per_core": Value::Null, "tres_freq": "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, ctx, job as build};
    use slotd_model::binding::GpuBind;
    use slotd_model::{End, Reason};

    fn one(j: JobView) -> Value {
        jobs(&[j], &ctx())["jobs"][0].clone()
    }

    #[test]
    fn a_running_job_has_slurms_members() {
        let j = one(build(172, "runner").running(4).limit(1800).build());
        // The members of Slurm's own document that describe this job.
        for (key, value) in [
            ("job_id", Value::from(172)),
            ("array_job_id", 0.into()),
            ("array_task_id", Value::Null),
            ("batch_flag", true.into()),
            ("batch_host", "vm".into()),
            ("command", "/home/lab/g/sleep.sh 300".into()),
            ("cpus", 1.into()),
            ("cpus_per_task", Value::Null),
            ("current_working_directory", "/home/lab/g".into()),
            ("dependency", "".into()),
            ("end_time", (NOW - 4 + 1800).into()),
            ("exit_code", 0.into()),
            ("group_name", "lab".into()),
            ("job_state", "RUNNING".into()),
            ("memory_per_cpu", 100.into()),
            ("memory_per_node", Value::Null),
            ("name", "runner".into()),
            ("nodes", "vm".into()),
            ("partition", "cpu".into()),
            ("priority", 4_294_901_642u32.into()),
            ("qos", "normal".into()),
            ("requeue", false.into()),
            ("start_time", (NOW - 4).into()),
            ("state_reason", "None".into()),
            ("standard_input", "/dev/null".into()),
            ("submit_time", (NOW - 4).into()),
            ("tasks", 1.into()),
            ("time_limit", 30.into()),
            ("tres_alloc_str", "cpu=1,mem=100M,node=1,billing=1".into()),
            ("tres_req_str", "cpu=1,mem=100M,node=1,billing=1".into()),
            ("user_id", 1001.into()),
            ("user_name", "lab".into()),
        ] {
            assert_eq!(j[key], value, "{key}");
        }
        assert_eq!(j["job_resources"]["allocated_nodes"][0]["memory_allocated"], 100);
        assert_eq!(j["flags"][0], "JOB_WAS_RUNNING");
    }

    #[test]
    fn every_member_of_slurms_document_is_present() {
        let j = one(build(172, "runner").build());
        for key in "account accrue_time admin_comment array_job_id array_task_id array_max_tasks array_task_string \
            association_id batch_features batch_flag batch_host flags burst_buffer burst_buffer_state cluster \
            cluster_features command comment container contiguous core_spec thread_spec cores_per_socket billable_tres \
            cpu_frequency_minimum cpu_frequency_maximum cpu_frequency_governor cpus_per_task cpus_per_tres deadline delay_boot dependency derived_exit_code eligible_time end_time \
            excluded_nodes exit_code features federation_origin federation_siblings_active federation_siblings_viable \
            gres_detail group_id group_name job_id job_resources job_state \
            last_sched_evaluation show_flags licenses max_cpus max_nodes mcs_label \
            memory_per_tres name nodes nice tasks_per_core tasks_per_node tasks_per_socket tasks_per_board cpus node_count \
            tasks het_job_id het_job_id_set het_job_offset partition prefer memory_per_node memory_per_cpu \
            minimum_cpus_per_node minimum_tmp_disk_per_node preempt_time pre_sus_time priority profile qos reboot \
            required_nodes requeue resize_time restart_cnt resv_name shared sockets_per_board sockets_per_node start_time \
            state_description state_reason standard_error standard_input standard_output submit_time suspend_time \
            system_comment time_limit time_minimum threads_per_core tres_bind tres_freq tres_per_job tres_per_node \
            tres_per_socket tres_per_task tres_req_str tres_alloc_str user_id user_name wckey current_working_directory"
            .split_whitespace()
        {
            assert!(j.get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn requests_without_an_effect_have_members() {
        let j = one(build(172, "idle")
            .asks(|r| {
                (r.delay_boot_secs, r.tmp_disk_mb) = (Some(300), Some(2048));
                (r.kill_on_invalid_dep, r.profile) = (Some(true), Some("Energy,Task".to_owned()));
                r.gpu_bind = Some(Box::new(GpuBind::None));
            })
            .build());
        for (key, value) in [
            ("delay_boot", json!(300)),
            ("minimum_tmp_disk_per_node", json!(2048)),
            ("profile", json!(["Energy", "Task"])),
            ("tres_bind", json!("gres:gpu:none")),
            ("flags", json!(["KILL_INV_DEP"])),
        ] {
            assert_eq!(j[key], value, "{key}");
        }
        assert_eq!(one(build(173, "plain").build())["profile"], Value::Null);
    }

    #[test]
    fn arrays_have_their_number_and_their_tasks() {
        let rest = one(build(96, "a").rest(&[3, 4, 5], Some(2)).build());
        assert_eq!((&rest["array_job_id"], &rest["array_task_id"]), (&96.into(), &Value::Null));
        assert_eq!(
            (&rest["array_task_string"], &rest["array_max_tasks"]),
            (&"3-5%2".into(), &2.into())
        );
        let task = one(build(98, "a").task(96, 2).build());
        assert_eq!((&task["array_job_id"], &task["array_task_id"]), (&96.into(), &2.into()));
    }

    #[test]
    fn exit_codes_are_wait_statuses_and_an_unlimited_time_is_null() {
        let failed = |exit| {
            one(build(1, "f").ended(End::Failed, Reason::NonZeroExitCode, exit, 3, 2).build())
        };
        assert_eq!(failed(ExitCode::status(3))["exit_code"], 768);
        assert_eq!(failed(ExitCode::signal(9))["exit_code"], 9);
        assert_eq!(failed(ExitCode::OK)["time_limit"], Value::Null);
    }
}
