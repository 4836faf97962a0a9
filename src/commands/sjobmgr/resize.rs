//! `sjobmgr resize`: changes the size of a running job. It shrinks as its steps allow, and grows
//! immediately if the resources are free. Otherwise, a job is submitted that waits for them and
//! then expands it.

use super::own_job;
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::launch::submit_parsed;
use crate::commands::{Done, ask, ask_outcomes, now, output, refused, sbatch};
use slotd_model::query::JobQuery;
use slotd_model::request::MemRequest;
use slotd_model::update::Update;
use slotd_model::view::JobView;
use slotd_model::{JobId, JobRef, JobState, Refusal};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{ControlAction, Request};
use slotd_render::time;
use std::ffi::OsString;
use std::fmt::Write;

#[derive(Debug, clap::Args)]
pub struct ResizeArgs {
    /// The new number of CPUs, or the signed difference. Without CPUs and --mem, show pending
    /// changes
    #[arg(allow_hyphen_values = true)]
    cpus: Option<String>,
    /// Set the memory, or change it by a signed difference: 4G, +500M, -1G
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    mem: Option<String>,
    /// Resize this job [default: the current one]
    #[arg(long, value_name = "JOB")]
    jobid: Option<u32>,
}

/// Parses an amount, which is a number or a signed difference to `now`.
fn amount(
    text: &str,
    now: u64,
    what: &str,
    read: impl Fn(&str) -> Option<u64>,
) -> Result<u64, CliError> {
    let (sign, number) = match text.split_at_checked(1) {
        Some((sign @ ("+" | "-"), number)) => (sign, number),
        _ => ("", text),
    };
    let invalid =
        || CliError::error(2, format!("invalid {what}: {text:?}")).hint("for example 4, +4 or -2");
    let number = read(number).ok_or_else(invalid)?;
    let wanted = match sign {
        "+" => now.checked_add(number),
        "-" => now.checked_sub(number),
        _ => Some(number),
    };
    let words = || {
        CliError::error(
            1,
            format!("nothing would be left: the job has {now} {what} and {text} was requested"),
        )
    };
    wanted.filter(|wanted| *wanted > 0).ok_or_else(words)
}

/// Returns the job, and the pending jobs that will expand it.
fn fetch(id: JobId) -> Result<(JobView, Vec<JobView>), CliError> {
    let query = JobQuery { expected_starts: true, ..JobQuery::live() };
    let Answer::Jobs(list) = ask(&Request::Jobs(query), &[])?.0 else {
        return Err(CliError::error(1, "unexpected answer from the daemon: not a list of jobs"));
    };
    let expands =
        |job: &JobView| job.request.dependency.expands().is_some_and(|target| target.job == id);
    let (waiting, others): (Vec<_>, Vec<_>) = list.jobs.into_iter().partition(expands);
    let job = others.into_iter().find(|job| job.id == id && job.run.state != JobState::Pending);
    let job = job.ok_or_else(|| {
        CliError::error(1, format!("job {id} is not running"))
            .hint("change pending jobs with scontrol update")
    })?;
    Ok((job, waiting))
}

pub fn run(args: &ResizeArgs, origin: &Origin) -> Done {
    let id = args.jobid.map(JobId).or_else(|| own_job(origin)).ok_or_else(|| {
        CliError::error(1, "not inside a job").hint("specify the job to resize: --jobid=12")
    })?;
    let (job, _) = fetch(id)?;
    let has = job.tres;
    let count = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let cpus =
        args.cpus.as_ref().map(|text| amount(text, has.cpus.into(), "CPUs", count)).transpose()?;
    let mem = args
        .mem
        .as_ref()
        .map(|text| amount(text, has.mem_mb, "MB", slotd_parse::mem::megabytes))
        .transpose()?;
    let cpus = cpus.map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
    let keys = [cpus.map(Update::NumCpus), mem.map(Update::MinMemoryNode)];
    let is_more =
        [cpus.is_some_and(|cpus| cpus > has.cpus), mem.is_some_and(|mem| mem > has.mem_mb)];
    let keys = keys.into_iter().zip(is_more).filter_map(|(key, is_more)| Some((key?, is_more)));
    let (more, less): (Vec<_>, Vec<_>) = keys.partition(|(_, is_more)| *is_more);
    // Shrinking always works, while growing may have to wait.
    for keys in [less, more] {
        let keys: Vec<Update> = keys.into_iter().map(|(key, _)| key).collect();
        if !keys.is_empty() {
            change(&job, keys, origin)?;
        }
    }
    show(id, origin)
}

