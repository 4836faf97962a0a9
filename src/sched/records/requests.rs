//! Shared job requests: equal requests of jobs in memory are stored once.

use slotd_model::JobRequest;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The number of recent requests that a new one is compared with.
const LAST: usize = 16;

/// The most recent distinct requests, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    last: VecDeque<Weak<JobRequest>>,
}

impl Requests {
    /// Returns the existing copy of the request if a recent one that is still in use is equal.
    pub(crate) fn share(&mut self, request: JobRequest) -> Arc<JobRequest> {
        self.last.retain(|known| known.strong_count() > 0);
        if let Some(known) =
            self.last.iter().filter_map(Weak::upgrade).find(|known| **known == request)
        {
            return known;
        }
        let request = Arc::new(request);
        self.last.push_front(Arc::downgrade(&request));
        self.last.truncate(LAST);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_equal_requests_are_shared() {
        let mut requests = Requests::default();
        let named = |name: usize| JobRequest { name: name.to_string(), ..JobRequest::default() };
        let first = requests.share(named(0));
        assert!(Arc::ptr_eq(&first, &requests.share(named(0))));
        let others: Vec<_> = (1..=LAST).map(|name| requests.share(named(name))).collect();
        assert!(!Arc::ptr_eq(&first, &requests.share(named(0))));
        drop(others);
        requests.share(named(99));
        assert!(requests.last.len() <= 2);
    }
}
