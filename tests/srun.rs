//! srun outside a job: it gets an allocation, runs one step and releases it (book, "What srun
//! Does").

use slotd_kit::{Setup, Slotd, proc};

#[test]
fn command_runs_in_the_foreground() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["echo", "a  b", "*", "$HOME"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("a  b * $HOME\n", ""));
}

#[test]
fn srun_creates_a_job_record_and_a_step() {
    let slotd = Slotd::start();
    slotd.cmd("srun", &["-J", "named", "true"]).ok();
    let job = slotd.wait_end(1);
    assert_eq!((job.state().as_str(), job.exit().as_str()), ("COMPLETED", "0:0"));
    assert_eq!(job.0["request"]["name"], "named");
    assert_eq!(job.steps().len(), 1);
    assert_eq!(job.steps()[0]["state"], "COMPLETED");
    assert_eq!(job.steps()[0]["id"]["Num"], 0);
}

#[test]
fn exit_code_is_that_of_the_command() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["sh", "-c", "exit 42"]).fails(42);
    assert!(out.stderr.contains(": task 0: Exited with exit code 42\n"), "{}", out.stderr);
    assert!(out.stderr.starts_with("srun: error: "), "{}", out.stderr);
    assert_eq!(slotd.wait_end(1).exit(), "42:0");
    slotd.cmd("srun", &["false"]).fails(1);
}

#[test]
fn exit_code_after_a_signal_is_128_plus_the_signal() {
    let slotd = Slotd::start();
    for (signal, code, text) in
        [("KILL", 137, "Killed"), ("TERM", 143, "Terminated"), ("SEGV", 139, "Segmentation fault")]
    {
        let out = slotd.cmd("srun", &["sh", "-c", &format!("kill -{signal} $$")]).fails(code);
        assert!(out.stderr.contains(&format!("task 0: {text}")), "{}", out.stderr);
    }
    assert_eq!(slotd.wait_end(1).exit(), "0:9");
}

#[test]
fn command_that_cannot_be_run_is_reported() {
    let slotd = Slotd::start();
    slotd.program("noshebang", "echo hello\n");
    for (command, code, text) in [
        ("nosuchcommand", 2, "execve(): nosuchcommand: No such file or directory"),
        ("/etc/passwd", 13, "execve(): /etc/passwd: Permission denied"),
        ("/usr", 13, "execve(): /usr: Permission denied"),
        ("./noshebang", 8, "Exec format error"),
    ] {
        let out = slotd.cmd("srun", &[command]).fails(code);
        assert!(out.stderr.contains(text), "{command}: {}", out.stderr);
        assert!(
            out.stderr.contains(&format!("task 0: Exited with exit code {code}")),
            "{command}: {}",
            out.stderr
        );
    }
}

#[test]
fn one_process_runs_for_each_task() {
    let slotd = Slotd::start();
    let out = slotd
        .cmd("srun", &["-n", "3", "sh", "-c", "echo $SLURM_PROCID/$SLURM_LOCALID/$SLURM_NTASKS"])
        .ok();
    let mut lines = out.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["0/0/3", "1/1/3", "2/2/3"]);
}

#[test]
fn highest_exit_code_of_the_tasks_counts() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["-n", "2", "sh", "-c", "exit $((SLURM_PROCID*5+3))"]).fails(8);
    assert!(out.stderr.contains("task 0: Exited with exit code 3"), "{}", out.stderr);
    assert!(out.stderr.contains("task 1: Exited with exit code 8"), "{}", out.stderr);
    let out = slotd.cmd("srun", &["-n", "2", "sh", "-c", "exit 7"]).fails(7);
    assert!(out.stderr.contains("tasks 0-1: Exited with exit code 7"), "{}", out.stderr);
}

#[test]
fn stdout_and_stderr_stay_separate() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["sh", "-c", "echo out; echo err >&2"]).ok();
    assert_eq!((out.stdout.as_str(), out.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn input_is_forwarded() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.arg("cat");
    assert_eq!(slotd.feed(srun, "through\0bytes\n").ok().stdout, "through\0bytes\n");
    // Each task receives all of the input.
    let mut srun = slotd.command("srun");
    srun.args(["-n", "2", "-l", "cat"]);
    let out = slotd.feed(srun, "line\n").ok();
    let mut lines = out.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["0: line", "1: line"]);
}

