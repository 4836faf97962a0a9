//! Options that real scripts use beyond the book's page, with Slurm's meaning, and the environment
//! of jobs.

use slotd_kit::Slotd;

#[test]
fn all_options_of_slurms_man_page_are_accepted() {
    let slotd = Slotd::start();
    for option in "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint \
         container contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot \
         dependency distribution error exclude exclusive export export-file extra-node-info get-user-env gid gpu-bind \
         gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input \
         job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu \
         mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu \
         ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe parsable partition power prefer \
         priority profile propagate qos quiet reboot requeue reservation signal sockets-per-node spread-job switches \
         test-only thread-spec threads-per-core time time-min tmp tres-per-task uid usage use-min-nodes verbose \
         version wait wait-all-nodes wckey wrap"
        .split_whitespace()
    {
        // The value may be invalid, but the name is valid.
        let out = slotd.cmd("sbatch", &["--test-only", "--wrap", "true", &format!("--{option}")]);
        let unknown = out.stderr.contains("unrecognized") || out.stderr.contains("ambiguous");
        assert!(!unknown, "{option}: {}", out.stderr);
    }
    for letter in "AabBcCdDeFGHhiJkLMmNnOopQqSstVvwWx".chars() {
        let out = slotd.cmd("sbatch", &["--test-only", "--wrap", "true", &format!("-{letter}")]);
        assert!(!out.stderr.contains("invalid option"), "{letter}: {}", out.stderr);
    }
}

#[test]
fn only_options_unknown_to_slurm_are_unrecognized() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["--nosuch", "--wrap", "true"]).fails(255);
    assert_eq!(
        out.stderr,
        "sbatch: unrecognized option '--nosuch'\nTry \"sbatch --help\" for more information\n"
    );
    let out = slotd.cmd("sbatch", &["-Y", "--wrap", "true"]).fails(255);
    assert_eq!(
        out.stderr,
        "sbatch: invalid option -- 'Y'\nTry \"sbatch --help\" for more information\n"
    );
    let out = slotd.cmd("sbatch", &["--reboot", "--wrap", "true"]).fails(255);
    assert!(
        out.stderr.starts_with("sbatch: error: --reboot is not supported by slotd: "),
        "{}",
        out.stderr
    );
}

#[test]
fn only_one_node_can_be_requested() {
    let slotd = Slotd::start();
    for nodes in ["-N1", "--nodes=1", "--nodes=1-4"] {
        slotd.wrap(&[nodes, "--hold"], "true");
    }
    let out = slotd.cmd("sbatch", &["-N", "2", "--wrap", "true"]).fails(1);
    let text = "sbatch: error: Batch job submission failed: Node count specification invalid\n";
    assert_eq!(out.stderr, format!("{text}  hint: slotd runs on one host: omit --nodes\n"));
}

