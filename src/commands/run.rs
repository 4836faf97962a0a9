//! `slotd run`: submits a command, shows its output as it comes, and exits with its code. The job
//! is one of sbatch: it goes on without this process, which can be left at any time.

use super::launch::{check_work_dir, submit_parsed, tell};
use super::log::Logs;
use super::{Done, ask, paths, sbatch, submitting_origin};
use crate::args::error::{CliError, Mark};
use crate::args::submit::base_name;
use crate::client::follow::Follower;
use crate::model::query::JobQuery;
use crate::model::{JobId, JobRef};
use crate::protocol::request::{CancelAsk, Request};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// Of a run that was left, as of one that Ctrl-C ended.
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
    /// Options of sbatch, and the command with its arguments.
    fn parts(&self) -> Result<(&[String], &[String]), CliError> {
        let at = self.words.iter().position(|word| word == "--");
        match at.map(|at| (&self.words[..at], &self.words[at + 1..])) {
            Some((options, command)) if !command.is_empty() => Ok((options, command)),
            _ => Err(CliError::error(2, "no command is named")
                .hint("slotd run -c 2 --mem=1G -- ./fit --fast data")),
        }
    }
}

pub fn run(args: &RunArgs) -> Done {
    let job = submit(args)?;
    let signals = Signals::take(job.id).map_err(|error| CliError::error(1, error.to_string()))?;
    // The user may press Ctrl-C as soon as this line is there.
    tell(&format!("slotd: job {} is submitted\n", job.id));
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
        .map_err(|error| CliError::error(2, format!("the command is no text: {error}")))?;
    let words =
        ["sbatch"].into_iter().chain(options.iter().map(String::as_str)).chain(["--wrap", &line]);
    let argv: Vec<OsString> = words.map(OsString::from).collect();
    let origin = submitting_origin()?;
    let mut parsed = sbatch::parse(&argv, &origin, &sbatch::read)?;
    if parsed.wait || parsed.test_only {
        let why = "slotd run waits in any case, and submits: leave out --wait and --test-only";
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

/// What the user does while the job runs. Ctrl-C asks on a terminal, and cancels the job elsewhere,
/// as SIGTERM does; a terminal that goes away leaves it running.
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
            format!("job {job} goes on; `slotd log -f {job}` shows its output again"),
        )
    }

    fn cancel(&self) -> Result<(), CliError> {
        tell(&format!("slotd: job {} is cancelled\n", self.job));
        let query = JobQuery::of(vec![JobRef::job(self.job)]);
        let uid = nix::unistd::getuid().as_raw();
        ask(&Request::Cancel(CancelAsk { query, uid, ..CancelAsk::default() }), &[]).map(drop)
    }

    /// A second Ctrl-C cancels.
    fn ask(&self) -> Result<(), CliError> {
        tell(&format!(
            "\nslotd: leave job {} running (l), cancel it (c), or go on watching (Enter)? ",
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
                    // The question stands there without an answer.
                    tell("\n");
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