fn change(job: &JobView, keys: Vec<Update>, origin: &Origin) -> Result<(), CliError> {
    let control = Request::Control {
        jobs: vec![JobRef::job(job.id)],
        action: ControlAction::Update(keys.clone()),
    };
    let outcomes = ask_outcomes(&control)?;
    match outcomes.into_iter().next().map(|outcome| outcome.result) {
        Some(Err(Refusal::NoRoom { more, .. })) if more.cpus > 0 => {
            expand(job, more.cpus, more.mem_mb, origin)
        }
        Some(Err(why)) => Err(refused(&format!("cannot change the size of job {}", job.id), &why)),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// Submits a job that waits for the additional resources.
fn expand(job: &JobView, cpus: u32, mem_mb: u64, origin: &Origin) -> Result<(), CliError> {
    let words = [
        "sbatch".to_owned(),
        format!("--dependency=expand:{}", job.id),
        format!("--partition={}", job.partition),
        format!("--cpus-per-task={cpus}"),
        format!("--chdir={}", origin.cwd.display()),
        "--job-name=resize".to_owned(),
        "--wrap=true".to_owned(),
    ];
    let mut parsed = sbatch::parse(&words.map(OsString::from), origin, &sbatch::read)?;
    // `--mem=0` would mean all of the host's memory.
    parsed.request.mem = match job.request.mem {
        MemRequest::PerCpu(mb) => MemRequest::PerCpu(mb),
        _ if mem_mb == 0 => MemRequest::None,
        _ => MemRequest::PerNode(mem_mb),
    };
    let id = submit_parsed(parsed, "sjobmgr")?;
    output::print(&format!("Submitted batch job {id}\n")).map(drop)
}

/// Prints the size of the job, pending reductions, and pending expansions with their expected start
/// times.
fn show(id: JobId, origin: &Origin) -> Done {
    let (job, waiting) = fetch(id)?;
    let ctx = output::ctx(origin, now());
    let alloc = job.run.alloc.as_ref().map_or(job.tres, |alloc| alloc.tres);
    let mut out = format!("JobId={id} CPUs={} Mem={}M", alloc.cpus, alloc.mem_mb);
    // Writing to a string cannot fail.
    if job.run.shrinks {
        let _ = write!(out, " PendingCPUs={} PendingMem={}M", job.tres.cpus, job.tres.mem_mb);
    }
    out.push('\n');
    for one in waiting.iter().filter(|one| one.run.state == JobState::Pending) {
        let start = time::instant_or(one.expected_start, "N/A", &ctx);
        let (cpus, mem_mb, why) = (one.tres.cpus, one.tres.mem_mb, one.run.reason.name());
        let mem = if mem_mb > 0 { format!(" Mem=+{mem_mb}M") } else { String::new() };
        let _ = writeln!(
            out,
            "   ExpandedBy={} CPUs=+{cpus}{mem} Reason={why} StartTime={start}",
            one.id
        );
    }
    output::print(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_numbers_or_differences() {
        let cpus = |text| {
            amount(text, 4, "CPUs", |text| text.parse().ok()).map_err(|error| error.lines.len())
        };
        assert_eq!([cpus("+4"), cpus("-2"), cpus("3")], [Ok(8), Ok(2), Ok(3)]);
        for bad in ["0", "-4", "-9", "", "+", "x", "--1", "1.5"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }
}
