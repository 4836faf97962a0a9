//! `scancel`: cancels or signals jobs and steps. As in Slurm, an unknown or ended job is not an
//! error when cancelling, but is one when signalling.

use super::output;
use super::{Done, Entry, ask_job_list, ask_outcomes, origin, outlive_own_job};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::headings::{DONE, WHICH};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{Names, hosts, names, one_name, value};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::view::JobView;
use slotd_model::{JobId, JobRef, JobState, Refusal};
use slotd_parse::error::shown;
use slotd_parse::states::StateFilter;
use slotd_protocol::answer::Outcome;
use slotd_protocol::request::{CancelAsk, Request};
use slotd_render::text::printable;
use std::collections::HashMap;
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Scancel>, run, page: &texts::SCANCEL };

const APPLET: Applet = Applet {
    extras: &[extra::SCANCEL],
    variables: || {
        vec![
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
        ]
    },
    examples: &[
        ("scancel 12 13_4", "cancel a job and an array task"),
        ("scancel --me -t PENDING", "cancel all your pending jobs"),
        ("scancel -s USR1 -b 12", "send a signal to the batch script"),
    ],
    ..Applet::new("scancel", "Cancel or signal jobs and steps")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Scancel {
        /// Print this help
        #[arg(long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Do not report jobs that have already ended
        #[arg(short = 'Q', long)]
        pub quiet: bool,
        /// Select jobs with this name
        #[arg(short, long, alias = "jobname", value_name = "NAME", value_parser = value(one_name), help_heading = WHICH)]
        pub name: Option<Names>,
        /// Select jobs of this user
        #[arg(short, long, value_name = "USER", value_parser = value(names), help_heading = WHICH)]
        pub user: Option<Names>,
        /// Select your own jobs
        #[arg(long, help_heading = WHICH)]
        pub me: bool,
        /// Select jobs in this state: PENDING, RUNNING or SUSPENDED
        #[arg(short = 't', long, alias = "states", value_name = "STATE", value_parser = value(states), help_heading = WHICH)]
        pub state: Option<States>,
        /// Select jobs in this partition
        #[arg(short, long, value_name = "NAME", value_parser = value(names), help_heading = WHICH)]
        pub partition: Option<Names>,
        /// Select jobs of this account
        #[arg(short = 'A', long, value_name = "NAME", value_parser = value(names), help_heading = WHICH)]
        pub account: Option<Names>,
        /// Select jobs with this quality of service
        #[arg(short, long, value_name = "NAME", value_parser = value(names), help_heading = WHICH)]
        pub qos: Option<Names>,
        /// Select jobs on these hosts
        #[arg(short = 'w', long, value_name = "HOSTS", value_parser = value(hosts), help_heading = WHICH)]
        pub nodelist: Option<Names>,
        /// Select jobs in this reservation
        #[arg(short = 'R', long, value_name = "NAME", value_parser = value(names), help_heading = WHICH)]
        pub reservation: Option<Names>,
        /// Select jobs with this workload characterization key
        #[arg(long, value_name = "KEY", value_parser = value(names), help_heading = WHICH)]
        pub wckey: Option<Names>,
        /// Send this signal instead of cancelling
        #[arg(short, long, value_name = "SIGNAL", value_parser = value(signal), help_heading = DONE)]
        pub signal: Option<i32>,
        /// Signal only the batch shell
        #[arg(short, long, help_heading = DONE)]
        pub batch: bool,
        /// Signal the batch shell as well as the steps
        #[arg(short, long, help_heading = DONE)]
        pub full: bool,
        /// Ask for confirmation before each job or step
        #[arg(short, long, help_heading = DONE)]
        pub interactive: bool,
        /// Jobs and steps: 12, 12_3, 12_[3-9], 12.0
        #[arg(value_name = "JOB", value_parser = value(jobs))]
        pub operands: Vec<Jobs>,
    }
}

type Jobs = Vec<JobRef>;
type States = Vec<JobState>;

/// Parses a list of jobs. `12,13` and `12 13` are equivalent; commas inside brackets belong to the
/// array.
fn jobs(text: &str) -> Result<Jobs, CliError> {
    slotd_parse::ids::parse_job_list(text)
        .map_err(|_| CliError::error(1, format!("Invalid job id {}", shown(text))))
}

/// Parses a signal. Like Slurm's, the message for an invalid signal has no prefix.
fn signal(text: &str) -> Result<i32, CliError> {
    slotd_parse::signal::parse(text)
        .map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()).maybe_hint(error.hint))
}

