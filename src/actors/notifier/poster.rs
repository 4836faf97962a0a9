//! The messenger that posts events. One process posts all pending events, in order and over one
//! connection. It retries on its own and exits at the end of its standard input.

use super::children::apart;
use super::{OWN_PROGRAM, about};
use crate::actors::messages::Notify;
use slotd_exec::messenger::{POST_ARG, Post, PostTo, Posted};
use slotd_parse::web_address::WebAddress;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// An idle messenger. If it is dropped, the runtime reaps its process.
pub(super) struct Poster {
    _child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The result of a post.
pub(super) struct Sent {
    /// The messenger, if it is still alive.
    pub poster: Option<Poster>,
    /// The post was accepted or abandoned. Otherwise the next daemon retries.
    pub is_final: bool,
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
        // The URL is secret, and command-line arguments are visible to all users.
        let to = PostTo { url: url.whole().to_owned(), timeout_secs: timeout.as_secs() };
        poster.write(&to).await?;
        Ok(poster)
    }

    async fn write(&mut self, message: &impl serde::Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stdin.write_all(&line).await
    }

    /// Reads the next answer. Fails if the messenger has exited.
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
        Ok(poster) => Sent { poster: Some(poster), is_final: true },
        Err(e) => {
            log::warn!("could not post {about} to {url}; the next daemon will retry: {e}");
            Sent { poster: None, is_final: false }
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
                log::warn!("could not post {about} to {url} yet, retrying: {why}")
            }
            Posted::GivenUp(why) => {
                log::warn!("could not post {about} to {url}, giving up: {why}");
                return Ok(poster);
            }
        }
    }
}
