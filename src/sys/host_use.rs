//! Measures the host's CPU time, memory and load, used by all processes.

use crate::{cpu_use, memory, proc, system};
use slotd_model::host_use::HostSpan;
use std::io;
use std::time::Instant;

/// The cumulative CPU time and the memory in use at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub at: Instant,
    /// The number of CPUs, and their total busy time since boot.
    cpus: u32,
    cpu_us: u64,
    mem_kb: u64,
    swap_kb: u64,
    load_centi: u32,
}

/// Takes a sample.
///
/// # Errors
/// Fails if the kernel's counters cannot be read.
pub fn look() -> io::Result<Look> {
    let stat = proc::read("/proc/stat")?;
    let tick_us = 1_000_000 / system::ticks_per_sec().max(1);
    let busy = cpu_use::parse_busy(&String::from_utf8_lossy(&stat), tick_us);
    let (mem_kb, swap_kb) = memory::probe_used_kb();
    Ok(Look {
        at: Instant::now(),
        cpus: u32::try_from(busy.len()).unwrap_or(u32::MAX),
        cpu_us: busy.values().sum(),
        mem_kb,
        swap_kb,
        load_centi: system::probe_load_centi(),
    })
}

impl Look {
    /// Returns the use since an earlier sample. `to` is the end of the span, in milliseconds since
    /// 1970.
    pub fn since(&self, earlier: &Look, to: i64) -> HostSpan {
        let ms = u64::try_from(self.at.saturating_duration_since(earlier.at).as_millis())
            .unwrap_or(u64::MAX);
        HostSpan {
            from: to.saturating_sub_unsigned(ms),
            to,
            ms,
            cpus: self.cpus,
            // A CPU that goes offline takes its counters with it.
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            mem_max_kb: self.mem_kb.max(earlier.mem_kb),
            mem_mean_kb: self.mem_kb.midpoint(earlier.mem_kb),
            swap_max_kb: self.swap_kb.max(earlier.swap_kb),
            load_centi: self.load_centi,
            ..HostSpan::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn this_host_uses_memory_and_counts_its_cpus() {
        let look = look().unwrap();
        assert!(look.cpus > 0 && look.mem_kb > 0 && look.cpu_us > 0, "{look:?}");
    }

    #[test]
    fn two_samples_make_a_span() {
        let first = Look {
            at: Instant::now(),
            cpus: 4,
            cpu_us: 500,
            mem_kb: 100,
            swap_kb: 9,
            load_centi: 30,
        };
        let second = Look {
            at: first.at + Duration::from_secs(2),
            cpu_us: 3500,
            mem_kb: 300,
            swap_kb: 0,
            ..first
        };
        let span = second.since(&first, 10_000);
        assert_eq!(
            (span.from, span.to, span.ms, span.cpu_us, span.cpus),
            (8000, 10_000, 2000, 3000, 4)
        );
        assert_eq!(
            (span.mem_max_kb, span.mem_mean_kb, span.swap_max_kb, span.load_centi),
            (300, 200, 9, 30)
        );
        let less = Look { cpu_us: 0, ..second }.since(&first, 10_000);
        assert_eq!(less.cpu_us, 0);
    }
}
