//! The options of srun.

use slotd_kit::{Setup, Slotd};

#[test]
fn allocation_options_are_those_of_sbatch() {
    let slotd = Slotd::start();
    slotd
        .cmd(
            "srun",
            &["-J", "nm", "-p", "cpu", "-n", "2", "-c", "2", "--mem", "1G", "-t", "5", "true"],
        )
        .ok();
    let job = slotd.wait_end(1);
    assert_eq!(job.tres(), (4, 1024, 0));
    assert_eq!(job.0["request"]["name"], "nm");
    assert_eq!(job.0["request"]["time_limit_secs"], 300);
}

#[test]
fn job_is_named_after_its_command() {
    let slotd = Slotd::start();
    slotd.cmd("srun", &["/bin/true"]).ok();
    assert_eq!(slotd.wait_end(1).0["request"]["name"], "true");
}

#[test]
fn options_end_at_the_command() {
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("srun", &["echo", "-n", "2"]).ok().stdout, "2");
    assert_eq!(slotd.cmd("srun", &["--", "echo", "hello"]).ok().stdout, "hello\n");
}

#[test]
fn labels_identify_the_tasks() {
    let slotd = Slotd::start();
    // The example in the book.
    assert_eq!(
        slotd.cmd("srun", &["--label", "--unbuffered", "--", "echo", "hello"]).ok().stdout,
        "0: hello\n"
    );
    let out = slotd.cmd("srun", &["-n", "2", "-l", "sh", "-c", "echo out; echo err >&2"]).ok();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&out.stdout), ["0: out", "1: out"]);
    assert_eq!(sorted(&out.stderr), ["0: err", "1: err"]);
    // A last line without a newline is still a line.
    assert_eq!(slotd.cmd("srun", &["-l", "printf", "nonl"]).ok().stdout.trim_end(), "0: nonl");
}

#[test]
fn output_can_go_to_files() {
    let slotd = Slotd::start();
    slotd.cmd("srun", &["-o", "o.txt", "-e", "e.txt", "sh", "-c", "echo a; echo b >&2"]).ok();
    assert_eq!((slotd.read("o.txt").as_str(), slotd.read("e.txt").as_str()), ("a\n", "b\n"));
    slotd.cmd("srun", &["-n", "2", "-o", "%j_%s_%t.txt", "sh", "-c", "echo $SLURM_PROCID"]).ok();
    assert_eq!(
        (slotd.read("2_0_0.txt").as_str(), slotd.read("2_0_1.txt").as_str()),
        ("0\n", "1\n")
    );
    let out = slotd.cmd("srun", &["-o", "none", "echo", "x"]).ok();
    assert_eq!(out.stdout, "");
    assert!(!slotd.exists("none"));
    slotd.cmd("srun", &["-o", "both", "sh", "-c", "echo a; echo b >&2"]).ok();
    assert_eq!(slotd.read("both"), "a\nb\n");
}

#[test]
fn input_can_come_from_a_file_or_go_to_one_task() {
    let slotd = Slotd::start();
    slotd.write("in", "from file\n");
    assert_eq!(slotd.cmd("srun", &["-i", "in", "cat"]).ok().stdout, "from file\n");
    let mut srun = slotd.command("srun");
    srun.args(["--input=none", "cat"]);
    assert_eq!(slotd.feed(srun, "unread\n").ok().stdout, "");
    let mut srun = slotd.command("srun");
    srun.args(["--input=0", "-n", "2", "-l", "sh", "-c", "cat; echo done"]);
    let out = slotd.feed(srun, "only task 0\n").ok();
    let mut lines = out.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["0: done", "0: only task 0", "1: done"]);
}

#[test]
fn a_number_that_no_task_has_is_the_name_of_a_file() {
    let slotd = Slotd::start();
    slotd.write("2", "from file\n");
    assert_eq!(slotd.cmd("srun", &["-i", "2", "-n", "2", "-o", "7", "cat"]).ok().stdout, "");
    assert_eq!(slotd.read("7"), "from file\n".repeat(2));
}

#[test]
fn several_tasks_outside_of_a_job_know_their_distribution() {
    let slotd = Slotd::start();
    let shown = |tasks: &str| {
        let words = ["-n", tasks, "sh", "-c", "echo $SLURM_PROCID ${SLURM_DISTRIBUTION-none}"];
        slotd.cmd("srun", &words).ok().stdout
    };
    assert_eq!(shown("1"), "0 none\n");
    assert!(shown("2").contains("1 block\n"));
}

#[test]
fn chdir_sets_the_working_directory() {
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("srun", &["-D", "/usr", "pwd"]).ok().stdout, "/usr\n");
    assert_eq!(slotd.cmd("srun", &["pwd"]).ok().stdout, format!("{}\n", slotd.work().display()));
}

