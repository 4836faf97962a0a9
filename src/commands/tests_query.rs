//! Tests of the command lines of squeue, sacct, sinfo and scontrol against recorded Slurm and the
//! invocations of clients.

use crate::args::error::CliError;
use crate::args::options::{DataVersion, Machine};
use crate::args::origin::tests::lab;
use crate::commands::output::format_error;
use crate::commands::sacct::{self, Sacct, SacctFormat};
use crate::commands::scontrol::command::{Command, Target};
use crate::commands::scontrol::show::Show;
use crate::commands::scontrol::{self, Scontrol};
use crate::commands::sinfo::{self, Sinfo, SinfoFormat};
use crate::commands::squeue::{self, Format, Squeue};
use crate::commands::{refused, sattach, sdiag, seff, sprio, sstat, trial_refused};
use slotd_model::job::Hold;
use slotd_model::request::{GpuRequest, KeptText};
use slotd_model::update::Update;
use slotd_model::{JobId, JobRef, JobState, Refusal, Timestamp};
use slotd_parse::states::StateFilter;
use slotd_render::sinfo::States;
use slotd_render::{sprio as sprio_table, squeue as squeue_table};
use std::ffi::OsString;

type Env<'a> = &'a [(&'a str, &'a str)];

fn argv(command: &str, words: &[&str]) -> Vec<OsString> {
    std::iter::once(command).chain(words.iter().copied()).map(OsString::from).collect()
}

fn run<T>(result: Result<T, CliError>, command: &str) -> Result<T, (String, i32)> {
    let without_hints = |text: String| -> String {
        text.split_inclusive('\n').filter(|line| !line.starts_with("  hint: ")).collect()
    };
    result.map_err(|error| (error.output.clone() + &without_hints(error.text(command)), error.exit))
}

fn squeue_or(env: Env<'_>, words: &[&str]) -> Result<Squeue, (String, i32)> {
    run(squeue::parse(&argv("squeue", words), &lab(env)), "squeue")
}

fn squeue(words: &[&str]) -> Squeue {
    squeue_or(&[], words).unwrap_or_else(|refusal| panic!("{words:?}: {refusal:?}"))
}

fn sacct_or(words: &[&str]) -> Result<Sacct, (String, i32)> {
    run(sacct::parse(&argv("sacct", words), &lab(&[])), "sacct")
}

fn sacct(words: &[&str]) -> Sacct {
    sacct_or(words).unwrap_or_else(|refusal| panic!("{words:?}: {refusal:?}"))
}

fn sinfo_or(words: &[&str]) -> Result<Sinfo, (String, i32)> {
    run(sinfo::parse(&argv("sinfo", words), &lab(&[])), "sinfo")
}

fn sinfo(words: &[&str]) -> Sinfo {
    sinfo_or(words).unwrap_or_else(|refusal| panic!("{words:?}: {refusal:?}"))
}

fn scontrol_or(env: Env<'_>, words: &[&str]) -> Result<Scontrol, (String, i32)> {
    run(scontrol::parse(&argv("scontrol", words), &lab(env)), "scontrol")
}

fn command(words: &[&str]) -> Command {
    scontrol_or(&[], words).unwrap_or_else(|refusal| panic!("{words:?}: {refusal:?}")).command
}

