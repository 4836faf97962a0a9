//! Who has which CPU, which GPU and how much memory.
//!
//! A CPU that is given is in nobody else's hands, but for those of partitions whose jobs share them; how GPUs are shared is
//! told in `cards`. The ledger decides nothing: whether a job may have something is the plan's business, and which CPUs it
//! gets that of `seats`.

use super::cards::Elsewhere;
use super::room::{Part, Room};
use super::types::Config;
use crate::model::{JobId, Tres};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    held: BTreeMap<JobId, Part>,
    room: Room,
    /// The host with nobody on it.
    whole: Room,
}

impl Ledger {
    pub fn new(config: &Config) -> Self {
        let whole = Room::whole(config);
        Ledger { held: BTreeMap::new(), room: whole.clone(), whole }
    }

    /// What is free now.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// What would be free with nobody on the host.
    pub fn whole(&self) -> &Room {
        &self.whole
    }

    /// What is in use, which may be more than a host that has shrunk has.
    pub fn used(&self) -> Tres {
        self.room.used()
    }

    /// What a job holds.
    pub fn held(&self, job: JobId) -> Option<&Part> {
        self.held.get(&job)
    }

    /// Whether a job has what it is in to itself.
    pub fn is_exclusive(&self) -> bool {
        self.held.values().any(|part| part.place.exclusive)
    }

    /// Notes what others than jobs have of the GPUs.
    pub fn set_elsewhere(&mut self, elsewhere: &BTreeMap<u32, Elsewhere>) {
        self.room.gpus.set_elsewhere(elsewhere);
    }

    /// Notes what a job gets, or has already, whether it is free or not.
    pub fn take(&mut self, job: JobId, part: Part) {
        self.room.take(&part);
        self.held.insert(job, part);
    }

    pub fn give_back(&mut self, job: JobId) {
        if let Some(part) = self.held.remove(&job) {
            self.room.give(&part);
        }
    }
}
