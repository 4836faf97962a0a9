//! The finer lines of the srun page, and what joins a running step: sattach, sstat, scancel of a step.

use slotd_kit::{Setup, Slotd, proc};
use std::collections::BTreeSet;

/// The lines of standard error, without times.
fn said(stderr: &str) -> Vec<&str> {
    stderr.lines().map(|line| line.split(" CANCELLED AT ").next().unwrap_or(line)).collect()
}

#[track_caller]
fn says(stderr: &str, line: &str) {
    assert!(said(stderr).contains(&line), "{line:?} is missing in:\n{stderr}");
}

#[test]
fn a_bad_exit_ends_the_others_with_sigterm_first() {
    let slotd = Slotd::start();
    let script = "if [ $SLURM_PROCID = 1 ]; then until [ -e up ]; do sleep 0.02; done; exit 1; fi; \
                  trap 'echo told; exit 3' TERM; : > up; while :; do sleep 0.02; done";
    let out = slotd.cmd("srun", &["-K", "-n", "2", "sh", "-c", script]).fails(3);
    assert_eq!(out.text(), "told");
    says(&out.stderr, "srun: Terminating StepId=1.0");
    assert!(out.stderr.contains("slurmstepd: error: *** STEP 1.0 ON "), "{}", out.stderr);
    says(&out.stderr, &format!("srun: error: {}: task 0: Exited with exit code 3", host()));
}

fn host() -> String {
    let name = nix::unistd::gethostname().unwrap().into_string().unwrap();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn a_task_that_ignores_sigterm_is_killed_after_a_bad_exit() {
    let slotd = Slotd::start();
    let script = "if [ $SLURM_PROCID = 1 ]; then until [ -e up ]; do sleep 0.02; done; exit 1; fi; \
                  trap '' TERM; : > up; while :; do sleep 0.02; done";
    let out = slotd.cmd("srun", &["-K", "-n", "2", "sh", "-c", script]).fails(137);
    says(&out.stderr, &format!("srun: error: {}: task 0: Killed", host()));
}

#[test]
fn wait_ends_the_rest_and_says_who_still_ran() {
    let slotd = Slotd::start();
    let script = "[ $SLURM_PROCID = 1 ] || sleep 1000";
    let out = slotd.cmd("srun", &["-W", "1", "-n", "2", "sh", "-c", script]).fails(137);
    for line in [
        "srun: First task exited 1s ago",
        "srun: StepId=1.0 task 0: running",
        "srun: StepId=1.0 task 1: exited",
        "srun: Terminating StepId=1.0",
        "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.",
        &format!("srun: error: {}: task 0: Killed", host()),
    ] {
        says(&out.stderr, line);
    }
}

#[test]
fn a_step_may_have_its_own_time_limit() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun -t 0:01 sleep 1000\necho rc=$?\n");
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    assert!(output.contains("DUE TO TIME LIMIT ***\n") && output.ends_with("rc=143\n"), "{output}");
    let steps = slotd.steps(job, "jobid,state,exitcode");
    assert!(steps.contains(&format!("{job}.0|TIMEOUT|0:15")), "{steps}");
}

#[test]
fn the_time_limit_of_a_step_holds_without_a_daemon() {
    let mut slotd = Slotd::start();
    let job = slotd.script(&[], "#!/bin/sh\nsrun -t 0:02 sleep 1000 & : > up; wait $!\necho rc=$? > end\n");
    let runs = || slotd.processes().iter().any(|pid| proc::cmdline(*pid).trim_end() == "sleep 1000");
    slotd.wait("the step", || runs().then_some(()));
    slotd.kill9();
    let runs = || slotd.processes().iter().any(|pid| proc::cmdline(*pid).trim_end() == "sleep 1000");
    slotd.wait("the end of the step", || (!runs()).then_some(()));
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("end"), "rc=143\n");
    let steps = slotd.steps(job, "jobid,state");
    assert!(steps.contains(&format!("{job}.0|TIMEOUT")), "{steps}");
}

