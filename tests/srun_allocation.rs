//! Steps: srun inside a batch job or a salloc session.

use slotd_kit::{Setup, Slotd, proc};
use std::collections::BTreeSet;

#[test]
fn srun_in_a_batch_script_runs_a_step() {
    let slotd = Slotd::start();
    let job = slotd.script(
        &[],
        "#!/bin/sh\nsrun -J first echo one\nsrun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'\n",
    );
    let ended = slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("one\n{job}.1\n"));
    assert_eq!(slotd.all_records().len(), 1);
    let names: Vec<&str> = ended.steps().iter().filter_map(|step| step["name"].as_str()).collect();
    assert!(names.contains(&"first"), "{names:?}");
}

#[test]
fn srun_in_a_salloc_session_runs_a_step() {
    let slotd = Slotd::start();
    let out = slotd
        .cmd(
            "salloc",
            &["-Q", "-n", "1", "sh", "-c", "srun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'"],
        )
        .ok();
    assert_eq!(out.stdout, "1.0\n");
    let job = slotd.wait_end(1);
    assert_eq!(slotd.all_records().len(), 1);
    assert!(!job.steps().is_empty());
}

#[test]
fn step_gets_the_tasks_of_its_job() {
    let slotd = Slotd::start();
    let job = slotd
        .script(&["-n", "3"], "#!/bin/sh\nsrun sh -c 'echo $SLURM_PROCID'\nsrun -n 1 echo alone\n");
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    let mut lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.pop(), Some("alone"));
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2"]);
}

#[test]
fn failed_step_does_not_fail_the_job() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'exit 7'\necho rc=$?\n");
    let ended = slotd.wait_state(job, "COMPLETED");
    assert!(slotd.output(job).ends_with("rc=7\n"));
    let step = ended.steps().iter().find(|step| step["id"]["Num"] == 0).unwrap();
    assert_eq!(
        (step["state"].as_str(), step["exit"]["status"].as_i64()),
        (Some("FAILED"), Some(7))
    );
}

#[test]
fn concurrent_exact_steps_have_separate_cpus() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nfor i in 1 2; do srun -n1 --exact sh -c \"echo start >> log; until [ \\$(wc -l < log) = 2 ]; \
                  do sleep 0.02; done\" & done; wait\n";
    slotd.write("log", "");
    // Each step waits for the other, so they end only if both run concurrently.
    let job = slotd.script(&["-n", "2"], script);
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn step_gets_its_name_and_cpus() {
    let slotd = Slotd::start();
    let steps = "#!/bin/sh\n\
                 srun -J step sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE'\n\
                 srun -n1 sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE'\n\
                 srun -n1 --exact sh -c 'echo $SLURM_JOB_NAME $SLURM_CPUS_ON_NODE $SLURM_JOB_CPUS_PER_NODE'\n\
                 srun -n1 -c2 sh -c 'echo $SLURM_CPUS_ON_NODE'\n\
                 srun -n1 --export=NONE -J step sh -c 'echo $SLURM_JOB_NAME'\n";
    let job = slotd.script(&["-n", "1", "-c", "3", "-J", "outer"], steps);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "step 3\nouter 3\nouter 1 3\n2\nstep\n");
}

#[test]
fn step_waits_for_free_resources_of_its_allocation() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!(
        "#!/bin/sh\nsrun -n2 sh -c 'echo > here$SLURM_PROCID; {}' &\n\
         until [ -e here0 ] && [ -e here1 ]; do sleep 0.02; done\nsrun -n2 echo second\nwait\n",
        gate.replace('\'', "")
    );
    let job = slotd.script(&["-n", "2"], &script);
    let out = format!("slurm-{job}.out");
    let want = format!(
        "srun: Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    );
    slotd.wait_text(&out, &want);
    assert!(!slotd.read(&out).contains("second"));
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let text = slotd.read(&out);
    assert!(text.contains(&format!("srun: Step created for job {job}\n")), "{text}");
    assert_eq!(text.matches("second\n").count(), 2, "{text}");
}

