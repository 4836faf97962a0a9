//! `scontrol show job`.

use crate::array::Shown;
use crate::job_facts::{self, Place};
use crate::show::record::Record;
use crate::{Ctx, job as facts, size, time, tres};
use slotd_model::node::ranges;
use slotd_model::request::{JobKind, NodeCount};
use slotd_model::view::JobView;
use slotd_model::{JobState, Reason, Timestamp};

/// Maximum number of steps in the summary; the others are only counted.
const STEPS_NAMED: usize = 16;

/// Prints these jobs, or Slurm's message if the list is empty.
pub fn jobs(jobs: &[JobView], one_line: bool, detail: bool, ctx: &Ctx) -> String {
    if jobs.is_empty() {
        return "No jobs in the system\n".to_owned();
    }
    jobs.iter().map(|j| job(j, one_line, detail, ctx)).collect()
}

/// Prints one job. `detail` (`-d`) adds the exit code of its steps and its CPUs and GPUs.
pub(crate) fn job(j: &JobView, one_line: bool, detail: bool, ctx: &Ctx) -> String {
    let mut r = Record::default();
    who_and_what(&mut r, j, ctx);
    times(&mut r, j, detail, ctx);
    place_and_size(&mut r, j, detail, ctx);
    request(&mut r, j, ctx);
    additions(&mut r, j, ctx);
    let mut out = r.print(one_line, ctx);
    if !one_line {
        // Slurm ends a job with a line of three spaces and an empty line.
        out.truncate(out.len() - 1);
        out.push_str("   \n\n");
    }
    out
}

fn who_and_what(r: &mut Record, j: &JobView, ctx: &Ctx) {
    let q = &j.request;
    let mut first = vec![("JobId", j.id.to_string())];
    let shown = Shown::of(j.id, &j.role);
    if let Some(task) = shown.task(ctx) {
        first.push(("ArrayJobId", shown.array_job().to_string()));
        first.push(("ArrayTaskId", task));
        if let Some(limit) = throttle(j) {
            first.push(("ArrayTaskThrottle", limit.to_string()));
        }
    }
    first.push(("JobName", q.name.clone()));
    r.line(first);
    r.line(vec![
        ("UserId", format!("{}({})", q.user, q.uid)),
        ("GroupId", format!("{}({})", q.group, q.gid)),
        ("MCS_label", "N/A".to_owned()),
    ]);
    let mut priority = vec![("Priority", facts::priority(j).to_string())];
    priority.extend(job_facts::show(j, Place::Priority, ctx));
    r.line(priority);
    r.line(vec![
        ("JobState", facts::state_name(j).to_owned()),
        ("Reason", facts::reason(j).replace(' ', "_")),
        ("Dependency", facts::or_null(facts::dependency(j).as_deref())),
    ]);
}

/// Returns how many tasks of an array may run at once: the current limit of its pending tasks, or
/// the requested one.
fn throttle(j: &JobView) -> Option<u32> {
    match &j.role {
        slotd_model::ArrayRole::Rest { limit, .. } => *limit,
        slotd_model::ArrayRole::None
        | slotd_model::ArrayRole::Task { .. }
        | slotd_model::ArrayRole::Part { .. } => j.request.array.as_ref().and_then(|a| a.limit),
    }
}

