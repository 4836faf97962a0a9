//! Shared by tests of scripts: the program, its commands, waiting, and running commands that must
//! succeed.

use crate::PATIENCE;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns the Slurm commands, as listed by the program itself.
pub fn commands() -> Vec<String> {
    let names = Command::new(crate::program()).arg("commands").output().expect("slotd runs").stdout;
    String::from_utf8(names).expect("names are text").lines().map(str::to_owned).collect()
}

/// Polls `ask` until it returns a value, for conditions without an event to wait for.
///
/// # Panics
/// Panics after [`PATIENCE`], with the output of `dump`.
pub fn wait_for<T>(what: &str, dump: impl Fn() -> String, mut ask: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}\n{}", dump());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program that must succeed, and returns its standard output.
///
/// # Panics
/// Panics with all its output if it fails.
pub fn must(command: &mut Command, log: impl Fn() -> String) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(
        status.success(),
        "{command:?}: {status}\n--- stdout\n{stdout}--- stderr\n{stderr}--- daemon\n{}",
        log()
    );
    stdout.into_owned()
}

/// Writes an executable file from another process. A descriptor open for writing in a test would be
/// inherited by processes that other tests start at that moment, and until it is closed, executing
/// the file fails ("text file busy").
///
/// # Panics
/// Panics if the file cannot be written.
pub fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("it is in a directory"))
        .expect("the directory is created");
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("coreutils");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    assert!(child.wait().expect("ours").success(), "{} cannot be written", path.display());
}
