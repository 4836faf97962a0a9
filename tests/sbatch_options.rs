//! The options of sbatch in their usual forms, directives, and precedence.

#[path = "sbatch_options/directives.rs"]
mod directives;
#[path = "sbatch_options/environment.rs"]
mod environment;
#[path = "sbatch_options/forms.rs"]
mod forms;
#[path = "sbatch_options/main_options.rs"]
mod main_options;
#[path = "sbatch_options/man_page.rs"]
mod man_page;

use slotd_kit::{Setup, Slotd};

fn request<'a>(job: &'a slotd_kit::Record, key: &str) -> &'a serde_json::Value {
    &job.0["request"][key]
}

#[test]
fn defaults_are_those_of_the_book() {
    let slotd = Slotd::start();
    let job = slotd.job(slotd.wrap(&[], "true"));
    assert_eq!(job.tres(), (1, 512, 0));
    assert_eq!(job.partition(), "cpu");
    assert_eq!(request(&job, "name"), "wrap");
    assert_eq!(request(&job, "time_limit_secs"), &serde_json::Value::Null);
}

#[test]
fn job_is_named_after_its_script() {
    let slotd = Slotd::start();
    let job = slotd.job(slotd.script(&[], "#!/bin/sh\n"));
    assert_eq!(request(&job, "name"), "job.sh");
    let job = slotd.job(slotd.script(&["-J", "other"], "#!/bin/sh\n"));
    assert_eq!(request(&job, "name"), "other");
}

#[test]
fn tasks_times_cpus_are_allocated() {
    let slotd = Slotd::start();
    let job = slotd.job(slotd.wrap(&["-n", "2", "-c", "2", "--mem", "1G"], "true"));
    assert_eq!(job.tres(), (4, 1024, 0));
    let job = slotd.job(slotd.wrap(&["--ntasks=2", "--cpus-per-task=1", "--mem=300M"], "true"));
    assert_eq!(job.tres(), (2, 300, 0));
}

#[test]
fn gpu_partition_allocates_one_gpu_by_default() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    assert_eq!(slotd.job(slotd.wrap(&["-p", "gpu"], "true")).tres().2, 1);
    assert_eq!(slotd.job(slotd.wrap(&["-p", "gpu", "-G", "2"], "true")).tres().2, 2);
    assert_eq!(slotd.job(slotd.wrap(&["-p", "cpu"], "true")).tres().2, 0);
}

#[test]
fn script_is_stored_as_submitted() {
    let slotd = Slotd::start();
    let job = slotd.script(&["-H"], "#!/bin/sh\necho first\n");
    slotd.write("job.sh", "#!/bin/sh\necho second\n");
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "first\n");
}

#[test]
fn script_gets_its_arguments() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\nprintf '<%s>' \"$@\"\n");
    let job = slotd.submit(&["job.sh", "a b", "-J", "*", ""]);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "<a b><-J><*><>");
}

#[test]
fn script_can_come_from_standard_input() {
    let slotd = Slotd::start();
    let mut sbatch = slotd.command("sbatch");
    sbatch.arg("--parsable");
    let out = slotd.feed(sbatch, "#!/bin/sh\n#SBATCH -o stdin.out\necho from stdin\n").ok();
    slotd.wait_state(out.text().parse().unwrap(), "COMPLETED");
    assert_eq!(slotd.read("stdin.out"), "from stdin\n");
}

#[test]
fn any_interpreter_can_run_the_script() {
    let slotd = Slotd::start();
    let job = slotd.script(&[], "#!/usr/bin/awk -f\nBEGIN { print 6 * 7 }\n");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "42\n");
    let missing = slotd.path("missing").display().to_string();
    let job = slotd.script(&[], &format!("#!{missing}\n"));
    let ended = slotd.wait_state(job, "FAILED");
    assert!(slotd.output(job).contains(&missing), "{}", slotd.output(job));
    assert_ne!(ended.exit(), "0:0");
}

#[test]
fn job_runs_where_it_was_submitted() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "pwd; echo $SLURM_SUBMIT_DIR");
    slotd.wait_state(job, "COMPLETED");
    let here = slotd.work().display().to_string();
    assert_eq!(slotd.output(job), format!("{here}\n{here}\n"));
    slotd.write("sub/x", "");
    let job = slotd.wrap(&["-D", "sub", "-o", "out"], "pwd");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("sub/out"), format!("{here}/sub\n"));
}

