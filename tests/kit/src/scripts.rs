//! What tests of scripts share: the program, its commands, waiting, and running what must succeed.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before the test gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n--- stdout\n{stdout}--- stderr\n{stderr}--- daemon\n{}", log());
    stdout.into_owned()
}
