//! `slotd log`: prints the output of jobs by ID, and follows it until they end. `slotd run` uses it
//! to follow its job.

use super::clusters::{jobs, named};
use super::output::print_stderr;
use super::why::refs;
use super::{Done, ask_daemon, paths, unexpected};
use crate::args::error::CliError;
use crate::client::connection::ClientError;
use crate::client::follow::{Follower, Heard, Known, Standing};
use crate::client::logs::Log;
use crate::client::tail;
use crate::client::watch::FileWatch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_model::query::{JobQuery, names_record};
use slotd_model::request::JobKind;
use slotd_model::view::{JobList, JobView};
use slotd_model::{JobId, JobRef, JobState, Reason, StepId};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd log -f 12        follow the job until it ends, and exit with its exit code\n  slotd log -n 20 12_3   print the last 20 lines of an array task"
)]
pub struct LogArgs {
    /// Follow the output until the jobs end, and exit with the highest of their exit codes
    #[arg(short, long)]
    follow: bool,
    /// Print only standard error
    #[arg(short, long)]
    error: bool,
    /// Start with the last LINES lines of each file
    #[arg(short = 'n', long, value_name = "LINES")]
    lines: Option<u64>,
    /// The jobs: 12, 12_3, 12.batch, or 17@hpc on another cluster
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
}

/// The selection and format of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Showing {
    pub error_only: bool,
    pub lines: Option<u64>,
    /// Start each line with the job's label.
    pub labelled: bool,
    /// Skip output from before the start of the job, which belongs to another one.
    pub is_new: bool,
}

pub fn run(args: &LogArgs) -> Done {
    if args.jobs.iter().any(|job| named::is_there(job)) {
        let LogArgs { follow, error, lines, .. } = *args;
        return jobs::log(&args.jobs, &jobs::Log { follow, error, lines });
    }
    let named = refs(&args.jobs)?;
    if let Some(step) =
        named.iter().find(|named| named.step.is_some_and(|step| step != StepId::Batch))
    {
        let why = format!(
            "the output of step {step} goes to its srun, which writes it to the output of the job"
        );
        return Err(CliError::error(1, why)
            .hint(format!("`slotd log {}`, or `sattach {step}` while it runs", step.job)));
    }
    let named: Vec<JobRef> =
        named.into_iter().map(|named| JobRef { step: None, ..named }).collect();
    let follower = if args.follow { Some(Follower::new(&paths()?)?) } else { None };
    let views = views(&named)?;
    for wanted in &named {
        if !views.iter().any(|view| names_record(wanted, view.id, &view.role)) {
            return Err(CliError::error(1, format!("there is no job {wanted}"))
                .hint("`sacct` lists all jobs"));
        }
    }
    for view in views.iter().filter(|view| !args.follow && view.run.state == JobState::Pending) {
        print_stderr(&format!("slotd: job {} is PENDING and has no output yet\n", view.label()));
    }
    let outputs = views
        .iter()
        .filter(|view| view.run.start.is_some())
        .map(|view| Path::new(if args.error { &view.std_err } else { &view.std_out }));
    for path in
        outputs.collect::<BTreeSet<_>>().into_iter().filter(|path| tail::keeps_nothing(path))
    {
        print_stderr(&format!(
            "slotd: output goes to {}, which keeps nothing to show\n",
            path.display()
        ));
    }
    let is_array = |view: &JobView| view.array_job_id().is_some();
    let labelled = views.len() > 1
        || views.iter().any(is_array) && named.iter().any(|named| named.tasks.is_none());
    let showing = Showing { error_only: args.error, lines: args.lines, labelled, is_new: false };
    let mut logs = Logs::new(named, showing, views.iter().any(is_array), args.follow)?;
    logs.take(views)?;
    match follower {
        Some(follower) => logs.follow(follower, None, &mut || Ok(()))?,
        None => return logs.finish().map(|()| 0),
    }
    Ok(logs.known.worst())
}

/// Fetches the jobs from the daemon.
///
/// # Errors
/// Fails if the daemon cannot be reached.
pub fn views(named: &[JobRef]) -> Result<Vec<JobView>, CliError> {
    Ok(fetch(named)??)
}

