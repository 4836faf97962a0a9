//! Interactive use in a real terminal: srun --pty and messages that are printed only on terminals.

use nix::fcntl::OFlag;
use nix::pty::{Winsize, grantpt, posix_openpt, unlockpt};
use nix::sys::signal::Signal;
use slotd_kit::Slotd;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A command in a terminal of its own, and everything that it printed.
struct Session {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    fn start(mut command: Command) -> Session {
        let (keys, slave) = terminal();
        resize(&keys, 33, 101);
        let terminal = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(terminal()).stdout(terminal()).stderr(terminal()).env("TERM", "dumb");
        // SAFETY: the calls are safe between fork and exec, and no handler is set.
        unsafe {
            command.pre_exec(|| {
                // Do not ignore Ctrl-C, as tests do in the background of a shell without job
                // control. A shell that inherited this would continue even if its commands died of
                // Ctrl-C.
                for interrupt in [Signal::SIGINT, Signal::SIGQUIT] {
                    nix::sys::signal::signal(interrupt, nix::sys::signal::SigHandler::SigDfl)?;
                }
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        drop(slave);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&shown);
        let mut screen = keys.try_clone().unwrap();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // A closed terminal returns an error (EIO).
            while let Ok(n @ 1..) = screen.read(&mut chunk) {
                keep.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Session { child, keys, shown }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).replace('\r', "")
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        let seen = slotd_kit::until(|| self.text().contains(text).then_some(()));
        assert!(seen.is_some(), "{text:?} is not on the screen:\n{}", self.text());
    }

    #[track_caller]
    fn ends(&mut self) -> i32 {
        let status = slotd_kit::until(|| self.child.try_wait().unwrap());
        status
            .unwrap_or_else(|| panic!("the command does not end:\n{}", self.text()))
            .code()
            .unwrap_or(-1)
    }
}

/// Opens a terminal and returns both sides. Daemons and commands of other tests would inherit the
/// descriptors of `openpty` and keep the terminal open.
fn terminal() -> (File, OwnedFd) {
    let own = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(own).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    // SAFETY: the call takes only numbers.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, own.bits()) };
    assert!(slave >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    (File::from(OwnedFd::from(master)), slave)
}

fn resize(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the size outlives the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(done, 0);
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn srun(slotd: &Slotd, args: &[&str]) -> Session {
    let mut command = slotd.command("srun");
    command.args(args);
    Session::start(command)
}

#[test]
fn program_has_a_terminal_of_the_same_size() {
    let slotd = Slotd::start();
    let mut session = srun(
        &slotd,
        &["--pty", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size; exit 3"],
    );
    assert_eq!(session.ends(), 3);
    session.shows("33 101");
    assert_eq!(slotd.wait_end(1).exit(), "3:0");
}

#[test]
fn only_the_first_task_has_the_terminal() {
    let slotd = Slotd::start();
    let mut session = srun(
        &slotd,
        &[
            "-Q",
            "-n",
            "2",
            "--pty",
            "sh",
            "-c",
            "test -t 1; echo $SLURM_PROCID $? >log.$SLURM_PROCID; echo seen",
        ],
    );
    assert_eq!(session.ends(), 0);
    assert_eq!(
        (slotd.read("log.0"), slotd.read("log.1")),
        ("0 0\n".to_owned(), "1 1\n".to_owned())
    );
    session.shows("seen\n");
    assert_eq!(session.text(), "seen\n");
}

#[test]
fn shell_reads_input_from_the_terminal() {
    let slotd = Slotd::start();
    let mut session = srun(&slotd, &["--pty", "sh"]);
    session.types("echo id=$SLURM_JOB_ID.$SLURM_STEP_ID\n");
    session.shows("id=1.0");
    session.types("exit 7\n");
    assert_eq!(session.ends(), 7);
}

#[test]
fn control_c_goes_to_the_program() {
    let slotd = Slotd::start();
    let mut session = srun(
        &slotd,
        &[
            "--pty",
            "sh",
            "-c",
            "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
        ],
    );
    session.shows("ready");
    session.types("\x03");
    session.shows("caught");
    assert_eq!(session.ends(), 9);
}

#[test]
fn window_size_changes_are_forwarded() {
    let slotd = Slotd::start();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut session = srun(&slotd, &["--pty", "sh", "-c", script]);
    session.shows("ready");
    resize(&session.keys, 44, 77);
    session.shows("44 77");
    assert_eq!(session.ends(), 0);
}

#[test]
fn terminal_is_restored_afterwards() {
    let slotd = Slotd::start();
    let mut shell = slotd.shell();
    shell
        .arg("-c")
        .arg("stty -a | cksum; srun --pty stty raw -echo; stty -a | cksum; echo end of it");
    let mut session = Session::start(shell);
    session.ends();
    session.shows("end of it");
    let text = session.text();
    // On a busy machine, srun reports that the job is queued.
    let is_sum = |line: &&str| !line.contains("end") && !line.starts_with("srun: ");
    let lines: Vec<&str> = text.lines().filter(is_sum).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], lines[1], "{text}");
}

#[test]
fn closing_the_terminal_ends_the_job() {
    let slotd = Slotd::start();
    let session = srun(&slotd, &["--pty", "sh", "-c", "echo ready; exec sleep 1000"]);
    session.shows("ready");
    slotd_kit::proc::signal(session.child.id() as i32, slotd_kit::proc::KILL);
    slotd.wait_end(1);
    slotd.wait("the end of its process", || {
        (!slotd
            .processes()
            .iter()
            .any(|pid| slotd_kit::proc::cmdline(*pid).starts_with("sleep 1000")))
        .then_some(())
    });
}

#[test]
fn pty_without_a_terminal_is_ignored_like_in_slurm() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["--pty", "sh", "-c", "test -t 0 || echo none; exit 3"]).fails(3);
    assert_eq!(out.stdout, "none\n");
    assert!(
        out.stderr.contains("Not using a pseudo-terminal, disregarding --pty option"),
        "{}",
        out.stderr
    );
}

#[test]
fn pty_and_no_wait_are_mutually_exclusive() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["--pty", "--no-wait", "true"]);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("--pty"), "{}", out.stderr);
    assert!(slotd.all_records().is_empty());
}

