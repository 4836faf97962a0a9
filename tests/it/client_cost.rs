//! What the commands cost that people and tools call all day, counted and not timed. Page faults
//! are those of a debug build: they grow a little with all that is linked.

use slotd_kit::{Slotd, trace};
use std::fs;

/// Whether the program was linked statically, as it is where there is a `libc.a`: it names no
/// interpreter.
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
    let job = || slotd.submit(&["-H", "--wrap", "true"]).to_string();
    let (shown, cancelled) = (job(), [job(), job(), job(), job()]);
    for (line, calls, faults) in [
        (&["sinfo"][..], 36, 600),
        (&["squeue", "-j", &shown], 36, 600),
        (&["scontrol", "show", "job", &shown], 36, 600),
        (&["scancel"], 36, 600),
        // Two for each directory above the working directory: it may lie in a git work tree.
        (&["sbatch", "-H", "--wrap", "true"], 82, 720),
    ] {
        // What is not in the page cache is mapped in smaller pieces, which the next run finds
        // there.
        let mut costs = Vec::new();
        let is_little = cancelled.iter().any(|job| {
            let own = if line == ["scancel"] { Some(job) } else { None };
            let mut command = slotd.command(line[0]);
            // The zone is read from the host's file, as it is for most people.
            command.env_remove("TZ").args(&line[1..]).args(own);
            let cost = trace::cost(&mut command);
            let is_little = cost.calls <= calls && cost.faults <= faults;
            costs.push(cost);
            is_little
        });
        eprintln!("{line:?}: {costs:?}");
        assert!(is_little, "{line:?}: {costs:?}");
    }
}
