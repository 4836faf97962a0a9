//! `scontrol`: show and change jobs.

pub mod args;
pub mod show_args;
pub mod update_args;

use super::output::{self, ctx};
use super::pids;
use super::{Done, Entry, ask, origin, paths, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::client::connection::{ClientError, Connection, reopen};
use crate::commands::pages::texts;
use crate::commands::scontrol::args::{Command, Scontrol, Target, command, parse};
use crate::commands::scontrol::show_args::Show;
use crate::model::query::{JobQuery, names_record};
use crate::model::update::Update;
use crate::model::view::{JobList, JobView, NodeView};
use crate::model::{ArrayRole, JobRef, Refusal};
use crate::protocol::answer::Answer;
use crate::protocol::frame::FrameError;
use crate::protocol::request::{ControlAction, Request};
use crate::render::{json, show};
use crate::spec::hostlist;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::ScontrolOpts>, run, page: &texts::SCONTROL };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let scontrol = parse(argv, &origin)?;
    let quiet = scontrol.quiet;
    let done = Session { scontrol, origin: &origin }.carry_out();
    match done {
        Err(error) if quiet => Ok(u8::try_from(error.exit).unwrap_or(1)),
        done => done,
    }
}

struct Session<'a> {
    scontrol: Scontrol,
    origin: &'a Origin,
}

/// An error line without `scontrol: error:`, as Slurm prints most of scontrol's.
fn bare(line: impl Into<String>) -> CliError {
    CliError::new(Mark::Bare, 1, line)
}

