//! Real processes through the launcher and the watcher: starting, reporting, recording, killing and
//! adopting them.

use super::adopt::{self, Adoption};
use super::launch_spec::{JobText, SignalScope, StepEvent, TaskSpec};
use super::{LaunchSpec, Launcher, StepCommand, StepHandle};
use super::{environment, job_dirs, job_files, launch_lock, launcher};
use slotd_model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use slotd_protocol::request::Stream;
use slotd_sys::limits;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Lab {
    dir: tempfile::TempDir,
    launcher: Launcher,
}

/// Longer than anything here takes. A test that waits this long has failed.
const TIMEOUT: Duration = Duration::from_secs(120);

fn start_launcher(root: &Path) -> Launcher {
    let nofile = limits::descriptors().unwrap();
    Launcher::start_program(&launcher_program(root), root, nofile).unwrap()
}

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let launcher = start_launcher(dir.path());
    Lab { dir, launcher }
}

/// Installs a program that acts as a launcher, like `slotd __launcher`: this test program, set to
/// run [`launcher_process`].
fn launcher_program(dir: &Path) -> PathBuf {
    let program = dir.join("launcher");
    let this = std::env::current_exe().unwrap();
    let test = concat!(module_path!(), "::launcher_process").split_once("::").unwrap().1;
    let text = format!(
        "#!/bin/sh\nLAUNCHER_ROOT=$2 LAUNCHER_NOFILE=$3 \\\n    \
         exec '{}' --exact {test} --ignored --nocapture --test-threads 1\n",
        this.display()
    );
    install(&program, &text);
    program
}

/// Installs a program. Another process writes it, since a fork by another test could inherit a
/// descriptor that is open for writing, and executing it would fail ("text file busy").
fn install(program: &Path, text: &str) {
    let mut install = std::process::Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(program).stdin(std::process::Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The launcher of the other tests. The harness's own thread sleeps in the meantime, so this one
/// may fork.
#[test]
#[ignore = "started by the other tests as a separate process"]
fn launcher_process() {
    let args = ["LAUNCHER_ROOT", "LAUNCHER_NOFILE"].map(|name| std::env::var(name).unwrap());
    launcher::launcher_main(&args);
}

impl Lab {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn job_dir(&self) -> PathBuf {
        self.path("lib/jobs/7")
    }

    /// Returns a batch job with this script and its output in `out`.
    fn batch(&self, script: &str) -> LaunchSpec {
        let out = Stream::File { path: self.path("out"), append: false };
        LaunchSpec {
            step: StepKey { job: JobId(7), step: StepId::Batch },
            job_dir: self.job_dir(),
            script: Some(format!("#!/bin/sh\n{script}\n").into_bytes()),
            env: b"PATH=/usr/local/bin:/usr/bin:/bin\0".to_vec(),
            work_dir: self.dir.path().to_owned(),
            tasks: vec![TaskSpec {
                stdout: out,
                stderr: Stream::SameAsStdout,
                ..TaskSpec::default()
            }],
            ..LaunchSpec::default()
        }
    }

    /// Returns a step with this command.
    fn step(&self, argv: &[&str]) -> LaunchSpec {
        LaunchSpec {
            step: StepKey { job: JobId(7), step: StepId::Num(0) },
            script: None,
            argv: argv.iter().map(|s| s.to_string()).collect(),
            ..self.batch("")
        }
    }

    fn launch(&self, spec: &LaunchSpec) -> StepHandle {
        self.launcher.launch(spec, Vec::new()).unwrap()
    }

    async fn run(&self, spec: &LaunchSpec) -> ExitRecord {
        end_of(&mut self.launch(spec)).await
    }

    fn out(&self) -> String {
        fs::read_to_string(self.path("out")).unwrap()
    }
}

async fn next(handle: &mut StepHandle) -> Option<StepEvent> {
    tokio::time::timeout(TIMEOUT, handle.next_event())
        .await
        .expect("the step should have reported something by now")
}

/// Returns `None` if its watcher died or was never created.
async fn end_if_reported(handle: &mut StepHandle) -> Option<ExitRecord> {
    loop {
        match next(handle).await? {
            StepEvent::Ended(record) => return Some(record),
            StepEvent::Refused(why) => panic!("refused: {why}"),
            _ => {}
        }
    }
}

async fn end_of(handle: &mut StepHandle) -> ExitRecord {
    end_if_reported(handle).await.expect("the watcher died")
}

/// Waits for `Started`, and returns the PIDs of the watcher and the tasks.
async fn start_of(handle: &mut StepHandle) -> (i32, Vec<i32>) {
    loop {
        match next(handle).await {
            Some(StepEvent::Started { pid, task_pids, .. }) => return (pid, task_pids),
            Some(StepEvent::TaskEnded { .. } | StepEvent::Usage(_)) => {}
            other => panic!("expected a start, got {other:?}"),
        }
    }
}

/// Waits until the file has a line, which a step writes when it has reached a certain point.
async fn line_in(path: &Path) -> String {
    let look = async {
        loop {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, look)
        .await
        .unwrap_or_else(|_| panic!("nothing in {}", path.display()))
}

/// Returns whether anything of a process is left: its first thread may be dead while another one
/// still holds its files.
fn is_alive(pid: i32) -> bool {
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    slotd_sys::proc::stat(pid).is_some_and(|s| s.state != b'Z' || threads() > 1)
}

/// Waits until this process has exited.
async fn gone(pid: i32) {
    let gone = async {
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone).await.unwrap();
}

#[tokio::test]
async fn a_batch_script_runs_and_its_end_is_reported_and_recorded() {
    let lab = lab();
    let mut spec = lab.batch("echo hello $1 $FOO; exit 3");
    spec.argv = vec!["two words".into()];
    spec.env.extend_from_slice(b"FOO=bar\0");
    spec.write_runner = true;
    let mut handle = lab.launch(&spec);
    let (pid, tasks) = start_of(&mut handle).await;
    assert_eq!(tasks.len(), 1);
    assert_ne!(pid, tasks[0]);
    assert_eq!(
        next(&mut handle).await,
        Some(StepEvent::TaskEnded { rank: 0, exit: ExitCode::status(3) })
    );
    let Some(StepEvent::Ended(record)) = next(&mut handle).await else { panic!("no end") };
    assert_eq!(record.exit, ExitCode::status(3));
    assert_eq!(record.tasks, [ExitCode::status(3)]);
    assert_eq!(record.launch_error, None);
    assert!(record.ended >= record.started);
    assert_eq!(next(&mut handle).await, None);
    assert_eq!(lab.out(), "hello two words bar\n");
    assert_eq!(job_files::read_record(&lab.job_dir(), StepId::Batch, 0).unwrap(), Some(record));
    let mut files: Vec<_> = fs::read_dir(lab.job_dir())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["exit_status", "runner.sh", "script.sh"]);
}

#[test]
fn stored_script_replaces_what_was_left_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (job_dir, other) = (dir.path().join("1"), dir.path().join("other"));
    let script = job_dir.join("script.sh");
    fs::write(&other, "keep").unwrap();
    let leave: [&dyn Fn(); 4] = [
        &|| fs::write(&script, "#!/bin/sh\necho old\n").unwrap(),
        &|| std::os::unix::fs::symlink(&other, &script).unwrap(),
        &|| fs::hard_link(&other, &script).unwrap(),
        &|| nix::unistd::mkfifo(&script, nix::sys::stat::Mode::S_IRWXU).unwrap(),
    ];
    for leave in leave {
        let _ = fs::remove_dir_all(&job_dir);
        super::job_files::make_job_dir(&job_dir).unwrap();
        leave();
        super::job_files::write_program(&script, b"#!/bin/sh\n").unwrap();
        assert!(fs::symlink_metadata(&script).unwrap().is_file());
        assert_eq!(fs::read_to_string(&script).unwrap(), "#!/bin/sh\n");
        assert_eq!(fs::read_to_string(&other).unwrap(), "keep");
    }
    fs::remove_file(&script).unwrap();
    fs::create_dir(&script).unwrap();
    assert!(super::job_files::write_program(&script, b"#!/bin/sh\n").is_err(), "it is a directory");
}

#[tokio::test]
async fn a_script_that_is_briefly_open_for_writing_runs_afterwards() {
    let lab = lab();
    let spec = lab.batch("exit 3");
    let script = lab.job_dir().join("script.sh");
    super::job_files::make_job_dir(&lab.job_dir()).unwrap();
    super::job_files::write_program(&script, spec.script.as_deref().unwrap()).unwrap();
    let open = fs::OpenOptions::new().write(true).open(script).unwrap();
    let mut handle = lab.launch(&spec);
    // Opening its streams is the last thing a task does before it executes.
    let begins = async {
        while !lab.path("out").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, begins).await.unwrap();
    drop(open);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(3));
}

