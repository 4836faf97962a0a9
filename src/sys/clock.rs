//! The clocks: the wall clock for showing, the monotonic one for counting, and the boot that the
//! latter belongs to.
//!
//! In debug builds a test may pretend another boot and another wall clock: see [`pretended`].

use crate::model::{BootId, ClockBase, Moment, Timestamp};
use crate::sys::{proc, system};
use nix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in microseconds since 1970.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let real = Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    Timestamp(real.0.saturating_add(pretended::wall_offset_us()))
}

/// The monotonic clock: nobody sets it, it stands still while the machine sleeps, and it begins
/// anew with each boot.
pub fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// The CPU time that this process has used.
pub fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Both clocks, read one after the other.
pub fn moment() -> Moment {
    let (wall, up) = (now(), i64::try_from(monotonic().as_micros()).unwrap_or(i64::MAX));
    Moment { wall, base: ClockBase { boot: boot_id(), zero: wall.plus_us(-up) } }
}

/// How the two clocks stand to each other now.
pub fn base() -> ClockBase {
    moment().base
}

/// This boot of the machine.
pub fn boot_id() -> BootId {
    static BOOT: OnceLock<BootId> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let told = || proc::read("/proc/sys/kernel/random/boot_id").ok();
        let read = || String::from_utf8(told()?).ok()?.parse().ok();
        pretended::boot().map(|(boot, _)| boot).or_else(read).unwrap_or_default()
    })
}

/// When the machine booted; `None` where it does not tell.
pub fn booted() -> Option<Timestamp> {
    let told = Some(system::probe_boot_secs()).filter(|secs| *secs > 0).map(Timestamp::from_secs);
    pretended::boot().map_or(told, |(_, at)| Some(at))
}

/// What a test pretends. The variables are for debug builds alone, and a launcher hands them on to
/// its watchers.
#[cfg(debug_assertions)]
pub mod pretended {
    use crate::model::{BootId, Timestamp};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    /// `ID@SECONDS`: the boot, in hexadecimal digits, and when it was, in seconds since 1970.
    pub const BOOT: &str = "SLOTD_TEST_BOOT";
    /// A file with the seconds that the wall clock is ahead of the real one. It may change at any
    /// time.
    pub const WALL_CLOCK: &str = "SLOTD_TEST_WALL_CLOCK";

    pub(super) fn boot() -> Option<(BootId, Timestamp)> {
        let told = std::env::var(BOOT).ok()?;
        let (id, secs) = told.split_once('@')?;
        Some((id.parse().ok()?, Timestamp::from_secs(secs.parse().ok()?)))
    }

    pub(super) fn wall_offset_us() -> i64 {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(file) = FILE.get_or_init(|| std::env::var_os(WALL_CLOCK).map(PathBuf::from))
        else {
            return 0;
        };
        let told = std::fs::read_to_string(file).ok();
        told.and_then(|text| text.trim().parse::<i64>().ok())
            .map_or(0, |secs| secs.saturating_mul(1_000_000))
    }

    /// What a process that this one starts has to be given.
    pub fn variables() -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SLOTD_TEST_"))
    }
}

#[cfg(not(debug_assertions))]
pub mod pretended {
    use crate::model::{BootId, Timestamp};

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
    fn this_boot_has_an_id_and_a_time_before_now() {
        assert_ne!(boot_id(), BootId::default());
        assert!(booted().is_some_and(|at| at < now()));
    }

    #[test]
    fn the_base_stays_while_time_passes() {
        let begun = monotonic();
        let (first, at) = (base(), monotonic());
        while monotonic() == at {}
        let last = base();
        // The two clocks are read one after the other, and a busy machine may let time pass in
        // between.
        let moved = last.zero.since(first.zero).max(first.zero.since(last.zero));
        let passed = monotonic().saturating_sub(begun);
        assert!(moved < passed + Duration::from_secs(1), "{moved:?} in {passed:?}");
    }
}
