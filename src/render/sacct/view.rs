//! The listings of sacct and sstat: the lines of a job and their columns.

use crate::field::FormatError;
use crate::sacct::fields::{Row, Sacct};
use crate::{Columns, Ctx, layout};
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, JobRef, Step, StepId};

pub type Layout = layout::Layout<Sacct>;

/// The default listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    #[default]
    Default,
    /// `-b/--brief`
    Brief,
    /// `-l/--long`
    Long,
    /// sstat's default.
    Sstat,
}

const OWN_DEFAULT: &str = "JobID,Partition,JobName,User,State,ExitCode";
const SLURM_DEFAULT: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";
const SLURM_BRIEF: &str = "JobID,State,ExitCode";
const SLURM_LONG: &str = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,\
    MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,\
    NTasks,AllocCPUS,Elapsed,State,ExitCode,AveCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,ReqMem,\
    ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,\
    MaxDiskWriteTask,AveDiskWrite,ReqTRES,AllocTRES,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,\
    TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutMax,\
    TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutAve,TRESUsageOutTot";
const SSTAT_DEFAULT: &str = "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,\
    MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,\
    ReqCPUFreqMax,ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead%12,MaxDiskWrite,\
    MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite%12,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,\
    TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,\
    TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,\
    TRESUsageOutTot";

/// Returns the names of sstat's fields. It also accepts those of sacct.
pub fn sstat_fields() -> impl Iterator<Item = &'static str> {
    let usual = SSTAT_DEFAULT.split(',').map(|name| name.split('%').next().unwrap_or(name));
    usual.chain(["ConsumedEnergyRaw", "Nodelist", "Pids", "ReqCPUFreq"])
}

impl View {
    /// Returns the default columns. Except for the default view, they are always Slurm's.
    pub fn layout(self, columns: Columns) -> Layout {
        let text = match (self, columns) {
            // A test checks that every constant parses.
            (View::Default, Columns::Own) => return Layout::names(OWN_DEFAULT).unwrap_or_default(),
            (View::Default, Columns::Slurm) => SLURM_DEFAULT,
            (View::Brief, _) => SLURM_BRIEF,
            (View::Long, _) => SLURM_LONG,
            (View::Sstat, _) => SSTAT_DEFAULT,
        };
        Layout::ruled(text).unwrap_or_default()
    }
}

/// Parses `-o/--format` and `SACCT_FORMAT`: field names, each optionally with `%width` or
/// `%-width`, or `ALL`; or letters with text in between (`%i|%T`).
///
/// # Errors
/// Fails on an unknown name or letter.
pub fn parse(text: &str) -> Result<Layout, FormatError> {
    // In a name with a width, the `%` is between letters and digits. Anything else is a format of
    // letters.
    let is_names = text.split(',').all(|word| {
        let (name, size) = word.trim().split_once('%').unwrap_or((word.trim(), ""));
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && (!name.is_empty() || size.is_empty())
            && size.trim_start_matches('-').chars().all(|c| c.is_ascii_digit())
    });
    if is_names || !text.contains('%') { Layout::ruled(text) } else { Layout::codes(text) }
}

/// The lines of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rows {
    /// The job and its steps. The default table with bars omits the step of the batch script.
    #[default]
    JobsAndSteps,
    /// `-X/--allocations`
    Jobs,
    /// sstat.
    Steps,
}

/// The options for printing accounting records.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    pub layout: Layout,
    /// False with `-n/--noheader`.
    pub header: bool,
    pub rows: Rows,
    /// The requested IDs, if any. `12.0` shows only that step.
    pub refs: &'a [JobRef],
    /// `-p` and `-P`: the delimiter, and whether it also follows the last value.
    pub parsable: Option<(&'a str, bool)>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            layout: View::Default.layout(Columns::Own),
            header: true,
            rows: Rows::JobsAndSteps,
            refs: &[],
            parsable: None,
        }
    }
}

impl Options<'_> {
    /// Returns whether any step of a batch script may be printed: a table with bars has them only
    /// if they are named.
    pub fn shows_batch_steps(&self) -> bool {
        !self.layout.is_barred() || self.refs.iter().any(|r| r.step == Some(StepId::Batch))
    }
}