/// Like [`views`], but returns nothing while the daemon is down: the next one notifies followers to
/// read everything again.
///
/// # Errors
/// Fails if the daemon refuses the request.
pub fn views_if_there(named: &[JobRef]) -> Result<Vec<JobView>, CliError> {
    fetch(named)?.or_else(|error| if error.is_away() { Ok(Vec::new()) } else { Err(error.into()) })
}

fn fetch(named: &[JobRef]) -> Result<Result<Vec<JobView>, ClientError>, CliError> {
    let query = JobQuery { without_steps: true, ..JobQuery::of(named.to_vec()) };
    Ok(match ask_daemon(&paths()?, &Request::Jobs(query), &[]) {
        Ok((Answer::Jobs(list), _)) => Ok(JobList::whole(list).jobs),
        Ok((other, _)) => return Err(unexpected(&other)),
        Err(error) => Err(error),
    })
}

fn failed(error: io::Error) -> CliError {
    CliError::error(1, error.to_string())
}

/// The output of jobs, which may be followed.
pub struct Logs {
    named: Vec<JobRef>,
    showing: Showing,
    /// The output files of jobs that have started but not ended.
    open: BTreeMap<JobId, Vec<Log>>,
    pub known: Known,
    watch: FileWatch,
    /// Some of the names are arrays, whose tasks get their own records when they start.
    has_arrays: bool,
    prints_ends: bool,
}

/// Handles signals from the user while following. An error ends the following.
type OnSignal<'a> = &'a mut dyn FnMut() -> Result<(), CliError>;

impl Logs {
    fn new(
        named: Vec<JobRef>,
        showing: Showing,
        has_arrays: bool,
        prints_ends: bool,
    ) -> Result<Logs, CliError> {
        let watch = FileWatch::new().map_err(failed)?;
        Ok(Logs {
            named,
            showing,
            open: BTreeMap::new(),
            known: Known::default(),
            watch,
            has_arrays,
            prints_ends,
        })
    }

    /// Creates the output of one job that has just been submitted.
    ///
    /// # Errors
    /// Fails if the daemon cannot be reached.
    pub fn of_new(job: JobId, is_array: bool, prints_ends: bool) -> Result<Logs, CliError> {
        let showing = Showing { labelled: is_array, is_new: true, ..Showing::default() };
        let mut logs = Logs::new(vec![JobRef::job(job)], showing, is_array, prints_ends)?;
        logs.take(views(&logs.named)?)?;
        Ok(logs)
    }

    /// Records the state of jobs and shows their new output.
    fn take(&mut self, mut views: Vec<JobView>) -> Result<(), CliError> {
        // The records of an array are in no useful order, so sort by start.
        views.sort_by_key(|view| (view.run.start.is_none(), view.run.start));
        for view in views {
            let (state, now) = (view.run.state, Standing::of(&view));
            let before = self.known.note(view.id, now);
            let has_begun = view.run.start.is_some() && view.request.kind != JobKind::Allocation;
            if has_begun
                && !before.is_some_and(JobState::is_terminal)
                && !self.open.contains_key(&view.id)
            {
                let logs = self.logs_of(&view);
                self.open.insert(view.id, logs);
            }
            self.show(view.id)?;
            if state == JobState::Pending && before.is_some_and(JobState::is_active) {
                print_stderr(&format!("slotd: job {} was requeued\n", view.label()));
            }
            if state.is_terminal() {
                self.close(view.id)?;
                if before != Some(state) {
                    report_failed_launch(&view);
                }
                if self.prints_ends && before != Some(state) {
                    print_stderr(&format!("slotd: {}\n", how_it_ended(&view)));
                }
            }
        }
        Ok(())
    }

    fn logs_of(&mut self, view: &JobView) -> Vec<Log> {
        let Showing { error_only, lines, labelled, is_new } = self.showing;
        let is_one = view.std_out == view.std_err;
        let paths = match (error_only, is_one) {
            (true, _) => vec![(&view.std_err, false)],
            (false, true) => vec![(&view.std_out, false)],
            (false, false) => vec![(&view.std_out, false), (&view.std_err, true)],
        };
        let start = view.run.start.filter(|_| is_new && view.run.restarts == 0);
        let log = |(path, to_stderr): (&String, bool)| {
            Log::new(PathBuf::from(path), labelled.then(|| view.label()), to_stderr)
                .last(lines)
                .since(start)
        };
        let logs: Vec<Log> = paths.into_iter().map(log).collect();
        logs.iter().for_each(|log| self.watch.add(log.path()));
        logs
    }

