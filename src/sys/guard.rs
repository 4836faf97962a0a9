//! Runs helper programs of the daemon, such as hooks and `nvidia-smi`. A hung program does not
//! outlive the daemon, however it exits, nor do the program's descendants.
//!
//! The kernel can kill a child when its parent exits (PR_SET_PDEATHSIG), but not the children of
//! that child. So there is a guard process in between, which runs this executable. It leads a
//! process group, runs the program in it, and kills the group when its standard input is closed.
//! Only the daemon has the other end.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setpgid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// The first argument that starts a guard: `__guard MILLISECONDS PROGRAM ARGUMENTS`.
pub const GUARD_ARG: &str = "__guard";

/// The exit codes for a program that does not exist and for one that cannot be started, as in a
/// shell.
pub const NOT_FOUND: i32 = 127;
const NOT_STARTED: i32 = 126;

/// Returns the command of a program under a guard. Dropping the child's standard input kills the
/// group after `grace`. The caller must take it before waiting for the child, which would close it.
/// The program itself has no standard input.
pub fn guarded(grace: Duration, program: impl AsRef<OsStr>) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.arg(GUARD_ARG).arg(grace.as_millis().to_string()).arg(program);
    command.process_group(0).stdin(Stdio::piped());
    command
}

/// Like [`guarded`], for unit tests, whose executable cannot be a guard. Dropping the child kills
/// the program.
pub fn unguarded(program: impl AsRef<OsStr>) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command.kill_on_drop(true).process_group(0).stdin(Stdio::piped());
    command
}

/// Kills this process and its group, after a grace period, once the other end of its standard input
/// is closed.
pub fn end_with_caller(grace: Duration) {
    // Usually, the caller has already made it a group leader.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        thread::sleep(grace);
        kill(Pid::from_raw(0), Signal::SIGKILL)
    });
}

/// Kills a program when the thread that starts and waits for it exits, or the whole process does.
pub(crate) fn end_with_thread(command: &mut std::process::Command) {
    let end = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
    // SAFETY: makes a single system call and does not allocate.
    unsafe { command.pre_exec(end) };
}

/// Runs the guard and returns the exit code of its program.
pub fn run(args: &[OsString]) -> u8 {
    let [grace, program, words @ ..] = args else { return 2 };
    let grace = grace
        .to_str()
        .and_then(|text| text.parse().ok())
        .map_or(Duration::ZERO, Duration::from_millis);
    end_with_caller(grace);
    let ended = std::process::Command::new(program).args(words).stdin(Stdio::null()).status();
    let code = match ended {
        Ok(status) => status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1),
        Err(e) if e.kind() == io::ErrorKind::NotFound => NOT_FOUND,
        Err(_) => NOT_STARTED,
    };
    u8::try_from(code).unwrap_or(1)
}