#[test]
fn signalled_pending_step_never_starts() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-n", "2"]);
    let id = job.to_string();
    let step = |script: &str| {
        let mut command = slotd.command("srun");
        command.args(["--jobid", &id, "-n2", "sh", "-c", script]);
        slotd.spawn(command)
    };
    let gate = slotd.gate("go");
    let first = step(&format!("echo ready > ready; {gate}"));
    slotd.wait_text("ready", "ready");
    for signal in [proc::INT, proc::TERM, proc::HUP] {
        let mut waiting = step("echo started >> started");
        waiting.wait_stderr("step creation temporarily disabled, retrying");
        waiting.signal(signal);
        assert_eq!(waiting.end().code, 128 + signal);
    }
    slotd.open("go");
    first.end().ok();
    step("true").end().ok();
    assert!(!slotd.exists("started"));
    assert_eq!(slotd.job(job).steps().len(), 3, "the script and two steps");
}

#[test]
fn overlapping_step_does_not_wait() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let id = job.to_string();
    let mut first = slotd.command("srun");
    first.args(["--jobid", &id, "sh", "-c", "echo > ready; exec sleep 1000"]);
    let first = slotd.spawn(first);
    slotd.wait_text("ready", "");
    assert_eq!(
        slotd.cmd("srun", &["--overlap", "--jobid", &id, "echo", "beside"]).ok().stdout,
        "beside\n"
    );
    drop(first);
}

#[test]
fn step_larger_than_its_allocation_is_refused() {
    let slotd = Slotd::start();
    let job = slotd.script(
        &["-n", "2"],
        "#!/bin/sh\nsrun -n 4 true; echo rc=$?\nsrun -n1 --mem=50000 true; echo rc=$?\n",
    );
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.output(job),
        format!(
            "srun: error: Unable to create step for job {job}: More processors requested than permitted\nrc=1\n\
             srun: error: Unable to create step for job {job}: Memory required by task is not available\nrc=1\n"
        )
    );
    let job = slotd.script(&["-n", "2"], "#!/bin/sh\nsrun -n 4 -O echo x\n");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "x\n".repeat(4));
}

#[test]
fn step_on_another_node_is_refused() {
    let slotd = Slotd::start();
    let options =
        ["-N2", "-w nohost", "-r1", "-r1 -N1", "-x localhost", "-rx", "-N1 -r0 -w localhost"];
    let steps: String =
        options.iter().map(|options| format!("srun {options} true; echo rc=$?\n")).collect();
    let job = slotd.script(&[], &format!("#!/bin/sh\n{steps}"));
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.output(job),
        format!(
            "srun: error: Only allocated 1 nodes asked for 2\nrc=1\n\
             srun: error: Unable to create step for job {job}: Requested node configuration is not available\nrc=1\n\
             srun: error: --relative and SLURM_JOB_NUM_NODES option incompatible with count of allocated nodes (1+1>1)\n\
             rc=1\n\
             srun: error: --relative and --nodes option incompatible with count of allocated nodes (1+1>1)\nrc=1\n\
             srun: error: Hostlist is empty!  Can't run job.\nrc=1\n\
             srun: error: Invalid numeric value \"x\" for --relative.\nrc=1\n\
             rc=0\n"
        )
    );
    let out = slotd.cmd("srun", &["-r1", "true"]).fails(1);
    assert_eq!(out.stderr, "srun: fatal: --relative option invalid for job allocation request\n");
}

#[test]
fn concurrent_steps_never_share_a_gpu() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let step = "srun -n1 -G1 --exact sh -c \"echo \\$CUDA_VISIBLE_DEVICES >> gpus; until [ \\$(wc -l < gpus) = 2 ]; \
                do sleep 0.02; done\"";
    slotd.write("gpus", "");
    let job = slotd.script(
        &["-p", "gpu", "-G", "2", "-n", "2"],
        &format!("#!/bin/sh\n{step} &\n{step} &\nwait\n"),
    );
    slotd.wait_state(job, "COMPLETED");
    let gpus = slotd.read("gpus");
    let mut lines: Vec<&str> = gpus.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1"]);
}