#[tokio::test]
async fn the_runner_script_reproduces_the_launch() {
    let lab = lab();
    let mut spec =
        lab.batch(r#"umask; pwd; printf '%s|' "$@"; printf '%s\n' "$Q"; echo err >&2; exit 4"#);
    fs::create_dir(lab.path("a dir")).unwrap();
    spec.work_dir = lab.path("a dir");
    spec.argv = vec!["it's".into(), "$HOME \\ \"x\"".into(), String::new()];
    spec.env.extend_from_slice(b"Q=line one\nline 'two'\0-x=1\0");
    spec.umask = Some(0o027);
    spec.write_runner = true;
    spec.tasks[0].stdout = Stream::File { path: lab.path("deep/er/out put"), append: false };
    spec.tasks[0].stderr = Stream::File { path: lab.path("err"), append: true };
    assert_eq!(lab.run(&spec).await.exit, ExitCode::status(4));
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap();
    let first = read("deep/er/out put");
    assert!(first.starts_with("0027\n") && first.contains("line 'two'"), "{first}");
    fs::remove_dir_all(lab.path("deep")).unwrap();
    let status =
        std::process::Command::new("sh").arg(lab.job_dir().join("runner.sh")).status().unwrap();
    assert_eq!(status.code(), Some(4));
    assert_eq!(read("deep/er/out put"), first);
    assert_eq!(read("err"), "err\nerr\n");
}

#[tokio::test]
async fn the_runner_script_starts_every_rank() {
    let lab = lab();
    let mut spec = lab.batch("echo rank $SLURM_PROCID; exit $SLURM_PROCID");
    spec.write_runner = true;
    spec.tasks = (0..3)
        .map(|rank| TaskSpec {
            rank,
            env: vec![("SLURM_PROCID".into(), rank.to_string())],
            ..spec.tasks[0].clone()
        })
        .collect();
    assert_eq!(lab.run(&spec).await.exit, ExitCode::status(2));
    let sorted = || {
        let text = lab.out();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    let first = sorted();
    assert_eq!(first, ["rank 0", "rank 1", "rank 2"]);
    let status =
        std::process::Command::new("sh").arg(lab.job_dir().join("runner.sh")).status().unwrap();
    assert_eq!(status.code(), Some(2));
    assert_eq!(sorted(), first);
}

#[tokio::test]
async fn a_task_killed_by_a_signal_reports_the_signal() {
    let lab = lab();
    let record = lab.run(&lab.batch("kill -SEGV $$")).await;
    assert_eq!(record.exit, ExitCode::signal(libc::SIGSEGV));
}

#[tokio::test]
async fn the_exit_code_of_a_step_is_that_of_its_worst_task() {
    let lab = lab();
    let mut spec = lab.step(&["sh", "-c", "exit $CODE"]);
    spec.tasks = [3, 9, 0]
        .iter()
        .enumerate()
        .map(|(i, code)| TaskSpec {
            rank: i as u32,
            env: vec![("CODE".into(), code.to_string())],
            ..TaskSpec::default()
        })
        .collect();
    let record = lab.run(&spec).await;
    assert_eq!(record.exit, ExitCode::status(9));
    assert_eq!(record.tasks, [3, 9, 0].map(ExitCode::status));
}

#[tokio::test]
async fn commands_that_cannot_run_exit_with_slurms_codes() {
    let lab = lab();
    install(&lab.path("plain"), "echo no interpreter\n");
    fs::write(lab.path("noexec"), "x").unwrap();
    let here = lab.dir.path().display().to_string();
    for (command, code, text) in [
        ("nosuchcommand", 2, "execve(): nosuchcommand: No such file or directory".to_string()),
        ("./nope", 2, format!("execve(): {here}/./nope: No such file or directory")),
        ("./noexec", 13, format!("execve(): {here}/./noexec: Permission denied")),
        ("plain", 8, "execve(): plain: Exec format error".to_string()),
        ("/usr", 13, "execve(): /usr: Permission denied".to_string()),
    ] {
        let mut spec = lab.step(&[command]);
        spec.run = code as u32 + command.len() as u32;
        let record = lab.run(&spec).await;
        assert_eq!(record.exit, ExitCode::status(code), "{command}");
        assert_eq!(record.launch_error, None);
        assert_eq!(lab.out(), format!("slurmstepd: error: {text}\n"));
    }
}

#[tokio::test]
async fn the_error_names_a_missing_interpreter() {
    let lab = lab();
    let mut spec = lab.batch("");
    spec.script = Some(b"#!/no/such/interp\n".to_vec());
    assert_eq!(lab.run(&spec).await.exit, ExitCode::status(2));
    assert_eq!(
        lab.out(),
        "slurmstepd: error: execve(): bad interpreter(/no/such/interp): No such file or directory\n"
    );
}

#[tokio::test]
async fn a_missing_working_directory_fails_the_launch_and_is_not_created() {
    let lab = lab();
    let mut spec = lab.batch("pwd");
    let missing = lab.path("missing");
    spec.work_dir = missing.clone();
    let record = lab.run(&spec).await;
    assert_eq!(record.exit, ExitCode::LAUNCH_FAILED);
    let why = format!(
        "could not enter the working directory {}: No such file or directory",
        missing.display()
    );
    assert_eq!(record.launch_error, Some(why.clone()));
    assert_eq!(lab.out(), format!("slurmstepd: error: {why}\n"));
    // No output file is opened below the missing directory, since this would create the directory.
    spec.run = 1;
    spec.tasks[0].stdout = Stream::File { path: missing.join("out"), append: false };
    assert_eq!(lab.run(&spec).await.launch_error, Some(why));
    assert!(!missing.exists());
}

#[tokio::test]
async fn an_output_file_that_cannot_be_opened_fails_the_launch() {
    let lab = lab();
    fs::write(lab.path("file"), "").unwrap();
    let mut spec = lab.batch("echo started >$PWD/started");
    spec.tasks[0].stdout = Stream::File { path: lab.path("file/out"), append: false };
    let record = lab.run(&spec).await;
    assert_eq!(record.exit, ExitCode::LAUNCH_FAILED);
    let why = record.launch_error.unwrap();
    assert!(
        why.starts_with("could not open stdout file") && why.ends_with("Not a directory"),
        "{why}"
    );
    assert!(!lab.path("started").exists());
}

#[tokio::test]
async fn a_directory_that_is_not_a_cgroup_fails_the_launch() {
    let lab = lab();
    let mut spec = lab.batch("echo started");
    spec.cgroup = Some(lab.dir.path().to_owned());
    let record = lab.run(&spec).await;
    assert_eq!(record.exit, ExitCode::LAUNCH_FAILED);
    assert!(record.launch_error.unwrap().contains("could not join the cgroup"));
    assert_eq!(lab.out(), "");
}

#[tokio::test]
async fn outputs_are_truncated_or_appended_to() {
    let lab = lab();
    for (run, append, expected) in [(0, false, "x\n"), (1, true, "x\nx\n"), (2, false, "x\n")] {
        let mut spec = lab.batch("echo x");
        spec.run = run;
        spec.tasks[0].stdout = Stream::File { path: lab.path("out"), append };
        lab.run(&spec).await;
        assert_eq!(lab.out(), expected);
    }
}

#[tokio::test]
async fn no_state_of_the_daemon_leaks_into_a_task() {
    let lab = lab();
    let record = lab
        .run(&lab.batch(
            "env; ls /proc/self/fd | wc -l; umask; grep -E 'Sig(Blk|Ign)' /proc/self/status",
        ))
        .await;
    assert_eq!(record.exit, ExitCode::OK);
    let out = lab.out();
    let names: Vec<&str> =
        out.lines().filter_map(|l| l.split_once('=')).map(|(name, _)| name).collect();
    for name in names {
        assert!(
            matches!(name, "PATH" | "PWD" | "SLURM_TASK_PID" | "_" | "SHLVL" | "OLDPWD"),
            "{name}\n{out}"
        );
    }
    // 0, 1, 2, and the directory that ls reads.
    assert!(out.contains("\n4\n0022\n"), "{out}");
    assert_eq!(out.matches("0000000000000000").count(), 2, "{out}");
}

#[tokio::test]
async fn stragglers_do_not_outlive_the_step() {
    let lab = lab();
    // One process in the background, and one that has left its session and parent. The parent is
    // waited for, otherwise it would count too.
    let script = "sleep 600 & echo $! >a; setsid sh -c 'sleep 600 & echo $! >b' & wait $!";
    let record = lab.run(&lab.batch(script)).await;
    assert_eq!((record.exit, record.left_over), (ExitCode::OK, 2));
    assert_eq!(lab.run(&LaunchSpec { run: 1, ..lab.batch("true") }).await.left_over, 0);
    for name in ["a", "b"] {
        let pid: i32 = fs::read_to_string(lab.path(name)).unwrap().trim().parse().unwrap();
        assert!(!is_alive(pid), "{name}");
    }
}

#[tokio::test]
async fn the_cpu_time_of_orphans_counts() {
    let lab = lab();
    // The burner is a child of the watcher when it ends, and the script ends after it.
    let script = "(sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo >done' &) ; while [ ! -e done ]; do sleep 0.01; done";
    let record = lab.run(&lab.batch(script)).await;
    assert!(record.usage.user_us + record.usage.system_us > 20_000, "{:?}", record.usage);
}

/// A shell and its child have handlers for SIGUSR1; a sleep has none. When the shell has received
/// the signal and `until` exists, it runs `last` and exits. `$s` is the sleep.
fn three_processes(lab: &Lab, until: &str, last: &str) -> LaunchSpec {
    let child = "trap 'echo got >child' USR1; echo >ready_child; while :; do sleep 0.01; done";
    fs::write(lab.path("child.sh"), child).unwrap();
    let script = "sleep 600 & s=$!; sh child.sh & trap 'got=1' USR1; echo >ready
        while [ -z \"$got\" ] || [ ! -e \"$UNTIL\" ]; do sleep 0.01; done
        eval \"$LAST\"";
    let mut spec = lab.batch(script);
    spec.env.extend(format!("UNTIL={until}\0LAST={last}\0").into_bytes());
    spec
}

#[tokio::test]
async fn a_warning_reaches_all_handlers_and_kills_nothing() {
    let lab = lab();
    let mut handle = lab.launch(&three_processes(&lab, "child", "kill -9 $s; wait $s; exit $?"));
    line_in(&lab.path("ready")).await;
    line_in(&lab.path("ready_child")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::Handlers });
    // The sleep was killed by the shell and not by SIGUSR1.
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(128 + libc::SIGKILL));
}

#[tokio::test]
async fn a_warning_kills_no_command_that_a_shell_with_a_handler_starts() {
    let lab = lab();
    // The shell reports a command that was killed.
    let script = "trap : USR1; echo >ready; while [ ! -e enough ]; do /bin/true; done";
    let mut handle = lab.launch(&lab.batch(script));
    line_in(&lab.path("ready")).await;
    for _ in 0..200 {
        handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::Handlers });
    }
    // The response is sent after the signals.
    handle.send(StepCommand::Usage);
    while !matches!(next(&mut handle).await, Some(StepEvent::Usage(_))) {}
    fs::write(lab.path("enough"), "").unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
    assert_eq!(fs::read_to_string(lab.path("out")).unwrap(), "");
}

