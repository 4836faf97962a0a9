//! The changes that a watching client has not received yet.
//!
//! A feed holds at most one message: changes are merged into it until the client takes it. It
//! therefore uses little memory even if the client is slow, and never blocks the sender.

use slotd_model::changed::Changed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;

/// The client's end.
#[derive(Debug)]
pub struct Feed(Arc<Slot>);

/// The scheduler's end.
#[derive(Debug)]
pub struct FeedSender(Weak<Slot>);

#[derive(Debug, Default)]
struct Slot {
    changed: Mutex<Changed>,
    filled: Notify,
}

impl Feed {
    /// Starts with everything marked as changed, since the client has no state yet.
    pub fn new() -> Feed {
        Feed(Arc::new(Slot { changed: Mutex::new(Changed::everything()), filled: Notify::new() }))
    }

    pub fn sender(&self) -> FeedSender {
        FeedSender(Arc::downgrade(&self.0))
    }

    /// Takes the changes since the last call, possibly none.
    pub fn take(&self) -> Changed {
        self.0.with(std::mem::take)
    }

    /// Waits for changes and takes them. Cancelling the future loses none.
    pub async fn next(&self) -> Changed {
        loop {
            let changed = self.take();
            if !changed.is_empty() {
                return changed;
            }
            self.0.filled.notified().await;
        }
    }
}

impl FeedSender {
    /// Returns false if the client has disconnected.
    #[must_use]
    pub fn add(&self, changed: &Changed) -> bool {
        let Some(slot) = self.0.upgrade() else { return false };
        slot.with(|waiting| waiting.add(changed));
        slot.filled.notify_one();
        true
    }
}

impl Slot {
    fn with<T>(&self, work: impl FnOnce(&mut Changed) -> T) -> T {
        work(&mut self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::JobId;
    use std::time::Duration;
    use tokio::time::timeout;

    #[actix_rt::test]
    async fn slow_client_receives_one_merged_message() {
        tokio::time::pause();
        let feed = Feed::new();
        let sender = feed.sender();
        assert_eq!(feed.next().await, Changed::everything());
        assert!(
            timeout(Duration::from_secs(3600), feed.next()).await.is_err(),
            "nothing has changed"
        );
        for id in [1, 2] {
            assert!(sender.add(&Changed::gone(JobId(id))));
        }
        assert_eq!(feed.next().await.jobs.len(), 2);
        assert!(timeout(Duration::from_secs(3600), feed.next()).await.is_err(), "reported once");
        drop(feed);
        assert!(!sender.add(&Changed::node()));
    }
}