/// Parses states. Only the three states in which a job can be cancelled are accepted.
fn states(text: &str) -> Result<States, CliError> {
    let can_end = |state: &JobState| {
        matches!(state, JobState::Pending | JobState::Running | JobState::Suspended)
    };
    match slotd_parse::states::parse_list(text) {
        Ok(StateFilter::Some(states, held_for))
            if !states.is_empty() && held_for.is_empty() && states.iter().all(can_end) =>
        {
            Ok(states)
        }
        _ => Err(CliError::new(
            Mark::Bare,
            1,
            format!("Invalid job state specified: {}", shown(text)),
        )
        .and(Mark::Bare, "Valid job states are PENDING, RUNNING, and SUSPENDED")),
    }
}

impl Scancel {
    /// Returns the named jobs. If there are none, the filters select the jobs, and at least one
    /// filter is set.
    pub fn jobs(&self) -> Vec<JobRef> {
        self.operands.concat()
    }

    /// Returns the given filters under Slurm's names, with users as written. A filter's list may be
    /// empty.
    fn filters(&self) -> impl Iterator<Item = (&'static str, Names)> {
        let names = |states: &States| states.iter().map(|state| state.name().to_owned()).collect();
        let all = [
            ("account", self.account.clone()),
            ("job_name", self.name.clone()),
            ("nodelist", self.nodelist.clone()),
            ("partition", self.partition.clone()),
            ("qos", self.qos.clone()),
            ("reservation", self.reservation.clone()),
            ("state", self.state.as_ref().map(names)),
            ("user_name", self.user.clone()),
            ("wckey", self.wckey.clone()),
        ];
        all.into_iter().filter_map(|(name, list)| Some((name, list?)))
    }

    /// Returns the query for the filters, or `None` without filters.
    pub fn query(&self, host: &str) -> Option<JobQuery> {
        self.filters().next()?;
        let list = |names: &Option<Names>| names.clone().unwrap_or_default();
        let mut states = self.state.clone().or(JobQuery::live().states).unwrap_or_default();
        // Completing jobs count as running here.
        if states.contains(&JobState::Running) {
            states.push(JobState::Completing);
        }
        let mut query = JobQuery {
            users: list(&self.user),
            names: list(&self.name),
            partitions: list(&self.partition),
            accounts: list(&self.account),
            qos: list(&self.qos),
            reservations: list(&self.reservation),
            wckeys: list(&self.wckey),
            states: Some(states),
            ..JobQuery::default()
        };
        query.limit_to_nodes(&list(&self.nodelist), |name| output::is_node(name, host));
        // `-n ''` matches no job, and must never match all of them.
        if self.filters().any(|(_, list)| list.is_empty()) {
            query.match_nothing();
        }
        Some(query)
    }
}

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1 if an ID, a state or a signal is invalid, if a user
/// name is empty, or if nothing selects jobs.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Scancel, CliError> {
    let (mut args, _) = choices::parse::<Scancel>(APPLET, argv, origin)?;
    if args.user.as_ref().is_some_and(Vec::is_empty) {
        return Err(CliError::error(1, "Invalid user name: "));
    }
    if args.me {
        args.user.get_or_insert_default().push(origin.user.to_string());
    }
    if args.operands.is_empty() && args.filters().next().is_none() {
        return Err(CliError::error(1, "No job identification provided"));
    }
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    cancel(&parse(argv, &origin)?, origin.uid, &origin.host)
}

