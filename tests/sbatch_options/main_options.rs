//! Tests for each row of the book's table "Main Options".

use slotd_kit::{Slotd, until};

#[test]
fn option_wrap() {
    let slotd = Slotd::start();
    assert_eq!(slotd.ran(&[], "echo inline shell command"), "inline shell command\n");
}

#[test]
fn option_job_name() {
    let slotd = Slotd::start();
    for spelling in [&["-J", "abc"][..], &["-Jabc"], &["--job-name", "abc"], &["--job-name=abc"]] {
        assert_eq!(slotd.shown(spelling, "%j"), "abc", "{spelling:?}");
    }
}

#[test]
fn option_partition() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 1).start();
    for spelling in [&["-p", "gpu"][..], &["--partition", "gpu"], &["--partition=gpu"]] {
        assert_eq!(slotd.shown(spelling, "%P"), "gpu", "{spelling:?}");
    }
}

#[test]
fn option_cpus_per_task() {
    let slotd = Slotd::start();
    for spelling in [&["-c", "2"][..], &["-c2"], &["--cpus-per-task", "2"], &["--cpus-per-task=2"]]
    {
        assert_eq!(slotd.shown(spelling, "%C"), "2", "{spelling:?}");
    }
}

#[test]
fn option_ntasks() {
    let slotd = Slotd::start();
    // The tasks run concurrently: each waits for all others.
    let script = "touch rank.$SLURM_PROCID; until [ -e rank.0 -a -e rank.1 -a -e rank.2 ]; do sleep 0.03; done";
    for spelling in [&["-n", "3"][..], &["--ntasks", "3"], &["--ntasks=3"]] {
        let id = slotd.wrap(spelling, script);
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.job(id).tres().0, 3, "{spelling:?}");
        for rank in 0..3 {
            std::fs::remove_file(slotd.path(&format!("rank.{rank}"))).unwrap();
        }
    }
}

#[test]
fn option_mem() {
    let slotd = Slotd::start();
    for (size, shown) in [
        ("512M", "512M"),
        ("8G", "8G"),
        ("100", "100M"),
        ("2048K", "2M"),
        ("1g", "1G"),
        ("0", "8G"),
    ] {
        assert_eq!(slotd.shown(&["--mem", size], "%m"), shown, "{size}");
        assert_eq!(slotd.shown(&[&format!("--mem={size}")], "%m"), shown, "{size}");
    }
}

#[test]
fn option_time() {
    let slotd = Slotd::start();
    for (limit, shown) in
        [("10", "10:00"), ("00:05:00", "5:00"), ("1-12", "1-12:00:00"), ("90:30", "1:31:00")]
    {
        assert_eq!(slotd.shown(&["-t", limit], "%l"), shown, "{limit}");
        assert_eq!(slotd.shown(&["--time", limit], "%l"), shown, "{limit}");
    }
}

#[test]
fn option_gpus() {
    let slotd = Slotd::setup().set("SLOTD_GPU_COUNT", 3).start();
    for spelling in [&["-G", "2"][..], &["-G2"], &["--gpus", "2"], &["--gpus=2"]] {
        let id = slotd.wrap(spelling, "echo $CUDA_VISIBLE_DEVICES");
        let job = slotd.wait_state(id, "COMPLETED");
        assert_eq!(job.tres().2, 2, "{spelling:?}");
        assert_eq!(slotd.output(id), "0,1\n", "{spelling:?}");
    }
}

#[test]
fn option_output() {
    let slotd = Slotd::start();
    for spelling in [&["-o", "out.%j"][..], &["--output", "out.%j"], &["--output=out.%j"]] {
        let id = slotd.wrap(spelling, "echo out; echo err >&2");
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.read(&format!("out.{id}")), "out\nerr\n", "{spelling:?}");
        assert!(!slotd.exists(&format!("slurm-{id}.out")));
    }
}

#[test]
fn option_error() {
    let slotd = Slotd::start();
    for spelling in [&["-e", "err.%j"][..], &["--error", "err.%j"], &["--error=err.%j"]] {
        let id = slotd.wrap(spelling, "echo out; echo err >&2");
        slotd.wait_state(id, "COMPLETED");
        assert_eq!(slotd.read(&format!("err.{id}")), "err\n", "{spelling:?}");
        assert_eq!(slotd.output(id), "out\n");
    }
}

#[test]
fn option_chdir() {
    let slotd = Slotd::start();
    std::fs::create_dir(slotd.path("there")).unwrap();
    for spelling in [&["-D", "there"][..], &["--chdir", "there"], &["--chdir=there"]] {
        let id = slotd.wrap(spelling, "pwd; echo $SLURM_SUBMIT_DIR");
        slotd.wait_state(id, "COMPLETED");
        // The path of the output is relative to it too.
        let seen = slotd.read(&format!("there/slurm-{id}.out"));
        assert_eq!(
            seen,
            format!("{}\n{}\n", slotd.path("there").display(), slotd.work().display()),
            "{spelling:?}"
        );
    }
}

