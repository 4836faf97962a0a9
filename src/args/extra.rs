//! Options from Slurm's man pages that have no meaning on one host. They are either accepted
//! without effect or refused by name.
//!
//! They are part of the clap definitions, so that prefixes, help and completions include them, but
//! no command reads them. The options that have a meaning are in the `Opts` structs of the
//! commands.

use crate::args::error::CliError;
use crate::args::table::Takes;
use clap::{Arg, ArgAction, Command};
use slotd_parse::{SpecError, suggest};

/// An option without a meaning on one host.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    pub long: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub help: &'static str,
    /// The reason for refusing the option. `None`: the option is accepted.
    pub refusal: Option<&'static str>,
    /// Validates the value, even though it has no effect. The second argument is the option's
    /// spelling.
    pub check: Option<Check>,
    /// Whether the option has an effect before the command parses its options.
    pub acts: bool,
}

type Check = fn(&str, &str) -> Result<(), SpecError>;

const fn kept(long: &'static str, short: Option<char>, takes: Takes, help: &'static str) -> Extra {
    Extra { long, short, takes, help, refusal: None, check: None, acts: false }
}

const fn checked(
    long: &'static str,
    short: Option<char>,
    help: &'static str,
    check: Check,
) -> Extra {
    Extra { check: Some(check), ..kept(long, short, Value, help) }
}

const fn refused(
    long: &'static str,
    short: Option<char>,
    takes: Takes,
    why: &'static str,
) -> Extra {
    Extra { long, short, takes, help: why, refusal: Some(why), check: None, acts: false }
}

use Takes::{Maybe, Nothing, Value};

/// An option of the commands that reach other clusters. It is handled before the command itself,
/// which accepts only this host.
const CLUSTERS: Extra = Extra {
    acts: true,
    help: "Use these clusters: names from clusters.toml, or all",
    ..THIS_CLUSTER
};

/// An option of commands that do not reach other clusters.
const THIS_CLUSTER: Extra =
    checked("clusters", Some('M'), "Use this cluster; others are refused", |text, _| {
        slotd_parse::cluster::parse(text).map(drop)
    });

fn count(text: &str, option: &str) -> Result<(), SpecError> {
    slotd_parse::count::parse_or_zero(text, option).map(drop)
}

fn positive(text: &str, option: &str) -> Result<(), SpecError> {
    slotd_parse::count::parse(text, option).map(drop)
}

/// Parses 0 or 1.
fn zero_or_one(text: &str, option: &str) -> Result<(), SpecError> {
    match text {
        "0" | "1" => Ok(()),
        _ => Err(SpecError::invalid_option(option, text).with_hint("0 or 1")),
    }
}

/// Parses the value of `--gres-flags`.
fn gres_flags(text: &str, option: &str) -> Result<(), SpecError> {
    const FLAGS: [&str; 5] = [
        "disable-binding",
        "enforce-binding",
        "allow-task-sharing",
        "multiple-tasks-per-sharing",
        "one-task-per-sharing",
    ];
    if FLAGS.iter().any(|flag| flag.eq_ignore_ascii_case(text)) {
        return Ok(());
    }
    Err(SpecError::invalid_option(option, text).with_hint(suggest::one_of("flags", text, FLAGS)))
}

/// Options of sbatch, srun and salloc.
pub const SUBMIT: &[Extra] = &[
    checked("acctg-freq", None, "Set the accounting sampling interval", |text, _| {
        slotd_parse::acctg_freq::check(text)
    }),
    kept("bb", None, Value, "Request burst buffers"),
    kept("bbf", None, Value, "Read the burst buffer specification from a file"),
    kept("consolidate-segments", None, Nothing, "Place node segments together"),
    kept("container", None, Value, "Use this OCI container bundle"),
    kept("container-id", None, Value, "Set the OCI container name"),
    checked("core-spec", Some('S'), "Reserve cores for the system", count),
    checked("cpu-freq", None, "Set the CPU frequency", |text, _| {
        slotd_parse::cpu_freq::parse(text).map(drop)
    }),
    kept("get-user-env", None, Maybe, "Use the login environment"),
    checked("gpu-freq", None, "Set the GPU frequency", |text, _| {
        slotd_parse::gpu_freq::check(text)
    }),
    checked("gres-flags", None, "Set options for binding generic resources", gres_flags),
    kept("mcs-label", None, Value, "Set the multi-category security label"),
    kept("no-kill", Some('k'), Maybe, "Keep the job running if a node fails"),
    kept("power", None, Value, "Set power management options"),
    kept("resv-ports", None, Maybe, "Reserve communication ports"),
    kept("segment", None, Value, "Set the size of node segments"),
    kept("spread-job", None, Nothing, "Spread the job over many nodes"),
    kept("stepmgr", None, Nothing, "Manage steps on the node"),
    checked("thread-spec", None, "Reserve threads for the system", count),
    kept("tres-bind", None, Value, "Bind tasks to trackable resources"),
    kept("use-min-nodes", None, Nothing, "Prefer fewer nodes"),
    refused("cluster-constraint", None, Value, "there are no other clusters"),
    refused("nodefile", Some('F'), Value, "there is only one node; use --nodelist"),
    refused("reboot", None, Nothing, "a reboot would end all jobs on the host"),
];