#[test]
fn shell_of_salloc_has_the_terminal() {
    let slotd = Slotd::start();
    let mut session = Session::start(slotd.command("salloc"));
    session.shows("Granted job allocation 1");
    session.types("test -t 0 && echo tty=$SLURM_JOB_ID\n");
    session.shows("tty=1");
    // As in Slurm, srun reads the terminal while it runs, so further input must wait for its end.
    session.types("srun echo st'e'p; echo af'ter'\n");
    session.shows("\nstep");
    session.shows("\nafter");
    session.types("exit 5\n");
    assert_eq!(session.ends(), 5);
    session.shows("Relinquishing job allocation 1");
}

#[test]
fn shell_as_the_command_of_salloc_runs_once_with_the_terminal() {
    let slotd = Slotd::start();
    let mut salloc = slotd.command("salloc");
    salloc.args(["-n2", "bash", "--norc"]);
    let mut session = Session::start(salloc);
    session.shows("Granted job allocation 1");
    session.types("test -t 0 && echo tty=$SLURM_JOB_ID of $SLURM_NTASKS\n");
    session.shows("tty=1 of 2");
    session.types("exit 5\n");
    assert_eq!(session.ends(), 5);
    session.shows("Relinquishing job allocation 1");
    assert_eq!(session.text().matches("tty=1 of 2").count(), 1);
}

/// Starts an interactive shell with job control in a terminal.
fn shell(slotd: &Slotd) -> Session {
    let mut bash = slotd.shell();
    bash.args(["-c", "PS1='$ ' exec bash --norc --noprofile -i"]);
    let mut session = Session::start(bash);
    session.types("echo be'gun'\n");
    session.shows("\nbegun");
    session
}

#[test]
fn srun_in_the_background_leaves_the_input_to_the_shell() {
    let slotd = Slotd::start();
    let mut session = shell(&slotd);
    let gate = slotd.gate("go");
    session.types(&format!("srun -l sh -c '{gate}; echo it ended' &\n"));
    slotd.wait("the client's own socket", || {
        slotd.job_dir(1).join("0.attach").exists().then_some(())
    });
    session.types("echo ty'ped'\n");
    session.shows("\ntyped");
    slotd.open("go");
    session.shows("0: it ended");
    session.types("jobs; echo no'body'\n");
    session.shows("\nnobody");
    assert!(!session.text().contains("Stopped"), "{}", session.text());
}

