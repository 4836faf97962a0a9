//! Tests of the command lines of srun, salloc and scancel against recorded Slurm.

use crate::args::error::CliError;
use crate::args::origin::tests::lab;
use crate::commands::salloc::{self, Salloc};
use crate::commands::scancel::{self, Scancel};
use crate::commands::srun::step::Redirection;
use crate::commands::srun::{self, Srun};
use slotd_model::binding::CpuBind;
use slotd_model::request::{GpuRequest, JobKind, MemRequest};
use slotd_model::{JobId, JobRef, JobState};
use std::ffi::OsString;
use std::time::Duration;

fn argv(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn run<T>(result: Result<T, CliError>, command: &str) -> Result<T, (String, i32)> {
    let without_hints = |text: String| -> String {
        text.split_inclusive('\n').filter(|line| !line.starts_with("  hint: ")).collect()
    };
    result.map_err(|error| (error.output.clone() + &without_hints(error.text(command)), error.exit))
}

fn srun_in(env: &[(&str, &str)], words: &[&str]) -> Result<Srun, (String, i32)> {
    run(srun::parse(&argv(&[&["srun"], words].concat()), &lab(env)), "srun")
}

fn srun(words: &[&str]) -> Srun {
    srun_in(&[], words).expect("a good command line")
}

fn salloc(words: &[&str]) -> Salloc {
    run(salloc::parse(&argv(&[&["salloc"], words].concat()), &lab(&[])), "salloc")
        .expect("a good command line")
}

fn scancel_or(words: &[&str]) -> Result<Scancel, (String, i32)> {
    run(scancel::parse(&argv(&[&["scancel"], words].concat()), &lab(&[])), "scancel")
}

fn scancel(words: &[&str]) -> Scancel {
    scancel_or(words).expect("a good command line")
}

fn refused(text: &str, exit: i32) -> Result<(), (String, i32)> {
    Err((text.to_owned(), exit))
}

// srun

#[test]
fn srun_prints_slurms_errors() {
    for (record, words, text, exit) in [
        ("K-20", &[][..], "srun: fatal: No command given to execute.\n", 1),
        ("K-25", &["-t", "foo", "true"], "srun: error: Invalid --time specification: foo\n", 255),
        ("K-26", &["--mem=abc", "true"], "srun: error: Invalid --mem specification: abc\n", 255),
        (
            "K-27",
            &["--nosuch", "true"],
            "srun: unrecognized option '--nosuch'\nTry \"srun --help\" for more information\n",
            255,
        ),
        (
            "K-28",
            &["-n", "0", "true"],
            "srun: error: Invalid numeric value \"0\" for --ntasks.\n",
            1,
        ),
        (
            "no-wait",
            &["--no-wait", "-l", "true"],
            "srun: error: --label is not supported together with --no-wait\n",
            1,
        ),
        (
            "no-wait",
            &["--no-wait", "--unbuffered", "true"],
            "srun: error: --unbuffered is not supported together with --no-wait\n",
            1,
        ),
        (
            "prolog",
            &["--task-prolog=x", "true"],
            "srun: error: --task-prolog is not supported by slotd: call the program from the command itself\n",
            255,
        ),
        (
            "nodes",
            &["-N", "0", "true"],
            "srun: error: Unable to allocate resources: Node count specification invalid: 0\n",
            1,
        ),
    ] {
        assert_eq!(srun_in(&[], words).map(|_| ()), refused(text, exit), "{record}: {words:?}");
    }
}

#[test]
fn ntasks_per_node_that_contradicts_ntasks_is_ignored_with_slurms_warning() {
    let warned = |env: &[(&str, &str)], words: &[&str]| {
        let words = [words, &["true"]].concat();
        let srun = srun_in(env, &words).expect("a good command line");
        let each = [srun.request.ntasks_per_node, srun.step.ntasks_per_node];
        (srun.warning, each)
    };
    let text = "can't honor --ntasks-per-node set to 2 which doesn't match the requested tasks 4 with the number of \
        requested nodes 1. Ignoring --ntasks-per-node.";
    let ignored = (Some(text.to_owned()), [None; 2]);
    assert_eq!(warned(&[], &["-N1", "-n4", "--ntasks-per-node=2"]), ignored);
    let job = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_NUM_NODES", "1"), ("SLURM_NTASKS", "4")];
    assert_eq!(warned(&job, &["--ntasks-per-node=2"]), ignored);
    let both = [&job[..], &[("SLURM_NTASKS_PER_NODE", "2")]].concat();
    assert_eq!(warned(&both, &["-n4"]), ignored);
    // Fewer tasks cause no warning, and numbers of the job nothing at all.
    assert_eq!(warned(&both, &["-n1"]), (None, [None; 2]));
    assert_eq!(warned(&both, &[]), (None, [Some(2); 2]));
    assert_eq!(warned(&[], &["-N1", "-n2", "--ntasks-per-node=2"]), (None, [Some(2); 2]));
    assert_eq!(warned(&[], &["-n4", "--ntasks-per-node=2"]), (None, [Some(2); 2]));
}

#[test]
fn srun_stops_reading_options_at_the_command() {
    let got = srun(&["-n1", "--cpu-bind=q", "python", "-m", "snakemake", "--cores", "all"]);
    assert_eq!(got.command, ["python", "-m", "snakemake", "--cores", "all"]);
    assert_eq!((got.request.name.as_str(), got.request.kind), ("python", JobKind::Allocation));
    assert_eq!(srun(&["--label", "--", "echo", "-n"]).command, ["echo", "-n"]);
    assert_eq!(srun(&["/usr/bin/env"]).step.name, "env");
}

#[test]
fn srun_finds_the_surrounding_job() {
    assert_eq!(srun(&["true"]).jobid, None);
    let inside = srun_in(&[("SLURM_JOB_ID", "12")], &["true"]).expect("good").jobid;
    assert_eq!(inside, Some(JobRef::job(JobId(12))));
    let other = srun_in(&[("SLURM_JOB_ID", "12")], &["--jobid=13", "true"]).expect("good").jobid;
    assert_eq!(other, Some(JobRef::job(JobId(13))));
    assert_eq!(
        srun_in(&[("SLURM_JOB_ID", "12")], &["--no-wait", "true"]).expect("good").jobid,
        None
    );
}

#[test]
fn step_cannot_depend_on_a_job() {
    let waits = ["-d", "afterok:7", "true"];
    assert!(!srun(&waits).request.dependency.is_empty());
    let refused = srun_in(&[("SLURM_JOB_ID", "12")], &waits).unwrap_err();
    let wanted = "srun: error: --dependency applies to jobs, and inside a job srun starts a step\n";
    assert_eq!(refused, (wanted.to_owned(), 1));
    // A job of its own, and a variable that the script was submitted with.
    let inside = |env: &[_], words: &[&str]| {
        srun_in(&[&[("SLURM_JOB_ID", "12")], env].concat(), words).expect("good")
    };
    assert!(inside(&[], &["--no-wait", "-d", "afterok:7", "true"]).jobid.is_none());
    assert!(inside(&[("SLURM_DEPENDENCY", "afterok:7")], &["true"]).jobid.is_some());
}

#[test]
fn step_reads_only_its_own_variables_from_the_environment() {
    let env = [
        ("SLURM_JOB_ID", "12"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_MEM_PER_NODE", "512"),
        ("SLURM_GPUS", "2"),
        ("SLURM_JOB_NAME", "outer"),
        ("SLURM_CPUS_PER_TASK", "3"),
    ];
    let step = srun_in(&env, &["hostname"]).expect("good").step;
    assert_eq!(step.ntasks, Some(4));
    assert_eq!((step.mem, step.gpu), (MemRequest::Default, GpuRequest::default()));
    assert_eq!((step.name.as_str(), step.cpus_per_task, step.exact), ("hostname", None, false));
    let step = srun_in(&env, &["-n1", "--mem=100", "-G1", "-c2", "-J", "s", "hostname"])
        .expect("good")
        .step;
    assert_eq!(
        (step.ntasks, step.mem, step.gpu.total),
        (Some(1), MemRequest::PerNode(100), Some(1))
    );
    assert_eq!((step.name.as_str(), step.cpus_per_task), ("s", Some(2)));
    assert!(step.exact, "-c implies --exact (srun man page)");
    let env = [("SLURM_JOB_ID", "12"), ("SLURM_GPUS", "2"), ("SLURM_GPUS_PER_TASK", "1")];
    let gpu = srun_in(&env, &["hostname"]).expect("good").step.gpu;
    assert_eq!(gpu, GpuRequest { per_task: Some(1), ..GpuRequest::default() });
}

#[test]
fn step_gets_gpus_requested_by_user_variables() {
    let job = [
        ("SLURM_JOB_ID", "12"),
        ("SLURM_JOB_GPUS", "0,1"),
        ("SLURM_GPUS", "2"),
        ("SLURM_GPUS_PER_NODE", "2"),
    ];
    let gpu = |own: &[(&'static str, &'static str)], words: &[&str]| {
        let env: Vec<_> = job
            .iter()
            .filter(|(name, _)| own.iter().all(|(is, _)| is != name))
            .chain(own)
            .copied()
            .collect();
        srun_in(&env, &[words, &["hostname"]].concat()).expect("good").step.gpu
    };
    let one = GpuRequest { per_node: Some(1), ..GpuRequest::default() };
    assert_eq!(gpu(&[], &[]), GpuRequest::default(), "they describe the job");
    assert_eq!(gpu(&[("SLURM_GRES", "gpu:1")], &[]), one);
    assert_eq!(gpu(&[("SLURM_STEP_GRES", "gpu:1")], &[]), one);
    assert_eq!(gpu(&[("SLURM_GPUS_PER_NODE", "1")], &[]), one);
    assert_eq!(
        gpu(&[("SLURM_GPUS", "1")], &[]),
        GpuRequest { total: Some(1), ..GpuRequest::default() }
    );
    let both = gpu(&[("SLURM_GRES", "gpu:1")], &["-G2"]);
    assert_eq!(
        both,
        GpuRequest { total: Some(2), ..GpuRequest::default() },
        "the command line wins"
    );
}

#[test]
fn option_immediate() {
    assert_eq!(srun(&["true"]).request.immediate_secs, None);
    assert_eq!(srun(&["--immediate", "true"]).request.immediate_secs, Some(0));
    assert_eq!(srun(&["-I5", "true"]).request.immediate_secs, Some(5));
    assert_eq!(salloc(&["--immediate=1"]).request.immediate_secs, Some(1));
}

#[test]
fn options_label_unbuffered_and_pty() {
    let got = srun(&["-l", "-u", "--pty", "bash"]);
    assert!(got.label && got.unbuffered && got.pty.is_some());
}

#[test]
fn option_output_error_and_input_of_srun() {
    let got = srun(&["-o", "f_%t", "-e", "none", "-i", "0", "true"]);
    assert_eq!(got.output, Some(Redirection::File("f_%t".into())));
    assert_eq!(got.error, Some(Redirection::None));
    assert_eq!(got.input, Some(Redirection::Task(0)));
    assert_eq!(srun(&["--input=all", "true"]).input, Some(Redirection::All));
}

#[test]
fn option_cpu_bind() {
    assert_eq!(srun(&["--cpu-bind", "cores", "--", "true"]).step.cpu_bind, CpuBind::Cores);
    assert_eq!(
        srun(&["--cpu-bind=map_cpu:0,2", "--", "true"]).step.cpu_bind.to_string(),
        "map_cpu:0,2"
    );
    assert!(srun(&["--cpu-bind=verbose,none", "true"]).step.report_cpu_bind);
}

#[test]
fn separate_job_requests_the_cpus_its_tasks_are_bound_to() {
    let named = |args: &[&str]| srun(args).request.named_cpus;
    assert_eq!(named(&["--cpu-bind=map_cpu:2,0", "true"]), [2]);
    assert_eq!(named(&["-n3", "--cpu-bind=map_cpu:2,0", "true"]), [0, 2]);
    assert_eq!(named(&["--no-wait", "--cpu-bind=mask_cpu:0x6", "true"]), [1, 2]);
    assert_eq!(named(&["--cpu-bind=cores", "true"]), [0; 0]);
    assert_eq!(
        named(&["--jobid=7", "--cpu-bind=map_cpu:2", "true"]),
        [0; 0],
        "that job already has its CPUs"
    );
}

#[test]
fn inner_step_ignores_the_binding_masks_of_the_outer_step() {
    let bindings = |all: &str, list: &str, kind: &str| {
        let of_step = |id| {
            let bind = [
                ("SLURM_CPU_BIND", all),
                ("SLURM_CPU_BIND_LIST", list),
                ("SLURM_CPU_BIND_TYPE", kind),
            ];
            let step = [
                ("SLURM_CPU_BIND_VERBOSE", "quiet"),
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", "0"),
            ];
            [&bind[..], &step[..id]].concat()
        };
        let inside = srun_in(&of_step(3), &["true"]).unwrap();
        let no_wait = srun_in(&of_step(3), &["--no-wait", "true"]).unwrap();
        let by_hand = srun_in(&of_step(1), &["true"]).unwrap();
        [inside.step.cpu_bind, no_wait.request.cpu_bind, by_hand.step.cpu_bind]
            .map(|bind| bind.to_string())
    };
    assert_eq!(
        bindings("quiet,mask_cpu:0x1", "0x1", "mask_cpu:"),
        ["quiet", "quiet", "mask_cpu:0x1"]
    );
    assert_eq!(bindings("quiet,none", "", "none"), ["none", "quiet", "none"]);
    assert_eq!(bindings("quiet,cores", "0x1", "mask_cpu:"), ["cores"; 3], "the user changed it");
}

#[test]
fn option_no_wait() {
    let got = srun(&["--no-wait", "-o", "out", "--cpu-bind=cores", "echo", "a b"]);
    assert_eq!((got.request.kind, got.request.std_out.as_deref()), (JobKind::Run, Some("out")));
    assert_eq!(got.request.args, ["echo", "a b"]);
    assert_eq!(got.request.cpu_bind, CpuBind::Cores);
}

#[test]
fn command_of_a_job_is_the_program_of_srun_and_salloc_has_none() {
    let command = |words: &[&str]| srun(words).request.command;
    assert_eq!(command(&["-n2", "sleep", "9"]).as_deref(), Some("sleep"));
    assert_eq!(command(&["--no-wait", "sleep", "9"]), None, "its arguments are the whole command");
    assert_eq!(salloc(&["sleep", "9"]).request.command, None);
}

#[test]
fn option_chdir_of_srun() {
    assert_eq!(srun(&["-D", "/tmp", "pwd"]).request.work_dir, "/tmp");
    assert_eq!(srun(&["pwd"]).request.work_dir, "/work");
}

#[test]
fn rarer_options_of_srun() {
    let got =
        srun(&["-K", "-W60", "--multi-prog", "-X", "--overlap", "--mpi=pmi2", "--x11", "mp.conf"]);
    assert_eq!((got.step.kill_on_bad_exit, got.wait), (true, Some(60)));
    assert!(got.multi_prog && got.step.overlap);
    assert!(!srun(&["--kill-on-bad-exit=0", "true"]).step.kill_on_bad_exit);
    assert!(srun(&["-K2", "true"]).step.kill_on_bad_exit);
    let got = srun(&["-N1", "--kill-on-bad-exit=1", "--wait=60", "--export=ALL,K=V", "true"]);
    assert!(String::from_utf8(got.env).expect("UTF-8").ends_with("K=V\0"));
}

#[test]
fn invalid_srun_values_print_slurms_errors() {
    for (option, text, exit) in [
        (
            "--cpu-bind=bogus",
            "error: unrecognized --cpu-bind argument \"bogus\"\nsrun: fatal: Failed to parse --cpu-bind= values.",
            1,
        ),
        ("-Kx", "error: Invalid numeric value \"x\" for --kill-on-bad-exit.", 1),
        ("-K-1", "error: Invalid numeric value \"-1\" for --kill-on-bad-exit.", 1),
        ("-I-1", "error: Invalid numeric value \"-1\" for immediate.", 1),
        ("-I1.5", "error: Invalid numeric value \"1.5\" for immediate.", 1),
        ("--gpu-bind=bogus", "error: Invalid --gpu-bind argument: gpu:bogus", 255),
    ] {
        let got = srun_in(&[], &["-n1", option, "true"]).map(|_| ());
        assert_eq!(got, refused(&format!("srun: {text}\n"), exit), "{option}");
    }
}

#[test]
fn invalid_cpu_binding_lists_the_kinds() {
    let error = |word: &str| {
        srun::parse(&argv(&["srun", word, "true"]), &lab(&[])).expect_err("no binding")
    };
    let text = error("--cpu-bind=verbose,croes").text("srun");
    assert!(
        text.contains("\n  hint: [quiet|verbose,] and none, threads, ")
            && text.ends_with("; did you mean cores?\n")
    );
    let help = error("--cpu-bind=help");
    assert!(help.output.contains("map_cpu:CPU,...") && help.lines.is_empty() && help.exit == 0);
}

#[test]
fn variables_set_the_exit_codes() {
    let origin = lab(&[("SLURM_EXIT_ERROR", "99"), ("SLURM_EXIT_IMMEDIATE", "x")]);
    let codes = ["SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE", "SLURM_EXIT_OTHER"]
        .map(|name| origin.exit_code(name));
    assert_eq!(codes, [99, 1, 1]);
}

// salloc

#[test]
fn salloc_runs_a_command_or_a_shell() {
    let got = salloc(&["-n", "1", "sh", "-c", "exit 5"]);
    assert_eq!(got.command, ["sh", "-c", "exit 5"]);
    assert_eq!((got.request.name.as_str(), got.request.ntasks), ("interactive", Some(1)));
    assert!(
        salloc(&["-p", "gpu", "-c", "4", "--mem", "8G", "-G", "1", "-t", "00:30:00"])
            .command
            .is_empty()
    );
    assert!(salloc(&["--no-shell", "-J", "nosh"]).no_shell);
    assert_eq!(salloc(&["--no-shell"]).request.name, "no-shell");
    assert_eq!(salloc(&["--no-shell", "-J", "nosh"]).request.name, "nosh");
}

#[test]
fn salloc_rings_the_bell_on_request_or_after_a_wait() {
    let (short, long) = (Duration::from_secs(10), Duration::from_secs(11));
    for (words, rings) in [
        (&["--bell"][..], [true, true]),
        (&["--bell", "--no-bell"], [false, false]),
        (&[], [false, true]),
    ] {
        assert_eq!([short, long].map(|waited| salloc(words).rings(waited)), rings, "{words:?}");
    }
}

// scancel

#[test]
fn scancel_prints_slurms_errors() {
    for (record, words, text) in [
        ("I-08", &["abc"][..], "scancel: error: Invalid job id abc\n"),
        ("I-09", &["12x"], "scancel: error: Invalid job id 12x\n"),
        ("I-10", &[], "scancel: error: No job identification provided\n"),
        (
            "I-11",
            &["--nosuch"],
            "scancel: unrecognized option '--nosuch'\nTry \"scancel --help\" for more information\n",
        ),
        ("I-12", &["0"], "scancel: error: Invalid job id 0\n"),
        (
            "I-13",
            &["-1"],
            "scancel: invalid option -- '1'\nTry \"scancel --help\" for more information\n",
        ),
        (
            "I-28",
            &["-t", "bogus"],
            "Invalid job state specified: bogus\nValid job states are PENDING, RUNNING, and SUSPENDED\n",
        ),
        ("I-42", &["-s", "FOO", "1"], "Unknown job signal: FOO\n"),
    ] {
        assert_eq!(scancel_or(words).map(|_| ()), refused(text, 1), "{record}: {words:?}");
    }
}

#[test]
fn scancel_accepts_options_after_operands() {
    let got = scancel(&["12", "--signal", "USR2"]);
    assert_eq!((got.jobs(), got.signal), (vec![JobRef::job(JobId(12))], Some(12)));
    assert_eq!(scancel(&["--signal=SIGTERM", "12"]).signal, Some(15));
}

#[test]
fn scancel_accepts_several_ids_of_all_kinds() {
    let got = scancel(&["1", "2_3", "4_[1-3,9]", "5.0", "6_*"]);
    let shown: Vec<String> = got.jobs().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["1", "2_3", "4_[1-3,9]", "5.0", "6"]);
}

#[test]
fn scancel_filters() {
    let got = scancel(&[
        "-u", "root", "--me", "-n", "a,b", "-p", "cpu", "-t", "PD", "-w", "n[1-2]", "-A", "x",
        "-Qvi",
    ]);
    let filter = got.query("n2").expect("a filter");
    assert_eq!(filter.users, ["root", "lab"]);
    assert_eq!(filter.names, ["a,b"], "a job has one name");
    assert_eq!((filter.states, filter.on_node), (Some(vec![JobState::Pending]), true));
    assert_eq!(
        got.query("other").expect("a filter").states,
        Some(Vec::new()),
        "nothing is on other hosts"
    );
    assert!(got.quiet && got.interactive && got.common.verbose == 1);
    assert!(scancel(&["--name", "x", "-b", "-f"]).batch);
}

// All commands

mod arbitrary {
    use super::*;
    use crate::commands::sacct;
    use crate::commands::sbatch;
    use crate::commands::scontrol;
    use crate::commands::sinfo;
    use crate::commands::squeue;
    use proptest::prelude::*;

    /// Words as people and tools write them: valid and invalid options of all commands, and values.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            "--(time|mem|gres|gpus|array|export|begin|nice|signal|jobs|format|state|start|exclusive|no|o)?[=-]?[0-9a-zA-Z:,%._+-]{0,6}",
            "-[a-zA-Z]{1,3}[0-9]{0,2}",
            "(show|update|hold|requeue|write|job|JobId=|TimeLimit=|Gres=|step|hostnames)?[0-9a-z\\[\\],_.:-]{0,6}",
            ".{0,6}",
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_words_never_panic(words in proptest::collection::vec(word(), 0..6), script in "(#!/bin/sh\n)?(#SBATCH [-=a-zA-Z0-9 '\"#]{0,20}\n){0,3}") {
            let line: Vec<OsString> = std::iter::once("x".to_owned()).chain(words.iter().cloned()).map(OsString::from).collect();
            let origin = lab(&[]);
            let _ = sbatch::parse(&line, &origin, &|_| Ok(script.clone().into_bytes()));
            let _ = srun::parse(&line, &origin);
            let _ = salloc::parse(&line, &origin);
            let _ = scancel::parse(&line, &origin);
            let _ = squeue::parse(&line, &origin);
            let _ = sacct::parse(&line, &origin);
            let _ = sinfo::parse(&line, &origin);
            let _ = scontrol::command(&words, &origin);
        }
    }
}
