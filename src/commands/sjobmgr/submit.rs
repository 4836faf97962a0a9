//! `sjobmgr submit`: a step for the manager that runs in this job, with srun's options.

use super::control::wait_for;
use super::{ask, connect_to, job_meant};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::{Done, output};
use crate::stepmgr::api::Event;
use crate::sys::user;
use serde::Serialize;

/// One step, as the manager's socket takes it.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct SubmitArgs {
    /// The name of the step
    #[arg(short = 'J', long = "job-name", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Number of processes
    #[arg(short = 'n', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ntasks: Option<u32>,
    /// CPUs of each process
    #[arg(short = 'c', long = "cpus-per-task", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<u32>,
    /// Memory: 500M, 8G
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    mem: Option<String>,
    /// Number of GPUs
    #[arg(short = 'G', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<u32>,
    /// Time limit: 90, 1:30:00
    #[arg(short = 't', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// Steps that have to end first: NAME, afterany:NAME, afternotok:fit-*
    #[arg(short = 'd', long = "dependency", value_name = "STEPS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    /// Steps with a higher one go first
    #[arg(long, allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    /// How often a step that fails is started again
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<u32>,
    /// The directory that it runs in, rather than this one
    #[arg(short = 'D', long = "chdir", value_name = "DIR")]
    dir: Option<String>,
    /// Read standard input from this file
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<String>,
    /// Write standard output to this file: %s is the step's name
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    /// Write standard error to this file, rather than where standard output goes
    #[arg(short = 'e', long = "error", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    /// Wait for its end, and end with its exit code
    #[arg(short = 'W', long)]
    #[serde(skip)]
    wait: bool,
    /// The job of the manager, where it is not this one
    #[arg(long, value_name = "JOB")]
    #[serde(skip)]
    jobid: Option<u32>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Prints the name of the step.
pub fn run(args: &SubmitArgs, origin: &Origin) -> Done {
    let job = job_meant(args.jobid, origin)?;
    let mut client = connect_to(job)?;
    if client.owner() != origin.uid {
        let owner = user::user_name(client.owner());
        let why = format!(
            "the manager of job {job} runs as user {owner}: the command was not sent to it"
        );
        return Err(CliError::error(1, why).hint("call sjobmgr as that user"));
    }
    let dir = origin.absolute(args.dir.as_deref().unwrap_or("."));
    let event = ask(&mut client, &SubmitArgs { dir: Some(dir), ..args.clone() })?;
    let Event::Accepted { name } = event else {
        return Err(CliError::error(
            1,
            format!("the manager's answer makes no sense here: {event:?}"),
        ));
    };
    output::print(&format!("{name}\n"))?;
    if !args.wait {
        return Ok(0);
    }
    wait_for(client, job, &[name])
}