/// Options of sbatch only.
pub const SBATCH: &[Extra] = &[
    kept("batch", None, Value, "Require features of the node that runs the script"),
    kept("ignore-pbs", None, Nothing, "Ignore #PBS lines, as slotd always does"),
    kept("oom-kill-step", None, Maybe, "Kill the whole step if it runs out of memory"),
    checked("wait-all-nodes", None, "Wait until all nodes are ready", zero_or_one),
    refused("scrontab", None, Nothing, "use the command scrontab"),
];

/// Options of salloc only.
pub const SALLOC: &[Extra] = &[
    kept(
        "kill-command",
        Some('K'),
        Maybe,
        "End the command with its allocation, as slotd always does",
    ),
    checked("wait-all-nodes", None, "Wait until all nodes are ready", zero_or_one),
    kept("x11", None, Maybe, "Forward X11, which is unnecessary on one host"),
];

/// Options of srun only.
pub const SRUN: &[Extra] = &[
    checked("msg-timeout", None, "Set the timeout for messages from nodes", positive),
    kept("accel-bind", None, Value, "Bind tasks to accelerators"),
    kept("async", None, Nothing, "Submit the step in the background"),
    kept("bcast", None, Maybe, "Copy the program to the nodes; it is already there"),
    kept("bcast-exclude", None, Value, "Exclude these libraries from the copy"),
    kept("compress", None, Maybe, "Compress copied files"),
    kept("ctrl-comm-ifhn", None, Value, "Set the network interface for communication"),
    kept("debugger-test", None, Nothing, "Test debuggers"),
    kept(
        "disable-status",
        Some('X'),
        Nothing,
        "Forward Ctrl-C to the tasks immediately, as slotd always does",
    ),
    kept("interactive", None, Nothing, "Start the shell of an interactive job"),
    kept("oom-kill-step", None, Maybe, "Kill the whole step if it runs out of memory"),
    kept("preserve-env", Some('E'), Nothing, "Take node and task counts from the environment"),
    kept("send-libs", None, Maybe, "Copy the libraries with the program"),
    kept("slurmd-debug", None, Value, "Set the log level of the node's daemon"),
    checked("threads", Some('T'), "Set the number of threads that launch tasks", positive),
    kept("treewidth", None, Value, "Set the width of the communication tree"),
    kept("x11", None, Maybe, "Forward X11, which is unnecessary on one host"),
    refused("epilog", None, Value, "call the program from the command itself"),
    refused("external-launcher", None, Maybe, "only slotd starts tasks"),
    refused("het-group", None, Value, "there are no heterogeneous jobs on one host"),
    refused("mpi-combine", None, Value, "there are no heterogeneous jobs on one host"),
    refused("pack-group", None, Value, "there are no heterogeneous jobs on one host"),
    refused("no-allocate", Some('Z'), Nothing, "a step needs an allocation"),
    refused("prolog", None, Value, "call the program from the command itself"),
    refused("task-epilog", None, Value, "call the program from the command itself"),
    refused("task-prolog", None, Value, "call the program from the command itself"),
];

/// Options of squeue.
pub const SQUEUE: &[Extra] = &[
    kept("array-unique", None, Nothing, "Show one row per array; Slurm adds separate job IDs"),
    CLUSTERS,
    kept("expand-patterns", None, Nothing, "Expand file name patterns, as slotd always does"),
    kept("federation", None, Nothing, "Use the federation"),
    kept("hide", None, Nothing, "Omit hidden partitions; there are none"),
    kept("local", None, Nothing, "Use only the local cluster"),
    kept("noconvert", None, Nothing, "Do not convert units; slotd's squeue never does"),
    kept("notme", None, Nothing, "Show jobs of other users; there are none"),
    kept("only-job-state", None, Nothing, "Query only job states"),
    kept("sibling", None, Nothing, "Include jobs on the federation's other clusters"),
];

/// Options of sacct.
pub const SACCT: &[Extra] = &[
    kept(
        "allclusters",
        Some('L'),
        Nothing,
        "Show jobs of all clusters of a database; use --clusters=all",
    ),
    CLUSTERS,
    kept("expand-patterns", None, Nothing, "Expand file name patterns, as slotd always does"),
    kept("federation", None, Nothing, "Use the federation"),
    kept("flags", Some('F'), Value, "Filter by how the job was scheduled"),
    kept("local", None, Nothing, "Use only the local cluster"),
    kept("use-local-uid", None, Nothing, "Show this host's user names, as slotd always does"),
    kept("whole-hetjob", None, Maybe, "Show all components of heterogeneous jobs; there are none"),
    refused("associations", Some('x'), Value, "there are no associations"),
    refused(
        "completion",
        Some('c'),
        Nothing,
        "there is no job completion log, only the accounting database",
    ),
    refused("file", Some('f'), Value, "accounting is stored in a database, not in a file"),
];

