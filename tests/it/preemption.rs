//! Preemption by partition and by QOS: who makes room, how it ends, and what is shown and recorded.

mod suspended;

use slotd_kit::{Slotd, proc};
use std::fs;
use std::time::{Duration, SystemTime};

/// Partitions of three tiers. Jobs in the partition `requeue` are queued again, those in `cancel`
/// end, and those in `slow` have a grace time.
const TIERS: &str = r#"
[[partition]]
name = "requeue"
preempt_mode = "requeue"
default = true

[[partition]]
name = "cancel"
preempt_mode = "CANCEL"

[[partition]]
name = "slow"
preempt_mode = "cancel"
grace_time = 600

[[partition]]
name = "short"
preempt_mode = "cancel"
grace_time = 1

[[partition]]
name = "high"
priority_tier = 10
"#;

const QOS: &str = r#"
[[qos]]
name = "low"
preempt_mode = "cancel"
grace_time = 4

[[qos]]
name = "urgent"
priority = 100
preempt = ["low", "normal"]
"#;

/// A script that records the signals it gets and goes on.
const STUBBORN: &str = "#!/bin/bash\ntrap 'echo TERM' TERM\ntrap 'echo CONT' CONT\necho begun\n\
                        while :; do sleep 0.1 & wait; done\n";

/// Starts a daemon with 2 CPUs.
fn with(text: &str) -> Slotd {
    Slotd::setup().set("SLOTD_CPUS", 2).toml(text).start()
}

fn tiers() -> Slotd {
    with(TIERS)
}

/// Starts a job that has both CPUs and ignores SIGTERM.
fn stubborn(slotd: &Slotd, options: &[&str]) -> u32 {
    let id = slotd.script(&[&["-c", "2"], options].concat(), STUBBORN);
    slotd.wait_text(&format!("slurm-{id}.out"), "begun\n");
    id
}

fn high(slotd: &Slotd) -> u32 {
    slotd.wrap(&["-p", "high", "-c", "2"], "exec sleep 1000")
}

#[test]
fn a_cancelled_job_ends_as_preempted() {
    let slotd = tiers();
    let victim = stubborn(&slotd, &["-p", "cancel"]);
    let urgent = high(&slotd);
    slotd.wait_end(victim);
    slotd.wait_state(urgent, "RUNNING");
    assert_eq!(slotd.sacct(victim, "State,ExitCode"), "PREEMPTED|0:0");
    let batch = slotd.line(&format!("sacct -nP -j {victim}.batch -o State,ExitCode")).ok();
    assert_eq!(batch.stdout, "CANCELLED|0:9\n");
    let output = slotd.output(victim);
    assert!(output.contains(&format!("*** JOB {victim} ON ")), "{output}");
    assert!(output.contains(" DUE TO PREEMPTION ***\n"), "{output}");
    assert!(output.contains("TERM\n"), "{output}");
    slotd.expect(&format!("squeue -h -t PR -j {victim} -o %T"), 0, "PREEMPTED\n", "");
    let why = slotd.line(&format!("slotd why {victim}")).ok().stdout;
    assert!(why.contains(&format!("Job {urgent} preempted it.")), "{why}");
}

#[test]
fn a_requeued_job_returns_after_two_minutes() {
    let slotd = tiers();
    let victim = stubborn(&slotd, &[]);
    let urgent = high(&slotd);
    slotd.wait_state(urgent, "RUNNING");
    slotd.wait_reason(victim, "BeginTime");
    assert_eq!(slotd.show(victim, "Restarts"), "1");
    let rows = slotd.line(&format!("sacct -DXnP -j {victim} -o State,ExitCode")).ok();
    assert_eq!(rows.stdout, "PREEMPTED|0:0\nPENDING|0:0\n");
    let expected = format!("preempted by job {urgent} (PreemptMode=REQUEUE)");
    assert_eq!(slotd.system_comment(victim), expected);
    slotd.cancel(urgent);
    slotd.wait_end(urgent);
    assert_eq!(slotd.state(victim), "PENDING");
    slotd.line(&format!("scontrol update JobId={victim} StartTime=now")).ok();
    slotd.wait_state(victim, "RUNNING");
}

