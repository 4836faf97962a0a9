//! Output files of batch jobs.

use slotd_kit::Slotd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

#[test]
fn none_discards_a_stream() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-o", "none", "-e", "NONE", "-i", "none"], "cat; echo lost; ls none");
    slotd.wait_state(job, "FAILED");
    let shown = ["StdIn", "StdOut", "StdErr"].map(|key| slotd.show(job, key));
    assert_eq!(shown, ["/dev/null"; 3]);
    assert!(!slotd.exists("none") && !slotd.exists("NONE"));
}

#[test]
fn output_and_errors_go_to_one_file_by_default() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "echo out; echo err >&2; echo out2");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "out\nerr\nout2\n");
}

#[test]
fn errors_can_have_a_separate_file() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-o", "o.txt", "-e", "e.txt"], "echo out; echo err >&2");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!((slotd.read("o.txt").as_str(), slotd.read("e.txt").as_str()), ("out\n", "err\n"));
}

#[test]
fn patterns_are_expanded() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-J", "nm", "-o", "o_%x_%j_%%_%4j_%A_%a.out"], "echo x");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read(&format!("o_nm_{job}_%_{job:04}_{job}_4294967294.out")), "x\n");
    let job = slotd.wrap(&["-o", "%u@%N"], "id -un; hostname -s");
    slotd.wait_state(job, "COMPLETED");
    let here = slotd.sh("printf '%s@%s' \"$(id -un)\" \"$(hostname -s)\"").ok().stdout;
    assert_eq!(slotd.read(&here).replace('\n', "@").trim_end_matches('@'), here);
}

#[test]
fn array_tasks_have_separate_files() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "3,7"], "echo task=$SLURM_ARRAY_TASK_ID");
    slotd.wait_array(job, 2);
    assert_eq!(slotd.read(&format!("slurm-{job}_3.out")), "task=3\n");
    assert_eq!(slotd.read(&format!("slurm-{job}_7.out")), "task=7\n");
    let job = slotd.wrap(&["-a", "3,7", "-o", "logs/%A_%3a.out"], "echo task=$SLURM_ARRAY_TASK_ID");
    slotd.wait_array(job, 2);
    assert_eq!(slotd.read(&format!("logs/{job}_003.out")), "task=3\n");
}

#[test]
fn shown_paths_of_pending_tasks_keep_their_task_tokens() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "-a", "3,7", "-o", "o_%A_%a_%4a_%b.txt", "-e", "e_%03b"], "true");
    let shown = |id: &str| {
        let out = slotd.cmd("squeue", &["-h", "-j", id, "-O", "stdout:|,stderr:|"]).ok();
        out.text().replace(&format!("{}/", slotd.work().display()), "")
    };
    assert_eq!(shown(&job.to_string()), format!("o_{job}_%a_%4a_%b.txt|e_%03b|"));
    slotd.cmd("scontrol", &["release", &format!("{job}_7")]).ok();
    slotd.wait("the end of the task", || {
        slotd.records(job).iter().any(slotd_kit::Record::is_over).then_some(())
    });
    assert_eq!(slotd.read(&format!("o_{job}_7_0007_7.txt")), "");
    // If only one task is left, its index is known.
    assert_eq!(shown(&job.to_string()), format!("o_{job}_3_0003_3.txt|e_003|"));
}

#[test]
fn missing_directories_are_created() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-o", "a/b/%j/out", "-e", "c/err"], "echo x; echo y >&2");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read(&format!("a/b/{job}/out")), "x\n");
    assert_eq!(slotd.read("c/err"), "y\n");
}

#[test]
fn job_whose_files_cannot_be_opened_fails_and_the_queue_continues() {
    let slotd = Slotd::start();
    slotd.write("file", "");
    let job = slotd.wrap(&["-o", "file/out"], "echo ran > ran");
    let ended = slotd.wait_state(job, "FAILED");
    assert_eq!((ended.reason().as_str(), ended.exit().as_str()), ("JobLaunchFailure", "0:53"));
    assert!(!slotd.exists("ran"));
    let job = slotd.wrap(&["-i", "nothing"], "echo ran > ran");
    let ended = slotd.wait_state(job, "FAILED");
    assert_eq!((ended.reason().as_str(), ended.exit().as_str()), ("JobLaunchFailure", "0:53"));
    assert!(!slotd.exists("ran"));
    // Other jobs still run.
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn files_are_truncated_or_appended_to() {
    let slotd = Slotd::start();
    for (args, expected) in [
        (vec!["-o", "f"], "one\n"),
        (vec!["-o", "f"], "one\n"),
        (vec!["-o", "f", "--open-mode=append"], "one\none\n"),
        (vec!["-o", "f", "--open-mode=truncate"], "one\n"),
    ] {
        let job = slotd.wrap(&args, "echo one");
        slotd.wait_state(job, "COMPLETED");
        assert_eq!(slotd.read("f"), expected, "{args:?}");
    }
}

#[test]
fn several_jobs_can_append_to_one_file() {
    let slotd = Slotd::start();
    let line = "0123456789".repeat(20);
    let script = format!("for i in 1 2 3 4 5 6 7 8 9 10; do echo {line}; done");
    let jobs: Vec<u32> =
        (0..4).map(|_| slotd.wrap(&["-o", "all", "--open-mode=append"], &script)).collect();
    for job in jobs {
        slotd.wait_state(job, "COMPLETED");
    }
    let all = slotd.read("all");
    assert_eq!(all.lines().count(), 40);
    assert!(all.lines().all(|l| l == line));
}

#[test]
fn output_file_exists_while_the_job_runs() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    slotd.wait("the file", || slotd.exists(&format!("slurm-{job}.out")).then_some(()));
}

