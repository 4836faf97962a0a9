//! NotifierActor: runs `SLOTD_NOTIFY_CMD` for what people are told.
//!
//! Owns the hooks that run and those that wait. Receives [`Notify`]. Sends [`NoticeGiven`] once a hook has started, so that the
//! next daemon tells what this one has not: a hook may run twice after a crash. A hook that fails, hangs or floods touches
//! no job. At most [`MAX_RUNNING`] hooks run at once and [`MAX_WAITING`] wait; beyond that the oldest waiting one is given
//! up and logged. A hook that outlives its time-out is killed with its process group.
//! If it dies, notifications end and everything else goes on.

use crate::actors::messages::{NoticeGiven, Notify};
use crate::model::JobState;
use crate::model::memo::{NamedJob, Tally};
use crate::model::notice::Notice;
use actix::prelude::*;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

const MAX_RUNNING: usize = 4;
const MAX_WAITING: usize = 10_000;

pub struct NotifierActor {
    command: Option<OsString>,
    timeout: Duration,
    given: Recipient<NoticeGiven>,
    running: usize,
    waiting: VecDeque<Notify>,
}

impl NotifierActor {
    /// `command` is given to `/bin/sh -c`; `None` makes every notification a no-op.
    pub fn new(command: Option<OsString>, timeout: Duration, given: Recipient<NoticeGiven>) -> Self {
        NotifierActor { command, timeout, given, running: 0, waiting: VecDeque::new() }
    }

    fn start_waiting(&mut self, ctx: &mut Context<Self>) {
        let Some(command) = self.command.clone() else { return };
        while self.running < MAX_RUNNING {
            let Some(event) = self.waiting.pop_front() else { return };
            self.running += 1;
            let hook = run_hook(command.clone(), event, self.timeout, self.given.clone());
            ctx.spawn(hook.into_actor(self).map(|(), actor, ctx| {
                actor.running -= 1;
                actor.start_waiting(ctx);
            }));
        }
    }
}

async fn run_hook(command: OsString, event: Notify, timeout: Duration, given: Recipient<NoticeGiven>) {
    let Notify { number, notice } = event;
    let about = about(&notice);
    let spawned = tokio::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(&command)
        .envs(variables(&notice))
        // It is no part of the service: nothing that it starts may speak for the daemon.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => {
            return log::warn!("SLOTD_NOTIFY_CMD for {about} could not be started, the next daemon tries again: {e}");
        }
    };
    given.do_send(NoticeGiven(number));
    match tokio::time::timeout(timeout, child.wait()).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => log::warn!("SLOTD_NOTIFY_CMD for {about} failed: {status}"),
        Ok(Err(e)) => log::warn!("SLOTD_NOTIFY_CMD for {about} could not be waited for: {e}"),
        Err(_) => {
            log::warn!("SLOTD_NOTIFY_CMD for {about} was killed after {} s", timeout.as_secs());
            if let Some(pid) = child.id() {
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            let _ = child.wait().await;
        }
    }
}

/// What a notice is about, for the log.
fn about(notice: &Notice) -> String {
    let event = notice.event;
    if notice.job_id.is_empty() { format!("event {}", event.name()) } else { format!("job {}", notice.job_id) }
}

/// What the command sees.
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
        ("SLOTD_EVENT_TEXT", notice.text.clone()),
    ];
    if let Some(Tally { counts, first, last, .. }) = notice.tally.as_deref() {
        let id = |job: &Option<NamedJob>| job.as_ref().map(|job| job.id.to_string()).unwrap_or_default();
        variables.extend([
            ("SLOTD_EVENT_JOBS", counts.total().to_string()),
            ("SLOTD_EVENT_COMPLETED", counts.of(JobState::Completed).to_string()),
            ("SLOTD_EVENT_FAILED", counts.failed().to_string()),
            ("SLOTD_EVENT_CANCELLED", counts.of(JobState::Cancelled).to_string()),
            ("SLOTD_EVENT_FIRST", id(first)),
            ("SLOTD_EVENT_LAST", id(last)),
        ]);
    }
    // No program takes a zero byte in its environment.
    variables.iter_mut().for_each(|(_, value)| value.retain(|c| c != '\0'));
    variables
}

impl Actor for NotifierActor {
    type Context = Context<Self>;
}

impl Handler<Notify> for NotifierActor {
    type Result = ();

    fn handle(&mut self, event: Notify, ctx: &mut Self::Context) {
        if self.command.is_none() {
            return self.given.do_send(NoticeGiven(event.number));
        }
        if self.waiting.len() >= MAX_WAITING
            && let Some(dropped) = self.waiting.pop_front()
        {
            log::warn!("too many notifications wait: the one for {} is dropped", about(&dropped.notice));
            self.given.do_send(NoticeGiven(dropped.number));
        }
        self.waiting.push_back(event);
        self.start_waiting(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ExitCode, Job, JobId, Reason, Timestamp};
    use std::path::Path;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    fn end(id: u32) -> Notify {
        let mut job = Job { id: JobId(id), partition: "cpu".to_owned(), ..Job::default() };
        Arc::make_mut(&mut job.request).name = "a name".to_owned();
        (job.run.state, job.run.reason) = (JobState::Failed, Reason::NonZeroExitCode);
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

    fn notifier(hook: Option<String>, timeout: Duration) -> (Addr<NotifierActor>, mpsc::UnboundedReceiver<u64>) {
        let (say, given) = mpsc::unbounded_channel();
        (NotifierActor::new(hook.map(OsString::from), timeout, Ear(say).start().recipient()).start(), given)
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
        let hook =
            format!("echo $$ $SLOTD_JOB_ID >> {}; [ $SLOTD_JOB_ID -gt {MAX_RUNNING} ] || sleep 1000", log.display());
        let (notifier, mut given) = notifier(Some(hook), Duration::from_millis(300));
        for id in 1..=MAX_RUNNING as u32 + 1 {
            notifier.do_send(end(id));
        }
        let seen = lines(&log, MAX_RUNNING + 1).await;
        // What waits for its turn is not told yet.
        for id in 1..=MAX_RUNNING as u64 + 1 {
            assert_eq!(given.recv().await, Some(id));
        }
        let (groups, jobs): (Vec<&str>, Vec<&str>) = seen.iter().filter_map(|line| line.split_once(' ')).unzip();
        assert_eq!(jobs.last(), Some(&(MAX_RUNNING + 1).to_string().as_str()));
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
}
