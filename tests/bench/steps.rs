//! Masses of short steps in one job, compared with its alternatives: `cargo bench --bench steps [--
//! STEPS]`. The job has two CPUs. The CPU times of the daemon and the manager are those of the
//! whole run. Programs that are not installed are left out. HyperQueue is taken from the Python
//! given by `SLOTD_BENCH_PYTHON`.

use slotd_kit::lab::{Lab, hyperqueue, timed};
use slotd_kit::{proc, program};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of steps per layer. Each waits for all steps of the layer before.
const LAYER: u32 = 1000;

/// srun runs this fraction of the steps, since it is a few hundred times slower.
const SRUN_SHARE: u32 = 100;

fn main() {
    let steps: u32 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(10_000);
    let lab = Lab::start(2);
    let lines = "true\n".repeat(steps as usize);
    fs::write(lab.path("lines"), &lines).expect("a file");
    println!("{steps} steps of `true`, two at a time");
    let rate = |time: Duration, count: u32| f64::from(count) / time.as_secs_f64();
    let show = |name: &str, time: Duration, count: u32, best: f64| {
        let rate = rate(time, count);
        println!("{name:34} {rate:8.0} /s  {:5.2} x", rate / best);
    };
    let xargs = peer(lab.dir.path(), "xargs -P 2 -n 1 true < lines");
    let best = rate(xargs, steps);
    show("xargs -P 2", xargs, steps, best);
    if Command::new("parallel")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        let few = (steps / 10).max(1);
        show(
            "GNU parallel -j 2",
            peer(lab.dir.path(), &format!("head -{few} lines | parallel -j 2")),
            few,
            best,
        );
    }
    if let Some(time) = hyperqueue(lab.dir.path(), steps, Path::new("/bin/true")) {
        show("HyperQueue", time, steps, best);
    }
    let flat = managed(&lab, "lines");
    show("sjobmgr run", flat.time, steps, best);
    println!("{:34} {}", "", flat.words());
    fs::write(lab.path("layers.toml"), layers(steps * 10)).expect("a file");
    let layered = managed(&lab, "layers.toml");
    show("sjobmgr, ten times as many, in layers", layered.time, steps * 10, best);
    println!("{:34} {}", "", layered.words());
    let more = layered.manager.as_secs_f64() / 10.0 - flat.manager.as_secs_f64();
    println!(
        "{:34} dependencies cost the manager {:.1} us per step, {:.1}% of the time",
        "",
        more * 1e6 / f64::from(steps),
        more * 1000.0 / layered.time.as_secs_f64()
    );
    let few = (steps / SRUN_SHARE).max(1);
    let script = format!(
        "i=0; while [ $i -lt {few} ]; do {} srun -n1 true; i=$((i+1)); done",
        program().display()
    );
    let srun =
        timed(|| drop(lab.run("sbatch", &["-W", "-c", "2", "-o", "/dev/null", "--wrap", &script])));
    show("srun, one after the other", srun, few, best);
    println!("{}", memory(&lab, steps));
}

fn peer(dir: &Path, script: &str) -> Duration {
    timed(|| {
        let status =
            Command::new("sh").args(["-c", script]).current_dir(dir).stdout(Stdio::null()).status();
        assert!(status.expect("a shell").success(), "{script}");
    })
}

/// The cost of a run of the manager.
struct Managed {
    /// Elapsed time within its job.
    time: Duration,
    whole: Duration,
    /// CPU time.
    daemon: Duration,
    manager: Duration,
}

impl Managed {
    fn words(&self) -> String {
        let share = |used: Duration| used.as_secs_f64() / self.time.as_secs_f64() * 100.0;
        let (daemon, manager, whole) =
            (share(self.daemon), share(self.manager), self.whole.as_secs_f64());
        format!(
            "daemon {daemon:.1}% of a CPU, manager {manager:.1}%; {whole:.2} s including its job"
        )
    }
}

/// Returns the last observed CPU time of the manager, whose launcher writes its PID to this file.
fn watch_manager(pid_file: &Path) -> Duration {
    let launcher =
        slotd_kit::until(|| fs::read_to_string(pid_file).ok()?.trim().parse::<i32>().ok())
            .expect("a launcher");
    // The manager starts before all steps.
    let manager =
        slotd_kit::until(|| proc::children(launcher).first().copied()).expect("a manager");
    let mut seen = Duration::ZERO;
    while let Some((user, system)) =
        proc::cpu_times(manager).filter(|_| proc::parent(manager) == Some(launcher))
    {
        seen = seen.max(user + system);
        std::thread::sleep(Duration::from_millis(20));
    }
    seen
}

/// Runs a file with a manager in its own job.
fn managed(lab: &Lab, file: &str) -> Managed {
    let before = proc::cpu_times(lab.daemon_pid()).expect("the daemon runs");
    let pid_file = lab.path("launcher");
    let _ = fs::remove_file(&pid_file);
    let script = format!(
        "date +%s.%N > began; {} sjobmgr run -Q {file} & echo $! > launcher; wait; date +%s.%N > ended",
        program().display()
    );
    let mut manager = Duration::ZERO;
    let whole = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch_manager(&pid_file));
        let whole = timed(|| drop(lab.run("sbatch", &["-W", "-c", "2", "--wrap", &script])));
        manager = watch.join().expect("the watching thread");
        whole
    });
    let at = |name: &str| {
        fs::read_to_string(lab.path(name)).expect("written").trim().parse::<f64>().expect("a time")
    };
    let time = Duration::from_secs_f64((at("ended") - at("began")).max(1e-3));
    let after = proc::cpu_times(lab.daemon_pid()).expect("the daemon runs");
    let daemon = (after.0 + after.1).saturating_sub(before.0 + before.1);
    Managed { time, whole, daemon, manager }
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

/// Measures the memory that pending steps add to a manager.
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
        let step = slotd_kit::until(|| proc::of_directory(lab.dir.path()).into_iter().find(sleeps))
            .expect("the step");
        let launcher = proc::parent(step).expect("the step has a parent");
        let manager =
            proc::children(launcher).into_iter().find(|pid| *pid != step).expect("the manager");
        let text =
            fs::read_to_string(format!("/proc/{manager}/smaps_rollup")).expect("the manager runs");
        let dirty =
            text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line");
        let kb: u64 = dirty.trim().trim_end_matches(" kB").parse().expect("a number");
        lab.run("scancel", &["--me"]);
        slotd_kit::until(|| proc::cmdline(step).is_empty().then_some(())).expect("the step ends");
        kb
    };
    let (few, many) = (rss(1), rss(steps));
    let each = (many.saturating_sub(few)) as f64 * 1024.0 / f64::from(steps);
    format!("{steps} pending steps: {:.1} MB, {each:.0} bytes each", (many - few) as f64 / 1024.0)
}