#[test]
fn input_comes_from_dev_null_or_a_file() {
    let slotd = Slotd::start();
    slotd.write("in", "input\n");
    let job = slotd.wrap(&[], "cat; echo end");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "end\n");
    let job = slotd.wrap(&["-i", "in"], "cat");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), "input\n");
}

#[test]
fn missing_working_directory_is_refused_with_its_path() {
    let slotd = Slotd::start();
    let missing = slotd.path("typo").display().to_string();
    slotd.write("file", "");
    for (command, rest) in
        [("sbatch", &["--wrap", "pwd"][..]), ("srun", &["pwd"]), ("salloc", &["true"])]
    {
        let out = slotd.cmd(command, &[&["-D", "typo"], rest].concat()).fails(1);
        let said = format!(
            "{command}: error: unable to use the working directory {missing}: No such file or directory"
        );
        assert!(out.stderr.contains(&said), "{}", out.stderr);
        assert!(
            slotd
                .cmd(command, &[&["-D", "file"], rest].concat())
                .fails(1)
                .stderr
                .contains("Not a directory")
        );
    }
    assert!(!slotd.exists("typo") && slotd.all_records().is_empty());
}

#[test]
fn shell_in_a_removed_directory_can_only_submit_to_another_one() {
    let slotd = Slotd::start();
    let work = slotd.work().display().to_string();
    let mut shell = slotd.shell();
    let commands = "mkdir q && cd q && rmdir ../q\n\
        for dir in '' '-D.' '-Dsub'; do\n\
        for job in 'sbatch --wrap pwd' 'srun pwd' 'salloc pwd'; do\n\
        set -- $job; command=$1; shift; $command $dir \"$@\" 2>&1; echo $command $?\n\
        done; done; squeue -h && scontrol show config >/dev/null && echo queries work";
    shell.args(["-c", commands]);
    let out = slotd.run(shell).ok();
    let lines = out.lines();
    let refused =
        lines.iter().filter(|line| line.contains("error: unable to use the working directory"));
    assert_eq!(
        refused.filter(|line| line.ends_with("No such file or directory")).count(),
        9,
        "{}",
        out.stdout
    );
    for command in ["sbatch 1", "srun 1", "salloc 1"] {
        assert_eq!(lines.iter().filter(|line| **line == command).count(), 3, "{}", out.stdout);
    }
    assert!(
        out.stdout.ends_with("queries work\n") && slotd.all_records().is_empty(),
        "{}",
        out.stdout
    );
    let mut shell = slotd.shell();
    shell.args(["-c", &format!("mkdir q && cd q && rmdir ../q; srun -D {work} pwd")]);
    assert_eq!(slotd.run(shell).ok().stdout, format!("{work}\n"));
}

#[test]
fn inaccessible_working_directory_is_refused() {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    let slotd = Slotd::start();
    std::fs::create_dir(slotd.path("locked")).unwrap();
    std::fs::set_permissions(slotd.path("locked"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut sbatch = slotd.command("sbatch");
    sbatch.args(["-D", "locked", "--wrap", "pwd"]);
    // SAFETY: only prctl is called. Root can enter any directory because of these capabilities;
    // other users have none to drop.
    unsafe {
        sbatch.pre_exec(|| {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0);
            Ok(())
        });
    }
    let out = slotd.run(sbatch).fails(1);
    let said = format!(
        "unable to use the working directory {}: Permission denied",
        slotd.path("locked").display()
    );
    assert!(out.stderr.contains(&said) && !out.stderr.contains("create it"), "{}", out.stderr);
    assert!(slotd.all_records().is_empty());
}

#[test]
fn working_directory_of_a_dependent_job_can_be_created_later() {
    let slotd = Slotd::start();
    let first = slotd.begun(&[], "go", "mkdir made");
    let after = format!("afterok:{first}");
    let args = ["-d", &after, "-D", "made", "--parsable", "--wrap", "pwd"];
    let out = slotd.cmd("sbatch", &args).ok();
    assert!(out.stderr.contains("sbatch: warning: the working directory"), "{}", out.stderr);
    let job: u32 = out.text().trim().parse().unwrap();
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.read(&format!("made/slurm-{job}.out")),
        format!("{}\n", slotd.path("made").display())
    );
}