fn times(r: &mut Record, j: &JobView, detail: bool, ctx: &Ctx) {
    let q = &j.request;
    let unknown = |t: Option<Timestamp>| time::instant_or(t, "Unknown", ctx);
    r.line(vec![
        ("Requeue", u8::from(j.runs_again()).to_string()),
        ("Restarts", j.run.restarts.to_string()),
        ("BatchFlag", u8::from(facts::is_batch(j)).to_string()),
        ("Reboot", "0".to_owned()),
        ("ExitCode", j.run.exit.to_string()),
    ]);
    if detail {
        r.word("DerivedExitCode", j.run.derived_exit.to_string());
    }
    r.line(vec![
        ("RunTime", time::long(facts::elapsed_secs(j, ctx))),
        ("TimeLimit", time::long_limit(q.time_limit_secs)),
        ("TimeMin", q.time_min_secs.map_or_else(|| "N/A".to_owned(), time::long)),
    ]);
    r.line(vec![
        ("SubmitTime", unknown(Some(j.submit))),
        ("EligibleTime", unknown(facts::eligible(j))),
    ]);
    r.word("AccrueTime", unknown(j.run.eligible));
    r.line(vec![
        ("StartTime", unknown(facts::start_or_expected(j))),
        ("EndTime", unknown(facts::end_or_expected(j, ctx))),
        ("Deadline", time::instant_or(q.deadline, "N/A", ctx)),
    ]);
    if let Some(recurrence) = &q.recurrence {
        r.line(vec![("CronJob", "Yes".to_owned()), ("CrontabSpec", format!("\"{recurrence}\""))]);
    }
    let preempted_at = j.run.preempted.as_ref().map(|by| by.at);
    if j.preemptible_since.is_some() || preempted_at.is_some() {
        r.line(vec![
            ("PreemptEligibleTime", unknown(j.preemptible_since.or(j.run.start))),
            ("PreemptTime", time::instant_or(preempted_at, "None", ctx)),
        ]);
    }
    let before = if j.run.suspended_at.is_some() { facts::elapsed_secs(j, ctx) } else { 0 };
    r.line(vec![
        ("SuspendTime", time::instant_or(j.run.suspended_at, "None", ctx)),
        ("SecsPreSuspend", before.to_string()),
        ("LastSchedEval", unknown(facts::last_evaluation(j, ctx))),
        ("Scheduler", "Main".to_owned()),
    ]);
}

fn place_and_size(r: &mut Record, j: &JobView, detail: bool, ctx: &Ctx) {
    let q = &j.request;
    r.line(vec![
        ("Partition", j.partition.to_string()),
        ("AllocNode:Sid", format!("{}:0", q.submit_host)),
    ]);
    r.line(vec![
        ("ReqNodeList", facts::or_null(Some(&q.nodelist.to_string()))),
        ("ExcNodeList", facts::or_null(Some(&q.exclude.to_string()))),
    ]);
    let node = facts::nodes(j, ctx);
    let mut place = vec![("NodeList", node.to_owned())];
    if j.run.state == JobState::Pending
        && j.expected_start.is_some()
        && j.run.reason != Reason::BeginTime
    {
        place.push(("SchedNodeList", ctx.node.clone()));
    }
    r.line(place);
    r.word_if("BatchHost", (!node.is_empty()).then(|| node.to_owned()));
    let t = facts::allocated_or_asked(j);
    let p = &q.placement;
    let or_any =
        |number: Option<u32>| number.map_or_else(|| "*".to_owned(), |number| number.to_string());
    r.line(vec![
        ("NumNodes", num_nodes(j)),
        ("NumCPUs", t.cpus.to_string()),
        ("NumTasks", q.task_count().to_string()),
        ("CPUs/Task", facts::cpus_per_task(j).to_string()),
        (
            "ReqB:S:C:T",
            format!("0:0:{}:{}", or_any(p.cores_per_socket), or_any(p.threads_per_core)),
        ),
    ]);
    r.word("TRES", tres::scontrol(&t, ctx.units));
    r.line(vec![
        ("Socks/Node", or_any(p.sockets_per_node)),
        (
            "NtasksPerN:B:S:C",
            format!(
                "{}:0:{}:{}",
                q.ntasks_per_node.unwrap_or(0),
                or_any(p.ntasks_per_socket),
                or_any(p.ntasks_per_core)
            ),
        ),
        ("CoreSpec", "*".to_owned()),
    ]);
    if let (true, Some(alloc)) = (detail, &j.run.alloc) {
        let gres = tres::gres(&alloc.tres, ctx.units);
        r.word("JOB_GRES", facts::or_null(gres.as_deref()));
        let index =
            gres.map(|g| format!("{g}(IDX:{})", ranges(&alloc.gpu_ids))).unwrap_or_default();
        let words = vec![
            ("Nodes", ctx.node.clone()),
            ("CPU_IDs", ranges(&alloc.cpu_ids)),
            ("Mem", alloc.tres.mem_mb.to_string()),
            ("GRES", index),
        ];
        r.odd_line("  ", words, "");
    }
    let (mb, per_cpu) = facts::min_memory(j);
    r.line(vec![
        ("MinCPUsNode", facts::min_cpus(j).to_string()),
        (if per_cpu { "MinMemoryCPU" } else { "MinMemoryNode" }, size::mib(mb, ctx.units)),
        ("MinTmpDiskNode", size::mib(q.tmp_disk_mb.unwrap_or(0), ctx.units)),
    ]);
}

