//! Loads whose use of memory and CPU is known: what slotd measures is compared with it.

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

/// Memory that is really there: every page was written to.
fn memory(mb: i32) -> Vec<u8> {
    black_box(vec![1u8; (mb as usize) << 20])
}

/// So much memory at once, without a page fault for each page of it.
pub fn fill(mb: i32) {
    let say_when = || {
        println!(
            "{}",
            SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros()
        )
    };
    say_when();
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    // SAFETY: a new mapping of no file; its result is looked at.
    let at = unsafe { mmap(0, (mb as usize) << 20, PROT_READ | PROT_WRITE, flags, -1, 0) };
    assert_ne!(at as isize, -1, "there are so many addresses");
    say_when();
}

/// Several children do the same at once; ends when all have ended.
fn children(count: i32, load: impl Fn()) {
    for _ in 0..count {
        // SAFETY: this process has one thread.
        if unsafe { fork() } == 0 {
            load();
            std::process::exit(0);
        }
    }
    wait_for_all();
}

/// Uses so much CPU time.
pub fn burn(time: Duration) {
    // SAFETY: it takes nothing. It tells microseconds of CPU time.
    while (unsafe { clock() } as u128) < time.as_micros() {
        std::hint::spin_loop();
    }
}

/// Processes that wait for each other: what they do next, all do at the same time.
struct Meeting {
    count: i32,
    come: (PipeReader, PipeWriter),
    go: (PipeReader, PipeWriter),
}

impl Meeting {
    fn of(count: i32) -> Meeting {
        Meeting { count, come: pipe().expect("a pipe"), go: pipe().expect("a pipe") }
    }

    /// In each of them.
    fn wait(&self) {
        (&self.come.1).write_all(&[1]).expect("it holds the other end");
        (&self.go.0).read_exact(&mut [0]).expect("it holds the other end");
    }

    /// In the process that has made them.
    fn lead(&self) {
        let mut all = vec![0; self.count as usize];
        (&self.come.0).read_exact(&mut all).expect("all come");
        (&self.go.1).write_all(&all).expect("it holds the other end");
    }
}

/// So many processes, each with so much memory of its own, which all have together for so long.
pub fn own(count: i32, mb: i32, ms: i32) {
    let meeting = Meeting::of(count);
    for _ in 0..count {
        // SAFETY: this process has one thread.
        if unsafe { fork() } == 0 {
            let held = memory(mb);
            meeting.wait();
            sleep(millis(ms));
            drop(held);
            std::process::exit(0);
        }
    }
    meeting.lead();
    wait_for_all();
}

/// Memory that so many processes share for so long.
pub fn shared(count: i32, mb: i32, ms: i32) {
    let held = memory(mb);
    children(count, || {
        sleep(millis(ms));
        black_box(held.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>());
    });
}

/// So much memory for a moment, and nothing before and after it.
pub fn peak(mb: i32, ms: i32) {
    burn(millis(300));
    let held = memory(mb);
    sleep(millis(ms));
    drop(held);
    burn(millis(900));
}

/// Two processes that grow to so much in so long a time. Who is there first waits for the other, so
/// that both have their most at the same time, for a moment.
pub fn grow(mb: i32, ms: i32) {
    let meeting = Meeting::of(2);
    for _ in 0..2 {
        // SAFETY: this process has one thread.
        if unsafe { fork() } == 0 {
            let held: Vec<Vec<u8>> = (0..mb)
                .map(|_| {
                    sleep(millis(ms) / mb as u32);
                    memory(1)
                })
                .collect();
            meeting.wait();
            sleep(millis(100));
            black_box(&held);
            std::process::exit(0);
        }
    }
    meeting.lead();
    wait_for_all();
}

fn wait_for_all() {
    // SAFETY: nobody wants to know the status.
    while unsafe { wait(std::ptr::null_mut()) } > 0 {}
}

/// Maps a file of so much, which it makes, and reads all of it.
pub fn map(mb: i32, ms: i32) {
    let file = tempfile(mb);
    // SAFETY: a new mapping of an open file; its result is looked at.
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
    // SAFETY: the mapping is so long, and lasts as long as the process.
    let bytes = unsafe { std::slice::from_raw_parts(at, (mb as usize) << 20) };
    black_box(bytes.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>());
    sleep(millis(ms));
}

/// Reads a file of so much, which it makes, without keeping anything of it.
pub fn read(mb: i32, ms: i32) {
    let mut file = tempfile(mb);
    std::io::Seek::rewind(&mut file).expect("the file is there");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the file is read");
    sleep(millis(ms));
}

/// A file without a name in the working directory.
fn tempfile(mb: i32) -> std::fs::File {
    let path = format!("load.{}", std::process::id());
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(&path).expect("it was made");
    let block = vec![1u8; 1 << 20];
    (0..mb).for_each(|_| std::io::Write::write_all(&mut file, &block).expect("room for it"));
    file
}

/// Says how much CPU time this process has used, with those that it waited for, in microseconds.
pub fn say_cpu_time() {
    let used = |who: i32| {
        // utime and stime in seconds and microseconds come first of 18 numbers (getrusage(2)).
        let mut numbers = [0i64; 18];
        // SAFETY: there is room for all of it.
        assert_eq!(unsafe { getrusage(who, numbers.as_mut_ptr()) }, 0);
        (numbers[0] + numbers[2]) * 1_000_000 + numbers[1] + numbers[3]
    };
    println!("cpu_us {}", used(RUSAGE_SELF) + used(RUSAGE_CHILDREN));
}

/// So many processes, one after the other, each with so much CPU time.
pub fn short(count: i32, ms: i32) {
    let helper = std::env::current_exe().expect("this program");
    for _ in 0..count {
        let burns = Command::new(&helper).args(["burn", &ms.to_string()]).status();
        assert!(burns.is_ok_and(|status| status.success()));
    }
}
