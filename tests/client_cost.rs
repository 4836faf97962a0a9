//! What the commands cost that people and tools call all day, counted and not timed. Page faults are those of a debug build:
//! they grow a little with all that is linked, and by up to a tenth where the page cache is short.

use slotd_kit::{Slotd, trace};
use std::fs;

/// Whether the program was linked statically, as it is where there is a `libc.a`: it names no interpreter.
fn is_static() -> bool {
    let program = fs::read(slotd_kit::program()).unwrap();
    let has = |text: &[u8]| program[..4096].windows(text.len()).any(|bytes| bytes == text);
    !has(b"/ld-linux") && !has(b"/ld64")
}

#[test]
fn a_command_that_asks_one_thing_costs_little() {
    if !is_static() {
        return;
    }
    let slotd = Slotd::start();
    let job = slotd.submit(&["-H", "--wrap", "true"]).to_string();
    for (line, calls, faults) in [
        (&["sinfo"][..], 36, 600),
        (&["squeue", "-j", &job], 36, 600),
        (&["scontrol", "show", "job", &job], 36, 600),
        (&["scancel", &job], 36, 600),
        // Two for each directory above the working directory: it may lie in a git work tree.
        (&["sbatch", "-H", "--wrap", "true"], 82, 720),
    ] {
        let cost = trace::cost(slotd.command(line[0]).args(&line[1..]));
        eprintln!("{line:?}: {cost:?}");
        assert!(cost.calls <= calls && cost.faults <= faults, "{line:?}: {cost:?}");
    }
}