#[test]
fn environment_of_the_submitter_is_exported() {
    let slotd = Slotd::start();
    let mut sbatch = slotd.command("sbatch");
    sbatch.env("MINE", "a b'c\"d\n\\e").args(["--parsable", "--wrap", "printf %s \"$MINE\""]);
    let job = slotd.run(sbatch).ok().text().parse().unwrap();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "a b'c\"d\n\\e");
}

#[test]
fn environment_of_the_daemon_does_not_leak() {
    let slotd =
        Setup::default().set("SLOTD_NOTIFY_TIMEOUT", 9).set("SECRET_OF_THE_DAEMON", 1).start();
    let job = slotd.wrap(&[], "env");
    slotd.wait_state(job, "COMPLETED");
    let env = slotd.output(job);
    for name in ["SECRET_OF_THE_DAEMON", "SLOTD_NOTIFY_TIMEOUT", "SLOTD_CPUS", "RUST_LOG"] {
        assert!(!env.contains(name), "{env}");
    }
    assert!(env.contains(&format!("SLOTD_ROOT={}\n", slotd.root.display())), "{env}");
}

#[test]
fn variables_describe_the_job() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\necho $SLURM_JOB_ID $SLURM_JOBID $SLURM_JOB_NAME $SLURM_JOB_PARTITION $SLURM_CPUS_PER_TASK\n\
                  echo $SLURM_NTASKS $SLURM_JOB_NUM_NODES $SLURM_CPUS_ON_NODE $SLURM_MEM_PER_NODE\n\
                  [ \"$SLURM_JOB_NODELIST\" = \"$(hostname -s)\" ] && echo here\n";
    slotd.write("job.sh", script);
    let job = slotd.submit(&["-J", "me", "-c", "3", "--ntasks-per-node=1", "--mem=1G", "job.sh"]);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("{job} {job} me cpu 3\n1 1 3 1024\nhere\n"));
}

#[test]
fn export_sets_and_restricts_the_environment() {
    let slotd = Slotd::start();
    let run = |args: &[&str], script: &str| {
        let mut sbatch = slotd.command("sbatch");
        sbatch.env("OUTER", "outer").arg("--parsable").args(args).args(["--wrap", script]);
        let job = slotd.run(sbatch).ok().text().parse().unwrap();
        slotd.wait_state(job, "COMPLETED");
        slotd.output(job)
    };
    // The example in the book.
    assert_eq!(run(&["--export", "FOO=bar,HELLO=world"], "echo \"$FOO $HELLO\""), "bar world\n");
    assert_eq!(run(&["--export=ALL,FOO=bar"], "echo \"$FOO $OUTER\""), "bar outer\n");
    assert_eq!(run(&["--export=NONE"], "echo \"[$OUTER]\""), "[]\n");
    assert_eq!(run(&["--export=OUTER"], "echo \"[$OUTER]\""), "[outer]\n");
    assert_eq!(run(&[], "echo \"[$OUTER]\""), "[outer]\n");
}

#[test]
fn export_file_sets_variables() {
    let slotd = Slotd::start();
    slotd.write("vars", b"FROM_FILE=yes\0TWO=a b\0");
    let job = slotd.wrap(&["--export-file", "vars"], "echo $FROM_FILE $TWO");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "yes a b\n");
    let out = slotd.cmd("sbatch", &["--export-file", "none", "--wrap", "true"]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("none"), "{}", out.stderr);
}

#[test]
fn directives_are_read_up_to_the_first_command() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\n\n# a comment\n#SBATCH -J script-demo\n#SBATCH -p cpu\n#SBATCH -c 2\n#SBATCH --mem 1G\n\
                  #SBATCH -t 00:05:00\n#SBATCH\t--comment=\"two words\" -o logs/%j.out # and why\n\
                  echo \"job=$SLURM_JOB_ID cpus=$SLURM_CPUS_PER_TASK\"\n#SBATCH -J late\n";
    let id = slotd.script(&[], script);
    let job = slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read(&format!("logs/{id}.out")), format!("job={id} cpus=2\n"));
    assert_eq!(request(&job, "name"), "script-demo");
    assert_eq!(request(&job, "time_limit_secs"), 300);
    assert_eq!(request(&job, "comment"), "two words");
    assert_eq!(job.tres(), (2, 1024, 0));
}

