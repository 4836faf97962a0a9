//! Under which headings `--help` and the man pages list the options.

use clap::{Arg, Command};

/// A heading and the options under it, by their long names.
pub type Group = (&'static str, &'static [&'static str]);

const GENERAL: Group = ("General", &["help", "usage", "version", "verbose", "quiet"]);

/// Of sbatch, srun and salloc.
pub const JOB: &[Group] = &[
    (
        "What runs",
        &[
            "wrap",
            "array",
            "job-name",
            "chdir",
            "snapshot",
            "export",
            "export-file",
            "propagate",
            "multi-prog",
            "mpi",
            "pty",
            "uid",
            "gid",
            "comment",
            "extra",
        ],
    ),
    (
        "CPUs and tasks",
        &[
            "cpus-per-task",
            "ntasks",
            "nodes",
            "ntasks-per-node",
            "ntasks-per-core",
            "ntasks-per-socket",
            "mincpus",
            "cores-per-socket",
            "sockets-per-node",
            "threads-per-core",
            "extra-node-info",
            "hint",
            "exclusive",
            "oversubscribe",
            "overcommit",
            "overlap",
            "exact",
            "whole",
            "relative",
            "distribution",
            "cpu-bind",
            "tres-per-task",
        ],
    ),
    ("Memory", &["mem", "mem-per-cpu", "mem-per-gpu", "mem-bind"]),
    (
        "GPUs",
        &[
            "gpus",
            "gpus-per-node",
            "gpus-per-task",
            "gpus-per-socket",
            "cpus-per-gpu",
            "ntasks-per-gpu",
            "gres",
            "gpu-bind",
        ],
    ),
    (
        "When it starts, and how long it runs",
        &[
            "time",
            "time-min",
            "begin",
            "deadline",
            "dependency",
            "kill-on-invalid-dep",
            "hold",
            "priority",
            "nice",
            "immediate",
            "requeue",
            "no-requeue",
            "signal",
        ],
    ),
    (
        "Where it runs, and for whom",
        &[
            "partition",
            "jobid",
            "constraint",
            "nodelist",
            "exclude",
            "licenses",
            "reservation",
            "clusters",
            "account",
            "qos",
            "wckey",
        ],
    ),
    (
        "Output and news",
        &["output", "error", "input", "open-mode", "label", "unbuffered", "mail-type", "mail-user"],
    ),
    (
        "What the command does",
        &[
            "parsable",
            "test-only",
            "wait",
            "no-wait",
            "kill-on-bad-exit",
            "quit-on-interrupt",
            "no-shell",
            "bell",
            "no-bell",
        ],
    ),
    GENERAL,
];

/// Of the commands that list jobs, steps and users.
pub const LISTING: &[Group] = &[
    (
        "What is listed",
        &[
            "jobs",
            "steps",
            "allsteps",
            "name",
            "user",
            "me",
            "allusers",
            "states",
            "state",
            "all",
            "partition",
            "account",
            "accounts",
            "qos",
            "wckeys",
            "group",
            "nodelist",
            "licenses",
            "reservation",
            "constraints",
            "reason",
            "ncpus",
            "nnodes",
            "timelimit-min",
            "timelimit-max",
            "starttime",
            "endtime",
            "truncate",
            "duplicates",
            "array",
            "allocations",
            "series",
            "pidformat",
            "weights",
        ],
    ),
    (
        "How it is shown",
        &[
            "format",
            "Format",
            "helpformat",
            "long",
            "brief",
            "start",
            "sort",
            "noheader",
            "norm",
            "parsable",
            "parsable2",
            "delimiter",
            "units",
            "noconvert",
            "iterate",
            "json",
            "yaml",
            "batch-script",
            "env-vars",
        ],
    ),
    GENERAL,
];

/// Of sinfo.
pub const NODES: &[Group] = &[
    (
        "What is listed",
        &["partition", "nodes", "states", "dead", "list-reasons", "Node", "summarize"],
    ),
    (
        "How it is shown",
        &[
            "format",
            "Format",
            "helpformat",
            "long",
            "sort",
            "noheader",
            "noconvert",
            "iterate",
            "json",
            "yaml",
        ],
    ),
    GENERAL,
];

/// Of scancel.
pub const CANCEL: &[Group] = &[
    (
        "Which jobs",
        &[
            "name",
            "user",
            "me",
            "state",
            "partition",
            "account",
            "qos",
            "nodelist",
            "reservation",
            "wckey",
        ],
    ),
    ("What is done to them", &["signal", "batch", "full", "interactive"]),
    GENERAL,
];

/// A definition with the options of `full` in the order of the groups and under their headings. What has no long name, or
/// no group, comes after them. `bare` is the definition without options: those of a clap command cannot change places.
pub fn arrange(full: Command, bare: impl FnOnce() -> Command, groups: &[Group]) -> Command {
    if groups.is_empty() {
        return full;
    }
    let place = |arg: &Arg| {
        let long = arg.get_long()?;
        let in_group = |(_, names): &Group| names.iter().position(|name| *name == long);
        groups.iter().enumerate().find_map(|(group, entry)| Some((group, in_group(entry)?)))
    };
    let mut args: Vec<(Option<(usize, usize)>, Arg)> =
        full.get_arguments().map(|arg| (place(arg), arg.clone())).collect();
    args.sort_by_key(|(place, _)| place.unwrap_or((groups.len(), 0)));
    bare().args(args.into_iter().enumerate().map(|(order, (place, arg))| match place {
        Some((group, _)) => arg.help_heading(groups[group].0).display_order(order),
        None => arg,
    }))
}