#[tokio::test]
async fn a_signal_for_the_batch_shell_reaches_only_the_shell() {
    let lab = lab();
    let mut handle = lab.launch(&three_processes(&lab, "ready", "kill -9 $s; wait $s; exit $?"));
    line_in(&lab.path("ready")).await;
    line_in(&lab.path("ready_child")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::BatchShell });
    // The sleep was killed by the shell and not by SIGUSR1.
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(128 + libc::SIGKILL));
    assert!(!lab.path("child").exists());
}

#[tokio::test]
async fn a_signal_for_the_tasks_reaches_their_groups() {
    let lab = lab();
    let mut handle = lab.launch(&three_processes(&lab, "ready", "wait $s; exit $?"));
    line_in(&lab.path("ready")).await;
    line_in(&lab.path("ready_child")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::Tasks });
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(128 + libc::SIGUSR1));
}

#[tokio::test]
async fn kill_all_ends_a_step_that_ignores_all_signals() {
    let lab = lab();
    let mut handle =
        lab.launch(&lab.batch(
            "trap '' TERM HUP INT; sh -c 'while :; do sleep 600; done' & echo >ready; while :; do sleep 600; done",
        ));
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGTERM, target: SignalScope::Processes });
    handle.send(StepCommand::KillAll);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::signal(libc::SIGKILL));
}