#[test]
fn working_directory_missing_at_the_start_fails_the_job_and_is_not_created() {
    let slotd = Slotd::start();
    std::fs::create_dir(slotd.path("gone")).unwrap();
    let out = slotd.path("out").display().to_string();
    let with_output = slotd.wrap(&["--hold", "-D", "gone", "-o", &out], "touch ran");
    let without = slotd.wrap(&["--hold", "-D", "gone"], "touch ran");
    std::fs::remove_dir(slotd.path("gone")).unwrap();
    let gone = slotd.path("gone").display().to_string();
    for job in [with_output, without] {
        slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
        let record = slotd.wait_state(job, "FAILED");
        assert_eq!(
            (record.reason().as_str(), record.exit().as_str()),
            ("JobLaunchFailure", "0:53")
        );
        assert!(slotd.show(job, "SystemComment").contains(&gone));
    }
    let why = format!("could not enter the working directory {gone}: No such file or directory");
    assert_eq!(slotd.read("out"), format!("slurmstepd: error: {why}\n"));
    assert!(!slotd.exists("gone") && !slotd.exists("ran"));
}

#[test]
fn batch_job_gets_the_propagated_limits_of_its_submitter() {
    let slotd = Slotd::start();
    let seen = |propagate: &str| {
        let script = "ulimit -Sn; ulimit -Sc";
        let out = slotd
            .sh(&format!(
                "ulimit -Sn 123; ulimit -Sc 0; sbatch --parsable {propagate} --wrap '{script}'"
            ))
            .ok();
        let job: u32 = out.text().parse().unwrap();
        slotd.wait_state(job, "COMPLETED");
        slotd.output(job)
    };
    let own = seen("--propagate=NONE");
    assert!(!own.starts_with("123\n"), "{own}");
    let of_the_daemon = own.lines().next().unwrap().to_owned();
    assert_eq!(seen(""), "123\n0\n");
    assert_eq!(seen("--propagate"), "123\n0\n");
    assert_eq!(seen("--propagate=NOFILE").lines().next(), Some("123"));
    assert_eq!(seen("--propagate=CORE"), format!("{of_the_daemon}\n0\n"));
    let out = slotd.cmd("sbatch", &["--propagate=FILES", "--wrap", "true"]).fails(255);
    assert!(out.stderr.contains("Invalid --propagate specification: FILES"), "{}", out.stderr);
}

#[test]
fn script_is_in_the_job_directory_once_the_job_is_launched() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\necho held\n";
    let job = slotd.script(&["--hold"], script);
    assert!(!slotd.job_dir(job).exists());
    let printed = slotd.line(&format!("scontrol write batch_script {job} -")).ok();
    assert_eq!(printed.stdout, script);
    slotd.cmd("scontrol", &["release", &job.to_string()]).ok();
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(std::fs::read_to_string(slotd.job_dir(job).join("script.sh")).unwrap(), script);
    assert_eq!(slotd.output(job), "held\n");
    let names = std::fs::read_dir(slotd.job_dir(job))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap());
    // If the job ended immediately, its exit record describes it instead.
    let mut names: Vec<String> = names.filter(|name| name != "job.json").collect();
    names.sort_unstable();
    assert_eq!(names, ["exit_status", "runner.sh", "script.sh"]);
}

#[test]
fn umask_of_the_submitter_applies_to_output_files() {
    use std::os::unix::fs::PermissionsExt;
    let slotd = Slotd::start();
    let out = slotd.sh("umask 027; sbatch --parsable --wrap 'touch made'").ok();
    let job: u32 = out.text().parse().unwrap();
    slotd.wait_state(job, "COMPLETED");
    let mode =
        |name: &str| std::fs::metadata(slotd.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("made"), 0o640);
    assert_eq!(mode(&format!("slurm-{job}.out")), 0o640);
}