#[test]
fn job_id_is_enough_to_run_a_step() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nfor name in $(env | grep ^SLURM_ | cut -d= -f1); do\n  [ $name = SLURM_JOB_ID ] || unset $name\n\
                  done\nsrun sh -c 'echo $SLURM_JOB_ID.$SLURM_STEP_ID'\n";
    let job = slotd.script(&[], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("{job}.0\n"));
}

#[test]
fn fifty_steps_are_recorded_in_order() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\ni=0\nwhile [ $i -lt 50 ]; do srun sh -c 'exit $((SLURM_STEP_ID % 2))'; i=$((i+1)); done 2>/dev/null\nexit 0\n");
    let ended = slotd.wait_state(job, "COMPLETED");
    let mut numbers: Vec<(u64, i64)> = ended
        .steps()
        .iter()
        .filter_map(|step| Some((step["id"]["Num"].as_u64()?, step["exit"]["status"].as_i64()?)))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).map(|n| (n, n as i64 % 2)).collect::<Vec<_>>());
}

#[test]
fn steps_end_with_their_job() {
    let slotd = Slotd::start();
    let job = slotd.script(
        &[],
        "#!/bin/sh\nsrun sh -c 'echo > ready; exec sleep 1000' &\nuntil [ -e ready ]; do sleep 0.02; done\nexit 0\n",
    );
    slotd.wait_end(job);
    slotd.wait("the end of the step's process", || {
        (!slotd
            .processes()
            .iter()
            .any(|pid| slotd_kit::proc::cmdline(*pid).starts_with("sleep 1000")))
        .then_some(())
    });
}

/// Returns the lines of standard error without times.
fn said(stderr: &str) -> Vec<&str> {
    stderr.lines().map(|line| line.split(" CANCELLED AT ").next().unwrap_or(line)).collect()
}

#[track_caller]
fn says(stderr: &str, line: &str) {
    assert!(said(stderr).contains(&line), "{line:?} is missing in:\n{stderr}");
}

#[test]
fn time_limit_of_a_running_step_can_be_changed() {
    let mut slotd = Slotd::start();
    let script = "srun -t 10 sh -c 'echo > up; exec sleep 1000'; echo $? > first; \
                  srun sh -c 'echo > up2; exec sleep 1000'; echo $? > second";
    let job = slotd.wrap(&["-t", "60"], script);
    let update = |slotd: &Slotd, step: &str, limit: &str| {
        slotd.line(&format!("scontrol update StepId={step} TimeLimit={limit}"))
    };
    let limit = |slotd: &Slotd, step: &str| {
        let shown = slotd.line(&format!("scontrol show step {step}")).ok().stdout;
        let limit = shown.split("TimeLimit=").nth(1).and_then(|rest| rest.split('\n').next());
        limit.expect(&shown).to_owned()
    };
    slotd.wait_text("up", "\n");
    let step = format!("{job}.0");
    assert_eq!(limit(&slotd, &step), "00:10:00");
    let rows = slotd.line(&format!("squeue -h -s {step} -o %i|%l")).ok();
    assert_eq!(rows.text(), format!("{step}|10:00"));
    update(&slotd, &step, "+5").ok();
    assert_eq!(limit(&slotd, &step), "00:15:00");
    for (step, limit, why) in [
        (
            &*step,
            "-16",
            "TimeLimit decrement larger than current time limit (16 > 15 minutes)\nslurm_update error: ",
        ),
        (&format!("{job}.7"), "5", "slurm_update error: Invalid job id specified\n"),
        (
            &format!("{job}.batch"),
            "5",
            "slurm_update error: Requested operation is presently disabled\n",
        ),
        ("999", "5", "slurm_update error: Invalid job id specified\n"),
    ] {
        let out = update(&slotd, step, limit).fails(1);
        assert!(out.stderr.starts_with(why), "{}", out.stderr);
    }
    slotd.crash();
    assert_eq!(limit(&slotd, &step), "00:15:00");
    update(&slotd, &step, "0:01").ok();
    slotd.wait_text("first", "143\n");
    // All steps of a job, and one without a limit of its own.
    slotd.wait_text("up2", "\n");
    update(&slotd, &job.to_string(), "+5").fails(1);
    update(&slotd, &job.to_string(), "0:01").ok();
    slotd.wait_text("second", "143\n");
    slotd.wait_end(job);
    update(&slotd, &step, "5").fails(1);
    assert!(slotd.steps(job, "JobID,State").contains(&format!("{step}|TIMEOUT\n")));
}

