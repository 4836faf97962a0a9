//! Invalid input is refused with a non-zero exit code and one error that names the offending value,
//! and it never leaves a job behind.

mod odd_places;
mod protocol;

use slotd_kit::{Out, Setup, Slotd};

/// Runs `sbatch` with these arguments and asserts that it fails with `code` and this text, and
/// submits no job.
#[track_caller]
fn refuses(slotd: &Slotd, args: &[&str], code: i32, text: &str) -> Out {
    let out = slotd.cmd("sbatch", args).fails(code);
    assert!(
        out.stderr.contains(text),
        "sbatch {args:?} should print {text:?}, but printed {:?}",
        out.stderr
    );
    assert_eq!(out.stdout, "", "sbatch {args:?}");
    assert!(slotd.all_records().is_empty(), "sbatch {args:?} submitted a job");
    out
}

#[test]
fn an_unknown_option_is_an_error() {
    let slotd = Slotd::start();
    let hint = "Try \"sbatch --help\" for more information\n";
    let out = refuses(&slotd, &["--nosuch", "--wrap", "true"], 255, "");
    assert_eq!(out.stderr, format!("sbatch: unrecognized option '--nosuch'\n{hint}"));
    let out = refuses(&slotd, &["-Y", "--wrap", "true"], 255, "");
    assert_eq!(out.stderr, format!("sbatch: invalid option -- 'Y'\n{hint}"));
    let out = refuses(&slotd, &["--wrap", "true", "--time"], 255, "");
    assert_eq!(out.stderr, format!("sbatch: option '--time' requires an argument\n{hint}"));
    let out = refuses(&slotd, &["--tim=5", "--wrap", "true"], 255, "");
    assert_eq!(
        out.stderr,
        format!(
            "sbatch: option '--tim=5' is ambiguous; possibilities: '--time' '--time-min'\n{hint}"
        )
    );
}

