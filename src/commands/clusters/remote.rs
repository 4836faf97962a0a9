//! Calls of one cluster: its programs, and the errors if it cannot be reached.

use super::super::{Done, paths};
use crate::args::error::CliError;
use crate::clusters::config::{Cluster, Link};
use crate::clusters::journal::Journal;
use crate::clusters::link::{self, Call, Clusters, Ended, Input, Output, Stream};
use crate::clusters::program;
use crate::commands::output::print_stderr;
use nix::sys::signal::SigHandler;
use slotd_parse::error::shown;
use slotd_render::text::printable;
use slotd_sys::{clock, start};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Once;

/// The longest line of a message that is printed as one, in bytes.
const MOST_LINE: usize = 16 << 10;

/// The exit code if it is unknown whether a job exists (`EX_TEMPFAIL` of sysexits.h).
pub const UNKNOWN: i32 = 75;

/// Returns the time in seconds since 1970.
pub fn seconds() -> i64 {
    clock::now().0 / 1_000_000
}

/// Reads the user's clusters.
///
/// # Errors
/// Fails if the file is unsafe or invalid.
pub fn known() -> Result<Clusters, CliError> {
    link::read(&file()?).map_err(|error| CliError::error(1, error.to_string()))
}

/// Returns the names of the user's clusters and the hosts of their commands.
///
/// # Errors
/// Fails like [`known`].
pub fn destinations() -> Result<Vec<(String, String)>, CliError> {
    let host = |cluster: Cluster| match cluster.link {
        Link::Ssh(host) => (cluster.name, host),
        Link::Local(_) => (cluster.name, "127.0.0.1".to_owned()),
    };
    Ok(known()?.list.into_iter().map(host).collect())
}

fn file() -> Result<PathBuf, CliError> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).ok_or_else(|| {
        CliError::error(1, "HOME is not set, so ~/.config/slotd/clusters.toml cannot be found")
    })?;
    Ok(PathBuf::from(home).join(".config/slotd/clusters.toml"))
}

/// Returns the directory of shared connections. It need not exist.
///
/// # Errors
/// Fails if neither XDG_RUNTIME_DIR nor the runtime root is known.
pub fn sockets() -> Result<PathBuf, CliError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|dir| dir.is_absolute() && dir.is_dir()) {
        Some(dir) => Ok(dir.join("slotd-ssh")),
        None => Ok(paths()?.run_dir().join("ssh")),
    }
}

/// Returns the socket of a cluster's shared connection, if there is one that is safe to use. The
/// first unsafe one is reported on standard error.
///
/// # Errors
/// Fails like [`sockets`].
pub fn shared(cluster: &Cluster) -> Result<Option<PathBuf>, CliError> {
    static REPORTED: Once = Once::new();
    let checked = link::shared(&sockets()?, cluster);
    if let Err(why) = &checked {
        REPORTED.call_once(|| {
            print_stderr(&format!(
                "slotd: warning: the shared connection to cluster {} is not used: {why}\n",
                cluster.name
            ));
        });
    }
    Ok(checked.ok().flatten())
}

/// Returns Slurm's words about a new job.
pub fn submitted(job: u64, cluster: &str) -> String {
    format!("Submitted batch job {job} on cluster {cluster}\n")
}

/// Returns the journal if this host has submitted jobs to other clusters.
///
/// # Errors
/// Fails if its directory cannot be used.
pub fn existing_journal() -> io::Result<Option<Journal>> {
    match journal_dir() {
        Ok(dir) => Journal::existing(dir),
        Err(error) => Err(io::Error::other(error.message())),
    }
}

/// Returns the directory of the journal. It need not exist.
///
/// # Errors
/// Fails if the runtime root is unknown.
pub fn journal_dir() -> Result<PathBuf, CliError> {
    Ok(paths()?.root().join("lib/clusters"))
}

/// Returns the journal of this host's submissions to other clusters.
///
/// # Errors
/// Fails if its directory cannot be used.
pub fn journal() -> Result<Journal, CliError> {
    let dir = journal_dir()?;
    let failed = |error| CliError::error(1, format!("cannot record submissions: {error}"));
    Journal::open(dir).map_err(failed)
}

/// Runs a command of this host as a child process, without the variables that name clusters.
///
/// # Errors
/// Fails if the child cannot be started.
pub fn here(name: &str, words: &[String], variables: &[(&str, &str)]) -> Result<Output, CliError> {
    let mut child = Command::new("/proc/self/exe");
    child.arg0(name).args(words).stdin(Stdio::null()).envs(variables.iter().copied());
    for variable in ["SLURM_CLUSTERS", "SBATCH_CLUSTERS"] {
        child.env_remove(variable);
    }
    let done = child.output()?;
    let code = done.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Output { ended: Ended::Code(code), out: done.stdout, err: done.stderr })
}

/// Passes a script to a command of this host. The command reads it only if it has no other script,
/// and may have exited.
pub fn feed(child: &mut Child, script: &[u8]) {
    // A command that does not read its input must not end this process.
    start::on_broken_pipe(SigHandler::SigIgn);
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(script);
    }
}

/// A program for one cluster.
pub struct Remote<'a> {
    cluster: &'a Cluster,
    socket: Option<PathBuf>,
    mark: String,
    program: program::Program,
}

