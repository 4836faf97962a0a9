//! The shortcut of common commands: submits a plain job, or prints the answer to a plain query,
//! before the C library of the program has started.
//!
//! A static program of the C library executes some 40 CPUID instructions at start, each of which a
//! virtual machine emulates in 4 µs, and a command then touches 100 pages of code and data. Both
//! take longer than the submission or the query itself. So the program starts here ([`entry`]). If
//! it was invoked as `sbatch`, `squeue`, `sinfo`, `sacct` or `scontrol`, the shortcut sends the
//! daemon the command line, the environment and the working directory as they are, the daemon
//! parses them with the code of the program, and the shortcut prints the answer.
//!
//! Everything unusual is left to the program itself, in the same process: the shortcut returns, and
//! the C library starts as in any other program. Until then nothing is lost: the shortcut has read
//! no input and printed nothing. If the daemon does not answer a submission soon, `sbatch` checks
//! the command line and waits for the answer on the same connection ([`socket`]), since a second
//! submission could overtake the first. If the connection ends, [`attempt`] says so, and `sbatch`
//! repeats the submission, which the daemon recognizes by the process. If the answer cannot be
//! printed, the program reports that.
//!
//! No function of the C library works yet: they are called through addresses that its start fills
//! in. This includes those that the compiler calls itself, to copy, fill and compare memory, so
//! this crate avoids slices' `==`, `copy_from_slice` and large arrays, and `no_builtins` keeps the
//! compiler from recognizing such loops. Without optimization it still calls them, so the build
//! script then leaves the shortcut out.
#![cfg_attr(not(test), no_std)]
#![no_builtins]
#![warn(unreachable_pub)]

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use slotd_protocol::request::checksum;

#[cfg(has_shortcut)]
mod ask;
#[cfg(target_arch = "x86_64")]
mod entry;
#[cfg(has_shortcut)]
mod kernel;
#[cfg(has_shortcut)]
mod process;
#[cfg(has_shortcut)]
mod query;
#[cfg(has_shortcut)]
mod submit;
#[cfg(has_shortcut)]
mod text;

/// The outcome of the shortcut of `sbatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It submitted nothing.
    None,
    /// It sent the command line, and the daemon has not answered yet.
    Asked,
    /// It sent the job, and the daemon closed the connection before it answered.
    Lost,
    /// It sent the job, but could not use the daemon's answer.
    Answered,
    /// It submitted the job, but could not print the answer ([`unprinted`]).
    Submitted,
}

static ATTEMPT: AtomicU8 = AtomicU8::new(0);

static LEFT_OPEN: AtomicI32 = AtomicI32::new(-1);

/// The checksum of the script that was sent, or 0 if there was none.
static SENT: AtomicU64 = AtomicU64::new(0);

/// The longest answer that is kept if it cannot be printed, in bytes: a sentence with a job ID.
const MOST_KEPT: usize = 64;

static UNPRINTED: [AtomicU8; MOST_KEPT] = [const { AtomicU8::new(0) }; MOST_KEPT];

/// Returns the outcome of the shortcut, which ran before the program started.
pub fn attempt() -> Attempt {
    match ATTEMPT.load(Ordering::Relaxed) {
        0 => Attempt::None,
        1 => Attempt::Asked,
        2 => Attempt::Lost,
        3 => Attempt::Answered,
        _ => Attempt::Submitted,
    }
}

/// Returns the connection on which the answer arrives, if the daemon has not answered yet. The
/// shortcut does not close it.
pub fn socket() -> Option<i32> {
    (attempt() == Attempt::Asked).then(|| LEFT_OPEN.load(Ordering::Relaxed))
}

/// Returns whether the shortcut sent another script than this one, in which case the daemon may
/// accept a job that the program refuses.
pub fn sent_another(script: &[u8]) -> bool {
    ![0, sum(script)].contains(&SENT.load(Ordering::Relaxed))
}

/// Returns a checksum of a script, or 0 if it is empty.
fn sum(script: &[u8]) -> u64 {
    if script.is_empty() { 0 } else { checksum(script) }
}

/// Returns the bytes that should have been printed for a submitted job.
pub fn unprinted() -> impl Iterator<Item = u8> {
    UNPRINTED.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0)
}

/// Keeps an answer that cannot be printed. Returns false if it is too long.
#[cfg(has_shortcut)]
fn keep(text: &[u8]) -> bool {
    UNPRINTED.iter().zip(text).for_each(|(place, byte)| place.store(*byte, Ordering::Relaxed));
    text.len() <= MOST_KEPT
}

/// Records the outcome so far.
#[cfg(has_shortcut)]
fn record(attempt: Attempt) {
    ATTEMPT.store(attempt as u8, Ordering::Relaxed);
}
