//! A first job through the queue: what was installed works.

use super::layout::Layout;
use super::say::{fail, note, say};
use crate::args::error::CliError;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long it may wait for its turn on a machine that is full of jobs.
const PATIENCE: Duration = Duration::from_secs(20);

const WORK: &str = "echo \"hello from slotd: job $SLURM_JOB_ID on $(uname -n)\"";

/// # Errors
/// The job was not taken, or did not complete.
pub fn run(layout: &Layout) -> Result<(), CliError> {
    say("send a first job through the queue");
    let template = std::env::temp_dir().join("slotd-first-job-XXXXXX");
    let dir = nix::unistd::mkdtemp(&template).map_err(|e| {
        fail(format!(
            "no temporary directory can be made in {}: {e}: check TMPDIR",
            template.display()
        ))
    })?;
    let done = submit(layout, &dir);
    let _ = std::fs::remove_dir_all(&dir);
    done
}

/// One of the commands that were installed, in the environment that a new login shell has.
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
    // File names of jobs have patterns with %.
    let pattern = output.display().to_string().replace('%', "%%");
    let refused = || fail("the first job was not taken: see the message above");
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
    // The number comes at once, the end when the job has ended.
    let told =
        sbatch.stdout.take().is_some_and(|out| BufReader::new(out).read_line(&mut id).is_ok());
    let id = id.trim();
    if !told || id.is_empty() {
        let _ = sbatch.wait();
        return Err(refused());
    }
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(sbatch.wait()));
    if end.recv_timeout(PATIENCE).is_err() {
        let _ = command(layout, "scancel").arg(id).status();
        note(&format!(
            "job {id} did not get its turn in {} seconds, as others fill the machine (see squeue); it was cancelled",
            PATIENCE.as_secs()
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
