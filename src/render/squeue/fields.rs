//! Every column of squeue.

use crate::array::Shown;
use crate::field::{Cut, Field, Need, Table};
use crate::job_facts::{FactOf, squeue_fields};
use crate::squeue::Row;
use crate::tone::Tone;
use crate::value::Value;
use crate::{Ctx, job, tres};
use slotd_model::placement::Placement;
use slotd_model::view::JobView;
use slotd_model::{ExitCode, Timestamp};
use std::sync::LazyLock;

/// The field table of squeue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Squeue;

impl Table for Squeue {
    type Row<'a> = Row<'a>;

    const HAS_HELPFORMAT: bool = true;

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<F>> =
            LazyLock::new(|| FIELDS.iter().copied().chain(squeue_fields()).collect());
        &ALL
    }

    fn fact<'r>(row: &'r Row<'_>, fact: FactOf) -> Value<'r> {
        fact(row.job).filter(|value| *value != Value::NONE).unwrap_or("(null)".into())
    }
}

type F = Field<Squeue>;

fn instant(at: Option<Timestamp>) -> Value<'static> {
    Value::Time(at, "N/A")
}

/// Returns the value of a field of Slurm that does not apply to a single host.
fn null(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    "(null)".into()
}

fn not_available(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    "N/A".into()
}

fn zero(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    0u32.into()
}

fn one(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    1u32.into()
}

/// Returns a requested number of sockets, cores or threads, or `*`.
fn or_any(number: Option<u32>) -> Value<'static> {
    number.map_or_else(|| "*".into(), Value::from)
}

/// Returns a requested number of tasks, or `N/A`.
fn or_not_available(number: Option<u32>) -> Value<'static> {
    number.map_or_else(|| "N/A".into(), Value::from)
}

/// Returns the requested sockets, cores per socket and threads per core: `2:*:1`.
fn shape(job: &JobView) -> String {
    let Placement { sockets_per_node, cores_per_socket, threads_per_core, .. } =
        &job.request.placement;
    [sockets_per_node, cores_per_socket, threads_per_core]
        .map(|number| number.map_or_else(|| "*".to_owned(), |number| number.to_string()))
        .join(":")
}

/// Returns an ID. The tasks of an array sort at the position of their array, by task ID.
fn ranked(row: &Row<'_>, text: String) -> Value<'static> {
    let task = match &row.shown {
        Shown::Plain(_) => 0,
        Shown::Task { task, .. } => *task,
        Shown::Tasks { tasks, .. } => tasks.first().unwrap_or(0),
    };
    Value::Ranked(i64::from(row.shown.array_job().0) << 24 | i64::from(task), text)
}

/// Returns the status as `wait` reports it.
fn wait_status(exit: ExitCode) -> Value<'static> {
    Value::Number(i64::from(exit.status) * 256 + i64::from(exit.signal))
}