#[test]
fn step_can_have_its_own_time_limit() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun -t 0:01 sleep 1000\necho rc=$?\n");
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    assert!(output.contains("DUE TO TIME LIMIT ***\n") && output.ends_with("rc=143\n"), "{output}");
    let steps = slotd.steps(job, "jobid,state,exitcode");
    assert!(steps.contains(&format!("{job}.0|TIMEOUT|0:15")), "{steps}");
}

#[test]
fn time_limit_of_a_step_applies_without_a_daemon() {
    let mut slotd = Slotd::start();
    let step = "srun -t 0:02 sh -c 'echo $$ > up; exec sleep 1000'";
    let job = slotd.script(&[], &format!("#!/bin/sh\n{step} & wait $!\necho rc=$? > end\n"));
    let step: i32 = slotd.wait_text("up", "\n").trim().parse().unwrap();
    slotd.kill9();
    slotd.wait("the end of the step", || (!proc::is_alive(step)).then_some(()));
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("end"), "rc=143\n");
    let steps = slotd.steps(job, "jobid,state");
    assert!(steps.contains(&format!("{job}.0|TIMEOUT")), "{steps}");
}

#[test]
fn cancelled_step_prints_a_message_and_stays_cancelled() {
    let slotd = Slotd::start();
    // A step that the daemon knows may not have started yet.
    let script = "#!/bin/sh\nsrun sh -c ': >begun; exec sleep 1000' & until [ -e begun ]; do sleep 0.02; done\n\
                  scancel $SLURM_JOB_ID.0\nwait $!\necho rc=$?\n";
    let job = slotd.script(&[], script);
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    assert!(output.ends_with("rc=143\n"), "{output}");
    says(&output, "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.");
    assert!(!output.contains("Force Terminated"), "{output}");
    let step = format!("{job}.0|CANCELLED by {}|0:15", nix::unistd::getuid());
    assert!(slotd.steps(job, "jobid,state,exitcode").contains(&step));
}

#[test]
fn running_step_is_sampled() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!(
        "#!/bin/sh\nsrun sh -c 'x=$(head -c 20000000 /dev/zero | tr \"\\0\" x); : > up; {gate}; echo ${{#x}}'\n"
    );
    let job = slotd.script(&[], &script);
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    let line =
        |args: &[&str]| slotd.cmd("sstat", &[&["-n", "-P"], args].concat()).ok().text().to_owned();
    let id = job.to_string();
    let of_step = line(&["-j", &id, "-o", "jobid,ntasks,maxrss", "--noconvert"]);
    let fields: Vec<&str> = of_step.split('|').collect();
    assert_eq!(fields[..2], [&format!("{job}.0"), "1"], "{of_step}");
    assert!(
        fields[2].trim_end_matches('K').parse::<u64>().is_ok_and(|kb| kb > 15_000),
        "{of_step}"
    );
    let all: BTreeSet<String> =
        line(&["-a", "-j", &id, "-o", "jobid"]).lines().map(str::to_owned).collect();
    assert_eq!(all, BTreeSet::from([format!("{job}.0"), format!("{job}.batch")]));
    let pids = line(&["-i", "-j", &format!("{job}.0")]);
    // Processes that the gate starts come and go.
    let task = pids.rsplit('|').next().unwrap().split(',').next().unwrap();
    assert!(proc::is_alive(task.parse().unwrap()), "{pids}");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let none = slotd.cmd("sstat", &["-n", "-j", &id]).ok();
    assert_eq!(
        (none.stdout.as_str(), none.stderr),
        ("", format!("sstat: error: couldn't get steps for job {job}\n"))
    );
}

