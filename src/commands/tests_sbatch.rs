//! Tests of sbatch's command line, one per option, against recorded Slurm and for slotd's own
//! options.

use crate::args::getopt::Grammar;
use crate::args::options::JobOpts;
use crate::args::origin::tests::lab;
use crate::args::table::{Options, Row};
use crate::args::{headings, variables};
use crate::commands::sbatch::{self, Sbatch, Text};
use crate::commands::{COMMANDS, changes};
use clap::Args;
use slotd_model::Timestamp;
use slotd_model::batch_tasks::ScriptTasks;
use slotd_model::placement::Placement;
use slotd_model::request::{MemRequest, OpenMode, Sharing, Switches, WarnSignal};
use slotd_render::fixture;
use std::ffi::OsString;
use std::io;

const JOB: &str = "#!/bin/sh\necho hello\n";

/// Parses a command line with this environment. The script is in `job.sh` and on standard input.
fn outcome(env: &[(&str, &str)], script: &str, words: &[&str]) -> (Option<Sbatch>, String, i32) {
    let argv: Vec<OsString> =
        std::iter::once("sbatch").chain(words.iter().copied()).map(OsString::from).collect();
    let read = |text: Text<'_>| match text {
        Text::Stdin | Text::Descriptor(3) => Ok(script.as_bytes().to_vec()),
        Text::File(path) if path.ends_with("job.sh") || path == "/dev/stdin" => {
            Ok(script.as_bytes().to_vec())
        }
        Text::File(path) if path == "/work/vars" => Ok(b"A=1\0B=x y\0".to_vec()),
        Text::File(path) if path == "/home" => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    match sbatch::parse(&argv, &lab(env), &read) {
        Ok(asked) => (Some(asked), String::new(), 0),
        Err(error) => (None, error.output.clone() + &error.text("sbatch"), error.exit),
    }
}

fn asked_with(env: &[(&str, &str)], script: &str, words: &[&str]) -> Sbatch {
    let (asked, text, exit) = outcome(env, script, words);
    asked.unwrap_or_else(|| panic!("{words:?}: exit {exit}: {text}"))
}

/// Returns the parsed command line, with `job.sh` as the script.
fn asked(words: &[&str]) -> Sbatch {
    let words: Vec<&str> = words.iter().copied().chain(["job.sh"]).collect();
    asked_with(&[], JOB, &words)
}

/// Returns Slurm's lines of a refusal, without the hints that follow them.
fn refused(words: &[&str]) -> (String, i32) {
    let (asked, text, exit) = outcome(&[], JOB, words);
    assert!(asked.is_none(), "{words:?} was accepted");
    (without_hints(&text), exit)
}

fn without_hints(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("  hint: ")).collect()
}

const TRY: &str = "Try \"sbatch --help\" for more information\n";

#[test]
fn refusals_print_slurms_errors() {
    let try_help = |text: &str| format!("{text}\n{TRY}");
    for (record, words, text, exit) in [
        ("A-13", &["--nosuch", "job.sh"][..], try_help("sbatch: unrecognized option '--nosuch'"), 255),
        ("A-14", &["-Y", "job.sh"], try_help("sbatch: invalid option -- 'Y'"), 255),
        ("A-15", &["--time"], try_help("sbatch: option '--time' requires an argument"), 255),
        (
            "A-16",
            &["--tim=5", "--wrap", "true"],
            try_help("sbatch: option '--tim=5' is ambiguous; possibilities: '--time' '--time-min'"),
            255,
        ),
        ("A-17", &["nope.sh"], "sbatch: error: Unable to open file nope.sh\n".into(), 1),
        ("A-18", &["/home"], "sbatch: error: Unable to open file /home: it is a directory\n".into(), 1),
        (
            "A-24",
            &["--wrap", "true", "job.sh"],
            "sbatch: error: Script arguments not permitted with --wrap option\n".into(),
            1,
        ),
        (
            "A-42",
            &["-n", "0", "--wrap", "true"],
            "sbatch: error: Invalid numeric value \"0\" for --ntasks.\n".into(),
            1,
        ),
        ("A-43", &["-n", "abc", "job.sh"], "sbatch: error: Invalid numeric value \"abc\" for --ntasks.\n".into(), 1),
        ("A-44", &["-c0", "job.sh"], "sbatch: error: Invalid numeric value \"0\" for --cpus-per-task.\n".into(), 1),
        (
            "A-45",
            &["-N", "0", "job.sh"],
            "sbatch: error: Batch job submission failed: Node count specification invalid: 0\n".into(),
            1,
        ),
        ("A-46", &["-N", "1-x", "job.sh"], "sbatch: error: \"x\" is not a valid node count\n".into(), 255),
        ("A-47", &["-t", "foo", "job.sh"], "sbatch: error: Invalid --time specification: foo\n".into(), 255),
        ("A-69", &["-t", "1h", "job.sh"], "sbatch: error: Invalid --time specification: 1h\n".into(), 255),
        ("A-72", &["--mem=abc", "job.sh"], "sbatch: error: Invalid --mem specification: abc\n".into(), 255),
        ("A-88", &["--mem=-3", "job.sh"], "sbatch: error: Invalid --mem specification: -3\n".into(), 255),
        (
            "A-91",
            &["--mem=100", "--mem-per-cpu=50", "job.sh"],
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n".into(),
            1,
        ),
        (
            "A-101",
            &["--mail-type=FOO", "job.sh"],
            "sbatch: error: Invalid --mail-type specification: FOO\n".into(),
            255,
        ),
        (
            "A-104",
            &["--nice=-5", "job.sh"],
            "sbatch: error: Batch job submission failed: Invalid --nice value: -5\n".into(),
            1,
        ),
        ("A-105", &["--uid=root", "job.sh"], "sbatch: error: --uid only permitted by root user\n".into(), 255),
        (
            "A-106",
            &["--signal=FOO@10", "job.sh"],
            "sbatch: error: Invalid --signal specification: FOO@10\n".into(),
            255,
        ),
        ("A-107", &["--open-mode=x", "job.sh"], "sbatch: error: Invalid --open-mode specification: x\n".into(), 255),
        ("A-108", &["--begin=foo", "job.sh"], "sbatch: error: Invalid --begin specification: foo\n".into(), 255),
        (
            "A-110",
            &["--exclusive=foo", "job.sh"],
            "sbatch: error: Invalid --exclusive specification: foo\n".into(),
            255,
        ),
        (
            "C-15",
            &["--array=abc", "job.sh"],
            "sbatch: error: Batch job submission failed: Invalid job array specification: abc\n".into(),
            1,
        ),
        (
            "D-01",
            &["-d", "foo:1", "job.sh"],
            "sbatch: error: Batch job submission failed: Job dependency problem: foo:1\n".into(),
            1,
        ),
        (
            "M-16",
            &["--gres=foo:1", "job.sh"],
            "sbatch: error: Invalid generic resource (gres) specification: foo:1\n".into(),
            1,
        ),
        (
            "an empty partition",
            &["--partition=", "job.sh"],
            "sbatch: error: invalid partition specified: (null)\n\
             sbatch: error: Batch job submission failed: Invalid partition name specified\n"
                .into(),
            1,
        ),
        (
            "an option of many hosts",
            &["--cluster-constraint=x", "job.sh"],
            "sbatch: error: --cluster-constraint is not supported by slotd: there are no other clusters\n".into(),
            255,
        ),
    ] {
        assert_eq!(refused(words), (text, exit), "{record}: {words:?}");
    }
}

