//! NotifierActor: runs `SLOTD_NOTIFY_CMD` when a job is over.
//!
//! Owns the hooks that run and those that wait. Receives [`NotifyEnd`]. Sends [`NoticeGiven`] once a hook has started, so that the
//! next daemon tells what this one has not: a hook may run twice after a crash. A hook that fails, hangs or floods touches
//! no job. At most [`MAX_RUNNING`] hooks run at once and [`MAX_WAITING`] wait; beyond that the oldest waiting one is given
//! up and logged. A hook that outlives its time-out is killed with its process group.
//! If it dies, notifications end and everything else goes on.

use crate::actors::messages::{NoticeGiven, NotifyEnd};
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
    waiting: VecDeque<NotifyEnd>,
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

async fn run_hook(command: OsString, event: NotifyEnd, timeout: Duration, given: Recipient<NoticeGiven>) {
    let NotifyEnd { number, notice } = event;
    let Notice { job_id: job, name, state, partition, reason, mail_type, mail_user } = notice;
    let spawned = tokio::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(&command)
        .env("SLOTD_JOB_ID", &job)
        .env("SLOTD_JOB_NAME", name)
        .env("SLOTD_JOB_STATE", state.name())
        .env("SLOTD_JOB_PARTITION", partition)
        .env("SLOTD_JOB_REASON", reason.name())
        .env("SLOTD_JOB_MAIL_TYPE", mail_type.unwrap_or_default())
        .env("SLOTD_JOB_MAIL_USER", mail_user.unwrap_or_default())
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
            return log::warn!("SLOTD_NOTIFY_CMD for job {job} could not be started, the next daemon tries again: {e}");
        }
    };
    given.do_send(NoticeGiven(number));
    match tokio::time::timeout(timeout, child.wait()).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => log::warn!("SLOTD_NOTIFY_CMD for job {job} failed: {status}"),
        Ok(Err(e)) => log::warn!("SLOTD_NOTIFY_CMD for job {job} could not be waited for: {e}"),
        Err(_) => {
            log::warn!("SLOTD_NOTIFY_CMD for job {job} was killed after {} s", timeout.as_secs());
            if let Some(pid) = child.id() {
                let _ = killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            let _ = child.wait().await;
        }
    }
}

impl Actor for NotifierActor {
    type Context = Context<Self>;
}

impl Handler<NotifyEnd> for NotifierActor {
    type Result = ();

    fn handle(&mut self, event: NotifyEnd, ctx: &mut Self::Context) {
        if self.command.is_none() {
            return self.given.do_send(NoticeGiven(event.number));
        }
        if self.waiting.len() >= MAX_WAITING
            && let Some(dropped) = self.waiting.pop_front()
        {
            log::warn!("too many notifications wait: the one for job {} is dropped", dropped.notice.job_id);
            self.given.do_send(NoticeGiven(dropped.number));
        }
        self.waiting.push_back(event);
        self.start_waiting(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JobState, Reason};
    use std::path::Path;
    use tokio::sync::mpsc;

    fn end(id: u32) -> NotifyEnd {
        let notice = Notice {
            job_id: id.to_string(),
            name: "a name".to_owned(),
            state: JobState::Failed,
            partition: "cpu".to_owned(),
            reason: Reason::NonZeroExitCode,
            mail_type: None,
            mail_user: None,
        };
        NotifyEnd { number: u64::from(id), notice }
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
