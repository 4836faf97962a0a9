//! Runs a first job through the queue to check the installation.

use super::layout::Layout;
use super::output::{fail, note, report_step};
use crate::args::error::CliError;
use crate::client::connection::Connection;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum time for the job, which may have to wait for others.
const PATIENCE: Duration = Duration::from_secs(20);

const WORK: &str = "echo \"hello from slotd: job $SLURM_JOB_ID on $(uname -n)\"";

/// Runs the first job.
///
/// # Errors
/// Fails if the job was refused or did not complete.
pub fn run(layout: &Layout) -> Result<(), CliError> {
    if let Some(reason) = drain(layout) {
        report_step("no first job is sent through the queue");
        note(&format!("the host is drained ({reason}), so no job starts until `slotd resume`"));
        return Ok(());
    }
    report_step("send a first job through the queue");
    let template = std::env::temp_dir().join("slotd-first-job-XXXXXX");
    let dir = nix::unistd::mkdtemp(&template).map_err(|e| {
        fail(format!(
            "cannot create the temporary directory {}: {e}: check TMPDIR",
            template.display()
        ))
    })?;
    let done = submit(layout, &dir);
    let _ = std::fs::remove_dir_all(&dir);
    done
}

/// Returns why no job can start on this host, if it is drained.
fn drain(layout: &Layout) -> Option<String> {
    let mut daemon = Connection::open(&layout.paths).ok()?;
    daemon.send(&Request::Node, &[]).ok()?;
    match daemon.wait().ok()?.0 {
        Answer::Node(node) => node.drained.map(|reason| reason.text),
        _ => None,
    }
}

/// Returns an installed command with the environment of a new login shell.
fn command(layout: &Layout, name: &str) -> Command {
    let mut command = Command::new(layout.bin_dir.join(name));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["SLOTD_", "SBATCH_", "SLURM_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

fn submit(layout: &Layout, dir: &Path) -> Result<(), CliError> {
    let output = dir.join("first-job.out");
    // In the output file names of jobs, % starts a pattern.
    let pattern = output.display().to_string().replace('%', "%%");
    let refused = || fail("the first job was refused: see the message above");
    let mut sbatch = command(layout, "sbatch")
        .args([
            "--parsable",
            "--wait",
            "-J",
            "first-job",
            "-c",
            "1",
            "--mem",
            "16M",
            "-t",
            "1",
            "-o",
            &pattern,
        ])
        .arg("-D")
        .arg(&layout.root)
        .args(["--wrap", WORK])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|_| refused())?;
    let mut id = String::new();
    // sbatch prints the ID immediately and exits when the job has ended.
    let is_read =
        sbatch.stdout.take().is_some_and(|out| BufReader::new(out).read_line(&mut id).is_ok());
    let id = id.trim();
    if !is_read || id.is_empty() {
        let _ = sbatch.wait();
        return Err(refused());
    }
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(sbatch.wait()));
    if end.recv_timeout(PATIENCE).is_err() {
        let queued = command(layout, "squeue").args(["-h", "-o", "%T, %r", "-j", id]).output();
        let state = queued.map(|output| output.stdout).unwrap_or_default();
        let _ = command(layout, "scancel").arg(id).status();
        note(&format!(
            "cancelled job {id}: it did not finish within {} seconds ({}); see squeue",
            PATIENCE.as_secs(),
            String::from_utf8_lossy(&state).trim()
        ));
        return Ok(());
    }
    let shown = command(layout, "sacct").args(["-j", id]).status();
    if !shown.is_ok_and(|status| status.success()) {
        return Err(fail(format!("sacct -j {id} failed: see the message above")));
    }
    std::fs::read_to_string(&output).unwrap_or_default().lines().for_each(note);
    let state = command(layout, "sacct").args(["-X", "-n", "-P", "-o", "State", "-j", id]).output();
    let state = state
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default();
    if state != "COMPLETED" {
        return Err(fail(format!("the first job ended as {state}: see scontrol show job {id}")));
    }
    Ok(())
}