#[test]
fn a_cancelled_step_is_told_and_keeps_its_state() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\nsrun sleep 1000 & until squeue -h -s -o %i | grep -q \"$SLURM_JOB_ID.0\"; do sleep 0.02; done\n\
                  scancel $SLURM_JOB_ID.0\nwait $!\necho rc=$?\n";
    let job = slotd.script(&[], script);
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    assert!(output.ends_with("rc=143\n"), "{output}");
    says(&output, "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.");
    assert!(!output.contains("Force Terminated"), "{output}");
    assert!(slotd.steps(job, "jobid,state,exitcode").contains(&format!("{job}.0|CANCELLED|0:15")));
}

#[test]
fn a_step_that_is_killed_dies_of_sigkill_alone() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "trap 'echo told' TERM; : >up; while :; do sleep 0.02; done"]);
    let srun = slotd.spawn(srun);
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    slotd.cmd("scancel", &["-s", "KILL", "1.0"]).ok();
    let out = srun.end().fails(137);
    says(&out.stderr, &format!("srun: error: {}: task 0: Killed", host()));
    assert_eq!(out.stdout, "");
}

#[test]
fn a_step_that_is_none_is_named_by_scancel() {
    let slotd = Slotd::start();
    let out = slotd.cmd("scancel", &["7.3"]).fails(1);
    assert_eq!(out.stderr, "scancel: error: Kill job error on job step id 7.3: Invalid job id specified\n");
}

#[test]
fn gpus_are_bound_as_asked() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 4).start();
    let seen = |args: &[&str]| {
        let tail = ["-n", "2", "sh", "-c", "echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES"];
        let out = slotd.cmd("srun", &[args, &tail].concat()).ok();
        let mut lines: Vec<String> = out.stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    assert_eq!(seen(&["-G", "2", "--gpu-bind=single:1"]), "0:0 1:1");
    assert_eq!(seen(&["-G", "4", "--gpu-bind=map_gpu:3,1"]), "0:3 1:1");
    assert_eq!(seen(&["-G", "4", "--gpu-bind=mask_gpu:0x3,0xc"]), "0:0,1 1:2,3");
    assert_eq!(seen(&["--gpus-per-task=2"]), "0:0,1 1:2,3");
    assert_eq!(seen(&["--gpus-per-task=2", "--gpu-bind=none"]), "0:0,1,2,3 1:0,1,2,3");
    let out = slotd.cmd("srun", &["--gpu-bind=slice:1", "true"]).fails(255);
    assert_eq!(out.stderr, "srun: error: Invalid --gpu-bind argument: gpu:slice:1\n");
}

#[test]
fn a_binding_may_be_reported() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["--cpu-bind=verbose,map_cpu:0", "true"]).ok();
    let start = format!("cpu-bind=MAP  - {}, task  0  0 [", host());
    assert!(out.stderr.starts_with(&start) && out.stderr.ends_with("]: mask 0x1 set\n"), "{}", out.stderr);
    assert_eq!(slotd.cmd("srun", &["--cpu-bind=map_cpu:0", "true"]).ok().stderr, "");
}

#[test]
fn a_task_that_closes_its_input_does_not_disturb_the_others() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    let script =
        "case $SLURM_PROCID in 2) wc -c;; *) exec 0<&-; until [ -e done ]; do sleep 0.02; done;; esac; : > done";
    srun.args(["-n", "3", "sh", "-c", script]);
    let out = slotd.feed(srun, vec![b'x'; 3 << 20]).ok();
    assert_eq!(out.text().trim(), (3 << 20).to_string());
}

