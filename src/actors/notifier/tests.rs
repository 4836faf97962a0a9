//! Commands: mails and posts are tested with a daemon.

use super::*;
use crate::model::{End, ExitCode, Job, JobId, JobState, Reason, Timestamp};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

fn end(id: u32) -> Notify {
    let mut job = Job { id: JobId(id), partition: "cpu".to_owned(), ..Job::default() };
    Arc::make_mut(&mut job.request).name = "a name".to_owned();
    (job.run.state, job.run.reason) = (JobState::Ended(End::Failed), Reason::NonZeroExitCode);
    job.run.exit = ExitCode::status(3);
    let notice = Notice::of_end(&job, Timestamp(0));
    Notify { number: u64::from(id), notice }
}

/// How long a condition rests between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// Hears which were given.
struct Ear(mpsc::UnboundedSender<u64>);

impl Actor for Ear {
    type Context = Context<Self>;
}

impl Handler<NoticeGiven> for Ear {
    type Result = ();

    fn handle(&mut self, NoticeGiven(number): NoticeGiven, _: &mut Self::Context) {
        let _ = self.0.send(number);
    }
}

fn notifier(
    hook: Option<String>,
    timeout: Duration,
) -> (Addr<NotifierActor>, mpsc::UnboundedReceiver<u64>) {
    let (say, given) = mpsc::unbounded_channel();
    let ways = Ways { command: hook.map(OsString::from), timeout, ..Ways::default() };
    (NotifierActor::new(ways, Ear(say).start().recipient()).start(), given)
}

/// Waits until the file has so many lines; the test's own time-out ends it otherwise.
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
async fn a_hook_sees_the_job_in_its_environment() {
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
async fn hooks_that_hang_are_killed_and_the_others_have_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    // The first ones hang: as many as may run at once.
    let hook = format!(
        "echo $$ $SLOTD_JOB_ID >> {}; [ $SLOTD_JOB_ID -gt {MAX_COMMANDS} ] || sleep 1000",
        log.display()
    );
    let patience = Duration::from_secs(3600);
    let (notifier, mut given) = notifier(Some(hook), patience);
    for id in 1..=MAX_COMMANDS as u32 + 1 {
        notifier.do_send(end(id));
    }
    // However slow the machine is, they have written their lines before their time is over.
    lines(&log, MAX_COMMANDS).await;
    tokio::time::pause();
    tokio::time::advance(patience * 2).await;
    tokio::time::resume();
    let seen = lines(&log, MAX_COMMANDS + 1).await;
    // What waits for its turn is not told yet.
    for id in 1..=MAX_COMMANDS as u64 + 1 {
        assert_eq!(given.recv().await, Some(id));
    }
    let (groups, jobs): (Vec<&str>, Vec<&str>) =
        seen.iter().filter_map(|line| line.split_once(' ')).unzip();
    assert_eq!(jobs.last(), Some(&(MAX_COMMANDS + 1).to_string().as_str()));
    // All of them: nothing that this test has started outlives it.
    let groups = groups.iter().map(|pid| nix::unistd::Pid::from_raw(pid.parse().unwrap()));
    for group in groups {
        while nix::sys::signal::killpg(group, None).is_ok() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[actix_rt::test]
async fn without_a_command_nothing_is_kept() {
    let (notifier, mut given) = notifier(None, Duration::from_secs(1));
    notifier.do_send(end(1));
    assert_eq!(given.recv().await, Some(1));
}
