//! The host goes down, or its user's manager does, and with it all jobs: they are told while there
//! is time.
//!
//! The daemon gets the same SIGTERM as at `systemctl stop` and at an upgrade, after which jobs go
//! on. So it asks the manager that stops it.

use crate::actors::messages::{CloseStore, HostGoesDown, SendCommits};
use crate::actors::{SchedulerActor, StoreActor};
use crate::daemon::run::tell_manager;
use crate::daemon::settings::Environment;
use actix::prelude::*;
use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a manager may take to tell what it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most that jobs get, whatever `SLOTD_KILL_WAIT` says: systemd kills a user's manager after
/// two minutes.
const LONGEST_GRACE: Duration = Duration::from_secs(90);

/// For what follows SIGKILL: the ends are written down.
const RECORDING: Duration = Duration::from_secs(10);

/// How long the database may take to be closed. What is not in it by then is in its log.
const CLOSING: Duration = Duration::from_secs(10);

/// Writes everything that was decided into the database, so that its log is empty.
pub async fn close_store(scheduler: &Addr<SchedulerActor>, store: &Addr<StoreActor>) {
    let close = async {
        let _ = scheduler.send(SendCommits).await;
        let _ = store.send(CloseStore).await;
    };
    if timeout(CLOSING, close).await.is_err() {
        log::warn!(
            "the database was not closed in {} s: the next daemon reads its log",
            CLOSING.as_secs()
        );
    }
}

/// Whether the service manager of this daemon stops as a whole.
pub async fn is_under_way(env: &Environment) -> bool {
    let has = |name: &str| env.contains_key(OsStr::new(name));
    // systemd sets the first for all its services, the second for those of a user's manager.
    if !has("INVOCATION_ID") {
        return false;
    }
    let is_user = has("MANAGERPID");
    is_user && is_stopping(&["--user"]).await || is_stopping(&["--system"]).await
}

async fn is_stopping(manager: &[&str]) -> bool {
    let mut systemctl = Command::new("systemctl");
    systemctl
        .args(manager)
        .arg("is-system-running")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    match timeout(PATIENCE, systemctl.output()).await {
        Ok(Ok(output)) => output.stdout.trim_ascii() == b"stopping",
        _ => false,
    }
}

/// Ends all jobs as those of a host that goes down, and waits until that is written down.
pub async fn end_jobs(scheduler: &Addr<SchedulerActor>, kill_wait: Duration) {
    let longest = kill_wait.min(LONGEST_GRACE) + RECORDING;
    log::info!("the host goes down: running jobs end");
    tell_manager(NotifyState::ExtendTimeoutUsec(
        longest.as_micros().try_into().unwrap_or(u32::MAX),
    ));
    if timeout(longest, scheduler.send(HostGoesDown)).await.is_err() {
        log::warn!(
            "some jobs have not ended in {} s: the next daemon records their ends",
            longest.as_secs()
        );
    }
}
