//! Requests that are alike: whoever submits one script again and again keeps one of them in memory.

use crate::model::JobRequest;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// With so many of the last different ones a new one is compared.
const LAST: usize = 16;

/// The last different requests, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    last: VecDeque<Weak<JobRequest>>,
}

impl Requests {
    /// The request, as an earlier job has it that waits or runs, where one of the last ones is the
    /// same.
    pub fn share(&mut self, request: JobRequest) -> Arc<JobRequest> {
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
    fn equal_requests_are_kept_once_while_one_of_the_last_has_them() {
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