/// Options of sinfo.
pub const SINFO: &[Extra] = &[
    kept("all", Some('a'), Nothing, "Include hidden partitions; there are none"),
    CLUSTERS,
    kept("exact", Some('e'), Nothing, "Do not group nodes that differ; there is only one"),
    kept("federation", None, Nothing, "Use the federation"),
    kept("future", Some('F'), Nothing, "Include future nodes; there are none"),
    kept("hide", None, Nothing, "Omit hidden partitions; there are none"),
    kept("local", None, Nothing, "Use only the local cluster"),
    kept("responding", Some('r'), Nothing, "Show only responding nodes; the node always responds"),
];

/// Options of scancel.
pub const SCANCEL: &[Extra] = &[
    CLUSTERS,
    kept("cron", None, Nothing, "Confirm the cancellation of a scrontab job"),
    kept("ctld", Some('c'), Nothing, "Send the signal through the daemon, as slotd always does"),
    kept("hurry", Some('H'), Nothing, "Do not stage out burst buffer data"),
    kept("sibling", None, Value, "Include jobs on the federation's other clusters"),
];

/// Options of scontrol.
pub const SCONTROL: &[Extra] = &[
    kept("all", Some('a'), Nothing, "Include hidden partitions; there are none"),
    CLUSTERS,
    kept("federation", None, Nothing, "Use the federation"),
    kept("future", Some('F'), Nothing, "Include future nodes; there are none"),
    kept("hide", None, Nothing, "Omit hidden partitions; there are none"),
    kept("local", None, Nothing, "Use only the local cluster"),
    kept("sibling", None, Nothing, "Include jobs on the federation's other clusters"),
    kept("uid", Some('u'), Value, "Act as this user; you are the only one"),
];

/// Options of sstat.
pub const SSTAT: &[Extra] = &[THIS_CLUSTER];

/// Options of sdiag.
pub const SDIAG: &[Extra] =
    &[kept("all", Some('a'), Nothing, "Show everything, which is the default"), CLUSTERS];

/// Options of sprio.
pub const SPRIO: &[Extra] = &[
    CLUSTERS,
    kept("federation", None, Nothing, "Use the federation"),
    kept("local", None, Nothing, "Use only the local cluster"),
    kept("sibling", None, Nothing, "Include jobs on the federation's other clusters"),
];

/// Options of sshare.
pub const SSHARE: &[Extra] = &[
    kept("accounts", Some('A'), Value, "Show the shares of these accounts"),
    kept("all", Some('a'), Nothing, "Show the shares of all users; there is only one"),
    THIS_CLUSTER,
    kept("partition", Some('m'), Nothing, "Show the partitions of associations"),
    kept("users", Some('u'), Value, "Show the shares of these users"),
    kept("Users", Some('U'), Nothing, "Show only the shares of users"),
];

/// Options of sbcast.
pub const SBCAST: &[Extra] = &[
    kept("compress", Some('C'), Maybe, "Compress the file in transit; it is not sent anywhere"),
    kept("exclude", None, Value, "Exclude these libraries"),
    kept("fanout", Some('F'), Value, "Set the width of the message tree"),
    kept("send-libs", None, Maybe, "Copy libraries too; they are already on this host"),
    kept("size", Some('s'), Value, "Set the block size"),
    kept("timeout", Some('t'), Value, "Set the message timeout"),
];

/// Adds the options to the definition of a command.
pub fn add_to(command: Command, extras: &[Extra]) -> Command {
    extras.iter().fold(command, |command, extra| {
        let mut arg = Arg::new(extra.long).long(extra.long).help(extra.help);
        if let Some(short) = extra.short {
            arg = arg.short(short);
        }
        arg = match extra.takes {
            Takes::Nothing => arg.action(ArgAction::SetTrue),
            Takes::Value => arg.action(ArgAction::Set).value_name("VALUE"),
            Takes::Maybe => arg
                .action(ArgAction::Set)
                .value_name("VALUE")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(""),
        };
        command.arg(match extra.refusal {
            None if extra.acts => arg,
            None => arg.help_heading("Accepted for compatibility, without effect"),
            Some(_) => arg.hide(true),
        })
    })
}

/// Returns the error for an option that is refused.
pub fn refusal(extra: &Extra, exit: i32) -> Option<CliError> {
    let why = extra.refusal?;
    Some(CliError::error(exit, format!("--{} is not supported by slotd: {why}", extra.long)))
}
