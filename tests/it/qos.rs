//! QOS of `slotd.toml`: requested with `--qos`, limited by the daemon, and shown as in Slurm.

use slotd_kit::{Slotd, proc};
use std::fs;

const QOS: &str = r#"
[[qos]]
name = "two"
priority = 10
max_jobs_per_user = 1
max_submit_jobs_per_user = 3

[[qos]]
name = "deny"
max_jobs_per_user = 1
max_submit_jobs_per_user = 2
max_tres_per_user = "cpu=2"
max_wall = "00:05:00"
flags = ["DenyOnLimit"]

[[qos]]
name = "lim"
max_tres_per_user = "cpu=2,mem=1000M"
max_wall = "00:05:00"
grp_tres = "cpu=4"
"#;

const POLICY: &str =
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";

/// Starts a daemon with 4 CPUs and the QOS that were recorded with Slurm.
fn with_qos() -> Slotd {
    Slotd::setup().toml(QOS).start()
}

fn why(slotd: &Slotd, id: u32) -> String {
    slotd.line(&format!("slotd why {id}")).ok().stdout
}

#[test]
fn a_limit_makes_its_own_jobs_wait_and_no_others() {
    let slotd = with_qos();
    let first = slotd.endless(&["--qos", "two"]);
    let second = slotd.script(&["-o", "/dev/null"], "#!/bin/sh\n#SBATCH -q TWO\ntrue\n");
    let other = slotd.endless(&[]);
    slotd.wait_reason(second, "QOSMaxJobsPerUserLimit");
    slotd.expect(
        "squeue -h -S i -o %i|%T|%q|%r",
        0,
        &format!(
            "{first}|RUNNING|two|None\n{second}|PENDING|two|QOSMaxJobsPerUserLimit\n\
             {other}|RUNNING|normal|None\n"
        ),
        "",
    );
    slotd.expect("squeue -h -q two,nosuch -S i -o %i", 0, &format!("{first}\n{second}\n"), "");
    slotd.expect("squeue -h -q Normal -o %i", 0, &format!("{other}\n"), "");
    assert_eq!(slotd.show(second, "QOS"), "two");
    assert_eq!(slotd.show(second, "Reason"), "QOSMaxJobsPerUserLimit");
    let text = why(&slotd, second);
    let told = format!(
        "QOSMaxJobsPerUserLimit: QOS two allows 1 running job (MaxJobsPU), and 1 is running; \
         job {first} runs and has no time limit"
    );
    assert!(text.contains(&told), "{text}");
    slotd.limit(first, 3600);
    let end = slotd.show(first, "EndTime");
    slotd.expect("squeue -h --start -q two -o %S", 0, &format!("{end}\n"), "");
    let trial = slotd.line("sbatch --test-only --qos two -t 1 --wrap true").ok().stderr;
    assert!(trial.contains(" to start at "), "{trial}");
    slotd.cancel(first);
    slotd.wait_end(second);
    assert_eq!(slotd.sacct(second, "QOS,State"), "two|COMPLETED");
    slotd.expect(&format!("sacct -nXP -q two -j {second} -o qos"), 0, "two\n", "");
}

#[test]
fn each_limit_has_slurms_reason() {
    let slotd = with_qos();
    for (options, reason) in [
        (&["-c", "3"][..], "QOSMaxCpuPerUserLimit"),
        (&["--mem=1001"], "QOSMaxMemoryPerUser"),
        (&["-t", "6"], "QOSMaxWallDurationPerJobLimit"),
    ] {
        let id = slotd.wrap(&[&["--qos=lim"], options].concat(), "true");
        slotd.wait_reason(id, reason);
        slotd.expect(&format!("squeue -h -j {id} --start -o %S"), 0, "N/A\n", "");
    }
    let short = slotd.wrap(&["--qos=lim"], "true");
    slotd.wait_end(short);
    assert_eq!(slotd.sacct(short, "Timelimit"), "00:05:00");
    slotd.reconfigure(&QOS.replace("cpu=4", "cpu=1"));
    let id = slotd.wrap(&["--qos=lim", "-c", "3"], "true");
    slotd.wait_reason(id, "QOSGrpCpuLimit");
}

