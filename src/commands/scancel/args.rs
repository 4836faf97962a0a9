//! `scancel`: cancel or signal jobs and steps.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Mark, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::lists::{hosts, words};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::model::{JobRef, JobState};
use crate::spec;
use crate::spec::error::shown;
use crate::spec::states::StateFilter;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "scancel",
    about: "Cancel or signal jobs and steps",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SCANCEL],
    variables: &[
        ("SCANCEL_ACCOUNT", "account"),
        ("SCANCEL_BATCH", "batch"),
        ("SCANCEL_CTLD", "ctld"),
        ("SCANCEL_CRON", "cron"),
        ("SCANCEL_FULL", "full"),
        ("SCANCEL_HURRY", "hurry"),
        ("SCANCEL_INTERACTIVE", "interactive"),
        ("SCANCEL_NAME", "name"),
        ("SCANCEL_PARTITION", "partition"),
        ("SCANCEL_QOS", "qos"),
        ("SCANCEL_STATE", "state"),
        ("SCANCEL_USER", "user"),
        ("SCANCEL_VERBOSE", "verbose"),
        ("SCANCEL_WCKEY", "wckey"),
        ("SLURM_CLUSTERS", "clusters"),
    ],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct ScancelOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(long)]
    pub help: bool,
    /// Jobs of this account
    #[arg(short = 'A', long, value_name = "NAME")]
    pub account: Option<String>,
    /// Signal the batch shell only
    #[arg(short, long)]
    pub batch: bool,
    /// Signal the batch shell too, not only the steps
    #[arg(short, long)]
    pub full: bool,
    /// Ask before each job or step
    #[arg(short, long)]
    pub interactive: bool,
    /// Your own jobs
    #[arg(long)]
    pub me: bool,
    /// Jobs of this name
    #[arg(short, long, alias = "jobname", value_name = "NAME")]
    pub name: Option<String>,
    /// Jobs on these hosts
    #[arg(short = 'w', long, value_name = "HOSTS")]
    pub nodelist: Option<String>,
    /// Jobs of this partition
    #[arg(short, long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Jobs of this quality of service
    #[arg(short, long, value_name = "NAME")]
    pub qos: Option<String>,
    /// Say nothing of jobs that have ended already
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// Jobs of this reservation
    #[arg(short = 'R', long, value_name = "NAME")]
    pub reservation: Option<String>,
    /// Send this signal in place of a cancellation
    #[arg(short, long, value_name = "SIGNAL")]
    pub signal: Option<String>,
    /// Jobs in this state: PENDING, RUNNING or SUSPENDED
    #[arg(short = 't', long, alias = "states", value_name = "STATE")]
    pub state: Option<String>,
    /// Jobs of this user
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Jobs with this key
    #[arg(long, value_name = "KEY")]
    pub wckey: Option<String>,
    /// Jobs and steps: 12, 12_3, 12_[3-9], 12.0
    #[arg(value_name = "JOB")]
    pub operands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scancel {
    /// What was named. Empty: every job that passes the filters, of which there is at least one.
    pub refs: Vec<JobRef>,
    /// User names or numbers; with `--me` the caller's own name.
    pub users: Vec<String>,
    pub names: Vec<String>,
    pub partitions: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub reservations: Vec<String>,
    pub wckeys: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    /// Empty: any.
    pub states: Vec<JobState>,
    /// `-s`. `None`: cancel.
    pub signal: Option<i32>,
    /// `-b`: only the batch shell.
    pub batch: bool,
    /// `-f`: the batch shell and all steps.
    pub full: bool,
    /// `-i`: ask before each.
    pub interactive: bool,
    pub quiet: bool,
    pub verbose: u8,
}

/// Makes a cancellation of a command line.
///
/// # Errors
/// Slurm's texts (golden I), exit code 1: a malformed id, state or signal, or nothing that says which jobs.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Scancel>, CliError> {
    let reader = match Reader::scan::<ScancelOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, choices) = reader.finish::<ScancelOpts>(origin, &[])?;
    let mut refs = Vec::new();
    for operand in &options.operands {
        // `12,13` and `12 13` are the same; commas inside brackets belong to the array.
        let found = spec::ids::parse_job_list(operand)
            .map_err(|_| CliError::error(1, format!("Invalid job id {}", shown(operand))))?;
        refs.extend(found);
    }
    let mut users = words(&options.user);
    if options.me {
        users.push(origin.user.clone());
    }
    let asked = Scancel {
        refs,
        users,
        names: words(&options.name),
        partitions: words(&options.partition),
        accounts: words(&options.account),
        qos: words(&options.qos),
        reservations: words(&options.reservation),
        wckeys: words(&options.wckey),
        nodes: hosts(&choices, "nodelist", &options.nodelist)?,
        states: states(options.state.as_deref())?,
        signal: match &options.signal {
            // Bare, as Slurm prints it (golden I-42).
            Some(text) => {
                Some(spec::signal::parse(text).map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()))?)
            }
            None => None,
        },
        batch: options.batch,
        full: options.full,
        interactive: options.interactive,
        quiet: options.quiet,
        verbose: options.common.verbose,
    };
    if asked.names_nothing() {
        return Err(CliError::error(1, "No job identification provided"));
    }
    Ok(Parsed::Run(asked))
}

impl Scancel {
    /// Whether nothing limits the jobs that are meant.
    fn names_nothing(&self) -> bool {
        let filters = [
            &self.users,
            &self.names,
            &self.partitions,
            &self.accounts,
            &self.qos,
            &self.reservations,
            &self.wckeys,
            &self.nodes,
        ];
        self.refs.is_empty() && self.states.is_empty() && filters.iter().all(|list| list.is_empty())
    }
}

/// The three states that can be cancelled (golden I-28).
fn states(text: Option<&str>) -> Result<Vec<JobState>, CliError> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let can_end = |state: &JobState| matches!(state, JobState::Pending | JobState::Running | JobState::Suspended);
    match spec::states::parse_list(text) {
        Ok(StateFilter::Some(states)) if !states.is_empty() && states.iter().all(can_end) => Ok(states),
        _ => Err(CliError::new(Mark::Bare, 1, format!("Invalid job state specified: {}", shown(text)))
            .and(Mark::Bare, "Valid job states are PENDING, RUNNING, and SUSPENDED")),
    }
}
