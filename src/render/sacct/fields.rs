//! Every field of sacct and sstat: those that `sacct --helpformat` of Slurm 22.05 lists, the later
//! ones that are meaningful here, slotd's own, and the letters of `%` formats.

use crate::array::Shown;
use crate::field::{Cut, Field, Place, Table};
use crate::job_facts::{FactOf, sacct_fields};
use crate::tone::Tone;
use crate::value::Value;
use crate::{Ctx, job, seff, size, time, tres};
use slotd_model::tres::{GpuUsage, Spread, TaskUsage, Usage};
use slotd_model::view::JobView;
use slotd_model::{ExitCode, Step, StepId, Timestamp, Tres};
use std::sync::LazyLock;

/// A line of sacct: a job or one of its steps.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub job: &'a JobView,
    pub step: Option<&'a Step>,
}

/// The field table of sacct.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sacct;

impl Table for Sacct {
    type Row<'a> = Row<'a>;

    const HAS_HELPFORMAT: bool = true;

    const ABBREVIATED: bool = true;

    fn fields() -> &'static [Field<Self>] {
        static ALL: LazyLock<Vec<F>> = LazyLock::new(|| with_texts(FIELDS.to_vec()));
        &ALL
    }

    fn fact<'r>(row: &'r Row<'_>, fact: FactOf) -> Value<'r> {
        of_job(row, |job| fact(job).unwrap_or(Value::NONE))
    }

    fn unknown(place: Place, word: &str) -> String {
        match place {
            Place::Code => format!("Invalid field requested: \"%{word}\""),
            Place::Name | Place::LongName | Place::WideName | Place::Sort => {
                format!("Invalid field requested: \"{word}\"")
            }
        }
    }
}

type F = Field<Sacct>;
type Get = for<'a, 'r> fn(&'r Row<'a>, &'r Ctx) -> Value<'r>;

const fn text(width: i32, name: &'static [&'static str; 1], get: Get) -> F {
    F::new(name, name[0], get).width(width)
}

/// Creates a column for a number, which is printed in full even if it is wider than the column.
const fn number(width: i32, name: &'static [&'static str; 1], get: Get) -> F {
    text(width, name, get).cut(Cut::Header)
}

/// Creates the column of a letter. Unlike the field of the same name, it shows the job's value on
/// the lines of steps, too.
const fn of_each(code: &'static str, header: &'static str, get: Get) -> F {
    F::new(&[], header, get).code(code)
}

/// Returns the value of a field that is not measured or has no meaning on a single host.
fn nothing(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    Value::NONE
}

/// Returns the job ID as users know it, with the step: `12_3.batch`.
fn id(row: &Row<'_>, ctx: &Ctx) -> Value<'static> {
    with_step(Shown::of(row.job.id, &row.job.role).id(ctx), row)
}

fn with_step(id: String, row: &Row<'_>) -> Value<'static> {
    match row.step {
        Some(step) => format!("{id}.{}", step.id).into(),
        None => id.into(),
    }
}

/// Returns a value for the line of a job only.
fn of_job<'a, V: Into<Value<'a>>>(row: &Row<'a>, get: impl FnOnce(&'a JobView) -> V) -> Value<'a> {
    if row.step.is_none() { get(row.job).into() } else { Value::NONE }
}

/// Returns a value for the line of a step only.
fn of_step<'a, V: Into<Value<'a>>>(row: &Row<'a>, get: impl FnOnce(&'a Step) -> V) -> Value<'a> {
    row.step.map_or(Value::NONE, |step| get(step).into())
}

fn instant(at: Option<Timestamp>) -> Value<'static> {
    Value::Time(at, "Unknown")
}

fn start(row: &Row<'_>) -> Option<Timestamp> {
    match row.step {
        Some(step) => Some(step.start),
        None => job::start(row.job),
    }
}

fn end(row: &Row<'_>) -> Option<Timestamp> {
    match row.step {
        Some(step) => step.end,
        None if row.job.run.state.is_terminal() => row.job.run.end,
        None => None,
    }
}

/// Returns the run time of the job or step, in seconds.
fn elapsed(row: &Row<'_>, ctx: &Ctx) -> u64 {
    match row.step {
        Some(step) => row.job.step_elapsed(step, ctx.now).as_secs(),
        None => job::elapsed_secs(row.job, ctx),
    }
}