fn show(words: &[&str]) -> Show {
    match command(words) {
        Command::Show(show) => show,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn job(id: u32) -> JobRef {
    JobRef::job(JobId(id))
}

fn shown(refs: &[JobRef]) -> Vec<String> {
    refs.iter().map(ToString::to_string).collect()
}

// squeue

#[test]
fn squeue_format_variable_overrides_its_format2_variable() {
    let both = [("SQUEUE_FORMAT", "%i"), ("SQUEUE_FORMAT2", "name")];
    let format = |words: &[&str]| squeue_or(&both, words).map(|squeue| squeue.columns);
    assert_eq!(format(&[]), Ok(Format::Percent("%i".into())));
    assert_eq!(format(&["-O", "jobid"]), Ok(Format::Fields("jobid".into())));
    assert_eq!(format(&["-o", "%j"]), Ok(Format::Percent("%j".into())));
}

#[test]
fn squeue_prints_slurms_errors() {
    for (record, words, text) in [
        (
            "both formats",
            &["-o", "%i", "-O", "jobid"][..],
            "squeue: error: -O (--Format) is incompatible with -o (--format)\n",
        ),
        (
            "both formats",
            &["-O", "jobid", "-o", "%i"],
            "squeue: error: -o (--format) is incompatible with -O (--Format)\n",
        ),
        ("F-24", &["-j", "abc"], "squeue: error: Invalid job id: abc\n"),
        (
            "F-54",
            &["--nosuch"],
            "squeue: unrecognized option '--nosuch'\nTry \"squeue --help\" for more information\n",
        ),
        ("F-55", &["extra"], "squeue: error: Unrecognized option: extra\n"),
    ] {
        assert_eq!(squeue_or(&[], words).map(|_| ()), Err((text.to_owned(), 1)), "{record}");
    }
    let (text, exit) = squeue_or(&[], &["-t", "bogus"]).expect_err("F-36");
    assert!(text.starts_with(
        "squeue: error: Invalid job state specified: bogus\nsqueue: error: Valid job states include: PENDING,"
    ));
    assert_eq!(exit, 1);
}

#[test]
fn squeue_accepts_a_list_of_jobs_in_every_spelling() {
    for words in [
        &["-j", "1,2"][..],
        &["-j1,2"],
        &["--jobs=1,2"],
        &["--job", "1,2"],
        &["--jobs", "1,2,", "-h"],
        &["-j", "1", "-j", "2"],
    ] {
        assert_eq!(shown(&squeue(words).jobs), ["1", "2"], "{words:?}");
    }
    assert_eq!(shown(&squeue(&["-h", "-j", "174_3"]).jobs), ["174_3"]);
    assert_eq!(squeue(&["-j"]).jobs, []);
    assert_eq!(squeue(&[]).jobs, []);
}

#[test]
fn squeue_steps() {
    let steps = |words: &[&str]| (squeue(words).by_step, shown(&squeue(words).steps));
    assert_eq!(steps(&["-s"]), (true, vec![]));
    assert_eq!(steps(&["-s", "12.0"]), (true, vec!["12.0".to_owned()]));
    assert_eq!(steps(&[]), (false, vec![]));
}

#[test]
fn squeue_all_and_states() {
    assert_eq!(squeue(&[]).states(), None);
    assert_eq!(squeue(&["--all"]).states(), Some(StateFilter::All));
    assert_eq!(
        squeue(&["-a", "-t", "R"]).states(),
        Some(StateFilter::Some(vec![JobState::Running], Vec::new()))
    );
    assert_eq!(
        squeue(&["--states=PD|R".replace('|', ",").as_str()])
            .states()
            .map(|s| s.to_string())
            .as_deref(),
        Some("PENDING,RUNNING")
    );
    assert_eq!(
        squeue(&["-t", "pd", "-t", "running"]).states().map(|s| s.to_string()).as_deref(),
        Some("PENDING,RUNNING")
    );
}

#[test]
fn squeue_users_names_and_partitions() {
    let got = squeue(&[
        "-u", "a,b", "--me", "-n", "x", "-p", "cpu,gpu", "-A", "none", "-w", "vm", "-q", "q", "-R",
        "r", "-L", "l",
    ]);
    assert_eq!(got.user, ["a", "b", "lab"]);
    assert_eq!(
        (got.name, got.partition),
        (vec!["x".to_owned()], vec!["cpu".to_owned(), "gpu".to_owned()])
    );
    assert_eq!((got.account, got.nodelist), (vec!["none".to_owned()], Some(vec!["vm".to_owned()])));
    assert_eq!(squeue(&["-uroot", "-h"]).user, ["root"]);
}

#[test]
fn squeue_formats() {
    assert_eq!(squeue(&["-o", "%i %t"]).columns, Format::Percent("%i %t".into()));
    assert_eq!(squeue(&["-o \"%u\""]).columns, Format::Percent(" \"%u\"".into()));
    assert_eq!(squeue(&["-O", "jobid:5"]).columns, Format::Fields("jobid:5".into()));
    assert_eq!(squeue(&["-l"]).columns, Format::Default);
    assert!(
        squeue(&["-l"]).long
            && squeue(&["--start"]).start
            && squeue(&["-r"]).array
            && squeue(&["-h"]).noheader
    );
    let env = [("SQUEUE_FORMAT", "%i:%t"), ("SQUEUE_STATES", "R")];
    let got = squeue_or(&env, &["-h"]).expect("good");
    assert_eq!(got.columns, Format::Percent("%i:%t".into()));
    assert_eq!(got.states(), Some(StateFilter::Some(vec![JobState::Running], Vec::new())));
    assert_eq!(squeue_or(&env, &["-l"]).expect("good").columns, Format::Default);
    assert_eq!(
        squeue_or(&env, &["-O", "state"]).expect("good").columns,
        Format::Fields("state".into())
    );
}

#[test]
fn squeue_machine_output_and_repetition() {
    assert_eq!(squeue(&["--json"]).data.machine(), Some(Machine::Json(DataVersion::V38)));
    assert_eq!(squeue(&["--yaml=v0.0.40"]).data.machine(), Some(Machine::Yaml(DataVersion::V40)));
    assert_eq!(squeue(&["-i", "2"]).iterate, Some(2));
    assert_eq!(squeue(&["-S", "-i"]).sort.as_deref(), Some("-i"));
    assert!(
        squeue(&["--noconvert", "--only-job-state", "-M", "all", "-P", "--local"]).jobs.is_empty()
    );
}

// sacct

#[test]
fn sacct_prints_slurms_errors() {
    for (record, words, text) in [
        ("G-15", &["-j", "abc"][..], "sacct: fatal: Bad job/step specified: abc\n"),
        ("G-23", &["-s", "R,bogus"], "sacct: fatal: unrecognized job state value 'bogus'\n"),
        (
            "G-24",
            &["-S", "2030-01-01", "-n"],
            "sacct: error: Start time (2030-01-01T00:00:00) requested is after end time (2026-11-20T12:00:00).\n",
        ),
        ("G-26", &["-S", "foo"], "Invalid time specification (pos=0): foo\n"),
        (
            "G-27",
            &["-S", "2026-01-02", "-E", "2026-01-01"],
            "sacct: error: Start time (2026-01-02T00:00:00) requested is after end time (2026-01-01T00:00:00).\n",
        ),
        (
            "operands",
            &["5", "6"],
            "sacct: error: Unknown arguments:\nsacct: error:  5\nsacct: error:  6\n",
        ),
        ("G-41", &["--nosuch"], "sacct: unrecognized option '--nosuch'\n"),
        (
            "snakemake",
            &["-nu", "root", "-o", "Account%256", "|", "tail", "-1"],
            "sacct: invalid option -- '1'\n",
        ),
    ] {
        assert_eq!(sacct_or(words).map(|_| ()), Err((text.to_owned(), 1)), "{record}");
    }
}

#[test]
fn query_errors_suggest_valid_input() {
    let hint = |command: &str, error: CliError| {
        error
            .text(command)
            .lines()
            .find_map(|line| line.strip_prefix("  hint: ").map(str::to_owned))
            .unwrap_or_default()
    };
    let sacct = |words: &[&str]| {
        hint("sacct", sacct::parse(&argv("sacct", words), &lab(&[])).expect_err("refused"))
    };
    assert_eq!(sacct(&["5"]), "sacct -j 5");
    assert_eq!(sacct(&["-s", "FALED"]), "did you mean FAILED?");
    assert!(sacct(&["-s", "foo"]).starts_with("states: PENDING, "));
    assert!(sacct(&["-S", "tody"]).ends_with("; did you mean today?"));
    assert_eq!(sacct(&["--stat=R", "--formt=x"]), "did you mean --format?");
    let squeue = |words: &[&str]| {
        hint("squeue", squeue::parse(&argv("squeue", words), &lab(&[])).expect_err("refused"))
    };
    assert_eq!(squeue(&["-t", "RUNING"]), "did you mean RUNNING?");
}

#[test]
fn repeated_sacct_lists_are_merged() {
    let got = sacct(&["-o", "JobID,State", "--parsable2", "-j", "2", "-j", "3_1,4.0"]);
    assert_eq!(shown(&got.jobs), ["2", "3_1", "4.0"]);
    assert_eq!(
        (got.view, got.lines.separator("|")),
        (SacctFormat::Fields("JobID,State".into()), Some(("|", false)))
    );
}

#[test]
fn sacct_states_apply_from_midnight_or_to_the_given_window() {
    let noon = "2026-11-20T11:00:00";
    let (midnight, then) = (sacct(&[]).window.0, sacct(&["-S", noon]).window.0);
    let window = |words: &[&str]| sacct(words).window;
    assert_eq!(window(&["-s", "F"]), (midnight, None));
    assert_eq!(window(&["-s", "F", "-j", "7"]), (Timestamp::default(), None));
    let now = lab(&[]).now;
    assert_eq!(window(&["-s", "F", "-E", "now"]), (midnight, Some(now)));
    assert_eq!(window(&["-s", "F", "-S", noon]), (then, None), "until now");
    assert_eq!(window(&["-s", "F", "-S", noon, "-E", "now"]), (then, Some(now)));
    assert_eq!(window(&["-s", "F", "-j", "7", "-S", noon]), (then, None));
    let (message, exit) =
        sacct_or(&["-S", "now", "-E", noon]).map(|_| ()).expect_err("it ends before now");
    assert!(message.contains("requested is after end time") && exit == 1, "{message}");
}

#[test]
fn sacct_window_starts_at_midnight_or_in_1970() {
    let midnight = Timestamp::from_secs(1_795_176_000 - 12 * 3600);
    assert_eq!(sacct(&[]).window, (midnight, None));
    assert_eq!(sacct(&["-s", "all"]).window.0, midnight);
    assert_eq!(sacct(&["-j", "1"]).window.0, Timestamp::default());
    let got = sacct(&["--starttime", "2026-11-18T22:00", "--endtime", "now"]);
    assert_eq!(got.window.0, Timestamp::from_secs(1_795_039_200));
    assert_eq!(got.window.1, Some(lab(&[]).now));
}

#[test]
fn sacct_p_is_parsable_or_takes_a_partition() {
    assert_eq!(sacct(&["-p", "-j", "1"]).lines.separator("|"), Some(("|", true)));
    let refusal = sacct_or(&["--parsable", "cpu"]).map(|_| ());
    let text = "sacct: error: Unknown arguments:\nsacct: error:  cpu\n".to_owned();
    assert_eq!(refusal, Err((text, 1)));
    let got = sacct(&["-X", "-p", "cpu", "-n"]);
    assert_eq!((got.partition, got.lines.separator("|")), (vec!["cpu".to_owned()], None));
    assert_eq!(sacct(&["-r", "gpu"]).partition, ["gpu"]);
    assert_eq!(sacct(&["--partition=gpu", "-P"]).partition, ["gpu"]);
}

#[test]
fn sacct_switches() {
    let got = sacct(&[
        "-X",
        "-n",
        "--delimiter=^|^",
        "--parsable",
        "--units=G",
        "--noconvert",
        "-D",
        "-T",
        "--name=a,b",
        "-u",
        "lab",
        "-k",
        "5",
        "-I",
        "2-4",
        "--allusers",
        "-B",
        "--clusters",
        "all",
        "--array",
    ]);
    assert!(
        got.allocations
            && got.noheader
            && got.noconvert
            && got.duplicates
            && got.truncate
            && got.batch_script
            && got.array
    );
    assert_eq!(
        (got.delimiter.as_deref(), got.lines.separator("|"), got.units),
        (Some("^|^"), Some(("|", true)), Some('G'))
    );
    assert_eq!((got.timelimit_min, got.ncpus), (Some(Some(300)), Some((2, 4))));
    assert_eq!((got.name.len(), got.allusers), (2, true));
    assert!(sacct(&["--helpformat"]).helpformat && sacct(&["-e"]).helpformat);
    assert_eq!((sacct(&["-b"]).view, sacct(&["-l"]).view), (SacctFormat::Brief, SacctFormat::Long));
    assert_eq!(
        sacct(&["--json", "-S1970-01-01-00:00:01"].map(|w| w.trim_end_matches("-00:00:01")))
            .data
            .machine(),
        Some(Machine::Json(DataVersion::V38))
    );
    assert_eq!(sacct(&["--unit", "K"]).units, Some('K'));
}

// sinfo

#[test]
fn sinfo_forms() {
    assert_eq!(sinfo(&["-o", "%P"]).view, SinfoFormat::Percent("%P".into()));
    let got = sinfo(&["-ahNO", "nodehost:100,gres:512"]);
    assert_eq!(got.view, SinfoFormat::Fields("nodehost:100,gres:512".into()));
    assert!(got.noheader && got.node);
    assert_eq!(sinfo(&["-N", "-l"]).view, SinfoFormat::Long);
    assert_eq!(sinfo(&["-s"]).view, SinfoFormat::Summary);
    assert_eq!(sinfo(&["-R"]).view, SinfoFormat::Reasons);
    let states = ["idle", "mixed", "allocated"].map(|name| States::parse(name).expect("a state"));
    assert_eq!(sinfo(&["-p", "gpu", "-t", "idle,mix,alloc"]).states, states);
    assert!(sinfo(&["--format", "%P,%m", "--noconvert"]).noconvert);
    let refusal = sinfo_or(&["extra"]).map(|_| ());
    assert_eq!(refusal, Err(("sinfo: error: Unrecognized option: extra\n".to_owned(), 1)));
    let (text, exit) = sinfo_or(&["-t", "bogus"]).expect_err("J-20");
    assert!(text.starts_with(
        "sinfo: error: Bad state string: \"bogus\"\nsinfo: error: valid states: unknown,down,idle"
    ));
    assert_eq!(exit, 1);
}

// scontrol

#[test]
fn scontrol_prints_slurms_errors() {
    for (record, words, text, exit) in [
        (
            "H-09",
            &["show", "job", "abc"][..],
            "scontrol_print_job error: Invalid job id specified\n",
            1,
        ),
        ("H-26", &["show", "hostnames", "n1,n2", "n3"], "too many arguments for keyword:show\n", 1),
        ("a second job", &["show", "job", "1", "2"], "too many arguments for keyword:show\n", 1),
        ("H-29", &["show", "hostnames"], "scontrol: error: host list is empty\n", 0),
        ("H-37", &["show", "nosuch"], "invalid entity:nosuch for keyword:show \n", 1),
        ("H-38", &["nosuch"], "invalid keyword: nosuch\n", 1),
        ("H-117", &["delete", "jobid=1"], "Invalid deletion entity: jobid=1\n", 1),
        (
            "delete of an entity that exists",
            &["delete", "PartitionName=x"],
            "delete is not supported by slotd: remove the partition from slotd.toml and run scontrol reconfigure\n",
            1,
        ),
        ("H-41", &["show"], "too few arguments for keyword:show\n", 1),
        (
            "H-75",
            &["update", "JobId=191", "Nonsense=1"],
            "Update of this parameter is not supported: Nonsense=1\nRequest aborted\n",
            1,
        ),
        ("H-82", &["update", "JobId=191", "UserID=root"], "No changes specified\n", 1),
        ("H-90", &["update", "jobid=191"], "No changes specified\n", 1),
        ("H-91", &["update"], "too few arguments for update keyword\n", 1),
        ("hold", &["hold"], "too few arguments for keyword:hold\n", 1),
        ("a step", &["hold", "249_1.batch"], "Invalid job id specified for job 249_1.batch\n", 1),
        (
            "a step",
            &["update", "jobid=249.0", "name=x"],
            "Invalid job id specified for job 249.0\n",
            1,
        ),
        (
            "a step",
            &["show", "job", "16.0"],
            "scontrol_print_job error: Invalid job id specified\n",
            1,
        ),
        ("a bad id", &["release", "x"], "Invalid job id specified for job x\n", 1),
        (
            "a value",
            &["update", "job", "1", "TimeLimit=1h"],
            "Invalid TimeLimit value: 1h\nRequest aborted\n",
            1,
        ),
        ("reconfigure", &["reconfigure", "now"], "too many arguments for keyword:reconfigure\n", 1),
        (
            "a drain without a reason",
            &["update", "NodeName=localhost", "State=DRAIN"],
            "You must specify a reason when DOWNING or DRAINING a node. Request denied\n",
            1,
        ),
        (
            "a value of a partition",
            &["update", "PartitionName=cpu", "State=open"],
            "Invalid State value: open\nRequest aborted\n",
            1,
        ),
    ] {
        assert_eq!(scontrol_or(&[], words).map(|_| ()), Err((text.to_owned(), exit)), "{record}");
    }
}

#[test]
fn scontrol_suggests_the_nearest_word() {
    for (words, meant) in [
        (&["requeu_hold", "1"][..], "requeuehold"),
        (&["relaese", "1"], "release"),
        (&["shwo", "job"], "show"),
        (&["show", "prtition"], "partitions"),
        (&["show", "jbo"], "job"),
        (&["update", "JobId=1", "Partiton=gpu"], "Partition"),
        (&["update", "JobId=1", "Coment=x"], "Comment"),
        (&["update", "JobId=1", "TimeLimt=5"], "TimeLimit"),
        (&["update", "JobId=1", "ftrs=x", "Feature=a"], ""),
        (&["update", "JobId=1", "Feature=a"], "Features"),
        (&["frobnicate"], ""),
    ] {
        let error = scontrol::parse(&argv("scontrol", words), &lab(&[])).expect_err("unknown");
        let text = error.text("scontrol");
        let hint = text.lines().find_map(|line| line.strip_prefix("  hint: did you mean "));
        assert_eq!(hint.unwrap_or_default().trim_end_matches('?'), meant, "{words:?}: {text}");
        assert!(
            text.contains("\n  hint: "),
            "without a similar word, the hint lists the valid ones: {text}"
        );
    }
}

#[test]
fn invalid_update_values_list_the_valid_forms() {
    for (word, hint) in [
        ("TimeLimit=abc", "minutes, minutes:seconds, "),
        ("TimeLimit=+1h", "did you mean 1:00:00?"),
        ("StartTime=tomorow", "did you mean tomorrow?"),
        ("MinMemoryNode=xyz", "a whole number of megabytes"),
        ("Dependency=foo:3", "afterok"),
        (
            "Priority=x",
            "a whole number from 0 to 4294967293; `scontrol release` releases a held job",
        ),
        ("Priority=-1", "a whole number from 0 to 4294967293; "),
        ("Nice=x", "a whole number from -2147483645 to "),
        ("Requeue=maybe", "yes or no"),
        ("Features=a&", "features joined by "),
    ] {
        let words = ["scontrol", "update", "JobId=1", word].map(OsString::from);
        let text = scontrol::parse(&words, &lab(&[])).expect_err("refused").text("scontrol");
        let (own, line) = text.split_once("\nRequest aborted\n  hint: ").unwrap_or_default();
        assert!(!own.is_empty() && line.contains(hint), "{word}: {text}");
    }
}

#[test]
fn unknown_name_suggests_the_nearest_existing_one() {
    let known = || ["cpu", "fast_disk", "gpu"].map(str::to_owned).to_vec();
    let partition = |name: &str| Refusal::UnknownPartition {
        name: name.to_owned(),
        known: known(),
        lacks_gpus: false,
    };
    let features =
        |wanted: &str| Refusal::MissingFeature { wanted: wanted.to_owned(), known: known() };
    for (why, hint) in [
        (partition("cup"), "did you mean cpu?"),
        (partition("gpu,fastdisc"), "did you mean fast_disk?"),
        (partition("x"), "partitions: cpu, fast_disk, gpu"),
        (
            Refusal::UnknownPartition { name: "gpu".to_owned(), known: known(), lacks_gpus: true },
            "partition gpu exists only while the host has GPUs",
        ),
        (features("gpu&(fats_disk|cpu)"), "did you mean fast_disk?"),
        (features("!gpu"), "features: cpu, fast_disk, gpu"),
    ] {
        for error in [refused("It failed", &why), trial_refused(&why)] {
            let text = error.text("sbatch");
            assert!(text.ends_with(&format!("\n  hint: {hint}\n")), "{text}");
        }
    }
    let text = trial_refused(&partition("x")).text("sbatch");
    assert_eq!(text.lines().nth(1), Some("allocation failure: Invalid partition name specified"));
    assert_eq!(refused("It failed", &Refusal::NotPending).lines.len(), 1);
    let several = refused("It failed", &Refusal::NodeCount).text("srun");
    assert_eq!(
        several,
        "srun: error: It failed: Node count specification invalid\n  hint: slotd runs on one host: omit --nodes\n"
    );
}

#[test]
fn unknown_format_prints_an_error_and_a_hint() {
    for (error, hint) in [
        (squeue_table::Layout::parse("JobID,Nmae").unwrap_err(), "did you mean Name?"),
        (
            squeue_table::Layout::long_as_known("xyzzy").1.remove(0),
            "name[:[.]width], separated by commas; --helpformat lists the names",
        ),
        (
            sprio_table::Layout::parse("foo").unwrap_err(),
            "names, separated by commas; names: Account, Age, ",
        ),
        (
            sprio_table::Layout::parse("%x").unwrap_err(),
            "%[.][width]letter, with any text between; letters: AaBb",
        ),
    ] {
        let text = format_error(error).text("squeue");
        let line = text.split_once("\n  hint: ").unwrap_or_default().1;
        assert!(line.starts_with(hint) && text.lines().count() == 2 && text.len() < 400, "{text}");
    }
}

#[test]
fn scontrol_show_job_in_every_spelling() {
    for words in [
        &["show", "job", "190"][..],
        &["show", "jobid", "190"],
        &["show", "jobs=190"],
        &["show", "jobid=190"],
        &["show", "job", "jobid=190"],
        &["sho", "jo", "190"],
    ] {
        assert_eq!(show(words), Show::Jobs(Some(vec![job(190)])), "{words:?}");
    }
    assert_eq!(show(&["show", "job"]), Show::Jobs(None));
    assert_eq!(
        show(&["show", "job", "1,2_3"]),
        Show::Jobs(Some(vec![job(1), slotd_parse::ids::parse_job("2_3").expect("good")]))
    );
    for words in [
        &["show", "job", "-o", "12"][..],
        &["-o", "show", "job", "12"],
        &["show", "-o", "job", "12"],
    ] {
        assert!(scontrol_or(&[], words).expect("good").output.oneliner);
    }
}

#[test]
fn scontrol_shows_other_things() {
    assert_eq!(
        show(&["show", "step", "12.0"]),
        Show::Steps(slotd_parse::ids::parse_job_list("12.0").ok())
    );
    assert_eq!(show(&["show", "node"]), Show::Node(None));
    assert_eq!(show(&["show", "nodes", "vm"]), Show::Node(Some("vm".into())));
    assert_eq!(show(&["show", "part", "gpu", "-o"]), Show::Partition(Some("gpu".into())));
    assert_eq!(
        show(&["show", "partitions", "--detail", "--all", "--oneliner"]),
        Show::Partition(None)
    );
    assert_eq!(show(&["show", "config"]), Show::Config);
    let filtered = ["show", "assoc_mgr", "users=ann", "flags=users,assoc"];
    assert_eq!(show(&filtered), Show::Nothing("assoc_mgr"));
    assert_eq!(show(&["show", "res"]), Show::Reservations(None));
    assert_eq!(show(&["show", "hostname", "a[1-2]"]), Show::Hostnames("a[1-2]".into()));
    let around =
        scontrol_or(&[("SLURM_JOB_NODELIST", "vm")], &["show", "hostnames"]).expect("good").command;
    assert_eq!(around, Command::Show(Show::Hostnames("vm".into())));
    let names = vec!["n3".to_owned(), "n1".to_owned()];
    assert_eq!(show(&["show", "hostlistsorted", "n3,n1"]), Show::Hostlist { names, sorted: true });
}

#[test]
fn scontrol_controls_jobs_with_and_without_the_word_job() {
    let one = vec![Target::Jobs(vec![job(12)])];
    assert_eq!(command(&["hold", "job", "12"]), Command::Hold(one.clone()));
    assert_eq!(command(&["hold", "12"]), Command::Hold(one.clone()));
    assert_eq!(command(&["release", "jobid=12"]), Command::Release(one.clone()));
    assert_eq!(command(&["uhold", "12"]), Command::UserHold(one.clone()));
    assert_eq!(command(&["suspend", "12"]), Command::Suspend(one.clone()));
    assert_eq!(command(&["resume", "12"]), Command::Resume(one));
    assert_eq!(
        command(&["hold", "jobname=pending"]),
        Command::Hold(vec![Target::Name("pending".into())])
    );
    for (words, jobs, hold) in [
        (&["requeue", "1,2", "3"][..], &[1, 2, 3][..], None),
        (&["requeue", "Incomplete", "190"], &[190], None),
        (&["requeuehold", "190"], &[190], Some(Hold::User)),
        (&["requeuehold", "State=SpecialExit", "190"], &[190], Some(Hold::SpecialExit)),
        (&["requeue", "state=specialexit", "190"], &[190], Some(Hold::SpecialExit)),
    ] {
        let jobs = jobs.iter().copied().map(job).collect();
        assert_eq!(command(words), Command::Requeue(jobs, hold), "{words:?}");
    }
    assert_eq!(command(&["top", "190"]), Command::Top(vec![job(190)]));
    assert_eq!(command(&["ping"]), Command::Ping);
    assert_eq!(command(&["version"]), Command::Version);
    assert_eq!(command(&[]), Command::Interactive);
    assert_eq!(
        command(&["write", "batch_script", "190", "-"]),
        Command::WriteScript { job: job(190), file: Some("-".into()) }
    );
    assert_eq!(
        command(&["notify", "1", "hello", "you"]),
        Command::Notify { job: job(1), message: "hello you".into() }
    );
    assert_eq!(command(&["wait_job", "1"]), Command::WaitJob(job(1)));
    assert_eq!(
        command(&["listpids", "1.0", "vm"]),
        Command::ListPids(slotd_parse::ids::parse_job("1.0").ok())
    );
}

fn changes(words: &[&str]) -> Vec<Update> {
    match command(&[&["update", "JobId=191"], words].concat()) {
        Command::Update { target, updates } => {
            assert_eq!(target, Target::Jobs(vec![job(191)]));
            updates
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn scontrol_update_accepts_the_most_used_keys() {
    assert_eq!(changes(&["JobName=renamed"]), [Update::JobName("renamed".into())]);
    assert_eq!(changes(&["Name=x"]), [Update::JobName("x".into())]);
    assert_eq!(changes(&["Partition=gpu"]), [Update::Partition("gpu".into())]);
    assert_eq!(changes(&["TimeLimit=02:00:00"]), [Update::TimeLimit(Some(7200))]);
    assert_eq!(changes(&["Time=UNLIMITED"]), [Update::TimeLimit(None)]);
    assert_eq!(changes(&["Priority=7"]), [Update::Priority(7)]);
    let named = command(&["update", "job", "10", "TimeLimit=02:00:00"]);
    let updates = vec![Update::TimeLimit(Some(7200))];
    assert_eq!(named, Command::Update { target: Target::Jobs(vec![job(10)]), updates });
}

#[test]
fn scontrol_update_accepts_slurms_keys() {
    assert_eq!(changes(&["TimeLimit=+10"]), [Update::TimeLimitBy(600)]);
    assert_eq!(changes(&["TimeLimit=-10"]), [Update::TimeLimitBy(-600)]);
    // Limits are in whole minutes.
    assert_eq!(changes(&["TimeLimit=+5:30"]), [Update::TimeLimitBy(360)]);
    assert_eq!(changes(&["TimeLimit=-5:30"]), [Update::TimeLimitBy(-360)]);
    assert_eq!(changes(&["Nice=100", "NumCPUs=2"]), [Update::Nice(100), Update::NumCpus(2)]);
    assert_eq!(
        changes(&["MinMemoryNode=50", "Requeue=0"]),
        [Update::MinMemoryNode(50), Update::Requeue(false)]
    );
    assert_eq!(changes(&["ArrayTaskThrottle=0"]), [Update::ArrayTaskThrottle(None)]);
    assert_eq!(changes(&["Comment=new c"]), [Update::Text(KeptText::Comment, "new c".into())]);
    assert_eq!(
        changes(&["StartTime=now+1hour"]),
        [Update::StartTime(lab(&[]).now.plus_secs(3600))]
    );
    for (end, secs) in [("now+10minutes", 600), ("now+90", 90), ("now-60", -60)] {
        let at = Timestamp::from_secs(lab(&[]).now.as_secs() + secs);
        assert_eq!(changes(&[&format!("EndTime={end}")]), [Update::EndTime(at)], "{end}");
    }
    assert_eq!(changes(&["WorkDir=x"]), [Update::WorkDir("/work/x".into())]);
    let gpus = |per_node, model: Option<&str>| {
        [Update::Gpus(GpuRequest {
            per_node,
            model: model.map(str::to_owned),
            ..GpuRequest::default()
        })]
    };
    assert_eq!(changes(&["Gres=gpu:2"]), gpus(Some(2), None));
    assert_eq!(changes(&["Gres=gpu:a100:2"]), gpus(Some(2), Some("a100")));
    assert_eq!(changes(&["Gres="]), gpus(Some(0), None));
    assert_eq!(changes(&["Gres=gpu:0"]), gpus(Some(0), None));
    assert!(
        matches!(&changes(&["Dependency=afterany:190"])[..], [Update::Dependency(d)] if d.terms.len() == 1)
    );
    assert!(matches!(&changes(&["Dependency="])[..], [Update::Dependency(d)] if d.is_empty()));
    let named = command(&["update", "JobName=runningx", "TimeLimit=5"]);
    assert!(
        matches!(named, Command::Update { target: Target::Name(name), .. } if name == "runningx")
    );
}

// Other commands

fn parsed<T>(
    parse: impl Fn(&[OsString], &crate::args::origin::Origin) -> Result<T, CliError>,
    words: &[&str],
) -> Result<T, (String, i32)> {
    run(parse(&argv(words[0], &words[1..]), &lab(&[])), words[0])
}

#[test]
fn sattach_accepts_one_step() {
    let (got, step) =
        parsed(sattach::parse, &["sattach", "-l", "--output-filter=1", "12.3"]).expect("good");
    assert_eq!((step.to_string().as_str(), got.label, got.output_filter), ("12.3", true, Some(1)));
    assert_eq!(parsed(sattach::parse, &["sattach", "12"]).expect("good").1.to_string(), "12.0");
    let refusal = parsed(sattach::parse, &["sattach", "x.0"]).map(|_| ());
    assert_eq!(refusal, Err(("sattach: error: Invalid job step id: x.0\n".into(), 1)));
    assert!(parsed(sattach::parse, &["sattach"]).is_err());
}

#[test]
fn sstat_selects_jobs_and_steps() {
    let got = parsed(
        sstat::parse,
        &["sstat", "--format=JobID,MaxRSS", "--allsteps", "--parsable2", "--jobs=12,13.0"],
    )
    .expect("good");
    assert_eq!(
        (got.jobs.len(), got.allsteps, got.format.join(",").as_str()),
        (2, true, "JobID,MaxRSS")
    );
    assert!(parsed(sstat::parse, &["sstat"]).is_err());
    assert!(parsed(sstat::parse, &["sstat", "-e"]).expect("good").helpformat);
}

#[test]
fn sdiag_sprio_and_seff() {
    assert!(parsed(sdiag::parse, &["sdiag", "-r"]).expect("good").reset);
    assert!(parsed(sdiag::parse, &["sdiag", "x"]).is_err());
    for (words, order) in [
        (&["sdiag"][..], [false, false, false]),
        (&["sdiag", "-i"], [true, false, false]),
        (&["sdiag", "-i", "--sort-by-time"], [false, true, false]),
        (&["sdiag", "-tT"], [false, false, true]),
    ] {
        let got = parsed(sdiag::parse, words).expect("good");
        assert_eq!([got.sort_by_id, got.sort_by_time, got.sort_by_time2], order, "{words:?}");
    }
    let got = parsed(sprio::parse, &["sprio", "-hl", "-j", "1,2", "-u", "lab"]).expect("good");
    assert!(got.noheader && got.long && got.jobs.len() == 2);
    assert_eq!(parsed(seff::parse, &["seff", "12_3"]).expect("good").jobs()[0].to_string(), "12_3");
    assert!(parsed(seff::parse, &["seff"]).is_err());
    let (version, exit) = parsed(seff::parse, &["seff", "-v"]).map(|_| ()).expect_err("prints");
    assert!(version.starts_with("slurm-wlm ") && exit == 0);
}