#[test]
fn more_than_the_host_has_is_refused_with_slurms_error() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    for (option, value, said) in [
        ("-c", "5", "More processors requested than permitted"),
        ("-n", "5", "More processors requested than permitted"),
        ("--mem", "9G", "Requested node configuration is not available"),
        ("--mem-per-cpu", "9G", "Requested node configuration is not available"),
        ("-G", "2", "Requested node configuration is not available"),
        ("--gres", "gpu:2", "Requested node configuration is not available"),
        ("--gres", "tape:1", "Invalid generic resource (gres) specification"),
        ("-w", "elsewhere", "Invalid node name specified"),
        ("-p", "nowhere", "Invalid partition name specified"),
    ] {
        let out = slotd.cmd("sbatch", &[option, value, "--wrap", "true"]).fails(1);
        assert!(out.stderr.contains(said), "{option} {value}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn resources_in_all_of_slurms_spellings() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 4).start();
    for (options, tres) in [
        (&["--ntasks-per-node=2", "-c2"][..], (4, 512, 0)),
        (&["-n2", "--mem-per-cpu=100"], (2, 200, 0)),
        (&["--gres=gpu:2"], (1, 512, 2)),
        (&["--gres=gpu"], (1, 512, 1)),
        (&["--gpus-per-node=2", "--mem-per-gpu=100"], (1, 200, 2)),
        (&["--gpus-per-task=1", "-n3"], (3, 512, 3)),
        (&["--gpus=2", "--cpus-per-gpu=2"], (4, 512, 2)),
        (&["--mincpus=3"], (3, 512, 0)),
        (&["--mem=0"], (1, 8192, 0)),
    ] {
        let id = slotd.wrap(&[options, &["--hold"]].concat(), "true");
        assert_eq!(slotd.job(id).tres(), tres, "{options:?}");
    }
}

#[test]
fn options_without_effect_on_one_host_are_stored_and_shown() {
    let slotd = Slotd::setup().toml("[[qos]]\nname = \"fast\"\n").start();
    let options = [
        "-A",
        "acct",
        "--qos",
        "fast",
        "--comment",
        "note",
        "--mail-type=END,FAIL",
        "--mail-user=me@here",
    ];
    let more = ["--reservation=", "--licenses=", "--wckey=k", "--hold"];
    let id = slotd.wrap(&[&options[..], &more].concat(), "true");
    for (key, value) in [
        ("Account", "acct"),
        ("QOS", "fast"),
        ("Comment", "note"),
        ("MailUser", "me@here"),
        ("MailType", "END,FAIL"),
        ("WCKey", "k"),
    ] {
        assert_eq!(slotd.show(id, key), value, "{key}");
    }
}

#[test]
fn things_that_one_host_lacks_are_refused_by_name() {
    let slotd = Slotd::start();
    let node = "Invalid node name specified";
    for (option, detail, why) in [
        ("--reservation=r", "no such reservation: r", "Requested reservation is invalid"),
        (
            "--licenses=l:1",
            "no such license: l (slotd.toml configures none)",
            "Invalid license specification",
        ),
        ("--exclude=elsewhere", "no such node: elsewhere", node),
        ("--nodelist=elsewhere", "no such node: elsewhere", node),
    ] {
        let text =
            format!("sbatch: error: {detail}\nsbatch: error: Batch job submission failed: {why}\n");
        slotd.expect(&format!("sbatch {option} --wrap true"), 1, "", &text);
    }
    assert_eq!(slotd.cmd("squeue", &["-h"]).ok().stdout, "");
}

#[test]
fn other_clusters_are_refused_by_every_command() {
    let slotd = Slotd::start();
    let id = slotd.endless(&[]);
    let number = id.to_string();
    for (words, exit) in [
        (&["sbatch", "-M", "lab", "--wrap", "true"][..], 1),
        (&["salloc", "-M", "lab", "true"], 1),
        (&["srun", "--clusters=lab", "true"], 1),
        (&["scancel", "-M", "lab", &number], 1),
        (&["squeue", "-M", "lab"], 1),
        (&["sacct", "-M", "lab"], 1),
        (&["sinfo", "-M", "lab"], 1),
        (&["scontrol", "-M", "lab", "hold", &number], 1),
        (&["sprio", "-M", "lab"], 1),
        (&["sstat", "-M", "lab", &number], 1),
        (&["sdiag", "-M", "lab"], 1),
    ] {
        let out = slotd.cmd(words[0], &words[1..]).fails(exit);
        assert_eq!(out.stdout, "", "{words:?}");
        assert!(
            out.stderr.contains(": error: No cluster 'lab' known by database.\n"),
            "{words:?}: {}",
            out.stderr
        );
    }
    assert_eq!(slotd.state(id), "RUNNING");
    // As in Slurm, an unknown name does not stop the known ones.
    let out = slotd.cmd("srun", &["-M", "slotd,lab", "echo", "here"]).ok();
    assert_eq!(out.stdout, "here\n");
    assert_eq!(out.stderr, "srun: error: No cluster 'lab' known by database.\n");
    for cluster in ["slotd", "all"] {
        assert_ne!(slotd.cmd("squeue", &["-h", "-M", cluster]).ok().stdout, "");
    }
}

#[test]
fn invalid_value_for_an_option_without_effect_is_refused() {
    let slotd = Slotd::start();
    for (option, text, exit) in [
        ("--cpu-freq=foo", "Invalid --cpu-freq argument: foo", 255),
        ("--switches=foo", "Invalid numeric value \"foo\" for --switches.", 1),
        ("--switches=1@foo", "Invalid --switches specification: foo", 255),
        ("--tmp=foo", "Invalid --tmp specification: foo", 255),
        ("--core-spec=foo", "Invalid numeric value \"foo\" for --core-spec.", 1),
        ("--thread-spec=foo", "Invalid numeric value \"foo\" for --thread-spec.", 1),
        ("--hint=foo", "unrecognized --hint argument \"foo\", see --hint=help", 1),
        ("--distribution=foo", "Invalid --distribution specification: foo", 255),
        ("--extra-node-info=foo", "Invalid numeric value \"foo\" for first arg of -B.", 1),
    ] {
        let out = slotd.cmd("sbatch", &[option, "--wrap", "true"]).fails(exit);
        assert!(
            out.stderr.starts_with(&format!("sbatch: error: {text}\n")),
            "{option}: {}",
            out.stderr
        );
    }
    let good =
        ["--cpu-freq=low-high:Performance", "--switches=1@10:00", "--tmp=10G", "--core-spec=0"];
    slotd.wait_state(slotd.wrap(&good, "true"), "COMPLETED");
}

#[test]
fn hold_nice_and_priority() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "true");
    slotd.wait_reason(held, "JobHeldUser");
    assert_eq!(slotd.show(held, "Priority"), "0");
    let busy = slotd.endless(&["-c", "4"]);
    let nice = slotd.wrap(&["-c", "4", "--nice=1000"], "echo nice >> order");
    let first = slotd.wrap(&["-c", "4"], "echo first >> order");
    let urgent = slotd.wrap(&["-c", "4", "--priority=4000000000"], "echo urgent >> order");
    assert_eq!(slotd.show(nice, "Nice"), "1000");
    slotd.cancel(busy);
    for id in [nice, first, urgent] {
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.read("order"), "urgent\nfirst\nnice\n");
}