#[test]
fn jobs_without_requeue_and_allocations_are_cancelled() {
    let slotd = tiers();
    let fixed = slotd.endless(&["--no-requeue"]);
    let mut command = slotd.command("salloc");
    command.args(["sleep", "1000"]);
    let held = slotd.spawn(command);
    let is_granted = || Some(slotd.line("squeue -h -t R -o %i").ok().lines().len() == 2);
    slotd.wait("the allocation", || is_granted().filter(|both| *both));
    let urgent = high(&slotd);
    slotd.wait_state(urgent, "RUNNING");
    assert_eq!(slotd.wait_end(fixed).state(), "PREEMPTED");
    let out = held.end();
    assert!(out.stderr.contains("has been revoked"), "{}", out.stderr);
}

#[test]
fn steps_end_with_their_job() {
    let slotd = tiers();
    let mut command = slotd.command("srun");
    command.args(["-p", "cancel", "-c", "2", "sleep", "1000"]);
    let mut step = slotd.spawn(command);
    let running = || {
        let steps = slotd.line("squeue -h -s -o %i").ok().stdout;
        steps.trim().strip_suffix(".0")?.parse().ok()
    };
    let victim: u32 = slotd.wait("the step runs", running);
    let urgent = high(&slotd);
    slotd.wait_state(urgent, "RUNNING");
    assert_eq!(slotd.wait_end(victim).state(), "PREEMPTED");
    step.wait_stderr(" DUE TO PREEMPTION ***");
    assert_ne!(step.end().code, 0);
}

#[test]
fn a_grace_time_passes_before_the_end() {
    let slotd = with(QOS);
    let victim = stubborn(&slotd, &["-q", "low"]);
    let before = slotd.line(&format!("scontrol show job {victim}")).ok().stdout;
    assert!(before.contains("PreemptTime=None"), "{before}");
    let urgent = slotd.wrap(&["-q", "urgent", "-c", "2"], "exec sleep 1000");
    slotd.wait_reason(urgent, "Resources");
    let warned = format!("slurm-{victim}.out");
    slotd.wait_text(&warned, "TERM\n");
    assert_eq!(slotd.state(victim), "RUNNING");
    let shown = slotd.show(victim, "PreemptTime");
    assert!(shown.starts_with("20"), "{shown}");
    assert_ne!(slotd.show(victim, "EndTime"), "Unknown");
    slotd.expect(
        &format!("squeue -h -j {victim} -O PreemptTime:30"),
        0,
        &format!("{shown:<30}\n"),
        "",
    );
    let why = slotd.line(&format!("slotd why {urgent}")).ok().stdout;
    assert!(why.contains(&format!("job {victim} holds 2 CPUs until it makes room at ")), "{why}");
    let why = slotd.line(&format!("slotd why {victim}")).ok().stdout;
    assert!(why.contains(&format!("It makes room for job {urgent}: its grace time")), "{why}");
    assert_eq!(slotd.wait_end(victim).state(), "PREEMPTED");
    slotd.wait_state(urgent, "RUNNING");
}

#[test]
fn a_killed_daemon_forgets_no_preemption() {
    let mut slotd = tiers();
    // In the grace time.
    let victim = stubborn(&slotd, &["-p", "short"]);
    let urgent = high(&slotd);
    slotd.wait_text(&format!("slurm-{victim}.out"), "TERM\n");
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!(slotd.wait_end(victim).state(), "PREEMPTED");
    slotd.wait_state(urgent, "RUNNING");
    slotd.cancel(urgent);
    slotd.wait_end(urgent);
    // While the processes are ending.
    let victim = stubborn(&slotd, &[]);
    let urgent = high(&slotd);
    slotd.wait_state(victim, "COMPLETING");
    slotd.kill9();
    slotd.start_daemon();
    slotd.wait_state(urgent, "RUNNING");
    slotd.wait_reason(victim, "BeginTime");
    assert_eq!(slotd.show(victim, "Restarts"), "1");
    assert_eq!(slotd.job(urgent).restarts(), 0);
}

