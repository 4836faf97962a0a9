//! slotd compared with its alternatives, in one run: `cargo bench --bench peers [-- PART…]`.
//! Figures are printed as lines `name value unit`, comparisons with a `ratio`. Operations that take
//! milliseconds are measured in turn, one of each per round, so that other load on the machine
//! affects all of them alike; the median counts.
//!
//! Peers that are not installed are left out: task-spooler (`tsp`), GNU parallel and HyperQueue
//! (the PyPI package, in the Python given by `SLOTD_BENCH_PYTHON`).

use slotd_kit::lab::{self, Lab, timed};
use slotd_kit::spooler::Spooler;
use slotd_kit::turns::{Turns, bare, rates};
use slotd_kit::{proc, scripts};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CPUS: u32 = 2;
/// The number of rounds for operations that take milliseconds.
const ROUNDS: usize = 101;
/// The number of jobs submitted with one call each.
const LOOPED: usize = 2000;
/// The number of tasks in an array.
const ARRAY: usize = 5000;
/// The number of repetitions of long runs.
const REPEATS: usize = 3;
const IDLE: Duration = Duration::from_secs(30);

/// The name of a part and its benchmark.
type Part = (&'static str, fn(&Bench));

const PARTS: [Part; 7] = [
    ("submit", submit),
    ("start", start),
    ("loop", looped),
    ("array", array),
    ("queries", queries),
    ("srun", srun),
    ("idle", idle),
];

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let load = fs::read_to_string("/proc/loadavg").expect("the load of the machine");
    println!("load {}", load.trim());
    let bench = Bench::new();
    for (name, measure) in PARTS {
        if chosen.is_empty() || chosen.iter().any(|c| c == name) {
            measure(&bench);
        }
    }
}

/// The daemons, and the directory with the scripts that all of them run.
struct Bench {
    /// Declared first, so that it is dropped before its directory.
    spooler: Option<Spooler>,
    lab: Lab,
}

impl Bench {
    fn new() -> Bench {
        let lab = Lab::start(CPUS);
        scripts::executable(&lab.path("true.sh"), "#!/bin/sh\ntrue\n");
        // The file is renamed into place, so that a reader finds it complete.
        let stamp = "#!/bin/bash\nprintf %s \"$EPOCHREALTIME\" >\"$STAMP.new\"\nmv \"$STAMP.new\" \"$STAMP\"\n";
        scripts::executable(&lab.path("stamp.sh"), stamp);
        Bench { spooler: Spooler::start(lab.dir.path(), CPUS), lab }
    }

    fn slotd(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        self.lab.run(words[0], &words[1..])
    }

    /// Waits until all jobs with this name have ended.
    fn drained(&self, name: &str) {
        self.slotd(&format!("sbatch -W -J {name} -d singleton -o /dev/null true.sh"));
    }

    /// Feeds lines to a program and waits for it to exit.
    fn fed(&self, program: &str, args: &[&str], lines: usize) {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.lab.dir.path())
            .env("HOME", self.lab.dir.path())
            .env("PARALLEL_HOME", ".");
        let mut child =
            command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program");
        let text = "./true.sh\n".repeat(lines);
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        assert!(child.wait().expect("the process is a child of this one").success(), "{program}");
    }

    /// Returns the time from the call until the job with `stamp.sh` begins.
    fn stamped(&self, submit: impl FnOnce(&Path)) -> Duration {
        let stamp = self.lab.path("stamp");
        let _ = fs::remove_file(&stamp);
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        submit(&stamp);
        let text = slotd_kit::until(|| fs::read_to_string(&stamp).ok()).expect("the job's stamp");
        Duration::from_secs_f64(text.parse().expect("a time")).saturating_sub(before)
    }
}

