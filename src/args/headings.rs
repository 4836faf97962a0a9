//! The headings under which `--help` and the man pages list the options. Each option names its own
//! where it is declared; under one heading they stand in the order of their declaration.

use clap::{Arg, Command};

pub const RUNS: &str = "What runs";
pub const CPUS: &str = "CPUs and tasks";
pub const MEMORY: &str = "Memory";
pub const GPUS: &str = "GPUs";
pub const WHEN: &str = "When it starts, and how long it runs";
pub const WHERE: &str = "Where it runs, and for whom";
pub const NEWS: &str = "Output and news";
pub const DOES: &str = "What the command does";
pub const LISTED: &str = "What is listed";
pub const SHOWN: &str = "How it is shown";
pub const WHICH: &str = "Which jobs";
pub const DONE: &str = "What is done to them";
/// Of the options that name none, in a command where others do.
pub const GENERAL: &str = "General";

/// In the order of the help.
const ALL: [&str; 13] =
    [RUNS, CPUS, MEMORY, GPUS, WHEN, WHERE, NEWS, DOES, LISTED, SHOWN, WHICH, DONE, GENERAL];

/// What stands elsewhere under its heading than it is declared, since sbatch, srun and salloc have
/// options of their own there: before the others (below 0) or after them.
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

/// A definition with the options of `full` under their headings, and in the order of these; what
/// has no long name comes at the end. `bare` is the definition without options: clap cannot move
/// the options of a command.
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
