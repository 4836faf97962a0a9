//! `slotd cluster`: checks and logs in to clusters, and resolves submissions.

use super::super::Done;
use super::clean::{self, CleanArgs};
use super::list::{list, unreadable};
use super::named::moved;
use super::remote::{
    Advice, Remote, UNKNOWN, advice, cause, failure, journal, known, print, seconds, shared,
    sockets, submitted,
};
use super::submit::exchange::{Settling, read_report};
use crate::args::error::CliError;
use crate::clusters::config::{Cluster, Link};
use crate::clusters::journal::{Journal, Record, is_token};
use crate::clusters::link::{self, Clusters, Ended, Input, Output};
use crate::clusters::program::{self, Place};
use crate::clusters::token::{Fact, Outcome, State, Submission};
use crate::commands::output::print_stderr;
use slotd_parse::error::shown;
use slotd_sys::clock;
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Stdio;

/// How long a shared connection stays open without use.
const PERSIST: &str = "ControlPersist=12h";

/// The largest difference between the clocks that is not reported, in seconds.
const MOST_SKEW: i64 = 30;

#[derive(Debug, clap::Subcommand)]
pub enum ClusterVerb {
    /// List the clusters in clusters.toml, the latest jobs submitted to them whose end is not known,
    /// and submissions whose outcome is unknown
    List,
    /// Check that a cluster can be used, and suggest fixes
    Check {
        /// Cluster
        name: String,
    },
    /// Log in to a cluster and keep a shared connection; the only call that prompts
    Login {
        /// Cluster
        name: String,
    },
    /// Delete the files of ended jobs on a cluster, if they were fetched or are old
    Clean(CleanArgs),
    /// Find out whether a job was submitted
    Resolve {
        /// Token, as printed by sbatch and by `slotd cluster list`
        token: String,
    },
}

pub fn run(verb: &ClusterVerb) -> Done {
    match verb {
        ClusterVerb::List => list(),
        ClusterVerb::Check { name } => {
            let clusters = known()?;
            check(&clusters, find(&clusters, name)?)
        }
        ClusterVerb::Login { name } => {
            let clusters = known()?;
            login(find(&clusters, name)?)
        }
        ClusterVerb::Clean(args) => {
            let clusters = known()?;
            let cluster = clusters.find(args.name());
            // Records of a cluster that the file no longer has can be deleted, too.
            if cluster.is_none() && !clean::has_records(args.name())? {
                find(&clusters, args.name())?;
            }
            clean::clean(&clusters, cluster, args)
        }
        ClusterVerb::Resolve { token } => resolve(token),
    }
}

fn find<'a>(clusters: &'a Clusters, name: &str) -> Result<&'a Cluster, CliError> {
    clusters.find(name).ok_or_else(|| {
        let error = CliError::error(
            1,
            format!("there is no cluster {} in {}", shown(name), clusters.file.display()),
        );
        match clusters.names().join(", ") {
            names if names.is_empty() => error.hint(format!(
                "create it:\n\n[[cluster]]\nname = \"{}\"\nssh = \"HOST\"",
                shown(name)
            )),
            names => error.hint(format!("clusters: {names}")),
        }
    })
}

/// The results of a check.
#[derive(Default)]
struct Report {
    text: String,
    failed: bool,
}

impl Report {
    fn ok(&mut self, what: impl std::fmt::Display) {
        self.text.push_str(&format!("ok    {what}\n"));
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        self.text.push_str(&format!("note  {what}\n"));
    }

    fn fail(&mut self, what: impl std::fmt::Display, fix: impl std::fmt::Display) {
        self.failed = true;
        self.text.push_str(&format!("FAIL  {what}\n      {fix}\n"));
    }
}

fn check(clusters: &Clusters, cluster: &Cluster) -> Done {
    let mut report = Report::default();
    let before = seconds();
    let file = clusters.file.display().to_string();
    let probe = link::random()?;
    match Remote::new(cluster, &program::check(&cluster.dir, &probe), "uname")
        .and_then(|remote| remote.output(Input::Nothing))
    {
        Err(error) => report.fail(
            error.lines.first().map_or("", |(_, line)| line),
            format!("correct it in {file}"),
        ),
        Ok(output) => {
            let after = seconds();
            judge(&mut report, cluster, &output, (before, after), &file);
            let said = String::from_utf8_lossy(&output.out);
            if matches!(cluster.link, Link::Ssh(_)) && value(&said, "dir").starts_with("0 ") {
                nodes(&mut report, cluster, value(&said, "host"), &probe, &file)?;
            }
        }
    }
    print(report.text.as_bytes())?;
    Ok(u8::from(report.failed))
}

