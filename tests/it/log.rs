//! `slotd log`, `slotd run` and `slotd wait`: following jobs and their output by job ID.

use slotd_kit::{Setup, Slotd};
use std::fs;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// Starts a job that writes to both streams, waits for a gate, and writes again.
fn two_streams(slotd: &Slotd) -> u32 {
    let script = "echo out1; echo err1 >&2; touch begun; until [ -e gate ]; do sleep 0.02; done; echo out2; echo err2 >&2; exit 3";
    let job = slotd.wrap(&["-o", "job.out", "-e", "job.err"], script);
    slotd_kit::until(|| slotd.work().join("begun").exists().then_some(()))
        .expect("the job should begin");
    job
}

fn open_gate(slotd: &Slotd) {
    fs::write(slotd.work().join("gate"), "").unwrap();
}

#[test]
fn log_prints_the_output_of_a_job() {
    let slotd = Slotd::start();
    let lines = slotd.wrap(&[], "seq 100000");
    let job = two_streams(&slotd);
    slotd.wait_end(lines);
    let last = slotd.line(&format!("slotd log -n 2 {lines}")).ok();
    assert_eq!(last.lines(), ["99999", "100000"]);
    let shown = slotd.line(&format!("slotd log {job}")).ok();
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), ("out1\n", "err1\n"));
    assert_eq!(slotd.line(&format!("slotd log -e {job}.batch")).ok().stdout, "err1\n");
    let both = slotd.line(&format!("slotd log -n 1 {lines} {job}")).ok();
    assert_eq!(both.lines(), [format!("{lines}: 100000"), format!("{job}: out1")]);
    slotd.expect(
        "slotd log 999",
        1,
        "",
        "slotd: error: there is no job 999\n  hint: `sacct` lists all jobs\n",
    );
    let own = slotd.sh(&format!("slotd log {lines} >>slurm-{lines}.out")).fails(1);
    assert!(
        own.stderr.contains("cannot show this file, because the output goes to it"),
        "{}",
        own.stderr
    );
    assert_eq!(slotd.line(&format!("slotd log -n 1 {lines}")).ok().stdout, "100000\n");
    open_gate(&slotd);
}

/// Tasks that have not started share a record, which later stands for others only.
#[test]
fn tasks_of_an_array_are_waited_for_before_they_have_a_record() {
    let slotd = Setup::default().set("SLOTD_CPUS", 1).start();
    let script = "until [ -e gate ]; do sleep 0.02; done; echo $SLURM_ARRAY_TASK_ID; \
                  exit $SLURM_ARRAY_TASK_ID";
    let array = slotd.submit(&["-a", "1-6%1", "-o", "%a.out", "--wrap", script]);
    let waits = ["_3", "_[2,4]", "_6"].map(|tasks| {
        let job = format!("{array}{tasks}");
        ["wait", "log -f"].map(|words| {
            let mut command = slotd.command("slotd");
            command.args(words.split(' ')).arg(&job);
            slotd.spawn(command)
        })
    });
    open_gate(&slotd);
    for (waits, code) in waits.into_iter().zip([3, 4, 6]) {
        waits.into_iter().for_each(|waiting| drop(waiting.end().fails(code)));
    }
}

#[test]
fn log_names_outputs_that_keep_nothing() {
    let slotd = Slotd::start();
    slotd.sh("mkfifo fifo").ok();
    let piped = slotd.wrap(&["-o", "fifo", "-e", "/dev/null"], "echo out");
    assert_eq!(slotd.sh("cat fifo").ok().stdout, "out\n");
    slotd.wait_end(piped);
    let fifo = slotd.work().join("fifo");
    let warning =
        |path: &str| format!("slotd: output goes to {path}, which keeps nothing to show\n");
    slotd.expect(&format!("slotd log {piped}"), 0, "", &warning(&fifo.display().to_string()));
    slotd.expect(&format!("slotd log -e {piped}"), 0, "", &warning("/dev/null"));
    // One line for all tasks of an array, and none for a job that has not started.
    let array = slotd.submit(&["-W", "-a", "1-3", "-o", "/dev/null", "--wrap", "true"]);
    slotd.expect(&format!("slotd log {array}"), 0, "", &warning("/dev/null"));
    let held = slotd.submit(&["-H", "-o", "/dev/null", "--wrap", "true"]);
    let pending = format!("slotd: job {held} is PENDING and has no output yet\n");
    slotd.expect(&format!("slotd log {held}"), 0, "", &pending);
}

#[test]
fn log_follows_a_job_to_its_end_and_returns_its_exit_code() {
    let slotd = Slotd::start();
    let job = two_streams(&slotd);
    let waiting = slotd.wrap(&["-d", &format!("afterany:{job}"), "-J", "after"], "echo late");
    let mut command = slotd.command("slotd");
    command.args(["log", "-f", &job.to_string(), &waiting.to_string()]);
    let following = slotd.spawn(command);
    open_gate(&slotd);
    let out = following.end().fails(3);
    let want = [format!("{job}: out1"), format!("{job}: out2"), format!("{waiting}: late")];
    assert_eq!(out.lines(), want, "{out:?}");
    assert!(
        out.stderr.contains(&format!("{job}: err1\n"))
            && out.stderr.contains(&format!("{job}: err2\n")),
        "{out:?}"
    );
    assert!(
        out.stderr.contains(&format!("slotd: job {job} (wrap) is FAILED, exit code 3\n")),
        "{out:?}"
    );
    assert!(
        out.stderr.contains(&format!("slotd: job {waiting} (after) is COMPLETED, exit code 0\n")),
        "{out:?}"
    );
}

