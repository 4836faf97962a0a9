//! Server-sent events: changes of the queue, or changes of one job and the sizes of its outputs.
//!
//! A stream of the queue begins with the whole queue, followed by patches. A slow browser receives
//! the next patch when it has read the last one, so it has no backlog and delays no other browser.
//! An idle stream causes no wake-ups.

use super::job::named;
use super::live::{Live, Shown, registered};
use super::logs::{Stream, path_of};
use super::queue::{MOST, USUAL, patch};
use super::refused::{Refused, waiting};
use crate::client::watch::FileWatch;
use crate::commands::paths;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slotd_model::JobRef;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// Maximum number of streams. One more ends the oldest, whose page may have been closed without
/// notice.
const MOST_STREAMS: usize = 16;

/// The minimum time between two size events of a growing file.
const BETWEEN_SIZES: Duration = Duration::from_millis(200);

/// The open streams, oldest first. Dropping a sender ends its stream.
#[derive(Debug, Default)]
pub struct Streams(Mutex<VecDeque<oneshot::Sender<()>>>);

impl Streams {
    /// Adds a stream, which must end when the returned receiver resolves.
    fn enter(&self) -> oneshot::Receiver<()> {
        let (place, ended) = oneshot::channel();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|place| !place.is_closed());
        if open.len() >= MOST_STREAMS {
            open.pop_front();
        }
        open.push_back(place);
        ended
    }
}

#[derive(Debug, Deserialize)]
pub struct Wanted {
    /// The job to follow instead of the queue.
    job: Option<String>,
    /// Maximum number of pending rows.
    rows: Option<usize>,
}

/// An event, tagged with its name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "event")]
enum Event<'a> {
    /// The whole queue. `now` is the daemon's clock in milliseconds.
    Whole { now: i64, queue: &'a Value },
    /// A JSON merge patch for the last queue sent.
    Patch { now: i64, queue: &'a Value },
    /// The job may have changed.
    Changed,
    /// The sizes of the two outputs, in bytes; `None` for a missing file.
    Sizes { out: Option<u64>, err: Option<u64> },
    /// Whether the daemon answers.
    Daemon { up: bool },
}

/// The body of a response, received from the feeding task in pieces.
struct Body(mpsc::Receiver<Bytes>);

impl MessageBody for Body {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}

pub async fn stream(
    wanted: web::Query<Wanted>,
    streams: web::Data<Streams>,
    live: web::Data<Live>,
) -> Result<HttpResponse, Refused> {
    let paths = paths()?;
    let rows = match wanted.job {
        Some(_) => 0,
        None => wanted.rows.unwrap_or(USUAL).min(MOST),
    };
    let growth = match &wanted.job {
        None => None,
        Some(name) => {
            let job = named(name)?;
            waiting(move || Ok(Growth::of(&job).ok())).await?
        }
    };
    let (out, body) = mpsc::channel(1);
    let replaced = streams.enter();
    let (shown, is_of_job) = (live.subscribe(paths, rows), wanted.job.is_some());
    actix_rt::spawn(async move {
        let gone = out.clone();
        tokio::select! {
            _ = feed(shown, is_of_job, growth, &out) => {}
            () = gone.closed() => {}
            _ = replaced => {}
        }
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .body(Body(body)))
}

async fn send(out: &mpsc::Sender<Bytes>, event: &Event<'_>) -> io::Result<()> {
    let text = format!("data: {}\n\n", serde_json::to_string(event)?);
    out.send(text.into()).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Sends events until the browser disconnects.
async fn feed(
    mut shown: watch::Receiver<Shown>,
    is_of_job: bool,
    mut growth: Option<Growth>,
    out: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut sent = Shown::default();
    loop {
        let latest = shown.borrow_and_update().clone();
        if let Some(up) = latest.up.filter(|up| sent.up != Some(*up)) {
            send(out, &Event::Daemon { up }).await?;
        }
        let now = latest.now;
        if is_of_job && latest.updates > sent.updates {
            send(out, &Event::Changed).await?;
        } else if !is_of_job && sent.view.is_null() && !latest.view.is_null() {
            send(out, &Event::Whole { now, queue: &latest.view }).await?;
        } else if !is_of_job
            && let Some(queue) = patch(&sent.view, &latest.view)
            && !queue.is_null()
        {
            send(out, &Event::Patch { now, queue: &queue }).await?;
        }
        sent = latest;
        let sizes = async {
            match growth.as_mut() {
                Some(growth) => growth.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = shown.changed() => changed.map_err(io::Error::other)?,
            sizes = sizes => match sizes {
                Ok([out_size, err_size]) => send(out, &Event::Sizes { out: out_size, err: err_size }).await?,
                Err(_) => growth = None,
            },
        }
    }
}

/// The sizes of two files, watched with inotify.
struct Growth {
    paths: [PathBuf; 2],
    watch: FileWatch,
    ready: Option<AsyncFd<OwnedFd>>,
    known: Option<[Option<u64>; 2]>,
    reported: Option<Instant>,
}

impl Growth {
    fn of(job: &JobRef) -> Result<Growth, Refused> {
        let paths = [path_of(job, Stream::Out)?, path_of(job, Stream::Err)?];
        let watch = FileWatch::new().map_err(Refused::missing)?;
        Ok(Growth { paths, watch, ready: None, known: None, reported: None })
    }

    /// Returns the current sizes. It adds the watches again, because a file may have been replaced.
    fn look(&self) -> [Option<u64>; 2] {
        self.paths.iter().for_each(|path| self.watch.add(path));
        let size = |path: &PathBuf| {
            std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|it| it.len())
        };
        [size(&self.paths[0]), size(&self.paths[1])]
    }

    /// Waits until the sizes differ from the last ones returned, and returns them.
    async fn next(&mut self) -> io::Result<[Option<u64>; 2]> {
        if let Some(reported) = self.reported {
            sleep_until(reported + BETWEEN_SIZES).await;
        }
        loop {
            self.watch.clear();
            let sizes = self.look();
            if self.known != Some(sizes) {
                self.known = Some(sizes);
                self.reported = Some(Instant::now());
                return Ok(sizes);
            }
            let ready = match self.ready.take() {
                Some(ready) => ready,
                None => registered(self.watch.as_fd().try_clone_to_owned()?)?,
            };
            self.ready.insert(ready).readable().await?.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[actix_rt::test]
    async fn a_slow_browser_receives_missed_changes_as_one_patch() {
        let (latest, shown) = watch::channel(Shown::default());
        let (out, mut body) = mpsc::channel(1);
        actix_rt::spawn(async move { feed(shown, false, None, &out).await });
        for n in 0..=1000 {
            latest.send_modify(|shown| {
                shown.view = Arc::new(json!({ "rows": { "1": { "name": n }, "2": {} } }));
            });
            actix_rt::task::yield_now().await;
        }
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &String| !event.contains("1000")) {
            let bytes = body.recv().await.expect("the feed continues");
            events.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        assert!(events[0].contains(r#""event":"whole""#), "{events:?}");
        assert!(events.len() <= 4, "{events:?}");
        let last = r#"data: {"event":"patch","now":0,"queue":{"rows":{"1":{"name":1000}}}}"#;
        assert_eq!(events.last().map(|event| event.trim_end()), Some(last));
    }
}
