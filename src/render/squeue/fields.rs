//! Every column of squeue: Slurm's letters, Slurm's `-O` names, and the book's field names.

use crate::model::Timestamp;
use crate::render::format::{Cut, Field};
use crate::render::job;
use crate::render::squeue::Row;
use crate::render::{Ctx, time, tres};

pub type Get = fn(&Row<'_>, &Ctx) -> String;

const fn field(
    code: Option<char>,
    names: &'static [&'static str],
    header: &'static str,
    cut: Cut,
    get: Get,
) -> Field<Get> {
    Field { code, names, header, cut, get }
}

const fn coded(code: char, names: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    field(Some(code), names, header, Cut::Always, get)
}

const fn named(names: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    field(None, names, header, Cut::Always, get)
}

fn instant(t: Option<Timestamp>, ctx: &Ctx) -> String {
    time::instant_or(t, "N/A", ctx)
}

/// Of a thing that Slurm knows and one host has not.
fn null(_: &Row<'_>, _: &Ctx) -> String {
    "(null)".to_owned()
}

fn not_available(_: &Row<'_>, _: &Ctx) -> String {
    "N/A".to_owned()
}

fn zero(_: &Row<'_>, _: &Ctx) -> String {
    "0".to_owned()
}

fn one(_: &Row<'_>, _: &Ctx) -> String {
    "1".to_owned()
}

fn any(_: &Row<'_>, _: &Ctx) -> String {
    "*".to_owned()
}

fn empty(_: &Row<'_>, _: &Ctx) -> String {
    String::new()
}

fn gres(text: Option<String>) -> String {
    text.unwrap_or_else(|| "N/A".to_owned())
}

/// `_print_int` of Slurm's raw wait status.
fn wait_status(exit: crate::model::ExitCode) -> String {
    (i64::from(exit.status) * 256 + i64::from(exit.signal)).to_string()
}

/// The priority as a share of the largest one.
fn priority_share(row: &Row<'_>) -> String {
    format!("{:.14}", f64::from(job::priority(row.job)) / f64::from(u32::MAX))
}