fn state(row: &Row<'_>, _: &Ctx) -> Value<'static> {
    match row.step {
        Some(step) => job::step_state_with_who(step).into(),
        None => job::state_with_who(row.job).into(),
    }
}

/// Returns the exit code as Slurm's sacct prints it: 128 is subtracted from a status of at least 128,
/// as if a shell had reported the signal of its command (`9:0` for 137). DerivedExitCode, scontrol
/// and JSON keep the whole status.
fn exit_code(row: &Row<'_>, _: &Ctx) -> Value<'static> {
    let exit = row.step.map_or_else(|| job::recorded_exit(row.job), |step| step.exit);
    let status = if exit.status >= 128 { exit.status - 128 } else { exit.status };
    ExitCode { status, ..exit }.to_string().into()
}

fn cpus(row: &Row<'_>) -> u32 {
    match row.step {
        Some(step) => step.alloc.tres.cpus,
        None => job::allocated_or_asked(row.job).cpus,
    }
}

/// Returns the usage of the step, or of the job with all its steps. The job's own record is that of
/// its script, which is one of the steps once it has started.
fn usage(row: &Row<'_>) -> Usage {
    match row.step {
        Some(step) => step.usage,
        None => seff::recorded_usage(row.job),
    }
}

/// Returns the nodes of the job, or Slurm's words if it never had any.
fn nodes(row: &Row<'_>, ctx: &Ctx) -> Value<'static> {
    match job::nodes(row.job, ctx) {
        "" => "None assigned".into(),
        node => node.to_owned().into(),
    }
}

fn tasks(step: &Step) -> u64 {
    u64::from(step.ntasks.max(1))
}

/// Returns a value of a step, computed from its peak in KiB, if its memory was measured.
fn measured<'a, V: Into<Value<'a>>>(row: &Row<'a>, get: impl FnOnce(&Step, u64) -> V) -> Value<'a> {
    of_step(row, |step| match step.usage.max_rss_kb {
        0 => Value::NONE,
        kb => get(step, kb).into(),
    })
}

/// Returns a value of a step computed over its tasks, if any was measured.
fn tasked<'a, V: Into<Value<'a>>>(row: &Row<'a>, get: impl FnOnce(&TaskUsage) -> V) -> Value<'a> {
    of_step(row, |step| match &step.usage.tasks {
        usage if usage.is_unmeasured() => Value::NONE,
        usage => get(usage).into(),
    })
}

/// Returns a value of a step whose virtual memory was sampled. A step may be too short for that.
fn vm<'a, V: Into<Value<'a>>>(row: &Row<'a>, get: impl FnOnce(Spread) -> V) -> Value<'a> {
    tasked(row, |usage| if usage.vm_kb.max > 0 { get(usage.vm_kb).into() } else { Value::NONE })
}

/// Returns the mean over the tasks.
fn mean(row: &Row<'_>, amount: Spread) -> u64 {
    amount.total / row.step.map_or(1, tasks)
}

/// The statistic over the tasks.
#[derive(Clone, Copy)]
enum Of {
    Mean,
    Most,
    All,
}

impl Of {
    fn choose(self, row: &Row<'_>, amount: Spread) -> u64 {
        match self {
            Of::Mean => mean(row, amount),
            Of::Most => amount.max,
            Of::All => amount.total,
        }
    }
}

/// Returns the usage of a task or of all tasks together:
/// `cpu=00:00:01,energy=0,fs/disk=11087,mem=1624K,pages=0,vmem=2920K`.
fn usage_in<'r>(row: &'r Row<'_>, ctx: &Ctx, of: Of) -> Value<'r> {
    measured(row, |step, kb| {
        let by = if matches!(of, Of::Mean) { tasks(step) } else { 1 };
        let secs = cpu_us(&step.usage) / 1_000_000;
        let used = &step.usage.tasks;
        format!(
            "cpu={},energy=0,fs/disk={}{},mem={},pages={},vmem={}",
            time::long(secs / by),
            of.choose(row, used.read),
            gpus_in(&step.usage.gpu, &of, ctx),
            size::kib(kb / by, ctx.units),
            of.choose(row, used.pages),
            size::kib(of.choose(row, used.vm_kb), ctx.units)
        )
    })
}

/// Returns the usage of all GPUs together, in percent of one GPU:
/// `,gres/gpumem=8G,gres/gpuutil=93`. Empty if it was not read.
fn gpus_in(used: &GpuUsage, of: &Of, ctx: &Ctx) -> String {
    if used.readings == 0 {
        return String::new();
    }
    let (mem_mb, busy) = match of {
        Of::Mean => (used.mem_sum_mb / used.readings, used.busy_sum / used.readings),
        Of::Most | Of::All => (used.mem_max_mb, used.busy_max),
    };
    format!(",gres/gpumem={},gres/gpuutil={busy}", size::mib(mem_mb, ctx.units))
}

/// Returns the bytes that a task wrote, or all tasks together: `energy=0,fs/disk=4096`.
fn usage_out<'r>(row: &'r Row<'_>, of: Of) -> Value<'r> {
    tasked(row, |used| format!("energy=0,fs/disk={}", of.choose(row, used.written)))
}

/// Returns the nodes with the largest and the smallest amounts.
fn nodes_in<'r>(row: &'r Row<'_>, ctx: &Ctx) -> Value<'r> {
    measured(row, |_, _| {
        ["cpu", "energy", "fs/disk", "mem", "pages", "vmem"]
            .map(|t| format!("{t}={}", ctx.node))
            .join(",")
    })
}

fn nodes_out<'r>(row: &'r Row<'_>, ctx: &Ctx) -> Value<'r> {
    tasked(row, |_| format!("energy={0},fs/disk={0}", ctx.node))
}

/// Returns the tasks with the largest amounts.
fn tasks_in<'r>(row: &'r Row<'_>, _: &Ctx) -> Value<'r> {
    measured(row, |step, _| {
        let used = &step.usage.tasks;
        format!(
            "cpu=0,fs/disk={},mem=0,pages={},vmem={}",
            used.read.task, used.pages.task, used.vm_kb.task
        )
    })
}

/// Returns the mean CPU time of a task of the step.
fn cpu_of_task<'r>(row: &'r Row<'_>, _: &Ctx) -> Value<'r> {
    measured(row, |step, _| Value::Long(Some(cpu_us(&step.usage) / 1_000_000 / tasks(step))))
}

/// Returns the CPU time in microseconds.
fn cpu_us(usage: &Usage) -> u64 {
    usage.user_us.saturating_add(usage.system_us)
}

/// Returns the run time multiplied by the allocated CPUs, in seconds.
fn cpu_secs(row: &Row<'_>, ctx: &Ctx) -> u64 {
    elapsed(row, ctx).saturating_mul(u64::from(cpus(row)))
}

/// Returns the waiting time multiplied by the requested CPUs, in seconds.
fn waited_cpu_secs(row: &Row<'_>, ctx: &Ctx) -> u64 {
    waited(row, ctx).saturating_mul(u64::from(row.job.tres.cpus))
}

/// Returns the allocation, or nothing before the start.
fn held(row: &Row<'_>, ctx: &Ctx) -> Value<'static> {
    match row.step {
        // A step that requests no GPUs sees the free GPUs of its job but has none allocated.
        Some(Step { alloc, .. }) => {
            let seen = alloc.gpu_share.of(u32::try_from(alloc.gpu_ids.len()).unwrap_or(u32::MAX));
            let has_own = alloc.gpu_share.gpus_in(&alloc.tres) > 0;
            let gpus = if has_own { alloc.tres } else { seen };
            let all = Tres { cpus: alloc.tres.cpus, mem_mb: alloc.tres.mem_mb, ..gpus };
            tres::sacct_step(&all, ctx.units).into()
        }
        None => {
            job::allocated(row.job).map_or(Value::NONE, |t| tres::sacct_job(&t, ctx.units).into())
        }
    }
}

fn name<'r>(row: &'r Row<'_>, _: &Ctx) -> Value<'r> {
    row.step.map_or(&row.job.request.name, |step| &step.name).into()
}

/// Returns the seconds between eligibility and start.
fn waited(row: &Row<'_>, ctx: &Ctx) -> u64 {
    let Some(eligible) = row.job.run.eligible else { return 0 };
    job::start(row.job).unwrap_or(ctx.now).since(eligible).as_secs()
}

/// Returns a limit in whole minutes, rounded up.
fn minutes(limit: Option<u64>) -> Value<'static> {
    limit.map_or("UNLIMITED".into(), |secs| secs.div_ceil(60).into())
}

/// Returns Slurm's value for a CPU frequency that was not requested.
fn cpu_freq(row: &Row<'_>, _: &Ctx) -> Value<'static> {
    let is_batch = row.step.is_some_and(|s| s.id == StepId::Batch);
    if is_batch { "0" } else { "Unknown" }.into()
}

/// Unlike the other texts of a job, Slurm's sacct also prints the account on the lines of steps.
fn account() -> F {
    text(10, &["Account"], |r, _| r.job.request.account.as_deref().unwrap_or_default().into())
        .yielding()
        .brief()
}

/// Adds the request texts of a job, each at its alphabetical place among the fields of its kind.
fn with_texts(mut fields: Vec<F>) -> Vec<F> {
    let lower = |field: &F| field.names.first().map(|name| name.to_ascii_lowercase());
    for mut text in sacct_fields() {
        if text.names == ["Account"] {
            text = account();
        }
        let follows = |field: &F| field.is_listed == text.is_listed && lower(field) > lower(&text);
        let place = fields.iter().position(follows).unwrap_or(fields.len());
        fields.insert(place, text);
    }
    fields
}

/// Slurm's fields in Slurm's order, except for those texts. Abbreviations match the first field.
static FIELDS: &[F] = &[
    number(10, &["AllocCPUS"], |r, _| cpus(r).into()).code("C").brief(),
    number(10, &["AllocNodes"], |r, _| (r.step.is_some() || r.job.run.start.is_some()).into())
        .brief(),
    text(10, &["AllocTRES"], held).code("B").brief(),
    number(7, &["AssocID"], |r, _| of_job(r, |_| "0")),
    text(10, &["AveCPU"], cpu_of_task),
    text(10, &["AveCPUFreq"], |r, _| of_step(r, |_| "0")),
    text(14, &["AveDiskRead"], |r, _| tasked(r, |u| Value::Bytes(mean(r, u.read)))),
    text(14, &["AveDiskWrite"], |r, _| tasked(r, |u| Value::Bytes(mean(r, u.written)))),
    text(10, &["AvePages"], |r, _| tasked(r, |u| mean(r, u.pages))),
    text(10, &["AveRSS"], |r, _| measured(r, |s, kb| Value::Kib(kb / tasks(s)))),
    text(10, &["AveVMSize"], |r, _| vm(r, |s| Value::Kib(mean(r, s)))),
    text(16, &["BlockID"], nothing),
    text(10, &["Cluster"], |_, c| c.cluster.clone().into()),
    text(19, &["Constraints"], |r, _| {
        of_job(r, |j| j.request.constraint.as_ref().map(ToString::to_string).unwrap_or_default())
    }),
    text(14, &["ConsumedEnergy"], |_, _| "0".into()),
    number(17, &["ConsumedEnergyRaw"], |_, _| "0".into()),
    text(19, &["Container"], nothing),
    text(10, &["CPUTime"], |r, c| Value::Long(Some(cpu_secs(r, c)))).brief(),
    number(10, &["CPUTimeRAW"], |r, c| cpu_secs(r, c).into()).brief(),
    number(-21, &["DBIndex"], |r, _| r.job.id.0.into()),
    text(15, &["DerivedExitCode"], |r, _| of_job(r, |j| j.run.derived_exit.to_string())).brief(),
    text(10, &["Elapsed"], |r, c| Value::Long(Some(elapsed(r, c)))).code("M").brief(),
    number(10, &["ElapsedRaw"], |r, c| elapsed(r, c).into()).brief(),
    text(19, &["Eligible"], |r, _| instant(job::eligible(r.job))),
    text(19, &["End"], |r, _| instant(end(r))).code("E").brief(),
    text(8, &["ExitCode"], exit_code).code("X").brief(),
    text(19, &["Flags"], |r, _| {
        of_job(r, |j| if j.run.start.is_some() { "SchedMain" } else { "None" })
    }),
    number(6, &["GID"], |r, _| of_job(r, |j| j.request.gid)),
    text(9, &["Group"], |r, _| of_job(r, |j| &j.request.group)),
    text(-12, &["JobID"], id).code("i").brief(),
    text(-12, &["JobIDRaw"], |r, _| with_step(r.job.id.to_string(), r)).brief(),
    text(10, &["JobName"], name).code("j").yielding().brief(),
    text(9, &["Layout"], nothing),
    text(12, &["MaxDiskRead"], |r, _| tasked(r, |u| Value::Bytes(u.read.max))),
    text(15, &["MaxDiskReadNode"], |r, c| tasked(r, |_| c.node.clone())),
    number(15, &["MaxDiskReadTask"], |r, _| tasked(r, |u| u.read.task)),
    text(12, &["MaxDiskWrite"], |r, _| tasked(r, |u| Value::Bytes(u.written.max))),
    text(16, &["MaxDiskWriteNode"], |r, c| tasked(r, |_| c.node.clone())),
    number(16, &["MaxDiskWriteTask"], |r, _| tasked(r, |u| u.written.task)),
    text(8, &["MaxPages"], |r, _| tasked(r, |u| u.pages.max)),
    text(12, &["MaxPagesNode"], |r, c| tasked(r, |_| c.node.clone())),
    number(14, &["MaxPagesTask"], |r, _| tasked(r, |u| u.pages.task)),
    text(10, &["MaxRSS"], |r, _| measured(r, |_, kb| Value::Kib(kb))).brief(),
    text(10, &["MaxRSSNode"], |r, c| measured(r, |_, _| c.node.clone())),
    number(10, &["MaxRSSTask"], |r, _| measured(r, |_, _| "0")),
    text(10, &["MaxVMSize"], |r, _| vm(r, |s| Value::Kib(s.max))).brief(),
    text(14, &["MaxVMSizeNode"], |r, c| vm(r, |_| c.node.clone())),
    number(14, &["MaxVMSizeTask"], |r, _| vm(r, |s| s.task)),
    text(12, &["McsLabel"], nothing),
    text(10, &["MinCPU"], cpu_of_task),
    text(10, &["MinCPUNode"], |r, c| measured(r, |_, _| c.node.clone())),
    number(10, &["MinCPUTask"], |r, _| measured(r, |_, _| "0")),
    number(10, &["NCPUS"], |r, _| cpus(r).into()).brief(),
    number(8, &["NNodes"], |_, _| "1".into()).brief(),
    text(15, &["NodeList"], nodes).code("N").brief(),
    number(8, &["NTasks"], |r, _| of_step(r, |s| s.ntasks)).brief(),
    number(10, &["Priority"], |r, _| of_job(r, job::priority)),
    text(10, &["Partition"], |r, _| of_job(r, |j| &*j.partition)).brief(),
    number(6, &["QOSRAW"], |r, _| of_job(r, |_| "1")),
    text(22, &["Reason"], |r, _| of_job(r, |j| j.run.reason.slurm_name())),
    text(10, &["ReqCPUFreq"], cpu_freq),
    text(13, &["ReqCPUFreqMin"], cpu_freq),
    text(13, &["ReqCPUFreqMax"], cpu_freq),
    text(13, &["ReqCPUFreqGov"], cpu_freq),
    number(8, &["ReqCPUS"], |r, _| r.step.map_or(r.job.tres.cpus, |s| s.alloc.tres.cpus).into())
        .brief(),
    text(10, &["ReqMem"], |r, _| of_job(r, |j| Value::Mib(j.tres.mem_mb))).brief(),
    text(8, &["ReqNodes"], |_, _| "1".into()),
    text(10, &["ReqTRES"], |r, c| of_job(r, |j| tres::sacct_job(&j.tres, c.units))).brief(),
    number(8, &["ReservationId"], nothing),
    text(10, &["Reserved"], |r, c| of_job(r, |_| Value::Long(Some(waited(r, c))))),
    text(10, &["ResvCPU"], |r, c| of_job(r, |_| Value::Long(Some(waited_cpu_secs(r, c))))),
    number(10, &["ResvCPURAW"], |r, c| of_job(r, |_| waited_cpu_secs(r, c))),
    text(19, &["Start"], |r, _| instant(start(r))).code("S").brief(),
    text(10, &["State"], state).code("tT").toned(Tone::of_job_cell).brief(),
    text(19, &["Submit"], |r, _| instant(Some(r.step.map_or(r.job.submit, |s| s.start)))).brief(),
    text(20, &["SubmitLine"], |r, _| {
        r.step.map_or(r.job.submit_line(), |s| &s.submit_line).to_owned().into()
    })
    .yielding(),
    text(10, &["Suspended"], |r, _| {
        of_job(r, |j| Value::Long(Some(j.run.suspended_us / 1_000_000)))
    })
    .brief(),
    text(10, &["SystemCPU"], |r, _| Value::Cpu(usage(r).system_us)),
    text(10, &["Timelimit"], |r, _| of_job(r, |j| Value::Long(j.request.time_limit_secs))).brief(),
    text(10, &["TimelimitRaw"], |r, _| of_job(r, |j| minutes(j.request.time_limit_secs))).brief(),
    text(10, &["TotalCPU"], |r, _| Value::Cpu(cpu_us(&usage(r)))),
    text(14, &["TRESUsageInAve"], |r, c| usage_in(r, c, Of::Mean)),
    text(14, &["TRESUsageInMax"], |r, c| usage_in(r, c, Of::Most)),
    text(18, &["TRESUsageInMaxNode"], nodes_in),
    text(18, &["TRESUsageInMaxTask"], tasks_in),
    text(14, &["TRESUsageInMin"], |r, c| usage_in(r, c, Of::Mean)),
    text(18, &["TRESUsageInMinNode"], nodes_in),
    text(18, &["TRESUsageInMinTask"], |r, _| {
        measured(r, |_, _| "cpu=0,fs/disk=0,mem=0,pages=0,vmem=0")
    }),
    text(14, &["TRESUsageInTot"], |r, c| usage_in(r, c, Of::All)),
    text(15, &["TRESUsageOutAve"], |r, _| usage_out(r, Of::Mean)),
    text(15, &["TRESUsageOutMax"], |r, _| usage_out(r, Of::Most)),
    text(19, &["TRESUsageOutMaxNode"], nodes_out),
    text(19, &["TRESUsageOutMaxTask"], |r, _| tasked(r, |u| format!("fs/disk={}", u.written.task))),
    text(15, &["TRESUsageOutMin"], |r, _| usage_out(r, Of::Mean)),
    text(19, &["TRESUsageOutMinNode"], nodes_out),
    text(19, &["TRESUsageOutMinTask"], |r, _| tasked(r, |_| "fs/disk=0")),
    text(15, &["TRESUsageOutTot"], |r, _| usage_out(r, Of::All)),
    number(6, &["UID"], |r, _| of_job(r, |j| j.request.uid)).brief(),
    text(9, &["User"], |r, _| of_job(r, |j| &j.request.user)).brief(),
    text(10, &["UserCPU"], |r, _| Value::Cpu(usage(r).user_us)),
    number(10, &["WCKeyID"], |r, _| of_job(r, |_| "0")),
    text(20, &["WorkDir"], |r, _| of_job(r, |j| &j.request.work_dir)).yielding(),
    // slotd's own.
    number(10, &["ArrayJobID"], |r, _| match Shown::of(r.job.id, &r.job.role) {
        Shown::Plain(_) => Value::NONE,
        Shown::Task { array, .. } | Shown::Tasks { array, .. } => array.0.into(),
    })
    .code("F"),
    text(11, &["ArrayTaskID"], |r, c| {
        Shown::of(r.job.id, &r.job.role).task(c).unwrap_or_default().into()
    })
    .code("K"),
    number(9, &["BatchFlag"], |r, _| of_job(r, job::is_batch)),
    // Fields of Slurm releases after 22.05.
    text(8, &["FailedNode"], nothing).unlisted(),
    text(10, &["Planned"], |r, c| of_job(r, |_| Value::Long(Some(waited(r, c))))).unlisted(),
    text(10, &["PlannedCPU"], |r, c| of_job(r, |_| Value::Long(Some(waited_cpu_secs(r, c)))))
        .unlisted(),
    number(13, &["PlannedCPURAW"], |r, c| of_job(r, |_| waited_cpu_secs(r, c))).unlisted(),
    number(8, &["Restarts"], |r, _| of_job(r, |j| j.run.restarts)).unlisted(),
    text(20, &["StdErr"], |r, _| of_job(r, |j| j.std_err.clone())).unlisted(),
    text(20, &["StdIn"], |r, _| of_job(r, |j| j.std_in.clone())).unlisted(),
    text(20, &["StdOut"], |r, _| of_job(r, |j| j.std_out.clone())).unlisted(),
    of_each("P", "Partition", |r, _| (&*r.job.partition).into()),
    of_each("u", "User", |r, _| (&r.job.request.user).into()),
    of_each("R", "Reason", |r, _| r.job.run.reason.slurm_name().into()),
    of_each("m", "ReqMem", |r, _| Value::Mib(r.job.tres.mem_mb)),
    of_each("b", "ReqTRES", |r, c| tres::sacct_job(&r.job.tres, c.units).into()),
    of_each("V", "Submit", |r, _| instant(Some(r.job.submit))),
    of_each("Z", "WorkDir", |r, _| r.job.request.work_dir.clone().into()),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Need;
    use crate::fixture::{at, ctx, job, sent, step};
    use slotd_model::brief::BriefJob;
    use slotd_model::tres::{Allocation, Tres};
    use slotd_model::{End, ExitCode, Reason};

    #[test]
    fn request_texts_are_listed_where_slurm_lists_them() {
        let names: Vec<&str> =
            Sacct::fields().iter().filter_map(|field| field.names.first().copied()).collect();
        assert_eq!(names[0], "Account");
        for three in [
            ["Cluster", "Comment", "Constraints"],
            ["Partition", "QOS", "QOSRAW"],
            ["ReqTRES", "Reservation", "ReservationId"],
            ["Suspended", "SystemComment", "SystemCPU"],
            ["UserCPU", "WCKey", "WCKeyID"],
            ["FailedNode", "Licenses", "Planned"],
            ["PlannedCPURAW", "QOSREQ", "Restarts"],
        ] {
            assert!(names.windows(3).any(|names| names == three), "{three:?}");
        }
    }

    #[test]
    fn brief_fields_are_the_same_for_a_brief_record() {
        let held = |tres| {
            Some(Box::new(Allocation { tres, cpu_ids: vec![3, 4], ..Allocation::default() }))
        };
        let two = Tres { cpus: 2, mem_mb: 200, ..Tres::ZERO };
        let batch = || step(StepId::Batch, "batch", End::Completed, ExitCode::OK, 9, Some(4));
        let jobs = [
            job(1, "waits").limit(61).asks(|r| r.account = Some("lab".to_owned())).build(),
            job(2, "runs").running(7).with(|j| j.run.alloc = held(two)).step(batch()).build(),
            job(3, "suspended")
                .running(9)
                .with(|j| (j.run.suspended_at, j.run.suspended_us) = (Some(at(3)), 5))
                .build(),
            job(4, "failed")
                .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::status(3), 9, 4)
                .build(),
            job(5, "cancelled")
                .ended(End::Cancelled, Reason::None, ExitCode::OK, 9, 4)
                .with(|j| (j.run.cancelled_by, j.run.derived_exit) = (Some(7), ExitCode::status(2)))
                .step(batch())
                .build(),
            job(6, "requeued")
                .running(9)
                .with(|j| (j.requeued, j.run.stepped_us) = (true, 2_000_000))
                .build(),
            job(7, "rest").rest(&[1, 2, 5], Some(2)).build(),
            job(8, "task").task(7, 3).running(1).build(),
        ];
        for whole in &jobs {
            let brief = JobView::from(sent(BriefJob::of_past(whole.clone())));
            let ctx = ctx();
            assert_eq!(brief.steps, whole.steps);
            for field in Sacct::fields().iter().filter(|field| field.need == Need::Brief) {
                for step in std::iter::once(None).chain(whole.steps.iter().map(Some)) {
                    let (brief, whole) = (Row { job: &brief, step }, Row { job: whole, step });
                    let (brief, whole) = (field.value(&brief, &ctx), field.value(&whole, &ctx));
                    assert_eq!(brief, whole, "{}", field.title());
                }
            }
        }
    }
}