#[test]
fn invalid_value_prints_the_valid_forms_and_the_nearest_name() {
    for (words, hint) in [
        (&["-t", "1h", "job.sh"][..], "did you mean 1:00:00?"),
        (&["--mem=1.5G", "job.sh"], "a whole number of megabytes"),
        (&["--begin=tomorow", "job.sh"], "did you mean tomorrow?"),
        (&["--deadline=x", "job.sh"], "now+2hours, 16:00"),
        (&["--signal=B:USR3@10", "job.sh"], "did you mean USR1?"),
        (&["-d", "aftrok:1", "job.sh"], "did you mean afterok?"),
        (&["--array=1-a", "job.sh"], "0-7, 1,3,5-9:2"),
        (&["--tiem=5", "job.sh"], "did you mean --time?"),
        (&["--propagate=FOO", "job.sh"], "AS, CORE, CPU"),
        (&["--propagate=NOFILES", "job.sh"], "did you mean NOFILE?"),
        (&["--exclusive=usr", "job.sh"], "did you mean user?"),
        (&["--mail-type=BEGIN,ed", "job.sh"], "NONE, BEGIN, END, FAIL"),
        (&["--mail-type=fial", "job.sh"], "did you mean FAIL?"),
        (&["--mail-user=me\nBcc: you", "job.sh"], "addresses without blanks"),
        (&["--kill-on-invalid-dep=maybe", "job.sh"], "yes or no"),
        (&["-C", "fast&", "job.sh"], "features joined by & (all) or | (any)"),
        (&["--open-mode=apend", "job.sh"], "append or truncate; did you mean append?"),
        (&["nope", "hello"], "sbatch --wrap 'nope hello'"),
    ] {
        let (_, text, _) = outcome(&[], JOB, words);
        let line = text.lines().find_map(|line| line.strip_prefix("  hint: "));
        assert!(line.is_some_and(|line| line.contains(hint)), "{words:?}: {text}");
        assert!(text.starts_with("sbatch: "), "Slurm's line comes first: {text}");
    }
    // A missing script is not mistaken for a command.
    assert_eq!(outcome(&[], JOB, &["nope.sh"]).1, "sbatch: error: Unable to open file nope.sh\n");
}

