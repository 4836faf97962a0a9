//! `scancel`. An unknown or finished job is no error of a cancellation, as in Slurm; of a signal it is one.

use super::{Done, ask, origin, parsed, refused, unexpected};
use crate::cli::error::CliError;
use crate::cli::scancel::{Scancel, parse};
use crate::model::JobRef;
use crate::protocol::answer::{Answer, Outcome};
use crate::protocol::request::{CancelAsk, CancelFilter, JobFilter, Request};
use std::ffi::OsString;
use std::io::{self, BufRead, Write};

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
    let refs = if scancel.interactive { confirmed(&scancel.refs)? } else { scancel.refs.clone() };
    if scancel.interactive && refs.is_empty() && !scancel.refs.is_empty() {
        return Ok(0);
    }
    let named = !refs.is_empty();
    let cancel = CancelAsk { refs, filter, signal: scancel.signal, batch: scancel.batch, full: scancel.full, uid };
    let outcomes = match ask(&Request::Cancel(cancel), &[])?.0 {
        Answer::Done(outcomes) => outcomes,
        Answer::Refused(why) => return Err(refused(why)),
        other => return Err(unexpected(&other)),
    };
    if outcomes.is_empty() && !named && scancel.verbose > 0 {
        eprintln!("scancel: error: No active jobs match ALL job filters");
    }
    let mut code = 0;
    for Outcome { target, error, .. } in outcomes {
        let is_step = target.contains('.');
        if scancel.verbose > 0 {
            match scancel.signal {
                None if is_step => eprintln!("scancel: Terminating step {target}"),
                None => eprintln!("scancel: Terminating job {target}"),
                Some(signal) => {
                    eprintln!("scancel: Signal {signal} to {} {target}", if is_step { "step" } else { "job" })
                }
            }
        }
        let Some(error) = error else { continue };
        let fatal = scancel.signal.is_some() || is_step;
        if (fatal || scancel.verbose > 0) && !scancel.quiet {
            let what = if is_step { "job step id" } else { "job id" };
            eprintln!("scancel: error: Kill job error on {what} {target}: {error}");
        }
        if fatal {
            code = 1;
        }
    }
    Ok(code)
}

/// `-i`: the jobs that the user said yes to.
fn confirmed(refs: &[JobRef]) -> Result<Vec<JobRef>, CliError> {
    let mut taken = Vec::new();
    for job in refs {
        let filter = JobFilter { jobs: vec![job.clone()], ..JobFilter::default() };
        let Answer::Jobs(list) = ask(&Request::Jobs(filter), &[])?.0 else { continue };
        let Some(view) = list.jobs.first() else {
            taken.push(job.clone());
            continue;
        };
        print!("Cancel job_id={job} name={} partition={} [y/n]? ", view.request.name, view.partition);
        let _ = io::stdout().flush();
        let mut answer = String::new();
        let _ = io::stdin().lock().read_line(&mut answer);
        if answer.trim_start().starts_with(['y', 'Y']) {
            taken.push(job.clone());
        }
    }
    Ok(taken)
}