#[test]
fn a_running_step_is_measured() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!(
        "#!/bin/sh\nsrun sh -c 'x=$(head -c 20000000 /dev/zero | tr \"\\0\" x); : > up; {gate}; echo ${{#x}}'\n"
    );
    let job = slotd.script(&[], &script);
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    let line = |args: &[&str]| slotd.cmd("sstat", &[&["-n", "-P"], args].concat()).ok().text().to_owned();
    let id = job.to_string();
    let of_step = line(&["-j", &id, "-o", "jobid,ntasks,maxrss", "--noconvert"]);
    let fields: Vec<&str> = of_step.split('|').collect();
    assert_eq!(fields[..2], [&format!("{job}.0"), "1"], "{of_step}");
    assert!(fields[2].trim_end_matches('K').parse::<u64>().is_ok_and(|kb| kb > 15_000), "{of_step}");
    let all: BTreeSet<String> = line(&["-a", "-j", &id, "-o", "jobid"]).lines().map(str::to_owned).collect();
    assert_eq!(all, BTreeSet::from([format!("{job}.0"), format!("{job}.batch")]));
    let pids = line(&["-i", "-j", &format!("{job}.0")]);
    // What the gate starts comes and goes.
    let task = pids.rsplit('|').next().unwrap().split(',').next().unwrap();
    assert!(proc::is_alive(task.parse().unwrap()), "{pids}");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let none = slotd.cmd("sstat", &["-n", "-j", &id]).ok();
    assert_eq!((none.stdout.as_str(), none.stderr), ("", format!("sstat: error: couldn't get steps for job {job}\n")));
}

#[test]
fn sattach_shows_what_a_step_writes_and_passes_words_on() {
    let slotd = Slotd::start();
    let mut host = slotd.command("srun");
    let script = "echo $SLURM_PROCID up >> log; read word; echo $SLURM_PROCID got $word; echo err >&2; sleep 0.1";
    host.args(["-n", "2", "-l", "sh", "-c", script]).stdin(std::process::Stdio::piped());
    let mut child = host.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    slotd.wait("both tasks", || (slotd.exists("log") && slotd.read("log").lines().count() == 2).then_some(()));
    slotd.wait("the door", || slotd.job_dir(1).join("0.attach").exists().then_some(()));
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
fn sattach_follows_the_file_of_a_step() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let job = slotd.script(&[], &format!("#!/bin/sh\nsrun sh -c ': > up; {gate}; echo one; echo two'\n"));
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    let step = format!("{job}.0");
    let layout = slotd.cmd("sattach", &["--layout", &step]).ok();
    let host = host();
    assert_eq!(
        layout.stdout,
        format!("Job step layout:\n\t1 tasks, 1 nodes ({host})\n\n\tNode 0 ({host}), 1 task(s): 0 \n")
    );
    let mut guest = slotd.command("sattach");
    guest.arg(&step);
    let guest = slotd.spawn(guest);
    // It has the file open once it watches it.
    slotd.wait("the guest", || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).ok()?;
        let open = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        open.into_iter().any(|target| target.ends_with(format!("slurm-{job}.out"))).then_some(())
    });
    slotd.open("go");
    assert_eq!(guest.end().ok().stdout, "one\ntwo\n");
    let over = slotd.cmd("sattach", &[&step]).fails(1);
    assert_eq!(over.stderr, "sattach: error: Could not get job step info: Job step is not running\n");
}

#[test]
fn salloc_names_a_command_that_is_not_there() {
    let slotd = Slotd::start();
    let out = slotd.cmd("salloc", &["nosuchcmd"]).fails(1);
    let told =
        "salloc: error: _fork_command: Unable to find command \"nosuchcmd\"\nsalloc: Relinquishing job allocation 1\n";
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("Granted job allocation 1\n", told));
    slotd.wait_state(1, "FAILED");
}

#[test]
fn an_allocation_without_a_shell_has_slurm_s_name() {
    let slotd = Slotd::start();
    slotd.cmd("salloc", &["--no-shell"]).ok();
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i %j"]).ok().text(), "1 no-shell");
}

#[test]
fn sattach_refuses_to_show_its_own_output() {
    let slotd = Slotd::start();
    let script = "srun sh -c 'echo up; exec sleep 1000' &\nuntil grep -q up slurm-1.out; do sleep 0.02; done\n\
                  sattach 1.0 >>slurm-1.out 2>err; echo $? >code; scancel 1\n";
    slotd.script(&[], &format!("#!/bin/sh\n{script}"));
    slotd.wait_end(1);
    assert_eq!(slotd.read("code"), "1\n");
    let told = slotd.read("err");
    assert!(told.contains("StepId=1.0 writes to ") && told.contains("slurm-1.out"), "{told}");
}

#[test]
fn a_step_whose_watcher_is_killed_has_not_succeeded() {
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