#[tokio::test]
async fn a_suspended_step_is_stopped_until_it_is_resumed() {
    let lab = lab();
    // Use a single process that waits in the kernel: a shell in the middle of a vfork would not be
    // seen to stop.
    let mut handle = lab.launch(&lab.batch("mkfifo go; echo >ready; read x <go"));
    let (_, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Suspend);
    // The response is sent after the signals.
    handle.send(StepCommand::Usage);
    let Some(StepEvent::Usage(usage)) = next(&mut handle).await else { panic!("no usage") };
    assert!(usage.pids.contains(&tasks[0]) && usage.rss_kb > 0);
    wait_stopped(tasks[0]).await;
    handle.send(StepCommand::Resume);
    let go = lab.path("go");
    tokio::task::spawn_blocking(move || fs::write(go, "x\n")).await.unwrap().unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
}

/// Returns tasks whose environment has their rank as `R`.
fn ranks(count: u32) -> Vec<TaskSpec> {
    let task = |rank: u32| {
        let env = vec![("R".into(), rank.to_string())];
        TaskSpec { rank, env, ..TaskSpec::default() }
    };
    (0..count).map(task).collect()
}

/// Waits until the watcher has carried out all earlier commands.
async fn caught_up(handle: &mut StepHandle) {
    handle.send(StepCommand::Usage);
    while !matches!(next(handle).await.expect("the watcher died"), StepEvent::Usage(_)) {}
}

async fn wait_stopped(pid: i32) {
    let stopped = async {
        while slotd_sys::proc::stat(pid).unwrap().state != b'T' {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, stopped).await.unwrap();
}

#[tokio::test]
async fn no_signal_wakes_a_suspended_step() {
    let lab = lab();
    let step = &lab.batch("trap 'echo USR1 >>caught' USR1; mkfifo go; echo >ready; read x <go");
    let mut handle = lab.launch(step);
    let (_, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Suspend);
    wait_stopped(tasks[0]).await;
    for signal in [libc::SIGCONT, libc::SIGUSR1, libc::SIGSTOP, libc::SIGCONT] {
        for target in [SignalScope::BatchShell, SignalScope::Tasks, SignalScope::Processes] {
            handle.send(StepCommand::Signal { signal, target });
        }
    }
    caught_up(&mut handle).await;
    assert_eq!(slotd_sys::proc::stat(tasks[0]).unwrap().state, b'T');
    assert!(!lab.path("caught").exists());
    handle.send(StepCommand::Resume);
    line_in(&lab.path("caught")).await;
    handle.send(StepCommand::KillAll);
    end_of(&mut handle).await;
}

#[tokio::test]
async fn a_stop_signal_to_a_suspended_step_takes_effect_when_it_is_resumed() {
    let lab = lab();
    let mut handle = lab.launch(&lab.batch("mkfifo go; echo >ready; read x <go"));
    let (_, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Suspend);
    wait_stopped(tasks[0]).await;
    let target = SignalScope::Processes;
    handle.send(StepCommand::Signal { signal: libc::SIGSTOP, target });
    handle.send(StepCommand::Resume);
    caught_up(&mut handle).await;
    wait_stopped(tasks[0]).await;
    handle.send(StepCommand::Signal { signal: libc::SIGCONT, target });
    let go = lab.path("go");
    tokio::task::spawn_blocking(move || fs::write(go, "x\n")).await.unwrap().unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
}

#[tokio::test]
async fn a_suspended_step_that_ends_itself_is_killed_at_once() {
    let lab = lab();
    let mut spec = lab.step(&["sh", "-c", "echo $$ >pid$R; exec sleep 600"]);
    spec.kill_on_bad_exit = true;
    spec.own_end.grace_ms = 600_000;
    spec.tasks = ranks(2);
    let mut handle = lab.launch(&spec);
    let (_, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("pid0")).await;
    line_in(&lab.path("pid1")).await;
    handle.send(StepCommand::Suspend);
    wait_stopped(tasks[1]).await;
    handle.send(StepCommand::Signal { signal: libc::SIGKILL, target: SignalScope::Rank(0) });
    let record = end_of(&mut handle).await;
    assert_eq!(record.tasks, [ExitCode::signal(libc::SIGKILL); 2]);
}

#[tokio::test]
async fn a_notice_is_written_to_the_jobs_standard_error() {
    let lab = lab();
    let mut handle = lab.launch(&lab.batch("echo >ready; while [ ! -s out ]; do sleep 0.01; done"));
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Notice("slurmstepd: error: *** JOB 7 CANCELLED ***".into()));
    end_of(&mut handle).await;
    assert_eq!(lab.out(), "slurmstepd: error: *** JOB 7 CANCELLED ***\n");
}

