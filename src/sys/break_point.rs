//! Break points in debug builds. A test can make a process die at one, and observe how the others
//! react. There is one at every step between a submission and the end of its job.

/// Dies by SIGKILL if this is the break point in `SLOTD_TEST_BREAK`, which has the form
/// `NAME:N:FILE`: when a process reaches it for the Nth time and FILE can be created. Does nothing
/// in release builds.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach(_: &'static str) {}

#[cfg(debug_assertions)]
pub fn reach(name: &'static str) {
    if is_here(name) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Panics where [`reach`] would die, to simulate a program with a bug.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn panic_at(_: &'static str) {}

#[cfg(debug_assertions)]
pub fn panic_at(name: &'static str) {
    assert!(!is_here(name), "break point: {name}");
}

/// Blocks where [`reach`] would die, to simulate a disk or a program that does not respond.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn hang_at(_: &str) {}

#[cfg(debug_assertions)]
pub fn hang_at(name: &str) {
    if is_here(name) {
        loop {
            std::thread::park();
        }
    }
}

#[cfg(debug_assertions)]
fn is_here(name: &str) -> bool {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let Ok(wanted) = std::env::var("SLOTD_TEST_BREAK") else { return false };
    let mut parts = wanted.splitn(3, ':');
    if parts.next() != Some(name) {
        return false;
    }
    let (count, file) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let passed = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    count == passed.to_string() && std::fs::File::create_new(file).is_ok()
}