fn cancel(args: &Scancel, uid: u32, host: &str) -> Done {
    if let Some(user) = output::unknown_users(args.user.as_deref().unwrap_or_default()).first() {
        return Err(CliError::error(1, format!("Invalid user name: {user}")));
    }
    let filter = args.query(host);
    let mut code = 0;
    let jobs = if args.interactive {
        confirmed(args, filter.as_ref(), &mut code)?
    } else {
        // With -s alone, the answer to the request reports them.
        if filter.is_some() || (args.batch && args.signal.is_none()) {
            for job in unknown(args.jobs())? {
                code = report_unknown(args, &job);
            }
        }
        args.jobs()
    };
    // Without jobs, the query would cancel every job that matches the filter, but the user has
    // confirmed none.
    if args.interactive && jobs.is_empty() {
        return Ok(code);
    }
    let named = !jobs.is_empty();
    let query = JobQuery { jobs, ..filter.unwrap_or_default() };
    let cancel = CancelAsk { query, signal: args.signal, batch: args.batch, full: args.full, uid };
    outlive_own_job();
    let outcomes = ask_outcomes(&Request::Cancel(cancel))?;
    if outcomes.is_empty() && !named && args.common.verbose > 0 {
        report!(
            "scancel: error: No active jobs match ALL job filters, including: {}",
            filter_words(args)
        );
    }
    for Outcome { target, result } in outcomes {
        let is_step = target.step.is_some();
        if args.common.verbose > 0 {
            match args.signal {
                None if is_step => report!("scancel: Terminating step {target}"),
                None => report!("scancel: Terminating job {target}"),
                Some(signal) => {
                    report!(
                        "scancel: Signal {signal} to {} {target}",
                        if is_step { "step" } else { "job" }
                    )
                }
            }
        }
        let Err(why) = result else { continue };
        let fatal = args.signal.is_some() || is_step || matches!(why, Refusal::Unrecorded(_));
        if (fatal || args.common.verbose > 0) && !args.quiet {
            let what = if is_step { "job step id" } else { "job id" };
            report!("scancel: error: Kill job error on {what} {target}: {why}");
        }
        if fatal {
            code = 1;
        }
    }
    Ok(code)
}

/// Formats the filters as Slurm prints them, with a space after each.
fn filter_words(args: &Scancel) -> String {
    args.filters().map(|(key, list)| format!("{key}={} ", list.join(","))).collect()
}

/// Returns the jobs that the user confirmed (`-i`): of the named ones or, if none are named, of
/// those that match the filters. As in Slurm, a named job that is unknown or has ended is an error.
fn confirmed(
    args: &Scancel,
    filter: Option<&JobQuery>,
    code: &mut u8,
) -> Result<Vec<JobRef>, CliError> {
    let of =
        |jobs: Vec<JobRef>| JobQuery { jobs, ..filter.cloned().unwrap_or_else(JobQuery::live) };
    let refs = args.jobs();
    let mut taken = Vec::new();
    if refs.is_empty() {
        for view in live(of(Vec::new()))? {
            let job = view.own_ref();
            taken.extend(says_yes(&job, &view).then_some(job));
        }
    }
    for job in refs {
        match live(of(vec![JobRef { step: None, ..job.clone() }]))?.first() {
            Some(view) => taken.extend(says_yes(&job, view).then_some(job)),
            // If it exists but does not match the filters, it is silently skipped.
            None if unknown(vec![job.clone()])?.is_empty() => {}
            None => *code = report_unknown(args, &job),
        }
    }
    Ok(taken)
}

/// Returns those of the jobs that do not exist or have ended.
fn unknown(mut named: Vec<JobRef>) -> Result<Vec<JobRef>, CliError> {
    let jobs = named.iter().map(|job| JobRef { step: None, ..job.clone() }).collect();
    let views = live(JobQuery { jobs, ..JobQuery::live() })?;
    // A task is named by its own ID or by that of its array.
    let mut found: HashMap<JobId, Vec<&JobView>> = HashMap::new();
    for view in &views {
        for id in [Some(view.id), view.array_job_id()].into_iter().flatten() {
            found.entry(id).or_default().push(view);
        }
    }
    named.retain(|job| {
        let views = found.get(&job.job);
        !views.is_some_and(|views| views.iter().any(|view| names_record(job, view.id, &view.role)))
    });
    Ok(named)
}

/// Reports a named job that is unknown or has ended. Slurm does so with filters, `-b` and `-i`, but
/// not for plain IDs. Returns the exit code.
fn report_unknown(args: &Scancel, job: &JobRef) -> u8 {
    if !args.quiet {
        let what = if job.step.is_some() { "job step id" } else { "job id" };
        report!("scancel: error: Kill job error on {what} {job}: {}", Refusal::UnknownJob);
    }
    1
}

fn live(query: JobQuery) -> Result<Vec<JobView>, CliError> {
    let query = JobQuery { without_paths: true, without_steps: true, ..query };
    Ok(ask_job_list(&Request::Jobs(query))?.jobs)
}

/// Asks whether to cancel this job or step.
fn says_yes(job: &JobRef, view: &JobView) -> bool {
    let what = if job.step.is_some() { "step_id" } else { "job_id" };
    let name = printable(view.request.name.as_str().into(), true);
    output::says_yes(&format!(
        "Cancel {what}={job} name={name} partition={} [y/n]? ",
        view.partition
    ))
}
