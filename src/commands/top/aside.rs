//! What may take long, beside the loop: keys are heard meanwhile. Each piece of work has a thread
//! for as long as it takes, and tells what has come of it.

use super::window::OutputError;
use crate::tui::page::Side;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What is told.
#[derive(Debug)]
pub enum News {
    /// In words, what came of an action.
    Told(String),
    /// How far the search of this number is, and how far it goes, bytes.
    Searching { search: u64, done: u64, of: u64 },
    /// Where the search of this number has found a line, or why it has not.
    Searched { search: u64, side: Side, found: Result<u64, OutputError> },
}

pub struct Aside {
    sender: Sender<News>,
    news: Receiver<News>,
    wake: Arc<EventFd>,
}

/// The end of the one who works.
pub struct Teller {
    sender: Sender<News>,
    wake: Arc<EventFd>,
}

impl Teller {
    pub fn tell(&self, news: News) {
        // Without a loop there is nobody to be told.
        if self.sender.send(news).is_ok() {
            let _ = self.wake.write(1);
        }
    }
}

impl Aside {
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Aside> {
        let (sender, news) = channel();
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Aside { sender, news, wake: Arc::new(wake) })
    }

    /// # Errors
    /// No thread can be made.
    pub fn start(&self, work: impl FnOnce(&Teller) + Send + 'static) -> io::Result<()> {
        let teller = Teller { sender: self.sender.clone(), wake: Arc::clone(&self.wake) };
        std::thread::Builder::new().spawn(move || work(&teller)).map(drop)
    }

    /// What was told, to be asked for when [`Self::as_fd`] is readable.
    pub fn news(&self) -> Vec<News> {
        // Before they are taken: what is told after this wakes up again.
        let _ = self.wake.read();
        self.news.try_iter().collect()
    }
}

impl AsFd for Aside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