fn request(r: &mut Record, j: &JobView, ctx: &Ctx) {
    let q = &j.request;
    r.line(vec![
        ("Features", facts::value_or_null(q.constraint.as_ref())),
        ("DelayBoot", time::long(q.delay_boot_secs.unwrap_or(0))),
    ]);
    job_facts::show(j, Place::Features, ctx).into_iter().for_each(|word| r.line(vec![word]));
    let contiguous = u8::from(q.contiguous).to_string();
    let mut sharing =
        vec![("OverSubscribe", facts::over_subscribe(j).to_owned()), ("Contiguous", contiguous)];
    sharing.extend(job_facts::show(j, Place::Sharing, ctx));
    r.line(sharing);
    r.word("Command", facts::or_null(facts::command(j).as_deref()));
    r.word("WorkDir", q.work_dir.clone());
    job_facts::show(j, Place::WorkDir, ctx)
        .into_iter()
        .for_each(|word| r.odd_line("", vec![word], " "));
    if !j.std_out.is_empty() {
        r.word("StdErr", j.std_err.clone());
        r.word("StdIn", j.std_in.clone());
        r.word("StdOut", j.std_out.clone());
    }
    let switches = q.switches.map(|s| format!("{}@{}", s.count, time::long(s.wait_secs)));
    r.word_if("Switches", switches);
    r.word("Power", "");
    let kills = q.kill_on_invalid_dep.map(|kills| if kills { "Yes" } else { "No" }.to_owned());
    // Slurm's spelling.
    r.word_if("KillOInInvalidDependent", kills);
    r.word_if("CpusPerTres", facts::cpus_per_tres(j));
    r.word_if("MemPerTres", facts::mem_per_tres(j));
    r.word_if("TresBind", facts::tres_bind(j));
    r.word_if("TresPerJob", facts::tres_per_job(j));
    r.word_if("TresPerNode", facts::tres_per_node(j));
    r.word_if("TresPerSocket", facts::tres_per_socket(j));
    r.word_if("TresPerTask", facts::tres_per_task(j));
    let last = job_facts::show(j, Place::Last, ctx);
    if !last.is_empty() {
        r.line(last);
    }
}

/// Appends slotd's additions to Slurm's output.
fn additions(r: &mut Record, j: &JobView, ctx: &Ctx) {
    r.word("ReqTRES", tres::scontrol(&j.tres, ctx.units));
    let allocated = facts::allocated(j).map(|t| tres::scontrol(&t, ctx.units));
    r.word("AllocTRES", facts::or_null(allocated.as_deref()));
    // The size to which the job shrinks as its steps end.
    r.word_if("PendingTRES", j.run.shrinks.then(|| tres::scontrol(&j.tres, ctx.units)));
    let peak =
        j.steps.iter().fold(j.run.usage().max_rss_kb, |peak, s| peak.max(s.usage.max_rss_kb));
    r.word("MaxRSS", size::kib(peak, ctx.units));
    if j.request.kind == JobKind::Batch {
        // Shows which of the two meanings of `-n` in a batch job applies.
        r.word("BatchTasks", if j.batch_ranks { "ranks" } else { "once" });
    }
    let reason = j.run.reason;
    if reason.name() != reason.slurm_name() {
        // Some reasons of slotd are more specific than Slurm's.
        r.word("Cause", reason.name());
    }
    r.word("Steps", step_summary(j));
}

/// Summarizes the latest steps and the number of earlier ones:
/// `batch:RUNNING,0:COMPLETED,1:FAILED(7:0)`.
fn step_summary(j: &JobView) -> String {
    if j.steps.is_empty() {
        return "(null)".to_owned();
    }
    let skipped = j.steps.len().saturating_sub(STEPS_NAMED);
    let mut words = Vec::with_capacity(STEPS_NAMED + 1);
    if skipped > 0 {
        words.push(format!("({skipped}_more)"));
    }
    for step in &j.steps[skipped..] {
        let mut word = format!("{}:{}", step.id, step.state);
        if !step.exit.is_success() {
            word.push_str(&format!("({})", step.exit));
        }
        words.push(word);
    }
    words.join(",")
}