/// Submits a job to an idle queue, where it starts at once. Measures the time until the command
/// exits.
fn submit(bench: &Bench) {
    let mut turns = Turns::new();
    if let Some(spooler) = &bench.spooler {
        turns.add("submit task-spooler", || {
            let took = timed(|| drop(spooler.run(&["-n", "true"], &[])));
            spooler.run(&["-w"], &[]);
            took
        });
    }
    turns.add("submit sbatch --wrap true", || {
        let took = timed(|| drop(bench.slotd("sbatch -J one -o /dev/null --wrap true")));
        bench.drained("one");
        took
    });
    turns.add("submit sbatch --hold", || {
        timed(|| drop(bench.slotd("sbatch -H -J held -o /dev/null --wrap true")))
    });
    turns.add("/bin/true", bare);
    turns.measure(ROUNDS);
    bench.slotd("scancel -n held");
}

/// Measures the time from the call to the first instruction of the job's script.
fn start(bench: &Bench) {
    let mut turns = Turns::new();
    if let Some(spooler) = &bench.spooler {
        turns.add("start task-spooler", || {
            let took = bench
                .stamped(|stamp| drop(spooler.run(&["-n", "./stamp.sh"], &[("STAMP", stamp)])));
            spooler.run(&["-w"], &[]);
            took
        });
    }
    turns.add("start sbatch", || {
        let took = bench.stamped(|stamp| {
            drop(bench.slotd(&format!(
                "sbatch -J one -o /dev/null --export=ALL,STAMP={} stamp.sh",
                stamp.display()
            )));
        });
        bench.drained("one");
        took
    });
    turns.measure(ROUNDS);
}

/// Submits short jobs one by one. Measures the time until the last one has ended.
fn looped(bench: &Bench) {
    let (mut spooled, mut batch, mut xargs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        if let Some(spooler) = &bench.spooler {
            spooled.push(timed(|| {
                (0..LOOPED).for_each(|_| drop(spooler.run(&["-n", "./true.sh"], &[])));
                spooler.drained();
            }));
        }
        batch.push(timed(|| {
            (0..LOOPED).for_each(|_| drop(bench.slotd("sbatch -J loop -o /dev/null true.sh")));
            bench.drained("loop");
        }));
        xargs.push(timed(|| bench.fed("xargs", &["-P", "2", "-n", "1", "env"], LOOPED)));
    }
    let named =
        [("loop task-spooler", spooled), ("loop sbatch", batch), ("loop xargs -P 2", xargs)];
    rates(LOOPED, named.into_iter().filter(|(_, times)| !times.is_empty()).collect());
}

/// Submits many short tasks with one call.
fn array(bench: &Bench) {
    let (mut xargs, mut array, mut parallel, mut hyperqueue) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let has_parallel = Command::new("parallel").arg("--version").output().is_ok();
    for _ in 0..REPEATS {
        xargs.push(timed(|| bench.fed("xargs", &["-P", "2", "-n", "1", "env"], ARRAY)));
        let tasks = format!("sbatch -W -a 1-{ARRAY} -J array -o /dev/null true.sh");
        array.push(timed(|| drop(bench.slotd(&tasks))));
        if has_parallel {
            parallel.push(timed(|| bench.fed("parallel", &["-j", "2", "--will-cite"], ARRAY)));
        }
        let script = bench.lab.path("true.sh");
        hyperqueue.extend(lab::hyperqueue(bench.lab.dir.path(), ARRAY as u32, &script));
    }
    let named = [
        ("array xargs -P 2", xargs),
        ("array sbatch -a", array),
        ("array GNU parallel -j 2", parallel),
        ("array HyperQueue", hyperqueue),
    ];
    rates(ARRAY, named.into_iter().filter(|(_, times)| !times.is_empty()).collect());
}

/// Compares queries with a program that does nothing.
fn queries(bench: &Bench) {
    let job = bench.slotd("sbatch --parsable -H -J asked -o /dev/null --wrap true");
    let job = job.trim();
    let (one, show) = (format!("squeue -j {job}"), format!("scontrol show job {job}"));
    let past = bench.slotd("sbatch -W --parsable -o /dev/null --wrap true");
    let past = format!("sacct -j {}", past.trim());
    let mut turns = Turns::new();
    turns.add("/bin/true", bare);
    turns.add("squeue -j ID", || timed(|| drop(bench.slotd(&one))));
    turns.add("sinfo", || timed(|| drop(bench.slotd("sinfo"))));
    turns.add("scontrol show job ID", || timed(|| drop(bench.slotd(&show))));
    turns.add("sacct -j ID", || timed(|| drop(bench.slotd(&past))));
    turns.measure(ROUNDS);
    bench.slotd("scancel -n asked");
}

