//! The verbs of `scontrol` that act on jobs, and the parsing of job names and IDs.

use super::command::{Command, Target};
use super::session::{Session, bare, too_few, too_many};
use crate::args::error::{CliError, Mark};
use crate::client::connection::Connection;
use crate::commands::output;
use crate::commands::running::running;
use crate::commands::{
    Done, ask_job_list, ask_outcomes, known_names, outlive_own_job, paths, pids, unexpected,
};
use slotd_model::job::Hold;
use slotd_model::query::JobQuery;
use slotd_model::update::Update;
use slotd_model::view::JobView;
use slotd_model::{JobRef, JobState};
use slotd_parse::error::shown;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{ControlAction, Request};
use slotd_render::{show, time};

/// The call that Slurm names if a hold or a release fails.
pub(super) const SUSPEND_CALL: Option<&str> = Some("slurm_suspend");

/// Returns the ID in `jobid=12`, `job=12`, `jobs=12` or a plain `12`.
pub(super) fn id_text(word: &str) -> &str {
    match word.split_once('=') {
        Some((key, value))
            if ["job", "jobs", "jobid", "jobids"]
                .iter()
                .any(|name| key.eq_ignore_ascii_case(name)) =>
        {
            value
        }
        _ => word,
    }
}

fn one_job(word: &str) -> Result<JobRef, CliError> {
    slotd_parse::ids::parse_job(id_text(word)).map_err(|_| unknown_job(word))
}

fn unknown_job(word: &str) -> CliError {
    bare(format!("Invalid job id specified for job {}", shown(id_text(word))))
}

/// Parses a list of job IDs.
pub(super) fn job_list(words: &[String]) -> Result<Vec<JobRef>, CliError> {
    let mut refs = Vec::new();
    for word in words {
        refs.extend(
            slotd_parse::ids::parse_job_list(id_text(word)).map_err(|_| unknown_job(word))?,
        );
    }
    // These verbs act on jobs, not on single steps.
    match refs.iter().find(|named| named.step.is_some()) {
        Some(step) => Err(unknown_job(&step.to_string())),
        None => Ok(refs),
    }
}

/// Removes a leading word `job` (`hold job 12`).
pub(super) fn without_job_word(words: &[String]) -> &[String] {
    match words.split_first() {
        Some((first, rest))
            if ["job", "jobs", "jobid"].iter().any(|word| first.eq_ignore_ascii_case(word))
                && !rest.is_empty() =>
        {
            rest
        }
        _ => words,
    }
}

pub(super) fn jobs(keyword: &str, words: &[String]) -> Result<Vec<JobRef>, CliError> {
    let words = without_job_word(words);
    if words.is_empty() { Err(too_few(keyword)) } else { job_list(words) }
}

pub(super) fn targets(keyword: &str, words: &[String]) -> Result<Vec<Target>, CliError> {
    let words = without_job_word(words);
    if words.is_empty() {
        return Err(too_few(keyword));
    }
    words
        .iter()
        .map(|word| match word.split_once('=') {
            Some((key, name))
                if ["jobname", "name"].iter().any(|known| key.eq_ignore_ascii_case(known)) =>
            {
                Ok(Target::Name(name.to_owned()))
            }
            _ => job_list(std::slice::from_ref(word)).map(Target::Jobs),
        })
        .collect()
}

/// Parses the words after `requeue` and `requeuehold`, which hold the jobs like `hold`:
/// `Incomplete 12`, which is the same as `12`, and `State=SpecialExit 12`.
pub(super) fn requeued(
    keyword: &str,
    words: &[String],
    hold: Option<Hold>,
) -> Result<Command, CliError> {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    let Some((first, rest)) = words.split_first() else { return Err(too_few(keyword)) };
    let (words, hold) = match first.split_once('=') {
        Some((key, state)) if is(key, "state") => match state {
            state if is(state, "SpecialExit") => (rest, Some(Hold::SpecialExit)),
            other => return Err(bare(format!("Invalid job state specified: {}", shown(other)))),
        },
        _ if is(first, "incomplete") => (rest, hold),
        _ => (words, hold),
    };
    Ok(Command::Requeue(jobs(keyword, words)?, hold))
}

/// Returns the command of a verb that takes no words.
pub(super) fn alone(
    keyword: &str,
    words: &[String],
    command: Command,
) -> Result<Command, CliError> {
    if words.is_empty() { Ok(command) } else { Err(too_many(keyword)) }
}