#[test]
fn an_unknown_option_of_any_other_command_is_an_error() {
    let slotd = Slotd::start();
    for (command, code) in [
        ("srun", 255),
        ("salloc", 255),
        ("squeue", 1),
        ("sacct", 1),
        ("sinfo", 1),
        ("scancel", 1),
        ("scontrol", 1),
    ] {
        let out = slotd.cmd(command, &["--nosuch", "true"]).fails(code);
        assert!(out.stderr.contains("--nosuch"), "{command}: {}", out.stderr);
        assert!(out.stderr.starts_with(&format!("{command}: ")), "{command}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn the_error_names_an_unknown_partition() {
    let slotd = Slotd::start();
    let out = refuses(&slotd, &["-p", "nopart", "--wrap", "true"], 1, "");
    assert_eq!(
        out.stderr,
        "sbatch: error: invalid partition specified: nopart\n\
         sbatch: error: Batch job submission failed: Invalid partition name specified\n  hint: partitions: cpu\n"
    );
    assert!(
        refuses(&slotd, &["-p", "cup", "--wrap", "true"], 1, "")
            .stderr
            .ends_with("\n  hint: did you mean cpu?\n")
    );
}

#[test]
fn there_is_no_gpu_partition_without_gpus() {
    let slotd = Slotd::start();
    let out =
        refuses(&slotd, &["-p", "gpu", "--wrap", "true"], 1, "invalid partition specified: gpu");
    let hint = "\n  hint: partition gpu exists only while the host has GPUs\n";
    assert!(out.stderr.ends_with(hint), "{}", out.stderr);
}

#[test]
fn the_error_of_a_malformed_value_names_its_option() {
    let slotd = Slotd::start();
    for (args, code, text) in [
        (["-t", "foo"], 255, "sbatch: error: Invalid --time specification"),
        (["-t", "1:2:3:4"], 255, "sbatch: error: Invalid --time specification"),
        (["-t", "1h"], 255, "sbatch: error: Invalid --time specification"),
        (["--mem", "abc"], 255, "sbatch: error: Invalid --mem specification"),
        (["--mem", "1.5G"], 255, "sbatch: error: Invalid --mem specification"),
        (["--mem", "-3"], 255, "sbatch: error: Invalid --mem specification"),
        (["-n", "0"], 1, "sbatch: error: Invalid numeric value \"0\" for --ntasks."),
        (["-n", "abc"], 1, "sbatch: error: Invalid numeric value \"abc\" for --ntasks."),
        (["-c", "0"], 1, "sbatch: error: Invalid numeric value \"0\" for --cpus-per-task."),
        (["-a", "1-"], 1, "Invalid job array specification"),
        (["-a", "x"], 1, "Invalid job array specification"),
        (["-a", "5-1"], 1, "Invalid job array specification"),
        (["-d", "nonsense"], 1, "Job dependency problem"),
        (["-d", "afterok:"], 1, "Job dependency problem"),
        (["-d", "afterok:x"], 1, "Job dependency problem"),
        (["--begin", "foo"], 255, "sbatch: error: Invalid --begin specification"),
        (["--signal", "FOO@10"], 255, "sbatch: error: Invalid --signal specification"),
        (["--open-mode", "x"], 255, "sbatch: error: Invalid --open-mode specification"),
        (["--mail-type", "FOO"], 255, "sbatch: error: Invalid --mail-type specification"),
        (["-C", "nofeature"], 1, "Invalid feature specification"),
        (["-w", "nonode"], 1, "Invalid node name specified"),
        (["-G", "many"], 1, "many"),
        (["--gres", "fpga:1"], 1, "Invalid generic resource (gres) specification"),
    ] {
        refuses(&slotd, &[args[0], args[1], "--wrap", "true"], code, text);
    }
}

#[test]
fn a_dependency_on_an_unknown_job_is_refused() {
    let slotd = Slotd::start();
    refuses(&slotd, &["-d", "afterok:4711", "--wrap", "true"], 1, "4711");
}

#[test]
fn the_error_names_a_missing_script() {
    let slotd = Slotd::start();
    let out = refuses(&slotd, &["nope.sh"], 1, "");
    assert_eq!(out.stderr, "sbatch: error: Unable to open file nope.sh\n");
}

#[test]
fn files_that_are_not_batch_scripts_are_refused() {
    let slotd = Slotd::start();
    slotd.write("empty.sh", "");
    slotd.write("noshebang.sh", "echo hello\n");
    slotd.write("dos.sh", "#!/bin/sh\r\necho hello\r\n");
    slotd.write("dir/file", "");
    let empty = "sbatch: error: Batch script is empty!\n";
    assert_eq!(refuses(&slotd, &["empty.sh"], 1, "").stderr, empty);
    let directory = "sbatch: error: Unable to open file dir: it is a directory\n";
    assert_eq!(refuses(&slotd, &["dir"], 1, "").stderr, directory);
    assert_eq!(refuses(&slotd, &[], 1, "").stderr, empty);
    assert_eq!(
        refuses(&slotd, &["noshebang.sh"], 1, "").stderr,
        "sbatch: error: This does not look like a batch script.  The first\n\
         sbatch: error: line must start with #! followed by the path to an interpreter.\n\
         sbatch: error: For instance: #!/bin/sh\n"
    );
    assert_eq!(
        refuses(&slotd, &["dos.sh"], 1, "").stderr,
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
         sbatch: error: instead of expected UNIX line breaks (\\n).\n"
    );
}

#[test]
fn a_script_together_with_wrap_is_refused() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\n");
    refuses(
        &slotd,
        &["--wrap", "true", "job.sh"],
        1,
        "Script arguments not permitted with --wrap option",
    );
}

#[test]
fn requests_for_more_than_the_host_has_are_refused_at_submission() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let processors = "More processors requested than permitted";
    let nodes = "Node count specification invalid";
    let unavailable = "Requested node configuration is not available";
    for (args, text) in [
        (["-c", "5"], processors),
        (["-n", "5"], processors),
        (["-N", "2"], nodes),
        (["--mem", "9G"], unavailable),
        (["--mem-per-cpu", "1T"], unavailable),
    ] {
        let text = format!("Batch job submission failed: {text}");
        refuses(&slotd, &[args[0], args[1], "--wrap", "true"], 1, &text);
    }
    for args in [["-G", "3"], ["--gres", "gpu:3"]] {
        refuses(
            &slotd,
            &[args[0], args[1], "--wrap", "true"],
            1,
            "3 GPUs requested, 2 on this host",
        );
    }
}

#[test]
fn gpus_are_refused_on_a_host_without_gpus() {
    let slotd = Slotd::start();
    refuses(
        &slotd,
        &["-G", "1", "--wrap", "true"],
        1,
        "Invalid generic resource (gres) specification",
    );
}

