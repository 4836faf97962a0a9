//! What tests of scripts share: the program, its commands, waiting, and running what must succeed.

use crate::PATIENCE;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The Slurm commands, as the program tells them itself.
pub fn commands() -> Vec<String> {
    let names = Command::new(crate::program()).arg("commands").output().expect("slotd runs").stdout;
    String::from_utf8(names).expect("names are text").lines().map(str::to_owned).collect()
}

/// Asks again and again, since what is waited for is told by no event, until there is an answer.
///
/// # Panics
/// After [`PATIENCE`], with what `dump` says.
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

/// Standard output of a program that must succeed.
///
/// # Panics
/// With everything it said, where it did not.
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

/// Writes an executable file, by another process: what a test holds open for writing is inherited
/// by whatever another test starts in that moment, and as long as it is open, nobody can execute it
/// ("text file busy").
///
/// # Panics
/// It cannot be written.
pub fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("its directory");
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("coreutils");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    assert!(child.wait().expect("ours").success(), "{} cannot be written", path.display());
}