/// When the next daemon starts, the other job is due, and the daemon has not seen the end yet.
#[test]
fn a_job_that_ended_while_no_daemon_ran_is_not_preempted() {
    for partition in ["requeue", "cancel"] {
        let mut slotd = tiers();
        let script = "echo run >> runs; until test -e go; do sleep 0.05; done; echo over > over";
        let victim = slotd.wrap(&["-p", partition, "-c", "2"], script);
        slotd.wait_text("runs", "run\n");
        let urgent = slotd.wrap(&["-p", "high", "-c", "2", "-b", "now+1second"], "true");
        let due = SystemTime::now() + Duration::from_secs(2);
        slotd.kill9();
        fs::write(slotd.path("go"), "").unwrap();
        slotd.wait_text("over", "over\n");
        slotd.wait("the begin time", || (SystemTime::now() > due).then_some(()));
        slotd.start_daemon();
        assert_eq!(slotd.wait_end(victim).state(), "COMPLETED");
        assert_eq!(slotd.wait_end(urgent).state(), "COMPLETED");
        assert_eq!(slotd.read("runs"), "run\n");
        assert_eq!(slotd.show(victim, "Restarts"), "0");
    }
}

#[test]
fn a_job_goes_on_if_nobody_needs_its_room() {
    let slotd = tiers();
    let victim = stubborn(&slotd, &["-p", "slow"]);
    let urgent = high(&slotd);
    slotd.wait_text(&format!("slurm-{victim}.out"), "TERM\n");
    slotd.cancel(urgent);
    slotd.wait_end(urgent);
    assert_eq!(slotd.state(victim), "RUNNING");
    slotd.cancel(victim);
    assert_eq!(slotd.wait_end(victim).state(), "CANCELLED");
}

#[test]
fn the_settings_are_shown_as_in_slurm() {
    let slotd = with(&format!("{TIERS}{QOS}"));
    let config = slotd.line("scontrol show config").ok().stdout;
    let value = |key: &str| {
        let line = config.lines().find(|line| line.split(' ').next() == Some(key));
        line.and_then(|line| line.split(" = ").nth(1)).map(str::to_owned)
    };
    assert_eq!(value("PreemptMode").as_deref(), Some("REQUEUE"));
    assert_eq!(value("PreemptType").as_deref(), Some("preempt/qos,preempt/partition_prio"));
    let partition = slotd.line("scontrol show partition slow").ok().stdout;
    assert!(partition.contains("PreemptMode=CANCEL"), "{partition}");
    assert!(partition.contains("GraceTime=600"), "{partition}");
    slotd.expect("sinfo -h -p slow,high -o %P|%M|%p", 0, "slow|CANCEL|1\nhigh|OFF|10\n", "");
    slotd.expect(
        "sacctmgr show qos -nP format=name,gracetime,preempt,preemptmode",
        0,
        "normal|00:00:00||cluster\nlow|00:00:04||cancel\nurgent|00:00:00|low,normal|cluster\n",
        "",
    );
    slotd.line("scontrol update PartitionName=slow PreemptMode=OFF GraceTime=3").ok();
    slotd.expect("sinfo -h -p slow -o %M", 0, "OFF\n", "");
    slotd.line("scontrol update PartitionName=slow PreemptMode=Suspend").ok();
    slotd.expect("sinfo -h -p slow -o %M", 0, "SUSPEND\n", "");
    let partition = slotd.line("scontrol show partition slow").ok().stdout;
    assert!(partition.contains("PreemptMode=SUSPEND"), "{partition}");
    let wrong = slotd.line("scontrol update PartitionName=slow PreemptMode=suspended").fails(1);
    assert!(wrong.stderr.contains("hint: OFF, SUSPEND, REQUEUE"), "{}", wrong.stderr);
}

/// Partitions whose jobs are suspended for those in `high`, and a QOS whose jobs are.
const LENDING: &str = r#"
[[partition]]
name = "low"
preempt_mode = "suspend"
default = true

[[partition]]
name = "high"
priority_tier = 10

