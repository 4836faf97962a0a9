//! System calls without the C library.

use core::arch::asm;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::slice::from_raw_parts;
use libc::{c_long, iovec, msghdr, pollfd, sched_attr, sockaddr_un, stat, statx, ucred, utsname};

/// A failed call: the number of its error.
pub(crate) type Result<T = usize> = core::result::Result<T, i32>;

/// # Safety
/// As for the system call.
unsafe fn call(number: c_long, args: [usize; 5]) -> Result {
    let [a, b, c, d, e] = args;
    let result: isize;
    // SAFETY: the caller vouches for the arguments. The kernel changes only these registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    if result < 0 { Err(-result as i32) } else { Ok(result as usize) }
}

/// A path, or another string, with its final zero byte.
#[derive(Clone, Copy)]
pub(crate) struct CText<'a>(&'a [u8]);

impl<'a> CText<'a> {
    /// Returns `None` if the bytes do not end with a zero byte.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<CText<'a>> {
        (bytes.last() == Some(&0)).then_some(CText(bytes))
    }

    fn pointer(self) -> usize {
        self.0.as_ptr() as usize
    }
}

/// An open descriptor, which is closed when it is dropped.
pub(crate) struct Fd(usize);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: this process owns the descriptor and does not use it afterwards.
        let _ = unsafe { call(libc::SYS_close, [self.0, 0, 0, 0, 0]) };
    }
}

/// Ends the process.
pub(crate) fn exit(code: usize) -> ! {
    loop {
        // SAFETY: this call has no other effect.
        let _ = unsafe { call(libc::SYS_exit_group, [code, 0, 0, 0, 0]) };
    }
}

/// Returns the real user and group, if they are the effective ones.
pub(crate) fn only_ids() -> Option<(u32, u32)> {
    // SAFETY: these calls have no arguments.
    let id = |number| unsafe { call(number, [0; 5]) };
    let (user, group) = (id(libc::SYS_getuid), id(libc::SYS_getgid));
    let is_plain = user == id(libc::SYS_geteuid) && group == id(libc::SYS_getegid);
    user.ok().zip(group.ok()).filter(|_| is_plain).map(|(user, group)| (user as u32, group as u32))
}

/// Returns the number of the mount of `/`, and the device and the inode of `/` there. Fails before
/// Linux 5.8.
pub(crate) fn root() -> Result<[u64; 3]> {
    let mut found = MaybeUninit::<statx>::uninit();
    let (flags, mask) = (libc::AT_STATX_DONT_SYNC, libc::STATX_MNT_ID | libc::STATX_INO);
    let (at, path, into) = (libc::AT_FDCWD, c"/".as_ptr(), found.as_mut_ptr());
    let args = [at as usize, path as usize, flags as usize, mask as usize, into as usize];
    // SAFETY: the path ends with a zero byte. If the call succeeds, it has written the structure.
    unsafe {
        call(libc::SYS_statx, args)?;
        if (*into).stx_mask & mask != mask {
            return Err(libc::ENOSYS);
        }
        let device = u64::from((*into).stx_dev_major) << 32 | u64::from((*into).stx_dev_minor);
        Ok([(*into).stx_mnt_id, device, (*into).stx_ino])
    }
}

/// Returns the name of the host, one of the names that the kernel writes.
pub(crate) fn host_name(names: &mut MaybeUninit<utsname>) -> Result<&[u8]> {
    let into = names.as_mut_ptr();
    // SAFETY: if the call succeeds, it has written the structure, in which each name ends with a
    // zero byte.
    unsafe {
        call(libc::SYS_uname, [into as usize, 0, 0, 0, 0])?;
        let start = (&raw const (*into).nodename).cast::<u8>();
        let mut len = 0;
        while *start.add(len) != 0 {
            len += 1;
        }
        Ok(from_raw_parts(start, len))
    }
}

pub(crate) fn pid() -> usize {
    // SAFETY: this call has no arguments, and cannot fail.
    unsafe { call(libc::SYS_getpid, [0; 5]) }.unwrap_or(0)
}

/// Returns the umask, which can only be read by setting it. No other thread is running.
pub(crate) fn umask() -> usize {
    // SAFETY: these calls change only the umask.
    unsafe {
        let umask = call(libc::SYS_umask, [0o022, 0, 0, 0, 0]).unwrap_or(0o022);
        let _ = call(libc::SYS_umask, [umask, 0, 0, 0, 0]);
        umask
    }
}