#[test]
fn option_constraint() {
    let slotd = Slotd::setup().set("SLOTD_FEATURES", "avx,ssd").start();
    let id = slotd.wrap(&["--constraint", "avx&ssd"], "true");
    slotd.wait_state(id, "COMPLETED");
    let refused = slotd.cmd("sbatch", &["--constraint", "tape", "--wrap", "true"]).fails(1);
    assert!(
        refused
            .stderr
            .contains("sbatch: error: Batch job submission failed: Invalid feature specification")
    );
    assert!(refused.stderr.contains("tape"), "{}", refused.stderr);
}

#[test]
fn option_dependency() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    for option in ["-d", "--dependency"] {
        let id = slotd.wrap(&[option, &format!("afterany:{first}")], "true");
        slotd.wait_reason(id, "Dependency");
    }
}

#[test]
fn option_array() {
    let slotd = Slotd::start();
    for option in ["-a", "--array"] {
        let id = slotd.wrap(&[option, "1-2"], "echo $SLURM_ARRAY_TASK_ID");
        slotd.wait_array(id, 2);
        assert_eq!(slotd.read(&format!("slurm-{id}_2.out")), "2\n");
    }
}

#[test]
fn option_export() {
    let slotd = Slotd::start();
    assert_eq!(slotd.ran(&["--export", "FOO=bar"], "echo $FOO"), "bar\n");
}

#[test]
fn option_export_file() {
    let slotd = Slotd::start();
    slotd.write("env", "FOO=from the file\0BAR=two\nlines\0");
    let id = slotd.wrap(&["--export-file", "env"], "echo \"$FOO $BAR\"");
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.output(id), "from the file two\nlines\n");
}

#[test]
fn option_open_mode_append() {
    let slotd = Slotd::start();
    for word in ["one", "two"] {
        let id = slotd.wrap(&["-o", "log", "--open-mode", "append"], &format!("echo {word}"));
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.read("log"), "one\ntwo\n");
}

#[test]
fn option_open_mode_truncate() {
    let slotd = Slotd::start();
    for word in ["a long line", "two"] {
        let id = slotd.wrap(&["-o", "log", "--open-mode", "truncate"], &format!("echo {word}"));
        slotd.wait_state(id, "COMPLETED");
    }
    assert_eq!(slotd.read("log"), "two\n");
}

#[test]
fn option_signal() {
    let slotd = Slotd::start();
    let script = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let id = slotd.wrap(&["-t", "10", "--signal", "B:USR1@60", "-o", "log"], script);
    slotd.wait_text("log", "ready");
    // The limit is a minute away, so the signal is sent immediately.
    slotd.limit(id, 61);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.read("log"), "ready\nwarned\n");
}

#[test]
fn option_begin() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--begin", "now+1hour"], "true");
    slotd.wait_reason(id, "BeginTime");
}

#[test]
fn option_exclusive() {
    let slotd = Slotd::start();
    let small = slotd.endless(&[]);
    let alone = slotd.wrap(&["--exclusive"], &slotd.gate("go"));
    slotd.wait_reason(alone, "Exclusive");
    slotd.cancel(small);
    slotd.wait_state(alone, "RUNNING");
    let other = slotd.wrap(&[], "true");
    slotd.wait_reason(other, "Exclusive");
    slotd.open("go");
    slotd.wait_state(other, "COMPLETED");
}

#[test]
fn option_requeue() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--requeue"], "echo run; exit 1");
    let job = slotd.wait_state(id, "FAILED");
    assert_eq!(job.restarts(), 1);
}

#[test]
fn option_parsable() {
    let slotd = Slotd::start();
    assert_eq!(slotd.cmd("sbatch", &["--parsable", "--wrap", "true"]).ok().stdout, "1\n");
    let named = slotd.cmd("sbatch", &["--parsable", "-M", "slotd", "--wrap", "true"]).ok();
    assert_eq!(named.stdout, "2;slotd\n");
}

#[test]
fn option_wait() {
    let slotd = Slotd::start();
    for option in ["-W", "--wait"] {
        let gate = format!("go{option}");
        let mut command = slotd.command("sbatch");
        command.args([option, "--parsable", "--wrap", &format!("{}; exit 3", slotd.gate(&gate))]);
        let mut sbatch = slotd.spawn(command);
        let running =
            until(|| slotd.all_records().into_iter().find(|job| job.state() == "RUNNING"));
        assert!(running.is_some() && sbatch.is_running());
        slotd.open(&gate);
        let out = sbatch.end().fails(3);
        assert_eq!(out.text(), running.unwrap().id().to_string());
    }
}
