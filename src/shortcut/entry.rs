//! The first instructions of the program. The linker option `-e` makes this symbol its entry point
//! (`src/build.rs`).

#[cfg(has_shortcut)]
use crate::process::Process;
#[cfg(has_shortcut)]
use crate::{query, submit};
use core::arch::global_asm;
#[cfg(has_shortcut)]
use slotd_protocol::request::Program;

// The program as if there were no shortcut.
#[cfg(not(has_shortcut))]
global_asm!(".globl slotd_entry", "slotd_entry:", "jmp _start");

// The stack and `rdx` must be those of the program's start when the C library's code begins.
#[cfg(has_shortcut)]
global_asm!(
    ".pushsection .text.slotd_entry, \"ax\", @progbits",
    ".globl slotd_entry",
    ".type slotd_entry, @function",
    "slotd_entry:",
    "xor ebp, ebp",
    "mov rbx, rdx",
    "mov rdi, rsp",
    "call {begin}",
    "mov rdx, rbx",
    "jmp _start",
    ".size slotd_entry, . - slotd_entry",
    ".popsection",
    begin = sym begin,
);

/// Does what the program is asked for and exits, or returns if the program has to run.
///
/// # Safety
/// `stack` must be the stack pointer at the start of the process.
#[cfg(has_shortcut)]
unsafe extern "C" fn begin(stack: *const usize) {
    // SAFETY: as required of the caller.
    if let Some(process) = unsafe { Process::of(stack) }.filter(Process::asks_daemon) {
        match process.program {
            Program::Sbatch => submit::run(&process),
            Program::Squeue | Program::Sinfo | Program::Sacct | Program::Scontrol => {
                query::run(&process);
            }
        }
    }
}
