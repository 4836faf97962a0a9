//! Every field of sacct: those that `sacct --helpformat` of Slurm 22.05 lists, later ones that have a meaning here, and
//! the book's, with the book's `%` codes.

use crate::model::tres::{Spread, TaskUsage, Usage};
use crate::model::view::JobView;
use crate::model::{Step, StepId, Timestamp};
use crate::render::array::Shown;
use crate::render::format::{Cut, Field};
use crate::render::{Ctx, job, seff, size, time, tres};

/// A line of sacct: a job or one of its steps.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub job: &'a JobView,
    pub step: Option<&'a Step>,
}

pub type Get = fn(&Row<'_>, &Ctx) -> String;

/// A column. `width` is negative where the column is left justified; numbers are printed whole where text is cut.
pub struct Column {
    pub name: &'static str,
    pub width: i32,
    pub number: bool,
    pub get: Get,
}

const fn text(width: i32, name: &'static str, get: Get) -> Column {
    Column { name, width, number: false, get }
}

const fn number(width: i32, name: &'static str, get: Get) -> Column {
    Column { name, width, number: true, get }
}

/// Of what is not measured or has no meaning on one host.
fn nothing(_: &Row<'_>, _: &Ctx) -> String {
    String::new()
}

/// The id of the job as users know it, with the step: `12_3.batch`.
fn id(row: &Row<'_>, ctx: &Ctx) -> String {
    with_step(Shown::of(row.job.id, &row.job.role).id(ctx), row)
}

fn with_step(id: String, row: &Row<'_>) -> String {
    match row.step {
        Some(step) => format!("{id}.{}", step.id),
        None => id,
    }
}

/// A value that only the job's line has.
fn of_job(row: &Row<'_>, get: impl FnOnce(&JobView) -> String) -> String {
    if row.step.is_none() { get(row.job) } else { String::new() }
}

/// A value that only a step's line has.
fn of_step(row: &Row<'_>, get: impl FnOnce(&Step) -> String) -> String {
    row.step.map(get).unwrap_or_default()
}

fn unknown(t: Option<Timestamp>, ctx: &Ctx) -> String {
    time::instant_or(t, "Unknown", ctx)
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

/// Seconds that the job or the step has run.
fn elapsed(row: &Row<'_>, ctx: &Ctx) -> u64 {
    match row.step {
        Some(step) => row.job.step_elapsed(step, ctx.now).as_secs(),
        None => job::elapsed_secs(row.job, ctx),
    }
}

fn state(row: &Row<'_>) -> String {
    match row.step {
        Some(step) => step.state.name().to_owned(),
        None => job::state_with_who(row.job),
    }
}

fn exit_code(row: &Row<'_>) -> String {
    match row.step {
        Some(step) => step.exit.to_string(),
        None => job::recorded_exit(row.job).to_string(),
    }
}

fn cpus(row: &Row<'_>) -> u32 {
    match row.step {
        Some(step) => step.alloc.tres.cpus,
        None => job::allocated_or_asked(row.job).cpus,
    }
}

/// What the step used, or the job with all its steps. The record of the job itself is that of its script, which is
/// among the steps as soon as it has started.
fn usage(row: &Row<'_>) -> Usage {
    match row.step {
        Some(step) => step.usage,
        None => seff::recorded_usage(row.job),
    }
}

fn total_us(row: &Row<'_>) -> u64 {
    let u = usage(row);
    u.user_us.saturating_add(u.system_us)
}

/// The nodes of the job; Slurm's words where there never were any.
fn nodes(row: &Row<'_>, ctx: &Ctx) -> String {
    match job::nodes(row.job, ctx) {
        "" => "None assigned".to_owned(),
        node => node.to_owned(),
    }
}

/// The step's peak memory, in KiB; `None` where nothing was measured.
fn max_rss(step: &Step) -> Option<u64> {
    (step.usage.max_rss_kb > 0).then_some(step.usage.max_rss_kb)
}

fn tasks(step: &Step) -> u64 {
    u64::from(step.ntasks.max(1))
}

/// A value of a step that is only known where its memory was measured.
fn measured(row: &Row<'_>, get: impl FnOnce(&Step, u64) -> String) -> String {
    of_step(row, |step| max_rss(step).map(|kb| get(step, kb)).unwrap_or_default())
}

/// A value of a step over its tasks, where one was measured.
fn tasked(row: &Row<'_>, get: impl FnOnce(&TaskUsage) -> String) -> String {
    of_step(row, |step| {
        let usage = &step.usage.tasks;
        if usage.is_unmeasured() { String::new() } else { get(usage) }
    })
}

/// A value of a step whose virtual memory was looked at: it may have been too short.
fn vm(row: &Row<'_>, get: impl FnOnce(Spread) -> String) -> String {
    tasked(row, |u| if u.vm_kb.max > 0 { get(u.vm_kb) } else { String::new() })
}

/// The mean over the tasks.
fn mean(row: &Row<'_>, amount: Spread) -> u64 {
    amount.total / row.step.map_or(1, tasks)
}

/// Which number of the tasks' is meant.
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

/// `cpu=00:00:01,energy=0,fs/disk=11087,mem=1624K,pages=0,vmem=2920K`: what a task used, or all together.
fn usage_in(row: &Row<'_>, ctx: &Ctx, of: Of) -> String {
    measured(row, |step, kb| {
        let by = if matches!(of, Of::Mean) { tasks(step) } else { 1 };
        let secs = cpu_us(step) / 1_000_000;
        let used = &step.usage.tasks;
        format!(
            "cpu={},energy=0,fs/disk={},mem={},pages={},vmem={}",
            time::long(secs / by),
            of.choose(row, used.read),
            size::kib(kb / by, ctx.units),
            of.choose(row, used.pages),
            size::kib(of.choose(row, used.vm_kb), ctx.units)
        )
    })
}

/// `energy=0,fs/disk=4096`: what a task wrote, or all together.
fn usage_out(row: &Row<'_>, of: Of) -> String {
    tasked(row, |used| format!("energy=0,fs/disk={}", of.choose(row, used.written)))
}

/// The nodes of the largest, and of the smallest, amounts.
fn nodes_in(row: &Row<'_>, ctx: &Ctx) -> String {
    measured(row, |_, _| {
        ["cpu", "energy", "fs/disk", "mem", "pages", "vmem"].map(|t| format!("{t}={}", ctx.node)).join(",")
    })
}

fn nodes_out(row: &Row<'_>, ctx: &Ctx) -> String {
    tasked(row, |_| format!("energy={0},fs/disk={0}", ctx.node))
}

/// The tasks of the largest amounts.
fn tasks_in(row: &Row<'_>) -> String {
    measured(row, |step, _| {
        let used = &step.usage.tasks;
        format!("cpu=0,fs/disk={},mem=0,pages={},vmem={}", used.read.task, used.pages.task, used.vm_kb.task)
    })
}

/// CPU time of a task of the step.
fn cpu_of_task(row: &Row<'_>) -> String {
    of_step(row, |step| time::long(cpu_us(step) / 1_000_000 / tasks(step)))
}

/// CPU time of the step, microseconds.
fn cpu_us(step: &Step) -> u64 {
    step.usage.user_us.saturating_add(step.usage.system_us)
}

/// Seconds that were held on every CPU.
fn cpu_secs(row: &Row<'_>, ctx: &Ctx) -> u64 {
    elapsed(row, ctx).saturating_mul(u64::from(cpus(row)))
}

/// Seconds that were waited for every CPU.
fn waited_cpu_secs(row: &Row<'_>, ctx: &Ctx) -> u64 {
    waited(row, ctx).saturating_mul(u64::from(row.job.tres.cpus))
}

/// Seconds between eligibility and start.
fn waited(row: &Row<'_>, ctx: &Ctx) -> u64 {
    let Some(eligible) = row.job.run.eligible else { return 0 };
    job::start(row.job).unwrap_or(ctx.now).since(eligible).as_secs()
}

/// Whole minutes of a limit; a short one counts as its next minute.
fn minutes(limit: Option<u64>) -> String {
    limit.map_or_else(|| "UNLIMITED".to_owned(), |secs| secs.div_ceil(60).to_string())
}

/// What Slurm prints for CPU frequencies that nobody asked for.
fn cpu_freq(row: &Row<'_>) -> String {
    let is_batch = row.step.is_some_and(|s| s.id == StepId::Batch);
    if is_batch { "0".to_owned() } else { "Unknown".to_owned() }
}

/// Slurm's fields in Slurm's order: where a name is abbreviated, the first that fits is meant.
pub static FIELDS: &[Column] = &[
    text(10, "Account", |r, _| of_job(r, |j| j.request.account.clone().unwrap_or_default())),
    text(20, "AdminComment", nothing),
    number(10, "AllocCPUS", |r, _| cpus(r).to_string()),
    number(10, "AllocNodes", |r, _| u8::from(r.step.is_some() || r.job.run.start.is_some()).to_string()),
    text(10, "AllocTRES", |r, c| match r.step {
        Some(step) => tres::sacct_step(&step.alloc.tres, c.units),
        None => job::allocated(r.job).map(|t| tres::sacct_job(&t, c.units)).unwrap_or_default(),
    }),
    number(7, "AssocID", |r, _| of_job(r, |_| "0".to_owned())),
    text(10, "AveCPU", |r, _| measured(r, |_, _| cpu_of_task(r))),
    text(10, "AveCPUFreq", |r, _| of_step(r, |_| "0".to_owned())),
    text(14, "AveDiskRead", |r, c| tasked(r, |u| size::transferred(mean(r, u.read), c.units))),
    text(14, "AveDiskWrite", |r, c| tasked(r, |u| size::transferred(mean(r, u.written), c.units))),
    text(10, "AvePages", |r, _| tasked(r, |u| mean(r, u.pages).to_string())),
    text(10, "AveRSS", |r, c| measured(r, |s, kb| size::kib(kb / tasks(s), c.units))),
    text(10, "AveVMSize", |r, c| vm(r, |s| size::kib(mean(r, s), c.units))),
    text(16, "BlockID", nothing),
    text(10, "Cluster", |_, c| c.cluster.clone()),
    text(14, "Comment", |r, _| of_job(r, |j| j.request.comment.clone().unwrap_or_default())),
    text(19, "Constraints", |r, _| {
        of_job(r, |j| j.request.constraint.as_ref().map(ToString::to_string).unwrap_or_default())
    }),
    text(14, "ConsumedEnergy", |_, _| "0".to_owned()),
    number(17, "ConsumedEnergyRaw", |_, _| "0".to_owned()),
    text(19, "Container", nothing),
    text(10, "CPUTime", |r, c| time::long(cpu_secs(r, c))),
    number(10, "CPUTimeRAW", |r, c| cpu_secs(r, c).to_string()),
    number(-21, "DBIndex", |r, _| r.job.id.to_string()),
    text(15, "DerivedExitCode", |r, _| of_job(r, |j| j.run.derived_exit.to_string())),
    text(10, "Elapsed", |r, c| time::long(elapsed(r, c))),
    number(10, "ElapsedRaw", |r, c| elapsed(r, c).to_string()),
    text(19, "Eligible", |r, c| of_job(r, |j| unknown(job::eligible(j), c))),
    text(19, "End", |r, c| unknown(end(r), c)),
    text(8, "ExitCode", |r, _| exit_code(r)),
    text(19, "Flags", nothing),
    number(6, "GID", |r, _| of_job(r, |j| j.request.gid.to_string())),
    text(9, "Group", |r, _| of_job(r, |j| j.request.group.clone())),
    text(-12, "JobID", id),
    text(-12, "JobIDRaw", |r, _| with_step(r.job.id.to_string(), r)),
    text(10, "JobName", |r, _| r.step.map_or(&r.job.request.name, |s| &s.name).clone()),
    text(9, "Layout", nothing),
    text(12, "MaxDiskRead", |r, c| tasked(r, |u| size::transferred(u.read.max, c.units))),
    text(15, "MaxDiskReadNode", |r, c| tasked(r, |_| c.node.clone())),
    number(15, "MaxDiskReadTask", |r, _| tasked(r, |u| u.read.task.to_string())),
    text(12, "MaxDiskWrite", |r, c| tasked(r, |u| size::transferred(u.written.max, c.units))),
    text(16, "MaxDiskWriteNode", |r, c| tasked(r, |_| c.node.clone())),
    number(16, "MaxDiskWriteTask", |r, _| tasked(r, |u| u.written.task.to_string())),
    text(8, "MaxPages", |r, _| tasked(r, |u| u.pages.max.to_string())),
    text(12, "MaxPagesNode", |r, c| tasked(r, |_| c.node.clone())),
    number(14, "MaxPagesTask", |r, _| tasked(r, |u| u.pages.task.to_string())),
    text(10, "MaxRSS", |r, c| measured(r, |_, kb| size::kib(kb, c.units))),
    text(10, "MaxRSSNode", |r, c| measured(r, |_, _| c.node.clone())),
    number(10, "MaxRSSTask", |r, _| measured(r, |_, _| "0".to_owned())),
    text(10, "MaxVMSize", |r, c| vm(r, |s| size::kib(s.max, c.units))),
    text(14, "MaxVMSizeNode", |r, c| vm(r, |_| c.node.clone())),
    number(14, "MaxVMSizeTask", |r, _| vm(r, |s| s.task.to_string())),
    text(12, "McsLabel", nothing),
    text(10, "MinCPU", |r, _| measured(r, |_, _| cpu_of_task(r))),
    text(10, "MinCPUNode", |r, c| measured(r, |_, _| c.node.clone())),
    number(10, "MinCPUTask", |r, _| measured(r, |_, _| "0".to_owned())),
    number(10, "NCPUS", |r, _| cpus(r).to_string()),
    number(8, "NNodes", |_, _| "1".to_owned()),
    text(15, "NodeList", nodes),
    number(8, "NTasks", |r, _| of_step(r, |s| s.ntasks.to_string())),
    number(10, "Priority", |r, _| of_job(r, |j| job::priority(j).to_string())),
    text(10, "Partition", |r, _| of_job(r, |j| j.partition.clone())),
    text(10, "QOS", |r, _| of_job(r, |j| j.request.qos.clone().unwrap_or_else(|| job::DEFAULT_QOS.to_owned()))),
    number(6, "QOSRAW", |r, _| of_job(r, |_| "1".to_owned())),
    text(22, "Reason", |r, _| of_job(r, |j| j.run.reason.name().to_owned())),
    text(10, "ReqCPUFreq", |r, _| cpu_freq(r)),
    text(13, "ReqCPUFreqMin", |r, _| cpu_freq(r)),
    text(13, "ReqCPUFreqMax", |r, _| cpu_freq(r)),
    text(13, "ReqCPUFreqGov", |r, _| cpu_freq(r)),
    number(8, "ReqCPUS", |r, _| r.step.map_or(r.job.tres.cpus, |s| s.alloc.tres.cpus).to_string()),
    text(10, "ReqMem", |r, c| of_job(r, |j| size::mib(j.tres.mem_mb, c.units))),
    text(8, "ReqNodes", |r, _| of_job(r, |_| "1".to_owned())),
    text(10, "ReqTRES", |r, c| of_job(r, |j| tres::sacct_job(&j.tres, c.units))),
    text(20, "Reservation", |r, _| of_job(r, |j| j.request.reservation.clone().unwrap_or_default())),
    number(8, "ReservationId", nothing),
    text(10, "Reserved", |r, c| of_job(r, |_| time::long(waited(r, c)))),
    text(10, "ResvCPU", |r, c| of_job(r, |_| time::long(waited_cpu_secs(r, c)))),
    number(10, "ResvCPURAW", |r, c| of_job(r, |_| waited_cpu_secs(r, c).to_string())),
    text(19, "Start", |r, c| unknown(start(r), c)),
    text(10, "State", |r, _| state(r)),
    text(19, "Submit", |r, c| unknown(Some(r.step.map_or(r.job.submit, |s| s.start)), c)),
    text(20, "SubmitLine", |r, _| r.step.map_or(&r.job.request.submit_line, |s| &s.submit_line).clone()),
    text(10, "Suspended", |r, _| of_job(r, |j| time::long(j.run.suspended_us / 1_000_000))),
    text(15, "SystemComment", |r, _| of_job(r, |j| j.run.system_comment.clone().unwrap_or_default())),
    text(10, "SystemCPU", |r, _| time::cpu(usage(r).system_us)),
    text(10, "Timelimit", |r, _| of_job(r, |j| time::long_limit(j.request.time_limit_secs))),
    text(10, "TimelimitRaw", |r, _| of_job(r, |j| minutes(j.request.time_limit_secs))),
    text(10, "TotalCPU", |r, _| time::cpu(total_us(r))),
    text(14, "TRESUsageInAve", |r, c| usage_in(r, c, Of::Mean)),
    text(14, "TRESUsageInMax", |r, c| usage_in(r, c, Of::Most)),
    text(18, "TRESUsageInMaxNode", nodes_in),
    text(18, "TRESUsageInMaxTask", |r, _| tasks_in(r)),
    text(14, "TRESUsageInMin", |r, c| usage_in(r, c, Of::Mean)),
    text(18, "TRESUsageInMinNode", nodes_in),
    text(18, "TRESUsageInMinTask", |r, _| measured(r, |_, _| "cpu=0,fs/disk=0,mem=0,pages=0,vmem=0".to_owned())),
    text(14, "TRESUsageInTot", |r, c| usage_in(r, c, Of::All)),
    text(15, "TRESUsageOutAve", |r, _| usage_out(r, Of::Mean)),
    text(15, "TRESUsageOutMax", |r, _| usage_out(r, Of::Most)),
    text(19, "TRESUsageOutMaxNode", nodes_out),
    text(19, "TRESUsageOutMaxTask", |r, _| tasked(r, |u| format!("fs/disk={}", u.written.task))),
    text(15, "TRESUsageOutMin", |r, _| usage_out(r, Of::Mean)),
    text(19, "TRESUsageOutMinNode", nodes_out),
    text(19, "TRESUsageOutMinTask", |r, _| tasked(r, |_| "fs/disk=0".to_owned())),
    text(15, "TRESUsageOutTot", |r, _| usage_out(r, Of::All)),
    number(6, "UID", |r, _| of_job(r, |j| j.request.uid.to_string())),
    text(9, "User", |r, _| of_job(r, |j| j.request.user.clone())),
    text(10, "UserCPU", |r, _| time::cpu(usage(r).user_us)),
    text(10, "WCKey", |r, _| of_job(r, |j| j.request.wckey.clone().unwrap_or_default())),
    number(10, "WCKeyID", |r, _| of_job(r, |_| "0".to_owned())),
    text(20, "WorkDir", |r, _| of_job(r, |j| j.request.work_dir.clone())),
    // The book's fields that Slurm lacks.
    number(10, "ArrayJobID", |r, _| match Shown::of(r.job.id, &r.job.role) {
        Shown::Plain(_) => String::new(),
        Shown::Task { array, .. } | Shown::Tasks { array, .. } => array.to_string(),
    }),
    text(11, "ArrayTaskID", |r, c| Shown::of(r.job.id, &r.job.role).task(c).unwrap_or_default()),
    number(9, "BatchFlag", |r, _| of_job(r, |j| u8::from(job::is_batch(j)).to_string())),
    // Fields of Slurm releases after 22.05.
    text(14, "Extra", nothing),
    text(8, "FailedNode", nothing),
    text(10, "Licenses", |r, _| of_job(r, |j| j.request.licenses.clone().unwrap_or_default())),
    text(10, "Planned", |r, c| of_job(r, |_| time::long(waited(r, c)))),
    text(10, "PlannedCPU", |r, c| of_job(r, |_| time::long(waited_cpu_secs(r, c)))),
    number(13, "PlannedCPURAW", |r, c| of_job(r, |_| waited_cpu_secs(r, c).to_string())),
    text(10, "QOSREQ", |r, _| of_job(r, |j| j.request.qos.clone().unwrap_or_default())),
    number(8, "Restarts", |r, _| of_job(r, |j| j.run.restarts.to_string())),
    text(20, "StdErr", |r, _| of_job(r, |j| j.std_err.clone())),
    text(20, "StdIn", |r, _| of_job(r, |j| j.std_in.clone())),
    text(20, "StdOut", |r, _| of_job(r, |j| j.std_out.clone())),
];

/// Fields of Slurm 22.05 and of the book, which `--helpformat` lists; the later ones are known without being listed.
pub fn listed() -> impl Iterator<Item = &'static Column> {
    FIELDS.iter().take_while(|f| f.name != "Extra")
}

/// The field that a name means: the name, else the first that begins with it, as in Slurm. Case makes no difference.
pub fn find(name: &str) -> Option<usize> {
    let is = |f: &Column| f.name.eq_ignore_ascii_case(name);
    let begins = |f: &Column| f.name.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    FIELDS.iter().position(is).or_else(|| FIELDS.iter().position(begins).filter(|_| !name.is_empty()))
}

/// Whether a field of this name, or one that begins with it, exists.
pub fn is_field(name: &str) -> bool {
    find(name).is_some()
}

/// The book's `%` codes.
pub static CODES: &[Field<Get>] = &[
    code('i', "JobID", id),
    code('F', "ArrayJobID", |r, _| match Shown::of(r.job.id, &r.job.role) {
        Shown::Plain(_) => String::new(),
        Shown::Task { array, .. } | Shown::Tasks { array, .. } => array.to_string(),
    }),
    code('K', "ArrayTaskID", |r, c| Shown::of(r.job.id, &r.job.role).task(c).unwrap_or_default()),
    code('j', "JobName", |r, _| r.step.map_or(&r.job.request.name, |s| &s.name).clone()),
    code('P', "Partition", |r, _| r.job.partition.clone()),
    code('u', "User", |r, _| r.job.request.user.clone()),
    code('t', "State", |r, _| state(r)),
    code('T', "State", |r, _| state(r)),
    code('R', "Reason", |r, _| r.job.run.reason.name().to_owned()),
    code('X', "ExitCode", |r, _| exit_code(r)),
    code('M', "Elapsed", |r, c| time::long(elapsed(r, c))),
    code('C', "AllocCPUS", |r, _| cpus(r).to_string()),
    code('m', "ReqMem", |r, c| size::mib(r.job.tres.mem_mb, c.units)),
    code('b', "ReqTRES", |r, c| tres::sacct_job(&r.job.tres, c.units)),
    code('B', "AllocTRES", |r, c| match r.step {
        Some(step) => tres::sacct_step(&step.alloc.tres, c.units),
        None => job::allocated(r.job).map(|t| tres::sacct_job(&t, c.units)).unwrap_or_default(),
    }),
    code('N', "NodeList", nodes),
    code('V', "Submit", |r, c| unknown(Some(r.job.submit), c)),
    code('S', "Start", |r, c| unknown(start(r), c)),
    code('E', "End", |r, c| unknown(end(r), c)),
    code('Z', "WorkDir", |r, _| r.job.request.work_dir.clone()),
];

const fn code(code: char, header: &'static str, get: Get) -> Field<Get> {
    Field { code: Some(code), names: &[], header, cut: Cut::Always, get }
}
