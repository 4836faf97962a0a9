//! Basics of all commands: names, getopt rules, help and versions, and the book's quick start.

use expect_test::{ExpectFile, expect_file};
use slotd_kit::{Slotd, program};
use std::process::Command;

#[test]
fn sbatch_prints_the_id_of_the_job() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["--wrap", "echo hello from slotd"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("Submitted batch job 1\n", ""));
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.output(1), "hello from slotd\n");
    assert_eq!(slotd.cmd("sbatch", &["--parsable", "--wrap", "true"]).ok().stdout, "2\n");
}

#[test]
fn quiet_sbatch_prints_nothing() {
    let slotd = Slotd::start();
    for args in [["-Q", "--wrap=true"], ["--quiet", "--wrap=true"]] {
        assert_eq!(slotd.cmd("sbatch", &args).ok().stdout, "");
    }
    assert_eq!(slotd.cmd("sbatch", &["-Q", "--parsable", "--wrap=true"]).ok().stdout, "");
    assert_eq!(slotd.all_records().len(), 3);
}

#[test]
fn options_follow_the_rules_of_getopt_long() {
    let slotd = Slotd::start();
    let named = |args: &[&str]| {
        let id = slotd.submit(args);
        slotd.job(id).0["request"]["name"].as_str().unwrap().to_owned()
    };
    slotd.write("job.sh", "#!/bin/sh\ntrue\n");
    assert_eq!(named(&["-J", "a", "job.sh"]), "a");
    assert_eq!(named(&["-Jb", "job.sh"]), "b");
    assert_eq!(named(&["--job-name", "c", "job.sh"]), "c");
    assert_eq!(named(&["--job-name=d", "job.sh"]), "d");
    // A unique prefix of an option.
    assert_eq!(named(&["--job-n=e", "job.sh"]), "e");
    assert_eq!(named(&["--job", "f", "job.sh"]), "f");
    // Combined short options: the last one takes the value.
    assert_eq!(named(&["-HJ", "g", "job.sh"]), "g");
    assert_eq!(named(&["-HJh", "job.sh"]), "h");
    // The last of two wins.
    assert_eq!(named(&["-J", "x", "-J", "i", "job.sh"]), "i");
    // Words after the script are its arguments.
    assert_eq!(named(&["job.sh", "-J", "other"]), "job.sh");
    assert_eq!(named(&["-J", "j", "--", "job.sh"]), "j");
}

#[test]
fn scancel_accepts_options_after_operands() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true");
    slotd.cmd("scancel", &[&job.to_string(), "-Q"]).ok();
    slotd.wait_state(job, "CANCELLED");
}

/// Returns the help of a command.
fn recorded(command: &str) -> ExpectFile {
    expect_file![format!("{}/tests/recorded/help/{command}.txt", env!("CARGO_MANIFEST_DIR"))]
}

#[test]
fn every_command_has_help_and_version() {
    // Neither requires a daemon.
    let slotd = Slotd::setup().prepare();
    let names = slotd.cmd("slotd", &["commands"]).ok();
    assert_eq!((names.lines().len(), names.lines()[0]), (21, "sbatch"), "{names:?}");
    for command in names.lines() {
        let help = slotd.cmd(command, &["--help"]).ok();
        assert!(help.stderr.is_empty(), "{command}: {help:?}");
        recorded(command).assert_eq(&help.stdout);
        let version = slotd.cmd(command, &["--version"]).ok();
        assert!(version.stdout.starts_with("slurm"), "{command}: {version:?}");
        assert_eq!(version.lines().len(), 1, "{command}: {version:?}");
    }
    assert!(slotd.cmd("slotd", &["--version"]).ok().stdout.starts_with("slotd "));
    recorded("slotd").assert_eq(&slotd.cmd("slotd", &["--help"]).ok().stdout);
}