#[test]
fn sloppy_directives_are_read() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\n#SBATCH--job-name=glued\n#SBATCH -c 2 --mem 1G \\\n#SBATCH -o out \\ \nexit 0\n";
    let job = slotd.wait_state(slotd.script(&[], script), "COMPLETED");
    assert_eq!(request(&job, "name"), "glued");
    assert_eq!(job.tres(), (2, 1024, 0));
    assert_eq!(slotd.read("out"), "");
    // simple-slurm writes options with an optional value this way. Slurm refuses them with this
    // message.
    slotd.write("padded.sh", "#!/bin/sh\n#SBATCH --nice                5\n");
    let out = slotd.cmd("sbatch", &["padded.sh"]).fails(255);
    let text = "sbatch: error: line 2: Invalid directive found in batch script: 5\n";
    assert!(out.stderr.starts_with(text), "{}", out.stderr);
}

#[test]
fn command_line_overrides_environment_overrides_directives() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\n#SBATCH -J directive -t 5 -c 2\n");
    let submit = |env: &[(&str, &str)], args: &[&str]| {
        let mut sbatch = slotd.command("sbatch");
        sbatch.envs(env.iter().copied()).arg("--parsable").args(args).arg("job.sh");
        slotd.job(slotd.run(sbatch).ok().text().parse().unwrap())
    };
    let of = |job: &slotd_kit::Record| {
        (
            request(job, "name").as_str().unwrap().to_owned(),
            request(job, "time_limit_secs").as_u64().unwrap(),
        )
    };
    assert_eq!(of(&submit(&[], &[])), ("directive".to_owned(), 300));
    let env = [("SBATCH_JOB_NAME", "env"), ("SBATCH_TIMELIMIT", "7")];
    assert_eq!(of(&submit(&env, &[])), ("env".to_owned(), 420));
    assert_eq!(of(&submit(&env, &["-J", "line", "-t", "9"])), ("line".to_owned(), 540));
    // An option that is only in a directive still applies.
    assert_eq!(submit(&env, &["-J", "line"]).tres().0, 2);
}

#[test]
fn times_are_parsed_like_slurms() {
    let slotd = Slotd::start();
    for (text, seconds) in [
        ("10", Some(600)),
        ("90:30", Some(91 * 60)),
        ("1:30:00", Some(5400)),
        ("1-", Some(86_400)),
        ("2-12", Some(216_000)),
        ("1-00:00:00", Some(86_400)),
        ("0", None),
        ("UNLIMITED", None),
        ("INFINITE", None),
    ] {
        let job = slotd.job(slotd.wrap(&["-H", "-t", text], "true"));
        assert_eq!(request(&job, "time_limit_secs").as_u64(), seconds, "-t {text}");
    }
}

#[test]
fn memory_is_parsed_like_slurms() {
    let slotd = Slotd::start();
    for (text, mb) in
        [("10", 10), ("1G", 1024), ("1g", 1024), ("1GB", 1024), ("500K", 1), ("0", 8192)]
    {
        let job = slotd.job(slotd.wrap(&["-H", "--mem", text], "true"));
        assert_eq!(job.tres().1, mb, "--mem {text}");
    }
    assert_eq!(
        slotd.job(slotd.wrap(&["-H", "-c", "4", "--mem-per-cpu", "100"], "true")).tres().1,
        400
    );
}

#[test]
fn wait_returns_the_exit_code_of_the_job() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["-W", "--wrap", "exit 3"]).fails(3);
    assert_eq!(out.stdout, "Submitted batch job 1\n");
    slotd.cmd("sbatch", &["-W", "--wrap", "true"]).ok();
    slotd.cmd("sbatch", &["--wait", "--wrap", "kill -9 $$"]).fails(1);
    // The tasks end at almost the same time, in any order. The highest exit code counts.
    for _ in 0..10 {
        slotd.cmd("sbatch", &["-W", "-a", "0-2", "--wrap", "exit $SLURM_ARRAY_TASK_ID"]).fails(2);
    }
    let mut waiting = slotd.command("sbatch");
    waiting.args(["-W", "-H", "-J", "waits", "--wrap", "true"]);
    let waiting = slotd.spawn(waiting);
    slotd.wait("the job", || {
        slotd.all_records().iter().any(|job| request(job, "name") == "waits").then_some(())
    });
    slotd.cmd("scancel", &["-n", "waits"]).ok();
    waiting.end().fails(1);
}