#[test]
fn sattach_shows_output_and_forwards_input() {
    let slotd = Slotd::start();
    let mut host = slotd.command("srun");
    let script = "echo $SLURM_PROCID up >> log; read word; echo $SLURM_PROCID got $word; echo err >&2; sleep 0.1";
    host.args(["-n", "2", "-l", "sh", "-c", script]).stdin(std::process::Stdio::piped());
    let mut child = host
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    slotd.wait("both tasks", || {
        (slotd.exists("log") && slotd.read("log").lines().count() == 2).then_some(())
    });
    slotd.wait("the attach socket", || slotd.job_dir(1).join("0.attach").exists().then_some(()));
    let mut guest = slotd.command("sattach");
    guest.args(["-l", "1.0"]);
    let out = slotd.feed(guest, "hello\n").ok();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(lines(&out.stdout), lines("0: 0 got hello\n1: 1 got hello\n"));
    assert_eq!(lines(&out.stderr), lines("0: err\n1: err\n"));
    drop(child.stdin.take());
    let own = child.wait_with_output().unwrap();
    assert!(own.status.success());
    assert_eq!(lines(&String::from_utf8_lossy(&own.stdout)), lines(&out.stdout));
    assert!(!slotd.job_dir(1).join("0.attach").exists());
}

#[test]
fn sattach_follows_the_output_file_of_a_step() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let job = slotd.script(
        &[],
        &format!(
            "#!/bin/sh\nsrun sh -c 'echo zero; touch up; {gate}; echo one; echo two; exit 3' 2>/dev/null\n"
        ),
    );
    // srun's own report of the exit code is not part of the file.
    // Use touch: with `: > up`, the shell's own output would briefly go to that file.
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    let step = format!("{job}.0");
    let layout = slotd.cmd("sattach", &["--layout", &step]).ok();
    let host = slotd_kit::host();
    assert_eq!(
        layout.stdout,
        format!(
            "Job step layout:\n\t1 tasks, 1 nodes ({host})\n\n\tNode 0 ({host}), 1 task(s): 0 \n"
        )
    );
    let mut guest = slotd.command("sattach");
    guest.arg(&step);
    let guest = slotd.spawn(guest);
    slotd.wait("sattach to be at the end of the file", || {
        let of = |what: &str| format!("/proc/{}/{what}", guest.pid());
        let fds = std::fs::read_dir(of("fd")).ok()?.flatten();
        let is_output = |fd: &std::fs::DirEntry| {
            let target = std::fs::read_link(fd.path()).unwrap_or_default();
            target.ends_with(format!("slurm-{job}.out"))
        };
        let number = fds.into_iter().find(is_output)?.file_name();
        let info = std::fs::read_to_string(of("fdinfo") + "/" + number.to_str()?).ok()?;
        info.starts_with("pos:\t5\n").then_some(())
    });
    slotd.open("go");
    let end = guest.end().fails(3);
    assert_eq!(
        (&*end.stdout, &*end.stderr),
        ("one\ntwo\n", "sattach: error: task 0 exited with exit code 3\n")
    );
    let over = slotd.cmd("sattach", &[&step]).fails(1);
    assert_eq!(
        over.stderr,
        "sattach: error: Could not get job step info: Job step is not running\n"
    );
}

#[test]
fn sattach_returns_the_highest_exit_code_of_the_tasks() {
    let slotd = Slotd::start();
    let mut host = slotd.command("srun");
    // The last task is killed by a signal, which does not count.
    let script = format!(
        "echo up >> log; {}; [ $SLURM_PROCID = 3 ] && kill -9 $$; exit $((4 * SLURM_PROCID))",
        slotd.gate("go")
    );
    host.args(["-n", "4", "-K0", "sh", "-c", &script]);
    let host = slotd.spawn(host);
    slotd.wait("all tasks", || {
        (slotd.exists("log") && slotd.read("log").lines().count() == 4).then_some(())
    });
    slotd.wait("the attach socket", || slotd.job_dir(1).join("0.attach").exists().then_some(()));
    let mut guest = slotd.command("sattach");
    guest.arg("1.0");
    let guest = slotd.spawn(guest);
    // It has closed its connection to the daemon before it watches for the end of the step.
    slotd.wait("sattach to be connected to srun", || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).ok()?;
        let open = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let open: Vec<String> = open.map(|link| link.to_string_lossy().into_owned()).collect();
        let has = |kind: &str| open.iter().any(|link| link.contains(kind));
        (has("inotify") && has("socket:")).then_some(())
    });
    slotd.open("go");
    let end = guest.end().fails(8);
    let expected = "sattach: error: task 1 exited with exit code 4\n\
                    sattach: error: task 2 exited with exit code 8\n";
    assert_eq!(end.stderr, expected);
    host.end();
}