/// Slurm's fields, in the order of its man page.
pub static FIELDS: &[Field<Get>] = &[
    coded('i', &["JobArrayID"], "JOBID", |r, c| r.shown.squeue_id(c)),
    coded('A', &["JobID"], "JOBID", |r, _| r.shown.raw().to_string()),
    coded('F', &["ArrayJobID"], "ARRAY_JOB_ID", |r, _| r.shown.array_job().to_string()),
    coded('K', &["ArrayTaskID"], "ARRAY_TASK_ID", |r, c| r.shown.task(c).unwrap_or_else(|| "N/A".to_owned())),
    coded('P', &["Partition"], "PARTITION", |r, _| r.job.partition.clone()),
    coded('j', &["Name"], "NAME", |r, _| r.job.request.name.clone()),
    coded('u', &["UserName"], "USER", |r, _| r.job.request.user.clone()),
    coded('U', &["UserID"], "UID", |r, _| r.job.request.uid.to_string()),
    coded('g', &["GroupName"], "GROUP", |r, _| r.job.request.group.clone()),
    coded('G', &["GroupID"], "GROUP", |r, _| r.job.request.gid.to_string()),
    coded('t', &["StateCompact"], "ST", |r, _| r.job.run.state.code().to_owned()),
    coded('T', &["State"], "STATE", |r, _| r.job.run.state.name().to_owned()),
    field(Some('M'), &["TimeUsed"], "TIME", Cut::Header, |r, c| time::short(job::elapsed_secs(r.job, c))),
    field(Some('l'), &["TimeLimit"], "TIME_LIMIT", Cut::Header, |r, _| {
        time::short_limit(r.job.request.time_limit_secs)
    }),
    field(Some('L'), &["TimeLeft"], "TIME_LEFT", Cut::Header, |r, c| job::time_left_text(r.job, c)),
    coded('S', &["StartTime"], "START_TIME", |r, c| instant(job::start_or_expected(r.job), c)),
    coded('e', &["EndTime"], "END_TIME", |r, c| instant(job::end_or_expected(r.job, c), c)),
    coded('V', &["SubmitTime"], "SUBMIT_TIME", |r, c| instant(Some(r.job.submit), c)),
    coded('D', &["NumNodes"], "NODES", one),
    coded('C', &["NumCPUs"], "CPUS", |r, _| job::allocated_or_asked(r.job).cpus.to_string()),
    field(Some('R'), &["ReasonList"], "NODELIST(REASON)", Cut::Reason, |r, c| r.reason_or_nodes(c)),
    coded('r', &["Reason"], "REASON", |r, _| r.reason()),
    field(Some('N'), &["NodeList"], "NODELIST", Cut::Never, |r, c| job::nodes(r.job, c).to_owned()),
    coded('B', &["BatchHost"], "EXEC_HOST", |r, c| match job::nodes(r.job, c) {
        "" => "n/a".to_owned(),
        node => node.to_owned(),
    }),
    field(Some('Y'), &["SchedNodes"], "SCHEDNODES", Cut::Never, |r, c| r.sched_nodes(c)),
    coded('Q', &["PriorityLong"], "PRIORITY", |r, _| job::priority(r.job).to_string()),
    coded('p', &["Priority"], "PRIORITY", |r, _| priority_share(r)),
    coded('a', &["Account"], "ACCOUNT", |r, _| job::or_null(r.job.request.account.as_deref())),
    coded('k', &["Comment"], "COMMENT", |r, _| job::or_null(r.job.request.comment.as_deref())),
    coded('q', &["QOS"], "QOS", |r, _| r.job.request.qos.clone().unwrap_or_else(|| job::DEFAULT_QOS.to_owned())),
    coded('w', &["WCKey"], "WCKEY", |r, _| job::or_null(r.job.request.wckey.as_deref())),
    coded('v', &["Reservation"], "RESERVATION", |r, _| job::or_null(r.job.request.reservation.as_deref())),
    coded('W', &["Licenses"], "LICENSES", |r, _| job::or_null(r.job.request.licenses.as_deref())),
    coded('E', &["Dependency"], "DEPENDENCY", |r, _| job::or_null(job::dependency(r.job).as_deref())),
    coded('f', &["Feature", "Features"], "FEATURES", |r, _| job::value_or_null(r.job.request.constraint.as_ref())),
    coded('n', &["ReqNodes"], "REQ_NODES", |r, _| r.job.request.nodelist.to_string()),
    coded('x', &["ExcNodes"], "EXC_NODES", |r, _| r.job.request.exclude.to_string()),
    coded('y', &["Nice"], "NICE", |r, _| r.job.request.nice.to_string()),
    coded('m', &["MinMemory"], "MIN_MEMORY", |r, c| job::min_memory_text(r.job, c)),
    coded('c', &["MinCpus"], "MIN_CPUS", |r, _| job::min_cpus(r.job).to_string()),
    coded('d', &["MinTmpDisk"], "MIN_TMP_DISK", zero),
    coded('b', &["tres-per-node", "gres"], "TRES_PER_NODE", |r, _| gres(job::tres_per_node(r.job))),
    coded('h', &["OverSubscribe", "Shared"], "OVER_SUBSCRIBE", |r, _| job::over_subscribe(r.job).to_owned()),
    coded('o', &["Command"], "COMMAND", |r, _| job::or_null(job::command(r.job).as_deref())),
    coded('Z', &["WorkDir"], "WORK_DIR", |r, _| r.job.request.work_dir.clone()),
    coded('O', &["Contiguous"], "CONTIGUOUS", zero),
    coded('X', &["CoreSpec"], "CORE_SPEC", not_available),
    coded('H', &["Sockets"], "SOCKETS_PER_NODE", any),
    coded('I', &["Cores"], "CORES_PER_SOCKET", any),
    coded('J', &["Threads"], "THREADS_PER_CORE", any),
    coded('z', &["SCT"], "S:C:T", |_, _| "*:*:*".to_owned()),
    coded('s', &["SelectJobInfo"], "", empty),
    named(&["AccrueTime"], "ACCRUE_TIME", |r, c| instant(r.job.run.eligible, c)),
    named(&["admin_comment"], "ADMIN_COMMENT", null),
    named(&["AllocNodes"], "ALLOC_NODES", |r, _| r.job.request.submit_host.clone()),
    named(&["AllocSID"], "ALLOC_SID", zero),
    named(&["AssocID"], "ASSOC_ID", zero),
    named(&["BatchFlag"], "BATCH_FLAG", |r, _| u8::from(job::is_batch(r.job)).to_string()),
    named(&["BoardsPerNode"], "BOARDS_PER_NODE", not_available),
    named(&["BurstBuffer"], "BURST_BUFFER", null),
    named(&["BurstBufferState"], "BURST_BUFFER_STATE", null),
    named(&["Cluster"], "CLUSTER", |_, c| c.cluster.clone()),
    named(&["ClusterFeature", "ClusterFeatures"], "CLUSTER_FEATURES", null),
    named(&["Container"], "CONTAINER", null),
    named(&["ContainerID"], "CONTAINER_ID", null),
    named(&["cpus-per-task"], "CPUS_PER_TASK", |r, _| job::cpus_per_task(r.job).to_string()),
    named(&["cpus-per-tres"], "CPUS_PER_TRES", |r, _| match r.job.request.gpu.cpus_per_gpu {
        Some(n) => format!("gres:gpu:{n}"),
        None => "N/A".to_owned(),
    }),
    named(&["Deadline"], "DEADLINE", |r, c| instant(r.job.request.deadline, c)),
    named(&["DelayBoot"], "DELAY_BOOT", |_, _| time::short(0)),
    named(&["DerivedEC"], "DERIVED_EC", |r, _| wait_status(r.job.run.derived_exit)),
    named(&["EligibleTime"], "ELIGIBLE_TIME", |r, c| instant(job::eligible(r.job), c)),
    named(&["exit_code"], "EXIT_CODE", |r, _| wait_status(r.job.run.exit)),
    named(&["HetJobID"], "HET_JOB_ID", not_available),
    named(&["HetJobIDSet"], "HET_JOB_ID_SET", not_available),
    named(&["HetJobOffset"], "HET_JOB_OFFSET", not_available),
    named(&["LastSchedEval"], "LAST_SCHED_EVAL", |r, c| instant(job::last_evaluation(r.job, c), c)),
    named(&["MaxCPUs"], "MAX_CPUS", |r, _| job::allocated_or_asked(r.job).cpus.to_string()),
    named(&["MaxNodes"], "MAX_NODES", one),
    named(&["MCSLabel"], "MCSLABEL", not_available),
    named(&["mem-per-tres"], "MEM_PER_TRES", |r, _| match r.job.request.mem {
        crate::model::request::MemRequest::PerGpu(mb) => format!("gres:gpu:{mb}"),
        crate::model::request::MemRequest::Default
        | crate::model::request::MemRequest::PerNode(_)
        | crate::model::request::MemRequest::PerCpu(_) => "N/A".to_owned(),
    }),
    named(&["MinTime"], "TIME_MIN", |r, _| time::short(r.job.request.time_min_secs.unwrap_or(0))),
    named(&["Network"], "NETWORK", null),
    named(&["NTPerBoard"], "NTASKS_PER_BOARD", not_available),
    named(&["NTPerCore"], "NTASKS_PER_CORE", not_available),
    named(&["NTPerNode"], "NTASKS_PER_NODE", |r, _| r.job.request.ntasks_per_node.unwrap_or(0).to_string()),
    named(&["NTPerSocket"], "NTASKS_PER_SOCKET", not_available),
    named(&["NumTasks"], "TASKS", |r, _| r.job.request.task_count().to_string()),
    named(&["Origin"], "ORIGIN", not_available),
    named(&["OriginRaw"], "ORIGIN_RAW", not_available),
    named(&["PendingTime"], "PENDING_TIME", |r, c| {
        let until = job::start(r.job).unwrap_or(c.now);
        until.since(r.job.submit).as_secs().to_string()
    }),
    named(&["PreemptTime"], "PREEMPT_TIME", not_available),
    named(&["Prefer"], "PREFER", null),
    named(&["Profile"], "PROFILE", |_, _| "NotSet".to_owned()),
    named(&["Reboot"], "REBOOT", zero),
    named(&["ReqSwitch"], "REQ_SWITCH", zero),
    named(&["Requeue"], "REQUEUE", |r, _| u8::from(!r.job.request.no_requeue).to_string()),
    named(&["ResizeTime"], "RESIZE_TIME", not_available),
    named(&["RestartCnt"], "RESTART_COUNT", |r, _| r.job.run.restarts.to_string()),
    named(&["ResvPort", "ResvPorts"], "RESERVED_PORTS", null),
    named(&["SiblingsActive"], "ACTIVE_SIBLINGS", not_available),
    named(&["SiblingsActiveRaw"], "ACTIVE_SIBLINGS_RAW", not_available),
    named(&["SiblingsViable"], "VIABLE_SIBLINGS", not_available),
    named(&["SiblingsViableRaw"], "VIABLE_SIBLINGS_RAW", not_available),
    named(&["SPerBoard"], "SOCKETS_PER_BOARD", zero),
    named(&["STDERR"], "STDERR", |r, _| path(&r.job.std_err)),
    named(&["STDIN"], "STDIN", |r, _| path(&r.job.std_in)),
    named(&["STDOUT"], "STDOUT", |r, _| path(&r.job.std_out)),
    named(&["system_comment"], "SYSTEM_COMMENT", null),
    named(&["tres", "tres-alloc"], "TRES_ALLOC", |r, c| tres::scontrol(&job::allocated_or_asked(r.job), c.units)),
    named(&["tres-bind"], "TRES_BIND", not_available),
    named(&["tres-freq"], "TRES_FREQ", not_available),
    named(&["tres-per-job"], "TRES_PER_JOB", |r, _| gres(job::tres_per_job(r.job))),
    named(&["tres-per-socket"], "TRES_PER_SOCKET", |r, _| gres(job::tres_per_socket(r.job))),
    named(&["tres-per-task"], "TRES_PER_TASK", |r, _| gres(job::tres_per_task(r.job))),
    named(&["Wait4Switch"], "WAIT4SWITCH", |_, _| time::short(0)),
];

