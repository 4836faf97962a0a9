//! Actions of test jobs that are awkward or impossible in a shell:
//!
//! - `helper ignore SIGNAL…` ignores signals by number, prints `ready PID`, and stays.
//! - `helper eat MB` touches this much memory, and exits.
//! - `helper fill MB` makes the kernel populate this much memory in one call. It prints the time
//!   before and after in microseconds since 1970.
//! - `helper hold MB` touches this much memory, prints `held`, and stays.
//! - `helper unwaited SECS` exits after a child that nobody waits for, in its own session, has used
//!   this much CPU time.
//! - `helper chain MS` leaves a chain of processes in a session of their own: each lives for 0.5 ms
//!   and forks the next. The chain ends after this time. It prints `session PID` first.
//! - `helper own COUNT MB MS`, `shared COUNT MB MS`, `peak MB MS`, `grow MB MS`, `map MB MS`, `read
//!   MB MS`, `short COUNT MS` and `burn MS` are loads with known resource usage, see
//!   `helper/load.rs`. At the end they print their CPU time.
//! - `helper rank VERSION` is a rank of an MPI program that speaks this version of PMI, see
//!   `helper/rank.rs`.
//! - `helper play WORD…` logs its own start and end, see `helper/play.rs`.

#[path = "../helper/load.rs"]
mod load;
#[path = "../helper/play.rs"]
mod play;
#[path = "../helper/rank.rs"]
mod rank;

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

unsafe extern "C" {
    fn signal(signal: i32, handler: usize) -> usize;
    fn fork() -> i32;
    fn setsid() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
}

const SIG_IGN: usize = 1;
const SIGCHLD: i32 = 17;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "play") {
        std::process::exit(play::play(&words[1..]));
    }
    let numbers: Vec<i32> =
        words.iter().skip(1).map(|word| word.parse().expect("a number")).collect();
    match (words.first().map(String::as_str), numbers.as_slice()) {
        (Some("ignore"), signals) => ignore(signals),
        (Some("eat"), [mb]) => eat(*mb as usize),
        (Some("fill"), [mb]) => return load::fill(*mb),
        (Some("hold"), [mb]) => hold(*mb as usize),
        (Some("unwaited"), [secs]) => unwaited(Duration::from_secs(*secs as u64)),
        (Some("chain"), [ms]) => return chain(Duration::from_millis(*ms as u64)),
        (Some("own"), [count, mb, ms]) => load::own(*count, *mb, *ms),
        (Some("shared"), [count, mb, ms]) => load::shared(*count, *mb, *ms),
        (Some("peak"), [mb, ms]) => load::peak(*mb, *ms),
        (Some("grow"), [mb, ms]) => load::grow(*mb, *ms),
        (Some("map"), [mb, ms]) => load::map(*mb, *ms),
        (Some("read"), [mb, ms]) => load::read(*mb, *ms),
        (Some("short"), [count, ms]) => load::short(*count, *ms),
        (Some("rank"), [version]) => return rank::rank(*version),
        // Its parent counts the CPU time.
        (Some("burn"), [ms]) => return load::burn(Duration::from_millis(*ms as u64)),
        _ => panic!("unknown arguments {words:?}: see the comment in tests/kit/src/bin/helper.rs"),
    }
    load::print_cpu_time();
}

fn ignore(signals: &[i32]) {
    for number in signals {
        // SAFETY: No handler is installed.
        unsafe { signal(*number, SIG_IGN) };
    }
    println!("ready {}", std::process::id());
    std::io::stdout().flush().expect("stdout is open");
    loop {
        sleep(Duration::from_secs(1000));
    }
}

fn eat(mb: usize) {
    let memory = vec![1u8; mb << 20];
    assert_eq!(std::hint::black_box(&memory).last(), Some(&1));
}

fn hold(mb: usize) {
    let memory = vec![1u8; mb << 20];
    assert_eq!(std::hint::black_box(&memory).last(), Some(&1));
    println!("held");
    std::io::stdout().flush().expect("stdout is open");
    loop {
        sleep(Duration::from_secs(1000));
    }
}

fn chain(time: Duration) {
    let end = std::time::Instant::now() + time;
    // SAFETY: This process has a single thread.
    if unsafe { fork() } != 0 {
        return;
    }
    // SAFETY: setsid takes no arguments.
    unsafe { setsid() };
    println!("session {}", std::process::id());
    while std::time::Instant::now() < end {
        sleep(Duration::from_micros(500));
        // SAFETY: This process has a single thread.
        if unsafe { fork() } != 0 {
            return;
        }
    }
}

fn unwaited(time: Duration) {
    // SAFETY: This process has a single thread, and no handler is installed.
    let child = unsafe {
        signal(SIGCHLD, SIG_IGN);
        fork()
    };
    if child == 0 {
        // SAFETY: setsid takes no arguments.
        unsafe { setsid() };
        return load::burn(time);
    }
    // SAFETY: kill takes two numbers; signal 0 only checks that the process exists.
    while unsafe { kill(child, 0) } == 0 {
        sleep(Duration::from_millis(20));
    }
}