#[test]
fn memory_options_are_mutually_exclusive() {
    let slotd = Slotd::start();
    let out = refuses(&slotd, &["--mem", "100", "--mem-per-cpu", "50", "--wrap", "true"], 1, "");
    assert_eq!(
        out.stderr,
        "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n"
    );
}

#[test]
fn the_error_of_a_bad_directive_names_its_line() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\n#SBATCH -J fine\n#SBATCH --nosuch=1\necho\n");
    let out = refuses(&slotd, &["job.sh"], 255, "unrecognized option '--nosuch=1'");
    assert!(out.stderr.contains("line 3"), "{}", out.stderr);
    slotd.write("job.sh", "#!/bin/sh\n\n#SBATCH -t never\necho\n");
    let out = refuses(&slotd, &["job.sh"], 255, "Invalid --time specification");
    assert!(out.stderr.contains("line 3"), "{}", out.stderr);
}

#[test]
fn srun_and_salloc_refuse_invalid_input() {
    let slotd = Slotd::start();
    for (command, args, code, text) in [
        ("srun", vec!["-p", "nopart", "true"], 1, "invalid partition specified: nopart"),
        ("srun", vec!["-t", "foo", "true"], 255, "Invalid --time specification"),
        ("srun", vec!["-n", "0", "true"], 1, "Invalid numeric value \"0\" for --ntasks."),
        ("srun", vec!["-c", "99", "true"], 1, "More processors requested than permitted"),
        ("salloc", vec!["-p", "nopart", "true"], 1, "invalid partition specified: nopart"),
        ("salloc", vec!["--mem", "x", "true"], 255, "Invalid --mem specification"),
        ("salloc", vec!["-n", "99", "true"], 1, "Job submit/allocate failed: More processors"),
    ] {
        let out = slotd.cmd(command, &args).fails(code);
        assert!(out.stderr.contains(text), "{command} {args:?}: {}", out.stderr);
        assert!(
            out.stderr.starts_with(&format!("{command}: error: ")),
            "{command} {args:?}: {}",
            out.stderr
        );
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn srun_without_a_command_is_an_error() {
    let slotd = Slotd::start();
    let out = slotd.cmd::<&str>("srun", &[]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.starts_with("srun: "), "{}", out.stderr);
    assert!(slotd.all_records().is_empty());
}

#[test]
fn without_a_daemon_the_error_names_the_socket_and_how_to_start_it() {
    let slotd = Slotd::setup().prepare();
    let socket = slotd.root.join("run/slotd.sock");
    for (command, args) in [
        ("sbatch", vec!["--wrap", "true"]),
        ("srun", vec!["true"]),
        ("salloc", vec!["true"]),
        ("scancel", vec!["1"]),
        ("squeue", vec![]),
        ("sacct", vec![]),
        ("sinfo", vec![]),
        ("scontrol", vec!["show", "job", "1"]),
    ] {
        let out = slotd.cmd(command, &args).fails(1);
        assert!(
            out.stderr.starts_with(&format!("{command}: error: ")),
            "{command}: {}",
            out.stderr
        );
        assert!(out.stderr.contains(socket.to_str().unwrap()), "{command}: {}", out.stderr);
        assert!(out.stderr.contains("slotd daemon"), "{command}: {}", out.stderr);
        assert_eq!(out.stdout, "", "{command}");
    }
}

#[test]
fn a_stale_socket_is_reported_and_replaced() {
    let mut slotd = Slotd::start();
    slotd.kill9();
    let out = slotd.cmd("sbatch", &["--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("Connection refused"), "{}", out.stderr);
    assert!(out.stderr.contains("slotd.sock"), "{}", out.stderr);
    // The next daemon replaces the stale socket.
    slotd.start_daemon();
    let job = slotd.wrap(&[], "true");
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn the_daemon_refuses_invalid_settings() {
    for (name, value) in [
        ("SLOTD_GPU_COUNT", "many"),
        ("SLOTD_CPUS", "0"),
        ("SLOTD_KILL_WAIT", "-1"),
        ("SLOTD_LOG", "loud"),
        ("SLOTD_CPU_PARTITIONS", "a b"),
        ("SLOTD_BATCH_TASKS", "sometimes"),
    ] {
        let slotd = Setup::default().set(name, value).prepare();
        let mut daemon = slotd.daemon_command();
        daemon.env(name, value);
        let out = slotd.run(daemon).fails(78);
        assert!(out.stderr.contains(name) && out.stderr.contains(value), "{}", out.stderr);
    }
}

#[test]
fn slotd_refuses_unknown_subcommands_and_options() {
    let slotd = Slotd::setup().prepare();
    let out = slotd.cmd("slotd", &["dance"]).fails(2);
    assert!(out.stderr.contains("dance"), "{}", out.stderr);
    let out = slotd.cmd("slotd", &["daemon", "--fast"]).fails(2);
    assert!(out.stderr.contains("--fast"), "{}", out.stderr);
}

#[test]
fn incomplete_gpu_requests_are_refused_as_slurm_does() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let gres = "error: Invalid generic resource (gres) specification";
    let per_task = format!(
        "error: Failed to validate job spec. --gpus-per-task used without either --gpus or -n/--ntasks is not \
         allowed.\n{{}}: {gres}\n"
    );
    let per_gpu = format!(
        "error: Requested mem_per_tres=gres:gpu:100 but did not request any GPU.\n{{}}: {gres}\n"
    );
    slotd.write("job.sh", "#!/bin/sh\n");
    for (option, code, wanted) in [
        ("--gpus-per-task=1", 1, per_task.as_str()),
        ("--mem-per-gpu=100", 1, &per_gpu),
        ("--gpu-bind=x", 255, "error: Invalid --gpu-bind argument: gpu:x\n"),
    ] {
        for command in ["sbatch", "srun", "salloc"] {
            let out = slotd.cmd(command, &[option, "job.sh"]).fails(code);
            assert_eq!(
                out.stderr,
                format!("{command}: {}", wanted.replace("{}", command)),
                "{command} {option}"
            );
        }
    }
    for (command, text) in [
        ("sbatch", "Batch job submission failed"),
        ("srun", "Unable to allocate resources"),
        ("salloc", "Job submit/allocate failed"),
    ] {
        let out = slotd.cmd(command, &["--gres=", "job.sh"]).fails(1);
        let wanted =
            format!("{command}: error: {text}: Invalid Trackable RESource (TRES) specification\n");
        assert_eq!(out.stderr, wanted);
    }
    assert_eq!(slotd.line("squeue -h -t all").ok().stdout, "", "nothing was submitted");
    for words in [
        &["--gpus-per-task=1", "-n1"][..],
        &["--gpus-per-task=1", "--gpus=2"],
        &["--gpus-per-task=1", "--ntasks-per-node=2"],
        &["--gpus-per-task=0"],
        &["--mem-per-gpu=100", "--gpus=1"],
        &["--mem-per-gpu=100", "--gres=gpu:1"],
        &["--gpu-bind=closest"],
        &["--gres=none"],
    ] {
        slotd.wrap(&[&["-H"], words].concat(), "true");
    }
    slotd.expect(
        "sbatch --priority=-1 --wrap x",
        255,
        "",
        "sbatch: error: Priority must be >= 0\n",
    );
    // Generated scripts contain "None" if no value is set.
    let job = slotd.wrap(&["--priority=None", "--nice=None"], "true");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.show(job, "Nice"), "0");
    assert!(
        slotd
            .line("sbatch --gres=help job.sh")
            .ok()
            .stdout
            .starts_with("Valid gres options are:\ngpu[[:type]:count]\n")
    );
    assert!(
        slotd
            .line("sbatch --hint=help job.sh")
            .fails(1)
            .stdout
            .contains("compute_bound   use all cores in each socket\n")
    );
    slotd.line("srun --msg-timeout=5 true").ok();
}

#[test]
fn heterogeneous_jobs_are_refused_and_run_nothing() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\ntouch ran\n");
    slotd.write("het.sh", "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\ntouch ran\n");
    for line in [
        "sbatch -n1 : -n1 job.sh",
        "sbatch : job.sh",
        "sbatch het.sh",
        "srun touch ran : touch ran",
        "srun -n1 : -n1 touch ran",
        "srun touch ran :",
        "salloc -n1 : -n1 touch ran",
    ] {
        let out = slotd.line(line).fails(1);
        let wanted = "heterogeneous jobs need several hosts, but slotd has only one: ";
        assert!(
            out.stderr.contains(wanted) && out.stderr.contains(": error: "),
            "{line}: {}",
            out.stderr
        );
    }
    assert_eq!(slotd.line("squeue -h -t all").ok().stdout, "");
    assert!(!slotd.exists("ran"));
    // A colon in the arguments of a script is passed to the script.
    slotd.submit(&["job.sh", "a", ":", "b"]);
}