/// Returns the number of nodes, or the requested range `1-1` for a pending job with `--nodes=1`, as
/// Slurm's scontrol prints them.
fn num_nodes(j: &JobView) -> String {
    match j.request.nodes {
        Some(NodeCount { min, max }) if j.run.state == JobState::Pending && max != u32::MAX => {
            format!("{min}-{max}")
        }
        _ => "1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{JobBuilder, at, ctx, job as build, step};
    use slotd_model::End;
    use slotd_model::array::ArraySpec;
    use slotd_model::binding::GpuBind;
    use slotd_model::request::Switches;
    use slotd_model::tres::Usage;
    use slotd_model::{ExitCode, JobRequest, StepId, TaskSet, Tres};

    /// Returns Slurm's part of the text, without slotd's additions.
    fn slurms(text: &str) -> String {
        let ours = ["   ReqTRES=", "   AllocTRES=", "   MaxRSS=", "   BatchTasks=", "   Steps="];
        text.lines()
            .filter(|l| !ours.iter().any(|o| l.starts_with(o)))
            .map(|l| format!("{l}\n"))
            .collect()
    }

    #[test]
    fn requests_without_an_effect_are_shown_in_slurms_places() {
        let asks = |r: &mut JobRequest| {
            r.network = Some("sn_all".to_owned());
            r.switches = Some(Switches { count: 2, wait_secs: 90 });
            (r.delay_boot_secs, r.tmp_disk_mb) = (Some(300), Some(2048));
            r.kill_on_invalid_dep = Some(false);
            r.gpu_bind = Some(Box::new(GpuBind::Single(2)));
        };
        let text = job(&build(191, "idle").asks(asks).build(), false, false, &ctx());
        for part in [
            " MinTmpDiskNode=2G\n   Features=(null) DelayBoot=00:05:00\n",
            " Licenses=(null) Network=sn_all\n",
            "\n   Switches=2@00:01:30\n   Power=\n   KillOInInvalidDependent=No\n   TresBind=gres:gpu:single:2\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_removed_gpu_request_is_not_shown() {
        let text =
            job(&build(191, "none").asks(|r| r.gpu.total = Some(0)).build(), false, false, &ctx());
        assert!(!text.contains("TresPer"), "{text}");
    }

    #[test]
    fn a_job_with_a_begin_time_is_eligible_from_then() {
        let j = build(191, "later")
            .asks(|r| r.begin = Some(at(-60)))
            .with(|j| j.run.eligible = None)
            .build();
        let text = job(&j, false, false, &ctx());
        assert!(
            text.contains(" EligibleTime=2026-11-20T23:40:58\n   AccrueTime=Unknown\n"),
            "{text}"
        );
    }

    #[test]
    fn running_job() {
        let j = build(190, "running").running(2).limit(1800).with(|j| {
            j.submit = at(2);
            j.run.eligible = Some(at(2));
            j.std_err = "/home/lab/g/run.err".to_owned();
        });
        assert_eq!(
            slurms(&job(&j.build(), false, false, &ctx())),
            "JobId=190 JobName=running\n\
             \x20  UserId=lab(1001) GroupId=lab(1001) MCS_label=N/A\n\
             \x20  Priority=4294901642 Nice=0 Account=(null) QOS=normal\n\
             \x20  JobState=RUNNING Reason=None Dependency=(null)\n\
             \x20  Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n\
             \x20  RunTime=00:00:02 TimeLimit=00:30:00 TimeMin=N/A\n\
             \x20  SubmitTime=2026-11-20T23:39:56 EligibleTime=2026-11-20T23:39:56\n\
             \x20  AccrueTime=2026-11-20T23:39:56\n\
             \x20  StartTime=2026-11-20T23:39:56 EndTime=2026-11-21T00:09:56 Deadline=N/A\n\
             \x20  SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-20T23:39:56 Scheduler=Main\n\
             \x20  Partition=cpu AllocNode:Sid=localhost:0\n\
             \x20  ReqNodeList=(null) ExcNodeList=(null)\n\
             \x20  NodeList=vm\n\
             \x20  BatchHost=vm\n\
             \x20  NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n\
             \x20  TRES=cpu=1,mem=100M,node=1,billing=1\n\
             \x20  Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n\
             \x20  MinCPUsNode=1 MinMemoryCPU=100M MinTmpDiskNode=0\n\
             \x20  Features=(null) DelayBoot=00:00:00\n\
             \x20  OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n\
             \x20  Command=/home/lab/g/sleep.sh 300\n\
             \x20  WorkDir=/home/lab/g\n\
             \x20  StdErr=/home/lab/g/run.err\n\
             \x20  StdIn=/dev/null\n\
             \x20  StdOut=/home/lab/g/slurm-190.out\n\
             \x20  Power=\n\
             \x20  \n\
             \n"
        );
    }

    #[test]
    fn pending_job_has_a_planned_start_and_node() {
        let j = build(191, "pending").limit(3600).with(|j| {
            j.expected_start = Some(at(-1825));
            j.tres = Tres { cpus: 2, mem_mb: 200, ..Tres::ZERO };
        });
        let text = job(&j.asks(|r| r.ntasks = Some(2)).build(), false, false, &ctx());
        for line in [
            "   JobState=PENDING Reason=Resources Dependency=(null)\n",
            "   StartTime=2026-11-21T00:10:23 EndTime=2026-11-21T01:10:23 Deadline=N/A\n",
            "   NodeList= SchedNodeList=vm\n   NumNodes=1 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
            "   AllocTRES=(null)\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn requested_nodes_of_a_pending_job_are_a_range() {
        let shown = |build: JobBuilder, nodes: (u32, u32)| {
            let j = build.asks(|r| r.nodes = Some(nodes.into())).build();
            let text = job(&j, false, false, &ctx());
            let at = text.find("NumNodes=").unwrap_or_else(|| panic!("{text}"));
            text[at..].split(' ').next().unwrap_or_default().to_owned()
        };
        assert_eq!(shown(build(1, "pending"), (1, 1)), "NumNodes=1-1");
        assert_eq!(shown(build(1, "pending"), (1, 2)), "NumNodes=1-2");
        assert_eq!(shown(build(1, "pending"), (1, u32::MAX)), "NumNodes=1");
        assert_eq!(shown(build(1, "running").running(9), (1, 1)), "NumNodes=1");
    }

    #[test]
    fn failed_job_of_wrap_with_comment() {
        let j = build(189, "wrap")
            .ended(End::Failed, Reason::NonZeroExitCode, ExitCode::status(3), 3, 3)
            .asks(|r| {
                r.command = None;
                r.args.clear();
                r.comment = Some("a b".to_owned());
            });
        let text = job(&j.build(), false, false, &ctx());
        for line in [
            "   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n",
            "BatchFlag=1 Reboot=0 ExitCode=3:0\n",
            "   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A\n",
            "   Command=(null)\n   WorkDir=/home/lab/g\n   Comment=a b \n   StdErr=",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn an_array_names_its_tasks_and_its_limit() {
        let spec = ArraySpec { tasks: TaskSet::from_sorted(&[1, 2, 3]), limit: Some(2) };
        let rest = build(96, "wrap").rest(&[3, 4, 5, 6, 7, 8, 9], Some(2)).build();
        assert!(job(&rest, false, false, &ctx()).starts_with(
            "JobId=96 ArrayJobId=96 ArrayTaskId=3-9%2 ArrayTaskThrottle=2 JobName=wrap\n"
        ));
        let task = build(98, "wrap").task(96, 2).asks(|r| r.array = Some(spec)).build();
        assert!(job(&task, false, false, &ctx()).starts_with(
            "JobId=98 ArrayJobId=96 ArrayTaskId=2 ArrayTaskThrottle=2 JobName=wrap\n"
        ));
    }

    #[test]
    fn every_word_of_a_oneliner_has_an_equals_sign() {
        let j = build(190, "two words\tand\nlines")
            .running(2)
            .asks(|r| r.comment = Some("a b".to_owned()))
            .build();
        let text = job(&j, true, true, &ctx());
        assert_eq!(text.lines().count(), 1);
        assert!(text.split_whitespace().all(|word| word.contains('=')), "{text}");
        assert!(text.contains(" Command=/home/lab/g/sleep.sh\\040300 "));
        assert!(
            text.starts_with("JobId=190 JobName=two\\040words\\011and\\012lines UserId=lab(1001) ")
        );
    }

    #[test]
    fn an_escape_in_a_name_does_not_reach_a_terminal() {
        let j = build(190, "a\u{1b}[2J\nb").build();
        let mut ctx = ctx();
        assert!(job(&j, false, false, &ctx).starts_with("JobId=190 JobName=a\u{1b}[2J\\012b\n"));
        ctx.screen = Some(crate::Screen::default());
        for one_line in [false, true] {
            let text = job(&j, one_line, false, &ctx);
            assert!(
                text.starts_with("JobId=190 JobName=a\\033[2J\\012b") && !text.contains('\u{1b}'),
                "{text}"
            );
        }
    }

    #[test]
    fn detail_lists_cpus_and_gpus() {
        let j = build(2, "g")
            .with(|j| j.tres.gpus = 2)
            .running(2)
            .with(|j| {
                if let Some(alloc) = &mut j.run.alloc {
                    alloc.cpu_ids = vec![0, 1, 2, 5];
                    alloc.gpu_ids = vec![0, 1];
                }
            })
            .asks(|r| {
                r.gpu.total = Some(2);
            })
            .build();
        let text = job(&j, false, true, &ctx());
        assert!(text.contains("   DerivedExitCode=0:0\n   RunTime="));
        assert!(
            text.contains(
                "   JOB_GRES=gpu:2\n     Nodes=vm CPU_IDs=0-2,5 Mem=100 GRES=gpu:2(IDX:0-1)\n"
            ),
            "{text}"
        );
        assert!(text.contains("   TRES=cpu=1,mem=100M,node=1,billing=1,gres/gpu=2\n"));
        assert!(text.contains("   Power=\n   TresPerJob=gres:gpu:2\n"));
        assert!(!job(&j, false, false, &ctx()).contains("CPU_IDs"));
    }

    #[test]
    fn slotds_additions_follow_slurms_lines() {
        let mut first = step(StepId::Num(0), "true", End::Completed, ExitCode::OK, 3, Some(2));
        first.usage = Usage { max_rss_kb: 1624, ..Usage::default() };
        let j = build(1, "w")
            .running(3)
            .step(step(StepId::Batch, "batch", JobState::Running, ExitCode::OK, 3, None))
            .step(first)
            .step(step(StepId::Num(1), "sh", End::Failed, ExitCode::status(7), 3, Some(2)))
            .build();
        let text = job(&j, false, false, &ctx());
        assert!(
            text.ends_with(
                "   Power=\n   ReqTRES=cpu=1,mem=100M,node=1,billing=1\n   AllocTRES=cpu=1,mem=100M,node=1,billing=1\n   \
                 MaxRSS=1624K\n   BatchTasks=once\n   Steps=batch:RUNNING,0:COMPLETED,1:FAILED(7:0)\n   \n\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn many_steps_are_summarized() {
        let mut b = build(1, "w").running(3);
        for i in 0..100 {
            b = b.step(step(StepId::Num(i), "true", End::Completed, ExitCode::OK, 3, Some(2)));
        }
        let text = job(&b.build(), false, false, &ctx());
        assert!(text.contains("   Steps=(84_more),84:COMPLETED,85:COMPLETED,"), "{text}");
    }

    #[test]
    fn a_suspended_job_shows_the_suspend_time() {
        let j = build(190, "s").running(5).with(|j| {
            j.run.state = JobState::Suspended;
            j.run.suspended_at = Some(at(2));
        });
        assert!(
            job(&j.build(), false, false, &ctx())
                .contains("   SuspendTime=2026-11-20T23:39:56 SecsPreSuspend=3 ")
        );
    }

    #[test]
    fn an_allocation_has_no_files() {
        let j =
            build(5, "interactive").running(5).asks(|r| r.kind = JobKind::Allocation).with(|j| {
                j.std_out.clear();
            });
        let text = job(&j.build(), false, false, &ctx());
        assert!(
            !text.contains("StdOut=")
                && text.contains("BatchFlag=0")
                && !text.contains("BatchTasks")
        );
    }

    #[test]
    fn an_empty_list_prints_slurms_message() {
        assert_eq!(jobs(&[], false, false, &ctx()), "No jobs in the system\n");
    }
}