pub(super) fn wait_job(words: &[String]) -> Result<Command, CliError> {
    match words {
        [] => Err(too_few("wait_job")),
        [job] => one_job(job).map(Command::WaitJob),
        _ => Err(too_many("wait_job")),
    }
}

pub(super) fn write(words: &[String]) -> Result<Command, CliError> {
    let Some((what, rest)) = words.split_first() else {
        return Err(too_few("write"));
    };
    if !what.eq_ignore_ascii_case("batch_script") {
        return Err(bare(format!("invalid entity:{} for keyword:write", shown(what))));
    }
    match rest {
        [] => Err(too_few("write")),
        [job] => Ok(Command::WriteScript { job: one_job(job)?, file: None }),
        [job, file] => Ok(Command::WriteScript { job: one_job(job)?, file: Some(file.clone()) }),
        _ => Err(too_many("write")),
    }
}

pub(super) fn notify(words: &[String]) -> Result<Command, CliError> {
    match words.split_first() {
        Some((job, message)) if !message.is_empty() => {
            Ok(Command::Notify { job: one_job(job)?, message: message.join(" ") })
        }
        _ => Err(too_few("notify")),
    }
}

/// Parses the words after `listpids`. A node after the job is ignored, since there is only one.
pub(super) fn list_pids(words: &[String]) -> Result<Command, CliError> {
    match words {
        [] => Ok(Command::ListPids(None)),
        [job] | [job, _] => Ok(Command::ListPids(Some(one_job(job)?))),
        _ => Err(too_many("listpids")),
    }
}

/// Parses the word after `pidinfo`. Like Slurm, it treats a word that is not a number as a process
/// that does not exist.
pub(super) fn pid_info(words: &[String]) -> Result<Command, CliError> {
    match words {
        [] => Err(bare("missing argument for keyword:pidinfo")),
        [pid] => Ok(Command::PidInfo(pid.parse().unwrap_or(0))),
        _ => Err(too_many("pidinfo")),
    }
}

/// The time limit that Slurm assumes for a job without one.
const NO_LIMIT_SECS: u64 = 365 * 86_400;

