//! Work that may take long, in the background of the loop, which continues to handle keys. Each
//! piece of work runs in a thread of its own and reports its result.

use super::elsewhere::Answered;
use super::outputs::Hit;
use super::window::OutputError;
use crate::tui::page::Side;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A report from the background.
#[derive(Debug)]
pub enum News {
    /// The result of an action.
    Done(String),
    /// The progress of the search with this number, and its total, in bytes.
    Searching { search: u64, done: u64, of: u64 },
    /// The result of the search with this number: the position of a line, or the error.
    Searched { search: u64, side: Side, found: Result<Hit, OutputError> },
    /// The states of jobs of another cluster.
    Elsewhere(Answered),
}

pub struct Background {
    sender: Sender<News>,
    news: Receiver<News>,
    wake: Arc<EventFd>,
}

/// The sending end, for the work.
pub struct Reporter {
    sender: Sender<News>,
    wake: Arc<EventFd>,
}

impl Reporter {
    pub fn report(&self, news: News) {
        // Fails if the loop has ended.
        if self.sender.send(news).is_ok() {
            let _ = self.wake.write(1);
        }
    }
}

impl Background {
    /// Creates the channel and the descriptor that wakes the loop.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn new() -> io::Result<Background> {
        let (sender, news) = channel();
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Background { sender, news, wake: Arc::new(wake) })
    }

    /// Runs `work` in a thread.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub fn start(&self, work: impl FnOnce(&Reporter) + Send + 'static) -> io::Result<()> {
        let reporter = Reporter { sender: self.sender.clone(), wake: Arc::clone(&self.wake) };
        std::thread::Builder::new().spawn(move || work(&reporter)).map(drop)
    }

    /// Returns the new reports. Call it when [`Self::as_fd`] is readable.
    pub fn news(&self) -> Vec<News> {
        // Clear the event first, so that later reports wake the loop again.
        let _ = self.wake.read();
        self.news.try_iter().collect()
    }
}

impl AsFd for Background {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