#[test]
fn megabytes_pass_through_a_pipeline_unchanged() {
    let slotd = Slotd::start();
    let script = "seq 1 2000000 | srun cat | cksum; seq 1 2000000 | cksum";
    let out = slotd.sh(script).ok();
    assert_eq!(out.lines()[0], out.lines()[1]);
    let out = slotd.sh("mkdir -p from to; echo content > from/f; tar -C from -c . | srun tar -C to -x; cat to/f").ok();
    assert_eq!(out.stdout, "content\n");
}

#[test]
fn command_that_does_not_read_its_input_ends_immediately() {
    let slotd = Slotd::start();
    // The writer writes more than the pipes hold.
    let out = slotd.sh("yes | srun head -c 4; echo ended").ok();
    assert!(out.stdout.ends_with("ended\n") && out.stdout.starts_with("y\ny\n"), "{}", out.stdout);
}

#[test]
fn srun_reports_that_it_is_queued() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let mut srun = slotd.command("srun");
    srun.args(["echo", "ran"]);
    let mut waiting = slotd.spawn(srun);
    waiting.wait_stderr("queued");
    slotd.wait_reason(2, "Resources");
    slotd.cancel(running);
    let out = waiting.end().ok();
    assert_eq!(out.stdout, "ran\n");
    assert_eq!(
        out.stderr,
        "srun: job 2 queued and waiting for resources\nsrun: job 2 has been allocated resources\n"
    );
}

#[test]
fn srun_cancelled_while_pending_prints_an_error() {
    let slotd = Slotd::start();
    slotd.endless(&["-c", "4"]);
    let mut srun = slotd.command("srun");
    srun.arg("true");
    let waiting = slotd.spawn(srun);
    slotd.wait("the job", || slotd.all_records().iter().any(|job| job.id() == 2).then_some(()));
    slotd.cancel(2);
    let out = waiting.end().fails(1);
    let why = "Unable to allocate resources: Job/step already completing or completed";
    assert!(
        out.stderr.ends_with(&format!("srun: Job has been cancelled\nsrun: error: {why}\n")),
        "{}",
        out.stderr
    );
    slotd.wait_state(2, "CANCELLED");
}

#[test]
fn cancelling_a_running_job_ends_its_srun() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo > ready; exec sleep 1000"]);
    let client = slotd.spawn(srun);
    slotd.wait_text("ready", "");
    slotd.cancel(1);
    let out = client.end();
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("CANCELLED AT"), "{}", out.stderr);
    let job = slotd.wait_end(1);
    assert_eq!((job.state().as_str(), job.reason().as_str()), ("CANCELLED", "CancelledByUser"));
}

#[test]
fn time_limit_ends_srun() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-t", "10", "sh", "-c", "echo > ready; exec sleep 1000"]);
    let client = slotd.spawn(srun);
    slotd.wait_text("ready", "\n");
    slotd.limit(1, 1);
    let out = client.end();
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("DUE TO TIME LIMIT ***"), "{}", out.stderr);
    slotd.wait_state(1, "TIMEOUT");
}

#[test]
fn killed_srun_releases_its_allocation() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["-c", "4", "sh", "-c", "echo > ready; exec sleep 1000"]);
    let client = slotd.spawn(srun);
    slotd.wait_text("ready", "");
    client.signal(proc::KILL);
    drop(client);
    let job = slotd.wait_end(1);
    assert_ne!(job.state(), "COMPLETED");
    assert!(!slotd.processes().iter().any(|pid| proc::cmdline(*pid).starts_with("sleep 1000")));
    let next = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(next, "COMPLETED");
}

#[test]
fn srun_killed_while_pending_leaves_the_queue() {
    let slotd = Slotd::start();
    slotd.endless(&["-c", "4"]);
    let mut srun = slotd.command("srun");
    srun.arg("true");
    let waiting = slotd.spawn(srun);
    slotd.wait("the job", || slotd.all_records().iter().any(|job| job.id() == 2).then_some(()));
    waiting.signal(proc::KILL);
    drop(waiting);
    slotd.wait_state(2, "CANCELLED");
}

