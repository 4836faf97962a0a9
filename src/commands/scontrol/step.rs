//! `scontrol update StepId=…`: the time limit of running steps.

use super::command::Command;
use super::session::{Session, bare};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::{Done, ask_job_list, ask_outcomes, changes};
use slotd_model::query::JobQuery;
use slotd_model::update::Update;
use slotd_model::{JobRef, Refusal, StepId};
use slotd_parse::error::shown;
use slotd_parse::ids;
use slotd_protocol::request::{ControlAction, Request};

/// The key that may follow `StepId`.
pub(super) const KEYS: [&str; 1] = ["TimeLimit"];

/// Whether these words of `update` are about a step. As in Slurm, a job comes first.
pub(super) fn is_update(words: &[String]) -> bool {
    let mut keys = words.iter().filter_map(|word| word.split_once('=')).map(|(key, _)| key);
    keys.find(|key| {
        ["job", "jobid", "jobs"].iter().any(|job| key.eq_ignore_ascii_case(job)) || is_step(key)
    })
    .is_some_and(is_step)
}

fn is_step(key: &str) -> bool {
    key.eq_ignore_ascii_case("StepId") || key.eq_ignore_ascii_case("Step")
}

/// Parses the words after `update`: `StepId=12.0 TimeLimit=10`.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub(super) fn read(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let (mut step, mut limit) = (None, None);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if is_step(key) {
            let named = ids::parse_job(value)
                .map_err(|_| aborted(format!("Invalid StepID parameter: {}", shown(word))))?;
            step = Some(named);
            continue;
        }
        match changes::read(key, value, origin) {
            Some(Ok(update @ (Update::TimeLimit(_) | Update::TimeLimitBy(_)))) => {
                limit = Some(update);
            }
            Some(Err(error)) if key.to_ascii_lowercase().starts_with("timel") => {
                return Err(aborted(error.to_string()).maybe_hint(error.hint));
            }
            _ => {
                let why = format!("Update of this parameter is not supported: {}", shown(word));
                return Err(aborted(why));
            }
        }
    }
    match (step, limit) {
        (Some(step), Some(limit)) => Ok(Command::UpdateStep { step, limit }),
        _ => Err(bare("No changes specified")),
    }
}

fn aborted(why: String) -> CliError {
    bare(why).and(Mark::Bare, "Request aborted")
}

impl Session<'_> {
    /// Changes the time limit of a step, or of all numbered steps of a job.
    pub(super) fn update_step(&self, step: &JobRef, limit: &Update) -> Done {
        let steps = match step.step {
            Some(_) => vec![step.clone()],
            None => running_steps(step)?,
        };
        if steps.is_empty() {
            return Err(failed(&Refusal::UnknownStep));
        }
        let action = ControlAction::Update(vec![limit.clone()]);
        let outcomes = ask_outcomes(&Request::Control { jobs: steps, action })?;
        match outcomes.into_iter().find_map(|outcome| outcome.result.err()) {
            Some(why) => Err(failed(&why)),
            None => Ok(0),
        }
    }
}

fn failed(why: &Refusal) -> CliError {
    let detail = why.detail().into_iter();
    let failed = detail.fold(CliError { exit: 1, ..CliError::default() }, |failed, line| {
        failed.and(Mark::Bare, line)
    });
    failed.and(Mark::Bare, format!("slurm_update error: {why}"))
}

fn running_steps(job: &JobRef) -> Result<Vec<JobRef>, CliError> {
    let query = JobQuery { without_paths: true, ..JobQuery::of(vec![job.clone()]) };
    let jobs = ask_job_list(&Request::Jobs(query))?.jobs;
    let of = |job: &slotd_model::view::JobView| {
        let steps = job.steps.iter().filter(|step| step.state.is_active());
        let numbered = steps.filter(|step| matches!(step.id, StepId::Num(_)));
        numbered.map(|step| JobRef { step: Some(step.id), ..job.own_ref() }).collect::<Vec<_>>()
    };
    Ok(jobs.iter().flat_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_step_is_named_anywhere_but_after_a_job() {
        for (line, is_step) in [
            ("StepId=12.0 TimeLimit=5", true),
            ("TimeLimit=5 step=12.0", true),
            ("JobId=12 StepId=12.0", false),
            ("StepId=12.0 JobId=12", true),
            ("step 12.0 TimeLimit=5", false),
        ] {
            assert_eq!(is_update(&words(line)), is_step, "{line}");
        }
    }

    /// The messages are those of Slurm 22.05.
    #[test]
    fn only_the_time_limit_of_a_step_can_be_changed() {
        let origin = lab(&[]);
        let read = |line: &str| read(&words(line), &origin);
        let step = ids::parse_job("12.0").unwrap();
        let limit = Update::TimeLimit(Some(300));
        assert_eq!(read("TimeLimit=5 StepId=12.0").ok(), Some(Command::UpdateStep { step, limit }));
        for (line, message) in [
            ("StepId=x TimeLimit=5", "Invalid StepID parameter: StepId=x"),
            ("StepId=12.0 Name=x", "Update of this parameter is not supported: Name=x"),
            ("StepId=12.0 JobId=12", "Update of this parameter is not supported: JobId=12"),
            ("StepId=12.0", "No changes specified"),
            ("StepId=12.0 TimeLimit=x", "Invalid TimeLimit value: x"),
        ] {
            let error = read(line).expect_err(line);
            assert_eq!(error.lines[0].1, message, "{line}");
        }
    }
}
