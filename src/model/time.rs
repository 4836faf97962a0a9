//! Instants and elapsed time. `parse` and `render` handle calendar forms.
//!
//! The wall clock is only for display: it can be set, and it advances while the machine sleeps.
//! Durations are measured on the monotonic clock, which is valid for one boot. A [`ClockBase`]
//! connects the two.

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

    /// Returns whole seconds since 1970, as Slurm stores them.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    pub const fn plus_secs(self, secs: u64) -> Self {
        Timestamp(self.0.saturating_add((secs as i64).saturating_mul(1_000_000)))
    }

    pub fn plus(self, d: Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(d.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Adds microseconds, which may be negative.
    pub const fn plus_us(self, us: i64) -> Self {
        Timestamp(self.0.saturating_add(us))
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A boot of the machine. Processes, sockets and monotonic times are meaningless in another boot.
/// All zeros means unknown.
///
/// Packed, since the alignment of its number would make every job larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(Rust, packed(8))]
pub struct BootId(pub u128);

impl BootId {
    /// Returns whether the two are known to differ.
    pub fn differs(self, other: BootId) -> bool {
        self != other && self != BootId::default() && other != BootId::default()
    }
}

/// Prints the digits of the kernel's text, without dashes.
impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

impl FromStr for BootId {
    type Err = std::num::ParseIntError;

    /// Parses the contents of `/proc/sys/kernel/random/boot_id`, with or without dashes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        // Every record has two of them, and the general parser checks each digit for an overflow.
        let digits = || text.bytes().filter(|byte| *byte != b'-');
        if (1..=32).contains(&digits().count()) && digits().all(|byte| byte.is_ascii_hexdigit()) {
            let digit = |byte| u128::from(char::from(byte).to_digit(16).unwrap_or_default());
            return Ok(BootId(digits().fold(0, |id, byte| id << 4 | digit(byte))));
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(BootId)
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

/// The offset between the wall clock and the monotonic clock of one boot. It stays the same until
/// someone sets the wall clock or the machine sleeps, so the difference of two offsets is the wall
/// clock's jump between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockBase {
    pub boot: BootId,
    /// The wall clock time at which the monotonic clock was zero.
    pub zero: Timestamp,
}

/// The tolerance for two equal offsets: the two clocks are read one after the other.
const JITTER_US: i64 = 10_000;

impl ClockBase {
    /// Returns the wall clock's jump from `self` to `later`, in microseconds. Zero if it did not
    /// jump, or if the machine rebooted in between, since the jump is unknown then.
    pub fn jump_to(self, later: ClockBase) -> i64 {
        let jump = later.zero.0.saturating_sub(self.zero.0);
        if self.boot != later.boot || jump.abs() < JITTER_US { 0 } else { jump }
    }

    /// Returns the monotonic time at this instant.
    pub fn monotonic(self, at: Timestamp) -> Duration {
        at.since(self.zero)
    }
}

/// An instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    pub wall: Timestamp,
    pub base: ClockBase,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_round_trip_and_an_unknown_one_differs_from_no_other() {
        let boot: BootId = "1f0a6c9e-8b1c-4f5d-9a55-0123456789ab\n".parse().unwrap();
        assert_eq!(boot.to_string(), "1f0a6c9e8b1c4f5d9a550123456789ab");
        let json = serde_json::to_string(&boot).unwrap();
        assert_eq!(serde_json::from_str::<BootId>(&json).unwrap(), boot);
        assert!(boot.differs(BootId(7)) && !boot.differs(boot) && !boot.differs(BootId::default()));
        assert!("no boot".parse::<BootId>().is_err());
    }
}