#[test]
fn interrupt_goes_to_the_command_and_a_second_one_kills_it() {
    let slotd = Slotd::start();
    let mut srun = slotd.command("srun");
    srun.args(["sh", "-c", "echo > ready; exec sleep 1000"]);
    let client = slotd.spawn(srun);
    slotd.wait_text("ready", "");
    client.signal(proc::INT);
    // The same exit code as in a shell without slotd.
    client.end().fails(130);
    assert_eq!(slotd.wait_end(1).exit(), "0:2");

    let mut srun = slotd.command("srun");
    srun.args([
        "sh",
        "-c",
        "trap 'echo got it >> ints' INT; echo > deaf; while :; do sleep 0.05; done",
    ]);
    let mut client = slotd.spawn(srun);
    slotd.wait_text("deaf", "");
    client.signal(proc::INT);
    slotd.wait_text("ints", "got it");
    assert!(client.is_running());
    // The second interrupt must follow within a second of the first, however slow the machine is.
    let ended = slotd_kit::until(|| {
        client.signal(proc::INT);
        (!client.is_running()).then_some(())
    });
    assert!(ended.is_some(), "srun is still running");
    let out = client.end().fails(137);
    assert!(out.stderr.contains("srun: forcing job termination\n"), "{}", out.stderr);
}

#[test]
fn gpus_are_allocated_and_exported() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let script = "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS";
    assert_eq!(slotd.cmd("srun", &["-p", "gpu", "sh", "-c", script]).ok().stdout, "0 0\n");
    assert_eq!(
        slotd.cmd("srun", &["-p", "gpu", "-G", "2", "sh", "-c", script]).ok().stdout,
        "0,1 0,1\n"
    );
    assert_eq!(
        slotd.cmd("srun", &["sh", "-c", "echo \"[$CUDA_VISIBLE_DEVICES]\""]).ok().stdout,
        "[]\n"
    );
}

#[test]
fn concurrent_sruns_get_their_own_output() {
    let slotd = Slotd::start();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do srun --mem=1 -Q sh -c \"echo begin $i; echo end $i\" > out$i & done; wait";
    slotd.sh(script).ok();
    for i in 1..=10 {
        assert_eq!(slotd.read(&format!("out{i}")), format!("begin {i}\nend {i}\n"));
    }
}

#[test]
fn job_of_srun_ends_with_the_exit_code_of_its_step() {
    let slotd = Slotd::start();
    slotd.cmd("srun", &["sh", "-c", "exit 137"]).fails(137);
    assert_eq!(slotd.wait_end(1).exit(), "137:0");
    assert_eq!(slotd.sacct(1, "DerivedExitCode"), "137:0");
    assert_eq!(slotd.steps(1, "ExitCode"), "9:0\n9:0", "without 128, as Slurm's sacct prints it");
}

#[test]
fn streams_of_the_maximum_number_of_tasks_are_relayed() {
    let slotd = Slotd::start();
    let mut srun = slotd.shell();
    srun.args(["-c", "ulimit -Sn 1000; exec srun -O -n 512 sh -c 'read line; echo $SLURM_PROCID $line $(ulimit -Sn)'"]);
    let out = slotd.feed(srun, "read\n").ok();
    let mut lines = out.lines();
    let rank = |line: &&str| line.split(' ').next().and_then(|rank| rank.parse::<u32>().ok());
    lines.sort_by_key(rank);
    let expected: Vec<String> = (0..512).map(|rank| format!("{rank} read 1000")).collect();
    assert_eq!(lines, expected, "each task has its own streams and the submitter's limit");
}

#[test]
fn more_tasks_than_the_maximum_are_refused() {
    let slotd = Slotd::start();
    let error = |asked: u32| format!("srun: error: {asked} tasks requested, 512 at most on a node");
    slotd.write("tasks.conf", "* true\n");
    for asked in [513, 100_000, 2_000_000_000] {
        for multi in ["true", "--multi-prog tasks.conf"] {
            let out = slotd.line(&format!("srun -O -n {asked} {multi}")).fails(1);
            assert!(out.stderr.contains(&error(asked)), "{}", out.stderr);
        }
    }
    for asked in [513, 100_000, 2_000_000_000] {
        for multi in ["true", "--multi-prog tasks.conf"] {
            let out = slotd.line(&format!("salloc srun -O -n {asked} {multi}")).fails(1);
            assert!(out.stderr.contains(&error(asked)), "{}", out.stderr);
        }
    }
}

#[test]
fn streams_beyond_the_open_file_limit_are_refused() {
    let slotd = Slotd::start();
    let out = slotd.sh("ulimit -n 100; srun -O -n 64 true").fails(1);
    let error = "srun: error: the streams of 64 tasks need more open files than the limit of 100: ";
    assert!(out.stderr.contains(error), "{}", out.stderr);
}
