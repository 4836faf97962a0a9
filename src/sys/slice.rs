//! The time slice that a thread asks the kernel's scheduler for.
//!
//! A woken thread waits for the slice of the one that runs on its CPU, about 3 ms, unless its own
//! is shorter (EEVDF, `PREEMPT_SHORT` in Linux 6.12). A job passes through several threads of slotd
//! before it starts, and its CPUs are often those that other jobs keep busy.

use std::mem::size_of;

/// The shortest slice that the kernel grants, in nanoseconds. It does not change the share of CPU
/// time that a thread gets.
const SHORTEST_NS: u64 = 100_000;

/// Requests the shortest slice for the calling thread. Processes and threads that it starts get the
/// usual one. Leaves a thread unchanged that has another policy than the usual one, or whose nice
/// value is negative: the kernel would reset that for its children, too. Before Linux 6.12, this
/// has no effect.
pub fn shorten() {
    request(SHORTEST_NS);
}

/// Requests the usual slice for the calling thread, so that it does not hold up a thread with a
/// short one. Otherwise like [`shorten`].
pub fn reset() {
    request(0);
}

/// Requests a slice of this many nanoseconds, or the usual one with 0.
fn request(nanoseconds: u64) {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all zeros is a value of this plain structure.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live structure of this size. 0 is the calling thread.
    let read =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0u32) };
    let is_usual = attributes.sched_policy == libc::SCHED_OTHER as u32;
    if read != 0 || !is_usual || attributes.sched_nice < 0 {
        return;
    }
    attributes.size = size;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_runtime = nanoseconds;
    // SAFETY: as above. If the kernel refuses, the thread keeps its slice.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the policy, the flags and the slice of the calling thread.
    fn read() -> (u32, u64, u64) {
        // SAFETY: as in `shorten`.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: as in `shorten`.
        let read =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0u32) };
        assert_eq!(read, 0);
        (attributes.sched_policy, attributes.sched_flags, attributes.sched_runtime)
    }

    #[test]
    fn only_the_calling_thread_gets_a_short_slice() {
        let inherited = || std::thread::spawn(read).join().unwrap();
        let before = inherited();
        std::thread::spawn(move || {
            shorten();
            let (policy, flags, slice) = read();
            assert_eq!((policy, flags), (libc::SCHED_OTHER as u32, 1));
            // Earlier kernels report no slice, or the one they use.
            assert!(before.2 == 0 || slice <= before.2, "{slice}");
            assert_eq!(inherited(), before);
            reset();
            assert_eq!(read(), (policy, flags, before.2));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_with_another_policy_is_left_alone() {
        std::thread::spawn(|| {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the pointer is to a live structure. 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &none) }, 0);
            let before = read();
            shorten();
            reset();
            assert_eq!(read(), before);
        })
        .join()
        .unwrap();
    }
}
