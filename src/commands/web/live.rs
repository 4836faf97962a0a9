//! The picture of the queue, shared by all pages. One task keeps it current while a page is open,
//! across restarts of the daemon.
//!
//! A page never has a backlog: when it is ready, it receives the difference between the latest
//! picture and its own (`events`).

use super::queue;
use crate::client::follow::{Follower, Heard};
use crate::commands::origin;
use crate::commands::output::ctx;
use crate::live::{InView, Link, Picture};
use serde_json::Value;
use slotd_sys::paths::Paths;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// The minimum time between two updates.
const BETWEEN_UPDATES: Duration = Duration::from_millis(300);

/// The maximum time for which a steady flow of changes can delay an update. After that, an
/// incomplete picture is shown.
const LONGEST_INCOMPLETE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Whether the daemon answers; `None` if not yet known.
    pub up: Option<bool>,
    /// The number of updates.
    pub updates: u64,
    /// The daemon's clock, in milliseconds.
    pub now: i64,
    /// The result of [`queue::view`]; null until the daemon has answered.
    pub view: Arc<Value>,
}

/// The task that keeps the picture current, if it is running.
#[derive(Debug, Default)]
pub struct Live(Mutex<Weak<Keeper>>);

#[derive(Debug, Default)]
struct Keeper {
    shown: watch::Sender<Shown>,
    /// The maximum number of pending rows that any page has requested.
    rows: watch::Sender<usize>,
}

impl Live {
    /// Subscribes to the picture. The sender is dropped if the daemon cannot be followed.
    pub fn subscribe(&self, paths: Paths, rows: usize) -> watch::Receiver<Shown> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keeper = current.upgrade().unwrap_or_else(|| {
            let keeper = Arc::new(Keeper::default());
            *current = Arc::downgrade(&keeper);
            actix_rt::spawn(keep(Arc::clone(&keeper), paths));
            keeper
        });
        keeper.rows.send_if_modified(|most| rows > std::mem::replace(most, rows.max(*most)));
        keeper.shown.subscribe()
    }
}

/// Keeps the picture current until the last page disconnects.
async fn keep(keeper: Arc<Keeper>, paths: Paths) {
    tokio::select! {
        _ = follow(&keeper, &paths) => {}
        () = keeper.shown.closed() => {}
    }
}

async fn follow(keeper: &Keeper, paths: &Paths) -> io::Result<()> {
    let follower = Follower::patient(paths).map_err(io::Error::other)?;
    let mut follower = follower.with_pause(BETWEEN_UPDATES);
    let origin = origin();
    let mut rows = keeper.rows.subscribe();
    let (mut link, mut picture) = (Link::default(), Picture::default());
    // The time of the first change that is not shown yet.
    let mut differs_since: Option<Instant> = None;
    loop {
        while let Some(heard) = follower.next() {
            differs_since.get_or_insert_with(Instant::now);
            let up = !matches!(heard, Heard::Away);
            keeper.shown.send_if_modified(|shown| shown.up.replace(up) != Some(up));
            match heard {
                Heard::Changed(changed) => {
                    link.changed(&changed);
                    // The node and the usage of jobs are requested again too.
                    link.tick();
                }
                Heard::Away => {
                    (link, picture) = (Link::default(), Picture::default());
                    differs_since = None;
                    keeper.shown.send_modify(|shown| shown.view = Arc::default());
                }
                Heard::Answer(answer) => link.answer(&mut picture, *answer),
            }
        }
        follower.go_on();
        let most = *rows.borrow();
        let visible = queue::visible(&picture, most).map(|job| job.id).collect();
        let question = link.next(&picture, &InView { visible, ..InView::default() });
        let is_complete = link.is_settled();
        if let Some(question) = question {
            follower.ask(&question);
        }
        if let (Some(since), Some(node)) = (differs_since, &picture.node)
            && (is_complete || since.elapsed() > LONGEST_INCOMPLETE)
        {
            let mut ctx = ctx(&origin, node.now);
            ctx.bitstr_len.get_or_insert(24);
            let view = queue::view(&picture, node, most, &ctx)?;
            keeper.shown.send_modify(|shown| {
                shown.updates += 1;
                (shown.now, shown.view) = (super::rows::millis(node.now), Arc::new(view));
            });
            differs_since = None;
        }
        let ready = registered(follower.fd().try_clone_to_owned()?)?;
        let rest = follower.rest();
        tokio::select! {
            is_ready = ready.readable() => {
                is_ready?.retain_ready();
                follower.read().map_err(io::Error::other)?;
            }
            () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {}
            _ = rows.changed() => differs_since = Some(Instant::now()),
        }
    }
}

pub fn registered(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, so it stays open while it is registered.
    Ok(unsafe { AsyncFd::register(fd) }?)
}
