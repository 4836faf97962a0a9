//! Regression tests for unusual places: full devices, names that are not UTF-8, odd paths.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;
use slotd_kit::Slotd;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

#[test]
fn a_full_standard_output_is_an_error_that_names_the_submitted_job() {
    let slotd = Slotd::start();
    let mut sbatch = slotd.command("sbatch");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    sbatch.args(["--wrap", "true"]).stdout(full);
    let out = sbatch.output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(stderr.starts_with("sbatch: error: cannot write to standard output: "), "{stderr}");
    assert!(stderr.ends_with("sbatch: error: job 1 was submitted\n"), "{stderr}");
    slotd.wait_end(1);
}

#[test]
fn srun_reports_lost_output_and_the_tasks_continue() {
    let slotd = Slotd::start();
    let full = |options: &[&str], script: &str| {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut srun = slotd.command("srun");
        let out = srun.args(options).args(["sh", "-c", script]).stdout(full).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let lost = "srun: error: output of the tasks was lost: cannot write to standard output: No space left on device (os error 28)\n";
    for options in [&["-l"][..], &["-n2"], &["-l", "-u"]] {
        let script = "echo one; echo two; echo $? >> written";
        assert_eq!(full(options, script), (Some(1), lost.to_owned()), "{options:?}");
    }
    assert_eq!(slotd.read("written"), "0\n".repeat(4));
    let (code, stderr) = full(&["-l"], "echo one; exit 3");
    assert_eq!((code, stderr.ends_with(lost)), (Some(3), true), "{stderr}");
    assert_eq!(full(&["-l"], "true"), (Some(0), String::new()));

    // If the reader has exited, there is no point in continuing.
    let out = slotd.sh("srun -l sh -c 'yes' | head -1");
    assert_eq!(out.text(), "0: y");
    slotd.wait("the end of the step", || {
        slotd.all_records().iter().all(|job| job.is_over()).then_some(())
    });
}

#[test]
fn every_command_fails_if_standard_output_is_full() {
    let slotd = Slotd::start();
    for (number, line) in (1..).zip([
        &["srun", "--no-wait", "true"][..],
        &["sbatch", "--wrap", "true"],
        &["sbatch", "--parsable", "--wrap", "true"],
        &["sbatch", "-W", "--wrap", "true"],
    ]) {
        let stderr = fails_on_full(&slotd, line);
        assert!(stderr.ends_with(&format!("error: job {number} was submitted\n")), "{stderr}");
        slotd.wait_state(number, "COMPLETED");
    }
    for line in [
        &["squeue"][..],
        &["sacct"],
        &["sinfo"],
        &["scontrol", "show", "config"],
        &["slotd", "doctor"],
        &["slotd", "daemon", "status"],
        &["slotd", "db", "check"],
    ] {
        fails_on_full(&slotd, line);
    }
    assert_eq!(slotd.all_records().len(), 4);
}

/// Runs the command with a full standard output. Returns its messages.
#[track_caller]
fn fails_on_full(slotd: &Slotd, line: &[&str]) -> String {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = slotd.command(line[0]).args(&line[1..]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{line:?}: {stderr}");
    let wanted = format!("{}: error: cannot write to standard output: ", line[0]);
    assert!(stderr.contains(&wanted), "{line:?}: {stderr}");
    stderr
}

#[test]
fn output_of_a_program_on_a_terminal_that_srun_cannot_write_is_reported() {
    let slotd = Slotd::start();
    let pty = nix::pty::openpty(None, None).unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut srun = slotd.command("srun");
    let out = srun.args(["--pty", "echo", "hi"]).stdin(pty.slave).stdout(full).output().unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    let wanted = "srun: error: output of the tasks was lost: cannot write to standard output: ";
    assert!(stderr.contains(wanted), "{stderr}");
}

#[test]
fn a_full_standard_error_does_not_change_the_exit_code() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H"], "true").to_string();
    let lines: [(&[&str], i32); 4] = [
        (&["squeue", "--bad"], 1),
        (&["sbatch", "--bad"], 255),
        (&["slotd", "bad"], 2),
        (&["scancel", "-v", &job], 0),
    ];
    for (line, code) in lines {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = slotd.command(line[0]).args(&line[1..]).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{line:?}");
    }
    slotd.wait_state(1, "CANCELLED");
}

#[test]
fn an_endless_script_is_refused() {
    let slotd = Slotd::start();
    let out = slotd.cmd("sbatch", &["/dev/zero"]).fails(1);
    assert!(
        out.stderr.contains("/dev/zero") && out.stderr.contains("larger than"),
        "{}",
        out.stderr
    );
    assert!(slotd.all_records().is_empty());
}

#[test]
fn a_working_directory_that_is_not_utf8_is_refused() {
    let slotd = Slotd::start();
    let dir = slotd.work().join(OsStr::from_bytes(b"bad\xff"));
    fs::create_dir(&dir).unwrap();
    for command in ["sbatch", "srun", "salloc"] {
        let mut command_line = slotd.command(command);
        command_line.args(["-J", "x", "/bin/true"]).env("PWD", &dir).current_dir(&dir);
        let out = slotd.run(command_line).fails(1);
        assert!(out.stderr.contains("not valid UTF-8"), "{command}: {}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
    assert_eq!(fs::read_dir(slotd.work()).unwrap().count(), 1, "another directory was created");
}

#[test]
fn a_runtime_root_that_is_not_utf8_is_refused() {
    let slotd = Slotd::setup().prepare();
    let mut daemon = slotd.daemon_command();
    let root = slotd.work().join(OsStr::from_bytes(b"root\xff"));
    let out = daemon.env("SLOTD_ROOT", &root).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(stderr.contains("the runtime root is not valid UTF-8"), "{stderr}");
    assert!(!root.exists());
}

#[test]
fn a_relative_runtime_root_is_absolute_for_its_jobs() {
    let mut slotd = Slotd::setup().prepare();
    // The daemons of tests start in `/`.
    let relative = slotd.root.strip_prefix("/").unwrap().display().to_string();
    slotd.reset_var("SLOTD_ROOT", relative);
    slotd.start_daemon();
    let job = slotd.wrap(&[], "echo $SLOTD_ROOT; srun echo a step");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(slotd.output(job), format!("{}\na step\n", slotd.root.display()));
}

#[test]
fn a_job_name_with_a_newline_is_one_row() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-J", "two\nrows"]);
    let table = slotd.cmd("squeue", &["-h"]).ok();
    assert_eq!(table.lines().len(), 1, "{}", table.stdout);
    assert!(table.stdout.contains("two\\012rows"), "{}", table.stdout);
    let parsable = slotd.cmd("sacct", &["-XPn", "-o", "jobname,state"]).ok();
    assert_eq!(parsable.stdout, "two\\012rows|RUNNING\n");
    slotd.cancel(job);
}

#[test]
fn runner_sh_runs_under_a_root_with_special_characters() {
    let mut slotd = Slotd::setup().prepare();
    slotd.root = slotd.base.join("odd '\"\ntouch $HOME");
    slotd.start_daemon();
    let job = slotd.wrap(&["-o", "out"], "echo hello");
    slotd.wait_state(job, "COMPLETED");
    let runner =
        slotd.wait("runner.sh", || fs::read_to_string(slotd.job_dir(job).join("runner.sh")).ok());
    assert!(runner.lines().nth(1).unwrap().ends_with("/runner.sh"), "{runner}");
    let again = slotd.sh(&format!("sh \"$SLOTD_ROOT/lib/jobs/{job}/runner.sh\""));
    assert_eq!((again.code, again.stderr.as_str()), (0, ""));
    assert_eq!(slotd.read("out"), "hello\n");
}

#[test]
fn the_daemon_serves_more_clients_than_the_soft_limit_on_files() {
    let slotd = Slotd::setup().prepare();
    let mut command = slotd.daemon_command();
    let low = || {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(setrlimit(Resource::RLIMIT_NOFILE, 128.min(hard), hard)?)
    };
    // SAFETY: Only two system calls run between fork and exec.
    unsafe { command.pre_exec(low) };
    let mut daemon = command.stderr(Stdio::null()).spawn().unwrap();
    slotd.wait("the daemon", || slotd.ask(&json!("Ping")).ok());
    let socket = slotd.root.join("run/slotd.sock");
    let idle: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    slotd.sh("ulimit -Sn 100; sbatch -W -o out --wrap 'ulimit -Sn'").ok();
    assert_eq!(
        slotd.read("out"),
        "100\n",
        "jobs have their submitter's limit, not the raised one of the daemon"
    );
    drop(idle);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn a_job_that_waits_for_a_reader_of_its_output_pipe_can_be_cancelled() {
    let slotd = Slotd::setup().set("SLOTD_KILL_WAIT", 1000).start();
    mkfifo(&slotd.path("pipe"), Mode::S_IRWXU).unwrap();
    let job = slotd.wrap(&["-o", "pipe"], "echo never");
    // The script is written just before its task starts.
    slotd.wait("the script", || slotd.job_dir(job).join("runner.sh").exists().then_some(()));
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
}

#[test]
fn waiting_clients_get_the_exit_code_even_if_ended_jobs_are_forgotten_at_once() {
    let slotd = Slotd::setup().set("SLOTD_MIN_JOB_AGE", 0).start();
    let waits = |args: &[&str], script: &str| {
        slotd.cmd("sbatch", &[&["-W", "--wrap", script], args].concat())
    };
    waits(&[], "exit 3").fails(3);
    // The task with the array's job ID ends, and is forgotten, before the others.
    waits(
        &["-a", "0-2"],
        "[ $SLURM_JOB_ID = $SLURM_ARRAY_JOB_ID ] || sleep 0.3; exit $SLURM_ARRAY_TASK_ID",
    )
    .fails(2);
    slotd.cmd("srun", &["sh", "-c", "exit 4"]).fails(4);
    slotd.cmd("salloc", &["sh", "-c", "exit 5"]).fails(5);
}
