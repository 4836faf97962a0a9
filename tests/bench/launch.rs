//! How a job could be launched, side by side in one run: `cargo bench --bench launch [-- RUNS]`.
//!
//! Each way runs the same script, one job after the other, and leaves the same files (script, runner, exit status)
//! where it leaves any. What came out, and what was chosen because of it, stands in `src/exec/launcher.rs`.

use slotd::exec::{LaunchSpec, Launcher, StepEvent, TaskSpec, launcher};
use slotd::model::{JobId, StepId, StepKey};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = "#!/bin/sh\nexit 0\n";
const RUNNER_ARG: &str = "__bench_runner";
const DIRECT_ARG: &str = "__bench_direct";

/// About what a login shell's environment comes to.
fn environment() -> Vec<u8> {
    (0..40).flat_map(|i| format!("BENCH_VARIABLE_{i}=some value of ordinary length {i}\0").into_bytes()).collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(arg) if arg == launcher::LAUNCHER_ARG => launcher::launcher_main(&args[2..]),
        Some(RUNNER_ARG) => runner(Path::new(&args[2])),
        Some(DIRECT_ARG) => direct(),
        _ => compare(args.iter().find_map(|a| a.parse().ok()).unwrap_or(300)),
    }
}

fn write_program(path: &Path, text: &[u8]) {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(path);
    file.and_then(|mut f| f.write_all(text)).expect("write a program");
}

/// The files that a launch leaves, with the script run in between.
fn prepare(dir: &Path) {
    fs::create_dir_all(dir).expect("make the job directory");
    write_program(&dir.join("script.sh"), SCRIPT.as_bytes());
    write_program(&dir.join("runner.sh"), &environment());
}

fn record(dir: &Path, code: i32) {
    let new = dir.join("exit_status.new");
    fs::write(&new, format!("{{\"code\":{code}}}")).expect("write the status");
    fs::rename(new, dir.join("exit_status")).expect("rename the status");
}

/// A runner process for each job: this program again, which forks the script and waits.
fn runner(dir: &Path) {
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_child_subreaper(true);
    prepare(dir);
    record(dir, fork_script(dir, true));
}

fn fork_script(dir: &Path, new_session: bool) -> i32 {
    let script = std::ffi::CString::new(dir.join("script.sh").into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: this process has one thread.
    match unsafe { nix::unistd::fork() }.expect("fork") {
        nix::unistd::ForkResult::Child => {
            if new_session {
                let _ = nix::unistd::setsid();
            }
            let Err(e) = nix::unistd::execv(&script, &[&script]);
            std::process::exit(e as i32)
        }
        nix::unistd::ForkResult::Parent { child } => nix::sys::wait::waitpid(child, None).map_or(1, |_| 0),
    }
}

/// One launcher for all jobs that forks the task itself: a line with a directory in, a line out.
fn direct() {
    for dir in std::io::stdin().lines().map_while(Result::ok) {
        let dir = PathBuf::from(dir);
        prepare(&dir);
        record(&dir, fork_script(&dir, true));
        println!("done");
    }
}

struct Direct {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

fn spec(root: &Path, n: u32) -> LaunchSpec {
    LaunchSpec {
        step: StepKey { job: JobId(n), step: StepId::Batch },
        job_dir: root.join(format!("lib/jobs/{n}")),
        script: Some(SCRIPT.as_bytes().to_vec()),
        env: environment(),
        tasks: vec![TaskSpec::default()],
        write_runner: true,
        ..LaunchSpec::default()
    }
}

fn compare(runs: u32) {
    let root = tempfile::tempdir().expect("a directory");
    let root = root.path();
    let me = std::env::current_exe().expect("this program");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let launcher = Launcher::start(root).expect("a launcher");
    let mut child =
        Command::new(&me).arg(DIRECT_ARG).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
    let stdin = child.stdin.take().expect("its input");
    let stdout = BufReader::new(child.stdout.take().expect("its output"));
    let mut direct = Direct { child, stdin, stdout };
    prepare(root);

    let spawn = |_n: u32| {
        assert!(Command::new(root.join("script.sh")).status().expect("spawn").success());
    };
    let reexec = |n: u32| {
        let dir = root.join(format!("a{n}"));
        assert!(Command::new(&me).arg(RUNNER_ARG).arg(dir).status().expect("spawn").success());
    };
    let ours = |n: u32| {
        runtime.block_on(async {
            let mut handle = launcher.launch(&spec(root, n), Vec::new()).expect("launch");
            loop {
                match handle.next_event().await.expect("an end") {
                    StepEvent::Ended(record) => break assert!(record.exit.is_success()),
                    StepEvent::Started { .. } | StepEvent::TaskEnded { .. } | StepEvent::Usage(_) => {}
                    StepEvent::Refused(why) => panic!("{why}"),
                }
            }
        });
    };
    let mut one_process = |n: u32| {
        writeln!(direct.stdin, "{}", root.join(format!("c{n}")).display()).expect("ask");
        let mut line = String::new();
        direct.stdout.read_line(&mut line).expect("an answer");
    };

    // In turns, so that a noisy moment of the machine meets all of them.
    let mut times = [Duration::ZERO; 4];
    for n in 0..runs {
        let mut clock = |i: usize, run: &mut dyn FnMut(u32)| {
            let start = Instant::now();
            run(n);
            times[i] += start.elapsed();
        };
        clock(0, &mut { spawn });
        clock(1, &mut { reexec });
        clock(2, &mut { ours });
        clock(3, &mut one_process);
    }
    drop(direct.stdin);
    let _ = direct.child.wait();

    let start = Instant::now();
    runtime.block_on(async {
        let mut handles: Vec<_> =
            (0..runs).map(|n| launcher.launch(&spec(root, 1_000_000 + n), Vec::new()).expect("launch")).collect();
        for handle in &mut handles {
            while let Some(event) = handle.next_event().await {
                if let StepEvent::Ended(record) = event {
                    assert!(record.exit.is_success());
                }
            }
        }
    });
    let at_once = start.elapsed();

    let ms = |d: Duration| d.as_secs_f64() * 1000.0 / f64::from(runs);
    println!("{runs} runs of {:?}", SCRIPT);
    let names = [
        "the script alone, posix_spawn",
        "a runner for each job, executed anew",
        "launcher and forked watcher (slotd)",
        "one launcher that forks the task itself",
    ];
    for (name, time) in names.iter().zip(times) {
        println!("{name:42} {:6.2} ms a job  {:5.2} x", ms(time), ms(time) / ms(times[0]));
    }
    println!("{:42} {:6.2} ms a job", "slotd, all at once", ms(at_once));
    println!("{}", memory(&runtime, &launcher, root));
}

/// What one watcher costs while its job sleeps.
fn memory(runtime: &tokio::runtime::Runtime, launcher: &Launcher, root: &Path) -> String {
    runtime.block_on(async {
        let mut spec = spec(root, 2_000_000);
        spec.script = Some(b"#!/bin/sh\nsleep 600\n".to_vec());
        let mut handle = launcher.launch(&spec, Vec::new()).expect("launch");
        let Some(StepEvent::Started { pid, .. }) = handle.next_event().await else { return String::from("no start") };
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        handle.send(slotd::exec::StepCommand::KillAll);
        while handle.next_event().await.is_some() {}
        let lines = text.lines().filter(|l| ["Rss:", "Pss:", "Private_Dirty:"].iter().any(|p| l.starts_with(p)));
        format!(
            "a watcher's memory: {}",
            lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
        )
    })
}