[[qos]]
name = "idle"
preempt_mode = "suspend"

[[qos]]
name = "urgent"
priority = 100
preempt = ["idle"]
"#;

/// Starts a job that has both CPUs. Returns its process, too.
fn sleeper(slotd: &Slotd, options: &[&str]) -> (u32, i32) {
    let id =
        slotd.wrap(&[&["-c", "2"], options].concat(), "echo $$ > $SLURM_JOB_ID; exec sleep 1000");
    let pid = slotd.wait_text(&id.to_string(), "\n");
    (id, pid.trim().parse().expect("a process"))
}

fn wait_process(slotd: &Slotd, pid: i32, state: char) {
    let is_it = || (proc::state(pid) == Some(state)).then_some(());
    slotd.wait(&format!("process {pid} to be in state {state}"), is_it);
}

#[test]
fn a_suspended_job_goes_on_by_itself() {
    let slotd = with(LENDING);
    let (victim, pid) = sleeper(&slotd, &[]);
    let urgent = high(&slotd);
    slotd.wait_state(urgent, "RUNNING");
    slotd.wait_state(victim, "SUSPENDED");
    wait_process(&slotd, pid, 'T');
    slotd.expect(&format!("squeue -h -j {victim} -o %t|%T|%r"), 0, "S|SUSPENDED|None\n", "");
    for key in ["SuspendTime", "PreemptTime"] {
        let shown = slotd.show(victim, key);
        assert!(shown.starts_with("20"), "{key}={shown}");
    }
    assert_eq!(slotd.show(victim, "EndTime"), "Unknown");
    let expected = format!("preempted by job {urgent} (PreemptMode=SUSPEND)");
    assert_eq!(slotd.system_comment(victim), expected);
    let why = slotd.line(&format!("slotd why {victim}")).ok().stdout;
    assert!(why.contains(&format!("Job {urgent} preempted it; it continues as soon as")), "{why}");
    assert!(why.contains(&format!("job {urgent} holds 2 CPUs")), "{why}");
    // Not even for another CPU of the host.
    let equal = slotd.wrap(&[], "true");
    slotd.wait_reason(equal, "Resources");
    slotd.cancel(urgent);
    slotd.wait_state(victim, "RUNNING");
    wait_process(&slotd, pid, 'S');
    assert_eq!(slotd.show(victim, "Restarts"), "0");
    assert_eq!(slotd.show(victim, "PreemptTime"), "None");
    assert!(!slotd.output(victim).contains("PREEMPTION"));
    slotd.cancel(victim);
    assert_eq!(slotd.wait_end(victim).state(), "CANCELLED");
    slotd.wait_end(equal);
}

#[test]
fn a_qos_may_have_its_jobs_suspended() {
    let slotd = with(LENDING);
    let (victim, pid) = sleeper(&slotd, &["-q", "idle"]);
    slotd.expect("sacctmgr show qos idle -nP format=name,preemptmode", 0, "idle|suspend\n", "");
    let script = format!("until grep -q ') T ' /proc/{pid}/stat; do sleep 0.1; done");
    slotd.cmd("sbatch", &["-W", "-q", "urgent", "--wrap", &script]).ok();
    slotd.wait_state(victim, "RUNNING");
    wait_process(&slotd, pid, 'S');
}

#[test]
fn memory_and_gpus_of_a_suspended_job_are_not_given_away() {
    let slotd = Slotd::setup()
        .set("SLOTD_CPUS", 2)
        .set("SLOTD_GPU_COUNT", 1)
        .set("SLOTD_MEMORY_MB", 1000)
        .toml(LENDING)
        .start();
    let (victim, pid) = sleeper(&slotd, &["-G", "1", "--mem", "600"]);
    for needs in ["-G1", "--mem=500"] {
        let waiting = slotd.wrap(&["-p", "high", "--mem", "100", needs], "true");
        slotd.wait_reason(waiting, "Resources");
        assert_eq!(slotd.state(victim), "RUNNING");
        slotd.cancel(waiting);
    }
    let urgent = slotd.endless(&["-p", "high", "--mem", "400"]);
    slotd.wait_state(victim, "SUSPENDED");
    wait_process(&slotd, pid, 'T');
    let waiting = slotd.wrap(&["-p", "high", "--mem", "0", "-G1"], "true");
    slotd.wait_reason(waiting, "Resources");
    assert_eq!((slotd.state(urgent), slotd.state(victim)), ("RUNNING".into(), "SUSPENDED".into()));
}