#[test]
fn every_command_refuses_jobs_that_the_qos_denies() {
    let slotd = with_qos();
    for (command, failure) in [
        ("sbatch --qos=nosuch --wrap true", "sbatch: error: Batch job submission failed"),
        ("srun --qos=nosuch true", "srun: error: Unable to allocate resources"),
        ("salloc --qos=nosuch true", "salloc: error: Job submit/allocate failed"),
    ] {
        let error = slotd.line(command).fails(1).stderr;
        assert!(error.contains(&format!("{failure}: Invalid qos specification\n")), "{error}");
    }
    let error = slotd.line("sbatch --qos=denny --wrap true").fails(1).stderr;
    assert!(error.ends_with("  hint: did you mean deny?\n"), "{error}");
    for (options, limit) in [
        ("-c 3", "QOSMaxCpuPerUserLimit"),
        ("-t 6", "QOSMaxWallDurationPerJobLimit"),
        ("-a 0-2", "QOSMaxSubmitJobPerUserLimit"),
    ] {
        let text = format!(
            "sbatch: error: {limit}\nsbatch: error: Batch job submission failed: {POLICY}\n"
        );
        slotd.expect(&format!("sbatch --qos deny {options} --wrap true"), 1, "", &text);
    }
    let text = format!(
        "srun: error: QOSMaxCpuPerUserLimit\nsrun: error: Unable to allocate resources: {POLICY}\n"
    );
    slotd.expect("srun --qos deny -c 3 true", 1, "", &text);
    let running = slotd.endless(&["--qos=deny"]);
    slotd.wrap(&["--qos=deny"], "true");
    let text = format!(
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n\
         sbatch: error: Batch job submission failed: {POLICY}\n"
    );
    slotd.expect("sbatch --qos=deny --wrap true", 1, "", &text);
    slotd.expect(
        "sbatch --qos=deny --test-only --wrap true",
        1,
        "",
        &text.replace("sbatch: error: Batch job submission failed", "allocation failure"),
    );
    slotd.cancel(running);
    slotd.wait_end(running);
    slotd.wrap(&["--qos=deny"], "true");
}

#[test]
fn a_pending_job_moves_to_another_qos() {
    let slotd = with_qos();
    let first = slotd.endless(&["--qos=two"]);
    let second = slotd.wrap(&["--qos=two"], "exec sleep 1000");
    slotd.wait_reason(second, "QOSMaxJobsPerUserLimit");
    let refused = |id: u32, qos: &str| {
        let line = format!("scontrol update JobId={id} QOS={qos}");
        slotd.line(&line).fails(1).stderr
    };
    let error = refused(second, "nosuch");
    assert!(error.contains(&format!("Invalid qos specification for job {second}")), "{error}");
    let error = refused(first, "lim");
    assert!(
        error.contains(&format!("Job is no longer pending execution for job {first}")),
        "{error}"
    );
    slotd.expect(&format!("scontrol update JobId={second} QOS=lim"), 0, "", "");
    slotd.wait_state(second, "RUNNING");
    assert_eq!(
        (slotd.show(second, "QOS"), slotd.show(second, "TimeLimit")),
        ("lim".to_owned(), "00:05:00".to_owned())
    );
}

#[test]
fn a_higher_priority_goes_first_and_is_shown() {
    let slotd = with_qos();
    let running = slotd.endless(&["-c", "4"]);
    let plain = slotd.wrap(&["-c", "4"], "true");
    let high = slotd.wrap(&["-c", "4", "--qos=two"], "true");
    let rows = slotd.line("sprio -h -o %i|%Y|%S|%Q|%n").ok().stdout;
    assert_eq!(rows, format!("{high}|11|1|10|two\n{plain}|1|1|0|normal\n"));
    assert_eq!(slotd.show(high, "Priority"), "11");
    slotd.reconfigure(&QOS.replace("priority = 10", "priority = 0"));
    assert_eq!(slotd.show(high, "Priority"), "1");
    slotd.reconfigure(QOS);
    slotd.cancel(running);
    slotd.wait_end(plain);
    let starts = [high, plain].map(|id| slotd.sacct(id, "Start"));
    assert!(starts[0] <= starts[1], "{starts:?}");
}

#[test]
fn sacctmgr_and_scontrol_show_every_qos() {
    let slotd = with_qos();
    slotd.expect(
        "sacctmgr show qos -P format=name,priority,gracetime,preempt,preemptmode,flags,maxjobspu,maxsubmitpu,maxtrespu,maxwall,grptres",
        0,
        "Name|Priority|GraceTime|Preempt|PreemptMode|Flags|MaxJobsPU|MaxSubmitPU|MaxTRESPU|MaxWall|GrpTRES\n\
         normal|0|00:00:00||cluster||||||\n\
         two|10|00:00:00||cluster||1|3|||\n\
         deny|0|00:00:00||cluster|DenyOnLimit|1|2|cpu=2|00:05:00|\n\
         lim|0|00:00:00||cluster||||cpu=2,mem=1000M|00:05:00|cpu=4\n",
        "",
    );
    slotd.expect(
        "sacctmgr -n show qos two,nosuch format=name%5,maxjobspu%3",
        0,
        "  two   1 \n",
        "",
    );
    slotd.expect("sacctmgr -nP show assoc format=qos,defaultqos", 0, "deny,lim,normal,two|\n", "");
    let user = slotd.sh("id -un").ok().stdout;
    slotd.expect(
        &format!("sacctmgr -nP show assoc user={} format=user,cluster", user.trim()),
        0,
        &format!("{}|slotd\n", user.trim()),
        "",
    );
    let shown = slotd.line("scontrol show config").ok().stdout;
    let line = shown.lines().find(|line| line.starts_with("SlotdQos "));
    assert!(
        line.is_some_and(|line| line.ends_with(
            "= normal; two Priority=10 MaxJobsPU=1 MaxSubmitPU=3; deny Flags=DenyOnLimit MaxWall=300s \
             MaxTRESPU=cpu=2 MaxJobsPU=1 MaxSubmitPU=2; lim GrpTRES=cpu=4 MaxWall=300s \
             MaxTRESPU=cpu=2,mem=1000M"
        )),
        "{line:?}"
    );
}