#[test]
fn sattach_fails_if_the_step_has_no_result() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun sh -c 'echo $PPID > up; exec sleep 1000'\n");
    slotd.wait_text("up", "\n");
    let watcher: i32 = slotd.read("up").trim().parse().unwrap();
    let mut guest = slotd.command("sattach");
    guest.arg(format!("{job}.0"));
    let guest = slotd.spawn(guest);
    slotd.wait("sattach to open the file", || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).ok()?;
        let mut open = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        open.any(|target| target.ends_with(format!("slurm-{job}.out"))).then_some(())
    });
    proc::signal(watcher, proc::KILL);
    let end = guest.end().fails(1);
    let expected = format!("lost the connection to StepId={job}.0: its watcher died\n");
    assert!(end.stderr.ends_with(&expected), "{}", end.stderr);
    slotd.cancel(job);
}

#[test]
fn sattach_refuses_to_show_its_own_output() {
    let slotd = Slotd::start();
    let script = "srun sh -c 'echo up; exec sleep 1000' &\nuntil grep -q up slurm-1.out; do sleep 0.02; done\n\
                  sattach 1.0 >>slurm-1.out 2>err; echo $? >code; scancel 1\n";
    slotd.script(&[], &format!("#!/bin/sh\n{script}"));
    slotd.wait_end(1);
    assert_eq!(slotd.read("code"), "1\n");
    let error = slotd.read("err");
    assert!(error.contains("StepId=1.0 writes to ") && error.contains("slurm-1.out"), "{error}");
}

#[test]
fn step_whose_watcher_is_killed_fails() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo $PPID >watcher; exec sleep 1000"]);
    let srun = slotd.spawn(srun);
    let watcher: i32 = slotd.wait_text("watcher", "\n").trim().parse().unwrap();
    proc::signal(watcher, libc::SIGKILL);
    let out = srun.end().fails(137);
    assert!(out.stderr.contains("Force Terminated StepId=1.0"), "{}", out.stderr);
    let ended = slotd.wait_end(1);
    assert_eq!((ended.state().as_str(), ended.exit().as_str()), ("FAILED", "0:9"));
    assert!(slotd.steps(1, "jobid,state,exitcode").contains("1.0|FAILED|0:9"));
}

#[test]
fn gpus_requested_by_a_step_override_those_of_its_job() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 2).start();
    let script = "#!/bin/sh\n\
        srun --gres=gpu:1 -n1 sh -c 'echo $CUDA_VISIBLE_DEVICES >> seen; until [ $(wc -l < seen) = 2 ]; do sleep 0.02; done' &\n\
        srun --gres=gpu:1 -n1 sh -c 'echo $CUDA_VISIBLE_DEVICES >> seen; until [ $(wc -l < seen) = 2 ]; do sleep 0.02; done' &\n\
        wait\n\
        srun --gres=none -n1 sh -c 'echo none: [$CUDA_VISIBLE_DEVICES] [$SLURM_GPUS_ON_NODE] [$SLURM_STEP_GPUS]'\n\
        srun -n1 sh -c 'echo all: $CUDA_VISIBLE_DEVICES'\n";
    let job = slotd.script(&["-p", "gpu", "-G", "2", "-n", "2"], script);
    slotd.wait_state(job, "COMPLETED");
    let seen = slotd.read("seen");
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["0", "1"]);
    assert_eq!(slotd.output(job), "none: [] [] []\nall: 0,1\n");
}
