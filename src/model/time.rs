//! Instants, and what tells them apart from the time that passed. Calendar forms are the business
//! of `parse` and `render`.
//!
//! The wall clock is for showing: somebody may set it, and it goes on while the machine sleeps. How
//! long something took is counted on the monotonic clock of one boot. A [`ClockBase`] is the bridge
//! between the two.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An instant of the wall clock: microseconds since 1970-01-01T00:00:00 UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
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

    /// So many microseconds later, or earlier.
    pub const fn plus_us(self, us: i64) -> Self {
        Timestamp(self.0.saturating_add(us))
    }

    /// The time from `earlier` to `self`; zero where `earlier` is the later one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// One boot of the machine. Processes, sockets and times of the monotonic clock mean nothing under
/// another one. All zeros: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootId(pub u128);

impl BootId {
    /// Whether the two are known to be different.
    pub fn differs(self, other: BootId) -> bool {
        self != other && self != BootId::default() && other != BootId::default()
    }
}

/// The digits of the kernel's text, without its dashes.
impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for BootId {
    type Err = std::num::ParseIntError;

    /// The text of `/proc/sys/kernel/random/boot_id`, with or without its dashes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(&text.trim().replace('-', ""), 16).map(BootId)
    }
}

impl Serialize for BootId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How the wall clock stood to the monotonic clock at a moment of one boot. As long as nobody sets
/// the wall clock and the machine does not sleep, it stays the same: the difference of two is what
/// the wall clock has jumped in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockBase {
    pub boot: BootId,
    /// What the wall clock would have said when the monotonic clock was at zero.
    pub zero: Timestamp,
}

/// Two looks at the same clocks differ by as much: they are read one after the other.
const JITTER_US: i64 = 10_000;

impl ClockBase {
    /// How far the wall clock has jumped from here to `later`, in microseconds: 0 where it has not,
    /// or where nobody can tell, since the machine was started again in between.
    pub fn jump_to(self, later: ClockBase) -> i64 {
        let jump = later.zero.0.saturating_sub(self.zero.0);
        if self.boot != later.boot || jump.abs() < JITTER_US { 0 } else { jump }
    }

    /// What the monotonic clock said at this moment.
    pub fn monotonic(self, at: Timestamp) -> Duration {
        at.since(self.zero)
    }
}

/// One moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    pub wall: Timestamp,
    pub base: ClockBase,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_reads_back_and_an_unknown_one_differs_from_none() {
        let boot: BootId = "1f0a6c9e-8b1c-4f5d-9a55-0123456789ab\n".parse().unwrap();
        assert_eq!(boot.to_string(), "1f0a6c9e8b1c4f5d9a550123456789ab");
        let json = serde_json::to_string(&boot).unwrap();
        assert_eq!(serde_json::from_str::<BootId>(&json).unwrap(), boot);
        assert!(boot.differs(BootId(7)) && !boot.differs(boot) && !boot.differs(BootId::default()));
        assert!("no boot".parse::<BootId>().is_err());
    }
}
