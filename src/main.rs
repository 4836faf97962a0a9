//! The only binary: the daemon, the launcher, and every Slurm command, selected by the name that it
//! is invoked as.
//!
//! It uses the C library's `main`. Rust's own `main` first reads the process's memory map to find
//! the end of the stack, and allocates an alternate stack for reporting overflows: a fifth of the
//! system calls of a command that sends one request.
#![no_main]

use std::ffi::c_int;

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    slotd::main()
}
