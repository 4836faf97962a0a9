//! The daemon's end of the connection to a running step: a stream of events and a sink for
//! commands.
//!
//! Dropping both halves only closes the connection. The step keeps running, and `adopt::inspect`
//! finds it again.

use crate::idle_watchers::IdleWatchers;
use crate::launch_spec::{LaunchSpec, StepCommand, StepEvent};
use crate::{job_files, wire};
use slotd_model::StepId;
use slotd_sys::socket;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// A connection to a step. Use `split` if events and commands have different owners.
#[derive(Debug)]
pub struct StepHandle {
    commands: StepCommands,
    events: StepEvents,
}

/// The sink for commands.
#[derive(Debug, Clone)]
pub struct StepCommands(mpsc::UnboundedSender<StepCommand>);

/// The stream of events.
#[derive(Debug)]
pub struct StepEvents(mpsc::UnboundedReceiver<StepEvent>);

impl StepCommands {
    /// Queues a command. Returns false if the step has ended: its last event reports how.
    pub fn send(&self, command: StepCommand) -> bool {
        self.0.send(command).is_ok()
    }
}

impl StepEvents {
    /// Returns the next event, or `None` after the last one. If neither `Ended` nor `Refused`
    /// preceded `None`, the watcher died, or was never created because the launcher died.
    /// `adopt::inspect` determines which.
    pub async fn next_event(&mut self) -> Option<StepEvent> {
        self.0.recv().await
    }
}

#[cfg(test)]
impl StepHandle {
    /// See [`StepCommands::send`].
    pub fn send(&self, command: StepCommand) -> bool {
        self.commands.send(command)
    }

    /// See [`StepEvents::next_event`].
    pub async fn next_event(&mut self) -> Option<StepEvent> {
        self.events.next_event().await
    }
}

impl StepHandle {
    /// Launches a prepared step. `spec` is the one it was prepared with, with its cgroup.
    pub fn begin(&self, spec: &LaunchSpec) {
        // If the watcher has died, the events end, and the launch is repeated.
        self.commands.send(spec.begin());
    }

    pub fn split(self) -> (StepCommands, StepEvents) {
        (self.commands, self.events)
    }

    /// Takes over a connection. `identity` locates the exit record of the step.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub(super) fn serve(socket: UnixStream, identity: Identity, opening: Opening) -> StepHandle {
        let (command_in, commands) = mpsc::unbounded_channel();
        let (events, event_out) = mpsc::unbounded_channel();
        tokio::spawn(Connection { socket, identity, opening, commands, events }.run());
        StepHandle { commands: StepCommands(command_in), events: StepEvents(event_out) }
    }
}

/// Registers a socket with the event loop.
///
/// # Errors
/// Fails if it cannot be made asynchronous.
///
/// # Panics
/// Panics outside a tokio runtime.
pub(super) fn asynchronous(socket: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// The launch that a connection belongs to.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub job_dir: PathBuf,
    pub step: StepId,
    pub run: u32,
}

/// Data to send before anything else.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// The watcher's end of the connection, if it is yet to be sent to a launcher that was too busy
    /// to receive it.
    pub for_launcher: Option<(OwnedFd, OwnedFd)>,
    /// Receives the connection if the watcher stays for another step.
    pub idle: Option<Arc<IdleWatchers>>,
}

struct Connection {
    socket: UnixStream,
    identity: Identity,
    opening: Opening,
    commands: mpsc::UnboundedReceiver<StepCommand>,
    events: mpsc::UnboundedSender<StepEvent>,
}

/// The reason why a connection ends.
enum CloseReason {
    /// The last event was forwarded, or nobody is listening.
    Done,
    /// The last event was forwarded, and the watcher waits for another step.
    Stays,
    /// The peer disconnected without a last event.
    Lost,
}

impl Connection {
    async fn run(mut self) {
        match self.exchange().await.unwrap_or(CloseReason::Lost) {
            CloseReason::Done => {}
            CloseReason::Stays => {
                if let Some(idle) = self.opening.idle {
                    idle.put(self.socket);
                }
            }
            CloseReason::Lost => {
                // The watcher writes the record before it reports the end and exits, so the file
                // may contain an end that was not reported.
                let Identity { job_dir, step, run } = &self.identity;
                if let Ok(Some(record)) = job_files::read_record(job_dir, *step, *run) {
                    let _ = self.events.send(StepEvent::Ended(record));
                }
            }
        }
    }

    /// Runs until the peer disconnects or nobody is listening.
    async fn exchange(&mut self) -> io::Result<CloseReason> {
        if let Some((launcher, peer)) = self.opening.for_launcher.take() {
            // SAFETY: the descriptor is owned by the AsyncFd and thus open as long as it is
            // registered.
            let launcher =
                unsafe { AsyncFd::register_with_interest(launcher, Interest::WRITABLE)? };
            launcher
                .async_io(Interest::WRITABLE, |fd| {
                    socket::send_some(fd, &[0], &[peer.as_raw_fd()], &mut 0)
                })
                .await?;
        }
        let raw: Vec<RawFd> = self.opening.fds.iter().map(AsRawFd::as_raw_fd).collect();
        let bytes = std::mem::take(&mut self.opening.bytes);
        // A launcher that could not fork has reported the reason and closed the other end.
        let _ = socket::send_all_async(&self.socket, &bytes, &raw).await;
        self.opening.fds.clear();

        let mut decoder = wire::decoder();
        let mut buf = [0u8; 8192];
        let mut reason = CloseReason::Done;
        loop {
            tokio::select! {
                ready = self.socket.readable() => {
                    ready?;
                    match self.socket.try_read(&mut buf) {
                        Ok(0) => return Ok(CloseReason::Lost),
                        Ok(n) => decoder.push(&buf[..n]),
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(e) => return Err(e),
                    }
                    while let Some(event) = wire::next_message(&mut decoder)? {
                        if event == StepEvent::Stays {
                            reason = CloseReason::Stays;
                            continue;
                        }
                        let last = matches!(event, StepEvent::Ended(_) | StepEvent::Refused(_));
                        let received = self.events.send(event).is_ok();
                        if last {
                            return Ok(reason);
                        } else if !received {
                            return Ok(CloseReason::Done);
                        }
                    }
                }
                command = self.commands.recv(), if !self.commands.is_closed() || !self.commands.is_empty() => {
                    if let Some(command) = command {
                        let bytes = wire::encode(&command)?;
                        socket::send_all_async(&self.socket, &bytes, &[]).await?;
                    }
                }
                () = self.events.closed() => return Ok(CloseReason::Done),
            }
        }
    }
}