#[test]
fn export_restricts_the_environment() {
    let slotd = Slotd::start();
    let run = |export: &str| {
        let mut srun = slotd.command("srun");
        srun.env("FOO", "1").env("BAR", "2").args([export, "sh", "-c", "echo [$FOO$BAR$NEW]"]);
        slotd.run(srun).ok().stdout
    };
    assert_eq!(run("--export=ALL"), "[12]\n");
    assert_eq!(run("--export=NONE"), "[]\n");
    assert_eq!(run("--export=FOO"), "[1]\n");
    assert_eq!(run("--export=ALL,NEW=3"), "[123]\n");
}

#[test]
fn step_has_a_directory_for_temporary_files() {
    let slotd = Slotd::start();
    let seen = |own: Option<&str>| {
        let mut srun = slotd.command("srun");
        srun.env_remove("TMPDIR").envs(own.map(|dir| ("TMPDIR", dir))).args([
            "sh",
            "-c",
            "echo $TMPDIR",
        ]);
        slotd.run(srun).ok().stdout
    };
    assert_eq!(
        (seen(None), seen(Some("/var/tmp"))),
        ("/tmp\n".to_owned(), "/var/tmp\n".to_owned())
    );
}

#[test]
fn environment_can_set_the_number_of_tasks() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.env("SLURM_NTASKS", "2").args(["echo", "x"]);
    assert_eq!(slotd.run(srun).ok().stdout, "x\nx\n");
}

#[test]
fn failed_task_can_end_the_whole_step() {
    let slotd = Slotd::start();
    let script = "if [ $SLURM_PROCID = 1 ]; then exit 1; fi; sleep 1000; echo survived";
    let out = slotd.cmd("srun", &["-K", "-n", "2", "sh", "-c", script]);
    assert_ne!(out.code, 0);
    assert!(!out.stdout.contains("survived"));
    let script = "if [ $SLURM_PROCID = 1 ]; then exit 1; fi; sleep 0.3; echo survived";
    let out = slotd.cmd("srun", &["-n", "2", "sh", "-c", script]).fails(1);
    assert_eq!(out.stdout, "survived\n");
}

#[test]
fn programs_can_differ_by_rank() {
    let slotd = Slotd::start();
    slotd.write("mp.conf", "0 echo zero %t\n1-2 echo other %t %o\n");
    let out = slotd.cmd("srun", &["-n", "3", "-l", "--multi-prog", "mp.conf"]).ok();
    let mut lines = out.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["0: zero 0", "1: other 1 0", "2: other 2 1"]);
    let out = slotd.cmd("srun", &["-n", "1", "--multi-prog", "mp.conf", "more words"]).fails(1);
    let why =
        "Invalid task id, 2 >= ntasks\nsrun: error: Line 2 of configuration file mp.conf invalid";
    assert_eq!(out.stderr, format!("srun: error: {why}\n"));
    let out = slotd.cmd("srun", &["--multi-prog", "none.conf"]).fails(1);
    let why = "Could not open multi_prog config file none.conf: No such file or directory";
    assert_eq!(out.stderr, format!("srun: error: {why}\n"));
    // Both errors are found before the allocation.
    assert_eq!(slotd.all_records().len(), 1);
    slotd.write("mp.conf", "* echo '%t' %t\n");
    let out = slotd.cmd("srun", &["-n", "1", "--multi-prog", "mp.conf", "more  words", "%t"]).ok();
    assert_eq!(out.stdout, "%t 0 more  words %t\n");
}

#[test]
fn exit_code_of_a_refusal_can_be_set() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.env("SLURM_EXIT_ERROR", "99").args(["-p", "nopart", "true"]);
    slotd.run(srun).fails(99);
}

#[test]
fn quiet_srun_still_reports_failures() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["-Q", "false"]).fails(1);
    assert!(out.stderr.contains("Exited with exit code 1"), "{}", out.stderr);
}

#[test]
fn srun_waits_for_its_dependency() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], &format!("{}; echo first >> order", slotd.gate("go")));
    let mut srun = slotd.command("srun");
    srun.args(["-d", &format!("afterok:{first}"), "sh", "-c", "echo second >> order"]);
    let waiting = slotd.spawn(srun);
    slotd.wait("the job", || slotd.all_records().iter().any(|job| job.id() == 2).then_some(()));
    slotd.wait_reason(2, "Dependency");
    slotd.open("go");
    waiting.end().ok();
    assert_eq!(slotd.read("order"), "first\nsecond\n");
}

#[test]
fn overcommitted_tasks_share_the_cpus_of_one_task() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["-n", "9", "-O", "sh", "-c", "echo $SLURM_PROCID"]).ok();
    assert_eq!(out.lines().len(), 9);
    assert_eq!(slotd.wait_end(1).tres().0, 1);
    let script = "#!/bin/sh\n#SBATCH -n 9 -O -c 2\necho $SLURM_NTASKS $SLURM_CPUS_ON_NODE >job\nsrun -l true && echo well >>job\n";
    let job = slotd.script(&[], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("job"), "9 2\nwell\n");
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
fn failed_task_ends_the_others_with_sigterm_first() {
    // The task exits on SIGTERM, however late it receives the signal.
    let slotd = Setup::default().set("SLOTD_KILL_WAIT", 1000).start();
    let script = "if [ $SLURM_PROCID = 1 ]; then until [ -e up ]; do sleep 0.02; done; exit 1; fi; \
                  trap 'echo caught; exit 3' TERM; : > up; while :; do sleep 0.02; done";
    let out = slotd.cmd("srun", &["-K", "-n", "2", "sh", "-c", script]).fails(3);
    assert_eq!(out.text(), "caught");
    says(&out.stderr, "srun: Terminating StepId=1.0");
    assert!(out.stderr.contains("slurmstepd: error: *** STEP 1.0 ON "), "{}", out.stderr);
    says(
        &out.stderr,
        &format!("srun: error: {}: task 0: Exited with exit code 3", slotd_kit::host()),
    );
}