#[test]
fn following_survives_a_daemon_crash_and_a_replaced_file() {
    let mut slotd = Slotd::start();
    let job = two_streams(&slotd);
    let mut command = slotd.command("slotd");
    command.args(["log", "-f", &job.to_string()]);
    let mut following = slotd.spawn(command);
    following.wait_stderr("err1");
    slotd.kill9();
    let place = slotd.work().join("job.out");
    fs::rename(&place, slotd.work().join("old.out")).unwrap();
    fs::File::create(&place).unwrap().write_all(b"another file\n").unwrap();
    open_gate(&slotd);
    slotd.start_daemon();
    let out = following.end().fails(3);
    assert!(out.stdout.contains("out1\n") && out.stdout.contains("another file\n"), "{out:?}");
    assert!(out.stderr.contains("is FAILED, exit code 3"), "{out:?}");
}

#[test]
fn log_follows_requeued_jobs_and_array_tasks() {
    let slotd = Slotd::start();
    let again = slotd
        .wrap(&["--requeue"], "echo run $SLURM_RESTART_COUNT; test \"$SLURM_RESTART_COUNT\" = 1");
    let out = slotd.line(&format!("slotd log -f {again}")).ok();
    assert!(out.stdout.ends_with("run 1\n"), "{out:?}");
    let array = slotd
        .wrap(&["-a", "1-3%1"], "echo task $SLURM_ARRAY_TASK_ID; test $SLURM_ARRAY_TASK_ID != 2");
    let out = slotd.line(&format!("slotd log -f {array}")).fails(1);
    let want: Vec<String> = (1..=3).map(|task| format!("{array}_{task}: task {task}")).collect();
    assert_eq!(out.lines(), want, "{out:?}");
}

#[test]
fn run_runs_a_command_as_a_job_and_returns_its_exit_code() {
    let slotd = Slotd::start();
    // Old contents of the output file are not shown.
    let earlier = fs::File::create(slotd.work().join("run.out")).unwrap();
    (&earlier).write_all(b"old\n").unwrap();
    earlier.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let out = slotd
        .sh("slotd run -c 2 -o run.out -- sh -c 'echo \"$SLURM_CPUS_PER_TASK words\"; exit 7'")
        .fails(7);
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        ("2 words\n", "slotd: submitted job 1\n")
    );
    assert_eq!(slotd.show(1, "JobName"), "sh");
    slotd.line("slotd run -- true").ok();
    slotd.line("slotd run --nosuch -- true").fails(255);
    slotd.line("slotd run -c 99 -- true").fails(1);
}

#[test]
fn an_interrupted_run_without_a_terminal_cancels_its_job() {
    let slotd = Slotd::start();
    let mut command = slotd.command("slotd");
    command.args(["run", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    let mut running = slotd.spawn(command);
    running.wait_stderr("submitted job 1");
    slotd.wait_state(1, "RUNNING");
    running.signal(libc::SIGINT);
    let out = running.end();
    assert_ne!(out.code, 0, "{out:?}");
    assert!(out.stderr.contains("slotd: cancelling job 1\n"), "{out:?}");
    slotd.wait_state(1, "CANCELLED");
}

#[test]
fn wait_prints_nothing_without_a_terminal() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "true");
    slotd.expect(
        &format!("slotd log {held}"),
        0,
        "",
        "slotd: job 1 is PENDING and has no output yet\n",
    );
    let array = slotd.wrap(&["-a", "1-4"], "exit $((SLURM_ARRAY_TASK_ID % 3))");
    let other = slotd.wrap(&[], "true");
    slotd.expect(&format!("slotd wait {other} {array}"), 2, "", "");
    slotd.expect(&format!("slotd wait {other}"), 0, "", "");
    slotd.expect(
        "slotd wait 999",
        1,
        "",
        "slotd: error: there is no job 999\n  hint: `sacct` lists all jobs\n",
    );
}

#[test]
fn wait_continues_with_the_next_daemon() {
    let mut slotd = Slotd::start();
    let job = two_streams(&slotd);
    let array = slotd.wrap(&["-a", "1-3"], "until [ -e gate ]; do sleep 0.02; done; exit 5");
    let mut command = slotd.command("slotd");
    command.args(["wait", &job.to_string(), &array.to_string()]);
    let waiting = slotd.spawn(command);
    let asks = || slotd.line("sdiag").ok().stdout.contains("REQUEST_WAIT_END");
    slotd_kit::until(|| asks().then_some(())).expect("it asks for the end");
    slotd.kill9();
    slotd.start_daemon();
    open_gate(&slotd);
    let out = waiting.end().fails(5);
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("", ""));
    // All of them ended before.
    slotd.expect(&format!("slotd wait {array} {job}"), 5, "", "");
}

#[test]
fn wait_for_some_tasks_does_not_wait_for_their_array() {
    let slotd = Slotd::start();
    let script = "test $SLURM_ARRAY_TASK_ID = 4 && until [ -e gate ]; do sleep 0.02; done; \
                  exit $SLURM_ARRAY_TASK_ID";
    let array = slotd.wrap(&["-a", "1-4"], script);
    slotd.expect(&format!("slotd wait {array}_2"), 2, "", "");
    slotd.expect(&format!("slotd wait {array}_[1-3]"), 3, "", "");
    open_gate(&slotd);
    slotd.expect(&format!("slotd wait {array}"), 4, "", "");
}
