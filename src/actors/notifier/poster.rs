//! The messenger that posts events: one process, as long as there are some to post, so that they go
//! out in their order and by one connection. It tries again by itself, and ends with its standard
//! input.

use super::children::apart;
use super::{OWN_PROGRAM, about};
use crate::actors::messages::Notify;
use crate::exec::messenger::{POST_ARG, Post, PostTo, Posted};
use crate::parse::web_address::WebAddress;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A messenger that waits for the next event. It need not be waited for: the runtime does that when
/// it is dropped.
pub(super) struct Poster {
    _child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What became of a post.
pub(super) struct Sent {
    /// The messenger, if it still lives.
    pub poster: Option<Poster>,
    /// It was taken, or given up; otherwise the next daemon tries again.
    pub is_told: bool,
}

impl Poster {
    async fn start(url: &WebAddress, timeout: Duration) -> io::Result<Poster> {
        let mut command = Command::new(OWN_PROGRAM);
        apart(command.arg(POST_ARG)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut poster = Poster { _child: child, stdin, answers: BufReader::new(stdout).lines() };
        // Not as an argument: those are shown to everybody on the host.
        let to = PostTo { url: url.whole().to_owned(), timeout_secs: timeout.as_secs() };
        poster.write(&to).await?;
        Ok(poster)
    }

    async fn write(&mut self, message: &impl serde::Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stdin.write_all(&line).await
    }

    /// `None`: it has ended.
    async fn answer(&mut self) -> io::Result<Posted> {
        let line = self.answers.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(serde_json::from_str(&line)?)
    }
}

pub(super) async fn post(
    poster: Option<Poster>,
    url: WebAddress,
    timeout: Duration,
    event: Notify,
) -> Sent {
    let about = about(&event.notice);
    match try_post(poster, &url, timeout, event, &about).await {
        Ok(poster) => Sent { poster: Some(poster), is_told: true },
        Err(e) => {
            log::warn!("{about} could not be posted to {url}, the next daemon tries again: {e}");
            Sent { poster: None, is_told: false }
        }
    }
}

async fn try_post(
    poster: Option<Poster>,
    url: &WebAddress,
    timeout: Duration,
    Notify { number, notice }: Notify,
    about: &str,
) -> io::Result<Poster> {
    let mut poster = match poster {
        Some(poster) => poster,
        None => Poster::start(url, timeout).await?,
    };
    poster.write(&Post { number, notice }).await?;
    loop {
        match poster.answer().await? {
            Posted::Given => return Ok(poster),
            Posted::Failing(why) => {
                log::warn!("{about} is not posted to {url} yet, it is tried again: {why}")
            }
            Posted::GivenUp(why) => {
                log::warn!("{about} could not be posted to {url}, and is given up: {why}");
                return Ok(poster);
            }
        }
    }
}
