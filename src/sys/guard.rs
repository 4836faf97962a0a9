//! Programs of the daemon that are no jobs, such as hooks and `nvidia-smi`: a program that hangs
//! does not outlive the daemon, however the daemon ends, nor does anything that the program has
//! started.
//!
//! The kernel can end a child with its parent (PR_SET_PDEATHSIG), but not the children of that
//! child. So a guard stands in between, a process of this program: it leads a process group, runs
//! the program in it, and kills the group when its standard input ends, whose other end only the
//! daemon has.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setpgid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// The first argument that makes `slotd` a guard: `__guard MILLISECONDS PROGRAM ARGUMENTS`.
pub const GUARD_ARG: &str = "__guard";

/// The exit codes for a program that is not there, and for one that cannot be started, as of a
/// shell.
pub const NOT_FOUND: i32 = 127;
const NOT_STARTED: i32 = 126;

/// A program under a guard. The caller takes the child's standard input, and drops it to have the
/// group killed after `grace`; to wait for the child would close it too. The program itself has
/// none.
pub fn guarded(grace: Duration, program: impl AsRef<OsStr>) -> tokio::process::Command {
    // The program of the unit tests is no slotd.
    let mut command = if cfg!(test) {
        tokio::process::Command::new(program)
    } else {
        let mut guard = tokio::process::Command::new("/proc/self/exe");
        guard.arg(GUARD_ARG).arg(grace.as_millis().to_string()).arg(program);
        guard
    };
    command.kill_on_drop(cfg!(test)).process_group(0).stdin(Stdio::piped());
    command
}

/// Kills this process and its group as soon as nobody has the other end of its standard input,
/// after a grace.
pub fn end_with_caller(grace: Duration) {
    // Usually the caller has made it a leader.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        thread::sleep(grace);
        kill(Pid::from_raw(0), Signal::SIGKILL)
    });
}

/// Has a program killed when the thread that starts it ends, and waits for it, or the whole
/// process.
pub fn end_with_thread(command: &mut std::process::Command) {
    let end = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
    // SAFETY: it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(end) };
}

/// The guard. The exit code of its program.
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
