//! Options of Slurm's man pages that mean nothing on one host: kept and harmless, or refused by
//! name.
//!
//! They are part of the clap definitions, so that prefixes, help and completions know them, but no
//! command reads them. Options with a meaning here stand in the `Opts` structs of the commands.

use crate::args::error::CliError;
use crate::args::getopt::Takes;
use crate::parse::{self, SpecError};
use clap::{Arg, ArgAction, Command};

/// One option without a meaning here.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    pub long: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub help: &'static str,
    /// Why it is refused. `None`: kept.
    pub refusal: Option<&'static str>,
    /// What reads its value (the second argument is the option's spelling): nonsense is refused,
    /// also where a value that makes sense would have no effect.
    pub check: Option<Check>,
}

type Check = fn(&str, &str) -> Result<(), SpecError>;

const fn kept(long: &'static str, short: Option<char>, takes: Takes, help: &'static str) -> Extra {
    Extra { long, short, takes, help, refusal: None, check: None }
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
    Extra { long, short, takes, help: why, refusal: Some(why), check: None }
}

use Takes::{Maybe, Nothing, Value};

/// Of every command that asks or steers.
const CLUSTERS: Extra =
    checked("clusters", Some('M'), "Clusters to ask, of which there is one", |text, _| {
        parse::cluster::parse(text).map(drop)
    });

fn count(text: &str, option: &str) -> Result<(), SpecError> {
    parse::count::parse_or_zero(text, option).map(drop)
}

/// `COUNT[@TIME]`
fn switches(text: &str, option: &str) -> Result<(), SpecError> {
    let (switches, time) =
        text.split_once('@').map_or((text, None), |(switches, time)| (switches, Some(time)));
    count(switches, option)?;
    time.map_or(Ok(()), |time| parse::time::parse_limit_for(time, option).map(drop))
}

/// Shared by sbatch, srun and salloc.
pub const SUBMIT: &[Extra] = &[
    kept("acctg-freq", None, Value, "Interval of the accounting samples"),
    kept("bb", None, Value, "Burst buffer specification"),
    kept("bbf", None, Value, "File with a burst buffer specification"),
    kept("consolidate-segments", None, Nothing, "Place segments of nodes together"),
    kept("container", None, Value, "OCI container bundle"),
    kept("container-id", None, Value, "OCI container name"),
    checked("core-spec", Some('S'), "Cores kept for the system", count),
    checked("cpu-freq", None, "Frequency of the CPUs", |text, _| {
        parse::cpu_freq::parse(text).map(drop)
    }),
    kept("delay-boot", None, Value, "Delay the reboot of nodes"),
    kept("get-user-env", None, Maybe, "Take the login environment"),
    kept("gpu-freq", None, Value, "Frequency of the GPUs"),
    kept("gres-flags", None, Value, "How generic resources are bound"),
    kept("mcs-label", None, Value, "Multi-category security label"),
    kept("network", None, Value, "What the network must have"),
    kept("no-kill", Some('k'), Maybe, "Go on when a node fails"),
    kept("power", None, Value, "Power management"),
    checked("profile", None, "What the accounting samples", |text, _| {
        parse::profile::parse(text).map(drop)
    }),
    kept("resv-ports", None, Maybe, "Reserve communication ports"),
    kept("segment", None, Value, "Size of the segments of nodes"),
    kept("spread-job", None, Nothing, "Spread over many nodes"),
    kept("stepmgr", None, Nothing, "Manage steps on the node"),
    checked("switches", None, "Network switches at most", switches),
    checked("thread-spec", None, "Threads kept for the system", count),
    checked("tmp", None, "Temporary disk space", |text, option| {
        parse::mem::parse_mb_for(text, option).map(drop)
    }),
    kept("tres-bind", None, Value, "Bind tasks to trackable resources"),
    kept("use-min-nodes", None, Nothing, "Prefer fewer nodes"),
    refused("cluster-constraint", None, Value, "there are no other clusters"),
    refused("nodefile", Some('F'), Value, "there is one node, which --nodelist may name"),
    refused("reboot", None, Nothing, "a reboot would end every job of the host"),
];

