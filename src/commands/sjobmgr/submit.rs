//! `sjobmgr submit`: submits a step to the manager of this job, with srun's options.

use super::control::wait_for;
use super::{ask, connect_to, job_meant};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::{Done, output};
use serde::Serialize;
use slotd_stepmgr::api::Event;
use slotd_sys::user;

/// A step in the format of the manager's socket.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
pub struct SubmitArgs {
    /// Set the name of the step
    #[arg(short = 'J', long = "job-name", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Start this many processes
    #[arg(short = 'n', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ntasks: Option<u32>,
    /// Request this many CPUs for each process
    #[arg(short = 'c', long = "cpus-per-task", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<u32>,
    /// Request this much memory: 500M, 8G
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    mem: Option<String>,
    /// Request this many GPUs
    #[arg(short = 'G', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<u32>,
    /// Set the time limit: 90, 1:30:00
    #[arg(short = 't', long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// Start after these steps: NAME, afterany:NAME, afternotok:fit-*
    #[arg(short = 'd', long = "dependency", value_name = "STEPS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    /// Set the priority; steps with a higher one start first
    #[arg(long, allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    /// Retry the step this many times if it fails
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<u32>,
    /// Run in this directory [default: the current one]
    #[arg(short = 'D', long = "chdir", value_name = "DIR")]
    dir: Option<String>,
    /// Read standard input from this file
    #[arg(short = 'i', long = "input", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin: Option<String>,
    /// Write standard output to this file; %s is the step's name
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    /// Write standard error to this file [default: that of standard output]
    #[arg(short = 'e', long = "error", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
    /// Wait until the step ends, and exit with its exit code
    #[arg(short = 'W', long)]
    #[serde(skip)]
    wait: bool,
    /// Talk to the manager of this job [default: the current one]
    #[arg(long, value_name = "JOB")]
    #[serde(skip)]
    jobid: Option<u32>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Submits the step and prints its name.
pub fn run(args: &SubmitArgs, origin: &Origin) -> Done {
    let job = job_meant(args.jobid, origin)?;
    let mut client = connect_to(job)?;
    if client.owner() != origin.uid {
        let owner = user::user_name(client.owner());
        let why = format!(
            "the manager of job {job} runs as user {owner}: the command was not sent to it"
        );
        return Err(CliError::error(1, why).hint("run sjobmgr as that user"));
    }
    let dir = origin.absolute(args.dir.as_deref().unwrap_or("."));
    let event = ask(&mut client, &SubmitArgs { dir: Some(dir), ..args.clone() })?;
    let Event::Accepted { name } = event else {
        return Err(CliError::error(1, format!("unexpected answer from the manager: {event:?}")));
    };
    output::print(&format!("{name}\n"))?;
    if !args.wait {
        return Ok(0);
    }
    wait_for(client, job, &[name])
}
