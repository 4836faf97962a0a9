//! Ends all jobs properly when the host or the user's service manager shuts down.
//!
//! The daemon gets the same SIGTERM at `systemctl stop` and during upgrades, after which jobs
//! continue. It therefore asks the service manager which case it is.

use crate::actors::messages::{CloseStore, HostGoesDown, SendCommits};
use crate::actors::{SchedulerActor, StoreActor};
use crate::daemon::run::notify_manager;
use crate::daemon::settings::Environment;
use actix::prelude::*;
use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// The longest wait for a service manager to report its state.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest grace period for jobs, regardless of `SLOTD_KILL_WAIT`: systemd kills a user's
/// manager after two minutes.
const LONGEST_GRACE: Duration = Duration::from_secs(90);

/// The time after SIGKILL to record the ends of the jobs.
const RECORDING: Duration = Duration::from_secs(10);

/// The longest wait for the database to close. Anything not yet moved into it is in its log.
const CLOSING: Duration = Duration::from_secs(10);

/// Writes all decisions into the database, so that its log is empty.
pub async fn close_store(scheduler: &Addr<SchedulerActor>, store: &Addr<StoreActor>) {
    let close = async {
        let _ = scheduler.send(SendCommits).await;
        let _ = store.send(CloseStore).await;
    };
    if timeout(CLOSING, close).await.is_err() {
        log::warn!(
            "the database was not closed within {} s: the next daemon will read its log",
            CLOSING.as_secs()
        );
    }
}

/// Whether the daemon's service manager is shutting down as a whole.
pub async fn is_under_way(env: &Environment) -> bool {
    let has = |name: &str| env.contains_key(OsStr::new(name));
    // systemd sets the first variable for all services, the second for those of a user's manager.
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

/// Ends all jobs because the host is shutting down, and waits until that is recorded.
pub async fn end_jobs(scheduler: &Addr<SchedulerActor>, kill_wait: Duration) {
    let longest = kill_wait.min(LONGEST_GRACE) + RECORDING;
    log::info!("the host is shutting down: ending running jobs");
    notify_manager(NotifyState::ExtendTimeoutUsec(
        longest.as_micros().try_into().unwrap_or(u32::MAX),
    ));
    if timeout(longest, scheduler.send(HostGoesDown)).await.is_err() {
        log::warn!(
            "some jobs have not ended within {} s: the next daemon will record their ends",
            longest.as_secs()
        );
    }
}