#[test]
fn program_instead_of_script_suggests_wrap() {
    let argv = ["sbatch", "echo", "hello"].map(OsString::from);
    let read = |text: Text<'_>| match text {
        Text::File(path) if path == "/bin/echo" => Ok(b"\x7fELF\x02".to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let error = sbatch::parse(&argv, &lab(&[("PATH", "/bin")]), &read).expect_err("no script");
    let text = error.text("sbatch");
    assert!(text.starts_with("sbatch: error: This does not look like a batch script."), "{text}");
    assert!(
        text.ends_with(
            "  hint: to run a command instead of a script: sbatch --wrap 'echo hello'\n"
        ),
        "{text}"
    );
}

#[test]
fn hint_for_misplaced_wrap_does_not_suggest_wrap() {
    for words in [&["./nofile.sh", "--wrap", "x"][..], &["nofile.sh", "--wrap=x"]] {
        let text = outcome(&[], JOB, words).1;
        assert!(
            text.contains("options come before the script") && !text.contains("sbatch --wrap"),
            "{text}"
        );
    }
}

#[test]
fn flag_variable_counts_even_if_empty() {
    let request = |env: &[(&str, &str)]| asked_with(env, JOB, &["job.sh"]).request;
    assert_eq!(request(&[("SBATCH_EXCLUSIVE", "")]).sharing, Sharing::Exclusive);
    assert_eq!(request(&[]).sharing, Sharing::Default);
    assert!(
        request(&[("SBATCH_REQUEUE", "")]).requeue
            && request(&[("SBATCH_NO_REQUEUE", "")]).no_requeue
    );
    assert!(request(&[("SBATCH_OVERCOMMIT", "")]).overcommit);
    assert!(asked_with(&[("SBATCH_WAIT", "")], JOB, &["job.sh"]).wait);
    // Empty values and counts are ignored.
    let got = asked_with(&[("SBATCH_PARTITION", ""), ("SBATCH_DEBUG", "")], JOB, &["job.sh"]);
    assert_eq!((got.request.partition, got.job.common.verbose), (None, 0));
}

#[test]
fn help_lists_options_with_an_effect_separately() {
    let without_effect = |command: &str| {
        let entry = COMMANDS.iter().find(|entry| entry.name() == command).expect("a command");
        let help = entry.definition().render_help().to_string();
        help.split_once("Accepted for compatibility, without effect:")
            .map(|(_, options)| options.to_owned())
            .unwrap_or_default()
    };
    for (command, option) in
        [("sbatch", "--overcommit"), ("salloc", "--overcommit"), ("srun", "--relative")]
    {
        assert!(!without_effect(command).contains(option), "{command} {option}");
    }
    assert!(without_effect("sbatch").contains("--core-spec"));
    assert!(asked(&["-O", "-n", "64"]).request.overcommit);
}

#[test]
fn invalid_scripts_print_slurms_errors() {
    for (record, script, text) in [
        ("A-10", "", "sbatch: error: Batch script is empty!\n"),
        (
            "A-19",
            "echo hello\n",
            "sbatch: error: This does not look like a batch script.  The first\n\
             sbatch: error: line must start with #! followed by the path to an interpreter.\n\
             sbatch: error: For instance: #!/bin/sh\n",
        ),
        (
            "A-21",
            "#!/bin/sh\r\necho\r\n",
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
             sbatch: error: instead of expected UNIX line breaks (\\n).\n",
        ),
    ] {
        for words in [&["job.sh"][..], &[]] {
            let (_, found, exit) = outcome(&[], script, words);
            assert_eq!((found.as_str(), exit), (text, 1), "{record}");
        }
    }
}

#[test]
fn directive_error_includes_the_line_number() {
    for (directive, text, exit) in [
        (
            "#SBATCH --nosuch=1",
            format!("sbatch: error: line 3: unrecognized option '--nosuch=1'\n{TRY}"),
            255,
        ),
        (
            "#SBATCH --time=1h",
            "sbatch: error: line 3: Invalid --time specification: 1h\n".into(),
            255,
        ),
        (
            "#SBATCH -n None",
            "sbatch: error: line 3: Invalid numeric value \"None\" for --ntasks.\n".into(),
            1,
        ),
        (
            "#SBATCH -n 4 tasks",
            "sbatch: error: line 3: Invalid directive found in batch script: tasks\n\
             It is not an option. A comment begins with #.\n"
                .into(),
            255,
        ),
        ("#SBATCH -J 'x", "sbatch: error: line 3: unmatched ' in: #SBATCH -J 'x\n".into(), 1),
    ] {
        let script = format!("#!/bin/sh\n# comment\n{directive}\ntrue\n");
        let (_, found, code) = outcome(&[], &script, &["job.sh"]);
        assert_eq!((without_hints(&found), code), (text, exit), "{directive}");
    }
}

#[test]
fn environment_error_includes_the_variable() {
    let (_, text, exit) = outcome(&[("SBATCH_TIMELIMIT", "1h")], JOB, &["job.sh"]);
    assert_eq!(
        (without_hints(&text).as_str(), exit),
        ("sbatch: error: SBATCH_TIMELIMIT: Invalid --time specification: 1h\n", 255)
    );
}

#[test]
fn directives_accept_all_of_slurms_forms() {
    let script = "#!/bin/bash\n\n# a comment\n#SBATCH -N1\n#SBATCH --job-name            padded\n#SBATCH\t--ntasks=2\n\
        #SBATCH --comment \"two words\" -t 5 # trailing\n#SBATCH --parsable            \n#SBATCH --requeue=\n\
        #SBATCH --time-min='3'\necho\n#SBATCH -J late\n";
    let got = asked_with(&[], script, &["job.sh"]);
    assert_eq!(got.request.name, "padded");
    assert_eq!(got.request.nodes, Some((1, 1).into()));
    assert_eq!(got.request.ntasks, Some(2));
    assert_eq!(got.request.comment.as_deref(), Some("two words"));
    assert_eq!(got.request.time_limit_secs, Some(300));
    assert_eq!(got.request.time_min_secs, Some(180));
    assert!(got.parsable && got.request.requeue);
}

#[test]
fn command_line_overrides_environment_overrides_script() {
    let script = "#!/bin/sh\n#SBATCH -J script -t 1 -p cpu --mem=1G\n";
    let env =
        [("SBATCH_JOB_NAME", "fromenv"), ("SBATCH_TIMELIMIT", "7"), ("SBATCH_PARTITION", "gpu")];
    let got = asked_with(&env, script, &["-J", "cli", "--mem-per-cpu=100", "job.sh"]);
    assert_eq!(got.request.name, "cli");
    assert_eq!(got.request.time_limit_secs, Some(420));
    assert_eq!(got.request.partition.as_deref(), Some("gpu"));
    assert_eq!(got.request.mem, MemRequest::PerCpu(100));
    let got = asked_with(&[], script, &["job.sh"]);
    assert_eq!((got.request.name.as_str(), got.request.mem), ("script", MemRequest::PerNode(1024)));
}

#[test]
fn last_of_two_opposite_options_wins() {
    let got = asked(&["--requeue", "--no-requeue"]);
    assert!(!got.request.requeue && got.request.no_requeue);
    let got = asked(&["--no-requeue", "--requeue"]);
    assert!(got.request.requeue && !got.request.no_requeue);
    let script = "#!/bin/sh\n#SBATCH --no-requeue\n";
    assert!(asked_with(&[("SBATCH_REQUEUE", "1")], script, &["job.sh"]).request.requeue);
    assert_eq!(asked(&["--exclusive", "-s"]).request.sharing, Sharing::Oversubscribe);
    assert_eq!(asked(&["-s", "--exclusive"]).request.sharing, Sharing::Exclusive);
    assert_eq!(asked(&["-t1", "-t", "2"]).request.time_limit_secs, Some(120));
}

#[test]
fn operands_after_the_script_are_its_arguments() {
    let got = asked_with(&[], JOB, &["-n2", "job.sh", "-n", "9", "b c", "--"]);
    assert_eq!(got.request.args, ["-n", "9", "b c", "--"]);
    assert_eq!(got.request.ntasks, Some(2));
    assert_eq!(got.request.command.as_deref(), Some("/work/job.sh"));
    assert_eq!(got.request.submit_line, "sbatch -n2 job.sh -n 9 'b c' --");
}

#[test]
fn default_job_name_is_the_script_or_its_source() {
    assert_eq!(asked(&[]).request.name, "job.sh");
    assert_eq!(asked_with(&[], JOB, &["sub/job.sh"]).request.name, "job.sh");
    assert_eq!(asked_with(&[], JOB, &[]).request.name, "sbatch");
    assert_eq!(asked_with(&[], JOB, &["--wrap=true"]).request.name, "wrap");
    assert_eq!(asked_with(&[], JOB, &["/dev/stdin"]).request.name, "stdin");
}

#[test]
fn script_is_also_found_in_path() {
    assert_eq!(
        asked_with(&[("PATH", "rel:/opt/bin")], JOB, &["job.sh"]).request.command.as_deref(),
        Some("/work/job.sh")
    );
}

#[test]
fn script_on_standard_input_has_no_path() {
    assert_eq!(asked_with(&[], JOB, &[]).request.command, None);
    let named = asked_with(&[], JOB, &["/dev/stdin"]).request.command;
    assert_eq!(named.as_deref(), Some("/dev/stdin"));
}

#[test]
fn verbose_and_quiet_exclude_each_other() {
    let error = "sbatch: error: don't specify both --verbose (-v) and --quiet (-Q)\n".to_owned();
    assert_eq!(refused(&["-Q", "-v", "job.sh"]), (error, 1));
}

// Single options

#[test]
fn option_wrap() {
    let got = asked_with(&[], JOB, &["--wrap", "echo w; echo $0"]);
    assert!(got.request.wrapped && got.request.command.is_none());
    let script = String::from_utf8(got.texts.script).expect("UTF-8");
    assert_eq!(script.lines().nth(3), Some("echo w; echo $0"));
    assert!(asked_with(&[], JOB, &["--wrap", ""]).request.wrapped);
    let calls = asked_with(&[], JOB, &["--wrap", "srun -n2 hostname"]).request.script_tasks;
    assert_eq!(calls, ScriptTasks::Calls("srun".to_owned()));
}

#[test]
fn option_job_name() {
    for words in
        [&["-J", "x"][..], &["-Jx"], &["--job-name=x"], &["--job-name", "x"], &["--job-n=x"]]
    {
        assert_eq!(asked(words).request.name, "x");
    }
}

#[test]
fn option_partition() {
    assert_eq!(asked(&["-p", "cpu,gpu"]).request.partition.as_deref(), Some("cpu,gpu"));
}

#[test]
fn option_cpus_per_task() {
    assert_eq!(asked(&["-c4"]).request.cpus_per_task, Some(4));
}

#[test]
fn option_ntasks() {
    assert_eq!(asked(&["--ntasks", "3"]).request.ntasks, Some(3));
}

#[test]
fn option_mem() {
    assert_eq!(asked(&["--mem", "8G"]).request.mem, MemRequest::PerNode(8192));
    assert_eq!(asked(&["--mem=4GB"]).request.mem, MemRequest::PerNode(4096));
    assert_eq!(asked(&["--mem-per-gpu=1g", "-G1"]).request.mem, MemRequest::PerGpu(1024));
    assert_eq!(asked(&[]).request.mem, MemRequest::Default);
}

#[test]
fn option_time() {
    assert_eq!(asked(&["-t", "00:05:00"]).request.time_limit_secs, Some(300));
    assert_eq!(asked(&["-t", "UNLIMITED"]).request.time_limit_secs, None);
    assert_eq!(asked(&["-t", "0:600"]).request.time_limit_secs, Some(600));
}

#[test]
fn option_gpus() {
    let gpu = asked(&["-G", "2"]).request.gpu;
    assert_eq!((gpu.total, gpu.as_gres(2)), (Some(2), "gres:gpu:2".to_owned()));
    let gpu = asked(&["--gres=gpu:a100:2"]).request.gpu;
    assert_eq!((gpu.per_node, gpu.model.as_deref()), (Some(2), Some("a100")));
    assert_eq!(asked(&["--gres=gpu"]).request.gpu.per_node, Some(1));
    assert_eq!(asked(&["--gres=none"]).request.gpu.per_node, Some(0));
    assert_eq!(asked(&["--gres=gpu:3", "--gpus-per-node=2"]).request.gpu.per_node, Some(2));
    assert_eq!(asked(&["--gpus-per-task=1", "-n2"]).request.gpu.per_task, Some(1));
    assert_eq!(asked(&["--tres-per-task=cpu:2,gres/gpu:1"]).request.gpu.per_task, Some(1));
    assert_eq!(asked(&["--ntasks-per-gpu=2", "-G2"]).request.ntasks, Some(4));
    assert_eq!(asked(&["--ntasks-per-gpu=2", "-n3"]).request.gpu.total, Some(2));
}

#[test]
fn option_output_and_error() {
    let got = asked(&["-o", "a_%j", "-e", "b", "-i", "c"]).request;
    assert_eq!(
        (got.std_out.as_deref(), got.std_err.as_deref(), got.std_in.as_deref()),
        (Some("a_%j"), Some("b"), Some("c"))
    );
}

#[test]
fn option_chdir() {
    assert_eq!(asked(&["-D", "sub"]).request.work_dir, "/work/sub");
    assert_eq!(asked(&["--chdir=/tmp"]).request.work_dir, "/tmp");
    assert_eq!(asked(&[]).request.work_dir, "/work");
}

#[test]
fn option_constraint() {
    assert_eq!(
        asked(&["-C", "a&b"]).request.constraint.map(|c| c.to_string()),
        Some("a&b".to_owned())
    );
}

#[test]
fn options_prefer_and_contiguous() {
    let got = asked(&["--prefer=a|b", "--contiguous"]).request;
    assert_eq!((got.prefer.map(|c| c.to_string()).as_deref(), got.contiguous), (Some("a|b"), true));
    let none = asked(&["--prefer="]).request;
    assert_eq!((none.prefer, none.contiguous), (None, false));
}

#[test]
fn option_dependency() {
    assert_eq!(asked(&["-d", "afterok:1:2"]).request.dependency.terms.len(), 2);
    assert!(asked(&["--dependency="]).request.dependency.is_empty());
}

#[test]
fn option_array() {
    assert_eq!(
        asked(&["-a", "0-31%4"]).request.array.map(|a| a.to_string()).as_deref(),
        Some("0-31%4")
    );
    assert_eq!(asked(&["--array="]).request.array, None);
}

#[test]
fn option_export() {
    let got = asked_with(&[("X", "1")], JOB, &["--export", "FOO=bar,HELLO=world", "job.sh"]);
    let env = String::from_utf8(got.texts.env).expect("UTF-8");
    assert!(env.contains("FOO=bar\0") && env.contains("HELLO=world\0") && !env.contains("X=1"));
    let got = asked_with(&[("X", "1")], JOB, &["job.sh"]);
    assert_eq!(got.texts.env, b"X=1\0");
    assert!(got.request.export.all);
}

#[test]
fn option_export_file() {
    let got = asked_with(&[("A", "0")], JOB, &["--export-file=vars", "job.sh"]);
    assert_eq!(got.texts.env, b"A=1\0B=x y\0");
    let (text, exit) = refused(&["--export-file=nope", "job.sh"]);
    assert!(
        text.starts_with("sbatch: error: Unable to read --export-file nope: ") && exit == 1,
        "{text}"
    );
}

#[test]
fn option_open_mode() {
    assert_eq!(asked(&["--open-mode=append"]).request.open_mode, Some(OpenMode::Append));
    assert_eq!(asked(&["--open-mode", "truncate"]).request.open_mode, Some(OpenMode::Truncate));
}

#[test]
fn option_signal() {
    let expected = WarnSignal { signal: 10, before_secs: 55, batch_only: true };
    assert_eq!(asked(&["--signal=B:USR1@55"]).request.signal, Some(expected));
}

#[test]
fn option_begin() {
    let now = lab(&[]).now;
    assert_eq!(asked(&["--begin", "now+00:10:00"]).request.begin, Some(now.plus_secs(600)));
    assert_eq!(
        asked(&["-b", "2030-01-02"]).request.begin,
        Some(Timestamp::from_secs(1_893_542_400))
    );
}

#[test]
fn option_exclusive() {
    assert_eq!(asked(&["--exclusive"]).request.sharing, Sharing::Exclusive);
    assert_eq!(asked(&["--exclusive=user"]).request.sharing, Sharing::User);
    assert_eq!(asked(&["--exclusive=mcs"]).request.sharing, Sharing::Mcs);
    assert_eq!(asked(&["--exclusive=no"]).request.sharing, Sharing::Default);
}

#[test]
fn option_requeue() {
    assert!(asked(&["--requeue"]).request.requeue);
}

#[test]
fn option_parsable_and_wait() {
    let got = asked(&["--parsable", "-W", "-M", "all"]);
    assert!(got.parsable && got.wait);
    assert_eq!(got.job.clusters, Some(Some("slotd")));
}

#[test]
fn rare_options_keep_slurms_meaning() {
    let got = asked(&[
        "-H",
        "--nice",
        "--priority=99",
        "--comment=c",
        "--mail-type=END,fail",
        "--mail-user=me",
        "-A",
        "acct",
        "-q",
        "normal",
        "--kill-on-invalid-dep=yes",
        "-w",
        "vm",
        "-x",
        "n[1-2]",
        "--ntasks-per-node=2",
        "--wckey=k",
        "--reservation=r",
        "-L",
        "lic:1",
        "--deadline=now+1hour",
        "--cpus-per-gpu=3",
        "--mincpus=2",
    ])
    .request;
    assert!(got.hold && got.kill_on_invalid_dep == Some(true));
    assert_eq!((got.nice, got.priority), (100, Some(99)));
    assert_eq!((got.comment.as_deref(), got.mail_user.as_deref()), (Some("c"), Some("me")));
    assert_eq!((got.account.as_deref(), got.qos.as_deref()), (Some("acct"), Some("normal")));
    assert_eq!(
        (got.nodelist.to_string(), got.exclude.to_string()),
        ("vm".to_owned(), "n[1-2]".to_owned())
    );
    assert_eq!(
        (got.ntasks_per_node, got.mincpus, got.gpu.cpus_per_gpu),
        (Some(2), Some(2), Some(3))
    );
    assert_eq!(got.deadline, Some(lab(&[]).now.plus_secs(3600)));
    assert!(asked(&["--priority=0"]).request.hold);
    assert_eq!(asked(&["--nice=5"]).request.nice, 5);
}

#[test]
fn options_without_effect_on_one_host_are_accepted() {
    asked(&[
        "--get-user-env=L",
        "--get-user-env",
        "--propagate",
        "-k",
        "-O",
        "--acctg-freq=30",
        "--gres-flags=enforce-binding",
        "--ignore-pbs",
        "--container=/x",
        "--core-spec=1",
        "--bb=x",
        "--power=x",
        "--spread-job",
        "--gpu-freq=memory=high",
        "--wait-all-nodes=1",
    ]);
}

#[test]
fn help_on_values_needs_no_script() {
    for word in ["--gres=help", "--gres=LIST"] {
        let (asked, text, exit) = outcome(&[], "", &[word]);
        assert!(asked.is_none() && exit == 0, "{word}: {exit}: {text}");
        assert!(
            text.starts_with("Valid gres options are:\ngpu[[:type]:count]\n"),
            "{word}: {text}"
        );
    }
    let (_, text, exit) = outcome(&[], "", &["--hint=help"]);
    assert!(text.starts_with("Application hint options:\n") && exit == 1, "{exit}: {text}");
    let (_, text, _) = outcome(&[], "", &["--gres=gpu:1"]);
    assert_eq!(without_hints(&text), "sbatch: error: Batch script is empty!\n");
}

#[test]
fn options_that_are_only_shown_keep_their_values() {
    let got = asked(&[
        "--switches=2@1:30",
        "--tmp=1G",
        "--gpu-bind=single:2",
        "--profile=task,energy",
        "--network=x",
        "--delay-boot=5",
    ]);
    let request = &got.request;
    assert_eq!(request.switches, Some(Switches { count: 2, wait_secs: 90 }));
    assert_eq!((request.tmp_disk_mb, request.delay_boot_secs), (Some(1024), Some(300)));
    assert_eq!(request.profile.as_deref(), Some("Energy,Task"));
    assert_eq!(request.network.as_deref(), Some("x"));
    let bind = request.gpu_bind.as_ref().map(ToString::to_string);
    assert_eq!(bind.as_deref(), Some("single:2"));
    let env = String::from_utf8(got.texts.env).unwrap();
    for variable in ["SLURM_GPU_BIND=single:2", "SLURM_PROFILE=Energy,Task"] {
        assert!(env.split('\0').any(|pair| pair == variable), "{variable}");
    }
    // The default time, a time that is reduced to the maximum, and no limit.
    let switches = |word| asked(&[word]).request.switches;
    let most = Some(Switches { count: 1, wait_secs: 300 });
    assert_eq!([switches("--switches=1"), switches("--switches=1@1:00:00")], [most; 2]);
    assert_eq!(switches("--switches=0"), None);
    let none = asked(&["--profile=none"]);
    assert_eq!(none.request.profile.as_deref(), Some("None"));
    assert!(!String::from_utf8(none.texts.env).unwrap().contains("SLURM_PROFILE"));
}

#[test]
fn invalid_values_of_options_without_effect_are_refused() {
    for (word, says) in [
        ("--gres-flags=foo", "Invalid --gres-flags specification: foo"),
        ("--acctg-freq=foo", "Invalid --acctg-freq specification: foo"),
        ("--delay-boot=foo", "Invalid --delay-boot specification: foo"),
        ("--gpu-freq=foo", "Invalid --gpu-freq argument: foo"),
        ("--wait-all-nodes=2", "Invalid --wait-all-nodes specification: 2"),
    ] {
        let (text, exit) = refused(&[word]);
        assert!(text.contains(says) && exit == 255, "{word}: {exit}: {text}");
    }
}

#[test]
fn task_layout_options_are_parsed() {
    let of = |words: &[&str]| asked(words).request.placement;
    assert_eq!(of(&[]), Placement::default());
    let shape = of(&["-B", "1-2:4:*", "--ntasks-per-core=1", "--ntasks-per-socket=3"]);
    assert_eq!(
        (shape.sockets_per_node, shape.cores_per_socket, shape.threads_per_core),
        (Some(1), Some(4), None)
    );
    assert_eq!((shape.ntasks_per_core, shape.ntasks_per_socket), (Some(1), Some(3)));
    assert_eq!(of(&["--hint=nomultithread"]).threads(), Some(1));
    assert_eq!(of(&["--hint=multithread", "--threads-per-core=2"]).threads(), Some(2));
    assert_eq!(
        of(&["-m", "plane=4"]).distribution.map(|d| d.to_string()),
        Some("plane=4".to_owned())
    );
    assert_eq!(
        of(&["--mem-bind=prefer,local"]).mem_bind.map(|m| m.to_string()),
        Some("prefer,local".to_owned())
    );
    for (words, text, exit) in [
        (
            ["-m", "plane"],
            "sbatch: error: Invalid plane size or size not specified\nsbatch: error: Invalid --distribution specification: plane\n",
            255,
        ),
        (["-m", "round"], "sbatch: error: Invalid --distribution specification: round\n", 255),
        (
            ["--hint", "x"],
            "sbatch: error: unrecognized --hint argument \"x\", see --hint=help\n",
            1,
        ),
        (["--mem-bind", "x"], "sbatch: error: unrecognized --mem-bind argument \"x\"\n", 255),
        (["-B", "1:x"], "sbatch: error: Invalid numeric value \"x\" for second arg of -B.\n", 1),
        (
            ["--threads-per-core", "0"],
            "sbatch: error: Invalid numeric value \"0\" for --threads-per-core.\n",
            1,
        ),
    ] {
        assert_eq!(refused(&words), (text.to_owned(), exit), "{words:?}");
    }
}

#[test]
fn version_help_and_usage_go_to_standard_output() {
    assert_eq!(
        outcome(&[], JOB, &["--version"]).1,
        format!("slurm-wlm 22.05.8-slotd-{}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(outcome(&[], JOB, &["-V"]).2, 0);
    let help = outcome(&[], JOB, &["--help"]).1;
    for option in ["--array", "-J, --job-name", "--wrap", "--hint", "--exclusive"] {
        assert!(help.contains(option), "{option} in {help}");
    }
    assert!(outcome(&[], JOB, &["--usage"]).1.starts_with("Usage: sbatch"));
}

#[test]
fn verbose_lists_the_given_options() {
    let got = asked_with(&[], JOB, &["-vv", "--wrap", "true", "-H"]);
    assert_eq!(got.job.common.verbose, 2);
    let expected = [("hold", "set"), ("verbose", "2"), ("wrap", "true")];
    assert_eq!(got.defined, expected.map(|(k, v)| (k.to_string(), v.to_string())));
}

#[test]
fn definitions_are_valid_and_variables_name_their_options() {
    for entry in COMMANDS {
        let (applet, definition) = (entry.applet, entry.definition());
        let grammar = Grammar::of_definition(&definition);
        for (variable, option) in (applet.variables)() {
            assert!(grammar.takes(option).is_some(), "{variable}: --{option}");
        }
        definition.debug_assert();
    }
}

/// Checks that a command accepts the options that clap shows in its help.
fn check_rows<T: Options>() {
    let comparable = |grammar: Grammar| -> Vec<Row> {
        let rows = grammar.rows.into_owned().into_iter().filter(|row| !row.is_operands());
        rows.map(|row| Row { default_missing: None, overrides: Vec::new(), ..row }).collect()
    };
    let shown = Grammar::of_definition(&T::augment_args(clap::Command::new("t")));
    assert_eq!(comparable(Grammar::of::<T>()), comparable(shown), "{}", std::any::type_name::<T>());
}

#[test]
fn accepted_options_are_those_of_the_help() {
    check_rows::<Sbatch>();
    check_rows::<super::srun::Srun>();
    check_rows::<super::salloc::Salloc>();
    check_rows::<super::squeue::Squeue>();
    check_rows::<super::sacct::Sacct>();
    check_rows::<super::scancel::Scancel>();
    check_rows::<super::scontrol::Scontrol>();
    check_rows::<super::sinfo::Sinfo>();
    check_rows::<super::sstat::Sstat>();
    check_rows::<super::sattach::Sattach>();
    check_rows::<super::sprio::Sprio>();
    check_rows::<super::sdiag::Sdiag>();
    check_rows::<super::seff::Seff>();
    check_rows::<super::sbcast::Sbcast>();
    check_rows::<super::sacctmgr::Sacctmgr>();
    check_rows::<super::sreport::Sreport>();
    check_rows::<super::sshare::Sshare>();
    check_rows::<super::scrontab::Scrontab>();
    check_rows::<super::needless::Needless>();
}

#[test]
fn options_that_override_each_other_exist() {
    let mut rows = Vec::new();
    Sbatch::rows(&mut rows);
    super::sinfo::Sinfo::rows(&mut rows);
    super::salloc::Salloc::rows(&mut rows);
    super::srun::Srun::rows(&mut rows);
    super::sacct::Sacct::rows(&mut rows);
    super::sdiag::Sdiag::rows(&mut rows);
    let named: Vec<&str> = rows.iter().flat_map(|row| &row.overrides).copied().collect();
    assert!(named.len() >= 12 && named.iter().all(|id| rows.iter().any(|row| row.id == *id)));
}

#[test]
fn options_declare_their_headings_and_moved_options_exist() {
    let mut places = headings::MOVED.map(|(_, option, _)| option).to_vec();
    for entry in COMMANDS {
        let definition = entry.definition();
        for option in definition.get_arguments() {
            let long = option.get_long().unwrap_or_default();
            let is_general = ["help", "usage", "version", "verbose", "quiet"].contains(&long);
            assert!(
                is_general || option.get_help_heading() != Some(headings::GENERAL),
                "{} --{long}",
                entry.name()
            );
            places.retain(|name| *name != long);
        }
    }
    assert_eq!(places, [""; 0]);
}

/// Everywhere a new job option could be forgotten: it must appear in each of these, or in the list
/// of exceptions.
#[test]
fn job_options_have_a_variable_and_are_shown_and_editable_or_listed_as_exceptions() {
    let values = [
        "2",
        "1G",
        "gpu:2",
        "now+2days",
        "afterok:1",
        "yes",
        "cpu:2",
        "block",
        "local",
        "slotd",
        "lab",
        "END",
        "compute_bound",
        "TERM@9",
        "all",
        "single",
        "x",
    ];
    let base = ["-n4", "-G1", "--wrap=x"];
    let shown = |sbatch: &Sbatch| {
        let view = fixture::job(1, "x").asks(|request| *request = sbatch.request.clone());
        slotd_render::show::jobs(&[view.build()], false, true, &fixture::ctx())
    };
    let plain = shown(&asked_with(&[], JOB, &base));
    let variables = variables::sbatch();
    let (mut unnamed, mut unshown, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
    let definition = JobOpts::augment_args(clap::Command::new("sbatch"));
    let has_heading = |option: &&clap::Arg| option.get_help_heading().is_some();
    for option in definition.get_arguments().filter(has_heading) {
        let long = option.get_long().unwrap_or_default();
        let words = values.map(|value| format!("--{long}={value}")).into_iter();
        let asked = words
            .chain([format!("--{long}")])
            .find_map(|word| outcome(&[], JOB, &[&base[..], &[word.as_str()]].concat()).0)
            .unwrap_or_else(|| panic!("--{long} accepts none of the values"));
        if !variables.iter().any(|(_, option)| *option == long) {
            unnamed.push(long);
        }
        if shown(&asked) == plain {
            unshown.push(long);
        }
        if !changes::option_names().any(|name| name == long) {
            fixed.push(long);
        }
    }
    let words = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
    assert_eq!(
        unnamed,
        words(
            "gid nodes ntasks-per-node ntasks-per-core ntasks-per-socket mincpus cores-per-socket sockets-per-node \
             extra-node-info oversubscribe gpus-per-socket ntasks-per-gpu time-min deadline kill-on-invalid-dep hold \
             priority nice prefer contiguous tmp nodelist exclude comment extra licenses mail-type mail-user"
        ),
        "without a variable"
    );
    // Some of these appear in fields that the daemon derives from the request, or together with
    // another option.
    assert_eq!(
        unshown,
        words(
            "profile uid gid hint overcommit distribution mem mem-bind ntasks-per-gpu begin dependency hold \
             priority signal partition clusters mail-user"
        ),
        "not shown"
    );
    assert_eq!(
        fixed,
        words(
            "profile uid gid nodes ntasks-per-node ntasks-per-core ntasks-per-socket mincpus cores-per-socket \
             sockets-per-node threads-per-core extra-node-info hint oversubscribe overcommit distribution tres-per-task \
             mem-per-gpu mem-bind cpus-per-gpu ntasks-per-gpu gpu-bind kill-on-invalid-dep hold signal prefer contiguous \
             switches delay-boot tmp nodelist exclude clusters"
        ),
        "not changed by slotd edit"
    );
}

#[test]
fn help_shows_ordered_groups_and_examples() {
    let entry = COMMANDS.iter().find(|entry| entry.name() == "sbatch").expect("a command");
    let help = entry.definition().render_help().to_string();
    let places: Vec<_> = [
        "Job and environment:",
        "--wrap",
        "CPUs and tasks:",
        "--cpus-per-task",
        "--ntasks ",
        "General:",
        "Accepted for compatibility,",
        "Examples:",
    ]
    .map(|text| help.find(text))
    .into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {help}");
}