/// The process that watches a step also watches later ones, and writes slotd's own files.
#[test]
fn umask_of_a_job_applies_neither_to_slotds_files_nor_to_the_next_job() {
    use std::os::unix::fs::PermissionsExt;
    let slotd = Slotd::start();
    slotd.sh("umask 0777; srun -n1 true").ok();
    let mode =
        |path: std::path::PathBuf| std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    for _ in 0..3 {
        let out = slotd.sh("umask 0777; sbatch --parsable -o /dev/null --wrap true").ok();
        let job: u32 = out.text().parse().unwrap();
        slotd.wait_state(job, "COMPLETED");
        let dir = slotd.root.join(format!("lib/jobs/{job}"));
        assert_eq!(mode(dir.clone()), 0o700);
        for (file, expected) in [("script.sh", 0o700), ("runner.sh", 0o700), ("exit_status", 0o600)]
        {
            assert_eq!(mode(dir.join(file)), expected, "{file} of job {job}");
        }
    }
}

#[test]
fn large_output_is_complete() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&[], "head -c 20000000 /dev/zero | tr '\\0' x");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job).len(), 20_000_000);
}

/// Runs a job with this output pattern and checks that the file with this name has its output.
#[track_caller]
fn writes(slotd: &Slotd, args: &[&str], pattern: &str, file: impl Fn(u32) -> String) {
    let id = slotd.wrap(&[args, &["-o", pattern]].concat(), "echo here");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read(&file(id)), "here\n", "{pattern}");
}

#[test]
fn token_j_job_id() {
    writes(&Slotd::start(), &[], "x-%j", |id| format!("x-{id}"));
}

#[test]
fn token_big_a_array_job_id() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "3-4", "-o", "x-%A-%a"], "echo here");
    slotd.wait_array(id, 2);
    assert!(slotd.exists(&format!("x-{id}-3")) && slotd.exists(&format!("x-{id}-4")));
    // Without an array, it is the job's ID.
    writes(&slotd, &[], "y-%A", |id| format!("y-{id}"));
}

#[test]
fn token_a_array_task_id() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "3-4", "-o", "x-%a"], "echo here");
    slotd.wait_array(id, 2);
    assert!(slotd.exists("x-3") && slotd.exists("x-4"));
    // Without an array, it is Slurm's "no value".
    writes(&slotd, &[], "y-%a", |_| "y-4294967294".to_owned());
}

#[test]
fn token_x_job_name() {
    writes(&Slotd::start(), &["-J", "named"], "%x.out", |_| "named.out".to_owned());
}

#[test]
fn token_u_user_name() {
    let slotd = Slotd::start();
    let user = slotd.sh("id -un").ok();
    writes(&slotd, &[], "%u.out", |_| format!("{}.out", user.text()));
}

#[test]
fn token_big_n_hostname() {
    writes(&Slotd::start(), &[], "%N.out", |_| format!("{}.out", slotd_kit::host()));
}

#[test]
fn token_percent_literal() {
    writes(&Slotd::start(), &[], "100%%.%%j", |_| "100%.%j".to_owned());
}

#[test]
fn tokens_of_slurm_and_widths() {
    let slotd = Slotd::start();
    writes(&slotd, &[], "%J_%n_%t_%s", |id| format!("{id}_0_0_batch"));
    writes(&slotd, &[], "w-%5j", |id| format!("w-{id:05}"));
    let id = slotd.wrap(&["-a", "7", "-o", "%4a_%03A"], "echo here");
    slotd.wait_array(id, 1);
    assert!(slotd.exists(&format!("0007_{id:03}")));
}

#[test]
fn output_file_is_empty_at_the_start() {
    let slotd = Slotd::start();
    let id = slotd.begun(&[], "go", "true");
    assert_eq!(slotd.output(id), "");
    slotd.cancel(id);
}

#[test]
fn job_whose_files_cannot_be_opened_shows_why() {
    let slotd = Slotd::start();
    slotd.write("file", "");
    for (option, path) in [("-o", "file/out"), ("-e", "file/err"), ("-i", "missing")] {
        let id = slotd.wrap(&[option, path], "touch ran");
        let job = slotd.wait_state(id, "FAILED");
        assert_eq!((job.reason().as_str(), job.exit().as_str()), ("JobLaunchFailure", "0:53"));
        let why = slotd.show(id, "SystemComment");
        assert!(why.contains(path), "{why}");
        assert_eq!(slotd.sacct(id, "State,ExitCode"), "FAILED|0:53");
    }
    assert!(!slotd.exists("ran"));
}

#[test]
fn job_name_cannot_move_its_output_out_of_the_named_directory() {
    let slotd = Slotd::start();
    std::fs::create_dir(slotd.path("logs")).unwrap();
    let job = slotd.wrap(&["-J", "../out/side", "-o", "logs/%x.txt"], "echo here");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.read("logs/.._out_side.txt"), "here\n");
}
