//! `scancel`. An unknown or finished job is no error of a cancellation, as in Slurm; of a signal it is one.

pub mod args;

use super::output::maybe_listed;
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::commands::pages::texts;
use crate::commands::scancel::args::{Scancel, parse};
use crate::model::view::JobView;
use crate::model::{ArrayRole, JobRef, Refusal};
use crate::protocol::answer::{Answer, Outcome};
use crate::protocol::request::{CancelAsk, CancelFilter, JobFilter, Request};
use crate::render::text::printable;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::ScancelOpts>, run, page: &texts::SCANCEL };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |scancel| carry_out(scancel, origin.uid))
}

fn carry_out(scancel: Scancel, uid: u32) -> Done {
    if let Some(user) = super::output::unknown_users(&scancel.users).first() {
        return Err(CliError::error(1, format!("Invalid user name: {user}")));
    }
    let filter = CancelFilter {
        users: super::output::user_names(&scancel.users),
        names: scancel.names.clone(),
        partitions: scancel.partitions.clone(),
        accounts: scancel.accounts.clone(),
        qos: scancel.qos.clone(),
        reservations: scancel.reservations.clone(),
        wckeys: scancel.wckeys.clone(),
        nodes: scancel.nodes.clone(),
        states: scancel.states.clone(),
    };
    let mut code = 0;
    let refs = if scancel.interactive { confirmed(&scancel.refs, &filter, &mut code)? } else { scancel.refs.clone() };
    // Without a job the filter alone would choose, and nobody has said yes to that.
    if scancel.interactive && refs.is_empty() {
        return Ok(code);
    }
    let named = !refs.is_empty();
    let filters = filter_words(&filter);
    let cancel = CancelAsk { refs, filter, signal: scancel.signal, batch: scancel.batch, full: scancel.full, uid };
    let outcomes = match ask(&Request::Cancel(cancel), &[])?.0 {
        Answer::Done(outcomes) => outcomes,
        other => return Err(unexpected(&other)),
    };
    if outcomes.is_empty() && !named && scancel.verbose > 0 {
        eprintln!("scancel: error: No active jobs match ALL job filters, including: {filters}");
    }
    for Outcome { target, result } in outcomes {
        let is_step = target.step.is_some();
        if scancel.verbose > 0 {
            match scancel.signal {
                None if is_step => eprintln!("scancel: Terminating step {target}"),
                None => eprintln!("scancel: Terminating job {target}"),
                Some(signal) => {
                    eprintln!("scancel: Signal {signal} to {} {target}", if is_step { "step" } else { "job" })
                }
            }
        }
        let Err(why) = result else { continue };
        let fatal = scancel.signal.is_some() || is_step;
        if (fatal || scancel.verbose > 0) && !scancel.quiet {
            let what = if is_step { "job step id" } else { "job id" };
            eprintln!("scancel: error: Kill job error on {what} {target}: {why}");
        }
        if fatal {
            code = 1;
        }
    }
    Ok(code)
}

/// The filter as Slurm tells of it (golden I-25): a blank stands after each word.
fn filter_words(filter: &CancelFilter) -> String {
    let states: Vec<String> = filter.states.iter().map(|state| state.name().to_owned()).collect();
    let lists = [
        ("account", &filter.accounts),
        ("job_name", &filter.names),
        ("nodelist", &filter.nodes),
        ("partition", &filter.partitions),
        ("qos", &filter.qos),
        ("reservation", &filter.reservations),
        ("state", &states),
        ("user_name", &filter.users),
        ("wckey", &filter.wckeys),
    ];
    lists.iter().filter(|(_, list)| !list.is_empty()).map(|(key, list)| format!("{key}={} ", list.join(","))).collect()
}

/// `-i`: the jobs that the user said yes to, of those that were named or, where none was, that pass the filter. A named
/// job that is over or unknown is an error here, as in Slurm (golden I-55).
fn confirmed(refs: &[JobRef], filter: &CancelFilter, code: &mut u8) -> Result<Vec<JobRef>, CliError> {
    let mut taken = Vec::new();
    if refs.is_empty() {
        for view in live(&[], filter)? {
            let job = match &view.role {
                ArrayRole::Rest { tasks, .. } => JobRef { job: view.id, tasks: Some(tasks.clone()), step: None },
                _ => JobRef::job(view.id),
            };
            taken.extend(says_yes(&job, &view).then_some(job));
        }
    }
    for job in refs {
        let whole = JobRef { step: None, ..job.clone() };
        match live(std::slice::from_ref(&whole), filter)?.first() {
            Some(view) => taken.extend(says_yes(job, view).then(|| job.clone())),
            // A job that is there but for the filter is passed over in silence.
            None if !live(std::slice::from_ref(&whole), &CancelFilter::default())?.is_empty() => {}
            None => {
                let what = if job.step.is_some() { "job step id" } else { "job id" };
                eprintln!("scancel: error: Kill job error on {what} {job}: {}", Refusal::UnknownJob);
                *code = 1;
            }
        }
    }
    Ok(taken)
}

/// The records that are not over, of these jobs (or of all), that pass the filter.
fn live(jobs: &[JobRef], filter: &CancelFilter) -> Result<Vec<JobView>, CliError> {
    let wanted = JobFilter {
        jobs: jobs.to_vec(),
        live_only: true,
        states: (!filter.states.is_empty()).then(|| filter.states.clone()),
        users: filter.users.clone(),
        names: filter.names.clone(),
        partitions: filter.partitions.clone(),
        accounts: filter.accounts.clone(),
        without_paths: true,
        without_steps: true,
        ..JobFilter::default()
    };
    let mut list = match ask(&Request::Jobs(wanted), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    // What the queue is not asked by.
    list.jobs.retain(|job| {
        maybe_listed(&filter.qos, job.request.qos.as_deref())
            && maybe_listed(&filter.reservations, job.request.reservation.as_deref())
            && maybe_listed(&filter.wckeys, job.request.wckey.as_deref())
            && (filter.nodes.is_empty() || job.run.state.is_active())
    });
    Ok(list.jobs)
}

/// Asks. Anything but a yes, the end of the input included, is a no.
fn says_yes(job: &JobRef, view: &JobView) -> bool {
    let what = if job.step.is_some() { "step_id" } else { "job_id" };
    let name = printable(view.request.name.as_str().into(), true);
    print!("Cancel {what}={job} name={name} partition={} [y/n]? ", view.partition);
    let _ = io::stdout().flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    answer.trim_start().starts_with(['y', 'Y'])
}
