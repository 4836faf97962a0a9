//! The headings that group options in `--help` and the man pages. Each option declares its heading;
//! under a heading, options appear in declaration order.

use clap::{Arg, Command};

pub const RUNS: &str = "Job and environment";
pub const CPUS: &str = "CPUs and tasks";
pub const MEMORY: &str = "Memory";
pub const GPUS: &str = "GPUs";
pub const WHEN: &str = "Start and time limits";
pub const WHERE: &str = "Placement and accounting";
pub const NEWS: &str = "Output and mail";
pub const DOES: &str = "Command behavior";
pub const LISTED: &str = "Selection";
pub const SHOWN: &str = "Output format";
pub const WHICH: &str = "Job selection";
pub const DONE: &str = "Action";
/// The heading for options that declare none, in commands where others do.
pub const GENERAL: &str = "General";

/// All headings, in the order of the help.
const ALL: [&str; 13] =
    [RUNS, CPUS, MEMORY, GPUS, WHEN, WHERE, NEWS, DOES, LISTED, SHOWN, WHICH, DONE, GENERAL];

/// Options that are not listed in declaration order, because sbatch, srun and salloc add options of
/// their own to the heading. A negative position comes before the other options, a positive one
/// after them.
pub const MOVED: [(&str, &str, i8); 12] = [
    (RUNS, "uid", 1),
    (RUNS, "gid", 2),
    (RUNS, "comment", 3),
    (RUNS, "extra", 4),
    (CPUS, "distribution", 1),
    (CPUS, "cpu-bind", 2),
    (CPUS, "tres-per-task", 3),
    (WHEN, "signal", 1),
    (WHERE, "partition", -2),
    (WHERE, "jobid", -1),
    (NEWS, "mail-type", 1),
    (NEWS, "mail-user", 2),
];

/// Returns a definition with the options of `full` grouped under their headings. Options without a
/// long name come last. `bare` is the definition without options: clap cannot reorder the options
/// of an existing command.
pub fn arrange(full: Command, bare: impl FnOnce() -> Command) -> Command {
    if full.get_arguments().all(|arg| arg.get_help_heading().is_none()) {
        return full;
    }
    let place = |arg: &Arg| {
        let Some(long) = arg.get_long() else { return (ALL.len(), 0) };
        let heading = arg.get_help_heading().unwrap_or(GENERAL);
        let is_it = |(under, option, _): &&(&str, &str, i8)| (*under, *option) == (heading, long);
        let moved = MOVED.iter().find(is_it).map_or(0, |(.., place)| *place);
        (ALL.iter().position(|title| *title == heading).unwrap_or(ALL.len()), moved)
    };
    let mut args: Vec<Arg> = full.get_arguments().cloned().collect();
    args.sort_by_key(place);
    bare().args(args.into_iter().enumerate().map(|(order, arg)| {
        match (arg.get_long().is_some(), arg.get_help_heading().is_some()) {
            (false, _) => arg,
            (true, true) => arg.display_order(order),
            (true, false) => arg.help_heading(GENERAL).display_order(order),
        }
    }))
}