#[test]
fn a_killed_daemon_forgets_no_suspension() {
    let mut slotd = with(LENDING);
    let (victim, pid) = sleeper(&slotd, &[]);
    let gate = slotd.gate("end");
    let urgent = slotd.wrap(&["-p", "high", "-c", "2"], &gate);
    slotd.wait_state(urgent, "RUNNING");
    slotd.kill9();
    slotd.start_daemon();
    assert_eq!((slotd.state(urgent), slotd.state(victim)), ("RUNNING".into(), "SUSPENDED".into()));
    wait_process(&slotd, pid, 'T');
    // The other job ends while no daemon runs. Its process may be younger than its state.
    let watcher = slotd.watcher_of(urgent);
    slotd.kill9();
    slotd.open("end");
    slotd.wait("the job to end", || (!proc::is_alive(watcher)).then_some(()));
    assert_eq!(proc::state(pid), Some('T'));
    slotd.start_daemon();
    slotd.wait_state(victim, "RUNNING");
    wait_process(&slotd, pid, 'S');
    assert_eq!(slotd.wait_end(urgent).state(), "COMPLETED");
}

#[test]
fn users_decide_about_a_suspended_job() {
    let slotd = with(LENDING);
    let (victim, pid) = sleeper(&slotd, &[]);
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    let refused = slotd.line(&format!("scontrol resume {victim}")).fails(1);
    assert!(refused.stderr.contains("Requested nodes are busy"), "{}", refused.stderr);
    // From now on, it waits for its user.
    slotd.line(&format!("scontrol suspend {victim}")).ok();
    slotd.cancel(urgent);
    slotd.wait_end(urgent);
    let next = high(&slotd);
    slotd.wait_state(next, "RUNNING");
    slotd.cancel(next);
    slotd.wait_end(next);
    assert_eq!((slotd.state(victim), proc::state(pid)), ("SUSPENDED".to_owned(), Some('T')));
    slotd.line(&format!("scontrol resume {victim}")).ok();
    wait_process(&slotd, pid, 'S');
    // The end of a suspended job disturbs nobody.
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    slotd.line(&format!("scontrol requeue {victim}")).ok();
    slotd.wait_reason(victim, "Resources");
    assert!(!proc::is_alive(pid));
    assert_eq!(slotd.state(urgent), "RUNNING");
    slotd.cancel(urgent);
    let again = slotd.wait_state(victim, "RUNNING");
    assert_eq!(again.restarts(), 1);
    let urgent = high(&slotd);
    slotd.wait_state(victim, "SUSPENDED");
    slotd.cancel(victim);
    assert_eq!(slotd.wait_end(victim).state(), "CANCELLED");
    assert_eq!(slotd.state(urgent), "RUNNING");
}

#[test]
fn contradictory_settings_are_refused() {
    let slotd = tiers();
    for (text, what) in [
        ("[[qos]]\nname = \"a\"\npreempt = [\"nosuch\"]\n", "which does not exist"),
        (
            "[[qos]]\nname = \"a\"\npreempt = [\"b\"]\n[[qos]]\nname = \"b\"\npreempt = [\"a\"]\n",
            "preempt each other",
        ),
        ("[[partition]]\nname = \"a\"\npreempt_mode = \"gang\"\n", "expected OFF, SUSPEND"),
        ("[[partition]]\nname = \"a\"\ngrace_time = \"soon\"\n", "expected a whole number"),
    ] {
        fs::write(slotd.base.join("slotd.toml"), text).unwrap();
        let refused = slotd.line("scontrol reconfigure").fails(1);
        assert!(refused.stderr.contains(what), "{text}: {}", refused.stderr);
    }
    assert!(proc::is_alive(slotd.daemon_pid()));
}