#[tokio::test]
async fn kill_on_bad_exit_ends_the_step_when_a_task_fails() {
    let lab = lab();
    let mut spec = lab.step(&["sh", "-c", "[ $R = 1 ] && exit 5; exec sleep 600"]);
    spec.kill_on_bad_exit = true;
    spec.own_end.grace_ms = 60_000;
    spec.tasks = ranks(2);
    let record = lab.run(&spec).await;
    assert_eq!(record.tasks, [ExitCode::signal(libc::SIGTERM), ExitCode::status(5)]);
}

#[tokio::test]
async fn passed_descriptors_become_the_tasks_streams() {
    let lab = lab();
    let mut spec = lab.step(&["cat"]);
    spec.tasks =
        vec![TaskSpec { stdin: Stream::Fd(0), stdout: Stream::Fd(1), ..TaskSpec::default() }];
    let (mut input, theirs_in) = UnixStream::pair().unwrap();
    let (mut output, theirs_out) = UnixStream::pair().unwrap();
    let fds: Vec<OwnedFd> = vec![theirs_in.into(), theirs_out.into()];
    let mut handle = lab.launcher.launch(&spec, fds).unwrap();
    input.write_all(b"through the step\n").unwrap();
    drop(input);
    let text = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
    assert_eq!(text.await.unwrap().unwrap(), "through the step\n");
}

#[tokio::test]
async fn a_step_ends_with_its_client() {
    let lab = lab();
    let mut spec =
        lab.step(&["sh", "-c", "trap '' TERM HUP; echo >ready; while :; do sleep 600; done"]);
    spec.client_fd = Some(0);
    let (client, theirs) = UnixStream::pair().unwrap();
    let mut handle = lab.launcher.launch(&spec, vec![theirs.into()]).unwrap();
    line_in(&lab.path("ready")).await;
    drop(client);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::signal(libc::SIGKILL));
}

#[tokio::test]
async fn a_terminal_becomes_the_tasks_controlling_terminal() {
    let lab = lab();
    let mut spec = lab.step(&[
        "sh",
        "-c",
        "tty <&0 >tty; echo >/dev/tty; ps -o tpgid= -p $$ >pgid; echo $$ >pid",
    ]);
    spec.pty = true;
    spec.tasks = vec![TaskSpec {
        stdin: Stream::Fd(0),
        stdout: Stream::Fd(0),
        stderr: Stream::Fd(0),
        ..TaskSpec::default()
    }];
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut handle = lab.launcher.launch(&spec, vec![pty.slave]).unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap().trim().to_string();
    assert!(read("tty").starts_with("/dev/pts/"), "{}", read("tty"));
    assert_eq!(read("pgid"), read("pid"));
}

#[tokio::test]
async fn a_running_step_is_adopted_after_its_daemon_has_exited() {
    let lab = lab();
    let spec = lab.batch("echo >ready; while [ ! -e go ]; do sleep 0.01; done; exit 6");
    let mut handle = lab.launch(&spec);
    let (pid, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    drop(handle);
    let Adoption::Running(mut handle) = adopt::inspect(&lab.job_dir(), StepId::Batch, 0).unwrap()
    else {
        panic!("it runs")
    };
    assert_eq!(start_of(&mut handle).await, (pid, tasks));
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(6));
    // Inspect it once more after its end.
    let Adoption::Ended(record) = adopt::inspect(&lab.job_dir(), StepId::Batch, 0).unwrap() else {
        panic!("it ended")
    };
    assert_eq!(record.exit, ExitCode::status(6));
}

#[tokio::test]
async fn a_step_that_ends_without_a_daemon_keeps_its_exit_code() {
    let Lab { dir, launcher } = lab();
    let job_dir = dir.path().join("lib/jobs/7");
    let lab = Lab { dir, launcher };
    let spec = lab.batch("echo >ready; while [ ! -e go ]; do sleep 0.01; done; exit 6");
    let mut handle = lab.launch(&spec);
    start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    drop(handle);
    // The daemon's side exits, and the launcher with it.
    let Lab { dir, launcher } = lab;
    drop(launcher);
    fs::write(dir.path().join("go"), "").unwrap();
    let root = dir.path().to_owned();
    tokio::task::spawn_blocking(move || adopt::await_launches(&root)).await.unwrap().unwrap();
    let record = match adopt::inspect(&job_dir, StepId::Batch, 0).unwrap() {
        Adoption::Ended(record) => *record,
        // The script had not yet noticed the file `go`.
        Adoption::Running(mut handle) => end_of(&mut handle).await,
        other => panic!("{other:?}"),
    };
    assert_eq!(record.exit, ExitCode::status(6));
}

/// Returns the names in the directory of the jobs.
fn job_dirs_of(lab: &Lab) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let entries = fs::read_dir(lab.path("lib/jobs")).unwrap();
    entries.map(|entry| name(entry).into_string().unwrap()).collect()
}

