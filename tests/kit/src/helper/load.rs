//! Loads with known memory and CPU usage, to compare with slotd's measurements.

use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

unsafe extern "C" {
    fn fork() -> i32;
    fn wait(status: *mut i32) -> i32;
    fn getrusage(who: i32, usage: *mut i64) -> i32;
    fn clock() -> std::ffi::c_long;
    fn mmap(
        at: usize,
        bytes: usize,
        protection: i32,
        flags: i32,
        fd: i32,
        offset: i64,
    ) -> *const u8;
}

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const PROT_READ: i32 = 1;
const PROT_WRITE: i32 = 2;
const MAP_SHARED: i32 = 1;
const MAP_PRIVATE: i32 = 2;
const MAP_ANONYMOUS: i32 = 0x20;
const MAP_POPULATE: i32 = 0x8000;

fn millis(ms: i32) -> Duration {
    Duration::from_millis(ms as u64)
}

/// Allocates memory and touches every page.
fn memory(mb: i32) -> Vec<u8> {
    black_box(vec![1u8; (mb as usize) << 20])
}

/// Allocates this much memory at once, without a page fault per page.
pub fn fill(mb: i32) {
    let print_time = || {
        println!(
            "{}",
            SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros()
        )
    };
    print_time();
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    // SAFETY: This creates a new anonymous mapping; the result is checked.
    let at = unsafe { mmap(0, (mb as usize) << 20, PROT_READ | PROT_WRITE, flags, -1, 0) };
    assert_ne!(at as isize, -1, "the address space is large enough");
    print_time();
}

/// Runs the same load in several children at once, and waits for all of them.
fn children(count: i32, load: impl Fn()) {
    for _ in 0..count {
        // SAFETY: This process has a single thread.
        if unsafe { fork() } == 0 {
            load();
            std::process::exit(0);
        }
    }
    wait_for_all();
}

/// Uses this much CPU time.
pub fn burn(time: Duration) {
    // SAFETY: clock takes no arguments. It returns CPU time in microseconds.
    while (unsafe { clock() } as u128) < time.as_micros() {
        std::hint::spin_loop();
    }
}

/// A barrier: all processes continue at the same time.
struct Barrier {
    count: i32,
    arrived: (PipeReader, PipeWriter),
    released: (PipeReader, PipeWriter),
}

impl Barrier {
    fn of(count: i32) -> Barrier {
        Barrier { count, arrived: pipe().expect("a pipe"), released: pipe().expect("a pipe") }
    }

    /// Waits at the barrier. Called in each process.
    fn wait(&self) {
        (&self.arrived.1).write_all(&[1]).expect("this process holds the other end");
        (&self.released.0).read_exact(&mut [0]).expect("this process holds the other end");
    }

    /// Waits for all processes and releases them. Called in their parent.
    fn release(&self) {
        let mut all = vec![0; self.count as usize];
        (&self.arrived.0).read_exact(&mut all).expect("all processes arrive");
        (&self.released.1).write_all(&all).expect("this process holds the other end");
    }
}

/// Starts this many processes that hold this much memory each, all at the same time for this long.
pub fn own(count: i32, mb: i32, ms: i32) {
    let barrier = Barrier::of(count);
    for _ in 0..count {
        // SAFETY: This process has a single thread.
        if unsafe { fork() } == 0 {
            let held = memory(mb);
            barrier.wait();
            sleep(millis(ms));
            drop(held);
            std::process::exit(0);
        }
    }
    barrier.release();
    wait_for_all();
}

/// Memory shared by this many processes for this long.
pub fn shared(count: i32, mb: i32, ms: i32) {
    let held = memory(mb);
    children(count, || {
        sleep(millis(ms));
        black_box(held.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>());
    });
}

/// A short peak of memory, with none before and after.
pub fn peak(mb: i32, ms: i32) {
    burn(millis(300));
    let held = memory(mb);
    sleep(millis(ms));
    drop(held);
    burn(millis(900));
}

/// Two processes that grow to this size over this time. The first one to get there waits, so that
/// both reach their peak at the same time, for as long as that of [`peak`].
pub fn grow(mb: i32, ms: i32) {
    let barrier = Barrier::of(2);
    for _ in 0..2 {
        // SAFETY: This process has a single thread.
        if unsafe { fork() } == 0 {
            let held: Vec<Vec<u8>> = (0..mb)
                .map(|_| {
                    sleep(millis(ms) / mb as u32);
                    memory(1)
                })
                .collect();
            barrier.wait();
            sleep(millis(200));
            black_box(&held);
            std::process::exit(0);
        }
    }
    barrier.release();
    wait_for_all();
}

fn wait_for_all() {
    // SAFETY: A null pointer is allowed: the status is not needed.
    while unsafe { wait(std::ptr::null_mut()) } > 0 {}
}

/// Creates a file of this size, maps it and reads all of it.
pub fn map(mb: i32, ms: i32) {
    let file = tempfile(mb);
    // SAFETY: This maps an open file; the result is checked.
    let at = unsafe {
        mmap(
            0,
            (mb as usize) << 20,
            PROT_READ,
            MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
        )
    };
    assert_ne!(at as isize, -1, "the file is mapped");
    // SAFETY: The mapping has this length and lives as long as the process.
    let bytes = unsafe { std::slice::from_raw_parts(at, (mb as usize) << 20) };
    black_box(bytes.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>());
    sleep(millis(ms));
}

/// Creates a file of this size and reads it without keeping the data.
pub fn read(mb: i32, ms: i32) {
    let mut file = tempfile(mb);
    std::io::Seek::rewind(&mut file).expect("the file can be read");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the file is read");
    sleep(millis(ms));
}

/// Creates an unnamed file in the working directory.
fn tempfile(mb: i32) -> std::fs::File {
    let path = format!("load.{}", std::process::id());
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(&path).expect("the file was created");
    let block = vec![1u8; 1 << 20];
    (0..mb).for_each(|_| std::io::Write::write_all(&mut file, &block).expect("enough disk space"));
    file
}

/// Prints the CPU time of this process and of the children that it waited for, in microseconds.
pub fn print_cpu_time() {
    let used = |who: i32| {
        // The first 4 of 18 numbers are the seconds and microseconds of utime and stime
        // (getrusage(2)).
        let mut numbers = [0i64; 18];
        // SAFETY: The buffer holds a whole rusage.
        assert_eq!(unsafe { getrusage(who, numbers.as_mut_ptr()) }, 0);
        (numbers[0] + numbers[2]) * 1_000_000 + numbers[1] + numbers[3]
    };
    println!("cpu_us {}", used(RUSAGE_SELF) + used(RUSAGE_CHILDREN));
}

/// Runs this many processes, one after the other, each with this much CPU time.
pub fn short(count: i32, ms: i32) {
    let helper = std::env::current_exe().expect("this program");
    for _ in 0..count {
        let burns = Command::new(&helper).args(["burn", &ms.to_string()]).status();
        assert!(burns.is_ok_and(|status| status.success()));
    }
}