/// Writes the physical path of the working directory and a zero byte. Returns their length.
pub(crate) fn working_directory(into: &mut [MaybeUninit<u8>]) -> Result {
    // SAFETY: the kernel writes at most this many bytes.
    unsafe { call(libc::SYS_getcwd, [into.as_mut_ptr() as usize, into.len(), 0, 0, 0]) }
}

/// Returns whether a path exists and this user may use it in this way.
pub(crate) fn access(path: CText<'_>, mode: i32) -> Result<()> {
    let at = libc::AT_FDCWD as usize;
    // SAFETY: the path ends with a zero byte.
    unsafe { call(libc::SYS_faccessat, [at, path.pointer(), mode as usize, 0, 0]) }.map(drop)
}

/// A file: its device and number, its type and its size.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    dev: u64,
    ino: u64,
    mode: u32,
    size: i64,
}

impl Found {
    pub(crate) fn is_same(self, other: Found) -> bool {
        self.dev == other.dev && self.ino == other.ino
    }

    /// Returns whether it is a regular file of at most this size, in bytes.
    pub(crate) fn is_file_within(self, most: usize) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
            && usize::try_from(self.size).is_ok_and(|size| size <= most)
    }
}

/// # Safety
/// As for the system call, whose second or third argument is where it writes.
unsafe fn found(number: c_long, args: impl FnOnce(usize) -> [usize; 5]) -> Result<Found> {
    let mut found = MaybeUninit::<stat>::uninit();
    // SAFETY: as required of the caller. If the call succeeds, it has written the structure.
    unsafe {
        call(number, args(found.as_mut_ptr() as usize))?;
        let stat { st_dev: dev, st_ino: ino, st_mode: mode, st_size: size, .. } = *found.as_ptr();
        Ok(Found { dev, ino, mode, size })
    }
}

pub(crate) fn find(path: CText<'_>) -> Result<Found> {
    let at = libc::AT_FDCWD as usize;
    // SAFETY: the path ends with a zero byte.
    unsafe { found(libc::SYS_newfstatat, |into| [at, path.pointer(), into, 0, 0]) }
}

/// Opens a file for reading, without waiting for the other side of a FIFO.
pub(crate) fn open(path: CText<'_>) -> Result<Fd> {
    let (at, how) = (libc::AT_FDCWD as usize, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK);
    // SAFETY: the path ends with a zero byte.
    unsafe { call(libc::SYS_openat, [at, path.pointer(), how as usize, 0, 0]) }.map(Fd)
}

impl Fd {
    /// Returns the number of the descriptor, which stays open.
    pub(crate) fn leave_open(self) -> i32 {
        ManuallyDrop::new(self).0 as i32
    }

    pub(crate) fn find(&self) -> Result<Found> {
        // SAFETY: the descriptor is open.
        unsafe { found(libc::SYS_fstat, |into| [self.0, into, 0, 0, 0]) }
    }

    /// Returns whether this is one of the standard streams, which was closed before.
    pub(crate) fn is_standard(&self) -> bool {
        self.0 <= 2
    }