/// Prepares a launch, and waits until a watcher has written its script.
async fn prepared(lab: &Lab, spec: &LaunchSpec) -> StepHandle {
    fs::create_dir_all(lab.path("lib/jobs")).unwrap();
    let handle = lab.launcher.prepare(spec).unwrap();
    loop {
        if let [name] = job_dirs_of(lab).as_slice() {
            assert!(name.starts_with("prepared."), "{name}");
            line_in(&lab.path("lib/jobs").join(name).join("script.sh")).await;
            return handle;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_prepared_step_starts_at_the_command_to_begin() {
    let lab = lab();
    let spec = lab.batch("echo ran >>count");
    let mut handle = prepared(&lab, &spec).await;
    // The next daemon would find that it was not launched.
    let inspected = adopt::inspect(&lab.job_dir(), StepId::Batch, 0).unwrap();
    assert!(matches!(inspected, Adoption::NeverLaunched));
    assert!(!lab.path("out").exists() && !lab.path("count").exists());
    handle.begin(&spec);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "ran\n");
    assert_eq!(job_dirs_of(&lab), ["7"]);
    // The same watcher takes the next launch. It gets this reason with the command to begin.
    let spec = LaunchSpec { run: 1, ..spec };
    let mut handle = lab.launcher.prepare(&spec).unwrap();
    handle.begin(&LaunchSpec { broken: Some("no cgroup".to_owned()), ..spec.clone() });
    let record = end_of(&mut handle).await;
    assert!(record.launch_error.is_some_and(|why| why.contains("no cgroup")));
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "ran\n");
    // The job keeps the directory that it has.
    let spec = LaunchSpec { run: 2, ..spec };
    let mut handle = lab.launcher.prepare(&spec).unwrap();
    handle.begin(&spec);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "ran\nran\n");
    assert_eq!(job_dirs_of(&lab), ["7"]);
}

/// The daemon dies, or the job is cancelled before its start is durable.
#[tokio::test]
async fn a_prepared_step_never_starts_without_the_command_to_begin() {
    let lab = lab();
    let spec = lab.batch("echo ran >>count");
    drop(prepared(&lab, &spec).await);
    // The next daemon waits for its watcher, and can then launch the step itself.
    let Lab { dir, launcher } = lab;
    drop(launcher);
    let root = dir.path().to_owned();
    tokio::task::spawn_blocking(move || adopt::await_launches(&root)).await.unwrap().unwrap();
    let launcher = start_launcher(dir.path());
    let lab = Lab { dir, launcher };
    let inspected = adopt::inspect(&lab.job_dir(), StepId::Batch, 0).unwrap();
    assert!(matches!(inspected, Adoption::NeverLaunched));
    assert_eq!(job_dirs_of(&lab), [""; 0]);
    assert_eq!(lab.run(&spec).await.exit, ExitCode::OK);
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "ran\n");
}

/// A stranger's file in the way is reported by the launch itself.
#[tokio::test]
async fn a_launch_that_cannot_be_prepared_reports_why() {
    let lab = lab();
    fs::create_dir_all(lab.path("lib/jobs")).unwrap();
    fs::write(lab.job_dir(), "").unwrap();
    let spec = lab.batch("echo ran >>count");
    let mut handle = lab.launcher.prepare(&spec).unwrap();
    handle.begin(&spec);
    let record = end_of(&mut handle).await;
    assert_eq!(record.exit, ExitCode::LAUNCH_FAILED);
    assert!(record.launch_error.is_some_and(|why| why.contains("lib/jobs/7")));
    assert!(!lab.path("count").exists());
}

#[tokio::test]
async fn nothing_is_launched_twice() {
    let lab = lab();
    let spec = lab.batch("echo once >>count; echo >ready; while [ ! -e go ]; do sleep 0.01; done");
    let mut first = lab.launch(&spec);
    line_in(&lab.path("ready")).await;
    let mut second = lab.launch(&spec);
    let Some(StepEvent::Refused(why)) = next(&mut second).await else { panic!("not refused") };
    assert!(why.contains("7.batch"), "{why}");
    fs::write(lab.path("go"), "").unwrap();
    end_of(&mut first).await;
    let mut third = lab.launch(&spec);
    assert!(matches!(next(&mut third).await, Some(StepEvent::Refused(_))));
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "once\n");
    // The step in another run is another launch.
    let mut again = lab.launch(&LaunchSpec { run: 1, ..spec });
    end_of(&mut again).await;
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "once\nonce\n");
}

#[tokio::test]
async fn a_step_that_was_never_launched_is_distinguished_from_a_lost_one() {
    let lab = lab();
    let job_dir = lab.job_dir();
    assert!(matches!(adopt::inspect(&job_dir, StepId::Batch, 0).unwrap(), Adoption::NeverLaunched));
    let left = "setsid sh -c 'echo $$ >left; while :; do sleep 1; done' & wait";
    let mut spec = lab.batch(left);
    let named_by_hand = vec![
        ("SLURM_JOB_ID".to_owned(), "7".to_owned()),
        ("SLOTD_ROOT".to_owned(), lab.dir.path().display().to_string()),
    ];
    let started = ("SLURM_JOB_START_TIME".to_owned(), "20".to_owned());
    let named = [named_by_hand.clone(), vec![started]].concat();
    spec.env = environment::merge(&spec.env, &[], &[], &named);
    // A process of the user that uses the job, and one of an earlier run of it.
    let mut user = std::process::Command::new("sleep");
    let mut user = user.arg("1000").envs(named_by_hand).spawn().unwrap();
    let mut earlier = std::process::Command::new("sleep");
    earlier.envs(named).env("SLURM_JOB_START_TIME", "19");
    let mut earlier = earlier.arg("1000").spawn().unwrap();
    let mut handle = lab.launch(&spec);
    let (watcher, _) = start_of(&mut handle).await;
    let left: i32 = line_in(&lab.path("left")).await.trim().parse().unwrap();
    assert!(slotd_sys::proc::kill(watcher, libc::SIGKILL));
    while let Some(event) = next(&mut handle).await {
        assert!(!matches!(event, StepEvent::Ended(_)), "{event:?}");
    }
    assert!(matches!(adopt::inspect(&job_dir, StepId::Batch, 0).unwrap(), Adoption::Lost));
    // The record of the job shows that it was launched, even without the socket.
    let socket = job_dir.join(crate::launch_spec::socket_name(StepId::Batch, 0));
    std::fs::remove_file(socket).unwrap();
    let inspected = || adopt::inspect(&job_dir, StepId::Batch, 0).unwrap();
    assert!(matches!(inspected(), Adoption::NeverLaunched));
    let job = slotd_model::Job::default();
    std::fs::write(job_dir.join("job.json"), serde_json::to_vec(&job).unwrap()).unwrap();
    assert!(matches!(inspected(), Adoption::Lost));
    assert!(matches!(adopt::inspect(&job_dir, StepId::Batch, 1).unwrap(), Adoption::NeverLaunched));
    // The next daemon may reach the same root through a link. Another root is not its own.
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(lab.dir.path(), place.path().join("link")).unwrap();
    let start = Timestamp::from_secs(20);
    assert_eq!(adopt::kill_leftovers(place.path(), spec.step, start).killed, 0);
    let found = adopt::kill_leftovers(&place.path().join("link"), spec.step, start);
    assert!(found.killed >= 1 && !found.is_incomplete, "{found:?}");
    gone(left).await;
    for other in [&mut user, &mut earlier] {
        let ended = other.try_wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(ended, None);
    }
}