/// Prints the records as sacct does. They must already be filtered and sorted.
pub fn print(jobs: &[JobView], options: &Options<'_>, ctx: &Ctx) -> String {
    let mut listing = Listing::new(options);
    listing.add(jobs, ctx) + &listing.end(ctx)
}

/// A listing whose records arrive in batches.
#[derive(Debug)]
pub struct Listing<'a> {
    options: &'a Options<'a>,
    printer: layout::Printer<Sacct>,
}

impl<'a> Listing<'a> {
    pub fn new(options: &'a Options<'a>) -> Self {
        let layout = options.layout.clone();
        let layout = match options.parsable {
            None => layout,
            Some((delimiter, trailing)) => layout.parsable(delimiter, trailing),
        };
        Listing { options, printer: layout::Printer::new(layout, options.header) }
    }

    /// Adds records and returns the text that can be printed now.
    pub fn add(&mut self, jobs: &[JobView], ctx: &Ctx) -> String {
        let is_barred = self.options.layout.is_barred();
        let rows: Vec<Row<'_>> =
            jobs.iter().flat_map(|job| rows_of(job, self.options, is_barred)).collect();
        self.printer.add(&rows, ctx)
    }

    /// Returns the rest of the text.
    pub fn end(self, ctx: &Ctx) -> String {
        self.printer.end(ctx)
    }
}

fn rows_of<'a>(job: &'a JobView, options: &Options<'_>, is_barred: bool) -> Vec<Row<'a>> {
    let (whole, steps) = asked_for(job, options.refs);
    // `-X` shows the job of a requested step.
    let whole = whole || options.rows == Rows::Jobs;
    let wants = |step: &&Step| {
        let named = steps.contains(&step.id);
        match options.rows {
            Rows::Jobs => false,
            Rows::JobsAndSteps | Rows::Steps if named => true,
            Rows::JobsAndSteps | Rows::Steps => {
                whole && (!is_barred || matches!(step.id, StepId::Num(_)))
            }
        }
    };
    let job_row = (whole && options.rows != Rows::Steps).then_some(Row { job, step: None });
    let step_rows = job.steps.iter().filter(wants).map(|step| Row { job, step: Some(step) });
    job_row.into_iter().chain(step_rows).collect()
}

/// Returns whether the whole job was requested, and the requested steps.
fn asked_for(job: &JobView, refs: &[JobRef]) -> (bool, Vec<StepId>) {
    let mine: Vec<&JobRef> = refs.iter().filter(|r| names(r, job)).collect();
    let whole = mine.is_empty() || mine.iter().any(|r| r.step.is_none());
    (whole, mine.iter().filter_map(|r| r.step).collect())
}