#[test]
fn task_that_ignores_sigterm_is_killed_after_a_failure() {
    let slotd = Slotd::start();
    let script = "if [ $SLURM_PROCID = 1 ]; then until [ -s up ]; do sleep 0.02; done; exit 1; fi; \
                  exec helper ignore 15 > up";
    let out = slotd.cmd("srun", &["-K", "-n", "2", "sh", "-c", script]).fails(137);
    says(&out.stderr, &format!("srun: error: {}: task 0: Killed", slotd_kit::host()));
}

#[test]
fn signal_that_ended_a_task_counts_more_than_the_exit_code_of_another() {
    let slotd = Slotd::start();
    let script = "[ $SLURM_PROCID = 1 ] && exit 200; kill -9 $$";
    let out = slotd.cmd("srun", &["-n", "2", "sh", "-c", script]).fails(137);
    says(&out.stderr, "srun: Force Terminated StepId=1.0");
    slotd.wait_end(1);
    assert_eq!(slotd.steps(1, "JobID,ExitCode"), "1|0:9\n1.0|0:9");
}

#[test]
fn wait_option_ends_the_step_and_lists_running_tasks() {
    let slotd = Slotd::start();
    let script = "[ $SLURM_PROCID = 1 ] || sleep 1000";
    let out = slotd.cmd("srun", &["-W", "1", "-n", "2", "sh", "-c", script]).fails(137);
    for line in [
        "srun: First task exited 1s ago",
        "srun: StepId=1.0 task 0: running",
        "srun: StepId=1.0 task 1: exited",
        "srun: Terminating StepId=1.0",
        "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.",
        &format!("srun: error: {}: task 0: Killed", slotd_kit::host()),
    ] {
        says(&out.stderr, line);
    }
}

#[test]
fn killed_step_receives_only_sigkill() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "trap 'echo caught' TERM; : >up; while :; do sleep 0.02; done"]);
    let srun = slotd.spawn(srun);
    slotd.wait("the step", || slotd.exists("up").then_some(()));
    slotd.cmd("scancel", &["-s", "KILL", "1.0"]).ok();
    let out = srun.end().fails(137);
    says(&out.stderr, &format!("srun: error: {}: task 0: Killed", slotd_kit::host()));
    assert_eq!(out.stdout, "");
}

#[test]
fn gpus_are_bound_as_requested() {
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
    let out = slotd.cmd("srun", &["-n", "2", "-G", "2", "--gpu-bind=map_gpu:0,2", "true"]).fails(1);
    let want = "GPU binding outside of job step allocation: GPU 2; the step has 2, counted from 0";
    assert!(out.stderr.contains(want), "{}", out.stderr);
    let out = slotd.cmd("srun", &["--gpu-bind=slice:1", "true"]).fails(255);
    assert_eq!(out.stderr, "srun: error: Invalid --gpu-bind argument: gpu:slice:1\n");
}

#[test]
fn binding_can_be_reported() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["--cpu-bind=verbose,map_cpu:0", "true"]).ok();
    let start = format!("cpu-bind=MAP  - {}, task  0  0 [", slotd_kit::host());
    assert!(
        out.stderr.starts_with(&start) && out.stderr.ends_with("]: mask 0x1 set\n"),
        "{}",
        out.stderr
    );
    assert_eq!(slotd.cmd("srun", &["--cpu-bind=map_cpu:0", "true"]).ok().stderr, "");
}

#[test]
fn task_that_closes_its_input_does_not_affect_the_others() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    let script = "case $SLURM_PROCID in 2) wc -c;; *) exec 0<&-; until [ -e done ]; do sleep 0.02; done;; esac; : > done";
    srun.args(["-n", "3", "sh", "-c", script]);
    let out = slotd.feed(srun, vec![b'x'; 3 << 20]).ok();
    assert_eq!(out.text().trim(), (3 << 20).to_string());
}

#[test]
fn option_names_of_earlier_releases_are_accepted() {
    let slotd = Slotd::start();
    slotd.expect("srun --tasks-per-node=2 --cpu_bind=none --mem_bind=none echo x", 0, "x\nx\n", "");
    let refusal = "srun: error: --pack-group is not supported by slotd: there are no heterogeneous jobs on one host\n";
    slotd.expect("srun --pack-group=0 true", 255, "", refusal);
}