/// Judges the answers of a cluster.
fn judge(report: &mut Report, cluster: &Cluster, output: &Output, asked: (i64, i64), file: &str) {
    if !judge_connection(report, cluster, &output.ended, file) {
        return;
    }
    let text = String::from_utf8_lossy(&output.out);
    report.ok(format!("login node: {}", shown(value(&text, "host"))));
    if let Ok(there) = value(&text, "time").parse::<i64>() {
        judge_clock(report, there, asked);
    }
    if judge_path(report, cluster, &text, file) {
        judge_slurm(report, &text);
        judge_answers(report, cluster, &text, file);
    }
}

/// Judges the connection, and returns whether it works.
fn judge_connection(report: &mut Report, cluster: &Cluster, ended: &Ended, file: &str) -> bool {
    let name = &cluster.name;
    match ended {
        Ended::Code(_) => match &cluster.link {
            Link::Ssh(host) => report.ok(format!("ssh {host} works without a prompt")),
            Link::Local(dir) => {
                report.ok(format!("the commands are on this host: {}", dir.display()))
            }
        },
        Ended::NotReached(printed) => {
            let why = shown(&cause(printed));
            let fix = match (advice(&why), &cluster.link) {
                (_, Link::Local(_)) => {
                    format!("`shell` of {name} in {file} must be a shell of this host")
                }
                (Some(Advice::Login), _) => format!("run: slotd cluster login {name}"),
                (Some(Advice::Host), _) => {
                    format!("`ssh` of {name} in {file} must be a host of ~/.ssh/config")
                }
                (None, Link::Ssh(host))
                    if why.contains("refused")
                        || why.contains("timed out")
                        || why.contains("No route") =>
                {
                    format!(
                        "check HostName, Port and ProxyJump of {host} in ~/.ssh/config, and whether a VPN is needed"
                    )
                }
                (None, Link::Ssh(host)) => {
                    format!(
                        "`ssh {host} {}` must run a POSIX shell: check `shell` of {name} in {file}",
                        cluster.shell.join(" ")
                    )
                }
            };
            report.fail(format!("the cluster cannot be reached: {why}"), fix);
        }
        Ended::Broken | Ended::Missing => report.fail(
            "the connection broke during the check",
            "try again; if it happens again, the login files there end the shell",
        ),
    }
    matches!(ended, Ended::Code(_))
}

/// Compares the cluster's clock with those of this host before and after the question.
fn judge_clock(report: &mut Report, there: i64, (before, after): (i64, i64)) {
    let skew = if there < before { there - before } else { (there - after).max(0) };
    if skew.abs() > MOST_SKEW {
        report.note(format!("its clock differs by {skew} seconds: compare times of this host and of the cluster with care"));
    } else {
        report.ok("the clocks agree");
    }
}

/// Reports programs that are not in PATH. Returns whether sbatch is.
fn judge_path(report: &mut Report, cluster: &Cluster, text: &str, file: &str) -> bool {
    let name = &cluster.name;
    let missing = text.lines().filter_map(|line| line.strip_prefix("missing "));
    let (slurms, tools): (Vec<&str>, Vec<&str>) =
        missing.partition(|name| !["tar", "find"].contains(name));
    let path = match cluster.link {
        Link::Ssh(_) => format!(
            "set shell = \"bash -l\" for {name} in {file}, or set PATH in the login files there"
        ),
        Link::Local(_) => {
            format!("`local` of {name} in {file} must be the directory of Slurm's commands")
        }
    };
    if !slurms.is_empty() {
        report.fail(format!("not in PATH: {}", slurms.join(", ")), path);
    }
    if !tools.is_empty() {
        report.fail(
            format!("not in PATH: {}", tools.join(", ")),
            "submissions are unpacked with tar, and results found with find",
        );
    }
    !slurms.contains(&"sbatch")
}

/// Judges sbatch and the name of the cluster.
fn judge_slurm(report: &mut Report, text: &str) {
    let version = value(text, "version");
    if version.contains("slotd") {
        report.fail(
            format!("sbatch there is slotd's: {}", shown(version)),
            "put the directory of the real Slurm first in PATH there, or set `local` to it",
        );
    } else if version.starts_with("slurm") {
        report.ok(format!("sbatch: {}", shown(version)));
    } else {
        report.fail(
            format!("sbatch does not work: {}", shown(version)),
            "run `sbatch --version` there by hand",
        );
    }
    match value(text, "cluster") {
        "" => report.fail("scontrol does not reach the controller", "run `scontrol ping` there: the controller may be down, or SLURM_CONF is needed (export = [\"SLURM_CONF\"])"),
        there => report.ok(format!("ClusterName: {}", shown(there))),
    }
}