/// Of sbatch alone.
pub const SBATCH: &[Extra] = &[
    kept("batch", None, Value, "Features of the node that runs the script"),
    checked("gpu-bind", None, "Bind tasks to GPUs", |text, _| {
        parse::gpu_bind::parse(text).map(drop)
    }),
    kept("ignore-pbs", None, Nothing, "Do not read #PBS lines, which slotd never does"),
    kept("oom-kill-step", None, Maybe, "Kill the whole step when memory runs out"),
    kept("wait-all-nodes", None, Value, "Start when all nodes are ready"),
    refused("scrontab", None, Nothing, "there is no scrontab"),
];

/// Of salloc alone.
pub const SALLOC: &[Extra] = &[
    checked("gpu-bind", None, "Bind tasks to GPUs", |text, _| {
        parse::gpu_bind::parse(text).map(drop)
    }),
    kept(
        "kill-command",
        Some('K'),
        Maybe,
        "End the command with its allocation, as slotd always does",
    ),
    kept("wait-all-nodes", None, Value, "Start when all nodes are ready"),
    kept("x11", None, Maybe, "Forward X11, which needs no forwarding on one host"),
];

/// Of srun alone.
pub const SRUN: &[Extra] = &[
    kept("msg-timeout", None, Value, "How long to wait for messages of the nodes"),
    kept("accel-bind", None, Value, "Bind tasks to accelerators"),
    kept("async", None, Nothing, "Submit the step in the background"),
    kept("bcast", None, Maybe, "Copy the program to the nodes, which is there already"),
    kept("bcast-exclude", None, Value, "Libraries that are not copied"),
    kept("compress", None, Maybe, "Compress what is copied"),
    kept("ctrl-comm-ifhn", None, Value, "Interface for the communication"),
    kept("debugger-test", None, Nothing, "For tests of debuggers"),
    kept(
        "disable-status",
        Some('X'),
        Nothing,
        "Send Ctrl-C to the tasks at once, as slotd always does",
    ),
    kept("interactive", None, Nothing, "Start the shell of an interactive job"),
    kept("oom-kill-step", None, Maybe, "Kill the whole step when memory runs out"),
    kept("preserve-env", Some('E'), Nothing, "Take the node and task counts of the environment"),
    kept("send-libs", None, Maybe, "Copy the libraries with the program"),
    kept("slurmd-debug", None, Value, "Messages of the node's daemon"),
    kept("threads", Some('T'), Value, "Threads of srun for the launch"),
    kept("treewidth", None, Value, "Width of the communication tree"),
    kept("x11", None, Maybe, "Forward X11, which needs no forwarding on one host"),
    refused("epilog", None, Value, "call the program from the command itself"),
    refused("external-launcher", None, Maybe, "tasks are started by slotd alone"),
    refused("het-group", None, Value, "there are no heterogeneous jobs on one host"),
    refused("mpi-combine", None, Value, "there are no heterogeneous jobs on one host"),
    refused("pack-group", None, Value, "there are no heterogeneous jobs on one host"),
    refused("no-allocate", Some('Z'), Nothing, "a step needs an allocation"),
    refused("prolog", None, Value, "call the program from the command itself"),
    refused("task-epilog", None, Value, "call the program from the command itself"),
    refused("task-prolog", None, Value, "call the program from the command itself"),
];

/// Of squeue.
pub const SQUEUE: &[Extra] = &[
    kept("array-unique", None, Nothing, "One row for an array, where Slurm adds ids of its own"),
    CLUSTERS,
    kept(
        "expand-patterns",
        None,
        Nothing,
        "Write out the patterns of file names, as slotd always does",
    ),
    kept("federation", None, Nothing, "Ask the federation"),
    kept("hide", None, Nothing, "Leave hidden partitions out, of which there are none"),
    kept("local", None, Nothing, "Ask the local cluster only"),
    kept("noconvert", None, Nothing, "Do not convert units, as squeue never does here"),
    kept("notme", None, Nothing, "Jobs of others, of whom there are none"),
    kept("only-job-state", None, Nothing, "Ask for states only"),
    kept(
        "priority",
        Some('P'),
        Nothing,
        "A row for each partition of a pending job, which has one",
    ),
    kept("sibling", None, Nothing, "Jobs of the federation's other clusters"),
];