#[test]
fn names_of_qos_are_completed_with_their_limits() {
    let slotd = with_qos();
    let complete =
        |line: &str| slotd.cmd("slotd", &["complete", "fish", "--", "", line]).ok().stdout;
    let limits = "two Priority=10 MaxJobsPU=1 MaxSubmitPU=3";
    assert_eq!(complete("sbatch --qos tw"), format!("two\t{limits}\n"));
    assert_eq!(complete("scontrol update JobId=1 QOS=tw"), format!("QOS=two\t{limits}\n"));
    assert_eq!(complete("squeue -q normal,d").lines().count(), 1);
}

#[test]
fn the_next_daemon_knows_who_uses_a_qos() {
    let mut slotd = with_qos();
    let suspended = slotd.begun(&["--qos=lim", "--mem=100"], "never", "true");
    let running = slotd.begun(&["--qos=lim", "--mem=100"], "gate", "true");
    slotd.line(&format!("scontrol suspend {suspended}")).ok();
    let waiting = slotd.wrap(&["--qos=lim", "--mem=100"], "true");
    slotd.wait_reason(waiting, "QOSMaxCpuPerUserLimit");
    let two = [(); 3].map(|()| slotd.wrap(&["--qos=two", "-H"], "true"));
    slotd.kill9();
    slotd.start_daemon();
    slotd.wait_reason(waiting, "QOSMaxCpuPerUserLimit");
    slotd.line("sbatch --qos=two --wrap true").fails(1);
    slotd.cancel(two[0]);
    slotd.wrap(&["--qos=two", "-H"], "true");
    // The job ends while no daemon is running.
    let watcher = slotd.watcher_of(running);
    slotd.kill9();
    slotd.open("gate");
    slotd.wait("the watcher to end", || (!proc::is_alive(watcher)).then_some(()));
    slotd.start_daemon();
    slotd.wait_end(waiting);
}

#[test]
fn a_lowered_limit_takes_nothing_from_running_jobs() {
    let slotd = with_qos();
    let running = slotd.endless(&["--qos=lim", "-c", "2", "--requeue"]);
    slotd.reconfigure(&QOS.replace("cpu=2,mem", "cpu=1,mem"));
    let waiting = slotd.wrap(&["--qos=lim"], "true");
    slotd.wait_reason(waiting, "QOSMaxCpuPerUserLimit");
    let text = why(&slotd, waiting);
    let told = "QOSMaxCpuPerUserLimit: it needs 1 CPU; QOS lim allows 1 CPU (MaxTRESPU), of which its jobs hold 2; ";
    assert!(text.contains(told), "{text}");
    slotd.line(&format!("scontrol requeue {running}")).ok();
    slotd.wait_end(waiting);
    slotd.wait_reason(running, "QOSMaxCpuPerUserLimit");
    // An invalid file changes nothing.
    let file = slotd.base.join("slotd.toml");
    fs::write(&file, QOS.replace("cpu=2,mem", "cpus=9,mem")).unwrap();
    let error = slotd.line("scontrol reconfigure").fails(1).stderr;
    let told =
        "/slotd.toml:18: max_tres_per_user = \"cpus=9,mem=1000M\": expected amounts of cpu, mem";
    assert!(error.contains(told), "{error}");
    slotd.wait_reason(running, "QOSMaxCpuPerUserLimit");
    slotd.reconfigure("[[qos]]\nname = \"rest\"\n");
    slotd.wait_reason(running, "InvalidQOS");
    let text = why(&slotd, running);
    assert!(text.contains(&format!("scontrol update JobId={running} QOS=normal")), "{text}");
    slotd.reconfigure(QOS);
    slotd.wait_state(running, "RUNNING");
}

#[test]
fn without_qos_in_the_file_any_name_is_stored_and_shown() {
    let slotd = Slotd::setup().toml("").start();
    let job = slotd.wrap(&["-H", "--qos", "Anything"], "true");
    slotd.expect("squeue -h -o %q", 0, "anything\n", "");
    assert!(slotd.line("scontrol show config").ok().stdout.contains("Enforce = none\n"));
    slotd.line(&format!("scontrol update jobid={job} qos=other")).ok();
    assert_eq!(slotd.show(job, "QOS"), "other");
    slotd.reconfigure("[[qos]]\nname = \"two\"\n");
    slotd.line(&format!("scontrol release {job}")).ok();
    slotd.wait_reason(job, "InvalidQOS");
    slotd.line("sbatch --qos anything --wrap true").fails(1);
    slotd.reconfigure("");
    slotd.wait_end(job);
}
