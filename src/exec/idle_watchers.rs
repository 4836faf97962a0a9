//! Watchers that have finished their step and wait for another. A launch that an idle watcher takes
//! needs no fork.
//!
//! Each is represented by its connection. Closing the connection ends the watcher.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// The maximum number of idle watchers to keep. It is rare that more steps end and start at the
/// same moment.
const MOST: usize = 16;

/// The time after which an idle watcher is ended. Expiry is checked once per interval, so it may
/// take twice as long. In tests it is longer, so that slow machines make no difference.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

#[derive(Debug, Default)]
pub(crate) struct IdleWatchers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The idle watchers, each with the time at which it became idle, oldest first.
    lines: Vec<(UnixStream, Instant)>,
    /// A task that expires idle watchers is running.
    expiry_runs: bool,
}

impl IdleWatchers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection to an idle watcher that is still alive.
    pub(crate) fn take(&self) -> Option<UnixStream> {
        let lines = &mut self.state().lines;
        std::iter::from_fn(|| lines.pop()).map(|(line, _)| line).find(is_alive)
    }

    /// Keeps the connection to an idle watcher. Needs a tokio runtime.
    pub(crate) fn put(self: &Arc<Self>, line: UnixStream) {
        let mut state = self.state();
        if state.lines.len() >= MOST {
            return;
        }
        state.lines.push((line, Instant::now()));
        if !std::mem::replace(&mut state.expiry_runs, true) {
            tokio::spawn(expire(Arc::downgrade(self)));
        }
    }
}

/// Ends watchers that have been idle for too long, until none is left.
async fn expire(idle: Weak<IdleWatchers>) {
    loop {
        tokio::time::sleep(TIMEOUT).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut state = idle.state();
        state.lines.retain(|(_, since)| since.elapsed() < TIMEOUT);
        if state.lines.is_empty() {
            state.expiry_runs = false;
            return;
        }
    }
}

/// Returns whether the other end is open. An idle watcher sends nothing.
fn is_alive(line: &UnixStream) -> bool {
    recv(line.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)
        == Err(Errno::EAGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Shutdown, shutdown};

    #[tokio::test(start_paused = true)]
    async fn an_idle_watcher_ends_after_the_timeout() {
        let idle = Arc::new(IdleWatchers::default());
        let (ours, theirs) = UnixStream::pair().unwrap();
        idle.put(ours);
        let line = idle.take().expect("it lives");
        assert!(idle.take().is_none());
        idle.put(line);
        // Closed after the timeout, and not before.
        let begun = Instant::now();
        theirs.readable().await.unwrap();
        assert!((TIMEOUT..=TIMEOUT * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(theirs.try_read(&mut [0]).unwrap(), 0);
        assert!(idle.take().is_none());
    }

    #[tokio::test]
    async fn dead_watchers_are_skipped_and_few_are_kept() {
        let idle = Arc::new(IdleWatchers::default());
        let pairs: Vec<_> = (0..MOST + 2).map(|_| UnixStream::pair().unwrap()).collect();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        ours.into_iter().for_each(|line| idle.put(line));
        // The last connection was closed. Wait for it: a process forked by another test may hold
        // our end a little longer.
        let passed_over = theirs.pop().unwrap();
        passed_over.readable().await.unwrap();
        assert!(!is_alive(&passed_over), "it exceeds the number of watchers kept");
        // Use shutdown instead of drop, for the same reason.
        for died in &theirs[2..] {
            shutdown(died.as_raw_fd(), Shutdown::Both).unwrap();
        }
        let left = std::iter::from_fn(|| idle.take()).count();
        assert_eq!(left, 2);
    }
}
