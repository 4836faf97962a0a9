//! New processes of a process that has one thread.

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid, fork};
use std::sync::OnceLock;

/// What a new process has for memory until it executes a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A copy of its parent's. Both run on.
    Copy,
    /// Its parent's own, without a copy and without a fault for each page that one of them writes.
    /// The parent stands still until the child executes or ends, and sees what the child has
    /// changed.
    Parents,
}

/// Runs `child` in a new process, which ends with the code that it returns. What `child` owns when
/// it executes a program is never freed: with [`Memory::Parents`] it leaves that in variables of
/// its parent.
///
/// # Safety
/// This process has one thread.
///
/// # Errors
/// Those of `fork` and `mmap`.
pub unsafe fn fork_into(memory: Memory, child: &mut dyn FnMut() -> i32) -> nix::Result<Pid> {
    match memory {
        // SAFETY: one thread, so the child may allocate and do what it likes.
        Memory::Copy => match unsafe { fork() }? {
            ForkResult::Child => run(child),
            ForkResult::Parent { child } => Ok(child),
        },
        Memory::Parents => {
            let top = stack_top()?;
            let mut child = child;
            let argument: *mut libc::c_void = (&raw mut child).cast();
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the stack is the child's alone, and the argument outlives its use: the parent
            // stands still meanwhile.
            let pid = unsafe { libc::clone(enter, top, flags, argument) };
            Errno::result(pid).map(Pid::from_raw)
        }
    }
}

extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `fork_into` has made it of such a reference, and does not touch it before this
    // process has ended.
    run(unsafe { *argument.cast::<&mut dyn FnMut() -> i32>() })
}

fn run(child: &mut dyn FnMut() -> i32) -> ! {
    let code = child();
    // SAFETY: _exit ends the process without running what the parent registered.
    unsafe { libc::_exit(code) }
}

/// The end of a stack for a child that has its parent's memory. There is one such child at a time,
/// so one stack serves all.
fn stack_top() -> nix::Result<*mut libc::c_void> {
    const BYTES: usize = 256 << 10;
    const GUARD: usize = 64 << 10;
    static BOTTOM: OnceLock<usize> = OnceLock::new();
    let bottom = match BOTTOM.get() {
        Some(bottom) => *bottom,
        None => {
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
            // SAFETY: new memory at an address that the kernel chooses, and a part of it that
            // nobody may touch.
            let bottom = unsafe {
                let whole =
                    libc::mmap(std::ptr::null_mut(), GUARD + BYTES, libc::PROT_NONE, flags, -1, 0);
                if whole == libc::MAP_FAILED {
                    return Err(Errno::last());
                }
                let bottom = whole.byte_add(GUARD);
                Errno::result(libc::mprotect(bottom, BYTES, libc::PROT_READ | libc::PROT_WRITE))?;
                bottom
            };
            *BOTTOM.get_or_init(|| bottom as usize)
        }
    };
    Ok((bottom + BYTES) as *mut libc::c_void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::wait::{WaitStatus, waitpid};

    #[test]
    fn a_child_changes_its_parents_memory_or_its_own_copy() {
        for (memory, seen) in [(Memory::Parents, 7), (Memory::Copy, 1), (Memory::Parents, 7)] {
            let mut value = 1;
            // SAFETY: the child does nothing that another thread could be in the middle of.
            let child = unsafe {
                fork_into(memory, &mut || {
                    value = 7;
                    41
                })
            };
            let child = child.unwrap();
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 41));
            assert_eq!(value, seen, "{memory:?}");
        }
    }
}
