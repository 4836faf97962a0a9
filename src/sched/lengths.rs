//! Length limits for the strings of a submission or a changed job: those of Slurm's controller, and
//! no more than a launch can pass on.

use super::types::Submission;
use slotd_model::request::KeptText;
use slotd_model::{JobRequest, Refusal};

/// The longest script, in bytes (slurm.conf, `max_script_size`).
const SCRIPT: usize = 4 << 20;

/// The largest environment, in bytes. Linux starts no program with more than 6 MB of arguments and
/// environment.
const ENVIRONMENT: usize = 8 << 20;

/// The longest path, in bytes (`PATH_MAX`).
const PATH: usize = 4096;

/// The longest list of jobs or hosts, in bytes. A single command-line argument may be half as long.
const LIST: usize = 256 << 10;

/// The longest string of any other kind, in bytes.
const TEXT: usize = 1024;

/// Checks the lengths of a submission.
///
/// # Errors
/// Fails with [`Refusal::TooLong`].
pub(super) fn check(s: &Submission) -> Result<(), Refusal> {
    check_request(&s.request)?;
    check_script_len(s.texts.script.len())?;
    check_len("environment", s.texts.env.len(), ENVIRONMENT)
}

/// Checks the lengths of the strings of a request.
///
/// # Errors
/// Fails with [`Refusal::TooLong`].
pub(super) fn check_request(request: &JobRequest) -> Result<(), Refusal> {
    let JobRequest { name, partition, work_dir, std_out, std_err, std_in, .. } = request;
    let JobRequest { constraint, prefer, nodelist, exclude, dependency, .. } = request;
    check_text("name", Some(name), TEXT)?;
    check_text("partition", partition.as_ref(), TEXT)?;
    let kept = |text: KeptText| check_text(text.field(), text.of(request), TEXT);
    KeptText::ALL.into_iter().try_for_each(kept)?;
    let paths = [("std_out", std_out), ("std_err", std_err), ("std_in", std_in)];
    paths.into_iter().try_for_each(|(what, text)| check_text(what, text.as_ref(), PATH))?;
    check_text("work_dir", Some(work_dir), PATH)?;
    for (what, features) in [("constraint", constraint), ("prefer", prefer)] {
        check_text(what, features.as_ref().map(ToString::to_string).as_ref(), TEXT)?;
    }
    let hosts = [("nodelist", nodelist), ("exclude", exclude)];
    hosts
        .into_iter()
        .try_for_each(|(what, hosts)| check_len(what, hosts.to_string().len(), LIST))?;
    check_len("dependency", dependency.to_string().len(), LIST)
}

/// Checks the length of a job's script.
///
/// # Errors
/// Fails with [`Refusal::TooLong`].
pub(super) fn check_script_len(len: usize) -> Result<(), Refusal> {
    check_len("script", len, SCRIPT)
}

/// Checks the length of a step's name.
///
/// # Errors
/// Fails with [`Refusal::TooLong`].
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    check_len("name", name.len(), TEXT)
}

fn check_text(what: &str, text: Option<&String>, max: usize) -> Result<(), Refusal> {
    text.map_or(Ok(()), |text| check_len(what, text.len(), max))
}

fn check_len(what: &str, len: usize, max: usize) -> Result<(), Refusal> {
    if len > max { Err(Refusal::TooLong { what: what.to_owned(), len, max }) } else { Ok(()) }
}
