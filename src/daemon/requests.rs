//! Counts answered requests and their durations, by kind and by user.

use slotd_model::diagnostics::{RequestTally, Tally, UserTally};
use slotd_sys::user;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The counters of all sessions.
#[derive(Debug, Default)]
pub struct Requests {
    counts: RefCell<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    kinds: BTreeMap<(u32, &'static str), Tally>,
    users: BTreeMap<u32, Tally>,
}

impl Requests {
    /// Counts an answered request by its name and number.
    pub fn count(&self, (name, id): (&'static str, u32), uid: u32, took: Duration) {
        let mut counts = self.counts.borrow_mut();
        counts.kinds.entry((id, name)).or_default().add(took);
        counts.users.entry(uid).or_default().add(took);
    }

    /// Returns the counts by kind, in order of their numbers.
    pub fn kinds(&self) -> Vec<RequestTally> {
        let one = |(&(id, name), &tally): (&(u32, &'static str), &Tally)| {
            let name = name.to_owned();
            RequestTally { name, id, tally }
        };
        self.counts.borrow().kinds.iter().map(one).collect()
    }

    /// Returns the counts by user, in order of their IDs.
    pub fn users(&self) -> Vec<UserTally> {
        let one =
            |(&uid, &tally): (&u32, &Tally)| UserTally { name: user::user_name(uid), uid, tally };
        self.counts.borrow().users.iter().map(one).collect()
    }

    pub fn reset(&self) {
        *self.counts.borrow_mut() = Counts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind_and_user_until_a_reset() {
        let requests = Requests::default();
        let took = Duration::from_micros(5);
        for (kind, uid) in [(("B", 2), 1), (("A", 1), 1), (("B", 2), 0)] {
            requests.count(kind, uid, took);
        }
        let kinds: Vec<_> =
            requests.kinds().into_iter().map(|k| (k.name, k.id, k.tally.count)).collect();
        assert_eq!(kinds, [("A".to_owned(), 1, 1), ("B".to_owned(), 2, 2)]);
        let users: Vec<_> =
            requests.users().into_iter().map(|u| (u.uid, u.tally.total_us)).collect();
        assert_eq!(users, [(0, 5), (1, 10)]);
        requests.reset();
        assert!(requests.kinds().is_empty() && requests.users().is_empty());
    }
}