#[tokio::test]
async fn a_killed_launcher_is_replaced_and_its_steps_keep_running() {
    let lab = lab();
    let spec =
        lab.batch("echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.01; done; exit 2");
    let mut before = lab.launch(&spec);
    line_in(&lab.path("ready")).await;
    let old = lab.launcher.pid();
    assert!(slotd_sys::proc::kill(old as i32, libc::SIGKILL));
    gone(old as i32).await;
    let mut after = lab.launch(&LaunchSpec {
        step: StepKey { job: JobId(7), step: StepId::Num(1) },
        ..lab.step(&["true"])
    });
    for (handle, step, exit) in [
        (&mut after, StepId::Num(1), ExitCode::OK),
        (&mut before, StepId::Batch, ExitCode::status(2)),
    ] {
        let record = end_if_reported(handle).await;
        // If one was lost, show which, and whether it ran.
        let found = || adopt::inspect(&lab.job_dir(), step, 0);
        assert_eq!(record.map(|record| record.exit), Some(exit), "{step:?}: {:?}", found());
        assert_ne!(lab.launcher.pid(), old);
        fs::write(lab.path("go"), "").unwrap();
    }
}

#[tokio::test]
async fn hundreds_of_launches_at_once_all_end() {
    let lab = lab();
    // The descriptors of the other tests count too.
    let _ = limits::raise_descriptors();
    let mut handles: Vec<StepHandle> = (0..300)
        .map(|n| {
            let step = StepKey { job: JobId(7), step: StepId::Num(n) };
            lab.launch(&LaunchSpec {
                step,
                tasks: vec![TaskSpec::default()],
                ..lab.step(&["true"])
            })
        })
        .collect();
    for handle in &mut handles {
        assert_eq!(end_of(handle).await.exit, ExitCode::OK);
    }
}

#[tokio::test]
async fn tasks_begin_all_or_none() {
    let lab = lab();
    let word = |text: &str| Some(vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]);
    let mut spec = lab.step(&["sh"]);
    let out = Stream::File { path: lab.path("out"), append: true };
    spec.tasks = (0..40)
        .map(|rank| TaskSpec {
            rank,
            stdout: out.clone(),
            argv: word("echo ran; sleep 100"),
            ..TaskSpec::default()
        })
        .collect();
    spec.tasks[39].argv = word("a zero byte: \0");
    let record = lab.run(&spec).await;
    assert_eq!(record.launch_error.as_deref(), Some("the command contains a null byte"));
    assert_eq!(lab.out(), "", "a task ran before all were known to start");
}

#[tokio::test]
async fn a_step_that_is_ended_while_starting_starts_no_more_tasks() {
    let lab = lab();
    let mut spec = lab.step(&["sleep", "100"]);
    spec.tasks = (0..512).map(|rank| TaskSpec { rank, ..TaskSpec::default() }).collect();
    let mut handle = lab.launch(&spec);
    handle.send(StepCommand::Signal { signal: libc::SIGTERM, target: SignalScope::Processes });
    let made = start_of(&mut handle).await.1.len();
    assert!(made < 512, "all were started");
    let record = end_of(&mut handle).await;
    assert_eq!((record.exit, record.tasks.len()), (ExitCode::signal(libc::SIGTERM), 512));
}

#[tokio::test]
async fn an_error_found_by_the_daemon_appears_in_the_output() {
    let lab = lab();
    let spec =
        LaunchSpec { broken: Some("cgroup /x: is a file".to_owned()), ..lab.batch("echo ran") };
    let record = lab.run(&spec).await;
    assert_eq!(
        (record.launch_error.as_deref(), record.host_fault),
        (Some("cgroup /x: is a file"), None)
    );
    assert_eq!(lab.out(), "slurmstepd: error: cgroup /x: is a file\n");
    assert!(lab.job_dir().join("script.sh").exists(), "the script is stored all the same");
}

/// Returns a step with this number.
fn numbered(lab: &Lab, number: u32, argv: &[&str]) -> LaunchSpec {
    LaunchSpec { step: StepKey { job: JobId(7), step: StepId::Num(number) }, ..lab.step(argv) }
}

/// Runs a step, and returns its watcher's PID and its exit record.
async fn watched(lab: &Lab, spec: &LaunchSpec) -> (i32, ExitRecord) {
    let mut handle = lab.launch(spec);
    let (watcher, _) = start_of(&mut handle).await;
    (watcher, end_of(&mut handle).await)
}