    fn show(&mut self, job: JobId) -> Result<(), CliError> {
        for log in self.open.get_mut(&job).into_iter().flatten() {
            log.show().map_err(failed)?;
            self.watch.add(log.path());
        }
        Ok(())
    }

    fn close(&mut self, job: JobId) -> Result<(), CliError> {
        self.open.remove(&job).into_iter().flatten().try_for_each(Log::finish).map_err(failed)
    }

    fn finish(&mut self) -> Result<(), CliError> {
        std::mem::take(&mut self.open)
            .into_values()
            .flatten()
            .try_for_each(Log::finish)
            .map_err(failed)
    }

    /// Shows new output until the jobs have ended. `signals` is readable when there is something
    /// for `on_signal`.
    ///
    /// # Errors
    /// Fails on an error of the daemon, a file, standard output or `on_signal`.
    pub fn follow(
        &mut self,
        mut follower: Follower,
        signals: Option<BorrowedFd<'_>>,
        on_signal: OnSignal<'_>,
    ) -> Result<(), CliError> {
        while !self.known.is_over() {
            let mut fds = vec![PollFd::new(follower.fd(), PollFlags::POLLIN)];
            fds.push(PollFd::new(self.watch.as_fd(), PollFlags::POLLIN));
            fds.extend(signals.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(e.into())),
            }
            let is_ready = |at: usize| {
                fds.get(at).and_then(PollFd::revents).is_some_and(|events| !events.is_empty())
            };
            let (news, files, signal) = (is_ready(0), is_ready(1), is_ready(2));
            if files {
                self.watch.clear();
                for job in self.open.keys().copied().collect::<Vec<_>>() {
                    self.show(job)?;
                }
            }
            if news {
                follower.read()?;
                while let Some(heard) = follower.next() {
                    self.receive(heard)?;
                }
            }
            if signal {
                on_signal()?;
            }
        }
        self.finish()
    }

    fn receive(&mut self, heard: Heard) -> Result<(), CliError> {
        let changed = match heard {
            Heard::Answer(_) => return Ok(()),
            Heard::Away => {
                print_stderr("slotd: the daemon is down; jobs continue, waiting for it\n");
                return Ok(());
            }
            Heard::Changed(changed) if changed.all => {
                let found = views_if_there(&self.named)?;
                // Nothing is found while the daemon is down.
                if !found.is_empty() {
                    self.known.keep(&found.iter().map(|view| view.id).collect());
                }
                return self.take(found);
            }
            Heard::Changed(changed) => changed,
        };
        // New records may be tasks of a followed array.
        let is_meant = |id: &&JobId| self.known.has(**id) || self.has_arrays;
        let ids: Vec<JobRef> =
            changed.jobs.iter().filter(is_meant).map(|id| JobRef::job(*id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let is_named = |view: &JobView| {
            self.named.iter().any(|named| names_record(named, view.id, &view.role))
        };
        let (found, others): (Vec<_>, Vec<_>) =
            views_if_there(&ids)?.into_iter().partition(is_named);
        others.iter().for_each(|view| self.known.forget(view.id));
        self.take(found)
    }
}

/// Prints why a job could not be launched, since its output files do not contain the reason.
fn report_failed_launch(view: &JobView) {
    let Some(why) =
        view.run.system_comment.as_ref().filter(|_| view.run.reason == Reason::JobLaunchFailure)
    else {
        return;
    };
    let request = &view.request;
    print_stderr(&format!("slotd: error: job {} could not be started: {why}\n", view.label()));
    if why.ends_with(Errno::EACCES.desc()) {
        let user = &request.user;
        print_stderr(&format!(
            "  hint: it runs as user {user}: use -D with a directory that {user} can enter and write to\n"
        ));
    }
}

/// Returns a line such as `job 12 (fit) is FAILED, exit code 3`.
fn how_it_ended(view: &JobView) -> String {
    let (label, name, exit) = (view.label(), &view.request.name, view.run.exit);
    let how = match exit.signal {
        0 => format!("exit code {}", exit.status),
        signal => format!("signal {signal}"),
    };
    format!("job {label} ({name}) is {}, {how}", view.run.state.name())
}