impl Session<'_> {
    fn carry_out(&self) -> Done {
        self.command(&self.scontrol.command)
    }

    fn command(&self, what: &Command) -> Done {
        match what {
            Command::Show(what) => self.show(what),
            Command::Hold(targets) | Command::UserHold(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Hold, Some("slurm_suspend"))
            }
            Command::Release(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Release, Some("slurm_suspend"))
            }
            Command::Requeue(jobs) => self.control(jobs, ControlAction::Requeue, None),
            Command::RequeueHold(jobs) => self.control(jobs, ControlAction::RequeueHold, None),
            Command::Suspend(targets) => self.control(&self.jobs_of(targets)?, ControlAction::Suspend, None),
            Command::Resume(targets) => self.control(&self.jobs_of(targets)?, ControlAction::Resume, None),
            Command::Top(jobs) => self.control(jobs, ControlAction::Top, None),
            Command::Update { target, updates } => self.update(target, updates),
            Command::WriteScript { job, file } => write_script(job, file.as_deref()),
            Command::Notify { job, message } => {
                let tell = ControlAction::Notify(message.clone());
                self.control(std::slice::from_ref(job), tell, None)
            }
            Command::ListPids(job) => self.list_pids(job.as_ref()),
            Command::WaitJob(job) => self.wait_job(job),
            Command::Ping => self.ping(),
            Command::Version => output::print(&format!("slurm-wlm {}\n", crate::render::ctx::VERSION)),
            Command::Interactive => self.interactive(),
        }
    }

    /// Commands from standard input, a line each, until `quit` or the end. Slurm prompts whoever writes them, and shows
    /// what it read where no terminal does (golden H-39, H-40).
    fn interactive(&self) -> Done {
        let stdin = io::stdin();
        let is_terminal = stdin.is_terminal();
        let mut code = 0;
        loop {
            output::print("scontrol: ")?;
            let mut line = String::new();
            match stdin.lock().read_line(&mut line) {
                Ok(0) | Err(_) => {
                    output::print("\n")?;
                    return Ok(code);
                }
                Ok(_) => {}
            }
            if !is_terminal {
                output::print(&format!("{}\n", line.trim_end_matches('\n')))?;
            }
            let Some(words) = shlex::split(&line) else {
                eprintln!("scontrol: error: unbalanced quotes: {}", line.trim_end());
                code = 1;
                continue;
            };
            match words.first().map(String::as_str) {
                None => continue,
                Some("quit" | "exit" | "q" | "e") => return Ok(code),
                Some(_) => {}
            }
            match command(&words, self.origin).and_then(|command| self.command(&command)) {
                Ok(0) => {}
                Ok(other) => code = other,
                Err(error) => {
                    if !self.scontrol.quiet {
                        eprint!("{}", error.text("scontrol"));
                    }
                    code = 1;
                }
            }
        }
    }

    /// Something that is not there: Slurm says so on standard output (golden H-15, H-16, H-20, H-23).
    fn not_found(&self, what: &str) -> Done {
        if !self.scontrol.quiet {
            output::print(&format!("{what} not found\n"))?;
        }
        Ok(1)
    }

    /// `listpids`: golden H-49.
    fn list_pids(&self, job: Option<&JobRef>) -> Done {
        let jobs = self.query(&job.cloned().into_iter().collect::<Vec<_>>())?.jobs;
        let running: Vec<_> = jobs.iter().filter(|job| job.run.state.is_active()).map(|job| job.id).collect();
        let mut rows = pids::of_jobs(super::paths()?.root(), &running);
        if let Some(step) = job.and_then(|job| job.step) {
            rows.retain(|row| row.step == step.to_string());
        }
        match job {
            Some(job) if rows.is_empty() => Err(bare(format!("No job steps are running for job {job}"))),
            _ => output::print(&pids::table(&rows)),
        }
    }

    /// `wait_job`: until the job has its node.
    fn wait_job(&self, job: &JobRef) -> Done {
        let paths = paths()?;
        let over = || Err(CliError::error(1, format!("Job {job} is over: no nodes will be ready for it")));
        let mut conn = Connection::open(&paths)?;
        conn.send(&Request::WaitStart(job.job), &[])?;
        loop {
            match conn.receive() {
                Ok((Answer::Granted { .. }, _)) => {
                    eprintln!("scontrol: Nodes are ready for job {job}");
                    return Ok(0);
                }
                Ok((Answer::Ended { .. }, _)) => return over(),
                Ok((Answer::Refused(why), _)) => return Err(bare(format!("slurm_load_jobs error: {why}"))),
                Ok((other, _)) => return Err(unexpected(&other)),
                Err(ClientError::Broken(FrameError::Closed | FrameError::Io(_))) => {
                    conn = reopen(&paths, None)?;
                    conn.send(&Request::WaitStart(job.job), &[])?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn query(&self, jobs: &[JobRef]) -> Result<JobList, CliError> {
        let query = JobQuery { expected_starts: true, ..JobQuery::of(jobs.to_vec()) };
        match ask(&Request::Jobs(query), &[])?.0 {
            Answer::Jobs(list) => Ok(list),
            other => Err(unexpected(&other)),
        }
    }

    fn node(&self) -> Result<NodeView, CliError> {
        match ask(&Request::Node, &[])?.0 {
            Answer::Node(node) => Ok(node),
            other => Err(unexpected(&other)),
        }
    }

    /// Jobs by number, and by name where a name was given.
    fn jobs_of(&self, targets: &[Target]) -> Result<Vec<JobRef>, CliError> {
        let mut refs = Vec::new();
        for target in targets {
            match target {
                Target::Jobs(jobs) => refs.extend(jobs.iter().cloned()),
                Target::Name(name) => {
                    let query = JobQuery { names: vec![name.clone()], ..JobQuery::live() };
                    let found = match ask(&Request::Jobs(query), &[])?.0 {
                        Answer::Jobs(list) => list.jobs,
                        other => return Err(unexpected(&other)),
                    };
                    if found.is_empty() {
                        return Err(CliError::error(1, format!("No jobs with name '{name}'")));
                    }
                    refs.extend(found.iter().map(|job| job.own_ref()));
                }
            }
        }
        Ok(refs)
    }

    /// Does something to each job; each failure is told, and one suffices for the exit code.
    fn control(&self, jobs: &[JobRef], action: ControlAction, call: Option<&str>) -> Done {
        let outcomes = match ask(&Request::Control { jobs: jobs.to_vec(), action }, &[])?.0 {
            Answer::Done(outcomes) => outcomes,
            other => return Err(unexpected(&other)),
        };
        let mut code = 0;
        for outcome in outcomes {
            let Err(why) = outcome.result else { continue };
            code = 1;
            if self.scontrol.quiet {
                continue;
            }
            if let Some(line) = why.detail() {
                eprintln!("{line}");
            }
            eprintln!("{why} for job {}", outcome.target);
            if let Some(call) = call {
                eprintln!("{call} error: {why}");
            }
        }
        Ok(code)
    }

    fn update(&self, target: &Target, updates: &[Update]) -> Done {
        let jobs = self.jobs_of(std::slice::from_ref(target))?;
        self.control(&jobs, ControlAction::Update(updates.to_vec()), None)
    }

    fn ping(&self) -> Done {
        let is_up = ask(&Request::Ping, &[]).is_ok();
        let ctx = ctx(self.origin, super::now());
        output::print(&show::ping(is_up, &ctx))?;
        Ok(u8::from(!is_up))
    }

    fn show(&self, what: &Show) -> Done {
        let (one_line, detail) = (self.scontrol.oneliner, self.scontrol.details);
        let is_data = matches!(
            what,
            Show::Jobs(_) | Show::Steps(_) | Show::Node(_) | Show::Partition(_) | Show::Config | Show::Nothing(_)
        );
        if self.scontrol.machine.is_some() && !is_data {
            let known = "job, step, node, partition and config";
            return Err(bare(format!("--json and --yaml are for show of {known}: leave them out here")));
        }
        match what {
            Show::Jobs(refs) => self.show_jobs(refs.as_deref()),
            Show::Steps(refs) => self.show_steps(refs.as_deref()),
            Show::Node(name) => {
                let node = self.node()?;
                let ctx = ctx(self.origin, node.now);
                if let Some(name) = name.as_ref().filter(|name| !output::is_node(name, &node.host.name)) {
                    return self.not_found(&format!("Node {name}"));
                }
                if let Some(machine) = self.scontrol.machine {
                    return output::print_machine(&json::nodes(&node, &ctx), machine);
                }
                output::print(&show::node(&node, one_line, detail, &ctx))
            }
            Show::Partition(name) => {
                let node = self.node()?;
                let ctx = ctx(self.origin, node.now);
                if let Some(machine) = self.scontrol.machine {
                    return output::print_machine(&json::partitions(&node, &ctx), machine);
                }
                match name {
                    None => output::print(&show::partitions(&node, one_line, &ctx)),
                    Some(name) => match node.partitions.iter().find(|p| p.partition.name == *name) {
                        Some(found) => output::print(&show::partition(&node, found, one_line, &ctx)),
                        None => self.not_found(&format!("Partition {name}")),
                    },
                }
            }
            Show::Config => {
                let pairs = match ask(&Request::Config, &[])?.0 {
                    Answer::Config(pairs) => pairs,
                    other => return Err(unexpected(&other)),
                };
                match self.scontrol.machine {
                    Some(machine) => output::print_machine(&json::config(&pairs), machine),
                    None => output::print(&show::config(&pairs, &ctx(self.origin, super::now()))),
                }
            }
            Show::Hostnames(list) => {
                if list.is_empty() {
                    eprintln!("scontrol: error: host list is empty");
                    return Ok(0);
                }
                match hostlist::expand(list) {
                    Ok(names) => output::print(&show::hostnames(&names)),
                    Err(error) => {
                        eprintln!("{error}");
                        Ok(0)
                    }
                }
            }
            Show::Hostlist { names, sorted } => {
                let mut names = names.clone();
                if *sorted {
                    names.sort();
                }
                output::print(&show::hostlist(&names))
            }
            Show::Daemons => output::print("slurmctld slurmd\n"),
            Show::Aliases => output::print(&format!("{}\n", self.origin.host)),
            Show::Nothing(what) => match self.scontrol.machine {
                Some(machine) => output::print_machine(&json::none_of(what), machine),
                None => nothing(what),
            },
        }
    }

    fn show_jobs(&self, refs: Option<&[JobRef]>) -> Done {
        let wanted = refs.unwrap_or_default();
        let mut list = self.query(wanted)?;
        if let (true, Some(first)) = (list.jobs.is_empty(), wanted.first()) {
            // A task of a job that is no array, or not of this array.
            return match list.unknown.contains(&first.job) {
                true => Err(bare(format!("slurm_load_jobs error: {}", Refusal::UnknownJob))),
                false => self.not_found(&format!("Job {first}")),
            };
        }
        for job in &mut list.jobs {
            narrow(job, wanted);
        }
        let ctx = ctx(self.origin, list.now);
        if let Some(machine) = self.scontrol.machine {
            return output::print_machine(&json::jobs(&list.jobs, &ctx), machine);
        }
        output::print(&show::jobs(&list.jobs, self.scontrol.oneliner, self.scontrol.details, &ctx))
    }

    fn show_steps(&self, refs: Option<&[JobRef]>) -> Done {
        let list = self.query(refs.unwrap_or_default())?;
        let ctx = ctx(self.origin, list.now);
        let mut text = String::new();
        let mut data = Vec::new();
        for job in &list.jobs {
            let named = refs.unwrap_or_default().iter().filter(|named| names_record(named, job.id, &job.role));
            let steps: Vec<_> = named.map(|named| named.step).collect();
            for step in if steps.is_empty() { vec![None] } else { steps } {
                text.push_str(&show::steps(job, step, self.scontrol.oneliner, &ctx));
                data.extend(show::steps_shown(job, step).map(|step| (job, step)));
            }
        }
        if let Some(machine) = self.scontrol.machine {
            return match refs {
                Some([named, ..]) if data.is_empty() => Err(bare(format!("Job step {named} not found"))),
                _ => output::print_machine(&json::steps(&data, &ctx), machine),
            };
        }
        match refs {
            Some([named, ..]) if text.is_empty() => self.not_found(&format!("Job step {named}")),
            None if text.is_empty() => output::print("No job steps in the system\n"),
            _ => output::print(&text),
        }
    }
}

/// `show` of what one host never has any of, in Slurm's words (golden H-42 to H-45).
fn nothing(what: &str) -> Done {
    match what {
        "topology" => {
            eprintln!("scontrol: error: No topology information available");
            Ok(0)
        }
        "licenses" => output::print("No licenses configured in Slurm.\n"),
        "burstbuffer" | "bbstat" | "dwstat" | "federation" => Ok(0),
        other => output::print(&format!("No {other} in the system\n")),
    }
}

/// `show job 12_7` of tasks that wait together: that one task.
fn narrow(job: &mut JobView, wanted: &[JobRef]) {
    let array = job.role.array_job(job.id);
    let asked = wanted.iter().find(|r| Some(r.job) == array).and_then(|r| r.tasks.as_ref());
    let (Some(asked), ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) = (asked, &mut job.role) else {
        return;
    };
    let common = tasks.intersection(asked);
    match (array, common.first()) {
        // One task is shown as it will be once it is by itself (golden C-43): its paths name it.
        (Some(array_job), Some(task)) if common.len() == 1 => {
            for path in [&mut job.std_out, &mut job.std_err, &mut job.std_in] {
                *path = path.replace("%a", &task.to_string());
            }
            job.role = ArrayRole::Task { array_job, task };
        }
        (_, Some(_)) => *tasks = common,
        (_, None) => {}
    }
}

/// `write batch_script`.
fn write_script(job: &JobRef, file: Option<&str>) -> Done {
    let script = match Connection::open(&super::paths()?)?.ask(&Request::BatchScript(job.job), &[])? {
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
    std::fs::write(&path, &script).map_err(|e| CliError::error(1, format!("{path}: {e}")))?;
    output::print(&format!("batch script for job {job} written to {path}\n"))
}