#[test]
fn node_list_can_only_name_this_host() {
    let slotd = Slotd::start();
    let host = slotd_kit::host();
    slotd.wait_state(slotd.wrap(&["-w", &host], "true"), "COMPLETED");
    let out = slotd.cmd("sbatch", &["-x", &host, "--wrap", "true"]).fails(1);
    assert!(out.stderr.contains("Requested node configuration is not available"), "{}", out.stderr);
}

#[test]
fn input_comes_from_a_file() {
    let slotd = Slotd::start();
    slotd.write("in", "what to read\n");
    assert_eq!(slotd.ran(&["-i", "in"], "cat"), "what to read\n");
    assert_eq!(slotd.ran(&[], "cat; readlink /proc/self/fd/0"), "/dev/null\n");
}

#[test]
fn job_that_cannot_end_by_its_deadline_is_cancelled() {
    let slotd = Slotd::start();
    let late = slotd.wrap(&["--deadline=now+10minutes", "-t", "20"], "touch ran");
    let job = slotd.wait_state(late, "CANCELLED");
    assert_eq!(job.reason(), "DeadLine");
    slotd.wait_state(slotd.wrap(&["--deadline=now+10minutes", "-t", "5"], "true"), "COMPLETED");
    assert!(!slotd.exists("ran"));
}

#[test]
fn deadline_in_the_past_or_before_the_begin_time_is_refused() {
    let slotd = Slotd::start();
    let limit = "Requested time limit is invalid (missing or exceeds some limit)";
    let order = "error: Incompatible begin and deadline time specification";
    for (line, why) in [
        (
            "sbatch --deadline=2020-01-01 --wrap true",
            format!("error: Batch job submission failed: {limit}"),
        ),
        ("srun --deadline=now-1hour true", format!("error: Unable to allocate resources: {limit}")),
        (
            "salloc --deadline=2020-01-01 true",
            format!("error: Job submit/allocate failed: {limit}"),
        ),
        ("sbatch --deadline=now --begin=now+1hour --wrap true", order.to_owned()),
    ] {
        let out = slotd.line(line).fails(1);
        assert!(out.stderr.contains(&why), "{line}: {}", out.stderr);
    }
    slotd.line("sbatch --deadline=now --begin=now --wrap true").ok();
}

#[test]
fn test_only_prints_the_start_and_submits_nothing() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["--test-only", "-n", "2", "--wrap", "true"]).ok();
    let said = out.stderr;
    assert!(out.stdout.is_empty() && said.starts_with("sbatch: Job 1 to start at "), "{said}");
    assert!(
        said.contains(" using 2 processors on nodes ") && said.ends_with(" in partition cpu\n"),
        "{said}"
    );
    let out = slotd.cmd("sbatch", &["--test-only", "-p", "nowhere", "--wrap", "true"]).fails(1);
    assert_eq!(
        out.stderr,
        "sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified\n  \
         hint: partitions: cpu\n"
    );
    assert!(slotd.all_records().is_empty());
}

