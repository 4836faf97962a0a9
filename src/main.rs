//! The one binary: the daemon, the launcher, and every Slurm command by the name it is called by.
//!
//! It has the C library's `main`. Rust's own first reads the map of the process to find the end of
//! the stack, and makes another stack on which to tell that the first is full: a fifth of the
//! system calls of a command that asks one thing.
#![no_main]

use std::ffi::c_int;

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    slotd::main()
}
