//! Server-sent events: what has changed in the queue, as the daemon tells it, and how long the
//! outputs of the job are that the page shows.
//!
//! Each stream has a connection to the daemon of its own and reads the next news when the browser
//! has taken the last: one that does not read holds nobody up, and what it misses is told together.
//! Nothing here wakes up while nothing happens.

use super::job::named;
use super::logs::{Stream, path_of};
use super::refused::{Refused, waiting};
use crate::client::follow::{Follower, Heard};
use crate::client::watch::FileWatch;
use crate::commands::paths;
use crate::model::JobRef;
use crate::model::changed::Changed;
use crate::sys::paths::Paths;
use actix_web::body::{BodySize, MessageBody};
use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
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
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Streams at once. A further one ends the oldest, whose page may be closed: nobody tells.
const MOST_STREAMS: usize = 16;

/// A file that grows without end is told of no more often.
const BETWEEN_SIZES: Duration = Duration::from_millis(200);

/// The streams that are open, the oldest first: dropping one ends it.
#[derive(Debug, Default)]
pub struct Streams(Mutex<VecDeque<oneshot::Sender<()>>>);

impl Streams {
    /// A place for another one: it ends when this resolves.
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
    /// The job whose outputs are followed.
    job: Option<String>,
}

/// What is sent: the name of the event, and what it says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "event")]
enum Event<'a> {
    Changed(&'a Changed),
    /// Bytes of the two outputs; none for one that is not there.
    Sizes {
        out: Option<u64>,
        err: Option<u64>,
    },
    /// Whether the daemon answers.
    Daemon {
        up: bool,
    },
}

/// The body of an answer: what the feeding task hands in, a piece at a time.
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
) -> Result<HttpResponse, Refused> {
    let paths = paths()?;
    let growth = match &wanted.job {
        None => None,
        Some(name) => {
            let job = named(name)?;
            waiting(move || Ok(Growth::of(&job).ok())).await?
        }
    };
    let (out, body) = mpsc::channel(1);
    let replaced = streams.enter();
    actix_rt::spawn(async move {
        let gone = out.clone();
        tokio::select! {
            _ = feed(&paths, growth, &out) => {}
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

/// Tells news, over restarts of the daemon, until the browser is gone.
async fn feed(
    paths: &Paths,
    mut growth: Option<Growth>,
    out: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut follower = Follower::patient(paths).map_err(io::Error::other)?;
    let mut is_up = None;
    loop {
        while let Some(heard) = follower.next() {
            let up = !matches!(heard, Heard::Away);
            if is_up.replace(up) != Some(up) {
                send(out, &Event::Daemon { up }).await?;
            }
            if let Heard::Changed(changed) = heard {
                send(out, &Event::Changed(&changed)).await?;
            }
        }
        // Another one after each restart of the daemon.
        let ready = registered(follower.fd().try_clone_to_owned()?)?;
        let sizes = async {
            match growth.as_mut() {
                Some(growth) => growth.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            is_ready = ready.readable() => {
                is_ready?.retain_ready();
                follower.read().map_err(io::Error::other)?;
            }
            sizes = sizes => match sizes {
                Ok([out_size, err_size]) => send(out, &Event::Sizes { out: out_size, err: err_size }).await?,
                Err(_) => growth = None,
            },
        }
    }
}

fn registered(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the AsyncFd, and open as long as it is registered.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// How long two files are, told by the kernel when that changes.
struct Growth {
    paths: [PathBuf; 2],
    watch: FileWatch,
    ready: Option<AsyncFd<OwnedFd>>,
    known: Option<[Option<u64>; 2]>,
    told: Option<Instant>,
}

impl Growth {
    fn of(job: &JobRef) -> Result<Growth, Refused> {
        let paths = [path_of(job, Stream::Out)?, path_of(job, Stream::Err)?];
        let watch = FileWatch::new().map_err(Refused::missing)?;
        Ok(Growth { paths, watch, ready: None, known: None, told: None })
    }

    /// Again and again: another file may have the name.
    fn look(&self) -> [Option<u64>; 2] {
        self.paths.iter().for_each(|path| self.watch.add(path));
        let size = |path: &PathBuf| {
            std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|it| it.len())
        };
        [size(&self.paths[0]), size(&self.paths[1])]
    }

    /// The sizes, once they are others than those that were told last.
    async fn next(&mut self) -> io::Result<[Option<u64>; 2]> {
        if let Some(told) = self.told {
            sleep_until(told + BETWEEN_SIZES).await;
        }
        loop {
            self.watch.clear();
            let sizes = self.look();
            if self.known != Some(sizes) {
                self.known = Some(sizes);
                self.told = Some(Instant::now());
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
