//! Break points of debug builds: the process that comes to one can be made to die there, once, so
//! that a test sees what the others make of it. They stand at every step between a submission and
//! the end of its job.

/// Dies by SIGKILL where this is the break point that `SLOTD_TEST_BREAK` names: `NAME:N:FILE`, at
/// the Nth time that one process comes there, if FILE could be made. Release builds have none.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach(_: &'static str) {}

#[cfg(debug_assertions)]
pub fn reach(name: &'static str) {
    if is_here(name) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Panics where [`reach`] would die: what a program leaves behind that has a fault of its own.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn panic_at(_: &'static str) {}

#[cfg(debug_assertions)]
pub fn panic_at(name: &'static str) {
    assert!(!is_here(name), "break point: {name}");
}

/// Never returns where [`reach`] would die: a disk or a program that does not answer.
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