/// The file of a batch job; `N/A` for an allocation, which has none.
fn path(path: &str) -> String {
    if path.is_empty() { "N/A".to_owned() } else { path.to_owned() }
}

/// The book's field names, which win over Slurm's of the same name in a list after `-o`.
pub static BOOK: &[Field<Get>] = &[
    named(&["JobID"], "JOBID", |r, c| r.shown.id(c)),
    named(&["Partition"], "PARTITION", |r, _| r.job.partition.clone()),
    named(&["Name", "JobName"], "NAME", |r, _| r.job.request.name.clone()),
    named(&["User"], "USER", |r, _| r.job.request.user.clone()),
    named(&["ST"], "ST", |r, _| r.job.run.state.code().to_owned()),
    named(&["State"], "STATE", |r, _| r.job.run.state.name().to_owned()),
    named(&["Time", "Elapsed"], "TIME", |r, c| time::short(job::elapsed_secs(r.job, c))),
    named(&["TimeLimit", "Time_Limit"], "TIME_LIMIT", |r, _| time::short_limit(r.job.request.time_limit_secs)),
    named(&["NTasks"], "NTASKS", |r, _| r.job.request.task_count().to_string()),
    named(&["CPUS", "ReqCPUS"], "CPUS", |r, _| r.job.tres.cpus.to_string()),
    named(&["ReqMem"], "REQ_MEM", |r, c| crate::render::size::mib(r.job.tres.mem_mb, c.units)),
    named(&["ReqGPU", "ReqGPUS"], "REQ_GPU", |r, _| r.job.tres.gpus.to_string()),
    named(&["Start", "StartTime"], "START_TIME", |r, c| instant(job::start_or_expected(r.job), c)),
    named(&["NodeList(Reason)", "NodeListReason", "Reason", "NodeList"], "NODELIST(REASON)", |r, c| {
        r.reason_or_nodes(c)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_of_slurm_but_the_undefined_ones_has_one_field() {
        for c in ('a'..='z').chain('A'..='Z') {
            assert_eq!(FIELDS.iter().filter(|f| f.code == Some(c)).count(), 1, "%{c}");
        }
    }

    #[test]
    fn no_two_fields_share_a_name() {
        for table in [FIELDS, BOOK] {
            let mut names: Vec<String> =
                table.iter().flat_map(|f| f.names).map(|n| n.to_lowercase().replace(['-', '_'], "")).collect();
            names.retain(|n| n != "timelimit");
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
