//! Creates processes from a single-threaded process.

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid, fork};
use std::sync::OnceLock;

/// The memory of a new process until it executes a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A copy of the parent's memory. Both processes continue.
    Copy,
    /// The parent's own memory, which avoids the copy and a page fault for each written page. The
    /// parent is suspended until the child executes a program or exits, and sees the child's
    /// changes.
    Parents,
}

/// Runs `child` in a new process and exits with the code that it returns. Values owned by `child`
/// when it executes a program are never freed. With [`Memory::Parents`], it should keep them in
/// variables of the parent.
///
/// # Safety
/// This process must have only one thread.
///
/// # Errors
/// Fails like `fork` and `mmap`.
pub unsafe fn fork_into(memory: Memory, child: &mut dyn FnMut() -> i32) -> nix::Result<Pid> {
    match memory {
        // SAFETY: there is only one thread, so the child may allocate and do anything.
        Memory::Copy => match unsafe { fork() }? {
            ForkResult::Child => run(child),
            ForkResult::Parent { child } => Ok(child),
        },
        Memory::Parents => {
            let top = stack_top()?;
            let mut child = child;
            let argument: *mut libc::c_void = (&raw mut child).cast();
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: only the child uses the stack, and the argument outlives its use because the
            // parent is suspended meanwhile.
            let pid = unsafe { libc::clone(enter, top, flags, argument) };
            Errno::result(pid).map(Pid::from_raw)
        }
    }
}

extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `fork_into` has created the argument from such a reference, and does not access it
    // before this process ends.
    run(unsafe { *argument.cast::<&mut dyn FnMut() -> i32>() })
}

fn run(child: &mut dyn FnMut() -> i32) -> ! {
    let code = child();
    // SAFETY: _exit ends the process without running the parent's exit handlers.
    unsafe { libc::_exit(code) }
}

/// Returns the end of a stack for a child that shares its parent's memory. There is only one such
/// child at a time, so one stack is enough.
fn stack_top() -> nix::Result<*mut libc::c_void> {
    const BYTES: usize = 256 << 10;
    const GUARD: usize = 64 << 10;
    static BOTTOM: OnceLock<usize> = OnceLock::new();
    let bottom = match BOTTOM.get() {
        Some(bottom) => *bottom,
        None => {
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
            // SAFETY: new memory at an address chosen by the kernel, including a guard area without
            // access.
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
    fn a_child_changes_shared_or_copied_memory() {
        for (memory, seen) in [(Memory::Parents, 7), (Memory::Copy, 1), (Memory::Parents, 7)] {
            let mut value = 1;
            // SAFETY: the child does nothing that another thread could have interrupted.
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