/// Judges the queries that waiting for jobs needs, and the staging directory.
fn judge_answers(report: &mut Report, cluster: &Cluster, text: &str, file: &str) {
    let result = |key: &str| {
        let (code, why) = value(text, key).split_once(' ').unwrap_or((value(text, key), ""));
        let why = if why.trim().is_empty() { "no message" } else { why.trim() };
        (code == "0", shown(why))
    };
    match result("squeue") {
        (true, _) => report.ok("squeue works"),
        (false, why) => {
            report.fail(format!("squeue does not work: {why}"), "waiting for jobs needs it")
        }
    }
    match result("sacct") {
        (true, _) => report.ok("sacct works"),
        (false, why) => report.note(format!(
            "sacct does not work: {why}; if sbatch times out, slotd cannot determine whether the \
             job exists"
        )),
    }
    match result("dir") {
        (true, _) => report.ok(format!("the staging directory {} can be written", cluster.dir)),
        (false, why) => report.fail(
            format!("the staging directory {} cannot be written: {why}", cluster.dir),
            format!(
                "set `dir` of {} in {file} to a directory with space that the compute nodes see",
                cluster.name
            ),
        ),
    }
}

/// Returns the value in the line of a check that begins with this key.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).unwrap_or_default()
}

/// Checks with another connection whether all login nodes see the staging directory. `first` is the
/// node that left a file in it. Otherwise a submission that is asked for again, after its connection
/// broke, would be made a second time.
fn nodes(
    report: &mut Report,
    cluster: &Cluster,
    first: &str,
    probe: &str,
    file: &str,
) -> Result<(), CliError> {
    let (name, dir) = (&cluster.name, &cluster.dir);
    let body = program::check_again(dir, probe);
    let output = Remote::new(cluster, &body, "uname")?.output(Input::Nothing)?;
    if output.ended != Ended::Code(0) {
        report.note("a second connection failed, so only one login node was checked");
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.out);
    let (first, second) = (shown(first), shown(value(&text, "host")));
    match (value(&text, "probe") == "there", first == second) {
        (true, true) if shared(cluster)?.is_some() => report.note(format!(
            "the shared connection always reaches {first}, so other login nodes were not checked"
        )),
        (true, true) => {}
        (true, false) => report
            .ok(format!("the login nodes {first} and {second} share the staging directory {dir}")),
        (false, is_one) => {
            let what = if is_one {
                format!("a file in the staging directory {dir} of {first} was gone a moment later")
            } else {
                format!(
                    "the login nodes {first} and {second} do not share the staging directory {dir}"
                )
            };
            report.fail(
                format!("{what}: a submission whose connection breaks could be made twice"),
                format!("set `dir` of {name} in {file} to a directory that all login nodes see, or `ssh` to one of them"),
            );
        }
    }
    Ok(())
}

fn login(cluster: &Cluster) -> Done {
    let name = &cluster.name;
    let Link::Ssh(host) = &cluster.link else {
        return Err(CliError::error(
            1,
            format!("cluster {name} is on this host and needs no login"),
        ));
    };
    let dir = sockets()?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    link::check_sockets(&dir).map_err(|error| {
        CliError::error(1, format!("{}: {error}", dir.display()))
            .hint("XDG_RUNTIME_DIR must be a directory of your own, or unset")
    })?;
    let socket = link::socket(&dir, cluster).ok_or_else(|| {
        CliError::error(1, format!("{} is too long for a socket", dir.display()))
            .hint("set XDG_RUNTIME_DIR to a short path")
    })?;
    if is_open(host, &socket)? {
        print_stderr(&format!("slotd: already logged in to cluster {name}\n"));
        return Ok(0);
    }
    // ssh does not replace the socket of a connection that has ended.
    if let Err(error) = fs::remove_file(&socket)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(CliError::error(1, format!("{}: {error}", socket.display())));
    }
    let mut ssh = std::process::Command::new("ssh");
    ssh.args([
        "-T",
        "-o",
        "ControlMaster=yes",
        "-o",
        PERSIST,
        "-o",
        "RemoteCommand=none",
        "-o",
        "ClearAllForwardings=yes",
    ]);
    ssh.args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]);
    ssh.arg("-o").arg(link::control_path(&socket)).args(["--", host, "exit 0"]);
    let status = ssh.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !is_open(host, &socket)? {
        return Err(CliError::error(
            1,
            format!("no shared connection to cluster {name}: {status}"),
        )
        .hint(format!("`ssh {host}` must work by hand first")));
    }
    print_stderr(&format!(
        "slotd: logged in to cluster {name}; the connection closes after 12 hours without use\n"
    ));
    Ok(0)
}