#[test]
fn wrap_with_several_tasks_launches_ranks() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-n", "3"], "echo $SLURM_PROCID/$SLURM_NTASKS/$SLURM_LOCALID");
    slotd.wait_state(job, "COMPLETED");
    let output = slotd.output(job);
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0/3/0", "1/3/1", "2/3/2"]);
}

#[test]
fn script_with_tasks_runs_once_per_rank_unless_it_starts_steps() {
    let slotd = Slotd::start();
    let lines = |args: &[&str], script: &str| {
        let job = slotd.script(args, script);
        slotd.wait_state(job, "COMPLETED");
        slotd.output(job).lines().count()
    };
    assert_eq!(lines(&["-n", "3"], "#!/bin/sh\necho line\n"), 3);
    assert_eq!(lines(&["--ntasks-per-node=3"], "#!/bin/sh\necho line\n"), 1);
    assert_eq!(lines(&["-n", "3"], "#!/bin/sh\necho line\nsrun true\n"), 1);
}

#[test]
fn setting_makes_batch_scripts_run_once() {
    let slotd = Setup::default().set("SLOTD_BATCH_TASKS", "once").start();
    let job = slotd.script(&["-n", "3"], "#!/bin/sh\necho $SLURM_NTASKS\n");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "3\n");
}

#[test]
fn test_only_submits_nothing() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["--test-only", "--wrap", "true"]).ok();
    assert_eq!(out.stdout, "");
    assert!(
        out.stderr.starts_with("sbatch: Job ") && out.stderr.contains(" to start at "),
        "{}",
        out.stderr
    );
    assert!(slotd.all_records().is_empty());
    slotd.cmd("sbatch", &["--test-only", "-c", "99", "--wrap", "true"]).fails(1);
}

#[test]
fn options_without_effect_on_one_host_are_stored() {
    let slotd = Slotd::setup().toml("[[qos]]\nname = \"high\"\n").start();
    let args = [
        "-A",
        "acct",
        "-q",
        "high",
        "--mail-type=END",
        "--mail-user=me",
        "-N",
        "1",
        "--comment=hi",
        "--wckey=w",
    ];
    let job = slotd.wrap(&args, "true");
    let job = slotd.wait_state(job, "COMPLETED");
    assert_eq!(request(&job, "account"), "acct");
    assert_eq!(request(&job, "qos"), "high");
    assert_eq!(request(&job, "comment"), "hi");
}

#[test]
fn wrap_keeps_the_command_verbatim() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo '$HOME' \"a  b\" \\\\ `echo tick` | tr a-z A-Z");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "$HOME A  B \\ TICK\n");
    let job = slotd.wrap(&[], "");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn exit_code_is_that_of_the_last_command_of_the_script() {
    let slotd = Slotd::start();
    for (script, state, exit) in [
        ("false; true", "COMPLETED", "0:0"),
        ("exit 256", "COMPLETED", "0:0"),
        ("exit 255", "FAILED", "255:0"),
        ("kill -SEGV $$", "FAILED", "0:11"),
        ("kill -TERM $$", "FAILED", "0:15"),
        ("set -e; false; true", "FAILED", "1:0"),
    ] {
        let job = slotd.wrap(&[], script);
        let ended = slotd.wait_state(job, state);
        assert_eq!(ended.exit(), exit, "{script}");
    }
}

#[test]
fn script_runs_once_per_task_unless_it_starts_its_own_tasks() {
    let slotd = Slotd::start();
    slotd.program("mpirun", "#!/bin/sh\necho mpirun \"$@\"\n");
    let lines = |args: &[&str], script: &str| {
        let job = slotd.script(&[&["-n", "2"], args].concat(), &format!("#!/bin/sh\n{script}\n"));
        slotd.wait_state(job, "COMPLETED");
        slotd.output(job).lines().count()
    };
    assert_eq!(lines(&[], "./mpirun -n $SLURM_NTASKS ./app"), 1);
    assert_eq!(lines(&[], "command -v sh mpirun >/dev/null; # mpirun\necho 'mpirun x'"), 2);
    assert_eq!(lines(&[], "cat <<END\nmpirun\nEND"), 2);
    assert_eq!(lines(&[], "echo $SLURM_PROCID of $SLURM_NTASKS"), 2);
    assert_eq!(lines(&[], "echo make -j $SLURM_NTASKS"), 1);
    assert_eq!(lines(&["-N", "1"], "echo one"), 1);
    assert_eq!(lines(&["--ntasks-per-node=2"], "echo one"), 1);
    assert_eq!(lines(&[], "echo each"), 2);
    let out = slotd.cmd("salloc", &["-Q", "-n", "2", "sh", "-c", "./mpirun x"]).ok();
    assert_eq!(out.lines().iter().filter(|line| line.starts_with("mpirun")).count(), 1);
}

