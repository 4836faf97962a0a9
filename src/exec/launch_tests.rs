//! Real processes through the launcher and the watcher: what is started, told, written down, killed
//! and found again.

use super::adopt::{self, Adoption};
use super::launch_spec::{SignalScope, StepEvent, TaskSpec};
use super::{LaunchSpec, Launcher, StepCommand, StepHandle};
use super::{job_dirs, job_files, launch_lock, launcher};
use crate::model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey};
use crate::protocol::request::Stream;
use crate::sys::limits;
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

/// Longer than anything here takes: a test that gets here has failed.
const PATIENCE: Duration = Duration::from_secs(120);

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Launcher::start_program(&launcher_program(dir.path()), dir.path()).unwrap();
    Lab { dir, launcher }
}

/// A program that is a launcher as `slotd __launcher` is one: this test program, told to run
/// [`launcher_process`].
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

/// Makes a program. It is written by another process: a fork of some other test must not inherit it
/// open for writing, or it could not be executed ("text file busy").
fn install(program: &Path, text: &str) {
    let mut install = std::process::Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(program).stdin(std::process::Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The launcher of the other tests. The harness's own thread sleeps meanwhile, so that this one may
/// fork.
#[test]
#[ignore = "started by the other tests as a process of its own"]
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

    /// A batch job with this script, its output in `out`.
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

    /// A step with this command.
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
    tokio::time::timeout(PATIENCE, handle.next_event())
        .await
        .expect("the step should have told something by now")
}

/// `None`: its watcher died, or was never made.
async fn end_if_told(handle: &mut StepHandle) -> Option<ExitRecord> {
    loop {
        match next(handle).await? {
            StepEvent::Ended(record) => return Some(record),
            StepEvent::Refused(why) => panic!("refused: {why}"),
            _ => {}
        }
    }
}

async fn end_of(handle: &mut StepHandle) -> ExitRecord {
    end_if_told(handle).await.expect("the watcher died")
}

/// Waits for `Started`; the pids of watcher and tasks.
async fn start_of(handle: &mut StepHandle) -> (i32, Vec<i32>) {
    loop {
        match next(handle).await {
            Some(StepEvent::Started { pid, task_pids, .. }) => return (pid, task_pids),
            Some(StepEvent::TaskEnded { .. } | StepEvent::Usage(_)) => {}
            other => panic!("no start but {other:?}"),
        }
    }
}

/// Waits until the file has a line: a step says so that it has come to some point.
async fn line_in(path: &Path) -> String {
    let look = async {
        loop {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, look)
        .await
        .unwrap_or_else(|_| panic!("nothing in {}", path.display()))
}

/// Whether anything of a process is left: the first of its threads may be dead while another one
/// still holds its files.
fn is_alive(pid: i32) -> bool {
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    crate::sys::proc::stat(pid).is_some_and(|s| s.state != b'Z' || threads() > 1)
}

/// Waits until this process is gone.
async fn gone(pid: i32) {
    let gone = async {
        while is_alive(pid) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn a_batch_script_runs_and_its_end_is_told_and_written_down() {
    let lab = lab();
    let mut spec = lab.batch("echo hello $1 $FOO; exit 3");
    spec.argv = vec!["two words".into()];
    spec.set_env = vec![("FOO".into(), "bar".into())];
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

#[tokio::test]
async fn a_script_that_is_open_for_writing_for_a_moment_runs_after_it() {
    let lab = lab();
    let spec = lab.batch("exit 3");
    super::store_script(&lab.job_dir(), spec.script.as_deref().unwrap()).unwrap();
    let script = lab.job_dir().join("script.sh");
    let open = fs::OpenOptions::new().write(true).open(script).unwrap();
    let mut handle = lab.launch(&spec);
    // The streams of the task are the last thing before it executes.
    let begins = async {
        while !lab.path("out").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begins).await.unwrap();
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
    spec.set_env = vec![("Q".into(), "line one\nline 'two'".into()), ("-x".into(), "1".into())];
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
async fn a_task_that_dies_of_a_signal_has_the_signal_in_its_code() {
    let lab = lab();
    let record = lab.run(&lab.batch("kill -SEGV $$")).await;
    assert_eq!(record.exit, ExitCode::signal(libc::SIGSEGV));
}

#[tokio::test]
async fn the_worst_of_the_tasks_is_the_steps_code() {
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
async fn commands_that_cannot_run_say_so_with_slurms_codes() {
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
async fn a_missing_interpreter_is_named() {
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
async fn a_missing_working_directory_fails_the_launch_and_is_not_made() {
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
    // An output below it is not opened: that would make the directory.
    spec.run = 1;
    spec.tasks[0].stdout = Stream::File { path: missing.join("out"), append: false };
    assert_eq!(lab.run(&spec).await.launch_error, Some(why));
    assert!(!missing.exists());
}

#[tokio::test]
async fn an_output_that_cannot_be_opened_is_a_failed_launch() {
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
async fn a_directory_that_is_no_cgroup_is_a_failed_launch() {
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
async fn nothing_of_the_daemon_leaks_into_a_task() {
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
    // One in the background, one that has left session and parent. That parent is waited for: it
    // would count too.
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
async fn the_time_of_orphans_counts() {
    let lab = lab();
    // The burner is nobody's child but the watcher's when it ends, before the script does.
    let script = "(sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo >done' &) ; while [ ! -e done ]; do sleep 0.01; done";
    let record = lab.run(&lab.batch(script)).await;
    assert!(record.usage.user_us + record.usage.system_us > 20_000, "{:?}", record.usage);
}

/// A shell and a child of it have handlers for SIGUSR1, a sleep has none. When the shell has had
/// the signal and `until` exists, it does `last` and leaves; `$s` is the sleep.
fn three_processes(lab: &Lab, until: &str, last: &str) -> LaunchSpec {
    let child = "trap 'echo got >child' USR1; echo >ready_child; while :; do sleep 0.01; done";
    fs::write(lab.path("child.sh"), child).unwrap();
    let script = "sleep 600 & s=$!; sh child.sh & trap 'got=1' USR1; echo >ready
        while [ -z \"$got\" ] || [ ! -e \"$UNTIL\" ]; do sleep 0.01; done
        eval \"$LAST\"";
    LaunchSpec {
        set_env: vec![("UNTIL".into(), until.into()), ("LAST".into(), last.into())],
        ..lab.batch(script)
    }
}

#[tokio::test]
async fn a_warning_reaches_all_that_handle_it_and_kills_nothing() {
    let lab = lab();
    let mut handle = lab.launch(&three_processes(&lab, "child", "kill -9 $s; wait $s; exit $?"));
    line_in(&lab.path("ready")).await;
    line_in(&lab.path("ready_child")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::Handlers });
    // The sleep died of the shell's signal and of no other.
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::status(128 + libc::SIGKILL));
}

#[tokio::test]
async fn a_signal_for_the_batch_shell_reaches_the_shell_alone() {
    let lab = lab();
    let mut handle = lab.launch(&three_processes(&lab, "ready", "kill -9 $s; wait $s; exit $?"));
    line_in(&lab.path("ready")).await;
    line_in(&lab.path("ready_child")).await;
    handle.send(StepCommand::Signal { signal: libc::SIGUSR1, target: SignalScope::BatchShell });
    // The sleep died of the shell's signal and of no other.
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
async fn kill_all_ends_a_step_that_ignores_everything() {
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
async fn a_suspended_step_stands_still_until_it_is_resumed() {
    let lab = lab();
    // One process that waits in the kernel: a shell in the middle of a vfork could not be seen to
    // stop.
    let mut handle = lab.launch(&lab.batch("mkfifo go; echo >ready; read x <go"));
    let (_, tasks) = start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Suspend);
    // The answer comes after the signals were sent.
    handle.send(StepCommand::Usage);
    let Some(StepEvent::Usage(usage)) = next(&mut handle).await else { panic!("no usage") };
    assert!(usage.pids.contains(&tasks[0]) && usage.rss_kb > 0);
    let stopped = async {
        while crate::sys::proc::stat(tasks[0]).unwrap().state != b'T' {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, stopped).await.unwrap();
    handle.send(StepCommand::Resume);
    let go = lab.path("go");
    tokio::task::spawn_blocking(move || fs::write(go, "x\n")).await.unwrap().unwrap();
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::OK);
}

#[tokio::test]
async fn a_notice_is_a_line_in_the_jobs_standard_error() {
    let lab = lab();
    let mut handle = lab.launch(&lab.batch("echo >ready; while [ ! -s out ]; do sleep 0.01; done"));
    line_in(&lab.path("ready")).await;
    handle.send(StepCommand::Notice("slurmstepd: error: *** JOB 7 CANCELLED ***".into()));
    end_of(&mut handle).await;
    assert_eq!(lab.out(), "slurmstepd: error: *** JOB 7 CANCELLED ***\n");
}

#[tokio::test]
async fn one_bad_task_ends_the_step_where_that_was_asked_for() {
    let lab = lab();
    let mut spec = lab.step(&["sh", "-c", "[ $R = 1 ] && exit 5; exec sleep 600"]);
    spec.kill_on_bad_exit = true;
    spec.own_end.grace_ms = 60_000;
    spec.tasks = (0..2)
        .map(|rank| TaskSpec {
            rank,
            env: vec![("R".into(), rank.to_string())],
            ..TaskSpec::default()
        })
        .collect();
    let record = lab.run(&spec).await;
    assert_eq!(record.tasks, [ExitCode::signal(libc::SIGTERM), ExitCode::status(5)]);
}

#[tokio::test]
async fn handed_over_descriptors_are_the_tasks_streams() {
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
async fn a_step_ends_with_the_client_that_it_is_tied_to() {
    let lab = lab();
    let mut spec =
        lab.step(&["sh", "-c", "trap '' TERM HUP; echo >ready; while :; do sleep 600; done"]);
    spec.tie_fd = Some(0);
    let (client, theirs) = UnixStream::pair().unwrap();
    let mut handle = lab.launcher.launch(&spec, vec![theirs.into()]).unwrap();
    line_in(&lab.path("ready")).await;
    drop(client);
    assert_eq!(end_of(&mut handle).await.exit, ExitCode::signal(libc::SIGKILL));
}

#[tokio::test]
async fn a_terminal_is_the_tasks_controlling_terminal() {
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
async fn a_running_step_is_adopted_after_its_daemon_is_gone() {
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
    // And once more after its end.
    let Adoption::Ended(record) = adopt::inspect(&lab.job_dir(), StepId::Batch, 0).unwrap() else {
        panic!("it ended")
    };
    assert_eq!(record.exit, ExitCode::status(6));
}

#[tokio::test]
async fn what_ended_without_a_daemon_has_its_true_code() {
    let Lab { dir, launcher } = lab();
    let job_dir = dir.path().join("lib/jobs/7");
    let lab = Lab { dir, launcher };
    let spec = lab.batch("echo >ready; while [ ! -e go ]; do sleep 0.01; done; exit 6");
    let mut handle = lab.launch(&spec);
    start_of(&mut handle).await;
    line_in(&lab.path("ready")).await;
    drop(handle);
    // The daemon's side goes, and the launcher with it.
    let Lab { dir, launcher } = lab;
    drop(launcher);
    fs::write(dir.path().join("go"), "").unwrap();
    let root = dir.path().to_owned();
    tokio::task::spawn_blocking(move || adopt::await_launches(&root)).await.unwrap().unwrap();
    let record = match adopt::inspect(&job_dir, StepId::Batch, 0).unwrap() {
        Adoption::Ended(record) => *record,
        // It had not noticed yet that it may go on.
        Adoption::Running(mut handle) => end_of(&mut handle).await,
        other => panic!("{other:?}"),
    };
    assert_eq!(record.exit, ExitCode::status(6));
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
    // Another run is another launch.
    let mut again = lab.launch(&LaunchSpec { run: 1, ..spec });
    end_of(&mut again).await;
    assert_eq!(fs::read_to_string(lab.path("count")).unwrap(), "once\nonce\n");
}

#[tokio::test]
async fn a_step_that_was_never_launched_is_told_from_a_lost_one() {
    let lab = lab();
    let job_dir = lab.job_dir();
    assert!(matches!(adopt::inspect(&job_dir, StepId::Batch, 0).unwrap(), Adoption::NeverLaunched));
    // What is left has executed its program when it says so: meanwhile it would have no environment.
    let left = "setsid sh -c 'echo $$ >left; while :; do sleep 1; done' & wait";
    let mut spec = lab.batch(left);
    spec.set_env = vec![
        ("SLURM_JOB_ID".into(), "7".into()),
        ("SLOTD_ROOT".into(), lab.dir.path().display().to_string()),
    ];
    let mut handle = lab.launch(&spec);
    let (watcher, _) = start_of(&mut handle).await;
    let left: i32 = line_in(&lab.path("left")).await.trim().parse().unwrap();
    assert!(crate::sys::proc::kill(watcher, libc::SIGKILL));
    while let Some(event) = next(&mut handle).await {
        assert!(!matches!(event, StepEvent::Ended(_)), "{event:?}");
    }
    assert!(matches!(adopt::inspect(&job_dir, StepId::Batch, 0).unwrap(), Adoption::Lost));
    assert!(adopt::kill_leftovers(lab.dir.path(), spec.step) >= 1);
    gone(left).await;
}

#[tokio::test]
async fn a_launcher_that_was_killed_is_replaced_and_its_steps_go_on() {
    let lab = lab();
    let spec =
        lab.batch("echo >ready; while [ -e ready ] && [ ! -e go ]; do sleep 0.01; done; exit 2");
    let mut before = lab.launch(&spec);
    line_in(&lab.path("ready")).await;
    let old = lab.launcher.pid();
    assert!(crate::sys::proc::kill(old as i32, libc::SIGKILL));
    gone(old as i32).await;
    let mut after = lab.launch(&LaunchSpec {
        step: StepKey { job: JobId(7), step: StepId::Num(1) },
        ..lab.step(&["true"])
    });
    for (handle, step, exit) in [
        (&mut after, StepId::Num(1), ExitCode::OK),
        (&mut before, StepId::Batch, ExitCode::status(2)),
    ] {
        let told = end_if_told(handle).await;
        // Which of them was lost, and whether it ran.
        let found = || adopt::inspect(&lab.job_dir(), step, 0);
        assert_eq!(told.map(|record| record.exit), Some(exit), "{step:?}: {:?}", found());
        assert_ne!(lab.launcher.pid(), old);
        fs::write(lab.path("go"), "").unwrap();
    }
}

#[tokio::test]
async fn hundreds_of_launches_at_once_all_end() {
    let lab = lab();
    // Those of the other tests count too.
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
    assert_eq!(record.launch_error.as_deref(), Some("the command holds a zero byte"));
    assert_eq!(lab.out(), "", "a task ran before it was known that all can be made");
}

#[tokio::test]
async fn a_step_that_is_ended_while_its_tasks_are_made_makes_no_more() {
    let lab = lab();
    let mut spec = lab.step(&["sleep", "100"]);
    spec.tasks = (0..512).map(|rank| TaskSpec { rank, ..TaskSpec::default() }).collect();
    let mut handle = lab.launch(&spec);
    handle.send(StepCommand::Signal { signal: libc::SIGTERM, target: SignalScope::Processes });
    let made = start_of(&mut handle).await.1.len();
    assert!(made < 512, "all were made");
    let record = end_of(&mut handle).await;
    assert_eq!((record.exit, record.tasks.len()), (ExitCode::signal(libc::SIGTERM), 512));
}

#[tokio::test]
async fn what_the_daemon_found_wrong_stands_in_the_output() {
    let lab = lab();
    let spec =
        LaunchSpec { broken: Some("cgroup /x: is none".to_owned()), ..lab.batch("echo ran") };
    let record = lab.run(&spec).await;
    assert_eq!(
        (record.launch_error.as_deref(), record.host_fault),
        (Some("cgroup /x: is none"), None)
    );
    assert_eq!(lab.out(), "slurmstepd: error: cgroup /x: is none\n");
    assert!(lab.job_dir().join("script.sh").exists(), "what was to run can be read all the same");
}

/// A step of its own with this number.
fn numbered(lab: &Lab, number: u32, argv: &[&str]) -> LaunchSpec {
    LaunchSpec { step: StepKey { job: JobId(7), step: StepId::Num(number) }, ..lab.step(argv) }
}

/// Runs a step; its watcher, and how it ended.
async fn watched(lab: &Lab, spec: &LaunchSpec) -> (i32, ExitRecord) {
    let mut handle = lab.launch(spec);
    let (watcher, _) = start_of(&mut handle).await;
    (watcher, end_of(&mut handle).await)
}

#[tokio::test]
async fn a_watcher_takes_one_step_after_the_other_and_counts_each_for_itself() {
    let lab = lab();
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero | cat >/dev/null; exit 3";
    let (watcher, first) = watched(&lab, &numbered(&lab, 0, &["sh", "-c", burn])).await;
    let (same, second) = watched(&lab, &numbered(&lab, 1, &["true"])).await;
    assert_eq!(same, watcher);
    assert_eq!((first.exit, second.exit), (ExitCode::status(3), ExitCode::OK));
    // What it is told of the second's memory is not the watcher's own, nor the first one's.
    let large = numbered(&lab, 4, &["sh", "-c", "x=$(head -c 60000000 /dev/zero | tr '\\0' x)"]);
    assert!(watched(&lab, &large).await.1.usage.max_rss_kb > 50_000);
    let small = watched(&lab, &numbered(&lab, 5, &["true"])).await.1.usage.max_rss_kb;
    assert!(small < 3_000, "{small} KB");
    let cpu = |record: &ExitRecord| record.usage.user_us + record.usage.system_us;
    assert!(cpu(&second) < cpu(&first), "{second:?}");
    let read = |record: &ExitRecord| record.usage.tasks.read.max;
    assert!(read(&first) >= 3_000_000 && read(&second) < 1_000_000, "{first:?} {second:?}");
    // What one step has set is not the next one's.
    let spec = LaunchSpec { umask: Some(0o77), ..numbered(&lab, 2, &["true"]) };
    assert_eq!(watched(&lab, &spec).await.0, watcher);
    let spec = numbered(&lab, 3, &["sh", "-c", "umask; ulimit -n; pwd; exec sleep 600"]);
    // What it has open while a step runs, and what the step has said.
    let reused = while_it_runs(&lab, &spec).await;
    assert!(reused.2.starts_with("0022\n"), "{reused:?}");
    assert_eq!(reused.0, watcher);
    // It is the same with a new watcher.
    assert!(crate::sys::proc::kill(watcher, libc::SIGKILL));
    gone(watcher).await;
    let new = while_it_runs(&lab, &LaunchSpec { run: 1, ..spec }).await;
    assert_ne!(new.0, watcher);
    assert_eq!((new.1, new.2), (reused.1, reused.2));
}

/// How many descriptors a process has while it sleeps: a watcher opens others for a moment when it
/// looks at its step.
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
            // The same sleep: it has not run in between.
            if before.is_some() && sleep() == before {
                return open;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap()
}

/// The watcher, how many descriptors it has, and three lines of output of a step that is ended
/// then.
async fn while_it_runs(lab: &Lab, spec: &LaunchSpec) -> (i32, usize, String) {
    let mut handle = lab.launch(spec);
    let (watcher, _) = start_of(&mut handle).await;
    let open = open_while_asleep(watcher).await;
    let said = async {
        while lab.out().lines().count() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, said).await.unwrap();
    handle.send(StepCommand::KillAll);
    end_of(&mut handle).await;
    (watcher, open, lab.out())
}

#[tokio::test]
async fn a_watcher_of_a_large_launch_or_a_killed_one_takes_no_other_step() {
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
        assert!(crate::sys::proc::kill(watcher, libc::SIGKILL));
        gone(watcher).await;
        watchers.push(watcher);
    }
}

#[tokio::test]
async fn a_job_that_goes_on_is_written_down_and_one_that_is_over_at_once_is_in_its_exit_record() {
    let lab = lab();
    let job = Job { id: JobId(7), ..Job::default() };
    let spec = |script: &str| LaunchSpec { job: Some(Box::new(job.clone())), ..lab.batch(script) };
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
    tokio::time::timeout(PATIENCE, written).await.expect("the job is written down while it runs");
    handle.send(StepCommand::KillAll);
    end_of(&mut handle).await;
    assert!(!fs::read_to_string(lab.job_dir().join("exit_status")).unwrap().contains("\"job\""));
}

#[tokio::test]
async fn watchers_that_wait_end_with_their_daemon_and_hold_up_the_next_until_then() {
    let lab = lab();
    let (watcher, _) = watched(&lab, &numbered(&lab, 0, &["true"])).await;
    let root = lab.dir.path().to_owned();
    assert!(crate::sys::proc::kill(lab.launcher.pid() as i32, libc::SIGKILL));
    let lock = launch_lock::path(&root);
    let waits = crate::sys::lock::take_within(&lock, Duration::from_millis(50)).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::TimedOut);
    drop(lab.launcher);
    tokio::task::spawn_blocking(move || adopt::await_launches(&root)).await.unwrap().unwrap();
    gone(watcher).await;
}

#[tokio::test]
async fn the_socket_of_a_watcher_goes_from_step_to_step_and_what_a_dead_one_leaves_is_removed() {
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
        // Its name while no step has it is there from the end of the first one on.
        assert_eq!(idle(), number as usize);
        handle.send(StepCommand::KillAll);
        end_of(&mut handle).await;
        assert_eq!((socket.exists(), idle()), (false, 1));
    }
    assert_eq!(seen[0], seen[1]);
    // It was there before.
    let mut again = lab.launch(&numbered(&lab, 0, &["true"]));
    assert!(matches!(next(&mut again).await, Some(StepEvent::Refused(_))));
    gone(seen[0].0).await;
    assert_eq!(idle(), 0);
    let (watcher, _) = watched(&lab, &numbered(&lab, 2, &["true"])).await;
    assert!(crate::sys::proc::kill(watcher, libc::SIGKILL));
    assert!(crate::sys::proc::kill(lab.launcher.pid() as i32, libc::SIGKILL));
    gone(watcher).await;
    assert_eq!(idle(), 1);
    adopt::await_launches(lab.dir.path()).unwrap();
    assert_eq!(idle(), 0);
}
