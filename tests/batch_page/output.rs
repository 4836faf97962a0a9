//! "Output Paths" and "Environment Export": tokens, defaults, values, examples.

use slotd_kit::Slotd;

/// Runs a job with this pattern for its output: the file with this name has it.
#[track_caller]
fn writes(slotd: &Slotd, args: &[&str], pattern: &str, file: impl Fn(u32) -> String) {
    let id = slotd.wrap(&[args, &["-o", pattern]].concat(), "echo here");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read(&file(id)), "here\n", "{pattern}");
}

fn host() -> String {
    slotd::sys::system::probe_host_name()
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
    // Without an array: the job's own number.
    writes(&slotd, &[], "y-%A", |id| format!("y-{id}"));
}

#[test]
fn token_a_array_task_id() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "3-4", "-o", "x-%a"], "echo here");
    slotd.wait_array(id, 2);
    assert!(slotd.exists("x-3") && slotd.exists("x-4"));
    // Without an array: Slurm's "no value".
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
    writes(&Slotd::start(), &[], "%N.out", |_| format!("{}.out", host()));
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
fn default_non_array_stdout() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&[], "echo out");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read(&format!("slurm-{id}.out")), "out\n");
}

#[test]
fn default_array_stdout() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-1"], "echo out");
    slotd.wait_array(id, 2);
    for task in 0..2 {
        assert_eq!(slotd.read(&format!("slurm-{id}_{task}.out")), "out\n");
    }
}

#[test]
fn default_stderr_is_stdout_unless_error_is_set() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-o", "both"], "echo out; echo err >&2");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read("both"), "out\nerr\n");
    let id = slotd.wrap(&["-o", "out", "-e", "err"], "echo out; echo err >&2");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!((slotd.read("out"), slotd.read("err")), ("out\n".to_owned(), "err\n".to_owned()));
}

#[test]
fn missing_parent_directories_are_made() {
    writes(&Slotd::start(), &[], "logs/of/%j/out", |id| format!("logs/of/{id}/out"));
}

#[test]
fn the_output_is_there_from_the_start() {
    let slotd = Slotd::start();
    let id = slotd.begun(&[], "go", "true");
    assert_eq!(slotd.output(id), "");
    slotd.cancel(id);
}

#[test]
fn an_output_that_cannot_be_made_is_a_failed_job_that_says_why() {
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
fn two_jobs_may_write_one_file() {
    let slotd = Slotd::start();
    let both = ["a", "b"].map(|word| {
        let script = format!("{}; for i in 1 2 3 4 5; do echo {word}; done", slotd.gate("go"));
        slotd.wrap(&["-o", "log", "--open-mode", "append"], &script)
    });
    both.iter().for_each(|id| drop(slotd.wait_state(*id, "RUNNING")));
    slotd.open("go");
    both.iter().for_each(|id| drop(slotd.wait_state(*id, "COMPLETED")));
    let mut lines: Vec<String> = slotd.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.concat(), "aaaaabbbbb");
}

// Environment export.

#[track_caller]
fn seen(slotd: &Slotd, args: &[&str], script: &str) -> String {
    let mut command = slotd.command("sbatch");
    command.env("FOO", "mine").env("BAR", "two words").arg("--parsable").args(args).args(["--wrap", script]);
    let id = slotd.run(command).ok().text().parse().unwrap();
    slotd.wait_state(id, "COMPLETED");
    slotd.output(id)
}

const SHOW: &str = "echo \"${FOO-unset},${BAR-unset},${NEW-unset}\"";

#[test]
fn export_all() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "ALL"], SHOW), "mine,two words,unset\n");
    // It is the default.
    assert_eq!(seen(&slotd, &[], SHOW), "mine,two words,unset\n");
}

#[test]
fn export_none() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "NONE"], SHOW), "unset,unset,unset\n");
    // What a shell and slotd's own commands need is still there.
    let basics = seen(&slotd, &["--export=NONE"], "echo $HOME; scontrol ping; echo $SLURM_JOB_ID");
    assert!(basics.starts_with(&slotd.base.join("home").display().to_string()), "{basics}");
    assert!(basics.contains(" is UP\n"), "{basics}");
}

#[test]
fn export_key_value() {
    let slotd = Slotd::start();
    assert_eq!(seen(&slotd, &["--export", "FOO=other,NEW=1"], SHOW), "other,unset,1\n");
    assert_eq!(seen(&slotd, &["--export", "ALL,NEW='a,b'"], SHOW), "mine,two words,a,b\n");
    assert_eq!(seen(&slotd, &["--export", "BAR,NEW=1"], SHOW), "unset,two words,1\n");
}

#[test]
fn export_example() {
    let slotd = Slotd::start();
    let out = slotd.sh("sbatch --export FOO=bar,HELLO=world --wrap 'echo \"$FOO $HELLO\"'").ok();
    assert_eq!(out.text(), "Submitted batch job 1");
    slotd.wait_state(1, "COMPLETED");
    assert_eq!(slotd.output(1), "bar world\n");
}
