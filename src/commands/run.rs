//! `slotd run`: submits a command, shows its output, and exits with its exit code. Like a job of
//! sbatch, it continues even if this process exits.

use super::launch::{check_work_dir, submit_parsed};
use super::log::Logs;
use super::output::print_stderr;
use super::{Done, ask, paths, sbatch, submitting_origin};
use crate::args::error::{CliError, Mark};
use crate::args::submit::base_name;
use crate::client::follow::Follower;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use slotd_model::query::JobQuery;
use slotd_model::{JobId, JobRef};
use slotd_protocol::request::{CancelAsk, Request};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// The exit code if the user leaves the job running, as after Ctrl-C.
const LEFT: i32 = 128 + libc::SIGINT;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "slotd run [OPTIONS OF SBATCH] -- COMMAND [ARGUMENTS]...",
    after_help = "Examples:\n  slotd run -c 4 --mem=2G -- make test"
)]
pub struct RunArgs {
    /// Options of sbatch (-c 4 --mem=1G), then --, then the command and its arguments
    #[arg(value_name = "WORDS", last = true)]
    words: Vec<String>,
}

impl RunArgs {
    /// Returns the options of sbatch, and the command with its arguments.
    fn parts(&self) -> Result<(&[String], &[String]), CliError> {
        let at = self.words.iter().position(|word| word == "--");
        match at.map(|at| (&self.words[..at], &self.words[at + 1..])) {
            Some((options, command)) if !command.is_empty() => Ok((options, command)),
            _ => Err(CliError::error(2, "no command specified")
                .hint("slotd run -c 2 --mem=1G -- ./fit --fast data")),
        }
    }
}

pub fn run(args: &RunArgs) -> Done {
    let job = submit(args)?;
    let signals = Signals::take(job.id).map_err(|error| CliError::error(1, error.to_string()))?;
    // The signals must be handled before this line is printed: the user may press Ctrl-C as soon as
    // it appears.
    print_stderr(&format!("slotd: submitted job {}\n", job.id));
    let follower = Follower::new(&paths()?)?;
    let mut logs = Logs::of_new(job.id, job.is_array, job.is_array)?;
    logs.follow(follower, Some(signals.fd.as_fd()), &mut || signals.act())?;
    Ok(logs.known.worst())
}

struct Submitted {
    id: JobId,
    is_array: bool,
}

fn submit(args: &RunArgs) -> Result<Submitted, CliError> {
    let (options, command) = args.parts()?;
    let line = shlex::try_join(command.iter().map(String::as_str))
        .map_err(|error| CliError::error(2, format!("invalid command: {error}")))?;
    let words =
        ["sbatch"].into_iter().chain(options.iter().map(String::as_str)).chain(["--wrap", &line]);
    let argv: Vec<OsString> = words.map(OsString::from).collect();
    let origin = submitting_origin()?;
    let mut parsed = sbatch::parse(&argv, &origin, &sbatch::read)?;
    if parsed.wait || parsed.test_only {
        let why = "slotd run always submits and waits: omit --wait and --test-only";
        return Err(CliError::error(2, why));
    }
    if parsed.request.name == "wrap" {
        parsed.request.name =
            command.first().map_or("wrap", |command| base_name(command)).to_owned();
    }
    check_work_dir(&parsed.request, "slotd run")?;
    let is_array = parsed.request.array.is_some();
    let id = submit_parsed(parsed, "slotd run")?;
    Ok(Submitted { id, is_array })
}

/// The signals to this process. On a terminal Ctrl-C asks; elsewhere it cancels the job, as SIGTERM
/// always does. A hang-up leaves the job running.
struct Signals {
    fd: SignalFd,
    job: JobId,
    asks: bool,
}

impl Signals {
    fn take(job: JobId) -> io::Result<Signals> {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        set.thread_block()?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd, job, asks: io::stdin().is_terminal() && io::stderr().is_terminal() })
    }

    fn next(&self) -> Option<i32> {
        self.fd.read_signal().ok().flatten().and_then(|info| i32::try_from(info.ssi_signo).ok())
    }

    fn act(&self) -> Result<(), CliError> {
        match self.next() {
            Some(libc::SIGHUP) => Err(self.left()),
            Some(libc::SIGINT) if self.asks => self.ask(),
            Some(_) => self.cancel(),
            None => Ok(()),
        }
    }

    fn left(&self) -> CliError {
        let job = self.job;
        CliError::new(
            Mark::Plain,
            LEFT,
            format!("job {job} continues; `slotd log -f {job}` shows its output again"),
        )
    }

    fn cancel(&self) -> Result<(), CliError> {
        print_stderr(&format!("slotd: cancelling job {}\n", self.job));
        let query = JobQuery::of(vec![JobRef::job(self.job)]);
        let uid = nix::unistd::getuid().as_raw();
        ask(&Request::Cancel(CancelAsk { query, uid, ..CancelAsk::default() }), &[]).map(drop)
    }

    /// Asks what to do with the job. A second Ctrl-C cancels it.
    fn ask(&self) -> Result<(), CliError> {
        print_stderr(&format!(
            "\nslotd: leave job {} running (l), cancel it (c), or continue watching (Enter)? ",
            self.job
        ));
        let stdin = io::stdin();
        loop {
            let mut fds = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(CliError::error(1, error.desc())),
            }
            match self.next() {
                Some(libc::SIGHUP) => return Err(self.left()),
                Some(_) => {
                    // End the line of the unanswered question.
                    print_stderr("\n");
                    return self.cancel();
                }
                None => {}
            }
            if fds[0].revents().is_some_and(|events| !events.is_empty()) {
                let mut line = String::new();
                let read = stdin.read_line(&mut line).unwrap_or(0);
                return match line.trim() {
                    _ if read == 0 => Err(self.left()),
                    "l" | "leave" => Err(self.left()),
                    "c" | "cancel" => self.cancel(),
                    _ => Ok(()),
                };
            }
        }
    }
}