#[test]
fn srun_in_the_foreground_again_reads_the_input() {
    let slotd = Slotd::start();
    let mut session = shell(&slotd);
    session.types("srun -l cat &\n");
    slotd.wait("the client's own socket", || {
        slotd.job_dir(1).join("0.attach").exists().then_some(())
    });
    session.types("echo ty'ped'\n");
    session.shows("\ntyped");
    session.types("fg\n");
    session.shows("srun -l cat\n");
    session.types("for cat\n");
    session.shows("0: for cat");
    session.types("\x04");
    session.types("echo ag'ain'\n");
    session.shows("\nagain");
    assert_eq!(slotd.wait_end(1).state(), "COMPLETED");
}

#[test]
fn hangup_of_the_terminal_ends_the_job() {
    let slotd = Slotd::start();
    let mut session =
        srun(&slotd, &["--pty", "sh", "-c", "trap '' HUP; echo ready; sleep 1000; :"]);
    session.shows("ready");
    slotd_kit::proc::signal(session.child.id() as i32, libc::SIGHUP);
    slotd_kit::proc::signal(session.child.id() as i32, libc::SIGTERM);
    session.ends();
    slotd.wait_end(1);
}

/// Waits until no srun is running.
fn without_srun(slotd: &Slotd) {
    let is_srun = |pid: &i32| slotd_kit::proc::cmdline(*pid).starts_with("srun ");
    slotd.wait("the end of srun", || (!slotd.processes().iter().any(is_srun)).then_some(()));
}

#[test]
fn control_c_stops_the_script_that_runs_srun() {
    let slotd = Slotd::start();
    let script =
        slotd.write("script.sh", "srun sh -c 'echo one is up; exec sleep 1000'\necho wrongly on\n");
    let script = script.display();
    let mut session = shell(&slotd);
    session.types(&format!("bash {script}; echo en'ded' $?\n"));
    session.shows("\none is up");
    slotd.wait("the step's record", || slotd.job(1).steps().first().map(|_| ()));
    session.types("\x03");
    // Input typed while srun reads the terminal does not reach the shell.
    without_srun(&slotd);
    // An interactive bash abandons the whole line.
    session.types("echo af'ter' $?\n");
    session.shows("\nafter 130");
    assert!(!session.text().contains("wrongly on"), "{}", session.text());
    assert_eq!(slotd.wait_end(1).exit(), "0:2");
}

#[test]
fn control_c_ends_srun_even_if_its_shell_ignores_it() {
    let slotd = Slotd::start();
    let script = "trap '' INT\nsrun sh -c 'echo one is up; exec sleep 1000'\necho rc $?\n";
    let script = slotd.write("script.sh", script);
    let mut bash = slotd.shell();
    bash.arg("-c").arg(format!("exec bash {}", script.display()));
    let mut session = Session::start(bash);
    session.shows("one is up");
    session.types("\x03");
    // The script continues, because its shell ignores Ctrl-C.
    session.shows("rc 130");
    assert_eq!(slotd.wait_end(1).exit(), "0:2");
}

#[test]
fn control_c_in_a_pty_step_also_stops_the_script() {
    let slotd = Slotd::start();
    let mut session = shell(&slotd);
    session.types(
        "for i in 1 2; do srun --pty sh -c 'echo $SLURM_JOB_ID is up; exec sleep 1000'; done\n",
    );
    session.shows("\n1 is up");
    session.types("\x03");
    without_srun(&slotd);
    session.types("echo af'ter'\n");
    session.shows("\nafter");
    assert_eq!(slotd.all_records().len(), 1, "{}", session.text());
}

