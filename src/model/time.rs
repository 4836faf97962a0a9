//! Instants. Calendar forms are the business of `spec` and `render`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An instant of the wall clock: microseconds since 1970-01-01T00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const fn from_secs(secs: i64) -> Self {
        Timestamp(secs.saturating_mul(1_000_000))
    }

    /// Whole seconds since 1970, as Slurm keeps them.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    pub const fn plus_secs(self, secs: u64) -> Self {
        Timestamp(self.0.saturating_add((secs as i64).saturating_mul(1_000_000)))
    }

    pub fn plus(self, d: Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(d.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time from `earlier` to `self`; zero where `earlier` is the later one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