#[test]
fn submitter_can_set_what_several_tasks_mean() {
    let slotd = Slotd::setup().set("SLOTD_BATCH_TASKS", "once").start();
    let submit = |own: &str| {
        let mut sbatch = slotd.command("sbatch");
        sbatch.env("SLOTD_BATCH_TASKS", own).args(["-n", "2", "--parsable", "--wrap", "echo each"]);
        slotd.run(sbatch)
    };
    for (own, count) in [("ranks", 2), ("auto", 2), ("once", 1), ("", 1)] {
        let job: u32 = submit(own).ok().text().trim().parse().unwrap();
        slotd.wait_state(job, "COMPLETED");
        assert_eq!(slotd.output(job).lines().count(), count, "{own:?}");
    }
    let refused = submit("twice").fails(1);
    assert!(
        refused.stderr.contains("twice") && refused.stderr.contains("ranks or once"),
        "{}",
        refused.stderr
    );
}

#[test]
fn extra_text_is_stored_and_shown_everywhere() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["--comment=c", "--extra", "a b"]);
    let id = job.to_string();
    let text = |command: &str, args: &[&str]| slotd.cmd(command, args).ok().stdout;
    let member = |command: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&text(command, &["--json", "-j", &id])).unwrap();
        json["jobs"][0]["extra"].clone()
    };
    let shown = text("scontrol", &["show", "job", &id]);
    assert!(shown.contains("\n   Comment=c \n   Extra=a b \n   Std"), "{shown}");
    assert_eq!(text("squeue", &["-h", "-j", &id, "-O", "extra:|"]), "a b|\n");
    assert_eq!(slotd.sacct(job, "Extra"), "a b");
    assert_eq!([member("squeue"), member("sacct")], ["a b", "a b"]);
    slotd.cmd("scontrol", &["update", &format!("JobId={id}"), "Extra=new"]).ok();
    assert_eq!(slotd.sacct(job, "Extra"), "new");
    slotd.cancel(job);
    slotd.cmd("srun", &["--extra=of srun", "true"]).ok();
    slotd.cmd("salloc", &["-Q", "--extra=of salloc", "true"]).ok();
    assert_eq!(text("sacct", &["-n", "-X", "-P", "-o", "extra"]), "new\nof srun\nof salloc\n");
}

#[test]
fn numbers_may_begin_with_blanks_and_a_plus_sign() {
    let slotd = Slotd::start();
    let given = ["-n", " 2", "-c", "+1", "--mem=+100", "-N", " 1", "-a", "0-+3%+2", "--nice=+5"];
    assert_eq!(slotd.shown(&given, "%C %m %D %K"), "2 100M 1 0-3%2");
    for (option, given) in [("--ntasks", "2 "), ("--cpus-per-task", "+ 2"), ("--ntasks", " -2")] {
        let wrong = slotd.cmd("sbatch", &[option, given, "--wrap", "true"]).fails(1);
        let text = format!("Invalid numeric value \"{given}\" for {option}.");
        assert!(wrong.stderr.contains(&text), "{wrong:?}");
    }
}

#[test]
fn name_can_be_empty() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\n#SBATCH -J given\necho \"<$SLURM_JOB_NAME>\"\n";
    let job = slotd.script(&["-J", "", "-o", "out%x.%j"], script);
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read(&format!("out.{job}")), "<>\n");
    assert_eq!(slotd.show(job, "JobName"), "");
    let out = slotd.cmd("srun", &["-J", "", "sh", "-c", "echo \"<$SLURM_JOB_NAME>\""]).ok();
    assert_eq!(out.stdout, "<>\n");
    assert_eq!(slotd.steps(2, "JobID,JobName"), "2|\n2.0|");
}