/// Returns whether an ID that a user wrote refers to this record.
fn names(r: &JobRef, job: &JobView) -> bool {
    match (&job.role, &r.tasks) {
        (ArrayRole::Task { array_job, .. }, None) => r.job == job.id || r.job == *array_job,
        (ArrayRole::Task { array_job, task }, Some(tasks)) => {
            r.job == *array_job && tasks.contains(*task)
        }
        (ArrayRole::Part { array_job, .. }, None) => r.job == job.id || r.job == *array_job,
        (ArrayRole::Part { array_job, tasks: mine }, Some(tasks)) => {
            r.job == *array_job && !mine.intersection(tasks).is_empty()
        }
        (ArrayRole::None, tasks) => r.job == job.id && tasks.is_none(),
        (ArrayRole::Rest { .. }, None) => r.job == job.id,
        (ArrayRole::Rest { tasks: mine, .. }, Some(tasks)) => {
            r.job == job.id && !mine.intersection(tasks).is_empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{Table, helpformat};
    use crate::fixture::{NOW, at, ctx, job, step};
    use crate::size::Units;
    use crate::time::TimeFormat;
    use proptest::prelude::*;
    use slotd_model::tres::{Spread, TaskUsage, Usage};
    use slotd_model::{End, ExitCode, JobId, JobState, Reason, TaskSet, Timestamp, Tres};

    fn records() -> Vec<JobView> {
        let two = |mut s: Step, tasks: u32| {
            s.alloc.tres = Tres { cpus: 2, mem_mb: 200, ..Tres::ZERO };
            s.ntasks = tasks;
            s
        };
        let ok = ExitCode::OK;
        let done = End::Completed;
        let mut named = two(step(StepId::Num(1), "named", done, ok, 9, Some(8)), 2);
        named.submit_line = "srun -J named -n2 sleep 0.2".to_owned();
        named.usage = Usage { max_rss_kb: 1624, user_us: 3000, ..Usage::default() };
        named.usage.tasks = TaskUsage {
            vm_kb: Spread { max: 2920, task: 1, total: 2920 },
            pages: Spread::default(),
            read: Spread { max: 6041, task: 1, total: 6041 },
            written: Spread { max: 1, task: 1, total: 1 },
        };
        let mut script = two(step(StepId::Batch, "batch", done, ok, 9, Some(8)), 1);
        script.usage =
            Usage { max_rss_kb: 0, user_us: 18_000, system_us: 13_900, ..Usage::default() };
        vec![
            job(176, "steps")
                .with(|j| j.tres = Tres { cpus: 2, mem_mb: 200, ..Tres::ZERO })
                .ended(done, Reason::None, ok, 9, 8)
                .with(|j| {
                    j.run.derived_exit = ExitCode::status(7);
                    j.run.usage = Some(Box::new(script.usage));
                })
                .step(script)
                .step(two(step(StepId::Num(0), "true", done, ok, 9, Some(9)), 2))
                .step(named)
                .step(two(
                    step(StepId::Num(2), "sh", End::Failed, ExitCode::status(7), 9, Some(9)),
                    2,
                ))
                .build(),
            job(179, "sig")
                .ended(End::Failed, Reason::RaisedSignal, ExitCode::signal(9), 8, 8)
                .step(step(StepId::Batch, "batch", End::Cancelled, ExitCode::signal(9), 8, Some(8)))
                .build(),
            job(180, "canc")
                .ended(End::Cancelled, Reason::CancelledByUser, ExitCode::signal(15), 8, 8)
                .with(|j| j.run.cancelled_by = Some(1001))
                .step(step(StepId::Batch, "batch", End::Failed, ExitCode::status(15), 8, Some(8)))
                .build(),
            job(181, "heldcanc")
                .with(|j| {
                    j.run.state = JobState::Ended(End::Cancelled);
                    j.run.end = Some(at(8));
                    j.run.cancelled_by = Some(1001);
                })
                .build(),
            job(183, "arr")
                .task(177, 2)
                .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::status(1), 8, 8)
                .step(step(StepId::Batch, "batch", End::Failed, ExitCode::status(1), 8, Some(8)))
                .build(),
            job(185, "pend").reason(Reason::JobHeldUser).with(|j| j.run.eligible = None).build(),
        ]
    }

    fn columns(format: &str) -> Options<'static> {
        Options { layout: parse(format).unwrap(), ..Options::default() }
    }

    fn parsable(format: &str) -> Options<'static> {
        Options { parsable: Some(("|", false)), header: false, ..columns(format) }
    }

    /// Returns the values of the jobs' own lines, joined.
    fn values(format: &str) -> String {
        print(&records(), &Options { rows: Rows::Jobs, ..parsable(format) }, &ctx())
            .trim_end()
            .replace('\n', ";")
    }

    #[test]
    fn own_default_view_lists_jobs_and_numbered_steps() {
        assert_eq!(
            print(&records()[..2], &Options::default(), &ctx()),
            "JobID | Partition | JobName | User | State     | ExitCode\n\
             176   | cpu       | steps   | lab  | COMPLETED | 0:0\n\
             176.0 |           | true    |      | COMPLETED | 0:0\n\
             176.1 |           | named   |      | COMPLETED | 0:0\n\
             176.2 |           | sh      |      | FAILED    | 7:0\n\
             179   | cpu       | sig     | lab  | FAILED    | 0:9\n"
        );
    }

    #[test]
    fn own_default_view_parsable2_and_noheader() {
        let options = Options { parsable: Some(("|", false)), ..Options::default() };
        assert_eq!(
            print(&records()[1..2], &options, &ctx()),
            "JobID|Partition|JobName|User|State|ExitCode\n179|cpu|sig|lab|FAILED|0:9\n"
        );
        let options = Options { header: false, ..Options::default() };
        assert_eq!(
            print(&records()[1..2], &options, &ctx()),
            "179 | cpu | sig | lab | FAILED | 0:9\n"
        );
    }

    #[test]
    fn slurm_default_view() {
        let options =
            Options { layout: View::Default.layout(Columns::Slurm), ..Options::default() };
        assert_eq!(
            print(&records(), &options, &ctx()),
            "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n\
             ------------ ---------- ---------- ---------- ---------- ---------- -------- \n\
             176               steps        cpu                     2  COMPLETED      0:0 \n\
             176.batch         batch                                2  COMPLETED      0:0 \n\
             176.0              true                                2  COMPLETED      0:0 \n\
             176.1             named                                2  COMPLETED      0:0 \n\
             176.2                sh                                2     FAILED      7:0 \n\
             179                 sig        cpu                     1     FAILED      0:9 \n\
             179.batch         batch                                1  CANCELLED      0:9 \n\
             180                canc        cpu                     1 CANCELLED+      0:0 \n\
             180.batch         batch                                1     FAILED     15:0 \n\
             181            heldcanc        cpu                     1 CANCELLED+      0:0 \n\
             177_2               arr        cpu                     1     FAILED      1:0 \n\
             177_2.batch       batch                                1     FAILED      1:0 \n\
             185                pend        cpu                     1    PENDING      0:0 \n"
        );
    }

    #[test]
    fn allocations_option_leaves_the_steps_out() {
        let options = Options {
            layout: View::Default.layout(Columns::Slurm),
            rows: Rows::Jobs,
            header: false,
            ..Options::default()
        };
        assert_eq!(
            print(&records()[..2], &options, &ctx()),
            "176               steps        cpu                     2  COMPLETED      0:0 \n\
             179                 sig        cpu                     1     FAILED      0:9 \n"
        );
    }

    #[test]
    fn explicit_format_widths_derived_exit_code_and_times() {
        let options =
            columns("JobID,JobName%20,State%12,ExitCode,DerivedExitCode,Elapsed,Start,End");
        let text = print(&records(), &options, &ctx());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "JobID                     JobName        State ExitCode DerivedExitCode    Elapsed               Start                 End "
        );
        assert_eq!(
            lines[1],
            "------------ -------------------- ------------ -------- --------------- ---------- ------------------- ------------------- "
        );
        assert_eq!(
            lines[2],
            "176                         steps    COMPLETED      0:0             7:0   00:00:01 2026-11-20T23:39:49 2026-11-20T23:39:50 "
        );
        assert_eq!(
            lines[6],
            "176.2                          sh       FAILED      7:0                   00:00:00 2026-11-20T23:39:49 2026-11-20T23:39:49 "
        );
        assert_eq!(
            lines[9],
            "180                          canc CANCELLED b+      0:0             0:0   00:00:00 2026-11-20T23:39:50 2026-11-20T23:39:50 "
        );
        assert_eq!(
            lines[14],
            "185                          pend      PENDING      0:0             0:0   00:00:00             Unknown             Unknown "
        );
    }

    #[test]
    fn a_negative_width_justifies_left_and_cut_values_end_in_plus() {
        let options = columns("JobID%-14,State%-10,JobName%5");
        let text = print(&records()[2..4], &options, &ctx());
        assert_eq!(
            text,
            "JobID          State      JobNa \n\
             -------------- ---------- ----- \n\
             180            CANCELLED+  canc \n\
             180.batch      FAILED     batch \n\
             181            CANCELLED+ held+ \n"
        );
    }

    #[test]
    fn parsable_ends_in_the_delimiter_and_parsable2_does_not() {
        let job = &records()[1..2];
        let options = Options { rows: Rows::Jobs, ..columns("jobid,state") };
        let with = |delimiter, trailing| Options {
            parsable: Some((delimiter, trailing)),
            ..options.clone()
        };
        assert_eq!(print(job, &with("|", true), &ctx()), "JobID|State|\n179|FAILED|\n");
        assert_eq!(print(job, &with(",", false), &ctx()), "JobID,State\n179,FAILED\n");
        assert_eq!(print(job, &with("^|^", true), &ctx()), "JobID^|^State^|^\n179^|^FAILED^|^\n");
    }

    #[test]
    fn parsl_parses_two_words() {
        let options = Options { header: false, rows: Rows::Jobs, ..columns("jobid,state%20") };
        assert_eq!(
            print(&records()[1..2], &options, &ctx()),
            "179                        FAILED \n"
        );
    }

    #[test]
    fn the_state_of_a_cancelled_job_names_the_user() {
        assert_eq!(
            values("jobid,state,exitcode"),
            "176|COMPLETED|0:0;179|FAILED|0:9;180|CANCELLED by 1001|0:0;181|CANCELLED by 1001|0:0;177_2|FAILED|1:0;\
             185|PENDING|0:0"
        );
    }

    #[test]
    fn a_job_that_never_started_has_no_node_and_starts_at_its_end() {
        assert_eq!(
            print(
                &records()[3..4],
                &parsable("jobid,start,end,elapsed,nodelist,alloctres,reqtres"),
                &ctx()
            ),
            "181|2026-11-20T23:39:50|2026-11-20T23:39:50|00:00:00|None assigned||billing=1,cpu=1,mem=100M,node=1\n"
        );
    }

    #[test]
    fn a_held_job_is_not_eligible() {
        assert_eq!(
            print(
                &records()[5..],
                &parsable("jobid,state,start,end,elapsed,submit,eligible,reason"),
                &ctx()
            ),
            "185|PENDING|Unknown|Unknown|00:00:00|2026-11-20T23:39:54|Unknown|JobHeldUser\n"
        );
    }

    #[test]
    fn tres_of_jobs_and_steps() {
        assert_eq!(
            print(
                &records()[..1],
                &parsable("jobid,nodelist,alloccpus,reqcpus,reqmem,alloctres,reqtres"),
                &ctx()
            ),
            "176|vm|2|2|200M|billing=2,cpu=2,mem=200M,node=1|billing=2,cpu=2,mem=200M,node=1\n\
             176.batch|vm|2|2||cpu=2,mem=200M,node=1|\n\
             176.0|vm|2|2||cpu=2,mem=200M,node=1|\n\
             176.1|vm|2|2||cpu=2,mem=200M,node=1|\n\
             176.2|vm|2|2||cpu=2,mem=200M,node=1|\n"
        );
        let gpu = job(3, "g")
            .with(|j| j.tres = Tres { cpus: 2, mem_mb: 200, gpus: 2, ..Tres::ZERO })
            .build();
        assert_eq!(
            print(&[gpu], &parsable("reqtres"), &ctx()),
            "billing=2,cpu=2,gres/gpu=2,mem=200M,node=1\n"
        );
    }

    #[test]
    fn usage_of_jobs_and_steps() {
        assert_eq!(
            print(
                &records()[..1],
                &parsable(
                    "jobid,maxrss,averss,maxvmsize,totalcpu,usercpu,systemcpu,cputime,cputimeraw,elapsedraw,ntasks"
                ),
                &ctx()
            ),
            "176||||00:00.034|00:00.021|00:00.013|00:00:02|2|1|\n\
             176.batch||||00:00.031|00:00.018|00:00.013|00:00:02|2|1|1\n\
             176.0||||00:00:00|00:00:00|00:00:00|00:00:00|0|0|2\n\
             176.1|1624K|812K|2920K|00:00.003|00:00.003|00:00:00|00:00:02|2|1|2\n\
             176.2||||00:00:00|00:00:00|00:00:00|00:00:00|0|0|2\n"
        );
    }

    #[test]
    fn usage_of_the_tasks_of_a_step() {
        let of = |format| print(&records()[..1], &parsable(format), &ctx());
        assert_eq!(
            of(
                "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxpages,maxpagesnode,maxpagestask,avepages"
            ),
            "176||||||||\n176.batch||||||||\n176.0||||||||\n176.1|2920K|vm|1|1460K|0|vm|0|0\n176.2||||||||\n"
        );
        assert_eq!(
            of(
                "maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,\
                avediskwrite"
            ),
            "|||||||\n|||||||\n|||||||\n0.01M|vm|1|0.00M|0.00M|vm|1|0\n|||||||\n"
        );
        assert_eq!(
            of("tresusageinmax,tresusageinmaxtask,tresusageintot,tresusageoutmax,tresusageoutmaxtask").lines().nth(3),
            Some(
                "cpu=00:00:00,energy=0,fs/disk=6041,mem=1624K,pages=0,vmem=2920K|\
                 cpu=0,fs/disk=1,mem=0,pages=0,vmem=1|\
                 cpu=00:00:00,energy=0,fs/disk=6041,mem=1624K,pages=0,vmem=2920K|energy=0,fs/disk=1|fs/disk=1"
            )
        );
    }

    #[test]
    fn a_cancelled_job_has_no_exit_code_of_its_own() {
        let shown = |end, exit| {
            let job = job(1, "x").ended(end, Reason::None, exit, 4, 2).build();
            print(&[job], &Options { rows: Rows::Jobs, ..parsable("exitcode") }, &ctx())
        };
        for end in [End::Cancelled, End::Timeout] {
            assert_eq!(shown(end, ExitCode::status(9)), "0:0\n");
            assert_eq!(shown(end, ExitCode::signal(15)), "0:0\n");
        }
        assert_eq!(shown(End::Failed, ExitCode::status(9)), "9:0\n");
        assert_eq!(shown(End::OutOfMemory, ExitCode::OUT_OF_MEMORY), "0:125\n");
    }

    #[test]
    fn the_node_and_the_user() {
        let jobs = [job(176, "steps")
            .limit(31_536_000)
            .running(4)
            .step(records()[0].steps[2].clone())
            .build()];
        assert_eq!(
            print(
                &jobs,
                &parsable(
                    "jobid,workdir,submitline,user,uid,group,account,qos,cluster,partition,priority,timelimit,timelimitraw"
                ),
                &ctx()
            ),
            "176|/home/lab/g|sbatch sleep.sh 300|lab|1001|lab||normal|slotd|cpu|4294901642|365-00:00:00|525600\n\
             176.1||srun -J named -n2 sleep 0.2||||||slotd||||\n"
        );
        assert_eq!(values("timelimit,timelimitraw").split(';').next(), Some("UNLIMITED|UNLIMITED"));
    }

    #[test]
    fn every_own_field_name_is_known() {
        for (name, value) in [
            ("JobID", "177_2"),
            ("ArrayJobID", "177"),
            ("ArrayTaskID", "2"),
            ("JobName", "arr"),
            ("Partition", "cpu"),
            ("User", "lab"),
            ("State", "FAILED"),
            ("Reason", "NonZeroExitCode"),
            ("ExitCode", "1:0"),
            ("Elapsed", "00:00:00"),
            ("AllocCPUS", "1"),
            ("ReqMem", "100M"),
            ("ReqTRES", "billing=1,cpu=1,mem=100M,node=1"),
            ("AllocTRES", "billing=1,cpu=1,mem=100M,node=1"),
            ("NodeList", "vm"),
            ("Submit", "2026-11-20T23:39:54"),
            ("Start", "2026-11-20T23:39:50"),
            ("End", "2026-11-20T23:39:50"),
            ("WorkDir", "/home/lab/g"),
            ("BatchFlag", "1"),
            ("MaxRSS", ""),
        ] {
            let options = Options { rows: Rows::Jobs, ..parsable(name) };
            assert_eq!(print(&records()[4..5], &options, &ctx()), format!("{value}\n"), "{name}");
        }
    }

    #[test]
    fn every_letter_of_the_users_guide_is_known() {
        for (code, value) in [
            ("%i", "177_2"),
            ("%F", "177"),
            ("%K", "2"),
            ("%j", "arr"),
            ("%P", "cpu"),
            ("%u", "lab"),
            ("%t", "FAILED"),
            ("%T", "FAILED"),
            ("%R", "NonZeroExitCode"),
            ("%X", "1:0"),
            ("%M", "00:00:00"),
            ("%C", "1"),
            ("%m", "100M"),
            ("%b", "billing=1,cpu=1,mem=100M,node=1"),
            ("%B", "billing=1,cpu=1,mem=100M,node=1"),
            ("%N", "vm"),
            ("%V", "2026-11-20T23:39:54"),
            ("%S", "2026-11-20T23:39:50"),
            ("%E", "2026-11-20T23:39:50"),
            ("%Z", "/home/lab/g"),
        ] {
            let options = Options { rows: Rows::Jobs, header: false, ..columns(code) };
            assert_eq!(print(&records()[4..5], &options, &ctx()), format!("{value}\n"), "{code}");
        }
        let options = Options { rows: Rows::Jobs, ..columns("%i|%.10T|%X") };
        assert_eq!(
            print(&records()[4..5], &options, &ctx()),
            "JobID|     State|ExitCode\n177_2|    FAILED|1:0\n"
        );
    }

    #[test]
    fn helpformat_lists_four_on_a_line_and_every_name_is_accepted() {
        let text = helpformat::<Sacct>();
        assert!(text.starts_with(
            "Account             AdminComment        AllocCPUS           AllocNodes         \n"
        ));
        let all = text.split_whitespace().collect::<Vec<_>>().join(",");
        // aiida leaves a trailing comma.
        let header = print(&[], &columns(&format!("{all},")), &ctx());
        assert_eq!(
            header.lines().nth(1).map(|dashes| dashes.split_whitespace().count()),
            Some(all.split(',').count())
        );
    }

    #[test]
    fn every_field_of_slurms_helpformat_is_known() {
        for name in "Account AdminComment AllocCPUS AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite \
            AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy ConsumedEnergyRaw Container CPUTime \
            CPUTimeRAW DBIndex DerivedExitCode Elapsed ElapsedRaw Eligible End ExitCode Flags GID Group JobID JobIDRaw JobName \
            Layout MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages \
            MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU \
            MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks Partition Priority QOS QOSRAW Reason ReqCPUFreq ReqCPUFreqGov \
            ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqMem ReqNodes ReqTRES Reservation ReservationId Reserved ResvCPU ResvCPURAW \
            Start State Submit SubmitLine Suspended SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve \
            TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask \
            TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin \
            TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UID User UserCPU WCKey WCKeyID WorkDir"
            .split_whitespace()
        {
            assert!(Sacct::fields().iter().any(|f| f.names == [name]), "{name}");
            let text = print(&records(), &parsable(name), &ctx());
            assert_eq!(text.lines().count(), 13, "{name}");
        }
    }

    #[test]
    fn long_and_sstat_views_name_known_fields() {
        let count = |view: View| {
            let options = Options { layout: view.layout(Columns::Own), ..Options::default() };
            print(&[], &options, &ctx())
                .lines()
                .nth(1)
                .map_or(0, |dashes| dashes.split_whitespace().count())
        };
        assert_eq!((count(View::Brief), count(View::Long), count(View::Sstat)), (3, 54, 47));
    }

    #[test]
    fn the_averages_of_disk_use_are_narrower_in_sstat() {
        let header = |view: View| {
            let options = Options { layout: view.layout(Columns::Slurm), ..Options::default() };
            print(&[], &options, &ctx()).lines().next().unwrap_or_default().to_owned()
        };
        assert!(header(View::Long).contains(" MaxDiskReadTask    AveDiskRead MaxDiskWrite "));
        assert!(header(View::Sstat).contains(" MaxDiskReadTask  AveDiskRead MaxDiskWrite "));
        assert!(header(View::Sstat).contains(" MaxDiskWriteTask AveDiskWrite TRESUsageInAve "));
    }

    #[test]
    fn sstat_shows_only_steps() {
        let options = Options { rows: Rows::Steps, ..parsable("JobID,NTasks") };
        assert_eq!(print(&records()[1..2], &options, &ctx()), "179.batch|1\n");
    }

    #[test]
    fn flags_name_the_scheduler_of_started_jobs() {
        let jobs = [job(1, "waits").build(), job(2, "runs").running(3).build()];
        assert_eq!(print(&jobs, &parsable("jobid,flags"), &ctx()), "1|None\n2|SchedMain\n");
        let options = Options { rows: Rows::Steps, ..parsable("Flags") };
        assert_eq!(print(&records()[1..2], &options, &ctx()), "\n");
    }

    #[test]
    fn names_ignore_case_and_may_be_abbreviated() {
        assert_eq!(values("JOBIDRAW,stat,elap").split(';').nth(4), Some("183|FAILED|00:00:00"));
    }

    #[test]
    fn an_unknown_field_is_an_error_that_lists_what_exists() {
        let error = parse("jobid,nosuch").unwrap_err();
        assert_eq!(error.message, "Invalid field requested: \"nosuch\"");
        assert!(error.hint.ends_with("--helpformat lists the names"));
        assert_eq!(parse("%i %?").unwrap_err().message, "Invalid field requested: \"%?\"");
        assert!(parse("plain text").is_err());
    }

    #[test]
    fn a_requested_step_is_shown_alone() {
        let jobs = records();
        let text =
            |r: JobRef| print(&jobs[..1], &Options { refs: &[r], ..parsable("jobid") }, &ctx());
        let of = |step| JobRef { job: JobId(176), tasks: None, step: Some(step) };
        assert_eq!(text(of(StepId::Num(0))), "176.0\n");
        assert_eq!(text(of(StepId::Batch)), "176.batch\n");
        assert_eq!(text(of(StepId::Num(9))), "");
        assert_eq!(text(JobRef::job(JobId(176))).lines().count(), 5);
        let task =
            JobRef { job: JobId(177), tasks: Some(TaskSet::one(2)), step: Some(StepId::Batch) };
        assert_eq!(
            print(&jobs[4..5], &Options { refs: &[task], ..parsable("jobid") }, &ctx()),
            "177_2.batch\n"
        );
    }

    #[test]
    fn a_pending_array_is_one_line_with_its_own_number() {
        let rest = job(96, "wrap").rest(&[3, 4, 5], Some(2)).build();
        assert_eq!(
            print(&[rest], &parsable("jobid,jobidraw,state"), &ctx()),
            "96_[3-5%2]|96|PENDING\n"
        );
    }

    #[test]
    fn units_and_noconvert() {
        let mut c = ctx();
        let jobs = [job(1, "m").with(|j| j.tres.mem_mb = 2048).build()];
        assert_eq!(print(&jobs, &parsable("reqmem"), &c), "2G\n");
        c.units = Units::Keep;
        assert_eq!(print(&jobs, &parsable("reqmem"), &c), "2048M\n");
        c.units = Units::Fixed('K');
        assert_eq!(print(&jobs, &parsable("reqmem"), &c), "2097152K\n");
    }

    #[test]
    fn slurm_time_format_applies() {
        let mut c = ctx();
        c.time_format = TimeFormat::Custom("%s".to_owned());
        let jobs = [job(1, "m").running(4).build()];
        assert_eq!(
            print(&jobs, &parsable("submit,start,end"), &c),
            format!("{0}|{0}|Unknown\n", NOW - 4)
        );
    }

    #[test]
    fn an_empty_history_is_a_header() {
        assert_eq!(
            print(&[], &columns("jobid,state"), &ctx()),
            "JobID             State \n------------ ---------- \n"
        );
        assert_eq!(print(&[], &parsable("jobid"), &ctx()), "");
    }

    #[test]
    fn numbers_are_never_cut() {
        let jobs =
            [job(1, "m").with(|j| j.submit = Timestamp::from_secs(0)).running(123_456).build()];
        let options = Options { header: false, ..columns("elapsedraw%3") };
        assert_eq!(print(&jobs, &options, &ctx()), "123456 \n");
    }

    proptest! {
        #[test]
        fn no_format_panics(text in "\\PC{0,40}|[%.,0-9A-Za-z_-]{0,40}") {
            if let Ok(layout) = parse(&text) {
                print(&records(), &Options { layout, ..Options::default() }, &ctx());
            }
        }
    }
}