#[test]
fn quiet_prints_nothing_and_verbose_the_given_options() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["-Q", "--parsable", "--wrap", "true"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    let out = slotd.cmd("sbatch", &["-v", "--wrap", "true"]).ok();
    assert!(out.stderr.contains("sbatch: wrap                : true\n"), "{}", out.stderr);
}

#[test]
fn script_gets_its_arguments() {
    let slotd = Slotd::start();
    slotd.write("job.sh", "#!/bin/sh\nfor word; do echo \"[$word]\"; done\n");
    let id = slotd.submit(&["job.sh", "a", "b c", "--wrap", "-n"]);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id), "[a]\n[b c]\n[--wrap]\n[-n]\n");
    let out = slotd.cmd("sbatch", &["--wrap", "true", "job.sh"]).fails(1);
    assert_eq!(out.stderr, "sbatch: error: Script arguments not permitted with --wrap option\n");
}

#[test]
fn script_can_come_from_standard_input() {
    let slotd = Slotd::start();
    let script = "#!/bin/sh\n#SBATCH -o out.%j\necho from stdin\n";
    for (args, name) in [(&["--parsable"][..], "sbatch"), (&["--parsable", "/dev/stdin"], "stdin")]
    {
        let mut command = slotd.command("sbatch");
        command.args(args);
        let id: u32 = slotd.feed(command, script).ok().text().parse().unwrap();
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.read(&format!("out.{id}")), "from stdin\n");
        assert_eq!(slotd.sacct(id, "JobName"), name);
    }
}

#[test]
fn invalid_scripts_print_slurms_errors() {
    let slotd = Slotd::start();
    slotd.write("empty", "");
    slotd.write("plain", "echo x\n");
    slotd.write("dos", "#!/bin/sh\r\necho x\r\n");
    for (script, said) in [
        ("missing", "sbatch: error: Unable to open file missing\n"),
        ("empty", "sbatch: error: Batch script is empty!\n"),
        (".", "sbatch: error: Unable to open file .: it is a directory\n"),
        ("plain", "sbatch: error: This does not look like a batch script.  The first\n"),
        ("dos", "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"),
    ] {
        let out = slotd.cmd("sbatch", &[script]).fails(1);
        assert!(out.stderr.starts_with(said), "{script}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

const RANK: &str = "echo rank $SLURM_PROCID of $SLURM_NTASKS";

/// Returns the lines that a script with this setting writes, in order, and how `show job` describes
/// it.
#[track_caller]
fn ranks(setting: Option<&str>, script: &str) -> (String, String) {
    let setup = Slotd::setup();
    let slotd = match setting {
        Some(value) => setup.set("SLOTD_BATCH_TASKS", value).start(),
        None => setup.start(),
    };
    let id = slotd.script(&[], script);
    slotd.wait_state(id, "COMPLETED");
    let mut lines: Vec<String> = slotd.output(id).lines().map(str::to_owned).collect();
    lines.sort();
    (lines.join(","), slotd.show(id, "BatchTasks"))
}

#[test]
fn script_with_n_tasks_runs_n_ranks() {
    let (lines, told) = ranks(None, &format!("#!/bin/sh\n#SBATCH -n 2\n{RANK}\n"));
    assert_eq!((lines.as_str(), told.as_str()), ("rank 0 of 2,rank 1 of 2", "ranks"));
}

#[test]
fn script_that_starts_its_own_steps_runs_once() {
    let (lines, told) = ranks(None, &format!("#!/bin/sh\n#SBATCH -n 2\n{RANK}\nsrun echo step\n"));
    assert_eq!((lines.as_str(), told.as_str()), ("rank 0 of 2,step,step", "once"));
}

#[test]
fn script_with_tasks_per_node_runs_once() {
    let (lines, told) = ranks(None, "#!/bin/sh\n#SBATCH --ntasks-per-node=2\necho alone\n");
    assert_eq!((lines.as_str(), told.as_str()), ("alone", "once"));
}

#[test]
fn slotd_batch_tasks_sets_it_for_a_host() {
    let script = format!("#!/bin/sh\n#SBATCH -n 2\n{RANK}\n");
    assert_eq!(ranks(Some("once"), &script), ("rank 0 of 2".to_owned(), "once".to_owned()));
    let script = format!("#!/bin/sh\n#SBATCH --ntasks-per-node=2\n{RANK}\n");
    assert_eq!(
        ranks(Some("ranks"), &script),
        ("rank 0 of 2,rank 1 of 2".to_owned(), "ranks".to_owned())
    );
}
