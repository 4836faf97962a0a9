//! What a job of a test does, where a shell can do it only by tricks, or not at all:
//!
//! - `helper ignore SIGNAL…` ignores signals by number, says `ready PID`, and stays.
//! - `helper eat MB` writes to so much memory, and ends.
//! - `helper fill MB` has the kernel fill so much memory in one call. It says when it begins and
//!   when that is done, in microseconds since 1970.
//! - `helper hold MB` writes to so much memory, says `held`, and stays.
//! - `helper unwaited SECS` ends after a child that nobody waits for, in a session of its own, has
//!   used so much CPU time.
//! - `helper own COUNT MB MS`, `shared COUNT MB MS`, `peak MB MS`, `grow MB MS`, `map MB MS`,
//!   `read MB MS`, `short COUNT MS` and `burn MS` are loads whose use is known, see
//!   `helper/load.rs`. In the end they say what CPU time they have used.
//! - `helper rank VERSION` is a rank of an MPI program that speaks this version of PMI, see
//!   `helper/rank.rs`.
//! - `helper play WORD…` tells in a log what becomes of it, see `helper/play.rs`.

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
        (Some("own"), [count, mb, ms]) => load::own(*count, *mb, *ms),
        (Some("shared"), [count, mb, ms]) => load::shared(*count, *mb, *ms),
        (Some("peak"), [mb, ms]) => load::peak(*mb, *ms),
        (Some("grow"), [mb, ms]) => load::grow(*mb, *ms),
        (Some("map"), [mb, ms]) => load::map(*mb, *ms),
        (Some("read"), [mb, ms]) => load::read(*mb, *ms),
        (Some("short"), [count, ms]) => load::short(*count, *ms),
        (Some("rank"), [version]) => return rank::rank(*version),
        // Who has started it counts it.
        (Some("burn"), [ms]) => return load::burn(Duration::from_millis(*ms as u64)),
        _ => panic!("helper: {words:?}: see its source"),
    }
    load::say_cpu_time();
}

fn ignore(signals: &[i32]) {
    for number in signals {
        // SAFETY: no handler runs.
        unsafe { signal(*number, SIG_IGN) };
    }
    println!("ready {}", std::process::id());
    std::io::stdout().flush().expect("somewhere to say it");
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
    std::io::stdout().flush().expect("somewhere to say it");
    loop {
        sleep(Duration::from_secs(1000));
    }
}

fn unwaited(time: Duration) {
    // SAFETY: this process has one thread, and no handler runs.
    let child = unsafe {
        signal(SIGCHLD, SIG_IGN);
        fork()
    };
    if child == 0 {
        // SAFETY: it takes nothing.
        unsafe { setsid() };
        return load::burn(time);
    }
    // SAFETY: kill takes two numbers; 0 sends nothing.
    while unsafe { kill(child, 0) } == 0 {
        sleep(Duration::from_millis(20));
    }
}