impl Session<'_> {
    /// Prints a line for each job whose processes are being terminated (`completing`).
    pub(super) fn completing(&self) -> Done {
        let query = JobQuery { states: Some(vec![JobState::Completing]), ..JobQuery::default() };
        let list = ask_job_list(&Request::Jobs(query))?;
        let node = &self.origin.host;
        let line = |job: &JobView| {
            let end = job.run.end.unwrap_or(list.now);
            let (ended, since) =
                (time::iso(end, &self.origin.tz), time::long(list.now.since(end).as_secs()));
            format!(
                "JobId={} EndTime={ended} CompletingTime={since} Nodes(COMPLETING)={node}\n",
                job.own_ref()
            )
        };
        output::print(&list.jobs.iter().map(line).collect::<String>())
    }

    /// Prints the job of a process and when that job ends (`pidinfo`).
    pub(super) fn pid_info(&self, pid: i32) -> Done {
        let list = self.query(&[])?;
        let running: Vec<_> =
            list.jobs.iter().filter(|job| job.run.state.is_active()).map(|job| job.id).collect();
        let rows = pids::of_jobs(paths()?.root(), &running);
        let Some(job) = rows.iter().find(|row| row.pid == pid).map(|row| row.job) else {
            return Err(bare("Failed to locate job for requested pid"));
        };
        let view = list.jobs.iter().find(|view| view.id == job);
        let start = view.and_then(|view| view.run.start).unwrap_or(list.now);
        let limit = view.and_then(|view| view.request.time_limit_secs).unwrap_or(NO_LIMIT_SECS);
        let end = start.plus_secs(limit);
        let left = end.since(list.now).as_secs();
        let date = time::date(end, &self.origin.tz);
        output::print(&format!(
            "Slurm JobId={job} ends at {date}\nJob remaining time is {left} seconds\n"
        ))
    }

    /// Prints the running processes (`listpids`).
    pub(super) fn list_pids(&self, job: Option<&JobRef>) -> Done {
        let jobs = self.query(&job.cloned().into_iter().collect::<Vec<_>>())?.jobs;
        let running: Vec<_> =
            jobs.iter().filter(|job| job.run.state.is_active()).map(|job| job.id).collect();
        let mut rows = pids::of_jobs(paths()?.root(), &running);
        if let Some(step) = job.and_then(|job| job.step) {
            rows.retain(|row| row.step == step.to_string());
        }
        match job {
            Some(job) if rows.is_empty() => {
                Err(bare(format!("No job steps are running for job {job}")))
            }
            _ => output::print(&pids::table(&rows)),
        }
    }

    /// Reports whether the job has its node, which is ready as soon as the job starts (`wait_job`).
    /// Slurm does not wait for a pending job either.
    pub(super) fn wait_job(&self, job: &JobRef) -> Done {
        let query = JobQuery {
            without_paths: true,
            without_steps: true,
            ..JobQuery::of(vec![job.clone()])
        };
        let list = ask_job_list(&Request::Jobs(query))?;
        if list.jobs.is_empty() {
            return Err(CliError::new(Mark::Plain, 1, format!("Problem running job {job}")));
        }
        if list
            .jobs
            .iter()
            .any(|found| matches!(found.run.state, JobState::Running | JobState::Suspended))
        {
            report!("scontrol: Nodes are ready for job {job}");
            return Ok(0);
        }
        Err(CliError::new(Mark::Plain, 1, format!("Job {job} no longer running")))
    }

    /// Resolves the targets to jobs, looking up names.
    pub(super) fn jobs_of(&self, targets: &[Target]) -> Result<Vec<JobRef>, CliError> {
        let mut refs = Vec::new();
        for target in targets {
            match target {
                Target::Jobs(jobs) => refs.extend(jobs.iter().cloned()),
                Target::Name(name) => {
                    let query = JobQuery { names: vec![name.clone()], ..JobQuery::live() };
                    let found = ask_job_list(&Request::Jobs(query))?.jobs;
                    if found.is_empty() {
                        return Err(CliError::error(1, format!("No jobs with name '{name}'")));
                    }
                    refs.extend(found.iter().map(|job| job.own_ref()));
                }
            }
        }
        Ok(refs)
    }

    /// Applies an action to each job. Each failure is reported, and a single one makes the exit
    /// code 1.
    pub(super) fn control(
        &self,
        jobs: &[JobRef],
        action: ControlAction,
        call: Option<&str>,
    ) -> Done {
        if matches!(action, ControlAction::Requeue(_)) {
            outlive_own_job();
        }
        let outcomes = ask_outcomes(&Request::Control { jobs: jobs.to_vec(), action })?;
        let mut failed = CliError { exit: 1, ..CliError::default() };
        for outcome in outcomes {
            let Err(why) = outcome.result else { continue };
            let own = why.detail().into_iter().chain([format!("{why} for job {}", outcome.target)]);
            let lines = own.chain(call.map(|call| format!("{call} error: {why}")));
            failed = lines
                .fold(failed, |failed, line| failed.and(Mark::Bare, line))
                .maybe_hint(known_names(&why));
        }
        if failed.lines.is_empty() { Ok(0) } else { Err(failed) }
    }

    pub(super) fn update(&self, target: &Target, updates: &[Update]) -> Done {
        let jobs = self.jobs_of(std::slice::from_ref(target))?;
        self.control(&jobs, ControlAction::Update(updates.to_vec()), None)
    }

    pub(super) fn ping(&self) -> Done {
        let is_up = running(&paths()?).is_some();
        output::print(&show::ping(is_up, &self.ctx(crate::commands::now())))?;
        Ok(u8::from(!is_up))
    }
}

/// Writes the script of a job to a file or to standard output (`write batch_script`).
pub(super) fn write_script(job: &JobRef, file: Option<&str>) -> Done {
    let script = match Connection::open(&paths()?)?.ask(&Request::BatchScript(job.job), &[])? {
        (Answer::Script, script) => script,
        (Answer::Refused(why), _) => {
            return Err(bare(format!("job script retrieval failed: {why}")));
        }
        (other, _) => return Err(unexpected(&other)),
    };
    if file == Some("-") {
        return output::print_bytes(&script);
    }
    let path = file.map_or_else(|| format!("slurm-{job}.sh"), str::to_owned);
    std::fs::write(&path, &script)
        .map_err(|e| CliError::error(1, format!("cannot write {path}: {e}")))?;
    output::print(&format!("batch script for job {job} written to {path}\n"))
}