#[test]
fn commands_are_subcommands_of_slotd_too() {
    let slotd = Slotd::start();
    let out = slotd.cmd("slotd", &["sbatch", "--parsable", "--wrap", "true"]).ok();
    assert_eq!(out.stdout, "1\n");
}

#[test]
fn renamed_program_acts_as_slotd() {
    let slotd = Slotd::start();
    let renamed = slotd.base.join("bin/slotd-1.2");
    std::os::unix::fs::symlink(program(), &renamed).unwrap();
    let out = slotd.cmd("slotd-1.2", &["sbatch", "--parsable", "--wrap", "true"]).ok();
    assert_eq!(out.stdout, "1\n");
    assert!(slotd.cmd("slotd-1.2", &["--version"]).ok().stdout.starts_with("slotd "));
}

#[test]
fn runtime_root_is_in_the_home_directory_by_default() {
    let slotd = Slotd::setup().prepare();
    let mut command = slotd.command("sbatch");
    command.env_remove("SLOTD_ROOT").args(["--wrap", "true"]);
    let out = slotd.run(command).fails(1);
    let expected = slotd.base.join("home/.local/share/slotd/run/slotd.sock");
    assert!(out.stderr.contains(expected.to_str().unwrap()), "{}", out.stderr);
}

#[test]
fn command_exits_quietly_when_its_reader_closes() {
    let slotd = Slotd::start();
    let out = slotd.sh("sbatch --help | head -1").ok();
    assert_eq!(out.stderr, "");
}

#[test]
fn quick_start_of_the_book_works() {
    let slotd = Slotd::start();
    let sinfo = slotd.cmd::<&str>("sinfo", &[]).ok();
    assert_eq!(
        sinfo.lines()[0].split('|').map(str::trim).collect::<Vec<_>>(),
        ["PARTITION", "HOSTNAMES", "STATE", "FEATURES", "GRES_USED"]
    );
    assert!(sinfo.lines()[1].starts_with("cpu*"), "{}", sinfo.stdout);
    let header = "JOBID | PARTITION | NAME | USER | ST | TIME | NODELIST(REASON)";
    let words = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let squeue = slotd.cmd::<&str>("squeue", &[]).ok();
    assert_eq!(squeue.lines().len(), 1, "{}", squeue.stdout);
    assert_eq!(words(squeue.lines()[0]), words(header));
    assert_eq!(slotd.cmd::<&str>("sacct", &[]).ok().lines().len(), 1);

    let job = slotd.wrap(&[], &slotd.gate("go"));
    slotd.wait_state(job, "RUNNING");
    let squeue = slotd.cmd::<&str>("squeue", &[]).ok();
    assert_eq!(words(squeue.lines()[1])[..3], ["1", "cpu", "wrap"]);
    assert_eq!(words(squeue.lines()[1])[4], "R");
    slotd.open("go");
    slotd.wait_state(job, "COMPLETED");
    let sacct = slotd.cmd::<&str>("sacct", &[]).ok();
    assert_eq!(
        words(sacct.lines()[0]),
        ["JobID", "Partition", "JobName", "User", "State", "ExitCode"]
    );
    let row = words(sacct.lines()[1]);
    assert_eq!((row[0].as_str(), row[4].as_str(), row[5].as_str()), ("1", "COMPLETED", "0:0"));
    let show = slotd.cmd("scontrol", &["show", "job", "1"]).ok();
    assert!(show.stdout.starts_with("JobId=1 JobName=wrap\n"), "{}", show.stdout);
    let srun = slotd.cmd("srun", &["--label", "--unbuffered", "--", "echo", "hello"]).ok();
    assert_eq!(srun.stdout, "0: hello\n");
}

#[test]
fn commands_do_not_find_another_daemon() {
    // The harness would be worthless if a command could find another daemon.
    let slotd = Slotd::start();
    let mut command = Command::new(program());
    command.env_clear().arg("sbatch").args(["--wrap", "true"]);
    assert_eq!(slotd.run(command).code, 1);
}
