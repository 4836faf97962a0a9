//! The first things that a process does: what Rust does before its own `main`, as far as slotd
//! wants it.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Opens `/dev/null` in place of standard streams that this process was started without. The next
/// file that it opens would have their number else, and get what is meant for them.
pub fn open_standard_streams() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: three entries, which are ours.
    let polled = unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    if polled < 1 {
        return;
    }
    for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
        // SAFETY: a text with a zero byte at its end. What is opened gets the lowest number that is
        // free.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}

/// What becomes of a process that writes to a pipe without a reader. For the start: other threads
/// would do as they please.
pub fn on_broken_pipe(handler: SigHandler) {
    // SAFETY: no thread runs yet, and the handler is none of ours.
    // The signal exists: there is nothing to tell.
    let _ = unsafe { signal(Signal::SIGPIPE, handler) };
}

/// What becomes of a process that writes more to a file than its limit allows. Where it is ignored
/// the write fails.
pub fn on_large_file(handler: SigHandler) {
    // SAFETY: no thread runs yet, and the handler is none of ours.
    // The signal exists: there is nothing to tell.
    let _ = unsafe { signal(Signal::SIGXFSZ, handler) };
}
