//! `slotd log`, `slotd run`, `slotd wait`: the output of jobs by their numbers, followed to the
//! end.

use slotd_kit::Slotd;
use std::fs;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// A job that writes to both streams and waits for a gate before it goes on.
fn two_streams(slotd: &Slotd) -> u32 {
    let script = "echo out1; echo err1 >&2; touch begun; until [ -e gate ]; do sleep 0.02; done; echo out2; echo err2 >&2; exit 3";
    let job = slotd.wrap(&["-o", "job.out", "-e", "job.err"], script);
    slotd_kit::until(|| slotd.work().join("begun").exists().then_some(())).expect("it has begun");
    job
}

fn open_gate(slotd: &Slotd) {
    fs::write(slotd.work().join("gate"), "").unwrap();
}

#[test]
fn the_output_of_a_job_is_shown_by_its_number() {
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
    assert!(own.stderr.contains("it is also where it would be shown"), "{}", own.stderr);
    assert_eq!(slotd.line(&format!("slotd log -n 1 {lines}")).ok().stdout, "100000\n");
    open_gate(&slotd);
}

#[test]
fn a_job_is_followed_to_its_end_and_its_exit_code_handed_on() {
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
fn following_outlives_the_daemon_and_a_file_that_is_replaced() {
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
fn a_requeued_job_and_the_tasks_of_an_array_are_followed() {
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
fn a_command_is_run_as_a_job_and_its_exit_code_handed_on() {
    let slotd = Slotd::start();
    // What an earlier job has left under this name is not shown.
    let earlier = fs::File::create(slotd.work().join("run.out")).unwrap();
    (&earlier).write_all(b"old\n").unwrap();
    earlier.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let out = slotd
        .sh("slotd run -c 2 -o run.out -- sh -c 'echo \"$SLURM_CPUS_PER_TASK words\"; exit 7'")
        .fails(7);
    assert_eq!(
        (out.stdout.as_str(), out.stderr.as_str()),
        ("2 words\n", "slotd: job 1 is submitted\n")
    );
    assert_eq!(slotd.show(1, "JobName"), "sh");
    slotd.line("slotd run -- true").ok();
    slotd.line("slotd run --nosuch -- true").fails(255);
    slotd.line("slotd run -c 99 -- true").fails(1);
}

#[test]
fn a_run_that_is_interrupted_in_a_pipe_cancels_its_job() {
    let slotd = Slotd::start();
    let mut command = slotd.command("slotd");
    command.args(["run", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    let mut running = slotd.spawn(command);
    running.wait_stderr("job 1 is submitted");
    slotd.wait_state(1, "RUNNING");
    running.signal(libc::SIGINT);
    let out = running.end();
    assert_ne!(out.code, 0, "{out:?}");
    assert!(out.stderr.contains("slotd: job 1 is cancelled\n"), "{out:?}");
    slotd.wait_state(1, "CANCELLED");
}

#[test]
fn jobs_are_waited_for_without_a_word_in_a_pipe() {
    let slotd = Slotd::start();
    let held = slotd.wrap(&["-H"], "true");
    slotd.expect(
        &format!("slotd log {held}"),
        0,
        "",
        "slotd: job 1 is PENDING: it has no output yet\n",
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
