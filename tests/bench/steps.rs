//! Masses of short steps in one job, beside what people use for them: `cargo bench --bench steps [-- STEPS]`. The job has two
//! CPUs. The daemon's and the manager's CPU time are those of the whole run.

use slotd_kit::lab::{Lab, timed};
use slotd_kit::{proc, program};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Steps of a layer, each of which waits for all of the layer before.
const LAYER: u32 = 1000;

/// srun is a few hundred times slower than the others.
const SRUN_SHARE: u32 = 100;

fn main() {
    let steps: u32 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(10_000);
    let lab = Lab::start(2);
    let lines = "true\n".repeat(steps as usize);
    fs::write(lab.path("lines"), &lines).expect("a file");
    println!("{steps} steps of `true`, two side by side");
    let rate = |time: Duration, count: u32| f64::from(count) / time.as_secs_f64();
    let show = |name: &str, time: Duration, count: u32, best: f64| {
        let rate = rate(time, count);
        println!("{name:34} {rate:8.0} a second  {:5.2} x", rate / best);
    };
    let xargs = peer(lab.dir.path(), "xargs -P 2 -n 1 true < lines");
    let best = rate(xargs, steps);
    show("xargs -P 2", xargs, steps, best);
    if Command::new("parallel").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        let few = (steps / 10).max(1);
        show("GNU parallel -j 2", peer(lab.dir.path(), &format!("head -{few} lines | parallel -j 2")), few, best);
    }
    let (time, used) = managed(&lab, "lines");
    show("sjobmgr run", time, steps, best);
    println!("{:34} {}", "", used);
    fs::write(lab.path("layers.toml"), layers(steps * 10)).expect("a file");
    let (time, used) = managed(&lab, "layers.toml");
    show("sjobmgr, ten times as many in layers", time, steps * 10, best);
    println!("{:34} {}", "", used);
    let few = (steps / SRUN_SHARE).max(1);
    let script = format!("i=0; while [ $i -lt {few} ]; do {} srun -n1 true; i=$((i+1)); done", program().display());
    let srun = timed(|| drop(lab.run("sbatch", &["-W", "-c", "2", "-o", "/dev/null", "--wrap", &script])));
    show("srun, one after the other", srun, few, best);
    println!("{}", memory(&lab, steps));
}

fn peer(dir: &Path, script: &str) -> Duration {
    timed(|| {
        let status = Command::new("sh").args(["-c", script]).current_dir(dir).stdout(Stdio::null()).status();
        assert!(status.expect("a shell").success(), "{script}");
    })
}

/// How long a manager takes within its job, and what it and the daemon have used meanwhile.
fn managed(lab: &Lab, file: &str) -> (Duration, String) {
    let before = proc::cpu_times(lab.daemon_pid()).expect("the daemon runs");
    let script = format!("date +%s.%N > began; {} sjobmgr run -Q {file}; date +%s.%N > ended", program().display());
    let whole = timed(|| drop(lab.run("sbatch", &["-W", "-c", "2", "--wrap", &script])));
    let at = |name: &str| fs::read_to_string(lab.path(name)).expect("written").trim().parse::<f64>().expect("a time");
    let time = Duration::from_secs_f64((at("ended") - at("began")).max(1e-3));
    let after = proc::cpu_times(lab.daemon_pid()).expect("the daemon runs");
    let daemon = (after.0 + after.1).saturating_sub(before.0 + before.1);
    let share = daemon.as_secs_f64() / time.as_secs_f64() * 100.0;
    (time, format!("the daemon has used {share:.1} % of a CPU; with the job around it {:.2} s", whole.as_secs_f64()))
}

fn layers(steps: u32) -> String {
    let mut text = String::new();
    for layer in 0..steps.div_ceil(LAYER) {
        let after = if layer > 0 { format!("after = 'l{}-*'\n", layer - 1) } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[[step]]\nname = 'l{layer}-{{n}}'\nforeach = {{ n = '1-{LAYER}' }}\ncommand = 'true'\n{after}"
        );
    }
    text
}

/// What so many steps that wait add to a manager.
fn memory(lab: &Lab, steps: u32) -> String {
    let rss = |count: u32| {
        let text = format!(
            "[[step]]\nname = 'first'\ncommand = 'sleep 600'\n[[step]]\nname = 's{{n}}'\nafter = 'first'\n\
             foreach = {{ n = '1-{count}' }}\ncommand = 'true {{n}}'\n"
        );
        fs::write(lab.path("waiting.toml"), &text).expect("a file");
        let script = format!("exec {} sjobmgr run -Q waiting.toml", program().display());
        lab.run("sbatch", &["-c", "2", "-o", "/dev/null", "--wrap", &script]);
        let sleeps = |pid: &i32| proc::cmdline(*pid).starts_with("sleep 600");
        let step = slotd_kit::until(|| proc::of_directory(lab.dir.path()).into_iter().find(sleeps)).expect("the step");
        let launcher = proc::parent(step).expect("it has one");
        let manager = proc::children(launcher).into_iter().find(|pid| *pid != step).expect("the manager");
        let text = fs::read_to_string(format!("/proc/{manager}/smaps_rollup")).expect("it lives");
        let dirty = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line");
        let kb: u64 = dirty.trim().trim_end_matches(" kB").parse().expect("a number");
        lab.run("scancel", &["--me"]);
        slotd_kit::until(|| proc::cmdline(step).is_empty().then_some(())).expect("it ends");
        kb
    };
    let (few, many) = (rss(1), rss(steps));
    let each = (many.saturating_sub(few)) as f64 * 1024.0 / f64::from(steps);
    format!("{steps} steps that wait: {:.1} MB, {each:.0} bytes each", (many - few) as f64 / 1024.0)
}