impl Remote<'_> {
    /// Prepares a program. `needs` is the command that must exist there.
    ///
    /// # Errors
    /// Fails if the directory of a cluster on this host does not exist.
    pub fn new<'a>(cluster: &'a Cluster, body: &[u8], needs: &str) -> Result<Remote<'a>, CliError> {
        if let Link::Local(dir) = &cluster.link
            && !dir.is_dir()
        {
            let text =
                format!("cluster {}: `local` is not a directory: {}", cluster.name, dir.display());
            return Err(CliError::error(1, text));
        }
        let mark = format!("slotd-{}", link::random()?);
        let program = program::program(cluster, &mark, &link::variables(cluster), needs, body);
        let socket = match cluster.link {
            Link::Ssh(_) => shared(cluster)?,
            Link::Local(_) => None,
        };
        Ok(Remote { cluster, socket, mark, program })
    }

    fn call(&self) -> Call<'_> {
        Call {
            cluster: self.cluster,
            socket: self.socket.as_deref(),
            mark: &self.mark,
            program: &self.program,
        }
    }

    /// Runs the program and passes its output on as it arrives.
    ///
    /// # Errors
    /// Fails if ssh cannot be started or the output cannot be passed on.
    pub fn run(
        &self,
        input: Input<'_>,
        take: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Ended, CliError> {
        self.call().run(input, take).map_err(|error| self.not_started(&error))
    }

    /// Runs the program and collects its output.
    ///
    /// # Errors
    /// Fails if ssh cannot be started.
    pub fn output(&self, input: Input<'_>) -> Result<Output, CliError> {
        self.call().output(input).map_err(|error| self.not_started(&error))
    }

    /// Runs the program and prints its output as it arrives, and its messages as `messages` does.
    /// Returns `None` if nobody reads standard output any more, which ends the program.
    ///
    /// # Errors
    /// Fails like [`Self::run`].
    pub fn pass_through(
        &self,
        input: Input<'_>,
        messages: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Option<Ended>, CliError> {
        let mut is_read = true;
        let ended = self.run(input, &mut |stream, bytes| match stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                let printed = out.write_all(bytes).and_then(|()| out.flush());
                let kind = printed.as_ref().err().map(io::Error::kind);
                is_read &= kind != Some(io::ErrorKind::BrokenPipe);
                printed
            }
            Stream::Err => messages(bytes),
        });
        if is_read { ended.map(Some) } else { Ok(None) }
    }

    fn not_started(&self, error: &io::Error) -> CliError {
        let program = match self.cluster.link {
            Link::Ssh(_) => "ssh",
            Link::Local(_) => "/bin/sh",
        };
        CliError::error(1, format!("cluster {}: {program}: {error}", self.cluster.name))
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        CliError::error(1, error.to_string())
    }
}

/// Returns the error for a command that did not run to its end on a cluster.
pub fn failure(clusters: &Clusters, cluster: &Cluster, ended: &Ended, command: &str) -> CliError {
    let name = &cluster.name;
    let file = clusters.file.display();
    match ended {
        Ended::Missing => CliError::error(
            1,
            format!("cluster {name} has no {command} in the PATH of a login without a terminal"),
        )
        .hint(match cluster.link {
            Link::Ssh(_) => format!("set shell = \"bash -l\" for it in {file}, or set PATH there"),
            Link::Local(_) => {
                format!("set `local` for it in {file} to the directory of the commands")
            }
        }),
        Ended::Broken => CliError::error(
            1,
            format!("the connection to cluster {name} broke before {command} had ended"),
        ),
        Ended::Code(code) => {
            CliError::error(i32::from(*code), format!("{command} failed on cluster {name}"))
        }
        Ended::NotReached(printed) => {
            let why = cause(printed);
            let error =
                CliError::error(1, format!("cluster {name} cannot be reached: {}", shown(&why)));
            match advice(&why) {
                Some(Advice::Login) => {
                    error.hint(format!("log in with: slotd cluster login {name}"))
                }
                Some(Advice::Host) => {
                    error.hint(format!("`ssh` of {name} in {file} must be a host of ~/.ssh/config"))
                }
                None => error.hint(format!("slotd cluster check {name} looks for the cause")),
            }
        }
    }
}

/// The remedy for a connection that could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    Login,
    Host,
}

/// Returns the advice for a message of ssh.
pub fn advice(why: &str) -> Option<Advice> {
    let has = |parts: &[&str]| parts.iter().any(|part| why.contains(part));
    if has(&[
        "Permission denied",
        "Host key verification failed",
        "Too many authentication failures",
        "No more authentication methods",
    ]) {
        Some(Advice::Login)
    } else {
        has(&["Could not resolve hostname"]).then_some(Advice::Host)
    }
}

/// Returns the line of ssh's output that explains a failure: the last one, without the banner.
pub fn cause(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let known = [
        "Permission denied",
        "Host key verification",
        "Could not resolve",
        "Connection ",
        "ssh: ",
        "kex_exchange",
    ];
    let specific = lines.iter().rev().find(|line| known.iter().any(|word| line.contains(word)));
    specific.or(lines.last()).map_or("ssh ended without a message", |line| *line).to_owned()
}

/// Prints to standard output. A reader that has exited is no error.
pub fn print(text: &[u8]) -> Done {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(1),
        Err(error) => Err(CliError::error(1, format!("cannot write to standard output: {error}"))),
    }
}

/// Escapes what a terminal would interpret. Everything that a cluster says goes through it, except
/// the output of commands that pass through.
pub fn safe(text: &str) -> String {
    printable(text.into(), true).into_owned()
}

/// Prints the messages of a program to standard error, line by line and escaped.
#[derive(Debug, Default)]
pub struct Messages {
    line: Vec<u8>,
}

impl Messages {
    /// Prints the lines that end in these bytes.
    ///
    /// # Errors
    /// Never fails: an error on standard error cannot be reported anywhere.
    pub fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= MOST_LINE {
                self.flush();
            }
        }
        Ok(())
    }

    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        print_stderr(&format!("{}\n", safe(text.trim_end_matches(['\n', '\r']))));
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.flush();
        }
    }
}
