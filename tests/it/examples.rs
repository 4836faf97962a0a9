//! Runs each example with its own daemon, and the pipeline also while that daemon is killed.

mod guide;

mod place;

use place::Place;
use slotd_kit::scripts::{executable, must, wait_for};
use std::fs;
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Two CPUs are enough for each example. The two GPUs are simulated; no example accesses them.
const MACHINE: [(&str, &str); 5] = [
    ("SLOTD_CPUS", "2"),
    ("SLOTD_MEMORY_MB", "4096"),
    ("SLOTD_GPU_COUNT", "2"),
    ("SLOTD_FEATURES", "cpu,avx2"),
    ("SLOTD_KILL_WAIT", "5"),
];

fn runs(name: &str) {
    let place = Place::new(&MACHINE);
    let out = must(&mut place.command(examples().join(format!("{name}.sh"))), || place.log());
    assert!(out.lines().any(|line| line.starts_with("ok: ")), "nothing was compared:\n{out}");
    assert!(!out.contains("FAILED:"), "{out}");
    let left = fs::read_dir(place.path("tmp")).expect("the directory is there").count();
    assert_eq!(left, 0, "the example left files in TMPDIR");
}

macro_rules! example_tests {
    ($($test:ident: $name:literal,)+) => {
        const NAMES: &[&str] = &[$($name),+];
        $(#[test]
        fn $test() {
            runs($name);
        })+
    };
}

example_tests! {
    array: "array",
    begin: "begin",
    cancel: "cancel",
    constraint: "constraint",
    cpu_bind: "cpu-bind",
    crowd: "crowd",
    dependency: "dependency",
    exclusive: "exclusive",
    executor: "executor",
    exit_code: "exit-code",
    export: "export",
    free_lift: "free-lift",
    gpu: "gpu",
    graph: "graph",
    hello: "hello",
    hold: "hold",
    immediate: "immediate",
    lease: "lease",
    limits: "limits",
    look: "look",
    mapping: "mapping",
    no_wait: "no-wait",
    notify: "notify",
    output: "output",
    parts: "parts",
    precedence: "precedence",
    ranks: "ranks",
    requeue: "requeue",
    salloc: "salloc",
    script: "script",
    seats: "seats",
    signal: "signal",
    spread_out: "spread-out",
    srun: "srun",
    steps: "steps",
}

#[test]
fn every_example_has_a_test_and_a_line_in_the_readme() {
    let readme = fs::read_to_string(examples().join("README.md")).expect("the list of examples");
    let mut found: Vec<String> = fs::read_dir(examples())
        .expect("examples")
        .filter_map(|entry| {
            entry.ok()?.file_name().to_str()?.strip_suffix(".sh").map(str::to_owned)
        })
        .filter(|name| name != "lib")
        .collect();
    found.sort();
    assert_eq!(found, NAMES);
    for name in found {
        assert!(
            readme.contains(&format!("[{name}.sh]({name}.sh)")),
            "examples/README.md does not list {name}.sh"
        );
    }
}

#[test]
fn the_pipeline_computes_the_reference_result() {
    let place = Place::new(&MACHINE);
    let out = must(place.command(examples().join("pipeline/run.sh")).arg("out"), || place.log());
    assert_eq!(out.lines().filter(|line| line.starts_with("ok: ")).count(), 3, "{out}");
}

#[test]
fn the_pipeline_computes_the_same_if_the_daemon_is_killed() {
    let mut place = Place::new(&MACHINE);
    // The tasks take long enough for the daemon to be killed while they run. One task waits for the
    // last kill, so that the jobs after the array cannot begin earlier.
    let go = place.path("go");
    let sleep = format!(
        "#!/bin/sh\n[ \"$SLURM_ARRAY_TASK_ID\" != 5 ] || \
         until [ -e '{}' ]; do /bin/sleep 0.05; done\nexec /bin/sleep \"$@\"\n",
        go.display()
    );
    executable(&place.path("bin/sleep"), &sleep);
    let mut run = place.command(examples().join("pipeline/run.sh"));
    must(run.args(["--submit-only", "out"]).env("PAUSE", "0.5"), || place.log());
    let out = place.path("work/out");
    let lines = || fs::read_to_string(out.join("runs")).unwrap_or_default().lines().count();
    // Kill the daemon while the first tasks run and others wait, and again towards the end of the
    // array.
    for begun in [2, 7] {
        wait_for("the jobs continue", || place.log(), || (lines() >= begun).then_some(()));
        place.kill_daemon();
        assert!(lines() < 10, "all tasks began before the daemon was killed");
        place.start();
    }
    fs::write(&go, "").expect("a writable directory");
    let reduce = fs::read_to_string(out.join("job-ids")).expect("written by run.sh");
    let reduce = reduce.lines().last().expect("three ids").to_owned();
    let state = || {
        must(place.command("sacct").args(["-X", "-n", "-P", "-o", "State", "-j", &reduce]), || {
            place.log()
        })
    };
    wait_for(
        "reduce ends",
        || format!("{}\n{}", state(), place.log()),
        || (!["PENDING", "RUNNING", "COMPLETING"].contains(&state().trim())).then_some(()),
    );
    let out = must(place.command(examples().join("pipeline/check.sh")).arg("out"), || place.log());
    assert_eq!(out.lines().filter(|line| line.starts_with("ok: ")).count(), 3, "{out}");
}