    /// Creates a socket.
    pub(crate) fn socket() -> Result<Fd> {
        let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
        // SAFETY: this call creates a descriptor.
        unsafe { call(libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0, 0, 0]) }.map(Fd)
    }

    /// Connects to the socket at this path.
    pub(crate) fn connect(&self, path: CText<'_>) -> Result<()> {
        let mut address = MaybeUninit::<sockaddr_un>::uninit();
        let to = address.as_mut_ptr();
        // SAFETY: the loop stays in the array, of which the kernel reads only what was written.
        unsafe {
            (&raw mut (*to).sun_family).write(libc::AF_UNIX as u16);
            let start = (&raw mut (*to).sun_path).cast::<u8>();
            if path.0.len() > size_of_val(&(*to).sun_path) {
                return Err(libc::ENAMETOOLONG);
            }
            for (at, byte) in path.0.iter().enumerate() {
                start.add(at).write(*byte);
            }
            let len = size_of::<libc::sa_family_t>() + path.0.len();
            call(libc::SYS_connect, [self.0, to as usize, len, 0, 0]).map(drop)
        }
    }

    /// Returns the user at the other end of the connection.
    pub(crate) fn peer(&self) -> Result<u32> {
        let mut peer = MaybeUninit::<ucred>::uninit();
        let mut len = size_of::<ucred>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
        let into = peer.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most `len` bytes, and all of them if it succeeds.
        unsafe {
            call(libc::SYS_getsockopt, [self.0, level, name, into, &raw mut len as usize])?;
            Ok((*peer.as_ptr()).uid)
        }
    }

    /// Sends all parts. Returns how many bytes were sent: fewer if a signal arrived.
    pub(crate) fn send(&self, parts: &[&[u8]; 4]) -> Result {
        let of = |part: &[u8]| iovec { iov_base: part.as_ptr() as *mut _, iov_len: part.len() };
        let [a, b, c, d] = *parts;
        let mut vectors = [of(a), of(b), of(c), of(d)];
        let message = MaybeUninit::<msghdr>::uninit();
        let message = message.as_ptr().cast_mut();
        // SAFETY: the structure is plain, and all of its fields are written before the kernel reads
        // them.
        unsafe {
            (&raw mut (*message).msg_name).write(core::ptr::null_mut());
            (&raw mut (*message).msg_namelen).write(0);
            (&raw mut (*message).msg_iov).write(vectors.as_mut_ptr());
            (&raw mut (*message).msg_iovlen).write(vectors.len());
            (&raw mut (*message).msg_control).write(core::ptr::null_mut());
            (&raw mut (*message).msg_controllen).write(0);
            (&raw mut (*message).msg_flags).write(0);
            let flags = libc::MSG_NOSIGNAL as usize;
            call(libc::SYS_sendmsg, [self.0, message as usize, flags, 0, 0])
        }
    }

    /// Returns whether data arrives within this time, in seconds.
    pub(crate) fn is_readable_within(&self, seconds: i64) -> Result<bool> {
        let time = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
        wait(self.0, libc::POLLIN, &raw const time)
    }

    /// Reads once. Returns the number of bytes, 0 at the end.
    pub(crate) fn read(&self, into: &mut [MaybeUninit<u8>]) -> Result {
        loop {
            let (start, len) = (into.as_mut_ptr() as usize, into.len());
            // SAFETY: the kernel writes at most this many bytes.
            match unsafe { call(libc::SYS_read, [self.0, start, len, 0, 0]) } {
                Err(libc::EINTR) => {}
                other => return other,
            }
        }
    }
}

/// Returns whether a descriptor is ready within this time, or at any time if there is none.
fn wait(descriptor: usize, events: i16, time: *const libc::timespec) -> Result<bool> {
    let mut asked = pollfd { fd: descriptor as i32, events, revents: 0 };
    let (asked, time) = (&raw mut asked as usize, time as usize);
    // SAFETY: both pointers are to live structures, or null.
    unsafe { call(libc::SYS_ppoll, [asked, 1, time, 0, 0]) }.map(|ready| ready > 0)
}

/// Writes all bytes to a standard stream. Waits for a reader that is slow, if writing does not.
pub(crate) fn write_all(stream: usize, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let (start, len) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the kernel reads these bytes.
        match unsafe { call(libc::SYS_write, [stream, start, len, 0, 0]) } {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) => match wait(stream, libc::POLLOUT, core::ptr::null()) {
                Ok(_) | Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns whether a standard stream is a terminal.
pub(crate) fn is_terminal(stream: usize) -> bool {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    let into = settings.as_mut_ptr() as usize;
    // SAFETY: the kernel writes a structure that is not longer than this one.
    unsafe { call(libc::SYS_ioctl, [stream, libc::TCGETS as usize, into, 0, 0]) }.is_ok()
}

/// Requests the shortest time slice, as `slotd_sys::slice` explains.
pub(crate) fn shorten_slice() {
    const SHORTEST_NS: u64 = 100_000;
    let mut attributes = MaybeUninit::<sched_attr>::uninit();
    let (at, size) = (attributes.as_mut_ptr(), size_of::<sched_attr>());
    // SAFETY: the pointer is to a live structure of this size, and the fields are read only after
    // the kernel has written them. 0 is this thread.
    unsafe {
        if call(libc::SYS_sched_getattr, [0, at as usize, size, 0, 0]).is_err()
            || (*at).sched_policy != libc::SCHED_OTHER as u32
            || (*at).sched_nice < 0
        {
            return;
        }
        (*at).size = size as u32;
        (*at).sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        (*at).sched_runtime = SHORTEST_NS;
        let _ = call(libc::SYS_sched_setattr, [0, at as usize, 0, 0, 0]);
    }
}