#[tokio::test]
async fn a_watcher_runs_several_steps_and_counts_each_separately() {
    let lab = lab();
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero | cat >/dev/null; exit 3";
    let (watcher, first) = watched(&lab, &numbered(&lab, 0, &["sh", "-c", burn])).await;
    let (same, second) = watched(&lab, &numbered(&lab, 1, &["true"])).await;
    assert_eq!(same, watcher);
    assert_eq!((first.exit, second.exit), (ExitCode::status(3), ExitCode::OK));
    // The memory of the second step must not include the watcher's or the first step's.
    let large = numbered(&lab, 4, &["sh", "-c", "x=$(head -c 60000000 /dev/zero | tr '\\0' x)"]);
    assert!(watched(&lab, &large).await.1.usage.max_rss_kb > 50_000);
    let small = watched(&lab, &numbered(&lab, 5, &["true"])).await.1.usage.max_rss_kb;
    assert!(small < 3_000, "{small} KB");
    let cpu = |record: &ExitRecord| record.usage.user_us + record.usage.system_us;
    assert!(cpu(&second) < cpu(&first), "{second:?}");
    let read = |record: &ExitRecord| record.usage.tasks.read.max;
    assert!(read(&first) >= 3_000_000 && read(&second) < 1_000_000, "{first:?} {second:?}");
    // The settings of one step must not affect the next.
    let spec = LaunchSpec { umask: Some(0o77), ..numbered(&lab, 2, &["true"]) };
    assert_eq!(watched(&lab, &spec).await.0, watcher);
    let spec = numbered(&lab, 3, &["sh", "-c", "umask; ulimit -n; pwd; exec sleep 600"]);
    // Compare the open descriptors while a step runs, and the output of the step.
    let reused = while_it_runs(&lab, &spec).await;
    assert!(reused.2.starts_with("0022\n"), "{reused:?}");
    assert_eq!(reused.0, watcher);
    // A new watcher must give the same result.
    assert!(slotd_sys::proc::kill(watcher, libc::SIGKILL));
    gone(watcher).await;
    let new = while_it_runs(&lab, &LaunchSpec { run: 1, ..spec }).await;
    assert_ne!(new.0, watcher);
    assert_eq!((new.1, new.2), (reused.1, reused.2));
}

/// Returns the number of descriptors that a process has while it sleeps. A watcher opens others
/// briefly when it samples its step.
async fn open_while_asleep(pid: i32) -> usize {
    let sleep = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name));
        line("State:\tS").and_then(|_| line("voluntary_ctxt_switches:")).map(str::to_owned)
    };
    let counted = async {
        loop {
            let before = sleep();
            let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            // It is still the same sleep: it has not run in between.
            if before.is_some() && sleep() == before {
                return open;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, counted).await.unwrap()
}

/// Runs a step until it has printed three lines, and then ends it. Returns the watcher's PID, the
/// number of its descriptors, and the output.
async fn while_it_runs(lab: &Lab, spec: &LaunchSpec) -> (i32, usize, String) {
    let mut handle = lab.launch(spec);
    let (watcher, _) = start_of(&mut handle).await;
    let open = open_while_asleep(watcher).await;
    let printed = async {
        while lab.out().lines().count() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, printed).await.unwrap();
    handle.send(StepCommand::KillAll);
    end_of(&mut handle).await;
    (watcher, open, lab.out())
}

#[tokio::test]
async fn a_watcher_of_a_large_launch_and_a_killed_one_run_no_other_step() {
    let lab = lab();
    let large = LaunchSpec {
        env: [b"A=", &vec![b'x'; 100_000][..], b"\0"].concat().repeat(200),
        ..lab.step(&["true"])
    };
    let mut watchers = vec![watched(&lab, &large).await.0];
    for number in 1..4 {
        let (watcher, record) = watched(&lab, &numbered(&lab, number, &["true"])).await;
        assert_eq!(record.exit, ExitCode::OK);
        assert!(!watchers.contains(&watcher), "{watcher} of {watchers:?}");
        assert!(slotd_sys::proc::kill(watcher, libc::SIGKILL));
        gone(watcher).await;
        watchers.push(watcher);
    }
}

#[tokio::test]
async fn short_jobs_are_recorded_in_the_exit_record_and_others_while_they_run() {
    let lab = lab();
    let job = Job { id: JobId(7), ..Job::default() };
    let spec = |script: &str| LaunchSpec { job: JobText::of(&job), ..lab.batch(script) };
    assert_eq!(lab.run(&spec("exit 0")).await.exit, ExitCode::OK);
    assert_eq!(job_dirs::look(&lab.job_dir()).job, Some(job.clone()));
    fs::remove_dir_all(lab.job_dir()).unwrap();
    let mut handle = lab.launch(&spec("exec sleep 600"));
    start_of(&mut handle).await;
    let written = async {
        while job_dirs::look(&lab.job_dir()).job.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, written).await.expect("the job is recorded while it runs");
    handle.send(StepCommand::KillAll);
    end_of(&mut handle).await;
    assert!(!fs::read_to_string(lab.job_dir().join("exit_status")).unwrap().contains("\"job\""));
}

#[tokio::test]
async fn idle_watchers_end_with_their_daemon_and_the_next_one_waits_for_them() {
    let lab = lab();
    let (watcher, _) = watched(&lab, &numbered(&lab, 0, &["true"])).await;
    let root = lab.dir.path().to_owned();
    assert!(slotd_sys::proc::kill(lab.launcher.pid() as i32, libc::SIGKILL));
    let lock = launch_lock::path(&root);
    let waits = slotd_sys::lock::take_within(&lock, Duration::from_millis(50)).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::TimedOut);
    drop(lab.launcher);
    tokio::task::spawn_blocking(move || adopt::await_launches(&root)).await.unwrap().unwrap();
    gone(watcher).await;
}

#[tokio::test]
async fn a_watchers_socket_is_reused_and_that_of_a_dead_one_is_deleted() {
    let lab = lab();
    let idle = || {
        let names = fs::read_dir(lab.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("idle.")).count()
    };
    let mut seen = Vec::new();
    for number in 0..2 {
        let mut handle = lab.launch(&numbered(&lab, number, &["sleep", "600"]));
        let (watcher, _) = start_of(&mut handle).await;
        let socket = lab.job_dir().join(format!("{number}.0.sock"));
        seen.push((watcher, fs::metadata(&socket).unwrap().ino()));
        // From the end of the first step on, the socket also has its idle name.
        assert_eq!(idle(), number as usize);
        handle.send(StepCommand::KillAll);
        end_of(&mut handle).await;
        assert_eq!((socket.exists(), idle()), (false, 1));
    }
    assert_eq!(seen[0], seen[1]);
    // This step was launched before.
    let mut again = lab.launch(&numbered(&lab, 0, &["true"]));
    assert!(matches!(next(&mut again).await, Some(StepEvent::Refused(_))));
    gone(seen[0].0).await;
    assert_eq!(idle(), 0);
    let (watcher, _) = watched(&lab, &numbered(&lab, 2, &["true"])).await;
    assert!(slotd_sys::proc::kill(watcher, libc::SIGKILL));
    assert!(slotd_sys::proc::kill(lab.launcher.pid() as i32, libc::SIGKILL));
    gone(watcher).await;
    assert_eq!(idle(), 1);
    adopt::await_launches(lab.dir.path()).unwrap();
    assert_eq!(idle(), 0);
}
