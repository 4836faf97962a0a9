//! The wall clock for display, the monotonic clock for durations, and the boot that the latter
//! belongs to.
//!
//! In debug builds, a test may simulate another boot and another wall clock (see [`pretended`]).

use crate::{proc, system};
use nix::time::{ClockId, clock_gettime};
use slotd_model::{BootId, ClockBase, Moment, Timestamp};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time, in microseconds since 1970.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let real = Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    Timestamp(real.0.saturating_add(pretended::wall_offset_us()))
}

/// Reads the monotonic clock. It cannot be set, stops while the machine sleeps, and restarts at
/// each boot.
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Returns the CPU time used by this process.
pub fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Reads both clocks, one after the other.
pub fn moment() -> Moment {
    let (wall, up) = (now(), i64::try_from(monotonic().as_micros()).unwrap_or(i64::MAX));
    Moment { wall, base: ClockBase { boot: boot_id(), zero: wall.plus_us(-up) } }
}

/// Returns the current offset between the two clocks.
pub fn base() -> ClockBase {
    moment().base
}

/// Returns the ID of the current boot.
pub fn boot_id() -> BootId {
    static BOOT: OnceLock<BootId> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = || proc::read("/proc/sys/kernel/random/boot_id").ok();
        let read = || String::from_utf8(text()?).ok()?.parse().ok();
        pretended::boot().map(|(boot, _)| boot).or_else(read).unwrap_or_default()
    })
}

/// Returns when the machine booted, if it is known.
pub fn booted() -> Option<Timestamp> {
    let real = Some(system::probe_boot_secs()).filter(|secs| *secs > 0).map(Timestamp::from_secs);
    pretended::boot().map_or(real, |(_, at)| Some(at))
}

/// Clocks simulated by a test. The variables work only in debug builds. A launcher passes them to
/// its watchers.
#[cfg(debug_assertions)]
pub mod pretended {
    use slotd_model::{BootId, Timestamp};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    /// `ID@SECONDS`: the boot ID in hexadecimal digits, and the boot time in seconds since 1970.
    pub(crate) const BOOT: &str = "SLOTD_TEST_BOOT";
    /// A file with the number of seconds that the wall clock is ahead of the real one. It may
    /// change at any time.
    pub(crate) const WALL_CLOCK: &str = "SLOTD_TEST_WALL_CLOCK";

    pub(super) fn boot() -> Option<(BootId, Timestamp)> {
        let text = std::env::var(BOOT).ok()?;
        let (id, secs) = text.split_once('@')?;
        Some((id.parse().ok()?, Timestamp::from_secs(secs.parse().ok()?)))
    }

    pub(super) fn wall_offset_us() -> i64 {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(file) = FILE.get_or_init(|| std::env::var_os(WALL_CLOCK).map(PathBuf::from))
        else {
            return 0;
        };
        let text = std::fs::read_to_string(file).ok();
        text.and_then(|text| text.trim().parse::<i64>().ok())
            .map_or(0, |secs| secs.saturating_mul(1_000_000))
    }

    /// Returns the variables to pass to child processes.
    pub fn variables() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SLOTD_TEST_"))
    }
}

#[cfg(not(debug_assertions))]
pub mod pretended {
    use slotd_model::{BootId, Timestamp};

    pub(super) const fn boot() -> Option<(BootId, Timestamp)> {
        None
    }

    pub(super) const fn wall_offset_us() -> i64 {
        0
    }

    pub fn variables() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
        std::iter::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_has_an_id_and_a_time_in_the_past() {
        assert_ne!(boot_id(), BootId::default());
        assert!(booted().is_some_and(|at| at < now()));
    }

    #[test]
    fn the_base_is_constant() {
        let begun = monotonic();
        let (first, at) = (base(), monotonic());
        while monotonic() == at {}
        let last = base();
        // The two clocks are read one after the other, and time may pass in between on a busy
        // machine.
        let moved = last.zero.since(first.zero).max(first.zero.since(last.zero));
        let passed = monotonic().saturating_sub(begun);
        assert!(moved < passed + Duration::from_secs(1), "{moved:?} in {passed:?}");
    }
}