/// Measures a job step outside of an allocation, and the throughput of its output.
fn srun(bench: &Bench) {
    let mut turns = Turns::new();
    turns.add("/bin/true", bare);
    turns.add("srun true", || timed(|| drop(bench.slotd("srun true"))));
    turns.measure(ROUNDS);
    let data = bench.lab.path("data");
    fs::write(&data, vec![b'x'; 256 << 20]).expect("enough disk space");
    let piped = |program: &Path, args: &[&str]| {
        timed(|| {
            let mut cat = Command::new(program);
            cat.args(args).arg("cat").arg(&data).env("SLOTD_ROOT", bench.lab.path("root"));
            let mut cat = cat.stdout(Stdio::piped()).spawn().expect("the program");
            let mut pipe = cat.stdout.take().expect("a pipe");
            assert_eq!(
                std::io::copy(&mut pipe, &mut std::io::sink()).expect("it reads"),
                256 << 20
            );
            assert!(cat.wait().expect("the process is a child of this one").success());
        })
    };
    let (mut plain, mut step) = (Vec::new(), Vec::new());
    for _ in 0..2 * REPEATS + 1 {
        plain.push(piped(Path::new("env"), &[]));
        step.push(piped(slotd_kit::program(), &["srun"]));
    }
    rates(256, vec![("output cat, MB", plain), ("output srun cat, MB", step)]);
}

fn pid_of(lab: &Lab) -> i32 {
    let answer =
        slotd_kit::wire::ask(&lab.path("root"), &serde_json::json!("Ping")).expect("an answer");
    answer["Pong"]["pid"].as_i64().expect("a number") as i32
}

/// Prints the memory and the number of wake-ups of an idle daemon, the time of long listings, and
/// the memory after many jobs.
fn idle(_: &Bench) {
    let lab = Lab::start(CPUS);
    lab.run("sbatch", &["-W", "-o", "/dev/null", "--wrap", "true"]);
    let daemon = pid_of(&lab);
    let resident = |pid: i32| proc::resident_kib(pid) as f64 / 1024.0;
    println!("{:<44} {:9.1} MB", "resident, idle", resident(daemon));
    lab.settle();
    let before = proc::wakeups(daemon);
    thread::sleep(IDLE);
    println!(
        "{:<44} {:9} in {} s",
        "wake-ups, idle",
        proc::wakeups(daemon) - before,
        IDLE.as_secs()
    );
    (0..10_000).for_each(|_| drop(lab.run("sbatch", &["-H", "-o", "/dev/null", "--wrap", "true"])));
    println!("{:<44} {:9.1} MB", "resident, 10,000 pending single jobs", resident(daemon));
    let mut turns = Turns::new();
    turns.add("/bin/true", bare);
    turns.add("squeue of 10,000 single jobs", || timed(|| drop(lab.run("squeue", &[]))));
    turns.add("squeue --json of 10,000 single jobs", || {
        timed(|| drop(lab.run("squeue", &["--json"])))
    });
    turns.add("sacct of 10,000 single jobs", || timed(|| drop(lab.run("sacct", &[]))));
    turns.measure(11);
    drop(lab);
    let lab = Lab::start(CPUS);
    let daemon = pid_of(&lab);
    for (tasks, row) in [
        ("1-2000", "resident, 2,000 ended tasks"),
        ("1-20000", "resident, 20,000 more"),
        ("1-20000", "resident, 20,000 more"),
    ] {
        lab.run("sbatch", &["-W", "-a", tasks, "-o", "/dev/null", "--wrap", "true"]);
        println!("{row:<44} {:9.1} MB", resident(daemon));
    }
}