/// Returns the file of a batch job; `N/A` for an allocation, which has none.
fn path(row: &Row<'_>, path: &str) -> Value<'static> {
    Value::or_not_available(Some(row.path(path)))
}

/// Slurm's fields, except for those of [`job_facts`](crate::job_facts).
static FIELDS: &[F] = &[
    F::new(&["JobArrayID"], "JOBID", |r, c| ranked(r, r.shown.squeue_id(c))).code("i").brief(),
    F::new(&["JobID"], "JOBID", |r, _| r.shown.raw().0.into()).code("A").brief(),
    F::new(&["ArrayJobID"], "ARRAY_JOB_ID", |r, _| r.shown.array_job().0.into()).code("F").brief(),
    F::new(&["ArrayTaskID"], "ARRAY_TASK_ID", |r, c| match r.shown.task(c) {
        Some(text) => ranked(r, text),
        None => "N/A".into(),
    })
    .code("K")
    .brief(),
    F::new(&["Partition"], "PARTITION", |r, _| (&*r.job.partition).into()).code("P").brief(),
    F::new(&["Name"], "NAME", |r, _| (&r.job.request.name).into())
        .code("j")
        .own(&["JobName"])
        .yielding()
        .brief(),
    F::new(&["UserName"], "USER", |r, _| (&r.job.request.user).into())
        .code("u")
        .own(&["User"])
        .brief(),
    F::new(&["UserID"], "UID", |r, _| r.job.request.uid.into()).code("U").brief(),
    F::new(&["GroupName"], "GROUP", |r, _| (&r.job.request.group).into()).code("g"),
    F::new(&["GroupID"], "GROUP", |r, _| r.job.request.gid.into()).code("G"),
    F::new(&["StateCompact"], "ST", |r, _| job::state_code(r.job).into())
        .code("t")
        .own(&["ST"])
        .toned(Tone::of_job_cell)
        .brief(),
    F::new(&["State"], "STATE", |r, _| job::state_name(r.job).into())
        .code("T")
        .toned(Tone::of_job_cell)
        .brief(),
    F::new(&["TimeUsed"], "TIME", |r, c| Value::Short(Some(job::elapsed_secs(r.job, c))))
        .code("M")
        .cut(Cut::Header)
        .own(&["Time", "Elapsed"])
        .brief(),
    F::new(&["TimeLimit"], "TIME_LIMIT", |r, _| Value::Short(r.job.request.time_limit_secs))
        .code("l")
        .cut(Cut::Header)
        .brief(),
    F::new(&["TimeLeft"], "TIME_LEFT", |r, c| Value::Short(job::time_left(r.job, c)))
        .code("L")
        .cut(Cut::Header)
        .brief(),
    F::new(&["StartTime"], "START_TIME", |r, _| instant(job::start_or_expected(r.job)))
        .code("S")
        .needs(Need::Plan)
        .own(&["Start"]),
    F::new(&["EndTime"], "END_TIME", |r, c| instant(job::end_or_expected(r.job, c)))
        .code("e")
        .needs(Need::Plan),
    F::new(&["SubmitTime"], "SUBMIT_TIME", |r, _| instant(Some(r.job.submit))).code("V").brief(),
    F::new(&["NumNodes"], "NODES", one).code("D").brief(),
    F::new(&["NumCPUs"], "CPUS", |r, _| job::allocated_or_asked(r.job).cpus.into()).code("C"),
    F::new(&["ReasonList"], "NODELIST(REASON)", |r, c| r.reason_or_nodes(c).into())
        .code("R")
        .cut(Cut::Reason)
        .yielding()
        .own(&["NodeList(Reason)", "NodeListReason", "Reason", "NodeList"])
        .brief(),
    F::new(&["Reason"], "REASON", |r, _| r.reason().into()).code("r").yielding().brief(),
    F::new(&["NodeList"], "NODELIST", |r, c| job::nodes(r.job, c).into())
        .code("N")
        .cut(Cut::Never)
        .brief(),
    F::new(&["BatchHost"], "EXEC_HOST", |r, c| match job::nodes(r.job, c) {
        "" => "n/a".into(),
        node => node.into(),
    })
    .code("B")
    .brief(),
    F::new(&["SchedNodes"], "SCHEDNODES", |r, c| r.sched_nodes(c).into())
        .code("Y")
        .needs(Need::Plan)
        .cut(Cut::Never),
    F::new(&["PriorityLong"], "PRIORITY", |r, _| job::priority(r.job).into()).code("Q").brief(),
    F::new(&["Priority"], "PRIORITY", |r, _| {
        Value::Share(f64::from(job::priority(r.job)) / f64::from(u32::MAX), 14)
    })
    .code("p")
    .brief(),
    F::new(&["Dependency"], "DEPENDENCY", |r, _| Value::or_null(job::dependency(r.job).as_deref()))
        .code("E"),
    F::new(&["Feature", "Features"], "FEATURES", |r, _| {
        Value::or_null(r.job.request.constraint.as_ref())
    })
    .code("f"),
    F::new(&["ReqNodes"], "REQ_NODES", |r, _| r.job.request.nodelist.to_string().into()).code("n"),
    F::new(&["ExcNodes"], "EXC_NODES", |r, _| r.job.request.exclude.to_string().into()).code("x"),
    F::new(&["MinMemory"], "MIN_MEMORY", |r, _| Value::Mib(job::min_memory(r.job).0)).code("m"),
    F::new(&["MinCpus"], "MIN_CPUS", |r, _| job::min_cpus(r.job).into()).code("c"),
    F::new(&["MinTmpDisk"], "MIN_TMP_DISK", |r, _| {
        Value::Mib(r.job.request.tmp_disk_mb.unwrap_or(0))
    })
    .code("d"),
    F::new(&["tres-per-node", "gres"], "TRES_PER_NODE", |r, _| {
        Value::or_not_available(job::tres_per_node(r.job))
    })
    .code("b"),
    F::new(&["OverSubscribe", "Shared"], "OVER_SUBSCRIBE", |r, _| {
        job::over_subscribe(r.job).into()
    })
    .code("h"),
    F::new(&["Command"], "COMMAND", |r, _| Value::or_null(job::command(r.job).as_deref()))
        .code("o")
        .yielding(),
    F::new(&["WorkDir"], "WORK_DIR", |r, _| (&r.job.request.work_dir).into()).code("Z").yielding(),
    F::new(&["Contiguous"], "CONTIGUOUS", |r, _| r.job.request.contiguous.into()).code("O"),
    F::new(&["CoreSpec"], "CORE_SPEC", not_available).code("X"),
    F::new(&["Sockets"], "SOCKETS_PER_NODE", |r, _| {
        or_any(r.job.request.placement.sockets_per_node)
    })
    .code("H"),
    F::new(&["Cores"], "CORES_PER_SOCKET", |r, _| or_any(r.job.request.placement.cores_per_socket))
        .code("I"),
    F::new(&["Threads"], "THREADS_PER_CORE", |r, _| {
        or_any(r.job.request.placement.threads_per_core)
    })
    .code("J"),
    F::new(&["SCT"], "S:C:T", |r, _| shape(r.job).into()).code("z"),
    F::new(&["SelectJobInfo"], "", |_, _| Value::NONE).code("s"),
    F::new(&["AccrueTime"], "ACCRUE_TIME", |r, _| instant(r.job.run.eligible)),
    F::new(&["AllocNodes"], "ALLOC_NODES", |r, _| (&r.job.request.submit_host).into()),
    F::new(&["AllocSID"], "ALLOC_SID", zero),
    F::new(&["AssocID"], "ASSOC_ID", zero),
    F::new(&["BatchFlag"], "BATCH_FLAG", |r, _| job::is_batch(r.job).into()).brief(),
    F::new(&["BoardsPerNode"], "BOARDS_PER_NODE", not_available),
    F::new(&["BurstBuffer"], "BURST_BUFFER", null),
    F::new(&["BurstBufferState"], "BURST_BUFFER_STATE", null),
    F::new(&["Cluster"], "CLUSTER", |_, c| (&c.cluster).into()).brief(),
    F::new(&["ClusterFeature", "ClusterFeatures"], "CLUSTER_FEATURES", null),
    F::new(&["Container"], "CONTAINER", null),
    F::new(&["ContainerID"], "CONTAINER_ID", null),
    F::new(&["cpus-per-task"], "CPUS_PER_TASK", |r, _| job::cpus_per_task(r.job).into()),
    F::new(&["cpus-per-tres"], "CPUS_PER_TRES", |r, _| {
        Value::or_not_available(job::cpus_per_tres(r.job))
    }),
    F::new(&["Deadline"], "DEADLINE", |r, _| instant(r.job.request.deadline)),
    F::new(&["DelayBoot"], "DELAY_BOOT", |r, _| {
        Value::Short(Some(r.job.request.delay_boot_secs.unwrap_or(0)))
    }),
    F::new(&["DerivedEC"], "DERIVED_EC", |r, _| wait_status(r.job.run.derived_exit)),
    F::new(&["EligibleTime"], "ELIGIBLE_TIME", |r, _| instant(job::eligible(r.job))),
    F::new(&["exit_code"], "EXIT_CODE", |r, _| wait_status(r.job.run.exit)),
    F::new(&["HetJobID"], "HET_JOB_ID", not_available),
    F::new(&["HetJobIDSet"], "HET_JOB_ID_SET", not_available),
    F::new(&["HetJobOffset"], "HET_JOB_OFFSET", not_available),
    F::new(&["LastSchedEval"], "LAST_SCHED_EVAL", |r, c| instant(job::last_evaluation(r.job, c))),
    F::new(&["MaxCPUs"], "MAX_CPUS", |r, _| job::allocated_or_asked(r.job).cpus.into()),
    F::new(&["MaxNodes"], "MAX_NODES", one),
    F::new(&["MCSLabel"], "MCSLABEL", not_available),
    F::new(&["mem-per-tres"], "MEM_PER_TRES", |r, _| {
        Value::or_not_available(job::mem_per_tres(r.job))
    }),
    F::new(&["MinTime"], "TIME_MIN", |r, _| {
        Value::Short(Some(r.job.request.time_min_secs.unwrap_or(0)))
    }),
    F::new(&["NTPerBoard"], "NTASKS_PER_BOARD", not_available),
    F::new(&["NTPerCore"], "NTASKS_PER_CORE", |r, _| {
        or_not_available(r.job.request.placement.ntasks_per_core)
    }),
    F::new(&["NTPerNode"], "NTASKS_PER_NODE", |r, _| {
        r.job.request.ntasks_per_node.unwrap_or(0).into()
    }),
    F::new(&["NTPerSocket"], "NTASKS_PER_SOCKET", |r, _| {
        or_not_available(r.job.request.placement.ntasks_per_socket)
    }),
    F::new(&["NumTasks"], "TASKS", |r, _| r.job.request.task_count().into()).brief(),
    F::new(&["Origin"], "ORIGIN", not_available),
    F::new(&["OriginRaw"], "ORIGIN_RAW", not_available),
    F::new(&["PendingTime"], "PENDING_TIME", |r, c| {
        let until = job::start(r.job).unwrap_or(c.now);
        until.since(r.job.submit).as_secs().into()
    }),
    F::new(&["PreemptTime"], "PREEMPT_TIME", |r, _| {
        instant(r.job.run.preempted.as_ref().map(|by| by.at))
    }),
    F::new(&["Profile"], "PROFILE", |r, _| {
        r.job.request.profile.as_deref().unwrap_or("NotSet").into()
    }),
    F::new(&["Reboot"], "REBOOT", zero),
    F::new(&["ReqSwitch"], "REQ_SWITCH", |r, _| {
        r.job.request.switches.map_or(0, |switches| switches.count).into()
    }),
    F::new(&["Requeue"], "REQUEUE", |r, _| r.job.runs_again().into()),
    F::new(&["ResizeTime"], "RESIZE_TIME", not_available),
    F::new(&["RestartCnt"], "RESTART_COUNT", |r, _| r.job.run.restarts.into()),
    F::new(&["ResvPort", "ResvPorts"], "RESERVED_PORTS", null),
    F::new(&["SiblingsActive"], "ACTIVE_SIBLINGS", not_available),
    F::new(&["SiblingsActiveRaw"], "ACTIVE_SIBLINGS_RAW", not_available),
    F::new(&["SiblingsViable"], "VIABLE_SIBLINGS", not_available),
    F::new(&["SiblingsViableRaw"], "VIABLE_SIBLINGS_RAW", not_available),
    F::new(&["SPerBoard"], "SOCKETS_PER_BOARD", zero),
    F::new(&["STDERR"], "STDERR", |r, _| path(r, &r.job.std_err)).needs(Need::Paths),
    F::new(&["STDIN"], "STDIN", |r, _| path(r, &r.job.std_in)).needs(Need::Paths),
    F::new(&["STDOUT"], "STDOUT", |r, _| path(r, &r.job.std_out)).needs(Need::Paths),
    F::new(&["tres", "tres-alloc"], "TRES_ALLOC", |r, c| {
        tres::scontrol(&job::allocated_or_asked(r.job), c.units).into()
    }),
    F::new(&["tres-bind"], "TRES_BIND", |r, _| Value::or_not_available(job::tres_bind(r.job))),
    F::new(&["tres-freq"], "TRES_FREQ", not_available),
    F::new(&["tres-per-job"], "TRES_PER_JOB", |r, _| {
        Value::or_not_available(job::tres_per_job(r.job))
    }),
    F::new(&["tres-per-socket"], "TRES_PER_SOCKET", |r, _| {
        Value::or_not_available(job::tres_per_socket(r.job))
    }),
    F::new(&["tres-per-task"], "TRES_PER_TASK", |r, _| {
        Value::or_not_available(job::tres_per_task(r.job))
    }),
    F::new(&["Wait4Switch"], "WAIT4SWITCH", |r, _| {
        Value::Short(Some(r.job.request.switches.map_or(0, |switches| switches.wait_secs)))
    }),
    // slotd's own, for lists of names.
    F::new(&[], "JOBID", |r, c| ranked(r, r.shown.id(c))).own(&["JobID"]).brief(),
    F::new(&[], "NTASKS", |r, _| r.job.request.task_count().into()).own(&["NTasks"]).brief(),
    F::new(&[], "CPUS", |r, _| r.job.tres.cpus.into()).own(&["CPUS", "ReqCPUS"]).brief(),
    F::new(&[], "REQ_MEM", |r, _| Value::Mib(r.job.tres.mem_mb)).own(&["ReqMem"]).brief(),
    F::new(&[], "REQ_GPU", |r, _| r.job.tres.gpus.into()).own(&["ReqGPU", "ReqGPUS"]).brief(),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx, job, sent};
    use crate::squeue::rows::rows;
    use slotd_model::brief::BriefJob;
    use slotd_model::job::Hold;
    use slotd_model::request::JobKind;
    use slotd_model::view::JobView;
    use slotd_model::{End, JobState, Reason};

    #[test]
    fn every_defined_slurm_letter_has_one_field() {
        for c in ('a'..='z').chain('A'..='Z') {
            assert_eq!(Squeue::fields().iter().filter(|f| f.codes.contains(c)).count(), 1, "%{c}");
        }
    }

    #[test]
    fn brief_fields_are_the_same_for_a_brief_query() {
        let exit = ExitCode::status(3);
        let jobs = [
            job(1, "waits").limit(60).asks(|r| (r.ntasks, r.nice) = (Some(3), 5)).build(),
            job(2, "held").reason(Reason::JobHeldUser).with(|j| j.hold = Hold::User).build(),
            job(3, "runs").limit(90).running(7).asks(|r| r.ntasks_per_node = Some(2)).build(),
            job(4, "suspended")
                .running(9)
                .with(|j| {
                    (j.run.state, j.run.suspended_at, j.run.suspended_us) =
                        (JobState::Suspended, Some(at(3)), 5)
                })
                .build(),
            job(5, "ended").ended(End::Failed, Reason::NonZeroExitCode, exit, 9, 4).build(),
            job(6, "stepped")
                .running(9)
                .with(|j| (j.run.stepped_us, j.tres.gpus) = (2_000_000, 1))
                .build(),
            job(7, "rest").rest(&[1, 2, 5], Some(2)).build(),
            job(8, "task").task(7, 3).running(1).build(),
            job(9, "part").part(7, &[8, 9]).asks(|r| r.kind = JobKind::Run).build(),
        ];
        let ctx = ctx();
        for whole in &jobs {
            let brief = JobView::from(sent(BriefJob::of(&whole.job)));
            let (whole, brief) = (std::slice::from_ref(whole), std::slice::from_ref(&brief));
            let (whole, brief) = (rows(whole, false, &[]), rows(brief, false, &[]));
            for field in Squeue::fields().iter().filter(|field| field.need == Need::Brief) {
                assert_eq!(
                    brief.iter().map(|row| field.value(row, &ctx)).collect::<Vec<_>>(),
                    whole.iter().map(|row| field.value(row, &ctx)).collect::<Vec<_>>(),
                    "{} of {}",
                    field.title(),
                    whole[0].job.request.name
                );
            }
        }
    }

    #[test]
    fn no_two_fields_share_a_name() {
        let spelled = |names: Vec<&str>| {
            let mut names: Vec<String> =
                names.into_iter().map(|n| n.to_lowercase().replace(['-', '_'], "")).collect();
            names.sort();
            names
        };
        for names in [
            spelled(Squeue::fields().iter().flat_map(|f| f.names).copied().collect()),
            spelled(Squeue::fields().iter().flat_map(|f| f.own_names).copied().collect()),
        ] {
            let mut distinct = names.clone();
            distinct.dedup();
            assert_eq!(distinct, names);
        }
    }
}
