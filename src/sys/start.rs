//! Process initialization: the parts of Rust's own startup code that slotd needs.

use nix::sys::signal::{SigHandler, Signal, signal};
use std::any::Any;
use std::panic;

/// Opens `/dev/null` for each standard stream that is closed. Otherwise, the next opened file would
/// get the stream's number and receive its data.
pub fn open_standard_streams() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: three entries that we own.
    let polled = unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    if polled < 1 {
        return;
    }
    for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
        // SAFETY: a string with a final zero byte. The file gets the lowest free number.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}

/// Sets how the process reacts to a write to a pipe without a reader. Call it at start, before
/// other threads run.
pub fn on_broken_pipe(handler: SigHandler) {
    // SAFETY: no other thread is running yet, and the handler is not our own. The signal exists, so
    // this cannot fail.
    let _ = unsafe { signal(Signal::SIGPIPE, handler) };
}

/// Sets how the process reacts when a file exceeds its size limit. If the signal is ignored, the
/// write fails.
pub fn on_large_file(handler: SigHandler) {
    // SAFETY: no other thread is running yet, and the handler is not our own. The signal exists, so
    // this cannot fail.
    let _ = unsafe { signal(Signal::SIGXFSZ, handler) };
}

/// Makes the process exit with code 1 and one line if the host cannot start a thread, because of a
/// limit on processes or memory. The standard library, tokio and actix panic in this case.
pub fn report_missing_threads() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !is_missing_thread(info.payload()) {
            return report(info);
        }
        eprintln!(
            "slotd: error: cannot start a thread: the limit on processes (ulimit -u) or on memory is \
             reached: end some of your processes, or raise the limit"
        );
        std::process::exit(1);
    }));
}

/// Returns whether a panic is about a thread that the host could not start: EAGAIN or ENOMEM, as
/// debug output or as text.
fn is_missing_thread(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    let is_spawn = text.contains("spawn") && text.contains("thread");
    is_spawn
        && [libc::EAGAIN, libc::ENOMEM].iter().any(|code| {
            text.contains(&format!("code: {code},")) || text.contains(&format!("os error {code})"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn panics_about_missing_threads_are_recognized() {
        let why = io::Error::from_raw_os_error(libc::EAGAIN);
        for text in [
            format!("failed to spawn thread: {why:?}"),
            format!("Cannot spawn Arbiter's thread: \"actix-rt\": {why:?}"),
            format!("OS can't spawn worker thread: {why}"),
        ] {
            assert!(is_missing_thread(&text), "{text}");
        }
        let other = io::Error::from_raw_os_error(libc::EINVAL);
        for text in [format!("failed to spawn thread: {other:?}"), format!("cannot read: {why}")] {
            assert!(!is_missing_thread(&text), "{text}");
        }
        assert!(!is_missing_thread(&7) && !is_missing_thread(&"index out of bounds"));
    }
}