#[test]
fn escape_sequence_in_a_name_does_not_reach_the_terminal() {
    let slotd = Slotd::start();
    let job = slotd.endless(&["-J", "a\u{1b}[2Jb"]);
    let id = job.to_string();
    for (name, args, shown) in [
        ("squeue", &["-h", "-o", "%j"][..], "a\\033[2Jb\n"),
        ("squeue", &["-h", "-o", "name"], "a\\033[2Jb\n"),
        ("sacct", &["-XPn", "-o", "jobname"], "a\\033[2Jb\n"),
        ("scontrol", &["show", "job", &id], "JobName=a\\033[2Jb\n"),
        ("squeue", &["--json"], "\"name\": \"a\\u001b[2Jb\""),
    ] {
        let mut command = slotd.command(name);
        command.args(args);
        let mut session = Session::start(command);
        session.shows(shown);
        session.ends();
        assert!(!session.text().contains('\u{1b}'), "{name} {args:?}");
    }
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%j"]).ok().stdout, "a\u{1b}[2Jb\n");
    slotd.cancel(job);
}

#[test]
fn sbatch_on_a_terminal_reports_how_several_tasks_run() {
    let slotd = Slotd::setup().start();
    let sbatch = |own: &str, script: &str| {
        let mut command = slotd.command("sbatch");
        command.env("SLOTD_BATCH_TASKS", own).args(["-n", "2", "--hold", "--wrap", script]);
        Session::start(command)
    };
    sbatch("", "make -j $SLURM_NTASKS")
        .shows("sbatch: the script runs once with resources for 2 tasks: it reads SLURM_NTASKS (set SLOTD_BATCH_TASKS=ranks");
    sbatch("", "./app")
        .shows("sbatch: the script runs 2 times, once for each task: it starts no tasks itself (");
    sbatch("once", "./app").shows("once with resources for 2 tasks: SLOTD_BATCH_TASKS is once");
    // Without a terminal, nothing is printed.
    assert_eq!(slotd.cmd("sbatch", &["-n", "2", "--hold", "--wrap", "./app"]).ok().stderr, "");
}

#[test]
fn sbatch_on_a_terminal_notes_once_that_memory_is_not_enforced() {
    let slotd = Slotd::start();
    let sbatch = |args: &[&str]| {
        let mut command = slotd.command("sbatch");
        command.args(args).args(["--hold", "--wrap", "true"]);
        let mut session = Session::start(command);
        session.shows("Submitted batch job");
        assert_eq!(session.ends(), 0);
        session
            .text()
            .contains("sbatch: --mem is reserved, but limits are not enforced on this host: jobs can use more; `slotd install --cgroup-base")
    };
    assert!(!sbatch(&[]), "the job requests no memory");
    assert_eq!(
        slotd.cmd("sbatch", &["--mem=1M", "--hold", "--wrap", "true"]).ok().stderr,
        "",
        "a program"
    );
    assert_eq!([sbatch(&["--mem=1M"]), sbatch(&["--mem=1M"])], [true, false]);
}

#[test]
fn seff_prints_more_on_a_terminal() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--mem=1M"], "helper eat 50; exit 139").to_string();
    slotd.wait_end(job.parse().unwrap());
    let piped = slotd.cmd("seff", &[&job]).ok().stdout;
    assert!(piped.contains("Memory Utilized: ") && !piped.contains("NOTE"), "{piped}");
    let mut command = slotd.command("seff");
    command.arg(&job);
    let mut session = Session::start(command);
    assert_eq!(session.ends(), 0);
    for note in [
        "NOTE: Exit code 139 is 128 + 11: usually a command was killed by SIGSEGV: ",
        "memory limits are not enforced on this host; `slotd install --cgroup-base auto` enforces them where there is a systemd user manager.",
        "NOTE: Memory is sampled: a short combined peak of several processes may be missing.",
    ] {
        session.shows(note);
    }
}

#[test]
fn sbatch_without_a_script_reports_that_it_reads_from_the_terminal() {
    let slotd = Slotd::start();
    let mut shell = slotd.shell();
    shell.arg("-c").arg("sbatch >submitted");
    let mut session = Session::start(shell);
    session.shows("sbatch: reading the script from standard input: press Ctrl-D to end it");
    session.types("#!/bin/sh\nexit 3\n\x04");
    assert_eq!(session.ends(), 0);
    assert_eq!(slotd.read("submitted"), "Submitted batch job 1\n");
    assert_eq!(slotd.wait_end(1).exit(), "3:0");
}
