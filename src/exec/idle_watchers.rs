//! Watchers whose step is over, and that wait for another: a launch that one of them takes needs no
//! fork.
//!
//! Each is a connection. Closing it ends the watcher.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// More than this many need not wait: as many steps seldom end and begin in one moment.
const MOST: usize = 16;

/// How long a watcher waits. They are looked after once in that time, so it may be twice as long.
/// In tests a slow machine must not make a difference.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

#[derive(Debug, Default)]
pub struct IdleWatchers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since when each waits: the last one waits for the shortest time.
    lines: Vec<(UnixStream, Instant)>,
    /// Somebody looks for those that have waited long enough.
    is_looked_after: bool,
}

impl IdleWatchers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to one that lives.
    pub fn take(&self) -> Option<UnixStream> {
        let lines = &mut self.state().lines;
        std::iter::from_fn(|| lines.pop()).map(|(line, _)| line).find(is_alive)
    }

    /// Keeps a watcher that waits. Needs a tokio runtime.
    pub fn put(self: &Arc<Self>, line: UnixStream) {
        let mut state = self.state();
        if state.lines.len() >= MOST {
            return;
        }
        state.lines.push((line, Instant::now()));
        if !std::mem::replace(&mut state.is_looked_after, true) {
            tokio::spawn(look_after(Arc::downgrade(self)));
        }
    }
}

/// Ends those that have waited long enough, until none is left.
async fn look_after(idle: Weak<IdleWatchers>) {
    loop {
        tokio::time::sleep(PATIENCE).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut state = idle.state();
        state.lines.retain(|(_, since)| since.elapsed() < PATIENCE);
        if state.lines.is_empty() {
            state.is_looked_after = false;
            return;
        }
    }
}

/// Whether the other end is open. One that waits has nothing to say.
fn is_alive(line: &UnixStream) -> bool {
    recv(line.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT)
        == Err(Errno::EAGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Shutdown, shutdown};

    #[tokio::test(start_paused = true)]
    async fn a_watcher_waits_for_a_while_and_then_ends() {
        let idle = Arc::new(IdleWatchers::default());
        let (ours, theirs) = UnixStream::pair().unwrap();
        idle.put(ours);
        let line = idle.take().expect("it lives");
        assert!(idle.take().is_none());
        idle.put(line);
        // Closed after the patience, and not before.
        let begun = Instant::now();
        theirs.readable().await.unwrap();
        assert!((PATIENCE..=PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(theirs.try_read(&mut [0]).unwrap(), 0);
        assert!(idle.take().is_none());
    }

    #[tokio::test]
    async fn a_watcher_that_has_died_is_passed_over_and_few_are_kept() {
        let idle = Arc::new(IdleWatchers::default());
        let pairs: Vec<_> = (0..MOST + 2).map(|_| UnixStream::pair().unwrap()).collect();
        let (ours, mut theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        ours.into_iter().for_each(|line| idle.put(line));
        // Closed at last: a process that another test forks may hold our end a moment longer.
        let passed_over = theirs.pop().unwrap();
        passed_over.readable().await.unwrap();
        assert!(!is_alive(&passed_over), "more than are kept");
        // Not by drop, for the same reason.
        for died in &theirs[2..] {
            shutdown(died.as_raw_fd(), Shutdown::Both).unwrap();
        }
        let left = std::iter::from_fn(|| idle.take()).count();
        assert_eq!(left, 2);
    }
}