/// Of sacct.
pub const SACCT: &[Extra] = &[
    kept("allclusters", Some('L'), Nothing, "All clusters, of which there is one"),
    CLUSTERS,
    kept(
        "expand-patterns",
        None,
        Nothing,
        "Write out the patterns of file names, as slotd always does",
    ),
    kept("federation", None, Nothing, "Ask the federation"),
    kept("flags", Some('F'), Value, "Filter by how the job was scheduled"),
    kept("local", None, Nothing, "Ask the local cluster only"),
    kept(
        "use-local-uid",
        None,
        Nothing,
        "Names of users as this host has them, as slotd always shows them",
    ),
    kept("whole-hetjob", None, Maybe, "All parts of heterogeneous jobs, of which there are none"),
    refused("associations", Some('x'), Value, "there are no associations"),
    refused(
        "completion",
        Some('c'),
        Nothing,
        "there is no job completion log beside the accounting",
    ),
    refused("file", Some('f'), Value, "the accounting is a database, not a file"),
];

/// Of sinfo.
pub const SINFO: &[Extra] = &[
    kept("all", Some('a'), Nothing, "Hidden partitions too, of which there are none"),
    CLUSTERS,
    kept("exact", Some('e'), Nothing, "Do not group nodes that differ, of which there is one"),
    kept("federation", None, Nothing, "Ask the federation"),
    kept("future", Some('F'), Nothing, "Future nodes too, of which there are none"),
    kept("hide", None, Nothing, "Leave hidden partitions out, of which there are none"),
    kept("local", None, Nothing, "Ask the local cluster only"),
    kept("responding", Some('r'), Nothing, "Only nodes that respond, as the one does"),
];

/// Of scancel.
pub const SCANCEL: &[Extra] = &[
    CLUSTERS,
    kept("cron", None, Nothing, "Confirm that a scrontab job is meant"),
    kept("ctld", Some('c'), Nothing, "Send by way of the daemon, as slotd always does"),
    kept("hurry", Some('H'), Nothing, "Leave the burst buffer's data behind"),
    kept("sibling", None, Value, "Jobs of the federation's other clusters"),
];

/// Of scontrol.
pub const SCONTROL: &[Extra] = &[
    kept("all", Some('a'), Nothing, "Hidden partitions too, of which there are none"),
    CLUSTERS,
    kept("federation", None, Nothing, "Ask the federation"),
    kept("future", Some('F'), Nothing, "Future nodes too, of which there are none"),
    kept("hide", None, Nothing, "Leave hidden partitions out, of which there are none"),
    kept("local", None, Nothing, "Ask the local cluster only"),
    kept("sibling", None, Nothing, "Jobs of the federation's other clusters"),
    kept("uid", Some('u'), Value, "Change things as this user, who is you"),
];

/// Of sstat.
pub const SSTAT: &[Extra] = &[CLUSTERS];

/// Of sdiag.
pub const SDIAG: &[Extra] =
    &[kept("all", Some('a'), Nothing, "Everything, which is the default"), CLUSTERS];

/// Of sprio.
pub const SPRIO: &[Extra] = &[
    CLUSTERS,
    kept("federation", None, Nothing, "Ask the federation"),
    kept("local", None, Nothing, "Ask the local cluster only"),
    kept("sibling", None, Nothing, "Jobs of the federation's other clusters"),
];

/// Of sshare.
pub const SSHARE: &[Extra] = &[
    kept("accounts", Some('A'), Value, "Shares of these accounts"),
    kept("all", Some('a'), Nothing, "Shares of all users, of whom there is one"),
    CLUSTERS,
    kept("partition", Some('m'), Nothing, "Partitions of the associations"),
    kept("users", Some('u'), Value, "Shares of these users"),
    kept("Users", Some('U'), Nothing, "Shares of users alone"),
];

/// Of sbcast.
pub const SBCAST: &[Extra] = &[
    kept("compress", Some('C'), Maybe, "Compress the file on its way, which it does not have"),
    kept("exclude", None, Value, "Libraries not to send"),
    kept("fanout", Some('F'), Value, "Width of the tree of messages"),
    kept("send-libs", None, Maybe, "Copy the libraries too, which are on this host"),
    kept("size", Some('s'), Value, "Size of the blocks"),
    kept("timeout", Some('t'), Value, "Time for a message"),
];

/// Adds the options to a command's definition.
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
            None => arg.help_heading("Kept, without effect on one host"),
            Some(_) => arg.hide(true),
        })
    })
}

/// The refusal of an option that is not only kept.
pub fn refusal(extra: &Extra, exit: i32) -> Option<CliError> {
    let why = extra.refusal?;
    Some(CliError::error(exit, format!("--{} is not supported by slotd: {why}", extra.long)))
}
