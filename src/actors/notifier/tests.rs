//! Tests of commands. Emails and posts are tested with a daemon.

use super::*;
use slotd_model::{End, ExitCode, Job, JobId, JobState, Reason, Timestamp};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

fn end(id: u32) -> Notify {
    let mut job = Job { id: JobId(id), partition: "cpu".into(), ..Job::default() };
    Arc::make_mut(&mut job.request).name = "a name".to_owned();
    (job.run.state, job.run.reason) = (JobState::Ended(End::Failed), Reason::NonZeroExitCode);
    job.run.exit = ExitCode::status(3);
    let notice = Notice::of_end(&job, Timestamp(0));
    Notify { number: u64::from(id), notice }
}

/// The polling interval for conditions.
const LOOK: Duration = Duration::from_millis(5);

/// Receives the numbers of finished notifications.
struct Finished(mpsc::UnboundedSender<u64>);

impl Actor for Finished {
    type Context = Context<Self>;
}

impl Handler<NoticeGiven> for Finished {
    type Result = ();

    fn handle(&mut self, NoticeGiven(number): NoticeGiven, _: &mut Self::Context) {
        let _ = self.0.send(number);
    }
}

fn notifier(
    hook: Option<String>,
    timeout: Duration,
) -> (Addr<NotifierActor>, mpsc::UnboundedReceiver<u64>) {
    let (sender, given) = mpsc::unbounded_channel();
    let ways = Ways { command: hook.map(OsString::from), timeout, ..Ways::default() };
    (NotifierActor::new(ways, Finished(sender).start().recipient()).start(), given)
}

/// Waits until the file has this many lines. If it never does, the timeout of the test ends the
/// wait.
async fn lines(path: &Path, count: usize) -> Vec<String> {
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.lines().count() >= count {
            return text.lines().map(str::to_owned).collect();
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[actix_rt::test]
async fn hook_gets_the_job_in_its_environment() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let hook = format!(
        "echo \"$SLOTD_JOB_ID|$SLOTD_JOB_NAME|$SLOTD_JOB_STATE|$SLOTD_JOB_PARTITION|$SLOTD_JOB_REASON\" >> {}",
        log.display()
    );
    let (notifier, mut given) = notifier(Some(hook), Duration::from_secs(60));
    notifier.do_send(end(7));
    assert_eq!(given.recv().await, Some(7));
    assert_eq!(lines(&log, 1).await, ["7|a name|FAILED|cpu|NonZeroExitCode"]);
}

#[actix_rt::test]
async fn hanging_hooks_are_killed_and_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    // The first ones, as many as may run at once, hang.
    let hook = format!(
        "echo $$ $SLOTD_JOB_ID >> {}; [ $SLOTD_JOB_ID -gt {MAX_COMMANDS} ] || sleep 1000",
        log.display()
    );
    let patience = Duration::from_secs(3600);
    let (notifier, mut given) = notifier(Some(hook), patience);
    for id in 1..=MAX_COMMANDS as u32 + 1 {
        notifier.do_send(end(id));
    }
    // Wait for their lines before advancing the clock: otherwise, a slow machine could reach the
    // timeout first.
    lines(&log, MAX_COMMANDS).await;
    tokio::time::pause();
    tokio::time::advance(patience * 2).await;
    tokio::time::resume();
    let seen = lines(&log, MAX_COMMANDS + 1).await;
    // A hook that is still queued has not been reported.
    for id in 1..=MAX_COMMANDS as u64 + 1 {
        assert_eq!(given.recv().await, Some(id));
    }
    let (groups, jobs): (Vec<&str>, Vec<&str>) =
        seen.iter().filter_map(|line| line.split_once(' ')).unzip();
    assert_eq!(jobs.last(), Some(&(MAX_COMMANDS + 1).to_string().as_str()));
    // Wait for all process groups, so that nothing outlives the test.
    let groups = groups.iter().map(|pid| nix::unistd::Pid::from_raw(pid.parse().unwrap()));
    for group in groups {
        while nix::sys::signal::killpg(group, None).is_ok() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[actix_rt::test]
async fn notification_without_a_channel_is_discarded() {
    let (notifier, mut given) = notifier(None, Duration::from_secs(1));
    notifier.do_send(end(1));
    assert_eq!(given.recv().await, Some(1));
}
