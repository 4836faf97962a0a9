//! The cost of the most frequent commands, in system calls and page faults instead of time. The
//! page faults are those of a debug build. The same program takes 470 to 730 on different hosts,
//! because the kernel maps as many pages at a time as its page cache holds in one piece. Their
//! limit is therefore wide: it is there to notice a large stack frame or a large file that is
//! read. The benchmarks compare the rest.

use slotd_kit::{Slotd, trace};
use std::fs;

/// Page faults that no simple command needs on any host.
const MAX_FAULTS: usize = 1000;

/// Returns whether the program is linked statically, as it is if there is a `libc.a`. A static
/// program names no interpreter.
fn is_static() -> bool {
    let program = fs::read(slotd_kit::program()).unwrap();
    let has = |text: &[u8]| program[..4096].windows(text.len()).any(|bytes| bytes == text);
    !has(b"/ld-linux") && !has(b"/ld64")
}

#[test]
fn simple_commands_are_cheap() {
    if !is_static() {
        return;
    }
    let slotd = Slotd::start();
    let job = || slotd.submit(&["-H", "--wrap", "true"]).to_string();
    let (shown, cancelled) = (job(), [job(), job(), job(), job()]);
    for (line, calls) in [
        (&["sinfo"][..], 38),
        (&["squeue", "-j", &shown], 38),
        (&["scontrol", "show", "job", &shown], 38),
        (&["scancel"], 38),
        // One call for each parent of the working directory, to find a git work tree.
        (&["sbatch", "-H", "--wrap", "true"], 28),
    ] {
        // The first run can find pages outside of the page cache.
        let mut costs = Vec::new();
        let is_little = cancelled.iter().any(|job| {
            let own = if line == ["scancel"] { Some(job) } else { None };
            let mut command = slotd.command(line[0]);
            // The time zone is read from the host's file, as for most users.
            command.env_remove("TZ").args(&line[1..]).args(own);
            let cost = trace::cost(&mut command);
            let is_little = cost.calls <= calls && cost.faults <= MAX_FAULTS;
            costs.push(cost);
            is_little
        });
        eprintln!("{line:?}: {costs:?}");
        assert!(is_little, "{line:?}: {costs:?}");
    }
}
