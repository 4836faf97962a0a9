//! Processes that each send one notification: commands of the user, and messengers that send email.

use super::{OWN_PROGRAM, about};
use crate::actors::messages::{NoticeGiven, Notify};
use actix::prelude::*;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use slotd_exec::messenger::{GRACE, MAIL_ARG, Mail};
use slotd_model::End;
use slotd_model::memo::{NamedJob, Tally};
use slotd_model::notice::Notice;
use slotd_sys::guard::{guarded, unguarded};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The maximum number of bytes of a messenger's error output to log.
const MOST_WORDS: u64 = 1000;

/// How a messenger ended.
pub(super) enum Ended {
    /// The email was sent or abandoned.
    Final,
    /// The next daemon retries.
    NotStarted,
}

/// Isolates a child process from the daemon. Without `NOTIFY_SOCKET`, nothing that it starts can
/// send the service manager messages in the daemon's name.
pub(super) fn apart(command: &mut Command) -> &mut Command {
    command
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
}

/// Waits for a child. Returns `None` if it exceeded the timeout and was killed with its group.
async fn within(timeout: Duration, child: &mut Child) -> Option<io::Result<ExitStatus>> {
    let group = child.id().map(|pid| Pid::from_raw(pid.cast_signed()));
    match tokio::time::timeout(timeout, child.wait()).await {
        Ok(ended) => Some(ended),
        Err(_) => {
            if let Some(group) = group {
                let _ = killpg(group, Signal::SIGKILL);
            }
            let _ = child.wait().await;
            None
        }
    }
}

pub(super) async fn run_hook(
    command: OsString,
    event: Notify,
    timeout: Duration,
    given: Recipient<NoticeGiven>,
) {
    let Notify { number, notice } = event;
    let about = about(&notice);
    let mut shell = if cfg!(test) { unguarded("/bin/sh") } else { guarded(GRACE, "/bin/sh") };
    let spawned =
        apart(shell.arg("-c").arg(&command).envs(variables(&notice))).stdin(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => {
            return log::warn!(
                "could not start SLOTD_NOTIFY_CMD for {about}; the next daemon will retry: {e}"
            );
        }
    };
    given.do_send(NoticeGiven(number));
    let _held = child.stdin.take();
    match within(timeout, &mut child).await {
        Some(Ok(status)) if status.success() => {}
        Some(Ok(status)) => log::warn!("SLOTD_NOTIFY_CMD for {about} failed: {status}"),
        Some(Err(e)) => log::warn!("could not wait for SLOTD_NOTIFY_CMD for {about}: {e}"),
        None => log::warn!("SLOTD_NOTIFY_CMD for {about} was killed after {} s", timeout.as_secs()),
    }
}

pub(super) async fn run_mail(sendmail: PathBuf, event: Notify, timeout: Duration) -> Ended {
    let Notify { number, notice } = event;
    let about = about(&notice);
    let mut command = Command::new(OWN_PROGRAM);
    apart(command.arg(MAIL_ARG)).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            log::warn!("could not send mail for {about}; the next daemon will retry: {e}");
            return Ended::NotStarted;
        }
    };
    let mut mail = serde_json::to_vec(&Mail { sendmail, number, notice }).unwrap_or_default();
    mail.push(b'\n');
    let (mut stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let talk = async {
        if let Some(stdin) = &mut stdin {
            // A messenger that exits without reading its input prints the reason.
            let _ = stdin.write_all(&mail).await;
        }
        let mut words = Vec::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(MOST_WORDS).read_to_end(&mut words).await;
        }
        String::from_utf8_lossy(&words).trim().replace('\n', "; ")
    };
    // A process that sendmail leaves behind may keep standard error open, so the timeout covers the
    // reading, too.
    let both =
        async { tokio::join!(within(timeout, &mut child), tokio::time::timeout(timeout, talk)) };
    let (ended, words) = both.await;
    let words = words.unwrap_or_default();
    match ended {
        Some(Ok(status)) if status.success() => log::debug!("mail for {about} was sent"),
        Some(Ok(_)) => log::warn!("could not send mail for {about}: {words}"),
        Some(Err(e)) => log::warn!("could not wait for the mail messenger for {about}: {e}"),
        None => log::warn!("could not send mail for {about} within {} s", timeout.as_secs()),
    }
    Ended::Final
}

/// Returns the environment variables of a command.
fn variables(notice: &Notice) -> Vec<(&'static str, String)> {
    let mail = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut variables = vec![
        ("SLOTD_JOB_ID", notice.job_id.clone()),
        ("SLOTD_JOB_NAME", notice.name.clone()),
        ("SLOTD_JOB_STATE", notice.state.name().to_owned()),
        ("SLOTD_JOB_PARTITION", notice.partition.clone()),
        ("SLOTD_JOB_REASON", notice.reason.name().to_owned()),
        ("SLOTD_JOB_MAIL_TYPE", mail(&notice.mail_type)),
        ("SLOTD_JOB_MAIL_USER", mail(&notice.mail_user)),
        ("SLOTD_EVENT", notice.event.name().to_owned()),
        // Commands print it on a terminal or in a line of a log. It contains names of jobs.
        ("SLOTD_EVENT_TEXT", notice.text.replace(char::is_control, " ")),
    ];
    if let Some(Tally { counts, first, last, .. }) = notice.tally.as_deref() {
        let id =
            |job: &Option<NamedJob>| job.as_ref().map(|job| job.id.to_string()).unwrap_or_default();
        variables.extend([
            ("SLOTD_EVENT_JOBS", counts.total().to_string()),
            ("SLOTD_EVENT_COMPLETED", counts.of(End::Completed).to_string()),
            ("SLOTD_EVENT_FAILED", counts.failed().to_string()),
            ("SLOTD_EVENT_CANCELLED", counts.of(End::Cancelled).to_string()),
            ("SLOTD_EVENT_FIRST", id(first)),
            ("SLOTD_EVENT_LAST", id(last)),
        ]);
    }
    // Environment variables cannot contain NUL bytes.
    variables.iter_mut().for_each(|(_, value)| value.retain(|c| c != '\0'));
    variables
}