/// Returns whether a shared connection is alive.
fn is_open(host: &str, socket: &Path) -> Result<bool, CliError> {
    let mut ssh = std::process::Command::new("ssh");
    ssh.args(["-O", "check", "-o"]).arg(link::control_path(socket)).args(["--", host]);
    let status = ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(socket.exists() && status.success())
}

/// Finds out whether a submission has become a job, and records it.
fn resolve(token: &str) -> Done {
    let journal = journal()?;
    if !is_token(token) {
        return Err(CliError::error(2, format!("invalid token: {}", shown(token)))
            .hint("slotd cluster list shows them"));
    }
    let mut record = journal.read(token).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            CliError::error(1, format!("there is no submission {token}: {error}"))
                .hint("slotd cluster list shows those whose outcome is unknown")
        }
        _ => unreadable(&journal.broken(token, &error)),
    })?;
    let clusters = known()?;
    let what = format!("submission {token}");
    let mut cluster = clusters.of(&record).ok_or_else(|| moved(&clusters, &record, &what))?.clone();
    // The stage is where it was made, even if the file names another directory now.
    cluster.dir.clone_from(&record.dir);
    let Some(_lock) = journal.lock(token)? else {
        return Err(CliError::error(
            1,
            "sbatch is still working on this submission: wait for it to end",
        ));
    };
    let outcome = match record.state {
        State::Submitted(Some(job)) => Outcome::Submitted { job: Some(job), answered: true },
        State::Refused => Outcome::NotSubmitted,
        State::Submitted(None) | State::Prepared | State::Unknown => {
            settle(&clusters, &cluster, &journal, &mut record)?
        }
    };
    record.state = State::from(outcome);
    journal.update(&record)?;
    let name = &cluster.name;
    match outcome {
        Outcome::Submitted { job: Some(job), .. } => print(submitted(job, name).as_bytes()),
        Outcome::Submitted { job: None, .. } | Outcome::Unknown => Err(CliError::error(
            UNKNOWN,
            format!("it is still unknown whether cluster {name} has the job"),
        )
        .hint("try again later; without sacct there, only a job that squeue shows can be found")),
        Outcome::Refused | Outcome::NotSent | Outcome::NotSubmitted => Err(CliError::error(
            1,
            format!(
                "the job was not submitted to cluster {name}, and will not be: it is safe to submit it again"
            ),
        )),
    }
}

/// Finds out from the cluster whether a submission has become a job. If nothing there shows an
/// attempt, its jobs are looked up by the token for as long as one could still appear.
fn settle(
    clusters: &Clusters,
    cluster: &Cluster,
    journal: &Journal,
    record: &mut Record,
) -> Result<Outcome, CliError> {
    let token = record.token.clone();
    let place = Place { dir: &cluster.dir, token: &token };
    let ask = || {
        let output =
            Remote::new(cluster, &program::ask(place), "squeue")?.output(Input::Nothing)?;
        match output.ended {
            Ended::Code(0) => {
                let end = output.out.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let attempt = if output.out.starts_with(b"2\n") { 2 } else { 1 };
                Ok((attempt, read_report(&output.out[end..], output.err).0))
            }
            ended => Err(failure(clusters, cluster, &ended, "squeue")),
        }
    };
    // An unreachable cluster is an error here, not a reason to wait.
    let (attempt, fact) = ask()?;
    if record.doubted.is_none() {
        // The lock shows that no process of this host makes an attempt any more.
        record.doubted = Some(seconds());
        journal.update(record)?;
    }
    let quiet = record.doubted.and_then(|at| u64::try_from(seconds() - at).ok()).unwrap_or(0);
    let days = u64::try_from((seconds() - record.at) / 86_400).unwrap_or(0) + 2;
    let now = clock::monotonic().as_secs();
    let mut submission = Submission::resumed(attempt, now.saturating_sub(quiet));
    submission.note(fact, now);
    let settling = Settling { cluster, token: &token, days, keeps_hold: record.hold };
    let mut submit = |next, _| match next {
        // A lookup has shown that the job does not exist.
        2 if attempt == 1 => ControlFlow::Break(Outcome::NotSubmitted),
        _ => ControlFlow::Continue(ask().map_or(Fact::Broken, |(_, fact)| fact)),
    };
    let mut is_reported = false;
    let mut note = |_| {
        if !std::mem::replace(&mut is_reported, true) {
            print_stderr(&format!(
                "slotd: cluster {} does not show the job yet; asking again for a few minutes. Ctrl-C changes nothing\n",
                cluster.name
            ));
        }
    };
    Ok(settling.run(submission, &mut submit, &mut note))
}
