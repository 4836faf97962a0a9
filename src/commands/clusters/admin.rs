//! `slotd cluster`: lists, checks and logs in to clusters, and resolves submissions.

use super::super::Done;
use super::super::clean::counted;
use super::clean::{self, CleanArgs};
use super::remote::{
    Advice, Remote, UNKNOWN, advice, cause, failure, journal, known, print, seconds, shared,
    sockets, tell,
};
use super::submit::exchange::{Settling, read_report};
use crate::args::error::CliError;
use crate::clusters::config::{Cluster, Link, WorkDir};
use crate::clusters::journal::{End, Journal, Record, is_token};
use crate::clusters::link::{self, Clusters, Ended, Input, Output};
use crate::clusters::program::{self, Place};
use crate::clusters::token::{Fact, Outcome, State, Submission};
use slotd_parse::error::shown;
use slotd_sys::clock;
use std::fs::{self, DirBuilder};
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Stdio;

/// How long a shared connection stays open without use.
const PERSIST: &str = "ControlPersist=12h";

/// The largest difference between the clocks that goes unmentioned, in seconds.
const MOST_SKEW: i64 = 30;

#[derive(Debug, clap::Subcommand)]
pub enum ClusterVerb {
    /// List the clusters in clusters.toml, and submissions whose outcome is unknown
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
            clean::clean(&clusters, find(&clusters, args.name())?, args)
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

fn list() -> Done {
    let clusters = known()?;
    if clusters.list.is_empty() {
        tell(&format!("slotd: {} has no clusters\n", clusters.file.display()));
    }
    let mut text = String::new();
    for cluster in &clusters.list {
        let (how, shared) = match &cluster.link {
            Link::Ssh(host) => {
                let socket = shared(cluster)?;
                (format!("ssh {host}"), if socket.is_some() { "  shared connection" } else { "" })
            }
            Link::Local(dir) => (format!("local {}", dir.display()), ""),
        };
        let workdir = match &cluster.workdir {
            WorkDir::Snapshot => "snapshot".to_owned(),
            WorkDir::Same => "same".to_owned(),
            WorkDir::Map(pairs) => pairs
                .iter()
                .map(|(here, there)| format!("{here} -> {there}"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        text.push_str(&format!(
            "{:<12} {how}  dir {}  workdir {workdir}{shared}\n",
            cluster.name, cluster.dir
        ));
    }
    let unsure = |record: &&Record| matches!(record.state, State::Prepared | State::Unknown);
    let records = journal()?.all()?;
    for cluster in &clusters.list {
        let is_old = |record: &&Record| {
            let age = |from: i64| u64::try_from(seconds() - from).unwrap_or(0);
            let is_refused = record.state == State::Refused && age(record.at) >= cluster.keep;
            let has_ended = |end: &End| record.fetched || age(end.at) >= cluster.keep;
            record.cluster.eq_ignore_ascii_case(&cluster.name)
                && (is_refused || record.end.as_ref().is_some_and(has_ended))
        };
        let old = records.iter().filter(is_old).count() as u64;
        if old > 0 {
            let name = &cluster.name;
            let count = counted(old, "submission");
            text.push_str(&format!("old: slotd cluster clean {name}    # {count}\n"));
        }
    }
    for record in records.iter().filter(unsure) {
        let line = shlex::try_join(record.words.iter().map(String::as_str)).unwrap_or_default();
        text.push_str(&format!(
            "unknown: slotd cluster resolve {}    # sbatch -M {} {line}\n",
            record.token, record.cluster
        ));
    }
    print(text.as_bytes())
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
    match Remote::new(cluster, &program::check(&cluster.dir), "uname")
        .and_then(|remote| remote.output(Input::Nothing))
    {
        Err(error) => report.fail(
            error.lines.first().map_or("", |(_, line)| line),
            format!("correct it in {file}"),
        ),
        Ok(output) => {
            let after = seconds();
            judge(&mut report, cluster, &output, (before, after), &file);
        }
    }
    print(report.text.as_bytes())?;
    Ok(u8::from(report.failed))
}

/// Judges the answers of a cluster.
fn judge(report: &mut Report, cluster: &Cluster, output: &Output, asked: (i64, i64), file: &str) {
    let name = &cluster.name;
    match &output.ended {
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
            return;
        }
        Ended::Broken | Ended::Missing => {
            report.fail(
                "the connection broke during the check",
                "try again; if it happens again, the login files there end the shell",
            );
            return;
        }
    }
    let text = String::from_utf8_lossy(&output.out);
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).unwrap_or_default()
    };
    report.ok(format!("login node: {}", shown(value("host"))));
    if let Ok(there) = value("time").parse::<i64>() {
        let skew = if there < asked.0 { there - asked.0 } else { (there - asked.1).max(0) };
        if skew.abs() > MOST_SKEW {
            report.note(format!("its clock differs by {skew} seconds: compare times of this host and of the cluster with care"));
        } else {
            report.ok("the clocks agree");
        }
    }
    let missing: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("missing ")).collect();
    let (slurms, tools): (Vec<&str>, Vec<&str>) =
        missing.iter().partition(|name| !["tar", "find"].contains(name));
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
    if slurms.contains(&"sbatch") {
        return;
    }
    let version = value("version");
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
    match value("cluster") {
        "" => report.fail("scontrol does not reach the controller", "run `scontrol ping` there: the controller may be down, or SLURM_CONF is needed (export = [\"SLURM_CONF\"])"),
        there => report.ok(format!("ClusterName: {}", shown(there))),
    }
    let result = |key: &str| {
        let (code, why) = value(key).split_once(' ').unwrap_or((value(key), ""));
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
            "sacct does not work: {why}; if sbatch times out, it cannot be found out whether the job exists"
        )),
    }
    match result("dir") {
        (true, _) => report.ok(format!("the staging directory {} can be written", cluster.dir)),
        (false, why) => report.fail(
            format!("the staging directory {} cannot be written: {why}", cluster.dir),
            format!(
                "set `dir` of {name} in {file} to a directory with space that the compute nodes see"
            ),
        ),
    }
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
        tell(&format!("slotd: already logged in to cluster {name}\n"));
        return Ok(0);
    }
    // ssh does not replace the socket of a connection that has ended.
    if let Err(error) = fs::remove_file(&socket)
        && error.kind() != std::io::ErrorKind::NotFound
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
    tell(&format!(
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
    let mut record = journal.read(token).map_err(|error| {
        CliError::error(1, format!("there is no submission {token}: {error}"))
            .hint("slotd cluster list shows those whose outcome is unknown")
    })?;
    let clusters = known()?;
    let mut cluster = find(&clusters, &record.cluster)?.clone();
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
        Outcome::Submitted { job: Some(job), .. } => {
            print(format!("Submitted batch job {job} on cluster {name}\n").as_bytes())
        }
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
    let mut is_told = false;
    let mut note = |_| {
        if !std::mem::replace(&mut is_told, true) {
            tell(&format!(
                "slotd: cluster {} does not show the job yet; asking again for a few minutes. Ctrl-C changes nothing\n",
                cluster.name
            ));
        }
    };
    Ok(settling.run(submission, &mut submit, &mut note))
}
